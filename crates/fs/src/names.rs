//! Names in directories: looking them up, listing them, and which may be made.
//!
//! The one idea: a file system may take names of another case or form for the same name; the entry has
//! the spelling that it was made with, and every change of it goes by that. FORMAT: sections 6.1, 11.7.

use dmu::{Tx, Zap};
use format::ObjectType;
use format::dirent::Dirent;
use format::zap::Cursor;
use format::zap::normal::normalized;
use rt::sync::atomic::Ordering;

use crate::error::{FsError, Refusal, Result, shown};
use crate::filesystem::Filesystem;
use crate::mode;

/// Longest name, in bytes.
pub const NAME_MAX: usize = 255;
/// The way to the snapshots, which mounts have in the root.
pub const CONTROL_NAME: &[u8] = b".zfs";

/// An entry of a directory.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DirEntry {
    /// Its name: any bytes but '/' and NUL, if nobody has tampered with it. See [`DirEntry::is_safe`].
    pub name: Vec<u8>,
    /// Object that it leads to.
    pub object: u64,
    /// Type bits of the mode, as the entry says.
    pub kind: u32,
}

impl DirEntry {
    /// Is that the name of an entry, wherever it is made? A disk can hold any, such as a path that leads elsewhere.
    pub fn is_safe(&self) -> bool {
        let name = &self.name[..];
        !matches!(name, b"" | b"." | b"..") && !name.iter().any(|b| b"/\0".contains(b))
    }
}

impl Filesystem {
    pub(crate) fn directory(&self, number: u64) -> Result<Zap> {
        self.dataset.not_revoked()?;
        match self.objset.object_of(number, ObjectType::DIRECTORY_CONTENTS) {
            Ok(object) => Ok(Zap::of(object)?),
            Err(dmu::DmuError::WrongKind { .. }) => {
                Err(FsError::NotADirectory { path: format!("object {number}") })
            }
            Err(e) => Err(e.into()),
        }
    }

    /// The entry that `name` stands for in directory `dir`, under the name that it has there: in
    /// another case or form, if the file system takes those for the same.
    pub fn lookup(&self, dir: u64, name: &[u8]) -> Result<Option<DirEntry>> {
        let zap = self.directory(dir)?;
        if self.normflags == 0 {
            return Ok(zap.get_u64(name)?.map(|value| entry(name, value)));
        }
        let found = zap.get_normalized(name, self.match_case)?;
        Ok(found.and_then(|found| Some(entry(&found.name, found.value.as_u64()?))))
    }

    /// How often a name has ceased to lead where it did. If it is as before a name was looked up, the name still leads there;
    /// to be asked when what it leads to is held, or was read.
    pub fn names_lost(&self) -> u64 {
        self.shared.names_lost.load(Ordering::Acquire)
    }

    /// A name leads elsewhere by now, or nowhere, and what it led to is locked: nobody holds that before he sees this, and
    /// nothing else has its number.
    pub(crate) fn note_lost_name(&self) {
        self.shared.names_lost.fetch_add(1, Ordering::AcqRel);
    }

    /// All entries of a directory but "." and "..", in the order of their hashes.
    pub fn read_dir(&self, dir: u64) -> Result<Vec<DirEntry>> {
        let entries = self.directory(dir)?.entries()?;
        let found = entries.into_iter().filter_map(|e| {
            let value = e.value.as_u64()?;
            Some(entry(&e.name, value))
        });
        Ok(found.collect())
    }

    /// At most `max` entries of a directory from a place on, each with the place after it. Places are those of
    /// OpenZFS: they hold while others add and remove entries. 0 is before the first one. Fewer than `max`: there are no
    /// more.
    pub fn list_dir(&self, dir: u64, from: u64, max: usize) -> Result<Vec<(DirEntry, u64)>> {
        let zap = self.directory(dir)?;
        let (mut found, mut at) = (Vec::new(), Cursor::from_cookie(from, 0));
        // What leads nowhere takes no place among them.
        while found.len() < max && at != Cursor::END {
            let (entries, next) = zap.list(at, max)?;
            let found_here = entries.iter().filter_map(|e| {
                let value = e.value.as_u64()?;
                Some((entry(&e.name, value), Cursor::after(e).to_cookie(0)))
            });
            let room = max - found.len();
            found.extend(found_here.take(room));
            at = next;
        }
        Ok(found)
    }

