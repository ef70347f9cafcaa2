//! Comparing what is allocated with what can be reached, one metaslab after another.
//!
//! The one idea: reachable segments come sorted, so that each metaslab is one sweep over its
//! bitmap: gaps that are allocated are leaks, overlaps are double allocations, and segments over
//! free bits are in danger. Memory is one bitmap, whatever the size of the pool.

use crate::report::{FindingKind, Findings, SpaceTotals};
use crate::sorter::Record;
use format::BlkPtr;
use std::iter::Peekable;

/// Set in a segment's owner: the block is deduplicated, so it may come several times.
pub(crate) const OWNER_DEDUP: u64 = 1 << 63;
/// Set in a segment's owner: it is being freed and may be free already.
pub(crate) const OWNER_DYING: u64 = 1 << 62;

/// May the block come several times? Only what a file or volume holds is deduplicated.
pub(crate) fn repeats(bp: &BlkPtr) -> bool {
    bp.is_dedup() && bp.level() == 0 && !bp.kind().is_metadata()
}

/// Which units of a region are allocated.
pub(crate) struct Bitmap {
    start: u64,
    end: u64,
    shift: u32,
    /// None while nothing is allocated: there may be many such metaslabs.
    words: Vec<u64>,
}

impl Bitmap {
    /// Nothing of `[start, start + size)` is allocated; bits stand for `1 << shift` bytes.
    pub(crate) fn new(start: u64, size: u64, shift: u32) -> Bitmap {
        Bitmap { start, end: start.saturating_add(size), shift, words: Vec::new() }
    }

    /// Memory of a bitmap, in bytes.
    pub(crate) fn memory(size: u64, shift: u32) -> u64 {
        (size >> shift) / 8
    }

    /// Marks a range as allocated or free. Gives the bytes that were so already.
    pub(crate) fn set(&mut self, offset: u64, size: u64, allocated: bool) -> u64 {
        if self.words.is_empty() {
            let bits = self.bits(offset, size);
            if !allocated || bits.is_empty() {
                return (bits.end.saturating_sub(bits.start)) << self.shift;
            }
            let all = (self.end - self.start) >> self.shift;
            self.words.resize(all.div_ceil(64) as usize, 0);
        }
        let mut same = 0;
        self.masks(offset, size, |word, mask| {
            if allocated {
                same += u64::from((*word & mask).count_ones());
                *word |= mask;
            } else {
                same += u64::from((!*word & mask).count_ones());
                *word &= !mask;
            }
        });
        same << self.shift
    }

    /// Allocated bytes of a range.
    pub(crate) fn allocated(&mut self, offset: u64, end: u64) -> u64 {
        let mut count = 0;
        self.masks(offset, end.saturating_sub(offset), |word, mask| {
            count += u64::from((*word & mask).count_ones());
        });
        count << self.shift
    }

    /// Units that are free, and that are allocated.
    pub(crate) fn units(&self) -> (u64, u64) {
        let allocated = self.words.iter().map(|word| u64::from(word.count_ones())).sum();
        let all = (self.end - self.start) >> self.shift;
        (all.saturating_sub(allocated), allocated)
    }

    /// The first allocated run at or after `offset` and before `end`.
    pub(crate) fn first_run(&self, offset: u64, end: u64) -> Option<(u64, u64)> {
        let is_set = |bit: u64| {
            let word = self.words.get((bit / 64) as usize).copied().unwrap_or(0);
            word >> (bit % 64) & 1 == 1
        };
        let bits = self.bits(offset, end.saturating_sub(offset));
        let mut at = if self.words.is_empty() { bits.end } else { bits.start };
        while at < bits.end && !is_set(at) {
            let empty = at.is_multiple_of(64) && self.words.get((at / 64) as usize) == Some(&0);
            at += if empty { 64 } else { 1 };
        }
        if at >= bits.end {
            return None;
        }
        let mut stop = at;
        while stop < bits.end && is_set(stop) {
            stop += 1;
        }
        Some((self.start + (at << self.shift), (stop - at) << self.shift))
    }

    /// The bits that a range touches, within the region.
    fn bits(&self, offset: u64, size: u64) -> std::ops::Range<u64> {
        let from = offset.clamp(self.start, self.end) - self.start;
        let to = offset.saturating_add(size).clamp(self.start, self.end) - self.start;
        let limit = (self.end - self.start) >> self.shift;
        let unit = 1 << self.shift;
        (from / unit).min(limit)..to.div_ceil(unit).min(limit)
    }

