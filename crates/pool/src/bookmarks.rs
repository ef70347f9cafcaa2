//! What commands ask of bookmarks. Each request is one task in one txg, done for all or for none.

use format::bookmark::Bookmark;
use format::features::Feature;

use crate::dsl::bookmark::{self, Mark};
use crate::dsl::lookup::{self, DEPTH_MAX, Found};
use crate::error::{PoolError, Result};
use crate::mos::Mos;
use crate::pool::Pool;
use crate::space::Need;
use crate::sync::TaskContext;

/// The head that a bookmark is one of, and the bookmark's own name.
fn split<'a>(mos: &Mos, name: &'a str) -> Result<(Found, &'a str)> {
    let none = || PoolError::Invalid(format!("'{name}' is not the name of a bookmark"));
    let (path, own) = name.split_once('#').ok_or_else(none)?;
    Ok((lookup::find(mos, path)?, own))
}

/// Was the snapshot of `txg` in directory `dir` taken in the past of `head`?
fn is_past(mos: &Mos, head: &Found, dir: u64, txg: u64) -> Result<bool> {
    let (mut at, mut until) = (head.dir_object, u64::MAX);
    for _ in 0..DEPTH_MAX {
        if at == dir {
            return Ok(txg <= until);
        }
        let origin = mos.dir(at)?.origin_object.get();
        if origin == 0 {
            return Ok(false);
        }
        let origin = mos.dataset(origin)?;
        (at, until) = (origin.dir_object.get(), origin.creation_txg.get());
    }
    Ok(false)
}

impl Pool {
    /// The bookmarks of a head, oldest first.
    pub fn bookmarks(&self, head: &Found) -> Result<Vec<Mark>> {
        bookmark::of(&self.mos, head.object)
    }

    /// The bookmark `name` (`pool/a#b`); `None`: there is none.
    pub fn find_bookmark(&self, name: &str) -> Result<Option<Mark>> {
        let (head, own) = split(&self.mos, name)?;
        bookmark::find(&self.mos, head.object, own)
    }

    /// Makes bookmarks: pairs of a new name, and the snapshot or bookmark that it is made of.
    pub fn bookmark(&self, pairs: &[(String, String)]) -> Result<()> {
        let pairs = pairs.to_vec();
        self.task_within(Need::New(1).times(pairs.len()), move |cx| {
            let mut made = Vec::new();
            for (name, source) in &pairs {
                made.push(cx.may_bookmark(name, source)?);
            }
            for (head, own, phys) in made {
                cx.making.add_bookmark(head, own.as_bytes(), &phys)?;
            }
            Ok(())
        })
    }

    /// Destroys bookmarks; those that are not there are gone already.
    pub fn destroy_bookmarks(&self, names: &[String]) -> Result<()> {
        let names = names.to_vec();
        self.task_within(Need::Free, move |cx| {
            let mos = cx.making.mos;
            for name in &names {
                cx.unfrozen(&split(mos, name)?.0)?;
            }
            for name in &names {
                let (head, own) = split(mos, name)?;
                if let Some(mark) = bookmark::find(mos, head.object, own)? {
                    cx.ledger.destroy_bookmark(head.object, &mark)?;
                }
            }
            Ok(())
        })
    }
}

impl TaskContext<'_> {
    /// The head, the own name and the words of a bookmark that is to be made.
    fn may_bookmark(&self, name: &str, source: &str) -> Result<(u64, String, Bookmark)> {
        let mos = self.making.mos;
        if !self.making.features.is_enabled(Feature::Bookmarks)? {
            return Err(PoolError::Invalid("the feature bookmarks is not enabled".into()));
        }
        let (head, own) = split(mos, name)?;
        lookup::fits_name(name.len())?;
        self.unfrozen(&head)?;
        if bookmark::find(mos, head.object, own)?.is_some() {
            return Err(PoolError::Exists { name: name.into() });
        }
        let missing = || PoolError::NoDataset { name: source.into() };
        let (dir, phys) = match source.contains('@') {
            true => {
                let snapshot = lookup::find(mos, source)?;
                (snapshot.dir_object, self.making.bookmark_of(snapshot.object)?)
            }
            false => {
                let (of, own) = split(mos, source)?;
                let mark = bookmark::find(mos, of.object, own)?.ok_or_else(missing)?;
                (of.dir_object, Bookmark { redaction_object: 0, ..mark.phys })
            }
        };
        if !is_past(mos, &head, dir, phys.creation_txg)? {
            return Err(PoolError::NoAncestor { name: source.into() });
        }
        Ok((head.object, own.into(), phys))
    }
}
