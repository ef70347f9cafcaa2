//! Writing blocks: parity while the block is in cache, one write to each disk for a whole run.
//!
//! Place: the only way from the engine to the bytes of a leaf's allocatable space.
//! The one idea: blocks that follow each other in the vdev's address space follow each other on
//! every disk, too, once the skip sectors between them are filled. So a worker that has a run of
//! records computes their parity and then hands each disk a single gathered write.
//!
//! A [`WriteTree`] is made from [`WriteDevice`]s only: a pool that was opened to be read has no way
//! to get one (INV-4). Nothing is allocated per block: parity and the list of pieces live in the
//! caller's [`WriteScratch`].

use crate::error::{LeafFailure, Result, VdevError};
use crate::flushes::FlushFailures;
use crate::present::Present;
use crate::raidz::DISKS_MAX;
use crate::read::clip;
use crate::rebuild::generate;
use crate::sizes::Layout;
use crate::tree::{Found, Leaf, Top, Tree};
use device::queue::{Batch, Class};
use device::{Device, DeviceError, WriteDevice};
use format::config::VdevConfig;
use format::label::{ASHIFT_MAX, DATA_AT};
use rt::buf::Buf;
use rt::sync::atomic::{AtomicU64, Ordering};
use rt::sync::{Arc, Mutex, RwLock};
use std::collections::{BTreeMap, BTreeSet};
use std::io::IoSlice;

/// What skip sectors and padding are filled with; as long as the largest sector.
static ZEROS: [u8; 1 << ASHIFT_MAX] = [0; 1 << ASHIFT_MAX];

/// Memory that a writer uses again for every run: one for each thread that writes.
#[derive(Default)]
pub struct WriteScratch {
    parity: Buf,
    vectors: Vec<IoSlice<'static>>,
}

impl WriteScratch {
    /// Bytes that it keeps.
    pub fn bytes(&self) -> usize {
        self.parity.len() + self.vectors.capacity() * size_of::<IoSlice<'static>>()
    }
}

/// What came of a write that enough leaves took.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct WriteReport {
    /// Leaves whose device failed, by their place in [`Tree::leaves`], with the reason. They now
    /// lack the block.
    pub failed: Vec<(usize, LeafFailure)>,
    /// Was a leaf passed over because it is not there?
    pub degraded: bool,
}

/// A device that can be written.
#[derive(Clone)]
struct Writer {
    device: Arc<dyn WriteDevice>,
    /// Held by who flushes, if no queue does it, until a failure is counted: the device tells of it once.
    flushing: Arc<Mutex<()>>,
}

impl Writer {
    fn all(devices: BTreeMap<u64, Arc<dyn WriteDevice>>) -> impl Iterator<Item = (u64, Writer)> {
        let writer = |device| Writer { device, flushing: Arc::default() };
        devices.into_iter().map(move |(guid, device)| (guid, writer(device)))
    }
}

/// The vdevs of a pool, open for writing.
pub struct WriteTree {
    /// What readers see; exchanged together with `writers`.
    present: Arc<Present>,
    writers: RwLock<Arc<Writers>>,
    /// What its writers know, whatever tree they have.
    noted: Arc<Noted>,
}

/// What is known of writes and flushes, whoever they are of.
#[derive(Default)]
struct Noted {
    /// The txg whose blocks are being written (INV-6: one at a time); 0: none, nothing is noted.
    txg: AtomicU64,
    /// Whose flushes had failed when it began.
    at_begin: Mutex<FlushFailures>,
    /// Leaves, by guid, whose labels 1 and 3 are not whole.
    odd_broken: Mutex<BTreeSet<u64>>,
}

/// A tree and those of its leaves that can be written: what one write or flush works with from its beginning to
/// its end.
pub(crate) struct Writers {
    tree: Arc<Tree>,
    /// By place in the tree's leaves; `None` of leaves that are missing or must not be written.
    writers: Vec<Option<Writer>>,
    /// The devices of all leaves that have one, by guid, those too that must not be written now.
    devices: BTreeMap<u64, Writer>,
    noted: Arc<Noted>,
}

