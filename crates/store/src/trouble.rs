//! Blocks that were not as they should be when they were read: told here by whoever read them, for the pool to heal.
//!
//! Place: between [`crate::Store`], which knows what was wrong, and a thread of the pool, which puts it right.
//! The one idea: a place in the pool is told, not a block. By the time that somebody comes to it the block may be
//! freed and another may be there, so he has to look it up again. Nobody waits here: a place that is told twice is
//! kept once, and what is too much is forgotten, to be told again by the next who reads it.

use std::collections::BTreeMap;
use std::time::Duration;

use format::scan::Bookmark;
use rt::sync::{Condvar, Mutex};

/// Places that are kept, at most.
const PLACES_MAX: usize = 4096;
/// Pieces of one block whose faults are remembered as counted, at most.
const COUNTED_MAX: usize = 256;

/// What was wrong with a block.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Trouble {
    /// No copy of it was good.
    pub lost: bool,
    /// Pieces whose faults the leaves' counters have: each the guid of a leaf and an offset on it.
    pub counted: Vec<(u64, u64)>,
}

/// Places where something was wrong, for one who works them off.
#[derive(Default)]
pub struct Troubles {
    state: Mutex<State>,
    changed: Condvar,
}

#[derive(Default)]
struct State {
    places: BTreeMap<Bookmark, Trouble>,
    /// Somebody works them off.
    served: bool,
    /// He is at one of them.
    busy: bool,
    ended: bool,
}

impl Troubles {
    /// Tells of a block. `true`: it is kept for whoever works it off.
    pub fn tell(&self, at: Bookmark, trouble: Trouble) -> bool {
        let mut state = self.state.lock();
        let State { places, ended, .. } = &mut *state;
        let known = places.contains_key(&at);
        if *ended {
            return false;
        }
        if !known && places.len() >= PLACES_MAX {
            // What can be healed is told again by whoever reads it; what is lost has to be shown.
            let healable = |(at, other): (&Bookmark, &Trouble)| (!other.lost).then_some(*at);
            let Some(other) = places.iter().rev().find_map(healable).filter(|_| trouble.lost)
            else {
                return false;
            };
            places.remove(&other);
        }
        let kept = places.entry(at).or_default();
        kept.lost |= trouble.lost;
        let room = COUNTED_MAX.saturating_sub(kept.counted.len());
        kept.counted.extend(trouble.counted.into_iter().take(room));
        self.changed.notify_all();
        true
    }

    /// From now on somebody calls [`Troubles::next`].
    pub fn serve(&self) {
        self.state.lock().served = true;
    }

    /// The next place; waits for one. `None`: the end. What was given out before is done.
    pub fn next(&self) -> Option<(Bookmark, Trouble)> {
        let mut state = self.state.lock();
        state.busy = false;
        self.changed.notify_all();
        loop {
            if state.ended {
                return None;
            }
            if let Some(next) = state.places.pop_first() {
                state.busy = true;
                return Some(next);
            }
            state = self.changed.wait(state);
        }
    }

    /// Places that are lost, if nobody works them off.
    pub fn lost(&self) -> Vec<Bookmark> {
        let state = self.state.lock();
        state.places.iter().filter(|(_, trouble)| trouble.lost).map(|(at, _)| *at).collect()
    }

    /// Waits until all is worked off, or for so long; did it come to that?
    pub fn finish(&self, within: Duration) -> bool {
        let mut state = self.state.lock();
        let until = rt::time::now() + within;
        loop {
            if !state.served || state.ended || !state.busy && state.places.is_empty() {
                return true;
            }
            let left = until.saturating_since(rt::time::now());
            if left.is_zero() {
                return false;
            }
            state = self.changed.wait_timeout(state, left).0;
        }
    }

    /// Nobody works them off any more.
    pub fn end(&self) {
        self.state.lock().ended = true;
        self.changed.notify_all();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(block: u64) -> Bookmark {
        Bookmark { objset: 54, object: 2, level: 0, block }
    }

    #[test]
    fn a_place_is_kept_once_and_worked_off_in_order() {
        let troubles = Troubles::default();
        let hurt = |leaf| Trouble { lost: false, counted: vec![(leaf, 0)] };
        // What is told while the pool is opened waits for whoever will come.
        assert!(troubles.tell(at(2), hurt(0)) && troubles.finish(Duration::ZERO));
        troubles.serve();
        assert!(troubles.tell(at(1), hurt(1)));
        assert!(troubles.tell(at(2), Trouble { lost: true, counted: vec![(3, 0)] }));
        assert_eq!(troubles.next(), Some((at(1), hurt(1))));
        assert!(!troubles.finish(Duration::ZERO));
        let both = Trouble { lost: true, counted: vec![(0, 0), (3, 0)] };
        assert_eq!(troubles.next(), Some((at(2), both)));
        troubles.end();
        assert!(troubles.next().is_none() && troubles.finish(Duration::ZERO));
        assert!(!troubles.tell(at(3), hurt(0)));
    }

    #[test]
    fn too_many_are_forgotten() {
        let troubles = Troubles::default();
        let lost = || Trouble { lost: true, counted: vec![] };
        assert_eq!((0..5000).filter(|block| troubles.tell(at(*block), lost())).count(), 4096);
        assert!(troubles.tell(at(7), lost()));
        assert_eq!(troubles.lost().len(), 4096);
    }

    /// Seen red: in a pool that is only read one bad disk filled the list, and what was lost then was not shown.
    #[test]
    fn what_is_lost_takes_the_place_of_what_is_not() {
        let troubles = Troubles::default();
        assert!((0..4096).all(|block| troubles.tell(at(block), Trouble::default())));
        assert!(!troubles.tell(at(5000), Trouble::default()));
        let lost = || Trouble { lost: true, counted: vec![] };
        assert!((5000..9096).all(|block| troubles.tell(at(block), lost())));
        assert_eq!(troubles.lost().len(), 4096);
        assert!(!troubles.tell(at(9096), lost()));
    }
}
