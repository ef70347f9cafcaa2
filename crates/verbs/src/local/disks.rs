//! `zpool offline online attach replace detach labelclear`: the life of a pool's disks.

use std::path::{Path, PathBuf};

use device::queue::LeafQueue;
use device::{Device, DeviceError, WriteDevice, WriteFile};
use format::NvList;
use format::config::{PoolConfig, PoolState, VdevConfig, VdevKind};
use format::label::{LABEL_SIZE, LABELS, label_offset};
use pool::devices::{Labels, queue_buffers};
use pool::{NewLeaf, Pool, PoolError, Trouble};
use rt::sync::Arc;

use super::called::{Devices, Meant};
use super::lifecycle::{leaf_path, open_leaf};
use super::opening::{For, open};
use super::session::{Session, pool_error};
use super::{Here, lookout, scrub};
use crate::disks::{Act, Change, Labelclear};
use crate::pools::{PoolUse, Scan};
use crate::{Doing, Error, Result, Why, events, inuse};

/// What a change is called in its errors.
fn doing(request: &Change) -> Doing {
    let device = &request.device;
    Doing::Disk(match &request.act {
        Act::Offline { fault: true, .. } => format!("fault {device}"),
        Act::Offline { .. } => format!("offline {device}"),
        Act::Online { .. } => format!("online {device}"),
        Act::Detach => format!("detach {device}"),
        Act::Remove => format!("remove {device}"),
        Act::Attach(new) => format!("attach {} to {device}", new.display()),
        Act::Replace(Some(new)) => format!("replace {device} with {}", new.display()),
        Act::Replace(None) => format!("replace {device} with {device}"),
    })
}

/// A change that the pool refused says why in OpenZFS's words.
pub(super) fn refused(doing: Doing, error: PoolError) -> Error {
    match error {
        PoolError::Invalid(why) => Error::cannot(doing, Why::Host(why)),
        other => pool_error(doing, other),
    }
}

/// The log vdev that is to be removed: by its own name, or that of its one device, which is `leaf`.
fn log_vdev(session: &Session, request: &Change, leaf: Option<VdevConfig>) -> Result<VdevConfig> {
    let cannot = |why| Err(Error::cannot(doing(request), why));
    let config = session.pool.config();
    let tops = &config.vdev_tree.children;
    let guid = leaf.as_ref().map(|leaf| leaf.guid);
    let is_it = |top: &&VdevConfig| Some(top.guid) == guid || is_numbered(top, &request.device);
    let Some(vdev) = tops.iter().find(is_it) else {
        return match guid {
            Some(_) => cannot(Why::WrongPoolKind),
            None => cannot(Why::NoDevice),
        };
    };
    if vdev.top.is_some_and(|top| top.is_log) {
        return Ok(vdev.clone());
    }
    if tops.iter().any(|top| top.kind == VdevKind::Raidz) {
        let why =
            "invalid config; all top-level vdevs must have the same sector size and not be raidz.";
        return cannot(Why::Host(why.into()));
    }
    cannot(Why::NotDone("vdevs that hold data cannot be removed yet".into()))
}

/// Is it what a top-level vdev that is no leaf is called?
fn is_numbered(top: &VdevConfig, name: &str) -> bool {
    let id = top.id.unwrap_or(u64::MAX);
    let numbered = match top.kind {
        VdevKind::Mirror => format!("mirror-{id}"),
        VdevKind::Raidz => format!("raidz{}-{id}", top.nparity.unwrap_or(0)),
        _ => return false,
    };
    name == numbered || name == top.guid.to_string()
}

/// The spare or cache device of a name.
pub(super) fn find_aux(session: &Session, name: &str, doing: &Doing) -> Result<Option<VdevConfig>> {
    let meant = Devices::of(session)?.meant(name, doing)?;
    Ok(meant.cache.or(meant.spare))
}

