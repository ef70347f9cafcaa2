//! Any bytes as a space map or a DTL; the first ones choose the units and the size of the region.
#![no_main]

use format::dtl::Dtl;
use format::space_map::{self, Encoder, Geometry, Item, SpaceMapPhys};
use libfuzzer_sys::fuzz_target;

fuzz_target!(|bytes: &[u8]| {
    let Some(([shift, size, two], bytes)) = bytes.split_first_chunk() else { return };
    let geometry = Geometry {
        start: u64::from(*size) << 30,
        size: u64::MAX >> (size % 64),
        shift: u32::from(*shift % 70),
    };
    let _ = SpaceMapPhys::parse(bytes);
    let encoder = Encoder { geometry, block_size: 512, two_words: two % 2 == 1 };
    let mut count = 0;
    for item in space_map::items(bytes, geometry) {
        count += 1;
        let Ok(Item::Run(run)) = item else { continue };
        assert!(run.size > 0 && run.offset >= geometry.start);
        assert!(run.offset - geometry.start + run.size <= geometry.size);
        let mut out = Vec::new();
        let list = [(run.offset, run.size)];
        let written = encoder.batch(&mut out, 0, (1, 1), run.action, run.vdev, list);
        assert_eq!(written.is_err(), out.is_empty());
        if encoder.two_words {
            assert_eq!(written, Ok(()));
            let again: Vec<_> = space_map::items(&out, geometry).skip(1).collect();
            assert_eq!(again, [Ok(Item::Run(run))]);
        }
    }
    assert!(count <= bytes.len() / 8 + 1);
    let mut dtl = Dtl::default();
    if dtl.apply(bytes).is_ok() {
        let mut again = Dtl::default();
        if let Ok(written) = dtl.encode(1, 1, true) {
            assert_eq!(again.apply(&written), Ok(()));
            assert_eq!(again, dtl);
        }
    }
});
