//! `zpool list` and `zpool get`.

use std::ffi::OsString;
use std::os::unix::ffi::OsStrExt;
use std::path::PathBuf;

use verbs::pools::{PoolReport, Status};
use verbs::props::{PoolKey, PoolProp};

use super::vdevs::{self, ListStyle, Naming};
use super::{interval, reports, values};
use crate::columns::{Column, Table};
use crate::door::{Door, Ran, Stop, bad_letter, bad_option, text};
use crate::getopt::{Opt, sort};
use crate::lists::{fields, keys};

/// The columns of `zpool list`.
const DEFAULT: &str = "name,size,allocated,free,checkpoint,expandsize,fragmentation,capacity,\
                       dedupratio,health,altroot";
/// The least width of names where vdevs are listed, too.
const WIDTH_VERBOSE: usize = 9;

#[derive(Clone, Default)]
struct Options {
    keys: Option<Vec<PoolKey>>,
    all: bool,
    scripted: bool,
    exact: bool,
    verbose: bool,
    naming: Naming,
    stamp: Option<char>,
    places: Vec<PathBuf>,
    json: Option<crate::json::Style>,
}

/// `zpool list`.
pub(crate) fn list(door: &mut Door<'_>, words: &[OsString]) -> Ran {
    let words = sort(words, "gHjLo:pPT:vd:", &["json", "json-int"]);
    let mut options = Options::default();
    let mut columns = OsString::from(DEFAULT);
    for opt in &words.opts {
        match opt {
            Opt::Flag('g') => options.naming.guids = true,
            Opt::Flag('H') => options.scripted = true,
            Opt::Flag('L') => options.naming.follow = true,
            Opt::Flag('P') => options.naming.full = true,
            Opt::Flag('p') => options.exact = true,
            Opt::Flag('v') => options.verbose = true,
            Opt::Flag('j') | Opt::Long(_) => options.json = Some(crate::json::style(&words.opts)),
            Opt::Value('o', word) => columns = word.clone(),
            Opt::Value('T', word) => options.stamp = Some(stamp(word)?),
            Opt::Value('d', dir) => options.places.push(dir.into()),
            other => return Err(bad_option(other)),
        }
    }
    options.keys = keys(&columns, PoolKey::named_or_column)?;
    options.all = options.keys.is_none();
    let mut names = crate::door::names(&words);
    let Some((every, count)) = interval(&mut names)? else {
        return list_once(door, &names, &options);
    };
    let mut left = count;
    loop {
        list_once(door, &names, &options)?;
        left = left.map(|n| n.saturating_sub(1));
        if left == Some(0) {
            return Ok(0);
        }
        door.wait(every)?;
    }
}

pub(super) fn stamp(word: &OsString) -> Result<char, Stop> {
    match word.as_bytes() {
        b"u" => Ok('u'),
        b"d" => Ok('d'),
        _ => Err(Stop::Usage(String::new())),
    }
}

/// Prints what time it is, as `-T` wants it.
pub(super) fn print_stamp(door: &mut Door<'_>, letter: Option<char>) -> Result<(), Stop> {
    let Some(letter) = letter else { return Ok(()) };
    let now = rt::time::wall_clock().as_secs();
    let line = if letter == 'u' { now.to_string() } else { door.zoned_date(now) };
    door.print(line + "\n")
}

fn list_once(door: &mut Door<'_>, names: &[String], options: &Options) -> Ran {
    let asked = Status {
        names: names.to_vec(),
        places: options.places.clone(),
        lost: true,
        damaged: false,
    };
    let (pools, errors) = reports(door, asked)?;
    print_stamp(door, options.stamp)?;
    if let Some(style) = options.json {
        let text = crate::json::list(&pools, options.keys.as_deref(), options.exact, style);
        door.print(text)?;
    } else if !pools.is_empty() {
        let table = table(&pools, options);
        door.print(table)?;
    } else if names.is_empty() && !options.scripted {
        door.print("no pools available\n")?;
    }
    door.complain_all(&errors)
}

