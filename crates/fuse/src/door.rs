//! The kernel's requests, one method each: what is asked becomes calls on the file system, what comes back an answer.
//!
//! Permissions are the kernel's to check (`default_permissions`, and access control lists as it reads them here);
//! so are locks, the umask where no list is inherited, and the capabilities that a write takes away.

use std::cell::RefCell;
use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;
use std::time::{Duration, SystemTime};

use fs::{FsError, MountProps, NAME_MAX, Setattr, When, code, mode};
use fuser::{
    BsdFileFlags, Errno, FileHandle, FopenFlags, INodeNo, InitFlags, KernelConfig, LockOwner,
    OpenFlags, RenameFlags, ReplyAttr, ReplyCreate, ReplyData, ReplyDirectory, ReplyDirectoryPlus,
    ReplyEmpty, ReplyEntry, ReplyLseek, ReplyOpen, ReplyStatfs, ReplyWrite, ReplyXattr, Request,
    TimeOrNow, WriteFlags,
};
use rt::sync::{Arc, Mutex};

use crate::attr::{asked_time, unpacked};
use crate::nodes::{CONTROL_DIR, Node, SNAPSHOT_DIR, Spaces};
use crate::opened::Opened;
use crate::turns::Turns;

/// Bytes of the longest request and answer.
pub(crate) const IO_MAX: u32 = 1 << 20;
const EXCL: i32 = 0o200;
/// open(2): who reads leaves no trace of it.
const NOATIME: i32 = 0o1_000_000;
/// What lseek(2) can ask for here.
const SEEK_DATA: i32 = 3;
const SEEK_HOLE: i32 = 4;

/// What a request comes to.
pub(crate) type Answer<T> = Result<T, Errno>;

/// The number of an error.
pub(crate) fn errno(error: &FsError) -> Errno {
    Errno::from_i32(error.errno())
}

/// A mounted file system.
pub(crate) struct Door {
    pub(crate) spaces: Spaces,
    /// What the kernel has open.
    pub(crate) opened: Arc<Opened>,
    /// How long the kernel may take attributes for right.
    pub(crate) attr_ttl: Duration,
    /// How long it may take names for right, also those that are not there.
    pub(crate) entry_ttl: Duration,
    /// Properties, and when they were read.
    pub(crate) props: Mutex<(rt::time::Instant, MountProps)>,
    /// Who of the threads waits for requests.
    pub(crate) turns: Arc<Turns>,
}

thread_local! {
    /// Where the answer to a read is put together: one for each thread that serves, of at most [`IO_MAX`] bytes.
    static ANSWER: RefCell<Vec<u8>> = const { RefCell::new(Vec::new()) };
}

fn done(answer: Answer<()>, reply: ReplyEmpty) {
    match answer {
        Ok(()) => reply.ok(),
        Err(e) => reply.error(e),
    }
}

fn when(time: TimeOrNow) -> When {
    match time {
        TimeOrNow::Now => When::Now,
        TimeOrNow::SpecificTime(time) => When::At(asked_time(time)),
    }
}

/// Answers a request for an attribute or a list of them.
fn valued(answer: Answer<Vec<u8>>, size: u32, reply: ReplyXattr) {
    match answer {
        Err(e) => reply.error(e),
        Ok(value) if size == 0 => reply.size(value.len() as u32),
        Ok(value) if value.len() > size as usize => reply.error(Errno::ERANGE),
        Ok(value) => reply.data(&value),
    }
}

impl fuser::Filesystem for Door {
    fn init(&mut self, _req: &Request, config: &mut KernelConfig) -> std::io::Result<()> {
        // Each is taken if the kernel has it. Not: the write-back cache (decision 12).
        let mut wanted = vec![
            InitFlags::FUSE_DO_READDIRPLUS,
            InitFlags::FUSE_READDIRPLUS_AUTO,
            InitFlags::FUSE_PARALLEL_DIROPS,
            InitFlags::FUSE_CACHE_SYMLINKS,
            InitFlags::FUSE_ASYNC_DIO,
            InitFlags::FUSE_DONT_MASK,
            // Who comes by another door changes contents, too: where the time of a change is another, pages are read anew.
            InitFlags::FUSE_AUTO_INVAL_DATA,
            // Set-id bits go here when somebody writes; else the kernel asks for capabilities before each write.
            InitFlags::FUSE_HANDLE_KILLPRIV_V2,
        ];
        if self.props().acl {
            wanted.push(InitFlags::FUSE_POSIX_ACL);
        }
        for flag in wanted {
            let _ = config.add_capabilities(flag);
        }
        let _ = config.set_max_write(IO_MAX);
        let _ = config.set_max_readahead(IO_MAX).or_else(|most| config.set_max_readahead(most));
        let _ = config.set_max_background(64);
        Ok(())
    }

