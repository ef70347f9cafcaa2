//! `zfs set` and `zfs inherit`: what a data set is to be like.
//!
//! As in OpenZFS all that is typed is checked before anything is set, and then each property is set
//! for itself: one that the pool refuses does not keep the others back.

use format::features::Feature;
use fs::Filesystem;
use pool::dsl::lookup;
use pool::props::space::Owner;
use pool::props::{Key, Kind, Prop, PropError, SpaceProp, Target, assign};
use pool::{Change, Pool, PoolError, Stored};

use super::Here;
use super::accounts;
use super::catalogue::Catalogue;
use super::filesystems::pool_of;
use super::lifecycle::stored;
use super::limits::refusal;
use super::located::locate;
use super::opening::{For, open_located};
use super::session::{Session, pool_error};
use super::volumes;
use crate::datasets::{Inherit, Set, SetReport};
use crate::{Doing, Error, Result, Why};

/// Properties as typed, as they are stored.
#[derive(Default)]
pub(super) struct Assigned {
    /// Those of the data set, in the order of the words.
    pub(super) stored: Vec<(String, Stored)>,
    /// Quotas of users, groups and projects, with their ids.
    pub(super) quotas: Vec<(SpaceProp, u64, u64)>,
}

/// Checks properties as typed for a data set of this pool.
pub(super) fn assigned(
    pool: &Pool,
    properties: &[(String, Vec<u8>)],
    target: &Target,
    doing: &Doing,
) -> Result<Assigned> {
    let refuse = |why: Why| Error::cannot(doing.clone(), why);
    let enabled = |feature| {
        let enabled = pool.features().is_enabled(feature);
        enabled.map_err(|e| pool_error(doing.clone(), e))
    };
    let target = match enabled(Feature::LargeBlocks)? {
        true => *target,
        false => Target { record_size_max: 128 << 10, ..*target },
    };
    let mut out = Assigned::default();
    for (name, value) in properties {
        let (key, value) =
            assign(name.as_bytes(), value, &target).map_err(|e| refuse(Why::Prop(e)))?;
        if let (Key::Native(prop), Some(number)) = (&key, value.number())
            && let Some(feature) = needs(*prop, number)
            && !enabled(feature)?
        {
            return Err(refuse(match target.creating {
                true => Why::PoolNeedsUpgrade,
                false => Why::NeedsUpgrade,
            }));
        }
        match key {
            Key::Space(space) => {
                let id = accounts::id(&space).map_err(|e| refuse(Why::Prop(e)))?;
                if target.kind != Kind::Filesystem {
                    return Err(refuse(Why::BadValue));
                }
                out.quotas.push((space, id, value.number().unwrap_or(0)));
            }
            Key::Written(_) => return Err(refuse(Why::Prop(PropError::ReadOnly(key.name())))),
            key => out.stored.push((key.name(), stored(&value))),
        }
    }
    Ok(out)
}

/// The feature that a value needs.
fn needs(prop: Prop, value: u64) -> Option<Feature> {
    let of_checksum = |id: u64| match id {
        11 => Some(Feature::Sha512),
        12 => Some(Feature::Skein),
        13 => Some(Feature::Edonr),
        _ => None,
    };
    match prop {
        Prop::Compression if value & 0x7f == 16 => Some(Feature::ZstdCompress),
        Prop::Compression if value == 15 => Some(Feature::Lz4Compress),
        Prop::Checksum | Prop::Dedup => of_checksum(value & 0xff),
        Prop::Dnodesize if value != 0 => Some(Feature::LargeDnode),
        Prop::FilesystemLimit | Prop::SnapshotLimit if value != u64::MAX => {
            Some(Feature::FilesystemLimits)
        }
        _ => None,
    }
}

