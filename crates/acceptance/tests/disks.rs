//! The life of disks with the OpenZFS kernel as witness: what our commands leave in the middle of a replacement it takes
//! over and finishes, and what it leaves we go on with.

#![allow(clippy::unwrap_used)]

use acceptance::{Session, Stage, assert_verified};
use rt::sync::Arc;
use testkit::data::Look;
use testkit::workload::Workload;
use testkit::{Vm, golden_copy, poolaudit, poolaudit_kernels, tool, vm};

/// Files for `put`.
fn plant(stage: &Stage, name: &str, seed: u64) {
    let mut load = Workload::new(seed);
    for i in 0..12 {
        load.file(format!("{name}{i}").as_bytes(), Look::Noise, 40_000 * (1 + i % 5));
    }
    let dir = stage.plant(name, &load.ops);
    drop(stage.ok(&format!("put -r {} tank:/", dir.display())));
}

/// Begins a replacement (or an attachment) of a disk by another, and leaves it at that.
fn begin(stage: &Stage, (old, new): (usize, usize), replacing: bool) {
    drop(stage.ok("zpool export tank"));
    let disks = stage.images.disks();
    let path = |disk: usize| disks[disk].as_os_str().as_encoded_bytes().to_vec();
    let mut session = Session::open(stage.images.path(), "tank", "tank").unwrap();
    let pool = session.pool();
    let config = pool.config();
    let mut leaves = config.vdev_tree.leaves();
    let guid = leaves.find(|leaf| leaf.path.as_deref() == Some(&path(old))).unwrap().guid;
    let device = Arc::new(device::WriteFile::open(&disks[new]).unwrap());
    let leaf = pool::NewLeaf { path: path(new), is_disk: false, device };
    pool.attach(guid, leaf, replacing).unwrap();
    session.close().unwrap();
    drop(session);
    drop(stage.ok("zpool import -f -d $D tank"));
}

/// zdb finds no leak and all objects; disks that are being filled lack what zdb reads of them.
fn zdb_is_content(stage: &Stage, lacking: &[usize]) {
    let path = stage.images.path().to_str().unwrap();
    let ran = tool::zdb(["-e", "-p", path, "-bccs", "tank"]).expect_ok();
    assert!(ran.out.contains("No leaks") && !ran.out.contains("Error counts"), "{ran}");
    for (device, counts) in tool::error_counts(&ran.out) {
        let filled = lacking.iter().any(|disk| device.ends_with(&format!("/d{disk:02}")));
        let lacks = filled || device == "replacing";
        assert!(counts == [0; 3] || lacks && counts[..2] == [0; 2], "{device} {counts:?}: {ran}");
    }
    tool::zdb_objects(stage.images.path(), "tank");
}

/// The kernel imports it, resilvers what the DTLs say, and its scrub then repairs nothing.
fn the_kernel_finishes(stage: &Stage, first: &str) -> String {
    let script = format!(
        "set -euo pipefail\n\
         zpool import -d /d -o cachefile=none tank\n\
         {first}\n\
         for i in $(seq 60); do zpool status tank | grep -q resilver && break; sleep 0.5; done\n\
         zpool wait -t resilver tank; zpool wait -t replace tank; zpool sync tank; zpool status -v tank\n\
         echo SCRUBBED; zpool scrub -w tank; zpool status -v tank; zpool history -i tank\n\
         zpool export tank\n"
    );
    let ran = Vm::new(stage.images.path()).run(&script).expect_ok();
    let (done, scrubbed) = ran.out.split_once("SCRUBBED").unwrap();
    assert!(done.contains("resilvered"), "{ran}");
    assert!(scrubbed.contains("repaired 0B") && scrubbed.contains("with 0 errors"), "{ran}");
    assert!(scrubbed.contains("No known data errors"), "{ran}");
    tool::zdb_content(stage.images.path(), "tank");
    tool::zdb_objects(stage.images.path(), "tank");
    drop(poolaudit_kernels(stage.images.path(), "tank").expect_ok());
    done.to_owned()
}

/// The tree of `zpool status`, each vdev with its state.
fn tree(said: &str) -> Vec<String> {
    let rows = said.lines().skip_while(|line| !line.contains("NAME ")).skip(1);
    let words = |line: &str| {
        let mut words = line.split_whitespace();
        let name = words.next()?.rsplit('/').next()?.to_owned();
        Some(format!("{name} {}", words.next()?))
    };
    rows.map_while(words).collect()
}

