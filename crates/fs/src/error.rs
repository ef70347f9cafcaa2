//! What can go wrong with files. Each error maps to one errno at the doors.

use dmu::DmuError;
use format::FormatError;
use pool::PoolError;

/// An error of the file system.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum FsError {
    /// No such entry.
    #[error("{path}: No such file or directory")]
    NotFound {
        /// The path asked for.
        path: String,
    },
    /// The entry is there already.
    #[error("{path}: File exists")]
    Exists {
        /// The path asked for.
        path: String,
    },
    /// A directory was needed.
    #[error("{path}: Not a directory")]
    NotADirectory {
        /// The path asked for.
        path: String,
    },
    /// Something else than a directory was needed.
    #[error("{path}: Is a directory")]
    IsADirectory {
        /// The path asked for.
        path: String,
    },
    /// Not for such an object.
    #[error("{path}: Permission denied")]
    Denied {
        /// The path asked for.
        path: String,
    },
    /// A flag of it forbids this to everybody.
    #[error("{path}: Operation not permitted (chattr under OpenZFS has protected it)")]
    Protected {
        /// What it is called.
        path: String,
    },
    /// The directory has entries.
    #[error("{path}: Directory not empty")]
    NotEmpty {
        /// The path asked for.
        path: String,
    },
    /// A name that nothing can have: it is empty, or has a slash or NUL.
    #[error("{path}: {reason}")]
    BadName {
        /// The name.
        path: String,
        /// What is wrong with it.
        reason: &'static str,
    },
    /// The file system can only be read.
    #[error("{name}: Read-only file system ({reason})")]
    ReadOnly {
        /// The data set.
        name: String,
        /// Why.
        reason: String,
    },
    /// There is no space.
    #[error("{name}: No space left on device")]
    NoSpace {
        /// The data set.
        name: String,
    },
    /// A quota is reached.
    #[error("{name}: Disk quota exceeded")]
    QuotaExceeded {
        /// The data set that has the quota, or whose users and projects have it.
        name: String,
    },
    /// Refused for a reason that has a number of its own.
    #[error("{path}: {why}")]
    Refused {
        /// The path asked for, or what is known of it.
        path: String,
        /// The reason.
        why: Refusal,
    },
    /// A directory moved into itself, a root removed, and the like.
    #[error("{path}: {reason}")]
    Invalid {
        /// The path asked for.
        path: String,
        /// What is wrong.
        reason: &'static str,
    },
    /// No such extended attribute.
    #[error("no such attribute '{name}'")]
    NoAttribute {
        /// Its name.
        name: String,
    },
    /// The data set is not a file system that can be read.
    #[error("{name}: {reason}")]
    NotAFilesystem {
        /// The data set.
        name: String,
        /// What it is.
        reason: String,
    },
    /// A structure of the file system is damaged.
    #[error("{name}: object {object}: {source}")]
    Damaged {
        /// The data set.
        name: String,
        /// The object.
        object: u64,
        /// What is wrong.
        source: FormatError,
    },
    /// Objects and blocks.
    #[error(transparent)]
    Dmu(#[from] DmuError),
    /// The pool.
    #[error(transparent)]
    Pool(#[from] PoolError),
}

/// Why something is refused.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum Refusal {
    /// A name of more than 255 bytes.
    #[error("File name too long")]
    NameTooLong,
    /// A name that is not UTF-8, where all have to be.
    #[error("Invalid or incomplete multibyte or wide character")]
    NotUtf8,
    /// The name of an extended attribute, of more than 255 bytes.
    #[error("Numerical result out of range")]
    AttributeNameTooLong,
    /// Something of one project for a directory that hands down another.
    #[error("Invalid cross-device link: the directory is of another project")]
    CrossProject,
    /// The last name of something that is open, where nothing can be kept without a name.
    #[error("Device or resource busy: it is open, and this file system has no delete queue")]
    Busy,
}

impl FsError {
    /// The same error; where the pool has no room, it is the file system or volume `name` that has none.
    pub(crate) fn of_room(self, name: impl FnOnce() -> String) -> FsError {
        match self {
            FsError::Pool(PoolError::NoSpace { .. }) => FsError::NoSpace { name: name() },
            FsError::Pool(PoolError::QuotaExceeded { name }) => FsError::QuotaExceeded { name },
            other => other,
        }
    }
}

/// Result of the file system.
pub type Result<T> = std::result::Result<T, FsError>;

/// A name or path as text for messages: bytes that are not UTF-8 are replaced.
pub(crate) fn shown(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}
