//! The ZAP against a plain map, with the judge after each batch; against names made to collide;
//! against blocks that fail; against hostile bytes.

mod faults;
mod kernel;
mod model;
mod table;

use std::collections::BTreeMap;

use format::zap::hash::crc64;
use format::zap::{Cursor, Entry, FatHeader, Finding, Kind, Problem, Value, check};
use rt::random::Rng;

use super::*;

pub(super) const SALT: u64 = 0x5c5_d97f;

/// Names of `len` characters whose hashes have the same top `bits` bits.
///
/// The CRC is linear: flipping a bit of the name flips the same bits of the hash whatever the rest
/// is. So the sets of flips that leave the top bits alone are found by elimination.
pub(super) fn colliding(len: usize, bits: u32, want: usize) -> Vec<Vec<u8>> {
    let base = vec![b'@'; len];
    let top = |name: &[u8]| crc64(SALT, name) >> (64 - bits);
    let flipped =
        |flips: &[u8]| -> Vec<u8> { base.iter().zip(flips).map(|(b, f)| b ^ f).collect() };
    let mut rows: Vec<(u64, Vec<u8>)> = (0..len)
        .map(|i| {
            let mut flips = vec![0; len];
            flips[i] = 1;
            (top(&flipped(&flips)) ^ top(&base), flips)
        })
        .collect();
    let mut free = Vec::new();
    while let Some((hash, flips)) = rows.pop() {
        if hash == 0 {
            free.push(flips);
            continue;
        }
        let bit = hash.trailing_zeros();
        for (other, others) in rows.iter_mut().filter(|(h, _)| h >> bit & 1 == 1) {
            *other ^= hash;
            others.iter_mut().zip(&flips).for_each(|(a, b)| *a ^= b);
        }
    }
    assert!(1 << free.len() >= want);
    let name = |set: usize| {
        let mut flips = vec![0; len];
        for (_, more) in free.iter().enumerate().filter(|(i, _)| set >> i & 1 == 1) {
            flips.iter_mut().zip(more).for_each(|(a, b)| *a ^= b);
        }
        flipped(&flips)
    };
    let names: Vec<_> = (0..want).map(name).collect();
    assert!(names.iter().all(|n| top(n) == top(&base)));
    names
}

/// What the judge says.
pub(super) fn findings(blocks: &MemoryBlocks) -> Vec<Problem<ZapError>> {
    let read = |blkid| blocks.read(blkid, <[u8]>::to_vec);
    let found: Vec<Finding<ZapError>> = check(read, blocks.max_block());
    found.into_iter().map(|f| f.problem).collect()
}

pub(super) fn micro(normflags: u64) -> MemoryBlocks {
    let mut blocks = MemoryBlocks::new(512);
    format_micro(&mut blocks, SALT, normflags).unwrap();
    blocks
}

pub(super) fn fat(bs: u32, flags: u64) -> MemoryBlocks {
    let mut blocks = MemoryBlocks::new(512);
    format_fat(&mut blocks, bs, SALT, 0, flags).unwrap();
    blocks
}

pub(super) fn head(blocks: &MemoryBlocks) -> FatHeader {
    FatHeader::parse(&blocks.blocks()[0]).unwrap()
}

/// The whole content, checked for order.
pub(super) fn content(blocks: &MemoryBlocks) -> BTreeMap<Vec<u8>, Value> {
    let list: Vec<Entry> = entries(blocks).unwrap();
    assert!(list.is_sorted_by(|a, b| (a.hash, a.cd) < (b.hash, b.cd)));
    list.into_iter().map(|e| (e.name, e.value)).collect()
}

#[test]
fn a_new_micro_zap_is_as_the_kernel_makes_it() {
    let mut blocks = micro(0);
    assert!(add(&mut blocks, "VERSION", &Value::u64(5)).unwrap());
    let block = &blocks.blocks()[0];
    assert_eq!(block.len(), 512);
    assert_eq!(block[..8], 0x8000_0000_0000_0003u64.to_le_bytes());
    assert_eq!(block[8..16], SALT.to_le_bytes());
    assert_eq!(block[16..64], [0; 48]);
    // The first free entry is taken: value, collision number, name.
    assert_eq!(block[64..72], 5u64.to_le_bytes());
    assert_eq!(block[72..78], [0; 6]);
    assert_eq!(block[78..85], *b"VERSION");
    assert_eq!(block[85..512], [0; 427]);
    assert!(remove(&mut blocks, "VERSION").unwrap());
    assert_eq!(blocks.blocks()[0][64..], [0; 448]);
    assert_eq!(findings(&blocks), []);
}

