//! Space maps of metaslabs: objects of the MOS that mirror the allocator (storeys meet here).
//!
//! Where log space maps are enabled, changes go into logs (`logging`); else straight into the maps of the
//! metaslabs (FORMAT: section 9.4, ways D and A). A map that has grown much longer than what it holds asks for is
//! written anew (condensed).

use std::collections::BTreeMap;

use dmu::{DmuError, SpaceMap, Tx};
use format::ObjectType;
use format::features::Feature;
use format::space_map::{Action, Geometry, Run};
use format::uberblock::Uberblock;
use rt::sync::atomic::{AtomicBool, Ordering};
use rt::sync::{Arc, Mutex};
use store::{
    Allocator, DEFER_TXGS, MapError, Metaslab, Pending, RangeSet, SlabSummary, SpaceMaps,
    StoreError,
};

use crate::error::{PoolError, Result};
use crate::features::Features;
use crate::logging::{self, Logs};
use crate::mos::Mos;

/// Maps shorter than this are not worth condensing, in bytes.
const CONDENSE_LEAST: u64 = 16 << 10;

/// A map is believed that has so many bytes for each sector of its metaslab, and some: whoever writes one writes it anew
/// long before.
const UNIT_BYTES_MAX: u64 = 64;
const LENGTH_FREE: u64 = 16 << 20;

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
    slabs: Mutex<Vec<Slabs>>,
    unflushed: Mutex<Unflushed>,
    /// The logs, of a pool that is open for writing.
    pub(crate) logs: Mutex<Option<Logs>>,
    /// The next txg leaves no log that is older.
    pub(crate) flush_all: AtomicBool,
    /// The txgs of the uberblocks before the one that was opened: what was freed since still rests.
    before: Before,
}

/// Txgs of the last uberblocks before another one, ascending: so many that what was freed up to the first of them has
/// rested enough.
pub(crate) type Before = [u64; DEFER_TXGS as usize - 1];

/// The txgs of the uberblocks before that of `txg`, of which those on disk are these, newest first. One that is not there
/// any more is taken for as late as it can have been.
pub(crate) fn before(uberblocks: &[Uberblock], txg: u64) -> Before {
    let mut txgs = uberblocks.iter().map(|uberblock| uberblock.txg.get());
    let (mut out, mut after) = (Before::default(), txg);
    for place in out.iter_mut().rev() {
        *place = txgs.find(|txg| *txg < after).unwrap_or(after.saturating_sub(1));
        after = *place;
    }
    out
}

/// What space maps are written with.
pub(crate) struct Appending<'a> {
    pub(crate) allocator: &'a Allocator,
    pub(crate) features: &'a Features,
    pub(crate) tx: &'a Tx<'a>,
    /// Of the MOS.
    pub(crate) pass: u16,
}

/// What so many ranges take in a space map, in bytes.
fn bytes_of(ranges: usize) -> u64 {
    8 * (ranges as u64 + 2)
}

/// Is a map of `length` bytes worth being written anew with so many ranges?
fn is_too_long(length: u64, ranges: usize) -> bool {
    length > CONDENSE_LEAST && length > 2 * bytes_of(ranges)
}

/// Who opens the pool next learns from the map's newest frees what rests (INV-1): what rests and is not
/// among the changes is allocated and freed once more.
pub(crate) fn tell_resting(changes: &mut Pending, mut resting: RangeSet) {
    changes.frees.iter().for_each(|(start, len)| resting.cut(*start, *len));
    changes.allocs.extend(resting.iter());
    changes.frees.extend(resting.iter());
}

impl PoolSpaceMaps {
    /// The space maps of these vdevs as of the uberblock after those of `before`; `unflushed` is what the
    /// logs hold beyond them.
    pub(crate) fn new(
        mos: Mos,
        slabs: Vec<Slabs>,
        unflushed: Unflushed,
        before: Before,
    ) -> Arc<PoolSpaceMaps> {
        let (slabs, unflushed) = (Mutex::new(slabs), Mutex::new(unflushed));
        let flush_all = AtomicBool::new(false);
        Arc::new(PoolSpaceMaps { mos, slabs, unflushed, logs: Mutex::default(), flush_all, before })
    }

    pub(crate) fn mos(&self) -> &Mos {
        &self.mos
    }

