//! The cache of verified, decompressed blocks.
//!
//! Keyed by where and when a block was born: copy-on-write means that an entry is never stale. Its
//! pointer is kept, too: one that names the same place with another checksum or size, be it hostile
//! or that of a block written over in a later pass, finds nothing (INV-2).
//! Sharded, bounded by bytes, and leased from the account, to which it gives back what others need (INV-5);
//! the victim is chosen by a second-chance clock; what is freed goes at once. Metadata is kept here, records of which only a part was wanted, and
//! those that are wanted again; else file data goes straight into the reader's buffer.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::ops::Deref;

use format::BlkPtr;
use rt::buf::{PooledBuf, Shelf, Shelved};
use rt::mem::{Account, Class, Grant, Holder, Reclaim};
use rt::sync::{Arc, Mutex, Weak};

const SHARDS: usize = 16;
/// Bytes of a block from which on it is read into a recycled buffer.
pub(crate) const POOLED_LEAST: usize = 64 << 10;
/// Bytes of a page: what is on a shelf takes whole ones.
const PAGE: usize = 4096;
/// Bytes that an entry takes beside its block, about.
const ENTRY_BYTES: usize = 384;
/// Blocks of a shard that are remembered to have been wanted once.
const ONCE_MAX: usize = 512;
/// Keys of forgotten entries that the clock of a shard may have beside as many as there are entries.
const CLOCK_SLACK: usize = 64;
/// What is kept when nobody has done anything for a while, in bytes.
const RESTING_BYTES: usize = 8 << 20;

/// A verified, decompressed block, shared and immutable.
pub type Block = Arc<Bytes>;

/// Bytes of a block: large ones in a recycled buffer, whose memory need not be got from the system and given back each
/// time.
#[derive(Debug)]
pub enum Bytes {
    /// On the heap.
    Own(Vec<u8>),
    /// In a buffer.
    Pooled(PooledBuf),
    /// A record as a txg has written it.
    Written(Arc<PooledBuf>),
    /// On pages that other processes can send as they are.
    Shelved(Shelved),
}

impl Bytes {
    /// A record as a txg has written it. A small one is copied.
    #[must_use]
    pub fn written(record: &Arc<PooledBuf>) -> Bytes {
        match record.len() < POOLED_LEAST {
            true => Bytes::Own(record.to_vec()),
            false => Bytes::Written(record.clone()),
        }
    }

    fn capacity(&self) -> usize {
        match self {
            Bytes::Own(bytes) => bytes.len(),
            Bytes::Pooled(bytes) => bytes.capacity(),
            Bytes::Written(record) => record.capacity(),
            Bytes::Shelved(bytes) => bytes.len().next_multiple_of(PAGE),
        }
    }

    /// Can they be on a shelf? Few are better copied, each time.
    #[must_use]
    pub fn fits_a_shelf(&self) -> bool {
        (POOLED_LEAST..=Shelf::BYTES_MAX).contains(&self.len())
    }

    /// Where in the file of `shelf` they begin, if they are there.
    #[must_use]
    pub fn place_on(&self, shelf: &Shelf) -> Option<u64> {
        match self {
            Bytes::Shelved(bytes) => bytes.is_on(shelf).then(|| bytes.place()),
            Bytes::Own(_) | Bytes::Pooled(_) | Bytes::Written(_) => None,
        }
    }
}

impl Deref for Bytes {
    type Target = [u8];
    fn deref(&self) -> &[u8] {
        match self {
            Bytes::Own(bytes) => bytes,
            Bytes::Pooled(bytes) => bytes,
            Bytes::Written(record) => record,
            Bytes::Shelved(bytes) => bytes,
        }
    }
}

impl From<Vec<u8>> for Bytes {
    fn from(bytes: Vec<u8>) -> Bytes {
        Bytes::Own(bytes)
    }
}

type Key = (u32, u64, u64);

struct Entry {
    bp: BlkPtr,
    block: Block,
    used: bool,
}

impl Entry {
    fn bytes(&self) -> usize {
        self.block.capacity() + ENTRY_BYTES
    }
}

#[derive(Default)]
struct Shard {
    entries: BTreeMap<Key, Entry>,
    /// The key of each entry, and of some that were forgotten.
    clock: VecDeque<Key>,
    /// Blocks that are not here, and were wanted once; those that were wanted last are at the end.
    once: VecDeque<Key>,
    bytes: usize,
    /// For `bytes`.
    lease: Option<Grant>,
}

