//! Disks that lack writes, between us and the OpenZFS kernel: what one of us wrote while a disk was away, the
//! other resilvers or keeps, by the DTL that says so. A scrub afterwards finds nothing that no DTL had told.

#![allow(clippy::unwrap_used)]

use acceptance::{SHAPES, Session};
use testkit::data::Look;
use testkit::workload::{Op, Workload};
use testkit::{Images, Vm, poolaudit_kernels, tool, vm};

const POOL: &str = "tank";

/// Files in several txgs, some written over and removed.
fn load(seed: u64, prefix: &str) -> Vec<Op> {
    let mut load = Workload::new(seed);
    for i in 0..40 {
        load.file(format!("{prefix}{i}").as_bytes(), Look::Noise, 30_000 * (1 + i % 5));
        if i % 10 == 9 {
            load.push(Op::Sync);
        }
    }
    for i in (0..40).step_by(4) {
        load.push(Op::Remove { path: format!("{prefix}{i}").into_bytes() });
    }
    load.ops
}

/// The kernel resilvers what the DTLs tell, and its scrub then has nothing to repair.
fn resilvered_by_the_kernel(images: &Images, before: &str) -> String {
    let script = format!(
        "set -euo pipefail\n\
         zpool import -d /d -o cachefile=none tank\n\
         {before}\n\
         for i in $(seq 60); do zpool status tank | grep -q resilver && break; sleep 0.5; done\n\
         zpool wait -t resilver tank\n\
         zpool status -v tank; zpool scrub -w tank; echo SCRUBBED; zpool status -v tank\n\
         cd /tank; sha256sum * > /d/sums; cd /; sync -f /d/sums\n\
         zpool export tank\n"
    );
    let ran = Vm::new(images.path()).run(&script).expect_ok();
    let (resilvered, scrubbed) = ran.out.split_once("SCRUBBED").unwrap();
    assert!(resilvered.contains("resilvered"), "{ran}");
    assert!(scrubbed.contains("repaired 0B") && scrubbed.contains("with 0 errors"), "{ran}");
    assert!(scrubbed.contains("No known data errors"), "{ran}");
    tool::zdb_content(images.path(), POOL);
    drop(poolaudit_kernels(images.path(), POOL).expect_ok());
    ran.out
}

/// As `tool::zdb_content`, but that zdb opens the MOS before it has read the DTLs: a few blocks may be asked
/// of a disk that lacks them, as their places have it.
fn zdb_is_content(images: &Images, lacking: &[usize]) {
    let path = images.path().to_str().unwrap();
    let ran = tool::zdb(["-e", "-p", path, "-bccs", POOL]).expect_ok();
    assert!(ran.out.contains("No leaks") && !ran.out.contains("Error counts"), "{ran}");
    let errors = tool::error_counts(&ran.out);
    assert!(!errors.is_empty(), "{ran}");
    for (device, counts) in errors {
        let lacks = lacking.iter().any(|disk| device.ends_with(&format!("/d{disk:02}")));
        assert!(counts == [0; 3] || lacks && counts[2] <= 8, "{device}: {counts:?}: {ran}");
    }
}

/// Written by us with disks away. They are back, as they were; zdb reads around what they lack, the kernel
/// resilvers it.
#[test]
fn the_kernel_resilvers_what_our_dtls_tell() {
    if !vm::wanted("that the kernel resilvers disks that we wrote without") {
        return;
    }
    for (name, away) in [("raidz2", vec![1, 4]), ("mirror", vec![0])] {
        let shape = SHAPES.iter().find(|shape| shape.name.starts_with(name)).unwrap();
        let (images, mut session) = Session::create(shape, 128 << 10);
        session.run(&load(1, "whole"));
        session.close().unwrap();
        drop(session);
        let rest = images.without(&away);
        let mut session = Session::open(rest.path(), POOL, POOL).unwrap();
        assert_eq!(session.pool().read_only_reason(), None);
        session.run(&load(2, "lacking"));
        session.apply(&Op::Reopen).unwrap();
        session.run(&load(3, "again"));
        session.close().unwrap();
        drop(session);
        drop(rest);
        // Of a mirror zdb reads all copies, whatever DTLs say.
        if name != "mirror" {
            zdb_is_content(&images, &away);
        }
        let mut session = Session::open(images.path(), POOL, POOL).unwrap();
        session.run(&load(4, "back"));
        session.close().unwrap();
        drop(session);
        resilvered_by_the_kernel(&images, "");
        // The DTLs are empty now, so that nothing of before is believed to be lacking.
        let scan = vdev::import::scan(&[images.path().to_path_buf()]).unwrap();
        let options = verify::Options::default();
        let found = scan.choose(POOL).unwrap();
        let report = verify::verify_pool(found, &options, &mut |_| true).unwrap();
        assert_eq!(report.verdict, verify::Verdict::Clean, "{report:#?}");
    }
}

/// The kernel took a disk offline. We write without it, though it is there, and add to its DTL.
#[test]
fn a_disk_that_the_kernel_took_offline_is_left_alone() {
    if !vm::wanted("that we leave disks alone that the kernel took offline") {
        return;
    }
    let images = testkit::fresh_images(4, 256 << 20);
    let script = "set -euo pipefail\n\
         zpool create -o cachefile=none -o ashift=12 tank raidz1 $(ls /d/d0?)\n\
         for i in $(seq 20); do head -c 300000 /dev/urandom > /tank/k$i; done\n\
         zpool offline tank $(ls /d/d0? | sed -n 2p)\n\
         for i in $(seq 20); do head -c 300000 /dev/urandom > /tank/o$i; done\n\
         zpool sync tank; zpool export tank\n";
    drop(Vm::new(images.path()).run(script).expect_ok());
    let offline = std::fs::read(&images.disks()[1]).unwrap();
    let mut session = Session::open(images.path(), POOL, POOL).unwrap();
    assert_eq!(session.pool().read_only_reason(), None);
    session.run(&load(2, "ours"));
    session.close().unwrap();
    drop(session);
    assert!(std::fs::read(&images.disks()[1]).unwrap() == offline, "an offline disk was written");
    tool::zdb_content(images.path(), POOL);
    let online = "zpool online tank $(zpool status tank | awk '/OFFLINE/ {print $1}')";
    resilvered_by_the_kernel(&images, online);
}
