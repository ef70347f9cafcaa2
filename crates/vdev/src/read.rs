//! Reading blocks: the data columns straight into the caller's buffer, the rest only when needed.
//!
//! Place: [`Tree`]'s readers, called by `store` and `verify`.
//! The one idea: data columns are consecutive pieces of the block, so each leaf's read lands where
//! the bytes belong and nothing is copied. Three steps, each only if the one before failed:
//! 1. read the data columns, check;
//! 2. leaves known to be missing: read as many parity columns, rebuild in place, check;
//! 3. somebody lies: [`crate::rebuild`] reads everything and tries every combination.
//!
//! Steps 1 and 2 allocate nothing per block (parity goes to the caller's [`ReadScratch`]).

use crate::error::{Result, VdevError};
use crate::raidz::{Columns, PARITY_MAX};
use crate::rebuild::rebuild;
use crate::sizes::Layout;
use crate::together::Want;
use crate::tree::{Top, Tree};
use device::DeviceError;
use format::label::DATA_AT;
use rt::buf::Buf;
use rt::sync::atomic::Ordering;
use std::ops::Range;

/// Decides whether the bytes of a block are right: its checksum.
pub type Check<'a> = &'a mut dyn FnMut(&[u8]) -> bool;

/// What was wrong while a block was read, although its bytes were found.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ReadReport {
    /// Pieces that could not be read or held wrong bytes; empty if all was well.
    pub faults: Vec<Fault>,
    /// Were bytes rebuilt from parity, or taken from another copy than the first?
    pub degraded: bool,
}

/// A piece of a block that a leaf did not give rightly.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Fault {
    /// The leaf, by its place in [`Tree::leaves`].
    pub leaf: usize,
    /// Where the piece lies in the leaf's allocatable space, in bytes.
    pub offset: u64,
    /// Its size in bytes.
    pub size: u64,
    /// What was wrong.
    pub kind: FaultKind,
}

/// What was wrong with a piece of a block.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum FaultKind {
    /// The device reported an error.
    Read(DeviceError),
    /// The bytes are not those that were written.
    Checksum,
}

/// Memory that readers use again for every block: one for each thread that reads.
#[derive(Default)]
pub struct ReadScratch {
    parity: Buf,
}

impl ReadScratch {
    /// At least `size` bytes for parity, with whatever they held before.
    pub(crate) fn parity(&mut self, size: usize) -> &mut [u8] {
        if self.parity.len() < size {
            self.parity = Buf::zeroed(size.next_power_of_two());
        }
        &mut self.parity[..size]
    }
}

impl Tree {
    /// Reads the block of `buf.len()` bytes (its physical size) at `offset` of the vdev, until
    /// `check` says that the bytes are right. Leaves that lack what was written in txg `birth` are asked
    /// when all else failed.
    ///
    /// # Errors
    /// [`VdevError::Lost`] if no combination of copies or columns is right; `buf` then holds
    /// anything. [`VdevError::BadAddress`], [`VdevError::NoSuchTop`], [`VdevError::Unsupported`]
    /// if no block can be there.
    pub fn read(
        &self,
        top: u32,
        offset: u64,
        birth: u64,
        buf: &mut [u8],
        check: Check<'_>,
    ) -> Result<ReadReport> {
        self.read_with(top, offset, birth, buf, &mut ReadScratch::default(), check)
    }

    /// As [`Tree::read`], with memory that is used again.
    pub fn read_with(
        &self,
        top: u32,
        offset: u64,
        birth: u64,
        buf: &mut [u8],
        scratch: &mut ReadScratch,
        check: Check<'_>,
    ) -> Result<ReadReport> {
        if self.locate(top, offset, buf.len()).is_err() && self.is_mapped(top) {
            return self.read_indirect(top, offset, birth, buf, scratch, check);
        }
        let mut report = ReadReport::default();
        let found = self.find(top, (offset, birth), buf, scratch, check, &mut report);
        self.count(&report);
        if let (Err(VdevError::Lost { .. }), Ok(top)) = (&found, self.top(top)) {
            top.lost.fetch_add(1, Ordering::Relaxed);
        }
        found.map(|()| report)
    }

    /// As [`Tree::read_with`], without counting anything. The report tells of faults of a lost block, too.
    pub(crate) fn find(
        &self,
        top: u32,
        (offset, birth): (u64, u64),
        buf: &mut [u8],
        scratch: &mut ReadScratch,
        check: Check<'_>,
        report: &mut ReadReport,
    ) -> Result<()> {
        let (vdev, layout) = self.locate(top, offset, buf.len())?;
        match layout {
            Layout::Plain { .. } => self.read_copies(vdev, (offset, birth), buf, check, report),
            Layout::Raidz(geometry) => {
                let columns = geometry.columns(offset, buf.len() as u64);
                self.read_columns(vdev, (offset, birth), &columns, buf, scratch, check, report)
            }
        }
    }

