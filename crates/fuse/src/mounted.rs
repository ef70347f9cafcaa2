//! Mounting, and what is mounted.
//!
//! The one idea: a mount ends when the kernel says so. Whoever wants it to end asks the kernel to unmount, as
//! umount(8) does, and waits; threads that serve are never stopped from here.

use std::ffi::OsStr;
use std::io;
use std::os::fd::AsFd;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::time::Duration;

use fs::Filesystem;
use nix::mount::MsFlags;
use pool::Pool;
use rt::sync::{Arc, mpsc};
use rt::thread::JoinHandle;

use crate::attach::{self, DEVICE, SUBTYPE};
use crate::door::{Door, IO_MAX};
use crate::nodes::Spaces;

/// Requests that are served at once, unless told. Most of their time is waited: for disks, and for what is to be
/// stable.
const THREADS: usize = 16;
/// Memory that a thread keeps for the kernel's requests, and takes to answer one, in bytes.
const THREAD_BYTES: u64 = 2 * IO_MAX as u64 + (64 << 10);

/// How something is mounted.
#[derive(Clone, Debug)]
pub struct Options {
    /// Nothing can be changed through the mount.
    pub read_only: bool,
    /// How long the kernel may take attributes for right without asking.
    pub attrs_for: Duration,
    /// The same for names, those that are not there among them.
    pub names_for: Duration,
    /// Requests that are served at once; each costs 2 MiB.
    pub threads: usize,
}

impl Default for Options {
    fn default() -> Options {
        // Space on disk changes with each txg, names only through the mount.
        Options {
            read_only: false,
            attrs_for: Duration::from_secs(1),
            names_for: Duration::from_secs(60),
            threads: THREADS,
        }
    }
}

/// Why something cannot be mounted or unmounted.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum MountError {
    /// The file system cannot be opened.
    #[error(transparent)]
    Fs(#[from] fs::FsError),
    /// The host refuses.
    #[error("{0}")]
    Host(String),
    /// Files are in use.
    #[error("{}: target is busy", .0.display())]
    Busy(PathBuf),
    /// No mount of ours.
    #[error("{}: not mounted by thumper", .0.display())]
    NotOurs(PathBuf),
}

/// A file system that is mounted.
pub struct Mounted {
    dir: PathBuf,
    /// What it is in the kernel's list; nothing if that was not to be had.
    this: Option<There>,
    fs: Arc<Filesystem>,
    /// Whatever its properties say.
    read_only: bool,
    served: JoinHandle<()>,
    end: mpsc::Receiver<io::Result<()>>,
    _memory: rt::Grant,
}

/// Mounts the file system or snapshot `name` of an open pool on the directory `dir`.
///
/// # Errors
/// There is no such file system; the host refuses: no FUSE, no such directory, no permission.
pub fn mount(
    pool: &Arc<Pool>,
    name: &str,
    dir: &Path,
    options: &Options,
) -> Result<Mounted, MountError> {
    let host = |e: io::Error| MountError::Host(format!("{}: {e}", dir.display()));
    if !Path::new(DEVICE).exists() {
        let needed = "/dev/fuse is not there: the host's kernel has no FUSE (try `modprobe fuse`)";
        return Err(MountError::Host(needed.into()));
    }
    let rights = nix::unistd::AccessFlags::R_OK | nix::unistd::AccessFlags::W_OK;
    if nix::unistd::access(DEVICE, rights).is_err() {
        let needed = "/dev/fuse: Permission denied (who may mount is who may read and write it)";
        return Err(MountError::Host(needed.into()));
    }
    let dir = dir.canonicalize().map_err(host)?;
    if !dir.metadata().map_err(host)?.is_dir() {
        return Err(MountError::Host(format!("{}: Not a directory", dir.display())));
    }
    let live = Arc::new(Filesystem::open(pool, name)?);
    let props = live.mount_props()?;
    let memory =
        pool.memory().of(rt::mem::Holder::Mounts).take(options.threads as u64 * THREAD_BYTES);
    let door = Door::new(Spaces::new(live.clone()), props, options);
    let (opened, turns) = (door.opened.clone(), door.turns.clone());
    let flags = attach::flags(&props, options.read_only);
    let session = attach::attach(door, (&live.name(), &dir), flags, options.threads);
    let session = session.map_err(|e| match e.kind() {
        io::ErrorKind::NotFound => MountError::Host(
            "fusermount3 is not there, which a user who is not root mounts with: Debian's fuse3"
                .into(),
        ),
        _ => MountError::Host(e.to_string().trim().to_string()),
    })?;
    // Where there are no more files, it is slept instead.
    session.as_fd().try_clone_to_owned().into_iter().for_each(|device| turns.look_at(device));
    let (ended, end) = mpsc::bounded(1);
    live.mounted();
    let this = mounted_on(&dir).into_iter().rev().find(|there| there.name.is_some());
    let (fs, on, ours) = (live.clone(), dir.clone(), this.clone());
    let served = rt::thread::spawn("mount", move || {
        let result = session.run();
        // The kernel may not have ended it, and nobody answers there any more. What was mounted there since, after it was
        // taken away lazily, stays.
        if result.is_err() && ours.is_some() && mounted_on(&on).pop() == ours {
            drop(unmount_as(&on, true));
        }
        opened.end(&fs);
        fs.unmounted();
        // Nobody may be left who wants to know.
        drop(ended.send(result));
    });
    read_ahead(&dir);
    let read_only = options.read_only;
    Ok(Mounted { dir, this, fs: live, read_only, served, end, _memory: memory })
}

