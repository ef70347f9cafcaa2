//! Reading ahead: a file that is read from one end to the other is read from disks in large pieces.
//!
//! Place: in front of [`Object::read`], for pools on disks; in memory there is nothing to gain.
//! The one idea: when a read goes on where the last one ended, twice as much as the last time is read, and kept
//! for the reads to come. A disk that has to seek 8 ms for each of thirty streams is busy with data for as long
//! only if it is asked for a megabyte at a time. What is kept was verified, and is used only as long as the
//! object has not changed under it.
//!
//! The lock of the stream is held over the read that fills it; that keeps nobody waiting, since it is only tried:
//! who does not get it reads for himself.

use rt::buf::PooledBuf;
use rt::sync::Arc;
use rt::sync::atomic::{AtomicU64, Ordering};

use super::Object;
use crate::error::Result;

/// Bytes that are read at once when a second read follows the first, and at most.
const WINDOWS: (usize, usize) = (2 << 20, 16 << 20);
/// Bytes that are kept for all streams of a pool, at most.
const KEPT_MAX: u64 = 768 << 20;

/// What is known of the stream of reads.
#[derive(Default)]
pub(super) struct Ahead {
    /// Where the last read ended.
    next: u64,
    window: usize,
    kept: Option<Kept>,
}

/// Bytes that were read before they were asked for.
struct Kept {
    start: u64,
    bytes: PooledBuf,
    /// The object's version that they are of.
    version: u64,
    _share: Share,
}

/// A share of what may be kept; goes back when it is dropped.
struct Share(Arc<AtomicU64>, u64);

impl Share {
    fn take(all: &Arc<AtomicU64>, bytes: u64) -> Option<Share> {
        if all.fetch_add(bytes, Ordering::Relaxed) + bytes > KEPT_MAX {
            all.fetch_sub(bytes, Ordering::Relaxed);
            return None;
        }
        Some(Share(all.clone(), bytes))
    }
}

impl Drop for Share {
    fn drop(&mut self) {
        self.0.fetch_sub(self.1, Ordering::Relaxed);
    }
}

impl Object {
    /// Reads `buf.len()` bytes from byte `offset` on; holes and what lies beyond read as zeros.
    ///
    /// Bulk path: whole records land in `buf` and are verified there.
    pub fn read(&self, offset: u64, buf: &mut [u8]) -> Result<()> {
        if !self.store.is_on_disks() {
            return self.read_now(offset, buf);
        }
        // Two who read the same file at once are no stream.
        let Some(mut ahead) = self.ahead.try_lock() else { return self.read_now(offset, buf) };
        let end = offset + buf.len() as u64;
        let follows = ahead.next == offset;
        ahead.next = end;
        if !follows {
            (ahead.window, ahead.kept) = (0, None);
            return self.read_now(offset, buf);
        }
        let mut done = 0;
        while done < buf.len() {
            let at = offset + done as u64;
            match self.take_kept(&ahead, at, &mut buf[done..]) {
                Some(count) => done += count,
                None if self.keep_more(&mut ahead, at, buf.len() - done)? => {}
                None => return self.read_now(at, &mut buf[done..]),
            }
        }
        Ok(())
    }

    /// Copies what is kept from byte `at` on; how much. `None`: nothing, or the object has changed.
    fn take_kept(&self, ahead: &Ahead, at: u64, buf: &mut [u8]) -> Option<usize> {
        let kept = ahead.kept.as_ref()?;
        let from = usize::try_from(at.checked_sub(kept.start)?).ok()?;
        let bytes = kept.bytes.get(from..).filter(|bytes| !bytes.is_empty())?;
        let count = bytes.len().min(buf.len());
        if !self.is_as_on_disk(kept.version, at, count as u64) {
            return None;
        }
        buf[..count].copy_from_slice(&bytes[..count]);
        Some(count)
    }

    /// Reads a window from the record of byte `at` on, if more than `wanted` bytes are worth it.
    fn keep_more(&self, ahead: &mut Ahead, at: u64, wanted: usize) -> Result<bool> {
        let size = u64::from(self.block_size()?);
        let start = at - at % size;
        let left = (self.max_block()? + 1).saturating_mul(size).saturating_sub(start);
        ahead.window = (2 * ahead.window).clamp(WINDOWS.0, WINDOWS.1);
        let length = left.min((ahead.window as u64).next_multiple_of(size));
        // What is asked for in large pieces anyway needs no copy.
        if length <= wanted as u64 {
            return Ok(false);
        }
        ahead.kept = None;
        let version = self.version();
        let Some(share) = Share::take(self.store.ahead(), length) else { return Ok(false) };
        let mut bytes = self.store.buffers().get(length as usize);
        self.read_now(start, &mut bytes)?;
        ahead.kept = Some(Kept { start, bytes, version, _share: share });
        // Whoever changed it meanwhile is read after, as it is now.
        Ok(self.is_as_on_disk(version, start, length))
    }

    /// Is the object of this version still, with nothing newer in memory within these bytes?
    fn is_as_on_disk(&self, version: u64, at: u64, count: u64) -> bool {
        let Ok(size) = self.block_size() else { return false };
        let (first, last) = (at / u64::from(size), (at + count - 1) / u64::from(size));
        self.version() == version && self.is_unchanged(first, last - first + 1)
    }
}
