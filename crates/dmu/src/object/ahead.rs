//! Reading ahead: a file that is read from one end to the other is read from disks in large pieces.
//!
//! Place: in front of [`Object::read`], for pools on disks; those in memory have [`super::prepared`].
//! The one idea: when a read goes on where the last one ended, the disks are asked for the pieces to come, and
//! work on them while the reader is served from those that have arrived. The further he has come, the more is
//! asked for. A disk that has to seek 8 ms for each of thirty streams is busy with data for as long
//! only if it is asked for a megabyte at a time.
//!
//! What arrives is raw: a record is put together, verified and decompressed where it is wanted, when it is wanted.
//! It is used only as long as the object has not changed since its pointers were read; else, and when anything
//! is wrong with it, the record is read as if nobody had looked ahead.
//!
//! The lock of the stream is held over the read that fills it; that keeps nobody waiting, since it is only tried:
//! who does not get it reads for himself.

use std::collections::VecDeque;
use std::time::Duration;

use rt::sync::{Arc, Mutex, Weak};
use rt::time::{self, Instant};
use store::{Block, Bytes, Flight, Member, Stream, Streams};

use super::Object;
use super::parents::Parents;
use super::prepared::Prepared;
use super::read::Source;
use crate::error::Result;

/// Bytes of data that are asked for at once, at most.
const WINDOW_MAX: u64 = 16 << 20;
/// Bytes of data that are under way or kept for a stream: so many at least, so many at most. From a few windows on
/// the disks have the next one while the reader is served from the one before.
const DEPTHS: (u64, u64) = (2 << 20, 256 << 20);
/// Bytes that a stream may have less than that before more is asked for, at most: so many windows are one way for
/// the heads. Of a smaller share it is half.
const BURST_MAX: u64 = 4 * WINDOW_MAX;
/// Bytes ahead for each byte that was read in sequence: the first large read starts two windows.
const BOLDNESS: u64 = 32;

/// What is known of the reads of an object.
#[derive(Default)]
pub(super) struct Ahead {
    /// Where the last read ended.
    pub(super) next: u64,
    /// Bytes read in sequence up to there.
    pub(super) run: u64,
    stream: Option<Arc<Windows>>,
    /// The same where disks have no queues.
    pub(super) prepared: Option<Arc<Prepared>>,
}

/// What is under way for a stream, or has arrived.
#[derive(Default)]
struct Windows(Mutex<Inner>);

#[derive(Default)]
pub(super) struct Inner {
    /// Counted among the streams, unless it had to let go.
    member: Option<Member>,
    /// Consecutive, the first one is being used up.
    windows: VecDeque<Window>,
    parents: Parents,
    /// A record that was used in part.
    record: Option<(u64, Block)>,
    /// When the reader came last.
    used: Option<Instant>,
}

/// Some records of an object, of one version of it.
struct Window {
    version: u64,
    first: u64,
    count: u64,
    flight: Flight,
}

impl Stream for Windows {
    fn let_go(&self, unused_for: Duration) {
        let Some(mut inner) = self.0.try_lock() else { return };
        if inner.used.is_none_or(|used| used.elapsed() >= unused_for) {
            inner.clear();
            inner.member = None;
        }
    }
}

impl Windows {
    fn weak(self: &Arc<Self>) -> Weak<dyn Stream> {
        let stream: Arc<dyn Stream> = self.clone();
        Arc::downgrade(&stream)
    }
}

impl Inner {
    fn clear(&mut self) {
        self.windows.clear();
        self.parents.clear();
        self.record = None;
    }

    /// Bytes of memory that it takes, the records' own not counted.
    fn bytes(&self) -> u64 {
        let windows: u64 = self.windows.iter().map(|window| window.flight.bytes()).sum();
        windows + self.parents.bytes()
    }
}

impl Object {
    /// Reads `buf.len()` bytes from byte `offset` on; holes and what lies beyond read as zeros.
    ///
    /// Bulk path: whole records land in `buf` and are verified there.
    pub fn read(&self, offset: u64, buf: &mut [u8]) -> Result<()> {
        let size = u64::from(self.block_size()?);
        let streamed = self.streamed(offset, buf.len() as u64, |inner, depth| {
            let mut done = 0;
            while done < buf.len() {
                let at = offset + done as u64;
                let rest = &mut buf[done..];
                self.look_ahead(inner, (at / size, size), depth);
                done += match self.take(inner, at, size, rest) {
                    Some(count) => count,
                    None => {
                        // This record, and on with the next.
                        let count = rest.len().min((size - at % size) as usize);
                        self.read_now(at, &mut rest[..count])?;
                        count
                    }
                };
            }
            Ok(())
        });
        match streamed? {
            Some(()) => Ok(()),
            None => self.read_now(offset, buf),
        }
    }

    /// Has `read` serve itself from what was looked ahead for, so far that it may go on with so many bytes, if a read of
    /// `length` bytes at `offset` is one of a stream.
    pub(super) fn streamed<R>(
        &self,
        offset: u64,
        length: u64,
        read: impl FnOnce(&mut Inner, u64) -> Result<R>,
    ) -> Result<Option<R>> {
        if length == 0 {
            return Ok(None);
        }
        // Two who read the same file at once are no stream.
        let Some(mut ahead) = self.ahead.try_lock() else { return Ok(None) };
        if ahead.next != offset {
            *ahead = Ahead { next: offset + length, run: length, ..Ahead::default() };
            return Ok(None);
        }
        ahead.next = offset + length;
        ahead.run += length;
        if !self.store.is_on_disks() {
            return Ok(None);
        }
        let size = u64::from(self.block_size()?);
        // Nothing is left to look ahead for.
        if ahead.stream.is_none() && ahead.next / size > self.max_block()? {
            return Ok(None);
        }
        let depth = ahead.run.saturating_mul(BOLDNESS).clamp(DEPTHS.0, DEPTHS.1);
        let stream = ahead.stream.get_or_insert_default().clone();
        let mut inner = stream.0.lock();
        if inner.member.is_none() {
            inner.member = Some(self.store.streams().join(stream.weak()));
        }
        inner.used = Some(time::now());
        let done = read(&mut inner, depth)?;
        if ahead.next / size > self.max_block()? {
            drop(inner);
            ahead.stream = None;
        }
        Ok(Some(done))
    }

