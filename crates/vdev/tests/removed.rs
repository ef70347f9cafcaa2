//! Blocks of removed vdevs: gathered from their pieces, whichever copy of each is right.
#![allow(clippy::unwrap_used, reason = "a test fails by panic")]

mod common;

use common::{disks, interior, noise, top};
use device::Device;
use device::sim::SimSet;
use format::Dva;
use format::config::{VdevConfig, VdevKind};
use format::indirect::MappingEntry;
use format::label::DATA_AT;
use rt::sync::Arc;
use vdev::{Found, Tree, VdevError};

const K: u64 = 1 << 10;

fn entry(from: u64, vdev: u32, to: u64, size: u64) -> MappingEntry {
    let dva = Dva { vdev, offset: to, asize: size, ..Dva::default() };
    MappingEntry::new(from, dva)
}

/// A mirror of two, and two vdevs that were removed: the second went to the first in part.
fn tree(set: &SimSet) -> Tree {
    let gone = |id| VdevConfig::new(VdevKind::Missing, id, 0);
    let mirror = top(VdevKind::Mirror, 2, 0, 9);
    let root = interior(VdevKind::Root, 0, 2000, vec![mirror, gone(1), gone(2)]);
    let found = |i: usize| {
        let device: Arc<dyn Device> = Arc::new(set.disk(i).reader());
        (i as u64 + 1, Found { device, labelled: true })
    };
    let tree = Tree::open(&root, (0..2).map(found).collect()).unwrap();
    assert!(!tree.is_complete(1));
    tree.set_mapping(1, vec![entry(0, 0, 64 * K, 8 * K), entry(8 * K, 0, 256 * K, 24 * K)]);
    tree.set_mapping(2, vec![entry(0, 1, 4 * K, 8 * K), entry(8 * K, 0, 128 * K, 8 * K)]);
    assert!(tree.is_complete(1));
    tree
}

fn put(set: &SimSet, disk: usize, offset: u64, bytes: &[u8]) {
    set.disk(disk).overwrite(DATA_AT + offset, bytes);
}

#[test]
fn pieces_make_the_block_whichever_leaf_lies() {
    let set = disks(2);
    let tree = tree(&set);
    let block = noise(&mut rt::Rng::new(5), 16 * K as usize);
    let (a, b) = block.split_at(8 * K as usize);
    for disk in 0..2 {
        put(&set, disk, 64 * K, a);
        put(&set, disk, 256 * K, b);
    }
    let read = |top, offset| {
        let mut buf = vec![0; 16 * K as usize];
        let check = &mut |bytes: &[u8]| *bytes == *block;
        tree.read(top, offset, 0, &mut buf, check).map(|report| report.degraded)
    };
    assert!(!read(1, 0).unwrap());
    // Each leaf lies about another piece: neither has the whole.
    let lie = vec![7; 512];
    put(&set, 0, 64 * K + 512, &lie);
    put(&set, 1, 256 * K, &lie);
    assert!(read(1, 0).unwrap());
    put(&set, 1, 64 * K, &lie);
    assert!(matches!(read(1, 0), Err(VdevError::Lost { pieces: 2, tried: 4, .. })));
    // Through two mappings: 4 K and 4 K of the other, then 8 K of the mirror.
    for disk in 0..2 {
        put(&set, disk, 68 * K, &block[..4 * K as usize]);
        put(&set, disk, 256 * K, &block[4 * K as usize..8 * K as usize]);
        put(&set, disk, 128 * K, &block[8 * K as usize..]);
    }
    assert!(!read(2, 0).unwrap());
    // One piece is read as any block.
    let mut buf = vec![0; 4 * K as usize];
    let wanted = block[8 * K as usize..12 * K as usize].to_vec();
    tree.read(2, 8 * K, 0, &mut buf, &mut |bytes| *bytes == *wanted).unwrap();
    tree.read_unverified(2, 8 * K, 0, &mut buf).unwrap();
    assert_eq!(buf, wanted);
}

#[test]
fn mappings_that_lie_end_in_errors() {
    let set = disks(2);
    let tree = tree(&set);
    let mut buf = vec![0; 8 * K as usize];
    let mut read = |top, offset| tree.read(top, offset, 0, &mut buf, &mut |_| true);
    assert!(read(1, 28 * K).is_err(), "beyond the mapping");
    assert!(read(1, u64::MAX - 100).is_err());
    tree.set_mapping(1, vec![entry(0, 2, 0, 32 * K)]);
    tree.set_mapping(2, vec![entry(0, 1, 0, 32 * K)]);
    let error = read(1, 0).unwrap_err();
    assert!(error.to_string().contains("nesting of removed vdevs"), "{error}");
    tree.set_mapping(1, vec![entry(0, 9, 0, 4 * K), entry(4 * K, 0, 1 << 40, 28 * K)]);
    assert!(read(1, 0).is_err(), "a vdev that is not there");
}