#[test]
fn a_micro_zap_grows_by_sectors_and_then_becomes_fat() {
    let mut blocks = micro(0);
    for i in 0..2047u64 {
        assert_eq!(blocks.block_size(), (64 * (i as usize + 1)).next_multiple_of(512).max(512));
        assert!(add(&mut blocks, format!("name {i}").as_str(), &Value::u64(i)).unwrap());
    }
    assert_eq!((kind(&blocks), blocks.block_size()), (Ok(Kind::Micro), 128 << 10));
    assert_eq!(findings(&blocks), []);
    assert!(!add(&mut blocks, "name 7", &Value::u64(0)).unwrap());
    assert_eq!(kind(&blocks), Ok(Kind::Micro));
    assert!(add(&mut blocks, "one more", &Value::u64(0)).unwrap());
    assert_eq!((kind(&blocks), blocks.block_size()), (Ok(Kind::Fat), 16 << 10));
    assert_eq!(findings(&blocks), []);
    assert_eq!(count(&blocks), Ok(2048));
    for i in 0..2047u64 {
        assert_eq!(lookup_u64(&blocks, format!("name {i}").as_str()), Ok(Some(i)));
    }
}

#[test]
fn entries_can_be_made_at_once() {
    let names = |count: u64| (0..count).map(|n| (format!("{:x}", n * n + 7), n)).collect();
    let filled = |entries: &[(String, u64)]| {
        let mut blocks = MemoryBlocks::new(micro_size(entries.len()).unwrap());
        (format_filled(&mut blocks, SALT, entries).unwrap(), blocks)
    };
    for count in [0, 1, 7, 8, 1000, 2047] {
        let entries: Vec<(String, u64)> = names(count);
        let (done, mut blocks) = filled(&entries);
        assert!(done && findings(&blocks).is_empty(), "{count} entries");
        // Exactly as one by one.
        let mut one_by_one = micro(0);
        for (name, value) in &entries {
            update(&mut one_by_one, name.as_bytes(), &Value::u64(*value)).unwrap();
        }
        assert_eq!(content(&blocks), content(&one_by_one));
        let size = |blocks: &MemoryBlocks| blocks.read(0, |block| block.to_vec()).unwrap();
        assert_eq!(size(&blocks), size(&one_by_one), "{count} entries");
        assert!(add(&mut blocks, b"one more", &Value::u64(1)).unwrap());
        assert_eq!(content(&blocks).len() as u64, count + 1);
        assert!(findings(&blocks).is_empty());
    }
    assert_eq!(micro_size(2048), None);
    // And be replaced by fewer others.
    let (_, mut blocks) = filled(&names(100));
    assert!(!refill(&mut blocks, &names(120)).unwrap() && content(&blocks).len() == 100);
    assert!(refill(&mut blocks, &names(10)).unwrap() && findings(&blocks).is_empty());
    assert_eq!(blocks.block_size(), 1024);
    let mut seen = BTreeMap::new();
    each_number(&blocks, |name, value| seen.extend([(name.to_vec(), value.unwrap())])).unwrap();
    let ten: BTreeMap<Vec<u8>, u64> = names(10)
        .into_iter()
        .map(|(name, value): (String, u64)| (name.into_bytes(), value))
        .collect();
    assert_eq!(seen, ten);
    assert!(!add(&mut blocks, b"7", &Value::u64(1)).unwrap(), "it is there");
    (0..50).for_each(|n: u64| {
        assert!(add(&mut blocks, format!("more{n}").as_bytes(), &Value::u64(n)).unwrap());
    });
    assert!(findings(&blocks).is_empty() && content(&blocks).len() == 60);
    let mut other = fat(14, 0);
    update(&mut other, b"a", &Value::u64(3)).unwrap();
    assert!(!refill(&mut other, &names(1)).unwrap());
    let mut seen = Vec::new();
    each_number(&other, |name, value| seen.push((name.to_vec(), value))).unwrap();
    assert_eq!(seen, [(b"a".to_vec(), Some(3))]);
    // Of one hash: a few, told apart by number, and more than a leaf could take later.
    let of_one_hash = |want| -> Vec<(String, u64)> {
        let names = colliding(40, 28, want).into_iter();
        names.map(|name| (String::from_utf8(name).unwrap(), 5)).collect()
    };
    let (done, blocks) = filled(&of_one_hash(30));
    assert!(done && findings(&blocks).is_empty() && content(&blocks).len() == 30);
    assert!(!filled(&of_one_hash(200)).0);
    assert!(!filled(&[("x".repeat(51), 1)]).0);
}

