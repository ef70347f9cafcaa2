//! Disks whose labels are older than the pool: what its leaves are the pool says, not the labels that are left of a vdev.

#![allow(clippy::unwrap_used)]

use std::path::Path;

use acceptance::{Stage, assert_verified};

const FILE: usize = 8_000_000;

/// Two mirrors, of d00 and d01 and of d02 and d03, and data whose blocks have no checksum that could tell.
fn begin(disks: usize) -> Stage {
    let stage = Stage::new(disks, 128 << 20);
    drop(stage.ok("zpool create tank mirror $D/d00 $D/d01 mirror $D/d02 $D/d03"));
    drop(stage.ok("zfs create -o checksum=off tank/off"));
    let mut bytes = vec![0; FILE];
    rt::Rng::new(7).fill(&mut bytes);
    std::fs::write(stage.aside("f"), &bytes).unwrap();
    stage
}

/// Takes a disk out, or puts it back.
fn away(stage: &Stage, disk: usize) -> impl FnOnce() {
    let name = format!("d{disk:02}");
    let (disk, kept) = (stage.images.path().join(&name), stage.aside(&name));
    std::fs::rename(&disk, &kept).unwrap();
    move || std::fs::rename(kept, disk).unwrap()
}

fn assert_same(stage: &Stage) {
    drop(stage.ok("get tank/off:/f $A/got"));
    let read = |name: &str| std::fs::read(stage.aside(name)).unwrap();
    assert!(read("got") == read("f"), "other bytes are read than were written");
    std::fs::remove_file(stage.aside("got")).unwrap();
}

/// The disk that was replaced while its mirror was away is back with it, and does not know of its successor: what is
/// written then the successor lacks.
#[test]
fn what_is_written_beside_an_old_label_the_leaf_that_is_away_lacks() {
    let stage = begin(5);
    let back = away(&stage, 1);
    drop(stage.run("zpool replace -w tank $D/d00 $D/d04").expect_ok());
    let successor = away(&stage, 4);
    back();
    drop(stage.run("put $A/f tank/off:/").expect_ok());
    successor();
    assert_same(&stage);
    drop(stage.run("zpool resilver tank").expect_ok());
    drop(stage.run("zpool detach tank $D/d01").expect_ok());
    assert_same(&stage);
    let _blocks = assert_verified(stage.images.path(), "tank");
}

/// A disk that was detached while it was away is none of the pool's, whatever its label says: nothing is read from it,
/// and nothing is written to it.
#[test]
fn a_disk_that_was_detached_is_no_part_of_the_pool() {
    let stage = begin(4);
    drop(stage.ok("zpool export tank"));
    let back = away(&stage, 1);
    drop(stage.run("zpool import -d $D tank").expect_ok());
    drop(stage.run("zpool detach tank $D/d01").expect_ok());
    drop(stage.run("put $A/f tank/off:/").expect_ok());
    drop(stage.run("zpool export tank").expect_ok());
    let member = away(&stage, 0);
    back();
    let stranger = stage.images.path().join("d01");
    let bytes = |path: &Path| std::fs::read(path).unwrap();
    let before = bytes(&stranger);
    for how in ["-o readonly=on", ""] {
        let import = stage.run(&format!("zpool import -d $D {how} tank"));
        if import.status == 0 {
            assert_ne!(stage.run("get tank/off:/f $A/got").status, 0, "{import}");
            drop(stage.run("zpool export tank"));
        } else {
            assert!(import.err.contains("d00"), "{import}");
        }
        assert!(bytes(&stranger) == before, "it was written: {import}");
    }
    member();
    drop(stage.run("zpool import -d $D tank").expect_ok());
    assert_same(&stage);
    let _blocks = assert_verified(stage.images.path(), "tank");
}

/// A disk that was away was imported alone elsewhere, and changed there more often than the pool was: it has the newest
/// uberblock of all, and what it leads to is not this pool. Neither a command nor a server takes it.
///
/// Seen red: it was filled and called whole, and the next import went on from its uberblock.
#[test]
fn a_disk_that_was_used_elsewhere_does_not_become_the_pool() {
    let stage = Stage::new(2, 128 << 20);
    drop(stage.ok("zpool create tank mirror $D/d00 $D/d01"));
    std::fs::write(stage.aside("f"), [7; 100_000]).unwrap();
    drop(stage.ok("put $A/f tank:/old"));
    drop(stage.ok("zpool export tank"));
    let elsewhere = Stage::with(stage.images.without(&[0]));
    // Where the pool says it would be found.
    let member = away(&stage, 0);
    drop(elsewhere.run("zpool import -f -d $D tank").expect_ok());
    (0..12).for_each(|n| drop(elsewhere.run(&format!("zfs set user:x={n} tank")).expect_ok()));
    drop(elsewhere.run("zpool export tank").expect_ok());
    member();
    let back = away(&stage, 1);
    drop(stage.run("zpool import -d $D tank").expect_ok());
    back();
    let online = stage.run("zpool online tank $D/d01");
    assert_eq!(online.status, 1, "{online}");
    assert!(online.err.contains("d01 was written to elsewhere"), "{online}");
    drop(stage.run("put $A/f tank:/precious").expect_ok());
    let server = acceptance::Server::start(&stage.aside("pools"));
    // It looks once a second.
    rt::time::sleep(std::time::Duration::from_millis(2500));
    let log = server.stop();
    assert!(!log.contains("is back"), "{log}");
    drop(stage.run("zpool export tank").expect_ok());
    drop(stage.run("zpool import -d $D/d00 tank").expect_ok());
    let listed = stage.run("ls tank:/").expect_ok().out;
    assert!(listed.contains("precious") && listed.contains("old"), "{listed}");
}