    fn lookup(&self, _req: &Request, parent: INodeNo, name: &OsStr, reply: ReplyEntry) {
        let _turn = self.turns.begin();
        match self.looked_up(parent, name.as_bytes()) {
            Ok((attr, generation)) => {
                reply.entry_with_ttls(&self.attr_ttl, &self.entry_ttl, &attr, generation);
            }
            Err(e) => reply.error(e),
        }
    }

    fn forget(&self, _req: &Request, ino: INodeNo, nlookup: u64) {
        let _turn = self.turns.pass();
        if let Ok(Node::Object(place)) = self.spaces.node(ino) {
            place.forget(nlookup);
        }
    }

    fn getattr(&self, _req: &Request, ino: INodeNo, _fh: Option<FileHandle>, reply: ReplyAttr) {
        let _turn = self.turns.begin();
        let attr = self.spaces.node(ino).and_then(|node| match node {
            Node::Object(place) => Ok(self.told(&place)?.0),
            Node::ControlDir => self.control_attr(CONTROL_DIR),
            Node::SnapshotDir => self.control_attr(SNAPSHOT_DIR),
        });
        match attr {
            Ok(attr) => reply.attr(&self.attr_ttl, &attr),
            Err(e) => reply.error(e),
        }
    }

    fn setattr(
        &self,
        req: &Request,
        ino: INodeNo,
        mode: Option<u32>,
        uid: Option<u32>,
        gid: Option<u32>,
        size: Option<u64>,
        atime: Option<TimeOrNow>,
        mtime: Option<TimeOrNow>,
        _ctime: Option<SystemTime>,
        _fh: Option<FileHandle>,
        _crtime: Option<SystemTime>,
        _chgtime: Option<SystemTime>,
        _bkuptime: Option<SystemTime>,
        _flags: Option<BsdFileFlags>,
        reply: ReplyAttr,
    ) {
        let _turn = self.turns.begin();
        let set = Setattr {
            mode: mode.map(|mode| mode & 0o7777),
            uid: uid.map(u64::from),
            gid: gid.map(u64::from),
            size,
            atime: atime.map(when),
            mtime: mtime.map(when),
        };
        let disarms = uid.is_some() || gid.is_some() || size.is_some() && req.uid() != 0;
        let attr = self.spaces.place(ino).and_then(|place| {
            self.disarmed(&place, disarms)?;
            place.fs.setattr(place.object, &set).map_err(|e| errno(&e))?;
            Ok(self.told(&place)?.0)
        });
        match attr {
            Ok(attr) => reply.attr(&self.attr_ttl, &attr),
            Err(e) => reply.error(e),
        }
    }

    fn readlink(&self, _req: &Request, ino: INodeNo, reply: ReplyData) {
        let _turn = self.turns.begin();
        let target = self.spaces.place(ino).and_then(|place| {
            let attrs = place.fs.attrs(place.object).map_err(|e| errno(&e))?;
            self.accessed(&place);
            attrs.target.ok_or(Errno::EINVAL)
        });
        match target {
            Ok(target) => reply.data(&target),
            Err(e) => reply.error(e),
        }
    }

    fn mknod(
        &self,
        req: &Request,
        parent: INodeNo,
        name: &OsStr,
        mode: u32,
        umask: u32,
        rdev: u32,
        reply: ReplyEntry,
    ) {
        let _turn = self.turns.begin();
        let rdev = unpacked(rdev);
        self.made(self.make(req, parent, name, (mode, umask), rdev, None), reply);
    }

