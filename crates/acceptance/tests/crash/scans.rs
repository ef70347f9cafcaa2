//! Scrubs, resilvers, replacements and spares in the workload: a cut after any write, or any I/O that fails once, while one
//! of them is under way and the pool is written beneath it.
//!
//! The one idea: a scan changes nothing that people see, so what a cut leaves is a state of the story; and once somebody
//! has gone on with it to its end, as many *other* disks may be lost as ever.
//!
//! Seen red, of the spare: one that is said to lack nothing, and a resilver that leaves out a block in five.

use device::Device;
use device::sim::{Cut, Fault, Kind, On, SimSet};
use format::label::DATA_AT;
use format::scan::ScanFunction;
use fs::{Filesystem, NewObject, Who, mode};
use pool::{Additions, Pool, Trouble};
use rt::sync::{Arc, Mutex};
use rt::{Rng, Workers};
use testkit::rounds;

use crate::rig::{self, HOSTS, MIRROR, RAIDZ, RAIDZ2, Shape};
use crate::story::{self, Step, Told};
use crate::{check, say};

/// Steps of the story before the work begins.
const FIRST: usize = 6;
/// Bytes of blocks in one slice.
const SLICE: u64 = 192 << 10;

/// What is done with the disks while the story goes on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Work {
    /// Some disks hold noise.
    Scrub,
    /// They were offline for a while.
    Resilver,
    /// A new disk takes the place of one.
    Replace,
    /// Of one that is gone.
    ReplaceDead,
    /// A new disk beside one.
    Attach,
    /// A spare stands in for one that is gone.
    Spare,
}

/// The work, on what, and which disks are in want afterwards.
#[derive(Clone, Copy, Debug)]
struct Case {
    work: Work,
    shape: Shape,
    wanting: &'static [usize],
}

const fn case(work: Work, shape: Shape, wanting: &'static [usize]) -> Case {
    Case { work, shape, wanting }
}

/// As many disks in want as may be.
const CUT: [Case; 6] = [
    case(Work::Scrub, RAIDZ2, &[0, 2]),
    case(Work::Resilver, RAIDZ2, &[1, 3]),
    case(Work::Replace, RAIDZ, &[1]),
    case(Work::ReplaceDead, RAIDZ, &[2]),
    case(Work::Attach, MIRROR, &[0]),
    case(Work::Spare, RAIDZ, &[1]),
];

/// So many that one more failure is survived.
const FAILING: [Case; 6] = [
    case(Work::Scrub, RAIDZ2, &[2]),
    case(Work::Resilver, RAIDZ2, &[1]),
    case(Work::Replace, RAIDZ, &[1]),
    case(Work::ReplaceDead, RAIDZ2, &[0]),
    case(Work::Attach, MIRROR, &[0]),
    case(Work::Spare, RAIDZ2, &[3]),
];

impl Case {
    /// Number of the disk that is new.
    fn new_disk(&self) -> usize {
        self.shape.disks
    }

    /// The disks that somebody finds who opens the pool: not one that is dead.
    fn there(&self) -> Vec<usize> {
        let one_is_dead = matches!(self.work, Work::ReplaceDead | Work::Spare);
        let dead = |disk: &usize| one_is_dead && self.wanting.contains(disk);
        (0..=self.shape.disks).filter(|disk| !dead(disk)).collect()
    }

    /// Disks without which all must be there in the end; those that were in want are not among them.
    fn hidden(&self, seed: u64) -> Vec<usize> {
        let count = match self.shape.joined {
            pool::Joined::Raidz(parity) => parity as usize,
            // All but the new one.
            _ => self.shape.disks,
        };
        let whole = |disk: &usize| self.work == Work::Attach || !self.wanting.contains(disk);
        let mut others: Vec<usize> = (0..self.shape.disks).filter(whole).collect();
        let mut rng = Rng::new(seed);
        while others.len() > count {
            others.remove(rng.index(others.len()));
        }
        others
    }