#[test]
fn what_a_micro_zap_cannot_hold_makes_it_fat() {
    let long = [b'x'; 50];
    let string = Value::string(b"on");
    let words = Value::words(&[1, 2]);
    let entries: [(&[u8], &Value); 3] =
        [(&long, &Value::u64(1)), (b"string", &string), (b"words", &words)];
    for (name, value) in entries {
        for with in
            [add, |b: &mut MemoryBlocks, n: &[u8], v: &Value| update(b, n, v).map(|()| true)]
        {
            let mut blocks = micro(0);
            add(&mut blocks, "there", &Value::u64(9)).unwrap();
            assert!(!add(&mut blocks, "there", value).unwrap());
            assert_eq!(kind(&blocks), Ok(Kind::Micro));
            assert!(with(&mut blocks, name, value).unwrap());
            assert_eq!(kind(&blocks), Ok(Kind::Fat));
            assert_eq!(lookup(&blocks, name), Ok(Some(value.clone())));
            assert_eq!(lookup_u64(&blocks, "there"), Ok(Some(9)));
            assert_eq!(findings(&blocks), []);
            // Block 0, and one leaf.
            assert_eq!(blocks.blocks().len(), 2);
        }
    }
    let mut blocks = micro(0);
    assert!(add(&mut blocks, &long[..49], &Value::u64(1)).unwrap());
    assert_eq!(kind(&blocks), Ok(Kind::Micro));
}

#[test]
fn entries_that_cannot_be_are_refused() {
    for mut blocks in [micro(0), fat(14, 0)] {
        let too_long = [b'x'; 256];
        for name in [&b""[..], b"a\0b", &too_long] {
            let refused = Err(ZapError::Name { len: name.len() + 1 });
            assert_eq!(add(&mut blocks, name, &Value::u64(1)).map(|_| ()), refused);
            assert_eq!(lookup(&blocks, name), Ok(None));
            assert_eq!(remove(&mut blocks, name), Ok(false));
        }
        let big = Value::bytes(&[1; 8193]);
        let refused = Err(ZapError::ValueTooLarge { len: 8193, max: 8192 });
        assert_eq!(add(&mut blocks, "big", &big).map(|_| ()), refused);
        let words = Key::Words(&[1, 2]);
        assert_eq!(lookup(&blocks, words), Err(ZapError::KeyKind));
        assert_eq!(update(&mut blocks, words, &Value::u64(1)), Err(ZapError::KeyKind));
        add(&mut blocks, &too_long[..255], &Value::bytes(&[1; 8192])).unwrap();
        assert_eq!(findings(&blocks), []);
    }
    let mut small = fat(12, 0);
    let big = Value::bytes(&[1; 8192]);
    let refused = Err(ZapError::ValueTooLarge { len: 8192, max: 156 * 21 });
    assert_eq!(add(&mut small, "big", &big).map(|_| ()), refused);
    assert_eq!(add(&mut small, "big", &Value::bytes(&[1; 156 * 21])), Ok(true));
}

#[test]
fn counters_come_and_go() {
    let mut blocks = micro(0);
    increment(&mut blocks, "3e8", 512).unwrap();
    increment(&mut blocks, "3e8", 512).unwrap();
    increment(&mut blocks, "3e8", 0).unwrap();
    increment(&mut blocks, "none", 0).unwrap();
    assert_eq!(entries(&blocks).unwrap().len(), 1);
    let below = increment(&mut blocks, "3e8", -1025);
    let name = b"3e8".to_vec();
    assert_eq!(below, Err(ZapError::Counter { name, value: 1024, delta: -1025 }));
    increment(&mut blocks, "3e8", -1024).unwrap();
    assert_eq!(entries(&blocks).unwrap(), []);
    update(&mut blocks, "text", &Value::string(b"x")).unwrap();
    let refused = Err(ZapError::NotOneInteger { name: b"text".to_vec() });
    assert_eq!(increment(&mut blocks, "text", 1), refused);
}

#[test]
fn numbers_stand_under_their_own_names() {
    let mut blocks = micro(0);
    assert!(add_int(&mut blocks, 0xabc).unwrap());
    assert!(!add_int(&mut blocks, 0xabc).unwrap());
    assert!(add_int_key(&mut blocks, 0x10, 77).unwrap());
    assert_eq!(lookup_u64(&blocks, "abc"), Ok(Some(0xabc)));
    assert_eq!(lookup_u64(&blocks, "10"), Ok(Some(77)));
    assert_eq!(lookup_int_key(&blocks, 0x10), Ok(Some(77)));
    assert!(remove_int(&mut blocks, 0xabc).unwrap());
    assert!(!remove_int(&mut blocks, 0xabc).unwrap());
}

