//! Files and directories of a file system (ZPL): attributes, names, contents, extended attributes.
//!
//! Place: on top of `pool` and `dmu`, below the doors. Never sees a vdev.
//! The one idea: everything works on object numbers under one txg handle; paths are for doors.
#![deny(missing_docs)]

mod accounts;
pub mod acl;
mod attrs;
mod diff;
mod digests;
mod errno;
mod error;
mod exchange;
mod file;
mod filesystem;
mod fixed;
mod in_use;
mod leaving;
mod locks;
mod marks;
mod names;
mod new;
mod own;
mod path;
mod protected;
mod quota;
mod removed;
mod replay;
mod salvage;
mod seek;
mod served;
mod setattr;
mod stable;
mod volume;
mod xattr;
mod zpl;

pub use accounts::{Account, Accounts};
pub use attrs::{Attrs, mode};
pub use diff::{Difference, Happened, Told, diff};
pub use digests::{Algorithm, DIGEST_PIECE};
pub use dmu::{Left, Lent, Object};
pub use errno::code;
pub use error::{FsError, Refusal, Result};
pub use filesystem::Filesystem;
pub use fixed::{Fixed, fixed};
pub use format::znode::{Time, Znode};
pub use names::{CONTROL_NAME, DirEntry, NAME_MAX};
pub use new::{NewObject, Who};
pub use path::parts;
pub use replay::{Replay, replay_logs};
pub use salvage::Remains;
pub use served::{MountProps, Space};
pub use setattr::{Setattr, When};
pub use volume::Volume;
pub use zpl::make_filesystem;
