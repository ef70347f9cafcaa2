//! Runs of blocks: the same bytes as block by block, in one write to each disk.
#![allow(clippy::unwrap_used, reason = "a test fails by panic")]

mod common;

use common::*;
use device::sim::{Fault, Kind as Failure, On, SimDisk, SimSet};
use device::{Device, DeviceError, Operation, WriteDevice};
use format::config::{VdevConfig, VdevKind};
use format::label::DATA_AT;
use rt::Rng;
use rt::sync::Arc;
use rt::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;
use vdev::{FaultKind, LeafFailure, VdevError, WriteReport, WriteScratch, WriteTree};

/// Random blocks, of which most follow each other directly.
fn random_blocks(
    rng: &mut Rng,
    spec: &VdevConfig,
    max_sectors: u64,
    gaps: bool,
) -> Vec<(u64, Vec<u8>)> {
    let layout = layout(spec);
    let mut at = rng.below(40) << spec.top.unwrap().ashift;
    let mut blocks = Vec::new();
    for _ in 0..1 + rng.below(12) {
        let size = match rng.below(4) {
            0 => 1 + rng.below(700),
            _ => (1 + rng.below(max_sectors)) << spec.top.unwrap().ashift,
        };
        blocks.push((at, noise(rng, size as usize)));
        at += layout.asize(size);
        if gaps && rng.chance(1, 3) {
            at += (1 + rng.below(9)) << spec.top.unwrap().ashift;
        }
    }
    blocks
}

/// Bytes of each disk that are compared, from the last before the allocatable space.
const SEEN: usize = 1 << 20;

/// Fills the disks with what must not be touched.
fn fill(set: &SimSet) {
    for disk in set.disks() {
        disk.overwrite(DATA_AT - 4096, &[0xee; SEEN]);
    }
}

fn borrowed(blocks: &[(u64, Vec<u8>)]) -> Vec<(u64, &[u8])> {
    blocks.iter().map(|(offset, data)| (*offset, data.as_slice())).collect()
}

#[test]
fn a_run_writes_what_single_writes_do_and_fills_skips() {
    let mut rng = Rng::new(11);
    for (kind, n, p) in [
        (VdevKind::Raidz, 2, 1),
        (VdevKind::Raidz, 3, 1),
        (VdevKind::Raidz, 5, 1),
        (VdevKind::Raidz, 4, 2),
        (VdevKind::Raidz, 7, 2),
        (VdevKind::Raidz, 5, 3),
        (VdevKind::Mirror, 2, 0),
        (VdevKind::Mirror, 1, 0),
    ] {
        for round in 0..24 {
            let ashift = if round % 2 == 0 { 9 } else { 12 };
            let spec = top(kind.clone(), n, p, ashift);
            let blocks = random_blocks(&mut rng, &spec, 3 * n as u64, round % 3 == 0);
            let (one, run) = (disks(n), disks(n));
            fill(&one);
            fill(&run);
            let mut scratch = WriteScratch::default();
            let tree = open_write(&spec, &one);
            for (offset, data) in &blocks {
                tree.write(0, *offset, data, &mut scratch).unwrap();
            }
            open_write(&spec, &run).write_run(0, &borrowed(&blocks), &mut scratch).unwrap();

            // Where the two differ the run has zeros, within the blocks' space: skip sectors.
            let layout = layout(&spec);
            let slots = if kind == VdevKind::Raidz { n as u64 } else { 1 };
            for i in 0..n {
                let images = [&one, &run].map(|set| {
                    let mut bytes = vec![0; SEEN];
                    set.disk(i).read_at(DATA_AT - 4096, &mut bytes).unwrap();
                    bytes
                });
                for at in (0..SEEN).filter(|at| images[0][*at] != images[1][*at]) {
                    assert_eq!((images[0][at], images[1][at]), (0xee, 0));
                    let sector = (at as u64 - 4096) >> ashift;
                    let place = (sector * slots + if slots > 1 { i as u64 } else { 0 }) << ashift;
                    let owner = blocks.iter().find(|(offset, data)| {
                        (*offset..*offset + layout.asize(data.len() as u64)).contains(&place)
                    });
                    assert!(owner.is_some(), "a byte outside the run was written");
                }
            }
        }
    }
}

