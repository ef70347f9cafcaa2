//! The commands of `zfs`.

pub mod bookmark;
pub mod branch;
pub mod change;
pub mod diff;
pub mod get;
pub mod inherit;
pub mod list;
pub mod order;
pub mod places;
pub mod space;

use std::ffi::{OsStr, OsString};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use verbs::Error;
use verbs::datasets::DatasetReport;
use verbs::props::name::check_entity;
use verbs::props::show::{Style, show, show_number};
use verbs::props::{Key, Kind, Kinds, Prop, Source, Unit, Value};

use crate::door::{Door, Stop, text};
use crate::getopt::list as parts;

/// Kinds of data sets as `-t` takes them.
///
/// # Errors
/// The message of a word that is none.
pub(crate) fn kinds(word: &OsStr) -> Result<Kinds, Stop> {
    let mut kinds = Kinds::NONE;
    for part in parts(word) {
        kinds = match part.as_bytes() {
            b"filesystem" => kinds.with(Kind::Filesystem),
            b"volume" => kinds.with(Kind::Volume),
            b"snapshot" | b"snap" => kinds.with(Kind::Snapshot),
            b"bookmark" => kinds.with(Kind::Bookmark),
            b"all" => Kinds::ALL,
            _ => return Err(Stop::Usage(format!("invalid type '{}'", text(&part)))),
        };
    }
    Ok(kinds)
}

/// What `-d` means: levels of depth, or a directory to look for pools in.
pub(crate) enum Depth {
    /// Levels.
    Levels(usize),
    /// A directory: no number, and there.
    Place(PathBuf),
}

/// Reads the value of `-d`.
///
/// # Errors
/// The message of a value that is neither.
pub(crate) fn depth(word: &OsString) -> Result<Depth, Stop> {
    let shown = text(word);
    match shown.parse::<i64>() {
        Ok(levels) if levels >= 0 => {
            Ok(Depth::Levels(usize::try_from(levels).unwrap_or(usize::MAX)))
        }
        Ok(_) => Err(Stop::Usage("Depth can not be negative.".into())),
        Err(_) if Path::new(word).exists() => Ok(Depth::Place(word.into())),
        Err(_) => Err(Stop::Usage(format!("{shown} is not an integer"))),
    }
}

/// Checks the name of a data set that should be there.
///
/// # Errors
/// The message of a name that none can have.
pub(crate) fn known_name(name: &str) -> Result<(), Error> {
    check_entity(name.as_bytes()).map_err(|why| Error::open(name, why))
}

/// The data set that a word means: by its name, or by a path in it where a server has it mounted.
///
/// # Errors
/// The message of a name that none can have, or of a path where there is none.
pub(crate) fn meant(door: &mut Door<'_>, word: String) -> Result<String, Error> {
    if !word.starts_with('/') && !word.starts_with("./") {
        return known_name(&word).map(|()| word);
    }
    let path = Path::new(&word).canonicalize();
    let path = path.map_err(|_| Error::open(&*word, verbs::Why::NoFile))?;
    let above = door.engine.mounted()?.into_iter().filter(|(_, dir)| path.starts_with(dir));
    // The innermost. What somebody else has mounted further in is another device.
    let device = |path: &Path| path.metadata().map(|meta| meta.dev()).ok();
    let found = above.max_by_key(|(_, dir)| dir.as_os_str().len());
    let found = found.filter(|(_, dir)| device(dir) == device(&path));
    found.map(|(name, _)| name).ok_or(Error::NotMounted(word))
}

/// The same of several words, of which some may mean nothing.
pub(crate) fn all_meant(
    door: &mut Door<'_>,
    words: impl IntoIterator<Item = String>,
) -> (Vec<String>, Vec<Error>) {
    let (mut names, mut errors) = (Vec::new(), Vec::new());
    for word in words {
        match meant(door, word) {
            Ok(name) => names.push(name),
            Err(error) => errors.push(error),
        }
    }
    (names, errors)
}

/// The text of a property's value.
pub(crate) fn value_text(
    door: &Door<'_>,
    key: &Key,
    value: &Value,
    exact: bool,
) -> Option<Vec<u8>> {
    let date = |seconds: u64| door.date(seconds);
    let style = Style { exact, date: &date };
    match (key, value) {
        (Key::Native(prop), value) => show(*prop, value, style),
        (_, Value::Text(text)) => Some(text.clone()),
        (Key::Space(space), Value::Number(number)) => {
            let unit = match (space.is_quota(), space.objects) {
                (true, true) if *number == 0 => Unit::Limit,
                (_, true) => Unit::Size,
                (true, false) => Unit::Limit,
                (false, false) => Unit::Bytes,
            };
            Some(show_number(unit, *number, style).into_bytes())
        }
        (Key::Written(_) | Key::User(_), Value::Number(number)) => {
            Some(show_number(Unit::Bytes, *number, style).into_bytes())
        }
    }
}

/// Text and source of a data set's property; `None` if it has none.
pub(crate) fn property<'a>(
    door: &Door<'_>,
    dataset: &'a DatasetReport,
    key: &Key,
    exact: bool,
) -> Option<(Vec<u8>, &'a Source)> {
    match key {
        Key::Native(Prop::Name) => Some((dataset.name.clone().into_bytes(), &Source::None)),
        Key::Native(Prop::Type) => Some((dataset.kind.name().into(), &Source::None)),
        key => {
            let (value, source) = dataset.property(key)?;
            Some((value_text(door, key, value, exact)?, source))
        }
    }
}

/// A property of a data set as it is shown.
pub(crate) struct Cell<'a> {
    /// The property.
    pub(crate) key: Key,
    /// Its text; `-` of one that the data set does not have.
    pub(crate) value: Vec<u8>,
    /// Where it is from.
    pub(crate) source: &'a Source,
}

/// What is shown of a property, whether or not the data set has it.
pub(crate) fn cell<'a>(
    door: &Door<'_>,
    dataset: &'a DatasetReport,
    key: &Key,
    exact: bool,
) -> Cell<'a> {
    let found = property(door, dataset, key, exact);
    let (value, source) = found.unwrap_or_else(|| (b"-".to_vec(), &Source::None));
    Cell { key: key.clone(), value, source }
}
