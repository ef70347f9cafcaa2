//! Scrubs that are paused, stopped, killed, and whose pool changes beneath them.

use std::sync::atomic::{AtomicBool, Ordering};

use acceptance::forest::Forest;
use acceptance::{Session, assert_verified, judge};
use format::scan::{ScanFunction, ScanState};
use pool::{ScanAnswer, ScanStep};
use testkit::truth::Entry;
use testkit::workload::Op;
use testkit::{Compare, assert_same, rounds};

use crate::{POOL, files, finish, hurt, load, scrub, shape};

/// Paused, the pool closed and opened, gone on with; then stopped.
#[test]
fn it_is_paused_and_stopped_across_opens() {
    let (images, mut session) = Session::create(shape("raidz1"), 128 << 10);
    session.run(&load(1, "a", 40));
    let pool = session.pool();
    assert_eq!(pool.scan_step().unwrap(), ScanStep::Idle);
    assert_eq!(pool.scan_pause().unwrap(), ScanAnswer::NoScan);
    assert_eq!(pool.scan_stop().unwrap(), ScanAnswer::NoScan);
    assert_eq!(pool.scan_start(ScanFunction::Scrub).unwrap(), ScanAnswer::Done);
    assert_eq!(pool.scan_step_within(1 << 20).unwrap(), ScanStep::More);
    assert_eq!(pool.scan_start(ScanFunction::Scrub).unwrap(), ScanAnswer::Scrubbing);
    assert_eq!(pool.scan_pause().unwrap(), ScanAnswer::Done);
    assert_eq!(pool.scan_pause().unwrap(), ScanAnswer::Paused);
    assert_eq!(pool.scan_step().unwrap(), ScanStep::Idle);
    let before = pool.scan_status().unwrap().unwrap().scan;
    assert!(before.examined > 0 && before.examined < before.to_examine / 2, "{before:?}");
    session.close().unwrap();
    drop(session);
    let mut session = Session::open(images.path(), POOL, POOL).unwrap();
    let pool = session.pool();
    assert_eq!(pool.read_only_reason(), None);
    let status = pool.scan_status().unwrap().unwrap();
    assert_eq!(status.scan, before);
    assert!(status.paused.is_some() && !pool.is_scanning());
    assert_eq!(pool.scan_start(ScanFunction::Scrub).unwrap(), ScanAnswer::Resumed);
    let done = finish(pool).scan;
    assert!(done.examined >= done.to_examine / 10 * 9, "{done:?}");
    // Each block once.
    assert!(done.examined <= done.to_examine / 10 * 11, "{done:?}");
    assert_eq!(pool.scan_start(ScanFunction::Scrub).unwrap(), ScanAnswer::Done);
    assert_eq!(pool.scan_step_within(1 << 20).unwrap(), ScanStep::More);
    let examined = pool.scan_status().unwrap().unwrap().scan.examined;
    session.close().unwrap();
    drop(session);
    let mut session = Session::open(images.path(), POOL, POOL).unwrap();
    let pool = session.pool();
    assert!(pool.is_scanning());
    assert_eq!(pool.scan_status().unwrap().unwrap().scan.examined, examined);
    assert_eq!(pool.scan_stop().unwrap(), ScanAnswer::Done);
    assert_eq!(pool.scan_status().unwrap().unwrap().scan.state, ScanState::Canceled);
    assert_eq!(pool.scan_stop().unwrap(), ScanAnswer::NoScan);
    session.close().unwrap();
    drop(session);
    assert_verified(images.path(), POOL);
    judge(&images, POOL, 1, 3);
}

/// Opened for one slice, closed, and opened again: it comes to its end, and each block is examined once.
#[test]
fn it_goes_on_where_an_orderly_close_left_it() {
    let (images, mut session) = Session::create(shape("raidz1"), 128 << 10);
    session.run(&load(3, "a", 40));
    assert_eq!(session.pool().scan_start(ScanFunction::Scrub).unwrap(), ScanAnswer::Done);
    let to_examine = session.pool().scan_status().unwrap().unwrap().scan.to_examine;
    let mut opens = 1;
    while session.pool().scan_step_within(to_examine / 20).unwrap() != ScanStep::Done {
        session.close().unwrap();
        drop(session);
        session = Session::open(images.path(), POOL, POOL).unwrap();
        opens += 1;
        assert!(opens < 100, "it does not come to its end");
    }
    assert!(opens > 10, "{opens} opens");
    let done = session.pool().scan_status().unwrap().unwrap().scan;
    assert!(done.examined <= done.to_examine / 10 * 11, "{done:?}");
    session.close().unwrap();
    drop(session);
    assert_verified(images.path(), POOL);
}

