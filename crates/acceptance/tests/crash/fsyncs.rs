//! A crash after fsyncs: what was asked for is there once the intent log is replayed, and nothing else is broken.
//!
//! The one idea: each step of a story is one change, followed by an fsync of what it was made to. So at any cut the
//! files are those of the last step that was acknowledged, or of the next one, whose write may be there in part.
//!
//! Seen red: without the flush of a log block (162 of 360 cuts), with its space in the space maps at once (15, and
//! leaks), with no txg held while it is written (4, and a leak), with blocks that go one txg early (13), without the
//! data of what is moved, or of what is made, and with what is told of files that are gone; with a log as long as it
//! likes, or that asks for no txg, and with blocks that go with the txg in which they were taken.

use device::sim::{Cut, Fault, Image, Kind, Log, On, SimDisk, SimSet};
use format::zil::ZilHeader;
use format::znode::Pflags;
use fs::{Attrs, Filesystem, NewObject, Who, mode};
use pool::{Pool, Stored};
use rt::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use rt::sync::{Arc, Mutex};
use rt::{Rng, Workers};
use testkit::data::{Data, Look};
use testkit::model::Tree;
use testkit::workload::Op;

use crate::rig::{self, MIRROR, POOL, RAIDZ, STRIPE, Shape};
use crate::story::apply;
use crate::{check, judge, say};

/// Steps of a story.
const STEPS: usize = 120;

struct Story {
    seed: u64,
    log: Log,
    states: Vec<Tree>,
    /// What led to each state but the first.
    ops: Vec<Op>,
}

fn path(rng: &mut Rng) -> Vec<u8> {
    let dirs = [&b""[..], b"d0/", b"d1/", b"d1/below/"];
    let dir = dirs[rng.index(dirs.len())];
    [dir, format!("n{}", rng.below(6)).as_bytes()].concat()
}

fn dir(rng: &mut Rng) -> Vec<u8> {
    [&b"d0"[..], b"d1", b"d1/below", b"d2"][rng.index(4)].to_vec()
}

/// Any operation; the model says whether it can be done.
fn draw(rng: &mut Rng, number: usize) -> Op {
    let bits = [0o600, 0o644, 0o4711][rng.index(3)];
    match rng.below(20) {
        0 | 1 => Op::Mkdir { path: dir(rng), mode: 0o755 },
        2 => Op::Rmdir { path: dir(rng) },
        3..=5 => Op::Create { path: path(rng), mode: bits },
        6..=11 => {
            let size = [10, 600, 4096, 9000, 40_000][rng.index(5)];
            let data = Data { look: Look::Noise, seed: number as u64, size };
            Op::Write { path: path(rng), offset: rng.below(30_000), data }
        }
        12 => Op::Truncate { path: path(rng), size: rng.below(50_000) },
        13 => Op::Link { existing: path(rng), path: path(rng) },
        14 => Op::Rename { from: path(rng), to: path(rng) },
        15 => Op::Remove { path: path(rng) },
        16 => Op::Symlink { path: path(rng), target: b"../n1".to_vec() },
        17 => Op::SetMode { path: path(rng), mode: bits },
        18 => Op::SetOwner { path: path(rng), uid: 7, gid: rng.below(99) as u32 },
        _ => match rng.below(3) {
            0 => Op::Fifo { path: path(rng), mode: bits },
            1 => Op::SetTime { path: path(rng), mtime: (1_234_567_890, 5) },
            _ => Op::SetXattr { path: path(rng), name: b"user.x".to_vec(), value: vec![3; 40] },
        },
    }
}

/// What has to be asked to be stable after an operation.
fn asked(fs: &Filesystem, op: &Op) -> u64 {
    match op {
        Op::Write { path, .. }
        | Op::Truncate { path, .. }
        | Op::SetMode { path, .. }
        | Op::SetOwner { path, .. }
        | Op::SetTime { path, .. }
        | Op::SetXattr { path, .. } => fs.resolve(path).unwrap(),
        _ => fs.root(),
    }
}

fn shape_of(seed: u64) -> Shape {
    [RAIDZ, MIRROR, STRIPE][seed as usize % 3]
}

fn tell(seed: u64) -> Story {
    let shape = shape_of(seed);
    let set = SimSet::new(shape.disks, shape.disk_bytes);
    let pool = rig::create(&set, shape).unwrap();
    let fs = Filesystem::open(&pool, POOL).unwrap();
    set.record();
    let syncs = (seed % 2 == 1).then(|| Syncs::start(&pool));
    let mut rng = Rng::new(seed ^ 0xf51c);
    let (mut states, mut ops) = (vec![Tree::new()], Vec::new());
    while ops.len() < STEPS {
        let op = draw(&mut rng, ops.len());
        let mut next = states[ops.len()].clone();
        if next.apply(&op).is_err() {
            continue;
        }
        states.push(next);
        apply(&fs, &op).unwrap_or_else(|e| panic!("seed {seed}: {op}: {e}"));
        fs.fsync(asked(&fs, &op)).unwrap();
        ops.push(op);
        set.mark(ops.len() as u64);
        match rng.below(40) {
            0..4 => drop(pool.sync().unwrap()),
            4 => pool.snapshot(&[format!("{POOL}@s{}", ops.len())], &[]).unwrap(),
            5 => pool.set_property(POOL, "atime", Some(Stored::Number(rng.below(2)))).unwrap(),
            _ => {}
        }
    }
    drop(syncs);
    // As a crash would: not closed.
    Story { seed, log: set.log(), states, ops }
}

/// One txg after another beside all that happens.
struct Syncs {
    over: Arc<AtomicBool>,
    thread: Option<rt::thread::JoinHandle<()>>,
}

