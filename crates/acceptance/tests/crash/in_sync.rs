//! Reads that a sync makes of file systems: it waits for the disks, as with what it writes.
//!
//! Seen red: blocks of dnodes and accounts of users that were read as if somebody asked for them, and one error of a disk
//! ended the pool.

use std::time::Duration;

use device::sim::{Fault, Kind, On, SimSet};
use fs::{Filesystem, NewObject, Who, mode};
use rt::sync::Arc;
use rt::sync::atomic::{AtomicBool, Ordering};

use crate::rig::{self, MIRROR, POOL};

const FILES: u32 = 200;

#[test]
fn a_sync_waits_for_what_it_reads_of_a_file_system() {
    let set = SimSet::new(MIRROR.disks, MIRROR.disk_bytes);
    let pool = rig::create(&set, MIRROR).unwrap();
    let name = |number: u32| format!("f{number}").into_bytes();
    let of = |uid: u32| NewObject::of(mode::FILE | 0o644, Who { uid: uid.into(), gid: uid.into() });
    {
        let fs = Filesystem::open(&pool, POOL).unwrap();
        for number in 0..FILES {
            fs.create_with(fs.root(), &name(number), &of(number), &[1; 900]).unwrap();
        }
    }
    pool.close().unwrap();
    drop(pool);

    let pool = rig::open_to_write(&set, &rig::all(&set)).unwrap();
    let fs = Filesystem::open(&pool, POOL).unwrap();
    // The maps of free space are read by the first sync, which is not what this is about.
    fs.create_with(fs.root(), b"first", &of(0), &[1; 900]).unwrap();
    pool.sync().unwrap();
    let files: Vec<_> = (0..FILES).map(|number| fs.resolve(&name(number)).unwrap()).collect();
    for file in files {
        fs.write(file, 0, &[2; 900]).unwrap();
    }
    // Nothing that the sync wants to read is at hand.
    let account = pool.store().account().clone();
    drop(account.take(account.cap()));

    pool.set_patient(true).unwrap();
    let waited = Arc::new(AtomicBool::new(false));
    let over = Arc::new(AtomicBool::new(false));
    let nurse = {
        let (pool, set, waited, over) = (pool.clone(), set.clone(), waited.clone(), over.clone());
        rt::thread::spawn("nurse", move || {
            while !over.load(Ordering::SeqCst) {
                if pool.suspended().is_some() {
                    waited.store(true, Ordering::SeqCst);
                    set.disks().iter().for_each(|disk| disk.heal());
                    pool.clear().unwrap();
                }
                rt::time::sleep(Duration::from_millis(1));
            }
        })
    };
    let error = Kind::Error(rustix::io::Errno::IO);
    set.disks().iter().for_each(|disk| _ = disk.inject(Fault::new(error.clone(), On::Reads)));
    let synced = pool.sync();
    over.store(true, Ordering::SeqCst);
    nurse.join();
    synced.unwrap();
    assert!(waited.load(Ordering::SeqCst), "nothing was read");
    pool.close().unwrap();
}
