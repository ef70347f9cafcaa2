//! Uberblocks (`uberblock_t`): the root of everything, one for each txg that was written.
//!
//! Each label has a ring of slots; the best uberblock of all slots of all leaves is the pool.
//! FORMAT: section 1.5.

use std::cmp::Ordering;

use zerocopy::little_endian::U64;
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

use crate::blkptr::bits;
use crate::eck::Eck;
use crate::label::RING_SIZE;
use crate::{BlkPtr, FormatError, Result, SPA_VERSION};

/// Bytes of an uberblock.
pub const UBERBLOCK_SIZE: usize = 208;
/// Words of an uberblock.
pub const UBERBLOCK_WORDS: usize = UBERBLOCK_SIZE / 8;
/// The magic number, in the writer's byte order.
pub const UBERBLOCK_MAGIC: u64 = 0x00ba_b10c;
/// Magic number of the fields of multihost protection.
pub const MMP_MAGIC: u64 = 0xa11c_ea11;

/// log2 of the smallest and the largest slot of the ring.
const SLOT_SHIFTS: (u64, u64) = (10, 13);

/// An uberblock, in little-endian words.
#[derive(
    Clone, Copy, Debug, PartialEq, Eq, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned,
)]
#[repr(C)]
pub struct Uberblock {
    /// [`UBERBLOCK_MAGIC`].
    pub magic: U64,
    /// Version of the pool.
    pub version: U64,
    /// The txg that it completes.
    pub txg: U64,
    /// Sum of the guids of all vdevs in the tree, the root's included.
    pub guid_sum: U64,
    /// When it was written, in seconds since 1970.
    pub timestamp: U64,
    /// The object set of the MOS.
    pub root: BlkPtr,
    /// The newest version that the writer knew.
    pub software_version: U64,
    /// [`MMP_MAGIC`] if the next two count.
    pub mmp_magic: U64,
    /// Nanoseconds between writes of multihost protection; 0: it is off.
    pub mmp_delay: U64,
    /// Settings and sequence number of multihost protection, see [`Uberblock::mmp_seq`].
    pub mmp_config: U64,
    /// In the uberblock of a checkpoint: its txg.
    pub checkpoint_txg: U64,
}

const _: () = assert!(size_of::<Uberblock>() == UBERBLOCK_SIZE);
const _: () = assert!(std::mem::offset_of!(Uberblock, root) == 40);
const _: () = assert!(std::mem::offset_of!(Uberblock, software_version) == 168);

impl Uberblock {
    /// The uberblock of `txg`, written at `timestamp` (seconds since 1970), without multihost
    /// protection.
    pub fn new(txg: u64, guid_sum: u64, timestamp: u64, root: BlkPtr) -> Self {
        Uberblock {
            magic: U64::new(UBERBLOCK_MAGIC),
            version: U64::new(SPA_VERSION),
            txg: U64::new(txg),
            guid_sum: U64::new(guid_sum),
            timestamp: U64::new(timestamp),
            root,
            software_version: U64::new(SPA_VERSION),
            mmp_magic: U64::new(MMP_MAGIC),
            mmp_delay: U64::ZERO,
            mmp_config: U64::ZERO,
            checkpoint_txg: U64::ZERO,
        }
    }

    /// Parses the uberblock at the start of a slot, in either byte order.
    pub fn parse(slot: &[u8]) -> Result<Self> {
        let bytes = slot.first_chunk::<UBERBLOCK_SIZE>().ok_or(FormatError::Short {
            what: "uberblock",
            needed: UBERBLOCK_SIZE as u64,
            have: slot.len() as u64,
        })?;
        let (chunks, _) = bytes.as_chunks::<8>();
        let little = chunks.first().map_or(0, |w| u64::from_le_bytes(*w));
        let swapped = little == UBERBLOCK_MAGIC.swap_bytes();
        let mut words = [0; UBERBLOCK_WORDS];
        for (to, from) in words.iter_mut().zip(chunks) {
            *to = if swapped { u64::from_be_bytes(*from) } else { u64::from_le_bytes(*from) };
        }
        Self::from_words(&words)
    }

