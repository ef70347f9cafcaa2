//! Reading a ZAP through a closure that gives blocks: look up a name, list all entries.
//!
//! The reader needs no object and no cache: who has blocks, has a ZAP. Listing goes on after a
//! leaf that cannot be read, so that what is left of a damaged directory can be got back.

use std::ops::Deref;

use super::hash::zap_hash;
use super::header::{self, FatHeader, pointer};
use super::leaf::Leaf;
use super::micro::Micro;
use super::{Cursor, Entry, Key, Kind, Value, kind};
use crate::{FormatError, Result};

/// A ZAP to read.
///
/// `read` gives the block of a number, the whole of it, as an error or as bytes.
pub struct Reader<F, B> {
    read: F,
    block0: B,
    head: Head,
}

/// What block 0 says.
#[derive(Clone, Copy, Debug)]
enum Head {
    Micro { salt: u64, normflags: u64 },
    Fat { head: FatHeader, bs: u32 },
}

impl<F, B, E> Reader<F, B>
where
    F: FnMut(u64) -> std::result::Result<B, E>,
    B: Deref<Target = [u8]>,
    E: From<FormatError>,
{
    /// Reads block 0.
    pub fn open(mut read: F) -> std::result::Result<Self, E> {
        let block0 = read(0)?;
        let head = Self::head_of(&block0).map_err(|e| e.in_block(0))?;
        Ok(Reader { read, block0, head })
    }

    fn head_of(block0: &[u8]) -> Result<Head> {
        Ok(match kind(block0)? {
            Kind::Micro => {
                let head = Micro::new(block0)?.head;
                Head::Micro { salt: head.salt.get(), normflags: head.normflags.get() }
            }
            Kind::Fat => {
                let head = FatHeader::parse(block0)?;
                Head::Fat { head, bs: header::block_shift(block0)? }
            }
        })
    }

    /// Its form.
    pub fn kind(&self) -> Kind {
        match self.head {
            Head::Micro { .. } => Kind::Micro,
            Head::Fat { .. } => Kind::Fat,
        }
    }

    /// Seed of the hash.
    pub fn salt(&self) -> u64 {
        match self.head {
            Head::Micro { salt, .. } => salt,
            Head::Fat { head, .. } => head.salt.get(),
        }
    }

    /// [`super::NormFlags`].
    pub fn normflags(&self) -> u64 {
        match self.head {
            Head::Micro { normflags, .. } => normflags,
            Head::Fat { head, .. } => head.normflags.get(),
        }
    }

    /// [`super::FatFlags`], 0 for a micro ZAP.
    pub fn flags(&self) -> u64 {
        match self.head {
            Head::Micro { .. } => 0,
            Head::Fat { head, .. } => head.flags.get(),
        }
    }

    /// The header, if it is a fat ZAP.
    pub fn header(&self) -> Option<&FatHeader> {
        match &self.head {
            Head::Micro { .. } => None,
            Head::Fat { head, .. } => Some(head),
        }
    }

    /// Block 0.
    pub fn block0(&self) -> &[u8] {
        &self.block0
    }

    /// Number of entries, as the ZAP says itself.
    pub fn count(&self) -> std::result::Result<u64, E> {
        match self.head {
            Head::Micro { .. } => Ok(Micro::new(&self.block0)?.used().count() as u64),
            Head::Fat { head, .. } => Ok(head.entry_count.get()),
        }
    }

    /// The value of `key`, exactly as it is spelled.
    pub fn lookup<'k>(&mut self, key: impl Into<Key<'k>>) -> std::result::Result<Option<Value>, E> {
        let key = key.into();
        let Head::Fat { head, bs } = self.head else {
            let Key::Name(name) = key else { return Ok(None) };
            let found = Micro::new(&self.block0)?.find(name);
            return Ok(found.map(|(_, entry)| Value::u64(entry.value.get())));
        };
        let Some(hash) = zap_hash(self.salt(), self.normflags(), self.flags(), key) else {
            // Where the name is in order of hashes cannot be told: look at all.
            let Key::Name(name) = key else { return Ok(None) };
            for entry in self.entries() {
                let entry = entry?;
                if entry.name == name {
                    return Ok(Some(entry.value));
                }
            }
            return Ok(None);
        };
        let block = self.leaf_block(&head, bs, head.pointer_index(hash))?;
        let bytes = (self.read)(block)?;
        let find = || {
            let leaf = Leaf::new(&bytes)?;
            match leaf.find(hash, key)? {
                Some((_, entry)) => leaf.value(entry).map(Some),
                None => Ok(None),
            }
        };
        find().map_err(|e: FormatError| e.in_block(block).into())
    }

    /// The block that pointer `index` names.
    fn leaf_block(&mut self, head: &FatHeader, bs: u32, index: u64) -> std::result::Result<u64, E> {
        let (block, place) = head.pointer_at(bs, index);
        let leaf = if block == 0 {
            pointer(&self.block0, place)
        } else {
            pointer(&(self.read)(block)?, place)
        };
        leaf.map_err(|e| e.in_block(block).into())
    }

    /// All entries, in order of (hash, cd).
    ///
    /// A leaf or a part of the table that cannot be read is one error, after which the listing goes
    /// on with the next; an entry that cannot be read likewise.
    pub fn entries(&mut self) -> Entries<'_, F, B> {
        self.entries_from(Cursor::START)
    }

    /// The entries from a place on, see [`Reader::entries`].
    pub fn entries_from(&mut self, from: Cursor) -> Entries<'_, F, B> {
        Entries { reader: self, ready: Vec::new(), from, place: Place::Start }
    }
}

