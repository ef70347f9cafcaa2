//! What commands ask of snapshots and clones. Each request is one task in one txg: several
//! snapshots are of the same moment, and a destroy is done for all or for none.

use std::collections::{BTreeMap, BTreeSet};

use dmu::Objset;
use format::ObjectType;
use format::dsl_dataset::DslDatasetFlags;
use rt::sync::Arc;
use rt::sync::atomic::Ordering;

use crate::create::properties;
use crate::dsl::bookmark;
use crate::dsl::crypt;
use crate::dsl::deadlist;
use crate::dsl::limits::{self, Counted};
use crate::dsl::lookup::{self, Found};
use crate::dsl::property::{self, Stored};
use crate::error::{PoolError, Result};
use crate::pool::Pool;
use crate::props::LIMITS;
use crate::props::name::DEPTH_MAX;
use crate::scan::Moved;
use crate::space::Need;
use crate::sync::{TaskContext, logs_died};

/// Bytes of what somebody calls his hold of a snapshot, at most.
const TAG_MAX: usize = format::zap::NAME_MAX;
/// Snapshots of one data set that are followed.
const SNAPSHOTS_MAX: usize = 1 << 20;

/// Levels of a data set, or of what a snapshot is of, below its pool.
fn levels(name: &str) -> usize {
    name.split('@').next().unwrap_or_default().matches('/').count()
}

/// Each of these names once: one that is met a second time would be of what is changed by then.
fn each_once(names: &[String]) -> Vec<String> {
    let mut met = BTreeSet::new();
    names.iter().filter(|name| met.insert(*name)).cloned().collect()
}

/// How the root of a head is.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Readable {
    Whole,
    Lost,
}

/// What was asked of the object set of `found` before anything is changed: if that is lost, it is a reason to refuse.
fn refusing<T>(found: &Found, asked: Result<T>) -> Result<T> {
    asked.map_err(|error| match error.is_lost() {
        true => PoolError::ReadOnly { name: found.name.clone(), reason: error.to_string() },
        false => error,
    })
}

impl Pool {
    /// A task that may have to wait for the next txg: `make` gives it anew each time.
    fn task_in_its_txg<T, F>(&self, need: Need, make: impl Fn() -> F) -> Result<T>
    where
        T: Send + 'static,
        F: FnOnce(&TaskContext<'_>) -> Result<T> + Send + 'static,
    {
        loop {
            match self.task_within(need, make()) {
                Err(PoolError::SameTxg { .. }) => {}
                result => return result,
            }
        }
    }

    /// Takes the snapshots `names` (`pool/a@b`), all in one txg, with these properties.
    pub fn snapshot(&self, names: &[String], props: &[(String, Stored)]) -> Result<()> {
        self.task_in_its_txg(Need::New(3).times(names.len()), || {
            let (names, props) = (names.to_vec(), props.to_vec());
            move |cx: &TaskContext<'_>| {
                let mut heads = Vec::new();
                for name in &names {
                    heads.push(cx.may_snapshot(name)?);
                }
                for (head, name) in &heads {
                    let reserved = cx.refreservation(head)?;
                    let snapshot = cx.making.snapshot(head, name, reserved, &props)?;
                    cx.scan_follows(Moved::Snapshotted { head: head.object, snapshot })?;
                    limits::adjust(cx.making, head.dir_object, Counted::Snapshots, 1)?;
                }
                Ok(())
            }
        })
    }

    /// Destroys the snapshots `names`, all in one txg. `defer`: those that are held or have clones
    /// go when the last of these goes. Those that are not there are passed over: one that waited so
    /// has gone with its last clone.
    pub fn destroy_snapshots(&self, names: &[String], defer: bool) -> Result<()> {
        let names = each_once(names);
        self.task_within(Need::Free, move |cx| {
            let mos = cx.making.mos;
            let mut there = Vec::new();
            for name in &names {
                let found = match cx.find(name) {
                    Err(PoolError::NoDataset { .. }) => continue,
                    found => found?,
                };
                if !defer {
                    cx.may_destroy_snapshot(&found)?;
                }
                cx.unfrozen(&lookup::head_of(mos, &found)?)?;
                there.push(name);
            }
            for name in there {
                let mut found = cx.find(name)?;
                if cx.may_destroy_snapshot(&found).is_ok() {
                    cx.destroy_snapshot(&found)?;
                } else {
                    let flags = found.phys.flags.get() | DslDatasetFlags::DEFER_DESTROY;
                    found.phys.flags.set(flags);
                    mos.set_dataset(cx.tx, found.object, &found.phys)?;
                }
            }
            Ok(())
        })
    }

