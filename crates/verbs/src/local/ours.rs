//! Whose a pool is: by our list, and by what its labels say.
//!
//! The one idea: the list says what we had; the labels say what became of it since. A pool that somebody else has taken,
//! or that was let go, is not written before it is imported again (INV-13).

use format::config::{PoolState, VdevConfig};
use pool::devices::{FoundPool, Member};

use super::Here;
use super::located::locate;
use crate::inuse::Ours;
use crate::state::{Known, State};
use crate::{Result, Why, find, host};

impl Here {
    /// The pools that we have, each asked itself for its devices.
    pub(super) fn ours(&self) -> Result<Ours<'_>> {
        let has = |known: &Known, device| match self.tree_of(known) {
            Some(tree) => tree.find(device).is_some(),
            // Who cannot be asked is believed to have what says so.
            None => true,
        };
        Ok(Ours { state: self.state.load()?, has: Box::new(has) })
    }

    /// The vdevs of a pool that we have, by itself: held, or as it is on its devices.
    fn tree_of(&self, known: &Known) -> Option<VdevConfig> {
        if let Some(pool) = self.held.as_ref().and_then(|held| held.pool(&known.name)) {
            return Some(pool.config().vdev_tree);
        }
        let located = locate(self, &known.name, &[]).ok()?;
        let found = located.found();
        let pool = find::opened(found, &found.uberblocks, &self.memory).ok()?;
        Some(pool.config().vdev_tree)
    }
}

/// Another system has the pool, or had it last without letting it go.
pub(super) fn foreign(here: &Here, found: &FoundPool) -> Result<Option<Why>> {
    let host_id = u64::from(host::hostid(&here.state)?);
    let Some(hostid) = found.foreign_host(host_id) else { return Ok(None) };
    // Our own number, from before the system had one.
    if here.state.load()?.hostid.map(u64::from) == Some(hostid) {
        return Ok(None);
    }
    let host = found.config.hostname.as_deref().unwrap_or_default();
    let host = Some(String::from_utf8_lossy(host).into_owned()).filter(|host| !host.is_empty());
    Ok(Some(Why::OtherSystem {
        host: host.unwrap_or_else(|| "<unknown>".into()),
        hostid,
        time: found.uberblocks.first().map_or(0, |uberblock| uberblock.timestamp.get()),
    }))
}

/// Why a pool that we remember to have for writing is ours no more.
pub(super) fn lost(here: &Here, found: &FoundPool) -> Result<Option<Why>> {
    let since = |what: &str, how: &str| {
        let why = format!(
            "pool was {what} since it was imported here\nuse 'zpool import{how}' to import it again"
        );
        Ok(Some(Why::NotDone(why)))
    };
    match found.config.state {
        PoolState::Exported => since("exported", ""),
        PoolState::Destroyed => since("destroyed", " -D"),
        _ => foreign(here, found),
    }
}

/// Why nothing may be written to the disks that were found, whosever they are: they are not all that there is, or not one
/// pool any more.
pub(super) fn apart(known: Option<&Known>, found: &FoundPool) -> Option<Why> {
    let newest = found.uberblocks.first().map_or(0, |uberblock| uberblock.txg.get());
    // Disks that were away go on from what they had.
    if known.and_then(|known| known.closed).is_some_and(|closed| closed.txg > newest) {
        return Some(Why::Unavailable);
    }
    let tell = |member: &Member| {
        let path = member.candidate.shown_path().unwrap_or_default();
        let txg = member.candidate.labels.uberblocks.first().map_or(0, |own| own.txg.get());
        format!("{} with txg {txg}", path.display())
    };
    let parted: Vec<String> = found.parted().into_iter().map(tell).collect();
    (!parted.is_empty()).then(|| {
        Why::NotDone(format!(
            "its disks went different ways: the newest state has txg {newest}, another one {}\n\
             take away the disks of the way that is not wanted, and try again",
            parted.join(", ")
        ))
    })
}

/// Is it one of ours already? Such a pool is there to be used, not to be imported.
pub(super) fn is_imported(here: &Here, state: &State, found: &FoundPool) -> Result<bool> {
    let guid = found.guid();
    if here.held.as_ref().is_some_and(|held| held.has(guid)) {
        return Ok(true);
    }
    match state.pools.iter().find(|known| known.guid == guid) {
        Some(known) => Ok(known.readonly || lost(here, found)?.is_none()),
        None => Ok(false),
    }
}
