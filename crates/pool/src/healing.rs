//! Healing what was read wrong: the good bytes are written back to whoever lied.
//!
//! Place: a thread of each pool that is open for writing, behind [`store::Troubles`], which all reads tell.
//! The one idea: a place is healed, not a block. Under a hold on what is freed ([`store::Hold`]) its pointer is looked
//! up anew, so the block cannot become another while it is written over; all its copies and columns are examined, and
//! what is wrong gets what is right, leaf by leaf. What no copy can give goes into the error log.

use std::time::Duration;

use format::scan::Bookmark;
use format::{BlkPtr, Dva};
use rt::sync::Mutex;
use rt::sync::atomic::{AtomicU64, Ordering};
use store::{Part, StoreError, Trouble};
use vdev::{ReadScratch, WriteScratch};

use crate::errlog::ErrorLog;
use crate::error::Result;
use crate::pool::{Pool, Writing};

/// Who closes a pool waits so long for what is still to be healed.
const FINISH: Duration = Duration::from_secs(10);

/// What a pool has for it.
#[derive(Default)]
pub(crate) struct Healing {
    /// Blocks that nothing could give.
    pub(crate) log: ErrorLog,
    healed: AtomicU64,
    thread: Mutex<Option<rt::thread::JoinHandle<()>>>,
}

/// What was wrong with a block, and was put right if it could be.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Outcome {
    /// Nothing is there any more, or nothing is wrong with it.
    Fine,
    /// It was written back.
    Healed,
    /// The vdevs changed meanwhile: what was found is of leaves that may be others now.
    Again,
    /// No copy is good.
    Lost,
}

impl Pool {
    /// Blocks that were healed since the pool was opened.
    pub fn healed(&self) -> u64 {
        self.healing.healed.load(Ordering::Relaxed)
    }

    /// Waits until what was read wrong up to now is healed, or for so long; did it come to that?
    pub fn finish_healing(&self, within: Duration) -> bool {
        self.store.troubles().finish(within)
    }

    /// Starts the thread.
    pub(crate) fn start_healing(self: &rt::sync::Arc<Self>) {
        if self.writing.is_none() || self.in_memory {
            return;
        }
        let (troubles, pool) = (self.store.troubles().clone(), rt::sync::Arc::downgrade(self));
        troubles.serve();
        let body = move || {
            let mut scratch = Scratch::default();
            while let Some((at, trouble)) = troubles.next() {
                let Some(pool) = pool.upgrade() else { return };
                pool.heal(at, &trouble, &mut scratch);
            }
        };
        *self.healing.thread.lock() = Some(rt::thread::spawn("heal", body));
    }

    /// What is left is healed, within bounds, and from then on nothing is written by it.
    pub(crate) fn stop_healing(&self) {
        if self.suspended().is_none() {
            self.finish_healing(FINISH);
        }
        self.store.troubles().end();
        let thread = self.healing.thread.lock().take();
        if let Some(thread) = thread {
            thread.join();
        }
    }

    fn heal(&self, at: Bookmark, trouble: &Trouble, scratch: &mut Scratch) {
        let Some(writing) = &self.writing else { return };
        match self.heal_at(writing, at, trouble, scratch) {
            Ok(Outcome::Healed) => {
                self.healing.healed.fetch_add(1, Ordering::Relaxed);
            }
            Ok(Outcome::Lost) => self.lost(at),
            Ok(Outcome::Again) => drop(self.store.troubles().tell(at, trouble.clone())),
            // What leads there cannot be read: that is told by itself.
            Ok(Outcome::Fine) | Err(_) => {}
        }
    }

    fn heal_at(
        &self,
        writing: &Writing,
        at: Bookmark,
        trouble: &Trouble,
        scratch: &mut Scratch,
    ) -> Result<Outcome> {
        let hold = writing.writer.allocator().hold();
        let Some(bp) = self.pointer_at(at)? else { return Ok(Outcome::Fine) };
        // One of the txg that is being written may be written over in its place.
        if !bp.has_space() || bp.birth().max(bp.physical_birth()) > self.txg() {
            return Ok(Outcome::Fine);
        }
        let parts = match self.store.parts(&bp) {
            Ok(parts) => parts,
            Err(StoreError::Unreadable { .. } | StoreError::Vdev(_)) if !hold.is_broken() => {
                return Ok(Outcome::Lost);
            }
            Err(error) => return Err(error.into()),
        };
        let mut outcome = Outcome::Fine;
        for part in parts {
            match self.heal_part(writing, &part, trouble, scratch, &hold)? {
                Outcome::Fine => {}
                Outcome::Again if outcome == Outcome::Lost => {}
                Outcome::Healed if matches!(outcome, Outcome::Lost | Outcome::Again) => {}
                other => outcome = other,
            }
        }
        Ok(outcome)
    }

