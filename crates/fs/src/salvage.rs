//! What is left of a file system that is damaged.

use std::ops::Range;

use dmu::{Left, Object, Zap};
use format::ObjectType;

use crate::error::{FsError, Result};
use crate::filesystem::Filesystem;
use crate::names::{DirEntry, entry};

/// A file or volume of which not all can be read; all in bytes.
#[derive(Clone, Copy)]
pub struct Remains<'a> {
    object: &'a Object,
    /// Its size.
    pub size: u64,
    /// That of its records.
    pub record: u64,
}

impl Remains<'_> {
    /// Of an object with so many bytes.
    ///
    /// # Errors
    /// It is gone.
    pub fn of(object: &Object, size: u64) -> Result<Remains<'_>> {
        Ok(Remains { object, size, record: object.block_size()?.into() })
    }

    /// What comes next from byte `at` on.
    pub fn next(&self, at: u64) -> Left {
        let limit = self.size.div_ceil(self.record);
        let limit = limit.min(self.object.max_block().map_or(0, |last| last.saturating_add(1)));
        match self.object.next_left(at / self.record, limit) {
            Left::Data(block) => Left::Data(block.saturating_mul(self.record).max(at)),
            Left::Lost(blocks) => Left::Lost(self.bytes(blocks, at)),
            Left::Nothing => Left::Nothing,
        }
    }

    /// What is lost for sure if reading at byte `at` gave `error`.
    pub fn lost_by(&self, at: u64, error: &FsError) -> Range<u64> {
        let first = at / self.record;
        let blocks = match error {
            FsError::Dmu(error) => self.object.lost_by(first, error),
            _ => first..first.saturating_add(1),
        };
        self.bytes(blocks, at)
    }

    fn bytes(&self, blocks: Range<u64>, from: u64) -> Range<u64> {
        let [start, end] = [blocks.start, blocks.end].map(|at| at.saturating_mul(self.record));
        start.clamp(from, self.size.max(from))..end.min(self.size)
    }
}

impl Filesystem {
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
