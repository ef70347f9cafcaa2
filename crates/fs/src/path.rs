//! Paths to objects. The doors speak in paths, the file system in object numbers.

use crate::error::{FsError, Result, shown};
use crate::filesystem::{DirEntry, Filesystem};

/// Parts of a path: empty ones and "." left out.
pub fn parts(path: &[u8]) -> impl Iterator<Item = &[u8]> {
    path.split(|b| *b == b'/').filter(|p| !p.is_empty() && *p != b".")
}

impl Filesystem {
    /// The object at `path` (from the root, leading slash or not). Links are not followed.
    pub fn resolve(&self, path: &[u8]) -> Result<u64> {
        let mut at = self.root();
        let mut way = vec![at];
        for part in parts(path) {
            if part == b".." {
                way.pop();
                at = way.last().copied().unwrap_or(self.root());
                continue;
            }
            at = self.step(at, part, path)?.object;
            way.push(at);
        }
        Ok(at)
    }

    fn step(&self, dir: u64, name: &[u8], path: &[u8]) -> Result<DirEntry> {
        match self.lookup(dir, name) {
            Ok(Some(entry)) => Ok(entry),
            Ok(None) => Err(FsError::NotFound { path: shown(path) }),
            Err(FsError::Dmu(dmu::DmuError::WrongKind { .. })) => {
                Err(FsError::NotADirectory { path: shown(path) })
            }
            Err(e) => Err(e),
        }
    }

    /// The directory that holds the last part of `path`, and that part.
    pub fn resolve_parent<'p>(&self, path: &'p [u8]) -> Result<(u64, &'p [u8])> {
        let all: Vec<&[u8]> = parts(path).collect();
        let Some((name, dirs)) = all.split_last() else {
            return Err(FsError::Invalid { path: shown(path), reason: "it is the root" });
        };
        let mut at = self.root();
        for part in dirs {
            at = self.step(at, part, path)?.object;
        }
        Ok((at, name))
    }
}
