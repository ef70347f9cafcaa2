//! The rescue door: what is left of pools that do not open, read-only by construction.
//!
//! The one idea: any command that reads can be run through it; the pool is then taken as it was at an older txg if
//! wanted, and with more disks missing than its redundancy covers: what can be read is. What must be true of a
//! pool before it is used is asked of what is read, block by block, by checksum.

use std::path::PathBuf;

use crate::pools::Vdev;

/// How pools are looked at.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Rescue {
    /// As of this txg, or the last one before it that is left; `None`: the newest.
    pub txg: Option<u64>,
    /// A file with roots that were found among the blocks.
    pub roots: Option<PathBuf>,
}

/// What is left of a pool.
#[derive(Clone, Debug)]
pub struct Remains {
    /// Its name, as its labels have it.
    pub name: String,
    /// Its guid.
    pub guid: u64,
    /// Its devices, as they were found.
    pub tree: Vdev,
    /// The txgs whose uberblocks are left, or whose roots were found, newest first.
    pub txgs: Vec<TxgLeft>,
}

/// A txg whose uberblock is left, or whose root was found.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TxgLeft {
    /// Its number.
    pub txg: u64,
    /// When it was written, in seconds since 1970; `None` of a root that was found: only uberblocks say so.
    pub time: Option<u64>,
    /// Why it does not open; `None`: it does.
    pub problem: Option<String>,
}
