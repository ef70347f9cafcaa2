use super::*;
use crate::sync::atomic::{AtomicU64, Ordering};
use crate::{thread, time};
use std::time::Duration;

fn eventually(mut condition: impl FnMut() -> bool) {
    for _ in 0..5_000 {
        if condition() {
            return;
        }
        time::sleep(Duration::from_millis(1));
    }
    panic!("it never happened");
}

#[test]
fn counts_and_releases() {
    let account = Account::new(100, 20);
    let mut a = account.try_grant(Class::Normal, 50).expect("fits");
    let b = a.split(20);
    assert_eq!((a.bytes(), b.bytes(), account.used()), (30, 20, 50));
    a.shrink(10);
    assert_eq!(account.used(), 30);
    a.merge(b);
    assert_eq!((a.bytes(), account.used()), (30, 30));
    drop(a);
    assert_eq!((account.used(), account.used_max()), (0, 50));
}

#[test]
fn reserve_is_for_the_reserve_class() {
    let account = Account::new(100, 20);
    let _all = account.try_grant(Class::Normal, 80).expect("fits");
    assert!(account.try_grant(Class::Normal, 1).is_none());
    let sync = account.try_grant(Class::Reserve, 20).expect("the reserve is there");
    assert!(account.try_grant(Class::Reserve, 1).is_none());
    drop(sync);
    assert_eq!(account.grant(Class::Normal, 81).err(), Some(TooMuch { asked: 81, max: 80 }));
    assert_eq!(account.grant(Class::Reserve, 101).err(), Some(TooMuch { asked: 101, max: 100 }));
    assert!(account.try_grant(Class::Normal, u64::MAX).is_none());
}

#[test]
fn who_waits_first_is_served_first() {
    let account = Account::new(100, 0);
    let all = account.try_grant(Class::Normal, 100).expect("fits");
    let served = Arc::new(Mutex::new(Vec::new()));
    let start = |bytes: u64| {
        let (account, served) = (account.clone(), served.clone());
        thread::spawn("asker", move || {
            let grant = account.grant(Class::Normal, bytes).expect("below the cap");
            served.lock().push(bytes);
            drop(grant);
        })
    };
    let large = start(90);
    eventually(|| account.wanted() == 90);
    let small = start(20);
    eventually(|| account.wanted() == 110);
    let mut all = all;
    all.shrink(50);
    // 50 are free, but the small one does not overtake, nor does a newcomer.
    time::sleep(Duration::from_millis(20));
    assert!(served.lock().is_empty());
    assert!(account.try_grant(Class::Normal, 5).is_none());
    drop(all);
    large.join();
    small.join();
    assert_eq!(*served.lock(), [90, 20]);
    assert_eq!((account.used(), account.wanted()), (0, 0));
}

/// What comes back is theirs at once, before any of them has woken up; who is the first then has caches give way.
#[test]
fn nobody_waits_for_others_to_wake_up() {
    let account = Account::new(100, 0);
    let all = account.try_grant(Class::Normal, 60).expect("fits");
    let elastic = account.try_grant(Class::Elastic, 40).expect("fits");
    let cache = Arc::new(Cache { held: Mutex::default(), calls: AtomicU64::new(0) });
    let weak: Weak<dyn Reclaim> = Arc::downgrade(&(cache.clone() as Arc<dyn Reclaim>));
    account.add_reclaimer(Class::Elastic, weak);
    let (served, go) = (Arc::new(AtomicU64::new(0)), Arc::new(Mutex::new(())));
    let held = go.lock();
    let askers: Vec<_> = (1..=3)
        .map(|count| {
            let (waiting, served, go) = (account.clone(), served.clone(), go.clone());
            let account = account.clone();
            let asker = thread::spawn("asker", move || {
                let grant = account.grant(Class::Normal, 30).expect("below the cap");
                served.fetch_add(1, Ordering::Relaxed);
                drop(go.lock());
                drop(grant);
            });
            eventually(|| waiting.wanted() == 30 * count);
            asker
        })
        .collect();
    drop(all);
    // Two have theirs; nobody has given it back yet.
    assert_eq!((account.used(), account.wanted()), (100, 30));
    cache.held.lock().push(elastic);
    eventually(|| served.load(Ordering::Relaxed) == 3);
    drop(held);
    askers.into_iter().for_each(thread::JoinHandle::join);
    assert_eq!((account.used(), account.wanted()), (0, 0));
}

struct Cache {
    held: Mutex<Vec<Grant>>,
    calls: AtomicU64,
}

impl Reclaim for Cache {
    fn reclaim(&self, bytes: u64) {
        self.calls.fetch_add(1, Ordering::Relaxed);
        let mut held = self.held.lock();
        let mut freed = 0;
        while freed < bytes {
            let Some(grant) = held.pop() else { break };
            freed += grant.bytes();
        }
    }
}

