//! `zfs snapshot rollback clone promote rename hold release holds`.

use std::collections::btree_map::Entry;
use std::collections::{BTreeMap, BTreeSet};

use pool::dsl::lookup::{self, Found};
use pool::props::name::check_entity;
use pool::props::{Kind, Prop, Target};
use pool::{PoolError, Stored};

use super::Here;
use super::bookmarks;
use super::dependents::{InOrder, dependents};
use super::filesystems::{destroy_all, may_snapshot, pool_of, promise, session, take_back};
use super::limits::limits;
use super::naming;
use super::opening::{For, open};
use super::properties::{Assigned, assigned, kind_of, of_new, set_property};
use super::session::{Session, pool_error};
use super::volumes;
use crate::branches::{
    Branch, Fork, Held, Hold, Holds, Promote, Rename, Rollback, Setting, Snapshot,
};
use crate::{Doing, Error, Result, Why};

pub(super) fn change(here: &Here, request: &Branch) -> Result<()> {
    match request {
        Branch::Bookmark(request) => bookmarks::make(here, request),
        Branch::DestroyBookmark(request) => bookmarks::destroy(here, request),
        Branch::Snapshot(request) => snapshot(here, request),
        Branch::Rollback(request) => rollback(here, request),
        Branch::Clone(request) => clone(here, request),
        Branch::Promote(request) => promote(here, request),
        Branch::Rename(request) => rename(here, request),
        Branch::Hold(request) => hold(here, request, true),
        Branch::Release(request) => hold(here, request, false),
    }
}

/// The pool of `name`, which is there; else it cannot be opened.
pub(super) fn opened(here: &Here, name: &str, setting: &Setting, doing: &Doing) -> Result<Session> {
    session(here, name, &setting.places, For::Writing, doing).map_err(|e| match e.why() {
        Some(Why::NoPoolOf(_)) => Error::open(name, Why::NoDataset),
        _ => e,
    })
}

/// Notes what was done, and ends.
pub(super) fn done(session: Session, setting: &Setting, doing: Doing) -> Result<()> {
    session.note(&setting.command).map_err(|e| pool_error(doing.clone(), e))?;
    session.close(doing)
}

fn snapshot(here: &Here, request: &Snapshot) -> Result<()> {
    let Some(first) = request.names.first() else { return Ok(()) };
    let doing = Doing::CreateSnapshot(first.clone());
    let failed = |e| pool_error(doing.clone(), e);
    if let Some(other) = request.names.iter().find(|name| pool_of(name) != pool_of(first)) {
        return Err(Error::cannot(Doing::CreateSnapshot(other.clone()), Why::OtherPool));
    }
    let session =
        opened(here, first.split('@').next().unwrap_or_default(), &request.setting, &doing)?;
    let mos = session.pool.mos();
    let mut names = Vec::new();
    for name in &request.names {
        let (path, snapshot) = name.split_once('@').unwrap_or_default();
        if !request.recursive {
            names.push(name.clone());
            continue;
        }
        let below = lookup::walk_shown(mos, path).map_err(failed)?;
        let heads = below.iter().filter(|found| !found.is_snapshot());
        names.extend(heads.map(|found| format!("{}@{snapshot}", found.name)));
    }
    let mut known = BTreeSet::new();
    names.retain(|name| known.insert(name.clone()));
    let heads: BTreeSet<&str> = names.iter().filter_map(|name| name.split('@').next()).collect();
    if heads.len() < names.len() {
        let message = "cannot create snapshots : multiple snapshots of same fs not allowed";
        return Err(Error::Other(message.into()));
    }
    for name in &names {
        if lookup::find(mos, name).is_ok() {
            let doing = Doing::CreateSnapshot(name.clone());
            return Err(Error::cannot(doing, Why::DatasetExists));
        }
    }
    let doing_all = Doing::CreateSnapshots;
    let target = Target::new(Kind::Snapshot);
    let assigned = assigned(&session.pool, &request.properties, &target, &doing_all)?;
    may_snapshot(&session.pool, &names).map_err(failed)?;
    session.pool.snapshot(&names, &assigned.stored).map_err(failed)?;
    done(session, &request.setting, doing)
}

