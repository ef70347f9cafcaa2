//! What is told of a pool's checkpoint, and of the last vdev that was removed from it.
//!
//! The one idea: neither is made here. A pool that has one is read, its space is counted as it is, and who asks hears of it.
//! FORMAT: sections 13.4, 13.5.

use std::collections::BTreeMap;

use dmu::SpaceMap;
use format::features::Feature;
use format::indirect::{MappingEntry, MappingPhys};
use format::removal::Removal;
use format::scan::ScanState;
use format::uberblock::{UBERBLOCK_WORDS, Uberblock};

use crate::error::{PoolError, Result};
use crate::mos::key;
use crate::pool::Pool;

/// A checkpoint, or what is left of one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Checkpoint {
    /// When it was made, in seconds since 1970; `None`: it is gone, and what only it held is being freed.
    pub made: Option<u64>,
    /// Bytes that were freed since, and are kept for it, or have still to be freed.
    pub kept: u64,
}

impl Pool {
    /// The pool's checkpoint; `None`: it has none, and nothing is left of one.
    pub fn checkpoint(&self) -> Result<Option<Checkpoint>> {
        if !self.had_checkpoint()? {
            return Ok(None);
        }
        let kept = self.kept_by_checkpoint()?.values().copied().fold(0, u64::saturating_add);
        let Some(entry) = self.mos.directory()?.get(key::CHECKPOINT)? else {
            return Ok(Some(Checkpoint { made: None, kept }));
        };
        let words = entry.ints();
        let damaged =
            |detail: String| PoolError::Damaged { what: "uberblock of a checkpoint", detail };
        let words: &[u64; UBERBLOCK_WORDS] =
            words.first_chunk().ok_or_else(|| damaged(format!("{} words", words.len())))?;
        let uberblock = Uberblock::from_words(words).map_err(|error| damaged(error.to_string()))?;
        Ok(Some(Checkpoint { made: Some(uberblock.timestamp.get()), kept }))
    }

    /// Is there a checkpoint, or something left of one?
    fn had_checkpoint(&self) -> Result<bool> {
        Ok(self.features().count(Feature::ZpoolCheckpoint)?.is_some_and(|count| count > 0))
    }

    /// Bytes that were freed since a checkpoint was taken, and are kept for it, by top-level vdev.
    pub fn kept_by_checkpoint(&self) -> Result<BTreeMap<u64, u64>> {
        let mut kept = BTreeMap::new();
        if !self.had_checkpoint()? {
            return Ok(kept);
        }
        for top in self.config().vdev_tree.children {
            let (Some(id), Some(zap)) = (top.id, top.zap_top.filter(|zap| *zap != 0)) else {
                continue;
            };
            if let Some(object) = self.mos.zap(zap)?.get_u64(key::TOP_CHECKPOINT_MAP)? {
                // It holds frees only.
                let alloc = SpaceMap::open(&self.mos.objset, object)?.phys()?.0.alloc.get();
                kept.insert(id, alloc.min(0).unsigned_abs());
            }
        }
        Ok(kept)
    }

    /// The last removal of a vdev that held data, and the bytes of the mappings of all that were removed; `None`: there
    /// was none.
    pub fn removal(&self) -> Result<Option<(Removal, u64)>> {
        let Some(entry) = self.mos.directory()?.get(key::REMOVING)? else { return Ok(None) };
        let damaged = |error: format::FormatError| {
            let detail = error.to_string();
            PoolError::Damaged { what: "state of a removal", detail }
        };
        let removal = Removal::from_words(&entry.ints()).map_err(damaged)?;
        if removal.state == ScanState::None {
            return Ok(None);
        }
        let tops = self.config().vdev_tree.children;
        let (mut next, mut bytes) = (removal.newest_removed, 0u64);
        // No vdev comes twice, whatever is there.
        for _ in 0..tops.len() {
            let top = next.and_then(|id| tops.iter().find(|top| top.id == Some(id)));
            let Some(indirect) = top.and_then(|top| top.indirect) else { break };
            let bonus = self.mos.objset.object(indirect.object)?.bonus()?;
            let entries = MappingPhys::parse(&bonus).map_err(damaged)?.num_entries.get();
            bytes = bytes.saturating_add(entries.saturating_mul(size_of::<MappingEntry>() as u64));
            next = indirect.previous_vdev;
        }
        Ok(Some((removal, bytes)))
    }
}
