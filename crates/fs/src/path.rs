//! Paths to objects. The doors speak in paths, the file system in object numbers.

use std::collections::{BTreeMap, BTreeSet};

use format::dirent::{Dirent, FileType};
use format::zap::{Cursor, Entry};
use format::znode::Pflags;

use crate::error::{FsError, Result, shown};
use crate::filesystem::Filesystem;
use crate::mode;
use crate::names::DirEntry;

/// Entries that are looked at at once.
const ENTRIES: usize = 1024;

/// Parts of a path: empty ones and "." left out.
pub fn parts(path: &[u8]) -> impl Iterator<Item = &[u8]> {
    path.split(|b| *b == b'/').filter(|p| !p.is_empty() && *p != b".")
}

/// How far parents are followed: a path has 1,024 bytes.
const DEPTH_MAX: usize = 512;

impl Filesystem {
    /// The path of an object, by the parents that it and its directories name, as OpenZFS tells it; `None`: it has
    /// none, or it cannot be told.
    pub fn path_of(&self, number: u64) -> Option<Vec<u8>> {
        let mut parts: Vec<Vec<u8>> = Vec::new();
        let mut at = number;
        for _ in 0..DEPTH_MAX {
            let znode = self.znode_of(&self.object(at).ok()?).ok()?;
            if znode.parent == at {
                let mut path = Vec::new();
                for part in parts.iter().rev() {
                    path.push(b'/');
                    path.extend(part);
                }
                return Some(if path.is_empty() { vec![b'/'] } else { path });
            }
            let is_dir = znode.mode as u32 & mode::TYPE == mode::DIR;
            let hidden = znode.flags & Pflags::XATTR != 0 && is_dir;
            parts.push(match hidden {
                true => b"<xattrdir>".to_vec(),
                false => self.name_in(znode.parent, at)?,
            });
            at = znode.parent;
        }
        None
    }

    /// All paths of these objects, of those that have any. Where one has several names, all directories are read.
    pub fn paths_of(&self, wanted: &BTreeSet<u64>) -> BTreeMap<u64, BTreeSet<Vec<u8>>> {
        let mut paths: BTreeMap<u64, BTreeSet<Vec<u8>>> = BTreeMap::new();
        let mut several = BTreeSet::new();
        for number in wanted {
            if let Some(path) = self.path_of(*number) {
                paths.insert(*number, BTreeSet::from([path]));
            }
            let znode = self.object(*number).ok().and_then(|object| self.znode_of(&object).ok());
            let is_file = |mode: u64| mode as u32 & mode::TYPE != mode::DIR;
            if znode.is_some_and(|znode| is_file(znode.mode) && znode.links > 1) {
                several.insert(*number);
            }
        }
        if !several.is_empty() {
            self.find_names(&several, &mut paths);
        }
        paths
    }

    /// Adds the names that these objects have in any directory.
    fn find_names(&self, wanted: &BTreeSet<u64>, paths: &mut BTreeMap<u64, BTreeSet<Vec<u8>>>) {
        let mut seen = BTreeSet::from([self.root()]);
        let mut left = vec![(self.root(), Vec::new())];
        while let Some((dir, path)) = left.pop() {
            // What cannot be read of a damaged file system has names that cannot be told.
            let Ok(zap) = self.directory(dir) else { continue };
            let mut cursor = Cursor::START;
            while cursor != Cursor::END {
                let Ok((entries, next)) = zap.list(cursor, ENTRIES) else { break };
                cursor = next;
                for entry in entries {
                    let Some(value) = entry.value.as_u64() else { continue };
                    let Dirent { object, kind } = Dirent::decode(value);
                    let is_dir = kind == Some(FileType::Directory);
                    let below = || [&path[..], b"/", &entry.name].concat();
                    if wanted.contains(&object) {
                        paths.entry(object).or_default().insert(below());
                    } else if is_dir && seen.insert(object) {
                        left.push((object, below()));
                    }
                }
            }
        }
    }

    /// A name of an object in a directory.
    fn name_in(&self, dir: u64, object: u64) -> Option<Vec<u8>> {
        let zap = self.directory(dir).ok()?;
        let mut cursor = Cursor::START;
        while cursor != Cursor::END {
            let (entries, next) = zap.list(cursor, ENTRIES).ok()?;
            cursor = next;
            let is_it = |entry: &Entry| {
                entry.value.as_u64().is_some_and(|value| Dirent::decode(value).object == object)
            };
            if let Some(entry) = entries.into_iter().find(is_it) {
                return Some(entry.name);
            }
        }
        None
    }

    /// The object at `path` (from the root, leading slash or not). Links are not followed.
    pub fn resolve(&self, path: &[u8]) -> Result<u64> {
        self.walk(parts(path), path)
    }

    /// The object that `parts` lead to, which are those of `path` or its first ones.
    fn walk<'p>(&self, parts: impl Iterator<Item = &'p [u8]>, path: &[u8]) -> Result<u64> {
        let mut way = vec![self.root()];
        for part in parts {
            let at = way.last().copied().unwrap_or(self.root());
            if part == b".." {
                // above the root is the root
                way.pop();
                continue;
            }
            way.push(self.step(at, part, path)?.object);
        }
        Ok(way.last().copied().unwrap_or(self.root()))
    }

    fn step(&self, dir: u64, name: &[u8], path: &[u8]) -> Result<DirEntry> {
        match self.lookup(dir, name) {
            Ok(Some(entry)) => Ok(entry),
            Ok(None) => Err(FsError::NotFound { path: shown(path) }),
            Err(FsError::NotADirectory { .. }) => Err(FsError::NotADirectory { path: shown(path) }),
            Err(e) => Err(e),
        }
    }

    /// The directory that holds the last part of `path`, and that part.
    pub fn resolve_parent<'p>(&self, path: &'p [u8]) -> Result<(u64, &'p [u8])> {
        let all: Vec<&[u8]> = parts(path).collect();
        let Some((name, dirs)) = all.split_last() else {
            return Err(FsError::Invalid { path: shown(path), reason: "it is the root" });
        };
        Ok((self.walk(dirs.iter().copied(), path)?, name))
    }
}
