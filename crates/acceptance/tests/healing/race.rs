//! A heal against those who free its block and write another in its place.
//!
//! The one idea: a disk that is slow to read, and only for the healer, makes the time between looking a block up and
//! writing it back so long that its space would be handed out in it, if nothing kept it.

use std::time::Duration;

use device::sim::{Fault, Kind, On, SimSet};
use format::label::DATA_AT;
use format::scan::Bookmark;
use fs::{Filesystem, NewObject, Who, mode};
use pool::Pool;
use store::Trouble;
use testkit::random::Rng;
use testkit::rounds;

use crate::rig::{self, MIRROR, POOL, Shape};

const SMALL: Shape = Shape { disk_bytes: 72 << 20, ..MIRROR };
const RECORD: usize = 16 << 10;
const RECORDS: usize = 16;
/// How long the healer's disk takes for a read.
const SLOW: Duration = Duration::from_millis(60);

fn noise(rng: &mut Rng, size: usize) -> Vec<u8> {
    let mut bytes = vec![0; size];
    rng.fill(&mut bytes);
    bytes
}

/// Pieces of a file's blocks that are not right on some disk.
fn wrong(pool: &Pool, objset: u64, object: u64) -> usize {
    let (store, mut scratch) = (pool.store(), vdev::ReadScratch::default());
    let mut count = 0;
    for block in 0..RECORDS as u64 {
        let at = Bookmark { objset, object, level: 0, block };
        let Some(bp) = pool.pointer_at(at).unwrap() else { continue };
        for part in store.parts(&bp).unwrap() {
            for dva in part.copies() {
                let mut buf = vec![0; part.size()];
                let birth = part.bp.physical_birth();
                let mut check = |bytes: &[u8]| store.is_right(&part, bytes);
                let tree = store.tree();
                let examined =
                    tree.examine(dva.vdev, dva.offset, birth, &mut buf, &mut scratch, &mut check);
                count += examined.unwrap().faults.len();
            }
        }
    }
    count
}

#[test]
fn a_heal_never_hits_another_block() {
    let set = SimSet::new(SMALL.disks, SMALL.disk_bytes);
    let pool = rig::create(&set, SMALL).unwrap();
    let fs = Filesystem::open(&pool, POOL).unwrap();
    let objset = pool.dataset(POOL).unwrap().object;
    let new = NewObject::of(mode::FILE | 0o644, Who { uid: 0, gid: 0 });
    let mut rng = Rng::of(5, 5);
    // What is freed is soon wanted again: there is not much else.
    let root = fs.root();
    for i in 0..40 {
        let name = format!("ballast{i}");
        let bytes = noise(&mut rng, 1 << 20);
        if fs.create_with(root, name.as_bytes(), &new, &bytes).is_err() {
            break;
        }
        pool.sync().unwrap();
    }
    let file = fs.create_with(root, b"file", &new, &noise(&mut rng, RECORD * RECORDS)).unwrap();
    pool.sync().unwrap();
    let mut healed = 0;
    for round in 0..rounds(6, 100) {
        for block in 0..RECORDS as u64 {
            let at = Bookmark { objset, object: file, level: 0, block };
            let bp = pool.pointer_at(at).unwrap().unwrap();
            set.disk(1).overwrite(DATA_AT + bp.dva(0).offset, &noise(&mut rng, 512));
        }
        let slow = set.disk(1).inject(Fault::new(Kind::Slow(SLOW), On::Reads));
        for block in 0..RECORDS as u64 {
            let at = Bookmark { objset, object: file, level: 0, block };
            pool.store().troubles().tell(at, Trouble::default());
        }
        // Each heal takes a while, and all that is its own goes meanwhile.
        for _ in 0..12 {
            fs.write(file, 0, &noise(&mut rng, RECORD * RECORDS)).unwrap();
            pool.sync().unwrap();
        }
        assert!(pool.finish_healing(Duration::from_secs(60)), "round {round}");
        set.disk(1).lift(slow);
        assert_eq!(wrong(&pool, objset, file), 0, "round {round}: a heal has hit another block");
        for i in 0..40 {
            let Ok(ballast) = fs.resolve(format!("ballast{i}").as_bytes()) else { break };
            assert_eq!(wrong(&pool, objset, ballast), 0, "round {round}");
        }
        healed = pool.healed();
    }
    drop(fs);
    pool.close().unwrap();
    assert!(healed > 0, "nothing was healed, so nothing was shown");
}
