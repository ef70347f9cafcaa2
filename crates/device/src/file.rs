//! Image files and block devices, through positioned system calls.
//!
//! The one idea: the calling thread does the call. For files in the page cache or on tmpfs that
//! beats every queue; real disks get their threads and deadlines from [`crate::queue`].
//!
//! The writable form holds an exclusive lock (`flock`) for its life, so that two processes never
//! write one device (INV-13). The kernel's own pools take no such lock: host id and pool state
//! guard against those.

use crate::error::{DeviceError, Operation, Result};
use crate::{Device, WriteDevice};
use rt::sync::atomic::{AtomicU64, Ordering};
use rustix::fs::{Advice, FileType, FlockOperation, Mode, OFlags, SeekFrom};
use rustix::io::Errno;
use std::io::{IoSlice, IoSliceMut};
use std::num::NonZeroU64;
use std::os::fd::{AsRawFd, OwnedFd};
use std::path::{Path, PathBuf};

/// The most buffers that one call takes (IOV_MAX on Linux).
const IOV_MAX: usize = 1024;

/// The largest piece, as aligned, in which the kernel remembers what was read or written; it forgets whole ones only.
const REMEMBERED_MAX: u64 = 2 << 20;

struct File {
    fd: OwnedFd,
    /// A disk once more, to be read without reading ahead: see [`File::read_uncached`].
    uncached: Option<OwnedFd>,
    path: PathBuf,
    name: String,
    size: AtomicU64,
    sector_size: u32,
    is_block_device: bool,
}

/// A file or block device opened for reading only: the system would refuse to write to it.
pub struct ReadFile(File);

/// A file or block device opened for reading and writing, locked against other writers.
pub struct WriteFile(File);

impl File {
    fn open(path: &Path, flags: OFlags) -> Result<File> {
        let name = path.display().to_string();
        let fail = |operation: Operation| {
            let device = name.clone();
            move |errno| DeviceError::Open { device, operation, errno }
        };
        // NONBLOCK: a path that names a pipe must not hang the open; no effect on files and disks.
        let flags = flags | OFlags::CLOEXEC | OFlags::NOCTTY | OFlags::NONBLOCK;
        let fd = match rustix::fs::open(path, flags, Mode::empty()) {
            Ok(fd) => fd,
            // A directory opened for writing.
            Err(Errno::ISDIR) => return Err(DeviceError::Kind { device: name }),
            Err(Errno::BUSY) => return Err(DeviceError::Busy { device: name }),
            Err(errno) => return Err(fail(Operation::Open)(errno)),
        };
        let stat = rustix::fs::fstat(&fd).map_err(fail(Operation::Probe))?;
        let kind = FileType::from_raw_mode(stat.st_mode);
        let sector_size = match kind {
            FileType::RegularFile => 512,
            FileType::BlockDevice => block_device_sector_size(stat.st_rdev),
            _ => return Err(DeviceError::Kind { device: name }),
        };
        // The end of either is where its bytes end; nothing here reads or writes at the file's own position.
        let size = rustix::fs::seek(&fd, SeekFrom::End(0)).map_err(fail(Operation::Probe))?;
        let is_block_device = kind == FileType::BlockDevice;
        let uncached = is_block_device.then(|| open_again(&fd)).flatten();
        let (path, size) = (path.to_owned(), AtomicU64::new(size));
        Ok(File { fd, uncached, path, name, size, sector_size, is_block_device })
    }

    fn size(&self) -> u64 {
        self.size.load(Ordering::Relaxed)
    }

    /// A device that has become smaller keeps its size: what is missing is an error of whoever asks for it.
    fn measure(&self) -> u64 {
        let now = rustix::fs::seek(&self.fd, SeekFrom::End(0)).unwrap_or(0);
        self.size.fetch_max(now, Ordering::Relaxed).max(now)
    }

    fn io(&self, operation: Operation, offset: u64, size: u64, errno: Errno) -> DeviceError {
        DeviceError::Io { device: self.name.clone(), operation, offset, size, errno }
    }

    /// Refuses a range that is not within the device: a write must not grow an image.
    fn check(&self, operation: Operation, offset: u64, size: u64) -> Result<()> {
        match offset.checked_add(size) {
            Some(end) if end <= self.size() => Ok(()),
            _ => Err(DeviceError::Range {
                device: self.name.clone(),
                operation,
                offset,
                size,
                end: self.size(),
            }),
        }
    }

