//! All entries of a micro ZAP at once: with each snapshot a long history's deadlist is made, read, and emptied.
//!
//! Made one by one, each entry looks for room, and every eighth makes the block larger.

use format::zap::leaf::chunk_count;
use format::zap::micro::{MICRO_BLOCK_MAX, MICRO_ENTRY, MicroEntry, MicroMut};
use format::zap::{FAT_BLOCK_SHIFT, Key, Kind, Micro, zap_hash};

use super::micro::FAT_CHUNKS_MAX;
use super::{Memo, ZapBlocks, entries, fat, kind, modify, read};

/// Size of the block that so many entries ask for, in bytes; `None`: they are too many for a micro ZAP.
pub fn micro_size(entries: usize) -> Option<usize> {
    let size = entries.checked_add(1)?.checked_mul(MICRO_ENTRY)?.next_multiple_of(512);
    Some(size).filter(|size| *size <= MICRO_BLOCK_MAX)
}

/// Makes block 0 a micro ZAP of these entries, whose names must differ; it must have [`micro_size`] bytes.
/// `false`: a name is too long or too many share a hash, and the block is as it was.
pub fn format_filled<B: ZapBlocks>(
    blocks: &mut B,
    salt: u64,
    entries: &[(String, u64)],
) -> Result<bool, B::Error> {
    let hash = |name: &str| zap_hash(salt, 0, 0, Key::Name(name.as_bytes()));
    let mut hashes: Vec<(Option<u64>, usize)> =
        entries.iter().enumerate().map(|(at, (name, _))| (hash(name), at)).collect();
    hashes.sort_unstable();
    let mut made = vec![MicroEntry::FREE; entries.len()];
    let mut last = (None, 0);
    for (hash, at) in hashes {
        let cd = if hash == last.0 { last.1 + 1 } else { 0 };
        last = (hash, cd);
        let crowded = (cd as usize + 1) * FAT_CHUNKS_MAX >= chunk_count(FAT_BLOCK_SHIFT);
        let (name, value) = &entries[at];
        match MicroEntry::new(name.as_bytes(), *value, cd) {
            Some(entry) if hash.is_some() && !crowded => made[at] = entry,
            _ => return Ok(false),
        }
    }
    blocks.keep_memo(Memo::default());
    modify(blocks, 0, |block| {
        MicroMut::format(block, salt, 0)?;
        let micro = MicroMut::new(block)?;
        let room = micro.entries.get_mut(..made.len());
        let (field, at) = ("its entries", made.len() as u64);
        room.ok_or(format::FormatError::Bounds { what: "micro zap", field, at })?
            .copy_from_slice(&made);
        Ok(())
    })?;
    Ok(true)
}

/// Has a micro ZAP hold these entries instead of its own, and makes its block as small as they allow. `false`, and
/// no change, if it is another kind of ZAP, its block is too small or [`format_filled`] cannot.
pub fn refill<B: ZapBlocks>(blocks: &mut B, entries: &[(String, u64)]) -> Result<bool, B::Error> {
    let size = micro_size(entries.len()).filter(|size| *size <= blocks.block_size());
    let Some(size) = size.filter(|_| blocks.max_block() == 0) else { return Ok(false) };
    if kind(blocks)? != Kind::Micro {
        return Ok(false);
    }
    match fat::salt_and_normflags(blocks)? {
        (salt, 0, _) if format_filled(blocks, salt, entries)? => {
            blocks.set_block_size(size)?;
            Ok(true)
        }
        _ => Ok(false),
    }
}

/// Calls `each` with all names and their integers, in no order; with `None` where the value is something else.
pub fn each_number<B: ZapBlocks>(
    blocks: &B,
    mut each: impl FnMut(&[u8], Option<u64>),
) -> Result<(), B::Error> {
    if kind(blocks)? == Kind::Micro {
        return read(blocks, 0, |block| {
            Micro::new(block)?.used().for_each(|(_, e)| each(e.name(), Some(e.value.get())));
            Ok(())
        });
    }
    for entry in entries(blocks)? {
        each(&entry.name, entry.value.as_u64());
    }
    Ok(())
}
