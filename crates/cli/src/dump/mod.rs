//! `thumper dump`: what is on disk, structure by structure.
//!
//! Letters and layout are zdb's where zdb has them, numbers always in full (as `zdb -P`). Ends with
//! 0, with 1 if something could not be read (it is told in its place, and the rest goes on), and
//! with 2 if the words make no sense.

mod json;
mod text;

use std::ffi::OsString;
use std::os::unix::ffi::OsStrExt;
use std::path::PathBuf;

use verbs::dump::{Dump, Parts, RawBlock, Source};

use crate::door::{self, Door, Ran, Stop, bad_option};
use crate::getopt::{Opt, sort};

/// The words of the verb.
pub(crate) const USAGE: &str = "dump -l [-ju] <device> ...\n\
    dump [-uCdimHj] [-t txg] [-p dir] ... <pool>[/dataset][@snapshot]\n    \
    [dataset] [object | first:last] ...\n\
    dump -b [-j] [-t txg] [-p dir] ... <pool> <vdev>:<offset>:[<lsize>/]<psize>[:flags]";

/// What the letters mean.
pub(crate) const HELP: &str = "
Prints what is on disk, read through checksums and redundancy, written by nobody: the
devices are opened for reading only, and a pool that is in use or that does not import
can be looked at too. Numbers are printed in full.

	-l  the four labels of devices: configs, which labels have them, which parts of a
	    label are damaged; -u adds the ring of uberblocks, slot by slot
	    (no letter) uberblock, config, MOS directory, features, vdevs and metaslabs
	-u  the newest uberblock        -C  the pool's config
	-m  metaslabs; -mm and the headers of their space maps; -mmm and all entries,
	    with those of the logs of changes
	-d  data sets; -dd and their objects; -dddd and what is in the objects: bonus,
	    attributes, ZAPs, directories, lists, deadlists; -ddddd and their blocks
	-i  intent logs, block by block and record by record
	-H  the pool's history, as it is stored
	-b  one block by its place, offset and sizes in hexadecimal as pointers have them

	-p  a directory (or device) to look for the pool in, as -d DIR before the verb;
	    -d DIR works here too if DIR begins with / or .
	-t  use the newest uberblock that is not after this txg
	-j  a JSON object for each fact, one a line; numbers are numbers, bytes that are
	    no text are %XX in names and hexadecimal elsewhere

A data set is pool/fs, pool/fs@snapshot, pool/ (the root one), pool/objset-ID or mos.
Objects without a data set are those of the MOS; objects named are told in full.
Flags of -b, with commas between them: lz4 lzjb zle zstd gzip (decompress to lsize),
b (as block pointers), g (as a gang header), and last KIND=w:w:w:w, the checksum that
the stored bytes must have: then every combination of copies and parity is tried.

	thumper dump -lu disk.img
	thumper -d /images dump tank
	thumper -d /images dump -dd tank/home
	thumper -d /images dump tank/home 34
	thumper -d /images dump tank -d 1:60
	thumper -d /images dump -b tank 0:334a000:1000
";

/// The letters that were given.
#[derive(Default)]
struct Letters {
    labels: bool,
    block: bool,
    json: bool,
    parts: Parts,
    places: Vec<PathBuf>,
    txg: Option<u64>,
}

/// `thumper dump`.
pub(crate) fn dump(door: &mut Door<'_>, words: &[OsString]) -> Ran {
    let (letters, operands) = letters(words)?;
    let json = letters.json;
    let places = door.places(letters.places.clone());
    let request = request(letters, &operands, places)?;
    let Door { engine, out, zone, .. } = door;
    let mut failed = None;
    let mut text = text::Text::new(zone.clone());
    let told = engine.dump(&request, &mut |fact| {
        let line = if json { json::line(&fact) } else { text.of(&fact) };
        match out.write_all(line.as_bytes()) {
            Ok(()) => true,
            Err(error) => {
                failed = Some(error);
                false
            }
        }
    })?;
    if let Some(error) = failed {
        return Err(Stop::Output(error));
    }
    if told.errors > 0 {
        door.out.flush()?;
        door.complain(format!("{} things could not be read", told.errors))?;
    }
    Ok(u8::from(told.errors > 0))
}

