//! The pointer table of a fat ZAP: read, redirect, double.

use format::zap::hash::hash_bits;
use format::zap::header::{embedded_shift, pointer};
use format::zap::{FatHeader, SHIFT_MAX};
use zerocopy::FromBytes;

use super::{ZapBlocks, ZapError, modify, read, touch};

/// A table of this size is always allowed, in bytes.
const TABLE_BYTES_MIN: u64 = 1 << 20;
/// Bytes of table that are allowed for each byte of leaves.
const TABLE_BYTES_PER_BYTE: u64 = 64;

/// The header and the size of blocks, as they are when a change begins.
#[derive(Clone, Copy, Debug)]
pub(super) struct Table {
    pub(super) head: FatHeader,
    /// log2 of the size of blocks.
    pub(super) bs: u32,
}

/// Can a leaf be in this block? One beyond the last would come into being by a change.
pub(super) fn check_leaf(leaf: u64, max_block: u64) -> format::Result<u64> {
    if leaf == 0 || leaf > max_block {
        let (what, field) = ("zap pointer table", "pointer");
        let expected = "a block that exists";
        return Err(format::FormatError::Field { what, field, seen: leaf, expected });
    }
    Ok(leaf)
}

/// Changes the header.
pub(super) fn change_header<B: ZapBlocks>(
    blocks: &mut B,
    change: impl FnOnce(&mut FatHeader),
) -> Result<(), B::Error> {
    modify(blocks, 0, |block| {
        let have = block.len() as u64;
        let what = "zap header";
        let (head, _) = FatHeader::mut_from_prefix(block)
            .map_err(|_| format::FormatError::Short { what, needed: 104, have })?;
        change(head);
        Ok(())
    })
}

impl Table {
    /// The first of the blocks at the end that nobody uses, if the header can be believed. OpenZFS lowers its
    /// freeblk when it takes empty leaves away; the holes that they were may still be counted as blocks of the
    /// object. They stay holes: so a freeblk that is too low costs no leaf.
    pub(super) fn free_block<B: ZapBlocks>(&self, blocks: &B) -> Result<u64, B::Error> {
        let free = self.head.free_block.get();
        let end = blocks.max_block().saturating_add(1);
        // Only a new table whose copying has begun can be reserved and not written.
        let reserved = match self.head.table_next.get() {
            0 => 0,
            _ => 2 * self.head.table_blocks.get(),
        };
        let table_end = self.head.table_block.get().saturating_add(self.head.table_blocks.get());
        if !self.head.is_embedded() && table_end > end {
            let (what, field) = ("zap header", "zt_blk");
            let expected = "a table that exists";
            let error = format::FormatError::Field { what, field, seen: table_end, expected };
            return Err(blocks.error(error.in_block(0).into()));
        }
        let free = free.max(end);
        if free > end.saturating_add(reserved) || free >= 1 << 48 {
            let (what, field) = ("zap header", "freeblk");
            let expected = "at most the block after the last";
            let error = format::FormatError::Field { what, field, seen: free, expected };
            return Err(blocks.error(error.in_block(0).into()));
        }
        Ok(free)
    }

    /// The leaf that pointer `index` names.
    pub(super) fn leaf<B: ZapBlocks>(&self, blocks: &B, index: u64) -> Result<u64, B::Error> {
        let (block, place) = self.head.pointer_at(self.bs, index);
        let leaf = read(blocks, block, |bytes| pointer(bytes, place))?;
        check_leaf(leaf, blocks.max_block()).map_err(|e| blocks.error(e.in_block(block).into()))
    }

    /// The most bits that the table may use.
    ///
    /// Beyond the bits of the hash it would only be full of equal pointers. And names made to share
    /// their first bits must not make a table out of all proportion to the leaves; random names
    /// need less than a thousandth of what is allowed.
    pub(super) fn shift_max(&self) -> u64 {
        let head = &self.head;
        let blocks = head.free_block.get().saturating_sub(head.table_blocks.get());
        let leaves = head.leaf_count.get().min(blocks).min(1 << 30);
        let bytes = TABLE_BYTES_MIN + (leaves << self.bs) * TABLE_BYTES_PER_BYTE;
        let hash_bits = u64::from(hash_bits(head.flags.get()) - 2);
        u64::from((bytes / 8).ilog2()).min(hash_bits).min(SHIFT_MAX)
    }

