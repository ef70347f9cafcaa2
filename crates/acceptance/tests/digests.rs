//! Digests that are made while files are written: right or made anew, never those of other contents, whoever changed
//! them; and asked for right after an upload they cost no read.

#![allow(clippy::unwrap_used)]

use std::collections::BTreeMap;
use std::io::{IoSlice, IoSliceMut};
use std::path::Path;

use acceptance::{SHAPES, Session, assert_verified, engine};
use device::{Device, WriteDevice, WriteFile};
use fs::{Algorithm, Filesystem, NewObject, Setattr, Time, When, Who, make_filesystem, mode};
use pool::{Joined, NewLeaf, NewPool, NewTop, Pool, Stored};
use rt::sync::Arc;
use rt::sync::atomic::{AtomicU64, Ordering};
use testkit::kernel::{Act, story};
use testkit::random::Rng;
use testkit::{fresh_images, noise, tool, vm};

const ROOT: Who = Who { uid: 0, gid: 0 };
const BOTH: [(Algorithm, &[u8]); 2] =
    [(Algorithm::Adler32, b"user.XrdCks.adler32"), (Algorithm::Crc32c, b"user.XrdCks.crc32c")];

/// By the book, byte for byte; no code in common with the engine.
fn plain(algorithm: Algorithm, bytes: &[u8]) -> u32 {
    match algorithm {
        Algorithm::Adler32 => {
            let (mut a, mut b) = (1u32, 0u32);
            for byte in bytes {
                a = (a + u32::from(*byte)) % 65521;
                b = (b + a) % 65521;
            }
            b << 16 | a
        }
        Algorithm::Crc32c => {
            let mut table = [0u32; 256];
            for (i, entry) in table.iter_mut().enumerate() {
                *entry = (0..8).fold(i as u32, |crc, _| {
                    if crc & 1 == 1 { crc >> 1 ^ 0x82f6_3b78 } else { crc >> 1 }
                });
            }
            let next = |crc: u32, byte: &u8| crc >> 8 ^ table[(crc as u8 ^ byte) as usize];
            !bytes.iter().fold(!0, next)
        }
    }
}

fn create(fs: &Filesystem, name: &[u8]) -> u64 {
    fs.create(fs.root(), name, &NewObject::of(mode::FILE | 0o644, ROOT)).unwrap()
}

fn contents(fs: &Filesystem, number: u64) -> Vec<u8> {
    let mut bytes = vec![0; fs.attrs(number).unwrap().size as usize];
    assert_eq!(fs.read(number, 0, &mut bytes).unwrap(), bytes.len());
    bytes
}

/// What is answered is of `bytes`, and named so.
#[track_caller]
fn right(fs: &Filesystem, number: u64, bytes: &[u8]) {
    let secs = fs.attrs(number).unwrap().mtime.secs;
    for (algorithm, _) in BOTH {
        let record = fs.digest(number, algorithm).unwrap().unwrap();
        assert_eq!(record[16..24], secs.to_be_bytes());
        assert_eq!(record[31..36], [&[4][..], &plain(algorithm, bytes).to_be_bytes()].concat());
    }
}

/// Are digests kept?
fn kept(fs: &Filesystem, number: u64) -> bool {
    let is_there = |(_, name): &(_, &[u8])| fs.xattr(number, name).unwrap().is_some();
    let count = BOTH.iter().filter(|one| is_there(one)).count();
    assert!(count == 0 || count == 2);
    count == 2
}

/// A session of writes, as an upload is.
fn upload(fs: &Filesystem, number: u64, write: impl FnOnce()) {
    fs.watch(number).unwrap();
    write();
    fs.unwatch(number);
}

fn set_mtime(fs: &Filesystem, number: u64, mtime: Time) {
    let set = Setattr { mtime: Some(When::At(mtime)), ..Setattr::default() };
    fs.setattr(number, &set).unwrap();
}

