//! `put`: trees of the host into a data set, with modes, owners, times, links, holes and extended
//! attributes, where cp would put them.

use std::collections::{BTreeMap, BTreeSet};
use std::ffi::OsString;
use std::fs::{File, Metadata};
use std::io::{ErrorKind, Read};
use std::ops::Range;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{FileExt, MetadataExt};
use std::path::{Path, PathBuf};
use std::vec::IntoIter;

use fs::{Filesystem, FsError, NewObject, Volume, Who, mode};
use rustix::fs::SeekFrom;

use super::Here;
use super::copying::{
    CHUNK, Failed, is_descriptor, means_directory, refuse_descriptors, without_code,
};
use super::files::{fs_error, open_session, opened, shown};
use super::opening::For;
use super::session::Session;
use crate::files::{Copied, Put};
use crate::{Doing, Error, Result, Why};

/// A copy under way.
struct CopyIn<'a> {
    fs: &'a Filesystem,
    recursive: bool,
    /// Objects of files with several names, by device and inode of the host.
    linked: BTreeMap<(u64, u64), u64>,
    /// The same objects, to see whether one of them is overwritten.
    shared: BTreeSet<u64>,
    /// Directories whose entries are being copied, each in the one before: no level costs any of the stack.
    way: Vec<Entered>,
    copied: Copied,
    errors: Vec<Error>,
    buf: Vec<u8>,
}

/// A directory whose entries are being copied.
struct Entered {
    from: PathBuf,
    number: u64,
    /// What it is on the host; `None`: only what is in it was asked for.
    meta: Option<Metadata>,
    names: IntoIter<OsString>,
}

pub(super) fn put(here: &Here, request: &Put) -> Result<(Copied, Vec<Error>)> {
    refuse_descriptors(here, "read", request.from.iter().map(PathBuf::as_path))?;
    let session = open_session(here, &request.to, &request.dirs, For::Writing)?;
    let fail = |e| fs_error("open", &request.to.dataset, e);
    if let Some(volume) = Volume::open(&session.pool, &request.to.dataset).map_err(fail)? {
        return put_volume(session, volume, request);
    }
    let opened = opened(session, &request.to)?;
    let fs = &opened.fs;
    let fail = |e| fs_error("write to", &shown(&request.to), e);
    let into = match fs.resolve(&request.to.path) {
        Ok(number) => fs.attrs(number).map_err(fail)?.is_dir().then_some(number),
        Err(FsError::NotFound { .. }) => None,
        Err(e) => return Err(fail(e)),
    };
    let is_dir = |from: &PathBuf| from.symlink_metadata().is_ok_and(|meta| meta.is_dir());
    let misnamed = means_directory(&request.to.path) && !request.from.iter().all(is_dir);
    if into.is_none() && (request.from.len() > 1 || misnamed) {
        let doing = Doing::File("write to", shown(&request.to));
        return Err(Error::cannot(doing, Why::NotDirectory));
    }
    let mut copy = CopyIn {
        fs,
        recursive: request.recursive,
        linked: BTreeMap::new(),
        shared: BTreeSet::new(),
        way: Vec::new(),
        copied: Copied::default(),
        errors: Vec::new(),
        buf: vec![0; CHUNK],
    };
    for from in &request.from {
        let (dir, name) = match into {
            Some(dir) => (dir, last_name(from)),
            None => fs.resolve_parent(&request.to.path).map_err(fail)?,
        };
        if name.is_empty() {
            copy.children(from, dir, None);
        } else {
            let stands_for_bytes = copy.stands_for_bytes(from);
            copy.entry(from, dir, name, stands_for_bytes);
        }
        copy.all_below();
    }
    let copied = std::mem::take(&mut copy.copied);
    let errors = std::mem::take(&mut copy.errors);
    drop(copy);
    opened.close(&request.to)?;
    Ok((copied, errors))
}

/// Writes a file over the beginning of a volume; what lies beyond stays.
fn put_volume(session: Session, volume: Volume, request: &Put) -> Result<(Copied, Vec<Error>)> {
    let doing = || Doing::File("write to", shown(&request.to));
    let ([from], None) = (&request.from[..], fs::parts(&request.to.path).next()) else {
        return Err(Error::cannot(doing(), Why::NotDirectory));
    };
    let unread = |e: std::io::Error| {
        let place = from.to_string_lossy().into_owned();
        Error::cannot(Doing::File("read", place), Why::Host(without_code(&e)))
    };
    let mut file = File::open(from).map_err(unread)?;
    let meta = file.metadata().map_err(unread)?;
    if meta.is_dir() {
        return Err(Error::cannot(doing(), Why::IsDirectory));
    }
    if meta.is_file() && meta.len() > volume.size() {
        let why = format!("{} bytes do not fit into a volume of {}", meta.len(), volume.size());
        return Err(Error::cannot(doing(), Why::NotDone(why)));
    }
    let (mut at, mut buf) = (0, vec![0; CHUNK]);
    loop {
        // A pipe has no places to read at.
        let got = file.read(&mut buf).map_err(unread)?;
        if got == 0 {
            break;
        }
        let written = volume.write(&session.pool, at, &buf[..got]);
        written.map_err(|e| fs_error("write to", &shown(&request.to), e))?;
        at += got as u64;
    }
    drop(volume);
    session.close(doing())?;
    Ok((Copied { entries: 1, bytes: at, ..Copied::default() }, Vec::new()))
}

