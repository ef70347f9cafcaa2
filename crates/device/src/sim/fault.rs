//! The ways in which a simulated disk fails.
//!
//! The one idea: a fault is a filter (which operations, where, after how many, how often) and
//! what happens to those that match. Faults are tried in the order in which they were put in, and
//! the first match decides.

use crate::Operation;
use rustix::io::Errno;
use std::ops::Range;
use std::time::Duration;

/// Which operations a fault concerns.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum On {
    /// Reads.
    Reads,
    /// Writes.
    Writes,
    /// Flushes.
    Flushes,
    /// All of them.
    All,
}

/// What happens.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Kind {
    /// The operation fails with this error and does nothing.
    Error(Errno),
    /// A write is acknowledged and never lands.
    Lose,
    /// Of a write only some sectors land, by a seed; it is acknowledged.
    Tear {
        /// Which sectors.
        seed: u64,
    },
    /// A write lands, or a read is answered, this many bytes away from where it should (wrapped
    /// at the end of the disk).
    Misdirect {
        /// How far, in bytes.
        by: i64,
    },
    /// One bit of what is written, or of what is read, is wrong, by a seed.
    FlipBit {
        /// Which bit.
        seed: u64,
    },
    /// A flush says it was done, and the cache stays as it is.
    Lie,
    /// A flush fails, and what lay in the cache is gone: the next one knows nothing of it. Not for disks whose
    /// history is recorded.
    Forget,
    /// The operation does not return until the fault is lifted; then it is done as usual.
    Hang,
    /// The operation takes this much longer.
    Slow(Duration),
    /// The disk is gone, for this and all operations until the fault is lifted: they fail with
    /// ENXIO.
    Vanish,
}

/// A fault of a simulated disk.
#[derive(Debug, Clone)]
pub struct Fault {
    /// What happens.
    pub kind: Kind,
    /// To which operations.
    pub on: On,
    /// Where: operations that touch this range of bytes (flushes touch everything).
    pub range: Range<u64>,
    /// How many matching operations go well before the first fails.
    pub skip: u64,
    /// How many fail then.
    pub times: u64,
}

impl Fault {
    /// A fault that happens to every operation of the kind, everywhere.
    pub fn new(kind: Kind, on: On) -> Fault {
        Fault { kind, on, range: 0..u64::MAX, skip: 0, times: u64::MAX }
    }

    /// The disk is gone.
    pub fn vanish() -> Fault {
        Fault::new(Kind::Vanish, On::All)
    }

    /// Only operations that touch `range`.
    pub fn within(self, range: Range<u64>) -> Fault {
        Fault { range, ..self }
    }

    /// Only after `skip` matching operations.
    pub fn after(self, skip: u64) -> Fault {
        Fault { skip, ..self }
    }

    /// Only `times` times.
    pub fn times(self, times: u64) -> Fault {
        Fault { times, ..self }
    }

    /// Has it struck as often as it was to?
    pub(super) fn is_spent(&self) -> bool {
        self.times == 0
    }

    /// Whether it strikes this operation; counts it.
    pub(super) fn strikes(&mut self, operation: Operation, offset: u64, size: u64) -> bool {
        let concerned = match operation {
            Operation::Read => matches!(self.on, On::Reads | On::All),
            Operation::Write => matches!(self.on, On::Writes | On::All),
            Operation::Flush => matches!(self.on, On::Flushes | On::All),
            Operation::Open | Operation::Probe => false,
        };
        let touches = operation == Operation::Flush
            || (offset < self.range.end && self.range.start < offset + size);
        if !(concerned && touches) || self.times == 0 {
            return false;
        }
        if self.skip > 0 {
            self.skip -= 1;
            return false;
        }
        if self.kind == Kind::Vanish {
            // From now on everything fails, wherever it is.
            *self = Fault::vanish();
        } else if self.times != u64::MAX {
            self.times -= 1;
        }
        true
    }
}

/// Names a fault that was put in, to lift it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct FaultId(pub(super) u64);
