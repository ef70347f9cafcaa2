//! Scrubs and resilvers between us and the OpenZFS kernel: each goes on with what the other left in the middle, and is
//! content with what the other has mended.

#![allow(clippy::unwrap_used)]

use std::fs::OpenOptions;
use std::os::unix::fs::FileExt;
use std::path::Path;

use acceptance::{SHAPES, Session, Shape, engine};
use format::scan::{ScanFunction, ScanState};
use pool::{ScanAnswer, ScanStep};
use testkit::data::Look;
use testkit::workload::{Op, Workload};
use testkit::{Images, Vm, tool, vm};

const POOL: &str = engine::POOL;

fn shape(name: &str) -> &'static Shape {
    SHAPES.iter().find(|shape| shape.name.starts_with(name)).unwrap()
}

fn load(seed: u64, files: u64) -> Vec<Op> {
    let mut load = Workload::new(seed);
    for i in 0..files {
        load.file(format!("f{seed}-{i}").as_bytes(), Look::Noise, 60_000 * (1 + i % 9));
    }
    load.ops
}

/// Noise where blocks lie on a disk, from here to there.
fn hurt(disk: &Path, from: u64, to: u64) {
    let file = OpenOptions::new().write(true).open(disk).unwrap();
    file.write_all_at(&vec![0xa5; (to - from) as usize], from).unwrap();
}

/// The kernel scrubs, and finds nothing to do.
fn kernel_is_content(images: &Images, before: &str) -> String {
    let script = format!(
        "set -euo pipefail\n\
         zpool import -d /d -o cachefile=none tank\n\
         {before}\n\
         zpool scrub -w tank; echo SCRUBBED; zpool status -v tank; zpool export tank\n"
    );
    let ran = Vm::new(images.path()).run(&script).expect_ok();
    let (before, scrubbed) = ran.out.split_once("SCRUBBED").unwrap();
    assert!(scrubbed.contains("repaired 0B") && scrubbed.contains("with 0 errors"), "{ran}");
    assert!(scrubbed.contains("No known data errors"), "{ran}");
    before.to_string()
}

/// We mend all; half of a scrub is left to the kernel, which finishes it.
#[test]
fn the_kernel_finishes_our_scrub() {
    if !vm::wanted("that the kernel finishes a scrub of ours") {
        return;
    }
    let (images, mut session) = Session::create(shape("raidz2"), 128 << 10);
    session.run(&load(1, 60));
    session.pool().snapshot(&[format!("{POOL}@one")], &[]).unwrap();
    session.run(&load(2, 60));
    session.close().unwrap();
    drop(session);
    hurt(&images.disks()[1], 4 << 20, 60 << 20);
    let mut session = Session::open(images.path(), POOL, POOL).unwrap();
    let pool = session.pool();
    assert_eq!(pool.scan_start(ScanFunction::Scrub).unwrap(), ScanAnswer::Done);
    let half = pool.scan_status().unwrap().unwrap().scan.to_examine / 2;
    while pool.scan_status().unwrap().unwrap().scan.examined < half {
        assert_eq!(pool.scan_step_within(half / 6).unwrap(), ScanStep::More);
    }
    pool.scan_save().unwrap();
    let ours = pool.scan_status().unwrap().unwrap().scan;
    session.close().unwrap();
    drop(session);
    let told = kernel_is_content(&images, "zpool wait -t scrub tank; zpool status tank");
    assert!(told.contains("scrub repaired ") && !told.contains("repaired 0B"), "{told}");
    assert!(told.contains("with 0 errors"), "{told}");
    // It has not begun anew.
    assert!(ours.processed > 0, "{ours:?}");
    tool::zdb_content(images.path(), POOL);
}

