//! A model of data sets with their snapshots and clones, beside the engine that has them.
//!
//! Each data set has a plain tree; a snapshot is a copy of it. What the engine lists must be what
//! the model has, after any number of operations.

use std::collections::BTreeMap;

use fs::Filesystem;
use pool::{Pool, Stored};
use rt::sync::Arc;
use testkit::data::LOOKS;
use testkit::model::Tree;
use testkit::random::Rng;
use testkit::truth::Entry;
use testkit::workload::{Op, Workload};
use testkit::{Compare, assert_same};

use crate::engine::{self, POOL};

/// Data sets that live at once.
const BRANCHES_MAX: usize = 7;
/// Snapshots of one data set.
const SNAPSHOTS_MAX: usize = 6;
/// File systems that others are moved below.
const PARENTS: [&str; 2] = ["tank/p", "tank/q"];

struct Branch {
    load: Workload,
    /// Oldest first.
    snapshots: Vec<(String, Tree)>,
    /// The snapshot it started from: data set and name.
    origin: Option<(String, String)>,
    open: Option<Filesystem>,
    /// It is not destroyed.
    stays: bool,
}

/// A change of data sets; snapshots by their full names.
#[derive(Debug, Clone)]
pub enum Change {
    /// A new file system.
    Create(String),
    /// Snapshots, all of the same moment.
    Snapshot(Vec<String>),
    /// Snapshots go.
    DestroySnapshots(Vec<String>),
    /// To this snapshot, the last one.
    Rollback(String),
    /// Of this snapshot, by this name.
    Clone(String, String),
    /// Of a clone.
    Promote(String),
    /// Of a file system.
    Rename(String, String),
    /// Of a snapshot: full name, new last part.
    RenameSnapshot(String, String),
    /// Of a file system without snapshots.
    Destroy(String),
}

impl Change {
    fn kind(&self) -> &'static str {
        match self {
            Change::Create(_) => "create",
            Change::Snapshot(_) => "snapshot",
            Change::DestroySnapshots(_) => "destroy snapshot",
            Change::Rollback(_) => "rollback",
            Change::Clone(..) => "clone",
            Change::Promote(_) => "promote",
            Change::Rename(..) => "rename",
            Change::RenameSnapshot(..) => "rename snapshot",
            Change::Destroy(_) => "destroy",
        }
    }

    /// The engine does it.
    ///
    /// # Errors
    /// What it said.
    pub fn by_engine(&self, pool: &Arc<Pool>) -> pool::Result<()> {
        match self {
            Change::Create(name) => pool.create_filesystem(name, dnodes(name), fs::make_filesystem),
            Change::Snapshot(names) => pool.snapshot(names, &[]),
            Change::DestroySnapshots(names) => pool.destroy_snapshots(names, false),
            Change::Rollback(name) => pool.rollback(name),
            Change::Clone(of, name) => pool.clone_snapshot(of, name, BTreeMap::new()),
            Change::Promote(name) => pool.promote(name),
            Change::Rename(from, to) => pool.rename(from, to),
            Change::RenameSnapshot(from, to) => {
                pool.rename_snapshots(&[(from.clone(), to.clone())])
            }
            Change::Destroy(name) => pool.destroy_dataset(name),
        }
    }

    /// The commands that have the kernel do it.
    #[must_use]
    pub fn commands(&self) -> String {
        match self {
            Change::Create(name) => format!("zfs create {name}"),
            Change::Snapshot(names) => format!("zfs snapshot {}", names.join(" ")),
            Change::DestroySnapshots(names) => {
                let each: Vec<String> = names.iter().map(|n| format!("zfs destroy {n}")).collect();
                each.join("\n")
            }
            Change::Rollback(name) => format!("zfs rollback {name}"),
            Change::Clone(of, name) => format!("zfs clone {of} {name}"),
            Change::Promote(name) => format!("zfs promote {name}"),
            Change::Rename(from, to) => format!("zfs rename {from} {to}"),
            Change::RenameSnapshot(from, to) => {
                let head = from.split('@').next().unwrap_or_default();
                format!("zfs rename {from} {head}@{to}")
            }
            Change::Destroy(name) => format!("zfs destroy {name}"),
        }
    }
}

