//! Rolling a head back to its last snapshot: it gets the snapshot's root, and what it wrote since
//! is left to be freed. FORMAT: section 8.5.

use dmu::Space;
use format::dsl_dir::Used;

use crate::dsl::account::{Delta, charge_head, move_between, referenced};
use crate::dsl::deadlist::{Deadlist, space};
use crate::dsl::lookup::Found;
use crate::error::Result;
use crate::ledger::Ledger;

impl Ledger<'_> {
    /// Rolls `head` back to its last snapshot. `reserved`: its refreservation, in bytes.
    pub(crate) fn rollback(&self, head: &Found, reserved: u64) -> Result<()> {
        let (making, mos, tx) = (self.making, self.making.mos, self.making.tx);
        let mut ds = mos.dataset(head.object)?;
        let snap_object = ds.prev_snap_object.get();
        let mut snap = mos.dataset(snap_object)?;
        let dead = space(mos, ds.deadlist_object.get())?;
        let mut gone = referenced(&ds);
        gone += dead;
        gone -= referenced(&snap);

        // What the head had let go is its own again.
        let old = Deadlist::open(making, ds.deadlist_object.get())?;
        let origin_txg = self.origin_txg(&head.dir)?;
        let back = old.space_within(origin_txg, u64::MAX)?.used;
        move_between(mos, tx, head.dir_object, (Used::Snap, Used::Head), back)?;
        let fresh = making.deadlist(&old.keys())?;
        old.free()?;
        snap.unique_bytes.set(0);
        mos.set_dataset(tx, snap_object, &snap)?;

        let (root, unique) = (ds.bp, ds.unique_bytes.get());
        ds.deadlist_object.set(fresh);
        ds.bp = snap.bp;
        ds.referenced_bytes = snap.referenced_bytes;
        ds.compressed_bytes = snap.compressed_bytes;
        ds.uncompressed_bytes = snap.uncompressed_bytes;
        ds.unique_bytes.set(0);
        mos.set_dataset(tx, head.object, &ds)?;
        let delta = Delta::between(Space::default(), gone);
        charge_head(mos, tx, head.dir_object, delta, (unique, 0), reserved)?;
        if root.birth() > ds.prev_snap_txg.get() {
            self.leave_tree(root, ds.prev_snap_txg.get(), gone)?;
        }
        // The features of what was written since go with it.
        let kept = making.features_of(snap_object)?;
        for feature in making.features_of(head.object)? {
            if !kept.contains(&feature) {
                making.deactivate(head.object, feature)?;
            }
        }
        making.copy_features(snap_object, head.object)?;
        making.next_changed(head.object, snap_object)?;
        making.drop_livelist(head.dir_object)
    }
}
