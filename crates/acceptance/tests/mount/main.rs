//! The mount: file systems of a pool as directories of the host, used as programs use any other.
//!
//! Without /dev/fuse these tests fail and say what to do; `THUMPER_NO_MOUNT` leaves them out, and they say so.

#![allow(clippy::unwrap_used, reason = "tests")]

mod kernel;
mod kills;
mod many;
mod model;
mod places;
mod programs;
mod replaced;
mod served;
mod snapdir;
mod words;
