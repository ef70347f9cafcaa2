//! A name that is always there, though what it leads to is replaced again and again.

use std::fs::{self, File, Permissions};
use std::io::Read as _;
use std::os::unix::fs::PermissionsExt as _;

use rt::sync::atomic::{AtomicBool, Ordering};
use testkit::rounds;

use crate::served::{judged, serve, stage, wanted};

/// Seen red: when what was replaced went at once, one `chmod` in a hundred was told of a stale file handle.
#[test]
fn who_uses_a_name_that_is_always_there_finds_something_by_it() {
    if !wanted("files that are replaced by renames") {
        return;
    }
    let stage = stage(256 << 20, "-O compression=off");
    let served = serve(&stage, "tank", "m");
    let (name, next) = (served.at("name"), served.at("next"));
    fs::write(&name, "0").unwrap();
    let is_done = AtomicBool::new(false);
    std::thread::scope(|scope| {
        let reader = scope.spawn(|| {
            let mut last = 0;
            while !is_done.load(Ordering::Acquire) {
                let mut text = String::new();
                File::open(&name).unwrap().read_to_string(&mut text).unwrap();
                let now: u64 = text.parse().unwrap();
                assert!(now >= last, "{now} after {last}");
                last = now;
            }
            last
        });
        let changer = scope.spawn(|| {
            let mut changes = 0u64;
            while !is_done.load(Ordering::Acquire) {
                let mode = 0o600 | (changes % 2) as u32;
                fs::set_permissions(&name, Permissions::from_mode(mode)).unwrap();
                changes += 1;
            }
            changes
        });
        let count = rounds(4_000, 100_000);
        for i in 1..=count {
            fs::write(&next, i.to_string()).unwrap();
            fs::rename(&next, &name).unwrap();
        }
        is_done.store(true, Ordering::Release);
        assert!(reader.join().unwrap() <= count);
        assert!(changer.join().unwrap() > count / 100);
        assert_eq!(fs::read_to_string(&name).unwrap(), count.to_string());
    });
    served.unmount(&stage);
    judged(&stage);
}
