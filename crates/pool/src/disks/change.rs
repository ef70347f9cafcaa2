//! One change of the tree of vdevs: a task in one txg.
//!
//! The order: it is refused, or new devices get labels that belong to no pool; then the objects of vdevs that come and
//! go; then the tree is exchanged, so that what this txg still writes (its MOS, with the new config) is on the new leaves,
//! too; and with the txg's uberblock the labels say so, in OpenZFS's order (INV-3). Cut anywhere it is the old pool or
//! the new one.

use std::collections::{BTreeMap, BTreeSet};

use dmu::SpaceMap;
use format::ObjectType;
use format::config::{PoolConfig, TopConfig, VdevConfig};
use format::dtl::Dtl;
use format::features::Feature;
use vdev::VdevError;

use super::lists::List;
use super::shape;
use crate::create::{DevicesByGuid, top_objects};
use crate::error::{PoolError, Result};
use crate::mos::key;
use crate::pool::Pool;
use crate::sync::TaskContext;

/// What is to become of the vdevs.
pub(super) struct Change {
    /// The root of the new tree.
    pub(super) tree: VdevConfig,
    /// Leaves that are offline until the pool is opened the next time.
    pub(super) offline: BTreeSet<u64>,
    /// Devices of leaves that are new, or back.
    pub(super) devices: DevicesByGuid,
    /// Those of them that get fresh labels.
    pub(super) labelled: BTreeSet<u64>,
    /// What new leaves lack.
    pub(super) lacks: Vec<(u64, Dtl)>,
    /// Guids of top-level vdevs that are new.
    pub(super) new_tops: BTreeSet<u64>,
    /// Leaves and top-level vdevs that have left.
    gone: Vec<VdevConfig>,
    /// The spares and caches there are from now on, where that changes.
    pub(super) lists: Vec<(List, Vec<VdevConfig>)>,
    /// For the history: what it is called, and of what.
    pub(super) told: Vec<(&'static str, String)>,
}

impl Change {
    /// A guid that no vdev of the pool has.
    pub(super) fn new_guid(&self, cx: &TaskContext<'_>) -> u64 {
        loop {
            let guid = cx.pool.random.lock().next_u64() | 1;
            if self.tree.find(guid).is_none() {
                return guid;
            }
        }
    }

    pub(super) fn take_out(&mut self, leaf: u64) {
        self.offline.remove(&leaf);
        self.gone.extend(shape::take_out(&mut self.tree, leaf));
    }

    /// Takes the top-level vdev of this number out.
    pub(super) fn take_top(&mut self, top: usize) {
        self.gone.extend(shape::take_top(&mut self.tree, top));
    }

