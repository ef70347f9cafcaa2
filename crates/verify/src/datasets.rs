//! The list of directories and data sets, found by following them from the root directory.
//!
//! The one idea: a snapshot is found on two ways, by its name and by the chain from its head back
//! to the origin. Both are followed, and in what order they are is taken from the births of their
//! roots, so that a lie in one of these hides nothing and spoils no account; what they disagree in
//! is told by `chain`.

use crate::block::Blocks;
use crate::mos::Mos;
use crate::object::{self, Result, Unread};
use format::DnodePhys;
use format::dsl_dataset::DslDatasetPhys;
use format::dsl_dir::{DIR_CRYPTO_KEY_OBJECT, DslDirPhys};
use format::mos_directory as key;
use std::collections::{BTreeMap, BTreeSet};

/// Nesting of data sets that is followed; names are far shorter than this.
const DEPTH_MAX: usize = 256;
/// Longest name that is believed, in bytes; OpenZFS has names of 255.
const NAME_MAX: usize = 1 << 9;

/// A data set or snapshot.
#[derive(Clone, Debug)]
pub(crate) struct Dataset {
    /// Its object in the MOS.
    pub object: u64,
    /// Its name; of the pool's own ones something with `$`.
    pub name: String,
    /// Is it a snapshot?
    pub snapshot: bool,
    /// Is it on the chain from its head?
    pub chained: bool,
    /// Has it a name in the head's list (heads: always)?
    pub named: bool,
    /// Does its directory have an encryption key?
    pub encrypted: bool,
    /// Its directory's place in the list of those.
    pub dir: usize,
    /// What it says.
    pub phys: DslDatasetPhys,
    /// Is its object a ZAP, too?
    pub zapified: bool,
    /// The place of the snapshot it grew from: the one before it, else the origin of its directory.
    pub prev: Option<usize>,
    /// The place of what grew from it in its directory: the next snapshot, or the head.
    pub next: Option<usize>,
}

impl Dataset {
    /// The txg until which what was born is its previous snapshot's.
    pub(crate) fn shared_until(&self, all: &Datasets) -> u64 {
        let prev = self.prev.and_then(|place| all.list.get(place));
        // Of one that was left out only this one tells.
        let said = if all.beyond { self.phys.prev_snap_txg.get() } else { 0 };
        prev.map_or(said, |prev| prev.phys.bp.birth())
    }
}

/// A DSL directory.
pub(crate) struct Dir {
    /// Its object in the MOS.
    pub object: u64,
    /// Its name.
    pub name: String,
    /// The directory it was found in, by its place in the list.
    pub parent: Option<usize>,
    /// Its children, by their places in the list.
    pub children: Vec<usize>,
    /// Its data sets: places of head and snapshots in that list.
    pub datasets: std::ops::Range<usize>,
    /// What it says.
    pub phys: DslDirPhys,
    /// Is its object a ZAP, too?
    pub zapified: bool,
}

/// All directories and data sets.
#[derive(Default)]
pub(crate) struct Datasets {
    /// Directories, parents before children.
    pub dirs: Vec<Dir>,
    /// Data sets: of each directory first the snapshots, oldest first, then the head.
    pub list: Vec<Dataset>,
    /// What could not be read, and what it is that is unknown therefore.
    pub unread: Vec<String>,
    /// There are more than were asked for: what hangs together with the others is unknown.
    pub beyond: bool,
    /// Places of data sets by their objects.
    by_object: BTreeMap<u64, usize>,
}

impl Datasets {
    /// The place of the data set in object `object`.
    pub(crate) fn place(&self, object: u64) -> Option<usize> {
        self.by_object.get(&object).copied()
    }

    /// The head of a directory, if it has one.
    pub(crate) fn head(&self, dir: &Dir) -> Option<&Dataset> {
        self.list.get(dir.datasets.clone())?.last().filter(|dataset| !dataset.snapshot)
    }

    /// Places of all data sets, each after its previous snapshot.
    pub(crate) fn order(&self) -> Vec<usize> {
        let mut out = Vec::with_capacity(self.list.len());
        let mut done = vec![false; self.list.len()];
        for place in 0..self.list.len() {
            let mut way = Vec::new();
            let mut at = Some(place);
            while let Some(next) = at.filter(|at| done.get(*at) == Some(&false)) {
                done[next] = true;
                way.push(next);
                at = self.list[next].prev;
            }
            out.extend(way.into_iter().rev());
        }
        out
    }

