//! Writers, readers, snapshots and syncs at once, under the seeded scheduler (`--cfg sim`): one seed, one
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

use std::collections::BTreeMap;
use std::io::Write as _;
use std::sync::atomic::{AtomicBool, AtomicI64, AtomicU64, Ordering};
use std::time::Duration;

use acceptance::engine::{self, POOL};
use device::sim::{Cut, Image, SimSet};
use device::{Device, WriteDevice};
use fs::{Filesystem, FsError, NewObject, Who, make_filesystem, mode};
use pool::{Devices, Joined, NewLeaf, NewPool, NewTop, OpenOptions, Pool, Stored};
use rt::sync::{Arc, Mutex};
use testkit::compare::differences;
use testkit::data::{Data, Look};
use testkit::model::{Form, Tree};
use testkit::random::Rng;
use testkit::truth::Entry;
use testkit::workload::Op;
use testkit::{Compare, rounds};

/// The last of them is who takes the snapshots.
const WRITERS: usize = 4;
/// Operations of each writer.
const OPS: usize = 16;
/// Records of files, in bytes.
const RECORD: u64 = 4096;
/// Size of files that are always written as a whole, in bytes: one block.
const WHOLE: u64 = 3000;
/// A directory in which all make, rename and remove the same few names.
const FOUGHT: &[u8] = b"x";
/// A file that all writers write to, each its own record.
const SHARED: &[u8] = b"shared";

/// An operation of a writer, with when it began and ended.
#[derive(Clone)]
struct Done {
    op: Op,
    began: u64,
    ended: Option<u64>,
}

/// A snapshot: when it was asked for and there, when its end was asked for and there.
#[derive(Clone, Default)]
struct Taken {
    name: String,
    made: (u64, Option<u64>),
    gone: Option<(u64, Option<u64>)>,
}

/// What all threads of a story know of each other.
#[derive(Default)]
struct Told {
    clock: AtomicU64,
    logs: Mutex<Vec<Vec<Done>>>,
    snapshots: Mutex<Vec<Taken>>,
    /// What had ended when this time was is on disk.
    synced: AtomicU64,
    /// Files made in the directory that is fought for, less those removed from it.
    fought: AtomicI64,
}

impl Told {
    fn now(&self) -> u64 {
        self.clock.fetch_add(1, Ordering::SeqCst)
    }

    fn won(&self, names: i64) {
        self.fought.fetch_add(names, Ordering::SeqCst);
    }

    /// How many operations of a writer a state that was there at some time in between has: at least, at most.
    fn bounds(&self, writer: usize, from: u64, until: u64) -> (usize, usize) {
        let logs = self.logs.lock();
        let ended = |done: &&Done| done.ended.is_some_and(|at| at < from);
        let least = logs[writer].iter().take_while(ended).count();
        (least, logs[writer].iter().take_while(|done| done.began < until).count())
    }

