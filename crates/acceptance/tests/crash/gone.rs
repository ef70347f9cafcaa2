//! Disks that take nothing any more and leave the pool for good: they go, and nothing waits for them.

use std::time::Duration;

use device::sim::{Cut, Fault, Kind, On, SimSet};
use format::config::VdevKind;
use format::scan::ScanFunction;
use fs::{Filesystem, NewObject, Who, mode};
use pool::{Additions, Devices, Joined, NewTop, Pool, ScanAnswer, ScanStep, Stored};
use rt::sync::Arc;
use rt::sync::atomic::{AtomicBool, Ordering};

use crate::rig::{self, MIRROR, POOL, guid_on, new_leaf};

/// The disk takes no write and no flush from now on, and can be read.
fn takes_nothing(set: &SimSet, disk: usize) {
    let error = Kind::Error(rustix::io::Errno::IO);
    set.disk(disk).inject(Fault::new(error.clone(), On::Writes));
    set.disk(disk).inject(Fault::new(error, On::Flushes));
}

/// Fills what leaves lack.
fn fill(pool: &Pool) {
    assert_eq!(pool.scan_start(ScanFunction::Resilver).unwrap(), ScanAnswer::Done);
    assert_eq!(pool.scan_run(&mut |_| true).unwrap(), ScanStep::Done);
}

/// Names of the disks of the pool, and of vdevs that are there for a time.
fn shown(pool: &Pool) -> Vec<String> {
    let tree = pool.config().vdev_tree;
    let shown = tree.walk().filter_map(|vdev| match (&vdev.path, &vdev.kind) {
        (Some(path), _) => Some(String::from_utf8_lossy(path).replace("/sim/", "")),
        (None, VdevKind::Replacing | VdevKind::Spare | VdevKind::Hole) => {
            Some(String::from_utf8_lossy(vdev.kind.name()).into_owned())
        }
        _ => None,
    });
    shown.collect()
}

#[test]
fn a_dead_disk_goes_when_its_replacement_is_filled_and_holds_up_no_other() {
    let set = SimSet::new(6, MIRROR.disk_bytes);
    let pool = rig::create_on(&set, MIRROR, &[0, 1, 4]).unwrap();
    for (old, new) in [(0, 2), (1, 3)] {
        pool.attach(guid_on(&pool, old), new_leaf(&set, new), true).unwrap();
    }
    takes_nothing(&set, 0);
    fill(&pool);
    assert_eq!(shown(&pool), ["d02", "d03", "d04"]);
    let [gone] = &pool.take_unlabelled()[..] else { panic!("disk 0 took a label") };
    assert_eq!(gone.path, "/sim/d00");
    assert!(!gone.error.is_empty() && pool.take_unlabelled().is_empty());
    // One that somebody takes out goes, too.
    takes_nothing(&set, 4);
    pool.detach(guid_on(&pool, 4)).unwrap();
    assert_eq!((shown(&pool), pool.take_unlabelled().len()), (vec!["d02".into(), "d03".into()], 1));
    pool.close().unwrap();
    drop(pool);
    // What they still say of themselves does not make them parts of the pool.
    set.disks().iter().for_each(|disk| disk.heal());
    let pool = rig::open_to_write(&set, &rig::all(&set)).unwrap();
    assert_eq!((shown(&pool), pool.read_only_reason()), (vec!["d02".into(), "d03".into()], None));
    pool.close().unwrap();
}

/// Of two new disks of a mirror the first is filled before the rest, as all that it lacks the other lacks, too; whoever
/// opens the pool then knows that it is full, though the resilver has not ended.
#[test]
fn who_was_filled_first_stays_so_when_the_process_dies() {
    let set = SimSet::new(MIRROR.disks + 2, MIRROR.disk_bytes);
    let first: Vec<usize> = (0..MIRROR.disks).collect();
    let pool = rig::create_on(&set, MIRROR, &first).unwrap();
    let fs = Filesystem::open(&pool, POOL).unwrap();
    let new = NewObject::of(mode::FILE | 0o644, Who { uid: 0, gid: 0 });
    let copied = guid_on(&pool, 0);
    let attach = |disk: usize| pool.attach(copied, new_leaf(&set, disk), false).unwrap();
    let early = attach(MIRROR.disks);
    for name in b'a'..b'k' {
        fs.create_with(fs.root(), &[name], &new, &[1; 200_000]).unwrap();
        pool.sync().unwrap();
    }
    drop(fs);
    attach(MIRROR.disks + 1);
    let is_full = |pool: &Pool| {
        let tree = pool.store().tree();
        let leaf = &tree.leaves()[tree.leaf_by_guid(early).unwrap()];
        leaf.lacks.is_empty() && !leaf.is_filling()
    };
    assert_eq!(pool.scan_start(ScanFunction::Resilver).unwrap(), ScanAnswer::Done);
    while !is_full(&pool) {
        assert_eq!(pool.scan_step_within(64 << 10).unwrap(), ScanStep::More);
    }
    assert!(pool.scan_status().unwrap().unwrap().is_running(), "it has ended");
    drop(pool);
    let pool = rig::open_to_write(&set, &rig::all(&set)).unwrap();
    assert!(is_full(&pool), "it is being filled for ever");
    pool.close().unwrap();
}

