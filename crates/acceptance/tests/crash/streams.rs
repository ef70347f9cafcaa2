//! Long reads from disks: ahead of the reader, in large pieces, and never anything but the file as it is.

use device::sim::{Fault, Kind, On, SimSet};
use format::label::DATA_AT;
use fs::{Filesystem, NewObject, Who, mode};
use pool::{Pool, Stored};
use rt::Rng;
use rt::sync::Arc;

use crate::rig::{self, MIRROR, RAIDZ2, Shape};

const RECORD: u64 = 16 << 10;
/// So small that a file has several indirect blocks, each of 2 MiB of it.
const SMALL: u64 = 2 << 10;
const SIZE: usize = 9 << 20;

/// Noise, text, zeros and noise again, so that records are of all sizes, and some are holes.
fn contents(seed: u64, size: usize) -> Vec<u8> {
    let mut rng = Rng::new(seed);
    let mut bytes = vec![0; size];
    rng.fill(&mut bytes);
    for (place, byte) in bytes.iter_mut().enumerate() {
        match (place >> 18) % 4 {
            1 => *byte &= 3,
            2 => *byte = 0,
            _ => {}
        }
    }
    bytes
}

/// A pool on disks behind queues, with a file, opened anew.
fn pool_with_file(shape: Shape, record: u64, data: &[u8]) -> (SimSet, Arc<Pool>) {
    let set = disks_with_file(shape, record, data);
    let pool = rig::open_on(&set, &rig::all(&set), rig::HOSTS[0], Some(60_000)).unwrap();
    (set, pool)
}

/// The disks of a pool with a file.
fn disks_with_file(shape: Shape, record: u64, data: &[u8]) -> SimSet {
    let set = SimSet::new(shape.disks, shape.disk_bytes);
    let pool = rig::create(&set, shape).unwrap();
    pool.set_property(rig::POOL, "recordsize", Some(Stored::Number(record))).unwrap();
    let fs = Filesystem::open(&pool, rig::POOL).unwrap();
    let file = NewObject::of(mode::FILE | 0o644, Who { uid: 0, gid: 0 });
    fs.create_with(fs.root(), b"file", &file, data).unwrap();
    drop(fs);
    pool.close().unwrap();
    set
}

fn reads(set: &SimSet) -> u64 {
    set.disks().iter().map(|disk| disk.counts().reads).sum()
}

#[test]
fn a_stream_takes_few_reads_and_gets_the_file() {
    let data = contents(1, SIZE);
    for shape in [RAIDZ2, MIRROR] {
        let (set, pool) = pool_with_file(shape, RECORD, &data);
        let fs = Filesystem::open(&pool, rig::POOL).unwrap();
        let object = fs.resolve(b"file").unwrap();
        let before = reads(&set);
        let (mut at, mut seen) = (0, vec![0; 100_003]);
        while at < data.len() {
            let got = fs.read(object, at as u64, &mut seen).unwrap();
            assert!(seen[..got] == data[at..at + got], "{shape:?}: bytes from {at} on");
            at += got;
        }
        // By single records it would be one for each of them, from each disk.
        let (count, records) = (reads(&set) - before, data.len() as u64 / RECORD);
        assert!(count < records / 2, "{shape:?}: {count} reads for {records} records");
    }
}

/// Names that a txg has written stay at hand for who looks for others beside them.
#[test]
fn a_directory_is_not_read_again_after_each_txg() {
    let set = SimSet::new(RAIDZ2.disks, RAIDZ2.disk_bytes);
    let pool = rig::create(&set, RAIDZ2).unwrap();
    let fs = Filesystem::open(&pool, rig::POOL).unwrap();
    let file = NewObject::of(mode::FILE | 0o644, Who { uid: 0, gid: 0 });
    let make = |number: u32| fs.create(fs.root(), format!("file{number}").as_bytes(), &file);
    for number in 0..3000 {
        make(number).unwrap();
    }
    pool.sync().unwrap();
    let before = reads(&set);
    for number in 0..3000 {
        let found = fs.lookup(fs.root(), format!("file{number}").as_bytes()).unwrap();
        assert!(found.is_some(), "file{number}");
    }
    make(3000).unwrap();
    assert_eq!(reads(&set), before);
}

