//! An open pool for one command: found by name, on its devices, with what else is known of it.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use std::time::Duration;

use device::DeviceError;
use format::config::{PoolConfig, PoolState, VdevConfig};
use pool::devices::{Candidate, FoundPool, Member, Scan, Tree, VdevError, scan};
use pool::{Devices, OpenOptions, Pool, PoolError};
use rt::sync::Arc;

use super::disks::path_of;
use super::lifecycle::leaf_path;
use super::roots;
use super::{Held, Here, keeper, ours};
use crate::inuse::identity;
use crate::state::Known;
use crate::{Doing, Error, Result, Why, find, host};

/// What a pool is opened for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum For {
    /// Nothing is written.
    Reading,
    /// Changes. The devices are held until the session ends.
    Writing,
}

/// An open pool.
pub(crate) struct Session {
    /// The pool.
    pub(crate) pool: Arc<Pool>,
    /// Its devices as they were found.
    pub(super) scan: Arc<Scan>,
    /// Which of the scan's pools it is.
    pub(super) index: usize,
    /// What is remembered of it.
    pub(crate) known: Option<Known>,
    /// It stays open when the session ends.
    pub(super) held: bool,
    /// Who hears of what is done to it.
    pub(super) told: Option<Arc<Held>>,
}

/// How often a pool is looked at, if others write to it between a look and the locks on its devices.
const LOOKS_MAX: u32 = 16;

/// The pools and devices that a name may mean.
#[derive(Clone)]
pub(crate) struct Located {
    scan: Arc<Scan>,
    index: usize,
    known: Option<Known>,
    /// Where it was looked for, if that is not where it is remembered.
    places: Option<Vec<PathBuf>>,
    /// It is looked for to be imported.
    is_import: bool,
    /// Open it though another system had it last.
    forced: bool,
    /// Open it though log devices are missing: what is in intent logs on them is given up.
    without_logs: bool,
    /// It is open already, and stays so.
    held: Option<Arc<Pool>>,
}

impl Located {
    /// A pool of a scan of these places, to be imported.
    pub(crate) fn found_at(scan: Scan, index: usize, places: &[PathBuf], forced: bool) -> Located {
        Located {
            scan: Arc::new(scan),
            index,
            known: None,
            places: Some(places.to_vec()),
            is_import: true,
            forced,
            without_logs: false,
            held: None,
        }
    }

    /// What is in intent logs on log devices that are missing is given up, if that is wanted.
    pub(crate) fn giving_up_logs(self, wanted: bool) -> Located {
        Located { without_logs: wanted, ..self }
    }

    /// A pool that this process holds.
    pub(super) fn held(
        pool: Arc<Pool>,
        scan: Arc<Scan>,
        index: usize,
        known: Option<Known>,
    ) -> Located {
        let (places, held) = (None, Some(pool));
        Located {
            scan,
            index,
            known,
            places,
            is_import: false,
            forced: false,
            without_logs: false,
            held,
        }
    }

    /// The same pool as it is now: somebody has written to it since it was looked at.
    fn anew(self, here: &Here, name: &str) -> Result<Located> {
        let guid = self.found().map(FoundPool::guid);
        let (scan, known) = match &self.places {
            Some(places) => {
                let scan = find::look(places);
                let is_import = guid.filter(|_| self.is_import);
                let scan = match is_import {
                    Some(guid) => find::complete(scan, guid),
                    None => scan,
                };
                (scan, self.known)
            }
            None => {
                let known = here.state.load()?.pool(name).cloned();
                // It may have been exported, or its name be another's by now.
                let known = known.filter(|known| Some(known.guid) == guid);
                let known = known.ok_or_else(|| Error::open(name, Why::NoPool))?;
                (look_at(&known), Some(known))
            }
        };
        let index = scan.pools.iter().position(|pool| Some(pool.guid()) == guid);
        let index = index.ok_or_else(|| Error::open(name, Why::Unavailable))?;
        Ok(Located { scan: Arc::new(scan), index, known, ..self })
    }