impl Writers {
    fn new(tree: Arc<Tree>, devices: BTreeMap<u64, Writer>, noted: Arc<Noted>) -> Arc<Writers> {
        let writer =
            |leaf: &Leaf| devices.get(&leaf.guid()).filter(|_| leaf.state.is_online()).cloned();
        let writers = tree.leaves().iter().map(writer).collect();
        Arc::new(Writers { tree, writers, devices, noted })
    }

    /// Leaves, by guid, whose labels 1 and 3 must be written before the others.
    pub(crate) fn odd_broken(&self) -> &Mutex<BTreeSet<u64>> {
        &self.noted.odd_broken
    }
}

impl WriteTree {
    /// Tells that of these leaves labels 1 and 3 were found not to be whole, but labels 0 and 2 were.
    pub fn are_odd_broken(&self, guids: impl IntoIterator<Item = u64>) {
        self.noted.odd_broken.lock().extend(guids);
    }

    /// The tree that the config describes, on devices that can be written, by leaf guid. All of
    /// them must have been recognised by their labels (or be about to be labelled anew).
    pub fn open(root: &VdevConfig, devices: BTreeMap<u64, Arc<dyn WriteDevice>>) -> Result<Self> {
        let tree = Arc::new(Tree::open(root, found(&devices))?);
        let noted = Arc::<Noted>::default();
        let writers = Writers::new(tree.clone(), Writer::all(devices).collect(), noted.clone());
        Ok(WriteTree { present: Present::new(tree), writers: RwLock::new(writers), noted })
    }

    /// The tree as it is now, to read from.
    pub fn tree(&self) -> Arc<Tree> {
        self.present.get()
    }

    /// Where readers find the tree.
    pub fn present(&self) -> &Arc<Present> {
        &self.present
    }

    /// Exchanges the tree for that of another config of the same pool; `more` are devices of leaves that are new,
    /// or back. To be called in the midst of a sync, before blocks are written that the new leaves must have: who
    /// writes or flushes at the time does so on the old leaves to the end.
    ///
    /// # Errors
    /// [`VdevError::Config`] if the config says what cannot be; then nothing has changed.
    pub fn exchange(
        &self,
        root: &VdevConfig,
        more: BTreeMap<u64, Arc<dyn WriteDevice>>,
    ) -> Result<()> {
        let before = self.writers();
        let mut devices = before.devices.clone();
        let new = found(&more);
        devices.extend(Writer::all(more));
        for leaf in root.leaves().filter(|leaf| leaf.orig_guid != 0) {
            if let Some(device) = devices.get(&leaf.orig_guid).cloned() {
                devices.entry(leaf.guid).or_insert(device);
            }
        }
        let tree = Arc::new(Tree::after(&before.tree, root, new)?);
        devices.retain(|guid, _| tree.leaf_by_guid(*guid).is_some());
        let writers = Writers::new(tree.clone(), devices, self.noted.clone());
        let written = |place: usize| before.writers.get(place).is_some_and(Option::is_some);
        let retired = |guid| {
            let place = tree.leaf_by_guid(guid)?;
            writers.writers[place].is_none().then_some(place)
        };
        for (place, leaf) in before.tree.leaves().iter().enumerate().filter(|(at, _)| written(*at))
        {
            // It has a part of this txg, and nobody will flush it.
            if retired(leaf.guid()).is_some() {
                before.missed(place);
            }
        }
        *self.writers.write() = writers;
        self.present.set(tree);
        Ok(())
    }

    /// The leaves as they are now; the lock is held for the time of a clone only.
    pub(crate) fn writers(&self) -> Arc<Writers> {
        self.writers.read().clone()
    }

    /// The device of a leaf by its guid, also of one that is not written now.
    pub fn device(&self, guid: u64) -> Option<Arc<dyn WriteDevice>> {
        self.writers().devices.get(&guid).map(|writer| writer.device.clone())
    }

