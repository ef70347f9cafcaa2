//! Room that devices have got since the pool was made: top-level vdevs grow into it.
//!
//! The one idea: a vdev has the space that its smallest leaf allows, in whole metaslabs; more of them come behind those
//! there are, and nothing that lies on disk moves. As with every change of the vdevs the new size is on disk with the
//! uberblock of its txg, whose blocks may lie there already.

use device::Device;
use format::config::{VdevConfig, VdevKind};
use vdev::Tree;

use super::change::Change;
use crate::error::Result;
use crate::open::METASLABS_MAX;
use crate::pool::Pool;

/// Bytes that a vdev could have, as large as its devices are now. `None`: one of them is not there.
fn room(tree: &Tree, vdev: &VdevConfig) -> Option<u64> {
    if vdev.kind.is_leaf() {
        let leaf = tree.leaf_by_guid(vdev.guid).map(|place| &tree.leaves()[place])?;
        return format::label::leaf_asize(leaf.device()?.measure());
    }
    let mut least = u64::MAX;
    for child in &vdev.children {
        least = least.min(room(tree, child)?);
    }
    match vdev.kind {
        VdevKind::Raidz => least.checked_mul(vdev.children.len() as u64),
        _ => Some(least).filter(|_| !vdev.children.is_empty()),
    }
}

/// Lets top-level vdevs grow, or the one with this leaf; did any?
fn grow(tree: &Tree, root: &mut VdevConfig, leaf: Option<u64>) -> bool {
    let mut grown = false;
    for vdev in &mut root.children {
        let wanted = leaf.is_none_or(|leaf| vdev.find(leaf).is_some());
        let (Some(top), Some(room)) = (vdev.top.filter(|_| wanted), room(tree, vdev)) else {
            continue;
        };
        let shift = top.metaslab_shift as u32;
        let slabs = |asize: u64| asize.checked_shr(shift).unwrap_or(0);
        // Of more nobody would open the pool.
        let most = 1u64.checked_shl(shift).and_then(|size| size.checked_mul(METASLABS_MAX));
        let room = room.min(most.unwrap_or(u64::MAX));
        if !top.removing && top.metaslab_shift != 0 && slabs(room) > slabs(top.asize) {
            vdev.top = Some(format::config::TopConfig { asize: room, ..top });
            grown = true;
        }
    }
    grown
}

impl Pool {
    /// Uses the room that devices have got: of the vdev of this leaf, or of all.
    ///
    /// # Errors
    /// Those of a change of the vdevs.
    pub fn expand(&self, leaf: Option<u64>) -> Result<()> {
        let (mut after, tree) = (self.config().vdev_tree, self.store.tree());
        let sizes = || {
            let devices = tree.leaves().iter().map(|leaf| leaf.device());
            devices.map(|device| device.map(|device| device.size())).collect::<Vec<_>>()
        };
        let before = sizes();
        if !grow(&tree, &mut after, leaf) {
            if sizes() != before {
                // The labels at the end of a device are at its new end from now on.
                *self.config_dirty.lock() = true;
                self.sync()?;
            }
            return Ok(());
        }
        self.change_vdevs(move |cx, change: &mut Change| {
            grow(&cx.pool.store.tree(), &mut change.tree, leaf);
            Ok(())
        })
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use device::sim::SimSet;
    use format::config::TopConfig;
    use rt::sync::Arc;
    use vdev::Found;

    use super::*;

    /// A raidz1 of two such disks, whose config says that it has `asize` bytes.
    fn raidz(disks: [u64; 2], asize: u64) -> (VdevConfig, Tree) {
        let mut top = VdevConfig::new(VdevKind::Raidz, 0, 10);
        top.nparity = Some(1);
        let top_config =
            TopConfig { asize, ashift: 12, metaslab_shift: 24, ..TopConfig::default() };
        top.top = Some(top_config);
        top.children =
            vec![VdevConfig::new(VdevKind::File, 0, 1), VdevConfig::new(VdevKind::File, 1, 2)];
        let mut root = VdevConfig::new(VdevKind::Root, 0, 99);
        root.children = vec![top];
        let mut found = BTreeMap::new();
        for (guid, size) in (1..).zip(disks) {
            let device = Arc::new(SimSet::new(1, size).disks().remove(0));
            found.insert(guid, Found { device, labelled: true });
        }
        let tree = Tree::open(&root, found).unwrap();
        (root, tree)
    }

    #[test]
    fn a_vdev_grows_with_its_smallest_leaf_and_by_whole_metaslabs() {
        const MIB: u64 = 1 << 20;
        let tails = 9 * MIB / 2;
        let (mut root, tree) = raidz([100 * MIB, 164 * MIB], 128 * MIB);
        assert!(grow(&tree, &mut root, None));
        assert_eq!(root.children[0].top.unwrap().asize, 2 * (100 * MIB - tails));
        assert!(!grow(&tree, &mut root, None));
        // Less than a metaslab more is nothing, and so is what another vdev has.
        let (mut root, tree) = raidz([100 * MIB, 164 * MIB], 178 * MIB);
        assert!(!grow(&tree, &mut root, None));
        let (mut root, tree) = raidz([100 * MIB, 164 * MIB], 128 * MIB);
        assert!(!grow(&tree, &mut root, Some(7)) && grow(&tree, &mut root, Some(2)));
    }

    /// Seen red: its txg ended in the middle, and so did each after it.
    #[test]
    fn a_vdev_grows_to_as_many_metaslabs_as_a_pool_is_opened_with() {
        let (mut root, tree) = raidz([1 << 45; 2], 128 << 20);
        assert!(grow(&tree, &mut root, None));
        assert_eq!(root.children[0].top.unwrap().asize >> 24, METASLABS_MAX);
        assert!(!grow(&tree, &mut root, None));
    }

    #[test]
    fn a_vdev_without_one_of_its_devices_stays_as_it_is() {
        let (mut root, _) = raidz([100 << 20, 100 << 20], 128 << 20);
        let tree = Tree::open(&root, BTreeMap::new()).unwrap();
        assert!(!grow(&tree, &mut root, None));
    }
}
