//! What a leaf lacks: the txgs that were written without it.
//!
//! Place: beside each leaf of the tree; `pool` loads it from the leaf's DTL and puts it there again.
//! The one idea: a leaf that missed a write of a txg is believed nothing of that txg, until it was filled
//! again. Most leaves lack nothing, so a reader looks at one flag and takes no lock.

use std::ops::RangeInclusive;

use format::dtl::Dtl;
use rt::sync::Mutex;
use rt::sync::atomic::{AtomicBool, AtomicU64, Ordering};

/// The txgs whose data a leaf lacks.
#[derive(Default)]
pub struct Lacks {
    any: AtomicBool,
    /// The last txg that was noted; 0: none since the tree was opened.
    noted: AtomicU64,
    state: Mutex<State>,
}

#[derive(Default)]
struct State {
    txgs: Dtl,
    changed: bool,
}

impl Lacks {
    /// Does the leaf lack what was written in txg `birth`?
    pub fn contains(&self, birth: u64) -> bool {
        self.any.load(Ordering::Acquire) && self.state.lock().txgs.contains(birth)
    }

    /// Does the leaf lack something that was written in one of these txgs?
    pub fn overlaps(&self, txgs: RangeInclusive<u64>) -> bool {
        let end = txgs.end().saturating_add(1);
        self.any.load(Ordering::Acquire) && self.state.lock().txgs.overlaps(*txgs.start(), end)
    }

    /// Takes what the leaf's DTL on disk says.
    pub fn load(&self, txgs: Dtl) {
        let mut state = self.state.lock();
        self.any.store(!txgs.is_empty(), Ordering::Release);
        *state = State { txgs, changed: false };
    }

    /// The leaf lacks what was written in the txgs `[start, end)`, too.
    pub fn add(&self, start: u64, end: u64) {
        let mut state = self.state.lock();
        state.txgs.add(start, end);
        state.changed = true;
        self.any.store(true, Ordering::Release);
    }

    /// The leaf lacks these, whatever it lacked before; they go to disk.
    pub fn set(&self, txgs: Dtl) {
        let mut state = self.state.lock();
        self.any.store(!txgs.is_empty(), Ordering::Release);
        *state = State { txgs, changed: true };
    }

    /// Notes that the leaf missed a write of `txg`. Cheap when it was noted before.
    pub fn note(&self, txg: u64) {
        if txg == 0 || self.noted.load(Ordering::Acquire) == txg {
            return;
        }
        let mut state = self.state.lock();
        if !state.txgs.contains(txg) {
            state.txgs.add(txg, txg + 1);
            state.changed = true;
        }
        self.any.store(true, Ordering::Release);
        self.noted.store(txg, Ordering::Release);
    }

    /// The leaf was given what was written in the txgs `[start, end)`.
    pub fn remove(&self, start: u64, end: u64) {
        let mut state = self.state.lock();
        if !state.txgs.overlaps(start, end) {
            return;
        }
        state.txgs.remove(start, end);
        state.changed = true;
        self.any.store(!state.txgs.is_empty(), Ordering::Release);
        self.noted.store(0, Ordering::Release);
    }

    /// Has that changed since it was asked for (or loaded)?
    pub fn is_changed(&self) -> bool {
        self.state.lock().changed
    }

    /// Does the leaf lack nothing?
    pub fn is_empty(&self) -> bool {
        !self.any.load(Ordering::Acquire)
    }

    /// What the leaf lacks, if that has changed since it was asked last (or loaded).
    pub fn take_changed(&self) -> Option<Dtl> {
        let mut state = self.state.lock();
        std::mem::take(&mut state.changed).then(|| state.txgs.clone())
    }

    /// What the leaf lacks.
    pub fn txgs(&self) -> Dtl {
        self.state.lock().txgs.clone()
    }
}
