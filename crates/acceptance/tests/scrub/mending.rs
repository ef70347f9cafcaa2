//! Damage, and what one scrub makes of it.

use std::fs::OpenOptions;
use std::os::unix::fs::FileExt;

use acceptance::{Session, Shape, Stage, assert_verified, judges};
use format::label::DATA_AT;
use format::scan::{Bookmark, ScanFunction};
use pool::{ScanAnswer, ScanStep};
use testkit::data::Look;
use testkit::workload::{Op, Workload};
use testkit::{Compare, Images, assert_same};

use crate::{POOL, START, files, hurt, load, scrub, shape};

/// Damage on as many disks as may be lost, all at once; then others are hidden.
fn mended(name: &str) {
    let shape = shape(name);
    let (images, mut session) = Session::create(shape, 128 << 10);
    session.run(&load(1, "a", 60));
    session.pool().snapshot(&[format!("{POOL}@one")], &[]).unwrap();
    session.run(&load(2, "b", 30));
    session.run(&[Op::Remove { path: b"a3".to_vec() }, Op::Remove { path: b"a17".to_vec() }]);
    session.close().unwrap();
    drop(session);
    let mut session = Session::open(images.path(), POOL, POOL).unwrap();
    let whole = files(&session);
    session.close().unwrap();
    drop(session);
    let disks = images.disks();
    let bad = shape.hidden(3);
    for (place, disk) in bad.iter().enumerate() {
        hurt(&disks[*disk], *disk as u64, place == 0);
    }
    let mut session = Session::open(images.path(), POOL, POOL).unwrap();
    let status = scrub(session.pool());
    assert!(status.scan.processed > 1 << 20, "{status:?}");
    assert_eq!(status.scan.errors, 0, "{status:?}");
    session.close().unwrap();
    drop(session);
    // Nothing is left for a second one.
    let mut session = Session::open(images.path(), POOL, POOL).unwrap();
    let status = scrub(session.pool());
    assert_eq!((status.scan.processed, status.scan.errors), (0, 0), "{status:?}");
    session.close().unwrap();
    drop(session);
    assert_verified(images.path(), POOL);
    let hidden: Vec<usize> = (0..disks.len()).filter(|disk| !bad.contains(disk)).collect();
    let hidden = others(shape, &hidden);
    let rest = images.without(&hidden);
    let mut session = Session::open(rest.path(), POOL, POOL).unwrap();
    assert_same(&whole, &files(&session), Compare::ALL);
    session.close().unwrap();
    drop((session, rest));
    judges::judge_without(&images, POOL, &[]);
}

/// As many of these disks as each top-level vdev may lose.
fn others(shape: &Shape, from: &[usize]) -> Vec<usize> {
    let each = shape.disks / shape.tops;
    let of = |top: usize| {
        let here = from.iter().copied().filter(move |disk| disk / each == top);
        here.take(shape.spare_copies)
    };
    (0..shape.tops).flat_map(of).collect()
}

#[test]
fn a_mirror_is_mended() {
    mended("mirror");
}

#[test]
fn raidz1_is_mended() {
    mended("raidz1");
}

#[test]
fn raidz2_is_mended() {
    mended("two raidz2");
}

#[test]
fn raidz3_is_mended() {
    mended("raidz3");
}

