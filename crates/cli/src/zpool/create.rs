//! `zpool create`, `zpool destroy`, `zpool export`.

use std::ffi::{OsStr, OsString};
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

use verbs::layout::{Class, GroupKind, Layout, LeafError};
use verbs::props::assign::BLOCK_SIZE_MAX;
use verbs::props::{Key, Kind, PoolKey, PoolProp, Prop, Target, Value, When, assign, assign_pool};
use verbs::{Doing, Error, Why, pools};

use super::{known_name, new_name};
use crate::door::{Door, Ran, Stop, bad_letter, bad_option, split_assignment, text};
use crate::getopt::{Opt, Words, sort};
use crate::lists::checked;

/// Properties as typed.
pub(crate) type Typed = Vec<(Vec<u8>, Vec<u8>)>;

/// Takes one `-o name=value` of pools.
///
/// # Errors
/// The message of a property that is none or is there already.
pub(crate) fn add_pool_property(typed: &mut Typed, name: &[u8], value: &[u8]) -> Result<(), Stop> {
    let shown = String::from_utf8_lossy(name).into_owned();
    let Some(key) = PoolKey::named_or_column(name) else {
        return Err(Stop::Said(format!("property '{shown}' is not a valid pool property"), 1));
    };
    let key = key.name();
    let versions = |word: &str| key == word || typed.iter().any(|(n, _)| n == word.as_bytes());
    let features =
        key.starts_with("feature@") || typed.iter().any(|(name, _)| name.starts_with(b"feature@"));
    if versions("version") && features {
        let message = "'feature@' and 'version' properties cannot be specified together";
        return Err(Stop::Said(message.into(), 1));
    }
    add(typed, key, value)
}

fn add(typed: &mut Typed, name: String, value: &[u8]) -> Result<(), Stop> {
    if typed.iter().any(|(known, _)| *known == name.as_bytes()) {
        return Err(Stop::Said(format!("property '{name}' specified multiple times"), 1));
    }
    typed.push((name.into_bytes(), value.to_vec()));
    Ok(())
}

fn add_root_property(typed: &mut Typed, name: &[u8], value: &[u8]) -> Result<(), Stop> {
    let key = Key::named_or_column(name).filter(|key| match key {
        Key::Native(prop) => prop.info().applies.contains(Kind::Filesystem),
        _ => true,
    });
    let Some(key) = key else {
        let shown = String::from_utf8_lossy(name);
        let message = format!("property '{shown}' is not a valid filesystem property");
        return Err(Stop::Said(message, 1));
    };
    add(typed, key.name(), value)
}

#[derive(Default)]
struct Options {
    force: bool,
    dry_run: bool,
    no_features: bool,
    altroot: Option<OsString>,
    mountpoint: Option<OsString>,
    pool: Typed,
    root: Typed,
}

fn options(words: &Words) -> Result<Options, Stop> {
    let mut options = Options::default();
    for opt in &words.opts {
        match opt {
            Opt::Flag('f') => options.force = true,
            Opt::Flag('n') => options.dry_run = true,
            Opt::Flag('d') => options.no_features = true,
            Opt::Value('R', root) => options.altroot = Some(root.clone()),
            Opt::Value('m', mountpoint) => options.mountpoint = Some(mountpoint.clone()),
            Opt::Value(letter @ ('o' | 'O'), word) => {
                let Some((name, value)) = split_assignment(word) else {
                    return Err(Stop::Said(format!("missing '=' for -{letter} option"), 1));
                };
                if *letter == 'o' {
                    add_pool_property(&mut options.pool, name, value)?;
                } else {
                    add_root_property(&mut options.root, name, value)?;
                }
            }
            Opt::Value('t', _) => {
                let message = "temporary names of pools are not there yet";
                return Err(Stop::Said(message.into(), 1));
            }
            other => return Err(bad_option(other)),
        }
    }
    Ok(options)
}

/// Makes a path of a device's word: whole paths as they are, short names below `/dev`.
pub(crate) fn resolve(word: &OsStr) -> Result<PathBuf, LeafError> {
    const PLACES: [&str; 9] = [
        "/dev/disk/by-vdev",
        "/dev/mapper",
        "/dev/disk/by-partlabel",
        "/dev/disk/by-partuuid",
        "/dev/disk/by-label",
        "/dev/disk/by-uuid",
        "/dev/disk/by-id",
        "/dev/disk/by-path",
        "/dev",
    ];
    let path = if word.as_bytes().starts_with(b"/") {
        PathBuf::from(word)
    } else {
        let mut found = PLACES.iter().map(|dir| Path::new(dir).join(word));
        found.find(|path| path.exists()).ok_or_else(|| LeafError::NoSuchDevice(text(word)))?
    };
    let kind = match std::fs::metadata(&path) {
        Ok(meta) => meta.file_type(),
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => {
            return Err(LeafError::NoSuchPath(text(word)));
        }
        Err(error) => return Err(LeafError::Open { path: text(word), why: error.to_string() }),
    };
    let block = std::os::unix::fs::FileTypeExt::is_block_device(&kind);
    if kind.is_file() || block { Ok(path) } else { Err(LeafError::WrongKind(text(word))) }
}

