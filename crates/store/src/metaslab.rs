//! One metaslab: what its space map says, and what may be handed out.
//!
//! `mapped` mirrors the space map on disk (once the pending changes are appended); `free` is the
//! part of it that may be handed out now: what was freed in txg N joins it only when N+3 opens
//! (INV-1), so a rewind by two txgs finds every block that it needs. Only txgs that have an
//! uberblock count; and what the space map says was freed in the last of them still rests when the
//! pool is opened anew.

use std::collections::VecDeque;

use crate::ranges::RangeSet;

/// Txgs that a freed block rests before it is handed out again.
pub const DEFER_TXGS: u64 = 3;

/// Changes of one metaslab that its space map on disk does not have yet.
#[derive(Debug, Default)]
pub struct Pending {
    /// Allocated ranges (start relative to the vdev, length), in bytes.
    pub allocs: Vec<(u64, u64)>,
    /// Freed ranges, none of which is in `allocs` of a later pass.
    pub frees: Vec<(u64, u64)>,
}

impl Pending {
    /// Is there nothing to append?
    pub fn is_empty(&self) -> bool {
        self.allocs.is_empty() && self.frees.is_empty()
    }
}

/// A space map contradicted what is known: the pool's metadata or the engine is wrong.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("{what} of [{start:#x}, +{len:#x}) contradicts the space map")]
pub struct MapError {
    /// "allocation" or "free".
    pub what: &'static str,
    /// Start of the range, in bytes.
    pub start: u64,
    /// Length of the range, in bytes.
    pub len: u64,
}

/// The loaded state of a metaslab.
#[derive(Debug)]
pub struct Metaslab {
    /// Start in the vdev's address space, in bytes.
    pub start: u64,
    /// Size in bytes.
    pub size: u64,
    mapped: RangeSet,
    free: RangeSet,
    pending: Pending,
    freed_now: Vec<(u64, u64)>,
    /// Freed ranges by the uberblock that let them go, the last one at the back.
    deferred: VecDeque<Vec<(u64, u64)>>,
}

impl Metaslab {
    /// A metaslab of which nothing is allocated.
    pub fn empty(start: u64, size: u64) -> Self {
        Metaslab {
            start,
            size,
            mapped: RangeSet::of(start, size),
            free: RangeSet::of(start, size),
            pending: Pending::default(),
            freed_now: Vec::new(),
            deferred: VecDeque::new(),
        }
    }

    /// Bytes of memory that it takes, about.
    pub fn memory_bytes(&self) -> u64 {
        let lists = self.deferred.iter().chain([&self.freed_now, &self.pending.allocs]);
        let listed: usize = lists.map(Vec::capacity).sum::<usize>() + self.pending.frees.capacity();
        self.mapped.memory_bytes() + self.free.memory_bytes() + 16 * listed as u64
    }

    /// Applies an allocation that the space map on disk holds.
    pub fn load_alloc(&mut self, start: u64, len: u64) -> Result<(), MapError> {
        let known = self.mapped.remove(start, len) && self.free.remove(start, len);
        known.then_some(()).ok_or(MapError { what: "allocation", start, len })
    }

    /// Applies a free that the space map on disk holds.
    pub fn load_free(&mut self, start: u64, len: u64) -> Result<(), MapError> {
        let inside = start >= self.start
            && start.checked_add(len).is_some_and(|end| end <= self.start + self.size);
        let known = inside && self.mapped.add(start, len) && self.free.add(start, len);
        known.then_some(()).ok_or(MapError { what: "free", start, len })
    }

    /// The space map is loaded. What it says was freed rests on: `freed` has for each of the last
    /// txgs on disk, the oldest first, the ranges of which nothing was allocated again.
    pub fn rest(&mut self, freed: Vec<Vec<(u64, u64)>>) -> Result<(), MapError> {
        for (start, len) in freed.iter().flatten() {
            if !self.free.remove(*start, *len) {
                return Err(MapError { what: "free", start: *start, len: *len });
            }
        }
        self.deferred = freed.into();
        Ok(())
    }

