//! Requests and reports of the judge.

use std::path::PathBuf;

/// Reads every copy and every parity column of every block, and recounts space.
#[derive(Clone, Debug, Default)]
pub struct Verify {
    /// The pool.
    pub name: String,
    /// Where to look for it, if it is not remembered.
    pub places: Vec<PathBuf>,
    /// Memory to do it in, in bytes; 0 for the default.
    pub memory: u64,
    /// The file in which the state is kept, to go on from there.
    pub keep: Option<PathBuf>,
    /// Disks that are taken to be dead: paths, ends of paths, or guids.
    pub at_risk: Vec<String>,
}

/// How far the judge is.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Progress {
    /// Bytes examined, as they are on disk.
    pub done: u64,
    /// Bytes to examine, as far as known.
    pub total: u64,
}

/// The verdict.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Verdict {
    /// Nothing is wrong.
    Clean,
    /// Something is wrong, and all data can be read.
    Whole,
    /// Data is lost.
    Lost,
}

/// What the judge found on one device.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct DeviceDamage {
    /// The device's path, or its guid where it has none.
    pub device: String,
    /// Its guid.
    pub guid: u64,
    /// It is not there.
    pub missing: bool,
    /// Its labels cannot be read: which of the four.
    pub labels: Vec<u8>,
    /// Labels whose ring of uberblocks has something else in it.
    pub rings: Vec<u8>,
    /// Reads that failed.
    pub read_errors: u64,
    /// Columns or copies that are not what they should be.
    pub bad_blocks: u64,
    /// Txgs that were written without it.
    pub lacks_txgs: u64,
}

/// What the judge found about one file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FileDamage {
    /// The data set.
    pub dataset: String,
    /// The path, or the object's number in `<>`.
    pub path: String,
    /// Bytes that are lost.
    pub bytes: u64,
}

/// What the judge found.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct VerifyReport {
    /// The pool.
    pub name: String,
    /// The verdict.
    pub verdict: Verdict,
    /// The txg that was judged.
    pub txg: u64,
    /// Blocks examined.
    pub blocks: u64,
    /// Bytes examined, with parity and copies.
    pub bytes: u64,
    /// Data sets and snapshots examined.
    pub datasets: u64,
    /// Data sets that are encrypted: their blocks are checked, their files not named.
    pub encrypted: Vec<String>,
    /// Damage by device.
    pub devices: Vec<DeviceDamage>,
    /// Lost data by file.
    pub files: Vec<FileDamage>,
    /// What does not add up, one a line: space, counts, structures.
    pub findings: Vec<String>,
    /// What is to be said of the judgement itself.
    pub notes: Vec<String>,
}
