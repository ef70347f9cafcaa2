//! Any bytes as a gang header, the last four as the size of its block.
#![no_main]

use format::gang::GangHeader;
use libfuzzer_sys::fuzz_target;

fuzz_target!(|bytes: &[u8]| {
    let Some((bytes, psize)) = bytes.split_last_chunk() else { return };
    let psize = u64::from(u32::from_le_bytes(*psize));
    let Ok(header) = GangHeader::parse(bytes) else { return };
    if let Ok(members) = header.members(psize) {
        assert_eq!(members.is_empty(), psize == 0);
        for (offset, bp) in members {
            assert!(offset + bp.psize() <= psize);
        }
    }
});
