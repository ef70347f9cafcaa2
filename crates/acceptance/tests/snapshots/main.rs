//! Random work on files, snapshots, clones and their like, against a model, judged from outside.
//!
//! Seen red: clones that keep the key of a destroyed snapshot, a head or a snapshot that gains nothing from a
//! destroyed neighbour, a walk that skips a block where it goes on, a promotion that moves no charge, a rollback
//! that frees nothing, and sub-bpobjs that are counted twice.

#![allow(clippy::unwrap_used)]

mod disks;
mod generations;

use std::collections::{BTreeMap, BTreeSet};

use acceptance::forest::Forest;
use acceptance::{SHAPES, Session, Shape, assert_verified, engine, judge};
use format::scan::ScanFunction;
use fs::{NewObject, Who, mode};
use pool::dsl::lookup;
use pool::{PoolError, ScanStep};
use testkit::{Images, noise, rounds};

fn works(shape: &Shape, features: bool, seed: u64, steps: u64, opens: u64) {
    let (images, mut session) = Session::create_with(shape, 16 << 10, features);
    let mut forest = Forest::plant(session.pool(), seed);
    for open in 0..opens {
        // So few that destroyed trees outlive the pool's closing.
        session.pool().set_freeing(3 + 20 * open, open % 2 == 0).unwrap();
        for _ in 0..steps / opens {
            forest.step(session.pool());
        }
        forest.check(session.pool());
        forest.let_go();
        session.close().unwrap();
        judge(&images, engine::POOL, shape.spare_copies, seed);
        assert_verified(images.path(), engine::POOL);
        session = Session::open(images.path(), engine::POOL, engine::POOL).unwrap();
        forest.check(session.pool());
    }
    assert_eq!(forest.done.len(), 11, "every kind comes: {:?}", forest.done);
}

#[test]
fn a_forest_of_snapshots_and_clones() {
    for seed in 1..=rounds(2, 20) {
        let shape = &SHAPES[usize::try_from(seed % 4).unwrap()];
        works(shape, true, seed, rounds(1_000, 10_000), rounds(4, 10));
    }
}

/// Without features there are no shared empty lists and no trees that wait.
#[test]
fn a_forest_in_a_pool_without_features() {
    works(&SHAPES[1], false, 99, rounds(600, 5_000), rounds(2, 5));
}

/// Seen red: what several snapshots have, and nobody after them, was left out.
#[test]
fn what_a_destroy_of_several_snapshots_brings_is_known_before() {
    let (_images, session) = Session::create(&SHAPES[0], 16 << 10);
    let pool = session.pool();
    pool.create_filesystem("tank/a", BTreeMap::new(), fs::make_filesystem).unwrap();
    let fs = fs::Filesystem::open(pool, "tank/a").unwrap();
    let file = NewObject::of(mode::FILE | 0o644, Who { uid: 0, gid: 0 });
    let number = fs.create_with(fs.root(), b"file", &file, &noise(1, 600_000)).unwrap();
    let found = |n: u64| lookup::find(pool.mos(), &format!("tank/a@s{n}")).unwrap();
    for n in 0..6 {
        pool.snapshot(&[format!("tank/a@s{n}")], &[]).unwrap();
        fs.write(number, n * 60_000, &noise(n + 2, 100_000)).unwrap();
    }
    pool.sync().unwrap();
    let used = || lookup::find(pool.mos(), "tank/a").unwrap().dir.used_bytes.get();
    for numbers in [&[2, 3, 4][..], &[0], &[1, 5]] {
        let names: Vec<_> = numbers.iter().map(|n| format!("tank/a@s{n}")).collect();
        let (first, last) = (found(numbers[0]), found(*numbers.last().unwrap()));
        let (would, before) = (pool.would_free(&first, &last).unwrap(), used());
        pool.destroy_snapshots(&names, false).unwrap();
        assert_eq!(before - used(), would, "{numbers:?}");
    }
}

/// Seen red: it kept the name and the directory that it had. Once these were gone, and the name was another's, the next
/// rename of that suspended the pool.
#[test]
fn a_snapshot_that_is_open_moves_with_a_promotion() {
    let (images, mut session) = Session::create(&SHAPES[0], 16 << 10);
    let pool = session.pool().clone();
    let make = |name| pool.create_filesystem(name, BTreeMap::new(), fs::make_filesystem).unwrap();
    make("tank/a");
    pool.snapshot(&["tank/a@s".into()], &[]).unwrap();
    pool.clone_snapshot("tank/a@s", "tank/b", BTreeMap::new()).unwrap();
    let open = pool.dataset("tank/a@s").unwrap();
    pool.promote("tank/b").unwrap();
    pool.destroy_dataset("tank/a").unwrap();
    make("tank/a");
    pool.rename("tank/a", "tank/c").unwrap();
    assert_eq!(open.name(), "tank/b@s");
    pool.rename("tank/b", "tank/a").unwrap();
    assert_eq!(open.name(), "tank/a@s");
    drop((open, pool));
    session.close().unwrap();
    judge(&images, engine::POOL, 0, 1);
}

