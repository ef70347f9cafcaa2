//! `zpool import`: what could be imported, and importing it.

use std::ffi::OsString;
use std::os::unix::ffi::OsStrExt;
use std::path::PathBuf;

use verbs::pools::{self, Condition, FoundPool, Which};
use verbs::props::{PoolKey, PoolProp, When, assign_pool};
use verbs::{Doing, Error};

use super::create::{Typed, add_pool_property, sets_readonly};
use super::{vdevs, words as advice};
use crate::door::{Door, Ran, Stop, bad_option, split_assignment};
use crate::getopt::{Opt, Words, sort};

/// The option that goes back to a checkpoint.
const REWIND: &str = "rewind-to-checkpoint";

#[derive(Default)]
struct Options {
    all: bool,
    places: Vec<PathBuf>,
    destroyed: bool,
    force: bool,
    missing_log: bool,
    unmounted: bool,
    altroot: Option<OsString>,
    typed: Typed,
    json: Option<crate::json::Style>,
}

fn options(words: &Words) -> Result<Options, Stop> {
    let mut options = Options::default();
    let mut cachefile = false;
    for opt in &words.opts {
        match opt {
            Opt::Flag('a') => options.all = true,
            Opt::Value('d', dir) => options.places.push(dir.into()),
            Opt::Value('c', _) => cachefile = true,
            Opt::Flag('D') => options.destroyed = true,
            Opt::Flag('f') => options.force = true,
            Opt::Flag('m') => options.missing_log = true,
            Opt::Value('R', root) => options.altroot = Some(root.clone()),
            Opt::Flag('N') => options.unmounted = true,
            // No key is loaded, and devices are searched as they are.
            Opt::Flag('l' | 's') => {}
            Opt::Long(name) if name == REWIND => {
                return Err(Stop::Said(format!("importing with --{REWIND} is not there yet"), 1));
            }
            Opt::Flag('j') | Opt::Long(_) => options.json = Some(crate::json::style(&words.opts)),
            Opt::Value('o', word) => {
                // Without a sign these are options of mount, which nobody needs here.
                if let Some((name, value)) = split_assignment(word) {
                    add_pool_property(&mut options.typed, name, value)?;
                }
            }
            Opt::Flag(letter @ ('F' | 'X' | 'n' | 'V' | 'E' | 'C' | 't'))
            | Opt::Value(letter @ 'T', _) => {
                let message = format!("importing with -{letter} is not there yet");
                return Err(Stop::Said(message, 1));
            }
            other => return Err(bad_option(other)),
        }
    }
    if cachefile && !options.places.is_empty() {
        return Err(Stop::Usage("-c is incompatible with -d".into()));
    }
    if cachefile {
        let message = "pools are found by their labels: use -d DIR in place of -c";
        return Err(Stop::Said(message.into(), 1));
    }
    Ok(options)
}

/// `zpool import`.
pub(crate) fn import(door: &mut Door<'_>, words: &[OsString]) -> Ran {
    let long = ["json", "json-int", REWIND];
    let words = sort(words, "aCc:d:DEfFjlmnNo:R:stT:VX", &long);
    let options = options(&words)?;
    let operands = crate::door::names(&words);
    let (which, new_name) = match &operands[..] {
        _ if options.all && !operands.is_empty() => {
            return Err(Stop::Usage("too many arguments".into()));
        }
        [] if options.all => (Which::All, None),
        [] => return find(door, options),
        [pool] => (which(pool), None),
        [pool, new] => (which(pool), Some(new.clone())),
        _ => return Err(Stop::Usage("too many arguments".into())),
    };
    let shown = operands.first().cloned().unwrap_or_default();
    let mut typed = options.typed;
    if let Some(root) = &options.altroot {
        typed.retain(|(name, _)| name != b"altroot");
        typed.push((b"altroot".to_vec(), root.as_bytes().to_vec()));
    }
    let mut properties = Vec::new();
    for (name, value) in &typed {
        let set = assign_pool(name, value, When::Import, verbs::is_feature);
        let doing = Doing::ImportWith(shown.clone());
        properties.push(set.map_err(|why| Error::cannot(doing, why))?);
    }
    if let Some(new) = &new_name {
        super::new_name(Doing::Import(shown), new)?;
    }
    let readonly = sets_readonly(&properties);
    properties.retain(|(key, _)| *key != PoolKey::Native(PoolProp::Readonly));
    let request = pools::Import {
        which,
        places: door.places(options.places),
        new_name,
        force: options.force,
        missing_log: options.missing_log,
        destroyed: options.destroyed,
        readonly,
        unmounted: options.unmounted,
        properties,
        command: door.command.clone(),
    };
    let imported = door.engine.pool_import(&request)?;
    for (pool, notes) in &imported.pools {
        for note in notes {
            door.complain(format_args!("pool '{pool}': {note}"))?;
        }
    }
    if request.which == Which::All && imported.pools.is_empty() && imported.errors.is_empty() {
        door.complain("no pools available to import")?;
    }
    door.complain_all(&imported.errors)
}

/// A number is a guid; a pool's name never starts with a digit.
fn which(word: &str) -> Which {
    match word.parse() {
        Ok(guid) => Which::Guid(guid),
        Err(_) => Which::Name(word.into()),
    }
}

fn find(door: &mut Door<'_>, options: Options) -> Ran {
    let places = door.places(options.places);
    let request = pools::Find { places, destroyed: options.destroyed };
    let found = door.engine.pool_find(&request)?;
    if let Some(style) = options.json {
        let text = crate::json::found(&found, style);
        door.print(text)?;
        return Ok(0);
    }
    if found.is_empty() {
        door.complain("no pools available to import")?;
    }
    for (i, pool) in found.iter().enumerate() {
        if i > 0 {
            door.print("\n")?;
        }
        door.print(listing(pool))?;
    }
    Ok(0)
}

/// What `zpool import` says of one pool.
#[must_use]
pub fn listing(pool: &FoundPool) -> Vec<u8> {
    let destroyed = if pool.destroyed { " (DESTROYED)" } else { "" };
    let state = pool.tree.state.name();
    let mut text =
        format!("   pool: {}\n     id: {}\n  state: {state}{destroyed}\n", pool.name, pool.guid);
    let (status, action, article) = advice::found(&pool.condition, pool.hopeless);
    if let Some(status) = status {
        // OpenZFS indents this one alone.
        let indent = if pool.condition == Condition::CorruptData { " " } else { "" };
        text += &format!("{indent}status: {status}\n");
    }
    text += &format!(" action: {action}\n");
    if let Some(article) = article {
        text += &format!("   see: {}{article}\n", advice::ARTICLES);
    }
    if let Some(comment) = &pool.comment {
        text += &format!("comment: {comment}\n");
    }
    text += " config:\n\n";
    let mut out = text.into_bytes();
    vdevs::found(&mut out, &pool.name, &pool.tree, &pool.spares, &pool.cache);
    if pool.more_missing {
        out.extend_from_slice(
            b"\n\tAdditional devices are known to be part of this pool, though their\n\
              \texact configuration cannot be determined.\n",
        );
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_are_guids() {
        assert_eq!(which("12345"), Which::Guid(12345));
        assert_eq!(which("tank"), Which::Name("tank".into()));
    }
}
