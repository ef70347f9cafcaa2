//! A power cut of the OpenZFS kernel: what its intent log holds, replayed by us in memory, by us for good, and by
//! the kernel on a copy, must be the same. Without a log device large writes are blocks of their own.
//!
//! Seen red: with blocks of the log that no space map gets, and without the record's number in the header (a change
//! of names is done twice after a cut; after one in a replay the kernel makes a file longer, if we wrote it and did
//! not say so); with of the block of a record only the part that it speaks of (later writes, which lean on it, are
//! lost); with a block of zeros passed over.

#![allow(clippy::unwrap_used)]

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};

use acceptance::{engine, thumper};
use device::sim::{Cut, Image, SimDisk, SimSet};
use device::{Device, WriteDevice};
use fs::Filesystem;
use pool::{Devices, Pool};
use rt::sync::Arc;
use testkit::random::Rng;
use testkit::truth::Entry;
use testkit::{
    Compare, Images, Ran, Vm, assert_same, fresh_images, kernel, rounds, temp_dir, tool, vm,
};
use vdev::WriteTree;
use vdev::import::scan_devices;

/// What runs until the cut. All after the sync is in the intent log alone.
const SCRIPT: &str = r#"
set -e
echo 3600 >/sys/module/zfs/parameters/zfs_txg_timeout
zpool create -o cachefile=none -O compression=lz4 -O xattr=on cut /d/d00 LOG
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
def together(p, *parts):
    fd = os.open(p, os.O_RDWR | os.O_CREAT, 0o640)
    for off, n, byte in parts: os.pwrite(fd, bytes((byte + i // 5) % 256 for i in range(n)), off)
    os.fsync(fd); os.close(fd)
together("two", (0, 40000, 9), (40000, 50000, 33), (50000, 100, 7))
together("old/f1", (131072, 40000, 9), (200000, 50000, 33), (180000, 35000, 99))
os.pwrite(zd_fd := os.open(zd, os.O_RDWR | os.O_SYNC), b"volume" * 3000, 65536); os.fsync(zd_fd)
os.pwrite(zd_fd, b"one" * 1000, 262144); os.pwrite(zd_fd, b"other" * 1000, 265144); os.fsync(zd_fd)
os.pwrite(zd_fd, bytes(8192), 0); os.fsync(zd_fd)
# Zeros are no block in the log; what comes after them waits for a txg.
fd = os.open("old/f5", os.O_RDWR | os.O_SYNC); os.pwrite(fd, bytes(131072), 131072)
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
    for log in ["log /d/d01", ""] {
        replayed_alike(log);
    }
}

/// With or without a device for the log.
fn replayed_alike(log: &str) {
    let images = fresh_images(1 + usize::from(!log.is_empty()), 256 << 20);
    let script = SCRIPT.replace("LOG", log);
    drop(Vm::new(images.path()).options(["--kill-after", "0.5"]).run(&script).expect_ok());
    let ours = replay(images.path());
    // The kernel replays where it mounts.
    let replayed = Images::copy_of(images.path());
    let script =
        "set -e\nzpool import -f -d /d -o cachefile=none cut; sleep 1; sync; zpool export cut";
    drop(Vm::new(replayed.path()).run(script).expect_ok());
    let truth = kernel::truth_of(replayed.path(), "cut", &[]);
    let theirs = truth.entries("cut").unwrap();
    assert_same(&theirs, &ours.0, REPLAYED);
    let volume = truth.volumes();
    assert_eq!(volume.len(), 1);
    assert_eq!((volume[0].0, volume[0].2), ("cut/vol", ours.1.as_str()));
    assert!(theirs.iter().any(|entry| entry.path == b"a/b/moved"), "the log held something");
    let due = Due { entries: theirs, volume: volume[0].2.to_string() };

    // For good, on a copy; and once more with another sync between any two changes, to be cut anywhere.
    let copy = Images::copy_of(images.path());
    let pool = engine::open_for_writing(copy.path(), "cut");
    assert_eq!(fs::replay_logs(&pool).unwrap().len(), 0);
    assert_eq!(due.differ(&pool), None);
    pool.close().unwrap();
    drop(pool);
    tool::zdb_content(copy.path(), "cut");
    drop(testkit::poolaudit_kernels(copy.path(), "cut").expect_ok());
    acceptance::assert_verified_kernels(copy.path(), "cut");
    let said = kernel::truth_of(copy.path(), "cut", &["-f", "-d", "/d"]);
    assert_same(&due.entries, &said.entries("cut").unwrap(), REPLAYED);

    if !log.is_empty() {
        return;
    }
    let half_way = due.cut_anywhere(images.path());
    for images in half_way {
        let dir = temp_dir();
        images.iter().for_each(|(name, image)| image.to_file(dir.path().join(name)).unwrap());
        drop(Vm::new(dir.path()).run(script).expect_ok());
        let said = kernel::truth_of(dir.path(), "cut", &[]);
        assert_same(&due.entries, &said.entries("cut").unwrap(), REPLAYED);
        assert_eq!(said.volumes()[0].2, due.volume);
    }
}

/// What a replay must lead to.
struct Due {
    entries: Vec<Entry>,
    /// The digest of the volume.
    volume: String,
}

impl Due {
    /// What is not as it must be.
    fn differ(&self, pool: &Arc<Pool>) -> Option<String> {
        let fs = Filesystem::open(pool, "cut").unwrap();
        let found = listed(&fs);
        let volume = fs::Volume::open(pool, "cut/vol").unwrap().unwrap();
        let mut bytes = vec![0; volume.size() as usize];
        volume.read(0, &mut bytes).unwrap();
        let digest = testkit::truth::hex_digest(&bytes);
        let differences = testkit::compare::differences(&self.entries, &found, REPLAYED);
        let same = differences.is_empty() && digest == self.volume;
        (!same).then(|| format!("{differences:?}, volume {}", digest == self.volume))
    }

    /// Replays on simulated disks, and again what cuts leave. Two cuts in the middle are given back.
    fn cut_anywhere(&self, dir: &Path) -> Vec<Vec<(String, Image)>> {
        let image = Image::from_file(dir.join("d00")).unwrap();
        let set = SimSet::from_images(vec![("d00".into(), image)]);
        set.record();
        let pool = open(&set);
        let over = Arc::new(AtomicBool::new(false));
        let (theirs, ends) = (pool.clone(), over.clone());
        let syncs = rt::thread::spawn("syncs", move || {
            while !ends.load(Ordering::SeqCst) {
                theirs.sync().unwrap();
            }
        });
        assert_eq!(fs::replay_logs(&pool).unwrap().len(), 0);
        over.store(true, Ordering::SeqCst);
        syncs.join();
        let txgs = pool.txg();
        pool.close().unwrap();
        drop(pool);

        let log = set.log();
        let mut rng = Rng::of(txgs, 5);
        let mut places: Vec<u64> =
            (0..rounds(60, 1000)).map(|_| rng.below(log.writes() + 1)).collect();
        places.sort_unstable();
        let (mut kept, mut replay, count) = (Vec::new(), log.replay(), places.len());
        for (number, place) in places.into_iter().enumerate() {
            replay.advance_to(place);
            let images = replay.crash(Cut::ALL[number % 4], place);
            let set = SimSet::from_images(images.clone());
            let pool = open(&set);
            let left = fs::replay_logs(&pool);
            assert!(left.is_ok_and(|left| left.is_empty()), "cut after {place} writes");
            let wrong = self.differ(&pool);
            assert_eq!(wrong, None, "cut after {place} of {} writes", log.writes());
            pool.close().unwrap();
            if number == count / 4 || number == count / 2 {
                kept.push(images);
            }
        }
        kept
    }
}

/// Opens the pool on a simulated disk for writing.
fn open(set: &SimSet) -> Arc<Pool> {
    let reader = |disk: SimDisk| (None, Arc::new(disk.reader()) as Arc<dyn Device>);
    let scan = scan_devices(set.disks().into_iter().map(reader).collect());
    let found = scan.choose("cut").unwrap();
    let disk: Arc<dyn WriteDevice> = Arc::new(set.disk(0));
    let devices = BTreeMap::from([(found.members[0].guid, disk)]);
    let tree = WriteTree::open(&found.root, devices).unwrap();
    let devices = Devices::Writable(tree);
    let pool = Pool::open(devices, &found.uberblocks, &engine::options()).unwrap();
    assert_eq!(pool.read_only_reason(), None);
    pool
}

/// All files, with the numbers of devices.
fn listed(fs: &Filesystem) -> Vec<Entry> {
    let mut entries = engine::list(fs).unwrap();
    for entry in &mut entries {
        let attrs = fs.attrs(entry.object).unwrap();
        entry.rdev = attrs.rdev.map(format::znode::device_parts);
    }
    entries
}

/// The file system `cut` and the sha256 of the volume, with their logs replayed.
fn replay(dir: &Path) -> (Vec<Entry>, String) {
    let scan = vdev::import::scan(&[dir.to_path_buf()]).unwrap();
    let found = scan.choose("cut").unwrap();
    let plain = engine::look_at(found);
    let log = fs::Replay::read(&plain, "cut").unwrap().unwrap();
    assert!(log.len() > 40, "{} records", log.len());
    let tree = found.open_memory_tree(&found.root, 64 << 20).unwrap();
    let pool = Pool::open(Devices::InMemory(tree), &found.uberblocks, &engine::options()).unwrap();
    let files = Filesystem::open(&pool, "cut").unwrap();
    log.apply(&files).unwrap();
    let entries = listed(&files);
    let aside = temp_dir();
    let mut command = thumper(&aside.path().join("pools"));
    let out = aside.path().join("vol");
    command.arg("-d").arg(dir).args(["get", "--replay", "cut/vol:"]).arg(&out);
    drop(Ran::of(&mut command).expect_ok());
    (entries, testkit::truth::hex_digest(&std::fs::read(out).unwrap()))
}
