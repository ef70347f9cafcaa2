//! Sums of subtrees that several data sets share.
//!
//! The walk sees a block in the oldest data set that has it, and a dnode of a younger one counts it
//! too. So what an indirect block of a snapshot has below it is kept, as far as there is room, and
//! what was forgotten is looked up.

use crate::walk::{Object, SPILL, Walk};
use format::BlkPtr;
use std::collections::BTreeMap;

/// Sums that are kept; one takes about 80 bytes.
const SUBTREES_MAX: usize = 1 << 18;
/// Indirect blocks that may be looked up, however small the pool.
const LOOKS_MIN: u64 = 1 << 16;

/// Sum over a subtree.
#[derive(Clone, Copy)]
pub(crate) struct Sum {
    /// Space of its blocks.
    pub dsize: u64,
    /// The number after that of its last block of level 0.
    pub end: u64,
    /// Was all of it seen (nothing lost)?
    pub complete: bool,
}

impl Sum {
    pub(crate) const EMPTY: Sum = Sum { dsize: 0, end: 0, complete: true };

    pub(crate) fn add(&mut self, other: Sum) {
        self.dsize = self.dsize.saturating_add(other.dsize);
        self.end = self.end.max(other.end);
        self.complete &= other.complete;
    }
}

/// What is kept.
#[derive(Default)]
pub(crate) struct Subtrees {
    /// By place and birth: space and end.
    sums: BTreeMap<[u64; 3], (u64, u64)>,
    /// Indirect blocks that were looked up.
    looks: u64,
}

impl Subtrees {
    /// Keeps the sum of a subtree, as long as there is room.
    pub(crate) fn remember(&mut self, bp: &BlkPtr, sum: Sum) {
        if sum.complete {
            if self.sums.len() >= SUBTREES_MAX {
                self.sums.clear();
            }
            self.sums.insert(key(bp), (sum.dsize, sum.end));
        }
    }
}

fn key(bp: &BlkPtr) -> [u64; 3] {
    let words = bp.words();
    [words[0], words[1], bp.birth()]
}

impl Walk<'_> {
    /// Sum over a subtree that belongs to an older data set, which was walked before.
    pub(crate) fn known(
        &mut self,
        object: &Object<'_>,
        bp: &BlkPtr,
        (level, number): (u8, u64),
    ) -> Sum {
        let dsize = self.blocks.dsize(bp);
        if level == 0 {
            let end = if number == SPILL { 0 } else { number.saturating_add(1) };
            return Sum { dsize, end, complete: true };
        }
        if let Some((dsize, end)) = self.subtrees.sums.get(&key(bp)) {
            return Sum { dsize: *dsize, end: *end, complete: true };
        }
        let lost = Sum { dsize, end: 0, complete: false };
        // Not for ever: hostile trees could have more than there is.
        let limit = self.blocks.progress.blocks.saturating_mul(4).saturating_add(LOOKS_MIN);
        if self.subtrees.looks > limit || bp.is_embedded() || !bp.is_little_endian() {
            return lost;
        }
        self.subtrees.looks += 1;
        let Ok(bytes) = self.blocks.read(bp) else { return lost };
        let shift = object.dnode.pointers_shift();
        let mut sum = Sum { dsize, ..Sum::EMPTY };
        for (index, child) in BlkPtr::all_in(&bytes).iter().enumerate() {
            if !child.is_hole() {
                let number = number.checked_shl(shift).unwrap_or(0).saturating_add(index as u64);
                sum.add(self.known(object, child, (level - 1, number)));
            }
        }
        self.subtrees.remember(bp, sum);
        sum
    }
}
