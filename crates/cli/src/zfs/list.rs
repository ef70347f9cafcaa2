//! `zfs list`.

use std::ffi::OsString;
use std::os::unix::ffi::OsStrExt;

use verbs::datasets::{DatasetReport, Query};
use verbs::props::{Key, Kind, Kinds, Prop};

use super::order::{By, compare};
use super::{Depth, all_meant, cell, depth, kinds};
use crate::columns::{Column, Table};
use crate::door::{Door, Ran, Stop, bad_letter, text};
use crate::getopt::{Opt, sort};
use crate::lists::keys;

const DEFAULT: &str = "name,used,available,referenced,mountpoint";
const SPACE: &str = "name,available,used,usedbysnapshots,usedbydataset,usedbyrefreservation,\
                     usedbychildren";

struct Options {
    columns: OsString,
    scripted: bool,
    exact: bool,
    recursive: bool,
    levels: Option<usize>,
    kinds: Option<Kinds>,
    by: Vec<By>,
    json: Option<crate::json::Style>,
}

fn options(door: &mut Door<'_>, opts: &[Opt]) -> Result<Options, Stop> {
    let mut options = Options {
        columns: DEFAULT.into(),
        scripted: false,
        exact: false,
        recursive: false,
        levels: None,
        kinds: None,
        by: Vec::new(),
        json: None,
    };
    for opt in opts {
        match opt {
            Opt::Value('o', word) => options.columns = word.clone(),
            Opt::Flag('p') => options.exact = true,
            Opt::Flag('H') => options.scripted = true,
            Opt::Flag('r') => options.recursive = true,
            Opt::Value('d', word) => match depth(word)? {
                Depth::Levels(levels) => options.levels = Some(levels),
                Depth::Place(place) => door.places.push(place),
            },
            Opt::Value('t', word) => options.kinds = Some(kinds(word)?),
            Opt::Value(letter @ ('s' | 'S'), word) => {
                let key = Key::named_or_column(word.as_bytes());
                let key = key.filter(|key| matches!(key, Key::Native(_) | Key::User(_)));
                let key =
                    key.ok_or_else(|| Stop::Usage(format!("invalid property '{}'", text(word))))?;
                options.by.push(By { key, reverse: *letter == 'S' });
            }
            Opt::Flag('j') | Opt::Long(_) => options.json = Some(crate::json::style(opts)),
            other => return Err(bad_letter(other)),
        }
    }
    Ok(options)
}

/// How deep to look. Snapshots or bookmarks alone mean those of the data sets that are named.
pub(crate) fn reach(
    recursive: bool,
    levels: Option<usize>,
    kinds: Kinds,
    anything_named: bool,
) -> Option<usize> {
    let inner = [Kind::Snapshot, Kind::Bookmark].iter().any(|k| kinds == Kinds::NONE.with(*k));
    match (recursive, levels) {
        (_, Some(levels)) => Some(levels),
        (true, None) => Some(usize::MAX),
        (false, None) if !anything_named => Some(usize::MAX),
        (false, None) => inner.then_some(1),
    }
}

/// `zfs list`.
pub(crate) fn list(door: &mut Door<'_>, words: &[OsString]) -> Ran {
    let words = sort(words, "HS:d:o:prs:t:j", &["json", "json-int"]);
    let options = options(door, &words.opts)?;
    let space = options.columns == "space";
    let columns = if space { OsString::from(SPACE) } else { options.columns.clone() };
    let keys = keys(&columns, Key::named_or_column)?;
    let names = crate::door::names(&words);
    let (good, mut errors) = all_meant(door, names.iter().cloned());
    let default_kinds = Kinds::NONE.with(Kind::Filesystem).with(Kind::Volume);
    let kinds = options.kinds.unwrap_or(default_kinds);
    let mut asked = keys.clone().unwrap_or_default();
    asked.extend(options.by.iter().map(|by| by.key.clone()));
    let mut datasets = Vec::new();
    if names.is_empty() || !good.is_empty() {
        let query = Query {
            names: good,
            depth: reach(options.recursive, options.levels, kinds, !names.is_empty()),
            kinds,
            kinds_given: options.kinds.is_some(),
            keys: asked,
            all: keys.is_none(),
            places: door.places.clone(),
        };
        let report = door.engine.dataset_query(&query)?;
        datasets = report.datasets;
        errors.extend(report.errors);
    }
    datasets.sort_by(|a, b| compare(a, b, &options.by));
    datasets.dedup_by(|a, b| a.name == b.name);
    let keys = keys.unwrap_or_else(|| everything(&datasets));
    if let Some(style) = options.json {
        let cells = |dataset| {
            let cells = keys.iter().map(|key| cell(door, dataset, key, options.exact));
            (dataset, cells.collect())
        };
        let told: Vec<_> = datasets.iter().map(cells).collect();
        let text = crate::json::datasets("zfs list", &told, style);
        door.print(text)?;
    } else if datasets.is_empty() && errors.is_empty() {
        door.complain("no datasets available")?;
    } else if !datasets.is_empty() {
        let text = table(door, &datasets, &keys, &options);
        door.print(text)?;
    }
    door.complain_all(&errors)
}

/// What `-o all` asks for.
fn everything(datasets: &[DatasetReport]) -> Vec<Key> {
    let native = Prop::all().filter(|prop| prop.is_visible()).map(Key::Native);
    let mut keys: Vec<_> = std::iter::once(Key::Native(Prop::Name)).chain(native).collect();
    for (key, _, _) in datasets.iter().flat_map(|dataset| &dataset.properties) {
        if matches!(key, Key::User(_)) && !keys.contains(key) {
            keys.push(key.clone());
        }
    }
    keys
}

fn table(door: &Door<'_>, datasets: &[DatasetReport], keys: &[Key], options: &Options) -> Vec<u8> {
    let cell = |dataset: &DatasetReport, key: &Key| cell(door, dataset, key, options.exact).value;
    let mut columns = Vec::new();
    for key in keys {
        let (mut column, elastic) = match key {
            Key::Native(prop) => (
                Column::new(prop.column(), prop.width(), prop.is_right_aligned()),
                prop.is_elastic() || options.exact,
            ),
            other => {
                let number = !matches!(other, Key::User(_));
                (Column::new(other.name().to_ascii_uppercase(), 0, number), true)
            }
        };
        if elastic && !options.scripted {
            datasets.iter().for_each(|dataset| column.fit(&cell(dataset, key)));
        }
        columns.push(column);
    }
    let table = Table { columns, scripted: options.scripted };
    let mut out = Vec::new();
    table.heading(&mut out);
    for dataset in datasets {
        let row: Vec<_> = keys.iter().map(|key| cell(dataset, key)).collect();
        table.row(&mut out, &row);
    }
    out
}
