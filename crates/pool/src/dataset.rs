//! An open data set: a head that can be changed, or a snapshot that cannot.

use std::any::Any;

use codec::compress::ZstdLevel;
use dmu::{Objset, Owner, Policy, RedundantMetadata};
use format::dnode::{DNODE_SLOT, DNODES_PER_BLOCK};
use format::dsl_dataset::DslDatasetPhys;
use format::features::Feature;
use format::objset::ObjsetType;
use format::{Checksum, Compress, ObjectType};
use rt::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use rt::sync::{Arc, Mutex};

use crate::claim::Replaying;
use crate::dsl::crypt;
use crate::dsl::lookup::{self, Found};
use crate::dsl::property;
use crate::error::{PoolError, Result};
use crate::intent::LogState;
use crate::pieces::Pieces;
use crate::pool::Pool;
use crate::zil::Log;

/// Bytes of a full record where nobody has said anything, and at most without the feature `large_blocks`.
const RECORD_DEFAULT: u64 = 128 << 10;

/// An open data set.
pub struct Dataset {
    name: Mutex<String>,
    /// Rolled back or destroyed: whoever still has it cannot change it.
    pub(crate) revoked: AtomicBool,
    /// Object of the data set in the MOS.
    pub object: u64,
    /// Object of its directory.
    pub dir_object: u64,
    /// Its objects.
    pub objset: Arc<Objset>,
    /// Why it can only be read; `None`: it can be changed.
    pub read_only_because: Option<String>,
    /// Its intent log is being worked off.
    pub(crate) replaying: Mutex<Option<Replaying>>,
    /// The record of it that is being done again, while it has to share its txg with the header; else 0.
    pub(crate) replaying_now: AtomicU64,
    /// The log that is written here.
    pub(crate) log: Log,
    refreservation: AtomicU64,
    /// What is new in it obeys these, from the next change on.
    file_properties: Mutex<FileProperties>,
    /// Its property `readonly` is on.
    set_readonly: AtomicBool,
    /// Some user, group or project has a quota; only `fs` knows which.
    user_quotas: AtomicBool,
    /// What the storey above keeps with it.
    shared: Mutex<Option<Arc<dyn Any + Send + Sync>>>,
    /// Room as of a txg: looked up once per txg, not once per change.
    room: Mutex<Option<(u64, Room)>>,
}

/// Room for new data in a data set, as of the last sync.
#[derive(Clone, Debug)]
pub(crate) struct Room {
    /// Bytes that the data set may still use.
    pub(crate) available: u64,
    /// Bytes of the pool that can be written to now, slop included: all that is free but what was
    /// freed too short a time ago.
    pub(crate) ready: u64,
    /// The half of the slop that only changes which free may touch.
    pub(crate) last: u64,
    /// What it costs to find room when free space is in small pieces; looked up when it may matter.
    pub(crate) pieces: Arc<Pieces>,
    /// The data set whose quota is the limit, if one is.
    pub(crate) by_quota: Option<String>,
}

impl Dataset {
    /// Full name.
    pub fn name(&self) -> String {
        self.name.lock().clone()
    }

    /// It is still what it was when it was opened.
    ///
    /// # Errors
    /// [`PoolError::Revoked`].
    pub fn not_revoked(&self) -> Result<()> {
        match self.revoked.load(Ordering::Relaxed) {
            true => Err(PoolError::Revoked { name: self.name() }),
            false => Ok(()),
        }
    }

    pub(crate) fn set_name(&self, name: String) {
        *self.name.lock() = name;
    }

    /// What all who have it open share; `make` makes it for the first of them.
    ///
    /// # Panics
    /// If another type was asked for before: only one storey has data sets open.
    pub fn shared<T: Any + Send + Sync>(&self, make: impl FnOnce() -> T) -> Arc<T> {
        let mut shared = self.shared.lock();
        let any = shared.get_or_insert_with(|| Arc::new(make())).clone();
        any.downcast().unwrap_or_else(|_| panic!("one type is shared by those who open a data set"))
    }

    /// What the MOS says of it now.
    fn found(&self, pool: &Pool) -> Result<Found> {
        Ok(Found {
            name: self.name(),
            dir_object: self.dir_object,
            dir: pool.mos.dir(self.dir_object)?,
            object: self.object,
            phys: pool.mos.dataset(self.object)?,
        })
    }

