//! Hot spares: devices that wait for a leaf to fail, and stand in for it.
//!
//! Place: beside the rest of [`super`]; who decides that a leaf has failed is above. The one idea: a spare that waits is
//! in a list of the MOS and in no tree, so nothing is written to it but its label. One that is in use is in both: beside
//! the leaf it stands in for, below a vdev of kind `spare`, with all that a leaf has. It stands back to the list, or
//! keeps its place and leaves the list.

use format::NvList;
use format::config::{AuxLabel, PoolState, VdevConfig, aux_from_nvlist, aux_to_nvlist};
use rt::sync::Arc;

use super::change::Change;
use super::{Role, leaf_of, need, new_leaf, path_of, put_beside, refused, shape};
use crate::create::NewLeaf;
use crate::error::{PoolError, Result};
use crate::mos::{Mos, key};
use crate::pool::Pool;
use crate::sync::TaskContext;
use device::WriteDevice;

/// What is wrong with a leaf that a spare stands in for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Trouble {
    /// It is away, slow, or somebody wants it: the pool sees that by itself, or need not know.
    Unnoted,
    /// It failed too often: it is not used any more.
    Faulted,
    /// It gave wrong bytes too often: it is used where nothing else is.
    Degraded,
}

/// The label of a spare that waits.
pub(super) fn label(guid: u64) -> NvList {
    let state = PoolState::Spare;
    AuxLabel { version: format::SPA_VERSION, state, guid, unknown: Vec::new() }.to_nvlist()
}

fn list(mos: &Mos) -> Result<Vec<VdevConfig>> {
    let Some(object) = mos.find(key::SPARES)? else { return Ok(Vec::new()) };
    let damaged = |error: format::FormatError| PoolError::Damaged {
        what: "list of spares",
        detail: error.to_string(),
    };
    aux_from_nvlist(&mos.nvlist(object)?, "spares").map_err(damaged)
}

/// Puts the list on disk.
pub(super) fn write(cx: &TaskContext<'_>, spares: &[VdevConfig]) -> Result<()> {
    let (mos, tx) = (cx.making.mos, cx.tx);
    let object = match mos.find(key::SPARES)? {
        Some(object) => object,
        None => {
            let object = mos.create_nvlist(tx)?;
            mos.set(tx, key::SPARES, object)?;
            object
        }
    };
    mos.set_nvlist(tx, object, &aux_to_nvlist(spares, "spares"))
}

/// What the history says of a spare that leaves the list.
fn removal(pool: &Pool, spare: &VdevConfig) -> String {
    format!("{} vdev (spare) {}", pool.name(), path_of(spare))
}

/// The spare of this guid keeps its place, and is a spare no more.
pub(super) fn keep_for_good(cx: &TaskContext<'_>, change: &mut Change, guid: u64) -> Result<()> {
    let mut spares = list(cx.making.mos)?;
    spares.retain(|spare| spare.guid != guid);
    change.spares = Some(spares);
    if let Some(leaf) = change.tree.find_mut(guid) {
        leaf.is_spare = false;
        change.told.push(("vdev remove", removal(cx.pool, leaf)));
    }
    Ok(())
}

impl Pool {
    /// Its spares, those that wait and those in use.
    ///
    /// # Errors
    /// The list cannot be read.
    pub fn spares(&self) -> Result<Vec<VdevConfig>> {
        list(&self.mos)
    }

    /// Adds spares.
    ///
    /// # Errors
    /// Their labels cannot be written.
    pub fn add_spares(&self, new: Vec<NewLeaf>) -> Result<()> {
        self.change_vdevs(move |cx, change| {
            let mut spares = list(cx.making.mos)?;
            for leaf in &new {
                let guid = change.new_guid(cx);
                let labelled = vdev::label::write_fresh(&*leaf.device, &label(guid));
                labelled.map_err(|error| {
                    PoolError::Invalid(vdev::VdevError::from(error).to_string())
                })?;
                spares.push(VdevConfig { id: None, ..new_leaf(leaf, guid) });
            }
            change.spares = Some(spares);
            Ok(())
        })
    }

    /// Takes a spare that waits off the list. It keeps its label.
    ///
    /// # Errors
    /// [`PoolError::Invalid`] if it is in use, or there is none of this guid.
    pub fn remove_spare(&self, guid: u64) -> Result<()> {
        self.change_vdevs(move |cx, change| {
            let mut spares = list(cx.making.mos)?;
            let place = spares.iter().position(|spare| spare.guid == guid);
            let Some(place) = place else { return refused("no such device in pool") };
            if change.tree.find(guid).is_some() {
                return refused("Pool busy; removal may already be in progress");
            }
            let gone = spares.remove(place);
            change.spares = Some(spares);
            change.told.push(("vdev remove", removal(cx.pool, &gone)));
            Ok(())
        })
    }

    /// Has a spare of the pool stand in for the leaf `old`. `device` is the spare's; `trouble` is noted of the leaf,
    /// as far as others have what it has.
    ///
    /// # Errors
    /// [`PoolError::Invalid`] says what does not fit; then nothing was done.
    pub fn engage(
        &self,
        old: u64,
        spare: u64,
        device: Arc<dyn WriteDevice>,
        trouble: Trouble,
    ) -> Result<()> {
        self.change_vdevs(move |cx, change| {
            leaf_of(&change.tree, old)?;
            let waiting = list(cx.making.mos)?.into_iter().find(|known| known.guid == spare);
            let Some(mut config) = waiting else { return refused("no such device in pool") };
            if change.tree.find(spare).is_some() {
                return refused("device is in use");
            }
            config.is_spare = true;
            put_beside(cx, change, old, (config, device), Role::Spare)?;
            let needed = need::are_needed(&cx.pool.store.tree(), &[old]);
            if let Some(leaf) = change.tree.find_mut(old) {
                leaf.unspare = false;
                leaf.faulted |= trouble == Trouble::Faulted && !needed;
                leaf.degraded |= trouble != Trouble::Unnoted && !leaf.faulted;
                if leaf.faulted && trouble == Trouble::Faulted {
                    leaf.aux_state = Some(b"err_exceeded".to_vec());
                }
            }
            Ok(())
        })
    }

    /// A leaf that was away is back for good: a spare that stands in for it goes once it has all it needs.
    ///
    /// # Errors
    /// Those of a change of the vdevs.
    pub fn is_back(&self, leaf: u64) -> Result<()> {
        self.change_vdevs(move |_, change| {
            leaf_of(&change.tree, leaf)?;
            shape::unspare(&mut change.tree, leaf);
            Ok(())
        })?;
        self.finish_replacements()
    }
}
