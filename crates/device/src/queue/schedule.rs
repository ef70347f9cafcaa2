//! Which I/O goes to the disk next.
//!
//! The one idea: classes in the order of who waits for them; within a class in the order of
//! offsets, round and round, as the head moves. Every now and then a less urgent class is served
//! first, each in its turn, so that none starves, and work in the background never takes every thread.

use std::collections::BTreeMap;

/// What an I/O is for, most urgent first.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Class {
    /// Somebody waits for these bytes.
    SyncRead,
    /// An fsync or an uberblock waits for this write.
    SyncWrite,
    /// A txg is written: its sync waits for all of it, nobody for this write alone.
    Write,
    /// Read ahead.
    Read,
    /// Scrub, resilver, verify.
    Scan,
}

const CLASSES: usize = crate::meter::CLASSES;

/// One turn in this many begins with a less urgent class.
const FAIR: u64 = 16;

/// The I/Os that wait for one disk.
pub(super) struct Schedule<T> {
    classes: [BTreeMap<(u64, u64), T>; CLASSES],
    active: [usize; CLASSES],
    /// I/Os of the last two classes that may be at the disk at once.
    background_max: usize,
    /// Where the last I/O of each class was, and its number.
    heads: [(u64, u64); CLASSES],
    number: u64,
    turn: u64,
    /// The class that was served out of turn last.
    fair: Class,
}

impl<T> Schedule<T> {
    pub(super) fn new(threads: usize) -> Schedule<T> {
        Schedule {
            classes: Default::default(),
            active: [0; CLASSES],
            background_max: (threads / 2).max(1),
            heads: [(0, 0); CLASSES],
            number: 0,
            turn: 0,
            fair: Class::SyncRead,
        }
    }

    pub(super) fn waiting(&self) -> usize {
        self.classes.iter().map(BTreeMap::len).sum()
    }

    pub(super) fn active(&self) -> usize {
        self.active.iter().sum()
    }

    /// I/Os of a class that wait, and that are at the disk.
    pub(super) fn of_class(&self, class: usize) -> (usize, usize) {
        (self.classes[class].len(), self.active[class])
    }

    pub(super) fn push(&mut self, class: Class, offset: u64, io: T) {
        self.number += 1;
        self.classes[class as usize].insert((offset, self.number), io);
    }

    /// The next I/O, counted as active until [`Schedule::done`].
    pub(super) fn pop(&mut self) -> Option<(Class, T)> {
        const ORDER: [Class; CLASSES] =
            [Class::SyncRead, Class::SyncWrite, Class::Write, Class::Read, Class::Scan];
        let background = self.active[Class::Read as usize..].iter().sum::<usize>();
        let may = |class: &Class| {
            let room = *class < Class::Read || background < self.background_max;
            room && !self.classes[*class as usize].is_empty()
        };
        let mut class = ORDER.into_iter().find(may)?;
        if (self.turn + 1).is_multiple_of(FAIR) {
            // From the one after that which had such a turn last: two that wait both get some.
            let last = self.fair as usize;
            let mut from = (1..=CLASSES).map(|step| ORDER[(last + CLASSES - step) % CLASSES]);
            class = from.find(|other| *other > class && may(other)).unwrap_or(class);
            self.fair = class;
        }
        self.turn += 1;
        let (waiting, head) = (&mut self.classes[class as usize], &mut self.heads[class as usize]);
        let next = waiting.range(*head..).next().or_else(|| waiting.iter().next());
        let key = *next.map(|(key, _)| key)?;
        // Behind this one, so that a stream of I/Os to one place cannot hold the head there.
        *head = (key.0.saturating_add(1), 0);
        self.active[class as usize] += 1;
        waiting.remove(&key).map(|io| (class, io))
    }

    /// Takes out the I/O of this class that begins at `offset`, if `may` says so. It goes with the last one, and
    /// is not counted.
    pub(super) fn pop_at(
        &mut self,
        class: Class,
        offset: u64,
        may: impl Fn(&T) -> bool,
    ) -> Option<T> {
        let waiting = &mut self.classes[class as usize];
        let (key, io) = waiting.range((offset, 0)..=(offset, u64::MAX)).next()?;
        let key = *key;
        if !may(io) {
            return None;
        }
        self.heads[class as usize] = (offset.saturating_add(1), 0);
        waiting.remove(&key)
    }

