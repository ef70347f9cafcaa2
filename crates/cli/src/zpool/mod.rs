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

use std::time::Duration;

use verbs::props::name::check_pool;
use verbs::{Doing, Error, Why, pools};

use crate::door::{Door, Stop};
use crate::lists::checked;

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
    mut asked: pools::Status,
) -> Result<(Vec<pools::PoolReport>, Vec<Error>), Stop> {
    let all = asked.names.is_empty();
    let (good, mut errors) = checked(asked.names, known_name);
    if good.is_empty() && !all {
        return Ok((Vec::new(), errors));
    }
    (asked.names, asked.places) = (good, door.places(asked.places));
    let mut reports = Vec::new();
    for report in door.engine.pool_status(&asked)? {
        match report {
            Ok(report) => reports.push(report),
            Err(error) => errors.push(error),
        }
    }
    reports.sort_by(|a, b| a.name.cmp(&b.name));
    reports.dedup_by(|a, b| a.guid == b.guid);
    Ok((reports, errors))
}

/// Numbers at the end of the operands: how often to print, in seconds or parts of one, and how many times.
pub(crate) fn interval(names: &mut Vec<String>) -> Result<Option<(Duration, Option<u64>)>, Stop> {
    interval_but(names, |_| false)
}

/// The same, where numbers may be names: `is_name` knows them.
pub(crate) fn interval_but(
    names: &mut Vec<String>,
    is_name: impl Fn(&str) -> bool,
) -> Result<Option<(Duration, Option<u64>)>, Stop> {
    let mut take = || -> Result<Option<f64>, Stop> {
        let is_number = |word: &&String| {
            word.bytes().all(|c| c.is_ascii_digit() || c == b'.') && !is_name(word)
        };
        let number = names.last().filter(is_number).and_then(|word| word.parse::<f64>().ok());
        match number {
            Some(0.0) => Err(Stop::Usage("interval cannot be zero".into())),
            Some(_) => {
                names.pop();
                Ok(number)
            }
            None => Ok(None),
        }
    };
    let Some(last) = take()? else { return Ok(None) };
    let (seconds, count) = match take()? {
        None => (last, None),
        Some(seconds) => (seconds, Some((last as u64).max(1))),
    };
    let interval = Duration::try_from_secs_f64(seconds).unwrap_or(Duration::MAX);
    Ok(Some((interval, count)))
}
