//! The production form of the locks: `std`, with poison turned into a panic.
#![allow(clippy::disallowed_types)] // the one place where std's locks are named

use std::sync;
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};
use std::time::Duration;

pub use std::sync::{Arc, MutexGuard, RwLockReadGuard, RwLockWriteGuard, atomic};

/// What a thread does while it waits for another without giving up its core.
pub mod hint {
    pub use std::hint::spin_loop;
    /// Turns of a spin loop before a waiter parks: about two microseconds.
    pub const SPINS: u32 = 200;
}

const POISONED: &str = "a thread panicked while it held this lock";

/// The guard, or the panic goes on; who is unwinding already only cleans up.
fn unpoisoned<G>(result: Result<G, sync::PoisonError<G>>) -> G {
    match result {
        Ok(guard) => guard,
        Err(poison) if std::thread::panicking() => poison.into_inner(),
        Err(_) => panic!("{POISONED}"),
    }
}

/// A mutual exclusion lock.
#[derive(Debug, Default)]
pub struct Mutex<T: ?Sized>(sync::Mutex<T>);

impl<T> Mutex<T> {
    /// A lock around `value`.
    pub const fn new(value: T) -> Mutex<T> {
        Mutex(sync::Mutex::new(value))
    }

    /// The value, when nobody can hold the lock any more.
    pub fn into_inner(self) -> T {
        unpoisoned(self.0.into_inner())
    }
}

impl<T: ?Sized> Mutex<T> {
    /// Waits for the lock.
    pub fn lock(&self) -> MutexGuard<'_, T> {
        unpoisoned(self.0.lock())
    }

    /// The lock, if it is free now.
    pub fn try_lock(&self) -> Option<MutexGuard<'_, T>> {
        match self.0.try_lock() {
            Ok(guard) => Some(guard),
            Err(sync::TryLockError::WouldBlock) => None,
            Err(sync::TryLockError::Poisoned(poison)) => Some(unpoisoned(Err(poison))),
        }
    }

    /// The value, by the proof that nobody else can hold the lock.
    pub fn get_mut(&mut self) -> &mut T {
        unpoisoned(self.0.get_mut())
    }
}

/// A lock for many readers or one writer.
#[derive(Debug, Default)]
pub struct RwLock<T: ?Sized>(sync::RwLock<T>);

impl<T> RwLock<T> {
    /// A lock around `value`.
    pub const fn new(value: T) -> RwLock<T> {
        RwLock(sync::RwLock::new(value))
    }

    /// The value, when nobody can hold the lock any more.
    pub fn into_inner(self) -> T {
        unpoisoned(self.0.into_inner())
    }
}

impl<T: ?Sized> RwLock<T> {
    /// Waits to read.
    pub fn read(&self) -> RwLockReadGuard<'_, T> {
        unpoisoned(self.0.read())
    }

    /// Waits to write.
    pub fn write(&self) -> RwLockWriteGuard<'_, T> {
        unpoisoned(self.0.write())
    }

    /// The value, by the proof that nobody else can hold the lock.
    pub fn get_mut(&mut self) -> &mut T {
        unpoisoned(self.0.get_mut())
    }
}

/// A condition that threads wait for while they give up a [`Mutex`].
#[derive(Debug, Default)]
pub struct Condvar {
    inner: sync::Condvar,
    /// How many wait. Whoever waits is counted with the lock held, and whoever notifies has held it since what is waited for
    /// has changed: he sees all who have not seen that.
    waiting: AtomicUsize,
}

impl Condvar {
    /// A condition that nobody waits for.
    pub const fn new() -> Condvar {
        Condvar { inner: sync::Condvar::new(), waiting: AtomicUsize::new(0) }
    }

    /// Gives up the lock, waits to be notified, takes the lock again. May wake for no reason.
    pub fn wait<'a, T>(&self, guard: MutexGuard<'a, T>) -> MutexGuard<'a, T> {
        self.waiting.fetch_add(1, Relaxed);
        let guard = unpoisoned(self.inner.wait(guard));
        self.waiting.fetch_sub(1, Relaxed);
        guard
    }

    /// Waits as long as `condition` holds.
    pub fn wait_while<'a, T>(
        &self,
        mut guard: MutexGuard<'a, T>,
        mut condition: impl FnMut(&mut T) -> bool,
    ) -> MutexGuard<'a, T> {
        while condition(&mut guard) {
            guard = self.wait(guard);
        }
        guard
    }

    /// Waits at most `timeout`; true when the time ran out. May wake for no reason.
    pub fn wait_timeout<'a, T>(
        &self,
        guard: MutexGuard<'a, T>,
        timeout: Duration,
    ) -> (MutexGuard<'a, T>, bool) {
        self.waiting.fetch_add(1, Relaxed);
        let (guard, result) = unpoisoned(self.inner.wait_timeout(guard, timeout));
        self.waiting.fetch_sub(1, Relaxed);
        (guard, result.timed_out())
    }

    /// Wakes one waiter. Where nobody waits it is no call of the system.
    pub fn notify_one(&self) {
        if self.waiting.load(Relaxed) > 0 {
            self.inner.notify_one();
        }
    }

    /// Wakes every waiter.
    pub fn notify_all(&self) {
        if self.waiting.load(Relaxed) > 0 {
            self.inner.notify_all();
        }
    }
}
