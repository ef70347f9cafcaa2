//! Examining a block: every copy and every parity column of it, not only what a reader needs.
//!
//! Place: the reads of `verify`.
//! The one idea: the block's bytes are found as a reader finds them; then every leaf's piece,
//! parity included, is compared with what it must be. Leaves are asked for what they have, whatever the system
//! remembers of them: a sector that has gone bad since is found.

use crate::error::{Result, VdevError};
use crate::raidz::Columns;
use crate::read::{Check, Fault, FaultKind, ReadReport, ReadScratch, clip};
use crate::rebuild::{generate, is_padded};
use crate::sizes::Layout;
use crate::together::Want;
use crate::tree::{Top, Tree};
use device::Device;
use device::queue::Class;
use format::label::DATA_AT;
use rt::sync::atomic::Ordering;
use std::io::IoSliceMut;

/// What an examination found.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Examined {
    /// Pieces that are unreadable or wrong.
    pub faults: Vec<Fault>,
    /// Pieces whose leaf is not there (or not trusted: offline, without a label).
    pub missing: usize,
    /// Pieces that leaves do not have yet: they are still being filled, or were away in that txg.
    pub unfilled: usize,
    /// The leaves of those, which are there to be filled.
    pub behind: Vec<usize>,
    /// Of a block that is lost: leaves that gave a piece which may be the wrong one.
    pub suspects: Vec<usize>,
    /// The block's bytes cannot be found. The faults then tell only of unreadable pieces.
    pub lost: Option<VdevError>,
}

impl Examined {
    /// Is every piece there and right?
    pub fn is_whole(&self) -> bool {
        *self == Examined::default()
    }
}

/// Reads what a leaf has at `offset` of its allocatable space.
fn ask(leaf: &dyn Device, offset: u64, to: &mut [u8]) -> device::Result<()> {
    leaf.read_uncached(DATA_AT + offset, &mut [IoSliceMut::new(to)])
}

impl Tree {
    /// Reads every piece of the block of `buf.len()` bytes at `offset` of the vdev and says which
    /// leaves have it right. Then `buf` holds the block, unless it is lost.
    ///
    /// # Errors
    /// If no block can be at that address. A lost block is not an error but a finding.
    pub fn examine(
        &self,
        top: u32,
        offset: u64,
        birth: u64,
        buf: &mut [u8],
        scratch: &mut ReadScratch,
        check: Check<'_>,
    ) -> Result<Examined> {
        let place = (offset, birth);
        let examined = self.examine_for(Class::Scan, top, place, buf, scratch, check)?;
        self.count_new(&examined, &[]);
        Ok(examined)
    }

    /// As [`Tree::examine`], of a block that somebody has read: what is wrong with it may have been counted, so
    /// nothing is counted here. See [`Tree::count_new`]. Somebody waits for it, so columns behind queues are no scan's
    /// reads, which wait for all others: what the system remembers of disks may answer them.
    pub fn examine_again(
        &self,
        top: u32,
        place: (u64, u64),
        buf: &mut [u8],
        scratch: &mut ReadScratch,
        check: Check<'_>,
    ) -> Result<Examined> {
        self.examine_for(Class::SyncRead, top, place, buf, scratch, check)
    }

    /// `class`: as what queues read columns together.
    fn examine_for(
        &self,
        class: Class,
        top: u32,
        (offset, birth): (u64, u64),
        buf: &mut [u8],
        scratch: &mut ReadScratch,
        check: Check<'_>,
    ) -> Result<Examined> {
        if self.is_mapped(top) {
            // Which leaf lied cannot be told from the pieces; whether it is whole, can.
            let lost = self.read_indirect(top, offset, birth, buf, scratch, check).err();
            return Ok(Examined { lost, ..Examined::default() });
        }
        let (vdev, layout) = self.locate(top, offset, buf.len())?;
        match layout {
            Layout::Plain { .. } => self.examine_copies(vdev, (offset, birth), buf, scratch, check),
            Layout::Raidz(geometry) => {
                let columns = geometry.columns(offset, buf.len() as u64);
                let columns = (&columns, class);
                self.examine_columns(vdev, (offset, birth), columns, buf, scratch, check)
            }
        }
    }

