//! Open files.

use std::collections::VecDeque;

use rt::sync::atomic::{AtomicU64, Ordering};
use rt::sync::{Arc, Mutex};
use wire::{BULK_MAX, Open, PIECES_MAX, Reply, Request, Stat, Subject, Target};

use crate::error::{Error, Result, code};
use crate::lanes::{Begun, Client, Missed};
use crate::whole::{Came, Room, Whole};

/// An open file. Any number of threads may use it at once; let go of when it is dropped.
pub struct File {
    pub(crate) client: Arc<Client>,
    who: Subject,
    path: Vec<u8>,
    /// How it is opened anew.
    how: Open,
    /// The file as it was then; the handle is of this one, for good.
    opened: Stat,
    open: Mutex<Handle>,
    /// Held while it is ended.
    pending: Mutex<Pending>,
    /// What came with the opening, until it was read.
    whole: Mutex<Option<Whole>>,
    closed: bool,
    /// Writes that the server has acknowledged, and of those the ones that are on stable storage. One that it has
    /// not acknowledged is repeated when it comes back; the others are there if it was closed in order.
    written: AtomicU64,
    stable: AtomicU64,
}

#[derive(Clone, Copy)]
pub(crate) struct Handle {
    pub(crate) epoch: u64,
    number: u64,
    /// As long as it is the same, no server has lost anything.
    kept_since_ms: u64,
}

/// Writes that whoever wants something else of the file has to wait for.
#[derive(Default)]
struct Pending {
    /// In the order in which they were begun.
    under_way: VecDeque<UnderWay>,
    /// One was not done, and will not be: that is what everything ends with.
    failed: Option<Error>,
}

/// Writes of a file that are under way at once, at most.
const UNDER_WAY_MAX: usize = 2;

struct UnderWay {
    asked: Arc<Begun>,
    handle: Handle,
    offset: u64,
    /// Where the next one begins.
    end: u64,
    stable: bool,
    /// What was written before.
    written: u64,
}

fn identity(stat: &Stat) -> (u64, u64, u64) {
    (stat.device, stat.object, stat.generation)
}

impl Client {
    /// Opens a file.
    ///
    /// # Errors
    /// As open(2).
    pub fn open(
        self: &Arc<Self>,
        who: &Subject,
        path: &[u8],
        how: Open,
        mode: u32,
    ) -> Result<File> {
        let mut room = how.soon.then(|| Room::of(self)).flatten();
        let how = Open { soon: room.is_some(), ..how };
        let to = room.as_mut().map_or(&mut [][..], Room::bytes);
        let (handle, stat, whole) = self.open_handle(who, path, how, mode, to)?;
        let whole = room.zip(whole).map(|(room, whole)| Whole::of(room, whole, handle.epoch));
        let Open { read, write, digests, unbroken, .. } = how;
        Ok(File {
            client: self.clone(),
            who: who.clone(),
            path: path.to_vec(),
            how: Open { read, write, digests, was_unbroken: unbroken, ..Open::default() },
            opened: stat,
            open: Mutex::new(handle),
            pending: Mutex::default(),
            whole: Mutex::new(whole),
            closed: false,
            // That it was emptied can be lost, too.
            written: AtomicU64::new(
                (how.write && how.truncate && !how.new && !how.unbroken).into(),
            ),
            stable: AtomicU64::new(0),
        })
    }

    fn open_handle(
        &self,
        who: &Subject,
        path: &[u8],
        how: Open,
        mode: u32,
        to: &mut [u8],
    ) -> Result<(Handle, Stat, Option<Came>)> {
        let request = Request::Open { who: who.clone(), path: path.to_vec(), how, mode };
        // What is made or emptied is not asked for twice.
        let again = !how.new && !how.truncate;
        match self.call_for(&request, &[], to, again)? {
            (epoch, Reply::Opened { handle: number, stat, kept_since_ms, whole }, count) => {
                let handle = Handle { epoch, number, kept_since_ms };
                Ok((handle, stat, whole.map(|mark| (mark, count))))
            }
            _ => Err(Error::protocol()),
        }
    }
}

