//! Pools that this process holds: opened once, for all its commands, until they are exported or it ends.
//!
//! The one idea: a command asks for a pool by name and gets a session, and does not see whether the pool was
//! opened for it alone or is held. What a held pool's session changed is on disk when it ends, as ever; only the
//! pool stays open.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::path::PathBuf;
use std::time::Duration;

use format::NvList;
use format::config::VdevConfig;
use fs::FsError;
use pool::devices::FoundPool;
use pool::{Pool, PoolError};
use rt::sync::atomic::{AtomicBool, Ordering};
use rt::sync::{Arc, Mutex, Weak};
use rt::time::Instant;

use super::Here;
use super::disks;
use super::errand::{self, Noted};
use super::keeper;
use super::located::Located;
use super::lookout::{self, Lookout, Telling};
use super::opening::{For, open};
use super::places::Places;
use super::session::Session;
use super::sighting::Sighting;
use super::standins::Standins;
use super::systems::{System, Systems};
use crate::events::{self, Events, Heard, Query};
use crate::state::Known;
use crate::{Doing, Error, Result, Why};

pub use self::closing::Ending;
use self::turns::{Turn, Turns};

mod closing;
mod turns;

/// How long an export waits for commands that have the pool in use.
const PATIENCE: Duration = Duration::from_secs(5);
/// How often it looks.
const LOOK: Duration = Duration::from_millis(20);
/// How long whoever follows events hears nothing, at most.
const SILENCE: Duration = Duration::from_millis(500);

/// One of them, with what there is to know of it.
#[derive(Clone)]
struct One {
    pool: Arc<Pool>,
    sighting: Sighting,
    known: Option<Known>,
    systems: Systems,
    /// When it was opened, and its logs were worked off.
    since: Instant,
    /// Since when it has lost nothing, in milliseconds since 1970: with the first of the servers that held it one after
    /// the other and closed it in order. It stays the same over all of them.
    kept_since_ms: u64,
    /// How long before `since` that was.
    before: Duration,
}

/// All of them, by name.
#[derive(Default)]
pub struct Held {
    pools: Mutex<BTreeMap<String, One>>,
    /// Who brings a pool, takes it away or changes its disks.
    turns: Turns,
    ending: AtomicBool,
    events: Events,
    lookout: Arc<Lookout>,
    standins: Standins,
    /// Those whose timer has run out, and that are being synced for it.
    syncing: Mutex<BTreeSet<String>>,
    /// Those that come or go: a command opens or exports them, or they are closed.
    passing: Mutex<Vec<Weak<Pool>>>,
    /// What is mounted of them, if this process mounts file systems where their properties say.
    places: Option<Places>,
}

impl fmt::Debug for Held {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_set().entries(self.names()).finish()
    }
}

impl Held {
    /// None yet; their file systems will be mounted where their properties say.
    #[must_use]
    pub fn mounting() -> Held {
        Held { places: Some(Places::default()), ..Held::default() }
    }

    pub(super) fn places(&self) -> Option<&Places> {
        self.places.as_ref()
    }

    /// Their names.
    #[must_use]
    pub fn names(&self) -> Vec<String> {
        self.pools.lock().keys().cloned().collect()
    }

    /// One of them.
    #[must_use]
    pub fn pool(&self, name: &str) -> Option<Arc<Pool>> {
        self.pools.lock().get(name).map(|one| one.pool.clone())
    }

    /// Is the pool of this guid one of them?
    pub(super) fn has(&self, guid: u64) -> bool {
        self.pools.lock().values().any(|one| one.pool.guid() == guid)
    }

    /// A file system of one of them; `None`: there is no such pool.
    ///
    /// # Errors
    /// There is no such file system, or it cannot be read.
    pub fn system(&self, name: &str) -> Option<std::result::Result<Arc<System>, FsError>> {
        let pool = name.split(['/', '@']).next().unwrap_or_default();
        let (pool, systems) = {
            let pools = self.pools.lock();
            let one = pools.get(pool)?;
            (one.pool.clone(), one.systems.clone())
        };
        Some(systems.get(&pool, name))
    }

