//! Logs that a crash left: claimed before anything is written, then worked off.
//!
//! The blocks of such a log are in no space map: any write could go over records that were acknowledged as
//! stable. So the first txg of a pool that is opened for writing does nothing but take them into the space maps
//! and say so in the headers (INV-6). From then on whoever opens the pool, we or OpenZFS, can work the logs off,
//! at leisure: with each txg the header says up to which record that is done, in the end the log goes. One that cannot be
//! worked off stays as it is, and its data set is read-only; nobody else waits for it.
//! FORMAT: section 12.4.

use std::collections::{BTreeMap, BTreeSet};

use dmu::{Objset, Tx};
use format::scan::Bookmark;
use format::zil::{ZilFlags, ZilHeader};
use format::{Dva, ObjsetPhys};
use rt::sync::Arc;
use rt::sync::atomic::Ordering;
use vdev::Tree;

use crate::dataset::Dataset;
use crate::dsl::lookup;
use crate::errlog;
use crate::error::{PoolError, Result};
use crate::intent::{self, Chain};
use crate::mos::Mos;
use crate::pool::Pool;
use crate::sync::TaskContext;

/// What of a log is to be claimed.
pub(crate) struct Claim {
    /// Its data set.
    name: String,
    /// What no space map has yet.
    places: Vec<Dva>,
    /// A place of it that goes, if a space map has it.
    goes: Option<Dva>,
    /// The header that says that it is claimed; empty of one that is given up.
    header: ZilHeader,
}

/// The logs that whoever had the pool before has left.
#[derive(Default)]
pub(crate) struct Left {
    /// Those that nobody has claimed.
    pub(crate) claims: Vec<Claim>,
    /// Names of data sets whose logs are, or will be then.
    pub(crate) claimed: Vec<String>,
    /// Roots of heads of which nobody can tell what logs they have.
    pub(crate) lost: Vec<Bookmark>,
}

/// The log device of this number, if what it holds cannot be told since it is not there.
fn missing_log(tree: &Tree, top: u32) -> Option<String> {
    let lost = tree.top(top).ok().filter(|top| top.is_log() && !tree.is_complete(top.id()))?;
    let leaf = lost.slots().iter().flatten().map(|leaf| &tree.leaves()[*leaf]);
    let mut away = leaf.filter(|leaf| !leaf.state.is_online());
    Some(away.next().map(|leaf| leaf.name()).unwrap_or_default())
}

/// Looks at all logs; `Err`: why the pool cannot be written. `give_up`: those that cannot be read since a log device is
/// missing, or what leads to them is lost, are given up. `exported`: there is none that nobody has claimed.
pub(crate) fn left(
    mos: &Mos,
    pool: &str,
    (give_up, exported): (bool, bool),
) -> std::result::Result<Left, String> {
    let tree = mos.objset.store().tree();
    let missing = (0..tree.tops().len() as u32).find_map(|top| missing_log(&tree, top));
    let unclear = |e: PoolError| {
        let way = if e.is_lost() { "; 'zpool import -m' gives up what is lost" } else { "" };
        format!("its intent logs cannot be examined: {e}{way}")
    };
    let mut out = Left::default();
    // Then a head that cannot be read costs itself alone, and whoever opens the pool next finds it in the error log.
    let known = errlog::on_disk(mos).unwrap_or_default();
    let mut lost = Vec::new();
    let unread = |head: u64, e: PoolError| {
        let root = Bookmark { objset: head, object: 0, level: -1, block: 0 };
        let is_lost = e.is_lost();
        if !exported && !(is_lost && (give_up || known.contains(&root))) {
            return Err(e);
        }
        lost.extend(is_lost.then_some(root));
        Ok(())
    };
    let headers = intent::headers_unless(mos, unread).map_err(unclear)?;
    out.lost = lost;
    for (path, mut header) in headers {
        let name = format!("{pool}{path}");
        let first = header.log.dvas().next();
        if let Some(disk) = first.and_then(|dva| missing_log(&tree, dva.vdev)) {
            if !give_up || header.log.is_crypt() {
                return Err(unreadable(&name, &disk));
            }
            out.claims.push(Claim::giving_up(name, &header));
            continue;
        }
        if header.claim_txg.get() != 0 {
            out.claimed.push(name);
            continue;
        }
        if header.log.is_crypt() {
            if intent::is_to_be_claimed(mos, &header) {
                return Err(format!(
                    "the encrypted data set '{name}' has an intent log that was not replayed; \
                     import and export the pool with OpenZFS once"
                ));
            }
            continue;
        }
        let first = mos.objset.root().birth() + 1;
        let chain = match (intent::chain(mos, &header, |_| Ok(true)), &missing) {
            (Ok(chain), _) => chain,
            (Err(_), Some(_)) if give_up => {
                out.claims.push(Claim::giving_up(name, &header));
                continue;
            }
            (Err(_), Some(disk)) => return Err(unreadable(&name, disk)),
            (Err(e), None) => {
                return Err(format!("'{name}' has an intent log that cannot be claimed here: {e}"));
            }
        };
        let Chain { places, last_block, last_record, written } = chain;
        let new = places.iter().filter(|(_, birth)| *birth >= first);
        let places: BTreeSet<_> = new.map(|(dva, _)| (dva.vdev, dva.offset, dva.asize)).collect();
        if written == 0 && places.is_empty() {
            // Empty, and allocated.
            continue;
        }
        header.claim_txg = first.into();
        header.claim_block_seq = last_block.into();
        header.claim_record_seq = last_record.into();
        header.flags = (ZilFlags::REPLAY_NEEDED | ZilFlags::CLAIM_RECORD_SEQ_VALID).into();
        let dva = |(vdev, offset, asize)| Dva { vdev, offset, asize, gang: false };
        let places = places.into_iter().map(dva).collect();
        out.claims.push(Claim { name: name.clone(), places, goes: None, header });
        out.claimed.push(name);
    }
    Ok(out)
}

