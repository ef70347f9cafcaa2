//! Files and directories: do they say of each other what is so?
//!
//! FORMAT: sections 11.1 to 11.7. The one idea: what an object says of itself and what names and
//! other objects say of it are records under its number. Sorted, they stand side by side, however
//! many files there are, and each object is judged from its own few records.

use crate::block::Blocks;
use crate::names::Names;
use crate::object::{self, Result, Unread};
use crate::report::{FindingKind, Findings};
use crate::sorter::{Record, Sorter};
use crate::usage::Usage;
use format::acl;
use format::dirent::Dirent;
use format::master_node::{DELETE_QUEUE, SHARES};
use format::sa::{Attr, SaView};
use format::zap::Reader;
use format::znode::Pflags;
use format::{DnodePhys, ObjectType, ObjsetPhys};
use std::iter::Peekable;
use std::path::Path;

/// Bits of a mode that are no type.
const TYPE_SHIFT: u32 = 12;
/// Type of a directory.
const DIRECTORY: u64 = 4;
/// Bytes that an entry of a ZAP takes at least.
const ENTRY_MIN: u64 = 24;

/// Directories of which the ways up are followed, in memory; each takes 20 bytes.
const PARENTS_MAX: usize = 1 << 20;

/// What a record says of its object; in this order they are read.
mod tag {
    /// Its mode and the number of its links.
    pub(super) const SELF: u64 = 0;
    /// Its parent and size.
    pub(super) const PLACE: u64 = 1;
    /// Its flags.
    pub(super) const FLAGS: u64 = 2;
    /// It needs no name: the root, the old shares.
    pub(super) const TOP: u64 = 3;
    /// It waits to be deleted.
    pub(super) const QUEUED: u64 = 4;
    /// It holds the extended attributes of an object.
    pub(super) const XATTR_OF: u64 = 5;
    /// A directory has a name for it: directory, type.
    pub(super) const NAME: u64 = 6;
    /// As a directory it has so many entries.
    pub(super) const ENTRIES: u64 = 7;
}

/// Examines one file system. `late`: projects are counted since later than it was made.
pub(crate) fn check(
    blocks: &mut Blocks<'_>,
    findings: &mut Findings,
    name: &str,
    objset: &ObjsetPhys,
    late: bool,
    (memory, scratch): (usize, &Path),
) -> Result<()> {
    let mut files = Files {
        name,
        objects: Sorter::new(memory / 2, scratch),
        subdirs: Sorter::new(memory / 4, scratch),
        usage: Usage::new(objset, late, memory / 4, scratch),
        findings,
    };
    let names = Names::open(blocks, objset)?;
    files.tops(&names)?;
    if let Some(attr) = names.unnamed {
        files.tell(|| format!("{name}: the registry of attributes lacks {}", attr.name()));
    }
    let (registry, layouts) = (names.registry.clone(), names.layouts.clone());
    let (root, queue) = (names.root, names.master(DELETE_QUEUE));
    if let Some(queue) = queue {
        let zap = object::expect(blocks, objset, queue)?;
        files.queue(blocks, &zap)?;
    }
    let mut wrong = Ok(());
    object::each_dnode(blocks, &objset.meta, &mut |blocks, number, dnode| {
        if !matches!(dnode.bonus_kind(), ObjectType::SA | ObjectType::ZNODE) {
            return;
        }
        let result = files.object(blocks, &registry, &layouts, number, dnode);
        if let Err(why) = result {
            let name = files.name;
            files.tell(|| format!("{name} object {number}: {why}"));
            wrong = Err(());
        }
    });
    // What is not known of one object would make others wrong.
    if wrong.is_err() {
        return Ok(());
    }
    let Files { name, objects, subdirs, usage, findings } = files;
    let scratch_error = |error: std::io::Error| Unread(format!("scratch file: {error}"));
    let mut subdirs = subdirs;
    let sorted = objects.finish().map_err(scratch_error)?;
    let failed = sorted.failed();
    let mut sorted = sorted.peekable();
    let mut parents = Parents::default();
    while let Some(first) = sorted.peek().copied() {
        judge(&mut sorted, first[0], root, name, (&mut subdirs, &mut parents), findings);
    }
    if let Some(object) = parents.astray() {
        findings.add(FindingKind::Files, || {
            format!("{name} object {object}: a directory that the root does not lead to")
        });
    }
    let more = subdirs.finish().map_err(scratch_error)?;
    let failed_too = more.failed();
    links(more.peekable(), name, findings);
    for failed in [failed, failed_too] {
        if let Some(error) = failed.get() {
            return Err(Unread(format!("scratch file: {error}")));
        }
    }
    usage.compare(blocks, findings, name, objset)
}

/// One file system while its objects are read.
struct Files<'n, 'f> {
    name: &'n str,
    objects: Sorter,
    /// Under a directory: the number of its links, and its subdirectories.
    subdirs: Sorter,
    usage: Usage,
    findings: &'f mut Findings,
}

impl Files<'_, '_> {
    fn tell(&mut self, text: impl FnOnce() -> String) {
        self.findings.add(FindingKind::Files, text);
    }

