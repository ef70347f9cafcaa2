//! System attributes: what a file system knows of an object, by its registry and layouts; and the
//! path of an object, which its parents have.

use format::dirent::Dirent;
use format::dxattr::Dxattr;
use format::master_node::{MASTER_NODE_OBJECT, ROOT, SA_ATTRS};
use format::objset::ObjsetType;
use format::sa::{Attr, Layouts, Registry, SA_LAYOUTS, SA_REGISTRY, SaHeader, SaView};
use format::znode::Time;
use format::{DnodePhys, ObjectType};
use verify::Unread;

use super::dataset::Dataset;
use super::{Dumper, Readable, Told};
use crate::dump::{Fact, Value};

/// Entries of a registry, layouts or master node that are read.
const ENTRIES_MAX: usize = 1 << 12;
/// Parents that are followed for a path.
const PARENTS_MAX: usize = 1 << 10;

/// The registry and layouts of the file system at hand, read when they are first needed.
#[derive(Default)]
pub(super) struct Attributes {
    known: Option<Readable<(Registry, Layouts)>>,
}

impl Dumper<'_, '_> {
    /// Tells the attributes of an object.
    pub(super) fn attributes(
        &mut self,
        dataset: &Dataset,
        sa: &mut Attributes,
        dnode: &DnodePhys,
    ) -> Told {
        let spill = match dnode.spill().filter(|bp| !bp.is_hole()) {
            None => None,
            Some(bp) => match self.look.read(bp) {
                Ok(bytes) => Some(bytes),
                Err(why) => {
                    self.out.wrong("spill block", why)?;
                    None
                }
            },
        };
        if sa.known.is_none() {
            sa.known = Some(self.registry(dataset));
        }
        let (registry, layouts) = match &sa.known {
            Some(Ok(known)) => (&known.0, &known.1),
            Some(Err(why)) => return self.out.wrong("attributes", why.clone()),
            None => return Ok(()),
        };
        let spill = spill.as_ref().map(|bytes| &bytes[..]);
        let view = SaView::new(registry, layouts, dnode.bonus_kind(), dnode.bonus(), spill);
        let view = match view {
            Ok(view) => view,
            Err(why) => return self.out.wrong("attributes", why),
        };
        let mut fact = Fact::new("attributes");
        for (name, bytes) in [("layout", Some(dnode.bonus())), ("spill_layout", spill)] {
            if let Some(header) = bytes.and_then(|bytes| SaHeader::parse(bytes).ok())
                && !view.is_old_znode()
            {
                fact = fact.number(name, header.layout);
            }
        }
        let mut wrong = None;
        let mut xattrs = None;
        for value in view.values() {
            let (number, _, bytes) = match value {
                Ok(value) => value,
                Err(why) => {
                    wrong = Some(why);
                    break;
                }
            };
            let attr = Attr::ALL.into_iter().find(|attr| registry.number(*attr) == Some(number));
            fact = attribute(fact, attr, bytes);
            if attr == Some(Attr::Dxattr) {
                xattrs = Some(bytes);
            }
        }
        self.out.tell(fact)?;
        if let Some(why) = wrong {
            self.out.wrong("attributes", why)?;
        }
        match xattrs.map(Dxattr::parse) {
            Some(Ok(xattrs)) => {
                for (name, value) in xattrs.iter() {
                    let fact = Fact::new("xattr").text("name", name);
                    self.out.tell(fact.with("value", Value::Text(value.to_vec())))?;
                }
                Ok(())
            }
            Some(Err(why)) => self.out.wrong("extended attributes", why),
            None => Ok(()),
        }
    }

    /// The registry and the layouts of a file system; the standard ones of one that has none.
    fn registry(&mut self, dataset: &Dataset) -> Readable<(Registry, Layouts)> {
        let standard = (Registry::standard(), Layouts::default());
        if dataset.objset.kind != ObjsetType::Zfs {
            return Ok(standard);
        }
        let Some(object) = self.number_in(dataset, MASTER_NODE_OBJECT, SA_ATTRS)? else {
            return Ok(standard);
        };
        let mut entries = Vec::new();
        if let Some(object) = self.number_in(dataset, object, SA_REGISTRY)? {
            self.few(dataset, object, |entry| {
                entries.extend(entry.value.as_u64().map(|value| (entry.name, value)));
            })?;
        }
        let named = entries.iter().map(|(name, value)| (name.as_slice(), *value));
        let registry = Registry::from_entries(named)?;
        let mut orders = Vec::new();
        if let Some(object) = self.number_in(dataset, object, SA_LAYOUTS)? {
            self.few(dataset, object, |entry| {
                let order = entry.value.ints().into_iter().map(|number| number as u16).collect();
                orders.push((entry.name, order));
            })?;
        }
        let named = orders
            .iter()
            .map(|(name, order): &(Vec<u8>, Vec<u16>)| (name.as_slice(), order.clone()));
        Ok((registry, Layouts::from_entries(named)?))
    }

    /// The number that a ZAP of a data set has for a name.
    fn number_in(&mut self, dataset: &Dataset, zap: u64, name: &str) -> Readable<Option<u64>> {
        let mut found = None;
        self.few(dataset, zap, |entry| {
            if entry.name == name.as_bytes() {
                found = entry.value.as_u64().filter(|object| *object != 0);
            }
        })?;
        Ok(found)
    }

