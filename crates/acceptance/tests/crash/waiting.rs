//! Disks that are away while the sync reads: it waits for them, and whoever only asks does not.

use std::time::Duration;

use device::sim::{Fault, Kind, On, SimSet};
use format::label::DATA_AT;
use format::scan::Bookmark;
use fs::{Filesystem, NewObject, Who, mode};
use pool::Pool;
use rt::sync::Arc;
use rt::sync::atomic::{AtomicBool, Ordering};
use testkit::noise;

use crate::rig::{self, MIRROR, POOL};

const PATIENCE: Duration = Duration::from_secs(10);

/// Becomes `done` in time.
fn in_time(done: impl Fn() -> bool) -> bool {
    let start = rt::time::now();
    while !done() && start.elapsed() < PATIENCE {
        rt::time::sleep(Duration::from_millis(1));
    }
    done()
}

/// What status, list and iostat tell of space.
fn told(pool: &Pool) -> u64 {
    let found = pool::dsl::lookup::find(pool.mos(), POOL).unwrap();
    pool.space().and(pool.fragmentation_by_top()).and(pool.available(&found)).unwrap();
    pool.space_by_top().unwrap().iter().map(|(_, _, allocated)| allocated).sum()
}

/// Seen red: the space map was read with all metaslabs locked.
#[test]
fn a_pool_that_waits_for_a_space_map_still_tells_of_its_space() {
    let set = SimSet::new(MIRROR.disks, MIRROR.disk_bytes);
    let pool = rig::create(&set, MIRROR).unwrap();
    let new = NewObject::of(mode::FILE | 0o644, Who { uid: 0, gid: 0 });
    let put = move |fs: &Filesystem, name: &[u8]| {
        fs.create_with(fs.root(), name, &new, &noise(1, 300_000)).unwrap();
        fs.pool().sync()
    };
    put(&Filesystem::open(&pool, POOL).unwrap(), b"before").unwrap();
    pool.close().unwrap();
    drop(pool);
    let pool = rig::open_to_write(&set, &rig::all(&set)).unwrap();
    let fs = Filesystem::open(&pool, POOL).unwrap();
    // What was asked before is in the cache.
    let before = told(&pool);
    assert!(before > 300_000 && fs.read_dir(fs.root()).unwrap().len() == 1);
    pool.set_patient(true).unwrap();
    let error = Kind::Error(rustix::io::Errno::IO);
    for disk in set.disks() {
        disk.inject(Fault::new(error.clone(), On::Reads));
    }
    let writer = rt::thread::spawn("writer", move || put(&fs, b"after"));
    assert!(in_time(|| pool.suspended().is_some()), "nothing waits");
    let answered = Arc::new(AtomicBool::new(false));
    let asker = {
        let (pool, answered) = (pool.clone(), answered.clone());
        rt::thread::spawn("asker", move || {
            let told = told(&pool);
            answered.store(true, Ordering::SeqCst);
            told
        })
    };
    let answered = in_time(|| answered.load(Ordering::SeqCst));
    set.disks().iter().for_each(|disk| disk.heal());
    pool.clear().unwrap();
    writer.join().unwrap();
    assert_eq!((answered, asker.join()), (true, before));
    assert!(told(&pool) > before + 300_000);
    pool.close().unwrap();
}

/// What a file that is freed in portions takes cannot be read for a while.
///
/// Seen red: it was left alone until the pool was opened again.
#[test]
fn a_file_of_which_disks_give_nothing_is_freed_when_they_do() {
    let set = SimSet::new(MIRROR.disks, MIRROR.disk_bytes);
    let pool = rig::create(&set, MIRROR).unwrap();
    let new = NewObject::of(mode::FILE | 0o644, Who { uid: 0, gid: 0 });
    let fs = Filesystem::open(&pool, POOL).unwrap();
    let large = fs.create_with(fs.root(), b"large", &new, &noise(1, 5 << 20)).unwrap();
    pool.sync().unwrap();
    let objset = pool.dataset(POOL).unwrap().object;
    let at = Bookmark { objset, object: large, level: 1, block: 0 };
    let bp = pool.pointer_at(at).unwrap().unwrap();
    drop(fs);
    pool.close().unwrap();
    drop(pool);

    let pool = rig::open_to_write(&set, &rig::all(&set)).unwrap();
    let fs = Filesystem::open(&pool, POOL).unwrap();
    let full = told(&pool);
    let error = Kind::Error(rustix::io::Errno::IO);
    for (disk, dva) in set.disks().iter().flat_map(|disk| bp.dvas().map(move |dva| (disk, dva))) {
        let place = DATA_AT + dva.offset..DATA_AT + dva.offset + dva.asize;
        disk.inject(Fault::new(error.clone(), On::Reads).within(place));
    }
    fs.unlink(fs.root(), b"large").unwrap();
    let first = pool.txg();
    pool.sync().unwrap();
    pool.set_freeing(1000, true).unwrap();
    pool.finish_freeing(|_| true).unwrap();
    assert_eq!((fs.delete_queue().unwrap(), told(&pool) > full - 100_000), (vec![large], true));
    assert!(pool.txg() < first + 5, "it is tried again and again");
    set.disks().iter().for_each(|disk| disk.heal());
    fs.create_with(fs.root(), b"small", &new, b"small").unwrap();
    pool.sync().unwrap();
    assert_eq!(fs.delete_queue().unwrap(), [0; 0]);
    assert!(told(&pool) < full - (4 << 20));
    drop(fs);
    pool.close().unwrap();
}

/// Seen red: blocks of dnodes and accounts of users were read as if somebody asked for them, and one error of a disk
/// ended the pool.
#[test]
fn a_sync_waits_for_what_it_reads_of_a_file_system() {
    const FILES: u32 = 200;
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
