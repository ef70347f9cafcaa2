//! Against ZAPs that the OpenZFS kernel wrote: made again to the byte, and changed.

use std::path::Path;

use format::zap::{Leaf, Micro};

use super::*;

/// The blocks of one of the ZAPs that crate `format` keeps for its tests.
fn golden(name: &str) -> MemoryBlocks {
    let dir = Path::new(env!("CARGO_MANIFEST_DIR")).join("../format/tests/data/zap");
    let file = std::fs::File::open(dir.join(format!("{name}.zap.zst"))).unwrap();
    let bytes = zstd::decode_all(file).unwrap();
    let (size, data) = bytes.split_first_chunk::<8>().unwrap();
    let size = u64::from_le_bytes(*size) as usize;
    MemoryBlocks::of(data.chunks_exact(size).map(<[u8]>::to_vec).collect())
}

/// Entries in the order in which they were added, which is that of their chunks as long as none
/// was removed.
fn in_order_of_chunks(block: &[u8], flags: u64) -> Vec<Entry> {
    let leaf = Leaf::new(block).unwrap();
    let mut chunks = leaf.sorted(flags).unwrap();
    chunks.sort_unstable();
    chunks.into_iter().map(|chunk| leaf.read(chunk, flags).unwrap()).collect()
}

#[test]
fn the_same_additions_make_the_same_bytes() {
    for name in
        ["crypto-key", "feature-descriptions", "object-directory", "properties", "sa-layouts"]
    {
        let kernel = golden(name);
        let theirs = head(&kernel);
        let mut ours = MemoryBlocks::new(512);
        let (salt, normflags) = (theirs.salt.get(), theirs.normflags.get());
        format_fat(&mut ours, 14, salt, normflags, theirs.flags.get()).unwrap();
        for entry in in_order_of_chunks(&kernel.blocks()[1], 0) {
            assert!(add(&mut ours, entry.name.as_slice(), &entry.value).unwrap());
        }
        assert!(ours.blocks()[0] == kernel.blocks()[0], "{name}: header");
        assert!(ours.blocks()[1] == kernel.blocks()[1], "{name}: leaf");
    }
}

#[test]
fn the_same_additions_make_the_same_micro_zap() {
    for name in ["micro-directory", "micro-features", "micro-mixed-case"] {
        let kernel = golden(name);
        let theirs = Micro::new(&kernel.blocks()[0]).unwrap();
        let mut ours = MemoryBlocks::new(512);
        format_micro(&mut ours, theirs.head.salt.get(), theirs.head.normflags.get()).unwrap();
        for (_, entry) in theirs.used() {
            assert!(add(&mut ours, entry.name(), &Value::u64(entry.value.get())).unwrap());
        }
        assert!(ours.blocks() == kernel.blocks(), "{name}");
    }
}

#[test]
fn what_the_kernel_wrote_can_be_changed() {
    for name in ["rz1-directory", "single-directory-long-names", "micro-directory", "bookmarks"] {
        let mut blocks = golden(name);
        let mut model = content(&blocks);
        let mut rng = Rng::new(9);
        for i in 0..4000u64 {
            let new = format!("new {i}").into_bytes();
            assert!(add(&mut blocks, new.as_slice(), &Value::u64(i)).unwrap());
            model.insert(new, Value::u64(i));
            let old = model.keys().nth(rng.index(model.len())).unwrap().clone();
            if rng.chance(1, 3) {
                assert!(remove(&mut blocks, old.as_slice()).unwrap());
                model.remove(&old);
            } else {
                update(&mut blocks, old.as_slice(), &Value::u64(7)).unwrap();
                model.insert(old, Value::u64(7));
            }
        }
        assert_eq!(findings(&blocks), [], "{name}");
        assert!(content(&blocks) == model, "{name}");
    }
}
