//! What a server has mounted, by name and by place.
//!
//! The one idea: whatever is inside something goes before it and comes after it, and what is in use stays, unless it
//! is taken lazily. Which file systems belong where is told by [`super::placing`].

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::path::{Path, PathBuf};
use std::time::Duration;

use fuse::{MountError, Mounted, Options};
use pool::Pool;
use rt::sync::{Arc, Mutex};

use super::copying::without_code;
use super::mount::mount_error;
use crate::{Doing, Error, Result, Why};

/// How long the end of the server waits for a mount that is in use.
const BUSY_MAX: Duration = Duration::from_secs(2);
/// Requests of one mount that are served at once: there may be many mounts.
const THREADS: usize = 4;
/// How long the kernel takes names for right.
const NAMES_FOR: Duration = Duration::from_secs(1);

/// What is mounted, by name: so those above come before those below.
#[derive(Default)]
pub(super) struct Places {
    mounts: Mutex<BTreeMap<String, Mounted>>,
    /// Directories on which something was mounted that had its place from above or by default.
    unchosen: Mutex<BTreeSet<PathBuf>>,
    /// One command at a time changes what is mounted.
    pub(super) changing: Mutex<()>,
}

impl fmt::Debug for Places {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_set().entries(self.list().iter().map(|(name, _)| name)).finish()
    }
}

pub(super) fn cannot_mount(name: &str, why: Why) -> Error {
    Error::cannot(Doing::File("mount", name.into()), why)
}

pub(super) fn cannot_unmount(what: &Path, why: Why) -> Error {
    Error::cannot(Doing::File("unmount", what.display().to_string()), why)
}

/// Takes away the mount that a process that was killed has left on a directory. (Attributes may come from the kernel's
/// cache.)
pub(super) fn clear_remains(dir: &Path) {
    if dir.read_dir().is_err_and(|e| e.kind() == std::io::ErrorKind::NotConnected) {
        // Whoever mounts there is told why he cannot.
        drop(fuse::unmount(dir, true));
    }
}

impl Places {
    /// What is mounted, and where. What somebody else has unmounted is let go.
    pub(super) fn list(&self) -> Vec<(String, PathBuf)> {
        let mut mounts = self.mounts.lock();
        mounts.retain(|_, mounted| !mounted.has_ended(Duration::ZERO));
        mounts.iter().map(|(name, mounted)| (name.clone(), mounted.dir().into())).collect()
    }

    /// Mounts a file system on a directory, which is made if it is not there. `unchosen`: its place is from above or by
    /// default.
    pub(super) fn add(
        &self,
        pool: &Arc<Pool>,
        name: &str,
        dir: &Path,
        unchosen: bool,
    ) -> Result<()> {
        if let Some((other, _)) = self.list().iter().find(|(_, on)| on == dir) {
            let why = format!("'{other}' is mounted on {}", dir.display());
            return Err(cannot_mount(name, Why::Host(why)));
        }
        clear_remains(dir);
        if dir.symlink_metadata().is_err() {
            std::fs::create_dir_all(dir).map_err(|e| {
                let why = format!("failed to create mountpoint: {}", without_code(&e));
                cannot_mount(&dir.display().to_string(), Why::Host(why))
            })?;
        }
        // Clients of the server change names, too, and the kernel does not hear of it.
        let (read_only, names_for) = (pool.read_only_reason().is_some(), NAMES_FOR);
        let options = Options { read_only, names_for, threads: THREADS, ..Options::default() };
        let mounted = fuse::mount(pool, name, dir, &options);
        let mounted = mounted.map_err(|e| mount_error("mount", name.into(), e))?;
        match unchosen {
            true => drop(self.unchosen.lock().insert(mounted.dir().into())),
            false => drop(self.unchosen.lock().remove(mounted.dir())),
        }
        self.mounts.lock().insert(name.into(), mounted);
        Ok(())
    }

    /// Has nobody chosen the directory for what was mounted there last?
    pub(super) fn is_unchosen(&self, dir: &Path) -> bool {
        self.unchosen.lock().contains(dir)
    }

