//! Garbage on all disks at once, so placed that no block loses more than may be lost.

use std::collections::BTreeMap;

use pool::Stored;
use rt::Rng;

use crate::rig::{self, STRIPE, Shape};
use crate::{SHAPES, Told, map, nothing_is_left, open, scrub, tell, the_judges_are_content};

/// Each copy of each block loses as many of its pieces as it may, and then one copy of all that have several loses all.
#[test]
fn garbage_on_all_disks_at_once_is_mended() {
    let mut done = Vec::new();
    for (seed, shape) in (3..).zip(SHAPES) {
        let told = tell(shape, seed);
        let set = told.set();
        let mut rng = Rng::new(seed);
        for copy in copies(&told) {
            map::hurt(&set, &copy, shape.parity(), &mut rng);
        }
        // Every disk lies somewhere, and none of them everywhere.
        told.is_whole(&set, &rig::all(&set), &rig::all(&set)).unwrap();
        mended(&told, &set, "columns");
        done.push(set);
        let set = told.set();
        for block in by_block(copies(&told)).into_values().filter(|block| block.len() > 1) {
            let whole = rng.index(block.len());
            for (place, copy) in block.iter().enumerate() {
                let all = if place == whole { shape.parity() } else { copy.pieces.len() };
                map::hurt(&set, copy, all, &mut rng);
            }
        }
        mended(&told, &set, "copies");
        done.push(set);
    }
    let names: Vec<String> = (0..done.len()).map(|place| format!("p{place}")).collect();
    let sets: Vec<_> = names.iter().map(String::as_str).zip(&done).collect();
    the_judges_are_content(&sets);
}

/// One disk, on which data has two copies or three, and some of it is in gangs.
#[test]
fn copies_on_a_single_disk_are_mended() {
    for copies_of in [2, 3] {
        let mut told = tell(Shape { gang_every: 4, ..STRIPE }, copies_of);
        let set = told.set();
        let pool = open(&set, &[0]);
        pool.force_gangs(1024, 4).unwrap();
        pool.set_property(rig::POOL, "copies", Some(Stored::Number(copies_of))).unwrap();
        let fs = fs::Filesystem::open(&pool, rig::POOL).unwrap();
        let new = fs::NewObject::of(fs::mode::FILE | 0o644, fs::Who { uid: 0, gid: 0 });
        let mut bytes = vec![0; 900_000];
        Rng::new(copies_of).fill(&mut bytes);
        let file = fs.create_with(fs.root(), b"copied", &new, &bytes).unwrap();
        let objset = pool.dataset(rig::POOL).unwrap().object;
        drop(fs);
        pool.close().unwrap();
        drop(pool);
        told.images = images(&set);
        let mut rng = Rng::new(copies_of);
        let mut several = 0;
        for block in by_block(copies(&told)).into_values() {
            let whole = rng.index(block.len());
            several += u64::from(
                block.len() > 1 && (block[0].at.objset, block[0].at.object) == (objset, file),
            );
            for (place, copy) in block.iter().enumerate() {
                map::hurt(&set, copy, usize::from(place != whole), &mut rng);
            }
        }
        assert!(several >= 900_000 >> 14, "{several} blocks of several copies");
        let pool = open(&set, &[0]);
        let status = scrub(&pool).scan;
        assert!(status.errors == 0 && status.processed > 900_000, "{status:?}");
        let fs = fs::Filesystem::open(&pool, rig::POOL).unwrap();
        let mut seen = vec![0; bytes.len()];
        fs.read(file, 0, &mut seen).unwrap();
        assert!(seen == bytes, "other bytes");
        drop(fs);
        pool.close().unwrap();
        drop(pool);
        nothing_is_left(&set, "copies on one disk");
    }
}

fn images(set: &device::sim::SimSet) -> Vec<(String, device::sim::Image)> {
    let disks = set.disks();
    disks.iter().map(|disk| (device::Device::name(disk).to_owned(), disk.image())).collect()
}

fn copies(told: &Told) -> Vec<map::Copy> {
    let set = told.set();
    let (pool, _) = rig::open_to_read(&set, &rig::all(&set), u64::MAX).unwrap().unwrap();
    let copies = map::of(&pool, told.shape);
    assert!(copies.len() > 100, "{} copies", copies.len());
    copies
}

fn by_block(copies: Vec<map::Copy>) -> BTreeMap<u64, Vec<map::Copy>> {
    let mut blocks: BTreeMap<u64, Vec<map::Copy>> = BTreeMap::new();
    copies.into_iter().for_each(|copy| blocks.entry(copy.block).or_default().push(copy));
    blocks
}

/// One scrub puts it right.
fn mended(told: &Told, set: &device::sim::SimSet, what: &str) {
    let what = format!("{what} of {:?}", told.shape);
    let pool = open(set, &rig::all(set));
    let status = scrub(&pool).scan;
    assert!(status.errors == 0 && status.processed > 0, "{what}: {status:?}");
    pool.close().unwrap();
    drop(pool);
    nothing_is_left(set, &what);
    let some = told.others(&[]);
    told.survives(set, &some[..some.len().min(4)], &what);
}
