//! The helpers against the tools they stand for.

use std::os::unix::fs::MetadataExt;

use testkit::tool::killed_after;
use testkit::{fresh_images, golden, golden_copy, poolaudit, truth, zdb};

#[test]
fn golden_pools_unpack_once_and_zdb_reads_them() {
    let threads: Vec<_> =
        (0..4).map(|_| std::thread::Builder::new().spawn(|| golden("nofeat")).unwrap()).collect();
    let places: Vec<_> = threads.into_iter().map(|t| t.join().unwrap()).collect();
    assert!(places.iter().all(|p| p == &places[0]));
    let image = std::fs::metadata(places[0].join("d00")).unwrap();
    assert!(image.blocks() * 512 < image.size(), "holes are kept");
    testkit::tool::zdb_content(&places[0], truth("nofeat").pool());
    testkit::tool::zdb_objects(&places[0], truth("nofeat").pool());
}

#[test]
fn damage_stays_in_the_copy() {
    let copy = golden_copy("nofeat");
    for i in 0..copy.disks().len() {
        copy.noise(i, 0, 7);
    }
    assert!(!zdb([copy.path(), "nofeat".as_ref()]).ok());
    assert_eq!(poolaudit(copy.path(), "nofeat").status, 2, "noise is no pool");
    assert_eq!(poolaudit(&golden("nofeat"), "nofeat").status, 0);
}

#[test]
fn fresh_images_are_sparse_and_numbered() {
    let images = fresh_images(11, 64 << 20);
    assert_eq!(images.disks().len(), 11);
    assert_eq!(images.disk(10).file_name().unwrap(), "d10");
    let fewer = images.without(&[0, 10]);
    assert_eq!(fewer.disks().len(), 9);
    assert!(!fewer.disk(10).exists() && fewer.disk(9).exists());
    images.remove(3);
    assert_eq!(images.disks().len(), 10);
}

#[test]
fn zdb_errors_are_counted_by_device() {
    let dir = golden("hurt");
    let ran = zdb([
        std::ffi::OsStr::new("-e"),
        "-p".as_ref(),
        dir.as_ref(),
        "-bccs".as_ref(),
        "hurt".as_ref(),
    ]);
    let errors = testkit::tool::error_counts(&ran.expect_ok().out);
    assert_eq!(errors.len(), 10, "pool, group and 8 disks: {errors:?}");
    for (name, counts) in errors {
        assert_eq!(counts[2] > 0, name.ends_with("/d05"), "{name}: {counts:?}");
    }
}

#[test]
fn a_killed_program_is_reported_as_killed() {
    let mut command = std::process::Command::new("sleep");
    let ran = killed_after(command.arg("60"), std::time::Duration::from_millis(50));
    assert_eq!(ran.status, 137, "{ran}");
}
