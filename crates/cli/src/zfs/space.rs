//! `zfs userspace`, `zfs groupspace`, `zfs projectspace`.

use std::cmp::Ordering;
use std::ffi::{OsStr, OsString};
use std::os::unix::ffi::OsStrExt;

use verbs::datasets::{Space, SpaceRow};
use verbs::props::space::Owner;
use verbs::props::{nice_bytes, nice_count};

use super::meant;
use crate::columns::{left, right};
use crate::door::{Door, Ran, Stop, bad_letter, text};
use crate::getopt::{Opt, sort};

/// A column.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Field {
    Type,
    Name,
    Used,
    Quota,
    Objused,
    Objquota,
}

const FIELDS: [(&str, Field); 6] = [
    ("type", Field::Type),
    ("name", Field::Name),
    ("used", Field::Used),
    ("quota", Field::Quota),
    ("objused", Field::Objused),
    ("objquota", Field::Objquota),
];

/// What can be sorted by.
const SORTABLE: usize = 4;

impl Field {
    fn heading(self) -> String {
        let (word, _) = FIELDS.iter().find(|(_, field)| *field == self).unwrap_or(&FIELDS[0]);
        word.to_ascii_uppercase()
    }

    fn is_left(self) -> bool {
        matches!(self, Field::Type | Field::Name)
    }
}

/// A kind of users or groups, as `-t` takes it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Kind {
    owner: Owner,
    windows: bool,
}

const TYPES: [(&str, &[Kind]); 5] = [
    ("posixuser", &[Kind { owner: Owner::User, windows: false }]),
    ("posixgroup", &[Kind { owner: Owner::Group, windows: false }]),
    ("smbuser", &[Kind { owner: Owner::User, windows: true }]),
    ("smbgroup", &[Kind { owner: Owner::Group, windows: true }]),
    (
        "all",
        &[
            Kind { owner: Owner::User, windows: false },
            Kind { owner: Owner::Group, windows: false },
            Kind { owner: Owner::User, windows: true },
            Kind { owner: Owner::Group, windows: true },
        ],
    ),
];

fn kind(row: &SpaceRow) -> Kind {
    Kind { owner: row.owner, windows: row.domain.is_some() }
}

fn kind_name(kind: Kind) -> &'static str {
    match (kind.owner, kind.windows) {
        (Owner::User, false) => "POSIX User",
        (Owner::User, true) => "SMB User",
        (Owner::Group, false) => "POSIX Group",
        (Owner::Group, true) => "SMB Group",
        (Owner::Project, _) => "Project",
    }
}

struct Options {
    fields: Vec<Field>,
    kinds: Vec<Kind>,
    by: Vec<(Field, bool)>,
    numbers: bool,
    scripted: bool,
    exact: bool,
}

/// The parts of a list, an empty one too: those are errors here.
fn parts(word: &OsStr) -> Vec<String> {
    word.as_bytes().split(|c| *c == b',').map(|p| text(OsStr::from_bytes(p))).collect()
}

fn options(opts: &[Opt], owner: Owner) -> Result<Options, Stop> {
    let project = owner == Owner::Project;
    let mut options = Options {
        fields: FIELDS.iter().map(|(_, field)| *field).collect(),
        kinds: vec![Kind { owner, windows: false }, Kind { owner, windows: true }],
        by: Vec::new(),
        numbers: false,
        scripted: false,
        exact: false,
    };
    for opt in opts {
        match opt {
            Opt::Flag('H') => options.scripted = true,
            Opt::Flag('p') => options.exact = true,
            Opt::Flag('n') if !project => options.numbers = true,
            // Users of Windows are not turned into POSIX ones: nobody here could.
            Opt::Flag('i') if !project => {}
            Opt::Value('o', word) => {
                let mut fields = Vec::new();
                for part in parts(word) {
                    let known = FIELDS.iter().find(|(word, _)| *word == part);
                    let Some((_, field)) = known else {
                        let message = format!("invalid type '{part}' for -o option");
                        return Err(Stop::Said(message, 255));
                    };
                    fields.push(*field);
                }
                options.fields = fields;
            }
            Opt::Value(letter @ ('s' | 'S'), word) => {
                let known = FIELDS[..SORTABLE].iter().find(|(name, _)| word == name);
                let Some((_, field)) = known else {
                    return Err(Stop::Usage(format!("invalid field '{}'", text(word))));
                };
                options.by.push((*field, *letter == 'S'));
            }
            Opt::Value('t', word) if !project => {
                let mut kinds = Vec::new();
                for part in parts(word) {
                    let known = TYPES.iter().find(|(word, _)| *word == part);
                    let Some((_, more)) = known else {
                        let message = format!("invalid type '{part}' for -t option");
                        return Err(Stop::Said(message, 255));
                    };
                    kinds.extend_from_slice(more);
                }
                options.kinds = kinds;
            }
            Opt::Flag(letter) => {
                return Err(Stop::Usage(format!("invalid option '{letter}'")));
            }
            other => return Err(bad_letter(other)),
        }
    }
    Ok(options)
}

/// `zfs userspace`.
pub(crate) fn users(door: &mut Door<'_>, words: &[OsString]) -> Ran {
    run(door, words, Owner::User)
}