/// Lets the kernel ask for more at once where somebody reads on: its own limit is far below a record. Who is not
/// root has to do without.
fn read_ahead(dir: &Path) {
    if let Ok(meta) = dir.metadata() {
        let (major, minor) = (nix::sys::stat::major(meta.dev()), nix::sys::stat::minor(meta.dev()));
        let path = format!("/sys/class/bdi/{major}:{minor}/read_ahead_kb");
        drop(std::fs::write(path, (IO_MAX >> 10).to_string()));
    }
}

impl Mounted {
    /// Where.
    #[must_use]
    pub fn dir(&self) -> &Path {
        &self.dir
    }

    /// What.
    #[must_use]
    pub fn filesystem(&self) -> &Arc<Filesystem> {
        &self.fs
    }

    /// Has it ended, within this time?
    #[must_use]
    pub fn has_ended(&self, within: Duration) -> bool {
        !matches!(self.end.recv_timeout(within), Err(mpsc::RecvError::Timeout))
    }

    /// Asks the kernel to unmount; [`Mounted::wait`] returns when it has. `lazily`: also while files are in use,
    /// which are served on.
    ///
    /// # Errors
    /// Files are in use, or something is mounted over it; it is not there any more; no permission.
    pub fn unmount(&self, lazily: bool) -> Result<(), MountError> {
        self.is_uppermost()?;
        unmount_as(&self.dir, lazily)
    }

    /// What the kernel is asked to do with a directory it does with the uppermost of what is mounted there, whose ever
    /// that is.
    fn is_uppermost(&self) -> Result<(), MountError> {
        let Some(this) = &self.this else { return Ok(()) };
        let mut there = mounted_on(&self.dir);
        match there.pop() {
            // Once it has ended, its device may be that of another.
            Some(last) if last == *this && !self.has_ended(Duration::ZERO) => Ok(()),
            _ if there.contains(this) => Err(MountError::Busy(self.dir.clone())),
            _ => Err(MountError::NotOurs(self.dir.clone())),
        }
    }

    /// Has the kernel obey the properties as they are now; files stay open.
    ///
    /// # Errors
    /// No permission: only root may. Something is mounted over it. It is not there any more.
    pub fn remount(&self) -> Result<(), MountError> {
        self.is_uppermost()?;
        let flags = attach::flags(&self.fs.mount_props()?, self.read_only);
        let remount = |flags: MsFlags| {
            let none = None::<&Path>;
            nix::mount::mount(none, &self.dir, none, flags | MsFlags::MS_REMOUNT, none)
        };
        let done = match remount(flags) {
            // Files are open to be written to: that they are not is for the file system to see to.
            Err(nix::errno::Errno::EBUSY) => remount(flags - MsFlags::MS_RDONLY),
            done => done,
        };
        done.map_err(|e| MountError::Host(format!("{}: {}", self.dir.display(), e.desc())))
    }

    /// Waits until it is unmounted, by whomever.
    pub fn wait(self) {
        self.served.join();
    }
}

/// Unmounts what was mounted on `dir` by any process of ours. Returns what it was: the name of a file system.
///
/// # Errors
/// Nothing of ours is mounted there; files are in use; no permission.
pub fn unmount(dir: &Path, lazily: bool) -> Result<String, MountError> {
    // A mount without a server cannot even be looked at, but it can be unmounted.
    let path = std::path::absolute(dir).map_err(|e| MountError::Host(e.to_string()))?;
    let path = path.canonicalize().unwrap_or(path);
    let name = source_of(&path).ok_or_else(|| MountError::NotOurs(dir.to_path_buf()))?;
    unmount_as(&path, lazily)?;
    Ok(name)
}

