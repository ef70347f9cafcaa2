//! The helpers against the tools they stand for.

use std::os::unix::fs::{FileExt, MetadataExt};

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

/// Healthy and damaged, zdb says the same and ends alike when it is left to tear down what it has built.
#[test]
fn zdb_that_ends_quickly_says_all_that_it_would() {
    let copy = golden_copy("single");
    for damaged in [false, true] {
        for disk in copy.disks().iter().filter(|_| damaged) {
            // Every other piece of what is used, but the labels.
            let (bytes, piece) = (std::fs::read(disk).unwrap(), 64 << 10);
            let pieces = bytes.chunks(piece).enumerate().skip(80);
            let used = pieces.filter(|(_, bytes)| bytes.iter().any(|byte| *byte != 0));
            let file = std::fs::File::options().write(true).open(disk).unwrap();
            for (at, _) in used.step_by(2).take(40) {
                file.write_all_at(&[7; 4096], (at * piece) as u64).unwrap();
            }
        }
        let run = |command: &mut std::process::Command| {
            let command = command.arg("-e").arg("-p").arg(copy.path()).args(["-bccs", "single"]);
            let ran = testkit::Ran::of(command);
            // What took how long differs from run to run, and which block comes first.
            let out = ran.out.lines().take_while(|line| !line.contains("capacity   operations"));
            let mut out: Vec<String> = out.map(str::to_string).collect();
            out.sort();
            (ran.status, out)
        };
        let path = testkit::tool::program("zdb", "zfsutils-linux");
        let whole = run(&mut std::process::Command::new(path));
        assert_eq!(run(&mut testkit::tool::zdb_command()), whole);
        assert_eq!(whole.0 == 0, !damaged, "{whole:?}");
    }
}

#[test]
fn a_killed_program_is_reported_as_killed() {
    let mut command = std::process::Command::new("sleep");
    let ran = killed_after(command.arg("60"), std::time::Duration::from_millis(50));
    assert_eq!(ran.status, 137, "{ran}");
}
