//! System attributes: header and values, by the registry and the layouts of the file system.

use super::{Direction, acl, field, words};
use crate::sa::{AttrSwap, Layouts, Registry, SA_HEADER};

/// Swaps a buffer of system attributes: a bonus or a spill block.
///
/// What the registry or the layouts do not know, or what reaches out of the buffer, ends the work.
pub fn attributes(direction: Direction, registry: &Registry, layouts: &Layouts, bytes: &mut [u8]) {
    field::<4>(direction, bytes, 0);
    let Some(info) = field::<2>(direction, bytes, 4) else { return };
    let (layout, header) = ((info & 0x3ff) as u16, (info >> 10) as usize * 8);
    if header < SA_HEADER {
        return;
    }
    let mut at = header;
    let mut length_at = 6;
    for number in layouts.order(layout).unwrap_or_default() {
        let Some(def) = registry.def(*number) else { return };
        let length = if def.length != 0 {
            def.length.into()
        } else {
            if length_at + 2 > header {
                return;
            }
            let Some(length) = field::<2>(direction, bytes, length_at) else { return };
            length_at += 2;
            length as usize
        };
        let Some(value) = bytes.get_mut(at..).and_then(|b| b.get_mut(..length)) else { return };
        match def.swap {
            AttrSwap::U64 => words::<8>(value),
            AttrSwap::U32 => words::<4>(value),
            AttrSwap::U16 => words::<2>(value),
            AttrSwap::U8 => {}
            AttrSwap::Acl => acl::entries(direction, value),
        }
        at = (at + length).next_multiple_of(8);
    }
}