impl File {
    /// Reads from `offset` on; fewer bytes than `buf` has only at the end of the file.
    ///
    /// # Errors
    /// As pread(2).
    pub fn read(&self, offset: u64, buf: &mut [u8]) -> Result<usize> {
        if let Some(done) = self.read_whole(offset, buf) {
            return Ok(done);
        }
        self.settle()?;
        let mut done = 0;
        for part in buf.chunks_mut(BULK_MAX) {
            let (at, length) = (offset + done as u64, part.len() as u32);
            let ask = |handle| Request::Read { handle, offset: at, length };
            let got = match self.call(ask, &[], part)? {
                (_, Reply::Bytes, got) => got,
                _ => return Err(Error::protocol()),
            };
            done += got;
            if got < length as usize {
                break;
            }
        }
        Ok(done)
    }

    /// The same of what came with the opening, if it did and is still so. What is read is read once, mostly.
    fn read_whole(&self, offset: u64, buf: &mut [u8]) -> Option<usize> {
        let mut whole = self.whole.lock();
        let done = whole.as_ref()?.read(offset, buf);
        let stays = done.is_some_and(|done| {
            whole.as_ref().is_some_and(|whole| !whole.ends_by(offset.saturating_add(done as u64)))
        });
        if !stays {
            *whole = None;
        }
        done
    }

    /// Reads pieces, `(offset, length)`, all of each, one behind the other into `buf`, which has room for exactly
    /// that.
    ///
    /// # Errors
    /// As pread(2), and ESPIPE where a piece reaches beyond the end.
    pub fn read_all(&self, pieces: &[(u64, u32)], mut buf: &mut [u8]) -> Result<()> {
        self.settle()?;
        let mut rest = pieces;
        let length = |pieces: &[(u64, u32)]| pieces.iter().map(|(_, len)| *len as usize).sum();
        if buf.len() != length(pieces) {
            return Err(Error::new(code::EINVAL, "the buffer is not as long as the pieces"));
        }
        while let Some((offset, first)) = rest.first() {
            let mut bytes = 0;
            let fits = |(_, len): &&(u64, u32)| {
                bytes += *len as usize;
                bytes <= BULK_MAX
            };
            let count = rest.iter().take(PIECES_MAX).take_while(fits).count();
            if count == 0 {
                let (now, later) = buf.split_at_mut(*first as usize);
                if self.read(*offset, now)? < now.len() {
                    return Err(Error::new(29, "a piece lies beyond the end of the file"));
                }
                (buf, rest) = (later, &rest[1..]);
                continue;
            }
            let (now, later) = rest.split_at(count);
            let (to, after) = buf.split_at_mut(length(now));
            let ask = |handle| Request::ReadAll { handle, pieces: now.to_vec() };
            match self.call(ask, &[], to)? {
                (_, Reply::Bytes, got) if got == to.len() => {}
                _ => return Err(Error::protocol()),
            }
            (buf, rest) = (after, later);
        }
        Ok(())
    }

    /// Writes all of `bytes` at `offset`.
    ///
    /// # Errors
    /// As pwrite(2); EIO once and for all when the server went away with writes that were not synced.
    pub fn write(&self, offset: u64, bytes: &[u8]) -> Result<()> {
        self.settle()?;
        if bytes.is_empty() { Ok(()) } else { self.write_and(offset, bytes, false, false) }
    }

    /// Writes all of `bytes` at `offset`, and puts all that was written on stable storage.
    ///
    /// # Errors
    /// As pwrite(2) and fsync(2).
    pub fn write_stable(&self, offset: u64, bytes: &[u8]) -> Result<()> {
        self.settle()?;
        self.write_all_stable(offset, bytes)
    }

    fn write_all_stable(&self, offset: u64, bytes: &[u8]) -> Result<()> {
        let before = self.written.load(Ordering::Acquire);
        self.write_and(offset, bytes, true, false)?;
        let parts = bytes.len().div_ceil(BULK_MAX).max(1) as u64;
        // Others may have written meanwhile: then it seems less than it is.
        self.stable.fetch_max(before + parts, Ordering::AcqRel);
        Ok(())
    }