/// A pool whose scrub the kernel has begun and left, hurt since. In the millisecond that it is given it may come to its end
/// on a busy machine; then another one is made.
fn left_by_the_kernel() -> (Images, Session) {
    let script = "set -euo pipefail\n\
         P=/sys/module/zfs/parameters\n\
         zpool create -o cachefile=none -o ashift=12 tank raidz1 $(ls /d/d0?)\n\
         for s in 1 2 3; do\n\
           for i in $(seq 30); do head -c 600000 /dev/urandom > /tank/k$s-$i; done\n\
           zfs snapshot tank@s$s; zfs create tank/fs$s; head -c 2000000 /dev/urandom > /tank/fs$s/f\n\
         done\n\
         zpool sync tank; zpool export tank; zpool import -d /d -o cachefile=none tank\n\
         echo 1 > $P/zfs_scan_legacy; echo 1 > $P/zfs_scrub_min_time_ms; echo 1 > $P/zfs_scan_suspend_progress\n\
         zpool scrub tank\n\
         echo 0 > $P/zfs_scan_suspend_progress; zpool sync tank; echo 1 > $P/zfs_scan_suspend_progress\n\
         zpool status tank; zpool export tank\n";
    for _ in 0..8 {
        let images = testkit::fresh_images(4, 256 << 20);
        let ran = Vm::new(images.path()).run(script).expect_ok();
        if ran.out.contains("scrub in progress") {
            hurt(&images.disks()[2], 4 << 20, 200 << 20);
            let session = Session::open(images.path(), POOL, POOL).unwrap();
            return (images, session);
        }
    }
    panic!("the kernel never left its scrub under way");
}

#[test]
fn we_finish_the_kernels_scrub() {
    if !vm::wanted("that we finish a scrub of the kernel's") {
        return;
    }
    let (images, mut session) = left_by_the_kernel();
    let pool = session.pool();
    assert_eq!(pool.read_only_reason(), None);
    let status = pool.scan_status().unwrap().unwrap();
    assert_eq!(status.scan.state, ScanState::Scanning);
    assert_eq!(pool.scan_run(&mut |_| true).unwrap(), ScanStep::Done);
    let done = pool.scan_status().unwrap().unwrap().scan;
    assert_eq!((done.state, done.errors), (ScanState::Finished, 0), "{status:?} {done:?}");
    assert!(done.processed > 1 << 20, "{status:?} {done:?}");
    // What lies before the kernel's position was hurt after it had passed.
    assert_eq!(pool.scan_start(ScanFunction::Scrub).unwrap(), ScanAnswer::Done);
    assert_eq!(pool.scan_run(&mut |_| true).unwrap(), ScanStep::Done);
    session.close().unwrap();
    drop(session);
    kernel_is_content(&images, "zpool status tank");
}

/// A disk was away: we give it half of what it lacks, the kernel the rest.
#[test]
fn the_kernel_finishes_our_resilver() {
    if !vm::wanted("that the kernel finishes a resilver of ours") {
        return;
    }
    let (images, mut session) = Session::create(shape("raidz1"), 128 << 10);
    session.run(&load(1, 30));
    session.close().unwrap();
    drop(session);
    let rest = images.without(&[2]);
    let mut session = Session::open(rest.path(), POOL, POOL).unwrap();
    session.run(&load(2, 80));
    session.close().unwrap();
    drop((session, rest));
    let mut session = Session::open(images.path(), POOL, POOL).unwrap();
    let pool = session.pool();
    assert_eq!(pool.scan_start(ScanFunction::Resilver).unwrap(), ScanAnswer::Done);
    for _ in 0..3 {
        assert_eq!(pool.scan_step_within(4 << 20).unwrap(), ScanStep::More);
    }
    pool.scan_save().unwrap();
    session.close().unwrap();
    drop(session);
    let told = kernel_is_content(&images, "zpool wait -t resilver tank; zpool status tank");
    assert!(told.contains("resilvered ") && told.contains("with 0 errors"), "{told}");
    tool::zdb_content(images.path(), POOL);
}

