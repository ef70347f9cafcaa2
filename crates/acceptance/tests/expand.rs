//! Disks that became larger: their room is used, by us and by the kernel after us.
//!
//! Seen red: without the new metaslabs in the logs of space maps.

#![allow(clippy::unwrap_used)]

use acceptance::{Server, Stage, assert_verified};
use device::ReadFile;
use testkit::data::Look;
use testkit::workload::Workload;
use testkit::{Vm, poolaudit, poolaudit_kernels, rounds, tool, vm};
use vdev::label::Labels;

const MIB: u64 = 1 << 20;
/// Of a disk before, and when it has become larger.
const SMALL: u64 = 80 * MIB;
const LARGE: u64 = 200 * MIB;

fn resize(stage: &Stage, disks: std::ops::Range<usize>, bytes: u64) {
    for disk in &stage.images.disks()[disks] {
        std::fs::File::options().write(true).open(disk).unwrap().set_len(bytes).unwrap();
    }
}

fn size(stage: &Stage) -> u64 {
    stage.ok("zpool list -Hpo size tank").out.trim().parse().unwrap()
}

/// Puts a directory of noise into the pool: files of 4 MiB.
fn fill(stage: &Stage, name: &str, files: u64) {
    let mut load = Workload::new(files);
    for file in 0..files {
        load.file(format!("{name}{file}").as_bytes(), Look::Noise, 4 * MIB);
    }
    let dir = stage.plant(name, &load.ops);
    drop(stage.ok(&format!("put -r {} tank:/", dir.display())));
}

fn assert_right(stage: &Stage) {
    drop(stage.ok("zpool export tank"));
    tool::zdb_content(stage.images.path(), "tank");
    tool::zdb_objects(stage.images.path(), "tank");
    drop(poolaudit(stage.images.path(), "tank").expect_ok());
    assert_verified(stage.images.path(), "tank");
    drop(stage.ok("zpool import -d $D tank"));
}

#[test]
fn the_room_of_larger_disks_is_used() {
    for (layout, disks) in [("", 1), ("mirror", 2), ("raidz1", 3)] {
        let stage = Stage::new(disks, SMALL);
        let names: Vec<String> = (0..disks).map(|disk| format!("$D/d{disk:02}")).collect();
        let create = format!("zpool create -o ashift=12 tank {layout} {}", names.join(" "));
        drop(stage.ok(&create));
        fill(&stage, "before", 3);
        let before = size(&stage);
        // Nobody asked for it, or one disk is as it was.
        resize(&stage, 0..disks - 1, LARGE);
        let online = stage.ok("zpool online -e tank d00");
        assert!(online.out.is_empty() && size(&stage) == before, "{layout}");
        resize(&stage, 0..disks, LARGE);
        assert_eq!(size(&stage), before, "{layout}");

        drop(stage.ok("zpool online -e tank d00"));
        let after = size(&stage);
        assert!(after > before * 2, "{layout}: {before} {after}");
        fill(&stage, "after", if layout == "raidz1" { 36 } else { 18 });
        assert_right(&stage);
        drop(stage.ok("zpool scrub tank"));
        let status = stage.ok("zpool status tank").out;
        assert!(status.contains("repaired 0B") && status.contains("No known data"), "{status}");
        drop(stage.ok("zpool export tank"));
        let round = if layout == "raidz1" { 1 } else { rounds(0, 1) };
        if round == 0 || !vm::wanted("that the kernel goes on with a pool that has grown") {
            continue;
        }
        let script = "set -euo pipefail\n\
             zpool import -d /d -o cachefile=none tank\n\
             zpool list -Hpo size tank; zpool get -Hpo value expandsize tank\n\
             dd if=/dev/urandom of=/tank/kernels bs=1M count=5 status=none; rm -r /tank/before\n\
             zpool scrub -w tank; zpool status -v tank; zpool export tank\n";
        let ran = Vm::new(stage.images.path()).run(script).expect_ok();
        assert!(ran.out.starts_with(&format!("{after}\n-\n")), "{after}: {ran}");
        assert!(ran.out.contains("repaired 0B") && ran.out.contains("No known data"), "{ran}");
        drop(poolaudit_kernels(stage.images.path(), "tank").expect_ok());
        drop(stage.ok("zpool import -d $D tank"));
        fill(&stage, "again", 3);
        drop(stage.ok("zpool export tank"));
        assert_verified(stage.images.path(), "tank");
    }
}

/// With autoexpand it needs no command: when the pool is opened, and when the last small disk is replaced.
#[test]
fn autoexpand_uses_it_by_itself() {
    let stage = Stage::new(4, SMALL);
    drop(stage.ok("zpool create -o ashift=12 -o autoexpand=on tank mirror $D/d00 $D/d01"));
    let before = size(&stage);
    resize(&stage, 2..4, LARGE);
    drop(stage.ok("zpool replace tank d00 $D/d02"));
    assert_eq!(size(&stage), before);
    drop(stage.ok("zpool replace tank d01 $D/d03"));
    let larger = size(&stage);
    assert!(larger > before * 2, "{before} {larger}");
    drop(stage.ok("zpool export tank"));
    resize(&stage, 2..4, 2 * LARGE);
    drop(stage.ok("zpool import -d $D tank"));
    assert!(size(&stage) > larger * 3 / 2, "{larger}");
    fill(&stage, "files", 25);
    assert_right(&stage);
}

/// A server sees how large a disk is now, though it has had it open before.
#[test]
fn a_server_uses_it_while_the_pool_is_open() {
    let stage = Stage::new(2, SMALL);
    drop(stage.ok("zpool create -o ashift=12 tank mirror $D/d00 $D/d01"));
    let server = Server::start(&stage.aside("pools"));
    let before = size(&stage);
    resize(&stage, 0..2, LARGE);
    drop(stage.ok("zpool online -e tank d01"));
    assert!(size(&stage) > before * 2, "{before}");
    fill(&stage, "files", 18);
    let log = server.stop();
    assert!(!log.contains("panicked"), "{log}");
    assert_right(&stage);
}

/// Room that is too little for a metaslab: the labels at a disk's end are at its new end all the same.
///
/// Seen red: two labels had no config until something else changed the vdevs.
#[test]
fn labels_are_at_the_end_of_a_disk_that_grew_by_little() {
    let stage = Stage::new(2, SMALL);
    drop(stage.ok("zpool create -o ashift=12 tank mirror $D/d00 $D/d01"));
    let server = Server::start(&stage.aside("pools"));
    let before = size(&stage);
    fill(&stage, "first", 1);
    resize(&stage, 0..2, SMALL + 4 * MIB);
    drop(stage.ok("zpool online -e tank d00"));
    assert_eq!(size(&stage), before);
    fill(&stage, "files", 1);
    for disk in stage.images.disks() {
        let configs = Labels::read_configs(&ReadFile::open(&disk).unwrap());
        assert!(configs.iter().all(|config| config.is_ok()), "{}: {configs:?}", disk.display());
    }
    drop(server.stop());
    assert_right(&stage);
}
