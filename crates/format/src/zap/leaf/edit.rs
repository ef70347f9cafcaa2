//! Changing a leaf: insert, replace a value, remove, split.
//!
//! Nothing changes if an operation fails: chunks are marked as they are taken, so a free list or
//! an array that runs in a circle meets its own mark, and the marks are taken back.

use zerocopy::FromBytes;
use zerocopy::little_endian::{U16, U32, U64};

use super::*;

/// A leaf, to change.
pub struct LeafMut<'a> {
    head: &'a mut LeafHeader,
    buckets: &'a mut [U16],
    chunks: &'a mut [Chunk],
}

/// What became of an insertion or a replacement.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Outcome {
    /// It is done.
    Done,
    /// There are too few free chunks; nothing was changed. Split the leaf and try again.
    Full,
}

/// The parts of an entry as they are stored, apart from where.
#[derive(Clone, Copy, Debug)]
pub struct Stored<'a> {
    /// The hash, left-aligned.
    pub hash: u64,
    /// Collision number.
    pub cd: u32,
    /// What it is found by.
    pub key: Key<'a>,
    /// Bytes of each integer of the value.
    pub int_size: u8,
    /// The integers, big-endian.
    pub value: &'a [u8],
}

impl Stored<'_> {
    /// Chunks that this entry takes.
    pub fn chunks(&self) -> usize {
        1 + array_chunks(self.key.stored_len()) + array_chunks(self.value.len())
    }
}

impl<'a> LeafMut<'a> {
    /// The leaf in a block.
    pub fn new(block: &'a mut [u8]) -> Result<LeafMut<'a>> {
        let leaf = Self::parts(block)?;
        check_header(leaf.head)?;
        Ok(leaf)
    }

    fn parts(block: &'a mut [u8]) -> Result<LeafMut<'a>> {
        let bs = block_shift(block)?;
        let have = block.len() as u64;
        let short = FormatError::Short { what: WHAT, needed: 48, have };
        let parts = LeafHeader::mut_from_prefix(block).ok().and_then(|(head, rest)| {
            let (buckets, rest) =
                <[U16]>::mut_from_prefix_with_elems(rest, 1 << bucket_shift(bs)).ok()?;
            let (chunks, _) = <[Chunk]>::mut_from_prefix_with_elems(rest, chunk_count(bs)).ok()?;
            Some(LeafMut { head, buckets, chunks })
        });
        parts.ok_or(short)
    }

    /// Makes a block, all of it, an empty leaf. `normflags` are those of its ZAP.
    pub fn format(
        block: &'a mut [u8],
        prefix: u64,
        prefix_len: u16,
        normflags: u64,
    ) -> Result<LeafMut<'a>> {
        block.fill(0);
        let leaf = Self::parts(block)?;
        leaf.head.kind.set(KIND_LEAF);
        leaf.head.magic.set(LEAF_MAGIC);
        leaf.head.prefix.set(prefix);
        leaf.head.prefix_len.set(prefix_len);
        leaf.head.free_count.set(leaf.chunks.len() as u16);
        leaf.head.flags = if normflags != 0 { LEAF_CD_SORTED } else { 0 };
        check_header(leaf.head)?;
        leaf.buckets.fill(U16::new(CHAIN_END));
        let last = leaf.chunks.len() - 1;
        for (i, chunk) in leaf.chunks.iter_mut().enumerate() {
            chunk.kind = CHUNK_FREE;
            chunk.next.set(if i == last { CHAIN_END } else { i as u16 + 1 });
        }
        Ok(leaf)
    }

    /// The leaf, to read.
    pub fn view(&self) -> Leaf<'_> {
        Leaf { head: self.head, buckets: self.buckets, chunks: self.chunks }
    }

