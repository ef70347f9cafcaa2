//! `ls cat mkdir mv`: files in data sets, by path.

use std::collections::BTreeSet;
use std::io::Write;
use std::path::PathBuf;

use fs::{Attrs, DirEntry, Filesystem, FsError, NewObject, Replay, Volume, Who, mode};

use super::Here;
use super::copying::means_directory;
use super::opening::{For, open};
use super::session::{Session, pool_error};
use crate::files::{Cat, FileKind, FileReport, List, Listed, Mkdir, Move, Place, Time};
use crate::{Doing, Error, Result, Why};

/// Bytes of one read.
const CHUNK: usize = 1 << 20;

/// An open file system with the session that holds its pool.
pub(super) struct Opened {
    session: Session,
    pub(super) fs: Filesystem,
}

/// A place as people write it.
pub(super) fn shown(place: &Place) -> String {
    String::from_utf8_lossy(&place.text()).into_owned()
}

/// An error of the file system in the words of what was to be done with a place.
pub(super) fn fs_error(what: &'static str, name: &str, error: FsError) -> Error {
    let doing = Doing::File(what, name.into());
    let why = match error {
        FsError::NotFound { .. } => Why::NoFile,
        FsError::Exists { .. } => Why::FileExists,
        FsError::NotADirectory { .. } => Why::NotDirectory,
        FsError::IsADirectory { .. } => Why::IsDirectory,
        FsError::NotEmpty { .. } => Why::NotEmpty,
        FsError::ReadOnly { reason, .. } => Why::ReadOnly(reason),
        FsError::QuotaExceeded { .. } => Why::Quota,
        FsError::Refused { why, .. } => Why::NotDone(why.to_string()),
        FsError::NoSpace { .. } => Why::Host("No space left on device".into()),
        FsError::Pool(error) => return pool_error(doing, error),
        FsError::BadName { reason, .. } | FsError::Invalid { reason, .. } => {
            Why::NotDone(reason.into())
        }
        FsError::NotAFilesystem { reason, .. } => Why::NotDone(reason),
        other => Why::NotDone(other.to_string()),
    };
    Error::cannot(doing, why)
}

/// Why a walk leaves out a directory that it comes to once more. Only damage, or malice, has it there, or somebody who
/// moves it meanwhile.
pub(super) fn met_before() -> FsError {
    let reason = "it was met before: it has two names, or is below itself";
    FsError::Invalid { path: String::new(), reason }
}

/// What a place is in, open for reading.
pub(super) enum Holder {
    /// A file system.
    Files(Box<Opened>),
    /// A volume, with the session that holds its pool.
    Volume(Session, Volume),
}

/// Opens what a place is in, for reading. In a volume there is one place, the whole of it.
///
/// With `replay` it is as its intent log has it, as far as that is ahead of the pool.
pub(super) fn open_holder(
    here: &Here,
    place: &Place,
    dirs: &[PathBuf],
    replay: bool,
) -> Result<Holder> {
    let mut session = open_session(here, place, dirs, For::Reading)?;
    let fail = |e| fs_error("open", &place.dataset, e);
    let is_volume = Volume::open(&session.pool, &place.dataset).map_err(fail)?.is_some();
    if is_volume && fs::parts(&place.path).next().is_some() {
        return Err(Error::cannot(Doing::File("access", shown(place)), Why::NotDirectory));
    }
    if !is_volume {
        // Whoever asks for what is no file system, or encrypted, hears of that first.
        drop(Filesystem::open(&session.pool, &place.dataset).map_err(fail)?);
    }
    // Of a pool that is held the log is behind, not ahead.
    let log = match replay && !session.held && !place.dataset.contains('@') {
        true => Replay::read(&session.pool, &place.dataset).map_err(fail)?,
        false => None,
    };
    if log.is_some() {
        session.pool = session.in_memory(here, place.dataset.split('/').next().unwrap_or(""))?;
    }
    if is_volume {
        let volume = Volume::open(&session.pool, &place.dataset).map_err(fail)?;
        let volume = volume.ok_or_else(|| Error::open(&place.dataset, Why::NoDataset))?;
        if let Some(log) = log {
            log.apply_volume(&session.pool, &volume).map_err(fail)?;
        }
        return Ok(Holder::Volume(session, volume));
    }
    let fs = Filesystem::open(&session.pool, &place.dataset).map_err(fail)?;
    if let Some(log) = log {
        log.apply(&fs).map_err(fail)?;
    }
    Ok(Holder::Files(Box::new(Opened { session, fs })))
}