/// A pool whose root file system has become a clone of `tank/c`; `tank/old` was made before that, `tank/new` since.
fn with_a_root_that_is_a_clone() -> (Images, Session) {
    let (images, session) = Session::create(&SHAPES[0], 16 << 10);
    let pool = session.pool();
    let make = |name| pool.create_filesystem(name, BTreeMap::new(), fs::make_filesystem).unwrap();
    make("tank/old");
    pool.snapshot(&["tank@s".into()], &[]).unwrap();
    pool.clone_snapshot("tank@s", "tank/c", BTreeMap::new()).unwrap();
    pool.promote("tank/c").unwrap();
    make("tank/new");
    for name in ["tank/old", "tank/new"] {
        let fs = fs::Filesystem::open(pool, name).unwrap();
        let file = NewObject::of(mode::FILE | 0o644, Who { uid: 0, gid: 0 });
        fs.create_with(fs.root(), b"file", &file, &noise(1, 2 << 20)).unwrap();
    }
    pool.sync().unwrap();
    (images, session)
}

/// Seen red: what was made then began with the root's origin, too, and the judges found its space wrong; what was no clone
/// could be promoted, and the root could not.
#[test]
fn what_is_new_is_no_clone_though_the_root_is_one() {
    let (images, mut session) = with_a_root_that_is_a_clone();
    session.close().unwrap();
    judge(&images, engine::POOL, 0, 1);
    assert_verified(images.path(), engine::POOL);
    session = Session::open(images.path(), engine::POOL, engine::POOL).unwrap();
    let pool = session.pool().clone();
    for name in ["tank/old", "tank/new"] {
        let promoted = pool.promote(name);
        assert!(matches!(promoted, Err(PoolError::NoClone { .. })), "{name}: {promoted:?}");
    }
    pool.promote("tank").unwrap();
    pool.destroy_dataset("tank/c").unwrap();
    drop(pool);
    session.close().unwrap();
    judge(&images, engine::POOL, 0, 1);
    assert_verified(images.path(), engine::POOL);
}

/// Seen red: it passed what had grown from the root's origin alone, and so did a resilver.
#[test]
fn a_scrub_passes_all_though_the_root_is_a_clone() {
    let (_images, session) = with_a_root_that_is_a_clone();
    let pool = session.pool();
    pool.scan_start(ScanFunction::Scrub).unwrap();
    assert_eq!(pool.scan_run(&mut |_| true).unwrap(), ScanStep::Done);
    let scan = pool.scan_status().unwrap().unwrap().scan;
    assert!(scan.examined > 4 << 20 && scan.errors == 0, "{scan:?}");
}

/// Lists of thousands of blocks are handed on as they are, list in list, and worked off in portions;
/// what is half worked off is right, too.
#[test]
fn long_lists_are_handed_on_and_worked_off() {
    /// Of more blocks than a list of lists copies.
    const PART: u64 = 600_000;
    let (images, mut session) = Session::create(&SHAPES[0], 512);
    let name = |i: u64| format!("{}@s{i}", engine::POOL);
    let mut now = noise(0, 3 * PART as usize);
    let mut then = Vec::new();
    for i in 0..8 {
        let fs = session.filesystem();
        if i == 0 {
            let file = NewObject::of(mode::FILE | 0o644, Who { uid: 1, gid: 1 });
            fs.create_with(fs.root(), b"file", &file, &now).unwrap();
        } else {
            // A third of what was born at once dies with each snapshot.
            let (at, bytes) = ((i - 1) % 3 * PART, noise(i, PART as usize));
            fs.write(fs.resolve(b"file").unwrap(), at, &bytes).unwrap();
            now[at as usize..][..bytes.len()].copy_from_slice(&bytes);
        }
        then.push(now.clone());
        session.pool().snapshot(&[name(i)], &[]).unwrap();
    }
    let mut left = BTreeSet::from_iter(0..8);
    for gone in [vec![1], vec![2], vec![5, 4], vec![0], vec![3, 7]] {
        session.pool().set_freeing(700, false).unwrap();
        left.retain(|i| !gone.contains(i));
        let names: Vec<String> = gone.iter().map(|i| name(*i)).collect();
        session.pool().destroy_snapshots(&names, false).unwrap();
        let freeing = session.pool().freeing().unwrap();
        // With the first one goes what the others have only handed on.
        assert!(freeing > 0 || gone != [0], "{names:?}");
        session.close().unwrap();
        judge(&images, engine::POOL, 0, 0);
        assert_verified(images.path(), engine::POOL);
        session = Session::open(images.path(), engine::POOL, engine::POOL).unwrap();
    }
    for kept in left {
        let fs = fs::Filesystem::open(session.pool(), &name(kept)).unwrap();
        let mut bytes = vec![0; now.len()];
        assert_eq!(fs.read(fs.resolve(b"file").unwrap(), 0, &mut bytes).unwrap(), now.len());
        assert!(bytes == then[kept as usize], "{}", name(kept));
    }
    session.pool().finish_freeing(|_| true).unwrap();
    assert_eq!(session.pool().freeing().unwrap(), 0);
    session.close().unwrap();
    judge(&images, engine::POOL, 0, 0);
    assert_verified(images.path(), engine::POOL);
}

