//! `zfs list` and `zfs get`: which data sets, and what of them.

use std::collections::BTreeSet;

use pool::props::{Key, Kind, Kinds, Prop, Value};
use pool::{Pool, Stored};

use super::catalogue::{Catalogue, Dir, Entry};
use super::session::pool_error;
use crate::datasets::{DatasetReport, Query, QueryReport};
use crate::{Doing, Error, Result, Why};
use rt::sync::Arc;

/// Answers for the data sets of one pool. `name` is a data set or snapshot of it; `None` all.
pub(crate) fn answer(
    catalogue: &mut Catalogue<'_>,
    name: Option<&str>,
    query: &Query,
    report: &mut QueryReport,
) {
    let shown = name.unwrap_or(catalogue.pool.name()).to_string();
    if let Err(error) = collect(catalogue, &shown, name.is_some(), query, report) {
        report.errors.push(error);
    }
}

fn collect(
    catalogue: &mut Catalogue<'_>,
    name: &str,
    named: bool,
    query: &Query,
    report: &mut QueryReport,
) -> Result<()> {
    let fail = |error| pool_error(Doing::Open(name.into()), error);
    let missing = || Error::open(name, Why::NoDataset);
    let entry = match name.split_once('#') {
        None => catalogue.entry(name).map_err(fail)?,
        Some((base, _)) => {
            let head = catalogue.entry(base).map_err(|_| missing())?;
            let marks = catalogue.bookmarks(&head).map_err(fail)?;
            marks.into_iter().find(|mark| mark.found.name == name).ok_or_else(missing)?
        }
    };
    let wanted = query.kinds.contains(entry.kind);
    if named && query.kinds_given && !wanted && query.depth.is_none() {
        return Err(Error::open(name, Why::WrongKind));
    }
    if wanted || named && !query.kinds_given && query.depth.is_none() {
        report.datasets.push(tell(catalogue, &entry, query).map_err(fail)?);
    }
    let depth = query.depth.unwrap_or(0);
    if matches!(entry.kind, Kind::Filesystem | Kind::Volume) && depth > 0 {
        below(catalogue, &entry, depth, query, report);
    }
    Ok(())
}

/// Directories below a data set.
struct Below {
    /// Those that come next, each with the levels below it.
    stack: Vec<(Arc<Dir>, usize)>,
    /// Those that were found: only a damaged pool has one twice, which may be below itself.
    met: BTreeSet<u64>,
}

/// Reports what is below a data set: its snapshots and bookmarks, then its children and what is
/// below those. What cannot be read is said, and the rest goes on.
fn below(
    catalogue: &mut Catalogue<'_>,
    head: &Entry,
    depth: usize,
    query: &Query,
    report: &mut QueryReport,
) {
    let mut below = Below { stack: Vec::new(), met: BTreeSet::from([head.dir.object]) };
    inside(catalogue, head, depth, query, report, &mut below);
    while let Some((dir, left)) = below.stack.pop() {
        let fail = |error| pool_error(Doing::Open(dir.name.clone()), error);
        let entry = match catalogue.head(&dir) {
            Ok(Some(entry)) => entry,
            Ok(None) => continue,
            Err(error) => {
                if !is_gone(catalogue, &dir.name) {
                    report.errors.push(fail(error));
                }
                continue;
            }
        };
        if query.kinds.contains(entry.kind) {
            match tell(catalogue, &entry, query) {
                Ok(told) => report.datasets.push(told),
                Err(_) if is_gone(catalogue, &dir.name) => continue,
                Err(error) => report.errors.push(fail(error)),
            }
        }
        if left > 0 {
            inside(catalogue, &entry, left, query, report, &mut below);
        }
    }
}

/// Was the data set destroyed, or renamed, while it was looked at?
fn is_gone(catalogue: &Catalogue<'_>, name: &str) -> bool {
    let found = pool::dsl::lookup::find(catalogue.pool.mos(), name);
    matches!(found, Err(pool::PoolError::NoDataset { .. }))
}

/// What is one level further in.
fn inside(
    catalogue: &mut Catalogue<'_>,
    head: &Entry,
    left: usize,
    query: &Query,
    report: &mut QueryReport,
    below: &mut Below,
) {
    let name = &head.found.name;
    let mut attempt = || -> std::result::Result<(), pool::PoolError> {
        let mut entries = Vec::new();
        if query.kinds.contains(Kind::Snapshot) {
            entries.extend(catalogue.snapshots(head)?);
        }
        if query.kinds.contains(Kind::Bookmark) {
            entries.extend(catalogue.bookmarks(head)?);
        }
        for entry in entries {
            report.datasets.push(tell(catalogue, &entry, query)?);
        }
        let (mut again, mut new) = (None, Vec::new());
        for child in catalogue.children(&head.dir)? {
            match below.met.insert(child.object) {
                true => new.push((child, left - 1)),
                false => again = Some(child.object),
            }
        }
        below.stack.extend(new.into_iter().rev());
        let Some(again) = again else { return Ok(()) };
        let detail = format!("object {again} is a child of {name}, and was met before");
        Err(pool::PoolError::Damaged { what: "DSL directory", detail })
    };
    if let Err(error) = attempt()
        && !is_gone(catalogue, name)
    {
        report.errors.push(pool_error(Doing::Open(name.clone()), error));
    }
}

/// One data set with what was asked for.
fn tell(
    catalogue: &mut Catalogue<'_>,
    entry: &Entry,
    query: &Query,
) -> std::result::Result<DatasetReport, pool::PoolError> {
    let mut keys = query.keys.clone();
    if query.all {
        keys.extend(Prop::all().filter(|prop| prop.is_visible()).map(Key::Native));
        keys.extend(catalogue.user_keys(entry));
    }
    let mut properties = Vec::new();
    for key in keys {
        if matches!(key, Key::Native(Prop::Name | Prop::Type)) {
            continue;
        }
        if let Some((value, source)) = catalogue.property(entry, &key)? {
            properties.push((key, value, source));
        }
    }
    // The names of types stand for themselves.
    let received = received(catalogue.pool, entry)?;
    Ok(DatasetReport {
        name: entry.found.name.clone(),
        kind: entry.kind,
        createtxg: entry.found.phys.creation_txg.get(),
        properties,
        received,
    })
}

/// What a data set or snapshot has from a stream, whether or not it holds.
fn received(pool: &Pool, entry: &Entry) -> std::result::Result<Vec<(Key, Value)>, pool::PoolError> {
    let zap = match entry.kind {
        Kind::Bookmark => 0,
        Kind::Snapshot => entry.found.phys.props_object.get(),
        _ => entry.dir.phys.props_zap_object.get(),
    };
    if zap == 0 {
        return Ok(Vec::new());
    }
    let own = pool::dsl::property::local(pool.mos(), zap)?.into_iter();
    let received = own.filter_map(|(name, value)| {
        let key = Key::named(name.strip_suffix("$recvd")?.as_bytes())?;
        let value = match value {
            Stored::Number(number) => Value::Number(number),
            Stored::Text(text) => Value::Text(text),
        };
        Some((key, value))
    });
    Ok(received.collect())
}

/// True if snapshots belong to the kinds, where the pool says that they are listed by default.
pub(crate) fn with_snapshots(kinds: Kinds, given: bool, listed: bool) -> Kinds {
    if given || !listed { kinds } else { kinds.with(Kind::Snapshot) }
}
