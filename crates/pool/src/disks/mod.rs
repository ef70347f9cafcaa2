//! The life of a pool's disks: taken offline, brought back, attached, replaced, detached, and spares for them.
//!
//! Place: what the doors ask, above [`change`]. The one idea: each of them is a change of the tree of vdevs, computed
//! from the tree before ([`shape`]), refused before anything is done, and put on disk as a whole in one txg. What a new
//! leaf, or one that was away, lacks is in its DTL; to fill it is the resilver's task.

mod change;
mod expand;
mod lists;
mod logs;
mod need;
pub(crate) mod shape;
mod spares;
mod tops;

use std::collections::BTreeMap;

use device::WriteDevice;
use format::BlkPtr;
use format::config::{PoolConfig, VdevConfig, VdevKind};
use format::dtl::Dtl;
use rt::sync::Arc;
use vdev::VdevError;
use vdev::label::Labels;

use crate::create::{NewLeaf, TXG_INITIAL};
use crate::dsl::property::Stored;
use crate::error::{PoolError, Result};
use crate::pool::Pool;
use crate::sync::TaskContext;
pub(crate) use change::marked_offline;
pub use spares::Trouble;
pub use tops::Additions;

/// Txgs that may be written at once (INV-6): so many may still miss a leaf that is new.
const TXGS_ALIVE: u64 = 3;

/// What OpenZFS appends to the path of a leaf that is replaced by what is at the same path.
const OLD: &[u8] = b"/old";

/// A device that has left the pool and did not take a label that says so.
#[derive(Clone, Debug)]
pub struct Unlabelled {
    /// The guid of the leaf that it was.
    pub leaf: u64,
    /// Where it was.
    pub path: String,
    /// Why not.
    pub error: String,
}

fn refused<T>(why: &str) -> Result<T> {
    Err(PoolError::Invalid(why.into()))
}

/// The config of a leaf in the pool.
fn leaf_of(tree: &VdevConfig, guid: u64) -> Result<&VdevConfig> {
    let leaf = tree.leaves().find(|leaf| leaf.guid == guid);
    leaf.ok_or_else(|| PoolError::Invalid("no such device in pool".into()))
}

fn path_of(leaf: &VdevConfig) -> String {
    leaf.path.as_deref().map(|path| String::from_utf8_lossy(path).into_owned()).unwrap_or_default()
}

impl Pool {
    /// Takes a leaf out of use. `temporary`: until the pool is opened the next time; `fault`: it counts as faulted.
    ///
    /// # Errors
    /// [`PoolError::Invalid`] if blocks are on no other leaf, or there is no such leaf.
    pub fn offline(&self, leaf: u64, temporary: bool, fault: bool) -> Result<()> {
        let config = self.config();
        let log =
            top_of(&config.vdev_tree, leaf).filter(|top| top.top.is_some_and(|top| top.is_log));
        match log.and_then(|top| top.id) {
            Some(log) if need::are_needed(&self.store.tree(), &[leaf]) => {
                // Without this one the pool has no such log: what is in it goes first.
                self.without_log(log as u32, || self.take_offline(leaf, temporary, fault))
            }
            _ => self.take_offline(leaf, temporary, fault),
        }
    }

    fn take_offline(&self, leaf: u64, temporary: bool, fault: bool) -> Result<()> {
        self.change_vdevs(move |cx, change| {
            leaf_of(&change.tree, leaf)?;
            let tree = cx.pool.store.tree();
            let top = tree.leaf_by_guid(leaf).map(|place| tree.leaves()[place].top);
            let is_spare = |top: u32| {
                tree.top(top).is_ok_and(vdev::Top::is_log)
                    && logs::is_empty(cx, top).is_ok_and(|is| is)
            };
            if need::are_needed(&tree, &[leaf]) && !top.is_some_and(is_spare) {
                return refused("no valid replicas");
            }
            if temporary && !fault {
                change.offline.insert(leaf);
                return Ok(());
            }
            if let Some(config) = change.tree.find_mut(leaf) {
                config.offline = !fault;
                config.faulted = fault;
                config.aux_state = fault.then(|| b"external".to_vec());
            }
            Ok(())
        })
    }