    fn examine_copies(
        &self,
        top: &Top,
        (offset, birth): (u64, u64),
        buf: &mut [u8],
        scratch: &mut ReadScratch,
        check: Check<'_>,
    ) -> Result<Examined> {
        let mut examined = Examined::default();
        let mut good = false;
        let size = buf.len() as u64;
        for leaf in top.slots.iter().flatten().copied() {
            let Some(device) = self.leaves()[leaf].online() else {
                examined.missing += 1;
                continue;
            };
            // The first good copy stays in `buf`.
            let to = if good { scratch.parity(buf.len()) } else { &mut *buf };
            let result = ask(device, offset, to);
            let kind = match result {
                // Without a checksum that decides, copies must at least be equal.
                Ok(()) if check(to) && (!good || *buf == *scratch.parity(buf.len())) => {
                    good = true;
                    continue;
                }
                Ok(()) => FaultKind::Checksum,
                Err(error) => FaultKind::Read(error),
            };
            self.judge(&mut examined, birth, Fault { leaf, offset, size, kind });
        }
        if !good {
            let mut report = ReadReport::default();
            let found = self.find(top.id(), (offset, birth), buf, scratch, check, &mut report);
            examined.lost = found.err();
        }
        Ok(examined)
    }

    fn examine_columns(
        &self,
        top: &Top,
        (offset, birth): (u64, u64),
        (columns, class): (&Columns, Class),
        buf: &mut [u8],
        scratch: &mut ReadScratch,
        check: Check<'_>,
    ) -> Result<Examined> {
        let size = columns.parity_size();
        let parity_bytes = columns.parity() * size;
        // One half for the parity as it is, one as it should be.
        let (as_read, as_due) = scratch.parity(2 * parity_bytes).split_at_mut(parity_bytes);
        let whole = self.read_all_columns((top, class), columns, buf, as_read);
        // Padding of the last sector is not in `buf`; blocks that have some go the long way.
        if whole && columns.data_size() == buf.len() && check(buf) {
            generate(columns, buf, as_due);
            if as_read == as_due {
                return Ok(Examined::default());
            }
        }
        let mut report = ReadReport::default();
        let found = self.find(top.id(), (offset, birth), buf, scratch, check, &mut report);
        let mut examined = Examined::default();
        let truth = match found {
            Ok(()) => {
                let due = scratch.parity(parity_bytes);
                generate(columns, buf, due);
                Some(&*due)
            }
            Err(error) => {
                examined.lost = Some(error);
                None
            }
        };
        self.compare_columns(top, birth, columns, buf, truth, &mut examined);
        if let Some(VdevError::Lost { tried: 0, .. }) = examined.lost {
            // Too much is absent to tell that anybody gave wrong bytes.
            examined.suspects.clear();
        }
        Ok(examined)
    }

    /// Reads the data columns into `buf` and the parity columns into `parity`; false if one could
    /// not be read, or if a child has more than one leaf.
    fn read_all_columns(
        &self,
        (top, class): (&Top, Class),
        columns: &Columns,
        buf: &mut [u8],
        parity: &mut [u8],
    ) -> bool {
        let size = buf.len();
        let (mut rest_data, mut rest_parity) = (buf, parity);
        let mut wants = Vec::new();
        for index in 0..columns.count() {
            let column = columns.column(index);
            let part = match index.checked_sub(columns.parity()) {
                None => rest_parity.split_off_mut(..column.size),
                Some(data) => {
                    let range = clip(columns.data_range(data), size);
                    rest_data.split_off_mut(..range.len())
                }
            };
            let &[leaf] = &top.slots[column.disk][..] else { return false };
            let (Some(device), Some(part)) = (self.leaves()[leaf].online(), part) else {
                return false;
            };
            if top.queued {
                wants.push(Want { leaf, offset: column.offset, parts: vec![(0, part)] });
            } else if ask(device, column.offset, part).is_err() {
                return false;
            }
        }
        let results = self.read_together_for(class, &mut wants);
        results.into_iter().all(|result| matches!(result, Some(Ok(()))))
    }

