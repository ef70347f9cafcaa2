//! One directory of very many files, and requests that come one after the other.

use std::collections::BTreeSet;
use std::fs::{self, File};
use std::path::Path;

use testkit::rounds;

use crate::served::{judged, serve, stage, wanted};

#[test]
fn a_directory_of_many_files() {
    if !wanted("a directory of many files") {
        return;
    }
    let count = rounds(10_000, 1_000_000);
    let stage = stage(8 << 30, "-O compression=lz4");
    let served = serve(&stage, "tank", "mnt");
    fs::create_dir(served.at("d")).unwrap();
    let name = |i: u64| format!("d/a file of number {i:07}");
    for i in 0..count {
        drop(File::create(served.at(&name(i))).unwrap());
    }
    let listed = || {
        let entries = fs::read_dir(served.at("d")).unwrap();
        let mut seen = BTreeSet::new();
        for entry in entries {
            let new = seen.insert(entry.unwrap().file_name());
            assert!(new, "listed twice");
        }
        seen.len() as u64
    };
    assert_eq!(listed(), count);
    // Listed while half of it goes: what stays is told once, what goes at most once.
    let mut entries = fs::read_dir(served.at("d")).unwrap();
    let mut seen: BTreeSet<_> =
        entries.by_ref().take(count as usize / 4).map(|e| e.unwrap().file_name()).collect();
    for i in (0..count).step_by(2) {
        fs::remove_file(served.at(&name(i))).unwrap();
    }
    for entry in entries {
        assert!(seen.insert(entry.unwrap().file_name()), "listed twice");
    }
    for i in (1..count).step_by(2) {
        let wanted = name(i);
        assert!(seen.contains(std::ffi::OsStr::new(&wanted[2..])), "{wanted} is not listed");
    }
    assert_eq!(listed(), count / 2);
    served.unmount(&stage);
    judged(&stage);
    let served = serve(&stage, "tank", "mnt");
    assert_eq!(fs::read_dir(served.at("d")).unwrap().count() as u64, count / 2);
    served.unmount(&stage);
}

/// Who gives the last answer looks for the next request before it sleeps (`docs/decisions/0022-looking.md`): beside the
/// descriptors at which its threads wait, a mount has one to look at.
#[test]
fn a_mount_can_see_what_is_asked_next() {
    const THREADS: usize = 16;
    if !wanted("that a mount sees what is asked next") {
        return;
    }
    let stage = stage(64 << 20, "");
    let served = serve(&stage, "tank", "mnt");
    let files = fs::read_dir(format!("/proc/{}/fd", served.pid())).unwrap();
    let devices = files
        .filter_map(|file| fs::read_link(file.unwrap().path()).ok())
        .filter(|path| *path == Path::new("/dev/fuse"))
        .count();
    assert_eq!(devices, THREADS + 1);
    served.unmount(&stage);
}
