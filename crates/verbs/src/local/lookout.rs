//! Looks at the pools that are held, and tells what has changed.
//!
//! The one idea: the engine counts and goes on; once a second somebody compares with what he saw before. So nothing
//! that reads or writes waits for, or knows of, whoever is told. A look asks counters and the names of devices, never
//! the devices themselves; names by a thread that has nothing of the pool, since one may lie where nobody answers.
//!
//! A leaf is called faulted when ten of its reads and writes failed within ten minutes, degraded when it gave
//! wrong bytes as often: the limits that OpenZFS's daemon has. That lasts until `zpool clear`, or until a pool
//! that waited for its disks goes on. One whose name is gone from the
//! system is removed until the name is back; so is a spare that waits.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::time::Duration;

use format::NvList;
use format::config::{PoolConfig, VdevConfig};
use format::nvlist::Value;
use pool::Pool;
use pool::devices::{ErrorCounts, Leaf, Seen};
use pool::slow::{self, News};
use rt::sync::atomic::{AtomicU64, Ordering};
use rt::sync::{Arc, Condvar, Mutex};
use rt::time::Instant;

use super::disks::path_of;
use super::errand::{self, Noted};
use super::keeper;
use crate::events::{self, Events};

/// So many errors are too many ..
const ERRORS_MAX: u64 = 10;
/// .. within this time.
const WINDOW: Duration = Duration::from_secs(600);
/// How long a look waits for what is at the names of devices. What comes later counts at the next one.
const ANSWER_MAX: Duration = Duration::from_millis(200);

/// What was seen of all pools, by guid.
#[derive(Default)]
pub(super) struct Lookout {
    pools: Mutex<BTreeMap<u64, Watched>>,
    /// Names were looked for.
    answered: Condvar,
    /// How often.
    asked: AtomicU64,
}

/// What was seen of a pool.
#[derive(Default)]
struct Watched {
    leaves: BTreeMap<u64, WatchedLeaf>,
    /// Spares that wait and were there. Have they gone since?
    spares: BTreeMap<u64, bool>,
    /// Blocks lost, by top-level vdev.
    lost: BTreeMap<u32, u64>,
    suspended: bool,
    /// What was at the names of its devices; what is not among them is not known.
    names: BTreeMap<PathBuf, Option<Name>>,
    /// The number of the question for them that is open.
    asking: Option<u64>,
    config: Option<PoolConfig>,
    /// When leaves were compared with their siblings last.
    compared: Option<Instant>,
}

/// What was seen of a leaf.
#[derive(Default)]
struct WatchedLeaf {
    counts: ErrorCounts,
    failed: Recent,
    wrong: Recent,
    /// The file system and number of the file at its path.
    file: Option<(u64, u64)>,
    seen: Seen,
}

/// What is at a name.
#[derive(Clone, Copy)]
struct Name {
    /// Its file system, and its number there.
    file: (u64, u64),
    is_file: bool,
    size: u64,
}

impl Name {
    fn at(path: &Path) -> Option<Name> {
        let meta = std::fs::metadata(path).ok()?;
        Some(Name { file: (meta.dev(), meta.ino()), is_file: meta.is_file(), size: meta.len() })
    }
}

/// Errors of the last minutes.
#[derive(Default)]
struct Recent(VecDeque<(Instant, u64)>);

impl Recent {
    /// Adds some; how many there were lately. Those of one second are one entry, so there are few.
    fn add(&mut self, now: Instant, more: u64) -> u64 {
        while self.0.front().is_some_and(|(then, _)| now.saturating_since(*then) > WINDOW) {
            self.0.pop_front();
        }
        match self.0.back_mut() {
            _ if more == 0 => {}
            Some((then, count)) if now.saturating_since(*then) < Duration::from_secs(1) => {
                *count += more;
            }
            _ => self.0.push_back((now, more)),
        }
        self.0.iter().map(|(_, count)| count).sum()
    }
}

