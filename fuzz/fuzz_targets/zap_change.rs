//! Changes of any blocks that are a ZAP: they come to an end; and where the judge found nothing
//! wrong before, it finds nothing after, and the ZAP holds what a map would.
#![no_main]

use std::collections::BTreeMap;

use dmu::zap::{self, MemoryBlocks, ZapBlocks, ZapError};
use format::zap::{FatFlags, Key, Reader, Value, check};
use libfuzzer_sys::fuzz_target;

fn is_clean(blocks: &MemoryBlocks) -> bool {
    check(|blkid| blocks.read(blkid, <[u8]>::to_vec), blocks.max_block()).is_empty()
}

/// All entries by their names.
fn content(blocks: &MemoryBlocks) -> BTreeMap<Vec<u8>, Value> {
    let entries = zap::entries(blocks).expect("a clean ZAP can be listed");
    entries.into_iter().map(|e| (e.name, e.value)).collect()
}

fuzz_target!(|bytes: &[u8]| {
    let Some((&[first, steps], bytes)) = bytes.split_first_chunk::<2>() else { return };
    let Some((steps, bytes)) = bytes.split_at_checked(usize::from(steps) * 2) else { return };
    // Small blocks, so that few changes split leaves and move tables.
    let size = 512usize << (first % 4);
    let all: Vec<Vec<u8>> = bytes.chunks_exact(size).take(64).map(<[u8]>::to_vec).collect();
    if all.is_empty() {
        return;
    }
    let mut blocks = MemoryBlocks::of(all);
    let Ok(flags) = Reader::open(|b| blocks.read(b, <[u8]>::to_vec)).map(|zap| zap.flags()) else {
        return;
    };
    let clean = is_clean(&blocks) && flags & FatFlags::UINT64_KEY == 0;
    let mut model = if clean { content(&blocks) } else { BTreeMap::new() };
    for step in steps.as_chunks::<2>().0 {
        let number = step[1];
        let name = match number % 4 {
            0 => vec![number | 1; usize::from(number)],
            1 => format!("{number}").into_bytes(),
            // Names that are there.
            _ => model.keys().nth(usize::from(number / 4)).cloned().unwrap_or(vec![number]),
        };
        let value = match step[0] >> 2 & 3 {
            0 | 1 => Value::u64(number.into()),
            2 => Value::string(&name),
            _ => Value::words(&vec![7; usize::from(number % 30)]),
        };
        let key = Key::Name(&name);
        let known = model.contains_key(&name);
        let done = match step[0] & 3 {
            0 => zap::add(&mut blocks, key, &value).map(|done| {
                assert!(!clean || done != known);
                model.entry(name.clone()).or_insert(value);
            }),
            1 => zap::update(&mut blocks, key, &value).map(|()| {
                model.insert(name.clone(), value);
            }),
            _ => zap::remove(&mut blocks, key).map(|done| {
                assert!(!clean || done == known);
                model.remove(&name);
            }),
        };
        if let (true, Err(ZapError::Damaged(error))) = (clean, &done) {
            panic!("damaged by an earlier change: {error}");
        }
    }
    if clean {
        assert!(is_clean(&blocks));
        assert!(content(&blocks) == model);
    }
});