/// New data sets have dnodes of all sizes, by their names.
fn dnodes(name: &str) -> BTreeMap<String, Stored> {
    const SIZES: [u64; 5] = [0, 1, 2048, 1024, 16 << 10];
    let of_name = name.bytes().map(usize::from).sum::<usize>();
    BTreeMap::from([("dnodesize".into(), Stored::Number(SIZES[of_name % SIZES.len()]))])
}

/// Data sets of a pool, as they should be.
pub struct Forest {
    branches: BTreeMap<String, Branch>,
    rng: Rng,
    names: u64,
    /// Operations done, by kind.
    pub done: BTreeMap<&'static str, u64>,
}

impl Forest {
    /// Makes the first data sets in a fresh pool.
    ///
    /// # Panics
    /// If the pool refuses them.
    #[must_use]
    pub fn plant(pool: &Arc<Pool>, seed: u64) -> Forest {
        let mut forest = Forest {
            branches: BTreeMap::new(),
            rng: Rng::of(seed, 4242),
            names: 0,
            done: BTreeMap::new(),
        };
        for name in PARENTS {
            Change::Create(name.into()).by_engine(pool).expect("a fresh pool takes it");
        }
        forest.grow().by_engine(pool).expect("a fresh pool takes it");
        forest
    }

    /// Adds this many files to one of the data sets, which then stays: most are small, in ten directories.
    ///
    /// # Panics
    /// If the engine refuses them.
    pub fn fill(&mut self, pool: &Arc<Pool>, files: u64) {
        let name = self.any();
        let Some(branch) = self.branches.get_mut(&name) else { return };
        let fs = Filesystem::open(pool, &name).unwrap_or_else(|e| panic!("{name}: {e}"));
        branch.stays = true;
        let load = &mut branch.load;
        let dirs: Vec<String> = (0..10).map(|dir| format!("many{dir}")).collect();
        dirs.iter().for_each(|dir| load.mkdir(dir.as_bytes()));
        for i in 0..files {
            let size = match i % 1000 {
                7 => 3_000_000,
                107 => 1 << 20,
                n if n % 100 == 50 => self.rng.below(300_000),
                _ => self.rng.below(6000),
            };
            let path = format!("{}/file-{i:05}", self.rng.pick(&dirs));
            load.file(path.as_bytes(), *self.rng.pick(&LOOKS), size);
        }
        for (i, op) in load.ops.drain(..).enumerate() {
            engine::change(&fs, &op).unwrap_or_else(|e| panic!("{name}: {op}: {e}"));
            if i % 1500 == 1499 {
                pool.sync().expect("a sync");
            }
        }
        *self.done.entry("file").or_default() += files;
    }

    fn fresh(&mut self, letter: char) -> String {
        self.names += 1;
        format!("{letter}{}", self.names)
    }

