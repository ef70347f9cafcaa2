//! The tree of blocks below a dnode, from the top down and from the first block to the last.
//!
//! Bounded against trees that lead into themselves: levels only go down, and an indirect block
//! that was visited is not entered again (no sound object has one twice).

use std::collections::BTreeSet;

use format::{BlkPtr, DnodePhys, bpobj};

use super::{Dumper, Gone, Told};

/// Indirect blocks of one object that are remembered: those of some 100 TiB.
const SEEN_MAX: usize = 1 << 20;

/// A pointer of the tree.
pub(super) struct Place<'p> {
    /// Its level; data are 0.
    pub(super) level: u8,
    /// Number of the block in its level.
    pub(super) block: u64,
    /// The pointer, perhaps of a hole.
    pub(super) bp: &'p BlkPtr,
}

/// What is done with each pointer; what it gives says whether to go on below it.
type Visit<'v, 'a, 's> = &'v mut dyn FnMut(&mut Dumper<'a, 's>, Place<'_>) -> Result<bool, Gone>;

impl<'a, 's> Dumper<'a, 's> {
    /// Calls `visit` with every pointer of an object that was ever written, parents first.
    pub(super) fn walk(&mut self, dnode: &DnodePhys, visit: Visit<'_, 'a, 's>) -> Told {
        let top = dnode.core().levels.saturating_sub(1);
        let mut seen = BTreeSet::new();
        for (block, bp) in (0u64..).zip(dnode.blkptrs()) {
            self.below(dnode, (top, block), bp, &mut seen, visit)?;
        }
        Ok(())
    }

    fn below(
        &mut self,
        dnode: &DnodePhys,
        (level, block): (u8, u64),
        bp: &BlkPtr,
        seen: &mut BTreeSet<(u32, u64)>,
        visit: Visit<'_, 'a, 's>,
    ) -> Told {
        if bp.is_zero() {
            return Ok(());
        }
        let deeper = visit(self, Place { level, block, bp })?;
        if level == 0 || bp.is_hole() || !deeper {
            return Ok(());
        }
        let place = || format!("level {level} block {block}");
        if bp.is_embedded() || bp.level() != level || !bp.is_little_endian() {
            return self.out.wrong(place(), "an indirect block that cannot be one");
        }
        let dva = bp.dva(0);
        if seen.len() < SEEN_MAX && !seen.insert((dva.vdev, dva.offset)) {
            return self.out.wrong(place(), "the same indirect block a second time");
        }
        let bytes = match self.look.read(bp) {
            Ok(bytes) => bytes,
            Err(why) => return self.out.wrong(place(), why),
        };
        let first = block.checked_mul(1 << dnode.pointers_shift());
        let Some(first) = first.filter(|first| *first < 1 << 56) else {
            return self.out.wrong(place(), "beyond what an object can hold");
        };
        let count = (bytes.len() / size_of::<BlkPtr>()).min(1 << dnode.pointers_shift());
        let pointers = bpobj::entries(&bytes, count as u64).unwrap_or_default();
        for (child, bp) in (first..).zip(pointers) {
            self.below(dnode, (level - 1, child), bp, seen, visit)?;
        }
        Ok(())
    }
}

/// Blocks of level 0 that one block of a level stands for.
pub(super) fn span(dnode: &DnodePhys, level: u8) -> u64 {
    1u64.checked_shl(u32::from(level) * dnode.pointers_shift()).unwrap_or(u64::MAX)
}
