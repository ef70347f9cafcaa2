//! A replacement by a server, which is killed again and again while files are written.

use std::process::Stdio;
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

/// The new disk is whole: with it and one other all is there, and the old one is gone.
fn is_replaced(stage: &Stage, old: &str) {
    let status = stage.ok("zpool status tank").out;
    assert!(!status.contains("replacing") && !status.contains(old), "{status}");
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

/// A replacement that is interrupted, again and again.
struct Replacing<'a> {
    stage: &'a Stage,
    old: &'static str,
    new: &'static str,
    turn: u64,
}

impl Replacing<'_> {
    fn begin(stage: &Stage) -> Replacing<'_> {
        let (old, new) = ("d01", "d04");
        drop(stage.ok(&format!("zpool replace tank {old} $D/{new}")));
        Replacing { stage, old, new, turn: 0 }
    }

    /// Files are written, and the server is killed, before long: was it in the midst of the replacement?
    fn interrupt(&mut self, server: Server) -> bool {
        let name = format!("m{}-", self.turn);
        self.stage.plant(&name, &load(7, &name, 3));
        let mut put = self.stage.command(&format!("put -r $A/{name} tank:/"));
        let mut put = put.stdout(Stdio::null()).stderr(Stdio::null()).spawn().unwrap();
        rt::time::sleep(Duration::from_millis(10 * (self.turn % 7)));
        server.kill();
        put.wait().unwrap();
        self.turn += 1;
        // Without a server this looks, and does nothing.
        self.stage.ok("zpool status tank").out.contains("replacing")
    }

    /// The new disk is whole: the old one, emptied, takes its place.
    fn turn_around(&mut self) {
        std::mem::swap(&mut self.old, &mut self.new);
        let path = self.stage.images.path().join(self.new);
        let size = path.metadata().unwrap().len();
        std::fs::File::create(&path).unwrap().set_len(size).unwrap();
        drop(self.stage.ok(&format!("zpool replace tank {} $D/{}", self.old, self.new)));
    }

    /// Waits until it is over.
    fn end(&self) {
        let is_over = || !self.stage.ok("zpool status tank").out.contains("replacing");
        let waited = (0..600).find(|_| {
            rt::time::sleep(Duration::from_millis(50));
            is_over()
        });
        assert!(waited.is_some(), "{}", self.stage.ok("zpool status tank"));
    }
}

/// So often in the midst of a replacement: when one is over, the next begins.
#[test]
fn a_server_that_is_killed_goes_on_with_a_replacement() {
    let stage = prepare();
    let mut server = Server::start(&stage.aside("pools"));
    let mut replacing = Replacing::begin(&stage);
    let (mut killed, wanted) = (0, rounds(3, 20));
    while killed < wanted {
        assert!(replacing.turn < 20 * wanted, "of {} kills {killed} hit", replacing.turn);
        let hit = replacing.interrupt(server);
        killed += u64::from(hit);
        server = Server::start(&stage.aside("pools"));
        if !hit {
            replacing.turn_around();
        }
    }
    replacing.end();
    is_replaced(&stage, replacing.old);
    drop(server.stop());
}

/// Another disk dies meanwhile: the new one is filled all the same, and so is that one when it is back.
#[test]
fn a_second_disk_is_lost_between_the_kills() {
    let stage = prepare();
    let disks = stage.images.disks();
    let mut server = Server::start(&stage.aside("pools"));
    let mut replacing = Replacing::begin(&stage);
    while !replacing.interrupt(server) {
        assert!(replacing.turn < 20, "no kill hit");
        server = Server::start(&stage.aside("pools"));
        replacing.turn_around();
    }
    let aside = stage.aside("d03");
    std::fs::rename(&disks[3], &aside).unwrap();
    let mut server = Server::start(&stage.aside("pools"));
    for _ in 1..rounds(3, 20) {
        replacing.interrupt(server);
        server = Server::start(&stage.aside("pools"));
    }
    replacing.end();
    let status = stage.ok("zpool status tank").out;
    assert!(status.contains("DEGRADED"), "{status}");
    drop(stage.ok("get -r tank:/ $A/back"));
    server.kill();
    std::fs::rename(&aside, &disks[3]).unwrap();
    let server = Server::start(&stage.aside("pools"));
    drop(until(&stage, "zpool status tank", "state: ONLINE"));
    drop(until(&stage, "zpool events tank", "sysevent.fs.zfs.resilver_finish"));
    is_replaced(&stage, replacing.old);
    drop(server.stop());
}
