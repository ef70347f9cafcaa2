//! Leaves with queues in front of them: everything is asked of all disks at once, and a disk that
//! hangs holds nobody up for longer than its deadline.
#![allow(clippy::unwrap_used, reason = "a test fails by panic")]

mod common;

use common::*;
use device::queue::{LeafQueue, Options};
use device::sim::{Fault, Kind as Failure, On, SimDisk, SimSet};
use device::spinning::{Parameters, Spinning};
use device::{Device, WriteDevice};
use format::Uberblock;
use format::config::{VdevConfig, VdevKind};
use format::label::DATA_AT;
use rt::sync::Arc;
use rt::sync::atomic::{AtomicU64, Ordering};
use rt::{BufPool, Rng, time};
use std::io::IoSliceMut;
use std::time::Duration;
use vdev::{FaultKind, Found, ReadScratch, Tree, VdevError, WriteReport, WriteScratch, WriteTree};

fn queue<D: Device + 'static>(device: D, deadline_ms: u64) -> LeafQueue<D> {
    let deadline = Duration::from_millis(deadline_ms);
    let options = Options { deadline, ..Options::threads(1) };
    LeafQueue::new(device, options, BufPool::new(1 << 20))
}

fn queued_write(spec: &VdevConfig, set: &SimSet, deadline_ms: u64) -> WriteTree {
    let device = |i: usize| -> Arc<dyn WriteDevice> { Arc::new(queue(set.disk(i), deadline_ms)) };
    let devices = (0..set.len()).map(|i| (i as u64 + 1, device(i))).collect();
    WriteTree::open(&root(spec), devices).unwrap()
}

fn queued_read(spec: &VdevConfig, set: &SimSet, hidden: &[usize], deadline_ms: u64) -> Tree {
    let device = |i: usize| -> Found {
        let device = Arc::new(queue(set.disk(i).reader(), deadline_ms));
        Found { device, labelled: true }
    };
    let there = (0..set.len()).filter(|i| !hidden.contains(i));
    Tree::open(&root(spec), there.map(|i| (i as u64 + 1, device(i))).collect()).unwrap()
}

/// Six records in a row, of sizes that give columns of every kind.
fn records(spec: &VdevConfig) -> Vec<(u64, Vec<u8>)> {
    let mut at = 0;
    let mut record = |size: usize| {
        let offset = at;
        at += layout(spec).asize(size as u64);
        (offset, noise(&mut Rng::new(at), size))
    };
    [512, 700, 5 << 9, 8 << 9, 13 << 9, 64 << 9].map(&mut record).into()
}

fn borrowed(blocks: &[(u64, Vec<u8>)]) -> Vec<(u64, &[u8])> {
    blocks.iter().map(|(offset, data)| (*offset, data.as_slice())).collect()
}

fn shapes() -> Vec<VdevConfig> {
    vec![
        top(VdevKind::Raidz, 3, 1, 9),
        top(VdevKind::Raidz, 6, 2, 9),
        top(VdevKind::Raidz, 7, 3, 9),
        top(VdevKind::Mirror, 2, 0, 9),
    ]
}

/// The same bytes on the same disks as without queues.
#[test]
fn what_goes_through_queues_is_the_same() {
    for spec in shapes() {
        let n = spec.children.len();
        let (plain, queued) = (disks(n), disks(n));
        let blocks = records(&spec);
        let mut scratch = WriteScratch::default();
        open_write(&spec, &plain).write_run(0, &borrowed(&blocks), &mut scratch).unwrap();
        let tree = queued_write(&spec, &queued, 60_000);
        let report = tree.write_run(0, &borrowed(&blocks), &mut scratch).unwrap();
        assert_eq!(report, WriteReport::default());
        assert_eq!(tree.flush().unwrap(), WriteReport::default());
        for i in 0..n {
            assert!(space(&plain.disk(i), 1 << 17) == space(&queued.disk(i), 1 << 17));
        }
    }
}

