//! Disks made of memory that fail on demand.
//!
//! The one idea: a write is in the disk's volatile cache until a flush, and everything that
//! happens to a set of disks is one list of events. So a power cut after any write can be made
//! from the list afterwards, any number of times, with the unflushed writes kept, dropped,
//! reordered or torn by a seed ([`Log`], [`Replay`]).
//!
//! While it runs a disk can also fail as real ones do ([`Fault`]): errors, lost, torn and
//! misdirected writes, misdirected reads, rot, a flush that lies, hanging, vanishing, slowness.
//!
//! ```
//! use device::sim::{Cut, SimSet};
//! use device::{Device, WriteDevice};
//!
//! let set = SimSet::new(2, 1 << 20);
//! set.record();
//! set.disk(0).write_at(0, b"data").unwrap();
//! set.disk(0).flush().unwrap();
//! set.disk(1).write_at(0, b"says that the data is there").unwrap();
//! let log = set.log();
//! let mut replay = log.replay();
//! for index in 0..=log.writes() {
//!     replay.advance_to(index);
//!     let after = SimSet::from_images(replay.crash(Cut::Dropped, 1));
//!     let mut seen = [0; 4];
//!     after.disk(1).read_at(0, &mut seen).unwrap();
//!     assert_eq!(seen, [0; 4], "it was never flushed");
//! }
//! ```

mod disk;
mod fault;
mod image;
mod log;
mod recorder;

pub use disk::{Counts, SimDisk, SimReader, SimSet};
pub use fault::{Fault, FaultId, Kind, On};
pub use image::Image;
pub use log::{Cut, Event, Log, Replay};
pub use recorder::{Recorded, Recorder};

/// Folds a word into a running hash: not for secrets, good enough to tell two histories apart.
fn fold(hash: u64, word: u64) -> u64 {
    let mixed = (hash ^ word).wrapping_mul(0x9e37_79b9_7f4a_7c15);
    mixed ^ (mixed >> 29)
}

/// Folds bytes into a running hash.
fn fold_bytes(hash: u64, bytes: &[u8]) -> u64 {
    let mut words = bytes.chunks_exact(8);
    let mut hash = fold(hash, bytes.len() as u64);
    for word in &mut words {
        hash = fold(hash, u64::from_le_bytes(word.try_into().expect("a chunk of 8 bytes")));
    }
    words.remainder().iter().fold(hash, |hash, &byte| fold(hash, byte.into()))
}

#[cfg(all(test, feature = "sim"))]
mod schedules;
#[cfg(test)]
mod tests;
