//! `thumper rescue`: what is left of pools that do not open.
//!
//! `rescue scan` tells what is there; `rescue COMMAND` runs a command that reads, on the pool as it is.

use std::ffi::OsString;

use verbs::pools::{State, Vdev};
use verbs::props::parse_number;
use verbs::rescue::{Remains, Rescue};

use crate::door::{Door, Ran, Stop, bad_option};
use crate::getopt::{Opt, sort};

/// What `-h` says besides.
pub(crate) const HELP: &str = "
Nothing is ever written. Disks may be missing beyond the redundancy: what can be read is.

\tscan         which pools are there, and which of their txgs open
\t-T TXG       the pool as of that txg, or the last one before it that is left
\t<command>    ls, cat, get [--salvage], verify, dump, zfs list|get|userspace|diff, zpool status|list|get|history
";

/// Usage of the word itself.
pub(crate) const USAGE: &str = "rescue scan [-j] [-d dir] [dir] ...\n\
                rescue [-T txg] [-d dir] <command> [args ...]";

/// Commands that the door lets through: they only read.
pub(crate) const READING: &[&str] = &["ls", "cat", "get", "verify", "dump"];
/// Of `zfs`.
pub(crate) const READING_ZFS: &[&str] =
    &["list", "get", "userspace", "groupspace", "projectspace", "diff", "holds"];
/// Of `zpool`.
pub(crate) const READING_ZPOOL: &[&str] = &["status", "list", "get", "history"];

/// `thumper rescue`.
pub(crate) fn rescue(door: &mut Door<'_>, words: &[OsString]) -> Ran {
    let (mut rest, mut rescue) = (words, Rescue::default());
    while let [option, value, after @ ..] = rest {
        match option.to_str() {
            Some("-T") => rescue = txg(value)?,
            Some("-d") => door.places.push(value.into()),
            _ => break,
        }
        rest = after;
    }
    let word = |at: usize| rest.get(at).and_then(|word| word.to_str());
    let reads = match (word(0), word(1)) {
        (Some("scan"), _) => return scan(door, rest.get(1..).unwrap_or_default()),
        (Some("zfs"), Some(verb)) => READING_ZFS.contains(&verb),
        (Some("zpool"), Some(verb)) => READING_ZPOOL.contains(&verb),
        (Some(verb), _) => READING.contains(&verb),
        (None, _) => return Err(Stop::Usage("missing command".into())),
    };
    if !reads {
        let shown = rest.iter().take(2).map(|word| word.to_string_lossy());
        let shown = shown.collect::<Vec<_>>().join(" ");
        return Err(Stop::Usage(format!("'{shown}' is no command that only reads")));
    }
    door.engine.rescue(rescue);
    Ok(crate::start(crate::Program::Thumper, rest, door)?)
}

/// The value of `-T`.
pub(crate) fn txg(word: &OsString) -> Result<Rescue, Stop> {
    let txg = parse_number(std::os::unix::ffi::OsStrExt::as_bytes(word.as_os_str()));
    let txg = txg.map_err(|why| Stop::Usage(format!("-T: {why}")))?;
    Ok(Rescue { txg: Some(txg) })
}

/// `thumper rescue scan`.
pub(crate) fn scan(door: &mut Door<'_>, words: &[OsString]) -> Ran {
    let words = sort(words, "d:j", &["json"]);
    let (mut json, mut places) = (false, Vec::new());
    for opt in &words.opts {
        match opt {
            Opt::Value('d', dir) => places.push(dir.into()),
            Opt::Flag('j') | Opt::Long(_) => json = true,
            other => return Err(bad_option(other)),
        }
    }
    places.extend(words.operands.iter().map(Into::into));
    let places = door.places(places);
    let pools = door.engine.rescue_scan(&places)?;
    if json {
        door.print(crate::json::remains(&pools))?;
    } else {
        for (index, pool) in pools.iter().enumerate() {
            let text = told(door, pool);
            door.print(if index == 0 { text } else { format!("\n{text}") })?;
        }
    }
    if pools.is_empty() {
        return Err(Stop::Said("no pools available to rescue".into(), 1));
    }
    Ok(0)
}

/// The leaves of a tree: how many, and those that are not there.
fn leaves<'a>(vdev: &'a Vdev, count: &mut usize, gone: &mut Vec<&'a Vdev>) {
    if vdev.children.is_empty() {
        *count += 1;
        if vdev.state != State::Online {
            gone.push(vdev);
        }
    }
    vdev.children.iter().for_each(|child| leaves(child, count, gone));
}

fn told(door: &Door<'_>, pool: &Remains) -> String {
    let (mut count, mut gone) = (0, Vec::new());
    leaves(&pool.tree, &mut count, &mut gone);
    let mut text = format!("   pool: {}\n     id: {}\n", pool.name, pool.guid);
    text += &format!("devices: {} of {count} found\n", count - gone.len());
    for vdev in gone {
        let name = vdev.path.as_ref().map(|path| path.display().to_string());
        let name = name.unwrap_or_else(|| vdev.guid.to_string());
        text += &format!("\t{name}  {}\n", vdev.state.name());
    }
    text += "   txgs:\n";
    for left in &pool.txgs {
        let opens = left.problem.as_deref().unwrap_or("opens");
        text += &format!("\t{}  {}  {opens}\n", left.txg, door.long_date(left.time));
    }
    if pool.txgs.is_empty() {
        text += "\tnone: no label has a whole uberblock\n";
    }
    text
}
