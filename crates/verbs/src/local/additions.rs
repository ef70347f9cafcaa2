//! `zpool add`: what a pool gets besides what it has.

use std::path::PathBuf;

use device::Device;
use format::config::{VdevConfig, VdevKind as Kind};
use pool::props::{PoolKey, PoolProp};
use pool::{Additions, NewLeaf, NewTop};

use super::Here;
use super::disks::{find_aux, queued, refused};
use super::lifecycle::{joined, leaf_path, open_leaf};
use super::opening::{For, open};
use super::session::pool_error;
use super::status;
use crate::disks::{Add, Before};
use crate::layout::{Class, Facts, GroupKind, unsound_beside};
use crate::pools::{PoolReport, Vdev, VdevKind};
use crate::{Doing, Error, Result, Why, events, inuse};

/// Why a device is not added that is in the pool already, or named twice.
const SAME: &str = "one or more vdevs refer to the same device";
/// Sectors that a vdev can have, as powers of two.
const ASHIFTS: std::ops::RangeInclusive<u32> = 9..=16;

pub(super) fn add(here: &Here, request: &Add) -> Result<Option<Before>> {
    let _turn = here.turn(&request.name);
    let doing = Doing::Disk(format!("add to '{}'", request.name));
    let cannot = |why| Error::cannot(doing.clone(), why);
    let mode = if request.dry_run { For::Reading } else { For::Writing };
    let session = open(here, &request.name, &request.places, mode)?;
    let layout = &request.layout;
    let is_other = |class| !matches!(class, Class::Normal | Class::Log);
    if layout.groups.iter().any(|group| is_other(group.class)) {
        let why = "special and dedup devices cannot be added yet";
        return Err(cannot(Why::NotDone(why.into())));
    }
    for path in layout.spares.iter().chain(&layout.cache) {
        // Its own are told of by the pool.
        if find_aux(&session, &path.to_string_lossy(), &doing)?.is_some() {
            return Err(cannot(Why::Host(SAME.into())));
        }
    }
    inuse::check_used(&doing, layout, request.force, &here.ours()?)?;
    let report = status::report(&session, None);
    let report = report.map_err(|error| pool_error(doing.clone(), error))?;
    let has_data = layout.groups.iter().any(|group| group.class != Class::Log);
    let unsound = has_data.then(|| unsound_beside(&groups(&report), layout, inuse::facts));
    if let Some(text) = unsound.flatten().filter(|_| !request.force) {
        return Err(Error::Vdevs { forced: false, list: vec![text] });
    }
    if request.dry_run {
        return Ok(Some(Box::new(report)));
    }
    // In the words of OpenZFS, which are others here than for a new pool.
    let same = Why::Host(SAME.into());
    inuse::check_different(&doing, layout, (same, Why::Unavailable))?;
    let new = additions(here, request, &doing, ashift(request, &report))?;
    // Before they are part of the pool: whoever opens that next has to find them, whatever becomes of this process.
    let absolute = |path: &PathBuf| std::path::absolute(path).unwrap_or_else(|_| path.clone());
    let paths: Vec<PathBuf> = layout.devices().map(absolute).collect();
    session.remember(here, &paths)?;
    let done = session.pool.add(new).map_err(|error| refused(doing.clone(), error));
    let noted = done.and_then(|()| {
        session.note(&request.command).map_err(|error| pool_error(doing.clone(), error))
    });
    noted?;
    let root = VdevConfig::new(Kind::Root, 0, session.pool.guid());
    session.told.iter().for_each(|told| told.tell_leaf(&session.pool, events::VDEV_ADD, &root));
    // A server looks for devices once more, now that their labels say whose they are.
    session.remember(here, &paths)?;
    session.close(doing)?;
    Ok(None)
}

/// log2 of the sectors that new vdevs shall have, if that was said.
fn ashift(request: &Add, report: &PoolReport) -> Option<u32> {
    let of_pool = report.property(&PoolKey::Native(PoolProp::Ashift));
    let of_pool = of_pool.and_then(|(value, _)| u32::try_from(value.number()?).ok());
    request.ashift.or(of_pool).filter(|shift| *shift != 0)
}

/// The devices, opened and locked.
fn additions(here: &Here, request: &Add, doing: &Doing, ashift: Option<u32>) -> Result<Additions> {
    let leaf = |path: &PathBuf| -> Result<NewLeaf> {
        let file = open_leaf(here, doing, path, request.force)?;
        let is_disk = file.is_block_device();
        Ok(NewLeaf { path: leaf_path(path), is_disk, device: queued(&here.memory, file) })
    };
    let mut new = Additions::default();
    for group in &request.layout.groups {
        let leaves: Result<Vec<NewLeaf>> = group.devices.iter().map(leaf).collect();
        let leaves = leaves?;
        let sector = leaves.iter().map(|leaf| leaf.device.sector_size()).max().unwrap_or(512);
        let least = sector.max(512).ilog2().clamp(*ASHIFTS.start(), *ASHIFTS.end());
        let is_log = group.class == Class::Log;
        let top = NewTop { joined: joined(group.kind), leaves, is_log };
        new.tops.push((top, ashift.unwrap_or(least)));
    }
    let spares: Result<Vec<NewLeaf>> = request.layout.spares.iter().map(leaf).collect();
    let caches: Result<Vec<NewLeaf>> = request.layout.cache.iter().map(leaf).collect();
    (new.spares, new.caches) = (spares?, caches?);
    Ok(new)
}

/// The pool's groups of devices for data, as far as redundancy goes.
fn groups(report: &PoolReport) -> Vec<(GroupKind, Vec<Facts>)> {
    let group = |top: &Vdev| {
        let kind = match top.kind {
            VdevKind::Mirror => GroupKind::Mirror,
            VdevKind::Raidz(parity) => GroupKind::Raidz(parity),
            VdevKind::Hole | VdevKind::Indirect => return None,
            _ => return Some((GroupKind::Single, vec![facts(top)])),
        };
        Some((kind, top.children.iter().map(facts).collect()))
    };
    let tops = report.tree.children.iter().filter(|top| top.class != Class::Log);
    tops.filter_map(group).collect()
}

/// Of one that is replaced, or that a spare stands in for, those of the first.
fn facts(vdev: &Vdev) -> Facts {
    let mut leaf = vdev;
    while let Some(first) = leaf.children.first() {
        leaf = first;
    }
    Facts { is_file: leaf.kind == VdevKind::File, size: leaf.stats.device_size }
}
