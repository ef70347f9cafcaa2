//! Which objects of an object set may have changed since a txg, without a look at the others.
//!
//! The one idea: a block of dnodes that is older than the txg has nothing new in it, and neither has anything
//! below an indirect block that is older. So what is read grows with what has changed. Of holes it is not known
//! for sure how old they are: they are always told. FORMAT: section 2.7.

use format::dnode::{DNODE_SLOT, DNODES_PER_BLOCK};
use format::{BlkPtr, DnodePhys};
use zerocopy::FromBytes;

use crate::error::{DmuError, Result};
use crate::objset::Objset;

/// Dnodes in a block that has changed, or what is left of them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Slots {
    /// An object. Not all that are told have changed: their neighbours have.
    Used(u64),
    /// No objects from `first` to `last`.
    Free {
        /// The first of them.
        first: u64,
        /// The last.
        last: u64,
    },
}

/// A part of what has changed.
#[derive(Debug, Default)]
pub struct Changed {
    /// In the order of numbers.
    pub slots: Vec<Slots>,
    /// The object with which it goes on; `None`: that was the end.
    pub next: Option<u64>,
}

impl Objset {
    /// Objects from `first` to `last` whose dnodes were written after `after_txg`, as the object set is on
    /// disk; about `max` of them. With 0 these are all.
    ///
    /// # Errors
    /// Blocks of dnodes that cannot be read.
    pub fn changed(&self, after_txg: u64, first: u64, last: u64, max: usize) -> Result<Changed> {
        let phys = self.phys();
        let meta = &phys.meta;
        let mut walk =
            Walk { objset: self, meta, after_txg, first, last, max, out: Changed::default() };
        let top = meta.core().levels.saturating_sub(1);
        for (block, bp) in meta.blkptrs().iter().enumerate() {
            if !walk.block(top, block as u64, bp)? {
                break;
            }
        }
        Ok(walk.out)
    }
}

struct Walk<'a> {
    objset: &'a Objset,
    meta: &'a DnodePhys,
    after_txg: u64,
    first: u64,
    last: u64,
    max: usize,
    out: Changed,
}

impl Walk<'_> {
    /// A block of the dnodes with all below it; `false`: enough.
    fn block(&mut self, level: u8, block: u64, bp: &BlkPtr) -> Result<bool> {
        let shift = self.meta.pointers_shift() * u32::from(level);
        let blocks = 1u64.checked_shl(shift).unwrap_or(u64::MAX);
        let first = block.saturating_mul(blocks).saturating_mul(DNODES_PER_BLOCK);
        let last = first.saturating_add(blocks.saturating_mul(DNODES_PER_BLOCK) - 1);
        if last < self.first {
            return Ok(true);
        }
        if first > self.last {
            return Ok(false);
        }
        if self.out.slots.len() >= self.max {
            self.out.next = Some(first.max(self.first));
            return Ok(false);
        }
        if bp.is_hole() {
            if self.after_txg > 0 {
                self.free(first, last);
            }
            return Ok(true);
        }
        if bp.birth() <= self.after_txg {
            return Ok(true);
        }
        let failed = |source| DmuError::Block { object: 0, level, block, source: Box::new(source) };
        let bytes = self.objset.store().read(bp).map_err(failed)?;
        if level == 0 {
            self.dnodes(first, &bytes)?;
            return Ok(true);
        }
        if bp.level() != level {
            return Err(DmuError::Limit { object: 0, what: "a block of a wrong level" });
        }
        let children = block.saturating_mul(1 << self.meta.pointers_shift());
        for (index, child) in bytes.as_chunks::<128>().0.iter().enumerate() {
            if let Ok(child) = BlkPtr::read_from_bytes(child)
                && !self.block(level - 1, children.saturating_add(index as u64), &child)?
            {
                return Ok(false);
            }
        }
        Ok(true)
    }

    fn dnodes(&mut self, first: u64, bytes: &[u8]) -> Result<()> {
        let mut slot = 0;
        while slot < DNODES_PER_BLOCK {
            let number = first.saturating_add(slot);
            let at = slot as usize * DNODE_SLOT;
            let dnode = DnodePhys::parse(bytes.get(at..).unwrap_or_default());
            slot += match dnode.map_err(|source| DmuError::Format { object: number, source })? {
                Some(dnode) => {
                    if (self.first.max(1)..=self.last).contains(&number) {
                        self.out.slots.push(Slots::Used(number));
                    }
                    dnode.slots() as u64
                }
                None => {
                    if self.after_txg > 0 {
                        self.free(number, number);
                    }
                    1
                }
            };
        }
        Ok(())
    }

    fn free(&mut self, first: u64, last: u64) {
        let (first, last) = (first.max(self.first).max(1), last.min(self.last));
        if first > last {
            return;
        }
        match self.out.slots.last_mut() {
            Some(Slots::Free { last: before, .. }) if before.checked_add(1) == Some(first) => {
                *before = last;
            }
            _ => self.out.slots.push(Slots::Free { first, last }),
        }
    }
}
