//! Trees to be freed (`bptree_phys_t`): roots of destroyed object sets, worked off over txgs.
//!
//! A queue: entries `[begin, end)` of the object's data are pending; each says how far its
//! traversal has come. FORMAT: section 9.2.

use zerocopy::little_endian::{I64, U64};
use zerocopy::{FromBytes, FromZeros, Immutable, IntoBytes, KnownLayout, Unaligned};

use crate::{BlkPtr, Result, view};

/// Size of the data blocks in bytes.
pub const BPTREE_BLOCK: u32 = 128 << 10;

/// Bonus of the queue.
#[derive(
    Clone, Copy, Debug, PartialEq, Eq, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned,
)]
#[repr(C)]
pub struct BptreePhys {
    /// Index of the first pending entry.
    pub begin: U64,
    /// Index after the last entry.
    pub end: U64,
    /// Space with parity that is still to be freed.
    pub bytes: U64,
    /// The same before parity, after compression.
    pub compressed_bytes: U64,
    /// The same before compression.
    pub uncompressed_bytes: U64,
}

/// A place in a tree of blocks (`zbookmark_phys_t`).
#[derive(
    Clone,
    Copy,
    Debug,
    Default,
    PartialEq,
    Eq,
    FromBytes,
    IntoBytes,
    Immutable,
    KnownLayout,
    Unaligned,
)]
#[repr(C)]
pub struct BlockPlace {
    /// Object set: the data set's object number, 0 the MOS.
    pub objset: U64,
    /// Object in it.
    pub object: U64,
    /// Level of the block; negative values name special blocks (-1: the object set itself).
    pub level: I64,
    /// Number of the block in its level.
    pub blkid: U64,
}

/// One tree to be freed.
#[derive(
    Clone, Copy, Debug, PartialEq, Eq, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned,
)]
#[repr(C)]
pub struct BptreeEntry {
    /// Root: the pointer to an object set.
    pub bp: BlkPtr,
    /// Only blocks born after this txg are freed.
    pub birth_txg: U64,
    /// Where the traversal goes on.
    pub resume: BlockPlace,
}

const _: () = assert!(size_of::<BptreePhys>() == 40);
const _: () = assert!(size_of::<BlockPlace>() == 32);
const _: () = assert!(size_of::<BptreeEntry>() == 168);

impl Default for BptreePhys {
    fn default() -> Self {
        Self::new_zeroed()
    }
}

impl BptreePhys {
    /// The header in a bonus.
    pub fn parse(bonus: &[u8]) -> Result<&Self> {
        view::prefix("bptree", bonus).map(|(header, _)| header)
    }

    /// Number of pending entries.
    pub fn pending(&self) -> u64 {
        self.end.get().saturating_sub(self.begin.get())
    }
}

impl BptreeEntry {
    /// The entry at the start of `bytes`.
    pub fn parse(bytes: &[u8]) -> Result<&Self> {
        view::prefix("bptree entry", bytes).map(|(entry, _)| entry)
    }

    /// Where the traversal goes on; `None`: it has not begun.
    pub fn resumes_at(&self) -> Option<BlockPlace> {
        Some(self.resume).filter(|place| *place != BlockPlace::default())
    }

    /// Offset of entry `index` in the data, in bytes; entries straddle blocks.
    pub fn offset(index: u64) -> u64 {
        index.saturating_mul(size_of::<Self>() as u64)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bytes_come_back() {
        let entry = BptreeEntry {
            bp: BlkPtr::from_words([3; 16]),
            birth_txg: U64::new(9),
            resume: BlockPlace { level: I64::new(-1), blkid: U64::new(4), ..Default::default() },
        };
        assert_eq!(BptreeEntry::parse(entry.as_bytes()).unwrap(), &entry);
        assert_eq!(BptreeEntry::offset(2), 336);
        assert!(BptreeEntry::parse(&[0; 167]).is_err());
        let mut header = BptreePhys::default();
        header.begin.set(4);
        assert_eq!(BptreePhys::parse(header.as_bytes()).unwrap().pending(), 0);
        header.end.set(6);
        assert_eq!(header.pending(), 2);
        assert!(BptreePhys::parse(&[0; 39]).is_err());
    }
}
