//! Random work on files, snapshots, clones and their like, against a model, judged from outside.

#![allow(clippy::unwrap_used)]

use acceptance::forest::Forest;
use acceptance::{SHAPES, Session, Shape, engine, judge};
use fs::{NewObject, Who, mode};
use testkit::{Images, rounds};

/// Our own judge is content, too.
fn assert_verified(images: &Images) {
    let scan = vdev::import::scan(&[images.path().to_path_buf()]).unwrap();
    let found = scan.choose(engine::POOL).unwrap();
    let report = verify::verify_pool(found, &verify::Options::default(), &mut |_| {}).unwrap();
    let clean = report.verdict == verify::Verdict::Clean;
    assert!(clean, "{:?} {:?}", report.findings, report.devices);
}

fn works(shape: &Shape, seed: u64, steps: u64, opens: u64) {
    let (images, mut session) = Session::create(shape, 16 << 10);
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
        assert_verified(&images);
        session = Session::open(images.path(), engine::POOL, engine::POOL).unwrap();
        forest.check(session.pool());
    }
    assert_eq!(forest.done.len(), 11, "every kind comes: {:?}", forest.done);
}

#[test]
fn a_forest_of_snapshots_and_clones() {
    for seed in 1..=rounds(2, 20) {
        let shape = &SHAPES[usize::try_from(seed % 4).unwrap()];
        works(shape, seed, rounds(1_000, 10_000), rounds(4, 10));
    }
}

/// Lists of thousands of blocks are handed on as they are, list in list, and worked off in portions;
/// what is half worked off is right, too.
#[test]
fn long_lists_are_handed_on_and_worked_off() {
    const BYTES: usize = 1_600_000;
    let (images, mut session) = Session::create(&SHAPES[0], 512);
    let file = NewObject::of(mode::FILE | 0o644, Who { uid: 1, gid: 1 });
    let write = |session: &Session, seed: u64| {
        let fs = session.filesystem();
        let object = match fs.resolve(b"file") {
            Ok(object) => object,
            Err(_) => fs.create(fs.root(), b"file", &file).unwrap(),
        };
        fs.write(object, 0, &noise(seed, BYTES)).unwrap();
    };
    let name = |i: u64| format!("{}@s{i}", engine::POOL);
    for i in 0..8 {
        write(&session, i);
        session.pool().snapshot(&[name(i)], &[]).unwrap();
    }
    session.pool().set_freeing(700, false).unwrap();
    for gone in [vec![2], vec![4], vec![3], vec![6, 5]] {
        let names: Vec<String> = gone.into_iter().map(name).collect();
        session.pool().destroy_snapshots(&names, false).unwrap();
        assert!(session.pool().freeing().unwrap() > 0, "{names:?} was freed at once");
        session.close().unwrap();
        judge(&images, engine::POOL, 0, 0);
        assert_verified(&images);
        session = Session::open(images.path(), engine::POOL, engine::POOL).unwrap();
        session.pool().set_freeing(700, false).unwrap();
    }
    for kept in [0, 1, 7] {
        let fs = fs::Filesystem::open(session.pool(), &name(kept)).unwrap();
        let mut bytes = vec![0; BYTES];
        assert_eq!(fs.read(fs.resolve(b"file").unwrap(), 0, &mut bytes).unwrap(), BYTES);
        assert!(bytes == noise(kept, BYTES), "{}", name(kept));
    }
    session.pool().finish_freeing(|_| true).unwrap();
    assert_eq!(session.pool().freeing().unwrap(), 0);
    session.close().unwrap();
    judge(&images, engine::POOL, 0, 0);
    assert_verified(&images);
}

fn noise(seed: u64, len: usize) -> Vec<u8> {
    let mut bytes = vec![0; len];
    rt::random::Rng::new(seed).fill(&mut bytes);
    bytes
}
