//! What a scan leaves on disk: its state in the MOS directory, its queue, the history, and what leaves lack no more.
//!
//! All of it happens inside a sync. FORMAT: section 13.1.

use std::collections::BTreeMap;

use dmu::Zap;
use format::ObjectType;
use format::dtl::Dtl;
use format::scan::{Scan, ScanFlags, ScanFunction, ScanState};
use format::zap::Value;

use super::endangered::First;
use super::position::{Moved, Position};
use super::{Answer, Running, Scans};
use crate::error::{PoolError, Result};
use crate::history;
use crate::mos::{Mos, key};
use crate::open::TXG_MAX;
use crate::pool::Pool;
use crate::sync::TaskContext;

/// Dedup tables up to this class are walked first; there are none in pools that are written here.
const DDT_CLASS_MAX: u64 = 1;

/// The scan that is under way on disk, with its position; `None`: none.
pub(super) fn load(mos: &Mos) -> Result<Option<(Scan, Position)>> {
    let Some(words) = mos.directory()?.get(key::SCAN)? else { return Ok(None) };
    let scan = Scan::from_words(&words.ints())?;
    if scan.state != ScanState::Scanning {
        return Ok(None);
    }
    if !is_range(&scan) {
        return Err(PoolError::Damaged {
            what: "scan",
            detail: format!("it is of txgs {} to {}", scan.min_txg, scan.max_txg),
        });
    }
    let mut queue = BTreeMap::new();
    if scan.queue_object != 0 {
        for entry in mos.zap(scan.queue_object)?.entries()? {
            let name = std::str::from_utf8(&entry.name).ok();
            let object = name.and_then(|name| u64::from_str_radix(name, 16).ok());
            let bad = || PoolError::Damaged {
                what: "queue of a scan",
                detail: format!("entry '{}'", String::from_utf8_lossy(&entry.name)),
            };
            queue.insert(object.ok_or_else(bad)?, entry.value.as_u64().ok_or_else(bad)?);
        }
    }
    Ok(Some((scan, Position::of(&scan, queue))))
}

/// Are its txgs such that there can be?
fn is_range(scan: &Scan) -> bool {
    scan.min_txg <= scan.max_txg && scan.max_txg < TXG_MAX
}

/// Why a pool whose directory says so may not be written (INV-12); `None`: it may.
pub(crate) fn unwritable(mos: &Mos) -> Result<Option<String>> {
    let Some(words) = mos.directory()?.get(key::SCAN)? else { return Ok(None) };
    let words = words.ints();
    if words.get(1) != Some(&ScanState::Scanning.id()) {
        return Ok(None);
    }
    Ok(match Scan::from_words(&words) {
        Ok(scan) if matches!(scan.function, ScanFunction::Other(_) | ScanFunction::None) => {
            Some(format!("a scan of an unknown kind, {}, is under way", scan.function.id()))
        }
        Ok(_) => load(mos).err().map(|e| format!("the scan that is under way cannot be read: {e}")),
        Err(e) => Some(format!("the scan that is under way cannot be read: {e}")),
    })
}

/// Puts a scan and its queue to disk.
fn save(cx: &TaskContext<'_>, running: &mut Running) -> Result<()> {
    let (mos, tx) = (cx.making.mos, cx.tx);
    let mut scan = running.scan;
    running.position.put(&mut scan);
    running.scan = scan;
    if scan.queue_object != 0 {
        let zap = mos.zap(scan.queue_object)?;
        put_queue(cx, &zap, &running.position.queue)?;
    }
    mos.directory()?.put(tx, key::SCAN, &Value::words(&scan.to_words()))?;
    running.saved = rt::time::now();
    running.unsaved = false;
    Ok(())
}

fn put_queue(cx: &TaskContext<'_>, zap: &Zap, queue: &BTreeMap<u64, u64>) -> Result<()> {
    for entry in zap.entries()? {
        let name = std::str::from_utf8(&entry.name).ok();
        let object = name.and_then(|name| u64::from_str_radix(name, 16).ok());
        if !object.is_some_and(|object| queue.contains_key(&object)) {
            zap.remove(cx.tx, &entry.name)?;
        }
    }
    for (object, txg) in queue {
        let name = format!("{object:x}");
        if zap.get_u64(name.as_bytes())? != Some(*txg) {
            zap.put_u64(cx.tx, name.as_bytes(), *txg)?;
        }
    }
    Ok(())
}

/// Notes an event in the pool's history.
fn note(cx: &TaskContext<'_>, name: &str, text: &str) -> Result<()> {
    let host = cx.pool.config.lock().hostname.clone().unwrap_or_default();
    let host = String::from_utf8_lossy(&host).into_owned();
    let record = history::event(cx.making.now_secs, cx.tx.txg(), name, text, &host);
    history::append(cx.making.mos, cx.tx, &record)
}

