//! Quotas of users, groups and projects: setting them, and stopping whoever has used his up.
//!
//! The sync counts what each uses; what was written since then is noted here, and where that could
//! go beyond a quota the txg is synced first, so that the count decides and no estimate: as in
//! OpenZFS, who has used less than his quota may make one more change, who has not may not. Whoever
//! goes on asking all the same is refused by the last count: a sync for each of his attempts would
//! be at the cost of all others.

use std::collections::BTreeMap;
use std::time::Duration;

use dmu::Zap;
use format::ObjectType;
use format::accounting::{BYTES_PER_OBJECT, DEFAULT_PROJECT, bytes_key};
use format::master_node::MASTER_NODE_OBJECT;
use format::znode::{Pflags, Znode};
use pool::props::space::Owner;
use rt::sync::Mutex;
use rt::time::{Instant, now};

use crate::accounts::{quota_of, quota_zaps, used_key, used_object};
use crate::error::{FsError, Refusal, Result, shown};
use crate::filesystem::Filesystem;

/// Syncs for one whose quota is used up, to see whether he has freed something, at most, in [`SYNCS_WITHIN`].
const SYNCS_MAX: u32 = 8;
/// By then a txg has ended by itself, as a rule.
const SYNCS_WITHIN: Duration = Duration::from_secs(5);

/// Whom a change is charged to: the ids of user, group and project, as far as they pay.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Payers([Option<u64>; 3]);

impl Payers {
    /// All three; what has no project is nobody's.
    pub(crate) fn new(user: u64, group: u64, project: u64) -> Payers {
        let project = Some(project).filter(|project| *project != DEFAULT_PROJECT);
        Payers([Some(user), Some(group), project])
    }

    /// The owners of an object.
    pub(crate) fn of(znode: &Znode) -> Payers {
        Payers::new(znode.uid, znode.gid, znode.project.unwrap_or(DEFAULT_PROJECT))
    }

    /// Those that are not the same in `before`.
    pub(crate) fn beyond(self, before: Payers) -> Payers {
        let mut new = self;
        for (now, then) in new.0.iter_mut().zip(before.0) {
            *now = now.filter(|id| Some(*id) != then);
        }
        new
    }
}

/// The project that what is made in a directory gets, if it hands its own down.
pub(crate) fn inherited_project(parent: &Znode) -> Option<u64> {
    parent.project.filter(|_| parent.flags & Pflags::PROJINHERIT != 0)
}

/// A directory that hands its project down takes in nothing of another one.
pub(crate) fn check_project(dir: &Znode, name: &[u8], object: &Znode) -> Result<()> {
    match inherited_project(dir) {
        Some(project) if project != object.project.unwrap_or(DEFAULT_PROJECT) => {
            Err(FsError::Refused { path: shown(name), why: Refusal::CrossProject })
        }
        _ => Ok(()),
    }
}

/// What has a quota: bytes of an owner, or with `true` his objects.
type Key = (Owner, bool, u64);

/// One limit that a change meets: whose, the quota, and how much the change takes of it.
type Limit = (Key, u64, u64);

/// What one owner has changed since the last sync, at most: bytes, or objects.
type Unsynced = BTreeMap<Key, u64>;

/// What limits say of a change.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Standing {
    /// Each has used less than his quota.
    Within,
    /// This one might have used more since the last sync.
    InDoubt,
    /// He had by the last sync.
    Full(Key),
}

/// The quotas of an open file system.
#[derive(Default)]
pub(crate) struct Quotas {
    /// Changes that no sync has counted, by the txg after which one has.
    unsynced: Mutex<BTreeMap<u64, Unsynced>>,
    /// Syncs for those whose quota was used up: since when, and how many.
    syncs: Mutex<BTreeMap<Key, (Instant, u32)>>,
}

impl Filesystem {
    /// Sets how much a user, group or project may use: bytes, or with `objects` files and
    /// directories. 0: as much as there is.
    pub fn set_quota(&self, owner: Owner, objects: bool, id: u64, quota: u64) -> Result<()> {
        let kind = quota_of(owner, objects);
        let _lock = self.lock(MASTER_NODE_OBJECT);
        let tx = self.enter_readonly(if quota == 0 { 0 } else { BYTES_PER_OBJECT })?;
        let master = Zap::open(&self.objset, MASTER_NODE_OBJECT)?;
        let known = master.get_u64(kind.key().as_bytes())?.filter(|number| *number != 0);
        let zap = match known {
            Some(number) => Zap::open(&self.objset, number)?,
            None if quota == 0 => return Ok(()),
            None => {
                let zap = Zap::create(&self.objset, &tx, ObjectType::USERGROUP_QUOTA, 0)?;
                master.put_u64(&tx, kind.key().as_bytes(), zap.number())?;
                zap
            }
        };
        let key = bytes_key(id);
        if quota == 0 {
            zap.remove(&tx, key.as_bytes())?;
        } else {
            zap.put_u64(&tx, key.as_bytes(), quota)?;
        }
        self.dataset.set_user_quotas(true);
        Ok(())
    }

