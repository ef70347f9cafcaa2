//! Leaves of a fat ZAP: a hash table of chains in one block.
//!
//! The block is a header, a table of buckets, and chunks of 24 bytes. An entry takes one chunk,
//! and its name and value take chains of array chunks of 21 bytes each. Everything is linked by
//! chunk numbers, so everything can be a cycle: a walk counts its steps. FORMAT: section 6.4.

use zerocopy::little_endian::{U16, U32, U64};
use zerocopy::{
    FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned, transmute_mut, transmute_ref,
};

use super::header::block_shift;
use super::{Entry, FatFlags, KIND_LEAF, Key, NAME_MAX, VALUE_MAX, Value};
use crate::{FormatError, Result};

mod edit;

pub use edit::{LeafMut, Outcome, Stored};

const WHAT: &str = "zap leaf";
/// Magic number of a leaf.
pub const LEAF_MAGIC: u32 = 0x02AB_1EAF;
/// No chunk: end of a chain.
pub const CHAIN_END: u16 = 0xffff;
/// Flag of a leaf: written by an engine that keeps chains in order of their collision numbers.
/// It is set where names are normalized, and nowhere else.
pub const LEAF_CD_SORTED: u8 = 1;
/// Bytes of name or value in one chunk.
pub const ARRAY_BYTES: usize = 21;
/// Size of a chunk in bytes.
pub const CHUNK: usize = 24;
/// Type byte of a chunk of a name or value.
pub const CHUNK_ARRAY: u8 = 251;
/// Type byte of an entry.
pub const CHUNK_ENTRY: u8 = 252;
/// Type byte of a free chunk.
pub const CHUNK_FREE: u8 = 253;
/// The longest prefix of a leaf that can be, in bits: hashes have at most 48.
pub const PREFIX_LEN_MAX: u16 = 46;

/// The header (`zap_leaf_header`).
#[derive(
    Clone, Copy, Debug, PartialEq, Eq, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned,
)]
#[repr(C)]
pub struct LeafHeader {
    /// [`KIND_LEAF`].
    pub kind: U64,
    pad: U64,
    /// Top bits of all hashes in this leaf.
    pub prefix: U64,
    /// [`LEAF_MAGIC`].
    pub magic: U32,
    /// Free chunks.
    pub free_count: U16,
    /// Entries.
    pub entry_count: U16,
    /// Number of bits of the prefix.
    pub prefix_len: U16,
    /// The first free chunk.
    pub free_list: U16,
    /// [`LEAF_CD_SORTED`].
    pub flags: u8,
    pad2: [u8; 11],
}

/// A chunk of an array, or a free one.
#[derive(
    Clone, Copy, Debug, PartialEq, Eq, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned,
)]
#[repr(C)]
pub struct Chunk {
    /// [`CHUNK_ARRAY`], [`CHUNK_ENTRY`] or [`CHUNK_FREE`].
    pub kind: u8,
    /// What is stored.
    pub bytes: [u8; ARRAY_BYTES],
    /// The next chunk of the array, or of the free list.
    pub next: U16,
}

/// A chunk that is an entry (`zap_leaf_entry`).
#[derive(
    Clone, Copy, Debug, PartialEq, Eq, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned,
)]
#[repr(C)]
pub struct EntryChunk {
    /// [`CHUNK_ENTRY`].
    pub kind: u8,
    /// Bytes of each integer of the value.
    pub int_size: u8,
    /// The next entry in the bucket.
    pub next: U16,
    /// First chunk of the name.
    pub name_chunk: U16,
    /// Length of the name: bytes with the NUL, or words.
    pub name_ints: U16,
    /// First chunk of the value, [`CHAIN_END`] if it is empty.
    pub value_chunk: U16,
    /// Number of integers of the value.
    pub value_ints: U16,
    /// Collision number.
    pub cd: U32,
    /// The hash, left-aligned.
    pub hash: U64,
}

