//! ZAP: maps from names to small arrays of integers, in the blocks of one object.
//!
//! Directories, properties, the object directory, features, accounting: all are ZAPs. Two forms:
//!
//! ```text
//! micro: one block             fat: block 0 = header          leaf (any other block in the table)
//! +--------------------+       +------------------------+     +-------------------------------+
//! | kind salt normflags|       | kind magic  table: blk,|     | kind prefix magic nfree ...   |
//! +--------------------+       | numblks, shift ...     |     +-------------------------------+
//! | value cd name[50]  |       | freeblk leafs entries  |     | u16 per bucket: first entry   |
//! | value cd name[50]  |       +------------------------+     +-------------------------------+
//! | ...  64 bytes each |       | embedded table: top    |     | chunks of 24 bytes: entry,    |
//! +--------------------+       | hash bits -> leaf block|     | array (name, value) or free   |
//!                              +------------------------+     +-------------------------------+
//! ```
//!
//! A name is hashed (CRC-64 seeded with the salt, top 28 bits kept). In a fat ZAP the top `shift`
//! bits index the table of pointers, which names a leaf; a leaf with a prefix of `n` bits owns the
//! `2^(shift-n)` pointers of that prefix. In the leaf the next bits choose a bucket, whose entries
//! form a chain. Entries of equal hash differ in their collision number, `cd`; (hash, cd) is the
//! order in which a ZAP is listed, and the cookie of a listing that is to go on later.
//!
//! Here are the structures in a block ([`hash`], [`mod@micro`], [`header`], [`leaf`]), a reader that
//! only needs a closure giving blocks ([`read`]), and a judge that finds everything that is wrong
//! ([`mod@check`]). What needs several blocks to be changed together lives in the storey that owns
//! objects. FORMAT: section 6.
//!
//! Hostile bytes: every chain is walked for at most as many steps as there are chunks, the chunks
//! of all entries of a leaf together are at most those of the leaf, and the table is at most
//! [`SHIFT_MAX`] bits wide.

pub mod check;
pub mod hash;
pub mod header;
pub mod leaf;
pub mod micro;
pub mod normal;
pub mod read;
mod unicode5;
mod value;

pub use check::{Finding, Problem, check};
pub use hash::{NormFlags, zap_hash};
pub use header::{FatFlags, FatHeader};
pub use leaf::Leaf;
pub use micro::Micro;
pub use read::Reader;
pub use value::{Cursor, Entry, Key, Value};

/// First word of a micro ZAP's block.
pub const KIND_MICRO: u64 = (1 << 63) + 3;
/// First word of a fat ZAP's block 0.
pub const KIND_HEADER: u64 = (1 << 63) + 1;
/// First word of a leaf.
pub const KIND_LEAF: u64 = 1 << 63;

/// The longest name, in bytes, without the NUL that is stored after it.
pub const NAME_MAX: usize = 255;
/// The largest value, in bytes.
pub const VALUE_MAX: usize = 8192;
/// The widest pointer table that is read, in bits: 2^30 leaves hold 10^11 entries.
pub const SHIFT_MAX: u64 = 30;
/// log2 of the size of a fat ZAP's blocks, unless its creator chose otherwise.
pub const FAT_BLOCK_SHIFT: u32 = 14;
/// log2 of the smallest and largest blocks of a fat ZAP that are read (chunks are numbered by u16).
pub const FAT_BLOCK_SHIFTS: std::ops::RangeInclusive<u32> = 9..=20;

/// Which form a ZAP has.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// One block of 64-byte entries.
    Micro,
    /// Header, pointer table and leaves.
    Fat,
}

/// The form that block 0 of a ZAP says it has.
pub fn kind(block0: &[u8]) -> crate::Result<Kind> {
    const WHAT: &str = "zap";
    let have = block0.len() as u64;
    let short = crate::FormatError::Short { what: WHAT, needed: 64, have };
    let word = block0.first_chunk::<8>().map(|b| u64::from_le_bytes(*b)).ok_or(short)?;
    match word {
        KIND_MICRO => Ok(Kind::Micro),
        KIND_HEADER => Ok(Kind::Fat),
        seen => Err(crate::FormatError::Magic { what: WHAT, seen, expected: KIND_HEADER }),
    }
}