    /// How long nothing of one of them can have been lost: since what was in its logs is in its files, by this server
    /// or one before it that has closed it in order. Nothing, if it is not held.
    pub fn held_for(&self, pool: &str) -> Duration {
        self.pools.lock().get(pool).map_or(Duration::ZERO, One::held_for)
    }

    /// Since when that is, in milliseconds since 1970: over servers that follow each other in order always the same.
    /// 0, if it is not held.
    pub fn kept_since(&self, pool: &str) -> u64 {
        self.pools.lock().get(pool).map_or(0, |one| one.kept_since_ms)
    }

    /// Who holds them is about to close them: commands that only wait need not.
    pub fn end(&self) {
        self.ending.store(true, Ordering::Release);
    }

    /// Are they about to be closed?
    pub fn is_ending(&self) -> bool {
        self.ending.load(Ordering::Acquire)
    }

    /// What has happened to them.
    #[must_use]
    pub fn events(&self) -> &Events {
        &self.events
    }

    /// Looks at all of them, and tells what has changed since the last look; devices that failed get others in their
    /// place.
    pub fn look(self: &Arc<Self>) {
        for pool in self.look_around() {
            self.standins.look(self, &pool);
        }
    }

    /// Looks at all of them, and tells what has changed since the last look.
    fn look_around(&self) -> Vec<Arc<Pool>> {
        let asked: Vec<_> = {
            let pools: Vec<_> = self.pools.lock().values().cloned().collect();
            pools
                .iter()
                .filter_map(|one| self.lookout.ask(&one.pool, &one.sighting.paths()))
                .collect()
        };
        // Meanwhile nobody here has a pool: what is to be exported is.
        self.lookout.wait_for(&asked);
        let pools: Vec<_> = self.pools.lock().values().cloned().collect();
        for one in &pools {
            self.lookout.look(&one.pool, &one.sighting.paths(), &self.events);
        }
        pools.into_iter().map(|one| one.pool).collect()
    }

    /// Where devices of a pool were found, by guid: leaves, spares and caches.
    pub(super) fn paths(&self, name: &str) -> BTreeMap<u64, PathBuf> {
        let located = self.located(name);
        located.map(|located| located.sighting.paths()).unwrap_or_default()
    }

    /// Where leaves of a pool were found, by guid, as far as that is a path of their own.
    pub(super) fn leaf_paths(&self, name: &str) -> BTreeMap<u64, PathBuf> {
        let located = self.located(name);
        located.map(|located| located.sighting.leaf_paths()).unwrap_or_default()
    }

    /// What has been done about devices.
    pub(super) fn standins(&self) -> &Standins {
        &self.standins
    }

    /// Another device is where a leaf was.
    pub(super) fn look_anew(&self, pool: &Pool, leaf: u64) {
        self.lookout.look_anew(pool, leaf);
    }