impl Syncs {
    fn start(pool: &Arc<Pool>) -> Syncs {
        let over = Arc::new(AtomicBool::new(false));
        let (theirs, ends) = (pool.clone(), over.clone());
        let body = move || {
            while !ends.load(Ordering::SeqCst) {
                theirs.sync().unwrap();
                rt::time::sleep(std::time::Duration::from_millis(3));
            }
        };
        Syncs { over, thread: Some(rt::thread::spawn("syncs", body)) }
    }
}

impl Drop for Syncs {
    fn drop(&mut self) {
        self.over.store(true, Ordering::SeqCst);
        self.thread.take().into_iter().for_each(|thread| thread.join());
    }
}

/// The state after a part of the write that is `op`, as far as it is in the file system.
fn partly(fs: &Filesystem, before: &Tree, op: &Op) -> Option<Tree> {
    let Op::Write { path, offset, data } = op else { return None };
    let object = fs.resolve(path).ok()?;
    let new = data.bytes();
    let mut seen = vec![0; new.len()];
    let got = fs.read(object, *offset, &mut seen).ok()?;
    let size = new.iter().zip(&seen[..got]).take_while(|(a, b)| a == b).count() as u64;
    let mut tree = before.clone();
    let data = Data { size, ..*data };
    tree.apply(&Op::Write { path: path.clone(), offset: *offset, data }).ok()?;
    Some(tree)
}

impl Story {
    fn is_due(&self, pool: &Arc<Pool>, mark: usize) -> Result<(), String> {
        let fs = Filesystem::open(pool, POOL).map_err(|e| e.to_string())?;
        let Err(first) = check::same_tree(&fs, &self.states[mark]) else { return Ok(()) };
        let Some(op) = self.ops.get(mark) else { return Err(first) };
        let Err(second) = check::same_tree(&fs, &self.states[mark + 1]) else { return Ok(()) };
        if let Some(tree) = partly(&fs, &self.states[mark], op)
            && check::same_tree(&fs, &tree).is_ok()
        {
            return Ok(());
        }
        Err(format!("step {mark}: {first}; next ({op}): {second}"))
    }

    fn one(&self, images: &[(String, Image)], mark: usize, index: u64) -> Result<u64, String> {
        let set = SimSet::from_images(images.to_vec());
        let disks = rig::all(&set);
        if index.is_multiple_of(4) {
            check::verified(&set, &disks).map_err(|e| format!("before its replay: {e}"))?;
        }
        let mut pool = rig::open_to_write(&set, &disks)?;
        if let Some(reason) = pool.read_only_reason() {
            return Err(reason.into());
        }
        let claimed = pool.logs_to_replay().len() as u64;
        if index % 4 == 1 {
            drop(pool);
            check::verified(&set, &disks).map_err(|e| format!("claimed: {e}"))?;
            pool = rig::open_to_write(&set, &disks)?;
        }
        let left = fs::replay_logs(&pool).map_err(|e| format!("replay: {e}"))?;
        if let Some(left) = left.first() {
            return Err(format!("not replayed: {left}"));
        }
        self.is_due(&pool, mark)?;
        // It goes on as it was: with a log.
        let fs = Filesystem::open(&pool, POOL).map_err(|e| e.to_string())?;
        let new = NewObject::of(mode::FILE | 0o600, Who { uid: 0, gid: 0 });
        for name in [b"one".as_slice(), b"two"] {
            let object =
                fs.create_with(fs.root(), name, &new, b"again").map_err(|e| e.to_string())?;
            fs.fsync(object).map_err(|e| e.to_string())?;
        }
        drop(fs);
        pool.close().map_err(|e| e.to_string())?;
        drop(pool);
        check::verified(&set, &disks).map_err(|e| format!("after its replay: {e}"))?;
        match header(&set) == ZilHeader::default() {
            true => Ok(claimed),
            false => Err("a closed pool has a log".into()),
        }
    }
}

/// The header of the log of the file system, as it is on disk.
fn header(set: &SimSet) -> ZilHeader {
    let opened = rig::open_to_read(set, &rig::all(set), u64::MAX).unwrap();
    let (pool, _) = opened.unwrap();
    ZilHeader::parse(&pool.dataset(POOL).unwrap().objset.phys().zil_header)
}

fn tried(stories: &[Story], each: u64) {
    let wrong = Mutex::new((Vec::new(), 0));
    let one = |story: &Story| {
        let mut rng = Rng::new(story.seed);
        let mut places: Vec<u64> = (0..each).map(|_| rng.below(story.log.writes() + 1)).collect();
        places.sort_unstable();
        let mut replay = story.log.replay();
        for (number, place) in places.into_iter().enumerate() {
            replay.advance_to(place);
            let cut = Cut::ALL[number % 4];
            let images = replay.crash(cut, place);
            let mark = replay.mark().unwrap_or(0) as usize;
            match story.one(&images, mark, number as u64 / 4) {
                Ok(claimed) => wrong.lock().1 += claimed,
                Err(e) => {
                    let line = format!("seed {} write {place} {cut:?}: {e}", story.seed);
                    wrong.lock().0.push(line);
                }
            }
        }
    };
    Workers::per_core().run(stories.len(), |_, job| one(&stories[job]));
    let (wrong, claimed) = wrong.into_inner();
    let all = stories.len() as u64 * each;
    say(&format!("fsyncs: {all} cuts, {claimed} logs claimed"));
    let first: Vec<&String> = wrong.iter().take(5).collect();
    assert!(wrong.is_empty(), "{} of {all} cuts: {first:#?}", wrong.len());
    assert!(claimed * 2 > all, "the logs held something in {claimed} of {all} cuts only");
}

