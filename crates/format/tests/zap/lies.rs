//! Each thing that can be wrong with a ZAP, planted in one that a kernel wrote: the judge finds it.

use format::FormatError;
use format::zap::leaf::{CHAIN_END, CHUNK, CHUNK_ARRAY, CHUNK_ENTRY, CHUNK_FREE};
use format::zap::{Cursor, Key, Leaf, Problem, Reader, check};

use crate::blocks;

/// Offset of the chunks in a leaf of 16 KiB.
const CHUNKS_AT: usize = 48 + 2 * 512;

/// A ZAP's blocks, to spoil.
struct Victim(Vec<Vec<u8>>);

impl Victim {
    /// A directory of 16 leaves.
    fn fat() -> Victim {
        Victim(blocks("rz1-directory"))
    }

    fn u16(&mut self, block: usize, at: usize, value: u16) {
        self.0[block][at..at + 2].copy_from_slice(&value.to_le_bytes());
    }

    fn u64(&mut self, block: usize, at: usize, value: u64) {
        self.0[block][at..at + 8].copy_from_slice(&value.to_le_bytes());
    }

    /// Word `word` of block 0.
    fn header(&mut self, word: usize, value: u64) {
        self.u64(0, word * 8, value);
    }

    /// Chunk number of an entry of a leaf, the `nth`.
    fn entry(&self, block: usize, nth: usize) -> u16 {
        Leaf::new(&self.0[block]).unwrap().sorted(0).unwrap()[nth]
    }

    fn in_chunk(chunk: u16, at: usize) -> usize {
        CHUNKS_AT + usize::from(chunk) * CHUNK + at
    }

    fn findings(&self) -> Vec<Problem<FormatError>> {
        let read = |blkid: u64| {
            let block = self.0.get(blkid as usize).map(Vec::as_slice);
            block.ok_or(FormatError::Bounds { what: "test", field: "block", at: blkid })
        };
        let findings = check(read, self.0.len() as u64 - 1);
        assert!(findings.iter().all(|f| !f.to_string().is_empty()));
        findings.into_iter().map(|f| f.problem).collect()
    }
}

/// Plants a lie and expects that the judge says `$want`, whatever else follows from it.
macro_rules! lie {
    ($name:ident, $victim:expr, $plant:expr, $want:pat) => {
        #[test]
        fn $name() {
            let mut victim: Victim = $victim;
            assert_eq!(victim.findings(), []);
            #[allow(clippy::redundant_closure_call)]
            ($plant)(&mut victim);
            let findings = victim.findings();
            assert!(findings.iter().any(|p| matches!(p, $want)), "{findings:?}");
        }
    };
}

