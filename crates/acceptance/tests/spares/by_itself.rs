//! Spares in a server: one engages on each kind of failure, without a person, and stands back when it is not needed.

use std::fs;
use std::os::unix::fs::{FileExt, symlink};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use acceptance::disks::Disks;
use acceptance::{Server, Stage, thumper};
use rt::sync::Arc;
use rt::sync::atomic::{AtomicBool, Ordering};
use testkit::random::Rng;
use testkit::{Ran, TempDir, Vm, poolaudit_kernels, temp_dir, tool, vm};

use super::{rows, shown};

/// So soon a spare is to be in use.
const SOON: Duration = Duration::from_secs(10);
/// So soon everything is to be redundant again.
const FILLED: Duration = Duration::from_secs(60);

/// Waits until `said` is what is expected.
#[track_caller]
fn wait_for(patience: Duration, status: impl Fn() -> String, expected: impl Fn(&str) -> bool) {
    let start = rt::time::now();
    loop {
        let said = status();
        if expected(&said) {
            return;
        }
        assert!(start.elapsed() < patience, "{said}");
        rt::time::sleep(Duration::from_millis(100));
    }
}

/// Is a spare in use for this disk?
fn stands_in(said: &str, spare: &str) -> bool {
    shown(said).contains(&format!("{spare} INUSE"))
}

/// So many devices have come. Has everything been put there that the last of them lacked?
fn filled(came: usize) -> impl Fn(&str) -> bool {
    move |events| {
        let last = |class: &str| events.rfind(class);
        let all = events.matches("vdev_attach").count() == came;
        all && last("resilver_finish") > last("vdev_attach")
    }
}

/// Stores files as long as it lives; those that are there are as they should be.
struct Load {
    ends: Arc<AtomicBool>,
    thread: Option<rt::thread::JoinHandle<usize>>,
    aside: TempDir,
    state: PathBuf,
}

fn bytes_of(number: usize) -> Vec<u8> {
    let mut bytes = vec![0; 300_000];
    Rng::of(number as u64, 5).fill(&mut bytes);
    bytes
}

impl Load {
    fn start(state: PathBuf) -> Load {
        let (ends, aside) = (Arc::new(AtomicBool::new(false)), temp_dir());
        let (ending, dir, list) = (ends.clone(), aside.path().to_path_buf(), state.clone());
        let thread = rt::thread::spawn("load", move || {
            let mut number = 0;
            while !ending.load(Ordering::Relaxed) {
                let name = format!("file{number}");
                fs::write(dir.join(&name), bytes_of(number)).unwrap();
                let to = format!("tank:/{name}");
                let mut command = thumper(&list);
                drop(Ran::of(command.args(["put", &name, &to]).current_dir(&dir)).expect_ok());
                fs::remove_file(dir.join(&name)).unwrap();
                number += 1;
                rt::time::sleep(Duration::from_millis(100));
            }
            number
        });
        Load { ends, thread: Some(thread), aside, state }
    }

    /// Ends it; every file is there.
    fn end(mut self) {
        self.ends.store(true, Ordering::Relaxed);
        let count = self.thread.take().unwrap().join();
        assert!(count > 3, "{count} files are no load");
        let mut command = thumper(&self.state);
        let words = ["get", "-r", "tank:/", "back"];
        drop(Ran::of(command.args(words).current_dir(self.aside.path())).expect_ok());
        for number in 0..count {
            let back = fs::read(self.aside.path().join("back").join(format!("file{number}")));
            assert!(back.unwrap() == bytes_of(number), "file{number} has come back changed");
        }
    }
}

/// `verify` finds nothing wrong but that this disk is not there.
#[track_caller]
fn assert_only_missing(dir: &Path, disk: &str) {
    let scan = vdev::import::scan(&[dir.to_path_buf()]).unwrap();
    let options = verify::Options::default();
    let report =
        verify::verify_pool(scan.choose("tank").unwrap(), &options, &mut |_| true).unwrap();
    let [device] = &report.devices[..] else { panic!("{report:#?}") };
    assert!(device.missing && device.device.ends_with(disk), "{report:#?}");
    assert!(report.blocks > 0 && report.findings.is_empty(), "{report:#?}");
    assert_eq!((report.lost_blocks, report.files.len()), (0, 0), "{report:#?}");
}