#[test]
fn what_was_asked_to_be_stable_is_there_after_any_cut() {
    let stories: Vec<Story> = (0..testkit::rounds(6, 60)).map(tell).collect();
    tried(&stories, testkit::rounds(60, 300));
}

/// Writers side by side, each of whom puts a number into a new file, moves it over his own, and asks for it; beside
/// them one txg after another. After a cut each file has the last number that was acknowledged, or a later one.
#[test]
fn many_who_ask_get_what_they_were_told() {
    const WRITERS: usize = 4;
    const TURNS: u64 = 40;
    let set = SimSet::new(STRIPE.disks, STRIPE.disk_bytes);
    let pool = rig::create(&set, STRIPE).unwrap();
    let fs = Filesystem::open(&pool, POOL).unwrap();
    let new = NewObject::of(mode::FILE | 0o600, Who { uid: 0, gid: 0 });
    set.record();
    let syncs = Syncs::start(&pool);
    let acknowledged = Mutex::new(vec![[0; WRITERS]]);
    Workers::new(WRITERS).run(WRITERS, |_, writer| {
        for turn in 1..=TURNS {
            let (own, spare) = (format!("own{writer}"), format!("spare{writer}"));
            let bytes = turn.to_le_bytes().repeat(400);
            let made = fs.create_with(fs.root(), spare.as_bytes(), &new, &bytes).unwrap();
            fs.rename(fs.root(), spare.as_bytes(), fs.root(), own.as_bytes()).unwrap();
            fs.fsync(made).unwrap();
            let mut all = acknowledged.lock();
            let mut next = all[all.len() - 1];
            next[writer] = turn;
            all.push(next);
            set.mark(all.len() as u64 - 1);
        }
    });
    drop(syncs);
    let (log, acknowledged) = (set.log(), acknowledged.into_inner());
    let mut rng = Rng::new(9);
    let count = testkit::rounds(80, 1000);
    let mut places: Vec<u64> = (0..count).map(|_| rng.below(log.writes() + 1)).collect();
    places.sort_unstable();
    let mut replay = log.replay();
    let mut claimed = 0;
    for (number, place) in places.into_iter().enumerate() {
        replay.advance_to(place);
        let cut = Cut::ALL[number % 4];
        let set = SimSet::from_images(replay.crash(cut, place));
        let due = acknowledged[replay.mark().unwrap_or(0) as usize];
        check::verified(&set, &rig::all(&set)).unwrap_or_else(|e| panic!("{place} {cut:?}: {e}"));
        let pool = rig::open_to_write(&set, &rig::all(&set)).unwrap();
        claimed += pool.logs_to_replay().len();
        assert_eq!(fs::replay_logs(&pool).unwrap().len(), 0);
        let fs = Filesystem::open(&pool, POOL).unwrap();
        for (writer, least) in due.into_iter().enumerate().filter(|(_, least)| *least > 0) {
            let own = fs.resolve(format!("own{writer}").as_bytes()).unwrap();
            let mut seen = vec![0; 3200];
            assert_eq!(fs.read(own, 0, &mut seen).unwrap(), 3200, "{place} {cut:?}: {writer}");
            let value = u64::from_le_bytes(seen[..8].try_into().unwrap());
            assert!(value >= least, "{place} {cut:?}: {writer} has {value}, was told {least}");
            assert_eq!(seen, value.to_le_bytes().repeat(400), "{place} {cut:?}: {writer}");
        }
        drop(fs);
        pool.close().unwrap();
        drop(pool);
        check::verified(&set, &rig::all(&set)).unwrap_or_else(|e| panic!("{place} {cut:?}: {e}"));
    }
    assert!(claimed as u64 > count / 8, "{claimed} logs claimed");
}

/// A log block whose write takes long: no uberblock has the place that it leads to before it is there, else nobody
/// would find that place again.
#[test]
fn a_txg_waits_for_the_log_block_that_leads_to_its_space() {
    let set = SimSet::new(STRIPE.disks, STRIPE.disk_bytes);
    let (pool, fs, object) = warm(&set, STRIPE);
    let millis = std::time::Duration::from_millis;
    set.record();
    set.disk(0).inject(Fault::new(Kind::Slow(millis(600)), On::Writes).times(1));
    Workers::new(2).run(2, |_, job| match job {
        0 => {
            fs.write(object, 0, b"slow").unwrap();
            fs.fsync(object).unwrap();
        }
        _ => {
            rt::time::sleep(millis(200));
            pool.sync().unwrap();
        }
    });
    let log = set.log();
    let mut replay = log.replay();
    for place in 0..=log.writes() {
        replay.advance_to(place);
        let set = SimSet::from_images(replay.crash(Cut::Dropped, place));
        check::verified(&set, &rig::all(&set)).unwrap_or_else(|e| panic!("{place}: {e}"));
    }
}

/// What zdb says of pools with a log that nobody has claimed, that somebody has, and none.
#[test]
fn pools_with_a_log_are_clean_to_the_judges() {
    for seed in [0, 1, 2] {
        let story = tell(seed);
        let mut replay = story.log.replay();
        for turn in 0..3u64 {
            replay.advance_to(story.log.writes() * (turn + 2) / 5);
            let set = SimSet::from_images(replay.crash(Cut::ALL[turn as usize], turn));
            let what = format!("fsyncs {seed}, write {}", replay.writes());
            judge(&set, &what);
            let pool = rig::open_to_write(&set, &rig::all(&set)).unwrap();
            let claimed = pool.logs_to_replay().len();
            drop(pool);
            judge(&set, &format!("{what}, {claimed} logs claimed"));
        }
    }
}