/// Makes the change; without a server, or if that is asked for, it stays until what a disk lacks is filled, and
/// `progress` hears of it, until it gives false. What there is to know though it was done, one a line.
pub(super) fn change(
    here: &Here,
    request: &Change,
    progress: &mut dyn FnMut(&Scan) -> bool,
) -> Result<Vec<String>> {
    let turn = here.turn(&request.name);
    let session = open(here, &request.name, &request.places, For::Writing)?;
    let doing = doing(request);
    let fail = |error| refused(doing.clone(), error);
    let devices = Devices::of(&session)?;
    let Meant { leaf, spare, cache } = devices.meant(&request.device, &doing)?;
    let aux = if request.act == Act::Remove { cache.or(spare) } else { spare };
    let old = match (leaf, aux) {
        (_, Some(aux)) if request.act == Act::Remove => aux,
        (leaf, None) if request.act == Act::Remove => log_vdev(&session, request, leaf)?,
        (Some(leaf), _) => leaf,
        (None, Some(_)) => {
            let why = "device is reserved as a hot spare";
            return Err(Error::cannot(doing, Why::Host(why.into())));
        }
        (None, None) => return Err(Error::cannot(doing, Why::NoDevice)),
    };
    let mut notes = Vec::new();
    let before = lookout::state_of(&session.pool, old.guid);
    let class = match &request.act {
        Act::Offline { temporary, fault } => {
            session.pool.offline(old.guid, *temporary, *fault).map_err(fail)?;
            events::STATE_CHANGE
        }
        Act::Online { expand } => {
            let (place, device) = returned(here, &session, &old).unzip();
            session.pool.online(old.guid, device).map_err(fail)?;
            // The next command is to find it, too.
            session.remember(here, place.as_slice())?;
            if *expand {
                session.pool.expand(Some(old.guid)).map_err(fail)?;
            }
            if !is_there(&session, &old) {
                let device = &request.device;
                notes.push(format!(
                    "warning: device '{device}' onlined, but remains in faulted state"
                ));
                notes.push(
                    "use 'zpool replace' to replace devices that are no longer present".to_owned(),
                );
            }
            events::VDEV_ONLINE
        }
        Act::Detach => {
            session.pool.detach(old.guid).map_err(fail)?;
            events::VDEV_REMOVE
        }
        Act::Remove if old.top.is_some() => {
            session.pool.remove_log(old.guid).map_err(fail)?;
            events::VDEV_REMOVE_DEV
        }
        Act::Remove => {
            session.pool.remove_aux(old.guid).map_err(fail)?;
            events::VDEV_REMOVE_AUX
        }
        Act::Replace(Some(path)) if let Some(spare) = devices.meant(&text(path), &doing)?.spare => {
            let path = session.paths().remove(&spare.guid).unwrap_or_else(|| path_of(&spare));
            engage(&session.pool, old.guid, (&spare, &path), Trouble::Unnoted).map_err(fail)?;
            let told = session.told.iter();
            told.for_each(|told| told.tell_leaf(&session.pool, events::VDEV_SPARE, &spare));
            events::VDEV_ATTACH
        }
        Act::Attach(path) | Act::Replace(Some(path)) => {
            let replacing = matches!(request.act, Act::Replace(_));
            attach(here, &session, &old, (path, replacing), request)?;
            events::VDEV_ATTACH
        }
        Act::Replace(None) => {
            let path = PathBuf::from(&request.device);
            let path = if path.is_absolute() { path } else { place_of(&session, &old) };
            attach(here, &session, &old, (&path, true), request)?;
            events::VDEV_ATTACH
        }
    };
    for told in session.told.iter() {
        if class != events::STATE_CHANGE {
            told.tell_leaf(&session.pool, class, &old);
        }
        if matches!(request.act, Act::Offline { .. } | Act::Online { .. }) {
            told.tell_state(&session.pool, &old, before);
        }
    }
    session.note(&request.command).map_err(|error| pool_error(doing.clone(), error))?;
    if matches!(request.act, Act::Remove | Act::Detach) {
        session.forget(here, &old)?;
    }
    drop(turn);
    match request.act {
        Act::Offline { .. } | Act::Detach | Act::Remove => session.close(doing)?,
        _ => scrub::fill(here, session, request.wait, progress, doing)?,
    }
    Ok(notes)
}

pub(super) fn path_of(leaf: &VdevConfig) -> PathBuf {
    use std::os::unix::ffi::OsStrExt;
    PathBuf::from(std::ffi::OsStr::from_bytes(leaf.path.as_deref().unwrap_or_default()))
}

