//! From object numbers to paths, through the directories.
//!
//! An object knows its parent, and the parent knows the name. Damaged objects are gathered by
//! parent, so that each directory is read once. Objects whose dnodes are lost do not know anything:
//! for them all directories are searched.

use crate::block::Blocks;
use crate::object::{self, Result, Unread};
use format::dirent::Dirent;
use format::master_node::{MASTER_NODE_OBJECT, ROOT, SA_ATTRS};
use format::sa::{Attr, Layouts, Registry, SA_LAYOUTS, SA_REGISTRY, SaView};
use format::zap::Entry;
use format::{DnodePhys, ObjectType, ObjsetPhys};
use std::collections::BTreeMap;

/// Directories above a file that are followed.
const DEPTH_MAX: usize = 4096;
/// Longest path that is put together, in bytes.
const PATH_MAX: usize = 1 << 16;
/// Bytes of paths that are found; further objects keep their numbers.
const PATHS_MAX: usize = 16 << 20;
/// Bytes of paths of directories that are kept.
const KEPT_MAX: usize = 8 << 20;
/// Directories that are searched for objects whose dnodes are lost.
const DIRS_MAX: usize = 1 << 20;
/// Entries of the master node, attributes and layouts that are believed; a layout's number has ten bits.
const ENTRIES_MAX: usize = 1 << 10;

/// A file system whose names are asked for.
pub(crate) struct Names<'w, 'a> {
    blocks: &'w mut Blocks<'a>,
    objset: &'w ObjsetPhys,
    /// Its root directory.
    pub root: u64,
    /// What its attributes are.
    pub registry: Registry,
    /// In which orders objects have them.
    pub layouts: Layouts,
    /// An attribute that the registry lacks.
    pub unnamed: Option<Attr>,
    master: BTreeMap<Vec<u8>, Option<u64>>,
    /// Paths of directories, without a slash at the end; the root's is empty.
    dirs: BTreeMap<u64, String>,
    /// Bytes of them.
    kept: usize,
}

impl<'w, 'a> Names<'w, 'a> {
    /// Reads what the file system says about itself.
    pub(crate) fn open(
        blocks: &'w mut Blocks<'a>,
        objset: &'w ObjsetPhys,
    ) -> Result<Names<'w, 'a>> {
        let mut master = BTreeMap::new();
        let dnode = object::expect(blocks, objset, MASTER_NODE_OBJECT)?;
        for entry in few(blocks, &dnode)? {
            master.insert(entry.name, entry.value.as_u64());
        }
        let get = |name: &str| master.get(name.as_bytes()).copied().flatten();
        let root = get(ROOT).ok_or_else(|| Unread("no root directory".into()))?;
        let mut unnamed = None;
        let (mut registry, mut layouts) = (Registry::standard(), Layouts::default());
        if let Some(sa) = get(SA_ATTRS) {
            let sa = object::expect(blocks, objset, sa)?;
            let mut zap = |name: &str| -> Result<Vec<Entry>> {
                let Some(value) = object::zap_get(blocks, &sa, name.as_bytes())? else {
                    return Ok(Vec::new());
                };
                let dnode = object::expect(blocks, objset, value.as_u64().unwrap_or(0))?;
                few(blocks, &dnode)
            };
            let entries = zap(SA_REGISTRY)?;
            let words = entries.iter().map(|e| (&e.name[..], e.value.as_u64().unwrap_or(0)));
            registry = Registry::from_entries(words)?;
            // Projects came later; of a file system without attributes there is none at all.
            let named = |attr: &Attr| entries.iter().any(|e| e.name == attr.name().as_bytes());
            let due = Attr::ALL.iter().filter(|attr| **attr != Attr::Projid);
            unnamed = due.copied().find(|attr| !entries.is_empty() && !named(attr));
            let entries = zap(SA_LAYOUTS)?;
            layouts = {
                let orders = entries.iter().map(|e| {
                    let order = e.value.ints().into_iter().map(|number| number as u16);
                    (&e.name[..], order.collect::<Vec<u16>>())
                });
                Layouts::from_entries(orders)?
            };
        }
        let dirs = BTreeMap::from([(root, String::new())]);
        Ok(Names { blocks, objset, root, registry, layouts, unnamed, master, dirs, kept: 0 })
    }

    /// The object that the master node has under a name.
    pub(crate) fn master(&self, name: &str) -> Option<u64> {
        self.master.get(name.as_bytes()).copied().flatten().filter(|object| *object != 0)
    }

