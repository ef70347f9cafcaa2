//! Vdevs that a pool gets, and log vdevs that go again: while it is used, by us and by the kernel after us, and the
//! other way round.
//!
//! Seen red: with logs of space maps left that tell of who had a hole's number before; with what is remembered of a
//! pool's devices taken from when a server opened it.

#![allow(clippy::unwrap_used)]

use std::path::Path;
use std::time::Duration;

use acceptance::{Server, Session, Stage, assert_verified, assert_verified_kernels};
use format::config::PoolState;
use fs::{Filesystem, NewObject, Who, mode};
use pool::{Additions, Joined, NewLeaf, NewTop, Pool};
use rt::sync::Arc;
use rt::sync::atomic::{AtomicBool, Ordering};
use testkit::data::Look;
use testkit::workload::Workload;
use testkit::{Vm, fresh_images, poolaudit, poolaudit_kernels, tool, vm};

const MIB: u64 = 1 << 20;

/// Puts a directory of noise into the pool: files of 4 MiB.
fn fill(stage: &Stage, pool: &str, name: &str, files: u64) {
    let mut load = Workload::new(files);
    for file in 0..files {
        load.file(format!("{name}{file}").as_bytes(), Look::Noise, 4 * MIB);
    }
    let dir = stage.plant(&format!("{pool}-{name}"), &load.ops);
    drop(stage.ok(&format!("put -r {} {pool}:/", dir.display())));
}

#[track_caller]
fn judge(dir: &Path, pool: &str) {
    tool::zdb_content(dir, pool);
    tool::zdb_objects(dir, pool);
    drop(poolaudit(dir, pool).expect_ok());
    assert_verified(dir, pool);
}

/// The pool is let go, judged by all who judge from outside, and taken back.
#[track_caller]
fn assert_sound(stage: &Stage, pool: &str) {
    drop(stage.ok(&format!("zpool export {pool}")));
    judge(stage.images.path(), pool);
    drop(stage.ok(&format!("zpool import -d $D {pool}")));
}

/// The tree of `zpool status`: names alone.
fn names(said: &str) -> String {
    let rows = said.lines().skip_while(|line| !line.contains("NAME ")).skip(1);
    let rows = rows.map_while(|line| line.split_whitespace().next());
    rows.map(|name| name.rsplit('/').next().unwrap()).collect::<Vec<_>>().join(" ")
}

fn number(stage: &Stage, words: &str) -> u64 {
    stage.ok(words).out.trim().parse().unwrap()
}

/// A pool has as much room as one that was made so, and uses it.
#[test]
fn what_a_pool_gets_it_uses() {
    for (first, more) in [
        ("$D/d00", "$D/d01 $D/d02"),
        ("mirror $D/d00 $D/d01", "mirror $D/d02 $D/d03"),
        ("raidz1 $D/d00 $D/d01 $D/d02", "raidz1 $D/d03 $D/d04 $D/d05"),
    ] {
        let stage = Stage::new(9, 96 * MIB);
        let made = Stage::new(9, 96 * MIB);
        let log = "log mirror $D/d06 $D/d07";
        drop(made.ok(&format!("zpool create -o ashift=12 tank {first} {more} {log}")));
        drop(stage.ok(&format!("zpool create -o ashift=12 tank {first}")));
        fill(&stage, "tank", "before", 3);
        drop(stage.ok(&format!("zpool add tank {more} {log} spare $D/d08")));
        for words in ["zpool get -Hpo value size tank", "zpool get -Hpo value ashift tank"] {
            assert_eq!(number(&stage, words), number(&made, words), "{first}");
        }
        let (ours, theirs) = (stage.ok("zpool status tank").out, made.ok("zpool status tank").out);
        assert_eq!(names(&ours), format!("{} spares d08", names(&theirs)), "{first}");
        assert_sound(&stage, "tank");
        let most = number(&stage, "zfs get -Hpo value available tank") / (4 * MIB) - 1;
        fill(&stage, "tank", "after", most);
        assert_sound(&stage, "tank");
        let used = stage.ok("zpool list -Hpv tank").out;
        // Those that came have their part.
        let tops = used.lines().filter(|line| line.starts_with('\t'));
        let shares = tops.filter_map(|line| line.split('\t').nth(8)?.parse::<u64>().ok());
        let shares: Vec<u64> = shares.filter(|share| *share > 25).collect();
        assert_eq!(shares.len(), if first == "$D/d00" { 3 } else { 2 }, "{first}: {used}");
        drop(stage.ok("zpool scrub tank"));
        let status = stage.ok("zpool status tank").out;
        assert!(status.contains("repaired 0B") && status.contains("No known data"), "{status}");
        // The log goes, and its disks come as data.
        drop(stage.ok("zpool remove tank d08"));
        let log = if first == "$D/d00" { "mirror-3" } else { "mirror-2" };
        drop(stage.ok(&format!("zpool remove tank {log}")));
        assert_sound(&stage, "tank");
        drop(stage.ok("zpool add -f tank mirror $D/d06 $D/d07"));
        assert!(names(&stage.ok("zpool status tank").out).ends_with(&format!("{log} d06 d07")));
        assert_sound(&stage, "tank");
        let history = stage.ok("zpool history -i tank").out;
        assert!(history.contains("vdev remove tank vdev (log)"), "{history}");
        assert!(history.contains("zpool add -f tank mirror"), "{history}");
    }
}

