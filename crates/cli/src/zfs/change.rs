//! `zfs create`, `zfs destroy`, `zfs set`.

use std::ffi::OsString;
use std::os::unix::ffi::OsStrExt;

use verbs::datasets::{Create, Destroy, Set, Volume};
use verbs::props::name::check_new_dataset;
use verbs::props::{Kind, Target, assign, nice_bytes, parse_number};
use verbs::{Doing, Error, Why};

use super::known_name;
use crate::door::{Door, Ran, Stop, bad_letter, bad_option, split_assignment, text};
use crate::getopt::{Opt, sort};
use crate::lists::checked;

/// Properties as typed, each once.
pub(super) fn add(
    typed: &mut Vec<(String, Vec<u8>)>,
    name: &[u8],
    value: &[u8],
    status: u8,
) -> Result<(), Stop> {
    let name = String::from_utf8_lossy(name).into_owned();
    if typed.iter().any(|(known, _)| *known == name) {
        let message = format!("property '{name}' specified multiple times");
        return Err(Stop::Said(message, status));
    }
    typed.push((name, value.to_vec()));
    Ok(())
}

/// `zfs create`.
pub(crate) fn create(door: &mut Door<'_>, words: &[OsString]) -> Ran {
    let words = sort(words, "PV:b:nso:puvj", &[]);
    let (mut parents, mut dry_run, mut verbose, mut parsable) = (false, false, false, false);
    let (mut size, mut block, mut sparse, mut unmounted) = (None, None, false, false);
    let mut typed = Vec::new();
    for opt in &words.opts {
        match opt {
            Opt::Flag('p') => parents = true,
            Opt::Flag('n') => dry_run = true,
            Opt::Flag('v') => verbose = true,
            Opt::Flag('P') => (verbose, parsable) = (true, true),
            Opt::Flag('s') => sparse = true,
            Opt::Flag('u') => unmounted = true,
            Opt::Value('V', word) => {
                let bytes = parse_number(word.as_bytes()).map_err(|why| {
                    Stop::Said(format!("bad volume size '{}': {why}", text(word)), 1)
                })?;
                size = Some(bytes);
            }
            Opt::Value('b', word) => {
                let bytes = parse_number(word.as_bytes()).map_err(|why| {
                    Stop::Said(format!("bad volume block size '{}': {why}", text(word)), 1)
                })?;
                block = Some(bytes);
            }
            Opt::Value('o', word) => {
                let Some((name, value)) = split_assignment(word) else {
                    let message = "missing '=' for property=value argument";
                    return Err(Stop::Said(message.into(), 1));
                };
                add(&mut typed, name, value, 1)?;
            }
            Opt::Missing('V') => return Err(Stop::Usage("missing volume size argument".into())),
            other => return Err(bad_option(other)),
        }
    }
    if size.is_none() && (sparse || block.is_some()) {
        let message = "'-s' and '-b' can only be used when creating a volume";
        return Err(Stop::Usage(message.into()));
    }
    if size.is_some() && unmounted {
        let message = "'-u' can only be used when creating a filesystem";
        return Err(Stop::Usage(message.into()));
    }
    let kind = if size.is_some() { Kind::Volume } else { Kind::Filesystem };
    let name = match &words.operands[..] {
        [] => return Err(Stop::Usage(format!("missing {} argument", kind.name()))),
        [name] => text(name),
        _ => return Err(Stop::Usage("too many arguments".into())),
    };
    let doing = || Doing::Create(name.clone());
    check_new_dataset(name.as_bytes()).map_err(|why| Error::cannot(doing(), why))?;
    if !name.contains('/') {
        return Err(Error::cannot(doing(), Why::NoDatasetName).into());
    }
    // What is wrong whatever the pool is said here; the pool decides on the rest.
    for (property, value) in &typed {
        let target = Target::new(kind);
        let set = assign(property.as_bytes(), value, &target);
        set.map_err(|why| Error::cannot(doing(), why))?;
    }
    let volume = size.map(|size| Volume { size, block_size: block, sparse });
    if verbose {
        door.print(plan(&name, &typed, parents, dry_run, parsable))?;
    }
    let request = Create {
        name,
        parents,
        volume,
        properties: typed,
        dry_run,
        unmounted,
        places: door.places.clone(),
        command: door.command.clone(),
    };
    for note in door.engine.dataset_create(&request)? {
        door.complain(note)?;
    }
    Ok(0)
}

