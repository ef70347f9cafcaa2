//! The cache of verified, decompressed blocks.
//!
//! Keyed by where and when a block was born: copy-on-write means that an entry is never stale. Its
//! pointer is kept, too: one that names the same place with another checksum or size, be it hostile
//! or that of a block written over in a later pass, finds nothing (INV-2).
//! Sharded, bounded by bytes; the victim is chosen by a second-chance clock. Only metadata is kept
//! here: file data goes straight into the reader's buffer, and the host's page cache has it anyway.

use std::collections::{BTreeMap, VecDeque};

use format::BlkPtr;
use rt::sync::{Arc, Mutex};

const SHARDS: usize = 16;

/// A verified, decompressed block, shared and immutable.
pub type Block = Arc<Vec<u8>>;

type Key = (u32, u64, u64);

struct Entry {
    bp: BlkPtr,
    block: Block,
    used: bool,
}

#[derive(Default)]
struct Shard {
    entries: BTreeMap<Key, Entry>,
    clock: VecDeque<Key>,
    bytes: usize,
}

/// The cache.
pub struct Cache {
    shards: Vec<Mutex<Shard>>,
    shard_bytes_max: usize,
}

fn key(bp: &BlkPtr) -> Option<Key> {
    let dva = bp.dva(0);
    (bp.has_space()).then_some((dva.vdev, dva.offset, bp.birth()))
}

/// Do two pointers to one place promise the same bytes?
fn is_same(a: &BlkPtr, b: &BlkPtr) -> bool {
    a.checksum_words() == b.checksum_words() && a.prop() == b.prop()
}

impl Cache {
    /// A cache of at most `bytes_max` bytes.
    pub fn new(bytes_max: usize) -> Self {
        Cache {
            shards: (0..SHARDS).map(|_| Mutex::new(Shard::default())).collect(),
            shard_bytes_max: bytes_max / SHARDS,
        }
    }

    fn shard(&self, key: &Key) -> &Mutex<Shard> {
        let mixed = (key.1 >> 12).wrapping_mul(0x9e37_79b9_7f4a_7c15) ^ u64::from(key.0);
        &self.shards[(mixed >> 60) as usize % SHARDS]
    }

    /// The block, if it is here.
    pub fn get(&self, bp: &BlkPtr) -> Option<Block> {
        let key = key(bp)?;
        let mut shard = self.shard(&key).lock();
        let entry = shard.entries.get_mut(&key).filter(|entry| is_same(&entry.bp, bp))?;
        entry.used = true;
        Some(entry.block.clone())
    }

    /// Keeps a block (or replaces it: a block rewritten in place in the txg of its birth).
    pub fn put(&self, bp: &BlkPtr, block: Block) {
        let Some(key) = key(bp) else { return };
        let mut shard = self.shard(&key).lock();
        shard.bytes += block.len();
        match shard.entries.insert(key, Entry { bp: *bp, block, used: false }) {
            Some(old) => shard.bytes -= old.block.len(),
            None => shard.clock.push_back(key),
        }
        while shard.bytes > self.shard_bytes_max {
            let Some(victim) = shard.clock.pop_front() else { break };
            match shard.entries.get_mut(&victim) {
                Some(entry) if entry.used => {
                    entry.used = false;
                    shard.clock.push_back(victim);
                }
                Some(_) => {
                    let size = shard.entries.remove(&victim).map_or(0, |e| e.block.len());
                    shard.bytes -= size;
                }
                None => {}
            }
        }
    }

    /// Forgets a block.
    pub fn forget(&self, bp: &BlkPtr) {
        let Some(key) = key(bp) else { return };
        let mut shard = self.shard(&key).lock();
        if let Some(entry) = shard.entries.remove(&key) {
            shard.bytes -= entry.block.len();
            shard.clock.retain(|k| *k != key);
        }
    }

    /// Bytes held.
    pub fn bytes(&self) -> usize {
        self.shards.iter().map(|s| s.lock().bytes).sum()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use format::blkptr::BlkProps;
    use format::{Checksum, Compress, Dva, ObjectType};

    fn bp(offset: u64, birth: u64) -> BlkPtr {
        let props = BlkProps {
            lsize: 4096,
            psize: 4096,
            compress: Compress::Off,
            checksum: Checksum::Fletcher4,
            kind: ObjectType::DNODE,
            level: 0,
        };
        let dva = Dva { vdev: 0, offset, asize: 4096, gang: false };
        BlkPtr::new(props, &[dva], birth, 1, [0; 4])
    }

    #[test]
    fn another_pointer_to_the_same_place_finds_nothing() {
        let cache = Cache::new(1 << 20);
        let good = bp(1 << 20, 5);
        cache.put(&good, Arc::new(vec![1; 4096]));
        let dva = good.dva(0);
        let props = |psize, checksum| BlkProps {
            lsize: psize,
            psize,
            compress: Compress::Off,
            checksum,
            kind: ObjectType::DNODE,
            level: 0,
        };
        let other = |psize, words, kind| BlkPtr::new(props(psize, kind), &[dva], 5, 1, words);
        assert!(cache.get(&other(4096, [0; 4], Checksum::Fletcher4)).is_some());
        assert!(cache.get(&other(4096, [1; 4], Checksum::Fletcher4)).is_none());
        assert!(cache.get(&other(8192, [0; 4], Checksum::Fletcher4)).is_none());
        assert!(cache.get(&other(4096, [0; 4], Checksum::Sha256)).is_none());
    }

    #[test]
    fn bounded_and_exact() {
        let cache = Cache::new(1 << 20);
        for i in 0..1000 {
            cache.put(&bp(i << 12, 5), Arc::new(vec![i as u8; 4096]));
        }
        assert!(cache.bytes() <= 1 << 20);
        assert_eq!(cache.get(&bp(999 << 12, 5)).unwrap()[0], 999u64 as u8);
        assert!(cache.get(&bp(999 << 12, 6)).is_none());
        cache.forget(&bp(999 << 12, 5));
        assert!(cache.get(&bp(999 << 12, 5)).is_none());
    }
}