    /// Directories, data sets and snapshots that are known by now.
    fn len(&self) -> usize {
        self.list.len() + self.dirs.len()
    }

    /// Walks the directories below the root, until there are `max` of them, data sets and snapshots.
    pub(crate) fn list(blocks: &mut Blocks<'_>, mos: &Mos, pool: &str, max: usize) -> Datasets {
        let mut all = Datasets::default();
        let Some(root) = mos.find(key::ROOT_DATASET) else {
            all.unread.push("the MOS directory has no root data set".into());
            return all;
        };
        let mut seen = BTreeSet::new();
        let mut todo = vec![(root, pool.to_owned(), 0, None)];
        while let Some((object, name, depth, parent)) = todo.pop() {
            if all.len() + todo.len() >= max {
                all.beyond = true;
                break;
            }
            if depth > DEPTH_MAX || name.len() > NAME_MAX {
                let name = name.get(..64).unwrap_or("a name");
                all.unread.push(format!("{name}...: {depth} deep, too deep or too long a name"));
                continue;
            }
            if !seen.insert(object) {
                all.unread
                    .push(format!("{name}: its directory, object {object}, is another's too"));
                continue;
            }
            let place = all.dirs.len();
            match all.add_dir(blocks, mos, object, (&name, parent), &mut seen, max) {
                Ok(children) => {
                    for (child, object) in children {
                        let child = format!("{name}/{child}");
                        todo.push((object, child, depth + 1, Some(place)));
                    }
                    if let Some(parent) = parent.and_then(|p: usize| all.dirs.get_mut(p)) {
                        parent.children.push(place);
                    }
                }
                Err(why) => all.unread.push(format!("{name}: {why}")),
            }
        }
        let places = all.list.iter().enumerate();
        all.by_object = places.map(|(place, dataset)| (dataset.object, place)).collect();
        all.link();
        all
    }

    /// Finds out what grew from what.
    fn link(&mut self) {
        for dir in &self.dirs {
            let places = dir.datasets.clone();
            for place in places.clone().skip(1) {
                self.list[place].prev = Some(place - 1);
                self.list[place - 1].next = Some(place);
            }
            let Some(first) = self.list.get(places.start).filter(|_| !places.is_empty()) else {
                continue;
            };
            // Which of the two is right if they differ: a snapshot of another directory.
            let said = [first.phys.prev_snap_object.get(), dir.phys.origin_object.get()];
            let foreign = |object: &u64| {
                let place = self.by_object.get(object).copied()?;
                let snapshot = self.list.get(place).is_some_and(|dataset| dataset.snapshot);
                (snapshot && !places.contains(&place)).then_some(place)
            };
            let origin = said.iter().find_map(foreign);
            self.list[places.start].prev = origin;
        }
    }

    /// Adds a directory with its data sets; gives its children.
    fn add_dir(
        &mut self,
        blocks: &mut Blocks<'_>,
        mos: &Mos,
        object: u64,
        (name, parent): (&str, Option<usize>),
        seen: &mut BTreeSet<u64>,
        max: usize,
    ) -> Result<Vec<(String, u64)>> {
        let (dnode, phys) = mos.dir(blocks, object)?;
        let zapified = dnode.kind().is_zap();
        let encrypted = zapified
            && object::zap_get(blocks, &dnode, DIR_CRYPTO_KEY_OBJECT.as_bytes())?.is_some();
        let from = self.list.len();
        let head = phys.head_dataset_object.get();
        if head != 0 {
            let of = (name, encrypted);
            if let Err(why) = self.add_head(blocks, mos, (object, head), of, seen, max) {
                self.unread.push(format!("{name}: {why}"));
            }
        }
        let datasets = from..self.list.len();
        let (name, children) = (name.to_owned(), Vec::new());
        self.dirs.push(Dir { object, name, parent, children, datasets, phys, zapified });
        let mut children = Vec::new();
        let map = phys.child_dir_zap_object.get();
        if map != 0 {
            let listed = mos.expect(blocks, map).and_then(|zap| {
                object::zap_each(blocks, &zap, |entry| {
                    let name = String::from_utf8_lossy(&entry.name).into_owned();
                    let room = children.len() < max;
                    self.beyond |= !room;
                    children.extend(entry.value.as_u64().filter(|_| room).map(|o| (name, o)));
                })
            });
            if let Err(why) = listed {
                let name = self.dirs.last().map_or("?", |dir| &dir.name);
                self.unread.push(format!("{name}: its children: {why}"));
            }
        }
        Ok(children)
    }

