//! The readers that read on and on, and the memory for what is read ahead of them.
//!
//! Place: beside the store; `dmu` has the streams themselves.
//! The one idea: what is read ahead is a guess, so it asks the account (INV-5) and never waits for it. The more
//! streams there are, the less each may have; and a stream whose reader has not come for a
//! second gives way as soon as another needs the room.

use std::time::Duration;

use rt::mem::{Account, Class, Grant, Holder, Reclaim};
use rt::sync::atomic::{AtomicU64, Ordering};
use rt::sync::{Arc, Mutex, Weak};

/// After so long without its reader a stream gives way.
const PATIENCE: Duration = Duration::from_secs(1);

/// A stream that holds memory.
pub trait Stream: Send + Sync {
    /// Lets go of what was read ahead, if the reader has not come for so long. Does not wait for him.
    fn let_go(&self, unused_for: Duration);
}

/// All streams of a pool.
pub struct Streams {
    account: Account,
    max_bytes: u64,
    count: AtomicU64,
    list: Mutex<Vec<Weak<dyn Stream>>>,
}

/// Counts a stream as one, as long as it is held.
pub struct Member(Arc<Streams>);

impl Drop for Member {
    fn drop(&mut self) {
        self.0.count.fetch_sub(1, Ordering::Relaxed);
    }
}

impl Streams {
    /// Streams that may hold `max_bytes` of the account together.
    pub fn new(account: &Account, max_bytes: u64) -> Arc<Streams> {
        let (account, count) = (account.of(Holder::Ahead), AtomicU64::new(0));
        let streams = Arc::new(Streams { account, max_bytes, count, list: Mutex::default() });
        let weak: Weak<dyn Reclaim> = Arc::<Streams>::downgrade(&streams);
        streams.account.add_reclaimer(Class::Normal, weak);
        streams
    }

    /// One stream more.
    pub fn join(self: &Arc<Self>, stream: Weak<dyn Stream>) -> Member {
        let mut list = self.list.lock();
        list.retain(|other| other.strong_count() > 0);
        list.push(stream);
        self.count.fetch_add(1, Ordering::Relaxed);
        Member(self.clone())
    }

    /// Bytes that each stream may have.
    pub fn share(&self) -> u64 {
        self.max_bytes / self.count.load(Ordering::Relaxed).max(1)
    }

    /// Memory for what is read ahead, if there is any.
    pub fn room(&self, bytes: u64) -> Option<Grant> {
        let grant = || self.account.try_grant_within(Class::Normal, bytes, self.max_bytes);
        grant().or_else(|| {
            self.let_go();
            grant()
        })
    }

    /// Those whose readers have not come for a while give way.
    fn let_go(&self) {
        let Some(list) = self.list.try_lock().map(|list| list.clone()) else { return };
        list.iter().filter_map(Weak::upgrade).for_each(|stream| stream.let_go(PATIENCE));
    }

    /// The account that they ask, as they see it.
    pub fn account(&self) -> &Account {
        &self.account
    }
}

impl Reclaim for Streams {
    fn reclaim(&self, _bytes: u64) {
        self.let_go();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A reader who came just now, or long ago.
    struct Reader(bool, Mutex<Option<Grant>>);

    impl Stream for Reader {
        fn let_go(&self, unused_for: Duration) {
            if self.0 && unused_for > Duration::ZERO {
                *self.1.lock() = None;
            }
        }
    }

    #[test]
    fn who_has_not_come_for_long_gives_way() {
        let streams = Streams::new(&Account::new(100, 40), 60);
        let join = |idle: bool, bytes: u64| {
            let grant = streams.room(bytes);
            assert!(grant.is_some());
            let reader = Arc::new(Reader(idle, Mutex::new(grant)));
            let weak: Weak<dyn Stream> = Arc::<Reader>::downgrade(&reader);
            (reader, streams.join(weak))
        };
        let (_busy, idle) = (join(false, 30), join(true, 20));
        assert_eq!(streams.share(), 30);
        assert!(streams.room(41).is_none() && streams.account().used() == 30);
        drop(idle);
        assert_eq!(streams.share(), 60);
        // The reserve is for others.
        assert!(streams.room(31).is_none() && streams.room(30).is_some());
    }
}
