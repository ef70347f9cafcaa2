//! RAID-Z geometry: which bytes of a block lie where on which disk.
//!
//! Place: pure arithmetic, under every raidz read and write, and under the allocator's sizes.
//! The one idea: a raidz vdev is one long row of sectors dealt out to the disks in turn (sector `x`
//! lies on disk `x mod n` at row `x div n`). A block takes consecutive sectors of it; its *columns*
//! are what each disk gets of that: first the parity columns, then the data, cut column by column.
//!
//! ```text
//! raidz2 of 5, a block of 8 sectors at sector 7:          disk   0   1   2   3   4
//!   full rows q = 8 / 3 = 2, rest r = 2                  row 1   .   .   P0  Q0  D0
//!   columns: P Q and 3 data columns of 3, 3, 2 sectors   row 2   D3  D6  P1  Q1  D1
//!   (the columns of the rest are one sector longer)      row 3   D4  D7  P2  Q2  D2
//!   16 - 1 sectors, rounded up to a multiple of p + 1    row 4   D5  s   .   .   .
//! ```
//! `s` is a *skip sector*: allocated so that no free gap can be too small to use, never read.
//!
//! A [`Columns`] is a few numbers, not a list: each column is computed when asked for, so that
//! mapping a block costs no allocation. FORMAT: section 4.4.

use format::label::{ASHIFT_MAX, ASHIFT_MIN};
use std::ops::{Range, RangeInclusive};

/// Most children that a raidz vdev can have.
pub const DISKS_MAX: usize = 255;
/// Most parity columns.
pub const PARITY_MAX: usize = 3;
/// The sizes that a sector can have, as powers of two.
pub(crate) const ASHIFTS: RangeInclusive<u32> = ASHIFT_MIN as u32..=ASHIFT_MAX as u32;

/// In a raidz1 vdev, parity and first data column change places where this bit of the offset is
/// set, so that not one disk alone carries all the parity of equally placed blocks.
const SWAP_BIT: u64 = 1 << 20;

/// The shape of a raidz vdev.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Geometry {
    ashift: u32,
    disks: u32,
    parity: u32,
}

/// One column of a block: a piece of one disk.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Column {
    /// Number of the child.
    pub disk: usize,
    /// Offset in the child's allocatable space, in bytes.
    pub offset: u64,
    /// Size in bytes, a multiple of the sector.
    pub size: usize,
}

impl Geometry {
    /// The geometry of `disks` children with `parity` parity columns and sectors of `1 << ashift`
    /// bytes; `None` if the format does not allow it.
    pub fn new(ashift: u32, disks: usize, parity: usize) -> Option<Self> {
        let good = ASHIFTS.contains(&ashift)
            && (1..=PARITY_MAX).contains(&parity)
            && (parity + 1..=DISKS_MAX).contains(&disks);
        good.then_some(Geometry { ashift, disks: disks as u32, parity: parity as u32 })
    }

    /// log2 of the sector size.
    pub fn ashift(&self) -> u32 {
        self.ashift
    }

    /// Number of children.
    pub fn disks(&self) -> usize {
        self.disks as usize
    }

    /// Number of parity columns.
    pub fn parity(&self) -> usize {
        self.parity as usize
    }

    /// Bytes that a block of `psize` bytes takes of the vdev: data, parity and skip sectors.
    pub fn asize(&self, psize: u64) -> u64 {
        let (n, p) = (u64::from(self.disks), u64::from(self.parity));
        let data = psize.div_ceil(1 << self.ashift);
        let sectors = data + p * data.div_ceil(n - p);
        sectors.next_multiple_of(p + 1) << self.ashift
    }

    /// The columns of a block of `psize` bytes at `offset` bytes of the vdev. What the last sector
    /// has beyond `psize` is zero, and counts as data.
    pub fn columns(&self, offset: u64, psize: u64) -> Columns {
        let (n, p) = (u64::from(self.disks), u64::from(self.parity));
        let start = offset >> self.ashift;
        let sectors = psize.div_ceil(1 << self.ashift);
        let (rows, rest) = (sectors / (n - p), sectors % (n - p));
        let long = if rest == 0 { 0 } else { rest + p };
        Columns {
            geometry: *self,
            first: (start % n) as u32,
            offset: (start / n) << self.ashift,
            rows: rows as u32,
            rest: rest as u32,
            long: long as u32,
            count: if rows == 0 { long as u32 } else { self.disks },
            swap: self.parity == 1 && offset & SWAP_BIT != 0,
        }
    }
}