    fn masks(&mut self, offset: u64, size: u64, mut each: impl FnMut(&mut u64, u64)) {
        if self.words.is_empty() {
            return;
        }
        let bits = self.bits(offset, size);
        let mut at = bits.start;
        while at < bits.end {
            let low = at % 64;
            let len = (64 - low).min(bits.end - at);
            if let Some(word) = self.words.get_mut((at / 64) as usize) {
                each(word, (u64::MAX >> (64 - len)) << low);
            }
            at += len;
        }
    }
}

/// Takes from the sorted stream `reach` all segments of this metaslab and compares.
///
/// Records are (vdev, offset, size, owner). `name` tells who an owner is.
pub(crate) fn sweep(
    top: u32,
    map: &mut Bitmap,
    reach: &mut Peekable<impl Iterator<Item = Record>>,
    totals: &mut SpaceTotals,
    findings: &mut Findings,
    name: &dyn Fn(u64) -> String,
) {
    let (start, end) = (map.start, map.end);
    let mut edge = start;
    let mut last: Option<Record> = None;
    totals.allocated += map.allocated(start, end);
    while let Some(record) =
        reach.next_if(|[vdev, offset, ..]| *vdev == u64::from(top) && *offset < end)
    {
        let [_, offset, size, owner] = record;
        let stop = offset.saturating_add(size);
        if stop > end {
            findings.add(FindingKind::Pointer, || {
                format!(
                    "vdev {top} offset {offset:#x}: {size:#x} bytes of {} reach beyond metaslab",
                    name(owner)
                )
            });
        }
        let stop = stop.min(end);
        if stop <= offset {
            continue;
        }
        let dying = owner & OWNER_DYING != 0;
        if offset > edge {
            leak(top, map, (edge, offset), totals, findings);
        } else if offset < edge {
            let [_, other_offset, other_size, other] = last.unwrap_or(record);
            let shared = owner & other & OWNER_DEDUP != 0;
            let same = (other_offset, other_size) == (offset, size);
            if !(shared && same || dying || other & OWNER_DYING != 0) {
                let bytes = stop.min(edge) - offset;
                totals.doubly_allocated += bytes;
                findings.add(FindingKind::DoublyAllocated, || {
                    format!(
                        "vdev {top} offset {offset:#x}: {bytes:#x} bytes are used by {} and by {}",
                        name(other),
                        name(owner)
                    )
                });
            }
        }
        let fresh = offset.max(edge);
        if stop > fresh {
            let free = (stop - fresh).saturating_sub(map.allocated(fresh, stop));
            if dying {
                totals.reachable += stop - fresh - free;
            } else {
                totals.reachable += stop - fresh;
                if free > 0 {
                    totals.reachable_but_free += free;
                    findings.add(FindingKind::ReachableButFree, || {
                        format!(
                            "vdev {top} offset {offset:#x}: {free:#x} bytes of {} are free in the \
                             space map",
                            name(owner)
                        )
                    });
                }
            }
            edge = stop;
            last = Some(record);
        }
    }
    leak(top, map, (edge, end), totals, findings);
}