impl Lookout {
    /// Has somebody look what is at the names of a pool's devices. The number of the question, unless an older one is open.
    pub(super) fn ask(
        self: &Arc<Self>,
        pool: &Pool,
        paths: &BTreeMap<u64, PathBuf>,
    ) -> Option<u64> {
        let (guid, number) = (pool.guid(), self.asked.fetch_add(1, Ordering::Relaxed) + 1);
        let spares = pool.known_spares();
        let elsewhere = spares.iter().filter(|spare| !paths.contains_key(&spare.guid)).map(path_of);
        let places: BTreeSet<PathBuf> = paths.values().cloned().chain(elsewhere).collect();
        {
            let mut pools = self.pools.lock();
            let watched = pools.entry(guid).or_default();
            if watched.asking.is_some() {
                return None;
            }
            watched.asking = Some(number);
        }
        let (lookout, by) = (self.clone(), self.clone());
        let noted = Noted::until(move || {
            by.settle(guid, number, |watched| watched.asking = None);
            by.answered.notify_all();
        });
        let look = move || {
            let _noted = noted;
            let named = |path: PathBuf| {
                let name = Name::at(&path);
                (path, name)
            };
            let names = places.into_iter().map(named).collect();
            lookout.settle(guid, number, |watched| watched.names = names);
        };
        // Without a thread the next look begins one.
        drop(errand::start("names", look));
        Some(number)
    }

    /// Does what follows from an answer, if that is still waited for: what has become of the devices since it was asked for
    /// counts more.
    fn settle(&self, guid: u64, number: u64, change: impl FnOnce(&mut Watched)) {
        let mut pools = self.pools.lock();
        let watched = pools.get_mut(&guid).filter(|watched| watched.asking == Some(number));
        if let Some(watched) = watched {
            change(watched);
        }
    }

    /// Waits for the answers to these questions, but not for long.
    pub(super) fn wait_for(&self, asked: &[u64]) {
        let start = rt::time::now();
        let is_open = |watched: &Watched| watched.asking.is_some_and(|it| asked.contains(&it));
        let mut pools = self.pools.lock();
        while pools.values().any(is_open) {
            let left = ANSWER_MAX.saturating_sub(start.elapsed());
            if left.is_zero() {
                return;
            }
            (pools, _) = self.answered.wait_timeout(pools, left);
        }
    }

    /// Looks at a pool whose leaves have these paths, by guid.
    pub(super) fn look(&self, pool: &Pool, paths: &BTreeMap<u64, PathBuf>, events: &Events) {
        let mut pools = self.pools.lock();
        let watched = pools.entry(pool.guid()).or_default();
        watched.look(&Telling { pool, events }, paths);
    }

    /// Forgets a pool that is let go.
    pub(super) fn forget(&self, guid: u64) {
        self.pools.lock().remove(&guid);
    }

    /// Another device is where a leaf was: what was seen of the old one says nothing of it.
    pub(super) fn look_anew(&self, pool: &Pool, guid: u64) {
        if let Some(watched) = self.pools.lock().get_mut(&pool.guid()) {
            watched.leaves.remove(&guid);
            (watched.names, watched.asking) = (BTreeMap::new(), None);
        }
        let tree = pool.store().tree();
        if let Some(leaf) = tree.leaf_by_guid(guid).and_then(|at| tree.leaves().get(at)) {
            leaf.verdict.set(Seen::Fine);
        }
    }

    /// Forgets the errors of one leaf, or of all.
    pub(super) fn clear(&self, pool: &Pool, only: Option<u64>, events: &Events) {
        let mut pools = self.pools.lock();
        let telling = Telling { pool, events };
        for leaf in pool.store().tree().leaves() {
            if only.is_some_and(|guid| leaf.guid() != guid) {
                continue;
            }
            leaf.errors.forget();
            let watched = pools.get_mut(&pool.guid());
            let Some(watched) = watched.and_then(|pool| pool.leaves.get_mut(&leaf.guid())) else {
                continue;
            };
            let seen = watched.seen;
            *watched = WatchedLeaf { file: watched.file, ..WatchedLeaf::default() };
            leaf.verdict.set(Seen::Fine);
            if seen != Seen::Fine {
                telling.pool(events::VDEV_CLEAR, of_leaf(&leaf.config));
                telling.state_changed(&leaf.config, state_number(seen), HEALTHY);
            }
        }
    }
}

