//! Blocks of dnodes, and object sets, which have up to four dnodes inside.

use super::{Direction, contents, field, words};
use crate::ObjectType;
use crate::dnode::{BLKPTR, DNODE_CORE, DNODE_SLOT, DnodeFlags};
use crate::objset::{ZIL_HEADER_AT, ZIL_HEADER_SIZE};

/// A block of dnodes: each with its bonus by the type of the bonus. Free slots stay.
pub(super) fn block(direction: Direction, bytes: &mut [u8]) {
    let mut rest = bytes;
    while let Some(slot) = rest.get(..DNODE_SLOT) {
        let is_used = slot.first().is_some_and(|kind| *kind != 0);
        let extra = slot.get(12).filter(|_| is_used).map_or(0, |extra| usize::from(*extra));
        // A dnode that reaches out of the block is swapped as far as it is in it.
        let size = ((1 + extra) * DNODE_SLOT).min(rest.len());
        let (dnode, next) = rest.split_at_mut(size);
        if is_used {
            one(direction, dnode);
        }
        rest = next;
    }
}

/// One dnode in its slots. All that says where things are is single bytes, the same in both orders.
fn one(direction: Direction, dnode: &mut [u8]) {
    let byte = |at: usize| dnode.get(at).copied().unwrap_or(0);
    let (pointers, bonus_kind) = (usize::from(byte(3).min(3)), ObjectType(byte(4)));
    let has_spill = byte(7) & DnodeFlags::SPILL != 0;
    for at in [8, 10] {
        field::<2>(direction, dnode, at);
    }
    for at in [16, 24] {
        field::<8>(direction, dnode, at);
    }
    let Some(rest) = dnode.get_mut(DNODE_CORE..) else { return };
    let (to_blocks, rest) = rest.split_at_mut(pointers * BLKPTR);
    words::<8>(to_blocks);
    let spill_at = rest.len().saturating_sub(if has_spill { BLKPTR } else { 0 });
    let (bonus, spill) = rest.split_at_mut(spill_at);
    words::<8>(spill);
    contents(direction, bonus_kind, bonus);
}

/// An object set of any of the three sizes.
pub(super) fn objset(direction: Direction, bytes: &mut [u8]) {
    for at in [0, 1024, 1536, 2048] {
        if let Some(dnode) = bytes.get_mut(at..).and_then(|b| b.get_mut(..DNODE_SLOT)) {
            block(direction, dnode);
        }
    }
    // The intent log's header, then type and flags; the MACs behind them are bytes.
    let log = bytes.get_mut(ZIL_HEADER_AT..);
    if let Some(log) = log.and_then(|b| b.get_mut(..ZIL_HEADER_SIZE + 16)) {
        words::<8>(log);
    }
}