#[test]
fn a_mirror_and_a_raidz_in_the_middle_of_it_are_finished_by_the_kernel() {
    if !vm::wanted("that the kernel finishes what our zpool attach and replace have begun") {
        return;
    }
    for (shape, disks) in [("mirror", 2), ("raidz1", 3)] {
        let stage = Stage::new(6, 128 << 20);
        let names: Vec<String> = (0..disks).map(|i| format!("$D/d{i:02}")).collect();
        drop(stage.ok(&format!("zpool create -o ashift=12 tank {shape} {}", names.join(" "))));
        plant(&stage, "whole", 1);
        begin(&stage, (1, 4), true);
        plant(&stage, "during", 2);
        let mut lacking = vec![4];
        if shape == "mirror" {
            begin(&stage, (0, 5), false);
            lacking.push(5);
        } else {
            stage.refused(
                "zpool attach tank $D/d00 $D/d05",
                255,
                &format!(
                    "cannot attach {0}/d05 to {0}/d00: can only attach to mirrors and top-level disks\n",
                    stage.images.path().display()
                ),
            );
        }
        plant(&stage, "last", 3);
        let ours = tree(&stage.ok("zpool status tank").out);
        let expected = match shape {
            "mirror" => "tank mirror-0 d00 replacing-1 d01 d04 d05",
            _ => "tank raidz1-0 d00 replacing-1 d01 d04 d02",
        };
        let online: Vec<String> =
            expected.split(' ').map(|name| format!("{name} ONLINE")).collect();
        assert_eq!(ours, online);
        zdb_is_content(&stage, &lacking);
        drop(poolaudit(stage.images.path(), "tank").expect_ok());
        drop(stage.ok("zpool export tank"));
        let done = the_kernel_finishes(&stage, "");
        let expected = match shape {
            "mirror" => "tank mirror-0 d00 d04 d05",
            _ => "tank raidz1-0 d00 d04 d02",
        };
        let online: Vec<String> =
            expected.split(' ').map(|name| format!("{name} ONLINE")).collect();
        assert_eq!(tree(&done), online, "{done}");
    }
}

#[test]
fn an_offline_disk_and_a_detached_one_are_as_the_kernel_has_them() {
    if !vm::wanted("that the kernel takes over a pool with a disk offline, and we one of its") {
        return;
    }
    let stage = Stage::new(4, 128 << 20);
    drop(stage.ok("zpool create -o ashift=12 tank mirror $D/d00 $D/d01 $D/d02"));
    plant(&stage, "whole", 1);
    drop(stage.ok("zpool offline tank $D/d01"));
    plant(&stage, "without", 2);
    drop(stage.ok("zpool detach tank $D/d02"));
    stage.refused("zpool offline tank d00", 1, "cannot offline d00: no valid replicas\n");
    let states = ["tank DEGRADED", "mirror-0 DEGRADED", "d00 ONLINE", "d01 OFFLINE"];
    assert_eq!(tree(&stage.ok("zpool status tank").out), states);
    zdb_is_content(&stage, &[1]);
    drop(poolaudit(stage.images.path(), "tank").expect_ok());
    drop(stage.ok("zpool export tank"));
    // The kernel sees what we see; then it takes the other one offline itself.
    let online = "zpool status tank; zpool online tank /d/d01";
    let done = the_kernel_finishes(&stage, online);
    assert_eq!(tree(&done), states);
    let script = "set -euo pipefail\nzpool import -d /d -o cachefile=none tank\n\
                  zpool offline tank /d/d00; head -c 300000 /dev/urandom > /tank/k; zpool sync tank\n\
                  zpool export tank\n";
    drop(Vm::new(stage.images.path()).run(script).expect_ok());
    drop(stage.ok("zpool import -d $D tank"));
    let states = ["tank DEGRADED", "mirror-0 DEGRADED", "d00 OFFLINE", "d01 ONLINE"];
    assert_eq!(tree(&stage.ok("zpool status tank").out), states);
    drop(stage.ok("zpool online tank d00"));
    drop(stage.ok("zpool attach -f tank d01 $D/d02"));
    let all = ["tank ONLINE", "mirror-0 ONLINE", "d00 ONLINE", "d01 ONLINE", "d02 ONLINE"];
    assert_eq!(tree(&stage.ok("zpool status tank").out), all);
    drop(stage.ok("zpool export tank"));
    the_kernel_finishes(&stage, "");
}

