//! The mount: a file system of an open pool as a directory of the host, through FUSE.
//!
//! Place: above `fs` and `pool`, below `verbs`. The one idea: each request of the kernel is one call on
//! [`fs::Filesystem`], by object number. What is open and what the kernel knows is counted there; here is no state
//! but which snapshots have been entered, and which threads wait for requests. It is handed an open pool, and
//! whoever opened it closes it: a command that serves one mount, or a daemon with many. Why things are as they are: docs/decisions/0012-mount.md.
#![deny(missing_docs)]

mod answers;
mod attach;
mod attr;
mod control;
mod dirs;
mod door;
mod look;
mod mounted;
mod nodes;
mod opened;
mod signals;
mod turns;
mod xattrs;

pub use mounted::{MountError, Mounted, Options, mount, unmount};
pub use signals::Signals;
