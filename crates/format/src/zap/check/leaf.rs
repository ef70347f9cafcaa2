//! The judge of one leaf: follows every chain and accounts for every chunk.

use super::super::leaf::{
    CHAIN_END, CHUNK_ARRAY, CHUNK_ENTRY, CHUNK_FREE, EntryChunk, LEAF_CD_SORTED, Leaf, array_chunks,
};
use super::super::{FatHeader, Key, NAME_MAX, VALUE_MAX, zap_hash};
use super::{CD_MAX, Findings, Problem, has_word_keys, repeated};
use crate::FormatError;

/// Where a leaf is, and the pointers that name it.
#[derive(Clone, Copy, Debug)]
pub(super) struct LeafPlace {
    /// Its block.
    pub(super) block: u64,
    /// log2 of the size of blocks.
    pub(super) bs: u32,
    /// The first pointer that names it.
    pub(super) first: u64,
    /// The pointer after the last of the run.
    pub(super) end: u64,
    /// Pointers before or after the run could not be read.
    pub(super) torn: bool,
}

/// Checks a leaf; returns the number of its entries, `None` if it is none.
pub(super) fn check_leaf<E>(
    bytes: &[u8],
    head: &FatHeader,
    place: &LeafPlace,
    out: &mut Findings<E>,
) -> Option<u64> {
    let leaf = match Leaf::new(bytes) {
        Ok(_) if bytes.len() != 1 << place.bs => {
            let expected = "that of block 0";
            let seen = bytes.len() as u64;
            let field = "block size";
            let error = FormatError::Field { what: "zap leaf", field, seen, expected };
            out.add(place.block, Problem::Malformed(error));
            return None;
        }
        Ok(leaf) => leaf,
        Err(error) => {
            out.add(place.block, Problem::Malformed(error));
            return None;
        }
    };
    let used = vec![false; leaf.chunks.len()];
    let mut audit = Audit { leaf, head, block: place.block, used, seen: Vec::new(), out };
    audit.prefix(place);
    for bucket in 0..leaf.buckets.len() {
        audit.chain(bucket);
    }
    audit.free_list();
    audit.rest();
    audit.collisions();
    Some(audit.seen.len() as u64)
}

/// A leaf being checked.
struct Audit<'a, E> {
    leaf: Leaf<'a>,
    head: &'a FatHeader,
    block: u64,
    /// Chunks that something leads to.
    used: Vec<bool>,
    /// Hash, collision number and name of each entry.
    seen: Vec<(u64, u32, Vec<u8>)>,
    out: &'a mut Findings<E>,
}