fn unmount_as(dir: &Path, lazily: bool) -> Result<(), MountError> {
    use nix::mount::{MntFlags, umount2};
    let flags = if lazily { MntFlags::MNT_DETACH } else { MntFlags::empty() };
    umount2(dir, flags).map_err(|e| match e {
        nix::errno::Errno::EBUSY => MountError::Busy(dir.to_path_buf()),
        nix::errno::Errno::EINVAL => MountError::NotOurs(dir.to_path_buf()),
        nix::errno::Errno::EPERM => MountError::Host(format!(
            "{}: only root may unmount by himself; use `fusermount3 -u {}`",
            dir.display(),
            dir.display()
        )),
        e => MountError::Host(format!("{}: {}", dir.display(), e.desc())),
    })
}

/// What is mounted on a directory.
#[derive(Clone, Debug, PartialEq, Eq)]
struct There {
    /// Its device, as long as it is mounted nobody else's.
    device: Vec<u8>,
    /// What of ours it is.
    name: Option<String>,
}

/// What is mounted on a directory, the uppermost last; nothing if the kernel does not tell.
fn mounted_on(dir: &Path) -> Vec<There> {
    std::fs::read("/proc/self/mountinfo").map(|list| listed(&list, dir)).unwrap_or_default()
}

/// What the kernel's list has on a directory. Names in it are bytes: anybody may mount something on what is no UTF-8.
fn listed(list: &[u8], dir: &Path) -> Vec<There> {
    let kind = format!("fuse.{SUBTYPE}");
    let found = list.split(|byte| *byte == b'\n').filter_map(|line| {
        let mut words = line.split(|byte| *byte == b' ');
        let (device, on) = (words.nth(2)?, unescaped(words.nth(1)?));
        // How many words come before the dash differs.
        let mut after = words.skip_while(|word| *word != b"-").skip(1);
        let (this, name) = (after.next()?, after.next()?);
        let text = || String::from_utf8_lossy(&unescaped(name)).into_owned();
        let name = (this == kind.as_bytes()).then(text);
        (OsStr::from_bytes(&on) == dir).then(|| There { device: device.into(), name })
    });
    found.collect()
}

/// What of ours is mounted on a directory: the uppermost, if there are several.
fn source_of(dir: &Path) -> Option<String> {
    mounted_on(dir).pop()?.name
}

/// A word of the list of mounts: spaces and the like stand there as three octal digits.
fn unescaped(word: &[u8]) -> Vec<u8> {
    let mut bytes = Vec::new();
    let mut rest = word;
    while let Some((first, after)) = rest.split_first() {
        let digits = after.get(..3).and_then(|d| str::from_utf8(d).ok());
        match digits.and_then(|d| u8::from_str_radix(d, 8).ok()).filter(|_| *first == b'\\') {
            Some(byte) => {
                bytes.push(byte);
                rest = after.get(3..).unwrap_or_default();
            }
            None => {
                bytes.push(*first);
                rest = after;
            }
        }
    }
    bytes
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words_of_the_list_of_mounts_are_read() {
        assert_eq!(unescaped(br"/mnt/a\040b\134c"), b"/mnt/a b\\c");
        assert_eq!(unescaped(br"/plain\x"), br"/plain\x");
    }

    /// Seen red: with one name in it that is no text nothing was mounted anywhere.
    #[test]
    fn the_list_of_mounts_is_read_whatever_is_in_it() {
        let list = b"30 1 8:1 / / rw - ext4 /dev/sda1 rw\n\
            31 30 0:50 / /mnt/\xff rw shared:7 - tmpfs none rw\n\
            32 30 0:51 / /mnt/a\\040b rw shared:8 master:1 - fuse.thumper tank/a\\040b rw\n\
            33 30 0:52 / /mnt/\xff rw - fuse.thumper tank rw\n\
            34 32 0:53 / /mnt/a\\040b rw - tmpfs none rw\n";
        let there = |device: &str, name: Option<&str>| There {
            device: device.into(),
            name: name.map(str::to_string),
        };
        let at = |dir: &[u8]| listed(list, Path::new(OsStr::from_bytes(dir)));
        assert_eq!(at(b"/mnt/a b"), [there("0:51", Some("tank/a b")), there("0:53", None)]);
        assert_eq!(at(b"/mnt/\xff"), [there("0:50", None), there("0:52", Some("tank"))]);
        assert_eq!(at(b"/mnt"), []);
    }
}
