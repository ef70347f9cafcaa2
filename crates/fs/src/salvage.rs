//! What is left of a file system that is damaged.

use dmu::{Object, Zap};
use format::ObjectType;

use crate::error::{FsError, Result};
use crate::filesystem::Filesystem;
use crate::names::{DirEntry, entry};

impl Filesystem {
    /// Bytes of a record of a file.
    ///
    /// # Errors
    /// It is gone.
    pub fn block_size_of(&self, object: &Object) -> Result<u64> {
        Ok(object.block_size()?.into())
    }

    /// Where to read on in a file if reading at byte `at` of it gave `error`: what is lost for sure is passed over.
    pub fn after_lost(&self, object: &Object, at: u64, error: &FsError) -> u64 {
        let record = object.block_size().map_or(1, u64::from);
        let next = match error {
            FsError::Dmu(error) => object.after_lost(at / record, error),
            _ => at / record + 1,
        };
        next.saturating_mul(record)
    }

    /// The entries of a directory that can be read.
    ///
    /// # Errors
    /// There is no such directory, as far as can be seen.
    pub fn read_dir_left(&self, dir: u64) -> Result<Vec<DirEntry>> {
        let object = self.objset.object_of(dir, ObjectType::DIRECTORY_CONTENTS)?;
        let found = Zap::of(object)?.entries_left()?;
        let found = found.into_iter();
        Ok(found.filter_map(|e| Some(entry(&e.name, e.value.as_u64()?))).collect())
    }

    /// The next file, directory or other entry from object number `from` on whose attributes can be read and that
    /// had a name when it was written last. `None`: there is none.
    pub fn next_entry_left(&self, mut from: u64) -> Option<u64> {
        loop {
            let (number, dnode) = self.objset.next_object_left(from)?;
            from = number + 1;
            let kinds = [ObjectType::PLAIN_FILE_CONTENTS, ObjectType::DIRECTORY_CONTENTS];
            if !kinds.contains(&dnode.kind()) {
                continue;
            }
            // Directories of extended attributes, and what is in them, have no name of their own.
            let hidden = format::znode::Pflags::XATTR;
            let named = |attrs: crate::Attrs| attrs.links > 0 && attrs.flags & hidden == 0;
            if self.attrs(number).is_ok_and(named) {
                return Some(number);
            }
        }
    }
}
