//! Fat ZAPs: one leaf per lookup; splits and a larger table when a leaf is full.

use format::zap::leaf::{LeafMut, Outcome, Stored, array_chunks, chunk_count};
use format::zap::{FatFlags, FatHeader, Key, Kind, Leaf, Micro, VALUE_MAX, Value};
use format::zap::{header, zap_hash};

use super::table::{Table, change_header, check_leaf, write_header};
use super::{ZapBlocks, ZapError, modify, read, touch};

/// The longest prefix of a leaf that a fat ZAP of usual blocks always allows, however small it is
/// ([`Table::shift_max`]).
pub(super) const PREFIX_BITS: u32 = 18;

/// What a ZAP is, for one key.
pub(super) enum Opened {
    Micro,
    Fat(Fat),
    /// Fat, and the hash of the key is not known.
    Unknown,
}

/// A fat ZAP, and the leaf for one hash.
#[derive(Clone, Copy, Debug)]
pub(super) struct Fat {
    table: Table,
    hash: u64,
    leaf: u64,
}

/// Makes an empty fat ZAP.
pub(super) fn format<B: ZapBlocks>(
    blocks: &mut B,
    bs: u32,
    salt: u64,
    normflags: u64,
    flags: u64,
) -> Result<(), B::Error> {
    blocks.set_block_size(1 << bs)?;
    touch(blocks, 0)?;
    modify(blocks, 1, |block| LeafMut::format(block, 0, 0, normflags).map(|_| ()))?;
    let head = FatHeader::new(bs, salt, normflags, flags);
    blocks.modify(0, |block| write_header(block, &head, bs))
}

/// Salt, normflags and flags of a ZAP.
pub(super) fn salt_and_normflags<B: ZapBlocks>(blocks: &B) -> Result<(u64, u64, u64), B::Error> {
    read(blocks, 0, |block| match format::zap::kind(block)? {
        Kind::Micro => {
            let head = Micro::new(block)?.head;
            Ok((head.salt.get(), head.normflags.get(), 0))
        }
        Kind::Fat => {
            let head = FatHeader::parse(block)?;
            Ok((head.salt.get(), head.normflags.get(), head.flags.get()))
        }
    })
}

/// Looks at block 0, and finds the leaf for a key.
pub(super) fn open<B: ZapBlocks>(blocks: &B, key: Key<'_>) -> Result<Opened, B::Error> {
    enum Found {
        Micro,
        Unknown,
        OtherKeys,
        /// The leaf, if its pointer is in block 0.
        Hash(Table, u64, Option<u64>),
    }
    let max_block = blocks.max_block();
    let found = read(blocks, 0, |block| {
        if format::zap::kind(block)? == Kind::Micro {
            return Ok(Found::Micro);
        }
        let head = FatHeader::parse(block)?;
        let table = Table { head, bs: header::block_shift(block)? };
        let flags = head.flags.get();
        if (flags & FatFlags::UINT64_KEY != 0) != matches!(key, Key::Words(_)) {
            return Ok(Found::OtherKeys);
        }
        let Some(hash) = zap_hash(head.salt.get(), head.normflags.get(), flags, key) else {
            return Ok(Found::Unknown);
        };
        let (at, place) = head.pointer_at(table.bs, head.pointer_index(hash));
        let leaf = match at {
            0 => Some(check_leaf(header::pointer(block, place)?, max_block)?),
            _ => None,
        };
        Ok(Found::Hash(table, hash, leaf))
    })?;
    match found {
        Found::Micro => Ok(Opened::Micro),
        Found::Unknown => Ok(Opened::Unknown),
        Found::OtherKeys => Err(blocks.error(ZapError::KeyKind)),
        Found::Hash(table, hash, Some(leaf)) => Ok(Opened::Fat(Fat { table, hash, leaf })),
        Found::Hash(table, hash, None) => {
            let leaf = table.leaf(blocks, table.head.pointer_index(hash))?;
            Ok(Opened::Fat(Fat { table, hash, leaf }))
        }
    }
}

