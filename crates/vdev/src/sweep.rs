//! Sweeping over blocks that lie close to each other: every copy and every parity column of all of them, or as few as
//! give what leaves lack.
//!
//! Place: the reads of scrub and resilver. What is not plainly right is left to [`crate::examine`].
//! The one idea: neighbours on the vdev are neighbours on every leaf, so each leaf is read once, and what it gives
//! goes straight to where it belongs in each block: nothing is put together afterwards.

use crate::raidz::{Columns, PARITY_MAX};
use crate::rebuild::{generate, rebuild};
use crate::sizes::Layout;
use crate::together::Want;
use crate::tree::{Top, Tree};
use device::queue::Class;
use std::ops::Range;

/// Bytes that are read over in any case: what is skipped between blocks that follow each other.
const SKIPS: u64 = 8 << 10;

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

/// What is looked at.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Sweep {
    /// Every copy and every column.
    All,
    /// Of blocks that leaves lack, as much as gives what they lack; of the others nothing.
    Lacking,
}

/// What a sweep found of a block.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Swept {
    /// Every piece that should be there is, and what was looked at is right.
    Good,
    /// As [`Swept::Good`], but these leaves lack the txg, and are there to be filled.
    Behind(Vec<usize>),
    /// Something is wrong with it.
    Doubtful,
}

/// Memory for sweeps, used again and again: one for each thread that sweeps.
#[derive(Default)]
pub struct SweepScratch {
    /// The blocks, one after the other: of each its data, its parity, then what further leaves have of them.
    bytes: Vec<u8>,
    plans: Vec<Plan>,
    pieces: Vec<Piece>,
    /// Parity as it should be.
    due: Vec<u8>,
    /// Bytes that leaves were asked for, since the last time that this was taken.
    read_bytes: u64,
}

impl SweepScratch {
    /// The bytes of a block of the last sweep, if they were found.
    pub fn block(&self, index: usize, size: usize) -> &[u8] {
        &self.bytes[self.plans[index].start..][..size]
    }

    /// Bytes that leaves were asked for since the last call.
    pub fn take_read_bytes(&mut self) -> u64 {
        std::mem::take(&mut self.read_bytes)
    }
}

/// What is to be read of a block.
struct Plan {
    /// Where its data begins, and its parity.
    start: usize,
    parity: usize,
    pieces: Range<usize>,
    /// Leaves that lack it, and are there.
    behind: Vec<usize>,
    /// It goes the long way.
    doubtful: bool,
    /// Nobody asks for it.
    idle: bool,
}

/// What a leaf has of a block.
struct Piece {
    /// The leaf: its place among those of the vdev.
    leaf: usize,
    /// The column; 0 if there are none.
    column: usize,
    /// Offset on the leaf.
    offset: u64,
    /// Where it goes.
    to: Range<usize>,
    /// It is compared with what another leaf has of the same, which lies there.
    beside: Option<usize>,
}

