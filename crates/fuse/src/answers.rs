//! What the methods of the door have in common: finding what a request is about, making things, telling of them.

use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;
use std::time::Duration;

use fs::{CONTROL_NAME, MountProps, NAME_MAX, NewObject, Who, acl, mode};
use fuser::{
    Errno, FileAttr, Generation, INodeNo, OpenAccMode, OpenFlags, RenameFlags, ReplyEntry, Request,
};
use rt::sync::{Arc, Mutex};

use crate::attr::{file_attr, unknown};
use crate::control::SNAPSHOT_NAME;
use crate::door::{Answer, Door, errno};
use crate::mounted::Options;
use crate::nodes::{CONTROL_DIR, Node, Place, SNAPSHOT_DIR, Spaces};
use crate::turns::Turns;

/// How long properties that were read are taken to hold.
const PROPS_TTL: Duration = Duration::from_secs(1);
/// The access mode and flags of open(2) that matter here.
const APPEND: i32 = 0o2000;
const DSYNC: i32 = 0o10_000;
const DIRECT: i32 = 0o40_000;
/// Modes of fallocate(2).
const KEEP_SIZE: i32 = 1;
const PUNCH_HOLE: i32 = 2;
const ZERO_RANGE: i32 = 16;

impl Door {
    pub(crate) fn new(spaces: Spaces, props: MountProps, options: &Options) -> Door {
        // Where names that differ are the same name, the kernel must not remember any.
        let folds = spaces.live.folds_names();
        let entry_ttl = if folds { Duration::ZERO } else { options.names_for };
        let props = Mutex::new((rt::time::now(), props));
        let turns = Turns::new(rt::thread::available_cores().max(2));
        let (opened, attr_ttl) = (Arc::default(), options.attrs_for);
        Door { spaces, opened, attr_ttl, entry_ttl, props, turns }
    }

    /// The properties of the file system, at most a second old.
    pub(crate) fn props(&self) -> MountProps {
        let mut props = self.props.lock();
        if props.0.elapsed() >= PROPS_TTL
            && let Ok(now) = self.spaces.live.mount_props()
        {
            *props = (rt::time::now(), now);
        }
        props.1
    }

    /// Is the way to the snapshots there, and is it listed?
    pub(crate) fn control(&self) -> (bool, bool) {
        let props = self.props();
        (props.has_snapdir, props.snapdir_visible)
    }

    /// What the kernel is told of an object, with the txg that tells it from others of its number.
    pub(crate) fn told(&self, place: &Place) -> Answer<(FileAttr, Generation)> {
        let (object, attrs) = place.fs.open_object(place.object).map_err(|e| errno(&e))?;
        let record = place.fs.record_size();
        let used = object.stat_bytes().map_err(|e| errno(&e.into()))?;
        let attr = file_attr(place.number(), &attrs, used, record);
        Ok((attr, Generation(attrs.gen_txg)))
    }

    /// Somebody has read what is there.
    pub(crate) fn accessed(&self, place: &Place) {
        let props = self.props();
        if place.is_live() && props.atime && !props.readonly {
            // Reading does not fail for want of a note of it.
            drop(place.fs.note_access(place.object, props.relatime));
        }
    }

    /// What a name stands for; `None`: nothing.
    pub(crate) fn find(&self, parent: INodeNo, name: &[u8]) -> Answer<Option<Place>> {
        if name.len() > NAME_MAX {
            return Err(Errno::ENAMETOOLONG);
        }
        let dir = self.spaces.place(parent)?;
        let found = dir.fs.lookup(dir.object, name).map_err(|e| errno(&e))?;
        Ok(found.map(|entry| dir.beside(entry.object)))
    }

    pub(crate) fn looked_up(&self, parent: INodeNo, name: &[u8]) -> Answer<(FileAttr, Generation)> {
        let nothing = (unknown(0, mode::FILE), Generation(0));
        let found = match self.spaces.node(parent)? {
            Node::Object(dir) if dir.is_root() && name == CONTROL_NAME && self.control().0 => {
                return Ok((self.control_attr(CONTROL_DIR)?, Generation(0)));
            }
            Node::Object(_) => self.find(parent, name)?,
            Node::ControlDir if name == SNAPSHOT_NAME => {
                return Ok((self.control_attr(SNAPSHOT_DIR)?, Generation(0)));
            }
            Node::ControlDir => None,
            Node::SnapshotDir => self.snapshot_root(name)?,
        };
        match found {
            None if self.entry_ttl.is_zero() => Err(Errno::ENOENT),
            // No number at all: the name is not there, and that may be remembered.
            None => Ok(nothing),
            Some(place) => self.heard(&place),
        }
    }

    /// As [`Door::told`], for an answer that makes the kernel know the object.
    pub(crate) fn heard(&self, place: &Place) -> Answer<(FileAttr, Generation)> {
        place.know();
        self.told(place).inspect_err(|_| place.forget(1))
    }