fn letters(words: &[OsString]) -> Result<(Letters, Vec<String>), Stop> {
    // `-d` with a place after it is the house's, not zdb's: no pool begins with a / or a dot.
    let mut letters = Letters::default();
    let mut rest = Vec::new();
    let mut words = words.iter().peekable();
    while let Some(word) = words.next() {
        let place =
            words.peek().filter(|next| matches!(next.as_bytes().first(), Some(b'/' | b'.')));
        match place {
            Some(place) if word == "-d" => {
                letters.places.push(PathBuf::from(place));
                words.next();
            }
            _ => rest.push(word.clone()),
        }
    }
    let words = sort(&rest, "bCdeHijlmPp:Rt:u", &["history", "json"]);
    for opt in &words.opts {
        match opt {
            Opt::Flag('l') => letters.labels = true,
            Opt::Flag('b' | 'R') => letters.block = true,
            Opt::Flag('u') => letters.parts.uberblock = true,
            Opt::Flag('C') => letters.parts.config = true,
            Opt::Flag('d') => letters.parts.datasets = letters.parts.datasets.saturating_add(1),
            Opt::Flag('m') => letters.parts.metaslabs = letters.parts.metaslabs.saturating_add(1),
            Opt::Flag('i') => letters.parts.intent_logs = true,
            Opt::Flag('H') => letters.parts.history = true,
            Opt::Long(name) if name == "history" => letters.parts.history = true,
            Opt::Flag('j') | Opt::Long(_) => letters.json = true,
            // What zdb wants to hear of pools that are not imported, and of numbers in full.
            Opt::Flag('e' | 'P') => {}
            Opt::Value('p', place) => letters.places.push(place.into()),
            Opt::Value('t', txg) => {
                let txg = door::text(txg);
                let bad = || Stop::Usage(format!("'{txg}' is no txg"));
                letters.txg = Some(txg.parse().map_err(|_| bad())?);
            }
            other => return Err(bad_option(other)),
        }
    }
    let operands = door::names(&words);
    Ok((letters, operands))
}

fn request(letters: Letters, operands: &[String], places: Vec<PathBuf>) -> Result<Dump, Stop> {
    if letters.labels {
        if operands.is_empty() {
            return Err(Stop::Usage("missing device argument".into()));
        }
        let devices = operands.iter().map(PathBuf::from).collect();
        return Ok(Dump::Labels { devices, rings: letters.parts.uberblock });
    }
    let Some((name, rest)) = operands.split_first() else {
        return Err(Stop::Usage("missing pool or device argument".into()));
    };
    if matches!(name.as_bytes().first(), Some(b'/' | b'.')) {
        return Err(Stop::Usage(format!("'{name}' is no pool; the labels of a device: -l")));
    }
    let pool = name.split(['/', '@']).next().unwrap_or_default().to_string();
    let of = Source { pool: pool.clone(), places, txg: letters.txg };
    if letters.block {
        let [block] = rest else {
            return Err(Stop::Usage("one block is wanted: vdev:offset:size".into()));
        };
        let bad = || Stop::Usage(format!("'{block}' is no vdev:offset:[lsize/]psize[:flags]"));
        return Ok(Dump::Block { of, block: raw(block).ok_or_else(bad)? });
    }
    let mut parts = letters.parts;
    let dataset = |name: &str| name.strip_suffix('/').unwrap_or(name).to_string();
    parts.dataset = (*name != pool).then(|| dataset(name));
    let mut rest = rest;
    if let Some((first, others)) = rest.split_first()
        && objects(first).is_none()
    {
        let inside = first.split(['/', '@']).next() == Some(pool.as_str());
        if parts.dataset.is_some() || !(inside || first == "mos") {
            return Err(Stop::Usage(format!("'{first}' is no object and no data set of '{pool}'")));
        }
        parts.dataset = Some(dataset(first));
        rest = others;
    }
    for word in rest {
        let bad = || Stop::Usage(format!("'{word}' is no object"));
        parts.objects.push(objects(word).ok_or_else(bad)?);
    }
    if !parts.objects.is_empty() && parts.dataset.is_none() {
        parts.dataset = Some("mos".into());
    }
    if parts.dataset.is_some() && !parts.intent_logs {
        parts.datasets = parts.datasets.max(1);
    }
    let blank = Parts::default();
    if parts == blank {
        let overview = Parts { uberblock: true, config: true, overview: true, ..blank };
        parts = Parts { metaslabs: 1, ..overview };
    }
    Ok(Dump::Pool { of, parts })
}

/// An object's number, or those from a first to a last.
fn objects(word: &str) -> Option<(u64, u64)> {
    let number = |word: &str| match word.strip_prefix("0x") {
        Some(hex) => u64::from_str_radix(hex, 16).ok(),
        None => word.parse().ok(),
    };
    match word.split_once(':') {
        Some((first, last)) => {
            let (first, last) = (number(first)?, number(last)?);
            (first <= last).then_some((first, last))
        }
        None => number(word).map(|number| (number, number)),
    }
}

