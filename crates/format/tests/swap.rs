//! Blocks of the other byte order: real blocks turned around have each field big-endian where the
//! format says, and turned twice they are what they were.
#![allow(clippy::indexing_slicing, clippy::unwrap_used)]

use std::path::Path;

use format::sa::{Layouts, Registry};
use format::swap::Direction::{FromBig, ToBig};
use format::{DnodePhys, ObjectType, ObjsetPhys, swap, zap};
use proptest::prelude::*;
use serde_json::Value;

fn hex(text: &Value) -> Vec<u8> {
    let text = text.as_str().unwrap();
    let byte = |at: usize| u8::from_str_radix(&text[at..at + 2], 16).unwrap();
    (0..text.len()).step_by(2).map(byte).collect()
}

/// Are the `SIZE` bytes at `at` the same number, big-endian now?
fn turned<const SIZE: usize>(before: &[u8], after: &[u8], at: usize) {
    let mut word: [u8; SIZE] = before[at..at + SIZE].try_into().unwrap();
    word.reverse();
    assert_eq!(word, after[at..at + SIZE], "{SIZE} bytes at {at}");
}

fn zap_blocks(name: &str) -> Vec<Vec<u8>> {
    let file = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/data/zap").join(name);
    let bytes = zstd::decode_all(std::fs::File::open(file).unwrap()).unwrap();
    let (size, data) = bytes.split_first_chunk::<8>().unwrap();
    data.chunks_exact(u64::from_le_bytes(*size) as usize).map(<[u8]>::to_vec).collect()
}

/// Turns a block around and back, and returns it as it was in between.
fn there_and_back(kind: ObjectType, bytes: &[u8]) -> Vec<u8> {
    let mut big = bytes.to_vec();
    swap::contents(ToBig, kind, &mut big);
    let mut again = big.clone();
    swap::contents(FromBig, kind, &mut again);
    assert_eq!(again, bytes, "{kind:?}");
    big
}

#[test]
fn micro_zaps_turn_values_but_not_names() {
    let block = &zap_blocks("micro-directory.zap.zst")[0];
    let big = there_and_back(ObjectType::DIRECTORY_CONTENTS, block);
    for at in [0, 8, 16] {
        turned::<8>(block, &big, at);
    }
    let mut names = 0;
    for at in (64..block.len()).step_by(64) {
        turned::<8>(block, &big, at);
        turned::<4>(block, &big, at + 8);
        assert_eq!(block[at + 14..at + 64], big[at + 14..at + 64]);
        names += u32::from(block[at + 14] != 0);
    }
    assert!(names > 1);
}

#[test]
fn fat_zaps_turn_headers_hashes_and_chunks_but_not_names_and_values() {
    let blocks = zap_blocks("feature-descriptions.zap.zst");
    let (mut entries, mut arrays, mut frees) = (0, 0, 0);
    for block in &blocks {
        let big = there_and_back(ObjectType::ZAP_METADATA, block);
        if block[..8] != zap::KIND_LEAF.to_le_bytes() {
            (0..block.len()).step_by(8).for_each(|at| turned::<8>(block, &big, at));
            continue;
        }
        [0, 16].iter().for_each(|at| turned::<8>(block, &big, *at));
        turned::<4>(block, &big, 24);
        [28, 30, 32, 34].iter().for_each(|at| turned::<2>(block, &big, *at));
        assert_eq!(block[36..48], big[36..48]);
        let chunks = 48 + block.len() / 16;
        (48..chunks).step_by(2).for_each(|at| turned::<2>(block, &big, at));
        for at in (chunks..block.len() - 23).step_by(24) {
            match block[at] {
                zap::leaf::CHUNK_ENTRY => {
                    assert_eq!(block[at..at + 2], big[at..at + 2]);
                    (at + 2..at + 12).step_by(2).for_each(|at| turned::<2>(block, &big, at));
                    turned::<4>(block, &big, at + 12);
                    turned::<8>(block, &big, at + 16);
                    entries += 1;
                }
                kind => {
                    assert_eq!(block[at..at + 22], big[at..at + 22]);
                    turned::<2>(block, &big, at + 22);
                    arrays += u32::from(kind == zap::leaf::CHUNK_ARRAY);
                    frees += u32::from(kind == zap::leaf::CHUNK_FREE);
                }
            }
        }
    }
    assert!(entries == 34 && arrays > 34 && frees > 34, "{entries} {arrays} {frees}");
}