    fn add_head(
        &mut self,
        blocks: &mut Blocks<'_>,
        mos: &Mos,
        (dir_object, head): (u64, u64),
        (name, encrypted): (&str, bool),
        seen: &mut BTreeSet<u64>,
        max: usize,
    ) -> Result<()> {
        if !seen.insert(head) {
            return Err(Unread(format!("its head, object {head}, is another's too")));
        }
        let (dnode, phys) = mos.dataset(blocks, head)?;
        let mut names: BTreeMap<u64, String> = BTreeMap::new();
        let room = max.saturating_sub(self.len());
        let map = phys.snapnames_zap_object.get();
        let zap = if map == 0 { None } else { Some(mos.expect(blocks, map)) };
        let listed = zap.map_or(Ok(()), |zap| {
            object::zap_each(blocks, &zap?, |entry| {
                let Some(object) = entry.value.as_u64() else { return };
                if names.len() >= room {
                    self.beyond = true;
                    return;
                }
                let snapshot = String::from_utf8_lossy(&entry.name).into_owned();
                if let Some(other) = names.insert(object, snapshot)
                    && self.unread.len() < max
                {
                    let text = format!("{name}@{other}: object {object} is another's too");
                    self.unread.push(text);
                }
            })
        });
        if let Err(why) = listed {
            self.unread.push(format!("{name}: its snapshots: {why}"));
        }
        let dir = self.dirs.len();
        let new = |object: u64, dnode: &DnodePhys, phys: DslDatasetPhys| Dataset {
            object,
            name: name.to_owned(),
            snapshot: false,
            chained: true,
            named: true,
            encrypted,
            dir,
            phys,
            zapified: dnode.kind().is_zap(),
            prev: None,
            next: None,
        };
        // Along the chain; where that ends too early, by the names alone.
        let mut snapshots = Vec::new();
        let mut at = phys.prev_snap_object.get();
        while at != 0 {
            if self.len() + snapshots.len() >= max {
                self.beyond = true;
                break;
            }
            let found = mos.dataset(blocks, at);
            let own = found.as_ref().is_ok_and(|(_, phys)| phys.dir_object.get() == dir_object);
            if !own && !names.contains_key(&at) || !seen.insert(at) {
                break;
            }
            let (dnode, phys) = match found {
                Ok(found) => found,
                Err(why) => {
                    let snapshot = names.remove(&at).unwrap_or_default();
                    self.unread.push(format!("{name}@{snapshot}: {why}"));
                    break;
                }
            };
            let named = names.remove(&at);
            let mut snapshot = new(at, &dnode, phys);
            (snapshot.snapshot, snapshot.named) = (true, named.is_some());
            let named = named.unwrap_or_else(|| format!("<object {at}>"));
            snapshot.name = format!("{name}@{named}");
            snapshots.push(snapshot);
            at = phys.prev_snap_object.get();
        }
        for (object, snapshot) in names {
            if self.len() + snapshots.len() >= max {
                self.beyond = true;
                break;
            }
            let name = format!("{name}@{snapshot}");
            if !seen.insert(object) {
                self.unread.push(format!("{name}: object {object} is another's too"));
                continue;
            }
            match mos.dataset(blocks, object) {
                Ok((dnode, phys)) => {
                    let mut snapshot = new(object, &dnode, phys);
                    (snapshot.snapshot, snapshot.chained, snapshot.name) = (true, false, name);
                    snapshots.push(snapshot);
                }
                Err(why) => self.unread.push(format!("{name}: {why}")),
            }
        }
        snapshots.reverse();
        snapshots.sort_by_key(|s| (s.phys.bp.birth(), s.phys.creation_txg.get()));
        self.list.append(&mut snapshots);
        self.list.push(new(head, &dnode, phys));
        Ok(())
    }
}
