//! Sweeps: what is wrong anywhere in a block is seen, and what fills a leaf costs no more than it must.
#![allow(clippy::unwrap_used, reason = "a test fails by panic")]

mod common;

use common::*;
use device::WriteDevice;
use device::queue::{LeafQueue, Options};
use device::sim::SimSet;
use format::config::{VdevConfig, VdevKind};
use format::dtl::Dtl;
use format::label::DATA_AT;
use rt::Rng;
use rt::buf::BufPool;
use rt::sync::Arc;
use vdev::sizes::Layout;
use vdev::{Laid, Sweep, SweepScratch, Swept, WriteScratch, WriteTree};

const ASHIFT: u32 = 9;
/// The txg of every block.
const BIRTH: u64 = 7;

/// Whole sectors, neighbours mostly, now and then far from each other.
fn blocks(rng: &mut Rng, spec: &VdevConfig) -> Vec<(u64, Vec<u8>)> {
    let mut at = rng.below(40) << ASHIFT;
    let mut blocks = Vec::new();
    for _ in 0..12 {
        let size = (1 + rng.below(60)) << ASHIFT;
        blocks.push((at, noise(rng, size as usize)));
        at += layout(spec).asize(size);
        at += if rng.chance(1, 4) { rng.below(400) << ASHIFT } else { 0 };
    }
    blocks
}

fn shapes() -> Vec<VdevConfig> {
    let raidz = [(3, 1), (5, 2), (11, 2), (7, 3)];
    let mut shapes: Vec<VdevConfig> = raidz.map(|(n, p)| top(VdevKind::Raidz, n, p, ASHIFT)).into();
    shapes.push(top(VdevKind::Mirror, 3, 0, ASHIFT));
    shapes
}

/// The pool, with queues in front of its leaves or without.
fn open(spec: &VdevConfig, set: &SimSet, queued: bool) -> WriteTree {
    if !queued {
        return open_write(spec, set);
    }
    let queue = |i: usize| -> Arc<dyn WriteDevice> {
        Arc::new(LeafQueue::new(set.disk(i), Options::threads(1), BufPool::new(1 << 20)))
    };
    let devices = (0..set.len()).map(|i| (i as u64 + 1, queue(i))).collect();
    WriteTree::open(&root(spec), devices).unwrap()
}

fn sweep(
    tree: &WriteTree,
    sweep: Sweep,
    blocks: &[(u64, Vec<u8>)],
    scratch: &mut SweepScratch,
) -> Vec<Swept> {
    let laid =
        |(offset, data): &(u64, Vec<u8>)| Laid { offset: *offset, size: data.len(), birth: BIRTH };
    let laid: Vec<Laid> = blocks.iter().map(laid).collect();
    let mut check = |index: usize, bytes: &[u8]| blocks[index].1 == bytes;
    tree.tree().sweep((0, sweep), &laid, scratch, &mut check)
}

/// Leaf, offset and size of each piece of a block.
fn pieces(spec: &VdevConfig, offset: u64, size: usize) -> Vec<(usize, u64, usize)> {
    match layout(spec) {
        Layout::Plain { .. } => (0..spec.children.len()).map(|leaf| (leaf, offset, size)).collect(),
        Layout::Raidz(geometry) => {
            let columns = geometry.columns(offset, size as u64);
            let column = |index| columns.column(index);
            let all = (0..columns.count()).map(column);
            all.map(|column| (column.disk, column.offset, column.size)).collect()
        }
    }
}

#[test]
fn one_wrong_bit_anywhere_is_seen_in_its_block_alone() {
    let mut rng = Rng::new(31);
    for (round, spec) in shapes().into_iter().cycle().take(20).enumerate() {
        let set = disks(spec.children.len());
        let blocks = blocks(&mut rng, &spec);
        let tree = open(&spec, &set, round % 2 == 1);
        for (offset, data) in &blocks {
            tree.write(0, *offset, data, &mut WriteScratch::default()).unwrap();
        }
        let mut scratch = SweepScratch::default();
        let found = sweep(&tree, Sweep::All, &blocks, &mut scratch);
        assert!(found.iter().all(|found| *found == Swept::Good), "{found:?}");
        for _ in 0..20 {
            let hurt = rng.index(blocks.len());
            let (offset, data) = &blocks[hurt];
            let of = pieces(&spec, *offset, data.len());
            let (leaf, at, size) = of[rng.index(of.len())];
            let at = DATA_AT + at + rng.below(size as u64);
            let mut byte = [0];
            device::Device::read_at(&set.disk(leaf), at, &mut byte).unwrap();
            set.disk(leaf).overwrite(at, &[byte[0] ^ 1 << rng.below(8)]);
            let found = sweep(&tree, Sweep::All, &blocks, &mut scratch);
            for (index, found) in found.iter().enumerate() {
                let wanted = if index == hurt { Swept::Doubtful } else { Swept::Good };
                assert_eq!(*found, wanted, "block {index}, hurt is {hurt} on leaf {leaf}");
            }
            set.disk(leaf).overwrite(at, &byte);
        }
    }
}

#[test]
fn what_leaves_lack_costs_no_more_than_it_must() {
    let mut rng = Rng::new(32);
    for (round, spec) in shapes().into_iter().cycle().take(40).enumerate() {
        let (count, queued) = (spec.children.len(), round % 2 == 1);
        let set = disks(count);
        let blocks = blocks(&mut rng, &spec);
        let tree = open(&spec, &set, queued);
        for (offset, data) in &blocks {
            tree.write(0, *offset, data, &mut WriteScratch::default()).unwrap();
        }
        let parity = spec.nparity.unwrap_or(2) as usize;
        let mut lacking: Vec<usize> =
            (0..1 + rng.index(parity)).map(|_| rng.index(count)).collect();
        lacking.sort_unstable();
        lacking.dedup();
        for leaf in &lacking {
            let mut txgs = Dtl::default();
            txgs.add(BIRTH, BIRTH + 1);
            tree.tree().leaves()[*leaf].lacks.load(txgs);
            set.disk(*leaf).overwrite(DATA_AT, &vec![0xee; 1 << 20]);
        }
        let mut scratch = SweepScratch::default();
        let found = sweep(&tree, Sweep::Lacking, &blocks, &mut scratch);
        let mut least = 0;
        for (index, (offset, data)) in blocks.iter().enumerate() {
            let of = pieces(&spec, *offset, data.len());
            let mut behind: Vec<usize> =
                of.iter().map(|piece| piece.0).filter(|leaf| lacking.contains(leaf)).collect();
            behind.sort_unstable();
            if behind.is_empty() {
                assert_eq!(found[index], Swept::Good);
                continue;
            }
            let Swept::Behind(mut told) = found[index].clone() else {
                panic!("{:?}", found[index])
            };
            told.sort_unstable();
            assert_eq!(told, behind);
            assert!(scratch.block(index, data.len()) == data);
            // The data, with a parity column in the place of each that is lacking.
            least += match spec.nparity {
                None => data.len(),
                Some(parity) => {
                    let (parity, data) = of.split_at(parity as usize);
                    let size = |piece: &(usize, u64, usize)| match lacking.contains(&piece.0) {
                        true => parity[0].2,
                        false => piece.2,
                    };
                    data.iter().map(size).sum()
                }
            } as u64;
        }
        let read = scratch.take_read_bytes();
        // Queues read over what is skipped.
        let most = if queued { least + least / 8 + count as u64 * (8 << 10) } else { least };
        assert!((least..=most).contains(&read), "{read} bytes were read, {least} are needed");
    }
}
