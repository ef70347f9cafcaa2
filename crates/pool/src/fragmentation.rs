//! Fragmentation in percent: how small the pieces are that free space is in.
//!
//! Each space map keeps a histogram of the free segments of its metaslab. Segments of 16 MiB and
//! more count nothing, the smallest count full; what is between is a scale that OpenZFS has chosen.

use dmu::SpaceMap;
use format::features::Feature;

use crate::error::Result;
use crate::open;
use crate::pool::Pool;
use crate::spacemaps::{Before, PoolSpaceMaps, Unflushed};

/// What free space in segments of 512 bytes, 1 KiB, 2 KiB .. counts, in percent.
const SCALE: [u64; 16] = [100, 100, 98, 95, 90, 80, 70, 60, 50, 40, 30, 20, 15, 10, 5, 0];
/// log2 of the smallest segment of the scale, in bytes.
const SCALE_SHIFT: u32 = 9;

/// Fragmentation by a histogram whose first bucket is of segments of `1 << shift` bytes; 0 if
/// nothing is free.
fn of_histogram(histogram: impl Iterator<Item = u64>, shift: u32) -> u64 {
    let (mut total, mut weighed) = (0u128, 0u128);
    for (bucket, count) in histogram.enumerate() {
        let log = shift + bucket as u32;
        let at = (log.saturating_sub(SCALE_SHIFT) as usize).min(SCALE.len() - 1);
        let bytes = u128::from(count) << log.min(63);
        total += bytes;
        weighed += bytes * u128::from(SCALE[at]);
    }
    weighed.checked_div(total).unwrap_or(0) as u64
}

impl Pool {
    /// Fragmentation of each top-level vdev in percent, with its size in bytes; `None` where the
    /// space maps keep no histograms.
    pub fn fragmentation_by_top(&self) -> Result<Vec<(u32, u64, Option<u64>)>> {
        let tops = open::slabs(&self.config())?;
        let all = tops.iter().map(|(slabs, _)| slabs.clone()).collect();
        let maps = PoolSpaceMaps::new(self.mos().clone(), all, Unflushed::new(), Before::default());
        let kept = self.features().is_enabled(Feature::SpacemapHistogram)?;
        let mut out = Vec::new();
        for (slabs, _) in tops {
            let size = slabs.ms_count << slabs.ms_shift;
            let (mut sum, mut known) = (0, 0u64);
            for index in 0..slabs.ms_count {
                let number = maps.object(slabs.top, index)?;
                if number == 0 {
                    // What was never used is in one piece.
                    known += 1;
                    continue;
                }
                let (phys, has_histogram) = SpaceMap::open(&self.mos().objset, number)?.phys()?;
                if has_histogram {
                    known += 1;
                    let counts = phys.histogram.iter().map(|count| count.get());
                    sum += of_histogram(counts, slabs.ashift);
                }
            }
            // As OpenZFS: half of the metaslabs say nothing of all.
            let percent = (kept && known > slabs.ms_count / 2).then(|| sum / known.max(1));
            out.push((slabs.top, size, percent));
        }
        Ok(out)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn smaller_pieces_count_more() {
        let one = |bucket: usize| of_histogram((0..32).map(|b| u64::from(b == bucket)), 12);
        assert_eq!((one(0), one(5), one(11), one(12), one(31)), (95, 50, 5, 0, 0));
        assert_eq!(of_histogram([0; 32].into_iter(), 12), 0);
        // a piece of 8 MiB beside one of 16 MiB
        assert_eq!(of_histogram((0..32).map(|b| u64::from(b == 11 || b == 12)), 12), 1);
        assert_eq!(of_histogram(std::iter::once(1), 9), 100);
    }
}