/// A copy of a disk, made some time ago, in its place: it lacks what was written since, though the pool knows of nothing
/// that its disk has missed.
#[test]
fn another_device_in_the_place_of_a_disk_lacks_what_came_after_it() {
    let set = SimSet::new(MIRROR.disks, MIRROR.disk_bytes);
    let pool = rig::create(&set, MIRROR).unwrap();
    let fs = Filesystem::open(&pool, POOL).unwrap();
    let new = NewObject::of(mode::FILE | 0o644, Who { uid: 0, gid: 0 });
    fs.create_with(fs.root(), b"before", &new, &[1; 100_000]).unwrap();
    pool.sync().unwrap();
    let copy = set.disk(1).image();
    for name in [b"one", b"two"] {
        fs.create_with(fs.root(), name, &new, &[2; 100_000]).unwrap();
        pool.sync().unwrap();
    }
    let other = SimSet::from_images(vec![("d01".into(), copy)]);
    pool.online(guid_on(&pool, 1), Some(Arc::new(other.disk(0)))).unwrap();
    let lacking = pool.store().tree();
    assert!(lacking.leaves().iter().any(|leaf| !leaf.lacks.is_empty()), "it has all of it");
    fill(&pool);
    let (scrubbed, status) = (pool.scan_start(ScanFunction::Scrub).unwrap(), || pool.scan_status());
    assert_eq!(
        (scrubbed, pool.scan_run(&mut |_| true).unwrap()),
        (ScanAnswer::Done, ScanStep::Done)
    );
    let scan = status().unwrap().unwrap().scan;
    assert_eq!((scan.processed, scan.errors), (0, 0), "it was not filled");
    pool.close().unwrap();
}

/// Disk 2 is the log device of a mirror of the others.
const LOG: usize = 2;
const FILE: &[u8] = b"file";

/// A pool with a log device, and a file in it, of which changes go into the log.
struct Logged {
    pool: Arc<Pool>,
    fs: Filesystem,
    file: u64,
    /// What is in the file.
    bytes: Vec<u8>,
}

impl Logged {
    fn new(set: &SimSet) -> Logged {
        let pool = rig::create_on(set, MIRROR, &[0, 1]).unwrap();
        let log = NewTop { joined: Joined::Single, leaves: vec![new_leaf(set, LOG)], is_log: true };
        pool.add(Additions { tops: vec![(log, 9)], ..Additions::default() }).unwrap();
        let fs = Filesystem::open(&pool, POOL).unwrap();
        let new = NewObject::of(mode::FILE | 0o644, Who { uid: 0, gid: 0 });
        let file = fs.create_with(fs.root(), FILE, &new, &[]).unwrap();
        let mut logged = Logged { pool, fs, file, bytes: Vec::new() };
        // The first one begins the log.
        logged.append();
        let before = set.disk(LOG).counts().writes;
        logged.append();
        assert!(set.disk(LOG).counts().writes > before, "it is not the log device that is used");
        logged
    }

    /// Writes some more, and has it made stable; whoever would wait for a device is let go.
    fn append(&mut self) {
        let more = [self.bytes.len() as u8; 3000];
        self.fs.write(self.file, self.bytes.len() as u64, &more).unwrap();
        self.pool.set_patient(true).unwrap();
        let over = Arc::new(AtomicBool::new(false));
        let nurse = {
            let (pool, over) = (self.pool.clone(), over.clone());
            rt::thread::spawn("nurse", move || {
                while !over.load(Ordering::SeqCst) {
                    if let Some(why) = pool.suspended() {
                        pool.let_go().unwrap();
                        return Some(why);
                    }
                    rt::time::sleep(Duration::from_millis(1));
                }
                None
            })
        };
        let stable = self.fs.fsync(self.file);
        over.store(true, Ordering::SeqCst);
        assert_eq!(nurse.join(), None, "the pool is suspended");
        // Else what is done beside this would wait, too.
        self.pool.set_patient(false).unwrap();
        stable.unwrap();
        self.bytes.extend_from_slice(&more);
    }
}

/// What is in the file, when the pool is opened on these disks of a crash and its logs are replayed.
fn found(pool: &Arc<Pool>) -> Vec<u8> {
    assert_eq!(pool.read_only_reason(), None);
    assert!(fs::replay_logs(pool).unwrap().is_empty());
    let fs = Filesystem::open(pool, POOL).unwrap();
    let file = fs.resolve(FILE).unwrap();
    let mut bytes = vec![0; 1 << 20];
    let size = fs.read(file, 0, &mut bytes).unwrap();
    bytes.truncate(size);
    bytes
}

