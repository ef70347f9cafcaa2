//! Space and objects of users, groups and projects.
//!
//! FORMAT: section 11.8. Each object counts for its owner; what all objects count and what the
//! accounts say are records under the owner's number, and are compared sorted.

use crate::block::Blocks;
use crate::object::{self, Result, Unread};
use crate::report::{FindingKind, Findings};
use crate::sorter::Sorter;
use format::accounting::{BYTES_PER_OBJECT, Counted, Owner};
use format::dnode::DnodeFlags;
use format::objset::ObjsetFlags;
use format::{DnodePhys, ObjsetPhys};
use std::path::Path;

/// Names of the accounts, by the places of their dnodes.
const KINDS: [&str; 3] = ["user", "group", "project"];

/// What a record says.
const COUNTED: u64 = 0;
const SAID_BYTES: u64 = 1;
const SAID_OBJECTS: u64 = 2;

/// What the objects of a file system count.
pub(crate) struct Usage {
    /// Account, owner, what is said, bytes or objects.
    records: Sorter,
    /// Which accounts are kept: of bytes, of objects.
    kept: [(bool, bool); 3],
    /// Were projects counted from a later txg on than that of the first objects? OpenZFS does not
    /// count what was there before.
    late: bool,
}

impl Usage {
    pub(crate) fn new(objset: &ObjsetPhys, late: bool, memory: usize, scratch: &Path) -> Usage {
        let has = |flag: u64| objset.flags & flag != 0;
        let bytes = has(ObjsetFlags::USERACCOUNTING_COMPLETE);
        let both = (bytes, bytes && has(ObjsetFlags::USEROBJACCOUNTING_COMPLETE));
        let project = has(ObjsetFlags::PROJECTQUOTA_COMPLETE);
        let kept = [both, both, (project, project)];
        Usage { records: Sorter::new(memory, scratch), kept, late }
    }

    /// Counts an object. Does its dnode say that it is counted, if it is?
    pub(crate) fn object(&mut self, dnode: &DnodePhys, bonus: &[u8]) -> Result<bool> {
        if !self.kept.iter().any(|(bytes, _)| *bytes) {
            return Ok(true);
        }
        let Some(owner) = Owner::of(dnode.bonus_kind(), bonus)? else { return Ok(true) };
        let bytes = BYTES_PER_OBJECT.wrapping_add(dnode.used_bytes());
        for (kind, id) in (0u64..).zip([owner.uid, owner.gid, owner.project]) {
            self.records.push([kind, id, COUNTED, bytes]);
        }
        let says = dnode.core().flags & DnodeFlags::USERUSED_ACCOUNTED != 0;
        Ok(says || !self.kept[0].0)
    }

    /// Holds what the accounts say against what was counted.
    pub(crate) fn compare(
        mut self,
        blocks: &mut Blocks<'_>,
        findings: &mut Findings,
        name: &str,
        objset: &ObjsetPhys,
    ) -> Result<()> {
        for (kind, dnode) in (0u64..).zip(&objset.accounting) {
            let (Some(dnode), true) = (dnode, self.kept[kind as usize].0) else { continue };
            let records = &mut self.records;
            object::zap_each(blocks, dnode, |entry| {
                let value = entry.value.as_u64().unwrap_or(0);
                match Counted::parse(&entry.name) {
                    Some(Counted::Bytes(id)) => records.push([kind, id, SAID_BYTES, value]),
                    Some(Counted::Objects(id)) => records.push([kind, id, SAID_OBJECTS, value]),
                    None => findings.add(FindingKind::Usage, || {
                        let key = String::from_utf8_lossy(&entry.name).into_owned();
                        format!("{name}: the accounts have the key \"{key}\"")
                    }),
                }
            })?;
        }
        let error = |error: std::io::Error| Unread(format!("scratch file: {error}"));
        let sorted = self.records.finish().map_err(error)?;
        let failed = sorted.failed();
        let mut sorted = sorted.peekable();
        while let Some([kind, id, ..]) = sorted.peek().copied() {
            let (mut counted, mut said) = ([0u64; 2], [0u64; 2]);
            while let Some([_, _, what, value]) =
                sorted.next_if(|record| (record[0], record[1]) == (kind, id))
            {
                match what {
                    COUNTED => {
                        counted[0] = counted[0].wrapping_add(value);
                        counted[1] += 1;
                    }
                    SAID_BYTES => said[0] = value,
                    _ => said[1] = value,
                }
            }
            let kept = self.kept[kind as usize];
            let who = KINDS[kind as usize];
            let parts = [("bytes", kept.0), ("objects", kept.1)];
            for ((said, counted), (what, kept)) in said.into_iter().zip(counted).zip(parts) {
                let missed = self.late && who == KINDS[2] && said < counted;
                if kept && said != counted && !missed {
                    findings.add(FindingKind::Usage, || {
                        format!("{name}: {who} {id} has {said} {what}, counted {counted}")
                    });
                }
            }
        }
        failed.get().map_or(Ok(()), |error| Err(Unread(format!("scratch file: {error}"))))
    }
}
