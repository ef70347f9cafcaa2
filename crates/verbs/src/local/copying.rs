//! What `get` and `put` share: how much is read at a time, and how one entry fails.

use std::path::Path;

use fs::FsError;

use super::files::fs_error;
use crate::{Doing, Error, Why};

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
        }
    }
}

impl From<std::io::Error> for Failed {
    fn from(e: std::io::Error) -> Self {
        Failed::Host(e)
    }
}

impl From<rustix::io::Errno> for Failed {
    fn from(e: rustix::io::Errno) -> Self {
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