    /// Objects without names.
    fn tops(&mut self, names: &Names<'_, '_>) -> Result<()> {
        self.objects.push([names.root, tag::TOP, 0, 0]);
        if let Some(shares) = names.master(SHARES) {
            self.objects.push([shares, tag::TOP, 0, 0]);
        }
        Ok(())
    }

    fn queue(&mut self, blocks: &mut Blocks<'_>, zap: &DnodePhys) -> Result<()> {
        let mut odd = None;
        let objects = &mut self.objects;
        object::zap_each(blocks, zap, |entry| {
            let object = entry.value.as_u64().unwrap_or(0);
            if entry.name != format!("{object:x}").as_bytes() {
                odd = Some((object, entry.name));
            }
            objects.push([object, tag::QUEUED, 0, 0]);
        })?;
        if let Some((object, key)) = odd {
            let (name, key) = (self.name, String::from_utf8_lossy(&key).into_owned());
            self.tell(|| format!("{name}: the delete queue has object {object} under \"{key}\""));
        }
        Ok(())
    }

    /// Takes down what an object says.
    fn object(
        &mut self,
        blocks: &mut Blocks<'_>,
        registry: &format::sa::Registry,
        layouts: &format::sa::Layouts,
        number: u64,
        dnode: &DnodePhys,
    ) -> Result<()> {
        let spill = match dnode.spill() {
            Some(bp) if !bp.is_hole() => Some(blocks.read(bp)?),
            _ => None,
        };
        let spill = spill.as_ref().map(|bytes| &bytes[..]);
        let len = usize::from(dnode.core().bonus_len.get());
        let bonus = dnode.bonus().get(..len).unwrap_or_default();
        let view = SaView::new(registry, layouts, dnode.bonus_kind(), bonus, spill)?;
        let get = |attr: Attr| -> Result<u64> { Ok(view.get_u64(attr)?.unwrap_or(0)) };
        for value in view.values() {
            value?;
        }
        let mode = get(Attr::Mode)?;
        self.objects.push([number, tag::SELF, mode, get(Attr::Links)?]);
        self.objects.push([number, tag::PLACE, get(Attr::Parent)?, get(Attr::Size)?]);
        self.objects.push([number, tag::FLAGS, get(Attr::Flags)?, 0]);
        let xattr = get(Attr::Xattr)?;
        if xattr != 0 {
            self.objects.push([xattr, tag::XATTR_OF, number, 0]);
        }
        let name = self.name;
        if !self.usage.object(dnode, bonus)? {
            self.findings.add(FindingKind::Usage, || {
                format!("{name} object {number}: it is counted for its owner, and does not say so")
            });
        }
        if let (Some(said), Some(bytes)) =
            (view.get_u64(Attr::DaclCount)?, view.get(Attr::DaclAces)?)
        {
            let count = acl::count(bytes)?;
            if said != count {
                self.tell(|| {
                    format!("{name} object {number}: an ACL of {said} entries, counted {count}")
                });
            }
        }
        if mode >> TYPE_SHIFT == DIRECTORY {
            let count = self.entries(blocks, number, dnode)?;
            self.objects.push([number, tag::ENTRIES, count, 0]);
        }
        Ok(())
    }

    /// Takes down the names in a directory. Gives their number.
    fn entries(&mut self, blocks: &mut Blocks<'_>, number: u64, dnode: &DnodePhys) -> Result<u64> {
        if dnode.max_block() == 0 && object::pointer(blocks, dnode, 0)?.is_hole() {
            return Ok(0);
        }
        let room = dnode.max_block().saturating_add(1).saturating_mul(dnode.block_size().into());
        let mut count = 0;
        let mut zap = Reader::open(|block| object::block(blocks, dnode, block))?;
        for entry in zap.entries() {
            let entry: format::zap::Entry = entry?;
            count += 1;
            if count > room / ENTRY_MIN {
                return Err(Unread("a directory with more names than it has room for".into()));
            }
            let value = entry.value.ints().first().copied().unwrap_or(0);
            let kind = value >> 60;
            self.objects.push([Dirent::decode(value).object, tag::NAME, number, kind]);
        }
        Ok(count)
    }
}

