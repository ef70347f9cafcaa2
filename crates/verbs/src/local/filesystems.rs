//! `zfs create destroy`: file systems come and go.

use std::collections::{BTreeMap, BTreeSet};

use pool::dsl::lookup::{self, Found};
use pool::props::{Kind, SpaceProp, Target};
use pool::{PoolError, Stored};

use super::Here;
use super::dependents::{Dependent, InOrder, dependents};
use super::limits::{Limit, limits, set_limits};
use super::located::locate;
use super::naming;
use super::opening::{For, open_located};
use super::properties::{assigned, of_new, set_quotas};
use super::session::{Session, pool_error};
use super::volumes;
use crate::datasets::{Create, Destroy, Destroyed};
use crate::{Doing, Error, Result, Why};

/// The pool of a data set's name.
pub(super) fn pool_of(name: &str) -> &str {
    name.split(['/', '@']).next().unwrap_or_default()
}

/// The pool of a data set, open. A dry run only reads.
pub(super) fn session(
    here: &Here,
    name: &str,
    places: &[std::path::PathBuf],
    mode: For,
    doing: &Doing,
) -> Result<Session> {
    let pool = pool_of(name);
    let located = locate(here, pool, places).map_err(|e| match e.why() {
        Some(Why::NoPool) => Error::cannot(doing.clone(), Why::NoPoolOf(pool.into())),
        _ => e,
    })?;
    open_located(here, pool, located, mode, doing.clone())
}

/// What a request opens a pool for.
fn mode(dry_run: bool) -> For {
    if dry_run { For::Reading } else { For::Writing }
}

/// Ends with a data set that could not be made as it was asked for: it goes again.
pub(super) fn take_back(session: Session, name: &str, doing: &Doing) -> Result<()> {
    session.pool.destroy_dataset(name).map_err(|e| pool_error(doing.clone(), e))?;
    session.close(doing.clone())
}

pub(super) fn create(here: &Here, request: &Create) -> Result<Vec<String>> {
    let name = &request.name;
    let doing = Doing::Create(name.clone());
    let cannot = |why: Why| Error::cannot(doing.clone(), why);
    let session = session(here, name, &request.places, mode(request.dry_run), &doing)?;
    let target = Target::new(Kind::Filesystem);
    let (assigned, volume, notes) = match volumes::plan(&session, request, &doing)? {
        Some(plan) => (plan.assigned, Some((plan.size, plan.block)), plan.notes),
        None => (assigned(&session.pool, &request.properties, &target, &doing)?, None, Vec::new()),
    };
    let asked = assigned.stored.iter().cloned().collect();
    naming::check(&asked).map_err(|e| cannot(Why::Prop(e)))?;
    let exists = |name: &str| match lookup::find_dir(session.pool.mos(), name) {
        Ok(found) => Ok(found.is_some()),
        Err(e) => Err(pool_error(doing.clone(), e)),
    };
    if exists(name)? {
        return if request.parents { Ok(Vec::new()) } else { Err(cannot(Why::DatasetExists)) };
    }
    let mut missing = Vec::new();
    let mut above = name.as_str();
    while let Some((parent, _)) = above.rsplit_once('/') {
        if exists(parent)? {
            break;
        }
        missing.push(parent.to_string());
        above = parent;
    }
    if !missing.is_empty() && !request.parents {
        return Err(cannot(Why::NoParent));
    }
    if let Some((parent, _)) = above.rsplit_once('/') {
        volumes::no_volume(&session.pool, parent, &doing)?;
    }
    if request.dry_run {
        return Ok(notes);
    }
    let make = |name: &str, mut props: BTreeMap<String, Stored>| {
        let above = name.rsplit_once('/').map(|(above, _)| (&session.pool, above));
        naming::complete(above, &mut props).map_err(|e| pool_error(doing.clone(), e))?;
        let made = session.pool.create_filesystem(name, props, fs::make_filesystem);
        made.map_err(|e| pool_error(doing.clone(), e))
    };
    if let Err(e) = may_make(&session.pool, above, missing.len() as u64 + 1) {
        return Err(match e {
            PoolError::QuotaExceeded { .. } => cannot(Why::NoSpace),
            e => pool_error(doing, e),
        });
    }
    for parent in missing.iter().rev() {
        make(parent, BTreeMap::new())?;
    }
    let (limits, props) = limits(assigned.stored.into_iter());
    match volume {
        None => make(name, props)?,
        Some((size, block)) => {
            let made = session.pool.create_volume(name, props, size, block);
            made.map_err(|e| pool_error(doing.clone(), e))?;
        }
    }
    let promised = promise(&session, name, limits, &assigned.quotas, &doing);
    if let Err(e) = promised {
        take_back(session, name, &doing)?;
        return Err(e);
    }
    session.note(&request.command).map_err(|e| pool_error(doing.clone(), e))?;
    session.close(doing)?;
    Ok(notes)
}