impl Watched {
    fn look(&mut self, telling: &Telling<'_>, paths: &BTreeMap<u64, PathBuf>) {
        let (pool, now) = (telling.pool, rt::time::now());
        let is_new = self.config.is_none();
        let config = PoolConfig { txg: 0, ..pool.config() };
        if self.config.as_ref() != Some(&config) {
            self.config = Some(config);
            telling.pool(events::CONFIG_SYNC, NvList::new());
        }
        keeper::say_unlabelled(pool);
        let tree = pool.store().tree();
        for leaf in tree.leaves() {
            let name = paths.get(&leaf.guid()).and_then(|path| self.names.get(path)).copied();
            if leaf.state.is_online() {
                self.leaves.entry(leaf.guid()).or_default().look(telling, leaf, name, now);
            } else if is_new {
                telling.state_changed(&leaf.config, CLOSED, CANNOT_OPEN);
            }
        }
        self.look_for_spares(telling, paths);
        for top in tree.tops() {
            let lost = top.lost_blocks();
            let before = self.lost.insert(top.id(), lost).unwrap_or(0);
            if lost > before {
                let mut values = NvList::new();
                values.put_u64("vdev_guid", top.config.guid);
                values.put_string("vdev_type", top.config.kind.name());
                values.put_u64("blocks_lost", lost - before);
                telling.pool(events::DATA, values);
            }
        }
        if self.compared.is_none_or(|then| now.saturating_since(then) >= slow::LOOK) {
            self.compared = Some(now);
            pool.look_for_slow().iter().for_each(|news| telling.slow(news));
        }
        let reason = pool.suspended();
        if reason.is_none() && self.suspended {
            // What they failed has been done by now.
            for leaf in tree.leaves() {
                let watched = self.leaves.get_mut(&leaf.guid());
                watched.into_iter().for_each(|watched| watched.trust_again(telling, leaf));
            }
        }
        if reason.is_some() != self.suspended {
            self.suspended = reason.is_some();
            let (class, values) = match reason {
                Some(reason) => {
                    let mut values = NvList::new();
                    values.put_string("reason", reason);
                    (events::IO_FAILURE, values)
                }
                None => {
                    let mut values = NvList::new();
                    values.put_u64("vdev_guid", pool.guid());
                    values.put_u64("vdev_state", HEALTHY);
                    values.put_u64("vdev_laststate", CANNOT_OPEN);
                    (events::STATE_CHANGE, values)
                }
            };
            telling.pool(class, values);
        }
    }

    /// Looks for the names of spares that wait.
    fn look_for_spares(&mut self, telling: &Telling<'_>, paths: &BTreeMap<u64, PathBuf>) {
        let tree = telling.pool.store().tree();
        let mut spares = telling.pool.known_spares();
        spares.retain(|spare| tree.leaf_by_guid(spare.guid).is_none());
        self.spares.retain(|guid, _| spares.iter().any(|spare| spare.guid == *guid));
        for spare in &spares {
            let found = paths.get(&spare.guid);
            let path = found.cloned().unwrap_or_else(|| path_of(spare));
            let Some(name) = self.names.get(&path) else { continue };
            let is_there = name.is_some();
            // One that was never seen is told of when it is needed.
            if found.is_some() || is_there {
                self.spares.entry(spare.guid).or_insert(false);
            }
            let Some(has_gone) = self.spares.get_mut(&spare.guid) else { continue };
            match (std::mem::replace(has_gone, !is_there), is_there) {
                (false, false) => {
                    telling.pool(events::REMOVED, of_leaf(spare));
                    telling.state_changed(spare, HEALTHY, REMOVED);
                }
                (true, true) => telling.state_changed(spare, REMOVED, HEALTHY),
                _ => {}
            }
        }
    }
}