    /// The entries of a ZAP that has few.
    fn few(
        &mut self,
        dataset: &Dataset,
        zap: u64,
        mut each: impl FnMut(format::zap::Entry),
    ) -> Readable<()> {
        let dnode = self.look.expect(&dataset.objset, zap)?;
        let (mut count, mut wrong) = (0, None);
        self.look.zap(&dnode, |entry| {
            count += 1;
            match entry {
                Ok(entry) => each(entry),
                Err(why) => wrong = Some(why),
            }
            count < ENTRIES_MAX && wrong.is_none()
        })?;
        wrong.map_or(Ok(()), Err)
    }

    /// Tells the path of an object of a file system, if it has one.
    pub(super) fn path(&mut self, dataset: &Dataset, sa: &mut Attributes, number: u64) -> Told {
        if dataset.objset.kind != ObjsetType::Zfs {
            return Ok(());
        }
        match self.parents(dataset, sa, number) {
            Ok(Some(path)) => self.out.tell(Fact::new("path").text("path", path)),
            Ok(None) => Ok(()),
            Err(why) => self.out.wrong("path", why),
        }
    }

    fn parents(
        &mut self,
        dataset: &Dataset,
        sa: &mut Attributes,
        number: u64,
    ) -> Readable<Option<Vec<u8>>> {
        let Some(root) = self.number_in(dataset, MASTER_NODE_OBJECT, ROOT)? else {
            return Ok(None);
        };
        let mut parts: Vec<Vec<u8>> = Vec::new();
        let mut at = number;
        while at != root {
            if parts.len() >= PARENTS_MAX {
                return Err(Unread("its parents have no end".into()));
            }
            let Some(dnode) = self.look.dnode(&dataset.objset, at)? else { return Ok(None) };
            let Some(parent) = self.parent(sa, &dnode)? else { return Ok(None) };
            let Some(directory) = self.look.dnode(&dataset.objset, parent)? else {
                return Ok(None);
            };
            if directory.kind() != ObjectType::DIRECTORY_CONTENTS {
                return Ok(None);
            }
            let mut name = None;
            self.look.zap(&directory, |entry| {
                let entry = entry.ok();
                let found = entry.filter(|entry| {
                    entry.value.as_u64().is_some_and(|value| Dirent::decode(value).object == at)
                });
                name = found.map(|entry| entry.name);
                name.is_none()
            })?;
            // An object without a name: unlinked, or an attribute directory.
            let Some(name) = name else { return Ok(None) };
            parts.push(name);
            at = parent;
        }
        let mut path = Vec::new();
        for part in parts.iter().rev() {
            path.push(b'/');
            path.extend_from_slice(part);
        }
        Ok(Some(if path.is_empty() { b"/".to_vec() } else { path }))
    }

    /// The directory that an object was last linked into.
    fn parent(&mut self, sa: &Attributes, dnode: &DnodePhys) -> Readable<Option<u64>> {
        let Some(Ok((registry, layouts))) = &sa.known else { return Ok(None) };
        if !matches!(dnode.bonus_kind(), ObjectType::SA | ObjectType::ZNODE) {
            return Ok(None);
        }
        let view = SaView::new(registry, layouts, dnode.bonus_kind(), dnode.bonus(), None)?;
        Ok(view.get_u64(Attr::Parent)?)
    }
}

/// Adds an attribute, by the name that zdb has for it.
fn attribute(fact: Fact, attr: Option<Attr>, bytes: &[u8]) -> Fact {
    let word = bytes.first_chunk::<8>().map_or(0, |b| u64::from_le_bytes(*b));
    let time = |fact: Fact, name| match bytes.first_chunk::<16>().map(Time::decode) {
        Some(time) => fact.with(name, Value::Time(time.secs, Some(time.nanos))),
        None => fact.with(name, Value::Bytes(bytes.to_vec())),
    };
    match attr {
        Some(Attr::Atime) => time(fact, "atime"),
        Some(Attr::Mtime) => time(fact, "mtime"),
        Some(Attr::Ctime) => time(fact, "ctime"),
        Some(Attr::Crtime) => time(fact, "crtime"),
        Some(Attr::Gen) => fact.number("gen", word),
        Some(Attr::Mode) => fact.with("mode", Value::Word(format!("{word:o}"))),
        Some(Attr::Size) => fact.number("size", word),
        Some(Attr::Parent) => fact.number("parent", word),
        Some(Attr::Links) => fact.number("links", word),
        Some(Attr::Xattr) => fact.number("xattr", word),
        Some(Attr::Rdev) => fact.hex("rdev", word),
        Some(Attr::Flags) => fact.hex("pflags", word),
        Some(Attr::Uid) => fact.number("uid", word),
        Some(Attr::Gid) => fact.number("gid", word),
        Some(Attr::DaclCount) => fact.number("dacl_count", word),
        Some(Attr::Symlink) => fact.text("symlink", bytes),
        Some(Attr::Projid) => fact.number("projid", word),
        Some(Attr::Dxattr) => fact.number("dxattr_bytes", bytes.len() as u64),
        Some(Attr::DaclAces) => fact.with("dacl_aces", Value::Bytes(bytes.to_vec())),
        Some(Attr::ZnodeAcl) => fact.with("znode_acl", Value::Bytes(bytes.to_vec())),
        Some(Attr::Scanstamp) => fact.with("scanstamp", Value::Bytes(bytes.to_vec())),
        Some(Attr::Pad) => fact,
        None => fact.with("other", Value::Bytes(bytes.to_vec())),
    }
}