    /// What these file systems hold must be what the writers had done some time in between.
    fn check(&self, fs: &Filesystem, from: u64, until: u64) -> Result<(), String> {
        let found = engine::list(fs).map_err(|e| e.to_string())?;
        let mut shared = vec![0; WRITERS * RECORD as usize];
        if let Some(entry) = fs.lookup(fs.root(), SHARED).map_err(|e| e.to_string())? {
            fs.read(entry.object, 0, &mut shared).map_err(|e| e.to_string())?;
        }
        for writer in 0..WRITERS {
            let mine: Vec<Entry> =
                found.iter().filter(|e| is_of(&e.path, writer)).cloned().collect();
            let block = &shared[writer * RECORD as usize..][..RECORD as usize];
            let (least, most) = self.bounds(writer, from, until);
            let ops: Vec<Op> = self.logs.lock()[writer].iter().map(|d| d.op.clone()).collect();
            let mut tree = start();
            ops[..least].iter().for_each(|op| tree.apply(op).unwrap());
            let mut said = Vec::new();
            for count in least..=most {
                if count > least {
                    tree.apply(&ops[count - 1]).unwrap();
                }
                let mut wrong = compare(&tree, writer, &mine);
                if block_of(&tree, writer) != block {
                    wrong.push("its record of the shared file".into());
                }
                if wrong.is_empty() {
                    said.clear();
                    break;
                }
                said.push(format!("after {count} operations: {wrong:?}"));
            }
            if !said.is_empty() {
                let ops: Vec<String> = ops.iter().map(ToString::to_string).collect();
                return Err(format!(
                    "writer {writer} between {from} and {until}: {said:#?}\n{ops:#?}"
                ));
            }
        }
        // Nothing is there that nobody made, and the directories count what they have.
        let others = found.iter().filter(|e| (0..WRITERS).all(|writer| !is_of(&e.path, writer)));
        let others: Vec<&[u8]> = others.map(|e| e.path.as_slice()).collect();
        let others: Vec<_> = others.into_iter().filter(|path| !path.starts_with(b"x/")).collect();
        if others != [&b"."[..], b"d0", b"d1", SHARED, FOUGHT] {
            return Err(format!("{others:?}"));
        }
        for dir in ["d0", "d1", "x"] {
            let below = |e: &&Entry| {
                let rest = e.path.strip_prefix(dir.as_bytes()).and_then(|p| p.strip_prefix(b"/"));
                rest.is_some_and(|rest| !rest.contains(&b'/'))
            };
            let count = found.iter().filter(below).count() as u64;
            let size = found.iter().find(|e| e.path == dir.as_bytes()).unwrap().size;
            if size != count + 2 {
                return Err(format!("{dir} has {count} names and size {size}"));
            }
        }
        Ok(())
    }
}

/// The tree that all begin with.
fn start() -> Tree {
    let mut tree = Tree::new();
    for dir in ["d0", "d1"] {
        tree.apply(&Op::Mkdir { path: dir.into(), mode: 0o755 }).unwrap();
    }
    tree.apply(&Op::Create { path: SHARED.into(), mode: 0o644 }).unwrap();
    tree
}

fn is_of(path: &[u8], writer: usize) -> bool {
    path.split(|b| *b == b'/').any(|part| part.starts_with(format!("w{writer}-").as_bytes()))
}

fn compare(tree: &Tree, writer: usize, mine: &[Entry]) -> Vec<String> {
    let entries = tree.entries();
    let entries: Vec<Entry> = entries.into_iter().filter(|e| is_of(&e.path, writer)).collect();
    differences(&entries, mine, Compare::MODEL)
}

fn block_of(tree: &Tree, writer: usize) -> Vec<u8> {
    let mut bytes = match &tree.get(SHARED).unwrap().form {
        Form::File(content) => content.bytes(),
        _ => Vec::new(),
    };
    bytes.resize(WRITERS * RECORD as usize, 0);
    bytes[writer * RECORD as usize..][..RECORD as usize].to_vec()
}

/// One thread that changes names of its own in directories of all.
struct Writer {
    number: usize,
    rng: Rng,
    count: u64,
    tree: Tree,
}

impl Writer {
    fn fresh(&mut self, kind: char) -> Vec<u8> {
        self.count += 1;
        format!("d{}/w{}-{kind}{}", self.rng.below(2), self.number, self.count).into_bytes()
    }

    fn any(&mut self, fits: impl Fn(&[u8], &Form) -> bool) -> Option<Vec<u8>> {
        let paths = self.tree.paths();
        let mine = paths.iter().filter(|(path, _)| is_of(path, self.number));
        let fit: Vec<_> = mine.filter(|(path, node)| fits(path, &node.form)).collect();
        (!fit.is_empty()).then(|| fit[self.rng.index(fit.len())].0.clone())
    }

    fn data(&mut self, size: u64) -> Data {
        self.count += 1;
        let look = *self.rng.pick(&[Look::Noise, Look::Words, Look::Patches]);
        Data { look, seed: self.count * 8 + self.number as u64, size }
    }

