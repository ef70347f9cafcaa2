//! Devices that fail in a pool that is held get others in their place, without a person: spares, the device itself when
//! it is back, or a new one where it was.
//!
//! The one idea: once a second it is asked of each leaf whether something is wrong with it, and for each trouble one
//! spare is found, once; whoever sends that away has it his way until the trouble was over. What is done here is what
//! the words `replace`, `online` and `detach` do. It is done by a thread of its own, since it waits for devices.

use std::collections::{BTreeMap, BTreeSet};
use std::os::unix::fs::{FileTypeExt, MetadataExt};
use std::path::{Path, PathBuf};
use std::time::Duration;

use device::{Device, WriteFile};
use format::BlkPtr;
use format::config::{VdevConfig, VdevKind};
use pool::devices::{Labels, Leaf, Seen, content};
use pool::{NewLeaf, Pool, PoolError, Stored, Trouble};
use rt::sync::{Arc, Mutex};
use rt::time::Instant;

use super::disks::{engage, path_of, queued};
use super::errand::{self, Noted};
use super::held::Held;
use super::keeper;
use super::lifecycle::leaf_path;
use crate::events;
use crate::inuse::DEVICE_SIZE_MIN;
use crate::state::StateFile;

/// How long it takes until what could not be done is tried again.
const AGAIN: Duration = Duration::from_secs(3);

/// What has been done about devices, by pool.
#[derive(Default)]
pub(super) struct Standins {
    pools: Mutex<BTreeMap<u64, Done>>,
    /// The list of pools that the held ones are in.
    list: Mutex<Option<StateFile>>,
}

#[derive(Default)]
struct Done {
    /// Leaves in trouble that a spare was found for.
    helped: BTreeSet<u64>,
    /// Leaves whose device was away while a spare stood in for them.
    away: BTreeSet<u64>,
    /// Leaves in whose place there was something to use at the last look.
    seen: Option<BTreeSet<u64>>,
    /// Since when a thread looks for that.
    looking: Option<Instant>,
    /// A thread is at it.
    busy: bool,
    tried: Option<Instant>,
}

/// A leaf that is not as it should be.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Wrong {
    leaf: u64,
    trouble: Trouble,
    /// Its device is not there, or another one is.
    away: bool,
    /// It is out of use, since its device failed: another one may be in its place by now.
    faulted: bool,
}

/// What is wrong with a leaf; `slow`: it takes much longer than others.
fn wrong_with(leaf: &Leaf, slow: bool) -> Option<Wrong> {
    let config = &leaf.config;
    let is_away = !leaf.state.is_online() && !config.faulted;
    let (trouble, away) = match leaf.verdict.get() {
        _ if config.offline => return None,
        _ if is_away => (Trouble::Unnoted, true),
        _ if config.faulted => (Trouble::Unnoted, false),
        Seen::Removed | Seen::Cut => (Trouble::Unnoted, true),
        Seen::Faulted => (Trouble::Faulted, false),
        Seen::Degraded => (Trouble::Degraded, false),
        Seen::Fine if config.degraded || slow => (Trouble::Unnoted, false),
        Seen::Fine => return None,
    };
    Some(Wrong { leaf: leaf.guid(), trouble, away, faulted: config.faulted })
}

impl Wrong {
    /// May there be something to use in its place?
    fn may_return(&self) -> bool {
        self.away || self.faulted
    }

    /// Is it used? Whoever trusts a device that has failed says so.
    fn takes(&self, there: There) -> bool {
        there == There::Blank || !self.faulted
    }
}

/// What is where a leaf was.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum There {
    /// Its device.
    Itself,
    /// Another one, with nothing on it.
    Blank,
}

