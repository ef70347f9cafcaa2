//! Blocks of which no copy is left: they cost what is below them and whoever asks for it, and the pool goes on.

use std::collections::BTreeMap;
use std::time::Duration;

use device::sim::{Fault, Kind, On, SimSet};
use format::BlkPtr;
use format::config::PoolState;
use format::history::key::INTERNAL_TEXT as TEXT;
use format::label::DATA_AT;
use format::scan::Bookmark;
use fs::{Filesystem, NewObject, Who, mode};
use pool::{Devices, Pool, PoolError, Stored};
use rt::sync::Arc;
use rt::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use testkit::noise;

use crate::check;
use crate::rig::{self, MIRROR, POOL, STRIPE, Shape};

const DISK: Shape = Shape { disk_bytes: 128 << 20, ashift: 9, ..STRIPE };
/// So small that a file of some hundred KiB has two blocks of pointers.
const RECORD: u64 = 512;
/// Data blocks below one of them.
const BELOW: u64 = 1024;

fn create() -> (SimSet, Arc<Pool>) {
    let set = SimSet::new(DISK.disks, DISK.disk_bytes);
    let pool = rig::create(&set, DISK).unwrap();
    pool.set_property(POOL, "recordsize", Some(Stored::Number(RECORD))).unwrap();
    pool.sync().unwrap();
    (set, pool)
}

fn put(fs: &Filesystem, name: &str, bytes: u64) -> u64 {
    let new = NewObject::of(mode::FILE | 0o644, Who { uid: 0, gid: 0 });
    fs.create_with(fs.root(), name.as_bytes(), &new, &noise(bytes, bytes as usize)).unwrap()
}

/// A file system with a file of two blocks of pointers.
fn filesystem(pool: &Arc<Pool>, name: &str) -> u64 {
    pool.create_filesystem(name, BTreeMap::new(), fs::make_filesystem).unwrap();
    let file = put(&Filesystem::open(pool, name).unwrap(), "file", BELOW * RECORD * 3 / 2);
    pool.sync().unwrap();
    file
}

/// The pointer to a block of a file, or (of object 0, level -1) to the object set.
fn pointer(pool: &Pool, name: &str, object: u64, level: i64, block: u64) -> BlkPtr {
    let objset = pool.dataset(name).unwrap().object;
    pool.pointer_at(Bookmark { objset, object, level, block }).unwrap().unwrap()
}

/// Exports the pool.
fn leave(pool: &Arc<Pool>) {
    pool.set_state(PoolState::Exported).unwrap();
    pool.close().unwrap();
}

fn open(set: &SimSet) -> Arc<Pool> {
    let pool = rig::open_to_write(set, &rig::all(set)).unwrap();
    assert_eq!(pool.read_only_reason(), None);
    pool
}

/// All copies of a block get other bytes, or again those that they had, which are returned.
fn overwrite(set: &SimSet, bp: &BlkPtr, with: &[u8]) -> Vec<u8> {
    let mut before = vec![0; with.len()];
    for dva in bp.dvas() {
        let disk = set.disk(0);
        device::Device::read_at(&disk, DATA_AT + dva.offset, &mut before).unwrap();
        disk.overwrite(DATA_AT + dva.offset, with);
    }
    before
}

fn lose(set: &SimSet, bp: &BlkPtr) -> Vec<u8> {
    overwrite(set, bp, &[0x5a; 512])
}

/// It still takes what others have to say.
fn goes_on(pool: &Arc<Pool>) {
    assert_eq!(pool.suspended(), None);
    let fs = Filesystem::open(pool, POOL).unwrap();
    put(&fs, &format!("more{}", pool.txg()), 5000);
    pool.sync().unwrap();
    pool.snapshot(&[format!("{POOL}@s{}", pool.txg())], &[]).unwrap();
}