impl WatchedLeaf {
    /// `name`: what is at its name, if that is known.
    fn look(
        &mut self,
        telling: &Telling<'_>,
        leaf: &Leaf,
        name: Option<Option<Name>>,
        now: Instant,
    ) {
        let counts = leaf.errors.get();
        let before = std::mem::replace(&mut self.counts, counts);
        let failed = (counts.read + counts.write).saturating_sub(before.read + before.write);
        let wrong = counts.checksum.saturating_sub(before.checksum);
        if failed > 0 {
            telling.report(events::IO, leaf);
        }
        if wrong > 0 {
            telling.report(events::CHECKSUM, leaf);
        }
        let (failed, wrong) = (self.failed.add(now, failed), self.wrong.add(now, wrong));
        let there = match name {
            Some(name) => self.is_there(name, leaf),
            None => self.was_there(),
        };
        let seen = match there {
            There::No => Seen::Removed,
            There::Short => Seen::Cut,
            There::Yes if failed >= ERRORS_MAX || self.seen == Seen::Faulted => Seen::Faulted,
            There::Yes if wrong >= ERRORS_MAX || self.seen == Seen::Degraded => Seen::Degraded,
            There::Yes => Seen::Fine,
        };
        if seen != self.seen {
            let before = std::mem::replace(&mut self.seen, seen);
            leaf.verdict.set(seen);
            if seen == Seen::Removed {
                telling.pool(events::REMOVED, of_leaf(&leaf.config));
            }
            telling.state_changed(&leaf.config, state_number(before), state_number(seen));
        }
    }

    /// A leaf that was given up did what it had failed to do.
    fn trust_again(&mut self, telling: &Telling<'_>, leaf: &Leaf) {
        if self.seen == Seen::Faulted {
            (self.seen, self.failed) = (Seen::Fine, Recent::default());
            leaf.verdict.set(Seen::Fine);
            telling.state_changed(&leaf.config, FAULTED, HEALTHY);
        }
    }

    /// Does the name still lead to the device?
    fn is_there(&mut self, name: Option<Name>, leaf: &Leaf) -> There {
        let Some(name) = name else { return There::No };
        if *self.file.get_or_insert(name.file) != name.file {
            return There::No;
        }
        let size = leaf.device().map_or(0, |device| device.size());
        // The image may be a partition of the file; of a disk nothing is said here.
        match name.is_file && name.size < size {
            true => There::Short,
            false => There::Yes,
        }
    }

    /// As it was when that was known.
    fn was_there(&self) -> There {
        match self.seen {
            Seen::Removed => There::No,
            Seen::Cut => There::Short,
            Seen::Fine | Seen::Degraded | Seen::Faulted => There::Yes,
        }
    }
}

/// Is a device where it was?
enum There {
    Yes,
    No,
    Short,
}

/// States as OpenZFS numbers them.
const CLOSED: u64 = 1;
const OFFLINE: u64 = 2;
const REMOVED: u64 = 3;
const CANNOT_OPEN: u64 = 4;
const FAULTED: u64 = 5;
const DEGRADED: u64 = 6;
const HEALTHY: u64 = 7;

fn state_number(seen: Seen) -> u64 {
    match seen {
        Seen::Fine => HEALTHY,
        Seen::Degraded => DEGRADED,
        Seen::Faulted => FAULTED,
        Seen::Removed => REMOVED,
        Seen::Cut => CANNOT_OPEN,
    }
}

/// The state of a leaf of a pool, as OpenZFS numbers it.
pub(super) fn state_of(pool: &Pool, guid: u64) -> u64 {
    let (root, tree) = (pool.config().vdev_tree, pool.store().tree());
    let leaf = tree.leaf_by_guid(guid).and_then(|at| tree.leaves().get(at));
    match (root.find(guid), leaf) {
        (Some(config), _) if config.offline => OFFLINE,
        (Some(config), _) if config.faulted => FAULTED,
        (_, Some(leaf)) if leaf.state.is_online() => state_number(leaf.verdict.get()),
        _ => CANNOT_OPEN,
    }
}

/// Whom something is told of, and to whom.
pub(super) struct Telling<'a> {
    pub(super) pool: &'a Pool,
    pub(super) events: &'a Events,
}

