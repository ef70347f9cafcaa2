//! Transaction groups: open, quiescing, syncing (INV-6).
//!
//! A change is made under a [`Tx`], which pins the open txg. Closing a txg lets its holders go on
//! and hands new ones the next; when the last holder has left, the txg is frozen and can be synced.
//! Writers wait while too much is dirty: the more, the longer, so that nobody meets a cliff. What is dirty is
//! leased from the account as it is made (INV-5), in steps: nobody waits for memory inside a txg. So what a change may
//! make dirty is promised to it before it begins.

use rt::Grant;
use rt::mem::{Account, Holder, Member};
use rt::sync::atomic::{AtomicU64, Ordering};
use rt::sync::{Condvar, Mutex};

/// Number of txgs whose state is kept apart: open, quiescing, syncing, and one to spare.
pub const TXG_SIZE: usize = 4;

/// However many pools there are, so many bytes may be dirty in each.
const DIRTY_LEAST: u64 = 4 << 20;
/// What is dirty is leased in steps of so many bytes.
const STEP: u64 = 1 << 20;

struct State {
    open: u64,
    /// Txgs up to this one are on stable storage.
    synced: u64,
    holders: [u64; TXG_SIZE],
    /// Bytes that changes under way may still make dirty.
    promised_bytes: u64,
    /// Changes that wait for room.
    waiting: u64,
    /// No further change is taken: the pool is closing.
    refuses: bool,
    /// Nor is anything synced any more: the pool was closed or suspended.
    closed: bool,
}

/// The txgs of a pool.
pub struct Txgs {
    state: Mutex<State>,
    changed: Condvar,
    dirty_bytes: [AtomicU64; TXG_SIZE],
    /// Space that the dirty blocks will take, at worst.
    dirty_space: [AtomicU64; TXG_SIZE],
    /// Blocks on disk that changes free, about.
    freed_blocks: [AtomicU64; TXG_SIZE],
    /// For the dirty bytes of each.
    leases: [Mutex<Option<Grant>>; TXG_SIZE],
    /// Bytes that may be dirty, in all pools that share the account.
    dirty_max_bytes: u64,
    account: Member,
    /// Space that changes that have not ended were promised.
    promised_space: AtomicU64,
}

/// Room for a change that is about to be made: nobody else is promised the same.
pub struct Promise<'a> {
    txgs: &'a Txgs,
    space: u64,
    bytes: u64,
}

/// A change belongs to this txg; the txg cannot be synced before the `Tx` is dropped.
pub struct Tx<'a> {
    txgs: &'a Txgs,
    txg: u64,
    held: bool,
    /// Bytes of memory that it was promised.
    bytes: u64,
    /// Kept until the change has dirtied what it was promised.
    promise: Option<Promise<'a>>,
}

/// The pool takes no more changes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("the pool takes no changes: it is being closed or was suspended")]
pub struct Closed;

impl Txgs {
    /// Txgs after `synced`, the last one on disk; writers wait when more than `dirty_max_bytes` are dirty in all pools
    /// that share the account, of which each has its part.
    pub fn new(synced: u64, dirty_max_bytes: u64, account: &Account) -> Self {
        Txgs {
            state: Mutex::new(State {
                open: synced + 1,
                synced,
                holders: [0; TXG_SIZE],
                promised_bytes: 0,
                waiting: 0,
                refuses: false,
                closed: false,
            }),
            changed: Condvar::new(),
            dirty_bytes: Default::default(),
            dirty_space: Default::default(),
            freed_blocks: Default::default(),
            leases: Default::default(),
            dirty_max_bytes,
            account: account.of(Holder::Dirty).join(),
            promised_space: AtomicU64::new(0),
        }
    }

