//! `zpool create destroy export import`: the life of a pool.

use std::collections::BTreeMap;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

use device::{Device, ReadFile, WriteFile};
use format::config::PoolState;
use pool::props::{PoolKey, PoolProp, Value};
use pool::{Joined, NewLeaf, NewPool, NewTop, Pool, Stored};
use rt::sync::Arc;

use super::Here;
use super::called::Devices;
use super::limits::{Limit, limits, set_limits};
use super::located::{Located, locate};
use super::opening::{For, open, open_located};
use super::session::{Session, pool_error};
use super::sighting::Sighting;
use super::{capacity, naming, ours, pool_props, scrub};
use crate::layout::{Class, GroupKind, LayoutError};
use crate::pools::{Clear, Create, Destroy, Export, Import, Imported, Which};
use crate::state::Known;
use crate::{Doing, Error, Result, Why, events, find, inuse};

/// Properties of a pool that hold for this system only and are not stored with it.
const NOT_STORED: [PoolProp; 3] = [PoolProp::Altroot, PoolProp::Cachefile, PoolProp::Ashift];

/// A value as it is stored.
pub(super) fn stored(value: &Value) -> Stored {
    match value {
        Value::Number(number) => Stored::Number(*number),
        Value::Text(text) => Stored::Text(text.clone()),
    }
}

/// A device for a pool, opened and locked.
fn leaf(here: &Here, doing: &Doing, path: &Path, force: bool) -> Result<NewLeaf> {
    let file = open_leaf(here, doing, path, force)?;
    let is_disk = file.is_block_device();
    Ok(NewLeaf { path: leaf_path(path), is_disk, device: Arc::new(file) })
}

/// How the devices of a group are joined.
pub(super) fn joined(kind: GroupKind) -> Joined {
    match kind {
        GroupKind::Single => Joined::Single,
        GroupKind::Mirror => Joined::Mirror,
        GroupKind::Raidz(parity) => Joined::Raidz(parity),
    }
}

/// What the config of a leaf at this path says.
pub(super) fn leaf_path(path: &Path) -> Vec<u8> {
    let path = std::path::absolute(path).unwrap_or_else(|_| path.to_path_buf());
    path.as_os_str().as_bytes().to_vec()
}

/// Opens what is to be a leaf, for this process alone, and looks what it holds now: since it was looked at, another command
/// may have made a pool of it.
pub(super) fn open_leaf(here: &Here, doing: &Doing, path: &Path, force: bool) -> Result<WriteFile> {
    let cannot = |why| Error::cannot(doing.clone(), why);
    let file = WriteFile::open(path).map_err(|e| match e {
        device::DeviceError::Busy { .. } => {
            let why = "Device or resource busy: another process holds it";
            let doing = Doing::File("open", path.display().to_string());
            Error::cannot(doing, Why::Host(why.into()))
        }
        e => cannot(Why::Host(e.to_string())),
    })?;
    inuse::check_free(doing, std::iter::once(path), force, &here.ours()?)?;
    Ok(file)
}

/// log2 of the sectors of a new pool: what was asked for, else the largest of its devices.
pub(super) fn ashift(request: &Create, sector: Option<u32>) -> u32 {
    let asked = request.properties.iter().find_map(|(key, value)| match key {
        PoolKey::Native(PoolProp::Ashift) => value.number().filter(|number| *number != 0),
        _ => None,
    });
    match asked {
        Some(shift) => shift as u32,
        None => sector.unwrap_or(512).ilog2().clamp(9, 16),
    }
}