#[test]
fn reads_runs_and_examinations_agree_whoever_is_away_or_lies() {
    for spec in shapes() {
        let n = spec.children.len();
        let bearable = if spec.kind == VdevKind::Mirror { n - 1 } else { layout(&spec).parity() };
        let set = disks(n);
        let blocks = records(&spec);
        open_write(&spec, &set)
            .write_run(0, &borrowed(&blocks), &mut WriteScratch::default())
            .unwrap();
        for hidden in 0..=bearable {
            for liars in 0..=bearable - hidden {
                let away: Vec<usize> = (0..hidden).collect();
                let lying: Vec<usize> = (hidden..hidden + liars).collect();
                lying.iter().for_each(|i| spoil(&set.disk(*i), 1 << 17));
                let tree = queued_read(&spec, &set, &away, 60_000);
                let mut scratch = ReadScratch::default();
                let mut buffers: Vec<Vec<u8>> =
                    blocks.iter().map(|(_, data)| vec![0; data.len()]).collect();
                for ((offset, data), buf) in blocks.iter().zip(&mut buffers) {
                    let check = &mut |bytes: &[u8]| bytes == data;
                    let report = tree.read_with(0, *offset, 0, buf, &mut scratch, check).unwrap();
                    assert!(report.faults.iter().all(|fault| lying.contains(&fault.leaf)));
                    assert_eq!(buf, data);
                    buf.fill(0);
                    let examined = tree.examine(0, *offset, 0, buf, &mut scratch, check).unwrap();
                    assert_eq!(examined.lost, None);
                    assert!(examined.faults.iter().all(|fault| lying.contains(&fault.leaf)));
                    assert_eq!(examined.is_whole(), examined.missing + examined.faults.len() == 0);
                    assert_eq!(buf, data);
                    buf.fill(0);
                }
                let check = &mut |i: usize, bytes: &[u8]| bytes == blocks[i].1;
                let run = read_run(&tree, &blocks, &mut buffers, check);
                assert_eq!(run.lost, []);
                assert!(blocks.iter().zip(&buffers).all(|((_, data), buf)| data == buf));
                lying.iter().for_each(|i| spoil(&set.disk(*i), 1 << 17));
            }
        }
    }
}

#[test]
fn errors_behind_queues_are_counted_as_without() {
    let spec = top(VdevKind::Raidz, 6, 2, 9);
    let failure = |on| Fault::new(Failure::Error(rustix::io::Errno::IO), on);
    let blocks = records(&spec);
    for bad in 0..=3 {
        let set = disks(6);
        let tree = queued_write(&spec, &set, 60_000);
        tree.begin(7);
        (0..bad).for_each(|i| _ = set.disk(i).inject(failure(On::Writes)));
        let result = tree.write_run(0, &borrowed(&blocks), &mut WriteScratch::default());
        if bad == 3 {
            assert!(matches!(result, Err(VdevError::WriteFailed { failed: 3, .. })), "{result:?}");
            continue;
        }
        let mut failed: Vec<usize> = result.unwrap().failed.iter().map(|(leaf, _)| *leaf).collect();
        failed.sort_unstable();
        assert_eq!(failed, (0..bad).collect::<Vec<_>>());
        set.disk(5).inject(failure(On::Flushes));
        let flushed = tree.flush();
        assert_eq!(flushed.is_ok(), bad < 2, "{flushed:?}");
        set.disk(5).heal();
        (0..bad).for_each(|i| _ = set.disk(i).inject(failure(On::Reads)));
        let tree = queued_read(&spec, &set, &[], 60_000);
        for (offset, data) in &blocks {
            let mut buf = vec![0; data.len()];
            let report = tree.read(0, *offset, 0, &mut buf, &mut |bytes| bytes == data).unwrap();
            assert_eq!(&buf, data);
            assert!(report.faults.iter().all(|f| f.leaf < bad));
            assert!(report.faults.iter().all(|f| matches!(f.kind, FaultKind::Read(_))));
        }
    }
}

#[test]
fn a_disk_that_hangs_is_given_up_at_its_deadline() {
    let spec = top(VdevKind::Raidz, 5, 2, 9);
    let set = disks(5);
    let data = noise(&mut Rng::new(8), 9 << 9);
    let tree = queued_write(&spec, &set, 200);
    let mut scratch = WriteScratch::default();
    tree.write(0, 0, &data, &mut scratch).unwrap();
    let hang = set.disk(3).inject(Fault::new(Failure::Hang, On::All));
    let start = time::now();
    let mut buf = vec![0; data.len()];
    let report = tree.tree().read(0, 0, 0, &mut buf, &mut |bytes| bytes == data).unwrap();
    assert_eq!(buf, data);
    assert_eq!(report.faults.iter().map(|f| f.leaf).collect::<Vec<_>>(), [3]);
    assert!(report.degraded);
    let report = tree.write(0, 1 << 20, &data, &mut scratch).unwrap();
    assert_eq!(report.failed.iter().map(|(leaf, _)| *leaf).collect::<Vec<_>>(), [3]);
    assert_eq!(tree.flush().unwrap().failed.len(), 1);
    assert!(start.elapsed() < Duration::from_secs(20), "{:?}", start.elapsed());
    set.disk(3).lift(hang);
}

