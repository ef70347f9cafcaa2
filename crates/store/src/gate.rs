//! Where the sync waits when devices fail beyond redundancy: the pool is suspended.
//!
//! The one idea: a write that the devices did not take, and a read that the sync needs, are repeated, not
//! given up: whoever asked waits here, with everything it holds, until somebody says that the devices are
//! back, or that the pool is let go. So a suspended pool goes on exactly where it stopped, and as long as it
//! stands no uberblock is written.

use rt::sync::{Condvar, Mutex};
use rt::thread;
use vdev::VdevError;

use crate::error::{Result, StoreError};

/// Waits for devices, if it was told to.
#[derive(Default)]
pub struct Gate {
    state: Mutex<State>,
    changed: Condvar,
}

#[derive(Default)]
struct State {
    /// Without it nobody waits: what fails is an error.
    patient: bool,
    /// Why somebody waits.
    reason: Option<String>,
    /// Goes up each time that those who wait shall try again.
    round: u64,
    /// The thread that syncs.
    syncing: Option<thread::Id>,
}

/// Who waits for what a store reads.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Waits {
    /// Whoever asks.
    All,
    /// The sync, which cannot do without; others get an error.
    Sync,
}

impl Gate {
    /// From here on what fails waits (`true`), or is an error; then whoever waits gets one, too.
    pub fn set_patient(&self, patient: bool) {
        let mut state = self.state.lock();
        state.patient = patient;
        if !patient {
            state.reason = None;
        }
        self.changed.notify_all();
    }

    /// Those who wait try again.
    pub fn resume(&self) {
        let mut state = self.state.lock();
        state.round += 1;
        state.reason = None;
        self.changed.notify_all();
    }

    /// Why somebody waits; `None`: nobody does.
    pub fn reason(&self) -> Option<String> {
        self.state.lock().reason.clone()
    }

    /// What this thread does in `work` is the sync of a txg.
    pub fn syncing<T>(&self, work: impl FnOnce() -> T) -> T {
        self.state.lock().syncing = Some(thread::id());
        let done = work();
        self.state.lock().syncing = None;
        done
    }

    /// As [`Gate::insist`], for those who wait.
    pub(crate) fn insist_if<T>(
        &self,
        waits: Waits,
        mut work: impl FnMut() -> Result<T>,
    ) -> Result<T> {
        match work() {
            Err(error) if may_pass(&error) && self.is_for_me(waits) => {
                if self.wait(&error) {
                    self.insist(work)
                } else {
                    Err(error)
                }
            }
            other => other,
        }
    }

    fn is_for_me(&self, waits: Waits) -> bool {
        waits == Waits::All || self.state.lock().syncing == Some(thread::id())
    }

    /// Does `work` until it succeeds, fails for another reason than a device, or the pool is let go.
    pub fn insist<T>(&self, mut work: impl FnMut() -> Result<T>) -> Result<T> {
        loop {
            match work() {
                Err(error) if may_pass(&error) => {
                    if !self.wait(&error) {
                        return Err(error);
                    }
                }
                other => return other,
            }
        }
    }

    /// Waits until it is worth to try again; false: it is not.
    fn wait(&self, error: &StoreError) -> bool {
        let mut state = self.state.lock();
        let round = state.round;
        if state.patient {
            state.reason.get_or_insert_with(|| error.to_string());
        }
        while state.patient && state.round == round {
            state = self.changed.wait(state);
        }
        state.patient
    }
}

/// Is it an error of devices that may be back later? A flush that failed is none: what was written before may
/// be gone, and flushing again does not bring it back.
pub fn may_pass(error: &StoreError) -> bool {
    use VdevError::{LabelsFailed, Lost, WriteFailed};
    match error {
        StoreError::Vdev(WriteFailed { .. } | LabelsFailed { .. }) => true,
        StoreError::Vdev(Lost { unreadable, .. }) => *unreadable > 0,
        StoreError::Unreadable { by_device, .. } => *by_device,
        _ => false,
    }
}