/// A disk that is not there is online for nobody, and the kernel says so in the same words.
#[test]
fn who_makes_a_disk_online_that_is_not_there_is_told() {
    if !vm::wanted("that zpool online warns of a disk that is not there in the kernel's words") {
        return;
    }
    let stage = Stage::new(2, 128 << 20);
    drop(stage.ok("zpool create tank mirror $D/d00 $D/d01"));
    let guids = tree(&stage.ok("zpool status -g tank").out);
    let absent = guids.last().unwrap().split(' ').next().unwrap();
    drop(stage.ok("zpool export tank"));
    std::fs::remove_file(&stage.images.disks()[1]).unwrap();
    drop(stage.ok("zpool import -d $D tank"));
    let told = stage.ok(&format!("zpool online tank {absent}")).out;
    drop(stage.ok("zpool export tank"));
    let script = format!(
        "zpool import -d /d -o cachefile=none tank && zpool online tank {absent} && zpool export tank"
    );
    let ran = Vm::new(stage.images.path()).run(&script).expect_ok();
    assert_eq!(told, ran.out, "{ran}");
}

/// Without a server a command stays until the new disk is filled; what it replaces is let go then.
#[test]
fn a_replacement_is_done_when_the_command_is() {
    for (shape, disks) in [("mirror", 2), ("raidz1", 3)] {
        let stage = Stage::new(5, 128 << 20);
        let names: Vec<String> = (0..disks).map(|i| format!("$D/d{i:02}")).collect();
        drop(stage.ok(&format!("zpool create -o ashift=12 tank {shape} {}", names.join(" "))));
        plant(&stage, "whole", 1);
        drop(stage.ok("zpool replace tank d01 $D/d04"));
        let status = stage.ok("zpool status tank").out;
        let group = if shape == "mirror" { "mirror-0 d00 d04" } else { "raidz1-0 d00 d04 d02" };
        let online: Vec<String> =
            format!("tank {group}").split(' ').map(|name| format!("{name} ONLINE")).collect();
        assert_eq!(tree(&status), online, "{status}");
        assert!(status.contains("resilvered"), "{status}");
        // What was offline comes back with what was written meanwhile.
        drop(stage.ok("zpool offline tank d00"));
        plant(&stage, "without", 2);
        drop(stage.ok("zpool online tank d00"));
        drop(stage.ok("zpool scrub tank"));
        let status = stage.ok("zpool status tank").out;
        assert!(
            status.contains("scrub repaired 0B") && status.contains("with 0 errors"),
            "{status}"
        );
        assert_eq!(tree(&status), online, "{status}");
        drop(stage.ok("zpool export tank"));
        // The disk that was replaced is nobody's.
        assert_verified(stage.images.path(), "tank");
        tool::zdb_content(stage.images.path(), "tank");
        tool::zdb_objects(stage.images.path(), "tank");
        drop(poolaudit(stage.images.path(), "tank").expect_ok());
        stage.refused(
            &format!("zpool labelclear {}/d00", stage.images.path().display()),
            1,
            &format!(
                "use '-f' to override the following error:\n{}/d00 is a member of exported pool \"tank\"\n",
                stage.images.path().display()
            ),
        );
        drop(stage.ok("zpool labelclear $D/d01"));
    }
}

/// A pool in the middle of a resilver, with a replacement and a disk offline, as the kernel left it.
#[test]
fn what_the_kernel_left_in_the_middle_is_finished_here() {
    let images = golden_copy("resilvering");
    let stage = Stage::with(images);
    drop(stage.ok("zpool import -f -d $D resilvering"));
    let before = tree(&stage.ok("zpool status resilvering").out);
    assert!(before.iter().any(|row| row.starts_with("replacing-")), "{before:?}");
    drop(stage.ok("zpool online resilvering d06"));
    drop(stage.ok("zpool resilver resilvering"));
    let status = stage.ok("zpool status resilvering").out;
    let after = tree(&status);
    assert!(after.iter().all(|row| row.ends_with(" ONLINE")), "{status}");
    assert!(!after.iter().any(|row| row.starts_with("replacing-")), "{status}");
    drop(stage.ok("zpool scrub resilvering"));
    let status = stage.ok("zpool status resilvering").out;
    assert!(status.contains("scrub repaired 0B") && status.contains("with 0 errors"), "{status}");
    drop(stage.ok("zpool export resilvering"));
    tool::zdb_content(stage.images.path(), "resilvering");
    tool::zdb_objects(stage.images.path(), "resilvering");
    drop(poolaudit_kernels(stage.images.path(), "resilvering").expect_ok());
}