    /// Tells the beginning of the story, and makes the disks want what the work gives them.
    fn prepare(&self, seed: u64) -> (SimSet, Told) {
        let set = SimSet::new(self.shape.disks + 1, self.shape.disk_bytes);
        let mut told = story::tell(&set, self.shape, &story::steps(seed)[..FIRST], |_| {});
        assert_eq!(told.error, None);
        match self.work {
            Work::Scrub | Work::ReplaceDead | Work::Spare => {
                if self.work == Work::Spare {
                    let spares = vec![rig::new_leaf(&set, self.new_disk())];
                    let more = Additions { spares, ..Additions::default() };
                    told.pool.as_ref().unwrap().add(more).unwrap();
                }
                told.pool.take().unwrap().close().unwrap();
                if self.work == Work::Scrub {
                    self.wanting.iter().for_each(|disk| garble(&set, *disk, seed));
                }
                let pool = rig::open_on(&set, &self.there(), HOSTS[0], None).unwrap();
                rig::set(&pool, self.shape).unwrap();
                told.pool = Some(pool);
            }
            Work::Resilver => {
                let pool = told.pool.clone().unwrap();
                for disk in self.wanting {
                    pool.offline(rig::guid_on(&pool, *disk), false, false).unwrap();
                }
            }
            Work::Replace | Work::Attach => {}
        }
        (set, told)
    }

    /// Begins the work.
    fn begin(&self, set: &SimSet, pool: &Pool) -> pool::Result<()> {
        let new = || rig::new_leaf(set, self.new_disk());
        let guid = |disk| rig::guid_on(pool, disk);
        match self.work {
            Work::Scrub => {}
            Work::Resilver => {
                self.wanting.iter().try_for_each(|disk| pool.online(guid(*disk), None))?;
            }
            Work::Replace | Work::ReplaceDead => {
                pool.attach(guid(self.wanting[0]), new(), true).map(drop)?;
            }
            Work::Attach => pool.attach(guid(self.wanting[0]), new(), false).map(drop)?,
            Work::Spare => {
                let spare = pool.spares()?[0].guid;
                let device = Arc::new(set.disk(self.new_disk()));
                pool.engage(guid(self.wanting[0]), spare, device, Trouble::Unnoted)?;
            }
        }
        let scrub = self.work == Work::Scrub;
        let what = if scrub { ScanFunction::Scrub } else { ScanFunction::Resilver };
        pool.scan_start(what).map(drop)
    }

    /// The rest of the story, with the work going on beneath it.
    fn go_on(&self, set: &SimSet, told: &mut Told, seed: u64) -> Result<(), String> {
        let text = |e: pool::PoolError| e.to_string();
        let rest = story::steps(seed).split_off(FIRST);
        let rest = rest.iter().take_while(|step| !matches!(step, Step::Reopen));
        for (number, step) in rest.enumerate() {
            let pool = told.pool.clone().ok_or("the pool is not open")?;
            pool.scan_step_within(SLICE).map_err(text)?;
            if number % 3 == 2 {
                pool.scan_save().map_err(text)?;
            }
            told.go_on(set, step)?;
        }
        self.finish(told.pool.as_ref().ok_or("the pool is not open")?)
    }

    /// Somebody goes on with the work until there is none.
    fn finish(&self, pool: &Pool) -> Result<(), String> {
        let text = |e: pool::PoolError| e.to_string();
        if self.work == Work::Scrub && pool.scan_status().map_err(text)?.is_none() {
            pool.scan_start(ScanFunction::Scrub).map_err(text)?;
        }
        for _ in 0..6 {
            if pool.is_scanning() {
                pool.scan_run(&mut |_| true).map_err(text)?;
            } else if pool.needs_resilver() {
                pool.scan_start(ScanFunction::Resilver).map_err(text)?;
            } else {
                return pool.finish_replacements().map_err(text);
            }
        }
        Err("the work does not come to its end".into())
    }

    /// Had it come to that before the cut?
    fn is_begun(&self, pool: &Pool) -> bool {
        let config = pool.config();
        let new = format!("/sim/d{:02}", self.new_disk()).into_bytes();
        let mut leaves = config.vdev_tree.leaves();
        match self.work {
            Work::Scrub => true,
            Work::Resilver => leaves.all(|leaf| !leaf.offline),
            _ => leaves.any(|leaf| leaf.path.as_deref() == Some(&new)),
        }
    }

