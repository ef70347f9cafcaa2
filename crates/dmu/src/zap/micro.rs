//! Micro ZAPs: fill a free entry, grow by a sector, become fat.

use format::zap::leaf::chunk_count;
use format::zap::micro::{MICRO_BLOCK_MAX, MICRO_NAME_MAX, MicroEntry, MicroMut};
use format::zap::{FAT_BLOCK_SHIFT, Key, Micro, Value, zap_hash};

use super::{ZapBlocks, ZapError, fat, modify, read, unknown_form};

/// No entry.
const NONE: u16 = u16::MAX;
/// Chunks of a leaf that an entry of a micro ZAP takes at most, once it is in a fat one.
pub(super) const FAT_CHUNKS_MAX: usize = 5;

/// Adding only, or replacing as well?
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Mode {
    Add,
    Update,
}

/// What is remembered of a micro ZAP between changes: where the names of each hash are, and which
/// entries are free. The block itself has no order, so else each addition would look at all of it.
#[derive(Clone, Debug, Default)]
pub struct Memo {
    salt: u64,
    normflags: u64,
    /// First entry of each chain; a power of two of chains.
    heads: Vec<u16>,
    /// Of each entry.
    links: Vec<Link>,
    /// Free entries; the last is taken first.
    free: Vec<u16>,
}

/// Where an entry is among those of its chain.
#[derive(Clone, Copy, Debug)]
struct Link {
    /// `None`: the entry is free, or its hash is not known.
    hash: Option<u64>,
    next: u16,
}

impl Link {
    const FREE: Link = Link { hash: None, next: NONE };
}

impl Memo {
    /// Is this what is remembered of this micro ZAP at this size?
    fn fits(&self, micro: &Micro<'_>) -> bool {
        let key = (micro.head.salt.get(), micro.head.normflags.get(), count_of(micro));
        key == (self.salt, self.normflags, self.links.len())
    }

    /// Takes in that the block has grown, or looks at all entries.
    fn refresh(&mut self, micro: &Micro<'_>) {
        if self.fits(micro) {
            return;
        }
        let (salt, normflags) = (micro.head.salt.get(), micro.head.normflags.get());
        let (old, count) = (self.links.len(), count_of(micro));
        let same = (salt, normflags) == (self.salt, self.normflags);
        if same && self.free.is_empty() && (1..count).contains(&old) {
            // An addition found no free entry and made the block larger.
            self.free.extend((old as u16..count as u16).rev());
            self.links.resize(count, Link::FREE);
            if count > self.heads.len() {
                self.chain_all(count);
            }
            return;
        }
        *self = Memo { salt, normflags, links: vec![Link::FREE; count], ..Memo::default() };
        for (slot, entry) in micro.entries.iter().enumerate().take(count).rev() {
            if entry.is_free() {
                self.free.push(slot as u16);
            } else {
                self.links[slot].hash = zap_hash(salt, normflags, 0, Key::Name(entry.name()));
            }
        }
        self.chain_all(count);
    }

    /// Makes the chains anew, with as many as suit `count` entries.
    fn chain_all(&mut self, count: usize) {
        self.heads = vec![NONE; count.next_power_of_two() * 2];
        for slot in 0..self.links.len() {
            if let Some(hash) = self.links[slot].hash {
                self.link(slot as u16, hash);
            }
        }
    }

    fn chain_of(&self, hash: u64) -> usize {
        // The lowest of the 28 bits.
        (hash >> 36) as usize & (self.heads.len() - 1)
    }

    fn link(&mut self, slot: u16, hash: u64) {
        let chain = self.chain_of(hash);
        let next = std::mem::replace(&mut self.heads[chain], slot);
        self.links[usize::from(slot)] = Link { hash: Some(hash), next };
    }

    /// Entry `slot` becomes free.
    fn unlink(&mut self, slot: u16) {
        self.free.push(slot);
        let gone = std::mem::replace(&mut self.links[usize::from(slot)], Link::FREE);
        let Some(hash) = gone.hash else { return };
        let chain = self.chain_of(hash);
        let mut at = self.heads[chain];
        if at == slot {
            self.heads[chain] = gone.next;
            return;
        }
        while let Some(link) = self.links.get_mut(usize::from(at)) {
            if link.next == slot {
                link.next = gone.next;
                return;
            }
            at = link.next;
        }
    }

