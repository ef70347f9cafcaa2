//! What is allocated according to the pool: the space maps of the metaslabs, and their logs.
//!
//! FORMAT: sections 9.3, 9.4. A metaslab's own map holds the changes of all txgs before its
//! *unflushed txg*; later ones are in the logs, of all metaslabs in one stream, which is sorted
//! here by metaslab, so that each is applied when its metaslab's turn comes.

use crate::block::Blocks;
use crate::mos::Mos;
use crate::object::{self, Result, Unread};
use crate::report::{FindingKind, Findings};
use crate::sorter::{Record, Sorter};
use crate::space::Bitmap;
use format::config::{PoolConfig, VdevKind};
use format::label::leaf_asize;
use format::mos_directory as key;
use format::space_map::{self, Action, Geometry, Item, Run, SpaceMapPhys};
use format::{BLOCK_SIZE_MAX, DnodePhys};
use std::iter::Peekable;
use vdev::{Top, Tree};

/// Metaslabs of one vdev that are believed.
const METASLABS_MAX: u64 = 1 << 24;
/// The same of one that is away: OpenZFS makes no more.
const METASLABS_AWAY_MAX: u64 = 1 << 17;
/// The same of all vdevs together, and their sectors.
const METASLABS_ALL: u64 = 1 << 24;
const SECTORS_ALL: u64 = 1 << 41;

/// The metaslabs of one top-level vdev.
#[derive(Clone, Debug)]
pub(crate) struct Metaslabs {
    /// Number of the top-level vdev.
    pub top: u32,
    array: Option<DnodePhys>,
    /// log2 of a metaslab's size.
    pub shift: u32,
    /// Number of metaslabs.
    pub count: u64,
    /// log2 of the sector size.
    pub ashift: u32,
    /// Per metaslab, from which txg on its changes are in the logs; `None`: no logs.
    unflushed: Option<DnodePhys>,
}

/// Bytes for blocks of a top-level vdev: as many as the config says, but no more than its leaves have;
/// nothing if it is away.
pub(crate) fn room(tree: &Tree, top: &Top) -> u64 {
    let leaves = top.slots().iter().flatten().filter_map(|place| tree.leaves().get(*place));
    let sizes = leaves.filter_map(|leaf| leaf_asize(leaf.device()?.size()));
    let (largest, layout) = (sizes.max().unwrap_or(0), top.layout.as_ref());
    layout.map_or(0, |layout| layout.top_asize(largest)).min(top.asize())
}

/// All metaslabs of the pool, vdev by vdev.
pub(crate) fn metaslabs(
    blocks: &mut Blocks<'_>,
    mos: &Mos,
    config: &PoolConfig,
    findings: &mut Findings,
) -> Vec<Metaslabs> {
    let mut out = Vec::new();
    let mut left = (METASLABS_ALL, SECTORS_ALL);
    for (id, child) in (0u32..).zip(&config.vdev_tree.children) {
        let Some(top) = &child.top else { continue };
        if matches!(child.kind, VdevKind::Hole | VdevKind::Indirect) || top.metaslab_shift == 0 {
            continue;
        }
        let (shift, ashift) = (top.metaslab_shift, top.ashift);
        let tree = blocks.tree();
        let room = tree.top(id).map_or(0, |top| room(tree, top));
        if room > 0 && room < top.asize {
            findings.add(FindingKind::Label, || {
                format!("config: vdev {id}: size {}, its disks have room for {room}", top.asize)
            });
        }
        let (size, max) = match room {
            0 => (top.asize, METASLABS_AWAY_MAX),
            room => (room, METASLABS_MAX),
        };
        let count = size.checked_shr(shift as u32).unwrap_or(0);
        let fits = (9..=20).contains(&ashift) && shift > ashift && shift <= 40 && count <= max;
        let sectors = count.checked_shl(shift.saturating_sub(ashift) as u32).unwrap_or(u64::MAX);
        if !fits || count > left.0 || sectors > left.1 {
            findings.add(FindingKind::Unjudged, || {
                format!("vdev {id}: {count} metaslabs of 2^{shift} bytes, ashift {ashift}")
            });
            continue;
        }
        left = (left.0 - count, left.1 - sectors);
        let mut slabs = Metaslabs {
            top: id,
            array: None,
            shift: shift as u32,
            count,
            ashift: ashift as u32,
            unflushed: None,
        };
        if let Err(why) = slabs.load(blocks, mos, top.metaslab_array, child.zap_top) {
            findings.add(FindingKind::SpaceMap, || format!("vdev {id}: its metaslabs: {why}"));
        }
        out.push(slabs);
    }
    out
}