fn warm(set: &SimSet, shape: Shape) -> (Arc<Pool>, Filesystem, u64) {
    let pool = rig::create(set, shape).unwrap();
    let fs = Filesystem::open(&pool, POOL).unwrap();
    let new = NewObject::of(mode::FILE | 0o600, Who { uid: 0, gid: 0 });
    let object = fs.create_with(fs.root(), b"file", &new, &[1; 20_000]).unwrap();
    for _ in 0..3 {
        fs.write(object, 4096, &[2; 4096]).unwrap();
        fs.fsync(object).unwrap();
    }
    (pool, fs, object)
}

#[test]
fn an_fsync_is_a_write_and_a_flush_of_the_leaves_that_hold_the_block() {
    for (shape, leaves) in [(STRIPE, 1), (MIRROR, 2), (RAIDZ, 3)] {
        let set = SimSet::new(shape.disks, shape.disk_bytes);
        let (pool, fs, object) = warm(&set, shape);
        let counts = || {
            let all = set.disks().into_iter().map(|disk| disk.counts());
            all.fold((0, 0), |sum, one| (sum.0 + one.writes, sum.1 + one.flushes))
        };
        let (txg, before) = (pool.open_txg().unwrap(), counts());
        for i in 0..10 {
            fs.write(object, i * 1000, &[3; 4096]).unwrap();
            fs.fsync(object).unwrap();
        }
        let after = counts();
        let seen = (after.0 - before.0, after.1 - before.1);
        assert_eq!(seen, (10 * leaves, 10 * leaves), "{shape:?}: writes and flushes");
        assert_eq!(pool.open_txg().unwrap(), txg, "no txg was needed");
    }
}

#[test]
fn who_waits_together_waits_for_one_write() {
    let set = SimSet::new(STRIPE.disks, STRIPE.disk_bytes);
    let (_pool, fs, object) = warm(&set, STRIPE);
    let flush = Kind::Slow(std::time::Duration::from_millis(30));
    set.disk(0).inject(Fault::new(flush, On::Flushes));
    let before = set.disk(0).counts().flushes;
    Workers::new(16).run(64, |_, job| {
        fs.write(object, job as u64 * 100, &[4; 100]).unwrap();
        fs.fsync(object).unwrap();
    });
    let flushes = set.disk(0).counts().flushes - before;
    assert!((4..=24).contains(&flushes), "{flushes} flushes for 64 fsyncs");
}

/// What is made stable while the txg before its own is synced is not superfluous with that one.
#[test]
fn what_comes_while_a_txg_is_synced_does_not_go_with_it() {
    let set = SimSet::new(STRIPE.disks, STRIPE.disk_bytes);
    let (pool, first, others) = warm(&set, STRIPE);
    pool.create_filesystem("tank/later", Default::default(), fs::make_filesystem).unwrap();
    let fs = Filesystem::open(&pool, "tank/later").unwrap();
    let new = NewObject::of(mode::FILE | 0o600, Who { uid: 0, gid: 0 });
    let object = fs.create_with(fs.root(), b"file", &new, &[1; 2000]).unwrap();
    for _ in 0..3 {
        fs.write(object, 0, &[2; 100]).unwrap();
        fs.fsync(object).unwrap();
    }
    let millis = std::time::Duration::from_millis;
    for turn in 1..6u8 {
        fs.write(object, 0, &[turn; 100]).unwrap();
        first.write(others, 0, &[turn; 100]).unwrap();
        // The first to be synced takes long: it is not yet said with which block the log of the other begins.
        set.disk(0).inject(Fault::new(Kind::Slow(millis(200)), On::Writes).times(1));
        let (theirs, txg) = (pool.clone(), pool.open_txg().unwrap());
        let sync = rt::thread::spawn("sync", move || _ = theirs.sync().unwrap());
        while pool.open_txg().unwrap() == txg {
            rt::time::sleep(millis(1));
        }
        rt::time::sleep(millis(20));
        // In one block of the log, or several.
        let size = [100, 300_000][usize::from(turn) % 2];
        let mut wanted = vec![turn; 100];
        for number in 0..turn {
            let bytes = vec![10 * turn + number; size];
            fs.write(object, wanted.len() as u64, &bytes).unwrap();
            fs.fsync(object).unwrap();
            wanted.extend(bytes);
        }
        sync.join();
        let left = as_it_is(&set);
        check::verified(&left, &rig::all(&left)).unwrap_or_else(|e| panic!("turn {turn}: {e}"));
        let (pool, _) = replayed(&left);
        let fs = Filesystem::open(&pool, "tank/later").unwrap();
        let mut seen = vec![0; wanted.len()];
        assert_eq!(fs.read(object, 0, &mut seen).unwrap(), seen.len(), "turn {turn}");
        assert!(seen == wanted, "turn {turn}");
    }
}

/// The sync of a txg that does not come to its end by itself.
struct Stuck {
    over: Arc<AtomicBool>,
    thread: rt::thread::JoinHandle<()>,
}

impl Stuck {
    fn begin(pool: &Arc<Pool>) -> Stuck {
        let (begun, over) = (Arc::new(AtomicBool::new(false)), Arc::new(AtomicBool::new(false)));
        let (theirs, begins, ends) = (pool.clone(), begun.clone(), over.clone());
        let body = move || {
            let stays = theirs.task(move |_| {
                begins.store(true, Ordering::SeqCst);
                while !ends.load(Ordering::SeqCst) {
                    rt::time::sleep(std::time::Duration::from_millis(1));
                }
                Ok(())
            });
            stays.unwrap();
        };
        let thread = rt::thread::spawn("stuck", body);
        while !begun.load(Ordering::SeqCst) {
            rt::time::sleep(std::time::Duration::from_millis(1));
        }
        Stuck { over, thread }
    }