    /// Takes a range of `want` bytes or, if there is none, the longest of at least `least`.
    pub fn lease(&mut self, least: u64, want: u64) -> Option<(u64, u64)> {
        let (start, len) = match self.free.fitting(want) {
            Some((start, _)) => (start, want),
            None => self.free.longest().filter(|(_, len)| *len >= least)?,
        };
        let taken = self.free.remove(start, len);
        debug_assert!(taken);
        Some((start, len))
    }

    /// Bytes of the longest piece that can be leased.
    pub fn free_longest(&self) -> u64 {
        self.free.longest().map_or(0, |(_, len)| len)
    }

    /// Gives back a lease of which `used` bytes from `start` on were allocated.
    pub fn settle(&mut self, start: u64, used: u64, len: u64) {
        let back = self.free.add(start + used, len - used);
        assert!(back, "INV-1: a lease given back twice");
        if used > 0 {
            let taken = self.mapped.remove(start, used);
            assert!(taken, "INV-1: allocated what the space map holds as allocated");
            self.pending.allocs.push((start, used));
        }
    }

    /// Takes a range that somebody has written to before the space map said so. What rests of it does so no more.
    pub fn claim(&mut self, start: u64, len: u64) -> Result<(), MapError> {
        let wrong = MapError { what: "allocation", start, len };
        let end = start.checked_add(len).ok_or(wrong)?;
        if !self.mapped.remove(start, len) {
            return Err(wrong);
        }
        // What is free and does not rest lies between what rests.
        let mut at = start;
        let mut resting: Vec<(u64, u64)> = Vec::new();
        for list in self.deferred.iter_mut().chain([&mut self.freed_now]) {
            for (from, size) in std::mem::take(list) {
                let until = from + size;
                let (low, high) = (from.max(start), until.min(end));
                if low >= high {
                    list.push((from, size));
                    continue;
                }
                resting.push((low, high));
                list.extend((from < low).then(|| (from, low - from)));
                list.extend((high < until).then(|| (high, until - high)));
            }
        }
        resting.sort_unstable();
        for (low, high) in resting.into_iter().chain([(end, end)]) {
            if low > at && !self.free.remove(at, low - at) {
                return Err(wrong);
            }
            at = high;
        }
        self.pending.allocs.push((start, len));
        Ok(())
    }

    /// Frees a range; it can be handed out again [`DEFER_TXGS`] later.
    pub fn free(&mut self, start: u64, len: u64) -> Result<(), MapError> {
        let inside = start >= self.start
            && start.checked_add(len).is_some_and(|end| end <= self.start + self.size);
        if !inside || !self.mapped.add(start, len) {
            return Err(MapError { what: "free", start, len });
        }
        self.pending.frees.push((start, len));
        self.freed_now.push((start, len));
        Ok(())
    }

    /// What must be appended to the space map, coalesced. Allocations come first on disk.
    pub fn take_pending(&mut self) -> Pending {
        let mut pending = std::mem::take(&mut self.pending);
        coalesce(&mut pending.allocs);
        coalesce(&mut pending.frees);
        pending
    }

    /// Is there something to append to the space map?
    pub fn is_dirty(&self) -> bool {
        !self.pending.is_empty()
    }

    /// An uberblock is on stable storage: what was freed for it starts to rest, what rested long
    /// enough may be handed out, unless it is `held`.
    pub fn txg_done(&mut self, held: bool) {
        self.deferred.push_back(std::mem::take(&mut self.freed_now));
        while !held && self.deferred.len() >= DEFER_TXGS as usize {
            for (start, len) in self.deferred.pop_front().into_iter().flatten() {
                let back = self.free.add(start, len);
                assert!(back, "INV-1: a freed block was handed out while it rested");
            }
        }
    }

    /// Is the whole range allocated, as the space map has it?
    pub fn is_allocated(&self, start: u64, len: u64) -> bool {
        let end = start.checked_add(len).filter(|end| *end <= self.start + self.size);
        start >= self.start && end.is_some() && !self.mapped.touches(start, len)
    }