    /// Reads a leaf or a mirror: one copy after the other until one is right.
    fn read_copies(
        &self,
        top: &Top,
        (offset, birth): (u64, u64),
        buf: &mut [u8],
        check: Check<'_>,
        report: &mut ReadReport,
    ) -> Result<()> {
        let slot = top.slots.first().map(Vec::as_slice).unwrap_or_default();
        let (mut missing, mut unreadable) = (0, 0);
        for (place, leaf) in copies_in_order(self, slot, offset, birth).enumerate() {
            let Some(device) = self.leaves()[leaf].device() else {
                missing += 1;
                continue;
            };
            let size = buf.len() as u64;
            let kind = match device.read_at(DATA_AT + offset, buf) {
                Ok(()) if check(buf) => {
                    report.degraded = place > 0;
                    return Ok(());
                }
                Ok(()) => FaultKind::Checksum,
                Err(error) => {
                    unreadable += 1;
                    FaultKind::Read(error)
                }
            };
            if self.is_trusted(leaf, birth) {
                report.faults.push(Fault { leaf, offset, size, kind });
            }
        }
        Err(VdevError::Lost {
            top: top.id(),
            offset,
            size: buf.len() as u64,
            pieces: slot.len(),
            missing,
            unreadable,
            tried: (slot.len() - missing - unreadable) as u64,
        })
    }

    /// Reads a raidz block: steps 1 and 2 of the head of this file.
    #[allow(clippy::too_many_arguments)]
    fn read_columns(
        &self,
        top: &Top,
        (offset, birth): (u64, u64),
        columns: &Columns,
        buf: &mut [u8],
        scratch: &mut ReadScratch,
        check: Check<'_>,
        report: &mut ReadReport,
    ) -> Result<()> {
        let mut absent = Absent::default();
        let spare = self.spares(top, birth, columns);
        if top.queued {
            self.read_data_together(top, (birth, spare), columns, buf, report, &mut absent);
        } else {
            for index in 0..columns.data_count() {
                let range = clip(columns.data_range(index), buf.len());
                let column = columns.data_column(index);
                let (slot, at) = (&top.slots[column.disk], (column.offset, birth));
                if !self.read_slot(slot, at, &mut buf[range], report, spare) {
                    absent.push(index);
                }
            }
        }
        let complete = absent.count == 0
            || self.rebuild_absent(top, birth, columns, &absent, buf, scratch, report);
        if complete && check(buf) {
            report.degraded |= absent.count > 0;
            return Ok(());
        }
        // It reads all of them again.
        report.faults.clear();
        let first = buf.to_vec();
        self.search(top, (offset, birth), columns, buf, check, report)?;
        if report.faults.is_empty() {
            self.blame_first(top, birth, columns, (&first, buf), report);
        }
        Ok(())
    }

    /// Who lied at first, and not when he was asked again.
    fn blame_first(
        &self,
        top: &Top,
        birth: u64,
        columns: &Columns,
        (first, truth): (&[u8], &[u8]),
        report: &mut ReadReport,
    ) {
        for index in 0..columns.data_count() {
            let range = clip(columns.data_range(index), truth.len());
            let (column, size) = (columns.data_column(index), range.len() as u64);
            let mut slot = top.slots[column.disk].iter().copied();
            let leaf = slot.find(|leaf| self.is_trusted(*leaf, birth));
            if let (Some(leaf), true) = (leaf, first[range.clone()] != truth[range]) {
                let (offset, kind) = (column.offset, FaultKind::Checksum);
                report.faults.push(Fault { leaf, offset, size, kind });
            }
        }
    }

    /// Reads the data columns from all disks at once.
    fn read_data_together(
        &self,
        top: &Top,
        (birth, spare): (u64, bool),
        columns: &Columns,
        buf: &mut [u8],
        report: &mut ReadReport,
        absent: &mut Absent,
    ) {
        let mut wants = Vec::with_capacity(columns.data_count());
        let mut asked = Vec::with_capacity(columns.data_count());
        let size = buf.len();
        let mut rest = &mut *buf;
        for index in 0..columns.data_count() {
            let range = clip(columns.data_range(index), size);
            let (part, after) = rest.split_at_mut(range.len());
            rest = after;
            let column = columns.data_column(index);
            let slot = &top.slots[column.disk];
            let leaf = self.source(slot, birth, spare);
            asked.push(leaf);
            if let Some(leaf) = leaf {
                wants.push(Want { leaf, offset: column.offset, parts: vec![(0, part)] });
            }
        }
        let mut results = self.read_together(&mut wants).into_iter();
        drop(wants);
        for (index, leaf) in asked.into_iter().enumerate() {
            let range = clip(columns.data_range(index), size);
            let column = columns.data_column(index);
            let there = leaf.is_some_and(|leaf| match results.next().flatten() {
                Some(Ok(())) => true,
                Some(Err(error)) => {
                    let (size, kind) = (range.len() as u64, FaultKind::Read(error));
                    report.faults.push(Fault { leaf, offset: column.offset, size, kind });
                    let slot = &top.slots[column.disk];
                    let after = slot.iter().position(|other| *other == leaf).map_or(0, |i| i + 1);
                    let at = (column.offset, birth);
                    self.read_slot(&slot[after..], at, &mut buf[range], report, spare)
                }
                None => false,
            });
            if !there {
                absent.push(index);
            }
        }
    }

