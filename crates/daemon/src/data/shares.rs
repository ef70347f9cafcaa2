//! How much memory the writes to one pool may keep.
//!
//! The one idea: a write keeps its bytes until its pool takes them, and a pool that waits for its disks takes none. So
//! those of one pool together have half of what there is for clients, and who would have more waits with nothing in his
//! hands, in the order of asking; readers, and writers of other pools, have the rest.

use std::collections::{BTreeMap, VecDeque};

use rt::sync::atomic::{AtomicUsize, Ordering};
use rt::sync::{Arc, Condvar, Mutex};

/// Shares of all pools, by guid.
pub(crate) struct Shares {
    max: u64,
    pools: Mutex<BTreeMap<u64, Taken>>,
    waiting: AtomicUsize,
}

/// What is taken of the share of a pool.
#[derive(Default)]
struct Taken {
    bytes: u64,
    /// Who waits, and for how much: rung when it is taken for them.
    line: VecDeque<(u64, Arc<Condvar>)>,
}

impl Taken {
    /// Those who wait get what there is, in the order of asking.
    fn serve(&mut self, max: u64) {
        while let Some((bytes, rung)) =
            self.line.pop_front_if(|(bytes, _)| self.bytes + *bytes <= max)
        {
            self.bytes += bytes;
            rung.notify_one();
        }
    }
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
        Shares { max: bytes / 2, pools: Mutex::default(), waiting: AtomicUsize::new(0) }
    }

    /// Takes `bytes`, or all there are, of the share of a pool. Waits for them.
    pub(crate) fn take(&self, pool: u64, bytes: u64) -> Share<'_> {
        let bytes = bytes.min(self.max);
        let mut pools = self.pools.lock();
        let taken = pools.entry(pool).or_default();
        if !taken.line.is_empty() || taken.bytes + bytes > self.max {
            let rung = Arc::new(Condvar::new());
            taken.line.push_back((bytes, rung.clone()));
            self.waiting.fetch_add(1, Ordering::AcqRel);
            let waits =
                |taken: &Taken| taken.line.iter().any(|(_, other)| Arc::ptr_eq(other, &rung));
            while pools.get(&pool).is_some_and(waits) {
                pools = rung.wait(pools);
            }
            self.waiting.fetch_sub(1, Ordering::AcqRel);
        } else {
            taken.bytes += bytes;
        }
        Share { shares: self, pool, bytes }
    }

    /// Does anybody wait?
    pub(crate) fn are_wanted(&self) -> bool {
        self.waiting.load(Ordering::Acquire) > 0
    }
}

impl Drop for Share<'_> {
    fn drop(&mut self) {
        let mut pools = self.shares.pools.lock();
        let Some(taken) = pools.get_mut(&self.pool) else { return };
        taken.bytes -= self.bytes;
        taken.serve(self.shares.max);
        if taken.bytes == 0 && taken.line.is_empty() {
            pools.remove(&self.pool);
        }
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

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
        assert!(shares.pools.lock().is_empty());
    }
}
