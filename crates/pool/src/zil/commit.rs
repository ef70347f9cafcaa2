//! Making changes stable: one write for all who wait.
//!
//! The one idea: who comes while a write is under way waits for its end; the first to wake then writes what has
//! come together, for all. The txg to which the next block belongs is held until the block that leads to it is
//! stable: else that place could get into the space maps of an uberblock whose log does not lead to it.

use format::zil::ZIL_CHAIN_SIZE;
use rt::sync::Arc;
use rt::sync::atomic::Ordering;

use super::block::{Filled, Filling, size_of};
use super::chain::{Block, Chain, Fate, size_for};
use super::queue::{Data, Entry, What};
use super::{State, SyncMode};
use crate::dataset::Dataset;
use crate::error::Result;
use crate::pool::{Pool, Writing};

/// Data of one object that is written to the log; more goes out with its txg.
pub(super) const DATA_MAX: u64 = 4 << 20;
/// Data of one object that need not go to the log: with `logbias=throughput`, or when the log has much already.
const LARGE: u64 = 32 << 10;
/// Data of one object that does not go to the log where others made as much stable a txg ago.
const MUCH: u64 = 1 << 20;
/// Bytes of a log, with what is on its way there, from which on more than a little of one object does not go there.
const LOG_LARGE_BYTES: u64 = 8 << 20;
/// Bytes of a log at which a txg is asked for, and at which one waits for it: whoever replays it holds it in memory.
const LOG_SYNC_BYTES: u64 = 32 << 20;
const LOG_MAX_BYTES: u64 = 48 << 20;
/// Free space that a commit wants to see beside what was promised to others, in bytes.
const ROOM_BYTES: u64 = 20 << 20;
/// Bytes that the first block of a log holds.
const FIRST_BYTES: usize = 8192;

/// How a promise is kept.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Way {
    /// When records up to this one are in the log.
    Log(u64),
    /// With a txg.
    Txg,
    /// It need not be.
    None,
}

/// What somebody was promised to be made stable ([`Pool::promise`]).
#[must_use = "nothing is stable before `Pool::keep`"]
#[derive(Debug)]
pub struct Stable(Way);

impl Pool {
    /// Prepares to make all changes of an object so far stable, and what they depend on. The caller holds the lock
    /// that keeps others from changing the object.
    ///
    /// # Errors
    /// A pool that can only be read.
    pub fn promise(&self, dataset: &Arc<Dataset>, object: u64) -> Result<Stable> {
        let nothing = self.in_memory || dataset.read_only_because.is_some();
        if nothing || dataset.sync_mode() == SyncMode::Disabled {
            return Ok(Stable(Way::None));
        }
        let log = &dataset.log;
        if !log.is_recording() {
            return Ok(Stable(Way::Txg));
        }
        let synced = self.writing()?.txgs.last_synced();
        let (coming, entries) = {
            let mut state = log.state.lock();
            // What nobody told of may be this object's, as all that is older than the log.
            let untold = state.queue.untold_until(object).max(state.incomplete_until) > synced;
            let written = state.queue.written(object);
            let open = self.writing()?.txgs.open();
            if untold || !state.takes(written, open, log.throughput.load(Ordering::Relaxed)) {
                return Ok(Stable(Way::Txg));
            }
            state.coming += written;
            (written, state.queue.take_of(object))
        };
        // Copied while nobody can change it; others go on.
        let last = entries.last().map_or(0, |entry| entry.txg);
        let new = entries.into_iter().filter(|entry| entry.txg > synced);
        let copied: Result<Vec<_>> = new.map(|entry| with_data(dataset, entry)).collect();
        let mut state = log.state.lock();
        state.coming -= coming;
        let Ok(copied) = copied else {
            // They are out of the queue now.
            state.incomplete_until = state.incomplete_until.max(last);
            return Ok(Stable(Way::Txg));
        };
        copied.into_iter().flatten().for_each(|entry| state.queue.push(entry));
        state.bound(self.writing()?.txgs.open());
        Ok(Stable(Way::Log(state.queue.pushed())))
    }