    /// Begins to write `bytes` at `offset` if a connection is free and few requests are in flight, and returns whether it did;
    /// with `stable` it also makes all earlier writes stable. The next call on this file completes it first, unless that
    /// begins a write where this one ends and neither is `stable`. If it fails, every later call fails, the close too.
    ///
    /// # Errors
    /// As of one that was begun before.
    pub fn begin(&self, offset: u64, bytes: &[u8], stable: bool) -> Result<bool> {
        // Under one lock: nobody else begins in between.
        let mut pending = self.pending.lock();
        // What follows the last one cannot get in its way.
        let last = pending.under_way.back();
        let follows = last.is_some_and(|last| !stable && !last.stable && last.end == offset);
        self.settle_to(&mut pending, if follows { UNDER_WAY_MAX - 1 } else { 0 })?;
        if bytes.is_empty() || bytes.len() > BULK_MAX {
            return Ok(false);
        }
        let handle = *self.open.lock();
        let written = self.written.load(Ordering::Acquire);
        let ask = Request::Write { handle: handle.number, offset, stable, close: false };
        let Some(asked) = self.client.begin_in(handle.epoch, &ask, bytes) else {
            return Ok(false);
        };
        let end = offset.saturating_add(bytes.len() as u64);
        pending.under_way.push_back(UnderWay { asked, handle, offset, end, stable, written });
        Ok(true)
    }

    /// Waits for what was begun.
    ///
    /// # Errors
    /// It failed.
    pub fn settle(&self) -> Result<()> {
        self.settle_to(&mut self.pending.lock(), 0).map(drop)
    }

    /// The same, until no more than `most` of it are under way; whether all that was written is on stable storage by that.
    fn settle_to(&self, pending: &mut Pending, most: usize) -> Result<bool> {
        let mut stable = false;
        while pending.under_way.len() > most {
            let Some(write) = pending.under_way.pop_front() else { break };
            stable = write.stable;
            if let Err(error) = self.end(write) {
                pending.failed.get_or_insert(error);
            }
        }
        match &pending.failed {
            Some(error) => Err(error.clone()),
            // Unless somebody has written meanwhile.
            None => Ok(stable && self.all_is_stable()),
        }
    }

    /// Is nothing written that is not on stable storage?
    fn all_is_stable(&self) -> bool {
        self.written.load(Ordering::Acquire) == self.stable.load(Ordering::Acquire)
    }

    fn end(&self, write: UnderWay) -> Result<()> {
        match self.client.end(&write.asked) {
            Ok(reply) => {
                done(&reply?)?;
                self.count(write.handle)?;
                if write.stable {
                    // As with `write_stable`.
                    self.stable.fetch_max(write.written + 1, Ordering::AcqRel);
                }
                Ok(())
            }
            // Maybe done: once more.
            Err(bytes) if write.stable => self.write_all_stable(write.offset, &bytes),
            Err(bytes) => self.write_and(write.offset, &bytes, false, false),
        }
    }

    /// Writes the last bytes and lets go of the file; with `stable` all that was written is on stable storage then.
    ///
    /// # Errors
    /// As pwrite(2), fsync(2) and close(2).
    pub fn finish(mut self, offset: u64, bytes: &[u8], stable: bool) -> Result<()> {
        self.settle()?;
        self.write_and(offset, bytes, stable, true)?;
        self.closed = true;
        Ok(())
    }

    /// Writes; what else is to be done goes with the last part.
    fn write_and(&self, mut offset: u64, bytes: &[u8], stable: bool, close: bool) -> Result<()> {
        let mut parts = bytes.chunks(BULK_MAX).peekable();
        loop {
            let part = parts.next().unwrap_or_default();
            let is_last = parts.peek().is_none();
            let (stable, close) = (stable && is_last, close && is_last);
            let ask = |handle| Request::Write { handle, offset, stable, close };
            let (handle, reply, _) = self.call(ask, part, &mut [])?;
            done(&reply)?;
            self.count(handle)?;
            if is_last {
                return Ok(());
            }
            offset += part.len() as u64;
        }
    }

    /// Puts all that was written on stable storage.
    ///
    /// # Errors
    /// As fsync(2).
    pub fn sync(&self) -> Result<()> {
        if self.settle_to(&mut self.pending.lock(), 0)? {
            return Ok(());
        }
        let written = self.written.load(Ordering::Acquire);
        done(&self.call(|handle| Request::Sync { handle }, &[], &mut [])?.1)?;
        self.stable.fetch_max(written, Ordering::AcqRel);
        Ok(())
    }

    /// Lets go of the file; with `stable` what was written is on stable storage then.
    ///
    /// # Errors
    /// As close(2) and fsync(2).
    pub fn close(mut self, stable: bool) -> Result<()> {
        self.settle()?;
        // That a file was made is stable with the first that was written to it.
        if self.stable.load(Ordering::Acquire) > 0 && self.all_is_stable() {
            // And the digests of what was written are kept: nobody waits for the rest.
            self.let_go(false);
        } else if stable {
            let ask = |handle| Request::Close { handle, stable };
            done(&self.call(ask, &[], &mut [])?.1)?;
            self.closed = true;
        }
        // Else it is for `drop`, which cannot fail.
        Ok(())
    }

