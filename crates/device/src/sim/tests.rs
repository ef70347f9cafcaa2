use super::*;
use crate::{Device, DeviceError, Operation, WriteDevice, WriteFile};
use rt::Rng;
use rustix::io::Errno;
use std::collections::BTreeSet;
use std::io::IoSlice;
use std::time::Duration;

const MIB: u64 = 1 << 20;

fn byte_at(device: &impl Device, offset: u64) -> u8 {
    let mut byte = [0];
    device.read_at(offset, &mut byte).expect("reads");
    byte[0]
}

fn byte_in(image: &Image, offset: u64) -> u8 {
    let mut byte = [0];
    image.read(offset, &mut byte);
    byte[0]
}

#[test]
fn a_write_is_volatile_until_a_flush() {
    let set = SimSet::new(2, MIB);
    let (a, b) = (set.disk(0), set.disk(1));
    for disk in [&a, &b] {
        disk.write_at(0, &[1]).expect("writes");
    }
    a.flush().expect("flushes");
    a.write_at(0, &[2]).expect("writes");
    assert_eq!((byte_at(&a, 0), byte_at(&b, 0)), (2, 1), "readers see the cache");
    let first = |cut| set.crash(cut, 0).iter().map(|(_, i)| byte_in(i, 0)).collect::<Vec<_>>();
    assert_eq!(first(Cut::Kept), [2, 1]);
    assert_eq!(first(Cut::Dropped), [1, 0], "a flush is of one disk only");
    let names: Vec<_> = set.crash(Cut::Kept, 0).into_iter().map(|(name, _)| name).collect();
    assert_eq!(names, ["d00", "d01"]);
}

#[test]
fn a_vectored_write_is_one_write() {
    let disk = SimDisk::new(MIB);
    let bufs = [IoSlice::new(&[1; 600]), IoSlice::new(&[2; 600])];
    disk.write_vectored_at(100, &bufs).expect("writes");
    let counts = disk.counts();
    assert_eq!((counts.writes, counts.bytes_written, disk.set().writes()), (1, 1200, 1));
    assert_eq!([99, 100, 699, 700, 1299, 1300].map(|n| byte_at(&disk, n)), [0, 1, 1, 2, 2, 0]);
}

#[test]
fn never_beyond_the_end() {
    let disk = SimDisk::new(MIB);
    for offset in [MIB, MIB - 1, u64::MAX] {
        assert!(matches!(disk.write_at(offset, &[0; 2]), Err(DeviceError::Range { .. })));
        assert!(matches!(disk.read_at(offset, &mut [0; 2]), Err(DeviceError::Range { .. })));
    }
}

/// Reordered keeps whole writes, any subset of them; Torn keeps whole sectors, any of them.
#[test]
fn what_a_crash_may_leave() {
    let set = SimSet::new(1, MIB);
    let disk = set.disk(0);
    disk.write_at(0, &[9; 4096]).expect("writes");
    disk.flush().expect("flushes");
    for n in 0..3 {
        disk.write_at(n * 1024, &[1 + n as u8; 1024]).expect("writes");
    }
    let mut whole = BTreeSet::new();
    let mut torn = BTreeSet::new();
    for seed in 0..500 {
        for (cut, seen) in [(Cut::Reordered, &mut whole), (Cut::Torn, &mut torn)] {
            let image = &set.crash(cut, seed)[0].1;
            let mut bytes = [0; 4096];
            image.read(0, &mut bytes);
            let sectors: Vec<u8> = bytes.chunks(512).map(|s| s[0]).collect();
            assert!(bytes.chunks(512).all(|s| s.iter().all(|&b| b == s[0])), "torn in a sector");
            for (n, &sector) in sectors.iter().enumerate() {
                assert!(sector == 9 || (n < 6 && sector == 1 + n as u8 / 2), "{sectors:?}");
            }
            seen.insert(sectors);
        }
    }
    assert_eq!(whole.len(), 8, "every subset of three writes is met: {whole:?}");
    assert!(whole.iter().all(|s| s.chunks(2).all(|write| write[0] == write[1])));
    for write in 0..3 {
        let outcomes: BTreeSet<_> = torn.iter().map(|s| &s[write * 2..write * 2 + 2]).collect();
        assert_eq!(outcomes.len(), 4, "every outcome of a write of two sectors is met");
    }
}

#[test]
fn overlapping_writes_may_land_in_either_order() {
    let disk = SimDisk::new(MIB);
    disk.write_at(0, &[1; 512]).expect("writes");
    disk.write_at(0, &[2; 512]).expect("writes");
    let seen: BTreeSet<u8> =
        (0..100).map(|seed| byte_in(&disk.set().crash(Cut::Reordered, seed)[0].1, 0)).collect();
    assert_eq!(seen, BTreeSet::from([0, 1, 2]));
}