/// No answer is no success: an uberblock whose flush every leaf leaves unanswered is not told to be stable.
#[test]
fn an_uberblock_whose_flushes_hang_is_on_no_leaf() {
    let root = root(&top(VdevKind::Mirror, 2, 0, 9));
    let set = disks(2);
    let device = |i: usize| -> Arc<dyn WriteDevice> { Arc::new(queue(set.disk(i), 200)) };
    let tree = WriteTree::open(&root, (0..2).map(|i| (i as u64 + 1, device(i))).collect()).unwrap();
    let of = |txg| Uberblock::new(txg, root.guid_sum(), 1000 + txg, format::BlkPtr::ZERO);
    tree.begin(4);
    tree.commit(&of(4), None).unwrap();
    tree.begin(5);
    let hang = |i: usize| set.disk(i).inject(Fault::new(Failure::Hang, On::Flushes));
    let hangs = [hang(0), hang(1)];
    assert!(tree.commit(&of(5), None).is_err());
    hangs.into_iter().enumerate().for_each(|(i, hang)| set.disk(i).lift(hang));
}

/// A modelled spinning disk needs some milliseconds for each read. Eight of them need as long as
/// the slowest, not as long as all together.
#[test]
fn a_block_takes_the_time_of_its_slowest_disk() {
    let spec = top(VdevKind::Raidz, 10, 2, 12);
    let set = disks(10);
    let data = noise(&mut Rng::new(8), 128 << 10);
    let mut scratch = WriteScratch::default();
    let each = layout(&spec).asize(128 << 10);
    for i in 0..8 {
        open_write(&spec, &set).write(0, i * each * 29, &data, &mut scratch).unwrap();
    }
    let elapsed = |queued: bool| {
        let device = |i: usize| -> Arc<dyn Device> {
            let disk = Spinning::real(
                set.disk(i).reader(),
                Parameters::disk_2tb_7200().spread_over(DATA_AT + LEAF),
            );
            if queued { Arc::new(queue(disk, 60_000)) } else { Arc::new(disk) }
        };
        let found = |i: usize| (i as u64 + 1, Found { device: device(i), labelled: true });
        let tree = Tree::open(&root(&spec), (0..10).map(found).collect()).unwrap();
        let mut buf = vec![0; data.len()];
        let start = time::now();
        // Back and forth, so that the heads have to move.
        for i in [0, 7, 1, 6, 2, 5, 3, 4] {
            tree.read(0, i * each * 29, 0, &mut buf, &mut |bytes| bytes == data).unwrap();
        }
        start.elapsed()
    };
    let (one_by_one, together) = (elapsed(false), elapsed(true));
    assert!(together * 2 < one_by_one, "{together:?} together, {one_by_one:?} one by one");
}

/// A disk that counts the reads which the system may answer by itself.
struct Asked {
    disk: SimDisk,
    plain: Arc<AtomicU64>,
}

impl Device for Asked {
    testkit::of_the_disk_inside!(disk);

    fn read_at(&self, offset: u64, buf: &mut [u8]) -> device::Result<()> {
        self.plain.fetch_add(1, Ordering::Relaxed);
        self.disk.read_at(offset, buf)
    }
    fn read_uncached(&self, at: u64, bufs: &mut [IoSliceMut<'_>]) -> device::Result<()> {
        self.disk.read_vectored_at(at, bufs)
    }
}

#[test]
fn an_examination_asks_the_disks_themselves() {
    for spec in shapes() {
        let (n, plain) = (spec.children.len(), Arc::<AtomicU64>::default());
        let (set, blocks) = (disks(n), records(&spec));
        open_write(&spec, &set)
            .write_run(0, &borrowed(&blocks), &mut WriteScratch::default())
            .unwrap();
        for threads in 0..2 {
            let found = |i: usize| {
                let device = Asked { disk: set.disk(i), plain: plain.clone() };
                let queue = LeafQueue::new(device, Options::threads(threads), BufPool::new(0));
                (i as u64 + 1, Found { device: Arc::new(queue), labelled: true })
            };
            let tree = Tree::open(&root(&spec), (0..n).map(found).collect()).unwrap();
            // Of the others the last sector is padded, and they are read as a reader reads, too.
            let (offset, data) = blocks.last().unwrap();
            let (mut buf, mut scratch) = (vec![0; data.len()], ReadScratch::default());
            let check = &mut |bytes: &[u8]| bytes == data;
            let examined = tree.examine(0, *offset, 0, &mut buf, &mut scratch, check).unwrap();
            assert!(examined.is_whole());
            assert_eq!(plain.load(Ordering::Relaxed), 0, "with {threads} threads");
        }
    }
}