    /// Counts `space` among what is promised. Whether there is room is the caller's to find out. The change may
    /// make about `bytes` dirty.
    pub fn promise(&self, space: u64, bytes: u64) -> Promise<'_> {
        self.promised_space.fetch_add(space, Ordering::Relaxed);
        Promise { txgs: self, space, bytes }
    }

    /// Bytes that may be dirty in this pool.
    pub fn dirty_max(&self) -> u64 {
        (self.dirty_max_bytes / self.account.account().members()).max(DIRTY_LEAST)
    }

    /// Space for what is dirty or promised: what may still have to find a place on disk.
    pub fn outstanding(&self) -> u64 {
        self.dirty_space().saturating_add(self.promised_space.load(Ordering::Relaxed))
    }

    /// Starts a change in the open txg; waits while too much is dirty.
    pub fn enter(&self) -> Result<Tx<'_>, Closed> {
        self.enter_for(0, |_, _| ())
    }

    /// For a change that makes about `bytes` dirty. `crowded` is told the open txg and how much is dirty in it before
    /// room is waited for: somebody must see to it that it is synced.
    fn enter_for(&self, bytes: u64, crowded: impl Fn(u64, u64)) -> Result<Tx<'_>, Closed> {
        let mut state = self.state.lock();
        // One that could not be kept is a part of all there is: it has its turn when little is dirty.
        let max = self.dirty_max();
        let bytes = bytes.min(max / 4);
        loop {
            if state.refuses {
                return Err(Closed);
            }
            if self.dirty() + state.promised_bytes + bytes < max {
                break;
            }
            let open = state.open as usize % TXG_SIZE;
            crowded(state.open, self.dirty_bytes[open].load(Ordering::Relaxed));
            state.waiting += 1;
            state = self.changed.wait(state);
            state.waiting -= 1;
        }
        let txg = state.open;
        state.holders[txg as usize % TXG_SIZE] += 1;
        state.promised_bytes += bytes;
        Ok(Tx { txgs: self, txg, held: true, bytes, promise: None })
    }

    /// Holds the open txg without waiting for room: for what makes nothing dirty.
    pub fn pin(&self) -> Result<Tx<'_>, Closed> {
        let mut state = self.state.lock();
        if state.refuses {
            return Err(Closed);
        }
        let txg = state.open;
        state.holders[txg as usize % TXG_SIZE] += 1;
        Ok(Tx { txgs: self, txg, held: true, bytes: 0, promise: None })
    }

    /// A handle for changes in the txg being synced; only the sync itself makes one.
    pub fn in_sync(&self, txg: u64) -> Tx<'_> {
        Tx { txgs: self, txg, held: false, bytes: 0, promise: None }
    }

    /// Bytes dirty in all living txgs.
    pub fn dirty(&self) -> u64 {
        self.dirty_bytes.iter().map(|b| b.load(Ordering::Relaxed)).sum()
    }

    /// Space that what is dirty in all living txgs will take, charged as the DSL charges it, for
    /// one copy and at worst: small blocks take more than their bytes.
    pub fn dirty_space(&self) -> u64 {
        self.dirty_space.iter().map(|b| b.load(Ordering::Relaxed)).sum()
    }

    /// Bytes dirty in the open txg.
    pub fn dirty_open(&self) -> u64 {
        let open = self.state.lock().open;
        self.dirty_bytes[open as usize % TXG_SIZE].load(Ordering::Relaxed)
    }

    /// Blocks that the changes of `txg`, which is not synced yet, free, about.
    pub fn freed_blocks(&self, txg: u64) -> u64 {
        self.freed_blocks[txg as usize % TXG_SIZE].load(Ordering::Relaxed)
    }

    /// Closes the open txg, waits for its holders and returns it, frozen.
    pub fn freeze(&self) -> u64 {
        let mut state = self.state.lock();
        let txg = state.open;
        assert!(txg <= state.synced + 2, "INV-6: more than three txgs alive");
        state.open += 1;
        while state.holders[txg as usize % TXG_SIZE] > 0 {
            state = self.changed.wait(state);
        }
        txg
    }

    /// Txg `txg` is on stable storage.
    pub fn synced(&self, txg: u64) {
        self.dirty_bytes[txg as usize % TXG_SIZE].store(0, Ordering::Relaxed);
        self.dirty_space[txg as usize % TXG_SIZE].store(0, Ordering::Relaxed);
        self.freed_blocks[txg as usize % TXG_SIZE].store(0, Ordering::Relaxed);
        drop(self.leases[txg as usize % TXG_SIZE].lock().take());
        self.state.lock().synced = txg;
        self.changed.notify_all();
    }

    /// Waits until `txg` is on stable storage; `false` if the pool closed before.
    pub fn wait_synced(&self, txg: u64) -> bool {
        let mut state = self.state.lock();
        while state.synced < txg && !state.closed {
            state = self.changed.wait(state);
        }
        state.synced >= txg
    }

    /// The last txg on stable storage.
    pub fn last_synced(&self) -> u64 {
        self.state.lock().synced
    }

    /// The open txg.
    pub fn open(&self) -> u64 {
        self.state.lock().open
    }

    /// Takes no more changes: what was taken can be synced to its end.
    pub fn refuse(&self) {
        self.state.lock().refuses = true;
        self.changed.notify_all();
    }

    /// Takes no more changes and wakes everybody who waits.
    pub fn close(&self) {
        let mut state = self.state.lock();
        (state.refuses, state.closed) = (true, true);
        drop(state);
        self.changed.notify_all();
    }
}

impl<'a> Promise<'a> {
    /// As [`Txgs::enter`]; the promise is kept until the change ends. `crowded` is told the open txg and how much is
    /// dirty in it before room is waited for: it sees to it that it is synced, and waits for nothing.
    pub fn enter(self, crowded: impl Fn(u64, u64)) -> Result<Tx<'a>, Closed> {
        let mut tx = self.txgs.enter_for(self.bytes, crowded)?;
        tx.promise = Some(self);
        Ok(tx)
    }
}

impl Drop for Promise<'_> {
    fn drop(&mut self) {
        self.txgs.promised_space.fetch_sub(self.space, Ordering::Relaxed);
    }
}

