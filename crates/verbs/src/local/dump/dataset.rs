//! Data sets: the tree of the DSL, and of each data set its object set, deadlist and objects.

use std::collections::BTreeSet;
use std::rc::Rc;

use format::dsl_dataset::{DS_REMAP_DEADLIST, DslDatasetPhys};
use format::dsl_dir::{DIR_LIVELIST, DslDirPhys};
use format::mos_directory as key;
use format::objset::ObjsetType;
use format::{BlkPtr, DnodePhys, ObjectType, ObjsetPhys, printing};
use verify::Unread;

use super::{Dumper, MOS, Readable, Told};
use crate::dump::{Fact, Parts};

/// Data sets are not nested deeper than their names are long.
const DEPTH_MAX: usize = 256;
/// Directories and data sets that are followed.
const DATASETS_MAX: usize = 1 << 20;

/// How much is told of data sets.
const OBJECTS: u8 = 2;
const CONTENTS: u8 = 4;

/// A data set that is being told.
pub(super) struct Dataset {
    pub(super) objset: ObjsetPhys,
    /// Its contents are encrypted.
    pub(super) sealed: bool,
    /// It is the MOS.
    pub(super) is_mos: bool,
}

impl Dumper<'_, '_> {
    /// Tells the data set that is meant, or all.
    pub(super) fn datasets(&mut self, parts: &Parts) -> Told {
        match parts.dataset.as_deref() {
            Some(MOS) => self.mos_objset(parts),
            Some(name) => match self.resolve(name) {
                Ok((object, name)) => self.dataset(object, &name, parts),
                Err(why) => self.out.wrong(name, why),
            },
            None => {
                self.mos_objset(parts)?;
                self.all(parts)
            }
        }
    }

    fn mos_objset(&mut self, parts: &Parts) -> Told {
        let root = self.uberblock.root;
        self.out.dataset = Some(Rc::from(MOS));
        let fact = Fact::new("dataset").text("name", MOS).word("type", "META").number("id", 0u64);
        if parts.datasets > 0 {
            let fact = fact.number("objects", root.fill());
            self.out.tell(fact.pointer("rootbp", &root))?;
            let dataset = Dataset { objset: self.mos.clone(), sealed: false, is_mos: true };
            self.objects(&dataset, parts)?;
        }
        self.out.dataset = None;
        Ok(())
    }

    /// The data set of a name: `pool/fs@snap`, or `pool/objset-ID`.
    fn resolve(&mut self, name: &str) -> Readable<(u64, String)> {
        if let Some(id) = name.rsplit_once("/objset-").and_then(|(_, id)| id.parse().ok()) {
            return Ok((id, name.to_string()));
        }
        let (path, snapshot) = match name.split_once('@') {
            Some((path, snapshot)) => (path, Some(snapshot)),
            None => (name, None),
        };
        let mut dir =
            self.find(key::ROOT_DATASET).ok_or_else(|| Unread("no root_dataset".into()))?;
        for part in path.split('/').skip(1).filter(|part| !part.is_empty()) {
            let children = self.dir(dir)?.child_dir_zap_object.get();
            let missing = || Unread(format!("'{part}' in '{name}' does not exist"));
            dir = self.lookup(children, part.as_bytes())?.ok_or_else(missing)?;
        }
        let head = self.dir(dir)?.head_dataset_object.get();
        let Some(snapshot) = snapshot else { return Ok((head, name.to_string())) };
        let names = self.phys(head)?.snapnames_zap_object.get();
        let missing = || Unread(format!("snapshot '{snapshot}' does not exist"));
        Ok((self.lookup(names, snapshot.as_bytes())?.ok_or_else(missing)?, name.to_string()))
    }

    /// The number that an object of the MOS has for a name, if it is a ZAP.
    fn lookup_in(&mut self, object: u64, name: &str) -> Readable<Option<u64>> {
        if self.look.expect(&self.mos, object)?.kind().is_zap() {
            self.lookup(object, name.as_bytes())
        } else {
            Ok(None)
        }
    }

    /// The number that a ZAP of the MOS has for a name.
    pub(super) fn lookup(&mut self, zap: u64, name: &[u8]) -> Readable<Option<u64>> {
        let mut found = None;
        let dnode = self.look.expect(&self.mos, zap)?;
        self.look.zap(&dnode, |entry| {
            if let Ok(entry) = entry
                && entry.name == name
            {
                found = entry.value.as_u64();
            }
            found.is_none()
        })?;
        Ok(found)
    }

    pub(super) fn dir(&mut self, object: u64) -> Readable<DslDirPhys> {
        let dnode = self.look.expect(&self.mos, object)?;
        if dnode.bonus_kind() != ObjectType::DSL_DIR {
            return Err(Unread(format!("object {object} is no DSL directory")));
        }
        Ok(*DslDirPhys::parse(dnode.bonus())?)
    }

