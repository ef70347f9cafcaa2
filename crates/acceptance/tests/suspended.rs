//! The program while its devices do not take what it writes: it waits, says so, and goes on.
//!
//! The images are sparse files in a file system that is too small for them, so that a write fails for want of
//! space there, as from a disk that is gone; then room is made. The file system is a tmpfs in a mount namespace of
//! its own (`unshare`, of util-linux).

#![allow(clippy::unwrap_used)]

use std::time::Duration;

use acceptance::{Server, thumper};
use testkit::{Ran, temp_dir};

#[path = "status_page/disks.rs"]
#[allow(dead_code)]
mod disks;

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
    let mut command = std::process::Command::new("unshare");
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

/// What `failmode` says of a pool that is held counts from when it is said.
#[test]
fn failmode_counts_from_when_it_is_set() {
    let disks = disks::Disks::new(2, 128 << 20, Duration::ZERO);
    let aside = temp_dir();
    let state = aside.path().join("pools");
    let server = Server::start(&state);
    let run = |words: &[&str]| {
        let mut command = thumper(&state);
        Ran::of(command.args(words).current_dir(aside.path()))
    };
    let paths: Vec<String> = disks.paths().iter().map(|path| path.display().to_string()).collect();
    let create = ["zpool", "create", "-o", "failmode=continue", "tank", "mirror"];
    drop(run(&[&create[..], &[&paths[0], &paths[1]]].concat()).expect_ok());
    let fail = |fails: bool| (0..2).for_each(|disk| disks.fail(disk, fails));
    // What becomes of a change that the disks do not take until the pool is suspended.
    let change = |comment: &str| {
        let set = format!("comment={comment}");
        fail(true);
        std::thread::scope(|scope| {
            let changing = scope.spawn(|| run(&["zpool", "set", &set, "tank"]));
            let suspended =
                || run(&["zpool", "status", "tank"]).out.contains(" state: SUSPENDED\n");
            let start = rt::time::now();
            while !suspended() && start.elapsed() < Duration::from_secs(60) {
                rt::time::sleep(Duration::from_millis(20));
            }
            fail(false);
            changing.join().unwrap()
        })
    };
    drop(run(&["zpool", "set", "failmode=wait", "tank"]).expect_ok());
    drop(change("waited").expect_ok());
    assert_eq!(run(&["zpool", "get", "-Ho", "value", "comment", "tank"]).out, "waited\n");
    drop(run(&["zpool", "set", "failmode=continue", "tank"]).expect_ok());
    let ran = change("refused");
    assert!(ran.status == 1 && ran.err.contains("suspended"), "{ran}");
    server.kill();
}