/// What goes when a file system is rolled back.
struct Newer {
    /// Snapshots and clones, in the order in which they can go.
    datasets: Vec<String>,
    bookmarks: Vec<String>,
}

/// What is newer than the snapshot to which a file system is rolled back, if it may go.
fn newer(session: &Session, request: &Rollback) -> Result<Newer> {
    let name = &request.name;
    let doing = Doing::Rollback(name.clone());
    let failed = |e| pool_error(doing.clone(), e);
    let mos = session.pool.mos();
    let found = lookup::find(mos, name).map_err(failed)?;
    let head = lookup::head_of(mos, &found).map_err(failed)?;
    let all = lookup::snapshots(mos, &head.phys).map_err(failed)?;
    let newer = all.iter().filter(|(_, _, s)| s.creation_txg > found.phys.creation_txg);
    let newer: Vec<String> = newer.map(|(s, _, _)| format!("{}@{s}", head.name)).collect();
    let txg = found.phys.creation_txg.get();
    let marks = bookmarks::newer(session, &head, txg).map_err(failed)?;
    if newer.len() + marks.len() > 0 && !request.newer {
        return Err(Error::cannot(doing, Why::NewerSnapshots([newer, marks].concat())));
    }
    let mut gone = InOrder::default();
    let mut clones = InOrder::default();
    for snapshot in newer {
        let found = lookup::find(mos, &snapshot).map_err(failed)?;
        for dependent in dependents(&session.pool, &found).map_err(failed)? {
            clones.add(dependent.name.clone());
            gone.add(dependent.name);
        }
        gone.add(snapshot);
    }
    let (gone, clones) = (gone.names, clones.names);
    if !clones.is_empty() && !request.clones {
        return Err(Error::cannot(doing, Why::NewerClones(clones)));
    }
    Ok(Newer { datasets: gone, bookmarks: marks })
}

/// The names of data sets that go when a file system is rolled back.
pub(super) fn rolled_away(here: &Here, request: &Rollback) -> Result<Vec<String>> {
    let pool = pool_of(&request.name);
    let session = open(here, pool, &request.setting.places, For::Reading)?;
    Ok(newer(&session, request)?.datasets)
}

fn rollback(here: &Here, request: &Rollback) -> Result<()> {
    let name = &request.name;
    let doing = Doing::Rollback(name.clone());
    let failed = |e| pool_error(doing.clone(), e);
    let session = opened(here, name, &request.setting, &doing)?;
    let Newer { datasets, bookmarks } = newer(&session, request)?;
    destroy_all(&session.pool, &datasets, false).map_err(failed)?;
    session.pool.destroy_bookmarks(&bookmarks).map_err(failed)?;
    session.pool.rollback(name).map_err(failed)?;
    done(session, &request.setting, doing)
}

/// Makes the parents of `name` that are missing.
fn parents(session: &Session, name: &str, doing: &Doing) -> Result<()> {
    let failed = |e| pool_error(doing.clone(), e);
    let mut missing = Vec::new();
    let mut above = name;
    while let Some((parent, _)) = above.rsplit_once('/') {
        if lookup::find_dir(session.pool.mos(), parent).map_err(failed)?.is_some() {
            break;
        }
        missing.push(parent);
        above = parent;
    }
    for parent in missing.iter().rev() {
        let mut props = BTreeMap::new();
        let above = parent.rsplit_once('/').map(|(above, _)| (&session.pool, above));
        naming::complete(above, &mut props).map_err(failed)?;
        let made = session.pool.create_filesystem(parent, props, fs::make_filesystem);
        made.map_err(failed)?;
    }
    Ok(())
}