#[test]
fn errors_by_range_and_count() {
    let disk = SimDisk::new(MIB);
    disk.inject(Fault::new(Kind::Error(Errno::IO), On::Reads).within(4096..8192).after(1).times(2));
    let mut buf = [0; 4096];
    let read = |offset: u64, buf: &mut [u8]| disk.read_at(offset, buf).is_ok();
    assert!(read(0, &mut buf) && read(8192, &mut buf), "elsewhere");
    assert!(read(4096, &mut buf), "skipped");
    assert!(!read(8191, &mut buf[..1]) && !read(0, &mut [0; 4097]), "twice");
    assert!(read(4096, &mut buf), "over");
    disk.write_at(4096, &buf).expect("only reads fail");
    let fault = disk.inject(Fault::new(Kind::Error(Errno::IO), On::Flushes));
    let error = disk.flush().expect_err("fails");
    assert_eq!(error.to_string(), "d00: flush of 0 bytes at 0: Input/output error (os error 5)");
    assert!(matches!(&error, DeviceError::Io { operation: Operation::Flush, .. }));
    disk.lift(fault);
    disk.flush().expect("healed");
}

#[test]
fn lost_torn_misdirected_and_flipped_writes() {
    let disk = SimDisk::new(MIB);
    let once = |kind| disk.inject(Fault::new(kind, On::Writes).times(1));
    once(Kind::Lose);
    disk.write_at(0, &[1; 1024]).expect("acknowledged");
    disk.flush().expect("flushes");
    assert_eq!(byte_at(&disk, 0), 0);

    once(Kind::Misdirect { by: -4096 });
    disk.write_at(8192, &[2; 1024]).expect("acknowledged");
    assert_eq!((byte_at(&disk, 8192), byte_at(&disk, 4096)), (0, 2));
    once(Kind::Misdirect { by: -(1 << 40) });
    disk.write_at(MIB - 512, &[3; 512]).expect("lands somewhere on the disk");

    once(Kind::Tear { seed: 1 });
    disk.write_at(16384, &[4; 8192]).expect("acknowledged");
    let landed = (0..16).filter(|n| byte_at(&disk, 16384 + n * 512) == 4).count();
    assert!(landed < 16, "{landed} of 16 sectors");

    once(Kind::FlipBit { seed: 1 });
    disk.write_at(32768, &[0xff; 512]).expect("acknowledged");
    let mut back = [0; 512];
    disk.read_at(32768, &mut back).expect("reads");
    assert_eq!(back.iter().map(|b| b.count_zeros()).sum::<u32>(), 1);
}

#[test]
fn misdirected_and_flipped_reads_leave_the_disk_alone() {
    let disk = SimDisk::new(MIB);
    disk.write_at(0, &[5; 512]).expect("writes");
    disk.inject(Fault::new(Kind::Misdirect { by: 512 }, On::Reads).times(1));
    assert_eq!((byte_at(&disk, 0), byte_at(&disk, 0)), (0, 5));
    disk.inject(Fault::new(Kind::FlipBit { seed: 3 }, On::Reads).times(1));
    assert_eq!((byte_at(&disk, 0) ^ 5).count_ones(), 1);
    assert_eq!(byte_at(&disk, 0), 5);
}

#[test]
fn rot_is_stored() {
    let disk = SimDisk::new(MIB);
    disk.rot(4096..8192, 100, 7);
    let mut bytes = vec![0; MIB as usize];
    disk.read_at(0, &mut bytes).expect("reads");
    let wrong: u32 = bytes[4096..8192].iter().map(|b| b.count_ones()).sum();
    assert!((50..=100).contains(&wrong), "{wrong} bits");
    assert_eq!(bytes.iter().map(|b| b.count_ones()).sum::<u32>(), wrong);
    assert_eq!(disk.set().crash(Cut::Dropped, 0)[0].1.hash(), disk.image().hash());
}

#[test]
fn a_vanished_disk_is_gone_for_everything_until_it_is_back() {
    let disk = SimDisk::new(MIB);
    let fault = disk.inject(Fault::new(Kind::Vanish, On::Writes).after(1));
    disk.write_at(0, &[1]).expect("still there");
    for _ in 0..2 {
        assert_eq!(disk.write_at(0, &[2]).expect_err("gone").errno(), Errno::NXIO);
        assert_eq!(disk.read_at(512, &mut [0]).expect_err("gone").errno(), Errno::NXIO);
        assert_eq!(disk.flush().expect_err("gone").errno(), Errno::NXIO);
    }
    disk.lift(fault);
    assert_eq!(byte_at(&disk, 0), 1);
}