/// Indirect blocks come many at a time, ahead of those who need them.
#[test]
fn a_stream_of_many_small_records_takes_few_reads() {
    let mut data = vec![0; SIZE];
    Rng::new(9).fill(&mut data);
    let (set, pool) = pool_with_file(MIRROR, 512, &data);
    let fs = Filesystem::open(&pool, rig::POOL).unwrap();
    let object = fs.resolve(b"file").unwrap();
    let before = reads(&set);
    read_start(&fs, object, &data, SIZE);
    let count = reads(&set) - before;
    println!("{count} reads");
    assert!(count < 20, "{count} reads for {} indirect blocks", SIZE >> 18);
}

/// Disks that hold rubbish, as many as the redundancy bears.
#[test]
fn a_stream_from_disks_that_lie_gets_the_file() {
    let data = contents(2, SIZE);
    for (shape, record, liars) in
        [(RAIDZ2, RECORD, vec![1, 3]), (RAIDZ2, SMALL, vec![0, 2]), (MIRROR, RECORD, vec![1])]
    {
        let (set, pool) = pool_with_file(shape, record, &data);
        let fs = Filesystem::open(&pool, rig::POOL).unwrap();
        let object = fs.resolve(b"file").unwrap();
        let mut noise = vec![0; 8 << 20];
        Rng::new(3).fill(&mut noise);
        for disk in liars {
            (0..7).for_each(|i| set.disk(disk).overwrite(DATA_AT + (i << 23), &noise));
        }
        let mut seen = vec![0; 300_000];
        for at in (0..data.len()).step_by(seen.len()) {
            let got = fs.read(object, at as u64, &mut seen).unwrap();
            assert!(seen[..got] == data[at..at + got], "{shape:?}: bytes from {at} on");
        }
    }
}

/// What is written, cut or synced in front of the reader is seen as it is when he comes there.
#[test]
fn a_stream_sees_what_changes_in_front_of_it() {
    let data = contents(4, SIZE);
    change_in_front_of_a_stream(RECORD, data.clone());
    change_in_front_of_a_stream(SMALL, data);
}

fn change_in_front_of_a_stream(record: u64, mut data: Vec<u8>) {
    let (set, pool) = pool_with_file(RAIDZ2, record, &data);
    // Some of what is asked for is still under way when it has changed.
    let slow = Kind::Slow(std::time::Duration::from_millis(2));
    set.disk(1).inject(Fault::new(slow, On::Reads));
    let fs = Filesystem::open(&pool, rig::POOL).unwrap();
    let object = fs.resolve(b"file").unwrap();
    let mut rng = Rng::new(5);
    let mut at = 0;
    let mut seen = vec![0; 70_000];
    for turn in 0..1200 {
        if at >= data.len() || rng.below(50) == 0 {
            at = rng.index(data.len());
        }
        let got = fs.read(object, at as u64, &mut seen).unwrap();
        assert_eq!(got, seen.len().min(data.len() - at), "turn {turn} at {at}");
        assert!(seen[..got] == data[at..at + got], "turn {turn}: bytes from {at} on");
        at += got;
        match rng.below(12) {
            0..4 => {
                let (from, mut new) = (rng.index(SIZE - 50_000), vec![0; 1 + rng.index(50_000)]);
                rng.fill(&mut new);
                // Now and then right in front of the reader.
                let from = if rng.below(2) == 0 { from } else { (at + 10_000).min(SIZE - 50_000) };
                fs.write(object, from as u64, &new).unwrap();
                let end = from + new.len();
                data.resize(data.len().max(end), 0);
                data[from..end].copy_from_slice(&new);
            }
            4 => {
                let size = SIZE / 2 + rng.index(SIZE / 2);
                fs.truncate(object, size as u64).unwrap();
                data.resize(size, 0);
            }
            5 => drop(pool.sync().unwrap()),
            _ => {}
        }
    }
}

/// Reads from the start of a file, so much, in pieces of 100 KB.
fn read_start(fs: &Filesystem, object: u64, data: &[u8], much: usize) {
    let mut seen = vec![0; 100_000];
    for at in (0..much).step_by(seen.len()) {
        let got = fs.read(object, at as u64, &mut seen).unwrap();
        assert!(seen[..got] == data[at..at + got], "bytes from {at} on");
    }
}

/// What was read ahead of a reader is given back when he has come to the end, goes elsewhere, or the pool closes.
#[test]
fn the_memory_of_a_stream_comes_back() {
    let data = contents(6, SIZE);
    for record in [RECORD, SMALL] {
        memory_comes_back(record, &data);
    }
}

