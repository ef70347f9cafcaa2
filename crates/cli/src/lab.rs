//! `thumper lab`: experiments on simulated disks, in this process alone.

use std::ffi::OsString;

use serde_json::{Value as Json, json};
use verbs::lab::faults::{self, Row};
use verbs::props::parse_number;

use crate::door::{Door, Ran, Stop, bad_option};
use crate::getopt::{Opt, sort};

/// What `-h` says besides.
pub(crate) const HELP: &str = "
Nothing real is touched: the disks are in memory.

\tfaults   damage put into disks under load: what of it was detected, healed, lost; beside it what a checksum that the
\t         disk keeps with each sector would have seen
\t--seeds  so many experiments of each kind (10)
";

/// Seeds, if nobody says how many.
const SEEDS: u64 = 10;

/// `thumper lab`.
pub(crate) fn lab(door: &mut Door<'_>, words: &[OsString]) -> Ran {
    let words = sort(words, "j", &["json", "seeds:"]);
    let (mut json, mut seeds) = (false, SEEDS);
    for opt in &words.opts {
        match opt {
            Opt::Flag('j') | Opt::Long(_) => json = true,
            Opt::LongValue(_, word) => {
                let bytes = std::os::unix::ffi::OsStrExt::as_bytes(word.as_os_str());
                let number = parse_number(bytes);
                seeds = number.map_err(|why| Stop::Usage(format!("--seeds: {why}")))?;
            }
            other => return Err(bad_option(other)),
        }
    }
    let [what] = &words.operands[..] else { return Err(Stop::Usage("missing experiment".into())) };
    if what != "faults" {
        let what = what.to_string_lossy();
        return Err(Stop::Usage(format!("'{what}' is no experiment: there is 'faults'")));
    }
    if !json {
        door.print(heading())?;
    }
    let mut printed = Ok(());
    let rows = faults::run(seeds, &mut |row| {
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