fn leaf(path: &Path) -> NewLeaf {
    let device = Arc::new(device::WriteFile::open(path).unwrap());
    NewLeaf { path: path.as_os_str().as_encoded_bytes().to_vec(), is_disk: false, device }
}

/// Writes small files and has each made stable, until it shall end, or there are so many: how many there are.
fn write_on(fs: &Filesystem, name: &str, end: &AtomicBool, most: u64) -> u64 {
    let new = NewObject::of(mode::FILE | 0o600, Who { uid: 0, gid: 0 });
    let mut count = 0;
    while count < most && !end.load(Ordering::Relaxed) {
        let bytes = vec![count as u8; 9000];
        let file =
            fs.create_with(fs.root(), format!("{name}{count}").as_bytes(), &new, &bytes).unwrap();
        fs.fsync(file).unwrap();
        count += 1;
    }
    count
}

fn allocated(pool: &Pool, top: u32) -> u64 {
    let tops = pool.space_by_top().unwrap();
    tops.into_iter().find(|(own, ..)| *own == top).map_or(0, |(_, _, used)| used)
}

/// Vdevs come and go while others wait for what they write; what was stable when the process died is there.
#[test]
fn under_load_nothing_that_was_stable_is_lost() {
    let images = fresh_images(5, 512 * MIB);
    let disks = images.disks();
    let stage = Stage::with(images);
    drop(stage.ok("zpool create -o ashift=12 tank $D/d00"));
    drop(stage.ok("zpool export tank"));
    let session = Session::open(stage.images.path(), "tank", "tank").unwrap();
    let (pool, fs) = (session.pool(), session.filesystem());
    // Whoever gets an exported pool has no logs to replay.
    pool.set_state(PoolState::Active).unwrap();
    let add = |disk: usize, is_log: bool| {
        let leaves = vec![leaf(&disks[disk])];
        let top = NewTop { joined: Joined::Single, leaves, is_log };
        pool.add(Additions { tops: vec![(top, 12)], ..Additions::default() }).unwrap();
    };
    let mut written = Vec::new();
    for round in 0..3 {
        add(1, true);
        let name = format!("quiet{round}-");
        written.push((name.clone(), write_on(fs, &name, &AtomicBool::new(false), 40)));
        pool.sync().unwrap();
        assert!(allocated(pool, 1) > 0, "round {round}: the log device is not used");
        let guid = pool.config().vdev_tree.children[1].guid;
        let end = &AtomicBool::new(false);
        std::thread::scope(|scope| {
            let threads = ["a", "b", "c"].map(|thread| {
                let name = format!("{thread}{round}-");
                (name.clone(), scope.spawn(move || write_on(fs, &name, end, 5000)))
            });
            add(2 + round, false);
            rt::time::sleep(Duration::from_millis(300));
            pool.remove_log(guid).unwrap();
            assert_eq!(pool.config().holes, [1], "round {round}");
            rt::time::sleep(Duration::from_millis(100));
            end.store(true, Ordering::Relaxed);
            let done = threads.map(|(name, thread)| (name, thread.join().unwrap()));
            assert!(done.iter().all(|(_, count)| *count > 5), "{done:?}");
            written.extend(done);
        });
    }
    add(1, true);
    written.push(("last".into(), write_on(fs, "last", &AtomicBool::new(false), 20)));
    // As if it had been killed: zdb replays the logs of space maps, which tell of who has the number of a hole now.
    drop(session);
    tool::zdb_content(stage.images.path(), "tank");
    let session = Session::open(stage.images.path(), "tank", "tank").unwrap();
    for (name, count) in &written {
        for file in 0..*count {
            let path = format!("{name}{file}");
            let object = session.filesystem().resolve(path.as_bytes()).unwrap();
            assert_eq!(session.filesystem().attrs(object).unwrap().size, 9000, "{path}");
        }
    }
    drop(session);
    drop(stage.ok("zpool import -f -d $D tank"));
    assert_sound(&stage, "tank");
}

