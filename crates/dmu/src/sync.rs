//! The sync of frozen objects: one pure bottom-up pass.
//!
//! Nobody changes what is frozen, so there is no lock per block. Level by level: the records of all
//! objects are cut into runs of about a mebibyte and written by the workers, each run by one worker
//! from its bytes to its column writes; then the indirect blocks of level 1 of all objects, then
//! level 2, until every object has a new dnode. A parent is made from its old contents and the new
//! pointers of its children; replaced pointers die, as tallies that the ledger settles later.

use std::collections::BTreeMap;

use format::{BlkPtr, DnodePhys, ObjectType};
use rt::buf::PooledBuf;
use rt::sync::atomic::AtomicU64;
use rt::sync::{Arc, Mutex};
use rt::workers::Workers;
use store::{BlockWrite, Bytes, Store, Writer};
use zerocopy::IntoBytes;

use crate::error::{DmuError, Result};
use crate::ledger::{Needs, Space, Tally};
use crate::object::{Frozen, Object};
use crate::policy::Policy;
use crate::tree::{Root, child_of};

/// Bytes and blocks that a worker takes at a time: what its core's cache holds.
const RUN: (usize, usize) = (1 << 20, 64);
/// For disks as many blocks as are a mebibyte and more to each, which waits for its head once; the writer says how many
/// bytes there is memory for.
const BLOCKS_TO_DISKS: usize = 1024;

/// What a sync pass works with.
pub struct Syncing<'a> {
    /// The txg.
    pub txg: u64,
    /// Where blocks are written.
    pub writer: &'a Writer,
    /// Who writes them.
    pub workers: &'a Workers,
    /// Properties of the data set.
    pub policy: &'a Policy,
    /// May a block born in this txg be written over (later passes over the MOS)?
    pub rewrite: bool,
    /// How many blocks of what is freed in portions the sync may still free.
    pub frees: &'a AtomicU64,
}

/// An object that was synced.
pub(crate) struct Synced {
    pub(crate) object: Arc<Object>,
    pub(crate) old: Option<Arc<DnodePhys>>,
    pub(crate) new: Option<Box<DnodePhys>>,
}

/// One pointer of a parent to be replaced.
#[derive(Clone, Copy)]
struct Update {
    index: u64,
    bp: BlkPtr,
    /// What was there is dead already (or moved), not to be killed by the parent.
    settled: bool,
}

/// An object on its way through the levels.
struct Work {
    object: Arc<Object>,
    frozen: Frozen,
    /// The tree on disk.
    root: Root,
    /// The header of the new dnode.
    dnode: Option<Box<DnodePhys>>,
    levels: u8,
    /// Per level: new pointers of blocks of that level.
    updates: Vec<Vec<Update>>,
    used_delta: i64,
    tally: Tally,
}

impl Work {
    /// The parents, in `level`, of what has changed below, each with that.
    fn changed_parents(&mut self, level: u8) -> BTreeMap<u64, Vec<Update>> {
        let mut groups: BTreeMap<u64, Vec<Update>> = BTreeMap::new();
        if level >= self.levels {
            return groups;
        }
        let mut children = std::mem::take(&mut self.updates[usize::from(level) - 1]);
        // A record written over a pruned block comes after its hole: the later one counts, and
        // the block is dead already.
        children.sort_by_key(|u| u.index);
        for update in children {
            groups.entry(update.index >> self.root.shift).or_default().push(update);
        }
        let takes_over = level == self.root.levels && self.dnode.is_some();
        if takes_over || level > self.root.levels {
            // The tree grows: the pointers of the dnode move into block 0 of this level.
            groups.entry(0).or_default();
        }
        groups
    }
}

/// A block of pointers that is to be written.
struct Parent {
    data: Arc<PooledBuf>,
    fill: u64,
    /// All children are holes.
    empty: bool,
    tally: Tally,
    delta: i64,
}

/// A block to write: which object, level, number, bytes.
struct Job<'a> {
    work: usize,
    index: u64,
    data: &'a [u8],
    fill: u64,
}

