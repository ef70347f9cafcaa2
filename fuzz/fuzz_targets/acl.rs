//! Any bytes as the entries of an ACL, in all three forms; the first two say how many.
#![no_main]

use format::acl::{self, OldAcl};
use libfuzzer_sys::fuzz_target;

fuzz_target!(|bytes: &[u8]| {
    let Some((count, bytes)) = bytes.split_first_chunk() else { return };
    let count = u16::from_le_bytes(*count);
    if let Ok(aces) = acl::decode(bytes, count.into()) {
        assert_eq!(aces.len(), usize::from(count));
        let again = acl::encode(&aces).expect("what was decoded");
        assert_eq!(again, bytes[..again.len()]);
        let _ = acl::meaning(&aces, 0, 1);
    }
    let _ = OldAcl::parse(bytes);
    let _ = OldAcl::decode_fixed(bytes, count);
});
