//! What whoever watches a leaf has made of it.
//!
//! Place: beside each leaf of the tree. The one idea: it is said, not obeyed. A leaf that is given up in the eyes of
//! its watcher is still read and written, since each block and each write tells by itself whether it was right; so
//! a wrong verdict costs no more than a word in a report, or a spare, if the pool has one.

use rt::sync::atomic::{AtomicU8, Ordering};

/// A verdict.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Seen {
    /// Nothing speaks against it.
    #[default]
    Fine,
    /// It gave wrong bytes too often.
    Degraded,
    /// Its reads or writes failed too often.
    Faulted,
    /// Its device has gone.
    Removed,
    /// Its device is shorter than it was.
    Cut,
}

/// The verdict on a leaf, in its place.
#[derive(Debug, Default)]
pub struct Verdict(AtomicU8);

impl Verdict {
    /// What was said last.
    pub fn get(&self) -> Seen {
        match self.0.load(Ordering::Relaxed) {
            0 => Seen::Fine,
            1 => Seen::Degraded,
            2 => Seen::Faulted,
            3 => Seen::Removed,
            _ => Seen::Cut,
        }
    }

    /// Says it.
    pub fn set(&self, seen: Seen) {
        self.0.store(seen as u8, Ordering::Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_said_is_heard() {
        let verdict = Verdict::default();
        assert_eq!(verdict.get(), Seen::Fine);
        for seen in [Seen::Degraded, Seen::Faulted, Seen::Removed, Seen::Cut, Seen::Fine] {
            verdict.set(seen);
            assert_eq!(verdict.get(), seen);
        }
    }
}
