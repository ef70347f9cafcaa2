//! Leaves that sit out are read only where nobody else has the bytes; runs of blocks take few reads of a disk, whoever
//! is away.
#![allow(clippy::unwrap_used, reason = "a test fails by panic")]

mod common;

use common::*;
use device::queue::{LeafQueue, Options};
use device::sim::SimSet;
use format::config::{VdevConfig, VdevKind};
use format::dtl::Dtl;
use rt::sync::Arc;
use rt::{BufPool, Rng};
use vdev::{Found, Laid, ReadScratch, Sweep, SweepScratch, Swept, Tree, WriteScratch};

fn open(spec: &VdevConfig, set: &SimSet, hidden: &[usize]) -> Tree {
    let found = |i: usize| {
        let queue =
            LeafQueue::new(set.disk(i).reader(), Options::threads(1), BufPool::new(1 << 20));
        (i as u64 + 1, Found { device: Arc::new(queue), labelled: true })
    };
    let there = (0..set.len()).filter(|i| !hidden.contains(i));
    Tree::open(&root(spec), there.map(found).collect()).unwrap()
}

/// Twenty records in a row, on new disks.
fn written(spec: &VdevConfig) -> (SimSet, Vec<(u64, Vec<u8>)>) {
    let (set, mut at) = (disks(spec.children.len()), 0);
    let record = |number: u64| {
        let offset = at;
        // Of a size that has parity on another disk each time.
        let data = noise(&mut Rng::new(number), (17 + number as usize) << 9);
        at += layout(spec).asize(data.len() as u64);
        (offset, data)
    };
    let blocks: Vec<_> = (0..20).map(record).collect();
    let run: Vec<(u64, &[u8])> = blocks.iter().map(|(at, data)| (*at, &data[..])).collect();
    open_write(spec, &set).write_run(0, &run, &mut WriteScratch::default()).unwrap();
    (set, blocks)
}

/// Reads of a leaf so far.
fn reads(tree: &Tree, leaf: usize) -> u64 {
    tree.leaves()[leaf].meters().reads().0
}

/// Reads all blocks one by one and together; they are right.
fn read_all(tree: &Tree, blocks: &[(u64, Vec<u8>)]) {
    for (offset, data) in blocks {
        let mut buf = vec![0; data.len()];
        let check = &mut |bytes: &[u8]| bytes == data;
        tree.read_with(0, *offset, 0, &mut buf, &mut ReadScratch::default(), check).unwrap();
    }
    run_all(tree, blocks);
}

fn run_all(tree: &Tree, blocks: &[(u64, Vec<u8>)]) {
    let mut buffers: Vec<Vec<u8>> = blocks.iter().map(|(_, data)| vec![0; data.len()]).collect();
    let check = &mut |index: usize, bytes: &[u8]| bytes == blocks[index].1;
    assert!(read_run(tree, blocks, &mut buffers, check).lost.is_empty());
    assert!(buffers.iter().zip(blocks).all(|(buf, (_, data))| buf == data));
}

#[test]
fn who_sits_out_is_not_read_from() {
    for (kind, leaves, parity) in [
        (VdevKind::Raidz, 5, 1),
        (VdevKind::Raidz, 6, 2),
        (VdevKind::Raidz, 8, 3),
        (VdevKind::Mirror, 3, 0),
    ] {
        let mirror = kind == VdevKind::Mirror;
        let spec = top(kind, leaves, parity, 9);
        let (set, blocks) = written(&spec);
        let spared = if parity == 0 { leaves - 1 } else { parity };
        for first in 0..leaves {
            let tree = open(&spec, &set, &[]);
            let out: Vec<usize> = (0..spared).map(|i| (first + i) % leaves).collect();
            assert!(out.iter().all(|leaf| tree.sit_out(*leaf)));
            assert!(!tree.sit_out((first + spared) % leaves), "nobody would be left");
            read_all(&tree, &blocks);
            assert!(out.iter().all(|leaf| reads(&tree, *leaf) == 0), "{spec:?}");
            // Somebody lies: then they are asked.
            let liar = (first + spared) % leaves;
            spoil(&set.disk(liar), 1 << 17);
            read_all(&tree, &blocks);
            spoil(&set.disk(liar), 1 << 17);
            assert!(out.iter().any(|leaf| reads(&tree, *leaf) > 0));
            out.iter().for_each(|leaf| tree.let_in(*leaf));
            let before: Vec<u64> = out.iter().map(|leaf| reads(&tree, *leaf)).collect();
            read_all(&tree, &blocks);
            let after = || out.iter().map(|leaf| reads(&tree, *leaf));
            assert!(mirror || after().zip(&before).all(|(now, then)| now > *then));
        }
        // Who would be missed may not sit out.
        let away: Vec<usize> = (0..spared).collect();
        assert!(!open(&spec, &set, &away).sit_out(leaves - 1));
    }
}

/// Who fills a leaf does not wait for one that sits out, as long as others make up for it; who examines all, examines
/// that one, too.
#[test]
fn who_sits_out_gives_nothing_to_a_leaf_that_is_filled() {
    const BIRTH: u64 = 7;
    for (kind, leaves, parity) in [
        (VdevKind::Raidz, 5, 1),
        (VdevKind::Raidz, 6, 2),
        (VdevKind::Raidz, 8, 3),
        (VdevKind::Mirror, 3, 0),
    ] {
        let spec = top(kind, leaves, parity, 9);
        let (set, blocks) = written(&spec);
        let laid = |(offset, data): &(u64, Vec<u8>)| Laid {
            offset: *offset,
            size: data.len(),
            birth: BIRTH,
        };
        let laid: Vec<Laid> = blocks.iter().map(laid).collect();
        for slow in 0..leaves {
            let (tree, filled) = (open(&spec, &set, &[]), (slow + 1) % leaves);
            assert!(tree.sit_out(slow));
            let mut txgs = Dtl::default();
            txgs.add(BIRTH, BIRTH + 1);
            tree.leaves()[filled].lacks.load(txgs);
            let sweep = |sweep: Sweep| {
                let check = &mut |index: usize, bytes: &[u8]| blocks[index].1 == bytes;
                let found = tree.sweep((0, sweep), &laid, &mut SweepScratch::default(), check);
                let is_right = |found: &Swept| match found {
                    Swept::Good => true,
                    Swept::Behind(leaves) => leaves == &[filled],
                    Swept::Doubtful => false,
                };
                assert!(found.iter().all(is_right), "{found:?}");
                assert!(found.iter().any(|found| *found != Swept::Good));
                reads(&tree, slow)
            };
            // Of raidz1 nobody else has it.
            assert_eq!(sweep(Sweep::Lacking) > 0, parity == 1, "{spec:?}");
            let before = reads(&tree, slow);
            assert!(sweep(Sweep::All) > before);
        }
    }
}

#[test]
fn a_run_takes_few_reads_of_a_disk_whoever_is_away() {
    for away in 0..=2 {
        let spec = top(VdevKind::Raidz, 8, 2, 9);
        let (set, blocks) = written(&spec);
        let hidden: Vec<usize> = (0..away).map(|i| i * 3).collect();
        let tree = open(&spec, &set, &hidden);
        run_all(&tree, &blocks);
        for leaf in (0..8).filter(|leaf| !hidden.contains(leaf)) {
            assert_eq!(reads(&tree, leaf), 1, "{away} away, leaf {leaf}");
        }
    }
}