    /// Takes out all that wait and are not wanted any more.
    pub(super) fn take_out(&mut self, is_wanted: impl Fn(&T) -> bool) -> Vec<T> {
        let mut out = Vec::new();
        for waiting in &mut self.classes {
            out.extend(waiting.extract_if(.., |_, io| !is_wanted(io)).map(|(_, io)| io));
        }
        out
    }

    pub(super) fn done(&mut self, class: Class) {
        self.active[class as usize] -= 1;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn drain(schedule: &mut Schedule<u64>) -> Vec<u64> {
        std::iter::from_fn(|| {
            let (class, io) = schedule.pop()?;
            schedule.done(class);
            Some(io)
        })
        .collect()
    }

    #[test]
    fn urgent_first_then_by_offset() {
        let mut schedule = Schedule::new(4);
        for (class, offset) in [
            (Class::Scan, 1),
            (Class::SyncWrite, 30),
            (Class::SyncRead, 50),
            (Class::SyncRead, 40),
            (Class::SyncWrite, 20),
        ] {
            schedule.push(class, offset, offset);
        }
        assert_eq!(drain(&mut schedule), [40, 50, 20, 30, 1]);
        // The head stands behind 50: on from there, then round.
        for offset in [10, 60, 55, 10] {
            schedule.push(Class::SyncRead, offset, offset);
        }
        assert_eq!(drain(&mut schedule), [55, 60, 10, 10]);
    }

    #[test]
    fn nobody_starves() {
        let mut schedule = Schedule::new(4);
        schedule.push(Class::Scan, 7, 1_000);
        let mut turns = 0;
        loop {
            schedule.push(Class::SyncRead, 0, 0);
            let (class, io) = schedule.pop().expect("there is always one");
            schedule.done(class);
            turns += 1;
            if io == 1_000 {
                break;
            }
            assert!(turns <= FAIR);
        }
        // Nor does any of several that wait while more urgent ones keep coming.
        let mut seen = [0; CLASSES];
        for _ in 0..8 * FAIR {
            for class in [Class::SyncRead, Class::SyncWrite, Class::Write, Class::Read] {
                if schedule.of_class(class as usize).0 == 0 {
                    schedule.push(class, 9, 9);
                }
            }
            let (class, _) = schedule.pop().expect("there is always one");
            schedule.done(class);
            seen[class as usize] += 1;
        }
        assert!(seen[..4].iter().all(|count| *count >= 2), "{seen:?}");
        assert!(seen[0] >= 7 * FAIR, "{seen:?}");
        let _ = drain(&mut schedule);
        // Nor does a far offset, while near ones keep coming.
        schedule.push(Class::SyncRead, 1 << 40, 2_000);
        let found = (0..100).any(|_| {
            schedule.push(Class::SyncRead, 5, 0);
            let (class, io) = schedule.pop().expect("there is always one");
            schedule.done(class);
            io == 2_000
        });
        assert!(found);
    }

    #[test]
    fn the_background_leaves_a_thread_free() {
        let mut schedule = Schedule::new(4);
        for offset in 0..4 {
            schedule.push(Class::Scan, offset, offset);
        }
        assert!(schedule.pop().is_some() && schedule.pop().is_some());
        assert_eq!(schedule.pop(), None, "two of four threads are busy with it");
        schedule.push(Class::SyncRead, 9, 9);
        assert_eq!(schedule.pop(), Some((Class::SyncRead, 9)));
        schedule.done(Class::Scan);
        assert!(schedule.pop().is_some());
        assert_eq!((schedule.waiting(), schedule.active()), (1, 3));
        // With one thread it may have that one.
        let mut single = Schedule::new(1);
        single.push(Class::Scan, 0, 0);
        assert!(single.pop().is_some());
    }
}
