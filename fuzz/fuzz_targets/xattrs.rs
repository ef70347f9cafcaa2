//! Any bytes as extended attributes in a system attribute, and as a table of domains.
#![no_main]

use format::dxattr::Dxattr;
use format::fuid::FuidTable;
use libfuzzer_sys::fuzz_target;

fuzz_target!(|bytes: &[u8]| {
    if let Ok(xattrs) = Dxattr::parse(bytes)
        && let Ok(written) = xattrs.to_bytes()
    {
        assert_eq!(Dxattr::parse(&written), Ok(xattrs));
    }
    if let Ok(mut table) = FuidTable::parse(bytes) {
        let index = table.find_or_add(b"S-1-5-21");
        assert!(table.domain(index).is_some());
    }
});
