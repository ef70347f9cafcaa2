//! Blocks of the MOS that a later pass of a sync writes over in their places, as they were.
//!
//! Place: between the writer and who reads the MOS while it is synced.
//! The one idea: such a reader has the pointers of the pass before, and in their places there may be something else already.
//! What was there is kept by the pointer that led to it, for as long as what is freed is not handed out (INV-1); and nobody is
//! at a disk for a block while it is written over. So no reader takes for damage what is none.

use std::collections::BTreeMap;

use format::BlkPtr;
use rt::Grant;
use rt::mem::{Account, Holder};
use rt::sync::atomic::{AtomicU64, Ordering};
use rt::sync::{RwLock, RwLockReadGuard};

use crate::cache::Block;

/// Txgs whose blocks are kept: that being synced, and those before it.
const TXGS: u64 = 3;

/// Blocks of the last txgs that were written over.
pub(crate) struct Overwritten {
    /// The txg that is synced, or was last: no block of an older one is written over.
    txg: AtomicU64,
    /// Held while such a block is read from a disk: who is to write over one waits for that, and for no more.
    kept: RwLock<Kept>,
}

/// Those blocks, as they were.
pub(crate) struct Kept {
    /// By vdev and offset; one place may be written over several times.
    blocks: BTreeMap<(u32, u64), Vec<(BlkPtr, Block)>>,
    lease: Grant,
}

impl Kept {
    /// What the pointer led to before it was written over.
    pub(crate) fn get(&self, bp: &BlkPtr) -> Option<&Block> {
        let dva = bp.dva(0);
        let of_place = self.blocks.get(&(dva.vdev, dva.offset))?;
        of_place.iter().find(|(old, _)| old == bp).map(|(_, block)| block)
    }
}

impl Overwritten {
    pub(crate) fn new(account: &Account) -> Overwritten {
        let lease = account.of(Holder::Sync).take(0);
        let kept = RwLock::new(Kept { blocks: BTreeMap::new(), lease });
        Overwritten { txg: AtomicU64::new(0), kept }
    }

    /// The sync of a txg begins: who still has pointers of one that is long past finds somebody else's blocks anywhere.
    pub(crate) fn begin(&self, txg: u64) {
        let mut kept = self.kept.write();
        self.txg.store(txg, Ordering::Release);
        kept.blocks.retain(|_, of_place| {
            of_place.retain(|(old, _)| self.may_have(old));
            !of_place.is_empty()
        });
        let left = kept.blocks.values().flatten().map(|(_, block)| block.len() as u64).sum();
        kept.lease.set(left);
    }

    /// These are about to be written over; returns when nobody is at a disk for one of them.
    pub(crate) fn keep(&self, blocks: Vec<(BlkPtr, Block)>) {
        let mut kept = self.kept.write();
        let bytes: u64 = blocks.iter().map(|(_, block)| block.len() as u64).sum();
        let bytes = kept.lease.bytes() + bytes;
        kept.lease.set(bytes);
        for (bp, block) in blocks {
            let dva = bp.dva(0);
            kept.blocks.entry((dva.vdev, dva.offset)).or_default().push((bp, block));
        }
    }

    /// To be held while the block is read from a disk; `None`: it is not written over.
    pub(crate) fn reading(&self, bp: &BlkPtr) -> Option<RwLockReadGuard<'_, Kept>> {
        self.may_have(bp).then(|| self.kept.read())
    }

    /// May the block be written over while it is read, or have been lately?
    pub(crate) fn may_have(&self, bp: &BlkPtr) -> bool {
        let txg = self.txg.load(Ordering::Acquire);
        bp.has_space() && bp.birth() <= txg && txg - bp.birth() < TXGS
    }
}