    /// Uses a leaf again; `device` is its device, if it has none yet, or another one that says so of itself. What was
    /// written without it is in its DTL, and what came after the newest uberblock of a device goes there.
    ///
    /// # Errors
    /// [`PoolError::Invalid`] if there is no such leaf, or its device was written to elsewhere and is ahead of the pool.
    pub fn online(&self, leaf: u64, device: Option<Arc<dyn WriteDevice>>) -> Result<()> {
        self.scan_forgives(Some(leaf));
        self.change_vdevs(move |cx, change| {
            leaf_of(&change.tree, leaf)?;
            change.offline.remove(&leaf);
            if let Some(config) = change.tree.find_mut(leaf) {
                use_config_again(config);
                config.offline = false;
            }
            let tree = cx.pool.store.tree();
            if let Some(known) = tree.leaf_by_guid(leaf).map(|place| &tree.leaves()[place]) {
                let top = tree.tops().get(known.top as usize);
                if let Some(device) = &device {
                    let ashift = top.and_then(|top| top.config.top).map_or(0, |top| top.ashift);
                    let newest = newest_of_ours((&**device, ashift), cx)?;
                    if !top.is_some_and(vdev::Top::is_log) {
                        lacks_since(known, newest, cx);
                    }
                    // Its labels may be of a txg that never was, or tell of vdevs that were others then.
                    *cx.pool.config_dirty.lock() = true;
                }
                // A resilver under way has passed blocks that this one lacks: it is not filled by that one.
                if !known.lacks.is_empty() {
                    known.lacks.add(cx.tx.txg(), cx.tx.txg() + TXGS_ALIVE);
                }
            }
            change.devices.extend(device.map(|device| (leaf, device)));
            Ok(())
        })
    }

    /// The txg of the pool's newest uberblock, and the MOS that it leads to: by them a device is told from one that has
    /// gone another way ([`Labels::is_astray`]).
    pub fn newest(&self) -> (u64, BlkPtr) {
        self.scan.newest()
    }

    /// Uses leaves again that were faulted or removed: this one, or all. What they lack stays in their DTLs; once they
    /// have it, a spare that stands in for one of them goes.
    pub fn use_again(&self, leaf: Option<u64>) -> Result<()> {
        self.scan_forgives(leaf);
        self.writing()?.writer.settle_log_vdevs();
        let wanted = move |vdev: &&VdevConfig| leaf.is_none_or(|leaf| vdev.guid == leaf);
        let given_up = |vdev: &&VdevConfig| vdev.faulted || vdev.degraded || vdev.removed;
        let any = self.config.lock().vdev_tree.leaves().filter(wanted).any(|leaf| given_up(&leaf));
        if !any {
            return Ok(());
        }
        self.change_vdevs(move |_, change| {
            let leaves = change.tree.leaves().filter(wanted).filter(given_up);
            let guids: Vec<u64> = leaves.map(|leaf| leaf.guid).collect();
            for guid in guids {
                change.tree.find_mut(guid).into_iter().for_each(use_config_again);
                shape::unspare(&mut change.tree, guid);
            }
            Ok(())
        })?;
        self.finish_replacements()
    }

    /// Leaves are found there from now on, by guid: the config says so with the next txg.
    pub fn note_paths(&self, paths: &BTreeMap<u64, Vec<u8>>) {
        if self.writing.is_none() {
            return;
        }
        for (guid, path) in paths {
            if let Some(leaf) = self.config.lock().vdev_tree.find_mut(*guid) {
                leaf.path = Some(path.clone());
            }
        }
        *self.config_dirty.lock() |= !paths.is_empty();
    }

    /// Puts a new leaf beside the leaf `old`: as another copy, or to take its place once it is filled. Its guid.
    ///
    /// # Errors
    /// [`PoolError::Invalid`] says what does not fit; then nothing was done but that the device may have a label of no
    /// pool.
    pub fn attach(&self, old: u64, new: NewLeaf, replacing: bool) -> Result<u64> {
        let role = if replacing { Role::Successor } else { Role::Copy };
        self.change_vdevs(move |cx, change| {
            let guid = change.new_guid(cx);
            let config = new_leaf(&new, guid);
            put_beside(cx, change, old, (config, new.device), role)?;
            change.labelled.insert(guid);
            Ok(guid)
        })
    }

    /// Takes a leaf out of its mirror, ends its replacement, or has a spare stand back; one that a spare stands in for
    /// leaves its place to it for good. It keeps a label of no pool, or that of a spare.
    ///
    /// # Errors
    /// [`PoolError::Invalid`] if it is in no mirror, or blocks are on no other leaf.
    pub fn detach(&self, leaf: u64) -> Result<()> {
        self.take_leaves(vec![leaf], true)
    }