    /// From 26 words, as the MOS keeps the uberblock of a checkpoint.
    pub fn from_words(words: &[u64; UBERBLOCK_WORDS]) -> Result<Self> {
        let words = words.map(U64::new);
        let uberblock: Uberblock = zerocopy::transmute!(words);
        let (seen, expected) = (uberblock.magic.get(), UBERBLOCK_MAGIC);
        if seen == expected {
            Ok(uberblock)
        } else {
            Err(FormatError::Magic { what: "uberblock", seen, expected })
        }
    }

    /// The 26 words of the uberblock.
    pub fn to_words(&self) -> [u64; UBERBLOCK_WORDS] {
        let words: [U64; UBERBLOCK_WORDS] = zerocopy::transmute!(*self);
        words.map(U64::get)
    }

    /// A whole slot of a ring for top-level vdevs of this ashift; its checksum has still to be
    /// sealed.
    pub fn to_slot(&self, ashift: u64) -> Vec<u8> {
        let mut slot = vec![0; slot_size(ashift)];
        for (to, from) in slot.iter_mut().zip(self.as_bytes()) {
            *to = *from;
        }
        Eck::place(&mut slot);
        slot
    }

    /// Is multihost protection on?
    pub fn multihost(&self) -> bool {
        self.mmp_magic.get() == MMP_MAGIC && self.mmp_delay.get() != 0
    }

    /// Sequence number of the writes of multihost protection within a txg, if there is one.
    pub fn mmp_seq(&self) -> Option<u64> {
        let config = self.mmp_config.get();
        let valid = self.mmp_magic.get() == MMP_MAGIC && bits(config, 1, 1) == 1;
        valid.then(|| bits(config, 32, 16))
    }

    /// Milliseconds between writes of multihost protection, if the writer said so.
    pub fn mmp_interval_ms(&self) -> Option<u64> {
        let config = self.mmp_config.get();
        let valid = self.mmp_magic.get() == MMP_MAGIC && bits(config, 0, 1) == 1;
        valid.then(|| bits(config, 8, 24))
    }

    /// Intervals without a successful write after which the writer gives up, if it said so; 0 is
    /// never.
    pub fn mmp_fail_intervals(&self) -> Option<u64> {
        let config = self.mmp_config.get();
        let valid = self.mmp_magic.get() == MMP_MAGIC && bits(config, 2, 1) == 1;
        valid.then(|| bits(config, 48, 16))
    }

    /// Which of two uberblocks is the pool: the greater one.
    pub fn cmp_age(&self, other: &Self) -> Ordering {
        let key = |u: &Self| (u.txg.get(), u.timestamp.get(), u.mmp_seq().unwrap_or(0));
        key(self).cmp(&key(other))
    }
}

/// Is this a pool version that has ever existed?
pub fn version_exists(version: u64) -> bool {
    matches!(version, 1..=28 | SPA_VERSION)
}

/// Bytes of a slot of the ring on a leaf whose top-level vdev has this ashift.
pub fn slot_size(ashift: u64) -> usize {
    1 << ashift.clamp(SLOT_SHIFTS.0, SLOT_SHIFTS.1)
}

/// Slots of the ring.
pub fn slot_count(ashift: u64) -> usize {
    RING_SIZE / slot_size(ashift)
}

