//! Gangs of ours, made of every n-th block: data, indirect blocks, the MOS. All referees take them for what
//! they are, the kernel goes on with them, and all of it is freed again.
//!
//! Seen red: with a header that is sealed with the address of its own copy, with the members left out of the
//! DVA's size, with a rewritten gang whose header keeps the old sums of its members.

use acceptance::judges::assert_verified;
use acceptance::{SHAPES, Session, Shape, engine, judge};
use pool::Stored;
use testkit::workload::{Op, Workload, acceptance, random};
use testkit::{Compare, Images, assert_same, kernel, rounds, tool, vm};

/// Every so-manieth block becomes a gang, and so do members of gangs.
const EVERY: u64 = 3;

/// Number of gangs in the pool, as zdb counts them.
pub(crate) fn gangs(images: &Images) -> u64 {
    let path = images.path().to_str().unwrap();
    let ran = tool::zdb(["-e", "-p", path, "-bb", engine::POOL]).expect_ok();
    let line = ran.out.lines().find(|line| line.contains("ganged count"));
    let count = line.and_then(|line| line.split_whitespace().last());
    count.map_or(0, |count| count.parse().unwrap())
}

/// Does the operations with gangs in between, also over re-opens.
fn run(session: &mut Session, least: u64, ops: &[Op]) {
    session.pool().force_gangs(least, EVERY).unwrap();
    for op in ops {
        session.apply(op).unwrap_or_else(|e| panic!("{op}: {e}"));
        if matches!(op, Op::Reopen) {
            session.pool().force_gangs(least, EVERY).unwrap();
        }
    }
}

fn carries(shape: &Shape, record_bytes: u64, props: &[(&str, u64)], load: &Workload) {
    let (images, mut session) = Session::create(shape, record_bytes);
    for (name, value) in props {
        session.pool().set_property(engine::POOL, name, Some(Stored::Number(*value))).unwrap();
    }
    session.pool().sync().unwrap();
    let before = session.pool().space().unwrap().allocated;
    run(&mut session, 1024, &load.ops);
    let expected = load.tree.entries();
    assert_same(&expected, &engine::list(session.filesystem()).unwrap(), Compare::MODEL);
    session.close().unwrap();
    let count = gangs(&images);
    assert!(count > 30, "{}: {count} gangs", shape.name);
    judge(&images, engine::POOL, shape.spare_copies, 5);
    assert_verified(images.path(), engine::POOL);

    let mut session = Session::open(images.path(), engine::POOL, engine::POOL).unwrap();
    assert_same(&expected, &engine::list(session.filesystem()).unwrap(), Compare::MODEL);
    // All of it goes, and the space with it.
    session.pool().force_gangs(1024, EVERY).unwrap();
    let mut names = load.tree.paths();
    names.sort_by_key(|(path, _)| std::cmp::Reverse(path.iter().filter(|b| **b == b'/').count()));
    for (path, node) in names.into_iter().filter(|(path, _)| !path.is_empty()) {
        let dir = matches!(node.form, testkit::model::Form::Dir(_));
        session.apply(&if dir { Op::Rmdir { path } } else { Op::Remove { path } }).unwrap();
    }
    session.close().unwrap();
    let session = Session::open(images.path(), engine::POOL, engine::POOL).unwrap();
    let after = session.pool().space().unwrap().allocated;
    assert!(after < before + (4 << 20), "{}: {before} bytes before, {after} after", shape.name);
    drop(session);
    judge(&images, engine::POOL, 0, 5);
    assert_verified(images.path(), engine::POOL);
}

#[test]
fn on_one_disk() {
    carries(&SHAPES[0], 128 << 10, &[], &random(1, 600, 8));
}

#[test]
fn on_a_mirror_with_copies() {
    carries(&SHAPES[1], 1 << 20, &[("copies", 2), ("checksum", 8)], &acceptance(2));
}

#[test]
fn on_raidz1_with_small_sectors() {
    carries(&SHAPES[2], 128 << 10, &[("copies", 3), ("checksum", 12)], &random(3, 900, 8));
}

#[test]
fn on_raidz2() {
    carries(&SHAPES[3], 128 << 10, &[], &random(4, 600, 8));
}

/// The kernel reads gangs of ours, overwrites and frees them, scrubs, and leaves a pool that we go on with.
#[test]
fn the_kernel_goes_on_with_them() {
    if !vm::wanted("that the OpenZFS kernel takes our gangs") {
        return;
    }
    for shape in &SHAPES[..usize::try_from(rounds(1, 6)).unwrap()] {
        let (images, mut session) = Session::create(shape, 128 << 10);
        let mut load = acceptance(31);
        run(&mut session, 1024, &load.ops);
        session.close().unwrap();
        let truth = kernel::truth_of(images.path(), engine::POOL, &[]);
        let mut theirs = truth.entries(engine::POOL).unwrap();
        theirs.sort_by(|a, b| a.path.cmp(&b.path));
        assert_same(&load.tree.entries(), &theirs, Compare::MODEL);
        let ours = load.ops.len();
        (0..300).for_each(|_| load.step());
        let _status = kernel::work(images.path(), engine::POOL, engine::POOL, &load.ops[ours..]);
        let session = Session::open(images.path(), engine::POOL, engine::POOL).unwrap();
        let found = engine::list(session.filesystem()).unwrap();
        assert_same(&load.tree.entries(), &found, Compare::MODEL);
        drop(session);
        tool::zdb_content(images.path(), engine::POOL);
        drop(testkit::poolaudit_kernels(images.path(), engine::POOL).expect_ok());
        assert_verified(images.path(), engine::POOL);
    }
}
