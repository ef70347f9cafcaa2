//! `kill -9` of `thumper put -r`: the pool opens, is clean to all judges, and has all that was
//! acknowledged.

#![allow(clippy::unwrap_used)]

use std::fs;
use std::io::Write as _;
use std::os::unix::fs::MetadataExt;
use std::path::Path;
use std::process::Command;
use std::time::Duration;

use acceptance::Stage;
use testkit::data::{Data, Look};
use testkit::random::Rng;
use testkit::tool::{killed_after, zdb_content};
use testkit::truth::{Entry, Kind};
use testkit::workload::Workload;
use testkit::{Compare, Ran, assert_same, host, poolaudit, rounds};

/// The status of what SIGKILL ended.
const KILLED: i32 = 137;

/// What is put: small files and large ones, one after the other.
fn files() -> Workload {
    let mut load = Workload::new(9);
    let mut rng = Rng::new(9);
    for d in 0..8 {
        load.mkdir(format!("d{d}").as_bytes());
        for f in 0..60 {
            // enough for several txgs, and nothing that compression takes away
            let (size, look) = match f % 30 {
                3 => (10_000_000, Look::Noise),
                _ => (rng.below(40_000), *rng.pick(&testkit::data::LOOKS)),
            };
            load.file(format!("d{d}/f{f:02}").as_bytes(), look, size);
        }
    }
    load
}

fn create(stage: &Stage) {
    let _made = stage.ok("zpool create -o ashift=12 -O compression=lz4 -O xattr=sa tank \
         raidz $D/d00 $D/d01 $D/d02 $D/d03");
}

/// When a disk was written to last.
fn touched(stage: &Stage) -> (i64, i64) {
    let time = |path: &std::path::PathBuf| {
        let meta = fs::metadata(path).unwrap();
        (meta.mtime(), meta.mtime_nsec())
    };
    stage.images.disks().iter().map(time).max().unwrap()
}

/// Runs `command`, and kills it this long after it first wrote to a disk.
fn killed_after_write(stage: &Stage, command: &mut Command, delay: Duration) -> Ran {
    let before = touched(stage);
    let shown = format!("{command:?}");
    let mut child = command.spawn().unwrap();
    while touched(stage) == before && child.try_wait().unwrap().is_none() {
        rt::time::sleep(Duration::from_millis(1));
    }
    rt::time::sleep(delay);
    // one that has ended already cannot be killed, and need not be
    drop(child.kill());
    let status = child.wait().unwrap().code().unwrap_or(KILLED);
    Ran { command: shown, status, out: String::new(), err: String::new() }
}

/// What is in a directory: not itself, which is as old as the last change in it.
fn below(dir: &Path) -> Vec<Entry> {
    let mut list = host::list(dir);
    list.retain(|entry| entry.path != b".");
    list
}

/// All that an interrupted put left is what was put, or the beginning of it.
fn assert_beginning(whole: &Path, part: &Path) -> usize {
    let mut files = 0;
    for entry in host::list(part) {
        let name = std::str::from_utf8(&entry.path).unwrap();
        let (source, found) = (whole.join(name), part.join(name));
        assert!(source.exists(), "{name} was never put");
        if entry.kind == Kind::File {
            let (source, found) = (fs::read(source).unwrap(), fs::read(found).unwrap());
            assert!(source.starts_with(&found), "{name}: not its beginning");
            files += 1;
        }
    }
    files
}

#[test]
fn of_put_loses_nothing_acknowledged() {
    let stage = Stage::new(4, 1 << 30);
    let load = files();
    let planted = stage.plant("files", &load.ops);
    let all = host::list(&planted).iter().filter(|e| e.kind == Kind::File).count();

    // how long it takes when nobody interrupts it
    let other = Stage::new(4, 1 << 30);
    create(&other);
    let began = rt::time::now();
    let mut whole = other.command("put -r");
    let _put = Ran::of(whole.arg(&planted).arg("tank:/whole")).expect_ok();
    let mut took = began.elapsed();
    drop(other);

    create(&stage);
    let _made = stage.ok("mkdir tank:/kept");
    let (mut struck, mut partial) = (0, 0);
    let kept_dir = stage.plant("kept", &[]);
    let mut rng = Rng::new(99);
    let rounds = rounds(10, 60);
    for round in 0..rounds {
        // acknowledged before the next kill
        let name = format!("ack{round}");
        let size = rng.below(300_000);
        let (seed, look) = (round + 1, Look::Root);
        fs::write(kept_dir.join(&name), Data { look, seed, size }.bytes()).unwrap();
        let _kept = stage.ok(&format!("put kept/{name} tank:/kept"));

        let before = touched(&stage);
        let part = took.mul_f64(rng.below(1000) as f64 / 1000.0);
        let mut put = stage.command(&format!("put -r files tank:/round{round}"));
        // one in three at any time; the others some time after the first write to a disk
        let ran = match round % 3 {
            0 => killed_after(&mut put, part),
            _ => killed_after_write(&stage, &mut put, part.mul_f64(0.4)),
        };
        assert!(ran.status == KILLED || ran.ok(), "{ran}");
        let after = touched(&stage);
        match ran.status == KILLED {
            true => struck += usize::from(after > before),
            // It was faster than the first, which had the machine for itself less than this one: kills come earlier.
            false => took = took.mul_f64(0.6),
        }

        zdb_content(stage.images.path(), "tank");
        let judged = stage.ok("verify tank");
        assert!(judged.out.contains("clean"), "round {round}: {judged}");
        let _got = stage.ok(&format!("get -r tank:/kept back{round}"));
        let back = stage.aside(&format!("back{round}"));
        assert_same(&below(&kept_dir), &below(&back), Compare::COPY);
        let there = stage.run(&format!("get -r tank:/round{round} part{round}"));
        let part = stage.aside(&format!("part{round}"));
        let mut files = 0;
        if there.ok() {
            files = assert_beginning(&planted, &part);
            if ran.ok() {
                assert_same(&host::list(&planted), &host::list(&part), Compare::COPY);
            }
            if round % 2 == 0 {
                let _gone = stage.ok(&format!("rm -r tank:/round{round}"));
            }
            fs::remove_dir_all(&part).unwrap();
        } else {
            assert!(!ran.ok() && there.err.contains("No such file"), "{there}");
        }
        partial += usize::from(files > 0 && files < all);
        let line = format!("kill {round}: status {}: {files} of {all} files there", ran.status);
        drop(writeln!(std::io::stderr(), "{line}"));
    }
    // a test of kills that hit nothing would be none
    assert!(struck >= 3, "only {struck} of {rounds} kills came while disks were written to");
    drop(writeln!(std::io::stderr(), "kill: {struck} while writing, {partial} left a part"));

    let _put = stage.ok("put -r files tank:/last");
    let _got = stage.ok("get -r tank:/last last");
    assert_same(&host::list(&planted), &host::list(&stage.aside("last")), Compare::COPY);
    let _away = stage.ok("zpool export tank");
    zdb_content(stage.images.path(), "tank");
    drop(poolaudit(stage.images.path(), "tank").expect_ok());
}
