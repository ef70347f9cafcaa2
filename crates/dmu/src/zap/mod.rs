//! ZAPs of objects: look up, add, update, remove, count, list.
//!
//! The structures are in [`format::zap`]; here are the changes that take several blocks: a micro ZAP
//! grows and becomes a fat one, a leaf splits, the pointer table doubles. The one idea: all works
//! on the blocks of one object through [`ZapBlocks`], without a copy of a block, so the same code
//! serves an object in a txg, a test in memory, and a pool being made.
//!
//! Everything a change needs is read before the first byte is changed: an error from a device or
//! from a damaged ZAP leaves the ZAP as it was.
//!
//! One change at a time: whoever owns the object sees to it.

use format::FormatError;
use format::zap::{Cursor, Entry, Key, Kind, Reader, Value};

mod fat;
mod filled;
mod memory;
mod micro;
mod table;

pub use filled::{each_number, format_filled, micro_size, refill};
pub use memory::MemoryBlocks;
pub use micro::Memo;

/// The blocks of the object that a ZAP is in.
pub trait ZapBlocks {
    /// What can go wrong with them.
    type Error;

    /// Size of a block in bytes.
    fn block_size(&self) -> usize;

    /// The highest block that exists.
    fn max_block(&self) -> u64;

    /// Calls `f` with the newest bytes of a block.
    fn read<R>(&self, blkid: u64, f: impl FnOnce(&[u8]) -> R) -> Result<R, Self::Error>;

    /// Calls `f` with the bytes of a block, to change. A block that does not exist yet begins as
    /// zeros and exists from then on. A block that was modified once in a change can be read and
    /// modified again in the same change without an error.
    fn modify<R>(&mut self, blkid: u64, f: impl FnOnce(&mut [u8]) -> R) -> Result<R, Self::Error>;

    /// Changes the size of blocks while there is only block 0; its bytes stay as far as they fit,
    /// what is added is zeros.
    fn set_block_size(&mut self, bytes: usize) -> Result<(), Self::Error>;

    /// Frees blocks `[first, first + count)`.
    fn free_blocks(&mut self, first: u64, count: u64) -> Result<(), Self::Error>;

    /// An error of the ZAP as one of these blocks: adds which object it is.
    fn error(&self, error: ZapError) -> Self::Error;

    /// Takes what [`ZapBlocks::keep_memo`] was given last for this object, if it is still there
    /// and nobody changed block 0 in another way than through this module.
    fn take_memo(&mut self) -> Memo {
        Memo::default()
    }

    /// Keeps what makes the next change of a large micro ZAP quick. Who does not, pays on each
    /// addition for looking at all entries.
    fn keep_memo(&mut self, _memo: Memo) {}

    /// Calls `f` with what is kept; no change of the ZAP may come in between.
    fn with_memo<R>(&self, f: impl FnOnce(&Memo) -> R) -> R {
        f(&Memo::default())
    }
}

/// What can be wrong with a ZAP, or with what is asked of it.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum ZapError {
    /// The ZAP is damaged.
    #[error(transparent)]
    Damaged(#[from] FormatError),
    /// No ZAP has names of this length.
    #[error("a ZAP name of {len} bytes, expected 1 to 255 without a NUL")]
    Name {
        /// Length of the name in bytes.
        len: usize,
    },
    /// This ZAP has names, not words, as keys, or the other way round.
    #[error("a key that is not of the kind of the ZAP's keys")]
    KeyKind,
    /// No entry of this ZAP can have such a value.
    #[error("a ZAP value of {len} bytes, expected at most {max}")]
    ValueTooLarge {
        /// Size of the value in bytes.
        len: usize,
        /// The largest that fits.
        max: usize,
    },
    /// A number was asked for, and the value is none.
    #[error("ZAP entry \"{}\": the value is not one 64-bit integer", name.escape_ascii())]
    NotOneInteger {
        /// The entry's name.
        name: Vec<u8>,
    },
    /// A counter would go below zero or beyond 64 bits.
    #[error("ZAP entry \"{}\": {value} cannot be changed by {delta}", name.escape_ascii())]
    Counter {
        /// The entry's name.
        name: Vec<u8>,
        /// Its value.
        value: u64,
        /// What was to be added.
        delta: i64,
    },
    /// So many names share their hash that no leaf can hold them.
    #[error("too many ZAP names of one hash")]
    Full,
    /// In this ZAP names are the same in several forms, and the common form of this one is not
    /// known here.
    #[error("ZAP name \"{}\": its normalized form is not known", name.escape_ascii())]
    Normalization {
        /// The name.
        name: Vec<u8>,
    },
}