fn memory_comes_back(record: u64, data: &[u8]) {
    let (set, pool) = pool_with_file(RAIDZ2, record, data);
    let memory = pool.memory().clone();
    let fs = Filesystem::open(&pool, rig::POOL).unwrap();
    let object = fs.resolve(b"file").unwrap();
    // What the pool itself reads is little.
    let own = memory.held();
    assert!(own < 64 << 10, "{own} bytes");
    read_start(&fs, object, data, SIZE);
    assert!(memory.held_max() > 1 << 20, "nothing was read ahead");
    assert_eq!(memory.held(), own, "at the end of the file");
    // The windows in front of him are abandoned, some of them under way; an I/O at a disk keeps its buffer.
    let slow = Kind::Slow(std::time::Duration::from_millis(20));
    set.disk(2).inject(Fault::new(slow, On::Reads));
    read_start(&fs, object, data, SIZE / 3);
    assert!(memory.held() > own);
    fs.read(object, 5, &mut [0; 10]).unwrap();
    let given_back = || {
        (0..500).any(|_| {
            rt::time::sleep(std::time::Duration::from_millis(10));
            memory.held() <= own
        })
    };
    assert!(given_back(), "elsewhere: {} bytes", memory.held());
    fs.read(object, 0, &mut [0; 10]).unwrap();
    fs.read(object, 10, &mut [0; 10]).unwrap();
    assert!(memory.held() > own);
    drop(fs);
    pool.close().unwrap();
    drop(pool);
    assert_eq!(memory.used(), 0, "closed: {:?}", memory.snapshot());
}

/// Disks that fail, or lie, while their part of a window is under way.
#[test]
fn a_stream_whose_disks_fail_under_way_gets_the_file() {
    let data = contents(7, SIZE);
    let kinds = [Kind::Error(rustix::io::Errno::IO), Kind::FlipBit { seed: 3 }];
    for (kind, record) in kinds.into_iter().flat_map(|kind| [(kind.clone(), RECORD), (kind, SMALL)])
    {
        let (set, pool) = pool_with_file(RAIDZ2, record, &data);
        let fs = Filesystem::open(&pool, rig::POOL).unwrap();
        let object = fs.resolve(b"file").unwrap();
        let mut seen = vec![0; 100_000];
        for (turn, at) in (0..data.len()).step_by(seen.len()).enumerate() {
            if turn % 20 == 7 {
                set.disk(turn / 20 % 4).inject(Fault::new(kind.clone(), On::Reads).times(3));
            }
            let got = fs.read(object, at as u64, &mut seen).unwrap();
            assert!(seen[..got] == data[at..at + got], "{kind:?}: bytes from {at} on");
        }
        set.disks().iter().for_each(|disk| disk.heal());
    }
}

/// Many readers in turns: each gets his file, and all of them together no more than the account has.
#[test]
fn many_streams_stay_within_the_cap() {
    let data = contents(8, 1 << 20);
    let (_set, pool) = pool_with_file(RAIDZ2, RECORD, &data);
    let memory = pool.memory().clone();
    // What others have leaves room for few.
    let max = memory.max(rt::mem::Class::Normal);
    let others = memory.of(rt::mem::Holder::Clients);
    let _others = others.try_grant(rt::mem::Class::Normal, max - (3 << 20)).unwrap();
    let fs = Filesystem::open(&pool, rig::POOL).unwrap();
    let file = NewObject::of(mode::FILE | 0o644, Who { uid: 0, gid: 0 });
    let names = (0..16).map(|n| format!("file{n}"));
    let objects: Vec<u64> = names
        .map(|name| fs.create_with(fs.root(), name.as_bytes(), &file, &data).unwrap())
        .collect();
    pool.sync().unwrap();
    let mut seen = vec![0; 60_000];
    for at in (0..data.len()).step_by(seen.len()) {
        for object in &objects {
            let got = fs.read(*object, at as u64, &mut seen).unwrap();
            assert!(seen[..got] == data[at..at + got], "bytes from {at} on");
        }
    }
    assert!(memory.held_max() > 1 << 20, "nothing was read ahead");
    assert!(memory.held_max() <= 3 << 20, "{} bytes", memory.held_max());
    assert!(memory.held() < 64 << 10, "{} bytes", memory.held());
}