/// A disk was away when the pool was imported: once a server has it back, whoever opens the pool after that server finds
/// it, too.
///
/// Seen red: without the server the pool was written without it, and its DTL grew.
#[test]
fn a_disk_that_a_server_took_back_is_remembered() {
    let stage = Stage::new(2, 128 << 20);
    drop(stage.ok("zpool create tank mirror $D/d00 $D/d01"));
    drop(stage.ok("zpool export tank"));
    let back = away(&stage, 1);
    drop(stage.run("zpool import -d $D tank").expect_ok());
    let server = acceptance::Server::start(&stage.aside("pools"));
    // It answers once it has its pools: a disk that is there by then is found in its place, and does not come back.
    drop(stage.ok("zpool list"));
    back();
    let start = rt::time::now();
    while !stage.run("zpool events -H").out.contains("vdev_online") {
        assert!(start.elapsed() < std::time::Duration::from_secs(30), "it was not taken");
        rt::time::sleep(std::time::Duration::from_millis(100));
    }
    let log = server.stop();
    assert!(log.contains("d01' is back"), "{log}");
    let status = stage.run("zpool status tank").expect_ok().out;
    assert!(!status.contains("UNAVAIL"), "{status}");
}

/// A cut between the two halves of the labels of a change of vdevs: half of them name the leaf as it is to be, and the
/// uberblock is that of before.
///
/// Seen red: it could not be opened for writing any more.
#[test]
fn labels_that_are_ahead_of_the_pool_keep_nobody_from_it() {
    use std::os::unix::fs::FileExt;
    let stage = Stage::new(2, 128 << 20);
    drop(stage.ok("zpool create tank $D/d00"));
    drop(stage.ok("zpool export tank"));
    let (disk, other) = (stage.images.disk(0), stage.images.disk(1));
    let before = std::fs::read(&disk).unwrap();
    drop(stage.ok("zpool import -d $D tank"));
    drop(stage.run("zpool attach -w tank $D/d00 $D/d01").expect_ok());
    drop(stage.ok("zpool export tank"));
    let after = std::fs::read(&disk).unwrap();
    std::fs::rename(other, stage.aside("d01")).unwrap();
    std::fs::write(&disk, &before).unwrap();
    let file = std::fs::File::options().write(true).open(&disk).unwrap();
    for label in [0, (128 << 20) - (512 << 10)] {
        let config = label + (16 << 10)..label + (128 << 10);
        file.write_all_at(&after[config.clone()], config.start as u64).unwrap();
    }
    drop(stage.ok("zpool import -d $D tank"));
    std::fs::write(stage.aside("f"), [7; 100_000]).unwrap();
    drop(stage.run("put $A/f tank:/").expect_ok());
    drop(stage.ok("zpool export tank"));
    let _blocks = assert_verified(stage.images.path(), "tank");
}

/// A device that is shorter than what lies on it, for now: a wrong partition, a copy that is not complete.
///
/// Seen red: its labels were written to its end, which is over blocks.
#[test]
fn nothing_is_written_to_a_device_that_is_too_short() {
    let stage = Stage::new(1, 256 << 20);
    drop(stage.ok("zpool create -O compression=off tank $D/d00"));
    let mut bytes = vec![0; 60_000_000];
    rt::Rng::new(8).fill(&mut bytes);
    std::fs::write(stage.aside("f"), &bytes).unwrap();
    drop(stage.run("put $A/f tank:/").expect_ok());
    drop(stage.ok("zpool export tank"));
    let disk = stage.images.disk(0);
    let whole = std::fs::read(&disk).unwrap();
    let file = std::fs::File::options().write(true).open(&disk).unwrap();
    file.set_len(60 << 20).unwrap();
    // Whether it is refused or can be read: what is there stays.
    let _imported = stage.run("zpool import -d $D tank");
    let _put = stage.run("mkdir tank:/new");
    let _away = stage.run("zpool export tank");
    assert!(std::fs::read(&disk).unwrap() == whole[..60 << 20], "it was written to");
    std::fs::write(&disk, &whole).unwrap();
    drop(stage.run("zpool import -d $D tank"));
    drop(stage.ok("get tank:/f $A/got"));
    assert!(std::fs::read(stage.aside("got")).unwrap() == bytes);
}
