//! The life of a scan: it is begun, goes on slice by slice, is paused, stopped or done.

use std::time::Duration;

use format::scan::{ScanFunction, ScanState};
use rt::mem::{Class, Grant, Holder};
use rt::sync::Mutex;
use rt::sync::atomic::{AtomicBool, Ordering};

use vdev::Tree;

use super::mend::{self, Mending, Sums};
use super::position::Position;
use super::slice::{self, Budget, PART_BYTES};
use super::{Answer, Running, SLICE_LEAST, SLICE_MAX, ScanStatus, WITH_HEADS};
use crate::disks::shape;
use crate::dtl::TXGS_AHEAD;
use crate::error::Result;
use crate::pool::{Pool, Writing};

/// Bytes of memory for what a slice gathers: wanted, or so much of the cap if that is more, and taken in any case.
const MEMORY: u64 = 16 << 20;
const MEMORY_SHARE: u64 = 64;
const MEMORY_LEAST: u64 = 256 << 10;
/// Txgs that a resilver waits for, at most, so that all that leaves lack was written before it begins.
const TXGS_BEFORE: u64 = 32;
/// How often it is put to disk where a scan is, ordinarily.
const SAVE: Duration = Duration::from_secs(5);

/// What came of a slice.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Step {
    /// There is nothing to do: no scan, or it is paused.
    Idle,
    /// There is more.
    More,
    /// There is more, but not now: a txg must be on disk before, or space is needed that was held back.
    Later,
    /// The scan is done.
    Done,
}

impl Pool {
    /// Begins a scrub, or a resilver of what leaves lack that are there; a paused scrub goes on. A resilver takes the
    /// place of a scrub.
    pub fn scan_start(&self, function: ScanFunction) -> Result<Answer> {
        self.writing()?;
        if function == ScanFunction::Scrub && self.is_scan_paused() {
            return self.task(|cx| cx.scan_pause(false));
        }
        let resilver = function == ScanFunction::Resilver;
        // Nothing is written for who asks in vain, again and again.
        let in_the_way = self.scan.state.lock().running.as_ref().map(Running::in_the_way);
        if let Some(answer) = in_the_way.filter(|way| !resilver || *way != Answer::Scrubbing) {
            return Ok(answer);
        }
        let range = match resilver {
            true => match self.range_at_rest()? {
                Some(range) => range,
                None => return Ok(Answer::NothingLacks),
            },
            false => (0, 0),
        };
        let allocated = self.space()?.allocated;
        self.task(move |cx| cx.scan_begin(function, range, allocated))
    }

    /// The txgs that leaves lack which are there, once all of them are on disk: what a leaf misses from here on must not
    /// look like what it is given.
    fn range_at_rest(&self) -> Result<Option<(u64, u64)>> {
        for _ in 0..TXGS_BEFORE {
            let Some((first, last)) = self.range_lacked() else { return Ok(None) };
            let txg = self.txg();
            // What lies further ahead no leaf has missed.
            if txg + 1 >= last || last > txg + TXGS_AHEAD {
                return Ok(Some((first, last)));
            }
            // Another leaf may come meanwhile, which lacks what is written until it is in use.
            self.task(|_| Ok(()))?;
        }
        // One after the other comes: who lacks more than is on disk now is filled by the next one.
        let end = self.txg() + 1;
        let range = self.range_lacked().map(|(first, last)| (first, last.min(end)));
        Ok(range.filter(|(first, last)| first <= last))
    }

    /// The txgs that leaves lack which are there, (before the first, up to the last].
    fn range_lacked(&self) -> Option<(u64, u64)> {
        let lacking = self.lacking_leaves();
        let ranges = || lacking.iter().flat_map(|(_, txgs)| txgs.ranges());
        let first = ranges().map(|range| range.0).min()?;
        Some((first.saturating_sub(1), ranges().map(|range| range.1).max()?))
    }

    /// Leaves that did not take what a scan gave them are tried again: this one, or all.
    pub(crate) fn scan_forgives(&self, leaf: Option<u64>) {
        let mut state = self.scan.state.lock();
        state.refusing.retain(|guid, _| leaf.is_some_and(|leaf| leaf != *guid));
    }

    /// Pauses the scrub that is under way.
    pub fn scan_pause(&self) -> Result<Answer> {
        self.task(|cx| cx.scan_pause(true))
    }

