//! How much memory a pool may take of the account that it is given, and how the account is divided (INV-5).
//!
//! The one idea: a part of the account is for those who write, a part for those who read, and caches have what
//! neither needs. On disks memory saves seeks: each txg ends with a tour of every disk (flush, labels at both ends),
//! which costs as much for few bytes as for many; and a head that goes from stream to stream reads as much from
//! each as there is memory for. So pools on disks use what they are given, the others what is known
//! to do. Pools that share an account share what may be dirty, too.

use rt::mem::{Account, Class};
use vdev::Tree;

/// The least account, in bytes.
pub const CAP_LEAST: u64 = 64 << 20;

/// Cache of metadata, at most.
const CACHE_BYTES: u64 = 256 << 20;
/// Bytes dirty in the open txg at which a sync starts; on disks at least, if there is memory.
const DIRTY_SYNC_BYTES: (u64, u64) = (96 << 20, 160 << 20);
/// Bytes dirty in all txgs at which writers wait, at least, if there is memory.
const DIRTY_MAX_BYTES: u64 = 320 << 20;
/// What each disk shall have to write in a txg: about a quarter of a second, several times what its end costs.
const DIRTY_PER_DISK_BYTES: u64 = 48 << 20;
/// Bytes that are read ahead, at most.
const AHEAD_BYTES: u64 = 4 << 30;
/// The same where disks have no queues: whoever asks reads ahead himself, a mebibyte of each file.
const AHEAD_OF_FILES_BYTES: u64 = 768 << 20;
/// Bytes that a worker takes at a time to write them: to files, and to disks at most.
const RUN_BYTES: (u64, u64) = (1 << 20, 16 << 20);
/// What a worker needs for each of them.
const RUN_FACTOR: u64 = 3;

/// The part of an account of `cap` bytes that is kept for those who write: what is dirty, what the sync works with, and
/// the map of free space. Of a small one it is half.
fn reserve_of(cap: u64) -> u64 {
    (cap / 2).min(512 << 20).max(cap / 8 * 3)
}

/// An account for pools that take `cap_bytes` together, and at least [`CAP_LEAST`].
pub fn account(cap_bytes: u64) -> Account {
    let cap = cap_bytes.max(CAP_LEAST);
    Account::new(cap, reserve_of(cap))
}

/// The account of a process that was not told its cap: a quarter of what the machine or its control group has.
pub fn default_cap_bytes() -> u64 {
    (rt::machine::memory_bytes() / 4).max(CAP_LEAST)
}

pub(crate) fn own_account() -> Account {
    account(default_cap_bytes())
}

/// The bounds of a pool's memory, in bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Memory {
    cap: u64,
    on_disks: bool,
    /// Dirty in the open txg, at which a sync starts.
    pub(crate) dirty_sync: u64,
    /// Dirty in all txgs of all pools of the account, at which writers wait.
    pub(crate) dirty_max: u64,
    /// Read ahead.
    pub(crate) ahead: u64,
    /// Cached metadata.
    pub(crate) cache: usize,
}

impl Memory {
    /// The bounds for a pool on these vdevs, of this account.
    pub(crate) fn of(tree: &Tree, account: &Account) -> Memory {
        let disks = tree.is_queued().then(|| tree.leaves().len() as u64);
        Memory::with(account.cap(), account.max(Class::Normal), disks)
    }

    /// `normal` of the `cap` bytes are for those who read.
    fn with(cap: u64, normal: u64, disks: Option<u64>) -> Memory {
        let wanted = match disks {
            None => DIRTY_SYNC_BYTES.0,
            Some(disks) => {
                let most = (cap / 8).max(DIRTY_SYNC_BYTES.1);
                disks.saturating_mul(DIRTY_PER_DISK_BYTES).clamp(DIRTY_SYNC_BYTES.1, most)
            }
        };
        // Three eighths of a small account: the rest of its reserve is for the sync and the map of free space.
        let dirty_max = (2 * wanted).max(DIRTY_MAX_BYTES).min(cap / 8 * 3);
        let dirty_sync = wanted.min(dirty_max / 2);
        let ahead_max = if disks.is_some() { AHEAD_BYTES } else { AHEAD_OF_FILES_BYTES };
        // Of the rest clients' requests are served, however many read on and on.
        let ahead = (normal / 4 * 3).min(ahead_max);
        let cache = CACHE_BYTES.min(cap / 4) as usize;
        let on_disks = disks.is_some();
        Memory { cap, on_disks, dirty_sync, dirty_max, ahead, cache }
    }

    /// Bytes that each of so many workers takes at a time to write them to disks: what all of them work with is an
    /// eighth of the account at most.
    pub(crate) fn run_bytes(&self, workers: usize) -> usize {
        let share = self.cap / 8 / RUN_FACTOR / (workers as u64).max(1);
        let most = if self.on_disks { RUN_BYTES.1 } else { RUN_BYTES.0 };
        share.clamp(RUN_BYTES.0, most) as usize
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MIB: u64 = 1 << 20;

    fn memory(cap: u64, disks: Option<u64>) -> Memory {
        let account = account(cap);
        Memory::with(account.cap(), account.max(Class::Normal), disks)
    }

    #[test]
    fn the_parts_fit_into_the_cap() {
        for disks in [None, Some(1), Some(11), Some(44), Some(1000)] {
            for cap in [0, 64 * MIB, 256 * MIB, 512 * MIB, 1 << 30, 6 << 30, 1 << 40, 1 << 60] {
                let (account, memory) = (account(cap), memory(cap, disks));
                let (cap, normal) = (account.cap(), account.max(Class::Normal));
                let workers = 4 * memory.run_bytes(4) as u64 * RUN_FACTOR;
                let writing = memory.dirty_max + workers.min(cap / 8);
                assert!(writing + normal <= cap, "{disks:?} disks, {cap}: {memory:?}");
                assert!(
                    memory.ahead <= normal / 4 * 3 && memory.dirty_sync <= memory.dirty_max / 2
                );
                assert!(memory.dirty_sync > 0 && memory.cache as u64 <= cap / 4);
            }
        }
    }

    #[test]
    fn pools_on_disks_use_what_there_is() {
        // Thirty streams of 11 disks, each two windows of 16 MiB with their parity.
        let site = memory(6 << 30, Some(11));
        assert_eq!(site.dirty_sync, 528 * MIB);
        assert!(site.ahead / 30 >= 42 * MIB, "{site:?}");
        assert_eq!(site.run_bytes(3), 16 << 20);
        // On files little depends on it.
        let files = memory(6 << 30, None);
        assert_eq!((files.dirty_sync, files.dirty_max), (96 * MIB, 320 * MIB));
        assert_eq!((files.ahead, files.cache), (768 * MIB, 256 << 20));
        let small = memory(256 * MIB, None);
        assert_eq!((small.dirty_sync, small.dirty_max), (48 * MIB, 96 * MIB));
    }
}