/// Whoever works on it dies again and again; what was done is not done anew, and nothing is left out.
#[test]
fn it_goes_on_after_kills() {
    let shape = shape("raidz2");
    let (images, mut session) = Session::create(shape, 128 << 10);
    session.run(&load(2, "a", 60));
    session.close().unwrap();
    drop(session);
    hurt(&images.disks()[4], 1, true);
    hurt(&images.disks()[7], 2, true);
    let session = Session::open(images.path(), POOL, POOL).unwrap();
    assert_eq!(session.pool().scan_start(ScanFunction::Scrub).unwrap(), ScanAnswer::Done);
    let to_examine = session.pool().scan_status().unwrap().unwrap().scan.to_examine;
    let mut session = Some(session);
    let mut kills = 0;
    let mut saves = 0;
    loop {
        let of = session.as_ref().unwrap();
        let step = of.pool().scan_step_within(to_examine / 40).unwrap();
        if step == ScanStep::Done {
            break;
        }
        saves += 1;
        if saves % 3 > 0 {
            of.pool().scan_save().unwrap();
        } else {
            // Without a word: what was not put to disk is gone.
            kills += 1;
            drop(session.take());
            session = Some(Session::open(images.path(), POOL, POOL).unwrap());
        }
        assert!(saves < 400, "it does not come to its end");
    }
    assert!(kills > 5, "{kills} kills");
    let mut session = session.unwrap();
    let status = session.pool().scan_status().unwrap().unwrap();
    assert_eq!(status.scan.errors, 0);
    let again = scrub(session.pool());
    assert_eq!((again.scan.processed, again.scan.errors), (0, 0), "{again:?}");
    session.close().unwrap();
    drop(session);
    assert_verified(images.path(), POOL);
}

/// Data sets come, go and change places while a scrub is on its way: what was there all the time is mended.
#[test]
fn no_block_is_left_out_while_data_sets_change() {
    for seed in 1..=rounds(3, 40) {
        let shape = shape(["raidz1", "mirror", "raidz3"][(seed % 3) as usize]);
        let (images, mut session) = Session::create(shape, 16 << 10);
        let mut forest = Forest::plant(session.pool(), seed);
        (0..150).for_each(|_| forest.step(session.pool()));
        forest.let_go();
        session.close().unwrap();
        drop(session);
        for disk in shape.hidden(seed) {
            hurt(&images.disks()[disk], seed, true);
        }
        let mut session = Session::open(images.path(), POOL, POOL).unwrap();
        assert_eq!(session.pool().scan_start(ScanFunction::Scrub).unwrap(), ScanAnswer::Done);
        let mut steps = 0;
        loop {
            let step = session.pool().scan_step_within(16 << 10).unwrap();
            if step == ScanStep::Done {
                break;
            }
            // At first changes come one by one, so that the scrub gets to its end.
            (0..if steps < 150 { 1 } else { 0 }).for_each(|_| forest.step(session.pool()));
            if step == ScanStep::Later {
                session.pool().sync().unwrap();
            }
            steps += 1;
            if steps % 50 == 0 {
                forest.let_go();
                session.close().unwrap();
                drop(session);
                session = Session::open(images.path(), POOL, POOL).unwrap();
            }
            assert!(steps < 20_000, "seed {seed}: it does not come to its end");
        }
        let status = session.pool().scan_status().unwrap().unwrap();
        assert_eq!(status.scan.errors, 0, "seed {seed}: {status:?}");
        let again = scrub(session.pool());
        assert_eq!((again.scan.processed, again.scan.errors), (0, 0), "seed {seed}: {again:?}");
        forest.check(session.pool());
        forest.let_go();
        session.close().unwrap();
        drop(session);
        assert_verified(images.path(), POOL);
        judge(&images, POOL, 0, seed);
    }
}

/// A scrub and somebody who writes, removes and syncs all the while.
#[test]
fn it_goes_on_under_load() {
    let shape = shape("raidz2");
    let (images, mut session) = Session::create(shape, 128 << 10);
    session.run(&load(3, "a", 80));
    session.close().unwrap();
    drop(session);
    hurt(&images.disks()[0], 5, true);
    let mut session = Session::open(images.path(), POOL, POOL).unwrap();
    let whole: Vec<Entry> =
        files(&session).into_iter().filter(|entry| entry.path.starts_with(b"a")).collect();
    assert!(whole.len() == 80, "{} files", whole.len());
    let over = AtomicBool::new(false);
    let pool = session.pool().clone();
    std::thread::scope(|scope| {
        scope.spawn(|| {
            for _ in 0..3 {
                let _ = scrub(&pool);
            }
            over.store(true, Ordering::Release);
        });
        let mut round = 0u64;
        while !over.load(Ordering::Acquire) {
            round += 1;
            session.run(&load(round, &format!("w{round}-"), 10));
            session.run(&[Op::Sync]);
            let gone = (0..10).map(|i| Op::Remove { path: format!("w{round}-{i}").into_bytes() });
            session.run(&gone.collect::<Vec<_>>());
        }
    });
    drop(pool);
    let status = session.pool().scan_status().unwrap().unwrap();
    assert_eq!(status.scan.errors, 0, "{status:?}");
    session.run(&[Op::Sync]);
    let of_before = |entry: &Entry| entry.path.starts_with(b"a");
    let now: Vec<Entry> = files(&session).into_iter().filter(of_before).collect();
    assert_same(&whole, &now, Compare::MODEL);
    let again = scrub(session.pool());
    assert_eq!((again.scan.processed, again.scan.errors), (0, 0), "{again:?}");
    let errors = |leaf: &vdev::Leaf| leaf.errors.get();
    let tree = session.pool().store().tree();
    // Nobody was blamed for a block that was another by then.
    assert!(tree.leaves()[1..].iter().all(|leaf| errors(leaf) == vdev::ErrorCounts::default()));
    session.close().unwrap();
    drop((tree, session));
    assert_verified(images.path(), POOL);
}
