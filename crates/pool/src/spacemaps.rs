//! Space maps of metaslabs: objects of the MOS that mirror the allocator (storeys meet here).
//!
//! Changes go straight into the maps of the metaslabs (format notes 9.4, way A); a pool whose
//! log space maps are active is replayed on load, and retired from the log before its first write.

use std::collections::BTreeMap;

use dmu::{DmuError, SpaceMap, Tx};
use format::ObjectType;
use format::features::Feature;
use format::space_map::{Action, Geometry, Run};
use rt::sync::{Arc, Mutex};
use store::{Allocator, DEFER_TXGS, MapError, Metaslab, RangeSet, SpaceMaps, StoreError};

use crate::error::{PoolError, Result};
use crate::features::Features;
use crate::mos::Mos;

/// Where the metaslabs of one top-level vdev are.
#[derive(Clone, Debug)]
pub(crate) struct Slabs {
    /// Number of the top-level vdev.
    pub top: u32,
    /// Object of the metaslab array; 0: none yet.
    pub array_object: u64,
    /// log2 of a metaslab's size.
    pub ms_shift: u32,
    /// Number of metaslabs.
    pub ms_count: u64,
    /// log2 of the sector size.
    pub ashift: u32,
}

/// Changes in log space maps that the maps of the metaslabs do not have yet, in order, each with
/// its txg.
pub(crate) type Unflushed = BTreeMap<(u32, u64), Vec<(u64, Run)>>;

/// The space maps of a pool.
pub(crate) struct PoolSpaceMaps {
    mos: Mos,
    slabs: Vec<Slabs>,
    unflushed: Mutex<Unflushed>,
    /// The txg of the uberblock that was opened: what was freed shortly before it still rests.
    opened: u64,
}

impl PoolSpaceMaps {
    /// The space maps of these vdevs as of the uberblock of txg `opened`; `unflushed` is what the
    /// logs hold beyond them.
    pub(crate) fn new(
        mos: Mos,
        slabs: Vec<Slabs>,
        unflushed: Unflushed,
        opened: u64,
    ) -> Arc<PoolSpaceMaps> {
        Arc::new(PoolSpaceMaps { mos, slabs, unflushed: Mutex::new(unflushed), opened })
    }

    fn slabs(&self, top: u32) -> Option<&Slabs> {
        self.slabs.iter().find(|s| s.top == top)
    }

    /// Object of the space map of a metaslab; 0: it was never used.
    pub(crate) fn object(&self, top: u32, index: u64) -> Result<u64> {
        let Some(slabs) = self.slabs(top).filter(|s| s.array_object != 0) else { return Ok(0) };
        let array = self.mos.objset.object_of(slabs.array_object, ObjectType::OBJECT_ARRAY)?;
        let mut word = [0; 8];
        array.read(index * 8, &mut word)?;
        Ok(u64::from_le_bytes(word))
    }

    /// Allocated bytes of a metaslab as the header of its map says, unflushed changes included.
    pub(crate) fn allocated(&self, top: u32, index: u64) -> Result<u64> {
        let number = self.object(top, index)?;
        let on_disk = match number {
            0 => 0,
            number => SpaceMap::open(&self.mos.objset, number)?.phys()?.0.alloc.get().max(0) as u64,
        };
        let unflushed = self.unflushed.lock();
        let delta: i64 = unflushed.get(&(top, index)).into_iter().flatten().fold(
            0i64,
            |sum, (_, run)| match run.action {
                Action::Alloc => sum.saturating_add_unsigned(run.size),
                Action::Free => sum.saturating_sub_unsigned(run.size),
            },
        );
        // Whatever a header says, a metaslab is at most full.
        let size = self.slabs(top).map_or(0, |slabs| 1 << slabs.ms_shift);
        Ok(on_disk.saturating_add_signed(delta).min(size))
    }

    /// Appends what the allocator has changed; returns how many maps were touched.
    pub(crate) fn append(
        &self,
        allocator: &Allocator,
        features: &Features,
        tx: &Tx<'_>,
        pass: u16,
    ) -> Result<usize> {
        let mut failed = None;
        let count = allocator.drain_pending(|top, index, summary, pending| {
            let result = self.append_one(features, tx, pass, top, index, summary, &pending);
            if let Err(e) = result {
                failed.get_or_insert(e);
            }
            Ok(())
        })?;
        failed.map_or(Ok(count), Err)
    }

    #[allow(clippy::too_many_arguments)]
    fn append_one(
        &self,
        features: &Features,
        tx: &Tx<'_>,
        pass: u16,
        top: u32,
        index: u64,
        summary: store::SlabSummary,
        pending: &store::Pending,
    ) -> Result<()> {
        let slabs = self.slabs(top).ok_or_else(|| PoolError::Damaged {
            what: "space map",
            detail: format!("top-level vdev {top} has no metaslab array"),
        })?;
        let map = match self.object(top, index)? {
            0 => {
                let histogram = features.is_enabled(Feature::SpacemapHistogram)?;
                let map = SpaceMap::create(&self.mos.objset, tx, histogram)?;
                features.add(tx, Feature::SpacemapHistogram, 1)?;
                let array = self.mos.objset.object(slabs.array_object)?;
                array.write(tx, index * 8, &map.number().to_le_bytes())?;
                map
            }
            number => SpaceMap::open(&self.mos.objset, number)?,
        };
        let geometry = Geometry::metaslab(summary.start, summary.size, slabs.ashift);
        map.append(
            tx,
            pass,
            geometry,
            features.is_enabled(Feature::SpacemapV2)?,
            &pending.allocs,
            &pending.frees,
            summary.allocated,
            &summary.histogram,
        )?;
        Ok(())
    }

