//! Any bytes as an intent log block with its records.
#![no_main]

use format::zil::LogBlock;
use libfuzzer_sys::fuzz_target;

fuzz_target!(|bytes: &[u8]| {
    let Ok(block) = LogBlock::parse(bytes) else { return };
    let mut total = 0;
    for record in block.records().flatten() {
        total += record.bytes.len();
        let _ = record.decode();
    }
    assert!(total <= bytes.len());
});
