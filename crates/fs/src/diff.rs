//! What differs between a snapshot and what came after it, object by object, as `zfs diff` tells it.
//!
//! The one idea: only objects in blocks of dnodes that were written after the snapshot are looked at, a batch
//! after the other. Their paths are found upwards from the parent that each of them names; every directory is
//! read once per batch for all names that are missing in it. So memory has a bound, and the time does not grow
//! with the product of changes and names.
//!
//! Where an object has several names, the first in the order of hashes counts, and that in the parent that it
//! names last: what OpenZFS tells, this tells.

use std::collections::{BTreeMap, BTreeSet};

use dmu::{DmuError, Slots, Zap};
use format::ObjectType;
use format::dirent::Dirent;
use format::zap::Cursor;
use format::znode::{Pflags, Time, Znode};

use crate::attrs::mode;
use crate::error::{FsError, Result};
use crate::filesystem::Filesystem;
use crate::zpl::{MASTER_NODE, key};

/// Objects that are looked at together.
const BATCH: usize = 8192;
/// Entries of a directory that are held at once.
const ENTRIES: usize = 4096;
/// Bytes of paths of directories that are kept for later batches.
const PATHS_MAX: usize = 8 << 20;
/// Directories in one another, and bytes of a path.
const DEPTH_MAX: usize = 4096;

/// What has become of an object.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Happened {
    /// It is new.
    Added,
    /// It is gone.
    Removed,
    /// It was changed.
    Modified,
    /// It has so many names more.
    Links(i64),
    /// It has this path now.
    Renamed(Vec<u8>),
}

/// A difference.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Difference {
    /// What happened.
    pub what: Happened,
    /// The path, from the root of the file system on: any bytes.
    pub path: Vec<u8>,
    /// File type and permissions.
    pub mode: u32,
    /// When it was changed last.
    pub ctime: Time,
}

/// What is told.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Told {
    /// A difference.
    Difference(Difference),
    /// The path of an object cannot be told; it counts as if it were not there.
    Lost {
        /// The object.
        object: u64,
        /// The data set in which it was looked at.
        dataset: String,
        /// Why.
        why: &'static str,
    },
}

/// Tells what differs between the snapshot `from`, taken in txg `after_txg`, and the later `to`, in the order of
/// object numbers, until `sink` gives false.
///
/// # Errors
/// What cannot be read of what has changed, or of the directories above it.
pub fn diff(
    from: &Filesystem,
    to: &Filesystem,
    after_txg: u64,
    sink: &mut dyn FnMut(Told) -> bool,
) -> Result<()> {
    let (mut from, mut to) = (Side::new(from)?, Side::new(to)?);
    let mut batch: Vec<Item> = Vec::new();
    let mut at = Some(1);
    while let Some(first) = at {
        let part = to.fs.objset.changed(after_txg, first, u64::MAX, BATCH)?;
        at = part.next;
        for slots in part.slots {
            match slots {
                Slots::Used(number) => batch.push(Item { number, gone: false }),
                Slots::Free { first, last } => {
                    let mut at = Some(first);
                    while let Some(first) = at {
                        let had = from.fs.objset.changed(0, first, last, BATCH)?;
                        at = had.next;
                        batch.extend(had.slots.iter().filter_map(|slots| match slots {
                            Slots::Used(number) => Some(Item { number: *number, gone: true }),
                            Slots::Free { .. } => None,
                        }));
                        if batch.len() >= BATCH && !tell(&mut from, &mut to, &mut batch, sink)? {
                            return Ok(());
                        }
                    }
                }
            }
            if batch.len() >= BATCH && !tell(&mut from, &mut to, &mut batch, sink)? {
                return Ok(());
            }
        }
    }
    tell(&mut from, &mut to, &mut batch, sink).map(|_| ())
}

/// An object to look at; `gone`: it is not in the later one.
struct Item {
    number: u64,
    gone: bool,
}

/// Tells the differences of a batch.
fn tell(
    from: &mut Side<'_>,
    to: &mut Side<'_>,
    batch: &mut Vec<Item>,
    sink: &mut dyn FnMut(Told) -> bool,
) -> Result<bool> {
    let was = from.look(batch.iter().map(|item| item.number))?;
    let is = to.look(batch.iter().filter(|item| !item.gone).map(|item| item.number))?;
    for Item { number, gone } in batch.drain(..) {
        if to.hidden == Some(number) {
            continue;
        }
        let (was, is) = (was.get(&number), is.get(&number));
        if let (false, Some(lost)) = (gone, lost(from, number, was).or(lost(to, number, is)))
            && !sink(lost)
        {
            return Ok(false);
        }
        for difference in if gone { removed(was) } else { compare(was, is) } {
            if !sink(Told::Difference(difference)) {
                return Ok(false);
            }
        }
    }
    Ok(true)
}