    fn end(self) {
        self.over.store(true, Ordering::SeqCst);
        self.thread.join();
    }
}

/// A log asks for a txg when it has become long, and whoever would make it longer than can be replayed waits for that.
#[test]
fn no_log_becomes_too_long_to_be_replayed() {
    const WRITE: usize = 100;
    // What such a write takes in a log.
    const BLOCK: u64 = 4 << 10;
    let shape = Shape { disk_bytes: 320 << 20, ..STRIPE };
    let set = SimSet::new(shape.disks, shape.disk_bytes);
    let (pool, fs, object) = warm(&set, shape);
    let millis = std::time::Duration::from_millis;
    let txg = pool.open_txg().unwrap();
    let asks = move |fs: &Filesystem, number: u64| {
        fs.write(object, 0, &[number as u8; WRITE]).unwrap();
        fs.fsync(object).unwrap();
    };
    (0..(33 << 20) / BLOCK).for_each(|number| asks(&fs, number));
    let comes = (0..2000).any(|_| {
        rt::time::sleep(millis(5));
        pool.open_txg().unwrap() > txg
    });
    assert!(comes, "no txg for a log of 33 MiB");
    let stuck = Stuck::begin(&pool);
    let fs = Arc::new(fs);
    let (theirs, count) = (fs.clone(), Arc::new(AtomicU64::new(0)));
    let done = count.clone();
    let asking = rt::thread::spawn("asking", move || {
        for number in 0..(70 << 20) / BLOCK {
            asks(&theirs, number);
            done.store(number, Ordering::SeqCst);
        }
    });
    let mut before = u64::MAX;
    while before != count.load(Ordering::SeqCst) {
        before = count.load(Ordering::SeqCst);
        rt::time::sleep(millis(1000));
    }
    let logged = before * BLOCK;
    assert!((40 << 20..50 << 20).contains(&logged), "{} MiB of log", logged >> 20);
    let left = as_it_is(&set);
    stuck.end();
    asking.join();
    drop((fs, pool));
    let (_pool, fs) = replayed(&left);
    let mut seen = [0; WRITE];
    fs.read(object, 0, &mut seen).unwrap();
    let is = |number: u64| seen.iter().all(|byte| *byte == number as u8);
    assert!(is(before) || is(before + 1), "not the last that was stable");
}

/// Only what was asked for, and the names, are in a log.
#[test]
fn nobody_pays_for_what_he_did_not_ask_for() {
    let set = SimSet::new(STRIPE.disks, STRIPE.disk_bytes);
    let (pool, fs, object) = warm(&set, STRIPE);
    let new = NewObject::of(mode::FILE | 0o600, Who { uid: 0, gid: 0 });
    let other = fs.create_with(fs.root(), b"other", &new, &[5; 1 << 20]).unwrap();
    let before = set.disk(0).counts().bytes_written;
    fs.write(object, 0, b"mine").unwrap();
    fs.fsync(object).unwrap();
    let wrote = set.disk(0).counts().bytes_written - before;
    assert!(wrote <= 16 << 10, "{wrote} bytes for four");
    // With its new name its data are needed.
    fs.rename(fs.root(), b"other", fs.root(), b"another").unwrap();
    fs.fsync(object).unwrap();
    let set = as_it_is(&set);
    drop((fs, pool));
    let (_pool, fs) = replayed(&set);
    let mut seen = vec![0; 1 << 20];
    assert_eq!(fs.read(other, 0, &mut seen).unwrap(), seen.len());
    assert!(seen.iter().all(|byte| *byte == 5));
    assert_eq!(fs.resolve(b"another").unwrap(), other);
    let mut seen = [0; 4];
    fs.read(object, 0, &mut seen).unwrap();
    assert_eq!(&seen, b"mine");
}

/// What goes into the log is what was there when it was promised, whoever writes before it is in a block: a whole record is
/// lent for it, a part is copied.
#[test]
fn what_is_promised_is_what_was_there() {
    for length in [20_480, 12_000, 512] {
        let set = SimSet::new(STRIPE.disks, STRIPE.disk_bytes);
        let (pool, fs, object) = warm(&set, STRIPE);
        let txg = pool.open_txg().unwrap();
        fs.write(object, 0, &vec![6; length]).unwrap();
        let promised = pool.promise(fs.dataset(), object).unwrap();
        fs.write(object, 0, &vec![7; length]).unwrap();
        pool.keep(fs.dataset(), promised).unwrap();
        assert_eq!(pool.open_txg().unwrap(), txg, "it is in the log");
        let mut seen = vec![0; length];
        fs.read(object, 0, &mut seen).unwrap();
        assert!(seen.iter().all(|byte| *byte == 7), "{length}");
        let set = as_it_is(&set);
        drop((fs, pool));
        let (_pool, fs) = replayed(&set);
        assert_eq!(fs.read(object, 0, &mut seen).unwrap(), length);
        assert!(seen.iter().all(|byte| *byte == 6), "{length}");
    }
}

