//! Freeing large objects in portions: those that wait stand in a ZAP, so that a crash loses none.
//!
//! Place: beside `objset`, which asks it once in each sync. The one idea: only the sync changes the
//! ZAP and what stands in it. Whoever frees an object takes it out of everybody's sight in its own txg;
//! the sync of that txg frees the first portion, and enters what is left. So an object is in the ZAP
//! exactly as long as it is on disk without a name. What has lost its name but is in use (an orphan) stands there,
//! too, and everybody sees it as before, until who uses it has it freed. FORMAT: section 11.7.

use std::collections::{BTreeSet, VecDeque};

use format::DnodePhys;
use format::zap::Cursor;
use rt::sync::atomic::{AtomicBool, Ordering};
use rt::sync::{Arc, Mutex};

use crate::error::{DmuError, Result};
use crate::object::{Left, Object};
use crate::objset::Objset;
use crate::txg::Tx;
use crate::zap_object::Zap;

/// Objects that are kept out of sight; more wait in the ZAP alone, where nobody looks for them.
const KNOWN_MAX: usize = 4096;
/// Entries of the ZAP that are looked at together.
const BATCH: usize = 256;

/// Of an object that stood in the ZAP when the pool was opened: what goes with it, by number; `None`
/// if it must stay.
pub type Kin = dyn Fn(&Objset, &Arc<Object>) -> Result<Option<Vec<u64>>> + Send + Sync;

/// An object that goes, and those that go with it in the txg of its end.
struct Dying {
    object: Arc<Object>,
    kin: Vec<u64>,
}

/// What a writer has doomed in a txg that is not synced yet.
struct Fresh {
    txg: u64,
    dying: Dying,
}

struct Known {
    queue: Zap,
    kin: Box<Kin>,
    dying: VecDeque<Dying>,
    /// Where entries begin that are not known; `None`: all are.
    rest: Option<Cursor>,
    /// What cannot be freed as the pool is: it stays in the ZAP, and out of sight.
    stalled: Vec<Arc<Object>>,
}

/// The objects of an object set that go in portions.
#[derive(Default)]
pub(crate) struct Reaper {
    /// Locked by the sync while it reads: who is inside a txg asks `ready`.
    known: Mutex<Option<Known>>,
    ready: AtomicBool,
    fresh: Mutex<Vec<Fresh>>,
    /// Orphans: in the ZAP, or to be entered, and not to be freed by whoever finds them there.
    orphans: Mutex<BTreeSet<u64>>,
    /// Orphans that the sync of a txg enters.
    entering: Mutex<Vec<(u64, u64)>>,
}

impl Reaper {
    /// Is something left for the next sync, whatever txg it is of?
    fn waits(&self) -> bool {
        self.known.lock().as_ref().is_some_and(|k| !k.dying.is_empty() || k.rest.is_some())
    }
}

impl Objset {
    /// From now on objects can be freed in portions: what waits stands in `queue`, which nobody else
    /// changes. What it has already is worked off, too, if `kin` says so.
    pub fn free_in_portions(&self, queue: Zap, kin: Box<Kin>) -> Result<()> {
        let mut known = self.reaper.known.lock();
        if known.is_none() {
            let rest = (queue.count()? > 0).then_some(Cursor::START);
            let (dying, stalled) = Default::default();
            *known = Some(Known { queue, kin, dying, rest, stalled });
            self.reaper.ready.store(true, Ordering::Release);
        }
        Ok(())
    }

    /// Is anything left that the next sync frees a portion of?
    pub fn has_left(&self) -> bool {
        self.reaper.waits()
    }

    /// Frees an object, and `kin` with its end, in portions: as much in each sync as
    /// [`Syncing::frees`](crate::Syncing) says. It is gone at once for all who look for it.
    ///
    /// # Errors
    /// [`Objset::free_in_portions`] was not called, or there is no such object.
    pub fn free_slowly(&self, tx: &Tx<'_>, number: u64, kin: Vec<u64>) -> Result<()> {
        if !self.reaper.ready.load(Ordering::Acquire) {
            let what = "nothing is freed in portions here";
            return Err(DmuError::Limit { object: number, what });
        }
        let object = self.object(number)?;
        object.doom(tx)?;
        let fresh = Fresh { txg: tx.txg(), dying: Dying { object, kin } };
        self.reaper.fresh.lock().push(fresh);
        Ok(())
    }

    /// Notes that an object has lost its last name but is used on: should the pool not be closed in peace, it is
    /// freed when it is opened the next time, else by [`Objset::free_slowly`]. The change must be one of the object,
    /// too.
    ///
    /// # Errors
    /// [`Objset::free_in_portions`] was not called.
    pub fn orphan(&self, tx: &Tx<'_>, number: u64) -> Result<()> {
        if !self.reaper.ready.load(Ordering::Acquire) {
            let what = "nothing is freed in portions here";
            return Err(DmuError::Limit { object: number, what });
        }
        self.reaper.orphans.lock().insert(number);
        self.reaper.entering.lock().push((tx.txg(), number));
        Ok(())
    }

