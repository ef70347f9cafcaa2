//! Vdevs that were removed: their blocks lie elsewhere, in pieces, and a mapping says where.
//!
//! The one idea: a mapping is known only after the MOS was read, so it is handed to the tree later; a
//! block on such a vdev is gathered from its pieces, and only the whole has a checksum. If the first copies of
//! all pieces do not make it, every combination of copies is tried, as far as that ends soon.
//! FORMAT: section 13.5.

use crate::error::{Result, VdevError};
use crate::read::{Check, ReadReport, ReadScratch};
use crate::tree::Tree;
use format::indirect::{MappingEntry, Piece, pieces};
use format::label::DATA_AT;
use rt::sync::{Arc, RwLock};
use std::collections::BTreeMap;

/// Removed vdevs whose data went to removed vdevs: how far that is followed.
const DEPTH_MAX: usize = 8;
/// Combinations that are tried at most, and bytes that are looked at for them.
const TRIED_MAX: usize = 4096;
const TRIED_BYTES_MAX: usize = 256 << 20;

/// The mappings of a tree, by number of the vdev.
#[derive(Default)]
pub(crate) struct Mappings(RwLock<BTreeMap<u32, Arc<Vec<MappingEntry>>>>);

impl Tree {
    /// Says where the blocks of a removed vdev are; `entries` ascend.
    pub fn set_mapping(&self, top: u32, entries: Vec<MappingEntry>) {
        self.mappings().0.write().insert(top, Arc::new(entries));
    }

    fn mapping(&self, top: u32) -> Option<Arc<Vec<MappingEntry>>> {
        self.mappings().0.read().get(&top).cloned()
    }

    /// Is it known where the blocks of the vdev are?
    pub(crate) fn is_mapped(&self, top: u32) -> bool {
        self.mapping(top).is_some()
    }

    /// Where a range of a removed vdev is.
    fn resolve(
        &self,
        (top, offset, size): (u32, u64, u64),
        inner: u64,
        depth: usize,
        out: &mut Vec<Piece>,
    ) -> Result<()> {
        let wrong = |field, seen, expected| VdevError::Config { guid: 0, field, seen, expected };
        let Some(mapping) = self.mapping(top) else {
            out.push(Piece { inner, vdev: top, offset, size });
            return Ok(());
        };
        if depth == 0 {
            return Err(wrong("nesting of removed vdevs", DEPTH_MAX as u64, "less"));
        }
        let expected = "mapped by its removed vdev";
        let found = pieces(&mapping, offset, size);
        for piece in found.map_err(|_| wrong("offset of a block", offset, expected))? {
            let place = (piece.vdev, piece.offset, piece.size);
            self.resolve(place, inner + piece.inner, depth - 1, out)?;
        }
        Ok(())
    }

    /// Reads a block of a removed vdev.
    pub(crate) fn read_indirect(
        &self,
        top: u32,
        offset: u64,
        birth: u64,
        buf: &mut [u8],
        scratch: &mut ReadScratch,
        check: Check<'_>,
    ) -> Result<ReadReport> {
        let size = buf.len();
        let mut parts = Vec::new();
        self.resolve((top, offset, size as u64), 0, DEPTH_MAX, &mut parts)?;
        if let [part] = parts[..] {
            return self.read_with(part.vdev, part.offset, birth, buf, scratch, check);
        }
        let mut copies = Vec::new();
        for part in &parts {
            copies.push((part.inner as usize, self.copies_of(part, birth)?));
        }
        let missing = copies.iter().filter(|(_, versions)| versions.is_empty()).count();
        // One digit for each piece: which of its copies is taken.
        let mut digits = vec![0; copies.len()];
        let mut tried = 0;
        let most = TRIED_MAX.min(TRIED_BYTES_MAX / size.max(1)).max(1);
        while missing == 0 && tried < most {
            for ((inner, versions), digit) in copies.iter().zip(&digits) {
                let version = &versions[*digit];
                buf[*inner..inner + version.len()].copy_from_slice(version);
            }
            tried += 1;
            if check(buf) {
                return Ok(ReadReport { degraded: tried > 1, ..ReadReport::default() });
            }
            let mut place = 0;
            while place < digits.len() {
                digits[place] += 1;
                if digits[place] < copies[place].1.len() {
                    break;
                }
                digits[place] = 0;
                place += 1;
            }
            if place == digits.len() {
                break;
            }
        }
        let (pieces, size, tried) = (parts.len(), size as u64, tried as u64);
        Err(VdevError::Lost { top, offset, size, pieces, missing, unreadable: 0, tried })
    }

    /// The different bytes that the leaves have for a piece, those of leaves that must have it first.
    fn copies_of(&self, piece: &Piece, birth: u64) -> Result<Vec<Vec<u8>>> {
        let size = piece.size as usize;
        let (top, _) = self.locate(piece.vdev, piece.offset, size)?;
        // OpenZFS removes vdevs from pools of disks and mirrors only.
        let [slot] = top.slots() else {
            return Err(VdevError::Unsupported { top: piece.vdev, kind: "raidz under a mapping" });
        };
        let mut order: Vec<usize> = slot.clone();
        order.sort_by_key(|leaf| !self.is_trusted(*leaf, birth));
        let mut versions: Vec<Vec<u8>> = Vec::new();
        for leaf in order {
            let Some(device) = self.leaves()[leaf].device() else { continue };
            let mut bytes = vec![0; size];
            let read = device.read_at(DATA_AT + piece.offset, &mut bytes);
            if read.is_ok() && !versions.contains(&bytes) {
                versions.push(bytes);
            }
        }
        Ok(versions)
    }
}
