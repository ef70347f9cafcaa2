//! Any bytes as a block of any type and of the other byte order: turned twice it is what it was.
#![no_main]

use format::{ObjectType, swap};
use libfuzzer_sys::fuzz_target;

fuzz_target!(|bytes: &[u8]| {
    let Some(([kind, level], bytes)) = bytes.split_first_chunk() else { return };
    let (kind, level) = (ObjectType(*kind), level % 2);
    let mut turned = bytes.to_vec();
    swap::block(swap::Direction::FromBig, kind, level, &mut turned);
    swap::block(swap::Direction::ToBig, kind, level, &mut turned);
    assert_eq!(turned, bytes);
    swap::block(swap::Direction::ToBig, kind, level, &mut turned);
    swap::block(swap::Direction::FromBig, kind, level, &mut turned);
    assert_eq!(turned, bytes);
});
