//! Free object numbers.
//!
//! A cursor walks over the blocks of the meta dnode once, skips full ones by the fill of their
//! pointers and collects free slots; beyond the last block every number is free. A freed number
//! comes back when the txg of its free is on disk: with the next sync. So an intent log never makes an object
//! under a number that the last uberblock has for another one.

use std::collections::{BTreeMap, BTreeSet};

use format::dnode::{DNODE_SLOT, DNODES_PER_BLOCK};
use rt::sync::Arc;

use crate::error::Result;
use crate::object::Object;

/// Free object numbers of one object set.
#[derive(Debug, Default)]
pub(crate) struct Numbers {
    free: BTreeSet<u64>,
    /// Below which number there are no so many free ones in a row: whoever wants several does not look there again, for each
    /// of them, through all that lie alone.
    none_below: BTreeMap<u64, u64>,
    /// Numbers handed out beyond what the cursor has seen.
    taken: BTreeSet<u64>,
    /// Numbers that somebody still takes for what was freed: not handed out until they are handed back.
    /// With whether they are free on disk by now.
    withheld: BTreeMap<u64, bool>,
    /// Next block of dnodes to look at.
    cursor: u64,
    /// Numbers that were freed by a sync: its txg, the first and their count.
    freed: Vec<(u64, u64, u64)>,
}

impl Numbers {
    pub(crate) fn new() -> Self {
        Self::default()
    }

    /// A run of `count` free numbers in one block of dnodes.
    pub(crate) fn take(&mut self, meta: &Arc<Object>, count: u64) -> Result<u64> {
        loop {
            if let Some(first) = self.run(count) {
                for number in first..first + count {
                    self.free.remove(&number);
                }
                return Ok(first);
            }
            self.look(meta)?;
        }
    }

    /// Marks numbers as used before the cursor came by.
    pub(crate) fn reserve(&mut self, first: u64, count: u64) {
        for number in first..first + count {
            if !self.free.remove(&number) && number / DNODES_PER_BLOCK >= self.cursor {
                self.taken.insert(number);
            }
        }
    }

    /// The sync of `txg` has freed numbers.
    pub(crate) fn freed(&mut self, txg: u64, first: u64, count: u64) {
        self.freed.push((txg, first, count));
    }

    /// The sync of `txg` begins: what older ones have freed is free on disk, too.
    pub(crate) fn sync_begins(&mut self, txg: u64) {
        let freed = std::mem::take(&mut self.freed);
        let (old, new): (Vec<_>, Vec<_>) = freed.into_iter().partition(|(at, ..)| *at < txg);
        self.freed = new;
        old.into_iter().for_each(|(_, first, count)| self.put_back(first, count));
    }

    fn put_back(&mut self, first: u64, count: u64) {
        for number in first..first + count {
            self.taken.remove(&number);
            if number / DNODES_PER_BLOCK < self.cursor {
                self.is_free(number);
            }
        }
    }

    /// Does not hand `number` out until it is handed back; it must be taken now.
    pub(crate) fn withhold(&mut self, number: u64) {
        self.withheld.entry(number).or_insert(false);
    }

    /// What was withheld can be handed out when it is free.
    pub(crate) fn hand_back(&mut self, number: u64) {
        if self.withheld.remove(&number) == Some(true) {
            self.insert(number);
        }
    }

    fn is_free(&mut self, number: u64) {
        match self.withheld.get_mut(&number) {
            Some(on_disk) => *on_disk = true,
            None => self.insert(number),
        }
    }

    fn run(&mut self, count: u64) -> Option<u64> {
        if count == 1 {
            return self.free.first().copied();
        }
        let below = self.none_below.get(&count).copied().unwrap_or(0);
        let found = self.free.range(below..).copied().find(|first| self.has_run(*first, count));
        let all = self.free.last().map_or(0, |last| last + 1);
        self.none_below.insert(count, found.unwrap_or(all));
        found
    }