    /// Tells events until `sink` gives false.
    pub(super) fn tell_events(&self, query: &Query, sink: &mut dyn FnMut(Heard<'_>) -> bool) {
        drop(self.look_around());
        let (mut last, mut patience) = (0, Duration::ZERO);
        loop {
            for event in self.events.wait_after(last, patience) {
                last = event.number;
                let wanted = query.pool.as_ref().is_none_or(|pool| event.pool() == *pool);
                if wanted && !sink(Heard::Event(&event)) {
                    return;
                }
            }
            if !query.follow || self.is_ending() || !sink(Heard::Silence) {
                return;
            }
            patience = SILENCE;
        }
    }

    /// Tells that something of `class` has happened to a pool.
    pub(super) fn tell(&self, pool: &Pool, class: &str) {
        Telling { pool, events: &self.events }.pool(class, NvList::new());
    }

    /// Tells that something of `class` has happened to a leaf of a pool.
    pub(super) fn tell_leaf(&self, pool: &Pool, class: &str, leaf: &VdevConfig) {
        Telling { pool, events: &self.events }.pool(class, disks::leaf_values(leaf));
    }

    /// Tells that a leaf of a pool, which was in state `before`, is in another one, if it is.
    pub(super) fn tell_state(&self, pool: &Pool, leaf: &VdevConfig, before: u64) {
        let now = lookout::state_of(pool, leaf.guid);
        if now != before {
            Telling { pool, events: &self.events }.state_changed(leaf, before, now);
        }
    }

    /// The devices of a pool have changed: looks at these anew.
    pub(super) fn look_for_devices(&self, name: &str, places: Vec<PathBuf>) {
        let there: Vec<_> = places.into_iter().filter(|path| path.exists()).collect();
        let Ok(scan) = pool::devices::scan(&there) else { return };
        let mut pools = self.pools.lock();
        let Some(one) = pools.get_mut(name) else { return };
        let Some(mut now) = Sighting::of(scan, one.pool.guid()) else { return };
        let Some(FoundPool { members, .. }) = now.found_mut() else { return };
        let (tree, before) = (one.pool.config().vdev_tree, &one.sighting.found().members);
        for member in before.iter().filter(|member| tree.find(member.guid).is_some()) {
            // One that is away now is known by where it was.
            if !members.iter().any(|other| other.guid == member.guid) {
                members.push(member.clone());
            }
        }
        one.sighting = now;
    }

    /// Tells of a command that has gone into a pool's history.
    pub(super) fn tell_command(&self, pool: &Pool, command: &str, host: &str) {
        let mut values = NvList::new();
        values.put_string("history_hostname", host);
        values.put_string("history_command", command);
        values.put_u64("history_time", rt::time::wall_clock().as_secs());
        Telling { pool, events: &self.events }.pool(events::HISTORY, values);
    }

    /// Forgets errors of a leaf of a pool, or of all its leaves.
    pub(super) fn clear(&self, pool: &Pool, leaf: Option<u64>) {
        self.lookout.clear(pool, leaf, &self.events);
    }

    /// A pool comes, goes and changes its disks in somebody's turn.
    pub(super) fn turns(&self) -> &Turns {
        &self.turns
    }

    pub(super) fn located(&self, name: &str) -> Option<Located> {
        let One { pool, sighting, known, .. } = self.pools.lock().get(name)?.clone();
        Some(Located::held(pool, sighting, known))
    }

    /// Takes in a pool that a session has opened, and that has lost nothing since then; not while all are closed.
    fn take_in(self: &Arc<Self>, session: Session, kept_since_ms: u64) -> Result<()> {
        let Session { pool, sighting, known, .. } = session;
        let name = pool.name().to_string();
        // Of what cannot be read nothing is told.
        drop(pool.know_spares());
        if pool.read_only_reason().is_none() {
            super::scrub::work(&pool, self);
        }
        let (systems, since) = (Systems::default(), rt::time::now());
        let before = rt::time::wall_clock().saturating_sub(Duration::from_millis(kept_since_ms));
        let one = One { pool, sighting, known, systems, since, kept_since_ms, before };
        let mut pools = self.pools.lock();
        // Under this lock, so that it is refused or else closed with the others.
        if self.turns.are_over() {
            return Err(Error::open(name, Why::PoolBusy));
        }
        pools.insert(name, one);
        Ok(())
    }

    /// Gives a pool up, once nobody else has it in use, and leaves it to the caller to close.
    pub(super) fn give_up(&self, name: &str, doing: &Doing) -> Result<()> {
        let start = rt::time::now();
        loop {
            {
                let mut pools = self.pools.lock();
                let Some(one) = pools.get(name) else { return Ok(()) };
                one.systems.forget();
                one.pool.scan_hush(true);
                // This list, and the session that is to end it.
                if Arc::strong_count(&one.pool) <= 2 {
                    self.lookout.forget(one.pool.guid());
                    self.standins.forget(one.pool.guid());
                    // In this order, so that whoever does not want to wait finds it in one of both.
                    self.passes(&one.pool);
                    pools.remove(name);
                    return Ok(());
                }
            }
            if start.elapsed() > PATIENCE {
                self.pool(name).iter().for_each(|pool| pool.scan_hush(false));
                return Err(Error::cannot(doing.clone(), Why::PoolBusy));
            }
            rt::time::sleep(LOOK);
        }
    }

    /// Has what was changed put on stable storage, each pool by a thread of its own: one that is suspended holds up no
    /// other. `failed` hears what could not be, by name.
    pub fn sync(self: &Arc<Self>, failed: impl Fn(&str, &PoolError) + Clone + Send + 'static) {
        for name in self.names() {
            let Some(pool) = self.pool(&name).filter(|pool| pool.has_changes()) else { continue };
            if !self.syncing.lock().insert(name.clone()) {
                continue;
            }
            let (held, failed) = (self.clone(), failed.clone());
            let noted = {
                let name = name.clone();
                Noted::until(move || _ = held.syncing.lock().remove(&name))
            };
            let which = name.clone();
            let sync = move || {
                let _noted = noted;
                if let Err(error) = pool.sync() {
                    failed(&which, &error);
                }
                drop(pool);
            };
            if let Err(error) = errand::start("txg-timer", sync) {
                keeper::say(&format!("'{name}': what was changed is put on disk later: {error}"));
            }
        }
    }
}

impl One {
    fn held_for(&self) -> Duration {
        self.before + self.since.elapsed()
    }
}

impl Here {
    /// What this process holds.
    ///
    /// # Errors
    /// It holds nothing, since it is no server.
    pub(super) fn held(&self) -> Result<&Held> {
        let why = "no server is running: events are kept by 'thumper serve', as long as it runs";
        self.held.as_deref().ok_or(Error::NoServer(why))
    }

