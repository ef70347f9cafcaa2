//! Disks of which each takes the time it is told to, and fails when it is told to: files of a small FUSE file system.

use std::ffi::OsStr;
use std::fs::File;
use std::os::unix::fs::FileExt;
use std::path::PathBuf;
use std::time::{Duration, SystemTime};

use fuser::{
    BackgroundSession, Config, Errno, FileAttr, FileHandle, FileType, Filesystem, FopenFlags,
    Generation, INodeNo, LockOwner, MountOption, OpenFlags, ReplyAttr, ReplyData, ReplyEmpty,
    ReplyEntry, ReplyOpen, ReplyWrite, Request, Session, WriteFlags,
};
use rt::sync::Arc;
use rt::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use testkit::{TempDir, temp_dir};

const FIRST: u64 = 2;
/// Attributes do not change: nobody else has these files.
const FOREVER: Duration = Duration::from_secs(3600);
/// How long nobody is answered: the system ends no process that waits for that, and a test that failed is to end.
const HIDDEN_MAX: Duration = Duration::from_secs(120);

/// How one of them behaves.
struct Disk {
    file: File,
    micros: AtomicU64,
    fails: AtomicBool,
}

impl Disk {
    fn wait(&self) {
        rt::time::sleep(Duration::from_micros(self.micros.load(Ordering::Relaxed)));
    }

    /// What an operation has to bear.
    fn bear(&self) -> Result<(), Errno> {
        self.wait();
        if self.fails.load(Ordering::Relaxed) { Err(Errno::EIO) } else { Ok(()) }
    }
}

struct Door {
    disks: Arc<Vec<Disk>>,
    size: u64,
    /// Nobody is answered who asks for a name.
    hides: Arc<AtomicBool>,
}

/// The disks, as long as this lives.
pub struct Disks {
    disks: Arc<Vec<Disk>>,
    hides: Arc<AtomicBool>,
    mounted: TempDir,
    session: BackgroundSession,
    _files: TempDir,
}

impl Disks {
    /// So many of so many bytes, each operation of which takes so long.
    ///
    /// # Panics
    /// Without FUSE.
    #[must_use]
    pub fn new(count: usize, size: u64, time: Duration) -> Disks {
        let (files, mounted) = (temp_dir(), temp_dir());
        let disk = |number: usize| {
            let path = files.path().join(number.to_string());
            let mut options = File::options();
            let file = options.read(true).write(true).create_new(true).open(path).expect("a file");
            file.set_len(size).expect("room for it");
            let micros = AtomicU64::new(time.as_micros() as u64);
            Disk { file, micros, fails: AtomicBool::new(false) }
        };
        let disks = Arc::new((0..count).map(disk).collect::<Vec<_>>());
        let mut config = Config::default();
        config.mount_options = vec![MountOption::FSName("disks".into()), MountOption::RW];
        config.n_threads = Some(16);
        config.clone_fd = true;
        let hides: Arc<AtomicBool> = Arc::default();
        let door = Door { disks: disks.clone(), size, hides: hides.clone() };
        let session = Session::new(door, mounted.path(), &config);
        let session = session.unwrap_or_else(|error| panic!("{error}: is there a /dev/fuse?"));
        let session = session.spawn().expect("its threads");
        Disks { disks, hides, mounted, session, _files: files }
    }

    /// Where a disk is.
    #[must_use]
    pub fn path(&self, number: usize) -> PathBuf {
        self.mounted.path().join(format!("disk{number}"))
    }

    /// Where all of them are.
    #[must_use]
    pub fn paths(&self) -> Vec<PathBuf> {
        (0..self.disks.len()).map(|number| self.path(number)).collect()
    }

    /// Each operation of this one takes so long from now on.
    pub fn take(&self, number: usize, time: Duration) {
        self.disks[number].micros.store(time.as_micros() as u64, Ordering::Relaxed);
    }

    /// All operations of this one fail from now on, or no longer.
    pub fn fail(&self, number: usize, fails: bool) {
        self.disks[number].fails.store(fails, Ordering::Relaxed);
    }

