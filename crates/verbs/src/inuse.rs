//! May devices be made a pool? What they hold, and what force does about it.

use std::os::unix::fs::{FileTypeExt, MetadataExt};
use std::path::{Path, PathBuf};

use device::{Device, ReadFile};
use format::config::PoolState;
use pool::devices::{Content, content};

use crate::layout::{Facts, Layout, unsound};
use crate::pools::{InUse, PoolUse};
use crate::state::{Known, State};
use crate::{Doing, Error, Result, Why};

/// The smallest device of a pool, in bytes.
pub const DEVICE_SIZE_MIN: u64 = 64 << 20;

/// Asks a pool: is the device of this guid one of yours?
pub type Asked<'a> = dyn Fn(&Known, u64) -> bool + 'a;

/// The pools that we have, and who knows their devices.
pub struct Ours<'a> {
    /// The list of them.
    pub state: State,
    /// What a device's label says may be old: one that was away when it was detached or replaced has not heard.
    pub has: Box<Asked<'a>>,
}

/// What a device is used for; `None` if it is free.
///
/// # Errors
/// It cannot be read.
pub fn usage(path: &Path, ours: &Ours<'_>) -> device::Result<Option<InUse>> {
    let file = ReadFile::open(path)?;
    Ok(match content(&file)? {
        None => None,
        Some(Content::Foreign(kind)) => Some(InUse::Filesystem(kind.into())),
        Some(Content::Pool(config)) => {
            let known = ours.state.pools.iter().find(|pool| pool.guid == config.pool_guid);
            let guid = config.label.map(|label| label.guid);
            // It was on its way into the pool when the power went, or has left it.
            let has_left =
                |known| config.txg == 0 || guid.is_some_and(|guid| !(ours.has)(known, guid));
            let state = match config.state {
                _ if known.is_some_and(has_left) => return Ok(None),
                _ if known.is_some() => PoolUse::Active,
                PoolState::Exported => PoolUse::Exported,
                PoolState::Active => PoolUse::PotentiallyActive,
                _ => return Ok(None),
            };
            let pool = String::from_utf8_lossy(&config.name).into_owned();
            Some(InUse::Pool { pool, state })
        }
        // A spare's label does not say whose it is: the pools that we have know.
        Some(Content::Aux(_)) => {
            // It may be named by another path than theirs.
            let id = identity(path).ok();
            let is_it =
                |other: &PathBuf| other == path || id.is_some() && identity(other).ok() == id;
            let owner = ours.state.pools.iter().find(|pool| pool.paths.iter().any(is_it));
            owner.map(|pool| InUse::Spare { pool: pool.name.clone() })
        }
    })
}

/// What is the same for all paths that lead to one device.
pub(crate) fn identity(path: &Path) -> std::io::Result<(u64, u64)> {
    let meta = std::fs::metadata(path)?;
    Ok(match meta.file_type().is_block_device() {
        true => (0, meta.rdev()),
        false => (meta.dev(), meta.ino()),
    })
}

/// Checks all that can be checked before a pool is made.
///
/// # Errors
/// Devices that are in use or unsound ([`Error::Vdevs`]), too small, named twice, or a pool of
/// that name.
pub fn check(name: &str, layout: &Layout, force: bool, ours: &Ours<'_>) -> Result<()> {
    check_used(&Doing::Create(name.into()), layout, force, ours)?;
    if let Some(text) = unsound(layout, facts).filter(|_| !force) {
        return Err(Error::Vdevs { forced: false, list: vec![text] });
    }
    Ok(())
}

/// What a layout's soundness depends on, of a device.
pub(crate) fn facts(path: &PathBuf) -> Facts {
    let file = ReadFile::open(path);
    let is_file = file.as_ref().is_ok_and(|file| !file.is_block_device());
    Facts { is_file, size: file.map_or(0, |file| file.size()) }
}

/// Checks that devices are not in use.
///
/// # Errors
/// [`Error::Vdevs`], with all that are; those that cannot be read.
pub fn check_used(doing: &Doing, layout: &Layout, force: bool, ours: &Ours<'_>) -> Result<()> {
    check_free(doing, layout.devices().map(PathBuf::as_path), force, ours)
}

/// The same, of devices by themselves.
pub(crate) fn check_free<'a>(
    doing: &Doing,
    devices: impl Iterator<Item = &'a Path>,
    force: bool,
    ours: &Ours<'_>,
) -> Result<()> {
    let cannot = |why| Error::cannot(doing.clone(), why);
    let mut list = Vec::new();
    for path in devices {
        let used = usage(path, ours).map_err(|e| cannot(Why::Host(e.to_string())))?;
        if let Some(used) = used.filter(|used| !force || used.is_final()) {
            list.push(used.message(&path.display().to_string()));
        }
    }
    if !list.is_empty() {
        return Err(Error::Vdevs { forced: force, list });
    }
    Ok(())
}

/// Checks what the kernel checks last: the name is free, each device is there once and large
/// enough.
///
/// # Errors
/// [`Error::Cannot`].
pub fn check_devices(name: &str, layout: &Layout, state: &State) -> Result<()> {
    let cannot = |why| Error::cannot(Doing::Create(name.into()), why);
    if state.pool(name).is_some() {
        return Err(cannot(Why::PoolExists));
    }
    let small = Why::TooSmall { least: DEVICE_SIZE_MIN };
    check_different(&Doing::Create(name.into()), layout, (Why::SameDevice, small))
}

/// Checks that each device is there once and large enough.
///
/// # Errors
/// [`Error::Cannot`]: one of these two.
pub fn check_different(doing: &Doing, layout: &Layout, (same, small): (Why, Why)) -> Result<()> {
    let cannot = |why| Error::cannot(doing.clone(), why);
    let mut seen = Vec::new();
    for path in layout.devices() {
        let id = identity(path).map_err(|e| cannot(Why::Host(e.to_string())))?;
        if seen.contains(&id) {
            return Err(cannot(same));
        }
        seen.push(id);
    }
    for path in layout.devices() {
        let size = ReadFile::open(path).map(|file| file.size());
        let size = size.map_err(|e| cannot(Why::Host(e.to_string())))?;
        if size < DEVICE_SIZE_MIN {
            return Err(cannot(small));
        }
    }
    Ok(())
}
