//! `zfs bookmark`, and `zfs destroy` of bookmarks.

use pool::PoolError;
use pool::dsl::lookup::{self, Found};

use super::Here;
use super::branches::{done, opened};
use super::filesystems::pool_of;
use super::session::{Session, pool_error};
use crate::branches::{DestroyBookmark, NewBookmark};
use crate::{Doing, Error, Result, Why};

/// Full names of the bookmarks of `head` that are newer than a txg, oldest first.
pub(super) fn newer(
    session: &Session,
    head: &Found,
    txg: u64,
) -> std::result::Result<Vec<String>, PoolError> {
    let marks = session.pool.bookmarks(head)?.into_iter();
    let newer = marks.filter(|mark| mark.phys.creation_txg > txg);
    let name = |name: &[u8]| format!("{}#{}", head.name, String::from_utf8_lossy(name));
    Ok(newer.map(|mark| name(&mark.name)).collect())
}

pub(super) fn make(here: &Here, request: &NewBookmark) -> Result<()> {
    let (source, name) = (&request.source, &request.name);
    let doing = Doing::CreateBookmark(name.clone());
    let missing = |why| Error::open(source, why);
    let session = opened(here, source, &request.setting, &Doing::Open(source.clone()))?;
    if source.contains('@') {
        lookup::find(session.pool.mos(), source).map_err(|_| missing(Why::NoDataset))?;
    } else if !matches!(session.pool.find_bookmark(source), Ok(Some(_))) {
        return Err(missing(Why::NoBookmark));
    }
    let path = name.split('#').next().unwrap_or_default();
    if pool_of(path) != pool_of(source) || lookup::find(session.pool.mos(), path).is_err() {
        return Err(Error::cannot(doing, Why::NoDataset));
    }
    let made = session.pool.bookmark(&[(name.clone(), source.clone())]);
    made.map_err(|e| match e {
        PoolError::Exists { .. } => Error::cannot(doing.clone(), Why::BookmarkExists),
        PoolError::NoAncestor { .. } => Error::cannot(doing.clone(), Why::NoAncestor),
        e => pool_error(doing.clone(), e),
    })?;
    done(session, &request.setting, doing)
}

pub(super) fn destroy(here: &Here, request: &DestroyBookmark) -> Result<()> {
    let name = &request.name;
    let doing = Doing::DestroyBookmark(name.clone());
    let missing = || Error::Other(format!("bookmark '{name}' does not exist."));
    let session = opened(here, name, &request.setting, &doing).map_err(|e| match e.why() {
        Some(Why::NoDataset) => missing(),
        _ => e,
    })?;
    if !matches!(session.pool.find_bookmark(name), Ok(Some(_))) {
        return Err(missing());
    }
    let gone = session.pool.destroy_bookmarks(std::slice::from_ref(name));
    gone.map_err(|e| pool_error(doing.clone(), e))?;
    done(session, &request.setting, doing)
}