    /// Writes one block at `offset` of the vdev. See [`WriteTree::write_run`].
    pub fn write(
        &self,
        top: u32,
        offset: u64,
        data: &[u8],
        scratch: &mut WriteScratch,
    ) -> Result<WriteReport> {
        self.write_run(top, &[(offset, data)], scratch)
    }

    /// Writes blocks, each at its offset of the vdev. Where one begins at the end of the one
    /// before (its allocated size, not its length, counts) they share each disk's write, skip
    /// sectors filled with zeros; so the best run is one without gaps, of about 1 MiB a disk.
    ///
    /// # Errors
    /// [`VdevError::WriteFailed`] if more leaves failed or are missing than the redundancy covers.
    /// What they took up to then is written, and no leaf counts as lacking it: it may be tried again.
    pub fn write_run(
        &self,
        top: u32,
        blocks: &[(u64, &[u8])],
        scratch: &mut WriteScratch,
    ) -> Result<WriteReport> {
        self.writers().write_to(top, blocks, Class::Write, scratch, None)
    }

    /// As [`WriteTree::write_run`], of blocks that somebody waits for now: those of an intent log.
    pub fn write_urgent(
        &self,
        top: u32,
        blocks: &[(u64, &[u8])],
        scratch: &mut WriteScratch,
    ) -> Result<WriteReport> {
        self.writers().write_to(top, blocks, Class::SyncWrite, scratch, None)
    }

    /// Writes a block again, but only to the leaves named: what a read found wrong is put right. `None`, and nothing
    /// written, if the vdevs are others now than `tree`, whose places the leaves are.
    pub fn heal(
        &self,
        tree: &Arc<Tree>,
        top: u32,
        offset: u64,
        data: &[u8],
        leaves: &[usize],
        scratch: &mut WriteScratch,
    ) -> Result<Option<WriteReport>> {
        let writers = self.writers();
        if !Arc::ptr_eq(&writers.tree, tree) {
            return Ok(None);
        }
        writers.write_to(top, &[(offset, data)], Class::Write, scratch, Some(leaves)).map(Some)
    }

    /// As [`WriteTree::heal`], of blocks that a scan has come to: see [`WriteTree::write_run`] for how they are best
    /// given, and nobody waits for them.
    pub fn heal_run(
        &self,
        tree: &Arc<Tree>,
        top: u32,
        blocks: &[(u64, &[u8])],
        leaves: &[usize],
        scratch: &mut WriteScratch,
    ) -> Result<Option<WriteReport>> {
        let writers = self.writers();
        if !Arc::ptr_eq(&writers.tree, tree) {
            return Ok(None);
        }
        writers.write_to(top, blocks, Class::Scan, scratch, Some(leaves)).map(Some)
    }

    /// From here on blocks of `txg` are written: a leaf that misses one lacks the txg.
    pub fn begin(&self, txg: u64) {
        *self.noted.at_begin.lock() = FlushFailures::of(&self.writers().tree, txg);
        self.noted.txg.store(txg, Ordering::Release);
    }

    /// Waits until all that was written is on stable storage, on every leaf.
    ///
    /// A leaf whose flush fails may have lost any write since its last good one: it lacks the txg that is
    /// being written, as every leaf that missed a write of it.
    ///
    /// A log vdev has nothing that is not in the txgs, too, or was flushed by who wrote it
    /// ([`WriteTree::flush_blocks`]): no txg waits for one.
    ///
    /// # Errors
    /// [`VdevError::FlushFailed`] if those are more than the redundancy of their vdev covers, with those whose flush
    /// has failed since the txg began, whoever it was that flushed them. What failed may be gone: flushing again does
    /// not bring it back.
    pub fn flush(&self) -> Result<WriteReport> {
        let writers = self.writers();
        let report = writers.flush_these(0..writers.writers.len());
        let tops = writers.tree.tops().iter().filter(|top| !top.is_log());
        writers.hold_since(&self.noted.at_begin.lock(), tops, &report)?;
        Ok(report)
    }

