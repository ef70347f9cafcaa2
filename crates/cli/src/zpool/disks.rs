//! `zpool add`, `remove`, `offline`, `online`, `attach`, `replace`, `detach`, `labelclear`.

use std::ffi::OsString;

use verbs::Error;
use verbs::disks::{Act, Add, Change, Labelclear};
use verbs::layout::{Class, Layout, LayoutError};
use verbs::pools::PoolReport;

use super::create::{planned, planned_device, resolve};
use super::known_name;
use super::scrub::with_progress;
use super::vdevs::{self, Naming};
use crate::door::{Door, Ran, Stop, bad_letter, bad_option, text};
use crate::getopt::{Opt, Words, sort};

/// Status of an attach, a replace or a detach that was refused: OpenZFS ends with -1 there.
const REFUSED: u8 = 255;

/// The letters of options that have no value.
fn letters(words: &Words) -> Result<Vec<char>, Stop> {
    let letter = |opt: &Opt| match opt {
        Opt::Flag(letter) => Ok(*letter),
        other => Err(bad_letter(other)),
    };
    words.opts.iter().map(letter).collect()
}

fn change(
    door: &mut Door<'_>,
    name: &str,
    device: String,
    act: Act,
    (force, wait): (bool, bool),
) -> Ran {
    let (places, command) = (door.places.clone(), door.command.clone());
    let request = Change { name: name.into(), device, act, force, wait, places, command };
    for note in with_progress(door, |engine, tell| engine.pool_disk(&request, tell))?? {
        door.print(format!("{note}\n"))?;
    }
    Ok(0)
}

/// The same to each device; the status is that of all.
fn each(door: &mut Door<'_>, words: &Words, act: &Act) -> Ran {
    let [name, devices @ ..] = &words.operands[..] else {
        return Err(Stop::Usage("missing pool name".into()));
    };
    if devices.is_empty() {
        return Err(Stop::Usage("missing device name".into()));
    }
    let name = text(name);
    known_name(&name)?;
    let mut errors = Vec::new();
    for device in devices {
        match change(door, &name, text(device), act.clone(), (false, false)) {
            Err(Stop::Failed(error)) => errors.push(error),
            other => drop(other?),
        }
    }
    door.complain_all(&errors)
}

/// `zpool offline`.
pub(crate) fn offline(door: &mut Door<'_>, words: &[OsString]) -> Ran {
    let words = sort(words, "ft", &[]);
    let letters = letters(&words)?;
    let (fault, temporary) = (letters.contains(&'f'), letters.contains(&'t'));
    each(door, &words, &Act::Offline { temporary, fault })
}

/// `zpool online`.
pub(crate) fn online(door: &mut Door<'_>, words: &[OsString]) -> Ran {
    let words = sort(words, "e", &[]);
    let expand = letters(&words)?.contains(&'e');
    each(door, &words, &Act::Online { expand })
}

/// `zpool detach`.
pub(crate) fn detach(door: &mut Door<'_>, words: &[OsString]) -> Ran {
    let words = sort(words, "", &[]);
    letters(&words)?;
    let (name, device) = match &words.operands[..] {
        [] => return Err(Stop::Usage("missing pool name argument".into())),
        [_] => return Err(Stop::Usage("missing <device> specification".into())),
        [name, device] => (text(name), text(device)),
        _ => return Err(Stop::Usage("too many arguments".into())),
    };
    known_name(&name)?;
    let done = change(door, &name, device, Act::Detach, (false, false));
    refusal(done)
}

/// `zpool attach`.
pub(crate) fn attach(door: &mut Door<'_>, words: &[OsString]) -> Ran {
    attach_or_replace(door, words, false)
}

/// `zpool replace`.
pub(crate) fn replace(door: &mut Door<'_>, words: &[OsString]) -> Ran {
    attach_or_replace(door, words, true)
}

fn attach_or_replace(door: &mut Door<'_>, words: &[OsString], replacing: bool) -> Ran {
    let words = sort(words, "fo:sw", &[]);
    let (mut force, mut wait) = (false, false);
    for opt in &words.opts {
        match opt {
            Opt::Flag('f') => force = true,
            Opt::Flag('w') => wait = true,
            Opt::Flag('s') => {
                let message = "sequential rebuilds are not there: without '-s' it is resilvered";
                return Err(Stop::Said(message.into(), 1));
            }
            Opt::Value('o', word) => {
                let typed = text(word);
                let Some(value) = typed.strip_prefix("ashift=") else {
                    let message = format!("property '{typed}' is not valid here");
                    return Err(Stop::Said(message, 1));
                };
                // Those that the vdev has stay.
                super::create::shift_of(value.as_bytes())?;
            }
            other => return Err(bad_option(other)),
        }
    }
    let (name, old, new) = match &words.operands[..] {
        [] => return Err(Stop::Usage("missing pool name argument".into())),
        [_] => return Err(Stop::Usage("missing <device> specification".into())),
        [_, _] if !replacing => {
            return Err(Stop::Usage("missing <new_device> specification".into()));
        }
        [name, old] => (name, old, None),
        [name, old, new] => (name, old, Some(new)),
        _ => return Err(Stop::Usage("too many arguments".into())),
    };
    let name = text(name);
    known_name(&name)?;
    let new = new.map(|word| resolve(word)).transpose();
    let new = new.map_err(|error| Error::from(LayoutError::from(error)))?;
    let act = match (replacing, new) {
        (false, Some(new)) => Act::Attach(new),
        (_, new) => Act::Replace(new),
    };
    refusal(change(door, &name, text(old), act, (force, wait)))
}

