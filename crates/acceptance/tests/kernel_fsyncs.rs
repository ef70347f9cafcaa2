//! Intent logs that we wrote, to the OpenZFS kernel: after a crash it replays them, and has what was fsynced under
//! its names; so does zdb before, and so do we. With a log device, too.

#![allow(clippy::unwrap_used)]

use std::path::Path;

use acceptance::{SHAPES, Session, engine, thumper};
use format::config::PoolState;
use format::zil::ZilHeader;
use fs::{Filesystem, NewObject, Who, mode};
use testkit::data::{Data, Look};
use testkit::truth::Entry;
use testkit::workload::Op;
use testkit::{Compare, Images, Ran, Vm, assert_same, fresh_images, kernel, temp_dir, tool, vm};

const POOL: &str = "tank";

/// What a replay gives back: all but times, which are those of the replay.
const REPLAYED: Compare = Compare { objects: true, mtime: false, ..Compare::MODEL };

fn write(path: &str, offset: u64, size: u64) -> Op {
    let data = Data { look: Look::Noise, seed: offset + size, size };
    Op::Write { path: path.into(), offset, data }
}

/// Every record that we write, small and large.
fn ops() -> Vec<Op> {
    let path = |path: &str| path.as_bytes().to_vec();
    let create = |name: &str| Op::Create { path: path(name), mode: 0o640 };
    let mut ops = Vec::new();
    for (i, size) in [1, 500, 40_000, 131_072, 150_000, 400_000].into_iter().enumerate() {
        let name = format!("n{i}");
        ops.push(create(&name));
        ops.push(write(&name, 0, size));
        ops.push(write(&name, size / 3, size));
    }
    ops.extend([
        write("old/f1", 5000, 3000),
        write("old/f2", 131_072, 131_072),
        write("old/f3", 1 << 22, 70_000),
        Op::Truncate { path: path("old/f4"), size: 100_000 },
        Op::Truncate { path: path("old/f5"), size: 1 << 20 },
        Op::Mkdir { path: path("a"), mode: 0o751 },
        Op::Mkdir { path: path("a/b"), mode: 0o755 },
        Op::Symlink { path: path("a/long"), target: vec![b'x'; 200] },
        Op::Fifo { path: path("a/pipe"), mode: 0o600 },
        Op::Link { existing: path("old/f1"), path: path("a/hard") },
        Op::Rename { from: path("old/f2"), to: path("a/b/moved") },
        create("tmp"),
        write("tmp", 0, 10),
        Op::Rename { from: path("tmp"), to: path("old/f3") },
        Op::Mkdir { path: path("gone"), mode: 0o755 },
        Op::Rmdir { path: path("gone") },
        create("late"),
        write("late", 0, 50),
        Op::Remove { path: path("late") },
        create("late"),
        write("late", 0, 60_000),
        Op::SetMode { path: path("a/hard"), mode: 0o2711 },
        Op::SetOwner { path: path("a/b"), uid: 5, gid: 6 },
        Op::SetTime { path: path("n2"), mtime: (1_234_567_890, 0) },
        write("n0", 0, 3),
    ]);
    ops
}

/// Does all of it on a file system whose log is in use, and asks for each change. The files as they are then; the
/// pool is left as a crash leaves it.
fn crashed(session: Session) -> Vec<Entry> {
    let fs = session.filesystem();
    let new = NewObject::of(mode::FILE | 0o600, Who { uid: 0, gid: 0 });
    let (old, _) = fs.resolve_parent(b"old/x").unwrap_or_else(|_| {
        let dir = NewObject::of(mode::DIR | 0o755, Who { uid: 0, gid: 0 });
        (fs.create(fs.root(), b"old", &dir).unwrap(), b"")
    });
    for i in 1..=6 {
        fs.create_with(old, format!("f{i}").as_bytes(), &new, &vec![i; 300_000]).unwrap();
    }
    fs.fsync(old).unwrap();
    let first = fs.create_with(fs.root(), b"first", &new, b"the log begins").unwrap();
    fs.fsync(first).unwrap();
    let txg = session.pool().open_txg().unwrap();
    let object = fs.resolve(b"old/f6").unwrap();
    fs.punch_hole(object, 100, 200_000).unwrap();
    fs.fsync(object).unwrap();
    for op in ops() {
        engine::change(fs, &op).unwrap_or_else(|e| panic!("{op}: {e}"));
        let asked = match &op {
            Op::Write { path, .. } | Op::Truncate { path, .. } => fs.resolve(path).unwrap(),
            Op::SetMode { path, .. } | Op::SetOwner { path, .. } | Op::SetTime { path, .. } => {
                fs.resolve(path).unwrap()
            }
            _ => fs.root(),
        };
        fs.fsync(asked).unwrap();
    }
    assert_eq!(session.pool().open_txg().unwrap(), txg, "all of it is in the log alone");
    listed(fs)
}

fn listed(fs: &Filesystem) -> Vec<Entry> {
    let mut entries = engine::list(fs).unwrap();
    for entry in &mut entries {
        let attrs = fs.attrs(entry.object).unwrap();
        entry.rdev = attrs.rdev.map(format::znode::device_parts);
    }
    entries
}