    /// Stops the scan that is under way, for good.
    pub fn scan_stop(&self) -> Result<Answer> {
        if !self.scan.is_under_way() {
            return Ok(Answer::NoScan);
        }
        Ok(self.task(|cx| cx.scan_end(false))?.0)
    }

    /// Lets the slice under way end, and none begin until it is called again with `false`: somebody wants the pool
    /// for himself.
    pub fn scan_hush(&self, hush: bool) {
        self.scan.hush.store(hush, Ordering::SeqCst);
    }

    /// The pool is being closed: nothing is begun any more, what is under way has ended, and where the scan is goes
    /// to disk for whoever opens the pool next.
    pub(crate) fn scan_ends(&self, writing: &Writing) -> Result<()> {
        self.scan_hush(true);
        drop(self.scan.stepping.lock());
        let unsaved = |running: &Running| running.unsaved;
        let unsaved = self.scan.state.lock().running.as_ref().is_some_and(unsaved);
        if unsaved && writing.suspended.lock().is_none() { self.scan_save() } else { Ok(()) }
    }

    /// Is there a leaf that lacks what a resilver could give it?
    pub fn needs_resilver(&self) -> bool {
        if self.writing.is_none() || self.in_memory {
            return false;
        }
        let (lacking, now) = (self.lacking_leaves(), rt::time::now());
        let state = self.scan.state.lock();
        lacking.iter().any(|leaf| !state.given_up.contains(leaf) && !state.is_refusing(leaf.0, now))
    }

    fn is_scan_paused(&self) -> bool {
        self.scan.state.lock().running.as_ref().is_some_and(Running::is_paused)
    }

    /// Goes on with the scan until it is done, paused or stopped; `tell` hears of it after each slice, and ends it
    /// with `false`.
    pub fn scan_run(&self, tell: &mut dyn FnMut(&ScanStatus) -> bool) -> Result<Step> {
        loop {
            let step = self.scan_step()?;
            if matches!(step, Step::Idle | Step::Done) {
                return Ok(step);
            }
            if let Some(status) = self.scan_status()?
                && !tell(&status)
            {
                return Ok(step);
            }
            if step == Step::Later {
                self.sync()?;
            }
        }
    }

    /// Does one slice of the scan that is under way.
    pub fn scan_step(&self) -> Result<Step> {
        self.scan_step_within(u64::MAX)
    }

    /// As [`Pool::scan_step`], of about so many bytes of blocks at most.
    pub fn scan_step_within(&self, bytes_max: u64) -> Result<Step> {
        let writing = self.writing()?;
        let _one = self.scan.stepping.lock();
        if self.in_memory || self.scan.hush.load(Ordering::SeqCst) {
            return Ok(Step::Idle);
        }
        let hold = writing.writer.allocator().hold();
        let tree = self.store.tree();
        let freeing = *writing.freeing.lock();
        let (txg, root) = *self.scan.root.lock();
        let (mut scan, position, only, bytes, seen) = {
            let mut state = self.scan.state.lock();
            let Some(running) = state.running.as_mut().filter(|running| !running.is_paused())
            else {
                return Ok(Step::Idle);
            };
            running.moved.retain(|(moved, _)| *moved > txg);
            if !running.moved.is_empty() {
                // It has followed a change that is not on disk yet, where it would look for what is new in it.
                return Ok(Step::Later);
            }
            if running.given.is_empty() {
                running.failures = writing.writer.out().flush_failures();
            }
            running.first.find(&tree, &running.scan);
            let (position, only) = running.at_hand();
            if position.is_end() && slice::waits(&freeing, txg) {
                // What is on its way to be free must be readable until it is.
                return Ok(Step::Later);
            }
            if position.is_end() && position.trees.are_done(&freeing) {
                let first = only.is_some();
                drop(state);
                drop(hold);
                return self.scan_over(writing, first);
            }
            let (position, only) = (position.clone(), only.cloned());
            let key = (running.scan.start_time, running.scan.function);
            let times = if self.store.is_on_disks() { WITH_HEADS } else { 1 };
            let bytes = running.slice_bytes.saturating_mul(times).min(bytes_max);
            (running.scan, position, only, bytes, key)
        };
        let wanted = MEMORY.max(self.store.account().cap() / MEMORY_SHARE);
        let grant = self.scan_memory(wanted, MEMORY_LEAST);
        let threads = self.workers.count() as u64 + 1;
        let scratch = self.scan_memory(threads * mend::SCRATCH, threads * mend::SCRATCH_LEAST);
        let parts = (grant.bytes() / PART_BYTES).max(16) as usize;
        let was_at_end = position.is_end();
        let mut after = position;
        if let Some(only) = &only {
            (scan.min_txg, scan.max_txg) = only.range();
        }
        let what = (&scan, only.as_deref());
        let as_of = (txg, &root, &freeing);
        let budget = Budget { parts, bytes };
        let held = (&self.store, &*tree, &*hold);
        let gathered = slice::gather(held, as_of, what, &mut after, budget);
        if hold.is_broken() {
            // Some of it may be of other blocks, errors too.
            return self.scan_note(writing, &tree, (seen, only.is_some()), (after, None));
        }
        let gathered = gathered?;
        let replaced = shape::replaced(&self.config.lock().vdev_tree);
        let mut spots = gathered.spots.clone();
        spots.sort_unstable();
        let mending = Mending {
            store: &self.store,
            tree: &tree,
            out: writing.writer.out(),
            workers: &self.workers,
            hold: &hold,
            gathered: &gathered,
            chunk_max: scratch.bytes() / threads / 2,
            stop: &self.scan.hush,
            replaced: &replaced,
            sums: Mutex::new(Sums::default()),
            broken: AtomicBool::new(false),
        };
        let sums = mending.run(&spots, &scan);
        drop((grant, scratch, hold));
        let step = self.scan_note(writing, &tree, (seen, only.is_some()), (after, sums))?;
        // Where it was at its end, but for what this process alone knows.
        if was_at_end && step == Step::More && self.scan_is_over(writing) {
            return self.scan_over(writing, only.is_some());
        }
        Ok(step)
    }