    /// The tree as readers and writers see it.
    fn in_use(&self) -> VdevConfig {
        marked_offline(&self.tree, &self.offline)
    }
}

/// A tree with these leaves offline.
pub(crate) fn marked_offline(tree: &VdevConfig, offline: &BTreeSet<u64>) -> VdevConfig {
    let mut tree = tree.clone();
    for guid in offline {
        if let Some(leaf) = tree.find_mut(*guid) {
            leaf.offline = true;
        }
    }
    tree
}

impl Pool {
    /// Changes the vdevs in the next txg, as `plan` says. It refuses before anything was done, or not at all.
    pub(super) fn change_vdevs<T: Send + 'static>(
        &self,
        plan: impl FnOnce(&TaskContext<'_>, &mut Change) -> Result<T> + Send + 'static,
    ) -> Result<T> {
        self.task(move |cx| {
            let mut change = Change {
                tree: cx.pool.config.lock().vdev_tree.clone(),
                offline: cx.pool.offline_for_now.lock().clone(),
                devices: BTreeMap::new(),
                labelled: BTreeSet::new(),
                lacks: Vec::new(),
                new_tops: BTreeSet::new(),
                gone: Vec::new(),
                lists: Vec::new(),
                told: Vec::new(),
            };
            let done = plan(cx, &mut change)?;
            carry_out(cx, change)?;
            Ok(done)
        })
    }
}

fn carry_out(cx: &TaskContext<'_>, mut change: Change) -> Result<()> {
    let pool = cx.pool;
    let config = PoolConfig {
        txg: 0,
        vdev_children: Some(change.tree.children.len() as u64),
        holes: shape::holes(&change.tree),
        vdev_tree: change.tree.clone(),
        ..pool.config.lock().clone()
    };
    for guid in &change.labelled {
        let Some((device, label)) = change.devices.get(guid).zip(config.for_leaf(*guid)) else {
            continue;
        };
        let written = vdev::label::write_fresh(&**device, &label.to_nvlist());
        written.map_err(|error| PoolError::Invalid(VdevError::from(error).to_string()))?;
    }
    for vdev in &change.gone {
        forget(cx, vdev)?;
    }
    let mut tree =
        std::mem::replace(&mut change.tree, VdevConfig::new(config.vdev_tree.kind, 0, 0));
    give_objects(cx, &mut tree, &change.new_tops)?;
    give_zaps(cx, &mut tree)?;
    change.tree = tree;
    let out = cx.writing.writer.out();
    out.exchange(&change.in_use(), std::mem::take(&mut change.devices))?;
    let tops = crate::open::slabs(&PoolConfig { vdev_tree: change.tree.clone(), ..config })?;
    cx.writing.space_maps.set_tops(&tops);
    let spaces = tops.iter().map(|(slabs, _)| slabs.space(&change.tree, Vec::new())).collect();
    cx.writing.writer.allocator().set_tops(spaces);
    cx.writing.writer.settle_log_vdevs();
    let now = out.tree();
    for (guid, lacks) in change.lacks {
        if let Some(place) = now.leaf_by_guid(guid) {
            now.leaves()[place].lacks.set(lacks);
        }
    }
    {
        let mut config = pool.config.lock();
        let same = config.vdev_tree == change.tree;
        config.vdev_children = Some(change.tree.children.len() as u64);
        config.holes = shape::holes(&change.tree);
        config.vdev_tree = change.tree;
        *pool.config_dirty.lock() |= !same;
    }
    *pool.offline_for_now.lock() = change.offline;
    for (list, vdevs) in &change.lists {
        list.write(cx, vdevs)?;
        if *list == List::Spares {
            pool.known_spares.lock().clone_from(vdevs);
        }
    }
    let host = pool.config.lock().hostname.clone().unwrap_or_default();
    let host = String::from_utf8_lossy(&host).into_owned();
    for (name, text) in change.told {
        let event = crate::history::event(cx.making.now_secs, cx.tx.txg(), name, &text, &host);
        crate::history::append(cx.making.mos, cx.tx, &event)?;
    }
    Ok(())
}

/// Frees the objects of a leaf or of a top-level vdev that has left.
fn forget(cx: &TaskContext<'_>, vdev: &VdevConfig) -> Result<()> {
    let (mos, tx) = (cx.making.mos, cx.tx);
    if let Some(top) = vdev.top {
        forget_maps(cx, vdev, top)?;
    }
    for vdev in vdev.walk() {
        for zap in [vdev.zap_top, vdev.zap_leaf].into_iter().flatten().filter(|zap| *zap != 0) {
            mos.zap(mos.expect(key::VDEV_ZAP_MAP)?)?.remove_int(tx, zap)?;
            mos.objset.free(tx, zap)?;
        }
    }
    for leaf in vdev.leaves() {
        if let Some(dtl) = leaf.dtl.filter(|dtl| *dtl != 0) {
            let (_, histogram) = SpaceMap::open(&mos.objset, dtl)?.phys()?;
            mos.objset.free(tx, dtl)?;
            if histogram {
                cx.pool.features.add(tx, Feature::SpacemapHistogram, -1)?;
            }
        }
    }
    Ok(())
}

/// Frees the space maps of a top-level vdev, and what is noted of its metaslabs.
fn forget_maps(cx: &TaskContext<'_>, vdev: &VdevConfig, top: TopConfig) -> Result<()> {
    let (mos, tx) = (cx.making.mos, cx.tx);
    let number = vdev.id.unwrap_or(u64::MAX) as u32;
    let count = top.asize.checked_shr(top.metaslab_shift as u32).unwrap_or(0);
    for index in 0..count {
        let object = cx.writing.space_maps.object(number, index)?;
        if object != 0 {
            let (_, histogram) = SpaceMap::open(&mos.objset, object)?.phys()?;
            mos.objset.free(tx, object)?;
            if histogram {
                cx.pool.features.add(tx, Feature::SpacemapHistogram, -1)?;
            }
        }
    }
    if top.metaslab_array != 0 {
        mos.objset.free(tx, top.metaslab_array)?;
    }
    if let Some(zap) = vdev.zap_top.filter(|zap| *zap != 0)
        && let Some(object) = mos.zap(zap)?.get_u64(key::TOP_UNFLUSHED_TXGS)?
    {
        mos.objset.free(tx, object)?;
    }
    Ok(())
}

/// Makes the objects of top-level vdevs that are new.
fn give_objects(cx: &TaskContext<'_>, tree: &mut VdevConfig, new: &BTreeSet<u64>) -> Result<()> {
    let (mos, tx) = (cx.making.mos, cx.tx);
    let map = mos.find(key::VDEV_ZAP_MAP)?.map(|map| mos.zap(map)).transpose()?;
    for top in tree.children.iter_mut().filter(|top| new.contains(&top.guid)) {
        top_objects(mos, tx, map.as_ref(), top)?;
    }
    Ok(())
}

/// Makes ZAPs for the leaves that have none, if the pool has such ZAPs.
fn give_zaps(cx: &TaskContext<'_>, tree: &mut VdevConfig) -> Result<()> {
    let (mos, tx) = (cx.making.mos, cx.tx);
    let Some(map) = mos.find(key::VDEV_ZAP_MAP)? else { return Ok(()) };
    let map = mos.zap(map)?;
    let bare = tree.leaves().filter(|leaf| leaf.zap_leaf.is_none_or(|zap| zap == 0));
    let bare: Vec<u64> = bare.map(|leaf| leaf.guid).collect();
    for guid in bare {
        let zap = mos.create_zap(tx, ObjectType::ZAP_METADATA, 0)?;
        map.add_int(tx, zap.number())?;
        if let Some(leaf) = tree.find_mut(guid) {
            leaf.zap_leaf = Some(zap.number());
        }
    }
    Ok(())
}
