//! Whole disks: gone and replaced, or full of noise and written back.

use device::sim::{Image, SimSet};
use format::label::DATA_AT;
use format::scan::ScanFunction;
use pool::ScanStep;
use rt::Rng;

use crate::{
    SHAPES, Told, choices, nothing_is_left, open, rig, scrub, tell, the_judges_are_content,
};

/// What becomes of the disks of a choice.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Fate {
    /// All are gone, and new ones take their places.
    Gone,
    /// All hold noise, but for their labels.
    Noise,
    /// One holds noise, the others are gone.
    Both,
}

/// Every choice of as many disks as may be lost, in each way.
#[test]
fn every_choice_of_disks_is_written_back() {
    let mut done = Vec::new();
    for (seed, shape) in (1..).zip(SHAPES) {
        let told = tell(shape, seed);
        for (turn, bad) in choices(shape.disks, shape.parity()).into_iter().enumerate() {
            let fates = [Fate::Gone, Fate::Noise, Fate::Both];
            let quick = testkit::rounds(1, 3) == 1;
            for fate in fates.iter().filter(|fate| !quick || **fate == fates[turn % 3]) {
                let what = format!("{:?} of {} disks: {bad:?} {fate:?}", shape.joined, shape.disks);
                let set = written_back(&told, &bad, *fate, &what);
                let others = told.others(&bad);
                told.survives(&set, &others[turn % others.len()..][..1], &what);
                if turn == 0 {
                    nothing_is_left(&set, &what);
                    done.push(set);
                }
            }
        }
    }
    let names: Vec<String> = (0..done.len()).map(|place| format!("p{place}")).collect();
    let sets: Vec<_> = names.iter().map(String::as_str).zip(&done).collect();
    the_judges_are_content(&sets);
}

fn written_back(told: &Told, bad: &[usize], fate: Fate, what: &str) -> SimSet {
    let noisy: &[usize] = match fate {
        Fate::Gone => &[],
        Fate::Noise => bad,
        Fate::Both => &bad[..1],
    };
    let gone: Vec<usize> = bad.iter().copied().filter(|disk| !noisy.contains(disk)).collect();
    let mut images = told.images.clone();
    gone.iter().for_each(|disk| images[*disk].1 = Image::new(told.shape.disk_bytes));
    let set = SimSet::from_images(images);
    let mut rng = Rng::new(bad[0] as u64);
    noisy.iter().for_each(|disk| garble(&set, *disk, told.shape.disk_bytes, &mut rng));
    let left: Vec<usize> = (0..set.len()).filter(|disk| !gone.contains(disk)).collect();
    told.is_whole(&set, &left, noisy).unwrap_or_else(|e| panic!("{what}: {e}"));
    let pool = open(&set, &left);
    if !noisy.is_empty() {
        let status = scrub(&pool).scan;
        assert!(status.errors == 0 && status.processed > 1 << 20, "{what}: {status:?}");
    }
    for disk in &gone {
        pool.attach(rig::guid_on(&pool, *disk), rig::new_leaf(&set, *disk), true).unwrap();
    }
    if !gone.is_empty() {
        pool.scan_start(ScanFunction::Resilver).unwrap();
        assert_eq!(pool.scan_run(&mut |_| true).unwrap(), ScanStep::Done);
        assert!(!pool.needs_resilver(), "{what}: {:?}", pool.scan_status());
        let whole = pool.config().vdev_tree.walk().all(|vdev| vdev.kind.name() != b"replacing");
        assert!(whole, "{what}: what was replaced is still there");
    }
    pool.close().unwrap();
    set
}

/// Noise on a disk wherever something is, but not on its labels.
fn garble(set: &SimSet, disk: usize, size: u64, rng: &mut Rng) {
    let disk = set.disk(disk);
    let image = disk.image();
    let mut piece = vec![0; 16 << 10];
    let mut at = DATA_AT;
    while at < size - (512 << 10) {
        image.read(at, &mut piece);
        if piece.iter().any(|byte| *byte != 0) {
            rng.fill(&mut piece);
            disk.overwrite(at, &piece);
        }
        at += piece.len() as u64;
    }
}
