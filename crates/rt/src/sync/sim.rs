//! The simulated form of the locks: a gate that the schedule opens, and `std`'s lock behind it.
//!
//! The one idea: the gate decides who goes on, the lock behind it is never waited for in a run.
//! Outside a run the gate is open and the lock does the work.
#![allow(clippy::disallowed_types)] // the other place where std's locks are named

use crate::sim::{self, Gate, Pass, clock};
use std::collections::VecDeque;
use std::ops::{Deref, DerefMut};
use std::sync::{self, PoisonError, TryLockError};
use std::time::Duration;

pub use std::sync::Arc;

/// Atomics: each operation is a point at which another task may go on.
#[path = "sim/atomic.rs"]
pub mod atomic;

/// What a thread does while it waits for another without giving up its core.
pub mod hint {
    /// Turns of a spin loop before a waiter parks. Few: each is a step of the history.
    pub const SPINS: u32 = 2;

    /// Lets another task go on.
    pub fn spin_loop() {
        crate::thread::yield_now();
    }
}

const POISONED: &str = "a thread panicked while it held this lock";

/// The guard, or the panic goes on; who is unwinding already only cleans up.
fn unpoisoned<G>(result: Result<G, PoisonError<G>>) -> G {
    match result {
        Ok(guard) => guard,
        Err(poison) if std::thread::panicking() => poison.into_inner(),
        Err(_) => panic!("{POISONED}"),
    }
}

/// A mutual exclusion lock.
#[derive(Debug, Default)]
pub struct Mutex<T: ?Sized> {
    gate: Gate,
    value: sync::Mutex<T>,
}

/// The lock, held.
#[must_use = "the lock is given back when the guard is dropped"]
#[derive(Debug)]
pub struct MutexGuard<'a, T: ?Sized> {
    // The order of the fields is the order of release.
    guard: sync::MutexGuard<'a, T>,
    pass: Pass<'a>,
    mutex: &'a Mutex<T>,
}

impl<T> Mutex<T> {
    /// A lock around `value`.
    pub const fn new(value: T) -> Mutex<T> {
        Mutex { gate: Gate::new(), value: sync::Mutex::new(value) }
    }

    /// The value, when nobody can hold the lock any more.
    pub fn into_inner(self) -> T {
        unpoisoned(self.value.into_inner())
    }
}

impl<T: ?Sized> Mutex<T> {
    /// Waits for the lock.
    pub fn lock(&self) -> MutexGuard<'_, T> {
        let pass = self.gate.enter(true);
        MutexGuard { guard: unpoisoned(self.value.lock()), pass, mutex: self }
    }

    /// The lock, if it is free now.
    pub fn try_lock(&self) -> Option<MutexGuard<'_, T>> {
        let pass = self.gate.try_enter(true)?;
        let guard = match self.value.try_lock() {
            Ok(guard) => guard,
            Err(TryLockError::WouldBlock) => return None,
            Err(TryLockError::Poisoned(poison)) => unpoisoned(Err(poison)),
        };
        Some(MutexGuard { guard, pass, mutex: self })
    }

    /// The value, by the proof that nobody else can hold the lock.
    pub fn get_mut(&mut self) -> &mut T {
        unpoisoned(self.value.get_mut())
    }
}

impl<T: ?Sized> Deref for MutexGuard<'_, T> {
    type Target = T;
    fn deref(&self) -> &T {
        &self.guard
    }
}

impl<T: ?Sized> DerefMut for MutexGuard<'_, T> {
    fn deref_mut(&mut self) -> &mut T {
        &mut self.guard
    }
}

/// A lock for many readers or one writer.
#[derive(Debug, Default)]
pub struct RwLock<T: ?Sized> {
    gate: Gate,
    value: sync::RwLock<T>,
}

/// The lock, held for reading.
#[must_use = "the lock is given back when the guard is dropped"]
#[derive(Debug)]
pub struct RwLockReadGuard<'a, T: ?Sized> {
    guard: sync::RwLockReadGuard<'a, T>,
    _pass: Pass<'a>,
}

/// The lock, held for writing.
#[must_use = "the lock is given back when the guard is dropped"]
#[derive(Debug)]
pub struct RwLockWriteGuard<'a, T: ?Sized> {
    guard: sync::RwLockWriteGuard<'a, T>,
    _pass: Pass<'a>,
}

impl<T> RwLock<T> {
    /// A lock around `value`.
    pub const fn new(value: T) -> RwLock<T> {
        RwLock { gate: Gate::new(), value: sync::RwLock::new(value) }
    }

    /// The value, when nobody can hold the lock any more.
    pub fn into_inner(self) -> T {
        unpoisoned(self.value.into_inner())
    }
}

