//! Writers, readers, snapshots and syncs at once, under the seeded scheduler (the feature `sim`): one seed, one
//! interleaving. Without the simulator the same story is told by threads of the system.
//!
//! The one idea: every operation notes when it began and when it ended. What a snapshot, or a crash, has of a
//! writer must be what the model has after some number of its operations: no fewer than had ended before, no more
//! than had begun until then, and in their order.
//!
//! Seen red: tasks that run in the sync of a txg older than what their caller has done before (snapshots lacked
//! that; it was so once), the txg entered before a directory's lock, an object locked before its directory, no
//! second look at a name after waiting for its lock.
#![allow(clippy::unwrap_used)]

mod armed;
mod forgotten;
mod left;
mod lists;
mod midst;
mod reader;
mod stale;
mod told;
mod turns;
mod writer;

use std::collections::BTreeMap;
use std::io::Write as _;
use std::sync::atomic::{AtomicBool, Ordering};

use acceptance::engine::{self, POOL};
use device::sim::{Cut, Image, SimSet};
use device::{Device, WriteDevice};
use fs::{Filesystem, FsError, make_filesystem};
use pool::{Devices, Joined, NewLeaf, NewPool, NewTop, OpenOptions, Pool, Stored};
use rt::sync::{Arc, Mutex};
use testkit::random::Rng;
use testkit::rounds;
use testkit::workload::Op;

use reader::read;
use told::{Told, start};
use writer::{Writer, branch};

/// The last of them is who takes the snapshots.
pub(crate) const WRITERS: usize = 4;
/// Operations of each writer.
pub(crate) const OPS: usize = 16;
/// Records of files, in bytes.
pub(crate) const RECORD: u64 = 4096;
/// Size of files that are always written as a whole, in bytes: one block.
pub(crate) const WHOLE: u64 = 3000;
/// A directory in which all make, rename and remove the same few names.
pub(crate) const FOUGHT: &[u8] = b"x";
/// A file that all writers write to, each its own record.
pub(crate) const SHARED: &[u8] = b"shared";

fn options() -> OpenOptions {
    OpenOptions { workers: 2, host_id: 7, host_name: "sim".into(), new_name: None, memory: None }
}

fn create(set: &SimSet) -> Arc<Pool> {
    let leaf = |disk: device::sim::SimDisk| NewLeaf {
        path: format!("/sim/{}", disk.name()).into_bytes(),
        is_disk: false,
        device: Arc::new(disk) as Arc<dyn WriteDevice>,
    };
    let number = |name: &str, value| (name.to_string(), Stored::Number(value));
    let pool = Pool::create(NewPool {
        name: POOL.into(),
        tops: vec![NewTop {
            joined: Joined::Mirror,
            leaves: set.disks().into_iter().map(leaf).collect(),
            is_log: false,
        }],
        spares: vec![],
        ashift: 9,
        features: pool::Feature::ALL.to_vec(),
        pool_props: BTreeMap::new(),
        props: [number("compression", 15), number("recordsize", RECORD), number("xattr", 2)].into(),
        make: make_filesystem,
        command: format!("zpool create {POOL}"),
        options: options(),
    });
    let pool = pool.unwrap();
    pool.set_freeing(9, true).unwrap();
    pool
}

