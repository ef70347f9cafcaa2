//! Any bytes as the bonus of a DSL directory, a data set, a deadlist or a bptree, as a deadlist's
//! key, and as the words of a bookmark.
#![no_main]

use format::bookmark::Bookmark;
use format::bptree::{BptreeEntry, BptreePhys};
use format::deadlist::{self, DeadlistPhys};
use format::dsl_dataset::DslDatasetPhys;
use format::dsl_dir::{DslDirPhys, Used};
use libfuzzer_sys::fuzz_target;

fuzz_target!(|bytes: &[u8]| {
    if let Ok(dir) = DslDirPhys::parse(bytes) {
        let sum = Used::ALL.iter().map(|part| u128::from(dir.used(*part))).sum::<u128>();
        assert_eq!(dir.used_sum().map(u128::from), u64::try_from(sum).ok().map(u128::from));
    }
    if let Ok(ds) = DslDatasetPhys::parse(bytes) {
        let _ = (format!("{:?}", ds.bp), ds.bp.asize(), ds.is_snapshot());
    }
    let _ = DeadlistPhys::parse(bytes);
    let _ = BptreePhys::parse(bytes).map(BptreePhys::pending);
    let _ = BptreeEntry::parse(bytes).map(|entry| format!("{:?}", entry.bp));
    if let Ok(key) = deadlist::parse_key_name(bytes) {
        assert_eq!(deadlist::parse_key_name(deadlist::key_name(key).as_bytes()), Ok(key));
    }
    let words: Vec<u64> =
        bytes.chunks_exact(8).map(|c| c.iter().fold(0, |w, b| w << 8 | u64::from(*b))).collect();
    if let Ok(bookmark) = Bookmark::from_words(&words) {
        assert!(bookmark.to_words().starts_with(&words) || words.len() > 3);
        assert_eq!(Bookmark::from_words(&bookmark.to_words()), Ok(bookmark));
    }
});
