//! An object that nobody finds any more and that is freed in several txgs.
//!
//! The one idea: from the change that dooms it on, only the sync touches the object, so every portion
//! starts from what is on disk and nothing newer can be in its way. On disk it stays what it was, with
//! fewer and fewer blocks at its end, until its dnode goes with the last of them.

use rt::sync::Arc;

use super::{Object, State};
use crate::error::Result;
use crate::tree::{Root, Tail};
use crate::txg::Tx;

/// What is left to be freed of a dying object.
pub(crate) enum Left {
    /// At and after this block about as many as were asked for.
    More(Tail),
    /// So many blocks, indirect ones included: the object can go.
    All(u64),
}

impl Object {
    /// The object is gone for all who look for it; its header as of now stays on disk until
    /// [`Object::end`]. What the txg has written into it is dropped.
    pub(crate) fn doom(self: &Arc<Self>, tx: &Tx<'_>) -> Result<()> {
        let _writer = self.writer.lock();
        let mut state = self.state.lock();
        if state.newest.is_none() {
            return Err(self.gone());
        }
        self.touch(&mut state, tx).records.clear();
        state.dying = state.newest.take();
        Ok(())
    }

    /// Dooms within the sync of `tx` an object that was doomed in an earlier life of the pool, or is
    /// already; `false`: a later txg has changed it, which only a damaged pool leads to.
    pub(crate) fn doom_at_sync(&self, tx: &Tx<'_>) -> bool {
        let mut state = self.state.lock();
        let later = state.changes.back().is_some_and(|changes| changes.txg > tx.txg());
        if later || (state.newest.is_none() && state.dying.is_none()) {
            return false;
        }
        if state.dying.is_none() {
            state.dying = state.newest.take();
        }
        true
    }

    /// What is left of a dying object, about `max` blocks of it. Only the sync asks.
    pub(crate) fn left(&self, max: u64) -> Result<Left> {
        let (root, end) = {
            let mut state = self.state.lock();
            let State { dying: Some(head), synced, .. } = &mut *state else {
                return Err(self.gone());
            };
            // Of another shape than what is on disk are only objects of one block, or of none.
            let same = |synced: &&format::DnodePhys| synced.block_size() == head.dnode.block_size();
            let Some(synced) = synced.as_deref().filter(same) else { return Ok(Left::All(1)) };
            let last = head.dnode.max_block().min(synced.max_block());
            head.dnode.core_mut().max_block.set(last);
            (Root::of(self.number, synced), synced.max_block().saturating_add(1))
        };
        let tail = root.tail(&self.store, 0, end, max)?;
        Ok(if tail.first == 0 { Left::All(tail.blocks) } else { Left::More(tail) })
    }

    /// Frees the blocks from `first` on of a dying object, within the sync of `tx`.
    pub(crate) fn shorten(self: &Arc<Self>, tx: &Tx<'_>, first: u64) -> Result<()> {
        let mut state = self.state.lock();
        let Some(head) = &mut state.dying else { return Err(self.gone()) };
        let count = u64::MAX - first;
        head.dnode.core_mut().max_block.set(first.saturating_sub(1));
        self.touch(&mut state, tx).freed.add(first, count);
        Ok(())
    }

    /// Frees a dying object with all that is left of it, within the sync of `tx`.
    pub(crate) fn end(self: &Arc<Self>, tx: &Tx<'_>) -> Result<()> {
        let mut state = self.state.lock();
        if state.dying.is_none() {
            return Err(self.gone());
        }
        self.touch(&mut state, tx);
        state.dying = None;
        Ok(())
    }

    /// The last blocks on disk among `[first, end)`: about `max` of them, for who frees in portions.
    pub fn tail(&self, first: u64, end: u64, max: u64) -> Result<Tail> {
        let root = match &self.state.lock().synced {
            Some(dnode) => Root::of(self.number, dnode),
            None => return Ok(Tail { first, blocks: 0 }),
        };
        root.tail(&self.store, first, end, max)
    }
}