impl Tx<'_> {
    /// The txg that the change belongs to.
    pub fn txg(&self) -> u64 {
        self.txg
    }

    /// Notes that the change frees about so many blocks that are on disk: its sync walks them.
    pub fn frees(&self, blocks: u64) {
        let index = self.txg as usize % TXG_SIZE;
        self.txgs.freed_blocks[index].fetch_add(blocks, Ordering::Relaxed);
    }

    /// Notes memory that the txg holds until it is synced, and space that it will take on disk.
    pub fn dirtied(&self, bytes: u64, space: u64) {
        let index = self.txg as usize % TXG_SIZE;
        let before = self.txgs.dirty_bytes[index].fetch_add(bytes, Ordering::Relaxed);
        self.txgs.dirty_space[index].fetch_add(space, Ordering::Relaxed);
        let leased = (before + bytes).next_multiple_of(STEP);
        if before.next_multiple_of(STEP) != leased {
            let mut lease = self.txgs.leases[index].lock();
            match &mut *lease {
                Some(lease) if lease.bytes() < leased => lease.set(leased),
                Some(_) => {}
                None => *lease = Some(self.txgs.account.account().take(leased)),
            }
        }
    }
}

impl Drop for Tx<'_> {
    fn drop(&mut self) {
        if self.held {
            let mut state = self.txgs.state.lock();
            let holders = &mut state.holders[self.txg as usize % TXG_SIZE];
            *holders -= 1;
            let last = *holders == 0;
            state.promised_bytes -= self.bytes;
            if last || self.bytes > 0 && state.waiting > 0 {
                drop(state);
                self.txgs.changed.notify_all();
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_promise_lasts_as_long_as_the_change() {
        let txgs = Txgs::new(4, 1 << 20, &Account::new(4 << 20, 0));
        let (first, second) = (txgs.promise(300, 0), txgs.promise(500, 0));
        assert_eq!(txgs.outstanding(), 800);
        drop(second);
        let tx = first.enter(|_, _| ()).unwrap();
        tx.dirtied(100, 300);
        assert_eq!(txgs.outstanding(), 600);
        drop(tx);
        assert_eq!(txgs.outstanding(), 300);
    }

    #[test]
    fn a_change_belongs_to_one_txg_and_holds_it() {
        let txgs = Txgs::new(4, 1 << 20, &Account::new(4 << 20, 0));
        let tx = txgs.enter().unwrap();
        assert_eq!(tx.txg(), 5);
        tx.dirtied(100, 300);
        assert_eq!((txgs.dirty(), txgs.dirty_space()), (100, 300));
        drop(tx);
        assert_eq!(txgs.freeze(), 5);
        assert_eq!(txgs.enter().unwrap().txg(), 6);
        txgs.synced(5);
        assert_eq!((txgs.dirty(), txgs.dirty_space(), txgs.last_synced()), (0, 0, 5));
        txgs.close();
        assert_eq!(txgs.enter().err(), Some(Closed));
    }

    #[test]
    fn what_is_dirty_is_leased_until_it_is_synced() {
        let account = Account::new(64 << 20, 0);
        let txgs = Txgs::new(4, 32 << 20, &account);
        let tx = txgs.enter().unwrap();
        tx.dirtied(100, 300);
        assert_eq!(account.used(), 1 << 20);
        tx.dirtied((3 << 20) - 100, 0);
        assert_eq!(account.used(), 3 << 20);
        tx.dirtied(1, 0);
        assert_eq!(account.used(), 4 << 20);
        drop(tx);
        let other = Txgs::new(4, 32 << 20, &account);
        assert_eq!((txgs.dirty_max(), other.dirty_max()), (16 << 20, 16 << 20));
        drop(other);
        txgs.freeze();
        txgs.synced(5);
        assert_eq!((account.used(), account.of(Holder::Dirty).held_max()), (0, 4 << 20));
    }

    /// However many come at once, they make no more dirty than may be.
    #[test]
    fn who_would_make_too_much_dirty_waits() {
        let account = Account::new(64 << 20, 0);
        let txgs = std::sync::Arc::new(Txgs::new(4, 8 << 20, &account));
        let enter = |txgs: &'_ Txgs| txgs.promise(0, 2 << 20).enter(|_, _| ()).map(drop);
        let first: Vec<_> =
            (0..3).map(|_| txgs.promise(0, 2 << 20).enter(|_, _| ()).unwrap()).collect();
        let (sent, entered) = rt::sync::mpsc::bounded(1);
        let theirs = txgs.clone();
        let late = rt::thread::spawn("late", move || {
            enter(&theirs).unwrap();
            sent.send(()).unwrap();
        });
        while txgs.state.lock().waiting == 0 {
            rt::thread::yield_now();
        }
        drop(first);
        entered.recv().unwrap();
        late.join();
        let state = txgs.state.lock();
        assert_eq!((state.waiting, state.promised_bytes), (0, 0));
    }
}