    /// Are so many free from there on, in one block?
    fn has_run(&self, first: u64, count: u64) -> bool {
        first % DNODES_PER_BLOCK + count <= DNODES_PER_BLOCK
            && (first..first + count).all(|number| self.free.contains(&number))
    }

    fn insert(&mut self, number: u64) {
        self.free.insert(number);
        for (count, below) in std::mem::take(&mut self.none_below) {
            let begin = number - (number % DNODES_PER_BLOCK).min(count - 1);
            let now = (begin..=number).find(|first| self.has_run(*first, count));
            self.none_below.insert(count, below.min(now.unwrap_or(below)));
        }
    }

    /// Collects the free slots of the next block that has some.
    fn look(&mut self, meta: &Arc<Object>) -> Result<()> {
        let blocks = meta.max_block()? + 1;
        let block = self.cursor;
        self.cursor += 1;
        let first = block * DNODES_PER_BLOCK;
        let used = match block < blocks {
            true => meta.with_block(block, used_slots)?,
            false => [false; DNODES_PER_BLOCK as usize],
        };
        for (slot, used) in used.iter().enumerate() {
            let number = first + slot as u64;
            if !used && number != 0 && !self.taken.remove(&number) {
                self.is_free(number);
            }
        }
        Ok(())
    }
}

/// Which slots of a block of dnodes belong to objects.
pub(crate) fn used_slots(bytes: &[u8]) -> [bool; DNODES_PER_BLOCK as usize] {
    let mut used = [false; DNODES_PER_BLOCK as usize];
    let mut slot = 0;
    while slot < used.len() {
        let head = bytes.get(slot * DNODE_SLOT..).unwrap_or_default();
        let slots = match head.first() {
            Some(0) | None => 0,
            Some(_) => 1 + usize::from(head.get(12).copied().unwrap_or(0)),
        };
        used.iter_mut().skip(slot).take(slots).for_each(|u| *u = true);
        slot += slots.max(1);
    }
    used
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_freed_number_is_nobody_elses_until_its_txg_is_on_disk() {
        let mut numbers = Numbers { cursor: 1, ..Numbers::new() };
        numbers.free = BTreeSet::from([5, 6]);
        numbers.reserve(5, 1);
        numbers.freed(7, 5, 1);
        assert_eq!(numbers.run(1), Some(6));
        // The same sync, once more.
        numbers.sync_begins(7);
        assert_eq!(numbers.run(1), Some(6));
        numbers.sync_begins(8);
        assert_eq!(numbers.run(1), Some(5));
    }

    #[test]
    fn several_in_a_row_are_found_wherever_they_come_free() {
        let mut rng = rt::Rng::new(7);
        let mut numbers = Numbers::new();
        let mut model = BTreeSet::new();
        for _ in 0..3_000 {
            let number = rng.index(4 * DNODES_PER_BLOCK as usize) as u64;
            match model.insert(number) {
                true => numbers.is_free(number),
                false => {
                    model.remove(&number);
                    numbers.reserve(number, 1);
                }
            }
            for count in [1, 2, 4, 32] {
                let fits = |first: &u64| {
                    first % DNODES_PER_BLOCK + count <= DNODES_PER_BLOCK
                        && (*first..first + count).all(|number| model.contains(&number))
                };
                assert_eq!(numbers.run(count), model.iter().copied().find(fits), "{count}");
            }
        }
    }

    #[test]
    fn who_wants_several_does_not_look_again_at_those_that_lie_alone() {
        let mut numbers = Numbers::new();
        (0..200_000).for_each(|n| numbers.is_free(2 * n));
        for n in 0..100_000 {
            assert_eq!(numbers.run(2), None, "{n}");
            numbers.reserve(2 * n, 1);
            numbers.is_free(2 * n);
        }
        numbers.is_free(1001);
        assert_eq!(numbers.run(2), Some(1000));
    }
}
