//! The program while its devices do not take what it writes: it waits, says so, and goes on.
//!
//! The images are sparse files in a file system that is too small for them, so that a write fails for want of
//! space there, as from a disk that is gone; then room is made. The file system is a tmpfs in a mount namespace of
//! its own (`unshare`, of util-linux).

#![allow(clippy::unwrap_used)]

use std::process::{Command, Stdio};
use std::time::Duration;

use acceptance::disks::Disks;
use acceptance::{Server, thumper};
use testkit::{Ran, temp_dir};

/// Makes a pool on devices that fail beyond redundancy, puts a file, and makes room after it was said that the
/// pool is suspended.
fn put_into_too_small(failmode: &str) -> Ran {
    let state = temp_dir();
    let script = format!(
        "set -eu\n\
         mount -t tmpfs -o size=64m none $DIR; cd $DIR\n\
         for i in 0 1 2; do truncate -s 100M d$i; done\n\
         head -c 42000000 /dev/zero | tr '\\0' x > ballast\n\
         $T zpool create -f -o failmode={failmode} -O compression=off tank raidz1 $DIR/d0 $DIR/d1 $DIR/d2\n\
         head -c 24000000 /dev/urandom > $BIG/big\n\
         $T put $BIG/big tank:/big 2> $BIG/said & put=$!\n\
         for i in $(seq 300); do grep -q suspended $BIG/said && break; sleep 0.1; done\n\
         if [ {failmode} = wait ]; then kill -0 $put; fi\n\
         cat $BIG/said; rm ballast\n\
         wait $put && echo PUT || echo \"FAILED $?\"\n\
         cat $BIG/said\n\
         $T verify tank | head -2\n\
         if [ {failmode} = wait ]; then $T get tank:/big $BIG/back; cmp $BIG/big $BIG/back && echo SAME; fi\n\
         $T zpool clear tank && echo CLEARED\n\
         $T zpool clear tank nothing || true\n\
         $T zpool history tank\n"
    );
    let mut command = Command::new("unshare");
    let dir = temp_dir();
    let big = temp_dir();
    command.args(["--mount", "--map-root-user", "sh", "-c", &script]);
    command.env("DIR", dir.path()).env("BIG", big.path()).env("T", acceptance::thumper_path());
    command.env("THUMPER_STATE", state.path().join("pools")).env("TZ", "UTC").env("LC_ALL", "C");
    Ran::of(&mut command)
}

#[test]
fn a_put_waits_for_devices_and_goes_on() {
    let ran = put_into_too_small("wait").expect_ok();
    for line in ["pool 'tank' is suspended: ", "PUT", "SAME", "CLEARED"] {
        assert!(ran.out.contains(line), "no '{line}' in {ran}");
    }
    assert!(!ran.out.contains("FAILED"), "{ran}");
    assert!(ran.err.contains("cannot clear errors for nothing: no such device in pool"), "{ran}");
    assert!(ran.out.contains("zpool clear tank"), "{ran}");
}

#[test]
fn with_failmode_continue_it_ends_with_the_error() {
    let ran = put_into_too_small("continue").expect_ok();
    assert!(ran.out.contains("is suspended") && ran.out.contains("FAILED 1"), "{ran}");
    assert!(ran.out.contains("CLEARED"), "{ran}");
}

/// A server that holds a pool on disks which can fail.
struct Held {
    disks: Disks,
    aside: testkit::TempDir,
    server: Server,
}

impl Held {
    /// With a mirror, and `more` on the command line that makes it.
    fn new(more: &[&str]) -> Held {
        let disks = Disks::new(2, 128 << 20, Duration::ZERO);
        let aside = temp_dir();
        let server = Server::start(&aside.path().join("pools"));
        let held = Held { disks, aside, server };
        let paths = held.disks.paths();
        let paths: Vec<&str> = paths.iter().map(|path| path.to_str().unwrap()).collect();
        let create = [&["zpool", "create"], more, &["tank", "mirror"], &paths].concat();
        drop(held.run(&create).expect_ok());
        held
    }

    fn command(&self, words: &[&str]) -> Command {
        let mut command = thumper(&self.aside.path().join("pools"));
        command.args(words).current_dir(self.aside.path());
        command
    }

    fn run(&self, words: &[&str]) -> Ran {
        Ran::of(&mut self.command(words))
    }

    fn fail(&self, fails: bool) {
        (0..2).for_each(|disk| self.disks.fail(disk, fails));
    }

