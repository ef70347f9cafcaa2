//! What every door can ask of the engine: typed requests, typed reports.
//!
//! Place: above pool, fs and verify, below the doors. The one idea: a verb is a value. A door
//! makes a request and prints a report; it never sees how it is done, so that a command line, a
//! socket and a test ask for the same thing in the same way.

pub mod branches;
pub mod datasets;
pub mod disks;
pub mod dump;
pub mod engine;
pub mod error;
pub mod events;
pub mod files;
pub mod find;
pub mod health;
pub mod host;
pub mod inuse;
pub mod judge;
pub mod layout;
pub mod local;
pub mod lockfile;
pub mod memory;
pub mod meters;
pub mod mounts;
pub mod pools;
pub mod rescue;
pub mod state;

pub use engine::Engine;
pub use error::{Doing, Error, Result, Why};
pub use lab;
pub use local::{Ending, Held, Local, System, on_suspended};
pub use pool::props;

/// What `zfs diff` tells.
pub mod diff {
    pub use fs::{Difference, Happened, Told, mode};
}

/// True for the name of a feature that OpenZFS 2.1 knows.
#[must_use]
pub fn is_feature(name: &str) -> bool {
    format::features::Feature::from_name(name).is_some()
}