#[test]
fn in_a_dnode_of_a_kib_they_take_no_block() {
    for (dnodesize, spills) in [("auto", false), ("legacy", true)] {
        let (images, mut session) =
            Session::create_of(&SHAPES[0], &[("dnodesize", dnodesize)], true);
        let fs = session.filesystem();
        let number = create(fs, b"f");
        upload(fs, number, || fs.write(number, 0, &noise(1, 100_000)).unwrap());
        fs.fsync(number).unwrap();
        assert!(kept(fs, number));
        session.close().unwrap();
        let path = images.path().to_str().unwrap();
        let ran = tool::zdb(["-e", "-p", path, "-ddddd", "tank/", &number.to_string()]).expect_ok();
        assert!(ran.out.contains("user.XrdCks.adler32"), "{ran}");
        assert_eq!(ran.out.contains("SPILL_BLKPTR"), spills, "{ran}");
        assert_verified(images.path(), "tank");
    }
}

/// A disk that counts what is read.
struct Counted {
    disk: WriteFile,
    bytes: Arc<AtomicU64>,
}

impl Device for Counted {
    testkit::of_the_disk_inside!(disk);

    fn read_at(&self, offset: u64, buf: &mut [u8]) -> device::Result<()> {
        self.bytes.fetch_add(buf.len() as u64, Ordering::Relaxed);
        self.disk.read_at(offset, buf)
    }
    fn read_vectored_at(&self, offset: u64, bufs: &mut [IoSliceMut<'_>]) -> device::Result<()> {
        let length: usize = bufs.iter().map(|buf| buf.len()).sum();
        self.bytes.fetch_add(length as u64, Ordering::Relaxed);
        self.disk.read_vectored_at(offset, bufs)
    }
}

impl WriteDevice for Counted {
    fn write_at(&self, offset: u64, bytes: &[u8]) -> device::Result<()> {
        self.disk.write_at(offset, bytes)
    }
    fn write_vectored_at(&self, offset: u64, bufs: &[IoSlice<'_>]) -> device::Result<()> {
        self.disk.write_vectored_at(offset, bufs)
    }
    fn flush(&self) -> device::Result<()> {
        self.disk.flush()
    }
}

/// Whatever the order: asked for after the upload, in memory still or on disk, nothing is read.
#[test]
fn after_an_upload_nothing_is_read() {
    let images = fresh_images(5, 128 << 20);
    let read = Arc::new(AtomicU64::new(0));
    let leaf = |path: &std::path::PathBuf| NewLeaf {
        path: path.as_os_str().as_encoded_bytes().to_vec(),
        is_disk: false,
        device: Arc::new(Counted { disk: WriteFile::open(path).unwrap(), bytes: read.clone() }),
    };
    let pool = Pool::create(NewPool {
        name: "tank".into(),
        tops: vec![NewTop {
            joined: Joined::Raidz(2),
            leaves: images.disks().iter().map(leaf).collect(),
            is_log: false,
        }],
        spares: vec![],
        ashift: 12,
        features: pool::Feature::ALL.to_vec(),
        pool_props: BTreeMap::new(),
        // Records with the hidden directory would be in the way: these do not use it.
        props: [("xattr".to_string(), Stored::Number(1))].into(),
        make: make_filesystem,
        command: "zpool create tank".into(),
        options: engine::options(),
    })
    .unwrap();
    let fs = Filesystem::open(&pool, "tank").unwrap();
    let bytes = noise(1, 9_000_001);
    let shapes: [(&str, usize, bool); 4] = [
        ("forward", 1 << 20, false),
        ("back", 1 << 20, true),
        ("odd", 70_001, true),
        ("small", 4096, false),
    ];
    for (name, step, back) in shapes {
        let number = create(&fs, name.as_bytes());
        upload(&fs, number, || {
            let mut pieces: Vec<_> = bytes.chunks(step).enumerate().collect();
            if back {
                pieces.reverse();
                let half = pieces.len() / 2;
                pieces.swap(0, half);
            }
            for (i, piece) in pieces {
                fs.write(number, (i * step) as u64, piece).unwrap();
            }
        });
        assert!(kept(&fs, number), "{name}");
        read.store(0, Ordering::Relaxed);
        right(&fs, number, &bytes);
        pool.sync().unwrap();
        pool.sync().unwrap();
        right(&fs, number, &bytes);
        let cost = read.load(Ordering::Relaxed);
        assert!(cost < 64 << 10, "{name}: {cost} bytes were read");
        // Who writes it and makes no digests of it is noticed; then it has to be read.
        fs.write(number, 5, &bytes[5..6]).unwrap();
        assert!(!kept(&fs, number));
        pool.sync().unwrap();
        read.store(0, Ordering::Relaxed);
        right(&fs, number, &bytes);
        assert!(read.load(Ordering::Relaxed) >= bytes.len() as u64);
        assert!(kept(&fs, number));
    }
    drop(fs);
    pool.close().unwrap();
    tool::zdb_content(images.path(), "tank");
    assert_verified(images.path(), "tank");
}

/// Each way to change a file takes the digests away; with the time of change set back, within one txg, too.
#[test]
fn what_was_changed_is_digested_anew() {
    let (images, mut session) = Session::create(&SHAPES[3], 128 << 10);
    {
        let fs = session.filesystem();
        let number = create(fs, b"file");
        let mut bytes = noise(2, 3_000_000);
        upload(fs, number, || fs.write(number, 0, &bytes).unwrap());
        let time = fs.attrs(number).unwrap().mtime;
        let step = |what: &str, bytes: &[u8], change: &dyn Fn()| {
            right(fs, number, &contents(fs, number));
            assert!(kept(fs, number), "before {what}");
            change();
            set_mtime(fs, number, time);
            assert!(!kept(fs, number), "{what}");
            assert!(contents(fs, number) == bytes, "{what}");
            right(fs, number, bytes);
        };
        bytes[1_234_567] ^= 1;
        step("one byte", &bytes, &|| {
            fs.write(number, 1_234_567, &bytes[1_234_567..][..1]).unwrap();
        });
        bytes.extend_from_slice(b"more");
        step("append", &bytes, &|| {
            let _at = fs.append(number, b"more").unwrap();
        });
        bytes.truncate(1_000_001);
        step("shorter", &bytes, &|| fs.truncate(number, 1_000_001).unwrap());
        bytes.resize(2_000_002, 0);
        step("longer", &bytes, &|| fs.truncate(number, 2_000_002).unwrap());
        bytes[300_000..800_000].fill(0);
        step("a hole", &bytes, &|| fs.punch_hole(number, 300_000, 500_000).unwrap());
        bytes[5..10].fill(7);
        let set = Setattr { size: Some(2_000_000), ..Setattr::default() };
        bytes.truncate(2_000_000);
        step("both", &bytes, &|| {
            fs.write(number, 5, &[7; 5]).unwrap();
            fs.setattr(number, &set).unwrap();
        });
        // Opened to be written, it goes on from what is kept.
        upload(fs, number, || {
            let _at = fs.append(number, b"behind").unwrap();
        });
        bytes.extend_from_slice(b"behind");
        assert!(kept(fs, number));
        right(fs, number, &bytes);
        // Names are no contents.
        fs.rename(fs.root(), b"file", fs.root(), b"other").unwrap();
        fs.link(fs.root(), b"second", number).unwrap();
        fs.unlink(fs.root(), b"other").unwrap();
        assert!(kept(fs, number));
        right(fs, number, &bytes);
        // In the middle of an upload the answer is of what is there by then.
        fs.watch(number).unwrap();
        fs.write(number, 10, b"now").unwrap();
        bytes[10..13].copy_from_slice(b"now");
        right(fs, number, &bytes);
        fs.write(number, 10, b"new").unwrap();
        bytes[10..13].copy_from_slice(b"new");
        right(fs, number, &bytes);
        fs.unwatch(number);
        right(fs, number, &bytes);
        // What somebody puts there is of another state, or nothing.
        let good = fs.xattr(number, BOTH[0].1).unwrap().unwrap();
        let mut lie = good;
        lie[33] ^= 1;
        lie[80] ^= 1;
        fs.set_xattr(number, BOTH[0].1, Some(&lie)).unwrap();
        right(fs, number, &bytes);
        fs.set_xattr(number, BOTH[0].1, Some(b"no record")).unwrap();
        right(fs, number, &bytes);
    }
    session.close().unwrap();
    assert_verified(images.path(), "tank");
}

/// A file that is rolled back has the digests that it had; nothing of what was there in between.
#[test]
fn a_snapshot_brings_its_digests_back() {
    let (images, mut session) = Session::create(&SHAPES[1], 128 << 10);
    let (old, new) = (noise(5, 1_500_000), noise(6, 1_500_000));
    let number = {
        let fs = session.filesystem();
        let number = create(fs, b"file");
        upload(fs, number, || fs.write(number, 0, &old).unwrap());
        let time = fs.attrs(number).unwrap().mtime;
        session.pool().snapshot(&["tank@before".into()], &[]).unwrap();
        upload(fs, number, || fs.write(number, 0, &new).unwrap());
        set_mtime(fs, number, time);
        right(fs, number, &new);
        let before = Filesystem::open(session.pool(), "tank@before").unwrap();
        assert!(kept(&before, number));
        right(&before, number, &old);
        number
    };
    session.pool().rollback("tank@before").unwrap();
    session.close().unwrap();
    let mut session = Session::open(images.path(), "tank", "tank").unwrap();
    let fs = session.filesystem();
    assert!(kept(fs, number));
    right(fs, number, &old);
    // A snapshot without any cannot keep them, but tells them.
    fs.write(number, 0, &new).unwrap();
    session.pool().snapshot(&["tank@after".into()], &[]).unwrap();
    let after = Filesystem::open(session.pool(), "tank@after").unwrap();
    right(&after, number, &new);
    assert!(!kept(&after, number));
    drop(after);
    session.close().unwrap();
    assert_verified(images.path(), "tank");
}

/// Anything at any time, against contents read as a whole; the time of change never tells.
#[test]
fn random_operations_leave_no_stale_digest() {
    let long = std::env::var_os("THUMPER_ROUNDS").is_some_and(|rounds| rounds == "long");
    for seed in 0..if long { 40 } else { 4 } {
        let (images, mut session) = Session::create(&SHAPES[0], 16 << 10);
        let mut rng = Rng::of(seed, 11);
        let mut numbers: Vec<u64> =
            (0..3u8).map(|i| create(session.filesystem(), &[b'a' + i])).collect();
        let mut open = [0u32; 3];
        let time = Time { secs: 1_000_000_000, nanos: 5 };
        for step in 0..400 {
            let fs = session.filesystem();
            let which = rng.below(3) as usize;
            let number = numbers[which];
            let size = fs.attrs(number).unwrap().size;
            let at = rng.below(size + 70_000);
            match rng.below(20) {
                0..=8 => {
                    let length = 1 + rng.below(90_000) as usize;
                    // Zeros now and then: blocks of them become holes.
                    let bytes =
                        if rng.below(5) == 0 { vec![0; length] } else { noise(rng.word(), length) };
                    fs.write(number, at, &bytes).unwrap();
                }
                9 => drop(fs.append(number, b"tail").unwrap()),
                10 => fs.truncate(number, at).unwrap(),
                11 => fs.punch_hole(number, at, rng.below(100_000)).unwrap(),
                12 | 13 if open[which] < 3 => {
                    fs.watch(number).unwrap();
                    open[which] += 1;
                }
                14 | 15 if open[which] > 0 => {
                    fs.unwatch(number);
                    open[which] -= 1;
                }
                16 => fs.keep_digests(number).unwrap(),
                17 => drop(session.pool().sync().unwrap()),
                18 if open == [0; 3] => {
                    session.close().unwrap();
                    session = Session::open(images.path(), "tank", "tank").unwrap();
                }
                19 => {
                    let name = [b'a' + which as u8];
                    for _ in 0..std::mem::take(&mut open[which]) {
                        fs.unwatch(number);
                    }
                    fs.unlink(fs.root(), &name).unwrap();
                    numbers[which] = create(fs, &name);
                }
                _ => {}
            }
            let (fs, number) = (session.filesystem(), numbers[which]);
            set_mtime(fs, number, time);
            if rng.below(3) == 0 {
                let bytes = contents(fs, number);
                let asked = std::panic::AssertUnwindSafe(|| right(fs, number, &bytes));
                assert!(std::panic::catch_unwind(asked).is_ok(), "seed {seed}, step {step}");
            }
        }
        session.close().unwrap();
        assert_verified(images.path(), "tank");
    }
}

/// Several write, cut, ask and open at once: what is known at the end is of the end.
#[test]
fn many_at_once_leave_what_is_there() {
    let (images, mut session) = Session::create(&SHAPES[0], 16 << 10);
    {
        let fs = session.filesystem();
        let number = create(fs, b"file");
        fs.write(number, 0, &noise(1, 3_000_000)).unwrap();
        for round in 0..12 {
            std::thread::scope(|scope| {
                for worker in 0..4u64 {
                    scope.spawn(move || {
                        let mut rng = Rng::of(round * 4 + worker, 12);
                        for _ in 0..15 {
                            let at = rng.below(3_000_000);
                            match rng.below(if worker < 2 { 3 } else { 2 }) {
                                0 => drop(fs.digest(number, Algorithm::Adler32).unwrap()),
                                1 => {
                                    fs.watch(number).unwrap();
                                    let bytes = noise(at, 1 + rng.below(90_000) as usize);
                                    fs.write(number, at, &bytes).unwrap();
                                    fs.unwatch(number);
                                }
                                _ => fs.punch_hole(number, at, rng.below(300_000)).unwrap(),
                            }
                        }
                    });
                }
            });
            right(fs, number, &contents(fs, number));
        }
    }
    session.close().unwrap();
    assert_verified(images.path(), "tank");
}

/// The kernel changes a file and sets its time back: the digest that it leaves there is not believed.
#[test]
fn what_the_kernel_changed_is_digested_anew() {
    if !vm::wanted("that a digest of what the kernel has changed is not believed") {
        return;
    }
    let (images, mut session) = Session::create(&SHAPES[1], 128 << 10);
    let mut bytes = noise(8, 1_000_000);
    for name in [b"file", b"same"] {
        let fs = session.filesystem();
        let number = create(fs, name);
        upload(fs, number, || fs.write(number, 0, &bytes).unwrap());
    }
    session.close().unwrap();
    let python = "import os; s = os.stat('/mnt/file'); f = open('/mnt/file', 'r+b'); f.seek(500000); \
         f.write(b'kernel'); f.close(); os.utime('/mnt/file', ns=(s.st_atime_ns, s.st_mtime_ns)); \
         [print(len(os.getxattr('/mnt/' + n, 'user.XrdCks.adler32'))) for n in ('file', 'same')]";
    let act = format!("mounted tank\npython3 -c \"{python}\"\nunmounted");
    let ran = story(images.path(), "tank", &[Act::Command(act)]);
    // It is still there, as the kernel knows no better.
    assert_eq!(ran.out.lines().filter(|line| *line == "96").count(), 2, "{ran}");
    let mut session = Session::open(images.path(), "tank", "tank").unwrap();
    {
        let fs = session.filesystem();
        let number = |name: &[u8]| fs.lookup(fs.root(), name).unwrap().unwrap().object;
        right(fs, number(b"same"), &bytes);
        bytes[500_000..500_006].copy_from_slice(b"kernel");
        assert!(kept(fs, number(b"file")));
        right(fs, number(b"file"), &bytes);
    }
    session.close().unwrap();
    judge_all(images.path());
}

fn judge_all(dir: &Path) {
    tool::zdb_content(dir, "tank");
    assert_verified(dir, "tank");
}
