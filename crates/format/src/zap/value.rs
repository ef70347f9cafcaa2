//! Keys, values and entries of a ZAP, apart from how they are stored.

use std::fmt;

use super::hash::hash_bits;

/// What an entry is looked up by.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Key<'a> {
    /// A name, without a NUL.
    Name(&'a [u8]),
    /// Words, in ZAPs with [`super::FatFlags::UINT64_KEY`] (dedup tables).
    Words(&'a [u64]),
}

impl Key<'_> {
    /// The bytes of the key as a leaf stores them.
    pub fn stored(&self) -> Vec<u8> {
        match self {
            Key::Name(name) => {
                let mut bytes = Vec::with_capacity(name.len() + 1);
                bytes.extend_from_slice(name);
                bytes.push(0);
                bytes
            }
            Key::Words(words) => words.iter().flat_map(|w| w.to_be_bytes()).collect(),
        }
    }

    /// Length of [`Key::stored`] in bytes.
    pub fn stored_len(&self) -> usize {
        match self {
            Key::Name(name) => name.len() + 1,
            Key::Words(words) => words.len() * 8,
        }
    }
}

impl<'a> From<&'a [u8]> for Key<'a> {
    fn from(name: &'a [u8]) -> Self {
        Key::Name(name)
    }
}

impl<'a, const N: usize> From<&'a [u8; N]> for Key<'a> {
    fn from(name: &'a [u8; N]) -> Self {
        Key::Name(name)
    }
}

impl<'a> From<&'a str> for Key<'a> {
    fn from(name: &'a str) -> Self {
        Key::Name(name.as_bytes())
    }
}

/// The value of an entry: an array of integers of 1, 2, 4 or 8 bytes.
#[derive(Clone, PartialEq, Eq)]
pub struct Value(Repr);

/// Almost all values are one word, so that needs no allocation. `Array` is never one u64.
#[derive(Clone, PartialEq, Eq)]
enum Repr {
    U64(u64),
    Array {
        /// Bytes of each integer.
        int_size: u8,
        /// The integers, big-endian, as a leaf stores them.
        bytes: Vec<u8>,
    },
}

impl Value {
    /// The value from the bytes of a leaf; what is left over after the last integer is dropped.
    pub(super) fn from_stored(int_size: u8, mut bytes: Vec<u8>) -> Value {
        if let (8, Ok(word)) = (int_size, <[u8; 8]>::try_from(bytes.as_slice())) {
            return Value(Repr::U64(u64::from_be_bytes(word)));
        }
        bytes.truncate(bytes.len() - bytes.len() % usize::from(int_size.max(1)));
        Value(Repr::Array { int_size, bytes })
    }

    /// One 64-bit integer.
    pub fn u64(value: u64) -> Value {
        Value(Repr::U64(value))
    }

    /// An array of 64-bit integers.
    pub fn words(words: &[u64]) -> Value {
        Value::from_stored(8, words.iter().flat_map(|w| w.to_be_bytes()).collect())
    }

    /// An array of 32-bit integers.
    pub fn u32s(ints: &[u32]) -> Value {
        Value::from_stored(4, ints.iter().flat_map(|w| w.to_be_bytes()).collect())
    }

    /// An array of 16-bit integers.
    pub fn u16s(ints: &[u16]) -> Value {
        Value::from_stored(2, ints.iter().flat_map(|w| w.to_be_bytes()).collect())
    }

    /// Bytes as they are.
    pub fn bytes(bytes: &[u8]) -> Value {
        Value::from_stored(1, bytes.to_vec())
    }

    /// A string; its NUL is added.
    pub fn string(text: &[u8]) -> Value {
        Value::from_stored(1, [text, &[0]].concat())
    }

    /// Bytes of each integer: 1, 2, 4 or 8.
    pub fn int_size(&self) -> u8 {
        match &self.0 {
            Repr::U64(_) => 8,
            Repr::Array { int_size, .. } => *int_size,
        }
    }

