//! Virtual time.
//!
//! The one idea: a sleeper is a task with a deadline that the scheduler leaves out until nobody
//! else can go on, or now and then at random (then the others were slow); time jumps to the
//! deadline of whoever is woken.

use shuttle::scheduler::TaskId;
use std::cell::RefCell;
use std::collections::BTreeMap;
use std::time::Duration;

/// What one scheduling step takes.
const STEP: Duration = Duration::from_nanos(200);

/// Virtual runs begin on 2024-01-01 UTC.
const EPOCH: Duration = Duration::from_secs(1_704_067_200);

#[derive(Default)]
struct State {
    now: Duration,
    /// Who sleeps until when.
    sleepers: BTreeMap<usize, Duration>,
}

thread_local! {
    static STATE: RefCell<State> = RefCell::new(State::default());
}

pub(super) fn begin() {
    STATE.with_borrow_mut(|state| *state = State::default());
}

pub(crate) fn since_start() -> Duration {
    STATE.with_borrow(|state| state.now)
}

pub(crate) fn wall_clock() -> Duration {
    EPOCH + since_start()
}

/// Waits for `duration` of virtual time.
pub(crate) fn sleep(duration: Duration) {
    sleep_until(since_start().saturating_add(duration), || false);
}

/// Waits until the deadline or until `woken` says so; true when it was the deadline.
pub(crate) fn sleep_until(deadline: Duration, woken: impl Fn() -> bool) -> bool {
    let me = usize::from(shuttle::current::me());
    loop {
        if woken() {
            forget(me);
            return false;
        }
        if since_start() >= deadline {
            forget(me);
            return true;
        }
        STATE.with_borrow_mut(|state| state.sleepers.insert(me, deadline));
        shuttle::thread::yield_now();
    }
}

/// The task does not wait for time any more: somebody woke it.
pub(crate) fn forget(task: usize) {
    STATE.with_borrow_mut(|state| state.sleepers.remove(&task));
}

/// A scheduling step went by.
pub(super) fn tick() {
    STATE.with_borrow_mut(|state| state.now += STEP);
}

/// When the task wants to be woken, if it sleeps.
pub(super) fn deadline_of(task: TaskId) -> Option<Duration> {
    STATE.with_borrow(|state| state.sleepers.get(&usize::from(task)).copied())
}

/// Time goes on to `deadline`, if it has not yet.
pub(super) fn jump_to(deadline: Duration) {
    STATE.with_borrow_mut(|state| state.now = state.now.max(deadline));
}
