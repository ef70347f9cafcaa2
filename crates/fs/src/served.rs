//! What a mounted file system says of itself: its properties, its space, its snapshots.

use pool::PoolError;
use pool::dsl::lookup;
use pool::dsl::property;

use crate::error::Result;
use crate::filesystem::Filesystem;

/// Values of the property `snapdir`; the second one is of newer systems.
const SNAPDIR_VISIBLE: u64 = 1;
const SNAPDIR_DISABLED: u64 = 2;

/// Properties that a mount obeys.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct MountProps {
    /// Reads move the time of access on.
    pub atime: bool,
    /// But seldom.
    pub relatime: bool,
    /// Programs may be run.
    pub exec: bool,
    /// Set-id bits count.
    pub setuid: bool,
    /// Device nodes can be opened.
    pub devices: bool,
    /// Access control lists of POSIX.1e are kept.
    pub acl: bool,
    /// Extended attributes are kept.
    pub xattr: bool,
    /// `.zfs` is there.
    pub has_snapdir: bool,
    /// It is listed, too.
    pub snapdir_visible: bool,
    /// Nothing may be changed.
    pub readonly: bool,
    /// Every change is stable before it is acknowledged.
    pub sync_always: bool,
}

/// The space of a file system, as of the last sync.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Space {
    /// Bytes that its files take.
    pub referenced: u64,
    /// Bytes that may still be used, quotas and reservations counted.
    pub available: u64,
    /// Objects that there are.
    pub objects: u64,
    /// Bytes of a full record.
    pub record: u32,
}

impl Filesystem {
    /// The properties that a mount obeys, as they are now.
    pub fn mount_props(&self) -> Result<MountProps> {
        let mos = self.pool.mos();
        let found = lookup::find(mos, &self.name())?;
        let is_on = |name, default: bool| {
            Ok::<_, PoolError>(property::number(mos, &found, name, true, default.into())? != 0)
        };
        let number = |name| property::number(mos, &found, name, true, 0);
        let snapdir = number("snapdir")?;
        Ok(MountProps {
            atime: is_on("atime", true)?,
            relatime: is_on("relatime", false)?,
            exec: is_on("exec", true)?,
            setuid: is_on("setuid", true)?,
            devices: is_on("devices", true)?,
            acl: number("acltype")? == 1,
            xattr: is_on("xattr", true)?,
            has_snapdir: snapdir != SNAPDIR_DISABLED,
            snapdir_visible: snapdir == SNAPDIR_VISIBLE,
            readonly: !self.can_change(),
            sync_always: number("sync")? == 1,
        })
    }

    /// Are digests of files made while they are written? Not if the property `thumper:digests` is `off`.
    pub fn wants_digests(&self) -> Result<bool> {
        let mos = self.pool.mos();
        let found = lookup::find(mos, &self.name())?;
        let stored = property::get(mos, &found, "thumper:digests", true)?;
        Ok(!matches!(stored, Some((property::Stored::Text(text), _)) if text == b"off"))
    }

    /// Are names that differ in case or form the same name?
    pub fn folds_names(&self) -> bool {
        self.normflags != 0
    }

    /// Bytes of a full record of new files.
    pub fn record_size(&self) -> u32 {
        self.dataset.file_properties().record_size
    }

    /// Are new extended attributes kept with the system attributes?
    pub(crate) fn xattr_sa(&self) -> bool {
        self.dataset.file_properties().xattr_sa
    }

    /// Can its files be changed?
    pub fn can_change(&self) -> bool {
        self.read_only_reason().is_none()
    }

    /// Its space.
    pub fn space(&self) -> Result<Space> {
        let found = lookup::find(self.pool.mos(), &self.name())?;
        let available = match found.is_snapshot() {
            true => 0,
            false => self.pool.available(&found)?,
        };
        Ok(Space {
            referenced: found.phys.referenced_bytes.get(),
            available,
            objects: self.objset.object_count(),
            record: self.record_size(),
        })
    }

    /// The names of its snapshots, without what is before the `@`, oldest first; each with its txg, which is no other's.
    pub fn snapshots(&self) -> Result<Vec<(String, u64)>> {
        let found = lookup::find(self.pool.mos(), &self.name())?;
        if found.is_snapshot() {
            return Ok(Vec::new());
        }
        let list = lookup::snapshots(self.pool.mos(), &found.phys)?;
        Ok(list.into_iter().map(|(name, _, phys)| (name, phys.creation_txg.get())).collect())
    }

    /// The number of the data set that its snapshot of this name is, without a look at the others.
    pub fn snapshot(&self, name: &str) -> Result<Option<u64>> {
        let full = format!("{}@{name}", self.name());
        let find = || match lookup::find(self.pool.mos(), &full) {
            Err(PoolError::NoDataset { .. }) => Ok(None),
            found => found.map(|found| Some(found.object)),
        };
        // One that is destroyed just now is not there, though its name may have been.
        Ok(find().or_else(|_| find())?)
    }
}