    fn phys(&mut self, object: u64) -> Readable<DslDatasetPhys> {
        let dnode = self.look.expect(&self.mos, object)?;
        if dnode.bonus_kind() != ObjectType::DSL_DATASET {
            return Err(Unread(format!("object {object} is no data set")));
        }
        Ok(*DslDatasetPhys::parse(dnode.bonus())?)
    }

    /// All data sets, directory by directory.
    fn all(&mut self, parts: &Parts) -> Told {
        let Some(root) = self.find(key::ROOT_DATASET) else {
            return self.out.wrong("data sets", "the MOS directory has no root_dataset");
        };
        let pool = self.config.as_ref().map(|config| printing::text(&config.name).to_string());
        let mut seen = BTreeSet::new();
        let mut todo = vec![(root, pool.unwrap_or_default(), 0)];
        while let Some((object, name, depth)) = todo.pop() {
            if depth > DEPTH_MAX || seen.len() > DATASETS_MAX {
                self.out.wrong(name, "too many data sets, or nested too deep")?;
            } else if !seen.insert(object) {
                self.out
                    .wrong(name, format!("its directory, object {object}, is another's too"))?;
            } else {
                match self.dir(object) {
                    Ok(dir) => self.directory(&dir, &name, depth, &mut todo, parts)?,
                    Err(why) => self.out.wrong(name, why)?,
                }
            }
        }
        Ok(())
    }

    /// The snapshots and the head of a directory; its children go to `todo`.
    fn directory(
        &mut self,
        dir: &DslDirPhys,
        name: &str,
        depth: usize,
        todo: &mut Vec<(u64, String, usize)>,
        parts: &Parts,
    ) -> Told {
        let head = dir.head_dataset_object.get();
        if head != 0 {
            match self.phys(head) {
                Ok(phys) => {
                    for (object, snapshot) in self.names(phys.snapnames_zap_object.get(), name)? {
                        self.dataset(object, &format!("{name}@{snapshot}"), parts)?;
                    }
                    self.dataset(head, name, parts)?;
                }
                Err(why) => self.out.wrong(name, why)?,
            }
        }
        let children = self.names(dir.child_dir_zap_object.get(), name)?;
        let children =
            children.into_iter().map(|(object, child)| (object, format!("{name}/{child}")));
        todo.extend(children.map(|(object, child)| (object, child, depth + 1)));
        Ok(())
    }

    /// Objects and names of a ZAP of the MOS.
    fn names(&mut self, zap: u64, of: &str) -> Result<Vec<(u64, String)>, super::Gone> {
        let mut names = Vec::new();
        if zap == 0 {
            return Ok(names);
        }
        let mut wrong = None;
        let listed = self.look.expect(&self.mos, zap).and_then(|dnode| {
            self.look.zap(&dnode, |entry| {
                match entry {
                    Ok(entry) => {
                        let object = entry.value.as_u64();
                        let name = printing::text(&entry.name).to_string();
                        names.extend(object.map(|object| (object, name)));
                    }
                    Err(why) => wrong = Some(why),
                }
                names.len() < DATASETS_MAX
            })
        });
        if let Some(why) = wrong.or(listed.err()) {
            self.out.wrong(format!("{of}: names below it"), why)?;
        }
        Ok(names)
    }

    /// One data set or snapshot.
    fn dataset(&mut self, object: u64, name: &str, parts: &Parts) -> Told {
        self.out.dataset = Some(Rc::from(name));
        let told = self.dataset_named(object, name, parts);
        self.out.dataset = None;
        told
    }

    fn dataset_named(&mut self, object: u64, name: &str, parts: &Parts) -> Told {
        let phys = match self.phys(object) {
            Ok(phys) => phys,
            Err(why) => return self.out.wrong(name, why),
        };
        let objset = match self.objset(&phys.bp) {
            Ok(objset) => Some(objset),
            Err(why) => {
                self.out.wrong(name, why)?;
                None
            }
        };
        let kind = match objset.as_ref().map(|objset| objset.kind) {
            Some(ObjsetType::Zfs) => "ZPL",
            Some(ObjsetType::Zvol) => "ZVOL",
            Some(ObjsetType::Meta) => "META",
            _ => "NONE",
        };
        if parts.datasets > 0 || parts.intent_logs {
            let fact = Fact::new("dataset")
                .text("name", name)
                .word("type", kind)
                .number("id", object)
                .number("cr_txg", phys.creation_txg.get())
                .number("referenced", phys.referenced_bytes.get())
                .number("objects", phys.bp.fill());
            self.out.tell(fact.pointer("rootbp", &phys.bp))?;
        }
        let Some(objset) = objset else { return Ok(()) };
        // A snapshot has the header of its day; the log is its head's.
        if !phys.is_snapshot() && (parts.intent_logs || parts.datasets >= OBJECTS) {
            self.intent_log(&objset, phys.bp.is_crypt(), parts.intent_logs)?;
        }
        if parts.datasets >= CONTENTS && parts.objects.is_empty() && phys.deadlist_object.get() != 0
        {
            self.deadlist("Deadlist", phys.deadlist_object.get())?;
            // A second one, of blocks that the removal of a device moved; and of a clone's head
            // the blocks that are its own.
            let dir = if phys.is_snapshot() { 0 } else { phys.dir_object.get() };
            let more = [("Deadlist", object, DS_REMAP_DEADLIST), ("Livelist", dir, DIR_LIVELIST)];
            for (name, object, key) in more.into_iter().filter(|(_, object, _)| *object != 0) {
                match self.lookup_in(object, key) {
                    Ok(None | Some(0)) => {}
                    Ok(Some(list)) => self.deadlist(name, list)?,
                    Err(why) => self.out.wrong(name, why)?,
                }
            }
        }
        if parts.datasets == 0 {
            return Ok(());
        }
        let dataset = Dataset { objset, sealed: phys.bp.is_crypt(), is_mos: false };
        self.objects(&dataset, parts)
    }

