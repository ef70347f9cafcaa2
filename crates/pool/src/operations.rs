//! What commands ask of a pool: make and destroy file systems, set properties, note the history.
//!
//! Each is one task in one txg: it is on disk as a whole, or not at all.

use std::collections::BTreeMap;

use format::NvList;
use format::dsl_dir::Used;
use format::features::Feature;

use crate::create::{MakeFilesystem, filesystem, properties};
use crate::dsl::account::{Delta, charge, difference};
use crate::dsl::crypt;
use crate::dsl::limits::{self, Counted};
use crate::dsl::lookup;
use crate::dsl::property::{self, Change, Stored};
use crate::error::{PoolError, Result};
use crate::pool::Pool;
use crate::space::Need;
use crate::sync::TaskContext;
use crate::volumes::volume;

/// What a new data set is to hold.
#[derive(Clone, Copy)]
pub(crate) enum New {
    /// Files: what makes its first objects.
    Filesystem(MakeFilesystem),
    /// A volume; both in bytes.
    Volume { size: u64, block: u32 },
}

impl Pool {
    /// Makes the file system `name`, whose parent must exist, with these properties of its own.
    pub fn create_filesystem(
        &self,
        name: &str,
        props: BTreeMap<String, Stored>,
        make: MakeFilesystem,
    ) -> Result<()> {
        self.create_dataset(name, props, New::Filesystem(make))
    }

    pub(crate) fn create_dataset(
        &self,
        name: &str,
        props: BTreeMap<String, Stored>,
        new: New,
    ) -> Result<()> {
        let name = name.to_string();
        self.task_within(Need::New(5), move |cx| {
            let mos = cx.making.mos;
            let (parent, leaf) = cx.free_name(&name)?;
            if crypt::key_of(mos, parent)?.is_some() && !props.contains_key("encryption") {
                let what = "encryption root's key is not loaded or provided";
                return Err(PoolError::Invalid(what.into()));
            }
            for promise in ["reservation", "refreservation"] {
                if let Some(Stored::Number(number)) = props.get(promise)
                    && *number > cx.pool.dir_available(parent)?
                {
                    return Err(PoolError::Invalid("out of space".into()));
                }
            }
            let origin = lookup::origin(mos)?;
            cx.pool.upheave_new();
            let dir = cx.making.dir(Some(parent), &leaf)?;
            limits::adjust(cx.making, parent, Counted::Filesystems, 1)?;
            limits::start_new(cx.making, dir)?;
            let object = cx.making.dataset_object(dir, Some(origin))?;
            properties(cx.making, dir, &props)?;
            if let New::Filesystem(_) = new {
                cx.making.activate(object, Feature::UserobjAccounting)?;
                cx.making.activate(object, Feature::ProjectQuota)?;
            }
            let found = lookup::find(mos, &name)?;
            let policy = cx.pool.policy(&found)?;
            let objset = match new {
                New::Filesystem(make) => filesystem(cx.making, policy, make, &props)?,
                New::Volume { size, block } => volume(cx.making, policy, size, block)?,
            };
            cx.sync_objset(object, &objset, 0)?;
            for (property, value) in &props {
                cx.apply(&name, property, Some(value))?;
            }
            Ok(())
        })
    }

    /// Sets a property of a data set; `None` makes it inherited again.
    ///
    /// The value is as stored; that it is allowed has been checked against `props`.
    pub fn set_property(&self, name: &str, property: &str, value: Option<Stored>) -> Result<()> {
        self.change_property(name, property, value.map_or(Change::Inherit, Change::Set))
    }

    /// Changes a property of a file system, volume or snapshot.
    pub fn change_property(&self, name: &str, property: &str, change: Change) -> Result<()> {
        let (name, property) = (name.to_string(), property.to_string());
        let need = match (property.as_str(), change.value()) {
            ("quota" | "refquota" | "reservation" | "refreservation", _) | (_, None) => Need::Free,
            _ => Need::Change(2),
        };
        self.task_within(need, move |cx| {
            let mos = cx.making.mos;
            let found = lookup::find(mos, &name)?;
            if found.is_snapshot() {
                return cx.change_of_snapshot(&found, &property, &change);
            }
            let zap = found.dir.props_zap_object.get();
            // A limit that came with a stream counts like one that is set.
            let value = property::after(mos, zap, &property, &change)?;
            if let Some(Stored::Number(number)) = &value {
                cx.pool.check_limit(&found, &property, *number)?;
            }
            property::change(mos, cx.tx, zap, &property, &change)?;
            cx.apply(&name, &property, value.as_ref())
        })
    }