/// Beyond redundancy: what is lost is counted, and nothing written.
#[test]
fn what_is_lost_is_counted_and_not_made_up() {
    let shape = shape("raidz1");
    let (images, mut session) = Session::create(shape, 128 << 10);
    session.run(&load(1, "a", 40));
    session.close().unwrap();
    drop(session);
    let disks = images.disks();
    // Metadata has more copies, further on; most of what lies here has one.
    let session = Session::open(images.path(), POOL, POOL).unwrap();
    let pool = session.pool();
    for disk in [1, 3] {
        let file = OpenOptions::new().write(true).open(&disks[disk]).unwrap();
        file.write_all_at(&vec![0x5a; 1 << 20], START + (1 << 20)).unwrap();
    }
    let status = scrub(pool);
    assert!(status.scan.errors > 0, "{status:?}");
    assert_eq!(status.scan.errors as usize, pool.scan_lost_blocks().len());
    // Who of them has lied nobody can tell.
    let tree = pool.store().tree();
    let counts: Vec<u64> = tree.leaves().iter().map(|leaf| leaf.errors.get().checksum).collect();
    assert!(counts.iter().all(|count| *count > 0), "{counts:?}");
    drop(tree);
    for disk in [1, 3] {
        let mut bytes = vec![0; 1 << 20];
        let file = std::fs::File::open(&disks[disk]).unwrap();
        file.read_exact_at(&mut bytes, START + (1 << 20)).unwrap();
        let kept = bytes.iter().filter(|byte| **byte == 0x5a).count();
        // Blocks that lie there in part are mended in part.
        assert!(kept > 256 << 10, "{kept} bytes are as they were");
    }
    drop(session);
}

/// Puts noise over the first bytes of blocks of a file on a pool of one disk.
fn lose(images: &Images, session: &Session, path: &str, blocks: std::ops::Range<u64>) {
    let object = session.filesystem().resolve(path.as_bytes()).unwrap();
    let objset = session.pool().dataset(POOL).unwrap().object;
    let file = OpenOptions::new().write(true).open(images.disk(0)).unwrap();
    for block in blocks {
        let at = Bookmark { objset, object, level: 0, block };
        let bp = session.pool().pointer_at(at).unwrap().unwrap();
        for dva in bp.dvas() {
            file.write_all_at(&[0x5a; 512], DATA_AT + dva.offset).unwrap();
        }
    }
}

/// However many blocks one slice finds lost, each is named.
#[test]
fn every_block_that_is_lost_is_named() {
    const BLOCKS: u64 = 6000;
    let (images, mut session) = Session::create(shape("single"), 512);
    let mut work = Workload::new(1);
    work.file(b"lost", Look::Noise, BLOCKS * 512);
    session.run(&work.ops);
    session.run(&[Op::Sync]);
    lose(&images, &session, "lost", 0..BLOCKS);
    session.close().unwrap();
    drop(session);
    let mut session = Session::open(images.path(), POOL, POOL).unwrap();
    assert_eq!(scrub(session.pool()).scan.errors, BLOCKS);
    assert_eq!(session.pool().lost_blocks().unwrap().len() as u64, BLOCKS);
    session.close().unwrap();
}

/// What leads to clones is lost: a scrub says so, and comes to its end.
#[test]
fn it_ends_where_the_pools_own_objects_are_lost() {
    let (images, mut session) = Session::create(shape("single"), 4096);
    session.run(&load(1, "a", 3));
    let pool = session.pool();
    pool.snapshot(&[format!("{POOL}@one")], &[]).unwrap();
    // So many that the list of them does not fit into its pointer.
    for clone in 0..20 {
        let name = format!("{POOL}/clone{clone}");
        pool.clone_snapshot(&format!("{POOL}@one"), &name, Default::default()).unwrap();
    }
    let one = pool::dsl::lookup::find(pool.mos(), &format!("{POOL}@one")).unwrap();
    let clones = one.phys.next_clones_object.get();
    let at = Bookmark { object: clones, ..Bookmark::default() };
    let bp = pool.pointer_at(at).unwrap().unwrap();
    assert!(bp.has_space());
    session.close().unwrap();
    drop(session);
    let file = OpenOptions::new().write(true).open(images.disk(0)).unwrap();
    for dva in bp.dvas() {
        file.write_all_at(&[0x5a; 512], DATA_AT + dva.offset).unwrap();
    }
    let mut session = Session::open(images.path(), POOL, POOL).unwrap();
    let status = scrub(session.pool());
    assert!(status.scan.errors > 0, "{status:?}");
    assert!(session.pool().lost_blocks().unwrap().contains(&at));
    session.close().unwrap();
}

