//! `zpool add`: what a pool gets besides what it has.

use std::path::PathBuf;

use format::config::{VdevConfig, VdevKind};

use super::Here;
use super::disks::find_spare;
use super::lifecycle::leaf;
use super::session::{self, For, pool_error};
use super::status;
use crate::disks::{Add, Before};
use crate::layout::Layout;
use crate::{Doing, Error, Result, Why, events, inuse};

pub(super) fn add(here: &Here, request: &Add) -> Result<Option<Before>> {
    let _alone = here.held.as_ref().map(|held| held.one_at_a_time());
    let doing = Doing::Disk(format!("add to '{}'", request.name));
    let cannot = |why| Error::cannot(doing.clone(), why);
    let mode = if request.dry_run { For::Reading } else { For::Writing };
    let session = session::open(here, &request.name, &request.places, mode)?;
    if !request.layout.groups.is_empty() || !request.layout.cache.is_empty() {
        return Err(cannot(Why::NotDone("only spares can be added yet".into())));
    }
    let mut unused = Layout::default();
    for path in &request.layout.spares {
        // Its own are told of by the pool.
        if find_spare(&session, &path.to_string_lossy())?.is_some() {
            let why = "one or more vdevs refer to the same device";
            return Err(cannot(Why::Host(why.into())));
        }
        unused.spares.push(path.clone());
    }
    inuse::check_used(&doing, &unused, request.force, &here.state.load()?)?;
    if request.dry_run {
        let report = status::report(&session, &[]);
        let report = report.map_err(|error| pool_error(doing, error))?;
        return Ok(Some(Box::new(report)));
    }
    inuse::check_sizes(&doing, &request.layout)?;
    let spares: Result<Vec<_>> =
        request.layout.spares.iter().map(|path| leaf(&doing, path)).collect();
    let done = session.pool.add_spares(spares?).and_then(|()| session.note(&request.command));
    done.map_err(|error| pool_error(doing.clone(), error))?;
    let absolute = |path: &PathBuf| std::path::absolute(path).unwrap_or_else(|_| path.clone());
    let new: Vec<PathBuf> = request.layout.devices().map(absolute).collect();
    let root = VdevConfig::new(VdevKind::Root, 0, session.pool.guid());
    session.told.iter().for_each(|told| told.tell_leaf(&session.pool, events::VDEV_ADD, &root));
    session.remember(here, &new)?;
    session.close(doing)?;
    Ok(None)
}
