//! `zfs snapshot`, `rollback`, `clone`, `promote`, `rename`, `hold`, `holds`, `release`.

use std::ffi::OsString;

use verbs::branches::{Branch, Fork, Hold, Promote, Rename, Rollback, Setting, Snapshot};
use verbs::props::NameError;
use verbs::props::name::{check_new_dataset, check_new_entity};
use verbs::{Doing, Error, Why};

use super::change::add;
use super::known_name;
use crate::door::{Door, Ran, Stop, bad_letter, bad_option, names, split_assignment, text};
use crate::getopt::{Opt, Words, sort};

fn setting(door: &Door<'_>) -> Setting {
    Setting { places: door.places.clone(), command: door.command.clone() }
}

/// Checks the name of a snapshot that should be there.
fn known_snapshot(name: &str) -> Result<(), Error> {
    known_name(name)?;
    match name.contains('@') {
        true => Ok(()),
        false => Err(Error::open(name, NameError::NoSnapshot)),
    }
}

/// A property of a list `-o name=value`.
fn property(typed: &mut Vec<(String, Vec<u8>)>, word: &OsString) -> Result<(), Stop> {
    match split_assignment(word) {
        Some((name, value)) => add(typed, name, value, 1),
        None => Err(Stop::Said("missing '=' for property=value argument".into(), 1)),
    }
}

/// The operands of a command that takes so many, by what they are called.
fn operands<const N: usize>(words: &Words, called: [&str; N]) -> Result<[String; N], Stop> {
    let given = names(words);
    if let Some(missing) = called.get(given.len()) {
        return Err(Stop::Usage(format!("missing {missing} argument")));
    }
    given.try_into().map_err(|_| Stop::Usage("too many arguments".into()))
}

/// `zfs snapshot`.
pub(crate) fn snapshot(door: &mut Door<'_>, words: &[OsString]) -> Ran {
    let words = sort(words, "ro:", &[]);
    let mut request = Snapshot { setting: setting(door), ..Default::default() };
    for opt in &words.opts {
        match opt {
            Opt::Flag('r') => request.recursive = true,
            Opt::Value('o', word) => property(&mut request.properties, word)?,
            other => return Err(bad_letter(other)),
        }
    }
    request.names = names(&words);
    if request.names.is_empty() {
        return Err(Stop::Usage("missing snapshot argument".into()));
    }
    for name in &request.names {
        if !name.contains('@') {
            return Err(Stop::Usage(String::new()));
        }
        let cannot = |why| Error::cannot(Doing::CreateSnapshot(name.clone()), why);
        check_new_entity(name.as_bytes()).map_err(|why| cannot(Why::Name(why)))?;
    }
    let several = request.recursive || request.names.len() > 1;
    match door.engine.dataset_branch(&Branch::Snapshot(request)) {
        Ok(()) => Ok(0),
        Err(e @ Error::Cannot { doing: Doing::Open(_), .. }) => Err(Stop::Usage(e.to_string())),
        Err(e) => {
            door.complain(e)?;
            if several {
                door.complain("no snapshots were created")?;
            }
            Ok(1)
        }
    }
}

/// `zfs rollback`.
pub(crate) fn rollback(door: &mut Door<'_>, words: &[OsString]) -> Ran {
    let words = sort(words, "rRf", &[]);
    let mut request = Rollback { setting: setting(door), ..Default::default() };
    for opt in &words.opts {
        match opt {
            Opt::Flag('r') => request.newer = true,
            Opt::Flag('R') => (request.newer, request.clones) = (true, true),
            Opt::Flag('f') => request.force = true,
            other => return Err(bad_letter(other)),
        }
    }
    [request.name] = operands(&words, ["dataset"])?;
    known_snapshot(&request.name)?;
    door.engine.dataset_branch(&Branch::Rollback(request))?;
    Ok(0)
}

/// `zfs clone`.
pub(crate) fn clone(door: &mut Door<'_>, words: &[OsString]) -> Ran {
    let words = sort(words, "o:p", &[]);
    let mut request = Fork { setting: setting(door), ..Default::default() };
    for opt in &words.opts {
        match opt {
            Opt::Flag('p') => request.parents = true,
            Opt::Value('o', word) => property(&mut request.properties, word)?,
            other => return Err(bad_option(other)),
        }
    }
    [request.origin, request.name] = operands(&words, ["source dataset", "target dataset"])?;
    known_snapshot(&request.origin)?;
    let name = &request.name;
    let cannot = |why: Why| Error::cannot(Doing::Create(name.clone()), why);
    check_new_dataset(name.as_bytes()).map_err(|why| cannot(Why::Name(why)))?;
    if !name.contains('/') {
        return Err(cannot(Why::NoDatasetName).into());
    }
    door.engine.dataset_branch(&Branch::Clone(request))?;
    Ok(0)
}

/// `zfs promote`.
pub(crate) fn promote(door: &mut Door<'_>, words: &[OsString]) -> Ran {
    let words = sort(words, "", &[]);
    if let Some(opt) = words.opts.first() {
        return Err(bad_letter(opt));
    }
    let [name] = operands(&words, ["clone filesystem"])?;
    known_name(&name)?;
    if name.contains('@') {
        return Err(Error::open(name, NameError::SnapshotHere).into());
    }
    let request = Promote { name, setting: setting(door) };
    door.engine.dataset_branch(&Branch::Promote(request))?;
    Ok(0)
}

