//! Any bytes as a gang header of a block of any size.
#![no_main]

use format::gang::GangHeader;
use libfuzzer_sys::fuzz_target;

fuzz_target!(|input: (u32, &[u8])| {
    let (psize, bytes) = input;
    let Ok(header) = GangHeader::parse(bytes) else { return };
    if let Ok(members) = header.members(psize.into()) {
        for (offset, bp) in members {
            assert!(offset + bp.psize() <= psize.into());
        }
    }
});
