//! Virtual devices: labels, mirrors and RAID-Z on top of devices.
//!
//! Place: between `device` (bytes of one disk) and `store` (blocks by their pointers).
//! The one idea: a top-level vdev is an address space; a block in it is pieces on leaves, with
//! enough redundancy that the checksum can tell which leaf lied.
#![deny(missing_docs)]

mod error;
mod examine;
mod flight;
mod flushes;
pub mod foreign;
pub mod import;
mod indirect;
mod inuse;
pub mod label;
mod label_parts;
mod lacks;
mod partitions;
mod present;
pub mod raidz;
mod read;
mod rebuild;
mod search;
mod seen;
mod sitting;
pub mod sizes;
mod sweep;
mod together;
mod tree;
mod unverified;
mod write;

pub use error::{LeafFailure, Result, VdevError};
pub use examine::Examined;
pub use flight::{Flight, Sought};
pub use flushes::FlushFailures;
pub use inuse::{Content, content};
pub use label_parts::{LabelParts, Slot, label_parts};
pub use lacks::Lacks;
pub use present::Present;
pub use read::{Check, Fault, FaultKind, ReadReport, ReadScratch};
pub use seen::{Seen, Verdict};
pub use sweep::{Laid, Sweep, SweepScratch, Swept};
pub use tree::{ErrorCounts, Found, Leaf, LeafState, Top, Tree};
pub use write::{WriteReport, WriteScratch, WriteTree};
