//! A FUSE mount that hands everything on to a directory: what FUSE itself costs, with the settings of our mount.
//!
//! Files in one directory, as the works of `path` use them.

use std::collections::HashMap;
use std::ffi::OsStr;
use std::fs::{File, Metadata, OpenOptions};
use std::io;
use std::os::unix::fs::{FileExt, MetadataExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::time::Duration;

use fuser::{
    Config, Errno, FileAttr, FileHandle, FileType, Filesystem, FopenFlags, Generation, INodeNo,
    KernelConfig, LockOwner, OpenFlags, ReplyAttr, ReplyCreate, ReplyData, ReplyEmpty, ReplyEntry,
    ReplyOpen, ReplyWrite, Request, WriteFlags,
};
use rt::sync::{Arc, Mutex};

/// How long the kernel may take names and attributes for right.
const TTL: Duration = Duration::from_secs(60);
/// Bytes of a read or write, at most.
const IO_MAX: u32 = 1 << 20;

struct Passthrough {
    top: PathBuf,
    /// Names by inode number of the host.
    names: Mutex<HashMap<u64, PathBuf>>,
    open: Mutex<(u64, HashMap<u64, Arc<File>>)>,
}

/// Mounts `from` on `on`, until it is unmounted.
pub(crate) fn serve(from: &Path, on: &Path) -> io::Result<()> {
    let mut config = Config::default();
    config.acl = fuser::SessionACL::All;
    config.n_threads = Some(16);
    config.clone_fd = true;
    let door = Passthrough { top: from.into(), names: Mutex::default(), open: Mutex::default() };
    let session = fuser::Session::new(door, on, &config)?;
    let served = rt::thread::spawn("passthrough", move || session.run());
    let device = on.metadata()?.dev();
    let (major, minor) = (rustix::fs::major(device), rustix::fs::minor(device));
    std::fs::write(format!("/sys/class/bdi/{major}:{minor}/read_ahead_kb"), "1024")?;
    served.join()
}

impl Passthrough {
    fn path(&self, ino: INodeNo) -> Result<PathBuf, Errno> {
        if ino == INodeNo::ROOT {
            return Ok(self.top.clone());
        }
        self.names.lock().get(&ino.0).cloned().ok_or(Errno::ENOENT)
    }

    fn file(&self, handle: FileHandle) -> Result<Arc<File>, Errno> {
        self.open.lock().1.get(&handle.0).cloned().ok_or(Errno::EBADF)
    }

    fn keep(&self, file: File) -> FileHandle {
        let mut open = self.open.lock();
        open.0 += 1;
        let number = open.0;
        open.1.insert(number, Arc::new(file));
        FileHandle(number)
    }

    fn named(&self, path: PathBuf, meta: &Metadata) -> FileAttr {
        self.names.lock().insert(meta.ino(), path);
        attr(INodeNo(meta.ino()), meta)
    }
}

fn attr(ino: INodeNo, meta: &Metadata) -> FileAttr {
    let epoch = std::time::SystemTime::UNIX_EPOCH;
    FileAttr {
        ino,
        size: meta.len(),
        blocks: meta.blocks(),
        atime: meta.accessed().unwrap_or(epoch),
        mtime: meta.modified().unwrap_or(epoch),
        ctime: epoch,
        crtime: epoch,
        kind: if meta.is_dir() { FileType::Directory } else { FileType::RegularFile },
        perm: meta.permissions().mode() as u16 & 0o7777,
        nlink: meta.nlink() as u32,
        uid: meta.uid(),
        gid: meta.gid(),
        rdev: 0,
        blksize: meta.blksize() as u32,
        flags: 0,
    }
}

impl Filesystem for Passthrough {
    fn init(&mut self, _req: &Request, config: &mut KernelConfig) -> io::Result<()> {
        let _ = config.set_max_write(IO_MAX);
        let _ = config.set_max_readahead(IO_MAX).or_else(|most| config.set_max_readahead(most));
        let _ = config.set_max_background(64);
        Ok(())
    }

    fn lookup(&self, _req: &Request, parent: INodeNo, name: &OsStr, reply: ReplyEntry) {
        let found = self.path(parent).and_then(|dir| {
            let path = dir.join(name);
            let meta = path.symlink_metadata()?;
            Ok(self.named(path, &meta))
        });
        match found {
            Ok(attr) => reply.entry(&TTL, &attr, Generation(0)),
            Err(e) => reply.error(e),
        }
    }

    fn getattr(&self, _req: &Request, ino: INodeNo, _fh: Option<FileHandle>, reply: ReplyAttr) {
        match self.path(ino).and_then(|path| Ok(path.symlink_metadata()?)) {
            Ok(meta) => reply.attr(&TTL, &attr(ino, &meta)),
            Err(e) => reply.error(e),
        }
    }

    fn create(
        &self,
        _req: &Request,
        parent: INodeNo,
        name: &OsStr,
        _mode: u32,
        _umask: u32,
        _flags: i32,
        reply: ReplyCreate,
    ) {
        let made = self.path(parent).and_then(|dir| {
            let path = dir.join(name);
            let file =
                File::options().read(true).write(true).create(true).truncate(true).open(&path)?;
            let meta = file.metadata()?;
            Ok((self.named(path, &meta), self.keep(file)))
        });
        match made {
            Ok((attr, handle)) => {
                reply.created(&TTL, &attr, Generation(0), handle, FopenFlags::FOPEN_KEEP_CACHE);
            }
            Err(e) => reply.error(e),
        }
    }

    fn open(&self, _req: &Request, ino: INodeNo, flags: OpenFlags, reply: ReplyOpen) {
        let write = flags.0 & 3 != 0;
        let open = |path| Ok(OpenOptions::new().read(true).write(write).open(path)?);
        match self.path(ino).and_then(open) {
            Ok(file) => reply.opened(self.keep(file), FopenFlags::FOPEN_KEEP_CACHE),
            Err(e) => reply.error(e),
        }
    }

    fn read(
        &self,
        _req: &Request,
        _ino: INodeNo,
        fh: FileHandle,
        offset: u64,
        size: u32,
        _flags: OpenFlags,
        _lock_owner: Option<LockOwner>,
        reply: ReplyData,
    ) {
        thread_local!(static BUF: std::cell::RefCell<Vec<u8>> = const { std::cell::RefCell::new(Vec::new()) });
        BUF.with_borrow_mut(|buf| {
            buf.resize(IO_MAX as usize, 0);
            let part = &mut buf[..size.min(IO_MAX) as usize];
            match self.file(fh).and_then(|file| Ok(file.read_at(part, offset)?)) {
                Ok(count) => reply.data(&part[..count]),
                Err(e) => reply.error(e),
            }
        });
    }

    fn write(
        &self,
        _req: &Request,
        _ino: INodeNo,
        fh: FileHandle,
        offset: u64,
        data: &[u8],
        _write_flags: WriteFlags,
        _flags: OpenFlags,
        _lock_owner: Option<LockOwner>,
        reply: ReplyWrite,
    ) {
        match self.file(fh).and_then(|file| Ok(file.write_all_at(data, offset)?)) {
            Ok(()) => reply.written(data.len() as u32),
            Err(e) => reply.error(e),
        }
    }

    fn flush(&self, _: &Request, _: INodeNo, _: FileHandle, _: LockOwner, reply: ReplyEmpty) {
        reply.error(Errno::ENOSYS);
    }

    fn release(
        &self,
        _req: &Request,
        _ino: INodeNo,
        fh: FileHandle,
        _flags: OpenFlags,
        _lock_owner: Option<LockOwner>,
        _flush: bool,
        reply: ReplyEmpty,
    ) {
        self.open.lock().1.remove(&fh.0);
        reply.ok();
    }

    fn fsync(&self, _: &Request, _: INodeNo, fh: FileHandle, _: bool, reply: ReplyEmpty) {
        match self.file(fh).and_then(|file| Ok(file.sync_all()?)) {
            Ok(()) => reply.ok(),
            Err(e) => reply.error(e),
        }
    }

    fn unlink(&self, _req: &Request, parent: INodeNo, name: &OsStr, reply: ReplyEmpty) {
        let gone = self.path(parent).and_then(|dir| Ok(std::fs::remove_file(dir.join(name))?));
        match gone {
            Ok(()) => reply.ok(),
            Err(e) => reply.error(e),
        }
    }
}