    /// Destroys the file system or volume `name`, which must have no children and no snapshots.
    pub fn destroy_dataset(&self, name: &str) -> Result<()> {
        let name = name.to_string();
        self.task_within(Need::Free, move |cx| {
            let mos = cx.making.mos;
            let found = cx.find(&name)?;
            let children = !lookup::children(mos, found.dir_object, &found.dir)?.is_empty();
            if children || !lookup::snapshots(mos, &found.phys)?.is_empty() {
                return Err(PoolError::HasChildren { name });
            }
            if found.dir.parent_object.get() == 0 {
                let what = format!("operation does not apply to pools: {name}");
                return Err(PoolError::Invalid(what));
            }
            let readable = cx.may_destroy_head(&found)?;
            let log = cx.revoke(&found)?;
            let parent = found.dir.parent_object.get();
            limits::adjust(cx.making, parent, Counted::Filesystems, -1)?;
            // One that nobody can find stays allocated.
            if !log && readable == Readable::Whole {
                cx.pool.free_log_of(&found)?;
            }
            cx.forget_bootfs(found.object)?;
            cx.ledger.destroy_head(&found)?;
            cx.scan_follows(Moved::Destroyed { object: found.object, next: None })?;
            cx.free_later();
            // An origin that was only waiting for its last clone.
            let origin = found.phys.prev_snap_object.get();
            let origin = lookup::snapshot_of_object(mos, cx.pool.name(), origin)?;
            if let Some(origin) = origin
                && origin.phys.flags.get() & DslDatasetFlags::DEFER_DESTROY != 0
                && cx.may_destroy_snapshot(&origin).is_ok()
            {
                cx.destroy_snapshot(&origin)?;
            }
            Ok(())
        })
    }

    /// Makes `name` a clone of snapshot `origin`, with these properties of its own. Quotas and reservations are
    /// refused: whether they can be kept is known once it is there.
    pub fn clone_snapshot(
        &self,
        origin: &str,
        name: &str,
        props: BTreeMap<String, Stored>,
    ) -> Result<()> {
        if let Some(limit) = props.keys().find(|name| LIMITS.contains(&name.as_str())) {
            let what = format!("{name}: '{limit}' is set once a clone is there");
            return Err(PoolError::Invalid(what));
        }
        let (origin, name) = (origin.to_string(), name.to_string());
        self.task_within(Need::New(6), move |cx| {
            let mos = cx.making.mos;
            let origin = cx.find(&origin)?;
            let (parent, leaf) = cx.free_name(&name)?;
            cx.unfrozen(&origin)?;
            cx.lists_can_change(&name, [origin.dir.head_dataset_object.get()])?;
            cx.log_can_go(&origin)?;
            cx.pool.upheave_new();
            let dir = cx.making.dir(Some(parent), &leaf)?;
            limits::adjust(cx.making, parent, Counted::Filesystems, 1)?;
            limits::start_new(cx.making, dir)?;
            let object = cx.making.dataset_object(dir, Some(origin.object))?;
            let mut ds = mos.dataset(object)?;
            ds.bp = origin.phys.bp;
            ds.referenced_bytes = origin.phys.referenced_bytes;
            ds.compressed_bytes = origin.phys.compressed_bytes;
            ds.uncompressed_bytes = origin.phys.uncompressed_bytes;
            let kept = origin.phys.flags.get() & DslDatasetFlags::CI_DATASET;
            ds.flags.set(ds.flags.get() | kept);
            mos.set_dataset(cx.tx, object, &ds)?;
            cx.making.copy_features(origin.object, object)?;
            cx.making.share_key(origin.dir_object, dir)?;
            properties(cx.making, dir, &props)?;
            for (property, value) in &props {
                cx.apply(&name, property, Some(value))?;
            }
            cx.without_log(&name)
        })
    }