/// The leaf for a hash.
pub(super) fn at_hash<B: ZapBlocks>(blocks: &B, hash: u64) -> Result<Fat, B::Error> {
    let table = read(blocks, 0, |block| {
        Ok(Table { head: FatHeader::parse(block)?, bs: header::block_shift(block)? })
    })?;
    let leaf = table.leaf(blocks, table.head.pointer_index(hash))?;
    Ok(Fat { table, hash, leaf })
}

/// What an attempt on a leaf came to.
enum Attempt {
    Done,
    Exists,
    Missing,
    /// The leaf must be split; the entry would take so many chunks in all.
    Full(usize),
}

impl Fat {
    pub(super) fn lookup<B: ZapBlocks>(
        &self,
        blocks: &B,
        key: Key<'_>,
    ) -> Result<Option<Value>, B::Error> {
        read(blocks, self.leaf, |block| {
            let leaf = Leaf::new(block)?;
            let found = leaf.find(self.hash, key)?;
            found.map(|(_, entry)| leaf.value(entry)).transpose()
        })
    }

    /// Adds an entry; false if there is one.
    pub(super) fn add<B: ZapBlocks>(
        &mut self,
        blocks: &mut B,
        key: Key<'_>,
        value: &Value,
    ) -> Result<bool, B::Error> {
        self.check_value(blocks, key, value)?;
        self.insert(blocks, key, value, None)
    }

    /// Adds an entry with a collision number of its own or a given one.
    pub(super) fn insert<B: ZapBlocks>(
        &mut self,
        blocks: &mut B,
        key: Key<'_>,
        value: &Value,
        cd: Option<u32>,
    ) -> Result<bool, B::Error> {
        touch(blocks, 0)?;
        loop {
            let hash = self.hash;
            let attempt = modify(blocks, self.leaf, |block| {
                let mut leaf = LeafMut::new(block)?;
                if leaf.view().find(hash, key)?.is_some() {
                    return Ok(Attempt::Exists);
                }
                let cd = cd.map_or_else(|| leaf.view().free_cd(hash), Ok)?;
                let int_size = value.int_size();
                value.with_stored(|value| {
                    let entry = Stored { hash, cd, key, int_size, value };
                    Ok(match leaf.insert(&entry)? {
                        Outcome::Done => Attempt::Done,
                        Outcome::Full => Attempt::Full(entry.chunks()),
                    })
                })
            })?;
            match attempt {
                Attempt::Full(chunks) => self.split(blocks, chunks)?,
                Attempt::Done => {
                    change_header(blocks, |h| {
                        h.entry_count.set(h.entry_count.get().saturating_add(1));
                    })?;
                    return Ok(true);
                }
                Attempt::Exists | Attempt::Missing => return Ok(false),
            }
        }
    }

    /// Replaces the value of an entry, or adds one.
    pub(super) fn update<B: ZapBlocks>(
        &mut self,
        blocks: &mut B,
        key: Key<'_>,
        value: &Value,
    ) -> Result<(), B::Error> {
        self.check_value(blocks, key, value)?;
        loop {
            let (hash, flags) = (self.hash, self.table.head.flags.get());
            let attempt = modify(blocks, self.leaf, |block| {
                let mut leaf = LeafMut::new(block)?;
                let Some((chunk, entry)) = leaf.view().find(hash, key)? else {
                    return Ok(Attempt::Missing);
                };
                let old = entry.chunks(flags) - array_chunks(entry.value_len());
                value.with_stored(|stored| {
                    Ok(match leaf.replace(chunk, value.int_size(), stored)? {
                        Outcome::Done => Attempt::Done,
                        Outcome::Full => Attempt::Full(old + array_chunks(stored.len())),
                    })
                })
            })?;
            match attempt {
                Attempt::Full(chunks) => self.split(blocks, chunks)?,
                Attempt::Missing => return self.insert(blocks, key, value, None).map(|_| ()),
                Attempt::Done | Attempt::Exists => return Ok(()),
            }
        }
    }

