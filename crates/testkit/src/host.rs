//! The host's own file systems: doing a workload there, and listing what is there.

use std::ffi::OsStr;
use std::fs::{self, File, OpenOptions};
use std::io::Read;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{FileExt, FileTypeExt, MetadataExt, PermissionsExt, symlink};
use std::path::{Path, PathBuf};

use rustix::fs::{
    AtFlags, CWD, FileType, Gid, Mode, SeekFrom, Timespec, Timestamps, Uid, XattrFlags,
};
use rustix::io::Errno;
use sha2::{Digest, Sha256};

use crate::truth::{Entry, Kind, XattrValue};
use crate::workload::Op;

fn below(dir: &Path, path: &[u8]) -> PathBuf {
    dir.join(OsStr::from_bytes(path))
}

/// Does `op` in `dir` (syncs and reopens do nothing).
///
/// # Errors
/// What the host said.
pub fn apply(dir: &Path, op: &Op) -> std::io::Result<()> {
    let at = |path: &[u8]| below(dir, path);
    let writable = |path: &[u8]| OpenOptions::new().write(true).open(at(path));
    let set_mode =
        |path: &[u8], mode: u32| fs::set_permissions(at(path), fs::Permissions::from_mode(mode));
    match op {
        Op::Mkdir { path, mode } => {
            fs::create_dir(at(path))?;
            set_mode(path, *mode)?;
        }
        Op::Create { path, mode } => {
            File::create_new(at(path))?;
            set_mode(path, *mode)?;
        }
        Op::Fifo { path, mode } => {
            rustix::fs::mknodat(CWD, at(path), FileType::Fifo, Mode::from_raw_mode(*mode), 0)?;
            set_mode(path, *mode)?;
        }
        Op::Symlink { path, target } => symlink(OsStr::from_bytes(target), at(path))?,
        Op::Write { path, offset, data } => writable(path)?.write_all_at(&data.bytes(), *offset)?,
        Op::Truncate { path, size } => writable(path)?.set_len(*size)?,
        Op::Link { existing, path } => fs::hard_link(at(existing), at(path))?,
        Op::Rename { from, to } => fs::rename(at(from), at(to))?,
        Op::Remove { path } => fs::remove_file(at(path))?,
        Op::Rmdir { path } => fs::remove_dir(at(path))?,
        Op::SetMode { path, mode } => {
            // the mode of a symbolic link means nothing and cannot be set
            if !at(path).is_symlink() {
                set_mode(path, *mode)?;
            }
        }
        Op::SetOwner { path, uid, gid } => {
            let (uid, gid) = (Uid::from_raw(*uid), Gid::from_raw(*gid));
            let flags = AtFlags::SYMLINK_NOFOLLOW;
            rustix::fs::chownat(CWD, at(path), Some(uid), Some(gid), flags)?;
        }
        Op::SetTime { path, mtime } => {
            let time = Timespec { tv_sec: mtime.0, tv_nsec: i64::from(mtime.1) };
            let times = Timestamps { last_access: time, last_modification: time };
            rustix::fs::utimensat(CWD, at(path), &times, AtFlags::SYMLINK_NOFOLLOW)?;
        }
        Op::SetXattr { path, name, value } => {
            rustix::fs::lsetxattr(at(path), name.as_slice(), value, XattrFlags::empty())?;
        }
        Op::RemoveXattr { path, name } => rustix::fs::lremovexattr(at(path), name.as_slice())?,
        Op::Sync | Op::Reopen => {}
    }
    Ok(())
}

/// Everything in `dir`, itself included, as a listing: parents first, in the order of bytes.
///
/// # Panics
/// If something cannot be read.
#[must_use]
pub fn list(dir: &Path) -> Vec<Entry> {
    let mut out = Vec::new();
    let mut todo = vec![Vec::new()];
    while let Some(path) = todo.pop() {
        let full = below(dir, &path);
        let entry = entry(&full, &path).unwrap_or_else(|e| panic!("{}: {e}", full.display()));
        if entry.kind == Kind::Dir {
            let names = fs::read_dir(&full).unwrap_or_else(|e| panic!("{}: {e}", full.display()));
            for name in names {
                let name = name.unwrap_or_else(|e| panic!("{}: {e}", full.display())).file_name();
                let sep: &[u8] = if path.is_empty() { b"" } else { b"/" };
                todo.push([&path, sep, name.as_bytes()].concat());
            }
        }
        out.push(entry);
    }
    out.sort_by(|a, b| a.path.cmp(&b.path));
    out
}

