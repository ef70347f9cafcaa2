//! What `get` and `put` share: how much is read at a time, how one entry fails, and how something on the host gets a
//! name, or bytes.

use std::ffi::OsStr;
use std::fs::{DirBuilder, File};
use std::io::{ErrorKind, Write};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{DirBuilderExt, FileExt, FileTypeExt, OpenOptionsExt};
use std::path::Path;

use fs::FsError;
use rustix::fs::SeekFrom;
use rustix::io::Errno;

use super::Here;
use super::files::fs_error;
use crate::{Doing, Error, Result, Why};

/// Bytes of one read.
pub(super) const CHUNK: usize = 1 << 20;

/// Why one entry of a tree was not copied.
pub(super) enum Failed {
    /// What the host said.
    Host(std::io::Error),
    /// What the file system in the pool said.
    Fs(FsError),
    /// It is a directory, and only files were asked for.
    Directory,
    /// The place on the host does not take it.
    Unfit(String),
}

impl Failed {
    /// What is said of it: `place` was to be fetched to `to`.
    pub(super) fn told(self, place: &str, to: &Path) -> Error {
        match self {
            Failed::Host(e) => {
                let doing = Doing::File("write", to.to_string_lossy().into_owned());
                Error::cannot(doing, Why::Host(without_code(&e)))
            }
            Failed::Fs(e) => fs_error("read", place, e),
            Failed::Directory => {
                let why = Why::NotDone("it is a directory (-r not given)".into());
                Error::cannot(Doing::File("fetch", place.into()), why)
            }
            Failed::Unfit(why) => {
                let doing = Doing::File("write", to.to_string_lossy().into_owned());
                Error::cannot(doing, Why::NotDone(why))
            }
        }
    }
}

impl From<std::io::Error> for Failed {
    fn from(e: std::io::Error) -> Self {
        Failed::Host(e)
    }
}

impl From<Errno> for Failed {
    fn from(e: Errno) -> Self {
        Failed::Host(e.into())
    }
}

impl From<FsError> for Failed {
    fn from(e: FsError) -> Self {
        Failed::Fs(e)
    }
}

/// The words of the system, without the number after them.
pub(super) fn without_code(e: &std::io::Error) -> String {
    let text = e.to_string();
    text.split(" (os error").next().unwrap_or_default().to_string()
}

/// Is this a path to what this process has open, as shells give them, or to something else of its own?
pub(super) fn is_descriptor(path: &Path) -> bool {
    let own = ["/dev/fd", "/proc/self", "/proc/thread-self"];
    let known = ["/dev/stdin", "/dev/stdout", "/dev/stderr"];
    own.iter().any(|dir| path.starts_with(dir)) || known.iter().any(|name| path == Path::new(name))
}

/// Refuses such paths where a server runs the command: they would lead to what the server has open.
pub(super) fn refuse_descriptors<'a>(
    here: &Here,
    what: &'static str,
    paths: impl IntoIterator<Item = &'a Path>,
) -> Result<()> {
    match paths.into_iter().find(|path| here.held.is_some() && is_descriptor(path)) {
        Some(path) => {
            let why = "a server runs this, and has other files open: name a file".to_string();
            let doing = Doing::File(what, path.to_string_lossy().into_owned());
            Err(Error::cannot(doing, Why::NotDone(why)))
        }
        None => Ok(()),
    }
}

/// Does a path end with a slash? Then whoever wrote it means a directory.
pub(super) fn means_directory(path: &[u8]) -> bool {
    path.ends_with(b"/") || path.ends_with(b"/.")
}

/// Makes a directory that nobody else looks into before it is finished.
pub(super) fn make_directory(to: &Path) -> std::io::Result<()> {
    DirBuilder::new().mode(0o700).create(to)
}

/// Makes a file that nobody else reads before it is finished.
pub(super) fn make_file(to: &Path) -> std::io::Result<File> {
    File::options().read(true).write(true).create_new(true).mode(0o600).open(to)
}

