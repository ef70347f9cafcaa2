//! Txgs in which nothing changes have no uberblock: what came before them is as safe as without them.

use device::sim::SimSet;
use pool::{Pool, Stored};
use vdev::label::Labels;

use crate::rig::{self, STRIPE, Shape};

/// A txg that has something to write.
fn change(pool: &Pool, number: u64) {
    pool.set_property("tank", "quota", Some(Stored::Number((1 << 40) + number))).unwrap();
}

/// A ring has one slot for many txgs: that of the newest uberblock is not written over by the next, nor those of the
/// two before it (INV-1). A cut in the middle of that would lose what was acknowledged.
///
/// Seen red: after as many txgs with nothing to write as the ring has slots.
#[test]
fn the_last_uberblocks_stay_in_their_rings() {
    for ashift in [9, 12, 13] {
        let shape = Shape { ashift, ..STRIPE };
        let set = SimSet::new(shape.disks, shape.disk_bytes);
        let pool = rig::create(&set, shape).unwrap();
        let mut written = Vec::new();
        let mut number = 0;
        for idle in [0, 3, 7, 7, 8, 15, 15, 31, 31, 63, 127, 127] {
            for _ in 0..idle {
                pool.sync().unwrap();
                written.push(pool.uberblock_txg());
            }
            number += 1;
            change(&pool, number);
            written.push(pool.uberblock_txg());
            written.dedup();
            let rings = Labels::read(&set.disk(0)).uberblocks;
            let rings: Vec<u64> = rings.iter().map(|uberblock| uberblock.txg.get()).collect();
            let last: Vec<u64> = written.iter().rev().take(3).copied().collect();
            assert_eq!(rings[..last.len().min(rings.len())], last, "ashift {ashift}, {idle} txgs");
        }
        pool.close().unwrap();
    }
}
