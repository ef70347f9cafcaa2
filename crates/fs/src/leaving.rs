//! Names that are taken away: of files, and of empty directories.
//!
//! The one idea: all that can be found out is found out while the name is there, so that it goes as a whole, with what it led to
//! where it was the last one, or stays. What becomes of that is for [`super::removed`].

use dmu::{Object, Tx, Zap};
use rt::sync::Arc;

use crate::attrs::{self, Attrs, mode};
use crate::error::{FsError, Result, shown};
use crate::filesystem::Filesystem;
use crate::locks::Locked;
use crate::names::DirEntry;
use crate::protected::Change;
use crate::stable::Gone;

/// An object that is about to lose a name.
pub(crate) struct Leaving {
    pub(crate) gone: Gone,
    object: Arc<Object>,
    /// Who knows its number uses it, also if it is not open.
    known_is_used: bool,
    /// What goes with it, if it goes.
    hidden: Vec<Arc<Object>>,
}

impl Filesystem {
    /// Takes the name of something that is not a directory away; frees it with its last name.
    pub fn unlink(&self, dir: u64, name: &[u8]) -> Result<()> {
        let (found, locks) = self.lock_entry(dir, name)?;
        let tx = self.enter_to_remove(Some(found.object))?;
        let gone = self.unlink_locked(&tx, dir, name, &found)?;
        self.tell_removed(&tx, dir, &found.name, gone);
        drop((tx, locks));
        self.done(dir)
    }

    fn unlink_locked(&self, tx: &Tx<'_>, dir: u64, name: &[u8], found: &DirEntry) -> Result<Gone> {
        let object = self.object(found.object)?;
        let attrs = self.attrs_of(&object)?;
        if attrs.is_dir() {
            return Err(FsError::IsADirectory { path: shown(name) });
        }
        self.lose_entry(tx, dir, &found.name, object, &attrs)
    }

    /// Takes the entry of an object out of a directory; with its last one it goes.
    fn lose_entry(
        &self,
        tx: &Tx<'_>,
        dir: u64,
        name: &[u8],
        object: Arc<Object>,
        attrs: &Attrs,
    ) -> Result<Gone> {
        self.permit_to(dir, Change::Lose)?;
        self.permit(attrs, Change::Leave, String::from_utf8_lossy(name))?;
        let leaving = self.leaving(object, attrs, false)?;
        let change = || {
            self.remove_entry(tx, dir, name, attrs.is_dir())?;
            self.lose_name(tx, leaving)
        };
        // The log knows nothing of half of it.
        change().inspect_err(|_| self.tell_untold_names(tx))
    }

    /// What an object with these attributes takes with it when it loses a name, or its name leads to something else from now on.
    /// What cannot be read is found out while the name is there yet.
    pub(crate) fn leaving(
        &self,
        object: Arc<Object>,
        attrs: &Attrs,
        is_replaced: bool,
    ) -> Result<Leaving> {
        let gone = Gone::of(object.number(), attrs);
        let hidden = if gone.last { self.hidden_of(attrs)? } else { Vec::new() };
        // Who has looked up a name that is always there finds something to open by it, however often that is replaced.
        let lasts = is_replaced && self.keeps_orphans();
        let known_is_used = lasts || !matches!(attrs.kind(), mode::FILE | mode::SYMLINK);
        Ok(Leaving { gone, object, known_is_used, hidden })
    }

    /// A name that led to an object does no more; with the last one it goes.
    pub(crate) fn lose_name(&self, tx: &Tx<'_>, leaving: Leaving) -> Result<Gone> {
        let Leaving { gone, object, known_is_used, hidden } = leaving;
        if gone.last {
            self.free_object(tx, &object, known_is_used, &hidden)?;
        } else {
            self.change_znode(tx, &object, |znode| {
                znode.links -= 1;
                znode.ctime = attrs::now();
            })?;
        }
        Ok(gone)
    }

    /// Takes an entry out of a directory.
    pub(crate) fn remove_entry(
        &self,
        tx: &Tx<'_>,
        dir: u64,
        name: &[u8],
        is_dir: bool,
    ) -> Result<()> {
        let zap = self.directory(dir)?;
        if !zap.remove(tx, name)? {
            return Err(FsError::NotFound { path: shown(name) });
        }
        self.note_lost_name();
        self.count_entries(tx, zap.object(), -1, -i64::from(is_dir))
    }

    /// Removes an empty directory.
    pub fn rmdir(&self, dir: u64, name: &[u8]) -> Result<()> {
        let (found, locks) = self.lock_entry(dir, name)?;
        let tx = self.enter_to_remove(Some(found.object))?;
        let object = self.object(found.object)?;
        let attrs = self.attrs_of(&object)?;
        if !attrs.is_dir() {
            return Err(FsError::NotADirectory { path: shown(name) });
        }
        if Zap::of(object.clone())?.count()? > 0 {
            return Err(FsError::NotEmpty { path: shown(name) });
        }
        let gone = self.lose_entry(&tx, dir, &found.name, object, &attrs)?;
        self.tell_removed(&tx, dir, &found.name, gone);
        drop((tx, locks));
        self.done(dir)
    }

    /// Locks a directory and what `name` in it leads to.
    fn lock_entry(&self, dir: u64, name: &[u8]) -> Result<(DirEntry, Vec<Locked<'_>>)> {
        loop {
            let found = self.must_find(dir, name)?;
            let locks = self.lock_all(&[dir, found.object]);
            // Somebody may have been faster, and be it with its spelling.
            if self.lookup(dir, name)?.as_ref() == Some(&found) {
                return Ok((found, locks));
            }
        }
    }
}
