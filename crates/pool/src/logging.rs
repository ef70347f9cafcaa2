//! Writing log space maps: the changes of a txg go into one log for all metaslabs, and each txg puts a few
//! metaslabs' older changes into their own maps (`docs/decisions/0010-log-space-maps.md`).
//!
//! FORMAT: section 9.4. A metaslab's *unflushed txg* says from which log on its changes are in logs only; 0: none
//! are. What its own map lacks is kept in memory as net changes, bounded together with the logs: whichever
//! grows beyond its bound has its oldest metaslabs flushed.

use std::collections::BTreeMap;

use dmu::{SpaceMap, Tx};
use format::ObjectType;
use format::features::Feature;
use format::space_map::{Action, Run};
use rt::sync::atomic::Ordering;
use store::{Pending, RangeSet, SlabSummary};

use crate::error::{PoolError, Result};
use crate::features::Features;
use crate::logmaps;
use crate::mos::{Mos, key};
use crate::spacemaps::{Appending, PoolSpaceMaps, Slabs, Unflushed, tell_resting};

/// Txgs over which the metaslabs are flushed once: about as many logs are read when the pool is opened.
const TURN: usize = 16;
/// Ranges of unflushed changes in memory, at most, when a txg begins: some 32 MiB.
const RANGES_MAX: usize = 1 << 18;
/// Bytes of all logs, at most, when a txg begins.
const LOG_BYTES_MAX: u64 = 16 << 20;
/// Block of the array of unflushed txgs, in bytes.
const TXGS_BLOCK: u32 = 128 << 10;

/// What a metaslab's own map lacks.
#[derive(Default)]
struct Delta {
    allocs: RangeSet,
    frees: RangeSet,
}

impl Delta {
    fn ranges(&self) -> usize {
        self.allocs.count() + self.frees.count()
    }

    fn apply(&mut self, action: Action, start: u64, len: u64) -> Result<()> {
        let fits = match action {
            Action::Alloc => self.frees.cancel(start, len, &mut self.allocs),
            Action::Free => self.allocs.cancel(start, len, &mut self.frees),
        };
        fits.then_some(()).ok_or_else(|| PoolError::Damaged {
            what: "log space maps",
            detail: format!("{action:?} of [{start:#x}, +{len:#x}) contradicts them"),
        })
    }
}

/// The unflushed txgs of a top-level vdev.
struct Top {
    top: u32,
    zap: u64,
    /// Their object.
    object: Option<u64>,
    since: Vec<u64>,
}

/// The logs of a pool that is open for writing.
pub(crate) struct Logs {
    tops: Vec<Top>,
    /// Objects and lengths in bytes, by txg.
    logs: BTreeMap<u64, (u64, u64)>,
    /// Of the metaslabs that were changed since they were flushed, even if the changes took each other back:
    /// their entries in the logs belong together.
    deltas: BTreeMap<(u32, u64), Delta>,
    /// Ranges in all deltas.
    ranges: usize,
}

impl Logs {
    /// The logs as they are on disk; `unflushed` is what they hold beyond the maps.
    pub(crate) fn open(mos: &Mos, tops: &[(Slabs, u64)], unflushed: &Unflushed) -> Result<Logs> {
        let mut out =
            Logs { tops: Vec::new(), logs: BTreeMap::new(), deltas: BTreeMap::new(), ranges: 0 };
        for (slabs, zap) in tops {
            let (object, since) = logmaps::unflushed_txgs(mos, *zap, slabs.ms_count)?;
            out.tops.push(Top { top: slabs.top, zap: *zap, object, since });
        }
        for (txg, object) in logmaps::logs(mos)? {
            let length = SpaceMap::open(&mos.objset, object)?.phys()?.0.length.get();
            out.logs.insert(txg, (object, length));
        }
        for (of, runs) in unflushed {
            for (_, Run { action, offset, size, .. }) in runs {
                out.change(*of, |delta| delta.apply(*action, *offset, *size))?;
            }
        }
        Ok(out)
    }

    /// The top-level vdevs are these from now on. Of metaslabs that are new no log tells anything.
    pub(crate) fn set_tops(&mut self, tops: &[(Slabs, u64)]) {
        self.tops.retain(|own| tops.iter().any(|(now, _)| now.top == own.top));
        for (Slabs { top, ms_count, .. }, zap) in tops {
            let count = *ms_count as usize;
            match self.tops.iter_mut().find(|own| own.top == *top) {
                Some(own) => own.since.resize(own.since.len().max(count), 0),
                None => {
                    let since = vec![0; count];
                    self.tops.push(Top { top: *top, zap: *zap, object: None, since });
                }
            }
        }
        let known = |top: u32| tops.iter().any(|(now, _)| now.top == top);
        self.deltas.retain(|(top, _), _| known(*top));
        self.ranges = self.deltas.values().map(Delta::ranges).sum();
    }