/// `zfs groupspace`.
pub(crate) fn groups(door: &mut Door<'_>, words: &[OsString]) -> Ran {
    run(door, words, Owner::Group)
}

/// `zfs projectspace`.
pub(crate) fn projects(door: &mut Door<'_>, words: &[OsString]) -> Ran {
    run(door, words, Owner::Project)
}

fn run(door: &mut Door<'_>, words: &[OsString], owner: Owner) -> Ran {
    let letters = if owner == Owner::Project { "Hpo:s:S:" } else { "nHpo:s:S:t:i" };
    let words = sort(words, letters, &[]);
    let options = options(&words.opts, owner)?;
    let name = match &words.operands[..] {
        [] => return Err(Stop::Usage(String::new())),
        [name] => text(name),
        _ => return Err(Stop::Usage("too many arguments".into())),
    };
    let name = meant(door, name)?;
    let mut owners: Vec<Owner> = options.kinds.iter().map(|kind| kind.owner).collect();
    owners.sort_unstable();
    owners.dedup();
    let places = door.places.clone();
    let mut rows = door.engine.dataset_space(&Space { name, owners, places })?;
    rows.sort_by(|a, b| compare(a, b, &options));
    let text = table(&rows, &options);
    door.print(text)?;
    Ok(0)
}

/// What a row goes by: a name, else the number.
fn name(row: &SpaceRow, numbers: bool) -> Result<String, u64> {
    match (&row.domain, &row.name) {
        (Some(domain), _) => Ok(format!("{domain}-{}", row.number)),
        (None, Some(name)) if !numbers => Ok(name.clone()),
        _ => Err(row.number),
    }
}

/// By the fields asked for; then by type and name, names before numbers.
fn compare(a: &SpaceRow, b: &SpaceRow, options: &Options) -> Ordering {
    let of = |field: Field| match field {
        Field::Type => kind_name(kind(a)).cmp(kind_name(kind(b))),
        Field::Used => a.used.unwrap_or(0).cmp(&b.used.unwrap_or(0)),
        Field::Quota => a.quota.unwrap_or(0).cmp(&b.quota.unwrap_or(0)),
        _ => match (name(a, options.numbers), name(b, options.numbers)) {
            (Ok(a), Ok(b)) => a.cmp(&b),
            (Err(a), Err(b)) => a.cmp(&b),
            (Ok(_), Err(_)) => Ordering::Less,
            (Err(_), Ok(_)) => Ordering::Greater,
        },
    };
    for (field, reverse) in &options.by {
        let order = if *reverse { of(*field).reverse() } else { of(*field) };
        if order != Ordering::Equal {
            return order;
        }
    }
    of(Field::Type).then_with(|| of(Field::Name))
}

/// The text of one cell. Use and quota are there together: what only one is known of has none of
/// the other.
fn cell(row: &SpaceRow, field: Field, options: &Options) -> String {
    let number = |number: u64, nice: fn(u64) -> String, none: bool| match number {
        number if options.exact => number.to_string(),
        0 if none => "none".into(),
        number => nice(number),
    };
    let bytes = row.used.is_some() || row.quota.is_some();
    let objects = row.objects.is_some() || row.object_quota.is_some();
    match field {
        Field::Type => kind_name(kind(row)).into(),
        Field::Name => match name(row, options.numbers) {
            Ok(name) => name,
            Err(number) => number.to_string(),
        },
        Field::Used | Field::Quota if !bytes => "-".into(),
        Field::Objused | Field::Objquota if !objects => "-".into(),
        Field::Used => number(row.used.unwrap_or(0), nice_bytes, false),
        Field::Quota => number(row.quota.unwrap_or(0), nice_bytes, true),
        Field::Objused => number(row.objects.unwrap_or(0), nice_count, false),
        Field::Objquota => number(row.object_quota.unwrap_or(0), nice_count, true),
    }
}

/// The table. As OpenZFS does it makes room for kinds that were not asked for, too.
fn table(rows: &[SpaceRow], options: &Options) -> Vec<u8> {
    let cells: Vec<Vec<String>> = rows
        .iter()
        .map(|row| options.fields.iter().map(|field| cell(row, *field, options)).collect())
        .collect();
    let headings: Vec<String> = options.fields.iter().map(|field| field.heading()).collect();
    let widths: Vec<usize> = (0..options.fields.len())
        .map(|i| {
            let all = cells.iter().chain(std::iter::once(&headings));
            all.filter_map(|row| row.get(i)).map(String::len).max().unwrap_or(0)
        })
        .collect();
    let mut out = Vec::new();
    let mut line = |row: &[String]| {
        for (i, ((value, width), field)) in row.iter().zip(&widths).zip(&options.fields).enumerate()
        {
            if options.scripted {
                out.extend_from_slice(if i == 0 { b"" } else { b"\t" });
                out.extend_from_slice(value.as_bytes());
                continue;
            }
            out.extend_from_slice(if i == 0 { b"" } else { b"  " });
            // Also at the end of a line.
            let pad = if field.is_left() { left } else { right };
            pad(&mut out, value.as_bytes(), *width);
        }
        out.push(b'\n');
    };
    if !options.scripted {
        line(&headings);
    }
    for (row, cells) in rows.iter().zip(&cells) {
        if options.kinds.contains(&kind(row)) {
            line(cells);
        }
    }
    out
}
