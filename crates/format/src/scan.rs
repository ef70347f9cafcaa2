//! State of a scrub or resilver (`dsl_scan_phys_t`): 24 words in the MOS directory.
//!
//! FORMAT: section 13.1.

use crate::{FormatError, Result};

/// Words of the state.
pub const SCAN_WORDS: usize = 24;

/// Bits of [`Scan::flags`].
pub struct ScanFlags;

impl ScanFlags {
    /// Data sets have to be visited again.
    pub const VISIT_AGAIN: u64 = 1;
    /// Paused by the administrator.
    pub const PAUSED: u64 = 2;
}

/// What a scan does.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[allow(missing_docs)]
pub enum ScanFunction {
    None,
    Scrub,
    Resilver,
    Other(u64),
}

impl ScanFunction {
    /// From the number on disk.
    pub fn from_id(id: u64) -> Self {
        match id {
            0 => Self::None,
            1 => Self::Scrub,
            2 => Self::Resilver,
            other => Self::Other(other),
        }
    }

    /// The number on disk.
    pub fn id(self) -> u64 {
        match self {
            Self::None => 0,
            Self::Scrub => 1,
            Self::Resilver => 2,
            Self::Other(id) => id,
        }
    }
}

/// How far a scan is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[allow(missing_docs)]
pub enum ScanState {
    None,
    Scanning,
    Finished,
    Canceled,
    Other(u64),
}

impl ScanState {
    /// From the number on disk.
    pub fn from_id(id: u64) -> Self {
        match id {
            0 => Self::None,
            1 => Self::Scanning,
            2 => Self::Finished,
            3 => Self::Canceled,
            other => Self::Other(other),
        }
    }

    /// The number on disk.
    pub fn id(self) -> u64 {
        match self {
            Self::None => 0,
            Self::Scanning => 1,
            Self::Finished => 2,
            Self::Canceled => 3,
            Self::Other(id) => id,
        }
    }
}

/// Where in the pool a walk over blocks is (`zbookmark_phys_t`).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Bookmark {
    /// Object number of the data set in the MOS; 0 is the MOS.
    pub objset: u64,
    /// Object; 0 is the meta dnode.
    pub object: u64,
    /// Level; -1 is the object set's own block, -2 an intent log block.
    pub level: i64,
    /// Block of that level; of an intent log its sequence number.
    pub block: u64,
}

/// Where in the dedup tables a scan is.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[allow(missing_docs)]
pub struct DdtBookmark {
    pub class: u64,
    pub kind: u64,
    pub checksum: u64,
    pub cursor: u64,
}

/// State of a scan.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Scan {
    /// What it does.
    pub function: ScanFunction,
    /// How far it is.
    pub state: ScanState,
    /// ZAP of data sets that have still to be visited; 0 if there is none.
    pub queue_object: u64,
    /// Blocks born later than this are looked at.
    pub min_txg: u64,
    /// Blocks born up to this are looked at.
    pub max_txg: u64,
    /// As [`Scan::min_txg`], of the data set at hand.
    pub current_min_txg: u64,
    /// As [`Scan::max_txg`], of the data set at hand.
    pub current_max_txg: u64,
    /// When it began, in seconds since 1970.
    pub start_time: u64,
    /// When it ended, in seconds since 1970; 0: it has not.
    pub end_time: u64,
    /// Bytes to look at.
    pub to_examine: u64,
    /// Bytes looked at.
    pub examined: u64,
    /// Bytes to repair or copy.
    pub to_process: u64,
    /// Bytes repaired or copied.
    pub processed: u64,
    /// Errors that could not be repaired.
    pub errors: u64,
    /// Dedup tables up to this class are walked first.
    pub ddt_class_max: u64,
    /// Position in the dedup tables.
    pub ddt_bookmark: DdtBookmark,
    /// Position in the pool.
    pub bookmark: Bookmark,
    /// [`ScanFlags`].
    pub flags: u64,
}

