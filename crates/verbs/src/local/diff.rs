//! `zfs diff`.

use fs::{Filesystem, Told, diff};
use pool::PoolError;
use pool::dsl::lookup::{self, Found};

use super::Here;
use super::opening::{For, open};
use super::session::{Session, pool_error};
use crate::datasets::Diff;
use crate::{Doing, Error, Result, Why};

/// Data sets that are followed from a clone to its origin.
const ORIGINS_MAX: usize = 1 << 10;

fn cannot(why: impl std::fmt::Display) -> Error {
    Error::Other(format!("Unable to obtain diffs: {why}"))
}

/// Tells what differs, until `sink` gives false.
pub(super) fn tell(here: &Here, request: &Diff, sink: &mut dyn FnMut(Told) -> bool) -> Result<()> {
    let (from, to) = (&request.from, &request.to);
    let head = |name: &str| name.split('@').next().unwrap_or_default().to_string();
    let (from_head, to_head) = (head(from), head(to));
    let pool = to_head.split('/').next().unwrap_or_default();
    let session = open(here, pool, &request.places, For::Reading).map_err(|e| match e.why() {
        Some(Why::NoPool) => Error::open(&*to_head, Why::NoDataset),
        _ => e,
    })?;
    let fail = |e| pool_error(Doing::Open(to.clone()), e);
    // What is on disk is compared: of a pool that is held not all is there yet.
    if session.held && session.pool.has_changes() {
        session.sync().map_err(fail)?;
    }
    if from_head != to_head {
        related(&session, &to_head)?;
    }
    let find = |name: &str| {
        lookup::find_in(session.pool.mos(), session.pool.name(), name).map_err(|e| match e {
            PoolError::NoDataset { .. } => cannot("No such file or directory"),
            e => pool_error(Doing::Open(name.into()), e),
        })
    };
    let (earlier, later) = (find(from)?, find(to)?);
    if !is_before(&session, &later, &earlier).map_err(fail)? {
        return Err(cannot("\n   Not an earlier snapshot from the same fs"));
    }
    let open = |name| Filesystem::open(&session.pool, name).map_err(cannot);
    let (before, now) = (open(from)?, open(to)?);
    diff(&before, &now, earlier.phys.creation_txg.get(), sink).map_err(cannot)
}

/// What is compared with a snapshot of another must be a clone.
fn related(session: &Session, name: &str) -> Result<()> {
    let other = "Not an earlier snapshot from the same fs: invalid name";
    let mos = session.pool.mos();
    let found = match lookup::find(mos, name) {
        Ok(found) => found,
        Err(PoolError::NoDataset { .. }) => {
            let missing = Error::open(name, Why::NoDataset);
            return Err(Error::Other(format!("{missing}\n{other}")));
        }
        Err(e) => return Err(pool_error(Doing::Open(name.into()), e)),
    };
    let origin = found.dir.origin_object.get();
    let origin = lookup::snapshot_of_object(mos, session.pool.name(), origin)
        .map_err(|e| pool_error(Doing::Open(name.into()), e))?;
    if origin.is_some() { Ok(()) } else { Err(Error::Other(other.into())) }
}

/// Is the snapshot `earlier` in the past of `later`?
fn is_before(
    session: &Session,
    later: &Found,
    earlier: &Found,
) -> std::result::Result<bool, PoolError> {
    let mos = session.pool.mos();
    let txg = earlier.phys.creation_txg.get();
    if later.is_snapshot() && txg >= later.phys.creation_txg.get() {
        return Ok(false);
    }
    let mut dir = later.dir_object;
    for _ in 0..ORIGINS_MAX {
        if dir == earlier.dir_object {
            return Ok(true);
        }
        let origin = match mos.dir(dir)?.origin_object.get() {
            0 => return Ok(false),
            origin if origin == earlier.object => return Ok(true),
            origin => mos.dataset(origin)?,
        };
        if txg >= origin.creation_txg.get() {
            return Ok(false);
        }
        dir = origin.dir_object.get();
    }
    Ok(false)
}

#[cfg(test)]
mod tests {
    use fs::{NewObject, Who, mode};
    use rt::sync::Arc;
    use testkit::temp_dir;

    use super::*;
    use crate::branches::{Branch, Snapshot};
    use crate::local::Held;
    use crate::local::held::tests::mirror_and_spare;
    use crate::state::StateFile;
    use crate::{Engine, Local};

    /// Seen red: of what was changed in the last seconds, which was not on disk yet, nothing was told.
    #[test]
    fn what_is_not_on_disk_yet_is_told_too() {
        let (held, dir) = (Arc::new(Held::default()), temp_dir());
        let state = StateFile::new(dir.path().join("pools"));
        let (pool, _images) = mirror_and_spare(&held, state.clone());
        let mut engine = Local::new(state.clone()).holding(held.clone());
        let snapshot = Snapshot { names: vec!["tank@s".into()], ..Snapshot::default() };
        engine.dataset_branch(&Branch::Snapshot(snapshot)).expect("a snapshot");
        let system = held.system("tank").expect("it is held").expect("a file system");
        let new = NewObject::of(mode::FILE | 0o644, Who { uid: 0, gid: 0 });
        system.fs.create(system.fs.root(), b"file", &new).expect("a file");
        drop(system);
        let request = Diff { from: "tank@s".into(), to: "tank".into(), places: Vec::new() };
        let mut paths = Vec::new();
        let mut sink = |told| {
            if let Told::Difference(difference) = told {
                paths.push(difference.path);
            }
            true
        };
        engine.dataset_diff(&request, &mut sink).expect("differences");
        paths.sort();
        assert_eq!(paths, [b"/".to_vec(), b"/file".to_vec()]);
        drop(pool);
        assert_eq!(held.close(&state).len(), 0);
    }
}