    /// Is the pool on these disks in the state of the mark or the next, and does the judge excuse nothing? Disks in want
    /// may hold what is wrong, as long as they do.
    fn is_right(
        &self,
        set: &SimSet,
        disks: &[usize],
        told: &Told,
        mark: usize,
        wanting: &[usize],
    ) -> Result<usize, String> {
        let opened = rig::open_to_read(set, disks, u64::MAX)?;
        let (pool, _) = opened.ok_or("no pool was found")?;
        let mut wrong = String::new();
        let mut states = (mark..told.history.states.len()).take(2);
        let number = states.find(|number| {
            let held = check::holds(&pool, &told.history.states[*number]);
            held.map_err(|e| wrong += &format!("not state {number}: {e}; ")).is_ok()
        });
        let number = number.ok_or(wrong)?;
        pool.close().map_err(|e| e.to_string())?;
        check::is_sound(set, disks, wanting)?;
        Ok(number)
    }

    /// What is left of it comes to its end, and then other disks go.
    fn ends_well(&self, set: &SimSet, told: &Told, state: usize, seed: u64) -> Result<(), String> {
        let pool = rig::open_on(set, &self.there(), HOSTS[0], None)?;
        self.finish(&pool).map_err(|e| format!("it is gone on with: {e}"))?;
        if pool.config().vdev_tree.walk().any(|vdev| vdev.kind.name() == b"replacing") {
            return Err("what was replaced is still there".into());
        }
        if let Some(status) = pool.scan_status().map_err(|e| e.to_string())?
            && status.scan.errors > 0
        {
            return Err(format!("a scan has errors: {status:?}"));
        }
        if pool
            .store()
            .tree()
            .leaves()
            .iter()
            .any(|leaf| leaf.state.is_online() && (leaf.is_filling() || !leaf.lacks.is_empty()))
        {
            return Err("a disk still lacks something".into());
        }
        let is_begun = self.is_begun(&pool);
        pool.close().map_err(|e| e.to_string())?;
        drop(pool);
        self.is_right(set, &self.there(), told, state, &[])
            .map_err(|e| format!("in the end: {e}"))?;
        if !is_begun {
            return Ok(());
        }
        let hidden = self.hidden(seed);
        let left: Vec<usize> =
            self.there().into_iter().filter(|disk| !hidden.contains(disk)).collect();
        self.is_right(set, &left, told, state, &[])
            .map(drop)
            .map_err(|e| format!("without {hidden:?}: {e}"))
    }

    /// As it is after a crash.
    fn after_a_cut(
        &self,
        set: &SimSet,
        told: &Told,
        mark: usize,
        index: u64,
        to_end: bool,
    ) -> Result<(), String> {
        let wanting: &[usize] = if self.work == Work::Scrub { self.wanting } else { &[] };
        let state = self.is_right(set, &self.there(), told, mark, wanting)?;
        if to_end { self.ends_well(set, told, state, index) } else { Ok(()) }
    }
}

/// Noise on a disk wherever something is.
fn garble(set: &SimSet, disk: usize, seed: u64) {
    let (disk, mut rng) = (set.disk(disk), Rng::new(seed + disk as u64));
    let image = disk.image();
    let mut piece = vec![0; 16 << 10];
    let mut at = DATA_AT;
    while at < disk.size() - (512 << 10) {
        image.read(at, &mut piece);
        if piece.iter().any(|byte| *byte != 0) {
            rng.fill(&mut piece);
            disk.overwrite(at, &piece);
        }
        at += piece.len() as u64;
    }
}

