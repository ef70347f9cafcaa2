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
    /// Why somebody waits, and in which round that was found.
    reason: Option<(u64, String)>,
    /// How many wait, or try again.
    waiting: usize,
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

    /// Those who wait try again. Until one of them has done what it waited for the reason stands: a device may take long to
    /// fail once more.
    pub fn resume(&self) {
        self.state.lock().round += 1;
        self.changed.notify_all();
    }

    /// Why somebody waits; `None`: nobody does.
    pub fn reason(&self) -> Option<String> {
        self.state.lock().reason.as_ref().map(|(_, reason)| reason.clone())
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
                let mut waits = None;
                if self.wait(&error, &mut waits) { self.insist_on(work, waits) } else { Err(error) }
            }
            other => other,
        }
    }

    fn is_for_me(&self, waits: Waits) -> bool {
        waits == Waits::All || self.state.lock().syncing == Some(thread::id())
    }

    /// Does `work` until it succeeds, fails for another reason than a device, or the pool is let go.
    pub fn insist<T>(&self, work: impl FnMut() -> Result<T>) -> Result<T> {
        self.insist_on(work, None)
    }

    /// The same, of one who waits already, or not.
    fn insist_on<'a, T>(
        &'a self,
        mut work: impl FnMut() -> Result<T>,
        mut waits: Option<Waiting<'a>>,
    ) -> Result<T> {
        loop {
            match work() {
                Err(error) if may_pass(&error) => {
                    if !self.wait(&error, &mut waits) {
                        return Err(error);
                    }
                }
                other => return other,
            }
        }
    }

    /// Waits until it is worth to try again; false: it is not.
    fn wait<'a>(&'a self, error: &StoreError, waits: &mut Option<Waiting<'a>>) -> bool {
        let mut state = self.state.lock();
        let round = state.round;
        if state.patient {
            if waits.is_none() {
                state.waiting += 1;
                *waits = Some(Waiting(self));
            }
            if state.reason.as_ref().is_none_or(|(since, _)| *since != round) {
                state.reason = Some((round, error.to_string()));
            }
        }
        while state.patient && state.round == round {
            state = self.changed.wait(state);
        }
        state.patient
    }
}

/// One who waits, or tries again.
struct Waiting<'a>(&'a Gate);

impl Drop for Waiting<'_> {
    fn drop(&mut self) {
        let mut state = self.0.state.lock();
        state.waiting -= 1;
        if state.waiting == 0 {
            state.reason = None;
        }
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

#[cfg(test)]
mod tests {
    use rt::sync::{Arc, mpsc};

    use super::*;

    /// Seen red: as long as the devices took to fail once more the pool was told of as well.
    #[test]
    fn who_tries_again_is_not_well_before_it_has_succeeded() {
        let gate = Arc::new(Gate::default());
        gate.set_patient(true);
        // What becomes of each try, which takes as long as it takes until that is said.
        let (says, becomes) = mpsc::bounded(1);
        let (tries, tried) = mpsc::bounded(1);
        let waits = {
            let gate = gate.clone();
            thread::spawn("waits", move || {
                gate.insist(|| {
                    tries.send(()).expect("the test hears it");
                    match becomes.recv().expect("the test says it") {
                        Some(reason) => {
                            let (bp, by_device) = (Box::default(), true);
                            Err(StoreError::Unreadable { bp, reason, by_device })
                        }
                        None => Ok(()),
                    }
                })
            })
        };
        for error in ["first", "second"] {
            tried.recv().expect("it tries");
            assert_eq!(gate.reason().is_some(), error == "second");
            says.send(Some(error.to_owned())).expect("it hears it");
            while !gate.reason().is_some_and(|reason| reason.contains(error)) {
                thread::yield_now();
            }
            gate.resume();
        }
        tried.recv().expect("it tries");
        assert!(gate.reason().is_some());
        says.send(None).expect("it hears it");
        assert!(waits.join().is_ok());
        assert_eq!(gate.reason(), None);
    }
}
