use proptest::prelude::*;

use super::*;

/// Blocks of the log of the golden pool `dirty`, file system `always`: each a length and as many
/// bytes.
const BLOCKS: &[u8] = include_bytes!("../../tests/data/log_blocks");

fn blocks() -> Vec<&'static [u8]> {
    let (mut blocks, mut rest) = (Vec::new(), BLOCKS);
    while let Some((len, tail)) = rest.split_first_chunk() {
        let (block, tail) = tail.split_at(u32::from_le_bytes(*len) as usize);
        blocks.push(block);
        rest = tail;
    }
    blocks
}

#[test]
fn reads_what_the_kernel_wrote() {
    let mut seen = Vec::new();
    for block in blocks() {
        let block = LogBlock::parse(block).unwrap();
        assert!(!block.chain.next.is_hole());
        for record in block.records() {
            let record = record.unwrap();
            assert_eq!((record.txg, record.ignores_case), (35, false));
            let decoded = record.decode().unwrap();
            seen.push((record.seq, record.kind, decoded));
        }
    }
    // Against `zdb -iiiiii dirty/always`.
    let find = |seq: u64| seen.iter().find(|(s, _, _)| *s == seq).map(|(_, k, r)| (*k, r)).unwrap();
    let (kind, Record::Write(write)) = find(15) else { panic!() };
    assert_eq!(kind, RecordKind::Write);
    assert_eq!((write.object, write.offset, write.length), (129, 0, 1));
    assert_eq!(write.data, Some(&[0x7f][..]));
    let (_, Record::Write(write)) = find(37) else { panic!() };
    assert_eq!((write.object, write.offset, write.length), (10, 0x10_0000, 0x2bc));
    assert_eq!(write.data.unwrap().len(), 0x2bc);

    let (kind, Record::Create(create)) = find(16) else { panic!() };
    assert_eq!(kind, RecordKind::Create);
    assert_eq!(create.name, b"w100");
    assert_eq!((create.directory, create.object, create.slots), (34, 130, 1));
    assert_eq!((create.mode, create.generation), (0o100_640, 35));
    assert_eq!((create.uid, create.gid, create.rdev), (0, 0, 0));
    assert_eq!(create.crtime[0], 1_714_521_619);
    assert_eq!((&create.target, &create.xvattr, &create.acl), (&None, &None, &None));
    let (kind, Record::Create(mkdir)) = find(38) else { panic!() };
    assert_eq!((kind, mkdir.name, mkdir.mode), (RecordKind::Mkdir, &b"dir"[..], 0o40_750));
    let (kind, Record::Create(link)) = find(40) else { panic!() };
    assert_eq!((kind, link.name), (RecordKind::Symlink, &b"sym"[..]));
    assert_eq!(link.target, Some(&b"old2"[..]));

    let link = Record::Link { directory: 11, object: 3, name: b"hard" };
    assert_eq!(find(41), (RecordKind::Link, &link));
    let rename = Record::Rename { from: 34, to: 11, name: b"old3", new_name: b"renamed" };
    assert_eq!(find(42), (RecordKind::Rename, &rename));
    let remove = Record::Remove { directory: 34, name: b"old4" };
    assert_eq!(find(43), (RecordKind::Remove, &remove));
    let rmdir = Record::Remove { directory: 34, name: b"gone" };
    assert_eq!(find(48), (RecordKind::Rmdir, &rmdir));

    let masks = [(49, 0x8), (50, 0x41), (51, 0x46), (52, 0x70)];
    for (seq, mask) in masks {
        let (kind, Record::Setattr(setattr)) = find(seq) else { panic!() };
        assert_eq!((kind, setattr.mask), (RecordKind::Setattr, mask));
    }
    let (_, Record::Setattr(chown)) = find(51) else { panic!() };
    assert_eq!((chown.object, chown.uid), (12, 77));
    assert_eq!(chown.mask, SetattrMask::UID | SetattrMask::GID | SetattrMask::CTIME);
}

#[test]
fn blocks_of_a_chain_know_the_next_one() {
    // The blocks 16, 17 and 18 of the chain come first.
    let words: Vec<_> =
        blocks().iter().map(|b| LogBlock::parse(b).unwrap().chain.next.checksum_words()).collect();
    assert_eq!(words[0][3], 17);
    assert_eq!(words[1][3], 18);
    assert_eq!(words[0][..3], words[1][..3]);
    assert_eq!(words[0][2], 92, "the object of the file system's data set");
}

fn record(kind: u64, body: &[u8]) -> Vec<u8> {
    let mut bytes = Vec::new();
    let size = (RECORD_HEAD_SIZE + body.len()).next_multiple_of(8);
    for word in [kind, size as u64, 7, 1] {
        bytes.extend_from_slice(&word.to_le_bytes());
    }
    bytes.extend_from_slice(body);
    bytes.resize(size, 0);
    bytes
}

fn body(words: &[u64]) -> Vec<u8> {
    words.iter().flat_map(|w| w.to_le_bytes()).collect()
}

