//! Properties as they are stored: in the ZAP of a directory (or snapshot), inherited from above.
//!
//! FORMAT: section 8.7. What a number means is in `crate::props`; here are only places and rules
//! of inheritance.

use dmu::{Tx, Zap};
use format::zap::Value;

use crate::dsl::lookup::{DEPTH_MAX, Found};
use crate::error::Result;
use crate::mos::Mos;

/// Where a value comes from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Source {
    /// Set on the data set itself.
    Local,
    /// Received with a stream.
    Received,
    /// Set on the ancestor with this directory object.
    Inherited(u64),
}

/// A stored value: one number, or a string without its NUL.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Stored {
    /// A number or an index.
    Number(u64),
    /// Text.
    Text(Vec<u8>),
}

fn stored(value: &Value) -> Stored {
    match value.as_u64() {
        Some(number) => Stored::Number(number),
        None => Stored::Text(value.as_string().unwrap_or_default().to_vec()),
    }
}

/// The value in one properties ZAP, local before received.
fn in_zap(mos: &Mos, zap: u64, name: &str) -> Result<Option<(Stored, Source)>> {
    if zap == 0 {
        return Ok(None);
    }
    let zap = mos.zap(zap)?;
    for key in [format!("{name}$iuv"), name.to_string()] {
        if let Some(value) = zap.get(key.as_bytes())? {
            return Ok(Some((stored(&value), Source::Local)));
        }
    }
    if zap.get(format!("{name}$inherit").as_bytes())?.is_some() {
        return Ok(None);
    }
    let received = zap.get(format!("{name}$recvd").as_bytes())?;
    Ok(received.map(|value| (stored(&value), Source::Received)))
}

/// What a directory or snapshot with this ZAP of properties says of one by itself, be it that it came with a stream.
pub(crate) fn own(mos: &Mos, props_zap: u64, name: &str) -> Result<Option<Stored>> {
    Ok(in_zap(mos, props_zap, name)?.map(|(value, _)| value))
}

/// The stored value that holds for a data set; `None`: the default does.
///
/// `inheritable`: look at the ancestors too. Snapshots have a ZAP of their own and inherit from
/// their file system.
pub fn get(
    mos: &Mos,
    found: &Found,
    name: &str,
    inheritable: bool,
) -> Result<Option<(Stored, Source)>> {
    if found.is_snapshot() {
        if let Some(own) = in_zap(mos, found.phys.props_object.get(), name)? {
            return Ok(Some(own));
        }
        if !inheritable {
            return Ok(None);
        }
    }
    let mut at = found.dir_object;
    for depth in 0..DEPTH_MAX {
        let dir = mos.dir(at)?;
        if let Some((value, source)) = in_zap(mos, dir.props_zap_object.get(), name)? {
            let own = depth == 0 && !found.is_snapshot();
            return Ok(Some((value, if own { source } else { Source::Inherited(at) })));
        }
        at = dir.parent_object.get();
        if !inheritable || at == 0 {
            return Ok(None);
        }
    }
    Ok(None)
}

/// The number that holds for a data set, or `default`.
pub fn number(mos: &Mos, found: &Found, name: &str, inherit: bool, default: u64) -> Result<u64> {
    Ok(match get(mos, found, name, inherit)? {
        Some((Stored::Number(number), _)) => number,
        _ => default,
    })
}

/// A change of one property of a data set.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Change {
    /// It gets this value.
    Set(Stored),
    /// It is as above, whatever came with a stream.
    Inherit,
    /// It is what came with a stream; if nothing did, as above.
    Revert,
}

impl Change {
    /// The value, if one is set.
    pub fn value(&self) -> Option<&Stored> {
        match self {
            Change::Set(value) => Some(value),
            Change::Inherit | Change::Revert => None,
        }
    }
}

/// What a data set itself says of a property once `change` is done; `None`: nothing.
pub(crate) fn after(
    mos: &Mos,
    props_zap: u64,
    name: &str,
    change: &Change,
) -> Result<Option<Stored>> {
    match change {
        Change::Set(value) => Ok(Some(value.clone())),
        Change::Inherit => Ok(None),
        Change::Revert => {
            let received = mos.zap(props_zap)?.get(format!("{name}$recvd").as_bytes())?;
            Ok(received.as_ref().map(stored))
        }
    }
}

/// Changes a property in a ZAP of properties.
pub fn change(mos: &Mos, tx: &Tx<'_>, props_zap: u64, name: &str, change: &Change) -> Result<()> {
    let zap = mos.zap(props_zap)?;
    let aside = format!("{name}$inherit");
    zap.remove(tx, format!("{name}$iuv").as_bytes())?;
    match change {
        Change::Set(value) => {
            zap.remove(tx, aside.as_bytes())?;
            put(&zap, tx, name, value)?;
        }
        Change::Inherit => {
            zap.remove(tx, name.as_bytes())?;
            if zap.get(format!("{name}$recvd").as_bytes())?.is_some() {
                zap.put_u64(tx, aside.as_bytes(), 0)?;
            }
        }
        Change::Revert => {
            zap.remove(tx, name.as_bytes())?;
            zap.remove(tx, aside.as_bytes())?;
        }
    }
    Ok(())
}

/// Stores a value in a ZAP of properties.
pub(crate) fn put(zap: &Zap, tx: &Tx<'_>, name: &str, value: &Stored) -> Result<()> {
    match value {
        Stored::Number(number) => zap.put_u64(tx, name.as_bytes(), *number)?,
        Stored::Text(text) => zap.put(tx, name.as_bytes(), &Value::string(text))?,
    }
    Ok(())
}

/// Gives a property of a directory a value.
pub fn set(mos: &Mos, tx: &Tx<'_>, dir_object: u64, name: &str, value: &Stored) -> Result<()> {
    let zap = mos.dir(dir_object)?.props_zap_object.get();
    change(mos, tx, zap, name, &Change::Set(value.clone()))
}

/// All properties stored with a directory, by name.
pub fn local(mos: &Mos, props_zap: u64) -> Result<Vec<(String, Stored)>> {
    let mut out = Vec::new();
    for entry in mos.zap(props_zap)?.entries()? {
        out.push((String::from_utf8_lossy(&entry.name).into_owned(), stored(&entry.value)));
    }
    out.sort_by(|a, b| a.0.cmp(&b.0));
    Ok(out)
}