impl Metaslabs {
    fn load(
        &mut self,
        blocks: &mut Blocks<'_>,
        mos: &Mos,
        array: u64,
        zap: Option<u64>,
    ) -> Result<()> {
        if array != 0 {
            self.array = Some(mos.expect(blocks, array)?);
        }
        if let Some(zap) = zap.filter(|zap| *zap != 0) {
            let zap = mos.expect(blocks, zap)?;
            let key = key::TOP_UNFLUSHED_TXGS;
            if let Some(object) = object::zap_get(blocks, &zap, key)?.and_then(|v| v.as_u64()) {
                self.unflushed = Some(mos.expect(blocks, object)?);
            }
        }
        Ok(())
    }

    /// A word of an array that may be shorter than asked for.
    fn word(blocks: &mut Blocks<'_>, array: Option<&DnodePhys>, index: u64) -> Result<u64> {
        let Some(dnode) = array else { return Ok(0) };
        let size = u64::from(dnode.block_size());
        if index * 8 / size > dnode.max_block() {
            return Ok(0);
        }
        let bytes = object::range(blocks, dnode, index * 8, 8)?;
        Ok(bytes.first_chunk::<8>().map_or(0, |b| u64::from_le_bytes(*b)))
    }

    /// The map of a metaslab with its object, and whether it has a histogram; `None` if it was
    /// never used.
    fn map(
        &self,
        blocks: &mut Blocks<'_>,
        mos: &Mos,
        index: u64,
    ) -> Result<Option<(DnodePhys, SpaceMapPhys, u64, bool)>> {
        let object = Self::word(blocks, self.array.as_ref(), index)?;
        if object == 0 {
            return Ok(None);
        }
        let dnode = mos.expect(blocks, object)?;
        let (phys, counts) = SpaceMapPhys::parse(dnode.bonus())?;
        Ok(Some((dnode, phys, object, counts)))
    }

    /// Allocated bytes as the headers of the maps say, logs left out. For progress only.
    pub(crate) fn allocated(&self, blocks: &mut Blocks<'_>, mos: &Mos) -> u64 {
        let mut sum = 0u64;
        for index in 0..self.count {
            if blocks.pulse().is_err() {
                break;
            }
            let map = self.map(blocks, mos, index);
            let alloc = map.ok().flatten().map_or(0, |(_, phys, ..)| phys.alloc.get());
            sum = sum.saturating_add(alloc.max(0) as u64);
        }
        sum
    }

    /// The bitmap of one metaslab: its own map, then what the sorted logs have for it.
    pub(crate) fn bitmap(
        &self,
        blocks: &mut Blocks<'_>,
        mos: &Mos,
        index: u64,
        logs: &mut Peekable<impl Iterator<Item = Record>>,
        findings: &mut Findings,
    ) -> Bitmap {
        let (start, size) = (index << self.shift, 1u64 << self.shift);
        let mut bitmap = Bitmap::new(start, size, self.ashift);
        let place = format!("vdev {} metaslab {index}", self.top);
        let geometry = Geometry::metaslab(start, size, self.ashift);
        let mut header = None;
        let loaded = self.map(blocks, mos, index).and_then(|map| {
            let Some((dnode, phys, object, counts)) = map else { return Ok(()) };
            header = counts.then_some(phys);
            // It is written with the first entry.
            if phys.object.get() != object && phys.object.get() != 0 {
                let said = phys.object.get();
                findings.add(FindingKind::SpaceMap, || {
                    format!("{place}: its map is object {object}, and says {said}")
                });
            }
            let mut sum = 0i64;
            each_run(blocks, &dnode, &phys, geometry, |run| {
                apply(&mut bitmap, run, &place, findings);
                let size = run.size as i64;
                sum = sum.wrapping_add(if run.action == Action::Alloc { size } else { -size });
            })?;
            let said = phys.alloc.get();
            if said != sum {
                findings.add(FindingKind::SpaceMap, || {
                    format!("{place}: its map says {said} bytes, its entries are {sum}")
                });
            }
            Ok(())
        });
        if let Err(why) = loaded {
            findings.add(FindingKind::SpaceMap, || format!("{place}: {why}"));
        }
        let key = log_key(self.top, index);
        while let Some(record) = logs.next_if(|record| record[0] <= key) {
            let [of, _, offset, sized] = record;
            if of == key {
                let action = if sized & 1 == 0 { Action::Alloc } else { Action::Free };
                let run = Run { action, vdev: None, offset, size: sized >> 1 };
                apply(&mut bitmap, run, &place, findings);
            }
        }
        if let Some(phys) = header {
            histogram(&phys, &bitmap, &place, findings);
        }
        bitmap
    }
}