#[test]
fn a_run_without_gaps_is_one_write_to_each_disk() {
    let mut rng = Rng::new(12);
    for (n, p) in [(3, 1), (5, 2), (11, 2), (7, 3)] {
        let spec = top(VdevKind::Raidz, n, p, 9);
        for _ in 0..20 {
            let set = disks(n);
            let blocks = random_blocks(&mut rng, &spec, 3 * n as u64, false);
            open_write(&spec, &set)
                .write_run(0, &borrowed(&blocks), &mut WriteScratch::default())
                .unwrap();
            for disk in set.disks() {
                assert!(disk.counts().writes <= 1, "{} writes", disk.counts().writes);
            }
        }
    }
}

#[test]
fn leaves_that_fail_within_redundancy_are_reported() {
    let failure = || Fault::new(Failure::Error(rustix::io::Errno::IO), On::Writes);
    for (kind, n, p, bearable) in
        [(VdevKind::Raidz, 5, 2, 2), (VdevKind::Raidz, 4, 1, 1), (VdevKind::Mirror, 3, 0, 2)]
    {
        let spec = top(kind, n, p, 9);
        let data = noise(&mut Rng::new(2), 3 * 512 * n);
        for bad in 0..=n {
            let set = disks(n);
            let tree = open_write(&spec, &set);
            for i in 0..bad {
                set.disk(i).inject(failure());
            }
            let result = tree.write(0, 0, &data, &mut WriteScratch::default());
            if bad > bearable {
                let Err(VdevError::WriteFailed { parity, .. }) = result else {
                    panic!("{bad} of {n} failed: {result:?}")
                };
                assert_eq!(parity, p);
                continue;
            }
            let report = result.unwrap();
            let failed: Vec<usize> = report.failed.iter().map(|(leaf, _)| *leaf).collect();
            assert_eq!(failed, (0..bad).collect::<Vec<_>>());
            assert!(report.failed.iter().all(|(_, f)| matches!(f, LeafFailure::Device(_))));
            for (leaf, i) in tree.tree().leaves().iter().zip(0..) {
                assert_eq!(leaf.errors.get().write, u64::from(i < bad));
            }
            let mut buf = vec![0; data.len()];
            tree.tree().read(0, 0, 0, &mut buf, &mut |bytes| bytes == data).unwrap();
            assert_eq!(buf, data);
        }
    }
}

#[test]
fn a_missing_leaf_is_passed_over() {
    let spec = top(VdevKind::Raidz, 4, 2, 9);
    let set = disks(4);
    let mut short = spec.clone();
    // Guids without a disk.
    (short.children[0].guid, short.children[2].guid) = (77, 78);
    let data = noise(&mut Rng::new(2), 4096);
    let tree = open_write(&short, &set);
    let report = tree.write(0, 0, &data, &mut WriteScratch::default()).unwrap();
    assert_eq!(report, WriteReport { failed: vec![], degraded: true });
    let reader = open_read(&spec, &set, 0b0101);
    let mut buf = vec![0; data.len()];
    reader.read(0, 0, 0, &mut buf, &mut |bytes| bytes == data).unwrap();
    short.children[1].guid = 79;
    let result = open_write(&short, &set).write(0, 0, &data, &mut WriteScratch::default());
    let Err(VdevError::WriteFailed { first, failed: 3, .. }) = result else { panic!("{result:?}") };
    assert!(matches!(*first, LeafFailure::Missing { guid: 77, .. }), "{first}");
}