    /// What new files obey now.
    pub fn file_properties(&self) -> FileProperties {
        *self.file_properties.lock()
    }

    /// Size of a full record, in bytes.
    pub(crate) fn record(&self) -> u64 {
        self.file_properties().record_size.into()
    }

    /// Room for new data.
    pub(crate) fn room(&self, pool: &Pool) -> Result<Room> {
        let txg = pool.txg();
        if let Some((at, room)) = &*self.room.lock()
            && *at == txg
        {
            return Ok(room.clone());
        }
        let found = self.found(pool)?;
        let available = pool.available(&found)?;
        let space = pool.space()?;
        let used = pool.mos.dir(lookup::root_dir(&pool.mos)?)?.used_bytes.get();
        let in_pool = space.for_datasets().saturating_sub(used);
        let by_quota = (available < in_pool).then(|| self.name());
        let pool_free = space.usable.saturating_sub(used);
        let ready = pool_free.saturating_sub(pool.resting());
        let last = space.slop / 2;
        let room = Room { available, ready, last, pieces: Arc::new(Pieces::default()), by_quota };
        *self.room.lock() = Some((txg, room.clone()));
        Ok(room)
    }

    /// Takes over properties that have changed.
    pub(crate) fn refresh(&self, pool: &Pool) -> Result<()> {
        let found = self.found(pool)?;
        self.objset.set_policy(pool.policy(&found)?);
        let number =
            |name, inherit, default| property::number(&pool.mos, &found, name, inherit, default);
        self.refreservation.store(number("refreservation", false, 0)?, Ordering::Relaxed);
        if self.kind() != ObjsetType::Zvol {
            *self.file_properties.lock() = pool.file_properties_of(&found)?;
        }
        self.set_readonly.store(number("readonly", true, 0)? != 0, Ordering::Relaxed);
        self.log.obey(number("sync", true, 0)?, number("logbias", true, 0)?);
        *self.room.lock() = None;
        Ok(())
    }

    /// The space reserved for the head itself, in bytes.
    pub fn refreservation(&self) -> u64 {
        self.refreservation.load(Ordering::Relaxed)
    }

    /// Is its property `readonly` on? Then no file of it changes; it can still be destroyed.
    pub fn is_set_readonly(&self) -> bool {
        // What was done before it was set, and is done again, is no new change.
        self.set_readonly.load(Ordering::Relaxed) && self.replaying.lock().is_none()
    }

    /// Has some user, group or project a quota?
    pub fn has_user_quotas(&self) -> bool {
        self.user_quotas.load(Ordering::Relaxed)
    }

    /// Notes whether some user, group or project has a quota.
    pub fn set_user_quotas(&self, some: bool) {
        self.user_quotas.store(some, Ordering::Relaxed);
    }

    /// What it holds.
    pub fn kind(&self) -> ObjsetType {
        self.objset.kind()
    }
}

/// What new files obey.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FileProperties {
    /// Blocks are at most so large, in bytes.
    pub record_size: u32,
    /// Slots of their dnodes, of 512 bytes each.
    pub dnode_slots: u8,
    /// Are extended attributes kept with the system attributes?
    pub xattr_sa: bool,
}

/// `dnodesize=auto`, as it is stored: two slots, as in OpenZFS.
const DNODE_AUTO: u64 = 1;
/// `xattr=sa`, as it is stored.
const XATTR_SA: u64 = 2;

/// Finds whom an object is charged to.
pub(crate) fn owner_of(kind: ObjectType, bonus: &[u8]) -> Option<Owner> {
    let owner = format::accounting::Owner::of(kind, bonus).ok()??;
    Some(Owner { user: owner.uid, group: owner.gid, project: owner.project })
}

impl Pool {
    /// Opens the data set or snapshot called `name`.
    pub fn dataset(&self, name: &str) -> Result<Arc<Dataset>> {
        self.open_object(|| lookup::find(&self.mos, name), |found| self.make_dataset(found))
    }

