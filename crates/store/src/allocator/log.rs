//! Room for intent logs, which are written outside of any sync.
//!
//! The one idea: a block of a log belongs to the txg that was open when it got its place. Until that txg is synced
//! its place is nobody else's, and no space map knows of it: after a crash whoever opens the pool claims it. In the
//! sync of that txg it is born for the space maps, and what was born is freed as any block.

use format::Dva;

use super::{Allocator, AsizeOf, Ask, Found, Lease};
use crate::error::{Result, StoreError};

/// Bytes of a lease for log blocks, at most.
const LOG_LEASE_MAX: u64 = 1 << 20;

impl Allocator {
    /// Takes room for a log block of `psize` bytes: on a log device, if there is one with room.
    ///
    /// # Errors
    /// [`StoreError::NoSpace`] if no free region is as large.
    pub(crate) fn log_take(&self, psize: u64, asize_of: AsizeOf<'_>) -> Result<Dva> {
        let mut slot = self.log_lease.lock();
        loop {
            if let Some(lease) = slot.as_mut() {
                let asize = asize_of(lease.top, psize);
                if lease.end - lease.cursor >= asize {
                    let offset = lease.cursor;
                    lease.cursor += asize;
                    return Ok(Dva { vdev: lease.top, offset, asize, gang: false });
                }
            }
            self.log_rest(slot.take());
            match self.log_lease_for(psize, asize_of) {
                Ok(Some(lease)) => *slot = Some(lease),
                Ok(None) => return Err(StoreError::NoSpace { asize: asize_of(0, psize) }),
                Err(missing) => {
                    drop(slot);
                    self.load(missing)?;
                    slot = self.log_lease.lock();
                }
            }
        }
    }

    fn log_lease_for(&self, psize: u64, asize_of: AsizeOf<'_>) -> Found<Option<Lease>> {
        let books = &mut *self.books.lock();
        let count = books.tops.len();
        for on_log in [true, false] {
            for turn in 0..count {
                let top = &mut books.tops[(books.next_top + turn) % count];
                let fits = if on_log { top.takes_logs() } else { top.takes_data() };
                if !fits {
                    continue;
                }
                let number = top.space.top;
                let (least, granule) = (asize_of(number, psize), asize_of(number, 512));
                let want = LOG_LEASE_MAX.max(least).next_multiple_of(least);
                let ask = Ask { copy: 0, least, want, granule, taken: &[] };
                if let Some(lease) = top.lease(&ask)? {
                    return Ok(Some(lease));
                }
            }
        }
        Ok(None)
    }

    /// What is left of a lease goes back; what was cut from it stays taken.
    fn log_rest(&self, lease: Option<Lease>) {
        let Some(lease) = lease.filter(|lease| lease.cursor < lease.end) else { return };
        let mut books = self.books.lock();
        let Some(top) = books.tops.iter_mut().find(|t| t.space.top == lease.top) else { return };
        let slab = &mut top.slabs[lease.slab as usize];
        let loaded = slab.loaded.as_mut().expect("a leased metaslab stays loaded");
        loaded.settle(lease.cursor, 0, lease.end - lease.cursor);
    }

    pub(super) fn settle_log(&self) {
        let lease = self.log_lease.lock().take();
        self.log_rest(lease);
    }

    /// In the sync of the txg in which it was taken: the space maps learn of a log block.
    pub fn log_born(&self, dva: Dva) {
        self.log_settle(dva, dva.asize);
    }

    /// A place that was taken and that nothing leads to goes back.
    pub fn log_give_back(&self, dva: Dva) {
        self.log_settle(dva, 0);
    }

    fn log_settle(&self, dva: Dva, used: u64) {
        let mut books = self.books.lock();
        let Some(top) = books.tops.iter_mut().find(|t| t.space.top == dva.vdev) else { return };
        let index = (dva.offset >> top.space.ms_shift) as usize;
        let slab = &mut top.slabs[index];
        let loaded = slab.loaded.as_mut().expect("a metaslab with a log block stays loaded");
        loaded.settle(dva.offset, used, dva.asize);
        slab.allocated = loaded.allocated();
    }
}

#[cfg(test)]
mod tests {
    use super::super::TopSpace;
    use super::*;

    fn asize(_: u32, psize: u64) -> u64 {
        psize.next_multiple_of(4096)
    }

    fn allocator(logs: bool) -> Allocator {
        let space = |top, is_log: bool| TopSpace {
            top,
            ashift: 12,
            ms_shift: 22,
            ms_count: 2,
            allocated: vec![],
            usable: !is_log,
            is_log,
        };
        Allocator::new(vec![space(0, false), space(1, logs)], 1)
    }

    fn pending(allocator: &Allocator) -> Vec<(u32, u64, u64)> {
        let mut out = Vec::new();
        allocator
            .drain_pending(|top, _, _, pending| {
                out.extend(pending.allocs.iter().map(|(start, len)| (top, *start, *len)));
                Ok(())
            })
            .unwrap();
        out
    }

    #[test]
    fn no_space_map_knows_of_a_log_block_before_its_txg() {
        let allocator = allocator(false);
        let first = allocator.log_take(8192, &asize).unwrap();
        let second = allocator.log_take(4096, &asize).unwrap();
        assert_eq!(second.offset, first.offset + 8192);
        allocator.settle_all();
        assert_eq!(pending(&allocator), []);
        // Nobody else gets it.
        let other = allocator.allocate(0, 0, 1 << 20, &[], &asize).unwrap();
        let ends = first.offset + 12_288;
        assert!(
            other.vdev != 0 || other.offset >= ends || other.offset + other.asize <= first.offset
        );
        allocator.log_born(first);
        assert!(allocator.is_allocated(first).unwrap());
        assert!(!allocator.is_allocated(second).unwrap());
        assert_eq!(pending(&allocator), [(0, first.offset, 8192)]);
        allocator.log_give_back(second);
        allocator.free_dva(first).unwrap();
    }

    #[test]
    fn logs_go_to_log_devices_first() {
        let allocator = allocator(true);
        let mut tops = Vec::new();
        for _ in 0..65 {
            tops.push(allocator.log_take(128 << 10, &asize).unwrap().vdev);
        }
        // Eight MiB of them.
        assert!(tops[..64].iter().all(|top| *top == 1));
        assert_eq!(tops[64], 0);
    }
}
