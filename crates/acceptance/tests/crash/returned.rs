//! Disks that come back, and disks that are filled: what is taken for theirs is what they have, no more and no less.
//!
//! Seen red: a disk that was used elsewhere meanwhile was taken with its uberblocks, which the next open then took for the
//! pool's; a DTL that begins at 0 never ended; one lost block kept a disk from ever being filled; a scan that was hushed
//! for a moment counted as done what it had skipped.

use std::collections::BTreeMap;
use std::time::Duration;

use device::sim::{Fault, Kind, On, SimDisk, SimSet};
use device::{Device, WriteDevice};
use format::BlkPtr;
use format::label::DATA_AT;
use format::scan::{Bookmark, ScanFunction};
use fs::{Filesystem, NewObject, Who, mode};
use pool::{Devices, OpenOptions, Pool, ScanAnswer, ScanStatus, ScanStep};
use rt::sync::Arc;
use rt::sync::Mutex;
use vdev::WriteTree;
use vdev::label::Labels;

use crate::rig::{self, MIRROR, POOL, RAIDZ, Shape, guid_on};

/// A file of noise that is on disk then; its object.
fn put(pool: &Arc<Pool>, name: &str, bytes: usize) -> u64 {
    let fs = Filesystem::open(pool, POOL).unwrap();
    let new = NewObject::of(mode::FILE | 0o644, Who { uid: 0, gid: 0 });
    let mut data = vec![0; bytes];
    rt::Rng::new(name.len() as u64 + 1).fill(&mut data);
    let object = fs.create_with(fs.root(), name.as_bytes(), &new, &data).unwrap();
    pool.sync().unwrap();
    object
}

fn names(pool: &Arc<Pool>) -> Vec<String> {
    let fs = Filesystem::open(pool, POOL).unwrap();
    let entries = fs.read_dir(fs.root()).unwrap();
    let mut names: Vec<String> =
        entries.iter().map(|entry| String::from_utf8_lossy(&entry.name).into_owned()).collect();
    names.sort_unstable();
    names
}

/// The pointer to a record of a file.
fn pointer(pool: &Pool, object: u64, block: u64) -> BlkPtr {
    let objset = pool.dataset(POOL).unwrap().object;
    pool.pointer_at(Bookmark { objset, object, level: 0, block }).unwrap().unwrap()
}

fn scan(pool: &Pool, function: ScanFunction) -> ScanStatus {
    assert_eq!(pool.scan_start(function).unwrap(), ScanAnswer::Done);
    assert_eq!(pool.scan_run(&mut |_| true).unwrap(), ScanStep::Done);
    pool.scan_status().unwrap().unwrap()
}

/// Does the leaf on a disk lack something?
fn lacks(pool: &Pool, disk: usize) -> bool {
    let tree = pool.store().tree();
    let leaf = tree.leaf_by_guid(guid_on(pool, disk)).unwrap();
    !tree.leaves()[leaf].lacks.is_empty()
}

/// A disk as it was at some time, for itself.
fn copy_of(set: &SimSet, disk: usize) -> SimSet {
    SimSet::from_images(vec![(format!("d{disk:02}"), set.disk(disk).image())])
}

/// A copy of a disk was imported alone, changed there, and is where the disk was: that is another pool by now, however
/// much newer it is.
#[test]
fn a_disk_that_was_used_elsewhere_is_not_taken_back() {
    let set = SimSet::new(MIRROR.disks, MIRROR.disk_bytes);
    let pool = rig::create(&set, MIRROR).unwrap();
    put(&pool, "old", 50_000);
    let other = copy_of(&set, 1);
    {
        let elsewhere = rig::open_to_write(&other, &[0]).unwrap();
        for n in 0..12 {
            put(&elsewhere, &format!("elsewhere{n:02}"), 9_000);
        }
        elsewhere.close().unwrap();
    }
    put(&pool, "precious", 50_000);
    let mirrored = other.disk(0).image().hash();
    let taken = pool.online(guid_on(&pool, 1), Some(Arc::new(other.disk(0))));
    let why = taken.expect_err("it was taken").to_string();
    assert!(why.contains("d01") && why.contains("zpool replace"), "{why}");
    assert_eq!(other.disk(0).image().hash(), mirrored, "it was written to");
    pool.close().unwrap();
    drop(pool);
    let pool = rig::open_to_write(&set, &rig::all(&set)).unwrap();
    assert_eq!(names(&pool), ["old", "precious"]);
    pool.close().unwrap();
}