/// A device as pools have theirs: behind a queue.
pub(super) fn queued(memory: &rt::Account, file: WriteFile) -> Arc<dyn WriteDevice> {
    Arc::new(LeafQueue::for_writing(file, queue_buffers(1, Some(memory))))
}

fn text(path: &Path) -> String {
    path.to_string_lossy().into_owned()
}

/// Has a spare of the pool, whose device is at `path`, stand in for the leaf `old`.
pub(super) fn engage(
    pool: &Pool,
    old: u64,
    (spare, path): (&VdevConfig, &Path),
    trouble: Trouble,
) -> std::result::Result<(), PoolError> {
    let busy = || {
        let path = path.display();
        PoolError::Invalid(format!("{path} is busy, or device removal is in progress"))
    };
    if pool.config().vdev_tree.find(spare.guid).is_some() {
        return Err(busy());
    }
    let file = WriteFile::open(path).map_err(|error| match error {
        DeviceError::Busy { .. } => busy(),
        error => PoolError::Invalid(error.to_string()),
    })?;
    let labels = Labels::read(&file);
    if labels.guid() != Some(spare.guid) {
        let why = format!("{} is no spare of this pool any more", path.display());
        return Err(PoolError::Invalid(why));
    }
    // OpenZFS lets pools have a spare in common: one that stands in elsewhere has that pool's label.
    let is_others = |config: &&PoolConfig| {
        config.pool_guid != pool.guid() && config.state != PoolState::Destroyed
    };
    if let Some(other) = labels.member(u64::MAX).filter(is_others) {
        let (path, name) = (path.display(), String::from_utf8_lossy(&other.name));
        return Err(PoolError::Invalid(format!("{path} is in use by pool '{name}'")));
    }
    pool.engage(old, spare.guid, queued(pool.memory(), file), trouble)
}

/// Does the pool have the device of a leaf?
fn is_there(session: &Session, leaf: &VdevConfig) -> bool {
    let tree = session.pool.store().tree();
    tree.leaf_by_guid(leaf.guid).is_some_and(|at| tree.leaves()[at].device().is_some())
}

/// The device of a leaf that the pool was opened without, and its place, if it is where it was, with its label.
fn returned(
    here: &Here,
    session: &Session,
    leaf: &VdevConfig,
) -> Option<(PathBuf, Arc<dyn WriteDevice>)> {
    if is_there(session, leaf) {
        return None;
    }
    let mut places = vec![place_of(session, leaf), path_of(leaf)];
    places.dedup();
    for place in places {
        let Ok(file) = WriteFile::open(&place) else { continue };
        let labels = Labels::read(&file);
        let ids = labels.member(u64::MAX).map(|config| (config.pool_guid, config.label));
        let is_it = ids.is_some_and(|(pool, label)| {
            pool == session.pool.guid() && label.is_some_and(|label| label.guid == leaf.guid)
        });
        if is_it {
            return Some((place, queued(&here.memory, file)));
        }
    }
    None
}

/// Where a leaf is: where it was found, or where the pool says.
fn place_of(session: &Session, leaf: &VdevConfig) -> PathBuf {
    let mut paths = session.sighting.leaf_paths();
    paths.remove(&leaf.guid).unwrap_or_else(|| path_of(leaf))
}

/// Attaches a device, or begins to replace a disk by it.
fn attach(
    here: &Here,
    session: &Session,
    old: &VdevConfig,
    (path, replacing): (&Path, bool),
    request: &Change,
) -> Result<()> {
    let doing = doing(request);
    inuse::check_free(&doing, std::iter::once(path), request.force, &here.ours()?)?;
    let file = open_leaf(here, &doing, path, request.force)?;
    if file.size() < inuse::DEVICE_SIZE_MIN {
        return Err(Error::cannot(doing, Why::Host("device is too small".into())));
    }
    let is_disk = file.is_block_device();
    let device = NewLeaf { path: leaf_path(path), is_disk, device: queued(&here.memory, file) };
    // Before it is part of the pool: whoever opens that next has to find it, whatever becomes of this process.
    session.remember(here, &[path.to_path_buf()])?;
    let done = session.pool.attach(old.guid, device, replacing);
    done.map_err(|error| refused(doing, error))?;
    // A server looks for it once more, now that its label says whose it is.
    session.remember(here, &[path.to_path_buf()])
}