/// Cuts while the work is under way.
#[test]
fn a_cut_while_disks_are_scanned_or_filled_loses_nothing() {
    let mut all_wrong = Vec::new();
    for (turn, case) in CUT.into_iter().enumerate() {
        for seed in 0..rounds(1, 8) {
            let seed = seed + turn as u64;
            let (set, mut told) = case.prepare(seed);
            let first = told.acknowledged.unwrap();
            set.record();
            case.begin(&set, told.pool.as_ref().unwrap()).unwrap();
            case.go_on(&set, &mut told, seed).unwrap_or_else(|e| panic!("{case:?}: {e}"));
            told.pool.take().unwrap().close().unwrap();
            let log = set.log();
            let stride = case_stride(log.writes());
            let indices: Vec<u64> = (0..=log.writes()).step_by(stride as usize).collect();
            let wrong = Mutex::new(Vec::new());
            let parts: Vec<&[u64]> = indices.chunks(12).collect();
            Workers::per_core().run(parts.len(), |_, part| {
                let mut replay = log.replay();
                for (place, index) in parts[part].iter().enumerate() {
                    replay.advance_to(*index);
                    let cut = Cut::ALL[(index / stride) as usize % 4];
                    let left = SimSet::from_images(replay.crash(cut, seed * 1_000_003 + index));
                    let mark = replay.mark().map_or(first, |mark| mark as usize);
                    let to_end = place % 3 == 1;
                    if let Err(e) = case.after_a_cut(&left, &told, mark, *index, to_end) {
                        wrong
                            .lock()
                            .push(format!("{case:?} seed {seed} index {index} {cut:?}: {e}"));
                    }
                }
            });
            let (wrong, writes) = (wrong.into_inner(), log.writes());
            say(&format!("{:?}: {} cuts in {writes} writes", case.work, indices.len()));
            all_wrong.extend(wrong);
        }
    }
    let some = &all_wrong[..all_wrong.len().min(8)];
    assert!(all_wrong.is_empty(), "{} cuts: {some:#?}", all_wrong.len());
}

/// A sample: a step that shares no factor with how txgs repeat. What happens at each index would take days.
fn case_stride(writes: u64) -> u64 {
    (writes / rounds(30, 300)) | 1
}

/// The n-th I/O while the work is under way fails, once (a flush with all that it was for): nobody notices, nothing is
/// lost, and the work that somebody goes on with afterwards leaves as much redundancy as ever.
#[test]
fn every_single_failure_while_disks_are_scanned_or_filled_is_survived() {
    let mut all_wrong = Vec::new();
    for (turn, case) in FAILING.into_iter().enumerate() {
        for (kind, of_new, stride) in [
            (On::All, false, rounds(1499, 109)),
            (On::Writes, false, rounds(733, 53)),
            (On::Writes, true, rounds(41, 3)),
            (On::Flushes, false, rounds(97, 7)),
            (On::Flushes, true, rounds(7, 1)),
        ] {
            let next = Mutex::new(turn as u64);
            let tried = Mutex::new((0, Vec::new()));
            let workers = Workers::per_core();
            workers.run(workers.count(), |_, _| {
                loop {
                    let n = {
                        let mut next = next.lock();
                        *next += stride;
                        *next - stride
                    };
                    let outcome = one_failure(case, n, kind, of_new);
                    let mut tried = tried.lock();
                    match outcome {
                        Ok(false) => return,
                        Ok(true) => tried.0 += 1,
                        Err(e) => tried
                            .1
                            .push(format!("{case:?}, operation {n} of {kind:?}, {of_new}: {e}")),
                    }
                    if tried.1.len() > 3 {
                        return;
                    }
                }
            });
            let (count, wrong) = tried.into_inner();
            say(&format!("{:?}: {count} of {kind:?} failed, {of_new}", case.work));
            assert!(count > 0 || !wrong.is_empty(), "{case:?}: {count} failed");
            all_wrong.extend(wrong);
        }
    }
    assert!(all_wrong.is_empty(), "{all_wrong:#?}");
}

