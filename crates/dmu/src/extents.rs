//! Sets of block numbers as sorted extents: what a txg has freed.

use std::collections::BTreeMap;

/// A set of block numbers.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Extents(BTreeMap<u64, u64>);

impl Extents {
    /// Adds `[first, first + count)`; may overlap what is there.
    pub(crate) fn add(&mut self, first: u64, count: u64) {
        let (mut start, mut end) = (first, first.saturating_add(count));
        if start == end {
            return;
        }
        if let Some((s, e)) = self.0.range(..=start).next_back().map(|(s, e)| (*s, *e))
            && e >= start
        {
            start = s;
            end = end.max(e);
        }
        while let Some((s, e)) = self.0.range(start..=end).next().map(|(s, e)| (*s, *e)) {
            self.0.remove(&s);
            end = end.max(e);
        }
        self.0.insert(start, end);
    }

    /// Takes out `[first, first + count)`, of which anything may be missing.
    pub(crate) fn remove(&mut self, first: u64, count: u64) {
        if count == 0 {
            return;
        }
        let end = first.saturating_add(count);
        let hit: Vec<(u64, u64)> = self
            .0
            .range(..end)
            .rev()
            .take_while(|(_, e)| **e > first)
            .map(|(s, e)| (*s, *e))
            .collect();
        for (s, e) in hit {
            self.0.remove(&s);
            if s < first {
                self.0.insert(s, first);
            }
            if e > end {
                self.0.insert(end, e);
            }
        }
    }

    /// Is `block` in the set?
    pub(crate) fn contains(&self, block: u64) -> bool {
        self.end_of(block).is_some()
    }

    /// Where the extent ends that `block` is in, if it is in the set.
    pub(crate) fn end_of(&self, block: u64) -> Option<u64> {
        self.0.range(..=block).next_back().map(|(_, end)| *end).filter(|end| *end > block)
    }

    /// The first member of `[from, to)`.
    pub(crate) fn first_in(&self, from: u64, to: u64) -> Option<u64> {
        if self.contains(from) && from < to {
            return Some(from);
        }
        self.0.range(from..to).next().map(|(s, _)| *s)
    }

    /// The extents in order, as `(first, end)`.
    pub(crate) fn iter(&self) -> impl Iterator<Item = (u64, u64)> + '_ {
        self.0.iter().map(|(s, e)| (*s, *e))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use rt::random::Rng;

    #[test]
    fn equals_a_set_under_random_changes() {
        let mut rng = Rng::new(3);
        let mut extents = Extents::default();
        let mut model = [false; 200];
        for _ in 0..20_000 {
            let first = rng.below(190);
            let count = rng.below(10);
            let add = rng.below(2) == 0;
            model[first as usize..(first + count) as usize].fill(add);
            if add {
                extents.add(first, count);
            } else {
                extents.remove(first, count);
            }
            let probe = rng.below(200);
            assert_eq!(extents.contains(probe), model[probe as usize]);
            let end = (probe as usize..200).find(|i| !model[*i]).unwrap_or(200) as u64;
            assert_eq!(extents.end_of(probe).unwrap_or(probe), end);
            let next = (probe as usize..200).find(|i| model[*i]).map(|i| i as u64);
            assert_eq!(extents.first_in(probe, 200), next);
        }
        let merged = extents.iter().collect::<Vec<_>>();
        assert!(merged.windows(2).all(|w| w[0].1 < w[1].0));
    }
}