    /// Inserts an entry; that there is none of its key, and that its cd is free, is the caller's
    /// to see to ([`Leaf::find`], [`Leaf::free_cd`]).
    pub fn insert(&mut self, entry: &Stored<'_>) -> Result<Outcome> {
        if !self.view().owns(entry.hash) {
            let expected = "one of the leaf's prefix";
            let seen = entry.hash;
            return Err(FormatError::Field { what: WHAT, field: "hash", seen, expected });
        }
        let name_ints = match entry.key {
            Key::Name(name) => name.len() + 1,
            Key::Words(words) => words.len(),
        };
        let value_ints = entry.value.len() / usize::from(entry.int_size.max(1));
        let (Ok(name_ints), Ok(value_ints)) = (u16::try_from(name_ints), u16::try_from(value_ints))
        else {
            let size = entry.value.len().max(entry.key.stored_len()) as u64;
            let field = "name or value";
            return Err(FormatError::TooLarge { what: WHAT, field, size, max: u16::MAX.into() });
        };
        let before = self.place(entry.hash, entry.cd)?;
        let Some(chunk) = self.take(entry.chunks())? else { return Ok(Outcome::Full) };
        let name_chunk = self.next_of(chunk);
        let after_name = self.fill_name(name_chunk, entry.key);
        let value_chunk = if entry.value.is_empty() { CHAIN_END } else { after_name };
        self.fill(value_chunk, entry.value);
        let parts = EntryChunk {
            kind: CHUNK_ENTRY,
            int_size: entry.int_size,
            next: U16::new(CHAIN_END),
            name_chunk: U16::new(name_chunk),
            name_ints: U16::new(name_ints),
            value_chunk: U16::new(value_chunk),
            value_ints: U16::new(value_ints),
            cd: U32::new(entry.cd),
            hash: U64::new(entry.hash),
        };
        self.set_entry(chunk, parts);
        self.link(chunk, entry.hash, before);
        self.head.entry_count.set(self.head.entry_count.get().saturating_add(1));
        Ok(Outcome::Done)
    }

    /// Replaces the value of the entry in chunk `chunk` by the big-endian integers `value`.
    pub fn replace(&mut self, chunk: u16, int_size: u8, value: &[u8]) -> Result<Outcome> {
        let mut entry = *self.view().entry(chunk)?;
        let size = value.len() / usize::from(int_size.max(1));
        let ints = u16::try_from(size).map_err(|_| FormatError::TooLarge {
            what: WHAT,
            field: "value",
            size: size as u64,
            max: u16::MAX.into(),
        })?;
        let old = array_chunks(entry.value_len());
        let new = array_chunks(value.len());
        let last = self.end_of(entry.value_chunk.get(), old)?;
        if new > old {
            let Some(more) = self.take(new - old)? else { return Ok(Outcome::Full) };
            match last {
                Some(last) => self.set_next(last, more),
                None => entry.value_chunk.set(more),
            }
        } else if new < old {
            // The chunks at the end go; the chain was seen to be whole.
            let (keep, rest) = match new.checked_sub(1) {
                None => (None, entry.value_chunk.get()),
                Some(steps) => {
                    let keep = (0..steps).fold(entry.value_chunk.get(), |at, _| self.next_of(at));
                    (Some(keep), self.next_of(keep))
                }
            };
            self.give_back(rest)?;
            match keep {
                Some(keep) => self.set_next(keep, CHAIN_END),
                None => entry.value_chunk.set(CHAIN_END),
            }
        }
        self.fill(entry.value_chunk.get(), value);
        entry.int_size = int_size;
        entry.value_ints.set(ints);
        self.set_entry(chunk, entry);
        Ok(Outcome::Done)
    }

    /// Removes the entry in chunk `chunk`.
    pub fn remove(&mut self, chunk: u16) -> Result<()> {
        let entry = *self.view().entry(chunk)?;
        let bucket = self.view().bucket(entry.hash.get());
        let mut before = None;
        let mut found = false;
        for link in self.view().chain(bucket) {
            let (at, _) = link?;
            if at == chunk {
                found = true;
                break;
            }
            before = Some(at);
        }
        if !found {
            return Err(bounds("entry outside its chain", chunk, self.buckets.len()));
        }
        // The value first: if the name then turns out to be broken, it is put back.
        let (name, value) = (entry.name_chunk.get(), entry.value_chunk.get());
        let values = self.mark(value, None, CHUNK_ARRAY, CHUNK_FREE)?;
        if let Err(error) = self.mark(name, None, CHUNK_ARRAY, CHUNK_FREE) {
            self.unmark(value, values, CHUNK_ARRAY);
            return Err(error);
        }
        self.release(name);
        self.release(value);
        match before {
            Some(before) => {
                if let Some(parts) = self.entry_mut(before) {
                    parts.next = entry.next;
                }
            }
            None => {
                if let Some(first) = self.buckets.get_mut(bucket) {
                    *first = entry.next;
                }
            }
        }
        self.set_next(chunk, CHAIN_END);
        self.release(chunk);
        self.head.entry_count.set(self.head.entry_count.get().saturating_sub(1));
        Ok(())
    }

    /// Takes `count` chunks off the free list, at least one: the first of them, linked to the
    /// others, the last linked to nothing. `None`: there are not so many.
    fn take(&mut self, count: usize) -> Result<Option<u16>> {
        let free = usize::from(self.head.free_count.get());
        if count > free {
            return Ok(None);
        }
        let first = self.head.free_list.get();
        self.mark(first, Some(count), CHUNK_FREE, CHUNK_ARRAY)?;
        let last = (1..count).fold(first, |at, _| self.next_of(at));
        let rest = self.next_of(last);
        self.set_next(last, CHAIN_END);
        self.head.free_list.set(rest);
        self.head.free_count.set((free - count) as u16);
        Ok(Some(first))
    }

