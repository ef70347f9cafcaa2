//! Reading many blocks at once: one read from each disk where their columns lie side by side.
//!
//! Place: the fast way of sequential readers; blocks that are not right go through
//! [`Tree::read_with`] one by one.
//! The one idea: in blocks that follow each other on the vdev, each disk's columns follow each
//! other too, but for parity and skip sectors. So each disk is asked once for the columns of many
//! blocks, straight into the blocks' buffers.
//!
//! Parity and skip sectors between them are read over: to a disk they cost less than another operation.
//!
//! It pays where an operation is dear: on disks. From the page cache or tmpfs an operation costs
//! 0.2 us and the bytes of a 16 KiB column 3 us, so single blocks are as fast there, and faster than
//! long runs, because a block is checked while it is still in the core's own cache. By the same
//! figures parity is passed over there, at the price of one more operation, and not read to bridge the gap.

use crate::error::{Result, VdevError};
use crate::raidz::DISKS_MAX;
use crate::read::{Absent, ReadReport, ReadScratch, clip};
use crate::sizes::Layout;
use crate::together::Want;
use crate::tree::{Top, Tree};
use device::Device;
use format::label::DATA_AT;
use std::io::IoSliceMut;

/// Bytes between two columns that are read over rather than skipped.
const BRIDGED_MAX: u64 = 256 << 10;
/// Bytes after which a read is followed by another one, so that memory stays within bounds.
const SPAN_MAX: u64 = 4 << 20;

/// One block of a run.
pub struct Piece<'a> {
    /// Offset in the vdev's allocatable space, in bytes.
    pub offset: u64,
    /// Txg in which the block was written.
    pub birth: u64,
    /// Takes the block; its length is the block's physical size.
    pub buf: &'a mut [u8],
}

/// What came of reading a run of blocks.
#[derive(Debug, Default)]
pub struct RunReport {
    /// Blocks that could not be read, by their place in the run, with the reason.
    pub lost: Vec<(usize, VdevError)>,
    /// What was wrong with the others.
    pub report: ReadReport,
}