/// `of_new`: of a disk that is in want, or new. `false`: it ended before.
fn one_failure(case: Case, n: u64, on: On, of_new: bool) -> Result<bool, String> {
    let seed = 2;
    let (set, mut told) = case.prepare(seed);
    let error = Kind::Error(rustix::io::Errno::IO);
    let kind = if on == On::Flushes { Kind::Forget } else { error };
    let fault = Fault::new(kind, on).after(n).times(1);
    let old = matches!(case.work, Work::Scrub | Work::Resilver);
    let disk = set.disk(if old { case.wanting[0] } else { case.new_disk() });
    let asked = || match on {
        On::Flushes => disk.counts().flushes,
        _ => disk.counts().writes,
    };
    let before = asked();
    let fault = if of_new { disk.inject(fault) } else { set.inject(fault) };
    let pool = told.pool.clone().ok_or("it is open")?;
    // A new disk that does not take its labels is refused; then there is no work.
    match case.begin(&set, &pool) {
        Err(e) if e.is_refusal() => case.begin(&set, &pool).map_err(|e| e.to_string())?,
        result => result.map_err(|e| e.to_string())?,
    }
    drop(pool);
    let done = case.go_on(&set, &mut told, seed);
    let struck = set.lift(fault) || of_new && asked() - before > n;
    disk.heal();
    done.map_err(|e| format!("one failure stopped it: {e}"))?;
    drop(told.pool.take());
    if !struck {
        return Ok(false);
    }
    let left = SimSet::from_images(set.crash(Cut::Dropped, n));
    let state = told.acknowledged.ok_or("nothing was acknowledged")?;
    case.after_a_cut(&left, &told, state, n, true)?;
    Ok(true)
}

/// Logs that nobody has replayed yet go with their disk to the one that replaces it, and a scrub mends them.
#[test]
fn logs_that_wait_are_filled_and_mended() {
    let (shape, new) = (MIRROR, MIRROR.disks);
    let set = SimSet::new(shape.disks + 1, shape.disk_bytes);
    let pool = rig::create(&set, shape).unwrap();
    let fs = Filesystem::open(&pool, rig::POOL).unwrap();
    let file = NewObject::of(mode::FILE | 0o600, Who { uid: 0, gid: 0 });
    let file = fs.create(fs.root(), b"file", &file).unwrap();
    let mut bytes = vec![0; 256 << 10];
    Rng::new(5).fill(&mut bytes);
    let (first, rest) = bytes.split_at(4096);
    // The first one is a txg, and begins the log.
    fs.write(file, 0, first).unwrap();
    fs.fsync(file).unwrap();
    for (piece, at) in rest.chunks(16 << 10).zip((first.len() as u64..).step_by(16 << 10)) {
        fs.write(file, at, piece).unwrap();
        fs.fsync(file).unwrap();
    }
    let set = SimSet::from_images(set.crash(Cut::Dropped, 1));
    drop((fs, pool));
    let pool = rig::open_on(&set, &[0, 1], HOSTS[0], None).unwrap();
    assert_eq!(pool.logs_to_replay(), [rig::POOL]);
    pool.attach(rig::guid_on(&pool, 0), rig::new_leaf(&set, new), true).unwrap();
    pool.scan_start(ScanFunction::Resilver).unwrap();
    pool.scan_run(&mut |_| true).unwrap();
    assert!(!pool.needs_resilver() && !pool.config().vdev_tree.leaves().any(is_first));
    let done = pool.scan_status().unwrap().unwrap().scan;
    assert_eq!(done.errors, 0, "{done:?}");
    drop(pool);
    assert_eq!(replayed(&set, &[new]), bytes, "filled");
    garble(&set, 1, 7);
    let pool = rig::open_on(&set, &[1, new], HOSTS[0], None).unwrap();
    pool.scan_start(ScanFunction::Scrub).unwrap();
    pool.scan_run(&mut |_| true).unwrap();
    let done = pool.scan_status().unwrap().unwrap().scan;
    assert!(done.errors == 0 && done.processed > 0, "{done:?}");
    drop(pool);
    assert_eq!(replayed(&set, &[1]), bytes, "mended");
}

fn is_first(leaf: &format::config::VdevConfig) -> bool {
    leaf.path.as_deref() == Some(b"/sim/d00")
}

/// What the file holds for somebody who has only these disks, and replays the log on copies of them.
fn replayed(set: &SimSet, disks: &[usize]) -> Vec<u8> {
    let set = SimSet::from_images(set.crash(Cut::Dropped, 1));
    let pool = rig::open_on(&set, disks, HOSTS[0], None).unwrap();
    assert!(fs::replay_logs(&pool).unwrap().is_empty());
    let fs = Filesystem::open(&pool, rig::POOL).unwrap();
    let mut bytes = vec![0; 1 << 20];
    let got = fs.read(fs.resolve(b"file").unwrap(), 0, &mut bytes).unwrap();
    bytes.truncate(got);
    bytes
}
