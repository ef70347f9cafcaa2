//! `zfs get`.

use std::ffi::OsString;
use std::os::unix::ffi::OsStrExt;

use verbs::datasets::{DatasetReport, Query};
use verbs::props::{Key, Kinds, Prop, Source};

use super::list::reach;
use super::order::by_name;
use super::{Cell, Depth, all_meant, cell, depth, kinds, property, value_text};
use crate::columns::{Column, Table};
use crate::door::{Door, Ran, Stop, bad_letter, text};
use crate::getopt::{Opt, list as parts, sort};
use crate::lists::{fields, keys};
use crate::zpool::values::source_text;

/// A column.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Field {
    Name,
    Property,
    Value,
    Received,
    Source,
}

const DEFAULT: [Field; 4] = [Field::Name, Field::Property, Field::Value, Field::Source];
/// Columns by their names.
const FIELDS: [(&str, Field); 5] = [
    ("name", Field::Name),
    ("property", Field::Property),
    ("value", Field::Value),
    ("received", Field::Received),
    ("source", Field::Source),
];

/// Which sources are wanted, as `-s` takes them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Origin {
    Local,
    Default,
    Inherited,
    Received,
    Temporary,
    None,
}

fn sources(word: &OsString) -> Result<Vec<Origin>, Stop> {
    let mut sources = Vec::new();
    for part in parts(word) {
        sources.push(match part.as_bytes() {
            b"local" => Origin::Local,
            b"default" => Origin::Default,
            b"inherited" => Origin::Inherited,
            b"received" => Origin::Received,
            b"temporary" => Origin::Temporary,
            b"none" => Origin::None,
            _ => return Err(Stop::Usage(format!("invalid source '{}'", text(&part)))),
        });
    }
    Ok(sources)
}

fn origin(source: &Source) -> Origin {
    match source {
        Source::None => Origin::None,
        Source::Default => Origin::Default,
        Source::Local => Origin::Local,
        Source::Inherited(_) => Origin::Inherited,
        Source::Received => Origin::Received,
        Source::Temporary => Origin::Temporary,
    }
}

/// One line.
struct Row {
    name: String,
    property: String,
    value: Vec<u8>,
    received: Vec<u8>,
    source: String,
}

struct Options {
    fields: Vec<Field>,
    sources: Option<Vec<Origin>>,
    scripted: bool,
    exact: bool,
    recursive: bool,
    levels: Option<usize>,
    kinds: Option<Kinds>,
    json: Option<crate::json::Style>,
}

fn options(door: &mut Door<'_>, opts: &[Opt]) -> Result<Options, Stop> {
    let mut options = Options {
        fields: DEFAULT.to_vec(),
        sources: None,
        scripted: false,
        exact: false,
        recursive: false,
        levels: None,
        kinds: None,
        json: None,
    };
    for opt in opts {
        match opt {
            Opt::Flag('p') => options.exact = true,
            Opt::Flag('H') => options.scripted = true,
            Opt::Flag('r') => options.recursive = true,
            Opt::Value('d', word) => match depth(word)? {
                Depth::Levels(levels) => options.levels = Some(levels),
                Depth::Place(place) => door.places.push(place),
            },
            Opt::Value('o', word) => options.fields = fields(word, &FIELDS)?,
            Opt::Value('s', word) => options.sources = Some(sources(word)?),
            Opt::Value('t', word) => options.kinds = Some(kinds(word)?),
            Opt::Flag('j') | Opt::Long(_) => options.json = Some(crate::json::style(opts)),
            other => return Err(bad_letter(other)),
        }
    }
    Ok(options)
}

/// `zfs get`.
pub(crate) fn get(door: &mut Door<'_>, words: &[OsString]) -> Ran {
    let words = sort(words, "d:o:s:rt:Hpj", &["json", "json-int"]);
    let options = options(door, &words.opts)?;
    let Some((asked, names)) = words.operands.split_first() else {
        return Err(Stop::Usage("missing property argument".into()));
    };
    let keys = keys(asked, Key::named_or_column)?;
    let (good, mut errors) = all_meant(door, names.iter().map(|name| text(name)));
    let kinds = options.kinds.unwrap_or(Kinds::ALL);
    let mut datasets = Vec::new();
    if names.is_empty() || !good.is_empty() {
        let query = Query {
            names: good,
            depth: reach(options.recursive, options.levels, kinds, !names.is_empty()),
            kinds,
            kinds_given: options.kinds.is_some(),
            keys: keys.clone().unwrap_or_default(),
            all: keys.is_none(),
            places: door.places.clone(),
        };
        let report = door.engine.dataset_query(&query)?;
        datasets = report.datasets;
        errors.extend(report.errors);
    }
    datasets.sort_by(by_name);
    datasets.dedup_by(|a, b| a.name == b.name);
    if let Some(style) = options.json {
        let told = told(door, &datasets, keys.as_deref(), &options);
        // What has no line in the table is not there either.
        let told: Vec<_> = told.into_iter().filter(|(_, cells)| !cells.is_empty()).collect();
        door.print(crate::json::datasets("zfs get", &told, style))?;
        return door.complain_all(&errors);
    }
    let (rows, value_width) = rows(door, &datasets, keys.as_deref(), &options);
    // As wide as what was asked for, whether or not it is shown.
    let asked = keys.unwrap_or_else(|| all_of(&datasets));
    let property_width = asked.iter().map(|key| key.name().len()).max().unwrap_or(0);
    let table = Table {
        columns: columns(&options.fields, &rows, &datasets, (property_width, value_width)),
        scripted: options.scripted,
    };
    let mut out = Vec::new();
    if !rows.is_empty() {
        table.heading(&mut out);
    }
    for row in &rows {
        let cells: Vec<&[u8]> = options
            .fields
            .iter()
            .map(|field| match field {
                Field::Name => row.name.as_bytes(),
                Field::Property => row.property.as_bytes(),
                Field::Value => &row.value,
                Field::Received => &row.received,
                Field::Source => row.source.as_bytes(),
            })
            .collect();
        table.row(&mut out, &cells);
    }
    door.print(out)?;
    door.complain_all(&errors)
}