    /// From now on whoever asks for one of their names waits, or no longer.
    pub fn hide(&self, hides: bool) {
        self.hides.store(hides, Ordering::Relaxed);
        for number in 0..self.disks.len() {
            // What the kernel knows it does not ask for.
            let name = format!("disk{number}");
            drop(self.session.notifier().inval_entry(INodeNo(1), OsStr::new(&name)));
        }
    }
}

impl Door {
    fn disk(&self, ino: INodeNo) -> Result<&Disk, Errno> {
        let number = ino.0.checked_sub(FIRST).and_then(|number| usize::try_from(number).ok());
        number.and_then(|number| self.disks.get(number)).ok_or(Errno::ENOENT)
    }

    fn attr(&self, ino: u64) -> FileAttr {
        let is_dir = ino < FIRST;
        FileAttr {
            ino: INodeNo(ino),
            size: if is_dir { 0 } else { self.size },
            blocks: 0,
            atime: SystemTime::UNIX_EPOCH,
            mtime: SystemTime::UNIX_EPOCH,
            ctime: SystemTime::UNIX_EPOCH,
            crtime: SystemTime::UNIX_EPOCH,
            kind: if is_dir { FileType::Directory } else { FileType::RegularFile },
            perm: if is_dir { 0o755 } else { 0o644 },
            nlink: 1,
            uid: 0,
            gid: 0,
            rdev: 0,
            blksize: 4096,
            flags: 0,
        }
    }
}

impl Filesystem for Door {
    fn lookup(&self, _: &Request, _: INodeNo, name: &OsStr, reply: ReplyEntry) {
        let start = rt::time::now();
        while self.hides.load(Ordering::Relaxed) && start.elapsed() < HIDDEN_MAX {
            rt::time::sleep(Duration::from_millis(10));
        }
        let number = name.to_str().and_then(|name| name.strip_prefix("disk")?.parse::<u64>().ok());
        match number.filter(|number| *number < self.disks.len() as u64) {
            Some(number) => reply.entry(&FOREVER, &self.attr(FIRST + number), Generation(0)),
            None => reply.error(Errno::ENOENT),
        }
    }

    fn getattr(&self, _: &Request, ino: INodeNo, _: Option<FileHandle>, reply: ReplyAttr) {
        reply.attr(&FOREVER, &self.attr(ino.0));
    }

    fn open(&self, _: &Request, _: INodeNo, _: OpenFlags, reply: ReplyOpen) {
        // Nothing is kept by the kernel: a disk that fails fails at once.
        reply.opened(FileHandle(0), FopenFlags::FOPEN_DIRECT_IO);
    }

    fn read(
        &self,
        _: &Request,
        ino: INodeNo,
        _: FileHandle,
        offset: u64,
        size: u32,
        _: OpenFlags,
        _: Option<LockOwner>,
        reply: ReplyData,
    ) {
        let mut bytes = vec![0; size as usize];
        let read = self.disk(ino).and_then(|disk| {
            disk.bear()?;
            disk.file.read_exact_at(&mut bytes, offset).map_err(|_| Errno::EIO)
        });
        match read {
            Ok(()) => reply.data(&bytes),
            Err(error) => reply.error(error),
        }
    }

    fn write(
        &self,
        _: &Request,
        ino: INodeNo,
        _: FileHandle,
        offset: u64,
        data: &[u8],
        _: WriteFlags,
        _: OpenFlags,
        _: Option<LockOwner>,
        reply: ReplyWrite,
    ) {
        let written = self.disk(ino).and_then(|disk| {
            disk.bear()?;
            disk.file.write_all_at(data, offset).map_err(|_| Errno::EIO)
        });
        match written {
            Ok(()) => reply.written(data.len() as u32),
            Err(error) => reply.error(error),
        }
    }

    // What one has taken it keeps. Of a flush that fails beyond redundancy nothing comes back; `crash` is about those.
    fn fsync(&self, _: &Request, ino: INodeNo, _: FileHandle, _: bool, reply: ReplyEmpty) {
        match self.disk(ino).map(Disk::wait) {
            Ok(()) => reply.ok(),
            Err(error) => reply.error(error),
        }
    }
}
