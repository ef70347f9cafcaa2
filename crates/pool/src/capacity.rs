//! What a pool would hold, before it is made.
//!
//! The sizes are those that the pool will have, by the same arithmetic. What a layout loses beyond
//! its parity depends on the records: RAID-Z rounds each block up to whole rows of parity.

use vdev::raidz::Geometry;
use vdev::sizes::{Layout, metaslab_count, metaslab_shift};

use crate::create::Joined;
use crate::space::{log_slab, slop_of};

/// A top-level vdev that is to be.
#[derive(Clone, Debug)]
pub struct PlannedTop {
    /// How its devices are joined.
    pub joined: Joined,
    /// Their sizes, in bytes.
    pub device_bytes: Vec<u64>,
}

/// What a pool would hold, in bytes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Capacity {
    /// All metaslabs, parity included: `zpool list`'s SIZE.
    pub size: u64,
    /// What data sets may use: `zfs list`'s USED and AVAIL of an empty pool.
    pub usable: u64,
    /// Kept free beside that; what the intent log of the kernel takes is in neither.
    pub slop: u64,
    /// What fits by the size of records, if nothing is compressed.
    pub records: Vec<RecordCapacity>,
}

/// What fits in records of one size.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RecordCapacity {
    /// Size of the records, in bytes.
    pub record: u64,
    /// Bytes of data that fit.
    pub data: u64,
    /// Of the space that parity leaves, what padding takes, in tenths of a percent.
    pub padding_permille: u64,
}

/// The record sizes that are told of, as powers of two.
const RECORD_SHIFTS: std::ops::RangeInclusive<u32> = 12..=20;

/// What a pool of these vdevs with sectors of `1 << ashift` bytes would hold; `None` if a vdev
/// cannot be made so.
pub fn foretell(tops: &[PlannedTop], ashift: u32) -> Option<Capacity> {
    let mut layouts = Vec::new();
    let (mut size, mut log) = (0, 0);
    for top in tops {
        let disks = top.device_bytes.len();
        let smallest = top.device_bytes.iter().copied().min()?;
        let leaf = format::label::leaf_asize(smallest)?;
        let (layout, left) = match top.joined {
            Joined::Single | Joined::Mirror => (Layout::Plain { ashift }, (1, 1)),
            Joined::Raidz(parity) => {
                let parity = usize::from(parity);
                let layout = Layout::Raidz(Geometry::new(ashift, disks, parity)?);
                (layout, ((disks - parity) as u64, disks as u64))
            }
        };
        let asize = layout.top_asize(leaf);
        let shift = metaslab_shift(asize);
        let count = metaslab_count(asize, shift);
        let kept = log_slab(count, shift);
        size += count << shift;
        log += layout.deflate(kept);
        layouts.push((layout, left, (count << shift) - kept));
    }
    let deflated: u64 = layouts.iter().map(|(layout, _, bytes)| layout.deflate(*bytes)).sum();
    let slop = slop_of(deflated, log);
    let usable = deflated.saturating_sub(slop);
    let records = RECORD_SHIFTS.map(|shift| {
        let record = 1u64 << shift;
        let (mut data, mut parity_left) = (0u64, 0u64);
        for (layout, (part, whole), bytes) in &layouts {
            // What is kept free is kept free of every vdev alike.
            let share = u128::from(*bytes) * u128::from(usable) / u128::from(deflated.max(1));
            let share = share as u64;
            data += layout.usable(share, record);
            parity_left += (u128::from(share) * u128::from(*part) / u128::from(*whole)) as u64;
        }
        let lost = parity_left.saturating_sub(data);
        let permille = u128::from(lost) * 1000 / u128::from(parity_left.max(1));
        RecordCapacity { record, data, padding_permille: permille as u64 }
    });
    Some(Capacity { size, usable, slop, records: records.collect() })
}

#[cfg(test)]
mod tests {
    use super::*;

    const TIB: u64 = 1 << 40;

    fn padding(disks: usize, parity: u8, ashift: u32) -> Vec<u64> {
        let top = PlannedTop { joined: Joined::Raidz(parity), device_bytes: vec![TIB; disks] };
        let told = foretell(&[top], ashift).unwrap();
        told.records.iter().map(|r| r.padding_permille / 10).collect()
    }

    #[test]
    fn padding_is_lost_by_small_records() {
        // raidz2 of 11 with 4 KiB sectors: 4K take 3 sectors where 11/9 would do
        assert_eq!(padding(11, 2, 12), [59, 59, 18, 18, 6, 6, 3, 1, 0]);
        // 4 data disks: powers of two fit
        assert_eq!(padding(6, 2, 12)[2..], [0; 7]);
        assert_eq!(padding(3, 1, 9), [0; 9]);
    }

    #[test]
    fn mirrors_lose_nothing_but_the_other_copies() {
        let top = PlannedTop { joined: Joined::Mirror, device_bytes: vec![TIB, 2 * TIB] };
        let told = foretell(&[top.clone(), top], 12).unwrap();
        assert!(told.records.iter().all(|r| r.padding_permille == 0));
        assert!(told.size <= 2 * TIB && told.size > 2 * TIB - (64 << 30));
    }

    #[test]
    fn sizes_are_those_that_openzfs_tells() {
        // file devices of these sizes, one alone: SIZE, USED + AVAIL
        for (device, size, usable) in [
            (20u64 << 30, 20_937_965_568u64, 20_283_540_480 + 113_664u64),
            (30 << 30, 31_675_383_808, 30_685_414_400 + 113_664),
            (34_368_126_976, 34_359_738_368, 33_285_882_880 + 113_664),
            (33 << 30, 34_896_609_280, 33_822_755_328 + 112_128),
            (40 << 30, 42_412_802_048, 41_104_070_144 + 109_056),
            (150 << 30, 159_987_531_776, 155_021_366_784 + 109_056),
            (2 << 40, 2_181_843_386_368, 2_114_197_537_792 + 113_664),
        ] {
            let top = PlannedTop { joined: Joined::Single, device_bytes: vec![device] };
            let told = foretell(&[top], 9).unwrap();
            assert_eq!((told.size, told.usable), (size, usable), "{device}");
        }
        // three of them as raidz1
        for (device, size, usable) in [
            (33u64 << 30, 105_763_569_664u64, 68_249_972_186 + 135_718u64),
            (2 << 40, 6_579_889_897_472, 4_245_719_739_866 + 135_718),
        ] {
            let top = PlannedTop { joined: Joined::Raidz(1), device_bytes: vec![device; 3] };
            let told = foretell(&[top], 9).unwrap();
            assert_eq!((told.size, told.usable), (size, usable), "{device}");
        }
    }

    #[test]
    fn what_cannot_be_is_not_foretold() {
        let raidz =
            |disks: usize| PlannedTop { joined: Joined::Raidz(2), device_bytes: vec![TIB; disks] };
        assert_eq!(foretell(&[raidz(2)], 12), None);
        let tiny = PlannedTop { joined: Joined::Single, device_bytes: vec![1000] };
        assert_eq!(foretell(&[tiny], 12), None);
    }
}
