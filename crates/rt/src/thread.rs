//! Threads by name.
//!
//! The one idea: a panic of a thread goes on in whoever joins it; no thread dies silently.

#[cfg(sim)]
use shuttle::thread as form;
#[cfg(not(sim))]
use std::thread as form;

pub use form::yield_now;

/// A thread that can be waited for.
#[derive(Debug)]
pub struct JoinHandle<T>(form::JoinHandle<T>);

impl<T> JoinHandle<T> {
    /// Waits for the thread's end. If it panicked, the panic goes on here.
    pub fn join(self) -> T {
        match self.0.join() {
            Ok(value) => value,
            Err(payload) => std::panic::resume_unwind(payload),
        }
    }

    /// Waits for the thread's end; the payload of its panic is the error.
    pub fn try_join(self) -> std::thread::Result<T> {
        self.0.join()
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
    let handle = form::Builder::new().name(name.into()).spawn(run);
    JoinHandle(handle.expect("the system starts a thread"))
}

/// Cores that this process may use, at least 1. Obeys the affinity mask and the cgroup's quota.
pub fn available_cores() -> usize {
    if cfg!(sim) {
        return 2; // the same history on every machine
    }
    std::thread::available_parallelism().map_or(1, usize::from)
}
