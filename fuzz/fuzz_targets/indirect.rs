//! Any bytes as the mapping and the births of a removed vdev, and a range that is looked up.
#![no_main]

use format::indirect::{self, MappingPhys};
use libfuzzer_sys::fuzz_target;

fuzz_target!(|bytes: &[u8]| {
    let _ = MappingPhys::parse(bytes);
    let Some((ends, bytes)) = bytes.split_first_chunk::<16>() else { return };
    let word = |at: usize| u64::from_le_bytes(ends[at..at + 8].try_into().expect("8 bytes"));
    let (offset, size) = (word(0), word(8));
    let entries = indirect::mapping_entries(bytes, bytes.len() as u64 / 24).expect("as many");
    if let Ok(pieces) = indirect::pieces(entries, offset, size) {
        let mut at = 0;
        for piece in pieces {
            assert_eq!(piece.inner, at);
            at += piece.size;
        }
        assert_eq!(at, size);
    }
    let births = indirect::birth_entries(bytes, bytes.len() as u64 / 16).expect("as many");
    let _ = indirect::birth_of(births, offset);
});
