//! Space and objects per user, group and project: three ZAPs of an object set.
//!
//! Keys: the identity in hexadecimal for bytes, with "obj-" before it for objects. An entry that
//! becomes zero is removed. FORMAT: section 11.8.

use std::collections::BTreeMap;

use format::dnode::DnodeFlags;
use format::objset::ObjsetFlags;
use rt::sync::Arc;

use crate::error::Result;
use crate::object::Object;
use crate::txg::Tx;
use crate::zap_object::Zap;

/// Flags that an accounted dnode gets in an object set with these flags.
pub(crate) fn flags_for(objset_flags: u64) -> u8 {
    let mut flags = 0;
    if objset_flags & ObjsetFlags::USERACCOUNTING_COMPLETE != 0 {
        flags |= DnodeFlags::USERUSED_ACCOUNTED;
    }
    if objset_flags & ObjsetFlags::USEROBJACCOUNTING_COMPLETE != 0 {
        flags |= DnodeFlags::USEROBJUSED_ACCOUNTED;
    }
    flags
}

/// Makes an accounting object an empty ZAP.
pub(crate) fn create(object: &Arc<Object>, tx: &Tx<'_>) -> Result<()> {
    Zap::format(object.clone(), tx, 0).map(|_| ())
}

/// Adds the differences (bytes, objects) to the entries.
///
/// A counter that is off, as pools of others have them, is no reason to stop: it wraps, as with OpenZFS.
pub(crate) fn apply(
    object: &Arc<Object>,
    tx: &Tx<'_>,
    objset_flags: u64,
    deltas: &BTreeMap<u64, (i64, i64)>,
) -> Result<()> {
    let zap = Zap::of(object.clone())?;
    let count = objset_flags & ObjsetFlags::USEROBJACCOUNTING_COMPLETE != 0;
    for (id, (bytes, objects)) in deltas {
        add(&zap, tx, format!("{id:x}").as_bytes(), *bytes)?;
        if count {
            add(&zap, tx, format!("obj-{id:x}").as_bytes(), *objects)?;
        }
    }
    Ok(())
}

fn add(zap: &Zap, tx: &Tx<'_>, name: &[u8], delta: i64) -> Result<()> {
    if delta == 0 {
        return Ok(());
    }
    match zap.get_u64(name)?.unwrap_or(0).wrapping_add_signed(delta) {
        0 => zap.remove(tx, name).map(|_| ()),
        now => zap.put_u64(tx, name, now),
    }
}
