//! A pool that was not exported, as its intent logs have it: what the kernel made of them on a copy, done in
//! memory over images that stay as they are.

use acceptance::{engine, thumper};
use fs::{Filesystem, Replay, Volume};
use pool::{Devices, Pool};
use rt::sync::Arc;
use testkit::truth::hex_digest;
use testkit::{Compare, Ran, assert_same, golden, temp_dir, truth};
use vdev::import;

use crate::compare::sha256;
use crate::{open, options};

/// What a replay gives back: all but times, which are those of the replay but where they were set.
const REPLAYED: Compare = Compare { objects: true, mtime: false, ..Compare::MODEL };

fn in_memory() -> Arc<Pool> {
    let scan = import::scan(&[golden("dirty")]).unwrap();
    let found = scan.choose("dirty").unwrap();
    let tree = found.open_memory_tree(&found.root, 64 << 20).unwrap();
    Pool::open(Devices::InMemory(tree), &found.uberblocks, &options()).unwrap()
}

#[test]
fn what_the_log_holds_is_done_again() {
    let truth = truth("dirty");
    let as_it_is = open(&[golden("dirty")], "dirty");
    let mut replayed = 0;
    for dataset in ["dirty/always", "dirty/through", "dirty/lost", "dirty"] {
        let log = Replay::read(&as_it_is, dataset).unwrap();
        let pool = in_memory();
        let fs = Filesystem::open(&pool, dataset).unwrap();
        if let Some(log) = log {
            replayed += log.len();
            log.apply(&fs).unwrap();
        }
        // Once as it is in memory, once as it would be on disk.
        for _ in 0..2 {
            let told = truth.entries(dataset).unwrap();
            assert_same(&told, &engine::list(&fs).unwrap(), REPLAYED);
            for entry in &told {
                let attrs = fs.attrs(entry.object).unwrap();
                if entry.path == b"dir/renamed" {
                    assert_eq!((attrs.mtime.secs, attrs.mtime.nanos), entry.mtime);
                }
            }
            pool.sync().unwrap();
        }
    }
    assert!(replayed > 30, "{replayed} records");
}

#[test]
fn who_asks_for_it_gets_it_and_the_images_stay_as_they_are() {
    let aside = temp_dir();
    let run = |words: &str| {
        let mut command = thumper(&aside.path().join("pools"));
        command.arg("-d").arg(golden("dirty")).args(words.split(' '));
        Ran::of(&mut command)
    };
    let images = || {
        let dir = golden("dirty").read_dir().unwrap();
        let mut paths: Vec<_> = dir.map(|entry| entry.unwrap().path()).collect();
        paths.sort();
        paths.into_iter().map(|path| hex_digest(&std::fs::read(path).unwrap()))
    };
    let before: Vec<_> = images().collect();
    let plain = run("ls dirty/always:").expect_ok().out;
    assert!(plain.contains("old4\n") && !plain.contains("w60000\n"), "{plain}");
    let replayed = run("ls --replay dirty/always:").expect_ok().out;
    assert!(!replayed.contains("old4\n") && replayed.contains("w60000\n"), "{replayed}");
    // A snapshot has no log.
    let synced = run("ls --replay dirty/always@synced:").expect_ok().out;
    assert!(synced.contains("old4\n"), "{synced}");
    let out = aside.path().join("w60000");
    drop(run(&format!("get --replay dirty/always:w60000 {}", out.display())).expect_ok());
    let told = truth("dirty").entries("dirty/always").unwrap();
    let told = told.iter().find(|entry| entry.path == b"w60000").unwrap();
    let bytes = std::fs::read(&out).unwrap();
    assert_eq!(Some(hex_digest(&bytes)), told.sha256);
    assert_eq!(run("cat --replay dirty/always:w1").expect_ok().out.len(), 1);
    assert_eq!(images().collect::<Vec<_>>(), before);
}

#[test]
fn a_volume_is_as_its_log_has_it() {
    let as_it_is = open(&[golden("dirty")], "dirty");
    let pool = in_memory();
    let volume = Volume::open(&pool, "dirty/vol").unwrap().unwrap();
    if let Some(log) = Replay::read(&as_it_is, "dirty/vol").unwrap() {
        log.apply_volume(&pool, &volume).unwrap();
    }
    let seen = sha256(&[(0, volume.size())], |at, buf| volume.read(at, buf).unwrap());
    assert!(truth("dirty").volumes().contains(&("dirty/vol", 4 << 20, &seen)));
}
