//! Blocks of the other byte order: swapped once, when they are read.
//!
//! A block pointer says in which order its block was written. What must be swapped follows from
//! the type of the object: words of one size, or a structure. Blocks stay hostile: nothing here
//! fails, counts that lead out of a block end the work, and the parsers judge the result.
//! FORMAT: section 5.5.
//!
//! System attributes are swapped apart, by [`attributes`]: it takes the registry and the layouts
//! of the file system to know what is in them.

mod acl;
mod dnode;
mod sa;
mod zap;

pub use sa::attributes;

use crate::ObjectType;
use crate::ids::Swap;

/// Which way to swap. The bytes change the same; but lengths and types that decide how are found
/// before or after their own swap.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Direction {
    /// From big-endian bytes to ours.
    FromBig,
    /// From ours to big-endian bytes.
    ToBig,
}

/// Swaps a whole block of an object of type `kind`; `level` above 0 is an indirect block.
pub fn block(direction: Direction, kind: ObjectType, level: u8, bytes: &mut [u8]) {
    if level > 0 {
        words::<8>(bytes);
    } else {
        contents(direction, kind, bytes);
    }
}

/// Swaps the contents of a data block or of a bonus of type `kind`.
pub fn contents(direction: Direction, kind: ObjectType, bytes: &mut [u8]) {
    match kind.swap() {
        Swap::U8 => {}
        Swap::U16 => words::<2>(bytes),
        Swap::U32 => words::<4>(bytes),
        Swap::U64 => words::<8>(bytes),
        Swap::Zap => zap::block(direction, bytes),
        Swap::Dnode => dnode::block(direction, bytes),
        Swap::Objset => dnode::objset(direction, bytes),
        Swap::Znode => acl::znode(direction, bytes),
        Swap::OldAcl => acl::fixed_entries(bytes),
        Swap::Acl => acl::entries(direction, bytes),
    }
}

/// Swaps every word of `SIZE` bytes; bytes behind the last whole word stay.
fn words<const SIZE: usize>(bytes: &mut [u8]) {
    for word in bytes.chunks_exact_mut(SIZE) {
        word.reverse();
    }
}

/// Swaps the word of `SIZE` bytes at `at`, if it is there, and returns it in our order.
fn field<const SIZE: usize>(direction: Direction, bytes: &mut [u8], at: usize) -> Option<u64> {
    let word = bytes.get_mut(at..)?.get_mut(..SIZE)?;
    let mut ours = [0; 8];
    if direction == Direction::FromBig {
        word.reverse();
    }
    for (to, from) in ours.iter_mut().zip(word.iter()) {
        *to = *from;
    }
    if direction == Direction::ToBig {
        word.reverse();
    }
    Some(u64::from_le_bytes(ours))
}