    fn parent(&mut self) -> &'static str {
        match self.rng.below(3) {
            0 => POOL,
            n => PARENTS[usize::try_from(n - 1).unwrap_or(0)],
        }
    }

    fn any(&mut self) -> String {
        let names: Vec<&String> = self.branches.keys().collect();
        names[self.rng.index(names.len())].clone()
    }

    /// A data set and one of its snapshots, by its place.
    fn any_snapshot(&mut self) -> Option<(String, usize)> {
        let name = self.any();
        let count = self.branches[&name].snapshots.len();
        (count > 0).then(|| (name, self.rng.index(count)))
    }

    fn has_clones(&self, name: &str, snapshot: &str) -> bool {
        self.branches
            .values()
            .any(|b| b.origin.as_ref().is_some_and(|(of, from)| of == name && from == snapshot))
    }

    /// Full names of the snapshots of `name`, if it may be rid of them.
    fn removable(&self, name: &str) -> Option<Vec<String>> {
        let all = self.branches[name].snapshots.iter();
        let all: Vec<&String> = all.map(|(snapshot, _)| snapshot).collect();
        let kept = all.iter().any(|snapshot| self.has_clones(name, snapshot));
        (!kept).then(|| all.iter().map(|snapshot| format!("{name}@{snapshot}")).collect())
    }

    /// One random operation: most are on files.
    ///
    /// # Panics
    /// If the engine refuses what the model allows, or does what the model does not.
    pub fn step(&mut self, pool: &Arc<Pool>) {
        if self.rng.below(60) >= 17 {
            *self.done.entry("file").or_default() += 1;
            return self.file(pool);
        }
        for change in self.change() {
            *self.done.entry(change.kind()).or_default() += 1;
            change.by_engine(pool).unwrap_or_else(|e| panic!("{change:?}: {e}"));
        }
        self.ask_too_much(pool);
    }

    /// What the model does not allow, the engine refuses.
    fn ask_too_much(&mut self, pool: &Arc<Pool>) {
        let Some((name, at)) = self.any_snapshot() else { return };
        let snapshot = self.branches[&name].snapshots[at].0.clone();
        let refused = [
            self.has_clones(&name, &snapshot)
                .then(|| Change::DestroySnapshots(vec![format!("{name}@{snapshot}")])),
            Some(Change::Destroy(name.clone())),
            Some(Change::Snapshot(vec![format!("{name}@{snapshot}")])),
            Some(Change::Rename(name.clone(), format!("{name}/below"))),
            self.branches[&name].origin.is_none().then_some(Change::Promote(name)),
        ];
        for change in refused.into_iter().flatten() {
            let said = change.by_engine(pool);
            assert!(said.is_err_and(|e| e.is_refusal()), "{change:?}");
            *self.done.entry("refused").or_default() += 1;
        }
    }

    fn file(&mut self, pool: &Arc<Pool>) {
        let name = self.any();
        let Some(branch) = self.branches.get_mut(&name) else { return };
        let fs = branch.open.get_or_insert_with(|| {
            Filesystem::open(pool, &name).unwrap_or_else(|e| panic!("{name}: {e}"))
        });
        branch.load.step();
        match branch.load.ops.pop() {
            Some(Op::Sync) | None => drop(pool.sync().expect("a sync")),
            Some(op) => engine::change(fs, &op).unwrap_or_else(|e| panic!("{name}: {op}: {e}")),
        }
    }

    /// Operations on the files of one of the data sets, done in the model.
    pub fn files(&mut self, count: u64) -> (String, Vec<Op>) {
        let name = self.any();
        let Some(branch) = self.branches.get_mut(&name) else { return (name, Vec::new()) };
        (0..count).for_each(|_| branch.load.step());
        (name, std::mem::take(&mut branch.load.ops))
    }

    /// One random change of data sets, done in the model: usually one, none if it does not fit.
    pub fn change(&mut self) -> Vec<Change> {
        let one = match self.rng.below(17) {
            0..4 => self.snapshot(),
            4..6 => self.destroy_snapshot(),
            6 => self.rollback(),
            7..11 => self.clone_one(),
            11 => self.promote(),
            12 => self.rename(),
            13 => self.rename_snapshot(),
            14..16 => return self.destroy(),
            _ => (self.branches.len() < BRANCHES_MAX).then(|| self.grow()),
        };
        one.into_iter().collect()
    }

    fn grow(&mut self) -> Change {
        let name = format!("{}/{}", self.parent(), self.fresh('f'));
        let load = Workload::new(self.rng.word());
        let branch = Branch { load, snapshots: Vec::new(), origin: None, open: None, stays: false };
        self.branches.insert(name.clone(), branch);
        Change::Create(name)
    }

    fn snapshot(&mut self) -> Option<Change> {
        let every = self.rng.one_in(4);
        let chosen = self.any();
        let snapshot = self.fresh('s');
        let mut names = Vec::new();
        for (name, branch) in &mut self.branches {
            if (every || *name == chosen) && branch.snapshots.len() < SNAPSHOTS_MAX {
                branch.snapshots.push((snapshot.clone(), branch.load.tree.clone()));
                names.push(format!("{name}@{snapshot}"));
            }
        }
        (!names.is_empty()).then_some(Change::Snapshot(names))
    }

    fn destroy_snapshot(&mut self) -> Option<Change> {
        let (name, at) = self.any_snapshot()?;
        let snapshot = self.branches[&name].snapshots[at].0.clone();
        if self.has_clones(&name, &snapshot) {
            return None;
        }
        self.branches.get_mut(&name)?.snapshots.remove(at);
        Some(Change::DestroySnapshots(vec![format!("{name}@{snapshot}")]))
    }

    fn rollback(&mut self) -> Option<Change> {
        let name = self.any();
        let branch = self.branches.get_mut(&name)?;
        let (snapshot, tree) = branch.snapshots.last()?.clone();
        branch.load.tree = tree;
        branch.open = None;
        Some(Change::Rollback(format!("{name}@{snapshot}")))
    }

    fn clone_one(&mut self) -> Option<Change> {
        if self.branches.len() >= BRANCHES_MAX {
            return None;
        }
        let (name, at) = self.any_snapshot()?;
        let new = format!("{}/{}", self.parent(), self.fresh('c'));
        let (snapshot, tree) = self.branches[&name].snapshots[at].clone();
        let full = format!("{name}@{snapshot}");
        let mut load = Workload::new(self.rng.word());
        load.tree = tree;
        let origin = Some((name, snapshot));
        let branch = Branch { load, snapshots: Vec::new(), origin, open: None, stays: false };
        self.branches.insert(new.clone(), branch);
        Some(Change::Clone(full, new))
    }

    fn promote(&mut self) -> Option<Change> {
        let clones = self.branches.iter().filter(|(_, branch)| branch.origin.is_some());
        let clones: Vec<String> = clones.map(|(name, _)| name.clone()).collect();
        let name = clones.get(self.rng.index(clones.len().max(1)))?.clone();
        let (of, from) = self.branches[&name].origin.clone()?;
        let owner = self.branches.get_mut(&of)?;
        let end = owner.snapshots.iter().position(|(s, _)| *s == from)? + 1;
        let moved: Vec<_> = owner.snapshots.drain(..end).collect();
        let origin = owner.origin.replace((name.clone(), from));
        for branch in self.branches.values_mut() {
            if let Some((owner, snapshot)) = &mut branch.origin
                && *owner == of
                && moved.iter().any(|(s, _)| s == snapshot)
            {
                *owner = name.clone();
            }
        }
        let branch = self.branches.get_mut(&name)?;
        branch.origin = origin;
        branch.snapshots.splice(..0, moved);
        Some(Change::Promote(name))
    }

    fn rename(&mut self) -> Option<Change> {
        let name = self.any();
        let new = format!("{}/{}", self.parent(), self.fresh('r'));
        let branch = self.branches.remove(&name)?;
        self.branches.insert(new.clone(), branch);
        for branch in self.branches.values_mut() {
            if let Some((owner, _)) = &mut branch.origin
                && *owner == name
            {
                *owner = new.clone();
            }
        }
        Some(Change::Rename(name, new))
    }

    fn rename_snapshot(&mut self) -> Option<Change> {
        let (name, at) = self.any_snapshot()?;
        let new = self.fresh('t');
        let branch = self.branches.get_mut(&name)?;
        let old = std::mem::replace(&mut branch.snapshots[at].0, new.clone());
        for branch in self.branches.values_mut() {
            if let Some((owner, snapshot)) = &mut branch.origin
                && *owner == name
                && *snapshot == old
            {
                *snapshot = new.clone();
            }
        }
        Some(Change::RenameSnapshot(format!("{name}@{old}"), new))
    }

    fn destroy(&mut self) -> Vec<Change> {
        let name = self.any();
        let may = self.branches.len() >= 3 && !self.branches[&name].stays;
        let Some(snapshots) = self.removable(&name).filter(|_| may) else {
            return Vec::new();
        };
        self.branches.remove(&name);
        let mut out = vec![Change::DestroySnapshots(snapshots), Change::Destroy(name)];
        out.retain(|change| !matches!(change, Change::DestroySnapshots(all) if all.is_empty()));
        out
    }

    /// Lets go of the pool, so that it can be closed.
    pub fn let_go(&mut self) {
        for branch in self.branches.values_mut() {
            branch.open = None;
        }
    }

    /// Every data set and snapshot with what must be in it.
    #[must_use]
    pub fn everything(&self) -> Vec<(String, Vec<Entry>)> {
        let mut out = Vec::new();
        for (name, branch) in &self.branches {
            out.push((name.clone(), branch.load.tree.entries()));
            for (snapshot, tree) in &branch.snapshots {
                out.push((format!("{name}@{snapshot}"), tree.entries()));
            }
        }
        out
    }

    /// Compares everything with what the pool says.
    ///
    /// # Panics
    /// With what differs.
    #[track_caller]
    pub fn check(&self, pool: &Arc<Pool>) {
        for (name, entries) in self.everything() {
            let fs = Filesystem::open(pool, &name).unwrap_or_else(|e| panic!("{name}: {e}"));
            let found = engine::list(&fs).unwrap_or_else(|e| panic!("{name}: {e}"));
            assert_same(&entries, &found, Compare::MODEL);
        }
    }
}