    /// Examines all copies of a part, and puts right what of them is wrong.
    fn heal_part(
        &self,
        writing: &Writing,
        part: &Part,
        trouble: &Trouble,
        scratch: &mut Scratch,
        hold: &store::Hold,
    ) -> Result<Outcome> {
        // Which of them is right cannot be told.
        if !part.has_checksum() {
            return Ok(Outcome::Fine);
        }
        let (tree, birth) = (self.store.tree(), part.bp.physical_birth());
        let mut bytes = vec![0; part.size()];
        let mut truth: Option<Vec<u8>> = None;
        let mut wrong: Vec<(Dva, Vec<usize>)> = Vec::new();
        for dva in part.copies() {
            let mut check = |bytes: &[u8]| self.store.is_right(part, bytes);
            let place = (dva.offset, birth);
            let examined =
                tree.examine_again(dva.vdev, place, &mut bytes, &mut scratch.read, &mut check);
            let examined = examined.map_err(StoreError::from)?;
            if hold.is_broken() {
                // What was looked at may be another block by now: nobody is blamed for it.
                return Ok(Outcome::Fine);
            }
            let is_lost = examined.lost.is_some();
            // Of a copy that is lost all that can be told was counted by whoever read it.
            if !is_lost || trouble.counted.is_empty() && !trouble.lost {
                tree.count_new(&examined, &trouble.counted);
            }
            if is_lost {
                wrong.push((dva, tree.holders(dva.vdev, birth)));
                continue;
            }
            if !examined.faults.is_empty() {
                wrong.push((dva, examined.faults.iter().map(|fault| fault.leaf).collect()));
            }
            truth.get_or_insert_with(|| bytes.clone());
        }
        let Some(truth) = truth else { return Ok(Outcome::Lost) };
        if wrong.is_empty() {
            return Ok(Outcome::Fine);
        }
        let mut healed = true;
        for (dva, leaves) in wrong {
            let out = writing.writer.out();
            let write =
                || out.heal(&tree, dva.vdev, dva.offset, &truth, &leaves, &mut scratch.write);
            // A disk that does not take it has been counted, and is no worse off.
            healed &= match hold.during(write) {
                Some(Ok(None)) => return Ok(Outcome::Again),
                Some(Ok(Some(report))) => report.failed.is_empty(),
                Some(Err(_)) | None => false,
            };
        }
        Ok(if healed { Outcome::Healed } else { Outcome::Fine })
    }

    /// The pointer to the block at a place of the pool as it is now; `None`: there is none.
    pub fn pointer_at(&self, at: Bookmark) -> Result<Option<BlkPtr>> {
        // Whoever has told of a root has read it in vain: it is not to be read for its own sake, and told of again.
        if at.level < 0 && at.objset != 0 {
            return self.root_at(at.objset);
        }
        let Some(objset) = self.objset_at(at.objset)? else { return Ok(None) };
        match objset.pointer(at.object, at.level, at.block) {
            Ok(bp) => Ok(Some(bp).filter(|bp| !bp.is_hole())),
            Err(dmu::DmuError::NoObject { .. }) => Ok(None),
            Err(error) => Err(error.into()),
        }
    }

    /// The pointer to the object set of a data set by its number, if there is such a data set now.
    fn root_at(&self, number: u64) -> Result<Option<BlkPtr>> {
        let object = match self.mos.objset.object(number) {
            Ok(object) => object,
            Err(dmu::DmuError::NoObject { .. }) => return Ok(None),
            Err(error) => return Err(error.into()),
        };
        // Its number may be another object's by now.
        if object.with_header(format::DnodePhys::bonus_kind)? != format::ObjectType::DSL_DATASET {
            return Ok(None);
        }
        Ok(Some(self.mos.dataset(number)?.bp).filter(|root| !root.is_hole()))
    }

    /// The object set of a data set by its number, if there is such a data set now; 0: the MOS.
    pub fn objset_at(&self, number: u64) -> Result<Option<rt::sync::Arc<dmu::Objset>>> {
        if number == 0 {
            return Ok(Some(self.mos.objset.clone()));
        }
        let Some(root) = self.root_at(number)? else { return Ok(None) };
        if let Some(open) = self.heads.lock().get(&number)
            && !open.revoked.load(Ordering::Relaxed)
        {
            return Ok(Some(open.objset.clone()));
        }
        let store = rt::sync::Arc::new(self.store.of_objset(number));
        let objset = dmu::Objset::open(store, &root, dmu::Policy::new(false), None)?;
        Ok(Some(rt::sync::Arc::new(objset)))
    }
}

/// Memory that is used again for each block.
#[derive(Default)]
pub(crate) struct Scratch {
    read: ReadScratch,
    write: WriteScratch,
}