    fn objset(&mut self, bp: &BlkPtr) -> Readable<ObjsetPhys> {
        if bp.is_hole() {
            return Ok(ObjsetPhys::new(ObjsetType::Other(0), 1));
        }
        self.look.objset(bp)
    }

    /// The objects that are meant.
    fn objects(&mut self, dataset: &Dataset, parts: &Parts) -> Told {
        let mut sa = super::sa::Attributes::default();
        if !parts.objects.is_empty() {
            for (first, last) in &parts.objects {
                self.range(dataset, &mut sa, (*first, *last))?;
            }
            return Ok(());
        }
        if parts.datasets < OBJECTS {
            return Ok(());
        }
        let detail = parts.datasets;
        self.object(dataset, &mut sa, 0, &dataset.objset.meta, detail, false)?;
        for (number, dnode) in (0u64..).zip(&dataset.objset.accounting) {
            if let Some(dnode) = dnode {
                self.object(dataset, &mut sa, u64::MAX - number, dnode, detail, false)?;
            }
        }
        self.each_dnode(dataset, (1, u64::MAX), &mut |dumper, number, dnode| {
            dumper.object(dataset, &mut sa, number, dnode, detail, false)
        })
    }

    /// Objects that were asked for, in full.
    fn range(
        &mut self,
        dataset: &Dataset,
        sa: &mut super::sa::Attributes,
        (first, last): (u64, u64),
    ) -> Told {
        const ALL: u8 = u8::MAX;
        let objset = &dataset.objset;
        let special = match u64::MAX - first {
            _ if first == 0 => Some(&objset.meta),
            number @ 0..=2 => objset.accounting.get(number as usize).and_then(Option::as_ref),
            _ => None,
        };
        if let Some(dnode) = special {
            self.object(dataset, sa, first, dnode, ALL, true)?;
            if first == last {
                return Ok(());
            }
        }
        if first == last {
            return match self.look.dnode(objset, first) {
                Ok(Some(dnode)) => self.object(dataset, sa, first, &dnode, ALL, true),
                Ok(None) => self.out.wrong(format!("object {first}"), "does not exist"),
                Err(why) => self.out.wrong(format!("object {first}"), why),
            };
        }
        self.each_dnode(dataset, (first.max(1), last), &mut |dumper, number, dnode| {
            dumper.object(dataset, sa, number, dnode, ALL, true)
        })
    }

    /// Calls `each` with the dnodes of a range of objects, block by block as they are on disk.
    #[allow(clippy::type_complexity)] // one closure, with the walker itself
    fn each_dnode(
        &mut self,
        dataset: &Dataset,
        (first, last): (u64, u64),
        each: &mut dyn FnMut(&mut Self, u64, &DnodePhys) -> Told,
    ) -> Told {
        use format::dnode::{DNODE_SLOT, DNODES_PER_BLOCK};
        self.walk(&dataset.objset.meta, &mut |dumper, place| {
            let span = super::tree::span(&dataset.objset.meta, place.level);
            let from = place.block.saturating_mul(span).saturating_mul(DNODES_PER_BLOCK);
            let to = from.saturating_add(span.saturating_mul(DNODES_PER_BLOCK) - 1);
            if to < first || from > last {
                return Ok(false);
            }
            if place.level > 0 || place.bp.is_hole() {
                return Ok(true);
            }
            let bytes = match dumper.look.read(place.bp) {
                Ok(bytes) => bytes,
                Err(why) => {
                    dumper.out.wrong(format!("objects {from} to {to}"), why)?;
                    return Ok(false);
                }
            };
            let mut slot = 0u64;
            while slot < DNODES_PER_BLOCK {
                let number = from + slot;
                let at = bytes.get(slot as usize * DNODE_SLOT..).unwrap_or_default();
                let mut slots = 1;
                match DnodePhys::parse(at) {
                    Ok(Some(dnode)) => {
                        slots = dnode.slots() as u64;
                        if (first..=last).contains(&number) && number != 0 {
                            each(dumper, number, &dnode)?;
                        }
                    }
                    Ok(None) => {}
                    Err(why) => dumper.out.wrong(format!("object {number}"), why)?,
                }
                slot += slots;
            }
            Ok(false)
        })
    }
}
