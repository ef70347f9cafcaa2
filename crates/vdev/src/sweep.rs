//! Sweeping over blocks that lie close to each other: every copy and every parity column of all of them.
//!
//! Place: the reads of scrub and resilver. What is not plainly right is left to [`crate::examine`].
//! The one idea: neighbours on the vdev are neighbours on every leaf, so each leaf is read once, in one large piece,
//! and the blocks are put together and checked in memory.

use crate::raidz::{Columns, PARITY_MAX};
use crate::read::clip;
use crate::rebuild::{generate, rebuild};
use crate::sizes::Layout;
use crate::together::Want;
use crate::tree::{Top, Tree};
use device::queue::Class;
use std::ops::Range;

/// Where a block lies on its top-level vdev.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Laid {
    /// Its offset, in bytes.
    pub offset: u64,
    /// Its physical size, in bytes.
    pub size: usize,
    /// The txg in which it was written.
    pub birth: u64,
}

/// What a sweep found of a block.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Swept {
    /// Every piece that should be there is, and is right.
    Good,
    /// As [`Swept::Good`], but these leaves lack the txg, and are there to be filled.
    Behind(Vec<usize>),
    /// Something is wrong with it.
    Doubtful,
}

/// Memory for sweeps, used again and again: one for each thread that sweeps.
#[derive(Default)]
pub struct SweepScratch {
    /// What the leaves gave.
    raw: Vec<u8>,
    /// The blocks, one after the other, where each begins, and parity.
    data: Vec<u8>,
    starts: Vec<usize>,
    parity: Vec<u8>,
    /// Bytes that leaves were asked for, since the last time that this was taken.
    read_bytes: u64,
}

impl SweepScratch {
    /// The bytes of a block of the last sweep, if they were found.
    pub fn block(&self, index: usize, size: usize) -> &[u8] {
        &self.data[self.starts[index]..][..size]
    }

    /// Bytes that leaves were asked for since the last call.
    pub fn take_read_bytes(&mut self) -> u64 {
        std::mem::take(&mut self.read_bytes)
    }
}

/// What a leaf gave: one piece that has all it holds of the blocks.
struct Reel {
    leaf: usize,
    /// Its child of the vdev.
    place: usize,
    /// Where that lies on the leaf, and where it begins in the memory for all.
    range: Range<u64>,
    start: usize,
    good: bool,
}

impl Tree {
    /// Reads blocks of one vdev, in the order of their offsets, and says of each what it is like; `check` has its
    /// number and its bytes. Nothing is counted, nothing put right. Leaves give at most what lies between their
    /// first and their last piece, so blocks far from each other had better come in sweeps of their own.
    pub fn sweep(
        &self,
        top: u32,
        blocks: &[Laid],
        scratch: &mut SweepScratch,
        check: &mut dyn FnMut(usize, &[u8]) -> bool,
    ) -> Vec<Swept> {
        let found = |block: &Laid| self.locate(top, block.offset, block.size);
        let Some(Ok((vdev, layout))) = blocks.first().map(found) else {
            return vec![Swept::Doubtful; blocks.len()];
        };
        if blocks.iter().any(|block| found(block).is_err()) {
            return vec![Swept::Doubtful; blocks.len()];
        }
        let reels = self.read_reels(vdev, layout, blocks, scratch);
        let SweepScratch { raw, data, starts, parity, .. } = scratch;
        starts.clear();
        let mut total = 0;
        for block in blocks {
            starts.push(total);
            total += block.size;
        }
        if data.len() < total {
            data.resize(total, 0);
        }
        let view = View { tree: self, top: vdev, reels: &reels, raw };
        let each = blocks.iter().zip(starts.iter()).enumerate();
        each.map(|(index, (block, start))| {
            let buf = &mut data[*start..*start + block.size];
            let check = &mut |bytes: &[u8]| check(index, bytes);
            match layout {
                Layout::Plain { .. } => view.copies(block, buf, check),
                Layout::Raidz(geometry) => {
                    let columns = geometry.columns(block.offset, block.size as u64);
                    view.columns(block, &columns, buf, parity, check)
                }
            }
        })
        .collect()
    }

    /// Bytes that some leaves hold of a block.
    pub fn bytes_on(&self, top: u32, offset: u64, size: usize, leaves: &[usize]) -> u64 {
        let Ok((vdev, layout)) = self.locate(top, offset, size) else { return 0 };
        let of = |(place, slot): (usize, &Vec<usize>)| {
            let each = match layout {
                Layout::Plain { .. } => size as u64,
                Layout::Raidz(geometry) => {
                    let columns = geometry.columns(offset, size as u64);
                    columns.on_disk(place).map_or(0, |index| columns.column(index).size as u64)
                }
            };
            each * slot.iter().filter(|leaf| leaves.contains(leaf)).count() as u64
        };
        vdev.slots.iter().enumerate().map(of).sum()
    }

    /// The leaves of a top-level vdev that can be read and written.
    pub fn online_leaves(&self, top: u32) -> Vec<usize> {
        let slots = self.top(top).map(|top| top.slots.as_slice()).unwrap_or_default();
        let online = |leaf: &usize| self.leaves()[*leaf].online().is_some();
        slots.iter().flatten().copied().filter(online).collect()
    }

    /// Is there a leaf on the vdev that is there, and lacks what was written in txg `birth`?
    pub fn is_behind(&self, top: u32, birth: u64) -> bool {
        let slots = self.top(top).map(|top| top.slots.as_slice()).unwrap_or_default();
        let behind = |leaf: &usize| {
            let leaf = &self.leaves()[*leaf];
            leaf.online().is_some() && leaf.lacks.contains(birth)
        };
        slots.iter().flatten().any(behind)
    }