    /// Waits until what was promised is stable.
    ///
    /// # Errors
    /// A pool that is suspended; a data set that was rolled back or destroyed, with what was promised.
    pub fn keep(&self, dataset: &Arc<Dataset>, promised: Stable) -> Result<()> {
        match promised.0 {
            Way::None => {}
            Way::Log(ticket) if self.commit(dataset, ticket) => {}
            _ => {
                self.start_log(dataset)?;
                dataset.log.state.lock().waiting += 1;
                let synced = self.sync();
                dataset.log.state.lock().waiting -= 1;
                synced?;
            }
        }
        dataset.not_revoked()
    }

    /// Begins the log of a data set that has none: the header of the next txg leads to it.
    fn start_log(&self, dataset: &Arc<Dataset>) -> Result<()> {
        let log = &dataset.log;
        let never = dataset.revoked.load(Ordering::Relaxed) || dataset.replaying.lock().is_some();
        let writing = self.writing()?;
        if never || log.is_recording() {
            return Ok(());
        }
        let mut state = log.state.lock();
        if log.is_recording() || !state.chain.is_empty() || writing.leaves_no_logs() {
            return Ok(());
        }
        // Who enters a txg from here on tells of its changes; those who are in one may not.
        log.recording.store(true, Ordering::SeqCst);
        let Ok(tx) = writing.txgs.pin() else {
            log.recording.store(false, Ordering::SeqCst);
            return Err(self.suspended_error());
        };
        // Whoever waits for one of these gets a txg: they were never written.
        state.queue.clear();
        state.seq = 0;
        state.incomplete_until = state.incomplete_until.max(tx.txg());
        state.used_txg = tx.txg();
        let guids = {
            let mut random = self.random.lock();
            [random.next_u64(), random.next_u64()]
        };
        state.chain.begin(guids);
        let size = size_for(FIRST_BYTES, writing.writer.granule());
        match state.chain.take(&writing.writer, &tx, dataset.object, size) {
            Ok(block) => state.chain.push(block),
            // There will be a txg each time.
            Err(_) => log.recording.store(false, Ordering::SeqCst),
        }
        Ok(())
    }

    /// Waits until the records up to `ticket` are in the log; false: they are not, and a txg has to do it.
    fn commit(&self, dataset: &Arc<Dataset>, ticket: u64) -> bool {
        let Ok(writing) = self.writing() else { return false };
        let log = &dataset.log;
        let mut state = log.state.lock();
        loop {
            if state.done >= ticket {
                return true;
            }
            if !self.may_commit(writing, &state) {
                return false;
            }
            if !state.committing {
                break;
            }
            state = log.changed.wait(state);
        }
        state.committing = true;
        drop(state);
        if !self.log_has_room(writing, dataset) {
            log.state.lock().committing = false;
            log.changed.notify_all();
            return false;
        }
        // Until it is given back no uberblock comes that this write is not in time for.
        let tx = writing.txgs.pin().ok();
        let done = tx.as_ref().is_some_and(|tx| self.write_records(writing, dataset, tx));
        log.state.lock().committing = false;
        log.changed.notify_all();
        drop(tx);
        done
    }

    fn may_commit(&self, writing: &Writing, state: &State) -> bool {
        let synced = writing.txgs.last_synced();
        state.chain.is_live(synced)
            && !writing.without_logs.load(Ordering::SeqCst)
            && state.incomplete_until <= synced
            && state.chain.bytes_on_disk() <= LOG_MAX_BYTES
    }

    /// Is there room for a log beside all that was admitted? It is no reason for a txg to fail in its middle.
    fn log_has_room(&self, writing: &Writing, dataset: &Arc<Dataset>) -> bool {
        let copies = u64::from(dataset.objset.policy().copies.max(1));
        let wanted = writing.txgs.outstanding().saturating_mul(copies);
        let wanted = wanted.saturating_add(wanted / 16).saturating_add(ROOM_BYTES);
        let room = dataset.room(self);
        room.is_ok_and(|room| wanted.saturating_add(room.last) <= room.ready)
    }