/// What no record can tell takes a txg: flags, owners of other domains, names of what has attributes from the beginning. That
/// a file was touched is told.
#[test]
fn what_no_record_tells_takes_a_txg() {
    let set = SimSet::new(STRIPE.disks, STRIPE.disk_bytes);
    let (pool, fs, object) = warm(&set, STRIPE);
    let txg = pool.open_txg().unwrap();
    let new = NewObject::of(mode::FILE | 0o600, Who { uid: 0, gid: 0 });
    let new = NewObject { xattrs: &[(b"user.mark", b"here")], ..new };
    let marked = fs.create(fs.root(), b"marked", &new).unwrap();
    // Whoever asks for anything needs all names.
    fs.fsync(object).unwrap();
    assert!(pool.open_txg().unwrap() > txg, "a name that no record tells");
    type Change = fn(&mut Attrs);
    let changes: [(&str, bool, Change); 4] = [
        ("an owner of another domain", false, |attrs| attrs.uid = 1 << 32 | 5),
        ("an owner", true, |attrs| attrs.uid = 7),
        ("a flag", false, |attrs| attrs.flags |= Pflags::NODUMP),
        ("a touch", true, |attrs| attrs.ctime.secs += 1000),
    ];
    let changed = fs.attrs(object).unwrap().ctime;
    for (what, is_told, change) in changes {
        let txg = pool.open_txg().unwrap();
        fs.change_attrs(object, change).unwrap();
        fs.fsync(object).unwrap();
        assert_eq!(pool.open_txg().unwrap() == txg, is_told, "{what}");
    }
    let mut wanted = fs.attrs(object).unwrap();
    let set = as_it_is(&set);
    drop((fs, pool));
    let (_pool, fs) = replayed(&set);
    // Records say that it was touched, not when.
    let seen = fs.attrs(object).unwrap();
    assert!(seen.ctime > changed, "not touched again");
    wanted.ctime = seen.ctime;
    assert_eq!(seen, wanted);
    assert_eq!(fs.resolve(b"marked").unwrap(), marked);
}

/// What was changed in a file that is gone is in no log: nobody could do it again.
#[test]
fn what_is_gone_is_not_done_again() {
    let set = SimSet::new(STRIPE.disks, STRIPE.disk_bytes);
    let (pool, fs, object) = warm(&set, STRIPE);
    let txg = pool.open_txg().unwrap();
    fs.truncate(object, 10).unwrap();
    fs.change_attrs(object, |attrs| attrs.uid = 5).unwrap();
    fs.write(object, 0, b"gone").unwrap();
    fs.hold(object).unwrap();
    fs.unlink(fs.root(), b"file").unwrap();
    fs.fsync(object).unwrap();
    // Open still: what is done to it now ends with it, and OpenZFS's replay would end there.
    fs.truncate(object, 3).unwrap();
    fs.change_attrs(object, |attrs| attrs.set_mode(0o640)).unwrap();
    fs.fsync(object).unwrap();
    let new = NewObject::of(mode::FILE | 0o600, Who { uid: 0, gid: 0 });
    let after = fs.create(fs.root(), b"after", &new).unwrap();
    fs.fsync(after).unwrap();
    assert_eq!(pool.open_txg().unwrap(), txg, "all of it is in the log");
    let set = as_it_is(&set);
    drop((fs, pool));
    let pool = rig::open_to_write(&set, &rig::all(&set)).unwrap();
    let log = fs::Replay::read(&pool, POOL).unwrap().unwrap();
    assert_eq!(log.len(), 4, "two writes, a name that went and one that came");
    assert_eq!(fs::replay_logs(&pool).unwrap().len(), 0);
    let fs = Filesystem::open(&pool, POOL).unwrap();
    assert_eq!(fs.resolve(b"after").unwrap(), after);
    assert!(fs.resolve(b"file").is_err());
}

/// Who finds a directory under its new name, and is told that what he has made below is stable, finds it there after a
/// crash, though the move was still under way.
#[test]
fn what_is_made_below_a_moved_directory_is_below_it() {
    let set = SimSet::new(STRIPE.disks, STRIPE.disk_bytes);
    let (pool, fs, _) = warm(&set, STRIPE);
    let new = NewObject::of(mode::FILE | 0o600, Who { uid: 0, gid: 0 });
    let dir = NewObject { mode: mode::DIR | 0o700, ..new };
    let [from, to] = [&b"from"[..], b"to"].map(|name| fs.create(fs.root(), name, &dir).unwrap());
    let below = fs.create(from, b"below", &dir).unwrap();
    // What is replaced has attributes of its own, whose names must be read from the disk before it goes.
    let mut rng = Rng::new(5);
    for _ in 0..20 {
        let name: String = (0..12).map(|_| format!("{:016x}", rng.next_u64())).collect();
        fs.set_xattr(to, format!("user.{name}").as_bytes(), Some(&[1; 40_000])).unwrap();
    }
    pool.close().unwrap();
    drop((fs, pool));
    let pool = rig::open_to_write(&set, &rig::all(&set)).unwrap();
    let fs = Arc::new(Filesystem::open(&pool, POOL).unwrap());
    for name in [b"1", b"2", b"3"] {
        let made = fs.create(below, name, &new).unwrap();
        fs.fsync(made).unwrap();
    }
    assert!(fs.attrs(to).is_ok() && fs.attrs(from).is_ok());
    set.disk(0).inject(Fault::new(Kind::Slow(std::time::Duration::from_millis(500)), On::Reads));
    let theirs = fs.clone();
    let moving = rt::thread::spawn("moving", move || {
        theirs.rename(theirs.root(), b"from", theirs.root(), b"to").unwrap();
    });
    while fs.resolve(b"to/below").is_err() {
        rt::time::sleep(std::time::Duration::from_millis(1));
    }
    let made = fs.create(below, b"made", &new).unwrap();
    fs.fsync(made).unwrap();
    let set = as_it_is(&set);
    moving.join();
    drop((fs, pool));
    let (_pool, fs) = replayed(&set);
    assert_eq!(fs.resolve(b"to/below/made").unwrap(), made);
}

