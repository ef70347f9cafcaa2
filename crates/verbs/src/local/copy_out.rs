//! `get`: trees of a data set onto the host, with modes, owners, times, links, holes and extended
//! attributes, where cp would put them.

use std::collections::{BTreeMap, BTreeSet};
use std::ffi::OsStr;
use std::fs::{File, Permissions};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{FileExt, PermissionsExt, lchown, symlink};
use std::path::{Path, PathBuf};
use std::vec::IntoIter;

use fs::{Attrs, DirEntry, Filesystem, FsError, Remains, Volume, mode};
use rustix::fs::{AtFlags, CWD, FileType, Mode, Timespec, Timestamps, XattrFlags};

use super::Here;
use super::copying::{CHUNK, Failed};
use super::files::{Holder, fs_error, met_before, open_holder, shown, volume_name};
use super::salvage::salvage_file;
use crate::files::{Copied, Get, Lost};
use crate::{Doing, Error, Result, Why};

/// How attributes are set on the host: made or replaced.
const SET: XattrFlags = XattrFlags::empty();

struct CopyOut<'a> {
    fs: &'a Filesystem,
    recursive: bool,
    /// What cannot be read is left out.
    salvage: bool,
    /// It is below the first directory.
    deep: bool,
    /// Directories that were come upon; all objects, when something is salvaged.
    met: BTreeSet<u64>,
    /// Directories whose entries are being copied, each in the one before: no level costs any of the stack.
    way: Vec<Entered>,
    /// Where an object with several names was put first.
    linked: BTreeMap<u64, PathBuf>,
    copied: Copied,
    errors: Vec<Error>,
    buf: Vec<u8>,
}

/// A directory whose entries are being copied.
struct Entered {
    number: u64,
    attrs: Attrs,
    place: String,
    to: PathBuf,
    entries: IntoIter<DirEntry>,
}

pub(super) fn get(here: &Here, request: &Get) -> Result<(Copied, Vec<Error>)> {
    let (mut copied, mut errors) = (Copied::default(), Vec::new());
    let into = request.to.is_dir();
    if !into && request.places.len() > 1 {
        let doing = Doing::File("write to", request.to.to_string_lossy().into_owned());
        return Err(Error::cannot(doing, Why::NotDirectory));
    }
    for place in &request.places {
        let opened = match open_holder(here, place, &request.dirs, request.replay) {
            Ok(Holder::Files(opened)) => opened,
            Ok(Holder::Volume(_session, volume)) => {
                let name = volume_name(place);
                let to = match into {
                    true => request.to.join(OsStr::from_bytes(&name)),
                    false => request.to.clone(),
                };
                let shown = shown(place);
                let lost = request.salvage.then_some(&mut copied.lost);
                match get_volume(&volume, (&to, &shown), lost) {
                    Ok(bytes) => {
                        copied.entries += 1;
                        copied.bytes += bytes;
                    }
                    Err(failed) => errors.push(failed.told(&shown, &to)),
                }
                continue;
            }
            Err(e) => {
                errors.push(e);
                continue;
            }
        };
        let number = match opened.fs.resolve(&place.path) {
            Ok(number) => number,
            Err(e) => {
                errors.push(fs_error("access", &shown(place), e));
                continue;
            }
        };
        let last = fs::parts(&place.path).last();
        let to = match last.filter(|_| into) {
            Some(name) => request.to.join(OsStr::from_bytes(name)),
            None => request.to.clone(),
        };
        let mut copy = CopyOut {
            fs: &opened.fs,
            recursive: request.recursive,
            salvage: request.salvage,
            deep: false,
            met: BTreeSet::new(),
            way: Vec::new(),
            linked: BTreeMap::new(),
            copied: Copied::default(),
            errors: Vec::new(),
            buf: vec![0; CHUNK],
        };
        copy.tree(number, &shown(place), &to);
        if request.salvage && request.recursive && last.is_none() {
            copy.unnamed(&shown(place), &to);
        }
        copied.entries += copy.copied.entries;
        copied.bytes += copy.copied.bytes;
        copied.lost.append(&mut copy.copied.lost);
        errors.append(&mut copy.errors);
    }
    Ok((copied, errors))
}