/// What a server holds open.
#[test]
fn a_server_uses_what_comes_and_lets_go_what_goes() {
    let stage = Stage::new(6, 96 * MIB);
    drop(stage.ok("zpool create -o ashift=12 tank mirror $D/d00 $D/d01 log $D/d02"));
    let server = Server::start(&stage.aside("pools"));
    let before = number(&stage, "zpool get -Hpo value size tank");
    drop(stage.ok("zpool add tank mirror $D/d03 $D/d04"));
    assert_eq!(number(&stage, "zpool get -Hpo value size tank"), 2 * before);
    fill(&stage, "tank", "files", 16);
    drop(stage.ok("zpool remove tank $D/d02"));
    let status = stage.ok("zpool status tank").out;
    assert_eq!(names(&status), "tank mirror-0 d00 d01 mirror-2 d03 d04", "{status}");
    drop(stage.ok("zpool add tank log $D/d02"));
    let status = stage.ok("zpool status tank").out;
    assert_eq!(names(&status), "tank mirror-0 d00 d01 mirror-2 d03 d04 logs d02", "{status}");
    drop(stage.ok("zpool remove tank d02"));
    let events = stage.ok("zpool events tank").out;
    for class in ["vdev_add", "vdev_remove_dev"] {
        assert!(events.contains(&format!("sysevent.fs.zfs.{class}")), "{class}: {events}");
    }
    let log = server.stop();
    assert!(!log.contains("panicked"), "{log}");
    assert_sound(&stage, "tank");
}

/// Lines that both are asked, on the pool `theirs`: what each says, with its status.
const ASKED: &[&str] = &[
    "zpool add theirs /d/n1",
    "zpool add theirs mirror /d/n1 /d/n2 /d/n3",
    "zpool add -n theirs raidz1 /d/n1 /d/n2 /d/n3",
    "zpool add theirs raidz2 /d/n1 /d/n2 /d/n3",
    "zpool add theirs mirror /d/n1 /d/n2 raidz2 /d/n3 /d/n4 /d/n5",
    "zpool add theirs mirror /d/n1 /d/big",
    "zpool add rz raidz2 /d/n1 /d/n2 /d/n3",
    "zpool add rz raidz1 /d/n1 /d/n2 /d/n3 /d/n4",
    "zpool add rz mirror /d/n1 /d/n2 /d/n3",
    "zpool add rz /d/n1",
    "zpool add theirs mirror /d/n1 /d/t0",
    "zpool add -f theirs mirror /d/n1 /d/t0",
    "zpool add -f theirs mirror /d/n1 /d/small",
    "zpool add -f theirs mirror /d/n1 /d/n1",
    "zpool add theirs log raidz1 /d/n1 /d/n2",
    "zpool add theirs nothing",
    "zpool add -o ashift=8 theirs mirror /d/n1 /d/n2",
    "zpool add theirs",
    "zpool add -n theirs mirror /d/n1 /d/n2",
    "zpool add -n theirs log mirror /d/n1 /d/n2 spare /d/n3",
    "zpool add -fn theirs raidz2 /d/n1 /d/n2 /d/n3 /d/n4 /d/n5 log /d/big",
    "zpool add -n rz raidz1 /d/n1 /d/n2 /d/n3 cache /d/n4",
    "zpool remove theirs /d/nowhere",
    "zpool remove theirs mirror-7",
    "zpool remove rz /d/r0",
];