fn lost(side: &Side<'_>, object: u64, seen: Option<&Seen>) -> Option<Told> {
    match seen?.path {
        Path::Wrong(why) => Some(Told::Lost { object, dataset: side.fs.name(), why }),
        _ => None,
    }
}

/// What is told of an object that is not there any more.
fn removed(was: Option<&Seen>) -> Vec<Difference> {
    match was {
        Some(Seen { znode, path: Path::Found(path) }) => {
            vec![difference(Happened::Removed, path, znode)]
        }
        _ => Vec::new(),
    }
}

fn difference(what: Happened, path: &[u8], znode: &Znode) -> Difference {
    Difference { what, path: path.to_vec(), mode: znode.mode as u32, ctime: znode.ctime }
}

/// What is told of an object that is there, or that shares a block with one that is.
fn compare(was: Option<&Seen>, is: Option<&Seen>) -> Vec<Difference> {
    let links = match (was, is) {
        // Also if there is no path to it.
        (Some(was), Some(is)) if !was.znode.is_dir() && !is.znode.is_dir() => {
            let (before, now) = (was.znode.links, is.znode.links);
            if before == 0 || now == 0 { 0 } else { now.wrapping_sub(before) as i64 }
        }
        _ => 0,
    };
    let one = |what, path: &[u8], seen: &Seen| vec![difference(what, path, &seen.znode)];
    let (was_at, is_at) = (was.and_then(Seen::shown), is.and_then(Seen::shown));
    match (was.zip(was_at), is.zip(is_at)) {
        (None, None) => Vec::new(),
        (None, Some((is, path))) if links != 0 => one(Happened::Links(links), path, is),
        (None, Some((is, path))) => one(Happened::Added, path, is),
        (Some((was, path)), None) if links != 0 => one(Happened::Links(links), path, was),
        (Some((was, path)), None) => one(Happened::Removed, path, was),
        (Some((was, old)), Some((is, new))) => {
            let (a, b) = (&was.znode, &is.znode);
            let same_type = (a.mode ^ b.mode) as u32 & mode::TYPE == 0;
            if a.gen_txg != b.gen_txg || !same_type {
                let mut both = one(Happened::Removed, old, was);
                both.extend(one(Happened::Added, new, is));
                both
            } else if a.ctime == b.ctime {
                Vec::new()
            } else if links != 0 {
                one(Happened::Links(links), if links > 0 { old } else { new }, is)
            } else if old == new {
                one(Happened::Modified, old, is)
            } else {
                one(Happened::Renamed(new.to_vec()), old, is)
            }
        }
    }
}

/// How an object is in one of the two.
struct Seen {
    znode: Znode,
    path: Path,
}

enum Path {
    Found(Vec<u8>),
    /// It has no name any more, and waits to be freed.
    Deleted,
    /// There is none: another name of it was the last that it got, and that one is gone.
    None,
    Wrong(&'static str),
}

impl Seen {
    fn shown(&self) -> Option<&[u8]> {
        match &self.path {
            Path::Found(path) => Some(path),
            Path::Deleted => Some(b"(on_delete_queue)"),
            Path::None | Path::Wrong(_) => None,
        }
    }
}

/// One of the two that are compared.
struct Side<'a> {
    fs: &'a Filesystem,
    queue: Option<Zap>,
    /// The directory of shares of Windows, which nobody sees.
    hidden: Option<u64>,
    /// Paths of directories, and their bytes.
    dirs: BTreeMap<u64, Vec<u8>>,
    dirs_bytes: usize,
}

/// An object on the way up: `None` if there is none, or none of files.
type Nodes = BTreeMap<u64, Option<Znode>>;