/// Reads a block by a function that can find it damaged.
fn read<B: ZapBlocks, R>(
    blocks: &B,
    blkid: u64,
    f: impl FnOnce(&[u8]) -> format::Result<R>,
) -> Result<R, B::Error> {
    blocks.read(blkid, f)?.map_err(|e| blocks.error(e.in_block(blkid).into()))
}

/// Changes a block by a function that can find it damaged.
fn modify<B: ZapBlocks, R>(
    blocks: &mut B,
    blkid: u64,
    f: impl FnOnce(&mut [u8]) -> format::Result<R>,
) -> Result<R, B::Error> {
    blocks.modify(blkid, f)?.map_err(|e| blocks.error(e.in_block(blkid).into()))
}

/// Makes sure that a block can be changed later without an error.
fn touch<B: ZapBlocks>(blocks: &mut B, blkid: u64) -> Result<(), B::Error> {
    blocks.modify(blkid, |_| ())
}

/// Checks that an entry can be in a ZAP at all.
fn check_key<B: ZapBlocks>(blocks: &B, key: Key<'_>) -> Result<(), B::Error> {
    let ok = match key {
        Key::Name(name) => (1..=format::zap::NAME_MAX).contains(&name.len()) && !name.contains(&0),
        Key::Words(words) => (1..=format::zap::NAME_MAX / 8).contains(&words.len()),
    };
    let len = key.stored_len();
    if ok { Ok(()) } else { Err(blocks.error(ZapError::Name { len })) }
}

/// The form of a ZAP.
pub fn kind<B: ZapBlocks>(blocks: &B) -> Result<Kind, B::Error> {
    read(blocks, 0, format::zap::kind)
}

/// Makes block 0 an empty micro ZAP, with blocks as large as they are (new ZAPs: 512 bytes).
///
/// `salt` must be odd, and should be random: who knows it can make names of one hash.
pub fn format_micro<B: ZapBlocks>(
    blocks: &mut B,
    salt: u64,
    normflags: u64,
) -> Result<(), B::Error> {
    blocks.keep_memo(Memo::default());
    modify(blocks, 0, |block| format::zap::micro::MicroMut::format(block, salt, normflags))
}

/// Makes an object without data an empty fat ZAP, with blocks of `1 << block_shift` bytes
/// (usually [`format::zap::FAT_BLOCK_SHIFT`]). `flags` are [`format::zap::FatFlags`].
pub fn format_fat<B: ZapBlocks>(
    blocks: &mut B,
    block_shift: u32,
    salt: u64,
    normflags: u64,
    flags: u64,
) -> Result<(), B::Error> {
    blocks.keep_memo(Memo::default());
    fat::format(blocks, block_shift, salt, normflags, flags)
}

/// The value of a key, exactly as it is spelled.
pub fn lookup<'k, B: ZapBlocks>(
    blocks: &B,
    key: impl Into<Key<'k>>,
) -> Result<Option<Value>, B::Error> {
    let key = key.into();
    match fat::open(blocks, key)? {
        fat::Opened::Micro => micro::lookup(blocks, key),
        fat::Opened::Fat(fat) => fat.lookup(blocks, key),
        fat::Opened::Unknown => {
            let Key::Name(name) = key else { return Ok(None) };
            find_any(blocks, |entry| entry.name == name).map(|e| e.map(|e| e.value))
        }
    }
}

/// The value of a key, which must be one 64-bit integer.
pub fn lookup_u64<'k, B: ZapBlocks>(
    blocks: &B,
    key: impl Into<Key<'k>>,
) -> Result<Option<u64>, B::Error> {
    let key = key.into();
    let value = lookup(blocks, key)?;
    value.map(|value| one_integer(blocks, key, &value)).transpose()
}

fn one_integer<B: ZapBlocks>(blocks: &B, key: Key<'_>, value: &Value) -> Result<u64, B::Error> {
    value.as_u64().ok_or_else(|| {
        let Key::Name(name) = key else { return blocks.error(ZapError::KeyKind) };
        blocks.error(ZapError::NotOneInteger { name: name.to_vec() })
    })
}

