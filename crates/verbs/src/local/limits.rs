//! Quotas and reservations: whether they can be kept, asked before they are set.
//!
//! A reservation of what is not there, or a quota below what is used, would be a promise broken from
//! the start; OpenZFS refuses both, by the rules that are here.

use std::collections::BTreeMap;

use pool::dsl::{lookup, property};
use pool::props::LIMITS;
use pool::{Pool, PoolError, Stored};

use crate::Why;

/// Why a limit was not set.
pub(super) enum Limit {
    /// It cannot be kept.
    Refused,
    /// It could not be written.
    Failed(PoolError),
}

impl From<PoolError> for Limit {
    fn from(e: PoolError) -> Self {
        Limit::Failed(e)
    }
}

/// Takes quotas and reservations out of `properties`.
pub(super) fn limits(
    properties: impl Iterator<Item = (String, Stored)>,
) -> (Vec<(String, Stored)>, BTreeMap<String, Stored>) {
    let (mut limits, rest): (Vec<_>, Vec<_>) =
        properties.partition(|(name, _)| LIMITS.contains(&name.as_str()));
    limits.sort_by_key(|(name, _)| LIMITS.iter().position(|limit| limit == name));
    (limits, rest.into_iter().collect())
}

/// Sets quotas and reservations, one after the other; stops at the first that cannot be kept.
pub(super) fn set_limits(
    pool: &Pool,
    name: &str,
    limits: Vec<(String, Stored)>,
) -> Result<(), Limit> {
    for (property, value) in limits {
        if refusal(pool, name, &property, &value)?.is_some() {
            return Err(Limit::Refused);
        }
        pool.set_property(name, &property, Some(value))?;
    }
    Ok(())
}

/// Why a data set cannot get a quota or reservation; `None`: it can, or the property is another.
pub(super) fn refusal(
    pool: &Pool,
    name: &str,
    property: &str,
    value: &Stored,
) -> Result<Option<Why>, PoolError> {
    let Stored::Number(wanted) = *value else { return Ok(None) };
    if wanted == 0 || !LIMITS.contains(&property) {
        return Ok(None);
    }
    let found = lookup::find(pool.mos(), name)?;
    let (used, unique) = (found.dir.used_bytes.get(), found.phys.unique_bytes.get());
    let own = |name: &str| property::number(pool.mos(), &found, name, false, 0);
    let parent = found.dir.parent_object.get();
    let (below, above) = (Ok(Some(Why::BelowUsed)), Ok(Some(Why::AboveAvailable)));
    match property {
        "quota" if wanted < used || wanted < found.dir.reserved_bytes.get() => below,
        "refquota" => {
            let reserved = own("refreservation")?;
            if wanted < found.phys.referenced_bytes.get() || wanted < reserved {
                below
            } else {
                Ok(None)
            }
        }
        "reservation" => {
            let held = used.max(found.dir.reserved_bytes.get());
            let more = used.max(wanted).saturating_sub(held);
            let room = match parent {
                0 => pool.space()?.for_datasets().saturating_sub(used),
                parent => pool.dir_available(parent)?,
            };
            let quota = found.dir.quota_bytes.get();
            let fits = more == 0 || (more <= room && (quota == 0 || wanted <= quota));
            if fits { Ok(None) } else { above }
        }
        "refreservation" => {
            let more = unique.max(wanted).saturating_sub(unique.max(own("refreservation")?));
            let quota = own("refquota")?;
            let fits = more == 0
                || (more <= pool.dir_available(found.dir_object)?
                    && (quota == 0 || wanted <= quota));
            if fits { Ok(None) } else { above }
        }
        _ => Ok(None),
    }
}