/// A file that is emptied and grows by one level or two in the same txg: where it had a block, the snapshot still
/// has it, and the hole that is left says when it came.
#[test]
fn holes_of_files_that_grow_tall_are_born() {
    let (images, mut session) = Session::create(&SHAPES[0], 4096);
    let fs = session.filesystem();
    let new = NewObject::of(mode::FILE | 0o644, Who { uid: 1, gid: 1 });
    // Where something is written then, or how far it is cut to, and whether that is in a txg of its own. What is
    // all zeros becomes a hole, too.
    let data = noise(2, 3000);
    let zeros = vec![0; 3000];
    let cases: [(&str, u64, &[u8], bool); 6] = [
        ("two", 9 << 20, &data, false),
        ("three", 5 << 32, &data, false),
        ("no data", 6 << 32, &[], false),
        ("zeros", 69 << 12, &zeros, false),
        ("high zeros", 5 << 32, &zeros, false),
        ("later", 69 << 12, &zeros, true),
    ];
    for (name, far, bytes, later) in cases {
        let file = fs.create_with(fs.root(), name.as_bytes(), &new, &noise(1, 3000)).unwrap();
        session.pool().snapshot(&[format!("{}@{}", engine::POOL, &name[..2])], &[]).unwrap();
        fs.truncate(file, 0).unwrap();
        if later {
            session.pool().sync().unwrap();
        }
        match bytes {
            [] => fs.truncate(file, far).unwrap(),
            bytes => fs.write(file, far, bytes).unwrap(),
        }
        session.pool().sync().unwrap();
    }
    session.close().unwrap();
    judge(&images, engine::POOL, 0, 0);
    assert_verified(images.path(), engine::POOL);
}

/// A volume's dnode leads to three blocks by itself. Which of them was there, and goes as the tree grows by two levels, does
/// not matter: the hole that is left says when it came.
///
/// Seen red: only the first was asked. The kernel's incremental streams left the old block in the copy, where they
/// believe births (`send_holes_without_birth_time=0`).
#[test]
fn holes_of_volumes_that_grow_tall_are_born_whichever_block_was_there() {
    const BLOCK: u64 = 8192;
    let (images, mut session) = Session::create(&SHAPES[0], 4096);
    let pool = session.pool().clone();
    for there in 0..3 {
        let name = format!("tank/v{there}");
        pool.create_volume(&name, BTreeMap::new(), 64 << 20, BLOCK as u32).unwrap();
        let volume = fs::Volume::open(&pool, &name).unwrap().unwrap();
        volume.write(&pool, there * BLOCK, &noise(1, BLOCK as usize)).unwrap();
        pool.snapshot(&[format!("{name}@a")], &[]).unwrap();
        volume.write(&pool, there * BLOCK, &vec![0; BLOCK as usize]).unwrap();
        volume.write(&pool, 9 << 20, &noise(2, BLOCK as usize)).unwrap();
        let txg = pool.sync().unwrap();
        let objset = &volume.dataset().objset;
        let above = objset.pointer(format::master_node::ZVOL_DATA_OBJECT, 1, 0).unwrap();
        assert!(above.is_hole() && above.birth() == txg, "{name}: {above:?}");
    }
    drop(pool);
    session.close().unwrap();
    judge(&images, engine::POOL, 0, 0);
    assert_verified(images.path(), engine::POOL);
}
