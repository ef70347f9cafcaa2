//! Micro ZAPs: one block of 64-byte entries, each a short name and one word.
//!
//! A block has a header and then entries in any order; an entry whose name is empty is free.
//! FORMAT: section 6.2.

use zerocopy::little_endian::{U16, U32, U64};
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

use super::KIND_MICRO;
use crate::{FormatError, Result};

const WHAT: &str = "micro zap";
/// Size of an entry, and of the header, in bytes.
pub const MICRO_ENTRY: usize = 64;
/// The longest name in a micro ZAP, in bytes, without the NUL.
pub const MICRO_NAME_MAX: usize = 49;
/// The largest block of a micro ZAP, in bytes.
pub const MICRO_BLOCK_MAX: usize = 128 << 10;

/// The header (`mzap_phys_t` without its entries).
#[derive(
    Clone, Copy, Debug, PartialEq, Eq, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned,
)]
#[repr(C)]
pub struct MicroHeader {
    /// [`KIND_MICRO`].
    pub kind: U64,
    /// Seed of the hash.
    pub salt: U64,
    /// [`super::NormFlags`].
    pub normflags: U64,
    pad: [U64; 5],
}

/// An entry (`mzap_ent_phys_t`).
#[derive(
    Clone, Copy, Debug, PartialEq, Eq, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned,
)]
#[repr(C)]
pub struct MicroEntry {
    /// The value.
    pub value: U64,
    /// Collision number.
    pub cd: U32,
    pad: U16,
    /// The name, ended by a NUL; empty in a free entry.
    pub name: [u8; MICRO_NAME_MAX + 1],
}

const _: () = assert!(size_of::<MicroHeader>() == MICRO_ENTRY);
const _: () = assert!(size_of::<MicroEntry>() == MICRO_ENTRY);

impl MicroEntry {
    /// An entry in which nothing is.
    pub const FREE: MicroEntry =
        MicroEntry { value: U64::ZERO, cd: U32::ZERO, pad: U16::ZERO, name: [0; 50] };

    /// An entry; `None` if the name is empty, too long or has a NUL.
    pub fn new(name: &[u8], value: u64, cd: u32) -> Option<MicroEntry> {
        if name.is_empty() || name.len() > MICRO_NAME_MAX || name.contains(&0) {
            return None;
        }
        let mut entry = MicroEntry { value: U64::new(value), cd: U32::new(cd), ..Self::FREE };
        entry.name.get_mut(..name.len())?.copy_from_slice(name);
        Some(entry)
    }

    /// Is nothing in it?
    pub fn is_free(&self) -> bool {
        self.name.first() == Some(&0)
    }

    /// The name; if its NUL is missing, all of its bytes.
    pub fn name(&self) -> &[u8] {
        self.name.split(|&b| b == 0).next().unwrap_or_default()
    }

    /// Is this the entry of `name`?
    pub fn is_named(&self, name: &[u8]) -> bool {
        self.name.get(..name.len()) == Some(name)
            && self.name.get(name.len()).is_none_or(|&end| end == 0)
            && !name.is_empty()
    }
}

/// A micro ZAP's block.
#[derive(Clone, Copy)]
pub struct Micro<'a> {
    /// Its header.
    pub head: &'a MicroHeader,
    /// Its entries, used and free.
    pub entries: &'a [MicroEntry],
}

/// A micro ZAP's block, to change.
pub struct MicroMut<'a> {
    /// Its header.
    pub head: &'a mut MicroHeader,
    /// Its entries, used and free.
    pub entries: &'a mut [MicroEntry],
}

fn check(kind: Option<u64>, size: usize) -> Result<()> {
    if kind != Some(KIND_MICRO) {
        let seen = kind.unwrap_or(0);
        return Err(FormatError::Magic { what: WHAT, seen, expected: KIND_MICRO });
    }
    if !size.is_multiple_of(512) {
        let expected = "a multiple of 512";
        let seen = size as u64;
        return Err(FormatError::Field { what: WHAT, field: "block size", seen, expected });
    }
    Ok(())
}

