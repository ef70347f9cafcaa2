//! Spares by the words of the program: they stand in, stand back, and stay.

use acceptance::{Session, Stage, assert_verified, assert_verified_kernels};
use rt::sync::Arc;
use testkit::data::Look;
use testkit::workload::Workload;
use testkit::{Vm, poolaudit, poolaudit_kernels, tool, vm};

use super::assert_shown;

/// Files for `put`.
fn plant(stage: &Stage, pool: &str, name: &str) {
    let mut load = Workload::new(7);
    for i in 0..10 {
        load.file(format!("{name}{i}").as_bytes(), Look::Noise, 40_000 * (1 + i % 5));
    }
    let dir = stage.plant(&format!("{pool}-{name}"), &load.ops);
    drop(stage.ok(&format!("put -r {} {pool}:/", dir.display())));
}

/// The pool is let go, judged by all who judge from outside, and taken back.
#[track_caller]
fn assert_sound(stage: &Stage, pool: &str) {
    drop(stage.ok(&format!("zpool export {pool}")));
    tool::zdb_content(stage.images.path(), pool);
    tool::zdb_objects(stage.images.path(), pool);
    drop(poolaudit(stage.images.path(), pool).expect_ok());
    assert_verified(stage.images.path(), pool);
    drop(stage.ok(&format!("zpool import -d $D {pool}")));
}

#[test]
fn spares_stand_in_stand_back_and_stay() {
    let stage = Stage::new(7, 128 << 20);
    drop(stage.ok("zpool create -o ashift=12 tank raidz1 $D/d00 $D/d01 $D/d02 spare $D/d03"));
    plant(&stage, "tank", "whole");
    let plan = stage.ok("zpool add -n tank spare $D/d04").out;
    let names: Vec<&str> =
        plan.lines().map(|line| line.rsplit('/').next().unwrap().trim()).collect();
    let expected = "tank raidz1-0 d00 d01 d02 spares d03 d04";
    assert_eq!(names[2..].join(" "), expected, "{plan}");
    drop(stage.ok("zpool add tank spare $D/d04"));
    let status = || stage.ok("zpool status tank").out;
    assert_shown(&status(), "tank raidz1-0 d00 d01 d02 | d03 d04");
    let refused = |words: &str, code, why: &str| drop(stage.refused(words, code, why));
    let same = "cannot add to 'tank': one or more vdevs refer to the same device\n";
    refused("zpool add tank spare $D/d04", 1, same);
    refused("zpool detach tank d03", 255, "cannot detach d03: device is reserved as a hot spare\n");
    drop(stage.ok("zpool replace tank d01 $D/d03"));
    assert_shown(&status(), "tank raidz1-0 d00 spare-1 d01 d03 d02 | d03* d04");
    assert!(status().contains("INUSE     currently in use"), "{}", status());
    let busy = "cannot remove $D/d03: Pool busy; removal may already be in progress\n";
    refused("zpool remove tank $D/d03", 1, busy);
    let busy = "cannot replace d02 with $D/d03: $D/d03 is busy, or device removal is in progress\n";
    refused("zpool replace tank d02 $D/d03", 255, busy);
    let nested = "cannot replace d01 with $D/d04: already in replacing/spare config; \
                  wait for completion or use 'zpool detach'\n";
    refused("zpool replace tank d01 $D/d04", 255, nested);
    assert_sound(&stage, "tank");
    // It stands back, with the label it had before, and stands in again.
    plant(&stage, "tank", "during");
    drop(stage.ok("zpool detach tank d03"));
    assert_shown(&status(), "tank raidz1-0 d00 d01 d02 | d03 d04");
    assert_sound(&stage, "tank");
    plant(&stage, "tank", "after");
    drop(stage.ok("zpool replace tank d01 $D/d03"));
    // What it stands in for goes: it keeps the place, and is a spare no more.
    drop(stage.ok("zpool detach tank d01"));
    assert_shown(&status(), "tank raidz1-0 d00 d03 d02 | d04");
    assert_sound(&stage, "tank");
    // A third disk comes: the spare stands back by itself when that is filled.
    drop(stage.ok("zpool replace tank d02 $D/d04"));
    drop(stage.ok("zpool replace tank d02 $D/d05"));
    assert_shown(&status(), "tank raidz1-0 d00 d03 d05 | d04");
    // A disk that was offline and is online again keeps its spare, until that is detached.
    drop(stage.ok("zpool add tank spare $D/d06"));
    drop(stage.ok("zpool offline tank d00"));
    drop(stage.ok("zpool replace tank d00 $D/d04"));
    plant(&stage, "tank", "last");
    drop(stage.ok("zpool online tank d00"));
    assert_shown(&status(), "tank raidz1-0 spare-0 d00 d04 d03 d05 | d04* d06");
    assert_sound(&stage, "tank");
    // One that counted as faulted and is trusted again does not.
    drop(stage.ok("zpool offline -f tank d00"));
    drop(stage.ok("zpool clear tank d00"));
    drop(stage.ok("zpool resilver tank"));
    assert_shown(&status(), "tank raidz1-0 d00 d03 d05 | d04 d06");
    drop(stage.ok("zpool remove tank d06"));
    assert_shown(&status(), "tank raidz1-0 d00 d03 d05 | d04");
    assert_sound(&stage, "tank");
    let history = stage.ok("zpool history -i tank").out;
    let path = |disk: &str| stage.images.path().join(disk).display().to_string();
    for told in [
        format!("vdev attach spare in vdev={} for vdev={}", path("d03"), path("d01")),
        format!("vdev remove tank vdev (spare) {}", path("d03")),
        format!("vdev attach replace vdev={} for vdev={}", path("d05"), path("d02")),
        format!("detach vdev={}", path("d04")),
        format!("vdev remove tank vdev (spare) {}", path("d06")),
        format!("zpool add tank spare {}", path("d06")),
    ] {
        assert!(history.contains(&told), "{told}\n{history}");
    }
}

