//! Block 0 of a fat ZAP: counts, salt, and where the pointer table is.
//!
//! The second half of the block is the embedded pointer table, in use until the table outgrows
//! it and moves to blocks of its own. FORMAT: section 6.3.

use zerocopy::little_endian::U64;
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

use super::hash::hash_bits;
use super::{FAT_BLOCK_SHIFTS, KIND_HEADER, SHIFT_MAX};
use crate::{FormatError, Result};

const WHAT: &str = "zap header";
/// Second word of block 0.
pub const HEADER_MAGIC: u64 = 0x2_F52A_B2AB;

/// Bits of [`FatHeader::flags`].
pub struct FatFlags;

impl FatFlags {
    /// Hashes have 48 bits, not 28.
    pub const HASH64: u64 = 1;
    /// Keys are arrays of words, not names.
    pub const UINT64_KEY: u64 = 2;
    /// The first word of the key is the hash.
    pub const PRE_HASHED: u64 = 4;
    /// All that are known.
    pub const KNOWN: u64 = 7;
}

/// The header (`zap_phys_t`).
#[derive(
    Clone, Copy, Debug, PartialEq, Eq, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned,
)]
#[repr(C)]
pub struct FatHeader {
    /// [`KIND_HEADER`].
    pub kind: U64,
    /// [`HEADER_MAGIC`].
    pub magic: U64,
    /// First block of the pointer table, if it is not embedded.
    pub table_block: U64,
    /// Blocks of the pointer table, 0 if it is embedded.
    pub table_blocks: U64,
    /// log2 of the number of pointers.
    pub table_shift: U64,
    /// First block of the table that will replace this one, 0 if none is being filled.
    pub table_next: U64,
    /// Blocks of the old table that were copied into the new one.
    pub table_copied: U64,
    /// No block from this one on is in use.
    pub free_block: U64,
    /// Number of leaves.
    pub leaf_count: U64,
    /// Number of entries.
    pub entry_count: U64,
    /// Seed of the hash.
    pub salt: U64,
    /// [`super::NormFlags`].
    pub normflags: U64,
    /// [`FatFlags`].
    pub flags: U64,
}

const _: () = assert!(size_of::<FatHeader>() == 104);

/// log2 of the size of a fat ZAP's block, if it can be one.
pub fn block_shift(block: &[u8]) -> Result<u32> {
    let size = block.len();
    let shift = size.checked_ilog2().unwrap_or(0);
    if !size.is_power_of_two() || !FAT_BLOCK_SHIFTS.contains(&shift) {
        let expected = "a power of two from 512 to 1048576";
        return Err(FormatError::Field {
            what: WHAT,
            field: "block size",
            seen: size as u64,
            expected,
        });
    }
    Ok(shift)
}

impl FatHeader {
    /// The header of a new fat ZAP: one leaf, at block 1, for all pointers.
    pub fn new(block_shift: u32, salt: u64, normflags: u64, flags: u64) -> FatHeader {
        FatHeader {
            kind: U64::new(KIND_HEADER),
            magic: U64::new(HEADER_MAGIC),
            table_block: U64::ZERO,
            table_blocks: U64::ZERO,
            table_shift: U64::new(u64::from(embedded_shift(block_shift))),
            table_next: U64::ZERO,
            table_copied: U64::ZERO,
            free_block: U64::new(2),
            leaf_count: U64::new(1),
            entry_count: U64::ZERO,
            salt: U64::new(salt),
            normflags: U64::new(normflags),
            flags: U64::new(flags),
        }
    }

    /// Reads the header of block 0 and checks that the table it names can be.
    pub fn parse(block: &[u8]) -> Result<FatHeader> {
        let bs = block_shift(block)?;
        let have = block.len() as u64;
        let short = FormatError::Short { what: WHAT, needed: 104, have };
        let (head, _) = FatHeader::read_from_prefix(block).map_err(|_| short)?;
        let magic = |seen, expected| Err(FormatError::Magic { what: WHAT, seen, expected });
        if head.kind.get() != KIND_HEADER {
            return magic(head.kind.get(), KIND_HEADER);
        }
        if head.magic.get() != HEADER_MAGIC {
            return magic(head.magic.get(), HEADER_MAGIC);
        }
        head.check_table(bs)?;
        Ok(head)
    }