impl Tree {
    /// Reads blocks of one vdev. `check` gets the place of a block in the run and its bytes, and
    /// may get the same block again when the first attempt was wrong.
    ///
    /// The best run is ordered by offset, without gaps, and not much larger than the cache in
    /// which its bytes wait to be checked.
    ///
    /// # Errors
    /// Only if no block can be at one of the offsets; lost blocks are in the report.
    pub fn read_run(
        &self,
        top: u32,
        pieces: &mut [Piece<'_>],
        scratch: &mut ReadScratch,
        check: &mut dyn FnMut(usize, &[u8]) -> bool,
    ) -> Result<RunReport> {
        let mut run = RunReport::default();
        let Some(first) = pieces.first() else { return Ok(run) };
        let (vdev, layout) = self.locate(top, first.offset, first.buf.len())?;
        for piece in &*pieces {
            self.locate(top, piece.offset, piece.buf.len())?;
        }
        // Disks whose bytes are in the buffers.
        let mut read = [false; DISKS_MAX];
        if vdev.queued {
            self.read_slots_together(vdev, layout, pieces, &mut read);
        } else {
            for (place, slot) in vdev.slots.iter().enumerate() {
                let trusted = slot.iter().find(|leaf| self.has_all(**leaf, pieces));
                let device = trusted.and_then(|leaf| self.leaves()[*leaf].online());
                let Some(device) = device else { continue };
                read[place] = read_slot(device, layout, place, pieces, scratch);
            }
        }
        for (index, piece) in pieces.iter_mut().enumerate() {
            let mut check = |bytes: &[u8]| check(index, bytes);
            if self.complete(vdev, layout, &read, piece, scratch, &mut run.report)
                && check(piece.buf)
            {
                continue;
            }
            match self.read_with(top, piece.offset, piece.birth, piece.buf, scratch, &mut check) {
                Ok(report) => {
                    run.report.faults.extend(report.faults);
                    run.report.degraded |= report.degraded;
                }
                Err(error) => run.lost.push((index, error)),
            }
        }
        Ok(run)
    }

    /// Reads what the blocks have on each child, from all of them at once. Says of which children
    /// everything arrived.
    fn read_slots_together<'p>(
        &self,
        top: &Top,
        layout: Layout,
        pieces: &'p mut [Piece<'_>],
        read: &mut [bool; DISKS_MAX],
    ) {
        // A leaf that lacks any of them is asked for none.
        let chosen: Vec<Option<usize>> = top
            .slots
            .iter()
            .map(|slot| slot.iter().copied().find(|leaf| self.has_all(*leaf, pieces)))
            .collect();
        let mut wants: Vec<Vec<Want<'p>>> = top.slots.iter().map(|_| Vec::new()).collect();
        let mut want = |place: usize, offset: u64, part: &'p mut [u8]| {
            let Some(leaf) = chosen[place] else { return };
            let near = |last: &Want<'_>| {
                let gap = offset.checked_sub(last.offset + last.span());
                gap.is_some_and(|gap| gap <= BRIDGED_MAX) && last.span() < SPAN_MAX
            };
            match wants[place].last_mut().filter(|last| near(last)) {
                Some(last) => last.parts.push((offset - last.offset, part)),
                None => wants[place].push(Want { leaf, offset, parts: vec![(0, part)] }),
            }
            read[place] = true;
        };
        for piece in pieces {
            let Layout::Raidz(geometry) = layout else {
                want(0, piece.offset, &mut *piece.buf);
                continue;
            };
            let size = piece.buf.len();
            let columns = geometry.columns(piece.offset, size as u64);
            let mut rest = &mut *piece.buf;
            for index in 0..columns.data_count() {
                let range = clip(columns.data_range(index), size);
                let (part, after) = rest.split_at_mut(range.len());
                rest = after;
                let column = columns.data_column(index);
                want(column.disk, column.offset, part);
            }
        }
        let places: Vec<usize> = wants
            .iter()
            .enumerate()
            .flat_map(|(place, list)| list.iter().map(move |_| place))
            .collect();
        let mut all: Vec<Want<'p>> = wants.into_iter().flatten().collect();
        for (place, result) in places.into_iter().zip(self.read_together(&mut all)) {
            read[place] &= matches!(result, Some(Ok(())));
        }
    }

    /// Must the leaf have all of the blocks?
    fn has_all(&self, leaf: usize, pieces: &[Piece<'_>]) -> bool {
        pieces.iter().all(|piece| self.is_trusted(leaf, piece.birth))
    }

    /// Rebuilds what disks that were not read have of the block; false if that cannot be.
    fn complete(
        &self,
        top: &Top,
        layout: Layout,
        read: &[bool],
        piece: &mut Piece<'_>,
        scratch: &mut ReadScratch,
        report: &mut ReadReport,
    ) -> bool {
        let Layout::Raidz(geometry) = layout else { return read[0] };
        let columns = geometry.columns(piece.offset, piece.buf.len() as u64);
        let mut absent = Absent::default();
        for index in 0..columns.data_count() {
            if !read[columns.data_column(index).disk] {
                absent.push(index);
            }
        }
        if absent.count == 0 {
            return true;
        }
        // What fails here is found again, and counted, by the long way.
        let mut own = ReadReport::default();
        let rebuilt =
            self.rebuild_absent(top, piece.birth, &columns, &absent, piece.buf, scratch, &mut own);
        report.degraded |= rebuilt;
        rebuilt && own.faults.is_empty()
    }
}

/// Reads what the blocks have on child `place` of the vdev, in as few reads as there are gaps;
/// false if one failed.
fn read_slot(
    device: &dyn Device,
    layout: Layout,
    place: usize,
    pieces: &mut [Piece<'_>],
    scratch: &mut ReadScratch,
) -> bool {
    let mut vectors = recycle(std::mem::take(&mut scratch.vectors));
    let (mut start, mut end, mut good) = (0, 0, true);
    let mut read = |start: u64, vectors: &mut Vec<IoSliceMut<'_>>| {
        good &= match &mut vectors[..] {
            [] => true,
            [one] => device.read_at(DATA_AT + start, one).is_ok(),
            many => device.read_vectored_at(DATA_AT + start, many).is_ok(),
        };
        vectors.clear();
    };
    for piece in pieces {
        let size = piece.buf.len();
        let (offset, range) = match layout {
            Layout::Plain { .. } => (piece.offset, 0..size),
            Layout::Raidz(geometry) => {
                let columns = geometry.columns(piece.offset, size as u64);
                let index = columns.on_disk(place).and_then(|i| i.checked_sub(columns.parity()));
                let Some(index) = index else { continue };
                let range = clip(columns.data_range(index), size);
                (columns.data_column(index).offset, range)
            }
        };
        if offset != end {
            read(start, &mut vectors);
            start = offset;
        }
        end = offset + range.len() as u64;
        vectors.push(IoSliceMut::new(&mut piece.buf[range]));
    }
    read(start, &mut vectors);
    scratch.vectors = recycle(vectors);
    good
}

/// The memory of a list, emptied, for slices of another lifetime.
fn recycle<'b>(mut list: Vec<IoSliceMut<'_>>) -> Vec<IoSliceMut<'b>> {
    list.clear();
    // An empty list has nothing to convert; collecting in place keeps its memory.
    list.into_iter().map(|_| IoSliceMut::new(&mut [])).collect()
}
