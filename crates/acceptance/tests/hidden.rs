//! Hidden disks of our own pools: every file comes back with every choice of as many disks away as there is
//! redundancy, and of one fewer away and one that holds noise.

#![allow(clippy::unwrap_used)]

use std::path::PathBuf;

use acceptance::{SHAPES, Session, Shape, engine};
use device::{Device, ReadFile};
use fs::Filesystem;
use rt::Workers;
use rt::sync::Arc;
use testkit::truth::Entry;
use testkit::workload::acceptance;
use testkit::{Compare, assert_same};
use vdev::import;

/// Bytes at both ends of a disk that stay right: its labels.
const START: u64 = 4 << 20;
const END: u64 = 512 << 10;

/// A disk with good labels whose blocks are noise.
struct Lying(ReadFile);

impl Device for Lying {
    testkit::of_the_disk_inside!(0);

    fn read_at(&self, offset: u64, buf: &mut [u8]) -> device::Result<()> {
        self.0.read_at(offset, buf)?;
        let end = self.0.size() - END;
        for (byte, at) in buf.iter_mut().zip(offset..) {
            if (START..end).contains(&at) {
                *byte = (at.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 56) as u8;
            }
        }
        Ok(())
    }
}

/// The files of the pool on `disks` without those of `away`, and with one of them lying.
fn files(disks: &[PathBuf], away: &[usize], lying: Option<usize>) -> Vec<Entry> {
    let mut devices: Vec<(Option<PathBuf>, Arc<dyn Device>)> = Vec::new();
    for (place, path) in disks.iter().enumerate().filter(|(place, _)| !away.contains(place)) {
        let file = ReadFile::open(path).unwrap();
        let device: Arc<dyn Device> =
            if lying == Some(place) { Arc::new(Lying(file)) } else { Arc::new(file) };
        devices.push((Some(path.clone()), device));
    }
    let scan = import::scan_devices(devices);
    let pool = engine::look_at(scan.choose(engine::POOL).unwrap());
    let fs = Filesystem::open(&pool, engine::POOL).unwrap();
    engine::list(&fs).unwrap()
}

/// Every choice of `count` of the numbers below `among`.
fn choose(among: usize, count: usize) -> Vec<Vec<usize>> {
    if count == 0 {
        return vec![Vec::new()];
    }
    let with = |last: usize| {
        choose(last, count - 1).into_iter().map(move |mut rest| {
            rest.push(last);
            rest
        })
    };
    (0..among).flat_map(with).collect()
}

fn every_choice(shape: &Shape, operations: usize, expected: usize) {
    let (images, mut session) = Session::create(shape, 128 << 10);
    let load = acceptance(77);
    session.run(&load.ops[..operations.min(load.ops.len())]);
    session.close().unwrap();
    let disks = images.disks();
    let whole = files(&disks, &[], None);
    assert!(whole.len() > 30, "{} entries", whole.len());
    let mut choices: Vec<(Vec<usize>, Option<usize>)> =
        choose(disks.len(), shape.spare_copies).into_iter().map(|away| (away, None)).collect();
    for away in choose(disks.len(), shape.spare_copies - 1) {
        let rest = (0..disks.len()).filter(|disk| !away.contains(disk));
        choices.extend(rest.map(|disk| (away.clone(), Some(disk))));
    }
    assert_eq!(choices.len(), expected, "{}", shape.name);
    Workers::per_core().run(choices.len(), |_, job| {
        let (away, lying) = &choices[job];
        assert_same(&whole, &files(&disks, away, *lying), Compare::ALL);
    });
}

#[test]
fn mirror_of_three() {
    every_choice(&SHAPES[1], 400, 3 + 6);
}

#[test]
fn raidz1_of_five() {
    every_choice(&SHAPES[2], 400, 5 + 5);
}

#[test]
fn raidz2_of_eleven() {
    every_choice(&SHAPES[3], 300, 55 + 110);
}