    /// A random operation; none if it does not fit.
    fn choose(&mut self) -> Option<Op> {
        let file = |kind: char| {
            move |path: &[u8], form: &Form| {
                matches!(form, Form::File(_)) && path.contains(&(kind as u8))
            }
        };
        Some(match self.rng.below(16) {
            0..2 => Op::Create { path: self.fresh('a'), mode: 0o640 },
            2 => Op::Create { path: self.fresh('b'), mode: 0o600 },
            3..6 => {
                let path = self.any(file('a'))?;
                Op::Write { path, offset: 0, data: self.data(WHOLE) }
            }
            6..8 => {
                let (path, offset) = (self.any(file('b'))?, self.rng.below(5 * RECORD));
                let size = self.rng.between(1, 2 * RECORD);
                Op::Write { path, offset, data: self.data(size) }
            }
            8 => Op::Truncate { path: self.any(file('b'))?, size: self.rng.below(6 * RECORD) },
            9 => {
                let from = self.any(|_, form| matches!(form, Form::File(_)))?;
                let kind =
                    if file('a')(&from, &Form::File(Default::default())) { 'a' } else { 'b' };
                Op::Rename { from, to: self.fresh(kind) }
            }
            10 => Op::Link { existing: self.any(file('b'))?, path: self.fresh('b') },
            11 => Op::Remove { path: self.any(|_, form| matches!(form, Form::File(_)))? },
            12 => {
                let path = self.any(|_, _| true)?;
                // lists of all lengths: layouts of their own, spill blocks
                let value = vec![self.count as u8; *self.rng.pick(&[0, 9, 200, 900])];
                let name = format!("user.x{}", self.rng.below(3)).into_bytes();
                Op::SetXattr { path, name, value }
            }
            13 => {
                let path = self.any(|_, _| true)?;
                Op::SetOwner { path, uid: 1 + self.rng.below(3) as u32, gid: 5 }
            }
            14 => match self.any(|_, form| matches!(form, Form::Dir(_))) {
                Some(path) if self.rng.one_in(2) => Op::Rmdir { path },
                _ => Op::Mkdir { path: self.fresh('m'), mode: 0o755 },
            },
            _ => {
                let offset = self.number as u64 * RECORD;
                Op::Write { path: SHARED.into(), offset, data: self.data(RECORD) }
            }
        })
    }

    fn work(mut self, fs: &Filesystem, told: &Told) {
        let fought = fs.resolve(FOUGHT).unwrap();
        for _ in 0..OPS {
            dawdle(&mut self.rng);
            self.step(fs, told);
            self.fight(fs, fought, told);
        }
    }

    /// Makes, renames or removes a name that others want, too: only one of them may have done it.
    fn fight(&mut self, fs: &Filesystem, dir: u64, told: &Told) {
        let name = |rng: &mut Rng| format!("{}", rng.below(2)).into_bytes();
        let (one, other) = (name(&mut self.rng), name(&mut self.rng));
        let change = match self.rng.below(3) {
            0 => {
                let new = NewObject::of(mode::FILE | 0o600, Who { uid: 3, gid: 3 });
                fs.create_with(dir, &one, &new, &[1; 700]).map(|_| 1)
            }
            1 => fs.unlink(dir, &one).map(|()| -1),
            _ => fs.link(dir, &other, fs.resolve(SHARED).unwrap()).map(|()| 1),
        };
        match change {
            Ok(change) => told.won(change),
            Err(FsError::Exists { .. } | FsError::NotFound { .. }) => {}
            Err(e) => panic!("writer {}: {e}", self.number),
        }
    }