    /// Takes leaves out, in one txg; `asked`: somebody wants this one to go, it is not that it is done.
    fn take_leaves(&self, leaves: Vec<u64>, asked: bool) -> Result<()> {
        let out = self.writing()?.writer.out();
        let devices: Vec<_> = leaves.iter().map(|leaf| (*leaf, out.device(*leaf))).collect();
        let before = self.config();
        self.change_vdevs(move |cx, change| {
            let mut told = Vec::new();
            if need::are_needed(&cx.pool.store.tree(), &leaves) {
                return refused("no valid replicas");
            }
            for leaf in leaves {
                let config = leaf_of(&change.tree, leaf)?.clone();
                let parent = shape::parent_of(&change.tree, leaf);
                let joins = |kind: &VdevKind| {
                    matches!(kind, VdevKind::Mirror | VdevKind::Replacing | VdevKind::Spare)
                };
                let Some(parent) = parent.filter(|parent| joins(&parent.kind)).cloned() else {
                    return refused("only applicable to mirror and replacing vdevs");
                };
                if asked && let Some(heir) = shape::spare_for(&parent, leaf) {
                    spares::keep_for_good(cx, change, heir)?;
                }
                if parent.kind == VdevKind::Replacing
                    && asked
                    && let Some(before) = parent.children.first().map(|first| first.guid)
                    && let Some(path) =
                        change.tree.find_mut(before).and_then(|old| old.path.as_mut())
                    && let Some(stripped) = path.strip_suffix(OLD)
                {
                    *path = stripped.to_vec();
                }
                change.take_out(leaf);
                told.push(format!("vdev={}", path_of(&config)));
            }
            change.told.extend(told.into_iter().map(|text| ("detach", text)));
            Ok(())
        })?;
        // Only now: before its uberblock the pool was still that with the leaf in it.
        self.label_gone(&before, devices);
        Ok(())
    }

    /// Devices of leaves that have left get the labels of spares, or of no pool. They have left, whether they take them
    /// or not: a disk often goes because it takes nothing any more. Who does not is noted.
    fn label_gone(&self, before: &PoolConfig, devices: Vec<(u64, Option<Arc<dyn WriteDevice>>)>) {
        let before = PoolConfig { txg: 0, ..before.clone() };
        for (leaf, device) in devices {
            let was_spare = before.vdev_tree.find(leaf).is_some_and(|leaf| leaf.is_spare);
            let label = match was_spare {
                true => Some(lists::List::Spares.label(leaf)),
                false => before.for_leaf(leaf).map(|config| config.to_nvlist()),
            };
            if let (Some(device), Some(label)) = (device, label)
                && let Err(error) = vdev::label::write_fresh(&*device, &label)
            {
                let path = before.vdev_tree.find(leaf).map(path_of).unwrap_or_default();
                self.unlabelled.lock().push(Unlabelled { leaf, path, error: error.to_string() });
            }
        }
    }

    /// Devices that have left since somebody asked, and still have labels that say that they belong to the pool.
    pub fn take_unlabelled(&self) -> Vec<Unlabelled> {
        std::mem::take(&mut *self.unlabelled.lock())
    }

    /// Lets go what was replaced, and spares, where the leaf that they made room for lacks nothing more. With `autoexpand`
    /// the room that devices have is used from then on.
    pub fn finish_replacements(&self) -> Result<()> {
        let tree = self.store.tree();
        let whole = |guid: u64| {
            let leaf = tree.leaf_by_guid(guid).map(|place| &tree.leaves()[place]);
            let is_whole = |leaf: &vdev::Leaf| leaf.lacks.is_empty() && !leaf.is_filling();
            leaf.is_some_and(|leaf| leaf.state.is_online() && is_whole(leaf))
        };
        let groups = shape::done_with(&self.config.lock().vdev_tree, &whole);
        // What becomes of one says nothing of the others.
        let done: Vec<Result<()>> =
            groups.into_iter().map(|group| self.take_leaves(group, false)).collect();
        let is_refusal = |done: &Result<()>| done.as_ref().is_err_and(|error| error.is_refusal());
        done.into_iter().filter(|done| !is_refusal(done)).collect::<Result<()>>()?;
        // The smallest leaf may be gone.
        let autoexpand =
            |(name, value): &(String, Stored)| name == "autoexpand" && *value != Stored::Number(0);
        match self.pool_properties()?.iter().any(autoexpand) {
            true => self.expand(None),
            false => Ok(()),
        }
    }
}

/// The txg of the newest uberblock that a leaf's device shares with the pool, or may; 0: there is none. One that a crash
/// kept from the others is taken out of its rings: once blocks of this txg are written over what that led to, nobody may
/// go on from it any more.
fn newest_of_ours((device, ashift): (&dyn WriteDevice, u64), cx: &TaskContext<'_>) -> Result<u64> {
    let (txg, root) = cx.pool.newest();
    let ours = (txg, &root);
    let (mut labels, name) = (Labels::read(device), device.name());
    if labels.is_astray(ours) {
        return refused(&format!(
            "{name} was written to elsewhere and is ahead of the pool; take it away before the pool is imported \
             again, and use 'zpool replace' with another device"
        ));
    }
    let strays = labels.strays(ours);
    for uberblock in &strays {
        let erased = vdev::label::erase_uberblock(device, uberblock, ashift);
        erased.map_err(|error| PoolError::Invalid(VdevError::from(error).to_string()))?;
    }
    if !strays.is_empty() {
        labels = Labels::read(device);
    }
    if !labels.strays(ours).is_empty() {
        return refused(&format!("{name} keeps an uberblock that is not the pool's"));
    }
    Ok(labels.uberblocks.first().map_or(0, |newest| newest.txg.get()))
}