impl CopyIn<'_> {
    /// Copies what is in the directories that were come to, and below.
    fn all_below(&mut self) {
        while let Some(last) = self.way.last_mut() {
            if let Some(name) = last.names.next() {
                let (from, dir) = (last.from.join(&name), last.number);
                self.entry(&from, dir, name.as_bytes(), false);
            } else if let Some(Entered { from, number, meta: Some(meta), .. }) = self.way.pop()
                && let Err(failed) = self.finish(&from, number, &meta, meta.mode())
            {
                self.failed(&from, failed);
            }
        }
    }

    /// Does what somebody named stand for the bytes that come out of it? Without `-r` a device, a pipe and a link to
    /// one do, and what a process has open.
    fn stands_for_bytes(&self, from: &Path) -> bool {
        let there = std::fs::metadata(from);
        let has_bytes =
            |there: Metadata| !there.is_dir() && (!there.is_file() || is_descriptor(from));
        !self.recursive && there.is_ok_and(has_bytes)
    }

    /// Copies an entry; of a directory what is in it comes next.
    fn entry(&mut self, from: &Path, dir: u64, name: &[u8], stands_for_bytes: bool) {
        if let Err(failed) = self.try_entry(from, dir, name, stands_for_bytes) {
            self.failed(from, failed);
        }
    }

    fn failed(&mut self, from: &Path, failed: Failed) {
        let place = from.to_string_lossy().into_owned();
        self.errors.push(match failed {
            Failed::Host(e) => {
                Error::cannot(Doing::File("read", place), Why::Host(without_code(&e)))
            }
            Failed::Fs(e) => fs_error("store", &place, e),
            Failed::Directory => {
                let why = Why::NotDone("it is a directory (-r not given)".into());
                Error::cannot(Doing::File("store", place), why)
            }
            Failed::Unfit(why) => Error::cannot(Doing::File("store", place), Why::NotDone(why)),
        });
    }

    fn try_entry(
        &mut self,
        from: &Path,
        dir: u64,
        name: &[u8],
        stands_for_bytes: bool,
    ) -> std::result::Result<(), Failed> {
        let (meta, mode) = if stands_for_bytes {
            let meta = std::fs::metadata(from)?;
            let mode = mode::FILE | meta.mode() & 0o777;
            (meta, mode)
        } else {
            let meta = std::fs::symlink_metadata(from)?;
            let mode = meta.mode();
            (meta, mode)
        };
        if meta.is_dir() && !self.recursive {
            return Err(Failed::Directory);
        }
        // What cannot be read must not cost what is there.
        let is_file = meta.is_file() || stands_for_bytes;
        let file = if is_file { Some(File::open(from)?) } else { None };
        let target = if meta.is_symlink() { Some(std::fs::read_link(from)?) } else { None };
        let target = target.as_ref().map(|target| target.as_os_str().as_bytes());
        let (major, minor) = (rustix::fs::major(meta.rdev()), rustix::fs::minor(meta.rdev()));
        let rdev = match is_file {
            true => 0,
            false => format::znode::device_number(major, minor),
        };
        let who = Who { uid: meta.uid().into(), gid: meta.gid().into() };
        let new = NewObject { target, rdev, ..NewObject::of(mode, who) };
        let old = self.fs.lookup(dir, name)?;
        if let Some(object) = self.linked.get(&(meta.dev(), meta.ino())).copied() {
            // It may have the name already: without it there would be nothing to link.
            if old.as_ref().is_none_or(|old| old.object != object) {
                if old.is_some() {
                    self.fs.unlink(dir, name)?;
                }
                self.fs.link(dir, name, object)?;
            }
            self.copied.entries += 1;
            return Ok(());
        }
        if let Some(old) = old.as_ref().filter(|old| self.shared.remove(&old.object)) {
            // Two sources have one name, and the first is no longer what its other names are to be links to.
            self.linked.retain(|_, object| *object != old.object);
        }
        let number = match old {
            Some(entry) if meta.is_dir() && entry.kind == mode::DIR => entry.object,
            Some(entry) if is_file && entry.kind == mode::FILE => {
                self.fs.truncate(entry.object, 0)?;
                entry.object
            }
            Some(entry) if entry.kind == mode::DIR => {
                return Err(FsError::IsADirectory { path: String::new() }.into());
            }
            Some(_) if meta.is_dir() => {
                return Err(FsError::NotADirectory { path: String::new() }.into());
            }
            Some(_) => {
                self.fs.unlink(dir, name)?;
                self.fs.create(dir, name, &new)?
            }
            None => self.fs.create(dir, name, &new)?,
        };
        if meta.nlink() > 1 && !meta.is_dir() {
            self.linked.insert((meta.dev(), meta.ino()), number);
            self.shared.insert(number);
        }
        if let Some(file) = file {
            self.contents(file, number, meta.is_file())?;
        } else if meta.is_dir() {
            self.children(from, number, Some(meta));
            return Ok(());
        }
        self.finish(from, number, &meta, mode)
    }

    /// Attributes, owner, mode and times of what was made.
    fn finish(
        &mut self,
        from: &Path,
        number: u64,
        meta: &Metadata,
        mode: u32,
    ) -> std::result::Result<(), Failed> {
        self.xattrs(from, number)?;
        self.fs.change_attrs(number, |attrs| {
            attrs.set_mode(mode);
            attrs.uid = meta.uid().into();
            attrs.gid = meta.gid().into();
            attrs.atime = time(meta.atime(), meta.atime_nsec());
            attrs.mtime = time(meta.mtime(), meta.mtime_nsec());
        })?;
        self.copied.entries += 1;
        Ok(())
    }

    /// What is in a directory comes next, and then what `meta` says of it.
    fn children(&mut self, from: &Path, number: u64, meta: Option<Metadata>) {
        let mut names = Vec::new();
        match std::fs::read_dir(from) {
            Ok(entries) => {
                for entry in entries {
                    match entry {
                        Ok(entry) => names.push(entry.file_name()),
                        Err(e) => self.failed(from, e.into()),
                    }
                }
            }
            Err(e) => self.failed(from, e.into()),
        }
        names.sort();
        self.way.push(Entered { from: from.into(), number, meta, names: names.into_iter() });
    }

    /// The data of a file to its end; what is a hole on the host stays one. Where bytes only come, they come in order.
    fn contents(
        &mut self,
        mut file: File,
        number: u64,
        has_places: bool,
    ) -> std::result::Result<(), Failed> {
        if !has_places {
            let _end = self.pour(number, 0..u64::MAX, |buf, _| file.read(buf))?;
            return Ok(());
        }
        let read = |buf: &mut [u8], at| file.read_at(buf, at);
        let mut at = 0;
        loop {
            let start = match rustix::fs::seek(&file, SeekFrom::Data(at)) {
                Ok(start) => start,
                Err(rustix::io::Errno::NXIO) => break,
                Err(_) => at,
            };
            let hole = rustix::fs::seek(&file, SeekFrom::Hole(start));
            let end = hole.ok().filter(|end| *end > start).unwrap_or(u64::MAX);
            at = self.pour(number, start..end, read)?;
            if at < end {
                break;
            }
        }
        // The last may be a hole; and files of a kernel hold more than the size that they tell.
        at = at.max(file.metadata()?.len());
        let size = self.pour(number, at..u64::MAX, read)?;
        if self.fs.attrs(number)?.size < size {
            self.fs.truncate(number, size)?;
        }
        Ok(())
    }

    /// Stores a range of what `read` gives, if there is so much; where it ended.
    fn pour(
        &mut self,
        number: u64,
        range: Range<u64>,
        mut read: impl FnMut(&mut [u8], u64) -> std::io::Result<usize>,
    ) -> std::result::Result<u64, Failed> {
        let mut at = range.start;
        while at < range.end {
            let part = (range.end - at).min(CHUNK as u64) as usize;
            let got = match read(&mut self.buf[..part], at) {
                Err(e) if e.kind() == ErrorKind::Interrupted => continue,
                got => got?,
            };
            if got == 0 {
                break;
            }
            self.fs.write(number, at, &self.buf[..got])?;
            at += got as u64;
            self.copied.bytes += got as u64;
        }
        Ok(at)
    }

    fn xattrs(&mut self, from: &Path, number: u64) -> std::result::Result<(), Failed> {
        let mut names = vec![0; 64 << 10];
        let Ok(len) = rustix::fs::llistxattr(from, &mut names) else { return Ok(()) };
        for name in names[..len].split(|b| *b == 0).filter(|n| !n.is_empty()) {
            let mut value = vec![0; 64 << 10];
            if let Ok(len) = rustix::fs::lgetxattr(from, name, &mut value) {
                self.fs.set_xattr(number, name, Some(&value[..len]))?;
            }
        }
        Ok(())
    }
}

fn time(seconds: i64, nanos: i64) -> fs::Time {
    fs::Time { secs: seconds, nanos: nanos as u32 }
}

/// The name under which a path of the host is put into a directory; empty for `DIR/.`, which means what is in DIR.
fn last_name(path: &Path) -> &[u8] {
    let text = path.as_os_str().as_bytes();
    match text == b"." || text.ends_with(b"/.") {
        true => b"",
        false => path.file_name().map_or(b"", OsStrExt::as_bytes),
    }
}
