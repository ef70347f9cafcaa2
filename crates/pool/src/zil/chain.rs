//! The blocks of a log on disk, from the one that the header leads to up to the one that is written next.
//!
//! The one idea: a block goes when its records, itself and its successor are of synced txgs; then the header leads to
//! the successor, which is in the space maps. So with every uberblock the log begins with a block that was born until
//! then, and what was born later is for whoever opens the pool to claim.

use std::collections::VecDeque;

use dmu::Tx;
use format::blkptr::BlkProps;
use format::zil::ZilHeader;
use format::{BlkPtr, Checksum, Compress, Dva, ObjectType};
use store::{Allocator, Writer};

use super::Log;
use crate::error::Result;
use rt::sync::atomic::Ordering;

/// Sizes of blocks, in bytes: OpenZFS reads none that are larger.
const SIZES: [u64; 6] = [4096, 8192, 16 << 10, 36 << 10, 68 << 10, 128 << 10];
/// A log that nobody used for so many txgs goes.
const IDLE_TXGS: u64 = 64;

/// What has become of a block.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Fate {
    /// Nothing is in it.
    Empty,
    /// It is being written.
    Written,
    /// It is on stable storage.
    Stable,
}

/// A block of a log, or room for one.
#[derive(Clone, Copy, Debug)]
pub(super) struct Block {
    pub(super) bp: BlkPtr,
    dva: Dva,
    /// The space maps know of it.
    born: bool,
    pub(super) fate: Fate,
    /// It is needed until this txg is synced.
    pub(super) until: u64,
}

/// A place that nothing leads to any more, freed when the txg that it belongs to is synced.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Dying {
    dva: Dva,
    birth: u64,
    born: bool,
}

impl Dying {
    /// The top-level vdev on which it is.
    pub(crate) fn vdev(&self) -> u32 {
        self.dva.vdev
    }

    /// Frees it in the sync of `txg`, if that is not too early; is it gone?
    pub(crate) fn free(&mut self, allocator: &Allocator, txg: u64) -> Result<bool> {
        if self.birth > txg {
            return Ok(false);
        }
        if !self.born {
            allocator.log_born(self.dva);
            self.born = true;
        }
        allocator.free_dva(self.dva)?;
        Ok(true)
    }
}

#[derive(Default)]
pub(super) struct Chain {
    /// Those that are stable come first.
    blocks: VecDeque<Block>,
    /// Bytes of them, as whoever replays it holds them in memory.
    bytes: u64,
    /// Bytes of blocks that go with the txg that is being synced: until then a log begins with them.
    leaving: u64,
    /// The txg whose header leads to it first.
    header_since: Option<u64>,
    /// A block of it could not be written: what follows is not found.
    pub(super) broken: bool,
    /// Words of all pointers of this chain, but for the number.
    guids: [u64; 2],
    /// Number of the next block.
    next: u64,
}

/// The size of a block for so many bytes.
pub(super) fn size_for(bytes: usize, granule: u64) -> u64 {
    let size = SIZES.iter().find(|size| **size >= bytes as u64);
    let size = size.unwrap_or(&SIZES[SIZES.len() - 1]).next_multiple_of(granule);
    size.min(SIZES[SIZES.len() - 1])
}

impl Chain {
    /// Has it no blocks?
    pub(super) fn is_empty(&self) -> bool {
        self.blocks.is_empty()
    }

    /// The block that is written next.
    pub(super) fn last(&self) -> Option<&Block> {
        self.blocks.back()
    }

    /// The block that is written next.
    pub(super) fn last_mut(&mut self) -> Option<&mut Block> {
        self.blocks.back_mut()
    }

    /// A block that was taken is its last one.
    pub(super) fn push(&mut self, block: Block) {
        self.bytes += block.bp.psize();
        self.blocks.push_back(block);
    }

    /// The first block leaves it.
    fn pop(&mut self) -> Option<Block> {
        let block = self.blocks.pop_front()?;
        self.bytes -= block.bp.psize();
        Some(block)
    }

    /// What was being written is there, or will be missed.
    pub(super) fn settle(&mut self) {
        let new = self.blocks.iter_mut().rev().take_while(|block| block.fate != Fate::Stable);
        for block in new.filter(|block| block.fate == Fate::Written) {
            block.fate = Fate::Stable;
        }
    }

    /// Bytes of its blocks, as whoever replays it holds them in memory.
    pub(super) fn bytes(&self) -> u64 {
        self.bytes
    }