#[test]
fn a_cache_gives_way() {
    let account = Account::new(100, 0);
    let held = (0..10).map(|_| account.try_grant(Class::Normal, 10).expect("fits")).collect();
    let cache = Arc::new(Cache { held: Mutex::new(held), calls: AtomicU64::new(0) });
    let weak: Weak<dyn Reclaim> = Arc::downgrade(&(cache.clone() as Arc<dyn Reclaim>));
    account.add_reclaimer(Class::Elastic, weak);
    let grant = account.grant(Class::Normal, 35).expect("the cache gave way");
    assert_eq!((account.used(), cache.calls.load(Ordering::Relaxed)), (95, 1));
    drop((grant, cache));
    // The cache is gone: nothing is called any more, and all is given back.
    assert_eq!(account.used(), 0);
}

#[test]
fn many_askers_never_exceed_the_cap() {
    let account = Account::new(1000, 100);
    let threads: Vec<_> = (0..4)
        .map(|n| {
            let account = account.clone();
            thread::spawn(format!("asker {n}"), move || {
                let mut rng = crate::Rng::new(n);
                for _ in 0..2_000 {
                    let class = if rng.chance(1, 4) { Class::Reserve } else { Class::Normal };
                    let grant = account.grant(class, 1 + rng.below(400)).expect("below the cap");
                    drop(grant);
                }
            })
        })
        .collect();
    threads.into_iter().for_each(thread::JoinHandle::join);
    assert_eq!(account.used(), 0);
    assert!(account.used_max() <= 1000);
}

#[test]
fn readers_have_theirs_whatever_writers_have() {
    let account = Account::new(100, 60);
    let dirty = account.of(Holder::Dirty).take(60);
    let clients = account.of(Holder::Clients);
    let frames = clients.try_grant(Class::Normal, 40).expect("the reserve is not theirs");
    assert!(clients.try_grant(Class::Normal, 1).is_none());
    drop(dirty);
    assert!(clients.try_grant(Class::Normal, 1).is_none());
    let snapshot = account.snapshot();
    assert_eq!((snapshot.cap, snapshot.used, snapshot.used_max), (100, 40, 100));
    let held = |holder: Holder| snapshot.holdings[holder as usize];
    assert_eq!((held(Holder::Dirty).bytes, held(Holder::Dirty).bytes_max), (0, 60));
    assert_eq!((held(Holder::Clients).bytes, clients.held(), clients.held_max()), (40, 40, 40));
    drop(frames);
    let within = |bytes| clients.try_grant_within(Class::Normal, bytes, 30);
    let first = within(20).expect("below its bound");
    assert!(within(11).is_none() && within(10).is_some());
    drop(first);
}

#[test]
fn a_cache_gives_way_to_what_is_taken() {
    let account = Account::new(100, 50);
    let elastic = account.of(Holder::Cache);
    let held = (0..10).map(|_| elastic.try_grant(Class::Elastic, 10).expect("fits")).collect();
    assert!(elastic.try_grant(Class::Elastic, 1).is_none());
    let cache = Arc::new(Cache { held: Mutex::new(held), calls: AtomicU64::new(0) });
    let weak: Weak<dyn Reclaim> = Arc::downgrade(&(cache.clone() as Arc<dyn Reclaim>));
    account.add_reclaimer(Class::Elastic, weak);
    let mut dirty = account.take(25);
    assert_eq!((account.used(), elastic.held()), (95, 70));
    dirty.set(60);
    assert_eq!((account.used(), elastic.held()), (100, 40));
    dirty.set(5);
    assert_eq!((account.used(), dirty.bytes()), (45, 5));
    // What is short in the part that waits is not the cache's fault.
    let all = account.try_grant(Class::Normal, 50).expect("fits");
    let (asker, calls) = (account.clone(), cache.calls.load(Ordering::Relaxed));
    let waiting = thread::spawn("asker", move || drop(asker.grant(Class::Normal, 1)));
    eventually(|| account.wanted() == 1);
    time::sleep(Duration::from_millis(50));
    assert_eq!(cache.calls.load(Ordering::Relaxed), calls);
    drop(all);
    waiting.join();
    account.rest();
    assert_eq!(elastic.held(), 0);
}

#[test]
fn what_was_taken_keeps_nobody_waiting_for_ever() {
    let account = Account::new(100, 60);
    let _threads = account.of(Holder::Mounts).take(120);
    let clients = account.of(Holder::Clients);
    assert!(clients.try_grant(Class::Normal, 10).is_none());
    let start = time::now();
    let least = clients.grant(Class::Normal, 10).expect("a quarter of 40 is theirs");
    assert!(start.elapsed() >= STUCK_AFTER);
    // One after the other, as far as they fit into that.
    let waiting = thread::spawn("asker", move || drop(clients.grant(Class::Normal, 5)));
    eventually(|| account.wanted() == 5);
    time::sleep(2 * STUCK_AFTER);
    assert_eq!(account.wanted(), 5);
    drop(least);
    waiting.join();
}

#[test]
fn those_who_share_are_counted() {
    let account = Account::new(100, 0);
    let (first, second) = (account.join(), account.of(Holder::Dirty).join());
    assert_eq!(account.members(), 2);
    drop(first);
    assert_eq!((account.members(), second.account().cap()), (1, 100));
    drop(second);
    assert_eq!(account.members(), 1);
}