    /// Waits until the pool waits for its disks.
    fn is_suspended(&self) {
        let suspended =
            || self.run(&["zpool", "status", "tank"]).out.contains(" state: SUSPENDED\n");
        let start = rt::time::now();
        while !suspended() && start.elapsed() < Duration::from_secs(60) {
            rt::time::sleep(Duration::from_millis(20));
        }
    }
}

/// Seen red: only SIGKILL ended it, though it had said that an interrupt lets go of the pool.
#[test]
fn whoever_ends_the_server_twice_does_not_wait_for_disks() {
    let held = Held::new(&["-o", "failmode=wait"]);
    let others = testkit::fresh_images(1, 64 << 20);
    let other = others.disk(0);
    drop(held.run(&["zpool", "create", "well", other.to_str().unwrap()]).expect_ok());
    held.fail(true);
    let mut setting = held.command(&["zpool", "set", "comment=lost", "tank"]);
    let setting = setting.stderr(Stdio::piped()).spawn().unwrap();
    held.is_suspended();
    held.server.interrupt();
    // The other one is closed meanwhile.
    for line in ["pool 'well' is closed", "pool 'tank' waits for its devices"] {
        let start = rt::time::now();
        while !held.server.said().contains(line) {
            let said = held.server.said();
            assert!(start.elapsed() < Duration::from_secs(60), "no '{line}' in {said}");
            rt::time::sleep(Duration::from_millis(5));
        }
    }
    held.server.interrupt();
    let (status, log) = held.server.ended();
    let said = setting.wait_with_output().unwrap().stderr;
    let said = String::from_utf8_lossy(&said);
    assert!(said.contains("suspended"), "{said}");
    assert_eq!(status.code(), Some(1), "{status}: {log}");
    assert!(log.contains("pool 'tank' was let go"), "{log}");
}

/// Seen red: it was the lookout that waited, with all pools, and whoever wanted to export one stood in its way.
#[test]
fn a_disk_whose_name_nobody_finds_holds_up_no_other_pool() {
    let held = Held::new(&[]);
    let others = testkit::fresh_images(1, 64 << 20);
    drop(held.run(&["zpool", "create", "well", others.disk(0).to_str().unwrap()]).expect_ok());
    let place = others.path().to_str().unwrap();
    held.disks.hide(true);
    // It is looked for each second.
    rt::time::sleep(Duration::from_secs(3));
    let answers = |words: &[&str]| {
        let mut command = held.command(words);
        let mut asking = command.stdout(Stdio::null()).spawn().unwrap();
        let start = rt::time::now();
        loop {
            match asking.try_wait().unwrap() {
                Some(status) => return status.success(),
                None if start.elapsed() > Duration::from_secs(20) => {
                    asking.kill().unwrap();
                    return false;
                }
                None => rt::time::sleep(Duration::from_millis(5)),
            }
        }
    };
    let asked: [&[&str]; 4] = [
        &["zpool", "events"],
        &["zpool", "export", "well"],
        &["zpool", "import", "-d", place, "well"],
        &["zpool", "export", "well"],
    ];
    let unanswered: Vec<_> = asked.iter().filter(|words| !answers(words)).collect();
    held.disks.hide(false);
    assert!(unanswered.is_empty(), "{unanswered:?}");
    drop(held.server.stop());
}

/// What `failmode` says of a pool that is held counts from when it is said.
#[test]
fn failmode_counts_from_when_it_is_set() {
    let held = Held::new(&["-o", "failmode=continue"]);
    // What becomes of a change that the disks do not take until the pool is suspended.
    let change = |comment: &str| {
        let set = format!("comment={comment}");
        held.fail(true);
        std::thread::scope(|scope| {
            let changing = scope.spawn(|| held.run(&["zpool", "set", &set, "tank"]));
            held.is_suspended();
            held.fail(false);
            changing.join().unwrap()
        })
    };
    drop(held.run(&["zpool", "set", "failmode=wait", "tank"]).expect_ok());
    drop(change("waited").expect_ok());
    assert_eq!(held.run(&["zpool", "get", "-Ho", "value", "comment", "tank"]).out, "waited\n");
    drop(held.run(&["zpool", "set", "failmode=continue", "tank"]).expect_ok());
    let ran = change("refused");
    assert!(ran.status == 1 && ran.err.contains("suspended"), "{ran}");
    held.server.kill();
}
