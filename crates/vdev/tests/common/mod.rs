//! Small pools on simulated disks.
#![allow(dead_code, clippy::unwrap_used, reason = "each test program uses a part, in tests")]

use device::sim::{SimDisk, SimSet};
use device::{Device, WriteDevice};
use rt::sync::Arc;
use std::collections::BTreeMap;
use vdev::raidz::Geometry;
use vdev::sizes::{DATA_START, Layout};
use vdev::{Found, Kind, Spec, Tree, WriteTree};

/// Allocatable bytes of each test disk.
pub(crate) const LEAF: u64 = 4 << 20;

pub(crate) fn leaf(id: u64, guid: u64) -> Spec {
    Spec { kind: Kind::File, guid, path: Some(format!("/dev/d{guid}")), ..Spec::missing(id) }
}

pub(crate) fn interior(kind: Kind, id: u64, guid: u64, children: Vec<Spec>) -> Spec {
    let children = children.into_iter().zip(0..).map(|(child, id)| Spec { id, ..child }).collect();
    Spec { kind, guid, children, ..Spec::missing(id) }
}

/// A top-level vdev number 0 with leaves of the guids 1, 2, ..
pub(crate) fn top(kind: Kind, leaves: usize, parity: usize, ashift: u32) -> Spec {
    let children = (1..=leaves as u64).map(|guid| leaf(0, guid)).collect();
    let per_leaf = if kind == Kind::Raidz { leaves as u64 } else { 1 };
    Spec {
        nparity: parity as u64,
        ashift: ashift.into(),
        asize: LEAF * per_leaf,
        ..interior(kind, 0, 1000, children)
    }
}

pub(crate) fn disks(count: usize) -> SimSet {
    SimSet::new(count, DATA_START + LEAF + (512 << 10))
}

/// Opens to write; leaf with guid `g` is disk `g - 1`.
pub(crate) fn open_write(spec: &Spec, set: &SimSet) -> WriteTree {
    let device = |i: usize| -> Arc<dyn WriteDevice> { Arc::new(set.disk(i)) };
    let devices = (0..set.len()).map(|i| (i as u64 + 1, device(i))).collect();
    WriteTree::open(vec![spec.clone()], devices).unwrap()
}

/// Opens to read, without the disks of `hidden` (bit `i`: disk `i`).
pub(crate) fn open_read(spec: &Spec, set: &SimSet, hidden: u32) -> Tree {
    let mut found = BTreeMap::new();
    for i in (0..set.len()).filter(|i| hidden >> i & 1 == 0) {
        let device: Arc<dyn Device> = Arc::new(set.disk(i).reader());
        found.insert(i as u64 + 1, Found { device, labelled: true });
    }
    Tree::open(vec![spec.clone()], found).unwrap()
}

pub(crate) fn layout(spec: &Spec) -> Layout {
    let ashift = spec.ashift as u32;
    match spec.kind {
        Kind::Raidz => Layout::Raidz(
            Geometry::new(ashift, spec.children.len(), spec.nparity as usize).unwrap(),
        ),
        _ => Layout::Plain { ashift },
    }
}

/// The bytes of a disk's allocatable space.
pub(crate) fn space(disk: &SimDisk, size: usize) -> Vec<u8> {
    let mut bytes = vec![0; size];
    disk.read_at(DATA_START, &mut bytes).unwrap();
    bytes
}

/// Makes every byte at the start of a disk's allocatable space wrong; a second call rights it.
pub(crate) fn spoil(disk: &SimDisk, size: usize) {
    let bytes: Vec<u8> = space(disk, size).iter().map(|b| b ^ 0xa5).collect();
    disk.overwrite(DATA_START, &bytes);
}

pub(crate) fn noise(rng: &mut rt::Rng, size: usize) -> Vec<u8> {
    let mut bytes = vec![0; size];
    rng.fill(&mut bytes);
    bytes
}
