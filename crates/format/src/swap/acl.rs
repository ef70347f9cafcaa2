//! Entries of access control lists, and old znodes, which have some inside.

use super::{Direction, field, words};
use crate::acl::{Ace, OLD_ACE, OLD_ACL_SIZE};
use crate::znode::OLD_ZNODE_SIZE;

/// Entries of varying size, up to the end of the bytes (behind the last one there are zeros).
pub(super) fn entries(direction: Direction, bytes: &mut [u8]) {
    let mut rest = bytes;
    loop {
        let kind = field::<2>(direction, rest, 0);
        let flags = field::<2>(direction, rest, 2);
        let mask = field::<4>(direction, rest, 4);
        let (Some(kind), Some(flags), Some(_)) = (kind, flags, mask) else { return };
        let size = Ace::size(kind as u16, flags as u16);
        if size > 8 {
            field::<8>(direction, rest, 8);
        }
        let Some((_, next)) = rest.split_at_mut_checked(size) else { return };
        rest = next;
    }
}

/// Entries of the first form, of fixed size.
pub(super) fn fixed_entries(bytes: &mut [u8]) {
    for entry in bytes.chunks_exact_mut(OLD_ACE) {
        let (ids, flags) = entry.split_at_mut(8);
        words::<4>(ids);
        words::<2>(flags);
    }
}

/// An old znode: words, then its ACL. What follows in the bonus (a link target) is bytes.
pub(super) fn znode(direction: Direction, bytes: &mut [u8]) {
    let Some(znode) = bytes.get_mut(..OLD_ZNODE_SIZE) else { return };
    let (plain, acl) = znode.split_at_mut(OLD_ZNODE_SIZE - OLD_ACL_SIZE);
    words::<8>(plain);
    field::<8>(direction, acl, 0);
    field::<4>(direction, acl, 8);
    let version = field::<2>(direction, acl, 12);
    field::<2>(direction, acl, 14);
    let room = acl.get_mut(16..).unwrap_or_default();
    if version == Some(1) { entries(direction, room) } else { fixed_entries(room) }
}