fn clone(here: &Here, request: &Fork) -> Result<()> {
    let (origin, name) = (&request.origin, &request.name);
    let doing = Doing::Create(name.clone());
    let failed = |e| pool_error(doing.clone(), e);
    let session = opened(here, origin, &request.setting, &Doing::Open(origin.clone()))?;
    let mos = session.pool.mos();
    let found = lookup::find(mos, origin).map_err(failed)?;
    if pool_of(name) != pool_of(origin) {
        let other = pool_of(name).to_string();
        return Err(match here.state.load()?.pool(&other) {
            Some(_) => Error::cannot(doing, Why::PoolsDiffer),
            None => Error::cannot(doing, Why::NoPoolOf(other)),
        });
    }
    if lookup::find_dir(mos, name).map_err(failed)?.is_some() {
        return match request.parents {
            true => Ok(()),
            false => Err(Error::cannot(doing, Why::DatasetExists)),
        };
    }
    let kind = match lookup::kind(mos, &found).map_err(failed)? {
        format::objset::ObjsetType::Zvol => Kind::Volume,
        _ => Kind::Filesystem,
    };
    volumes::no_volume_above(&session.pool, name, &doing)?;
    let (_, encrypted) = kind_of(&session.pool, origin).map_err(failed)?;
    // What is fixed when a data set is made was fixed when its origin was.
    let target = Target { encrypted, ..Target::existing(kind) };
    let assigned = assigned(&session.pool, &request.properties, &target, &doing);
    let Assigned { stored, quotas } = assigned.map_err(of_new)?;
    if request.parents {
        parents(&session, name, &doing)?;
    }
    let (limits, mut props) = limits(stored.into_iter());
    // A size is set while it may be.
    let inside = [Prop::Version.name(), Prop::Volsize.name(), Prop::Readonly.name()];
    let inside = inside.map(|own| props.remove_entry(own)).into_iter().flatten().collect();
    session.pool.clone_snapshot(origin, name, props).map_err(failed)?;
    let complete = set_inside(&session, name, kind, inside, &doing)
        .and_then(|()| automatic(&session, name, kind, limits).map_err(failed))
        .and_then(|limits| promise(&session, name, limits, &quotas, &doing));
    if let Err(e) = complete {
        take_back(session, name, &doing)?;
        return Err(e);
    }
    done(session, &request.setting, doing)
}

/// Sets on a clone what its object set keeps itself.
fn set_inside(
    session: &Session,
    name: &str,
    kind: Kind,
    inside: Vec<(String, Stored)>,
    doing: &Doing,
) -> Result<()> {
    for (property, value) in inside {
        if let (true, Stored::Number(size)) = (property == Prop::Volsize.name(), &value) {
            volumes::resizes(&session.pool, name, *size, doing)?;
        }
        set_property(session, name, kind, &property, value, doing)?;
    }
    Ok(())
}

/// Limits of a clone with what `auto` means for a volume in its place.
fn automatic(
    session: &Session,
    name: &str,
    kind: Kind,
    mut limits: Vec<(String, Stored)>,
) -> std::result::Result<Vec<(String, Stored)>, PoolError> {
    let own = Prop::Refreservation.name();
    for (_, value) in limits.iter_mut().filter(|(limit, _)| limit == own) {
        if kind == Kind::Volume && *value == volumes::AUTO {
            *value = volumes::automatic(&session.pool, name)?;
        }
    }
    Ok(limits)
}

fn promote(here: &Here, request: &Promote) -> Result<()> {
    let name = &request.name;
    let doing = Doing::Promote(name.clone());
    let session = opened(here, name, &request.setting, &doing)?;
    session.pool.promote(name).map_err(|e| pool_error(doing.clone(), e))?;
    done(session, &request.setting, doing)
}

