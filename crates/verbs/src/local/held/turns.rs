//! Whose turn it is to bring a pool, to take it away, or to change its disks.
//!
//! The one idea: a turn is one pool's, by its name, so who waits for the devices of one in his turn holds up no other. Whether
//! two may have one device, or one name, is no matter of turns: other processes ask for none.

use std::collections::BTreeMap;

use rt::sync::{Condvar, Mutex};

/// The turns of all pools of a server.
#[derive(Default)]
pub(in crate::local) struct Turns {
    taken: Mutex<Taken>,
    given_back: Condvar,
}

#[derive(Default)]
struct Taken {
    /// What is done in each, by the pool's name.
    of: BTreeMap<String, What>,
    /// All that there are: no other is given.
    all: bool,
}

/// What somebody does in his turn.
#[derive(Clone, Copy, PartialEq, Eq)]
enum What {
    /// Something that is to be done in full.
    Work,
    /// He opens a pool: until it is there nothing is lost if nobody waits for him.
    Opening,
}

/// Somebody's turn, until it is dropped.
pub(in crate::local) struct Turn<'a> {
    turns: &'a Turns,
    /// `None`: those of all pools.
    of: Option<String>,
}

impl Turns {
    /// That of one pool; waits for it.
    pub(in crate::local) fn of(&self, pool: &str) -> Turn<'_> {
        self.take(pool, What::Work)
    }

    /// The same, for who opens it and does nothing else.
    pub(in crate::local) fn to_open(&self, pool: &str) -> Turn<'_> {
        self.take(pool, What::Opening)
    }

    fn take(&self, pool: &str, what: What) -> Turn<'_> {
        let mut taken = self.taken.lock();
        while taken.all || taken.of.contains_key(pool) {
            taken = self.given_back.wait(taken);
        }
        taken.of.insert(pool.to_owned(), what);
        Turn { turns: self, of: Some(pool.to_owned()) }
    }

    /// Those of all pools, if nobody has any, or only to open one, which `passes` over: what is opened from then on is
    /// not taken in.
    pub(super) fn try_all(&self, passes: bool) -> Option<Turn<'_>> {
        let mut taken = self.taken.lock();
        let waits = |what: &What| *what == What::Work || !passes;
        if taken.all || taken.of.values().any(waits) {
            return None;
        }
        taken.all = true;
        Some(Turn { turns: self, of: None })
    }

    /// Has somebody those of all pools?
    pub(super) fn are_over(&self) -> bool {
        self.taken.lock().all
    }
}

impl Drop for Turn<'_> {
    fn drop(&mut self) {
        let mut taken = self.turns.taken.lock();
        match &self.of {
            Some(pool) => drop(taken.of.remove(pool)),
            None => taken.all = false,
        }
        drop(taken);
        self.turns.given_back.notify_all();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_turn_is_one_pools_and_the_end_waits_for_who_does_something() {
        let turns = Turns::default();
        let (tank, other) = (turns.of("tank"), turns.to_open("other"));
        assert!(turns.try_all(true).is_none());
        drop(tank);
        assert!(turns.try_all(false).is_none());
        let all = turns.try_all(true);
        assert!(all.is_some() && turns.are_over() && turns.try_all(true).is_none());
        // Whoever opens one may end meanwhile.
        drop(other);
        drop(all);
        assert!(!turns.are_over());
        drop(turns.of("other"));
    }

    #[test]
    fn one_pools_turns_follow_each_other() {
        let turns = rt::sync::Arc::new(Turns::default());
        let (done, first) = (rt::sync::Arc::new(Mutex::new(false)), turns.of("tank"));
        let second = {
            let (turns, done) = (turns.clone(), done.clone());
            rt::thread::spawn("second", move || {
                let _turn = turns.of("tank");
                assert!(*done.lock(), "both have it");
            })
        };
        rt::time::sleep(std::time::Duration::from_millis(20));
        *done.lock() = true;
        drop(first);
        second.join();
    }
}