/// The sector size asked for must be one before anything is looked at.
fn check_shift(typed: &Typed) -> Result<(), Stop> {
    let Some((_, value)) = typed.iter().find(|(name, _)| name == b"ashift") else { return Ok(()) };
    shift_of(value).map(drop)
}

/// The sector size of a word, as a power of two; `None`: whatever the devices have.
pub(super) fn shift_of(value: &[u8]) -> Result<Option<u32>, Stop> {
    let Ok(shift) = verbs::props::parse_number(value) else {
        return Err(Stop::Said("ashift must be a number.".into(), 1));
    };
    if shift != 0 && !(9..=16).contains(&shift) {
        let message =
            format!("invalid 'ashift={shift}' property: only values between 9 and 16 are allowed.");
        return Err(Stop::Said(message, 1));
    }
    Ok(u32::try_from(shift).ok().filter(|shift| *shift != 0))
}

/// `zpool create`.
pub(crate) fn create(door: &mut Door<'_>, words: &[OsString]) -> Ran {
    let words = sort(words, "fndR:m:o:O:t:", &[]);
    let mut options = options(&words)?;
    let Some((name, devices)) = words.operands.split_first() else {
        return Err(Stop::Usage("missing pool name argument".into()));
    };
    if devices.is_empty() {
        return Err(Stop::Usage("missing vdev specification".into()));
    }
    let name = text(name);
    if name.contains('/') {
        let message = format!(
            "cannot create '{name}': invalid character '/' in pool name\n\
             use 'zfs create' to create a dataset"
        );
        return Err(Stop::Said(message, 1));
    }
    let layout = Layout::parse(devices, resolve).map_err(Error::from)?;
    check_shift(&options.pool)?;
    if let Some((_, root)) = options.pool.iter().find(|(name, _)| name == b"altroot") {
        options.altroot = Some(OsStr::from_bytes(root).to_owned());
    }
    if let Some(root) = &options.altroot {
        if !root.as_bytes().starts_with(b"/") {
            let root = text(root);
            let message = format!("invalid alternate root '{root}': must be an absolute path");
            return Err(Stop::Said(message, 1));
        }
        options.pool.retain(|(name, _)| name != b"altroot");
        options.pool.push((b"altroot".to_vec(), root.as_bytes().to_vec()));
    }
    check_mountpoint(&mut options, &name)?;
    if !options.dry_run {
        new_name(Doing::Create(name.clone()), &name)?;
    }
    let doing = || Doing::Create(name.clone());
    let mut properties = Vec::new();
    for (key, value) in &options.pool {
        let set = assign_pool(key, value, When::Create, verbs::is_feature);
        properties.push(set.map_err(|why| Error::cannot(doing(), why))?);
    }
    let target = Target { record_size_max: BLOCK_SIZE_MAX, ..Target::new(Kind::Filesystem) };
    let mut root_properties = Vec::new();
    for (key, value) in &options.root {
        let set = assign(key, value, &target);
        root_properties.push(set.map_err(|why| Error::cannot(doing(), why))?);
    }
    let too_large = |(key, value): &(Key, Value)| {
        *key == Key::Native(Prop::Recordsize) && value.number() > Some(1 << 20)
    };
    if root_properties.iter().any(too_large) {
        return Err(Error::cannot(doing(), Why::RecordSize).into());
    }
    let request = pools::Create {
        name,
        layout,
        force: options.force,
        dry_run: options.dry_run,
        no_features: options.no_features,
        properties,
        root_properties,
        command: door.command.clone(),
    };
    let notes = door.engine.pool_create(&request)?;
    if options.dry_run {
        door.print(plan(&request))?;
    }
    for note in notes {
        door.print(note + "\n")?;
    }
    Ok(0)
}

/// Where the pool's own file system would be mounted has to be a place, and an empty one.
fn check_mountpoint(options: &mut Options, pool: &str) -> Result<(), Stop> {
    if let Some(mountpoint) = options.mountpoint.take() {
        options.root.retain(|(name, _)| name != b"mountpoint");
        options.root.push((b"mountpoint".to_vec(), mountpoint.as_bytes().to_vec()));
    }
    let set = options.root.iter().find(|(name, _)| name == b"mountpoint");
    let place = match set {
        Some((_, place)) if place == b"none" || place == b"legacy" => return Ok(()),
        Some((_, place)) => place.clone(),
        None => [b"/", pool.as_bytes()].concat(),
    };
    if !place.starts_with(b"/") {
        let place = String::from_utf8_lossy(&place);
        let message =
            format!("invalid mountpoint '{place}': must be an absolute path, 'legacy', or 'none'");
        return Err(Stop::Said(message, 1));
    }
    let root = options.altroot.as_deref().unwrap_or_default();
    let place = [root.as_bytes(), &place].concat();
    let why = match std::fs::read_dir(OsStr::from_bytes(&place)).map(|mut dir| dir.next()) {
        Ok(None) => return Ok(()),
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => return Ok(()),
        Ok(Some(_)) => "exists and is not empty".to_owned(),
        Err(error) => {
            let text = error.to_string();
            format!(": {}", text.split(" (os error").next().unwrap_or_default())
        }
    };
    let place = String::from_utf8_lossy(&place);
    let advice = "use '-m' option to provide a different default";
    Err(Stop::Said(format!("mountpoint '{place}' {why}\n{advice}"), 1))
}