/// zdb shows the log and finds the space right, our judge too; the kernel and we replay it.
fn judged(images: &Images, due: &[Entry]) {
    let path = images.path().to_str().unwrap();
    let ran = tool::zdb(["-e", "-p", path, "-ivvvvvv", POOL]).expect_ok();
    for kind in [
        "TX_CREATE",
        "TX_MKDIR ",
        "TX_SYMLINK",
        "TX_REMOVE",
        "TX_RMDIR",
        "TX_LINK",
        "TX_RENAME",
        "TX_WRITE",
        "TX_TRUNCATE",
        "TX_SETATTR",
    ] {
        assert!(ran.out.contains(kind), "no {kind} in {ran}");
    }
    tool::zdb_content(images.path(), POOL);
    acceptance::assert_verified_kernels(images.path(), POOL);

    let copy = Images::copy_of(images.path());
    let mut session = Session::open(copy.path(), POOL, POOL).unwrap();
    assert_same(due, &listed(session.filesystem()), REPLAYED);
    session.close().unwrap();
    tool::zdb_content(copy.path(), POOL);
    acceptance::assert_verified_kernels(copy.path(), POOL);
    no_log(copy.path());

    let script = "set -e\nzpool import -f -d /d -o cachefile=none tank; sleep 1; sync\n\
                  zpool scrub -w tank; zpool status -v tank; dmesg | grep -i 'zfs replay' || true\n\
                  zpool export tank";
    let ran = Vm::new(images.path()).run(script).expect_ok();
    assert!(ran.out.contains("repaired 0B") && ran.out.contains("with 0 errors"), "{ran}");
    assert!(!ran.out.to_lowercase().contains("replay transaction error"), "{ran}");
    let truth = kernel::truth_of(images.path(), POOL, &[]);
    assert_same(due, &truth.entries(POOL).unwrap(), REPLAYED);
}

fn no_log(dir: &Path) {
    let session = Session::open(dir, POOL, POOL).unwrap();
    let header = session.filesystem().dataset().objset.phys().zil_header;
    assert_eq!(ZilHeader::parse(&header), ZilHeader::default(), "a closed pool has a log");
}

#[test]
fn the_kernel_replays_what_was_fsynced() {
    if !vm::wanted("that intent logs of ours are replayed by the kernel") {
        return;
    }
    for (shape, dnodesize) in [(&SHAPES[0], "4k"), (&SHAPES[3], "legacy")] {
        let props = [("compression", "lz4"), ("recordsize", "131072"), ("dnodesize", dnodesize)];
        let (images, session) = Session::create_of(shape, &props, true);
        let due = crashed(session);
        judged(&images, &due);
    }
}

#[test]
fn the_kernel_replays_a_log_on_a_log_device() {
    if !vm::wanted("that intent logs of ours on a log device are replayed by the kernel") {
        return;
    }
    for ours in [false, true] {
        let images = fresh_images(4, 256 << 20);
        if ours {
            create_with_log(&images);
        } else {
            let make = "set -e\nzpool create -o cachefile=none -o ashift=12 -O compression=lz4 tank \
                        mirror /d/d00 /d/d01 log mirror /d/d02 /d/d03\nzpool export tank";
            drop(Vm::new(images.path()).run(make).expect_ok());
        }
        let session = Session::open(images.path(), POOL, POOL).unwrap();
        // One that its labels call exported has no logs.
        session.pool().set_state(PoolState::Active).unwrap();
        let due = crashed(session);
        let path = images.path().to_str().unwrap();
        let ran = tool::zdb(["-e", "-p", path, "-ivvvvvv", POOL]).expect_ok();
        // All blocks of the log are on the second top-level vdev.
        let blocks = |top: &str| ran.out.matches(&format!("DVA[0]=<{top}:")).count();
        assert!(blocks("1") > 0, "{ran}");
        judged(&images, &due);
        let script = "set -e\nzpool import -N -d /d -o cachefile=none tank\nzpool status tank\n\
                      zpool export tank";
        let ran = Vm::new(images.path()).run(script).expect_ok();
        let words: Vec<&str> = ran.out.split_whitespace().collect();
        let log = "logs mirror-1 ONLINE 0 0 0 /d/d02 ONLINE 0 0 0 /d/d03 ONLINE 0 0 0";
        assert!(words.join(" ").contains(log), "{ran}");
    }
}

/// Makes one by the command, exports it, and compares what it says of itself with the kernel's form.
fn create_with_log(images: &Images) {
    let aside = temp_dir();
    let run =
        |words: &[&str]| Ran::of(thumper(&aside.path().join("pools")).args(words)).expect_ok().out;
    let disks = images.disks();
    let disks: Vec<&str> = disks.iter().map(|disk| disk.to_str().unwrap()).collect();
    let layout = ["mirror", disks[0], disks[1], "log", "mirror", disks[2], disks[3]];
    let before = run(&[&["zpool", "create", "-n", "-o", "ashift=12", POOL][..], &layout].concat());
    assert!(before.contains("\tlogs\n\t  mirror\n"), "{before}");
    run(&[&["zpool", "create", "-o", "ashift=12", "-O", "compression=lz4", POOL][..], &layout]
        .concat());
    let status = run(&["zpool", "status", POOL]);
    assert!(status.contains("\tlogs\t\n\t  mirror-1"), "{status}");
    // The log's room is not the pool's.
    let size: u64 = run(&["zpool", "list", "-Hp", "-o", "size", POOL]).trim().parse().unwrap();
    assert!(size < 256 << 20, "{size}");
    run(&["zpool", "export", POOL]);
}