impl Shard {
    /// Lets go of entries until at most `bytes_max` bytes are held.
    fn shrink(&mut self, bytes_max: usize) {
        while self.bytes > bytes_max {
            let Some(victim) = self.clock.pop_front() else { break };
            match self.entries.get_mut(&victim) {
                Some(entry) if entry.used => {
                    entry.used = false;
                    self.clock.push_back(victim);
                }
                Some(_) => self.remove(&victim),
                None => {}
            }
        }
    }

    fn remove(&mut self, key: &Key) {
        let Some(entry) = self.entries.remove(key) else { return };
        self.bytes -= entry.bytes();
        if let Some(lease) = &mut self.lease {
            lease.shrink(self.bytes as u64);
        }
    }

    /// The clock runs past what was forgotten; here it is rid of it, where that is most of it.
    fn tidy_clock(&mut self) {
        if self.clock.len() > 2 * self.entries.len() + CLOCK_SLACK {
            let mut seen = BTreeSet::new();
            self.clock.retain(|key| self.entries.contains_key(key) && seen.insert(*key));
        }
    }

    /// Makes room for `bytes` more; false: there is none.
    fn make_room(&mut self, bytes: usize, bytes_max: usize) -> bool {
        if bytes > bytes_max {
            return false;
        }
        self.shrink(bytes_max - bytes);
        let Some(lease) = &mut self.lease else { return true };
        if lease.try_grow(bytes as u64) {
            return true;
        }
        // Others need all there is: the new one is as good as an old one.
        self.shrink(self.bytes.saturating_sub(bytes));
        self.lease.as_mut().is_none_or(|lease| lease.try_grow(bytes as u64))
    }

    /// Puts an entry in the place of the one of this key, if there is one; false: there is no room, and now none.
    fn put(&mut self, key: Key, entry: Entry, bytes_max: usize) -> bool {
        let bytes = entry.bytes();
        let old = self.entries.contains_key(&key);
        self.remove(&key);
        if !self.make_room(bytes, bytes_max) {
            return false;
        }
        self.bytes += bytes;
        self.entries.insert(key, entry);
        // The clock may still know it.
        if !old || !self.clock.contains(&key) {
            self.clock.push_back(key);
        }
        true
    }
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

    /// The same, which leases from `account` what it holds, and gives it back when others need it.
    pub fn of(account: &Account, bytes_max: usize) -> Arc<Cache> {
        let cache = Arc::new(Cache::new(bytes_max));
        let account = account.of(Holder::Cache);
        for shard in &cache.shards {
            shard.lock().lease = Some(account.empty(Class::Elastic));
        }
        let weak: Weak<dyn Reclaim> = Arc::<Cache>::downgrade(&cache);
        account.add_reclaimer(Class::Elastic, weak);
        cache
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

    /// Is the block here, or was this asked lately?
    pub fn is_wanted_again(&self, bp: &BlkPtr) -> bool {
        let Some(key) = key(bp) else { return false };
        let mut shard = self.shard(&key).lock();
        if shard.entries.contains_key(&key) || shard.once.contains(&key) {
            return true;
        }
        if shard.once.len() == ONCE_MAX {
            shard.once.pop_front();
        }
        shard.once.push_back(key);
        false
    }

    /// Keeps a block (or replaces it: a block rewritten in place in the txg of its birth).
    pub fn put(&self, bp: &BlkPtr, block: Block) {
        let Some(key) = key(bp) else { return };
        let entry = Entry { bp: *bp, block, used: false };
        self.shard(&key).lock().put(key, entry, self.shard_bytes_max);
    }

    /// The block, if it is here, on `shelf`: it is moved there unless it is small. `None`: it is not there, and may have
    /// been forgotten if there was no room for it.
    pub fn shelve(&self, bp: &BlkPtr, shelf: &Arc<Shelf>) -> Option<Block> {
        let found = self.get(bp)?;
        if found.place_on(shelf).is_some() {
            return Some(found);
        }
        if !found.fits_a_shelf() {
            return None;
        }
        // Others look into the shard meanwhile.
        let copy = Arc::new(Bytes::Shelved(shelf.put(&found)?));
        self.exchange(bp, &found, copy, shelf)
    }

    /// Keeps `copy`, which is on `shelf`, in the place of the block that was found here, if that still is.
    fn exchange(&self, bp: &BlkPtr, found: &Block, copy: Block, shelf: &Shelf) -> Option<Block> {
        let key = key(bp)?;
        let mut shard = self.shard(&key).lock();
        match shard.entries.get(&key).filter(|entry| is_same(&entry.bp, bp)) {
            Some(now) if Arc::ptr_eq(&now.block, found) => {
                let entry = Entry { bp: *bp, block: copy.clone(), used: true };
                shard.put(key, entry, self.shard_bytes_max).then_some(copy)
            }
            // Who was faster may have done the same.
            now => {
                now.filter(|now| now.block.place_on(shelf).is_some()).map(|now| now.block.clone())
            }
        }
    }

    /// Forgets a block: nobody will ask for it, or for what it was.
    pub fn forget(&self, bp: &BlkPtr) {
        let Some(key) = key(bp) else { return };
        let mut shard = self.shard(&key).lock();
        shard.remove(&key);
        shard.tidy_clock();
    }

    /// Bytes held.
    pub fn bytes(&self) -> usize {
        self.shards.iter().map(|s| s.lock().bytes).sum()
    }
}

impl Reclaim for Cache {
    fn reclaim(&self, bytes: u64) {
        let mut left = usize::try_from(bytes).unwrap_or(usize::MAX);
        // From each as much, those that have less than that give the rest to the others to give.
        for (index, shard) in self.shards.iter().enumerate() {
            let Some(mut shard) = shard.try_lock() else { continue };
            let before = shard.bytes;
            shard.shrink(before.saturating_sub(left.div_ceil(SHARDS - index)));
            left = left.saturating_sub(before - shard.bytes);
        }
        if left > 0 && self.bytes() > 0 {
            for shard in &self.shards {
                let Some(mut shard) = shard.try_lock() else { continue };
                let before = shard.bytes;
                shard.shrink(before.saturating_sub(left));
                left = left.saturating_sub(before - shard.bytes);
            }
        }
    }

