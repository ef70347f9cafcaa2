//! `zfs bookmark`, and `zfs destroy` of bookmarks.

use std::ffi::OsString;

use verbs::branches::{Branch, DestroyBookmark, NewBookmark, Setting};
use verbs::datasets::Destroy;
use verbs::props::name::check_new_entity;
use verbs::{Doing, Error, Why};

use crate::door::{Door, Ran, Stop, bad_option, names};
use crate::getopt::sort;

/// What OpenZFS ends with where a function of it fails.
const FAILED: u8 = 255;

/// `zfs bookmark`.
pub(crate) fn bookmark(door: &mut Door<'_>, words: &[OsString]) -> Ran {
    let words = sort(words, "", &[]);
    if let Some(opt) = words.opts.first() {
        return Err(bad_option(opt));
    }
    let usage = |message: String| Err(Stop::Usage(message));
    let (mut source, mut name) = match &names(&words)[..] {
        [] => return usage("missing source argument".into()),
        [_] => return usage("missing bookmark argument".into()),
        [source, name, ..] => (source.clone(), name.clone()),
    };
    if !source.contains(['@', '#']) {
        return usage(format!("invalid source name '{source}': must contain a '@' or '#'"));
    }
    if !name.contains('#') {
        return usage(format!("invalid bookmark name '{name}': must contain a '#'"));
    }
    // Either may leave out the data set that the other names.
    if source.starts_with(['@', '#']) {
        let path = name.split('#').next().unwrap_or_default();
        source = format!("{path}{source}");
    } else if name.starts_with('#') {
        let path = source.split(['@', '#']).next().unwrap_or_default();
        name = format!("{path}{name}");
    }
    let setting = Setting { places: door.places.clone(), command: door.command.clone() };
    if check_new_entity(name.as_bytes()).is_err() {
        let doing = Doing::CreateBookmark(name);
        return Err(Error::cannot(doing, Why::NoBookmarkName).into());
    }
    match door.engine.dataset_branch(&Branch::Bookmark(NewBookmark { source, name, setting })) {
        Ok(()) => Ok(0),
        Err(e @ Error::Cannot { doing: Doing::Open(_), .. }) => usage(e.to_string()),
        Err(e) => Err(e.into()),
    }
}

/// `zfs destroy` of a bookmark.
pub(crate) fn destroy(door: &mut Door<'_>, request: &Destroy) -> Ran {
    let refused = match request {
        Destroy { dry_run: true, .. } => Some("dryrun"),
        Destroy { defer: true, .. } => Some("defer destroy"),
        Destroy { recursive: true, .. } => Some("recursive"),
        _ => None,
    };
    if let Some(what) = refused {
        return Err(Stop::Said(format!("{what} is not supported with bookmark"), FAILED));
    }
    let setting = Setting { places: door.places.clone(), command: request.command.clone() };
    let request = DestroyBookmark { name: request.name.clone(), setting };
    door.engine.dataset_branch(&Branch::DestroyBookmark(request))?;
    Ok(0)
}
