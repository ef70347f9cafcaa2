//! Meters of a device: how many I/Os, how large, how long they waited and how long the disk took.
//!
//! Place: beside the queue in front of a disk, which counts here what has ended well.
//! The one idea: a number of I/Os of each size and of each time, in steps of powers of two, says nearly everything:
//! how many there were is their sum, and between any two readings lies what happened in between. So an I/O costs five
//! relaxed additions (of a scan six) and two looks at the clock, some 80 ns, and nobody takes a lock.
//!
//! An I/O that was put together from several counts once, with all its bytes. What failed is not counted.

use crate::error::Operation;
use crate::queue::Class;
use rt::sync::Counter;
use std::array::from_fn;
use std::time::Duration;

/// Classes of I/Os, as [`Class`] numbers them.
pub const CLASSES: usize = 5;
/// Steps of times: step `i` has those from 2^i ns on, below 2^(i+1) ns; the last one has all that are longer.
pub const TIMES: usize = 37;
/// Steps of sizes, likewise in bytes.
pub const SIZES: usize = 25;
/// An I/O that takes so long, from its submission to its end, is slow, as OpenZFS has it.
const SLOW: Duration = Duration::from_secs(30);

/// How many I/Os took so long, by [`TIMES`].
pub type Times = [u64; TIMES];
/// How many I/Os were so large, by [`SIZES`].
pub type Sizes = [u64; SIZES];

/// The step of a number, of so many.
fn step(number: u64, steps: usize) -> usize {
    (number.checked_ilog2().unwrap_or(0) as usize).min(steps - 1)
}

fn step_of(time: Duration) -> usize {
    step(u64::try_from(time.as_nanos()).unwrap_or(u64::MAX), TIMES)
}

/// The counters of one device.
#[derive(Debug)]
pub(crate) struct Meter {
    classes: [OfClass; CLASSES],
    /// Reads, writes and flushes, by how long the disk took.
    disk: [[Counter; TIMES]; 3],
    /// Reads and writes of scans, by how long the disk took.
    scans: [[Counter; TIMES]; 2],
    /// Reads and writes, by how long they took from their submission on.
    total: [[Counter; TIMES]; 2],
    /// Bytes read, and written.
    bytes: [Counter; 2],
    slow: Counter,
}

#[derive(Debug)]
struct OfClass {
    alone: [Counter; SIZES],
    joined: [Counter; SIZES],
    queued: [Counter; TIMES],
}

/// An I/O that has ended well.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Done {
    pub(crate) class: Class,
    pub(crate) operation: Operation,
    pub(crate) bytes: u64,
    /// It was put together from several.
    pub(crate) joined: bool,
    /// How long it waited for its turn; `None`: it never waits.
    pub(crate) queued: Option<Duration>,
    /// How long the disk took.
    pub(crate) disk: Duration,
}

impl Meter {
    pub(crate) fn new() -> Meter {
        fn many<const N: usize>() -> [Counter; N] {
            from_fn(|_| Counter::default())
        }
        let of_class = |_| OfClass { alone: many(), joined: many(), queued: many() };
        Meter {
            classes: from_fn(of_class),
            disk: from_fn(|_| many()),
            scans: from_fn(|_| many()),
            total: from_fn(|_| many()),
            bytes: Default::default(),
            slow: Counter::default(),
        }
    }

    pub(crate) fn note(&self, done: Done) {
        let kind = match done.operation {
            Operation::Read => 0,
            Operation::Write => 1,
            Operation::Flush => 2,
            Operation::Open | Operation::Probe => return,
        };
        self.disk[kind][step_of(done.disk)].add(1);
        let total = done.disk + done.queued.unwrap_or_default();
        if total >= SLOW {
            self.slow.add(1);
        }
        // A flush is no I/O of so many bytes.
        let Some(of_total) = self.total.get(kind) else { return };
        of_total[step_of(total)].add(1);
        // By what it was, whatever it was for: a scan reads, and writes what it mends.
        self.bytes[kind].add(done.bytes);
        if done.class == Class::Scan {
            self.scans[kind][step_of(done.disk)].add(1);
        }
        let class = &self.classes[done.class as usize];
        let sizes = if done.joined { &class.joined } else { &class.alone };
        sizes[step(done.bytes, SIZES)].add(1);
        if let Some(queued) = done.queued {
            class.queued[step_of(queued)].add(1);
        }
    }

