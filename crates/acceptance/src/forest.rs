//! A model of data sets with their snapshots and clones, beside the engine that has them.
//!
//! Each data set has a plain tree; a snapshot is a copy of it. What the engine lists must be what
//! the model has, after any number of operations.

use std::collections::BTreeMap;

use fs::Filesystem;
use pool::Pool;
use rt::sync::Arc;
use testkit::model::Tree;
use testkit::random::Rng;
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
            pool.create_filesystem(name, BTreeMap::new(), fs::make_filesystem).unwrap();
        }
        forest.grow(pool);
        forest
    }

    fn fresh(&mut self, letter: char) -> String {
        self.names += 1;
        format!("{letter}{}", self.names)
    }

    fn grow(&mut self, pool: &Arc<Pool>) {
        let name = format!("{}/{}", self.parent(), self.fresh('f'));
        pool.create_filesystem(&name, BTreeMap::new(), fs::make_filesystem).unwrap();
        let load = Workload::new(self.rng.word());
        let branch = Branch { load, snapshots: Vec::new(), origin: None, open: None };
        self.branches.insert(name, branch);
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

    /// One random operation: most are on files.
    ///
    /// # Panics
    /// If the engine refuses what the model allows.
    pub fn step(&mut self, pool: &Arc<Pool>) {
        let what = match self.rng.below(60) {
            0..4 => self.snapshot(pool),
            4..6 => self.destroy_snapshot(pool),
            6 => self.rollback(pool),
            7..11 => self.clone_one(pool),
            11 => self.promote(pool),
            12 => self.rename(pool),
            13 => self.rename_snapshot(pool),
            14..16 => self.destroy(pool),
            16 if self.branches.len() < BRANCHES_MAX => {
                self.grow(pool);
                Some("create")
            }
            _ => self.file(pool),
        };
        if let Some(what) = what {
            *self.done.entry(what).or_default() += 1;
        }
    }

    fn file(&mut self, pool: &Arc<Pool>) -> Option<&'static str> {
        let name = self.any();
        let branch = self.branches.get_mut(&name)?;
        let fs = branch.open.get_or_insert_with(|| Filesystem::open(pool, &name).unwrap());
        branch.load.step();
        let op = branch.load.ops.pop()?;
        match op {
            Op::Sync => drop(pool.sync().unwrap()),
            op => engine::change(fs, &op).unwrap_or_else(|e| panic!("{name}: {op}: {e}")),
        }
        Some("file")
    }

    fn snapshot(&mut self, pool: &Arc<Pool>) -> Option<&'static str> {
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
        if names.is_empty() {
            return None;
        }
        pool.snapshot(&names, &[]).unwrap_or_else(|e| panic!("snapshot {names:?}: {e}"));
        Some("snapshot")
    }

    fn destroy_snapshot(&mut self, pool: &Arc<Pool>) -> Option<&'static str> {
        let (name, at) = self.any_snapshot()?;
        let snapshot = self.branches[&name].snapshots[at].0.clone();
        let full = format!("{name}@{snapshot}");
        if self.has_clones(&name, &snapshot) {
            assert!(pool.destroy_snapshots(&[full], false).is_err());
            return Some("refused");
        }
        pool.destroy_snapshots(&[full.clone()], false).unwrap_or_else(|e| panic!("{full}: {e}"));
        self.branches.get_mut(&name)?.snapshots.remove(at);
        Some("destroy snapshot")
    }

    fn rollback(&mut self, pool: &Arc<Pool>) -> Option<&'static str> {
        let name = self.any();
        let branch = self.branches.get_mut(&name)?;
        let (snapshot, tree) = branch.snapshots.last()?.clone();
        branch.load.tree = tree;
        branch.open = None;
        let full = format!("{name}@{snapshot}");
        pool.rollback(&full).unwrap_or_else(|e| panic!("rollback {full}: {e}"));
        Some("rollback")
    }

    fn clone_one(&mut self, pool: &Arc<Pool>) -> Option<&'static str> {
        if self.branches.len() >= BRANCHES_MAX {
            return None;
        }
        let (name, at) = self.any_snapshot()?;
        let new = format!("{}/{}", self.parent(), self.fresh('c'));
        let (snapshot, tree) = self.branches[&name].snapshots[at].clone();
        let full = format!("{name}@{snapshot}");
        pool.clone_snapshot(&full, &new, BTreeMap::new())
            .unwrap_or_else(|e| panic!("clone {full} {new}: {e}"));
        let mut load = Workload::new(self.rng.word());
        load.tree = tree;
        let origin = Some((name, snapshot));
        self.branches.insert(new, Branch { load, snapshots: Vec::new(), origin, open: None });
        Some("clone")
    }

    fn promote(&mut self, pool: &Arc<Pool>) -> Option<&'static str> {
        let clones = self.branches.iter().filter(|(_, branch)| branch.origin.is_some());
        let clones: Vec<String> = clones.map(|(name, _)| name.clone()).collect();
        let name = clones.get(self.rng.index(clones.len().max(1)))?.clone();
        let (of, from) = self.branches[&name].origin.clone()?;
        pool.promote(&name).unwrap_or_else(|e| panic!("promote {name}: {e}"));
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
        Some("promote")
    }

    fn rename(&mut self, pool: &Arc<Pool>) -> Option<&'static str> {
        let name = self.any();
        let new = format!("{}/{}", self.parent(), self.fresh('r'));
        pool.rename(&name, &new).unwrap_or_else(|e| panic!("rename {name} {new}: {e}"));
        let branch = self.branches.remove(&name)?;
        self.branches.insert(new.clone(), branch);
        for branch in self.branches.values_mut() {
            if let Some((owner, _)) = &mut branch.origin
                && *owner == name
            {
                *owner = new.clone();
            }
        }
        Some("rename")
    }

    fn rename_snapshot(&mut self, pool: &Arc<Pool>) -> Option<&'static str> {
        let (name, at) = self.any_snapshot()?;
        let new = self.fresh('t');
        let branch = self.branches.get_mut(&name)?;
        let old = std::mem::replace(&mut branch.snapshots[at].0, new.clone());
        pool.rename_snapshots(&[(format!("{name}@{old}"), new.clone())])
            .unwrap_or_else(|e| panic!("rename {name}@{old} {new}: {e}"));
        for branch in self.branches.values_mut() {
            if let Some((owner, snapshot)) = &mut branch.origin
                && *owner == name
                && *snapshot == old
            {
                *snapshot = new.clone();
            }
        }
        Some("rename snapshot")
    }

    fn destroy(&mut self, pool: &Arc<Pool>) -> Option<&'static str> {
        let name = self.any();
        if self.branches.len() < 3 {
            return None;
        }
        let branch = self.branches.get_mut(&name)?;
        if !branch.snapshots.is_empty() {
            assert!(pool.destroy_dataset(&name).is_err(), "{name} has snapshots");
            let all: Vec<String> = branch.snapshots.iter().map(|(s, _)| s.clone()).collect();
            if all.iter().any(|snapshot| self.has_clones(&name, snapshot)) {
                return Some("refused");
            }
            let full: Vec<String> = all.iter().map(|s| format!("{name}@{s}")).collect();
            pool.destroy_snapshots(&full, false).unwrap_or_else(|e| panic!("{full:?}: {e}"));
        }
        pool.destroy_dataset(&name).unwrap_or_else(|e| panic!("destroy {name}: {e}"));
        self.branches.remove(&name);
        Some("destroy")
    }

    /// Lets go of the pool, so that it can be closed.
    pub fn let_go(&mut self) {
        for branch in self.branches.values_mut() {
            branch.open = None;
        }
    }

    /// Compares everything with what the pool says.
    ///
    /// # Panics
    /// With what differs.
    #[track_caller]
    pub fn check(&self, pool: &Arc<Pool>) {
        let list = |name: &str| {
            let fs = Filesystem::open(pool, name).unwrap_or_else(|e| panic!("{name}: {e}"));
            engine::list(&fs).unwrap_or_else(|e| panic!("{name}: {e}"))
        };
        for (name, branch) in &self.branches {
            assert_same(&branch.load.tree.entries(), &list(name), Compare::MODEL);
            for (snapshot, tree) in &branch.snapshots {
                let full = format!("{name}@{snapshot}");
                assert_same(&tree.entries(), &list(&full), Compare::MODEL);
            }
        }
    }
}
