//! Small pools on simulated disks.
#![allow(dead_code, clippy::unwrap_used, reason = "each test program uses a part, in tests")]

use device::queue::Class;
use device::sim::{SimDisk, SimSet};
use device::{Device, WriteDevice};
use format::config::{TopConfig, VdevConfig, VdevKind};
use format::label::DATA_AT;
use rt::sync::Arc;
use std::collections::BTreeMap;
use vdev::raidz::Geometry;
use vdev::sizes::Layout;
use vdev::{Found, ReadReport, ReadScratch, Sought, Tree, VdevError, WriteTree};

/// Allocatable bytes of each test disk.
pub(crate) const LEAF: u64 = 4 << 20;

pub(crate) fn leaf(id: u64, guid: u64) -> VdevConfig {
    let path = format!("/dev/d{guid}").into_bytes();
    VdevConfig { path: Some(path), ..VdevConfig::new(VdevKind::File, id, guid) }
}

pub(crate) fn interior(
    kind: VdevKind,
    id: u64,
    guid: u64,
    children: Vec<VdevConfig>,
) -> VdevConfig {
    let numbered = children.into_iter().zip(0..);
    let children = numbered.map(|(child, id)| VdevConfig { id: Some(id), ..child }).collect();
    VdevConfig { children, ..VdevConfig::new(kind, id, guid) }
}

/// A top-level vdev number 0 with leaves of the guids 1, 2, ..
pub(crate) fn top(kind: VdevKind, leaves: usize, parity: usize, ashift: u32) -> VdevConfig {
    let children = (1..=leaves as u64).map(|guid| leaf(0, guid)).collect();
    let raidz = kind == VdevKind::Raidz;
    let asize = if raidz { LEAF * leaves as u64 } else { LEAF };
    VdevConfig {
        nparity: raidz.then_some(parity as u64),
        top: Some(TopConfig { ashift: ashift.into(), asize, ..TopConfig::default() }),
        ..interior(kind, 0, 1000, children)
    }
}

pub(crate) fn root(top: &VdevConfig) -> VdevConfig {
    interior(VdevKind::Root, 0, 2000, vec![top.clone()])
}

pub(crate) fn disks(count: usize) -> SimSet {
    SimSet::new(count, DATA_AT + LEAF + (512 << 10))
}

/// Opens to write; leaf with guid `g` is disk `g - 1`.
pub(crate) fn open_write(spec: &VdevConfig, set: &SimSet) -> WriteTree {
    let device = |i: usize| -> Arc<dyn WriteDevice> { Arc::new(set.disk(i)) };
    let devices = (0..set.len()).map(|i| (i as u64 + 1, device(i))).collect();
    WriteTree::open(&root(spec), devices).unwrap()
}

/// Opens to read, without the disks of `hidden` (bit `i`: disk `i`).
pub(crate) fn open_read(spec: &VdevConfig, set: &SimSet, hidden: u32) -> Tree {
    let mut found = BTreeMap::new();
    for i in (0..set.len()).filter(|i| hidden >> i & 1 == 0) {
        let device: Arc<dyn Device> = Arc::new(set.disk(i).reader());
        found.insert(i as u64 + 1, Found { device, labelled: true });
    }
    Tree::open(&root(spec), found).unwrap()
}

pub(crate) fn layout(spec: &VdevConfig) -> Layout {
    let ashift = spec.top.unwrap().ashift as u32;
    match spec.kind {
        VdevKind::Raidz => Layout::Raidz(
            Geometry::new(ashift, spec.children.len(), spec.nparity.unwrap() as usize).unwrap(),
        ),
        _ => Layout::Plain { ashift },
    }
}

/// The bytes of a disk's allocatable space.
pub(crate) fn space(disk: &SimDisk, size: usize) -> Vec<u8> {
    let mut bytes = vec![0; size];
    disk.read_at(DATA_AT, &mut bytes).unwrap();
    bytes
}

/// Makes every byte at the start of a disk's allocatable space wrong; a second call rights it.
pub(crate) fn spoil(disk: &SimDisk, size: usize) {
    let bytes: Vec<u8> = space(disk, size).iter().map(|b| b ^ 0xa5).collect();
    disk.overwrite(DATA_AT, &bytes);
}

pub(crate) fn noise(rng: &mut rt::Rng, size: usize) -> Vec<u8> {
    let mut bytes = vec![0; size];
    rng.fill(&mut bytes);
    bytes
}

/// What came of reading a run of blocks: those that are lost, and what was wrong with the others.
#[derive(Default)]
pub(crate) struct Landed {
    pub(crate) lost: Vec<(usize, VdevError)>,
    pub(crate) report: ReadReport,
}

/// Reads blocks together, each into its buffer.
pub(crate) fn read_run(
    tree: &Tree,
    blocks: &[(u64, Vec<u8>)],
    buffers: &mut [Vec<u8>],
    check: &mut dyn FnMut(usize, &[u8]) -> bool,
) -> Landed {
    let sought = |(offset, data): &(u64, Vec<u8>)| {
        let size = data.len();
        Sought { offset: *offset, birth: 0, size }
    };
    let mut flight = tree.plan(0, blocks.iter().map(sought).collect()).unwrap();
    tree.start(&mut flight, Class::Read, None);
    let (mut landed, mut scratch) = (Landed::default(), ReadScratch::default());
    for (index, buf) in buffers.iter_mut().enumerate() {
        let check = &mut |bytes: &[u8]| check(index, bytes);
        match tree.land(&mut flight, index, buf, &mut scratch, check) {
            Ok(report) => {
                landed.report.faults.extend(report.faults);
                landed.report.degraded |= report.degraded;
            }
            Err(error) => landed.lost.push((index, error)),
        }
    }
    landed
}
