//! `zpool set`.

use std::ffi::OsString;

use verbs::props::{PoolKey, PoolProp, When, assign_pool};
use verbs::{Doing, Error, pools};

use super::known_name;
use crate::door::{Door, Ran, Stop, bad_letter, split_assignment, text};
use crate::getopt::sort;

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
    let status = pools::Status { names: vec![name.clone()], places: places.clone() };
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