    fn mkdir(
        &self,
        req: &Request,
        parent: INodeNo,
        name: &OsStr,
        mode: u32,
        umask: u32,
        reply: ReplyEntry,
    ) {
        let _turn = self.turns.begin();
        let mode = mode & 0o7777 | mode::DIR;
        self.made(self.make(req, parent, name, (mode, umask), 0, None), reply);
    }

    fn symlink(
        &self,
        req: &Request,
        parent: INodeNo,
        name: &OsStr,
        target: &Path,
        reply: ReplyEntry,
    ) {
        let _turn = self.turns.begin();
        let target = target.as_os_str().as_bytes();
        let mode = mode::SYMLINK | 0o777;
        self.made(self.make(req, parent, name, (mode, 0), 0, Some(target)), reply);
    }

    fn unlink(&self, _req: &Request, parent: INodeNo, name: &OsStr, reply: ReplyEmpty) {
        let _turn = self.turns.begin();
        let gone = self
            .spaces
            .place(parent)
            .and_then(|dir| dir.fs.unlink(dir.object, name.as_bytes()).map_err(|e| errno(&e)));
        done(gone, reply);
    }

    fn rmdir(&self, _req: &Request, parent: INodeNo, name: &OsStr, reply: ReplyEmpty) {
        let _turn = self.turns.begin();
        let gone = self
            .spaces
            .place(parent)
            .and_then(|dir| dir.fs.rmdir(dir.object, name.as_bytes()).map_err(|e| errno(&e)));
        done(gone, reply);
    }

    fn rename(
        &self,
        _req: &Request,
        parent: INodeNo,
        name: &OsStr,
        newparent: INodeNo,
        newname: &OsStr,
        flags: RenameFlags,
        reply: ReplyEmpty,
    ) {
        let _turn = self.turns.begin();
        done(self.moved((parent, name), (newparent, newname), flags), reply);
    }

    fn link(
        &self,
        _req: &Request,
        ino: INodeNo,
        newparent: INodeNo,
        newname: &OsStr,
        reply: ReplyEntry,
    ) {
        let _turn = self.turns.begin();
        let linked = || {
            let (place, dir) = (self.spaces.place(ino)?, self.spaces.place(newparent)?);
            if !place.is_beside(&dir) {
                return Err(Errno::EXDEV);
            }
            let name = newname.as_bytes();
            dir.fs.link(dir.object, name, place.object).map_err(|e| errno(&e))?;
            Ok(place)
        };
        self.made(linked(), reply);
    }

    fn open(&self, _req: &Request, ino: INodeNo, flags: OpenFlags, reply: ReplyOpen) {
        let _turn = self.turns.begin();
        match self.spaces.place(ino).and_then(|place| self.open_as(&place, flags)) {
            // What the kernel has of the file is right as long as its time and size are.
            Ok(()) => reply.opened(FileHandle(0), FopenFlags::FOPEN_KEEP_CACHE),
            Err(e) => reply.error(e),
        }
    }

    fn create(
        &self,
        req: &Request,
        parent: INodeNo,
        name: &OsStr,
        mode: u32,
        umask: u32,
        flags: i32,
        reply: ReplyCreate,
    ) {
        let _turn = self.turns.begin();
        let mode = mode & 0o7777 | mode::FILE;
        let place = match self.make(req, parent, name, (mode, umask), 0, None) {
            // Somebody else was faster, and that is fine unless it must be new. But whether it may be opened, and as what,
            // is for the kernel to say: it looks the name up once more.
            Err(e) if e.code() == code::EXIST && flags & EXCL == 0 => Err(Errno::ESTALE),
            made => made,
        };
        let opened = place.and_then(|place| {
            self.hold(&place)?;
            let heard = self.heard(&place);
            if heard.is_err() {
                let _ = self.released(INodeNo(place.number()));
            }
            heard
        });
        match opened {
            Ok((attr, generation)) => {
                let keep = FopenFlags::FOPEN_KEEP_CACHE;
                reply.created(&self.attr_ttl, &attr, generation, FileHandle(0), keep);
            }
            Err(e) => reply.error(e),
        }
    }