/// What `zpool create -n` says would be made.
fn plan(request: &pools::Create) -> Vec<u8> {
    let name = &request.name;
    let head = format!("would create '{name}' with the following layout:\n\n\t{name}\n");
    let mut out = head.into_bytes();
    let sections = [
        (Class::Normal, ""),
        (Class::Dedup, "dedup"),
        (Class::Special, "special"),
        (Class::Log, "logs"),
    ];
    for (class, heading) in sections {
        let any = request.layout.groups.iter().any(|group| group.class == class);
        if any && !heading.is_empty() {
            out.extend_from_slice(format!("\t{heading}\n").as_bytes());
        }
        planned(&mut out, &request.layout, class);
    }
    for (heading, devices) in [("cache", &request.layout.cache), ("spares", &request.layout.spares)]
    {
        if !devices.is_empty() {
            out.extend_from_slice(format!("\t{heading}\n").as_bytes());
        }
        devices.iter().for_each(|path| planned_device(&mut out, 2, path));
    }
    out
}

/// The rows of groups that are to be.
pub(super) fn planned(out: &mut Vec<u8>, layout: &Layout, class: Class) {
    for group in layout.groups.iter().filter(|group| group.class == class) {
        let word = match group.kind {
            GroupKind::Single => None,
            GroupKind::Mirror => Some("mirror".to_string()),
            GroupKind::Raidz(parity) => Some(format!("raidz{parity}")),
        };
        let depth = if word.is_some() { 4 } else { 2 };
        if let Some(word) = word {
            out.extend_from_slice(format!("\t  {word}\n").as_bytes());
        }
        group.devices.iter().for_each(|path| planned_device(out, depth, path));
    }
}

/// The row of a device that is to be.
pub(super) fn planned_device(out: &mut Vec<u8>, depth: usize, path: &Path) {
    out.extend_from_slice(b"\t");
    out.resize(out.len() + depth, b' ');
    out.extend_from_slice(path.as_os_str().as_bytes());
    out.push(b'\n');
}

/// `zpool destroy`.
pub(crate) fn destroy(door: &mut Door<'_>, words: &[OsString]) -> Ran {
    let words = sort(words, "fd:", &[]);
    let mut force = false;
    for opt in &words.opts {
        match opt {
            Opt::Flag('f') => force = true,
            Opt::Value('d', dir) => door.places.push(dir.into()),
            other => return Err(bad_letter(other)),
        }
    }
    let name = match &words.operands[..] {
        [] => return Err(Stop::Usage("missing pool argument".into())),
        [name] => text(name),
        _ => return Err(Stop::Usage("too many arguments".into())),
    };
    if let Err(error) = known_name(&name) {
        let hint = if name.contains('/') { "\nuse 'zfs destroy' to destroy a dataset" } else { "" };
        return Err(Stop::Said(format!("{error}{hint}"), 1));
    }
    let places = door.places.clone();
    let command = door.command.clone();
    door.engine.pool_destroy(&pools::Destroy { name, force, places, command })?;
    Ok(0)
}

/// `zpool export`.
pub(crate) fn export(door: &mut Door<'_>, words: &[OsString]) -> Ran {
    let words = sort(words, "afFd:", &[]);
    let mut request = pools::Export { command: door.command.clone(), ..Default::default() };
    for opt in &words.opts {
        match opt {
            Opt::Flag('a') => request.all = true,
            Opt::Flag('f' | 'F') => request.force = true,
            Opt::Value('d', dir) => door.places.push(dir.into()),
            other => return Err(bad_letter(other)),
        }
    }
    if request.all && !words.operands.is_empty() {
        return Err(Stop::Usage("too many arguments".into()));
    }
    if !request.all && words.operands.is_empty() {
        return Err(Stop::Usage("missing pool argument".into()));
    }
    request.places = door.places.clone();
    let (names, mut errors) = checked(crate::door::names(&words), known_name);
    request.names = names;
    if request.all || !request.names.is_empty() {
        errors.extend(door.engine.pool_export(&request)?);
    }
    door.complain_all(&errors)
}

/// True if an assignment sets a pool read-only.
pub(crate) fn sets_readonly(properties: &[(PoolKey, Value)]) -> bool {
    properties.iter().any(|(key, value)| {
        *key == PoolKey::Native(PoolProp::Readonly) && *value == Value::Number(1)
    })
}
