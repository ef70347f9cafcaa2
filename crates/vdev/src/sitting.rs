//! Leaves that sit out: slow ones, that are read only where nobody else has the bytes.
//!
//! Place: beside the readers. The one idea: to rebuild a column takes microseconds, a disk that is ill takes seconds; so
//! it is read as if it were missing, as long as parity or another copy makes up for it. It is written as before, so
//! it lacks nothing and can come back at any time.

use crate::raidz::Columns;
use crate::sizes::Layout;
use crate::tree::{Top, Tree};
use rt::sync::atomic::Ordering;

impl Tree {
    /// Has a leaf sit out; false, and nothing done, if its vdev could not be read then without it.
    pub fn sit_out(&self, leaf: usize) -> bool {
        let Some(it) = self.leaves().get(leaf) else { return false };
        let Ok(top) = self.top(it.top) else { return false };
        let Some(layout) = &top.layout else { return false };
        let gone = |slot: &&Vec<usize>| {
            slot.iter().all(|other| {
                let it = &self.leaves()[*other];
                *other == leaf || it.online().is_none() || it.sits_out() || it.is_filling()
            })
        };
        let spared = top.slots.iter().filter(gone).count() <= layout.parity();
        if spared {
            it.sits_out.store(true, Ordering::Relaxed);
        }
        spared
    }

    /// Reads from a leaf as from any other again.
    pub fn let_in(&self, leaf: usize) {
        if let Some(leaf) = self.leaves().get(leaf) {
            leaf.sits_out.store(false, Ordering::Relaxed);
        }
    }

    /// The leaf of a child to read what was written in txg `birth` from; `spare`: none that sits out.
    pub(crate) fn source(&self, slot: &[usize], birth: u64, spare: bool) -> Option<usize> {
        let may = |leaf: &usize| {
            let leaf = &self.leaves()[*leaf];
            !(spare && leaf.sits_out()) && leaf.having(birth).is_some()
        };
        slot.iter().copied().find(may)
    }

    /// Can the block be read without the leaves that sit out? If none does, there is no need to ask.
    pub(crate) fn spares(&self, top: &Top, birth: u64, columns: &Columns) -> bool {
        let slots = || (0..columns.count()).map(|at| &top.slots[columns.column(at).disk]);
        let sits = |leaf: &usize| self.leaves()[*leaf].sits_out();
        slots().flatten().any(sits)
            && slots().filter(|slot| self.source(slot, birth, true).is_none()).count()
                <= columns.parity()
    }

    /// Can blocks of the vdev that were written in these txgs be read without the leaves that sit out?
    pub(crate) fn spares_all(&self, top: &Top, births: impl Iterator<Item = u64> + Clone) -> bool {
        let Some(Layout::Raidz(geometry)) = &top.layout else { return true };
        let has = |slot: &&Vec<usize>| {
            let of = |birth| self.source(slot, birth, true).is_none();
            births.clone().any(of)
        };
        top.slots.iter().filter(has).count() <= geometry.parity()
    }
}
