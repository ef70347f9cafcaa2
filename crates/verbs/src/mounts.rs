//! Requests about mounts.

use std::path::PathBuf;

/// Mounts a file system or snapshot, and serves it until it is unmounted.
#[derive(Clone, Debug)]
pub struct Mount {
    /// What.
    pub dataset: String,
    /// Where: a directory of the host.
    pub dir: PathBuf,
    /// Nothing is changed: the pool is opened for reading.
    pub read_only: bool,
    /// Where to look for pools.
    pub dirs: Vec<PathBuf>,
}

/// What there is to know while a mount is served.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum News {
    /// It can be used from now on.
    Mounted {
        /// What.
        dataset: String,
        /// Where.
        dir: PathBuf,
    },
    /// It is to end, but files are in use.
    Busy(PathBuf),
}

/// Unmounts.
#[derive(Clone, Debug)]
pub struct Unmount {
    /// Where it is mounted.
    pub dir: PathBuf,
    /// Also while files are in use: it is out of sight at once, and ends with the last of them.
    pub lazily: bool,
    /// Where to look for pools.
    pub dirs: Vec<PathBuf>,
}