/// Native properties that are listed, then what users set, in the order in which it is found.
fn all_of(datasets: &[DatasetReport]) -> Vec<Key> {
    let mut keys: Vec<_> = Prop::all().filter(|prop| prop.is_visible()).map(Key::Native).collect();
    for (key, _, _) in datasets.iter().flat_map(|dataset| &dataset.properties) {
        if matches!(key, Key::User(_)) && !keys.contains(key) {
            keys.push(key.clone());
        }
    }
    keys
}

/// What is told of each data set: of all properties those that it has, and those of the sources that were asked for.
fn told<'a>(
    door: &Door<'_>,
    datasets: &'a [DatasetReport],
    keys: Option<&[Key]>,
    options: &Options,
) -> Vec<(&'a DatasetReport, Vec<Cell<'a>>)> {
    let all = keys.is_none();
    let keys = keys.map_or_else(|| all_of(datasets), <[Key]>::to_vec);
    let is_wanted = |cell: &Cell<'_>| {
        options.sources.as_ref().is_none_or(|wanted| wanted.contains(&origin(cell.source)))
    };
    let cells = |dataset: &'a DatasetReport| {
        let keys =
            keys.iter().filter(|key| !all || property(door, dataset, key, options.exact).is_some());
        let cells = keys.map(|key| cell(door, dataset, key, options.exact));
        (dataset, cells.filter(is_wanted).collect())
    };
    datasets.iter().map(cells).collect()
}

fn rows(
    door: &Door<'_>,
    datasets: &[DatasetReport],
    all_or_some: Option<&[Key]>,
    options: &Options,
) -> (Vec<Row>, usize) {
    let keys = all_or_some.map_or_else(|| all_of(datasets), <[Key]>::to_vec);
    // Room for values is made by property, whether or not the line is shown.
    let mut width = 0;
    for key in &keys {
        let (least, elastic) = match key {
            Key::Native(prop) => (prop.width(), prop.is_elastic()),
            other => (other.name().len(), true),
        };
        width = width.max(least);
        if elastic && !options.scripted {
            for dataset in datasets {
                let text = property(door, dataset, key, options.exact).map(|(text, _)| text.len());
                width = width.max(text.unwrap_or(0));
            }
        }
    }
    let mut rows = Vec::new();
    for (dataset, cells) in told(door, datasets, all_or_some, options) {
        for Cell { key, value, source } in cells {
            let received = dataset.received.iter().find(|(known, _)| *known == key);
            let received = received
                .and_then(|(key, value)| value_text(door, key, value, options.exact))
                .unwrap_or_else(|| b"-".to_vec());
            let (name, property) = (dataset.name.clone(), key.name());
            rows.push(Row { name, property, value, received, source: source_text(source) });
        }
    }
    (rows, width)
}

fn columns(
    fields: &[Field],
    rows: &[Row],
    datasets: &[DatasetReport],
    (property_width, value_width): (usize, usize),
) -> Vec<Column> {
    let names = datasets.iter().map(|dataset| dataset.name.len()).max().unwrap_or(0);
    let longest = |of: fn(&Row) -> usize| rows.iter().map(of).max().unwrap_or(0);
    let column = |field: &Field| match field {
        Field::Name => Column::new("NAME", names, false),
        Field::Property => Column::new("PROPERTY", property_width, false),
        Field::Value => Column::new("VALUE", value_width, false),
        Field::Received => Column::new("RECEIVED", longest(|row| row.received.len()), false),
        Field::Source => {
            let width = if names > "NAME".len() { names + "inherited from".len() } else { 0 };
            Column::new("SOURCE", width, false)
        }
    };
    fields.iter().map(column).collect()
}
