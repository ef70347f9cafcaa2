//! `zfs inherit`.

use std::ffi::OsString;
use std::os::unix::ffi::OsStrExt;

use verbs::datasets::Inherit;
use verbs::props::{Access, Key, Prop};
use verbs::{Doing, Error, Why};

use super::known_name;
use crate::door::{Door, Ran, Stop, bad_letter, text};
use crate::getopt::{Opt, sort};
use crate::lists::checked;

/// Properties that hold for one data set and can be cleared.
const CLEARED: [Prop; 4] = [Prop::Quota, Prop::Refquota, Prop::Reservation, Prop::Refreservation];

/// `zfs inherit`.
pub(crate) fn inherit(door: &mut Door<'_>, words: &[OsString]) -> Ran {
    let words = sort(words, "rS", &[]);
    let (mut recursive, mut revert) = (false, false);
    for opt in &words.opts {
        match opt {
            Opt::Flag('r') => recursive = true,
            Opt::Flag('S') => revert = true,
            other => return Err(bad_letter(other)),
        }
    }
    let Some((property, names)) = words.operands.split_first() else {
        return Err(Stop::Usage("missing property argument".into()));
    };
    if names.is_empty() {
        return Err(Stop::Usage("missing dataset argument".into()));
    }
    let key = match Key::named_or_column(property.as_bytes()) {
        Some(key @ (Key::Native(_) | Key::User(_))) => key,
        _ => return Err(Stop::Usage(format!("invalid property '{}'", text(property)))),
    };
    if let Key::Native(prop) = key {
        check(prop, revert)?;
    }
    let (mut good, mut errors) = checked(names.iter().map(|name| text(name)), known_name);
    // Labels of Trusted Solaris: nobody here may change them.
    if key == Key::Native(Prop::Mlslabel) {
        for name in good.drain(..) {
            let doing = Doing::Inherit(key.name(), name);
            errors.push(Error::cannot(doing, Why::Host("permission denied".into())));
        }
    }
    if !good.is_empty() {
        let request = Inherit {
            names: good,
            key,
            revert,
            recursive,
            places: door.places.clone(),
            command: if errors.is_empty() { door.command.clone() } else { String::new() },
        };
        let report = door.engine.dataset_inherit(&request)?;
        for note in &report.notes {
            door.complain(note)?;
        }
        errors.extend(report.errors);
    }
    door.complain_all(&errors)
}

/// Can the property be inherited, or at least be what came with a stream?
fn check(prop: Prop, revert: bool) -> Result<(), Stop> {
    let name = prop.name();
    if revert && matches!(prop, Prop::Volsize | Prop::Version) {
        let message = format!("'{name}' property cannot be reverted to a received value");
        return Err(Stop::Said(message, 1));
    }
    match prop.info().access {
        Access::Computed | Access::Once | Access::OnceOwn => {
            Err(Stop::Said(format!("{name} property is read-only"), 1))
        }
        Access::Inherited => Ok(()),
        Access::Own if revert => Ok(()),
        Access::Own => {
            let mut message = format!("'{name}' property cannot be inherited");
            if CLEARED.contains(&prop) {
                message += &format!(
                    "\nuse 'zfs set {name}=none' to clear\n\
                     use 'zfs inherit -S {name}' to revert to received value"
                );
            }
            Err(Stop::Said(message, 1))
        }
    }
}