fn rename(here: &Here, request: &Rename) -> Result<()> {
    let (from, to) = (&request.from, &request.to);
    let doing = Doing::Rename(from.clone());
    let failed = |e| pool_error(doing.clone(), e);
    let session = opened(here, from, &request.setting, &Doing::Open(from.clone()))?;
    let mos = session.pool.mos();
    lookup::find(mos, from).map_err(failed)?;
    if let Some((path, snapshot)) = from.split_once('@') {
        // `zfs rename fs@a b` and `.. @b` mean the same file system.
        let (other, new) = match to.split_once('@') {
            Some(("", new)) => (path, new),
            Some((other, new)) => (other, new),
            None => (path, to.as_str()),
        };
        if other != path {
            return Err(Error::cannot(Doing::RenameTo(to.clone()), Why::OtherFilesystem));
        }
        let mut names = vec![(from.clone(), new.to_string())];
        if request.recursive {
            let below = lookup::walk_shown(mos, path).map_err(failed)?;
            let ending = format!("@{snapshot}");
            let others = below.iter().filter(|f| f.name != *from && f.name.ends_with(&ending));
            names.extend(others.map(|f| (f.name.clone(), new.to_string())));
        }
        return match session.pool.rename_snapshots(&names) {
            Ok(()) => done(session, &request.setting, doing),
            Err(PoolError::Exists { .. }) if request.recursive => {
                Err(Error::cannot(doing, Why::ChildSnapshotExists))
            }
            Err(e) => Err(failed(e)),
        };
    }
    if pool_of(to) != pool_of(from) {
        let other = pool_of(to).to_string();
        return Err(match here.state.load()?.pool(&other) {
            Some(_) => Error::cannot(doing, Why::CrossesPools),
            None => Error::cannot(Doing::Create(to.clone()), Why::NoPoolOf(other)),
        });
    }
    if to.strip_prefix(from.as_str()).is_some_and(|rest| rest.starts_with('/')) {
        return Err(Error::cannot(Doing::RenameTo(to.clone()), Why::Descendant));
    }
    if lookup::find_dir(mos, to).map_err(failed)?.is_some() {
        return Err(Error::cannot(doing, Why::DatasetExists));
    }
    let making = Doing::Create(to.clone());
    volumes::no_volume_above(&session.pool, to, &making)?;
    if request.parents {
        parents(&session, to, &making)?;
    }
    session.pool.rename(from, to).map_err(|e| match e {
        PoolError::NoParent { .. } => Error::cannot(making, Why::NoParent),
        e => failed(e),
    })?;
    done(session, &request.setting, doing)
}

/// The pools of the names that were given so far, each with what it was opened for.
type Sessions = BTreeMap<String, (Session, Doing)>;

/// Holds or lets go, each name for itself: what is wrong with one is no matter of the others.
fn hold(here: &Here, request: &Hold, take: bool) -> Result<()> {
    let mut sessions = Sessions::new();
    let mut errors = Vec::new();
    for name in &request.names {
        errors.extend(hold_one(here, request, name, take, &mut sessions).err());
    }
    // As OpenZFS does, what went through as a whole is noted.
    let whole = errors.is_empty();
    for (session, doing) in sessions.into_values() {
        let closed = match whole {
            true => done(session, &request.setting, doing),
            false => session.close(doing),
        };
        errors.extend(closed.err());
    }
    if errors.len() < 2 {
        return errors.pop().map_or(Ok(()), Err);
    }
    let lines: Vec<String> = errors.iter().map(Error::to_string).collect();
    Err(Error::Other(lines.join("\n")))
}

/// Holds what one name means, or lets go of it: that snapshot, or those of that name below.
fn hold_one(
    here: &Here,
    request: &Hold,
    name: &str,
    take: bool,
    sessions: &mut Sessions,
) -> Result<()> {
    let doing = |name: &str| match take {
        true => Doing::Hold(name.into()),
        false => Doing::Release(name.into()),
    };
    let Some((path, snapshot)) = name.split_once('@') else {
        return Err(Error::Other(format!("'{name}' is not a snapshot")));
    };
    check_entity(path.as_bytes()).map_err(|why| Error::open(path, why))?;
    let (session, _) = match sessions.entry(pool_of(path).into()) {
        Entry::Occupied(known) => known.into_mut(),
        Entry::Vacant(new) => {
            let doing = doing(name);
            new.insert((opened(here, path, &request.setting, &doing)?, doing))
        }
    };
    let (pool, mos) = (&session.pool, session.pool.mos());
    let failed = |e| pool_error(doing(name), e);
    lookup::find_in(mos, pool.name(), path).map_err(failed)?;
    let found: Vec<Found> = if request.recursive {
        let ending = format!("@{snapshot}");
        let below = lookup::walk_shown(mos, path).map_err(failed)?;
        below.into_iter().filter(|found| found.name.ends_with(&ending)).collect()
    } else {
        match lookup::find_in(mos, pool.name(), name) {
            Err(PoolError::NoDataset { .. }) => Vec::new(),
            found => vec![found.map_err(failed)?],
        }
    };
    if found.is_empty() {
        return Err(Error::cannot(doing(name), Why::NoDataset));
    }
    let mut names = Vec::new();
    for found in found {
        // Of those below, the ones that have the tag are let go.
        let all = take || !request.recursive;
        let tags = if all { Vec::new() } else { pool.holds(&found).map_err(failed)? };
        if all || tags.iter().any(|(tag, _)| *tag == request.tag) {
            names.push(found.name);
        }
    }
    let done_so = match take {
        true => pool.hold(&names, &request.tag),
        false if names.is_empty() => Err(PoolError::NoTag { name: name.into() }),
        false => pool.release(&names, &request.tag),
    };
    done_so.map_err(|e| match e {
        PoolError::Exists { name } => Error::cannot(doing(&name), Why::TagExists),
        PoolError::NoTag { name } => Error::cannot(doing(&name), Why::NoTag),
        e => failed(e),
    })
}

