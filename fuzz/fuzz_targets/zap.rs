//! Any blocks as a ZAP: reader and judge come to an end, and agree.
#![no_main]

use format::FormatError;
use format::zap::{Cursor, FatFlags, Key, Reader, check};
use libfuzzer_sys::fuzz_target;

fuzz_target!(|bytes: &[u8]| {
    let Some((&first, bytes)) = bytes.split_first() else { return };
    let size = 512usize << (first % 9);
    let blocks: Vec<&[u8]> = bytes.chunks_exact(size).collect();
    let zeros = vec![0; size];
    let read = |blkid: u64| {
        let block = usize::try_from(blkid).ok().and_then(|i| blocks.get(i));
        Ok::<_, FormatError>(block.copied().unwrap_or(&zeros))
    };
    let findings = check(read, (blocks.len() as u64).saturating_sub(1));
    let Ok(mut zap) = Reader::open(read) else {
        assert!(!findings.is_empty());
        return;
    };
    let listed: Vec<_> = zap.entries().collect();
    let clean = findings.is_empty();
    if clean {
        assert_eq!(zap.count(), Ok(listed.len() as u64));
    }
    for entry in listed {
        let entry = match entry {
            Ok(entry) => entry,
            Err(error) => {
                assert!(!clean, "{error}");
                continue;
            }
        };
        let words = entry.words();
        let key = match zap.flags() & FatFlags::UINT64_KEY {
            0 => Key::Name(&entry.name),
            _ => Key::Words(&words),
        };
        let found = zap.lookup(key);
        let next = zap.entries_from(Cursor::after(&entry)).next();
        if clean {
            assert_eq!(found.as_ref(), Ok(&Some(entry.value)));
            assert!(next.is_none_or(|next| next.is_ok()));
        }
    }
});
