//! Experiments that anybody can repeat: faults of disks, put into simulated ones on purpose, and how long it
//! takes until a lost disk is whole again.
//!
//! Place: beside the judge, on top of the engine. The one idea: a pool is made as users make it, on disks that lie by a
//! seed; what came of it is told by the bytes that were read, by the counters, and by the judge.
#![deny(missing_docs)]

mod drive;
mod experiment;
pub mod faults;
pub mod rebuild;
mod replay;
mod sluggish;
mod sparse;