#[test]
fn the_kernel_and_we_go_on_with_what_the_other_has_added_and_removed() {
    if !vm::wanted("that the kernel takes pools that have got and lost vdevs, and we take its") {
        return;
    }
    let stage = Stage::new(17, 96 << 20);
    drop(stage.ok("zpool create -o ashift=12 more raidz1 $D/d00 $D/d01 $D/d02"));
    fill(&stage, "more", "a", 4);
    drop(stage.ok("zpool add more raidz1 $D/d03 $D/d04 $D/d05 log mirror $D/d06 $D/d07"));
    fill(&stage, "more", "b", 20);
    drop(stage.ok("zpool export more"));
    drop(stage.ok("zpool create -o ashift=12 less mirror $D/d08 $D/d09 log $D/d10"));
    fill(&stage, "less", "a", 4);
    drop(stage.ok("zpool add less mirror $D/d11 $D/d12"));
    drop(stage.ok("zpool remove less d10"));
    drop(stage.ok("zpool add less cache $D/d16"));
    fill(&stage, "less", "b", 4);
    drop(stage.ok("zpool export less"));
    let asked: String = ASKED
        .iter()
        .map(|line| format!("echo 'ASKED {line}'; {line} 2>&1; echo \"status $?\"\n"))
        .collect();
    let script = "set -uo pipefail; cd /d\n\
        truncate -s 96M t0 t1 t2 t3 t4 t5 r0 r1 r2 n1 n2 n3 n4 n5; truncate -s 200M big; truncate -s 32M small\n\
        zpool create -o cachefile=none -o ashift=12 theirs mirror /d/t0 /d/t1 log /d/t4 || exit 1\n\
        zpool create -o cachefile=none -o ashift=12 rz raidz1 /d/r0 /d/r1 /d/r2 || exit 1\n\
        dd if=/dev/urandom of=/theirs/k bs=64k count=64 oflag=sync status=none || exit 1\n\
        zpool add theirs mirror /d/t2 /d/t3 cache /d/t5 && zpool remove theirs /d/t4 || exit 1\n\
        dd if=/dev/urandom of=/theirs/l bs=64k count=64 oflag=sync status=none\n"
        .to_owned()
        + &asked
        + "echo ASKED; set -e\n\
        zpool history -i theirs | grep vdev; zpool export theirs; zpool export rz\n\
        for pool in more less; do zpool import -d /d -o cachefile=none $pool\n\
        dd if=/dev/urandom of=/$pool/k bs=64k count=64 oflag=sync status=none\n\
        zpool scrub -w $pool; echo POOL; zpool status -v $pool; done\n\
        zpool remove more mirror-2; zpool add less log /d/d10\n\
        dd if=/dev/urandom of=/less/l bs=64k count=64 oflag=sync status=none\n\
        for pool in more less; do echo POOL; zpool status -v $pool; zpool export $pool; done\n";
    let ran = Vm::new(stage.images.path()).run(&script).expect_ok();
    let said: Vec<&str> = ran.out.split("POOL\n").skip(1).collect();
    let shown: Vec<String> = said.iter().map(|said| names(said)).collect();
    let more = "more raidz1-0 d00 d01 d02 raidz1-1 d03 d04 d05";
    let less = "less mirror-0 d08 d09 mirror-2 d11 d12";
    assert_eq!(shown[0], format!("{more} logs mirror-2 d06 d07"), "{ran}");
    assert_eq!(shown[1], format!("{less} cache d16"), "{ran}");
    assert_eq!(shown[2..], [more.to_owned(), format!("{less} logs d10 cache d16")], "{ran}");
    for pool in &said[..2] {
        assert!(pool.contains("repaired 0B") && pool.contains("with 0 errors"), "{pool}");
    }
    for pool in ["more", "less", "theirs"] {
        tool::zdb_content(stage.images.path(), pool);
        drop(poolaudit_kernels(stage.images.path(), pool).expect_ok());
        assert_verified_kernels(stage.images.path(), pool);
    }
    // What it has removed and added we go on with: all of them are open for writing.
    for pool in ["more", "less", "theirs", "rz"] {
        drop(stage.ok(&format!("zpool import -d $D {pool}")));
    }
    assert_said_alike(&stage, &ran.out);
    fill(&stage, "theirs", "a", 8);
    drop(stage.ok("zpool add theirs log $D/t4"));
    let status = || names(&stage.ok("zpool status theirs").out);
    assert_eq!(status(), "theirs mirror-0 t0 t1 mirror-2 t2 t3 logs t4 cache t5");
    drop(stage.ok("zpool remove theirs t5"));
    drop(stage.ok("zpool remove less $D/d16"));
    assert_eq!(status(), "theirs mirror-0 t0 t1 mirror-2 t2 t3 logs t4");
    drop(stage.ok("zpool remove less d10"));
    drop(stage.ok("zpool add more raidz1 $D/d13 $D/d14 $D/d15"));
    for pool in ["more", "less"] {
        fill(&stage, pool, "c", 8);
        drop(stage.ok(&format!("zpool scrub {pool}")));
    }
    for pool in ["more", "less", "theirs"] {
        drop(stage.ok(&format!("zpool export {pool}")));
        tool::zdb_content(stage.images.path(), pool);
        drop(poolaudit_kernels(stage.images.path(), pool).expect_ok());
        assert_verified_kernels(stage.images.path(), pool);
    }
    let script = "set -euo pipefail\n\
        for pool in more less theirs; do zpool import -d /d -o cachefile=none $pool\n\
        dd if=/dev/urandom of=/$pool/m bs=64k count=64 oflag=sync status=none\n\
        zpool scrub -w $pool; echo POOL; zpool status -v $pool; zpool export $pool; done\n";
    let ran = Vm::new(stage.images.path()).run(script).expect_ok();
    let said: Vec<&str> = ran.out.split("POOL\n").skip(1).collect();
    let shown: Vec<String> = said.iter().map(|said| names(said)).collect();
    let theirs = "theirs mirror-0 t0 t1 mirror-2 t2 t3 logs t4";
    assert_eq!(shown, [format!("{more} raidz1-2 d13 d14 d15"), less.into(), theirs.into()]);
    for pool in &said {
        assert!(pool.contains("repaired 0B") && pool.contains("with 0 errors"), "{pool}");
    }
}