    /// Writes what is ready, in the name of all who wait.
    fn write_records(&self, writing: &Writing, dataset: &Arc<Dataset>, tx: &dmu::Tx<'_>) -> bool {
        let log = &dataset.log;
        let (entries, coming, upto, until, first, seq, predicted) = {
            let mut state = log.state.lock();
            if !self.may_commit(writing, &state) {
                return false;
            }
            let entries = state.queue.take(writing.txgs.last_synced());
            let upto = state.queue.pushed();
            if entries.is_empty() {
                // A txg was faster.
                state.done = state.done.max(upto);
                return true;
            }
            let until = needed_until(tx.txg(), &entries);
            let Some(last) = state.chain.last_mut() else { return false };
            last.fate = Fate::Written;
            last.until = until;
            let first = last.bp;
            let predicted = state.sizes.iter().copied().max().unwrap_or(0);
            let coming = entries.iter().map(|entry| size_of(entry) as u64).sum::<u64>();
            state.coming += coming;
            (entries, coming, upto, until, first, state.seq, predicted)
        };
        let mut taken = Vec::new();
        let filled = self.fill(writing, dataset, tx, (first, seq, predicted), entries, &mut taken);
        let mut state = log.state.lock();
        state.coming -= coming;
        // What was cut while it was read would come back as long as it was, with zeros.
        let have_changed = state.queue.have_changed();
        let written = match filled {
            Ok((filled, seq, bytes)) if !have_changed => {
                // It may have been taken away in the meantime.
                let last = state.chain.last().map(|block| block.bp);
                if last != Some(first) {
                    writing.log_dying.lock().extend(taken.iter().map(Chain::without));
                    return false;
                }
                let count = taken.len();
                for (place, mut block) in taken.into_iter().enumerate() {
                    let is_last = place + 1 == count;
                    if !is_last {
                        (block.fate, block.until) = (Fate::Written, until);
                    }
                    state.chain.push(block);
                }
                state.seq = seq;
                state.sizes.rotate_right(1);
                state.sizes[0] = bytes;
                state.used_txg = tx.txg();
                if state.chain.bytes() > LOG_SYNC_BYTES {
                    writing.bell.ask(tx.txg());
                }
                drop(state);
                let parts = |block: &Filled| {
                    let dva = block.bp.dvas().next();
                    let part = dva.is_some_and(|dva| writing.writer.writes_parts(dva));
                    let used = block.used.next_multiple_of(4096).min(block.bytes.len());
                    if part { used } else { block.bytes.len() }
                };
                let blocks: Vec<_> =
                    filled.iter().map(|block| (block.bp, &block.bytes[..parts(block)])).collect();
                writing.writer.write_log(&blocks).is_ok()
            }
            _ => {
                drop(state);
                writing.log_dying.lock().extend(taken.iter().map(Chain::without));
                false
            }
        };
        let mut state = log.state.lock();
        state.chain.settle();
        if written {
            state.done = state.done.max(upto);
        } else {
            // What follows in the log would not be found; and these records are gone.
            state.chain.broken = true;
            state.incomplete_until = state.incomplete_until.max(until);
        }
        written
    }

    /// Puts records into blocks; also gives the number of the last one, and their bytes.
    fn fill(
        &self,
        writing: &Writing,
        dataset: &Arc<Dataset>,
        tx: &dmu::Tx<'_>,
        (first, seq, predicted): (format::BlkPtr, u64, usize),
        entries: Vec<Entry>,
        taken: &mut Vec<Block>,
    ) -> Result<(Vec<Filled>, u64, usize)> {
        let mut whole = Vec::with_capacity(entries.len());
        for entry in entries {
            whole.extend(with_data(dataset, entry)?);
        }
        let bytes: usize = ZIL_CHAIN_SIZE + whole.iter().map(size_of).sum::<usize>();
        let granule = writing.writer.granule();
        let usual = predicted.max(bytes);
        let next = |left: usize| {
            let size = size_for(if left == 0 { usual } else { left }, granule);
            let mut state = dataset.log.state.lock();
            let block = state.chain.take(&writing.writer, tx, dataset.object, size)?;
            taken.push(block);
            Ok(block.bp)
        };
        let mut filling =
            Filling::new(first, seq, bytes, dataset.objset.store().buffers().clone(), next);
        for entry in whole {
            filling.add(entry)?;
        }
        let (filled, seq) = filling.end()?;
        Ok((filled, seq, bytes))
    }
}

