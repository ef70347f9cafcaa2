//! `thumper rescue`: what is left of pools that do not open.
//!
//! `rescue scan` tells what is there; `rescue COMMAND` runs a command that reads, on the pool as it is.

use std::ffi::OsString;
use std::path::PathBuf;

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
pub(crate) const USAGE: &str = "rescue scan [-j] [-d dir] [--roots file] [dir] ...\n\
                rescue [-T txg] [-d dir] [--roots file] <command> [args ...]";

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
            Some("-T") => rescue.txg = at(value)?.txg,
            Some("--roots") => rescue.roots = Some(value.into()),
            Some("-d") => door.places.push(value.into()),
            _ => break,
        }
        rest = after;
    }
    let word = |at: usize| rest.get(at).and_then(|word| word.to_str());
    let reads = match (word(0), word(1)) {
        (Some("scan"), _) => return scan(door, rest.get(1..).unwrap_or_default(), rescue.roots),
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

/// What `-T` asks for.
pub(crate) fn at(word: &OsString) -> Result<Rescue, Stop> {
    let txg = parse_number(std::os::unix::ffi::OsStrExt::as_bytes(word.as_os_str()));
    let txg = txg.map_err(|why| Stop::Usage(format!("-T: {why}")))?;
    Ok(Rescue { txg: Some(txg), roots: None })
}

/// `thumper rescue scan`; `roots` is the file of that option, if it stood before the word.
fn scan(door: &mut Door<'_>, words: &[OsString], mut roots: Option<PathBuf>) -> Ran {
    let words = sort(words, "d:j", &["json", "roots:"]);
    let (mut json, mut places) = (false, Vec::new());
    for opt in &words.opts {
        match opt {
            Opt::Value('d', dir) => places.push(dir.into()),
            Opt::Flag('j') | Opt::Long(_) => json = true,
            Opt::LongValue(_, file) => roots = Some(file.into()),
            other => return Err(bad_option(other)),
        }
    }
    places.extend(words.operands.iter().map(Into::into));
    let places = door.places(places);
    let (err, mut shown) = (&mut *door.err, false);
    let show = std::io::IsTerminal::is_terminal(&std::io::stderr());
    let pools = door.engine.rescue_scan(&places, roots.as_deref(), &mut |done, all| {
        shown |= show && crate::judge::tell(err, done, all);
    })?;
    if shown {
        door.complain("")?;
    }
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
        let when = left.time.map_or("found among the blocks".into(), |time| door.long_date(time));
        text += &format!("\t{}  {when}  {opens}\n", left.txg);
    }
    if pool.txgs.is_empty() {
        text += "\tnone: no label has a whole uberblock ('--roots FILE' searches the disks)\n";
    }
    text
}
