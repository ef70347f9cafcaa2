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

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    /// As `zpool events -v` of OpenZFS 2.1.11 printed them.
    const RECORDED: &str = "\
May  1 2024 00:03:09.916005936 resource.fs.zfs.statechange
        version = 0x0
        class = \"resource.fs.zfs.statechange\"
        pool = \"tank\"
        pool_guid = 0x126002ff8ab22f3e
        pool_state = 0x0
        pool_context = 0x0
        vdev_guid = 0x61a3db84d8dd807
        vdev_state = \"OFFLINE\" (0x2)
        vdev_path = \"/d/d2\"
        vdev_laststate = \"ONLINE\" (0x7)
        time = 0x663186bd 0x36992430 
        eid = 0x2e
";
    const REPORT: &str = "        class = \"ereport.fs.zfs.checksum\"
        ena = 0x36ceb0b73600001
        detector = (embedded nvlist)
                version = 0x0
                scheme = \"zfs\"
                pool = 0x126002ff8ab22f3e
        (end detector)
        zio_level = 0xffffffffffffffff
";

    #[test]
    fn events_look_as_openzfs_prints_them() {
        let mut list = NvList::new();
        list.put("version", Value::U64(0));
        list.put_string("class", "resource.fs.zfs.statechange");
        list.put_string("pool", "tank");
        list.put_u64("pool_guid", 0x126002ff8ab22f3e);
        list.put("pool_state", Value::I32(0));
        list.put("pool_context", Value::I32(0));
        list.put_u64("vdev_guid", 0x61a3db84d8dd807);
        list.put_u64("vdev_state", 2);
        list.put_string("vdev_path", "/d/d2");
        list.put_u64("vdev_laststate", 7);
        list.put("time", Value::I64Array(vec![0x663186bd, 0x36992430]));
        list.put_u64("eid", 0x2e);
        let time = Duration::new(0x663186bd, 0x36992430);
        let event = Event { number: 0x2e, time, values: list };
        let mut text = row(&event, &jiff::tz::TimeZone::UTC, false);
        values(&event.values, 8, &mut text);
        assert_eq!(text, RECORDED);
        let scripted = row(&event, &jiff::tz::TimeZone::UTC, true);
        let tab = "May  1 2024 00:03:09.916005936\tresource.fs.zfs.statechange\n";
        assert_eq!(scripted, tab);
    }

    #[test]
    fn lists_in_lists_are_further_to_the_right() {
        let (mut list, mut inner) = (NvList::new(), NvList::new());
        inner.put("version", Value::U64(0));
        inner.put_string("scheme", "zfs");
        inner.put_u64("pool", 0x126002ff8ab22f3e);
        list.put_string("class", "ereport.fs.zfs.checksum");
        list.put_u64("ena", 0x36ceb0b73600001);
        list.put_list("detector", inner);
        list.put("zio_level", Value::I64(-1));
        let mut text = String::new();
        values(&list, 8, &mut text);
        assert_eq!(text, REPORT);
    }
}