    /// Makes the clone `name` the owner of the snapshots up to its origin.
    pub fn promote(&self, name: &str) -> Result<()> {
        let name = name.to_string();
        self.task_within(Need::Change(2), move |cx| {
            let mos = cx.making.mos;
            let found = cx.find(&name)?;
            let origin = found.dir.origin_object.get();
            if origin == 0 || origin == lookup::origin(mos)? {
                return Err(PoolError::NoClone { name });
            }
            cx.unfrozen(&found)?;
            cx.unencrypted(&found)?;
            let owner = mos.dir(mos.dataset(origin)?.dir_object.get())?;
            let theirs = mos.dataset(owner.head_dataset_object.get())?;
            cx.lists_can_change(&name, cx.ledger.lists_of_promote(&found)?)?;
            let moving: Vec<u64> =
                cx.ledger.shared_snapshots(&found)?.iter().map(|(object, _)| *object).collect();
            let own = mos.zap(found.phys.snapnames_zap_object.get())?;
            for (snapshot, object, _) in lookup::snapshots(mos, &theirs)? {
                if !moving.contains(&object) {
                    continue;
                }
                lookup::fits_name(name.len() + 1 + snapshot.len())?;
                if own.get(snapshot.as_bytes())?.is_some() {
                    let origin = lookup::snapshot_of_object(mos, cx.pool.name(), origin)?;
                    let origin = origin.map_or_else(String::new, |origin| origin.name);
                    return Err(PoolError::Conflict { snapshot, origin });
                }
            }
            let until = mos.dataset(origin)?.creation_txg.get();
            for mark in bookmark::of(mos, owner.head_dataset_object.get())? {
                if mark.phys.creation_txg > until {
                    continue;
                }
                lookup::fits_name(name.len() + 1 + mark.name.len())?;
                let own = String::from_utf8_lossy(&mark.name);
                if bookmark::find(mos, found.object, &own)?.is_some() {
                    let snapshot = own.into_owned();
                    let origin = lookup::snapshot_of_object(mos, cx.pool.name(), origin)?;
                    let origin = origin.map_or_else(String::new, |origin| origin.name);
                    return Err(PoolError::Conflict { snapshot, origin });
                }
            }
            let count = moving.len() as i64;
            let old = mos.dataset(origin)?.dir_object.get();
            // Within the pool the space stays the same: only a quota can be in the way.
            cx.pool.fits_below(found.dir_object, old, cx.ledger.shared_space(&found)?.used)?;
            limits::adjust(cx.making, old, Counted::Snapshots, -count)?;
            limits::adjust(cx.making, found.dir_object, Counted::Snapshots, count)?;
            cx.ledger.promote(&found)?;
            let head = mos.dataset(found.object)?;
            for (snapshot, object, _) in lookup::snapshots(mos, &head)? {
                if let Some(open) = cx.pool.open_or_upheave(object) {
                    open.set_name(format!("{name}@{snapshot}"));
                }
            }
            Ok(())
        })
    }

