//! System attributes: everything a file system knows of an object besides its contents.
//!
//! A buffer of attributes is a small header and the values, one after another. Which attributes,
//! and in which order, is not in the buffer: the header names a *layout*, a list of attribute
//! numbers that the file system keeps once ([`Layouts`]). Numbers and lengths of the attributes
//! come from the file system's [`Registry`]. An object has one buffer in its bonus and, when that
//! is full, a second one in its spill block.
//!
//! Reading: [`SaView`]. Writing: [`SaBuilder`]. FORMAT: section 11.2.

mod attr;
mod builder;
mod header;
mod layouts;
mod registry;
#[cfg(test)]
mod tests;
mod view;

pub use attr::{Attr, AttrSwap};
pub use builder::{Image, SPILL_MAX, SaBuilder, bonus_max};
pub use header::{SA_HEADER, SA_MAGIC, SaHeader};
pub use layouts::{LAYOUT_EMPTY, LAYOUT_FIRST, LAYOUT_OLD_ZNODE, LAYOUTS_MAX, Layouts};
pub use registry::{AttrDef, Registry};
pub use view::{Place, SaView, Values};

/// Key of the SA master node: the ZAP of the registry.
pub const SA_REGISTRY: &str = "REGISTRY";
/// Key of the SA master node: the ZAP of the layouts.
pub const SA_LAYOUTS: &str = "LAYOUTS";

/// Values start at multiples of 8 bytes.
fn align8(at: usize) -> usize {
    at.saturating_add(7) & !7
}
