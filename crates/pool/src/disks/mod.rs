//! The life of a pool's disks: taken offline, brought back, attached, replaced, detached.
//!
//! Place: what the doors ask, above [`change`]. The one idea: each of them is a change of the tree of vdevs, computed
//! from the tree before ([`shape`]), refused before anything is done, and put on disk as a whole in one txg. What a new
//! leaf, or one that was away, lacks is in its DTL; to fill it is the resilver's task.

mod change;
mod need;
mod shape;

use std::collections::BTreeMap;

use device::WriteDevice;
use format::config::{VdevConfig, VdevKind};
use format::dtl::Dtl;
use rt::sync::Arc;

use crate::create::{NewLeaf, TXG_INITIAL};
use crate::error::{PoolError, Result};
use crate::pool::Pool;
pub(crate) use change::marked_offline;

/// Txgs that may be written at once (INV-6): so many may still miss a leaf that is new.
const TXGS_ALIVE: u64 = 3;

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
        self.change_vdevs(move |cx, change| {
            leaf_of(&change.tree, leaf)?;
            if need::is_needed(&cx.pool.store.tree(), leaf) {
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

    /// Uses a leaf again; `device` is its device, if it has none yet. What was written without it is in its DTL.
    ///
    /// # Errors
    /// [`PoolError::Invalid`] if there is no such leaf.
    pub fn online(&self, leaf: u64, device: Option<Arc<dyn WriteDevice>>) -> Result<()> {
        self.change_vdevs(move |cx, change| {
            leaf_of(&change.tree, leaf)?;
            change.offline.remove(&leaf);
            change.devices.extend(device.map(|device| (leaf, device)));
            if let Some(config) = change.tree.find_mut(leaf) {
                use_config_again(config);
                config.offline = false;
            }
            // A resilver under way has passed blocks that this one lacks: it is not filled by that one.
            let tree = cx.pool.store.tree();
            let known = tree.leaf_by_guid(leaf).map(|place| &tree.leaves()[place].lacks);
            if let Some(lacks) = known.filter(|lacks| !lacks.is_empty()) {
                let mut txgs = lacks.txgs();
                txgs.add(cx.tx.txg(), cx.tx.txg() + TXGS_ALIVE);
                lacks.set(txgs);
            }
            Ok(())
        })
    }

    /// Uses leaves again that were faulted or removed: this one, or all. What they lack stays in their DTLs.
    pub fn use_again(&self, leaf: Option<u64>) -> Result<()> {
        let wanted = move |vdev: &&VdevConfig| leaf.is_none_or(|leaf| vdev.guid == leaf);
        let given_up = |vdev: &&VdevConfig| vdev.faulted || vdev.degraded || vdev.removed;
        let any = self.config.lock().vdev_tree.leaves().filter(wanted).any(|leaf| given_up(&leaf));
        if !any {
            return Ok(());
        }
        self.change_vdevs(move |_, change| {
            let guids: Vec<u64> =
                change.tree.leaves().filter(wanted).map(|leaf| leaf.guid).collect();
            for guid in guids {
                change.tree.find_mut(guid).into_iter().for_each(use_config_again);
            }
            Ok(())
        })
    }

    /// Puts a new leaf beside the leaf `old`: as another copy, or to take its place once it is filled. Its guid.
    ///
    /// # Errors
    /// [`PoolError::Invalid`] says what does not fit; then nothing was done but that the device may have a label of no
    /// pool.
    pub fn attach(&self, old: u64, new: NewLeaf, replacing: bool) -> Result<u64> {
        let kind = if replacing { VdevKind::Replacing } else { VdevKind::Mirror };
        self.change_vdevs(move |cx, change| {
            let beside = leaf_of(&change.tree, old)?.clone();
            let Some(parent) = shape::parent_of(&change.tree, old) else {
                return refused("no such device in pool");
            };
            if !replacing && !matches!(parent.kind, VdevKind::Mirror | VdevKind::Root) {
                return refused("can only attach to mirrors and top-level disks");
            }
            let asize = format::label::leaf_asize(new.device.size()).unwrap_or(0);
            if asize < shape::least_asize(&change.tree, old) {
                return refused("device is too small");
            }
            let top = top_of(&change.tree, old);
            let ashift = top.and_then(|top| top.top).map_or(0, |top| top.ashift);
            if u64::from(new.device.sector_size().max(512).ilog2()) > ashift {
                return refused(
                    "new device has a different optimal sector size; use the option '-o ashift=N' to override \
                     the optimal size",
                );
            }
            let guid = change.new_guid(cx);
            let joint = change.new_guid(cx);
            let mut config = new_leaf(&new, guid);
            config.resilver_txg = cx.tx.txg();
            let what = match replacing {
                true => format!("replace vdev={} for vdev={}", path_of(&config), path_of(&beside)),
                false => format!("attach vdev={} to vdev={}", path_of(&config), path_of(&beside)),
            };
            shape::put_beside(&mut change.tree, old, config, kind, joint);
            let mut lacks = Dtl::default();
            lacks.add(TXG_INITIAL, cx.tx.txg() + TXGS_ALIVE);
            change.lacks.push((guid, lacks));
            change.labelled.insert(guid);
            change.devices.insert(guid, new.device);
            change.told = Some(("vdev attach", what));
            Ok(guid)
        })
    }

    /// Takes a leaf out of its mirror, or ends its replacement. It keeps a label of no pool.
    ///
    /// # Errors
    /// [`PoolError::Invalid`] if it is in no mirror, or blocks are on no other leaf.
    pub fn detach(&self, leaf: u64) -> Result<()> {
        let device = self.writing()?.writer.out().device(leaf);
        let before = self.config();
        self.change_vdevs(move |cx, change| {
            let config = leaf_of(&change.tree, leaf)?.clone();
            let parent = shape::parent_of(&change.tree, leaf);
            let joins = |kind: &VdevKind| {
                matches!(kind, VdevKind::Mirror | VdevKind::Replacing | VdevKind::Spare)
            };
            if !parent.is_some_and(|parent| joins(&parent.kind)) {
                return refused("only applicable to mirror and replacing vdevs");
            }
            if need::is_needed(&cx.pool.store.tree(), leaf) {
                return refused("no valid replicas");
            }
            change.take_out(leaf);
            change.told = Some(("detach", format!("vdev={}", path_of(&config))));
            Ok(())
        })?;
        // Only now: before its uberblock the pool was still that with the leaf in it.
        let label = format::config::PoolConfig { txg: 0, ..before }.for_leaf(leaf);
        if let (Some(device), Some(label)) = (device, label) {
            vdev::label::write_fresh(&*device, &label.to_nvlist())
                .map_err(vdev::VdevError::from)?;
        }
        Ok(())
    }

    /// Lets go what was replaced, if whoever filled the new leaves did not come to it.
    pub fn finish_replacements(&self) -> Result<()> {
        let tree = self.store.tree();
        let whole = tree.leaves().iter().filter(|leaf| leaf.state.is_online());
        let whole = whole.filter(|leaf| leaf.lacks.is_empty() && !leaf.is_filling());
        let whole: Vec<u64> = whole.map(vdev::Leaf::guid).collect();
        self.let_replaced_go(&whole)
    }

    /// Leaves were filled: what they replace goes. A spare stays until its disk was replaced or detached.
    pub(crate) fn let_replaced_go(&self, leaves: &[u64]) -> Result<()> {
        let replaced: Vec<u64> = {
            let config = self.config.lock();
            // The last of them takes the place of all that were there before.
            let before = |guid: &u64| {
                let parent = shape::parent_of(&config.vdev_tree, *guid)?;
                let is_last = parent.children.last().is_some_and(|last| last.guid == *guid);
                (parent.kind == VdevKind::Replacing && is_last).then(|| {
                    let others = parent.leaves().map(|leaf| leaf.guid);
                    others.filter(|other| other != guid).collect::<Vec<_>>()
                })
            };
            leaves.iter().filter_map(before).flatten().collect()
        };
        // One by one, each of its own txg: a leaf that turns out to be needed stays.
        for guid in replaced {
            match self.detach(guid) {
                Err(error) if error.is_refusal() => {}
                result => result?,
            }
        }
        Ok(())
    }
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

/// Devices of leaves by guid.
type DevicesByGuid = BTreeMap<u64, Arc<dyn WriteDevice>>;