    fn rest(&self) {
        self.reclaim((self.bytes().saturating_sub(RESTING_BYTES)) as u64);
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
        cache.put(&good, Arc::new(vec![1; 4096].into()));
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
            cache.put(&bp(i << 12, 5), Arc::new(vec![i as u8; 4096].into()));
        }
        assert!(cache.bytes() <= 1 << 20);
        assert_eq!(cache.get(&bp(999 << 12, 5)).unwrap()[0], 999u64 as u8);
        assert!(cache.get(&bp(999 << 12, 6)).is_none());
        cache.forget(&bp(999 << 12, 5));
        assert!(cache.get(&bp(999 << 12, 5)).is_none());
    }

    #[test]
    fn what_is_forgotten_leaves_nothing_behind() {
        let cache = Cache::new(1 << 20);
        let kept = bp(1 << 40, 5);
        cache.put(&kept, Arc::new(vec![1; 4096].into()));
        // Some more than once, as where a block is written over in place.
        for i in 0..100_000 {
            let bp = bp((i % 60_000) << 12, 5);
            cache.put(&bp, Arc::new(vec![2; 4096].into()));
            cache.forget(&bp);
        }
        assert_eq!(cache.bytes(), 4096 + ENTRY_BYTES);
        let keys: usize = cache.shards.iter().map(|shard| shard.lock().clock.len()).sum();
        assert!(keys <= SHARDS * (CLOCK_SLACK + 1) + 2, "{keys}");
        // The clock still finds its victims.
        for i in 0..1000 {
            cache.put(&bp(i << 12, 5), Arc::new(vec![i as u8; 4096].into()));
        }
        assert!(cache.bytes() > 900 << 10 && cache.bytes() <= 1 << 20, "{}", cache.bytes());
    }

    const LONG: usize = POOLED_LEAST + 1;

    fn long(byte: u8) -> Block {
        Arc::new(vec![byte; LONG].into())
    }

    /// Bytes that an entry of such a block has on a shelf.
    const LONG_SHELVED: usize = POOLED_LEAST + PAGE + ENTRY_BYTES;

    #[test]
    fn a_block_is_moved_to_a_shelf_once() {
        let (account, shelf) = (Account::new(16 << 20, 0), Shelf::new().unwrap());
        let cache = Cache::of(&account, 16 << 20);
        let (small, large) = (bp(1 << 20, 5), bp(2 << 20, 5));
        assert!(cache.shelve(&large, &shelf).is_none(), "it is not here");
        cache.put(&small, Arc::new(vec![1; POOLED_LEAST - 1].into()));
        cache.put(&large, long(2));
        let own = cache.get(&large).unwrap();
        let before = cache.bytes();
        let moved = cache.shelve(&large, &shelf).unwrap();
        assert!(moved[..] == own[..] && moved.place_on(&shelf).is_some());
        assert_eq!(own.place_on(&shelf), None);
        assert!(Arc::ptr_eq(&moved, &cache.get(&large).unwrap()));
        assert!(Arc::ptr_eq(&moved, &cache.shelve(&large, &shelf).unwrap()));
        assert_eq!(cache.bytes(), before - (LONG + ENTRY_BYTES) + LONG_SHELVED);
        assert_eq!(account.used(), cache.bytes() as u64);
        assert!(cache.shelve(&small, &shelf).is_none() && cache.get(&small).is_some());
        // One that is wanted there, too, moves on.
        let other = Shelf::new().unwrap();
        assert_eq!(moved.place_on(&other), None);
        assert!(cache.shelve(&large, &other).unwrap().place_on(&other).is_some());
        assert_eq!(account.used(), cache.bytes() as u64);
        cache.forget(&small);
        assert_eq!(cache.bytes(), LONG_SHELVED);
        cache.forget(&large);
        assert_eq!((account.used(), cache.bytes()), (0, 0));
        // Who has it keeps it.
        assert!(moved[..] == own[..]);
    }

