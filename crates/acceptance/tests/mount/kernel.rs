//! The OpenZFS kernel imports a pool that was written through a mount, and sees what the mount showed.

use testkit::truth::Entry;
use testkit::{Compare, assert_same, host, kernel, vm};

use crate::model::played;
use crate::served::{judged, serve, stage, wanted};

/// Both look at the same objects.
const SAME: Compare =
    Compare { objects: true, directories: true, ctime: true, mtime: true, ..Compare::COPY };

/// All but the root, whose number FUSE makes up.
fn below(mut entries: Vec<Entry>) -> Vec<Entry> {
    entries.retain(|entry| entry.path != b".");
    entries
}

#[test]
fn the_kernel_sees_what_the_mount_showed() {
    if !wanted("pools of the mount") || !vm::wanted("that the kernel takes pools of the mount") {
        return;
    }
    let stage = stage(1 << 30, "-O xattr=sa -O acltype=posix -O compression=lz4");
    let served = serve(&stage, "tank", "mnt");
    played(&served, 600, 77);
    let shown = below(host::list(&served.dir));
    served.unmount(&stage);
    judged(&stage);
    // The kernel has another host's number.
    drop(stage.ok("zpool export tank"));
    let truth = kernel::truth_of(stage.images.path(), "tank", &[]);
    assert_same(&shown, &below(truth.entries("tank").unwrap()), SAME);
    assert!(shown.len() > 10, "{}", shown.len());
    let _status = kernel::work(stage.images.path(), "tank", "tank", &[]);
    drop(stage.ok("zpool import -d $D tank"));
    let served = serve(&stage, "tank", "mnt");
    assert_same(&shown, &below(host::list(&served.dir)), SAME);
    served.unmount(&stage);
}