    fn read_reels(
        &self,
        vdev: &Top,
        layout: Layout,
        blocks: &[Laid],
        scratch: &mut SweepScratch,
    ) -> Vec<Reel> {
        let mut reels = Vec::new();
        let mut start = 0;
        for (place, slot) in vdev.slots.iter().enumerate() {
            for leaf in slot.iter().copied() {
                let known = &self.leaves()[leaf];
                if known.online().is_none() {
                    continue;
                }
                let (mut from, mut to) = (u64::MAX, 0);
                for block in blocks.iter().filter(|block| !known.lacks.contains(block.birth)) {
                    let (offset, size) = match layout {
                        Layout::Plain { .. } => (block.offset, block.size as u64),
                        Layout::Raidz(geometry) => {
                            let columns = geometry.columns(block.offset, block.size as u64);
                            let Some(index) = columns.on_disk(place) else { continue };
                            let column = columns.column(index);
                            (column.offset, column.size as u64)
                        }
                    };
                    (from, to) = (from.min(offset), to.max(offset + size));
                }
                if from < to {
                    reels.push(Reel { leaf, place, range: from..to, start, good: false });
                    start += (to - from) as usize;
                }
            }
        }
        scratch.read_bytes += start as u64;
        if scratch.raw.len() < start {
            scratch.raw.resize(start, 0);
        }
        let mut rest = &mut scratch.raw[..start];
        let mut wants = Vec::with_capacity(reels.len());
        for reel in &reels {
            let (part, after) = rest.split_at_mut((reel.range.end - reel.range.start) as usize);
            rest = after;
            let parts = vec![(0, part)];
            wants.push(Want { leaf: reel.leaf, offset: reel.range.start, parts });
        }
        let results = self.read_together_for(Class::Scan, &mut wants);
        drop(wants);
        for (reel, result) in reels.iter_mut().zip(results) {
            reel.good = matches!(result, Some(Ok(())));
        }
        reels
    }
}

/// The blocks as the leaves gave them.
struct View<'a> {
    tree: &'a Tree,
    top: &'a Top,
    reels: &'a [Reel],
    raw: &'a [u8],
}

impl<'a> View<'a> {
    /// What the leaves of a child have of a block: the first version, if any should have one. An error: a leaf did
    /// not give it, or two differ.
    fn piece(
        &self,
        place: usize,
        (offset, size): (u64, usize),
        birth: u64,
        behind: &mut Vec<usize>,
    ) -> Result<Option<&'a [u8]>, ()> {
        let mut first = None;
        for leaf in self.top.slots[place].iter().copied() {
            let known = &self.tree.leaves()[leaf];
            if known.online().is_none() {
                continue;
            }
            if known.lacks.contains(birth) {
                behind.push(leaf);
                continue;
            }
            let of = |reel: &&Reel| (reel.leaf, reel.place) == (leaf, place) && reel.good;
            let reel = self.reels.iter().find(of).ok_or(())?;
            let at = offset.checked_sub(reel.range.start).ok_or(())? as usize;
            if offset + size as u64 > reel.range.end {
                return Err(());
            }
            let bytes = &self.raw[reel.start + at..][..size];
            match first {
                Some(other) if other != bytes => return Err(()),
                _ => first = Some(bytes),
            }
        }
        Ok(first)
    }

    fn copies(&self, block: &Laid, buf: &mut [u8], check: &mut dyn FnMut(&[u8]) -> bool) -> Swept {
        let mut behind = Vec::new();
        match self.piece(0, (block.offset, block.size), block.birth, &mut behind) {
            Ok(Some(bytes)) => buf.copy_from_slice(bytes),
            Ok(None) | Err(()) => return Swept::Doubtful,
        }
        if check(buf) { told(behind) } else { Swept::Doubtful }
    }

    fn columns(
        &self,
        block: &Laid,
        columns: &Columns,
        buf: &mut [u8],
        parity: &mut Vec<u8>,
        check: &mut dyn FnMut(&[u8]) -> bool,
    ) -> Swept {
        // Padding of the last sector is not in `buf`.
        if columns.data_size() != block.size {
            return Swept::Doubtful;
        }
        let mut behind = Vec::new();
        let mut given: Vec<Option<&[u8]>> = Vec::with_capacity(PARITY_MAX);
        let mut absent = Vec::new();
        for index in 0..columns.count() {
            let column = columns.column(index);
            let at = (column.offset, column.size);
            let Ok(piece) = self.piece(column.disk, at, block.birth, &mut behind) else {
                return Swept::Doubtful;
            };
            let Some(data) = index.checked_sub(columns.parity()) else {
                given.push(piece);
                continue;
            };
            match piece {
                Some(piece) => {
                    buf[clip(columns.data_range(data), block.size)].copy_from_slice(piece);
                }
                None => absent.push(data),
            }
        }
        let enough = absent.len() <= given.iter().flatten().count();
        let whole = absent.is_empty() || enough && rebuild(columns, buf, &given, &absent);
        if !(whole && check(buf)) {
            return Swept::Doubtful;
        }
        let size = columns.parity_size();
        let wanted = columns.parity() * size;
        if parity.len() < wanted {
            parity.resize(wanted, 0);
        }
        generate(columns, buf, &mut parity[..wanted]);
        let mut due = given.iter().zip(parity.chunks_exact(size));
        match due.all(|(given, due)| given.is_none_or(|given| given == due)) {
            true => told(behind),
            false => Swept::Doubtful,
        }
    }
}

fn told(behind: Vec<usize>) -> Swept {
    if behind.is_empty() { Swept::Good } else { Swept::Behind(behind) }
}
