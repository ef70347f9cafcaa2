//! What users, groups and projects use of a file system, and what they may use.
//!
//! Use is counted by the sync, in ZAPs of the object set; quotas are ZAPs that the master node
//! names, under the same keys. Here both are read, of heads and snapshots. FORMAT: section 11.8.

use rt::sync::Arc;
use std::collections::BTreeMap;

use dmu::{Objset, Policy, Zap};
use format::ObjectType;
use format::accounting::{Counted, bytes_key, objects_key};
use format::fuid::{Fuid, FuidTable};
use format::master_node::{FUID, MASTER_NODE_OBJECT, Quota, VERSION};
use format::objset::{
    GROUPUSED_OBJECT, ObjsetFlags, ObjsetType, PROJECTUSED_OBJECT, USERUSED_OBJECT,
};
use pool::dsl::lookup::Found;
use pool::props::space::Owner;
use pool::{Pool, PoolError};

type Result<T> = std::result::Result<T, PoolError>;

/// The first version of file systems that counts users and groups.
const VERSION_WITH_USERS: u64 = 4;
/// A FUID table is smaller than this, in bytes.
const FUIDS_MAX: u64 = 1 << 20;

/// The accounts of one file system or snapshot.
pub struct Accounts {
    objset: Objset,
    quotas: BTreeMap<&'static str, u64>,
    domains: FuidTable,
}

/// What one user, group or project uses and may use. Bytes, and numbers of objects.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Account {
    /// The id as stored: the lower 32 bits are the number, the upper ones its domain.
    pub id: u64,
    /// The domain of a user or group of Windows.
    pub domain: Option<String>,
    /// Bytes used.
    pub used: Option<u64>,
    /// Bytes that may be used.
    pub quota: Option<u64>,
    /// Objects owned.
    pub objects: Option<u64>,
    /// Objects that may be owned.
    pub object_quota: Option<u64>,
}

/// The quota of a kind of owner.
pub(crate) fn quota_of(owner: Owner, objects: bool) -> Quota {
    match (owner, objects) {
        (Owner::User, false) => Quota::User,
        (Owner::User, true) => Quota::UserObjects,
        (Owner::Group, false) => Quota::Group,
        (Owner::Group, true) => Quota::GroupObjects,
        (Owner::Project, false) => Quota::Project,
        (Owner::Project, true) => Quota::ProjectObjects,
    }
}

/// The object that counts what a kind of owner uses.
pub(crate) fn used_object(owner: Owner) -> u64 {
    match owner {
        Owner::User => USERUSED_OBJECT,
        Owner::Group => GROUPUSED_OBJECT,
        Owner::Project => PROJECTUSED_OBJECT,
    }
}

/// The key under which use is counted.
pub(crate) fn used_key(id: u64, objects: bool) -> String {
    if objects { objects_key(id) } else { bytes_key(id) }
}

/// The object numbers of the ZAPs of quotas, by their keys in the master node.
pub(crate) fn quota_zaps(objset: &Objset) -> dmu::Result<BTreeMap<&'static str, u64>> {
    let master = Zap::open(objset, MASTER_NODE_OBJECT)?;
    let mut zaps = BTreeMap::new();
    for quota in Quota::ALL {
        if let Some(number) = master.get_u64(quota.key().as_bytes())?.filter(|n| *n != 0) {
            zaps.insert(quota.key(), number);
        }
    }
    Ok(zaps)
}

impl Accounts {
    /// The accounts of a file system or snapshot as of the last sync; `None` of what keeps none:
    /// volumes, file systems before version 4, and encrypted ones, whose accounts are hidden.
    pub fn of(pool: &Pool, found: &Found) -> Result<Option<Accounts>> {
        let store = Arc::new(pool.store().of_objset(found.object));
        let objset = Objset::open(store, &found.phys.bp, Policy::new(false), None)?;
        let phys = objset.phys();
        let hidden = phys.macs.iter().any(|byte| *byte != 0);
        if objset.kind() != ObjsetType::Zfs || hidden {
            return Ok(None);
        }
        let master = Zap::open(&objset, MASTER_NODE_OBJECT)?;
        if master.get_u64(VERSION.as_bytes())?.unwrap_or(0) < VERSION_WITH_USERS {
            return Ok(None);
        }
        let quotas = quota_zaps(&objset)?;
        let domains = match master.get_u64(FUID.as_bytes())? {
            Some(number) if number != 0 => domains(&objset, number)?,
            _ => FuidTable::default(),
        };
        Ok(Some(Accounts { objset, quotas, domains }))
    }

