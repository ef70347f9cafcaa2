//! `zpool status` and `zpool history`.

use std::ffi::OsString;
use std::path::PathBuf;

use verbs::pools::{self, Event, PoolReport, Removal, Scan, What};
use verbs::props::{nice_bytes, nice_count};

use super::vdevs::{self, StatusStyle};
use super::{interval, known_name, reports, words as advice};
use crate::door::{Door, Ran, Stop, bad_letter};
use crate::getopt::{Opt, sort};
use crate::lists::checked;

/// Bytes in a second below which nothing is said of when a scan will be done.
const FORETOLD_LEAST: u64 = 10 << 20;

/// `zpool status`.
pub(crate) fn status(door: &mut Door<'_>, words: &[OsString]) -> Ran {
    let words = sort(words, "c:igjLpPsvxDtT:d:", &["json", "json-int"]);
    let mut style = StatusStyle::default();
    let (mut unhealthy, mut verbose, mut json, mut stamp) = (false, false, None, None);
    let mut places: Vec<PathBuf> = Vec::new();
    for opt in &words.opts {
        match opt {
            Opt::Flag('i') => style.initialized = true,
            Opt::Flag('g') => style.naming.guids = true,
            Opt::Flag('L') => style.naming.follow = true,
            Opt::Flag('P') => style.naming.full = true,
            Opt::Flag('p') => style.exact = true,
            Opt::Flag('s') => style.slow = true,
            Opt::Flag('t') => style.trimmed = true,
            Opt::Flag('v') => verbose = true,
            Opt::Flag('x') => unhealthy = true,
            Opt::Flag('j') | Opt::Long(_) => json = Some(crate::json::style(&words.opts)),
            Opt::Value('T', word) => stamp = Some(super::list::stamp(word)?),
            Opt::Value('d', dir) => places.push(dir.into()),
            Opt::Flag('D') | Opt::Value('c', _) => {
                let message = "statistics of dedup tables and scripts are not there yet";
                return Err(Stop::Said(message.into(), 1));
            }
            other => return Err(bad_letter(other)),
        }
    }
    let mut names = crate::door::names(&words);
    let every = interval(&mut names)?;
    let mut count = every.map(|(_, count)| count);
    loop {
        let (names, places) = (names.clone(), places.clone());
        let damaged = verbose || json.is_some();
        let asked = pools::Status { names: names.clone(), places, damaged, lost: true };
        let (pools, errors) = reports(door, asked)?;
        // It would be no JSON.
        super::list::print_stamp(door, stamp.filter(|_| json.is_none()))?;
        if let Some(json) = json {
            let text = crate::json::status(&pools, style, json);
            door.print(text)?;
        } else if names.is_empty() && pools.is_empty() && errors.is_empty() {
            door.complain("no pools available")?;
        } else {
            let summary = unhealthy && names.is_empty() && errors.is_empty();
            print_all(door, &pools, summary, unhealthy, verbose, style)?;
        }
        let status = door.complain_all(&errors)?;
        count = count.map(|left| left.map(|n| n.saturating_sub(1)));
        match (every, count) {
            (None, _) | (_, Some(Some(0))) => return Ok(status),
            (Some((pause, _)), _) => door.wait(pause)?,
        }
    }
}

fn print_all(
    door: &mut Door<'_>,
    pools: &[PoolReport],
    summary: bool,
    unhealthy: bool,
    verbose: bool,
    style: StatusStyle,
) -> Result<(), Stop> {
    let mut printed = false;
    for pool in pools {
        if unhealthy && advice::is_healthy(&pool.condition) {
            if !summary {
                let line = format!("pool '{}' is healthy\n", pool.name);
                door.print(line)?;
            }
            continue;
        }
        if printed {
            door.print("\n")?;
        }
        printed = true;
        let text = one(door, pool, verbose, style);
        door.print(text)?;
    }
    if summary && !printed {
        door.print("all pools are healthy\n")?;
    }
    Ok(())
}