impl<E> Audit<'_, E> {
    fn add(&mut self, problem: Problem<E>) {
        self.out.add(self.block, problem);
    }

    /// The prefix against the pointers, and the flags.
    fn prefix(&mut self, place: &LeafPlace) {
        let head = self.leaf.head;
        let shift = self.head.table_shift.get();
        let (prefix, len) = (head.prefix.get(), head.prefix_len.get());
        let owned = shift.checked_sub(len.into()).map(|bits| {
            let first = prefix << bits;
            (first, first + (1 << bits))
        });
        let right = owned.is_some_and(|(first, end)| {
            let torn = place.torn && first <= place.first && place.end <= end;
            torn || (first, end) == (place.first, place.end)
        });
        if !right {
            let (first, last) = (place.first, place.end - 1);
            self.add(Problem::Prefix { first, last, prefix, len });
        }
        let expected = if self.head.normflags.get() != 0 { LEAF_CD_SORTED } else { 0 };
        if head.flags != expected {
            self.add(Problem::SortedFlag { seen: head.flags, expected });
        }
    }

    /// Marks a chunk as used; false: it cannot be, and the chain ends here.
    fn claim(&mut self, chunk: u16, by: &'static str, expected: u8) -> bool {
        let place = usize::from(chunk);
        let (Some(at), Some(used)) = (self.leaf.chunks.get(place), self.used.get_mut(place)) else {
            self.add(Problem::ChunkBeyond { chunk, by });
            return false;
        };
        if std::mem::replace(used, true) {
            self.add(Problem::ChunkShared { chunk, by });
            return false;
        }
        if at.kind != expected {
            self.add(Problem::ChunkKind { chunk, by, kind: at.kind, expected });
            return false;
        }
        true
    }

    /// The chunk after a chunk.
    fn next(&self, chunk: u16) -> u16 {
        self.leaf.chunks.get(usize::from(chunk)).map_or(CHAIN_END, |c| c.next.get())
    }

    /// All entries of a bucket.
    fn chain(&mut self, bucket: usize) {
        let mut at = self.leaf.buckets.get(bucket).map_or(CHAIN_END, |c| c.get());
        let mut before = None;
        while at != CHAIN_END && self.claim(at, "a hash chain", CHUNK_ENTRY) {
            let Ok(entry) = self.leaf.entry(at) else { break };
            let after = entry.cd.get();
            if let Some(before) = before.filter(|&before| before > after) {
                self.add(Problem::ChainOrder { bucket, before, after });
            }
            before = Some(after);
            self.entry(entry, bucket);
            at = entry.next.get();
        }
    }

    fn entry(&mut self, entry: &EntryChunk, bucket: usize) {
        let hash = entry.hash.get();
        let words = has_word_keys(self.head);
        let name_len = entry.name_len(self.head.flags.get());
        let stored = self.array(entry.name_chunk.get(), name_len, "a name");
        let name = self.name(entry, stored.as_deref(), words);
        let expected = self.leaf.bucket(hash);
        if bucket != expected {
            self.add(Problem::Bucket { hash, seen: bucket, expected });
        }
        if !self.leaf.owns(hash) {
            let (prefix, len) = (self.leaf.head.prefix.get(), self.leaf.head.prefix_len.get());
            self.add(Problem::ForeignHash { hash, prefix, len });
        }
        if !matches!(entry.int_size, 1 | 2 | 4 | 8) {
            self.add(Problem::IntSize { name: name.clone(), int_size: entry.int_size });
        }
        let len = entry.value_len();
        if len > VALUE_MAX {
            self.add(Problem::ValueLength { name: name.clone(), len });
        }
        self.array(entry.value_chunk.get(), len, "a value");
        let cd = entry.cd.get();
        if cd > CD_MAX {
            self.add(Problem::CollisionNumberTooLarge { name: name.clone(), cd });
        }
        self.seen.push((hash, cd, name));
    }

    /// The name of an entry from what is stored, and whether it has the hash.
    fn name(&mut self, entry: &EntryChunk, stored: Option<&[u8]>, words: bool) -> Vec<u8> {
        let ints = usize::from(entry.name_ints.get());
        let len = if words { ints } else { ints.saturating_sub(1) };
        if len == 0 || len > NAME_MAX {
            self.add(Problem::NameLength { len });
        }
        // A name that is not whole was reported as such.
        let Some(stored) = stored else { return Vec::new() };
        let (salt, normflags) = (self.head.salt.get(), self.head.normflags.get());
        let flags = self.head.flags.get();
        let name = stored.strip_suffix(&[0]).unwrap_or(stored);
        let expected = if words {
            let key: Vec<_> = stored.as_chunks().0.iter().map(|w| u64::from_be_bytes(*w)).collect();
            zap_hash(salt, normflags, flags, Key::Words(&key))
        } else {
            if stored.iter().position(|&b| b == 0) != stored.len().checked_sub(1) {
                self.add(Problem::NameWithoutEnd { name: name.to_vec() });
            }
            zap_hash(salt, normflags, flags, Key::Name(name))
        };
        let name = if words { stored.to_vec() } else { name.to_vec() };
        let seen = entry.hash.get();
        if let Some(expected) = expected.filter(|&expected| expected != seen) {
            self.add(Problem::Hash { name: name.clone(), seen, expected });
        }
        name
    }

    /// The bytes of an array, if it has as many chunks as it needs.
    fn array(&mut self, first: u16, len: usize, by: &'static str) -> Option<Vec<u8>> {
        let expected = array_chunks(len);
        let mut bytes = Vec::new();
        let mut seen = 0;
        let mut at = first;
        while at != CHAIN_END {
            if !self.claim(at, by, CHUNK_ARRAY) {
                return None;
            }
            seen += 1;
            bytes
                .extend_from_slice(self.leaf.chunks.get(usize::from(at)).map_or(&[], |c| &c.bytes));
            at = self.next(at);
        }
        if seen != expected {
            self.add(Problem::ArrayChunks { first, seen, expected });
        }
        bytes.truncate(len);
        (bytes.len() == len).then_some(bytes)
    }

    /// The free list and its count.
    fn free_list(&mut self) {
        let mut at = self.leaf.head.free_list.get();
        let mut count = 0;
        while at != CHAIN_END && self.claim(at, "the free list", CHUNK_FREE) {
            count += 1;
            at = self.next(at);
        }
        let seen = self.leaf.head.free_count.get().into();
        if seen != count {
            self.add(Problem::ChunkFreeCount { seen, expected: count });
        }
    }

    /// The number of entries, and the chunks that nothing led to.
    fn rest(&mut self) {
        let (seen, expected) = (self.leaf.head.entry_count.get().into(), self.seen.len() as u64);
        if seen != expected {
            self.add(Problem::LeafEntryCount { seen, expected });
        }
        let mut lost = None;
        let mut count = 0;
        for at in 0..self.used.len() {
            if self.used.get(at) == Some(&true) {
                continue;
            }
            let chunk = at as u16;
            let kind = self.leaf.chunks.get(at).map_or(0, |c| c.kind);
            if !matches!(kind, CHUNK_ARRAY | CHUNK_ENTRY | CHUNK_FREE) {
                self.add(Problem::ChunkType { chunk, kind });
            }
            lost = lost.or(Some(chunk));
            count += 1;
        }
        if let Some(first) = lost {
            self.add(Problem::ChunksLost { first, count });
        }
    }

    /// Names and (hash, cd) that are there twice.
    fn collisions(&mut self) {
        let mut seen = std::mem::take(&mut self.seen);
        seen.sort_unstable();
        let pairs: Vec<_> = seen.iter().map(|(hash, cd, _)| (*hash, *cd)).collect();
        for &(hash, cd) in repeated(&pairs) {
            self.add(Problem::CollisionNumber { hash, cd });
        }
        let mut names: Vec<_> =
            seen.iter().map(|(_, _, name)| name).filter(|n| !n.is_empty()).collect();
        names.sort_unstable();
        for name in repeated(&names) {
            self.add(Problem::Duplicate { name: name.to_vec() });
        }
        self.seen = seen;
    }
}