/// `zpool labelclear`: four labels of zeros.
pub(super) fn labelclear(here: &Here, request: &Labelclear) -> Result<()> {
    let shown = request.device.display().to_string();
    let failed = |why: String| Error::Said(why);
    let file = WriteFile::open(&request.device)
        .map_err(|error| failed(format!("failed to open {shown}: {error}")))?;
    let ours = here.ours().map_err(|error| failed(error.to_string()))?;
    if Labels::read(&file).good().next().is_none() {
        return Err(failed(format!("failed to read label from {shown}")));
    }
    if let Ok(Some(used)) = inuse::usage(&request.device, &ours) {
        let (word, pool) = match &used {
            crate::pools::InUse::Pool { pool, state: PoolUse::Active } => {
                ("a member (ACTIVE)", pool)
            }
            crate::pools::InUse::Pool { pool, state: PoolUse::Exported } => ("EXPORTED", pool),
            crate::pools::InUse::Pool { pool, .. } => ("POTENTIALLY ACTIVE", pool),
            crate::pools::InUse::Spare { pool } => ("SPARE", pool),
            crate::pools::InUse::Filesystem(_) => return Err(failed(used.message(&shown))),
        };
        if used.is_final() {
            return Err(failed(format!("{shown} is {word} of pool \"{pool}\"")));
        }
        if !request.force {
            return Err(failed(format!(
                "use '-f' to override the following error:\n{shown} is a member of {} pool \"{pool}\"",
                word.to_lowercase()
            )));
        }
    }
    let zeros = vec![0; LABEL_SIZE as usize];
    let cleared = (0..LABELS)
        .filter_map(|label| label_offset(label, file.size()))
        .try_for_each(|offset| file.write_at(offset, &zeros));
    let done = cleared.and_then(|()| file.flush());
    done.map_err(|error| failed(format!("failed to clear label for {shown}: {error}")))
}

/// What events say of a leaf.
pub(super) fn leaf_values(leaf: &VdevConfig) -> NvList {
    let mut values = NvList::new();
    values.put_u64("vdev_guid", leaf.guid);
    if let Some(path) = &leaf.path {
        values.put_string("vdev_path", path);
    }
    values
}

#[cfg(test)]
mod tests {
    use testkit::temp_dir;

    use super::*;
    use crate::local::Held;
    use crate::local::held::tests::mirror_and_spare;
    use crate::state::StateFile;
    use crate::{Engine, Local};

    /// Seen red: which state it is in was not told of one that was taken offline, and nothing of one that was used again.
    #[test]
    fn what_a_disk_is_after_a_command_is_told() {
        let (held, dir) = (Arc::new(Held::default()), temp_dir());
        let state = StateFile::new(dir.path().join("pools"));
        let (pool, images) = mirror_and_spare(&held, state.clone());
        let mut engine = Local::new(state.clone()).holding(held.clone());
        let mut told_of = |act: Act| {
            let before = held.events().last();
            let change = Change {
                name: "tank".into(),
                device: text(&images.disk(0)),
                act,
                force: false,
                wait: false,
                places: Vec::new(),
                command: String::new(),
            };
            engine.pool_disk(&change, &mut |_| true).expect("it is changed");
            let mut told = held.events().after(before);
            told.retain(|event| event.class() == events::STATE_CHANGE);
            let states = |event: &events::Event| {
                ["vdev_laststate", "vdev_state"].map(|name| event.values.u64(name))
            };
            told.iter().map(|event| states(event)).collect::<Vec<_>>()
        };
        let (online, offline, faulted) = (Some(7), Some(2), Some(5));
        let offline_now = |fault| Act::Offline { temporary: true, fault };
        assert_eq!(told_of(offline_now(false)), [[online, offline]]);
        assert_eq!(told_of(Act::Online { expand: false }), [[offline, online]]);
        assert_eq!(told_of(offline_now(true)), [[online, faulted]]);
        drop(pool);
        assert_eq!(held.close(&state).len(), 0);
    }
}
