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
    /// It stands in the ZAP.
    entered: bool,
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
    /// What devices do not give just now: tried again in the next txg in which anything else is changed.
    later: Vec<Dying>,
    /// Where entries begin that are not known; `None`: all are, or what is there is damaged.
    rest: Option<Cursor>,
    /// Of those, too, devices give nothing just now.
    rest_later: bool,
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
        let waits = |k: &Known| !k.dying.is_empty() || k.rest.is_some() && !k.rest_later;
        self.known.lock().as_ref().is_some_and(waits)
    }
}

impl Known {
    fn new(queue: Zap, kin: Box<Kin>, rest: Option<Cursor>) -> Known {
        let (dying, later, stalled) = Default::default();
        Known { queue, kin, dying, later, rest, rest_later: false, stalled }
    }

    /// Has a number stand in the ZAP. If its place there is damaged it does not: then a crash, or a close before its end,
    /// costs the space of the object, and nothing else.
    fn enter(&self, tx: &Tx<'_>, number: u64) -> bool {
        self.queue.add_int(tx, number).is_ok()
    }

    /// Is it somewhere else already?
    fn has(&self, number: u64) -> bool {
        let later = self.later.iter().map(|dying| &dying.object);
        self.stalled.iter().chain(later).any(|object| object.number() == number)
    }
}

impl Objset {
    /// From now on objects can be freed in portions: what waits stands in `queue`, which nobody else
    /// changes. What it has already is worked off, too, if `kin` says so.
    pub fn free_in_portions(&self, queue: Zap, kin: Box<Kin>) -> Result<()> {
        let mut known = self.reaper.known.lock();
        if known.is_none() {
            let rest = (queue.count()? > 0).then_some(Cursor::START);
            *known = Some(Known::new(queue, kin, rest));
            self.reaper.ready.store(true, Ordering::Release);
        }
        Ok(())
    }

    /// Was [`Objset::free_in_portions`] called?
    pub fn frees_in_portions(&self) -> bool {
        self.reaper.ready.load(Ordering::Acquire)
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
        if !self.frees_in_portions() {
            let what = "nothing is freed in portions here";
            return Err(DmuError::Limit { object: number, what });
        }
        let object = self.object(number)?;
        object.doom(tx)?;
        let fresh = Fresh { txg: tx.txg(), dying: Dying { object, kin, entered: false } };
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
        if !self.frees_in_portions() {
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
        let going: BTreeSet<u64> = fresh.iter().map(|dying| dying.object.number()).collect();
        let entering: Vec<(u64, u64)> = {
            let mut entering = self.reaper.entering.lock();
            let (now, later) =
                std::mem::take(&mut *entering).into_iter().partition(|(txg, _)| *txg == tx.txg());
            *entering = later;
            now
        };
        for (_, number) in entering {
            // What goes in the txg in which it has lost its name stands there only if it does not go as a whole.
            let goes = going.contains(&number);
            if goes || !known.enter(tx, number) {
                self.reaper.orphans.lock().remove(&number);
            }
        }
        known.dying.extend(known.later.drain(..));
        known.rest_later = false;
        while left > 0
            && let Some(mut dying) = self.next(known, tx)
        {
            match self.shorten(tx, known, &mut dying, &mut left)? {
                Step::Gone => {}
                Step::Shorter => known.dying.push_front(dying),
                Step::Later => known.later.push(dying),
                Step::Stalled => known.stalled.push(dying.object),
            }
        }
        for mut dying in fresh {
            dying.entered = self.reaper.orphans.lock().remove(&dying.object.number());
            match self.shorten(tx, known, &mut dying, &mut left)? {
                Step::Gone => {}
                Step::Shorter if known.dying.len() < KNOWN_MAX || !dying.entered => {
                    known.dying.push_back(dying);
                }
                Step::Shorter => known.rest = Some(Cursor::START),
                Step::Later => known.later.push(dying),
                Step::Stalled => known.stalled.push(dying.object),
            }
        }
        Ok(left)
    }

    /// The next object to free, from memory or from the ZAP.
    fn next(&self, known: &mut Known, tx: &Tx<'_>) -> Option<Dying> {
        loop {
            if let Some(dying) = known.dying.pop_front() {
                return Some(dying);
            }
            let from = known.rest?;
            match known.queue.list(from, BATCH) {
                Ok((entries, rest)) => {
                    known.rest = (rest != Cursor::END).then_some(rest);
                    for number in entries.iter().filter_map(|entry| entry.value.as_u64()) {
                        known.dying.extend(self.left_over(known, tx, number));
                    }
                }
                Err(error) if error.may_pass() => {
                    known.rest_later = true;
                    return None;
                }
                // What comes behind stays, and costs the others nothing.
                Err(_) => known.rest = None,
            }
        }
    }

    /// An object that stands in the ZAP and is not known.
    fn left_over(&self, known: &Known, tx: &Tx<'_>, number: u64) -> Option<Dying> {
        if known.has(number) || self.reaper.orphans.lock().contains(&number) {
            return None;
        }
        // An entry without an object: only a damaged pool has one, and it stays as it is.
        let object = self.any_object(number).ok()?;
        let kin = (known.kin)(self, &object).ok()??;
        object.doom_at_sync(tx).then_some(Dying { object, kin, entered: true })
    }

    /// Frees about `left` blocks of a dying object. What is not gone then stands in the ZAP.
    fn shorten(
        &self,
        tx: &Tx<'_>,
        known: &mut Known,
        dying: &mut Dying,
        left: &mut u64,
    ) -> Result<Step> {
        let (object, number) = (dying.object.clone(), dying.object.number());
        let step = match object.left(*left) {
            Ok(Left::All(blocks)) => {
                // First the entry: one that outlives its object is that of whoever gets the number next.
                let removed =
                    if dying.entered { known.queue.remove_int(tx, number) } else { Ok(true) };
                if let Err(error) = removed {
                    return Ok(Step::after(&error));
                }
                object.end(tx)?;
                let many = (*left).max(1);
                for number in &dying.kin {
                    self.end_kin(tx, known, *number, many)?;
                }
                *left = left.saturating_sub(blocks + 1);
                return Ok(Step::Gone);
            }
            Ok(Left::More(tail)) => {
                if *left > 0 {
                    object.shorten(tx, tail.first)?;
                }
                *left = left.saturating_sub(tail.blocks);
                Step::Shorter
            }
            // What cannot be walked cannot be freed; the pool goes on.
            Err(error) => Step::after(&error),
        };
        dying.entered = dying.entered || known.enter(tx, number);
        Ok(step)
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
        let entered = known.enter(tx, number);
        known.dying.push_back(Dying { object, kin: Vec::new(), entered });
        Ok(())
    }
}

enum Step {
    Gone,
    Shorter,
    Later,
    Stalled,
}

impl Step {
    /// What becomes of an object that was kept from going.
    fn after(error: &DmuError) -> Step {
        if error.may_pass() { Step::Later } else { Step::Stalled }
    }
}