/// Looks for something to use in the places of leaves, in a thread of its own: it may take long.
fn look_at(held: &Arc<Held>, pool: &Pool, places: Vec<(Wrong, PathBuf)>) {
    // Not the pool itself: what does not answer must not keep it.
    let (pool, newest) = (pool.guid(), pool.newest());
    let (held, by) = (held.clone(), held.clone());
    let noted = Noted::until(move || {
        let mut pools = by.standins().pools.lock();
        pools.get_mut(&pool).into_iter().for_each(|done| done.looking = None);
    });
    let look = move || {
        let _noted = noted;
        let is_there = |(wrong, path): &&(Wrong, PathBuf)| {
            let there = device::ReadFile::open(path).ok();
            let there = there.and_then(|file| what_is(&file, (pool, wrong.leaf), &newest));
            there.is_some_and(|there| wrong.takes(there))
        };
        let seen = places.iter().filter(is_there).map(|(wrong, _)| wrong.leaf).collect();
        if let Some(done) = held.standins().pools.lock().get_mut(&pool) {
            done.seen = Some(seen);
        }
    };
    // Without a thread the next look begins one.
    drop(errand::start("look", look));
}

/// `newest`: the pool's newest uberblock, see [`Pool::newest`].
fn what_is(
    file: &dyn Device,
    (pool, leaf): (u64, u64),
    (txg, root): &(u64, BlkPtr),
) -> Option<There> {
    let labels = Labels::read(file);
    let is_it = labels.member(u64::MAX).is_some_and(|config| {
        config.pool_guid == pool && config.label.is_some_and(|ids| ids.guid == leaf)
    });
    if is_it {
        // One that was written to elsewhere nobody takes unasked.
        return (!labels.is_astray((*txg, root))).then_some(There::Itself);
    }
    let is_blank = matches!(content(file), Ok(None)) && file.size() >= DEVICE_SIZE_MIN;
    is_blank.then_some(There::Blank)
}

/// The vdev right above another.
fn above(root: &VdevConfig, guid: u64) -> Option<&VdevConfig> {
    root.walk().find(|vdev| vdev.children.iter().any(|child| child.guid == guid))
}

/// May a spare stand in for this leaf? Not where one does, or where another device takes its place.
fn wants_spare(root: &VdevConfig, leaf: u64) -> bool {
    let top = root.children.iter().find(|top| top.find(leaf).is_some());
    let is_log = top.and_then(|top| top.top).is_some_and(|top| top.is_log);
    let Some(parent) = above(root, leaf).filter(|_| !is_log) else { return false };
    match parent.kind {
        VdevKind::Replacing => false,
        VdevKind::Spare => parent.children.last().is_some_and(|last| last.guid == leaf),
        _ => true,
    }
}

/// Is there a spare for this leaf?
fn is_spared(root: &VdevConfig, leaf: u64) -> bool {
    let parent = above(root, leaf).filter(|parent| parent.kind == VdevKind::Spare);
    parent.is_some_and(|parent| parent.children.first().is_some_and(|first| first.guid == leaf))
}

fn all_wrong(pool: &Pool) -> Vec<Wrong> {
    let slow: BTreeSet<u64> = pool.slow().iter().map(|slow| slow.guid).collect();
    let tree = pool.store().tree();
    let wrong = |leaf: &Leaf| wrong_with(leaf, slow.contains(&leaf.guid()));
    tree.leaves().iter().filter_map(wrong).collect()
}