/// The entry whose name is `name` in the sense of the ZAP's normflags: in a ZAP that ignores case,
/// the first of any case, unless `match_case`. In one that does not normalize, the same as [`lookup`].
pub fn lookup_normalized<B: ZapBlocks>(
    blocks: &B,
    name: &[u8],
    match_case: bool,
) -> Result<Option<Entry>, B::Error> {
    use format::zap::NormFlags;
    use format::zap::normal::normalized;
    let mut normflags = fat::salt_and_normflags(blocks)?.1;
    // The hash is that of the full form, whatever is compared.
    let Some(hash) = hash_of(blocks, Key::Name(name))? else {
        return find_any(blocks, |entry| entry.name == name);
    };
    if match_case {
        normflags &= !NormFlags::TOUPPER;
    }
    let form = normalized(name, normflags);
    // The entries of one hash stand together in the listing, lowest collision number first.
    let mut reader = reader(blocks)?;
    for entry in reader.entries_from(Cursor { hash, cd: 0 }) {
        let entry = entry.map_err(|e| e.of(blocks))?;
        if entry.hash != hash {
            break;
        }
        if entry.name == name || form.is_some() && normalized(&entry.name, normflags) == form {
            return Ok(Some(entry));
        }
    }
    Ok(None)
}

/// Adds an entry; `false`, and no change, if there is one of this key.
pub fn add<'k, B: ZapBlocks>(
    blocks: &mut B,
    key: impl Into<Key<'k>>,
    value: &Value,
) -> Result<bool, B::Error> {
    let key = key.into();
    check_key(blocks, key)?;
    match fat::open(blocks, key)? {
        fat::Opened::Micro => micro::set(blocks, key, value, micro::Mode::Add),
        fat::Opened::Fat(mut fat) => fat.add(blocks, key, value),
        fat::Opened::Unknown => Err(unknown_form(blocks, key)),
    }
}

/// Adds an entry, or replaces the value of the one there is.
pub fn update<'k, B: ZapBlocks>(
    blocks: &mut B,
    key: impl Into<Key<'k>>,
    value: &Value,
) -> Result<(), B::Error> {
    let key = key.into();
    check_key(blocks, key)?;
    match fat::open(blocks, key)? {
        fat::Opened::Micro => micro::set(blocks, key, value, micro::Mode::Update).map(|_| ()),
        fat::Opened::Fat(mut fat) => fat.update(blocks, key, value),
        fat::Opened::Unknown => Err(unknown_form(blocks, key)),
    }
}

/// Removes an entry; `false`, and no change, if there is none of this key.
pub fn remove<'k, B: ZapBlocks>(blocks: &mut B, key: impl Into<Key<'k>>) -> Result<bool, B::Error> {
    let key = key.into();
    match fat::open(blocks, key)? {
        fat::Opened::Micro => micro::remove(blocks, key),
        fat::Opened::Fat(mut fat) => fat.remove(blocks, key),
        fat::Opened::Unknown => {
            let Key::Name(name) = key else { return Ok(false) };
            match find_any(blocks, |entry| entry.name == name)? {
                Some(entry) => fat::at_hash(blocks, entry.hash)?.remove(blocks, key),
                None => Ok(false),
            }
        }
    }
}

/// Adds `delta` to the number of an entry, 0 if there is none; at 0 the entry goes.
pub fn increment<'k, B: ZapBlocks>(
    blocks: &mut B,
    key: impl Into<Key<'k>>,
    delta: i64,
) -> Result<(), B::Error> {
    let key = key.into();
    if delta == 0 {
        return Ok(());
    }
    let old = lookup_u64(blocks, key)?;
    let value = old.unwrap_or(0);
    match value.checked_add_signed(delta) {
        Some(0) => remove(blocks, key).map(|_| ()),
        Some(new) => update(blocks, key, &Value::u64(new)),
        None => {
            let name = match key {
                Key::Name(name) => name.to_vec(),
                Key::Words(_) => key.stored(),
            };
            Err(blocks.error(ZapError::Counter { name, value, delta }))
        }
    }
}

/// Number of entries.
pub fn count<B: ZapBlocks>(blocks: &B) -> Result<u64, B::Error> {
    read(blocks, 0, |block| match format::zap::kind(block)? {
        Kind::Micro => Ok(format::zap::Micro::new(block)?.used().count() as u64),
        Kind::Fat => Ok(format::zap::FatHeader::parse(block)?.entry_count.get()),
    })
}