/// The kinds that the golden log does not have, laid out by hand from the fact sheet.
#[test]
fn reads_attributes_and_access_control_lists() {
    let xvattr = |bytes: &mut Vec<u8>| {
        for word in [3u32, 1, 2, 3] {
            bytes.extend_from_slice(&word.to_le_bytes());
        }
        bytes.extend(body(&[0x40, 5, 6]));
        bytes.extend([9; 32]);
    };
    let expected = XvAttr { asked: vec![1, 2, 3], flags: 0x40, crtime: [5, 6], stamp: [9; 32] };

    let mut bytes = body(&[34, 2 << 56 | 130, 0o100_644, 1, 2, 7, 11, 12, 0]);
    bytes.extend(body(&[1, 1, 2, 12, 4]));
    xvattr(&mut bytes);
    bytes.extend([1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 0, 0, 0, 0]);
    bytes.extend(body(&[1 << 32, 2 << 32]));
    bytes.extend(b"domain\0name\0");
    let bytes = record(16, &bytes);
    let raw = RawRecord::parse(&bytes, 0).unwrap();
    let Record::Create(create) = raw.decode().unwrap() else { panic!() };
    assert_eq!(raw.kind, RecordKind::CreateAclAttr);
    assert_eq!((create.object, create.slots, create.name), (130, 3, &b"name"[..]));
    assert_eq!(create.xvattr.as_ref(), Some(&expected));
    let acl = create.acl.unwrap();
    assert_eq!((acl.entries, acl.flags, acl.bytes.len()), (1, 4, 12));
    assert_eq!(acl.domains.len(), 16 + 7);

    let mut bytes = body(&[9, 1 << 31, 0, 0, 0, 0, 1, 2, 3, 4]);
    xvattr(&mut bytes);
    let bytes = record(11, &bytes);
    let raw = RawRecord::parse(&bytes, 0).unwrap();
    let Record::Setattr(setattr) = raw.decode().unwrap() else { panic!() };
    assert_eq!((setattr.atime, setattr.mtime), ([1, 2], [3, 4]));
    assert_eq!(setattr.xvattr, Some(expected));

    let bytes = record(13, &body(&[9, 1, 0, 0, 8, 0, 77]));
    let raw = RawRecord::parse(&bytes, 0).unwrap();
    let Record::Acl { object: 9, acl } = raw.decode().unwrap() else { panic!() };
    assert_eq!(acl.bytes, 77u64.to_le_bytes());

    let bytes = record(10 | 1 << 63, &body(&[9, 100, 0]));
    let raw = RawRecord::parse(&bytes, 0).unwrap();
    assert!(raw.ignores_case);
    let truncate = Record::Truncate { object: 9, offset: 100, length: 0 };
    assert_eq!(raw.decode().unwrap(), truncate);

    // An owner with a domain: its name comes before the object's.
    let mut bytes = body(&[34, 130, 0, 1 << 32 | 5, 1 << 32 | 6, 7, 0, 0, 0]);
    bytes.extend(b"domain\0name\0");
    let bytes = record(1, &bytes);
    let Record::Create(create) = RawRecord::parse(&bytes, 0).unwrap().decode().unwrap() else {
        panic!()
    };
    assert_eq!(create.name, b"name");

    // An indirect write has its pointer only.
    let mut bytes = body(&[9, 0, 4096, 0]);
    bytes.resize(160, 1);
    let bytes = record(9, &bytes);
    let Record::Write(write) = RawRecord::parse(&bytes, 0).unwrap().decode().unwrap() else {
        panic!()
    };
    assert_eq!((write.data, write.length), (None, 4096));
    assert!(!write.pointer.is_hole());
}

#[test]
fn kinds_and_numbers_are_inverse() {
    for id in 0..30 {
        assert_eq!(RecordKind::from_id(id).id(), id);
    }
    assert_eq!(RecordKind::from_id(20), RecordKind::Write2);
    assert_eq!(RecordKind::from_id(0), RecordKind::Other(0));
    assert_eq!(RecordKind::from_id(21), RecordKind::Other(21));
}

#[test]
fn headers_and_bytes_are_inverse() {
    let mut header = ZilHeader::default();
    header.claim_txg.set(5);
    header.log = BlkPtr::hole(512, crate::ObjectType::INTENT_LOG, 0, 3);
    let bytes = header.to_bytes();
    assert_eq!(ZilHeader::parse(&bytes), header);
    assert_eq!(bytes[0], 5);
}

#[test]
fn false_lengths_are_refused() {
    let block = blocks()[0];
    for used in [0, 183, block.len() as u64 + 1, u64::MAX] {
        let mut bytes = block.to_vec();
        bytes[136..144].copy_from_slice(&used.to_le_bytes());
        assert!(LogBlock::parse(&bytes).is_err(), "{used}");
    }
    for size in [0, 31, 33, 1 << 20, u64::MAX] {
        let mut bytes = block.to_vec();
        bytes[192..200].copy_from_slice(&size.to_le_bytes());
        let records: Vec<_> = LogBlock::parse(&bytes).unwrap().records().collect();
        assert!(matches!(records[..], [Err(_)]), "{size}");
    }
    let mut bytes = block.to_vec();
    bytes[144..152].reverse();
    assert!(matches!(LogBlock::parse(&bytes), Err(FormatError::Magic { .. })));
    assert!(LogBlock::parse(&block[..100]).is_err());
}

proptest! {
    #[test]
    fn damaged_blocks_never_panic(
        which in 0..15usize,
        changes in proptest::collection::vec((any::<proptest::sample::Index>(), any::<u8>()), 1..8),
    ) {
        let mut bytes = blocks()[which].to_vec();
        for (index, byte) in changes {
            let at = 136 + index.index(bytes.len() - 136);
            bytes[at] = byte;
        }
        if let Ok(block) = LogBlock::parse(&bytes) {
            for record in block.records().flatten() {
                let _ = record.decode();
            }
        }
    }

    #[test]
    fn random_records_never_panic(kind in 0u64..24, bytes: Vec<u8>) {
        let bytes = record(kind, &bytes);
        let _ = RawRecord::parse(&bytes, 0).unwrap().decode();
    }
}
