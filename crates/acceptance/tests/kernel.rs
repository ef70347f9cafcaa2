//! The OpenZFS kernel takes over pools of ours, and gives them back.
//!
//! Each test is three runs of the VM, some ten seconds each.

#![allow(clippy::unwrap_used)]

use std::collections::BTreeMap;
use std::path::Path;

use acceptance::forest::Forest;
use acceptance::{SHAPES, Session, Shape, engine};
use fs::{Filesystem, NewObject, Who, make_filesystem, mode};
use pool::Stored;
use testkit::truth::Entry;
use testkit::workload::acceptance;
use testkit::{Compare, Ran, Truth, assert_same, kernel, poolaudit_kernels, rounds, tool, vm};

/// The entries that the kernel lists for the root file system of our pool.
fn entries(truth: &Truth) -> Vec<Entry> {
    let mut entries = truth.entries(engine::POOL).unwrap();
    entries.sort_by(|a, b| a.path.cmp(&b.path));
    entries
}

/// File systems beside the root one, with quotas and reservations that show in each other's numbers.
fn add_file_systems(session: &Session) {
    let number = |name: &str, value: u64| (name.to_string(), Stored::Number(value));
    for (name, props) in [
        ("tank/fs", vec![number("quota", 60 << 20), number("refreservation", 9 << 20)]),
        ("tank/fs/small", vec![number("recordsize", 4096), number("reservation", 5 << 20)]),
        ("tank/plain", vec![number("compression", 2), number("refquota", 30 << 20)]),
    ] {
        let mut props = BTreeMap::from_iter(props);
        // where the kernel mounts, it makes a directory in the file system above
        props.insert("mountpoint".into(), Stored::Text(b"none".to_vec()));
        session.pool().create_filesystem(name, props, make_filesystem).unwrap();
        let fs = Filesystem::open(session.pool(), name).unwrap();
        let new = NewObject::of(mode::FILE | 0o640, Who { uid: 7, gid: 8 });
        for (i, size) in [100, 70_000, 1_000_000].into_iter().enumerate() {
            let bytes: Vec<u8> = (0..size).map(|i: u32| (i / 3) as u8).collect();
            fs.create_with(fs.root(), format!("f{i}").as_bytes(), &new, &bytes).unwrap();
        }
    }
}

/// What the kernel says of the data sets, `thumper` says of them on the same images: `zfs list -p`
/// line by line, and each property's value and source.
fn assert_told_alike(dir: &Path, truth: &Truth) {
    assert_eq!(assert_alike(dir, truth), 4);
}

/// The same, for however many data sets; returns their number.
fn assert_alike(dir: &Path, truth: &Truth) -> usize {
    let aside = testkit::temp_dir();
    let thumper = |words: &str| {
        let mut command = acceptance::thumper(&aside.path().join("pools"));
        command.arg("-d").arg(dir).args(words.split_whitespace());
        let ran = Ran::of(&mut command).expect_ok();
        assert!(ran.err.is_empty(), "{ran}");
        ran.out
    };
    let list = truth.command_name("zfs list").to_string();
    let ours = thumper(&list);
    assert_eq!(ours.lines().collect::<Vec<_>>(), truth.command(&list).lines().collect::<Vec<_>>());
    let count = ours.lines().count();
    let mut seen = 0;
    for line in thumper(&format!("zfs get -Hp -r -t all all {}", engine::POOL)).lines() {
        let words: Vec<&str> = line.split('\t').collect();
        let [dataset, property, value, source] = words[..] else { panic!("{line}") };
        // the kernel had it mounted when the truth was told
        if property != "mounted" {
            assert_eq!(Some((value, source)), truth.zfs_get(dataset, property), "{line}");
            seen += 1;
        }
    }
    assert!(seen > 200, "{seen}");
    count
}

/// Ours beside the kernel's: everything but the block size, which only the kernel makes up.
const BESIDE: Compare = Compare { block_size: false, flags: false, ..Compare::ALL };

