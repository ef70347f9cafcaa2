//! What happened in a run, as one number.
//!
//! The one idea: every scheduling decision, and every word that the run notes (device writes), is
//! folded into a hash, so two runs can be compared without keeping either.

use crate::Rng;
use std::cell::RefCell;
use std::time::Duration;

/// The history of one run.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Trace {
    /// A hash over the scheduling decisions and the words noted, in order.
    pub hash: u64,
    /// Scheduling decisions.
    pub steps: u64,
    /// Virtual time that went by.
    pub elapsed: Duration,
}

struct State {
    hash: u64,
    steps: u64,
    rng: Rng,
}

thread_local! {
    // All tasks of a run live on one system thread, so this is the run's.
    static STATE: RefCell<State> = RefCell::new(State { hash: 0, steps: 0, rng: Rng::new(0) });
}

pub(super) fn begin(seed: u64) {
    // A stream of its own: what the run draws does not shift the schedule.
    let rng = Rng::new(seed).fork(1);
    STATE.with_borrow_mut(|state| *state = State { hash: 0, steps: 0, rng });
}

pub(super) fn end() -> Trace {
    let elapsed = super::clock::since_start();
    STATE.with_borrow(|state| Trace { hash: state.hash, steps: state.steps, elapsed })
}

/// Puts a word into the run's history.
pub(crate) fn note(word: u64) {
    STATE.with_borrow_mut(|state| state.fold(word));
}

pub(super) fn step(task: usize) {
    STATE.with_borrow_mut(|state| {
        state.steps += 1;
        state.fold(task as u64);
    });
}

pub(super) fn draw() -> u64 {
    STATE.with_borrow_mut(|state| state.rng.next_u64())
}

impl State {
    fn fold(&mut self, word: u64) {
        self.hash = (self.hash ^ word).wrapping_mul(0x9e37_79b9_7f4a_7c15).rotate_left(23);
    }
}