    /// As [`WriteTree::flush`], of the leaves alone that hold a part of these blocks: top-level vdev, offset and
    /// bytes of each. `before` is what [`WriteTree::flush_failures`] gave before they were written.
    ///
    /// # Errors
    /// Those of [`WriteTree::flush`], of log vdevs, too; a place that is not on the vdev.
    pub fn flush_blocks(
        &self,
        blocks: &[(u32, u64, usize)],
        before: &FlushFailures,
    ) -> Result<WriteReport> {
        self.writers().flush_blocks(blocks, before)
    }

    /// How often flushes of leaves have failed, whoever flushed them.
    pub fn flush_failures(&self) -> FlushFailures {
        FlushFailures::of(&self.writers().tree, self.noted.txg.load(Ordering::Acquire))
    }

    /// Notes that leaves which are away lack the txg that is being written, before a block of it missed them.
    pub fn note_absent(&self) {
        self.writers().note_absent();
    }
}

/// Labelled devices, as a tree takes them.
fn found(devices: &BTreeMap<u64, Arc<dyn WriteDevice>>) -> BTreeMap<u64, Found> {
    let found = |device: &Arc<dyn WriteDevice>| {
        let device: Arc<dyn Device> = device.clone();
        Found { device, labelled: true }
    };
    devices.iter().map(|(guid, device)| (*guid, found(device))).collect()
}

impl Writers {
    /// The tree of these leaves.
    pub(crate) fn tree(&self) -> &Tree {
        &self.tree
    }

    /// The device of a leaf, for its labels.
    pub(crate) fn writer(&self, leaf: usize) -> Option<&dyn WriteDevice> {
        self.writers.get(leaf)?.as_ref().map(|writer| &*writer.device)
    }

    fn write_to(
        &self,
        top: u32,
        blocks: &[(u64, &[u8])],
        class: Class,
        scratch: &mut WriteScratch,
        only: Option<&[usize]>,
    ) -> Result<WriteReport> {
        for (offset, data) in blocks {
            self.tree.locate(top, *offset, data.len())?;
        }
        let Some((first, _)) = blocks.first() else { return Ok(WriteReport::default()) };
        let (vdev, layout) = self.tree.locate(top, *first, 1)?;
        let mut run = Run { layout, blocks, class, parity: &[] };
        if scratch.parity.len() < run.parity_size() {
            scratch.parity = Buf::zeroed(run.parity_size().next_power_of_two());
        }
        run.generate(&mut scratch.parity);
        run.parity = &scratch.parity;

        let mut round = Round::default();
        let mut vectors = recycle(std::mem::take(&mut scratch.vectors));
        for (place, slot) in vdev.slots.iter().enumerate() {
            self.write_slot(&run, place, slot, only, &mut vectors, &mut round);
        }
        scratch.vectors = recycle(vectors);
        self.wait(&mut round);
        let (report, count) = (round.report, vdev.slots.len());
        let failed_slots = round.untaken[..count].iter().filter(|untaken| **untaken).count();
        if failed_slots <= layout.parity() {
            // Whoever misses what heals him is no worse off than before, and lacks nothing of this txg.
            if only.is_none() {
                report.failed.iter().for_each(|(leaf, _)| self.missed(*leaf));
            }
            return Ok(report);
        }
        Err(VdevError::WriteFailed {
            top,
            offset: *first,
            failed: failed_slots,
            parity: layout.parity(),
            first: Box::new(self.first_failure(vdev, &report)),
        })
    }