lie!(salt_of_0, Victim::fat(), |v: &mut Victim| v.header(10, 0), Problem::NoSalt);
lie!(other_salt, Victim::fat(), |v: &mut Victim| v.header(10, 99), Problem::Hash { .. });
lie!(
    unknown_normflags,
    Victim::fat(),
    |v: &mut Victim| v.header(11, 0x80),
    Problem::NormFlags { seen: 0x80 }
);
lie!(case_ignored, Victim::fat(), |v: &mut Victim| v.header(11, 2), Problem::SortedFlag { .. });
lie!(unknown_flags, Victim::fat(), |v: &mut Victim| v.header(12, 8), Problem::Malformed(_));
lie!(wrong_magic, Victim::fat(), |v: &mut Victim| v.header(1, 8), Problem::Malformed(_));
lie!(wrong_shift, Victim::fat(), |v: &mut Victim| v.header(4, 9), Problem::Malformed(_));
lie!(
    one_leaf_more,
    Victim::fat(),
    |v: &mut Victim| v.header(8, 17),
    Problem::LeafCount { seen: 17, expected: 16 }
);
lie!(
    one_entry_less,
    Victim::fat(),
    |v: &mut Victim| v.header(9, 2899),
    Problem::EntryCount { seen: 2899, expected: 2900 }
);
lie!(
    next_block_in_use,
    Victim::fat(),
    |v: &mut Victim| v.header(7, 16),
    Problem::FreeBlock { seen: 16, expected: 17 }
);
lie!(
    table_copied_without_copy,
    Victim::fat(),
    |v: &mut Victim| v.header(6, 1),
    Problem::TableCopied { .. }
);
lie!(
    new_table_beyond_the_end,
    Victim::fat(),
    |v: &mut Victim| v.header(5, 40),
    Problem::TableBeyond { first: 40, .. }
);
lie!(
    new_table_beyond_all_numbers,
    Victim::fat(),
    |v: &mut Victim| {
        // With a table of its own there are blocks to be added.
        v.header(2, 16);
        v.header(3, 1);
        v.header(4, 11);
        v.header(5, u64::MAX);
    },
    Problem::TableBeyond { first: u64::MAX, .. }
);
lie!(
    pointer_to_the_header,
    Victim::fat(),
    |v: &mut Victim| v.u64(0, 8192 + 8 * 100, 0),
    Problem::Pointer { index: 100, leaf: 0 }
);
lie!(
    pointer_beyond_the_end,
    Victim::fat(),
    |v: &mut Victim| v.u64(0, 8192 + 8 * 100, 17),
    Problem::Pointer { index: 100, leaf: 17 }
);
lie!(
    pointer_to_another_leaf,
    Victim::fat(),
    |v: &mut Victim| {
        let other = v.0[0][8192..8200].to_vec();
        v.0[0][8192 + 8 * 100..][..8].copy_from_slice(&other);
    },
    Problem::Prefix { .. }
);
lie!(wrong_prefix, Victim::fat(), |v: &mut Victim| v.u64(3, 16, 14), Problem::Prefix { .. });
lie!(
    wrong_prefix_makes_foreign_hashes,
    Victim::fat(),
    |v: &mut Victim| v.u64(3, 16, 14),
    Problem::ForeignHash { .. }
);
lie!(leaf_without_magic, Victim::fat(), |v: &mut Victim| v.u16(3, 24, 0), Problem::Malformed(_));
lie!(leaf_lost, Victim::fat(), |v: &mut Victim| v.0[3].fill(0), Problem::Malformed(_));
lie!(
    unreadable,
    Victim::fat(),
    |v: &mut Victim| {
        v.0.pop();
        v.header(7, 17);
    },
    Problem::Unreadable(_)
);
lie!(
    one_free_chunk_more,
    Victim::fat(),
    |v: &mut Victim| {
        let free = u16::from_le_bytes([v.0[5][28], v.0[5][29]]);
        v.u16(5, 28, free + 1);
    },
    Problem::ChunkFreeCount { .. }
);
lie!(
    wrong_number_in_the_leaf,
    Victim::fat(),
    |v: &mut Victim| v.u16(5, 30, 3),
    Problem::LeafEntryCount { seen: 3, .. }
);
lie!(
    sorted_flag_without_reason,
    Victim::fat(),
    |v: &mut Victim| v.0[5][36] = 1,
    Problem::SortedFlag { seen: 1, expected: 0 }
);
lie!(
    empty_free_list,
    Victim::fat(),
    |v: &mut Victim| v.u16(5, 34, CHAIN_END),
    Problem::ChunksLost { .. }
);
lie!(
    free_list_beyond_the_end,
    Victim::fat(),
    |v: &mut Victim| v.u16(5, 34, 638),
    Problem::ChunkBeyond { chunk: 638, by: "the free list" }
);
lie!(
    free_list_leads_to_an_entry,
    Victim::fat(),
    |v: &mut Victim| {
        let entry = v.entry(5, 0);
        v.u16(5, 34, entry);
    },
    Problem::ChunkShared { by: "the free list", .. }
);
lie!(
    free_list_in_a_circle,
    Victim::fat(),
    |v: &mut Victim| {
        let first = u16::from_le_bytes([v.0[5][34], v.0[5][35]]);
        v.u16(5, Victim::in_chunk(first, 22), first);
    },
    Problem::ChunkShared { by: "the free list", .. }
);
lie!(
    entry_freed_in_its_chain,
    Victim::fat(),
    |v: &mut Victim| {
        let entry = v.entry(5, 0);
        v.0[5][Victim::in_chunk(entry, 0)] = CHUNK_FREE;
    },
    Problem::ChunkKind { kind: CHUNK_FREE, expected: CHUNK_ENTRY, .. }
);
lie!(
    chunk_without_type,
    Victim::fat(),
    |v: &mut Victim| {
        let first = u16::from_le_bytes([v.0[5][34], v.0[5][35]]);
        v.0[5][Victim::in_chunk(first, 0)] = 7;
        v.u16(5, 34, CHAIN_END);
    },
    Problem::ChunkType { kind: 7, .. }
);
lie!(
    chain_in_a_circle,
    Victim::fat(),
    |v: &mut Victim| {
        let entry = v.entry(5, 0);
        v.u16(5, Victim::in_chunk(entry, 2), entry);
    },
    Problem::ChunkShared { by: "a hash chain", .. }
);
lie!(
    name_in_a_circle,
    Victim::fat(),
    |v: &mut Victim| {
        let entry = v.entry(5, 0);
        let at = Victim::in_chunk(entry, 4);
        let name = u16::from_le_bytes([v.0[5][at], v.0[5][at + 1]]);
        v.u16(5, Victim::in_chunk(name, 22), name);
    },
    Problem::ChunkShared { by: "a name", .. }
);
lie!(
    value_of_another_entry,
    Victim::fat(),
    |v: &mut Victim| {
        let at = Victim::in_chunk(v.entry(5, 0), 8);
        let value = u16::from_le_bytes([v.0[5][at], v.0[5][at + 1]]);
        let other = v.entry(5, 1);
        v.u16(5, Victim::in_chunk(other, 8), value);
    },
    Problem::ChunkShared { by: "a value", .. }
);
lie!(
    value_longer_than_its_chunks,
    Victim::fat(),
    |v: &mut Victim| {
        let entry = v.entry(5, 0);
        v.u16(5, Victim::in_chunk(entry, 10), 3);
    },
    Problem::ArrayChunks { seen: 1, expected: 2, .. }
);
lie!(
    value_too_long,
    Victim::fat(),
    |v: &mut Victim| {
        let entry = v.entry(5, 0);
        v.u16(5, Victim::in_chunk(entry, 10), 1025);
    },
    Problem::ValueLength { len: 8200, .. }
);
lie!(
    integers_of_3_bytes,
    Victim::fat(),
    |v: &mut Victim| {
        let entry = v.entry(5, 0);
        v.0[5][Victim::in_chunk(entry, 1)] = 3;
    },
    Problem::IntSize { int_size: 3, .. }
);
lie!(
    empty_name,
    Victim::fat(),
    |v: &mut Victim| {
        let entry = v.entry(5, 0);
        v.u16(5, Victim::in_chunk(entry, 6), 1);
    },
    Problem::NameLength { len: 0 }
);
lie!(
    name_without_end,
    Victim::fat(),
    |v: &mut Victim| {
        let at = Victim::in_chunk(v.entry(5, 0), 4);
        let name = u16::from_le_bytes([v.0[5][at], v.0[5][at + 1]]);
        v.0[5][Victim::in_chunk(name, 1)..][..21].fill(b'x');
    },
    Problem::NameWithoutEnd { .. }
);
lie!(
    name_of_another_hash,
    Victim::fat(),
    |v: &mut Victim| {
        let at = Victim::in_chunk(v.entry(5, 0), 4);
        let name = u16::from_le_bytes([v.0[5][at], v.0[5][at + 1]]);
        assert_eq!(v.0[5][Victim::in_chunk(name, 0)], CHUNK_ARRAY);
        v.0[5][Victim::in_chunk(name, 1)] ^= 1;
    },
    Problem::Hash { .. }
);
lie!(
    wrong_hash,
    Victim::fat(),
    |v: &mut Victim| {
        let entry = v.entry(5, 0);
        v.0[5][Victim::in_chunk(entry, 16 + 4)] ^= 0x10;
    },
    Problem::Hash { .. }
);
lie!(
    wrong_bucket,
    Victim::fat(),
    |v: &mut Victim| {
        let entry = v.entry(5, 0);
        let leaf = Leaf::new(&v.0[5]).unwrap();
        let from = leaf.bucket(leaf.entry(entry).unwrap().hash.get());
        let to = leaf.buckets.iter().position(|b| b.get() == CHAIN_END).unwrap();
        let first = leaf.buckets[from].get();
        v.u16(5, 48 + 2 * from, CHAIN_END);
        v.u16(5, 48 + 2 * to, first);
    },
    Problem::Bucket { .. }
);
lie!(
    chain_out_of_order,
    Victim::fat(),
    |v: &mut Victim| {
        let leaf = Leaf::new(&v.0[5]).unwrap();
        let long = (0..512).find(|&b| leaf.chain(b).count() > 1).unwrap();
        let first = leaf.buckets[long].get();
        v.u16(5, Victim::in_chunk(first, 12), 1);
    },
    Problem::ChainOrder { before: 1, after: 0, .. }
);
/// Two names of one hash: the directory of a file system that ignores case in lookups only.
fn two_of_one_hash() -> Victim {
    Victim(blocks("micro-mixed-case"))
}
lie!(
    micro_same_collision_number,
    two_of_one_hash(),
    |v: &mut Victim| {
        for entry in v.0[0].chunks_exact_mut(64).skip(1) {
            entry[8] = 0;
        }
    },
    Problem::CollisionNumber { cd: 0, .. }
);
lie!(
    micro_same_name,
    two_of_one_hash(),
    |v: &mut Victim| {
        let used: Vec<_> = (64..512).step_by(64).filter(|&at| v.0[0][at + 14] != 0).collect();
        let name = v.0[0][used[0] + 14..][..50].to_vec();
        v.0[0][used[1] + 14..][..50].copy_from_slice(&name);
    },
    Problem::Duplicate { .. }
);
lie!(
    micro_name_without_end,
    two_of_one_hash(),
    |v: &mut Victim| v.0[0][64 * 3 + 14..64 * 4].fill(b'x'),
    Problem::NameWithoutEnd { .. }
);
lie!(
    micro_collision_number_too_large,
    two_of_one_hash(),
    |v: &mut Victim| (1..8).for_each(|entry| v.u16(0, 64 * entry + 10, 1)),
    Problem::CollisionNumberTooLarge { .. }
);
lie!(
    micro_of_two_blocks,
    two_of_one_hash(),
    |v: &mut Victim| v.0.push(vec![0; 512]),
    Problem::MicroSize { blocks: 2, size: 512 }
);
lie!(no_zap, two_of_one_hash(), |v: &mut Victim| v.header(0, 0), Problem::Malformed(_));