    fn check_table(&self, bs: u32) -> Result<()> {
        let field =
            |field, seen, expected| Err(FormatError::Field { what: WHAT, field, seen, expected });
        let flags = self.flags.get();
        if flags & !FatFlags::KNOWN != 0 {
            return field("flags", flags, "a sum of 1, 2 and 4");
        }
        let shift = self.table_shift.get();
        let blocks = self.table_blocks.get();
        if blocks == 0 {
            if shift != u64::from(embedded_shift(bs)) {
                return field("zt_shift", shift, "that of the embedded table");
            }
            return Ok(());
        }
        if shift > SHIFT_MAX || shift > u64::from(hash_bits(flags)) {
            return field("zt_shift", shift, "at most 30, and at most the bits of the hash");
        }
        if 1u64.checked_shl(shift as u32 + 3) != blocks.checked_mul(1 << bs) {
            return field("zt_numblks", blocks, "as many as zt_shift needs");
        }
        let first = self.table_block.get();
        if first == 0 || first.checked_add(blocks).is_none_or(|end| end >= 1 << 48) {
            return field("zt_blk", first, "a block after the header");
        }
        Ok(())
    }

    /// Is the pointer table in the second half of block 0?
    pub fn is_embedded(&self) -> bool {
        self.table_blocks.get() == 0
    }

    /// Number of the pointer for a hash.
    pub fn pointer_index(&self, hash: u64) -> u64 {
        match self.table_shift.get() {
            0 => 0,
            shift => hash.checked_shr(64 - shift as u32).unwrap_or(0),
        }
    }

    /// Block that holds pointer `index`, and the pointer's place in it in words.
    pub fn pointer_at(&self, bs: u32, index: u64) -> (u64, usize) {
        let per_block = 1u64 << (bs - 3);
        if self.is_embedded() {
            (0, (per_block / 2 + index) as usize)
        } else {
            (self.table_block.get() + index / per_block, (index % per_block) as usize)
        }
    }
}

/// log2 of the number of pointers in the embedded table.
pub fn embedded_shift(block_shift: u32) -> u32 {
    block_shift - 4
}

/// Word `index` of a block of pointers.
pub fn pointer(block: &[u8], index: usize) -> Result<u64> {
    let words = block.as_chunks::<8>().0;
    let word = words.get(index).map(|w| u64::from_le_bytes(*w));
    let at = index as u64 * 8;
    word.ok_or(FormatError::Bounds { what: "zap pointer table", field: "pointer", at })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_new_header_can_be_read() {
        for bs in [9, 12, 14, 17, 20] {
            let mut block = vec![0; 1 << bs];
            let head = FatHeader::new(bs, 5, 2, 1);
            head.write_to_prefix(&mut block).unwrap();
            assert_eq!(FatHeader::parse(&block), Ok(head));
            let last = head.pointer_index(u64::MAX);
            assert_eq!(head.pointer_at(bs, last), (0, (1 << (bs - 3)) - 1));
            assert!(FatHeader::parse(&block[..block.len() - 512]).is_err());
        }
    }

    #[test]
    fn tables_that_cannot_be_are_refused() {
        let good = FatHeader::new(14, 5, 0, 0);
        let refused = |change: &dyn Fn(&mut FatHeader)| {
            let mut head = good;
            change(&mut head);
            let mut block = vec![0; 1 << 14];
            head.write_to_prefix(&mut block).unwrap();
            FatHeader::parse(&block).is_err()
        };
        assert!(!refused(&|_| ()));
        assert!(refused(&|h| h.table_shift.set(11)));
        assert!(refused(&|h| h.flags.set(8)));
        assert!(refused(&|h| h.magic.set(1)));
        let external = |h: &mut FatHeader, block, blocks, shift| {
            h.table_block.set(block);
            h.table_blocks.set(blocks);
            h.table_shift.set(shift);
        };
        assert!(!refused(&|h| external(h, 7, 1, 11)));
        assert!(!refused(&|h| external(h, 7, 4, 13)));
        assert!(refused(&|h| external(h, 0, 1, 11)));
        assert!(refused(&|h| external(h, 7, 1, 12)));
        assert!(refused(&|h| external(h, 7, 1 << 18, 29)));
        assert!(refused(&|h| external(h, 7, 1 << 50, 61)));
        assert!(refused(&|h| external(h, u64::MAX, 1, 11)));
    }
}