    /// What was counted so far.
    pub(crate) fn read(&self) -> Meters {
        let all = |counters: &[Counter; TIMES]| from_fn(|i| counters[i].get());
        let sizes = |counters: &[Counter; SIZES]| from_fn(|i| counters[i].get());
        let of_class = |i: usize| ClassMeters {
            alone: sizes(&self.classes[i].alone),
            joined: sizes(&self.classes[i].joined),
            queued: all(&self.classes[i].queued),
            waiting: 0,
            active: 0,
        };
        Meters {
            classes: from_fn(of_class),
            disk_reads: all(&self.disk[0]),
            disk_writes: all(&self.disk[1]),
            disk_flushes: all(&self.disk[2]),
            scan_reads: all(&self.scans[0]),
            scan_writes: all(&self.scans[1]),
            total_reads: all(&self.total[0]),
            total_writes: all(&self.total[1]),
            bytes_read: self.bytes[0].get(),
            bytes_written: self.bytes[1].get(),
            slow: self.slow.get(),
        }
    }
}

/// A reading of a device's meters, or of several, added up: I/Os that ended well since the device was opened.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Meters {
    /// By class, in the order of [`Class`].
    pub classes: [ClassMeters; CLASSES],
    /// Reads by how long the disk took.
    pub disk_reads: Times,
    /// Writes by how long the disk took.
    pub disk_writes: Times,
    /// Flushes by how long the disk took.
    pub disk_flushes: Times,
    /// Those of `disk_reads` that a scan asked.
    pub scan_reads: Times,
    /// Those of `disk_writes` that a scan asked: what it mends, and gives to disks that lack it.
    pub scan_writes: Times,
    /// Reads by how long they took from their submission on.
    pub total_reads: Times,
    /// Writes by how long they took from their submission on.
    pub total_writes: Times,
    /// Bytes of these reads.
    pub bytes_read: u64,
    /// Bytes of these writes.
    pub bytes_written: u64,
    /// I/Os and flushes that took 30 s or more from their submission on.
    pub slow: u64,
}

impl Default for Meters {
    fn default() -> Meters {
        Meters {
            classes: Default::default(),
            disk_reads: [0; TIMES],
            disk_writes: [0; TIMES],
            disk_flushes: [0; TIMES],
            scan_reads: [0; TIMES],
            scan_writes: [0; TIMES],
            total_reads: [0; TIMES],
            total_writes: [0; TIMES],
            bytes_read: 0,
            bytes_written: 0,
            slow: 0,
        }
    }
}

/// What [`Meters`] say of one class.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ClassMeters {
    /// I/Os by their size, of those that were one from the beginning.
    pub alone: Sizes,
    /// I/Os by their size, of those that were put together.
    pub joined: Sizes,
    /// I/Os by how long they waited for their turn. Devices that nobody waits for (image files) have none.
    pub queued: Times,
    /// I/Os that wait for their turn now.
    pub waiting: u64,
    /// I/Os at the disk now.
    pub active: u64,
}

impl Default for ClassMeters {
    fn default() -> ClassMeters {
        let (alone, joined, queued) = ([0; SIZES], [0; SIZES], [0; TIMES]);
        ClassMeters { alone, joined, queued, waiting: 0, active: 0 }
    }
}

impl ClassMeters {
    /// I/Os.
    #[must_use]
    pub fn count(&self) -> u64 {
        self.alone.iter().chain(&self.joined).fold(0, |sum, n| sum.wrapping_add(*n))
    }

    fn each(&mut self, other: &ClassMeters, change: impl Fn(&mut u64, u64)) {
        each(&mut self.alone, &other.alone, &change);
        each(&mut self.joined, &other.joined, &change);
        each(&mut self.queued, &other.queued, &change);
    }
}

fn each<const N: usize>(list: &mut [u64; N], other: &[u64; N], change: impl Fn(&mut u64, u64)) {
    list.iter_mut().zip(other).for_each(|(number, other)| change(number, *other));
}

impl Meters {
    /// What is said of a class.
    #[must_use]
    pub fn class(&self, class: Class) -> &ClassMeters {
        &self.classes[class as usize]
    }

    /// Reads of all classes and their bytes.
    #[must_use]
    pub fn reads(&self) -> (u64, u64) {
        (self.total_reads.iter().sum(), self.bytes_read)
    }

    /// Writes of all classes and their bytes.
    #[must_use]
    pub fn writes(&self) -> (u64, u64) {
        (self.total_writes.iter().sum(), self.bytes_written)
    }

    /// Adds what another device did, and is doing.
    pub fn add(&mut self, other: &Meters) {
        self.each(other, |number, other| *number = number.wrapping_add(other));
        for (class, other) in self.classes.iter_mut().zip(&other.classes) {
            class.waiting += other.waiting;
            class.active += other.active;
        }
    }

    /// What happened since an earlier reading, with what is waiting now.
    #[must_use]
    pub fn since(&self, earlier: &Meters) -> Meters {
        let mut since = self.clone();
        since.each(earlier, |number, earlier| *number = number.saturating_sub(earlier));
        since
    }