impl TaskContext<'_> {
    /// Tells the scan that is under way what has become of a data set.
    pub(crate) fn scan_follows(&self, moved: Moved) -> Result<()> {
        let mut state = self.pool.scan.state.lock();
        let Some(running) = &mut state.running else { return Ok(()) };
        running.position.follow(moved);
        if let First::Pass(_, position, _) = &mut running.first {
            position.follow(moved);
        }
        running.moved.push((self.tx.txg(), moved));
        save(self, running)
    }

    /// Begins a scan.
    pub(super) fn scan_begin(
        &self,
        function: ScanFunction,
        (min_txg, max_txg): (u64, u64),
        to_examine: u64,
    ) -> Result<Answer> {
        let resilver = function == ScanFunction::Resilver;
        let way = self.pool.scan.state.lock().running.as_ref().map(Running::in_the_way);
        match way {
            // As with OpenZFS: what lacks redundancy comes first, and the scrub is begun anew by whoever wants it.
            Some(Answer::Scrubbing) if resilver => drop(self.scan_end(false)?),
            Some(way) => return Ok(way),
            None => {}
        }
        let mut state = self.pool.scan.state.lock();
        let (mos, tx) = (self.making.mos, self.tx);
        let queue = mos.create_zap(tx, ObjectType::SCAN_QUEUE, 0)?.number();
        let max_txg = if max_txg == 0 { tx.txg() } else { max_txg };
        let position = Position::start(min_txg, max_txg);
        let scan = Scan {
            function,
            state: ScanState::Scanning,
            queue_object: queue,
            min_txg,
            max_txg,
            start_time: self.making.now_secs,
            to_examine,
            ddt_class_max: DDT_CLASS_MAX,
            ..Scan::from_words(&[0; format::scan::SCAN_WORDS])?
        };
        let mut running = Running::new(scan, position);
        save(self, &mut running)?;
        if !resilver {
            // Whoever stopped the last one may have left what it found.
            self.pool.scrub_stopped();
        }
        let text = format!("func={} mintxg={min_txg} maxtxg={max_txg}", function.id());
        note(self, "scan setup", &text)?;
        state.running = Some(running);
        Ok(Answer::Done)
    }

    /// Pauses the scrub, or goes on with it.
    pub(super) fn scan_pause(&self, pause: bool) -> Result<Answer> {
        let mut state = self.pool.scan.state.lock();
        let Some(running) = &mut state.running else { return Ok(Answer::NoScan) };
        if running.scan.function != ScanFunction::Scrub {
            return Ok(Answer::NoScan);
        }
        if running.is_paused() == pause {
            return Ok(if pause { Answer::Paused } else { Answer::Scrubbing });
        }
        let now = self.making.now_secs;
        if pause {
            running.scan.flags |= ScanFlags::PAUSED;
            running.pass.paused = Some(now);
        } else {
            running.scan.flags &= !ScanFlags::PAUSED;
            let since = running.pass.paused.take().unwrap_or(now);
            running.pass.spent_paused += now.saturating_sub(since);
        }
        save(self, running)?;
        Ok(if pause { Answer::Done } else { Answer::Resumed })
    }

    /// Puts what a scan has done to disk.
    pub(super) fn scan_save(&self) -> Result<()> {
        let mut state = self.pool.scan.state.lock();
        state.running.as_mut().map_or(Ok(()), |running| save(self, running))
    }

    /// The pass for what comes first is done: leaves lack that no more. Those that lack nothing at all, by guid.
    pub(super) fn scan_given(&self) -> Result<Vec<u64>> {
        let mut state = self.pool.scan.state.lock();
        let Some(running) = &mut state.running else { return Ok(Vec::new()) };
        let First::Pass(only, position, passes) = &running.first else { return Ok(Vec::new()) };
        if !self.is_over(position) {
            return Ok(Vec::new());
        }
        let tree = self.pool.store.tree();
        let mut filled = Vec::new();
        // Who goes on after something was passed over does it all again: it is not known what it was.
        let whole = !running.owed && !running.refused;
        let given = if whole { only.given(&tree, &running.scan) } else { Vec::new() };
        running.first = if given.is_empty() { First::Nothing } else { First::Unknown(*passes) };
        for place in given {
            let leaf = &tree.leaves()[place];
            if leaf.lacks.is_empty() {
                self.is_filled(leaf);
                filled.push(leaf.guid());
            }
        }
        save(self, running)?;
        Ok(filled)
    }

    /// Is nothing left? A data set may have come back into the queue meanwhile, or one was destroyed.
    fn is_over(&self, position: &Position) -> bool {
        position.is_end() && position.trees.are_done(&self.writing.freeing.lock())
    }

    /// A leaf has all that it lacked; the next process is to know.
    fn is_filled(&self, leaf: &vdev::Leaf) {
        leaf.set_filled();
        if let Some(config) = self.pool.config.lock().vdev_tree.find_mut(leaf.guid()) {
            config.resilver_txg = 0;
        }
        *self.pool.config_dirty.lock() = true;
    }

    /// Ends a scan: it is done, or nobody wants it. The leaves that lack nothing more, by guid.
    pub(super) fn scan_end(&self, complete: bool) -> Result<(Answer, Vec<u64>)> {
        let mut state = self.pool.scan.state.lock();
        let Some(mut running) = state.running.take() else {
            return Ok((Answer::NoScan, Vec::new()));
        };
        if complete && !self.is_over(&running.position) {
            state.running = Some(running);
            return Ok((Answer::Scrubbing, Vec::new()));
        }
        state.last = running.pass;
        let mos = self.making.mos;
        if running.scan.queue_object != 0 {
            mos.objset.free(self.tx, running.scan.queue_object)?;
        }
        running.position.leave();
        running.position.queue.clear();
        running.scan.queue_object = 0;
        running.scan.flags &= !ScanFlags::PAUSED;
        running.scan.end_time = self.making.now_secs;
        running.scan.state = if complete { ScanState::Finished } else { ScanState::Canceled };
        save(self, &mut running)?;
        let scan = running.scan;
        let what = if complete { "scan done" } else { "scan cancelled" };
        note(self, what, &format!("errors={}", scan.errors))?;
        // Of what is lost for good there is nothing to lack.
        let filled = if complete && !running.owed { self.filled(&scan) } else { Vec::new() };
        match scan.function {
            ScanFunction::Scrub if complete => self.pool.scrub_ended(),
            ScanFunction::Scrub => self.pool.scrub_stopped(),
            _ => {}
        }
        if complete || scan.function == ScanFunction::Resilver {
            // What came after it another one gives them.
            let of_it = |(_, txgs): &(u64, Dtl)| {
                txgs.ranges().last().is_some_and(|range| range.1 <= scan.max_txg)
            };
            state.given_up = self.pool.lacking_leaves().into_iter().filter(of_it).collect();
        }
        if complete {
            // Labels that were lost come back with it.
            *self.pool.config_dirty.lock() = true;
        }
        Ok((Answer::Done, filled))
    }

    /// Takes what a scan has given to leaves from what they lack; their guids.
    ///
    /// Whoever was away for a part of it lacks a later txg: that of a change, at least of where the scan was. A scan
    /// begins when all txgs are on disk that were lacked then ([`Pool::scan_start`]), so what was missed since ends
    /// after its range.
    fn filled(&self, scan: &Scan) -> Vec<u64> {
        let mut out = Vec::new();
        let tree = self.pool.store.tree();
        for leaf in tree.leaves() {
            let txgs = leaf.lacks.txgs();
            let (Some(first), Some(last)) = (txgs.ranges().first(), txgs.ranges().last()) else {
                continue;
            };
            // Nothing was written in txg 0, though a DTL may begin there.
            let first = first.0.max(1);
            if !leaf.state.is_online() || first <= scan.min_txg || last.1 > scan.max_txg {
                continue;
            }
            leaf.lacks.remove(0, scan.max_txg + 1);
            self.is_filled(leaf);
            out.push(leaf.guid());
        }
        out
    }
}