/// Begins to have a spare stand in for a disk, and leaves it at that.
fn engage(stage: &Stage, pool: &str, old: usize, spare: usize) {
    drop(stage.ok(&format!("zpool export {pool}")));
    let disks = stage.images.disks();
    let mut session = Session::open(stage.images.path(), pool, pool).unwrap();
    let opened = session.pool();
    let is_it = |leaf: &&format::config::VdevConfig, disk: usize| {
        leaf.path.as_deref() == Some(disks[disk].as_os_str().as_encoded_bytes())
    };
    let tree = opened.config().vdev_tree;
    let leaf = tree.leaves().find(|leaf| is_it(leaf, old)).unwrap().guid;
    let spares = opened.spares().unwrap();
    let guid = spares.iter().find(|leaf| is_it(leaf, spare)).unwrap().guid;
    let device = Arc::new(device::WriteFile::open(&disks[spare]).unwrap());
    opened.engage(leaf, guid, device, pool::Trouble::Unnoted).unwrap();
    session.close().unwrap();
    drop(session);
    drop(stage.ok(&format!("zpool import -f -d $D {pool}")));
}

/// OpenZFS lets pools have a spare in common. While it stands in for a disk of one of them, it is that one's.
///
/// Seen red: the other pool took it, and wrote over what the first one had there.
#[test]
fn a_spare_in_use_by_another_pool_is_not_taken() {
    let stage = Stage::new(5, 96 << 20);
    drop(stage.ok("zpool create -o ashift=12 tank mirror $D/d00 $D/d01 spare $D/d04"));
    drop(stage.ok("zpool create -o ashift=12 other mirror $D/d02 $D/d03"));
    drop(stage.ok("zpool export tank"));
    drop(stage.ok("zpool export other"));
    let shared = acceptance::engine::open_to_look(stage.images.path(), "tank").spares().unwrap();
    let mut session = Session::open(stage.images.path(), "other", "other").unwrap();
    let share = move |cx: &pool::TaskContext<'_>| {
        let mos = cx.making.mos;
        let object = mos.create_nvlist(cx.tx)?;
        mos.set(cx.tx, pool::mos::key::SPARES, object)?;
        mos.set_nvlist(cx.tx, object, &format::config::aux_to_nvlist(&shared, "spares"))
    };
    session.pool().task(share).unwrap();
    session.close().unwrap();
    drop(session);
    drop(stage.ok("zpool import -f -d $D tank"));
    drop(stage.ok("zpool import -f -d $D other"));
    drop(stage.ok("zpool replace other d02 $D/d04"));
    plant(&stage, "other", "a");
    let status = || stage.ok("zpool status other").out;
    assert_shown(&status(), "other mirror-0 spare-0 d02 d04 d03 | d04*");
    let refused = "cannot replace d00 with $D/d04: $D/d04 is in use by pool 'other'\n";
    drop(stage.refused("zpool replace tank d00 $D/d04", 255, refused));
    assert_sound(&stage, "other");
    // It is anybody's again.
    drop(stage.ok("zpool detach other d04"));
    drop(stage.ok("zpool replace tank d00 $D/d04"));
    assert_sound(&stage, "tank");
}

