//! Long reads from disks: ahead of the reader, in large pieces, and never anything but the file as it is.

use device::sim::SimSet;
use format::label::DATA_AT;
use fs::{Filesystem, NewObject, Who, mode};
use pool::{Pool, Stored};
use rt::Rng;
use rt::sync::Arc;

use crate::rig::{self, MIRROR, RAIDZ2, Shape};

const RECORD: u64 = 16 << 10;
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
fn pool_with_file(shape: Shape, data: &[u8]) -> (SimSet, Arc<Pool>) {
    let set = SimSet::new(shape.disks, shape.disk_bytes);
    let pool = rig::create(&set, shape).unwrap();
    pool.set_property(rig::POOL, "recordsize", Some(Stored::Number(RECORD))).unwrap();
    let fs = Filesystem::open(&pool, rig::POOL).unwrap();
    let file = NewObject::of(mode::FILE | 0o644, Who { uid: 0, gid: 0 });
    fs.create_with(fs.root(), b"file", &file, data).unwrap();
    drop(fs);
    pool.close().unwrap();
    drop(pool);
    let pool = rig::open_on(&set, &rig::all(&set), rig::HOSTS[0], Some(60_000)).unwrap();
    (set, pool)
}

fn reads(set: &SimSet) -> u64 {
    set.disks().iter().map(|disk| disk.counts().reads).sum()
}

#[test]
fn a_stream_takes_few_reads_and_gets_the_file() {
    let data = contents(1, SIZE);
    for shape in [RAIDZ2, MIRROR] {
        let (set, pool) = pool_with_file(shape, &data);
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

/// Disks that hold rubbish, as many as the redundancy bears.
#[test]
fn a_stream_from_disks_that_lie_gets_the_file() {
    let data = contents(2, SIZE);
    for (shape, liars) in [(RAIDZ2, vec![1, 3]), (MIRROR, vec![1])] {
        let (set, pool) = pool_with_file(shape, &data);
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
    let mut data = contents(4, SIZE);
    let (_set, pool) = pool_with_file(RAIDZ2, &data);
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