    /// The blocks of the table with pointers `[first, first + count)`, and which pointers in each.
    fn parts(&self, first: u64, count: u64) -> impl Iterator<Item = (u64, usize, usize)> + use<> {
        let Table { head, bs } = *self;
        let end = first + count;
        let mut index = first;
        std::iter::from_fn(move || {
            if index >= end {
                return None;
            }
            let (block, place) = head.pointer_at(bs, index);
            let len = ((1u64 << (bs - 3)) - place as u64).min(end - index);
            index += len;
            Some((block, place, len as usize))
        })
    }

    /// Makes sure that [`Table::redirect`] of the same pointers succeeds.
    pub(super) fn touch<B: ZapBlocks>(
        &self,
        blocks: &mut B,
        first: u64,
        count: u64,
    ) -> Result<(), B::Error> {
        self.parts(first, count).try_for_each(|(block, ..)| touch(blocks, block))
    }

    /// Makes pointers `[first, first + count)` name `leaf`.
    pub(super) fn redirect<B: ZapBlocks>(
        &self,
        blocks: &mut B,
        first: u64,
        count: u64,
        leaf: u64,
    ) -> Result<(), B::Error> {
        for (block, place, len) in self.parts(first, count) {
            blocks.modify(block, |bytes| {
                let words = bytes.as_chunks_mut::<8>().0;
                for word in words.iter_mut().skip(place).take(len) {
                    *word = leaf.to_le_bytes();
                }
            })?;
        }
        Ok(())
    }

    /// Doubles the table, so that each leaf has twice as many pointers; one that OpenZFS has begun
    /// to copy is finished. The caller has seen that the hash has enough bits.
    pub(super) fn grow<B: ZapBlocks>(&mut self, blocks: &mut B) -> Result<(), B::Error> {
        let free = self.free_block(blocks)?;
        let old = self.head;
        let old_blocks = old.table_blocks.get();
        let words = 1usize << old.table_shift.get().min(u64::from(self.bs - 3));
        let begun = old.table_next.get();
        let (first, count) = match (old.is_embedded(), begun) {
            (true, 0) => (free, 1),
            (false, 0) => (free, 2 * old_blocks),
            (embedded, begun) => {
                let beyond = begun.checked_add(2 * old_blocks).is_none_or(|end| end > free);
                if embedded || beyond {
                    let (what, field) = ("zap header", "zt_nextblk");
                    let expected = "0, or a table before freeblk";
                    let error = format::FormatError::Field { what, field, seen: begun, expected };
                    return Err(blocks.error(ZapError::Damaged(error.in_block(0))));
                }
                (begun, 2 * old_blocks)
            }
        };
        touch(blocks, 0)?;
        // All of the old table is at hand before there is a new block that nothing names yet.
        if !old.is_embedded() {
            let table = old.table_block.get();
            (table..table + old_blocks).try_for_each(|block| touch(blocks, block))?;
        }
        let mut doubled = Vec::with_capacity(words * 2);
        for part in 0..old_blocks.max(1) {
            let (block, place) = old.pointer_at(self.bs, part * words as u64);
            doubled.clear();
            blocks.read(block, |bytes| {
                let words = bytes.as_chunks::<8>().0.iter().skip(place).take(words);
                doubled.extend(words.flat_map(|word| [*word, *word]));
            })?;
            let per_block = 1usize << (self.bs - 3);
            for (i, half) in doubled.chunks(per_block).enumerate() {
                let to = first + part * (2 * words / per_block) as u64 + i as u64;
                blocks.modify(to, |bytes| {
                    bytes.fill(0);
                    bytes.as_chunks_mut().0.iter_mut().zip(half).for_each(|(to, from)| *to = *from);
                })?;
            }
        }
        let head = &mut self.head;
        head.table_block.set(first);
        head.table_blocks.set(count);
        head.table_shift.set(old.table_shift.get() + 1);
        head.table_next.set(0);
        head.table_copied.set(0);
        head.free_block.set(free.max(first + count));
        let head = self.head;
        change_header(blocks, |to| *to = head)?;
        if old_blocks > 0 {
            blocks.free_blocks(old.table_block.get(), old_blocks)?;
        }
        Ok(())
    }
}

/// Bytes of block 0 of a new fat ZAP.
pub(super) fn write_header(block: &mut [u8], head: &FatHeader, bs: u32) {
    block.fill(0);
    let embedded = 8usize << embedded_shift(bs);
    let (front, table) = block.split_at_mut(embedded);
    if let Ok((to, _)) = FatHeader::mut_from_prefix(front) {
        *to = *head;
    }
    for word in table.as_chunks_mut::<8>().0 {
        *word = 1u64.to_le_bytes();
    }
}