/// The story of a seed on the disks: all threads at once. Returns what was told.
fn tell(set: &SimSet, seed: u64) -> Arc<Told> {
    let pool = create(set);
    let fs = Arc::new(Filesystem::open(&pool, POOL).unwrap());
    for op in [
        Op::Mkdir { path: b"d0".to_vec(), mode: 0o755 },
        Op::Mkdir { path: b"d1".to_vec(), mode: 0o755 },
        Op::Mkdir { path: FOUGHT.into(), mode: 0o755 },
        Op::Create { path: SHARED.into(), mode: 0o644 },
    ] {
        engine::change(&fs, &op).unwrap();
    }
    pool.sync().unwrap();
    let told = Arc::new(Told::default());
    *told.logs.lock() = vec![Vec::new(); WRITERS];
    let mut threads = Vec::new();
    let writer = |number: usize| {
        let rng = Rng::of(seed, number as u64);
        Writer { number, rng, count: 0, tree: start() }
    };
    for number in 0..WRITERS - 1 {
        let (fs, told, writer) = (fs.clone(), told.clone(), writer(number));
        threads
            .push(rt::thread::spawn(format!("writer {number}"), move || writer.work(&fs, &told)));
    }
    for number in 0..2 {
        let (fs, told, mut rng) = (fs.clone(), told.clone(), Rng::of(seed, 100 + number));
        let body = move || (0..10).for_each(|_| read(&fs, &told, &mut rng));
        threads.push(rt::thread::spawn(format!("reader {number}"), body));
    }
    let over = Arc::new(AtomicBool::new(false));
    let (theirs, known, ends) = (pool.clone(), told.clone(), over.clone());
    let syncs = rt::thread::spawn("syncs", move || {
        while !ends.load(Ordering::SeqCst) {
            let began = known.now();
            theirs.sync().unwrap();
            known.synced.fetch_max(began, Ordering::SeqCst);
        }
    });
    let (theirs, fs_of, known, last) =
        (pool.clone(), fs.clone(), told.clone(), writer(WRITERS - 1));
    threads.push(rt::thread::spawn("snapshots", move || branch(&theirs, &fs_of, &known, last)));
    threads.into_iter().for_each(rt::thread::JoinHandle::join);
    over.store(true, Ordering::SeqCst);
    syncs.join();
    told.check(&fs, u64::MAX, u64::MAX).unwrap_or_else(|e| panic!("in the end: {e}"));
    let left = fs.read_dir(fs.resolve(FOUGHT).unwrap()).unwrap().len() as i64;
    assert_eq!(told.fought.load(Ordering::SeqCst), left, "names made and not removed");
    drop(fs);
    if seed.is_multiple_of(2) {
        pool.close().unwrap();
        told.synced.store(u64::MAX, Ordering::SeqCst);
    }
    told
}

/// What is on the disks is the end of the story, or, after a cut, no less than was acknowledged; and the judge
/// finds nothing.
fn judge(images: Vec<(String, Image)>, told: &Told) {
    let set = SimSet::from_images(images);
    let reader = |disk: device::sim::SimDisk| (None, Arc::new(disk.reader()) as Arc<dyn Device>);
    let scan = vdev::import::scan_devices(set.disks().into_iter().map(reader).collect());
    let found = scan.choose(POOL).unwrap();
    let memory = verify::Options { memory: 64 << 20, ..verify::Options::default() };
    let report = verify::verify_pool(found, &memory, &mut |_| true).unwrap();
    let clean = report.verdict == verify::Verdict::Clean;
    assert!(clean, "{:?} {:?}", report.findings, report.devices);
    let tree = Arc::new(found.open_tree().unwrap());
    let pool = Pool::open(Devices::ReadOnly(tree), &found.uberblocks, &options()).unwrap();
    let fs = Filesystem::open(&pool, POOL).unwrap();
    let synced = told.synced.load(Ordering::SeqCst);
    told.check(&fs, synced, u64::MAX).unwrap_or_else(|e| panic!("on disk: {e}"));
    for taken in told.snapshots.lock().clone() {
        let name = &taken.name;
        let made = taken.made.1.expect("the story was told to its end");
        match Filesystem::open(&pool, name) {
            Ok(fs) => {
                assert!(taken.gone.is_none_or(|(_, gone)| gone.is_none()), "{name} is still there");
                told.check(&fs, taken.made.0, made).unwrap_or_else(|e| panic!("{name}: {e}"));
            }
            Err(FsError::Pool(_)) => assert!(taken.gone.is_some(), "{name} is not there"),
            Err(e) => panic!("{name}: {e}"),
        }
    }
}

/// Disks with what was told on them.
type Outcome = Arc<Mutex<Option<(SimSet, Arc<Told>)>>>;

fn one(seed: u64) {
    let outcome = Outcome::default();
    let out = outcome.clone();
    let body = move || {
        let set = SimSet::new(2, 64 << 20);
        let told = tell(&set, seed);
        *out.lock() = Some((set, told));
    };
    #[cfg(feature = "sim")]
    rt::sim::run(seed, body);
    #[cfg(not(feature = "sim"))]
    body();
    let (set, told) = outcome.lock().take().unwrap();
    judge(set.crash(Cut::ALL[(seed / 2 % 4) as usize], seed), &told);
}

#[test]
fn every_interleaving_is_some_order_of_what_was_done() {
    let only = std::env::var("THUMPER_ONLY").ok().map(|n| n.parse::<u64>().unwrap());
    let seeds = if cfg!(feature = "sim") { rounds(25, 1000) } else { rounds(8, 40) };
    for seed in only.map_or(0..seeds, |only| only..only + 1) {
        let tried = std::panic::catch_unwind(|| one(seed));
        if let Err(payload) = tried {
            drop(writeln!(std::io::stderr(), "THUMPER_ONLY={seed} repeats what failed"));
            std::panic::resume_unwind(payload);
        }
    }
}
