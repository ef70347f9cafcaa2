//! The memory account (INV-5): one hard cap, and a grant for whatever grows with the input.
//!
//! The one idea: memory is asked for before it is used, from one account per process. Who cannot
//! get a grant waits (or spills, or sheds), in the order of asking. A part of the cap is kept for
//! sync and free paths, which must go on for anything to be given back: they never wait for a
//! cache or for a writer.
//!
//! Before an asker waits, the account calls its reclaimers (caches), so that what is only kept
//! for speed gives way to what is needed. What nobody can do without and nobody may wait for (a record
//! that a change has made dirty, the map of free space) is *taken*: its holder bounds it by itself, and
//! for it, too, caches give way.
//!
//! Each clone of an account stands for one [`Holder`], so that it can be told who has what.

mod holders;
pub mod process;

pub use holders::{Holder, Holding, Snapshot};

use crate::buf::WeakPool;
use crate::sync::atomic::{AtomicU64, Ordering};
use crate::sync::{Arc, Condvar, Mutex, MutexGuard, Weak};
use crate::time;
use std::collections::VecDeque;
use std::time::Duration;

/// How long an asker waits before it has the reclaimers called again.
const RECLAIM_AGAIN: Duration = Duration::from_millis(20);
/// The most that [`Class::Normal`] can hold, divided by this, is granted even beyond the cap: memory that is taken without
/// waiting can fill the account for good, and then nothing else would ever be granted.
const LEAST_PART: u64 = 4;
/// How long who is the first in line waits for that.
const STUCK_AFTER: Duration = Duration::from_secs(1);

/// Who asks.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Class {
    /// Readers, clients, the verifier's tables: everything that can wait.
    Normal,
    /// Sync and free paths: may use the reserve as well, and go before the others.
    Reserve,
    /// Caches: may use what nobody else wants, and give it back when they are told to.
    Elastic,
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
    /// Drop grants of about `bytes` bytes if possible, without waiting for memory, nor for a lock that is held
    /// while memory is asked for. Called with no lock of the account held.
    fn reclaim(&self, bytes: u64);

    /// Nobody has done anything for a while: keep little.
    fn rest(&self) {
        self.reclaim(u64::MAX);
    }
}

struct Waiter {
    ticket: u64,
    holder: Holder,
    class: Class,
    bytes: u64,
    /// Rung when it has its grant, or is the first in line.
    rung: Arc<Condvar>,
}

#[derive(Default)]
struct State {
    used: u64,
    used_max: u64,
    /// Of that, what [`Class::Normal`] has.
    normal: u64,
    held: [(u64, u64); Holder::COUNT],
    ticket_next: u64,
    waiting: VecDeque<Waiter>,
    reserve_waiting: VecDeque<Waiter>,
    reclaimers: Vec<(Class, Weak<dyn Reclaim>)>,
}

struct Shared {
    state: Mutex<State>,
    cap: u64,
    reserve: u64,
    members: AtomicU64,
    buffers: Mutex<WeakPool>,
}

/// One of those who share an account: see [`Account::join`].
#[derive(Debug)]
pub struct Member(Account);

impl Member {
    /// The account.
    pub fn account(&self) -> &Account {
        &self.0
    }
}

impl Drop for Member {
    fn drop(&mut self) {
        self.0.shared.members.fetch_sub(1, Ordering::Relaxed);
    }
}

/// An account of memory with a hard cap. Clones are the same account.
#[derive(Clone)]
pub struct Account {
    shared: Arc<Shared>,
    holder: Holder,
}

impl State {
    /// Those in whose line `class` waits.
    fn line(&mut self, class: Class) -> &mut VecDeque<Waiter> {
        match class {
            Class::Normal | Class::Elastic => &mut self.waiting,
            Class::Reserve => &mut self.reserve_waiting,
        }
    }

    /// Whose turn it is.
    fn first(&self) -> Option<&Waiter> {
        self.reserve_waiting.front().or_else(|| self.waiting.front())
    }

    /// The first of a line has its grant: it leaves.
    fn served(&mut self, class: Class) -> Option<Arc<Condvar>> {
        let waiter = self.line(class).pop_front()?;
        self.add(waiter.holder, waiter.class, waiter.bytes);
        Some(waiter.rung)
    }