fn leak(
    top: u32,
    map: &mut Bitmap,
    (from, to): (u64, u64),
    totals: &mut SpaceTotals,
    findings: &mut Findings,
) {
    let bytes = map.allocated(from, to);
    if bytes > 0 {
        totals.leaked += bytes;
        let map = &*map;
        findings.add(FindingKind::Leaked, || {
            let (offset, _) = map.first_run(from, to).unwrap_or((from, 0));
            format!("vdev {top} offset {offset:#x}: {bytes:#x} bytes are allocated to nothing")
        });
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn judge(allocated: &[(u64, u64)], reach: &[Record]) -> (SpaceTotals, Findings) {
        let mut map = Bitmap::new(1 << 20, 1 << 20, 9);
        for (offset, size) in allocated {
            assert_eq!(map.set(*offset, *size, true), 0);
        }
        let (mut totals, mut findings) = (SpaceTotals::default(), Findings::default());
        let mut stream = reach.iter().copied().peekable();
        sweep(3, &mut map, &mut stream, &mut totals, &mut findings, &|owner| owner.to_string());
        (totals, findings)
    }

    const AT: u64 = 1 << 20;

    #[test]
    fn what_fits_is_clean() {
        let allocated = [(AT, 4096), (AT + 8192, 512), (2 * AT - 1024, 1024)];
        let reach = [
            [3, AT, 1024, 1],
            [3, AT + 1024, 3072, 2],
            [3, AT + 8192, 512, 3],
            [3, 2 * AT - 1024, 1024, 4],
        ];
        let (totals, findings) = judge(&allocated, &reach);
        assert!(findings.is_clean());
        assert_eq!((totals.allocated, totals.reachable), (5632, 5632));
    }

    #[test]
    fn each_lie_is_told_from_the_others() {
        let (totals, findings) = judge(&[(AT, 4096)], &[[3, AT + 512, 512, 1]]);
        assert_eq!(totals.leaked, 3584);
        assert!(findings.has(FindingKind::Leaked));

        let (totals, findings) = judge(&[(AT, 1024)], &[[3, AT, 1024, 1], [3, AT + 512, 512, 2]]);
        assert_eq!((totals.doubly_allocated, totals.leaked), (512, 0));
        let list = findings.into_list();
        assert_eq!(list.len(), 1);
        assert!(list[0].text.contains("are used by 1 and by 2"), "{}", list[0].text);

        let (totals, findings) = judge(&[(AT, 512)], &[[3, AT, 2048, 1]]);
        assert_eq!(totals.reachable_but_free, 1536);
        assert!(findings.has(FindingKind::ReachableButFree) && !findings.has(FindingKind::Leaked));
    }

    #[test]
    fn a_segment_inside_another_does_not_hide_what_follows() {
        let reach = [[3, AT, 4096, 1], [3, AT + 512, 512, 2], [3, AT + 2048, 512, 3]];
        let (totals, _) = judge(&[(AT, 4096)], &reach);
        assert_eq!((totals.doubly_allocated, totals.leaked), (1024, 0));
    }

    #[test]
    fn dedup_and_dying_blocks_may_share() {
        let dedup = [[3, AT, 512, OWNER_DEDUP | 1], [3, AT, 512, OWNER_DEDUP | 2]];
        assert!(judge(&[(AT, 512)], &dedup).1.is_clean());
        // Only the same block may be shared.
        let overlap = [[3, AT, 1024, OWNER_DEDUP | 1], [3, AT + 512, 512, OWNER_DEDUP | 2]];
        assert!(!judge(&[(AT, 1024)], &overlap).1.is_clean());
        let dying = [[3, AT, 512, 1], [3, AT, 512, OWNER_DYING], [3, AT + 512, 512, OWNER_DYING]];
        assert!(judge(&[(AT, 512)], &dying).1.is_clean());
    }

    #[test]
    fn segments_beyond_the_metaslab_are_named_and_others_left() {
        let reach = [[3, 2 * AT - 512, 1024, 1], [3, 2 * AT, 512, 2], [4, AT, 512, 3]];
        let mut map = Bitmap::new(AT, AT, 9);
        map.set(2 * AT - 512, 512, true);
        let (mut totals, mut findings) = (SpaceTotals::default(), Findings::default());
        let mut stream = reach.iter().copied().peekable();
        sweep(3, &mut map, &mut stream, &mut totals, &mut findings, &|_| String::new());
        assert!(findings.has(FindingKind::Pointer));
        assert_eq!(totals.reachable, 512);
        assert_eq!(stream.count(), 2);
    }

    #[test]
    fn bitmaps_count_across_words() {
        let mut map = Bitmap::new(0, 1 << 20, 9);
        assert_eq!(map.set(63 * 512, 130 * 512, true), 0);
        assert_eq!(map.allocated(0, 1 << 20), 130 * 512);
        assert_eq!(map.first_run(0, 1 << 20), Some((63 * 512, 130 * 512)));
        assert_eq!(map.first_run(100 * 512, 101 * 512), Some((100 * 512, 512)));
        assert_eq!(map.set(60 * 512, 4 * 512, false), 3 * 512);
        assert_eq!(map.set(60 * 512, 5 * 512, true), 512);
        assert_eq!(map.allocated(0, 64 * 512), 4 * 512);
        // Hostile ranges stay inside.
        assert_eq!(map.set(u64::MAX - 5, u64::MAX, true), 0);
        assert_eq!(map.first_run(300 * 512, u64::MAX), None);
    }
}
