//! Waiting, in a run: the one thing from which the simulated locks are made.
//!
//! The one idea: tasks are never interrupted between two scheduling points, so a lock is a flag
//! and a list of who waits; whoever the schedule lets go on first gets it.

use super::is_running;
use shuttle::thread::{self, Thread};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

/// A place at which another task may go on.
pub(crate) fn point() {
    // A switch while a panic unwinds would let others see the panic as theirs.
    if is_running() && !std::thread::panicking() {
        thread::sleep(std::time::Duration::ZERO); // a switch, no more
    }
}

/// Tasks that wait for something.
#[derive(Debug, Default)]
pub(crate) struct Queue(#[allow(clippy::disallowed_types)] std::sync::Mutex<Vec<Thread>>);

impl Queue {
    #[allow(clippy::disallowed_types)]
    pub(crate) const fn new() -> Queue {
        Queue(std::sync::Mutex::new(Vec::new()))
    }

    fn list(&self) -> impl std::ops::DerefMut<Target = Vec<Thread>> {
        self.0.lock().unwrap_or_else(std::sync::PoisonError::into_inner)
    }

    /// Waits until woken, or for no reason: to be called in a loop.
    pub(crate) fn wait(&self) {
        self.list().push(thread::current());
        thread::park();
    }

    /// Wakes all that wait.
    pub(crate) fn wake_all(&self) {
        let waiting = std::mem::take(&mut *self.list());
        waiting.iter().for_each(Thread::unpark);
    }
}

/// Who may go in: one, or many that share.
#[derive(Debug, Default)]
pub(crate) struct Gate {
    exclusive: AtomicBool,
    shared: AtomicUsize,
    waiting: Queue,
}

/// Somebody is in; given back when dropped. Nothing outside a run.
#[derive(Debug)]
pub(crate) struct Pass<'a>(Option<(&'a Gate, bool)>);

impl Gate {
    pub(crate) const fn new() -> Gate {
        Gate {
            exclusive: AtomicBool::new(false),
            shared: AtomicUsize::new(0),
            waiting: Queue::new(),
        }
    }

    /// Goes in, alone or shared, if that is possible now.
    pub(crate) fn try_enter(&self, alone: bool) -> Option<Pass<'_>> {
        if !is_running() {
            return Some(Pass(None));
        }
        point();
        self.take(alone)
    }

    fn take(&self, alone: bool) -> Option<Pass<'_>> {
        if self.exclusive.load(Ordering::Relaxed)
            || (alone && self.shared.load(Ordering::Relaxed) > 0)
        {
            return None;
        }
        if alone {
            self.exclusive.store(true, Ordering::Relaxed);
        } else {
            self.shared.fetch_add(1, Ordering::Relaxed);
        }
        Some(Pass(Some((self, alone))))
    }

    /// Waits to go in.
    pub(crate) fn enter(&self, alone: bool) -> Pass<'_> {
        if !is_running() {
            return Pass(None);
        }
        point();
        loop {
            if let Some(pass) = self.take(alone) {
                return pass;
            }
            self.waiting.wait();
        }
    }
}

impl Drop for Pass<'_> {
    fn drop(&mut self) {
        let Some((gate, alone)) = self.0 else { return };
        if alone {
            gate.exclusive.store(false, Ordering::Relaxed);
        } else {
            gate.shared.fetch_sub(1, Ordering::Relaxed);
        }
        if is_running() {
            gate.waiting.wake_all();
            point();
        }
    }
}