#[test]
fn healing_touches_only_the_leaves_that_lied() {
    let spec = top(VdevKind::Raidz, 5, 2, 9);
    let set = disks(5);
    let tree = open_write(&spec, &set);
    let data = noise(&mut Rng::new(4), 6 << 9);
    let mut scratch = WriteScratch::default();
    tree.write(0, 0, &data, &mut scratch).unwrap();
    spoil(&set.disk(3), 4096);
    let mut buf = vec![0; data.len()];
    let check = &mut |bytes: &[u8]| bytes == data;
    let report = tree.tree().read(0, 0, 0, &mut buf, check).unwrap();
    let liars: Vec<usize> = report.faults.iter().map(|f| f.leaf).collect();
    assert_eq!(liars, [3]);
    let before: Vec<u64> = set.disks().iter().map(|d| d.counts().writes).collect();
    assert_eq!(
        tree.heal(&tree.tree(), 0, 0, &buf, &liars, &mut scratch).unwrap(),
        Some(WriteReport::default())
    );
    let after: Vec<u64> = set.disks().iter().map(|d| d.counts().writes).collect();
    let healed: Vec<usize> = (0..5).filter(|i| before[*i] != after[*i]).collect();
    assert_eq!(healed, [3]);
    assert_eq!(tree.tree().read(0, 0, 0, &mut buf, check).unwrap().faults, []);
}

/// One disk missed a write, another its flush: together they are more than one parity bears.
#[test]
fn a_failed_flush_counts_with_the_writes_that_failed() {
    let spec = top(VdevKind::Raidz, 4, 1, 9);
    let failure = |on| Fault::new(Failure::Error(rustix::io::Errno::IO), on);
    let data = noise(&mut Rng::new(4), 6 << 9);
    let mut scratch = WriteScratch::default();
    for also_write_fails in [false, true] {
        let set = disks(4);
        let tree = open_write(&spec, &set);
        tree.begin(7);
        if also_write_fails {
            set.disk(0).inject(failure(On::Writes).times(1));
        }
        tree.write(0, 0, &data, &mut scratch).unwrap();
        set.disk(1).inject(failure(On::Flushes).times(1));
        let result = tree.flush();
        if also_write_fails {
            let failed = matches!(result, Err(VdevError::FlushFailed { failed: 2, parity: 1, .. }));
            assert!(failed, "{result:?}");
        } else {
            assert_eq!(result.unwrap().failed.len(), 1);
        }
        let lacks = |leaf: usize| tree.tree().leaves()[leaf].lacks.contains(7);
        assert_eq!([lacks(0), lacks(1), lacks(2)], [also_write_fails, true, false]);
        // The disk whose flush failed may still have lost what was written in the txg.
        set.disk(2).inject(failure(On::Flushes).times(1));
        assert!(tree.flush().is_err());
        assert!(tree.flush().is_err(), "it does not come back");
        // In the next it is as good as any.
        tree.begin(8);
        set.disk(2).inject(failure(On::Flushes).times(1));
        assert_eq!(tree.flush().unwrap().failed.len(), 1);
    }
}