    /// Puts the array that begins in `first` on the free list.
    fn give_back(&mut self, first: u16) -> Result<()> {
        self.mark(first, None, CHUNK_ARRAY, CHUNK_FREE)?;
        self.release(first);
        Ok(())
    }

    /// Gives each chunk of a chain the type `to`, if all have type `from`: `count` chunks, or all
    /// up to the end. Returns their number. On an error nothing is changed.
    fn mark(&mut self, first: u16, count: Option<usize>, from: u8, to: u8) -> Result<usize> {
        let mut at = first;
        let mut done = 0;
        while count.map_or(at != CHAIN_END, |count| done < count) {
            match self.chunks.get_mut(usize::from(at)) {
                Some(chunk) if chunk.kind == from => {
                    chunk.kind = to;
                    at = chunk.next.get();
                    done += 1;
                }
                _ => {
                    self.unmark(first, done, from);
                    let field = if from == CHUNK_FREE { "free list" } else { "array chain" };
                    return Err(bounds(field, at, self.buckets.len()));
                }
            }
        }
        Ok(done)
    }

    /// Gives the first `count` chunks of a chain the type `kind`.
    fn unmark(&mut self, first: u16, count: usize, kind: u8) {
        let mut at = first;
        for _ in 0..count {
            if let Some(chunk) = self.chunks.get_mut(usize::from(at)) {
                chunk.kind = kind;
                at = chunk.next.get();
            }
        }
    }

    /// Puts a chain of chunks, up to its end, in front of the free list one by one, emptied.
    fn release(&mut self, first: u16) {
        let mut at = first;
        while let Some(chunk) = self.chunks.get_mut(usize::from(at)) {
            let next = chunk.next.get();
            *chunk = Chunk { kind: CHUNK_FREE, bytes: [0; ARRAY_BYTES], next: self.head.free_list };
            self.head.free_list.set(at);
            self.head.free_count.set(self.head.free_count.get().saturating_add(1));
            at = next;
        }
    }

    /// The last of the `count` chunks of an array, if there is one. Errors: it has not as many.
    fn end_of(&self, first: u16, count: usize) -> Result<Option<u16>> {
        let mut at = first;
        let mut last = None;
        for _ in 0..count {
            let chunk = self.chunks.get(usize::from(at)).filter(|c| c.kind == CHUNK_ARRAY);
            let chunk = chunk.ok_or_else(|| bounds("array chain", at, self.buckets.len()))?;
            last = Some(at);
            at = chunk.next.get();
        }
        if at != CHAIN_END {
            return Err(bounds("array chain", at, self.buckets.len()));
        }
        Ok(last)
    }

    fn next_of(&self, chunk: u16) -> u16 {
        self.chunks.get(usize::from(chunk)).map_or(CHAIN_END, |c| c.next.get())
    }

    fn set_next(&mut self, chunk: u16, next: u16) {
        if let Some(chunk) = self.chunks.get_mut(usize::from(chunk)) {
            chunk.next.set(next);
        }
    }

    fn entry_mut(&mut self, chunk: u16) -> Option<&mut EntryChunk> {
        self.chunks.get_mut(usize::from(chunk)).map(|c| transmute_mut!(c))
    }

    fn set_entry(&mut self, chunk: u16, parts: EntryChunk) {
        if let Some(entry) = self.entry_mut(chunk) {
            *entry = parts;
        }
    }

    /// Fills a chain of chunks with `bytes` and ends it; returns the chunk that came after.
    fn fill(&mut self, first: u16, bytes: &[u8]) -> u16 {
        let mut at = first;
        let mut pieces = bytes.chunks(ARRAY_BYTES).peekable();
        while let Some(piece) = pieces.next() {
            let Some(chunk) = self.chunks.get_mut(usize::from(at)) else { break };
            chunk.kind = CHUNK_ARRAY;
            at = chunk.next.get();
            for (to, from) in chunk.bytes.iter_mut().zip(piece.iter().chain(std::iter::repeat(&0)))
            {
                *to = *from;
            }
            if pieces.peek().is_none() {
                chunk.next.set(CHAIN_END);
            }
        }
        at
    }