impl Claim {
    /// A log that is given up: what is on disk beyond its first block was never in a space map, or stays there.
    fn giving_up(name: String, header: &ZilHeader) -> Claim {
        let goes = header.log.dvas().next().filter(|dva| !dva.gang);
        Claim { name, places: Vec::new(), goes, header: ZilHeader::default() }
    }
}

fn unreadable(name: &str, disk: &str) -> String {
    format!(
        "'{name}' has an intent log that was not replayed, and log device {disk} is missing; \
         'zpool import -m' gives up what it holds"
    )
}

/// Takes all of them in one txg, before that has written anything else.
pub(crate) fn claim(cx: &TaskContext<'_>, claims: &[Claim]) -> Result<()> {
    let allocator = cx.writing.writer.allocator();
    for dva in claims.iter().flat_map(|claim| &claim.places) {
        allocator.claim_dva(*dva)?;
    }
    for dva in claims.iter().filter_map(|claim| claim.goes) {
        if allocator.is_allocated(dva)? {
            allocator.free_dva(dva)?;
        }
    }
    for claim in claims {
        let found = lookup::find(cx.making.mos, &claim.name)?;
        let (store, policy) = (cx.pool.store.clone(), cx.pool.policy(&found)?);
        let objset = Objset::open(store, &found.phys.bp, policy, None)?;
        objset.change_phys(|phys| phys.zil_header = claim.header.to_bytes());
        cx.sync_objset(found.object, &Arc::new(objset), cx.refreservation(&found)?)?;
    }
    Ok(())
}

/// How far a log is worked off.
#[derive(Default)]
pub(crate) struct Replaying {
    /// By txg: the last record of which nothing is in a later one.
    done: BTreeMap<u64, u64>,
    /// The last record that is done.
    last: u64,
    /// The last record of which a header has said that it is done.
    told: u64,
    /// It has failed since: the next header says so.
    takes_back: bool,
    /// All that goes with the log: vdev, offset, size.
    places: BTreeSet<(u32, u64, u64)>,
    /// All of it is done: it goes with the next sync.
    ends: bool,
}

impl Dataset {
    /// A change begins.
    pub(crate) fn note_replay(&self, tx: &Tx<'_>) {
        let seq = self.replaying_now.load(Ordering::Relaxed);
        if seq != 0
            && let Some(replaying) = &mut *self.replaying.lock()
        {
            replaying.done.insert(tx.txg(), seq);
        }
    }

    /// Is there something that the next header has to say, whatever else is written?
    pub(crate) fn replay_changes_header(&self) -> bool {
        let replaying = self.replaying.lock();
        replaying.as_ref().is_some_and(|replaying| replaying.ends || replaying.takes_back)
    }

    /// What goes with a log that is worked off, in the sync with which it does. Not by itself: what is freed a portion in each
    /// txg may change the object set in the same one, which is written once.
    pub(crate) fn ended_replay(&self) -> Option<impl Iterator<Item = Dva> + use<>> {
        let replaying = self.replaying.lock().take_if(|replaying| replaying.ends)?;
        let dva = |(vdev, offset, asize)| Dva { vdev, offset, asize, gang: false };
        Some(replaying.places.into_iter().map(dva))
    }

    /// The header that says how far the log is worked off in `txg`; `None`: it is not being worked off.
    pub(crate) fn replayed_until(&self, txg: u64, phys: &ObjsetPhys) -> Option<ZilHeader> {
        let mut replaying = self.replaying.lock();
        let replaying = replaying.as_mut()?;
        let mut header = ZilHeader::parse(&phys.zil_header);
        let later = replaying.done.split_off(&(txg + 1));
        let done = std::mem::replace(&mut replaying.done, later);
        let takes_back = std::mem::take(&mut replaying.takes_back).then_some(replaying.last);
        if let Some(seq) = done.last_key_value().map(|(_, seq)| *seq).or(takes_back) {
            replaying.told = seq;
            header.replay_seq = seq.into();
        }
        Some(header)
    }
}

