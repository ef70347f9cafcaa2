//! Objects of an object set, as the judge reads them: dnodes, blocks, ranges, ZAPs.
//!
//! Only for metadata, and only after the walk has looked at it: what cannot be read here has been
//! reported there. Every walk down is bounded by the levels of a dnode, every range by the caller.

use crate::block::Blocks;
use format::dnode::{DNODE_BLOCK, DNODE_SLOT, DNODES_PER_BLOCK};
use format::zap::{Entry, Reader, Value};
use format::{BLOCK_SIZE_MAX, BlkPtr, DnodePhys, FormatError, ObjsetPhys};
use rt::sync::Arc;
use zerocopy::FromBytes;

/// Bytes that an entry of a ZAP takes at least.
const ENTRY_MIN: u64 = 24;
/// Entries of a ZAP that are kept in memory at once.
pub(crate) const ENTRIES_MAX: usize = 256 << 10;
/// Parts of one ZAP that may be unreadable before the rest of it is given up: a table of a billion
/// pointers to nothing is soon written.
pub(crate) const WRONG_MAX: usize = 1 << 10;

/// Why something could not be read.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Unread(pub String);

impl From<FormatError> for Unread {
    fn from(error: FormatError) -> Unread {
        Unread(error.to_string())
    }
}

impl From<String> for Unread {
    fn from(why: String) -> Unread {
        Unread(why)
    }
}

impl std::fmt::Display for Unread {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(&self.0)
    }
}

/// Result of reading an object.
pub(crate) type Result<T> = std::result::Result<T, Unread>;

/// Bytes of a block, shared with the cache.
pub(crate) struct Block(Arc<Vec<u8>>);

impl std::ops::Deref for Block {
    type Target = [u8];
    fn deref(&self) -> &[u8] {
        &self.0
    }
}

/// The pointer to block `block` of an object; a hole if there is none.
pub(crate) fn pointer(blocks: &mut Blocks<'_>, dnode: &DnodePhys, block: u64) -> Result<BlkPtr> {
    pointer_at(blocks, dnode, 0, block)
}

/// The pointer to a block of some level.
pub(crate) fn pointer_at(
    blocks: &mut Blocks<'_>,
    dnode: &DnodePhys,
    wanted: u8,
    block: u64,
) -> Result<BlkPtr> {
    let wanted = u32::from(wanted);
    let shift = dnode.pointers_shift();
    let levels = u32::from(dnode.core().levels);
    let index_at = |level: u32| block.checked_shr((level - wanted) * shift).unwrap_or(0);
    let top = levels.saturating_sub(1);
    if wanted > top {
        return Ok(BlkPtr::ZERO);
    }
    let Some(mut bp) = dnode.blkptrs().get(index_at(top) as usize).copied() else {
        return Ok(BlkPtr::ZERO);
    };
    for level in (wanted..top).rev() {
        if bp.is_hole() {
            return Ok(BlkPtr::ZERO);
        }
        if bp.is_embedded() || !bp.is_little_endian() {
            return Err(Unread("an indirect block that cannot be one".into()));
        }
        let bytes = blocks.read(&bp)?;
        let index = (index_at(level) & ((1 << shift) - 1)) as usize;
        let at = bytes.get(index * 128..).unwrap_or_default();
        bp = BlkPtr::read_from_prefix(at).map_err(|_| Unread("a short indirect block".into()))?.0;
    }
    Ok(bp)
}

/// Block `block` of an object, as long as its blocks are; zeros in a hole.
pub(crate) fn block(blocks: &mut Blocks<'_>, dnode: &DnodePhys, block: u64) -> Result<Block> {
    let bp = pointer(blocks, dnode, block)?;
    let size = dnode.block_size() as usize;
    if size as u64 > BLOCK_SIZE_MAX {
        return Err(Unread(format!("blocks of {size} bytes")));
    }
    if bp.is_hole() {
        return Ok(Block(Arc::new(vec![0; size])));
    }
    if !bp.is_embedded() && !bp.is_little_endian() {
        return Err(Unread("a block of the other byte order".into()));
    }
    let bytes = blocks.read(&bp)?;
    if bytes.len() != size {
        return Err(Unread(format!("a block of {} bytes, expected {size}", bytes.len())));
    }
    Ok(Block(bytes))
}

/// As [`block`], of an object that has no holes: one in a list that claims to be endless would take
/// for ever to read.
pub(crate) fn solid(blocks: &mut Blocks<'_>, dnode: &DnodePhys, number: u64) -> Result<Block> {
    if pointer(blocks, dnode, number)?.is_hole() {
        return Err(Unread(format!("block {number} of {} is a hole", dnode.kind().name())));
    }
    block(blocks, dnode, number)
}