    /// Bytes were read elsewhere: a stream that gets there goes on behind them.
    pub(super) fn read_on(&self, offset: u64, length: u64) {
        if let Some(mut ahead) = self.ahead.try_lock()
            && ahead.next == offset
        {
            ahead.next += length;
            ahead.run += length;
        }
    }

    /// Copies from what has arrived the bytes from `at` on, up to the end of their record; how many. `None`:
    /// there are none, or not as the object is now.
    fn take(&self, inner: &mut Inner, at: u64, size: u64, buf: &mut [u8]) -> Option<usize> {
        let (block, inside) = (at / size, (at % size) as usize);
        let count = buf.len().min(size as usize - inside);
        if count == size as usize {
            let (flight, index) = self.arrived(&mut inner.windows, block)?;
            let landed = self.store.land(flight, index, &mut buf[..count]);
            return landed.is_ok().then_some(count);
        }
        let record = self.take_record(inner, block, size)?;
        buf[..count].copy_from_slice(&record[inside..][..count]);
        Some(count)
    }

    /// The same of a record of which a part is wanted: it is kept for who wants the rest.
    pub(super) fn take_record(&self, inner: &mut Inner, block: u64, size: u64) -> Option<Block> {
        let (flight, index) = self.arrived(&mut inner.windows, block)?;
        if let Some((_, record)) = inner.record.as_ref().filter(|(there, _)| *there == block) {
            return Some(record.clone());
        }
        let mut record = self.store.buffers().get(size as usize);
        self.store.land(flight, index, &mut record).ok()?;
        let record = Block::new(Bytes::Pooled(record));
        inner.record = Some((block, record.clone()));
        Some(record)
    }

    /// The first window, and where block `block` is in it, if the object is still as it was then.
    fn arrived<'a>(
        &self,
        windows: &'a mut VecDeque<Window>,
        block: u64,
    ) -> Option<(&'a mut Flight, usize)> {
        let window = windows.front_mut()?;
        let index = block.checked_sub(window.first).filter(|index| *index < window.count)?;
        // In this order: a block that was dirty until a sync came in between is not what the window has.
        let is_same = self.is_unchanged(block, 1) && self.version() == window.version;
        is_same.then_some((&mut window.flight, index as usize))
    }

    /// Asks the disks for what comes after block `block`, in whose record the reader is, once enough of `depth` is
    /// used up.
    pub(super) fn look_ahead(&self, inner: &mut Inner, (block, size): (u64, u64), depth: u64) {
        let version = self.version();
        if inner.windows.iter().any(|window| window.version != version)
            || inner.windows.front().is_some_and(|window| window.first > block)
        {
            inner.clear();
        }
        while inner.windows.front().is_some_and(|window| window.first + window.count <= block) {
            inner.windows.pop_front();
        }
        let streams = self.store.streams();
        // What lies between the data is read, too: a third more is what raidz2 brings.
        let depth = depth.min(streams.share() * 3 / 4);
        let ahead = |inner: &Inner| {
            let end = inner.windows.back().map_or(block, |window| window.first + window.count);
            (end, (end - block) * size)
        };
        if ahead(inner).1 > depth - (depth / 2).min(BURST_MAX) {
            return;
        }
        // Windows that follow each other are one way for the heads, so all that is missing is asked for at once.
        loop {
            let (next, have) = ahead(inner);
            let free = streams.share().saturating_sub(inner.bytes()) * 3 / 4;
            let wanted = depth.saturating_sub(have).min(WINDOW_MAX).min(free);
            // Small pieces of a small share: a large one, when all is used up, costs the disks less. They have
            // other streams to serve until then.
            if have > 0 && wanted < (WINDOW_MAX / 2).min(depth / 4).max(size) {
                return;
            }
            let Ok(max) = self.max_block() else { return };
            let count = (wanted / size).max(1).min((max + 1).saturating_sub(next));
            let window = (count > 0).then(|| self.window(inner, (next, count, max), size, streams));
            let Some(window) = window.flatten() else { return };
            inner.windows.push_back(window);
        }
    }

    /// Asks the disks for these blocks, if they are there and there is memory for them.
    fn window(
        &self,
        inner: &mut Inner,
        (first, count, max): (u64, u64, u64),
        size: u64,
        streams: &Streams,
    ) -> Option<Window> {
        let Ok((Source::Disk(root, version), now)) = self.source(first) else { return None };
        let last = first + count - 1;
        inner.parents.before(&self.store, &root, version, (first, last));
        let mut bps = Vec::with_capacity(count as usize);
        let pointers = root.pointers(&self.store, first, count, |index, bp| {
            bps.push((index, bp));
            Ok(())
        });
        let whole = |(_, bp): &(u64, format::BlkPtr)| bp.is_hole() || bp.lsize() == size;
        if pointers.is_err() || u64::from(now) != size || !bps.iter().all(whole) {
            return None;
        }
        inner.parents.after(&self.store, &root, (last, max), streams);
        let mut flight = self.store.plan(self.number, bps);
        let memory = streams.room(flight.bytes())?;
        self.store.start(&mut flight, false, Some(memory));
        Some(Window { version, first, count, flight })
    }
}
