//! Destroying data sets: names and objects go at once, blocks are left to `freeing`.
//!
//! A snapshot hands what only it held to the list of what is freed, and the rest to its neighbour.
//! FORMAT: section 8.5.

use dmu::{DmuError, Space};
use format::ObjectType;
use format::dsl_dir::{DslDirPhys, Used};
use format::features::Feature;

use crate::dsl::account::{Delta, charge};
use crate::dsl::create::Making;
use crate::dsl::deadlist::{Deadlist, space, space_within};
use crate::dsl::freeing;
use crate::dsl::lookup::{DEPTH_MAX, Found};
use crate::error::{PoolError, Result};
use crate::ledger::Ledger;

fn damaged(detail: String) -> PoolError {
    PoolError::Damaged { what: "DSL data set", detail }
}

fn negative(space: Space) -> Delta {
    Delta::between(Space::default(), space)
}

impl Ledger<'_> {
    /// Destroys a snapshot that nobody holds and that has no clones. `reserved`: the
    /// refreservation of its head, in bytes.
    pub(crate) fn destroy_snapshot(&self, found: &Found, reserved: u64) -> Result<()> {
        let (making, mos, tx) = (self.making, self.making.mos, self.making.tx);
        let (object, snap) = (found.object, mos.dataset(found.object)?);
        let (before, born) = (snap.prev_snap_txg.get(), snap.creation_txg.get());
        let next_object = snap.next_snap_object.get();
        let prev_object = snap.prev_snap_object.get();
        let head_object = found.dir.head_dataset_object.get();
        let marked = self.bookmarks_outlive(head_object, object)?;
        making.drop_features(object)?;

        making.relink_next(prev_object, object, next_object)?;
        let mut next = mos.dataset(next_object)?;
        next.prev_snap_object = snap.prev_snap_object;
        next.prev_snap_txg = snap.prev_snap_txg;
        mos.set_dataset(tx, next_object, &next)?;

        // What the snapshot before it shared with this one alone is its own now.
        let mut deadlist = Deadlist::open(making, next.deadlist_object.get())?;
        if prev_object != 0 {
            let mut prev = mos.dataset(prev_object)?;
            if prev.next_snap_object.get() == next_object {
                let own = deadlist.space_within(prev.prev_snap_txg.get(), before)?;
                prev.unique_bytes += own.used;
                mos.set_dataset(tx, prev_object, &prev)?;
            }
        }

        // What only this snapshot held.
        let freed = deadlist.give_after(before, &freeing::list(mos)?)?;
        charge(mos, tx, found.dir_object, Used::Snap, negative(freed))?;
        self.charge_free(freed, 1)?;

        deadlist.merge(Deadlist::open(making, snap.deadlist_object.get())?)?;
        if !marked {
            self.forget_in_clones(found.dir_object, born, 0)?;
        }
        if next.next_snap_object.get() != 0 {
            self.gain_of_snapshot(next_object, before, born)?;
            if !marked {
                let head = mos.dataset(head_object)?;
                Deadlist::open(making, head.deadlist_object.get())?.remove_key(born)?;
            }
        } else {
            self.gain_of_head(next_object, reserved)?;
        }

        let head = mos.dataset(head_object)?;
        let (_, name) = found.name.split_once('@').unwrap_or_default();
        mos.zap(head.snapnames_zap_object.get())?.remove(tx, name.as_bytes())?;
        for number in [snap.next_clones_object, snap.props_object, snap.userrefs_object] {
            if number.get() != 0 {
                mos.objset.free(tx, number.get())?;
            }
        }
        Ok(mos.objset.free(tx, object)?)
    }

    /// The data sets whose deadlists a destroy of the snapshot looks at or changes: its own, those of what follows, and
    /// of heads that may have its key.
    pub(crate) fn lists_of_destroy(&self, found: &Found) -> Result<Vec<u64>> {
        let mos = self.making.mos;
        let next = mos.dataset(found.object)?.next_snap_object.get();
        let after = mos.dataset(next)?.next_snap_object.get();
        let mut lists = vec![found.object, next, found.dir.head_dataset_object.get()];
        lists.extend((after != 0).then_some(after));
        self.heads_of_clones(found.dir_object, &mut lists, 0)?;
        Ok(lists)
    }

    fn heads_of_clones(&self, dir_object: u64, heads: &mut Vec<u64>, depth: usize) -> Result<()> {
        if depth > DEPTH_MAX {
            return Err(damaged(format!("directory {dir_object}: clones without end")));
        }
        for head in self.making.clones_of(dir_object)? {
            heads.push(head);
            let dir = self.making.mos.dataset(head)?.dir_object.get();
            self.heads_of_clones(dir, heads, depth + 1)?;
        }
        Ok(())
    }

    /// A snapshot whose predecessor is gone holds alone what only the two had.
    fn gain_of_snapshot(&self, object: u64, min_txg: u64, max_txg: u64) -> Result<()> {
        let mos = self.making.mos;
        let mut snap = mos.dataset(object)?;
        let after = mos.dataset(snap.next_snap_object.get())?;
        snap.unique_bytes += space_within(mos, after.deadlist_object.get(), min_txg, max_txg)?.used;
        mos.set_dataset(self.making.tx, object, &snap)
    }

    /// A head whose last snapshot is gone holds alone what its new last one does not have.
    fn gain_of_head(&self, object: u64, reserved: u64) -> Result<()> {
        let (mos, tx) = (self.making.mos, self.making.tx);
        let mut head = mos.dataset(object)?;
        let shared = match head.prev_snap_object.get() {
            0 => 0,
            prev => {
                let dead = space(mos, head.deadlist_object.get())?.used;
                let prev = mos.dataset(prev)?.referenced_bytes.get();
                let bad = || damaged(format!("object {object}: more dead than its snapshot had"));
                prev.checked_sub(dead).ok_or_else(bad)?
            }
        };
        let bad = || damaged(format!("object {object}: it shares more than it refers to"));
        let unique = head.referenced_bytes.get().checked_sub(shared).ok_or_else(bad)?;
        let old = head.unique_bytes.get();
        head.unique_bytes.set(unique);
        mos.set_dataset(tx, object, &head)?;
        let covered = unique.min(reserved).saturating_sub(old.min(reserved));
        if covered > 0 {
            let delta = Delta { used: -(covered as i64), ..Delta::default() };
            charge(mos, tx, head.dir_object.get(), Used::RefReserved, delta)?;
        }
        Ok(())
    }

    /// Takes the key of a snapshot of `dir_object` born in `txg` out of the deadlists of all clones
    /// that descend from later ones.
    pub(crate) fn forget_in_clones(&self, dir_object: u64, txg: u64, depth: usize) -> Result<()> {
        let mos = self.making.mos;
        if depth > DEPTH_MAX {
            return Err(damaged(format!("directory {dir_object}: clones without end")));
        }
        for head_object in self.making.clones_of(dir_object)? {
            let head = mos.dataset(head_object)?;
            let dir = mos.dir(head.dir_object.get())?;
            let origin = mos.dataset(dir.origin_object.get())?;
            if origin.creation_txg.get() > txg {
                Deadlist::open(self.making, head.deadlist_object.get())?.remove_key(txg)?;
                self.forget_in_clones(head.dir_object.get(), txg, depth + 1)?;
            }
        }
        Ok(())
    }

    /// Destroys a head without snapshots and its directory without children.
    pub(crate) fn destroy_head(&self, found: &Found) -> Result<()> {
        let (making, mos, tx) = (self.making, self.making.mos, self.making.tx);
        let dir_object = found.dir_object;
        // Reservations first: what they promised is not the blocks'.
        let held = mos.dir(dir_object)?.used(Used::RefReserved);
        let delta = Delta { used: -(held as i64), ..Delta::default() };
        charge(mos, tx, dir_object, Used::RefReserved, delta)?;
        self.unreserve(dir_object)?;

        let (ds, dir) = (mos.dataset(found.object)?, mos.dir(dir_object)?);
        let space = Space {
            used: dir.used_bytes.get(),
            compressed: dir.compressed_bytes.get(),
            uncompressed: dir.uncompressed_bytes.get(),
        };
        charge(mos, tx, dir_object, Used::Head, negative(space))?;
        if ds.bp.birth() > ds.prev_snap_txg.get() {
            self.leave_tree(ds.bp, ds.prev_snap_txg.get(), space)?;
        }
        making.drop_livelist(dir_object)?;
        making.release_key(dir_object)?;
        making.unlink_from_origin(found.object, ds.prev_snap_object.get())?;
        Deadlist::open(making, ds.deadlist_object.get())?.free()?;
        self.remove_objects(found, &dir)
    }

    /// A directory gives back what is reserved for it beyond its use.
    fn unreserve(&self, dir_object: u64) -> Result<()> {
        let (mos, tx) = (self.making.mos, self.making.tx);
        let mut dir = mos.dir(dir_object)?;
        let rest = dir.reserved_bytes.get().saturating_sub(dir.used_bytes.get());
        dir.reserved_bytes.set(0);
        mos.set_dir(tx, dir_object, &dir)?;
        let delta = Delta { used: -(rest as i64), ..Delta::default() };
        charge(mos, tx, dir.parent_object.get(), Used::ChildReserved, delta)
    }

    fn remove_objects(&self, found: &Found, dir: &DslDirPhys) -> Result<()> {
        let (making, mos, tx) = (self.making, self.making.mos, self.making.tx);
        making.drop_bookmarks(found.object)?;
        making.drop_features(found.object)?;
        making.drop_features(found.dir_object)?;
        if dir.deleg_zap_object.get() != 0 {
            self.remove_permissions(dir.deleg_zap_object.get())?;
        }
        let ds = mos.dataset(found.object)?;
        for number in [
            ds.snapnames_zap_object,
            ds.props_object,
            ds.userrefs_object,
            found.object.into(),
            dir.props_zap_object,
            dir.child_dir_zap_object,
            dir.clones_object,
            found.dir_object.into(),
        ] {
            if number.get() != 0 {
                mos.objset.free(tx, number.get())?;
            }
        }
        let parent = mos.dir(dir.parent_object.get())?;
        let leaf = found.name.rsplit('/').next().unwrap_or_default();
        mos.zap(parent.child_dir_zap_object.get())?.remove(tx, leaf.as_bytes())?;
        Ok(())
    }
}