pub(super) fn create(here: &Here, request: &Create) -> Result<Vec<String>> {
    let name = &request.name;
    let _turn = here.turn(name);
    let ours = here.ours()?;
    inuse::check(name, &request.layout, request.force, &ours)?;
    let cannot = |why| Error::cannot(Doing::Create(name.clone()), why);
    let is_other = |class| !matches!(class, Class::Normal | Class::Log);
    if !request.layout.cache.is_empty()
        || request.layout.groups.iter().any(|group| is_other(group.class))
    {
        let why = "cache, special and dedup devices cannot be made yet";
        return Err(cannot(Why::NotDone(why.into())));
    }
    if !request.layout.groups.iter().any(|group| group.class == Class::Normal) {
        return Err(LayoutError::Nothing.into());
    }
    let features = pool_props::features(request)?;
    if request.dry_run {
        return capacity::foretold(request);
    }
    inuse::check_devices(name, &request.layout, &ours.state)?;
    if here.holds_another(name, None) {
        return Err(cannot(Why::PoolExists));
    }
    let doing = Doing::Create(name.clone());
    let mut tops = Vec::new();
    let leaf = |path: &PathBuf| leaf(here, &doing, path, request.force);
    for group in &request.layout.groups {
        let leaves: Result<Vec<NewLeaf>> = group.devices.iter().map(leaf).collect();
        let joined = joined(group.kind);
        tops.push(NewTop { joined, leaves: leaves?, is_log: group.class == Class::Log });
    }
    let spares: Result<Vec<NewLeaf>> = request.layout.spares.iter().map(leaf).collect();
    let sector = tops.iter().flat_map(|t| &t.leaves).map(|l| l.device.sector_size()).max();
    let ashift = ashift(request, sector);
    let mut pool_props = BTreeMap::new();
    for (key, value) in &request.properties {
        if *key == PoolKey::Native(PoolProp::Ashift) && value.number() != Some(0) {
            pool_props.insert(key.name(), stored(value));
        } else if let PoolKey::Native(prop) = key
            && !NOT_STORED.contains(prop)
        {
            pool_props.insert(key.name(), stored(value));
        }
    }
    let (limits, mut root) =
        limits(request.root_properties.iter().map(|(k, v)| (k.name(), stored(v))));
    naming::check(&root).map_err(|e| cannot(Why::Prop(e)))?;
    naming::complete(None, &mut root).map_err(|e| pool_error(doing.clone(), e))?;
    let pool = Pool::create(NewPool {
        name: name.clone(),
        tops,
        spares: spares?,
        ashift,
        features,
        pool_props,
        props: root,
        make: fs::make_filesystem,
        command: request.command.clone(),
        options: here.options(name)?,
    })
    .map_err(|e| pool_error(Doing::Create(name.clone()), e))?;
    if let Err(e) = set_limits(&pool, name, limits) {
        let given_up = pool.set_state(PoolState::Destroyed).and_then(|()| pool.close());
        given_up.map_err(|e| pool_error(Doing::Create(name.clone()), e))?;
        return Err(match e {
            Limit::Refused => cannot(Why::Host("one or more devices is out of space".into())),
            Limit::Failed(e) => pool_error(Doing::Create(name.clone()), e),
        });
    }
    let guid = pool.guid();
    let absolute = |path: &PathBuf| std::path::absolute(path).unwrap_or_else(|_| path.clone());
    let paths = request.layout.devices().map(absolute).collect();
    let altroot = altroot(&request.properties);
    let known = Known { name: name.clone(), guid, readonly: false, altroot, closed: None, paths };
    let fail = |e| pool_error(Doing::Create(name.clone()), e);
    let remembered = here.state.change(|state| state.remember(known, None));
    if !matches!(remembered, Ok(true)) {
        // Another command was faster with the name, or the list cannot be written.
        pool.set_state(PoolState::Destroyed).and_then(|()| pool.close()).map_err(fail)?;
        return Err(remembered.err().unwrap_or_else(|| cannot(Why::PoolExists)));
    }
    if let Err(e) = pool.close() {
        here.state.change(|state| state.forget(guid))?;
        return Err(fail(e));
    }
    // Its devices are locked as long as it is there.
    drop(pool);
    here.hold(name)?;
    here.tell(name, events::POOL_CREATE);
    Ok(Vec::new())
}

/// Where the mount points of a pool are to be below, on this system.
fn altroot(properties: &[(PoolKey, Value)]) -> Option<Vec<u8>> {
    properties.iter().find_map(|(key, value)| match (key, value) {
        (PoolKey::Native(PoolProp::Altroot), Value::Text(root)) => Some(root.clone()),
        _ => None,
    })
}

