//! Which flushes have failed.
//!
//! Place: read by whoever wrote before a flush and must know what became of it.
//! The one idea: a device tells of lost writes once, to whoever flushes it next. So failures are counted at the leaf, and a
//! writer compares with what was counted when it began.

use crate::tree::{Leaf, Tree};
use rt::sync::atomic::Ordering;
use std::collections::BTreeMap;

/// How often flushes of leaves have failed, by guid; of the others none has.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct FlushFailures(BTreeMap<u64, u64>);

impl FlushFailures {
    pub(crate) fn of(tree: &Tree) -> FlushFailures {
        let count = |leaf: &Leaf| (leaf.guid(), leaf.flush_failures.load(Ordering::Acquire));
        FlushFailures(tree.leaves().iter().map(count).filter(|(_, count)| *count > 0).collect())
    }

    /// Has none failed since `before`?
    pub(crate) fn none_since(&self, before: &FlushFailures) -> bool {
        self.0.iter().all(|(guid, count)| before.0.get(guid) == Some(count))
    }

    /// Has that of this leaf failed since `before`?
    pub fn has_since(&self, leaf: &Leaf, before: &FlushFailures) -> bool {
        self.0.get(&leaf.guid()).is_some_and(|count| before.0.get(&leaf.guid()) != Some(count))
    }
}