    /// Tells the server that nobody needs the handle any more; with `waits` it has heard it then.
    fn let_go(&mut self, waits: bool) {
        self.closed = true;
        let Handle { epoch, number, .. } = *self.open.lock();
        // A session that is over has no handles, and for a server that is away nobody waits to close one.
        let request = Request::Close { handle: number, stable: false };
        self.client.tell_in(epoch, &request, waits);
    }

    /// Its attributes when it was opened.
    #[must_use]
    pub fn opened(&self) -> &Stat {
        &self.opened
    }

    /// Its attributes.
    ///
    /// # Errors
    /// As fstat(2).
    pub fn stat(&self) -> Result<Stat> {
        self.settle()?;
        match self.call(|handle| Request::StatOpen { handle }, &[], &mut [])? {
            (_, Reply::Stat(stat), _) => Ok(stat),
            _ => Err(Error::protocol()),
        }
    }

    /// Sets its size.
    ///
    /// # Errors
    /// As ftruncate(2).
    pub fn truncate(&self, size: u64) -> Result<()> {
        self.settle()?;
        let who = &self.who;
        let ask = |handle| Request::Truncate { who: who.clone(), of: Target::Handle(handle), size };
        let (handle, reply, _) = self.call(ask, &[], &mut [])?;
        done(&reply)?;
        self.count(handle)
    }

    /// Counts a change that the server has acknowledged that gave this handle.
    fn count(&self, handle: Handle) -> Result<()> {
        // Under this lock nobody opens the file anew in between.
        let open = self.open.lock();
        if open.kept_since_ms != handle.kept_since_ms {
            // It went away before the change was counted, and somebody else has gone on without knowing of it.
            return Err(lost());
        }
        self.written.fetch_add(1, Ordering::AcqRel);
        Ok(())
    }

    /// Asks about the handle, opened anew if the server is another one by now. The handle that was answered about,
    /// what, and with how many bulk bytes.
    pub(crate) fn call(
        &self,
        ask: impl Fn(u64) -> Request,
        bulk: &[u8],
        to: &mut [u8],
    ) -> Result<(Handle, Reply, usize)> {
        let mut trials = self.client.trials();
        loop {
            let handle = *self.open.lock();
            match self.client.call_in(handle.epoch, &ask(handle.number), bulk, to) {
                Ok((reply, count)) => return Ok((handle, reply, count)),
                Err(Missed::Answer(error)) => return Err(error),
                Err(Missed::Session) => {
                    trials.once_more()?;
                    self.open_again(handle.epoch)?;
                }
            }
        }
    }

    /// The session of `epoch` is over: the same file once more, if nothing of it can be lost.
    fn open_again(&self, epoch: u64) -> Result<()> {
        let mut open = self.open.lock();
        if open.epoch != epoch {
            return Ok(());
        }
        let is_stable = self.all_is_stable();
        let kept_since_ms = if is_stable { 0 } else { open.kept_since_ms };
        let how = Open { kept_since_ms, ..self.how };
        let opened = self.client.open_handle(&self.who, &self.path, how, 0, &mut []);
        let (handle, stat, _) = opened.map_err(|error| match error.errno {
            code::ENOTCONN => error,
            _ if is_stable => error,
            _ => lost(),
        })?;
        if identity(&stat) != identity(&self.opened) {
            // Nobody would close it.
            let close = Request::Close { handle: handle.number, stable: false };
            self.client.tell_in(handle.epoch, &close, false);
            let why = "the server was restarted, and another file has the name now";
            return Err(Error::new(code::ESTALE, why));
        }
        *open = handle;
        Ok(())
    }
}

fn done(reply: &Reply) -> Result<()> {
    match reply {
        Reply::Done => Ok(()),
        _ => Err(Error::protocol()),
    }
}

fn lost() -> Error {
    let why = "the server was restarted; what was written and not synced may be lost";
    Error::new(code::EIO, why)
}

impl Drop for File {
    fn drop(&mut self) {
        if !self.closed {
            // Nobody hears of it.
            drop(self.settle());
            // What was written is to be seen as it is then: digests are kept with the close.
            self.let_go(self.how.write);
        }
    }
}