impl Scan {
    /// From the words of the MOS directory; fewer than 24 are refused.
    pub fn from_words(words: &[u64]) -> Result<Self> {
        let short = FormatError::Short {
            what: "scan",
            needed: 8 * SCAN_WORDS as u64,
            have: 8 * words.len() as u64,
        };
        let words: &[u64; SCAN_WORDS] = words.first_chunk().ok_or(short)?;
        let [
            function,
            state,
            queue_object,
            min_txg,
            max_txg,
            current_min_txg,
            current_max_txg,
            start_time,
            end_time,
            to_examine,
            examined,
            to_process,
            processed,
            errors,
            ddt_class_max,
            class,
            kind,
            checksum,
            cursor,
            objset,
            object,
            level,
            block,
            flags,
        ] = *words;
        Ok(Scan {
            function: ScanFunction::from_id(function),
            state: ScanState::from_id(state),
            queue_object,
            min_txg,
            max_txg,
            current_min_txg,
            current_max_txg,
            start_time,
            end_time,
            to_examine,
            examined,
            to_process,
            processed,
            errors,
            ddt_class_max,
            ddt_bookmark: DdtBookmark { class, kind, checksum, cursor },
            bookmark: Bookmark { objset, object, level: level as i64, block },
            flags,
        })
    }

    /// The words for the MOS directory.
    pub fn to_words(&self) -> [u64; SCAN_WORDS] {
        [
            self.function.id(),
            self.state.id(),
            self.queue_object,
            self.min_txg,
            self.max_txg,
            self.current_min_txg,
            self.current_max_txg,
            self.start_time,
            self.end_time,
            self.to_examine,
            self.examined,
            self.to_process,
            self.processed,
            self.errors,
            self.ddt_class_max,
            self.ddt_bookmark.class,
            self.ddt_bookmark.kind,
            self.ddt_bookmark.checksum,
            self.ddt_bookmark.cursor,
            self.bookmark.objset,
            self.bookmark.object,
            self.bookmark.level as u64,
            self.bookmark.block,
            self.flags,
        ]
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// As `zdb -dddd` prints the key of two golden pools.
    const RESILVER: [u64; SCAN_WORDS] = [
        2,
        1,
        161,
        3,
        23,
        3,
        13,
        1_714_521_637,
        0,
        15_736_832,
        4_055_040,
        0,
        495_616,
        0,
        1,
        3,
        0,
        0,
        0,
        81,
        254,
        0,
        0,
        0,
    ];
    const SCRUB: [u64; SCAN_WORDS] = [
        1,
        2,
        0,
        0,
        21,
        1,
        21,
        1_714_521_622,
        1_714_521_623,
        3_215_360,
        3_215_360,
        0,
        0,
        0,
        1,
        3,
        0,
        0,
        0,
        u64::MAX,
        0,
        0,
        0,
        0,
    ];

    #[test]
    fn reads_what_the_kernel_wrote() {
        let scan = Scan::from_words(&RESILVER).unwrap();
        assert_eq!(scan.function, ScanFunction::Resilver);
        assert_eq!(scan.state, ScanState::Scanning);
        assert_eq!((scan.queue_object, scan.min_txg, scan.max_txg), (161, 3, 23));
        assert_eq!(
            (scan.to_examine, scan.examined, scan.processed),
            (15_736_832, 4_055_040, 495_616)
        );
        assert_eq!(scan.bookmark, Bookmark { objset: 81, object: 254, level: 0, block: 0 });
        let scan = Scan::from_words(&SCRUB).unwrap();
        assert_eq!((scan.function, scan.state), (ScanFunction::Scrub, ScanState::Finished));
        assert_eq!(scan.end_time, 1_714_521_623);
        assert_eq!(scan.ddt_bookmark.class, 3);
        assert_eq!(scan.bookmark.objset, u64::MAX);
    }

    #[test]
    fn words_and_state_are_inverse() {
        let all: [u64; SCAN_WORDS] = std::array::from_fn(|i| u64::MAX - i as u64);
        for words in [RESILVER, SCRUB, all, [0; SCAN_WORDS]] {
            assert_eq!(Scan::from_words(&words).unwrap().to_words(), words);
        }
        assert!(Scan::from_words(&RESILVER[1..]).is_err());
    }
}
