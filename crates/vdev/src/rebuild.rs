//! The last step of a raidz read: everything is read, and every combination of liars is tried.
//!
//! Place: behind [`crate::read`], when the plain ways gave bytes that fail their checksum.
//! The one idea: a block with `p` parity columns can be computed from any choice of as many true
//! columns as it has data columns. Who lies is not known, so for each number of wrong data columns,
//! small ones first, each choice of them is computed from each choice of as many parity columns,
//! until the checksum agrees. Then the true parity is computed too, and every leaf whose bytes
//! differ from the truth is named.
//!
//! A child with several leaves (replacing, spare) can offer several *versions* of its column; each
//! combination of versions is tried likewise.

use crate::error::{Result, VdevError};
use crate::raidz::{Columns, DISKS_MAX, PARITY_MAX};
use crate::read::{Check, Fault, FaultKind, ReadReport, clip};
use crate::tree::{Top, Tree};
use codec::parity;
use format::label::DATA_AT;

/// Combinations that are tried for one block before it is given up. Three liars among the 41 data
/// columns of a raidz3 of 44 are 13,000 combinations.
const COMBINATIONS_MAX: u64 = 1 << 16;

/// Combinations of versions of columns that are tried for one block.
const VERSIONS_MAX: u64 = 64;

/// What a leaf gave for a column.
struct Version {
    leaf: usize,
    bytes: Vec<u8>,
}

/// All that is known of a column: what each leaf gave that could be read, without repetition.
#[derive(Default)]
struct Evidence {
    versions: Vec<Version>,
}

impl Tree {
    /// Finds the block's bytes by trying every combination; see the head of this module.
    pub(crate) fn search(
        &self,
        top: &Top,
        (offset, birth): (u64, u64),
        columns: &Columns,
        buf: &mut [u8],
        check: Check<'_>,
        report: &mut ReadReport,
    ) -> Result<()> {
        report.degraded = true;
        let (mut missing, mut unreadable) = (0, 0);
        let mut evidence = Vec::with_capacity(columns.count());
        for index in 0..columns.count() {
            let faults = report.faults.len();
            let column = self.read_versions(top, birth, columns, index, report);
            if column.versions.is_empty() {
                if report.faults.len() > faults { unreadable += 1 } else { missing += 1 }
            }
            evidence.push(column);
        }
        let mut search = Search { columns, evidence: &evidence, buf, check, tried: 0 };
        let found = search.run();
        let tried = search.tried;
        if !found {
            // Any of them may have lied; where so much is absent that nothing could be tried, nobody did.
            let suspects = if tried > 0 { &evidence[..] } else { &[] };
            for (index, versions) in suspects.iter().enumerate() {
                let (offset, size) = (columns.column(index).offset, columns.column(index).size);
                let leaves = versions.versions.iter().map(|version| version.leaf);
                let trusted = leaves.filter(|leaf| self.is_trusted(*leaf, birth));
                report.faults.extend(trusted.map(|leaf| {
                    let kind = FaultKind::Checksum;
                    Fault { leaf, offset, size: size as u64, kind }
                }));
            }
            return Err(VdevError::Lost {
                top: top.id(),
                offset,
                size: buf.len() as u64,
                pieces: columns.count(),
                missing,
                unreadable,
                tried,
            });
        }
        self.blame(birth, columns, &evidence, buf, report);
        Ok(())
    }

    /// What the leaves of one column give. Those that should have it come first.
    fn read_versions(
        &self,
        top: &Top,
        birth: u64,
        columns: &Columns,
        index: usize,
        report: &mut ReadReport,
    ) -> Evidence {
        let column = columns.column(index);
        let slot = &top.slots[column.disk];
        let trusted = slot.iter().filter(|leaf| self.is_trusted(**leaf, birth));
        let others = slot.iter().filter(|leaf| !self.is_trusted(**leaf, birth));
        let mut evidence = Evidence::default();
        for leaf in trusted.chain(others).copied() {
            let Some(device) = self.leaves()[leaf].device() else { continue };
            let mut bytes = vec![0; column.size];
            match device.read_at(DATA_AT + column.offset, &mut bytes) {
                Ok(()) => evidence.versions.push(Version { leaf, bytes }),
                Err(error) if self.is_trusted(leaf, birth) => report.faults.push(Fault {
                    leaf,
                    offset: column.offset,
                    size: column.size as u64,
                    kind: FaultKind::Read(error),
                }),
                Err(_) => {}
            }
        }
        evidence
    }