    /// The entries of this hash.
    fn same_hash(&self, hash: u64) -> impl Iterator<Item = usize> + '_ {
        let mut at = self.heads.get(self.chain_of(hash)).copied().unwrap_or(NONE);
        let chain = std::iter::from_fn(move || {
            let slot = usize::from(at);
            at = self.links.get(slot)?.next;
            Some(slot)
        });
        chain.filter(move |&slot| self.links[slot].hash == Some(hash))
    }

    /// Is it worth its memory? A small block is looked through as quickly.
    fn is_worth_keeping(&self) -> bool {
        self.links.len() > 31
    }
}

/// Number of entries, used and free.
fn count_of(micro: &Micro<'_>) -> usize {
    micro.entries.len().min(usize::from(NONE))
}

/// The value of a name.
pub(super) fn lookup<B: ZapBlocks>(blocks: &B, key: Key<'_>) -> Result<Option<Value>, B::Error> {
    let Key::Name(name) = key else { return Err(blocks.error(ZapError::KeyKind)) };
    blocks.with_memo(|memo| {
        read(blocks, 0, |block| {
            let micro = Micro::new(block)?;
            let slot = find(&micro, memo, name);
            let entry = slot.and_then(|slot| micro.entries.get(slot));
            Ok(entry.map(|entry| Value::u64(entry.value.get())))
        })
    })
}

/// The entry of a name: through what is remembered if it is of this ZAP, else by looking at all.
fn find(micro: &Micro<'_>, memo: &Memo, name: &[u8]) -> Option<usize> {
    let is_same = |&slot: &usize| micro.entries.get(slot).is_some_and(|e| e.is_named(name));
    if memo.fits(micro) {
        let (salt, normflags) = (micro.head.salt.get(), micro.head.normflags.get());
        if let Some(hash) = zap_hash(salt, normflags, 0, Key::Name(name)) {
            return memo.same_hash(hash).find(is_same);
        }
    }
    micro.find(name).map(|(slot, _)| slot)
}

/// What an attempt to set an entry came to.
enum Attempt {
    Done,
    Exists,
    /// No entry is free.
    Full,
    /// More names of one hash than a leaf of a fat ZAP could take.
    Crowded,
    Unknown,
}

/// Adds an entry or replaces its value; false if it is there and was only to be added.
pub(super) fn set<B: ZapBlocks>(
    blocks: &mut B,
    key: Key<'_>,
    value: &Value,
    mode: Mode,
) -> Result<bool, B::Error> {
    let Key::Name(name) = key else { return Err(blocks.error(ZapError::KeyKind)) };
    if let (Some(number), true) = (value.as_u64(), name.len() <= MICRO_NAME_MAX) {
        loop {
            let mut memo = blocks.take_memo();
            let attempt = modify(blocks, 0, |block| attempt(block, &mut memo, name, number, mode))?;
            if memo.is_worth_keeping() {
                blocks.keep_memo(memo);
            }
            match attempt {
                Attempt::Done => return Ok(true),
                Attempt::Exists => return Ok(false),
                Attempt::Unknown => return Err(unknown_form(blocks, key)),
                Attempt::Crowded => break,
                Attempt::Full => {
                    let size = blocks.block_size() + 512;
                    if size > MICRO_BLOCK_MAX {
                        break;
                    }
                    only_block(blocks)?;
                    blocks.set_block_size(size)?;
                }
            }
        }
    } else if mode == Mode::Add && lookup(blocks, key)?.is_some() {
        return Ok(false);
    }
    become_fat(blocks)?;
    match (fat::open(blocks, key)?, mode) {
        (fat::Opened::Fat(mut fat), Mode::Add) => fat.add(blocks, key, value),
        (fat::Opened::Fat(mut fat), Mode::Update) => fat.update(blocks, key, value).map(|()| true),
        _ => Err(unknown_form(blocks, key)),
    }
}