    fn add(&mut self, holder: Holder, class: Class, bytes: u64) {
        self.used += bytes;
        self.used_max = self.used_max.max(self.used);
        if class == Class::Normal {
            self.normal += bytes;
        }
        let (held, held_max) = &mut self.held[holder as usize];
        *held += bytes;
        *held_max = (*held_max).max(*held);
    }

    fn remove(&mut self, holder: Holder, class: Class, bytes: u64) {
        const GRANTED: &str = "INV-5: what is released was granted";
        self.used = self.used.checked_sub(bytes).expect(GRANTED);
        if class == Class::Normal {
            self.normal = self.normal.checked_sub(bytes).expect(GRANTED);
        }
        let held = &mut self.held[holder as usize].0;
        *held = held.checked_sub(bytes).expect(GRANTED);
    }
}

impl Account {
    /// An account of `cap_bytes`, of which `reserve_bytes` are for [`Class::Reserve`] alone.
    ///
    /// # Panics
    /// When the reserve is larger than the cap.
    pub fn new(cap_bytes: u64, reserve_bytes: u64) -> Account {
        assert!(reserve_bytes <= cap_bytes, "the reserve is a part of the cap");
        let shared = Arc::new(Shared {
            state: Mutex::new(State::default()),
            cap: cap_bytes,
            reserve: reserve_bytes,
            members: AtomicU64::new(0),
            buffers: Mutex::default(),
        });
        Account { shared, holder: Holder::Other }
    }

    /// The same account, for what `holder` has of it.
    pub fn of(&self, holder: Holder) -> Account {
        Account { shared: self.shared.clone(), holder }
    }

    /// The cap, in bytes.
    pub fn cap(&self) -> u64 {
        self.shared.cap
    }

    /// Its pool of buffers, if anybody has it.
    pub(crate) fn buffers(&self) -> &Mutex<WeakPool> {
        &self.shared.buffers
    }

    /// One more shares what is bounded for all together, as long as the member is kept.
    pub fn join(&self) -> Member {
        self.shared.members.fetch_add(1, Ordering::Relaxed);
        Member(self.clone())
    }

    /// How many share it, at least one.
    pub fn members(&self) -> u64 {
        self.shared.members.load(Ordering::Relaxed).max(1)
    }

    /// The most that `class` can hold, in bytes.
    pub fn max(&self, class: Class) -> u64 {
        match class {
            Class::Normal => self.shared.cap - self.shared.reserve,
            Class::Reserve | Class::Elastic => self.shared.cap,
        }
    }

    /// Bytes granted now.
    pub fn used(&self) -> u64 {
        self.shared.state.lock().used
    }

    /// The most bytes that were ever granted at once.
    pub fn used_max(&self) -> u64 {
        self.shared.state.lock().used_max
    }

    /// Bytes that this holder has now.
    pub fn held(&self) -> u64 {
        self.shared.state.lock().held[self.holder as usize].0
    }

    /// The most bytes that this holder ever had at once.
    pub fn held_max(&self) -> u64 {
        self.shared.state.lock().held[self.holder as usize].1
    }

    /// Who has what.
    pub fn snapshot(&self) -> Snapshot {
        let waited_for = self.wanted();
        let state = self.shared.state.lock();
        let holding = |holder: Holder| {
            let (bytes, bytes_max) = state.held[holder as usize];
            Holding { holder, bytes, bytes_max }
        };
        Snapshot {
            cap: self.shared.cap,
            used: state.used,
            used_max: state.used_max,
            waited_for,
            holdings: Holder::ALL.map(holding).to_vec(),
        }
    }

    /// Bytes that askers wait for: above zero, who can give memory back should.
    pub fn wanted(&self) -> u64 {
        let state = self.shared.state.lock();
        state.waiting.iter().chain(&state.reserve_waiting).map(|w| w.bytes).sum()
    }

    /// Has `reclaimer`, whose grants are of `class`, called whenever somebody would have to wait for what it has,
    /// as long as it lives. Those that come first are called last.
    pub fn add_reclaimer(&self, class: Class, reclaimer: Weak<dyn Reclaim>) {
        let mut state = self.shared.state.lock();
        state.reclaimers.retain(|(_, other)| other.strong_count() > 0);
        state.reclaimers.push((class, reclaimer));
    }