    /// The top-level vdevs are these from now on, with the ZAP of each. Those that are new, and metaslabs that are,
    /// have no maps yet; of those that have gone no log will tell anything, nor of who had the number of a new one.
    pub(crate) fn set_tops(&self, tops: &[(Slabs, u64)]) {
        let stays = |top: u32| tops.iter().any(|(now, _)| now.top == top);
        let now = tops.iter().map(|(slabs, _)| slabs.clone()).collect();
        let before: Vec<Slabs> = std::mem::replace(&mut *self.slabs.lock(), now);
        if before.len() != tops.len() || !before.iter().all(|own| stays(own.top)) {
            self.flush_all.store(true, Ordering::Relaxed);
        }
        self.unflushed.lock().retain(|(top, _), _| stays(*top));
        if let Some(logs) = self.logs.lock().as_mut() {
            logs.set_tops(tops);
        }
    }

    fn find(&self, top: u32) -> Option<Slabs> {
        self.slabs.lock().iter().find(|s| s.top == top).cloned()
    }

    /// Where the metaslabs of a top-level vdev are.
    pub(crate) fn slabs(&self, top: u32) -> Result<Slabs> {
        self.find(top).ok_or_else(|| PoolError::Damaged {
            what: "space map",
            detail: format!("top-level vdev {top} has no metaslab array"),
        })
    }

    /// Object of the space map of a metaslab; 0: it was never used.
    pub(crate) fn object(&self, top: u32, index: u64) -> Result<u64> {
        let Some(slabs) = self.find(top).filter(|s| s.array_object != 0) else { return Ok(0) };
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
        let size = self.find(top).map_or(0, |slabs| 1 << slabs.ms_shift);
        Ok(on_disk.saturating_add_signed(delta).min(size))
    }

    /// Appends what the allocator has changed; returns how many metaslabs were touched.
    pub(crate) fn append(&self, cx: &Appending<'_>) -> Result<usize> {
        let mut failed = None;
        let mut logs = self.logs.lock();
        let mut logs = if logging::wanted(cx.features)? { logs.as_mut() } else { None };
        let count = cx.allocator.drain_pending(|top, index, summary, pending| {
            let of = (top, index);
            let result = match logs.as_deref_mut() {
                Some(logs) => self.log_one(cx, logs, of, &summary, &pending),
                None => self.put(cx, of, &summary, pending),
            };
            if let Err(e) = result {
                failed.get_or_insert(e);
            }
            Ok(())
        })?;
        failed.map_or(Ok(count), Err)
    }

    /// Puts changes into a metaslab's own map, or writes the map anew if it has grown too long.
    pub(crate) fn put(
        &self,
        cx: &Appending<'_>,
        (top, index): (u32, u64),
        summary: &SlabSummary,
        mut changes: Pending,
    ) -> Result<()> {
        let (map, geometry) = self.map_of(cx, top, index, summary)?;
        let length = map.phys()?.0.length.get();
        let grown = length + bytes_of(changes.allocs.len() + changes.frees.len());
        // In later passes blocks of this txg would be freed.
        if cx.pass == 1
            && is_too_long(grown, summary.free_pieces)
            && let Some(allocs) = cx.allocator.allocated_before_pending(top, index)
        {
            let resting = cx.allocator.resting_before_pending(top, index);
            if is_too_long(grown, allocs.len() + 2 * resting.count()) {
                map.clear(cx.tx)?;
                changes = Pending { allocs, frees: Vec::new() };
                tell_resting(&mut changes, resting);
            }
        }
        let Pending { allocs, frees } = &changes;
        let sum = |ranges: &[(u64, u64)]| ranges.iter().map(|(_, len)| *len as i64).sum::<i64>();
        let net = map.phys()?.0.alloc.get() + sum(allocs) - sum(frees);
        let two_words = cx.features.is_enabled(Feature::SpacemapV2)?;
        let histogram = &summary.histogram;
        map.append(cx.tx, cx.pass, geometry, two_words, allocs, frees, net as u64, histogram)?;
        Ok(())
    }