    fn read_at(&self, offset: u64, buf: &mut [u8]) -> Result<()> {
        let size = buf.len() as u64;
        self.check(Operation::Read, offset, size)?;
        let mut done = 0;
        while done < buf.len() {
            match rustix::io::pread(&self.fd, &mut buf[done..], offset + done as u64) {
                // The file was made shorter under us.
                Ok(0) => return Err(self.io(Operation::Read, offset, size, Errno::IO)),
                Ok(n) => done += n,
                Err(Errno::INTR) => {}
                Err(errno) => return Err(self.io(Operation::Read, offset, size, errno)),
            }
        }
        Ok(())
    }

    fn read_vectored_at(&self, offset: u64, bufs: &mut [IoSliceMut<'_>]) -> Result<()> {
        self.read_vectored_from(&self.fd, offset, bufs)
    }

    /// What the disk has: the kernel forgets what it remembers of the range, and reads it anew. It would forget what it
    /// has read ahead, too, and read that twice. What is not written yet it keeps. Of an image file it is as good as
    /// the disk.
    fn read_uncached(&self, offset: u64, bufs: &mut [IoSliceMut<'_>]) -> Result<()> {
        let size = bufs.iter().map(|b| b.len() as u64).sum();
        self.check(Operation::Read, offset, size)?;
        if self.is_block_device {
            let start = offset / REMEMBERED_MAX * REMEMBERED_MAX;
            let len = NonZeroU64::new((offset + size).next_multiple_of(REMEMBERED_MAX) - start);
            // An error tells of nothing but the descriptor; reading will.
            let _ =
                len.map(|len| rustix::fs::fadvise(&self.fd, start, Some(len), Advice::DontNeed));
        }
        self.read_vectored_from(self.uncached.as_ref().unwrap_or(&self.fd), offset, bufs)
    }

    fn read_vectored_from(
        &self,
        fd: &OwnedFd,
        offset: u64,
        bufs: &mut [IoSliceMut<'_>],
    ) -> Result<()> {
        let size = bufs.iter().map(|b| b.len() as u64).sum();
        self.check(Operation::Read, offset, size)?;
        let mut at = offset;
        for bufs in bufs.chunks_mut(IOV_MAX) {
            let mut bufs = bufs;
            skip_empty_mut(&mut bufs);
            while !bufs.is_empty() {
                match rustix::io::preadv(fd, bufs, at) {
                    Ok(0) => return Err(self.io(Operation::Read, offset, size, Errno::IO)),
                    Ok(n) => {
                        at += n as u64;
                        IoSliceMut::advance_slices(&mut bufs, n);
                        skip_empty_mut(&mut bufs);
                    }
                    Err(Errno::INTR) => {}
                    Err(errno) => return Err(self.io(Operation::Read, offset, size, errno)),
                }
            }
        }
        Ok(())
    }

    fn write_at(&self, offset: u64, bytes: &[u8]) -> Result<()> {
        let size = bytes.len() as u64;
        self.check(Operation::Write, offset, size)?;
        let mut done = 0;
        while done < bytes.len() {
            match rustix::io::pwrite(&self.fd, &bytes[done..], offset + done as u64) {
                Ok(0) => return Err(self.io(Operation::Write, offset, size, Errno::IO)),
                Ok(n) => done += n,
                Err(Errno::INTR) => {}
                Err(errno) => return Err(self.io(Operation::Write, offset, size, errno)),
            }
        }
        Ok(())
    }

    fn write_vectored_at(&self, offset: u64, bufs: &[IoSlice<'_>]) -> Result<()> {
        let size = bufs.iter().map(|b| b.len() as u64).sum();
        self.check(Operation::Write, offset, size)?;
        let mut at = offset;
        for chunk in bufs.chunks(IOV_MAX) {
            let chunk_size: usize = chunk.iter().map(|b| b.len()).sum();
            if chunk_size == 0 {
                continue;
            }
            let mut done = loop {
                match rustix::io::pwritev(&self.fd, chunk, at) {
                    Ok(n) => break n,
                    Err(Errno::INTR) => {}
                    Err(errno) => return Err(self.io(Operation::Write, offset, size, errno)),
                }
            };
            // A short write is rare (a full file system, a signal): finish it piece by piece.
            let mut start = 0;
            for buf in chunk {
                if done < start + buf.len() {
                    let skip = done - start;
                    self.write_at(at + done as u64, &buf[skip..])?;
                    done = start + buf.len();
                }
                start += buf.len();
            }
            at += chunk_size as u64;
        }
        Ok(())
    }

    fn flush(&self) -> Result<()> {
        loop {
            match rustix::fs::fdatasync(&self.fd) {
                Ok(()) => return Ok(()),
                Err(Errno::INTR) => {}
                Err(errno) => return Err(self.io(Operation::Flush, 0, 0, errno)),
            }
        }
    }
}

/// The same disk by another descriptor, through which the kernel does not read ahead; `None` where there is no /proc.
fn open_again(fd: &OwnedFd) -> Option<OwnedFd> {
    let path = format!("/proc/self/fd/{}", fd.as_raw_fd());
    let flags = OFlags::RDONLY | OFlags::CLOEXEC | OFlags::NOCTTY | OFlags::NONBLOCK;
    let again = rustix::fs::open(path, flags, Mode::empty()).ok()?;
    rustix::fs::fadvise(&again, 0, None, Advice::Random).ok()?;
    Some(again)
}

/// An empty head would read 0 bytes, which looks like the end of the file.
fn skip_empty_mut(bufs: &mut &mut [IoSliceMut<'_>]) {
    IoSliceMut::advance_slices(bufs, 0);
}

/// The physical sector of a disk, as the kernel tells in sysfs; 512 when it does not.
fn block_device_sector_size(device: u64) -> u32 {
    let (major, minor) = (rustix::fs::major(device), rustix::fs::minor(device));
    let queue = PathBuf::from(format!("/sys/dev/block/{major}:{minor}"));
    // A partition's queue is its disk's.
    ["queue/physical_block_size", "../queue/physical_block_size"]
        .iter()
        .filter_map(|file| std::fs::read_to_string(queue.join(file)).ok())
        .filter_map(|text| text.trim().parse().ok())
        .find(|size: &u32| size.is_power_of_two() && (512..=1 << 16).contains(size))
        .unwrap_or(512)
}

impl ReadFile {
    /// Opens a regular file or block device for reading. Takes no lock.
    pub fn open(path: impl AsRef<Path>) -> Result<ReadFile> {
        File::open(path.as_ref(), OFlags::RDONLY).map(ReadFile)
    }

    /// The path that was opened.
    pub fn path(&self) -> &Path {
        &self.0.path
    }

    /// Whether it is a disk or partition, not a regular file.
    pub fn is_block_device(&self) -> bool {
        self.0.is_block_device
    }
}

impl WriteFile {
    /// Opens a regular file or block device for reading and writing, and locks it: a second
    /// writer gets [`DeviceError::Busy`] until this one is dropped.
    pub fn open(path: impl AsRef<Path>) -> Result<WriteFile> {
        // EXCL: the kernel refuses a disk that is mounted or part of something else; it does not
        // look at it for regular files.
        let file = File::open(path.as_ref(), OFlags::RDWR | OFlags::EXCL)?;
        match rustix::fs::flock(&file.fd, FlockOperation::NonBlockingLockExclusive) {
            Ok(()) => Ok(WriteFile(file)),
            Err(Errno::WOULDBLOCK) => Err(DeviceError::Busy { device: file.name }),
            Err(errno) => {
                Err(DeviceError::Open { device: file.name, operation: Operation::Open, errno })
            }
        }
    }

    /// The path that was opened.
    pub fn path(&self) -> &Path {
        &self.0.path
    }

    /// Whether it is a disk or partition, not a regular file.
    pub fn is_block_device(&self) -> bool {
        self.0.is_block_device
    }
}

/// Gives the lock back by itself: a program that another thread is about to start holds a copy of the descriptor
/// until it has begun, and the lock would stay as long.
impl Drop for WriteFile {
    fn drop(&mut self) {
        // One that cannot be given back goes with the last descriptor.
        let _ = rustix::fs::flock(&self.0.fd, FlockOperation::Unlock);
    }
}

macro_rules! device_by_file {
    ($type:ty) => {
        impl Device for $type {
            fn name(&self) -> &str {
                &self.0.name
            }
            fn size(&self) -> u64 {
                self.0.size()
            }
            fn measure(&self) -> u64 {
                self.0.measure()
            }
            fn sector_size(&self) -> u32 {
                self.0.sector_size
            }
            fn read_at(&self, offset: u64, buf: &mut [u8]) -> Result<()> {
                self.0.read_at(offset, buf)
            }
            fn read_vectored_at(&self, offset: u64, bufs: &mut [IoSliceMut<'_>]) -> Result<()> {
                self.0.read_vectored_at(offset, bufs)
            }
            fn read_uncached(&self, offset: u64, bufs: &mut [IoSliceMut<'_>]) -> Result<()> {
                self.0.read_uncached(offset, bufs)
            }
        }
    };
}

device_by_file!(ReadFile);
device_by_file!(WriteFile);

impl WriteDevice for WriteFile {
    fn write_at(&self, offset: u64, bytes: &[u8]) -> Result<()> {
        self.0.write_at(offset, bytes)
    }

    fn write_vectored_at(&self, offset: u64, bufs: &[IoSlice<'_>]) -> Result<()> {
        self.0.write_vectored_at(offset, bufs)
    }

    fn flush(&self) -> Result<()> {
        self.0.flush()
    }
}

#[cfg(test)]
mod tests;