    /// A grant of `bytes`, if it can be had now without overtaking anybody who waits.
    pub fn try_grant(&self, class: Class, bytes: u64) -> Option<Grant> {
        let mut state = self.shared.state.lock();
        self.may(&state, class, bytes).then(|| self.book(&mut state, class, bytes))
    }

    /// As [`Account::try_grant`], if this holder has no more than `max` bytes then.
    pub fn try_grant_within(&self, class: Class, bytes: u64, max: u64) -> Option<Grant> {
        let mut state = self.shared.state.lock();
        let held = state.held[self.holder as usize].0;
        let may = held.saturating_add(bytes) <= max && self.may(&state, class, bytes);
        may.then(|| self.book(&mut state, class, bytes))
    }

    /// A grant of nothing, to grow.
    pub fn empty(&self, class: Class) -> Grant {
        Grant { account: self.clone(), class, bytes: 0 }
    }

    /// A grant of `bytes` at once, whoever waits: for what its holder bounds by itself and nobody may wait for.
    /// Caches give way; the cap is exceeded if that is not enough.
    pub fn take(&self, bytes: u64) -> Grant {
        let mut state = self.shared.state.lock();
        let grant = self.book(&mut state, Class::Reserve, bytes);
        let over = state.used.saturating_sub(self.shared.cap);
        drop(state);
        self.reclaim(over, 0);
        grant
    }

    /// Has all that is only kept for speed given back: nobody has done anything for a while.
    pub fn rest(&self) {
        let reclaimers = self.shared.state.lock().reclaimers.clone();
        // Twice: what one lets go may come to lie in another, as buffers of a cache in their pool.
        for _ in 0..2 {
            let alive = reclaimers.iter().filter_map(|(_, reclaimer)| reclaimer.upgrade());
            alive.for_each(|reclaimer| reclaimer.rest());
        }
    }

    /// Is `class` granted so much at once?
    fn may(&self, state: &State, class: Class, bytes: u64) -> bool {
        let first = match class {
            Class::Normal | Class::Elastic => {
                state.waiting.is_empty() && state.reserve_waiting.is_empty()
            }
            Class::Reserve => state.reserve_waiting.is_empty(),
        };
        first && self.fits(state, class, bytes)
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
        let mut state = self.shared.state.lock();
        let (ticket, rung) = (state.ticket_next, Arc::new(Condvar::new()));
        state.ticket_next += 1;
        let waiter = Waiter { ticket, holder: self.holder, class, bytes, rung: rung.clone() };
        state.line(class).push_back(waiter);
        let start = time::now();
        // It leaves the line with its grant, which whoever gives something back has booked for it.
        while state.line(class).front().is_some_and(|first| first.ticket <= ticket) {
            if state.first().is_none_or(|first| first.ticket != ticket) {
                state = rung.wait(state);
                continue;
            }
            let least = class == Class::Normal && state.normal + bytes <= max / LEAST_PART;
            if self.fits(&state, class, bytes) || least && start.elapsed() > STUCK_AFTER {
                drop(state.served(class));
                self.serve(state, true);
                break;
            }
            let over = (state.used + bytes).saturating_sub(self.shared.cap);
            let normal = if class == Class::Normal { state.normal + bytes } else { 0 };
            drop(state);
            self.reclaim(over, normal.saturating_sub(max));
            state = self.shared.state.lock();
            let is_first = state.first().is_some_and(|first| first.ticket == ticket);
            if is_first && !self.fits(&state, class, bytes) {
                // A cache may let go of something later without dropping its grant: it is asked again.
                state = rung.wait_timeout(state, RECLAIM_AGAIN).0;
            }
        }
        Ok(Grant { account: self.clone(), class, bytes })
    }

    /// Those who wait get what fits, in the order of asking. It is booked for them: nobody behind them waits until they have
    /// woken up. If the line has moved, who is the first then is rung as well, to have caches give way.
    fn serve(&self, mut state: MutexGuard<'_, State>, has_moved: bool) {
        let mut rung = Vec::new();
        while let Some((class, bytes)) = state.first().map(|first| (first.class, first.bytes))
            && self.fits(&state, class, bytes)
        {
            rung.extend(state.served(class));
        }
        if has_moved || !rung.is_empty() {
            rung.extend(state.first().map(|first| first.rung.clone()));
        }
        drop(state);
        rung.iter().for_each(|waiter| waiter.notify_one());
    }

