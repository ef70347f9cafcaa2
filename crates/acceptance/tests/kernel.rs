//! The OpenZFS kernel takes over pools of ours, and gives them back.
//!
//! Each test is three runs of the VM, some ten seconds each.

#![allow(clippy::unwrap_used)]

use std::collections::BTreeMap;
use std::path::Path;

use acceptance::alike::{BESIDE, as_the_kernel_tells_holes, assert_told_alike};
use acceptance::{SHAPES, Session, Shape, engine};
use fs::{Filesystem, NewObject, Who, make_filesystem, mode};
use pool::Stored;
use testkit::truth::Entry;
use testkit::workload::acceptance;
use testkit::{Compare, Truth, assert_same, kernel, poolaudit_kernels, tool, vm};

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

/// How many files and directories of the root file system have dnodes of 1 KiB.
fn dnodes_of_a_kib(dir: &Path) -> usize {
    let path = dir.to_str().unwrap();
    let ran = tool::zdb(["-e", "-p", path, "-dddd", "tank/"]).expect_ok();
    // Object, levels, sizes of its blocks, on disk, and of its dnode; the type is at the end.
    let is_one = |line: &&str| {
        line.split_whitespace().nth(5) == Some("1K")
            && (line.ends_with("ZFS plain file") || line.ends_with("ZFS directory"))
    };
    ran.out.lines().filter(is_one).count()
}

fn there_and_back(shape: &Shape, record_bytes: u64, dnodesize: &str) {
    if !vm::wanted(&format!("that the OpenZFS kernel takes our pools: {}", shape.name)) {
        return;
    }
    let record = record_bytes.to_string();
    let props = [("compression", "lz4"), ("recordsize", &*record), ("dnodesize", dnodesize)];
    let (images, mut session) = Session::create_of(shape, &props, true);
    let mut load = acceptance(31);
    session.run(&load.ops);
    add_file_systems(&session);
    let ours = engine::list(session.filesystem()).unwrap();
    session.close().unwrap();

    // it reads, and sees what we see
    let large = dnodes_of_a_kib(images.path());
    assert_eq!(large > 100, dnodesize == "auto", "{large} of {}", ours.len());
    let truth = kernel::truth_of(images.path(), engine::POOL, &[]);
    assert_eq!(assert_told_alike(images.path(), &truth), 4);
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

#[test]
fn mirror() {
    there_and_back(&SHAPES[1], 128 << 10, "auto");
}

#[test]
fn raidz2() {
    there_and_back(&SHAPES[3], 1 << 20, "legacy");
}
