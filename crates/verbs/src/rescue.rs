//! The rescue door: what is left of pools that do not open, read-only by construction.
//!
//! The one idea: any command that reads can be run through it; the pool is then taken as it was at an older txg if
//! wanted, and with more disks missing than its redundancy covers: what can be read is. What must be true of a
//! pool before it is used is asked of what is read, block by block, by checksum.

use crate::pools::Vdev;

/// How pools are looked at.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Rescue {
    /// As of this txg, or the last one before it that is left; `None`: the newest.
    pub txg: Option<u64>,
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
    /// The txgs whose uberblocks are left, newest first.
    pub txgs: Vec<TxgLeft>,
}

/// A txg whose uberblock is left.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TxgLeft {
    /// Its number.
    pub txg: u64,
    /// When it was written, in seconds since 1970.
    pub time: u64,
    /// Why it does not open; `None`: it does.
    pub problem: Option<String>,
}
