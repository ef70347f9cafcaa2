//! Which flushes have failed.
//!
//! Place: read by whoever wrote before a flush and must know what became of it.
//! The one idea: a device tells of lost writes once, to whoever flushes it next. So failures are counted at the leaf, and a
//! writer compares with what was counted when it began.

use crate::tree::{Leaf, Tree};
use rt::sync::Arc;
use rt::sync::atomic::{AtomicU64, Ordering};
use std::collections::BTreeMap;
use std::ops::RangeInclusive;

/// How often flushes of leaves have failed; of the others none has. By their counters: a leaf that takes its mirror's place gets
/// another guid, and keeps its counter.
#[derive(Clone, Debug, Default)]
pub struct FlushFailures {
    counts: BTreeMap<usize, (Arc<AtomicU64>, u64)>,
    /// The txg whose blocks were being written; 0: none.
    txg: u64,
}

/// Of a counter that is there: each has its own place in memory.
fn key(counter: &Arc<AtomicU64>) -> usize {
    Arc::as_ptr(counter).addr()
}

impl FlushFailures {
    pub(crate) fn of(tree: &Tree, txg: u64) -> FlushFailures {
        let failed = |leaf: &Leaf| {
            let counter = &leaf.flush_failures;
            let count = counter.load(Ordering::Acquire);
            (count > 0).then(|| (key(counter), (counter.clone(), count)))
        };
        FlushFailures { counts: tree.leaves().iter().filter_map(failed).collect(), txg }
    }

    fn count(&self, key: usize) -> u64 {
        self.counts.get(&key).map_or(0, |(_, count)| *count)
    }

    /// Has none failed since `before`?
    pub(crate) fn none_since(&self, before: &FlushFailures) -> bool {
        self.counts.keys().all(|key| self.count(*key) == before.count(*key))
    }

    /// Has that of this leaf failed since `before`?
    pub fn has_since(&self, leaf: &Leaf, before: &FlushFailures) -> bool {
        let key = key(&leaf.flush_failures);
        self.count(key) != before.count(key)
    }
    /// The txgs from `before` to now, both included: who missed a write between them lacks one of these.
    pub(crate) fn txgs_since(&self, before: &FlushFailures) -> RangeInclusive<u64> {
        let first = if before.txg == 0 { self.txg } else { before.txg };
        first..=self.txg
    }
}