    /// Number of integers.
    pub fn count(&self) -> usize {
        match &self.0 {
            Repr::U64(_) => 1,
            Repr::Array { int_size, bytes } => bytes.len() / usize::from((*int_size).max(1)),
        }
    }

    /// Calls `f` with the bytes as a leaf stores them: big-endian integers.
    pub fn with_stored<R>(&self, f: impl FnOnce(&[u8]) -> R) -> R {
        match &self.0 {
            Repr::U64(word) => f(&word.to_be_bytes()),
            Repr::Array { bytes, .. } => f(bytes),
        }
    }

    /// The value, if it is exactly one 64-bit integer.
    pub fn as_u64(&self) -> Option<u64> {
        match self.0 {
            Repr::U64(word) => Some(word),
            Repr::Array { .. } => None,
        }
    }

    /// The integers, each widened to 64 bits.
    pub fn ints(&self) -> Vec<u64> {
        match &self.0 {
            Repr::U64(word) => vec![*word],
            Repr::Array { int_size, bytes } => bytes
                .chunks_exact(usize::from((*int_size).max(1)))
                .map(|int| int.iter().fold(0, |sum, &b| sum << 8 | u64::from(b)))
                .collect(),
        }
    }

    /// The bytes, if the integers are bytes.
    pub fn as_bytes(&self) -> Option<&[u8]> {
        match &self.0 {
            Repr::Array { int_size: 1, bytes } => Some(bytes),
            _ => None,
        }
    }

    /// The bytes up to the first NUL, if the integers are bytes.
    pub fn as_string(&self) -> Option<&[u8]> {
        self.as_bytes().and_then(|bytes| bytes.split(|&b| b == 0).next())
    }
}

impl From<u64> for Value {
    fn from(value: u64) -> Self {
        Value::u64(value)
    }
}

impl fmt::Debug for Value {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.0 {
            Repr::U64(word) => write!(f, "{word}"),
            Repr::Array { int_size: 1, bytes } => write!(f, "\"{}\"", bytes.escape_ascii()),
            Repr::Array { int_size, .. } => write!(f, "u{}{:?}", int_size * 8, self.ints()),
        }
    }
}

/// An entry as read from a ZAP.
#[derive(Clone, PartialEq, Eq)]
pub struct Entry {
    /// The name without its NUL; for keys of words, their big-endian bytes ([`Entry::words`]).
    pub name: Vec<u8>,
    /// What it is mapped to.
    pub value: Value,
    /// The hash, left-aligned.
    pub hash: u64,
    /// Collision number among entries of this hash.
    pub cd: u32,
}

impl Entry {
    /// The key of an entry of a ZAP whose keys are words.
    pub fn words(&self) -> Vec<u64> {
        let word = |b: &[u8]| b.first_chunk().map_or(0, |b| u64::from_be_bytes(*b));
        self.name.chunks_exact(8).map(word).collect()
    }
}

impl fmt::Debug for Entry {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "\"{}\" = {:?}", self.name.escape_ascii(), self.value)?;
        write!(f, " (hash {:x}, cd {})", self.hash, self.cd)
    }
}

/// A place in the listing of a ZAP: before the first entry whose (hash, cd) is not lower.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct Cursor {
    /// Hash, left-aligned.
    pub hash: u64,
    /// Collision number.
    pub cd: u32,
}

impl Cursor {
    /// Before all entries.
    pub const START: Cursor = Cursor { hash: 0, cd: 0 };
    /// After all entries: no hash has its lowest bits set.
    pub const END: Cursor = Cursor { hash: u64::MAX, cd: u32::MAX };

    /// Right after an entry.
    pub fn after(entry: &Entry) -> Cursor {
        match entry.cd.checked_add(1) {
            Some(cd) => Cursor { hash: entry.hash, cd },
            None => entry.hash.checked_add(1).map_or(Self::END, |hash| Cursor { hash, cd: 0 }),
        }
    }