/// What a scrub has found that was stopped is known, beside what was known before, until one that comes to its end
/// finds it whole again.
#[test]
fn what_a_stopped_scrub_found_is_known_until_it_is_whole() {
    let (images, mut session) = Session::create(shape("single"), 4096);
    session.run(&load(1, "a", 3));
    session.run(&[Op::Sync]);
    let before = Bookmark { objset: 99, object: 1, level: 0, block: 0 };
    session.pool().lost(before);
    lose(&images, &session, "a1", 0..3);
    session.close().unwrap();
    drop(session);
    let mut session = Session::open(images.path(), POOL, POOL).unwrap();
    for paused in [true, false] {
        let pool = session.pool();
        assert_eq!(pool.scan_start(ScanFunction::Scrub).unwrap(), ScanAnswer::Done);
        assert_eq!(pool.scan_step().unwrap(), ScanStep::More);
        if paused {
            // On disk, and in the memory of another process.
            session.close().unwrap();
            drop(session);
            session = Session::open(images.path(), POOL, POOL).unwrap();
        }
        assert_eq!(session.pool().lost_blocks().unwrap().len(), 4);
        assert_eq!(session.pool().scan_stop().unwrap(), ScanAnswer::Done);
        assert_eq!(session.pool().lost_blocks().unwrap().len(), 4);
    }
    session.run(&[Op::Remove { path: b"a1".to_vec() }, Op::Sync]);
    assert_eq!(session.pool().lost_blocks().unwrap().len(), 4);
    assert_eq!(scrub(session.pool()).scan.errors, 0);
    assert_eq!(session.pool().lost_blocks().unwrap(), Default::default());
    session.close().unwrap();
    drop(session);
    let mut session = Session::open(images.path(), POOL, POOL).unwrap();
    assert_eq!(session.pool().lost_blocks().unwrap(), Default::default());
    session.close().unwrap();
    drop(session);
    assert_verified(images.path(), POOL);
}

/// The words of `zpool scrub`, and what `zpool status`, the history and verify say afterwards.
#[test]
fn the_program_scrubs() {
    let stage = Stage::new(4, 96 << 20);
    drop(stage.ok("zpool create -o ashift=12 tank raidz2 $D/d00 $D/d01 $D/d02 $D/d03"));
    stage.plant("files", &load(5, "f", 20));
    drop(stage.ok("put -r $A/files tank:/"));
    stage.refused(
        "zpool scrub -s tank",
        1,
        "cannot cancel scrubbing tank: there is no active scrub",
    );
    stage.refused(
        "zpool scrub -p tank",
        1,
        "cannot pause scrubbing tank: there is no active scrub",
    );
    stage.refused("zpool scrub -s -p tank", 2, "invalid option combination: -s and -p are");
    stage.refused("zpool scrub", 2, "missing pool name argument");
    stage.refused("zpool scrub tenk", 1, "cannot open 'tenk': no such pool");
    drop(stage.ok("zpool resilver tank"));
    let images = stage.images.disks();
    hurt(&images[0], 1, true);
    hurt(&images[2], 2, false);
    drop(stage.ok("zpool scrub tank"));
    let status = stage.ok("zpool status tank").out;
    let line = status.lines().find(|line| line.starts_with("  scan: ")).unwrap();
    assert!(line.starts_with("  scan: scrub repaired ") && !line.contains(" 0B "), "{status}");
    assert!(line.contains(" with 0 errors on "), "{status}");
    drop(stage.ok("zpool scrub -w tank"));
    let status = stage.ok("zpool status tank").out;
    assert!(status.contains("  scan: scrub repaired 0B in 00:00:0"), "{status}");
    let history = stage.ok("zpool history -i tank").out;
    assert!(history.contains("scan setup func=1 mintxg=0 maxtxg="), "{history}");
    assert!(history.contains("scan done errors=0"), "{history}");
    drop(stage.ok("verify tank"));
}