    pub(crate) fn make_dataset(&self, found: &Found) -> Result<Dataset> {
        let policy = self.policy(found)?;
        let owner_of: dmu::OwnerOf = owner_of;
        let store = self.store_of(found.object);
        let root = found.phys.bp;
        if root.is_hole() {
            let detail = format!("{} has no object set", found.name);
            return Err(PoolError::Damaged { what: "data set", detail });
        }
        let phys = store.read_for(store::At::ROOT, &root)?;
        let phys = format::ObjsetPhys::parse(&phys).map_err(|e| PoolError::Damaged {
            what: "object set",
            detail: format!("{}: {e}", found.name),
        })?;
        let accounted = phys.kind == ObjsetType::Zfs
            && phys.flags & format::objset::ObjsetFlags::USERACCOUNTING_COMPLETE != 0;
        let objset = Objset::open(store, &root, policy, accounted.then_some(owner_of))?;
        let mut file_properties = self.file_properties_of(found)?;
        if phys.kind == ObjsetType::Zvol && phys.macs.iter().all(|byte| *byte == 0) {
            let volume = objset.object(format::master_node::ZVOL_DATA_OBJECT)?;
            file_properties.record_size = volume.block_size()?;
        }
        Ok(Dataset {
            name: Mutex::new(found.name.clone()),
            revoked: AtomicBool::new(false),
            object: found.object,
            dir_object: found.dir_object,
            objset: Arc::new(objset),
            read_only_because: self.read_only_reason_of(found, &phys)?,
            replaying: Mutex::new(None),
            replaying_now: AtomicU64::new(0),
            log: Log::new(
                property::number(&self.mos, found, "sync", true, 0)?,
                property::number(&self.mos, found, "logbias", true, 0)?,
            ),
            refreservation: AtomicU64::new(property::number(
                &self.mos,
                found,
                "refreservation",
                false,
                0,
            )?),
            file_properties: Mutex::new(file_properties),
            set_readonly: AtomicBool::new(
                property::number(&self.mos, found, "readonly", true, 0)? != 0,
            ),
            user_quotas: AtomicBool::new(false),
            shared: Mutex::new(None),
            room: Mutex::new(None),
        })
    }

    /// What new files of a data set obey.
    fn file_properties_of(&self, found: &Found) -> Result<FileProperties> {
        let number = |name, default| property::number(&self.mos, found, name, true, default);
        // A value that was received is no reason to do what the pool does not allow.
        let record_max = match self.features.is_enabled(Feature::LargeBlocks)? {
            true => format::BLOCK_SIZE_MAX,
            false => RECORD_DEFAULT,
        };
        let record = number("recordsize", RECORD_DEFAULT)?.clamp(512, record_max);
        let dnode = match number("dnodesize", 0)? {
            0 => DNODE_SLOT,
            _ if !self.features.is_enabled(Feature::LargeDnode)? => DNODE_SLOT,
            DNODE_AUTO => 2 * DNODE_SLOT,
            bytes => usize::try_from(bytes).unwrap_or(DNODE_SLOT),
        };
        Ok(FileProperties {
            record_size: record.next_power_of_two() as u32,
            // One lies in one block.
            dnode_slots: (dnode / DNODE_SLOT).clamp(1, DNODES_PER_BLOCK as usize) as u8,
            xattr_sa: number("xattr", 1)? == XATTR_SA,
        })
    }

    /// INV-12 for one data set.
    fn read_only_reason_of(
        &self,
        found: &Found,
        phys: &format::ObjsetPhys,
    ) -> Result<Option<String>> {
        if let Err(PoolError::ReadOnly { reason, .. }) = self.writing() {
            return Ok(Some(reason));
        }
        if found.is_snapshot() {
            return Ok(Some("it is a snapshot".into()));
        }
        if !matches!(phys.kind, ObjsetType::Zfs | ObjsetType::Zvol) {
            return Ok(Some("it is no file system and no volume".into()));
        }
        match self.encrypted_because(found, phys)? {
            None => self.dsl_reason(found, phys),
            reason => Ok(reason),
        }
    }

    /// Why a data set can get no snapshot, no clone and no other place; `None`: it can (INV-12).
    pub(crate) fn frozen_because(&self, found: &Found) -> Result<Option<String>> {
        if found.phys.bp.is_hole() {
            return Ok(Some("it has no object set".into()));
        }
        self.dsl_reason(found, &self.objset_phys(found)?)
    }

