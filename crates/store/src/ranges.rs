//! Sets of byte ranges: what is free, what is pending.
//!
//! Sorted, coalesced extents with a second index by length, so that the next lease is found in
//! logarithmic time, and a histogram kept as extents come and go (a space map's header wants it).

use std::collections::{BTreeMap, BTreeSet};

/// Buckets of a space map's histogram.
pub const BUCKETS: usize = 32;

/// Memory for a range in both indices, about, in bytes.
const RANGE_BYTES: u64 = 56;

/// A set of disjoint, coalesced ranges `[start, end)`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RangeSet {
    by_start: BTreeMap<u64, u64>,
    by_len: BTreeSet<(u64, u64)>,
    total: u64,
    /// Number of ranges per power of two of their length.
    counts: [u64; 64],
}

impl Default for RangeSet {
    fn default() -> Self {
        RangeSet { by_start: BTreeMap::new(), by_len: BTreeSet::new(), total: 0, counts: [0; 64] }
    }
}

impl RangeSet {
    /// An empty set.
    pub fn new() -> Self {
        Self::default()
    }

    /// A set of one range.
    pub fn of(start: u64, len: u64) -> Self {
        let mut set = Self::new();
        set.insert_extent(start, start + len);
        set
    }

    /// Sum of all lengths.
    pub fn total(&self) -> u64 {
        self.total
    }

    /// Number of ranges.
    pub fn count(&self) -> usize {
        self.by_start.len()
    }

    /// Number of ranges by the power of two of their length.
    pub fn counts(&self) -> &[u64; 64] {
        &self.counts
    }

    /// Bytes of memory that it takes, about.
    pub fn memory_bytes(&self) -> u64 {
        RANGE_BYTES * self.by_start.len() as u64
    }

    /// Is nothing in the set?
    pub fn is_empty(&self) -> bool {
        self.by_start.is_empty()
    }

    fn insert_extent(&mut self, start: u64, end: u64) {
        if start == end {
            return;
        }
        self.by_start.insert(start, end);
        self.by_len.insert((end - start, start));
        self.total += end - start;
        self.counts[(end - start).ilog2() as usize] += 1;
    }

    fn remove_extent(&mut self, start: u64, end: u64) {
        self.by_start.remove(&start);
        self.by_len.remove(&(end - start, start));
        self.total -= end - start;
        self.counts[(end - start).ilog2() as usize] -= 1;
    }

    /// Adds a range of which nothing may be in the set yet; `false`, and no change, if some is.
    #[must_use]
    pub fn add(&mut self, start: u64, len: u64) -> bool {
        let Some(end) = start.checked_add(len) else { return false };
        let before = self.by_start.range(..=start).next_back().map(|(s, e)| (*s, *e));
        let after = self.by_start.range(start..).next().map(|(s, e)| (*s, *e));
        if before.is_some_and(|(_, e)| e > start) || after.is_some_and(|(s, _)| s < end) {
            return len == 0;
        }
        let (mut from, mut to) = (start, end);
        if let Some((s, e)) = before.filter(|(_, e)| *e == start) {
            self.remove_extent(s, e);
            from = s;
        }
        if let Some((s, e)) = after.filter(|(s, _)| *s == end) {
            self.remove_extent(s, e);
            to = e;
        }
        self.insert_extent(from, to);
        true
    }

    /// Takes out a range that must be wholly in the set; `false`, and no change, if it is not.
    #[must_use]
    pub fn remove(&mut self, start: u64, len: u64) -> bool {
        let Some(end) = start.checked_add(len) else { return false };
        if len == 0 {
            return true;
        }
        let Some((s, e)) = self.by_start.range(..=start).next_back().map(|(s, e)| (*s, *e)) else {
            return false;
        };
        if e < end {
            return false;
        }
        self.remove_extent(s, e);
        self.insert_extent(s, start);
        self.insert_extent(end, e);
        true
    }

    /// Takes out what of a range is in the set.
    pub fn cut(&mut self, start: u64, len: u64) {
        let end = start.saturating_add(len);
        while let Some((s, e)) = self.by_start.range(..end).next_back().map(|(s, e)| (*s, *e)) {
            if e <= start {
                return;
            }
            self.remove_extent(s, e);
            self.insert_extent(s.min(start), start);
            self.insert_extent(end, e.max(end));
        }
    }

    /// Takes out what of a range is in the set, and adds the rest of it to `others`: what changes one way and
    /// back is no change. `false` if some of the rest was there already.
    #[must_use]
    pub fn cancel(&mut self, start: u64, len: u64, others: &mut RangeSet) -> bool {
        let end = start.saturating_add(len);
        let mut rest = RangeSet::of(start, end - start);
        while let Some((s, e)) = self.by_start.range(..end).next_back().map(|(s, e)| (*s, *e)) {
            let (from, to) = (s.max(start), e.min(end));
            if from >= to {
                break;
            }
            self.cut(from, to - from);
            rest.cut(from, to - from);
        }
        rest.iter().all(|(start, len)| others.add(start, len))
    }