fn short(have: usize) -> FormatError {
    FormatError::Short { what: WHAT, needed: MICRO_ENTRY as u64, have: have as u64 }
}

impl<'a> Micro<'a> {
    /// The micro ZAP in a block.
    pub fn new(block: &'a [u8]) -> Result<Micro<'a>> {
        let (head, rest) = MicroHeader::ref_from_prefix(block).map_err(|_| short(block.len()))?;
        check(Some(head.kind.get()), block.len())?;
        let entries = <[MicroEntry]>::ref_from_bytes(rest).map_err(|_| short(block.len()))?;
        Ok(Micro { head, entries })
    }

    /// The entry of `name` exactly, and its number.
    pub fn find(&self, name: &[u8]) -> Option<(usize, &'a MicroEntry)> {
        self.entries.iter().enumerate().find(|(_, e)| e.is_named(name))
    }

    /// The entries in use, with their numbers.
    pub fn used(&self) -> impl Iterator<Item = (usize, &'a MicroEntry)> + use<'a> {
        self.entries.iter().enumerate().filter(|(_, e)| !e.is_free())
    }
}

impl<'a> MicroMut<'a> {
    /// The micro ZAP in a block.
    pub fn new(block: &'a mut [u8]) -> Result<MicroMut<'a>> {
        let size = block.len();
        let (head, rest) = MicroHeader::mut_from_prefix(block).map_err(|_| short(size))?;
        check(Some(head.kind.get()), size)?;
        let entries = <[MicroEntry]>::mut_from_bytes(rest).map_err(|_| short(size))?;
        Ok(MicroMut { head, entries })
    }

    /// Makes a block, all of it, an empty micro ZAP.
    pub fn format(block: &mut [u8], salt: u64, normflags: u64) -> Result<()> {
        let size = block.len();
        check(Some(KIND_MICRO), size)?;
        block.fill(0);
        let (head, _) = MicroHeader::mut_from_prefix(block).map_err(|_| short(size))?;
        head.kind.set(KIND_MICRO);
        head.salt.set(salt);
        head.normflags.set(normflags);
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn entries_are_found_by_their_whole_name() {
        let mut block = vec![0xff; 512];
        MicroMut::format(&mut block, 1, 0).unwrap();
        let edit = MicroMut::new(&mut block).unwrap();
        edit.entries[3] = MicroEntry::new(b"name", 7, 0).unwrap();
        edit.entries[5] = MicroEntry::new(b"nam", 8, 0).unwrap();
        let view = Micro::new(&block).unwrap();
        assert_eq!(view.entries.len(), 7);
        assert_eq!(view.find(b"name").unwrap().0, 3);
        assert_eq!(view.find(b"nam").unwrap().1.value.get(), 8);
        assert!(view.find(b"na").is_none());
        assert!(view.find(b"names").is_none());
        assert!(view.find(b"").is_none());
        assert_eq!(view.used().count(), 2);
    }

    #[test]
    fn names_end_with_a_nul() {
        let long = [b'x'; 50];
        assert!(MicroEntry::new(&long, 0, 0).is_none());
        assert!(MicroEntry::new(b"", 0, 0).is_none());
        assert!(MicroEntry::new(b"a\0", 0, 0).is_none());
        let entry = MicroEntry::new(&long[..49], 0, 0).unwrap();
        assert!(entry.is_named(&long[..49]) && !entry.is_named(&long));
        // One without an end can be told from all names that fit.
        let endless = MicroEntry { name: long, ..MicroEntry::FREE };
        assert_eq!(endless.name(), long);
        assert!(!endless.is_named(&long[..49]));
    }

    #[test]
    fn what_is_no_micro_zap_is_refused() {
        assert!(Micro::new(&[]).is_err());
        assert!(Micro::new(&[0; 512]).is_err());
        let mut block = vec![0; 1024];
        MicroMut::format(&mut block, 1, 0).unwrap();
        assert!(Micro::new(&block).is_ok());
        assert!(Micro::new(&block[..700]).is_err());
        assert!(Micro::new(&block[..64]).is_err());
    }
}