impl CopyOut<'_> {
    /// Copies an object with all that is below it.
    fn tree(&mut self, number: u64, place: &str, to: &Path) {
        self.entry(number, place, to);
        while let Some(last) = self.way.last_mut() {
            let Some(entry) = last.entries.next() else {
                let Some(Entered { number, attrs, place, to, .. }) = self.way.pop() else { break };
                if let Err(failed) = self.finish(number, &attrs, &to) {
                    self.errors.push(failed.told(&place, &to));
                }
                continue;
            };
            let name = String::from_utf8_lossy(&entry.name);
            let below = format!("{}/{name}", last.place.trim_end_matches('/'));
            let to = last.to.join(OsStr::from_bytes(&entry.name));
            if !entry.is_safe() {
                let reason = "the directory was tampered with: this is no name";
                let error = FsError::BadName { path: name.into_owned(), reason };
                self.errors.push(fs_error("fetch", &below, error));
                continue;
            }
            self.entry(entry.object, &below, &to);
        }
    }

    /// Copies an object; of a directory the entries come next.
    fn entry(&mut self, number: u64, place: &str, to: &Path) {
        if let Err(failed) = self.try_entry(number, place, to) {
            self.errors.push(failed.told(place, to));
        }
    }

    /// Copies what no directory led to.
    fn unnamed(&mut self, place: &str, to: &Path) {
        let mut from = 0;
        while let Some(number) = self.fs.next_entry_left(from) {
            from = number + 1;
            if self.met.contains(&number) {
                continue;
            }
            let into = to.join("lost+found");
            let made = std::fs::create_dir_all(&into);
            if let Err(failed) = made.map_err(Failed::from) {
                return self.errors.push(failed.told(place, &into));
            }
            let place = format!("{place}<object {number}>");
            self.tree(number, &place, &into.join(number.to_string()));
        }
    }

    fn try_entry(
        &mut self,
        number: u64,
        place: &str,
        to: &Path,
    ) -> std::result::Result<(), Failed> {
        let (object, attrs) = self.fs.open_object(number)?;
        if (self.salvage || attrs.is_dir()) && !self.met.insert(number) && attrs.is_dir() {
            return if self.salvage { Ok(()) } else { Err(met_before().into()) };
        }
        if attrs.is_dir() {
            if !self.recursive {
                return Err(Failed::Directory);
            }
            match std::fs::create_dir(to) {
                Err(e) if e.kind() == std::io::ErrorKind::AlreadyExists && self.goes_into(to) => {}
                other => other?,
            }
            self.deep = true;
            let mut entries = match self.fs.read_dir(number) {
                Err(error) if self.salvage => {
                    self.errors.push(fs_error("read all of", place, error));
                    self.fs.read_dir_left(number)?
                }
                entries => entries?,
            };
            entries.sort_by(|a, b| a.name.cmp(&b.name));
            let (place, to) = (place.to_owned(), to.to_owned());
            self.way.push(Entered { number, attrs, place, to, entries: entries.into_iter() });
            return Ok(());
        }
        if let Some(first) = self.linked.get(&number) {
            replace(to)?;
            std::fs::hard_link(first, to)?;
            self.copied.entries += 1;
            return Ok(());
        }
        let node = |kind: FileType| -> std::result::Result<(), Failed> {
            let (major, minor) = format::znode::device_parts(attrs.rdev.unwrap_or(0));
            let device = rustix::fs::makedev(major, minor);
            Ok(rustix::fs::mknodat(CWD, to, kind, Mode::from_raw_mode(0o600), device)?)
        };
        replace(to)?;
        match attrs.kind() {
            mode::FILE => {
                let read = |at, buf: &mut [u8]| self.fs.read_open(&object, attrs.size, at, buf);
                self.copied.bytes += if self.salvage {
                    let from = Remains::of(&object, attrs.size)?;
                    let to = (&File::create_new(to)?, place);
                    salvage_file(&from, read, to, &mut self.buf, &mut self.copied.lost)?
                } else {
                    let segments = self.fs.data_segments(&object, attrs.size)?;
                    write_file(to, attrs.size, &segments, &mut self.buf, read)?
                };
            }
            mode::SYMLINK => {
                let target = attrs.target.clone().unwrap_or_default();
                symlink(OsStr::from_bytes(&target), to)?;
            }
            mode::FIFO => node(FileType::Fifo)?,
            mode::SOCKET => node(FileType::Socket)?,
            mode::CHAR => node(FileType::CharacterDevice)?,
            mode::BLOCK => node(FileType::BlockDevice)?,
            _ => {}
        }
        if attrs.links > 1 {
            self.linked.insert(number, to.to_path_buf());
        }
        self.finish(number, &attrs, to)
    }

    /// Is there a directory to copy into? Where somebody has put a link to one, he means that one; but not below what is
    /// copied, which may have brought the link itself.
    fn goes_into(&self, to: &Path) -> bool {
        let there = if self.deep { to.symlink_metadata() } else { to.metadata() };
        there.is_ok_and(|there| there.is_dir())
    }

    /// Owner, mode, attributes and times of what was made.
    fn finish(&mut self, number: u64, attrs: &Attrs, to: &Path) -> std::result::Result<(), Failed> {
        // Only root may give files away; who cannot keeps what he made.
        if rustix::process::geteuid().is_root() {
            lchown(to, Some(attrs.uid as u32), Some(attrs.gid as u32))?;
        }
        for (name, value) in self.fs.xattrs_of(number, attrs)? {
            // A host file system may know fewer kinds of names.
            let _unsupported = rustix::fs::lsetxattr(to, name.as_slice(), &value, SET);
        }
        if attrs.kind() != mode::SYMLINK {
            std::fs::set_permissions(to, Permissions::from_mode(attrs.permissions()))?;
        }
        let spec = |t: fs::Time| Timespec { tv_sec: t.secs, tv_nsec: i64::from(t.nanos) };
        let times =
            Timestamps { last_access: spec(attrs.atime), last_modification: spec(attrs.mtime) };
        rustix::fs::utimensat(CWD, to, &times, AtFlags::SYMLINK_NOFOLLOW)?;
        self.copied.entries += 1;
        Ok(())
    }
}

