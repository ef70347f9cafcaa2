//! The fixed objects of a file system: master node, attribute tables, delete queue, root.
//!
//! FORMAT: sections 11.1 and 11.2.

use std::collections::BTreeMap;

use dmu::{Objset, Tx, Zap};
use format::ObjectType;
use format::sa::{Layouts, Registry, SA_LAYOUTS, SA_REGISTRY, bonus_max};
use format::zap::{NormFlags, Value};
use pool::Stored;

use crate::attrs::{self, Attrs, mode};

/// Object number of the master node.
pub(crate) const MASTER_NODE: u64 = 1;
/// Version of file systems that we make.
pub(crate) const ZPL_VERSION: u64 = 5;

/// Keys of the master node.
pub(crate) mod key {
    pub(crate) const VERSION: &[u8] = b"VERSION";
    pub(crate) const ROOT: &[u8] = b"ROOT";
    pub(crate) const DELETE_QUEUE: &[u8] = b"DELETE_QUEUE";
    pub(crate) const SHARES: &[u8] = b"SHARES";
    pub(crate) const SA_ATTRS: &[u8] = b"SA_ATTRS";
    pub(crate) const NORMALIZATION: &[u8] = b"normalization";
    pub(crate) const UTF8ONLY: &[u8] = b"utf8only";
    pub(crate) const CASESENSITIVITY: &[u8] = b"casesensitivity";
}

/// Makes the objects of an empty file system; `props` may set what is fixed at creation.
///
/// The function that `pool` is given: [`pool::MakeFilesystem`].
pub fn make_filesystem(
    objset: &Objset,
    tx: &Tx<'_>,
    props: &BTreeMap<String, Stored>,
) -> dmu::Result<()> {
    let fixed = |name: &str| match props.get(name) {
        Some(Stored::Number(number)) => *number,
        _ => 0,
    };
    let (kind, none) = (ObjectType::MASTER_NODE, ObjectType::NONE);
    let master = objset.allocate_at(tx, MASTER_NODE, kind, 512, none, &[], 1)?;
    let master = Zap::format(master, tx, 0)?;
    let sa = Zap::create(objset, tx, ObjectType::SA_MASTER_NODE, 0)?;
    let queue = Zap::create(objset, tx, ObjectType::UNLINKED_SET, 0)?;
    let registry_zap = Zap::create(objset, tx, ObjectType::SA_ATTR_REGISTRATION, 0)?;
    let layouts_zap = Zap::create(objset, tx, ObjectType::SA_ATTR_LAYOUTS, 0)?;
    sa.put_u64(tx, SA_REGISTRY.as_bytes(), registry_zap.number())?;
    sa.put_u64(tx, SA_LAYOUTS.as_bytes(), layouts_zap.number())?;
    let registry = Registry::standard();
    for (name, value) in registry.entries() {
        registry_zap.put_u64(tx, name.as_bytes(), value)?;
    }
    let projects = format::objset::ObjsetFlags::PROJECTQUOTA_COMPLETE;
    let with_project = objset.phys().flags & projects != 0;
    let mut attrs = Attrs::new(mode::DIR | 0o755, with_project, attrs::now());
    attrs.gen_txg = tx.txg();
    let mut layouts = Layouts::default();
    let wrong = |source| dmu::DmuError::Format { object: MASTER_NODE, source };
    let (dir, sa_kind) = (ObjectType::DIRECTORY_CONTENTS, ObjectType::SA);
    // The ZAPs of directories ignore case where the file system does, or may be asked to.
    let upper = if fixed("casesensitivity") == 0 { 0 } else { NormFlags::TOUPPER };
    let normflags = fixed("normalization") | upper;
    let mut image = |attrs: &Attrs| {
        let list = attrs.builder(None, &registry)?;
        list.build(&registry, &mut layouts, bonus_max(1))
    };
    let new = image(&attrs).map_err(wrong)?;
    let root = Zap::create_with_bonus(objset, tx, dir, normflags, sa_kind, &new.bonus)?;
    attrs.parent = root.number();
    let new = image(&attrs).map_err(wrong)?;
    root.object().set_bonus(tx, &new.bonus, None)?;
    save_layouts(&layouts_zap, tx, &mut layouts)?;
    for (name, value) in [
        (key::VERSION, ZPL_VERSION),
        (key::ROOT, root.number()),
        (key::DELETE_QUEUE, queue.number()),
        (key::SA_ATTRS, sa.number()),
        (key::NORMALIZATION, fixed("normalization")),
        (key::UTF8ONLY, fixed("utf8only")),
        (key::CASESENSITIVITY, fixed("casesensitivity")),
    ] {
        master.put_u64(tx, name, value)?;
    }
    Ok(())
}

/// Writes layouts that are not on disk yet.
pub(crate) fn save_layouts(zap: &Zap, tx: &Tx<'_>, layouts: &mut Layouts) -> dmu::Result<()> {
    for (name, order) in layouts.unsaved() {
        zap.put(tx, name.as_bytes(), &Value::u16s(order))?;
    }
    layouts.saved();
    Ok(())
}