/// Sets quotas of users, groups and projects.
pub(super) fn set_quotas(
    session: &Session,
    name: &str,
    quotas: &[(SpaceProp, u64, u64)],
    doing: &Doing,
) -> Result<()> {
    if quotas.is_empty() {
        return Ok(());
    }
    let fail = |e: fs::FsError| match e {
        fs::FsError::Pool(e) => pool_error(doing.clone(), e),
        e => Error::cannot(doing.clone(), Why::NotDone(e.to_string())),
    };
    let fs = Filesystem::open(&session.pool, name).map_err(fail)?;
    for (space, id, quota) in quotas {
        if space.owner == Owner::Project {
            let enabled = session.pool.features().is_enabled(Feature::ProjectQuota);
            if !enabled.map_err(|e| pool_error(doing.clone(), e))? {
                return Err(Error::cannot(doing.clone(), Why::NeedsUpgrade));
            }
        }
        fs.set_quota(space.owner, space.objects, *id, *quota).map_err(fail)?;
    }
    Ok(())
}

/// The pool of a data set, open for writing.
fn session(
    here: &Here,
    name: &str,
    places: &[std::path::PathBuf],
    doing: &Doing,
) -> Result<Session> {
    let pool = pool_of(name);
    let located = locate(here, pool, places).map_err(|e| match e.why() {
        Some(Why::NoPool) => Error::open(name, Why::NoDataset),
        _ => e,
    })?;
    open_located(here, pool, located, For::Writing, doing.clone())
}