    fn fits(&self, state: &State, class: Class, bytes: u64) -> bool {
        let below = |used: u64, max: u64| used.checked_add(bytes).is_some_and(|used| used <= max);
        let own = class != Class::Normal || below(state.normal, self.max(Class::Normal));
        own && below(state.used, self.shared.cap)
    }

    fn book(&self, state: &mut State, class: Class, bytes: u64) -> Grant {
        state.add(self.holder, class, bytes);
        Grant { account: self.clone(), class, bytes }
    }

    fn give(&self, class: Class, bytes: u64) {
        if bytes == 0 {
            return;
        }
        let mut state = self.shared.state.lock();
        state.remove(self.holder, class, bytes);
        self.serve(state, false);
    }

    /// Has `over` bytes given back by whoever can, and `normal` bytes by those who have them of [`Class::Normal`].
    fn reclaim(&self, over: u64, normal: u64) {
        if over == 0 && normal == 0 {
            return;
        }
        let state = self.shared.state.lock();
        let goals = (state.used.saturating_sub(over), state.normal.saturating_sub(normal));
        let reclaimers = state.reclaimers.clone();
        drop(state);
        for (class, reclaimer) in reclaimers.iter().rev() {
            let (used, normal) = {
                let state = self.shared.state.lock();
                (state.used.saturating_sub(goals.0), state.normal.saturating_sub(goals.1))
            };
            let wanted = if *class == Class::Normal { used.max(normal) } else { used };
            if let Some(reclaimer) = reclaimer.upgrade().filter(|_| wanted > 0) {
                reclaimer.reclaim(wanted);
            }
        }
    }
}

impl std::fmt::Debug for Account {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Account(of {} bytes)", self.shared.cap)
    }
}

/// Memory that may be used, until it is dropped.
#[must_use = "the memory is given back when the grant is dropped"]
pub struct Grant {
    account: Account,
    class: Class,
    bytes: u64,
}

impl Grant {
    /// Bytes of this grant.
    pub fn bytes(&self) -> u64 {
        self.bytes
    }

    /// The account that it is of.
    pub fn account(&self) -> &Account {
        &self.account
    }

    /// Gives back all but `bytes`; nothing when it holds no more than that.
    pub fn shrink(&mut self, bytes: u64) {
        let surplus = self.bytes.saturating_sub(bytes);
        self.bytes -= surplus;
        self.account.give(self.class, surplus);
    }

    /// Makes it `bytes` larger, if that can be had now; whether it was.
    pub fn try_grow(&mut self, bytes: u64) -> bool {
        let more = self.account.try_grant(self.class, bytes);
        more.map(|more| self.merge(more)).is_some()
    }

    /// Makes it `bytes` large, as [`Account::take`] does if that is more than it is.
    pub fn set(&mut self, bytes: u64) {
        self.shrink(bytes);
        let missing = bytes - self.bytes;
        if missing > 0 {
            let account = self.account.clone();
            let mut state = account.shared.state.lock();
            state.add(account.holder, self.class, missing);
            self.bytes = bytes;
            let over = state.used.saturating_sub(account.shared.cap);
            drop(state);
            account.reclaim(over, 0);
        }
    }

    /// Makes it `bytes` larger, whoever waits; nobody gives way yet. For memory that is there already.
    pub fn admit(&mut self, bytes: u64) {
        self.account.shared.state.lock().add(self.account.holder, self.class, bytes);
        self.bytes += bytes;
    }

    /// A grant of its own for `bytes` of this one (at most all of them).
    pub fn split(&mut self, bytes: u64) -> Grant {
        let bytes = bytes.min(self.bytes);
        self.bytes -= bytes;
        Grant { account: self.account.clone(), class: self.class, bytes }
    }

    /// Takes over `other`'s bytes.
    ///
    /// # Panics
    /// When it is from another account, or for another holder or class.
    pub fn merge(&mut self, mut other: Grant) {
        let same = Arc::ptr_eq(&self.account.shared, &other.account.shared);
        let same = same && self.account.holder == other.account.holder;
        assert!(same && self.class == other.class, "grants of one holder");
        self.bytes += std::mem::take(&mut other.bytes);
    }
}

impl Drop for Grant {
    fn drop(&mut self) {
        self.account.give(self.class, self.bytes);
    }
}

impl std::fmt::Debug for Grant {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Grant({} bytes)", self.bytes)
    }
}

#[cfg(test)]
mod tests;
