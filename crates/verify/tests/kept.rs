//! A judgement that was stopped goes on: it says what it would have said in one piece, and does not read again
//! what it had read.
//!
//! Seen red: with all blocks known to be good, with bad ones passed over, with the state of another txg believed,
//! and with one that is never written.

#![allow(clippy::unwrap_used)]

use std::fs;
use std::os::unix::fs::FileExt;
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::path::Path;

use testkit::{Images, Kind};
use verify::{Keep, Options, Report, Verdict, VerifyError};

/// Bytes of contents between two writes of the state.
const EVERY: u64 = 16 << 10;

fn judge(dir: &Path, keep: Option<Keep>) -> Result<Report, VerifyError> {
    stopped_after(dir, keep, u64::MAX)
}

/// Judges until so many bytes were examined, and is gone then, as if killed.
fn stopped_after(dir: &Path, keep: Option<Keep>, bytes: u64) -> Result<Report, VerifyError> {
    let scan = vdev::import::scan(&[dir.to_owned()]).unwrap();
    let options = Options { keep, ..Options::default() };
    verify::verify_pool(&scan.pools[0], &options, &mut |progress| {
        if progress.bytes >= bytes {
            resume_unwind(Box::new(STOPPED));
        }
        true
    })
}

const STOPPED: &str = "stopped";

/// Judges, but not to the end.
fn stop(dir: &Path, keep: &Keep, bytes: u64) {
    let run = || stopped_after(dir, Some(keep.clone()), bytes).map(|_| ());
    let panic = catch_unwind(AssertUnwindSafe(run)).unwrap_err();
    assert_eq!(panic.downcast_ref(), Some(&STOPPED));
}

/// A report in words, without what is said about the judgement.
fn told(report: &Report) -> String {
    format!("{:?}", Report { notes: Vec::new(), ..report.clone() })
}

/// A copy of a golden pool that may be changed, and a place for the state beside it.
fn copy(name: &str) -> (Images, Keep) {
    let images = Images::copy_of(&testkit::golden(name));
    let keep = Keep { every: EVERY, ..Keep::new(images.path().join("state")) };
    (images, keep)
}

/// Noise over an image, but for its labels, in pieces of 4 KiB every 128 KiB, beginning elsewhere for each seed.
fn hurt(image: &Path, seed: u64) {
    let file = fs::OpenOptions::new().write(true).open(image).unwrap();
    let len = file.metadata().unwrap().len();
    let mut rng = testkit::random::Rng::new(seed);
    let mut noise = vec![0; 4096];
    for at in ((4 << 20) + (seed << 15)..len - (1 << 20)).step_by(128 << 10) {
        rng.fill(&mut noise);
        file.write_all_at(&noise, at).unwrap();
    }
}

#[test]
fn a_judgement_in_pieces_says_what_one_in_a_piece_says() {
    for name in ["rz2", "hurt", "hurt2"] {
        let (images, keep) = copy(name);
        let whole = judge(images.path(), None).unwrap();
        for share in 1..8 {
            stop(images.path(), &keep, whole.bytes * share / 8);
            assert!(keep.file.exists(), "{name}: killed, and nothing is kept");
        }
        let last = judge(images.path(), Some(keep.clone())).unwrap();
        assert_eq!(told(&last), told(&whole), "{name}");
        assert!(!keep.file.exists(), "{name}: done, and its state is still there");
        let [note] = &last.notes[..] else { panic!("{name}: {:?}", last.notes) };
        let before: u64 = note.split(' ').next().unwrap().parse().unwrap();
        // Where a disk is noise, nearly all has to be read again.
        let least = if name == "rz2" { whole.bytes / 4 } else { 1 };
        assert!(before > least && before < whole.bytes, "{name}: {note} of {}", whole.bytes);
    }
}

/// Who does not wait any more is told nothing more, and leaves behind all that was learnt until then.
#[test]
fn a_judgement_that_nobody_waits_for_ends_and_another_goes_on() {
    for name in ["rz2", "hurt"] {
        let (images, keep) = copy(name);
        // It is written at the end alone.
        let keep = Keep { every: u64::MAX, ..keep };
        let whole = judge(images.path(), None).unwrap();
        let scan = vdev::import::scan(&[images.path().to_owned()]).unwrap();
        for share in 1..8 {
            let (mut told, mut gone) = (0, 0);
            let options = Options { keep: Some(keep.clone()), ..Options::default() };
            let judged = verify::verify_pool(&scan.pools[0], &options, &mut |progress| {
                told += 1;
                gone += u64::from(progress.bytes >= whole.bytes * share / 8);
                gone == 0
            });
            assert!(matches!(judged, Err(VerifyError::Abandoned)), "{name}");
            assert!(told > 0 && gone == 1, "{name}: told {told} times, {gone} after he had gone");
        }
        let last = judge(images.path(), Some(keep)).unwrap();
        assert_eq!(told(&last), told(&whole), "{name}");
        let [note] = &last.notes[..] else { panic!("{name}: {:?}", last.notes) };
        let before: u64 = note.split(' ').next().unwrap().parse().unwrap();
        let least = if name == "rz2" { whole.bytes / 4 } else { 1 };
        assert!(before > least && before < whole.bytes, "{name}: {note} of {}", whole.bytes);
    }
}

