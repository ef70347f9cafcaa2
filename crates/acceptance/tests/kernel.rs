//! The OpenZFS kernel takes over pools of ours, and gives them back.
//!
//! Each test is three runs of the VM, some ten seconds each.

#![allow(clippy::unwrap_used)]

use acceptance::{SHAPES, Session, Shape, engine};
use testkit::truth::Entry;
use testkit::workload::acceptance;
use testkit::{Compare, assert_same, kernel, poolaudit_kernels, tool, vm};

/// The entries that the kernel lists for the root file system of our pool.
fn kernels_view(dir: &std::path::Path) -> Vec<Entry> {
    let truth = kernel::truth_of(dir, engine::POOL, &[]);
    let mut entries = truth.entries(engine::POOL).unwrap();
    entries.sort_by(|a, b| a.path.cmp(&b.path));
    entries
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
    let ours = engine::list(session.filesystem()).unwrap();
    session.close().unwrap();

    // it reads, and sees what we see
    let theirs = kernels_view(images.path());
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
    there_and_back(&SHAPES[1], 128 << 10);
}

#[test]
fn raidz2() {
    there_and_back(&SHAPES[3], 1 << 20);
}
