//! The judge of a ZAP: finds everything in it that is not as it must be.
//!
//! OpenZFS trusts the counts, chains and prefixes of a ZAP, and prints them without comparing; a
//! wrong one shows much later, as a lost name or a kernel that stops. So everything is recomputed
//! here from the entries themselves: hashes, buckets, collision numbers, free lists, counts, and
//! which leaf each pointer must name. FORMAT: sections 6 and 17.2.

use std::ops::Deref;

use super::header::{self, FatFlags, FatHeader, pointer};
use super::micro::{MICRO_BLOCK_MAX, Micro};
use super::{Key, Kind, NormFlags, kind, zap_hash};
use crate::FormatError;

mod leaf;

use leaf::{LeafPlace, check_leaf};

/// After so many findings a check ends: the ZAP is wreckage, and more would help nobody.
pub const FINDINGS_MAX: usize = 1000;
/// Largest collision number: a new entry gets the smallest that no other of its hash has, and no leaf has room for more
/// entries.
const CD_MAX: u32 = 0xffff;

/// Something wrong, and in which block of the object.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("block {block}: {problem}")]
pub struct Finding<E> {
    /// Number of the block.
    pub block: u64,
    /// What is wrong there.
    pub problem: Problem<E>,
}

/// What can be wrong. Names are given without their NUL.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
#[allow(missing_docs)] // the texts say it
pub enum Problem<E> {
    #[error("cannot be read: {0}")]
    Unreadable(E),
    #[error("{0}")]
    Malformed(FormatError),
    #[error("a micro zap of {blocks} blocks of {size} bytes, expected one of at most 131072")]
    MicroSize { blocks: u64, size: u64 },
    #[error("the salt is 0")]
    NoSalt,
    #[error("normflags are {seen:#x}, with bits that have no meaning")]
    NormFlags { seen: u64 },
    #[error("\"{}\" is not ended by a NUL", name.escape_ascii())]
    NameWithoutEnd { name: Vec<u8> },
    #[error("a name of {len} bytes or words, expected 1 to 255")]
    NameLength { len: usize },
    #[error("\"{}\" is there twice", name.escape_ascii())]
    Duplicate { name: Vec<u8> },
    #[error("two entries of hash {hash:x} have the collision number {cd}")]
    CollisionNumber { hash: u64, cd: u32 },
    #[error("\"{}\" has collision number {cd}, expected at most 65535", name.escape_ascii())]
    CollisionNumberTooLarge { name: Vec<u8>, cd: u32 },
    #[error("freeblk is {seen}, expected {expected}")]
    FreeBlock { seen: u64, expected: u64 },
    #[error(
        "the pointer table of {blocks} blocks from block {first} on goes beyond freeblk {free}"
    )]
    TableBeyond { first: u64, blocks: u64, free: u64 },
    #[error("zt_blks_copied is {copied}, expected at most {expected}")]
    TableCopied { copied: u64, expected: u64 },
    #[error("num_leafs is {seen}, expected {expected}")]
    LeafCount { seen: u64, expected: u64 },
    #[error("num_entries is {seen}, expected {expected}")]
    EntryCount { seen: u64, expected: u64 },
    #[error("pointer {index} names block {leaf}, which is no block for a leaf")]
    Pointer { index: u64, leaf: u64 },
    #[error("pointers {first} to {last} name this leaf, its prefix is {prefix:#x} of {len} bits")]
    Prefix { first: u64, last: u64, prefix: u64, len: u16 },
    #[error("the flag for sorted chains is {seen}, expected {expected}")]
    SortedFlag { seen: u8, expected: u8 },
    #[error("chunk {chunk} has type {kind}")]
    ChunkType { chunk: u16, kind: u8 },
    #[error("chunk {chunk} is used twice, at last by {by}")]
    ChunkShared { chunk: u16, by: &'static str },
    #[error("chunk {chunk} of {by} has type {kind}, expected {expected}")]
    ChunkKind { chunk: u16, by: &'static str, kind: u8, expected: u8 },
    #[error("{by} leads to chunk {chunk}, which is not there")]
    ChunkBeyond { chunk: u16, by: &'static str },
    #[error("{count} chunks are neither used nor free, the first is {first}")]
    ChunksLost { first: u16, count: usize },
    #[error("the array from chunk {first} on has {seen} chunks, expected {expected}")]
    ArrayChunks { first: u16, seen: usize, expected: usize },
    #[error("nfree is {seen}, expected {expected}")]
    ChunkFreeCount { seen: u64, expected: u64 },
    #[error("nentries is {seen}, expected {expected}")]
    LeafEntryCount { seen: u64, expected: u64 },
    #[error("\"{}\" has hash {seen:x}, expected {expected:x}", name.escape_ascii())]
    Hash { name: Vec<u8>, seen: u64, expected: u64 },
    #[error("hash {hash:x} is in bucket {seen}, expected {expected}")]
    Bucket { hash: u64, seen: usize, expected: usize },
    #[error("hash {hash:x} does not begin with the prefix {prefix:#x} of {len} bits")]
    ForeignHash { hash: u64, prefix: u64, len: u16 },
    #[error("bucket {bucket}: collision number {after} comes after {before}")]
    ChainOrder { bucket: usize, before: u32, after: u32 },
    #[error("\"{}\" has integers of {int_size} bytes", name.escape_ascii())]
    IntSize { name: Vec<u8>, int_size: u8 },
    #[error("\"{}\" has a value of {len} bytes, expected at most 8192", name.escape_ascii())]
    ValueLength { name: Vec<u8>, len: usize },
    #[error("and more: the check ended here")]
    More,
}

/// Where findings go.
pub(super) struct Findings<E> {
    list: Vec<Finding<E>>,
}

impl<E> Findings<E> {
    pub(super) fn add(&mut self, block: u64, problem: Problem<E>) {
        if self.list.len() < FINDINGS_MAX {
            self.list.push(Finding { block, problem });
        }
    }

    fn is_full(&self) -> bool {
        self.list.len() >= FINDINGS_MAX
    }

    fn done(mut self) -> Vec<Finding<E>> {
        if self.is_full() {
            self.list.push(Finding { block: 0, problem: Problem::More });
        }
        self.list
    }
}

/// Finds everything that is wrong with a ZAP, at most [`FINDINGS_MAX`] things.
///
/// `read` gives the block of a number; `max_block` is the highest block of the object.
pub fn check<F, B, E>(mut read: F, max_block: u64) -> Vec<Finding<E>>
where
    F: FnMut(u64) -> Result<B, E>,
    B: Deref<Target = [u8]>,
{
    let mut out = Findings { list: Vec::new() };
    match read(0) {
        Err(error) => out.add(0, Problem::Unreadable(error)),
        Ok(block0) => match kind(&block0) {
            Err(error) => out.add(0, Problem::Malformed(error)),
            Ok(Kind::Micro) => check_micro(&block0, max_block, &mut out),
            Ok(Kind::Fat) => check_fat(&mut read, &block0, max_block, &mut out),
        },
    }
    out.done()
}

fn check_common<E>(salt: u64, normflags: u64, out: &mut Findings<E>) {
    if salt == 0 {
        out.add(0, Problem::NoSalt);
    }
    if normflags & !NormFlags::KNOWN != 0 {
        out.add(0, Problem::NormFlags { seen: normflags });
    }
}

fn check_micro<E>(block: &[u8], max_block: u64, out: &mut Findings<E>) {
    if max_block > 0 || block.len() > MICRO_BLOCK_MAX {
        let blocks = max_block.saturating_add(1);
        out.add(0, Problem::MicroSize { blocks, size: block.len() as u64 });
    }
    let micro = match Micro::new(block) {
        Ok(micro) => micro,
        Err(error) => return out.add(0, Problem::Malformed(error)),
    };
    let (salt, normflags) = (micro.head.salt.get(), micro.head.normflags.get());
    check_common(salt, normflags, out);
    let mut hashes = Vec::new();
    let mut names = Vec::new();
    for (_, entry) in micro.used() {
        let name = entry.name();
        if name.len() == entry.name.len() {
            out.add(0, Problem::NameWithoutEnd { name: name.to_vec() });
        }
        let cd = entry.cd.get();
        if cd > CD_MAX {
            out.add(0, Problem::CollisionNumberTooLarge { name: name.to_vec(), cd });
        }
        names.push(name);
        if let Some(hash) = zap_hash(salt, normflags, 0, Key::Name(name)) {
            hashes.push((hash, cd));
        }
    }
    names.sort_unstable();
    hashes.sort_unstable();
    for name in repeated(&names) {
        out.add(0, Problem::Duplicate { name: name.to_vec() });
    }
    for &(hash, cd) in repeated(&hashes) {
        out.add(0, Problem::CollisionNumber { hash, cd });
    }
}

/// What is more than once in a sorted list, once each.
pub(super) fn repeated<T: PartialEq>(sorted: &[T]) -> impl Iterator<Item = &T> {
    sorted.chunk_by(|a, b| a == b).filter(|run| run.len() > 1).filter_map(<[T]>::first)
}

fn check_fat<F, B, E>(read: &mut F, block0: &[u8], max_block: u64, out: &mut Findings<E>)
where
    F: FnMut(u64) -> Result<B, E>,
    B: Deref<Target = [u8]>,
{
    let (head, bs) = match (FatHeader::parse(block0), header::block_shift(block0)) {
        (Ok(head), Ok(bs)) => (head, bs),
        (Err(error), _) | (_, Err(error)) => return out.add(0, Problem::Malformed(error)),
    };
    check_common(head.salt.get(), head.normflags.get(), out);
    let free = head.free_block.get();
    let (first, blocks) = (head.table_block.get(), head.table_blocks.get());
    let next = head.table_next.get();
    // While a new table is being filled, its last blocks may not have been written yet. And when OpenZFS takes
    // empty leaves away, the holes that they were may still be counted as blocks of the object.
    let expected = max_block.saturating_add(1);
    let is_hole = |block: &B| block.iter().all(|&byte| byte == 0);
    let in_use = free < expected && read(max_block).is_ok_and(|last| !is_hole(&last));
    if in_use || (next == 0 && free > expected) {
        out.add(0, Problem::FreeBlock { seen: free, expected });
    }
    let beyond = |first: u64, blocks| first.checked_add(blocks).is_none_or(|end| end > free);
    if blocks > 0 && beyond(first, blocks) {
        out.add(0, Problem::TableBeyond { first, blocks, free });
    }
    if next > 0 && beyond(next, blocks * 2) {
        out.add(0, Problem::TableBeyond { first: next, blocks: blocks * 2, free });
    }
    let copied = head.table_copied.get();
    let expected = if next == 0 { 0 } else { blocks };
    if copied > expected {
        out.add(0, Problem::TableCopied { copied, expected });
    }
    let total = check_leaves(read, block0, &head, bs, out);
    // What could not be read cannot be counted.
    if let Some(total) = total {
        let (leaves, entries) = (head.leaf_count.get(), head.entry_count.get());
        if leaves != total.leaves {
            out.add(0, Problem::LeafCount { seen: leaves, expected: total.leaves });
        }
        if entries != total.entries {
            out.add(0, Problem::EntryCount { seen: entries, expected: total.entries });
        }
    }
}

/// What the leaves hold together.
#[derive(Default)]
struct Total {
    leaves: u64,
    entries: u64,
}

/// A run of pointers that name one leaf.
struct Run {
    leaf: u64,
    first: u64,
    /// The pointer after the last.
    end: u64,
    /// Pointers before or after it could not be read.
    torn: bool,
}

/// Walks the pointer table and checks the leaf of each run of pointers; `None` if a part of the
/// table or a leaf could not be read.
fn check_leaves<F, B, E>(
    read: &mut F,
    block0: &[u8],
    head: &FatHeader,
    bs: u32,
    out: &mut Findings<E>,
) -> Option<Total>
where
    F: FnMut(u64) -> Result<B, E>,
    B: Deref<Target = [u8]>,
{
    let pointers = 1u64 << head.table_shift.get();
    let mut total = Total::default();
    let mut whole = true;
    let mut torn = false;
    let mut run: Option<Run> = None;
    let mut index = 0;
    while index < pointers && !out.is_full() {
        let (block, place) = head.pointer_at(bs, index);
        let words = (1u64 << (bs - 3)) - place as u64;
        let end = pointers.min(index + words);
        let table = match read_table(read, block) {
            Ok(table) => table,
            Err(error) => {
                out.add(block, Problem::Unreadable(error));
                whole = false;
                torn = true;
                let cut = run.take().map(|run| Run { torn, ..run });
                finish(read, head, bs, cut, &mut total, &mut whole, out);
                index = end;
                continue;
            }
        };
        let table: &[u8] = table.as_deref().unwrap_or(block0);
        // No leaf is at block 0. Of tables with nothing in them, such as holes are, there may be very many.
        if (index..end).all(|at| matches!(pointer(table, place + (at - index) as usize), Ok(0))) {
            finish(read, head, bs, run.take(), &mut total, &mut whole, out);
            out.add(block, Problem::Pointer { index, leaf: 0 });
            return None;
        }
        for at in index..end {
            let leaf = pointer(table, place + (at - index) as usize).unwrap_or(0);
            match &mut run {
                Some(run) if run.leaf == leaf => run.end = at + 1,
                _ => {
                    let next = Run { leaf, first: at, end: at + 1, torn };
                    torn = false;
                    finish(read, head, bs, run.replace(next), &mut total, &mut whole, out);
                }
            }
            if out.is_full() {
                return None;
            }
        }
        index = end;
    }
    finish(read, head, bs, run, &mut total, &mut whole, out);
    whole.then_some(total)
}

/// The block of an external table; nothing for block 0, where the table is embedded.
fn read_table<F, B, E>(read: &mut F, block: u64) -> Result<Option<B>, E>
where
    F: FnMut(u64) -> Result<B, E>,
{
    if block == 0 { Ok(None) } else { read(block).map(Some) }
}

/// Checks the leaf of a run of pointers.
fn finish<F, B, E>(
    read: &mut F,
    head: &FatHeader,
    bs: u32,
    run: Option<Run>,
    total: &mut Total,
    whole: &mut bool,
    out: &mut Findings<E>,
) where
    F: FnMut(u64) -> Result<B, E>,
    B: Deref<Target = [u8]>,
{
    let Some(Run { leaf, first, end, torn }) = run else { return };
    let tables = [
        (head.table_block.get(), head.table_blocks.get()),
        (head.table_next.get(), 2 * head.table_blocks.get()),
    ];
    let in_table =
        |&(at, blocks): &(u64, u64)| at > 0 && (at..at.saturating_add(blocks)).contains(&leaf);
    if leaf == 0 || leaf >= head.free_block.get() || tables.iter().any(in_table) {
        *whole = false;
        return out.add(0, Problem::Pointer { index: first, leaf });
    }
    let bytes = match read(leaf) {
        Ok(bytes) => bytes,
        Err(error) => {
            *whole = false;
            return out.add(leaf, Problem::Unreadable(error));
        }
    };
    let place = LeafPlace { block: leaf, bs, first, end, torn };
    match check_leaf(&bytes, head, &place, out) {
        Some(entries) => {
            total.leaves += 1;
            total.entries += entries;
        }
        None => *whole = false,
    }
}

/// Are the flags of a ZAP those of one whose keys are words?
pub(super) fn has_word_keys(head: &FatHeader) -> bool {
    head.flags.get() & FatFlags::UINT64_KEY != 0
}

/// What is wrong with a leaf that owns the one pointer `index`; for tests of leaves alone.
#[cfg(test)]
pub(super) fn leaf_findings(
    block: &[u8],
    head: &FatHeader,
    bs: u32,
    index: u64,
) -> Vec<Finding<()>> {
    let mut out = Findings { list: Vec::new() };
    let place = LeafPlace { block: 1, bs, first: index, end: index + 1, torn: false };
    check_leaf(block, head, &place, &mut out);
    out.done()
}
