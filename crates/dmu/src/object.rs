//! One object in memory: its newest state, and what each living txg has changed.
//!
//! # The state machine of a record
//!
//! A record can be dirty in the open txg, frozen in the quiescing one and in flight in the syncing
//! one, all at once. `changes` holds one entry per living txg that touched the object, oldest
//! first. A write goes into the entry of its own txg, starting from the newest version; a reader
//! takes the newest version, which is the last entry that has the record (or has freed it), else
//! the disk. An entry of a frozen txg is never changed: buffers are shared by `Arc`, and only the
//! entry of the writer's own txg hands out `&mut`, copying if a reader still holds the buffer.
//! The entry leaves the list in one step with the new block pointers ([`Object::finish`]), so a
//! record is readable from memory until its pointer can be followed on disk.
//!
//! The header (block size, bonus, kind) follows the same rule: `newest` is the newest version, and
//! the first change of a later txg saves the older txg's version in its entry.
//!
//! Lock order: `writer` (one change at a time), then `state` (never held over I/O).

use std::collections::{BTreeMap, VecDeque};

use format::dnode::DNODE_SLOT;
use format::{BlkPtr, DnodePhys};
use rt::buf::PooledBuf;
use rt::sync::{Arc, Mutex, RwLock};
use store::{Block, Store};

use crate::bytes::copy_padded;
use crate::dirty::DirtyLists;
use crate::error::{DmuError, Result};
use crate::extents::Extents;
use crate::txg::Tx;
use crate::zap::Memo;

mod ahead;
mod dying;
mod lent;
mod parents;
mod prepared;
mod reach;
mod read;

pub(crate) use dying::Left;
pub use lent::Lent;
pub(crate) use read::SPILL;

/// Memory for what a txg changes of an object beside its records, about, in bytes.
const CHANGES_BYTES: u64 = 2048;

/// The bytes of one record, shared with whoever reads them.
pub(crate) type Record = Arc<PooledBuf>;

/// What a txg knows of the spill block.
#[derive(Clone, Debug)]
enum Spill {
    None,
    OnDisk,
    New(Block),
}

/// The newest header of an object.
#[derive(Clone, Debug)]
struct Head {
    /// Kind, sizes and bonus count; block pointers, levels and used bytes are those of `synced`.
    dnode: DnodePhys,
    spill: Spill,
}

impl Head {
    fn max_block(&self) -> u64 {
        self.dnode.max_block().min(u64::MAX - 1)
    }
}

/// What one txg has changed.
#[derive(Default)]
struct Changes {
    txg: u64,
    records: BTreeMap<u64, Record>,
    freed: Extents,
    /// The header as this txg left it, once a later txg has changed it; inner `None`: freed.
    head: Option<Option<Head>>,
    spill_changed: bool,
}

struct State {
    /// `None`: freed (or never allocated).
    newest: Option<Head>,
    /// Gone for all but the sync, which frees it in portions.
    dying: Option<Head>,
    /// As on disk.
    synced: Option<Arc<DnodePhys>>,
    changes: VecDeque<Changes>,
    /// Counts how often `synced` was replaced.
    version: u64,
}

/// What a ZAP in the object keeps between its changes.
///
/// A change of a ZAP may take several blocks: readers of the ZAP wait for its end.
#[derive(Default)]
pub(crate) struct ZapState {
    pub(crate) lock: RwLock<()>,
    /// Shared, so that no reader holds the lock while it reads blocks.
    memo: Mutex<Arc<Memo>>,
}

impl ZapState {
    pub(crate) fn take(&self) -> Memo {
        Arc::unwrap_or_clone(std::mem::take(&mut *self.memo.lock()))
    }

    pub(crate) fn get(&self) -> Arc<Memo> {
        self.memo.lock().clone()
    }

    pub(crate) fn set(&self, memo: Memo) {
        *self.memo.lock() = Arc::new(memo);
    }
}

/// One object of an object set.
pub struct Object {
    number: u64,
    /// Slots of its dnode, which never change.
    slots: u64,
    store: Arc<Store>,
    writer: Mutex<()>,
    state: Mutex<State>,
    dirty: Arc<DirtyLists>,
    zap: ZapState,
    ahead: Mutex<ahead::Ahead>,
}

/// What a txg changed, frozen for its sync.
pub(crate) struct Frozen {
    /// The header; `None`: the object was freed.
    pub(crate) dnode: Option<Box<DnodePhys>>,
    /// As on disk before this txg.
    pub(crate) synced: Option<Arc<DnodePhys>>,
    pub(crate) records: Vec<(u64, Record)>,
    pub(crate) freed: Extents,
    /// A spill block to write (`Some(None)`: to drop).
    pub(crate) spill: Option<Option<Block>>,
}