/// Iterator over the entries of a ZAP, see [`Reader::entries`].
pub struct Entries<'r, F, B> {
    reader: &'r mut Reader<F, B>,
    /// Entries that were read and not given out, last first.
    ready: Vec<Result<Entry>>,
    /// Entries before this are passed over.
    from: Cursor,
    place: Place<B>,
}

/// How far a listing is.
enum Place<B> {
    Start,
    /// At pointer `index`; `table` is the block of the table that was read last.
    Pointer {
        index: u64,
        table: Option<(u64, B)>,
    },
    End,
}

impl<F, B, E> Iterator for Entries<'_, F, B>
where
    F: FnMut(u64) -> std::result::Result<B, E>,
    B: Deref<Target = [u8]>,
    E: From<FormatError>,
{
    type Item = std::result::Result<Entry, E>;

    fn next(&mut self) -> Option<Self::Item> {
        loop {
            if let Some(entry) = self.ready.pop() {
                return Some(entry.map_err(E::from));
            }
            match (self.reader.head, std::mem::replace(&mut self.place, Place::End)) {
                (_, Place::End) => return None,
                (Head::Micro { salt, normflags }, _) => {
                    self.ready = micro_entries(&self.reader.block0, salt, normflags, self.from);
                }
                (Head::Fat { .. }, Place::Start) if self.from == Cursor::END => {}
                (Head::Fat { head, .. }, Place::Start) => {
                    let index = head.pointer_index(self.from.hash);
                    self.place = Place::Pointer { index, table: None };
                }
                (Head::Fat { head, bs }, Place::Pointer { index, table }) => {
                    if let Err(error) = self.advance(&head, bs, index, table) {
                        return Some(Err(error));
                    }
                }
            }
        }
    }
}