    /// Is it open already?
    pub(crate) fn is_held(&self) -> bool {
        self.held.is_some()
    }

    /// Was it imported for reading only?
    pub(crate) fn is_read_only(&self) -> bool {
        self.known.as_ref().is_some_and(|known| known.readonly)
    }

    /// Why it is not ours any more though it is remembered, if so. What is held, only read, or was named by its place is
    /// not asked.
    pub(super) fn lost(&self, here: &Here) -> Result<Option<Why>> {
        let is_asked = self.places.is_none() && !self.is_held() && !self.is_read_only();
        let found = self.found().filter(|_| is_asked && self.known.is_some());
        found.map_or(Ok(None), |found| ours::lost(here, found))
    }

    /// The pool as it was found.
    pub(crate) fn found(&self) -> Option<&FoundPool> {
        self.scan.pools.get(self.index)
    }

    /// Takes a device away, as if it had died: named by its path, the end of that, or its guid. Is there one?
    pub(crate) fn without(&mut self, name: &str) -> bool {
        let pools = Arc::get_mut(&mut self.scan).map(|scan| &mut scan.pools);
        let Some(pool) = pools.and_then(|pools| pools.get_mut(self.index)) else { return false };
        let before = pool.members.len();
        pool.members.retain(|member| {
            let path = member.candidate.shown_path();
            !(path.is_some_and(|path| is_called(&path, name)) || Ok(member.guid) == name.parse())
        });
        pool.members.len() < before
    }

    /// Files and disks of its leaves, and of all spares and cache devices that were found, by guid.
    pub(super) fn devices(&self) -> BTreeMap<u64, PathBuf> {
        paths_of(&self.scan, self.index)
    }

    /// The files and disks of its leaves.
    pub(crate) fn paths(&self) -> Vec<PathBuf> {
        let members = self.found().into_iter().flat_map(|pool| &pool.members);
        members.filter_map(|member| member.candidate.path.clone()).collect()
    }
}

/// Files and disks of the leaves of a pool, and of all spares and cache devices that were found, by guid.
pub(super) fn paths_of(scan: &Scan, index: usize) -> BTreeMap<u64, PathBuf> {
    let named = |(guid, candidate): (u64, &Candidate)| Some((guid, candidate.path.clone()?));
    scan.candidates(index).filter_map(named).collect()
}

/// Is it the end of the path? Nothing is the end of every path, and names none.
fn is_called(path: &Path, name: &str) -> bool {
    let name = name.trim_start_matches("./");
    !name.is_empty() && path.ends_with(name)
}

/// Finds the devices of a pool: one that is held, remembered ones, or those in `places`.
pub(crate) fn locate(here: &Here, name: &str, places: &[PathBuf]) -> Result<Located> {
    let held = here.held.as_ref().filter(|_| here.rescue.is_none());
    match held.and_then(|held| held.located(name)) {
        Some(located) => Ok(located),
        None => locate_on_disk(here, name, places),
    }
}

/// Finds the devices of a pool as they are now, held or not.
pub(crate) fn locate_on_disk(here: &Here, name: &str, places: &[PathBuf]) -> Result<Located> {
    let mut located = locate_newest(here, name, places)?;
    let Some(rescue) = &here.rescue else { return Ok(located) };
    let scan = Arc::get_mut(&mut located.scan);
    let Some(found) = scan.and_then(|scan| scan.pools.get_mut(located.index)) else {
        return Ok(located);
    };
    if let Some(roots) = &rescue.roots {
        roots::take(here, found, roots, rescue.txg)?;
    }
    if let Some(txg) = rescue.txg {
        let first = found.uberblocks.last().map(|uberblock| uberblock.txg.get());
        found.uberblocks.retain(|uberblock| uberblock.txg.get() <= txg);
        if let (true, Some(first)) = (found.uberblocks.is_empty(), first) {
            let why =
                format!("the first txg that is left is {first}, not {txg} ('thumper rescue scan')");
            return Err(Error::cannot(Doing::Open(name.into()), Why::NotDone(why)));
        }
    }
    Ok(located)
}

