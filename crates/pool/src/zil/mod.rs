//! Intent logs of our own: what has to be stable before its txg is.
//!
//! The one idea: whoever changes files leaves a record of each change here, in memory; whoever must know that a change
//! is stable has the records that are left written into the log of the data set, one block after another, and waits
//! for one write and one flush instead of a txg. A synced txg makes its records and the blocks that hold them
//! superfluous. Where that does not do (a change that no record tells, a log that is full, a disk that fails) one
//! waits for the txg: that is always right.
//!
//! Whose log is idle costs nothing: nobody records. The first who needs it starts it, with a txg, since the header
//! that leads to its first block has to be in an uberblock. FORMAT: section 12.
//!
//! Lock order: `committing` is no lock but a flag, held over I/O; `state` is held for moments, within any lock of
//! `fs` and any txg, and nothing but the allocator is locked below it.

mod block;
mod chain;
mod commit;
mod queue;

use rt::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use rt::sync::{Condvar, Mutex};

use chain::Chain;
pub(crate) use chain::Dying;
pub use commit::Stable;
pub use queue::Change;
use queue::Queue;

use crate::dataset::Dataset;

/// What the property `sync` says.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SyncMode {
    /// What was asked for is stable.
    Standard,
    /// Every change is stable when it returns.
    Always,
    /// Nobody waits for anything.
    Disabled,
}

/// The log of an open head.
pub(crate) struct Log {
    /// Are changes recorded?
    recording: AtomicBool,
    sync: AtomicU64,
    /// The property `logbias` is `throughput`.
    throughput: AtomicBool,
    state: Mutex<State>,
    changed: Condvar,
}

#[derive(Default)]
struct State {
    queue: Queue,
    chain: Chain,
    /// Bytes of data on their way into the log, and neither in the queue nor in the chain: being copied, or put into
    /// blocks.
    coming: u64,
    /// How many wait for a txg, since what they need is not for the log.
    waiting: u64,
    /// Up to this open txg several made much stable at a time.
    crowded_until: u64,
    /// Somebody writes.
    committing: bool,
    /// Records up to this one, as they came into the queue, are stable in the log or were never there.
    done: u64,
    /// The next record's number in the log.
    seq: u64,
    /// Changes up to this txg are not all in the queue: only a txg makes them stable.
    incomplete_until: u64,
    /// The txg that was open when the log was used last.
    used_txg: u64,
    /// Bytes of records in the last commits.
    sizes: [usize; 4],
}

impl Log {
    pub(crate) fn new(sync: u64, logbias: u64) -> Log {
        let log = Log {
            recording: AtomicBool::new(false),
            sync: AtomicU64::new(0),
            throughput: AtomicBool::new(false),
            state: Mutex::default(),
            changed: Condvar::new(),
        };
        log.obey(sync, logbias);
        log
    }

    /// Takes over the properties `sync` and `logbias`, as stored.
    pub(crate) fn obey(&self, sync: u64, logbias: u64) {
        self.sync.store(sync, Ordering::Relaxed);
        self.throughput.store(logbias == 1, Ordering::Relaxed);
    }

    fn is_recording(&self) -> bool {
        self.recording.load(Ordering::SeqCst)
    }

    /// Is the header of the object set, if it is not empty, that of this log?
    pub(crate) fn owns_header(&self) -> bool {
        self.state.lock().chain.is_in_header()
    }

    /// Bytes of memory that its records take, about.
    pub(crate) fn memory_bytes(&self) -> u64 {
        if self.is_recording() { self.state.lock().queue.bytes() as u64 } else { 0 }
    }

    /// `txg` is on stable storage: its records are superfluous.
    pub(crate) fn synced(&self, txg: u64) {
        if self.is_recording() {
            let mut state = self.state.lock();
            state.queue.drop_until(txg);
            state.chain.synced();
        }
    }
}

impl Dataset {
    /// What its property `sync` says.
    pub fn sync_mode(&self) -> SyncMode {
        if self.replaying.lock().is_some() {
            // What is done again is in a log already.
            return SyncMode::Standard;
        }
        match self.log.sync.load(Ordering::Relaxed) {
            1 => SyncMode::Always,
            2 => SyncMode::Disabled,
            _ => SyncMode::Standard,
        }
    }
}
