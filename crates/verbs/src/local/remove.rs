//! `rm`: files, and directories with all that is in them.
//!
//! The one idea: the way down is on the heap, with a few of the entries of each directory on it; so neither many levels
//! nor large directories cost more than they have to.

use std::collections::BTreeSet;
use std::vec::IntoIter;

use fs::{DirEntry, Filesystem, FsError, mode};

use super::Here;
use super::files::{fs_error, join, met_before, on_each, shown};
use crate::files::{Place, Remove};
use crate::{Error, Result};

/// Entries of a directory that are read at a time.
const ENTRIES: usize = 256;

pub(super) fn remove(here: &Here, request: &Remove) -> Result<Vec<Error>> {
    let take = |fs: &Filesystem, place: &Place| {
        let told = |name: &str, e| match e {
            FsError::NotFound { .. } if request.force => Ok(()),
            e => Err(fs_error("remove", name, e)),
        };
        let (dir, name) = match fs.resolve_parent(&place.path) {
            Ok(found) => found,
            Err(e) => return told(&shown(place), e),
        };
        if !request.recursive {
            return fs.unlink(dir, name).or_else(|e| told(&shown(place), e));
        }
        let mut removal = Removal { fs, way: Vec::new(), on_way: BTreeSet::new() };
        removal.run(dir, name).or_else(|(below, e)| {
            let path = below.iter().fold(place.text(), |path, name| join(&path, name));
            told(&String::from_utf8_lossy(&path), e)
        })
    };
    on_each(here, &request.places, &request.dirs, take)
}

/// A directory that goes when nothing is in it any more.
struct Doomed {
    /// The directory that it is in, and its name there.
    dir: u64,
    name: Vec<u8>,
    number: u64,
    /// The next entries, and the place after them.
    entries: IntoIter<(DirEntry, u64)>,
    next: u64,
}

impl Doomed {
    fn new(dir: u64, entry: DirEntry) -> Doomed {
        let (entries, next) = (Vec::new().into_iter(), 0);
        Doomed { dir, name: entry.name, number: entry.object, entries, next }
    }

    fn next_entry(&mut self, fs: &Filesystem) -> std::result::Result<Option<DirEntry>, FsError> {
        if self.entries.len() == 0 {
            let entries = fs.list_dir(self.number, self.next, ENTRIES)?;
            self.next = entries.last().map_or(self.next, |(_, after)| *after);
            self.entries = entries.into_iter();
        }
        Ok(self.entries.next().map(|(entry, _)| entry))
    }
}

struct Removal<'a> {
    fs: &'a Filesystem,
    way: Vec<Doomed>,
    /// The directories on the way.
    on_way: BTreeSet<u64>,
}

impl Removal<'_> {
    /// Removes what stands below an entry of a directory, and then it. What cannot be removed ends it, and is told with
    /// the names that lead to it from there.
    fn run(&mut self, dir: u64, name: &[u8]) -> std::result::Result<(), (Vec<Vec<u8>>, FsError)> {
        let found = self.fs.lookup(dir, name).and_then(|found| {
            let found = found.ok_or_else(|| FsError::NotFound { path: String::new() })?;
            self.take(dir, found)
        });
        found.map_err(|e| (Vec::new(), e))?;
        while let Some(last) = self.way.last_mut() {
            let (number, entry) = (last.number, last.next_entry(self.fs));
            if let Some(entry) = entry.map_err(|e| (self.names(), e))? {
                let name = entry.name.clone();
                let taken = self.take(number, entry);
                taken.map_err(|e| ([self.names(), vec![name]].concat(), e))?;
            } else if let Some(last) = self.way.last() {
                let gone = self.fs.rmdir(last.dir, &last.name);
                gone.map_err(|e| (self.names(), e))?;
                self.on_way.remove(&number);
                self.way.pop();
            }
        }
        Ok(())
    }

    /// The names of the directories on the way, from the first one on.
    fn names(&self) -> Vec<Vec<u8>> {
        self.way.iter().skip(1).map(|doomed| doomed.name.clone()).collect()
    }

    /// Removes what is no directory; one is next on the way.
    fn take(&mut self, dir: u64, entry: DirEntry) -> std::result::Result<(), FsError> {
        if entry.kind != mode::DIR {
            return self.fs.unlink(dir, &entry.name);
        }
        if !self.on_way.insert(entry.object) {
            return Err(met_before());
        }
        self.way.push(Doomed::new(dir, entry));
        Ok(())
    }
}
