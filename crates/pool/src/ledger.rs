//! The ledger: every birth and death passes here once per sync of an object set (INV-9).
//!
//! Deaths of blocks younger than the last snapshot free their space; older ones go to the deadlist
//! of the head. The data set, its directory and all above are charged in the same step.

use dmu::{Needs, Space, Tally};
use format::BlkPtr;
use format::dsl_dir::{DslDirPhys, Used};
use format::features::Feature;
use rt::sync::Arc;
use store::{Allocator, Store};

use crate::dsl::account::{Delta, charge, charge_head, move_between};
use crate::dsl::create::Making;
use crate::dsl::deadlist::Deadlist;
use crate::error::{PoolError, Result};
use crate::mos::{Mos, key};

/// What the ledger charges to.
pub struct Ledger<'a> {
    /// The MOS.
    pub mos: &'a Mos,
    /// Sizes.
    pub store: &'a Arc<Store>,
    /// Where space goes back to.
    pub allocator: &'a Allocator,
    /// Features, guids, the txg.
    pub making: &'a Making<'a>,
}

fn add(value: u64, born: u64, died: u64) -> Result<u64> {
    let sum = value.checked_add(born).and_then(|v| v.checked_sub(died));
    sum.ok_or_else(|| PoolError::Damaged {
        what: "space accounting",
        detail: format!("{value} + {born} - {died} is not a size"),
    })
}

impl Ledger<'_> {
    fn space(&self, bp: &BlkPtr) -> Space {
        Space::of(bp, self.store.dsize(bp))
    }

    /// Settles the sync of the head data set `object`, whose object set is now at `root`.
    ///
    /// `reserved`: its refreservation.
    pub fn settle(&self, object: u64, root: BlkPtr, tally: Tally, reserved: u64) -> Result<()> {
        let tx = self.making.tx;
        let mut ds = self.mos.dataset(object)?;
        let (mut freed, mut all_died) = (Space::default(), Space::default());
        let mut dead = Vec::new();
        for bp in &tally.died {
            let space = self.space(bp);
            all_died += space;
            if bp.birth() > ds.prev_snap_txg.get() {
                freed += space;
                self.allocator.free(self.store, bp)?;
            } else {
                dead.push(*bp);
            }
        }
        self.making.drop_livelist(ds.dir_object.get())?;
        let unique = ds.unique_bytes.get();
        let born = tally.born;
        ds.referenced_bytes.set(add(ds.referenced_bytes.get(), born.used, all_died.used)?);
        ds.compressed_bytes.set(add(
            ds.compressed_bytes.get(),
            born.compressed,
            all_died.compressed,
        )?);
        ds.uncompressed_bytes.set(add(
            ds.uncompressed_bytes.get(),
            born.uncompressed,
            all_died.uncompressed,
        )?);
        let unique_now = add(unique, born.used, freed.used)?;
        ds.unique_bytes.set(unique_now);
        ds.bp = root;
        self.mos.set_dataset(tx, object, &ds)?;
        let delta = Delta::between(born, freed);
        let dir = ds.dir_object.get();
        charge_head(self.mos, tx, dir, delta, (unique, unique_now), reserved)?;
        if !dead.is_empty() {
            self.bury(&ds, object, &dead)?;
        }
        self.freed_after_bookmarks(object, ds.prev_snap_txg.get(), &tally.died)?;
        for (bit, feature) in NEEDS {
            if tally.needs & bit != 0 {
                self.making.activate(object, *feature)?;
            }
        }
        Ok(())
    }

    /// Settles a sync of the MOS: nothing of it outlives a txg in which it died.
    pub fn settle_mos(&self, tally: Tally) -> Result<()> {
        let mut died = Space::default();
        for bp in &tally.died {
            died += self.space(bp);
            self.allocator.free(self.store, bp)?;
        }
        let delta = Delta::between(tally.born, died);
        if delta.is_zero() {
            return Ok(());
        }
        let root = self.mos.dir(self.mos.expect(key::ROOT_DATASET)?)?;
        let children = self.mos.zap(root.child_dir_zap_object.get())?;
        let dir = children.get_u64(format::dsl_dir::MOS_DIR_NAME.as_bytes())?;
        let dir = dir.ok_or_else(|| PoolError::Damaged {
            what: "DSL directory",
            detail: "the root has no child $MOS".into(),
        })?;
        charge(self.mos, self.making.tx, dir, Used::Head, delta)
    }

    /// Puts blocks that a snapshot still holds on the deadlist of the head.
    fn bury(
        &self,
        ds: &format::dsl_dataset::DslDatasetPhys,
        object: u64,
        dead: &[BlkPtr],
    ) -> Result<()> {
        let mut deadlist = Deadlist::open(self.making, ds.deadlist_object.get())?;
        deadlist.insert(dead, |bp| self.space(bp))?;
        self.move_to_snapshot(ds, object, dead)
    }

    /// What the head lets go but its snapshots hold: unique to the last one, moved from HEAD to
    /// SNAP in the directory.
    fn move_to_snapshot(
        &self,
        ds: &format::dsl_dataset::DslDatasetPhys,
        object: u64,
        dead: &[BlkPtr],
    ) -> Result<()> {
        let tx = self.making.tx;
        let prev = ds.prev_snap_object.get();
        let mut snap = self.mos.dataset(prev)?;
        let dir_object = ds.dir_object.get();
        let origin_txg = self.origin_txg(&self.mos.dir(dir_object)?)?;
        let sum = |after: u64| -> u64 {
            dead.iter().filter(|bp| bp.birth() > after).map(|bp| self.store.dsize(bp)).sum()
        };
        if snap.next_snap_object.get() == object {
            let unique = add(snap.unique_bytes.get(), sum(snap.prev_snap_txg.get()), 0)?;
            snap.unique_bytes.set(unique);
            self.mos.set_dataset(tx, prev, &snap)?;
        }
        move_between(self.mos, tx, dir_object, (Used::Head, Used::Snap), sum(origin_txg))
    }

    /// The txg of the snapshot that a directory started from.
    pub(crate) fn origin_txg(&self, dir: &DslDirPhys) -> Result<u64> {
        match dir.origin_object.get() {
            0 => Ok(0),
            origin => Ok(self.mos.dataset(origin)?.creation_txg.get()),
        }
    }
}

/// Features that born blocks make active.
const NEEDS: &[(u32, Feature)] = &[
    (Needs::LARGE_BLOCKS, Feature::LargeBlocks),
    (Needs::SHA512, Feature::Sha512),
    (Needs::SKEIN, Feature::Skein),
    (Needs::EDONR, Feature::Edonr),
    (Needs::ZSTD, Feature::ZstdCompress),
    (Needs::LARGE_DNODE, Feature::LargeDnode),
];
