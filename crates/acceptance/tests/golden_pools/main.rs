//! Pools that the OpenZFS kernel wrote, read through `fs` and compared with what the kernel says
//! is in them.

#![allow(clippy::unwrap_used)]

mod compare;
mod names;
mod replay;
mod told;

use std::path::PathBuf;

use pool::{Devices, OpenOptions, Pool};
use rt::Workers;
use rt::sync::Arc;
use testkit::rounds;
use testkit::truth::Truth;
use vdev::import;

fn options() -> OpenOptions {
    OpenOptions { workers: 2, host_id: 1, host_name: "test".into(), new_name: None, memory: None }
}

/// Opens a pool on what is in `places`: directories, or single disks.
fn open(places: &[PathBuf], name: &str) -> Arc<Pool> {
    let scan = import::scan(places).unwrap();
    let found = scan.choose(name).unwrap();
    let tree = Arc::new(found.open_tree().unwrap());
    Pool::open(Devices::ReadOnly(tree), &found.uberblocks, &options()).unwrap()
}

/// Reads everything of a golden pool, volumes up to a size; returns how many entries were compared.
fn read_all(places: &[PathBuf], truth: &Truth, volume_max: u64) -> usize {
    compare::read_all(&open(places, truth.pool()), truth, volume_max)
}

macro_rules! golden {
    ($($test:ident = $images:expr, $truth:expr, $least:expr;)*) => {$(
        #[test]
        fn $test() {
            let count = read_all(&[testkit::golden($images)], &testkit::truth($truth), u64::MAX);
            assert!(count >= $least, "only {count} entries");
        }
    )*};
}

golden! {
    single_is_read = "single", "single", 1300;
    rz1_is_read = "rz1", "rz1", 3200;
    rz2_is_read = "rz2", "rz2", 60;
    rz3_is_read = "rz3", "rz3", 22;
    mirror_is_read = "mir", "mir", 347;
    hurt_is_read = "hurt", "hurt", 31;
    hurt2_is_read = "hurt2", "hurt2", 31;
    wide_is_read = "wide", "wide", 87;
    partitions_are_read = "gpt", "gpt", 4;
    version_28_is_read = "old", "old", 244;
    without_features_is_read = "nofeat", "nofeat", 15;
    not_exported_is_read_as_it_is = "dirty", "dirty.ro", 50;
    resilvering_is_read = "resilvering", "resilvering", 3000;
    removed_vdevs_are_read = "features", "features", 40;
}

/// Reads everything of a golden pool with each of these choices of its disks away.
fn read_without(name: &str, truth: &str, choices: &[Vec<usize>]) {
    let (dir, truth) = (testkit::golden(name), testkit::truth(truth));
    // A gigabyte of zeros says nothing of disks.
    let volume_max = 16 << 20;
    let whole = read_all(std::slice::from_ref(&dir), &truth, volume_max);
    let mut disks: Vec<PathBuf> = dir.read_dir().unwrap().map(|e| e.unwrap().path()).collect();
    disks.sort();
    Workers::per_core().run(choices.len(), |_, job| {
        let there = (0..disks.len()).filter(|disk| !choices[job].contains(disk));
        let places: Vec<PathBuf> = there.map(|disk| disks[disk].clone()).collect();
        let count = read_all(&places, &truth, volume_max);
        assert_eq!(count, whole, "{name} without {:?}", choices[job]);
    });
}

#[test]
fn without_any_two_disks_of_rz2_every_byte_is_there() {
    let pairs: Vec<_> = (0..11).flat_map(|a| (0..a).map(move |b| vec![a, b])).collect();
    assert_eq!(pairs.len(), 55);
    read_without("rz2", "rz2", &pairs);
}

#[test]
fn without_as_many_disks_as_parity_covers_every_byte_is_there() {
    // Block by block every choice is read in `crates/vdev/tests/hidden.rs`.
    for (name, truth, disks, away) in [
        ("gpt", "gpt", 3, 1),
        ("old", "old", 3, 1),
        ("nofeat", "nofeat", 2, 1),
        ("dirty", "dirty.ro", 4, 1),
        ("mir", "mir", 3, 2),
        ("rz1", "rz1", 5, 1),
        ("rz3", "rz3", 9, 3),
    ] {
        let choices = (1..=rounds(3, 20)).map(|seed| acceptance::choose(disks, away, seed));
        read_without(name, truth, &choices.collect::<Vec<_>>());
    }
}
