use super::*;
use crate::buf::ALIGN;
use crate::mem::process::tests::alone;
use crate::{Rng, thread};

#[test]
fn classes_are_dense_and_tight() {
    let mut last = (usize::MAX, 0);
    for len in (1..=CLASS_MAX).step_by(512) {
        let (class, size) = class_of(len).expect("below the largest class");
        assert!(size >= len && size.is_multiple_of(ALIGN) && class < CLASSES, "{len} {size}");
        assert!(size - len < ALIGN.max(size / 4), "{len} wastes in {size}");
        assert_eq!(class_of(size), Some((class, size)), "a class serves its own size");
        if size != last.1 {
            assert!(last.1 < size && last.0 != class);
            last = (class, size);
            let region = region_size(size);
            assert!(region.is_multiple_of(HUGE) && region % size <= region / 4, "{size}");
        }
        assert_eq!(class, last.0, "one class, one size");
    }
    assert_eq!(class_of(CLASS_MAX + 1), None);
}

#[test]
fn goes_round() {
    let _alone = alone();
    for cap in [1 << 20, 64 << 20] {
        let pool = BufPool::new(cap);
        let mut buf = pool.get(100_000);
        assert_eq!((buf.len(), buf.as_ptr().align_offset(ALIGN)), (100_000, 0));
        buf.fill(7);
        let at = buf.as_ptr();
        drop(buf);
        assert!(pool.state().idle_bytes >= 100_000);
        let again = pool.get(99_000);
        assert_eq!(again.as_ptr(), at);
        assert!(again.iter().all(|&b| b == 7), "recycled, not cleared");
        drop(again);
        assert!(pool.get_zeroed(99_000).iter().all(|&b| b == 0));
    }
}

#[test]
fn any_length() {
    let _alone = alone();
    let pool = BufPool::new(1 << 20);
    for len in [0, 1, CLASS_MAX, CLASS_MAX + 1] {
        let mut buf = pool.get(len);
        buf.fill(1);
        assert_eq!(buf.len(), len);
        buf.set_len(len / 2);
        assert_eq!((buf.len(), buf.capacity() >= len), (len / 2, true));
        assert_eq!(pool.copy_of(&buf)[..], buf[..]);
    }
}

#[test]
fn idle_memory_is_bounded() {
    let pool = BufPool::new(256 << 10);
    let many: Vec<_> = (0..16).map(|_| pool.get(64 << 10)).collect();
    drop(many);
    assert_eq!(pool.state().idle_bytes, 256 << 10);
    pool.trim(100 << 10);
    assert_eq!(pool.state().idle_bytes, 64 << 10);
    drop(pool.get(CLASS_MAX + 1));
    assert_eq!(pool.state().idle_bytes, 64 << 10);
}

/// Memory of the process, in bytes, as the kernel counts it.
fn resident() -> usize {
    crate::mem::process::resident().expect("Linux").anonymous as usize
}

#[test]
fn whoever_asks_for_little_gets_no_more() {
    let _alone = alone();
    let pool = BufPool::new(1 << 30);
    let few: Vec<_> = [4 << 10, 16 << 10, 128 << 10, 1 << 20].map(|len| pool.get(len)).into();
    drop(few);
    assert_eq!(pool.state().idle_bytes, (4 + 16 + 128 + 1024) << 10);
    // And then the others of a region come with the one.
    drop(pool.get(CLASS_MAX));
    let before = pool.state().idle_bytes;
    let one = pool.get(64 << 10);
    assert!(pool.state().idle_bytes > before + (1 << 20));
    drop(one);
}

#[test]
fn regions_go_back_to_the_system_as_a_whole() {
    let _alone = alone();
    const MANY: usize = (1_000 * 128) << 10;
    let pool = BufPool::new(64 << 20);
    let before = resident();
    let mut many: Vec<_> = (0..1_000).map(|_| pool.get(128 << 10)).collect();
    assert!(resident() - before > MANY / 2, "it was filled in");
    many.clear();
    assert!(pool.state().idle_bytes <= 64 << 20);
    pool.trim(0);
    assert_eq!(pool.state().idle_bytes, 0);
    assert!(sinks_below(before + MANY / 2), "the system has it back");
}

/// Tests that take little run at the same time, and the system takes a while.
fn sinks_below(most: usize) -> bool {
    (0..100).any(|_| {
        crate::time::sleep(Duration::from_millis(20));
        resident() < most
    })
}

#[test]
fn pages_of_what_lies_idle_go_without_the_rest_of_their_region() {
    let _alone = alone();
    const SIZE: usize = 256 << 10;
    const MANY: usize = 512 * SIZE;
    let pool = BufPool::new(64 << 20);
    let before = resident();
    let mut many: Vec<_> = (0..512).map(|_| pool.get(SIZE)).collect();
    many.iter_mut().for_each(|buf| buf.fill(7));
    // One of each region stays in use.
    let mut at = 0;
    many.retain(|_| {
        at += 1;
        at % 8 == 0
    });
    assert_eq!(pool.state().idle_bytes, 64 << 20);
    pool.trim(0);
    assert_eq!(pool.state().idle_bytes, 0);
    assert!(sinks_below(before + MANY / 2), "the system has it back");
    assert!(many.iter().all(|buf| buf.iter().all(|&byte| byte == 7)), "what is in use stays");
    // They are handed out again, of zeros or of what was in there, and go back as all others do.
    let again: Vec<_> = (0..448).map(|_| pool.get(SIZE)).collect();
    assert!(again.iter().all(|buf| buf.iter().all(|&byte| byte == 0 || byte == 7)));
    drop((many, again));
    pool.trim(0);
    assert_eq!(pool.state(), PoolState { idle_bytes: 0 });
}

