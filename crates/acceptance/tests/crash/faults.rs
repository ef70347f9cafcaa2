//! Disks that fail while the pool is written, pools that are full, opens that must not write.

use std::collections::{BTreeMap, HashSet};
use std::time::Duration;

use device::sim::{Cut, Fault, Kind, On, SimSet};
use format::label::DATA_AT;
use format::scan::ScanFunction;
use fs::{Filesystem, FsError, NewObject, Who, mode};
use pool::{ScanAnswer, ScanStep, Stored};
use rt::Rng;
use rt::sync::Mutex;

use crate::rig::{self, MIRROR, RAIDZ, RAIDZ2, STRIPE, Shape};
use crate::story::{self, Told};
use crate::{check, judge, say};

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

fn faults(skip: u64) -> [Fault; 5] {
    let error = Kind::Error(rustix::io::Errno::IO);
    [
        Fault::new(error.clone(), On::Writes).after(skip),
        Fault::new(error.clone(), On::Writes).after(skip).times(3),
        Fault::new(error, On::Flushes).after(skip / 8),
        Fault::new(Kind::Forget, On::Flushes).after(skip / 8).times(1),
        Fault::new(Kind::Vanish, On::Writes).after(skip),
    ]
}

/// What the disks that fail leave is the state that was acknowledged, with them and without them.
fn nothing_is_lost(
    what: &str,
    set: &SimSet,
    told: &mut Told,
    faulty: &[usize],
    seed: u64,
) -> SimSet {
    assert_eq!(told.error, None, "{what}");
    drop(told.pool.take());
    let crashed = SimSet::from_images(set.crash(Cut::Dropped, seed));
    let rest: Vec<usize> = (0..set.len()).filter(|n| !faulty.contains(n)).collect();
    for disks in [rig::all(set), rest] {
        let state = check::check(&crashed, &disks, &told.history, told.acknowledged);
        state.unwrap_or_else(|e| panic!("{what}, disks {disks:?}: {e}"));
    }
    crashed
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
            let left = nothing_is_lost(&what, &set, &mut told, &faulty, skip);
            check::verified(&left, &rig::all(&left)).unwrap_or_else(|e| panic!("{what}: {e}"));
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
    let shape = Shape { deadline_ms: Some(600), ..RAIDZ };
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

/// The whole story with disks away, which come back: all is there with them, as long as what they lack is
/// not believed, and the judge finds nothing wrong that their DTLs do not tell.
#[test]
fn a_pool_is_written_with_disks_away_and_knows_what_they_lack() {
    for (shape, away) in
        [(RAIDZ, vec![1]), (MIRROR, vec![0]), (RAIDZ2, vec![0, 3]), (RAIDZ2, vec![2])]
    {
        let set = SimSet::new(shape.disks, shape.disk_bytes);
        let steps = story::steps(3);
        let told = story::tell(&set, shape, &steps, |step| {
            // From the first open on, which is in the middle.
            if matches!(steps.get(step.wrapping_sub(1)), Some(story::Step::Reopen)) {
                away.iter().for_each(|disk| _ = set.disk(*disk).inject(Fault::vanish()));
            }
        });
        assert_eq!(told.error, None, "{shape:?}");
        // Not closed: what is left to be freed would be a txg of its own.
        drop(told.pool);
        set.disks().iter().for_each(|disk| disk.heal());
        let present: Vec<usize> = (0..set.len()).filter(|n| !away.contains(n)).collect();
        for disks in [rig::all(&set), present] {
            check::check(&set, &disks, &told.history, told.acknowledged).unwrap();
        }
        let report = check::report(&set, &rig::all(&set)).unwrap();
        let lacking: Vec<_> = report.devices.iter().filter(|d| d.lacks_txgs > 2).collect();
        assert_eq!(lacking.len(), away.len(), "{:?}", report.devices);
        check::verified(&set, &rig::all(&set)).unwrap();
        // What is written from now on is on them, too.
        let pool = rig::open_on(&set, &rig::all(&set), rig::HOSTS[1], None).unwrap();
        pool.set_property(rig::POOL, "exec", Some(Stored::Number(0))).unwrap();
        pool.close().unwrap();
        drop(pool);
        let again = check::report(&set, &rig::all(&set)).unwrap();
        assert_eq!(again.devices, report.devices, "it lacks no more than before");
    }
}

/// Of data that has no checksum a disk that lacks it gives something else: it is not asked.
#[test]
fn what_has_no_checksum_is_not_read_from_a_disk_that_lacks_it() {
    for (shape, away) in [(RAIDZ, 1), (MIRROR, 0), (MIRROR, 1)] {
        let set = SimSet::new(shape.disks, shape.disk_bytes);
        let pool = rig::create(&set, shape).unwrap();
        pool.set_property(rig::POOL, "checksum", Some(Stored::Number(2))).unwrap();
        pool.set_property(rig::POOL, "compression", Some(Stored::Number(2))).unwrap();
        set.disk(away).inject(Fault::new(Kind::Error(rustix::io::Errno::IO), On::Writes));
        let fs = Filesystem::open(&pool, rig::POOL).unwrap();
        let file = NewObject::of(mode::FILE | 0o644, Who { uid: 0, gid: 0 });
        let mut data = vec![0; 3 << 20];
        Rng::new(1).fill(&mut data);
        fs.create_with(fs.root(), b"plain", &file, &data).unwrap();
        pool.sync().unwrap();
        drop(fs);
        // While the pool is open, and in a new process, with the disk as good as any.
        set.disk(away).heal();
        pool.close().unwrap();
        let anew = rig::open_to_write(&set, &rig::all(&set)).unwrap();
        for pool in [pool, anew] {
            let fs = Filesystem::open(&pool, rig::POOL).unwrap();
            let mut seen = vec![0; data.len()];
            assert_eq!(fs.read(fs.resolve(b"plain").unwrap(), 0, &mut seen).unwrap(), data.len());
            assert!(seen == data, "{shape:?}: bytes of a disk that lacks them");
        }
    }
}

/// A resilver of such data takes it from those that have it, too: if they cannot be read, it is lost for the time being,
/// and what lies where it should be is given to nobody.
#[test]
fn what_has_no_checksum_is_not_filled_from_a_disk_that_lacks_it() {
    for (shape, away, fails) in [(RAIDZ, 1, 2), (MIRROR, 0, 1), (MIRROR, 1, 0)] {
        let set = SimSet::new(shape.disks, shape.disk_bytes);
        let pool = rig::create(&set, shape).unwrap();
        pool.set_property(rig::POOL, "checksum", Some(Stored::Number(2))).unwrap();
        pool.set_property(rig::POOL, "compression", Some(Stored::Number(2))).unwrap();
        set.disk(away).inject(Fault::new(Kind::Error(rustix::io::Errno::IO), On::Writes));
        let fs = Filesystem::open(&pool, rig::POOL).unwrap();
        let file = NewObject::of(mode::FILE | 0o644, Who { uid: 0, gid: 0 });
        let mut data = vec![0; 3 << 20];
        Rng::new(1).fill(&mut data);
        fs.create_with(fs.root(), b"plain", &file, &data).unwrap();
        pool.sync().unwrap();
        drop(fs);
        set.disk(away).heal();
        let fill = || {
            assert_eq!(pool.scan_start(ScanFunction::Resilver).unwrap(), ScanAnswer::Done);
            assert_eq!(pool.scan_run(&mut |_| true).unwrap(), ScanStep::Done);
            pool.scan_status().unwrap().unwrap().scan.errors
        };
        // Where some of the data lies.
        let image = set.disk(fails).image();
        let sectors: HashSet<&[u8]> = data.chunks_exact(512).collect();
        let holds = |at: &u64| {
            let mut sector = [0; 512];
            image.read(*at, &mut sector);
            sectors.contains(&sector[..])
        };
        let at = (DATA_AT..shape.disk_bytes).step_by(512).find(holds).unwrap();
        let fault = Fault::new(Kind::Error(rustix::io::Errno::IO), On::Reads);
        set.disk(fails).inject(fault.within(at..at + 512));
        assert_eq!(fill(), 1, "{shape:?}: made up");
        set.disk(fails).heal();
        assert_eq!(fill(), 0, "{shape:?}");
        pool.close().unwrap();
        drop(pool);
        let without: Vec<usize> = (0..set.len()).filter(|disk| *disk != fails).collect();
        let pool = rig::open_to_write(&set, &without).unwrap();
        let fs = Filesystem::open(&pool, rig::POOL).unwrap();
        let mut seen = vec![0; data.len()];
        assert_eq!(fs.read(fs.resolve(b"plain").unwrap(), 0, &mut seen).unwrap(), data.len());
        assert!(seen == data, "{shape:?}: a disk was filled with what it had");
    }
}

/// More disks away than there is redundancy: such a pool opens, if it does, but not to be written.
#[test]
fn a_pool_that_lacks_more_disks_than_it_may_is_not_written() {
    let set = SimSet::new(RAIDZ.disks, RAIDZ.disk_bytes);
    let pool = rig::create(&set, RAIDZ).unwrap();
    pool.close().unwrap();
    drop(pool);
    let before = set.writes();
    let error = match rig::open_to_write(&set, &[2]) {
        Err(error) => error,
        Ok(pool) => pool.set_property(rig::POOL, "atime", None).unwrap_err().to_string(),
    };
    assert!(error.contains("missing"), "{error}");
    assert_eq!(set.writes(), before, "an open that may not write wrote");
    assert_eq!(rig::open_to_write(&set, &rig::all(&set)).unwrap().read_only_reason(), None);
}

/// Devices that fail beyond redundancy and come back: who waits goes on where he stopped, nothing is lost,
/// and meanwhile no uberblock was written.
#[test]
fn a_suspended_pool_goes_on_when_its_disks_are_back() {
    let mut waited = 0;
    for (turn, skip) in [0, 3, 20, 41, 77, 120].into_iter().enumerate() {
        let (shape, faulty) =
            [(RAIDZ, vec![0, 2]), (MIRROR, vec![0, 1]), (STRIPE, vec![0])][turn % 3].clone();
        for fault in [
            Fault::new(Kind::Vanish, On::Writes).after(skip),
            Fault::new(Kind::Error(rustix::io::Errno::IO), On::Writes).after(skip),
        ] {
            let set = SimSet::new(shape.disks, shape.disk_bytes);
            let mut told = story::tell(&set, shape, &story::steps(skip)[..2], |_| {});
            let pool = told.pool.clone().unwrap();
            pool.set_patient(true).unwrap();
            faulty.iter().for_each(|disk| _ = set.disk(*disk).inject(fault.clone()));
            let steps = story::steps(skip);
            let done = rt::sync::Arc::new(Mutex::new(false));
            let nurse = {
                let (pool, done, set) = (pool.clone(), done.clone(), set.clone());
                rt::thread::spawn("nurse", move || {
                    let mut waited = 0;
                    while !*done.lock() {
                        if pool.suspended().is_some() {
                            waited += 1;
                            let writes = set.writes();
                            rt::time::sleep(Duration::from_millis(5));
                            assert_eq!(set.writes(), writes, "a suspended pool writes");
                            set.disks().iter().for_each(|disk| disk.heal());
                            pool.clear().unwrap();
                            // Until it has done what it waited for.
                            while pool.suspended().is_some() {
                                rt::time::sleep(Duration::from_millis(1));
                            }
                        }
                        rt::time::sleep(Duration::from_millis(1));
                    }
                    waited
                })
            };
            for step in steps[2..].iter().take_while(|step| !matches!(step, story::Step::Reopen)) {
                told.go_on(&set, step).unwrap_or_else(|e| panic!("{shape:?} {fault:?}: {e}"));
            }
            *done.lock() = true;
            waited += nurse.join();
            drop(told.pool.take());
            pool.close().unwrap();
            drop(pool);
            let crashed = SimSet::from_images(set.crash(Cut::Dropped, skip));
            check::check(&crashed, &rig::all(&set), &told.history, told.acknowledged).unwrap();
            check::verified(&crashed, &rig::all(&set)).unwrap();
        }
    }
    assert!(waited >= 8, "only {waited} faults suspended the pool");
}

/// What the sync cannot do without and cannot read waits, too; what people read is an error at once.
#[test]
fn what_the_sync_reads_waits_for_the_disks() {
    for (shape, faulty) in [(RAIDZ, vec![0, 2]), (MIRROR, vec![0, 1]), (STRIPE, vec![0])] {
        let set = SimSet::new(shape.disks, shape.disk_bytes);
        let steps = story::steps(2);
        let mut told = story::tell(&set, shape, &steps[..5], |_| {});
        told.pool.take().unwrap().close().unwrap();
        // Nothing of it is in the cache.
        let pool = rig::open_to_write(&set, &rig::all(&set)).unwrap();
        pool.set_patient(true).unwrap();
        told.pool = Some(pool.clone());
        let unreadable = Fault::new(Kind::Error(rustix::io::Errno::IO), On::Reads);
        faulty.iter().for_each(|disk| _ = set.disk(*disk).inject(unreadable.clone()));
        let nurse = {
            let (pool, set) = (pool.clone(), set.clone());
            rt::thread::spawn("nurse", move || {
                let mut turns = 0;
                while pool.suspended().is_none() {
                    rt::time::sleep(Duration::from_millis(1));
                    turns += 1;
                    assert!(turns < 20_000, "nobody waited");
                }
                let reason = pool.suspended();
                set.disks().iter().for_each(|disk| disk.heal());
                pool.clear().unwrap();
                reason.unwrap()
            })
        };
        told.go_on(&set, &story::Step::Destroy("tank/a")).unwrap();
        told.go_on(&set, &story::Step::Free).unwrap();
        let reason = nurse.join();
        assert!(reason.contains("unreadable"), "{reason}");
        drop(told.pool.take());
        pool.close().unwrap();
        drop(pool);
        check::check(&set, &rig::all(&set), &told.history, told.acknowledged).unwrap();
        check::verified(&set, &rig::all(&set)).unwrap();
    }
}

/// A suspended pool that is let go ends: those who wait are told, and what was acknowledged is there.
#[test]
fn a_suspended_pool_can_be_let_go() {
    let set = SimSet::new(STRIPE.disks, STRIPE.disk_bytes);
    let mut told = story::tell(&set, STRIPE, &story::steps(1)[..4], |_| {});
    let pool = told.pool.clone().unwrap();
    pool.set_patient(true).unwrap();
    set.disk(0).inject(Fault::vanish());
    let closer = {
        let pool = pool.clone();
        rt::thread::spawn("closer", move || {
            while pool.suspended().is_none() {
                rt::time::sleep(Duration::from_millis(1));
            }
            pool.let_go().unwrap();
            // The sync that was under way may end before this or after.
            pool.close().unwrap_or_default();
        })
    };
    let error = told.go_on(&set, &story::steps(1)[4]).unwrap_err();
    assert!(error.contains("suspended"), "{error}");
    closer.join();
    drop((told.pool.take(), pool));
    set.disk(0).heal();
    check::check(&set, &rig::all(&set), &told.history, told.acknowledged).unwrap();
}

/// The n-th operation on any disk fails once, for every n until the story goes through untouched: with
/// redundancy nobody notices, without it the pool stops cleanly, and the judge finds nothing that the DTLs do
/// not tell.
#[test]
fn every_single_failure_of_an_operation_is_survived() {
    let seeds = testkit::rounds(1, 2);
    for (shape, seed) in
        [STRIPE, RAIDZ2].into_iter().flat_map(|shape| (0..seeds).map(move |s| (shape, s)))
    {
        // In the suite a sample: a step that shares no factor with how a txg repeats.
        let stride = testkit::rounds(23, 1) as usize;
        let tried = Mutex::new((0, 0, Vec::new()));
        let workers = rt::Workers::per_core();
        let next = Mutex::new(seed as usize % stride);
        workers.run(workers.count(), |_, _| {
            loop {
                let n = {
                    let mut next = next.lock();
                    *next += stride;
                    *next - stride
                };
                let fault = Fault::new(Kind::Error(rustix::io::Errno::IO), On::All);
                let outcome = one_failure(shape, seed, n as u64, fault);
                let mut tried = tried.lock();
                tried.0 += 1;
                match outcome {
                    Ok(Outcome::Untouched) => return,
                    Ok(Outcome::Survived) => {}
                    Ok(Outcome::Stopped) => tried.1 += 1,
                    Err(e) => tried.2.push(format!("{shape:?} seed {seed}, operation {n}: {e}")),
                }
                if tried.2.len() > 3 {
                    return;
                }
            }
        });
        let (count, stopped, wrong) = tried.into_inner();
        say(&format!(
            "{} disks, seed {seed}: {count} operations failed, {stopped} stopped the pool",
            shape.disks
        ));
        assert!(wrong.is_empty(), "{wrong:#?}");
        // With redundancy only the making of the pool, of a few operations.
        let mostly = stopped * 2 > count;
        let hardly = stopped * 50 < count;
        assert!(count > 20 && stopped > 0, "{count} tried, {stopped} stopped");
        assert!(if shape.disks == 1 { mostly } else { hardly }, "{count} tried, {stopped} stopped");
    }
}

/// What came of one failure.
enum Outcome {
    /// The story ended before it.
    Untouched,
    Survived,
    /// The pool was suspended, or did not open.
    Stopped,
}

/// Tells a story in which the operation number `n`, on whatever disk, fails once.
fn one_failure(shape: Shape, seed: u64, n: u64, fault: Fault) -> Result<Outcome, String> {
    let set = SimSet::new(shape.disks, shape.disk_bytes);
    let fault = set.inject(fault.after(n).times(1));
    let mut told = story::tell(&set, shape, &story::steps(seed), |_| {});
    let struck = set.lift(fault);
    drop(told.pool.take());
    if !struck {
        return match told.error {
            None => Ok(Outcome::Untouched),
            Some(e) => Err(format!("without any failure: {e}")),
        };
    }
    // A disk that fails while the pool is made is refused.
    if let (Some(error), Some(_)) = (&told.error, told.acknowledged)
        && shape.disks > 1
    {
        return Err(format!("one failure stopped a redundant pool: {error}"));
    }
    let crashed = SimSet::from_images(set.crash(Cut::Dropped, n));
    let state = check::check(&crashed, &rig::all(&set), &told.history, told.acknowledged)?;
    if state.is_some() {
        check::verified(&crashed, &rig::all(&set))?;
    }
    Ok(if told.error.is_some() { Outcome::Stopped } else { Outcome::Survived })
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
/// The writer died when one disk had the uberblock: once the pool is opened with that, all have it.
#[test]
fn what_was_opened_is_not_left_to_the_disks_that_had_it() {
    const LABELS: usize = 512 << 10;
    for shape in [RAIDZ, MIRROR] {
        let set = SimSet::new(shape.disks, shape.disk_bytes);
        let pool = rig::create(&set, shape).unwrap();
        let fs = Filesystem::open(&pool, rig::POOL).unwrap();
        let (acknowledged, file) = (pool.txg(), NewObject::of(mode::FILE, Who { uid: 0, gid: 0 }));
        let labels_of = |disk: usize| {
            [0, shape.disk_bytes - LABELS as u64].map(|at| {
                let mut bytes = vec![0; LABELS];
                set.disk(disk).image().read(at, &mut bytes);
                (at, bytes)
            })
        };
        let before: Vec<_> = (1..shape.disks).map(labels_of).collect();
        fs.create_with(fs.root(), b"f", &file, &[7; 40_000]).unwrap();
        pool.sync().unwrap();
        drop((fs, pool));
        for (disk, labels) in (1..).zip(&before) {
            labels.iter().for_each(|(at, bytes)| set.disk(disk).overwrite(*at, bytes));
        }
        let pool = rig::open_to_write(&set, &rig::all(&set)).unwrap();
        assert_eq!(pool.txg(), acknowledged + 1);
        pool.close().unwrap();
        let others: Vec<usize> = (1..shape.disks).collect();
        let opened = rig::open_to_read(&set, &others, u64::MAX).unwrap().unwrap().0;
        assert_eq!(opened.txg(), acknowledged + 1, "{shape:?}: gone back behind what was opened");
    }
}

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
