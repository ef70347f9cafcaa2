//! Calls that name files by their paths.

use rt::sync::Arc;
use wire::{
    BULK_MAX, Entry, Open, PART_BESIDE_BULK_MAX, Reply, Request, Space, Stat, Subject, Target,
};

use crate::error::{Error, Result};
use crate::lanes::Client;

impl Client {
    /// Puts a file as a whole: makes it, or empties what is there, and writes `bytes`; with `stable` it is on stable
    /// storage then. Of `how`, `new`, `parents` and `digests` count. With up to [`BULK_MAX`] bytes it is one message.
    ///
    /// # Errors
    /// As open(2), write(2) and fsync(2).
    pub fn put(
        self: &Arc<Self>,
        who: &Subject,
        path: &[u8],
        how: Open,
        mode: u32,
        bytes: &[u8],
        stable: bool,
    ) -> Result<()> {
        let how = Open { read: false, write: true, create: true, truncate: true, ..how };
        if bytes.len() > BULK_MAX || !has_room(who, path) {
            return self.open(who, path, how, mode)?.finish(0, bytes, stable);
        }
        let (who, path) = (who.clone(), path.to_vec());
        // What was emptied is not emptied twice: somebody may have written to it since.
        match self.call_for(
            &Request::Put { who, path, how, mode, stable },
            bytes,
            &mut [],
            false,
        )? {
            (_, Reply::Done, _) => Ok(()),
            _ => Err(Error::protocol()),
        }
    }

    /// Reads the beginning of a file, as much as `buf` has room for; how much there was, and the file's attributes,
    /// which say how large it is. With room for up to [`BULK_MAX`] bytes it is one message.
    ///
    /// # Errors
    /// As open(2) and read(2).
    pub fn get(
        self: &Arc<Self>,
        who: &Subject,
        path: &[u8],
        buf: &mut [u8],
    ) -> Result<(usize, Stat)> {
        if buf.len() > BULK_MAX {
            let file = self.open(who, path, Open::READ, 0)?;
            return Ok((file.read(0, buf)?, file.stat()?));
        }
        let (who, path, length) = (who.clone(), path.to_vec(), buf.len() as u32);
        match self.call_for(&Request::Get { who, path, length }, &[], buf, true)? {
            (_, Reply::Got(stat), count) => Ok((count, stat)),
            _ => Err(Error::protocol()),
        }
    }

    /// Attributes of a file; of a symbolic link with `follow` those of what it leads to.
    ///
    /// # Errors
    /// As stat(2); so for all calls here with theirs.
    pub fn stat(&self, who: &Subject, path: &[u8], follow: bool) -> Result<Stat> {
        let request = Request::Stat { who: who.clone(), path: path.to_vec(), follow };
        match self.ask(&request, true)? {
            Reply::Stat(stat) => Ok(stat),
            _ => Err(Error::protocol()),
        }
    }

    /// Some entries of a directory, from a place on (0: the first), and the place of the next.
    ///
    /// # Errors
    /// As readdir(3).
    pub fn list(&self, who: &Subject, path: &[u8], from: u64) -> Result<(Vec<Entry>, Option<u64>)> {
        let request = Request::List { who: who.clone(), path: path.to_vec(), from };
        match self.ask(&request, true)? {
            Reply::Entries(entries, next) => Ok((entries, next)),
            _ => Err(Error::protocol()),
        }
    }

    /// Makes a directory, with `parents` those on the way too.
    ///
    /// # Errors
    /// As mkdir(2).
    pub fn mkdir(&self, who: &Subject, path: &[u8], mode: u32, parents: bool) -> Result<()> {
        let (who, path) = (who.clone(), path.to_vec());
        self.change(&Request::Mkdir { who, path, mode, parents })
    }

    /// Removes a file or symbolic link.
    ///
    /// # Errors
    /// As unlink(2).
    pub fn unlink(&self, who: &Subject, path: &[u8]) -> Result<()> {
        self.change(&Request::Unlink { who: who.clone(), path: path.to_vec() })
    }