impl Standins {
    /// Looks at a pool, and sees to it that what is to be done is done.
    pub(super) fn look(&self, held: &Arc<Held>, pool: &Arc<Pool>) {
        if pool.read_only_reason().is_some() || pool.suspended().is_some() {
            return;
        }
        let wrong = all_wrong(pool);
        // Before what is locked here: whoever lets a pool go locks the list of pools first.
        let paths = match wrong.is_empty() {
            true => BTreeMap::new(),
            false => held.leaf_paths(pool.name()),
        };
        let mut pools = self.pools.lock();
        let done = pools.entry(pool.guid()).or_default();
        let root = pool.config().vdev_tree;
        done.helped.retain(|leaf| wrong.iter().any(|wrong| wrong.leaf == *leaf));
        let spared = wrong.iter().filter(|wrong| wrong.away && is_spared(&root, wrong.leaf));
        done.away.extend(spared.map(|wrong| wrong.leaf));
        let is_wrong = |leaf: &u64| wrong.iter().any(|wrong| wrong.leaf == *leaf);
        let back = done.away.iter().any(|leaf| !is_wrong(leaf));
        let unhelped = wrong.iter().any(|wrong| !done.helped.contains(&wrong.leaf));
        let returns = wrong.iter().any(Wrong::may_return);
        let waits = done.tried.is_some_and(|tried| tried.elapsed() < AGAIN);
        if done.busy || waits || !(unhelped || returns || back) {
            return;
        }
        let name = pool.name().to_owned();
        match (&done.seen, done.looking) {
            (None, None) if returns => {
                done.looking = Some(rt::time::now());
                let place =
                    |wrong: &Wrong| Some((*wrong, place_of(&paths, root.find(wrong.leaf)?)));
                let returning = wrong.iter().filter(|wrong| wrong.may_return());
                let places = returning.filter_map(place).collect();
                drop(pools);
                look_at(held, pool, places);
                return;
            }
            // A device that does not answer keeps those that look, and nobody who does something to a pool.
            (None, Some(since)) if since.elapsed() < AGAIN => return,
            _ => {}
        }
        let seen = done.seen.take().unwrap_or_default();
        if !unhelped && !back && seen.is_empty() {
            done.tried = Some(rt::time::now());
            return;
        }
        done.busy = true;
        drop(pools);
        let (held, by, guid) = (held.clone(), held.clone(), pool.guid());
        let noted = Noted::until(move || {
            let mut pools = by.standins().pools.lock();
            if let Some(done) = pools.get_mut(&guid) {
                (done.busy, done.tried) = (false, Some(rt::time::now()));
            }
        });
        let stand_in = move || {
            let _noted = noted;
            // In this order, so that whoever exports the pool finds nobody else with it.
            let _turn = held.turns().of(&name);
            if let Some(pool) = held.pool(&name).filter(|pool| pool.guid() == guid) {
                Site { held: &held, pool: &pool }.do_all(&seen);
            }
        };
        // Without a thread it is tried again, as whatever could not be done.
        drop(errand::start("standins", stand_in));
    }

    /// Pools of this list are held: what comes to one of them is noted there.
    pub(super) fn note_in(&self, list: &StateFile) {
        *self.list.lock() = Some(list.clone());
    }

    /// Forgets a pool that is let go.
    pub(super) fn forget(&self, guid: u64) {
        self.pools.lock().remove(&guid);
    }

    fn change(&self, pool: &Pool, change: impl FnOnce(&mut Done)) {
        if let Some(done) = self.pools.lock().get_mut(&pool.guid()) {
            change(done);
        }
    }
}

/// Where a leaf is: where it was found, or where the pool says.
fn place_of(paths: &BTreeMap<u64, PathBuf>, leaf: &VdevConfig) -> PathBuf {
    paths.get(&leaf.guid).cloned().unwrap_or_else(|| path_of(leaf))
}

/// Where it is done.
struct Site<'a> {
    held: &'a Held,
    pool: &'a Pool,
}

