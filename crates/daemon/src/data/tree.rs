//! Paths of a tree: a file system, and those below it as directories of it.
//!
//! The one idea: a path is walked name by name from the tree's root, and nothing that is met on the way leads out:
//! no `..` in what was asked, and no link to what is not below the root.

use std::time::Duration;

use fs::{DirEntry, Filesystem, FsError, Object, Znode, code, mode};
use rt::sync::Arc;
use verbs::{Held, System};
use wire::{Failure, Subject};

use super::access::{self, THROUGH};

/// Links that are followed on one way, at most.
const LINKS_MAX: usize = 40;
/// The longest path, in bytes.
const PATH_MAX: usize = 4096;

/// How often names are looked up that others change at the same time.
const ATTEMPTS: usize = 100;

/// What comes of a request, or why nothing.
pub(super) type Result<T> = std::result::Result<T, Failure>;

/// A failure with a number of errno(3).
pub(super) fn fail<T>(errno: i32, text: impl Into<String>) -> Result<T> {
    Err(Failure { errno, text: text.into() })
}

/// Does something by names. If others remove or rename meanwhile what the names lead to, the names are looked up again and it
/// is tried anew.
pub(super) fn again<T>(mut attempt: impl FnMut() -> Result<T>) -> Result<T> {
    for _ in 1..ATTEMPTS {
        match attempt() {
            Err(failure) if failure.errno == code::STALE => {}
            done => return done,
        }
    }
    attempt()
}

/// The engine's error as a client is told of it.
pub(super) fn told(error: FsError) -> Failure {
    Failure { errno: error.errno(), text: error.to_string() }
}

/// A path as people read it.
pub(super) fn shown(path: &[u8]) -> String {
    String::from_utf8_lossy(path).into_owned()
}

/// An object of some file system of the tree.
#[derive(Clone)]
pub(super) struct Place {
    pub(super) fs: Arc<Filesystem>,
    pub(super) object: u64,
}

impl Place {
    /// It, and its attributes of fixed size.
    pub(super) fn open(&self) -> Result<(Arc<Object>, Znode)> {
        let object = self.fs.object(self.object).map_err(told)?;
        let znode = self.fs.znode_of(&object).map_err(told)?;
        Ok((object, znode))
    }

    /// These alone.
    pub(super) fn znode(&self) -> Result<Znode> {
        self.fs.znode(self.object).map_err(told)
    }

    /// The guid of its pool.
    pub(super) fn pool(&self) -> u64 {
        self.fs.pool().guid()
    }

    /// Are both the same object? File systems are opened anew now and then.
    fn is(&self, other: &Place) -> bool {
        let key = |place: &Place| (place.pool(), place.fs.dataset().object, place.object);
        key(self) == key(other)
    }
}

/// What a path leads to.
pub(super) struct Found {
    pub(super) place: Place,
    /// Where it was found. Nobody finds the root of a tree anywhere.
    entry: Option<Entry>,
}

/// An entry of a directory that was looked up.
struct Entry {
    dir: Place,
    name: Vec<u8>,
    /// How many names had been lost before, in its file system.
    lost: u64,
}

/// A directory, its attributes, and a name in it.
pub(super) type Parent<'p> = (Place, Znode, &'p [u8]);

/// How far a path leads.
pub(super) enum Reached {
    There(Found),
    /// To a directory that whoever asked may go through, which has nothing of this name: the last one of the path, or of
    /// where a link at its end leads.
    Short(Place, Box<Znode>, Vec<u8>),
}

/// A tree of some pool that the server holds.
pub(super) struct Tree {
    held: Arc<Held>,
    root: String,
}

impl Tree {
    pub(super) fn new(held: Arc<Held>, root: &str) -> Result<Tree> {
        let tree = Tree { held, root: root.to_string() };
        drop(tree.system(root)?);
        Ok(tree)
    }

    fn system(&self, name: &str) -> Result<Arc<System>> {
        match self.held.system(name) {
            Some(system) => system.map_err(told),
            // Not that there is no such file: it may be back soon, with all that is in it.
            None => fail(code::NXIO, format!("'{name}': the server has no such pool")),
        }
    }

    /// Are the pools about to be closed?
    pub(super) fn is_ending(&self) -> bool {
        self.held.is_ending()
    }

