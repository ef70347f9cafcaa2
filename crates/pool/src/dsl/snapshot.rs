//! Taking a snapshot: a second data set object that keeps the head's root.
//!
//! It runs after the head of the txg was synced, so what is in the txg is in the snapshot: nothing
//! of the head is written in it any more. FORMAT: section 8.5.

use dmu::Zap;
use format::ObjectType;
use format::dsl_dataset::{DslDatasetPhys, FSID_GUID_BITS};
use format::dsl_dir::Used;
use format::features::Feature;
use zerocopy::IntoBytes;

use crate::dsl::account::{Delta, charge};
use crate::dsl::create::Making;
use crate::dsl::deadlist::Deadlist;
use crate::dsl::lookup::Found;
use crate::dsl::property::Stored;
use crate::error::Result;

impl Making<'_> {
    /// Takes a snapshot of `head`; `reserved`: its refreservation in bytes. Returns its object.
    ///
    /// The caller has seen that the name is free and that the last snapshot is of an older txg.
    pub(crate) fn snapshot(
        &self,
        head: &Found,
        name: &str,
        reserved: u64,
        props: &[(String, Stored)],
    ) -> Result<u64> {
        let (mos, tx) = (self.mos, self.tx);
        let mut ds = mos.dataset(head.object)?;
        let kind = ObjectType::DSL_DATASET;
        let blank = DslDatasetPhys::default();
        let object = mos.objset.allocate(tx, kind, 512, kind, blank.as_bytes(), 1)?.number();
        let mut snap = ds;
        snap.next_snap_object.set(head.object);
        snap.num_children.set(1);
        snap.creation_time_secs.set(self.now_secs);
        snap.creation_txg.set(tx.txg());
        snap.fsid_guid.set(self.random() & ((1 << FSID_GUID_BITS) - 1));
        snap.guid.set(self.random());
        for only_of_heads in [
            &mut snap.snapnames_zap_object,
            &mut snap.unique_bytes,
            &mut snap.next_clones_object,
            &mut snap.props_object,
            &mut snap.userrefs_object,
        ] {
            only_of_heads.set(0);
        }
        if !props.is_empty() {
            let zap = mos.create_zap(tx, ObjectType::DSL_PROPS, 0)?;
            for (name, value) in props {
                crate::dsl::property::put(&zap, tx, name, value)?;
            }
            snap.props_object.set(zap.number());
        }
        mos.set_dataset(tx, object, &snap)?;
        self.relink_next(ds.prev_snap_object.get(), head.object, object)?;

        let old = Deadlist::open(self, ds.deadlist_object.get())?;
        let before = ds.prev_snap_txg.get();
        let mut keys = format::deadlist::keys_after_snapshot(&old.keys(), before);
        self.with_bookmarks(head.object, before, &mut keys)?;
        let unique = ds.unique_bytes.get();
        ds.deadlist_object.set(self.deadlist(&keys)?);
        ds.prev_snap_object.set(object);
        ds.prev_snap_txg.set(tx.txg());
        ds.unique_bytes.set(0);
        mos.set_dataset(tx, head.object, &ds)?;
        mos.zap(ds.snapnames_zap_object.get())?.put_u64(tx, name.as_bytes(), object)?;
        self.copy_features(head.object, object)?;
        self.number_ivset(head.dir_object, object)?;
        // What the reservation covered is the snapshot's now: the head's is whole again.
        let again = unique.min(reserved);
        if again > 0 {
            let delta = Delta { used: again as i64, ..Delta::default() };
            charge(mos, tx, head.dir_object, Used::RefReserved, delta)?;
        }
        Ok(object)
    }

    /// Snapshot `snapshot` is followed by `new` where it was followed by `old`.
    pub(crate) fn relink_next(&self, snapshot: u64, old: u64, new: u64) -> Result<()> {
        if snapshot == 0 {
            return Ok(());
        }
        let mut phys = self.mos.dataset(snapshot)?;
        if phys.next_snap_object.get() == old {
            phys.next_snap_object.set(new);
            return self.mos.set_dataset(self.tx, snapshot, &phys);
        }
        // `old` was the first of a branch.
        let clones = self.mos.zap(phys.next_clones_object.get())?;
        clones.remove_int(self.tx, old)?;
        Ok(clones.add_int(self.tx, new)?)
    }

    /// Data set `to` uses all features that `from` does.
    pub(crate) fn copy_features(&self, from: u64, to: u64) -> Result<()> {
        for feature in self.features_of(from)? {
            self.activate(to, feature)?;
        }
        Ok(())
    }

    /// The ZAP of a data set or directory object, if it has one.
    pub(crate) fn zap_of(&self, object: u64) -> Result<Option<Zap>> {
        let object = self.mos.objset.object(object)?;
        let has_one = object.header()?.kind() == ObjectType::ZAP_METADATA;
        Ok(if has_one { Some(Zap::of(object)?) } else { None })
    }

    /// The features that a data set uses by itself.
    pub(crate) fn features_of(&self, object: u64) -> Result<Vec<Feature>> {
        let Some(zap) = self.zap_of(object)? else { return Ok(Vec::new()) };
        let entries = zap.entries()?;
        let features = entries.iter().filter_map(|entry| Feature::from_guid(&entry.name));
        Ok(features.filter(|feature| feature.info().is_per_data_set()).collect())
    }

    /// A data set or directory object stops using what its ZAP says, before it is freed.
    pub(crate) fn drop_features(&self, object: u64) -> Result<()> {
        for feature in self.features_of(object)? {
            self.features.add(self.tx, feature, -1)?;
        }
        if self.zap_of(object)?.is_some() {
            self.features.add(self.tx, Feature::ExtensibleDataset, -1)?;
        }
        Ok(())
    }
}