impl State {
    /// Is the log the place for `written` bytes of one object, while this txg is open? Where many make much stable, a txg
    /// does it for all of them, and writes it once: others wait for one already, or have copied, or are about to, what is
    /// not in the chain yet, or they have just waited, and come again.
    fn takes(&mut self, written: u64, open: u64, throughput: bool) -> bool {
        if self.waiting > 0 && written > MUCH {
            self.crowded_until = open + 1;
        }
        let limit = if throughput { LARGE } else { DATA_MAX };
        let queued = self.queue.bytes() as u64 + self.queue.unread();
        let others = self.chain.bytes() + queued + self.coming;
        let many = self.waiting > 0 || others + written > LOG_LARGE_BYTES;
        let crowded = open <= self.crowded_until && written > MUCH;
        written <= LARGE || written <= limit && !many && !crowded
    }
}

/// The txg with which blocks are superfluous that are written while `txg` is held: it may be closing already, and others
/// may have told what they did in the next one.
fn needed_until(txg: u64, entries: &[Entry]) -> u64 {
    entries.iter().map(|entry| entry.txg).fold(txg, u64::max)
}

/// A record with its data, as they are now; `None`: the object is gone.
fn with_data(dataset: &Dataset, entry: Entry) -> Result<Option<Entry>> {
    let What::Written { object, offset, length } = entry.what else { return Ok(Some(entry)) };
    let open = match dataset.objset.object(object) {
        Ok(open) => open,
        Err(dmu::DmuError::NoObject { .. }) => return Ok(None),
        Err(e) => return Err(e.into()),
    };
    let data = match lent(&open, offset, length) {
        Ok(Some(lent)) => Ok(Data::Lent(lent)),
        Ok(None) => {
            let mut data = dataset.objset.store().buffers().get(length as usize);
            open.read(offset, &mut data).map(|()| Data::Copied(data))
        }
        Err(e) => Err(e),
    };
    match data {
        Ok(data) => Ok(Some(Entry { txg: entry.txg, what: What::Data { object, offset, data } })),
        Err(dmu::DmuError::NoObject { .. }) => Ok(None),
        Err(e) => Err(e.into()),
    }
}

/// The bytes of a write, if they are most of one record: who changes it before they are in the log has to copy all of it.
fn lent(object: &dmu::Object, offset: u64, length: u64) -> dmu::Result<Option<dmu::Lent>> {
    if u64::from(object.block_size()?) > 2 * length {
        return Ok(None);
    }
    let lent = object.lend_kept(offset, length as usize)?;
    Ok(lent.filter(|lent| lent.pieces().count() == 1))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn much_goes_to_the_log_of_whom_nobody_is_beside() {
        let mut state = State::default();
        assert!(state.takes(DATA_MAX, 5, false) && !state.takes(DATA_MAX + 1, 5, false));
        assert!(state.takes(LARGE, 5, true) && !state.takes(LARGE + 1, 5, true));
        // One waits for a txg.
        state.waiting = 1;
        assert!(state.takes(LARGE, 5, false) && !state.takes(LARGE + 1, 5, false));
        // Others are on their way into the log.
        (state.waiting, state.coming) = (0, LOG_LARGE_BYTES - DATA_MAX);
        assert!(state.takes(DATA_MAX, 5, false));
        state.queue.push(Entry { txg: 1, what: What::Record(vec![0; 192]) });
        assert!(state.takes(LARGE, 5, false) && !state.takes(DATA_MAX, 5, false));
    }

    #[test]
    fn a_block_is_needed_until_the_last_of_its_records_is_synced() {
        let entry = |txg| Entry { txg, what: What::Record(vec![0; 192]) };
        assert_eq!(needed_until(7, &[entry(6), entry(8), entry(7)]), 8);
        assert_eq!(needed_until(7, &[entry(5)]), 7);
    }

    #[test]
    fn a_crowd_that_has_just_waited_for_a_txg_waits_for_the_next() {
        let mut state = State { waiting: 1, ..State::default() };
        assert!(!state.takes(MUCH + 1, 5, false));
        state.waiting = 0;
        assert!(!state.takes(MUCH + 1, 6, false) && state.takes(MUCH, 6, false));
        assert!(state.takes(MUCH + 1, 7, false));
    }
}