#[test]
fn a_hanging_disk_holds_nobody_else_up() {
    let set = SimSet::new(2, MIB);
    let hung = set.disk(0);
    let fault = hung.inject(Fault::new(Kind::Hang, On::Writes));
    let (done, finished) = rt::sync::mpsc::bounded(1);
    let writer = hung.clone();
    let thread = rt::thread::spawn("writer", move || {
        writer.write_at(0, &[1]).expect("done at last");
        done.send(()).expect("somebody waits");
    });
    assert!(finished.recv_timeout(Duration::from_millis(30)).is_err(), "it hangs");
    set.disk(1).write_at(0, &[1]).expect("the other disk goes on");
    assert_eq!(byte_at(&hung, 0), 0, "its reads go on");
    hung.lift(fault);
    thread.join();
    assert_eq!((finished.try_recv(), byte_at(&hung, 0)), (Ok(()), 1));
}

#[test]
fn a_slow_disk_takes_its_time() {
    let disk = SimDisk::new(MIB);
    disk.inject(Fault::new(Kind::Slow(Duration::from_millis(20)), On::All).times(1));
    let start = rt::time::now();
    disk.write_at(0, &[1]).expect("writes");
    assert!(start.elapsed() >= Duration::from_millis(20));
}

#[test]
fn after_the_power_cut_nothing_goes() {
    let set = SimSet::new(2, MIB);
    set.cut_after(3);
    let results: Vec<bool> =
        (0..5).map(|n| set.disk(n % 2).write_at(n as u64, &[1]).is_ok()).collect();
    assert_eq!(results, [true, true, true, false, false]);
    assert_eq!(set.writes(), 3);
    assert!(set.disk(0).read_at(0, &mut [0]).is_err() && set.disk(0).flush().is_err());
}

/// A workload that any store follows: data first, flush, then what points to it, flush.
fn two_step_commits(set: &SimSet, disk_flush: bool) {
    let (data, root) = (set.disk(0), set.disk(1));
    for txg in 1..=20u64 {
        for block in 0..4 {
            data.write_at((txg * 4 + block) * 512, &[txg as u8; 512]).expect("writes");
        }
        if disk_flush {
            data.flush().expect("flushes");
        }
        root.write_at(0, &[txg as u8; 512]).expect("writes");
        root.flush().expect("flushes");
        set.mark(txg);
    }
}

/// True when every root that could survive has all its data, and is not older than the mark.
fn survives(images: &[(String, Image)], mark: u64) -> bool {
    let txg = u64::from(byte_in(&images[1].1, 0));
    let whole = (0..4).all(|block| {
        let mut sector = [0; 512];
        images[0].1.read((txg * 4 + block) * 512, &mut sector);
        txg == 0 || sector.iter().all(|&b| u64::from(b) == txg)
    });
    whole && txg >= mark
}

/// Cuts after every write in every mode; the number of cuts that lost something.
fn losses(log: &Log) -> usize {
    let mut lost = 0;
    let mut replay = log.replay();
    for index in 0..=log.writes() {
        replay.advance_to(index);
        for (cut, seed) in Cut::ALL.into_iter().flat_map(|cut| (0..8).map(move |s| (cut, s))) {
            let whole = survives(&replay.crash(cut, seed), replay.mark().unwrap_or(0));
            lost += usize::from(!whole);
        }
    }
    lost
}

#[test]
fn an_honest_commit_survives_every_cut() {
    let set = SimSet::new(2, MIB);
    set.record();
    two_step_commits(&set, true);
    let log = set.log();
    assert_eq!((log.writes(), set.writes()), (100, 100));
    assert_eq!(losses(&log), 0);
}

/// The same check must find a commit that forgets to flush, one whose disk says that it flushed
/// and did not, and one whose disk loses a write: otherwise the test above proves nothing.
#[test]
fn a_dishonest_commit_is_found() {
    let forgetful = SimSet::new(2, MIB);
    forgetful.record();
    two_step_commits(&forgetful, false);
    assert!(losses(&forgetful.log()) > 100);

    for (kind, on) in [(Kind::Lie, On::Flushes), (Kind::Lose, On::Writes)] {
        let set = SimSet::new(2, MIB);
        set.record();
        set.disk(0).inject(Fault::new(kind, on).after(7).times(1));
        two_step_commits(&set, true);
        assert_eq!(set.writes(), set.log().writes());
        assert!(losses(&set.log()) > 0);
    }
    let set = SimSet::new(2, MIB);
    set.record();
    set.disk(1).inject(Fault::new(Kind::Lie, On::Flushes).after(7).times(1));
    two_step_commits(&set, true);
    assert!(losses(&set.log()) > 0, "the mark was set and the root is not there");
}