/// A disk tells once that what it was given is gone: who flushes next hears of it all the same, of a txg or of a block
/// that somebody waits for, and what is being filled is not full.
#[test]
fn what_one_flush_was_told_all_others_know() {
    let spec = top(VdevKind::Mirror, 2, 0, 9);
    let set = disks(2);
    let tree = open_write(&spec, &set);
    let forget = |disk: usize| {
        set.disk(disk).inject(Fault::new(Failure::Forget, On::Flushes).times(1));
    };
    let data = noise(&mut Rng::new(4), 1 << 12);
    let mut scratch = WriteScratch::default();
    let (of_txg, of_log) = ((0, 0, data.len()), (0, 1 << 12, data.len()));
    let mut write = |(_, at, _)| _ = tree.write(0, at, &data, &mut scratch).unwrap();

    tree.begin(7);
    let before = tree.flush_failures();
    write(of_txg);
    write(of_log);
    (0..2).for_each(forget);
    assert!(tree.flush_blocks(&[of_log], &before).is_err());
    assert!(tree.flush().is_err(), "the txg goes on though it is gone");
    assert!((0..2).all(|leaf| tree.tree().leaves()[leaf].lacks.contains(7)));

    tree.begin(8);
    let before = tree.flush_failures();
    write(of_log);
    (0..2).for_each(forget);
    assert!(tree.flush().is_err());
    assert!(tree.flush_blocks(&[of_log], &before).is_err(), "somebody is told that it is stable");

    // One disk each, and told in another txg: together they are all that had it.
    tree.begin(9);
    let before = tree.flush_failures();
    write(of_log);
    forget(0);
    tree.flush().unwrap();
    tree.begin(10);
    forget(1);
    tree.flush().unwrap();
    assert!(tree.flush_blocks(&[of_log], &before).is_err(), "nobody has it any more");
    tree.flush_blocks(&[of_log], &tree.flush_failures()).unwrap();
}

/// A disk whose flush tells one error once, and whose first caller is long on his way back with it.
struct TellsOnce {
    disk: SimDisk,
    told: AtomicBool,
}

impl Device for TellsOnce {
    testkit::of_the_disk_inside!(disk);

    fn read_at(&self, offset: u64, buf: &mut [u8]) -> device::Result<()> {
        self.disk.read_at(offset, buf)
    }
}

impl WriteDevice for TellsOnce {
    fn write_at(&self, offset: u64, bytes: &[u8]) -> device::Result<()> {
        self.disk.write_at(offset, bytes)
    }
    fn flush(&self) -> device::Result<()> {
        if self.told.swap(true, Ordering::AcqRel) {
            return Ok(());
        }
        rt::time::sleep(Duration::from_millis(50));
        let (device, operation) = (self.name().to_owned(), Operation::Flush);
        let errno = rustix::io::Errno::IO;
        Err(DeviceError::Io { device, operation, offset: 0, size: 0, errno })
    }
}

#[test]
fn a_txg_knows_of_a_flush_that_was_told_at_the_same_time() {
    let disk = Arc::new(TellsOnce { disk: disks(1).disk(0), told: AtomicBool::new(false) });
    let device: Arc<dyn WriteDevice> = disk.clone();
    let spec = top(VdevKind::Mirror, 1, 0, 9);
    let tree = WriteTree::open(&root(&spec), [(1, device)].into()).unwrap();
    tree.begin(7);
    let before = tree.flush_failures();
    tree.write(0, 0, &[1; 4096], &mut WriteScratch::default()).unwrap();
    std::thread::scope(|scope| {
        let log = scope.spawn(|| tree.flush_blocks(&[(0, 0, 4096)], &before));
        while !disk.told.load(Ordering::Acquire) {
            rt::time::sleep(Duration::from_millis(1));
        }
        assert!(tree.flush().is_err(), "the disk has said that its blocks may be gone");
        assert!(log.join().unwrap().is_err());
    });
}

/// A block that one disk did not take while a txg was written, and the other lost in the next one, nobody has.
#[test]
fn a_write_that_was_missed_a_txg_ago_counts_with_a_flush_that_fails_now() {
    let spec = top(VdevKind::Mirror, 2, 0, 9);
    let set = disks(2);
    let tree = open_write(&spec, &set);
    let data = noise(&mut Rng::new(4), 1 << 12);
    let failure = |on| Fault::new(Failure::Error(rustix::io::Errno::IO), on).times(1);
    tree.begin(7);
    let before = tree.flush_failures();
    set.disk(0).inject(failure(On::Writes));
    tree.write(0, 0, &data, &mut WriteScratch::default()).unwrap();
    tree.begin(8);
    let later = tree.flush_failures();
    set.disk(1).inject(failure(On::Flushes));
    assert!(tree.flush_blocks(&[(0, 0, data.len())], &before).is_err(), "nobody has it");
    assert!(
        tree.flush_blocks(&[(0, 0, data.len())], &later).is_ok_and(|told| told.failed.is_empty())
    );
}