/// The columns of one block. Columns `0..parity` are P, Q, R; the others hold the data in order.
#[derive(Clone, Copy, Debug)]
pub struct Columns {
    geometry: Geometry,
    /// The disk of column 0 (before the raidz1 swap).
    first: u32,
    /// Where column 0 starts on its disk, in bytes.
    offset: u64,
    /// Sectors that every column has.
    rows: u32,
    /// Data sectors of the last, incomplete row.
    rest: u32,
    /// Number of columns that have one sector more.
    long: u32,
    count: u32,
    swap: bool,
}

impl Columns {
    /// Number of columns, parity included: at most the number of disks.
    pub fn count(&self) -> usize {
        self.count as usize
    }

    /// Number of parity columns.
    pub fn parity(&self) -> usize {
        self.geometry.parity as usize
    }

    /// Number of data columns.
    pub fn data_count(&self) -> usize {
        self.count().saturating_sub(self.parity())
    }

    /// Size of a parity column (which is the longest of all), in bytes.
    pub fn parity_size(&self) -> usize {
        self.sectors(0) << self.geometry.ashift
    }

    /// Sectors of column `index`.
    fn sectors(&self, index: u32) -> usize {
        (self.rows + u32::from(index < self.long)) as usize
    }

    /// Column `index` of `0..count`.
    pub fn column(&self, index: usize) -> Column {
        debug_assert!(index < self.count());
        let index = index as u32;
        // Parity and first data column have the same size, so the swap moves no boundary.
        let place = match index {
            0 | 1 if self.swap => 1 - index,
            other => other,
        };
        let (n, at) = (self.geometry.disks, self.first + place);
        let (disk, wrapped) = if at >= n { (at - n, 1) } else { (at, 0) };
        Column {
            disk: disk as usize,
            offset: self.offset + (wrapped << self.geometry.ashift),
            size: self.sectors(index) << self.geometry.ashift,
        }
    }

    /// Data column `index` of `0..data_count`.
    pub fn data_column(&self, index: usize) -> Column {
        self.column(self.parity() + index)
    }

    /// Which bytes of the padded block data column `index` holds.
    pub fn data_range(&self, index: usize) -> Range<usize> {
        let start =
            |i: usize| (i * self.rows as usize + i.min(self.rest as usize)) << self.geometry.ashift;
        start(index)..start(index + 1)
    }

    /// Bytes of data, padding of the last sector included.
    pub fn data_size(&self) -> usize {
        let k = self.geometry.disks - self.geometry.parity;
        ((self.rows * k + self.rest) as usize) << self.geometry.ashift
    }