pub(super) fn set(here: &Here, request: &Set) -> Result<SetReport> {
    let mut report = SetReport::default();
    for name in &request.names {
        match set_one(here, request, name, &mut report.notes) {
            Ok(errors) => report.errors.extend(errors),
            Err(e) => report.errors.push(e),
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

/// The kind of a data set or snapshot, and whether it is encrypted.
pub(super) fn kind_of(pool: &Pool, name: &str) -> std::result::Result<(Kind, bool), PoolError> {
    let mut catalogue = Catalogue::new(pool, None);
    let entry = catalogue.entry(name)?;
    let suite = catalogue.property(&entry, &Key::Native(Prop::Encryption))?;
    let encrypted = suite.is_some_and(|(value, _)| value.number().is_some_and(|n| n > 2));
    Ok((entry.kind, encrypted))
}

/// What a pool lacks for a new data set is told otherwise than what it lacks for one that is there.
pub(super) fn of_new(error: Error) -> Error {
    match error {
        Error::Cannot { doing, why: Why::NeedsUpgrade } => {
            Error::cannot(doing, Why::PoolNeedsUpgrade)
        }
        error => error,
    }
}

/// Sets what was asked for on one data set; what the pool refused.
fn set_one(here: &Here, request: &Set, name: &str, notes: &mut Vec<String>) -> Result<Vec<Error>> {
    let doing = Doing::Set(name.into());
    let session = session(here, name, &request.places, &doing)?;
    let fail = |e: PoolError| pool_error(doing.clone(), e);
    let (kind, encrypted) = kind_of(&session.pool, name).map_err(fail)?;
    let target = Target { encrypted, ..Target::existing(kind) };
    let assigned = assigned(&session.pool, &request.properties, &target, &doing)?;
    let mut wanted = assigned.stored;
    let number = |name: &str| match wanted.iter().find(|(known, _)| known == name) {
        Some((_, Stored::Number(number))) => Some(*number),
        _ => None,
    };
    let (reserved, size) = (Prop::Refreservation.name(), number(Prop::Volsize.name()));
    let mut before = None;
    if let Some(size) = size {
        let resized = volumes::resizes(&session.pool, name, size, &doing)?;
        if let (Some(value), None) = (resized.reservation, number(reserved)) {
            wanted.push((reserved.into(), value));
            before = Some(resized.before);
        }
    }
    let small = Prop::SpecialSmallBlocks.name();
    if wanted.iter().any(|(known, _)| known == small)
        && !session.pool.has_special().map_err(fail)?
    {
        notes.push(format!("{small}: property requires a special device in the pool"));
    }
    // What changes the inside of a data set comes first, as with OpenZFS: `readonly` would keep it from that.
    wanted.sort_by_key(|(property, _)| property != Prop::Volsize.name());
    let (left, mut errors) = set_all(&session, name, kind, wanted, &doing);
    // The size stays what is reserved for.
    if let Some(before) = before.filter(|_| left.iter().any(|property| property == reserved)) {
        errors.extend(volumes::resize(&session, name, before, &doing).err());
    }
    errors.extend(set_quotas(&session, name, &assigned.quotas, &doing).err());
    if errors.is_empty() {
        session.note(&request.command).map_err(fail)?;
    }
    session.close(doing)?;
    Ok(errors)
}

/// Sets properties, each for itself; those that could not be set, and why. What has no room may fit once another is
/// set: those are tried a second time, as OpenZFS does.
fn set_all(
    session: &Session,
    name: &str,
    kind: Kind,
    wanted: Vec<(String, Stored)>,
    doing: &Doing,
) -> (Vec<String>, Vec<Error>) {
    let mut set = |(property, value): (String, Stored)| {
        let done = set_property(session, name, kind, &property, value.clone(), doing);
        done.err().map(|error| ((property, value), error))
    };
    let again: Vec<_> = wanted.into_iter().filter_map(&mut set).collect();
    let failed = again.into_iter().filter_map(|(property, _)| set(property));
    failed.map(|((property, _), error)| (property, error)).unzip()
}

pub(super) fn set_property(
    session: &Session,
    name: &str,
    kind: Kind,
    property: &str,
    value: Stored,
    doing: &Doing,
) -> Result<()> {
    let fail = |e: PoolError| pool_error(doing.clone(), e);
    let cannot = |why: Why| Err(Error::cannot(doing.clone(), why));
    let mut value = value;
    match property {
        "version" => return keep_version(session, name, &value, doing),
        "volsize" => {
            let Stored::Number(size) = value else { return cannot(Why::BadValue) };
            return volumes::resize(session, name, size, doing);
        }
        // `auto`: as much as the volume could need.
        "refreservation" if kind == Kind::Volume && value == Stored::Number(u64::MAX) => {
            value = volumes::automatic(&session.pool, name).map_err(fail)?;
        }
        _ => {}
    }
    if kind != Kind::Snapshot
        && let Some(why) = refusal(&session.pool, name, property, &value).map_err(fail)?
    {
        return cannot(why);
    }
    session.pool.set_property(name, property, Some(value)).map_err(fail)
}

/// Takes a property of data sets back; what could not be done.
pub(super) fn inherit(here: &Here, request: &Inherit) -> Result<SetReport> {
    let mut report = SetReport::default();
    for name in &request.names {
        report.errors.extend(inherit_below(here, request, name).err());
    }
    // OpenZFS notes a command that went through as a whole, in the pool of its first name.
    if report.errors.is_empty()
        && let Some(name) = request.names.first()
    {
        let doing = Doing::Inherit(request.key.name(), name.clone());
        let session = session(here, name, &request.places, &doing)?;
        session.note(&request.command).map_err(|e| pool_error(doing.clone(), e))?;
        session.close(doing)?;
    }
    Ok(report)
}

/// On one data set, and on what is below it if that was asked for.
fn inherit_below(here: &Here, request: &Inherit, name: &str) -> Result<()> {
    let doing = |name: &str| Doing::Inherit(request.key.name(), name.into());
    let session = session(here, name, &request.places, &doing(name))?;
    let fail = |name: &str| {
        let doing = doing(name);
        move |e: PoolError| pool_error(doing, e)
    };
    let mut names = vec![name.to_string()];
    if request.recursive && !name.contains('@') {
        let below = lookup::walk_shown(session.pool.mos(), name).map_err(fail(name))?;
        names = below.into_iter().map(|found| found.name).collect();
    }
    for (i, name) in names.iter().enumerate() {
        let mut catalogue = Catalogue::new(&session.pool, None);
        let entry = catalogue.entry(name).map_err(fail(name))?;
        if let Key::Native(prop) = request.key
            && !prop.info().applies.contains(entry.kind)
        {
            // Below others: what does not have it is left out.
            if i > 0 {
                continue;
            }
            return Err(Error::cannot(doing(name), Why::NotApplicable));
        }
        if matches!(request.key, Key::Native(_)) && entry.kind == Kind::Snapshot {
            continue;
        }
        let change = if request.revert { Change::Revert } else { Change::Inherit };
        let done = session.pool.change_property(name, &request.key.name(), change);
        done.map_err(fail(name))?;
    }
    session.close(doing(name))
}
