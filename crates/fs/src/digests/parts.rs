//! What is known of a file's digests while it is written: those of its parts, wherever they lie.
//!
//! The one idea: neighbours are put together within a cell, never across its border. So a file that is written from front
//! to back needs one entry per cell, and one byte written anew loses no more than its cell. When there are too many
//! entries, cells grow; what does not fit even then is not known, and has to be read again.

use std::collections::BTreeMap;

use codec::digest::Digest;

/// Bytes of a cell at first. What is written is cut at multiples of it.
pub(crate) const CELL: u64 = 1 << 20;
/// Entries of one file, at most: some 50 KiB.
pub(crate) const PARTS_MAX: usize = 1024;

/// The known parts of a file; they do not overlap.
#[derive(Clone, Debug)]
pub(crate) struct Parts {
    /// By where they begin.
    known: BTreeMap<u64, Digest>,
    cell: u64,
}

impl Default for Parts {
    fn default() -> Parts {
        Parts { known: BTreeMap::new(), cell: CELL }
    }
}

impl Parts {
    /// Entries.
    pub(crate) fn count(&self) -> usize {
        self.known.len()
    }

    /// Forgets all that reaches into `[from, to)`.
    pub(crate) fn forget(&mut self, from: u64, to: u64) {
        if from >= to {
            return;
        }
        // Parts do not overlap: of those that begin before, only the last can reach into it.
        let before = self.known.range(..from).next_back();
        if let Some((at, part)) = before
            && at + part.length > from
        {
            let at = *at;
            self.known.remove(&at);
        }
        while let Some((at, _)) = self.known.range(from..to).next() {
            let at = *at;
            self.known.remove(&at);
        }
    }

    /// The bytes at `at` are those of `part`. `room`: for how many entries there is any.
    pub(crate) fn put(&mut self, at: u64, part: Digest, room: usize) {
        let end = at.saturating_add(part.length);
        self.forget(at, end);
        if part.length == 0 {
            return;
        }
        self.known.insert(at, part);
        self.join(at);
        let room = room.min(PARTS_MAX);
        if self.known.len() > room {
            self.grow(room);
            if self.known.len() > room {
                self.forget(at, end);
            }
        }
    }

    /// Puts the part at `at` together with its neighbours, if they are in one cell.
    fn join(&mut self, at: u64) {
        let Some(mut part) = self.known.get(&at).copied() else { return };
        let mut start = at;
        let next = at + part.length;
        if next / self.cell == at / self.cell
            && let Some(more) = self.known.remove(&next)
        {
            part = part.then(more);
        }
        if let Some((before, first)) = self.known.range(..at).next_back()
            && before + first.length == at
            && before / self.cell == at / self.cell
        {
            start = *before;
            part = first.then(part);
            self.known.remove(&at);
        }
        self.known.insert(start, part);
    }

    /// Larger cells, until all fits or nothing more can be put together.
    fn grow(&mut self, room: usize) {
        while self.known.len() > room.max(1) / 2 && self.cell < 1 << 62 {
            self.cell *= 2;
            let mut out: BTreeMap<u64, Digest> = BTreeMap::new();
            for (at, part) in std::mem::take(&mut self.known) {
                let last = out.last_entry().filter(|last| {
                    let (start, length) = (*last.key(), last.get().length);
                    start + length == at && start / self.cell == at / self.cell
                });
                match last {
                    Some(mut last) => *last.get_mut() = last.get().then(part),
                    None => drop(out.insert(at, part)),
                }
            }
            self.known = out;
        }
    }

    /// What is not known of the first `size` bytes, as (offset, length); the first `most` of it.
    pub(crate) fn gaps(&self, size: u64, most: usize) -> Vec<(u64, u64)> {
        let (mut out, mut at) = (Vec::new(), 0);
        for (start, part) in self.known.range(..size) {
            if *start > at {
                out.push((at, start - at));
            }
            if out.len() >= most {
                return out;
            }
            at = start + part.length;
        }
        if at < size {
            out.push((at, size - at));
        }
        out
    }

    /// The digests of the first `size` bytes, if all of them are known.
    pub(crate) fn whole(&self, size: u64) -> Option<Digest> {
        let mut all = Digest::EMPTY;
        for (at, part) in self.known.range(..size) {
            if *at != all.length {
                return None;
            }
            all = all.then(*part);
        }
        (all.length == size).then_some(all)
    }
}