    /// Fills a chain of chunks with a key and ends it; returns the chunk that came after.
    fn fill_name(&mut self, first: u16, key: Key<'_>) -> u16 {
        let mut stored = [0; NAME_MAX + 1];
        match key {
            Key::Name(name) => match stored.get_mut(..name.len() + 1) {
                Some(bytes) => {
                    bytes.get_mut(..name.len()).unwrap_or_default().copy_from_slice(name);
                    self.fill(first, bytes)
                }
                None => self.fill(first, &key.stored()),
            },
            Key::Words(_) => self.fill(first, &key.stored()),
        }
    }

    /// The entry after which one of this hash and cd goes: the last before any with a higher cd.
    fn place(&self, hash: u64, cd: u32) -> Result<Option<u16>> {
        let view = self.view();
        let mut before = None;
        let mut passed = false;
        // To the end, so that a chain without one is seen before anything is changed.
        for link in view.chain(view.bucket(hash)) {
            let (at, entry) = link?;
            passed |= entry.cd.get() > cd;
            if !passed {
                before = Some(at);
            }
        }
        Ok(before)
    }

    /// Puts the entry in chunk `chunk` into its bucket after `before`, or at its beginning.
    fn link(&mut self, chunk: u16, hash: u64, before: Option<u16>) {
        let bucket = self.view().bucket(hash);
        let this = U16::new(chunk);
        let next = match before {
            None => self.buckets.get_mut(bucket).map(|first| std::mem::replace(first, this)),
            Some(at) => self.entry_mut(at).map(|e| std::mem::replace(&mut e.next, this)),
        };
        if let (Some(entry), Some(next)) = (self.entry_mut(chunk), next) {
            entry.next = next;
        }
    }
}

impl Leaf<'_> {
    /// The smallest collision number that no entry of this hash has.
    pub fn free_cd(&self, hash: u64) -> Result<u32> {
        let mut cd = 0;
        loop {
            let mut taken = false;
            for link in self.chain(self.bucket(hash)) {
                let (_, entry) = link?;
                if entry.hash.get() == hash && entry.cd.get() == cd {
                    cd += 1;
                    taken = true;
                }
            }
            if !taken {
                return Ok(cd);
            }
        }
    }

    /// The shortest prefix of `hash` so that a leaf of it has room for its share of the entries of
    /// this leaf, and for a new one of this hash that takes `chunks` chunks. `None`: even the
    /// entries of this very hash leave no room.
    pub fn split_len(&self, hash: u64, chunks: usize, flags: u64) -> Result<Option<u32>> {
        // Chunks of the entries whose hashes have exactly so many first bits in common with it.
        let mut common = [0usize; 65];
        for chunk in self.sorted(flags)? {
            let entry = self.entry(chunk)?;
            let bits = (entry.hash.get() ^ hash).leading_zeros() as usize;
            if let Some(sum) = common.get_mut(bits) {
                *sum += entry.chunks(flags);
            }
        }
        let mut taken = chunks;
        let mut len = None;
        for (bits, with) in common.iter().enumerate().rev() {
            taken += with;
            if taken > self.chunks.len() {
                break;
            }
            len = Some(bits as u32);
        }
        Ok(len)
    }

    /// Distributes the entries over two new leaves of prefixes one bit longer.
    ///
    /// `low` and `high` are blocks of the size of this one and are wholly written. Entries keep
    /// their collision numbers.
    pub fn split(&self, normflags: u64, flags: u64, low: &mut [u8], high: &mut [u8]) -> Result<()> {
        let prefix = self.head.prefix.get() << 1;
        let len = self.head.prefix_len.get() + 1;
        let mut low = LeafMut::format(low, prefix, len, normflags)?;
        let mut high = LeafMut::format(high, prefix | 1, len, normflags)?;
        for chunk in self.sorted(flags)? {
            let entry = self.entry(chunk)?;
            let hash = entry.hash.get();
            let name = self.array_bytes(entry.name_chunk.get(), entry.name_len(flags))?;
            let value = self.array_bytes(entry.value_chunk.get(), entry.value_len())?;
            let words: Vec<u64>;
            let key = if flags & FatFlags::UINT64_KEY != 0 {
                words = name.as_chunks().0.iter().map(|w| u64::from_be_bytes(*w)).collect();
                Key::Words(&words)
            } else {
                Key::Name(name.strip_suffix(&[0]).unwrap_or(&name))
            };
            let to = if high.view().owns(hash) { &mut high } else { &mut low };
            let (int_size, cd) = (entry.int_size, entry.cd.get());
            if to.insert(&Stored { hash, cd, key, int_size, value: &value })? == Outcome::Full {
                return Err(bounds("entries", chunk, self.buckets.len()));
            }
        }
        Ok(())
    }
}