impl Object {
    pub(crate) fn on_disk(
        number: u64,
        store: Arc<Store>,
        dirty: Arc<DirtyLists>,
        dnode: DnodePhys,
    ) -> Object {
        let spill = if dnode.has_spill() { Spill::OnDisk } else { Spill::None };
        let slots = dnode.slots() as u64;
        let newest = Some(Head { dnode: dnode.clone(), spill });
        let (dying, changes) = Default::default();
        let synced = Some(Arc::new(dnode));
        let state = State { newest, dying, synced, changes, version: 0 };
        Self::assemble((number, slots), store, dirty, state)
    }

    fn assemble(
        (number, slots): (u64, u64),
        store: Arc<Store>,
        dirty: Arc<DirtyLists>,
        state: State,
    ) -> Object {
        let (writer, state) = (Mutex::new(()), Mutex::new(state));
        Object {
            number,
            slots,
            store,
            writer,
            state,
            dirty,
            zap: ZapState::default(),
            ahead: Mutex::default(),
        }
    }

    pub(crate) fn zap_memo(&self) -> &ZapState {
        &self.zap
    }

    /// A new object, dirty in the txg of `tx`.
    pub(crate) fn create(
        number: u64,
        store: Arc<Store>,
        dirty: Arc<DirtyLists>,
        dnode: DnodePhys,
        tx: &Tx<'_>,
    ) -> Arc<Object> {
        let slots = dnode.slots() as u64;
        let newest = Some(Head { dnode, spill: Spill::None });
        let (dying, changes) = Default::default();
        let state = State { newest, dying, synced: None, changes, version: 0 };
        let object = Arc::new(Self::assemble((number, slots), store, dirty, state));
        object.touch(&mut object.state.lock(), tx);
        object
    }

    /// The object's number.
    pub fn number(&self) -> u64 {
        self.number
    }

    /// Slots of 512 bytes that its dnode takes.
    pub(crate) fn slots(&self) -> u64 {
        self.slots
    }

    fn gone(&self) -> DmuError {
        DmuError::NoObject { object: self.number }
    }

    fn block_error(&self, block: u64) -> impl FnOnce(store::StoreError) -> DmuError + use<> {
        let object = self.number;
        move |source| DmuError::Block { object, level: 0, block, source: Box::new(source) }
    }

    /// The newest header. Its block pointers and levels are not to be followed.
    pub fn header(&self) -> Result<DnodePhys> {
        self.state.lock().newest.as_ref().map(|h| h.dnode.clone()).ok_or_else(|| self.gone())
    }

    /// Calls `f` with the newest header, without copying it. As [`Object::header`] otherwise.
    pub fn with_header<R>(&self, f: impl FnOnce(&DnodePhys) -> R) -> Result<R> {
        let state = self.state.lock();
        state.newest.as_ref().map(|h| f(&h.dnode)).ok_or_else(|| self.gone())
    }

    /// Has the newest version a spill block?
    pub fn has_spill(&self) -> Result<bool> {
        let state = self.state.lock();
        let head = state.newest.as_ref().ok_or_else(|| self.gone())?;
        Ok(!matches!(head.spill, Spill::None))
    }

    /// Does the object (still) exist?
    pub fn exists(&self) -> bool {
        self.state.lock().newest.is_some()
    }

    /// The dnode as it is on disk.
    pub fn synced(&self) -> Option<Arc<DnodePhys>> {
        self.state.lock().synced.clone()
    }

    /// Size of a data block, in bytes.
    pub fn block_size(&self) -> Result<u32> {
        let state = self.state.lock();
        state.newest.as_ref().map(|h| h.dnode.block_size()).ok_or_else(|| self.gone())
    }

    /// The highest block ever written. There is always a next number, whatever a damaged dnode says.
    pub fn max_block(&self) -> Result<u64> {
        let state = self.state.lock();
        state.newest.as_ref().map(Head::max_block).ok_or_else(|| self.gone())
    }

    /// The newest bonus.
    pub fn bonus(&self) -> Result<Vec<u8>> {
        let state = self.state.lock();
        state.newest.as_ref().map(|h| h.dnode.bonus().to_vec()).ok_or_else(|| self.gone())
    }

    /// Space used on disk as of the last sync, in bytes.
    pub fn used_bytes(&self) -> u64 {
        self.state.lock().synced.as_ref().map_or(0, |dnode| dnode.used_bytes())
    }