    /// Reads every piece again and compares it with the truth, if that is known: `buf` and
    /// `parity`. The long way, for blocks with something wrong.
    pub(crate) fn compare_columns(
        &self,
        top: &Top,
        birth: u64,
        columns: &Columns,
        buf: &[u8],
        parity: Option<&[u8]>,
        examined: &mut Examined,
    ) {
        let mut bytes = Vec::new();
        for index in 0..columns.count() {
            let column = columns.column(index);
            bytes.resize(column.size, 0);
            for leaf in top.slots[column.disk].iter().copied() {
                let Some(device) = self.leaves()[leaf].online() else {
                    examined.missing += 1;
                    continue;
                };
                let result = ask(device, column.offset, &mut bytes);
                let kind = match (result, parity) {
                    (Err(error), _) => FaultKind::Read(error),
                    (Ok(()), None) => {
                        examined.suspects.extend(self.is_trusted(leaf, birth).then_some(leaf));
                        continue;
                    }
                    (Ok(()), Some(parity)) => {
                        let truth = match index.checked_sub(columns.parity()) {
                            None => &parity[index * column.size..][..column.size],
                            Some(data) => &buf[clip(columns.data_range(data), buf.len())],
                        };
                        if is_padded(&bytes, truth) {
                            continue;
                        }
                        FaultKind::Checksum
                    }
                };
                let (offset, size) = (column.offset, column.size as u64);
                self.judge(examined, birth, Fault { leaf, offset, size, kind });
            }
        }
    }

    /// Adds a finding, which is none against a leaf that is still being filled or lacks the block's txg.
    pub(crate) fn judge(&self, examined: &mut Examined, birth: u64, fault: Fault) {
        if self.is_trusted(fault.leaf, birth) {
            examined.faults.push(fault);
        } else {
            examined.unfilled += 1;
            examined.behind.push(fault.leaf);
        }
    }

    /// Of what was examined of a block born in txg `birth`: is it lost for good? So it is if every leaf that should have
    /// it gave what it has, whatever comes back later; `replaced` says of a leaf, by guid, that nobody waits for it.
    pub fn is_gone(
        &self,
        (top, birth): (u32, u64),
        examined: &Examined,
        replaced: &dyn Fn(u64) -> bool,
    ) -> bool {
        let unread = |fault: &Fault| matches!(fault.kind, FaultKind::Read(_));
        // Of a mapped vdev it is not known here which leaves there are.
        if examined.lost.is_none() || self.is_mapped(top) || examined.faults.iter().any(unread) {
            return false;
        }
        let Ok(top) = self.top(top) else { return false };
        top.slots.iter().flatten().map(|leaf| &self.leaves()[*leaf]).all(|leaf| {
            leaf.state.is_online() || leaf.lacks.contains(birth) || replaced(leaf.guid())
        })
    }

    /// The leaves of a vdev that should have what was written in txg `birth`.
    pub fn holders(&self, top: u32, birth: u64) -> Vec<usize> {
        let slots = self.top(top).map(|top| &top.slots[..]).unwrap_or_default();
        slots.iter().flatten().copied().filter(|leaf| self.is_trusted(*leaf, birth)).collect()
    }

    /// Adds the faults of an examination to the leaves' counters, but not those that were counted before: each the
    /// guid of a leaf and an offset on it.
    pub fn count_new(&self, examined: &Examined, counted: &[(u64, u64)]) {
        let place = |fault: &Fault| (self.leaves()[fault.leaf].guid(), fault.offset);
        let is_new = |fault: &&Fault| !counted.contains(&place(fault));
        let faults = examined.faults.iter().filter(is_new).cloned().collect();
        self.count(&ReadReport { faults, degraded: false });
        if let (Some(VdevError::Lost { top, .. }), true) = (&examined.lost, counted.is_empty())
            && let Ok(top) = self.top(*top)
        {
            top.lost.fetch_add(1, Ordering::Relaxed);
            // As OpenZFS counts it: any of them may have lied.
            let suspects = examined.suspects.iter().map(|leaf| &self.leaves()[*leaf]);
            suspects.for_each(|leaf| leaf.errors.add_checksum());
        }
    }
}