    #[test]
    fn a_pointer_to_what_was_there_before_shelves_nothing() {
        let (cache, shelf) = (Cache::new(16 << 20), Shelf::new().unwrap());
        let now = bp(1 << 20, 5);
        cache.put(&now, long(1));
        let props = BlkProps {
            lsize: 4096,
            psize: 4096,
            compress: Compress::Off,
            checksum: Checksum::Fletcher4,
            kind: ObjectType::DNODE,
            level: 0,
        };
        let rewritten = BlkPtr::new(props, &[now.dva(0)], 5, 1, [1; 4]);
        for stale in [rewritten, bp(1 << 20, 4), bp(2 << 20, 5)] {
            assert!(cache.shelve(&stale, &shelf).is_none());
        }
        assert_eq!(cache.get(&now).unwrap().place_on(&shelf), None);
    }

    #[test]
    fn what_has_come_meanwhile_stays() {
        let (cache, shelf) = (Cache::new(16 << 20), Shelf::new().unwrap());
        let bp = bp(1 << 20, 5);
        let shelved = |byte| Arc::new(Bytes::Shelved(shelf.put(&[byte; LONG]).unwrap()));
        let (found, other, faster) = (long(1), long(2), shelved(1));
        let late = || cache.exchange(&bp, &found, shelved(1), &shelf);
        assert!(late().is_none() && cache.bytes() == 0, "it was forgotten");
        cache.put(&bp, other.clone());
        assert!(late().is_none());
        assert!(Arc::ptr_eq(&other, &cache.get(&bp).unwrap()));
        cache.put(&bp, faster.clone());
        assert!(Arc::ptr_eq(&faster, &late().unwrap()));
        assert!(Arc::ptr_eq(&faster, &cache.get(&bp).unwrap()));
        assert_eq!(cache.bytes(), LONG_SHELVED);
    }

    #[test]
    fn a_block_that_has_no_room_on_whole_pages_is_forgotten() {
        let shelf = Shelf::new().unwrap();
        let cache = Cache::new(SHARDS * (LONG_SHELVED - 1));
        let bp = bp(1 << 20, 5);
        cache.put(&bp, long(1));
        assert_eq!(cache.bytes(), LONG + ENTRY_BYTES);
        assert!(cache.shelve(&bp, &shelf).is_none() && cache.get(&bp).is_none());
        assert_eq!(cache.bytes(), 0);
    }

    #[test]
    fn what_was_shelved_lately_outlives_what_nobody_wants() {
        let shelf = Shelf::new().unwrap();
        // Room for three, all in one shard.
        let cache = Cache::new(SHARDS * 3 * LONG_SHELVED);
        let first = bp(0, 1);
        cache.put(&first, long(1));
        cache.shelve(&first, &shelf).unwrap();
        for birth in 2..5 {
            cache.put(&bp(0, birth), long(2));
        }
        assert!(cache.get(&first).is_some() && cache.get(&bp(0, 2)).is_none());
    }

    #[test]
    fn leased_and_given_back() {
        let account = Account::new(1 << 20, 0);
        let cache = Cache::of(&account, 1 << 20);
        for i in 0..1000 {
            cache.put(&bp(i << 12, 5), Arc::new(vec![i as u8; 4096].into()));
        }
        let full = cache.bytes();
        assert!(full > 900 << 10 && account.used() == full as u64, "{full} {}", account.used());
        // Somebody needs half of it.
        let others = account.take(512 << 10);
        assert!(account.used() <= 1 << 20, "{}", account.used());
        assert!(cache.bytes() > 480 << 10, "{}", cache.bytes());
        // New ones take the place of old ones.
        for i in 1000..2000 {
            cache.put(&bp(i << 12, 5), Arc::new(vec![i as u8; 4096].into()));
        }
        assert!(account.used() <= 1 << 20 && cache.get(&bp(1999 << 12, 5)).is_some());
        assert_eq!(account.used(), cache.bytes() as u64 + (512 << 10));
        drop(others);
        cache.reclaim(u64::MAX);
        assert_eq!((account.used(), cache.bytes()), (0, 0));
    }
}