/// The bytes `[offset, offset + len)` of an object; the caller bounds `len`.
pub(crate) fn range(
    blocks: &mut Blocks<'_>,
    dnode: &DnodePhys,
    offset: u64,
    len: usize,
) -> Result<Vec<u8>> {
    let size = u64::from(dnode.block_size());
    let mut out = Vec::with_capacity(len.min(1 << 20));
    let mut at = offset;
    while out.len() < len {
        let bytes = block(blocks, dnode, at / size)?;
        let part = bytes.get((at % size) as usize..).unwrap_or_default();
        let part = &part[..part.len().min(len - out.len())];
        if part.is_empty() {
            return Err(Unread("an empty block".into()));
        }
        out.extend_from_slice(part);
        at = at.saturating_add(part.len() as u64);
    }
    Ok(out)
}

/// The dnode of an object; `None` if there is no such object.
pub(crate) fn dnode(
    blocks: &mut Blocks<'_>,
    objset: &ObjsetPhys,
    object: u64,
) -> Result<Option<DnodePhys>> {
    if object == 0 || object >= 1 << 48 {
        return Ok(None);
    }
    let bytes = block(blocks, &objset.meta, object / DNODES_PER_BLOCK)?;
    if bytes.len() != DNODE_BLOCK {
        return Err(Unread(format!("a block of dnodes of {} bytes", bytes.len())));
    }
    // A slot in the middle of a large dnode is no object, though it may look like one.
    let wanted = (object % DNODES_PER_BLOCK) as usize;
    let mut slot = 0;
    while slot <= wanted {
        let found = DnodePhys::parse(bytes.get(slot * DNODE_SLOT..).unwrap_or_default());
        if slot == wanted {
            return Ok(found?);
        }
        slot += found.ok().flatten().map_or(1, |dnode| dnode.slots());
    }
    Ok(None)
}

/// The dnode of an object that must exist.
pub(crate) fn expect(
    blocks: &mut Blocks<'_>,
    objset: &ObjsetPhys,
    object: u64,
) -> Result<DnodePhys> {
    dnode(blocks, objset, object)?.ok_or_else(|| Unread(format!("object {object} does not exist")))
}

/// Calls `each` with every entry of a ZAP that can be read, until too much of it cannot; the first
/// thing that could not be read is the error.
pub(crate) fn zap_each(
    blocks: &mut Blocks<'_>,
    dnode: &DnodePhys,
    mut each: impl FnMut(Entry),
) -> Result<()> {
    if dnode.max_block() == 0 && pointer(blocks, dnode, 0)?.is_hole() {
        return Ok(());
    }
    let mut reader = Reader::open(|number| block(blocks, dnode, number))?;
    let (mut wrong, mut parts) = (None, 0);
    let room = dnode.max_block().saturating_add(1).saturating_mul(dnode.block_size().into());
    for (count, entry) in (0u64..).zip(reader.entries()) {
        if count > room / ENTRY_MIN {
            return Err(Unread(format!("a ZAP of more entries than its {room} bytes can hold")));
        }
        match entry {
            Ok(entry) => each(entry),
            Err(error) => {
                parts += 1;
                if parts >= WRONG_MAX {
                    return Err(Unread(format!("{parts} parts of it, and no further")));
                }
                wrong = wrong.or(Some(error));
            }
        }
    }
    wrong.map_or(Ok(()), Err)
}

/// Looks up a name in a ZAP.
pub(crate) fn zap_get(
    blocks: &mut Blocks<'_>,
    dnode: &DnodePhys,
    name: &[u8],
) -> Result<Option<Value>> {
    if dnode.max_block() == 0 && pointer(blocks, dnode, 0)?.is_hole() {
        return Ok(None);
    }
    Reader::open(|number| block(blocks, dnode, number))?.lookup(name)
}

/// Calls `each` with all objects whose dnodes can be read.
pub(crate) fn each_dnode<'a>(
    blocks: &mut Blocks<'a>,
    meta: &DnodePhys,
    each: &mut dyn FnMut(&mut Blocks<'a>, u64, &DnodePhys),
) {
    let level = meta.core().levels.saturating_sub(1);
    for (index, bp) in meta.blkptrs().iter().enumerate() {
        below(blocks, meta, bp, (level, index as u64), each);
    }
}

fn below<'a>(
    blocks: &mut Blocks<'a>,
    meta: &DnodePhys,
    bp: &BlkPtr,
    (level, number): (u8, u64),
    each: &mut dyn FnMut(&mut Blocks<'a>, u64, &DnodePhys),
) {
    if !bp.has_space() || !bp.is_little_endian() {
        return;
    }
    let Ok(bytes) = blocks.read(bp) else { return };
    if level > 0 {
        for (index, child) in BlkPtr::all_in(&bytes).iter().enumerate() {
            let number = number.checked_shl(meta.pointers_shift()).unwrap_or(0);
            below(blocks, meta, child, (level - 1, number.saturating_add(index as u64)), each);
        }
        return;
    }
    let mut slot = 0;
    while slot < bytes.len() / DNODE_SLOT {
        let found = DnodePhys::parse(bytes.get(slot * DNODE_SLOT..).unwrap_or_default());
        let object = number.saturating_mul(DNODES_PER_BLOCK).saturating_add(slot as u64);
        slot += 1;
        if let Ok(Some(dnode)) = found {
            slot += dnode.slots() - 1;
            each(blocks, object, &dnode);
        }
    }
}
