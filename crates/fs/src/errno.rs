//! The number by which the kernel and its programs know an error.

use dmu::DmuError;
use pool::PoolError;

use crate::error::{FsError, Refusal};

/// Numbers of errors, as Linux has them.
#[allow(missing_docs)]
pub mod code {
    pub const PERM: i32 = 1;
    pub const NOENT: i32 = 2;
    pub const IO: i32 = 5;
    pub const NXIO: i32 = 6;
    pub const TOOBIG: i32 = 7;
    pub const BADF: i32 = 9;
    pub const ACCES: i32 = 13;
    pub const BUSY: i32 = 16;
    pub const EXIST: i32 = 17;
    pub const XDEV: i32 = 18;
    pub const NOTDIR: i32 = 20;
    pub const ISDIR: i32 = 21;
    pub const INVAL: i32 = 22;
    pub const MFILE: i32 = 24;
    pub const FBIG: i32 = 27;
    pub const NOSPC: i32 = 28;
    pub const SPIPE: i32 = 29;
    pub const ROFS: i32 = 30;
    pub const RANGE: i32 = 34;
    pub const NAMETOOLONG: i32 = 36;
    pub const NOTEMPTY: i32 = 39;
    pub const LOOP: i32 = 40;
    pub const NODATA: i32 = 61;
    pub const ILSEQ: i32 = 84;
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
            FsError::BadName { .. } | FsError::Invalid { .. } => code::INVAL,
            FsError::ReadOnly { .. } => code::ROFS,
            FsError::NoSpace { .. } => code::NOSPC,
            FsError::QuotaExceeded { .. } => code::DQUOT,
            FsError::Refused { why, .. } => match why {
                Refusal::NameTooLong => code::NAMETOOLONG,
                Refusal::NotUtf8 => code::ILSEQ,
                Refusal::AttributeNameTooLong => code::RANGE,
                Refusal::CrossProject => code::XDEV,
                Refusal::Busy => code::BUSY,
            },
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_refusal_has_the_number_that_its_words_stand_for() {
        let refused = |why| FsError::Refused { path: "it".into(), why };
        for (error, errno, text) in [
            (refused(Refusal::NameTooLong), 36, "File name too long"),
            (refused(Refusal::NotUtf8), 84, "Invalid or incomplete multibyte or wide character"),
            (refused(Refusal::AttributeNameTooLong), 34, "Numerical result out of range"),
            (refused(Refusal::CrossProject), 18, "Invalid cross-device link"),
            (refused(Refusal::Busy), 16, "Device or resource busy"),
            (FsError::NoSpace { name: "it".into() }, 28, "No space left on device"),
            (FsError::QuotaExceeded { name: "it".into() }, 122, "Disk quota exceeded"),
        ] {
            assert_eq!(error.errno(), errno, "{error}");
            assert!(error.to_string().starts_with(&format!("it: {text}")), "{error}");
        }
    }
}
