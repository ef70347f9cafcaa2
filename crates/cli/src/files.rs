//! `thumper ls cat get put mkdir mv rm`: files in data sets, with the habits of coreutils.

use std::ffi::OsString;
use std::os::unix::ffi::OsStrExt;
use std::path::PathBuf;

use verbs::files::{
    Cat, FileKind, FileReport, Get, List, Listed, Mkdir, Move, Place, Put, Remove, Time,
};

use crate::columns::right;
use crate::door::{Door, Ran, Stop, bad_option, text};
use crate::getopt::{Opt, Words, sort};

/// What is said of places where a volume can be one.
pub(crate) const PLACES: &str =
    "\nA volume is one file, named after it: <pool/volume[@snap]>: without a path.\n";

/// A file in a pool.
fn place(word: &OsString) -> Result<Place, Stop> {
    Place::parse(word.as_bytes())
        .ok_or_else(|| Stop::Usage(format!("'{}' is no POOL[/FS][@SNAP]:PATH", text(word))))
}

fn places(words: &[OsString]) -> Result<Vec<Place>, Stop> {
    words.iter().map(place).collect()
}

/// Sorts words; `-d DIR` is taken everywhere.
fn sorted(
    door: &mut Door<'_>,
    words: &[OsString],
    letters: &str,
) -> Result<(Words, Vec<PathBuf>), Stop> {
    let mut words = sort(words, &format!("{letters}d:T:"), &["json", "replay", "salvage"]);
    let (mut dirs, mut txg) = (Vec::new(), None);
    words.opts.retain(|opt| match opt {
        Opt::Value('d', dir) => {
            dirs.push(dir.into());
            false
        }
        Opt::Value('T', word) => {
            txg = Some(word.clone());
            false
        }
        _ => true,
    });
    if let Some(word) = txg {
        door.engine.rescue(crate::rescue::at(&word)?);
    }
    Ok((words, door.places(dirs)))
}

/// `thumper ls`.
pub(crate) fn ls(door: &mut Door<'_>, words: &[OsString]) -> Ran {
    let (words, dirs) = sorted(door, words, "lrRaj")?;
    let (mut long, mut json) = (false, false);
    let mut request = List { dirs, ..Default::default() };
    for opt in &words.opts {
        match opt {
            Opt::Flag('l') => long = true,
            Opt::Flag('r' | 'R') => request.recursive = true,
            // Names with a dot at their start are files like all others.
            Opt::Flag('a') => {}
            Opt::Long(name) if name == "replay" => request.replay = true,
            Opt::Flag('j') | Opt::Long(_) => json = true,
            other => return Err(bad_option(other)),
        }
    }
    if words.operands.is_empty() {
        return Err(Stop::Usage("missing POOL:PATH argument".into()));
    }
    request.places = places(&words.operands)?;
    let headings = request.recursive || request.places.len() > 1;
    let zone = door.zone.clone();
    let out = &mut *door.out;
    let mut failed = None;
    let mut directory: Option<Vec<u8>> = None;
    let mut first = true;
    let errors = door.engine.list(&request, &mut |listed| {
        let line = match listed {
            Listed::Directory(path) => {
                let gap: &[u8] = if first { b"" } else { b"\n" };
                let heading = [gap, &path, b":\n"].concat();
                first = false;
                directory = Some(path);
                if headings && !json { heading } else { Vec::new() }
            }
            Listed::File(file) => {
                first = false;
                match (json, long) {
                    (true, _) => crate::json::file(directory.as_deref(), &file).into_bytes(),
                    (false, true) => long_line(&file, &zone),
                    (false, false) => [&file.name[..], b"\n"].concat(),
                }
            }
        };
        if failed.is_none() {
            failed = out.write_all(&line).err();
        }
    })?;
    if let Some(error) = failed {
        return Err(error.into());
    }
    // As ls: what was named and is not there is serious.
    Ok(if door.complain_all(&errors)? == 0 { 0 } else { 2 })
}