const PIECE: usize = 64 << 10;

/// The pool on disks without queues, and its file.
fn opened(set: &SimSet) -> (Arc<Pool>, Filesystem, u64) {
    let pool = rig::open_to_write(set, &rig::all(set)).unwrap();
    let fs = Filesystem::open(&pool, rig::POOL).unwrap();
    let object = fs.resolve(b"file").unwrap();
    (pool, fs, object)
}

/// Reads a piece as a server does for its clients; also: was it prepared?
fn served(fs: &Filesystem, object: u64, at: u64) -> (Vec<u8>, bool) {
    let (seen, was_prepared) = match fs.prepared(object, at, PIECE).unwrap() {
        Some((bytes, length, _)) => (bytes[..length].to_vec(), true),
        None => {
            let mut seen = vec![0; PIECE];
            let got = fs.read(object, at, &mut seen).unwrap();
            seen.truncate(got);
            (seen, false)
        }
    };
    while fs.prepare(object, at + PIECE as u64, PIECE).unwrap() {}
    (seen, was_prepared)
}

/// Where disks have no queues whoever serves a stream reads ahead of it: nothing twice, and nearly all.
#[test]
fn what_is_prepared_is_read_once() {
    let data = contents(9, SIZE - 1000);
    let set = disks_with_file(RAIDZ2, RECORD, &data);
    let counted = |prepares: bool| {
        let pool = rig::open_to_write(&set, &rig::all(&set)).unwrap();
        let memory = pool.memory().clone();
        let fs = Filesystem::open(&pool, rig::POOL).unwrap();
        let object = fs.resolve(b"file").unwrap();
        let (before, mut prepared) = (reads(&set), 0);
        for at in (0..data.len()).step_by(PIECE) {
            let wanted = &data[at..data.len().min(at + PIECE)];
            if prepares {
                let (seen, was_prepared) = served(&fs, object, at as u64);
                assert!(seen == wanted, "bytes from {at} on");
                prepared += usize::from(was_prepared);
                assert!(memory.held() <= 5 << 18, "{} bytes", memory.held());
            } else {
                let mut seen = vec![0; PIECE];
                let got = fs.read(object, at as u64, &mut seen).unwrap();
                assert!(seen[..got] == *wanted, "bytes from {at} on");
            }
        }
        assert!(memory.held() < 64 << 10, "at the end: {} bytes", memory.held());
        (reads(&set) - before, prepared)
    };
    let (alone, _) = counted(false);
    let (ahead, prepared) = counted(true);
    assert!(ahead <= alone + alone / 10, "{ahead} reads, without {alone}");
    // Not what is a hole.
    let pieces = data.len() / PIECE;
    assert!(prepared > pieces / 2, "{prepared} of {pieces}");
}

/// What is written, cut or synced after it was prepared is read as it is.
#[test]
fn what_is_prepared_is_the_file_as_it_is() {
    let mut data = contents(10, SIZE);
    let set = disks_with_file(RAIDZ2, RECORD, &data);
    let (pool, fs, object) = opened(&set);
    let mut rng = Rng::new(11);
    let (mut at, mut prepared) = (0, 0);
    for turn in 0..testkit::rounds(3000, 50_000) {
        if at >= data.len() || rng.below(50) == 0 {
            at = rng.index(data.len() / PIECE) * PIECE;
        }
        let (seen, was_prepared) = served(&fs, object, at as u64);
        let wanted = &data[at..data.len().min(at + PIECE)];
        assert!(seen == wanted, "turn {turn}: bytes from {at} on, prepared: {was_prepared}");
        prepared += u64::from(was_prepared);
        at += PIECE;
        match rng.below(12) {
            0..3 => {
                let mut new = vec![0; 1 + rng.index(50_000)];
                rng.fill(&mut new);
                let from = (at + rng.index(3 * PIECE)).min(data.len());
                fs.write(object, from as u64, &new).unwrap();
                data.resize(data.len().max(from + new.len()), 0);
                data[from..][..new.len()].copy_from_slice(&new);
                // On disk by the time that it is wanted.
                if rng.below(2) == 0 {
                    pool.sync().unwrap();
                }
            }
            3 if data.len() > SIZE / 2 => {
                let size = (at + rng.index(2 * PIECE)).clamp(SIZE / 4, SIZE);
                fs.truncate(object, size as u64).unwrap();
                data.resize(size, 0);
            }
            4 => drop(pool.sync().unwrap()),
            _ => {}
        }
    }
    assert!(prepared > 500, "{prepared} prepared");
}