    pub(crate) fn check_name(&self, name: &[u8]) -> Result<()> {
        let bad = |reason| Err(FsError::BadName { path: shown(name), reason });
        if name.is_empty() || name == b"." || name == b".." {
            return bad("Invalid argument");
        }
        if name.len() > NAME_MAX {
            return Err(FsError::Refused { path: shown(name), why: Refusal::NameTooLong });
        }
        if name.contains(&b'/') || name.contains(&0) {
            return bad("Invalid argument");
        }
        self.check_form(name)
    }

    /// Refuses a name that is written in a way that no directory of this file system takes, be it a hidden one.
    pub(crate) fn check_form(&self, name: &[u8]) -> Result<()> {
        if self.utf8_only && str::from_utf8(name).is_err() {
            return Err(FsError::Refused { path: shown(name), why: Refusal::NotUtf8 });
        }
        if normalized(name, self.normflags).is_none() {
            let reason = "what this name is the same as is not known here";
            return Err(FsError::BadName { path: shown(name), reason });
        }
        Ok(())
    }

    /// Refuses a name that stands for an entry already, if it is spelled in another way, too; and a directory that was
    /// removed while somebody was in it, where a name would lead nowhere.
    pub(crate) fn must_be_new(&self, dir: u64, name: &[u8]) -> Result<()> {
        self.must_be_there(dir, name)?;
        match self.lookup(dir, name)? {
            Some(_) => Err(FsError::Exists { path: shown(name) }),
            None => Ok(()),
        }
    }

    /// Refuses a directory that was removed: nothing more gets a name in it; and a name that is taken, though no entry has
    /// it: behind the way to the snapshots nobody would find anything.
    pub(crate) fn must_be_there(&self, dir: u64, name: &[u8]) -> Result<()> {
        if dir == self.root() && name == CONTROL_NAME {
            return Err(FsError::Exists { path: shown(name) });
        }
        match self.znode_of(&self.object(dir)?)?.links {
            0 => Err(FsError::NotFound { path: shown(name) }),
            _ => Ok(()),
        }
    }

    /// Adds an entry that is known to be new to a directory.
    pub(crate) fn add_entry(
        &self,
        tx: &Tx<'_>,
        dir: &Zap,
        name: &[u8],
        number: u64,
        kind: u32,
    ) -> Result<()> {
        if !dir.add_u64(tx, name, entry_value(number, kind))? {
            return Err(FsError::Exists { path: shown(name) });
        }
        self.count_entries(tx, dir.object(), 1, i64::from(kind == mode::DIR))
    }

    /// Is `dir` the directory `top` or below it?
    pub(crate) fn is_below(&self, dir: u64, top: u64) -> Result<bool> {
        let mut at = dir;
        // A damaged tree may have a cycle; no real one is this deep.
        for _ in 0..100_000 {
            if at == top {
                return Ok(true);
            }
            if at == self.root() {
                return Ok(false);
            }
            at = self.attrs(at)?.parent;
        }
        Ok(true)
    }

    pub(crate) fn must_find(&self, dir: u64, name: &[u8]) -> Result<DirEntry> {
        self.lookup(dir, name)?.ok_or_else(|| FsError::NotFound { path: shown(name) })
    }
}

/// Value of a directory entry: type in the top four bits, object below.
pub(crate) fn entry_value(object: u64, kind: u32) -> u64 {
    u64::from(kind >> 12) << 60 | object
}

pub(crate) fn entry(name: &[u8], value: u64) -> DirEntry {
    let entry = Dirent::decode(value);
    let kind = entry.kind.map_or(0, |kind| kind.mode_bits() as u32);
    DirEntry { name: name.to_vec(), object: entry.object, kind }
}