    /// How long nothing of the pool of a file can have been lost.
    pub(super) fn held_for(&self, of: &Place) -> Duration {
        self.held.held_for(of.fs.pool().name())
    }

    /// Since when, in milliseconds since 1970.
    pub(super) fn kept_since(&self, of: &Place) -> u64 {
        self.held.kept_since(of.fs.pool().name())
    }

    /// Are digests of a file made while it is written?
    pub(super) fn makes_digests(&self, of: &Place) -> Result<bool> {
        Ok(self.system(&of.fs.name())?.makes_digests)
    }

    /// The file system that a directory stands for, if it is the root of one and has one of that name below it.
    fn below(&self, at: &Place, name: &[u8]) -> Result<Option<Place>> {
        let Some(name) = std::str::from_utf8(name).ok().filter(|_| at.object == at.fs.root())
        else {
            return Ok(None);
        };
        let outer = at.fs.name();
        if !self.system(&outer)?.below.contains(name) {
            return Ok(None);
        }
        match self.held.system(&format!("{outer}/{name}")) {
            Some(Ok(inner)) => Ok(Some(Place { object: inner.fs.root(), fs: inner.fs.clone() })),
            // A volume is no directory.
            Some(Err(FsError::NotAFilesystem { .. })) | None => Ok(None),
            // It has just been destroyed.
            Some(Err(error)) if error.errno() == code::NOENT => Ok(None),
            Some(Err(error)) => Err(told(error)),
        }
    }

    /// The file systems right below the one that `dir` is the root of, by name; `None`: it is damaged, and nobody can enter.
    pub(super) fn file_systems_in(&self, dir: &Place) -> Result<Vec<(Vec<u8>, Option<Place>)>> {
        if dir.object != dir.fs.root() {
            return Ok(Vec::new());
        }
        let mut out = Vec::new();
        for name in &self.system(&dir.fs.name())?.below {
            let place = match self.below(dir, name.as_bytes()) {
                Ok(None) => continue,
                Err(failure) if failure.errno == code::IO => None,
                found => found?,
            };
            out.push((name.clone().into_bytes(), place));
        }
        Ok(out)
    }

    /// What an entry of a directory leads to: a file system below it, or an object in it.
    pub(super) fn enter(&self, dir: &Place, name: &[u8]) -> Result<Option<Place>> {
        Ok(self.step(dir, name)?.map(|(place, _)| place))
    }

    /// The same, and its type bits of the mode, as far as the entry tells.
    fn step(&self, dir: &Place, name: &[u8]) -> Result<Option<(Place, u32)>> {
        if name.len() > fs::NAME_MAX {
            return fail(code::NAMETOOLONG, format!("{}: File name too long", shown(name)));
        }
        if let Some(place) = self.below(dir, name)? {
            return Ok(Some((place, mode::DIR)));
        }
        let found: Option<DirEntry> = dir.fs.lookup(dir.object, name).map_err(told)?;
        let place = |object| Place { fs: dir.fs.clone(), object };
        Ok(found.map(|entry| (place(entry.object), entry.kind)))
    }

    /// Does the name of what was found still lead to it? To be asked when it is held: it may have been removed before, and
    /// its number given to something else. Else a failure that is [`again`]'s.
    pub(super) fn confirm(&self, found: &Found) -> Result<()> {
        let Some(Entry { dir, name, lost }) = &found.entry else { return Ok(()) };
        if dir.fs.names_lost() == *lost {
            return Ok(());
        }
        match self.enter(dir, name) {
            Ok(Some(now)) if now.is(&found.place) => Ok(()),
            // The directory may be something else by now, too.
            Err(failure) if failure.errno != code::NOTDIR => Err(failure),
            _ => fail(code::STALE, "its name leads elsewhere by now"),
        }
    }

    /// What a path leads to; with `follow` a link at its end is followed, too.
    pub(super) fn find(&self, who: &Subject, path: &[u8], follow: bool) -> Result<Found> {
        match self.reach(who, path, follow)? {
            Reached::There(found) => Ok(found),
            Reached::Short(..) => missing(path),
        }
    }

