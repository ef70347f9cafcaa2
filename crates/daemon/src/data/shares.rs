//! How much memory the writes to one pool may keep.
//!
//! The one idea: a write keeps its bytes until its pool takes them, and a pool that waits for its disks takes none. So
//! those of one pool together have half of what there is for clients, and who would have more waits with nothing in his
//! hands; readers, and writers of other pools, have the rest.

use std::collections::BTreeMap;

use rt::sync::atomic::{AtomicUsize, Ordering};
use rt::sync::{Condvar, Mutex};

/// Shares of all pools, by guid.
pub(crate) struct Shares {
    max: u64,
    taken: Mutex<BTreeMap<u64, u64>>,
    less: Condvar,
    waiting: AtomicUsize,
}

/// What a write has of its pool's share, until it is dropped.
pub(crate) struct Share<'a> {
    shares: &'a Shares,
    pool: u64,
    bytes: u64,
}

impl Shares {
    /// Of so many bytes that clients may have in all.
    pub(crate) fn of(bytes: u64) -> Shares {
        Shares {
            max: bytes / 2,
            taken: Mutex::default(),
            less: Condvar::new(),
            waiting: AtomicUsize::new(0),
        }
    }

    /// Takes `bytes`, or all there are, of the share of a pool. Waits for them.
    pub(crate) fn take(&self, pool: u64, bytes: u64) -> Share<'_> {
        let bytes = bytes.min(self.max);
        let mut taken = self.taken.lock();
        loop {
            let has = taken.entry(pool).or_default();
            if *has + bytes <= self.max {
                *has += bytes;
                return Share { shares: self, pool, bytes };
            }
            self.waiting.fetch_add(1, Ordering::AcqRel);
            taken = self.less.wait(taken);
            self.waiting.fetch_sub(1, Ordering::AcqRel);
        }
    }

    /// Does anybody wait?
    pub(crate) fn are_wanted(&self) -> bool {
        self.waiting.load(Ordering::Acquire) > 0
    }
}

impl Drop for Share<'_> {
    fn drop(&mut self) {
        let mut taken = self.shares.taken.lock();
        if let Some(has) = taken.get_mut(&self.pool) {
            *has -= self.bytes;
            if *has == 0 {
                taken.remove(&self.pool);
            }
        }
        self.shares.less.notify_all();
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use rt::sync::Arc;

    use super::*;

    #[test]
    fn one_pool_has_half_and_no_more() {
        let shares = Arc::new(Shares::of(200));
        let held = [shares.take(1, 60), shares.take(1, 40)];
        let come = Arc::new(AtomicUsize::new(0));
        let late: Vec<_> = (0..2)
            .map(|_| {
                let (shares, come) = (shares.clone(), come.clone());
                rt::thread::spawn("late", move || {
                    // More than there is: all there is.
                    drop(shares.take(1, 1000));
                    come.fetch_add(1, Ordering::AcqRel);
                })
            })
            .collect();
        rt::time::sleep(Duration::from_millis(50));
        assert_eq!(come.load(Ordering::Acquire), 0);
        // Another pool does not wait for that one.
        drop(shares.take(2, 100));
        drop(held);
        late.into_iter().for_each(rt::thread::JoinHandle::join);
        assert!(shares.taken.lock().is_empty());
    }
}
