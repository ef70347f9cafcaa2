//! From a dnode down its tree of block pointers, as it is on disk.
//!
//! Indirect blocks come through the store's cache. Everything that a damaged pool could make
//! endless (levels, block numbers) is bounded by the dnode's own parse.

use format::{BlkPtr, DnodePhys};
use store::{At, Block, Store};
use zerocopy::FromBytes;

use crate::error::{DmuError, Result};

/// Root of an object's tree: what a reader needs of the dnode to find any block.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Root {
    pub(crate) object: u64,
    pub(crate) blkptrs: [BlkPtr; 3],
    pub(crate) nblkptr: u64,
    pub(crate) levels: u8,
    /// log2 of the pointers in an indirect block.
    pub(crate) shift: u32,
}

/// The last blocks of a range of an object.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Tail {
    /// They are at and after this block.
    pub first: u64,
    /// How many they are, indirect ones included.
    pub blocks: u64,
}

impl Root {
    pub(crate) fn of(object: u64, dnode: &DnodePhys) -> Root {
        let mut blkptrs = [BlkPtr::ZERO; 3];
        for (to, from) in blkptrs.iter_mut().zip(dnode.blkptrs()) {
            *to = *from;
        }
        Root {
            object,
            blkptrs,
            nblkptr: dnode.blkptrs().len() as u64,
            levels: dnode.core().levels,
            shift: dnode.pointers_shift(),
        }
    }

    /// The pointer of the dnode that was born last: a dnode has up to three of them, and any may be a hole since ever.
    pub(crate) fn youngest(&self) -> &BlkPtr {
        let [first, others @ ..] = &self.blkptrs;
        others.iter().fold(first, |a, b| if b.birth() > a.birth() { b } else { a })
    }

    /// Number of blocks of `level` that one block of `above` leads to, as log2.
    fn span_shift(&self, level: u8, above: u8) -> u32 {
        u32::from(above - level) * self.shift
    }

    /// The pointer to block `index` of `level`.
    pub(crate) fn pointer(&self, store: &Store, level: u8, index: u64) -> Result<BlkPtr> {
        if level >= self.levels {
            return Ok(BlkPtr::ZERO);
        }
        let top = self.levels - 1;
        let up = index.checked_shr(self.span_shift(level, top)).unwrap_or(0);
        if up >= self.nblkptr {
            return Ok(BlkPtr::ZERO);
        }
        let mut bp = self.blkptrs[up as usize];
        for at in (level..top).rev() {
            // `bp` is the pointer to the block of level at + 1.
            if bp.is_hole() {
                // What is below a hole is one that came with it.
                return Ok(match bp.birth() {
                    0 => BlkPtr::ZERO,
                    birth => BlkPtr::hole(bp.lsize(), bp.kind(), level, birth),
                });
            }
            let child = index.checked_shr(self.span_shift(level, at)).unwrap_or(0);
            let block = self.read_indirect(store, &bp, at + 1, child >> self.shift)?;
            bp = child_of(&block, child & ((1 << self.shift) - 1));
        }
        Ok(bp)
    }

    /// Calls `each` for the pointers to data blocks `[first, first + count)`, in order.
    pub(crate) fn pointers(
        &self,
        store: &Store,
        first: u64,
        count: u64,
        mut each: impl FnMut(u64, BlkPtr) -> Result<()>,
    ) -> Result<()> {
        let mut index = first;
        let end = first.saturating_add(count);
        while index < end {
            if self.levels == 1 {
                let bp = self.blkptrs.get(index as usize).copied();
                each(index, bp.filter(|_| index < self.nblkptr).unwrap_or(BlkPtr::ZERO))?;
                index += 1;
                continue;
            }
            let parent = index >> self.shift;
            let stop = after(parent, self.shift).min(end);
            let bp = self.pointer(store, 1, parent)?;
            if bp.is_hole() {
                for i in index..stop {
                    each(i, BlkPtr::ZERO)?;
                }
            } else {
                let block = self.read_indirect(store, &bp, 1, parent)?;
                for i in index..stop {
                    each(i, child_of(&block, i & ((1 << self.shift) - 1)))?;
                }
            }
            index = stop;
        }
        Ok(())
    }