    /// Removes an empty directory.
    ///
    /// # Errors
    /// As rmdir(2).
    pub fn rmdir(&self, who: &Subject, path: &[u8]) -> Result<()> {
        self.change(&Request::Rmdir { who: who.clone(), path: path.to_vec() })
    }

    /// Renames; what is there is replaced.
    ///
    /// # Errors
    /// As rename(2).
    pub fn rename(&self, who: &Subject, from: &[u8], to: &[u8]) -> Result<()> {
        let (who, from, to) = (who.clone(), from.to_vec(), to.to_vec());
        self.change(&Request::Rename { who, from, to })
    }

    /// Sets the size of a file.
    ///
    /// # Errors
    /// As truncate(2).
    pub fn truncate(&self, who: &Subject, path: &[u8], size: u64) -> Result<()> {
        self.change(&Request::Truncate { who: who.clone(), of: Target::Path(path.to_vec()), size })
    }

    /// Sets permissions.
    ///
    /// # Errors
    /// As chmod(2).
    pub fn chmod(&self, who: &Subject, path: &[u8], mode: u32) -> Result<()> {
        self.change(&Request::Chmod { who: who.clone(), of: Target::Path(path.to_vec()), mode })
    }

    /// Sets times of access and of change, in seconds and nanoseconds; `None`: stays.
    ///
    /// # Errors
    /// As utimensat(2).
    pub fn set_times(
        &self,
        who: &Subject,
        path: &[u8],
        atime: Option<(i64, u32)>,
        mtime: Option<(i64, u32)>,
    ) -> Result<()> {
        let (who, of) = (who.clone(), Target::Path(path.to_vec()));
        self.change(&Request::SetTimes { who, of, atime, mtime })
    }

    /// The value of an extended attribute, by its full name (`user.x`).
    ///
    /// # Errors
    /// As getxattr(2).
    pub fn xattr(&self, who: &Subject, path: &[u8], name: &[u8]) -> Result<Vec<u8>> {
        let (who, of, name) = (who.clone(), Target::Path(path.to_vec()), name.to_vec());
        match self.ask(&Request::GetXattr { who, of, name }, true)? {
            Reply::Value(value) => Ok(value),
            _ => Err(Error::protocol()),
        }
    }

    /// Sets an extended attribute, or removes it (`None`).
    ///
    /// # Errors
    /// As setxattr(2) and removexattr(2).
    pub fn set_xattr(
        &self,
        who: &Subject,
        path: &[u8],
        name: &[u8],
        value: Option<&[u8]>,
    ) -> Result<()> {
        let (who, of, name) = (who.clone(), Target::Path(path.to_vec()), name.to_vec());
        self.change(&Request::SetXattr { who, of, name, value: value.map(<[u8]>::to_vec) })
    }

    /// Names of the extended attributes.
    ///
    /// # Errors
    /// As listxattr(2).
    pub fn xattrs(&self, who: &Subject, path: &[u8]) -> Result<Vec<Vec<u8>>> {
        let (who, of) = (who.clone(), Target::Path(path.to_vec()));
        match self.ask(&Request::ListXattrs { who, of }, true)? {
            Reply::Names(names) => Ok(names),
            _ => Err(Error::protocol()),
        }
    }

    /// Space of the file system that a path is in.
    ///
    /// # Errors
    /// As statvfs(3).
    pub fn space(&self, path: &[u8]) -> Result<Space> {
        match self.ask(&Request::Space { path: path.to_vec() }, true)? {
            Reply::Space(space) => Ok(space),
            _ => Err(Error::protocol()),
        }
    }

    fn ask(&self, request: &Request, again: bool) -> Result<Reply> {
        Ok(self.call_for(request, &[], &mut [], again)?.1)
    }

    fn change(&self, request: &Request) -> Result<()> {
        match self.ask(request, false)? {
            Reply::Done => Ok(()),
            _ => Err(Error::protocol()),
        }
    }
}

/// May they come with bulk bytes?
fn has_room(who: &Subject, path: &[u8]) -> bool {
    // Five bytes are the most that a number takes.
    const NUMBERS: usize = 64;
    NUMBERS + path.len() + 5 * who.groups.len() <= PART_BESIDE_BULK_MAX
}