/// Has `make` make something that is not a directory, under a name beside `to`, and `fill` complete it there; only then
/// it gets the place of what was there.
pub(super) fn in_place_of<T, R>(
    to: &Path,
    mut make: impl FnMut(&Path) -> std::result::Result<T, Failed>,
    fill: impl FnOnce(T, &Path) -> std::result::Result<R, Failed>,
) -> std::result::Result<R, Failed> {
    if means_directory(to.as_os_str().as_bytes()) {
        return Err(Errno::NOTDIR.into());
    }
    if std::fs::symlink_metadata(to).is_ok_and(|there| there.is_dir()) {
        return Err(Errno::ISDIR.into());
    }
    let Some(name) = to.file_name() else { return Err(Errno::NOENT.into()) };
    // With its dots the name must not be longer than a host allows.
    let name = name.as_bytes().get(..240).unwrap_or(name.as_bytes());
    let mut tries = 0;
    let (made, beside) = loop {
        let number = rt::random::seed_from_system() as u32;
        let ending = format!(".{number:08x}");
        let beside =
            to.with_file_name(OsStr::from_bytes(&[b".", name, ending.as_bytes()].concat()));
        match make(&beside) {
            Err(Failed::Host(e)) if e.kind() == ErrorKind::AlreadyExists && tries < 100 => {
                tries += 1;
            }
            made => break (made?, beside),
        }
    };
    let filled = fill(made, &beside).and_then(|filled| {
        std::fs::rename(&beside, to)?;
        Ok(filled)
    });
    if filled.is_err() {
        // What went wrong is told; that a part of it stays could not be helped.
        let _stays = std::fs::remove_file(&beside);
    }
    filled
}

/// What bytes go into, in the order of their places.
pub(super) enum Onto<'a> {
    /// A file of our own: what is not written is a hole.
    File(&'a File),
    /// What was there and takes bytes one after the other, with the place that it is at.
    Stream(File, u64),
}

impl Onto<'_> {
    /// Opens what somebody named, if it is a device, a pipe or a descriptor; `None` for what is to be replaced.
    pub(super) fn named(to: &Path, size: u64) -> std::result::Result<Option<Self>, Failed> {
        let Ok(there) = std::fs::metadata(to) else { return Ok(None) };
        if there.is_dir() || (there.is_file() && !is_descriptor(to)) {
            return Ok(None);
        }
        let file = File::options().write(true).truncate(there.is_file()).open(to)?;
        if there.file_type().is_block_device() {
            let room = rustix::fs::seek(&file, SeekFrom::End(0))?;
            if size > room {
                return Err(Failed::Unfit(format!("{size} bytes do not fit into {room}")));
            }
            let _start = rustix::fs::seek(&file, SeekFrom::Start(0))?;
        }
        Ok(Some(Onto::Stream(file, 0)))
    }

    /// Writes at a place that is not before the last one.
    pub(super) fn write(&mut self, bytes: &[u8], at: u64) -> std::io::Result<()> {
        match self {
            Onto::File(file) => file.write_all_at(bytes, at),
            Onto::Stream(..) => {
                self.zeros_to(at)?;
                let Onto::Stream(file, place) = self else { return Ok(()) };
                *place += bytes.len() as u64;
                file.write_all(bytes)
            }
        }
    }

    /// Ends it as `size` bytes.
    pub(super) fn end(&mut self, size: u64) -> std::io::Result<()> {
        match self {
            Onto::File(file) => file.set_len(size),
            Onto::Stream(..) => {
                self.zeros_to(size)?;
                let Onto::Stream(file, _) = self else { return Ok(()) };
                match file.sync_data() {
                    // A pipe and most that is no disk have nothing to sync.
                    Err(e) if e.kind() == ErrorKind::InvalidInput => Ok(()),
                    synced => synced,
                }
            }
        }
    }

    /// A stream has no holes.
    fn zeros_to(&mut self, end: u64) -> std::io::Result<()> {
        let Onto::Stream(file, place) = self else { return Ok(()) };
        let zeros = vec![0; end.saturating_sub(*place).min(CHUNK as u64) as usize];
        while *place < end {
            let part = (end - *place).min(CHUNK as u64);
            file.write_all(&zeros[..part as usize])?;
            *place += part;
        }
        Ok(())
    }
}

/// File systems over a network, which may refuse bytes only when a file is closed (where nobody is told): NFS, SMB,
/// CIFS, its second version, Ceph, 9P, Lustre and AFS.
const REMOTE: [u32; 8] =
    [0x6969, 0x517B, 0xFF53_4D42, 0xFE53_4D42, 0x00C3_6400, 0x0102_1997, 0x0BD0_0BD0, 0x5346_414F];

/// Asks a file system over a network whether it took what was written.
pub(super) fn ask_for_close(file: &File) -> std::io::Result<()> {
    match REMOTE.contains(&(rustix::fs::fstatfs(file)?.f_type as u32)) {
        true => file.sync_data(),
        false => Ok(()),
    }
}
