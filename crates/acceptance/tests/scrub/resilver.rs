//! A disk that was away and is back again is given what it lacks, and no more.

use acceptance::{Session, assert_verified, judge};
use format::scan::ScanFunction;
use pool::{ScanAnswer, ScanStep};
use testkit::{Compare, assert_same};

use crate::{POOL, files, finish, load, shape};

/// Written without some disks; then they are back, and others go.
fn resilvered(name: &str, away: &[usize], kills: bool) {
    let shape = shape(name);
    let (images, mut session) = Session::create(shape, 128 << 10);
    session.run(&load(1, "before", 60));
    session.close().unwrap();
    drop(session);
    let rest = images.without(away);
    let mut session = Session::open(rest.path(), POOL, POOL).unwrap();
    let before = session.pool().space().unwrap().allocated;
    session.run(&load(2, "away", 60));
    session.close().unwrap();
    drop((session, rest));
    let mut session = Session::open(images.path(), POOL, POOL).unwrap();
    let whole = files(&session);
    let pool = session.pool();
    // What led to the pool was read from them, too, before it was known what they lack.
    let tree = pool.store().tree();
    assert!(tree.leaves().iter().all(|leaf| leaf.errors.get() == vdev::ErrorCounts::default()));
    drop(tree);
    let grown = pool.space().unwrap().allocated - before;
    assert!(pool.needs_resilver());
    assert_eq!(pool.scan_start(ScanFunction::Resilver).unwrap(), ScanAnswer::Done);
    let mut killed = 0;
    while kills && killed < 6 {
        let pool = session.pool();
        if pool.scan_step_within(grown / 20).unwrap() == ScanStep::Done {
            break;
        }
        pool.scan_save().unwrap();
        pool.scan_step_within(grown / 40).unwrap();
        killed += 1;
        drop(session);
        session = Session::open(images.path(), POOL, POOL).unwrap();
    }
    assert!(!kills || killed == 6);
    let pool = session.pool();
    let status = finish(pool);
    assert_eq!(status.scan.errors, 0, "{status:?}");
    assert!(!pool.needs_resilver());
    assert_eq!(pool.scan_start(ScanFunction::Resilver).unwrap(), ScanAnswer::NothingLacks);
    if !kills {
        let (read, written) = (status.pass_read, status.pass_written);
        // Each disk of a mirror has all of it.
        let copies = if name == "mirror" { shape.disks as u64 } else { 1 };
        let grown = grown * copies;
        let share = away.len() as u64 * grown / shape.disks as u64;
        let told = format!("{grown} grown, {read} read, {written} written, due {share}");
        // Sectors that only fill up a row are not written.
        assert!(written >= share * 95 / 100 && written <= share * 115 / 100, "{told}");
        assert!(read + written <= grown * 115 / 100, "{told}");
        assert_eq!(status.scan.processed, written);
    }
    session.close().unwrap();
    drop(session);
    assert_verified(images.path(), POOL);
    let others: Vec<usize> = (0..shape.disks).filter(|disk| !away.contains(disk)).collect();
    let rest = images.without(&others[..shape.spare_copies]);
    let mut session = Session::open(rest.path(), POOL, POOL).unwrap();
    assert_same(&whole, &files(&session), Compare::ALL);
    session.close().unwrap();
    drop((session, rest));
    judge(&images, POOL, 0, 1);
}

/// A scrub that is under way, or paused, gives way to a resilver.
#[test]
fn a_resilver_does_not_wait_for_a_scrub() {
    for paused in [false, true] {
        let (images, mut session) = Session::create(shape("raidz1"), 128 << 10);
        session.run(&load(1, "a", 40));
        let pool = session.pool().clone();
        let leaf = pool.store().tree().leaves()[2].guid();
        assert_eq!(pool.scan_start(ScanFunction::Scrub).unwrap(), ScanAnswer::Done);
        assert_eq!(pool.scan_step_within(1 << 20).unwrap(), ScanStep::More);
        if paused {
            assert_eq!(pool.scan_pause().unwrap(), ScanAnswer::Done);
        }
        pool.offline(leaf, false, false).unwrap();
        session.run(&load(2, "b", 20));
        pool.online(leaf, None).unwrap();
        assert!(pool.needs_resilver());
        assert_eq!(pool.scan_start(ScanFunction::Resilver).unwrap(), ScanAnswer::Done);
        assert_eq!(pool.scan_start(ScanFunction::Resilver).unwrap(), ScanAnswer::Resilvering);
        let status = finish(&pool);
        assert!(status.is_resilver() && status.scan.processed > 0, "{status:?}");
        assert!(!pool.needs_resilver() && status.scan.errors == 0, "{status:?}");
        drop(pool);
        session.close().unwrap();
        drop(session);
        assert_verified(images.path(), POOL);
    }
}

#[test]
fn a_disk_of_a_mirror_is_filled() {
    resilvered("mirror", &[1], false);
}

#[test]
fn a_disk_of_raidz1_is_filled() {
    resilvered("raidz1", &[3], false);
}

#[test]
fn two_disks_of_raidz2_are_filled_with_kills() {
    resilvered("raidz2", &[2, 9], true);
}

#[test]
fn three_disks_of_raidz3_are_filled() {
    resilvered("raidz3", &[0, 4, 8], false);
}