impl Pool {
    /// The data sets whose logs have to be worked off before anything else is done with them.
    pub fn logs_to_replay(&self) -> Vec<String> {
        self.logs_to_replay.lock().clone()
    }

    /// Opens a data set to work its log off: it can be written to.
    ///
    /// # Errors
    /// [`PoolError::Damaged`] if the log is not all allocated, as claimed ones are; what reading it says.
    pub fn begin_replay(&self, name: &str) -> Result<Arc<Dataset>> {
        self.heads.lock().remove(&lookup::find(&self.mos, name)?.object);
        let find = || lookup::find(&self.mos, name);
        self.open_object(find, |found| {
            let mut dataset = self.make_dataset(found)?;
            let phys = dataset.objset.phys();
            let header = ZilHeader::parse(&phys.zil_header);
            let chain = intent::chain(&self.mos, &header, |_| Ok(true))?;
            self.are_allocated(name, &chain)?;
            let places = chain.places.iter().map(|(dva, _)| (dva.vdev, dva.offset, dva.asize));
            let replaying = Replaying {
                places: places.collect(),
                last: header.replay_seq.get(),
                ..Replaying::default()
            };
            *dataset.replaying.get_mut() = Some(replaying);
            dataset.read_only_because = self.reason_beside_log(found, &phys)?;
            Ok(dataset)
        })
    }

    /// Does record `seq` again by `change`. One that is `atomic` is a single change, which must not be done twice;
    /// any other may be.
    ///
    /// # Errors
    /// Those of `change`: the record counts as not done.
    pub fn replay_record<E: From<PoolError>>(
        &self,
        dataset: &Arc<Dataset>,
        (seq, atomic): (u64, bool),
        change: impl FnOnce() -> std::result::Result<(), E>,
    ) -> std::result::Result<(), E> {
        let now = |seq| dataset.replaying_now.store(seq, Ordering::Relaxed);
        now(if atomic { seq } else { 0 });
        let result = change().and_then(|()| {
            if !atomic {
                now(seq);
                drop(self.admit(dataset, 0)?);
            }
            Ok(())
        });
        now(0);
        if let Some(replaying) = &mut *dataset.replaying.lock() {
            match &result {
                Ok(()) => replaying.last = seq,
                // Those before it are done all the same.
                Err(_) => {
                    let last = replaying.last;
                    let this = replaying.done.values_mut().filter(|done| **done == seq);
                    this.for_each(|done| *done = last);
                    // A txg may have come to the disk since its change ended, and with it all that was done before.
                    replaying.takes_back = replaying.told == seq;
                }
            }
        }
        result
    }

    /// All of the log is done again: it goes, and the data set is like any other.
    ///
    /// # Errors
    /// Those of a sync.
    pub fn end_replay(&self, dataset: &Arc<Dataset>) -> Result<()> {
        self.sync()?;
        if let Some(replaying) = &mut *dataset.replaying.lock() {
            replaying.ends = true;
        }
        self.sync()?;
        self.let_go_of(dataset.object)?;
        self.logs_to_replay.lock().retain(|name| *name != dataset.name());
        Ok(())
    }

    /// A log cannot be done again, or not to its end: it stays, and its data set is read-only because of `reason`. What
    /// was done of it is on disk, with a header that says so.
    ///
    /// # Errors
    /// [`PoolError::Damaged`] if something of the log is not allocated, so that anybody could write over it; those of a
    /// sync.
    pub fn leave_log(&self, name: &str, reason: &str) -> Result<()> {
        let found = lookup::find(&self.mos, name)?;
        if self.heads.lock().contains_key(&found.object) {
            self.sync()?;
        }
        self.let_go_of(found.object)?;
        let phys = self.objset_phys(&lookup::find(&self.mos, name)?);
        let header = phys.map(|phys| ZilHeader::parse(&phys.zil_header));
        // Of what is beyond a block that cannot be read nobody knows.
        if let Ok(chain) = header.and_then(|header| intent::chain(&self.mos, &header, |_| Ok(true)))
        {
            self.are_allocated(name, &chain)?;
        }
        self.logs_left.lock().insert(found.object, reason.into());
        Ok(())
    }

    /// Whoever opens a head next, of which nothing is dirty, opens it anew. A sync may free of it what was removed, also where
    /// nobody asked for one: it must be done with that.
    fn let_go_of(&self, head: u64) -> Result<()> {
        let _between = self.writing()?.syncing.lock();
        self.heads.lock().remove(&head);
        Ok(())
    }

    fn are_allocated(&self, name: &str, chain: &Chain) -> Result<()> {
        for (dva, _) in &chain.places {
            if !self.writing()?.writer.allocator().is_allocated(*dva)? {
                let detail = format!("{name}: its block at {:#x} is not allocated", dva.offset);
                return Err(PoolError::Damaged { what: "intent log", detail });
            }
        }
        Ok(())
    }
}
