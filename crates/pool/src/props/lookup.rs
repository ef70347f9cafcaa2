//! Which value holds: the data set's own, its parents', or the default.
//!
//! In the properties' ZAP of a directory (or snapshot), `NAME` is the local value, `NAME$recvd`
//! one that came with a stream, `NAME$inherit` says that the received one is put aside, and
//! `NAME$iuv` is a value that older software must not see. FORMAT: section 8.7.

use super::assign::{Key, Value};
use super::dataset::{DefaultValue, Prop};

/// Where a value comes from.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum Source {
    /// It is a fact, nobody set it.
    None,
    /// Nobody set it.
    Default,
    /// It was set here.
    Local,
    /// It was set on the named data set above.
    Inherited(String),
    /// It came with a stream.
    Received,
    /// It holds while the data set is mounted.
    Temporary,
}

/// The properties of one data set as they are on disk.
pub trait Stored {
    /// What reading may fail with.
    type Error;

    /// The value of a key, suffixes included; `None` if it is not there.
    ///
    /// # Errors
    /// The properties could not be read.
    fn stored(&mut self, key: &str) -> Result<Option<Value>, Self::Error>;
}

impl<E, F: FnMut(&str) -> Result<Option<Value>, E>> Stored for F {
    type Error = E;

    fn stored(&mut self, key: &str) -> Result<Option<Value>, E> {
        self(key)
    }
}

/// The value that one data set gives a property itself, and whether it was received.
///
/// # Errors
/// What `level` reports.
pub fn local<S: Stored>(name: &str, level: &mut S) -> Result<Option<(Value, Source)>, S::Error> {
    if let Some(value) = level.stored(&format!("{name}$iuv"))? {
        return Ok(Some((value, Source::Local)));
    }
    if let Some(value) = level.stored(name)? {
        return Ok(Some((value, Source::Local)));
    }
    if level.stored(&format!("{name}$inherit"))?.is_some() {
        return Ok(None);
    }
    Ok(level.stored(&format!("{name}$recvd"))?.map(|value| (value, Source::Received)))
}

/// The value that holds for the first of `levels`, which goes from a data set up to its pool:
/// names and properties of each. `None` if nobody set it and it has no default.
///
/// # Errors
/// What a level reports.
pub fn lookup<S: Stored>(
    key: &Key,
    levels: impl IntoIterator<Item = (String, S)>,
) -> Result<Option<(Value, Source)>, S::Error> {
    let name = key.name();
    let inherited = match key {
        Key::Native(prop) => prop.is_inherited(),
        Key::User(_) => true,
        Key::Space(_) | Key::Written(_) => false,
    };
    for (depth, (dataset, mut level)) in levels.into_iter().enumerate() {
        if let Some((value, source)) = local(&name, &mut level)? {
            let source = if depth == 0 { source } else { Source::Inherited(dataset) };
            return Ok(Some((value, source)));
        }
        if !inherited {
            break;
        }
    }
    Ok(match key {
        Key::Native(prop) => default_value(*prop).map(|value| (value, Source::Default)),
        _ => None,
    })
}

/// The value of a property that nobody set.
#[must_use]
pub fn default_value(prop: Prop) -> Option<Value> {
    match prop.info().default {
        DefaultValue::None => None,
        DefaultValue::Number(number) => Some(Value::Number(number)),
        DefaultValue::Text(text) => Some(Value::text(text)),
    }
}