    /// The turn of one who brings a pool, takes it away or changes its disks, if pools are held here.
    pub(super) fn turn(&self, pool: &str) -> Option<Turn<'_>> {
        self.held.as_ref().map(|held| held.turns.of(pool))
    }

    /// The names of the pools that are remembered, or held, whatever has become of the list.
    pub(super) fn pool_names(&self) -> Result<BTreeSet<String>> {
        let listed = self.state.load()?.pools.into_iter().map(|known| known.name);
        Ok(listed.chain(self.held.iter().flat_map(|held| held.names())).collect())
    }

    /// Is a pool of this name held, that of another guid?
    pub(super) fn holds_another(&self, name: &str, guid: Option<u64>) -> bool {
        let held = self.held.as_ref().and_then(|held| held.pool(name));
        held.is_some_and(|pool| Some(pool.guid()) != guid)
    }

    /// Tells that something of `class` has happened to a pool, if it is held.
    pub(super) fn tell(&self, name: &str, class: &str) {
        let Some(held) = &self.held else { return };
        if let Some(pool) = held.pool(name) {
            held.tell(&pool, class);
        }
    }

    /// Opens a remembered pool to be held; nothing if it is, or if this process holds none. Why it can only be
    /// read, if so.
    pub(super) fn hold(&self, name: &str) -> Result<Option<String>> {
        let Some(held) = &self.held else { return Ok(None) };
        if held.pool(name).is_some() {
            return Ok(None);
        }
        let (session, reason) = match open(self, name, &[], For::Writing) {
            Ok(session) => (session, None),
            Err(error) => match error.why() {
                Some(Why::ReadOnly(reason)) => {
                    (open(self, name, &[], For::Reading)?, Some(reason.clone()))
                }
                _ => return Err(error),
            },
        };
        let kept_since_ms = self.kept_since(&session)?;
        held.standins().note_in(&self.state);
        held.take_in(session, kept_since_ms)?;
        Ok(reason)
    }