/// What `zfs create -v` says.
fn plan(
    name: &str,
    typed: &[(String, Vec<u8>)],
    parents: bool,
    dry_run: bool,
    parsable: bool,
) -> Vec<u8> {
    let would = if dry_run { "would " } else { "" };
    let mut out = Vec::new();
    let mut line = |parts: &[&[u8]]| {
        parts.iter().for_each(|part| out.extend_from_slice(part));
        out.push(b'\n');
    };
    if parents {
        match parsable {
            true => line(&[b"create_ancestors\t", name.as_bytes()]),
            false => line(&[would.as_bytes(), b"create ancestors of ", name.as_bytes()]),
        }
    }
    match parsable {
        true => line(&[b"create\t", name.as_bytes()]),
        false => line(&[would.as_bytes(), b"create ", name.as_bytes()]),
    }
    for (property, value) in typed {
        match parsable {
            true => line(&[b"property\t", property.as_bytes(), b"\t", value]),
            false => line(&[b"\t", property.as_bytes(), b"=", value]),
        }
    }
    out
}

/// `zfs destroy`.
pub(crate) fn destroy(door: &mut Door<'_>, words: &[OsString]) -> Ran {
    let words = sort(words, "vpndfrR", &[]);
    let mut request = Destroy { command: door.command.clone(), ..Default::default() };
    let (mut verbose, mut parsable) = (false, false);
    for opt in &words.opts {
        match opt {
            Opt::Flag('v') => verbose = true,
            Opt::Flag('p') => (verbose, parsable) = (true, true),
            Opt::Flag('n') => request.dry_run = true,
            Opt::Flag('d') => request.defer = true,
            Opt::Flag('f') => request.force = true,
            Opt::Flag('r') => request.recursive = true,
            Opt::Flag('R') => (request.recursive, request.dependents) = (true, true),
            other => return Err(bad_letter(other)),
        }
    }
    request.name = match &words.operands[..] {
        [] => return Err(Stop::Usage("missing dataset argument".into())),
        [name] => text(name),
        _ => return Err(Stop::Usage("too many arguments".into())),
    };
    let name = &request.name;
    if name.contains('#') {
        return super::bookmark::destroy(door, &request);
    }
    let snapshots = name.contains('@');
    if snapshots {
        let dataset = name.split('@').next().unwrap_or_default();
        known_name(dataset)?;
    } else {
        known_name(name)?;
    }
    if request.defer && !snapshots {
        return Err(Error::open(name, verbs::props::NameError::NoSnapshot).into());
    }
    request.places = door.places.clone();
    let done = door.engine.dataset_destroy(&request)?;
    if verbose {
        let word = match (parsable, request.dry_run) {
            (true, _) => ["destroy\t", "reclaim\t"],
            (false, true) => ["would destroy ", "would reclaim "],
            (false, false) => ["will destroy ", "will reclaim "],
        };
        let mut out = String::new();
        done.names.iter().for_each(|name| out += &format!("{}{name}\n", word[0]));
        if let Some(bytes) = done.reclaimed {
            let size = if parsable { bytes.to_string() } else { nice_bytes(bytes) };
            out += &format!("{}{size}\n", word[1]);
        }
        door.print(out)?;
    }
    Ok(0)
}

/// `zfs set`.
pub(crate) fn set(door: &mut Door<'_>, words: &[OsString]) -> Ran {
    let words = sort(words, "", &[]);
    if let Some(opt) = words.opts.first() {
        return Err(bad_letter(opt));
    }
    if words.operands.is_empty() {
        return Err(Stop::Usage("missing arguments".into()));
    }
    let assignments = words.operands.iter().map_while(|word| split_assignment(word));
    let count = assignments.clone().count();
    let names: Vec<_> = words.operands.iter().skip(count).map(|name| text(name)).collect();
    if names.is_empty() {
        return Err(Stop::Usage("missing dataset name(s)".into()));
    }
    if names.iter().any(|name| name.contains('=')) {
        return Err(Stop::Usage("invalid argument order".into()));
    }
    let mut typed = Vec::new();
    for (name, value) in assignments {
        add(&mut typed, name, value, 255)?;
    }
    if typed.is_empty() {
        // Names alone: the first of them is no data set, most likely.
        let first = names.first().cloned().unwrap_or_default();
        return Err(Error::open(first, Why::NoDataset).into());
    }
    let (names, mut errors) = checked(names, known_name);
    if !names.is_empty() {
        let request = Set {
            names,
            properties: typed,
            places: door.places.clone(),
            command: if errors.is_empty() { door.command.clone() } else { String::new() },
        };
        let report = door.engine.dataset_set(&request)?;
        for note in &report.notes {
            door.complain(note)?;
        }
        errors.extend(report.errors);
    }
    door.complain_all(&errors)
}
