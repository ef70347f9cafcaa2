//! Files that are there to be locked: beside a list of pools, and beside a server's socket.
//!
//! The one idea: whoever can open a file can lock it, to read it is enough, so nobody but its owner may. Of one that
//! others could open somebody may keep the lock for ever: it gives way to a new one.

use std::fs::{File, TryLockError, remove_file};
use std::io::{ErrorKind, Result};
use std::os::unix::fs::{MetadataExt, OpenOptionsExt};
use std::path::Path;
use std::time::Duration;

/// What others may do with one: nothing.
const OTHERS: u32 = 0o077;
/// How often one gives way: where files have no modes the last one is taken as it is.
const TURNS: u32 = 4;
/// How long it is waited for whoever has locked one that anybody could.
const PATIENCE: Duration = Duration::from_secs(1);
/// How often it is looked.
const LOOK: Duration = Duration::from_millis(10);

/// Waits until the lock at `path` is free, and takes it.
///
/// # Errors
/// Those of the system.
pub fn wait(path: &Path) -> Result<File> {
    let settled = |file: &File| {
        let start = rt::time::now();
        while !is_free(file)? && start.elapsed() < PATIENCE {
            rt::time::sleep(LOOK);
        }
        Ok(true)
    };
    loop {
        let file = open(path, settled)?;
        file.lock()?;
        if is_at(&file, path) {
            return Ok(file);
        }
    }
}

/// Takes the lock at `path`; nothing, if it is taken. Where it could be by anybody, `is_ours` says whether it is by one of
/// ours.
///
/// # Errors
/// Those of the system.
pub fn try_take(path: &Path, is_ours: impl Fn() -> bool) -> Result<Option<File>> {
    loop {
        let file = open(path, |file| Ok(is_free(file)? || !is_ours()))?;
        if !is_free(&file)? {
            return Ok(None);
        }
        if is_at(&file, path) {
            return Ok(Some(file));
        }
    }
}

/// The file at `path`, which is made if there is none. One that others could open gives way to a new one, if `gives_way`
/// says so.
fn open(path: &Path, gives_way: impl Fn(&File) -> Result<bool>) -> Result<File> {
    let mut turns = 0;
    loop {
        let mut options = File::options();
        let file = options.create(true).truncate(false).write(true).mode(0o600).open(path)?;
        turns += 1;
        let is_private = file.metadata()?.mode() & OTHERS == 0;
        if is_private || turns > TURNS || !gives_way(&file)? {
            return Ok(file);
        }
        if is_at(&file, path) {
            match remove_file(path) {
                Err(error) if error.kind() != ErrorKind::NotFound => return Err(error),
                _ => {}
            }
        }
    }
}

/// Takes the lock of a file, if it is free.
fn is_free(file: &File) -> Result<bool> {
    match file.try_lock() {
        Ok(()) => Ok(true),
        Err(TryLockError::WouldBlock) => Ok(false),
        Err(TryLockError::Error(error)) => Err(error),
    }
}

/// Is it still that one which is there? Who locks another one is alone with it.
fn is_at(file: &File, path: &Path) -> bool {
    let which = |meta: std::fs::Metadata| (meta.dev(), meta.ino());
    let here = file.metadata().map(which);
    path.symlink_metadata().is_ok_and(|there| here.is_ok_and(|here| here == which(there)))
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt;

    use super::*;

    /// A stranger has opened the file that an older program made, and keeps its lock.
    fn kept(path: &Path) -> File {
        File::create(path).unwrap().set_permissions(PermissionsExt::from_mode(0o644)).unwrap();
        let stranger = File::open(path).unwrap();
        stranger.lock().unwrap();
        stranger
    }

    #[test]
    fn nobody_else_keeps_a_lock() {
        let dir = testkit::temp_dir();
        let path = dir.path().join("lock");
        let _stranger = kept(&path);
        assert!(try_take(&path, || true).unwrap().is_none(), "it is one of ours");
        let lock = try_take(&path, || false).unwrap();
        assert!(lock.is_some(), "it is a stranger");
        assert_eq!(path.metadata().unwrap().mode() & 0o777, 0o600);
        assert!(
            try_take(&path, || false).unwrap().is_none(),
            "whoever can lock it now is one of ours"
        );
        drop(lock);
        assert!(try_take(&path, || false).unwrap().is_some());
        let _another = kept(&path);
        let (one, there) = (wait(&path).unwrap(), File::open(&path).unwrap());
        assert!(!is_free(&there).unwrap());
        drop(one);
        assert!(is_free(&there).unwrap());
    }
}