impl Telling<'_> {
    /// Something that concerns the pool as a whole.
    pub(super) fn pool(&self, class: &str, more: NvList) {
        let mut values = NvList::new();
        values.put_string("pool", self.pool.name());
        values.put_u64("pool_guid", self.pool.guid());
        values.put("pool_state", Value::I32(0));
        values.put("pool_context", Value::I32(0));
        more.pairs().iter().for_each(|pair| values.put(&pair.name, pair.value.clone()));
        self.events.post(class, values);
    }

    /// Something that is wrong with a leaf.
    fn report(&self, class: &str, leaf: &Leaf) {
        let mut values = of_leaf(&leaf.config);
        let counts = leaf.errors.get();
        values.put_u64("vdev_read_errors", counts.read);
        values.put_u64("vdev_write_errors", counts.write);
        values.put_u64("vdev_cksum_errors", counts.checksum);
        values.put_u64("parent_guid", leaf.top_guid);
        self.pool(class, values);
    }

    /// A leaf is slower than its siblings, or no longer so.
    fn slow(&self, news: &News) {
        let (class, slow) = match news {
            News::Slow(slow) => (events::DELAY, slow),
            News::Recovered(slow) => (events::VDEV_CLEAR, slow),
        };
        keeper::say(&told(self.pool.name(), news));
        let tree = self.pool.store().tree();
        let Some(leaf) = tree.leaf_by_guid(slow.guid).and_then(|at| tree.leaves().get(at)) else {
            return;
        };
        let nanos = |time: Duration| u64::try_from(time.as_nanos()).unwrap_or(u64::MAX);
        let mut values = of_leaf(&leaf.config);
        values.put_u64("parent_guid", leaf.top_guid);
        values.put_string("slow_what", slow.what.name());
        values.put_u64("zio_delay", nanos(slow.time));
        values.put_u64("slow_siblings_delay", nanos(slow.siblings));
        self.pool(class, values);
    }

    /// A leaf is in state `now`, and was in state `before`.
    pub(super) fn state_changed(&self, leaf: &VdevConfig, before: u64, now: u64) {
        let mut values = NvList::new();
        values.put_u64("vdev_guid", leaf.guid);
        values.put_u64("vdev_state", now);
        if let Some(path) = &leaf.path {
            values.put_string("vdev_path", path);
        }
        values.put_u64("vdev_laststate", before);
        self.pool(events::STATE_CHANGE, values);
    }
}

/// What the log says of a device that is slow, or no longer so.
fn told(pool: &str, news: &News) -> String {
    match news {
        News::Slow(slow) => format!("pool '{pool}': '{}' is slow: {slow}", slow.name),
        News::Recovered(slow) => format!("pool '{pool}': '{}' keeps up again", slow.name),
    }
}

fn of_leaf(leaf: &VdevConfig) -> NvList {
    let mut values = NvList::new();
    values.put_u64("vdev_guid", leaf.guid);
    values.put_string("vdev_type", leaf.kind.name());
    if let Some(path) = &leaf.path {
        values.put_string("vdev_path", path);
    }
    values
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn old_errors_are_forgotten() {
        let mut recent = Recent::default();
        let start = rt::time::now();
        let at = |seconds| start + Duration::from_secs(seconds);
        assert_eq!(recent.add(at(0), 3), 3);
        assert_eq!(recent.add(at(0), 2), 5);
        assert_eq!(recent.add(at(300), 4), 9);
        assert_eq!(recent.add(at(599), 0), 9);
        assert_eq!((recent.add(at(601), 0), recent.0.len()), (4, 1));
        assert_eq!(recent.add(at(2000), 0), 0);
    }

    #[test]
    fn slow_devices_are_told_of() {
        let slow = slow::Slow {
            guid: 1,
            name: "/dev/sdc".into(),
            what: slow::What::Writes,
            count: 60,
            time: Duration::from_millis(2_300),
            siblings: Duration::from_micros(450),
            since: Duration::ZERO,
            sits_out: false,
        };
        assert_eq!(
            told("tank", &News::Slow(slow.clone())),
            "pool 'tank': '/dev/sdc' is slow: writes take 2300ms, those of its siblings 450us"
        );
        let recovered = told("tank", &News::Recovered(slow));
        assert_eq!(recovered, "pool 'tank': '/dev/sdc' keeps up again");
    }
}