    /// Gives the file system or volume `from` the name `to`, whose parent must exist.
    pub fn rename(&self, from: &str, to: &str) -> Result<()> {
        let (from, to) = (from.to_string(), to.to_string());
        self.task_within(Need::Change(3), move |cx| {
            let mos = cx.making.mos;
            let found = cx.find(&from)?;
            if to.strip_prefix(&from).is_some_and(|rest| rest.starts_with('/')) {
                let what = format!(
                    "cannot rename '{from}': New dataset name cannot be a descendant of current \
                     dataset name"
                );
                return Err(PoolError::Invalid(what));
            }
            if found.dir.parent_object.get() == 0 {
                let what = format!("cannot rename '{from}': pools cannot be renamed so");
                return Err(PoolError::Invalid(what));
            }
            let (parent, leaf) = cx.free_name(&to)?;
            let deeper = levels(&to).saturating_sub(levels(&from));
            for below in lookup::walk(mos, &from)? {
                // What is too deep already may stay so deep.
                if deeper > 0 && levels(&below.name) + deeper >= DEPTH_MAX {
                    return Err(PoolError::Invalid("dataset name is too long".into()));
                }
                let name = to.len() + below.name.len() - from.len();
                lookup::fits_name(name)?;
                let marks = match below.is_snapshot() {
                    true => Vec::new(),
                    false => bookmark::of(mos, below.object)?,
                };
                marks.iter().try_for_each(|mark| lookup::fits_name(name + 1 + mark.name.len()))?;
            }
            cx.unfrozen(&found)?;
            crypt::may_move(mos, found.dir_object, parent)?;
            let old = found.dir.parent_object.get();
            // What is reserved counts above as if it were used.
            let held = found.dir.used_bytes.get().max(found.dir.reserved_bytes.get());
            if parent != old && cx.pool.dir_available(parent)? < held {
                // Within the pool the space stays the same: only a quota can be in the way.
                cx.pool.fits_below(parent, old, held)?;
            }
            limits::move_counts(cx.making, found.dir_object, (old, parent))?;
            cx.ledger.rename_dir(&found, parent, &leaf)?;
            cx.pool.renamed(&from, &to)
        })
    }

    /// Gives snapshots new names: pairs of full name and new last part, all in one txg.
    pub fn rename_snapshots(&self, names: &[(String, String)]) -> Result<()> {
        let names = names.to_vec();
        self.task_within(Need::Change(1).times(names.len()), move |cx| {
            let mos = cx.making.mos;
            let mut heads = Vec::new();
            for (from, to) in &names {
                let found = cx.find(from)?;
                let head = lookup::head_of(mos, &found)?;
                let new = format!("{}@{to}", head.name);
                lookup::fits_name(new.len())?;
                if cx.find(&new).is_ok() {
                    return Err(PoolError::Exists { name: new });
                }
                heads.push((head, from.rsplit('@').next().unwrap_or_default(), to));
            }
            for (head, from, to) in heads {
                cx.ledger.rename_snapshot(&head, from, to)?;
                cx.pool
                    .renamed(&format!("{}@{from}", head.name), &format!("{}@{to}", head.name))?;
            }
            Ok(())
        })
    }

    /// Rolls a file system back to its last snapshot: `name` is `pool/a@last`. Who has it open has
    /// to open it anew.
    pub fn rollback(&self, name: &str) -> Result<()> {
        let name = name.to_string();
        self.task_within(Need::Change(1), move |cx| {
            let mos = cx.making.mos;
            let snapshot = cx.find(&name)?;
            let head = lookup::head_of(mos, &snapshot)?;
            if head.phys.prev_snap_object.get() != snapshot.object {
                let what = format!("cannot rollback to '{name}': more recent snapshots exist");
                return Err(PoolError::Invalid(what));
            }
            cx.unfrozen(&head)?;
            cx.log_can_go(&snapshot)?;
            let txg = snapshot.phys.creation_txg.get();
            if bookmark::of(mos, head.object)?.iter().any(|mark| mark.phys.creation_txg > txg) {
                let what = format!("cannot rollback to '{name}': more recent bookmarks exist");
                return Err(PoolError::Invalid(what));
            }
            let reserved = cx.refreservation(&head)?;
            let log = cx.revoke(&head)?;
            cx.free_later();
            if !log {
                cx.pool.free_log_of(&head)?;
            }
            cx.ledger.rollback(&head, reserved)?;
            cx.without_log(&head.name)
        })
    }