    /// Bytes that the space map holds as allocated.
    pub fn allocated(&self) -> u64 {
        self.size - self.mapped.total()
    }

    /// Bytes that may be handed out now.
    pub fn available(&self) -> u64 {
        self.free.total()
    }

    /// Number of pieces that may be handed out now, by the power of two of their length.
    pub fn free_pieces(&self) -> &[u64; 64] {
        self.free.counts()
    }

    /// Bytes that were freed but still rest.
    pub fn resting(&self) -> u64 {
        let rest = self.deferred.iter().flatten().chain(&self.freed_now);
        rest.map(|(_, len)| len).sum()
    }

    /// Histogram of free space for the header of the space map.
    pub fn histogram(&self, shift: u32) -> [u64; 32] {
        self.mapped.histogram(shift)
    }

    /// Number of pieces that the space map holds as free.
    pub fn mapped_pieces(&self) -> usize {
        self.mapped.count()
    }

    /// Ranges that were allocated before the pending changes, in order: what a condensed space map holds.
    pub fn allocated_before_pending(&self) -> Vec<(u64, u64)> {
        let mut free = self.mapped.clone();
        // What was allocated and freed since is in both lists.
        self.pending.frees.iter().for_each(|(start, len)| free.cut(*start, *len));
        for (start, len) in &self.pending.allocs {
            free.cut(*start, *len);
            let back = free.add(*start, *len);
            debug_assert!(back, "it was cut out");
        }
        let mut allocated = Vec::with_capacity(free.count() + 1);
        let mut at = self.start;
        for (start, len) in free.iter() {
            if start > at {
                allocated.push((at, start - at));
            }
            at = start + len;
        }
        if at < self.start + self.size {
            allocated.push((at, self.start + self.size - at));
        }
        allocated
    }

    /// Ranges that were free before the pending changes and must not be handed out yet (INV-1).
    pub fn resting_before_pending(&self) -> RangeSet {
        let mut resting = RangeSet::new();
        for (start, len) in self.deferred.iter().flatten().chain(&self.freed_now) {
            resting.cut(*start, *len);
            let new = resting.add(*start, *len);
            debug_assert!(new, "it was cut out");
        }
        self.pending.frees.iter().for_each(|(start, len)| resting.cut(*start, *len));
        resting
    }
}