/// Cuts what is written at `at` into parts, at the borders of cells.
pub(crate) fn cut(at: u64, bytes: &[u8]) -> Vec<(u64, Digest)> {
    let (mut out, mut at, mut rest) = (Vec::new(), at, bytes);
    while !rest.is_empty() {
        let most = (CELL - at % CELL).min(rest.len() as u64) as usize;
        let (now, later) = rest.split_at(most);
        out.push((at, Digest::of(now)));
        (at, rest) = (at + most as u64, later);
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const ALL: usize = usize::MAX;

    fn bytes(seed: u64, length: usize) -> Vec<u8> {
        (0..length as u64).map(|i| (i.wrapping_mul(seed | 1) >> 3) as u8).collect()
    }

    #[test]
    fn any_order_makes_the_whole() {
        let all = bytes(7, 5 << 20);
        for step in [70_001, 1 << 20, 333] {
            let mut parts = Parts::default();
            let mut pieces: Vec<_> = all.chunks(step).enumerate().collect();
            pieces.reverse();
            let count = pieces.len();
            pieces.swap(0, count / 2);
            for (number, piece) in pieces {
                for (at, part) in cut((number * step) as u64, piece) {
                    parts.put(at, part, ALL);
                }
            }
            assert_eq!(parts.count(), 5);
            assert_eq!(parts.whole(all.len() as u64), Some(Digest::of(&all)));
            assert_eq!(parts.gaps(all.len() as u64, ALL), []);
            assert_eq!(parts.whole(all.len() as u64 + 1), None);
            // One byte anew: its cell is not known.
            parts.forget(2_500_000, 2_500_001);
            assert_eq!(parts.gaps(all.len() as u64, ALL), [(2 << 20, 1 << 20)]);
            // Cut off in the middle of a cell.
            parts.forget(3_500_000, u64::MAX);
            assert_eq!(parts.gaps(3_500_000, ALL), [(2 << 20, 3_500_000 - (2 << 20))]);
        }
    }

    #[test]
    fn memory_has_a_bound() {
        let one = Digest::of(&[5; 100]);
        // Far apart: what does not fit is not known.
        let mut parts = Parts::default();
        for i in 0..10_000u64 {
            parts.put(i.wrapping_mul(0x9e37_79b9) % 100_000 * 4096, one, ALL);
            assert!(parts.count() <= PARTS_MAX);
        }
        assert!(parts.count() > 100);
        // Side by side: cells grow, and all is known.
        let (mut parts, mut all) = (Parts::default(), Digest::EMPTY);
        let mib = Digest::zeros(CELL);
        for i in 0..10_000 {
            parts.put(i * CELL, mib, ALL);
            all = all.then(mib);
            assert!(parts.count() <= PARTS_MAX);
        }
        assert_eq!(parts.whole(10_000 * CELL), Some(all));
        // No room at all.
        parts.put(0, one, 0);
        assert_eq!(parts.whole(CELL), None);
    }

    #[derive(Clone, Debug)]
    enum Step {
        Write(u16, u8, u16),
        Forget(u16, u16),
        Cut(u16),
    }

    fn step() -> impl Strategy<Value = Step> {
        prop_oneof![
            6 => (any::<u16>(), any::<u8>(), 1..5000u16).prop_map(|(at, b, n)| Step::Write(at, b, n)),
            1 => (any::<u16>(), 1..5000u16).prop_map(|(at, n)| Step::Forget(at, n)),
            1 => any::<u16>().prop_map(Step::Cut),
        ]
    }

    proptest! {
        /// What is said to be known is what a plain array says, and nothing that was forgotten is known.
        #[test]
        fn is_as_an_array(steps in proptest::collection::vec(step(), 1..60), room in 1..40usize) {
            let mut parts = Parts { cell: 4096, ..Parts::default() };
            let (mut plain, mut known) = (vec![0u8; 80_000], vec![false; 80_000]);
            for step in steps {
                match step {
                    Step::Write(at, byte, length) => {
                        let (at, length) = (usize::from(at), usize::from(length));
                        plain[at..at + length].fill(byte);
                        known[at..at + length].fill(true);
                        parts.put(at as u64, Digest::of(&plain[at..at + length]), room);
                    }
                    Step::Forget(at, length) => {
                        let (at, length) = (usize::from(at), usize::from(length));
                        known[at..at + length].fill(false);
                        parts.forget(at as u64, (at + length) as u64);
                    }
                    Step::Cut(at) => {
                        known[usize::from(at)..].fill(false);
                        parts.forget(at.into(), u64::MAX);
                    }
                }
                prop_assert!(parts.count() <= room);
                let mut at = 0;
                for (start, part) in &parts.known {
                    let (start, length) = (*start as usize, part.length as usize);
                    prop_assert!(start >= at);
                    at = start + length;
                    prop_assert!(known[start..at].iter().all(|known| *known));
                    prop_assert_eq!(*part, Digest::of(&plain[start..at]));
                }
            }
            let gaps: u64 = parts.gaps(80_000, usize::MAX).iter().map(|(_, length)| length).sum();
            let there: u64 = parts.known.values().map(|part| part.length).sum();
            prop_assert_eq!(gaps + there, 80_000);
        }
    }
}