    fn step(&mut self, fs: &Filesystem, told: &Told) {
        let op = loop {
            let Some(op) = self.choose() else { continue };
            let mut tried = self.tree.clone();
            if tried.apply(&op).is_ok() {
                self.tree = tried;
                break op;
            }
        };
        let place = {
            let began = told.now();
            let mut logs = told.logs.lock();
            logs[self.number].push(Done { op: op.clone(), began, ended: None });
            logs[self.number].len() - 1
        };
        engine::change(fs, &op).unwrap_or_else(|e| panic!("writer {}: {op}: {e}", self.number));
        let ended = told.now();
        told.logs.lock()[self.number][place].ended = Some(ended);
    }
}

/// Waits, now and then, for as long as the others need for something large: a sync, a snapshot.
fn dawdle(rng: &mut Rng) {
    if rng.one_in(2) {
        // The scheduler lets who sleeps for long go on after some thousand steps of the others.
        let most = if cfg!(sim) { 3_000_000 } else { 500 };
        rt::time::sleep(Duration::from_micros(rng.between(most / 20, most)));
    }
}

/// When a name came and went, as far as is known.
#[derive(Default, Clone)]
struct Life {
    came: (u64, Option<u64>),
    went: Option<(u64, Option<u64>)>,
    /// What was written into a file of whole writes, in order, with when.
    versions: Vec<(Data, u64, Option<u64>)>,
}

/// All names there ever were.
fn lives(told: &Told) -> BTreeMap<Vec<u8>, Life> {
    let mut all: BTreeMap<Vec<u8>, Life> = BTreeMap::new();
    for done in told.logs.lock().iter().flatten() {
        let when = (done.began, done.ended);
        match &done.op {
            Op::Create { path, .. } | Op::Link { path, .. } | Op::Mkdir { path, .. } => {
                all.insert(path.clone(), Life { came: when, ..Life::default() });
            }
            Op::Remove { path } | Op::Rmdir { path } => {
                all.get_mut(path).unwrap().went = Some(when);
            }
            Op::Rename { from, to } => {
                let old = all.get_mut(from).unwrap();
                old.went = Some(when);
                let versions = old.versions.clone();
                all.insert(to.clone(), Life { came: when, went: None, versions });
            }
            Op::Write { path, data, .. } if path != SHARED => {
                all.get_mut(path).unwrap().versions.push((*data, when.0, when.1));
            }
            _ => {}
        }
    }
    all
}

/// Reads while others write: what is found must have been there at some time meanwhile.
fn read(fs: &Filesystem, told: &Told, rng: &mut Rng) {
    dawdle(rng);
    let before = told.now();
    if rng.one_in(3) {
        let dir = format!("d{}", rng.below(2));
        let names = fs.read_dir(fs.resolve(dir.as_bytes()).unwrap()).unwrap();
        let after = told.now();
        let lives = lives(told);
        let mut seen = std::collections::BTreeSet::new();
        for entry in names {
            let path = [dir.as_bytes(), b"/", &entry.name].concat();
            let name = path.escape_ascii().to_string();
            let life = lives.get(&path).unwrap_or_else(|| panic!("{name}: nobody made it"));
            assert!(life.came.0 < after, "{name}: not yet made");
            let gone = life.went.is_some_and(|(_, ended)| ended.is_some_and(|at| at < before));
            assert!(!gone, "{name}: gone before");
            assert!(seen.insert(path), "{name}: twice");
        }
        for (path, life) in &lives {
            let there = life.came.1.is_some_and(|at| at < before)
                && life.went.is_none_or(|(began, _)| began > after);
            let here = path.starts_with(format!("{dir}/").as_bytes())
                && path.iter().filter(|b| **b == b'/').count() == 1;
            let name = path.escape_ascii();
            assert!(!(there && here) || seen.contains(path), "{name}: not listed");
        }
        return;
    }
    let known: Vec<_> = lives(told).into_keys().filter(|path| path.contains(&b'a')).collect();
    let Some(path) = known.get(rng.index(known.len().max(1))) else { return };
    let before = told.now();
    let found = match fs.resolve(path) {
        Ok(object) => object,
        Err(_) => {
            let life = &lives(told)[path];
            let there = life.came.1.is_some_and(|at| at < before) && life.went.is_none();
            return assert!(!there, "{}: not found", path.escape_ascii());
        }
    };
    let mut bytes = vec![0; 2 * WHOLE as usize];
    let read = fs.read(found, 0, &mut bytes);
    // A name comes only once: who has it now had it all the while.
    if fs.resolve(path).ok() != Some(found) {
        return;
    }
    let after = told.now();
    bytes.truncate(read.unwrap());
    let versions = &lives(told)[path].versions;
    let last = versions.iter().rposition(|(_, _, ended)| ended.is_some_and(|at| at < before));
    let may = versions[last.unwrap_or(0)..].iter().filter(|(_, began, _)| *began < after);
    let empty = bytes.is_empty() && last.is_none();
    let known = empty || may.clone().any(|(data, _, _)| data.bytes() == bytes);
    assert!(known, "{}: {} bytes that were not in it then", path.escape_ascii(), bytes.len());
}