    /// Removes a directory on which nothing is mounted any more: as OpenZFS leaves none behind that nobody has chosen.
    /// One with something in it stays.
    pub(super) fn clean(&self, dir: &Path) {
        if self.unchosen.lock().remove(dir) {
            drop(std::fs::remove_dir(dir));
        }
    }

    fn remove(&self, name: &str, dir: &Path, lazily: bool) -> Result<()> {
        let Some(mounted) = self.mounts.lock().remove(name) else { return Ok(()) };
        let done = match mounted.unmount(false) {
            Err(MountError::Busy(_)) if lazily => mounted.unmount(true),
            done => done,
        };
        match done {
            // Somebody else may have been faster, and files be open that hold it.
            Ok(()) | Err(MountError::NotOurs(_)) => {
                if lazily || mounted.has_ended(BUSY_MAX) {
                    return Ok(());
                }
                self.mounts.lock().insert(name.into(), mounted);
                Err(cannot_unmount(dir, Why::MountBusy))
            }
            Err(error) => {
                let why = match error {
                    MountError::Busy(_) => Why::MountBusy,
                    other => Why::Host(other.to_string()),
                };
                self.mounts.lock().insert(name.into(), mounted);
                Err(cannot_unmount(dir, why))
            }
        }
    }

    /// Unmounts all of these, those below first, and goes on with the others after a failure.
    pub(super) fn remove_all(
        &self,
        doomed: &dyn Fn(&str) -> bool,
        lazily: bool,
    ) -> (Vec<(String, PathBuf)>, Vec<Error>) {
        let (mut gone, mut errors) = (Vec::new(), Vec::new());
        let mut list = self.list();
        // What lies inside goes first, whatever it is called.
        list.sort_by(|(_, a), (_, b)| b.cmp(a));
        for (name, dir) in list.into_iter().filter(|(name, _)| doomed(name)) {
            match self.remove(&name, &dir, lazily) {
                Ok(()) => gone.push((name, dir)),
                Err(error) => errors.push(error),
            }
        }
        gone.reverse();
        (gone, errors)
    }

    /// Has the kernel obey the properties of these as they are now, and tells where it does not. From who is not root
    /// it takes nothing before they are mounted anew.
    pub(super) fn remount(&self, wanted: &dyn Fn(&str) -> bool) -> Vec<Error> {
        if !rustix::process::geteuid().is_root() {
            return Vec::new();
        }
        // Held over calls into the kernel: nobody who serves it takes this lock.
        let mounts = self.mounts.lock();
        let wanted = mounts.iter().filter(|(name, _)| wanted(name));
        let failed = wanted.filter_map(|(name, mounted)| match mounted.remount() {
            // Somebody has unmounted it.
            Err(_) if mounted.has_ended(Duration::ZERO) => None,
            done => done.err().map(|error| mount_error("remount", name.clone(), error)),
        });
        failed.collect()
    }

    /// File systems have other names, and stay where they are.
    pub(super) fn rename(&self, now: &dyn Fn(&str) -> String) {
        let mut mounts = self.mounts.lock();
        let all = std::mem::take(&mut *mounts).into_iter();
        *mounts = all.map(|(name, mounted)| (now(&name), mounted)).collect();
    }

    /// The end of the server: all of it goes, what is in use with the process.
    pub(super) fn end(&self) {
        // Who changes something may wait for a pool that does not answer.
        let start = rt::time::now();
        let _alone = loop {
            match self.changing.try_lock() {
                None if start.elapsed() < BUSY_MAX => rt::time::sleep(BUSY_MAX / 20),
                alone => break alone,
            }
        };
        let mounts = std::mem::take(&mut *self.mounts.lock());
        let mut mounts: Vec<Mounted> = mounts.into_values().collect();
        mounts.sort_by(|a, b| b.dir().cmp(a.dir()));
        let start = rt::time::now();
        for mounted in mounts {
            while mounted.unmount(false).is_err() && !mounted.has_ended(BUSY_MAX / 20) {
                if start.elapsed() > BUSY_MAX {
                    drop(mounted.unmount(true));
                    break;
                }
            }
        }
    }
}