/// Seen red: the first write of a gang that failed ended the pool, though the disk would have taken it a moment later.
#[test]
fn a_sync_waits_for_what_it_writes_of_a_gang() {
    let (set, pool) = create();
    pool.set_property(POOL, "recordsize", Some(Stored::Number(16 << 10))).unwrap();
    pool.force_gangs(1024, 2).unwrap();
    let fs = Filesystem::open(&pool, POOL).unwrap();
    let file = put(&fs, "file", 100_000);
    pool.sync().unwrap();
    pool.set_patient(true).unwrap();
    let (over, waited) = (Arc::new(AtomicBool::new(false)), Arc::new(AtomicU64::new(0)));
    let nurse = {
        let (pool, over, waited) = (pool.clone(), over.clone(), waited.clone());
        rt::thread::spawn("nurse", move || {
            while !over.load(Ordering::SeqCst) {
                if pool.suspended().is_some() {
                    waited.fetch_add(1, Ordering::SeqCst);
                    pool.clear().unwrap();
                }
                rt::time::sleep(Duration::from_micros(200));
            }
        })
    };
    // Each of the writes that a sync begins with fails once: data, headers, and what later passes write over.
    let mut wrong = Vec::new();
    for skip in 0..60 {
        fs.write(file, skip * 1000, &noise(skip, 5000)).unwrap();
        let fault = Fault::new(Kind::Error(rustix::io::Errno::IO), On::Writes);
        set.disk(0).inject(fault.after(skip).times(1));
        if let Err(error) = pool.sync() {
            wrong.push(format!("write {skip}: {error}"));
            break;
        }
    }
    over.store(true, Ordering::SeqCst);
    nurse.join();
    assert_eq!(wrong, [""; 0]);
    assert!(waited.load(Ordering::SeqCst) >= 50, "{waited:?}");
    set.disk(0).heal();
    drop(fs);
    leave(&pool);
    drop(pool);
    check::verified(&set, &rig::all(&set)).unwrap();
}

/// Seen red: each of these ended the pool, and the file could not be removed for good.
#[test]
fn a_gang_whose_header_is_lost_can_be_freed() {
    const GONE: &str = "tank/gone";
    let (set, pool) = create();
    pool.set_property(POOL, "recordsize", Some(Stored::Number(16 << 10))).unwrap();
    pool.create_filesystem(GONE, BTreeMap::new(), fs::make_filesystem).unwrap();
    let fs = Filesystem::open(&pool, GONE).unwrap();
    pool.force_gangs(1024, 2).unwrap();
    let files = ["removed", "written", "destroyed"].map(|name| put(&fs, name, 160_000));
    pool.sync().unwrap();
    let gangs = files.map(|file| {
        let blocks = (0..10).map(|block| (block, pointer(&pool, GONE, file, 0, block)));
        blocks.into_iter().find(|(_, bp)| bp.is_gang()).unwrap()
    });
    drop(fs);
    leave(&pool);
    drop(pool);
    gangs.iter().for_each(|(_, bp)| _ = lose(&set, bp));

    let pool = open(&set);
    let before = pool.space().unwrap().allocated;
    let fs = Filesystem::open(&pool, GONE).unwrap();
    fs.unlink(fs.root(), b"removed").unwrap();
    pool.sync().unwrap();
    fs.write(files[1], gangs[1].0 << 14, &noise(7, 16 << 10)).unwrap();
    pool.sync().unwrap();
    drop(fs);
    pool.destroy_dataset(GONE).unwrap();
    pool.finish_freeing(|_| true).unwrap();
    assert_eq!(pool.freeing().unwrap(), 0);
    goes_on(&pool);
    (0..4).for_each(|_| goes_on(&pool));
    let left = pool.space().unwrap().allocated;
    assert!(left + 350_000 < before, "{left} of {before}");
    let told = pool::history::records(pool.mos()).unwrap();
    let text = |record: &format::NvList| record.text(TEXT).unwrap_or_default().into_owned();
    let told = told.iter().map(text).filter(|text| text.contains("gang headers that are lost"));
    assert_eq!(told.count(), 3);
    leave(&pool);
    drop(pool);
    // The members that nothing leads to any more are told as leaked, and nothing else is wrong.
    let report = check::report(&set, &rig::all(&set)).unwrap();
    let other = |finding: &&verify::Finding| finding.kind != verify::FindingKind::Leaked;
    assert_eq!(report.lost_blocks, 0);
    assert!(report.findings.iter().find(other).is_none(), "{:?}", report.findings);
    assert!(!report.findings.is_empty());
}