    /// Refuses a change of at most so many bytes and new objects if one who pays has no more
    /// quota. Waits for a sync if it must know; call it outside of any txg.
    pub(crate) fn charge(&self, payers: Payers, bytes: u64, objects: u64) -> Result<()> {
        // Nearly no file system has such quotas; those that have are asked each time.
        if !self.dataset.has_user_quotas() {
            return Ok(());
        }
        let zaps = quota_zaps(&self.objset)?;
        let mut limits: Vec<Limit> = Vec::new();
        for (owner, id) in [Owner::User, Owner::Group, Owner::Project].into_iter().zip(payers.0) {
            let Some(id) = id else { continue };
            for (is_objects, amount) in [(false, bytes), (true, objects)] {
                let Some(zap) = zaps.get(quota_of(owner, is_objects).key()) else { continue };
                // A new object needs both, contents only bytes.
                if is_objects && amount == 0 {
                    continue;
                }
                let zap = Zap::open(&self.objset, *zap)?;
                if let Some(quota) = zap.get_u64(bytes_key(id).as_bytes())?.filter(|q| *q != 0) {
                    limits.push(((owner, is_objects, id), quota, amount));
                }
            }
        }
        if limits.is_empty() {
            return Ok(());
        }
        let syncs = match self.standing(&limits, true)? {
            Standing::Within => return Ok(()),
            Standing::InDoubt => true,
            Standing::Full(key) => self.may_sync_for(key)?,
        };
        if syncs {
            self.pool.sync()?;
        }
        match self.standing(&limits, !syncs)? {
            Standing::Within => Ok(()),
            _ => Err(FsError::QuotaExceeded { name: self.name() }),
        }
    }

    /// May a sync show that somebody has quota again, and has he not had too many for that? It is counted.
    fn may_sync_for(&self, key: Key) -> Result<bool> {
        // Where nothing was changed since, nothing was freed.
        let mut unsynced = self.pool.txg() + 1..=self.pool.open_txg()?;
        if !unsynced.any(|txg| self.objset.is_dirty(txg)) {
            return Ok(false);
        }
        let mut syncs = self.shared.quotas.syncs.lock();
        syncs.retain(|_, (since, _)| since.elapsed() < SYNCS_WITHIN);
        let (_, count) = syncs.entry(key).or_insert_with(|| (now(), 0));
        *count = count.saturating_add(1);
        Ok(*count <= SYNCS_MAX)
    }

    /// Has each used less than his quota? If so, the change is noted. `careful`: with all that was
    /// changed since the last sync.
    fn standing(&self, limits: &[Limit], careful: bool) -> Result<Standing> {
        let mut unsynced = self.shared.quotas.unsynced.lock();
        // What was noted for a txg that is on disk is counted by now.
        *unsynced = unsynced.split_off(&(self.pool.txg() + 1));
        for (key @ (owner, objects, id), quota, amount) in limits {
            let used = match self.objset.object(used_object(*owner)) {
                Ok(object) => Zap::of(object)?.get_u64(used_key(*id, *objects).as_bytes())?,
                Err(dmu::DmuError::NoObject { .. }) => None,
                Err(e) => return Err(e.into()),
            };
            let used = used.unwrap_or(0);
            let noted: u64 = unsynced.values().filter_map(|noted| noted.get(key)).sum();
            let might = used.saturating_add(noted).saturating_add(*amount);
            if used >= *quota {
                return Ok(Standing::Full(*key));
            }
            if careful && noted > 0 && might > *quota {
                return Ok(Standing::InDoubt);
            }
        }
        // The open txg may be frozen before the change enters it: then the next one holds it.
        let noted = unsynced.entry(self.pool.open_txg()? + 1).or_default();
        for (key, _, amount) in limits {
            *noted.entry(*key).or_default() += *amount;
        }
        Ok(Standing::Within)
    }
}
