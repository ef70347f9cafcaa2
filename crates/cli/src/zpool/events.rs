//! `zpool events`: what has happened to the pools that a server holds.

use std::ffi::OsString;
use std::fmt::Write as _;

use verbs::events::nvlist::{NvList, Value};
use verbs::events::{Event, Heard, Query};

use crate::door::{Door, Ran, Stop, bad_option, names};
use crate::getopt::{Opt, sort};

/// Values that are states, by name; and the states, by number.
const STATES_IN: [&str; 2] = ["vdev_state", "vdev_laststate"];
const STATES: [&str; 8] =
    ["UNKNOWN", "CLOSED", "OFFLINE", "REMOVED", "UNAVAIL", "FAULTED", "DEGRADED", "ONLINE"];

/// `zpool events`.
pub(crate) fn events(door: &mut Door<'_>, words: &[OsString]) -> Ran {
    let words = sort(words, "vHfcd:", &[]);
    let (mut verbose, mut scripted, mut clear) = (false, false, false);
    let mut query = Query::default();
    for opt in &words.opts {
        match opt {
            Opt::Flag('v') => verbose = true,
            Opt::Flag('H') => scripted = true,
            Opt::Flag('f') => query.follow = true,
            Opt::Flag('c') => clear = true,
            Opt::Value('d', dir) => door.places.push(dir.into()),
            other => return Err(bad_option(other)),
        }
    }
    let names = names(&words);
    if names.len() > 1 {
        return Err(Stop::Usage("too many arguments".into()));
    }
    if clear {
        if verbose || scripted || query.follow || !names.is_empty() {
            return Err(Stop::Usage("invalid options combined with -c".into()));
        }
        let count = door.engine.pool_events_clear()?;
        door.print(format!("cleared {count} events\n"))?;
        return Ok(0);
    }
    query.pool = names.into_iter().next();
    let mut heading = (!scripted).then(|| format!("{:<30} CLASS\n", "TIME"));
    let (zone, out) = (&door.zone, &mut *door.out);
    let mut failed = None;
    let mut tell = |heard: Heard<'_>| {
        let mut text = heading.take().unwrap_or_default();
        if let Heard::Event(event) = heard {
            text += &row(event, zone, scripted);
            if verbose {
                values(&event.values, 8, &mut text);
                text.push('\n');
            }
        }
        let mut written = out.write_all(text.as_bytes());
        if let Heard::Silence = heard {
            written = written.and_then(|()| out.flush());
        }
        failed = written.err();
        failed.is_none()
    };
    door.engine.pool_events(&query, &mut tell)?;
    match (failed, heading) {
        (Some(error), _) => Err(error.into()),
        (None, heading) => {
            door.print(heading.unwrap_or_default())?;
            Ok(0)
        }
    }
}

/// The line of an event.
fn row(event: &Event, zone: &jiff::tz::TimeZone, scripted: bool) -> String {
    let seconds = i64::try_from(event.time.as_secs()).unwrap_or(i64::MAX);
    let date = crate::door::time_in(zone, seconds, "%b %e %Y %H:%M:%S");
    let (nanos, class) = (event.time.subsec_nanos(), event.class());
    let between = if scripted { '\t' } else { ' ' };
    format!("{date}.{nanos:09}{between}{class}\n")
}

/// Named values, a line each, so far from the left.
fn values(list: &NvList, indent: usize, text: &mut String) {
    for pair in list.pairs() {
        let name = String::from_utf8_lossy(&pair.name);
        let pad = " ".repeat(indent);
        // Text that is written to a string always fits.
        let _ = match &pair.value {
            Value::List(inner) => {
                let _ = writeln!(text, "{pad}{name} = (embedded nvlist)");
                values(inner, indent + 8, text);
                writeln!(text, "{pad}(end {name})")
            }
            Value::U64(state) if STATES_IN.contains(&&*name) => {
                let word = STATES.get(*state as usize).unwrap_or(&"UNKNOWN");
                writeln!(text, "{pad}{name} = \"{word}\" ({state:#x})")
            }
            value => writeln!(text, "{pad}{name} = {}", shown(value)),
        };
    }
}

fn shown(value: &Value) -> String {
    fn hex<T: std::fmt::LowerHex>(numbers: &[T]) -> String {
        numbers.iter().map(|number| format!("{number:#x} ")).collect()
    }
    fn text(bytes: &[u8]) -> String {
        format!("\"{}\"", String::from_utf8_lossy(bytes))
    }
    match value {
        Value::String(bytes) => text(bytes),
        Value::StringArray(all) => all.iter().map(|bytes| text(bytes) + " ").collect(),
        Value::U64(number) => format!("{number:#x}"),
        Value::I64(number) => format!("{number:#x}"),
        Value::U32(number) => format!("{number:#x}"),
        Value::I32(number) => format!("{number:#x}"),
        Value::U64Array(numbers) => hex(numbers),
        Value::I64Array(numbers) => hex(numbers),
        Value::BooleanValue(yes) => u8::from(*yes).to_string(),
        Value::Boolean => "1".into(),
        other => format!("{other:?}"),
    }
}
