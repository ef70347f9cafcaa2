//! What deduplication saves: kept as histograms of the dedup tables. FORMAT: section 15.

use crate::error::Result;
use crate::mos::key;
use crate::pool::Pool;

/// Words of one row of a histogram, one row per power of two of the reference count.
const ROW_WORDS: usize = 8;
/// Words of a row: deflated bytes as they are stored, and as they are referenced.
const STORED: usize = 3;
const REFERENCED: usize = 7;

/// Space of deduplicated blocks, in deflated bytes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct DedupSpace {
    /// As they are stored: each once.
    pub stored: u64,
    /// As they are referenced: each as often as it is used.
    pub referenced: u64,
}

impl DedupSpace {
    /// Bytes that are charged to data sets and are not there.
    pub fn saved(&self) -> u64 {
        self.referenced.saturating_sub(self.stored)
    }

    /// How many times as much is referenced as is stored, in hundredths.
    pub fn ratio(&self) -> u64 {
        let hundredths = u128::from(self.referenced) * 100;
        hundredths.checked_div(self.stored.into()).map_or(100, |ratio| ratio as u64)
    }
}

impl Pool {
    /// Space of deduplicated blocks, as of the last sync.
    pub fn dedup(&self) -> Result<DedupSpace> {
        let mut sum = DedupSpace::default();
        let Some(object) = self.mos().find(key::DDT_STATISTICS)? else { return Ok(sum) };
        for entry in self.mos().zap(object)?.entries()? {
            for row in entry.value.ints().chunks_exact(ROW_WORDS) {
                sum.stored = sum.stored.saturating_add(row[STORED]);
                sum.referenced = sum.referenced.saturating_add(row[REFERENCED]);
            }
        }
        Ok(sum)
    }
}
