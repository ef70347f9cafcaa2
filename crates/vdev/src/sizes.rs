//! Sizes that a vdev's shape dictates: what a top-level vdev offers, how it is cut into metaslabs,
//! and what a layout really holds. (What a leaf offers is in `format::label`.)
//!
//! Place: pure arithmetic, for `create`, `list` and the accounting.
//! The one idea: these rules are written down once, since OpenZFS must come to the same numbers.
//! FORMAT: sections 4.1 to 4.3.

use crate::raidz::Geometry;

/// How a top-level vdev lays out blocks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Layout {
    /// A leaf or a mirror: a block is one piece, at its own offset.
    Plain {
        /// log2 of the sector size.
        ashift: u32,
    },
    /// Columns with parity.
    Raidz(Geometry),
}

impl Layout {
    /// log2 of the sector size.
    pub fn ashift(&self) -> u32 {
        match self {
            Layout::Plain { ashift } => *ashift,
            Layout::Raidz(g) => g.ashift(),
        }
    }

    /// Number of parity columns.
    pub fn parity(&self) -> usize {
        match self {
            Layout::Plain { .. } => 0,
            Layout::Raidz(g) => g.parity(),
        }
    }

    /// Bytes that a block of `psize` bytes takes of the vdev.
    pub fn asize(&self, psize: u64) -> u64 {
        match self {
            Layout::Plain { ashift } => psize.next_multiple_of(1 << ashift),
            Layout::Raidz(g) => g.asize(psize),
        }
    }

    /// The vdev's allocatable space when its smallest child has `child_asize` bytes of it.
    pub fn top_asize(&self, child_asize: u64) -> u64 {
        match self {
            Layout::Plain { .. } => child_asize,
            Layout::Raidz(g) => child_asize * g.disks() as u64,
        }
    }

    /// What a child must offer for the vdev to have `asize` bytes.
    pub fn child_asize(&self, asize: u64) -> u64 {
        match self {
            Layout::Plain { .. } => asize,
            Layout::Raidz(g) => asize / g.disks() as u64,
        }
    }

    /// By this number over 512 an allocated size is multiplied to be charged without parity.
    pub fn deflate_ratio(&self) -> u64 {
        match self {
            Layout::Plain { .. } => 512,
            Layout::Raidz(g) => (128 << 10) / (g.asize(128 << 10) >> 9),
        }
    }

    /// `asize` bytes as they are charged (`dsize`). Each copy of a block is deflated for itself.
    pub fn deflate(&self, asize: u64) -> u64 {
        (asize >> 9) * self.deflate_ratio()
    }

    /// Bytes of blocks of `psize` bytes that fit into `asize` allocatable bytes: what the layout
    /// really holds, padding and skip sectors counted.
    pub fn usable(&self, asize: u64, psize: u64) -> u64 {
        let each = self.asize(psize);
        asize.checked_div(each).unwrap_or(0) * psize
    }
}

/// Floor of the logarithm, plus one; 0 for 0.
fn high_bit(x: u64) -> u32 {
    u64::BITS - x.leading_zeros()
}

/// log2 of the metaslab size of a new vdev with `asize` allocatable bytes.
pub fn metaslab_shift(asize: u64) -> u32 {
    /// The size that is tried first.
    const DEFAULT_SHIFT: u32 = 29;
    const COUNT_MIN: u64 = 16;
    const COUNT_AIM: u64 = 200;
    const COUNT_MAX: u64 = 1 << 17;
    const SHIFT_MIN: u32 = 24;
    const SHIFT_MAX: u32 = 34;

    let shift = match asize >> DEFAULT_SHIFT {
        count if count < COUNT_MIN => high_bit(asize / COUNT_MIN),
        count if count > COUNT_AIM => high_bit(asize / COUNT_AIM),
        _ => DEFAULT_SHIFT,
    };
    match shift {
        shift if shift < SHIFT_MIN => SHIFT_MIN,
        shift if shift <= SHIFT_MAX => shift,
        _ if asize >> SHIFT_MAX > COUNT_MAX => high_bit(asize / COUNT_MAX),
        _ => SHIFT_MAX,
    }
}

/// Number of metaslabs; the tail that does not fill one is not used.
pub fn metaslab_count(asize: u64, shift: u32) -> u64 {
    asize.checked_shr(shift).unwrap_or(0)
}

#[cfg(test)]
mod tests {
    use super::*;

    const MIB: u64 = 1 << 20;

    fn raidz(ashift: u32, disks: usize, parity: usize) -> Layout {
        Layout::Raidz(Geometry::new(ashift, disks, parity).unwrap())
    }

    #[test]
    fn tops_as_openzfs_made_them() {
        let leaf = format::label::leaf_asize(128 * MIB).unwrap();
        assert_eq!(raidz(12, 3, 1).top_asize(leaf), 388_497_408);
        assert_eq!(raidz(12, 3, 1).child_asize(388_497_408), leaf);
    }

    #[test]
    fn metaslabs_as_openzfs_cuts_them() {
        assert_eq!(metaslab_shift(309_854_208), 25);
        assert_eq!(metaslab_count(309_854_208, 25), 9);
        assert_eq!(metaslab_shift(64 * MIB), 24);
        assert_eq!(metaslab_shift(8 << 30), 29); // exactly 16 of the default size
        assert_eq!(metaslab_shift((100 << 30) + 1), 29); // 200 of them
        assert_eq!(metaslab_shift(101 << 30), 30);
        assert_eq!(metaslab_shift(16 << 40), 34);
        assert_eq!(metaslab_shift(1 << 50), 34);
        assert_eq!(metaslab_shift(1 << 52), 36); // more than 131,072 of the largest
        assert_eq!(metaslab_count(1 << 40, 64), 0);
    }

    #[test]
    fn deflation_truncates_as_openzfs_does() {
        assert_eq!(Layout::Plain { ashift: 12 }.deflate_ratio(), 512);
        assert_eq!(raidz(12, 3, 1).deflate_ratio(), 341);
        assert_eq!(raidz(12, 5, 2).deflate_ratio(), 303);
        assert_eq!(raidz(12, 5, 2).deflate(221_184), 432 * 303);
        assert_eq!(Layout::Plain { ashift: 12 }.deflate(4096), 4096);
    }

    #[test]
    fn usable_space_knows_small_records() {
        let layout = raidz(12, 11, 2);
        // 42 sectors of 11 disks carry 32 of data; a 4 KiB record costs three sectors.
        assert_eq!(layout.usable(42 << 20, 128 << 10), 32 << 20);
        assert_eq!(layout.usable(42 << 20, 4 << 10), 14 << 20);
        assert_eq!(Layout::Plain { ashift: 12 }.usable(10 << 12, 512), 10 * 512);
        assert_eq!(layout.usable(1 << 30, 0), 0);
    }
}