    /// The store for those who read the object set of a data set; the sync waits there for devices.
    pub(crate) fn store_of(&self, object: u64) -> Arc<store::Store> {
        let store = self.store.of_objset(object);
        Arc::new(match self.gate() {
            Some(gate) => store.waiting_in_sync_at(gate.clone()),
            None => store,
        })
    }

    /// The object set of a data set as it is on disk.
    pub(crate) fn objset_phys(&self, found: &Found) -> Result<format::ObjsetPhys> {
        let bytes = self.store_of(found.object).read_for(store::At::ROOT, &found.phys.bp)?;
        format::ObjsetPhys::parse(&bytes).map_err(|e| PoolError::Damaged {
            what: "object set",
            detail: format!("{}: {e}", found.name),
        })
    }

    /// Is a data set in a state that only whoever began with it can end, or that is not written any more?
    pub(crate) fn unfinished(&self, found: &Found) -> Option<String> {
        let reason = "a receive or destroy of it is not finished";
        let reason = found.phys.is_inconsistent().then(|| reason.into());
        reason.or_else(|| self.old_deadlist(&found.phys))
    }

    /// Why nothing can be added to the deadlist of a data set; `None`: it can.
    pub(crate) fn old_deadlist(&self, phys: &DslDatasetPhys) -> Option<String> {
        let object = self.mos.objset.object(phys.deadlist_object.get());
        match object.and_then(|object| Ok(object.header()?.kind())) {
            Ok(ObjectType::DEADLIST) => None,
            Ok(_) => Some("its deadlist is of an old form".into()),
            Err(error) => Some(format!("its deadlist cannot be read: {error}")),
        }
    }

    fn dsl_reason(&self, found: &Found, phys: &format::ObjsetPhys) -> Result<Option<String>> {
        // That of a snapshot is its head's, as it was then: nobody follows it.
        let followed = !self.in_memory && !found.is_snapshot() && !self.owns_log(found.object);
        if followed && matches!(self.log_state(&phys.zil_header)?, LogState::InUse) {
            let why = self.logs_left.lock().get(&found.object).cloned();
            return Ok(Some(why.unwrap_or_else(|| "its intent log has not been replayed".into())));
        }
        Ok(self.unfinished(found))
    }

    /// Does the header of a head, as it is on disk, lead to the log that is written here?
    fn owns_log(&self, object: u64) -> bool {
        self.heads.lock().get(&object).is_some_and(|head| head.log.owns_header())
    }

    /// Why a data set can only be read, whatever its intent log is.
    pub(crate) fn reason_beside_log(
        &self,
        found: &Found,
        phys: &format::ObjsetPhys,
    ) -> Result<Option<String>> {
        Ok(self.encrypted_because(found, phys)?.or_else(|| self.unfinished(found)))
    }

    /// Why the blocks of a data set can only be read; `None`: they are not encrypted.
    pub(crate) fn encrypted_because(
        &self,
        found: &Found,
        phys: &format::ObjsetPhys,
    ) -> Result<Option<String>> {
        if phys.macs.iter().any(|b| *b != 0) {
            return Ok(Some("it is encrypted".into()));
        }
        let key = crypt::key_of(&self.mos, found.dir_object)?;
        Ok(key.map(|_| "its directory has a key of encryption".into()))
    }

    /// What the properties of a data set mean for its blocks.
    pub fn policy(&self, found: &Found) -> Result<Policy> {
        let number = |name, default| property::number(&self.mos, found, name, true, default);
        let base = *self.mos.objset.policy();
        let compression = number("compression", 2)?;
        let level = (compression >> 7) as u8;
        let checksum = number("checksum", 1)? & 0xff;
        Ok(Policy {
            checksum: Checksum::from_id(checksum as u8).unwrap_or(Checksum::On),
            compress: Compress::from_id((compression & 0x7f) as u8).unwrap_or(Compress::Off),
            zstd_level: if level == 0 { ZstdLevel::default() } else { ZstdLevel(level) },
            copies: number("copies", 1)?.clamp(1, 3) as u8,
            redundant_metadata: match number("redundant_metadata", 0)? {
                1 => RedundantMetadata::Most,
                2 => RedundantMetadata::Some,
                3 => RedundantMetadata::None,
                _ => RedundantMetadata::All,
            },
            meta: false,
            ..base
        })
    }
}