/// What a volume is called as a file: the last part of its name.
pub(super) fn volume_name(place: &Place) -> Vec<u8> {
    place.dataset.rsplit('/').next().unwrap_or_default().as_bytes().to_vec()
}

/// What a door is told of a volume: a file that only its owner may read.
fn volume_report(session: &Session, place: &Place, volume: &Volume) -> Result<FileReport> {
    let found = pool::dsl::lookup::find(session.pool.mos(), &place.dataset);
    let found = found.map_err(|e| pool_error(Doing::File("access", shown(place)), e))?;
    let made = found.phys.creation_time_secs.get();
    let time = Time { seconds: i64::try_from(made).unwrap_or(i64::MAX), nanos: 0 };
    Ok(FileReport {
        name: volume_name(place),
        kind: FileKind::File,
        object: format::master_node::ZVOL_DATA_OBJECT,
        mode: 0o600,
        links: 1,
        uid: 0,
        gid: 0,
        size: volume.size(),
        allocated: volume.used_bytes(),
        atime: time,
        mtime: time,
        ctime: time,
        target: None,
    })
}

pub(super) fn open_session(
    here: &Here,
    place: &Place,
    dirs: &[PathBuf],
    mode: For,
) -> Result<Session> {
    let name = place.dataset.split(['/', '@']).next().unwrap_or_default();
    open(here, name, dirs, mode)
}

/// Opens the file system of a place.
pub(super) fn open_place(
    here: &Here,
    place: &Place,
    dirs: &[PathBuf],
    mode: For,
) -> Result<Opened> {
    opened(open_session(here, place, dirs, mode)?, place)
}

/// Opens the file system of a place in the pool that is open.
pub(super) fn opened(session: Session, place: &Place) -> Result<Opened> {
    let fs = Filesystem::open(&session.pool, &place.dataset)
        .map_err(|e| fs_error("open", &place.dataset, e))?;
    Ok(Opened { session, fs })
}

impl Opened {
    /// Ends the session: what was changed is on disk.
    pub(super) fn close(self, place: &Place) -> Result<()> {
        drop(self.fs);
        self.session.close(Doing::File("write to", shown(place)))
    }
}

/// What a door is told of an object.
pub(super) fn report(
    fs: &Filesystem,
    name: &[u8],
    number: u64,
) -> std::result::Result<FileReport, FsError> {
    let (object, attrs) = fs.open_object(number)?;
    let time = |t: fs::Time| Time { seconds: t.secs, nanos: t.nanos };
    Ok(FileReport {
        name: name.to_vec(),
        kind: kind(&attrs),
        object: number,
        mode: attrs.permissions(),
        links: attrs.links,
        uid: attrs.uid,
        gid: attrs.gid,
        size: attrs.size,
        allocated: object.used_bytes(),
        atime: time(attrs.atime),
        mtime: time(attrs.mtime),
        ctime: time(attrs.ctime),
        target: attrs.target,
    })
}

fn kind(attrs: &Attrs) -> FileKind {
    let (major, minor) = format::znode::device_parts(attrs.rdev.unwrap_or(0));
    match attrs.kind() {
        mode::DIR => FileKind::Directory,
        mode::SYMLINK => FileKind::Link,
        mode::FIFO => FileKind::Fifo,
        mode::SOCKET => FileKind::Socket,
        mode::CHAR => FileKind::Char(major, minor),
        mode::BLOCK => FileKind::Block(major, minor),
        _ => FileKind::File,
    }
}

/// Joins a directory's path and a name.
pub(super) fn join(dir: &[u8], name: &[u8]) -> Vec<u8> {
    if dir.is_empty() || dir.ends_with(b"/") || dir.ends_with(b":") {
        [dir, name].concat()
    } else {
        [dir, b"/", name].concat()
    }
}

pub(super) fn list(
    here: &Here,
    request: &List,
    each: &mut dyn FnMut(Listed),
) -> Result<Vec<Error>> {
    let mut errors = Vec::new();
    for place in &request.places {
        let opened = match open_holder(here, place, &request.dirs, request.replay) {
            Ok(Holder::Files(opened)) => opened,
            Ok(Holder::Volume(session, volume)) => {
                match volume_report(&session, place, &volume) {
                    Ok(report) => each(Listed::File(Box::new(report))),
                    Err(e) => errors.push(e),
                }
                continue;
            }
            Err(e) => {
                errors.push(e);
                continue;
            }
        };
        if let Err(e) = list_place(&opened.fs, request, place, each, &mut errors) {
            errors.push(fs_error("access", &shown(place), e));
        }
    }
    Ok(errors)
}