/// Opens a located pool, gives it a state on disk, and forgets it.
fn leave(
    here: &Here,
    name: &str,
    located: Located,
    to: PoolState,
    command: &str,
    doing: Doing,
) -> Result<()> {
    let (guid, state) = (located.found().guid(), located.found().config.state);
    let (readonly, held) = (located.is_read_only(), located.is_held());
    // Whoever took it, or ended in the midst of this, has left nothing to do but to forget it.
    let is_left = (to == PoolState::Exported || state == to) && located.lost(here)?.is_some();
    let forget = || here.state.change(|state| state.forget(guid));
    if held || !(readonly || is_left) {
        let mode = if readonly { For::Reading } else { For::Writing };
        let (session, readonly) =
            match open_located(here, name, located.clone(), mode, doing.clone()) {
                // What cannot be written, for want of a log or so, is let go as it is.
                Err(e)
                    if to == PoolState::Exported && matches!(e.why(), Some(Why::ReadOnly(_))) =>
                {
                    (open_located(here, name, located, For::Reading, doing.clone())?, true)
                }
                opened => {
                    // Who has it in use keeps it from being given up.
                    drop(located);
                    (opened?, readonly)
                }
            };
        if let Some(held) = &here.held {
            held.give_up(name, &doing)?;
        }
        if !readonly {
            let noted = session.note(command);
            let done = noted.and_then(|()| session.pool.set_state(to));
            done.map_err(|e| pool_error(doing.clone(), e))?;
        }
        let destroyed = to == PoolState::Destroyed;
        let class = if destroyed { events::POOL_DESTROY } else { events::POOL_EXPORT };
        session.told.iter().for_each(|told| told.tell(&session.pool, class));
        // While its disks are held: what is imported from then on stays remembered.
        forget()?;
        return session.close_pool(doing);
    }
    forget()
}

pub(super) fn destroy(here: &Here, request: &Destroy) -> Result<()> {
    let _turn = here.turn(&request.name);
    let located = locate(here, &request.name, &request.places)?;
    let doing = Doing::Destroy(request.name.clone());
    leave(here, &request.name, located, PoolState::Destroyed, &request.command, doing)
}

/// `zpool clear`: what was faulted or removed is used again. Counts of errors end with each command,
/// or go on in a server until they are cleared.
pub(super) fn clear(here: &Here, request: &Clear) -> Result<()> {
    let session = open(here, &request.name, &request.places, For::Writing)?;
    let doing = || Doing::Clear(request.device.clone().unwrap_or_else(|| request.name.clone()));
    let mut guids = None;
    if let Some(device) = &request.device {
        let leaf = Devices::of(&session)?.meant(device, &doing())?.leaf;
        guids = Some(leaf.ok_or_else(|| Error::cannot(doing(), Why::NoDevice))?.guid);
    }
    let fail = |error| pool_error(doing(), error);
    session.pool.use_again(guids).map_err(fail)?;
    if let Some(held) = here.held.as_ref().filter(|_| session.held) {
        held.clear(&session.pool, guids);
    }
    session.note(&request.command).map_err(fail)?;
    // A server does it by itself.
    scrub::fill(here, session, false, &mut |_| true, doing())
}

pub(super) fn export(here: &Here, request: &Export) -> Result<Vec<Error>> {
    let names =
        if request.all { here.pool_names()?.into_iter().collect() } else { request.names.clone() };
    let mut errors = Vec::new();
    for name in names {
        let doing = || Doing::Export(name.clone());
        let _turn = here.turn(&name);
        let done = locate(here, &name, &request.places).and_then(|located| {
            leave(here, &name, located, PoolState::Exported, &request.command, doing())
        });
        let done = match done {
            Err(e) if e.why() == Some(&Why::Unavailable) => match request.force {
                true => forget_lost(here, &name, e),
                false => Err(Error::cannot(doing(), Why::ExportUnavailable)),
            },
            done => done,
        };
        if let Err(e) = done {
            errors.push(e);
        }
    }
    Ok(errors)
}

/// Forgets a remembered pool that could not be opened for lack of devices, as `error` says: its name is free again, and
/// nothing is written. Not if they are there and only cannot be read.
fn forget_lost(here: &Here, name: &str, error: Error) -> Result<()> {
    let is_held = here.held.as_ref().is_some_and(|held| held.pool(name).is_some());
    let state = here.state.load()?;
    let Some(known) = state.pool(name).filter(|_| !is_held) else { return Err(error) };
    let is_read = |path: &PathBuf| !path.exists() || ReadFile::open(path).is_ok();
    if !known.paths.iter().all(is_read) {
        return Err(error);
    }
    here.state.change(|state| state.forget(known.guid))
}