    /// Makes something in a directory: with the group and the lists that the directory hands down.
    pub(crate) fn make(
        &self,
        req: &Request,
        parent: INodeNo,
        name: &OsStr,
        (wanted, umask): (u32, u32),
        rdev: u64,
        target: Option<&[u8]>,
    ) -> Answer<Place> {
        let dir = self.spaces.place(parent)?;
        let above = dir.fs.attrs(dir.object).map_err(|e| errno(&e))?;
        let mut who = Who { uid: req.uid().into(), gid: req.gid().into() };
        let (mut bits, kind) = (wanted, wanted & mode::TYPE);
        if above.permissions() & 0o2000 != 0 {
            who.gid = above.gid;
            if kind == mode::DIR {
                bits |= 0o2000;
            }
        }
        let handed = match self.props().acl && kind != mode::SYMLINK {
            true => dir.fs.xattr(dir.object, acl::DEFAULT).map_err(|e| errno(&e))?,
            false => None,
        };
        let inherited = handed.as_deref().and_then(|list| acl::inherit(list, bits));
        let mut lists: Vec<(&[u8], &[u8])> = Vec::new();
        match &inherited {
            Some((mode, own)) => {
                bits = *mode;
                lists.extend(own.as_deref().map(|list| (acl::ACCESS, list)));
            }
            None if kind != mode::SYMLINK => bits &= !umask,
            None => {}
        }
        if let (Some(list), mode::DIR) = (&handed, kind) {
            lists.push((acl::DEFAULT, list));
        }
        let new = NewObject { target, rdev, xattrs: &lists, ..NewObject::of(bits, who) };
        let made = dir.fs.create(dir.object, name.as_bytes(), &new).map_err(|e| errno(&e))?;
        Ok(dir.beside(made))
    }

    pub(crate) fn made(&self, place: Answer<Place>, reply: ReplyEntry) {
        match place.and_then(|place| self.heard(&place)) {
            Ok((attr, generation)) => {
                reply.entry_with_ttls(&self.attr_ttl, &self.entry_ttl, &attr, generation);
            }
            Err(e) => reply.error(e),
        }
    }

    /// Keeps an object for who opens it.
    pub(crate) fn hold(&self, place: &Place) -> Answer<()> {
        match place.is_live() {
            true => self.opened.hold(&place.fs, place.object).map_err(|e| errno(&e)),
            false => Ok(()),
        }
    }

    /// A file is opened. What cannot be written is not opened for that: what is mapped is changed in the kernel's pages,
    /// for whoever reads it there, and only then are we asked.
    pub(crate) fn open_as(&self, place: &Place, flags: OpenFlags) -> Answer<()> {
        if flags.acc_mode() != OpenAccMode::O_RDONLY {
            if !place.fs.can_change() {
                return Err(Errno::EROFS);
            }
            let appends = flags.0 & APPEND != 0;
            place.fs.may_be_written(place.object, appends).map_err(|e| errno(&e))?;
        }
        self.hold(place)
    }

    pub(crate) fn released(&self, ino: INodeNo) -> Answer<()> {
        match self.spaces.node(ino)? {
            Node::Object(place) if place.is_live() => {
                self.opened.let_go(&place.fs, place.object).map_err(|e| errno(&e))
            }
            _ => Ok(()),
        }
    }

    /// One name or two, in directories of one space.
    pub(crate) fn moved(
        &self,
        (parent, name): (INodeNo, &OsStr),
        (newparent, newname): (INodeNo, &OsStr),
        flags: RenameFlags,
    ) -> Answer<()> {
        let (from, to) = (self.spaces.place(parent)?, self.spaces.place(newparent)?);
        if !from.is_beside(&to) {
            return Err(Errno::EXDEV);
        }
        let (name, newname) = (name.as_bytes(), newname.as_bytes());
        let replace = !flags.contains(RenameFlags::RENAME_NOREPLACE);
        let fs = &from.fs;
        let done = match flags {
            RenameFlags::RENAME_EXCHANGE => fs.exchange(from.object, name, to.object, newname),
            _ if (flags & !RenameFlags::RENAME_NOREPLACE).is_empty() => {
                fs.rename_onto(from.object, name, to.object, newname, replace)
            }
            _ => return Err(Errno::EINVAL),
        };
        done.map_err(|e| errno(&e))
    }

    /// A file is about to be changed by somebody for whom its set-id bits are not, if so.
    pub(crate) fn disarmed(&self, place: &Place, so: bool) -> Answer<()> {
        match so {
            true => place.fs.disarm(place.object).map_err(|e| errno(&e)),
            false => Ok(()),
        }
    }

    pub(crate) fn written(
        &self,
        place: &Place,
        offset: u64,
        data: &[u8],
        flags: i32,
        of_cache: bool,
    ) -> Answer<()> {
        let (fs, object) = (&place.fs, place.object);
        let done = match flags & APPEND != 0 && !of_cache {
            true => fs.append(object, data).map(drop),
            false => fs.write(object, offset, data),
        };
        // What goes through its cache the kernel syncs by itself.
        let stable = flags & DIRECT != 0 && flags & DSYNC != 0;
        let done = done.and_then(|()| if stable { fs.fsync(object) } else { Ok(()) });
        done.map_err(|e| errno(&e))
    }

    pub(crate) fn allocated(
        &self,
        place: &Place,
        offset: u64,
        length: u64,
        how: i32,
    ) -> Answer<()> {
        let (fs, object) = (&place.fs, place.object);
        let end = offset.checked_add(length).filter(|end| i64::try_from(*end).is_ok());
        let end = end.ok_or(Errno::EFBIG)?;
        let size = fs.attrs(object).map_err(|e| errno(&e))?.size;
        let grows = how & KEEP_SIZE == 0 && end > size;
        match how & !KEEP_SIZE {
            PUNCH_HOLE | ZERO_RANGE => {
                fs.punch_hole(object, offset, length.min(size.saturating_sub(offset)))
                    .map_err(|e| errno(&e))?;
            }
            0 => {
                // Nothing can be kept for a file where every write goes to a new place; but what does not fit
                // is refused, with a tenth to spare.
                let space = fs.space().map_err(|e| errno(&e))?;
                if length.saturating_add(length / 10) > space.available {
                    return Err(Errno::ENOSPC);
                }
            }
            _ => return Err(Errno::EOPNOTSUPP),
        }
        if grows {
            // Others may have written behind it meanwhile.
            fs.extend(object, end).map_err(|e| errno(&e))?;
        }
        Ok(())
    }
}
