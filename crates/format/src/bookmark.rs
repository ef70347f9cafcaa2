//! Bookmarks (`zfs_bookmark_phys_t`): what is left of a snapshot for an incremental send.
//!
//! Values of the ZAP that the data set's key
//! [`DS_BOOKMARKS`](crate::dsl_dataset::DS_BOOKMARKS) leads to: 3 words, or 12 if the bookmark
//! knows more. FORMAT: section 8.9.

use crate::{FormatError, Result};

/// Words of the first form.
pub const BOOKMARK_WORDS_V1: usize = 3;
/// Words of the second form (feature bookmark_v2).
pub const BOOKMARK_WORDS_V2: usize = 12;

/// Bits of [`Bookmark::flags`].
pub struct BookmarkFlags;

impl BookmarkFlags {
    /// The space numbers of the bookmark are kept (feature bookmark_written).
    pub const HAS_FBN: u64 = 1;
    /// The snapshot still exists.
    pub const SNAPSHOT_EXISTS: u64 = 2;
}

/// A bookmark, as named fields.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Bookmark {
    /// Guid of the snapshot.
    pub guid: u64,
    /// Creation txg of the snapshot.
    pub creation_txg: u64,
    /// When the snapshot was made, in seconds since 1970.
    pub creation_time_secs: u64,
    /// Redaction list; 0: none.
    pub redaction_object: u64,
    /// [`BookmarkFlags`].
    pub flags: u64,
    /// The snapshot's referenced space, with parity.
    pub referenced_bytes: u64,
    /// The same before parity, after compression.
    pub compressed_bytes: u64,
    /// The same before compression.
    pub uncompressed_bytes: u64,
    /// What was freed between it and the next snapshot, with parity.
    pub freed_referenced_bytes: u64,
    /// The same before parity, after compression.
    pub freed_compressed_bytes: u64,
    /// The same before compression.
    pub freed_uncompressed_bytes: u64,
    /// Guid of the set of initialization vectors (encrypted data sets).
    pub ivset_guid: u64,
}

impl Bookmark {
    /// From the words of a ZAP value; words that are not there are 0.
    pub fn from_words(words: &[u64]) -> Result<Self> {
        if !(BOOKMARK_WORDS_V1..=BOOKMARK_WORDS_V2).contains(&words.len()) {
            return Err(FormatError::Field {
                what: "bookmark",
                field: "words",
                seen: words.len() as u64,
                expected: "3 to 12",
            });
        }
        let mut all = [0; BOOKMARK_WORDS_V2];
        for (to, from) in all.iter_mut().zip(words) {
            *to = *from;
        }
        let [guid, creation_txg, creation_time_secs, redaction_object, flags, rest @ ..] = all;
        let [referenced_bytes, compressed_bytes, uncompressed_bytes, rest @ ..] = rest;
        let [freed_referenced_bytes, freed_compressed_bytes, freed_uncompressed_bytes, ivset_guid] =
            rest;
        Ok(Bookmark {
            guid,
            creation_txg,
            creation_time_secs,
            redaction_object,
            flags,
            referenced_bytes,
            compressed_bytes,
            uncompressed_bytes,
            freed_referenced_bytes,
            freed_compressed_bytes,
            freed_uncompressed_bytes,
            ivset_guid,
        })
    }

    /// The words of the ZAP value: 3 if that says all, else 12.
    pub fn to_words(&self) -> Vec<u64> {
        let mut words = vec![
            self.guid,
            self.creation_txg,
            self.creation_time_secs,
            self.redaction_object,
            self.flags,
            self.referenced_bytes,
            self.compressed_bytes,
            self.uncompressed_bytes,
            self.freed_referenced_bytes,
            self.freed_compressed_bytes,
            self.freed_uncompressed_bytes,
            self.ivset_guid,
        ];
        if words.iter().skip(BOOKMARK_WORDS_V1).all(|w| *w == 0) {
            words.truncate(BOOKMARK_WORDS_V1);
        }
        words
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words_come_back_in_order() {
        for len in 0..20u64 {
            let words: Vec<u64> = (1..=len).collect();
            let parsed = Bookmark::from_words(&words);
            assert_eq!(parsed.is_ok(), (3..=12).contains(&len));
            if let Ok(bookmark) = parsed {
                let again = bookmark.to_words();
                assert_eq!(again.len(), if len == 3 { 3 } else { 12 });
                assert_eq!(again[..len as usize], words[..]);
            }
        }
    }
}