/// The uberblock of a txg went out on one disk only before a crash, and the pool was opened without that one: its disk has
/// all that the pool has, and an uberblock that is nobody's. Cut anywhere while it is taken back, the pool is whole.
#[test]
fn a_disk_that_a_crash_left_ahead_is_taken_back() {
    let set = SimSet::new(MIRROR.disks, MIRROR.disk_bytes);
    let pool = rig::create(&set, MIRROR).unwrap();
    put(&pool, "old", 50_000);
    let behind = set.disk(0).image();
    let before = pool.txg();
    let newest = || Labels::read(&set.disk(1)).uberblocks[0];
    let known = newest();
    put(&pool, "cut off", 50_000);
    let lost = newest();
    assert_eq!(Labels::read(&set.disk(1)).uberblocks[1], known, "two uberblocks were written");
    assert!(lost.txg.get() > before);
    let ahead = set.disk(1).image();
    drop(pool);
    let set = SimSet::from_images(vec![("d00".into(), behind), ("d01".into(), ahead)]);
    let pool = rig::open_to_write(&set, &[0]).unwrap();
    assert_eq!((pool.txg(), names(&pool)), (before, vec!["old".to_owned()]));
    set.record();
    pool.online(guid_on(&pool, 1), Some(Arc::new(set.disk(1)))).unwrap();
    let log = set.log();
    let mut replay = log.replay();
    for index in 0..=log.writes() {
        replay.advance_to(index);
        let images =
            SimSet::from_images(replay.crash(device::sim::Cut::ALL[index as usize % 4], index));
        let is_it = |u: &format::Uberblock| u.txg == lost.txg && u.root == lost.root;
        let stray = Labels::read(&images.disk(1)).uberblocks.iter().any(is_it);
        let pool = rig::open_to_write(&images, &rig::all(&images)).unwrap();
        let names = names(&pool);
        assert!(names == ["old"] || stray && names == ["cut off", "old"], "{index}: {names:?}");
        // What it goes on from is whole.
        assert_eq!(scan(&pool, ScanFunction::Scrub).scan.errors, 0, "{index}");
        pool.close().unwrap();
    }
    put(&pool, "new", 50_000);
    if pool.needs_resilver() {
        assert_eq!(scan(&pool, ScanFunction::Resilver).scan.errors, 0);
    }
    assert!(!lacks(&pool, 1), "it counts as never filled");
    let scrubbed = scan(&pool, ScanFunction::Scrub).scan;
    assert_eq!((scrubbed.errors, scrubbed.processed), (0, 0));
    pool.close().unwrap();
    drop(pool);
    let pool = rig::open_to_write(&set, &[1]).unwrap();
    assert_eq!(names(&pool), ["new", "old"]);
    pool.close().unwrap();
}

/// A DTL on disk may begin at 0, where nothing was ever written.
#[test]
fn who_lacks_everything_from_the_beginning_is_filled() {
    let set = SimSet::new(MIRROR.disks, MIRROR.disk_bytes);
    let pool = rig::create(&set, MIRROR).unwrap();
    put(&pool, "old", 50_000);
    let tree = pool.store().tree();
    let leaf = &tree.leaves()[tree.leaf_by_guid(guid_on(&pool, 1)).unwrap()];
    leaf.lacks.add(0, pool.txg() + 1);
    assert_eq!(scan(&pool, ScanFunction::Resilver).scan.errors, 0);
    assert!(leaf.lacks.is_empty(), "{:?}", leaf.lacks.txgs());
    pool.close().unwrap();
}

/// Where in the disk the first sector is that it has of a block of a raidz.
fn sector_on(bp: &BlkPtr, shape: Shape, disk: usize) -> u64 {
    let first = bp.dvas().next().unwrap().offset >> shape.ashift;
    let mut sectors = first..first + shape.disks as u64;
    let sector = sectors.find(|sector| sector % shape.disks as u64 == disk as u64).unwrap();
    DATA_AT + ((sector / shape.disks as u64) << shape.ashift)
}