#[test]
fn attributes_turn_by_their_registry() {
    let (mut registry, mut layouts) = (Registry::default(), Layouts::default());
    let (mut seen, mut old) = (0, 0);
    for line in include_str!("data/sa.jsonl").lines() {
        let row: Value = serde_json::from_str(line).unwrap();
        if row.get("dataset").is_some() {
            let entries = row["registry"].as_object().unwrap();
            let entries = entries.iter().map(|(k, v)| (k.as_bytes(), v.as_u64().unwrap()));
            registry = Registry::from_entries(entries).unwrap();
            let orders = row["layouts"].as_object().unwrap().iter().map(|(name, order)| {
                let order = order.as_array().unwrap();
                (name.as_bytes(), order.iter().map(|n| n.as_u64().unwrap() as u16).collect())
            });
            layouts = Layouts::from_entries(orders).unwrap();
            continue;
        }
        let bonus = hex(&row["bonus"]);
        if row["bonus_type"] == 17 {
            let big = there_and_back(ObjectType::ZNODE, &bonus);
            (0..176).step_by(8).for_each(|at| turned::<8>(&bonus, &big, at));
            turned::<8>(&bonus, &big, 176);
            turned::<4>(&bonus, &big, 184);
            // The first entry of the ACL: for the owner, 8 bytes; then the group's.
            [192, 194, 200, 202].iter().for_each(|at| turned::<2>(&bonus, &big, *at));
            [196, 204].iter().for_each(|at| turned::<4>(&bonus, &big, *at));
            assert_eq!(bonus[264..], big[264..]);
            old += 1;
            continue;
        }
        let mut big = bonus.clone();
        swap::attributes(ToBig, &registry, &layouts, &mut big);
        turned::<4>(&bonus, &big, 0);
        turned::<2>(&bonus, &big, 4);
        let header = usize::from(bonus[5] >> 2) * 8;
        // Mode, size, gen, uid, gid, parent, flags, four times, links.
        (header..header + 128).step_by(8).for_each(|at| turned::<8>(&bonus, &big, at));
        swap::attributes(FromBig, &registry, &layouts, &mut big);
        assert_eq!(big, bonus);
        if let Some(spill) = row.get("spill").map(hex) {
            let mut big = spill.clone();
            swap::attributes(ToBig, &registry, &layouts, &mut big);
            assert_eq!(big[8..], spill[8..], "link targets are bytes");
            swap::attributes(FromBig, &registry, &layouts, &mut big);
            assert_eq!(big, spill);
        }
        seen += 1;
    }
    assert!(seen > 50 && old > 2);
}

/// A block of dnodes: one with words in the bonus, a large one with a spill block, a free slot.
fn dnode_block() -> Vec<u8> {
    let mut block = vec![0; 16 << 10];
    let mut dir = DnodePhys::new(ObjectType::DSL_DIR, 512, ObjectType::DSL_DIR, 256, 1);
    for (i, byte) in dir.bonus_mut().iter_mut().enumerate() {
        *byte = i as u8;
    }
    dir.core_mut().max_block.set(0x0102_0304);
    dir.store(&mut block[512..1024]);
    let mut file = DnodePhys::new(ObjectType::PLAIN_FILE_CONTENTS, 4096, ObjectType::SA, 168, 3);
    file.bonus_mut().fill(0x5a);
    file.bonus_mut()[0] = 1;
    let spill = format::BlkPtr::hole(512, ObjectType::SA, 0, 77);
    file.set_spill(Some(spill)).unwrap();
    file.store(&mut block[1024..1024 + 3 * 512]);
    block
}

#[test]
fn dnodes_turn_with_pointers_bonus_and_spill() {
    let block = dnode_block();
    let big = there_and_back(ObjectType::DNODE, &block);
    assert_eq!(big[..512], [0; 512]);
    for at in [512, 1024] {
        assert_eq!(block[at..at + 8], big[at..at + 8]);
        [8, 10].iter().for_each(|field| turned::<2>(&block, &big, at + field));
        (at + 16..at + 32).step_by(8).for_each(|at| turned::<8>(&block, &big, at));
        (at + 64..at + 192).step_by(8).for_each(|at| turned::<8>(&block, &big, at));
    }
    (512 + 192..512 + 448).step_by(8).for_each(|at| turned::<8>(&block, &big, at));
    // System attributes are turned apart.
    let end = 1024 + 3 * 512;
    assert_eq!(block[1024 + 192..end - 128], big[1024 + 192..end - 128]);
    (end - 128..end).step_by(8).for_each(|at| turned::<8>(&block, &big, at));
}

