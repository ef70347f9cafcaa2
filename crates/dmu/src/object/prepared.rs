//! What comes next of an object that is read from one end to the other, read before it is asked for.
//!
//! Place: beside [`Object::read`], for pools in memory or the page cache, whose disks have no queues ([`super::ahead`] has the
//! others).
//! The one idea: who has served a piece of a stream has nothing to do until the next one is asked for, and that is the time to
//! read it, and some more: the reader finds them there. Each is used once, by who asks for just that, and only if the object
//! has not changed since.

use std::collections::VecDeque;
use std::time::Duration;

use rt::Grant;
use rt::buf::PooledBuf;
use rt::sync::{Arc, Mutex};
use rt::time::{Instant, now};
use store::{Member, Stream};

use super::Object;
use super::read::Source;

/// Bytes that are there for a reader, at most, but for one piece, however large.
const BYTES_MAX: u64 = 1 << 20;

/// What was read for who asks next.
#[derive(Default)]
pub(super) struct Prepared(Mutex<Inner>);

#[derive(Default)]
struct Inner {
    /// Counted among the streams, unless it had to let go.
    member: Option<Member>,
    /// One follows the other.
    pieces: VecDeque<Piece>,
    /// When the last one was read.
    since: Option<Instant>,
}

struct Piece {
    version: u64,
    offset: u64,
    bytes: PooledBuf,
    memory: Grant,
}

impl Piece {
    fn end(&self) -> u64 {
        self.offset + self.bytes.len() as u64
    }
}

impl Stream for Prepared {
    fn let_go(&self, unused_for: Duration) {
        let Some(mut inner) = self.0.try_lock() else { return };
        if inner.since.is_none_or(|since| since.elapsed() >= unused_for) {
            *inner = Inner::default();
        }
    }
}

impl Object {
    /// Reads `length` bytes behind those that are prepared, or from byte `offset` on, for who asks for them next: if somebody
    /// who reads on and on has come just there, they are whole records, and no memory has them. What cannot be read he hears
    /// of who asks for it. Is there room for more?
    pub fn prepare(&self, offset: u64, length: usize) -> bool {
        let Some(mut ahead) = self.ahead.try_lock() else { return false };
        let is_stream = ahead.next == offset && ahead.run >= 2 * length as u64;
        if self.store.is_on_disks() || length == 0 || !is_stream {
            return false;
        }
        let version = self.version();
        let prepared = ahead.prepared.get_or_insert_default();
        let mut inner = prepared.0.lock();
        if inner.pieces.front().is_some_and(|first| first.offset != offset)
            || inner.pieces.iter().any(|piece| piece.version != version)
        {
            inner.pieces.clear();
        }
        let at = inner.pieces.back().map_or(offset, Piece::end);
        let has_room = |at: u64| at == offset || at - offset + length as u64 <= BYTES_MAX;
        if !has_room(at) {
            return false;
        }
        let Some(piece) = self.read_for_later(at, length) else { return false };
        let end = piece.end();
        inner.pieces.push_back(piece);
        inner.since = Some(now());
        if inner.member.is_none() {
            let stream: Arc<dyn Stream> = prepared.clone();
            inner.member = Some(self.store.streams().join(Arc::downgrade(&stream)));
        }
        has_room(end)
    }

    /// Reads so many bytes, if they are whole records, on disk alone.
    fn read_for_later(&self, offset: u64, length: usize) -> Option<Piece> {
        let size = u64::from(self.block_size().ok()?);
        let (first, count) = (offset / size, length as u64 / size);
        let is_whole = offset.is_multiple_of(size) && count * size == length as u64;
        if !is_whole || first + count > self.max_block().ok()? + 1 {
            return None;
        }
        let Ok((Source::Disk(_, version), _)) = self.source(first) else { return None };
        if !self.is_unchanged(first, count) || !matches!(self.newest_kept(first, size), Ok(None)) {
            return None;
        }
        let memory = self.store.streams().room(length as u64)?;
        let mut bytes = self.store.buffers().get(length);
        self.read_now(offset, &mut bytes).ok()?;
        Some(Piece { version, offset, bytes, memory })
    }

    /// Is it worth asking for what was prepared?
    pub fn may_be_prepared(&self) -> bool {
        self.ahead.try_lock().is_some_and(|ahead| ahead.prepared.is_some())
    }

    /// The `length` bytes from byte `offset` on, and the memory that they take, if just those were prepared, and still are so.
    pub fn prepared(&self, offset: u64, length: usize) -> Option<(PooledBuf, Grant)> {
        let mut ahead = self.ahead.try_lock()?;
        let size = u64::from(self.block_size().ok()?);
        let mut inner = ahead.prepared.as_ref()?.0.lock();
        let piece = inner.pieces.pop_front()?;
        let is_it = piece.offset == offset && piece.bytes.len() == length;
        let (first, count) = (offset / size, length as u64 / size);
        // In this order: a block that was dirty until a sync came in between is not what was read.
        let is_same = is_it && self.is_unchanged(first, count) && self.version() == piece.version;
        if !is_same {
            inner.pieces.clear();
            return None;
        }
        drop(inner);
        ahead.next = offset + length as u64;
        ahead.run += length as u64;
        Some((piece.bytes, piece.memory))
    }
}
