//! The ledger of the DSL: who is charged for a block that was born or has died (INV-9).
//!
//! FORMAT: sections 8.3 and 8.6. A directory is charged in one of five parts; its parent is charged
//! with what goes beyond the child's reservation.

use dmu::{Space, Tx};
use format::dsl_dataset::DslDatasetPhys;
use format::dsl_dir::Used;

use crate::dsl::lookup::DEPTH_MAX;
use crate::error::{PoolError, Result};
use crate::mos::Mos;

/// A change of space, signed.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Delta {
    /// Deflated bytes.
    pub used: i64,
    /// Physical bytes.
    pub compressed: i64,
    /// Logical bytes.
    pub uncompressed: i64,
}

impl Delta {
    /// What was born less what died.
    pub fn between(born: Space, died: Space) -> Delta {
        Delta {
            used: born.used as i64 - died.used as i64,
            compressed: born.compressed as i64 - died.compressed as i64,
            uncompressed: born.uncompressed as i64 - died.uncompressed as i64,
        }
    }

    /// Does nothing change?
    pub fn is_zero(&self) -> bool {
        *self == Self::default()
    }
}

/// The space of all that a data set refers to.
pub(crate) fn referenced(ds: &DslDatasetPhys) -> Space {
    Space {
        used: ds.referenced_bytes.get(),
        compressed: ds.compressed_bytes.get(),
        uncompressed: ds.uncompressed_bytes.get(),
    }
}

fn shift(value: u64, delta: i64, what: &'static str) -> Result<u64> {
    value.checked_add_signed(delta).ok_or_else(|| PoolError::Damaged {
        what: "space accounting",
        detail: format!("{what} of {value} cannot change by {delta}"),
    })
}

/// How far `to` is above `from`.
pub(crate) fn difference(to: u64, from: u64) -> Result<i64> {
    to.checked_signed_diff(from).ok_or_else(|| PoolError::Damaged {
        what: "space accounting",
        detail: format!("from {from} to {to} is not a change of space"),
    })
}

/// Charges directory `number` in part `part`, and its ancestors.
pub fn charge(mos: &Mos, tx: &Tx<'_>, number: u64, part: Used, delta: Delta) -> Result<()> {
    let mut at = number;
    let mut parts = vec![(part, delta.used)];
    let mut delta = delta;
    for _ in 0..DEPTH_MAX {
        let mut dir = mos.dir(at)?;
        let before = dir.used_bytes.get();
        let reserved = dir.reserved_bytes.get();
        for (part, bytes) in &parts {
            dir.set_used(*part, shift(dir.used(*part), *bytes, "a part")?);
        }
        let after = shift(before, delta.used, "used")?;
        dir.used_bytes.set(after);
        dir.compressed_bytes.set(shift(
            dir.compressed_bytes.get(),
            delta.compressed,
            "compressed",
        )?);
        let uncompressed = shift(dir.uncompressed_bytes.get(), delta.uncompressed, "uncompressed")?;
        dir.uncompressed_bytes.set(uncompressed);
        mos.set_dir(tx, at, &dir)?;
        let above = difference(after.max(reserved), before.max(reserved))?;
        at = dir.parent_object.get();
        if at == 0 {
            return Ok(());
        }
        parts = vec![(Used::Child, delta.used), (Used::ChildReserved, above - delta.used)];
        delta.used = above;
    }
    let detail = format!("object {number}: parents without end");
    Err(PoolError::Damaged { what: "DSL directory", detail })
}

/// Moves `bytes` of a directory from one part to another; what it uses in all stays.
pub(crate) fn move_between(
    mos: &Mos,
    tx: &Tx<'_>,
    number: u64,
    (from, to): (Used, Used),
    bytes: u64,
) -> Result<()> {
    let mut dir = mos.dir(number)?;
    let by = difference(bytes, 0)?;
    dir.set_used(from, shift(dir.used(from), -by, "a part")?);
    dir.set_used(to, shift(dir.used(to), by, "a part")?);
    mos.set_dir(tx, number, &dir)
}

/// Charges the head of directory `number` with a change of its blocks; a refreservation of
/// `reserved` bytes is used up first. `unique` are the unique bytes before and after.
pub fn charge_head(
    mos: &Mos,
    tx: &Tx<'_>,
    number: u64,
    delta: Delta,
    unique: (u64, u64),
    reserved: u64,
) -> Result<()> {
    if reserved == 0 {
        return charge(mos, tx, number, Used::Head, delta);
    }
    let grows = difference(unique.1.max(reserved), unique.0.max(reserved))?;
    // HEAD grows by all of it, REFRSRV shrinks by what was reserved for it.
    let mut dir = mos.dir(number)?;
    dir.set_used(Used::Head, shift(dir.used(Used::Head), delta.used - grows, "HEAD")?);
    let rest = shift(dir.used(Used::RefReserved), grows - delta.used, "REFRSRV")?;
    dir.set_used(Used::RefReserved, rest);
    mos.set_dir(tx, number, &dir)?;
    charge(mos, tx, number, Used::Head, Delta { used: grows, ..delta })
}
