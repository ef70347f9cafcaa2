//! A crash after any write: the pool opens where it was acknowledged, or one txg later.
//!
//! Each cut is made from the log of one run of the workload: unflushed writes kept, dropped, reordered or torn.
//! What it leaves is compared with a model, file by file, and verified block by block.
//! A failure prints seed, index and mode, and leaves the disks in a directory that it names.
//!
//! Seen red, in the random cuts unless it says otherwise: without the flush before the uberblock (23 of
//! 1,000), with the MOS written in place (the first txgs are refused already), with space used again in
//! the txg that freed it (38) or in the next one (3), with no rest for it after a new open (14), and with
//! labels of a txg that never was left in place (19); in `faults`, without a flush when a pool is opened, and with the bytes
//! of files counted instead of the space they take.
#![allow(clippy::unwrap_used, reason = "tests")]

mod check;
mod faults;
mod forged;
mod fsyncs;
mod gone;
mod idle;
mod labels;
mod left;
mod lost;
mod opened;
mod returned;
mod rig;
mod scans;
mod story;
mod streams;
mod waiting;

use std::io::Write as _;
use std::panic::{AssertUnwindSafe, catch_unwind};

use device::sim::{Cut, Event, Image, Log, SimSet};
use rt::sync::Mutex;
use rt::{Rng, Workers};
use story::{Step, Told};
use testkit::workload::Op;

/// Cuts that one worker tries in a row.
const RANGE: u64 = 40;

/// Failures of which the disks are kept.
const SAVED_MAX: usize = 3;

/// A workload that has been run, with its log.
struct Run {
    seed: u64,
    told: Told,
    log: Log,
}

/// Runs the workload of a seed; the layout of the pool depends on the seed, too, and whether some of its
/// blocks are gangs.
fn run(seed: u64) -> Run {
    let shape = if seed.is_multiple_of(2) { rig::RAIDZ } else { rig::MIRROR };
    let gangs = seed % 8 == 3 || seed % 8 == 6;
    let shape = rig::Shape { gang_every: if gangs { 9 } else { 0 }, ..shape };
    let set = SimSet::new(shape.disks, shape.disk_bytes);
    set.record();
    let told = story::tell(&set, shape, &story::steps(seed), |_| {});
    assert_eq!(told.error, None, "seed {seed}");
    let log = set.log();
    let (writes, txgs) = (log.writes(), told.history.states.len());
    assert!(txgs >= 8 && (400..=5000).contains(&writes), "{txgs} txgs, {writes} writes");
    Run { seed, told, log }
}

impl Run {
    /// Tries the cuts after these writes (ascending) and adds what fails to `wrong`.
    fn cuts(&self, indices: &[(u64, Cut)], wrong: &Mutex<Vec<String>>) {
        let mut replay = self.log.replay();
        for (index, cut) in indices {
            replay.advance_to(*index);
            let images = replay.crash(*cut, self.seed.wrapping_mul(1_000_003) + index);
            let mark = replay.mark().map(|mark| mark as usize);
            let tried = catch_unwind(AssertUnwindSafe(|| self.one(&images, mark, *index)));
            let said = match tried {
                Ok(Ok(())) => continue,
                Ok(Err(e)) => e,
                Err(_) => "a panic, printed above".into(),
            };
            let mut wrong = wrong.lock();
            let place = if wrong.len() < SAVED_MAX { save(&images) } else { "not kept".into() };
            let line = format!("seed {} index {index} {cut:?}: {said} ({place})", self.seed);
            wrong.push(line);
        }
    }

    /// Writes when the last step, which destroys the pool, began: zdb does not open such pools.
    fn writes_at_last(&self) -> u64 {
        let last = self.told.history.states.len() as u64 - 2;
        let mut events = self.log.events().iter();
        let before = events.by_ref().take_while(|e| !matches!(e, Event::Mark(n) if *n == last));
        before.filter(|e| matches!(e, Event::Write { .. })).count() as u64
    }

    fn one(
        &self,
        images: &[(String, Image)],
        mark: Option<usize>,
        index: u64,
    ) -> Result<(), String> {
        let set = SimSet::from_images(images.to_vec());
        let found = rig::scan(&set, &rig::all(&set));
        let state = check::check_found(&set, &found, &self.told.history, mark)?;
        if let Some(state) = state {
            check::verified_found(&found)?;
            if index % 8 == 3 {
                check::rewinds(&set, &rig::all(&set), &self.told.history, state)?;
            }
        }
        // Life goes on after a crash: now and then another txg, and all of it again.
        let Some(state) = state.filter(|_| index % 16 == 7) else { return Ok(()) };
        let pool = rig::open_to_write(&set, &rig::all(&set))?;
        let mut was = self.told.history.states[state].clone();
        was.held.1 = rig::HOSTS[0];
        let mut after = Told {
            shape: self.told.shape,
            history: story::History { states: vec![was] },
            pool: Some(pool),
            acknowledged: Some(0),
            error: None,
        };
        let op = Op::Create { path: b"after the crash".to_vec(), mode: 0o600 };
        after.go_on(&set, &Step::Files(rig::POOL, vec![op]))?;
        drop(after.pool.take());
        let there = check::check(&set, &rig::all(&set), &after.history, Some(1));
        let there = there.and_then(|_| check::verified(&set, &rig::all(&set)));
        there.map_err(|e| format!("after the next txg: {e}"))
    }
}