    /// Space as stat(2) tells of it, in bytes: what is used, and the dnode itself. So no file has none, and nobody takes one
    /// that has not been synced yet for a single hole.
    ///
    /// # Errors
    /// It has been freed.
    pub fn stat_bytes(&self) -> Result<u64> {
        let state = self.state.lock();
        let newest = state.newest.as_ref().ok_or_else(|| self.gone())?;
        let slots = (DNODE_SLOT * newest.dnode.slots()) as u64;
        Ok(state.synced.as_ref().map_or(0, |dnode| dnode.used_bytes()) + slots)
    }

    /// Bytes dirty in memory.
    pub fn dirty_bytes(&self) -> u64 {
        let state = self.state.lock();
        let records = state.changes.iter().flat_map(|c| c.records.values());
        records.map(|r| r.len() as u64).sum()
    }

    /// The txg in which its contents changed last: as living txgs have changed them, else the newest birth
    /// that its pointers tell. 0: it never had any.
    pub fn contents_txg(&self) -> Result<u64> {
        let state = self.state.lock();
        state.newest.as_ref().ok_or_else(|| self.gone())?;
        let changed =
            |c: &&Changes| !c.records.is_empty() || c.freed.first_in(0, u64::MAX).is_some();
        if let Some(changes) = state.changes.iter().rev().find(changed) {
            return Ok(changes.txg);
        }
        let births = state.synced.iter().flat_map(|dnode| dnode.blkptrs()).map(BlkPtr::birth);
        Ok(births.max().unwrap_or(0))
    }

    /// Would it be the same if it were loaded anew? `None`: somebody has its state just now.
    pub(crate) fn is_only_remembered(&self) -> Option<bool> {
        self.state.try_lock().map(|state| state.changes.is_empty())
    }

    // ---- changing ----

    /// The entry of the txg of `tx`, made if it is missing; registers the object as dirty.
    fn touch<'s>(self: &Arc<Self>, state: &'s mut State, tx: &Tx<'_>) -> &'s mut Changes {
        let last = state.changes.back_mut();
        if last.as_ref().is_none_or(|c| c.txg != tx.txg()) {
            if let Some(older) = last {
                assert!(older.txg < tx.txg(), "INV-6: a change to a frozen txg");
                if older.head.is_none() {
                    older.head = Some(state.newest.clone());
                }
            }
            // One txg is all that most objects are changed in.
            state.changes.reserve_exact(1);
            state.changes.push_back(Changes { txg: tx.txg(), ..Changes::default() });
            self.dirty.add(tx.txg(), self.clone());
            tx.dirtied(CHANGES_BYTES, 2048);
        }
        state.changes.back_mut().expect("just made")
    }

    /// Writes `data` at byte `offset`; the block size stays what it is.
    pub fn write(self: &Arc<Self>, tx: &Tx<'_>, offset: u64, data: &[u8]) -> Result<()> {
        let size = self.block_size()? as usize;
        let mut at = offset;
        let mut rest = data;
        while !rest.is_empty() {
            let block = at / size as u64;
            let inside = (at % size as u64) as usize;
            let part = rest.len().min(size - inside);
            let (now, later) = rest.split_at(part);
            if part == size {
                let mut buf = self.store.buffers().get(size);
                buf.copy_from_slice(now);
                let _writer = self.writer.lock();
                self.put_record(tx, block, buf)?;
            } else {
                self.with_block_mut(tx, block, |bytes| {
                    bytes[inside..inside + part].copy_from_slice(now);
                })?;
            }
            at += part as u64;
            rest = later;
        }
        Ok(())
    }

    /// As [`Object::write`], of bytes that are given away: those of a whole record are not copied.
    pub fn write_given(self: &Arc<Self>, tx: &Tx<'_>, offset: u64, data: PooledBuf) -> Result<()> {
        let size = u64::from(self.block_size()?);
        if data.len() as u64 != size || !offset.is_multiple_of(size) {
            return self.write(tx, offset, &data);
        }
        let _writer = self.writer.lock();
        self.put_record(tx, offset / size, data)
    }