/// `zfs rename`.
pub(crate) fn rename(door: &mut Door<'_>, words: &[OsString]) -> Ran {
    let words = sort(words, "fpru", &[]);
    let mut request = Rename { setting: setting(door), ..Default::default() };
    for opt in &words.opts {
        match opt {
            Opt::Flag('p') => request.parents = true,
            Opt::Flag('r') => request.recursive = true,
            Opt::Flag('u') => request.in_place = true,
            Opt::Flag('f') => request.force = true,
            other => return Err(bad_letter(other)),
        }
    }
    [request.from, request.to] = operands(&words, ["source dataset", "target dataset"])?;
    let usage = |message: &str| Err(Stop::Usage(message.into()));
    let (from, to) = (&request.from, &request.to);
    if request.recursive && request.parents {
        return usage("-p and -r options are mutually exclusive");
    }
    if request.recursive && request.in_place {
        return usage("-u and -r options are mutually exclusive");
    }
    if request.recursive && !from.contains('@') {
        return usage("source dataset for recursive rename must be a snapshot");
    }
    known_name(from)?;
    let renaming = |why| Error::cannot(Doing::RenameTo(to.clone()), Why::Name(why));
    match from.split_once('@') {
        // The last part alone will do.
        Some((path, _)) if !to.contains('@') => {
            check_new_entity(format!("{path}@{to}").as_bytes()).map_err(renaming)?;
        }
        Some((path, _)) => {
            let full = if to.starts_with('@') { format!("{path}{to}") } else { to.clone() };
            check_new_entity(full.as_bytes()).map_err(renaming)?;
        }
        None => {
            check_new_dataset(to.as_bytes()).map_err(renaming)?;
            if !to.contains('/') {
                let doing = Doing::Create(to.clone());
                return Err(Error::cannot(doing, Why::NoDatasetName).into());
            }
        }
    }
    door.engine.dataset_branch(&Branch::Rename(request))?;
    Ok(0)
}

/// The words of `zfs hold` and `zfs release`.
fn tagged(door: &Door<'_>, words: &[OsString]) -> Result<Hold, Stop> {
    let words = sort(words, "r", &[]);
    let mut request = Hold { setting: setting(door), ..Default::default() };
    for opt in &words.opts {
        match opt {
            Opt::Flag('r') => request.recursive = true,
            other => return Err(bad_letter(other)),
        }
    }
    let mut given = words.operands.iter().map(|word| text(word));
    request.tag = given.next().unwrap_or_default();
    request.names = given.collect();
    if request.names.is_empty() {
        return Err(Stop::Usage(String::new()));
    }
    Ok(request)
}

/// `zfs hold`.
pub(crate) fn hold(door: &mut Door<'_>, words: &[OsString]) -> Ran {
    let request = tagged(door, words)?;
    if request.tag.starts_with('.') {
        // Tags with a dot are the kernel's own, for as long as it runs.
        return Err(Stop::Usage("tag may not start with '.'".into()));
    }
    door.engine.dataset_branch(&Branch::Hold(request))?;
    Ok(0)
}

/// `zfs release`.
pub(crate) fn release(door: &mut Door<'_>, words: &[OsString]) -> Ran {
    let request = tagged(door, words)?;
    door.engine.dataset_branch(&Branch::Release(request))?;
    Ok(0)
}

/// `zfs holds`.
pub(crate) fn holds(door: &mut Door<'_>, words: &[OsString]) -> Ran {
    let words = sort(words, "rH", &[]);
    let mut request = Hold { setting: setting(door), ..Default::default() };
    let mut scripted = false;
    for opt in &words.opts {
        match opt {
            Opt::Flag('r') => request.recursive = true,
            Opt::Flag('H') => scripted = true,
            other => return Err(bad_letter(other)),
        }
    }
    let given = names(&words);
    if given.is_empty() {
        return Err(Stop::Usage(String::new()));
    }
    let mut status = 0;
    for name in given {
        match name.contains('@') {
            true => request.names.push(name),
            false => {
                door.complain(format!("'{name}' is not a snapshot"))?;
                status = 1;
            }
        }
    }
    let report = door.engine.dataset_holds(&request)?;
    status = status.max(door.complain_all(&report.errors)?);
    if report.holds.is_empty() {
        door.complain("no datasets available")?;
    }
    let rows = report.holds.iter();
    let rows: Vec<[String; 3]> = rows
        .map(|held| [held.name.clone(), held.tag.clone(), door.full_date(held.since)])
        .collect();
    door.print(table(&rows, scripted))?;
    Ok(status)
}

/// Rows under a header, in columns; with tabs and no header for scripts.
fn table(rows: &[[String; 3]], scripted: bool) -> String {
    if scripted {
        return rows.iter().map(|row| row.join("\t") + "\n").collect();
    }
    let header = ["NAME", "TAG", "TIMESTAMP"].map(String::from);
    let all: Vec<&[String; 3]> = std::iter::once(&header).chain(rows).collect();
    let width = |column: usize| all.iter().map(|row| row[column].len()).max().unwrap_or(0);
    let (first, second) = (width(0), width(1));
    all.iter().map(|[name, tag, time]| format!("{name:first$}  {tag:second$}  {time}\n")).collect()
}
