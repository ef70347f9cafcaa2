//! Where buffers' bytes live: the allocator for small ones, huge pages for large ones.
//!
//! The one idea: a fault for every 4 KiB costs more than writing the bytes (0.5 CPU seconds per
//! GiB, measured; parity and checksums together take 0.1). Regions of 2 MiB and more are therefore
//! mapped on huge pages and filled in with one call, which costs a sixth of that; those of a record
//! are at least filled in with one call, and zeroed once: the allocator would do it again.
//!
//! This is one of two places of `rt::buf` that use `unsafe`: an alignment of its own, and a mapping,
//! have no safe form. It owns plain bytes, nothing else. A [`Piece`] is an exclusive part of a
//! region: [`Memory::carve`] takes the region and gives out parts that do not overlap.
#![allow(unsafe_code)]

use crate::sync::Arc;
use rustix::mm::{Advice, MapFlags, ProtFlags, madvise, mmap_anonymous, munmap};
use std::alloc::{Layout, alloc_zeroed, dealloc, handle_alloc_error};
use std::ops::{Deref, DerefMut};
use std::ptr::{NonNull, null_mut};
use std::sync::atomic::{AtomicUsize, Ordering};

/// Alignment of every buffer, in bytes: a page, which is also what direct I/O asks for.
pub const ALIGN: usize = 4096;

/// A huge page. Regions of this size or more are mapped.
pub(super) const HUGE: usize = 2 << 20;

/// Regions of so many bytes or more are mapped by themselves. The allocator does that, too, with those of this size.
const MAPPED_LEAST: usize = 128 << 10;

/// An owned region of initialised bytes.
pub(super) struct Memory {
    /// Start of `len` initialised bytes, dangling when `len` is 0.
    start: NonNull<u8>,
    len: usize,
    /// Bytes of the mapping; 0 when the bytes are the allocator's.
    mapped: usize,
}

// SAFETY: a Memory owns its bytes as a Box<[u8]> does; nothing in it is bound to a thread.
unsafe impl Send for Memory {}
// SAFETY: through a shared Memory the bytes can only be read.
unsafe impl Sync for Memory {}

impl Memory {
    /// `len` zero bytes.
    pub(super) fn zeroed(len: usize) -> Memory {
        if len >= HUGE
            && let Some(memory) = Memory::map(len)
        {
            return memory;
        }
        if len >= MAPPED_LEAST
            && let Some(memory) = Memory::filled_in(len)
        {
            return memory;
        }
        if len == 0 {
            return Memory::default();
        }
        let layout = Memory::layout(len);
        // SAFETY: the layout's size is not zero.
        match NonNull::new(unsafe { alloc_zeroed(layout) }) {
            Some(start) => Memory { start, len, mapped: 0 },
            None => handle_alloc_error(layout),
        }
    }

    fn layout(len: usize) -> Layout {
        Layout::from_size_align(len, ALIGN).expect("a buffer is smaller than the address space")
    }

    /// `len` zero bytes on pages of the usual size, all of them there.
    fn filled_in(len: usize) -> Option<Memory> {
        let size = len.checked_next_multiple_of(ALIGN)?;
        let (prot, flags) =
            (ProtFlags::READ | ProtFlags::WRITE, MapFlags::PRIVATE | MapFlags::POPULATE);
        // SAFETY: the kernel chooses the place of a new mapping, so nothing is there yet.
        let start = unsafe { mmap_anonymous(null_mut(), size, prot, flags) }.ok()?;
        NonNull::new(start.cast()).map(|start| Memory { start, len, mapped: size })
    }

    /// `len` zero bytes on huge pages, if the system gives them; what it does not give (a kernel
    /// without huge pages, or before 5.14) only costs time.
    fn map(len: usize) -> Option<Memory> {
        let size = len.checked_next_multiple_of(HUGE)?;
        let wide = size.checked_add(HUGE)?;
        let (prot, flags) = (ProtFlags::READ | ProtFlags::WRITE, MapFlags::PRIVATE);
        // SAFETY: the kernel chooses the place of a new mapping, so nothing is there yet.
        let base = unsafe { mmap_anonymous(null_mut(), wide, prot, flags) }.ok()?;
        let head = base.cast::<u8>().align_offset(HUGE).min(HUGE);
        let start = base.wrapping_byte_add(head);
        // What lies before and behind the aligned part goes back.
        for (at, size) in [(base, head), (start.wrapping_byte_add(size), wide - size - head)] {
            if size > 0 {
                // SAFETY: part of the mapping just made, to which no reference exists.
                unsafe { munmap(at, size) }.ok()?;
            }
        }
        // SAFETY: both keep the bytes of an anonymous mapping as they are, zero.
        unsafe {
            let _ = madvise(start, size, Advice::LinuxHugepage);
            let _ = madvise(start, size, Advice::LinuxPopulateWrite);
        }
        NonNull::new(start.cast()).map(|start| Memory { start, len, mapped: size })
    }

    /// Cuts the region into pieces of `size` bytes; a rest stays unused.
    pub(super) fn carve(self, size: usize) -> Vec<Piece> {
        let count = self.len.checked_div(size).unwrap_or(0);
        let region = Arc::new(Region { memory: self, count, idle: AtomicUsize::new(0) });
        let piece = |n| Piece { region: region.clone(), at: n * size, len: size, is_bare: false };
        (0..count).map(piece).collect()
    }
}

impl Default for Memory {
    fn default() -> Memory {
        Memory { start: NonNull::dangling(), len: 0, mapped: 0 }
    }
}