/// What `zpool status` says of one pool.
pub(crate) fn one(
    door: &Door<'_>,
    pool: &PoolReport,
    verbose: bool,
    style: StatusStyle,
) -> Vec<u8> {
    let mut text = format!("  pool: {}\n state: {}\n", pool.name, pool.health());
    if let Some(advice) = advice::open(&pool.condition) {
        text += &format!("status: {}\naction: {}\n", advice.status, advice.action);
        if let Some(article) = advice.article {
            text += &format!("   see: {}{article}\n", advice::ARTICLES);
        }
    }
    if let Some(why) = &pool.readonly {
        text += &format!("  note: nothing is written: {why}\n");
    }
    if let Some(scan) = &pool.scan {
        text += &scan_text(door, scan);
    }
    if let Some(removal) = &pool.removal {
        text += &removal_text(door, removal, pool, style);
    }
    if let Some(checkpoint) = &pool.checkpoint {
        let kept = nice_count(checkpoint.kept);
        text += &match checkpoint.made {
            Some(made) => {
                format!("checkpoint: created {}, consumes {kept}\n", door.long_date(made))
            }
            None => format!("checkpoint: discarding, {kept} remaining.\n"),
        };
    }
    text += "config:\n\n";
    let mut out = text.into_bytes();
    let others = (&pool.spares[..], &pool.cache[..]);
    vdevs::status(&mut out, &pool.name, &pool.tree, others, style);
    let errors = match (pool.error_count, verbose) {
        (None, _) => return out,
        (Some(0), _) => "errors: No known data errors\n".to_string(),
        (Some(count), false) => format!("errors: {count} data errors, use '-v' for a list\n"),
        (Some(_), true) => {
            let mut text = String::from(
                "errors: Permanent errors have been detected in the following files:\n\n",
            );
            for damaged in &pool.damaged {
                text += &format!("        {}\n", damaged.name);
                for (offset, len) in &damaged.ranges {
                    text += &format!("                bytes {offset}-{}\n", offset + len - 1);
                }
            }
            text
        }
    };
    out.push(b'\n');
    out.extend_from_slice(errors.as_bytes());
    out
}

/// The line `scan:`.
fn scan_text(door: &Door<'_>, scan: &Scan) -> String {
    let what = if scan.resilver { "resilver" } else { "scrub" };
    let done = nice_bytes(scan.processed);
    let lasted = |from: u64, to: u64| {
        let seconds = to.saturating_sub(from);
        let (days, seconds) = (seconds / 86400, seconds % 86400);
        let clock = format!("{:02}:{:02}:{:02}", seconds / 3600, seconds / 60 % 60, seconds % 60);
        if days > 0 { format!("{days} days {clock}") } else { clock }
    };
    let line = match scan.end {
        Some(end) if scan.cancelled => format!("{what} canceled on {}", door.long_date(end)),
        Some(end) => {
            let verb = if scan.resilver { "resilvered" } else { "scrub repaired" };
            format!(
                "{verb} {done} in {} with {} errors on {}",
                lasted(scan.start, end),
                scan.errors,
                door.long_date(end)
            )
        }
        None => {
            let start = door.long_date(scan.start);
            let first = match scan.paused {
                Some(paused) => {
                    format!(
                        "{what} paused since {}\n\t{what} started on {start}",
                        door.long_date(paused)
                    )
                }
                None => format!("{what} in progress since {start}"),
            };
            let verb = if scan.resilver { "resilvered" } else { "repaired" };
            let share = match scan.to_examine {
                0 => 0.0,
                whole => 100.0 * scan.examined as f64 / whole as f64,
            };
            let (examined, total) = (nice_bytes(scan.examined), nice_bytes(scan.to_examine));
            let rate = scan.pass.0 / scan.pass.1.max(1);
            let each = nice_bytes(rate);
            let (passed, left) = match scan.paused {
                Some(_) => (format!("{examined} scanned, {examined} issued"), String::new()),
                None => {
                    let left = scan.to_examine.saturating_sub(scan.examined);
                    // Of one that has hardly begun nothing is foretold.
                    let due = if scan.resilver { scan.processed } else { scan.examined };
                    let to_go = match left.checked_div(rate) {
                        Some(seconds) if rate >= FORETOLD_LEAST && due > 0 => {
                            format!(", {} to go", lasted(0, seconds))
                        }
                        _ => ", no estimated completion time".into(),
                    };
                    let passed =
                        format!("{examined} scanned at {each}/s, {examined} issued at {each}/s");
                    (passed, to_go)
                }
            };
            format!("{first}\n\t{passed}, {total} total\n\t{done} {verb}, {share:.2}% done{left}")
        }
    };
    format!("  scan: {line}\n")
}

