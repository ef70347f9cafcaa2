//! Many threads change one file system while txgs come and go under them.
//!
//! The one idea: each thread owns names of its own, but in directories that all share, so what must
//! be there at the end is known without knowing who came first. The judges do the rest.
//!
//! Seen red: with the txg entered before the locks of objects (INV-6: a change to a frozen txg).
#![allow(clippy::unwrap_used)]

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use acceptance::{SHAPES, Session, Shape, engine, judge};
use fs::{Filesystem, FsError, NewObject, Who, mode};
use testkit::random::Rng;
use testkit::rounds;

const THREADS: u64 = 8;
const DIRS: usize = 2;
/// Files that a thread has at a time, at most.
const FILES_MAX: usize = 50;
/// Threads that fill a pool: what they write at once is more than its slop.
const CROWD: u64 = 160;
/// Txgs that pass in a round.
const TXGS: u64 = 40;
const WHO: Who = Who { uid: 7, gid: 8 };

/// What a thread has under its names: where, and the bytes.
type Mine = BTreeMap<(usize, String), Vec<u8>>;

/// One thread: random work on its own names.
fn work(fs: &Filesystem, dirs: &[u64], shared: u64, thread: u64) -> Mine {
    let mut rng = Rng::of(thread, 99);
    let mut mine = Mine::new();
    let end = fs.pool().txg() + TXGS;
    for op in 0.. {
        if fs.pool().txg() >= end {
            break;
        }
        let pick = |rng: &mut Rng, mine: &Mine| mine.keys().nth(rng.index(mine.len())).cloned();
        let known = if mine.is_empty() { None } else { pick(&mut rng, &mine) };
        let what = if mine.len() < FILES_MAX { rng.index(10) } else { 4 };
        match (what, known) {
            (0..4, _) | (_, None) => {
                let (dir, name) = (rng.index(DIRS), format!("{thread}-{op}"));
                let data = vec![op as u8 | 1; rng.index(9000)];
                let new = NewObject::of(mode::FILE | 0o640, WHO);
                fs.create_with(dirs[dir], name.as_bytes(), &new, &data).unwrap();
                mine.insert((dir, name), data);
            }
            (4, Some((dir, name))) => {
                fs.unlink(dirs[dir], name.as_bytes()).unwrap();
                mine.remove(&(dir, name));
            }
            (5, Some((dir, name))) => {
                let (to, new) = (rng.index(DIRS), format!("{thread}-{op}"));
                fs.rename(dirs[dir], name.as_bytes(), dirs[to], new.as_bytes()).unwrap();
                let data = mine.remove(&(dir, name)).unwrap();
                mine.insert((to, new), data);
            }
            (6, Some((dir, name))) => {
                let file = fs.lookup(dirs[dir], name.as_bytes()).unwrap().unwrap().object;
                // lists of all lengths: layouts of their own, spill blocks
                let value = vec![3; rng.index(700)];
                fs.set_xattr(file, format!("user.{thread}").as_bytes(), Some(&value)).unwrap();
            }
            (7, Some((dir, name))) => {
                let file = fs.lookup(dirs[dir], name.as_bytes()).unwrap().unwrap().object;
                let size = rng.index(9000);
                fs.truncate(file, size as u64).unwrap();
                mine.get_mut(&(dir, name)).unwrap().resize(size, 0);
            }
            (8, Some(_)) => {
                // one file that all write to, each in its own block
                fs.write(shared, thread % THREADS * 4096, &[op as u8; 4096]).unwrap();
            }
            (_, Some(_)) => {
                let name = format!("link {thread}-{op}");
                fs.create(
                    dirs[0],
                    name.as_bytes(),
                    &NewObject {
                        target: Some(b"somewhere"),
                        ..NewObject::of(mode::SYMLINK | 0o777, WHO)
                    },
                )
                .unwrap();
                fs.unlink(dirs[0], name.as_bytes()).unwrap();
            }
        }
    }
    mine
}

