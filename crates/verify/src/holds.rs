//! What an object set holds: does it say what its first object shows?
//!
//! Whoever mounts a file system or opens a volume asks its object set first, and goes no further if that says that it is
//! something else. FORMAT: section 5.1.

use crate::object;
use crate::report::FindingKind;
use crate::walk::Walk;
use format::master_node::MASTER_NODE_OBJECT;
use format::objset::ObjsetType;
use format::{ObjectType, ObjsetPhys};

/// Examines the object set of a data set.
pub(crate) fn check(walk: &mut Walk<'_>, name: &str, objset: &ObjsetPhys) {
    // What cannot be read has been told of as lost; what is just being received may have none yet.
    let first = object::dnode(&mut walk.blocks, objset, MASTER_NODE_OBJECT).ok().flatten();
    let first = first.map(|dnode| dnode.kind());
    let due = match objset.kind {
        ObjsetType::Zfs => Some(ObjectType::MASTER_NODE),
        ObjsetType::Zvol => Some(ObjectType::ZVOL),
        _ => None,
    };
    if due.is_none() || first.is_some() && first != due {
        let first = first.map_or("nothing", |kind| kind.name());
        walk.findings.add(FindingKind::Structure, || {
            format!(
                "{name}: an object set of type {}, its first object is {first}",
                objset.kind.id()
            )
        });
    }
}
