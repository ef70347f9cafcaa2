//! `put`: trees of the host into a data set, with modes, owners, times, links, holes and extended
//! attributes, where cp would put them.

use std::collections::BTreeMap;
use std::ffi::OsString;
use std::fs::{File, Metadata};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{FileExt, MetadataExt};
use std::path::{Path, PathBuf};
use std::vec::IntoIter;

use fs::{Filesystem, FsError, NewObject, Volume, Who, mode};
use rustix::fs::SeekFrom;

use super::Here;
use super::copying::{CHUNK, Failed, without_code};
use super::files::{fs_error, open_session, opened, shown};
use super::session::{For, Session};
use crate::files::{Copied, Put};
use crate::{Doing, Error, Result, Why};

/// A copy under way.
struct CopyIn<'a> {
    fs: &'a Filesystem,
    recursive: bool,
    /// Objects of files with several names, by device and inode of the host.
    linked: BTreeMap<(u64, u64), u64>,
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
    if into.is_none() && request.from.len() > 1 {
        let doing = Doing::File("write to", shown(&request.to));
        return Err(Error::cannot(doing, Why::NotDirectory));
    }
    let mut copy = CopyIn {
        fs,
        recursive: request.recursive,
        linked: BTreeMap::new(),
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
            copy.entry(from, dir, name);
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
    let file = File::open(from).map_err(unread)?;
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
        let got = file.read_at(&mut buf, at).map_err(unread)?;
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
                self.entry(&from, dir, name.as_bytes());
            } else if let Some(Entered { from, number, meta: Some(meta), .. }) = self.way.pop()
                && let Err(failed) = self.finish(&from, number, &meta)
            {
                self.failed(&from, failed);
            }
        }
    }

    /// Copies an entry; of a directory what is in it comes next.
    fn entry(&mut self, from: &Path, dir: u64, name: &[u8]) {
        if let Err(failed) = self.try_entry(from, dir, name) {
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
        });
    }

    fn try_entry(&mut self, from: &Path, dir: u64, name: &[u8]) -> std::result::Result<(), Failed> {
        let meta = std::fs::symlink_metadata(from)?;
        if meta.is_dir() && !self.recursive {
            return Err(Failed::Directory);
        }
        let old = self.fs.lookup(dir, name)?;
        if let Some(object) = self.linked.get(&(meta.dev(), meta.ino())).copied() {
            if old.is_some() {
                self.fs.unlink(dir, name)?;
            }
            self.fs.link(dir, name, object)?;
            self.copied.entries += 1;
            return Ok(());
        }
        let number = match old {
            Some(entry) if meta.is_dir() && entry.kind == mode::DIR => entry.object,
            Some(entry) if meta.is_file() && entry.kind == mode::FILE => {
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
                self.make(from, &meta, dir, name)?
            }
            None => self.make(from, &meta, dir, name)?,
        };
        if meta.nlink() > 1 && !meta.is_dir() {
            self.linked.insert((meta.dev(), meta.ino()), number);
        }
        if meta.is_file() {
            self.contents(from, number, meta.len())?;
        } else if meta.is_dir() {
            self.children(from, number, Some(meta));
            return Ok(());
        }
        self.finish(from, number, &meta)
    }

    /// Attributes, owner, mode and times of what was made.
    fn finish(
        &mut self,
        from: &Path,
        number: u64,
        meta: &Metadata,
    ) -> std::result::Result<(), Failed> {
        self.xattrs(from, number)?;
        self.fs.change_attrs(number, |attrs| {
            attrs.set_mode(meta.mode());
            attrs.uid = meta.uid().into();
            attrs.gid = meta.gid().into();
            attrs.atime = time(meta.atime(), meta.atime_nsec());
            attrs.mtime = time(meta.mtime(), meta.mtime_nsec());
        })?;
        self.copied.entries += 1;
        Ok(())
    }

    fn make(
        &self,
        from: &Path,
        meta: &Metadata,
        dir: u64,
        name: &[u8],
    ) -> std::result::Result<u64, Failed> {
        let who = Who { uid: meta.uid().into(), gid: meta.gid().into() };
        let target: Option<PathBuf> =
            if meta.is_symlink() { Some(std::fs::read_link(from)?) } else { None };
        let (major, minor) = (rustix::fs::major(meta.rdev()), rustix::fs::minor(meta.rdev()));
        let new = NewObject {
            target: target.as_ref().map(|t| t.as_os_str().as_bytes()),
            rdev: format::znode::device_number(major, minor),
            ..NewObject::of(meta.mode(), who)
        };
        Ok(self.fs.create(dir, name, &new)?)
    }

    /// What is in a directory comes next, and then what `meta` says of it.
    fn children(&mut self, from: &Path, number: u64, meta: Option<Metadata>) {
        let mut names = Vec::new();
        match std::fs::read_dir(from) {
            Ok(entries) => names.extend(entries.filter_map(|e| e.ok().map(|e| e.file_name()))),
            Err(e) => self.failed(from, e.into()),
        }
        names.sort();
        self.way.push(Entered { from: from.into(), number, meta, names: names.into_iter() });
    }

    /// The data of a file; what is a hole on the host stays one.
    fn contents(&mut self, from: &Path, number: u64, size: u64) -> std::result::Result<(), Failed> {
        let file = File::open(from)?;
        let mut at = 0;
        while at < size {
            let start = match rustix::fs::seek(&file, SeekFrom::Data(at)) {
                Ok(start) => start,
                Err(rustix::io::Errno::NXIO) => break,
                Err(_) => at,
            };
            let end = rustix::fs::seek(&file, SeekFrom::Hole(start)).unwrap_or(size).min(size);
            at = start;
            while at < end {
                let part = (end - at).min(CHUNK as u64) as usize;
                let got = file.read_at(&mut self.buf[..part], at)?;
                if got == 0 {
                    return Ok(());
                }
                self.fs.write(number, at, &self.buf[..got])?;
                at += got as u64;
                self.copied.bytes += got as u64;
            }
        }
        if self.fs.attrs(number)?.size < size {
            self.fs.truncate(number, size)?;
        }
        Ok(())
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
