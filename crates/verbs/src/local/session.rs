//! An open pool for one command, with what else is known of it, and the end of that.

use std::collections::{BTreeMap, BTreeSet};
use std::path::PathBuf;
use std::time::Duration;

use device::DeviceError;
use format::config::VdevConfig;
use pool::devices::{Candidate, FoundPool, VdevError};
use pool::{Devices, Pool, PoolError};
use rt::sync::Arc;

use super::disks::path_of;
use super::sighting::Sighting;
use super::{Held, Here, keeper};
use crate::state::Known;
use crate::{Doing, Error, Result, Why, host};

/// How long a command that is done goes on with what is left to be freed: on image files that is some
/// million blocks.
const FREEING_MAX: Duration = Duration::from_secs(1);

/// The most that is kept in memory of what is written to one device, in bytes.
const MEMORY_MAX: usize = 64 << 20;

/// An open pool.
pub(crate) struct Session {
    /// The pool.
    pub(crate) pool: Arc<Pool>,
    /// Its devices as they were found.
    pub(super) sighting: Sighting,
    /// What is remembered of it.
    pub(crate) known: Option<Known>,
    /// It stays open when the session ends.
    pub(super) held: bool,
    /// Who hears of what is done to it.
    pub(super) told: Option<Arc<Held>>,
}

impl Session {
    /// The same pool once more, on devices that keep in memory what is written: nothing that is done to
    /// it reaches a disk.
    pub(crate) fn in_memory(&self, here: &Here, name: &str) -> Result<Arc<Pool>> {
        let doing = Doing::Open(name.into());
        let cannot = |why: Why| Error::cannot(doing.clone(), why);
        let (found, options) = (self.found(), here.options(name)?);
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
    pub(crate) fn found(&self) -> &FoundPool {
        self.sighting.found()
    }

    /// What leaves, spares and cache devices are called, by guid.
    pub(crate) fn paths(&self) -> BTreeMap<u64, PathBuf> {
        let named = self.sighting.candidates().map(|(guid, c)| Some((guid, c.shown_path()?)));
        named.flatten().collect()
    }

    /// As [`Session::paths`], of those whose names are there. The devices are not asked.
    pub(crate) fn paths_there(&self) -> BTreeMap<u64, PathBuf> {
        let there = |c: &Candidate| c.path.as_ref().is_some_and(|path| path.exists());
        let there = self.sighting.candidates().filter(|(_, candidate)| there(candidate));
        there.filter_map(|(guid, c)| Some((guid, c.shown_path()?))).collect()
    }

    /// The files and disks on which they are; of spares and cache devices those of this pool.
    pub(crate) fn places(&self) -> Vec<PathBuf> {
        let listed = [self.pool.spares(), self.pool.caches()].into_iter().flatten().flatten();
        let listed: BTreeSet<u64> = listed.map(|aux| aux.guid).collect();
        let is_other = |guid| self.sighting.is_aux(guid) && !listed.contains(&guid);
        let ours = self.sighting.candidates().filter(|(guid, _)| !is_other(*guid));
        let paths: BTreeSet<_> = ours.filter_map(|(_, c)| c.path.clone()).collect();
        paths.into_iter().collect()
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

    /// Has what was changed put on disk.
    pub(super) fn sync(&self) -> std::result::Result<(), PoolError> {
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