fn attempt(
    block: &mut [u8],
    memo: &mut Memo,
    name: &[u8],
    value: u64,
    mode: Mode,
) -> format::Result<Attempt> {
    let micro = MicroMut::new(block)?;
    let view = Micro { head: micro.head, entries: micro.entries };
    let key = Key::Name(name);
    let Some(hash) = zap_hash(view.head.salt.get(), view.head.normflags.get(), 0, key) else {
        let Some((slot, _)) = view.find(name) else { return Ok(Attempt::Unknown) };
        if mode == Mode::Update {
            micro.entries[slot].value.set(value);
            return Ok(Attempt::Done);
        }
        return Ok(Attempt::Exists);
    };
    memo.refresh(&view);
    let is_same = |&slot: &usize| view.entries.get(slot).is_some_and(|e| e.is_named(name));
    if let Some(slot) = memo.same_hash(hash).find(is_same) {
        if mode == Mode::Update {
            micro.entries[slot].value.set(value);
            return Ok(Attempt::Done);
        }
        return Ok(Attempt::Exists);
    }
    let mut cds: Vec<u32> = memo
        .same_hash(hash)
        .filter_map(|slot| view.entries.get(slot))
        .map(|e| e.cd.get())
        .collect();
    if (cds.len() + 1) * FAT_CHUNKS_MAX >= chunk_count(FAT_BLOCK_SHIFT) {
        return Ok(Attempt::Crowded);
    }
    cds.sort_unstable();
    let cd = cds.iter().fold(0, |free, &cd| if cd == free { free + 1 } else { free });
    let Some(slot) = memo.free.pop() else { return Ok(Attempt::Full) };
    let entry = MicroEntry::new(name, value, cd);
    let place = micro.entries.get_mut(usize::from(slot)).filter(|place| place.is_free());
    let (Some(entry), Some(place)) = (entry, place) else {
        let field = "an entry remembered as free";
        let at = 64 + 64 * u64::from(slot);
        return Err(format::FormatError::Bounds { what: "micro zap", field, at });
    };
    *place = entry;
    memo.link(slot, hash);
    Ok(Attempt::Done)
}

/// Removes an entry; false if there is none.
pub(super) fn remove<B: ZapBlocks>(blocks: &mut B, key: Key<'_>) -> Result<bool, B::Error> {
    let Key::Name(name) = key else { return Err(blocks.error(ZapError::KeyKind)) };
    let mut memo = blocks.take_memo();
    let found = read(blocks, 0, |block| Ok(find(&Micro::new(block)?, &memo, name)))?;
    if let Some(slot) = found {
        let micro_entry = |block: &mut [u8]| {
            let micro = MicroMut::new(block)?;
            if let Some(entry) = micro.entries.get_mut(slot) {
                *entry = MicroEntry::FREE;
            }
            Ok(())
        };
        modify(blocks, 0, micro_entry)?;
        if slot < memo.links.len() {
            memo.unlink(slot as u16);
        }
    }
    if memo.is_worth_keeping() {
        blocks.keep_memo(memo);
    }
    Ok(found.is_some())
}

/// A micro ZAP is alone in its object, else its block cannot change its size.
fn only_block<B: ZapBlocks>(blocks: &B) -> Result<(), B::Error> {
    match blocks.max_block() {
        0 => Ok(()),
        seen => {
            let (what, field, expected) = ("micro zap", "last block", "0");
            let error = format::FormatError::Field { what, field, seen, expected };
            Err(blocks.error(error.into()))
        }
    }
}

/// Makes a fat ZAP of a micro one; entries keep their collision numbers.
fn become_fat<B: ZapBlocks>(blocks: &mut B) -> Result<(), B::Error> {
    only_block(blocks)?;
    drop(blocks.take_memo());
    let (salt, normflags, entries) = read(blocks, 0, |block| {
        let micro = Micro::new(block)?;
        let (salt, normflags) = (micro.head.salt.get(), micro.head.normflags.get());
        let entries: Vec<_> = micro
            .used()
            .map(|(_, e)| {
                let hash = zap_hash(salt, normflags, 0, Key::Name(e.name()));
                (hash, e.cd.get(), e.name().to_vec(), e.value.get())
            })
            .collect();
        Ok((salt, normflags, entries))
    })?;
    // Once block 0 is another there is no way back, so what could fail is tried before.
    let mut hashes = Vec::with_capacity(entries.len());
    for (hash, _, name, _) in &entries {
        let Some(hash) = hash else { return Err(unknown_form(blocks, Key::Name(name))) };
        hashes.push(hash >> (64 - fat::PREFIX_BITS));
    }
    hashes.sort_unstable();
    let room = chunk_count(FAT_BLOCK_SHIFT) / FAT_CHUNKS_MAX;
    if hashes.chunk_by(|a, b| a == b).any(|same| same.len() > room) {
        return Err(blocks.error(ZapError::Full));
    }
    fat::format(blocks, FAT_BLOCK_SHIFT, salt, normflags, 0)?;
    for (_, cd, name, value) in &entries {
        let key = Key::Name(name);
        if let fat::Opened::Fat(mut fat) = fat::open(blocks, key)? {
            fat.insert(blocks, key, &Value::u64(*value), Some(*cd))?;
        }
    }
    Ok(())
}
