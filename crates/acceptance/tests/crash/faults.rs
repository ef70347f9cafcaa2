//! Disks that fail while the pool is written, pools that are full, opens that must not write.

use std::collections::BTreeMap;

use device::sim::{Cut, Fault, Kind, On, SimSet};
use fs::{Filesystem, FsError, NewObject, Who, mode};
use rt::Rng;

use crate::rig::{self, RAIDZ};
use crate::story::{self, Told};
use crate::{check, judge};

/// Runs a story on disks of which some get a fault after `skip` of their writes.
fn run_with(seed: u64, faulty: &[usize], fault: &Fault) -> (SimSet, Told) {
    let set = SimSet::new(RAIDZ.disks, RAIDZ.disk_bytes);
    let told = story::tell(&set, RAIDZ, &story::steps(seed), |step| {
        if step == 1 {
            for disk in faulty {
                set.disk(*disk).inject(fault.clone());
            }
        }
    });
    (set, told)
}

fn faults(skip: u64) -> [Fault; 4] {
    let error = Kind::Error(rustix::io::Errno::IO);
    [
        Fault::new(error.clone(), On::Writes).after(skip),
        Fault::new(error.clone(), On::Writes).after(skip).times(3),
        Fault::new(error, On::Flushes).after(skip / 8),
        Fault::new(Kind::Vanish, On::Writes).after(skip),
    ]
}

/// One disk of a raidz1: nothing is noticed by those who write, and all of it can be read, with
/// that disk or without.
#[test]
fn one_failing_disk_of_a_raidz1_stops_nobody() {
    for (turn, skip) in [0, 1, 17, 60, 131].into_iter().enumerate() {
        for fault in faults(skip) {
            let disk = turn % RAIDZ.disks;
            let (set, mut told) = run_with(skip, &[disk], &fault);
            let what = format!("disk {disk}, {fault:?}");
            if let Some(error) = &told.error {
                // An open for writing may refuse a disk that lacks writes, and says so.
                assert!(error.to_lowercase().contains("read-only"), "{what}: {error}");
            }
            drop(told.pool.take());
            let crashed = SimSet::from_images(set.crash(Cut::Dropped, skip));
            let rest: Vec<usize> = (0..RAIDZ.disks).filter(|n| *n != disk).collect();
            for disks in [rig::all(&set), rest] {
                let state = check::check(&crashed, &disks, &told.history, told.acknowledged);
                state.unwrap_or_else(|e| panic!("{what}, disks {disks:?}: {e}"));
            }
        }
    }
}

/// Two disks of a raidz1: the pool is suspended with a message, and what it acknowledged is there.
#[test]
fn two_failing_disks_suspend_the_pool_and_lose_nothing_acknowledged() {
    let mut suspended = 0;
    for skip in [0, 5, 40, 90, 150] {
        for fault in faults(skip) {
            let (set, mut told) = run_with(skip, &[0, 2], &fault);
            if let Some(error) = &told.error {
                assert!(error.contains("suspended"), "{fault:?}: {error}");
                suspended += 1;
                let pool = told.pool.take().expect("a suspended pool stays open");
                // Every later change says the same, and nothing hangs.
                let error = pool.sync().unwrap_err().to_string();
                assert!(error.contains("suspended"), "{error}");
                drop(pool.close());
            }
            told.pool = None;
            let crashed = SimSet::from_images(set.crash(Cut::Dropped, skip));
            let state = check::check(&crashed, &rig::all(&set), &told.history, told.acknowledged);
            state.unwrap_or_else(|e| panic!("{fault:?}: {e}"));
        }
    }
    assert!(suspended >= 10, "only {suspended} of the faults had an effect");
}

/// A pool with a disk away opens, but not to be written: what it would then lack is noted nowhere.
#[test]
fn a_pool_that_lacks_a_disk_is_not_written() {
    let set = SimSet::new(RAIDZ.disks, RAIDZ.disk_bytes);
    let pool = rig::create(&set, RAIDZ).unwrap();
    pool.close().unwrap();
    drop(pool);
    let (before, disks) = (set.writes(), [0, 2]);
    let pool = rig::open_to_write(&set, &disks).unwrap();
    let reason = pool.read_only_reason().unwrap();
    assert!(reason.contains("d01 is missing"), "{reason}");
    let error = pool.set_property(rig::POOL, "atime", None).unwrap_err().to_string();
    assert!(error.contains("read-only"), "{error}");
    pool.close().unwrap();
    drop(pool);
    assert_eq!(set.writes(), before, "an open that may not write wrote");
    assert_eq!(rig::open_to_write(&set, &rig::all(&set)).unwrap().read_only_reason(), None);
}

/// A pool that is filled up says so, opens again, and takes new files once some are gone.
#[test]
fn a_full_pool_says_no_space_and_recovers() {
    let set = SimSet::new(RAIDZ.disks, RAIDZ.disk_bytes);
    let pool = rig::create(&set, RAIDZ).unwrap();
    let fs = Filesystem::open(&pool, rig::POOL).unwrap();
    let file = NewObject::of(mode::FILE | 0o644, Who { uid: 0, gid: 0 });
    let data = |seed| {
        let mut bytes = vec![0; 700_000];
        Rng::new(seed).fill(&mut bytes);
        bytes
    };
    let mut kept = BTreeMap::new();
    let refused = loop {
        let name = format!("f{:04}", kept.len());
        match fs.create_with(fs.root(), name.as_bytes(), &file, &data(kept.len() as u64)) {
            Ok(_) => drop(kept.insert(name, kept.len() as u64)),
            Err(e) => break e,
        }
        assert!(kept.len() < 1000, "a pool of 192 MiB takes 700 MB");
        if kept.len() % 16 == 0 {
            pool.sync().unwrap();
        }
    };
    assert!(matches!(refused, FsError::NoSpace { .. }), "{refused}");
    assert!(kept.len() > 50, "only {} files fit", kept.len());
    pool.sync().unwrap();
    drop(fs);
    pool.close().unwrap();
    drop(pool);
    judge(&set, "a full pool");

    let pool = rig::open_to_write(&set, &rig::all(&set)).unwrap();
    let fs = Filesystem::open(&pool, rig::POOL).unwrap();
    for (name, seed) in &kept {
        let mut seen = vec![0; 700_000];
        assert_eq!(fs.read(fs.resolve(name.as_bytes()).unwrap(), 0, &mut seen).unwrap(), 700_000);
        assert!(seen == data(*seed), "{name}");
    }
    for name in kept.keys().step_by(2) {
        fs.unlink(fs.root(), name.as_bytes()).unwrap();
    }
    let half = kept.len() as u64 / 2;
    for i in 0..half - 2 {
        let name = format!("again{i}");
        fs.create_with(fs.root(), name.as_bytes(), &file, &data(i)).unwrap();
    }
    drop(fs);
    pool.close().unwrap();
    drop(pool);
    judge(&set, "half emptied and filled again");
}