/// Sets on a new data set what it may use and what is kept for it.
pub(super) fn promise(
    session: &Session,
    name: &str,
    limits: Vec<(String, Stored)>,
    quotas: &[(SpaceProp, u64, u64)],
    doing: &Doing,
) -> Result<()> {
    set_limits(&session.pool, name, limits).map_err(|e| match e {
        Limit::Refused => Error::cannot(doing.clone(), Why::NoSpace),
        Limit::Failed(e) => pool_error(doing.clone(), e),
    })?;
    set_quotas(session, name, quotas, doing).map_err(of_new)
}

/// May so many file systems be made below this one? Who may change its limits may; so root.
fn may_make(pool: &pool::Pool, above: &str, count: u64) -> std::result::Result<(), PoolError> {
    if rustix::process::getuid().is_root() {
        return Ok(());
    }
    let above = above.rsplit_once('/').map_or(above, |(parent, _)| parent);
    match lookup::find_dir(pool.mos(), above)? {
        Some(dir) => pool.check_count(dir, pool::Counted::Filesystems, count),
        None => Ok(()),
    }
}

/// May snapshots of these names be taken? Who may change the limits may; so root.
pub(super) fn may_snapshot(
    pool: &pool::Pool,
    names: &[String],
) -> std::result::Result<(), PoolError> {
    if rustix::process::getuid().is_root() {
        return Ok(());
    }
    for name in names {
        let path = name.split('@').next().unwrap_or_default();
        if let Some(dir) = lookup::find_dir(pool.mos(), path)? {
            pool.check_count(dir, pool::Counted::Snapshots, 1)?;
        }
    }
    Ok(())
}

/// What a destroy takes along.
struct Doomed {
    /// In the order in which they can go.
    names: Vec<String>,
    /// Bytes that come back, where snapshots alone were asked for.
    reclaimed: Option<u64>,
}

/// Opens the pool of what is to be destroyed, and finds out what goes with it.
fn doomed(here: &Here, request: &Destroy, doing: &Doing) -> Result<(Session, Doomed)> {
    let name = &request.name;
    let session = session(here, name, &request.places, mode(request.dry_run), doing);
    let session = session.map_err(|e| match e.why() {
        Some(Why::NoPoolOf(_)) => Error::open(name, Why::NoDataset),
        _ => e,
    })?;
    let doomed = match name.contains('@') {
        true => doomed_snapshots(&session, request, doing)?,
        false => doomed_below(&session, request, doing)?,
    };
    Ok((session, doomed))
}

fn doomed_below(session: &Session, request: &Destroy, doing: &Doing) -> Result<Doomed> {
    let name = &request.name;
    let failed = |e| pool_error(doing.clone(), e);
    let found = lookup::find(session.pool.mos(), name).map_err(failed)?;
    if !name.contains('/') && !request.recursive {
        return Err(Error::cannot(doing.clone(), Why::IsPool(name.clone())));
    }
    let before = dependents(&session.pool, &found).map_err(failed)?;
    refuse_dependents(request, &found, &before, doing)?;
    let mut names: Vec<String> = before.into_iter().map(|dependent| dependent.name).collect();
    // The root of the pool stays.
    names.extend(name.contains('/').then(|| name.clone()));
    Ok(Doomed { names, reclaimed: None })
}

/// The names of what a destroy takes along.
pub(super) fn destroyed_with(here: &Here, request: &Destroy) -> Result<Vec<String>> {
    let doing = Doing::Destroy(request.name.clone());
    Ok(doomed(here, request, &doing)?.1.names)
}

pub(super) fn destroy(here: &Here, request: &Destroy) -> Result<Destroyed> {
    let doing = Doing::Destroy(request.name.clone());
    let (session, Doomed { mut names, reclaimed }) = doomed(here, request, &doing)?;
    let failed = |e| pool_error(doing.clone(), e);
    if !request.dry_run {
        destroy_all(&session.pool, &names, request.defer).map_err(failed)?;
        session.note(&request.command).map_err(failed)?;
    }
    if reclaimed.is_some() {
        names.retain(|name| name.contains('@'));
    }
    session.close(doing)?;
    Ok(Destroyed { names, reclaimed })
}