impl Site<'_> {
    /// `there`: leaves in whose place there is something to use.
    fn do_all(&self, there: &BTreeSet<u64>) {
        let wrong = all_wrong(self.pool);
        let returns = |wrong: &&Wrong| wrong.may_return() && there.contains(&wrong.leaf);
        for wrong in wrong.iter().filter(returns) {
            // What cannot be done now is tried again.
            let _ = self.take_back(wrong);
        }
        // What was wrong may be right by now.
        let wrong = all_wrong(self.pool);
        for wrong in &wrong {
            let done = self.held.standins().pools.lock();
            let helped =
                done.get(&self.pool.guid()).is_some_and(|d| d.helped.contains(&wrong.leaf));
            drop(done);
            if !helped && wants_spare(&self.pool.config().vdev_tree, wrong.leaf) {
                let _ = self.spare_for(wrong);
            }
        }
        let standins = self.held.standins();
        let mut back = Vec::new();
        standins.change(self.pool, |done| {
            let is_wrong = |leaf: &u64| wrong.iter().any(|wrong| wrong.leaf == *leaf);
            back = done.away.iter().filter(|leaf| !is_wrong(leaf)).copied().collect();
            done.away.retain(is_wrong);
        });
        for leaf in back.iter().filter(|leaf| is_spared(&self.pool.config().vdev_tree, **leaf)) {
            let _ = self.pool.is_back(*leaf);
        }
    }

    /// Has the best spare stand in for a leaf.
    fn spare_for(&self, wrong: &Wrong) -> Result<(), PoolError> {
        let root = self.pool.config().vdev_tree;
        let Some(old) = root.find(wrong.leaf) else { return Ok(()) };
        let paths = self.held.paths(self.pool.name());
        let mut spares: Vec<_> = self
            .pool
            .spares()?
            .into_iter()
            .filter(|spare| root.find(spare.guid).is_none())
            .map(|spare| {
                let path = paths.get(&spare.guid).cloned().unwrap_or_else(|| path_of(&spare));
                (spare, path)
            })
            .collect();
        let old_path = paths.get(&old.guid).cloned().unwrap_or_else(|| path_of(old));
        let like = is_rotational(&old_path);
        spares.sort_by_cached_key(|(spare, path)| {
            let size = std::fs::metadata(path).map_or(u64::MAX, |_| size_of(path));
            (spare.kind != old.kind, like.is_some() && is_rotational(path) != like, size)
        });
        for (spare, path) in &spares {
            match engage(self.pool, old.guid, (spare, path), wrong.trouble) {
                Ok(()) => {
                    let (new, old_name) = (path.display(), old_path.display());
                    self.say(&format!("spare '{new}' stands in for '{old_name}'"));
                    self.held.tell_leaf(self.pool, events::VDEV_SPARE, spare);
                    self.held.tell_leaf(self.pool, events::VDEV_ATTACH, spare);
                    self.held.standins().change(self.pool, |done| {
                        done.helped.insert(old.guid);
                        done.away.extend(wrong.away.then_some(old.guid));
                    });
                    self.look_for_devices();
                    return Ok(());
                }
                // The next one may fit.
                Err(error) if error.is_refusal() => {}
                Err(error) => return Err(error),
            }
        }
        Ok(())
    }

    /// Takes a leaf's device back, if it is where it was and has not failed, or what is there now in its place, if the
    /// pool wants that.
    fn take_back(&self, wrong: &Wrong) -> Result<(), PoolError> {
        let (root, guid) = (self.pool.config().vdev_tree, wrong.leaf);
        let Some(leaf) = root.find(guid) else { return Ok(()) };
        let path = place_of(&self.held.leaf_paths(self.pool.name()), leaf);
        let Ok(file) = WriteFile::open(&path) else { return Ok(()) };
        match what_is(&file, (self.pool.guid(), guid), &self.pool.newest()) {
            Some(There::Itself) if wrong.takes(There::Itself) => {
                self.pool.online(guid, Some(queued(self.pool.memory(), file)))?;
                self.held.look_anew(self.pool, guid);
                self.remember(&path);
                self.say(&format!("'{}' is back", path.display()));
                self.held.tell_leaf(self.pool, events::VDEV_ONLINE, leaf);
            }
            Some(There::Blank) if self.is_replaced_by_itself(&root, guid)? => {
                let is_disk = file.is_block_device();
                let device = queued(self.pool.memory(), file);
                let new = NewLeaf { path: leaf_path(&path), is_disk, device };
                self.pool.attach(guid, new, true)?;
                self.remember(&path);
                self.say(&format!("the new '{}' replaces the old one", path.display()));
                self.held.tell_leaf(self.pool, events::VDEV_ATTACH, leaf);
            }
            _ => return Ok(()),
        }
        self.look_for_devices();
        Ok(())
    }

    /// Does what is in the place of a leaf replace it, without anybody's word?
    fn is_replaced_by_itself(&self, root: &VdevConfig, leaf: u64) -> Result<bool, PoolError> {
        let wanted = ("autoreplace".to_owned(), Stored::Number(1));
        let is_replaced = above(root, leaf).is_some_and(|above| above.kind == VdevKind::Replacing);
        Ok(!is_replaced && self.pool.pool_properties()?.contains(&wanted))
    }

    /// Whoever opens the pool next looks there, too.
    fn remember(&self, path: &Path) {
        let Some(list) = self.held.standins().list.lock().clone() else { return };
        let noted = list.change(|state| {
            let known = state.pools.iter_mut().find(|known| known.guid == self.pool.guid());
            if let Some(known) = known.filter(|known| !known.paths.iter().any(|at| at == path)) {
                known.paths.push(path.to_path_buf());
            }
        });
        if let Err(error) = noted {
            self.say(&format!("'{}' is not remembered: {error}", path.display()));
        }
    }

    fn say(&self, what: &str) {
        keeper::say(&format!("pool '{}': {what}", self.pool.name()));
    }

    fn look_for_devices(&self) {
        let leaves = self.pool.config().vdev_tree;
        let mut places: BTreeSet<PathBuf> = leaves.leaves().map(path_of).collect();
        places.extend(self.held.paths(self.pool.name()).into_values());
        self.held.look_for_devices(self.pool.name(), places.into_iter().collect());
    }
}

