//! Any bytes as the header of a history and its records, and as keys of the error log.
#![no_main]

use format::history::{HistoryHeader, build_record, parse_record};
use libfuzzer_sys::fuzz_target;

fuzz_target!(|bytes: &[u8]| {
    if let Ok(mut header) = HistoryHeader::parse(bytes) {
        for range in header.ranges() {
            for (at, len) in header.pieces(range.start, range.end - range.start) {
                assert!(at + len <= header.size_max.get());
            }
        }
        let length = u64::from(bytes.last().copied().unwrap_or(1));
        if header.append(64, |_| Ok::<_, format::FormatError>(length)).is_ok() {
            assert!(HistoryHeader::parse(zerocopy::IntoBytes::as_bytes(&header)).is_ok());
        }
    }
    let mut rest = bytes;
    while let Ok(Some((list, size))) = parse_record(rest) {
        if let Ok(record) = build_record(&list) {
            assert_eq!(parse_record(&record), Ok(Some((list, record.len()))));
        }
        rest = &rest[size..];
    }
    if let Ok(place) = format::errlog::parse_key(bytes) {
        assert_eq!(format::errlog::parse_key(format::errlog::key(&place).as_bytes()), Ok(place));
    }
});