/// Says what else would go, unless it was asked for.
fn refuse_dependents(
    request: &Destroy,
    found: &Found,
    before: &[Dependent],
    doing: &Doing,
) -> Result<()> {
    let what = if found.is_snapshot() { "snapshot" } else { "filesystem" };
    let list = |below: bool| -> Vec<String> {
        let those = before.iter().filter(|dependent| dependent.below == below);
        those.map(|dependent| dependent.name.clone()).collect()
    };
    let (children, clones) = (list(true), list(false));
    if !children.is_empty() && !request.recursive {
        return Err(Error::cannot(doing.clone(), Why::Children { what, list: children }));
    }
    if !clones.is_empty() && !request.dependents && (request.recursive || found.is_snapshot()) {
        return Err(Error::cannot(doing.clone(), Why::Clones { what, list: clones }));
    }
    Ok(())
}

/// Destroys data sets in this order; snapshots that follow each other in one txg.
pub(super) fn destroy_all(
    pool: &pool::Pool,
    names: &[String],
    defer: bool,
) -> std::result::Result<(), PoolError> {
    for group in names.chunk_by(|a, b| a.contains('@') && b.contains('@')) {
        match group {
            [name] if !name.contains('@') => pool.destroy_dataset(name)?,
            snapshots => pool.destroy_snapshots(snapshots, defer)?,
        }
    }
    Ok(())
}

/// The snapshots of `head` that a list with ranges means (`a,b%c,%d`), oldest first.
fn chosen(
    pool: &pool::Pool,
    head: &Found,
    list: &str,
) -> std::result::Result<Vec<Found>, PoolError> {
    let all = lookup::snapshots(pool.mos(), &head.phys)?;
    let place = |name: &str| all.iter().position(|(own, _, _)| own == name);
    let mut wanted = BTreeSet::new();
    for part in list.split(',') {
        let range = match part.split_once('%') {
            None => place(part).map(|at| (at, at)),
            Some((first, last)) => {
                let first = if first.is_empty() { Some(0) } else { place(first) };
                let last = if last.is_empty() { all.len().checked_sub(1) } else { place(last) };
                first.zip(last)
            }
        };
        if let Some((first, last)) = range {
            wanted.extend(first..=last);
        }
    }
    let found = wanted.into_iter().filter_map(|at| all.get(at));
    found.map(|(name, _, _)| lookup::find(pool.mos(), &format!("{}@{name}", head.name))).collect()
}

/// Bytes that come back with these snapshots of one head, given oldest first: those that follow
/// each other free what they share.
fn reclaimed(pool: &pool::Pool, chosen: &[Found]) -> std::result::Result<u64, PoolError> {
    let mut bytes = 0;
    let follows = |a: &Found, b: &Found| a.phys.next_snap_object.get() == b.object;
    for run in chosen.chunk_by(follows) {
        if let (Some(first), Some(last)) = (run.first(), run.last()) {
            bytes += pool.would_free(first, last)?;
        }
    }
    Ok(bytes)
}

fn doomed_snapshots(session: &Session, request: &Destroy, doing: &Doing) -> Result<Doomed> {
    let failed = |e| pool_error(doing.clone(), e);
    let (path, list) = request.name.split_once('@').unwrap_or_default();
    let mos = session.pool.mos();
    let head = lookup::find(mos, path).map_err(failed)?;
    let heads = match request.recursive {
        true => lookup::walk_shown(mos, path).map_err(failed)?,
        false => vec![head],
    };
    let (mut order, mut bytes) = (InOrder::default(), 0);
    for head in heads.iter().filter(|head| !head.is_snapshot()) {
        let chosen = chosen(&session.pool, head, list).map_err(failed)?;
        bytes += reclaimed(&session.pool, &chosen).map_err(failed)?;
        for found in &chosen {
            let before = dependents(&session.pool, found).map_err(failed)?;
            if !request.defer {
                let doing = Doing::Destroy(found.name.clone());
                refuse_dependents(request, found, &before, &doing)?;
                // A clone's own snapshots may have been chosen, too.
                before.into_iter().for_each(|dependent| order.add(dependent.name));
            }
            order.add(found.name.clone());
        }
    }
    let names = order.names;
    if names.is_empty() {
        return Err(Error::NoSnapshots);
    }
    Ok(Doomed { names, reclaimed: Some(bytes) })
}