    fn read(
        &self,
        _req: &Request,
        ino: INodeNo,
        _fh: FileHandle,
        offset: u64,
        size: u32,
        flags: OpenFlags,
        _lock_owner: Option<LockOwner>,
        reply: ReplyData,
    ) {
        let _turn = self.turns.begin();
        let place = match self.spaces.place(ino) {
            Ok(place) => place,
            Err(e) => return reply.error(e),
        };
        ANSWER.with_borrow_mut(|buf| {
            let size = size.min(IO_MAX) as usize;
            if buf.len() < size {
                buf.resize(size, 0);
            }
            let part = buf.get_mut(..size).unwrap_or_default();
            let read = place.fs.read(place.object, offset, part);
            // Before the answer: who has it may set the time himself, as backups do, and that is to stay.
            if flags.0 & NOATIME == 0 {
                self.accessed(&place);
            }
            match read {
                Ok(count) => reply.data(part.get(..count).unwrap_or_default()),
                Err(e) => reply.error(errno(&e)),
            }
        });
    }

    fn write(
        &self,
        _req: &Request,
        ino: INodeNo,
        _fh: FileHandle,
        offset: u64,
        data: &[u8],
        write_flags: WriteFlags,
        flags: OpenFlags,
        _lock_owner: Option<LockOwner>,
        reply: ReplyWrite,
    ) {
        let _turn = self.turns.begin();
        let of_cache = write_flags.contains(WriteFlags::FUSE_WRITE_CACHE);
        let disarms = write_flags.contains(WriteFlags::FUSE_WRITE_KILL_SUIDGID);
        let written = self.spaces.place(ino).and_then(|place| {
            self.disarmed(&place, disarms)?;
            self.written(&place, offset, data, flags.0, of_cache)
        });
        match written {
            Ok(()) => reply.written(data.len() as u32),
            Err(e) => reply.error(e),
        }
    }

    fn flush(
        &self,
        _req: &Request,
        _ino: INodeNo,
        _fh: FileHandle,
        _lock_owner: LockOwner,
        reply: ReplyEmpty,
    ) {
        // Nothing waits here for a close: the kernel need not ask again.
        reply.error(Errno::ENOSYS);
    }

    fn release(
        &self,
        _req: &Request,
        ino: INodeNo,
        _fh: FileHandle,
        _flags: OpenFlags,
        _lock_owner: Option<LockOwner>,
        _flush: bool,
        reply: ReplyEmpty,
    ) {
        let _turn = self.turns.begin();
        done(self.released(ino), reply);
    }

    fn fsync(
        &self,
        _req: &Request,
        ino: INodeNo,
        _fh: FileHandle,
        _datasync: bool,
        reply: ReplyEmpty,
    ) {
        let _turn = self.turns.begin();
        // Of what can only be read by now something may have been written just before.
        let synced = self.spaces.place(ino);
        done(synced.and_then(|p| p.fs.fsync(p.object).map_err(|e| errno(&e))), reply);
    }

    fn opendir(&self, _req: &Request, ino: INodeNo, _flags: OpenFlags, reply: ReplyOpen) {
        let _turn = self.turns.begin();
        let held = self.spaces.node(ino).and_then(|node| match node {
            Node::Object(place) => self.hold(&place),
            Node::ControlDir | Node::SnapshotDir => Ok(()),
        });
        match held {
            Ok(()) => reply.opened(FileHandle(0), FopenFlags::empty()),
            Err(e) => reply.error(e),
        }
    }

    fn readdir(
        &self,
        _req: &Request,
        ino: INodeNo,
        _fh: FileHandle,
        offset: u64,
        reply: ReplyDirectory,
    ) {
        let _turn = self.turns.begin();
        self.list(ino, offset, reply);
    }

    fn readdirplus(
        &self,
        _req: &Request,
        ino: INodeNo,
        _fh: FileHandle,
        offset: u64,
        reply: ReplyDirectoryPlus,
    ) {
        let _turn = self.turns.begin();
        self.list_plus(ino, offset, reply);
    }

    fn releasedir(
        &self,
        _req: &Request,
        ino: INodeNo,
        _fh: FileHandle,
        _flags: OpenFlags,
        reply: ReplyEmpty,
    ) {
        let _turn = self.turns.begin();
        done(self.released(ino), reply);
    }