    /// May a quota or reservation have this value? As OpenZFS has it: no quota below what is used
    /// or promised, no promise of more than there is.
    fn check_limit(&self, found: &lookup::Found, property: &str, number: u64) -> Result<()> {
        let below =
            || PoolError::Invalid("size is less than current used or reserved space".into());
        let above = || PoolError::Invalid("size is greater than available space".into());
        let (dir, reserved) = (&found.dir, found.dir.reserved_bytes.get());
        let (used, quota) = (dir.used_bytes.get(), dir.quota_bytes.get());
        let unique = found.phys.unique_bytes.get();
        let grown = |used: u64, old: u64| number.max(used).saturating_sub(old.max(used));
        match property {
            "quota" if number != 0 && number < used.max(reserved) => Err(below()),
            "refquota" if number != 0 => {
                let held = property::number(&self.mos, found, "refreservation", false, 0)?;
                let least = found.phys.referenced_bytes.get().max(held);
                if number < least { Err(below()) } else { Ok(()) }
            }
            "reservation" if grown(used, reserved) > 0 => {
                let room = match dir.parent_object.get() {
                    0 => self.dir_available(found.dir_object)?,
                    parent => self.dir_available(parent)?,
                };
                let fits = grown(used, reserved) <= room && (quota == 0 || number <= quota);
                if fits { Ok(()) } else { Err(above()) }
            }
            "refreservation" => {
                let own = |name| property::number(&self.mos, found, name, false, 0);
                let (quota, grown) = (own("refquota")?, grown(unique, own("refreservation")?));
                let room = if grown > 0 { self.dir_available(found.dir_object)? } else { 0 };
                let fits = grown <= room && (quota == 0 || number <= quota);
                if grown == 0 || fits { Ok(()) } else { Err(above()) }
            }
            _ => Ok(()),
        }
    }

    /// Appends a record to the history; not in a pool in which only what frees has room, if that.
    pub fn note(&self, record: NvList) -> Result<()> {
        let append =
            move |cx: &TaskContext<'_>| crate::history::append(cx.making.mos, cx.tx, &record);
        match self.task_within(Need::Free, append) {
            Err(PoolError::NoRoom) => Ok(()),
            noted => noted,
        }
    }
}

impl TaskContext<'_> {
    /// What a property means beyond being stored: quotas and reservations live in the directory,
    /// and open data sets obey from now on.
    pub(crate) fn apply(&self, name: &str, property: &str, value: Option<&Stored>) -> Result<()> {
        let mos = self.making.mos;
        let number = match value {
            Some(Stored::Number(number)) => *number,
            _ => 0,
        };
        let found = lookup::find(mos, name)?;
        match property {
            "quota" => {
                let mut dir = found.dir;
                dir.quota_bytes.set(number);
                mos.set_dir(self.tx, found.dir_object, &dir)?;
            }
            "reservation" => self.reserve(found.dir_object, number)?,
            "filesystem_limit" | "snapshot_limit" if value.is_some() && number != u64::MAX => {
                limits::start(self.making, found.dir_object)?;
            }
            "refreservation" => {
                // REFRSRV is what is reserved beyond the unique bytes.
                let wanted = number.saturating_sub(found.phys.unique_bytes.get());
                let now = found.dir.used(Used::RefReserved);
                let delta = difference(wanted, now)?;
                let delta = Delta { used: delta, ..Delta::default() };
                charge(mos, self.tx, found.dir_object, Used::RefReserved, delta)?;
            }
            _ => {}
        }
        // Children may inherit.
        for dataset in self.pool.upheave_all() {
            let own = dataset.name();
            let below = own == name || own.starts_with(&format!("{name}/"));
            if below && !own.contains('@') {
                dataset.refresh(self.pool)?;
            }
        }
        Ok(())
    }

    /// Changes a property that a snapshot has of its own.
    fn change_of_snapshot(
        &self,
        found: &lookup::Found,
        property: &str,
        change: &Change,
    ) -> Result<()> {
        let mos = self.making.mos;
        let mut props = found.phys.props_object.get();
        if props == 0 {
            if change.value().is_none() {
                return Ok(());
            }
            props = mos.create_zap(self.tx, format::ObjectType::DSL_PROPS, 0)?.number();
            let mut ds = found.phys;
            ds.props_object.set(props);
            mos.set_dataset(self.tx, found.object, &ds)?;
        }
        property::change(mos, self.tx, props, property, change)
    }

    /// Reserves space for a directory; the parent is charged with what is not used yet.
    fn reserve(&self, dir_object: u64, bytes: u64) -> Result<()> {
        let mos = self.making.mos;
        let mut dir = mos.dir(dir_object)?;
        let used = dir.used_bytes.get();
        let old = used.max(dir.reserved_bytes.get());
        let delta = difference(used.max(bytes), old)?;
        dir.reserved_bytes.set(bytes);
        mos.set_dir(self.tx, dir_object, &dir)?;
        let parent = dir.parent_object.get();
        if parent == 0 || delta == 0 {
            return Ok(());
        }
        let delta = Delta { used: delta, ..Delta::default() };
        charge(mos, self.tx, parent, Used::ChildReserved, delta)
    }
}
