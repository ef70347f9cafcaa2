//! Random work on files, snapshots, clones and their like, against a model, judged from outside.

#![allow(clippy::unwrap_used)]

use acceptance::forest::Forest;
use acceptance::{SHAPES, Session, Shape, engine, judge};
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
