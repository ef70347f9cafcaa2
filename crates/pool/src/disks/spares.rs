//! Hot spares: devices that wait for a leaf to fail, and stand in for it.
//!
//! Place: beside the rest of [`super`]; who decides that a leaf has failed is above. The one idea: a spare that waits is
//! in a list of the MOS and in no tree, so nothing is written to it but its label. One that is in use is in both: beside
//! the leaf it stands in for, below a vdev of kind `spare`, with all that a leaf has. It stands back to the list, or
//! keeps its place and leaves the list.

use rt::sync::Arc;

use super::change::Change;
use super::lists::List;
use super::{Role, leaf_of, need, put_beside, refused, shape};
use crate::error::Result;
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

/// The spare of this guid keeps its place, and is a spare no more.
pub(super) fn keep_for_good(cx: &TaskContext<'_>, change: &mut Change, guid: u64) -> Result<()> {
    let mut spares = List::Spares.read(cx.making.mos)?;
    spares.retain(|spare| spare.guid != guid);
    change.lists.push((List::Spares, spares));
    if let Some(leaf) = change.tree.find_mut(guid) {
        leaf.is_spare = false;
        change.told.push(("vdev remove", List::Spares.removal(cx.pool, leaf)));
    }
    Ok(())
}

impl Pool {
    /// Has a spare of the pool stand in for the leaf `old`. `device` is the spare's; `trouble` is noted of the leaf,
    /// as far as others have what it has.
    ///
    /// # Errors
    /// [`PoolError::Invalid`](crate::PoolError::Invalid) says what does not fit; then nothing was done.
    pub fn engage(
        &self,
        old: u64,
        spare: u64,
        device: Arc<dyn WriteDevice>,
        trouble: Trouble,
    ) -> Result<()> {
        self.change_vdevs(move |cx, change| {
            leaf_of(&change.tree, old)?;
            let waiting =
                List::Spares.read(cx.making.mos)?.into_iter().find(|known| known.guid == spare);
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