/// Copies a volume into a file; the bytes of data. With `lost` what cannot be read is left out, and told there.
fn get_volume(
    volume: &Volume,
    (to, place): (&Path, &str),
    lost: Option<&mut Vec<Lost>>,
) -> std::result::Result<u64, Failed> {
    replace(to)?;
    let read = |at, buf: &mut [u8]| volume.read(at, buf);
    let mut buf = vec![0; CHUNK];
    if let Some(lost) = lost {
        let to = (&File::create_new(to)?, place);
        return salvage_file(&volume.remains()?, read, to, &mut buf, lost);
    }
    let segments = volume.data_segments()?;
    write_file(to, volume.size(), &segments, &mut buf, read)
}

/// Makes a file of `size` bytes with data in these segments, as `read` gives them.
fn write_file(
    to: &Path,
    size: u64,
    segments: &[(u64, u64)],
    buf: &mut [u8],
    mut read: impl FnMut(u64, &mut [u8]) -> std::result::Result<usize, FsError>,
) -> std::result::Result<u64, Failed> {
    let file = File::create_new(to)?;
    let mut bytes = 0;
    for (start, len) in segments {
        let (mut at, end) = (*start, start + len);
        while at < end {
            let part = (end - at).min(buf.len() as u64) as usize;
            let got = read(at, &mut buf[..part])?;
            file.write_all_at(&buf[..got], at)?;
            at += got as u64;
            bytes += got as u64;
            if got == 0 {
                break;
            }
        }
    }
    file.set_len(size)?;
    Ok(bytes)
}

/// Takes away what is not a directory, so that the new one is no link to the old.
fn replace(to: &Path) -> std::io::Result<()> {
    match std::fs::symlink_metadata(to) {
        Ok(meta) if !meta.is_dir() => std::fs::remove_file(to),
        _ => Ok(()),
    }
}