/// The line `remove:`.
fn removal_text(
    door: &Door<'_>,
    removal: &Removal,
    pool: &PoolReport,
    style: StatusStyle,
) -> String {
    let copied = nice_count(removal.copied);
    let name = || {
        let vdev = pool.tree.children.iter().find(|top| top.id == removal.vdev);
        match vdev.map(|vdev| vdevs::name(vdev, style.naming)) {
            Some(name) => String::from_utf8_lossy(&name).into_owned(),
            None => format!("vdev {}", removal.vdev),
        }
    };
    let mut text = match removal.end {
        Some(end) if removal.cancelled => {
            format!("remove: Removal of {} canceled on {}\n", name(), door.long_date(end))
        }
        Some(end) => {
            let minutes = end.saturating_sub(removal.start) / 60;
            format!(
                "remove: Removal of vdev {} copied {copied} in {}h{}m, completed on {}\n",
                removal.vdev,
                minutes / 60,
                minutes % 60,
                door.long_date(end)
            )
        }
        // A pool in the midst of one is only read here, so nothing is foretold of it.
        None => {
            let share = match removal.to_copy {
                0 => 0.0,
                whole => 100.0 * removal.copied as f64 / whole as f64,
            };
            format!(
                "remove: Evacuation of {} in progress since {}\n\t{copied} copied out of {}, {share:.2}% done\n",
                name(),
                door.long_date(removal.start),
                nice_count(removal.to_copy)
            )
        }
    };
    if removal.mappings > 0 {
        let bytes = nice_count(removal.mappings);
        text += &format!("\t{bytes} memory used for removed device mappings\n");
    }
    text
}

/// `zpool history`.
pub(crate) fn history(door: &mut Door<'_>, words: &[OsString]) -> Ran {
    let words = sort(words, "ild:", &[]);
    let (mut internal, mut long) = (false, false);
    for opt in &words.opts {
        match opt {
            Opt::Flag('i') => internal = true,
            Opt::Flag('l') => long = true,
            Opt::Value('d', dir) => door.places.push(dir.into()),
            other => return Err(bad_letter(other)),
        }
    }
    let names = crate::door::names(&words);
    let (good, mut errors) = checked(names.iter().cloned(), known_name);
    let request = pools::History { names: good, places: door.places.clone() };
    let mut shown = 0;
    if names.is_empty() || !request.names.is_empty() {
        for report in door.engine.pool_history(&request)? {
            match report {
                Ok(report) => {
                    shown += 1;
                    let mut text = format!("History for '{}':\n", report.name);
                    for event in &report.events {
                        text += &event_text(door, event, internal, long);
                    }
                    door.print(text + "\n")?;
                }
                Err(error) => errors.push(error),
            }
        }
    }
    if names.is_empty() && shown == 0 && errors.is_empty() {
        door.complain("no pools available")?;
    }
    door.complain_all(&errors)
}

/// One record of the history; nothing for what was not asked for.
fn event_text(door: &Door<'_>, event: &Event, internal: bool, long: bool) -> String {
    let time = door.stamp(event.time);
    let mut text = match &event.what {
        What::Command(command) => format!("{time} {command}"),
        _ if !internal => return String::new(),
        What::Internal { txg, name, dataset, text } => {
            let dataset = match dataset {
                Some((name, object)) => format!(" {name} ({object})"),
                None => String::new(),
            };
            format!("{time} [txg:{txg}] {name}{dataset} {text}")
        }
        What::Call { name, input, output, errno, elapsed } => {
            let elapsed = elapsed.map(|ns| format!(" ({}ms)", ns / 1_000_000)).unwrap_or_default();
            let mut text = format!("{time}{elapsed} ioctl {name}\n");
            for (heading, lines) in [("input", input), ("output", output)] {
                if !lines.is_empty() {
                    text += &format!("    {heading}:\n");
                    lines.iter().for_each(|line| text += &format!("{line}\n"));
                }
            }
            if let Some(errno) = errno {
                text += &format!("    errno: {errno}\n");
            }
            text
        }
    };
    if long {
        let user = event.user.as_ref().map(|(uid, name)| match name {
            Some(name) => format!("user {uid} ({name}) "),
            None => format!("user {uid} "),
        });
        let host = event.host.as_ref().map(|host| format!("on {host}"));
        let zone = event.zone.as_ref().map(|zone| format!(":{zone}"));
        let parts = [user, host, zone].into_iter().flatten().collect::<String>();
        if !parts.is_empty() {
            text += &format!(" [{parts}]");
        }
    }
    text + "\n"
}