const _: () = assert!(size_of::<LeafHeader>() == 48);
const _: () = assert!(size_of::<Chunk>() == CHUNK);
const _: () = assert!(size_of::<EntryChunk>() == CHUNK);

impl Chunk {
    /// The chunk as an entry.
    pub fn as_entry(&self) -> &EntryChunk {
        transmute_ref!(self)
    }
}

impl EntryChunk {
    /// Length of the stored name in bytes.
    pub fn name_len(&self, flags: u64) -> usize {
        let size = if flags & FatFlags::UINT64_KEY != 0 { 8 } else { 1 };
        usize::from(self.name_ints.get()) * size
    }

    /// Length of the stored value in bytes.
    pub fn value_len(&self) -> usize {
        usize::from(self.value_ints.get()) * usize::from(self.int_size)
    }

    /// Chunks that this entry takes, with its name and value.
    pub fn chunks(&self, flags: u64) -> usize {
        1 + array_chunks(self.name_len(flags)) + array_chunks(self.value_len())
    }
}

/// Chunks that an array of `len` bytes takes.
pub fn array_chunks(len: usize) -> usize {
    len.div_ceil(ARRAY_BYTES)
}

/// log2 of the number of buckets of a leaf of `1 << bs` bytes.
pub fn bucket_shift(bs: u32) -> u32 {
    bs - 5
}

/// Number of chunks of a leaf of `1 << bs` bytes.
pub fn chunk_count(bs: u32) -> usize {
    ((1 << bs) - (2 << bucket_shift(bs))) / CHUNK - 2
}

/// A leaf.
#[derive(Clone, Copy)]
pub struct Leaf<'a> {
    /// Its header.
    pub head: &'a LeafHeader,
    /// First entry of each bucket.
    pub buckets: &'a [U16],
    /// Its chunks.
    pub chunks: &'a [Chunk],
}

fn bounds(field: &'static str, chunk: u16, buckets: usize) -> FormatError {
    let at = (size_of::<LeafHeader>() + 2 * buckets + usize::from(chunk) * CHUNK) as u64;
    FormatError::Bounds { what: WHAT, field, at }
}

/// Checks the parts of a header without which nothing in the leaf can be found.
pub(super) fn check_header(head: &LeafHeader) -> Result<()> {
    let magic = |seen, expected| Err(FormatError::Magic { what: WHAT, seen, expected });
    if head.kind.get() != KIND_LEAF {
        return magic(head.kind.get(), KIND_LEAF);
    }
    if head.magic.get() != LEAF_MAGIC {
        return magic(head.magic.get().into(), LEAF_MAGIC.into());
    }
    let field = |field, seen, expected| FormatError::Field { what: WHAT, field, seen, expected };
    let len = head.prefix_len.get();
    if len > PREFIX_LEN_MAX {
        return Err(field("prefix_len", len.into(), "at most 46"));
    }
    let prefix = head.prefix.get();
    if prefix >> len != 0 {
        return Err(field("prefix", prefix, "one of prefix_len bits"));
    }
    Ok(())
}

impl<'a> Leaf<'a> {
    /// The leaf in a block.
    pub fn new(block: &'a [u8]) -> Result<Leaf<'a>> {
        let bs = block_shift(block)?;
        let have = block.len() as u64;
        let short = FormatError::Short { what: WHAT, needed: 48, have };
        let parts = LeafHeader::ref_from_prefix(block).ok().and_then(|(head, rest)| {
            let (buckets, rest) =
                <[U16]>::ref_from_prefix_with_elems(rest, 1 << bucket_shift(bs)).ok()?;
            let (chunks, _) = <[Chunk]>::ref_from_prefix_with_elems(rest, chunk_count(bs)).ok()?;
            Some(Leaf { head, buckets, chunks })
        });
        let leaf = parts.ok_or(short)?;
        check_header(leaf.head)?;
        Ok(leaf)
    }

    /// Does the prefix of this leaf begin `hash`?
    pub fn owns(&self, hash: u64) -> bool {
        let len = u32::from(self.head.prefix_len.get());
        hash.checked_shr(64 - len).unwrap_or(0) == self.head.prefix.get()
    }

    /// The bucket of a hash.
    pub fn bucket(&self, hash: u64) -> usize {
        bucket(hash, self.buckets.len(), self.head.prefix_len.get())
    }

    /// The entry in chunk `chunk`.
    pub fn entry(&self, chunk: u16) -> Result<&'a EntryChunk> {
        self.chunks
            .get(usize::from(chunk))
            .filter(|c| c.kind == CHUNK_ENTRY)
            .map(Chunk::as_entry)
            .ok_or_else(|| bounds("hash chain", chunk, self.buckets.len()))
    }

