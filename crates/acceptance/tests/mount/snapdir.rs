//! `.zfs/snapshot`: what a listing tells while snapshots go, what it costs, and whether it is there at all.

use std::collections::BTreeSet;
use std::fs;
use std::mem::MaybeUninit;

use acceptance::engine::Session;
use acceptance::mounts::Tidy;
use acceptance::{Server, Stage};
use pool::Stored;
use rustix::fs::{self as sys, CWD, Mode, OFlags, RawDir};

use crate::served::{judged, serve, stage, wanted};

/// Seen red: of those that stay as many were left out as had gone.
#[test]
fn snapshots_that_go_while_they_are_listed_hide_no_others() {
    if !wanted("snapshots that go while they are listed") {
        return;
    }
    let stage = Stage::new(1, 256 << 20);
    let _tidy = Tidy(stage.aside("t"));
    let server = Server::start_with(&stage.aside("pools"), &["--mount"]);
    drop(stage.ok("zpool create -o ashift=12 -m $A/t tank $D/d00"));
    let all: BTreeSet<String> = (0..40).map(|i| format!("s{i:02}")).collect();
    all.iter().for_each(|name| drop(stage.ok(&format!("zfs snapshot tank@{name}"))));
    let flags = OFlags::RDONLY | OFlags::DIRECTORY;
    let dir = sys::openat(CWD, stage.aside("t/.zfs/snapshot"), flags, Mode::empty()).unwrap();
    // So small that some of them come, and the others later.
    let mut few = [MaybeUninit::uninit(); 512];
    let mut next = || {
        let (mut entries, mut names) = (RawDir::new(&dir, &mut few), Vec::new());
        while let Some(entry) = entries.next() {
            names.push(entry.unwrap().file_name().to_str().unwrap().to_string());
            if entries.is_buffer_empty() {
                break;
            }
        }
        names
    };
    let mut seen = next();
    assert!((6..30).contains(&seen.len()), "{seen:?}");
    all.iter().take(5).for_each(|name| drop(stage.ok(&format!("zfs destroy tank@{name}"))));
    loop {
        let more = next();
        if more.is_empty() {
            break;
        }
        seen.extend(more);
    }
    let told: BTreeSet<String> = seen.iter().filter(|n| !n.starts_with('.')).cloned().collect();
    assert_eq!(told, all);
    assert_eq!(seen.len(), 42, "told twice: {seen:?}");
    drop(dir);
    drop(server.stop());
    judged(&stage);
}

/// A newer OpenZFS can set that, so that older software takes it for the default. Seen red: it was not only there, but shown.
#[test]
fn where_it_is_disabled_it_is_not_there() {
    if !wanted("a file system whose snapshots are not to be seen") {
        return;
    }
    let stage = stage(256 << 20, "");
    drop(stage.ok("zfs snapshot tank@one"));
    let mut session = Session::open(stage.images.path(), "tank", "tank").unwrap();
    let disabled = Some(Stored::Number(2));
    session.pool().set_property("tank", "snapdir$iuv", disabled).unwrap();
    session.close().unwrap();
    let served = serve(&stage, "tank", "m");
    assert_eq!(fs::read_dir(&served.dir).unwrap().count(), 0);
    for path in [".zfs", ".zfs/snapshot", ".zfs/snapshot/one"] {
        let there = fs::metadata(served.at(path)).map(drop);
        assert_eq!(there.unwrap_err().raw_os_error(), Some(2), "{path}");
    }
    // The name is taken all the same.
    assert!(fs::create_dir(served.at(".zfs")).is_err());
    served.unmount(&stage);
    judged(&stage);
}