fn log_key(top: u32, index: u64) -> u64 {
    u64::from(top) << 40 | index
}

fn apply(bitmap: &mut Bitmap, run: Run, place: &str, findings: &mut Findings) {
    let allocate = run.action == Action::Alloc;
    let already = bitmap.set(run.offset, run.size, allocate);
    if already > 0 {
        let state = if allocate { "allocates what is allocated" } else { "frees what is free" };
        findings.add(FindingKind::SpaceMap, || {
            format!("{place}: {state}, {already:#x} bytes at offset {:#x}", run.offset)
        });
    }
}

/// Can the histogram of a map be that of its free space? OpenZFS counts what was freed lately apart
/// from what lies beside it, so only the total is certain to be within what the counts allow.
fn histogram(phys: &SpaceMapPhys, bitmap: &Bitmap, place: &str, findings: &mut Findings) {
    let (free, allocated) = bitmap.units();
    let (mut low, mut high) = (0u128, 0u128);
    for (bucket, count) in phys.histogram.iter().enumerate() {
        let count = u128::from(count.get());
        low += count << bucket;
        high += count * ((2 << bucket) - 1);
    }
    let open = phys.histogram.last().is_some_and(|count| count.get() > 0);
    let fits = low <= free.into() && (open || u128::from(free) <= high);
    // All zeros stand for a map that is all free.
    let unused = low == 0 && allocated == 0;
    if !fits && !unused {
        findings.add(FindingKind::SpaceMap, || {
            format!("{place}: its histogram has {low} to {high} free sectors, there are {free}")
        });
    }
}

/// Calls `each` with the runs of a map, in order.
pub(crate) fn each_run(
    blocks: &mut Blocks<'_>,
    dnode: &DnodePhys,
    phys: &SpaceMapPhys,
    geometry: Geometry,
    mut each: impl FnMut(Run),
) -> Result<()> {
    let (size, length) = (u64::from(dnode.block_size()), phys.length.get());
    bounded(dnode, length)?;
    let mut at = 0;
    while at < length {
        blocks.list_part(size)?;
        let bytes = object::solid(blocks, dnode, at / size)?;
        let valid = (length - at).min(size) as usize;
        for item in space_map::items(bytes.get(..valid).unwrap_or_default(), geometry) {
            if let Item::Run(run) = item? {
                each(run);
            }
        }
        at += size;
    }
    Ok(())
}

/// Calls `each` with the runs of a map, block by block.
fn each_batch<'a>(
    blocks: &mut Blocks<'a>,
    dnode: &DnodePhys,
    length: u64,
    mut each: impl FnMut(&mut Blocks<'a>, &[Run]) -> Result<()>,
) -> Result<()> {
    let size = u64::from(dnode.block_size());
    bounded(dnode, length)?;
    let mut at = 0;
    while at < length {
        blocks.list_part(size)?;
        let bytes = object::solid(blocks, dnode, at / size)?;
        let valid = (length - at).min(size) as usize;
        let mut runs = Vec::new();
        for item in space_map::items(bytes.get(..valid).unwrap_or_default(), Geometry::LOG) {
            if let Item::Run(run) = item? {
                runs.push(run);
            }
        }
        each(blocks, &runs)?;
        at += size;
    }
    Ok(())
}

