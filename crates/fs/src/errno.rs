//! The number by which the kernel and its programs know an error.

use dmu::DmuError;
use pool::PoolError;

use crate::error::FsError;

/// Numbers of errors, as Linux has them.
#[allow(missing_docs)]
pub mod code {
    pub const PERM: i32 = 1;
    pub const NOENT: i32 = 2;
    pub const IO: i32 = 5;
    pub const NXIO: i32 = 6;
    pub const TOOBIG: i32 = 7;
    pub const ACCES: i32 = 13;
    pub const BUSY: i32 = 16;
    pub const EXIST: i32 = 17;
    pub const XDEV: i32 = 18;
    pub const NOTDIR: i32 = 20;
    pub const ISDIR: i32 = 21;
    pub const INVAL: i32 = 22;
    pub const FBIG: i32 = 27;
    pub const NOSPC: i32 = 28;
    pub const ROFS: i32 = 30;
    pub const RANGE: i32 = 34;
    pub const NAMETOOLONG: i32 = 36;
    pub const NOSYS: i32 = 38;
    pub const NOTEMPTY: i32 = 39;
    pub const NODATA: i32 = 61;
    pub const ILSEQ: i32 = 84;
    pub const OPNOTSUPP: i32 = 95;
    pub const STALE: i32 = 116;
    pub const DQUOT: i32 = 122;
}

impl FsError {
    /// The error as a number of errno(3).
    #[must_use]
    pub fn errno(&self) -> i32 {
        match self {
            FsError::NotFound { .. } => code::NOENT,
            FsError::Exists { .. } => code::EXIST,
            FsError::NotADirectory { .. } => code::NOTDIR,
            FsError::IsADirectory { .. } => code::ISDIR,
            FsError::NotEmpty { .. } => code::NOTEMPTY,
            FsError::Denied { .. } => code::ACCES,
            FsError::Protected { .. } => code::PERM,
            FsError::BadName { reason, .. } if reason.starts_with("File name too long") => {
                code::NAMETOOLONG
            }
            FsError::BadName { reason, .. } if reason.starts_with("Invalid or incomplete") => {
                code::ILSEQ
            }
            FsError::BadName { reason, .. } if reason.starts_with("Numerical result") => {
                code::RANGE
            }
            FsError::Invalid { reason, .. } if reason.starts_with("Invalid cross-device") => {
                code::XDEV
            }
            FsError::Invalid { reason, .. } if reason.starts_with("Device or resource busy") => {
                code::BUSY
            }
            FsError::BadName { .. } | FsError::Invalid { .. } => code::INVAL,
            FsError::ReadOnly { .. } => code::ROFS,
            FsError::NoSpace { reason, .. } if reason.starts_with("Disk quota") => code::DQUOT,
            FsError::NoSpace { .. } => code::NOSPC,
            FsError::NoAttribute { .. } => code::NODATA,
            FsError::NotAFilesystem { .. } => code::INVAL,
            FsError::Dmu(DmuError::NoObject { .. }) => code::STALE,
            FsError::Dmu(DmuError::WrongKind { .. }) => code::INVAL,
            FsError::Pool(PoolError::NoSpace { .. }) => code::NOSPC,
            FsError::Pool(PoolError::QuotaExceeded { .. }) => code::DQUOT,
            FsError::Pool(PoolError::ReadOnly { .. }) => code::ROFS,
            FsError::Pool(PoolError::NoDataset { .. }) => code::NOENT,
            FsError::Pool(PoolError::Revoked { .. }) => code::STALE,
            FsError::Damaged { .. } | FsError::Dmu(_) | FsError::Pool(_) => code::IO,
        }
    }
}
