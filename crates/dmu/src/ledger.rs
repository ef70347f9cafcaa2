//! The ledger's side of a sync: what was born and what died (INV-9).
//!
//! Workers keep tallies of their own and merge them once per pass; the pool's ledger then charges
//! data set, directories, deadlists and space maps, in one place.

use format::BlkPtr;

/// Space in the three measures of the DSL.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Space {
    /// Deflated allocated bytes (dsize).
    pub used: u64,
    /// Physical bytes.
    pub compressed: u64,
    /// Logical bytes (of metadata: physical).
    pub uncompressed: u64,
}

impl Space {
    /// The space of one block; `used` is its dsize.
    pub fn of(bp: &BlkPtr, used: u64) -> Space {
        Space { used, compressed: bp.compressed_size(), uncompressed: bp.uncompressed_size() }
    }
}

impl std::ops::AddAssign for Space {
    fn add_assign(&mut self, other: Space) {
        self.used += other.used;
        self.compressed += other.compressed;
        self.uncompressed += other.uncompressed;
    }
}

impl std::ops::SubAssign for Space {
    fn sub_assign(&mut self, other: Space) {
        self.used -= other.used;
        self.compressed -= other.compressed;
        self.uncompressed -= other.uncompressed;
    }
}

/// Births and deaths of one sync pass over an object set.
#[derive(Debug, Default)]
pub struct Tally {
    /// Sum over the blocks born.
    pub born: Space,
    /// The blocks that died: embedded ones too, holes not.
    pub died: Vec<BlkPtr>,
    /// Checksums and block sizes that need a feature, as bits of [`Needs`].
    pub needs: u32,
}

/// Bits of [`Tally::needs`]: features that a born block makes active.
pub struct Needs;

impl Needs {
    /// A block of more than 128 KiB.
    pub const LARGE_BLOCKS: u32 = 1;
    /// A block checked by sha512.
    pub const SHA512: u32 = 2;
    /// A block checked by skein.
    pub const SKEIN: u32 = 4;
    /// A block checked by edonr.
    pub const EDONR: u32 = 8;
    /// A block compressed by zstd.
    pub const ZSTD: u32 = 16;
    /// A dnode of more than one slot.
    pub const LARGE_DNODE: u32 = 32;
}

impl Tally {
    /// Adds what another worker has seen.
    pub fn merge(&mut self, mut other: Tally) {
        self.born += other.born;
        self.died.append(&mut other.died);
        self.needs |= other.needs;
    }
}
