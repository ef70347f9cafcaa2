//! How much memory a pool may take, from what the machine has and what the pool is on.
//!
//! The one idea: on disks memory saves seeks. Each txg ends with a tour of every disk (flush, labels at both ends),
//! which costs as much for few bytes as for many; and a head that goes from stream to stream reads as much from
//! each as there is memory for. So pools on disks get a quarter of the machine at most, the others what is known
//! to do.

use rt::mem::Account;
use store::Streams;
use vdev::Tree;

/// Cache of metadata, at most.
pub(crate) const CACHE_BYTES: usize = 256 << 20;
/// Bytes dirty in the open txg at which a sync starts; on disks at least.
const DIRTY_SYNC_BYTES: (u64, u64) = (96 << 20, 160 << 20);
/// Bytes dirty in all txgs at which writers wait, at least.
const DIRTY_MAX_BYTES: u64 = 320 << 20;
/// What each disk shall have to write in a txg: about a quarter of a second, several times what its end costs.
const DIRTY_PER_DISK_BYTES: u64 = 48 << 20;
/// Bytes that are read ahead, at least and at most.
const AHEAD_BYTES: (u64, u64) = (128 << 20, 4 << 30);
/// The same where nothing is read ahead but by those who ask for it.
const AHEAD_OF_FILES_BYTES: u64 = 768 << 20;

/// The bounds of a pool's memory, in bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Memory {
    /// Dirty in the open txg, at which a sync starts.
    pub(crate) dirty_sync: u64,
    /// Dirty in all txgs, at which writers wait.
    pub(crate) dirty_max: u64,
    /// Read ahead.
    ahead: u64,
}

impl Memory {
    /// The bounds for a pool on these vdevs, on this machine.
    pub(crate) fn of(tree: &Tree) -> Memory {
        let disks = tree.is_queued().then(|| tree.leaves().len() as u64);
        Memory::with(rt::machine::memory_bytes(), disks)
    }

    fn with(machine: u64, disks: Option<u64>) -> Memory {
        let Some(disks) = disks else {
            let (dirty_sync, dirty_max) = (DIRTY_SYNC_BYTES.0, DIRTY_MAX_BYTES);
            return Memory { dirty_sync, dirty_max, ahead: AHEAD_OF_FILES_BYTES };
        };
        let quarter = machine / 4;
        let least = DIRTY_SYNC_BYTES.1;
        let wanted = disks.saturating_mul(DIRTY_PER_DISK_BYTES);
        let dirty_sync = wanted.min(quarter / 8).max(least);
        let dirty_max = (2 * dirty_sync).max(DIRTY_MAX_BYTES);
        let rest = quarter.saturating_sub(CACHE_BYTES as u64 + dirty_max);
        Memory { dirty_sync, dirty_max, ahead: rest.clamp(AHEAD_BYTES.0, AHEAD_BYTES.1) }
    }

    /// Those who read ahead, and their account (INV-5). Its reserve is what the cache and dirty data may take, which
    /// keep to their own bounds.
    pub(crate) fn streams(&self) -> Streams {
        let reserve = CACHE_BYTES as u64 + self.dirty_max;
        Streams::new(Account::new(reserve + self.ahead, reserve), self.ahead)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pools_on_disks_take_what_the_machine_has() {
        const MIB: u64 = 1 << 20;
        let small = Memory::with(512 * MIB, Some(11));
        assert_eq!((small.dirty_sync, small.dirty_max), (160 * MIB, 320 * MIB));
        assert_eq!(small.ahead, 128 * MIB);
        for disks in [1, 11, 44, 1000] {
            for machine in [1u64 << 32, 1 << 34, 24 << 30, 1 << 40, u64::MAX] {
                let memory = Memory::with(machine, Some(disks));
                let all = CACHE_BYTES as u64 + memory.dirty_max + memory.ahead;
                assert!(all <= machine / 4, "{disks} disks, {machine}: {memory:?}");
                assert!(memory.dirty_sync >= small.dirty_sync && memory.ahead >= small.ahead);
                assert!(memory.dirty_max >= 2 * memory.dirty_sync);
            }
        }
        // Thirty streams of 11 disks, each two windows of 16 MiB with their parity.
        let site = Memory::with(24 << 30, Some(11));
        assert_eq!(site.dirty_sync, 528 * MIB);
        assert!(site.streams().share() / 30 >= 42 * MIB);
        // On files nothing depends on the machine.
        assert_eq!(Memory::with(512 * MIB, None), Memory::with(u64::MAX, None));
    }
}