/// A record that cannot be done again now may be some day; those before it are not done twice, though they are in the
/// same txg.
#[test]
fn a_replay_that_fails_goes_on_where_it_was() {
    let set = SimSet::new(STRIPE.disks, STRIPE.disk_bytes);
    let (pool, fs, object) = warm(&set, STRIPE);
    let new = NewObject::of(mode::FILE | 0o600, Who { uid: 0, gid: 0 });
    let names = [&b"first"[..], b"second"];
    for name in names {
        fs.create(fs.root(), name, &new).unwrap();
    }
    fs.fsync(object).unwrap();
    let crashed = |pool: Arc<Pool>, fs: Filesystem, set: &SimSet| {
        let left = as_it_is(set);
        drop((fs, pool));
        left
    };
    let set = crashed(pool, fs, &set);
    let pool = rig::open_to_write(&set, &rig::all(&set)).unwrap();
    let log = fs::Replay::read(&pool, POOL).unwrap().unwrap();
    pool.begin_replay(POOL).unwrap();
    let fs = Filesystem::open(&pool, POOL).unwrap();
    fs.link(fs.root(), b"second", object).unwrap();
    assert!(log.apply(&fs).is_err(), "its name is taken");
    fs.unlink(fs.root(), b"second").unwrap();
    pool.sync().unwrap();
    let set = crashed(pool, fs, &set);
    let (_pool, fs) = replayed(&set);
    assert!(names.iter().all(|name| fs.resolve(name).is_ok()));
}

/// What a machine that stops now leaves on its disks.
fn as_it_is(set: &SimSet) -> SimSet {
    let name = |disk: &SimDisk| device::Device::name(disk).to_string();
    SimSet::from_images(set.disks().into_iter().map(|disk| (name(&disk), disk.image())).collect())
}

/// The pool on these disks and its files, once its logs are replayed.
fn replayed(set: &SimSet) -> (Arc<Pool>, Filesystem) {
    let pool = rig::open_to_write(set, &rig::all(set)).unwrap();
    assert_eq!(fs::replay_logs(&pool).unwrap().len(), 0);
    let fs = Filesystem::open(&pool, POOL).unwrap();
    (pool, fs)
}

/// The property `sync`: every change at once, or none.
#[test]
fn the_property_sync_is_obeyed() {
    let set = SimSet::new(STRIPE.disks, STRIPE.disk_bytes);
    let (pool, fs, object) = warm(&set, STRIPE);
    let flushes = || set.disk(0).counts().flushes;
    pool.set_property(POOL, "sync", Some(Stored::Number(1))).unwrap();
    let before = flushes();
    fs.write(object, 0, b"always").unwrap();
    let new = NewObject::of(mode::FILE | 0o600, Who { uid: 0, gid: 0 });
    fs.create(fs.root(), b"new", &new).unwrap();
    fs.unlink(fs.root(), b"new").unwrap();
    assert_eq!(flushes() - before, 3);
    pool.set_property(POOL, "sync", Some(Stored::Number(2))).unwrap();
    let before = flushes();
    fs.write(object, 0, b"disabled").unwrap();
    fs.fsync(object).unwrap();
    assert_eq!(flushes() - before, 0);
}

/// A disk that fails under the log: a txg has to do it, or nobody is told that it is done.
#[test]
fn a_log_that_cannot_be_written_is_no_promise() {
    let set = SimSet::new(STRIPE.disks, STRIPE.disk_bytes);
    let (pool, fs, object) = warm(&set, STRIPE);
    let fault = Fault::new(Kind::Error(rustix::io::Errno::IO), On::Writes).times(1);
    set.disk(0).inject(fault);
    let txg = pool.open_txg().unwrap();
    fs.write(object, 0, b"by a txg").unwrap();
    fs.fsync(object).unwrap();
    assert!(pool.open_txg().unwrap() > txg);
    // The broken log goes, and another begins.
    for i in 0..4u8 {
        fs.write(object, 0, &[i; 9]).unwrap();
        fs.fsync(object).unwrap();
    }
    let before = set.disk(0).counts().flushes;
    fs.write(object, 0, b"by a log").unwrap();
    fs.fsync(object).unwrap();
    assert_eq!(set.disk(0).counts().flushes - before, 1);
    let set = as_it_is(&set);
    drop((fs, pool));
    check::verified(&set, &rig::all(&set)).unwrap();
    let (_pool, fs) = replayed(&set);
    let mut seen = [0; 8];
    fs.read(object, 0, &mut seen).unwrap();
    assert_eq!(&seen, b"by a log");
}