impl<T: ?Sized> RwLock<T> {
    /// Waits to read.
    pub fn read(&self) -> RwLockReadGuard<'_, T> {
        let pass = self.gate.enter(false);
        RwLockReadGuard { guard: unpoisoned(self.value.read()), _pass: pass }
    }

    /// Waits to write.
    pub fn write(&self) -> RwLockWriteGuard<'_, T> {
        let pass = self.gate.enter(true);
        RwLockWriteGuard { guard: unpoisoned(self.value.write()), _pass: pass }
    }

    /// The value, by the proof that nobody else can hold the lock.
    pub fn get_mut(&mut self) -> &mut T {
        unpoisoned(self.value.get_mut())
    }
}

impl<T: ?Sized> Deref for RwLockReadGuard<'_, T> {
    type Target = T;
    fn deref(&self) -> &T {
        &self.guard
    }
}

impl<T: ?Sized> Deref for RwLockWriteGuard<'_, T> {
    type Target = T;
    fn deref(&self) -> &T {
        &self.guard
    }
}

impl<T: ?Sized> DerefMut for RwLockWriteGuard<'_, T> {
    fn deref_mut(&mut self) -> &mut T {
        &mut self.guard
    }
}

/// One wait for a condition.
#[derive(Debug)]
struct Waiter {
    notified: sync::atomic::AtomicBool,
    task: usize,
    thread: shuttle::thread::Thread,
}

impl Waiter {
    fn is_notified(&self) -> bool {
        self.notified.load(sync::atomic::Ordering::Relaxed)
    }

    fn notify(&self) {
        self.notified.store(true, sync::atomic::Ordering::Relaxed);
        clock::forget(self.task);
        self.thread.unpark();
    }
}

/// A condition that threads wait for while they give up a [`Mutex`].
#[derive(Debug, Default)]
pub struct Condvar {
    waiters: sync::Mutex<VecDeque<Arc<Waiter>>>,
    outside: sync::Condvar,
}

/// One wait in this many ends for no reason, as it may on any system.
const SPURIOUS: u64 = 32;

impl Condvar {
    /// A condition that nobody waits for.
    pub const fn new() -> Condvar {
        Condvar { waiters: sync::Mutex::new(VecDeque::new()), outside: sync::Condvar::new() }
    }

    fn list(&self) -> sync::MutexGuard<'_, VecDeque<Arc<Waiter>>> {
        self.waiters.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn join(&self) -> Arc<Waiter> {
        let waiter = Arc::new(Waiter {
            notified: sync::atomic::AtomicBool::new(false),
            task: shuttle::current::me().into(),
            thread: shuttle::thread::current(),
        });
        self.list().push_back(waiter.clone());
        waiter
    }

    fn leave(&self, waiter: &Arc<Waiter>) {
        self.list().retain(|other| !Arc::ptr_eq(other, waiter));
    }

    /// Gives up the lock, waits to be notified, takes the lock again. May wake for no reason.
    pub fn wait<'a, T>(&self, guard: MutexGuard<'a, T>) -> MutexGuard<'a, T> {
        let MutexGuard { guard, pass, mutex } = guard;
        if !sim::is_running() {
            return MutexGuard { guard: unpoisoned(self.outside.wait(guard)), pass, mutex };
        }
        let waiter = self.join();
        drop((guard, pass));
        if !sim::draw().is_multiple_of(SPURIOUS) {
            while !waiter.is_notified() {
                shuttle::thread::park();
            }
        }
        self.leave(&waiter);
        mutex.lock()
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
        let MutexGuard { guard, pass, mutex } = guard;
        if !sim::is_running() {
            let (guard, result) = unpoisoned(self.outside.wait_timeout(guard, timeout));
            return (MutexGuard { guard, pass, mutex }, result.timed_out());
        }
        let waiter = self.join();
        drop((guard, pass));
        let deadline = clock::since_start().saturating_add(timeout);
        let late = !sim::draw().is_multiple_of(SPURIOUS)
            && clock::sleep_until(deadline, || waiter.is_notified());
        self.leave(&waiter);
        (mutex.lock(), late)
    }

    /// Wakes one waiter: any of them.
    pub fn notify_one(&self) {
        if !sim::is_running() {
            return self.outside.notify_one();
        }
        let waiter = {
            let mut list = self.list();
            list.retain(|waiter| !waiter.is_notified());
            let index = (sim::draw() as usize).checked_rem(list.len()).unwrap_or(0);
            list.remove(index)
        };
        if let Some(waiter) = waiter {
            waiter.notify();
        }
        sim::point();
    }

    /// Wakes every waiter.
    pub fn notify_all(&self) {
        if !sim::is_running() {
            return self.outside.notify_all();
        }
        let waiters = std::mem::take(&mut *self.list());
        waiters.iter().for_each(|waiter| waiter.notify());
        sim::point();
    }
}
