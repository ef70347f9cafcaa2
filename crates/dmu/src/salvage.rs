//! Reading on where something cannot be read.
//!
//! The one idea: an error names the block that is lost, on whatever level; what is below it is as lost, and what
//! comes after it may not be. So whoever reads on skips exactly that.

use std::collections::BTreeMap;
use std::ops::Range;

use format::DnodePhys;
use format::dnode::DNODES_PER_BLOCK;
use format::zap::{Entry, Kind, Leaf};

use crate::error::{DmuError, Result};
use crate::object::Object;
use crate::objset::Objset;
use crate::zap_object::Zap;

/// Stretches that are lost after which an object is given up.
const LOST_MAX: u32 = 1 << 16;

/// What comes next in an object of which not all can be read.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Left {
    /// Data, which begins here.
    Data(u64),
    /// What nobody can say anything of.
    Lost(Range<u64>),
    /// Nothing but holes.
    Nothing,
}

impl Object {
    /// What comes next from block `at` on, before block `limit`: found by what leads to data, however far away it is.
    pub fn next_left(&self, at: u64, limit: u64) -> Left {
        match self.next_block(at, limit, true) {
            Ok(Some(block)) => Left::Data(block),
            Ok(None) => Left::Nothing,
            Err(error) => Left::Lost(self.lost_by(at, &error)),
        }
    }

    /// The data blocks from `at` on that are lost for sure if looking for them, or reading the first, gave `error`.
    pub fn lost_by(&self, at: u64, error: &DmuError) -> Range<u64> {
        let one = at..at.saturating_add(1);
        let DmuError::Block { object, level, block, .. } = error else { return one };
        if *object != self.number() {
            return at..u64::MAX;
        }
        let shift = self.with_header(DnodePhys::pointers_shift).unwrap_or(0) * u32::from(*level);
        let below = |block: u64| {
            if block.leading_zeros() > shift { block << shift } else { u64::MAX }
        };
        let from = below(*block).max(at);
        from..below(block.saturating_add(1)).max(from.saturating_add(1))
    }

    /// Hands out every data block that is there and can be read, until `each` gives false.
    pub fn blocks_left(&self, mut each: impl FnMut(u64, &[u8]) -> bool) -> Result<()> {
        let limit = self.max_block()?.saturating_add(1);
        let (mut at, mut lost) = (0, 0);
        while at < limit && lost < LOST_MAX {
            let read = self.next_block(at, limit, true).and_then(|found| match found {
                None => Ok(None),
                Some(block) => self.with_block(block, |bytes| Some((block, each(block, bytes)))),
            });
            at = match read {
                Ok(None | Some((_, false))) => return Ok(()),
                Ok(Some((block, true))) => block + 1,
                Err(error) => {
                    lost += 1;
                    self.lost_by(at, &error).end
                }
            };
        }
        Ok(())
    }
}

impl Zap {
    /// The entries that can be read, if not all can; each once.
    pub fn entries_left(&self) -> Result<Vec<Entry>> {
        if let Ok(entries) = self.entries() {
            return Ok(entries);
        }
        let mut found: BTreeMap<(u64, u32), Entry> = BTreeMap::new();
        self.0.blocks_left(|block, bytes| {
            if block == 0 && matches!(format::zap::kind(bytes), Ok(Kind::Micro)) {
                return false;
            }
            let Ok(leaf) = Leaf::new(bytes) else { return true };
            let chunks = leaf.sorted(0).unwrap_or_default();
            let entries = chunks.into_iter().filter_map(|chunk| leaf.read(chunk, 0).ok());
            found.extend(entries.map(|entry| ((entry.hash, entry.cd), entry)));
            true
        })?;
        Ok(found.into_values().collect())
    }
}

impl Objset {
    /// The next object on disk from number `from` on whose dnode can be read, past all that cannot.
    pub fn next_object_left(&self, from: u64) -> Option<(u64, DnodePhys)> {
        let (mut at, mut lost) = (from, 0);
        while lost < LOST_MAX {
            let error = match self.next_object(at) {
                Ok(found) => return found,
                Err(error) => error,
            };
            lost += 1;
            at = match error {
                DmuError::Format { object, .. } => object.max(at) + 1,
                error => {
                    let block = self.meta.lost_by(at / DNODES_PER_BLOCK, &error).end;
                    block.checked_mul(DNODES_PER_BLOCK)?.max(at + 1)
                }
            };
        }
        None
    }
}
