//! Several I/Os that are waited for together.
//!
//! The one idea: an I/O is waiting, at the disk, ended or given up, and each step is taken once,
//! under the batch's lock. Given up before the disk had it, it is never done; given up after, its
//! end only counts down what is lost.

use super::{Losses, hung};
use crate::error::{Operation, Result};
use rt::sync::atomic::Ordering;
use rt::sync::{Arc, Condvar, Mutex};
use rt::time::{self, Instant};
use rt::{Grant, PooledBuf};
use std::time::Duration;

/// How an I/O ended.
#[derive(Debug)]
pub struct Outcome {
    /// Whether it went well.
    pub result: Result<()>,
    /// The buffer of a read, unless the I/O is lost.
    pub buf: Option<PooledBuf>,
}

enum Step {
    Waiting,
    AtDisk,
    Ended(Outcome),
    GivenUp,
    /// Nobody waits for it any more.
    Dropped,
}

struct Slot {
    step: Step,
    device: String,
    operation: Operation,
    offset: u64,
    size: u64,
    submitted: Instant,
    deadline: Option<Instant>,
    losses: Arc<Losses>,
}

#[derive(Default)]
struct Shared {
    slots: Mutex<Vec<Slot>>,
    ended: Condvar,
    /// The memory that the I/Os read into: given back with the last of them.
    memory: Mutex<Option<Grant>>,
}

/// Several I/Os, to any disks, that are waited for together.
///
/// Dropped without that, what still waits is never done, and what is at a disk ends for nobody.
#[derive(Default)]
pub struct Batch(Arc<Shared>);

/// An I/O's end of its batch.
pub(super) struct Ticket {
    shared: Arc<Shared>,
    place: usize,
    submitted: Instant,
}

impl Batch {
    /// An empty batch.
    pub fn new() -> Batch {
        Batch::default()
    }

    /// An empty batch, and the grant for the buffers of its I/Os, which lasts until the last of them has ended.
    pub fn with_memory(grant: Grant) -> Batch {
        let batch = Batch::new();
        *batch.0.memory.lock() = Some(grant);
        batch
    }

    /// Takes the grant over from the batch, for those who keep the buffers.
    pub fn take_memory(&self) -> Option<Grant> {
        self.0.memory.lock().take()
    }

    /// Has no I/O been submitted yet?
    pub fn is_empty(&self) -> bool {
        self.0.slots.lock().is_empty()
    }

    pub(super) fn add(
        &self,
        device: &str,
        operation: Operation,
        offset: u64,
        size: u64,
        limit: Option<Duration>,
        losses: &Arc<Losses>,
    ) -> Ticket {
        let submitted = time::now();
        let mut slots = self.0.slots.lock();
        slots.push(Slot {
            step: Step::Waiting,
            device: device.to_owned(),
            operation,
            offset,
            size,
            submitted,
            deadline: limit.map(|limit| submitted + limit),
            losses: losses.clone(),
        });
        Ticket { shared: self.0.clone(), place: slots.len() - 1, submitted }
    }

    /// Waits until every I/O of the batch has ended or passed its deadline; the outcomes, in the
    /// order of submission.
    pub fn wait(self) -> Vec<Outcome> {
        let mut slots = self.0.slots.lock();
        let mut forgetful: Vec<Arc<Losses>> = Vec::new();
        while let Some(next) = slots.iter().filter_map(Slot::waits_until).min() {
            let now = time::now();
            for slot in slots.iter_mut() {
                let is_in_queue = slot.give_up_after(now);
                if is_in_queue && !forgetful.iter().any(|other| Arc::ptr_eq(other, &slot.losses)) {
                    forgetful.push(slot.losses.clone());
                }
            }
            if next > now {
                let left = next.saturating_since(now);
                slots = self.0.ended.wait_timeout(slots, left).0;
            }
        }
        let outcomes = slots.iter_mut().map(Slot::outcome).collect();
        // A queue looks at slots while it is locked itself.
        drop(slots);
        forgetful.iter().for_each(|losses| losses.forget());
        outcomes
    }

