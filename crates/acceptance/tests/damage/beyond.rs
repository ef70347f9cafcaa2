//! Beyond what redundancy can give: exactly that is named, all else is read, and nothing is made up.

use std::collections::{BTreeMap, BTreeSet};

use format::scan::Bookmark;
use fs::{Filesystem, NewObject, Who, mode};
use rt::Rng;

use crate::{SHAPES, map, open, rig, scrub, tell};

/// Bytes of a record.
const RECORD: usize = 16 << 10;

#[test]
fn exactly_what_is_lost_is_named() {
    for (seed, shape) in (1..).zip(SHAPES) {
        let told = tell(shape, seed);
        let set = told.set();
        let pool = open(&set, &rig::all(&set));
        let fs = Filesystem::open(&pool, rig::POOL).unwrap();
        let new = NewObject::of(mode::FILE | 0o644, Who { uid: 0, gid: 0 });
        let mut rng = Rng::new(seed);
        let mut files = BTreeMap::new();
        for number in 0..6 {
            let mut bytes = vec![0; (1 + number) * 50_000];
            rng.fill(&mut bytes);
            let name = format!("new{number}");
            let object = fs.create_with(fs.root(), name.as_bytes(), &new, &bytes).unwrap();
            files.insert(object, bytes);
        }
        drop(fs);
        pool.sync().unwrap();
        let objset = pool.dataset(rig::POOL).unwrap().object;
        let copies = map::of(&pool, shape);
        pool.close().unwrap();
        drop(pool);
        // Every third data block of every second new file is lost; of all others a part.
        let is_lost = |at: &Bookmark| {
            let place = files.keys().position(|object| *object == at.object);
            at.objset == objset
                && at.level == 0
                && at.block % 3 == 1
                && place.is_some_and(|place| place % 2 == 1)
        };
        let mut lost = BTreeSet::new();
        for copy in copies {
            let all = is_lost(&copy.at);
            let count = if all { copy.pieces.len() } else { shape.parity() };
            map::hurt(&set, &copy, count, &mut rng);
            lost.extend(all.then_some(copy.at));
        }
        assert!(lost.len() > 5, "{lost:?}");
        let pool = open(&set, &rig::all(&set));
        let status = scrub(&pool).scan;
        pool.sync().unwrap();
        assert_eq!(pool.lost_blocks().unwrap(), lost, "{shape:?}: {status:?}");
        let fs = Filesystem::open(&pool, rig::POOL).unwrap();
        for (object, bytes) in &files {
            for (block, due) in bytes.chunks(RECORD).enumerate() {
                let at = Bookmark { objset, object: *object, level: 0, block: block as u64 };
                let mut seen = vec![0; due.len()];
                let read = fs.read(*object, (block * RECORD) as u64, &mut seen);
                assert_eq!(read.is_err(), lost.contains(&at), "{shape:?}: {at:?}: {read:?}");
                assert!(read.is_err() || seen == due, "{shape:?}: {at:?} has other bytes");
            }
        }
        drop(fs);
        // A second scrub finds the same, and writes nothing of blocks.
        let again = scrub(&pool).scan;
        assert_eq!((again.processed, again.errors), (0, status.errors), "{again:?}");
        assert_eq!(pool.lost_blocks().unwrap(), lost, "{shape:?}");
        pool.close().unwrap();
        drop(pool);
        let pool = open(&set, &rig::all(&set));
        assert_eq!(pool.lost_blocks().unwrap(), lost, "{shape:?}: forgotten");
        pool.close().unwrap();
    }
}
