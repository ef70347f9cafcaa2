//! Can the sync come to the pointers of blocks that are to be changed?
//!
//! The one idea: the sync needs the blocks of pointers above all that has changed, and can refuse nothing any more. So
//! whoever makes a change asks for them first, and has the error if one is lost. What devices may still give is not: for
//! that the sync waits.

use super::{Object, State};
use crate::error::Result;
use crate::tree::Root;
use crate::txg::Tx;

impl Object {
    /// Can the sync find the pointer to block `block`? It is read under `writer`, like the block itself where a part of it is
    /// changed.
    pub(super) fn is_within_reach(&self, tx: &Tx<'_>, block: u64) -> Result<()> {
        let look = |state: &State| {
            let dnode = state.synced.as_ref().filter(|dnode| dnode.core().levels > 1)?;
            let shift = dnode.pointers_shift();
            let first = block >> shift << shift;
            let beside = first..=first | ((1 << shift) - 1);
            // Who has changed a block beside it in this txg has asked for the same.
            let last = state.changes.back().filter(|changes| changes.txg == tx.txg());
            let asked = last.is_some_and(|c| c.records.range(beside).next().is_some());
            (!asked).then(|| Root::of(self.number, dnode))
        };
        self.reaches(look, |root| root.pointer(&self.store, 0, block).map(drop))
    }

    /// Can the sync find the pointers to all blocks from `first` to `end`, exclusive, that there are?
    pub(super) fn are_within_reach(&self, first: u64, end: u64) -> Result<()> {
        let look = |state: &State| {
            let dnode = state.synced.as_ref().filter(|dnode| dnode.core().levels > 1)?;
            Some(Root::of(self.number, dnode))
        };
        self.reaches(look, |root| root.tail(&self.store, first, end, u64::MAX).map(drop))
    }

    /// Asks the tree that `look` finds, if it finds one.
    fn reaches(
        &self,
        look: impl Fn(&State) -> Option<Root>,
        ask: impl Fn(&Root) -> Result<()>,
    ) -> Result<()> {
        loop {
            let (root, version) = {
                let state = self.state.lock();
                let Some(root) = look(&state) else {
                    return Ok(());
                };
                (root, state.version)
            };
            match ask(&root) {
                // Something may have been freed and reused while it was read.
                Err(_) if self.version() != version => {}
                Err(error) if error.may_pass() => return Ok(()),
                asked => return asked,
            }
        }
    }
}