    /// Replaces the map of a metaslab by a condensed one.
    pub(crate) fn rewrite(
        &self,
        features: &Features,
        tx: &Tx<'_>,
        top: u32,
        index: u64,
        slab: &Metaslab,
    ) -> Result<()> {
        let slabs = self.slabs(top).cloned();
        let ashift = slabs.map_or(9, |s| s.ashift);
        let number = self.object(top, index)?;
        if number != 0 {
            SpaceMap::open(&self.mos.objset, number)?.clear(tx)?;
        }
        let summary = store::SlabSummary {
            start: slab.start,
            size: slab.size,
            allocated: slab.allocated(),
            histogram: slab.histogram(ashift),
        };
        let pending = store::Pending { allocs: slab.allocated_ranges(), frees: Vec::new() };
        self.append_one(features, tx, 1, top, index, summary, &pending)
    }

    /// The logs are gone: the maps hold everything.
    pub(crate) fn forget_unflushed(&self) {
        self.unflushed.lock().clear();
    }

    /// Metaslabs with changes in the logs only: (top, index).
    pub(crate) fn unflushed(&self) -> Vec<(u32, u64)> {
        self.unflushed.lock().keys().copied().collect()
    }
}

impl SpaceMaps for PoolSpaceMaps {
    fn load(&self, top: u32, index: u64, into: &mut Metaslab) -> store::Result<()> {
        let fail = |reason: String| StoreError::SpaceMap { top, index, reason };
        let number = self.object(top, index).map_err(|e| fail(e.to_string()))?;
        let ashift = self.slabs(top).map_or(9, |s| s.ashift);
        let geometry = Geometry::metaslab(into.start, into.size, ashift);
        let mut resting = Resting::new(self.opened);
        if number != 0 {
            let mut wrong: Option<MapError> = None;
            let map = SpaceMap::open(&self.mos.objset, number).map_err(|e| fail(e.to_string()))?;
            let done = map.replay(geometry, |txg, run| {
                apply(into, run).map_err(|e| {
                    wrong = Some(e);
                    DmuError::Limit { object: number, what: "a contradiction" }
                })?;
                resting.note(txg, run);
                Ok(())
            });
            done.map_err(|e| fail(wrong.map_or(e.to_string(), |wrong| wrong.to_string())))?;
        }
        for (txg, run) in self.unflushed.lock().get(&(top, index)).into_iter().flatten() {
            apply(into, *run).map_err(|e| fail(e.to_string()))?;
            resting.note(*txg, *run);
        }
        into.rest(resting.ranges()).map_err(|e| fail(e.to_string()))
    }
}

fn apply(slab: &mut Metaslab, run: Run) -> std::result::Result<(), MapError> {
    match run.action {
        Action::Alloc => slab.load_alloc(run.offset, run.size),
        Action::Free => slab.load_free(run.offset, run.size),
    }
}

/// What was freed in the last txgs on disk, by the stamps in the space maps: those before the last
/// one need it still (INV-1).
struct Resting {
    /// The first of those txgs.
    first: u64,
    freed: [RangeSet; DEFER_TXGS as usize - 1],
}

impl Resting {
    fn new(opened: u64) -> Resting {
        let first = (opened + 1).saturating_sub(DEFER_TXGS - 1);
        Resting { first, freed: Default::default() }
    }

    fn note(&mut self, txg: u64, run: Run) {
        match run.action {
            // The kernel knows no rest over an import: it may have used it again.
            Action::Alloc => self.freed.iter_mut().for_each(|set| set.cut(run.offset, run.size)),
            Action::Free => {
                let Some(age) = txg.checked_sub(self.first) else { return };
                let last = self.freed.len() - 1;
                let set = &mut self.freed[(age as usize).min(last)];
                // What is in the set already was applied, so the map would have refused it.
                let _new = set.add(run.offset, run.size);
            }
        }
    }

    fn ranges(&self) -> Vec<Vec<(u64, u64)>> {
        self.freed.iter().map(|set| set.iter().collect()).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn run(action: Action, offset: u64, size: u64) -> Run {
        Run { action, vdev: None, offset, size }
    }

    #[test]
    fn what_the_last_two_txgs_freed_rests_unless_it_is_used_again() {
        let mut resting = Resting::new(10);
        resting.note(8, run(Action::Free, 0, 4096));
        resting.note(9, run(Action::Free, 4096, 8192));
        resting.note(10, run(Action::Alloc, 8192, 4096));
        resting.note(10, run(Action::Free, 65_536, 4096));
        resting.note(0, run(Action::Free, 1 << 20, 4096));
        assert_eq!(resting.ranges(), [vec![(4096, 4096)], vec![(65_536, 4096)]]);
    }
}
