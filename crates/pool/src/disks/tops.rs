//! Top-level vdevs that come to a pool: more room, or devices for intent logs.
//!
//! The one idea: a vdev is made as `create` makes it, and comes with one txg: its devices have labels of no pool until
//! that txg's uberblock goes out, and no block is put on it before that is on stable storage. So after a cut anywhere the
//! pool is the old one, whole without it, or the new one. It takes the number of a vdev that has gone, if there is one.

use std::collections::BTreeMap;

use format::label::DEVICE_SIZE_MIN;

use super::change::Change;
use super::lists::List;
use super::{refused, shape};
use crate::create::{NewLeaf, NewTop};
use crate::error::Result;
use crate::pool::Pool;

/// What a pool gets.
#[derive(Default)]
pub struct Additions {
    /// Top-level vdevs, each with log2 of the size of its sectors.
    pub tops: Vec<(NewTop, u32)>,
    /// Spares.
    pub spares: Vec<NewLeaf>,
    /// Cache devices.
    pub caches: Vec<NewLeaf>,
}

impl Pool {
    /// Adds top-level vdevs, spares and cache devices.
    ///
    /// # Errors
    /// [`crate::PoolError::Invalid`] says what does not fit, or that a label cannot be written: then nothing was done but
    /// that devices may have labels of no pool.
    pub fn add(&self, new: Additions) -> Result<()> {
        self.change_vdevs(move |cx, change: &mut Change| {
            let leaves = new.tops.iter().flat_map(|(top, _)| &top.leaves);
            if leaves.map(|leaf| leaf.device.size()).any(|size| size < DEVICE_SIZE_MIN) {
                return refused("one or more devices is less than the minimum size (64M)");
            }
            for (top, ashift) in new.tops {
                let id = shape::next_id(&change.tree);
                let mut devices = BTreeMap::new();
                let mut random = || change.new_guid(cx);
                let vdev = top.config((id, ashift, cx.tx.txg()), &mut devices, &mut random);
                change.labelled.extend(devices.keys());
                change.devices.append(&mut devices);
                change.new_tops.insert(vdev.guid);
                shape::put_top(&mut change.tree, vdev);
            }
            List::Spares.add(cx, change, &new.spares)?;
            List::Caches.add(cx, change, &new.caches)
        })
    }
}