    /// Puts a whole record in place; the caller holds `writer`.
    fn put_record(self: &Arc<Self>, tx: &Tx<'_>, block: u64, buf: PooledBuf) -> Result<()> {
        self.is_within_reach(tx, block)?;
        let mut state = self.state.lock();
        let head = state.newest.as_mut().ok_or_else(|| self.gone())?;
        if head.dnode.block_size() as usize != buf.len() {
            let what = "its block size changed during a write";
            return Err(DmuError::Limit { object: self.number, what });
        }
        let changes = self.touch(&mut state, tx);
        tx.dirtied(buf.capacity() as u64, self.store.dsize_max(buf.len() as u64));
        changes.freed.remove(block, 1);
        changes.records.insert(block, Arc::new(buf));
        let head = state.newest.as_mut().expect("looked at above");
        if block > head.dnode.max_block() {
            head.dnode.core_mut().max_block.set(block);
        }
        Ok(())
    }

    /// Puts the records of a new object in place, each of the object's block size.
    pub fn fill(self: &Arc<Self>, tx: &Tx<'_>, records: Vec<PooledBuf>) -> Result<()> {
        let _writer = self.writer.lock();
        for (block, record) in (0..).zip(records) {
            self.put_record(tx, block, record)?;
        }
        Ok(())
    }

    /// Changes the bytes of block `block`, starting from its newest version.
    pub fn with_block_mut<R>(
        self: &Arc<Self>,
        tx: &Tx<'_>,
        block: u64,
        f: impl FnOnce(&mut [u8]) -> R,
    ) -> Result<R> {
        let _writer = self.writer.lock();
        {
            let mut state = self.state.lock();
            let current = state.changes.back_mut().filter(|c| c.txg == tx.txg());
            if let Some(buf) =
                current.and_then(|c| c.records.get_mut(&block)).and_then(Arc::get_mut)
            {
                return Ok(f(buf));
            }
        }
        let (newest, size) = self.newest(block)?;
        let mut buf = self.store.buffers().get(size);
        copy_padded(newest.bytes().unwrap_or_default(), 0, &mut buf);
        let result = f(&mut buf);
        self.put_record(tx, block, buf)?;
        Ok(result)
    }

    /// Frees blocks `[first, first + count)`; they read as zeros from then on.
    pub fn free_blocks(self: &Arc<Self>, tx: &Tx<'_>, first: u64, count: u64) -> Result<()> {
        let _writer = self.writer.lock();
        self.are_within_reach(first, first.saturating_add(count))?;
        let mut state = self.state.lock();
        let head = state.newest.as_ref().ok_or_else(|| self.gone())?;
        let max = head.max_block();
        if count == 0 || first > max {
            return Ok(());
        }
        let end = first.saturating_add(count).min(max + 1);
        let changes = self.touch(&mut state, tx);
        let mut later = changes.records.split_off(&first);
        changes.records.append(&mut later.split_off(&end));
        changes.freed.add(first, end - first);
        if end == max + 1 {
            let head = state.newest.as_mut().expect("looked at above");
            head.dnode.core_mut().max_block.set(first.saturating_sub(1));
        }
        Ok(())
    }

    /// Zeroes bytes `[offset, offset + len)`: whole blocks are freed, the edges overwritten.
    pub fn free_bytes(self: &Arc<Self>, tx: &Tx<'_>, offset: u64, len: u64) -> Result<()> {
        let size = u64::from(self.block_size()?);
        let covered = (self.max_block()? + 1).saturating_mul(size);
        let end = offset.saturating_add(len).min(covered);
        if offset >= end {
            return Ok(());
        }
        let first = offset.div_ceil(size);
        let last = if end == covered { end.div_ceil(size) } else { end / size };
        let zero = |from: u64, to: u64| -> Result<()> {
            let block = from / size;
            if self.next_block(block, block + 1, true)?.is_none() {
                return Ok(());
            }
            self.with_block_mut(tx, block, |b| {
                b[(from % size) as usize..][..(to - from) as usize].fill(0);
            })
        };
        if first > last {
            return zero(offset, end);
        }
        if !offset.is_multiple_of(size) {
            zero(offset, first.saturating_mul(size).min(end))?;
        }
        let whole = last.saturating_mul(size);
        if whole < end && last >= first {
            zero(whole, end)?;
        }
        self.free_blocks(tx, first, last - first)
    }

    /// Changes the header by `f`; kind, slots and number of block pointers must stay.
    pub fn change_header<R>(
        self: &Arc<Self>,
        tx: &Tx<'_>,
        f: impl FnOnce(&mut DnodePhys) -> R,
    ) -> Result<R> {
        let _writer = self.writer.lock();
        let mut state = self.state.lock();
        if state.newest.is_none() {
            return Err(self.gone());
        }
        self.touch(&mut state, tx);
        let head = state.newest.as_mut().expect("looked at above");
        Ok(f(&mut head.dnode))
    }