/// All entries, in order of (hash, cd).
pub fn entries<B: ZapBlocks>(blocks: &B) -> Result<Vec<Entry>, B::Error> {
    let mut reader = reader(blocks)?;
    reader.entries().collect::<Result<_, _>>().map_err(|e| e.of(blocks))
}

/// At most `max` entries from a place on, and the place after the last of them.
pub fn list<B: ZapBlocks>(
    blocks: &B,
    from: Cursor,
    max: usize,
) -> Result<(Vec<Entry>, Cursor), B::Error> {
    let mut reader = reader(blocks)?;
    let found: Result<Vec<_>, _> = reader.entries_from(from).take(max).collect();
    let found = found.map_err(|e| e.of(blocks))?;
    let next = match found.last() {
        Some(last) if found.len() == max => Cursor::after(last),
        _ => Cursor::END,
    };
    Ok((found, next))
}

/// Adds a number under its own name: how sets of objects are kept.
pub fn add_int<B: ZapBlocks>(blocks: &mut B, number: u64) -> Result<bool, B::Error> {
    add_int_key(blocks, number, number)
}

/// Removes a number that stands under its own name.
pub fn remove_int<B: ZapBlocks>(blocks: &mut B, number: u64) -> Result<bool, B::Error> {
    remove(blocks, int_name(number).as_str())
}

/// Adds a number under the name of another.
pub fn add_int_key<B: ZapBlocks>(blocks: &mut B, key: u64, number: u64) -> Result<bool, B::Error> {
    add(blocks, int_name(key).as_str(), &Value::u64(number))
}

/// The number under the name of a number.
pub fn lookup_int_key<B: ZapBlocks>(blocks: &B, key: u64) -> Result<Option<u64>, B::Error> {
    lookup_u64(blocks, int_name(key).as_str())
}

/// The name of a number: lower-case hexadecimal.
pub fn int_name(number: u64) -> String {
    format!("{number:x}")
}

/// An error of the pure reader: of the blocks, or of what is in them.
enum ReadError<E> {
    Blocks(E),
    Format(FormatError),
}

impl<E> From<FormatError> for ReadError<E> {
    fn from(error: FormatError) -> Self {
        ReadError::Format(error)
    }
}

impl<E> ReadError<E> {
    fn of<B: ZapBlocks<Error = E>>(self, blocks: &B) -> E {
        match self {
            ReadError::Blocks(error) => error,
            ReadError::Format(error) => blocks.error(error.into()),
        }
    }
}

/// The pure reader over these blocks; it works on copies.
#[allow(clippy::type_complexity)] // the closure's type cannot be named
fn reader<B: ZapBlocks>(
    blocks: &B,
) -> Result<
    Reader<impl FnMut(u64) -> Result<Vec<u8>, ReadError<B::Error>> + use<'_, B>, Vec<u8>>,
    B::Error,
> {
    Reader::open(|blkid| blocks.read(blkid, <[u8]>::to_vec).map_err(ReadError::Blocks))
        .map_err(|e: ReadError<B::Error>| e.of(blocks))
}

/// The first entry that `wanted` likes; looks at all.
fn find_any<B: ZapBlocks>(
    blocks: &B,
    wanted: impl Fn(&Entry) -> bool,
) -> Result<Option<Entry>, B::Error> {
    for entry in reader(blocks)?.entries() {
        let entry = entry.map_err(|e: ReadError<B::Error>| e.of(blocks))?;
        if wanted(&entry) {
            return Ok(Some(entry));
        }
    }
    Ok(None)
}

/// The hash of a key in this ZAP, `None` if its common form is not known.
fn hash_of<B: ZapBlocks>(blocks: &B, key: Key<'_>) -> Result<Option<u64>, B::Error> {
    let (salt, normflags, flags) = fat::salt_and_normflags(blocks)?;
    Ok(format::zap::zap_hash(salt, normflags, flags, key))
}

fn unknown_form<B: ZapBlocks>(blocks: &B, key: Key<'_>) -> B::Error {
    let name = match key {
        Key::Name(name) => name.to_vec(),
        Key::Words(_) => key.stored(),
    };
    blocks.error(ZapError::Normalization { name })
}

#[cfg(test)]
mod tests;