/// Runs `f` for `0..count` on the workers and collects the results in order.
fn parallel<T: Send>(
    workers: &Workers,
    count: usize,
    f: impl Fn(usize, usize) -> Result<T> + Sync,
) -> Result<Vec<T>> {
    let slots: Vec<Mutex<Option<Result<T>>>> = (0..count).map(|_| Mutex::new(None)).collect();
    workers.run(count, |worker, job| {
        *slots[job].lock() = Some(f(worker, job));
    });
    slots.into_iter().map(|s| s.into_inner().expect("every job has run")).collect()
}

/// Number of allocated dnodes in a block of dnodes.
fn dnodes_in(block: &[u8]) -> u64 {
    let mut count = 0;
    let mut slot = 0;
    while let Some(dnode) = block.get(slot * 512..(slot + 1) * 512) {
        if dnode[0] != 0 {
            count += 1;
            slot += usize::from(dnode[12]);
        }
        slot += 1;
    }
    count
}

impl Syncing<'_> {
    fn store(&self) -> &Store {
        self.writer.store()
    }

    fn dsize(&self, bp: &BlkPtr) -> u64 {
        self.store().dsize(bp)
    }

    fn kill(&self, tally: &mut Tally, used_delta: &mut i64, bp: &BlkPtr) {
        if !bp.is_hole() {
            *used_delta -= self.dsize(bp) as i64;
            tally.died.push(*bp);
        }
    }

    /// A hole in place of `old`: with size, level and birth if there was something before.
    fn hole(&self, lsize: u64, kind: ObjectType, level: u8, old: &BlkPtr) -> BlkPtr {
        if old.birth() == 0 || !self.policy.hole_birth {
            BlkPtr::ZERO
        } else {
            BlkPtr::hole(lsize, kind, level, self.txg)
        }
    }

    /// An indirect block of `size` bytes in place of the hole `old`: its children came with it, or
    /// an incremental send would not see that they are gone.
    fn holes(&self, old: &BlkPtr, size: usize, child: (u64, ObjectType, u8)) -> Vec<u8> {
        let mut data = vec![0; size];
        if old.birth() != 0 && self.policy.hole_birth {
            let (lsize, kind, level) = child;
            let hole = BlkPtr::hole(lsize, kind, level, old.birth());
            data.as_chunks_mut::<128>()
                .0
                .iter_mut()
                .for_each(|to| to.copy_from_slice(hole.as_bytes()));
        }
        data
    }

    /// Syncs the changes that `objects` have in this txg. The objects stay readable from memory
    /// until the caller calls `finish` on them.
    pub(crate) fn objects(&self, objects: Vec<Arc<Object>>) -> Result<(Vec<Synced>, Tally)> {
        let frozen: Vec<_> = objects
            .into_iter()
            .filter_map(|o| o.freeze(self.txg).map(|f| Mutex::new(Some((o, f)))))
            .collect();
        let mut works = parallel(self.workers, frozen.len(), |_, i| {
            let (object, frozen) = frozen[i].lock().take().expect("each job runs once");
            self.prepare(object, frozen)
        })?;
        self.write_records(&mut works)?;
        let top = works.iter().map(|w| w.levels).max().unwrap_or(1);
        for level in 1..top {
            self.write_parents(&mut works, level)?;
        }
        let mut all = Tally::default();
        let mut out = Vec::with_capacity(works.len());
        for mut work in works {
            self.write_spill(&mut work)?;
            let new = self.finish_dnode(&mut work)?;
            if new.as_ref().is_some_and(|d| d.slots() > 1) {
                all.needs |= Needs::LARGE_DNODE;
            }
            all.merge(work.tally);
            out.push(Synced { object: work.object, old: work.frozen.synced, new });
            rt::thread::give_way();
        }
        Ok((out, all))
    }

    /// Finds out what the frees kill and how many levels the tree will have.
    fn prepare(&self, object: Arc<Object>, mut frozen: Frozen) -> Result<Work> {
        let dnode = frozen.dnode.take();
        let shape = frozen.synced.as_deref().or(dnode.as_deref());
        let shape = shape.ok_or(DmuError::NoObject { object: object.number() });
        let mut work = match (shape, &dnode) {
            (Err(_), _) => Work {
                // Allocated and freed within the txg.
                root: Root {
                    object: object.number(),
                    blkptrs: [BlkPtr::ZERO; 3],
                    nblkptr: 1,
                    levels: 1,
                    shift: 10,
                },
                levels: 1,
                updates: vec![vec![]],
                dnode: None,
                used_delta: 0,
                tally: Tally::default(),
                object,
                frozen,
            },
            (Ok(shape), _) => {
                let root = Root::of(object.number(), shape);
                let mut levels = root.levels;
                if let Some(dnode) = &dnode {
                    // Also where what was written beyond is gone again within the txg.
                    let last = frozen.records.last().map_or(0, |(last, _)| *last);
                    levels = levels.max(dnode.levels_for(last.max(dnode.max_block())));
                }
                Work {
                    updates: vec![vec![]; usize::from(levels)],
                    root,
                    levels,
                    dnode,
                    used_delta: 0,
                    tally: Tally::default(),
                    object,
                    frozen,
                }
            }
        };
        if let Some(synced) = work.frozen.synced.clone() {
            let whole = work.dnode.is_none();
            let extents: Vec<(u64, u64)> =
                if whole { vec![(0, u64::MAX)] } else { work.frozen.freed.iter().collect() };
            for (first, end) in extents {
                self.prune(&mut work, first, end)?;
            }
            if whole && let Some(spill) = synced.spill() {
                self.kill(&mut work.tally, &mut work.used_delta, spill);
            }
        }
        Ok(work)
    }

    /// Frees data blocks `[first, end)` of the tree on disk.
    fn prune(&self, work: &mut Work, first: u64, end: u64) -> Result<()> {
        let top = work.root.levels - 1;
        for up in 0..work.root.nblkptr {
            let bp = work.root.blkptrs[up as usize];
            self.prune_below(work, top, up, &bp, first, end)?;
        }
        Ok(())
    }

    /// Frees what of `[first, end)` lies below the block `bp`, number `index` of `level`.
    fn prune_below(
        &self,
        work: &mut Work,
        level: u8,
        index: u64,
        bp: &BlkPtr,
        first: u64,
        end: u64,
    ) -> Result<()> {
        let span = u32::from(level) * work.root.shift;
        let from = index.checked_shl(span).filter(|f| f >> span == index).unwrap_or(u64::MAX);
        let to = from.saturating_add(1u64.checked_shl(span).unwrap_or(u64::MAX));
        if bp.is_hole() || to <= first || from >= end {
            return Ok(());
        }
        let whole = first <= from && end >= to;
        if level > 0 {
            let block = work.root.read_indirect(self.store(), bp, level, index)?;
            let count = 1u64 << work.root.shift;
            for child in 0..count {
                let child_bp = child_of(&block, child);
                let number = (index << work.root.shift) + child;
                if whole {
                    self.kill_below(work, level - 1, number, &child_bp)?;
                } else {
                    self.prune_below(work, level - 1, number, &child_bp, first, end)?;
                }
            }
        }
        if whole {
            self.kill(&mut work.tally, &mut work.used_delta, bp);
            let hole = self.hole(bp.lsize(), bp.kind(), level, bp);
            work.updates[usize::from(level)].push(Update { index, bp: hole, settled: true });
        }
        Ok(())
    }

    /// Kills a whole subtree, its root too.
    fn kill_below(&self, work: &mut Work, level: u8, index: u64, bp: &BlkPtr) -> Result<()> {
        if bp.is_hole() {
            return Ok(());
        }
        if level > 0 {
            let block = work.root.read_indirect(self.store(), bp, level, index)?;
            for child in 0..1u64 << work.root.shift {
                let number = (index << work.root.shift) + child;
                self.kill_below(work, level - 1, number, &child_of(&block, child))?;
            }
        }
        self.kill(&mut work.tally, &mut work.used_delta, bp);
        Ok(())
    }

    /// Writes the records of all objects, cut into runs.
    fn write_records(&self, works: &mut [Work]) -> Result<()> {
        let mut jobs = Vec::new();
        for (number, work) in works.iter().enumerate() {
            let Some(dnode) = &work.dnode else { continue };
            let dnodes = dnode.kind() == ObjectType::DNODE;
            for (index, record) in &work.frozen.records {
                let fill = if dnodes { dnodes_in(record) } else { 1 };
                jobs.push(Job { work: number, index: *index, data: record, fill });
            }
        }
        let results = self.write_jobs(works, 0, &jobs)?;
        let kinds = works.iter().filter_map(|work| Some((work, work.dnode.as_ref()?.kind())));
        let records = kinds.flat_map(|(work, kind)| {
            let kept = self.policy.meta || kind.is_metadata();
            work.frozen.records.iter().map(move |(_, record)| kept.then_some(record))
        });
        for (record, bp) in records.zip(&results) {
            // The next pass or txg changes the same block, or somebody looks for another name in it.
            if let Some(record) = record {
                self.store().keep(bp, Arc::new(Bytes::written(record)));
            }
        }
        let found: Vec<(usize, Update)> = jobs
            .iter()
            .zip(results)
            .map(|(job, bp)| (job.work, Update { index: job.index, bp, settled: false }))
            .collect();
        for (number, update) in found {
            works[number].updates[0].push(update);
        }
        Ok(())
    }

    /// Writes blocks of one level in runs on the workers; returns their pointers in order.
    fn write_jobs(&self, works: &[Work], level: u8, jobs: &[Job<'_>]) -> Result<Vec<BlkPtr>> {
        let (bytes_max, blocks_max) = match self.store().is_on_disks() {
            true => (self.writer.run_bytes(), BLOCKS_TO_DISKS),
            false => RUN,
        };
        self.writer.expect(jobs.iter().map(|job| job.data.len() as u64).sum());
        let mut runs = Vec::new();
        let (mut from, mut bytes) = (0, 0);
        for (i, job) in jobs.iter().enumerate() {
            bytes += job.data.len();
            if bytes >= bytes_max || i + 1 - from >= blocks_max || i + 1 == jobs.len() {
                runs.push(from..i + 1);
                (from, bytes) = (i + 1, 0);
            }
        }
        let written = parallel(self.workers, runs.len(), |worker, run| {
            let jobs = &jobs[runs[run].clone()];
            let mut blocks = Vec::with_capacity(jobs.len());
            for job in jobs {
                let work = &works[job.work];
                let dnode = work.dnode.as_ref().expect("a freed object has no jobs");
                let policy = self.policy.block(dnode.kind(), level, false, dnode);
                let old = if self.rewrite {
                    let old = work.root.pointer(self.store(), level, job.index)?;
                    (old.birth() == self.txg && old.has_space()).then_some(old)
                } else {
                    None
                };
                blocks.push(BlockWrite {
                    data: job.data,
                    kind: dnode.kind(),
                    level,
                    checksum: policy.checksum,
                    compress: policy.compress,
                    zstd_level: policy.zstd_level,
                    copies: policy.copies,
                    embed: policy.embed,
                    fill: job.fill,
                    rewrite: old,
                });
            }
            self.writer.write_run(worker, self.txg, &blocks).map_err(|source| {
                let job = &jobs[0];
                DmuError::Block {
                    object: works[job.work].object.number(),
                    level,
                    block: job.index,
                    source: Box::new(source),
                }
            })
        })?;
        Ok(written.into_iter().flatten().collect())
    }

    /// Counts a new pointer in place of an old one.
    fn replace(&self, tally: &mut Tally, delta: &mut i64, old: &BlkPtr, new: &Update) {
        let rewritten = old.has_space() && new.bp.has_space() && old.same_block(&new.bp);
        if rewritten {
            return;
        }
        if !new.settled {
            self.kill(tally, delta, old);
        }
        if !new.bp.is_hole() {
            let used = self.dsize(&new.bp);
            tally.born += Space::of(&new.bp, used);
            *delta += used as i64;
            tally.needs |= needs_of(&new.bp);
        }
    }

    /// Makes and writes the blocks of `level` (1 and up) that lead to changed children.
    fn write_parents(&self, works: &mut [Work], level: u8) -> Result<()> {
        // Which parents of which objects.
        let mut wanted: Vec<(usize, u64, Vec<Update>)> = Vec::new();
        for (number, work) in works.iter_mut().enumerate() {
            let groups = work.changed_parents(level).into_iter();
            wanted.extend(groups.map(|(index, updates)| (number, index, updates)));
        }
        let made = parallel(self.workers, wanted.len(), |_, i| {
            let (number, index, updates) = &wanted[i];
            self.make_parent(&works[*number], level, *index, updates)
        })?;
        let wanted = wanted.iter().map(|(number, index, _)| (*number, *index));
        let jobs: Vec<Job<'_>> = made
            .iter()
            .zip(wanted.clone())
            .filter(|(parent, _)| !parent.empty)
            .map(|(parent, (work, index))| Job {
                work,
                index,
                data: &parent.data,
                fill: parent.fill,
            })
            .collect();
        let written = self.write_jobs(works, level, &jobs)?;
        drop(jobs);
        let mut written = written.into_iter();
        for (parent, (number, index)) in made.into_iter().zip(wanted) {
            let work = &mut works[number];
            work.tally.merge(parent.tally);
            work.used_delta += parent.delta;
            let bp = if parent.empty {
                BlkPtr::ZERO
            } else {
                let bp = written.next().expect("one pointer per job");
                self.store().keep(&bp, Arc::new(Bytes::written(&parent.data)));
                bp
            };
            work.updates[usize::from(level)].push(Update { index, bp, settled: false });
        }
        Ok(())
    }

    /// A block of `level` from its old contents and the new pointers of its children.
    fn make_parent(
        &self,
        work: &Work,
        level: u8,
        index: u64,
        updates: &[Update],
    ) -> Result<Parent> {
        let dnode = work.dnode.as_ref();
        let dnode = dnode.ok_or(DmuError::NoObject { object: work.object.number() })?;
        let root = &work.root;
        let size = 128usize << root.shift;
        let child_size = if level == 1 { dnode.block_size() as u64 } else { size as u64 };
        let mut data = self.before_update(root, level, index, (child_size, dnode.kind()))?;
        let (mut tally, mut delta) = (Tally::default(), 0);
        let mask = (1u64 << root.shift) - 1;
        for update in updates {
            let slot = (update.index & mask) as usize * 128;
            let old = child_of(&data, update.index & mask);
            let mut update = *update;
            self.replace(&mut tally, &mut delta, &old, &update);
            if update.bp.is_hole() && !update.settled {
                // Where the tree grows by more than one level, what was there hung on the dnode.
                let grown = level > root.levels && update.index == 0;
                let before = if grown { root.youngest() } else { &old };
                update.bp = self.hole(child_size, dnode.kind(), level - 1, before);
            }
            data[slot..slot + 128].copy_from_slice(update.bp.as_bytes());
        }
        let (mut fill, mut empty) = (0u64, true);
        for child in 0..=mask {
            let bp = child_of(&data, child);
            fill = fill.saturating_add(bp.fill());
            empty &= bp.is_hole();
        }
        Ok(Parent { data: Arc::new(data), fill, empty, tally, delta })
    }

    /// A block of pointers to children of this size and kind as it is on disk, or would be if it were there.
    fn before_update(
        &self,
        root: &Root,
        level: u8,
        index: u64,
        (child_size, kind): (u64, ObjectType),
    ) -> Result<PooledBuf> {
        let size = 128usize << root.shift;
        let buffers = self.store().buffers();
        if level >= root.levels {
            let mut data = buffers.get_zeroed(size);
            if level == root.levels && index == 0 {
                for (i, bp) in root.blkptrs.iter().take(root.nblkptr as usize).enumerate() {
                    data[i * 128..(i + 1) * 128].copy_from_slice(bp.as_bytes());
                }
            }
            return Ok(data);
        }
        let bp = root.pointer(self.store(), level, index)?;
        if bp.is_hole() {
            return Ok(buffers.copy_of(&self.holes(&bp, size, (child_size, kind, level - 1))));
        }
        Ok(buffers.copy_of(&root.read_indirect(self.store(), &bp, level, index)?))
    }

    /// Writes or drops the spill block.
    fn write_spill(&self, work: &mut Work) -> Result<()> {
        let Some(dnode) = work.dnode.as_mut() else { return Ok(()) };
        let Some(change) = work.frozen.spill.clone() else {
            // Unchanged in this txg: the pointer on disk goes on.
            let bp = work.frozen.synced.as_ref().and_then(|d| d.spill().copied());
            let object = work.object.number();
            return match bp {
                Some(bp) if dnode.has_spill() => {
                    dnode.set_spill(Some(bp)).map_err(|source| DmuError::Format { object, source })
                }
                _ => Ok(()),
            };
        };
        let old = work.frozen.synced.as_ref().and_then(|d| d.spill().copied());
        let old = old.unwrap_or(BlkPtr::ZERO);
        let bp = match change {
            None => BlkPtr::ZERO,
            Some(bytes) => {
                let mut data = bytes.to_vec();
                data.resize(bytes.len().next_multiple_of(512).max(512), 0);
                let kind = dnode.bonus_kind();
                let policy = self.policy.block(kind, 0, true, dnode);
                let block = BlockWrite {
                    data: &data,
                    kind,
                    level: 0,
                    checksum: policy.checksum,
                    compress: policy.compress,
                    zstd_level: policy.zstd_level,
                    copies: policy.copies,
                    embed: policy.embed,
                    fill: 1,
                    rewrite: None,
                };
                self.writer.write_run(0, self.txg, &[block])?[0]
            }
        };
        let update = Update { index: 0, bp, settled: false };
        self.replace(&mut work.tally, &mut work.used_delta, &old, &update);
        let spill = dnode.has_spill().then_some(bp);
        let object = work.object.number();
        dnode.set_spill(spill).map_err(|source| DmuError::Format { object, source })
    }

    /// Puts the top pointers into the dnode and counts what it uses.
    fn finish_dnode(&self, work: &mut Work) -> Result<Option<Box<DnodePhys>>> {
        let Some(mut dnode) = work.dnode.take() else { return Ok(None) };
        let grown = work.levels > work.root.levels;
        dnode.core_mut().levels = work.levels;
        let mut blkptrs = if grown { [BlkPtr::ZERO; 3] } else { work.root.blkptrs };
        let level = work.levels - 1;
        let size = if level == 0 { u64::from(dnode.block_size()) } else { 128 << work.root.shift };
        for update in std::mem::take(&mut work.updates[usize::from(level)]) {
            let Some(slot) = blkptrs.get_mut(update.index as usize) else {
                let what = "a block beyond the reach of its dnode";
                return Err(DmuError::Limit { object: work.object.number(), what });
            };
            self.replace(&mut work.tally, &mut work.used_delta, slot, &update);
            *slot = if update.bp.is_hole() && !update.settled {
                // Where the tree has grown, what was there hung on the dnode.
                let before = if grown { work.root.youngest() } else { &*slot };
                self.hole(size, dnode.kind(), level, before)
            } else {
                update.bp
            };
        }
        for (to, from) in dnode.blkptrs_mut().iter_mut().zip(blkptrs) {
            *to = from;
        }
        let before = work.frozen.synced.as_ref();
        let used_before = before.map_or(0, |dnode| dnode.used_bytes());
        let had = before.map_or(0, |d| d.core().flags);
        let core = dnode.core_mut();
        core.flags |= had & (format::dnode::DnodeFlags::USED_BYTES | 2 | 8);
        if work.used_delta != 0 || !work.frozen.records.is_empty() {
            core.flags |= format::dnode::DnodeFlags::USED_BYTES;
        }
        let used = used_before.checked_add_signed(work.used_delta).ok_or(DmuError::Limit {
            object: work.object.number(),
            what: "its dnode says that it uses less than its blocks do",
        })?;
        core.used.set(used);
        Ok(Some(dnode))
    }
}

fn needs_of(bp: &BlkPtr) -> u32 {
    let mut needs = 0;
    if bp.lsize() > 128 << 10 {
        needs |= Needs::LARGE_BLOCKS;
    }
    needs |= match bp.checksum_id() {
        11 => Needs::SHA512,
        12 => Needs::SKEIN,
        13 => Needs::EDONR,
        _ => 0,
    };
    if bp.compress_id() == 16 {
        needs |= Needs::ZSTD;
    }
    needs
}