    /// Is nothing left for the pass at hand?
    fn scan_is_over(&self, writing: &Writing) -> bool {
        let state = self.scan.state.lock();
        let Some(running) = &state.running else { return false };
        let (position, _) = running.at_hand();
        position.is_end() && position.trees.are_done(&writing.freeing.lock())
    }

    /// Ends the pass at hand: that for what comes `first`, or the scan.
    fn scan_over(&self, writing: &Writing, first: bool) -> Result<Step> {
        if first { self.scan_given(writing) } else { self.scan_finish(writing) }
    }

    /// Memory for a slice: as much as can be had of what is wanted, and a little in any case.
    fn scan_memory(&self, wanted: u64, least: u64) -> Grant {
        let account = self.store.account().of(Holder::Scan);
        let mut bytes = wanted;
        while bytes > least {
            if let Some(grant) = account.try_grant(Class::Elastic, bytes) {
                return grant;
            }
            bytes /= 2;
        }
        account.take(least)
    }

    /// Takes in what a slice has done.
    fn scan_note(
        &self,
        writing: &Writing,
        tree: &Tree,
        (seen, first): ((u64, ScanFunction), bool),
        (mut after, sums): (Position, Option<Sums>),
    ) -> Result<Step> {
        // Before it can go to disk that they were passed.
        let lost = sums.iter().flat_map(|sums| &sums.lost);
        self.scan_lost(lost, seen.1 == ScanFunction::Scrub && self.is_scrubbing())?;
        let (flush, save) = {
            let mut state = self.scan.state.lock();
            let save_every = state.save_every.unwrap_or(SAVE);
            let same =
                |running: &&mut Running| (running.scan.start_time, running.scan.function) == seen;
            let Some(running) = state.running.as_mut().filter(same) else {
                return Ok(Step::Idle);
            };
            let Some(sums) = sums else {
                running.slice_bytes = (running.slice_bytes / 2).max(SLICE_LEAST);
                return Ok(Step::Later);
            };
            running.slice_bytes = (running.slice_bytes * 2).min(SLICE_MAX);
            // What became of data sets since the uberblock that it walked.
            running.moved.iter().for_each(|(_, moved)| after.follow(*moved));
            *running.at_hand_mut() = after;
            // What comes first is passed once more.
            let examined = if first { 0 } else { sums.examined };
            running.scan.examined += examined;
            running.scan.processed += sums.processed;
            running.scan.errors += sums.errors;
            running.pass.examined += examined;
            running.pass.read += sums.read;
            running.pass.written += sums.processed;
            running.unsaved = true;
            for (leaf, (first, last)) in sums.given {
                let guid = tree.leaves()[leaf].guid();
                let given = running.given.entry(guid).or_insert((first, last));
                *given = (given.0.min(first), given.1.max(last));
            }
            for leaf in &sums.unwritten {
                // So it does not count as filled: it lacks something later, too.
                tree.leaves()[*leaf].lacks.note(writing.txgs.open());
            }
            let position = &running.position;
            let over = position.is_end() && position.trees.are_done(&writing.freeing.lock());
            let save = position.is_end() || running.saved.elapsed() >= save_every;
            let flush = save && !running.given.is_empty();
            running.refused |= !sums.unwritten.is_empty();
            running.owed |= sums.owed;
            let now = rt::time::now();
            for leaf in &sums.unwritten {
                state.refuses(tree.leaves()[*leaf].guid(), now);
            }
            (flush, save && !over)
        };
        if flush {
            self.scan_flush(writing)?;
        }
        if save {
            self.task(|cx| cx.scan_save())?;
        }
        Ok(Step::More)
    }