    /// The column that lies on child `disk`, if there is one.
    pub fn on_disk(&self, disk: usize) -> Option<usize> {
        let n = self.geometry.disks();
        let place = (disk + n - self.first as usize) % n;
        let index = match place {
            0 | 1 if self.swap => 1 - place,
            other => other,
        };
        (index < self.count()).then_some(index)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::HashSet;

    fn all_geometries() -> impl Iterator<Item = Geometry> {
        let shapes = (1..=3).flat_map(|p| (p + 1..=p + 9).map(move |n| (n, p)));
        shapes.flat_map(|(n, p)| [9, 12].map(|a| Geometry::new(a, n, p).unwrap()))
    }

    #[test]
    fn what_the_format_does_not_allow_is_refused() {
        assert_eq!(Geometry::new(8, 3, 1), None);
        assert_eq!(Geometry::new(17, 3, 1), None);
        assert_eq!(Geometry::new(12, 3, 0), None);
        assert_eq!(Geometry::new(12, 5, 4), None);
        assert_eq!(Geometry::new(12, 2, 2), None);
        assert_eq!(Geometry::new(12, 256, 2), None);
        assert!(Geometry::new(16, 255, 3).is_some());
    }

    #[test]
    fn sizes_known_from_pools() {
        // A 128 KiB gang member of 135168 bytes is on a single disk; these are raidz.
        let of = |a, n, p, psize| Geometry::new(a, n, p).unwrap().asize(psize);
        assert_eq!(of(12, 3, 1, 131072), 196608); // deflate ratio 341
        assert_eq!(of(12, 5, 2, 131072), 221184); // deflate ratio 303
        assert_eq!(of(12, 10, 2, 131072), 42 << 12);
        assert_eq!(of(12, 11, 2, 131072), 42 << 12);
        assert_eq!(of(9, 5, 1, 512), 1024);
        assert_eq!(of(12, 5, 2, 512), 3 << 12);
        assert_eq!(of(12, 5, 3, 4096), 4 << 12);
    }

    /// The drawing in the head of this file.
    #[test]
    fn the_example_is_laid_out_as_drawn() {
        let g = Geometry::new(9, 5, 2).unwrap();
        let c = g.columns(7 << 9, 8 << 9);
        let list: Vec<_> = (0..c.count()).map(|i| c.column(i)).collect();
        let at =
            |disk, row: u64, sectors: usize| Column { disk, offset: row << 9, size: sectors << 9 };
        assert_eq!(list, [at(2, 1, 3), at(3, 1, 3), at(4, 1, 3), at(0, 2, 3), at(1, 2, 2)]);
        let ranges: Vec<_> = (0..3).map(|i| c.data_range(i)).collect();
        assert_eq!(ranges, [0..3 << 9, 3 << 9..6 << 9, 6 << 9..8 << 9]);
        assert_eq!(g.asize(8 << 9), 15 << 9);
    }

    /// Columns fill exactly the block's consecutive sectors of the vdev, and `on_disk` inverts.
    #[test]
    fn columns_tile_the_address_space() {
        for g in all_geometries() {
            let (n, a) = (g.disks() as u64, g.ashift());
            for sectors in 1..=4 * n {
                // Both halves of the raidz1 swap.
                let starts = (0..2 * n).chain((SWAP_BIT >> a)..(SWAP_BIT >> a) + 2 * n);
                for start in starts {
                    let c = g.columns(start << a, sectors << a);
                    let mut seen = HashSet::new();
                    for i in 0..c.count() {
                        let col = c.column(i);
                        assert_eq!(c.on_disk(col.disk), Some(i));
                        for row in 0..col.size as u64 >> a {
                            let row = (col.offset >> a) + row;
                            assert!(seen.insert(row * n + col.disk as u64));
                        }
                    }
                    let used = seen.len() as u64;
                    assert!((start..start + used).all(|x| seen.contains(&x)));
                    let skips = (g.asize(sectors << a) >> a) - used;
                    assert!(skips <= g.parity() as u64);
                    let on_disks = (0..g.disks()).filter(|d| c.on_disk(*d).is_some()).count();
                    assert_eq!(on_disks, c.count());
                }
            }
        }
    }

    #[test]
    fn data_columns_hold_the_block_in_order() {
        for g in all_geometries() {
            for psize in (1..60).map(|s| s * 512) {
                let c = g.columns(0, psize);
                let mut next = 0;
                for i in 0..c.data_count() {
                    let range = c.data_range(i);
                    assert_eq!(range.start, next);
                    assert_eq!(range.len(), c.data_column(i).size);
                    assert!(range.len() <= c.parity_size());
                    next = range.end;
                }
                assert_eq!(next as u64, psize.next_multiple_of(1 << g.ashift()));
                assert_eq!(next, c.data_size());
            }
        }
    }

    #[test]
    fn raidz1_swaps_parity_in_every_second_mebibyte() {
        let g = Geometry::new(12, 4, 1).unwrap();
        let near = g.columns(0, 12 << 12);
        let far = g.columns(1 << 20, 12 << 12);
        let place = |c: Column| (c.disk, c.offset);
        // 256 sectors are 64 whole rows, so both start at disk 0.
        assert_eq!(place(near.column(0)), (0, 0));
        assert_eq!(place(near.column(1)), (1, 0));
        assert_eq!(place(far.column(0)), (1, 64 << 12));
        assert_eq!(place(far.column(1)), (0, 64 << 12));
        assert_eq!(place(far.column(2)), (2, 64 << 12));
        let raidz2 = Geometry::new(12, 4, 2).unwrap().columns(1 << 20, 12 << 12);
        assert_eq!(place(raidz2.column(0)), (0, 64 << 12));
    }

    #[test]
    fn hostile_offsets_do_not_panic() {
        for g in all_geometries() {
            let c = g.columns(u64::MAX, 32 << 20);
            (0..c.count()).for_each(|i| assert!(c.column(i).disk < g.disks()));
        }
    }
}
