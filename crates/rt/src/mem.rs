//! The memory account (INV-5): one hard cap, and a grant for whatever grows with the input.
//!
//! The one idea: memory is asked for before it is used, from one account per process. Who cannot
//! get a grant waits (or spills, or sheds), in the order of asking. A part of the cap is kept for
//! sync and free paths, which must go on for anything to be given back: they never wait for a
//! cache or for a writer.
//!
//! Before an asker waits, the account calls its reclaimers (caches), so that what is only kept
//! for speed gives way to what is needed.

use crate::sync::{Arc, Condvar, Mutex, MutexGuard, Weak};
use std::collections::VecDeque;
use std::time::Duration;

/// How long an asker waits before it has the reclaimers called again.
const RECLAIM_AGAIN: Duration = Duration::from_millis(20);

/// Who asks.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Class {
    /// Caches, dirty data, readers, the verifier's tables: everything that can wait.
    Normal,
    /// Sync and free paths: may use the reserve as well, and go before the others.
    Reserve,
}

/// A grant that can never be given.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("{asked} bytes of memory were asked for, at most {max} can ever be granted")]
pub struct TooMuch {
    /// Bytes asked for.
    pub asked: u64,
    /// The most that this class can get, in bytes.
    pub max: u64,
}

/// Something that holds memory it could do without, such as a cache.
pub trait Reclaim: Send + Sync {
    /// Drop grants of about `bytes` bytes if possible, without waiting for memory. Called with no
    /// lock of the account held.
    fn reclaim(&self, bytes: u64);
}

struct Waiter {
    ticket: u64,
    bytes: u64,
}

#[derive(Default)]
struct State {
    used: u64,
    used_max: u64,
    ticket_next: u64,
    normal: VecDeque<Waiter>,
    reserve: VecDeque<Waiter>,
    reclaimers: Vec<Weak<dyn Reclaim>>,
}

struct Shared {
    state: Mutex<State>,
    freed: Condvar,
    cap: u64,
    reserve: u64,
}

/// An account of memory with a hard cap. Clones are the same account.
#[derive(Clone)]
pub struct Account(Arc<Shared>);

impl Account {
    /// An account of `cap_bytes`, of which `reserve_bytes` are for [`Class::Reserve`] alone.
    ///
    /// # Panics
    /// When the reserve is larger than the cap.
    pub fn new(cap_bytes: u64, reserve_bytes: u64) -> Account {
        assert!(reserve_bytes <= cap_bytes, "the reserve is a part of the cap");
        Account(Arc::new(Shared {
            state: Mutex::new(State::default()),
            freed: Condvar::new(),
            cap: cap_bytes,
            reserve: reserve_bytes,
        }))
    }

    /// The most that `class` can hold, in bytes.
    pub fn max(&self, class: Class) -> u64 {
        match class {
            Class::Normal => self.0.cap - self.0.reserve,
            Class::Reserve => self.0.cap,
        }
    }

    /// Bytes granted now.
    pub fn used(&self) -> u64 {
        self.0.state.lock().used
    }

    /// The most bytes that were ever granted at once.
    pub fn used_max(&self) -> u64 {
        self.0.state.lock().used_max
    }

    /// Bytes that askers wait for: above zero, who can give memory back should.
    pub fn wanted(&self) -> u64 {
        let state = self.0.state.lock();
        state.normal.iter().chain(&state.reserve).map(|w| w.bytes).sum()
    }

    /// Has `reclaimer` called whenever somebody would have to wait, as long as it lives.
    pub fn add_reclaimer(&self, reclaimer: Weak<dyn Reclaim>) {
        let mut state = self.0.state.lock();
        state.reclaimers.retain(|r| r.strong_count() > 0);
        state.reclaimers.push(reclaimer);
    }

    /// A grant of `bytes`, if it can be had now without overtaking anybody who waits.
    pub fn try_grant(&self, class: Class, bytes: u64) -> Option<Grant> {
        let mut state = self.0.state.lock();
        let first = match class {
            Class::Normal => state.normal.is_empty() && state.reserve.is_empty(),
            Class::Reserve => state.reserve.is_empty(),
        };
        (first && self.fits(&state, class, bytes)).then(|| self.take(&mut state, bytes))
    }