fn list_place(
    fs: &Filesystem,
    request: &List,
    place: &Place,
    each: &mut dyn FnMut(Listed),
    errors: &mut Vec<Error>,
) -> std::result::Result<(), FsError> {
    let number = fs.resolve(&place.path)?;
    if request.directory || !fs.attrs(number)?.is_dir() {
        each(Listed::File(Box::new(report(fs, &place.text(), number)?)));
        return Ok(());
    }
    let mut stack = vec![(place.text(), number)];
    let mut met = BTreeSet::new();
    while let Some((path, dir)) = stack.pop() {
        if !met.insert(dir) {
            errors.push(fs_error("access", &String::from_utf8_lossy(&path), met_before()));
            continue;
        }
        match list_dir(fs, (&path, dir), each, errors) {
            Ok(dirs) if request.recursive => {
                stack.extend(dirs.into_iter().rev().map(|e| (join(&path, &e.name), e.object)));
            }
            Ok(_) => {}
            Err(e) if dir == number => return Err(e),
            Err(e) => errors.push(fs_error("access", &String::from_utf8_lossy(&path), e)),
        }
    }
    Ok(())
}

/// Tells of what is in a directory, and returns the directories there. What cannot be looked at hides nothing beside it,
/// and what was removed meanwhile is not there.
fn list_dir(
    fs: &Filesystem,
    (path, dir): (&[u8], u64),
    each: &mut dyn FnMut(Listed),
    errors: &mut Vec<Error>,
) -> std::result::Result<Vec<DirEntry>, FsError> {
    let mut entries = fs.read_dir(dir)?;
    entries.sort_by(|a, b| a.name.cmp(&b.name));
    each(Listed::Directory(path.to_vec()));
    let mut dirs = Vec::new();
    for entry in entries {
        match report(fs, &entry.name, entry.object) {
            Ok(report) => {
                each(Listed::File(Box::new(report)));
                dirs.extend((entry.kind == mode::DIR).then_some(entry));
            }
            Err(_) if fs.lookup(dir, &entry.name)?.as_ref() != Some(&entry) => {}
            Err(e) => {
                let path = join(path, &entry.name);
                errors.push(fs_error("access", &String::from_utf8_lossy(&path), e));
            }
        }
    }
    Ok(dirs)
}

pub(super) fn cat(here: &Here, request: &Cat, out: &mut dyn Write) -> Result<Vec<Error>> {
    let mut errors = Vec::new();
    for place in &request.places {
        match open_holder(here, place, &request.dirs, request.replay) {
            Ok(Holder::Files(opened)) => errors.extend(cat_file(&opened.fs, place, out)?),
            Ok(Holder::Volume(_session, volume)) => {
                let read = |at, buf: &mut [u8]| volume.read(at, buf);
                errors.extend(pour(place, volume.size(), read, out)?);
            }
            Err(e) => errors.push(e),
        }
    }
    Ok(errors)
}

fn cat_file(fs: &Filesystem, place: &Place, out: &mut dyn Write) -> Result<Option<Error>> {
    let found = fs.resolve(&place.path).and_then(|number| fs.open_object(number));
    let (object, attrs) = match found {
        Ok(found) => found,
        Err(e) => return Ok(Some(fs_error("read", &shown(place), e))),
    };
    if attrs.kind() != mode::FILE {
        let why = if attrs.is_dir() { Why::IsDirectory } else { Why::WrongKind };
        return Ok(Some(Error::cannot(Doing::File("read", shown(place)), why)));
    }
    pour(place, attrs.size, |at, buf| fs.read_open(&object, attrs.size, at, buf), out)
}

/// Writes `size` bytes that `read` gives; what could not be read ends it.
fn pour(
    place: &Place,
    size: u64,
    mut read: impl FnMut(u64, &mut [u8]) -> std::result::Result<usize, FsError>,
    out: &mut dyn Write,
) -> Result<Option<Error>> {
    let mut buf = vec![0; CHUNK];
    let mut at = 0;
    while at < size {
        match read(at, &mut buf) {
            // Nothing more, though there should be.
            Ok(0) => break,
            Ok(got) => {
                let host = |e: std::io::Error| Error::Other(format!("standard output: {e}"));
                out.write_all(&buf[..got]).map_err(host)?;
                at += got as u64;
            }
            Err(e) => return Ok(Some(fs_error("read", &shown(place), e))),
        }
    }
    Ok(None)
}

