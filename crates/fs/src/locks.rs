//! Who changes an object keeps others from the same.
//!
//! The one idea: a lock for each object, there only while somebody has it. So what takes long, such as the cut of a file of
//! a terabyte, holds up those who want the same file and nobody else.

use std::collections::BTreeSet;

use rt::sync::{Condvar, Mutex};

/// Parts of the table, each with its lock.
const PARTS: usize = 64;

#[derive(Default)]
struct Part {
    state: Mutex<State>,
    /// One of its objects came free.
    free: Condvar,
}

#[derive(Default)]
struct State {
    locked: BTreeSet<u64>,
    /// Threads that wait for one of its objects.
    waiting: usize,
}

/// The locks of a file system's objects.
pub(crate) struct Locks(Vec<Part>);

impl Default for Locks {
    fn default() -> Locks {
        Locks((0..PARTS).map(|_| Part::default()).collect())
    }
}

/// An object is locked until this is dropped.
#[must_use]
pub(crate) struct Locked<'a> {
    part: &'a Part,
    object: u64,
}

impl Locks {
    /// Locks an object. Who has one already may not ask for another: see [`Locks::all`].
    pub(crate) fn one(&self, object: u64) -> Locked<'_> {
        let part = &self.0[object as usize % PARTS];
        let mut state = part.state.lock();
        while !state.locked.insert(object) {
            state.waiting += 1;
            state = part.free.wait(state);
            state.waiting -= 1;
        }
        Locked { part, object }
    }

    /// Locks an object, if nobody has it locked.
    pub(crate) fn free_one(&self, object: u64) -> Option<Locked<'_>> {
        let part = &self.0[object as usize % PARTS];
        part.state.lock().locked.insert(object).then(|| Locked { part, object })
    }

    /// Locks several, in the order of their numbers, as all do.
    pub(crate) fn all(&self, objects: &[u64]) -> Vec<Locked<'_>> {
        let objects: BTreeSet<u64> = objects.iter().copied().collect();
        objects.into_iter().map(|object| self.one(object)).collect()
    }
}

impl Drop for Locked<'_> {
    fn drop(&mut self) {
        let mut state = self.part.state.lock();
        state.locked.remove(&self.object);
        let is_awaited = state.waiting > 0;
        drop(state);
        if is_awaited {
            self.part.free.notify_all();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use rt::sync::Arc;
    use rt::sync::atomic::{AtomicU64, Ordering};

    #[test]
    fn one_at_a_time_and_others_are_not_held_up() {
        let (locks, inside) = (Arc::new(Locks::default()), Arc::new(AtomicU64::new(0)));
        let long = locks.one(7);
        // Of the same part of the table.
        drop(locks.one(7 + PARTS as u64));
        let threads = (0..4u64).map(|worker| {
            let (locks, inside) = (locks.clone(), inside.clone());
            rt::thread::spawn("worker", move || {
                for turn in 0..500 {
                    let other = 8 + (worker + turn) % 3;
                    let both = locks.all(&[other, 7, other]);
                    assert_eq!((both.len(), inside.fetch_add(1, Ordering::AcqRel)), (2, 0));
                    inside.fetch_sub(1, Ordering::AcqRel);
                }
            })
        });
        let threads: Vec<_> = threads.collect();
        assert_eq!(inside.load(Ordering::Acquire), 0);
        assert!(locks.free_one(7).is_none() && locks.free_one(7 + 2 * PARTS as u64).is_some());
        drop(long);
        threads.into_iter().for_each(|thread| thread.join());
        assert!(locks.0.iter().all(|part| part.state.lock().locked.is_empty()));
    }
}