pub(super) fn holds(here: &Here, request: &Hold) -> Result<Holds> {
    let mut report = Holds::default();
    for name in &request.names {
        match holds_of(here, request, name) {
            Ok(mut held) => report.holds.append(&mut held),
            Err(e) => report.errors.push(e),
        }
    }
    Ok(report)
}

fn holds_of(here: &Here, request: &Hold, name: &str) -> Result<Vec<Held>> {
    let doing = Doing::Open(name.into());
    let failed = |e| pool_error(doing.clone(), e);
    let none = || Error::open(name, Why::NoDataset);
    let session = open(here, pool_of(name), &request.setting.places, For::Reading);
    let session = session.map_err(|e| if e.why() == Some(&Why::NoPool) { none() } else { e })?;
    let (path, snapshot) = name.split_once('@').unwrap_or_default();
    let mos = session.pool.mos();
    let found = match request.recursive {
        true => lookup::walk_shown(mos, path).map_err(failed)?,
        false => vec![lookup::find(mos, name).map_err(failed)?],
    };
    let ending = format!("@{snapshot}");
    let mut out = Vec::new();
    for found in found.iter().filter(|found| found.name.ends_with(&ending)) {
        for (tag, since) in session.pool.holds(found).map_err(failed)? {
            out.push(Held { name: found.name.clone(), tag, since });
        }
    }
    Ok(out)
}

#[cfg(test)]
mod tests {
    use rt::sync::Arc;
    use testkit::temp_dir;

    use super::*;
    use crate::local::held::tests::mirror_and_spare;
    use crate::local::{Held, Local};
    use crate::state::StateFile;
    use crate::{Engine, datasets};

    /// As OpenZFS does it. Seen red: two names of one file system, where it was one name twice.
    #[test]
    fn a_snapshot_that_is_named_twice_is_taken_once() {
        let (held, dir) = (Arc::new(Held::default()), temp_dir());
        let state = StateFile::new(dir.path().join("pools"));
        let (pool, _images) = mirror_and_spare(&held, state.clone());
        let mut engine = Local::new(state.clone()).holding(held.clone());
        let create = datasets::Create { name: "tank/a".into(), ..Default::default() };
        drop(engine.dataset_create(&create).expect("a file system"));
        let mut take = |names: [&str; 2], recursive| {
            let names = names.map(String::from).to_vec();
            engine.dataset_branch(&Branch::Snapshot(Snapshot {
                names,
                recursive,
                ..Snapshot::default()
            }))
        };
        take(["tank/a@one", "tank/a@one"], false).expect("a snapshot");
        take(["tank@two", "tank/a@two"], true).expect("snapshots");
        let refused = take(["tank/a@three", "tank/a@four"], false);
        assert!(refused.is_err_and(|e| e.to_string().contains("multiple snapshots")));
        let all = lookup::walk_shown(pool.mos(), "tank").expect("data sets");
        assert_eq!(all.iter().filter(|found| found.is_snapshot()).count(), 3);
        drop(pool);
        assert_eq!(held.close(&state).len(), 0);
    }
}
