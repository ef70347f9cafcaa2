//! `zfs mount unmount`: file systems where their properties say, by the server.

use std::ffi::OsString;

use verbs::Error;
use verbs::mounts::{Attach, Detach, What};

use super::known_name;
use crate::door::{Door, Ran, Stop, bad_option, text};
use crate::getopt::{Opt, sort};

/// `zfs mount`.
pub(crate) fn mount(door: &mut Door<'_>, words: &[OsString]) -> Ran {
    let words = sort(words, "afO", &[]);
    let mut all = false;
    for opt in &words.opts {
        match opt {
            Opt::Flag('a') => all = true,
            // A directory need not be empty, and force changes nothing.
            Opt::Flag('f' | 'O') => {}
            other => return Err(bad_option(other)),
        }
    }
    let name = match &words.operands[..] {
        [] if all => None,
        [] => return list(door),
        [name] if !all => Some(text(name)),
        _ => return Err(Stop::Usage("too many arguments".into())),
    };
    if let Some(name) = &name {
        known_filesystem(name)?;
    }
    let errors = door.engine.attach(&Attach { name })?;
    door.complain_all(&errors)
}

fn list(door: &mut Door<'_>) -> Ran {
    for (name, dir) in door.engine.mounted()? {
        door.print(format!("{name:<30}  {}\n", dir.display()))?;
    }
    Ok(0)
}

/// `zfs unmount`.
pub(crate) fn unmount(door: &mut Door<'_>, words: &[OsString]) -> Ran {
    let words = sort(words, "afu", &[]);
    let (mut all, mut force) = (false, false);
    for opt in &words.opts {
        match opt {
            Opt::Flag('a') => all = true,
            Opt::Flag('f') => force = true,
            // Keys stay where they are: none are loaded.
            Opt::Flag('u') => {}
            other => return Err(bad_option(other)),
        }
    }
    let what = match &words.operands[..] {
        [] if all => What::All,
        [] => return Err(Stop::Usage("missing filesystem argument".into())),
        [dir] if !all && text(dir).starts_with('/') => What::At(dir.into()),
        [name] if !all => {
            let name = text(name);
            known_filesystem(&name)?;
            What::Named(name)
        }
        _ => return Err(Stop::Usage("too many arguments".into())),
    };
    let errors = door.engine.detach(&Detach { what, force })?;
    door.complain_all(&errors)
}

/// Checks the name of what must be a file system.
fn known_filesystem(name: &str) -> Result<(), Error> {
    match name.contains('@') {
        true => {
            let why = "snapshot delimiter '@' is not expected here";
            Err(Error::open(name, verbs::Why::NotDone(why.into())))
        }
        false => known_name(name),
    }
}