    /// Names every leaf that gave something else than the truth, now that `buf` holds it.
    fn blame(
        &self,
        birth: u64,
        columns: &Columns,
        evidence: &[Evidence],
        buf: &[u8],
        report: &mut ReadReport,
    ) {
        let size = columns.parity_size();
        let mut parity = vec![0; columns.parity() * size];
        generate(columns, buf, &mut parity);
        for (index, evidence) in evidence.iter().enumerate() {
            let column = columns.column(index);
            let truth = match index.checked_sub(columns.parity()) {
                None => &parity[index * size..][..size],
                Some(data) => &buf[clip(columns.data_range(data), buf.len())],
            };
            for version in &evidence.versions {
                if self.is_trusted(version.leaf, birth) && !is_padded(&version.bytes, truth) {
                    report.faults.push(Fault {
                        leaf: version.leaf,
                        offset: column.offset,
                        size: column.size as u64,
                        kind: FaultKind::Checksum,
                    });
                }
            }
        }
    }
}

/// Are the column's bytes the truth, followed by zeros?
pub(crate) fn is_padded(column: &[u8], truth: &[u8]) -> bool {
    column.get(..truth.len()) == Some(truth) && column[truth.len()..].iter().all(|b| *b == 0)
}

/// The data columns of a block, as pieces of it. `list` is on the caller's stack.
fn data_pieces<'a, 'l>(
    columns: &Columns,
    block: &'a [u8],
    list: &'l mut [&'a [u8]; DISKS_MAX],
) -> &'l [&'a [u8]] {
    let count = columns.data_count();
    for (index, piece) in list[..count].iter_mut().enumerate() {
        *piece = &block[clip(columns.data_range(index), block.len())];
    }
    &list[..count]
}

/// Computes the parity columns of `block` into `parity`, one after the other.
pub(crate) fn generate(columns: &Columns, block: &[u8], parity: &mut [u8]) {
    let mut list = [&[][..]; DISKS_MAX];
    let data = data_pieces(columns, block, &mut list);
    // Where the first column ends within its last sector, parity goes on with zeros.
    let size = data.first().map_or(0, |first| first.len());
    let mut out: [&mut [u8]; PARITY_MAX] = Default::default();
    for (to, column) in out.iter_mut().zip(parity.chunks_exact_mut(columns.parity_size())) {
        let (head, tail) = column.split_at_mut(size);
        tail.fill(0);
        *to = head;
    }
    parity::generate(data, &mut out[..columns.parity()]);
}