    /// Holds snapshots for somebody who calls it `tag`, in 1 to 255 bytes: they cannot be destroyed.
    pub fn hold(&self, names: &[String], tag: &str) -> Result<()> {
        if tag.len() > TAG_MAX {
            return Err(PoolError::Invalid("tag too long".into()));
        }
        if tag.is_empty() || tag.contains('\0') {
            return Err(PoolError::Invalid("invalid tag".into()));
        }
        let (names, tag) = (each_once(names), tag.to_string());
        self.task_within(Need::Change(1).times(names.len()), move |cx| {
            let (mos, tx) = (cx.making.mos, cx.tx);
            let mut snapshots = Vec::new();
            for name in &names {
                let found = cx.find(name)?;
                let holds = found.phys.userrefs_object.get();
                if holds != 0 && mos.zap(holds)?.get(tag.as_bytes())?.is_some() {
                    return Err(PoolError::Exists { name: name.clone() });
                }
                snapshots.push(found);
            }
            for mut found in snapshots {
                if found.phys.userrefs_object.get() == 0 {
                    let zap = mos.create_zap(tx, ObjectType::USERREFS, 0)?;
                    found.phys.userrefs_object.set(zap.number());
                    mos.set_dataset(tx, found.object, &found.phys)?;
                }
                let zap = mos.zap(found.phys.userrefs_object.get())?;
                zap.put_u64(tx, tag.as_bytes(), cx.making.now_secs)?;
            }
            Ok(())
        })
    }

    /// Lets go of what [`Pool::hold`] holds. Snapshots whose destroy waited for it go.
    pub fn release(&self, names: &[String], tag: &str) -> Result<()> {
        let (names, tag) = (each_once(names), tag.to_string());
        self.task_within(Need::Free, move |cx| {
            let mos = cx.making.mos;
            for name in &names {
                let holds = cx.find(name)?.phys.userrefs_object.get();
                if holds == 0 || mos.zap(holds)?.get(tag.as_bytes())?.is_none() {
                    return Err(PoolError::NoTag { name: name.clone() });
                }
            }
            for name in &names {
                let found = cx.find(name)?;
                let holds = found.phys.userrefs_object.get();
                mos.zap(holds)?.remove(cx.tx, tag.as_bytes())?;
                let waits = found.phys.flags.get() & DslDatasetFlags::DEFER_DESTROY != 0;
                if waits && cx.may_destroy_snapshot(&found).is_ok() {
                    cx.destroy_snapshot(&found)?;
                }
            }
            Ok(())
        })
    }

    /// Who holds a snapshot: tags, in order, with the seconds since 1970 at which it began.
    pub fn holds(&self, found: &Found) -> Result<Vec<(String, u64)>> {
        let holds = found.phys.userrefs_object.get();
        if holds == 0 {
            return Ok(Vec::new());
        }
        let entries = self.mos.zap(holds)?.entries()?;
        let tag = |name: &[u8]| String::from_utf8_lossy(name).into_owned();
        let since = entries.iter().map(|e| (tag(&e.name), e.value.as_u64().unwrap_or(0)));
        let mut since: Vec<_> = since.collect();
        since.sort();
        Ok(since)
    }

    /// Names of the clones of a snapshot, in order.
    pub fn clones_of(&self, snapshot: &Found) -> Result<Vec<String>> {
        let next = snapshot.phys.next_clones_object.get();
        if next == 0 {
            return Ok(Vec::new());
        }
        let mut names = Vec::new();
        for entry in self.mos.zap(next)?.entries()? {
            if let Some(first) = entry.value.as_u64() {
                let dir = self.mos.dataset(first)?.dir_object.get();
                names.push(lookup::name_of_dir(&self.mos, &self.name, dir)?);
            }
        }
        names.sort();
        Ok(names)
    }

    /// Bytes that come back when the snapshots from `first` to `last` of one head are destroyed.
    pub fn would_free(&self, first: &Found, last: &Found) -> Result<u64> {
        let (mut bytes, mut at) = (0u64, last.phys.next_snap_object.get());
        // What each after `first` let go of that is younger than the one before `first`: nobody else has it.
        for _ in 0..=SNAPSHOTS_MAX {
            if at == first.object || at == 0 {
                break;
            }
            let phys = self.mos.dataset(at)?;
            let (list, from) = (phys.deadlist_object.get(), first.phys.prev_snap_txg.get());
            let dead = deadlist::space_within(&self.mos, list, from, u64::MAX)?;
            bytes = bytes.saturating_add(dead.used);
            at = phys.prev_snap_object.get();
        }
        Ok(bytes)
    }