fn locate_newest(here: &Here, name: &str, places: &[PathBuf]) -> Result<Located> {
    let no_pool = || Error::open(name, Why::NoPool);
    let state = here.state.load()?;
    if let Some(known) = state.pool(name)
        && places.is_empty()
    {
        let scan = look_at(known);
        let index = scan.pools.iter().position(|pool| pool.guid() == known.guid);
        let index = index.ok_or_else(|| Error::open(name, Why::Unavailable))?;
        let known = Some(known.clone());
        let found = Located::found_at(scan, index, &[], false);
        return Ok(Located { known, places: None, is_import: false, ..found });
    }
    if places.is_empty() {
        return Err(no_pool());
    }
    let scan = find::look(places);
    let guid = state.pool(name).map(|known| known.guid);
    let named = |pool: &FoundPool| match guid {
        Some(guid) => pool.guid() == guid,
        None => pool.name() == name && pool.config.state != PoolState::Destroyed,
    };
    let mut matching = scan.pools.iter().enumerate().filter(|(_, pool)| named(pool));
    let Some((index, _)) = matching.next() else { return Err(no_pool()) };
    if matching.next().is_some() {
        return Err(Error::open(name, Why::Ambiguous));
    }
    let known = state.pool(name).cloned();
    Ok(Located { known, is_import: false, ..Located::found_at(scan, index, places, false) })
}

/// Looks where a pool is remembered to be.
fn look_at(known: &Known) -> Scan {
    let there: Vec<_> = known.paths.iter().filter(|path| path.exists()).cloned().collect();
    find::complete(scan(&there).unwrap_or_default(), known.guid)
}

/// The devices of a pool, to be read as it is.
pub(crate) fn as_it_is_on(found: &FoundPool, tree: Tree) -> Devices {
    let labels = PoolConfig { vdev_tree: found.root.clone(), ..found.config.clone() };
    Devices::Ruins(Arc::new(tree), Box::new(labels))
}

/// Opens the pool of a name.
pub(crate) fn open(here: &Here, name: &str, places: &[PathBuf], mode: For) -> Result<Session> {
    let located = locate(here, name, places)?;
    open_located(here, name, located, mode, Doing::Open(name.into()))
}

/// Opens a pool that was located, under the name given.
pub(crate) fn open_located(
    here: &Here,
    name: &str,
    mut located: Located,
    mode: For,
    doing: Doing,
) -> Result<Session> {
    for _ in 0..LOOKS_MAX {
        match open_as_found(here, name, located.clone(), mode, doing.clone())? {
            Some(session) => return Ok(session),
            None => located = located.anew(here, name)?,
        }
    }
    Err(Error::cannot(doing, Why::Held))
}