impl Tree {
    /// Reads blocks of one vdev, in the order of their offsets, and says of each what it is like; `check` has its
    /// number and its bytes. Nothing is counted, nothing put right. A leaf is asked
    /// once for what lies side by side, and for all at the same time.
    pub fn sweep(
        &self,
        (top, sweep): (u32, Sweep),
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
        self.plan_sweep((vdev, layout), sweep, blocks, scratch);
        let good = self.read_pieces(vdev, scratch);
        let each = blocks.iter().enumerate();
        each.map(|(index, block)| judge(layout, block, index, scratch, &good, check)).collect()
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

    /// How many more disks of a top-level vdev may be lost until what was written in txg `birth` is; less than 0 if it
    /// is.
    pub fn margin(&self, top: u32, birth: u64) -> i64 {
        let Ok(top) = self.top(top) else { return i64::MAX };
        let has = |leaf: &&usize| self.leaves()[**leaf].having(birth).is_some();
        match top.layout {
            Some(Layout::Raidz(geometry)) => {
                let absent = top.slots.iter().filter(|slot| !slot.iter().any(|leaf| has(&leaf)));
                geometry.parity() as i64 - absent.count() as i64
            }
            _ => top.slots.iter().flatten().filter(has).count() as i64 - 1,
        }
    }

    /// Says what is to be read, and where it goes.
    fn plan_sweep(
        &self,
        (vdev, layout): (&Top, Layout),
        sweep: Sweep,
        blocks: &[Laid],
        scratch: &mut SweepScratch,
    ) {
        let SweepScratch { bytes, plans, pieces, .. } = scratch;
        plans.clear();
        pieces.clear();
        // Where the leaves of each child begin among those of the vdev, and where each leaf was read last.
        let mut firsts = Vec::with_capacity(vdev.slots.len());
        let mut count = 0;
        for slot in &vdev.slots {
            firsts.push(count);
            count += slot.len();
        }
        let mut ends = vec![0; count];
        let mut end = 0;
        for block in blocks {
            let columns = match layout {
                Layout::Plain { .. } => None,
                Layout::Raidz(geometry) => Some(geometry.columns(block.offset, block.size as u64)),
            };
            let planned = Planned { tree: self, vdev, sweep, birth: block.birth, firsts: &firsts };
            let before = pieces.len();
            let mut plan = planned.block(block, columns.as_ref(), end, pieces);
            // Blocks that lie on others are none that anybody wrote so.
            plan.doubtful |= pieces[before..].iter().any(|piece| piece.offset < ends[piece.leaf]);
            plan.idle = sweep == Sweep::Lacking && plan.behind.is_empty();
            if plan.doubtful || plan.idle {
                pieces.truncate(before);
            }
            for piece in &pieces[before..] {
                ends[piece.leaf] = piece.offset + piece.to.len() as u64;
                end = end.max(plan.parity).max(piece.to.end);
            }
            plan.pieces = before..pieces.len();
            plans.push(plan);
        }
        if bytes.len() < end {
            bytes.resize(end, 0);
        }
    }

    /// Reads all pieces; says which of the vdev's leaves gave all that they were asked for.
    fn read_pieces(&self, vdev: &Top, scratch: &mut SweepScratch) -> Vec<bool> {
        let leaves: Vec<usize> = vdev.slots.iter().flatten().copied().collect();
        let mut reels = vec![Reel::default(); leaves.len()];
        let mut wants: Vec<(usize, Want<'_>)> = Vec::new();
        let (mut rest, mut at) = (&mut scratch.bytes[..], 0);
        for piece in &scratch.pieces {
            let (part, after) = rest[piece.to.start - at..].split_at_mut(piece.to.len());
            (rest, at) = (after, piece.to.end);
            let reel = &mut reels[piece.leaf];
            if !reel.goes_on(piece) {
                reel.want = wants.len();
                let (leaf, offset) = (leaves[piece.leaf], piece.offset);
                wants.push((piece.leaf, Want { leaf, offset, parts: Vec::new() }));
            }
            let (_, want) = &mut wants[reel.want];
            want.parts.push((piece.offset - want.offset, part));
        }
        let (of, mut wants): (Vec<usize>, Vec<Want<'_>>) = wants.into_iter().unzip();
        scratch.read_bytes += wants.iter().map(|want| self.bytes_asked(want)).sum::<u64>();
        let results = self.read_together_for(Class::Scan, &mut wants);
        let mut good = vec![true; leaves.len()];
        for (leaf, result) in of.into_iter().zip(results) {
            good[leaf] &= matches!(result, Some(Ok(())));
        }
        good
    }
}

/// What was asked of a leaf so far.
#[derive(Clone, Copy, Default)]
struct Reel {
    /// The last read of it.
    want: usize,
    /// Where that ends.
    end: u64,
    /// Bytes that were wanted, and bytes between them that are read over.
    used: u64,
    idle: u64,
}

impl Reel {
    /// Is the piece to come with the last read? What lies between is read over if it is little.
    fn goes_on(&mut self, piece: &Piece) -> bool {
        let gap = piece.offset.saturating_sub(self.end);
        let goes_on = self.used > 0 && self.idle + gap <= self.used / 8 + SKIPS;
        self.idle += if goes_on { gap } else { 0 };
        self.used += piece.to.len() as u64;
        self.end = piece.offset + piece.to.len() as u64;
        goes_on
    }
}

/// What is the same for all that is planned of a block.
struct Planned<'a> {
    tree: &'a Tree,
    vdev: &'a Top,
    sweep: Sweep,
    birth: u64,
    firsts: &'a [usize],
}

impl Planned<'_> {
    /// Plans a block whose memory begins at `start`. The pieces are in the order in which they lie there.
    fn block(
        &self,
        block: &Laid,
        columns: Option<&Columns>,
        start: usize,
        pieces: &mut Vec<Piece>,
    ) -> Plan {
        let parity = start + block.size;
        let doubtful = columns.is_some_and(|columns| columns.data_size() != block.size);
        let behind = Vec::new();
        let mut plan = Plan { start, parity, pieces: 0..0, behind, doubtful, idle: false };
        if doubtful {
            // Padding of the last sector has no place.
            return plan;
        }
        let mut others = Vec::new();
        let Some(columns) = columns else {
            let spare = self.is_filling()
                && self.tree.source(&self.vdev.slots[0], self.birth, true).is_some();
            let at = (0, 0, block.offset);
            self.column((at, spare), start..parity, &mut plan.behind, pieces, &mut others);
            self.add_others(parity, others, pieces);
            return plan;
        };
        let spare = self.is_filling() && self.tree.spares(self.vdev, self.birth, columns);
        let mut absent = 0;
        for data in 0..columns.data_count() {
            let column = columns.data_column(data);
            let range = columns.data_range(data);
            let to = start + range.start..start + range.end;
            let at = (column.disk, columns.parity() + data, column.offset);
            absent +=
                usize::from(!self.column((at, spare), to, &mut plan.behind, pieces, &mut others));
        }
        let size = columns.parity_size();
        let mut given = 0;
        for index in 0..columns.parity() {
            let column = columns.column(index);
            let from = parity + index * size;
            let at = (column.disk, index, column.offset);
            let before = pieces.len();
            let is_there =
                self.column((at, spare), from..from + size, &mut plan.behind, pieces, &mut others);
            if self.is_filling() && given == absent {
                pieces.truncate(before);
            } else {
                given += usize::from(is_there);
            }
        }
        plan.doubtful = given < absent;
        self.add_others(parity + columns.parity() * size, others, pieces);
        plan
    }

    /// Is it for leaves that lack something, so that it does not matter who gives the rest?
    fn is_filling(&self) -> bool {
        self.sweep == Sweep::Lacking
    }

    /// Plans a column, or a copy: the first leaf that has it gives it, the others are compared with that. `false`: none
    /// has it.
    fn column(
        &self,
        ((place, column, offset), spare): ((usize, usize, u64), bool),
        to: Range<usize>,
        behind: &mut Vec<usize>,
        pieces: &mut Vec<Piece>,
        others: &mut Vec<Piece>,
    ) -> bool {
        let mut is_there = false;
        for (number, leaf) in self.vdev.slots[place].iter().copied().enumerate() {
            let known = &self.tree.leaves()[leaf];
            if known.online().is_none() {
                continue;
            }
            if known.lacks.contains(self.birth) {
                behind.push(leaf);
                continue;
            }
            if spare && known.sits_out() {
                continue;
            }
            let leaf = self.firsts[place] + number;
            let piece = Piece { leaf, column, offset, to: to.clone(), beside: None };
            if !is_there {
                pieces.push(piece);
            } else if self.sweep == Sweep::All {
                others.push(Piece { beside: Some(to.start), ..piece });
            }
            is_there = true;
        }
        is_there
    }

    /// What further leaves have comes behind everything else.
    fn add_others(&self, mut at: usize, others: Vec<Piece>, pieces: &mut Vec<Piece>) {
        for piece in others {
            let to = at..at + piece.to.len();
            at = to.end;
            pieces.push(Piece { to, ..piece });
        }
    }
}

/// What a block is like, of which all pieces were read that were to be.
fn judge(
    layout: Layout,
    block: &Laid,
    index: usize,
    scratch: &mut SweepScratch,
    good: &[bool],
    check: &mut dyn FnMut(usize, &[u8]) -> bool,
) -> Swept {
    let SweepScratch { bytes, plans, pieces, due, .. } = scratch;
    let plan = &mut plans[index];
    let pieces = &pieces[plan.pieces.clone()];
    if plan.doubtful || pieces.iter().any(|piece| !good[piece.leaf]) {
        return Swept::Doubtful;
    }
    if pieces.is_empty() {
        // What nobody has is not known to be good.
        return if plan.idle { Swept::Good } else { Swept::Doubtful };
    }
    let differs = |piece: &Piece| {
        piece.beside.is_some_and(|at| bytes[piece.to.clone()] != bytes[at..][..piece.to.len()])
    };
    if pieces.iter().any(differs) {
        return Swept::Doubtful;
    }
    let right = match layout {
        Layout::Plain { .. } => check(index, &bytes[plan.start..plan.parity]),
        Layout::Raidz(geometry) => {
            let columns = geometry.columns(block.offset, block.size as u64);
            let (data, parity) = bytes[plan.start..].split_at_mut(block.size);
            let check = &mut |bytes: &[u8]| check(index, bytes);
            are_right(&columns, pieces, (data, parity), due, check)
        }
    };
    match (right, std::mem::take(&mut plan.behind)) {
        (false, _) => Swept::Doubtful,
        (true, behind) if behind.is_empty() => Swept::Good,
        (true, behind) => Swept::Behind(behind),
    }
}

/// Are data and parity of a block right? What is absent of the data is computed first.
fn are_right(
    columns: &Columns,
    pieces: &[Piece],
    (data, parity): (&mut [u8], &[u8]),
    due: &mut Vec<u8>,
    check: &mut dyn FnMut(&[u8]) -> bool,
) -> bool {
    let (parities, size) = (columns.parity(), columns.parity_size());
    let mut given = [None; PARITY_MAX];
    let (mut absent, mut next) = (Vec::new(), 0);
    for piece in pieces.iter().filter(|piece| piece.beside.is_none()) {
        match piece.column.checked_sub(parities) {
            None => given[piece.column] = Some(&parity[piece.column * size..][..size]),
            Some(data) => {
                absent.extend(next..data);
                next = data + 1;
            }
        }
    }
    absent.extend(next..columns.data_count());
    let given = &given[..parities];
    if !absent.is_empty() && !rebuild(columns, data, given, &absent) || !check(data) {
        return false;
    }
    if given.iter().flatten().count() <= absent.len() {
        // The data was computed from it.
        return true;
    }
    if due.len() < parities * size {
        due.resize(parities * size, 0);
    }
    generate(columns, data, &mut due[..parities * size]);
    let mut due = given.iter().zip(due.chunks_exact(size));
    due.all(|(given, due)| given.is_none_or(|given| given == due))
}
