//! Disks that fail while the pool is written, pools that are full, opens that must not write.

use std::collections::BTreeMap;
use std::time::Duration;

use device::sim::{Cut, Fault, Kind, On, SimSet};
use format::label::DATA_AT;
use fs::{Filesystem, FsError, NewObject, Who, mode};
use pool::Stored;
use rt::Rng;

use crate::rig::{self, MIRROR, RAIDZ, RAIDZ2, Shape};
use crate::story::{self, Told};
use crate::{check, judge};

/// Runs a story on disks of which some get a fault after `skip` of their writes.
fn run_with(seed: u64, shape: Shape, faulty: &[usize], fault: &Fault) -> (SimSet, Told) {
    let set = SimSet::new(shape.disks, shape.disk_bytes);
    let told = story::tell(&set, shape, &story::steps(seed), |step| {
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

/// What the disks that fail leave is the state that was acknowledged, with them and without them.
fn nothing_is_lost(what: &str, set: &SimSet, told: &mut Told, faulty: &[usize], seed: u64) {
    if let Some(error) = &told.error {
        // An open for writing may refuse a disk that lacks writes, and says so.
        assert!(error.to_lowercase().contains("read-only"), "{what}: {error}");
    }
    drop(told.pool.take());
    let crashed = SimSet::from_images(set.crash(Cut::Dropped, seed));
    let rest: Vec<usize> = (0..set.len()).filter(|n| !faulty.contains(n)).collect();
    for disks in [rig::all(set), rest] {
        let state = check::check(&crashed, &disks, &told.history, told.acknowledged);
        state.unwrap_or_else(|e| panic!("{what}, disks {disks:?}: {e}"));
    }
}

/// As many disks as there is redundancy: nothing is noticed by those who write, and all of it can be
/// read, with those disks or without.
#[test]
fn disks_that_fail_within_redundancy_stop_nobody() {
    let shapes = [(RAIDZ, 1), (MIRROR, 1), (RAIDZ2, 2)];
    for (turn, skip) in [0, 1, 17, 60, 131].into_iter().enumerate() {
        let (shape, count) = shapes[turn % 3];
        for fault in faults(skip) {
            let faulty: Vec<usize> = (turn..turn + count).map(|n| n % shape.disks).collect();
            let (set, mut told) = run_with(skip, shape, &faulty, &fault);
            let what = format!("disks {faulty:?} of {shape:?}, {fault:?}");
            nothing_is_lost(&what, &set, &mut told, &faulty, skip);
        }
    }
}

/// Disks that say nothing and do the wrong thing: bits that rot on their way, writes that land
/// elsewhere, that are lost or torn, flushes that do nothing, and disks that are merely slow.
#[test]
fn disks_that_lie_within_redundancy_are_found_out() {
    let kinds = |seed| {
        [
            (Kind::FlipBit { seed }, On::Writes),
            (Kind::FlipBit { seed }, On::Reads),
            (Kind::Misdirect { by: 1 << 20 }, On::Writes),
            (Kind::Misdirect { by: -(8 << 10) }, On::Reads),
            (Kind::Lose, On::Writes),
            (Kind::Tear { seed }, On::Writes),
            (Kind::Lie, On::Flushes),
            (Kind::Slow(Duration::from_micros(200)), On::All),
        ]
    };
    let shapes = [(RAIDZ, 1), (MIRROR, 1), (RAIDZ2, 2)];
    for (turn, skip) in [3, 40].into_iter().enumerate() {
        for (number, (kind, on)) in kinds(skip).into_iter().enumerate() {
            let (shape, count) = shapes[(turn + number) % 3];
            let faulty: Vec<usize> = (number..number + count).map(|n| n % shape.disks).collect();
            // Data only: a pool whose labels lie is not opened by this host again.
            let fault = Fault::new(kind, on).after(skip).within(DATA_AT..shape.disk_bytes);
            let (set, mut told) = run_with(skip, shape, &faulty, &fault);
            assert_eq!(told.error, None, "{fault:?}");
            faulty.iter().for_each(|disk| set.disk(*disk).heal());
            let what = format!("disks {faulty:?} of {shape:?}, {fault:?}");
            nothing_is_lost(&what, &set, &mut told, &faulty, skip);
        }
    }
}

/// A disk that does not answer is given up at its deadline, and the txgs go on.
#[test]
fn a_disk_that_hangs_stops_nobody() {
    let shape = Shape { deadline_ms: Some(150), ..RAIDZ };
    let fault = Fault::new(Kind::Hang, On::Writes).after(60);
    let (set, mut told) = run_with(4, shape, &[1], &fault);
    set.disk(1).heal();
    nothing_is_lost("disk 1 hangs", &set, &mut told, &[1], 4);
    assert!(told.acknowledged.is_some_and(|state| state > 3), "{:?}", told.acknowledged);
}

/// Two disks of a raidz1 or of a mirror of two: the pool is suspended with a message, and what it acknowledged is there.
#[test]
fn two_failing_disks_suspend_the_pool_and_lose_nothing_acknowledged() {
    let mut suspended = 0;
    for (turn, skip) in [0, 5, 40, 90, 150].into_iter().enumerate() {
        let (shape, faulty) = [(RAIDZ, vec![0, 2]), (MIRROR, vec![0, 1])][turn % 2].clone();
        for fault in faults(skip) {
            let (set, mut told) = run_with(skip, shape, &faulty, &fault);
            let refused = |error: &&String| error.contains("read-only");
            if let Some(error) = told.error.as_ref().filter(|error| !refused(error)) {
                assert!(error.contains("suspended"), "{fault:?}: {error}");
                suspended += 1;
                // What failed has no uberblock, anywhere, however much of it came to the disks.
                let next = told.acknowledged.map_or(0, |state| state + 1);
                let kept = SimSet::from_images(set.crash(Cut::Kept, skip));
                let state = check::check(&kept, &rig::all(&set), &told.history, told.acknowledged);
                let state = state.unwrap_or_else(|e| panic!("{fault:?}: {e}"));
                if !matches!(fault.on, On::Flushes) {
                    assert_ne!(state, Some(next), "{fault:?}");
                }
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

/// Fills a file system with files of `size` bytes until one is refused, in one txg if it can be;
/// the number of files.
fn fill_up(fs: &Filesystem, prefix: &str, size: usize) -> (u64, FsError) {
    let file = NewObject::of(mode::FILE | 0o644, Who { uid: 0, gid: 0 });
    let mut bytes = vec![0; size];
    for count in 0.. {
        Rng::new(count).fill(&mut bytes);
        let name = format!("{prefix}{count}");
        if let Err(e) = fs.create_with(fs.root(), name.as_bytes(), &file, &bytes) {
            return (count, e);
        }
        assert!(count < 400_000, "a pool without end");
    }
    unreachable!("the count ends first")
}

/// Files of which each takes many times its bytes, and empty ones: the pool says that it is full,
/// before a txg is too large for it.
#[test]
fn a_pool_full_of_tiny_files_is_full_not_suspended() {
    for (shape, size, copies) in [(RAIDZ2, 600, 1), (RAIDZ, 600, 3), (RAIDZ, 0, 1)] {
        let set = SimSet::new(shape.disks, shape.disk_bytes);
        let pool = rig::create(&set, shape).unwrap();
        pool.set_property(rig::POOL, "copies", Some(Stored::Number(copies))).unwrap();
        let fs = Filesystem::open(&pool, rig::POOL).unwrap();
        let (count, refused) = fill_up(&fs, "tiny", size);
        assert!(matches!(refused, FsError::NoSpace { .. }), "{shape:?} {size}: {refused}");
        assert!(count > 1000, "only {count} files fit");
        pool.sync().unwrap();
        // What frees is admitted, and makes room.
        for i in 0..count / 2 {
            fs.unlink(fs.root(), format!("tiny{i}").as_bytes()).unwrap();
        }
        let (more, refused) = fill_up(&fs, "more", 50_000);
        assert!(matches!(refused, FsError::NoSpace { .. }), "{refused}");
        assert!(more > 10, "only {more} more files fit");
        drop(fs);
        pool.close().unwrap();
        drop(pool);
        judge(&set, &format!("full of {count} files of {size} bytes"));
    }
}

/// Space that was freed a moment ago cannot be written to yet (INV-1). Whoever needs it waits for
/// it; in another process, too.
#[test]
fn a_full_pool_that_is_emptied_and_filled_again_waits_for_its_space() {
    let set = SimSet::new(RAIDZ.disks, RAIDZ.disk_bytes);
    let pool = rig::create(&set, RAIDZ).unwrap();
    let fs = Filesystem::open(&pool, rig::POOL).unwrap();
    let (first, _) = fill_up(&fs, "f", 500_000);
    for round in 0..3 {
        let prefix = |round| ["f", "g", "h", "i"][round];
        for i in 0..first {
            fs.unlink(fs.root(), format!("{}{i}", prefix(round)).as_bytes()).unwrap_or_default();
        }
        if round == 1 {
            pool.sync().unwrap();
        }
        let (count, refused) = fill_up(&fs, prefix(round + 1), 500_000);
        assert!(matches!(refused, FsError::NoSpace { .. }), "round {round}: {refused}");
        assert!(count + 12 > first, "round {round}: {count} files where {first} were");
    }
    drop(fs);
    pool.close().unwrap();
    drop(pool);
    judge(&set, "filled four times");
}

/// The process dies between the uberblock and the flush after it, the next one goes on from there,
/// and then the power goes: what that one started from is on the disks.
#[test]
fn what_was_opened_is_stable_before_anything_is_written() {
    for shape in [RAIDZ, MIRROR] {
        let set = SimSet::new(shape.disks, shape.disk_bytes);
        let pool = rig::create(&set, shape).unwrap();
        let fs = Filesystem::open(&pool, rig::POOL).unwrap();
        let (acknowledged, file) = (pool.txg(), NewObject::of(mode::FILE, Who { uid: 0, gid: 0 }));
        fs.create_with(fs.root(), b"f", &file, &[7; 40_000]).unwrap();
        // The data is flushed, the uberblock is not.
        let fault = Fault::new(Kind::Error(rustix::io::Errno::IO), On::Flushes).after(1);
        set.disks().iter().for_each(|disk| _ = disk.inject(fault.clone()));
        pool.sync().unwrap_err();
        drop((fs, pool));
        set.disks().iter().for_each(|disk| disk.heal());
        let pool = rig::open_to_write(&set, &rig::all(&set)).unwrap();
        assert_eq!(pool.txg(), acknowledged + 1, "the uberblock is in the disks' caches");
        let left = SimSet::from_images(set.crash(Cut::Dropped, 1));
        let opened = rig::open_to_read(&left, &rig::all(&left), u64::MAX).unwrap().unwrap().0;
        assert_eq!(opened.txg(), acknowledged + 1, "{shape:?}: gone back behind what was opened");
    }
}

/// A pool whose newest txg cannot be opened is opened as it was before, but not to be written:
/// what it lacks may come back, and nobody has agreed to lose it.
#[test]
fn a_pool_that_went_back_is_not_written() {
    let set = SimSet::new(MIRROR.disks, MIRROR.disk_bytes);
    let told = story::tell(&set, MIRROR, &story::steps(1)[..6], |_| {});
    let (pool, states) = (told.pool.unwrap(), told.history.states);
    pool.close().unwrap();
    drop(pool);
    let scan = rig::scan(&set, &rig::all(&set));
    let newest = scan.choose(rig::POOL).unwrap().uberblocks[0];
    for (dva, disk) in newest.root.dvas().flat_map(|dva| [(dva, 0), (dva, 1)]) {
        set.disk(disk).overwrite(DATA_AT + dva.offset, &[0xa5; 4096]);
    }
    let before = set.writes();
    let pool = rig::open_to_write(&set, &rig::all(&set)).unwrap();
    let reason = pool.read_only_reason().unwrap_or("none");
    assert!(reason.contains(&format!("txg {} cannot be opened", newest.txg)), "{reason}");
    check::holds(&pool, &states[states.len() - 2]).unwrap();
    drop(pool);
    assert_eq!(set.writes(), before);
}