fn check(fs: &Filesystem, dirs: &[u64], all: &[Mine]) {
    let mut expected: Vec<BTreeMap<Vec<u8>, &Vec<u8>>> = vec![BTreeMap::new(); DIRS];
    for ((dir, name), data) in all.iter().flatten() {
        expected[*dir].insert(name.clone().into_bytes(), data);
    }
    for (dir, expected) in dirs.iter().zip(expected) {
        let found = fs.read_dir(*dir).unwrap();
        assert_eq!(fs.attrs(*dir).unwrap().size, found.len() as u64 + 2);
        assert_eq!(fs.attrs(*dir).unwrap().size, found.len() as u64 + 2);
        assert_eq!(found.len(), expected.len());
        for entry in found {
            let name = String::from_utf8_lossy(&entry.name).into_owned();
            let data = expected.get(&entry.name).unwrap_or_else(|| panic!("{name} is there"));
            let mut bytes = vec![0; data.len() + 1];
            let got = fs.read(entry.object, 0, &mut bytes).unwrap();
            assert_eq!(&bytes[..got], data.as_slice(), "{name}");
        }
    }
}

#[test]
fn threads_share_directories_while_txgs_pass() {
    for seed in 0..rounds(1, 20) {
        let (images, mut session) = Session::create(&SHAPES[1], 8192);
        let fs = session.filesystem();
        let make = |kind: u32, name: &str| {
            fs.create(fs.root(), name.as_bytes(), &NewObject::of(kind | 0o755, WHO)).unwrap()
        };
        let dirs: Vec<u64> = (0..DIRS).map(|i| make(mode::DIR, &format!("d{i}"))).collect();
        let shared = make(mode::FILE, "shared");
        let over = AtomicBool::new(false);
        let all: Vec<Mine> = std::thread::scope(|scope| {
            let txgs = scope.spawn(|| {
                while !over.load(Ordering::Relaxed) {
                    session.pool().sync().unwrap();
                }
            });
            let start = |thread| {
                let dirs = &dirs;
                scope.spawn(move || work(fs, dirs, shared, thread + seed * THREADS))
            };
            let threads: Vec<_> = (0..THREADS).map(start).collect();
            let all = threads.into_iter().map(|thread| thread.join());
            let all: Vec<_> = all.collect();
            over.store(true, Ordering::Relaxed);
            txgs.join().unwrap();
            all.into_iter().map(Result::unwrap).collect()
        });
        check(fs, &dirs, &all);
        session.close().unwrap();
        judge(&images, engine::POOL, 0, seed);
        let session = Session::open(images.path(), engine::POOL, engine::POOL).unwrap();
        check(session.filesystem(), &dirs, &all);
    }
}

/// Everybody writes until there is no space: refused is who comes too late, not the sync.
#[test]
fn who_waits_together_is_served_by_one_txg() {
    const WAITING: u64 = 63;
    let (_images, session) = Session::create(&SHAPES[1], 8192);
    let pool = session.pool();
    let before = pool.txg();
    let (busy, come) = (Arc::new(AtomicBool::new(false)), Arc::new(AtomicU64::new(0)));
    std::thread::scope(|scope| {
        let (in_it, all) = (busy.clone(), come.clone());
        scope.spawn(move || {
            pool.task(move |_| {
                in_it.store(true, Ordering::Relaxed);
                while all.load(Ordering::Relaxed) < WAITING {
                    std::thread::yield_now();
                }
                // they have a few steps yet to the place where they wait
                rt::time::sleep(std::time::Duration::from_millis(500));
                Ok(())
            })
        });
        while !busy.load(Ordering::Relaxed) {
            std::thread::yield_now();
        }
        for _ in 0..WAITING {
            scope.spawn(|| {
                come.fetch_add(1, Ordering::Relaxed);
                pool.task(|_| Ok(())).unwrap();
            });
        }
    });
    let txgs = pool.txg() - before;
    assert!(txgs <= 6, "{txgs} txgs for what two can hold");
}