    /// Writes what the run has on one child to all its leaves, or starts to.
    fn write_slot<'a>(
        &self,
        run: &Run<'a>,
        place: usize,
        slot: &[usize],
        only: Option<&[usize]>,
        vectors: &mut Vec<IoSlice<'a>>,
        round: &mut Round,
    ) {
        let wanted = |leaf: &&usize| only.is_none_or(|only| only.contains(leaf));
        let mut taken = only.is_some() && !slot.iter().any(|leaf| wanted(&leaf));
        for leaf in slot.iter().filter(wanted) {
            let Some(writer) = &self.writers[*leaf] else {
                round.report.degraded = true;
                if only.is_none() {
                    self.missed(*leaf);
                }
                continue;
            };
            if let Some(queue) = writer.device.write_queue() {
                let batch = round.batch.get_or_insert_default();
                run.on_slot(place, vectors, &mut |offset, vectors| {
                    queue.start_write(batch, run.class, DATA_AT + offset, vectors);
                    round.started.push((place, *leaf));
                });
                taken = true;
                continue;
            }
            let mut error = None;
            run.on_slot(place, vectors, &mut |offset, vectors| {
                if error.is_none() {
                    error = writer.device.write_for(run.class, DATA_AT + offset, vectors).err();
                }
            });
            match error {
                None => taken = true,
                Some(error) => self.failed(*leaf, error, &mut round.report),
            }
        }
        round.untaken[place] = !taken;
    }

    /// Waits for what was started. A child is not taken when all its leaves failed.
    fn wait(&self, round: &mut Round) {
        let Some(batch) = round.batch.take() else { return };
        for ((place, leaf), outcome) in round.started.drain(..).zip(batch.wait()) {
            let Err(error) = outcome.result else { continue };
            self.failed(leaf, error, &mut round.report);
            let failed = |leaf: &usize| {
                let report = round.report.failed.iter().any(|(other, _)| other == leaf);
                report || self.writers[*leaf].is_none()
            };
            let tops = self.tree.tops().get(self.tree.leaves()[leaf].top as usize);
            let slot = tops.and_then(|top| top.slots.get(place));
            round.untaken[place] = slot.is_none_or(|slot| slot.iter().all(failed));
        }
    }

    /// Notes that a leaf missed a write, once for each report.
    fn failed(&self, leaf: usize, error: DeviceError, report: &mut WriteReport) {
        self.tree.leaves()[leaf].errors.add_write();
        if !report.failed.iter().any(|(other, _)| *other == leaf) {
            report.failed.push((leaf, LeafFailure::Device(error)));
        }
    }

    /// Notes that a leaf lacks the txg that is being written. One that is a log vdev by itself lacks nothing that
    /// anybody could give it.
    fn missed(&self, leaf: usize) {
        let top = self.tree.tops().get(self.tree.leaves()[leaf].top as usize);
        if top.is_some_and(|top| top.is_log() && top.config.kind.is_leaf()) {
            return;
        }
        self.tree.leaves()[leaf].lacks.note(self.noted.txg.load(Ordering::Acquire));
    }

    /// The first error of a report, or the first leaf that is missing.
    fn first_failure(&self, top: &Top, report: &WriteReport) -> LeafFailure {
        if let Some((_, failure)) = report.failed.first() {
            return failure.clone();
        }
        let missing = top.slots.iter().flatten().find(|leaf| self.writers[**leaf].is_none());
        let leaf = missing.and_then(|leaf| self.tree.leaves().get(*leaf));
        LeafFailure::Missing {
            guid: leaf.map_or(0, |leaf| leaf.guid()),
            path: leaf.map(|leaf| leaf.name()).unwrap_or_default(),
        }
    }

    /// Flushes leaves, those with queues all at once; those that failed.
    pub(crate) fn flush_leaves(
        &self,
        leaves: impl Iterator<Item = usize>,
    ) -> Vec<(usize, DeviceError)> {
        let batch = Batch::new();
        let (mut started, mut failed) = (Vec::new(), Vec::new());
        for leaf in leaves {
            let Some(writer) = self.writers.get(leaf).and_then(Option::as_ref) else { continue };
            let failures = &self.tree.leaves()[leaf].flush_failures;
            if let Some(queue) = writer.device.write_queue() {
                queue.start_flush(&batch, failures);
                started.push(leaf);
                continue;
            }
            let _flushing = writer.flushing.lock();
            if let Err(error) = writer.device.flush() {
                failures.fetch_add(1, Ordering::AcqRel);
                failed.push((leaf, error));
            }
        }
        for (leaf, outcome) in started.into_iter().zip(batch.wait()) {
            if let Err(error) = outcome.result {
                failed.push((leaf, error));
            }
        }
        failed
    }

    fn flush_blocks(
        &self,
        blocks: &[(u32, u64, usize)],
        before: &FlushFailures,
    ) -> Result<WriteReport> {
        let (mut tops, mut leaves) = (BTreeMap::new(), BTreeSet::new());
        for (top, offset, size) in blocks {
            let (vdev, layout) = self.tree.locate(*top, *offset, *size)?;
            let holds = |place: usize| match layout {
                Layout::Plain { .. } => true,
                Layout::Raidz(geometry) => {
                    geometry.columns(*offset, *size as u64).on_disk(place).is_some()
                }
            };
            let slots = vdev.slots.iter().enumerate().filter(|(place, _)| holds(*place));
            leaves.extend(slots.flat_map(|(_, slot)| slot.iter().copied()));
            tops.insert(*top, vdev);
        }
        let report = self.flush_these(leaves.into_iter());
        self.hold_since(before, tops.values().copied(), &report)?;
        Ok(report)
    }

    /// Flushes leaves; those that failed lack the txg.
    fn flush_these(&self, leaves: impl Iterator<Item = usize>) -> WriteReport {
        let mut report = WriteReport::default();
        for (leaf, error) in self.flush_leaves(leaves) {
            self.failed(leaf, error, &mut report);
            self.missed(leaf);
        }
        report.degraded = self.writers.iter().any(Option::is_none);
        report
    }

    /// Do these vdevs hold what was written to them since `before`, as far as flushes tell? A leaf that may not lacks
    /// the txg, whoever was told.
    fn hold_since<'a>(
        &self,
        before: &FlushFailures,
        tops: impl Iterator<Item = &'a Top> + Clone,
        report: &WriteReport,
    ) -> Result<()> {
        let now = FlushFailures::of(&self.tree, self.noted.txg.load(Ordering::Acquire));
        if now.none_since(before) && report.failed.is_empty() {
            return Ok(());
        }
        let unflushed = |leaf: &usize| {
            report.failed.iter().any(|(failed, _)| failed == leaf)
                || now.has_since(&self.tree.leaves()[*leaf], before)
        };
        let leaves = tops.clone().flat_map(|top| top.slots.iter().flatten());
        leaves.filter(|leaf| unflushed(leaf)).for_each(|leaf| self.missed(*leaf));
        let txgs = now.txgs_since(before);
        let behind = |leaf: &usize| {
            let lacks = &self.tree.leaves()[*leaf].lacks;
            self.writers[*leaf].is_none() || unflushed(leaf) || lacks.overlaps(txgs.clone())
        };
        let lost = tops.into_iter().find_map(|top| {
            let parity = top.layout?.parity();
            let failed = top.slots.iter().filter(|slot| slot.iter().all(behind)).count();
            let is_lost = failed > parity && top.slots.iter().flatten().any(unflushed);
            is_lost.then_some((top, failed, parity))
        });
        let Some((top, failed, parity)) = lost else { return Ok(()) };
        let first = Box::new(self.first_failure(top, report));
        Err(VdevError::FlushFailed { top: top.id(), failed, parity, first })
    }

    /// The flush of a leaf failed that has its part of the txg: what it was given besides may be gone. One that is being
    /// filled is not filled with it.
    pub(crate) fn may_have_lost(&self, leaf: usize) {
        if !self.tree.leaves()[leaf].lacks.is_empty() {
            self.missed(leaf);
        }
    }

    fn note_absent(&self) {
        for leaf in (0..self.writers.len()).filter(|leaf| self.writers[*leaf].is_none()) {
            self.missed(leaf);
        }
    }
}

