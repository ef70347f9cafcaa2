//! The production form of the locks: `std`, with poison turned into a panic.
#![allow(clippy::disallowed_types)] // the one place where std's locks are named

use std::sync;
use std::time::Duration;

pub use std::sync::{Arc, MutexGuard, RwLockReadGuard, RwLockWriteGuard, atomic};

/// What a thread does while it waits for another without giving up its core.
pub mod hint {
    pub use std::hint::spin_loop;
    /// Turns of a spin loop before a waiter parks: about two microseconds.
    pub const SPINS: u32 = 200;
}

const POISONED: &str = "a thread panicked while it held this lock";

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
        self.0.into_inner().expect(POISONED)
    }
}

impl<T: ?Sized> Mutex<T> {
    /// Waits for the lock.
    pub fn lock(&self) -> MutexGuard<'_, T> {
        self.0.lock().expect(POISONED)
    }

    /// The lock, if it is free now.
    pub fn try_lock(&self) -> Option<MutexGuard<'_, T>> {
        match self.0.try_lock() {
            Ok(guard) => Some(guard),
            Err(sync::TryLockError::WouldBlock) => None,
            Err(sync::TryLockError::Poisoned(_)) => panic!("{POISONED}"),
        }
    }

    /// The value, by the proof that nobody else can hold the lock.
    pub fn get_mut(&mut self) -> &mut T {
        self.0.get_mut().expect(POISONED)
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
        self.0.into_inner().expect(POISONED)
    }
}

impl<T: ?Sized> RwLock<T> {
    /// Waits to read.
    pub fn read(&self) -> RwLockReadGuard<'_, T> {
        self.0.read().expect(POISONED)
    }

    /// Waits to write.
    pub fn write(&self) -> RwLockWriteGuard<'_, T> {
        self.0.write().expect(POISONED)
    }

    /// The value, by the proof that nobody else can hold the lock.
    pub fn get_mut(&mut self) -> &mut T {
        self.0.get_mut().expect(POISONED)
    }
}

/// A condition that threads wait for while they give up a [`Mutex`].
#[derive(Debug, Default)]
pub struct Condvar(sync::Condvar);

impl Condvar {
    /// A condition that nobody waits for.
    pub const fn new() -> Condvar {
        Condvar(sync::Condvar::new())
    }

    /// Gives up the lock, waits to be notified, takes the lock again. May wake for no reason.
    pub fn wait<'a, T>(&self, guard: MutexGuard<'a, T>) -> MutexGuard<'a, T> {
        self.0.wait(guard).expect(POISONED)
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
        let (guard, result) = self.0.wait_timeout(guard, timeout).expect(POISONED);
        (guard, result.timed_out())
    }

    /// Wakes one waiter.
    pub fn notify_one(&self) {
        self.0.notify_one();
    }

    /// Wakes every waiter.
    pub fn notify_all(&self) {
        self.0.notify_all();
    }
}