    /// Replaces the bonus; with `spill`, what did not fit into it (`None` drops a spill block).
    pub fn set_bonus(
        self: &Arc<Self>,
        tx: &Tx<'_>,
        bonus: &[u8],
        spill: Option<Vec<u8>>,
    ) -> Result<()> {
        let format = |source| DmuError::Format { object: self.number, source };
        let _writer = self.writer.lock();
        let mut state = self.state.lock();
        if state.newest.is_none() {
            return Err(self.gone());
        }
        let changes = self.touch(&mut state, tx);
        changes.spill_changed |= spill.is_some();
        let head = state.newest.as_mut().expect("looked at above");
        let had = !matches!(head.spill, Spill::None);
        let dnode = &mut head.dnode;
        // The flag must match before the bonus is sized against it.
        if spill.is_some() && !dnode.has_spill() {
            let old = dnode.bonus().len().min(dnode.bonus_max(true));
            let keep = dnode.bonus()[..old].to_vec();
            dnode.set_bonus(&keep).map_err(format)?;
            dnode.set_spill(Some(BlkPtr::ZERO)).map_err(format)?;
        } else if spill.is_none() && had {
            dnode.set_spill(None).map_err(format)?;
        }
        dnode.set_bonus(bonus).map_err(format)?;
        match spill {
            Some(bytes) => head.spill = Spill::New(Arc::new(bytes.into())),
            None => head.spill = Spill::None,
        }
        if had && matches!(head.spill, Spill::None) {
            state.changes.back_mut().expect("touched above").spill_changed = true;
        }
        Ok(())
    }

    /// Changes the block size of an object of (at most) one block; its bytes are kept.
    pub fn set_block_size(self: &Arc<Self>, tx: &Tx<'_>, size: u32) -> Result<()> {
        if size == self.block_size()? {
            return Ok(());
        }
        if self.max_block()? > 0 || !size.is_multiple_of(512) || size == 0 {
            let what = "the block size of an object of several blocks cannot change";
            return Err(DmuError::Limit { object: self.number, what });
        }
        let has_data = self.next_block(0, 1, true)?.is_some();
        let _writer = self.writer.lock();
        let mut old = None;
        if has_data {
            let mut buf = self.store.buffers().get(size as usize);
            self.with_block(0, |bytes| copy_padded(bytes, 0, &mut buf))?;
            old = Some(buf);
        }
        let mut state = self.state.lock();
        self.touch(&mut state, tx);
        let head = state.newest.as_mut().ok_or_else(|| self.gone())?;
        head.dnode.core_mut().data_block_sectors.set((size / 512) as u16);
        drop(state);
        old.map_or(Ok(()), |buf| self.put_record(tx, 0, buf))
    }

    /// Frees the object with all its blocks.
    pub(crate) fn free(self: &Arc<Self>, tx: &Tx<'_>) -> Result<()> {
        let _writer = self.writer.lock();
        let mut state = self.state.lock();
        if state.newest.is_none() {
            return Err(self.gone());
        }
        let changes = self.touch(&mut state, tx);
        changes.records.clear();
        state.newest = None;
        Ok(())
    }

    // ---- syncing ----

    /// What `txg` has changed; stays readable until [`Object::finish`].
    pub(crate) fn freeze(&self, txg: u64) -> Option<Frozen> {
        let state = self.state.lock();
        let changes = state.changes.front().filter(|c| c.txg == txg)?;
        let head = match &changes.head {
            Some(head) => head.as_ref(),
            None => state.newest.as_ref().or(state.dying.as_ref()),
        };
        let spill = changes.spill_changed.then(|| match head.map(|h| &h.spill) {
            Some(Spill::New(bytes)) => Some(bytes.clone()),
            _ => None,
        });
        Some(Frozen {
            dnode: head.map(|h| Box::new(h.dnode.clone())),
            synced: state.synced.clone(),
            records: changes.records.iter().map(|(b, r)| (*b, r.clone())).collect(),
            freed: changes.freed.clone(),
            spill,
        })
    }

    /// The changes of `txg` are on disk as `dnode` (`None`: the object is gone).
    pub(crate) fn finish(&self, txg: u64, dnode: Option<Box<DnodePhys>>) {
        let mut state = self.state.lock();
        let done = state.changes.pop_front();
        debug_assert_eq!(done.map(|c| c.txg), Some(txg));
        state.synced = dnode.map(|dnode| Arc::new(*dnode));
        state.version += 1;
    }
}
