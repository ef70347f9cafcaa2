//! Any bytes as an encoded list; what parses is written and read again in both encodings.
#![no_main]

use format::NvList;
use libfuzzer_sys::fuzz_target;

fuzz_target!(|bytes: &[u8]| {
    let Ok((list, size)) = NvList::parse_prefix(bytes) else { return };
    assert!(size <= bytes.len());
    let xdr = list.to_xdr().expect("what was parsed can be built");
    assert_eq!(NvList::parse_prefix(&xdr), Ok((list.clone(), xdr.len())));
    // Names of 32 KiB fit into XDR only.
    if let Ok(native) = list.to_native() {
        assert_eq!(NvList::parse_prefix(&native), Ok((list, native.len())));
    }
});