/// The kernel calls all of a file data whose one block has a size that is no power of two, even if it is
/// a hole; we do not.
fn as_the_kernel_tells_holes(mut ours: Vec<Entry>, theirs: &[Entry]) -> Vec<Entry> {
    for (our, their) in ours.iter_mut().zip(theirs) {
        if our.path == their.path && !their.blksize.is_power_of_two() {
            our.data = None;
        }
    }
    ours
}

fn there_and_back(shape: &Shape, record_bytes: u64) {
    if !vm::wanted(&format!("that the OpenZFS kernel takes our pools: {}", shape.name)) {
        return;
    }
    let (images, mut session) = Session::create(shape, record_bytes);
    let mut load = acceptance(31);
    session.run(&load.ops);
    add_file_systems(&session);
    let ours = engine::list(session.filesystem()).unwrap();
    session.close().unwrap();

    // it reads, and sees what we see
    let truth = kernel::truth_of(images.path(), engine::POOL, &[]);
    assert_told_alike(images.path(), &truth);
    let theirs = entries(&truth);
    assert_same(&load.tree.entries(), &theirs, Compare::MODEL);
    assert_same(&as_the_kernel_tells_holes(ours, &theirs), &theirs, BESIDE);

    // it goes on where we stopped: writes, overwrites, removes, scrubs, and finds nothing wrong
    let ours = load.ops.len();
    (0..300).for_each(|_| load.step());
    let _status = kernel::work(images.path(), engine::POOL, engine::POOL, &load.ops[ours..]);

    // and we read on
    let session = Session::open(images.path(), engine::POOL, engine::POOL).unwrap();
    let found = engine::list(session.filesystem()).unwrap();
    drop(session);
    assert_same(&load.tree.entries(), &found, Compare::MODEL);
    tool::zdb_content(images.path(), engine::POOL);
    drop(poolaudit_kernels(images.path(), engine::POOL).expect_ok());
}

/// Snapshots, clones and half-freed data sets of ours: the kernel sees what we see, works on them,
/// and we on what it made of them.
#[test]
fn branches() {
    if !vm::wanted("that the OpenZFS kernel takes our snapshots and clones") {
        return;
    }
    for shape in &SHAPES[..usize::try_from(rounds(1, 4)).unwrap()] {
        branches_of(shape);
    }
}

fn branches_of(shape: &Shape) {
    let (images, mut session) = Session::create(shape, 16 << 10);
    session.pool().set_freeing(5, false).unwrap();
    let none = Some(Stored::Text(b"none".to_vec()));
    session.pool().set_property(engine::POOL, "mountpoint", none).unwrap();
    let mut forest = Forest::plant(session.pool(), 77);
    for round in 1..=rounds(1, 3) {
        for _ in 0..400 {
            forest.step(session.pool());
        }
        // The kernel goes on with what we have begun to free.
        session.pool().set_freeing(2, false).unwrap();
        while session.pool().freeing().unwrap() < 100_000 {
            forest.step(session.pool());
        }
        forest.let_go();
        session.close().unwrap();

        let truth = kernel::truth_of(images.path(), engine::POOL, &[]);
        assert_alike(images.path(), &truth);
        for (name, expected) in forest.everything() {
            let mut theirs = truth.entries(&name).unwrap();
            theirs.sort_by(|a, b| a.path.cmp(&b.path));
            assert_same(&expected, &theirs, Compare::MODEL);
        }
        let changes: Vec<String> =
            (0..40).flat_map(|_| forest.change()).map(|change| change.commands()).collect();
        assert!(changes.len() > 20, "{changes:?}");
        let _status = kernel::commands(images.path(), engine::POOL, &changes);

        session = Session::open(images.path(), engine::POOL, engine::POOL).unwrap();
        forest.check(session.pool());
        session.pool().set_freeing(5 + round, true).unwrap();
    }
    (0..200).for_each(|_| forest.step(session.pool()));
    forest.check(session.pool());
    forest.let_go();
    session.close().unwrap();
    tool::zdb_content(images.path(), engine::POOL);
    drop(poolaudit_kernels(images.path(), engine::POOL).expect_ok());
}

#[test]
fn mirror() {
    there_and_back(&SHAPES[1], 128 << 10);
}

#[test]
fn raidz2() {
    there_and_back(&SHAPES[3], 1 << 20);
}