/// Seen red: the second one was not begun with, however often the pool was opened.
#[test]
fn what_is_destroyed_after_a_damaged_data_set_is_freed() {
    let (set, pool) = create();
    let [a, b] = ["tank/a", "tank/b"];
    let file = filesystem(&pool, a);
    filesystem(&pool, b);
    filesystem(&pool, "tank/c");
    pool.create_filesystem("tank/small", BTreeMap::new(), fs::make_filesystem).unwrap();
    let bp = pointer(&pool, a, file, 1, 1);
    leave(&pool);
    drop(pool);
    let whole = lose(&set, &bp);

    let pool = open(&set);
    pool.set_freeing(300, false).unwrap();
    pool.destroy_dataset(a).unwrap();
    pool.finish_freeing(|_| true).unwrap();
    let of_a = pool.freeing().unwrap();
    assert!(of_a > 0);
    // One that takes several portions, and one that takes one.
    pool.destroy_dataset(b).unwrap();
    pool.destroy_dataset("tank/small").unwrap();
    pool.finish_freeing(|_| true).unwrap();
    assert_eq!(pool.freeing().unwrap(), of_a);
    goes_on(&pool);
    // What was freed is used again.
    filesystem(&pool, "tank/d");
    let full = pool.space().unwrap().allocated;
    leave(&pool);
    drop(pool);
    let report = check::report(&set, &rig::all(&set)).unwrap();
    let other = |finding: &&verify::Finding| finding.kind != verify::FindingKind::Leaked;
    assert!(report.findings.iter().find(other).is_none(), "{:?}", report.findings);

    overwrite(&set, &bp, &whole);
    let pool = open(&set);
    pool.set_freeing(300, false).unwrap();
    pool.destroy_dataset("tank/c").unwrap();
    pool.finish_freeing(|_| true).unwrap();
    assert_eq!(pool.freeing().unwrap(), 0);
    goes_on(&pool);
    assert!(pool.space().unwrap().allocated + of_a < full);
    leave(&pool);
    drop(pool);
    check::verified(&set, &rig::all(&set)).unwrap();
}

/// Seen red: the thread that heals went round for ever, blaming the disk each time, and the error log stayed empty.
#[test]
fn a_snapshot_whose_root_is_lost_is_told_once() {
    let (set, pool) = create();
    filesystem(&pool, "tank/a");
    pool.snapshot(&["tank/a@s".into()], &[]).unwrap();
    put(&Filesystem::open(&pool, "tank/a").unwrap(), "new", 1000);
    pool.sync().unwrap();
    let (bp, objset) =
        (pointer(&pool, "tank/a@s", 0, -1, 0), pool.dataset("tank/a@s").unwrap().object);
    leave(&pool);
    drop(pool);
    lose(&set, &bp);

    let pool = open(&set);
    assert!(pool.dataset("tank/a@s").is_err());
    let finished = pool.finish_healing(Duration::from_secs(3));
    let root = Bookmark { objset, object: 0, level: -1, block: 0 };
    let lost = pool.lost_blocks().unwrap();
    goes_on(&pool);
    leave(&pool);
    assert!(finished, "it goes round");
    assert!(lost.contains(&root), "{lost:?}");
}

/// Seen red: the pool was read-only for good.
#[test]
fn a_head_whose_root_is_lost_costs_itself_alone() {
    let (set, pool) = create();
    filesystem(&pool, "tank/a");
    filesystem(&pool, "tank/a/below");
    filesystem(&pool, "tank/b");
    let bps = ["tank/a", "tank/b"].map(|name| pointer(&pool, name, 0, -1, 0));
    leave(&pool);
    drop(pool);
    bps.iter().for_each(|bp| _ = lose(&set, bp));

    let pool = open(&set);
    // As a command leaves it that imports the pool.
    pool.set_state(PoolState::Active).unwrap();
    pool.close().unwrap();
    drop(pool);

    let pool = open(&set);
    goes_on(&pool);
    assert!(pool.dataset("tank/a").is_err());
    let refused = pool.snapshot(&["tank/a@s".into()], &[]);
    assert!(matches!(refused, Err(PoolError::ReadOnly { .. })), "{refused:?}");
    pool.set_property("tank/a", "atime", Some(Stored::Number(0))).unwrap();
    filesystem(&pool, "tank/a/new");
    // What cannot be read can be destroyed.
    pool.destroy_dataset("tank/b").unwrap();
    pool.finish_freeing(|_| true).unwrap();
    goes_on(&pool);
    leave(&pool);
    drop(pool);
    let pool = open(&set);
    goes_on(&pool);
    pool.close().unwrap();
}

/// Of one that was not exported nobody knows what its log has taken.
#[test]
fn a_head_whose_log_nobody_can_find_keeps_a_pool_that_was_in_use_from_being_written() {
    let (set, pool) = create();
    filesystem(&pool, "tank/a");
    let bp = pointer(&pool, "tank/a", 0, -1, 0);
    pool.close().unwrap();
    drop(pool);
    lose(&set, &bp);
    let pool = rig::open_to_write(&set, &rig::all(&set)).unwrap();
    let reason = pool.read_only_reason().unwrap();
    assert!(reason.contains("intent logs cannot be examined"), "{reason}");
    assert!(reason.contains("zpool import -m"), "{reason}");
    drop(pool);
    // Unless whoever opens it gives that up.
    let pool = rig::open_as(&set, &rig::all(&set), Devices::WithoutLogs).unwrap();
    goes_on(&pool);
    pool.close().unwrap();
    drop(pool);
    let pool = open(&set);
    goes_on(&pool);
    pool.destroy_dataset("tank/a").unwrap();
    goes_on(&pool);
    pool.close().unwrap();
}