    /// Since when a pool has lost nothing: from now on, if somebody has changed it since it was closed in order. That it
    /// was is forgotten: from here on it is not closed.
    fn kept_since(&self, session: &Session) -> Result<u64> {
        let now = rt::time::wall_clock().as_millis() as u64;
        let Some((guid, closed)) = session.known.as_ref().and_then(|k| Some((k.guid, k.closed?)))
        else {
            return Ok(now);
        };
        self.state.change(|state| state.forget_closed(guid))?;
        let newest = session.found().uberblocks.first();
        let is_that = newest.is_some_and(|newest| newest.txg.get() == closed.txg);
        Ok(if is_that { closed.kept_since_ms } else { now })
    }
}

#[cfg(test)]
pub(super) mod tests {
    use std::panic::{AssertUnwindSafe, catch_unwind};

    use format::config::VdevKind;
    use fs::{NewObject, Who, mode};
    use testkit::{fresh_images, temp_dir};

    use super::*;
    use crate::layout::{Class, Group, GroupKind, Layout};
    use crate::local::errand::refused;
    use crate::state::StateFile;
    use crate::{Engine, Local, pools};

    /// So long something may take that takes milliseconds.
    const SOON: Duration = Duration::from_secs(30);

    /// A pool that is held: a mirror of two disks, and a spare.
    pub(in crate::local) fn mirror_and_spare(
        held: &Arc<Held>,
        state: StateFile,
    ) -> (Arc<Pool>, testkit::Images) {
        let images = fresh_images(3, 64 << 20);
        let mut devices = images.disks();
        let spares = devices.split_off(2);
        let group = Group { kind: GroupKind::Mirror, class: Class::Normal, devices };
        let layout = Layout { groups: vec![group], spares, ..Layout::default() };
        let create = pools::Create { name: "tank".to_owned(), layout, ..Default::default() };
        let mut engine = Local::new(state).holding(held.clone());
        engine.pool_create(&create).expect("a pool");
        (held.pool("tank").expect("it is held"), images)
    }

    /// Is it so soon?
    pub(in crate::local) fn becomes(what: impl Fn() -> bool) -> bool {
        let start = rt::time::now();
        while !what() && start.elapsed() < SOON {
            rt::time::sleep(Duration::from_millis(1));
        }
        what()
    }

    /// Does `what` in a system that gives no threads; whoever does it is there afterwards.
    fn in_vain(what: impl Fn()) {
        let survived = catch_unwind(AssertUnwindSafe(|| refused::during(what)));
        assert!(survived.is_ok(), "whoever calls it is gone");
    }

    /// Seen red: the timer's thread died, and nothing was put on disk by time any more.
    #[test]
    fn a_timer_without_threads_puts_it_on_disk_later() {
        let (held, dir) = (Arc::new(Held::default()), temp_dir());
        let state = StateFile::new(dir.path().join("pools"));
        let (pool, _images) = mirror_and_spare(&held, state.clone());
        let system = held.system("tank").expect("it is held").expect("a file system");
        let new = NewObject::of(mode::FILE | 0o644, Who { uid: 0, gid: 0 });
        system.fs.create(system.fs.root(), b"file", &new).expect("a file");
        drop(system);
        let tick = || held.sync(|name, error| panic!("{name}: {error}"));
        in_vain(tick);
        assert!(pool.has_changes());
        tick();
        assert!(becomes(|| !pool.has_changes()), "the pool is passed over");
        drop(pool);
        assert_eq!(held.close(&state).len(), 0);
    }

    /// Seen red: the lookout's thread died, and no spare stood in for anything.
    #[test]
    fn a_lookout_without_threads_finds_a_spare_later() {
        let (held, dir) = (Arc::new(Held::default()), temp_dir());
        let state = StateFile::new(dir.path().join("pools"));
        let (pool, images) = mirror_and_spare(&held, state.clone());
        images.remove(0);
        in_vain(|| (0..3).for_each(|_| held.look()));
        let is_spared = || pool.config().vdev_tree.walk().any(|vdev| vdev.kind == VdevKind::Spare);
        assert!(!is_spared());
        let looks = || {
            held.look();
            is_spared()
        };
        assert!(becomes(looks), "no spare stands in");
        drop(pool);
        assert_eq!(held.close(&state).len(), 0);
    }
}