/// The slot that the uberblock of `txg` goes to. With multihost protection the last slot is kept
/// for its own writes.
pub fn slot_of_txg(txg: u64, ashift: u64, multihost: bool) -> usize {
    let slots = slot_count(ashift) - usize::from(multihost);
    (txg % slots as u64) as usize
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The 208 bytes of slots 27 to 31 of label 0 of the golden pool `mir`.
    const MIR: &[u8] = include_bytes!("../tests/data/uberblocks_mir");

    #[test]
    fn reads_what_the_kernel_wrote() {
        for (i, bytes) in MIR.chunks(UBERBLOCK_SIZE).enumerate() {
            let ub = Uberblock::parse(bytes).unwrap();
            // As `zdb -lu` prints them.
            assert_eq!(ub.txg.get(), 27 + i as u64);
            assert_eq!(ub.version.get(), 5000);
            assert_eq!(ub.guid_sum.get(), 4_684_443_817_435_321_564);
            let times = [1_714_521_668, 1_714_521_668, 1_714_521_670, 1_714_521_671, 1_714_521_672];
            assert_eq!(ub.timestamp.get(), times[i]);
            assert_eq!(slot_of_txg(ub.txg.get(), 12, false), 27 + i);
            assert!(!ub.multihost());
            let new = Uberblock::new(ub.txg.get(), ub.guid_sum.get(), ub.timestamp.get(), ub.root);
            assert_eq!(new.as_bytes(), bytes);
            assert_eq!(new.to_slot(12)[..UBERBLOCK_SIZE], *bytes);
        }
    }

    #[test]
    fn reads_what_the_kernel_wrote_under_multihost_protection() {
        let blocks = include_bytes!("../tests/data/uberblocks_multihost").chunks(UBERBLOCK_SIZE);
        let blocks: Vec<_> = blocks.map(|b| Uberblock::parse(b).unwrap()).collect();
        // Of the slots 11 and 12, and of the last one, which is for the writes in between.
        assert_eq!(blocks.iter().map(|u| u.txg.get()).collect::<Vec<_>>(), [11, 12, 11]);
        for ub in &blocks {
            assert!(ub.multihost());
            assert_eq!(ub.mmp_interval_ms(), Some(1000));
            assert_eq!(ub.mmp_fail_intervals(), Some(10));
        }
        assert_eq!(
            blocks.iter().map(Uberblock::mmp_seq).collect::<Vec<_>>(),
            [Some(0), Some(0), Some(3)]
        );
        assert_eq!(blocks[2].cmp_age(&blocks[0]), Ordering::Greater);
        assert_eq!(blocks[1].cmp_age(&blocks[2]), Ordering::Greater);
    }

    #[test]
    fn the_other_byte_order() {
        let ub = Uberblock::parse(MIR).unwrap();
        let mut swapped = MIR[..UBERBLOCK_SIZE].to_vec();
        swapped.chunks_mut(8).for_each(<[u8]>::reverse);
        assert_eq!(Uberblock::parse(&swapped).unwrap(), ub);
        assert_eq!(Uberblock::from_words(&ub.to_words()).unwrap(), ub);
    }

    #[test]
    fn slots_by_ashift() {
        let ring = |ashift| (slot_size(ashift), slot_count(ashift));
        assert_eq!(ring(9), (1024, 128));
        assert_eq!(ring(12), (4096, 32));
        assert_eq!(ring(16), (8192, 16));
        assert_eq!(ring(u64::MAX), (8192, 16));
        assert_eq!(slot_of_txg(127, 9, false), 127);
        assert_eq!(slot_of_txg(127, 9, true), 0);
    }

    #[test]
    fn the_newest_is_the_best() {
        let base = Uberblock::new(7, 0, 100, BlkPtr::ZERO);
        let newer = Uberblock::new(8, 0, 50, BlkPtr::ZERO);
        let later = Uberblock::new(7, 0, 101, BlkPtr::ZERO);
        let mut next = base;
        next.mmp_config.set(3 << 32 | 2);
        for greater in [newer, later, next] {
            assert_eq!(greater.cmp_age(&base), Ordering::Greater);
        }
        assert_eq!(newer.cmp_age(&later), Ordering::Greater);
        assert_eq!(next.mmp_seq(), Some(3));
        next.mmp_magic.set(0);
        assert_eq!(next.cmp_age(&base), Ordering::Equal);
        next.mmp_magic.set(MMP_MAGIC);
        next.mmp_config.set(5 | 1000 << 8 | 10 << 48);
        assert_eq!(next.mmp_interval_ms(), Some(1000));
        assert_eq!(next.mmp_fail_intervals(), Some(10));
    }

    #[test]
    fn other_bytes_are_refused() {
        assert!(matches!(Uberblock::parse(&MIR[..207]), Err(FormatError::Short { .. })));
        assert!(matches!(Uberblock::parse(&[0; 1024]), Err(FormatError::Magic { seen: 0, .. })));
        assert!(version_exists(28) && version_exists(5000) && !version_exists(29));
    }
}
