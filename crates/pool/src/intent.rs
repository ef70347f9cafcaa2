//! Intent logs: which hold what no txg has, and which only look so.
//!
//! The blocks of a log are in no space map until somebody has claimed them. After a crash of the
//! kernel they look free, so that any write of ours, to whatever data set, could go over records
//! that were acknowledged as stable: such a pool is not written. But where files were synced by themselves the
//! kernel leaves a header with the block that the next record would have gone to, also in what it exports
//! cleanly. That log is empty, and its block allocated: it goes with the first change. FORMAT: section 12.

use std::collections::BTreeSet;

use codec::embedded::{self, EmbeddedError, Place};
use format::zil::{LogBlock, ZIL_HEADER_SIZE, ZilHeader};
use format::{BlkPtr, Checksum, Dva, ObjsetPhys};
use store::Store;
use vdev::VdevError;

use crate::dsl::lookup::{self, Found};
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
    let header = header_at(mos.objset.store(), &root, head)?;
    if header.claim_txg.get() != 0 || header.log.is_hole() {
        return Ok(false);
    }
    // Even one that was never written: whoever claims it later takes what is born before for allocated.
    let synced = mos.objset.root().birth();
    Ok(header.log.birth() > synced || !matches!(read_block(mos, &header.log), Block::Unwritten))
}

/// The header of the log of a data set whose object set is at `root`.
fn header_at(store: &Store, root: &BlkPtr, head: u64) -> Result<ZilHeader> {
    let bytes = store.read(root)?;
    let phys = ObjsetPhys::parse(&bytes).map_err(|e| PoolError::Damaged {
        what: "object set",
        detail: format!("data set {head}: {e}"),
    })?;
    Ok(ZilHeader::parse(&phys.zil_header))
}

/// What there is where a log block should be.
enum Block {
    Written(Vec<u8>),
    /// Something else, as after the last block of every log.
    Unwritten,
    /// Nobody can tell.
    Unknown,
}

/// The log block that the pointer promises.
fn read_block(mos: &Mos, bp: &BlkPtr) -> Block {
    let pointer = bp.checksum_words();
    let place = match bp.checksum() {
        Some(Checksum::Zilog) => Place::Zilog { pointer },
        Some(Checksum::Zilog2) => Place::Zilog2 { pointer },
        _ => return Block::Unknown,
    };
    if bp.is_hole() || bp.is_embedded() || bp.psize() > format::BLOCK_SIZE_MAX {
        return Block::Unknown;
    }
    let mut block = vec![0; bp.psize() as usize];
    let tree = mos.objset.store().tree();
    let mut good = |bytes: &[u8]| match embedded::check(place, bytes) {
        Ok(_) => true,
        // The other two words are the MAC.
        Err(EmbeddedError::Mismatch { expected: [a, b, ..], computed: [c, d, e, f] }) => {
            bp.is_crypt() && ([a, b] == [c ^ e, d ^ f] || [a, b] == [c, d])
        }
        Err(_) => false,
    };
    let mut unwritten = false;
    for dva in bp.dvas() {
        match tree.read(dva.vdev, dva.offset, bp.physical_birth(), &mut block, &mut good) {
            Ok(_) => return Block::Written(block),
            Err(VdevError::Lost { missing: 0, unreadable: 0, .. }) => unwritten = true,
            Err(_) => return Block::Unknown,
        }
    }
    if unwritten { Block::Unwritten } else { Block::Unknown }
}

/// What the header of a data set's log stands for.
pub(crate) enum LogState {
    /// There is no log.
    None,
    /// A log without a record, and its one block, which is allocated; not even that, if there is none.
    Empty(Option<Dva>),
    /// A log with records, or something that looks like one.
    InUse,
}

impl Pool {
    /// What a head's intent log is, by its header. Of a writable pool.
    pub(crate) fn log_state(&self, header: &[u8; ZIL_HEADER_SIZE]) -> Result<LogState> {
        if header.iter().all(|byte| *byte == 0) {
            return Ok(LogState::None);
        }
        let header = ZilHeader::parse(header);
        if header.log.is_hole() {
            return Ok(LogState::Empty(None));
        }
        // What the kernel never makes is left to it. One that had records when it was claimed has lost them.
        let (bp, mut dvas) = (&header.log, header.log.dvas());
        let (Some(dva), None) = (dvas.next(), dvas.next()) else { return Ok(LogState::InUse) };
        let strange = dva.gang || bp.is_dedup() || bp.birth() > self.txg();
        if strange || header.claim_record_seq.get() != 0 {
            return Ok(LogState::InUse);
        }
        if !matches!(read_block(&self.mos, bp), Block::Unwritten) {
            return Ok(LogState::InUse);
        }
        let allocated = self.writing()?.writer.allocator().is_allocated(dva)?;
        Ok(if allocated { LogState::Empty(Some(dva)) } else { LogState::InUse })
    }

    /// The block of an empty intent log goes back to the pool, with the txg in which its header goes.
    pub(crate) fn free_log(&self, header: &[u8; ZIL_HEADER_SIZE]) -> Result<()> {
        match self.log_state(header)? {
            LogState::None | LogState::Empty(None) => Ok(()),
            // Log blocks are in no account but the space maps.
            LogState::Empty(Some(dva)) => Ok(self.writing()?.writer.allocator().free_dva(dva)?),
            LogState::InUse => Err(PoolError::Damaged {
                what: "intent log",
                detail: "it was empty, and is in use".into(),
            }),
        }
    }

    /// The same for a head that goes, or goes back to a snapshot: as its root has it.
    pub(crate) fn free_log_of(&self, found: &Found) -> Result<()> {
        if self.in_memory || found.phys.bp.is_hole() {
            return Ok(());
        }
        let header = header_at(&self.store, &found.phys.bp, found.object)?;
        self.free_log(&header.to_bytes())
    }
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
        while let Block::Written(block) = read_block(&self.mos, &next) {
            let start = LogBlock::parse(&block).map_err(|e| damaged(format!("{name}: {e}")))?;
            next = start.chain.next;
            let too_long = || damaged(format!("{name}: more than {bytes_max} bytes"));
            left = left.checked_sub(block.len()).ok_or_else(too_long)?;
            log.blocks.push(block);
        }
        Ok((!log.blocks.is_empty()).then_some(log))
    }
}