    /// The place as one word, as OpenZFS hands it to readers of directories: the bits of the hash
    /// low, the collision number above them. `flags` are [`super::FatFlags`].
    ///
    /// A disk can hold places that no cookie has. The next one that some cookie has stands for such a place, never
    /// one before it: a listing would come back to where it was, for ever.
    pub fn to_cookie(self, flags: u64) -> u64 {
        let bits = hash_bits(flags);
        let (hash, below) = (self.hash >> (64 - bits), self.hash << bits);
        match u64::from(self.cd) {
            _ if self == Self::END => u64::MAX,
            cd if below == 0 && cd <= u64::MAX >> bits => hash | cd << bits,
            _ if (hash + 1) >> bits != 0 => u64::MAX,
            _ => hash + 1,
        }
    }

    /// The place of a cookie. One that no place has is the end.
    pub fn from_cookie(cookie: u64, flags: u64) -> Cursor {
        let bits = hash_bits(flags);
        match u32::try_from(cookie >> bits) {
            Ok(cd) if cookie != u64::MAX => Cursor { hash: cookie << (64 - bits), cd },
            _ => Self::END,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn cookies_keep_the_place() {
        for flags in [0, 1] {
            let hash = 0xabcd_ef01_2345_6789 & !(u64::MAX >> hash_bits(flags));
            for cd in [0, 1, 0xffff] {
                let place = Cursor { hash, cd };
                assert_eq!(Cursor::from_cookie(place.to_cookie(flags), flags), place);
            }
            assert_eq!(Cursor::from_cookie(Cursor::END.to_cookie(flags), flags), Cursor::END);
            assert_eq!(Cursor::START.to_cookie(flags), 0);
        }
        let entry = Entry { name: vec![], value: Value::u64(0), hash: 1 << 40, cd: 3 };
        assert_eq!(Cursor::after(&entry).to_cookie(0), 16 | 4 << 28);
    }

    #[test]
    fn a_listing_by_cookies_moves_on_after_any_entry() {
        let hashes = [0, 1, 1 << 20, 0xabcd_ef01_2345_6789, u64::MAX << 36, u64::MAX - 1, u64::MAX];
        for flags in [0, 1] {
            for hash in hashes {
                for cd in [0, 1, 0xffff, 0x1_0000, u32::MAX] {
                    let entry = Entry { name: vec![], value: Value::u64(0), hash, cd };
                    let cookie = Cursor::after(&entry).to_cookie(flags);
                    let next = Cursor::from_cookie(cookie, flags);
                    let moves_on = next == Cursor::END || next > Cursor { hash, cd };
                    assert!(moves_on, "{flags}: {entry:?}, {next:?}");
                }
            }
        }
        // Cookies that no entry gives. Doors count a few places of their own before those of the ZAP.
        for cookie in [1 << 60, 1 << 63, u64::MAX - 3] {
            assert_eq!(Cursor::from_cookie(cookie, 0), Cursor::END);
        }
    }

    #[test]
    fn values_keep_their_integers() {
        assert_eq!(Value::words(&[7]), Value::u64(7));
        assert_eq!(Value::words(&[7]).as_u64(), Some(7));
        assert_eq!(Value::words(&[1, 2]).ints(), [1, 2]);
        assert_eq!(Value::words(&[1, 2]).as_u64(), None);
        assert_eq!(Value::u16s(&[0x102, 3]).ints(), [0x102, 3]);
        assert_eq!(Value::u32s(&[0x1020304]).count(), 1);
        assert_eq!(Value::string(b"on").as_bytes(), Some(&b"on\0"[..]));
        assert_eq!(Value::string(b"on").as_string(), Some(&b"on"[..]));
        assert_eq!(Value::bytes(&[]).count(), 0);
        assert_eq!(Value::words(&[]).ints(), [0; 0]);
        // A value of int size 0 (hostile) is empty, and no division by zero.
        assert_eq!(Value::from_stored(0, vec![]).count(), 0);
        assert_eq!(format!("{:?}", Value::u16s(&[5, 6])), "u16[5, 6]");
    }
}
