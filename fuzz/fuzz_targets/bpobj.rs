//! Any bytes as the bonus of a bpobj, as its entries, and as its list of sub-bpobjs.
#![no_main]

use format::bpobj::{self, BpobjPhys};
use libfuzzer_sys::fuzz_target;

fuzz_target!(|bytes: &[u8]| {
    if let Ok((header, form)) = BpobjPhys::parse(bytes) {
        assert_eq!(header.bonus(form), bytes);
        let _ = bpobj::entries(bytes, header.num_blkptrs.get());
        let _ = bpobj::subobjs(bytes, header.num_subobjs.get());
    }
    for entry in bpobj::entries(bytes, bytes.len() as u64 / 128).unwrap_or_default() {
        let stored = bpobj::encode_entry(entry, bpobj::entry_is_freed(entry));
        // What is stored names the same space, and storing it again changes nothing.
        assert_eq!(stored.birth(), entry.birth());
        assert_eq!(stored.asize(), entry.asize());
        assert_eq!(bpobj::encode_entry(&stored, bpobj::entry_is_freed(&stored)), stored);
    }
});