impl<F, B, E> Entries<'_, F, B>
where
    F: FnMut(u64) -> std::result::Result<B, E>,
    B: Deref<Target = [u8]>,
    E: From<FormatError>,
{
    /// Reads the leaf of pointer `index` and goes to the pointer after all of that leaf's; on an
    /// error, to the next pointer that names another leaf, or to the next block of the table.
    fn advance(
        &mut self,
        head: &FatHeader,
        bs: u32,
        index: u64,
        mut table: Option<(u64, B)>,
    ) -> std::result::Result<(), E> {
        let shift = head.table_shift.get();
        let pointers = 1u64 << shift;
        if index >= pointers {
            return Ok(());
        }
        let (block, place) = head.pointer_at(bs, index);
        let words = 1usize << (bs - 3);
        let past_block = index + (words - place) as u64;
        if block != 0 && table.as_ref().is_none_or(|(at, _)| *at != block) {
            match (self.reader.read)(block) {
                Ok(bytes) => table = Some((block, bytes)),
                Err(error) => {
                    self.place = Place::Pointer { index: past_block, table: None };
                    return Err(error);
                }
            }
        }
        let bytes: &[u8] = match &table {
            Some((_, bytes)) if block != 0 => bytes,
            _ => &self.reader.block0,
        };
        let leaf_block = match pointer(bytes, place) {
            Ok(leaf_block) => leaf_block,
            Err(error) => {
                self.place = Place::Pointer { index: past_block, table: None };
                return Err(error.in_block(block).into());
            }
        };
        let same = |place: &usize| pointer(bytes, *place).is_ok_and(|p| p == leaf_block);
        let other = index + (place..words).take_while(same).count() as u64;
        let result = match (self.reader.read)(leaf_block) {
            Ok(bytes) => leaf_entries(&bytes, head, index, self.from)
                .map_err(|e| e.in_block(leaf_block).into()),
            Err(error) => Err(error),
        };
        let (next, result) = match result {
            Ok((owned_end, entries)) => {
                self.ready = entries;
                // A leaf of many pointers goes on in the next block of the table. Where another
                // leaf stands among them, the table is wrong, and that leaf is tried as well.
                (if other == past_block { owned_end } else { owned_end.min(other) }, Ok(()))
            }
            Err(error) => (other, Err(error)),
        };
        self.place = Place::Pointer { index: next, table };
        result
    }
}

/// The entries of a micro ZAP, last first.
fn micro_entries(block: &[u8], salt: u64, normflags: u64, from: Cursor) -> Vec<Result<Entry>> {
    let micro = match Micro::new(block) {
        Ok(micro) => micro,
        Err(error) => return vec![Err(error.in_block(0))],
    };
    let mut entries: Vec<_> = micro
        .used()
        .map(|(_, e)| {
            let name = e.name();
            // A name whose form is not known is listed by the hash of its own bytes.
            let hash = zap_hash(salt, normflags, 0, Key::Name(name))
                .or_else(|| zap_hash(salt, 0, 0, Key::Name(name)))
                .unwrap_or(0);
            Entry { name: name.to_vec(), value: Value::u64(e.value.get()), hash, cd: e.cd.get() }
        })
        .collect();
    entries.retain(|e| Cursor { hash: e.hash, cd: e.cd } >= from);
    entries.sort_by_key(|e| std::cmp::Reverse((e.hash, e.cd)));
    entries.into_iter().map(Ok).collect()
}

/// The pointer after the last that a leaf owns, and its entries from a place on, last first.
///
/// `index` is the first pointer that names it, unless the listing began in the middle of the leaf.
fn leaf_entries(
    block: &[u8],
    head: &FatHeader,
    index: u64,
    from: Cursor,
) -> Result<(u64, Vec<Result<Entry>>)> {
    const WHAT: &str = "zap leaf";
    let leaf = Leaf::new(block)?;
    let flags = head.flags.get();
    let shift = head.table_shift.get();
    let prefix = leaf.head.prefix.get();
    let len = u64::from(leaf.head.prefix_len.get());
    let bits = shift.checked_sub(len);
    let first = bits.map(|bits| prefix << bits);
    let begun =
        index == head.pointer_index(from.hash) && bits.is_some_and(|b| index >> b == prefix);
    // A leaf at pointers that are not its own would be listed twice, or for ever.
    let (Some(bits), Some(first)) = (bits, first.filter(|&first| first == index || begun)) else {
        let expected = "that of its first pointer";
        return Err(FormatError::Field { what: WHAT, field: "prefix", seen: prefix, expected });
    };
    let place = |chunk| leaf.entry(chunk).map(|e| Cursor { hash: e.hash.get(), cd: e.cd.get() });
    let chunks = leaf.sorted(flags)?;
    let chunks = chunks.iter().rev().filter(|&&chunk| place(chunk).is_ok_and(|at| at >= from));
    let entries = chunks.map(|&chunk| leaf.read(chunk, flags)).collect();
    Ok((first + (1 << bits), entries))
}
