//! Counters that only people read.
//!
//! The one idea: nothing in the engine decides by them, so they are no step of a simulated history: the same type
//! in both forms, one relaxed addition each.

use std::sync::atomic::{AtomicU64, Ordering};

/// A number that only grows, from many threads.
#[derive(Debug, Default)]
pub struct Counter(AtomicU64);

impl Counter {
    /// Adds `count`. Wraps around.
    #[inline]
    pub fn add(&self, count: u64) {
        self.0.fetch_add(count, Ordering::Relaxed);
    }

    /// The number now; additions of other threads may show in any order.
    pub fn get(&self) -> u64 {
        self.0.load(Ordering::Relaxed)
    }
}
