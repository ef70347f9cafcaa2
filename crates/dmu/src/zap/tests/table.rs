//! The pointer table: from block 0 to blocks of its own, and on; names made to collide.

use zerocopy::FromBytes;

use super::*;

fn insert_all(blocks: &mut MemoryBlocks, names: &[Vec<u8>]) {
    for (i, name) in names.iter().enumerate() {
        let before = blocks.clone();
        let done = add(blocks, name.as_slice(), &Value::u64(i as u64));
        assert_eq!(done, Ok(true), "{i}: {:?}", head(&before));
    }
}

fn find_all(blocks: &MemoryBlocks, names: &[Vec<u8>]) {
    for (i, name) in names.iter().enumerate() {
        assert_eq!(lookup_u64(blocks, name.as_slice()), Ok(Some(i as u64)));
    }
    assert_eq!(entries(blocks).unwrap().len(), names.len());
}

#[test]
fn the_table_moves_out_of_block_0_and_doubles() {
    // 130 names of a leaf, with so many first bits in common.
    for (bits, bs, shift, table_blocks) in
        [(9, 14, 10, 0), (10, 14, 11, 1), (11, 14, 12, 2), (13, 14, 14, 8), (14, 12, 15, 64)]
    {
        let mut blocks = fat(bs, 0);
        let room = format::zap::leaf::chunk_count(bs) / 6;
        let names = colliding(70, bits, room * 3 / 2);
        insert_all(&mut blocks, &names);
        let head = head(&blocks);
        assert!(head.table_shift.get() >= shift, "{head:?}");
        assert!(head.table_blocks.get() >= table_blocks, "{head:?}");
        assert_eq!(head.table_next.get(), 0);
        assert_eq!(findings(&blocks), []);
        find_all(&blocks, &names);
        // Freed tables are gone, and their blocks are not used again.
        let freed = blocks.blocks().iter().filter(|b| b.is_empty()).count() as u64;
        assert_eq!(freed, head.table_blocks.get().saturating_sub(1));
        assert_eq!(
            blocks.blocks().len() as u64,
            1 + head.leaf_count.get() + head.table_blocks.get() + freed
        );
    }
}

#[test]
fn many_entries_need_a_table_of_many_blocks() {
    let mut blocks = fat(10, 0);
    let names: Vec<_> = (0..20_000).map(|i| format!("file {i}").into_bytes()).collect();
    insert_all(&mut blocks, &names);
    assert!(head(&blocks).table_blocks.get() >= 16);
    assert_eq!(findings(&blocks), []);
    find_all(&blocks, &names);
    // A listing begins anywhere.
    let all = entries(&blocks).unwrap();
    for i in (0..all.len()).step_by(997) {
        let (found, _) = list(&blocks, Cursor::after(&all[i]), 50).unwrap();
        assert_eq!(found, all[i + 1..(i + 51).min(all.len())]);
    }
}

#[test]
fn names_of_one_hash_fill_a_leaf_and_no_more() {
    for mut blocks in [micro(0), fat(14, 0)] {
        let names = colliding(45, 28, 200);
        let mut fit = 0;
        for name in &names {
            match add(&mut blocks, name.as_slice(), &Value::u64(1)) {
                Ok(true) => fit += 1,
                Err(ZapError::Full) => break,
                other => panic!("{other:?}"),
            }
        }
        // Each takes 5 chunks of 638.
        assert_eq!(fit, 127);
        assert_eq!(findings(&blocks), []);
        let before = blocks.clone();
        let full = Err(ZapError::Full);
        assert_eq!(add(&mut blocks, names[150].as_slice(), &Value::u64(1)).map(|_| ()), full);
        let big = Value::bytes(&[0; 8000]);
        assert_eq!(update(&mut blocks, names[5].as_slice(), &big), full);
        assert!(blocks.blocks() == before.blocks());
        // Others still find room.
        for i in 0..500 {
            assert!(add(&mut blocks, format!("other {i}").as_str(), &Value::u64(1)).unwrap());
        }
        assert_eq!(findings(&blocks), []);
        assert_eq!(count(&blocks), Ok(627));
        // The table did not run away.
        assert!(head(&blocks).table_shift.get() <= 12);
    }
}

#[test]
fn names_that_part_too_late_are_refused_without_a_huge_table() {
    for (bits, flags) in [(19, 0), (27, 0), (27, 1), (40, 1)] {
        let mut blocks = fat(14, flags);
        refuses_names_of(bits, &mut blocks);
    }
    // In a micro ZAP the same names stay where they are.
    let mut blocks = micro(0);
    let names = colliding(48, 19, 200);
    for name in &names {
        assert!(add(&mut blocks, name.as_slice(), &Value::u64(1)).unwrap());
    }
    assert_eq!(update(&mut blocks, "text", &Value::string(b"x")), Err(ZapError::Full));
    assert_eq!(kind(&blocks), Ok(Kind::Micro));
    assert_eq!(count(&blocks), Ok(200));
    assert_eq!(findings(&blocks), []);
}

