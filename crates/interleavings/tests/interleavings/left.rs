//! An intent log is worked off, or left, while the pool frees by itself what was removed from the same data set.
//!
//! Seen red: a txg that had begun before the data set was let go of went on with it beside who opened it anew.

use acceptance::engine::POOL;
use device::Device;
use device::sim::{Cut, SimSet};
use fs::{Filesystem, NewObject, Who, mode};
use pool::Pool;
use pool::dsl::lookup;
use rt::sync::{Arc, Mutex};
use testkit::rounds;

use crate::{RECORD, create};

/// A pool in which a large file waits to be freed, by txgs that nobody asks for from now on, and whose log is being worked
/// off.
fn begun(set: &SimSet) -> Arc<Pool> {
    let pool = create(set);
    pool.set_freeing(1, false).unwrap();
    let fs = Filesystem::open(&pool, POOL).unwrap();
    let new = NewObject::of(mode::FILE | 0o600, Who { uid: 0, gid: 0 });
    let file = fs.create(fs.root(), b"large", &new).unwrap();
    fs.write(file, 0, &vec![7; 40 * RECORD as usize]).unwrap();
    pool.sync().unwrap();
    fs.unlink(fs.root(), b"large").unwrap();
    pool.sync().unwrap();
    drop(fs);
    drop(pool.begin_replay(POOL).unwrap());
    pool.set_freeing(1, true).unwrap();
    drop(Filesystem::open(&pool, POOL).unwrap());
    assert!(pool.is_freeing().unwrap());
    pool
}

/// What is there of the data set for who opens it is what the pool has of it, and stays so as long as he changes nothing.
fn is_present(pool: &Pool) {
    let there = pool.dataset(POOL).unwrap();
    (0..2).for_each(|_| assert!(pool.sync().is_ok()));
    let found = lookup::find(pool.mos(), POOL).unwrap();
    assert_eq!(there.objset.root().birth(), found.phys.bp.birth());
}

fn left() {
    let pool = begun(&SimSet::new(2, 64 << 20));
    pool.leave_log(POOL, "a record cannot be done again").unwrap();
    is_present(&pool);
}

fn worked_off() {
    let pool = begun(&SimSet::new(2, 64 << 20));
    pool.end_replay(&pool.dataset(POOL).unwrap()).unwrap();
    is_present(&pool);
}

/// Who goes on with it finds all of it as it is, and so does the judge.
fn gone_on_with(seed: u64) {
    let outcome = Arc::new(Mutex::new(None));
    let out = outcome.clone();
    let body = move || {
        let set = SimSet::new(2, 64 << 20);
        let pool = begun(&set);
        pool.end_replay(&pool.dataset(POOL).unwrap()).unwrap();
        let fs = Filesystem::open(&pool, POOL).unwrap();
        let new = NewObject::of(mode::FILE | 0o600, Who { uid: 0, gid: 0 });
        for number in 0..4 {
            let file = fs.create(fs.root(), format!("new{number}").as_bytes(), &new).unwrap();
            fs.write(file, 0, &[number; 2 * RECORD as usize]).unwrap();
            pool.sync().unwrap();
        }
        drop(fs);
        pool.close().unwrap();
        *out.lock() = Some(set);
    };
    #[cfg(feature = "sim")]
    rt::sim::run(seed, body);
    #[cfg(not(feature = "sim"))]
    body();
    let set = outcome.lock().take().unwrap();
    let set = SimSet::from_images(set.crash(Cut::ALL[0], seed));
    let reader = |disk: device::sim::SimDisk| (None, Arc::new(disk.reader()) as Arc<dyn Device>);
    let scan = vdev::import::scan_devices(set.disks().into_iter().map(reader).collect());
    let memory = verify::Options { memory: 64 << 20, ..verify::Options::default() };
    let report = verify::verify_pool(scan.choose(POOL).unwrap(), &memory, &mut |_| true).unwrap();
    assert!(report.verdict == verify::Verdict::Clean, "{:?}", report.findings);
}

#[test]
fn who_waits_for_no_log_any_more_is_what_the_pool_has() {
    for seed in 0..rounds(40, 1000) {
        for story in [left, worked_off] {
            #[cfg(feature = "sim")]
            rt::sim::run(seed, story);
            #[cfg(not(feature = "sim"))]
            story();
        }
        gone_on_with(seed);
    }
}
