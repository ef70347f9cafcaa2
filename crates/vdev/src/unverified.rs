//! Reading what no checksum protects: data whose pointer says `checksum=off`.
//!
//! Place: [`Tree`]'s reader for such blocks; all others go through [`crate::read`].
//! The one idea: where nothing can tell truth from rubbish, only leaves count that must have every
//! block. A leaf whose labels are lost, that is retired, being filled or lacks the block's txg may hold anything: it
//! is as good as missing, and parity or another copy makes up for it, or the block is lost.

use crate::error::{Result, VdevError};
use crate::raidz::{Columns, PARITY_MAX};
use crate::read::{Fault, FaultKind, ReadReport, ReadScratch, clip};
use crate::rebuild::rebuild;
use crate::sizes::Layout;
use crate::tree::{Top, Tree};
use format::label::DATA_AT;
use rt::sync::atomic::Ordering;

impl Tree {
    /// Reads the block of `buf.len()` bytes (its physical size) at `offset` of the vdev, of which
    /// there is no checksum.
    ///
    /// # Errors
    /// As [`Tree::read`].
    pub fn read_unverified(
        &self,
        top: u32,
        offset: u64,
        birth: u64,
        buf: &mut [u8],
    ) -> Result<ReadReport> {
        if self.is_mapped(top) {
            let scratch = &mut ReadScratch::default();
            return self.read_indirect(top, offset, birth, buf, scratch, &mut |_| true);
        }
        let (vdev, layout) = self.locate(top, offset, buf.len())?;
        let mut report = ReadReport::default();
        let mut tally = Tally::default();
        let found = match layout {
            Layout::Plain { .. } => {
                let slot = vdev.slots.first().map(Vec::as_slice).unwrap_or_default();
                self.read_trusted(slot, (offset, birth), buf, &mut report, &mut tally)
            }
            Layout::Raidz(geometry) => {
                let columns = geometry.columns(offset, buf.len() as u64);
                self.columns_unverified(vdev, birth, &columns, buf, &mut report, &mut tally)
            }
        };
        report.degraded = tally.missing + tally.unreadable > 0;
        self.count(&report);
        if found {
            return Ok(report);
        }
        vdev.lost.fetch_add(1, Ordering::Relaxed);
        let Tally { pieces, missing, unreadable } = tally;
        let size = buf.len() as u64;
        Err(VdevError::Lost { top, offset, size, pieces, missing, unreadable, tried: 0 })
    }

    /// Reads a piece from the first leaf of the slot that must have it and gives it.
    fn read_trusted(
        &self,
        slot: &[usize],
        (offset, birth): (u64, u64),
        buf: &mut [u8],
        report: &mut ReadReport,
        tally: &mut Tally,
    ) -> bool {
        for leaf in slot.iter().copied() {
            tally.pieces += 1;
            let device = self.leaves()[leaf].device().filter(|_| self.is_trusted(leaf, birth));
            let Some(device) = device else {
                tally.missing += 1;
                continue;
            };
            match device.read_at(DATA_AT + offset, buf) {
                Ok(()) => return true,
                Err(error) => {
                    tally.unreadable += 1;
                    let (size, kind) = (buf.len() as u64, FaultKind::Read(error));
                    report.faults.push(Fault { leaf, offset, size, kind });
                }
            }
        }
        false
    }

    fn columns_unverified(
        &self,
        top: &Top,
        birth: u64,
        columns: &Columns,
        buf: &mut [u8],
        report: &mut ReadReport,
        tally: &mut Tally,
    ) -> bool {
        let mut absent = Vec::new();
        for index in 0..columns.data_count() {
            let range = clip(columns.data_range(index), buf.len());
            let column = columns.data_column(index);
            let (slot, part) = (&top.slots[column.disk], &mut buf[range]);
            if !self.read_trusted(slot, (column.offset, birth), part, report, tally) {
                absent.push(index);
            }
        }
        if absent.is_empty() {
            return true;
        }
        let size = columns.parity_size();
        let mut parity = vec![0; columns.parity() * size];
        let mut chosen = [None; PARITY_MAX];
        let mut have = 0;
        for (index, to) in parity.chunks_exact_mut(size).enumerate() {
            let column = columns.column(index);
            let slot = &top.slots[column.disk];
            if have < absent.len()
                && self.read_trusted(slot, (column.offset, birth), to, report, tally)
            {
                chosen[index] = Some(&*to);
                have += 1;
            }
        }
        have == absent.len() && rebuild(columns, buf, &chosen[..columns.parity()], &absent)
    }
}

/// What became of the pieces that were asked for.
#[derive(Default)]
struct Tally {
    pieces: usize,
    missing: usize,
    unreadable: usize,
}