    /// The same, or where it would be: it may be that nothing but its last name is missing.
    pub(super) fn reach(&self, who: &Subject, path: &[u8], follow: bool) -> Result<Reached> {
        let root = self.system(&self.root)?.fs.clone();
        let root = Place { object: root.root(), fs: root };
        // Each in the one before it, by this name, which was looked up when so many had been lost.
        let mut way = vec![(root, Vec::new(), 0)];
        let mut rest: Vec<Vec<u8>> = names(path)?.map(<[u8]>::to_vec).collect();
        rest.reverse();
        let mut links = 0;
        while let Some(name) = rest.pop() {
            let Some((at, ..)) = way.last() else { break };
            if name == b".." {
                // Only a link can say so.
                way.pop();
                if way.is_empty() {
                    return fail(
                        code::ACCES,
                        format!("{}: a link leads out of the tree", shown(path)),
                    );
                }
                continue;
            }
            let dir = at.znode()?;
            if !dir.is_dir() {
                return fail(code::NOTDIR, format!("{}: Not a directory", shown(path)));
            }
            if !access::may(who, &dir, THROUGH) {
                return denied(path);
            }
            let lost = at.fs.names_lost();
            let Some((place, kind)) = self.step(at, &name)? else {
                return match rest.is_empty() {
                    true => Ok(Reached::Short(at.clone(), dir.into(), name)),
                    false => missing(path),
                };
            };
            // An entry that lies about what is no link leads to it, and no further.
            if [mode::FILE, mode::DIR].contains(&kind) || rest.is_empty() && !follow {
                way.push((place, name, lost));
                continue;
            }
            let found = place.fs.attrs(place.object).map_err(told)?;
            if found.kind() != mode::SYMLINK {
                way.push((place, name, lost));
                continue;
            }
            links += 1;
            let target = found.target.unwrap_or_default();
            if links > LINKS_MAX {
                return fail(
                    code::LOOP,
                    format!("{}: Too many levels of symbolic links", shown(path)),
                );
            }
            if target.first() == Some(&b'/') {
                return fail(code::ACCES, format!("{}: a link leads out of the tree", shown(path)));
            }
            rest.extend(
                fs::parts(&target).map(<[u8]>::to_vec).collect::<Vec<_>>().into_iter().rev(),
            );
        }
        let Some((place, name, lost)) = way.pop() else { return fail(code::ACCES, shown(path)) };
        let entry = way.pop().map(|(dir, ..)| Entry { dir, name, lost });
        Ok(Reached::There(Found { place, entry }))
    }

    /// The directory that a path's last name is in, with its attributes, and that name.
    pub(super) fn parent<'p>(&self, who: &Subject, path: &'p [u8]) -> Result<Parent<'p>> {
        drop(names(path)?);
        let Some((before, name)) = split(path) else {
            return fail(code::INVAL, format!("{}: it is the root of the tree", shown(path)));
        };
        let place = self.find(who, before, true)?.place;
        let znode = place.znode()?;
        if !znode.is_dir() {
            return fail(code::NOTDIR, format!("{}: Not a directory", shown(path)));
        }
        if !access::may(who, &znode, THROUGH) {
            return denied(path);
        }
        Ok((place, znode, name))
    }
}

/// What is before the last name of a path, and that name. `a/.` is `a`, as for all who ask for its parts.
fn split(path: &[u8]) -> Option<(&[u8], &[u8])> {
    let mut before = path;
    while !before.is_empty() {
        let at = before.iter().rposition(|byte| *byte == b'/').map_or(0, |at| at + 1);
        let name = &before[at..];
        before = &before[..at.saturating_sub(1)];
        if !name.is_empty() && name != b"." {
            return Some((before, name));
        }
    }
    None
}

/// There is none.
pub(super) fn missing<T>(path: &[u8]) -> Result<T> {
    fail(code::NOENT, format!("{}: No such file or directory", shown(path)))
}

/// He may not.
pub(super) fn denied<T>(path: &[u8]) -> Result<T> {
    fail(code::ACCES, format!("{}: Permission denied", shown(path)))
}

/// The names of a path, if it can be one.
fn names(path: &[u8]) -> Result<impl Iterator<Item = &[u8]>> {
    if path.len() > PATH_MAX {
        return fail(code::NAMETOOLONG, "File name too long");
    }
    if path.contains(&0) || fs::parts(path).any(|name| name == b"..") {
        return fail(code::INVAL, format!("{}: not a path of a tree", shown(path)));
    }
    Ok(fs::parts(path))
}

#[cfg(test)]
pub(super) mod tests;
