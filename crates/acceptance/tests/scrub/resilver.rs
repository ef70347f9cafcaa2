//! A disk that was away and is back again is given what it lacks, and no more.

use std::fs::OpenOptions;
use std::os::unix::fs::FileExt;

use acceptance::{Session, assert_verified, engine, judge};
use format::label::DATA_AT;
use format::scan::{Bookmark, ScanFunction};
use pool::{ScanAnswer, ScanStep};
use testkit::data::Look;
use testkit::workload::{Op, Workload};
use testkit::{Compare, Images, assert_same};

use crate::{POOL, files, finish, load, shape};

/// Work that is done without some disks.
fn without(images: &Images, away: &[usize], work: &[Op]) {
    let rest = images.without(away);
    let mut session = Session::open(rest.path(), POOL, POOL).unwrap();
    session.run(work);
    session.close().unwrap();
}

/// Written without some disks; then they are back, and others go.
fn resilvered(name: &str, away: &[usize], kills: bool) {
    let shape = shape(name);
    let (images, mut session) = Session::create(shape, 128 << 10);
    session.run(&load(1, "before", 60));
    let before = session.pool().space().unwrap().allocated;
    session.close().unwrap();
    drop(session);
    without(&images, away, &load(2, "away", 60));
    let mut session = Session::open(images.path(), POOL, POOL).unwrap();
    let whole = files(&session);
    let pool = session.pool();
    // What led to the pool was read from them, too, before it was known what they lack.
    let tree = pool.store().tree();
    assert!(tree.leaves().iter().all(|leaf| leaf.errors.get() == vdev::ErrorCounts::default()));
    drop(tree);
    let grown = pool.space().unwrap().allocated - before;
    assert!(pool.needs_resilver());
    let meters = |pool: &pool::Pool| -> Vec<_> {
        pool.meters().into_iter().map(|leaf| leaf.meters).collect()
    };
    let unfilled = meters(pool);
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
        // Its reads and writes are the disks', as any other.
        let done = |leaf: &usize| meters(pool)[*leaf].since(&unfilled[*leaf]);
        let filled: u64 = away.iter().map(|leaf| done(leaf).writes().1).sum();
        assert!(filled >= written, "{filled} bytes were written to disks, {told}");
        let asked: u64 = (0..shape.disks).map(|leaf| done(&leaf).reads().1).sum();
        assert!(asked < read + written, "{asked} bytes were read from disks, {told}");
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

/// What two disks lack is given to them before what one of them lacks alone.
#[test]
fn what_is_nearest_to_being_lost_comes_first() {
    let (images, mut session) = Session::create(shape("raidz2"), 128 << 10);
    session.run(&load(1, "before", 10));
    let before = session.pool().space().unwrap().allocated;
    session.close().unwrap();
    drop(session);
    without(&images, &[2], &load(2, "one", 60));
    without(&images, &[2, 9], &load(3, "both", 20));
    let mut session = Session::open(images.path(), POOL, POOL).unwrap();
    let pool = session.pool().clone();
    let grown = pool.space().unwrap().allocated - before;
    let lacks = |leaf: usize| !pool.store().tree().leaves()[leaf].lacks.is_empty();
    assert_eq!(pool.scan_start(ScanFunction::Resilver).unwrap(), ScanAnswer::Done);
    while lacks(9) {
        assert!(lacks(2));
        assert_eq!(pool.scan_step_within(1 << 20).unwrap(), ScanStep::More);
    }
    // Two disks of eleven lack a quarter of it, one the rest.
    let given = pool.scan_status().unwrap().unwrap().scan.processed;
    assert!(lacks(2) && given > 0 && given < grown * 2 / 11 / 2, "{given} of {grown}");
    let status = finish(&pool);
    assert!(!lacks(2) && !pool.needs_resilver() && status.scan.errors == 0, "{status:?}");
    let (read, written) = (status.pass_read, status.pass_written);
    assert!(read + written <= grown * 115 / 100, "{read} read, {written} written of {grown}");
    let whole = files(&session);
    drop(pool);
    session.close().unwrap();
    drop(session);
    assert_verified(images.path(), POOL);
    let rest = images.without(&[0, 4]);
    let mut session = Session::open(rest.path(), POOL, POOL).unwrap();
    assert_same(&whole, &files(&session), Compare::ALL);
    session.close().unwrap();
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

/// A file system of many small blocks, which one disk of a mirror has not seen, is destroyed, and little of it freed.
fn destroyed_without_disk_1() -> (Images, Session, Vec<(u64, Vec<u8>)>) {
    let (images, mut session) = Session::create(shape("mirror"), 512);
    let pool = session.pool().clone();
    let leaf = pool.store().tree().leaves()[1].guid();
    pool.offline(leaf, false, false).unwrap();
    let name = format!("{POOL}/large");
    pool.create_filesystem(&name, Default::default(), fs::make_filesystem).unwrap();
    let filesystem = fs::Filesystem::open(&pool, &name).unwrap();
    let mut load = Workload::new(7);
    (0..4).for_each(|i| load.file(format!("f{i}").as_bytes(), Look::Noise, 1 << 20));
    load.ops.iter().for_each(|op| engine::change(&filesystem, op).unwrap());
    pool.sync().unwrap();
    // What leads to blocks of the third of them.
    let object = filesystem.resolve(b"f2").unwrap();
    let objset = pool.dataset(&name).unwrap().object;
    let at = Bookmark { objset, object, level: 1, block: 0 };
    let bp = pool.pointer_at(at).unwrap().unwrap();
    let file = std::fs::File::open(images.disk(0)).unwrap();
    let places = bp.dvas().map(|dva| {
        let mut bytes = vec![0; bp.psize() as usize];
        file.read_exact_at(&mut bytes, DATA_AT + dva.offset).unwrap();
        (DATA_AT + dva.offset, bytes)
    });
    let places = places.collect();
    drop(filesystem);
    pool.set_freeing(200, false).unwrap();
    pool.destroy_dataset(&name).unwrap();
    assert!(pool.is_freeing().unwrap());
    drop(pool);
    session.close().unwrap();
    drop(session);
    let session = Session::open_freeing(images.path(), POOL, POOL, Some(200)).unwrap();
    session.pool().online(leaf, None).unwrap();
    (images, session, places)
}

/// The resilver is done: with disk 1 alone, and as it was left, what was destroyed becomes free.
fn disk_1_frees_it_all(images: &Images, session: Session) {
    assert!(!session.pool().needs_resilver());
    drop(session);
    let rest = images.without(&[0, 2]);
    let mut session = Session::open(rest.path(), POOL, POOL).unwrap();
    session.pool().finish_freeing(|_| true).unwrap();
    assert_eq!(session.pool().freeing().unwrap(), 0);
    session.close().unwrap();
}

/// What was destroyed and is not free yet is not left to the other disks.
#[test]
fn it_waits_until_what_was_destroyed_is_free() {
    let (images, session, _) = destroyed_without_disk_1();
    let pool = session.pool();
    assert!(pool.is_freeing().unwrap());
    assert_eq!(pool.scan_start(ScanFunction::Resilver).unwrap(), ScanAnswer::Done);
    assert_eq!(finish(pool).scan.errors, 0);
    disk_1_frees_it_all(&images, session);
}

/// Nor is what cannot become free, since something in it cannot be read; nobody waits for that.
#[test]
fn it_gives_what_can_be_read_of_what_cannot_become_free() {
    let (images, mut session, places) = destroyed_without_disk_1();
    session.close().unwrap();
    drop(session);
    let write = |disk: usize, broken: bool| {
        let file = OpenOptions::new().write(true).open(images.disk(disk)).unwrap();
        for (at, bytes) in &places {
            let bytes = if broken { vec![0x5a; bytes.len()] } else { bytes.clone() };
            file.write_all_at(&bytes, *at).unwrap();
        }
    };
    (0..3).for_each(|disk| write(disk, true));
    let session = Session::open_freeing(images.path(), POOL, POOL, Some(200)).unwrap();
    let pool = session.pool();
    assert_eq!(pool.scan_start(ScanFunction::Resilver).unwrap(), ScanAnswer::Done);
    let status = finish(pool);
    assert_eq!(status.scan.errors, 0, "{status:?}");
    assert!(!pool.is_freeing().unwrap() && pool.freeing().unwrap() > 0, "it was readable");
    write(1, false);
    disk_1_frees_it_all(&images, session);
}