    /// Reads a piece from the first leaf of the slot that gives it; `spare`: not from one that sits out.
    fn read_slot(
        &self,
        slot: &[usize],
        (offset, birth): (u64, u64),
        buf: &mut [u8],
        report: &mut ReadReport,
        spare: bool,
    ) -> bool {
        for leaf in slot.iter().copied() {
            if spare && self.leaves()[leaf].sits_out() {
                continue;
            }
            let Some(device) = self.leaves()[leaf].having(birth) else { continue };
            match device.read_at(DATA_AT + offset, buf) {
                Ok(()) => return true,
                Err(error) => {
                    let (size, kind) = (buf.len() as u64, FaultKind::Read(error));
                    report.faults.push(Fault { leaf, offset, size, kind });
                }
            }
        }
        false
    }

    /// Puts the absent data columns into `buf` by means of as many parity columns.
    #[allow(clippy::too_many_arguments)]
    pub(crate) fn rebuild_absent(
        &self,
        top: &Top,
        birth: u64,
        columns: &Columns,
        absent: &Absent,
        buf: &mut [u8],
        scratch: &mut ReadScratch,
        report: &mut ReadReport,
    ) -> bool {
        let slot = |index: usize| &top.slots[columns.column(index).disk];
        // Those that sit out come last.
        let mut order: [usize; PARITY_MAX] = std::array::from_fn(|index| index);
        let order = &mut order[..columns.parity()];
        order.sort_by_key(|index| self.source(slot(*index), birth, true).is_none());
        rebuild_from(columns, absent, buf, scratch, order, |index, to| {
            let at = (columns.column(index).offset, birth);
            self.read_slot(slot(index), at, to, report, false)
        })
    }

    /// Should the leaf have what was written in txg `birth`, so that wrong bytes are a fault of it?
    pub(crate) fn is_trusted(&self, leaf: usize, birth: u64) -> bool {
        let leaf = &self.leaves()[leaf];
        leaf.having(birth).is_some() && !leaf.is_filling()
    }

    /// Adds what a report says to the leaves' counters.
    pub(crate) fn count(&self, report: &ReadReport) {
        for fault in &report.faults {
            let leaf = &self.leaves()[fault.leaf];
            match fault.kind {
                FaultKind::Read(_) => leaf.errors.add_read(),
                FaultKind::Checksum => leaf.errors.add_checksum(),
            }
        }
    }
}

/// Puts the absent data columns into `buf` by means of as many parity columns. Those are asked for in this order;
/// `from` says whether it gave one.
pub(crate) fn rebuild_from(
    columns: &Columns,
    absent: &Absent,
    buf: &mut [u8],
    scratch: &mut ReadScratch,
    order: &[usize],
    mut from: impl FnMut(usize, &mut [u8]) -> bool,
) -> bool {
    let Some(absent) = absent.list() else { return false };
    let size = columns.parity_size();
    let mut rooms: [Option<&mut [u8]>; PARITY_MAX] = Default::default();
    let parity = scratch.parity(columns.parity() * size);
    for (room, bytes) in rooms.iter_mut().zip(parity.chunks_exact_mut(size)) {
        *room = Some(bytes);
    }
    let (mut chosen, mut have) = ([None; PARITY_MAX], 0);
    for index in order.iter().copied() {
        let Some(room) = rooms[index].take_if(|_| have < absent.len()) else { break };
        if from(index, room) {
            chosen[index] = Some(&*room);
            have += 1;
        }
    }
    have == absent.len() && rebuild(columns, buf, &chosen[..columns.parity()], absent)
}

/// Data columns that could not be read, as long as parity could make up for them.
#[derive(Default)]
pub(crate) struct Absent {
    index: [usize; PARITY_MAX],
    pub(crate) count: usize,
}

impl Absent {
    pub(crate) fn push(&mut self, index: usize) {
        if let Some(place) = self.index.get_mut(self.count) {
            *place = index;
        }
        self.count += 1;
    }

    /// `None` if there are too many.
    fn list(&self) -> Option<&[usize]> {
        self.index.get(..self.count)
    }
}

/// The part of a column that lies within the block: the last sector may be padding in part.
pub(crate) fn clip(range: Range<usize>, size: usize) -> Range<usize> {
    range.start.min(size)..range.end.min(size)
}

/// The leaves of a mirror in the order in which they are asked: those that are online first, those that sit out
/// after them, beginning with another one for every MiB, so that a long read keeps all of them busy.
fn copies_in_order<'a>(
    tree: &'a Tree,
    slot: &'a [usize],
    offset: u64,
    birth: u64,
) -> impl Iterator<Item = usize> + 'a {
    let start = (offset >> 20) as usize % slot.len().max(1);
    let turned = move || slot[start..].iter().chain(&slot[..start]).copied();
    let rank = move |leaf: &usize| match tree.is_trusted(*leaf, birth) {
        true => usize::from(tree.leaves()[*leaf].sits_out()),
        false => 2,
    };
    (0..3).flat_map(move |wanted| turned().filter(move |leaf| rank(leaf) == wanted))
}
