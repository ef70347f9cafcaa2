//! Files and directories of a file system (ZPL): attributes, names, contents, extended attributes.
//!
//! Place: on top of `pool` and `dmu`, below the doors. Never sees a vdev.
//! The one idea: everything works on object numbers under one txg handle; paths are for doors.
#![deny(missing_docs)]

mod accounts;
mod attrs;
mod diff;
mod error;
mod file;
mod filesystem;
mod fixed;
mod names;
mod new;
mod path;
mod quota;
mod removed;
mod replay;
mod stable;
mod volume;
mod xattr;
mod zpl;

pub use accounts::{Account, Accounts};
pub use attrs::{Attrs, mode};
pub use diff::{Difference, Happened, Told, diff};
pub use error::{FsError, Result};
pub use filesystem::{Filesystem, Who};
pub use fixed::{Fixed, fixed};
pub use format::znode::{Time, Znode};
pub use names::{DirEntry, NAME_MAX};
pub use new::NewObject;
pub use path::parts;
pub use replay::{Replay, replay_logs};
pub use volume::Volume;
pub use zpl::make_filesystem;
