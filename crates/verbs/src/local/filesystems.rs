//! `zfs create destroy`: file systems come and go.

use std::collections::BTreeMap;

use pool::PoolError;
use pool::dsl::lookup;
use pool::props::{Kind, Target};

use super::lifecycle::note;
use super::limits::{Limit, limits, set_limits};
use super::properties::{assigned, set_quotas};
use super::session::{For, Session, locate, open_located, pool_error};
use crate::datasets::{Create, Destroy, Destroyed};
use crate::state::StateFile;
use crate::{Doing, Error, Result, Why};

/// The pool of a data set's name.
pub(super) fn pool_of(name: &str) -> &str {
    name.split(['/', '@']).next().unwrap_or_default()
}

fn session(
    file: &StateFile,
    name: &str,
    places: &[std::path::PathBuf],
    doing: &Doing,
) -> Result<Session> {
    let pool = pool_of(name);
    let located = locate(&file.load()?, pool, places).map_err(|e| match e.why() {
        Some(Why::NoPool) => Error::cannot(doing.clone(), Why::NoPoolOf(pool.into())),
        _ => e,
    })?;
    open_located(file, pool, located, For::Writing, doing.clone())
}

pub(super) fn create(file: &StateFile, request: &Create) -> Result<Vec<String>> {
    let name = &request.name;
    let doing = Doing::Create(name.clone());
    let cannot = |why: Why| Error::cannot(doing.clone(), why);
    if request.volume.is_some() {
        return Err(cannot(Why::NotDone("volumes cannot be made yet".into())));
    }
    let session = session(file, name, &request.places, &doing)?;
    let target = Target::new(Kind::Filesystem);
    let assigned = assigned(&session.pool, &request.properties, &target, &doing)?;
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
    if request.dry_run {
        return Ok(Vec::new());
    }
    let make = |name: &str, props| {
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
    make(name, props)?;
    let quotas = || set_quotas(&session, name, &assigned.quotas, &doing);
    if let Err(e) = set_limits(&session.pool, name, limits) {
        let gone = session.pool.destroy_dataset(name);
        gone.map_err(|e| pool_error(doing.clone(), e))?;
        session.close(doing.clone())?;
        return Err(match e {
            Limit::Refused => cannot(Why::NoSpace),
            Limit::Failed(e) => pool_error(doing.clone(), e),
        });
    }
    quotas()?;
    note(&session.pool, &request.command).map_err(|e| pool_error(doing.clone(), e))?;
    session.close(doing)?;
    Ok(Vec::new())
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

pub(super) fn destroy(file: &StateFile, request: &Destroy) -> Result<Destroyed> {
    let name = &request.name;
    let doing = Doing::Destroy(name.clone());
    let cannot = |why: Why| Error::cannot(doing.clone(), why);
    let session = session(file, name, &request.places, &doing).map_err(|e| match e.why() {
        Some(Why::NoPoolOf(_)) => Error::open(name, Why::NoDataset),
        _ => e,
    })?;
    if name.contains('@') {
        return Err(match lookup::find(session.pool.mos(), name) {
            Ok(_) => cannot(Why::NotDone("snapshots cannot be destroyed yet".into())),
            Err(PoolError::NoDataset { .. }) => Error::NoSnapshots,
            Err(e) => pool_error(doing, e),
        });
    }
    let below = lookup::walk(session.pool.mos(), name).map_err(|e| match e {
        PoolError::NoDataset { name } => Error::open(name, Why::NoDataset),
        e => pool_error(doing.clone(), e),
    })?;
    // In the order in which they would go.
    let children: Vec<String> = below.iter().skip(1).rev().map(|f| f.name.clone()).collect();
    if !name.contains('/') && !request.recursive {
        return Err(cannot(Why::IsPool(name.clone())));
    }
    if !children.is_empty() && !request.recursive {
        return Err(cannot(Why::Children { what: "filesystem", list: children }));
    }
    // Children before parents; the root of the pool stays.
    let names: Vec<String> =
        below.iter().rev().map(|f| f.name.clone()).filter(|n| n.contains('/')).collect();
    if !request.dry_run {
        for name in &names {
            session.pool.destroy_dataset(name).map_err(|e| pool_error(doing.clone(), e))?;
        }
        note(&session.pool, &request.command).map_err(|e| pool_error(doing.clone(), e))?;
    }
    session.close(doing)?;
    Ok(Destroyed { names, reclaimed: None })
}