#[test]
fn names_that_differ_in_case_share_their_hash() {
    for to_fat in [false, true] {
        let mut blocks = micro(2);
        for (value, name) in ["Name", "NAME", "other", "name"].into_iter().enumerate() {
            assert!(add(&mut blocks, name, &Value::u64(value as u64)).unwrap());
        }
        if to_fat {
            update(&mut blocks, "text", &Value::string(b"x")).unwrap();
        }
        assert_eq!(findings(&blocks), []);
        let list = entries(&blocks).unwrap();
        let cd = |name: &[u8]| list.iter().find(|e| e.name == name).unwrap().cd;
        assert_eq!((cd(b"Name"), cd(b"NAME"), cd(b"name"), cd(b"other")), (0, 1, 2, 0));
        assert_eq!(lookup_u64(&blocks, "NAME"), Ok(Some(1)));
        assert_eq!(lookup_u64(&blocks, "nAME"), Ok(None));
        assert_eq!(lookup_normalized(&blocks, b"nAME", false).unwrap().unwrap().name, b"Name");
        assert!(remove(&mut blocks, "Name").unwrap());
        assert_eq!(lookup_normalized(&blocks, b"nAME", false).unwrap().unwrap().name, b"NAME");
        assert_eq!(lookup_normalized(&blocks, b"names", false), Ok(None));
        assert!(add(&mut blocks, "nAmE", &Value::u64(9)).unwrap());
        let list = entries(&blocks).unwrap();
        assert_eq!(list.iter().find(|e| e.name == b"nAmE").unwrap().cd, 0);
        assert_eq!(findings(&blocks), []);
    }
}

#[test]
fn a_name_without_a_known_form_is_refused_and_found() {
    // More marks on a letter than Unicode's forms are followed for.
    let piled = &format!("a{}", "\u{301}".repeat(20))[..];
    let mut blocks = micro(0x10);
    let refused = Err(ZapError::Normalization { name: piled.into() });
    assert_eq!(add(&mut blocks, piled, &Value::u64(1)).map(|_| ()), refused);
    // As a kernel would have left it.
    blocks
        .modify(0, |block| {
            block[64..72].copy_from_slice(&7u64.to_le_bytes());
            block[78..][..piled.len()].copy_from_slice(piled.as_bytes());
        })
        .unwrap();
    assert_eq!(lookup_u64(&blocks, piled), Ok(Some(7)));
    assert_eq!(
        lookup_normalized(&blocks, piled.as_bytes(), false).unwrap().unwrap().value,
        7.into()
    );
    assert!(!add(&mut blocks, piled, &Value::u64(1)).unwrap());
    update(&mut blocks, piled, &Value::u64(8)).unwrap();
    assert_eq!(lookup_u64(&blocks, piled), Ok(Some(8)));
    assert_eq!(update(&mut blocks, "t", &Value::string(b"")).map(|_| ()), refused);
    assert!(remove(&mut blocks, piled).unwrap());
    assert_eq!(entries(&blocks).unwrap(), []);
}

#[test]
fn a_listing_goes_on_across_changes() {
    for size in [100u64, 5000] {
        let mut blocks = micro(0);
        let name = |i: u64| format!("entry {i}");
        for i in 0..size {
            add(&mut blocks, name(i).as_str(), &Value::u64(i)).unwrap();
        }
        let mut seen = Vec::new();
        let mut at = Cursor::START;
        while at != Cursor::END {
            let (found, next) = list(&blocks, at, 30).unwrap();
            // Removing what was seen, as rm -r does, must not make the listing skip.
            for entry in &found {
                assert!(remove(&mut blocks, entry.name.as_slice()).unwrap());
            }
            seen.extend(found.into_iter().map(|e| e.value.as_u64().unwrap()));
            at = Cursor::from_cookie(next.to_cookie(0), 0);
        }
        seen.sort_unstable();
        assert_eq!(seen, (0..size).collect::<Vec<_>>());
        assert_eq!(count(&blocks), Ok(0));
        assert_eq!(findings(&blocks), []);
    }
}

#[test]
fn keys_of_words_as_dedup_tables_have_them() {
    let flags = 7;
    let mut blocks = fat(12, flags);
    let mut rng = Rng::new(1);
    let keys: Vec<[u64; 5]> = (0..500).map(|_| [(); 5].map(|()| rng.next_u64())).collect();
    for (i, key) in keys.iter().enumerate() {
        let value = Value::bytes(&vec![i as u8; i % 200]);
        assert!(add(&mut blocks, Key::Words(key), &value).unwrap());
    }
    assert_eq!(findings(&blocks), []);
    for (i, key) in keys.iter().enumerate() {
        let value = lookup(&blocks, Key::Words(key)).unwrap().unwrap();
        assert_eq!(value.as_bytes(), Some(&vec![i as u8; i % 200][..]));
    }
    let found = entries(&blocks).unwrap();
    assert!(found.iter().all(|e| keys.contains(&e.words().try_into().unwrap())));
    assert_eq!(lookup(&blocks, "name"), Err(ZapError::KeyKind));
    for key in &keys {
        assert!(remove(&mut blocks, Key::Words(key)).unwrap());
    }
    assert_eq!((findings(&blocks), count(&blocks)), (vec![], Ok(0)));
}
