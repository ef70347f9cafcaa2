//! The life of a pool's disks, as requests.

use std::path::PathBuf;

use crate::layout::Layout;
use crate::pools::PoolReport;

/// What is to be done to a disk of a pool.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Act {
    /// `zpool offline`.
    Offline {
        /// Until the pool is opened the next time.
        temporary: bool,
        /// It counts as faulted.
        fault: bool,
    },
    /// `zpool online`.
    Online {
        /// The room that its device has got is used.
        expand: bool,
    },
    /// `zpool attach`: this device gets the same blocks.
    Attach(PathBuf),
    /// `zpool replace`: by this device; `None`: by what is now where the disk was.
    Replace(Option<PathBuf>),
    /// `zpool detach`.
    Detach,
    /// `zpool remove`.
    Remove,
}

/// A change of one disk.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Change {
    /// The pool.
    pub name: String,
    /// The disk, by its path, its guid, or the last part of its path.
    pub device: String,
    /// What is to be done to it.
    pub act: Act,
    /// A new device is taken though it seems to be in use.
    pub force: bool,
    /// It ends when the new device is filled, though a server could do that by itself.
    pub wait: bool,
    /// Directories to look for the pool in, if it is not remembered.
    pub places: Vec<PathBuf>,
    /// What goes into the pool's history.
    pub command: String,
}

/// `zpool add`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Add {
    /// The pool.
    pub name: String,
    /// What it gets.
    pub layout: Layout,
    /// log2 of the size of its sectors; `None`: as the pool's property says, or the devices.
    pub ashift: Option<u32>,
    /// Devices are taken though they seem to be in use, or do not fit the pool's redundancy.
    pub force: bool,
    /// Nothing is done.
    pub dry_run: bool,
    /// Directories to look for the pool in, if it is not remembered.
    pub places: Vec<PathBuf>,
    /// What goes into the pool's history.
    pub command: String,
}

/// The pool as it was before an addition.
pub type Before = Box<PoolReport>;

/// `zpool labelclear`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Labelclear {
    /// The device.
    pub device: PathBuf,
    /// Though it belongs to a pool that is not in use here.
    pub force: bool,
}

/// A disk's path without the directories of devices, and without the partition of a whole disk.
#[must_use]
pub fn short_disk(path: &[u8], whole: bool) -> Vec<u8> {
    let start = path.iter().rposition(|c| *c == b'/').map_or(0, |at| at + 1);
    let known = path.starts_with(b"/dev/");
    let mut short = if known { path.get(start..).unwrap_or(path) } else { path };
    if whole {
        for suffix in [&b"-part1"[..], b"p1", b"1"] {
            if let Some(stripped) = short.strip_suffix(suffix) {
                short = stripped;
                break;
            }
        }
    }
    short.to_vec()
}