    fn change(
        &mut self,
        of: (u32, u64),
        change: impl FnOnce(&mut Delta) -> Result<()>,
    ) -> Result<()> {
        let delta = self.deltas.entry(of).or_default();
        let before = delta.ranges();
        change(delta)?;
        self.ranges = self.ranges + delta.ranges() - before;
        Ok(())
    }

    fn since(&self, (top, index): (u32, u64)) -> u64 {
        let top = self.tops.iter().find(|own| own.top == top);
        top.and_then(|top| top.since.get(index as usize)).copied().unwrap_or(0)
    }

    /// The metaslabs to be flushed in `txg`, the oldest first; `all`: every one.
    fn due(&self, txg: u64, all: bool) -> Vec<(u32, u64)> {
        let mut logged: Vec<(u64, u32, u64)> = Vec::new();
        for top in &self.tops {
            let since = (0u64..).zip(&top.since).filter(|(_, since)| **since != 0);
            logged.extend(since.map(|(index, since)| (*since, top.top, index)));
        }
        logged.sort_unstable();
        let mut share = if all { logged.len() } else { logged.len().div_ceil(TURN) };
        let mut ranges = self.ranges;
        let mut bytes: u64 = self.logs.values().map(|(_, len)| len).sum();
        let mut logs = self.logs.iter().peekable();
        let mut out = Vec::new();
        for (since, top, index) in logged.into_iter().filter(|(since, ..)| *since < txg) {
            // Logs before the oldest metaslab that is left will go.
            while let Some((_, (_, len))) = logs.next_if(|(txg, _)| **txg < since) {
                bytes -= len;
            }
            let left = logs.len();
            if share == 0 && ranges <= RANGES_MAX && bytes <= LOG_BYTES_MAX && left <= 2 * TURN {
                break;
            }
            share = share.saturating_sub(1);
            ranges -= self.deltas.get(&(top, index)).map_or(0, Delta::ranges);
            out.push((top, index));
        }
        out
    }

    /// From now on the changes of a metaslab are in the log of `txg`.
    fn set_since(&mut self, mos: &Mos, tx: &Tx<'_>, (top, index): (u32, u64)) -> Result<()> {
        let txg = tx.txg();
        let Some(own) = self.tops.iter_mut().find(|own| own.top == top) else { return Ok(()) };
        let Some(since) = own.since.get_mut(index as usize).filter(|since| **since != txg) else {
            return Ok(());
        };
        *since = txg;
        let object = match own.object {
            Some(object) => mos.objset.object(object)?,
            None => {
                let kind = ObjectType::UINT64_METADATA;
                let none = ObjectType::NONE;
                let object = mos.objset.allocate(tx, kind, TXGS_BLOCK, none, &[], 1)?;
                mos.zap(own.zap)?.put_u64(tx, key::TOP_UNFLUSHED_TXGS, object.number())?;
                own.object = Some(object.number());
                object
            }
        };
        Ok(object.write(tx, index * 8, &txg.to_le_bytes())?)
    }

    /// The log of this txg, made when it is needed first.
    fn log(&mut self, mos: &Mos, cx: &Appending<'_>) -> Result<SpaceMap> {
        let (features, tx) = (cx.features, cx.tx);
        if let Some((object, _)) = self.logs.get(&tx.txg()) {
            return Ok(SpaceMap::open(&mos.objset, *object)?);
        }
        let zap = match mos.find(key::LOG_SPACEMAP_ZAP)? {
            Some(zap) => mos.zap(zap)?,
            None => {
                let zap = mos.create_zap(tx, ObjectType::ZAP_METADATA, 0)?;
                mos.set(tx, key::LOG_SPACEMAP_ZAP, zap.number())?;
                features.set(tx, Feature::LogSpacemap, 1)?;
                zap
            }
        };
        let histogram = features.is_enabled(Feature::SpacemapHistogram)?;
        let map = SpaceMap::create(&mos.objset, tx, histogram)?;
        features.add(tx, Feature::SpacemapHistogram, 1)?;
        zap.put_u64(tx, format!("{:x}", tx.txg()).as_bytes(), map.number())?;
        self.logs.insert(tx.txg(), (map.number(), 0));
        Ok(map)
    }