    /// Bytes of all that is to be read after a crash.
    pub(super) fn bytes_on_disk(&self) -> u64 {
        self.bytes + self.leaving
    }

    /// A txg is on stable storage, with its header.
    pub(super) fn synced(&mut self) {
        self.leaving = 0;
    }

    /// Does a header on disk, or about to be, lead to it?
    pub(super) fn is_in_header(&self) -> bool {
        self.header_since.is_some()
    }

    /// Can records be written that are found after a crash, when `synced` is the last txg on disk?
    pub(super) fn is_live(&self, synced: u64) -> bool {
        !self.broken && self.header_since.is_some_and(|txg| txg <= synced)
    }

    /// Begins a new chain, without blocks.
    pub(super) fn begin(&mut self, guids: [u64; 2]) {
        *self = Chain { guids, next: 1, ..Chain::default() };
    }

    /// Takes room for the next block, which belongs to the txg of `tx`. It is not part of the chain yet.
    pub(super) fn take(
        &mut self,
        writer: &Writer,
        tx: &Tx<'_>,
        dataset: u64,
        size: u64,
    ) -> Result<Block> {
        let dva = writer.log_take(size)?;
        let props = BlkProps {
            lsize: size,
            psize: size,
            compress: Compress::Off,
            checksum: Checksum::Zilog2,
            kind: ObjectType::INTENT_LOG,
            level: 0,
        };
        let words = [self.guids[0], self.guids[1], dataset, self.next];
        self.next += 1;
        let bp = BlkPtr::new(props, &[dva], tx.txg(), 0, words);
        // Until the space maps have it, nobody else may count on the space.
        tx.dirtied(0, writer.store().deflate(dva.vdev, dva.asize));
        Ok(Block { bp, dva, born: false, fate: Fate::Empty, until: tx.txg() })
    }

    /// All of it goes.
    pub(super) fn abandon(&mut self) -> Vec<Dying> {
        self.header_since = None;
        self.broken = false;
        self.bytes = 0;
        let blocks = self.blocks.drain(..);
        blocks.map(|Block { bp, dva, born, .. }| Dying { dva, birth: bp.birth(), born }).collect()
    }

    /// A block that was taken, and to which nothing leads, goes.
    pub(super) fn without(block: &Block) -> Dying {
        Dying { dva: block.dva, birth: block.bp.birth(), born: block.born }
    }

    /// The space maps of `txg` learn of its blocks.
    fn births(&mut self, allocator: &Allocator, txg: u64) {
        for block in &mut self.blocks {
            if !block.born && block.bp.birth() <= txg {
                allocator.log_born(block.dva);
                block.born = true;
            }
        }
    }

    /// Is the first block superfluous when `txg` is synced?
    fn first_goes(&self, txg: u64) -> bool {
        let stable = |block: &Block| block.fate == Fate::Stable && block.until <= txg;
        self.blocks.len() > 1 && self.blocks.front().is_some_and(stable)
    }

    /// Does all of it go when `txg` is synced?
    fn goes(&self, txg: u64, wanted: bool) -> bool {
        let over =
            |block: &Block| block.until <= txg && (block.fate != Fate::Written || self.broken);
        !self.blocks.is_empty() && (wanted || self.broken) && self.blocks.iter().all(over)
    }
}

impl Log {
    /// Has it a block on this top-level vdev?
    pub(crate) fn is_on(&self, top: u32) -> bool {
        self.state.lock().chain.blocks.iter().any(|block| block.dva.vdev == top)
    }

    /// The space maps of `txg`, which is being synced, learn of the blocks that belong to it.
    pub(crate) fn births(&self, allocator: &Allocator, txg: u64) {
        if self.is_recording() {
            self.state.lock().chain.births(allocator, txg);
        }
    }

    /// Must the header change with `txg`? `ends`: nobody shall find a log after it.
    pub(crate) fn changes_header(&self, txg: u64, ends: bool) -> bool {
        if !self.is_recording() {
            return false;
        }
        let state = self.state.lock();
        let chain = &state.chain;
        let starts = chain.header_since.is_none() && !chain.blocks.is_empty();
        let starts = starts && chain.blocks.iter().all(|block| block.bp.birth() <= txg);
        let idle = !state.committing && state.used_txg + IDLE_TXGS < txg;
        starts || chain.first_goes(txg) || chain.goes(txg, ends || idle)
    }