/// Opens a pool as it was found; nothing, if it was written to since then.
fn open_as_found(
    here: &Here,
    name: &str,
    located: Located,
    mode: For,
    doing: Doing,
) -> Result<Option<Session>> {
    let Located { scan, index, known, places, forced, without_logs, held, .. } = located;
    let cannot = |why: Why| Error::cannot(doing.clone(), why);
    if let Some(pool) = held {
        return match pool.read_only_reason().filter(|_| mode == For::Writing) {
            Some(reason) => Err(cannot(Why::ReadOnly(reason.to_string()))),
            None => {
                let told = here.held.clone();
                Ok(Some(Session { pool, scan, index, known, held: true, told }))
            }
        };
    }
    if here.rescue.is_some() && mode == For::Writing {
        return Err(cannot(Why::ReadOnly("to rescue is to read".into())));
    }
    let host_id = u64::from(host::hostid(&here.state)?);
    let found = scan.pools.get(index).ok_or_else(|| cannot(Why::NoPool))?;
    let readonly = known.as_ref().is_some_and(|known| known.readonly);
    if mode == For::Writing && readonly {
        return Err(cannot(Why::ReadOnly("it was imported with readonly=on".into())));
    }
    let not_ours = match (&known, &places) {
        _ if mode == For::Reading || forced => None,
        (Some(_), None) => ours::lost(here, found)?,
        // Whoever says where it is means that one, let go or not, but does not know who has it.
        _ => ours::foreign(here, found)?,
    };
    let apart = (mode == For::Writing).then(|| ours::apart(known.as_ref(), found)).flatten();
    if let Some(why) = not_ours.or(apart) {
        return Err(cannot(why));
    }
    let is_gone = |root: &VdevConfig, there: &dyn Fn(u64) -> bool| {
        let tree = crate::health::tree(root, false, &mut |leaf| crate::health::Known {
            path: there(leaf.guid).then(PathBuf::new),
            ..Default::default()
        });
        tree.state == crate::pools::State::Unavail
    };
    let devices = found.devices();
    let is_there = |guid| devices.contains_key(&guid);
    // A top-level vdev without a label may have been removed: only the pool itself knows.
    let may_be_removed = !found.missing_tops().is_empty();
    let gone = is_gone(&found.root, &is_there);
    let as_it_is = here.rescue.is_some();
    if gone && !may_be_removed && !as_it_is {
        return Err(cannot(Why::Unavailable));
    }
    // Devices without a label that can be read may hold what is needed, or nothing at all.
    let is_member = |guid| found.members.iter().any(|m| m.guid == guid);
    let hangs_on_suspects = is_gone(&found.root, &is_member);
    let options = OpenOptions {
        workers: 0,
        host_id,
        host_name: host::hostname(),
        new_name: Some(name.to_string()),
        memory: Some(here.memory.clone()),
    };
    let devices = match mode {
        For::Reading => found.open_tree_in(&here.memory).map(|tree| match as_it_is {
            false => Devices::ReadOnly(Arc::new(tree)),
            true => as_it_is_on(found, tree),
        }),
        For::Writing => {
            let devices = if without_logs { Devices::WithoutLogs } else { Devices::Writable };
            found.open_write_tree_in(&found.root, Some(&here.memory)).map(devices)
        }
    };
    let devices = match devices {
        Err(VdevError::Changed { .. } | VdevError::Written { .. }) => return Ok(None),
        devices => devices.map_err(|error| pool_error(doing.clone(), error.into()))?,
    };
    let pool = Pool::open(devices, &found.uberblocks, &options);
    let pool = pool.map_err(|error| match hangs_on_suspects && !as_it_is {
        true => cannot(Why::Unavailable),
        false => pool_error(doing.clone(), error),
    })?;
    if gone && !as_it_is && is_gone(&pool.config().vdev_tree, &is_there) {
        return Err(cannot(Why::Unavailable));
    }
    if mode == For::Writing
        && let Some(reason) = pool.read_only_reason()
    {
        return Err(cannot(Why::ReadOnly(reason.to_string())));
    }
    if mode == For::Writing {
        // What is left keeps its data set read-only, and no other.
        let left = fs::replay_logs(&pool).map_err(|error| {
            cannot(Why::NotDone(format!("its intent logs cannot be replayed: {error}")))
        })?;
        left.iter().for_each(|left| keeper::say(&left.to_string()));
        pool.finish_replacements().map_err(|error| pool_error(doing.clone(), error))?;
        pool.note_paths(&moved(&pool.config().vdev_tree, found));
        here.held.iter().for_each(|held| held.passes(&pool));
        keeper::keep(&pool).map_err(|error| pool_error(doing, error))?;
    }
    Ok(Some(Session { pool, scan, index, known, held: false, told: here.held.clone() }))
}

/// Where the leaves of a pool were found, by guid. One that is a partition of an image has no path of its own.
pub(super) fn leaf_paths(found: &FoundPool) -> BTreeMap<u64, PathBuf> {
    let path = |member: &Member| {
        let whole = member.candidate.partition.is_none();
        Some((member.guid, member.candidate.path.clone().filter(|_| whole)?))
    };
    found.members.iter().filter_map(path).collect()
}