impl<'a> Side<'a> {
    fn new(fs: &'a Filesystem) -> Result<Side<'a>> {
        let queue = match fs.delete_queue {
            0 => None,
            number => Some(Zap::open(&fs.objset, number)?),
        };
        let hidden = Zap::open(&fs.objset, MASTER_NODE)?.get_u64(key::SHARES)?;
        Ok(Side { fs, queue, hidden, dirs: BTreeMap::new(), dirs_bytes: 0 })
    }

    fn znode(&self, number: u64) -> Result<Option<Znode>> {
        let object = match self.fs.objset.object(number) {
            Ok(object) => object,
            Err(DmuError::NoObject { .. }) => return Ok(None),
            Err(e) => return Err(e.into()),
        };
        match object.header()?.bonus_kind() {
            ObjectType::SA | ObjectType::ZNODE => Ok(Some(self.fs.znode_of(&object)?)),
            _ => Ok(None),
        }
    }

    /// Looks at these objects: those that are there, with their paths.
    fn look(&mut self, numbers: impl Iterator<Item = u64>) -> Result<BTreeMap<u64, Seen>> {
        if self.dirs_bytes > PATHS_MAX {
            (self.dirs, self.dirs_bytes) = (BTreeMap::new(), 0);
        }
        let mut nodes = Nodes::new();
        let mut wanted = Vec::new();
        let mut deleted = BTreeSet::new();
        for number in numbers {
            let Some(znode) = self.znode(number)? else { continue };
            nodes.insert(number, Some(znode));
            wanted.push(number);
            if let Some(queue) = &self.queue
                && queue.get(format!("{number:x}").as_bytes())?.is_some()
            {
                deleted.insert(number);
            }
        }
        let named = wanted.iter().filter(|number| !deleted.contains(number));
        let names = self.names(&mut nodes, named.copied())?;
        let mut seen = BTreeMap::new();
        for number in wanted {
            let Some(Some(znode)) = nodes.get(&number) else { continue };
            let path = match deleted.contains(&number) {
                true => Path::Deleted,
                false => self.path(&nodes, &names, number),
            };
            seen.insert(number, Seen { znode: *znode, path });
        }
        Ok(seen)
    }

    /// Names of objects in their parents, and of those in theirs, up to what is known; `nodes` gets all that is
    /// on the way.
    fn names(
        &self,
        nodes: &mut Nodes,
        from: impl Iterator<Item = u64>,
    ) -> Result<BTreeMap<u64, Vec<u8>>> {
        let mut missing: BTreeMap<u64, BTreeSet<u64>> = BTreeMap::new();
        let mut todo: Vec<u64> = from.collect();
        while let Some(number) = todo.pop() {
            let Some(Some(znode)) = nodes.get(&number) else { continue };
            let (parent, hidden) = (znode.parent, is_hidden(znode));
            if parent == number || !hidden && !missing.entry(parent).or_default().insert(number) {
                continue;
            }
            if !self.dirs.contains_key(&parent) && !nodes.contains_key(&parent) {
                nodes.insert(parent, self.znode(parent)?);
                todo.push(parent);
            }
        }
        let mut names = BTreeMap::new();
        for (parent, mut children) in missing {
            let is_dir =
                nodes.get(&parent).is_none_or(|node| node.as_ref().is_some_and(Znode::is_dir));
            if is_dir {
                self.find_names(parent, &mut children, &mut names)?;
            }
        }
        Ok(names)
    }

    fn find_names(
        &self,
        parent: u64,
        children: &mut BTreeSet<u64>,
        names: &mut BTreeMap<u64, Vec<u8>>,
    ) -> Result<()> {
        let dir = match self.fs.directory(parent) {
            Ok(dir) => dir,
            // Then nothing in it has a name.
            Err(FsError::NotADirectory { .. } | FsError::Dmu(DmuError::NoObject { .. })) => {
                return Ok(());
            }
            Err(e) => return Err(e),
        };
        let mut at = Cursor::START;
        while at != Cursor::END && !children.is_empty() {
            let (entries, next) = dir.list(at, ENTRIES)?;
            at = next;
            for entry in entries {
                let Some(value) = entry.value.as_u64() else { continue };
                let child = Dirent::decode(value).object;
                if children.remove(&child) {
                    names.insert(child, entry.name);
                }
            }
        }
        Ok(())
    }

    /// The path of an object.
    fn path(&mut self, nodes: &Nodes, names: &BTreeMap<u64, Vec<u8>>, number: u64) -> Path {
        // From the object up to what is known.
        let mut way: Vec<u64> = Vec::new();
        let mut at = number;
        let mut path = loop {
            if let Some(path) = self.dirs.get(&at) {
                break path.clone();
            }
            let Some(Some(znode)) = nodes.get(&at) else { return Path::None };
            if znode.parent == at {
                break Vec::new();
            }
            let parent = nodes.get(&znode.parent);
            if let Some(None) = parent {
                return Path::None;
            }
            if let (Some(Some(parent)), false) = (parent, is_hidden(znode))
                && !parent.is_dir()
            {
                return Path::Wrong("Invalid argument");
            }
            if way.len() >= DEPTH_MAX {
                return Path::Wrong("File name too long");
            }
            way.push(at);
            at = znode.parent;
        };
        for step in way.into_iter().rev() {
            let Some(Some(znode)) = nodes.get(&step) else { return Path::None };
            path.push(b'/');
            match names.get(&step) {
                _ if is_hidden(znode) => path.extend(b"<xattrdir>"),
                Some(name) => path.extend(name),
                None => return Path::None,
            }
            if path.len() > DEPTH_MAX {
                return Path::Wrong("File name too long");
            }
            if znode.is_dir() && self.dirs.insert(step, path.clone()).is_none() {
                self.dirs_bytes += path.len();
            }
        }
        if path.is_empty() {
            path.push(b'/');
        }
        Path::Found(path)
    }
}

/// Is it the directory of somebody's extended attributes?
fn is_hidden(znode: &Znode) -> bool {
    znode.flags & Pflags::XATTR != 0 && znode.is_dir()
}
