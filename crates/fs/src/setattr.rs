//! Changing attributes as setattr asks for it: permissions, owners, times, sizes, and the time of an access.

use dmu::{Object, Tx};
use format::accounting::BYTES_PER_OBJECT;
use format::znode::Time;
use rt::sync::Arc;

use crate::acl;
use crate::attrs::{self, Attrs, mode};
use crate::error::{FsError, Result};
use crate::filesystem::Filesystem;
use crate::locks::Locked;
use crate::protected::Change;
use crate::quota::Payers;

/// A read moves the time of access on only if it is older than this, in seconds, or than the last change.
const RELATIME_SECS: i64 = 24 * 60 * 60;

/// What a program may do beside what its user may.
const CAPABILITIES: &[u8] = b"security.capability";
const SET_UID: u32 = 0o4000;
const SET_GID: u32 = 0o2000;
const GROUP_EXECUTES: u32 = 0o010;

/// The permissions of a file after somebody who is not root has written to it. (Set-gid that the group may not execute means
/// something else.)
fn disarmed(mode: u32) -> u32 {
    let set_gid = if mode & GROUP_EXECUTES != 0 { SET_GID } else { 0 };
    mode & !(SET_UID | set_gid)
}

/// A time to be set.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum When {
    /// The time of the change itself.
    Now,
    /// This one.
    At(Time),
}

impl When {
    fn time(self, now: Time) -> Time {
        match self {
            When::Now => now,
            When::At(time) => time,
        }
    }
}

/// What is to be changed; `None` stays.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Setattr {
    /// Permissions with set-id and sticky bits.
    pub mode: Option<u32>,
    /// Owner.
    pub uid: Option<u64>,
    /// Group.
    pub gid: Option<u64>,
    /// Size of a file, in bytes.
    pub size: Option<u64>,
    /// Last access.
    pub atime: Option<When>,
    /// Last change of the contents.
    pub mtime: Option<When>,
}

impl Setattr {
    fn apply(&self, attrs: &mut Attrs) {
        if let Some(mode) = self.mode {
            attrs.set_mode(mode);
        }
        if let Some(uid) = self.uid {
            attrs.uid = uid;
        }
        if let Some(gid) = self.gid {
            attrs.gid = gid;
        }
        // One time for all: a file that was touched has not been changed after it was read.
        let now = attrs::now();
        if let Some(atime) = self.atime {
            attrs.atime = atime.time(now);
        }
        if let Some(mtime) = self.mtime {
            attrs.mtime = mtime.time(now);
        }
        attrs.ctime = now;
    }
}

impl Filesystem {
    /// Changes attributes. The size is a change of its own, before the others, and so are the owners before the permissions, which
    /// an access control list follows.
    pub fn setattr(&self, number: u64, set: &Setattr) -> Result<()> {
        if let Some(size) = set.size {
            self.truncate(number, size)?;
        }
        let rest = Setattr { size: None, ..*set };
        if rest == Setattr::default() {
            return Ok(());
        }
        let is_now = |time: Option<When>| !matches!(time, Some(When::At(_)));
        let touches = Setattr { atime: set.atime, mtime: set.mtime, ..Setattr::default() };
        let change = match rest == touches && is_now(rest.atime) && is_now(rest.mtime) {
            true => Change::Touch,
            false => Change::Attributes,
        };
        self.permit_to(number, change)?;
        if rest.mode.is_none() {
            return self.change_attrs(number, |attrs| rest.apply(attrs));
        }
        let owner = Setattr { uid: rest.uid, gid: rest.gid, ..Setattr::default() };
        if owner != Setattr::default() {
            self.change_attrs(number, |attrs| owner.apply(attrs))?;
        }
        let rest = Setattr { uid: None, gid: None, ..rest };
        self.change_permissions(number, |attrs| rest.apply(attrs))
    }

    /// Sets the permissions to what `mode` makes of the attributes; an access control list follows them.
    pub fn change_mode(&self, number: u64, mode: impl Fn(&Attrs) -> u32) -> Result<()> {
        self.permit_to(number, Change::Attributes)?;
        self.change_permissions(number, |attrs| {
            attrs.set_mode(mode(attrs));
            attrs.ctime = attrs::now();
        })
    }

    /// Changes attributes, the permissions among them, and an access control list as they are then.
    fn change_permissions(&self, number: u64, change: impl Fn(&mut Attrs)) -> Result<()> {
        // Whoever sets the list comes before all of this, or after it.
        let lock = self.lock(number);
        let mut attrs = self.attrs(number)?;
        match self.xattr_of(number, &attrs, acl::ACCESS)? {
            None => self.change_attrs_locked(lock, number, change),
            Some(list) => {
                change(&mut attrs);
                let list = acl::chmod(&list, attrs.permissions());
                self.change_xattr(lock, number, acl::ACCESS, Some(&list), None, change)
            }
        }
    }