/// A leaf that takes its mirror's place is the same leaf: what failed before the txg began did not fail in it.
#[test]
fn a_leaf_that_takes_its_mirrors_place_has_not_failed_anew() {
    let spec = top(VdevKind::Mirror, 2, 0, 9);
    let set = disks(2);
    let tree = open_write(&spec, &set);
    let data = noise(&mut Rng::new(4), 1 << 12);
    let mut scratch = WriteScratch::default();
    set.disk(0).inject(Fault::new(Failure::Forget, On::Flushes).times(1));
    tree.begin(7);
    tree.write(0, 0, &data, &mut scratch).unwrap();
    tree.flush().unwrap();

    tree.begin(8);
    let heir = VdevConfig { id: Some(0), top: spec.top, orig_guid: 1, ..leaf(0, spec.guid) };
    tree.exchange(&root(&heir), std::collections::BTreeMap::new()).unwrap();
    tree.write(0, 0, &data, &mut scratch).unwrap();
    tree.flush().unwrap();
    set.disk(0).inject(Fault::new(Failure::Forget, On::Flushes).times(1));
    assert!(tree.flush().is_err(), "what fails now has failed");
}

/// Whatever is away or lies, a run gives what single reads give.
#[test]
fn a_run_reads_what_was_written() {
    let mut rng = Rng::new(21);
    let mut scratch = WriteScratch::default();
    for (kind, n, p) in [
        (VdevKind::Raidz, 4, 1),
        (VdevKind::Raidz, 6, 2),
        (VdevKind::Raidz, 6, 3),
        (VdevKind::Mirror, 3, 2),
    ] {
        for round in 0..60 {
            let spec = top(kind.clone(), n, p, 9);
            let set = disks(n);
            let blocks = random_blocks(&mut rng, &spec, 4 * n as u64, round % 3 == 0);
            open_write(&spec, &set).write_run(0, &borrowed(&blocks), &mut scratch).unwrap();
            let mut order: Vec<usize> = (0..n).collect();
            rng.shuffle(&mut order);
            let hidden = &order[..rng.index(p + 1)];
            let liars = &order[hidden.len()..][..rng.index(p + 1 - hidden.len())];
            liars.iter().for_each(|i| spoil(&set.disk(*i), 1 << 20));
            let bits = hidden.iter().fold(0, |bits, i| bits | 1 << i);
            let tree = open_read(&spec, &set, bits);

            let mut buffers: Vec<Vec<u8>> =
                blocks.iter().map(|(_, data)| vec![0; data.len()]).collect();
            let check = &mut |i: usize, bytes: &[u8]| bytes == blocks[i].1;
            let run = read_run(&tree, &blocks, &mut buffers, check);
            assert_eq!(run.lost, []);
            for fault in &run.report.faults {
                assert!(liars.contains(&fault.leaf) && fault.kind == FaultKind::Checksum);
            }
            for ((_, data), buf) in blocks.iter().zip(&buffers) {
                assert_eq!(data, buf);
            }
        }
    }
}

#[test]
fn a_run_asks_each_disk_once_between_parity_columns() {
    let spec = top(VdevKind::Raidz, 5, 1, 9);
    let set = disks(5);
    let each = layout(&spec).asize(8 << 9);
    let blocks: Vec<(u64, Vec<u8>)> =
        (0..20).map(|i| (i * each, noise(&mut Rng::new(i), 8 << 9))).collect();
    open_write(&spec, &set).write_run(0, &borrowed(&blocks), &mut WriteScratch::default()).unwrap();
    let tree = open_read(&spec, &set, 0);
    let mut buffers = vec![vec![0; 8 << 9]; blocks.len()];
    let check = &mut |i: usize, bytes: &[u8]| bytes == blocks[i].1;
    read_run(&tree, &blocks, &mut buffers, check);
    // Ten sectors a block, five disks: parity is always on disk 0.
    let reads: Vec<u64> = set.disks().iter().map(|disk| disk.counts().reads).collect();
    assert_eq!(reads, [0, 1, 1, 1, 1]);
}

