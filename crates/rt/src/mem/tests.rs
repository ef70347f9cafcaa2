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
    account.add_reclaimer(weak);
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
