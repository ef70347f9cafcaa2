//! The MOS, read in the midst of a sync that writes parts of it over in their places: no reader takes that for damage.
//!
//! Seen red: readers with the pointers of the pass before, who found "no copy of it is good", and disks whose errors of
//! checksums were counted.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use acceptance::engine::POOL;
use device::sim::SimSet;
use fs::{Filesystem, NewObject, Who, mode};
use rt::sync::Arc;
use testkit::rounds;

use crate::create;

/// As many as make object 0 of the MOS a tree of two levels.
const SNAPSHOTS: usize = 60;
/// Objects that are looked at.
const OBJECTS: u64 = 200;

fn story() {
    let pool = create(&SimSet::new(2, 64 << 20));
    let fs = Filesystem::open(&pool, POOL).unwrap();
    for at in 0..SNAPSHOTS {
        pool.snapshot(&[format!("{POOL}@{at}")], &[]).unwrap();
    }
    let over = Arc::new(AtomicBool::new(false));
    let passed = Arc::new(AtomicU64::new(0));
    let (theirs, ends, passes) = (pool.clone(), over.clone(), passed.clone());
    let reader = rt::thread::spawn("reader", move || {
        let mos = theirs.objset_at(0).unwrap().unwrap();
        let mut wrong = None;
        while !ends.load(Ordering::SeqCst) {
            // Neither objects nor blocks are at hand.
            mos.shrink();
            drop(mos.store().account().take(mos.store().account().cap()));
            for number in 1..OBJECTS {
                match mos.object(number) {
                    Ok(_) | Err(dmu::DmuError::NoObject { .. }) => {}
                    Err(error) => wrong = Some(format!("object {number}: {error}")),
                }
                passes.fetch_add(1, Ordering::SeqCst);
            }
        }
        wrong
    });
    let new = NewObject::of(mode::FILE | 0o600, Who { uid: 0, gid: 0 });
    let file = fs.create(fs.root(), b"file", &new).unwrap();
    for time in 0..12 {
        fs.write(file, 0, &vec![time; 70_000]).unwrap();
        pool.sync().unwrap();
        // Who is held up for three txgs finds what was written over since (INV-1): no read here takes more than two.
        let before = passed.load(Ordering::SeqCst);
        while passed.load(Ordering::SeqCst) == before {
            rt::time::sleep(Duration::from_millis(1));
        }
    }
    over.store(true, Ordering::SeqCst);
    assert_eq!(reader.join(), None);
    for leaf in pool.store().tree().leaves() {
        assert_eq!(leaf.errors.get().checksum, 0, "{:?}", leaf.guid());
    }
}

#[test]
fn the_mos_is_read_while_a_sync_writes_it_over() {
    for seed in 0..rounds(6, 100) {
        #[cfg(feature = "sim")]
        rt::sim::run(seed, story);
        #[cfg(not(feature = "sim"))]
        {
            let _ = seed;
            story();
        }
    }
}
