//! `thumper lab`: experiments on simulated disks, in this process alone.

use std::ffi::{OsStr, OsString};
use std::os::unix::ffi::OsStrExt;
use std::path::PathBuf;

use serde_json::{Value as Json, json};
use verbs::lab::faults::{self, Row};
use verbs::lab::rebuild::{self, Rebuilt};
use verbs::props::{nice_bytes, parse_number};

use crate::door::{Door, Ran, Stop, bad_option};
use crate::getopt::{Opt, sort};

/// What `-h` says besides.
pub(crate) const HELP: &str = "
Nothing real is touched: the disks are in memory.

\tfaults   damage put into disks under load: what of it was detected, healed, lost; beside it what a checksum that the
\t         disk keeps with each sector would have seen
\t--seeds  so many experiments of each kind (10)
\trebuild  how long until a lost disk of 2 TB is whole again: what was asked of the disks, on modelled ones (7200
\t         revolutions a minute), beside the time that all of the disk would take
\t--used   so many bytes of files are in the pool (1780M)
\t--svg    draws it into a file, too
";

/// Seeds, if nobody says how many.
const SEEDS: u64 = 10;

/// What was typed.
struct Wanted {
    json: bool,
    seeds: u64,
    used: u64,
    svg: Option<PathBuf>,
}

/// `thumper lab`.
pub(crate) fn lab(door: &mut Door<'_>, words: &[OsString]) -> Ran {
    let words = sort(words, "j", &["json", "seeds:", "used:", "svg:"]);
    let mut wanted = Wanted { json: false, seeds: SEEDS, used: rebuild::USED, svg: None };
    let number = |name: &str, word: &OsStr| {
        parse_number(word.as_bytes()).map_err(|why| Stop::Usage(format!("--{name}: {why}")))
    };
    for opt in &words.opts {
        match opt {
            Opt::Flag('j') | Opt::Long(_) => wanted.json = true,
            Opt::LongValue(name, word) if name == "seeds" => wanted.seeds = number(name, word)?,
            Opt::LongValue(name, word) if name == "used" => wanted.used = number(name, word)?,
            Opt::LongValue(_, file) => wanted.svg = Some(file.into()),
            other => return Err(bad_option(other)),
        }
    }
    let [what] = &words.operands[..] else { return Err(Stop::Usage("missing experiment".into())) };
    match what.to_str() {
        Some("faults") => put_faults(door, &wanted),
        Some("rebuild") => rebuild_disks(door, &wanted),
        _ => {
            let what = what.to_string_lossy();
            let known = "there are 'faults' and 'rebuild'";
            Err(Stop::Usage(format!("'{what}' is no experiment: {known}")))
        }
    }
}

fn put_faults(door: &mut Door<'_>, wanted: &Wanted) -> Ran {
    let json = wanted.json;
    if !json {
        door.print(heading())?;
    }
    let mut printed = Ok(());
    let rows = faults::run(wanted.seeds, &mut |row| {
        if !json && printed.is_ok() {
            printed = door.print(line(row));
        }
    });
    printed?;
    let rows = rows.map_err(|why| Stop::Said(why, 1))?;
    if json {
        let rows = rows.iter().map(as_json).collect();
        door.print(crate::json::document("thumper lab faults", "rows", Json::Array(rows)))?;
    }
    Ok(if rows.iter().all(Row::is_good) { 0 } else { 1 })
}

fn rebuild_disks(door: &mut Door<'_>, wanted: &Wanted) -> Ran {
    let json = wanted.json;
    if !json {
        door.print(format!(
            "{:<28}{:>6}{:>8}{:>8}{:>8}{:>9}  {:<14}{:<13}{}\n",
            "POOL",
            "DISKS",
            "FILES",
            "USED",
            "READ",
            "WRITTEN",
            "TIME",
            "OF THE RATE",
            "WHOLE DISK"
        ))?;
    }
    let mut printed = Ok(());
    let rows = rebuild::run(wanted.used, 1, &mut |row| {
        if !json && printed.is_ok() {
            printed = door.print(rebuilt_line(row));
        }
    });
    printed?;
    let rows = rows.map_err(|why| Stop::Said(why, 1))?;
    if let Some(file) = &wanted.svg {
        let failed = |error| Stop::Said(format!("cannot write '{}': {error}", file.display()), 1);
        std::fs::write(file, rebuild::svg(&rows)).map_err(failed)?;
    }
    if json {
        let rows = rows.iter().map(rebuilt_json).collect();
        door.print(crate::json::document("thumper lab rebuild", "rows", Json::Array(rows)))?;
    }
    Ok(0)
}

fn rebuilt_line(row: &Rebuilt) -> String {
    format!(
        "{:<28}{:>6}{:>8}{:>8}{:>8}{:>9}  {:<14}{:<13}{}\n",
        row.what,
        row.disks,
        nice_bytes(row.files),
        nice_bytes(row.used),
        nice_bytes(row.read),
        nice_bytes(row.written),
        rebuild::time(row.seconds),
        format!("{:.2}", row.share),
        rebuild::time(row.whole)
    )
}

fn rebuilt_json(row: &Rebuilt) -> Json {
    json!({
        "pool": row.what,
        "disks": row.disks,
        "files": row.files,
        "used": row.used,
        "read": row.read,
        "written": row.written,
        "seconds": row.seconds,
        "share_of_streaming": row.share,
        "seconds_whole_disk": row.whole,
        "by_model": row.by_model,
    })
}

fn heading() -> String {
    format!(
        "{:<22}{:<8}{:>9}{:>10}{:>8}{:>6}{:>7}  {}\n",
        "FAULT",
        "LAYOUT",
        "INJECTED",
        "DETECTED",
        "HEALED",
        "LOST",
        "WRONG",
        "SEEN BY THE DISK ITSELF"
    )
}

fn line(row: &Row) -> String {
    format!(
        "{:<22}{:<8}{:>9}{:>10}{:>8}{:>6}{:>7}  {}\n",
        row.fault.name(),
        row.layout.name(),
        row.injected,
        row.detected,
        row.healed,
        row.lost,
        row.wrong,
        row.control
    )
}

fn as_json(row: &Row) -> Json {
    json!({
        "fault": row.fault.name(),
        "layout": row.layout.name(),
        "injected": row.injected,
        "detected": row.detected,
        "healed": row.healed,
        "lost": row.lost,
        "wrong": row.wrong,
        "seen_by_the_disk": row.control,
    })
}