/// Can a map have so many bytes of entries?
fn bounded(dnode: &DnodePhys, length: u64) -> Result<()> {
    let size = u64::from(dnode.block_size());
    if size > BLOCK_SIZE_MAX || !size.is_multiple_of(8) {
        return Err(Unread(format!("a space map with blocks of {size} bytes")));
    }
    if length.div_ceil(size) > dnode.max_block().saturating_add(1) {
        return Err(Unread(format!("a space map of {length} bytes, beyond its last block")));
    }
    Ok(())
}

/// Adds to `out` all changes that are in the logs only: metaslab, number, offset, size and action.
pub(crate) fn logs(
    blocks: &mut Blocks<'_>,
    mos: &Mos,
    all: &[Metaslabs],
    out: &mut Sorter,
    findings: &mut Findings,
) {
    let Some(zap) = mos.find(key::LOG_SPACEMAP_ZAP) else { return };
    let mut list = Vec::new();
    let listed = mos.expect(blocks, zap).and_then(|zap| {
        object::zap_each(blocks, &zap, |entry| {
            let name = std::str::from_utf8(&entry.name).ok();
            let txg = name.and_then(|name| u64::from_str_radix(name, 16).ok());
            list.extend(txg.zip(entry.value.as_u64()));
        })
    });
    if let Err(why) = listed {
        findings.add(FindingKind::SpaceMap, || format!("log space maps: {why}"));
    }
    list.sort_unstable();
    check_logged(blocks, all, &list, findings);
    let mut number = 0;
    for (txg, object) in list {
        let read = mos.expect(blocks, object).and_then(|dnode| {
            let (phys, _) = SpaceMapPhys::parse(dnode.bonus())?;
            each_batch(blocks, &dnode, phys.length.get(), |blocks, runs| {
                for run in runs {
                    number += 1;
                    logged(blocks, all, (txg, number), run, out, findings);
                }
                Ok(())
            })
        });
        if let Err(why) = read {
            findings.add(FindingKind::SpaceMap, || format!("log space map of txg {txg}: {why}"));
        }
    }
}

/// One entry of a log.
fn logged(
    blocks: &mut Blocks<'_>,
    all: &[Metaslabs],
    (txg, number): (u64, u64),
    run: &Run,
    out: &mut Sorter,
    findings: &mut Findings,
) {
    let Some(slabs) = all.iter().find(|slabs| Some(slabs.top) == run.vdev) else { return };
    let index = run.offset >> slabs.shift;
    let since = Metaslabs::word(blocks, slabs.unflushed.as_ref(), index).unwrap_or(0);
    if txg < since {
        return;
    }
    if since == 0 {
        findings.add(FindingKind::SpaceMap, || {
            let top = slabs.top;
            format!("vdev {top} metaslab {index}: changes in the log of txg {txg}, but it has none")
        });
    }
    if run.size >> 62 != 0 || (run.offset + (run.size - 1)) >> slabs.shift != index {
        findings.add(FindingKind::SpaceMap, || {
            format!("log space map of txg {txg}: a run beyond metaslab {index}")
        });
    }
    let sized = run.size << 1 | u64::from(run.action == Action::Free);
    out.push([log_key(slabs.top, index), number, run.offset, sized]);
}

/// Every metaslab with changes in logs must name a log that exists: else no import.
fn check_logged(
    blocks: &mut Blocks<'_>,
    all: &[Metaslabs],
    logs: &[(u64, u64)],
    findings: &mut Findings,
) {
    for slabs in all {
        for index in 0..slabs.count {
            if blocks.pulse().is_err() {
                return;
            }
            let since = Metaslabs::word(blocks, slabs.unflushed.as_ref(), index).unwrap_or(0);
            if since != 0 && logs.binary_search_by_key(&since, |(txg, _)| *txg).is_err() {
                findings.add(FindingKind::SpaceMap, || {
                    let top = slabs.top;
                    format!("vdev {top} metaslab {index}: unflushed since txg {since}, no such log")
                });
            }
        }
    }
}