/// A raidz whose disk 0 is replaced by disk 3, and a record of a file that disk 1 has wrong or does not give.
fn replaced(hurt: impl FnOnce(&SimDisk, u64)) -> (SimSet, Arc<Pool>, ScanStatus) {
    let set = SimSet::new(RAIDZ.disks + 1, RAIDZ.disk_bytes);
    let pool = rig::create(&set, RAIDZ).unwrap();
    let file = put(&pool, "old", 400_000);
    let bp = pointer(&pool, file, 3);
    hurt(&set.disk(1), sector_on(&bp, RAIDZ, 1));
    pool.close().unwrap();
    drop(pool);
    let pool = rig::open_to_write(&set, &[1, 2]).unwrap();
    pool.attach(guid_on(&pool, 0), rig::new_leaf(&set, 3), true).unwrap();
    let status = scan(&pool, ScanFunction::Resilver);
    (set, pool, status)
}

/// What no disk can give no disk lacks: the file is told as damaged, and the replacement ends.
#[test]
fn a_lost_block_keeps_no_disk_from_being_filled() {
    let (set, pool, status) = replaced(|disk, at| disk.overwrite(at, &[0x5a; 4096]));
    assert_eq!(status.scan.errors, 1, "{status:?}");
    assert!(!lacks(&pool, 3));
    let paths: Vec<_> = pool.config().vdev_tree.leaves().map(|leaf| leaf.path.clone()).collect();
    assert_eq!(paths.len(), 3, "the replaced disk is there still: {paths:?}");
    pool.offline(guid_on(&pool, 1), false, false).unwrap();
    pool.close().unwrap();
    drop((pool, set));
}

/// A disk that does not answer may answer again: what it has then is lacked until then.
#[test]
fn what_could_not_be_read_is_lacked_still() {
    let (_set, pool, status) = replaced(|disk, at| {
        let fault = Fault::new(Kind::Error(rustix::io::Errno::IO), On::Reads);
        disk.inject(fault.within(at..at + 4096));
    });
    assert_eq!(status.scan.errors, 1, "{status:?}");
    assert!(lacks(&pool, 3), "what it was not given it counts as having");
    pool.close().unwrap();
}

/// What is lost only as long as a disk is away its mirror lacks until then.
#[test]
fn what_a_disk_that_is_away_has_is_lacked_still() {
    let set = SimSet::new(MIRROR.disks + 1, MIRROR.disk_bytes);
    let pool = rig::create(&set, MIRROR).unwrap();
    let file = put(&pool, "old", 100_000);
    let bp = pointer(&pool, file, 3);
    let at = DATA_AT + bp.dvas().next().unwrap().offset;
    set.disk(1).overwrite(at, &[0x5a; 4096]);
    pool.close().unwrap();
    drop(pool);
    let pool = rig::open_to_write(&set, &[1]).unwrap();
    pool.attach(guid_on(&pool, 1), rig::new_leaf(&set, 2), false).unwrap();
    assert_eq!(scan(&pool, ScanFunction::Resilver).scan.errors, 1);
    assert!(lacks(&pool, 2), "what it was not given it counts as having");
    pool.online(guid_on(&pool, 0), Some(Arc::new(set.disk(0)))).unwrap();
    assert_eq!(scan(&pool, ScanFunction::Resilver).scan.errors, 0);
    assert!(!lacks(&pool, 2) && !lacks(&pool, 0));
    let scrubbed = scan(&pool, ScanFunction::Scrub).scan;
    assert_eq!(scrubbed.errors, 0);
    pool.close().unwrap();
}

type Hook = Box<dyn FnOnce() + Send>;

/// A disk at which something happens: during the read of a place, or at the next flush.
struct Hooked {
    disk: SimDisk,
    read: Mutex<Option<(u64, Hook)>>,
    flush: Mutex<Option<Hook>>,
}

impl Device for Hooked {
    testkit::of_the_disk_inside!(disk);

    fn read_at(&self, offset: u64, buf: &mut [u8]) -> device::Result<()> {
        let range = offset..offset + buf.len() as u64;
        let hook = self.read.lock().take_if(|(at, _)| range.contains(at));
        hook.into_iter().for_each(|(_, hook)| hook());
        self.disk.read_at(offset, buf)
    }
}