fn entry(full: &Path, path: &[u8]) -> std::io::Result<Entry> {
    let meta = fs::symlink_metadata(full)?;
    let form = meta.file_type();
    let kind = match () {
        () if form.is_dir() => Kind::Dir,
        () if form.is_symlink() => Kind::Link,
        () if form.is_fifo() => Kind::Fifo,
        () if form.is_socket() => Kind::Socket,
        () if form.is_block_device() => Kind::Block,
        () if form.is_char_device() => Kind::Char,
        () => Kind::File,
    };
    let path = if path.is_empty() { b"." } else { path };
    let nanoseconds = |n: i64| u32::try_from(n).unwrap_or(0);
    let mut entry = Entry::new(path.to_vec(), kind);
    entry.object = meta.ino();
    entry.mode = meta.mode() & 0o7777;
    (entry.uid, entry.gid) = (meta.uid(), meta.gid());
    (entry.size, entry.nlink) = (meta.size(), meta.nlink());
    (entry.blocks, entry.blksize) = (meta.blocks(), meta.blksize());
    entry.atime = (meta.atime(), nanoseconds(meta.atime_nsec()));
    entry.mtime = (meta.mtime(), nanoseconds(meta.mtime_nsec()));
    entry.ctime = (meta.ctime(), nanoseconds(meta.ctime_nsec()));
    match kind {
        Kind::Link => entry.target = Some(fs::read_link(full)?.as_os_str().as_bytes().to_vec()),
        Kind::Block | Kind::Char => {
            let rdev = meta.rdev();
            entry.rdev = Some((rustix::fs::major(rdev), rustix::fs::minor(rdev)));
        }
        Kind::File => {
            let file = File::open(full)?;
            let data = segments(&file, meta.size())?;
            entry.sha256 = Some(digest(&file, meta.size(), &data)?);
            if data != [(0, meta.size())] && meta.size() > 0 {
                entry.data = Some(data);
            }
        }
        _ => {}
    }
    entry.xattrs = xattrs(full)?;
    Ok(entry)
}

/// Offset and length of the segments of data, as SEEK_DATA and SEEK_HOLE tell them.
fn segments(file: &File, size: u64) -> std::io::Result<Vec<(u64, u64)>> {
    let mut out = Vec::new();
    let mut at = 0;
    while at < size {
        let start = match rustix::fs::seek(file, SeekFrom::Data(at)) {
            Err(Errno::NXIO) => break,
            start => start?,
        };
        at = rustix::fs::seek(file, SeekFrom::Hole(start))?;
        out.push((start, at - start));
    }
    Ok(out)
}

/// The hex of the sha256 of all of a file; its holes are not read.
fn digest(file: &File, size: u64, data: &[(u64, u64)]) -> std::io::Result<String> {
    let mut sum = Sha256::new();
    let mut at = 0;
    let zeros = vec![0u8; 1 << 20];
    let end = [(size, 0)];
    for (start, len) in data.iter().chain(&end) {
        while at < *start {
            let n = (start - at).min(zeros.len() as u64);
            sum.update(&zeros[..usize::try_from(n).unwrap_or(zeros.len())]);
            at += n;
        }
        let mut buffer = vec![0u8; 1 << 20];
        let mut left = *len;
        while left > 0 {
            let n = usize::try_from(left.min(buffer.len() as u64)).unwrap_or(buffer.len());
            file.read_exact_at(&mut buffer[..n], at)?;
            sum.update(&buffer[..n]);
            (at, left) = (at + n as u64, left - n as u64);
        }
    }
    Ok(sum.finalize().iter().map(|b| format!("{b:02x}")).collect())
}

fn xattrs(full: &Path) -> std::io::Result<Vec<(Vec<u8>, XattrValue)>> {
    let mut names = vec![0u8; 1 << 16];
    let n = match rustix::fs::llistxattr(full, &mut names) {
        Err(Errno::OPNOTSUPP) => 0,
        n => n?,
    };
    let mut out = Vec::new();
    for name in names[..n].split(|b| *b == 0).filter(|name| !name.is_empty()) {
        let mut value = vec![0u8; 1 << 16];
        let n = rustix::fs::lgetxattr(full, name, &mut value)?;
        out.push((name.to_vec(), XattrValue::of(&value[..n])));
    }
    out.sort_by(|a, b| a.0.cmp(&b.0));
    Ok(out)
}

/// The bytes of a file.
///
/// # Panics
/// If it cannot be read.
#[must_use]
pub fn read(path: &Path) -> Vec<u8> {
    let mut out = Vec::new();
    let read = File::open(path).and_then(|mut file| file.read_to_end(&mut out));
    read.unwrap_or_else(|e| panic!("{}: {e}", path.display()));
    out
}
