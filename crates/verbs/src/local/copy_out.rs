//! `get`: trees of a data set onto the host, with modes, owners, times, links, holes and extended
//! attributes, where cp would put them.

use std::collections::{BTreeMap, BTreeSet};
use std::ffi::OsStr;
use std::fs::Permissions;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{MetadataExt, PermissionsExt, lchown, symlink};
use std::path::{Path, PathBuf};
use std::vec::IntoIter;

use fs::{Attrs, DirEntry, Filesystem, FsError, Remains, Volume, mode};
use rustix::fs::{AtFlags, CWD, FileType, Mode, Timespec, Timestamps, XattrFlags};
use rustix::io::Errno;

use super::Here;
use super::copying::{
    CHUNK, Failed, Onto, ask_for_close, in_place_of, make_directory, make_file, refuse_descriptors,
};
use super::files::{Holder, fs_error, met_before, open_holder, shown, volume_name};
use super::salvage::salvage_file;
use crate::files::{Copied, Get, Lost};
use crate::{Doing, Error, Result, Why};

/// How attributes are set on the host: made or replaced.
const SET: XattrFlags = XattrFlags::empty();

/// Bits of a mode that make who runs a file its owner or group.
const SET_ID: u32 = 0o6000;

struct CopyOut<'a> {
    fs: &'a Filesystem,
    recursive: bool,
    /// What cannot be read is left out.
    salvage: bool,
    /// What somebody named on the host. Nothing else that is a link, a device or a pipe is taken for where he meant:
    /// what is copied may have brought it.
    named: &'a Path,
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
    refuse_descriptors(here, "write", [request.to.as_path()])?;
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
                match get_volume(&volume, (&to, &shown), &request.to, lost) {
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
        // `DIR/..` has no name of its own: what is in it goes into the destination.
        let last = fs::parts(&place.path).last().filter(|name| *name != b"..");
        let to = match last.filter(|_| into) {
            Some(name) => request.to.join(OsStr::from_bytes(name)),
            None => request.to.clone(),
        };
        let mut copy = CopyOut {
            fs: &opened.fs,
            recursive: request.recursive,
            salvage: request.salvage,
            named: &request.to,
            met: BTreeSet::new(),
            way: Vec::new(),
            linked: BTreeMap::new(),
            copied: Copied::default(),
            errors: Vec::new(),
            buf: vec![0; CHUNK],
        };
        copy.tree(number, &shown(place), &to);
        if request.salvage && request.recursive && number == opened.fs.root() {
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
            let made = self.directory(to).and_then(|()| self.directory(&into));
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
            self.directory(to)?;
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
        let is_file = attrs.kind() == mode::FILE;
        if to == self.named
            && let Some(mut onto) = Onto::named(to, attrs.size)?
        {
            if !is_file {
                return Err(Errno::EXIST.into());
            }
            if self.salvage {
                return Err(Failed::Unfit(NO_FILE.into()));
            }
            let segments = self.fs.data_segments(&object, attrs.size)?;
            let read = |at, buf: &mut [u8]| self.fs.read_open(&object, attrs.size, at, buf);
            self.copied.bytes += write(&mut onto, attrs.size, &segments, &mut self.buf, read)?;
            self.copied.entries += 1;
            return Ok(());
        }
        if let Some(first) = self.linked.get(&number) {
            let inode = |path: &Path| path.symlink_metadata().map(|m| (m.dev(), m.ino())).ok();
            if inode(first) == inode(to) {
                self.copied.entries += 1;
                return Ok(());
            }
            let link = |beside: &Path| Ok(std::fs::hard_link(first, beside)?);
            in_place_of(to, link, |(), _| Ok(()))?;
            self.copied.entries += 1;
            return Ok(());
        }
        let finished = if is_file {
            in_place_of(
                to,
                |beside| Ok(make_file(beside)?),
                |file, beside| {
                    let read = |at, buf: &mut [u8]| self.fs.read_open(&object, attrs.size, at, buf);
                    self.copied.bytes += if self.salvage {
                        let from = Remains::of(&object, attrs.size)?;
                        let lost = &mut self.copied.lost;
                        salvage_file(&from, read, (&file, place), &mut self.buf, lost)?
                    } else {
                        let segments = self.fs.data_segments(&object, attrs.size)?;
                        let onto = &mut Onto::File(&file);
                        write(onto, attrs.size, &segments, &mut self.buf, read)?
                    };
                    let finished = self.finish(number, &attrs, beside);
                    ask_for_close(&file)?;
                    Ok(finished)
                },
            )?
        } else {
            let node = |beside: &Path| make_node(&attrs, beside);
            in_place_of(to, node, |(), beside| Ok(self.finish(number, &attrs, beside)))?
        };
        if attrs.links > 1 {
            self.linked.insert(number, to.to_path_buf());
        }
        finished
    }

    /// Makes a directory, if there is none.
    fn directory(&self, to: &Path) -> std::io::Result<()> {
        match make_directory(to) {
            Err(e) if e.kind() == std::io::ErrorKind::AlreadyExists && self.goes_into(to) => Ok(()),
            made => made,
        }
    }

    /// Is there a directory to copy into? Where somebody has named a link to one, he means that one.
    fn goes_into(&self, to: &Path) -> bool {
        let there = if to == self.named { to.metadata() } else { to.symlink_metadata() };
        there.is_ok_and(|there| there.is_dir())
    }

    /// Owner, attributes, mode and times of what was made. What fails keeps nothing else from it; the first is told.
    fn finish(&mut self, number: u64, attrs: &Attrs, to: &Path) -> std::result::Result<(), Failed> {
        let given = give(to, attrs);
        let mut bits = attrs.permissions();
        if given.is_err() {
            bits &= !SET_ID;
        }
        // Only root may give files away; who cannot keeps what he made.
        let given = if rustix::process::geteuid().is_root() { given } else { Ok(()) };
        let set = |xattrs: Vec<(Vec<u8>, Vec<u8>)>| {
            for (name, value) in xattrs {
                // A host file system may know fewer kinds of names.
                let _unsupported = rustix::fs::lsetxattr(to, name.as_slice(), &value, SET);
            }
        };
        let xattrs = self.fs.xattrs_of(number, attrs).map(set);
        let moded = match attrs.kind() {
            mode::SYMLINK => Ok(()),
            _ => std::fs::set_permissions(to, Permissions::from_mode(bits)),
        };
        let spec = |t: fs::Time| Timespec { tv_sec: t.secs, tv_nsec: i64::from(t.nanos) };
        let times =
            Timestamps { last_access: spec(attrs.atime), last_modification: spec(attrs.mtime) };
        let timed = rustix::fs::utimensat(CWD, to, &times, AtFlags::SYMLINK_NOFOLLOW);
        given?;
        xattrs?;
        moded?;
        timed?;
        self.copied.entries += 1;
        Ok(())
    }
}