/// Computes the data columns `absent` of `block` in place, from its other data columns and from
/// the parity columns that are given: at least as many as are absent.
pub(crate) fn rebuild(
    columns: &Columns,
    block: &mut [u8],
    parity: &[Option<&[u8]>],
    absent: &[usize],
) -> bool {
    let mut list: [parity::Column<'_>; DISKS_MAX] = std::array::from_fn(|_| parity::Column::Unused);
    let (block_size, parities) = (block.len(), columns.parity());
    let first = clip(columns.data_range(0), block_size).len();
    let (to_parity, to_data) = list[..columns.count()].split_at_mut(parities);
    for (to, bytes) in to_parity.iter_mut().zip(parity) {
        if let Some(bytes) = bytes {
            *to = parity::Column::Good(&bytes[..first]);
        }
    }
    let mut rest = block;
    for (index, to) in to_data.iter_mut().enumerate() {
        let size = clip(columns.data_range(index), block_size).len();
        let (piece, after) = rest.split_at_mut(size);
        rest = after;
        *to = if absent.contains(&index) {
            parity::Column::Lost(piece)
        } else {
            parity::Column::Good(piece)
        };
    }
    parity::reconstruct(parities, &mut list[..columns.count()]).is_ok()
}

/// The trial of combinations for one block.
struct Search<'a, 'c> {
    columns: &'a Columns,
    evidence: &'a [Evidence],
    buf: &'a mut [u8],
    check: Check<'c>,
    tried: u64,
}

impl Search<'_, '_> {
    /// True when `buf` holds bytes that pass the check.
    fn run(&mut self) -> bool {
        let distinct: Vec<Vec<usize>> = self.evidence.iter().map(Evidence::distinct).collect();
        let count =
            |total: u64, column: &Vec<usize>| total.saturating_mul(column.len().max(1) as u64);
        let choices = distinct.iter().fold(1, count).min(VERSIONS_MAX);
        for wrong in 0..=self.columns.parity() {
            for choice in 0..choices {
                let mut rest = choice as usize;
                let mut picked = Vec::with_capacity(distinct.len());
                for (versions, evidence) in distinct.iter().zip(self.evidence) {
                    let len = versions.len().max(1);
                    let version = versions.get(rest % len);
                    rest /= len;
                    picked.push(version.map(|v| evidence.versions[*v].bytes.as_slice()));
                }
                if self.try_wrong(&picked, wrong) {
                    return true;
                }
            }
        }
        false
    }

    /// Tries every choice of `wrong` data columns, given one version of every column.
    fn try_wrong(&mut self, picked: &[Option<&[u8]>], wrong: usize) -> bool {
        let (parity, data) = picked.split_at(self.columns.parity());
        let absent: Vec<usize> = (0..data.len()).filter(|i| data[*i].is_none()).collect();
        let there: Vec<usize> = (0..data.len()).filter(|i| data[*i].is_some()).collect();
        let parities: Vec<usize> = (0..parity.len()).filter(|i| parity[*i].is_some()).collect();
        if wrong < absent.len() || wrong > parities.len() {
            return false;
        }
        for index in &there {
            self.restore(data, *index);
        }
        Combinations::new(there.len(), wrong - absent.len()).any(|liars| {
            let liars = liars.iter().map(|i| there[*i]);
            let mut unknown: Vec<usize> = absent.iter().copied().chain(liars).collect();
            unknown.sort_unstable();
            let found = Combinations::new(parities.len(), wrong).any(|chosen| {
                if self.tried >= COMBINATIONS_MAX {
                    return false;
                }
                self.tried += 1;
                let mut using = [None; PARITY_MAX];
                for index in chosen {
                    using[parities[*index]] = parity[parities[*index]];
                }
                let using = &using[..parity.len()];
                (unknown.is_empty() || rebuild(self.columns, self.buf, using, &unknown))
                    && (self.check)(self.buf)
            });
            if !found {
                for index in unknown {
                    self.restore(data, index);
                }
            }
            found
        })
    }

    /// Puts a data column into `buf` as it was read.
    fn restore(&mut self, data: &[Option<&[u8]>], index: usize) {
        if let Some(bytes) = data[index] {
            let range = clip(self.columns.data_range(index), self.buf.len());
            let size = range.len();
            self.buf[range].copy_from_slice(&bytes[..size]);
        }
    }
}

impl Evidence {
    /// Which versions differ from all before them.
    fn distinct(&self) -> Vec<usize> {
        let is_new = |i: &usize| {
            let bytes = &self.versions[*i].bytes;
            self.versions[..*i].iter().all(|before| before.bytes != *bytes)
        };
        (0..self.versions.len()).filter(is_new).collect()
    }
}

/// Every way to choose some numbers below a bound, in order.
struct Combinations {
    bound: usize,
    chosen: Vec<usize>,
    done: bool,
}

impl Combinations {
    fn new(bound: usize, choose: usize) -> Self {
        Combinations { bound, chosen: (0..choose).collect(), done: choose > bound }
    }

    /// Calls `f` with each choice until one is right.
    fn any(mut self, mut f: impl FnMut(&[usize]) -> bool) -> bool {
        while !self.done {
            if f(&self.chosen) {
                return true;
            }
            self.advance();
        }
        false
    }

    fn advance(&mut self) {
        let choose = self.chosen.len();
        // The last number that has not reached its highest value goes up, those after it follow.
        let last = (0..choose).rfind(|i| self.chosen[*i] < self.bound - choose + i);
        let Some(last) = last else {
            self.done = true;
            return;
        };
        let start = self.chosen[last] + 1;
        for (place, value) in self.chosen[last..].iter_mut().zip(start..) {
            *place = value;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn combinations_are_all_and_once() {
        for bound in 0..8usize {
            for choose in 0..5usize {
                let mut seen = std::collections::BTreeSet::new();
                Combinations::new(bound, choose).any(|c| {
                    assert!(c.windows(2).all(|w| w[0] < w[1]) && c.iter().all(|x| *x < bound));
                    assert!(seen.insert(c.to_vec()));
                    false
                });
                let expected = (0..1u32 << bound).filter(|m| m.count_ones() as usize == choose);
                assert_eq!(seen.len(), expected.count(), "{choose} of {bound}");
            }
        }
    }
}