pub(super) fn import(here: &Here, request: &Import) -> Result<Imported> {
    let state = here.state.load()?;
    let scan = find::look(&request.places);
    let mut chosen = Vec::new();
    for pool in &scan.pools {
        let is_it = match &request.which {
            Which::All => true,
            Which::Name(name) => pool.name() == name.as_str(),
            Which::Guid(guid) => pool.guid() == *guid,
        };
        let destroyed = pool.config.state == PoolState::Destroyed;
        if is_it && destroyed == request.destroyed && !ours::is_imported(here, &state, pool)? {
            chosen.push((pool.guid(), pool.name().into_owned()));
        }
    }
    let (asked, is_there) = match &request.which {
        Which::Name(name) => (name.clone(), state.pool(name).is_some()),
        Which::Guid(guid) => {
            (guid.to_string(), state.pools.iter().any(|known| known.guid == *guid))
        }
        Which::All => (String::new(), false),
    };
    if chosen.is_empty() && request.which != Which::All {
        let why = match is_there && request.new_name.is_none() {
            true => Why::PoolOfThatName,
            false => Why::NoPoolAvailable,
        };
        return Err(Error::cannot(Doing::Import(asked), why));
    }
    if chosen.len() > 1 && request.which != Which::All {
        return Err(Error::cannot(Doing::Import(asked), Why::Ambiguous));
    }
    let mut imported = Imported::default();
    for (guid, old) in chosen {
        let _turn = here.turn(request.new_name.as_ref().unwrap_or(&old));
        match import_one(here, request, guid) {
            Ok(taken) => imported.pools.push(taken),
            Err(e) if request.which == Which::All => imported.errors.push(e),
            Err(e) => return Err(e),
        }
    }
    Ok(imported)
}

/// Takes over one pool: its name now, and what there is to know of it.
fn import_one(here: &Here, request: &Import, guid: u64) -> Result<(String, Vec<String>)> {
    let look = || {
        let scan = find::complete(find::look(&request.places), guid, &here.memory);
        let sighting = Sighting::of(scan, guid);
        sighting.ok_or_else(|| Error::open(guid.to_string(), Why::NoPoolAvailable))
    };
    let sighting = look()?;
    let found = sighting.found();
    let old = found.name().into_owned();
    let name = request.new_name.clone().unwrap_or_else(|| old.clone());
    let doing = Doing::Import(old);
    let state = here.state.load()?;
    let is_taken = state.pool(&name).is_some_and(|known| known.guid != guid);
    // Another command may have imported it before this one's turn came.
    if is_taken || here.holds_another(&name, Some(guid)) || ours::is_imported(here, &state, found)?
    {
        return Err(Error::cannot(doing, Why::PoolOfThatName));
    }
    if !request.force
        && let Some(why) = ours::foreign(here, found)?
    {
        return Err(Error::cannot(doing, why));
    }
    let open = |sighting, mode| {
        let located = Located::to_import(sighting, &request.places, request.force)
            .giving_up_logs(request.missing_log);
        open_located(here, &name, located, mode, doing.clone())
    };
    let mut notes = Vec::new();
    let (session, readonly) = if request.readonly {
        (open(sighting, For::Reading)?, true)
    } else {
        match open(sighting, For::Writing) {
            Ok(session) => (session, false),
            // What cannot be written can still be read.
            Err(e) => match e.why() {
                Some(Why::ReadOnly(reason)) => {
                    notes.push(format!("'{name}' is imported read-only: {reason}"));
                    (open(look()?, For::Reading)?, true)
                }
                _ => return Err(e),
            },
        }
    };
    // What is known of it that does not hold; somebody else may have imported it meanwhile.
    let state = here.state.load()?;
    if ours::is_imported(here, &state, session.found())? {
        return Err(Error::cannot(doing, Why::NoPoolAvailable));
    }
    let stale = state.pools.iter().find(|known| known.guid == guid);
    let (paths, altroot) = (session.places(), altroot(&request.properties));
    let known = Known { name: name.clone(), guid, readonly, altroot, closed: None, paths };
    // Before anything is written: whoever is faster with the name has it.
    if !here.state.change(|state| state.remember(known, stale))? {
        return Err(Error::cannot(doing, Why::PoolOfThatName));
    }
    let done = take_over(session, request, readonly, &doing);
    if let Err(e) = done {
        here.state.change(|state| state.forget(guid))?;
        return Err(e);
    }
    here.hold(&name)?;
    here.tell(&name, events::POOL_IMPORT);
    Ok((name, notes))
}