/// What the kernel's program said to each line we say, too, and end with the same status.
fn assert_said_alike(stage: &Stage, said: &str) {
    let dir = stage.images.path().display().to_string();
    let mut wrong = Vec::new();
    for part in said.split("ASKED ").skip(1).take(ASKED.len()) {
        let (line, theirs) = part.split_once('\n').unwrap();
        let theirs = theirs.split("ASKED\n").next().unwrap();
        let ran = stage.run(&line.replace("/d/", "$D/"));
        let ours = format!("{}{}status {}\n", ran.out, ran.err, ran.status).replace(&dir, "/d");
        if ours != theirs {
            wrong.push(format!("{line}\nthey:\n{theirs}we:\n{ours}"));
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

/// A pool can do without a log device that is missing; what that may hold goes when somebody says so.
#[test]
fn a_pool_goes_on_without_its_log_device() {
    let stage = Stage::new(3, 96 * MIB);
    drop(stage.ok("zpool create -o ashift=12 -O sync=always tank mirror $D/d00 $D/d01 log $D/d02"));
    let server = Server::start(&stage.aside("pools"));
    fill(&stage, "tank", "files", 1);
    server.kill();
    let left = Stage::with(stage.images.without(&[2]));
    // Where the pool says it is found, wherever the others are.
    let (log, away) = (stage.images.disks().remove(2), stage.aside("log"));
    std::fs::rename(&log, &away).unwrap();
    let ran = left.run("zpool import -f -d $D tank").expect_ok();
    assert!(ran.err.contains("is imported read-only") && ran.err.contains("import -m"), "{ran}");
    drop(left.ok("zpool export tank"));
    drop(left.ok("zpool import -f -m -d $D tank"));
    fill(&left, "tank", "more", 1);
    let status = left.ok("zpool status tank").out;
    assert!(status.contains("state: DEGRADED") && status.contains("UNAVAIL"), "{status}");
    drop(left.ok(&format!("zpool remove tank {}", log.display())));
    assert_eq!(names(&left.ok("zpool status tank").out), "tank mirror-0 d00 d01");
    assert_sound(&left, "tank");
    // With it nothing was given up.
    std::fs::rename(&away, &log).unwrap();
    drop(stage.ok("zpool set comment=whole tank"));
    assert_sound(&stage, "tank");
    // One that is remembered and cannot be written without it is let go all the same, to be imported as that says.
    let server = Server::start(&stage.aside("pools"));
    fill(&stage, "tank", "again", 1);
    server.kill();
    std::fs::rename(&log, &away).unwrap();
    drop(stage.ok("zpool export tank"));
    drop(stage.ok("zpool import -m -d $D tank"));
    fill(&stage, "tank", "on", 1);
}
