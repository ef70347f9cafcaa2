//! Intent logs that hold what no txg has: only who replays them may write to the pool.
//!
//! The blocks of a log are in no space map until somebody has claimed them. After a crash of the
//! kernel they look free, so that any write of ours, to whatever data set, could go over records
//! that were acknowledged as stable. FORMAT: section 12.

use std::collections::BTreeSet;

use codec::embedded::{self, Place};
use format::zil::ZilHeader;
use format::{BlkPtr, Checksum, ObjsetPhys};

use crate::dsl::lookup;
use crate::error::{PoolError, Result};
use crate::mos::Mos;

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
    let pointer = bp.checksum_words();
    let place = match bp.checksum() {
        Some(Checksum::Zilog) => Place::Zilog { pointer },
        Some(Checksum::Zilog2) => Place::Zilog2 { pointer },
        _ => return false,
    };
    if bp.is_hole() || bp.is_embedded() || bp.psize() > format::BLOCK_SIZE_MAX {
        return false;
    }
    let mut block = vec![0; bp.psize() as usize];
    let tree = mos.objset.store().tree();
    let mut good = |bytes: &[u8]| embedded::check(place, bytes).is_ok();
    bp.dvas().any(|dva| tree.read(dva.vdev, dva.offset, &mut block, &mut good).is_ok())
}