impl Pool {
    /// The leaves that are there and lack something, by guid, with what.
    pub(super) fn lacking_leaves(&self) -> Vec<(u64, Dtl)> {
        let tree = self.store.tree();
        let lacking =
            tree.leaves().iter().filter(|leaf| leaf.state.is_online() && !leaf.lacks.is_empty());
        lacking.map(|leaf| (leaf.guid(), leaf.lacks.txgs())).collect()
    }
}

impl Scans {
    /// Does a scan of this pool have the attention of a sync?
    pub(crate) fn is_under_way(&self) -> bool {
        self.state.lock().running.is_some()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::scan::endangered::First;

    /// Seen red: whoever went on with such a resilver did so in vain, with a panic.
    #[test]
    fn a_scan_of_txgs_that_cannot_be_is_not_gone_on_with() {
        let of = |min_txg, max_txg| {
            let none = Scan::from_words(&[0; format::scan::SCAN_WORDS]).unwrap();
            Scan { function: ScanFunction::Resilver, min_txg, max_txg, ..none }
        };
        for (min, max, fits) in [(0, 0, true), (3, 9, true), (10, 5, false), (3, u64::MAX, false)] {
            let scan = of(min, max);
            assert_eq!(is_range(&scan), fits, "{min} to {max}");
            if fits {
                let root = format::config::VdevConfig::new(format::config::VdevKind::Root, 0, 1);
                let tree = vdev::Tree::open(&root, BTreeMap::new()).unwrap();
                First::of(&scan).find(&tree, &scan);
            }
        }
    }
}