/// Where leaves are now, by guid, if what the pool says of them leads elsewhere or nowhere.
fn moved(root: &VdevConfig, found: &FoundPool) -> BTreeMap<u64, Vec<u8>> {
    let same_file = |a: &Path, b: &Path| identity(a).is_ok_and(|a| identity(b).ok() == Some(a));
    let mut moved = leaf_paths(found);
    moved.retain(|guid, path| {
        root.find(*guid).is_some_and(|leaf| path.exists() && !same_file(&path_of(leaf), path))
    });
    moved.into_iter().map(|(guid, path)| (guid, leaf_path(&path))).collect()
}

/// How long a command that is done goes on with what is left to be freed: on image files that is some
/// million blocks.
const FREEING_MAX: Duration = Duration::from_secs(1);

/// The most that is kept in memory of what is written to one device, in bytes.
const MEMORY_MAX: usize = 64 << 20;

impl Session {
    /// The same pool once more, on devices that keep in memory what is written: nothing that is done to
    /// it reaches a disk.
    pub(crate) fn in_memory(&self, here: &Here, name: &str) -> Result<Arc<Pool>> {
        let doing = Doing::Open(name.into());
        let cannot = |why: Why| Error::cannot(doing.clone(), why);
        let found = self.found().ok_or_else(|| cannot(Why::NoPool))?;
        let options = OpenOptions {
            workers: 0,
            host_id: u64::from(host::hostid(&here.state)?),
            host_name: host::hostname(),
            new_name: Some(name.to_string()),
            memory: Some(here.memory.clone()),
        };
        let tree = found.open_memory_tree(&found.root, MEMORY_MAX).map_err(PoolError::from);
        let pool = tree
            .and_then(|tree| Pool::open(Devices::InMemory(tree), &found.uberblocks, &options))
            .map_err(|error| pool_error(doing.clone(), error))?;
        match pool.read_only_reason() {
            Some(reason) => {
                let why = format!("its intent logs cannot be replayed: {reason}");
                Err(cannot(Why::NotDone(why)))
            }
            None => Ok(pool),
        }
    }

    /// Notes a command in the history of the pool.
    pub(super) fn note(&self, command: &str) -> std::result::Result<(), PoolError> {
        if command.is_empty() {
            return Ok(());
        }
        let now = rt::time::wall_clock().as_secs();
        let (who, host) = (rustix::process::getuid().as_raw().into(), host::hostname());
        self.pool.note(pool::history::command(now, command, who, &host))?;
        if let Some(told) = &self.told {
            told.tell_command(&self.pool, pool::history::kept(command), &host);
        }
        Ok(())
    }

    /// The pool as it was found.
    pub(crate) fn found(&self) -> Option<&FoundPool> {
        self.scan.pools.get(self.index)
    }

    /// What leaves, spares and cache devices are called, by guid.
    pub(crate) fn paths(&self) -> BTreeMap<u64, PathBuf> {
        let named = self.candidates().map(|(guid, c)| Some((guid, c.shown_path()?)));
        named.flatten().collect()
    }

    /// As [`Session::paths`], of those whose names are there. The devices are not asked.
    pub(crate) fn paths_there(&self) -> BTreeMap<u64, PathBuf> {
        let there = |c: &Candidate| c.path.as_ref().is_some_and(|path| path.exists());
        let there = self.candidates().filter(|(_, candidate)| there(candidate));
        there.filter_map(|(guid, c)| Some((guid, c.shown_path()?))).collect()
    }

    /// The files and disks on which they are; of spares and cache devices those of this pool.
    pub(crate) fn places(&self) -> Vec<PathBuf> {
        let listed = [self.pool.spares(), self.pool.caches()].into_iter().flatten().flatten();
        let listed: BTreeSet<u64> = listed.map(|aux| aux.guid).collect();
        let is_other = |guid| {
            self.scan.aux.iter().any(|aux| aux.label.guid == guid && !listed.contains(&guid))
        };
        let ours = self.candidates().filter(|(guid, _)| !is_other(*guid));
        let paths: BTreeSet<_> = ours.filter_map(|(_, c)| c.path.clone()).collect();
        paths.into_iter().collect()
    }

