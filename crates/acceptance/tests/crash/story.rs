//! The workload: every verb, in many txgs, with the state that each of them puts on disk.
//!
//! The one idea: a story is a list of steps, each of which becomes one txg. Before a step is done
//! its state is in the history; after it was acknowledged the disks' log gets a mark with the
//! state's number. So at any cut the mark says which state must be there at least, and the next one
//! in the list is the only other that may.

use std::collections::BTreeMap;

use device::sim::SimSet;
use format::config::PoolState;
use fs::{Filesystem, FsError, NewObject, Time, Who, make_filesystem, mode};
use pool::{Pool, Stored};
use rt::sync::Arc;
use testkit::data::{Data, Look};
use testkit::model::Tree;
use testkit::workload::{Op, Workload};

use crate::rig::{self, POOL, Shape};

/// One step.
pub(crate) enum Step {
    /// Changes to files of a file system.
    Files(&'static str, Vec<Op>),
    Create(&'static str),
    Destroy(&'static str),
    /// Of these file systems, by one name, in one txg.
    Snapshot(&'static [&'static str], &'static str),
    /// File system, and the name of its snapshot.
    DestroySnapshot(&'static str, &'static str),
    /// To its last snapshot.
    Rollback(&'static str),
    /// File system, snapshot, clone.
    Clone(&'static str, &'static str, &'static str),
    Promote(&'static str),
    Rename(&'static str, &'static str),
    /// A txg that frees all that is left of what was destroyed.
    Free,
    Set(&'static str, &'static str, u64),
    /// `zpool set autoreplace=on`.
    SetPool,
    /// The pool is closed and opened again: in no txg, unless something is left to be freed.
    Reopen,
    /// Its labels say that nobody has it.
    Export,
    /// Another host takes it over.
    Import,
    /// `zpool destroy`: the end. What was in it stays, for `import -D`.
    DestroyPool,
}

/// What a file system must be.
#[derive(Clone)]
pub(crate) struct Files {
    pub tree: Tree,
    pub record: u32,
    /// Oldest first.
    pub snapshots: Vec<(&'static str, Tree)>,
}

impl Files {
    fn of(tree: Tree) -> Files {
        Files { tree, record: 16 << 10, snapshots: Vec::new() }
    }
}

/// What the pool must be.
#[derive(Clone)]
pub(crate) struct State {
    /// Txg of the uberblock; 0 if it did not come to that.
    pub txg: u64,
    pub filesystems: BTreeMap<&'static str, Files>,
    /// What labels say of its owner.
    pub held: rig::Held,
    /// The pool's property of that name.
    pub autoreplace: bool,
}

/// Names of all file systems that ever are.
pub(crate) const NAMES: [&str; 4] = [POOL, "tank/a", "tank/c", "tank/d"];

/// What happened, as the checker needs it.
pub(crate) struct History {
    pub states: Vec<State>,
}

/// So large that the space of one file is what the allocator takes next, if it may.
const LARGE: u64 = 4_200_000;

/// Every verb at least once, the rest drawn by the seed. In two places much is freed in one txg and
/// written in the next: in the same process, and in another one.
pub(crate) fn steps(seed: u64) -> Vec<Step> {
    let mut root = Workload::new(seed);
    let mut done = 0;
    let mut steps = Vec::new();
    verbs_first(&mut root);
    steps.push(Step::Files(POOL, take(&root, &mut done)));
    steps.push(Step::Create("tank/a"));
    verbs_second(&mut root);
    steps.push(Step::Files(POOL, take(&root, &mut done)));
    let mut other = Workload::new(seed ^ 0x5eed);
    other.file(b"large", Look::Noise, LARGE);
    random(&mut other, 1);
    steps.push(Step::Files("tank/a", take(&other, &mut 0)));
    steps.push(Step::Set("tank/a", "recordsize", 4096));
    branches(&mut steps, &mut root, &mut done, &mut other);
    steps.push(Step::Destroy("tank/a"));
    steps.push(Step::Free);
    steps.push(Step::Reopen);
    // A tree that is put in two txgs: a put that takes long is in several.
    put(&mut root, b"tree");
    root.file(b"tree/large", Look::Noise, LARGE);
    steps.push(Step::Files(POOL, take(&root, &mut done)));
    steps.push(Step::Export);
    steps.push(Step::Import);
    steps.push(Step::SetPool);
    put(&mut root, b"tree/below");
    root.push(Op::Rename { from: b"tree".to_vec(), to: b"moved".to_vec() });
    remove(&mut root, b"moved/below");
    root.push(Op::Remove { path: b"moved/large".to_vec() });
    random(&mut root, 1);
    steps.push(Step::Files(POOL, take(&root, &mut done)));
    // What was removed is still being freed, and goes on when its file system is open again.
    steps.push(Step::Reopen);
    random(&mut root, 1);
    steps.push(Step::Files(POOL, take(&root, &mut done)));
    steps.push(Step::DestroyPool);
    steps
}

/// Snapshots, a clone that takes the place of its origin, and the end of all of them. What goes is
/// freed in several txgs, which are those of the steps that follow.
fn branches(steps: &mut Vec<Step>, root: &mut Workload, done: &mut usize, other: &mut Workload) {
    let mut in_other = other.ops.len();
    steps.push(Step::Snapshot(&[POOL, "tank/a"], "one"));
    if other.tree.get(b"large").is_some() {
        other.push(Op::Remove { path: b"large".to_vec() });
    }
    random(other, 2);
    steps.push(Step::Files("tank/a", take(other, &mut in_other)));
    steps.push(Step::Snapshot(&["tank/a"], "two"));
    steps.push(Step::Clone("tank/a", "one", "tank/c"));
    let mut clone = Workload::new(7);
    clone.file(b"own", Look::Noise, 30_000);
    steps.push(Step::Files("tank/c", take(&clone, &mut 0)));
    random(root, 2);
    steps.push(Step::Files(POOL, take(root, done)));
    steps.push(Step::Promote("tank/c"));
    steps.push(Step::DestroySnapshot("tank/a", "two"));
    steps.push(Step::Rename("tank/c", "tank/d"));
    steps.push(Step::Rollback("tank/d"));
    steps.push(Step::DestroySnapshot(POOL, "one"));
}

fn random(load: &mut Workload, count: usize) {
    for _ in 0..count {
        load.step();
    }
}

/// The operations that are new since the last time.
fn take(load: &Workload, done: &mut usize) -> Vec<Op> {
    let new = load.ops[*done..].to_vec();
    *done = load.ops.len();
    new
}

/// `put -r`: a tree with all that it keeps.
fn put(load: &mut Workload, top: &[u8]) {
    let at = |name: &str| [top, b"/", name.as_bytes()].concat();
    load.mkdir(top);
    for (i, size) in [0, 90, 5000, 20_000].into_iter().enumerate() {
        load.file(&at(&format!("f{i}")), [Look::Noise, Look::Words][i % 2], size);
    }
    load.push(Op::Truncate { path: at("f1"), size: 200_000 });
    load.push(Op::Link { existing: at("f2"), path: at("again") });
    load.push(Op::Symlink { path: at("link"), target: b"../f0".to_vec() });
    let (path, name) = (at("f3"), b"user.note".to_vec());
    load.push(Op::SetXattr { path: path.clone(), name, value: vec![1; 300] });
    load.push(Op::SetOwner { path: path.clone(), uid: 7, gid: 8 });
    load.push(Op::SetTime { path, mtime: (1_000_000_000, 1) });
}

/// `rm -r` of what [`put`] made, one level deep.
fn remove(load: &mut Workload, top: &[u8]) {
    for name in ["f0", "f1", "f2", "f3", "again", "link"] {
        load.push(Op::Remove { path: [top, b"/", name.as_bytes()].concat() });
    }
    load.push(Op::Rmdir { path: top.to_vec() });
}

fn verbs_first(load: &mut Workload) {
    load.mkdir(b"dir");
    load.mkdir(b"empty");
    load.file(b"dir/part", Look::Noise, 100_000);
    load.file(b"dir/cut", Look::Words, 70_000);
    load.file(b"dir/moved", Look::Root, 20_000);
    load.file(b"removed", Look::Noise, 50_000);
    load.file(b"replaced", Look::Noise, 3000);
    load.file(b"small", Look::Words, 100);
    load.push(Op::Symlink { path: b"link".to_vec(), target: b"dir/part".to_vec() });
    load.push(Op::Fifo { path: b"pipe".to_vec(), mode: 0o600 });
    let xattr = |name: &[u8], size| Op::SetXattr {
        path: b"dir/part".to_vec(),
        name: name.to_vec(),
        value: vec![7; size],
    };
    load.push(xattr(b"user.short", 20));
    load.push(xattr(b"user.spilled", 2000));
    // too long for the system attributes: a hidden directory
    load.push(xattr(b"user.long", 40_000));
}

fn verbs_second(load: &mut Workload) {
    load.write(b"dir/part", 16_000, Data { look: Look::Noise, seed: 91, size: 20_000 });
    load.push(Op::Truncate { path: b"dir/cut".to_vec(), size: 33_333 });
    load.push(Op::Truncate { path: b"small".to_vec(), size: 0 });
    load.push(Op::Rename { from: b"dir/moved".to_vec(), to: b"replaced".to_vec() });
    load.push(Op::Link { existing: b"dir/part".to_vec(), path: b"second".to_vec() });
    load.push(Op::Remove { path: b"removed".to_vec() });
    load.push(Op::Rmdir { path: b"empty".to_vec() });
    let path = b"dir/part".to_vec();
    load.push(Op::RemoveXattr { path: path.clone(), name: b"user.spilled".to_vec() });
    load.push(Op::RemoveXattr { path: path.clone(), name: b"user.long".to_vec() });
    load.push(Op::SetMode { path: path.clone(), mode: 0o4711 });
    load.push(Op::SetOwner { path: path.clone(), uid: 1000, gid: 100 });
    load.push(Op::SetTime { path, mtime: (1_234_567_890, 987_654_321) });
}

/// The state after a step.
fn after(state: &State, step: &Step) -> State {
    let mut next = State { txg: 0, ..state.clone() };
    let all = &mut next.filesystems;
    match step {
        Step::Files(name, ops) => {
            let files = all.get_mut(name).expect("the story makes it first");
            for op in ops {
                files.tree.apply(op).expect("a valid operation");
            }
        }
        Step::Create(name) => {
            all.insert(name, Files::of(Tree::new()));
        }
        Step::Destroy(name) => drop(all.remove(name)),
        Step::Set(name, "recordsize", value) => {
            all.get_mut(name).expect("it is there").record = *value as u32;
        }
        Step::Snapshot(names, snapshot) => {
            for name in *names {
                let files = all.get_mut(name).expect("it is there");
                files.snapshots.push((snapshot, files.tree.clone()));
            }
        }
        Step::DestroySnapshot(name, snapshot) => {
            let files = all.get_mut(name).expect("it is there");
            files.snapshots.retain(|(own, _)| own != snapshot);
        }
        Step::Rollback(name) => {
            let files = all.get_mut(name).expect("it is there");
            files.tree = files.snapshots.last().expect("it has one").1.clone();
        }
        Step::Clone(of, snapshot, name) => {
            let from = all[of].snapshots.iter().find(|(own, _)| own == snapshot);
            let tree = from.expect("it has it").1.clone();
            all.insert(name, Files::of(tree));
        }
        Step::Promote(name) => {
            // The story promotes a clone of the first snapshot of "tank/a".
            let moved = all.get_mut("tank/a").expect("its origin").snapshots.remove(0);
            all.get_mut(name).expect("it is there").snapshots.insert(0, moved);
        }
        Step::Rename(from, to) => {
            let files = all.remove(from).expect("it is there");
            all.insert(to, files);
        }
        Step::SetPool => next.autoreplace = true,
        Step::Export => next.held.0 = PoolState::Exported,
        Step::Import => next.held = (PoolState::Active, rig::HOSTS[1]),
        Step::DestroyPool => next.held.0 = PoolState::Destroyed,
        Step::Set(..) | Step::Free | Step::Reopen => {}
    }
    next
}

/// How far a story came.
pub(crate) struct Told {
    pub shape: Shape,
    pub history: History,
    /// The pool, still open, unless making or opening it failed.
    pub pool: Option<Arc<Pool>>,
    /// Number of the last state that was acknowledged.
    pub acknowledged: Option<usize>,
    /// The error that ended it early.
    pub error: Option<String>,
}

/// Makes a pool on the disks and does the steps up to the first error. `before` is called with the
/// number of each step, for faults to be put in.
pub(crate) fn tell(set: &SimSet, shape: Shape, steps: &[Step], before: impl Fn(usize)) -> Told {
    let files = Files::of(Tree::new());
    let first = State {
        txg: 0,
        filesystems: BTreeMap::from([(POOL, files)]),
        held: (PoolState::Active, rig::HOSTS[0]),
        autoreplace: false,
    };
    let mut told = Told {
        shape,
        history: History { states: vec![first] },
        pool: None,
        acknowledged: None,
        error: None,
    };
    before(0);
    match rig::create(set, shape) {
        Ok(pool) => told.acknowledge(set, pool),
        Err(e) => {
            told.error = Some(e.to_string());
            return told;
        }
    }
    for (number, step) in steps.iter().enumerate() {
        before(number + 1);
        if let Err(e) = told.go_on(set, step) {
            told.error = Some(e);
            break;
        }
    }
    told
}

impl Told {
    fn acknowledge(&mut self, set: &SimSet, pool: Arc<Pool>) {
        drop(rig::set(&pool, self.shape));
        let number = self.history.states.len() - 1;
        self.history.states[number].txg = pool.txg();
        self.pool = Some(pool);
        self.acknowledged = Some(number);
        set.mark(number as u64);
    }

    /// Does one step.
    pub(crate) fn go_on(&mut self, set: &SimSet, step: &Step) -> Result<(), String> {
        let pool = self.pool.clone().ok_or("the pool is not open")?;
        let host = self.history.states.last().expect("the first one").held.1;
        if matches!(step, Step::Reopen) {
            if pool.is_freeing().map_err(|e| e.to_string())? {
                let last = self.history.states.last().expect("the first one");
                self.history.states.push(State { txg: 0, ..last.clone() });
                pool.close().map_err(|e| e.to_string())?;
                self.acknowledge(set, pool.clone());
            } else {
                pool.close().map_err(|e| e.to_string())?;
            }
            self.pool = None;
            drop(pool);
            let pool = rig::open_on(set, &rig::all(set), host, self.shape.deadline_ms)?;
            let last = self.history.states.last().expect("the first one");
            rig::set(&pool, self.shape)?;
            assert_eq!(pool.txg(), last.txg, "closing a pool that is in sync writes no txg");
            self.pool = Some(pool);
            return Ok(());
        }
        let state = self.history.states.last().expect("the first one");
        let next = after(state, step);
        self.history.states.push(next);
        let pool = match step {
            Step::Import => {
                pool.close().map_err(|e| e.to_string())?;
                self.pool = None;
                drop(pool);
                assert_ne!(host, rig::HOSTS[1]);
                rig::open_on(set, &rig::all(set), rig::HOSTS[1], self.shape.deadline_ms)?
            }
            _ => pool,
        };
        rig::set(&pool, self.shape)?;
        self.pool = Some(pool.clone());
        act(&pool, step)?;
        self.acknowledge(set, pool);
        Ok(())
    }
}

fn act(pool: &Arc<Pool>, step: &Step) -> Result<(), String> {
    let text = |e: pool::PoolError| e.to_string();
    match step {
        Step::Files(name, ops) => {
            let fs = Filesystem::open(pool, name).map_err(|e| e.to_string())?;
            for op in ops {
                apply(&fs, op).map_err(|e| format!("{op}: {e}"))?;
            }
            pool.sync().map(drop).map_err(text)
        }
        Step::Create(name) => {
            pool.create_filesystem(name, BTreeMap::new(), make_filesystem).map_err(text)
        }
        Step::Destroy(name) => pool.destroy_dataset(name).map_err(text),
        Step::Snapshot(names, snapshot) => {
            let full: Vec<String> = names.iter().map(|n| format!("{n}@{snapshot}")).collect();
            pool.snapshot(&full, &[]).map_err(text)
        }
        Step::DestroySnapshot(name, snapshot) => {
            pool.destroy_snapshots(&[format!("{name}@{snapshot}")], false).map_err(text)
        }
        Step::Rollback(name) => pool.rollback(&format!("{name}@one")).map_err(text),
        Step::Clone(of, snapshot, name) => {
            pool.clone_snapshot(&format!("{of}@{snapshot}"), name, BTreeMap::new()).map_err(text)
        }
        Step::Promote(name) => pool.promote(name).map_err(text),
        Step::Rename(from, to) => pool.rename(from, to).map_err(text),
        Step::Free => {
            pool.set_freeing(u64::MAX, false).map_err(text)?;
            // Something changes even if nothing is left.
            pool.set_property(POOL, "devices", Some(Stored::Number(0))).map_err(text)?;
            let left = pool.freeing().map_err(text)?;
            let files = pool.is_freeing().map_err(text)?;
            if left == 0 && !files { Ok(()) } else { Err(format!("{left} bytes are not freed")) }
        }
        Step::Set(name, property, value) => {
            pool.set_property(name, property, Some(Stored::Number(*value))).map_err(text)
        }
        Step::SetPool => {
            pool.set_pool_property("autoreplace", Some(Stored::Number(1))).map_err(text)
        }
        Step::Export => pool.set_state(PoolState::Exported).map_err(text),
        Step::Import => pool.set_state(PoolState::Active).map_err(text),
        Step::DestroyPool => pool.set_state(PoolState::Destroyed).map_err(text),
        Step::Reopen => unreachable!("done by the caller"),
    }
}

/// Does an operation of the model on a file system.
pub(crate) fn apply(fs: &Filesystem, op: &Op) -> Result<(), FsError> {
    let make = |path: &[u8], kind: u32, bits: u32, target: Option<&[u8]>| {
        let (dir, name) = fs.resolve_parent(path)?;
        let new = NewObject { target, ..NewObject::of(kind | bits, Who { uid: 0, gid: 0 }) };
        fs.create(dir, name, &new).map(drop)
    };
    match op {
        Op::Mkdir { path, mode: bits } => make(path, mode::DIR, *bits, None),
        Op::Create { path, mode: bits } => make(path, mode::FILE, *bits, None),
        Op::Fifo { path, mode: bits } => make(path, mode::FIFO, *bits, None),
        Op::Symlink { path, target } => make(path, mode::SYMLINK, 0o777, Some(target)),
        Op::Write { path, offset, data } => fs.write(fs.resolve(path)?, *offset, &data.bytes()),
        Op::Truncate { path, size } => fs.truncate(fs.resolve(path)?, *size),
        Op::Link { existing, path } => {
            let (dir, name) = fs.resolve_parent(path)?;
            fs.link(dir, name, fs.resolve(existing)?)
        }
        Op::Rename { from, to } => {
            let ((from, name), (to, new)) = (fs.resolve_parent(from)?, fs.resolve_parent(to)?);
            fs.rename(from, name, to, new)
        }
        Op::Remove { path } => fs.resolve_parent(path).and_then(|(dir, n)| fs.unlink(dir, n)),
        Op::Rmdir { path } => fs.resolve_parent(path).and_then(|(dir, n)| fs.rmdir(dir, n)),
        Op::SetMode { path, mode: bits } => fs.change_attrs(fs.resolve(path)?, |attrs| {
            attrs.set_mode(attrs.kind() | bits);
        }),
        Op::SetOwner { path, uid, gid } => fs.change_attrs(fs.resolve(path)?, |attrs| {
            (attrs.uid, attrs.gid) = (u64::from(*uid), u64::from(*gid));
        }),
        Op::SetTime { path, mtime } => fs.change_attrs(fs.resolve(path)?, |attrs| {
            attrs.mtime = Time { secs: mtime.0, nanos: mtime.1 };
        }),
        Op::SetXattr { path, name, value } => fs.set_xattr(fs.resolve(path)?, name, Some(value)),
        Op::RemoveXattr { path, name } => fs.set_xattr(fs.resolve(path)?, name, None),
        Op::Sync | Op::Reopen => Ok(()),
    }
}
