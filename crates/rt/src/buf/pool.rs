//! The pool of recycled buffers.
//!
//! The one idea: `get` never waits and never fails. What limits memory in use is the account
//! (INV-5); the pool's cap limits only what lies idle. A buffer that comes back when the pool is
//! full goes to the system at once.

use super::{ALIGN, Buf};
use crate::sync::{Arc, Mutex};
use std::ops::{Deref, DerefMut};

/// The smallest class, in bytes.
const CLASS_MIN: usize = 4 << 10;
/// The largest class, in bytes. Larger buffers are made to measure and never kept.
const CLASS_MAX: usize = 16 << 20;

/// The class that serves `len`: four steps to a power of two, so that at most a quarter of a
/// buffer is unused, each a multiple of a page. None when it is larger than every class.
fn class_of(len: usize) -> Option<(usize, usize)> {
    if len > CLASS_MAX {
        return None;
    }
    let len = len.max(CLASS_MIN);
    let power = len.next_power_of_two();
    let step = (power / 8).max(ALIGN);
    let size = len.next_multiple_of(step);
    // Classes in (power/2, power] are numbered by their power and their step within it.
    let row = (power / CLASS_MIN).trailing_zeros() as usize;
    let column = (power - size) / step;
    Some((row * 4 + (3 - column), size))
}

/// Number of classes.
const CLASSES: usize = 13 * 4;

#[derive(Default)]
struct Idle {
    classes: Vec<Vec<Buf>>,
    bytes: usize,
}

struct Shared {
    idle: Mutex<Idle>,
    idle_max: usize,
}

/// A pool of recycled page-aligned buffers. Clones are the same pool.
#[derive(Clone)]
pub struct BufPool(Arc<Shared>);

/// What a pool did so far.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct PoolState {
    /// Bytes that lie idle in the pool.
    pub idle_bytes: usize,
}

impl BufPool {
    /// A pool that keeps at most `idle_bytes_max` bytes of unused buffers.
    pub fn new(idle_bytes_max: usize) -> BufPool {
        let classes = std::iter::repeat_with(Vec::new).take(CLASSES).collect();
        BufPool(Arc::new(Shared {
            idle: Mutex::new(Idle { classes, bytes: 0 }),
            idle_max: idle_bytes_max,
        }))
    }

    /// A buffer of `len` bytes with whatever its last owner left in it: for those who overwrite
    /// all of it.
    pub fn get(&self, len: usize) -> PooledBuf {
        let Some((class, size)) = class_of(len) else {
            return PooledBuf { buf: Buf::zeroed(len), len, home: None };
        };
        let recycled = {
            let mut idle = self.0.idle.lock();
            let buf = idle.classes[class].pop();
            if buf.is_some() {
                idle.bytes -= size;
            }
            buf
        };
        let buf = recycled.unwrap_or_else(|| Buf::zeroed(size));
        PooledBuf { buf, len, home: Some(self.0.clone()) }
    }

    /// A buffer of `len` zero bytes.
    pub fn get_zeroed(&self, len: usize) -> PooledBuf {
        let mut buf = self.get(len);
        buf.fill(0);
        buf
    }

    /// A buffer with a copy of `bytes`.
    pub fn copy_of(&self, bytes: &[u8]) -> PooledBuf {
        let mut buf = self.get(bytes.len());
        buf.copy_from_slice(bytes);
        buf
    }

    /// Gives idle memory back to the system until at most `keep_bytes` lie idle.
    pub fn trim(&self, keep_bytes: usize) {
        let mut freed = Vec::new(); // freed after the lock is
        let mut idle = self.0.idle.lock();
        for class in (0..CLASSES).rev() {
            while idle.bytes > keep_bytes {
                let Some(buf) = idle.classes[class].pop() else { break };
                idle.bytes -= buf.len();
                freed.push(buf);
            }
        }
        drop(idle);
        drop(freed);
    }

    /// What the pool holds now.
    pub fn state(&self) -> PoolState {
        PoolState { idle_bytes: self.0.idle.lock().bytes }
    }
}

/// A buffer that goes back to its pool when it is dropped.
pub struct PooledBuf {
    buf: Buf,
    len: usize,
    home: Option<Arc<Shared>>,
}

impl PooledBuf {
    /// Shortens the buffer, or lengthens it again up to [`PooledBuf::capacity`]; bytes that appear
    /// are initialised but not zero.
    ///
    /// # Panics
    /// When `len` is above the capacity.
    pub fn set_len(&mut self, len: usize) {
        assert!(len <= self.buf.len(), "{len} bytes in a buffer of {}", self.buf.len());
        self.len = len;
    }

    /// The length that it could have.
    pub fn capacity(&self) -> usize {
        self.buf.len()
    }
}

impl Drop for PooledBuf {
    fn drop(&mut self) {
        let Some(home) = self.home.take() else { return };
        let buf = std::mem::take(&mut self.buf);
        let Some((class, size)) = class_of(buf.len()) else { return };
        let mut idle = home.idle.lock();
        if idle.bytes + size <= home.idle_max {
            idle.bytes += size;
            idle.classes[class].push(buf);
        } else {
            drop(idle); // the buffer is freed outside the lock
        }
    }
}

impl Deref for PooledBuf {
    type Target = [u8];
    fn deref(&self) -> &[u8] {
        &self.buf[..self.len]
    }
}

impl DerefMut for PooledBuf {
    fn deref_mut(&mut self) -> &mut [u8] {
        &mut self.buf[..self.len]
    }
}

impl AsRef<[u8]> for PooledBuf {
    fn as_ref(&self) -> &[u8] {
        self
    }
}

impl std::fmt::Debug for PooledBuf {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "PooledBuf({} bytes)", self.len)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn classes_are_dense_and_tight() {
        let mut last = (usize::MAX, 0);
        for len in (1..=CLASS_MAX).step_by(512) {
            let (class, size) = class_of(len).expect("below the largest class");
            assert!(
                size >= len && size.is_multiple_of(ALIGN) && class < CLASSES,
                "{len} {class} {size}"
            );
            assert!(size - len < ALIGN.max(size / 4), "{len} wastes in {size}");
            assert_eq!(class_of(size), Some((class, size)), "a class serves its own size");
            if size != last.1 {
                assert!(last.1 < size && last.0 != class);
                last = (class, size);
            }
            assert_eq!(class, last.0, "one class, one size");
        }
        assert_eq!(class_of(CLASS_MAX + 1), None);
    }

    #[test]
    fn goes_round() {
        let pool = BufPool::new(1 << 20);
        let mut buf = pool.get(100_000);
        assert_eq!((buf.len(), buf.as_ptr().align_offset(ALIGN)), (100_000, 0));
        buf.fill(7);
        let at = buf.as_ptr();
        drop(buf);
        assert!(pool.state().idle_bytes >= 100_000);
        let again = pool.get(99_000);
        assert_eq!(again.as_ptr(), at);
        assert!(again.iter().all(|&b| b == 7), "recycled, not cleared");
        drop(again);
        assert!(pool.get_zeroed(99_000).iter().all(|&b| b == 0));
    }

    #[test]
    fn idle_memory_is_bounded() {
        let pool = BufPool::new(256 << 10);
        let many: Vec<_> = (0..16).map(|_| pool.get(64 << 10)).collect();
        drop(many);
        assert_eq!(pool.state().idle_bytes, 256 << 10);
        pool.trim(100 << 10);
        assert_eq!(pool.state().idle_bytes, 64 << 10);
        drop(pool.get(CLASS_MAX + 1));
        assert_eq!(pool.state().idle_bytes, 64 << 10);
    }
}
