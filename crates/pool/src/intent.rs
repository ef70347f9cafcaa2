//! Intent logs: which hold what no txg has, and which only look so.
//!
//! A log with records is claimed when the pool is opened ([`crate::claim`]) and then replayed by who knows
//! files; until that is done its data set is read-only. But where files were synced by themselves the
//! kernel leaves a header with the block that the next record would have gone to, also in what it exports
//! cleanly. That log is empty, and its block allocated: it goes with the first change. FORMAT: section 12.

use std::collections::BTreeSet;

use format::zil::{LogBlock, Record, RecordKind, ZIL_HEADER_SIZE, ZilFlags, ZilHeader};
use format::{BlkPtr, Checksum, Dva, ObjsetPhys};
use store::{Part, Store};
use vdev::VdevError;

use crate::dsl::lookup::{self, Found};
use crate::error::{PoolError, Result};
use crate::mos::Mos;
use crate::pool::Pool;

/// The headers of the logs that there are, with the path of each data set below the pool.
pub(crate) fn headers(mos: &Mos) -> Result<Vec<(String, ZilHeader)>> {
    headers_unless(mos, |_, error| Err(error))
}

/// The same without those that cannot be read, if `unread`, which gets the number of the data set, says that they do not
/// matter.
pub(crate) fn headers_unless(
    mos: &Mos,
    mut unread: impl FnMut(u64, PoolError) -> Result<()>,
) -> Result<Vec<(String, ZilHeader)>> {
    let (mut seen, mut out) = (BTreeSet::new(), Vec::new());
    let root = lookup::root_dir(mos)?;
    let mut todo = vec![(String::new(), root)];
    while let Some((path, number)) = todo.pop() {
        if !seen.insert(number) {
            let detail = format!("object {number} is the child of two");
            return Err(PoolError::Damaged { what: "DSL directory", detail });
        }
        let dir = mos.dir(number)?;
        let below = lookup::children(mos, number, &dir)?.into_iter();
        todo.extend(below.map(|(name, child)| (format!("{path}/{name}"), child)));
        let head = dir.head_dataset_object.get();
        if head == 0 {
            continue;
        }
        let bp = mos.dataset(head)?.bp;
        if bp.is_hole() {
            continue;
        }
        match header_at(mos.objset.store(), &bp, head) {
            Ok(header) if header.log.is_hole() => {}
            Ok(header) => out.push((path, header)),
            Err(error) => unread(head, error)?,
        }
    }
    Ok(out)
}

