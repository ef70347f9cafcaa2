//! Intent logs that hold what no txg has: only who replays them may write to the pool. And what they hold,
//! for whoever replays it in memory.
//!
//! The blocks of a log are in no space map until somebody has claimed them. After a crash of the
//! kernel they look free, so that any write of ours, to whatever data set, could go over records
//! that were acknowledged as stable. FORMAT: section 12.

use std::collections::BTreeSet;

use codec::embedded::{self, Place};
use format::zil::{LogBlock, ZilHeader};
use format::{BlkPtr, Checksum, ObjsetPhys};

use crate::dsl::lookup;
use crate::error::{PoolError, Result};
use crate::mos::Mos;
use crate::pool::Pool;

/// The first data set (by its object) whose log has blocks that nobody has claimed.
pub(crate) fn unclaimed(mos: &Mos) -> Result<Option<u64>> {
    let mut seen = BTreeSet::new();
    let mut todo = vec![lookup::root_dir(mos)?];
    while let Some(number) = todo.pop() {
        if !seen.insert(number) {
            let detail = format!("object {number} is the child of two");
            return Err(PoolError::Damaged { what: "DSL directory", detail });
        }
        let dir = mos.dir(number)?;
        todo.extend(lookup::children(mos, &dir)?.into_iter().map(|(_, child)| child));
        let head = dir.head_dataset_object.get();
        if head != 0 && is_unclaimed(mos, head)? {
            return Ok(Some(head));
        }
    }
    Ok(None)
}

fn is_unclaimed(mos: &Mos, head: u64) -> Result<bool> {
    let root = mos.dataset(head)?.bp;
    if root.is_hole() {
        return Ok(false);
    }
    let bytes = mos.objset.store().read(&root)?;
    let phys = ObjsetPhys::parse(&bytes).map_err(|e| PoolError::Damaged {
        what: "object set",
        detail: format!("data set {head}: {e}"),
    })?;
    let header = ZilHeader::parse(&phys.zil_header);
    Ok(header.claim_txg.get() == 0 && is_written(mos, &header.log))
}

/// Is there the log block that the pointer promises? The one after the last never is.
fn is_written(mos: &Mos, bp: &BlkPtr) -> bool {
    read_block(mos, bp).is_some()
}

/// The log block that the pointer promises.
fn read_block(mos: &Mos, bp: &BlkPtr) -> Option<Vec<u8>> {
    let pointer = bp.checksum_words();
    let place = match bp.checksum() {
        Some(Checksum::Zilog) => Place::Zilog { pointer },
        Some(Checksum::Zilog2) => Place::Zilog2 { pointer },
        _ => return None,
    };
    if bp.is_hole() || bp.is_embedded() || bp.psize() > format::BLOCK_SIZE_MAX {
        return None;
    }
    let mut block = vec![0; bp.psize() as usize];
    let tree = mos.objset.store().tree();
    let mut good = |bytes: &[u8]| embedded::check(place, bytes).is_ok();
    let found = bp.dvas().any(|dva| {
        tree.read(dva.vdev, dva.offset, bp.physical_birth(), &mut block, &mut good).is_ok()
    });
    found.then_some(block)
}

/// The intent log of a data set, as far as it goes.
pub struct IntentLog {
    /// Its blocks, verified, in order.
    pub blocks: Vec<Vec<u8>>,
    /// Records of txgs before this one are in the pool already.
    pub first_txg: u64,
    /// Records up to this one were replayed.
    pub replayed_seq: u64,
}

impl Pool {
    /// The intent log of a data set; `None` if it has none. `bytes_max` is all that is read of it.
    ///
    /// # Errors
    /// A log that is longer; whatever reading the data set says.
    pub fn intent_log(&self, name: &str, bytes_max: usize) -> Result<Option<IntentLog>> {
        let found = lookup::find(&self.mos, name)?;
        if found.phys.bp.is_hole() {
            return Ok(None);
        }
        let damaged = |detail| PoolError::Damaged { what: "intent log", detail };
        let bytes = self.mos.objset.store().read(&found.phys.bp)?;
        let phys = ObjsetPhys::parse(&bytes).map_err(|e| damaged(format!("{name}: {e}")))?;
        let header = ZilHeader::parse(&phys.zil_header);
        let first_txg = match header.claim_txg.get() {
            0 => self.txg() + 1,
            claimed => claimed,
        };
        let mut log =
            IntentLog { blocks: Vec::new(), first_txg, replayed_seq: header.replay_seq.get() };
        let (mut next, mut left) = (header.log, bytes_max);
        while let Some(block) = read_block(&self.mos, &next) {
            let start = LogBlock::parse(&block).map_err(|e| damaged(format!("{name}: {e}")))?;
            next = start.chain.next;
            let too_long = || damaged(format!("{name}: more than {bytes_max} bytes"));
            left = left.checked_sub(block.len()).ok_or_else(too_long)?;
            log.blocks.push(block);
        }
        Ok((!log.blocks.is_empty()).then_some(log))
    }
}