fn crashed(set: &SimSet) -> SimSet {
    SimSet::from_images(set.crash(Cut::Dropped, 1))
}

#[test]
fn a_log_device_that_dies_takes_nothing_with_it() {
    for hangs_on in [On::Writes, On::Flushes] {
        let set = SimSet::new(3, MIRROR.disk_bytes);
        let mut logged = Logged::new(&set);
        // What the log alone has is found after a crash, with it.
        assert_eq!(found(&rig::open_to_write(&crashed(&set), &[0, 1, 2]).unwrap()), logged.bytes);
        let error = Kind::Error(rustix::io::Errno::IO);
        set.disk(LOG).inject(Fault::new(error, hangs_on));
        for _ in 0..5 {
            logged.append();
            for disks in [&[0, 1][..], &[0, 1, 2]] {
                let after = crashed(&set);
                let pool = rig::open_to_write(&after, disks).unwrap();
                assert_eq!(found(&pool), logged.bytes, "{hangs_on:?}, disks {disks:?}");
            }
        }
        // By now the log is where it can be written.
        let (before, txg) = (set.writes(), logged.pool.txg());
        logged.append();
        assert!(logged.pool.txg() == txg && set.writes() > before, "each fsync is a txg");
        // The labels, too, do without it.
        logged.pool.set_pool_property("comment", Some(Stored::Text(b"x".to_vec()))).unwrap();
        logged
            .pool
            .attach(
                guid_on(&logged.pool, 1),
                new_leaf(&SimSet::new(1, MIRROR.disk_bytes), 0),
                false,
            )
            .unwrap();
        assert!(!logged.pool.needs_resilver() || logged.pool.is_filling());
        logged.pool.remove_log(guid_on(&logged.pool, LOG)).unwrap();
        assert!(shown(&logged.pool).contains(&"hole".to_owned()));
        assert_eq!(logged.pool.take_unlabelled().len(), 1);
    }
}

#[test]
fn a_log_device_can_be_taken_offline_and_back() {
    let set = SimSet::new(3, MIRROR.disk_bytes);
    let mut logged = Logged::new(&set);
    let log = guid_on(&logged.pool, LOG);
    logged.pool.offline(log, false, false).unwrap();
    let before = set.disk(LOG).counts().writes;
    (0..3).for_each(|_| logged.append());
    assert_eq!(set.disk(LOG).counts().writes, before);
    assert_eq!(found(&rig::open_to_write(&crashed(&set), &[0, 1]).unwrap()), logged.bytes);
    assert_eq!(found(&rig::open_to_write(&crashed(&set), &[0, 1, 2]).unwrap()), logged.bytes);
    logged.pool.online(log, None).unwrap();
    (0..3).for_each(|_| logged.append());
    assert!(set.disk(LOG).counts().writes > before);
    assert_eq!(found(&rig::open_to_write(&crashed(&set), &[0, 1, 2]).unwrap()), logged.bytes);
}

#[test]
fn what_a_missing_log_device_holds_is_not_given_up_unasked() {
    let set = SimSet::new(3, MIRROR.disk_bytes);
    let mut logged = Logged::new(&set);
    let synced = logged.bytes.len();
    logged.append();
    let after = crashed(&set);
    let pool = rig::open_to_write(&after, &[0, 1]).unwrap();
    let why = pool.read_only_reason().unwrap();
    assert!(why.contains("d02 is missing") && why.contains("import -m"), "{why}");
    drop(pool);
    let given_up = SimSet::from_images(after.crash(Cut::Dropped, 1));
    let pool = rig::open_as(&given_up, &[0, 1], Devices::WithoutLogs).unwrap();
    let left = found(&pool);
    assert!(left.len() < synced && logged.bytes.starts_with(&left), "{} of {synced}", left.len());
    // From then on it is a pool as any, with the log device and without it.
    pool.remove_log(guid_on(&pool, LOG)).unwrap();
    pool.close().unwrap();
    drop(pool);
    assert_eq!(found(&rig::open_to_write(&given_up, &[0, 1]).unwrap()), left);
    assert_eq!(found(&rig::open_to_write(&after, &[0, 1, 2]).unwrap()), logged.bytes);
}

/// One that is missing and holds nothing is no reason not to write.
#[test]
fn a_pool_whose_log_device_is_missing_is_written_when_its_logs_are_empty() {
    let set = SimSet::new(3, MIRROR.disk_bytes);
    let logged = Logged::new(&set);
    let bytes = logged.bytes.clone();
    logged.pool.close().unwrap();
    drop(logged);
    let pool = rig::open_to_write(&set, &[0, 1]).unwrap();
    assert_eq!(found(&pool), bytes);
    pool.remove_log(guid_on(&pool, LOG)).unwrap();
    pool.close().unwrap();
    drop(pool);
    let pool = rig::open_to_write(&set, &rig::all(&set)).unwrap();
    assert_eq!(found(&pool), bytes);
}