/// Sorts ranges and joins neighbours.
fn coalesce(ranges: &mut Vec<(u64, u64)>) {
    ranges.sort_unstable();
    let mut out: Vec<(u64, u64)> = Vec::with_capacity(ranges.len());
    for (start, len) in ranges.drain(..) {
        match out.last_mut() {
            Some((s, l)) if *s + *l == start => *l += len,
            _ => out.push((start, len)),
        }
    }
    *ranges = out;
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn freed_space_rests_for_three_txgs() {
        let mut ms = Metaslab::empty(0, 1 << 20);
        let (start, len) = ms.lease(4096, 1 << 20).unwrap();
        ms.settle(start, 8192, len);
        assert_eq!(ms.allocated(), 8192);
        ms.txg_done(false);
        ms.free(0, 4096).unwrap();
        assert_eq!(ms.allocated(), 4096);
        for txg in [11, 12] {
            assert_eq!(ms.available(), (1 << 20) - 8192, "txg {txg}");
            ms.txg_done(false);
        }
        ms.txg_done(false);
        assert_eq!(ms.available(), (1 << 20) - 4096);
        assert!(ms.free(0, 4096).is_err());
    }

    #[test]
    fn freed_space_that_is_held_rests_on() {
        let mut ms = Metaslab::empty(0, 1 << 20);
        assert!(ms.load_alloc(0, 8192).is_ok());
        ms.free(0, 4096).unwrap();
        for _ in 0..10 {
            ms.txg_done(true);
        }
        assert_eq!((ms.resting(), ms.available()), (4096, (1 << 20) - 8192));
        ms.txg_done(false);
        assert_eq!((ms.resting(), ms.available()), (0, (1 << 20) - 4096));
    }

    #[test]
    fn what_was_freed_before_the_pool_was_opened_rests_on() {
        let mut ms = Metaslab::empty(0, 1 << 20);
        assert!(ms.load_alloc(0, 16_384).is_ok());
        assert!(ms.load_free(0, 4096).is_ok());
        assert!(ms.load_free(8192, 4096).is_ok());
        assert!(ms.rest(vec![vec![(0, 4096)], vec![(8192, 4096)]]).is_ok());
        assert_eq!((ms.allocated(), ms.resting()), (8192, 8192));
        assert_eq!(ms.available(), (1 << 20) - 16_384);
        ms.txg_done(false);
        assert_eq!(ms.available(), (1 << 20) - 12_288);
        ms.txg_done(false);
        assert_eq!(ms.available(), (1 << 20) - 8192);
        assert!(ms.rest(vec![vec![(12_288, 4096)]]).is_err(), "it is allocated");
    }

    #[test]
    fn what_is_claimed_no_longer_rests_and_is_not_handed_out() {
        let mut ms = Metaslab::empty(0, 1 << 20);
        assert!(ms.load_alloc(0, 16_384).is_ok());
        assert!(ms.load_free(0, 8192).is_ok());
        assert!(ms.rest(vec![vec![(0, 4096)], vec![(4096, 4096)]]).is_ok());
        assert!(ms.claim(8192, 4096).is_err(), "it is allocated");
        // Over what rests from two txgs, and beside it.
        assert!(ms.claim(2048, 4096).is_ok());
        assert!(ms.claim(16_384, 4096).is_ok());
        assert_eq!(ms.take_pending().allocs, [(2048, 4096), (16_384, 4096)]);
        assert_eq!((ms.allocated(), ms.resting()), (8192 + 8192, 4096));
        (0..3).for_each(|_| ms.txg_done(false));
        assert_eq!((ms.available(), ms.resting()), ((1 << 20) - ms.allocated(), 0));
        assert!(ms.claim(u64::MAX, 4096).is_err());
    }

    #[test]
    fn pending_changes_are_coalesced_and_taken_once() {
        let mut ms = Metaslab::empty(0, 1 << 20);
        for _ in 0..3 {
            let (start, len) = ms.lease(4096, 65_536).unwrap();
            ms.settle(start, 4096, len);
        }
        ms.free(4096, 4096).unwrap();
        ms.free(0, 4096).unwrap();
        let pending = ms.take_pending();
        assert!(ms.is_allocated(8192, 4096));
        assert!(!ms.is_allocated(8192, 8192) && !ms.is_allocated(0, 12_288));
        assert!(!ms.is_allocated(1 << 20, 512) && !ms.is_allocated(u64::MAX, 512));
        assert_eq!(pending.allocs, [(0, 12_288)]);
        assert_eq!(pending.frees, [(0, 8192)]);
        assert!(!ms.is_dirty());
        assert_eq!(ms.allocated_before_pending(), [(8192, 4096)]);
        assert_eq!(ms.resting_before_pending().iter().collect::<Vec<_>>(), [(0, 8192)]);
    }

    #[test]
    fn before_pending_changes_is_what_a_new_map_begins_with() {
        let mut ms = Metaslab::empty(0, 1 << 20);
        let (start, len) = ms.lease(4096, 65_536).unwrap();
        ms.settle(start, 65_536, len);
        ms.free(0, 4096).unwrap();
        drop(ms.take_pending());
        ms.txg_done(false);
        let (start, len) = ms.lease(4096, 8192).unwrap();
        ms.settle(start, 8192, len);
        ms.free(16_384, 8192).unwrap();
        ms.free(start, 4096).unwrap();
        assert_eq!(ms.allocated_before_pending(), [(4096, 61_440)]);
        assert_eq!(ms.resting_before_pending().iter().collect::<Vec<_>>(), [(0, 4096)]);
        drop(ms.take_pending());
        let allocated = [(4096, 12_288), (24_576, 40_960), (start + 4096, 4096)];
        assert_eq!(ms.allocated_before_pending(), allocated);
        assert_eq!(ms.resting_before_pending().total(), 16_384);
    }
}
