//! Flags that keep a file from everybody, root too, as chattr(1) sets them under OpenZFS.
//!
//! The one idea: what a change is to whom is asked where it is made, so that each door obeys. No door sets these flags: they are
//! as OpenZFS has left them for as long as the pool is open, and no lock need be held. What an intent log holds was allowed when
//! it was logged, and is done again whatever the flags say by now. FORMAT: section 11.4.

use std::fmt::Display;

use format::znode::{Pflags, Znode};
use rt::sync::atomic::Ordering;

use crate::error::{FsError, Result};
use crate::filesystem::Filesystem;

/// What is to be done to an object.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Change {
    /// Bytes within its end become others, or its end does.
    Contents,
    /// Bytes are written from its end on.
    Append,
    /// Owner, permissions, given times, extended attributes; one more name of it.
    Attributes,
    /// Its times become those of now.
    Touch,
    /// It loses a name.
    Leave,
    /// A directory gets a name.
    Gain,
    /// A directory loses one, or it leads elsewhere.
    Lose,
}

impl Change {
    /// The flags that forbid it.
    fn forbidden_by(self) -> u64 {
        use Pflags as P;
        match self {
            Change::Contents => P::IMMUTABLE | P::READONLY | P::APPENDONLY,
            Change::Append => P::IMMUTABLE | P::READONLY,
            Change::Attributes | Change::Lose => P::IMMUTABLE | P::APPENDONLY,
            Change::Touch | Change::Gain => P::IMMUTABLE,
            Change::Leave => P::IMMUTABLE | P::APPENDONLY | P::NOUNLINK,
        }
    }
}

impl Filesystem {
    /// Refuses a change that flags of the object forbid; `path` is what it is called in the message.
    pub(crate) fn permit(&self, znode: &Znode, change: Change, path: impl Display) -> Result<()> {
        if znode.flags & change.forbidden_by() == 0 || self.shared.replays.load(Ordering::Relaxed) {
            return Ok(());
        }
        Err(FsError::Protected { path: path.to_string() })
    }

    /// The same, of the object with this number.
    pub(crate) fn permit_to(&self, number: u64, change: Change) -> Result<()> {
        let znode = self.znode_of(&self.object(number)?)?;
        self.permit(&znode, change, format_args!("object {number}"))
    }

    /// May an object be opened to be written, if all is written at its end (`appends`) or not?
    ///
    /// # Errors
    /// Its flags forbid it; there is no such object.
    pub fn may_be_written(&self, number: u64, appends: bool) -> Result<()> {
        self.permit_to(number, if appends { Change::Append } else { Change::Contents })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_flag_forbids_what_openzfs_and_linux_refuse_with_it() {
        use Change::*;
        let all = [Contents, Append, Attributes, Touch, Leave, Gain, Lose];
        let forbidden = |flag: u64| -> Vec<Change> {
            all.into_iter().filter(|change| change.forbidden_by() & flag != 0).collect()
        };
        assert_eq!(forbidden(Pflags::IMMUTABLE), all);
        assert_eq!(forbidden(Pflags::APPENDONLY), [Contents, Attributes, Leave, Lose]);
        assert_eq!(forbidden(Pflags::NOUNLINK), [Leave]);
        assert_eq!(forbidden(Pflags::READONLY), [Contents, Append]);
        let others =
            !(Pflags::IMMUTABLE | Pflags::APPENDONLY | Pflags::NOUNLINK | Pflags::READONLY);
        assert_eq!(forbidden(others), []);
    }
}
