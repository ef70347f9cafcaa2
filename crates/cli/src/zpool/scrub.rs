//! `zpool scrub`, `zpool resilver`.

use std::ffi::OsString;
use std::io::Write as _;

use verbs::pools::{Scan, ScanRequest, ScanWish};
use verbs::props::nice_bytes;
use verbs::{Engine, Error};

use super::known_name;
use crate::door::{Door, Ran, Stop, bad_letter};
use crate::getopt::{Opt, sort};

/// `zpool scrub`.
pub(crate) fn scrub(door: &mut Door<'_>, words: &[OsString]) -> Ran {
    let words = sort(words, "spwd:", &[]);
    let (mut stop, mut pause, mut wait) = (false, false, false);
    for opt in &words.opts {
        match opt {
            Opt::Flag('s') => stop = true,
            Opt::Flag('p') => pause = true,
            Opt::Flag('w') => wait = true,
            Opt::Value('d', dir) => door.places.push(dir.into()),
            other => return Err(bad_letter(other)),
        }
    }
    let combination = |what: &str| Stop::Usage(format!("invalid option combination: {what}"));
    if stop && pause {
        return Err(combination("-s and -p are mutually exclusive"));
    }
    if wait && (stop || pause) {
        return Err(combination("-w cannot be used with -p or -s"));
    }
    let wish = match (stop, pause) {
        (true, _) => ScanWish::Stop,
        (_, true) => ScanWish::Pause,
        _ => ScanWish::Scrub,
    };
    each(door, &crate::door::names(&words), wish, wait)
}

/// `zpool resilver`.
pub(crate) fn resilver(door: &mut Door<'_>, words: &[OsString]) -> Ran {
    let words = sort(words, "d:", &[]);
    for opt in &words.opts {
        match opt {
            Opt::Value('d', dir) => door.places.push(dir.into()),
            other => return Err(bad_letter(other)),
        }
    }
    each(door, &crate::door::names(&words), ScanWish::Resilver, false)
}

fn each(door: &mut Door<'_>, names: &[String], wish: ScanWish, wait: bool) -> Ran {
    if names.is_empty() {
        return Err(Stop::Usage("missing pool name argument".into()));
    }
    let mut errors = Vec::new();
    for name in names {
        if let Err(error) = known_name(name) {
            errors.push(error);
            continue;
        }
        let request = ScanRequest {
            name: name.clone(),
            wish,
            wait,
            places: door.places.clone(),
            command: door.command.clone(),
        };
        let result = with_progress(door, |engine, tell| engine.pool_scan(&request, tell))?;
        errors.extend(result.err());
    }
    door.complain_all(&errors)
}

/// Does what may take long; on a terminal it is shown how far it is. Nobody waits for whom who has gone.
pub(super) fn with_progress<T>(
    door: &mut Door<'_>,
    work: impl FnOnce(&mut dyn Engine, &mut dyn FnMut(&Scan) -> bool) -> Result<T, Error>,
) -> Result<Result<T, Error>, Stop> {
    let show = std::io::IsTerminal::is_terminal(&std::io::stderr());
    let (mut shown, mut there) = (false, Ok(()));
    let result = {
        let Door { engine, err, .. } = door;
        work(&mut **engine, &mut |scan| {
            if show {
                shown = true;
                let share = match scan.to_examine {
                    0 => 100.0,
                    whole => 100.0 * scan.examined as f64 / whole as f64,
                };
                let (done, total) = (nice_bytes(scan.examined), nice_bytes(scan.to_examine));
                // Progress that cannot be shown is no reason to stop.
                let _ = write!(err, "\r{share:5.1}%  {done} of {total}  ");
            }
            // A served command's outputs are gone when the command is.
            there = err.flush();
            there.is_ok()
        })
    };
    there?;
    if shown {
        door.complain("")?;
    }
    Ok(result)
}
