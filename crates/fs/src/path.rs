//! Paths to objects. The doors speak in paths, the file system in object numbers.

use crate::error::{FsError, Result, shown};
use crate::filesystem::Filesystem;
use crate::names::DirEntry;

/// Parts of a path: empty ones and "." left out.
pub fn parts(path: &[u8]) -> impl Iterator<Item = &[u8]> {
    path.split(|b| *b == b'/').filter(|p| !p.is_empty() && *p != b".")
}

impl Filesystem {
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