/// What OpenZFS refuses with -1.
fn refusal(done: Ran) -> Ran {
    match done {
        Err(Stop::Failed(error @ Error::Cannot { doing: verbs::Doing::Disk(_), .. })) => {
            Err(Stop::Said(error.to_string(), REFUSED))
        }
        other => other,
    }
}

/// `zpool remove`.
pub(crate) fn remove(door: &mut Door<'_>, words: &[OsString]) -> Ran {
    let words = sort(words, "npsw", &[]);
    if let Some(Opt::Flag(letter)) = words.opts.iter().find(|opt| matches!(opt, Opt::Flag(_))) {
        return Err(Stop::Said(format!("removing with -{letter} is not there yet"), 1));
    }
    letters(&words)?;
    each(door, &words, &Act::Remove)
}

/// `zpool add`.
pub(crate) fn add(door: &mut Door<'_>, words: &[OsString]) -> Ran {
    let words = sort(words, "fgLno:P", &[]);
    let (mut force, mut dry_run, mut naming) = (false, false, Naming::default());
    let mut ashift = None;
    for opt in &words.opts {
        match opt {
            Opt::Flag('f') => force = true,
            Opt::Flag('n') => dry_run = true,
            Opt::Flag('g') => naming.guids = true,
            Opt::Flag('L') => naming.follow = true,
            Opt::Flag('P') => naming.full = true,
            Opt::Value('o', word) if text(word).starts_with("ashift=") => {
                let typed = text(word);
                ashift = super::create::shift_of(&typed.as_bytes()["ashift=".len()..])?;
            }
            Opt::Value('o', word) => {
                let message = format!("property '{}' is not valid here", text(word));
                return Err(Stop::Said(message, 1));
            }
            other => return Err(bad_option(other)),
        }
    }
    let (name, devices) = match &words.operands[..] {
        [] => return Err(Stop::Usage("missing pool name argument".into())),
        [_] => return Err(Stop::Usage("missing vdev specification".into())),
        [name, devices @ ..] => (text(name), devices),
    };
    known_name(&name)?;
    let layout = Layout::parse(devices, resolve).map_err(Error::from)?;
    let (places, command) = (door.places.clone(), door.command.clone());
    let request = Add { name, layout, ashift, force, dry_run, places, command };
    if let Some(before) = door.engine.pool_add(&request)? {
        door.print(plan(&request, &before, naming))?;
    }
    Ok(0)
}

/// What `zpool add -n` says the pool would be.
fn plan(request: &Add, before: &PoolReport, naming: Naming) -> Vec<u8> {
    let name = &request.name;
    let head = format!("would update '{name}' to the following configuration:\n\n\t{name}\n");
    let mut out = head.into_bytes();
    vdevs::names(&mut out, &before.tree, Class::Normal, naming);
    planned(&mut out, &request.layout, Class::Normal);
    for (class, heading) in vdevs::SECTIONS {
        let had = vdevs::of_class(&before.tree, class).next().is_some();
        if had || request.layout.groups.iter().any(|group| group.class == class) {
            out.extend_from_slice(format!("\t{heading}\n").as_bytes());
        }
        vdevs::names(&mut out, &before.tree, class, naming);
        planned(&mut out, &request.layout, class);
    }
    let layout = &request.layout;
    for (heading, had, new) in
        [("cache", &before.cache, &layout.cache), ("spares", &before.spares, &layout.spares)]
    {
        if !(had.is_empty() && new.is_empty()) {
            out.extend_from_slice(format!("\t{heading}\n").as_bytes());
        }
        had.iter().for_each(|vdev| vdevs::name_row(&mut out, vdev, naming));
        new.iter().for_each(|path| planned_device(&mut out, 2, path));
    }
    out
}

/// `zpool labelclear`.
pub(crate) fn labelclear(door: &mut Door<'_>, words: &[OsString]) -> Ran {
    let words = sort(words, "f", &[]);
    let force = letters(&words)?.contains(&'f');
    let device = match &words.operands[..] {
        [] => return Err(Stop::Usage("missing vdev name".into())),
        [device] => device.into(),
        _ => return Err(Stop::Usage("too many arguments".into())),
    };
    door.engine.pool_labelclear(&Labelclear { device, force })?;
    Ok(0)
}