#[test]
fn what_was_examined_is_not_read_again_and_what_was_bad_is() {
    let (images, keep) = copy("mir");
    hurt(&images.disk(0), 1);
    let whole = judge(images.path(), None).unwrap();
    assert_eq!(whole.verdict, Verdict::Whole);
    let bad = |report: &Report| report.devices.iter().map(|device| device.bad_blocks).sum::<u64>();
    stop(images.path(), &keep, whole.bytes * 7 / 8);
    // More damage, after the judge was there: he may see no more of it than is in what he had still to read, and
    // in metadata, which he reads again.
    let second = images.disk(1);
    let good = fs::read(&second).unwrap();
    hurt(&second, 2);
    let now = judge(images.path(), None).unwrap();
    let all = bad(&now);
    let resumed = judge(images.path(), Some(keep.clone())).unwrap();
    assert!(bad(&resumed) >= bad(&whole), "{} {}", bad(&resumed), bad(&whole));
    assert!(bad(&resumed) < all, "{} of {all}", bad(&resumed));
    // Once that is mended again, what was bad at first is told as before.
    fs::write(&second, good).unwrap();
    stop(images.path(), &keep, whole.bytes * 7 / 8);
    assert_eq!(told(&judge(images.path(), Some(keep)).unwrap()), told(&whole));
}

#[test]
fn with_a_disk_away_its_pieces_are_counted_once() {
    let (images, keep) = copy("rz1");
    images.remove(1);
    let whole = judge(images.path(), None).unwrap();
    assert!(whole.recovered_blocks > 100);
    stop(images.path(), &keep, whole.bytes / 2);
    stop(images.path(), &keep, whole.bytes * 3 / 4);
    assert_eq!(told(&judge(images.path(), Some(keep)).unwrap()), told(&whole));
}

#[test]
fn a_state_that_is_not_this_pools_is_not_believed() {
    let (images, keep) = copy("rz1");
    let whole = judge(images.path(), None).unwrap();
    stop(images.path(), &keep, whole.bytes / 2);
    let state = fs::read_to_string(&keep.file).unwrap();
    let with = |from: &str, to: &str| {
        assert!(state.contains(from), "{state}");
        fs::write(&keep.file, state.replacen(from, to, 1)).unwrap();
        judge(images.path(), Some(keep.clone()))
    };
    let other = with(" txg ", " txg 1").unwrap();
    assert!(other.notes[0].contains("begun anew"), "{:?}", other.notes);
    assert_eq!((other.notes.len(), told(&other)), (1, told(&whole)));
    let other = with("leaves ", "leaves 5 ").unwrap();
    assert!(other.notes[0].contains("other disks"), "{:?}", other.notes);
    let sets = state.lines().find_map(|line| line.strip_prefix("missing 0 ")).unwrap();
    let other = with(sets, "sets 12").unwrap();
    assert!(other.notes[0].contains("other data sets"), "{:?}", other.notes);
    assert_eq!((other.notes.len(), told(&other)), (1, told(&whole)));
    for (from, to) in [
        ("pool ", "pool 7"),
        ("thumper", "dumper"),
        ("missing 0", "missing -1"),
        ("upto ", "upto x"),
        ("upto ", "bad 9 9 9\nupto "),
    ] {
        let error = with(from, to).unwrap_err().to_string();
        assert!(error.contains("remove it to begin anew"), "{from}: {error}");
    }
    // The state of another pool, by its own name, says so.
    let (other, _) = copy("single");
    fs::write(&keep.file, &state).unwrap();
    let error = judge(other.path(), Some(keep.clone())).unwrap_err().to_string();
    assert!(error.contains("a pool with guid"), "{error}");
    // A place where no file can be made.
    let nowhere = Keep::new(keep.file.join("below"));
    assert!(matches!(judge(images.path(), Some(nowhere)), Err(VerifyError::Keep { .. })));
    // Contents are files' and volumes' alone: a golden pool has both.
    let truth = testkit::truth("rz1");
    let files = truth.entries("rz1").map(|all| all.iter().filter(|e| e.kind == Kind::File).count());
    assert!(files.is_ok_and(|count| count > 10));
}
