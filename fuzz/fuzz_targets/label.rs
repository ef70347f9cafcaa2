//! Any bytes as the regions of a label, and as slots of its ring.
#![no_main]

use format::Uberblock;
use format::bootenv::BootEnv;
use format::label::{BOOTENV_SIZE, parse_config};
use libfuzzer_sys::fuzz_target;

fuzz_target!(|bytes: &[u8]| {
    let _ = parse_config(bytes);
    if let Ok(uberblock) = Uberblock::parse(bytes) {
        assert_eq!(Uberblock::from_words(&uberblock.to_words()), Ok(uberblock));
        assert_eq!(Uberblock::parse(&uberblock.to_slot(12)), Ok(uberblock));
        let _ = (uberblock.cmp_age(&uberblock), uberblock.mmp_interval_ms());
    }
    let mut region = bytes.to_vec();
    region.resize(BOOTENV_SIZE, 0);
    if let Ok(env) = BootEnv::parse(&region)
        && let Ok(region) = env.to_region()
    {
        assert_eq!(BootEnv::parse(&region), Ok(env));
    }
});