    fn candidates(&self) -> impl Iterator<Item = (u64, &Candidate)> {
        self.scan.candidates(self.index)
    }

    /// The devices of the pool have changed: these may be new.
    pub(super) fn remember(&self, here: &Here, new: &[PathBuf]) -> Result<()> {
        let absolute = |path: &PathBuf| std::path::absolute(path).unwrap_or_else(|_| path.clone());
        let new: Vec<PathBuf> = new.iter().map(absolute).collect();
        if self.known.is_some() && !new.is_empty() {
            self.change_known(here, |paths| {
                paths.retain(|path| !new.contains(path));
                paths.extend(new.iter().cloned());
            })?;
        }
        if let Some(held) = here.held.as_ref().filter(|_| self.held) {
            let places = self.places().into_iter().chain(new).collect();
            held.look_for_devices(self.pool.name(), places);
        }
        Ok(())
    }

    /// A vdev has left the pool: its devices are anybody's, also where they are away.
    pub(super) fn forget(&self, here: &Here, gone: &VdevConfig) -> Result<()> {
        let mut paths = self.paths();
        let path = |leaf: &VdevConfig| paths.remove(&leaf.guid).unwrap_or_else(|| path_of(leaf));
        let gone: Vec<_> = gone.leaves().map(path).collect();
        match self.known {
            Some(_) => self.change_known(here, |paths| paths.retain(|path| !gone.contains(path))),
            None => Ok(()),
        }
    }

    /// Changes the paths that are remembered, as they are now: what the session was opened with may be old.
    fn change_known(&self, here: &Here, change: impl FnOnce(&mut Vec<PathBuf>)) -> Result<()> {
        let guid = self.pool.guid();
        here.state.change(|state| {
            if let Some(known) = state.pools.iter_mut().find(|known| known.guid == guid) {
                change(&mut known.paths);
            }
        })
    }

    /// Ends the session: what was changed is on disk.
    pub(crate) fn close(self, doing: Doing) -> Result<()> {
        keeper::say_unlabelled(&self.pool);
        if self.held {
            return self.sync().map_err(|error| pool_error(doing, error));
        }
        self.close_pool(doing)
    }

    fn sync(&self) -> std::result::Result<(), PoolError> {
        match self.pool.read_only_reason() {
            None => self.pool.sync().map(drop),
            Some(_) => Ok(()),
        }
    }

    /// Closes the pool, held or not. What is still to be freed is worked off for a while; the rest is left
    /// to whoever has the pool open for writing next.
    pub(super) fn close_pool(self, doing: Doing) -> Result<()> {
        let start = rt::time::now();
        let freed = match self.pool.read_only_reason() {
            None => self.pool.finish_freeing(|_| start.elapsed() < FREEING_MAX),
            Some(_) => Ok(()),
        };
        freed.and_then(|()| self.pool.close()).map_err(|error| pool_error(doing, error))
    }
}

/// An error of the pool in the words of what was to be done.
pub(crate) fn pool_error(doing: Doing, error: PoolError) -> Error {
    let why = match error {
        PoolError::NoDataset { name } => return Error::open(name, Why::NoDataset),
        PoolError::Exists { .. } => Why::DatasetExists,
        PoolError::NoParent { .. } => Why::NoParent,
        PoolError::ReadOnly { reason, .. } => Why::ReadOnly(reason),
        PoolError::Unopenable { reason, .. } => Why::Damaged(reason),
        PoolError::NoSpace { .. } => Why::NoSpace,
        PoolError::QuotaExceeded { .. } => Why::Quota,
        PoolError::Held { name } => {
            return Error::cannot(Doing::DestroySnapshot(name), Why::DatasetBusy);
        }
        PoolError::NoClone { .. } => Why::NoClone,
        PoolError::Conflict { snapshot, origin } => Why::ConflictingSnapshot { snapshot, origin },
        PoolError::Vdev(VdevError::Device(DeviceError::Busy { .. })) => Why::Held,
        other => Why::Damaged(other.to_string()),
    };
    Error::cannot(doing, why)
}

#[cfg(test)]
mod tests;
