//! Page-aligned buffers, and a pool that recycles them.
//!
//! The one idea: memory is paid for once. Two fifths of a naive writer's time are page faults on
//! fresh memory, so buffers are faulted in when they are first handed out and then go round.
//! Every byte of a buffer is always initialised: new memory is zero, recycled memory holds what
//! its last owner left.

mod memory;
mod pool;
mod shelf;

pub use memory::ALIGN;
pub(crate) use pool::WeakPool;
pub use pool::{BufPool, PoolState, PooledBuf};
pub use shelf::{Mark, Shelf, Shelved};

use memory::Memory;
use std::ops::{Deref, DerefMut};

/// An owned, page-aligned buffer of bytes. Its length never changes.
#[derive(Default)]
pub struct Buf(Memory);

impl Buf {
    /// A buffer of `len` zero bytes.
    ///
    /// # Panics
    /// When `len` is above half the address space, and, as everywhere in Rust, when the system has
    /// no memory left.
    pub fn zeroed(len: usize) -> Buf {
        Buf(Memory::zeroed(len))
    }

    /// A buffer with a copy of `bytes`.
    pub fn from_slice(bytes: &[u8]) -> Buf {
        let mut buf = Buf::zeroed(bytes.len());
        buf.copy_from_slice(bytes);
        buf
    }
}

impl Deref for Buf {
    type Target = [u8];
    fn deref(&self) -> &[u8] {
        &self.0
    }
}

impl DerefMut for Buf {
    fn deref_mut(&mut self) -> &mut [u8] {
        &mut self.0
    }
}

impl AsRef<[u8]> for Buf {
    fn as_ref(&self) -> &[u8] {
        self
    }
}

impl Clone for Buf {
    fn clone(&self) -> Buf {
        Buf::from_slice(self)
    }
}

impl std::fmt::Debug for Buf {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Buf({} bytes)", self.len())
    }
}

#[cfg(test)]
mod tests;