#[test]
fn a_block_of_a_run_that_is_lost_does_not_take_the_others_along() {
    let spec = top(VdevKind::Raidz, 3, 1, 9);
    let set = disks(3);
    let blocks: Vec<(u64, Vec<u8>)> =
        (0..6).map(|i| (i << 12, noise(&mut Rng::new(i), 1024))).collect();
    open_write(&spec, &set).write_run(0, &borrowed(&blocks), &mut WriteScratch::default()).unwrap();
    let tree = open_read(&spec, &set, 0);
    let mut buffers = vec![vec![0; 1024]; blocks.len()];
    let check = &mut |i: usize, bytes: &[u8]| i != 4 && bytes == blocks[i].1;
    let run = read_run(&tree, &blocks, &mut buffers, check);
    assert_eq!(run.lost.iter().map(|(i, _)| *i).collect::<Vec<_>>(), [4]);
    assert!(matches!(run.lost[0].1, VdevError::Lost { .. }));
    for i in [0, 1, 2, 3, 5] {
        assert_eq!(buffers[i], blocks[i].1);
    }
}

/// A mirror becomes wider while it is in use: who had the old tree reads on from it, what is written from then on is on
/// the new leaf, too, and what is known of the old leaves stays known.
#[test]
fn a_tree_is_exchanged_while_it_is_in_use() {
    let small = top(VdevKind::Mirror, 2, 0, 9);
    let wide = top(VdevKind::Mirror, 3, 0, 9);
    let set = disks(3);
    let device =
        |i: usize| -> (u64, Arc<dyn WriteDevice>) { (i as u64 + 1, Arc::new(set.disk(i))) };
    let tree = WriteTree::open(&root(&small), (0..2).map(device).collect()).unwrap();
    let (before, after) = (vec![1; 4096], vec![2; 4096]);
    let mut scratch = WriteScratch::default();
    tree.begin(5);
    set.disk(1).inject(Fault::new(Failure::Error(rustix::io::Errno::IO), On::Writes).times(1));
    tree.write(0, 0, &before, &mut scratch).unwrap();
    let old = tree.tree();
    assert!(old.leaves()[1].lacks.contains(5));

    tree.exchange(&root(&wide), [device(2)].into()).unwrap();
    tree.begin(6);
    tree.write(0, 8192, &after, &mut scratch).unwrap();
    let now = tree.tree();
    assert_eq!((old.leaves().len(), now.leaves().len()), (2, 3));
    assert!(now.leaves()[1].lacks.contains(5) && now.leaves()[1].errors.get().write == 1);
    for tree in [&old, &now] {
        let mut buf = vec![0; 4096];
        tree.read(0, 0, 5, &mut buf, &mut |bytes| bytes == before).unwrap();
        tree.read(0, 8192, 6, &mut buf, &mut |bytes| bytes == after).unwrap();
    }
    let mut alone = vec![0; 4096];
    set.disk(2).read_at(DATA_AT + 8192, &mut alone).unwrap();
    assert!(alone == after, "the new leaf was not written");
    // And back: the leaf that is gone is not written any more.
    tree.exchange(&root(&small), Default::default()).unwrap();
    tree.write(0, 8192, &before, &mut scratch).unwrap();
    set.disk(2).read_at(DATA_AT + 8192, &mut alone).unwrap();
    assert!(alone == after, "a leaf that has left was written");
    assert_eq!(now.leaves().len(), 3);
}
