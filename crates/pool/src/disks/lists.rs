//! Devices that belong to a pool and are in no tree: spares that wait, and cache devices.
//!
//! The one idea: the MOS has a list of each kind, and all that is on such a device is a label that says of which kind it
//! is. Cache devices are kept for OpenZFS, which reads through them; nothing is cached on them here.

use format::NvList;
use format::config::{AuxLabel, PoolState, VdevConfig, aux_from_nvlist, aux_to_nvlist};

use super::change::Change;
use super::{new_leaf, path_of, refused};
use crate::create::NewLeaf;
use crate::error::{PoolError, Result};
use crate::mos::{Mos, key};
use crate::pool::Pool;
use crate::sync::TaskContext;

/// Which list.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum List {
    Spares,
    Caches,
}

impl List {
    /// Its key in the MOS, and in the list that is there.
    fn key(self) -> (&'static [u8], &'static str) {
        match self {
            List::Spares => (key::SPARES, "spares"),
            List::Caches => (key::L2CACHE, "l2cache"),
        }
    }

    /// The word of it in histories.
    fn word(self) -> &'static str {
        match self {
            List::Spares => "spare",
            List::Caches => "cache",
        }
    }

    /// The label of a device that is in it.
    pub(super) fn label(self, guid: u64) -> NvList {
        let state = match self {
            List::Spares => PoolState::Spare,
            List::Caches => PoolState::L2Cache,
        };
        AuxLabel { version: format::SPA_VERSION, state, guid, unknown: Vec::new() }.to_nvlist()
    }

    pub(super) fn read(self, mos: &Mos) -> Result<Vec<VdevConfig>> {
        let (key, name) = self.key();
        let Some(object) = mos.find(key)? else { return Ok(Vec::new()) };
        let damaged = |error: format::FormatError| PoolError::Damaged {
            what: "list of spares or caches",
            detail: error.to_string(),
        };
        aux_from_nvlist(&mos.nvlist(object)?, name).map_err(damaged)
    }

    /// Puts it on disk.
    pub(super) fn write(self, cx: &TaskContext<'_>, vdevs: &[VdevConfig]) -> Result<()> {
        let (mos, tx) = (cx.making.mos, cx.tx);
        let (key, name) = self.key();
        let object = match mos.find(key)? {
            Some(object) => object,
            None => {
                let object = mos.create_nvlist(tx)?;
                mos.set(tx, key, object)?;
                object
            }
        };
        mos.set_nvlist(tx, object, &aux_to_nvlist(vdevs, name))
    }

    /// More devices are in it from now on.
    pub(super) fn add(
        self,
        cx: &TaskContext<'_>,
        change: &mut Change,
        new: &[NewLeaf],
    ) -> Result<()> {
        if new.is_empty() {
            return Ok(());
        }
        let mut vdevs = self.read(cx.making.mos)?;
        for leaf in new {
            let guid = change.new_guid(cx);
            let labelled = vdev::label::write_fresh(&*leaf.device, &self.label(guid));
            labelled
                .map_err(|error| PoolError::Invalid(vdev::VdevError::from(error).to_string()))?;
            vdevs.push(VdevConfig { id: None, ..new_leaf(leaf, guid) });
        }
        change.lists.push((self, vdevs));
        Ok(())
    }

    /// What the history says of a device that leaves it.
    pub(super) fn removal(self, pool: &Pool, vdev: &VdevConfig) -> String {
        format!("{} vdev ({}) {}", pool.name(), self.word(), path_of(vdev))
    }
}

impl Pool {
    /// Its spares, those that wait and those in use.
    ///
    /// # Errors
    /// The list cannot be read.
    pub fn spares(&self) -> Result<Vec<VdevConfig>> {
        List::Spares.read(&self.mos)
    }

    /// Reads which spares it has, for [`Pool::known_spares`]. To be asked before anybody changes them.
    ///
    /// # Errors
    /// The list cannot be read.
    pub fn know_spares(&self) -> Result<()> {
        *self.known_spares.lock() = self.spares()?;
        Ok(())
    }

    /// Its spares, for whoever must not wait for a disk: none, if they were not asked for before.
    pub fn known_spares(&self) -> Vec<VdevConfig> {
        self.known_spares.lock().clone()
    }

    /// Its cache devices.
    ///
    /// # Errors
    /// The list cannot be read.
    pub fn caches(&self) -> Result<Vec<VdevConfig>> {
        List::Caches.read(&self.mos)
    }

    /// Takes a spare that waits, or a cache device, off its list. It keeps its label.
    ///
    /// # Errors
    /// [`PoolError::Invalid`] if it is in use, or there is none of this guid.
    pub fn remove_aux(&self, guid: u64) -> Result<()> {
        self.change_vdevs(move |cx, change| {
            for list in [List::Spares, List::Caches] {
                let mut vdevs = list.read(cx.making.mos)?;
                let Some(place) = vdevs.iter().position(|vdev| vdev.guid == guid) else { continue };
                if change.tree.find(guid).is_some() {
                    return refused("Pool busy; removal may already be in progress");
                }
                let gone = vdevs.remove(place);
                change.told.push(("vdev remove", list.removal(cx.pool, &gone)));
                change.lists.push((list, vdevs));
                return Ok(());
            }
            refused("no such device in pool")
        })
    }
}
