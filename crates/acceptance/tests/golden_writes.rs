//! Writing into copies of the golden pools: what the kernel had put there stays as it was, and zdb finds nothing.

#![allow(clippy::unwrap_used)]

use std::collections::BTreeMap;
use std::path::Path;

use acceptance::engine;
use fs::{Filesystem, FsError, NewObject, Who, mode};
use pool::Pool;
use rt::sync::Arc;
use testkit::truth::Entry;
use testkit::{Compare, Images, assert_same, golden_copy, rounds, tool, truth, vm};

/// What we make in each file system.
const OURS: &str = "of-thumper";

/// Pools, and how many of their file systems can be written to, at least.
const WRITABLE: [(&str, usize); 6] =
    [("single", 4), ("mir", 2), ("rz1", 10), ("rz3", 1), ("nofeat", 1), ("gpt", 1)];

/// Pools with a disk away and one full of noise.
const HURT: [&str; 2] = ["hurt", "hurt2"];

/// Pools that are opened to be read, and a word of the reason.
const READ_ONLY: [(&str, &str); 5] = [
    ("rz2", "deduplicated"),
    ("wide", "allocation_classes"),
    ("old", "version"),
    ("dirty", "log"),
    ("features", "feature"),
];

/// Everything in the file systems and snapshots of a pool but what we made, and but what that changes above.
fn old_files(pool: &Arc<Pool>, names: &[&str]) -> BTreeMap<String, Vec<Entry>> {
    let mut all = BTreeMap::new();
    for name in names {
        let fs = match Filesystem::open(pool, name) {
            Ok(fs) => fs,
            Err(FsError::NotAFilesystem { .. }) => continue,
            Err(e) => panic!("{name}: {e}"),
        };
        let mut entries = engine::list(&fs).unwrap_or_else(|e| panic!("{name}: {e}"));
        entries.retain(|entry| !entry.path.starts_with(OURS.as_bytes()) && entry.path != b".");
        all.insert((*name).to_string(), entries);
    }
    all
}

/// Writes into every file system that takes it, over a snapshot and in a clone; returns how many there were.
fn write(pool: &Arc<Pool>, names: &[&str]) -> usize {
    let mut count = 0;
    for name in names.iter().filter(|name| !name.contains('@')) {
        let Ok(fs) = Filesystem::open(pool, name) else { continue };
        let who = Who { uid: 1000, gid: 100 };
        let dir =
            match fs.create(fs.root(), OURS.as_bytes(), &NewObject::of(mode::DIR | 0o755, who)) {
                Ok(dir) => dir,
                Err(FsError::ReadOnly { .. }) => continue,
                Err(e) => panic!("{name}: {e}"),
            };
        let file = NewObject::of(mode::FILE | 0o644, who);
        for i in 0..20usize {
            let bytes: Vec<u8> = (0..i * 9000).map(|at| ((at * (i + 3)) >> 7) as u8).collect();
            fs.create_with(dir, format!("f{i}").as_bytes(), &file, &bytes).unwrap();
        }
        let (snapshot, clone) =
            (format!("{name}@{OURS}"), format!("{}/{OURS}-{count}", pool.name()));
        pool.snapshot(std::slice::from_ref(&snapshot), &[])
            .unwrap_or_else(|e| panic!("{name}: {e}"));
        for i in 0..10 {
            fs.unlink(dir, format!("f{i}").as_bytes()).unwrap();
        }
        fs.write(fs.resolve(format!("{OURS}/f19").as_bytes()).unwrap(), 70_000, &[7; 50_000])
            .unwrap();
        pool.clone_snapshot(&snapshot, &clone, BTreeMap::new()).unwrap();
        let of_clone = Filesystem::open(pool, &clone).unwrap();
        of_clone.create_with(of_clone.root(), b"more", &file, &[1; 30_000]).unwrap();
        drop(of_clone);
        if count % 2 == 0 {
            pool.destroy_dataset(&clone).unwrap();
            pool.destroy_snapshots(&[snapshot], false).unwrap();
        }
        count += 1;
    }
    count
}

