//! What is promised to be stable before its txg would be: each change tells what a replay needs to do it again.
//!
//! The one idea: a change tells with its locks still held, as its last step, or before anybody can find what it has
//! named; so what is told is in the order in which it happened. Nobody tells anything before somebody has asked for the
//! first time.
//! FORMAT: section 12.3.

use dmu::{Object, Tx};
use format::zil::{Create, Record, RecordKind, Setattr, SetattrMask, build};
use format::znode::Time;
use pool::{LogChange, SyncMode};
use rt::sync::Arc;

use crate::attrs::{Attrs, mode};
use crate::error::Result;
use crate::filesystem::Filesystem;

impl Filesystem {
    /// Returns when all changes made to an object so far are on stable storage, and all that they depend on:
    /// its names, the directories above it. One that has lost its last name is no error. Who waits together waits
    /// for one write of the intent log. What the property `sync` says is obeyed.
    ///
    /// # Errors
    /// A pool that is suspended.
    pub fn fsync(&self, object: u64) -> Result<()> {
        let promised = {
            let _lock = self.lock(object);
            self.pool.promise(&self.dataset, object)?
        };
        Ok(self.pool.keep(&self.dataset, promised)?)
    }

    /// A change of `object` is done, and its locks are free: is it to be stable at once?
    pub(crate) fn done(&self, object: u64) -> Result<()> {
        match self.dataset.sync_mode() {
            SyncMode::Always => self.fsync(object),
            SyncMode::Standard | SyncMode::Disabled => Ok(()),
        }
    }

    fn tell_names(&self, tx: &Tx<'_>, kind: RecordKind, record: &Record<'_>) {
        let change = build::encode(kind, record).map_or(LogChange::UntoldNames, LogChange::Names);
        self.dataset.note_change(tx, change);
    }

    fn tell_object(&self, tx: &Tx<'_>, object: u64, kind: RecordKind, record: &Record<'_>) {
        let change = match build::encode(kind, record) {
            Some(bytes) => LogChange::Object(object, bytes),
            None => LogChange::Untold(object),
        };
        self.dataset.note_change(tx, change);
    }

    /// An object was made under a name, with so many bytes of contents.
    pub(crate) fn tell_made(
        &self,
        tx: &Tx<'_>,
        dir: u64,
        name: &[u8],
        object: &Arc<Object>,
        size: u64,
    ) -> Result<()> {
        if !self.dataset.records_changes() {
            return Ok(());
        }
        let attrs = self.attrs_of(object)?;
        let record = Record::Create(Box::new(Create {
            directory: dir,
            object: object.number(),
            slots: object.header()?.slots() as u16,
            mode: attrs.mode,
            uid: attrs.uid,
            gid: attrs.gid,
            generation: attrs.gen_txg,
            crtime: words(attrs.crtime),
            rdev: attrs.rdev.unwrap_or(0),
            name,
            target: attrs.target.as_deref(),
            xvattr: None,
            acl: None,
        }));
        let kind = match attrs.kind() {
            mode::DIR => RecordKind::Mkdir,
            mode::SYMLINK => RecordKind::Symlink,
            _ => RecordKind::Create,
        };
        self.tell_names(tx, kind, &record);
        if size > 0 {
            self.tell_written(tx, object.number(), 0, size);
        }
        Ok(())
    }

    /// A name was taken away; `last`: of an object that has no other.
    pub(crate) fn tell_removed(&self, tx: &Tx<'_>, dir: u64, name: &[u8], gone: Gone) {
        if !self.dataset.records_changes() {
            return;
        }
        let kind = if gone.is_dir { RecordKind::Rmdir } else { RecordKind::Remove };
        self.tell_names(tx, kind, &Record::Remove { directory: dir, name });
        self.tell_gone(tx, gone);
    }

    fn tell_gone(&self, tx: &Tx<'_>, gone: Gone) {
        if gone.last {
            self.dataset.note_change(tx, LogChange::Gone(gone.object));
        }
    }

    pub(crate) fn tell_linked(&self, tx: &Tx<'_>, dir: u64, name: &[u8], object: u64) {
        if self.dataset.records_changes() {
            let record = Record::Link { directory: dir, object, name };
            self.tell_names(tx, RecordKind::Link, &record);
        }
    }

