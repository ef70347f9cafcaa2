//! Threads that a server starts now and then, for what may take long: the system may refuse any of them.
//!
//! The one idea: who starts one is himself called again, so a refusal costs one turn, if nothing says any more that the
//! errand is run. [`Noted`] says so, and goes with what the thread holds, whether it began, ended or broke off.

use rt::thread::JoinHandle;

/// Starts a thread. What `run` holds is let go of if there is none, so no lock that this takes may be held here.
pub(super) fn start<T: Send + 'static>(
    name: &str,
    run: impl FnOnce() -> T + Send + 'static,
) -> std::io::Result<JoinHandle<T>> {
    #[cfg(test)]
    if refused::IS.get() {
        return Err(std::io::ErrorKind::WouldBlock.into());
    }
    rt::thread::try_spawn(name, run)
}

/// The note that an errand is run; `take_back` is called when it is not, or no longer.
pub(super) struct Noted<F: FnMut()> {
    take_back: F,
}

impl<F: FnMut()> Noted<F> {
    /// It was noted; `take_back` undoes that.
    pub(super) fn until(take_back: F) -> Noted<F> {
        Noted { take_back }
    }
}

impl<F: FnMut()> Drop for Noted<F> {
    fn drop(&mut self) {
        (self.take_back)();
    }
}

/// For tests: a system that gives no threads.
#[cfg(test)]
pub(super) mod refused {
    use std::cell::Cell;

    thread_local! {
        /// Are those that this thread starts refused?
        pub(super) static IS: Cell<bool> = const { Cell::new(false) };
    }

    /// Does `what` while this thread gets no others.
    pub(in crate::local) fn during(what: impl FnOnce()) {
        IS.set(true);
        what();
        IS.set(false);
    }
}
