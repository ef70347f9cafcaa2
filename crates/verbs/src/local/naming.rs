//! Which names are the same in a file system that is about to be made.
//!
//! The one idea: that is fixed when it is made, and is that of the file system above where nobody has asked for anything
//! else. Names that are normalized are text, so no others are taken there.

use std::collections::BTreeMap;

use format::master_node::{CASE_SENSITIVITY, NORMALIZATION, UTF8_ONLY};
use fs::Fixed;
use pool::dsl::lookup;
use pool::props::PropError;
use pool::{Pool, PoolError, Stored};
use rt::sync::Arc;

/// What was asked for, by name.
type Props = BTreeMap<String, Stored>;

fn number(props: &Props, name: &str) -> Option<u64> {
    match props.get(name) {
        Some(Stored::Number(number)) => Some(*number),
        _ => None,
    }
}

/// Refuses to normalize names that need not be text.
pub(super) fn check(props: &Props) -> Result<(), PropError> {
    let is_normalized = number(props, NORMALIZATION).is_some_and(|form| form != 0);
    match is_normalized && number(props, UTF8_ONLY) == Some(0) {
        true => Err(PropError::NormalizedBytes),
        false => Ok(()),
    }
}

/// Adds what nobody has asked for, as it is in the file system `above`; the first one of a pool has none.
pub(super) fn complete(
    above: Option<(&Arc<Pool>, &str)>,
    props: &mut Props,
) -> Result<(), PoolError> {
    let found = match above {
        Some((pool, name)) => Some(fs::fixed(pool, &lookup::find(pool.mos(), name)?)?),
        None => None,
    };
    let (normalization, utf8_only, case) = match found {
        Some(Fixed::Filesystem { normalization, utf8_only, case, .. }) => {
            (normalization, utf8_only, case)
        }
        _ => (0, 0, 0),
    };
    let mut add = |name: &str, value| {
        props.entry(name.into()).or_insert(Stored::Number(value));
    };
    add(CASE_SENSITIVITY, case);
    add(NORMALIZATION, normalization);
    add(UTF8_ONLY, utf8_only);
    if number(props, NORMALIZATION) != Some(0) {
        props.insert(UTF8_ONLY.into(), Stored::Number(1));
    }
    Ok(())
}
