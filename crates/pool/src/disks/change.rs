//! One change of the tree of vdevs: a task in one txg.
//!
//! The order: it is refused, or new devices get labels that belong to no pool; then the objects of vdevs that come and
//! go; then the tree is exchanged, so that what this txg still writes (its MOS, with the new config) is on the new leaves,
//! too; and with the txg's uberblock the labels say so, in OpenZFS's order (INV-3). Cut anywhere it is the old pool or
//! the new one.

use std::collections::{BTreeMap, BTreeSet};

use dmu::SpaceMap;
use format::ObjectType;
use format::config::{PoolConfig, VdevConfig};
use format::dtl::Dtl;
use format::features::Feature;
use vdev::VdevError;

use super::DevicesByGuid;
use super::shape;
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
    /// Leaves that have left.
    gone: Vec<VdevConfig>,
    /// The spares there are from now on, if that changes.
    pub(super) spares: Option<Vec<VdevConfig>>,
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
                gone: Vec::new(),
                spares: None,
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
    for leaf in &change.gone {
        forget(cx, leaf)?;
    }
    let mut tree =
        std::mem::replace(&mut change.tree, VdevConfig::new(config.vdev_tree.kind, 0, 0));
    give_zaps(cx, &mut tree)?;
    change.tree = tree;
    let out = cx.writing.writer.out();
    out.exchange(&change.in_use(), std::mem::take(&mut change.devices))?;
    for (slabs, _) in crate::open::slabs(&PoolConfig { vdev_tree: change.tree.clone(), ..config })?
    {
        cx.writing.space_maps.grow(slabs.top, slabs.ms_count);
        cx.writing.writer.allocator().grow(slabs.top, slabs.ms_count);
    }
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
        config.vdev_tree = change.tree;
        *pool.config_dirty.lock() |= !same;
    }
    *pool.offline_for_now.lock() = change.offline;
    if let Some(spares) = &change.spares {
        super::spares::write(cx, spares)?;
    }
    let host = pool.config.lock().hostname.clone().unwrap_or_default();
    let host = String::from_utf8_lossy(&host).into_owned();
    for (name, text) in change.told {
        let event = crate::history::event(cx.making.now_secs, cx.tx.txg(), name, &text, &host);
        crate::history::append(cx.making.mos, cx.tx, &event)?;
    }
    Ok(())
}

/// Frees the objects of a leaf that has left.
fn forget(cx: &TaskContext<'_>, leaf: &VdevConfig) -> Result<()> {
    let (mos, tx) = (cx.making.mos, cx.tx);
    for leaf in leaf.leaves() {
        if let Some(zap) = leaf.zap_leaf.filter(|zap| *zap != 0) {
            mos.zap(mos.expect(key::VDEV_ZAP_MAP)?)?.remove_int(tx, zap)?;
            mos.objset.free(tx, zap)?;
        }
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
