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
use testkit::{noise, rounds};

use crate::rig::{self, MIRROR, POOL, Shape};

const SMALL: Shape = Shape { disk_bytes: 72 << 20, ..MIRROR };
/// Bytes of the file whose blocks are healed.
const SMALL_FILE: usize = 64 << 10;
/// Bytes of a file that fills most of the pool, and of what is written over of it in each txg: what is freed is soon
/// wanted again, and then in use for some txgs.
const CHURN: usize = 24 << 20;
const SLICE: usize = 3 << 20;
/// How long the healer waits for what he reads.
const SLOW: Duration = Duration::from_millis(1200);

/// Pieces of a file's blocks that are not right on some disk.
fn wrong(pool: &Pool, objset: u64, object: u64) -> usize {
    let (store, mut scratch) = (pool.store(), vdev::ReadScratch::default());
    let mut count = 0;
    for block in 0..(CHURN >> 14) as u64 {
        let at = Bookmark { objset, object, level: 0, block };
        let Some(bp) = pool.pointer_at(at).unwrap() else { break };
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
    let root = fs.root();
    let churn = fs.create_with(root, b"churn", &new, &noise(rng.word(), CHURN)).unwrap();
    let file = fs.create_with(root, b"file", &new, &noise(rng.word(), SMALL_FILE)).unwrap();
    pool.sync().unwrap();
    let (mut txgs, disk) = (0, set.disk(1));
    for round in 0..rounds(4, 200) {
        // One block is hurt, and its healer waits for the disk, once.
        let at = Bookmark { objset, object: file, level: 0, block: round % 4 };
        let dva = pool.pointer_at(at).unwrap().unwrap().dva(0);
        let place = DATA_AT + dva.offset..DATA_AT + dva.offset + dva.asize;
        disk.overwrite(place.start, &noise(rng.word(), 512));
        let slow = Fault::new(Kind::Slow(SLOW), On::Reads).within(place).times(1);
        let slow = disk.inject(slow);
        pool.store().troubles().tell(at, Trouble::default());
        // In the last round nobody else is there: it is healed in its place.
        while round % 4 != 3 && !pool.finish_healing(Duration::ZERO) {
            fs.write(file, 0, &noise(rng.word(), SMALL_FILE)).unwrap();
            let slice = (txgs * SLICE) % CHURN;
            fs.write(churn, slice as u64, &noise(rng.word(), SLICE)).unwrap();
            pool.sync().unwrap();
            txgs += 1;
        }
        assert!(pool.finish_healing(Duration::from_secs(60)), "round {round}");
        disk.lift(slow);
        let hit = wrong(&pool, objset, file) + wrong(&pool, objset, churn);
        assert_eq!(hit, 0, "round {round}, after {txgs} txgs: a heal has hit another block");
    }
    assert!(pool.healed() > 0 && txgs > 20, "{} healed in {txgs} txgs", pool.healed());
    drop(fs);
    pool.close().unwrap();
}
