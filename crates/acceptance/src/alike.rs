//! What the kernel says of a pool, beside what the program and the engine say of it.

use std::path::Path;

use testkit::truth::Entry;
use testkit::{Compare, Ran, Truth};

use crate::engine::POOL;

/// What the kernel says of the data sets, `thumper` says of them on the same images: `zfs list -p`
/// line by line, each property's value and source, and the space of users, groups and projects. Returns the
/// number of data sets and snapshots.
///
/// # Panics
/// With the first difference.
#[track_caller]
pub fn assert_told_alike(dir: &Path, truth: &Truth) -> usize {
    let aside = testkit::temp_dir();
    let thumper = |words: &str| {
        let mut command = crate::thumper(&aside.path().join("pools"));
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
    for line in thumper(&format!("zfs get -Hp -r -t all all {POOL}")).lines() {
        let words: Vec<&str> = line.split('\t').collect();
        let [dataset, property, value, source] = words[..] else { panic!("{line}") };
        // the kernel had it mounted when the truth was told
        if property != "mounted" {
            assert_eq!(Some((value, source)), truth.zfs_get(dataset, property), "{line}");
            seen += 1;
        }
    }
    assert!(seen > 200, "{seen}");
    // Of snapshots it is the same code that says it, over and over.
    for dataset in truth.datasets().into_iter().filter(|name| !name.contains('@')) {
        for (words, owner) in [
            ("zfs userspace -Hnp", "user"),
            ("zfs groupspace -Hnp", "group"),
            ("zfs projectspace -Hp", "project"),
        ] {
            let ours = thumper(&format!("{words} {dataset}"));
            let ours: Vec<Vec<&str>> =
                ours.lines().map(|line| line.split('\t').collect()).collect();
            assert_eq!(ours, truth.space(dataset, owner), "{words} {dataset}");
        }
    }
    count
}

/// Ours beside the kernel's: everything but the block size, which only the kernel makes up.
pub const BESIDE: Compare = Compare { block_size: false, flags: false, ..Compare::ALL };

/// The kernel calls all of a file data whose one block has a size that is no power of two, even if it is
/// a hole; we do not.
#[must_use]
pub fn as_the_kernel_tells_holes(mut ours: Vec<Entry>, theirs: &[Entry]) -> Vec<Entry> {
    for (our, their) in ours.iter_mut().zip(theirs) {
        if our.path == their.path && !their.blksize.is_power_of_two() {
            our.data = None;
        }
    }
    ours
}