/// A block by its place.
fn raw(word: &str) -> Option<RawBlock> {
    let mut parts = word.splitn(4, ':');
    let hex = |word: &str| u64::from_str_radix(word.strip_prefix("0x").unwrap_or(word), 16).ok();
    let vdev = parts.next()?.parse().ok()?;
    let offset = hex(parts.next()?)?;
    let size = parts.next()?;
    let (lsize, psize) = match size.split_once('/') {
        Some((lsize, psize)) => (hex(lsize)?, hex(psize)?),
        None => (0, hex(size)?),
    };
    let mut block = RawBlock { vdev, offset, psize, lsize, ..RawBlock::default() };
    for flag in parts.next().unwrap_or_default().split(',').filter(|flag| !flag.is_empty()) {
        match flag {
            "b" => block.pointers = true,
            "g" => block.gang = true,
            "r" => {}
            flag => match flag.split_once('=') {
                Some((kind, words)) => {
                    let words: Vec<u64> = words.split(':').map(hex).collect::<Option<_>>()?;
                    block.checksum = Some((kind.into(), words.try_into().ok()?));
                }
                None => block.compress = Some(flag.into()),
            },
        }
    }
    Some(block)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn asked(words: &str) -> Result<Dump, String> {
        let words: Vec<OsString> = words.split(' ').map(OsString::from).collect();
        let (letters, operands) = letters(&words).map_err(|stop| format!("{stop:?}"))?;
        let places = letters.places.clone();
        request(letters, &operands, places).map_err(|stop| format!("{stop:?}"))
    }

    fn parts(words: &str) -> Parts {
        match asked(words) {
            Ok(Dump::Pool { parts, .. }) => parts,
            other => panic!("{words}: {other:?}"),
        }
    }

    #[test]
    fn a_pool_alone_is_its_overview() {
        let all = parts("tank");
        assert!(all.uberblock && all.config && all.overview && all.metaslabs == 1);
        assert_eq!((all.datasets, all.dataset), (0, None));
        assert!(!parts("-u tank").overview);
    }

    #[test]
    fn data_sets_and_objects_are_told_apart() {
        let of = |words| {
            let parts = parts(words);
            (parts.datasets, parts.dataset, parts.objects)
        };
        assert_eq!(of("-dd tank"), (2, None, vec![]));
        assert_eq!(of("tank -d 1 5:9"), (1, Some("mos".into()), vec![(1, 1), (5, 9)]));
        assert_eq!(of("tank/ 34"), (1, Some("tank".into()), vec![(34, 34)]));
        assert_eq!(of("tank/fs@s 0x22"), (1, Some("tank/fs@s".into()), vec![(34, 34)]));
        assert_eq!(of("tank -dddd tank/fs 7"), (4, Some("tank/fs".into()), vec![(7, 7)]));
        assert_eq!(of("tank mos"), (1, Some("mos".into()), vec![]));
        for bad in ["tank/fs tank/fs", "tank pond/fs", "tank 1 x", "tank 5:3"] {
            assert!(asked(bad).is_err(), "{bad}");
        }
    }

    #[test]
    fn d_is_a_place_before_a_path_alone() {
        let Ok(Dump::Pool { of, parts }) = asked("-d ./x -p y tank -d 3") else { panic!() };
        assert_eq!(of.places, [PathBuf::from("./x"), PathBuf::from("y")]);
        assert_eq!((parts.datasets, parts.objects), (1, vec![(3, 3)]));
    }

    #[test]
    fn blocks_are_read_as_pointers_have_them() {
        let block = |words| match asked(words) {
            Ok(Dump::Block { block, .. }) => block,
            other => panic!("{words}: {other:?}"),
        };
        let plain = RawBlock { vdev: 1, offset: 0x1b_5000, psize: 0x1000, ..RawBlock::default() };
        assert_eq!(block("-b tank 1:1b5000:1000"), plain);
        let full = RawBlock {
            lsize: 0x2_0000,
            compress: Some("lz4".into()),
            checksum: Some(("fletcher4".into(), [1, 2, 3, 0xa])),
            ..plain
        };
        assert_eq!(block("-R tank 1:1b5000:20000/1000:lz4,fletcher4=1:2:3:a"), full);
        for bad in ["-b tank", "-b tank 1:2", "-b tank 1:x:2", "-b tank 0:0:1000:sha256=1:2:3"] {
            assert!(asked(bad).is_err(), "{bad}");
        }
    }
}