/// Of many buffers a fourth stays in use, some of each region.
fn one_in_four(pool: &BufPool) -> Vec<PooledBuf> {
    let many: Vec<_> = (0..1500).map(|_| pool.get(256 << 10)).collect();
    many.into_iter().step_by(4).collect()
}

#[test]
fn what_lies_idle_beside_what_is_in_use_is_little_beyond_the_lease_and_goes_when_others_wait() {
    let _alone = alone();
    const CAP: u64 = 512 << 20;
    let account = Account::new(CAP, 0);
    let pool = BufPool::of(&account);
    let many = one_in_four(&pool);
    // The others lie beside those, and each region is still needed: there is a lease for half of the account, and a little more.
    let beyond = account.used() - CAP / IDLE_PART;
    assert!(beyond > 0 && beyond <= BESIDE_MAX + STEP, "{beyond}");
    // Who waits for memory waits for that, but not for long.
    let others = account.grant(Class::Normal, CAP - (64 << 20)).expect("below the cap");
    assert!(account.used() <= CAP + STEP, "{}", account.used());
    drop((others, many));
}

#[test]
fn who_waits_for_little_gets_it_of_what_lies_idle_beside_what_is_in_use() {
    let _alone = alone();
    const CAP: u64 = 512 << 20;
    let account = Account::new(CAP, 0);
    let pool = BufPool::of(&account);
    let many = one_in_four(&pool);
    let rest = account.take(CAP - account.used());
    let little = account.grant(Class::Normal, 8 << 10).expect("below the cap");
    // Not beyond it, which is what those get that nobody has anything for.
    assert!(account.used() <= CAP, "{}", account.used());
    drop((rest, little, many));
}

#[test]
fn many_threads_many_sizes() {
    let _alone = alone();
    let pool = BufPool::new(24 << 20);
    let threads: Vec<_> = (0..4)
        .map(|n| {
            let pool = pool.clone();
            thread::spawn(format!("user {n}"), move || {
                let mut rng = Rng::new(n);
                let mut held: Vec<PooledBuf> = Vec::new();
                for _ in 0..3_000 {
                    if held.len() > 20 || rng.chance(1, 2) {
                        if let Some(buf) = held.pop() {
                            assert!(buf.iter().all(|&b| b == n as u8), "somebody else wrote");
                        }
                    } else {
                        let mut buf = pool.get(1 + rng.index(300_000));
                        buf.fill(n as u8);
                        held.push(buf);
                        rng.shuffle(&mut held);
                    }
                }
            })
        })
        .collect();
    threads.into_iter().for_each(thread::JoinHandle::join);
    pool.trim(0);
    assert_eq!(pool.state(), PoolState { idle_bytes: 0 });
}

/// What one gives back the next one asks for: a part of the account is for that, however much others want, until a rest.
#[test]
fn a_part_lies_idle_while_others_wait() {
    let _alone = alone();
    const CAP: u64 = 512 << 20;
    const KEPT: usize = (CAP / KEPT_PART) as usize;
    let account = Account::new(CAP, 0);
    let pool = BufPool::of(&account);
    let give_back = |bytes: usize| {
        let many: Vec<_> = (0..bytes >> 20).map(|_| pool.get(1 << 20)).collect();
        let others = account.grant(Class::Normal, CAP - KEPT as u64).unwrap();
        drop(many);
        let idle = pool.state().idle_bytes;
        drop(others);
        idle
    };
    drop(pool.get(1 << 20));
    assert_eq!(account.of(Holder::Buffers).held(), KEPT as u64, "it is the pool's from then on");
    let idle = give_back(2 * KEPT);
    assert!((KEPT..KEPT + (8 << 20)).contains(&idle), "{idle}");
    // To ask for it does not help.
    assert!(account.try_grant(Class::Normal, CAP - KEPT as u64 + 1).is_none());
    account.rest();
    assert_eq!((pool.state().idle_bytes, account.used()), (0, 0));
}

/// What a pool of disks leaves when it is exported is there for the next.
#[test]
fn an_account_has_one_pool_as_long_as_anybody_has_it() {
    let account = Account::new(512 << 20, 0);
    let (kept, other) = (BufPool::of(&account), BufPool::of(&account.of(Holder::Clients)));
    drop(other.get(1 << 20));
    drop(other);
    let idle = kept.state().idle_bytes;
    assert!(idle >= 1 << 20);
    assert_eq!(BufPool::of(&account).state().idle_bytes, idle);
    drop(kept);
    assert_eq!((account.used(), BufPool::of(&account).state().idle_bytes), (0, 0));
}