fn size_of(path: &Path) -> u64 {
    device::ReadFile::open(path).map_or(u64::MAX, |file| file.size())
}

/// Does the disk turn? `None` of files, and where the system does not say.
fn is_rotational(path: &Path) -> Option<bool> {
    let meta = std::fs::metadata(path).ok().filter(|meta| meta.file_type().is_block_device())?;
    let (major, minor) = (rustix::fs::major(meta.rdev()), rustix::fs::minor(meta.rdev()));
    let place = format!("/sys/dev/block/{major}:{minor}");
    // Of a partition its disk says it.
    let said = ["queue/rotational", "../queue/rotational"]
        .iter()
        .find_map(|name| std::fs::read_to_string(Path::new(&place).join(name)).ok())?;
    Some(said.trim() == "1")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn vdev(kind: VdevKind, guid: u64, children: Vec<VdevConfig>) -> VdevConfig {
        VdevConfig { children, ..VdevConfig::new(kind, 0, guid) }
    }

    #[test]
    fn one_spare_stands_in_for_a_disk_and_another_for_the_spare() {
        let leaf = |guid| vdev(VdevKind::File, guid, vec![]);
        let spare = vdev(VdevKind::Spare, 20, vec![leaf(2), leaf(3)]);
        let replacing = vdev(VdevKind::Replacing, 40, vec![leaf(4), leaf(5)]);
        let mirror = vdev(VdevKind::Mirror, 10, vec![leaf(1), spare, replacing]);
        let mut log = leaf(6);
        log.top = Some(format::config::TopConfig { is_log: true, ..Default::default() });
        let root = vdev(VdevKind::Root, 100, vec![mirror, log]);
        let wanted: Vec<u64> = (1..8).filter(|leaf| wants_spare(&root, *leaf)).collect();
        assert_eq!(wanted, [1, 3]);
        let spared: Vec<u64> = (1..8).filter(|leaf| is_spared(&root, *leaf)).collect();
        assert_eq!(spared, [2]);
    }
}