/// Makes a pool that is open ours, on its disks.
fn take_over(session: Session, request: &Import, readonly: bool, doing: &Doing) -> Result<()> {
    if !readonly {
        for property in &request.properties {
            pool_props::set_at_import(&session, property, doing)?;
        }
        let done = session.pool.set_state(PoolState::Active);
        let done = done.and_then(|()| session.note(&request.command));
        done.map_err(|e| pool_error(doing.clone(), e))?;
    }
    session.close(doing.clone())
}

#[cfg(test)]
mod tests {
    use testkit::{fresh_images, temp_dir};

    use super::*;
    use crate::layout::{Class, Group, Layout};
    use crate::local::held::tests::mirror_and_spare;
    use crate::local::{Held, Local};
    use crate::state::StateFile;
    use crate::{Engine, pools};

    /// Seen red: it was there, as a pool in use that nobody knew, and kept its disk from any other.
    #[test]
    fn a_pool_that_cannot_be_remembered_is_not_there() {
        let (dir, images) = (temp_dir(), fresh_images(1, 64 << 20));
        let state = StateFile::new(dir.path().join("pools"));
        state.change(|state| state.hostid = Some(7)).expect("a list");
        // Nobody can lock it.
        let lock = dir.path().join("pools.lock");
        std::fs::remove_file(&lock).expect("the lock of the list");
        std::fs::create_dir(&lock).expect("something in its place");
        let devices = images.disks();
        let group = Group { kind: GroupKind::Single, class: Class::Normal, devices };
        let layout = Layout { groups: vec![group], ..Layout::default() };
        let create = Create { name: "tank".into(), layout, ..Create::default() };
        let refused = Local::new(state.clone()).pool_create(&create);
        assert!(matches!(refused, Err(Error::State { .. })), "{refused:?}");
        std::fs::remove_dir(&lock).expect("nothing in its place");
        Local::new(state).pool_create(&create).expect("the disk is free");
    }

    /// Seen red: there was no pool for whoever asked, and another of its name could be made and imported beside it.
    #[test]
    fn a_pool_that_is_held_is_there_whatever_became_of_the_list() {
        let (held, dir) = (Arc::new(Held::default()), temp_dir());
        let state = StateFile::new(dir.path().join("pools"));
        let (pool, _images) = mirror_and_spare(&held, state.clone());
        let (exported, others) =
            (StateFile::new(dir.path().join("others")), fresh_images(2, 64 << 20));
        let create = |disk| {
            let group =
                Group { kind: GroupKind::Single, class: Class::Normal, devices: vec![disk] };
            let layout = Layout { groups: vec![group], ..Layout::default() };
            Create { name: "tank".into(), layout, ..Create::default() }
        };
        let mut elsewhere = Local::new(exported);
        elsewhere.pool_create(&create(others.disk(0))).expect("another pool");
        let export = Export { names: vec!["tank".into()], ..Export::default() };
        assert_eq!(elsewhere.pool_export(&export), Ok(Vec::new()));
        std::fs::remove_file(state.path()).expect("the list");
        let mut engine = Local::new(state.clone()).holding(held.clone());
        let told = engine.pool_status(&pools::Status::default()).expect("pools");
        let told: Vec<_> = told.into_iter().flatten().map(|report| report.guid).collect();
        assert_eq!(told, [pool.guid()]);
        let made = engine.pool_create(&create(others.disk(1)));
        assert_eq!(made.unwrap_err().why(), Some(&Why::PoolExists));
        let import = Import {
            which: Which::Name("tank".into()),
            places: vec![others.disk(0)],
            new_name: None,
            force: true,
            missing_log: false,
            destroyed: false,
            readonly: false,
            unmounted: true,
            properties: Vec::new(),
            command: String::new(),
        };
        let imported = engine.pool_import(&import);
        assert_eq!(imported.unwrap_err().why(), Some(&Why::PoolOfThatName));
        drop(pool);
        assert_eq!(held.close(&state).len(), 0);
    }
}