    /// The chain of a bucket: chunk numbers and entries, ended by an error if the chain is broken.
    pub fn chain(&self, bucket: usize) -> Chain<'a> {
        let next = self.buckets.get(bucket).map_or(CHAIN_END, |c| c.get());
        Chain { leaf: *self, next, steps: self.chunks.len() }
    }

    /// Calls `piece` with the parts of the array of `len` bytes that begins in chunk `first`, until
    /// it returns false. Errors: the chain of chunks is broken.
    pub fn array(
        &self,
        first: u16,
        len: usize,
        mut piece: impl FnMut(&'a [u8]) -> bool,
    ) -> Result<()> {
        let broken = |chunk| bounds("array chain", chunk, self.buckets.len());
        if array_chunks(len) > self.chunks.len() {
            return Err(broken(first));
        }
        let (mut at, mut left) = (first, len);
        while left > 0 {
            let chunk = self.chunks.get(usize::from(at)).filter(|c| c.kind == CHUNK_ARRAY);
            let chunk = chunk.ok_or_else(|| broken(at))?;
            let part = chunk.bytes.get(..left.min(ARRAY_BYTES)).unwrap_or_default();
            if !piece(part) {
                break;
            }
            left -= part.len();
            at = chunk.next.get();
        }
        Ok(())
    }

    /// The array of `len` bytes that begins in chunk `first`.
    pub fn array_bytes(&self, first: u16, len: usize) -> Result<Vec<u8>> {
        // The chunks bound what a hostile length can make us reserve.
        let mut bytes = Vec::with_capacity(len.min(self.chunks.len() * ARRAY_BYTES));
        self.array(first, len, |part| {
            bytes.extend_from_slice(part);
            true
        })?;
        Ok(bytes)
    }

    /// Is `key` the name of `entry`?
    pub fn is_named(&self, entry: &EntryChunk, key: Key<'_>) -> Result<bool> {
        let first = entry.name_chunk.get();
        match key {
            Key::Name(name) => {
                if usize::from(entry.name_ints.get()) != name.len() + 1 {
                    return Ok(false);
                }
                let mut rest = name;
                let mut same = true;
                self.array(first, name.len() + 1, |part| {
                    let (head, tail) = rest.split_at(part.len().min(rest.len()));
                    same = part.strip_prefix(head).is_some_and(|end| matches!(end, [] | [0]));
                    rest = tail;
                    same
                })?;
                Ok(same)
            }
            Key::Words(words) => {
                if usize::from(entry.name_ints.get()) != words.len() {
                    return Ok(false);
                }
                Ok(self.array_bytes(first, words.len() * 8)? == key.stored())
            }
        }
    }

    /// The entry with this key, and its chunk. `hash` is the key's.
    pub fn find(&self, hash: u64, key: Key<'_>) -> Result<Option<(u16, &'a EntryChunk)>> {
        for link in self.chain(self.bucket(hash)) {
            let (chunk, entry) = link?;
            if entry.hash.get() == hash && self.is_named(entry, key)? {
                return Ok(Some((chunk, entry)));
            }
        }
        Ok(None)
    }

    /// The value of an entry. Errors: it cannot be, or is larger than [`VALUE_MAX`].
    pub fn value(&self, entry: &EntryChunk) -> Result<Value> {
        let int_size = entry.int_size;
        if !matches!(int_size, 1 | 2 | 4 | 8) {
            let expected = "1, 2, 4 or 8";
            let seen = int_size.into();
            return Err(FormatError::Field { what: WHAT, field: "integer size", seen, expected });
        }
        if int_size == 8 && entry.value_ints.get() == 1 {
            // By far the most usual: no allocation.
            let mut word = 0;
            self.array(entry.value_chunk.get(), 8, |part| {
                word = part.first_chunk().map_or(0, |b| u64::from_be_bytes(*b));
                true
            })?;
            return Ok(Value::u64(word));
        }
        let first = entry.value_chunk.get();
        if entry.value_len() > VALUE_MAX {
            return Err(bounds("length of the value", first, self.buckets.len()));
        }
        let bytes = self.array_bytes(first, entry.value_len())?;
        Ok(Value::from_stored(int_size, bytes))
    }

    /// The name of an entry as [`Entry::name`] has it. Errors: it cannot be, or is longer than
    /// [`NAME_MAX`].
    pub fn name(&self, entry: &EntryChunk, flags: u64) -> Result<Vec<u8>> {
        let first = entry.name_chunk.get();
        if usize::from(entry.name_ints.get()) > NAME_MAX + 1 {
            return Err(bounds("length of the name", first, self.buckets.len()));
        }
        let mut name = self.array_bytes(first, entry.name_len(flags))?;
        if flags & FatFlags::UINT64_KEY == 0 && name.last() == Some(&0) {
            name.pop();
        }
        Ok(name)
    }

    /// Chunks of all entries, in order of (hash, cd). Errors: a chain is broken, or the entries
    /// together would take more chunks than there are.
    pub fn sorted(&self, flags: u64) -> Result<Vec<u16>> {
        let mut found =
            Vec::with_capacity(self.chunks.len().min(self.head.entry_count.get().into()));
        let mut left = self.chunks.len();
        for bucket in 0..self.buckets.len() {
            for link in self.chain(bucket) {
                let (chunk, entry) = link?;
                let taken = entry.chunks(flags);
                left = left
                    .checked_sub(taken)
                    .ok_or_else(|| bounds("entries", chunk, self.buckets.len()))?;
                found.push((entry.hash.get(), entry.cd.get(), chunk));
            }
        }
        found.sort_unstable();
        Ok(found.into_iter().map(|(_, _, chunk)| chunk).collect())
    }

    /// Everything about the entry in chunk `chunk`.
    pub fn read(&self, chunk: u16, flags: u64) -> Result<Entry> {
        let entry = self.entry(chunk)?;
        Ok(Entry {
            name: self.name(entry, flags)?,
            value: self.value(entry)?,
            hash: entry.hash.get(),
            cd: entry.cd.get(),
        })
    }
}

/// The bucket of a hash in a leaf with `buckets` buckets (a power of two).
pub(super) fn bucket(hash: u64, buckets: usize, prefix_len: u16) -> usize {
    let shift = 64 - buckets.ilog2() - u32::from(prefix_len);
    (hash >> shift) as usize & (buckets - 1)
}

/// The entries of one bucket.
pub struct Chain<'a> {
    leaf: Leaf<'a>,
    next: u16,
    steps: usize,
}

impl<'a> Iterator for Chain<'a> {
    type Item = Result<(u16, &'a EntryChunk)>;

    fn next(&mut self) -> Option<Self::Item> {
        if self.next == CHAIN_END {
            return None;
        }
        let chunk = std::mem::replace(&mut self.next, CHAIN_END);
        let Some(steps) = self.steps.checked_sub(1) else {
            return Some(Err(bounds("hash chain without end", chunk, self.leaf.buckets.len())));
        };
        self.steps = steps;
        Some(self.leaf.entry(chunk).map(|entry| {
            self.next = entry.next.get();
            (chunk, entry)
        }))
    }
}

#[cfg(test)]
mod tests;