    /// Frees the logs that no metaslab needs any more.
    fn drop_old(&mut self, mos: &Mos, cx: &Appending<'_>) -> Result<()> {
        let (features, tx) = (cx.features, cx.tx);
        let since = self.tops.iter().flat_map(|top| &top.since).filter(|since| **since != 0);
        let oldest = since.copied().min().unwrap_or(tx.txg());
        let kept = self.logs.split_off(&oldest);
        let old = std::mem::replace(&mut self.logs, kept);
        if old.is_empty() {
            return Ok(());
        }
        let zap = mos.zap(mos.expect(key::LOG_SPACEMAP_ZAP)?)?;
        for (txg, (object, _)) in &old {
            mos.objset.free(tx, *object)?;
            zap.remove(tx, format!("{txg:x}").as_bytes())?;
        }
        features.add(tx, Feature::SpacemapHistogram, -(old.len() as i64))?;
        Ok(())
    }
}

/// Are changes logged in this pool?
pub(crate) fn wanted(features: &Features) -> Result<bool> {
    Ok(features.is_enabled(Feature::LogSpacemap)? && features.is_enabled(Feature::SpacemapV2)?)
}

impl PoolSpaceMaps {
    /// Begins a txg in which something changes: the metaslabs whose turn it is (`all`: all of them) get what
    /// their own maps lack, and logs that nobody needs go.
    pub(crate) fn flush(&self, cx: &Appending<'_>, all: bool) -> Result<()> {
        let mut logs = self.logs.lock();
        let Some(logs) = logs.as_mut() else { return Ok(()) };
        if !wanted(cx.features)? {
            return Ok(());
        }
        let all = self.flush_all.swap(false, Ordering::Relaxed) || all;
        let due = logs.due(cx.tx.txg(), all);
        if due.is_empty() && (!all || logs.logs.is_empty()) {
            return Ok(());
        }
        // Their unflushed txg will be this one, so it must have a log.
        drop(logs.log(self.mos(), cx)?);
        for of in due {
            let delta = logs.deltas.remove(&of);
            if let Some(delta) = delta {
                logs.ranges -= delta.ranges();
                self.flush_one(cx, of, &delta)?;
            }
            logs.set_since(self.mos(), cx.tx, of)?;
        }
        logs.drop_old(self.mos(), cx)
    }

    /// Puts the changes of earlier txgs into a metaslab's own map.
    fn flush_one(&self, cx: &Appending<'_>, of: (u32, u64), delta: &Delta) -> Result<()> {
        let Some(summary) = cx.allocator.summary(of.0, of.1)? else { return Ok(()) };
        // It is loaded now, with all that the logs have for it, and nobody loads it again.
        self.forget(of.0, of.1);
        let (allocs, frees) = (delta.allocs.iter().collect(), delta.frees.iter().collect());
        let mut changes = Pending { allocs, frees };
        // What came and went is not among them, but the last txgs may need it still.
        tell_resting(&mut changes, cx.allocator.resting_before_pending(of.0, of.1));
        if changes.allocs.is_empty() && changes.frees.is_empty() {
            return Ok(());
        }
        self.put(cx, of, &summary, changes)
    }

    /// Logs what has changed in a metaslab.
    pub(crate) fn log_one(
        &self,
        cx: &Appending<'_>,
        logs: &mut Logs,
        of: (u32, u64),
        summary: &SlabSummary,
        pending: &Pending,
    ) -> Result<()> {
        // It has a map of its own, and that has the histogram, even while it lacks the entries.
        let (map, _) = self.map_of(cx, of.0, of.1, summary)?;
        map.set_histogram(cx.tx, &summary.histogram)?;
        let log = logs.log(self.mos(), cx)?;
        log.log(cx.tx, cx.pass, of.0, &pending.allocs, &pending.frees)?;
        let entry = logs.logs.entry(cx.tx.txg()).or_default();
        entry.1 = log.phys()?.0.length.get();
        if logs.since(of) == 0 || !logs.deltas.contains_key(&of) {
            // Nothing of it is in older logs.
            logs.set_since(self.mos(), cx.tx, of)?;
        }
        logs.change(of, |delta| {
            let allocs = pending.allocs.iter().map(|run| (Action::Alloc, run));
            let frees = pending.frees.iter().map(|run| (Action::Free, run));
            allocs
                .chain(frees)
                .try_for_each(|(action, (start, len))| delta.apply(action, *start, *len))
        })
    }
}
