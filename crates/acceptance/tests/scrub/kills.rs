//! A replacement by a server, which is killed again and again while files are written.

use std::time::Duration;

use acceptance::{Server, Session, Stage};
use testkit::{Compare, assert_same, rounds, tool};

use crate::served::until;
use crate::{files, load};

fn prepare() -> Stage {
    let stage = Stage::new(5, 256 << 20);
    drop(stage.ok("zpool create -o ashift=12 tank raidz2 $D/d00 $D/d01 $D/d02 $D/d03"));
    stage.plant("files", &load(5, "f", 120));
    drop(stage.ok("put -r $A/files tank:/"));
    stage
}

/// Adds files whose names begin like this.
fn put_more(stage: &Stage, name: &str) {
    stage.plant(name, &load(7, name, 3));
    drop(stage.ok(&format!("put -r $A/{name} tank:/")));
}

/// The new disk is whole: with it and one other all is there.
fn is_replaced(stage: &Stage) {
    let status = stage.ok("zpool status tank").out;
    assert!(!status.contains("replacing") && !status.contains("d01"), "{status}");
    drop(stage.ok("zpool scrub -w tank"));
    let status = stage.ok("zpool status tank").out;
    assert!(status.contains("scrub repaired 0B") && status.contains("with 0 errors"), "{status}");
    drop(stage.ok("zpool export tank"));
    drop(stage.ok("-d $D verify tank"));
    tool::zdb_content(stage.images.path(), "tank");
    let mut session = Session::open(stage.images.path(), "tank", "tank").unwrap();
    let whole = files(&session);
    session.close().unwrap();
    let rest = stage.images.without(&[0, 3]);
    let mut session = Session::open(rest.path(), "tank", "tank").unwrap();
    assert_same(&whole, &files(&session), Compare::ALL);
    session.close().unwrap();
}

/// Files are written and the server is killed; then it begins anew and has so long.
fn interrupt(stage: &Stage, server: Server, turn: u64) -> Server {
    put_more(stage, &format!("m{turn}-"));
    server.kill();
    let server = Server::start(&stage.aside("pools"));
    rt::time::sleep(Duration::from_millis(30 * turn));
    server
}

#[test]
fn a_server_that_is_killed_goes_on_with_a_replacement() {
    let stage = prepare();
    let mut server = Server::start(&stage.aside("pools"));
    drop(stage.ok("zpool replace tank d01 $D/d04"));
    for turn in 0..rounds(3, 20) {
        server = interrupt(&stage, server, turn);
    }
    drop(until(&stage, "zpool status tank", "resilvered "));
    drop(until(&stage, "zpool history -i tank", "detach vdev="));
    is_replaced(&stage);
    drop(server.stop());
}

/// Another disk dies meanwhile: the new one is filled all the same, and so is that one when it is back.
#[test]
fn a_second_disk_is_lost_between_the_kills() {
    let stage = prepare();
    let disks = stage.images.disks();
    let server = Server::start(&stage.aside("pools"));
    drop(stage.ok("zpool replace tank d01 $D/d04"));
    let server = interrupt(&stage, server, 0);
    server.kill();
    let aside = stage.aside("d03");
    std::fs::rename(&disks[3], &aside).unwrap();
    let mut server = Server::start(&stage.aside("pools"));
    for turn in 1..rounds(3, 20) {
        server = interrupt(&stage, server, turn);
    }
    drop(until(&stage, "zpool history -i tank", "detach vdev="));
    let status = stage.ok("zpool status tank").out;
    assert!(status.contains("DEGRADED") && !status.contains("replacing"), "{status}");
    drop(stage.ok("get -r tank:/ $A/back"));
    server.kill();
    std::fs::rename(&aside, &disks[3]).unwrap();
    let server = Server::start(&stage.aside("pools"));
    drop(until(&stage, "zpool status tank", "state: ONLINE"));
    drop(until(&stage, "zpool events tank", "sysevent.fs.zfs.resilver_finish"));
    is_replaced(&stage);
    drop(server.stop());
}