    /// It is put to disk so often where a scan is, as far as slices end then: for disks whose time is not ours.
    pub fn set_scan_save(&self, every: Duration) {
        self.scan.state.lock().save_every = Some(every);
    }

    /// Puts to disk where the scan is.
    pub fn scan_save(&self) -> Result<()> {
        let writing = self.writing()?;
        let _one = self.scan.stepping.lock();
        self.scan_flush(writing)?;
        self.task(|cx| cx.scan_save())
    }

    /// Flushes what leaves were given. One whose flush has failed since, whoever flushed it, may have lost that: it lacks
    /// what it was given, and something later, so that it does not count as filled.
    fn scan_flush(&self, writing: &Writing) -> Result<()> {
        let out = writing.writer.out();
        let flushed = out.flush();
        let (tree, now) = (out.tree(), out.flush_failures());
        if let Some(running) = &mut self.scan.state.lock().running {
            for (guid, (first, last)) in std::mem::take(&mut running.given) {
                let leaf = tree.leaf_by_guid(guid).map(|place| &tree.leaves()[place]);
                if let Some(leaf) = leaf.filter(|leaf| now.has_since(leaf, &running.failures)) {
                    leaf.lacks.add(first, last + 1);
                    leaf.lacks.note(writing.txgs.open());
                }
            }
        }
        flushed?;
        Ok(())
    }

    /// What comes first was given.
    fn scan_given(&self, writing: &Writing) -> Result<Step> {
        self.scan_flush(writing)?;
        let filled = self.task(|cx| cx.scan_given())?;
        if !filled.is_empty() {
            self.resilvered(&filled)?;
        }
        Ok(Step::More)
    }

    fn scan_finish(&self, writing: &Writing) -> Result<Step> {
        self.scan_flush(writing)?;
        let (answer, filled) = self.task(|cx| cx.scan_end(true))?;
        if !filled.is_empty() {
            self.resilvered(&filled)?;
        }
        Ok(if answer == Answer::Done { Step::Done } else { Step::More })
    }

    /// Blocks that are lost: for the log of errors, which takes only so many in a txg.
    fn scan_lost<'a>(
        &self,
        lost: impl Iterator<Item = &'a format::scan::Bookmark> + Clone,
        in_scrub: bool,
    ) -> Result<()> {
        for at in lost.clone() {
            while !self.note_lost(*at, in_scrub) {
                self.sync()?;
            }
        }
        let mut list = self.scan.lost.lock();
        let room = super::LOST_MAX.saturating_sub(list.len());
        list.extend(lost.take(room));
        Ok(())
    }

    /// Blocks that scans of this process found lost, up to some thousands.
    pub fn scan_lost_blocks(&self) -> Vec<format::scan::Bookmark> {
        self.scan.lost.lock().clone()
    }

    /// Is a scrub under way, paused or not?
    pub(crate) fn is_scrubbing(&self) -> bool {
        let state = self.scan.state.lock();
        state.running.as_ref().is_some_and(|running| running.scan.function == ScanFunction::Scrub)
    }

    /// Is there a leaf that is new, and waits to be filled?
    pub fn is_filling(&self) -> bool {
        let tree = self.store.tree();
        tree.leaves().iter().any(|leaf| leaf.state.is_online() && leaf.is_filling())
    }

    /// Is a scan under way, and not paused?
    pub fn is_scanning(&self) -> bool {
        let state = self.scan.state.lock();
        let active =
            |running: &Running| running.scan.state == ScanState::Scanning && !running.is_paused();
        state.running.as_ref().is_some_and(active)
    }
}