/// A line of `ls -l`, with numbers for owners and the time to the minute.
fn long_line(file: &FileReport, zone: &jiff::tz::TimeZone) -> Vec<u8> {
    let mut out = mode_text(file.kind, file.mode).into_bytes();
    // A space before each: what is wider than its column moves the others.
    for (number, width) in [(file.links, 3), (file.uid, 5), (file.gid, 5)] {
        out.push(b' ');
        right(&mut out, number.to_string().as_bytes(), width);
    }
    let size = match file.kind {
        FileKind::Char(major, minor) | FileKind::Block(major, minor) => {
            format!("{major}, {minor}")
        }
        _ => file.size.to_string(),
    };
    out.push(b' ');
    right(&mut out, size.as_bytes(), 14);
    out.extend_from_slice(format!(" {} ", time_text(file.mtime, zone)).as_bytes());
    out.extend_from_slice(&file.name);
    if let Some(target) = &file.target {
        out.extend_from_slice(b" -> ");
        out.extend_from_slice(target);
    }
    out.push(b'\n');
    out
}

fn time_text(time: Time, zone: &jiff::tz::TimeZone) -> String {
    match jiff::Timestamp::from_second(time.seconds) {
        Ok(stamp) => stamp.to_zoned(zone.clone()).strftime("%Y-%m-%d %H:%M").to_string(),
        Err(_) => format!("@{}", time.seconds),
    }
}

fn mode_text(kind: FileKind, mode: u32) -> String {
    let mut text = String::new();
    text.push(match kind {
        FileKind::File => '-',
        FileKind::Directory => 'd',
        FileKind::Link => 'l',
        FileKind::Fifo => 'p',
        FileKind::Socket => 's',
        FileKind::Char(..) => 'c',
        FileKind::Block(..) => 'b',
    });
    for (shift, special, letters) in [(6, 0o4000, "sS"), (3, 0o2000, "sS"), (0, 0o1000, "tT")] {
        let bits = mode >> shift & 7;
        text.push(if bits & 4 != 0 { 'r' } else { '-' });
        text.push(if bits & 2 != 0 { 'w' } else { '-' });
        text.push(match (bits & 1 != 0, mode & special != 0) {
            (true, true) => letters.chars().next().unwrap_or('s'),
            (false, true) => letters.chars().last().unwrap_or('S'),
            (true, false) => 'x',
            (false, false) => '-',
        });
    }
    text
}

/// `thumper cat`.
pub(crate) fn cat(door: &mut Door<'_>, words: &[OsString]) -> Ran {
    let (words, dirs) = sorted(door, words, "")?;
    let mut replay = false;
    for opt in &words.opts {
        match opt {
            Opt::Long(name) if name == "replay" => replay = true,
            other => return Err(bad_option(other)),
        }
    }
    if words.operands.is_empty() {
        return Err(Stop::Usage("missing POOL:PATH argument".into()));
    }
    let request = Cat { places: places(&words.operands)?, dirs, replay };
    let errors = door.engine.cat(&request, door.out)?;
    door.complain_all(&errors)
}

/// Sources and destination.
fn ends(words: &Words) -> Result<(&[OsString], &OsString), Stop> {
    match words.operands.split_last() {
        None => Err(Stop::Usage("missing source".into())),
        Some((to, [])) => Err(Stop::Usage(format!("missing destination after '{}'", text(to)))),
        Some((to, from)) => Ok((from, to)),
    }
}

/// `thumper get`.
pub(crate) fn get(door: &mut Door<'_>, words: &[OsString]) -> Ran {
    let (words, dirs) = sorted(door, words, "rj")?;
    let (mut recursive, mut replay, mut salvage, mut json) = (false, false, false, false);
    for opt in &words.opts {
        match opt {
            Opt::Flag('r') => recursive = true,
            Opt::Long(name) if name == "replay" => replay = true,
            Opt::Long(name) if name == "salvage" => salvage = true,
            Opt::Flag('j') | Opt::Long(_) => json = true,
            other => return Err(bad_option(other)),
        }
    }
    let (from, to) = ends(&words)?;
    let request = Get { places: places(from)?, to: to.into(), recursive, salvage, replay, dirs };
    let (copied, errors) = door.engine.get(&request)?;
    for lost in &copied.lost {
        let line = match json {
            true => crate::json::lost(lost),
            false => {
                let last = lost.offset + lost.len - 1;
                format!("{}: bytes {}-{last} are lost\n", lost.place, lost.offset)
            }
        };
        door.print(line)?;
    }
    let status = door.complain_all(&errors)?;
    Ok(if copied.lost.is_empty() { status } else { 1 })
}