    /// A grant of `bytes`, waiting for it in the order of asking.
    pub fn grant(&self, class: Class, bytes: u64) -> Result<Grant, TooMuch> {
        let max = self.max(class);
        if bytes > max {
            return Err(TooMuch { asked: bytes, max });
        }
        if let Some(grant) = self.try_grant(class, bytes) {
            return Ok(grant);
        }
        let mut state = self.0.state.lock();
        let ticket = state.ticket_next;
        state.ticket_next += 1;
        Self::queue(&mut state, class).push_back(Waiter { ticket, bytes });
        loop {
            let first = Self::queue(&mut state, class).front().is_some_and(|w| w.ticket == ticket);
            let turn = first && (class == Class::Reserve || state.reserve.is_empty());
            if turn && self.fits(&state, class, bytes) {
                return Ok(self.take_in_turn(state, class, bytes));
            }
            if turn {
                let missing = (state.used + bytes).saturating_sub(max);
                drop(state);
                self.reclaim(missing);
                state = self.0.state.lock();
                if self.fits(&state, class, bytes) {
                    continue;
                }
            }
            // A cache may let go of something later without dropping its grant: ask it again.
            state = self.0.freed.wait_timeout(state, RECLAIM_AGAIN).0;
        }
    }

    fn take_in_turn(&self, mut state: MutexGuard<'_, State>, class: Class, bytes: u64) -> Grant {
        Self::queue(&mut state, class).pop_front();
        let grant = self.take(&mut state, bytes);
        drop(state);
        // The next in line may fit as well.
        self.0.freed.notify_all();
        grant
    }

    fn queue(state: &mut State, class: Class) -> &mut VecDeque<Waiter> {
        match class {
            Class::Normal => &mut state.normal,
            Class::Reserve => &mut state.reserve,
        }
    }

    fn fits(&self, state: &State, class: Class, bytes: u64) -> bool {
        state.used.checked_add(bytes).is_some_and(|used| used <= self.max(class))
    }

    fn take(&self, state: &mut State, bytes: u64) -> Grant {
        state.used += bytes;
        state.used_max = state.used_max.max(state.used);
        assert!(state.used <= self.0.cap, "INV-5: the account never exceeds its cap");
        Grant { account: self.clone(), bytes }
    }

    fn give(&self, bytes: u64) {
        if bytes == 0 {
            return;
        }
        let mut state = self.0.state.lock();
        state.used = state.used.checked_sub(bytes).expect("INV-5: what is released was granted");
        let waited_for = !(state.normal.is_empty() && state.reserve.is_empty());
        drop(state);
        if waited_for {
            self.0.freed.notify_all();
        }
    }

    fn reclaim(&self, bytes: u64) {
        let reclaimers = self.0.state.lock().reclaimers.clone();
        for reclaimer in reclaimers.iter().filter_map(Weak::upgrade) {
            reclaimer.reclaim(bytes);
        }
    }
}

/// Memory that may be used, until it is dropped.
#[must_use = "the memory is given back when the grant is dropped"]
pub struct Grant {
    account: Account,
    bytes: u64,
}

impl Grant {
    /// Bytes of this grant.
    pub fn bytes(&self) -> u64 {
        self.bytes
    }

    /// Gives back all but `bytes`; nothing when it holds no more than that.
    pub fn shrink(&mut self, bytes: u64) {
        let surplus = self.bytes.saturating_sub(bytes);
        self.bytes -= surplus;
        self.account.give(surplus);
    }

    /// A grant of its own for `bytes` of this one (at most all of them).
    pub fn split(&mut self, bytes: u64) -> Grant {
        let bytes = bytes.min(self.bytes);
        self.bytes -= bytes;
        Grant { account: self.account.clone(), bytes }
    }

    /// Takes over `other`'s bytes.
    ///
    /// # Panics
    /// When it is from another account.
    pub fn merge(&mut self, mut other: Grant) {
        assert!(Arc::ptr_eq(&self.account.0, &other.account.0), "grants of one account");
        self.bytes += std::mem::take(&mut other.bytes);
    }
}

impl Drop for Grant {
    fn drop(&mut self) {
        self.account.give(self.bytes);
    }
}

impl std::fmt::Debug for Grant {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Grant({} bytes)", self.bytes)
    }
}

#[cfg(test)]
mod tests;