    /// Paths of objects, as far as they can be found, by number. `nameless` says which objects to
    /// look for in all directories, because their dnodes are lost: ranges of numbers.
    pub(crate) fn paths(
        &mut self,
        objects: &[u64],
        nameless: &[std::ops::Range<u64>],
    ) -> Vec<(u64, String)> {
        let mut by_parent: BTreeMap<u64, Vec<u64>> = BTreeMap::new();
        let (mut out, mut bytes) = (Vec::new(), 0);
        for number in objects {
            if *number == self.root {
                out.push((*number, "/".to_owned()));
            } else if let Ok(parent) = self.parent(*number) {
                by_parent.entry(parent).or_default().push(*number);
            }
        }
        for (parent, mut children) in by_parent {
            children.sort_unstable();
            let Ok(dir) = self.dir(parent) else { continue };
            let found = self.entries(parent, |number| children.binary_search(&number).is_ok());
            for (number, name) in found {
                push(&mut out, &mut bytes, number, join(&dir, &name));
            }
        }
        if !nameless.is_empty() {
            let mut dirs = Vec::new();
            let meta = self.objset.meta.clone();
            object::each_dnode(self.blocks, &meta, &mut |_, number, dnode| {
                if dnode.kind() == ObjectType::DIRECTORY_CONTENTS && dirs.len() < DIRS_MAX {
                    dirs.push(number);
                }
            });
            for number in dirs {
                let wanted = |n: u64| nameless.iter().any(|range| range.contains(&n));
                for (child, name) in self.entries(number, wanted) {
                    let dir = self.dir(number).unwrap_or_else(|_| format!("<directory {number}>"));
                    push(&mut out, &mut bytes, child, join(&dir, &name));
                }
            }
        }
        out.sort();
        out.dedup_by_key(|(number, _)| *number);
        out
    }

    /// The directory that an object says it is in.
    fn parent(&mut self, number: u64) -> Result<u64> {
        let dnode = object::expect(self.blocks, self.objset, number)?;
        let spill = match dnode.spill() {
            Some(bp) if !bp.is_hole() => Some(self.blocks.read(bp)?),
            _ => None,
        };
        let spill = spill.as_ref().map(|bytes| &bytes[..]);
        let len = usize::from(dnode.core().bonus_len.get());
        let bonus = dnode.bonus().get(..len).unwrap_or_default();
        let view = SaView::new(&self.registry, &self.layouts, dnode.bonus_kind(), bonus, spill)?;
        view.get_u64(Attr::Parent)?.ok_or_else(|| Unread("no parent".into()))
    }

    /// Path of a directory.
    fn dir(&mut self, number: u64) -> Result<String> {
        let mut up = Vec::new();
        let mut at = number;
        while !self.dirs.contains_key(&at) {
            let parent = self.parent(at)?;
            if up.len() > DEPTH_MAX || parent == at {
                return Err(Unread("a directory that is not below the root".into()));
            }
            up.push((at, parent));
            at = parent;
        }
        for (number, parent) in up.into_iter().rev() {
            let found = self.entries(parent, |n| n == number);
            let name = found.into_iter().next().map(|(_, name)| name);
            // The hidden directory of extended attributes has no name.
            let name = name.unwrap_or_else(|| format!("<object {number}>"));
            let path = join(self.dirs.get(&parent).map_or("", String::as_str), &name);
            if path.len() > PATH_MAX {
                return Err(Unread("a path that is too long".into()));
            }
            self.kept += path.len();
            if self.kept > KEPT_MAX {
                self.dirs.retain(|number, _| *number == self.root || *number == parent);
                self.kept = path.len();
            }
            self.dirs.insert(number, path);
        }
        Ok(self.dirs.get(&number).cloned().unwrap_or_default())
    }

    /// The entries of a directory that lead to wanted objects.
    fn entries(&mut self, dir: u64, wanted: impl Fn(u64) -> bool) -> Vec<(u64, String)> {
        let mut out = Vec::new();
        let Ok(dnode) = object::expect(self.blocks, self.objset, dir) else { return out };
        // What of a damaged directory can be read, is read.
        let _ = object::zap_each(self.blocks, &dnode, |entry| {
            let Some(value) = entry.value.as_u64() else { return };
            let number = Dirent::decode(value).object;
            if wanted(number) {
                out.push((number, String::from_utf8_lossy(&entry.name).into_owned()));
            }
        });
        out
    }
}

/// All entries of a ZAP that has few.
fn few(blocks: &mut Blocks<'_>, dnode: &DnodePhys) -> Result<Vec<Entry>> {
    let (mut list, mut more) = (Vec::new(), false);
    object::zap_each(blocks, dnode, |entry| {
        more |= list.len() >= ENTRIES_MAX;
        list.extend((!more).then_some(entry));
    })?;
    if more {
        let what = dnode.kind().name();
        return Err(Unread(format!("{what}: more than {ENTRIES_MAX} entries")));
    }
    Ok(list)
}

/// Adds a path, as long as there is room.
fn push(out: &mut Vec<(u64, String)>, bytes: &mut usize, number: u64, path: String) {
    *bytes += path.len();
    if *bytes <= PATHS_MAX {
        out.push((number, path));
    }
}

fn join(dir: &str, name: &str) -> String {
    format!("{dir}/{name}")
}