#[test]
fn same_collision_number_and_same_name_in_a_leaf() {
    let mut victim = Victim::fat();
    // The second entry is made the first again, with the first's hash in the first's chain.
    let (one, two) = (victim.entry(5, 0), victim.entry(5, 1));
    let copy = |v: &mut Victim, at: usize, len: usize| {
        let bytes = v.0[5][Victim::in_chunk(one, at)..][..len].to_vec();
        v.0[5][Victim::in_chunk(two, at)..][..len].copy_from_slice(&bytes);
    };
    let name = |v: &Victim, entry: u16| {
        let at = Victim::in_chunk(entry, 4);
        Victim::in_chunk(u16::from_le_bytes([v.0[5][at], v.0[5][at + 1]]), 1)
    };
    copy(&mut victim, 6, 2);
    copy(&mut victim, 12, 12);
    let (from, to) = (name(&victim, one), name(&victim, two));
    let bytes = victim.0[5][from..][..21].to_vec();
    victim.0[5][to..][..21].copy_from_slice(&bytes);
    let findings = victim.findings();
    assert!(findings.iter().any(|p| matches!(p, Problem::Duplicate { .. })), "{findings:?}");
    assert!(findings.iter().any(|p| matches!(p, Problem::CollisionNumber { cd: 0, .. })));
}