/// Keeps the images for whoever looks into the failure.
fn save(images: &[(String, Image)]) -> String {
    let dir = testkit::temp_dir().keep();
    for (name, image) in images {
        image.to_file(dir.join(name)).unwrap();
    }
    dir.display().to_string()
}

/// Prints, even of a test that passes.
fn say(line: &str) {
    drop(writeln!(std::io::stderr(), "crash: {line}"));
}

/// Tries all cuts, on all cores, and says how many there were.
fn try_all(what: &str, runs: &[Run], cuts: &[Vec<(u64, Cut)>]) {
    let mut jobs = Vec::new();
    for (run, cuts) in runs.iter().zip(cuts) {
        jobs.extend(cuts.chunks(RANGE as usize).map(|cuts| (run, cuts)));
    }
    let wrong = Mutex::new(Vec::new());
    let workers = Workers::per_core();
    workers.run(jobs.len(), |_, job| jobs[job].0.cuts(jobs[job].1, &wrong));
    let count: usize = cuts.iter().map(Vec::len).sum();
    let writes: Vec<u64> = runs.iter().map(|run| run.log.writes()).collect();
    say(&format!("{what}: {count} cuts, in runs of {writes:?} writes"));
    let wrong = wrong.into_inner();
    let first: Vec<&String> = wrong.iter().take(5).collect();
    assert!(wrong.is_empty(), "{} of {count} cuts: {first:#?}", wrong.len());
}

/// The runs are told few at a time: each keeps all that it wrote in memory.
#[test]
fn a_cut_after_any_write_loses_nothing_acknowledged() {
    let seeds: Vec<u64> = (0..testkit::rounds(5, 100)).collect();
    for some in seeds.chunks(5) {
        let runs: Vec<Run> = some.iter().copied().map(run).collect();
        let every = |run: &Run| {
            let mode = |index: u64| Cut::ALL[((index + run.seed) % 4) as usize];
            (0..=run.log.writes()).map(|index| (index, mode(index))).collect()
        };
        let cuts: Vec<Vec<(u64, Cut)>> = runs.iter().map(every).collect();
        try_all(&format!("every index of the seeds {some:?}"), &runs, &cuts);
    }
}

#[test]
fn a_cut_after_random_writes_of_many_runs_loses_nothing_acknowledged() {
    let runs: Vec<Run> = (100..130).map(run).collect();
    let random = |run: &Run| {
        let mut rng = Rng::new(run.seed);
        let mut draw = || (rng.below(run.log.writes() + 1), Cut::ALL[rng.index(4)]);
        let mut cuts: Vec<(u64, Cut)> = (0..100).map(|_| draw()).collect();
        cuts.sort_by_key(|(index, _)| *index);
        cuts
    };
    let cuts: Vec<Vec<(u64, Cut)>> = runs.iter().map(random).collect();
    try_all("random", &runs, &cuts);
}

/// A sample of the crashed pools, and of those that went on after the crash, goes to zdb and
/// poolaudit: no leak, and all accounts right.
#[test]
fn what_a_crash_leaves_is_clean_to_the_judges() {
    for seed in [0, 1, 6] {
        let run = run(seed);
        let mut rng = Rng::new(seed);
        let mut replay = run.log.replay();
        let first = run.log.writes() / 5;
        let step = (run.writes_at_last() - first) / 5;
        for turn in 0..5 {
            replay.advance_to(first + turn * step + rng.below(step));
            let set = SimSet::from_images(replay.crash(Cut::ALL[turn as usize % 4], turn));
            if turn % 2 == 1 {
                let pool = rig::open_to_write(&set, &rig::all(&set)).unwrap();
                let fs = fs::Filesystem::open(&pool, rig::POOL).unwrap();
                let new = Op::Create { path: b"after the crash".to_vec(), mode: 0o600 };
                story::apply(&fs, &new).unwrap();
                drop(fs);
                pool.close().unwrap();
            }
            judge(&set, &format!("seed {seed} index {}", replay.writes()));
        }
    }
}

/// zdb and poolaudit on the disks as they are now.
fn judge(set: &SimSet, what: &str) {
    say(&format!("judged: {what}"));
    let dir = testkit::temp_dir();
    for disk in set.disks() {
        let name = device::Device::name(&disk).to_string();
        disk.image().to_file(dir.path().join(name)).unwrap();
    }
    testkit::tool::zdb_content(dir.path(), rig::POOL);
    drop(testkit::poolaudit(dir.path(), rig::POOL).expect_ok());
}