/// Writes, has it judged by `judges`, and finds what was there as it was.
fn written(name: &str, least: usize, judges: impl Fn(&Path, &str)) -> Images {
    let (images, truth) = (golden_copy(name), truth(name));
    let names = truth.datasets();
    let pool = engine::open_for_writing(images.path(), truth.pool());
    let before = old_files(&pool, &names);
    let count = write(&pool, &names);
    assert!(count >= least, "{name}: {count} file systems were written to");
    pool.close().unwrap();
    drop(pool);
    judges(images.path(), truth.pool());
    let pool = engine::open(images.path(), truth.pool());
    let after = old_files(&pool, &names);
    drop(pool);
    assert_eq!(before.keys().collect::<Vec<_>>(), after.keys().collect::<Vec<_>>());
    for (dataset, entries) in &before {
        assert_same(entries, &after[dataset], Compare::ALL);
    }
    images
}

/// Nobody finds anything.
fn healthy(dir: &Path, pool: &str) {
    // Whether zdb looks into partitions is not for it to say on image files.
    if pool != "gpt" {
        tool::zdb_content(dir, pool);
        drop(testkit::poolaudit_kernels(dir, pool).expect_ok());
    }
    acceptance::assert_verified_kernels(dir, pool);
}

/// The damage is that of so many disks, and nothing is lost.
fn hurt(dir: &Path, pool: &str, disks: usize) {
    let scan = vdev::import::scan(&[dir.to_path_buf()]).unwrap();
    let found = scan.choose(pool).unwrap();
    let report = verify::verify_pool(found, &verify::Options::default(), &mut |_| true).unwrap();
    assert_eq!(report.verdict, verify::Verdict::Whole, "{report:#?}");
    assert_eq!((report.lost_blocks, &report.findings[..]), (0, &[][..]), "{report:#?}");
    assert_eq!(report.devices.len(), disks, "{report:#?}");
}

#[test]
fn golden_pools_are_written_to_and_keep_what_they_had() {
    for (name, least) in WRITABLE {
        let images = written(name, least, healthy);
        // The kernel reads all of two of them, of each in the long rounds, and finds what was there.
        // Of partitions inside of image files the VM knows nothing.
        let asked = name != "gpt" && (rounds(0, 1) == 1 || ["mir", "nofeat"].contains(&name));
        if asked && vm::wanted(&format!("that the OpenZFS kernel finds the old files of {name}")) {
            let old = truth(name);
            let now = testkit::kernel::truth_of(images.path(), old.pool(), &[]);
            for dataset in old.datasets() {
                let files = |truth: &testkit::Truth| -> Vec<Entry> {
                    let mut all = truth.entries(dataset).unwrap_or_default();
                    all.retain(|e| {
                        !e.path.starts_with(OURS.as_bytes())
                            && ![&b"."[..], b".zfs"].contains(&e.path.as_slice())
                    });
                    all
                };
                assert_same(&files(&old), &files(&now), Compare::ALL);
            }
        }
    }
}

/// With a disk away and another full of noise, what is written lies on those that are left, and the kernel puts
/// all of it on the noisy one, too, when it scrubs.
#[test]
fn hurt_pools_are_written_to_and_keep_what_they_had() {
    for name in HURT {
        let images = written(name, 1, |dir, pool| hurt(dir, pool, 2));
        let asked = rounds(0, 1) == 1 || name == "hurt";
        if !asked
            || !vm::wanted(&format!(
                "that the OpenZFS kernel mends {name} with what we wrote to it"
            ))
        {
            continue;
        }
        let pool = truth(name).pool().to_string();
        let script = format!(
            "zpool import -f -d /d {pool} && zpool scrub -w {pool}; zpool status -v {pool}\n\
             zpool scrub -w {pool}; zpool status {pool} | grep scan:; zpool export {pool}"
        );
        let said = testkit::Vm::new(images.path()).run(&script).expect_ok().out;
        assert!(said.contains("errors: No known data errors"), "{said}");
        let last = said.lines().rev().find(|line| line.contains("scan:")).unwrap_or_default();
        assert!(last.contains("repaired 0B") && last.contains("with 0 errors"), "{said}");
        // One of them has no label any more, and the kernel does without; in the rings of another there is noise yet.
        hurt(images.path(), &pool, 2);
    }
}

#[test]
fn what_is_not_on_the_list_is_left_alone() {
    for (name, word) in READ_ONLY {
        let images = golden_copy(name);
        let truth = truth(if name == "dirty" { "dirty.ro" } else { name });
        let pool = engine::open(images.path(), truth.pool());
        let reason = pool.read_only_reason().unwrap_or("none").to_string();
        assert!(reason.contains(word), "{name}: {reason}");
    }
}