impl Drop for Memory {
    fn drop(&mut self) {
        if self.mapped > 0 {
            // SAFETY: the mapping is this region's alone, and ends with it.
            let result = unsafe { munmap(self.start.as_ptr().cast(), self.mapped) };
            debug_assert!(result.is_ok(), "what was mapped can be unmapped");
        } else if self.len > 0 {
            // SAFETY: `start` came from the allocator with this very layout, and is freed once.
            unsafe { dealloc(self.start.as_ptr(), Memory::layout(self.len)) }
        }
    }
}

impl Deref for Memory {
    type Target = [u8];
    fn deref(&self) -> &[u8] {
        // SAFETY: `start` is valid for `len` initialised bytes (or dangling, aligned and len 0),
        // owned by self, and &self keeps writers out.
        unsafe { std::slice::from_raw_parts(self.start.as_ptr(), self.len) }
    }
}

impl DerefMut for Memory {
    fn deref_mut(&mut self) -> &mut [u8] {
        // SAFETY: as in `deref`, and &mut self keeps everybody else out.
        unsafe { std::slice::from_raw_parts_mut(self.start.as_ptr(), self.len) }
    }
}

/// What pieces are parts of. Nobody looks at the memory as a whole.
struct Region {
    memory: Memory,
    count: usize,
    /// Pieces that lie idle, counted by the pool under its lock.
    idle: AtomicUsize,
}

/// An exclusive part of a region, which lives as long as its last piece.
pub(super) struct Piece {
    region: Arc<Region>,
    at: usize,
    len: usize,
    /// The system has its pages.
    is_bare: bool,
}

impl Piece {
    /// Says which region it is a part of: equal for pieces of one region.
    pub(super) fn region(&self) -> usize {
        self.region.memory.start.as_ptr() as usize
    }

    /// Whether all pieces of its region lie idle.
    pub(super) fn region_is_idle(&self) -> bool {
        self.region.idle.load(Ordering::Relaxed) == self.region.count
    }

    /// How many pieces of its region are in use.
    pub(super) fn region_in_use(&self) -> usize {
        self.region.count.saturating_sub(self.region.idle.load(Ordering::Relaxed))
    }

    /// Whether it has been stripped, and not filled in since.
    pub(super) fn is_bare(&self) -> bool {
        self.is_bare
    }

    /// Gives its pages to the system, while the rest of its region is in use: it is of zeros from now on.
    pub(super) fn strip(&mut self) {
        // A part of a huge page goes when that is cut up, which the system leaves for later, but for what is called cold.
        for advice in [Advice::LinuxCold, Advice::LinuxDontNeed] {
            // SAFETY: whole pages (ALIGN) of private memory that are this piece's alone; they stay what was there, or zeros.
            let _ = unsafe { madvise(self.start().cast(), self.len, advice) };
        }
        self.is_bare = true;
    }

    /// Gets its pages back in one call: to get them one by one takes longer.
    pub(super) fn fill_in(&mut self) {
        // SAFETY: it keeps the bytes as they are.
        let _ = unsafe { madvise(self.start().cast(), self.len, Advice::LinuxPopulateWrite) };
        self.is_bare = false;
    }

    /// Counts it as idle, or as in use.
    pub(super) fn set_idle(&self, idle: bool) {
        if idle {
            self.region.idle.fetch_add(1, Ordering::Relaxed);
        } else {
            self.region.idle.fetch_sub(1, Ordering::Relaxed);
        }
    }

    fn start(&self) -> *mut u8 {
        self.region.memory.start.as_ptr().wrapping_add(self.at)
    }
}

impl Deref for Piece {
    type Target = [u8];
    fn deref(&self) -> &[u8] {
        // SAFETY: `carve` consumed the region and gave each part to one piece, so these initialised
        // bytes are this piece's alone; they live as long as the region, which the piece holds.
        unsafe { std::slice::from_raw_parts(self.start(), self.len) }
    }
}

impl DerefMut for Piece {
    fn deref_mut(&mut self) -> &mut [u8] {
        // SAFETY: as in `deref`, and &mut self keeps everybody else out.
        unsafe { std::slice::from_raw_parts_mut(self.start(), self.len) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn mapped_or_not_it_is_zero_and_aligned() {
        for len in [1, 4096, HUGE - 1, HUGE, HUGE + 1, 5 * HUGE] {
            let mut memory = Memory::zeroed(len);
            assert_eq!(memory.len(), len);
            assert!(memory.iter().all(|&b| b == 0));
            let align = if len >= HUGE { HUGE } else { ALIGN };
            assert_eq!(memory.as_ptr().align_offset(align), 0);
            memory.fill(1);
            assert_eq!(memory.iter().map(|&b| usize::from(b)).sum::<usize>(), len);
        }
    }

    #[test]
    fn pieces_do_not_overlap_and_outlive_each_other() {
        let mut pieces = Memory::zeroed(HUGE + 100).carve(12_288);
        assert_eq!(pieces.len(), HUGE / 12_288);
        pieces[1..].iter().for_each(|piece| piece.set_idle(true));
        assert!(!pieces[0].region_is_idle());
        pieces[0].set_idle(true);
        assert!(pieces[7].region_is_idle());
        for (n, piece) in pieces.iter_mut().enumerate() {
            piece.fill(n as u8);
        }
        let last = pieces.pop().expect("there are many");
        assert!(pieces.iter().enumerate().all(|(n, p)| p.iter().all(|&b| b == n as u8)));
        assert!(pieces.iter().all(|p| p.region() == last.region()));
        let count = pieces.len();
        drop(pieces);
        assert!(last.iter().all(|&b| b == count as u8));
        assert!(Memory::zeroed(100).carve(0).is_empty());
    }
}