/// The same writes on the same disks, at random places, some flushed.
fn random_writes(disks: &[impl WriteDevice], count: u64, size_max: u64, seed: u64) {
    let mut rng = Rng::new(seed);
    for _ in 0..count {
        let disk = &disks[rng.index(disks.len())];
        let mut bytes = vec![0; 1 + rng.index(size_max as usize)];
        rng.fill(&mut bytes);
        let at = rng.below(disk.size() - bytes.len() as u64);
        disk.write_at(at, &bytes).expect("writes");
        if rng.chance(1, 6) {
            disk.flush().expect("flushes");
        }
    }
}

#[test]
fn a_replay_gives_what_the_disks_gave() {
    for index in [0, 1, 17, 100] {
        let set = SimSet::new(3, MIB);
        set.record();
        let full = SimSet::new(3, MIB);
        full.record();
        random_writes(&full.disks(), 100, 20_000, 5);
        let log = full.log();
        let mut replay = log.replay();
        replay.advance_to(index);
        assert_eq!(replay.writes(), index);
        // The live disks up to the same write, without what followed it.
        for event in log.events() {
            match event {
                Event::Write { disk, offset, bytes } if set.writes() < index => {
                    set.disk(*disk).write_at(*offset, bytes).expect("writes");
                }
                Event::Flush { disk } if set.writes() < index => {
                    set.disk(*disk).flush().expect("flushes");
                }
                _ => {}
            }
        }
        let hashes = |images: Vec<(String, Image)>| {
            images.iter().map(|(_, image)| image.hash()).collect::<Vec<_>>()
        };
        for cut in [Cut::Kept, Cut::Dropped] {
            assert_eq!(hashes(replay.crash(cut, 0)), hashes(set.crash(cut, 0)));
        }
        let torn = |seed| hashes(replay.crash(Cut::Torn, seed));
        assert_eq!(torn(3), torn(3), "a seed is a seed");
    }
}

#[test]
fn a_recorder_over_files_sees_the_same() {
    let dir = tempfile::tempdir().expect("a temporary directory");
    let recorder = Recorder::new();
    let start = [7u8; 5000];
    let open = |n: usize| {
        let path = dir.path().join(format!("d{n:02}"));
        let mut bytes = vec![0; MIB as usize];
        bytes[..5000].copy_from_slice(&start);
        std::fs::write(&path, bytes).expect("an image");
        recorder.wrap(WriteFile::open(&path).expect("opens")).expect("reads")
    };
    let files = [open(0), open(1)];
    random_writes(&files, 60, 20_000, 11);
    let set = SimSet::new(2, MIB);
    set.disks().iter().for_each(|d| d.overwrite(0, &start));
    set.record();
    random_writes(&set.disks(), 60, 20_000, 11);
    let (ours, theirs) = (recorder.log(), set.log());
    assert_eq!(ours.writes(), theirs.writes());
    let (mut a, mut b) = (ours.replay(), theirs.replay());
    for index in 0..=60 {
        a.advance_to(index);
        b.advance_to(index);
        for cut in Cut::ALL {
            for ((_, x), (_, y)) in a.crash(cut, index).iter().zip(&b.crash(cut, index)) {
                assert_eq!(x.hash(), y.hash());
            }
        }
    }
    for (n, file) in files.iter().enumerate() {
        let on_disk = Image::from_file(file.inner().path()).expect("reads");
        assert_eq!(on_disk.hash(), set.disk(n).image().hash());
    }
}

#[test]
fn one_history_one_trace() {
    let trace = |seed| {
        let set = SimSet::new(2, MIB);
        random_writes(&set.disks(), 50, 5_000, seed);
        set.trace()
    };
    assert_eq!(trace(1), trace(1));
    assert_ne!(trace(1), trace(2));
}

#[test]
fn a_reader_is_the_same_disk() {
    let disk = SimDisk::new(MIB);
    let reader = disk.reader();
    disk.write_at(5, &[8]).expect("writes");
    assert_eq!((byte_at(&reader, 5), reader.name(), reader.size()), (8, "d00", MIB));
}

/// A fence for the crash runs: every index of a long workload, many seeds, in seconds.
#[test]
fn every_index_is_cheap() {
    let set = SimSet::new(4, 64 * MIB);
    set.record();
    random_writes(&set.disks(), 1_500, 128 << 10, 3);
    let log = set.log();
    let start = rt::time::now();
    let mut replay = log.replay();
    let mut cuts = 0u64;
    for index in 0..=log.writes() {
        replay.advance_to(index);
        for seed in 0..4 {
            for cut in Cut::ALL {
                assert_eq!(replay.crash(cut, seed).len(), 4);
                cuts += 1;
            }
        }
    }
    let each = start.elapsed() / cuts as u32;
    println!("{cuts} crashes of four disks, {each:?} each");
    assert!(each < Duration::from_millis(10), "{each:?}");
}