    /// Removes an entry; false if there is none.
    pub(super) fn remove<B: ZapBlocks>(
        &mut self,
        blocks: &mut B,
        key: Key<'_>,
    ) -> Result<bool, B::Error> {
        let hash = self.hash;
        let found = read(blocks, self.leaf, |block| {
            Ok(Leaf::new(block)?.find(hash, key)?.map(|(chunk, _)| chunk))
        })?;
        let Some(chunk) = found else { return Ok(false) };
        touch(blocks, 0)?;
        modify(blocks, self.leaf, |block| LeafMut::new(block)?.remove(chunk))?;
        change_header(blocks, |h| h.entry_count.set(h.entry_count.get().saturating_sub(1)))?;
        Ok(true)
    }

    /// Refuses values that no leaf of this ZAP could hold.
    fn check_value<B: ZapBlocks>(
        &self,
        blocks: &B,
        key: Key<'_>,
        value: &Value,
    ) -> Result<(), B::Error> {
        let len = value.with_stored(<[u8]>::len);
        let chunks = chunk_count(self.table.bs);
        let room = chunks.saturating_sub(1 + array_chunks(key.stored_len()));
        let max = VALUE_MAX.min(room * format::zap::leaf::ARRAY_BYTES);
        if len > max {
            return Err(blocks.error(ZapError::ValueTooLarge { len, max }));
        }
        Ok(())
    }

    /// Splits the leaf in two, with a larger table if it needs one, so that sooner or later an entry
    /// of `chunks` chunks finds room; then this is the half that owns the hash.
    fn split<B: ZapBlocks>(&mut self, blocks: &mut B, chunks: usize) -> Result<(), B::Error> {
        let (hash, flags) = (self.hash, self.table.head.flags.get());
        let (prefix, len, needed) = read(blocks, self.leaf, |block| {
            let leaf = Leaf::new(block)?;
            let len = u64::from(leaf.head.prefix_len.get());
            Ok((leaf.head.prefix.get(), len, leaf.split_len(hash, chunks, flags)?))
        })?;
        let limit = self.table.shift_max();
        match needed {
            Some(needed) if u64::from(needed) <= limit && len < limit => {}
            _ => return Err(blocks.error(ZapError::Full)),
        }
        let shift = self.table.head.table_shift.get();
        let index = self.table.head.pointer_index(hash);
        if shift.checked_sub(len).is_none_or(|bits| index >> bits != prefix) {
            let (what, field) = ("zap leaf", "prefix");
            let expected = "that of its pointers";
            let error = format::FormatError::Field { what, field, seen: prefix, expected };
            return Err(blocks.error(error.in_block(self.leaf).into()));
        }
        if shift == len || self.table.head.table_next.get() != 0 {
            self.table.grow(blocks)?;
        }
        let shift = self.table.head.table_shift.get();
        let sibling = self.table.free_block(blocks)?;
        let size = 1usize << self.table.bs;
        let (mut low, mut high) = (vec![0; size], vec![0; size]);
        let normflags = self.table.head.normflags.get();
        read(blocks, self.leaf, |block| {
            Leaf::new(block)?.split(normflags, flags, &mut low, &mut high)
        })?;
        // The higher half of the leaf's pointers.
        let count = 1u64 << (shift - len - 1);
        let first = (prefix * 2 + 1) * count;
        touch(blocks, 0)?;
        touch(blocks, self.leaf)?;
        self.table.touch(blocks, first, count)?;
        blocks.modify(sibling, |block| block.copy_from_slice(&high))?;
        blocks.modify(self.leaf, |block| block.copy_from_slice(&low))?;
        self.table.redirect(blocks, first, count, sibling)?;
        let head = &mut self.table.head;
        head.free_block.set(sibling + 1);
        head.leaf_count.set(head.leaf_count.get().saturating_add(1));
        let head = *head;
        change_header(blocks, |to| {
            to.free_block = head.free_block;
            to.leaf_count = head.leaf_count;
        })?;
        if self.table.head.pointer_index(hash) >= first {
            self.leaf = sibling;
        }
        Ok(())
    }
}