    fn fsyncdir(
        &self,
        req: &Request,
        ino: INodeNo,
        fh: FileHandle,
        datasync: bool,
        reply: ReplyEmpty,
    ) {
        self.fsync(req, ino, fh, datasync, reply);
    }

    fn statfs(&self, _req: &Request, ino: INodeNo, reply: ReplyStatfs) {
        let _turn = self.turns.begin();
        let fs = match self.spaces.node(ino) {
            Ok(Node::Object(place)) => place.fs,
            Ok(Node::ControlDir | Node::SnapshotDir) => self.spaces.live.clone(),
            Err(e) => return reply.error(e),
        };
        match fs.space() {
            Ok(space) => {
                // As OpenZFS counts: in full records, and as many more files as half kilobytes.
                let record = u64::from(space.record.max(512));
                let free = space.available / record;
                let blocks = space.referenced.saturating_add(space.available) / record;
                let more = space.available / 512;
                let files = more.saturating_add(space.objects);
                let (size, name) = (record as u32, NAME_MAX as u32);
                reply.statfs(blocks, free, free, files, more, size, name, size);
            }
            Err(e) => reply.error(errno(&e)),
        }
    }

    fn setxattr(
        &self,
        req: &Request,
        ino: INodeNo,
        name: &OsStr,
        value: &[u8],
        flags: i32,
        _position: u32,
        reply: ReplyEmpty,
    ) {
        let _turn = self.turns.begin();
        let place = self.spaces.place(ino);
        done(place.and_then(|p| self.set_xattr(req, &p, name.as_bytes(), value, flags)), reply);
    }

    fn getxattr(&self, _req: &Request, ino: INodeNo, name: &OsStr, size: u32, reply: ReplyXattr) {
        let _turn = self.turns.begin();
        let value = self.spaces.node(ino).and_then(|node| match node {
            Node::Object(place) => self.xattr(&place, name.as_bytes()),
            Node::ControlDir | Node::SnapshotDir => Err(Errno::ENODATA),
        });
        valued(value, size, reply);
    }

    fn listxattr(&self, req: &Request, ino: INodeNo, size: u32, reply: ReplyXattr) {
        let _turn = self.turns.begin();
        let names = self.spaces.node(ino).and_then(|node| match node {
            Node::Object(place) => self.xattr_names(&place, req.uid() == 0),
            Node::ControlDir | Node::SnapshotDir => Ok(Vec::new()),
        });
        valued(names, size, reply);
    }

    fn removexattr(&self, _req: &Request, ino: INodeNo, name: &OsStr, reply: ReplyEmpty) {
        let _turn = self.turns.begin();
        let place = self.spaces.place(ino);
        done(place.and_then(|place| self.remove_xattr(&place, name.as_bytes())), reply);
    }

    fn fallocate(
        &self,
        req: &Request,
        ino: INodeNo,
        _fh: FileHandle,
        offset: u64,
        length: u64,
        mode: i32,
        reply: ReplyEmpty,
    ) {
        let _turn = self.turns.begin();
        let allocated = self.spaces.place(ino).and_then(|place| {
            self.disarmed(&place, req.uid() != 0)?;
            self.allocated(&place, offset, length, mode)
        });
        done(allocated, reply);
    }

    fn lseek(
        &self,
        _req: &Request,
        ino: INodeNo,
        _fh: FileHandle,
        offset: i64,
        whence: i32,
        reply: ReplyLseek,
    ) {
        let _turn = self.turns.begin();
        let found = || {
            let data = match whence {
                SEEK_DATA => true,
                SEEK_HOLE => false,
                _ => return Err(Errno::EINVAL),
            };
            let offset = u64::try_from(offset).map_err(|_| Errno::ENXIO)?;
            let place = self.spaces.place(ino)?;
            let found = place.fs.seek(place.object, offset, data).map_err(|e| errno(&e))?;
            i64::try_from(found.ok_or(Errno::ENXIO)?).map_err(|_| Errno::EOVERFLOW)
        };
        match found() {
            Ok(at) => reply.offset(at),
            Err(e) => reply.error(e),
        }
    }
}