/// Why nothing is salvaged into a device or a pipe.
const NO_FILE: &str = "it is no file, and --salvage needs one";

/// Gives what was made to its owner.
fn give(to: &Path, attrs: &Attrs) -> std::io::Result<()> {
    // The largest number means nobody to the host, and what is larger it does not have.
    let host = |id: u64| u32::try_from(id).ok().filter(|id| *id != u32::MAX);
    match (host(attrs.uid), host(attrs.gid)) {
        (Some(uid), Some(gid)) => lchown(to, Some(uid), Some(gid)),
        _ => Err(Errno::INVAL.into()),
    }
}

/// Makes a link, a pipe, a socket or a device.
fn make_node(attrs: &Attrs, to: &Path) -> std::result::Result<(), Failed> {
    let kind = match attrs.kind() {
        mode::SYMLINK => {
            let target = attrs.target.clone().unwrap_or_default();
            return Ok(symlink(OsStr::from_bytes(&target), to)?);
        }
        mode::FIFO => FileType::Fifo,
        mode::SOCKET => FileType::Socket,
        mode::CHAR => FileType::CharacterDevice,
        mode::BLOCK => FileType::BlockDevice,
        // Of a kind that nobody knows the host has none: it is told so.
        _ => return Err(Errno::INVAL.into()),
    };
    let (major, minor) = format::znode::device_parts(attrs.rdev.unwrap_or(0));
    let device = rustix::fs::makedev(major, minor);
    Ok(rustix::fs::mknodat(CWD, to, kind, Mode::from_raw_mode(0o600), device)?)
}

/// Copies a volume into a file, or onto what is `named` and takes its bytes; the bytes of data. With `lost` what cannot
/// be read is left out, and told there.
fn get_volume(
    volume: &Volume,
    (to, place): (&Path, &str),
    named: &Path,
    lost: Option<&mut Vec<Lost>>,
) -> std::result::Result<u64, Failed> {
    let read = |at, buf: &mut [u8]| volume.read(at, buf);
    let mut buf = vec![0; CHUNK];
    if to == named
        && let Some(mut onto) = Onto::named(to, volume.size())?
    {
        if lost.is_some() {
            return Err(Failed::Unfit(NO_FILE.into()));
        }
        return write(&mut onto, volume.size(), &volume.data_segments()?, &mut buf, read);
    }
    in_place_of(
        to,
        |beside| Ok(make_file(beside)?),
        |file, _| {
            let bytes = match lost {
                Some(lost) => {
                    salvage_file(&volume.remains()?, read, (&file, place), &mut buf, lost)?
                }
                None => {
                    let (onto, segments) = (&mut Onto::File(&file), volume.data_segments()?);
                    write(onto, volume.size(), &segments, &mut buf, read)?
                }
            };
            ask_for_close(&file)?;
            Ok(bytes)
        },
    )
}

/// Writes `size` bytes with data in these segments, as `read` gives them; the bytes of data.
fn write(
    onto: &mut Onto<'_>,
    size: u64,
    segments: &[(u64, u64)],
    buf: &mut [u8],
    mut read: impl FnMut(u64, &mut [u8]) -> std::result::Result<usize, FsError>,
) -> std::result::Result<u64, Failed> {
    let mut bytes = 0;
    for (start, len) in segments {
        let (mut at, end) = (*start, start + len);
        while at < end {
            let part = (end - at).min(buf.len() as u64) as usize;
            let got = read(at, &mut buf[..part])?;
            onto.write(&buf[..got], at)?;
            at += got as u64;
            bytes += got as u64;
            if got == 0 {
                break;
            }
        }
    }
    onto.end(size)?;
    Ok(bytes)
}
