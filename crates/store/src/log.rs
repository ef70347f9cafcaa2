//! Blocks of intent logs: onto the leaves at once, and stable when the call returns.
//!
//! The one idea: a log block is one write and one flush of each leaf that holds a part of it, and of no other.

use format::{BlkPtr, Dva};

use vdev::VdevError;

use crate::error::{Result, StoreError};
use crate::write::Writer;

impl Writer {
    /// Takes room for a log block of `psize` bytes. [`crate::Allocator::log_born`] or
    /// [`crate::Allocator::log_give_back`] has to follow.
    ///
    /// # Errors
    /// [`crate::StoreError::NoSpace`].
    pub fn log_take(&self, psize: u64) -> Result<Dva> {
        self.allocator().log_take(psize, &|top, psize| self.store().asize(top, psize))
    }

    /// Writes log blocks (the part of each that is used, where the vdev can do with that) and waits until they are
    /// on stable storage. A log vdev that does not take them gets no more.
    ///
    /// # Errors
    /// More leaves failed than redundancy covers. Nobody waits for them here: a txg makes the same stable, elsewhere or
    /// when they are back.
    pub fn write_log(&self, blocks: &[(BlkPtr, &[u8])]) -> Result<()> {
        let written = self.put_log(blocks);
        if let Err(StoreError::Vdev(error)) = &written
            && let VdevError::WriteFailed { top, .. } | VdevError::FlushFailed { top, .. } = error
            && self.out().tree().top(*top).is_ok_and(vdev::Top::is_log)
        {
            self.allocator().set_log(*top, false);
        }
        written
    }

    fn put_log(&self, blocks: &[(BlkPtr, &[u8])]) -> Result<()> {
        let mut scratch = vdev::WriteScratch::default();
        let placed: Vec<(u32, u64, &[u8])> = blocks
            .iter()
            .filter_map(|(bp, data)| Some((bp.dvas().next()?, *data)))
            .map(|(dva, data)| (dva.vdev, dva.offset, data))
            .collect();
        let before = self.out().flush_failures();
        let mut rest = placed.as_slice();
        while let Some((top, ..)) = rest.first() {
            let count = rest.iter().take_while(|(other, ..)| other == top).count();
            let (now, later) = rest.split_at(count);
            let run: Vec<(u64, &[u8])> = now.iter().map(|(_, at, data)| (*at, *data)).collect();
            self.out().write_urgent(*top, &run, &mut scratch)?;
            rest = later;
        }
        let places: Vec<_> = placed.iter().map(|(top, at, data)| (*top, *at, data.len())).collect();
        self.out().flush_blocks(&places, &before)?;
        Ok(())
    }

    /// Blocks of logs go to the log vdevs of which enough leaves are there, and to no other.
    pub fn settle_log_vdevs(&self) {
        let tree = self.out().tree();
        for top in tree.tops().iter().filter(|top| top.is_log()) {
            self.allocator().set_log(top.id(), tree.is_complete(top.id()));
        }
    }

    /// May less than the whole of a block be written there, from its start on?
    pub fn writes_parts(&self, dva: Dva) -> bool {
        let tree = self.out().tree();
        let top = tree.top(dva.vdev).ok();
        let layout = top.and_then(|top| top.layout);
        matches!(layout, Some(vdev::sizes::Layout::Plain { .. }))
    }

    /// The least that a block takes, in bytes.
    pub fn granule(&self) -> u64 {
        self.min_alloc()
    }
}