    /// The header that `txg` gets; `None`: it stays as it is. What goes is added to `dying`.
    pub(crate) fn header(&self, txg: u64, ends: bool, dying: &mut Vec<Dying>) -> Option<ZilHeader> {
        if !self.is_recording() {
            return None;
        }
        let mut state = self.state.lock();
        let idle = !state.committing && state.used_txg + IDLE_TXGS < txg;
        let committing = state.committing;
        let chain = &mut state.chain;
        if !committing && chain.goes(txg, ends || idle) {
            dying.extend(chain.abandon());
            // What is told from now on until somebody begins anew is not needed: that will be a txg.
            self.recording.store(false, Ordering::SeqCst);
            state.queue.clear();
            return Some(ZilHeader::default());
        }
        if chain.broken || chain.blocks.front().is_none_or(|block| block.bp.birth() > txg) {
            return None;
        }
        let first = chain.blocks.front().map(|block| block.bp);
        while chain.first_goes(txg) {
            let Some(block) = chain.pop() else { break };
            chain.leaving += block.bp.psize();
            dying.push(Chain::without(&block));
        }
        let now = chain.blocks.front().map(|block| block.bp);
        let new = chain.header_since.is_none();
        chain.header_since.get_or_insert(txg);
        let changed = new || now != first;
        let mut header = ZilHeader::default();
        header.log = now.filter(|_| changed)?;
        Some(header)
    }

    /// The head is rolled back or destroyed: its log goes, and is not begun again. `None`: there was none. Also: did a
    /// header lead to it?
    pub(crate) fn revoke(&self) -> Option<(bool, Vec<Dying>)> {
        let mut state = self.state.lock();
        self.recording.store(false, Ordering::SeqCst);
        state.queue.clear();
        // Who is writing finds that it was in vain.
        let had = state.chain.is_in_header();
        let dying = state.chain.abandon();
        state.incomplete_until = u64::MAX;
        (!dying.is_empty()).then_some((had, dying))
    }
}

#[cfg(test)]
mod tests {
    use super::super::State;
    use super::super::queue::{Entry, What};
    use super::*;

    const BYTES: u64 = 128 << 10;

    /// The `number`th block of a log, of the txg `birth`.
    fn block(number: u64, birth: u64, fate: Fate, until: u64) -> Block {
        let dva = Dva { vdev: 0, offset: number * BYTES, asize: BYTES, gang: false };
        let props = BlkProps {
            lsize: BYTES,
            psize: BYTES,
            compress: Compress::Off,
            checksum: Checksum::Zilog2,
            kind: ObjectType::INTENT_LOG,
            level: 0,
        };
        let bp = BlkPtr::new(props, &[dva], birth, 0, [1, 2, 3, number]);
        Block { bp, dva, born: true, fate, until }
    }

    fn chain(blocks: &[Block]) -> Chain {
        let mut chain = Chain::default();
        blocks.iter().for_each(|block| chain.push(*block));
        chain
    }

    /// A log with these blocks, used last in txg 7, in which one record was told.
    fn log(blocks: &[Block], change: impl FnOnce(&mut State)) -> Log {
        let log = Log::new(0, 0);
        log.recording.store(true, Ordering::SeqCst);
        {
            let mut state = log.state.lock();
            (state.chain, state.used_txg) = (chain(blocks), 7);
            state.queue.push(Entry { txg: 7, what: What::Record(vec![0; 192]) });
            change(&mut state);
        }
        log
    }

    fn blocks_of(log: &Log) -> usize {
        log.state.lock().chain.blocks.len()
    }

    #[test]
    fn what_leaves_a_log_is_in_it_until_that_is_on_disk() {
        let log = log(&[1, 2, 3, 4, 5].map(|n| block(n, 7, Fate::Stable, 7)), |_| {});
        let mut dying = Vec::new();
        assert!(log.header(7, false, &mut dying).is_some());
        let on_disk = || {
            let chain = &log.state.lock().chain;
            (chain.bytes(), chain.bytes_on_disk())
        };
        assert_eq!((dying.len(), on_disk()), (4, (BYTES, 5 * BYTES)));
        log.synced(7);
        assert_eq!(on_disk(), (BYTES, BYTES));
    }

    #[test]
    fn a_block_goes_once_it_is_stable_and_over_and_another_follows() {
        let next = block(2, 7, Fate::Empty, 7);
        let goes = |first: Block| chain(&[first, next]).first_goes(7);
        assert!(goes(block(1, 7, Fate::Stable, 7)));
        assert!(!goes(block(1, 7, Fate::Stable, 8)), "what it has is of the next txg");
        assert!(!goes(block(1, 7, Fate::Written, 7)), "nobody knows yet where it ends");
        assert!(!chain(&[block(1, 7, Fate::Stable, 7)]).first_goes(7), "it leads to the next");
    }