    /// Changes the attributes of an object by `change`. Who gets it must have quota left.
    pub fn change_attrs(&self, number: u64, change: impl FnOnce(&mut Attrs)) -> Result<()> {
        self.change_attrs_locked(self.lock(number), number, change)
    }

    /// The same, of one that is locked.
    pub(crate) fn change_attrs_locked(
        &self,
        lock: Locked<'_>,
        number: u64,
        change: impl FnOnce(&mut Attrs),
    ) -> Result<()> {
        let object = self.object(number)?;
        let mut attrs = self.attrs_of(&object)?;
        let old = attrs.clone();
        change(&mut attrs);
        let hidden = self.given(&object, &old, &attrs)?;
        let tx = self.enter(0)?;
        self.set_attrs(&tx, &object, &attrs)?;
        self.give_hidden(&tx, &hidden, &attrs)?;
        self.tell_attrs(&tx, number, &old, &attrs);
        drop((tx, lock));
        self.done(number)
    }

    /// What of an object is hidden, if others pay for it from now on; they must have quota left for all of it. Call it outside of
    /// any txg.
    fn given(&self, object: &Arc<Object>, old: &Attrs, new: &Attrs) -> Result<Vec<Arc<Object>>> {
        let (before, after) = (Payers::of(old), Payers::of(new));
        if before == after {
            return Ok(Vec::new());
        }
        let hidden = self.hidden_of(old)?;
        let bytes = |object: &Arc<Object>| object.used_bytes() + BYTES_PER_OBJECT;
        let all = bytes(object) + hidden.iter().map(bytes).sum::<u64>();
        self.charge(after.beyond(before), all, 1 + hidden.len() as u64)?;
        Ok(hidden)
    }

    /// What is hidden becomes theirs whose the object is.
    fn give_hidden(&self, tx: &Tx<'_>, hidden: &[Arc<Object>], attrs: &Attrs) -> Result<()> {
        hidden.iter().try_for_each(|object| {
            self.change_znode(tx, object, |znode| (znode.uid, znode.gid) = (attrs.uid, attrs.gid))
        })
    }

    /// Somebody who is not root is about to change what is in an object, or it is to be somebody else's: it is no program any
    /// more that acts as its owner, or may do more than who runs it. Of directories and links such bits say nothing like that.
    pub fn disarm(&self, number: u64) -> Result<()> {
        let attrs = self.attrs(number)?;
        if matches!(attrs.kind(), mode::DIR | mode::SYMLINK) {
            return Ok(());
        }
        // Looked for first: what has none is not changed, which not everybody may.
        let has_any = attrs.xattrs.is_some() || attrs.xattr_object.is_some();
        if has_any && self.xattr(number, CAPABILITIES)?.is_some() {
            match self.set_xattr(number, CAPABILITIES, None) {
                Ok(()) | Err(FsError::NoAttribute { .. }) => {}
                Err(error) => return Err(error),
            }
        }
        if disarmed(attrs.permissions()) == attrs.permissions() {
            return Ok(());
        }
        self.permit(&attrs, Change::Attributes, format_args!("object {number}"))?;
        // Of what it has by then: its owner may have said otherwise meanwhile. No list says anything of these bits.
        self.change_attrs(number, |attrs| {
            attrs.mode = (attrs.kind() | disarmed(attrs.permissions())).into();
            attrs.ctime = attrs::now();
        })
    }

    /// Notes that an object was read, if its time of access is to be moved on: with `relatime` only if it is older
    /// than the last change or a day, else if it is not of this second. What cannot be written notes nothing.
    pub fn note_access(&self, number: u64, relatime: bool) -> Result<()> {
        let object = self.object(number)?;
        let now = attrs::now();
        let is_due = |znode: &format::znode::Znode| match relatime {
            true => {
                let day = now.secs.saturating_sub(znode.atime.secs) >= RELATIME_SECS;
                day || znode.atime <= znode.mtime || znode.atime <= znode.ctime
            }
            false => znode.atime.secs != now.secs,
        };
        if !self.can_change() || !is_due(&self.znode_of(&object)?) {
            return Ok(());
        }
        let _lock = self.lock(number);
        let tx = self.enter(0)?;
        self.change_znode(&tx, &object, |znode| znode.atime = now)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Seen red: it was changed a moment after it was read, as a mailbox with new mail is.
    #[test]
    fn what_is_touched_has_one_time() {
        let (mut attrs, now) = (Attrs::new(mode::FILE, false, attrs::now()), Some(When::Now));
        Setattr { atime: now, mtime: now, ..Setattr::default() }.apply(&mut attrs);
        assert_eq!((attrs.atime, attrs.ctime), (attrs.mtime, attrs.mtime));
    }

    #[test]
    fn programs_that_were_written_to_are_harmless() {
        for (mode, expected) in
            [(0o6777, 0o777), (0o6767, 0o2767), (0o2711, 0o711), (0o2644, 0o2644)]
        {
            assert_eq!(disarmed(mode), expected, "{mode:o}");
        }
    }
}
