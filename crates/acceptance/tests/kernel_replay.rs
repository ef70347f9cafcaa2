//! A power cut of the OpenZFS kernel: what its intent log holds, replayed by us in memory, and by the kernel
//! on a copy, must be the same. Without a log device, so that large writes are blocks of their own.

#![allow(clippy::unwrap_used)]

use acceptance::{engine, thumper};
use testkit::truth::Entry;
use testkit::{Compare, Ran, Vm, assert_same, fresh_images, kernel, temp_dir, vm};

/// What runs until the cut. All after the sync is in the intent log alone.
const SCRIPT: &str = r#"
set -e
echo 3600 >/sys/module/zfs/parameters/zfs_txg_timeout
zpool create -o cachefile=none -O compression=lz4 -O xattr=on cut /d/d00
zfs create -V 4M -o volblocksize=8K cut/vol
mkdir /cut/old; for i in 1 2 3 4 5 6; do head -c 300000 /dev/urandom >/cut/old/f$i; done
exec python3 - <<'X'
import glob, os, subprocess, time
def write(p, off, n, byte, flags=os.O_SYNC):
    fd = os.open(p, os.O_RDWR | os.O_CREAT | flags, 0o640)
    os.pwrite(fd, bytes((byte + i // 7) % 256 for i in range(n)), off); os.close(fd)
for _ in range(100):
    if glob.glob("/dev/zd*"): break
    time.sleep(.1)
zd = sorted(glob.glob("/dev/zd*"))[0]
fd = os.open(zd, os.O_RDWR | os.O_SYNC); os.pwrite(fd, b"x" * 8192, 0); os.fsync(fd)
write("/cut/prime", 0, 1000, 1)
subprocess.run(["zpool", "sync", "cut"], check=True)
os.chdir("/cut")
for i, n in enumerate((1, 500, 40000, 131072, 150000, 400000)):
    write(f"n{n}", 0, n, i); write(f"n{n}", n // 3, n, i + 50)
write("old/f1", 5000, 3000, 9); write("old/f2", 131072, 131072, 10); write("old/f3", 1 << 22, 70000, 11)
os.truncate("old/f4", 100000); os.truncate("old/f5", 1 << 20)
fd = os.open("old/f6", os.O_RDWR)
try:
    import ctypes; ctypes.CDLL(None).fallocate(fd, 3, ctypes.c_long(100), ctypes.c_long(200000))
finally: os.close(fd)
os.mkdir("a", 0o751); os.mkdir("a/b"); os.symlink("x" * 200, "a/long"); os.link("old/f1", "a/hard")
os.rename("old/f2", "a/b/moved"); write("tmp", 0, 10, 3); os.rename("tmp", "old/f3")
os.mkdir("gone"); os.rmdir("gone"); write("late", 0, 50, 4); os.unlink("late"); write("late", 0, 60000, 5)
os.mknod("a/dev", 0o600 | 0o060000, os.makedev(8, 17)); os.chmod("a/hard", 0o2711); os.chown("a/b", 5, 6)
os.setxattr("n500", "user.dir", b"in a directory of its own")
write("n1", 0, 3, 77)
os.pwrite(zd_fd := os.open(zd, os.O_RDWR | os.O_SYNC), b"volume" * 3000, 65536); os.fsync(zd_fd)
fd = os.open("n1", os.O_RDWR); os.fsync(fd)
print("READY", flush=True)
time.sleep(60)
X
"#;

/// What a replay gives back: all but times, which are those of the replay.
const REPLAYED: Compare = Compare { objects: true, mtime: false, ..Compare::MODEL };

#[test]
fn a_cut_log_is_replayed_as_the_kernel_replays_it() {
    if !vm::wanted("that intent logs are replayed as the kernel replays them") {
        return;
    }
    let images = fresh_images(1, 256 << 20);
    drop(Vm::new(images.path()).options(["--kill-after", "0.5"]).run(SCRIPT).expect_ok());
    let ours = replay(images.path());
    // The kernel replays where it mounts.
    let replayed = testkit::Images::copy_of(images.path());
    let script =
        "set -e\nzpool import -d /d -o cachefile=none cut; sleep 1; sync; zpool export cut";
    drop(Vm::new(replayed.path()).run(script).expect_ok());
    let truth = kernel::truth_of(replayed.path(), "cut", &[]);
    let theirs = truth.entries("cut").unwrap();
    assert_same(&theirs, &ours.0, REPLAYED);
    let volume = truth.volumes();
    assert_eq!(volume.len(), 1);
    assert_eq!((volume[0].0, volume[0].2), ("cut/vol", ours.1.as_str()));
    assert!(theirs.iter().any(|entry| entry.path == b"a/b/moved"), "the log held something");
}

/// The file system `cut` and the sha256 of the volume, with their logs replayed.
fn replay(dir: &std::path::Path) -> (Vec<Entry>, String) {
    let scan = vdev::import::scan(&[dir.to_path_buf()]).unwrap();
    let found = scan.choose("cut").unwrap();
    let options =
        pool::OpenOptions { workers: 2, host_id: 1, host_name: "t".into(), new_name: None };
    let tree = rt::sync::Arc::new(found.open_tree().unwrap());
    let plain =
        pool::Pool::open(pool::Devices::ReadOnly(tree), &found.uberblocks, &options).unwrap();
    let log = fs::Replay::read(&plain, "cut").unwrap().unwrap();
    assert!(log.len() > 40, "{} records", log.len());
    let tree = found.open_memory_tree(&found.root, 64 << 20).unwrap();
    let pool =
        pool::Pool::open(pool::Devices::InMemory(tree), &found.uberblocks, &options).unwrap();
    let files = fs::Filesystem::open(&pool, "cut").unwrap();
    log.apply(&files).unwrap();
    let mut entries = engine::list(&files).unwrap();
    for entry in &mut entries {
        let attrs = files.attrs(entry.object).unwrap();
        entry.rdev = attrs.rdev.map(format::znode::device_parts);
    }
    let aside = temp_dir();
    let mut command = thumper(&aside.path().join("pools"));
    let out = aside.path().join("vol");
    command.arg("-d").arg(dir).args(["get", "--replay", "cut/vol:"]).arg(&out);
    drop(Ran::of(&mut command).expect_ok());
    (entries, testkit::truth::hex_digest(&std::fs::read(out).unwrap()))
}
