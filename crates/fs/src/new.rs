//! What is to be made: an object, its contents, and what it was if it was there before.
//!
//! The one idea: contents are cut into records before anything is locked.

use format::znode::Time;
use rt::buf::PooledBuf;

use crate::error::Result;
use crate::filesystem::Filesystem;

/// Who does something: owner of what is made.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Who {
    /// User.
    pub uid: u64,
    /// Group.
    pub gid: u64,
}

/// What an object was that is made once more.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Given {
    /// Its number, which must be free.
    pub(crate) number: u64,
    /// Slots of its dnode.
    pub(crate) slots: u8,
    /// The txg in which it was made.
    pub(crate) gen_txg: u64,
    /// When it was made.
    pub(crate) time: Time,
}

/// What a new file holds, cut into records.
pub(crate) struct Contents {
    /// Bytes.
    pub(crate) size: u64,
    /// Bytes of a block.
    pub(crate) block_size: u32,
    pub(crate) records: Vec<PooledBuf>,
}

/// What is to be made.
#[derive(Clone, Copy, Debug)]
pub struct NewObject<'a> {
    /// Type and permissions.
    pub mode: u32,
    /// Owner.
    pub who: Who,
    /// Target of a symbolic link.
    pub target: Option<&'a [u8]>,
    /// Device number of a device node.
    pub rdev: u64,
    /// More bits for the flags.
    pub flags: u64,
    /// Extended attributes that it has from the beginning.
    pub xattrs: &'a [(&'a [u8], &'a [u8])],
}

impl NewObject<'_> {
    /// A file, directory, fifo or socket.
    pub fn of(mode: u32, who: Who) -> NewObject<'static> {
        NewObject { mode, who, target: None, rdev: 0, flags: 0, xattrs: &[] }
    }
}

impl Filesystem {
    /// Makes an object called `name` in directory `dir`; `mode` says what it is.
    ///
    /// `target` of a symbolic link, `rdev` of a device node.
    pub fn create(&self, dir: u64, name: &[u8], new: &NewObject<'_>) -> Result<u64> {
        self.create_filled(dir, name, new, &[], false)
    }

    /// As [`Filesystem::create`]; it is open then, as by [`Filesystem::hold`], before anybody can take it away.
    pub fn create_held(&self, dir: u64, name: &[u8], new: &NewObject<'_>) -> Result<u64> {
        self.create_filled(dir, name, new, &[], true)
    }
}