/// A server, and disks that fail and take long when they are told to, each in a slot: another one can be put there.
struct Slots {
    // The server ends first.
    server: Server,
    disks: Disks,
    aside: TempDir,
}

impl Slots {
    /// The pool is made as these words say; `0` is the first slot.
    fn new(disks: Disks, made: &str) -> Slots {
        let aside = temp_dir();
        let slots = Slots { server: Server::start(&aside.path().join("pools")), disks, aside };
        for (number, disk) in slots.disks.paths().iter().enumerate() {
            symlink(disk, slots.path(number)).unwrap();
        }
        let place = |word: &str| match word.parse() {
            Ok(number) => slots.path(number).display().to_string(),
            Err(_) => word.to_owned(),
        };
        let words: Vec<String> = made.split(' ').map(place).collect();
        drop(Ran::of(slots.command("zpool create").args(words)).expect_ok());
        slots
    }

    fn path(&self, number: usize) -> PathBuf {
        self.aside.path().join(format!("slot{number}"))
    }

    /// Another disk, in the place of what is there.
    fn put(&self, number: usize, disk: &Path) {
        fs::remove_file(self.path(number)).unwrap();
        symlink(disk, self.path(number)).unwrap();
    }

    fn command(&self, words: &str) -> Command {
        let mut command = thumper(&self.aside.path().join("pools"));
        command.args(words.split(' ')).current_dir(self.aside.path());
        command
    }

    fn run(&self, words: &str) -> String {
        Ran::of(&mut self.command(words)).expect_ok().out
    }

    fn load(&self) -> Load {
        Load::start(self.aside.path().join("pools"))
    }
}

/// A disk that fails and one that takes long; then two more die, which is all that raidz2 bears.
#[test]
fn disks_that_fail_and_slow_ones_are_replaced_under_load() {
    let disks = Disks::new(7, 128 << 20, Duration::from_micros(300));
    let slots = Slots::new(disks, "tank raidz2 0 1 2 3 4 spare 5 6");
    let disks = &slots.disks;
    let load = slots.load();
    let status = || slots.run("zpool status tank");
    let events = || slots.run("zpool events -H");
    rt::time::sleep(Duration::from_secs(1));
    // A scrub that somebody has paused does not keep the spare from being filled. It may be at its end before.
    let paused = || {
        drop(slots.run("zpool scrub tank"));
        let paused = Ran::of(&mut slots.command("zpool scrub -p tank"));
        assert!(paused.ok() || paused.err.contains("no active scrub"), "{paused}");
        paused.ok()
    };
    assert!((0..50).any(|_| paused()) && status().contains("scrub paused"), "{}", status());
    disks.fail(1, true);
    wait_for(SOON, status, |said| stands_in(said, "slot5"));
    wait_for(FILLED, events, filled(1));
    let faulted = status();
    assert!(shown(&faulted).contains(&"slot1 FAULTED".into()), "{faulted}");
    disks.take(2, Duration::from_millis(25));
    wait_for(FILLED, status, |said| said.contains("slow: "));
    wait_for(SOON, status, |said| stands_in(said, "slot6"));
    wait_for(FILLED, events, filled(2));
    disks.take(2, Duration::from_micros(300));
    let spared = status();
    let rows = shown(&spared);
    assert!(rows.contains(&"spare-1 DEGRADED".into()), "{spared}");
    assert!(rows.contains(&"spare-2 ONLINE".into()), "{spared}");
    // What they stood in for has gone, too, and two of the others.
    disks.fail(2, true);
    disks.fail(3, true);
    disks.fail(4, true);
    load.end();
    let events = events();
    assert_eq!(events.matches("sysevent.fs.zfs.vdev_spare").count(), 2, "{events}");
    let log = slots.server.stop();
    assert_eq!(log.matches("stands in for").count(), 2, "{log}");
}