    /// Open data sets below `from` are told their new names.
    fn renamed(&self, from: &str, to: &str) -> Result<()> {
        for dataset in self.upheave_all() {
            let name = dataset.name();
            if let Some(rest) = name.strip_prefix(from)
                && (rest.is_empty() || rest.starts_with(['/', '@']))
            {
                dataset.set_name(format!("{to}{rest}"));
                // A snapshot obeys nothing; where it was opened it may be no more.
                if !name.contains('@') {
                    dataset.refresh(self)?;
                }
            }
        }
        Ok(())
    }

    /// Would `bytes` that move from below directory `old` to below `parent` exceed a quota there?
    fn fits_below(&self, parent: u64, old: u64, bytes: u64) -> Result<()> {
        let mut above_old = Vec::new();
        let mut at = old;
        while at != 0 && above_old.len() < lookup::DEPTH_MAX {
            above_old.push(at);
            at = self.mos.dir(at)?.parent_object.get();
        }
        let mut at = parent;
        for _ in 0..lookup::DEPTH_MAX {
            if at == 0 || above_old.contains(&at) {
                break;
            }
            let dir = self.mos.dir(at)?;
            let quota = dir.quota_bytes.get();
            if quota != 0 && dir.used_bytes.get().saturating_add(bytes) > quota {
                return Err(PoolError::Invalid("out of space".into()));
            }
            at = dir.parent_object.get();
        }
        Ok(())
    }
}

