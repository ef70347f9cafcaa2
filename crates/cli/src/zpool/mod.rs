//! The commands of `zpool`.

pub mod create;
pub mod disks;
pub mod events;
pub mod import;
pub mod iostat;
mod iostat_table;
pub mod list;
pub mod scrub;
pub mod set;
pub mod status;
pub mod values;
pub mod vdevs;
pub mod words;

use verbs::props::name::check_pool;
use verbs::{Doing, Error, Why, pools};

use crate::door::{Door, Stop};

/// Checks the name of a pool that should be there.
///
/// # Errors
/// The message of a name that no pool can have.
pub(crate) fn known_name(name: &str) -> Result<(), Error> {
    check_pool(name.as_bytes(), false).map_err(|why| Error::open(name, why))
}

/// Checks the name of a new pool.
///
/// # Errors
/// The message of a name that no pool can have.
pub(crate) fn new_name(doing: Doing, name: &str) -> Result<(), Error> {
    check_pool(name.as_bytes(), true).map_err(|why| Error::cannot(doing, Why::NewPoolName(why)))
}

/// Reports of the pools of these names, in the order of their names; what could not be opened
/// comes after, as errors.
pub(crate) fn reports(
    door: &mut Door<'_>,
    names: &[String],
    places: Vec<std::path::PathBuf>,
    damaged: bool,
) -> Result<(Vec<pools::PoolReport>, Vec<Error>), Stop> {
    let mut errors = Vec::new();
    let mut good = Vec::new();
    for name in names {
        match known_name(name) {
            Ok(()) => good.push(name.clone()),
            Err(error) => errors.push(error),
        }
    }
    if good.is_empty() && !names.is_empty() {
        return Ok((Vec::new(), errors));
    }
    let places = door.places(places);
    let mut reports = Vec::new();
    for report in door.engine.pool_status(&pools::Status { names: good, places, damaged })? {
        match report {
            Ok(report) => reports.push(report),
            Err(error) => errors.push(error),
        }
    }
    reports.sort_by(|a, b| a.name.cmp(&b.name));
    reports.dedup_by(|a, b| a.guid == b.guid);
    Ok((reports, errors))
}

/// Operands at the end that are numbers: how often to print, in seconds, and how many times.
pub(crate) fn interval(names: &mut Vec<String>) -> Result<Option<(u64, Option<u64>)>, Stop> {
    let mut numbers = Vec::new();
    while numbers.len() < 2 {
        let Some(number) = names.last().and_then(|word| word.parse::<u64>().ok()) else { break };
        numbers.insert(0, number);
        names.pop();
    }
    match numbers[..] {
        [0] | [0, _] => Err(Stop::Usage("interval cannot be zero".into())),
        [seconds] => Ok(Some((seconds, None))),
        [seconds, count] => Ok(Some((seconds, Some(count)))),
        _ => Ok(None),
    }
}