/// The header of the log of a data set whose object set is at `root`.
pub(crate) fn header_at(store: &Store, root: &BlkPtr, head: u64) -> Result<ZilHeader> {
    let bytes = store.of_objset(head).read_for(store::At::ROOT, root)?;
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
    if !matches!(bp.checksum(), Some(Checksum::Zilog | Checksum::Zilog2)) {
        return Block::Unknown;
    }
    if bp.is_hole() || bp.is_embedded() || bp.psize() > format::BLOCK_SIZE_MAX {
        return Block::Unknown;
    }
    let mut block = vec![0; bp.psize() as usize];
    let (store, part) = (mos.objset.store(), Part { bp: *bp, header: false });
    let tree = store.tree();
    let mut good = |bytes: &[u8]| store.is_right(&part, bytes);
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

/// Has a log that nobody has claimed something that no txg has? Of encrypted ones that can be told, too.
pub(crate) fn is_to_be_claimed(mos: &Mos, header: &ZilHeader) -> bool {
    // Even a block that was never written: whoever claims it later takes what is born before for allocated.
    let synced = mos.objset.root().birth();
    header.log.birth() > synced || !matches!(read_block(mos, &header.log), Block::Unwritten)
}

/// A log, from its header to where it ends.
pub(crate) struct Chain {
    /// Where its blocks are and were born: that for the next records too, and data that records lead to.
    pub(crate) places: Vec<(Dva, u64)>,
    /// The number of the last of its blocks, written or not.
    pub(crate) last_block: u64,
    /// The number of its last record; 0: it has none.
    pub(crate) last_record: u64,
    /// Its written blocks.
    pub(crate) written: u64,
}

/// What a log leads to.
pub(crate) enum Link<'a> {
    /// One of its blocks, with what is in it: after the data that its records lead to.
    Block(&'a BlkPtr, Vec<u8>),
    /// The data of a record: of this object, at this offset in bytes.
    Data(&'a BlkPtr, (u64, u64)),
}

/// Goes along a log, and calls `each` with everything that is written, in order, as long as that says `true`. One that
/// is not claimed ends where the data of a record never got to the disk: nobody was told that this was stable.
///
/// # Errors
/// What keeps one from telling where it ends; of a claimed one that it ends before what was claimed.
pub(crate) fn chain(
    mos: &Mos,
    header: &ZilHeader,
    each: impl FnMut(Link<'_>) -> Result<bool>,
) -> Result<Chain> {
    follow(mos, header, false, each)
}

/// As [`chain`], of any log that is claimed, encrypted or not.
///
/// # Errors
/// See there.
pub(crate) fn claimed(
    mos: &Mos,
    header: &ZilHeader,
    each: impl FnMut(Link<'_>) -> Result<bool>,
) -> Result<Chain> {
    follow(mos, header, true, each)
}

fn follow(
    mos: &Mos,
    header: &ZilHeader,
    encrypted: bool,
    mut each: impl FnMut(Link<'_>) -> Result<bool>,
) -> Result<Chain> {
    let odd = |seq: u64, what: &dyn std::fmt::Display| {
        let detail = format!("block {seq}: {what}");
        PoolError::Damaged { what: "intent log", detail }
    };
    let (claim, synced) = (header.claim_txg.get(), mos.objset.root().birth());
    let limited = claim != 0 && header.flags.get() & ZilFlags::CLAIM_RECORD_SEQ_VALID != 0;
    let last = (header.claim_block_seq.get(), header.claim_record_seq.get());
    let last = if limited { last } else { (u64::MAX, u64::MAX) };
    let mut out = Chain { places: Vec::new(), last_block: 0, last_record: 0, written: 0 };
    let (mut next, mut stopped) = (header.log, false);
    'log: while !next.is_hole() && next.checksum_words()[3] <= last.0 {
        let mut dvas = next.dvas();
        let seq = next.checksum_words()[3];
        if !out.places.is_empty() && Some(seq) != out.last_block.checked_add(1) {
            // So that no log leads in a circle.
            return Err(odd(seq, &"its number does not follow"));
        }
        let (Some(dva), None) = (dvas.next(), dvas.next()) else {
            return Err(odd(seq, &"it has not one copy"));
        };
        if dva.gang || next.is_dedup() || next.is_crypt() && !encrypted {
            return Err(odd(seq, &"it is a gang, deduplicated or encrypted"));
        }
        out.places.push((dva, next.birth()));
        out.last_block = seq;
        if (seq, out.last_record) == last {
            break;
        }
        let block = match read_block(mos, &next) {
            Block::Written(block) => block,
            Block::Unwritten => break,
            Block::Unknown => return Err(odd(seq, &"it cannot be read")),
        };
        let parsed = LogBlock::parse(&block).map_err(|e| odd(seq, &e))?;
        out.written += 1;
        let this = std::mem::replace(&mut next, parsed.chain.next);
        let mut ends = false;
        for record in parsed.records() {
            let record = record.map_err(|e| odd(seq, &e))?;
            if record.seq > last.1 {
                ends = true;
                break;
            }
            if record.kind == RecordKind::Write
                && let Ok(Record::Write(write)) = record.decode()
                && write.data.is_none()
                && write.pointer.has_space()
                && write.pointer.birth() > synced.min(claim.wrapping_sub(1))
            {
                let data = &write.pointer;
                if claim == 0 && mos.objset.store().read(data).is_err() {
                    if !mos.objset.store().tree().leaves().iter().all(|l| l.state.is_online()) {
                        return Err(odd(seq, &"data that it leads to cannot be read"));
                    }
                    ends = true;
                    break;
                }
                let pieces = mos.objset.store().allocations(data)?;
                out.places.extend(pieces.into_iter().map(|dva| (dva, data.birth())));
                if !each(Link::Data(data, (write.object, write.offset)))? {
                    stopped = true;
                    break 'log;
                }
            }
            out.last_record = record.seq;
        }
        stopped = !each(Link::Block(&this, block))?;
        if stopped || ends {
            break 'log;
        }
    }
    if limited && !stopped && (out.last_block, out.last_record) != last {
        // What was claimed was there: the rest is damaged, and not for whoever replays it to give up.
        return Err(odd(out.last_block, &"it ends before what was claimed"));
    }
    Ok(out)
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
        match read_block(&self.mos, bp) {
            Block::Unwritten => {}
            // Its device has died since the pool was opened: what was in it then was claimed.
            Block::Unknown if header.claim_txg.get() == 0 => {}
            _ => return Ok(LogState::InUse),
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
        let header = header_at(&self.store_of(found.object), &found.phys.bp, found.object)?;
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
    /// The last of its records; what the blocks hold beyond it does not count.
    pub last_seq: u64,
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
        let header = header_at(self.mos.objset.store(), &found.phys.bp, found.object)?;
        let first_txg = match header.claim_txg.get() {
            0 => self.mos.objset.root().birth() + 1,
            claimed => claimed,
        };
        let (mut blocks, mut left) = (Vec::new(), bytes_max);
        let chain = chain(&self.mos, &header, |link| {
            let Link::Block(_, block) = link else { return Ok(true) };
            let detail = || format!("{name}: more than {bytes_max} bytes");
            let too_long = || PoolError::Damaged { what: "intent log", detail: detail() };
            left = left.checked_sub(block.len()).ok_or_else(too_long)?;
            blocks.push(block);
            Ok(true)
        })?;
        let (replayed_seq, last_seq) = (header.replay_seq.get(), chain.last_record);
        let log = IntentLog { blocks, first_txg, replayed_seq, last_seq };
        Ok((!log.blocks.is_empty()).then_some(log))
    }
}