/// Snapshots, clones, a rollback, a destroy and a rename while logs are in use.
#[test]
fn data_sets_with_a_log_are_managed_as_others() {
    let set = SimSet::new(STRIPE.disks, STRIPE.disk_bytes);
    let (pool, fs, object) = warm(&set, STRIPE);
    let fsynced = |name: &str| {
        let fs = Filesystem::open(&pool, name).unwrap();
        let new = NewObject::of(mode::FILE | 0o600, Who { uid: 0, gid: 0 });
        for i in 0..5 {
            let name = format!("f{i}-{}", fs.pool().open_txg().unwrap());
            let made = fs.create_with(fs.root(), name.as_bytes(), &new, &[6; 5000]).unwrap();
            fs.fsync(made).unwrap();
        }
        drop(fs);
    };
    pool.create_filesystem("tank/a", Default::default(), fs::make_filesystem).unwrap();
    fsynced("tank/a");
    pool.snapshot(&["tank/a@one".into()], &[]).unwrap();
    fsynced("tank/a");
    pool.clone_snapshot("tank/a@one", "tank/c", Default::default()).unwrap();
    fsynced("tank/c");
    pool.rename("tank/c", "tank/d").unwrap();
    fsynced("tank/d");
    pool.promote("tank/d").unwrap();
    fsynced("tank/d");
    fsynced("tank/a");
    let before = ["tank/d", "tank/a"].map(|name| Filesystem::open(&pool, name).unwrap());
    let left = before.each_ref().map(|fs| fs.read_dir(fs.root()).unwrap()[0].object);
    let promised = [0, 1].map(|at: usize| {
        before[at].write(left[at], 0, b"promised").unwrap();
        pool.promise(before[at].dataset(), left[at]).unwrap()
    });
    pool.rollback("tank/d@one").unwrap();
    fsynced("tank/d");
    pool.destroy_dataset("tank/a").unwrap();
    pool.finish_freeing(|_| true).unwrap();
    for (fs, promised) in before.iter().zip(promised) {
        assert!(pool.keep(fs.dataset(), promised).is_err(), "it is gone, not stable");
    }
    for (fs, file) in before.iter().zip(left) {
        // Who still has it open reads nothing: what it had is others' by now.
        let read = fs.read(file, 0, &mut [0; 100]).map_err(|e| e.errno());
        assert_eq!((read, fs.lookup(fs.root(), b"any").is_err()), (Err(fs::code::STALE), true));
    }
    drop(before);
    fs.write(object, 0, b"last").unwrap();
    fs.fsync(object).unwrap();
    let set = as_it_is(&set);
    drop((fs, pool));
    check::verified(&set, &rig::all(&set)).unwrap();
    judge(&set, "managed");
    let pool = rig::open_to_write(&set, &rig::all(&set)).unwrap();
    assert_eq!(fs::replay_logs(&pool).unwrap().len(), 0);
    pool.close().unwrap();
    drop(pool);
    check::verified(&set, &rig::all(&set)).unwrap();
}

#[test]
fn the_beginning_of_noise_is_that_of_less_noise() {
    // So a write that is there in part is one of less.
    let data = Data { look: Look::Noise, seed: 5, size: 4000 };
    for size in [8, 1504, 3992] {
        assert_eq!(data.bytes()[..size], Data { size: size as u64, ..data }.bytes());
    }
}

/// Who asks while the log of a data set begins has written before anybody told of it: he waits for the txg that has it, and
/// is not told that there is nothing to be done.
#[test]
fn who_asks_while_a_log_begins_waits_for_a_txg() {
    let set = SimSet::new(STRIPE.disks, STRIPE.disk_bytes);
    let pool = rig::create(&set, STRIPE).unwrap();
    let fs = Arc::new(Filesystem::open(&pool, POOL).unwrap());
    let new = NewObject::of(mode::FILE | 0o600, Who { uid: 0, gid: 0 });
    let files = [&b"one"[..], b"two"].map(|name| fs.create(fs.root(), name, &new).unwrap());
    files.iter().for_each(|file| fs.write(*file, 0, b"of before").unwrap());
    assert!(!fs.dataset().records_changes());
    // Its txg cannot close as long as this is there.
    let tx = pool.admit(fs.dataset(), 0).unwrap();
    let ended: Vec<Arc<AtomicBool>> = files.iter().map(|_| Arc::default()).collect();
    let mut threads = Vec::new();
    for (file, ended) in files.into_iter().zip(&ended) {
        let (of, ended) = (fs.clone(), ended.clone());
        threads.push(rt::thread::spawn("fsync", move || {
            of.fsync(file).unwrap();
            ended.store(true, Ordering::Release);
        }));
        while !fs.dataset().records_changes() {
            rt::time::sleep(std::time::Duration::from_millis(1));
        }
        // It has begun, and waits.
        rt::time::sleep(std::time::Duration::from_millis(100));
    }
    assert!(!ended.iter().any(|ended| ended.load(Ordering::Acquire)), "{ended:?}");
    drop(tx);
    threads.into_iter().for_each(|thread| thread.join());
}

/// Whose log is in use keeps it, however many txgs come; and what has come into it is on its way no longer: it is no reason
/// that much of one file goes with a txg.
#[test]
fn a_log_in_use_stays_and_forgets_what_has_come() {
    let shape = Shape { disk_bytes: 320 << 20, ..STRIPE };
    let set = SimSet::new(shape.disks, shape.disk_bytes);
    let (pool, fs, object) = warm(&set, shape);
    let is_logged = |length: usize| {
        let txg = pool.open_txg().unwrap();
        fs.write(object, 0, &vec![7; length]).unwrap();
        fs.fsync(object).unwrap();
        pool.open_txg().unwrap() == txg
    };
    for turn in 0..80 {
        assert!(is_logged(200 << 10), "turn {turn}");
        pool.sync().unwrap();
    }
}

/// There is nothing to be made stable of what only can be read.
#[test]
fn nobody_waits_for_a_snapshot() {
    let set = SimSet::new(STRIPE.disks, STRIPE.disk_bytes);
    let (pool, _fs, object) = warm(&set, STRIPE);
    pool.snapshot(&[format!("{POOL}@now")], &[]).unwrap();
    let fs = Filesystem::open(&pool, &format!("{POOL}@now")).unwrap();
    let (txg, before) = (pool.open_txg().unwrap(), set.disk(0).counts().flushes);
    let promised = pool.promise(fs.dataset(), object).unwrap();
    pool.keep(fs.dataset(), promised).unwrap();
    assert_eq!((pool.open_txg().unwrap(), set.disk(0).counts().flushes), (txg, before));
}