/// Notes what a leaf lacks on its device: all that came after this uberblock, of the pool as it is.
fn lacks_since(leaf: &vdev::Leaf, newest: u64, cx: &TaskContext<'_>) {
    let (synced, txg) = (cx.pool.txg(), cx.tx.txg());
    if newest < synced {
        leaf.lacks.add(newest + 1, synced + 1);
    }
    if leaf.state.is_online() {
        // What there is of this txg another device has.
        leaf.lacks.note(txg);
    }
}

/// What a leaf that comes beside another is for.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Role {
    Copy,
    Successor,
    Spare,
}

/// Puts a leaf beside the leaf `old`, if it fits there. It lacks all that was written so far.
fn put_beside(
    cx: &TaskContext<'_>,
    change: &mut change::Change,
    old: u64,
    (mut config, device): (VdevConfig, Arc<dyn WriteDevice>),
    role: Role,
) -> Result<()> {
    let beside = leaf_of(&change.tree, old)?.clone();
    let Some(parent) = shape::parent_of(&change.tree, old) else {
        return refused("no such device in pool");
    };
    if role == Role::Copy && !matches!(parent.kind, VdevKind::Mirror | VdevKind::Root) {
        return refused("can only attach to mirrors and top-level disks");
    }
    let top = top_of(&change.tree, old).and_then(|top| top.top);
    if role == Role::Spare && top.is_some_and(|top| top.is_log) {
        return refused("cannot replace a log with a spare");
    }
    let is_spare = role == Role::Spare;
    if parent.kind == VdevKind::Spare && beside.is_spare != is_spare
        || parent.kind == VdevKind::Replacing && is_spare
    {
        return refused(
            "already in replacing/spare config; wait for completion or use 'zpool detach'",
        );
    }
    let asize = format::label::leaf_asize(device.size()).unwrap_or(0);
    if asize < shape::least_asize(&change.tree, old) {
        return refused("device is too small");
    }
    let ashift = top.map_or(0, |top| top.ashift);
    if u64::from(device.sector_size().max(512).ilog2()) > ashift {
        return refused(
            "new device has a different optimal sector size; use the option '-o ashift=N' to override \
             the optimal size",
        );
    }
    let (guid, joint) = (config.guid, change.new_guid(cx));
    config.resilver_txg = cx.tx.txg();
    let (new, old_path) = (path_of(&config), path_of(&beside));
    let (kind, what) = match role {
        Role::Copy => (VdevKind::Mirror, format!("attach vdev={new} to vdev={old_path}")),
        Role::Successor => (VdevKind::Replacing, format!("replace vdev={new} for vdev={old_path}")),
        Role::Spare => (VdevKind::Spare, format!("spare in vdev={new} for vdev={old_path}")),
    };
    if role == Role::Successor
        && config.path == beside.path
        && let Some(before) = change.tree.find_mut(old)
    {
        // What is there now is the new one: nobody looks for the old one there.
        before.path.iter_mut().for_each(|path| path.extend_from_slice(OLD));
    }
    shape::put_beside(&mut change.tree, old, config, kind, joint);
    let mut lacks = Dtl::default();
    lacks.add(TXG_INITIAL, cx.tx.txg() + TXGS_ALIVE);
    change.lacks.push((guid, lacks));
    change.devices.insert(guid, device);
    change.told.push(("vdev attach", what));
    Ok(())
}

fn use_config_again(config: &mut VdevConfig) {
    (config.faulted, config.degraded, config.removed) = (false, false, false);
    config.aux_state = None;
}

/// The top-level vdev that a vdev belongs to.
fn top_of(tree: &VdevConfig, guid: u64) -> Option<&VdevConfig> {
    tree.children.iter().find(|top| top.find(guid).is_some())
}

/// The config of a leaf that is new.
fn new_leaf(new: &NewLeaf, guid: u64) -> VdevConfig {
    let kind = if new.is_disk { VdevKind::Disk } else { VdevKind::File };
    let mut config = VdevConfig::new(kind, 0, guid);
    config.path = Some(new.path.clone());
    config.whole_disk = new.is_disk.then_some(false);
    config
}
