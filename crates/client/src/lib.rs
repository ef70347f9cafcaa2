//! Files of a served pool, for programs of their own.
//!
//! Place: beside the server, which it reaches over a socket; it has nothing of the engine in it. The one idea: a
//! client is a handful of connections of one session, and a call takes whichever is free; so many threads share few
//! connections, and memory does not grow with the number of open files.
//!
//! When the server has gone, calls wait for it to come back for a while. What was on stable storage is
//! there then, and files that were only read go on; a file with writes that were not synced says so once and for all.

mod beside;
pub mod c;
mod crowd;
mod error;
mod file;
mod lane;
mod lanes;
mod lease;
mod names;
mod whole;

pub use error::{Error, Result};
pub use file::File;
pub use lanes::{Client, Options};
pub use lease::Lease;
pub use wire::{BULK_MAX, Entry, Open, Space, Stat, Subject};
