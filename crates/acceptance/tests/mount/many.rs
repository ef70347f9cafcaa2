//! One directory of very many files.

use std::collections::BTreeSet;
use std::fs::{self, File};

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