impl TaskContext<'_> {
    /// The data set or snapshot of a name of this pool's.
    fn find(&self, name: &str) -> Result<Found> {
        lookup::find_in(self.making.mos, self.pool.name(), name)
    }

    /// The refreservation of a head, in bytes.
    pub(crate) fn refreservation(&self, head: &Found) -> Result<u64> {
        property::number(self.making.mos, head, "refreservation", false, 0)
    }

    /// The parent's directory and the last part of a name that is to be made.
    pub(crate) fn free_name(&self, name: &str) -> Result<(u64, String)> {
        let mos = self.making.mos;
        lookup::of_pool(self.pool.name(), name)?;
        lookup::fits_name(name.len())?;
        if lookup::find_dir(mos, name)?.is_some() {
            return Err(PoolError::Exists { name: name.into() });
        }
        let missing = || PoolError::NoParent { name: name.into() };
        let (parent, leaf) = name.rsplit_once('/').ok_or_else(missing)?;
        let parent = lookup::find_dir(mos, parent)?.ok_or_else(missing)?;
        Ok((parent, leaf.into()))
    }

    /// What began as a snapshot of the kernel's has the header of its head's intent log, too: blocks that are not
    /// its own, whose records would be replayed into it.
    fn without_log(&self, name: &str) -> Result<()> {
        let found = self.find(name)?;
        let store = self.pool.store_of(found.object);
        let objset = Objset::open(store, &found.phys.bp, self.pool.policy(&found)?, None)?;
        if objset.phys().zil_header.iter().all(|byte| *byte == 0) {
            return Ok(());
        }
        objset.change_phys(|phys| phys.zil_header.fill(0));
        self.sync_objset(found.object, &Arc::new(objset), self.refreservation(&found)?)
    }

    /// May a head (or a snapshot's root) get snapshots, clones or another place? Refused with the
    /// reason (INV-12).
    pub(crate) fn unfrozen(&self, found: &Found) -> Result<()> {
        match refusing(found, self.pool.frozen_because(found))? {
            None => Ok(()),
            Some(reason) => Err(PoolError::ReadOnly { name: found.name.clone(), reason }),
        }
    }

    /// May a head be destroyed? Also if nobody can read what it is, and so what log it has.
    fn may_destroy_head(&self, found: &Found) -> Result<Readable> {
        match self.pool.objset_phys(found) {
            Err(error) if error.is_lost() && !found.phys.bp.is_hole() => {
                match self.pool.unfinished(found) {
                    None => Ok(Readable::Lost),
                    Some(reason) => Err(PoolError::ReadOnly { name: found.name.clone(), reason }),
                }
            }
            _ => self.unfrozen(found).map(|()| Readable::Whole),
        }
    }

    /// Refuses to change `name` if the deadlist of one of these data sets is of an old form (INV-12).
    fn lists_can_change(&self, name: &str, objects: impl IntoIterator<Item = u64>) -> Result<()> {
        for object in objects {
            let phys = self.making.mos.dataset(object)?;
            if let Some(reason) = self.pool.old_deadlist(&phys) {
                return Err(PoolError::ReadOnly { name: name.into(), reason });
            }
        }
        Ok(())
    }

    /// Refuses what would need the key of an encrypted data set.
    fn unencrypted(&self, found: &Found) -> Result<()> {
        let phys = refusing(found, self.pool.objset_phys(found))?;
        match self.pool.encrypted_because(found, &phys)? {
            None => Ok(()),
            Some(reason) => Err(PoolError::ReadOnly { name: found.name.clone(), reason }),
        }
    }

    /// May what begins as this snapshot begin without its log? ([`TaskContext::without_log`]) Not if that changes
    /// what is encrypted.
    fn log_can_go(&self, snapshot: &Found) -> Result<()> {
        let phys = refusing(snapshot, self.pool.objset_phys(snapshot))?;
        if phys.zil_header.iter().all(|byte| *byte == 0) {
            return Ok(());
        }
        self.unencrypted(snapshot)
    }

    /// The head of the snapshot to be taken as `name`, and the snapshot's own name.
    fn may_snapshot(&self, name: &str) -> Result<(Found, String)> {
        let mos = self.making.mos;
        let none = || PoolError::Invalid(format!("'{name}' is not the name of a snapshot"));
        let (path, snapshot) = name.split_once('@').ok_or_else(none)?;
        let head = self.find(path)?;
        lookup::fits_name(name.len())?;
        if mos.zap(head.phys.snapnames_zap_object.get())?.get(snapshot.as_bytes())?.is_some() {
            return Err(PoolError::Exists { name: name.into() });
        }
        self.unfrozen(&head)?;
        if head.phys.prev_snap_txg.get() >= self.tx.txg() {
            return Err(PoolError::SameTxg { name: name.into() });
        }
        let again = head.phys.unique_bytes.get().min(self.refreservation(&head)?);
        if again > 0 && again > self.pool.dir_available(head.dir_object)? {
            return Err(PoolError::Invalid("out of space".into()));
        }
        Ok((head, snapshot.into()))
    }

    /// Whoever has a head open has it no more. Was its header that of a log that was written here? Then that is
    /// gone.
    fn revoke(&self, found: &Found) -> Result<bool> {
        let Some(head) = self.pool.upheave(found.object) else { return Ok(false) };
        head.revoked.store(true, Ordering::Relaxed);
        let Some((in_header, dying)) = head.log.revoke() else { return Ok(false) };
        logs_died(self.writing, self.tx.txg(), dying)?;
        Ok(in_header)
    }

    /// Something was left to be freed.
    fn free_later(&self) {
        self.writing.freeing.lock().pending = true;
    }

    fn may_destroy_snapshot(&self, found: &Found) -> Result<()> {
        let name = found.name.clone();
        let holds = found.phys.userrefs_object.get();
        if holds != 0 && self.making.mos.zap(holds)?.count()? > 0 {
            return Err(PoolError::Held { name });
        }
        if found.phys.num_children.get() > 1 {
            return Err(PoolError::HasClones { name });
        }
        self.lists_can_change(&name, self.ledger.lists_of_destroy(found)?)
    }

    pub(crate) fn destroy_snapshot(&self, found: &Found) -> Result<()> {
        let head = lookup::head_of(self.making.mos, found)?;
        let reserved = self.refreservation(&head)?;
        self.revoke(found)?;
        self.free_later();
        limits::adjust(self.making, found.dir_object, Counted::Snapshots, -1)?;
        let next = self.making.mos.dataset(found.object)?.next_snap_object.get();
        self.ledger.destroy_snapshot(found, reserved)?;
        self.scan_follows(Moved::Destroyed { object: found.object, next: Some(next) })
    }
}