/// The table of `zpool list`.
fn table(pools: &[PoolReport], options: &Options) -> Vec<u8> {
    let keys: Vec<PoolKey> = match &options.keys {
        Some(keys) => keys.clone(),
        None => {
            let mut keys = vec![PoolKey::Native(PoolProp::Name)];
            for key in pools.iter().flat_map(values::all) {
                if !keys.contains(&key) {
                    keys.push(key);
                }
            }
            keys
        }
    };
    let value = |pool: &PoolReport, key: &PoolKey| {
        values::text(pool, key, options.exact).map_or_else(|| "-".into(), |(value, _)| value)
    };
    let mut columns = Vec::new();
    let mut width = 0;
    for key in &keys {
        let mut column = match key {
            PoolKey::Native(prop) => {
                Column::new(prop.info().column, prop.width(), prop.is_right_aligned())
            }
            other => Column::new(other.name().to_ascii_uppercase(), 0, false),
        };
        let elastic = match key {
            PoolKey::Native(prop) => prop.is_elastic() || options.exact,
            _ => true,
        };
        if elastic {
            pools.iter().for_each(|pool| column.fit(value(pool, key).as_bytes()));
        }
        // The vdevs' names go into the first column, whatever it is.
        if columns.is_empty() && options.verbose {
            let widths = pools.iter().map(|pool| {
                let more: [&[_]; 2] = [&pool.spares, &pool.cache];
                vdevs::width(pool.name.as_bytes(), &pool.tree, &more, options.naming)
            });
            width = widths.fold(WIDTH_VERBOSE, usize::max);
            column.width = column.width.max(width);
        }
        columns.push(column);
    }
    let table = Table { columns, scripted: options.scripted };
    let (exact, scripted, naming) = (options.exact, options.scripted, options.naming);
    let style = ListStyle { naming, exact, scripted, width };
    let mut out = Vec::new();
    table.heading(&mut out);
    for pool in pools {
        let row: Vec<_> = keys.iter().map(|key| value(pool, key)).collect();
        table.row(&mut out, &row);
        if options.verbose {
            vdevs::list(&mut out, &pool.tree, &pool.spares, &pool.cache, style);
        }
    }
    out
}

/// A column of `zpool get`.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Field {
    Name,
    Property,
    Value,
    Source,
}

/// Columns by their names.
const FIELDS: [(&str, Field); 4] = [
    ("name", Field::Name),
    ("property", Field::Property),
    ("value", Field::Value),
    ("source", Field::Source),
];

/// `zpool get`.
pub(crate) fn get(door: &mut Door<'_>, words: &[OsString]) -> Ran {
    let words = sort(words, "Hjpo:d:", &["json", "json-int"]);
    let (mut scripted, mut exact, mut json) = (false, false, None);
    let mut shown = FIELDS.map(|(_, field)| field).to_vec();
    for opt in &words.opts {
        match opt {
            Opt::Flag('H') => scripted = true,
            Opt::Flag('p') => exact = true,
            Opt::Flag('j') | Opt::Long(_) => json = Some(crate::json::style(&words.opts)),
            Opt::Value('o', word) => shown = fields(word, &FIELDS)?,
            Opt::Value('d', dir) => door.places.push(dir.into()),
            other => return Err(bad_letter(other)),
        }
    }
    let Some((asked, names)) = words.operands.split_first() else {
        return Err(Stop::Usage("missing property argument".into()));
    };
    let keys = keys(asked, PoolKey::named_or_column)?;
    let names: Vec<_> = names.iter().map(|name| text(name)).collect();
    let (pools, errors) = reports(door, Status { names, lost: true, ..Status::default() })?;
    if let Some(style) = json {
        let text = crate::json::pool_get(&pools, keys.as_deref(), exact, style);
        door.print(text)?;
        return door.complain_all(&errors);
    }
    let mut rows = Vec::new();
    for pool in &pools {
        for key in keys.clone().unwrap_or_else(|| values::all(pool)) {
            if let Some((value, source)) = values::text(pool, &key, exact) {
                rows.push((pool.name.clone(), key, value, source));
            }
        }
    }
    let mut value_width = Column::new("VALUE", 0, false);
    for (_, key, value, _) in &rows {
        let (least, elastic) = match key {
            PoolKey::Native(prop) => (prop.width(), prop.is_elastic()),
            other => (other.name().len(), true),
        };
        value_width.width = value_width.width.max(least);
        if elastic {
            value_width.fit(value.as_bytes());
        }
    }
    let longest = |heading: &str, texts: &mut dyn Iterator<Item = usize>| {
        Column::new(heading, texts.max().unwrap_or(0), false)
    };
    let columns = shown
        .iter()
        .map(|field| match field {
            Field::Name => longest("NAME", &mut rows.iter().map(|row| row.0.len())),
            Field::Property => longest("PROPERTY", &mut rows.iter().map(|row| row.1.name().len())),
            Field::Value => value_width.clone(),
            Field::Source => {
                let name = longest("NAME", &mut rows.iter().map(|row| row.0.len())).width;
                let width = if name > 4 { name + "inherited from".len() } else { 0 };
                Column::new("SOURCE", width, false)
            }
        })
        .collect();
    let table = Table { columns, scripted };
    let mut out = Vec::new();
    if !rows.is_empty() {
        table.heading(&mut out);
    }
    for (pool, key, value, source) in rows {
        let key = key.name();
        let row: Vec<&str> = shown
            .iter()
            .map(|field| match field {
                Field::Name => pool.as_str(),
                Field::Property => &key,
                Field::Value => &value,
                Field::Source => &source,
            })
            .collect();
        table.row(&mut out, &row);
    }
    door.print(out)?;
    door.complain_all(&errors)
}
