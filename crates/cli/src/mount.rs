//! `thumper mount unmount`: file systems as directories of the host.

use std::ffi::OsString;

use verbs::mounts::{Mount, News, Unmount};

use crate::door::{Door, Ran, Stop, bad_option, text};
use crate::getopt::{Opt, sort};

/// What is said besides the words of `mount`.
pub(crate) const HELP: &str = "
Serves the file system in the foreground until it is unmounted (with unmount, umount or
fusermount3 -u), or is sent SIGINT, SIGTERM or, but under nohup, SIGHUP. Meanwhile it holds the pool.
With -r, and of a snapshot, nothing can be changed, and the pool is only read.
";

/// What is said besides the words of `unmount`.
pub(crate) const UNMOUNT_HELP: &str = "
Returns when the pool is closed. With -l the directory is left at once, and the pool when the
last file is closed.
";

/// `thumper mount`.
pub(crate) fn mount(door: &mut Door<'_>, words: &[OsString]) -> Ran {
    let words = sort(words, "rd:", &[]);
    let (mut read_only, mut dirs) = (false, Vec::new());
    for opt in &words.opts {
        match opt {
            Opt::Flag('r') => read_only = true,
            Opt::Value('d', dir) => dirs.push(dir.into()),
            other => return Err(bad_option(other)),
        }
    }
    let (dataset, dir) = match &words.operands[..] {
        [dataset, dir] => (text(dataset), dir.into()),
        [] => return Err(Stop::Usage("missing dataset argument".into())),
        [_] => return Err(Stop::Usage("missing directory argument".into())),
        [_, _, ..] => return Err(Stop::Usage("too many arguments".into())),
    };
    let request = Mount { dataset, dir, read_only, dirs: door.places(dirs) };
    let (out, err) = (&mut *door.out, &mut *door.err);
    let mut failed = None;
    let served = door.engine.mount(&request, &mut |news| {
        let told = match news {
            News::Mounted { dataset, dir } => {
                writeln!(out, "mounted '{dataset}' on {}", dir.display()).and_then(|()| out.flush())
            }
            News::Busy(dir) => {
                writeln!(err, "{} is in use: waiting for a moment", dir.display())
            }
        };
        // It is served all the same.
        failed = failed.take().or(told.err());
    });
    served?;
    match failed {
        Some(error) => Err(error.into()),
        None => Ok(0),
    }
}

/// `thumper unmount`.
pub(crate) fn unmount(door: &mut Door<'_>, words: &[OsString]) -> Ran {
    let words = sort(words, "ld:", &[]);
    let (mut lazily, mut dirs) = (false, Vec::new());
    for opt in &words.opts {
        match opt {
            Opt::Flag('l') => lazily = true,
            Opt::Value('d', dir) => dirs.push(dir.into()),
            other => return Err(bad_option(other)),
        }
    }
    let dir = match &words.operands[..] {
        [dir] => dir.into(),
        [] => return Err(Stop::Usage("missing directory argument".into())),
        [_, _, ..] => return Err(Stop::Usage("too many arguments".into())),
    };
    door.engine.unmount(&Unmount { dir, lazily, dirs: door.places(dirs) })?;
    Ok(0)
}