    /// Are objects counted?
    pub fn has_objects(&self) -> bool {
        self.objset.phys().flags & ObjsetFlags::USEROBJACCOUNTING_COMPLETE != 0
    }

    fn used_zap(&self, owner: Owner) -> Result<Option<Zap>> {
        match self.objset.object(used_object(owner)) {
            Ok(object) => Ok(Some(Zap::of(object)?)),
            // What nobody uses is not counted.
            Err(dmu::DmuError::NoObject { .. }) => Ok(None),
            Err(e) => Err(e.into()),
        }
    }

    fn quota_zap(&self, owner: Owner, objects: bool) -> Result<Option<Zap>> {
        match self.quotas.get(quota_of(owner, objects).key()) {
            Some(number) => Ok(Some(Zap::open(&self.objset, *number)?)),
            None => Ok(None),
        }
    }

    /// Bytes or objects that an id uses.
    pub fn used(&self, owner: Owner, objects: bool, id: u64) -> Result<u64> {
        let Some(zap) = self.used_zap(owner)? else { return Ok(0) };
        Ok(zap.get_u64(used_key(id, objects).as_bytes())?.unwrap_or(0))
    }

    /// Bytes or objects that an id may use; 0: as many as there are.
    pub fn quota(&self, owner: Owner, objects: bool, id: u64) -> Result<u64> {
        let Some(zap) = self.quota_zap(owner, objects)? else { return Ok(0) };
        Ok(zap.get_u64(bytes_key(id).as_bytes())?.unwrap_or(0))
    }

    /// All of one kind that use something or have a quota, by id.
    pub fn all(&self, owner: Owner) -> Result<Vec<Account>> {
        let mut found: BTreeMap<u64, Account> = BTreeMap::new();
        fn at(found: &mut BTreeMap<u64, Account>, id: u64) -> &mut Account {
            found.entry(id).or_insert_with(|| Account { id, ..Account::default() })
        }
        if let Some(zap) = self.used_zap(owner)? {
            for entry in zap.entries()? {
                let value = entry.value.as_u64();
                match Counted::parse(&entry.name) {
                    Some(Counted::Bytes(id)) => at(&mut found, id).used = value,
                    Some(Counted::Objects(id)) => at(&mut found, id).objects = value,
                    None => {}
                }
            }
        }
        for objects in [false, true] {
            let Some(zap) = self.quota_zap(owner, objects)? else { continue };
            for entry in zap.entries()? {
                let Some(Counted::Bytes(id)) = Counted::parse(&entry.name) else { continue };
                let account = at(&mut found, id);
                let slot = if objects { &mut account.object_quota } else { &mut account.quota };
                *slot = entry.value.as_u64();
            }
        }
        let mut list: Vec<Account> = found.into_values().collect();
        for account in &mut list {
            let domain = self.domains.domain(Fuid::decode(account.id).domain);
            account.domain = domain.map(|name| String::from_utf8_lossy(name).into_owned());
        }
        Ok(list)
    }
}

/// The table of domains in an object.
fn domains(objset: &Objset, number: u64) -> Result<FuidTable> {
    let damaged = |detail: String| PoolError::Damaged { what: "FUID table", detail };
    let object = objset.object_of(number, ObjectType::FUID)?;
    let bonus = object.bonus()?;
    let size = bonus.first_chunk::<8>().map_or(0, |b| u64::from_le_bytes(*b));
    if size == 0 {
        return Ok(FuidTable::default());
    }
    let covered = (object.max_block()? + 1).saturating_mul(object.block_size()?.into());
    if size > covered.min(FUIDS_MAX) {
        return Err(damaged(format!("object {number}: {size} bytes are beyond its blocks")));
    }
    let mut bytes = vec![0; size as usize];
    object.read(0, &mut bytes)?;
    FuidTable::parse(&bytes).map_err(|e| damaged(format!("object {number}: {e}")))
}
