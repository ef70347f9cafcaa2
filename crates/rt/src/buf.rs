//! Page-aligned buffers, and a pool that recycles them.
//!
//! The one idea: memory is paid for once. Two fifths of a naive writer's time are page faults on
//! fresh memory, so buffers are faulted in when they are first handed out and then go round.
//! Every byte of a buffer is always initialised: new memory is zero, recycled memory holds what
//! its last owner left.
//!
//! This is one of the modules that may use `unsafe`: an allocation with an alignment of its own
//! has no safe form. It owns plain bytes, nothing else.
#![allow(unsafe_code)]

mod pool;

pub use pool::{BufPool, PooledBuf};

use std::alloc::{Layout, alloc_zeroed, dealloc, handle_alloc_error};
use std::ops::{Deref, DerefMut};
use std::ptr::NonNull;

/// Alignment of every buffer, in bytes: a page, which is also what direct I/O asks for.
pub const ALIGN: usize = 4096;

/// Buffers of this size or more are aligned for, and ask for, huge pages.
const HUGE: usize = 2 << 20;

/// An owned, page-aligned buffer of bytes. Its length never changes.
pub struct Buf {
    /// Start of `len` initialised bytes from the allocator, dangling when `len` is 0.
    start: NonNull<u8>,
    len: usize,
}

// SAFETY: a Buf owns its bytes as a Box<[u8]> does; nothing in it is bound to a thread.
unsafe impl Send for Buf {}
// SAFETY: through a shared Buf the bytes can only be read.
unsafe impl Sync for Buf {}

impl Buf {
    /// A buffer of `len` zero bytes.
    ///
    /// # Panics
    /// When `len` is above half the address space, and, as everywhere in Rust, when the system has
    /// no memory left.
    pub fn zeroed(len: usize) -> Buf {
        if len == 0 {
            return Buf { start: NonNull::dangling(), len };
        }
        let layout = Buf::layout(len);
        // SAFETY: the layout's size is not zero.
        let start = unsafe { alloc_zeroed(layout) };
        match NonNull::new(start) {
            Some(start) => Buf { start, len },
            None => handle_alloc_error(layout),
        }
    }

    /// A buffer with a copy of `bytes`.
    pub fn from_slice(bytes: &[u8]) -> Buf {
        let mut buf = Buf::zeroed(bytes.len());
        buf.copy_from_slice(bytes);
        buf
    }

    fn layout(len: usize) -> Layout {
        let align = if len >= HUGE { HUGE } else { ALIGN };
        Layout::from_size_align(len, align).expect("a buffer is smaller than the address space")
    }
}

impl Drop for Buf {
    fn drop(&mut self) {
        if self.len > 0 {
            // SAFETY: `start` came from the allocator with this very layout, and is freed once.
            unsafe { dealloc(self.start.as_ptr(), Buf::layout(self.len)) }
        }
    }
}

impl Deref for Buf {
    type Target = [u8];
    fn deref(&self) -> &[u8] {
        // SAFETY: `start` is valid for `len` initialised bytes (or dangling, aligned and len 0),
        // owned by self, and &self keeps writers out.
        unsafe { std::slice::from_raw_parts(self.start.as_ptr(), self.len) }
    }
}

impl DerefMut for Buf {
    fn deref_mut(&mut self) -> &mut [u8] {
        // SAFETY: as in `deref`, and &mut self keeps everybody else out.
        unsafe { std::slice::from_raw_parts_mut(self.start.as_ptr(), self.len) }
    }
}

impl AsRef<[u8]> for Buf {
    fn as_ref(&self) -> &[u8] {
        self
    }
}

impl Default for Buf {
    fn default() -> Buf {
        Buf::zeroed(0)
    }
}

impl Clone for Buf {
    fn clone(&self) -> Buf {
        Buf::from_slice(self)
    }
}

impl std::fmt::Debug for Buf {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Buf({} bytes)", self.len)
    }
}

#[cfg(test)]
mod tests;