    /// The map of a metaslab, made if it has none, and its units.
    pub(crate) fn map_of(
        &self,
        cx: &Appending<'_>,
        top: u32,
        index: u64,
        summary: &SlabSummary,
    ) -> Result<(SpaceMap, Geometry)> {
        let slabs = self.slabs(top)?;
        let geometry = Geometry::metaslab(summary.start, summary.size, slabs.ashift);
        let number = self.object(top, index)?;
        if number != 0 {
            return Ok((SpaceMap::open(&self.mos.objset, number)?, geometry));
        }
        let histogram = cx.features.is_enabled(Feature::SpacemapHistogram)?;
        let map = SpaceMap::create(&self.mos.objset, cx.tx, histogram)?;
        cx.features.add(cx.tx, Feature::SpacemapHistogram, 1)?;
        let array = self.mos.objset.object(slabs.array_object)?;
        array.write(cx.tx, index * 8, &map.number().to_le_bytes())?;
        Ok((map, geometry))
    }

    /// What the logs had for a metaslab when the pool was opened is in its own map now.
    pub(crate) fn forget(&self, top: u32, index: u64) {
        self.unflushed.lock().remove(&(top, index));
    }
}

impl SpaceMaps for PoolSpaceMaps {
    fn load(&self, top: u32, index: u64, into: &mut Metaslab) -> store::Result<()> {
        let fail = |reason: String| StoreError::SpaceMap { top, index, reason };
        let number = self.object(top, index).map_err(|e| fail(e.to_string()))?;
        let ashift = self.find(top).map_or(9, |s| s.ashift);
        let geometry = Geometry::metaslab(into.start, into.size, ashift);
        let mut resting = Resting::new(self.before);
        if number != 0 {
            let mut wrong: Option<MapError> = None;
            let map = SpaceMap::open(&self.mos.objset, number).map_err(|e| fail(e.to_string()))?;
            let units = into.size >> ashift;
            let most = units.saturating_mul(UNIT_BYTES_MAX).saturating_add(LENGTH_FREE);
            let done = map.replay(geometry, most, |txg, run| {
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
    /// By list: what was freed after this txg, and not after that of the next one.
    before: Before,
    freed: [RangeSet; DEFER_TXGS as usize - 1],
}

impl Resting {
    fn new(before: Before) -> Resting {
        Resting { before, freed: Default::default() }
    }

    fn note(&mut self, txg: u64, run: Run) {
        match run.action {
            // The kernel knows no rest over an import: it may have used it again.
            Action::Alloc => self.freed.iter_mut().for_each(|set| set.cut(run.offset, run.size)),
            Action::Free => {
                let Some(list) = self.before.iter().rposition(|before| txg > *before) else {
                    return;
                };
                let set = &mut self.freed[list];
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
        let mut resting = Resting::new([8, 9]);
        resting.note(8, run(Action::Free, 0, 4096));
        resting.note(9, run(Action::Free, 4096, 8192));
        resting.note(10, run(Action::Alloc, 8192, 4096));
        resting.note(10, run(Action::Free, 65_536, 4096));
        resting.note(0, run(Action::Free, 1 << 20, 4096));
        assert_eq!(resting.ranges(), [vec![(4096, 4096)], vec![(65_536, 4096)]]);
    }

    #[test]
    fn what_was_freed_is_as_old_as_the_uberblocks_since() {
        let uberblocks = |txgs: &[u64]| -> Vec<Uberblock> {
            let of = |txg: &u64| Uberblock::new(*txg, 1, 0, format::BlkPtr::ZERO);
            txgs.iter().map(of).collect()
        };
        assert_eq!(before(&uberblocks(&[12, 10, 9, 8]), 10), [8, 9]);
        // With txgs between them that had none, and one of which there are two.
        assert_eq!(before(&uberblocks(&[20, 14, 14, 11, 3]), 20), [11, 14]);
        assert_eq!(before(&uberblocks(&[20, 14]), 20), [13, 14]);
        assert_eq!(before(&uberblocks(&[4]), 4), [2, 3]);
        let mut resting = Resting::new([11, 14]);
        resting.note(11, run(Action::Free, 0, 4096));
        resting.note(14, run(Action::Free, 4096, 4096));
        resting.note(20, run(Action::Free, 8192, 4096));
        assert_eq!(resting.ranges(), [vec![(4096, 4096)], vec![(8192, 4096)]]);
    }
}
