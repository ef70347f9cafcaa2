//! Threads by name, and when and where they run.
//!
//! The one idea: a panic of a thread goes on in whoever joins it; no thread dies silently. And what a thread knows of others that
//! the system does not, it may say: that they can run now, or on which core it works with one of them.

use std::cell::Cell;
use std::time::Duration;

use rustix::thread::{CpuSet, sched_getaffinity, sched_setaffinity};

use crate::time::{self, Instant};

mod lenient;

pub use lenient::be_lenient;

#[derive(Debug)]
enum Form<T> {
    System(std::thread::JoinHandle<T>),
    #[cfg(feature = "sim")]
    Simulated(shuttle::thread::JoinHandle<T>),
}

/// A thread that can be waited for.
#[derive(Debug)]
pub struct JoinHandle<T>(Form<T>);

impl<T> JoinHandle<T> {
    /// Waits for the thread's end. If it panicked, the panic goes on here.
    pub fn join(self) -> T {
        match self.try_join() {
            Ok(value) => value,
            Err(payload) => std::panic::resume_unwind(payload),
        }
    }

    /// Waits for the thread's end; the payload of its panic is the error.
    pub fn try_join(self) -> std::thread::Result<T> {
        match self.0 {
            Form::System(handle) => handle.join(),
            #[cfg(feature = "sim")]
            Form::Simulated(handle) => handle.join(),
        }
    }
}

/// Starts a thread.
///
/// # Panics
/// When the system refuses one more thread: the engine starts its few threads when a pool is
/// opened, and has no way to go on without.
pub fn spawn<T: Send + 'static>(
    name: impl Into<String>,
    run: impl FnOnce() -> T + Send + 'static,
) -> JoinHandle<T> {
    try_spawn(name, run).expect("the system starts a thread")
}

/// Starts a thread, for who can do without: one for each that comes, of whom one more can be refused. What `run` holds
/// is let go of if there is none.
///
/// # Errors
/// The system gives no more threads.
pub fn try_spawn<T: Send + 'static>(
    name: impl Into<String>,
    run: impl FnOnce() -> T + Send + 'static,
) -> std::io::Result<JoinHandle<T>> {
    let name = name.into();
    #[cfg(feature = "sim")]
    if crate::sim::is_running() {
        let handle = shuttle::thread::Builder::new().name(name).spawn(run)?;
        return Ok(JoinHandle(Form::Simulated(handle)));
    }
    Ok(JoinHandle(Form::System(std::thread::Builder::new().name(name).spawn(run)?)))
}

/// Lets another thread go on.
pub fn yield_now() {
    #[cfg(feature = "sim")]
    if crate::sim::is_running() {
        return shuttle::thread::yield_now();
    }
    std::thread::yield_now();
}

/// A thread of this process: no two that live at once are equal.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Id(Numbered);

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Numbered {
    System(std::thread::ThreadId),
    #[cfg(feature = "sim")]
    Simulated(shuttle::thread::ThreadId),
}

/// The thread that asks.
pub fn id() -> Id {
    #[cfg(feature = "sim")]
    if crate::sim::is_running() {
        return Id(Numbered::Simulated(shuttle::thread::current().id()));
    }
    Id(Numbered::System(std::thread::current().id()))
}

/// Is this thread on its way out of a panic?
pub fn panicking() -> bool {
    std::thread::panicking()
}

/// So long a thread works before others may run, at least.
const TURN: Duration = Duration::from_micros(100);
/// And so many times as long as they took the last time: where many want to run, who gives way often comes to nothing.
const TURNS: u32 = 4;

thread_local! {
    /// Until when this thread need not let others run.
    static TURN_ENDS: Cell<Option<Instant>> = const { Cell::new(None) };
}

/// Lets others run, if this thread has not for a while. It belongs between the pieces of work that nobody waits for yet:
/// the system leaves a core for some milliseconds to whoever is at work, and who asks for something small, or answers, would
/// wait for their end.
pub fn give_way() {
    // There others run wherever they could, and no time goes by.
    #[cfg(feature = "sim")]
    if crate::sim::is_running() {
        return;
    }
    let now = time::now();
    if TURN_ENDS.get().is_none_or(|end| end <= now) {
        yield_now();
        let back = time::now();
        let took = back.saturating_since(now);
        TURN_ENDS.set(Some(back + TURN.max(took * TURNS)));
    }
}

/// The number of the core that this thread runs on just now.
pub fn core() -> usize {
    #[cfg(feature = "sim")]
    if crate::sim::is_running() {
        return 0;
    }
    rustix::thread::sched_getcpu()
}

/// Goes on on this core, if it may run there, until the system finds it another one. It takes the work of both cores for
/// some 20 us.
pub fn move_to(core: usize) {
    #[cfg(feature = "sim")]
    if crate::sim::is_running() {
        return;
    }
    // A machine may have more cores than a set of them tells of.
    let Ok(all) = sched_getaffinity(None) else { return };
    if core < CpuSet::MAX_CPU && all.is_set(core) {
        let mut one = CpuSet::new();
        one.set(core);
        let _ = sched_setaffinity(None, &one);
        let _ = sched_setaffinity(None, &all);
    }
}

/// Cores that this process may use, at least 1. Obeys the affinity mask and the cgroup's quota.
pub fn available_cores() -> usize {
    if cfg!(feature = "sim") {
        return 2; // the same history on every machine
    }
    std::thread::available_parallelism().map_or(1, usize::from)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_thread_moves_where_it_may_run_and_is_bound_to_nothing() {
        let all = sched_getaffinity(None).expect("the system says");
        for to in (0..CpuSet::MAX_CPU).filter(|&core| all.is_set(core)) {
            // It may be moved on at once, but not each time.
            let arrives = || {
                move_to(to);
                core() == to
            };
            assert!((0..100).any(|_| arrives()), "{to}");
        }
        move_to(usize::MAX);
        assert_eq!(sched_getaffinity(None).expect("the system says"), all);
    }

    #[test]
    fn a_panic_is_seen_by_who_joins() {
        let error = spawn("broken", || panic!("on purpose")).try_join().expect_err("it panicked");
        assert_eq!(error.downcast_ref::<&str>(), Some(&"on purpose"));
        assert_eq!(spawn("whole", || 7).join(), 7);
        assert!(available_cores() >= 1);
    }
}