/// What cannot be read is not prepared, and who wants it hears of it.
#[test]
fn what_cannot_be_prepared_is_told_when_it_is_wanted() {
    let mut data = vec![0; 4 << 20];
    Rng::new(12).fill(&mut data);
    let set = disks_with_file(RAIDZ2, RECORD, &data);
    let (_pool, fs, object) = opened(&set);
    let were_prepared = [0, 0, 1, 2].map(|piece| served(&fs, object, piece * PIECE as u64).1);
    assert_eq!(were_prepared, [false, false, false, true], "one piece makes no stream");
    for disk in 0..3 {
        set.disk(disk).inject(Fault::new(Kind::Error(rustix::io::Errno::IO), On::Reads));
    }
    let mut at = 3 * PIECE;
    while let Some((bytes, length, _)) = fs.prepared(object, at as u64, PIECE).unwrap() {
        assert!(bytes[..length] == data[at..][..PIECE], "bytes from {at} on");
        at += PIECE;
        assert!(!fs.prepare(object, at as u64, PIECE).unwrap(), "{at}");
    }
    // A mebibyte was there.
    assert_eq!(at, 3 * PIECE + (1 << 20));
    assert!(fs.read(object, at as u64, &mut [0; PIECE]).is_err());
    set.disks().iter().for_each(|disk| disk.heal());
    assert!(served(&fs, object, at as u64).0 == data[at..][..PIECE]);
}

/// What was prepared for who does not come is given back when somebody else waits for memory.
#[test]
fn what_is_prepared_for_nobody_is_given_back() {
    let mut data = vec![0; 4 << 20];
    Rng::new(13).fill(&mut data);
    let set = disks_with_file(RAIDZ2, RECORD, &data);
    let (pool, fs, object) = opened(&set);
    let memory = pool.memory().clone();
    (0..3).for_each(|piece| drop(served(&fs, object, piece * PIECE as u64)));
    assert!(memory.held() >= 1 << 20, "nothing was prepared");
    let others = memory.of(rt::mem::Holder::Clients);
    let most = memory.max(rt::mem::Class::Normal) - (1 << 19);
    assert!(others.try_grant(rt::mem::Class::Normal, most).is_none());
    // As long as a reader may take.
    rt::time::sleep(std::time::Duration::from_millis(1100));
    let waiting = rt::thread::spawn("waiting", move || {
        drop(others.grant(rt::mem::Class::Normal, most).unwrap());
    });
    let gone = (0..1000).any(|_| {
        rt::time::sleep(std::time::Duration::from_millis(10));
        memory.held() < 64 << 10
    });
    assert!(gone, "{} bytes are held", memory.held());
    waiting.join();
    assert!(served(&fs, object, 3 * PIECE as u64).0 == data[3 * PIECE..][..PIECE]);
}

/// What was prepared before a rollback is nobody's: who has the file open hears that it is gone, who opens it anew reads the
/// snapshot's.
#[test]
fn what_is_prepared_goes_with_a_rollback() {
    let old = contents(14, SIZE);
    let set = disks_with_file(RAIDZ2, RECORD, &old);
    let (pool, before, object) = opened(&set);
    let snapshot = format!("{}@old", rig::POOL);
    pool.snapshot(std::slice::from_ref(&snapshot), &[]).unwrap();
    let mut new = vec![0; 2 << 20];
    Rng::new(15).fill(&mut new);
    before.write(object, 0, &new).unwrap();
    pool.sync().unwrap();
    let were_prepared = [0, 1, 2].map(|piece| served(&before, object, piece * PIECE as u64).1);
    assert_eq!(were_prepared, [false, false, true]);
    pool.rollback(&snapshot).unwrap();
    let at = 3 * PIECE;
    let left = before.prepared(object, at as u64, PIECE).map(|left| left.is_some());
    assert_eq!(left.map_err(|e| e.errno()), Err(fs::code::STALE));
    let after = Filesystem::open(&pool, rig::POOL).unwrap();
    for at in (0..2 << 20).step_by(PIECE) {
        assert!(served(&after, object, at as u64).0 == old[at..][..PIECE], "bytes from {at} on");
    }
}
