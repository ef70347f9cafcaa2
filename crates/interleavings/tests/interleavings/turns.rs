//! What is no object of a file system's tree is changed by several at once, too: volumes, and the quotas of users.
//!
//! Seen red: without turns, who entered the older txg came second ("INV-6: a change to a frozen txg").

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, Ordering};

use acceptance::engine::POOL;
use device::sim::SimSet;
use fs::{Filesystem, Volume};
use pool::props::space::Owner;
use rt::sync::Arc;
use rt::thread::{JoinHandle, spawn};
use testkit::rounds;

use crate::{RECORD, create};

/// Changes of each who changes something.
const TIMES: u64 = 10;

fn story() {
    let pool = create(&SimSet::new(2, 64 << 20));
    let fs = Arc::new(Filesystem::open(&pool, POOL).unwrap());
    let name = format!("{POOL}/volume");
    pool.create_volume(&name, BTreeMap::new(), 12 * RECORD, RECORD as u32).unwrap();
    let over = Arc::new(AtomicBool::new(false));
    let (theirs, ends) = (pool.clone(), over.clone());
    let syncs = spawn("syncs", move || {
        while !ends.load(Ordering::SeqCst) {
            theirs.sync().unwrap();
        }
    });
    let changers = (0..12u64).map(|number| {
        let (pool, fs, name) = (pool.clone(), fs.clone(), name.clone());
        spawn(format!("changer {number}"), move || {
            let volume = Volume::open(&pool, &name).unwrap().unwrap();
            for time in 1..=TIMES {
                volume.write(&pool, number * RECORD, &[time as u8; RECORD as usize]).unwrap();
                fs.set_quota(Owner::User, false, number, time << 30).unwrap();
            }
        })
    });
    let changers: Vec<_> = changers.collect();
    changers.into_iter().for_each(JoinHandle::join);
    over.store(true, Ordering::SeqCst);
    syncs.join();
}

#[test]
fn who_changes_what_is_in_no_directory_takes_turns() {
    for seed in 0..rounds(10, 200) {
        #[cfg(feature = "sim")]
        rt::sim::run(seed, story);
        #[cfg(not(feature = "sim"))]
        {
            let _ = seed;
            story();
        }
    }
}