    #[test]
    fn a_log_goes_as_a_whole_when_it_is_to_or_is_broken() {
        let goes = |fate, until, wanted, broken| {
            let mut chain = chain(&[block(1, 7, Fate::Stable, 7), block(2, 7, fate, until)]);
            chain.broken = broken;
            chain.goes(7, wanted)
        };
        assert!(goes(Fate::Empty, 7, true, false) && goes(Fate::Empty, 7, false, true));
        assert!(!goes(Fate::Empty, 7, false, false), "nobody wants it to");
        assert!(!goes(Fate::Empty, 8, true, false) && !goes(Fate::Empty, 8, false, true));
        assert!(!goes(Fate::Written, 7, true, false), "somebody is promised what is in it");
        assert!(goes(Fate::Written, 7, false, true), "nobody is");
        assert!(!chain(&[]).goes(7, true));
    }

    #[test]
    fn nothing_is_told_to_a_log_that_no_header_leads_to_yet_or_that_is_broken() {
        let live = |since, broken| {
            let mut chain = chain(&[block(1, 7, Fate::Empty, 7)]);
            (chain.header_since, chain.broken) = (since, broken);
            chain.is_live(7)
        };
        assert!(live(Some(7), false) && live(Some(6), false));
        assert!(!live(Some(8), false) && !live(None, false) && !live(Some(7), true));
    }

    #[test]
    fn a_header_leads_to_blocks_of_its_txg_or_before() {
        let header = |birth, broken| {
            // It is still needed.
            let log = log(&[block(1, birth, Fate::Stable, 8)], |state| state.chain.broken = broken);
            (log.changes_header(7, false), log.header(7, false, &mut Vec::new()))
        };
        let (changes, found) = header(7, false);
        assert!(changes && found.is_some_and(|header| header.log.birth() == 7));
        assert_eq!(header(8, false), (false, None));
        assert_eq!(header(7, true).1, None);
        let two = [block(1, 7, Fate::Stable, 8), block(2, 8, Fate::Empty, 8)];
        assert!(!log(&two, |_| {}).changes_header(7, false), "not with what comes later");
    }

    #[test]
    fn a_log_that_ends_is_no_longer_told_of_anything() {
        let one = [block(1, 7, Fate::Empty, 7)];
        let ends = |txg, ends, change: fn(&mut State)| {
            let log = log(&one, |state| {
                (state.chain.header_since, state.chain.broken) = (Some(5), false);
                change(state);
            });
            let mut dying = Vec::new();
            let changes = log.changes_header(txg, ends);
            let header = log.header(txg, ends, &mut dying);
            if blocks_of(&log) > 0 {
                return false;
            }
            assert!(changes && header == Some(ZilHeader::default()) && dying.len() == 1);
            let state = log.state.lock();
            assert!(!log.is_recording() && state.queue.bytes() == 0);
            assert!(!state.chain.is_in_header() && !state.chain.broken);
            assert_eq!(state.chain.bytes(), 0);
            true
        };
        assert!(ends(8, true, |_| {}) && !ends(8, false, |_| {}));
        assert!(ends(8, false, |state| state.chain.broken = true));
        // Nobody has used it for long.
        assert!(ends(8 + IDLE_TXGS, false, |_| {}) && !ends(7 + IDLE_TXGS, false, |_| {}));
        // Somebody is about to write into it.
        assert!(!ends(8, true, |state| state.committing = true));
        assert!(!ends(8 + IDLE_TXGS, false, |state| state.committing = true));
    }

    #[test]
    fn a_log_that_is_taken_away_is_over_for_good() {
        let one = [block(1, 7, Fate::Written, 9)];
        for since in [None, Some(6)] {
            let log = log(&one, |state| state.chain.header_since = since);
            assert!(log.is_on(0) && !log.is_on(1));
            let (had, dying) = log.revoke().unwrap();
            assert_eq!((had, dying.len()), (since.is_some(), 1));
            assert!(!log.is_recording() && !log.is_on(0));
            let state = log.state.lock();
            assert_eq!((state.queue.bytes(), state.incomplete_until), (0, u64::MAX));
        }
        assert!(log(&[], |_| {}).revoke().is_none());
    }
}
