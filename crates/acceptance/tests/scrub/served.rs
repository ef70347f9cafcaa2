//! A server works on scrubs and resilvers by itself, and lets go of a pool in the middle of one.

use std::time::Duration;

use acceptance::{Server, Stage};

use crate::{hurt, load};

const STATUS: &str = "zpool status tank";

/// Waits until a command says this.
pub(crate) fn until(stage: &Stage, command: &str, what: &str) -> String {
    for _ in 0..600 {
        let now = stage.ok(command).out;
        if now.contains(what) {
            return now;
        }
        rt::time::sleep(Duration::from_millis(50));
    }
    panic!("no '{what}': {}", stage.ok(command));
}

#[test]
fn a_server_scrubs_and_resilvers_by_itself() {
    let stage = Stage::new(4, 96 << 20);
    drop(stage.ok("zpool create -o ashift=12 tank raidz2 $D/d00 $D/d01 $D/d02 $D/d03"));
    stage.plant("files", &load(5, "f", 20));
    drop(stage.ok("put -r $A/files tank:/"));
    let disks = stage.images.disks();
    hurt(&disks[0], 1, true);
    let server = Server::start(&stage.aside("pools"));
    drop(stage.ok("zpool scrub tank"));
    let done = until(&stage, STATUS, "scrub repaired ");
    assert!(done.contains(" with 0 errors on ") && !done.contains("repaired 0B"), "{done}");
    for event in ["sysevent.fs.zfs.scrub_start", "sysevent.fs.zfs.scrub_finish"] {
        drop(until(&stage, "zpool events tank", event));
    }
    // It stays until the end if it is asked to.
    drop(stage.ok("zpool scrub -w tank"));
    assert!(stage.ok(STATUS).out.contains("scrub repaired 0B"), "{}", stage.ok(STATUS));
    drop(stage.ok("zpool scrub tank"));
    drop(server.stop());
    // Written without a disk; the server that has it again gives it what it lacks.
    let aside = stage.aside("d03");
    std::fs::rename(&disks[3], &aside).unwrap();
    stage.plant("more", &load(6, "m", 20));
    drop(stage.ok("put -r $A/more tank:/"));
    std::fs::rename(&aside, &disks[3]).unwrap();
    let server = Server::start(&stage.aside("pools"));
    let done = until(&stage, STATUS, "resilvered ");
    assert!(done.contains(" with 0 errors on ") && !done.contains("resilvered 0B"), "{done}");
    drop(stage.ok("zpool scrub tank"));
    drop(stage.ok("zpool export tank"));
    drop(server.stop());
    drop(stage.ok("-d $D verify tank"));
}
