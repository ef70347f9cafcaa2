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

/// `zfs mount`: mounts file systems where their properties say.
#[derive(Clone, Debug, Default)]
pub struct Attach {
    /// Which; `None`: all that are to be mounted by themselves.
    pub name: Option<String>,
}

/// What is to be unmounted, with all that is below.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum What {
    /// All of every pool.
    All,
    /// A file system.
    Named(String),
    /// What is mounted on a directory.
    At(PathBuf),
}

/// `zfs unmount`.
#[derive(Clone, Debug)]
pub struct Detach {
    /// What.
    pub what: What,
    /// Also while files are in use.
    pub force: bool,
}