    /// Is the whole range in the set?
    pub fn contains(&self, start: u64, len: u64) -> bool {
        let Some((_, e)) = self.by_start.range(..=start).next_back() else { return len == 0 };
        start.checked_add(len).is_some_and(|end| *e >= end)
    }

    /// Is any of the range in the set?
    pub fn touches(&self, start: u64, len: u64) -> bool {
        let end = start.saturating_add(len);
        self.by_start.range(..end).next_back().is_some_and(|(_, e)| *e > start && len > 0)
    }

    /// The range at the lowest address with at least `len` bytes, among the smallest that fit.
    pub fn fitting(&self, len: u64) -> Option<(u64, u64)> {
        self.by_len.range((len, 0)..).next().map(|(len, start)| (*start, *len))
    }

    /// The longest range.
    pub fn longest(&self) -> Option<(u64, u64)> {
        self.by_len.last().map(|(len, start)| (*start, *len))
    }

    /// The ranges in order, as `(start, length)`.
    pub fn iter(&self) -> impl Iterator<Item = (u64, u64)> + '_ {
        self.by_start.iter().map(|(s, e)| (*s, e - s))
    }

    /// A space map's histogram: bucket `i` counts the ranges of `[2^(i+shift), 2^(i+1+shift))`
    /// bytes; longer ones count as `2^k` in the last.
    pub fn histogram(&self, shift: u32) -> [u64; BUCKETS] {
        let mut out = [0; BUCKETS];
        for (log, count) in self.counts.iter().enumerate() {
            let bucket = log.saturating_sub(shift as usize);
            match out.get_mut(bucket) {
                Some(slot) => *slot += count,
                None => out[BUCKETS - 1] += count << (bucket - (BUCKETS - 1)),
            }
        }
        out
    }

    /// Takes everything out.
    pub fn take(&mut self) -> RangeSet {
        std::mem::take(self)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use rt::random::Rng;

    #[test]
    fn neighbours_coalesce_and_overlaps_are_refused() {
        let mut set = RangeSet::of(0, 10);
        assert!(set.add(20, 10));
        assert!(!set.add(5, 10) && !set.add(15, 6) && !set.add(22, 2));
        assert!(set.add(10, 10));
        assert_eq!(set.iter().collect::<Vec<_>>(), [(0, 30)]);
        assert!(set.remove(10, 5));
        assert!(!set.remove(8, 4));
        assert_eq!(set.iter().collect::<Vec<_>>(), [(0, 10), (15, 15)]);
        assert_eq!(set.total(), 25);
        assert_eq!(set.fitting(11), Some((15, 15)));
    }

    #[test]
    fn what_is_taken_back_cancels() {
        let (mut frees, mut allocs) = (RangeSet::of(10, 10), RangeSet::new());
        assert!(frees.add(30, 10));
        assert!(frees.cancel(15, 20, &mut allocs));
        assert_eq!(frees.iter().collect::<Vec<_>>(), [(10, 5), (35, 5)]);
        assert_eq!(allocs.iter().collect::<Vec<_>>(), [(20, 10)]);
        assert!(allocs.cancel(20, 10, &mut frees) && allocs.is_empty());
        assert_eq!(frees.total(), 10);
        assert!(allocs.cancel(50, 4, &mut frees) && !allocs.cancel(52, 4, &mut frees));
    }

    #[test]
    fn equals_a_bitmap_under_random_changes() {
        let mut rng = Rng::new(7);
        let mut set = RangeSet::new();
        let mut bits = [false; 512];
        for _ in 0..20_000 {
            let start = rng.below(500) as usize;
            let len = 1 + rng.below(12) as usize;
            let part = &mut bits[start..start + len];
            let (s, l) = (start as u64, len as u64);
            if rng.below(2) == 0 {
                let legal = part.iter().all(|b| !b);
                assert_eq!(set.add(s, l), legal);
                if legal {
                    part.fill(true);
                }
            } else {
                let legal = part.iter().all(|b| *b);
                assert_eq!(set.remove(s, l), legal);
                if legal {
                    part.fill(false);
                }
            }
            assert_eq!(set.total(), bits.iter().filter(|b| **b).count() as u64);
        }
        let longest = bits.split(|b| !b).map(<[bool]>::len).max().unwrap_or(0) as u64;
        assert_eq!(set.longest().map_or(0, |(_, l)| l), longest);
        let counted: u64 = set.histogram(0).iter().sum();
        assert_eq!(counted, set.count() as u64);
    }
}
