//! Reads of many records at once while txgs come to the disk: none is older than what had been written before.
//!
//! Seen red: where a block is and how far on it is so, asked one after the other.

use std::sync::atomic::{AtomicBool, AtomicU8, Ordering};

use acceptance::engine::POOL;
use device::sim::SimSet;
use fs::{Filesystem, NewObject, Who, mode};
use rt::sync::Arc;
use rt::thread::{JoinHandle, spawn};
use testkit::random::Rng;
use testkit::rounds;

use crate::writer::dawdle;
use crate::{RECORD, create};

/// Records of the file.
const RECORDS: usize = 6;
/// Times that each is written.
const TIMES: u8 = 8;

fn new_file(fs: &Filesystem, name: &str) -> u64 {
    let new = NewObject::of(mode::FILE | 0o600, Who { uid: 0, gid: 0 });
    fs.create(fs.root(), name.as_bytes(), &new).unwrap()
}

/// What a record has was written to it, and not before what it had when the read began.
fn records(seed: u64) {
    let pool = create(&SimSet::new(2, 64 << 20));
    let fs = Arc::new(Filesystem::open(&pool, POOL).unwrap());
    let file = new_file(&fs, "file");
    fs.write(file, 0, &vec![0; RECORDS * RECORD as usize]).unwrap();
    let over = Arc::new(AtomicBool::new(false));
    let had: Arc<Vec<AtomicU8>> = Arc::new((0..RECORDS).map(|_| AtomicU8::new(0)).collect());
    let (theirs, ends) = (pool, over.clone());
    let syncs = spawn("syncs", move || {
        while !ends.load(Ordering::SeqCst) {
            theirs.sync().unwrap();
        }
    });
    let (theirs, has, ends) = (fs.clone(), had.clone(), over.clone());
    let reader = spawn("reader", move || {
        let mut buf = vec![0; RECORDS * RECORD as usize];
        while !ends.load(Ordering::SeqCst) {
            let least: Vec<u8> = has.iter().map(|had| had.load(Ordering::SeqCst)).collect();
            theirs.read(file, 0, &mut buf).unwrap();
            let found: Vec<u8> = buf.chunks(RECORD as usize).map(|record| record[9]).collect();
            let fresh = found.iter().zip(&least).all(|(found, least)| found >= least);
            assert!(fresh, "read {found:?} where {least:?} was written before");
        }
    });
    let mut rng = Rng::of(seed, 0);
    for time in 1..=TIMES {
        for record in 0..RECORDS {
            fs.write(file, record as u64 * RECORD, &[time; RECORD as usize]).unwrap();
            had[record].store(time, Ordering::SeqCst);
            dawdle(&mut rng);
        }
    }
    over.store(true, Ordering::SeqCst);
    [syncs, reader].into_iter().for_each(JoinHandle::join);
}

/// Data that were written are found, whether they are in memory or on disk.
fn data(seed: u64) {
    let pool = create(&SimSet::new(2, 64 << 20));
    let fs = Arc::new(Filesystem::open(&pool, POOL).unwrap());
    let mut rng = Rng::of(seed, 0);
    for time in 0..TIMES {
        let file = new_file(&fs, &format!("file{time}"));
        // The first of them into a file that is not on disk yet.
        for first in [4, 2] {
            fs.write(file, first * RECORD, &[7; RECORD as usize]).unwrap();
            let over = Arc::new(AtomicBool::new(false));
            let (theirs, ends) = (pool.clone(), over.clone());
            let syncs = spawn("syncs", move || {
                theirs.sync().unwrap();
                ends.store(true, Ordering::SeqCst);
            });
            while !over.load(Ordering::SeqCst) {
                let found = fs.seek(file, 0, true).unwrap();
                assert_eq!(found, Some(first * RECORD), "file{time}");
                dawdle(&mut rng);
            }
            syncs.join();
        }
    }
}

/// An attribute that is there all the time is found, wherever it is kept beside others that come and go.
fn attributes(_seed: u64) {
    let pool = create(&SimSet::new(2, 64 << 20));
    let fs = Arc::new(Filesystem::open(&pool, POOL).unwrap());
    let file = new_file(&fs, "file");
    fs.set_xattr(file, b"user.kept", Some(b"always")).unwrap();
    fs.set_xattr(file, b"user.moved", Some(b"always")).unwrap();
    let over = Arc::new(AtomicBool::new(false));
    let (theirs, ends) = (fs.clone(), over.clone());
    let reader = spawn("reader", move || {
        while !ends.load(Ordering::SeqCst) {
            let found = theirs.xattr(file, b"user.kept").unwrap();
            assert_eq!(found.as_deref(), Some(&b"always"[..]));
            assert!(theirs.xattr(file, b"user.moved").unwrap().is_some());
            assert!(theirs.xattr_names(file).unwrap().contains(&b"user.moved".to_vec()));
        }
    });
    for _ in 0..2 * TIMES {
        // All of them together have no room in the dnode.
        fs.set_xattr(file, b"user.large", Some(&[1; 3000])).unwrap();
        fs.set_xattr(file, b"user.large", None).unwrap();
        // One that is too large goes into a directory of its own.
        fs.set_xattr(file, b"user.moved", Some(&[2; 40_000])).unwrap();
        fs.set_xattr(file, b"user.moved", Some(b"always")).unwrap();
    }
    over.store(true, Ordering::SeqCst);
    reader.join();
}

#[test]
fn no_read_is_older_than_what_was_written_before() {
    for seed in 0..rounds(10, 200) {
        for story in [records, data, attributes] {
            #[cfg(feature = "sim")]
            rt::sim::run(seed, move || story(seed));
            #[cfg(not(feature = "sim"))]
            story(seed);
        }
    }
}
