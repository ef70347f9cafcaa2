//! Lists of properties and columns as they are typed, and names of which some may be wrong.
//!
//! The one idea: `zpool` and `zfs` read them by the same rules, and complain of them in the same words.

use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;

use verbs::Error;

use crate::door::{Stop, text};
use crate::getopt::list;

/// Properties of a list, each as `named` knows it; `None` for `all`.
///
/// # Errors
/// The message of a name that is none.
pub(crate) fn keys<K>(
    word: &OsStr,
    named: impl Fn(&[u8]) -> Option<K>,
) -> Result<Option<Vec<K>>, Stop> {
    if word == "all" {
        return Ok(None);
    }
    let bad = |what: String| Stop::Usage(format!("bad property list: {what}"));
    let names = list(word);
    if names.is_empty() {
        return Err(bad("no properties specified".into()));
    }
    let mut keys = Vec::new();
    for name in names {
        if name.is_empty() {
            return Err(bad("empty property name".into()));
        }
        let key = named(name.as_bytes());
        keys.push(key.ok_or_else(|| bad(format!("invalid property '{}'", text(&name))))?);
    }
    Ok(Some(keys))
}

/// Columns of a list, of those that there are; `all` alone means each of them, in their order.
///
/// # Errors
/// The message of a name that is none, or of more columns than there are.
pub(crate) fn fields<F: Copy>(word: &OsStr, all: &[(&str, F)]) -> Result<Vec<F>, Stop> {
    let mut fields = Vec::new();
    for part in list(word) {
        if fields.len() == all.len() {
            return Err(Stop::Usage("too many fields given to -o option".into()));
        }
        match all.iter().find(|(name, _)| part == *name) {
            Some((_, field)) => fields.push(*field),
            None if part == "all" && fields.is_empty() => {
                fields.extend(all.iter().map(|(_, field)| *field));
            }
            None if part == "all" => {
                let message = "\"all\" conflicts with specific fields given to -o option";
                return Err(Stop::Usage(message.into()));
            }
            None => return Err(Stop::Usage(format!("invalid column name '{}'", text(&part)))),
        }
    }
    Ok(fields)
}

/// The names that pass a check, and what is wrong with the others: a bad one keeps nothing from being done for the rest.
pub(crate) fn checked(
    names: impl IntoIterator<Item = String>,
    check: impl Fn(&str) -> Result<(), Error>,
) -> (Vec<String>, Vec<Error>) {
    let (mut good, mut errors) = (Vec::new(), Vec::new());
    for name in names {
        match check(&name) {
            Ok(()) => good.push(name),
            Err(error) => errors.push(error),
        }
    }
    (good, errors)
}