/// One write to all leaves of a vdev.
struct Round {
    report: WriteReport,
    /// By child: no leaf took what it has to hold.
    untaken: [bool; DISKS_MAX],
    /// What was given to queues, in the order of the batch: child and leaf.
    started: Vec<(usize, usize)>,
    batch: Option<Batch>,
}

impl Default for Round {
    fn default() -> Self {
        let untaken = [false; DISKS_MAX];
        Round { report: WriteReport::default(), untaken, started: Vec::new(), batch: None }
    }
}

/// Blocks that are written together, with their parity.
struct Run<'a> {
    layout: Layout,
    blocks: &'a [(u64, &'a [u8])],
    /// Who waits for it.
    class: Class,
    /// The parity columns of the first block, then those of the next, ..
    parity: &'a [u8],
}

impl<'a> Run<'a> {
    /// Bytes of parity of all blocks.
    fn parity_size(&self) -> usize {
        let Layout::Raidz(geometry) = self.layout else { return 0 };
        let of = |(offset, data): &(u64, &[u8])| {
            let columns = geometry.columns(*offset, data.len() as u64);
            columns.parity() * columns.parity_size()
        };
        self.blocks.iter().map(of).sum()
    }

    fn generate(&self, parity: &mut [u8]) {
        let Layout::Raidz(geometry) = self.layout else { return };
        let mut rest = parity;
        for (offset, data) in self.blocks {
            let columns = geometry.columns(*offset, data.len() as u64);
            let (parity, after) = rest.split_at_mut(columns.parity() * columns.parity_size());
            generate(&columns, data, parity);
            rest = after;
        }
    }

