//! Reading what no checksum protects: data whose pointer says `checksum=off`.
//!
//! Place: [`Tree`]'s reader for such blocks; all others go through [`crate::read`].
//! The one idea: where nothing can tell truth from rubbish, only leaves count that must have every
//! block. A leaf whose labels are lost, that is retired, being filled or lacks the block's txg may hold anything: it
//! is as good as missing, and parity or another copy makes up for it, or the block is lost.

use crate::error::{Result, VdevError};
use crate::examine::Examined;
use crate::raidz::{Columns, PARITY_MAX};
use crate::read::{Fault, FaultKind, ReadReport, ReadScratch, clip};
use crate::rebuild::{generate, rebuild};
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
        let found = self.find_unverified((vdev, layout), (offset, birth), buf, &mut report);
        self.count(&report);
        if found.is_err() {
            vdev.lost.fetch_add(1, Ordering::Relaxed);
        }
        found.map(|()| report)
    }

    /// As [`Tree::examine`], of such a block: what the leaves that must have it give is the truth, and the others are
    /// compared with that. Nothing is counted.
    ///
    /// # Errors
    /// If no block can be at that address. A lost block is not an error but a finding.
    pub fn examine_unverified(
        &self,
        top: u32,
        (offset, birth): (u64, u64),
        buf: &mut [u8],
        scratch: &mut ReadScratch,
    ) -> Result<Examined> {
        if self.is_mapped(top) {
            return self.examine_again(top, (offset, birth), buf, scratch, &mut |_| true);
        }
        let (vdev, layout) = self.locate(top, offset, buf.len())?;
        let (mut examined, mut report) = (Examined::default(), ReadReport::default());
        let found = self.find_unverified((vdev, layout), (offset, birth), buf, &mut report);
        match (found, layout) {
            (Err(error), _) => {
                examined.faults = report.faults;
                examined.lost = Some(error);
            }
            (Ok(()), Layout::Plain { .. }) => {
                self.compare_copies(vdev, (offset, birth), buf, scratch, &mut examined);
            }
            (Ok(()), Layout::Raidz(geometry)) => {
                let columns = geometry.columns(offset, buf.len() as u64);
                let due = scratch.parity(columns.parity() * columns.parity_size());
                generate(&columns, buf, due);
                self.compare_columns(vdev, birth, &columns, buf, Some(due), &mut examined);
            }
        }
        Ok(examined)
    }

    fn find_unverified(
        &self,
        (vdev, layout): (&Top, Layout),
        (offset, birth): (u64, u64),
        buf: &mut [u8],
        report: &mut ReadReport,
    ) -> Result<()> {
        let mut tally = Tally::default();
        let found = match layout {
            Layout::Plain { .. } => {
                let slot = vdev.slots.first().map(Vec::as_slice).unwrap_or_default();
                self.read_trusted(slot, (offset, birth), buf, report, &mut tally)
            }
            Layout::Raidz(geometry) => {
                let columns = geometry.columns(offset, buf.len() as u64);
                self.columns_unverified(vdev, birth, &columns, buf, report, &mut tally)
            }
        };
        report.degraded = tally.missing + tally.unreadable > 0;
        if found {
            return Ok(());
        }
        let Tally { pieces, missing, unreadable } = tally;
        let (top, size) = (vdev.id(), buf.len() as u64);
        Err(VdevError::Lost { top, offset, size, pieces, missing, unreadable, tried: 0 })
    }

    /// Compares all copies with the truth.
    fn compare_copies(
        &self,
        top: &Top,
        (offset, birth): (u64, u64),
        truth: &[u8],
        scratch: &mut ReadScratch,
        examined: &mut Examined,
    ) {
        for leaf in top.slots.iter().flatten().copied() {
            let Some(device) = self.leaves()[leaf].online() else {
                examined.missing += 1;
                continue;
            };
            let copy = scratch.parity(truth.len());
            let kind = match device.read_at(DATA_AT + offset, copy) {
                Ok(()) if *copy == *truth => continue,
                Ok(()) => FaultKind::Checksum,
                Err(error) => FaultKind::Read(error),
            };
            let size = truth.len() as u64;
            self.judge(examined, birth, Fault { leaf, offset, size, kind });
        }
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