/// Takes snapshots of what it has just done, clones them, and destroys both.
fn branch(pool: &Arc<Pool>, fs: &Filesystem, told: &Told, mut writer: Writer) {
    for turn in 0..4 {
        (0..2).for_each(|_| writer.step(fs, told));
        let rng = &mut writer.rng;
        let name = format!("{POOL}@s{turn}");
        let began = told.now();
        let taken = Taken { name: name.clone(), made: (began, None), gone: None };
        told.snapshots.lock().push(taken);
        pool.snapshot(std::slice::from_ref(&name), &[]).unwrap();
        let ended = told.now();
        told.snapshots.lock()[turn].made.1 = Some(ended);
        told.synced.fetch_max(began, Ordering::SeqCst);
        let there = Filesystem::open(pool, &name).unwrap();
        told.check(&there, began, ended).unwrap_or_else(|e| panic!("{name}: {e}"));
        drop(there);
        if rng.one_in(2) {
            let clone = format!("{POOL}/c{turn}");
            pool.clone_snapshot(&name, &clone, BTreeMap::new()).unwrap();
            let fs = Filesystem::open(pool, &clone).unwrap();
            told.check(&fs, began, ended).unwrap_or_else(|e| panic!("{clone}: {e}"));
            let new = NewObject::of(mode::FILE | 0o600, Who { uid: 1, gid: 1 });
            fs.create_with(fs.root(), b"more", &new, &[7; 9000]).unwrap();
            drop(fs);
            pool.destroy_dataset(&clone).unwrap();
        }
        if rng.one_in(2) {
            let began = told.now();
            told.snapshots.lock()[turn].gone = Some((began, None));
            pool.destroy_snapshots(&[name], false).unwrap();
            let ended = told.now();
            told.snapshots.lock()[turn].gone = Some((began, Some(ended)));
        }
    }
}

fn options() -> OpenOptions {
    OpenOptions { workers: 2, host_id: 7, host_name: "sim".into(), new_name: None }
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
    let report = verify::verify_pool(found, &memory, &mut |_| {}).unwrap();
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
    #[cfg(sim)]
    rt::sim::run(seed, body);
    #[cfg(not(sim))]
    body();
    let (set, told) = outcome.lock().take().unwrap();
    judge(set.crash(Cut::ALL[(seed / 2 % 4) as usize], seed), &told);
}

#[test]
fn every_interleaving_is_some_order_of_what_was_done() {
    let only = std::env::var("THUMPER_ONLY").ok().map(|n| n.parse::<u64>().unwrap());
    let seeds = if cfg!(sim) { rounds(25, 1000) } else { rounds(8, 40) };
    for seed in only.map_or(0..seeds, |only| only..only + 1) {
        let tried = std::panic::catch_unwind(|| one(seed));
        if let Err(payload) = tried {
            drop(writeln!(std::io::stderr(), "THUMPER_ONLY={seed} repeats what failed"));
            std::panic::resume_unwind(payload);
        }
    }
}