    fn each(&mut self, other: &Meters, change: impl Fn(&mut u64, u64)) {
        for (class, other) in self.classes.iter_mut().zip(&other.classes) {
            class.each(other, &change);
        }
        each(&mut self.disk_reads, &other.disk_reads, &change);
        each(&mut self.disk_writes, &other.disk_writes, &change);
        each(&mut self.disk_flushes, &other.disk_flushes, &change);
        each(&mut self.scan_reads, &other.scan_reads, &change);
        each(&mut self.scan_writes, &other.scan_writes, &change);
        each(&mut self.total_reads, &other.total_reads, &change);
        each(&mut self.total_writes, &other.total_writes, &change);
        change(&mut self.bytes_read, other.bytes_read);
        change(&mut self.bytes_written, other.bytes_written);
        change(&mut self.slow, other.slow);
    }
}

/// The mean of such times, as well as it is known: each counts as the middle of its step. `None` of none.
#[must_use]
pub fn mean(times: &Times) -> Option<Duration> {
    let count: u128 = times.iter().map(|n| u128::from(*n)).sum();
    let halves = times.iter().enumerate().map(|(i, n)| u128::from(*n) * (3 << i));
    let mean = (halves.sum::<u128>() / 2).checked_div(count)?;
    Some(Duration::from_nanos(u64::try_from(mean).unwrap_or(u64::MAX)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn steps_are_powers_of_two() {
        for (number, expected) in [(0, 0), (1, 0), (2, 1), (3, 1), (4, 2), (1023, 9), (1024, 10)] {
            assert_eq!(step(number, TIMES), expected, "{number}");
        }
        assert_eq!((step(u64::MAX, TIMES), step(u64::MAX, SIZES)), (36, 24));
        assert_eq!(step_of(Duration::MAX), 36);
    }

    #[test]
    fn what_ended_is_counted_and_readings_are_subtracted() {
        let meter = Meter::new();
        let done = |class, operation, bytes, joined| Done {
            class,
            operation,
            bytes,
            joined,
            queued: Some(Duration::from_micros(3)),
            disk: Duration::from_millis(5),
        };
        meter.note(done(Class::SyncRead, Operation::Read, 4096, false));
        let before = meter.read();
        meter.note(done(Class::Write, Operation::Write, 1 << 20, true));
        meter.note(done(Class::SyncWrite, Operation::Write, 512, false));
        meter.note(done(Class::SyncWrite, Operation::Flush, 0, false));
        let long = Done { disk: SLOW, ..done(Class::Scan, Operation::Read, 1 << 40, false) };
        meter.note(long);
        let all = meter.read();
        assert_eq!((all.reads(), all.writes()), ((2, 4096 + (1 << 40)), (2, 512 + (1 << 20))));
        let since = all.since(&before);
        assert_eq!((since.reads(), since.writes()), ((1, 1 << 40), (2, 512 + (1 << 20))));
        assert_eq!((since.class(Class::Write).joined[20], since.slow), (1, 1));
        assert_eq!(since.class(Class::Write).queued[11], 1);
        assert_eq!(
            (since.disk_writes[22], since.disk_flushes[22], since.total_writes[22]),
            (2, 1, 2)
        );
        assert_eq!((since.disk_reads.iter().sum::<u64>(), since.disk_reads[34]), (1, 1));
        let mut twice = before.clone();
        twice.add(&before);
        assert_eq!((twice.reads(), twice.writes()), ((2, 8192), (0, 0)));
    }

    /// A scan writes, too: what it mends, and what it gives to a disk that lacks it.
    #[test]
    fn what_was_read_and_written_goes_by_what_was_done() {
        let meter = Meter::new();
        for (operation, bytes) in [(Operation::Read, 1 << 20), (Operation::Write, 8192)] {
            let (queued, disk) = (None, Duration::from_millis(5));
            meter.note(Done { class: Class::Scan, operation, bytes, joined: false, queued, disk });
        }
        let all = meter.read();
        assert_eq!((all.reads(), all.writes()), ((1, 1 << 20), (1, 8192)));
        assert_eq!(all.class(Class::Scan).count(), 2);
        assert_eq!((all.scan_reads, all.scan_writes), (all.disk_reads, all.disk_writes));
    }

    #[test]
    fn means_come_from_the_middle_of_steps() {
        let mut times = [0; TIMES];
        assert_eq!(mean(&times), None);
        times[10] = 3;
        assert_eq!(mean(&times), Some(Duration::from_nanos(1536)));
        times[36] = u64::MAX;
        assert!(mean(&times).is_some_and(|mean| mean > Duration::from_secs(60)));
    }
}