#[test]
fn the_kernel_and_we_go_on_with_each_others_spares() {
    if !vm::wanted("that the kernel takes pools with a spare in use, and we take its") {
        return;
    }
    let stage = Stage::new(12, 96 << 20);
    drop(stage.ok("zpool create -o ashift=12 mid raidz1 $D/d00 $D/d01 $D/d02 spare $D/d03"));
    plant(&stage, "mid", "a");
    engage(&stage, "mid", 1, 3);
    plant(&stage, "mid", "b");
    assert_shown(&stage.ok("zpool status mid").out, "mid raidz1-0 d00 spare-1 d01 d03 d02 | d03*");
    drop(stage.ok("zpool export mid"));
    drop(stage.ok("zpool create -o ashift=12 whole mirror $D/d04 $D/d05 spare $D/d06 $D/d07"));
    plant(&stage, "whole", "a");
    drop(stage.ok("zpool replace whole d05 $D/d07"));
    plant(&stage, "whole", "b");
    drop(stage.ok("zpool export whole"));
    let script = "set -euo pipefail\n\
        slow=/sys/module/zfs/parameters/zfs_scan_suspend_progress\n\
        zpool create -o cachefile=none -o ashift=12 theirs raidz1 /d/d08 /d/d09 /d/d10 spare /d/d11\n\
        head -c 3000000 /dev/urandom > /theirs/k; zpool sync theirs; echo 1 > $slow\n\
        zpool replace theirs /d/d09 /d/d11; sleep 1; zpool export theirs; echo 0 > $slow\n\
        for pool in mid whole; do\n\
        zpool import -d /d -o cachefile=none $pool\n\
        for i in $(seq 60); do zpool status $pool | grep -q resilver && break; sleep 0.5; done\n\
        zpool wait -t resilver $pool; zpool scrub -w $pool\n\
        echo POOL; zpool status -v $pool; done\n\
        zpool detach mid /d/d03; zpool detach whole /d/d05\n\
        for pool in mid whole; do echo POOL; zpool status -v $pool; zpool export $pool; done\n";
    let ran = Vm::new(stage.images.path()).run(script).expect_ok();
    let said: Vec<&str> = ran.out.split("POOL\n").skip(1).collect();
    assert_eq!(said.len(), 4, "{ran}");
    assert_shown(said[0], "mid raidz1-0 d00 spare-1 d01 d03 d02 | d03*");
    assert_shown(said[1], "whole mirror-0 d04 spare-1 d05 d07 | d06 d07*");
    assert_shown(said[2], "mid raidz1-0 d00 d01 d02 | d03");
    assert_shown(said[3], "whole mirror-0 d04 d07 | d06");
    for pool in &said[..2] {
        assert!(pool.contains("repaired 0B") && pool.contains("with 0 errors"), "{pool}");
    }
    let sound = |pool: &str| {
        tool::zdb_content(stage.images.path(), pool);
        tool::zdb_objects(stage.images.path(), pool);
        drop(poolaudit_kernels(stage.images.path(), pool).expect_ok());
        assert_verified_kernels(stage.images.path(), pool);
    };
    sound("mid");
    sound("whole");
    // What it left in the middle we finish; then it finds nothing to repair, with the spare in use and back again.
    drop(stage.ok("zpool import -d $D theirs"));
    let status = || stage.ok("zpool status theirs").out;
    assert_shown(&status(), "theirs raidz1-0 d08 spare-1 d09 d11 d10 | d11*");
    drop(stage.ok("zpool resilver theirs"));
    plant(&stage, "theirs", "a");
    drop(stage.ok("zpool scrub theirs"));
    assert!(status().contains("scrub repaired 0B"), "{}", status());
    drop(stage.ok("zpool export theirs"));
    sound("theirs");
    drop(stage.ok("zpool import -d $D mid"));
    drop(stage.ok("zpool replace mid d01 $D/d03"));
    drop(stage.ok("zpool detach mid d03"));
    drop(stage.ok("zpool export mid"));
    let script = "set -euo pipefail\n\
        for pool in theirs mid; do zpool import -d /d -o cachefile=none $pool; zpool scrub -w $pool\n\
        echo POOL; zpool status -v $pool; done; zpool export mid\n\
        zpool offline -f theirs /d/d09; zpool clear theirs /d/d09\n\
        for i in $(seq 60); do zpool status theirs | grep -q INUSE || break; sleep 0.5; done\n\
        echo POOL; zpool status theirs; zpool export theirs\n";
    let ran = Vm::new(stage.images.path()).run(script).expect_ok();
    let said: Vec<&str> = ran.out.split("POOL\n").skip(1).collect();
    assert_shown(said[0], "theirs raidz1-0 d08 spare-1 d09 d11 d10 | d11*");
    assert_shown(said[1], "mid raidz1-0 d00 d01 d02 | d03");
    // What we do when a disk is trusted again is what it does.
    assert_shown(said[2], "theirs raidz1-0 d08 d09 d10 | d11");
    for pool in &said[..2] {
        assert!(pool.contains("repaired 0B") && pool.contains("with 0 errors"), "{pool}");
    }
}
