//! Dirty time logs: the txgs whose data a leaf lacks.
//!
//! On disk a DTL is a space map with units of one txg: one allocated run per range of missing txgs.
//! It is rewritten whole when it changes. In memory it is a short sorted list of ranges.
//! FORMAT: section 9.5.

use crate::Result;
use crate::space_map::{Action, Encoder, Geometry, Item, SPACE_MAP_BLOCK_DTL, items};

/// A set of txgs as sorted, disjoint, non-adjacent ranges `[start, end)`.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Dtl {
    ranges: Vec<(u64, u64)>,
}

impl Dtl {
    /// The ranges `[start, end)`, ascending.
    pub fn ranges(&self) -> &[(u64, u64)] {
        &self.ranges
    }

    /// Is nothing missing?
    pub fn is_empty(&self) -> bool {
        self.ranges.is_empty()
    }

    /// Number of missing txgs.
    pub fn count(&self) -> u64 {
        self.ranges.iter().fold(0, |sum: u64, (start, end)| sum.saturating_add(end - start))
    }

    /// Is the data of `txg` missing?
    pub fn contains(&self, txg: u64) -> bool {
        self.overlaps(txg, txg.saturating_add(1))
    }

    /// Is the data of any txg in `[start, end)` missing?
    pub fn overlaps(&self, start: u64, end: u64) -> bool {
        let at = self.ranges.partition_point(|r| r.1 <= start);
        start < end && self.ranges.get(at).is_some_and(|r| r.0 < end)
    }

    /// Adds the txgs `[start, end)`.
    pub fn add(&mut self, start: u64, end: u64) {
        if start >= end {
            return;
        }
        let from = self.ranges.partition_point(|r| r.1 < start);
        let to = self.ranges.partition_point(|r| r.0 <= end);
        let merged = self.ranges.get(from..to).unwrap_or_default();
        let start = merged.first().map_or(start, |r| r.0.min(start));
        let end = merged.last().map_or(end, |r| r.1.max(end));
        self.ranges.splice(from..to.max(from), [(start, end)]);
    }

    /// Removes the txgs `[start, end)`.
    pub fn remove(&mut self, start: u64, end: u64) {
        if start >= end {
            return;
        }
        let from = self.ranges.partition_point(|r| r.1 <= start);
        let to = self.ranges.partition_point(|r| r.0 < end).max(from);
        let hit = self.ranges.get(from..to).unwrap_or_default();
        let left = hit.first().filter(|r| r.0 < start).map(|r| (r.0, start));
        let right = hit.last().filter(|r| r.1 > end).map(|r| (end, r.1));
        self.ranges.splice(from..to, left.into_iter().chain(right));
    }

    /// Applies (a piece of) the data of the space map.
    ///
    /// Memory is bounded by the piece: each entry adds at most one range.
    pub fn apply(&mut self, bytes: &[u8]) -> Result<()> {
        for item in items(bytes, Geometry::DTL) {
            if let Item::Run(run) = item? {
                match run.action {
                    Action::Alloc => self.add(run.offset, run.offset + run.size),
                    Action::Free => self.remove(run.offset, run.offset + run.size),
                }
            }
        }
        Ok(())
    }

    /// The data of the space map, written anew in one batch.
    pub fn encode(&self, txg: u64, pass: u16, two_words: bool) -> Result<Vec<u8>> {
        let encoder =
            Encoder { geometry: Geometry::DTL, block_size: SPACE_MAP_BLOCK_DTL, two_words };
        let mut out = Vec::new();
        let runs = self.ranges.iter().map(|r| (r.0, r.1 - r.0));
        encoder.batch(&mut out, 0, (txg, pass), Action::Alloc, None, runs)?;
        Ok(out)
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn behaves_like_a_set(steps in prop::collection::vec((any::<bool>(), 0u64..60, 0u64..60), 0..40)) {
            let (mut dtl, mut model) = (Dtl::default(), BTreeSet::new());
            for (add, a, b) in steps {
                if add {
                    dtl.add(a, b);
                    model.extend(a..b);
                } else {
                    dtl.remove(a, b);
                    model.retain(|t| !(a..b).contains(t));
                }
                prop_assert!(dtl.ranges().windows(2).all(|w| w[0].1 < w[1].0));
                for txg in 0..61 {
                    prop_assert_eq!(dtl.contains(txg), model.contains(&txg));
                }
                prop_assert_eq!(dtl.overlaps(a, b), a < b && model.range(a..b).next().is_some());
            }
            for two_words in [false, true] {
                let mut again = Dtl::default();
                again.apply(&dtl.encode(7, 1, two_words).unwrap()).unwrap();
                prop_assert_eq!(&again, &dtl);
            }
        }
    }
}