/// Seen red: it ended the pool, though nothing had been changed.
#[test]
fn a_rollback_to_a_snapshot_whose_root_is_lost_is_refused() {
    let (set, pool) = create();
    filesystem(&pool, "tank/a");
    pool.snapshot(&["tank/a@s".into()], &[]).unwrap();
    put(&Filesystem::open(&pool, "tank/a").unwrap(), "new", 1000);
    pool.sync().unwrap();
    let bp = pointer(&pool, "tank/a@s", 0, -1, 0);
    leave(&pool);
    drop(pool);
    lose(&set, &bp);

    let pool = open(&set);
    for refused in
        [pool.rollback("tank/a@s"), pool.clone_snapshot("tank/a@s", "tank/c", BTreeMap::new())]
    {
        assert!(matches!(refused, Err(PoolError::ReadOnly { .. })), "{refused:?}");
    }
    goes_on(&pool);
    let fs = Filesystem::open(&pool, "tank/a").unwrap();
    assert!(fs.resolve(b"new").is_ok());
    drop(fs);
    // It can go.
    pool.destroy_snapshots(&["tank/a@s".into()], false).unwrap();
    goes_on(&pool);
    pool.close().unwrap();
}

/// Seen red: a whole record was taken, and ended the pool with its sync.
#[test]
fn a_write_below_a_lost_block_of_pointers_is_refused() {
    let (set, pool) = create();
    let file = filesystem(&pool, "tank/a");
    let bp = pointer(&pool, "tank/a", file, 1, 1);
    leave(&pool);
    drop(pool);
    lose(&set, &bp);

    let pool = open(&set);
    let fs = Filesystem::open(&pool, "tank/a").unwrap();
    let record = noise(1, RECORD as usize);
    for block in [BELOW, BELOW + 7, 2 * BELOW - 1] {
        assert!(fs.write(file, block * RECORD, &record).is_err(), "block {block}");
    }
    assert!(fs.punch_hole(file, BELOW * RECORD, 4 * RECORD).is_err());
    assert!(fs.truncate(file, 10 * RECORD).is_err());
    goes_on(&pool);
    // What is beside it is as good as ever, and what is behind it.
    for block in [3, 2 * BELOW + 1] {
        fs.write(file, block * RECORD, &record).unwrap();
        pool.sync().unwrap();
        let mut back = vec![0; RECORD as usize];
        fs.read(file, block * RECORD, &mut back).unwrap();
        assert!(back == record, "block {block}");
    }
    drop(fs);
    goes_on(&pool);
    pool.close().unwrap();
}

/// What devices may still give is no reason to refuse: the sync waits for it.
#[test]
fn a_write_below_a_block_of_pointers_that_disks_do_not_give_waits() {
    let set = SimSet::new(MIRROR.disks, MIRROR.disk_bytes);
    let pool = rig::create(&set, MIRROR).unwrap();
    pool.set_property(POOL, "recordsize", Some(Stored::Number(RECORD))).unwrap();
    let file = filesystem(&pool, "tank/a");
    let bp = pointer(&pool, "tank/a", file, 1, 1);
    leave(&pool);
    drop(pool);
    let pool = open(&set);
    let fs = Filesystem::open(&pool, "tank/a").unwrap();
    pool.set_patient(true).unwrap();
    let error = Kind::Error(rustix::io::Errno::IO);
    for (disk, dva) in set.disks().iter().flat_map(|disk| bp.dvas().map(move |dva| (disk, dva))) {
        let place = DATA_AT + dva.offset..DATA_AT + dva.offset + dva.asize;
        disk.inject(Fault::new(error.clone(), On::Reads).within(place));
    }
    fs.write(file, (BELOW + 3) * RECORD, &noise(1, RECORD as usize)).unwrap();
    let syncing = {
        let pool = pool.clone();
        rt::thread::spawn("syncing", move || pool.sync().is_ok())
    };
    let start = rt::time::now();
    while pool.suspended().is_none() && start.elapsed() < Duration::from_secs(10) {
        rt::time::sleep(Duration::from_millis(1));
    }
    let waited = pool.suspended().is_some();
    set.disks().iter().for_each(|disk| disk.heal());
    pool.clear().unwrap();
    assert_eq!((waited, syncing.join()), (true, true));
    drop(fs);
    leave(&pool);
    drop(pool);
    check::verified(&set, &rig::all(&set)).unwrap();
}
