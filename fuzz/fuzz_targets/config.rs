//! Any bytes as the config of a label, of the MOS, or of its spares and caches.
#![no_main]

use format::NvList;
use format::config::{Label, PoolConfig, aux_from_nvlist};
use libfuzzer_sys::fuzz_target;

fuzz_target!(|bytes: &[u8]| {
    let Ok(list) = NvList::parse(bytes) else { return };
    if let Ok(label) = Label::from_nvlist(&list) {
        assert_eq!(Label::from_nvlist(&label.to_nvlist()), Ok(label));
    }
    if let Ok(config) = PoolConfig::from_nvlist(&list) {
        config.vdev_tree.guid_sum();
        if let Some(leaf) = config.vdev_tree.leaves().next() {
            config.for_leaf(leaf.guid);
        }
        assert_eq!(PoolConfig::from_nvlist(&config.to_nvlist()), Ok(config));
    }
    let _ = aux_from_nvlist(&list, "spares");
    let _ = aux_from_nvlist(&list, "l2cache");
});
