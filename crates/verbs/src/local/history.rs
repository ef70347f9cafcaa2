//! A pool's history as it is on disk, told event by event.

use format::NvList;
use format::history::key;
use format::nvlist::Value;
use pool::{Pool, PoolError};

use crate::pools::{Event, HistoryReport, What};

/// All of a pool's history.
pub(crate) fn report(pool: &Pool) -> Result<HistoryReport, PoolError> {
    let records = pool::history::records(pool.mos())?;
    let events = records.iter().map(event).collect();
    Ok(HistoryReport { name: pool.name().into(), events })
}

fn text(list: &NvList, key: &str) -> Option<String> {
    list.text(key).map(|text| text.into_owned())
}

/// A number, signed or not.
fn number(list: &NvList, key: &str) -> Option<i64> {
    match list.get(key)? {
        Value::I64(number) => Some(*number),
        Value::U64(number) => i64::try_from(*number).ok(),
        _ => None,
    }
}

fn event(list: &NvList) -> Event {
    let what = if let Some(command) = text(list, key::COMMAND) {
        What::Command(command)
    } else if let Some(name) = text(list, key::IOCTL) {
        let lines = |key: &str| {
            let mut lines = Vec::new();
            if let Some(inner) = list.list(key) {
                print(inner, 8, &mut lines);
            }
            lines
        };
        What::Call {
            name,
            input: lines(key::INPUT),
            output: lines(key::OUTPUT),
            errno: number(list, key::ERRNO),
            elapsed: number(list, key::ELAPSED_NS).and_then(|ns| u64::try_from(ns).ok()),
        }
    } else {
        let id = list.u64(key::DATASET_ID);
        What::Internal {
            txg: list.u64(key::TXG).unwrap_or(0),
            name: text(list, key::INTERNAL_NAME).unwrap_or_default(),
            dataset: text(list, key::DATASET_NAME).zip(id),
            text: text(list, key::INTERNAL_TEXT).unwrap_or_default(),
        }
    };
    let uid = list.u64(key::WHO);
    Event {
        time: list.u64(key::TIME).unwrap_or(0),
        what,
        user: uid.map(|uid| (uid, user_name(uid))),
        host: text(list, key::HOST),
        zone: text(list, key::ZONE),
    }
}

/// The name of a user on this system.
fn user_name(uid: u64) -> Option<String> {
    crate::host::Names::Users.by_number().remove(&uid)
}

/// The lines of a list, indented: names with their values, lists within further in.
fn print(list: &NvList, indent: usize, lines: &mut Vec<String>) {
    let pad = " ".repeat(indent);
    for pair in list.pairs() {
        let name = String::from_utf8_lossy(&pair.name);
        let quoted = |text: &[u8]| format!("'{}'", String::from_utf8_lossy(text));
        let mut each = |values: Vec<String>| {
            for (i, value) in values.into_iter().enumerate() {
                lines.push(format!("{pad}{name}[{i}]: {value}"));
            }
        };
        let one = match &pair.value {
            Value::Boolean => {
                lines.push(format!("{pad}{name}"));
                continue;
            }
            Value::List(inner) => {
                lines.push(format!("{pad}{name}:"));
                print(inner, indent + 4, lines);
                continue;
            }
            Value::ListArray(inner) => {
                for (i, inner) in inner.iter().enumerate() {
                    lines.push(format!("{pad}{name}[{i}]:"));
                    print(inner, indent + 4, lines);
                }
                continue;
            }
            Value::StringArray(texts) => {
                each(texts.iter().map(|text| quoted(text)).collect());
                continue;
            }
            Value::U64Array(numbers) => {
                each(numbers.iter().map(u64::to_string).collect());
                continue;
            }
            Value::BooleanValue(yes) => yes.to_string(),
            Value::String(text) => quoted(text),
            Value::U64(number) => number.to_string(),
            Value::U32(number) => number.to_string(),
            Value::U16(number) => number.to_string(),
            Value::U8(number) | Value::Byte(number) => number.to_string(),
            Value::I64(number) | Value::HrTime(number) => number.to_string(),
            Value::I32(number) => number.to_string(),
            Value::I16(number) => number.to_string(),
            Value::I8(number) => number.to_string(),
            // Arrays of small numbers, which no call of today has.
            other => format!("{other:?}"),
        };
        lines.push(format!("{pad}{name}: {one}"));
    }
}

#[cfg(test)]
mod tests {
    use rt::sync::Arc;
    use testkit::temp_dir;

    use super::*;
    use crate::local::Held;
    use crate::local::held::tests::mirror_and_spare;
    use crate::state::StateFile;

    /// Seen red: the record of a long command suspended the pool, and nobody could clear that.
    #[test]
    fn of_a_long_command_the_beginning_is_kept() {
        let (held, dir) = (Arc::new(Held::default()), temp_dir());
        let state = StateFile::new(dir.path().join("pools"));
        let (pool, _images) = mirror_and_spare(&held, state.clone());
        let last = || match report(&pool).expect("a history").events.pop().map(|event| event.what) {
            Some(What::Command(command)) => command,
            other => panic!("{other:?}"),
        };
        let long = format!("zfs set {}", "\u{fc}".repeat(100_000));
        pool.note(pool::history::command(1, &long, 0, "here")).expect("it is noted");
        let kept = last();
        assert!(long.starts_with(&kept) && kept.len() == pool::history::COMMAND_MAX, "{kept}");
        // What the ring cannot hold is left out.
        let event = pool::history::event(2, 3, "set", &long, "here");
        pool.note(event).expect("it is passed over");
        assert_eq!(last(), kept);
        pool.note(pool::history::command(4, "zfs list", 0, "here")).expect("it is noted");
        assert_eq!((last().as_str(), pool.suspended()), ("zfs list", None));
        drop(pool);
        assert_eq!(held.close(&state).len(), 0);
    }
}