    /// Frees the next portion, of about `left` blocks, in the sync of `tx`. Returns how many of them
    /// it has not used.
    pub(crate) fn reap(&self, tx: &Tx<'_>, mut left: u64) -> Result<u64> {
        let fresh: Vec<Dying> = {
            let mut fresh = self.reaper.fresh.lock();
            let (now, later) =
                std::mem::take(&mut *fresh).into_iter().partition(|f| f.txg == tx.txg());
            *fresh = later;
            now.into_iter().map(|f: Fresh| f.dying).collect()
        };
        let mut known = self.reaper.known.lock();
        let Some(known) = known.as_mut() else { return Ok(left) };
        let entering: Vec<(u64, u64)> = {
            let mut entering = self.reaper.entering.lock();
            let (now, later) =
                std::mem::take(&mut *entering).into_iter().partition(|(txg, _)| *txg == tx.txg());
            *entering = later;
            now
        };
        for (_, number) in entering {
            known.queue.add_int(tx, number)?;
        }
        while left > 0
            && let Some(dying) = self.next(known, tx)?
        {
            match self.shorten(tx, known, &dying, &mut left)? {
                Step::Gone => drop(known.queue.remove_int(tx, dying.object.number())?),
                Step::Shorter => known.dying.push_front(dying),
                Step::Stalled => known.stalled.push(dying.object),
            }
        }
        for dying in fresh {
            let step = self.shorten(tx, known, &dying, &mut left)?;
            let was_orphan = self.reaper.orphans.lock().remove(&dying.object.number());
            match step {
                Step::Gone if was_orphan => {
                    known.queue.remove_int(tx, dying.object.number())?;
                }
                Step::Gone => {}
                Step::Shorter | Step::Stalled => {
                    known.queue.add_int(tx, dying.object.number())?;
                }
            }
            match step {
                Step::Shorter if known.dying.len() < KNOWN_MAX => known.dying.push_back(dying),
                Step::Shorter => known.rest = Some(Cursor::START),
                Step::Stalled => known.stalled.push(dying.object),
                Step::Gone => {}
            }
        }
        Ok(left)
    }

    /// The next object to free, from memory or from the ZAP.
    fn next(&self, known: &mut Known, tx: &Tx<'_>) -> Result<Option<Dying>> {
        loop {
            if let Some(dying) = known.dying.pop_front() {
                return Ok(Some(dying));
            }
            let Some(from) = known.rest else { return Ok(None) };
            let (entries, rest) = known.queue.list(from, BATCH)?;
            known.rest = (rest != Cursor::END).then_some(rest);
            for number in entries.iter().filter_map(|entry| entry.value.as_u64()) {
                if let Some(dying) = self.left_over(known, tx, number)? {
                    known.dying.push_back(dying);
                }
            }
        }
    }

    /// An object that stands in the ZAP and is not known.
    fn left_over(&self, known: &Known, tx: &Tx<'_>, number: u64) -> Result<Option<Dying>> {
        if known.stalled.iter().any(|object| object.number() == number)
            || self.reaper.orphans.lock().contains(&number)
        {
            return Ok(None);
        }
        // An entry without an object: only a damaged pool has one, and it stays as it is.
        let Ok(object) = self.any_object(number) else { return Ok(None) };
        let kin = match (known.kin)(self, &object) {
            Ok(Some(kin)) => kin,
            Ok(None) | Err(_) => return Ok(None),
        };
        Ok(object.doom_at_sync(tx).then_some(Dying { object, kin }))
    }

    /// Frees about `left` blocks of a dying object.
    fn shorten(
        &self,
        tx: &Tx<'_>,
        known: &mut Known,
        dying: &Dying,
        left: &mut u64,
    ) -> Result<Step> {
        let object = &dying.object;
        match object.left(*left) {
            // What cannot be walked cannot be freed; the pool goes on.
            Err(_) => Ok(Step::Stalled),
            Ok(Left::All(blocks)) => {
                object.end(tx)?;
                let many = (*left).max(1);
                for number in &dying.kin {
                    self.end_kin(tx, known, *number, many)?;
                }
                *left = left.saturating_sub(blocks + 1);
                Ok(Step::Gone)
            }
            Ok(Left::More(tail)) => {
                if *left > 0 {
                    object.shorten(tx, tail.first)?;
                }
                *left = left.saturating_sub(tail.blocks);
                Ok(Step::Shorter)
            }
        }
    }

    /// Frees what goes with an object: at once, or by itself if it is large.
    fn end_kin(&self, tx: &Tx<'_>, known: &mut Known, number: u64, many: u64) -> Result<()> {
        let Ok(object) = self.object(number) else { return Ok(()) };
        if !object.doom_at_sync(tx) {
            return Ok(());
        }
        if object.synced().as_ref().is_none_or(|dnode| DnodePhys::max_block(dnode) < many) {
            return object.end(tx);
        }
        known.queue.add_int(tx, number)?;
        known.dying.push_back(Dying { object, kin: Vec::new() });
        Ok(())
    }
}

#[derive(PartialEq, Eq)]
enum Step {
    Gone,
    Shorter,
    Stalled,
}
