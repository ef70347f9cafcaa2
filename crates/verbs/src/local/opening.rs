//! Opening a pool for one command, as it was found.
//!
//! The one idea: what was seen of a pool before its devices were locked may be old by then. Whether it may be written is asked
//! of what was seen; if somebody wrote to it before the locks were there, it is looked at anew, and asked again.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use format::config::{PoolConfig, VdevConfig};
use pool::devices::{FoundPool, Tree, VdevError};
use pool::{Devices, OpenOptions, Pool};
use rt::sync::Arc;

use super::disks::path_of;
use super::lifecycle::leaf_path;
use super::located::{Located, locate};
use super::session::{Session, pool_error};
use super::sighting::Sighting;
use super::{Here, keeper};
use crate::inuse::identity;
use crate::{Doing, Error, Result, Why, health, host, pools};

/// What a pool is opened for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum For {
    /// Nothing is written.
    Reading,
    /// Changes. The devices are held until the session ends.
    Writing,
}

/// How often a pool is looked at, if others write to it between a look and the locks on its devices.
const LOOKS_MAX: u32 = 16;

impl Here {
    /// How a pool that is to be called `name` is opened here.
    pub(super) fn options(&self, name: &str) -> Result<OpenOptions> {
        Ok(OpenOptions {
            workers: 0,
            host_id: u64::from(host::hostid(&self.state)?),
            host_name: host::hostname(),
            new_name: Some(name.to_string()),
            memory: Some(self.memory.clone()),
        })
    }
}

/// The devices of a pool, to be read as it is.
pub(super) fn as_it_is_on(found: &FoundPool, tree: Tree) -> Devices {
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
    if let Some(pool) = located.held {
        return match pool.read_only_reason().filter(|_| mode == For::Writing) {
            Some(reason) => Err(Error::cannot(doing, Why::ReadOnly(reason.to_string()))),
            None => Ok(Session {
                pool,
                sighting: located.sighting,
                known: located.known,
                held: true,
                told: here.held.clone(),
            }),
        };
    }
    for _ in 0..LOOKS_MAX {
        let why_not = match mode {
            For::Writing => located.why_not_write(here)?,
            For::Reading => None,
        };
        if let Some(why) = why_not {
            return Err(Error::cannot(doing, why));
        }
        if let Some(pool) = open_as_found(here, name, &located, mode, &doing)? {
            if mode == For::Writing {
                begin(here, &pool, &located.sighting, &doing)?;
            }
            let Located { sighting, known, .. } = located;
            return Ok(Session { pool, sighting, known, held: false, told: here.held.clone() });
        }
        located = located.anew(here, name)?;
    }
    Err(Error::cannot(doing, Why::Held))
}

/// Opens a pool as it was found; nothing, if it was written to since then.
fn open_as_found(
    here: &Here,
    name: &str,
    located: &Located,
    mode: For,
    doing: &Doing,
) -> Result<Option<Arc<Pool>>> {
    let unavailable = || Error::cannot(doing.clone(), Why::Unavailable);
    let found = located.found();
    // Who rescues takes what there is.
    let as_it_is = here.rescue.is_some();
    let there = found.devices();
    let is_there = |guid| there.contains_key(&guid);
    // A top-level vdev without a label may have been removed: only the pool itself knows.
    let may_be_removed = !found.missing_tops().is_empty();
    let is_short = !as_it_is && is_gone(&found.root, &is_there);
    if is_short && !may_be_removed {
        return Err(unavailable());
    }
    let options = here.options(name)?;
    let devices = match mode {
        For::Reading => found.open_tree_in(&here.memory).map(|tree| match as_it_is {
            false => Devices::ReadOnly(Arc::new(tree)),
            true => as_it_is_on(found, tree),
        }),
        For::Writing => {
            let devices =
                if located.without_logs { Devices::WithoutLogs } else { Devices::Writable };
            found.open_write_tree_in(&found.root, Some(&here.memory)).map(devices)
        }
    };
    let devices = match devices {
        Err(VdevError::Changed { .. } | VdevError::Written { .. }) => return Ok(None),
        devices => devices.map_err(|error| pool_error(doing.clone(), error.into()))?,
    };
    let pool = Pool::open(devices, &found.uberblocks, &options).map_err(|error| {
        // Devices without a label that can be read may hold what is needed, or nothing at all.
        let is_member = |guid| found.members.iter().any(|member| member.guid == guid);
        match !as_it_is && is_gone(&found.root, &is_member) {
            true => unavailable(),
            false => pool_error(doing.clone(), error),
        }
    })?;
    if is_short && is_gone(&pool.config().vdev_tree, &is_there) {
        return Err(unavailable());
    }
    match pool.read_only_reason().filter(|_| mode == For::Writing) {
        Some(reason) => Err(Error::cannot(doing.clone(), Why::ReadOnly(reason.to_string()))),
        None => Ok(Some(pool)),
    }
}

/// What comes first in a pool that was opened for changes: its intent logs, and what has changed about its devices.
fn begin(here: &Here, pool: &Arc<Pool>, sighting: &Sighting, doing: &Doing) -> Result<()> {
    let fail = |error| pool_error(doing.clone(), error);
    // What is left keeps its data set read-only, and no other.
    let left = fs::replay_logs(pool).map_err(|error| {
        let why = format!("its intent logs cannot be replayed: {error}");
        Error::cannot(doing.clone(), Why::NotDone(why))
    })?;
    left.iter().for_each(|left| keeper::say(&left.to_string()));
    pool.finish_replacements().map_err(fail)?;
    pool.note_paths(&moved(&pool.config().vdev_tree, sighting.leaf_paths()));
    here.held.iter().for_each(|held| held.passes(pool));
    keeper::keep(pool).map_err(fail)
}

/// Are too few of the leaves below `root` there for the pool to be read?
fn is_gone(root: &VdevConfig, is_there: &dyn Fn(u64) -> bool) -> bool {
    let tree = health::tree(root, false, &mut |leaf| health::Known {
        path: is_there(leaf.guid).then(PathBuf::new),
        ..Default::default()
    });
    tree.state == pools::State::Unavail
}

/// Of `paths`, where leaves were found, those for which what the pool says of them leads elsewhere or nowhere.
fn moved(root: &VdevConfig, mut paths: BTreeMap<u64, PathBuf>) -> BTreeMap<u64, Vec<u8>> {
    let same_file = |a: &Path, b: &Path| identity(a).is_ok_and(|a| identity(b).ok() == Some(a));
    paths.retain(|guid, path| {
        root.find(*guid).is_some_and(|leaf| path.exists() && !same_file(&path_of(leaf), path))
    });
    paths.into_iter().map(|(guid, path)| (guid, leaf_path(&path))).collect()
}

#[cfg(test)]
mod tests;
