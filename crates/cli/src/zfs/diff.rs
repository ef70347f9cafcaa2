//! `zfs diff`.

use std::ffi::OsString;

use verbs::datasets::{Diff, Query};
use verbs::diff::{Difference, Happened, Told, mode};
use verbs::props::name::check_entity;
use verbs::props::{Key, Kind, Kinds, NameError, Prop, Value};
use verbs::{Error, Why};

use super::known_name;
use crate::door::{Door, Ran, Stop, bad_option, names};
use crate::getopt::{Opt, sort};

/// How it is printed.
#[derive(Clone, Copy, Default)]
struct Form {
    classify: bool,
    scripted: bool,
    times: bool,
}

/// `zfs diff`.
pub(crate) fn diff(door: &mut Door<'_>, words: &[OsString]) -> Ran {
    let words = sort(words, "FHt", &[]);
    let mut form = Form::default();
    for opt in &words.opts {
        match opt {
            Opt::Flag('F') => form.classify = true,
            Opt::Flag('H') => form.scripted = true,
            Opt::Flag('t') => form.times = true,
            other => return Err(bad_option(other)),
        }
    }
    let (from, to) = match &names(&words)[..] {
        [] => return Err(Stop::Usage("must provide at least one snapshot name".into())),
        [from] => (from.clone(), None),
        [from, to] => (from.clone(), Some(to.clone())),
        _ => return Err(Stop::Usage("too many arguments".into())),
    };
    let named = if from.starts_with('@') { to.as_ref() } else { Some(&from) };
    let Some(named) = named else { return Err(Stop::Usage(String::new())) };
    let dataset = named.split('@').next().unwrap_or_default().to_string();
    let mut top = mountpoint(door, &dataset)?;
    let (from, to) = compared(from, to)?;
    let head = to.split('@').next().unwrap_or_default();
    if head != dataset {
        // Of a clone; what is wrong with it is said below.
        top = mountpoint(door, head).unwrap_or_default();
    }
    let request = Diff { from, to, places: door.places.clone() };
    // What is told comes while the pool is open; what cannot be printed ends it.
    let (mut failed, out, err) = (None, &mut *door.out, &mut *door.err);
    let mut sink = |told| {
        let printed = match told {
            Told::Difference(difference) => out.write_all(&line(&top, &difference, form)),
            Told::Lost { object, dataset, why } => writeln!(
                err,
                "Unable to determine path or stats for object {object} in {dataset}: {why}"
            ),
        };
        failed = printed.err();
        failed.is_none()
    };
    door.engine.dataset_diff(&request, &mut sink)?;
    failed.map_or(Ok(0), |e| Err(e.into()))
}

/// Where a file system would be mounted: paths are told from there, or from its root if nowhere.
fn mountpoint(door: &mut Door<'_>, name: &str) -> Result<Vec<u8>, Stop> {
    if name.contains('#') {
        return Err(Error::open(name, NameError::BookmarkHere).into());
    }
    known_name(name)?;
    let key = Key::Native(Prop::Mountpoint);
    let query = Query {
        names: vec![name.into()],
        kinds: Kinds::NONE.with(Kind::Filesystem),
        kinds_given: true,
        keys: vec![key.clone()],
        places: door.places.clone(),
        ..Query::default()
    };
    let report = door.engine.dataset_query(&query)?;
    if let Some(error) = report.errors.into_iter().next() {
        return Err(error.into());
    }
    let dataset = report.datasets.first().ok_or_else(|| Error::open(name, Why::NoDataset))?;
    Ok(match dataset.property(&key) {
        Some((Value::Text(path), _)) if path.starts_with(b"/") && path.len() > 1 => path.clone(),
        _ => Vec::new(),
    })
}

/// The snapshot and what it is compared with, each by its full name.
fn compared(from: String, to: Option<String>) -> Result<(String, String), Stop> {
    let said = |message: String| Err(Stop::Said(message, 1));
    let Some(to) = to else {
        let bad = |why: NameError| said(format!("Badly formed snapshot name {from}: {why}"));
        let Some((head, _)) = from.split_once('@') else { return bad(NameError::NoSnapshot) };
        if let Err(why) = check_entity(from.as_bytes()) {
            return bad(why);
        }
        let head = head.to_string();
        return Ok((from, head));
    };
    let parts = |name: &str| match name.split_once('@') {
        Some((head, snapshot)) => (head.to_string(), Some(snapshot.to_string())),
        None => (name.to_string(), None),
    };
    let ((head, snapshot), (to_head, to_snapshot)) = (parts(&from), parts(&to));
    let empty = |snapshot: &Option<String>| snapshot.as_deref() == Some("");
    if snapshot.is_none()
        || empty(&snapshot)
        || empty(&to_snapshot)
        || head == to_head && head.is_empty()
    {
        return said("Unable to determine which snapshots to compare: invalid name".into());
    }
    let full = |own: &str, other: &str, snapshot: Option<String>| {
        let head = if own.is_empty() { other } else { own };
        snapshot.map_or_else(|| head.to_string(), |snapshot| format!("{head}@{snapshot}"))
    };
    Ok((full(&head, &to_head, snapshot), full(&to_head, &head, to_snapshot)))
}

/// A difference as it is printed.
fn line(top: &[u8], difference: &Difference, form: Form) -> Vec<u8> {
    let mut out = Vec::new();
    if form.times {
        let time = difference.ctime;
        out.extend(format!("{:>10}.{:09}\t", time.secs, time.nanos).into_bytes());
    }
    out.push(match difference.what {
        Happened::Added => b'+',
        Happened::Removed => b'-',
        Happened::Modified | Happened::Links(_) => b'M',
        Happened::Renamed(_) => b'R',
    });
    out.push(b'\t');
    if form.classify {
        out.extend([kind(difference.mode), b'\t']);
    }
    shown(&mut out, top, &difference.path);
    match &difference.what {
        Happened::Renamed(new) => {
            out.extend(if form.scripted { &b"\t"[..] } else { b" -> " });
            shown(&mut out, top, new);
        }
        Happened::Links(more) => out.extend(format!("\t({more:+})").into_bytes()),
        _ => {}
    }
    out.push(b'\n');
    out
}

/// A path; what is no plain ASCII, spaces and backslashes in octal.
fn shown(out: &mut Vec<u8>, top: &[u8], path: &[u8]) {
    for byte in top.iter().chain(path) {
        match byte {
            byte if byte.is_ascii_graphic() && *byte != b'\\' => out.push(*byte),
            byte => out.extend(format!("\\{byte:04o}").into_bytes()),
        }
    }
}

/// The sign of a file's type.
fn kind(file_mode: u32) -> u8 {
    match file_mode & mode::TYPE {
        mode::BLOCK => b'B',
        mode::CHAR => b'C',
        mode::DIR => b'/',
        mode::FIFO => b'|',
        mode::SYMLINK => b'@',
        mode::SOCKET => b'=',
        mode::FILE => b'F',
        _ => b'?',
    }
}
