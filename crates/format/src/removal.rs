//! How far the last removal of a vdev that held data is (`spa_removing_phys_t`): 7 words in the MOS directory.
//!
//! FORMAT: section 13.5.

use crate::scan::ScanState;
use crate::{FormatError, Result};

/// Words of the state.
pub const REMOVAL_WORDS: usize = 7;

/// State of a removal.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Removal {
    /// How far it is: numbered as a scan's.
    pub state: ScanState,
    /// Number of the top-level vdev.
    pub vdev: u64,
    /// Number of the one that was removed last; each has that of the one before. `None`: none is left.
    pub newest_removed: Option<u64>,
    /// When it began, in seconds since 1970.
    pub start_time: u64,
    /// When it ended, in seconds since 1970.
    pub end_time: u64,
    /// Bytes to copy.
    pub to_copy: u64,
    /// Bytes copied.
    pub copied: u64,
}

impl Removal {
    /// From the words of the MOS directory; fewer than 7 are refused.
    pub fn from_words(words: &[u64]) -> Result<Self> {
        let short = FormatError::Short {
            what: "removal",
            needed: 8 * REMOVAL_WORDS as u64,
            have: 8 * words.len() as u64,
        };
        let words: &[u64; REMOVAL_WORDS] = words.first_chunk().ok_or(short)?;
        let [state, vdev, newest, start_time, end_time, to_copy, copied] = *words;
        let newest_removed = (newest != u64::MAX).then_some(newest);
        let state = ScanState::from_id(state);
        Ok(Removal { state, vdev, newest_removed, start_time, end_time, to_copy, copied })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words_are_read_in_their_order() {
        let removal = Removal::from_words(&[2, 1, u64::MAX, 10, 20, 400, 300, 0]).unwrap();
        assert_eq!(removal.state, ScanState::Finished);
        assert_eq!((removal.vdev, removal.newest_removed), (1, None));
        assert_eq!((removal.start_time, removal.end_time), (10, 20));
        assert_eq!((removal.to_copy, removal.copied), (400, 300));
        assert!(Removal::from_words(&[2, 1, 1, 10, 20, 400]).is_err());
    }
}