    /// About `max` blocks on disk at the end of `[first, end)`: all that can be freed from the block
    /// returned on. Goes from the end, over holes as a whole.
    pub(crate) fn tail(&self, store: &Store, first: u64, end: u64, max: u64) -> Result<Tail> {
        let mut tail = Tail { first: end, blocks: 0 };
        let top = self.levels - 1;
        for up in (0..self.nblkptr).rev() {
            let bp = self.blkptrs[up as usize];
            if !self.tail_below(store, (top, up, &bp), (first, end), max, &mut tail)? {
                return Ok(tail);
            }
        }
        Ok(Tail { first, ..tail })
    }

    /// Takes what of a range lies below a block into the tail; `false`: it has come to its maximum.
    fn tail_below(
        &self,
        store: &Store,
        (level, index, bp): (u8, u64, &BlkPtr),
        range: (u64, u64),
        max: u64,
        tail: &mut Tail,
    ) -> Result<bool> {
        let span = self.span_shift(0, level);
        let from = index.checked_shl(span).filter(|f| f >> span == index).unwrap_or(u64::MAX);
        let to = from.saturating_add(1u64.checked_shl(span).unwrap_or(u64::MAX));
        if bp.is_hole() || to <= range.0 || from >= range.1 {
            return Ok(true);
        }
        if tail.blocks >= max {
            return Ok(false);
        }
        if level > 0 {
            let block = self.read_indirect(store, bp, level, index)?;
            for child in (0..1u64 << self.shift).rev() {
                let number = (index << self.shift) + child;
                let below = (level - 1, number, &child_of(&block, child));
                if !self.tail_below(store, below, range, max, tail)? {
                    return Ok(false);
                }
            }
        }
        tail.first = from.max(range.0);
        tail.blocks += 1;
        Ok(true)
    }

    /// Reads an indirect block and checks that it is one of this object's shape.
    pub(crate) fn read_indirect(
        &self,
        store: &Store,
        bp: &BlkPtr,
        level: u8,
        index: u64,
    ) -> Result<Block> {
        let fail = |source| DmuError::Block {
            object: self.object,
            level,
            block: index,
            source: Box::new(source),
        };
        if bp.level() != level || bp.lsize() != 128 << self.shift {
            let reason = "an indirect block of another level or size";
            return Err(fail(store::StoreError::BadPointer { bp: Box::new(*bp), reason }));
        }
        store.read_for(At { object: self.object, block: index }, bp).map_err(fail)
    }

    /// The first data block at or after `from` that is not a hole (`data`), or that is one.
    ///
    /// `None`: there is none up to `limit` (exclusive).
    pub(crate) fn next(
        &self,
        store: &Store,
        from: u64,
        limit: u64,
        data: bool,
    ) -> Result<Option<u64>> {
        let mut index = from;
        let reach = after(self.nblkptr.saturating_sub(1), self.span_shift(0, self.levels - 1));
        while index < limit {
            // However far away the last block is said to be, nothing leads there.
            if index >= reach {
                return Ok((!data).then_some(index));
            }
            // Climb: a hole at a high level skips all below it.
            let mut skipped = None;
            for level in (1..self.levels).rev() {
                let shift = self.span_shift(0, level);
                let up = index.checked_shr(shift).unwrap_or(0);
                if self.pointer(store, level, up)?.is_hole() {
                    skipped = Some(after(up, shift));
                    break;
                }
            }
            if let Some(next) = skipped {
                if !data {
                    return Ok(Some(index));
                }
                index = next.max(index + 1);
                continue;
            }
            let stop = after(index >> self.shift, self.shift).min(limit);
            let mut found = None;
            self.pointers(store, index, stop - index, |i, bp| {
                if found.is_none() && bp.is_hole() != data {
                    found = Some(i);
                }
                Ok(())
            })?;
            if found.is_some() {
                return Ok(found);
            }
            index = stop;
        }
        Ok(None)
    }
}

/// The first block behind those that block `index` of a level leads to, which are `1 << shift`.
fn after(index: u64, shift: u32) -> u64 {
    let below = 1u64.checked_shl(shift);
    below.and_then(|below| index.checked_add(1)?.checked_mul(below)).unwrap_or(u64::MAX)
}

/// Pointer number `index` of an indirect block; a hole beyond its end.
pub(crate) fn child_of(block: &[u8], index: u64) -> BlkPtr {
    let at = index as usize * 128;
    block.get(at..at + 128).and_then(|b| BlkPtr::read_from_bytes(b).ok()).unwrap_or(BlkPtr::ZERO)
}
