//! Top-level vdevs come, grow and go while the allocator is in use.
//!
//! The one idea: one that comes is in the books from the sync on in which it comes, and nothing is put on it before that
//! is on stable storage: so whichever uberblock counts after a cut, what it leads to is on vdevs that its pool has.

use rt::sync::atomic::Ordering;

use super::{Allocator, Books, Slab, TopBooks, TopSpace};

impl Allocator {
    /// In a sync: the top-level vdevs are these from now on. One that is not known is new, and empty.
    pub fn set_tops(&self, now: Vec<TopSpace>) {
        let mut books = self.books.lock();
        books.tops.retain(|own| now.iter().any(|space| space.top == own.space.top));
        for space in now {
            match books.tops.iter_mut().find(|own| own.space.top == space.top) {
                Some(own) => own.grow(space.ms_count),
                None => books.tops.push(TopBooks::new(space, true)),
            }
        }
        books.tops.sort_by_key(|own| own.space.top);
        self.count(&books);
    }

    /// The txg is on stable storage: what came with it takes blocks.
    pub(super) fn let_come(&self) {
        let mut books = self.books.lock();
        let is_coming = |own: &&mut TopBooks| own.coming;
        let mut is_log = false;
        for own in books.tops.iter_mut().filter(is_coming) {
            own.coming = false;
            is_log |= own.space.is_log;
        }
        self.count(&books);
        drop(books);
        if is_log {
            // The next block of a log goes there.
            self.settle_log();
        }
    }

    fn count(&self, books: &Books) {
        let tops = books.tops.iter().filter(|own| own.takes_data()).count();
        self.tops.store(tops, Ordering::Relaxed);
        self.too_large.store(u64::MAX, Ordering::Relaxed);
    }

    /// Shall blocks of intent logs be put on this log vdev? Those that are there stay.
    pub fn set_log(&self, top: u32, takes: bool) {
        let mut books = self.books.lock();
        if let Some(own) = books.tops.iter_mut().find(|own| own.space.top == top) {
            own.space.is_log = takes;
        }
        drop(books);
        // What is leased may be of the one that takes none from now on.
        self.settle_log();
    }

    /// Is nothing on this top-level vdev: no block, and no change that no space map has? Leases must be settled.
    pub fn is_empty(&self, top: u32) -> bool {
        let books = self.books.lock();
        let slabs = books.tops.iter().filter(|own| own.space.top == top).flat_map(|own| &own.slabs);
        let is_clean = |slab: &Slab| slab.loaded.as_ref().is_none_or(|loaded| !loaded.is_dirty());
        slabs.into_iter().all(|slab| slab.allocated == 0 && is_clean(slab))
    }
}

impl TopBooks {
    /// It has more metaslabs than before, all of them free.
    fn grow(&mut self, ms_count: u64) {
        let more = ms_count.saturating_sub(self.space.ms_count);
        self.slabs.extend((0..more).map(|_| Slab::new(0)));
        self.space.ms_count += more;
    }

    /// May blocks of intent logs be put there now, before they go elsewhere?
    pub(super) fn takes_logs(&self) -> bool {
        self.space.is_log && !self.coming
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::StoreError;

    fn space(top: u32, ms_count: u64) -> TopSpace {
        TopSpace {
            top,
            ashift: 12,
            ms_shift: 24,
            ms_count,
            allocated: vec![],
            usable: true,
            is_log: false,
        }
    }

    fn plain(_: u32, psize: u64) -> u64 {
        psize.next_multiple_of(4096)
    }

    #[test]
    fn one_that_comes_takes_nothing_before_its_txg_is_stable() {
        let a = Allocator::new(vec![space(0, 1)], 1);
        while a.allocate(0, 0, 1 << 20, &[], &plain).is_ok() {}
        a.set_tops(vec![space(0, 1), space(1, 2)]);
        let full = a.allocate(0, 0, 1 << 20, &[], &plain);
        assert!(matches!(full, Err(StoreError::NoSpace { .. })), "{full:?}");
        a.txg_done();
        let first = a.allocate(0, 0, 1 << 20, &[], &plain).unwrap();
        assert_eq!(first.vdev, 1);
        // What grows is used at once, and what goes no more.
        a.set_tops(vec![space(0, 2), space(1, 2)]);
        let mut tops = std::collections::BTreeSet::new();
        while let Ok(dva) = a.allocate(0, 0, 1 << 20, &[], &plain) {
            tops.insert(dva.vdev);
        }
        assert_eq!(tops.into_iter().collect::<Vec<_>>(), [0, 1]);
        a.settle_all();
        assert!(!a.is_empty(1));
    }

    #[test]
    fn a_log_vdev_that_takes_no_more_is_empty_when_its_blocks_are_freed() {
        let log = TopSpace { usable: false, is_log: true, ..space(1, 2) };
        let a = Allocator::new(vec![space(0, 1)], 1);
        assert_eq!(a.log_take(8192, &plain).unwrap().vdev, 0);
        a.set_tops(vec![space(0, 1), log]);
        assert_eq!(a.log_take(8192, &plain).unwrap().vdev, 0);
        a.txg_done();
        let block = a.log_take(8192, &plain).unwrap();
        assert_eq!(block.vdev, 1);
        a.set_log(1, false);
        assert_eq!(a.log_take(8192, &plain).unwrap().vdev, 0);
        a.log_born(block);
        assert!(!a.is_empty(1));
        a.free_dva(block).unwrap();
        assert!(!a.is_empty(1), "its space map has it still");
        a.drain_pending(|_, _, _, _| Ok(())).unwrap();
        assert!(a.is_empty(1));
        a.set_tops(vec![space(0, 1)]);
        a.settle_all();
    }
}