    /// Waits for a batch of one.
    pub(super) fn wait_one(self) -> Result<Option<PooledBuf>> {
        let outcome = self.wait().pop().expect("one I/O was submitted");
        outcome.result.map(|()| outcome.buf)
    }
}

impl Drop for Batch {
    fn drop(&mut self) {
        for slot in self.0.slots.lock().iter_mut() {
            match slot.step {
                Step::Waiting | Step::Ended(_) => slot.step = Step::Dropped,
                Step::AtDisk | Step::GivenUp | Step::Dropped => {}
            }
        }
    }
}

impl Slot {
    /// When to give it up, as long as it has not ended.
    fn waits_until(&self) -> Option<Instant> {
        let pending = matches!(self.step, Step::Waiting | Step::AtDisk);
        // Without a deadline it was done when it was submitted.
        pending.then(|| self.deadline.unwrap_or(self.submitted))
    }

    /// Gives it up if its deadline has passed; did it still wait in the queue?
    fn give_up_after(&mut self, now: Instant) -> bool {
        if self.waits_until().is_none_or(|deadline| deadline > now) {
            return false;
        }
        let is_in_queue = matches!(self.step, Step::Waiting);
        if matches!(self.step, Step::AtDisk) {
            self.losses.running.fetch_add(1, Ordering::AcqRel);
            if self.operation == Operation::Write {
                self.losses.writes.fetch_add(1, Ordering::AcqRel);
            }
        }
        self.losses.given_up.fetch_add(1, Ordering::Relaxed);
        self.step = Step::GivenUp;
        is_in_queue
    }

    fn hung(&self) -> Outcome {
        let waited = self.submitted.elapsed();
        let error = hung(&self.device, self.operation, self.offset, self.size, waited);
        Outcome { result: Err(error), buf: None }
    }

    fn outcome(&mut self) -> Outcome {
        match &mut self.step {
            Step::Ended(outcome) => {
                let nothing = Outcome { result: Ok(()), buf: None };
                std::mem::replace(outcome, nothing)
            }
            _ => self.hung(),
        }
    }
}

impl Ticket {
    /// Where the outcome will be in the batch.
    pub(super) fn place(&self) -> usize {
        self.place
    }

    /// When it was submitted.
    pub(super) fn submitted(&self) -> Instant {
        self.submitted
    }

    /// Does it still wait, and somebody for it?
    pub(super) fn is_wanted(&self) -> bool {
        matches!(self.shared.slots.lock()[self.place].step, Step::Waiting)
    }

    /// The disk is about to be asked; false when nobody waits any more.
    pub(super) fn start(&self) -> bool {
        let mut slots = self.shared.slots.lock();
        let slot = &mut slots[self.place];
        let wanted = matches!(slot.step, Step::Waiting);
        if wanted {
            slot.step = Step::AtDisk;
        }
        wanted
    }

    /// The disk has answered.
    pub(super) fn end(&self, result: Result<()>, buf: Option<PooledBuf>) {
        let mut slots = self.shared.slots.lock();
        let slot = &mut slots[self.place];
        if matches!(slot.step, Step::GivenUp) {
            if slot.operation == Operation::Write {
                slot.losses.writes.fetch_sub(1, Ordering::AcqRel);
            }
            slot.losses.running.fetch_sub(1, Ordering::AcqRel);
            return;
        }
        slot.step = Step::Ended(Outcome { result, buf });
        drop(slots);
        self.shared.ended.notify_one();
    }

    /// The disk will not be asked, because it hangs.
    pub(super) fn refuse(&self) {
        let mut slots = self.shared.slots.lock();
        let slot = &mut slots[self.place];
        if matches!(slot.step, Step::Waiting) {
            slot.step = Step::Ended(slot.hung());
            drop(slots);
            self.shared.ended.notify_one();
        }
    }
}