#[test]
fn threads_fill_a_pool_to_the_brim() {
    const SMALL: Shape = Shape {
        name: "small mirror",
        disks: 2,
        tops: 1,
        disk_bytes: 320 << 20,
        joined: pool::Joined::Mirror,
        ashift: 12,
        spare_copies: 1,
    };
    let (images, mut session) = Session::create(&SMALL, 128 << 10);
    let fs = session.filesystem();
    // in directories of their own, so that nobody waits for somebody else's lock
    let make = |thread| {
        let name = format!("{thread}");
        fs.create(fs.root(), name.as_bytes(), &NewObject::of(mode::DIR | 0o755, WHO)).unwrap()
    };
    let dirs: Vec<u64> = (0..CROWD).map(make).collect();
    let fill = |thread: u64| -> u64 {
        let dir = dirs[thread as usize];
        for number in 0.. {
            let mut data = vec![0; 1 << 20];
            Rng::of(thread, number).fill(&mut data);
            let new = NewObject::of(mode::FILE | 0o600, WHO);
            match fs.create_with(dir, format!("{number}").as_bytes(), &new, &data) {
                Ok(_) => {}
                Err(FsError::NoSpace { .. }) => return number,
                Err(e) => panic!("thread {thread}, file {number}: {e}"),
            }
        }
        unreachable!("the pool is finite")
    };
    let counts: Vec<u64> = std::thread::scope(|scope| {
        let fill = &fill;
        let start = |thread| scope.spawn(move || fill(thread));
        let threads: Vec<_> = (0..CROWD).map(start).collect();
        threads.into_iter().map(|thread| thread.join().unwrap()).collect()
    });
    assert!(counts.iter().sum::<u64>() > 100, "{counts:?} files of a mebibyte each");
    for (thread, count) in (0..).zip(&counts) {
        for number in 0..*count {
            let (dir, name) = (dirs[thread as usize], format!("{number}"));
            let file = fs.lookup(dir, name.as_bytes()).unwrap().expect("acknowledged").object;
            let (mut data, mut found) = (vec![0; 1 << 20], vec![0; 1 << 20]);
            Rng::of(thread, number).fill(&mut data);
            fs.read(file, 0, &mut found).unwrap();
            assert!(data == found, "{thread}: {name}");
        }
    }
    let some = counts.iter().position(|count| *count > 0).unwrap();
    fs.unlink(dirs[some], b"0").unwrap();
    session.close().unwrap();
    judge(&images, engine::POOL, 0, 1);
}

/// Whoever opens a clone or a file system while it is being made gets it as it is when that is done.
///
/// Seen red: the clone with the root, and the header of an intent log, of its origin: a write to it suspended the pool, or
/// freed a block of the log that its origin's head was writing.
#[test]
fn what_is_being_made_is_not_open_before_it_is_there() {
    let (images, mut session) = Session::create(&SHAPES[0], 4096);
    let pool = session.pool().clone();
    let new = NewObject::of(mode::FILE | 0o644, WHO);
    pool.create_filesystem("tank/a", BTreeMap::new(), fs::make_filesystem).unwrap();
    let fs = Filesystem::open(&pool, "tank/a").unwrap();
    let number = fs.create(fs.root(), b"file", &new).unwrap();
    for _ in 0..4 {
        fs.write(number, 0, &[1; 3000]).unwrap();
        fs.fsync(number).unwrap();
    }
    pool.snapshot(&["tank/a@s".into()], &[]).unwrap();
    let header = pool.dataset("tank/a@s").unwrap().objset.phys().zil_header;
    assert!(header.iter().any(|byte| *byte != 0), "the log is in use");
    for i in 0..rounds(150, 1000) {
        let name = format!("tank/c{i}");
        let open = || loop {
            match pool.dataset(&name) {
                Err(pool::PoolError::NoDataset { .. }) => {}
                opened => return opened.unwrap(),
            }
        };
        let opened = std::thread::scope(|scope| {
            let opened = scope.spawn(open);
            match i % 3 {
                0 => pool.create_filesystem(&name, BTreeMap::new(), fs::make_filesystem).unwrap(),
                _ => pool.clone_snapshot("tank/a@s", &name, BTreeMap::new()).unwrap(),
            }
            opened.join().unwrap()
        });
        let found = pool::dsl::lookup::find(pool.mos(), &name).unwrap();
        assert_eq!((opened.objset.root(), &opened.read_only_because), (found.phys.bp, &None));
        let clone = Filesystem::open(&pool, &name).unwrap();
        clone.create_with(clone.root(), b"new", &new, &[2; 3000]).unwrap();
        fs.write(number, 0, &[3; 3000]).unwrap();
        fs.fsync(number).unwrap();
    }
    drop((fs, pool));
    session.close().unwrap();
    judge(&images, engine::POOL, 0, 0);
}