/// A disk that goes and comes back, one with wrong bytes, one that is gone when the server begins, a new one in the place
/// of an old one.
#[test]
fn disks_that_go_or_rot_are_replaced_and_stand_back() {
    let stage = Stage::new(6, 128 << 20);
    let state = stage.aside("pools");
    let server = Server::start(&state);
    let create =
        "zpool create -o ashift=12 tank raidz1 $D/d00 $D/d01 $D/d02 $D/d03 spare $D/d04 $D/d05";
    drop(stage.ok(create));
    let load = Load::start(state.clone());
    let status = || stage.run("zpool status tank").expect_ok().out;
    let events = || stage.run("zpool events -H").expect_ok().out;
    let is = |expected: &str| {
        let expected = rows(expected);
        move |said: &str| shown(said) == expected
    };
    let (disks, away) = (stage.images.disks(), stage.aside("away"));
    let disk = |n: usize| &disks[n];
    fs::rename(disk(1), &away).unwrap();
    wait_for(SOON, status, |said| stands_in(said, "d04"));
    wait_for(FILLED, events, filled(1));
    // It is back: the spare is not needed.
    fs::rename(&away, disk(1)).unwrap();
    wait_for(SOON, status, is("tank raidz1-0 d00 d01 d02 d03 | d04 d05"));
    load.end();
    // Wrong bytes all over it: the scrub finds them, and mends them.
    let rotten = fs::OpenOptions::new().write(true).open(disk(2)).unwrap();
    rotten.write_all_at(&vec![0xa5; 100 << 20], 8 << 20).unwrap();
    drop(stage.ok("zpool scrub -w tank"));
    wait_for(SOON, status, |said| stands_in(said, "d04"));
    wait_for(FILLED, events, filled(2));
    assert!(shown(&status()).contains(&"d02 DEGRADED".into()), "{}", status());
    // It is trusted again.
    drop(stage.ok("zpool clear tank d02"));
    wait_for(FILLED, status, is("tank raidz1-0 d00 d01 d02 d03 | d04 d05"));
    // One is gone when the server begins.
    drop(server.stop());
    fs::rename(disk(0), &away).unwrap();
    let server = Server::start(&state);
    wait_for(SOON, status, |said| stands_in(said, "d04"));
    wait_for(FILLED, events, filled(1));
    let load = Load::start(state);
    // Another one is in its place, with nothing on it; the pool has to want it.
    fs::File::create(disk(0)).unwrap().set_len(128 << 20).unwrap();
    rt::time::sleep(Duration::from_secs(5));
    assert!(stands_in(&status(), "d04"), "{}", status());
    drop(stage.ok("zpool set autoreplace=on tank"));
    wait_for(FILLED, status, is("tank raidz1-0 d00 d01 d02 d03 | d04 d05"));
    // And one that stays away.
    fs::rename(disk(3), stage.aside("gone")).unwrap();
    wait_for(SOON, status, |said| stands_in(said, "d04"));
    wait_for(FILLED, events, filled(3));
    load.end();
    let log = server.stop();
    assert!(log.contains("replaces the old one") && log.contains("stands in for"), "{log}");
    // Everything is redundant: of what is left any disk may die.
    let left = Stage::with(stage.images.without(&[3]));
    assert_only_missing(left.images.path(), "d03");
    tool::zdb_objects(left.images.path(), "tank");
    for dead in [0, 1, 2, 4] {
        tool::zdb_content(stage.images.without(&[3, dead]).path(), "tank");
    }
    if !vm::wanted("that the kernel finds nothing to repair in a pool with a spare in use") {
        return;
    }
    let script = "set -euo pipefail\n\
        zpool import -f -d /d -o cachefile=none tank; zpool scrub -w tank; zpool status -v tank\n\
        zpool export tank\n";
    let ran = Vm::new(left.images.path()).run(script).expect_ok();
    assert!(ran.out.contains("repaired 0B") && ran.out.contains("with 0 errors"), "{ran}");
    assert!(stands_in(&ran.out, "d04"), "{ran}");
    drop(poolaudit_kernels(left.images.path(), "tank").expect_ok());
}