#[test]
fn object_sets_of_each_size_turn() {
    let mut os = ObjsetPhys::new(format::objset::ObjsetType::Zfs, 6);
    os.flags = 7;
    os.macs = [9; 64];
    os.zil_header = std::array::from_fn(|i| i as u8);
    for slot in &mut os.accounting {
        *slot = Some(DnodePhys::new(ObjectType::USERGROUP_USED, 512, ObjectType::NONE, 0, 1));
    }
    let whole = os.to_bytes();
    for size in [1024, 2048, 4096] {
        let bytes = &whole[..size];
        let big = there_and_back(ObjectType::OBJSET, bytes);
        (512..720).step_by(8).for_each(|at| turned::<8>(bytes, &big, at));
        assert_eq!(big[720..784], [9; 64]);
        for at in [0, 1024, 1536, 2048].into_iter().filter(|at| *at < size) {
            turned::<2>(bytes, &big, at + 8);
        }
    }
}

#[test]
fn plain_words_and_indirect_blocks_turn() {
    let bytes: Vec<u8> = (0..128).collect();
    let turned = |kind, level| {
        let mut big = bytes.clone();
        swap::block(ToBig, kind, level, &mut big);
        big[..8].to_vec()
    };
    assert_eq!(turned(ObjectType::DSL_DATASET, 0), [7, 6, 5, 4, 3, 2, 1, 0]);
    assert_eq!(turned(ObjectType::PLAIN_FILE_CONTENTS, 0), [0, 1, 2, 3, 4, 5, 6, 7]);
    assert_eq!(turned(ObjectType::PLAIN_FILE_CONTENTS, 1), [7, 6, 5, 4, 3, 2, 1, 0]);
    assert_eq!(turned(ObjectType(0x82), 0), [3, 2, 1, 0, 7, 6, 5, 4]);
    assert_eq!(turned(ObjectType(0x81), 0), [1, 0, 3, 2, 5, 4, 7, 6]);
    assert_eq!(turned(ObjectType::OLDACL, 0), [3, 2, 1, 0, 7, 6, 5, 4]);
}

proptest! {
    #[test]
    fn any_block_turned_twice_is_what_it_was(
        kind: u8,
        level in 0u8..2,
        mut bytes in prop::collection::vec(any::<u8>(), 0..3000),
        start in prop::sample::select(vec![0u64, zap::KIND_MICRO, zap::KIND_LEAF, 0x0a]),
    ) {
        // Half of the blocks start as something that is looked at.
        if start != 0 && bytes.len() >= 8 {
            bytes[..8].copy_from_slice(&start.to_le_bytes());
        }
        let before = bytes.clone();
        swap::block(ToBig, ObjectType(kind), level, &mut bytes);
        swap::block(FromBig, ObjectType(kind), level, &mut bytes);
        prop_assert_eq!(&bytes, &before);
        swap::block(FromBig, ObjectType(kind), level, &mut bytes);
        swap::block(ToBig, ObjectType(kind), level, &mut bytes);
        prop_assert_eq!(&bytes, &before);
    }

    #[test]
    fn any_attributes_turned_twice_are_what_they_were(
        layout in 0u16..8,
        size in 0u16..8,
        mut bytes in prop::collection::vec(any::<u8>(), 8..600),
    ) {
        bytes[4..6].copy_from_slice(&(layout | size << 10).to_le_bytes());
        let orders = [(&b"2"[..], vec![5, 6, 17, 19]), (b"3", vec![20, 1, 20, 20]), (b"4", vec![999])];
        let layouts = Layouts::from_entries(orders).unwrap();
        let registry = Registry::standard();
        let before = bytes.clone();
        swap::attributes(ToBig, &registry, &layouts, &mut bytes);
        swap::attributes(FromBig, &registry, &layouts, &mut bytes);
        prop_assert_eq!(bytes, before);
    }
}