    /// An object was moved: from directory and name to directory and name, in the place of another, if there was one.
    pub(crate) fn tell_moved(
        &self,
        tx: &Tx<'_>,
        object: u64,
        (from, name): (u64, &[u8]),
        (to, new_name): (u64, &[u8]),
        gone: Option<Gone>,
    ) {
        if !self.dataset.records_changes() {
            return;
        }
        self.dataset.note_change(tx, LogChange::Moving(object));
        self.tell_names(tx, RecordKind::Rename, &Record::Rename { from, to, name, new_name });
        gone.into_iter().for_each(|gone| self.tell_gone(tx, gone));
    }

    pub(crate) fn tell_written(&self, tx: &Tx<'_>, object: u64, offset: u64, length: u64) {
        self.dataset.note_change(tx, LogChange::Written { object, offset, length });
    }

    /// Bytes were cut out of a file; a length of 0: all from `offset` on, or it has grown up to there. Not of one that has
    /// lost its last name: a replay removes it before, and OpenZFS's would end there.
    pub(crate) fn tell_cut(&self, tx: &Tx<'_>, object: u64, offset: u64, length: u64) {
        if self.dataset.records_changes() {
            let record = Record::Truncate { object, offset, length };
            self.tell_object(tx, object, RecordKind::Truncate, &record);
        }
    }

    /// Attributes have changed; of one that has lost its last name nobody is told.
    pub(crate) fn tell_attrs(&self, tx: &Tx<'_>, object: u64, before: &Attrs, after: &Attrs) {
        if !self.dataset.records_changes() || after.links == 0 {
            return;
        }
        // What a replay would make of it.
        let mut again = before.clone();
        let mut mask = 0;
        if before.mode != after.mode {
            again.set_mode(after.mode as u32);
            mask |= SetattrMask::MODE;
        }
        for (old, new, bit) in [
            (&mut again.znode.uid, after.uid, SetattrMask::UID),
            (&mut again.znode.gid, after.gid, SetattrMask::GID),
        ] {
            mask |= if *old != new { bit } else { 0 };
            *old = new;
        }
        for (old, new, bit) in [
            (&mut again.znode.atime, after.atime, SetattrMask::ATIME),
            (&mut again.znode.mtime, after.mtime, SetattrMask::MTIME),
        ] {
            mask |= if *old != new { bit } else { 0 };
            *old = new;
        }
        if mask == 0 && before.ctime != after.ctime {
            // That it was touched is all: the time of access that it has, given anew. Its mode would take a list with it.
            mask = SetattrMask::ATIME;
        }
        again.ctime = after.ctime;
        if again != *after || after.uid >> 32 != 0 || after.gid >> 32 != 0 {
            self.dataset.note_change(tx, LogChange::Untold(object));
        } else if mask != 0 {
            let record = Record::Setattr(Box::new(Setattr {
                object,
                mask,
                mode: after.mode,
                uid: after.uid,
                gid: after.gid,
                size: after.size,
                atime: words(after.atime),
                mtime: words(after.mtime),
                xvattr: None,
            }));
            self.tell_object(tx, object, RecordKind::Setattr, &record);
        }
    }

    /// Names have changed in a way that no record tells.
    pub(crate) fn tell_untold_names(&self, tx: &Tx<'_>) {
        self.dataset.note_change(tx, LogChange::UntoldNames);
    }

    /// An object has changed in a way that no record tells.
    pub(crate) fn tell_untold(&self, tx: &Tx<'_>, object: u64) {
        self.dataset.note_change(tx, LogChange::Untold(object));
    }
}

/// What lost a name.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Gone {
    pub(crate) object: u64,
    pub(crate) is_dir: bool,
    /// It has no other.
    pub(crate) last: bool,
}

impl Gone {
    /// What becomes of an object with these attributes that loses a name.
    pub(crate) fn of(object: u64, attrs: &Attrs) -> Gone {
        let is_dir = attrs.is_dir();
        Gone { object, is_dir, last: is_dir || attrs.links <= 1 }
    }
}

fn words(time: Time) -> [u64; 2] {
    [time.secs as u64, time.nanos.into()]
}
