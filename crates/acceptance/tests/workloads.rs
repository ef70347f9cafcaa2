//! The workload that pools of ours must carry, on every shape and record size, judged from outside.

#![allow(clippy::unwrap_used)]

use acceptance::{SHAPES, Session, Shape, assert_verified, engine, judge};
use testkit::workload::{Workload, acceptance, random};
use testkit::{Compare, assert_same, compare, rounds};

fn carries(shape: &Shape, record_bytes: u64, load: &Workload, seed: u64) {
    let (images, mut session) = Session::create(shape, record_bytes);
    session.run(&load.ops);
    let expected = load.tree.entries();
    let found = engine::list(session.filesystem()).unwrap();
    assert_same(&expected, &found, Compare::MODEL);
    session.close().unwrap();
    judge(&images, engine::POOL, shape.spare_copies, seed);
    assert!(assert_verified(images.path(), engine::POOL) > 500);
    let session = Session::open(images.path(), engine::POOL, engine::POOL).unwrap();
    let found = engine::list(session.filesystem()).unwrap();
    assert_same(&expected, &found, Compare::MODEL);
    let times = 1 + shape.spare_copies as u64;
    compare::assert_sparse(&expected, &found, record_bytes, times);
}

macro_rules! workloads {
    ($($name:ident: $shape:expr, $record:expr;)*) => {$(
        #[test]
        fn $name() {
            for seed in 1..=rounds(1, 10) {
                carries(&SHAPES[$shape], $record, &acceptance(seed), seed);
            }
        }
    )*};
}

workloads! {
    single_128k: 0, 128 << 10;
    single_1m: 0, 1 << 20;
    mirror_128k: 1, 128 << 10;
    mirror_1m: 1, 1 << 20;
    raidz1_128k: 2, 128 << 10;
    raidz1_1m: 2, 1 << 20;
    raidz2_128k: 3, 128 << 10;
    raidz2_1m: 3, 1 << 20;
}

#[test]
fn random_work_on_small_records() {
    for seed in 1..=rounds(3, 100) {
        carries(&SHAPES[usize::try_from(seed % 4).unwrap()], 4096, &random(seed, 600, 8), seed);
    }
}