/// `thumper put`.
pub(crate) fn put(door: &mut Door<'_>, words: &[OsString]) -> Ran {
    let (words, dirs) = sorted(door, words, "r")?;
    let mut recursive = false;
    for opt in &words.opts {
        match opt {
            Opt::Flag('r') => recursive = true,
            other => return Err(bad_option(other)),
        }
    }
    let (from, to) = ends(&words)?;
    let request = Put {
        from: from.iter().map(PathBuf::from).collect(),
        to: place(to)?,
        recursive,
        dirs,
        command: door.command.clone(),
    };
    let (_, errors) = door.engine.put(&request)?;
    door.complain_all(&errors)
}

/// `thumper mkdir`.
pub(crate) fn mkdir(door: &mut Door<'_>, words: &[OsString]) -> Ran {
    let (words, dirs) = sorted(door, words, "pm:")?;
    let (mut parents, mut mode) = (false, None);
    for opt in &words.opts {
        match opt {
            Opt::Flag('p') => parents = true,
            Opt::Value('m', word) => {
                let octal = u32::from_str_radix(&text(word), 8).ok().filter(|m| *m <= 0o7777);
                let bad = || Stop::Usage(format!("invalid mode '{}'", text(word)));
                mode = Some(octal.ok_or_else(bad)?);
            }
            other => return Err(bad_option(other)),
        }
    }
    if words.operands.is_empty() {
        return Err(Stop::Usage("missing POOL:PATH argument".into()));
    }
    let places = places(&words.operands)?;
    let errors = door.engine.mkdir(&Mkdir { places, parents, mode, dirs })?;
    door.complain_all(&errors)
}

/// `thumper mv`.
pub(crate) fn mv(door: &mut Door<'_>, words: &[OsString]) -> Ran {
    let (words, dirs) = sorted(door, words, "nf")?;
    let mut no_clobber = false;
    for opt in &words.opts {
        match opt {
            Opt::Flag('n') => no_clobber = true,
            Opt::Flag('f') => no_clobber = false,
            other => return Err(bad_option(other)),
        }
    }
    let (from, to) = ends(&words)?;
    let request = Move { from: places(from)?, to: place(to)?, no_clobber, dirs };
    let errors = door.engine.rename(&request)?;
    door.complain_all(&errors)
}

/// `thumper rm`.
pub(crate) fn rm(door: &mut Door<'_>, words: &[OsString]) -> Ran {
    let (words, dirs) = sorted(door, words, "rRf")?;
    let (mut recursive, mut force) = (false, false);
    for opt in &words.opts {
        match opt {
            Opt::Flag('r' | 'R') => recursive = true,
            Opt::Flag('f') => force = true,
            other => return Err(bad_option(other)),
        }
    }
    if words.operands.is_empty() && !force {
        return Err(Stop::Usage("missing POOL:PATH argument".into()));
    }
    let places = places(&words.operands)?;
    let errors = door.engine.remove(&Remove { places, recursive, force, dirs })?;
    door.complain_all(&errors)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn modes_are_written_as_ls_writes_them() {
        for (kind, mode, text) in [
            (FileKind::File, 0o644, "-rw-r--r--"),
            (FileKind::Directory, 0o1777, "drwxrwxrwt"),
            (FileKind::File, 0o4755, "-rwsr-xr-x"),
            (FileKind::File, 0o6644, "-rwSr-Sr--"),
            (FileKind::Char(1, 3), 0o1666, "crw-rw-rwT"),
        ] {
            assert_eq!(mode_text(kind, mode), text);
        }
    }

    #[test]
    fn long_lines_line_up() {
        let file = FileReport {
            name: b"name".to_vec(),
            kind: FileKind::Link,
            object: 7,
            mode: 0o777,
            links: 1,
            uid: 0,
            gid: 100,
            size: 5,
            allocated: 512,
            atime: Time::default(),
            mtime: Time { seconds: 1_714_521_600, nanos: 5 },
            ctime: Time::default(),
            target: Some(b"there".to_vec()),
        };
        let line = long_line(&file, &jiff::tz::TimeZone::UTC);
        assert_eq!(
            String::from_utf8(line).unwrap(),
            "lrwxrwxrwx   1     0   100              5 2024-05-01 00:00 name -> there\n"
        );
        let many = FileReport { links: 40_000, uid: 100_000, gid: 4_294_967_294, ..file };
        let line = String::from_utf8(long_line(&many, &jiff::tz::TimeZone::UTC)).unwrap();
        assert!(line.starts_with("lrwxrwxrwx 40000 100000 4294967294 "), "{line}");
    }
}