/// Who makes something by hand: the user of this process.
fn me() -> Who {
    let (uid, gid) = (rustix::process::getuid(), rustix::process::getgid());
    Who { uid: uid.as_raw().into(), gid: gid.as_raw().into() }
}

/// What the host keeps from new files. It is read where the host tells it: to ask for it in the other way would change
/// it for a moment, and for all threads.
fn umask() -> u32 {
    let status = std::fs::read_to_string("/proc/thread-self/status").unwrap_or_default();
    let told = status.lines().find_map(|line| line.strip_prefix("Umask:"));
    told.and_then(|octal| u32::from_str_radix(octal.trim(), 8).ok()).unwrap_or(0o022)
}

/// Changes places one after another, each in its own session.
pub(super) fn on_each(
    here: &Here,
    places: &[Place],
    dirs: &[PathBuf],
    mut change: impl FnMut(&Filesystem, &Place) -> Result<()>,
) -> Result<Vec<Error>> {
    let mut errors = Vec::new();
    for place in places {
        match open_place(here, place, dirs, For::Writing) {
            Ok(opened) => {
                if let Err(e) = change(&opened.fs, place) {
                    errors.push(e);
                }
                opened.close(place)?;
            }
            Err(e) => errors.push(e),
        }
    }
    Ok(errors)
}

pub(super) fn mkdir(here: &Here, request: &Mkdir) -> Result<Vec<Error>> {
    let plain = 0o777 & !umask();
    let make = |fs: &Filesystem, place: &Place| {
        let new = NewObject::of(mode::DIR | request.mode.unwrap_or(plain), me());
        // What is asked of the last is not of those above it; and their owner must get into them.
        let parent = NewObject::of(mode::DIR | plain | 0o300, me());
        if !request.parents {
            let (dir, name) = fs.resolve_parent(&place.path)?;
            return fs.create(dir, name, &new).map(|_| ());
        }
        let (mut at, mut kind) = (fs.root(), mode::DIR);
        let mut parts = fs::parts(&place.path).peekable();
        while let Some(part) = parts.next() {
            let new = if parts.peek().is_some() { &parent } else { &new };
            (at, kind) = match fs.lookup(at, part)? {
                Some(entry) => (entry.object, entry.kind),
                None => (fs.create(at, part, new)?, mode::DIR),
            };
        }
        if kind != mode::DIR {
            return Err(FsError::Exists { path: String::new() });
        }
        Ok(())
    };
    on_each(here, &request.places, &request.dirs, |fs, place| {
        make(fs, place).map_err(|e| fs_error("create directory", &shown(place), e))
    })
}

pub(super) fn rename(here: &Here, request: &Move) -> Result<Vec<Error>> {
    let opened = open_place(here, &request.to, &request.dirs, For::Writing)?;
    let fs = &opened.fs;
    let mut errors = Vec::new();
    for from in &request.from {
        if from.dataset != request.to.dataset {
            let why = Why::NotDone("it is in another data set: copy it and remove it".into());
            errors.push(Error::cannot(Doing::File("move", shown(from)), why));
            continue;
        }
        let moved = || -> std::result::Result<(), FsError> {
            let (dir, name) = fs.resolve_parent(&from.path)?;
            let into = match fs.resolve(&request.to.path) {
                Ok(number) => fs.attrs(number)?.is_dir().then_some(number),
                Err(FsError::NotFound { .. }) => None,
                Err(e) => return Err(e),
            };
            let (to, new_name) = match into {
                Some(number) => (number, name),
                None => fs.resolve_parent(&request.to.path)?,
            };
            if into.is_none()
                && means_directory(&request.to.path)
                && fs.lookup(dir, name)?.is_some_and(|entry| entry.kind != mode::DIR)
            {
                return Err(FsError::NotADirectory { path: String::new() });
            }
            if request.no_clobber && fs.lookup(to, new_name)?.is_some() {
                return Ok(());
            }
            fs.rename(dir, name, to, new_name)
        };
        if let Err(e) = moved() {
            errors.push(fs_error("move", &shown(from), e));
        }
    }
    opened.close(&request.to)?;
    Ok(errors)
}