/// Judges the object whose records come next.
fn judge(
    records: &mut Peekable<impl Iterator<Item = Record>>,
    object: u64,
    root: u64,
    name: &str,
    (subdirs, parents): (&mut Sorter, &mut Parents),
    findings: &mut Findings,
) {
    let mut tell = |what: String| {
        findings.add(FindingKind::Files, || format!("{name} object {object}: {what}"));
    };
    let (mut here, mut place, mut flags) = (None, (0, 0), 0);
    let (mut top, mut queued, mut owners, mut names) = (false, false, 0u64, 0u64);
    while let Some([_, tag, a, b]) = records.next_if(|record| record[0] == object) {
        let directory = here.is_some_and(|(mode, _)| mode >> TYPE_SHIFT == DIRECTORY);
        match tag {
            tag::SELF => here = Some((a, b)),
            tag::PLACE => place = (a, b),
            tag::FLAGS => flags = a,
            tag::TOP => top = true,
            tag::QUEUED => queued = true,
            tag::XATTR_OF => {
                owners += 1;
                if here.is_none() {
                    tell(format!("the attributes of object {a}, and does not exist"));
                } else if place.0 != a {
                    tell(format!("parent {}, but it is the attributes of object {a}", place.0));
                }
            }
            tag::NAME => {
                names += 1;
                let Some((mode, _)) = here else {
                    tell(format!("directory {a} leads to it, and it does not exist"));
                    continue;
                };
                if mode >> TYPE_SHIFT != b {
                    tell(format!("mode {mode:o}, but directory {a} has type {b} for it"));
                }
                if directory {
                    subdirs.push([a, 1, object, 0]);
                    if place.0 != a {
                        tell(format!("parent {}, but its name is in directory {a}", place.0));
                    }
                }
            }
            _ => {
                if directory && place.1 != a.saturating_add(2) {
                    tell(format!("a directory of size {}, it has {a} entries", place.1));
                }
            }
        }
    }
    let Some((mode, links)) = here else {
        if queued {
            tell("in the delete queue, and does not exist".into());
        }
        if top {
            tell("it is missing".into());
        }
        return;
    };
    if object == root && place.0 != root {
        tell(format!("the root, and its parent is {}", place.0));
    }
    if queued && links != 0 && flags & Pflags::XATTR == 0 {
        tell(format!("in the delete queue with {links} links"));
    }
    let (directory, free) = (mode >> TYPE_SHIFT == DIRECTORY, top || queued || owners > 0);
    if names == 0 && !free {
        tell("it has no name and is not in the delete queue".into());
    } else if directory {
        if names != u64::from(!free) {
            tell(format!("a directory with {names} names"));
        }
        parents.add(object, if free { object } else { place.0 });
        if !queued {
            subdirs.push([object, 0, links, 0]);
        }
    } else if !queued && links != names {
        tell(format!("{links} links, it has {names} names"));
    }
}

/// Directories with their parents, to find those that only lead to each other.
#[derive(Default)]
struct Parents {
    /// In order of the first; a top is its own parent.
    list: Vec<(u64, u64)>,
    /// There are too many.
    over: bool,
}

impl Parents {
    fn add(&mut self, object: u64, parent: u64) {
        self.over |= self.list.len() >= PARENTS_MAX;
        if !self.over {
            self.list.push((object, parent));
        }
    }

    /// A directory from which no way up ends at a top. One with a parent that does not exist is
    /// told of already.
    fn astray(&self) -> Option<u64> {
        const UNKNOWN: u32 = 0;
        const GOOD: u32 = u32::MAX;
        if self.over {
            return None;
        }
        let place = |object: u64| self.list.binary_search_by_key(&object, |(own, _)| *own).ok();
        let mut state = vec![UNKNOWN; self.list.len()];
        for start in 0..self.list.len() {
            let mark = start as u32 + 1;
            let mut at = start;
            while state[at] == UNKNOWN {
                state[at] = mark;
                let (own, parent) = self.list[at];
                match place(parent).filter(|_| own != parent) {
                    Some(up) => at = up,
                    None => break,
                }
            }
            let (own, parent) = self.list[at];
            let ends = own == parent || place(parent).is_none() || state[at] != mark;
            if !ends {
                return Some(own);
            }
            // What was passed leads to a top, too.
            let mut at = start;
            while state[at] == mark {
                state[at] = GOOD;
                match place(self.list[at].1) {
                    Some(up) => at = up,
                    None => break,
                }
            }
        }
        None
    }
}

/// Compares links of directories: two, and one for each subdirectory.
fn links(mut records: Peekable<impl Iterator<Item = Record>>, name: &str, findings: &mut Findings) {
    while let Some([object, kind, said, _]) = records.next() {
        let mut count = 0u64;
        while records.next_if(|record| record[0] == object).is_some() {
            count += 1;
        }
        // Of one that was deleted only its children tell.
        if kind == 0 && said != count + 2 {
            findings.add(FindingKind::Files, || {
                format!("{name} object {object}: {said} links, it has {count} subdirectories")
            });
        }
    }
}

#[cfg(test)]
mod tests {
    use super::Parents;

    fn astray(list: &[(u64, u64)]) -> Option<u64> {
        let mut parents = Parents::default();
        list.iter().for_each(|(object, parent)| parents.add(*object, *parent));
        parents.astray()
    }

    #[test]
    fn directories_that_only_lead_to_each_other_are_found() {
        assert_eq!(astray(&[]), None);
        assert_eq!(astray(&[(1, 1), (2, 1), (3, 2), (5, 9), (7, 3), (9, 7)]), None);
        // One that is in itself but for its name; two in each other, with one below.
        assert!(astray(&[(1, 1), (2, 3), (3, 2), (4, 3)]).is_some());
        assert!(astray(&[(1, 5), (2, 1), (5, 2), (7, 7)]).is_some());
        // A parent that is not there is another's finding.
        assert_eq!(astray(&[(1, 1), (2, 8), (3, 2)]), None);
    }
}