/// A disk that has failed is not trusted because it is there; a new one in its place is taken.
#[test]
fn a_new_disk_in_the_place_of_one_that_failed_is_taken() {
    let disks = Disks::new(4, 128 << 20, Duration::ZERO);
    let slots = Slots::new(disks, "-o autoreplace=on tank raidz1 0 1 2 spare 3");
    let load = slots.load();
    let status = || slots.run("zpool status tank");
    let events = || slots.run("zpool events -H");
    slots.disks.fail(1, true);
    wait_for(SOON, status, |said| stands_in(said, "slot3"));
    wait_for(FILLED, events, filled(1));
    assert!(shown(&status()).contains(&"slot1 FAULTED".into()), "{}", status());
    // It answers again, as it did when it was taken for good.
    slots.disks.fail(1, false);
    load.end();
    rt::time::sleep(Duration::from_secs(5));
    assert!(shown(&status()).contains(&"slot1 FAULTED".into()), "{}", status());
    let new = slots.aside.path().join("new");
    fs::File::create(&new).unwrap().set_len(128 << 20).unwrap();
    slots.put(1, &new);
    let whole = rows("tank raidz1-0 slot0 slot1 slot2 | slot3");
    wait_for(FILLED, status, |said| shown(said) == whole);
    let log = slots.server.stop();
    assert!(log.contains("replaces the old one"), "{log}");
}

/// Of a pool that was imported from elsewhere the place of a disk is where it was found, not where it was made.
#[test]
fn a_disk_is_looked_for_where_it_was_found() {
    let made = Stage::new(2, 128 << 20);
    drop(made.ok("zpool create -o autoreplace=on tank mirror $D/d00 $D/d01"));
    drop(made.ok("zpool export tank"));
    let stage = Stage::with(made.images.without(&[]));
    let there = made.images.disks();
    // Something that was never a disk of the pool is where they were.
    for old in &there {
        fs::remove_file(old).unwrap();
        fs::File::create(old).unwrap().set_len(128 << 20).unwrap();
    }
    let server = Server::start(&stage.aside("pools"));
    drop(stage.ok("zpool import -d $D tank"));
    let status = || stage.run("zpool status tank").expect_ok().out;
    let disk = stage.images.disks()[1].clone();
    let away = stage.aside("away");
    drop(server.stop());
    fs::rename(&disk, &away).unwrap();
    let server = Server::start(&stage.aside("pools"));
    wait_for(SOON, status, |said| shown(said).iter().any(|row| row.ends_with(" UNAVAIL")));
    rt::time::sleep(Duration::from_secs(5));
    fs::rename(&away, &disk).unwrap();
    let whole = rows("tank mirror-0 d00 d01");
    wait_for(SOON, status, |said| shown(said) == whole);
    let log = server.stop();
    assert!(log.contains("d01' is back") && !log.contains("replaces"), "{log}");
    // The labels say where they are now.
    let scan = vdev::import::scan(&[stage.images.path().to_path_buf()]).unwrap();
    let root = &scan.choose("tank").unwrap().root;
    let paths: Vec<Vec<u8>> = root.leaves().filter_map(|leaf| leaf.path.clone()).collect();
    let now = stage.images.disks();
    let now: Vec<Vec<u8>> = now.iter().map(|path| path.display().to_string().into()).collect();
    assert_eq!(paths, now);
}

/// Something that does not answer where a disk was keeps nobody from letting the pool go.
#[test]
fn what_does_not_answer_in_the_place_of_a_disk_holds_nobody_up() {
    const TAKES: Duration = Duration::from_secs(20);
    let slots = Slots::new(Disks::new(3, 128 << 20, Duration::ZERO), "tank mirror 0 1");
    let status = || slots.run("zpool status tank");
    // What is at the paths now has been seen when this returns.
    drop(slots.run("zpool events -H"));
    slots.disks.take(2, TAKES);
    slots.put(1, &slots.disks.path(2));
    wait_for(SOON, status, |said| shown(said).contains(&"slot1 REMOVED".into()));
    // It is being looked at.
    rt::time::sleep(Duration::from_secs(5));
    let start = rt::time::now();
    drop(slots.run("zpool export tank"));
    assert!(start.elapsed() < TAKES / 2, "{:?}", start.elapsed());
    slots.server.kill();
}