    /// Calls `write` with each contiguous piece that the run has on child `place`.
    fn on_slot(
        &self,
        place: usize,
        vectors: &mut Vec<IoSlice<'a>>,
        write: &mut dyn FnMut(u64, &[IoSlice<'a>]),
    ) {
        // The piece begins at `start` of the child and ends at `end`; `follows` says that all of
        // the vdev between it and the block at hand belongs to the run.
        let (mut start, mut end, mut follows) = (0, 0, false);
        let (mut next, mut parity) = (0, self.parity);
        vectors.clear();
        for (offset, data) in self.blocks {
            follows &= *offset == next;
            next = *offset + self.layout.asize(data.len() as u64);
            let (at, size, bytes) = match self.layout {
                Layout::Plain { .. } => (*offset, next - *offset, *data),
                Layout::Raidz(geometry) => {
                    let columns = geometry.columns(*offset, data.len() as u64);
                    let each = columns.parity_size();
                    let (own, after) = parity.split_at(columns.parity() * each);
                    parity = after;
                    let Some(index) = columns.on_disk(place) else { continue };
                    let column = columns.column(index);
                    let bytes = match index.checked_sub(columns.parity()) {
                        None => &own[index * each..][..each],
                        Some(index) => &data[clip(columns.data_range(index), data.len())],
                    };
                    (column.offset, column.size as u64, bytes)
                }
            };
            if !(follows && at >= end) {
                if !vectors.is_empty() {
                    write(start, vectors);
                    vectors.clear();
                }
                (start, end) = (at, at);
            }
            // Between two columns of one run there are only skip sectors.
            push_zeros(vectors, at - end);
            if !bytes.is_empty() {
                vectors.push(IoSlice::new(bytes));
            }
            push_zeros(vectors, size - bytes.len() as u64);
            end = at + size;
            follows = true;
        }
        if !vectors.is_empty() {
            write(start, vectors);
            vectors.clear();
        }
    }
}

/// Adds `size` zero bytes.
fn push_zeros(vectors: &mut Vec<IoSlice<'_>>, size: u64) {
    let mut left = size as usize;
    while left > 0 {
        let now = left.min(ZEROS.len());
        vectors.push(IoSlice::new(&ZEROS[..now]));
        left -= now;
    }
}

/// The memory of a list, emptied, for slices of another lifetime.
fn recycle<'b>(mut list: Vec<IoSlice<'_>>) -> Vec<IoSlice<'b>> {
    list.clear();
    // An empty list has nothing to convert; collecting in place keeps its memory.
    list.into_iter().map(|_| IoSlice::new(&[])).collect()
}