proptest::proptest! {
    /// Whatever is in the blocks: reader and judge come to an end, and the judge has something to
    /// say wherever the reader stumbles.
    #[test]
    fn hostile_blocks_end(
        name in proptest::sample::select(vec!["bookmarks", "ddt", "micro-mixed-case", "sa-layouts"]),
        changes in proptest::collection::vec((0..3usize, 0..2048usize, 0..=255u8), 1..30),
    ) {
        let mut victim = Victim(blocks(name));
        for (block, at, byte) in changes {
            let blocks = victim.0.len();
            let block = &mut victim.0[block % blocks];
            let at = at % block.len();
            block[at] = byte;
        }
        let findings = victim.findings();
        let read = |blkid: u64| {
            let block = victim.0.get(blkid as usize).map(Vec::as_slice);
            block.ok_or(FormatError::Bounds { what: "test", field: "block", at: blkid })
        };
        let Ok(mut zap) = Reader::open(read) else {
            assert_ne!(findings, []);
            return Ok(());
        };
        let listed: Vec<_> = zap.entries().collect();
        assert!(listed.len() < 1 << 16);
        if listed.iter().any(Result::is_err) {
            assert_ne!(findings, []);
        }
        for entry in listed.into_iter().flatten() {
            let _ = zap.lookup(Key::Name(&entry.name));
            let _ = zap.lookup(Key::Words(&entry.words()));
            let _ = zap.entries_from(Cursor::after(&entry)).next();
        }
    }
}

/// Seen red: half a thousand million pointers were read, and each hole of them as a block of zeros.
#[test]
fn a_table_of_nothing_ends_the_check() {
    let victim = Victim::fat();
    let mut head = victim.0[0].clone();
    for (word, value) in [(2, 1 << 20), (3, 1 << 17), (4, 28u64)] {
        head[word * 8..][..8].copy_from_slice(&value.to_le_bytes());
    }
    let mut reads = 0;
    let read = |block: u64| {
        reads += 1;
        Ok::<_, FormatError>(if block == 0 { head.clone() } else { vec![0; head.len()] })
    };
    let findings = check(read, u64::MAX - 1);
    let at_once = |f: &format::zap::Finding<_>| f.problem == Problem::Pointer { index: 0, leaf: 0 };
    assert!(findings.iter().any(at_once), "{findings:?}");
    assert!(reads < 10, "{reads} blocks were read");
}

#[test]
fn wreckage_ends_the_check() {
    let mut victim = Victim::fat();
    for index in 0..1024 {
        victim.u64(0, 8192 + 8 * index, 100 + index as u64);
    }
    for block in 1..17 {
        victim.0[block][CHUNKS_AT..].fill(9);
    }
    let findings = victim.findings();
    assert_eq!(findings.len(), check::FINDINGS_MAX + 1);
    assert_eq!(findings.last(), Some(&Problem::More));
}
