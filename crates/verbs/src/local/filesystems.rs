//! `zfs create destroy set`: file systems come, go and change.

use std::collections::BTreeMap;

use pool::dsl::lookup;
use pool::props::{Key, Kind, Target, assign};
use pool::{PoolError, Stored};

use super::lifecycle::{note, stored};
use super::limits::{Limit, limits, refusal, set_limits};
use super::session::{For, Session, locate, open_located, pool_error};
use crate::datasets::{Create, Destroy, Destroyed, Set, SetReport};
use crate::state::StateFile;
use crate::{Doing, Error, Result, Why};

/// The pool of a data set's name.
fn pool_of(name: &str) -> &str {
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

/// Properties as typed, as they are stored.
fn assigned(
    properties: &[(String, Vec<u8>)],
    target: &Target,
    doing: &Doing,
) -> Result<BTreeMap<String, Stored>> {
    let mut out = BTreeMap::new();
    for (name, value) in properties {
        let (key, value) = assign(name.as_bytes(), value, target)
            .map_err(|e| Error::cannot(doing.clone(), Why::Prop(e)))?;
        if let Key::Space(_) | Key::Written(_) = key {
            let why = Why::NotDone(format!("'{name}' cannot be set yet"));
            return Err(Error::cannot(doing.clone(), why));
        }
        out.insert(key.name(), stored(&value));
    }
    Ok(out)
}

pub(super) fn create(file: &StateFile, request: &Create) -> Result<Vec<String>> {
    let name = &request.name;
    let doing = Doing::Create(name.clone());
    let cannot = |why: Why| Error::cannot(doing.clone(), why);
    if request.volume.is_some() {
        return Err(cannot(Why::NotDone("volumes cannot be made yet".into())));
    }
    let props = assigned(&request.properties, &Target::new(Kind::Filesystem), &doing)?;
    let session = session(file, name, &request.places, &doing)?;
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
    for parent in missing.iter().rev() {
        make(parent, BTreeMap::new())?;
    }
    let (limits, props) = limits(props.into_iter());
    make(name, props)?;
    if let Err(e) = set_limits(&session.pool, name, limits) {
        let gone = session.pool.destroy_filesystem(name);
        gone.map_err(|e| pool_error(doing.clone(), e))?;
        session.close(doing.clone())?;
        return Err(match e {
            Limit::Refused => cannot(Why::NoSpace),
            Limit::Failed(e) => pool_error(doing.clone(), e),
        });
    }
    note(&session.pool, &request.command).map_err(|e| pool_error(doing.clone(), e))?;
    session.close(doing)?;
    Ok(Vec::new())
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
            session.pool.destroy_filesystem(name).map_err(|e| pool_error(doing.clone(), e))?;
        }
        note(&session.pool, &request.command).map_err(|e| pool_error(doing.clone(), e))?;
    }
    session.close(doing)?;
    Ok(Destroyed { names, reclaimed: None })
}

pub(super) fn set(file: &StateFile, request: &Set) -> Result<SetReport> {
    let mut report = SetReport::default();
    for name in &request.names {
        if let Err(e) = set_one(file, request, name) {
            report.errors.push(e);
        }
    }
    Ok(report)
}

/// The version of a file system is fixed when it is made: none but the one it has can be set.
fn keep_version(session: &Session, name: &str, value: &Stored, doing: &Doing) -> Result<()> {
    let cannot = |why| Err(Error::cannot(doing.clone(), why));
    let found = lookup::find(session.pool.mos(), name);
    let fixed = found.and_then(|found| fs::fixed(&session.pool, &found));
    let now = match fixed.map_err(|e| pool_error(doing.clone(), e))? {
        fs::Fixed::Filesystem { version, .. } => version,
        _ => return cannot(Why::WrongKind),
    };
    match value {
        Stored::Number(wanted) if *wanted < now => cannot(Why::Downgrade(now)),
        Stored::Number(wanted) if *wanted > now => {
            cannot(Why::NotDone("file systems cannot be upgraded yet".into()))
        }
        _ => Ok(()),
    }
}

fn set_one(file: &StateFile, request: &Set, name: &str) -> Result<()> {
    let doing = Doing::Set(name.into());
    let target = Target::existing(Kind::Filesystem);
    let props = assigned(&request.properties, &target, &doing)?;
    let pool = pool_of(name);
    let located = locate(&file.load()?, pool, &request.places).map_err(|e| match e.why() {
        Some(Why::NoPool) => Error::open(name, Why::NoDataset),
        _ => e,
    })?;
    let session = open_located(file, pool, located, For::Writing, doing.clone())?;
    for (property, value) in props {
        let refused = refusal(&session.pool, name, &property, &value);
        if let Some(why) = refused.map_err(|e| pool_error(doing.clone(), e))? {
            return Err(Error::cannot(doing, why));
        }
        if property == "version" {
            keep_version(&session, name, &value, &doing)?;
            continue;
        }
        let set = session.pool.set_property(name, &property, Some(value));
        set.map_err(|e| pool_error(doing.clone(), e))?;
    }
    note(&session.pool, &request.command).map_err(|e| pool_error(doing.clone(), e))?;
    session.close(doing)
}