/// A disk that replaces another has half of what it lacks from us; the kernel does the rest, and lets the old one go.
#[test]
fn the_kernel_finishes_our_replacement() {
    if !vm::wanted("that the kernel finishes a replacement that we have half done") {
        return;
    }
    let raidz = Shape { disks: 4, ..*shape("raidz1") };
    let (images, mut session) = Session::create(&raidz, 128 << 10);
    session.run(&load(1, 60));
    let pool = session.pool();
    let old = pool.store().tree().leaves()[1].guid();
    let path = images.path().join("d09");
    std::fs::File::create(&path).unwrap().set_len(raidz.disk_bytes).unwrap();
    let device = rt::sync::Arc::new(device::WriteFile::open(&path).unwrap());
    let bytes = path.as_os_str().as_encoded_bytes().to_vec();
    pool.attach(old, pool::NewLeaf { path: bytes, is_disk: false, device }, true).unwrap();
    assert_eq!(pool.scan_start(ScanFunction::Resilver).unwrap(), ScanAnswer::Done);
    for _ in 0..2 {
        assert_eq!(pool.scan_step_within(3 << 20).unwrap(), ScanStep::More);
    }
    pool.scan_save().unwrap();
    assert!(pool.is_scanning());
    session.run(&load(2, 10));
    session.close().unwrap();
    drop(session);
    let wait = "zpool wait -t resilver tank; zpool wait -t replace tank; zpool status tank";
    let told = kernel_is_content(&images, wait);
    assert!(told.contains("resilvered ") && told.contains("with 0 errors"), "{told}");
    assert!(told.contains("d09") && !told.contains("replacing"), "{told}");
    tool::zdb_content(images.path(), POOL);
}

/// A pool whose disks want something, as the kernel left it: all of it is done here, and then nothing is left.
fn finish_all(images: &Images, name: &str) {
    let mut session = Session::open(images.path(), name, name).unwrap();
    let pool = session.pool();
    assert_eq!(pool.read_only_reason(), None);
    assert!(pool.is_scanning(), "{:?}", pool.scan_status());
    let leaves: Vec<(u64, bool)> =
        pool.config().vdev_tree.leaves().map(|leaf| (leaf.guid, leaf.offline)).collect();
    for (guid, _) in leaves.into_iter().filter(|(_, offline)| *offline) {
        pool.online(guid, None).unwrap();
    }
    for _ in 0..4 {
        if pool.is_scanning() {
            assert_eq!(pool.scan_run(&mut |_| true).unwrap(), ScanStep::Done);
        } else if pool.needs_resilver() {
            assert_eq!(pool.scan_start(ScanFunction::Resilver).unwrap(), ScanAnswer::Done);
        }
    }
    pool.finish_replacements().unwrap();
    assert!(!pool.needs_resilver() && !pool.is_scanning(), "{:?}", pool.scan_status());
    assert!(pool.config().vdev_tree.walk().all(|vdev| vdev.kind.name() != b"replacing"));
    session.close().unwrap();
}

/// The kernel's replacement and its resilver, with a disk offline, stopped in the middle; made here, and the golden one.
#[test]
fn we_finish_the_kernels_replacement() {
    if !vm::wanted("that the kernel is content with a replacement of its own that we have finished")
    {
        return;
    }
    let images = testkit::fresh_images(6, 256 << 20);
    let script = "set -euo pipefail\n\
         P=/sys/module/zfs/parameters\n\
         zpool create -o cachefile=none -o ashift=12 tank raidz2 $(ls /d/d0[0-4])\n\
         for i in $(seq 30); do head -c 600000 /dev/urandom > /tank/k$i; done\n\
         zfs snapshot tank@s; zpool sync tank\n\
         zpool offline tank /d/d03; head -c 4000000 /dev/urandom > /tank/without; zpool sync tank\n\
         echo 1 > $P/zfs_scan_suspend_progress\n\
         zpool replace tank /d/d01 /d/d05; head -c 4000000 /dev/urandom > /tank/during\n\
         zpool sync tank; zpool status tank; zpool export tank\n";
    let ran = Vm::new(images.path()).run(script).expect_ok();
    assert!(ran.out.contains("resilver in progress"), "{ran}");
    finish_all(&images, POOL);
    kernel_is_content(&images, "zpool status tank");
    tool::zdb_content(images.path(), POOL);
    let golden = testkit::golden_copy("resilvering");
    finish_all(&golden, "resilvering");
    let script = "set -euo pipefail\nzpool import -f -d /d -o cachefile=none resilvering\n\
         zpool scrub -w resilvering; zpool status -v resilvering; zpool export resilvering\n";
    let ran = Vm::new(golden.path()).run(script).expect_ok();
    for what in ["repaired 0B", "with 0 errors", "No known data errors"] {
        assert!(ran.out.contains(what), "{what}: {ran}");
    }
    assert!(!ran.out.contains("replacing") && !ran.out.contains("OFFLINE"), "{ran}");
}
