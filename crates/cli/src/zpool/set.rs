//! `zpool set`, `zpool clear`.

use std::ffi::OsString;

use verbs::props::{PoolKey, PoolProp, When, assign_pool};
use verbs::{Doing, Error, pools};

use super::known_name;
use crate::door::{Door, Ran, Stop, bad_letter, split_assignment, text};
use crate::getopt::{Opt, sort};

/// `zpool clear`. `-n` and `-F` ask for a way back to an older txg, which no pool that opens here needs.
pub(crate) fn clear(door: &mut Door<'_>, words: &[OsString]) -> Ran {
    let words = sort(words, "FnX", &[]);
    let letters: Vec<char> = words
        .opts
        .iter()
        .map(|opt| match opt {
            Opt::Flag(letter) => Ok(*letter),
            other => Err(bad_letter(other)),
        })
        .collect::<Result<_, _>>()?;
    if letters.contains(&'n') && !letters.contains(&'F') {
        return Err(Stop::Usage("-n is only allowed with -F".into()));
    }
    let (name, device) = match &words.operands[..] {
        [] => return Err(Stop::Usage("missing pool name".into())),
        [name] => (text(name), None),
        [name, device] => (text(name), Some(text(device))),
        _ => return Err(Stop::Usage("too many arguments".into())),
    };
    known_name(&name)?;
    if letters.contains(&'n') {
        return Ok(0);
    }
    let (places, command) = (door.places.clone(), door.command.clone());
    door.engine.pool_clear(&pools::Clear { name, device, places, command })?;
    Ok(0)
}

/// `zpool set`.
pub(crate) fn set(door: &mut Door<'_>, words: &[OsString]) -> Ran {
    let words = sort(words, "", &[]);
    if let Some(opt) = words.opts.first() {
        return Err(bad_letter(opt));
    }
    let (word, name) = match &words.operands[..] {
        [] => return Err(Stop::Usage("missing property=value argument".into())),
        [_] => return Err(Stop::Usage("missing pool name".into())),
        [word, name] => (word, text(name)),
        _ => return Err(Stop::Usage("too many pool names".into())),
    };
    let Some((property, value)) = split_assignment(word) else {
        return Err(Stop::Usage("missing value in property=value argument".into()));
    };
    known_name(&name)?;
    let set = assign_pool(property, value, When::Open, verbs::is_feature);
    let places = door.places.clone();
    let status = pools::Status {
        names: vec![name.clone()],
        places: places.clone(),
        ..pools::Status::default()
    };
    // Whether the pool is there comes before what is wrong with the property.
    door.engine.pool_status(&status)?.into_iter().next().transpose()?;
    let (key, value) = set.map_err(|why| Error::cannot(Doing::Set(name.clone()), why))?;
    if key == PoolKey::Native(PoolProp::Dedupditto) {
        door.print("Note: property 'dedupditto' no longer has any effect\n")?;
        return Ok(0);
    }
    let command = door.command.clone();
    let notes = door.engine.pool_set(&pools::Set { name, key, value, places, command })?;
    for note in notes {
        door.complain(note)?;
    }
    Ok(0)
}