impl Ledger<'_> {
    /// Frees what `zfs allow` noted: the ZAP of a directory, and those to which its entries lead, one for each of whom
    /// it speaks of. Who wrote it may have left entries that lead nowhere.
    fn remove_permissions(&self, number: u64) -> Result<()> {
        let (mos, tx) = (self.making.mos, self.making.tx);
        for entry in mos.zap(number)?.entries()? {
            let Some(own) = entry.value.as_u64() else { continue };
            match mos.objset.object(own) {
                Ok(object) if object.header()?.kind() == ObjectType::DSL_PERMS => {
                    mos.objset.free(tx, own)?;
                }
                Ok(_) | Err(DmuError::NoObject { .. }) => {}
                Err(error) => return Err(error.into()),
            }
        }
        Ok(mos.objset.free(tx, number)?)
    }
}

impl Making<'_> {
    /// Heads of the clones of a directory's snapshots.
    pub(crate) fn clones_of(&self, dir_object: u64) -> Result<Vec<u64>> {
        let clones = self.mos.dir(dir_object)?.clones_object.get();
        if clones == 0 {
            return Ok(Vec::new());
        }
        let entries = self.mos.zap(clones)?.entries()?;
        Ok(entries.iter().filter_map(|entry| entry.value.as_u64()).collect())
    }

    /// Forgets the list of what a clone wrote since its origin, which only speeds up its destroy and
    /// which we do not keep.
    pub(crate) fn drop_livelist(&self, dir_object: u64) -> Result<()> {
        let Some(zap) = self.zap_of(dir_object)? else { return Ok(()) };
        let key = format::dsl_dir::DIR_LIVELIST.as_bytes();
        let Some(list) = zap.get_u64(key)? else { return Ok(()) };
        Deadlist::open(self, list)?.free()?;
        zap.remove(self.tx, key)?;
        self.features.add(self.tx, Feature::Livelist, -1)?;
        Ok(())
    }

    /// Snapshot `origin` forgets that head `object` started from it.
    fn unlink_from_origin(&self, object: u64, origin: u64) -> Result<()> {
        if origin == 0 {
            return Ok(());
        }
        let mut snap = self.mos.dataset(origin)?;
        let fewer = snap.num_children.get().checked_sub(1);
        let bad = || damaged(format!("object {origin}: a clone that it does not count"));
        snap.num_children.set(fewer.ok_or_else(bad)?);
        self.mos.set_dataset(self.tx, origin, &snap)?;
        if snap.next_clones_object.get() != 0 {
            self.mos.zap(snap.next_clones_object.get())?.remove_int(self.tx, object)?;
        }
        self.remove_clone(snap.dir_object.get(), object)
    }
}
