//! Promoting a clone: the snapshots up to its origin become its own, and the file system that had
//! them becomes the clone.
//!
//! No block moves; snapshots change their directory, and the two directories their charges.
//! FORMAT: sections 8.5, 8.10.

use dmu::Space;
use format::dsl_dataset::DslDatasetPhys;
use format::dsl_dir::Used;

use crate::dsl::account::{Delta, charge, referenced};
use crate::dsl::deadlist::{space, space_within};
use crate::dsl::lookup::Found;
use crate::error::{PoolError, Result};
use crate::ledger::Ledger;

/// Data sets of one file system that are followed.
const CHAIN_MAX: usize = 1 << 20;

/// A data set of the MOS, by object.
type Member = (u64, DslDatasetPhys);

fn damaged(detail: &str) -> PoolError {
    PoolError::Damaged { what: "history of a clone", detail: detail.into() }
}

impl Ledger<'_> {
    /// From data set `from` (with it) back to `to` (without it), newest first.
    fn chain(&self, from: u64, to: u64) -> Result<Vec<Member>> {
        let mut out = Vec::new();
        let mut at = from;
        while at != to {
            if at == 0 || out.len() > CHAIN_MAX {
                return Err(damaged("it does not lead to its origin"));
            }
            let phys = self.making.mos.dataset(at)?;
            out.push((at, phys));
            at = phys.prev_snap_object.get();
        }
        Ok(out)
    }

    /// The snapshots that a promotion of `clone` would move, newest first.
    pub(crate) fn shared_snapshots(&self, clone: &Found) -> Result<Vec<Member>> {
        let mos = self.making.mos;
        let origin_object = clone.dir.origin_object.get();
        let origin_dir = mos.dir(mos.dataset(origin_object)?.dir_object.get())?;
        self.chain(origin_object, origin_dir.origin_object.get())
    }

    /// What they hold: so much is charged to the clone's directory when it is promoted.
    pub(crate) fn shared_space(&self, clone: &Found) -> Result<Space> {
        let mos = self.making.mos;
        let origin = mos.dataset(clone.dir.origin_object.get())?;
        let root = mos.dir(origin.dir_object.get())?.origin_object.get();
        let mut space_of = referenced(&origin);
        for (_, phys) in self.shared_snapshots(clone)? {
            space_of += space(mos, phys.deadlist_object.get())?;
        }
        space_of -= referenced(&mos.dataset(root)?);
        Ok(space_of)
    }

    /// The data sets whose deadlists a promotion of `clone` looks at.
    pub(crate) fn lists_of_promote(&self, clone: &Found) -> Result<Vec<u64>> {
        let mos = self.making.mos;
        let origin = clone.dir.origin_object.get();
        let old = mos.dir(mos.dataset(origin)?.dir_object.get())?;
        let mut all = self.shared_snapshots(clone)?;
        for head in [clone.object, old.head_dataset_object.get()] {
            all.extend(self.chain(head, origin)?);
        }
        Ok(all.into_iter().map(|(object, _)| object).collect())
    }

    fn dead_within(&self, members: &[Member], min_txg: u64) -> Result<u64> {
        let mut sum = 0;
        for (_, phys) in members {
            let list = phys.deadlist_object.get();
            sum += space_within(self.making.mos, list, min_txg, u64::MAX)?.used;
        }
        Ok(sum)
    }

    /// Promotes `clone`. The caller has seen that it is one and that no name is taken twice.
    pub(crate) fn promote(&self, clone: &Found) -> Result<()> {
        let (making, mos, tx) = (self.making, self.making.mos, self.making.tx);
        let origin_object = clone.dir.origin_object.get();
        let origin = mos.dataset(origin_object)?;
        let old_dir_object = origin.dir_object.get();
        let old_dir = mos.dir(old_dir_object)?;
        let old_head = old_dir.head_dataset_object.get();
        let root_object = old_dir.origin_object.get();
        let root = mos.dataset(root_object)?;

        let shared = self.chain(origin_object, root_object)?;
        let own = self.chain(clone.object, origin_object)?;
        let others = self.chain(old_head, origin_object)?;
        let (Some(first_own), Some(first_other)) = (own.last(), others.last()) else {
            return Err(damaged("a head that is its own origin"));
        };

        // What the shared snapshots and the origin hold goes over.
        let moved = self.shared_space(clone)?;
        let root_txg = root.creation_txg.get();
        let clone_snaps =
            self.dead_within(&shared, root_txg)? + self.dead_within(&own, root_txg)?;
        let old_snaps = self.dead_within(&others, origin.creation_txg.get())?;
        let first_own_list = first_own.1.deadlist_object.get();
        let unique = space_within(mos, first_own_list, origin.prev_snap_txg.get(), u64::MAX)?.used;

        // The branches change places.
        let mut now = mos.dataset(origin_object)?;
        now.next_snap_object.set(first_own.0);
        now.unique_bytes.set(unique);
        let next = mos.zap(now.next_clones_object.get())?;
        next.remove_int(tx, first_own.0)?;
        next.add_int(tx, first_other.0)?;
        mos.set_dataset(tx, origin_object, &now)?;
        for (dir, origin) in [(clone.dir_object, root_object), (old_dir_object, origin_object)] {
            let mut phys = mos.dir(dir)?;
            phys.origin_object.set(origin);
            mos.set_dir(tx, dir, &phys)?;
        }
        making.remove_clone(old_dir_object, clone.object)?;
        let root_dir = root.dir_object.get();
        making.add_clone(root_dir, clone.object)?;
        making.remove_clone(root_dir, old_head)?;
        making.add_clone(clone.dir_object, old_head)?;

        for (object, phys) in &shared {
            self.move_snapshot(*object, phys, (old_dir_object, old_head), clone)?;
        }

        making.move_bookmarks(old_head, clone.object, origin.creation_txg.get())?;
        making.next_changed(clone.object, origin_object)?;

        let dir = mos.dir(clone.dir_object)?;
        let grown = clone_snaps as i64 - dir.used(Used::Snap) as i64;
        self.recharge(clone.dir_object, grown, Delta::between(moved, Space::default()))?;
        let grown = old_snaps as i64 - mos.dir(old_dir_object)?.used(Used::Snap) as i64;
        self.recharge(old_dir_object, grown, Delta::between(Space::default(), moved))?;
        making.drop_livelist(clone.dir_object)
    }

    /// Charges a directory with `delta`, of which `snap` bytes are its snapshots'.
    fn recharge(&self, dir: u64, snap: i64, delta: Delta) -> Result<()> {
        let (mos, tx) = (self.making.mos, self.making.tx);
        charge(mos, tx, dir, Used::Head, Delta { used: delta.used - snap, ..delta })?;
        charge(mos, tx, dir, Used::Snap, Delta { used: snap, ..Delta::default() })
    }

    /// A snapshot becomes one of `clone`, with the clones that started from it.
    fn move_snapshot(
        &self,
        object: u64,
        phys: &DslDatasetPhys,
        (old_dir, old_head): (u64, u64),
        clone: &Found,
    ) -> Result<()> {
        let (making, mos, tx) = (self.making, self.making.mos, self.making.tx);
        let names = mos.zap(mos.dataset(old_head)?.snapnames_zap_object.get())?;
        let entry = names.entries()?.into_iter().find(|e| e.value.as_u64() == Some(object));
        let entry = entry.ok_or_else(|| damaged("a snapshot without a name"))?;
        names.remove(tx, &entry.name)?;
        let own = mos.zap(mos.dataset(clone.object)?.snapnames_zap_object.get())?;
        own.put_u64(tx, &entry.name, object)?;
        let mut snap = mos.dataset(object)?;
        snap.dir_object.set(clone.dir_object);
        mos.set_dataset(tx, object, &snap)?;
        if phys.next_clones_object.get() == 0 {
            return Ok(());
        }
        for entry in mos.zap(phys.next_clones_object.get())?.entries()? {
            let Some(first) = entry.value.as_u64() else { continue };
            let dir = mos.dir(mos.dataset(first)?.dir_object.get())?;
            let head = dir.head_dataset_object.get();
            // The two that change places were moved before.
            if head != old_head && head != clone.object {
                making.remove_clone(old_dir, head)?;
                making.add_clone(clone.dir_object, head)?;
            }
        }
        Ok(())
    }
}