fn refuses_names_of(bits: u32, blocks: &mut MemoryBlocks) {
    let names = colliding(70, bits, 200);
    let done = names.iter().try_for_each(|n| add(blocks, n.as_slice(), &1.into()).map(|_| ()));
    assert_eq!(done, Err(ZapError::Full));
    assert!(blocks.blocks().len() < 10);
    assert_eq!(findings(blocks), []);
}

#[test]
fn a_copy_that_another_engine_began_is_finished() {
    for copied in 0..2u64 {
        let mut blocks = fat(14, 0);
        // An external table, and leaves that will not need more.
        let deep = colliding(70, 10, 150);
        insert_all(&mut blocks, &deep);
        let old = head(&blocks);
        assert!(old.table_blocks.get() > 0);
        // As OpenZFS leaves it in the middle of doubling: the new blocks are reserved, some of
        // them are filled.
        let (next, free) = (old.free_block.get(), old.free_block.get());
        let table = old.table_block.get();
        for i in 0..2 * copied {
            let from = blocks.blocks()[table as usize].clone();
            let half = from.len() / 16 * i as usize;
            let words: Vec<_> = from.chunks(8).skip(half).take(from.len() / 16).collect();
            let doubled: Vec<u8> = words.iter().flat_map(|w| [*w, *w].concat()).collect();
            blocks.modify(next + i, |block| block.copy_from_slice(&doubled)).unwrap();
        }
        blocks
            .modify(0, |block| {
                let (head, _) = FatHeader::mut_from_prefix(block).unwrap();
                head.table_next.set(next);
                head.table_copied.set(copied.min(old.table_blocks.get()));
                head.free_block.set(free + 2 * old.table_blocks.get());
            })
            .unwrap();
        assert_eq!(findings(&blocks), []);
        find_all(&blocks, &deep);
        let mut more = deep.clone();
        more.extend((0..2000).map(|i| format!("more {i}").into_bytes()));
        for (i, name) in more.iter().enumerate().skip(deep.len()) {
            assert!(add(&mut blocks, name.as_slice(), &Value::u64(i as u64)).unwrap());
        }
        let new = head(&blocks);
        assert_eq!((new.table_next.get(), new.table_copied.get()), (0, 0));
        assert_eq!(new.table_block.get(), next);
        assert_eq!(findings(&blocks), []);
        find_all(&blocks, &more);
    }
}

#[test]
fn leaves_that_openzfs_took_away_leave_room_at_the_end() {
    let names: Vec<_> = (0..300).map(|i| format!("file {i}").into_bytes()).collect();
    let mut blocks = fat(12, 0);
    insert_all(&mut blocks, &names);
    let full = head(&blocks);
    assert!(full.is_embedded() && full.leaf_count.get() > 3, "{full:?}");
    names.iter().for_each(|name| assert!(remove(&mut blocks, name.as_slice()).unwrap()));
    // As OpenZFS leaves it after several txgs: one leaf, holes where the others were, and only the one that
    // was freed last is no longer counted as a block of the object.
    let mut raw = blocks.blocks().to_vec();
    raw.pop();
    raw.iter_mut().skip(2).for_each(Vec::clear);
    let mut blocks = MemoryBlocks::of(raw);
    blocks.modify(1, |block| block[16..24].fill(0)).unwrap();
    blocks.modify(1, |block| block[32..34].fill(0)).unwrap();
    blocks
        .modify(0, |block| {
            let (head, table) = FatHeader::mut_from_prefix(block).unwrap();
            head.free_block.set(2);
            head.leaf_count.set(1);
            let at = (1 << 11) - size_of::<FatHeader>();
            table[at..].as_chunks_mut().0.fill(1u64.to_le_bytes());
        })
        .unwrap();
    assert_eq!(findings(&blocks), []);
    insert_all(&mut blocks, &names);
    assert_eq!(findings(&blocks), []);
    find_all(&blocks, &names);
    assert_eq!(head(&blocks).free_block.get(), blocks.blocks().len() as u64);
}

#[test]
fn a_freeblk_that_is_too_low_costs_no_leaf() {
    let names: Vec<_> = (0..300).map(|i| format!("file {i}").into_bytes()).collect();
    let mut blocks = fat(12, 0);
    insert_all(&mut blocks, &names[..150]);
    blocks.modify(0, |block| block[56..64].copy_from_slice(&2u64.to_le_bytes())).unwrap();
    let expected = blocks.blocks().len() as u64;
    assert!(findings(&blocks).contains(&Problem::FreeBlock { seen: 2, expected }));
    for (i, name) in names.iter().enumerate().skip(150) {
        assert_eq!(add(&mut blocks, name.as_slice(), &Value::u64(i as u64)), Ok(true));
    }
    find_all(&blocks, &names);
    assert_eq!(findings(&blocks), []);
}