impl WriteDevice for Hooked {
    fn write_at(&self, offset: u64, bytes: &[u8]) -> device::Result<()> {
        self.disk.write_at(offset, bytes)
    }

    fn flush(&self) -> device::Result<()> {
        let hook = self.flush.lock().take();
        hook.into_iter().for_each(|hook| hook());
        self.disk.flush()
    }
}

/// The pool on the disks of a set, of which the first has hooks.
fn hooked(set: &SimSet) -> (Arc<Pool>, Arc<Hooked>) {
    let (read, flush) = Default::default();
    let disk = Arc::new(Hooked { disk: set.disk(0), read, flush });
    let found = rig::scan(set, &rig::all(set)).pools.remove(0);
    let devices = found.members.iter().map(|member| -> (u64, Arc<dyn WriteDevice>) {
        let name = member.candidate.device.name();
        let other = set.disks().into_iter().find(|other| other.name() == name).unwrap();
        (member.guid, if name == disk.name() { disk.clone() } else { Arc::new(other) })
    });
    let tree = WriteTree::open(&found.root, devices.collect::<BTreeMap<_, _>>()).unwrap();
    let options = OpenOptions {
        workers: 2,
        host_id: rig::HOSTS[0],
        host_name: "hooked".into(),
        new_name: None,
        memory: None,
    };
    (Pool::open(Devices::Writable(tree), &found.uberblocks, &options).unwrap(), disk)
}

#[test]
fn a_scan_that_was_hushed_for_a_moment_leaves_nothing_out() {
    let set = SimSet::new(MIRROR.disks, MIRROR.disk_bytes);
    let pool = rig::create(&set, MIRROR).unwrap();
    let file = put(&pool, "old", 3_200_000);
    let at = |block| DATA_AT + pointer(&pool, file, block).dvas().next().unwrap().offset;
    let blocks: Vec<u64> = (0..3_200_000 / (16 << 10)).map(at).collect();
    pool.close().unwrap();
    drop(pool);
    let (pool, disk) = hooked(&set);
    blocks.iter().for_each(|at| set.disk(1).overwrite(*at, &[0x5a; 512]));
    let busy = pool.clone();
    let moment = move || {
        busy.scan_hush(true);
        // The other thread comes to the rest of the slice.
        rt::time::sleep(Duration::from_millis(200));
        busy.scan_hush(false);
    };
    *disk.read.lock() = Some((blocks[0], Box::new(moment)));
    scan(&pool, ScanFunction::Scrub);
    assert!(disk.read.lock().is_none(), "it was not asked for that block");
    assert_eq!(scan(&pool, ScanFunction::Scrub).scan.processed, 0, "the first one left some out");
    pool.close().unwrap();
}

/// A leaf that comes while a resilver waits for its beginning may lack txgs that are not written yet; what it misses of
/// them is not told from what the resilver gives it.
#[test]
fn a_resilver_begins_when_all_that_leaves_lack_is_on_disk() {
    let set = SimSet::new(3, MIRROR.disk_bytes);
    let shape = Shape { disks: 3, ..MIRROR };
    let pool = rig::create(&set, shape).unwrap();
    put(&pool, "old", 50_000);
    pool.close().unwrap();
    drop(pool);
    let (pool, disk) = hooked(&set);
    let (tree, txg) = (pool.store().tree(), pool.txg());
    let leaf = |tree: &vdev::Tree, disk| tree.leaf_by_guid(guid_on(&pool, disk)).unwrap();
    let (first, second) = (leaf(&tree, 1), leaf(&tree, 2));
    tree.leaves()[first].lacks.add(4, txg + 3);
    let lacking = tree;
    let comes = move || lacking.leaves()[second].lacks.add(4, txg + 6);
    *disk.flush.lock() = Some(Box::new(comes));
    assert_eq!(pool.scan_start(ScanFunction::Resilver).unwrap(), ScanAnswer::Done);
    assert!(disk.flush.lock().is_none(), "nothing was flushed");
    let begun = pool.scan_status().unwrap().unwrap().scan;
    assert!(begun.max_txg <= pool.txg() + 1, "{} after {}", begun.max_txg, pool.txg());
    assert_eq!(pool.scan_run(&mut |_| true).unwrap(), ScanStep::Done);
    assert!(!lacks(&pool, 1) && !lacks(&pool, 2));
    pool.close().unwrap();
}
