//! The queue in front of one disk: priorities, many I/Os at once, and a deadline for each.
//!
//! The one idea: an I/O owns its buffers until the disk has answered. So whoever waits can give up
//! when the deadline has passed, and no worker and no other disk waits for a disk that hangs: the
//! buffers stay with the lost I/O and come back to their pool when it ends, if it ever does.
//!
//! A caller puts the I/Os of one parent (the columns of a record, a run of records), to any number
//! of disks, into one [`Batch`] and waits once.
//!
//! With no threads ([`Options::inline`]) an I/O is done by the caller when it is submitted, and
//! without a deadline: right for files in the page cache and on tmpfs, where nothing hangs and
//! nothing is faster.
//!
//! I/Os of one class that follow each other and wait together are done as one.
//!
//! A write that was given up may still land. So that it never lands on top of a newer one, writes
//! and flushes to a disk with a lost write fail at once, until the lost write has ended. So does
//! everything while each thread has been at the disk for longer than its deadline. What was given up
//! while it still waited in the queue is never done, and its buffers are given back at once.
//!
//! A scan reads what is on the disk, not what the system remembers of it.

mod batch;
mod device;
mod schedule;

pub use batch::{Batch, Outcome};
pub use schedule::Class;

use crate::error::{DeviceError, Operation, Result};
use crate::meter::{Done, Meter};
use crate::{Device, WriteDevice, WriteFile};
use batch::Ticket;
use rt::sync::atomic::{AtomicU64, Ordering};
use rt::sync::{Arc, Condvar, Mutex, Weak};
use rt::time::{self, Instant};
use rt::{BufPool, PooledBuf, thread};
use schedule::Schedule;
use std::io::{IoSlice, IoSliceMut};
use std::time::Duration;

/// Bytes to be written, shared with whoever else reads them.
pub type WriteBuf = Arc<dyn AsRef<[u8]> + Send + Sync>;

/// Bytes after which I/Os that follow each other are no longer done as one.
const TOGETHER_MAX: u64 = 4 << 20;

/// How a queue serves its disk.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Options {
    /// Threads, that is I/Os at the disk at once. With 0 the caller does each I/O itself.
    pub threads: usize,
    /// How long an I/O may take, from its submission on, before who waits for it gives up.
    pub deadline: Duration,
    /// I/Os that may wait in the queue; who submits one more waits.
    pub waiting_max: usize,
}

impl Options {
    /// The caller does each I/O itself: for files in the page cache or on tmpfs.
    pub fn inline() -> Options {
        Options { threads: 0, ..Options::threads(0) }
    }

    /// `threads` I/Os at a time: for disks.
    pub fn threads(threads: usize) -> Options {
        Options { threads, deadline: Duration::from_secs(30), waiting_max: 1024 }
    }

    /// What suits a file or disk: threads for block devices, inline for regular files.
    pub fn for_file(is_block_device: bool) -> Options {
        if is_block_device { Options::threads(4) } else { Options::inline() }
    }
}

/// A queue to which reads can be given without waiting, whatever device is behind it.
pub trait ReadQueue: Send + Sync {
    /// Submits a read; the bytes come with the outcome. Returns its place in the batch.
    fn start_read(&self, batch: &Batch, class: Class, offset: u64, size: usize) -> usize {
        self.start_reads(batch, class, &[(offset, size)])[0]
    }

    /// Submits reads, each of so many bytes from an offset on, before the disk gets to see the first: so those
    /// that follow each other are one for it. Returns their places in the batch.
    fn start_reads(&self, batch: &Batch, class: Class, reads: &[(u64, usize)]) -> Vec<usize>;
}

/// A queue to which writes can be given without waiting, whatever device is behind it.
pub trait WriteQueue: ReadQueue {
    /// Submits a write of the buffers, one after the other, from `offset` on; copies them, because
    /// a write that is given up keeps its bytes. Returns its place in the batch.
    fn start_write(&self, batch: &Batch, class: Class, offset: u64, bufs: &[IoSlice<'_>]) -> usize;

    /// Submits a flush of the writes whose outcome is known. If it fails, that is counted before anybody can flush
    /// again. Returns its place in the batch.
    fn start_flush(&self, batch: &Batch, failures: &Arc<AtomicU64>) -> usize;
}

/// What to do with the disk. How to write is known only where the device can.
enum Action<D: ?Sized> {
    /// Into a buffer; without one it gets its own when its turn has come. What waits costs no memory, and gets
    /// that of I/Os which ended in the meantime.
    Read(Option<PooledBuf>),
    Write(Vec<WriteBuf>, fn(&D, u64, &[IoSlice<'_>]) -> Result<()>),
    Flush(fn(&D) -> Result<()>, Arc<AtomicU64>),
}

/// An I/O that waits in the queue.
struct Io<D: ?Sized> {
    action: Action<D>,
    offset: u64,
    size: u64,
    ticket: Ticket,
}

impl<D: Device> Io<D> {
    /// May the disk be asked for the other in the same breath, if it follows?
    fn joins(&self, other: &Io<D>) -> bool {
        let both = (&self.action, &other.action);
        matches!(both, (Action::Read(_), Action::Read(_)) | (Action::Write(..), Action::Write(..)))
    }

    fn end(self, result: Result<()>) {
        let buf = match self.action {
            Action::Read(buf) => buf,
            _ => None,
        };
        self.ticket.end(result, buf);
    }

    /// Its turn has come.
    fn make_room(&mut self, pool: &BufPool) {
        if let Action::Read(buf @ None) = &mut self.action {
            *buf = Some(pool.get(self.size as usize));
        }
    }

    fn is_wanted(&self) -> bool {
        self.ticket.is_wanted()
    }

    fn operation(&self) -> Operation {
        match &self.action {
            Action::Read(_) => Operation::Read,
            Action::Write(..) => Operation::Write,
            Action::Flush(..) => Operation::Flush,
        }
    }

    /// Does I/Os that follow each other as one.
    fn act(device: &D, class: Class, ios: &mut [Io<D>]) -> Result<()> {
        let Some(first) = ios.first_mut() else { return Ok(()) };
        let at = first.offset;
        match &mut first.action {
            Action::Flush(flush, failures) => {
                flush(device).inspect_err(|_| _ = failures.fetch_add(1, Ordering::AcqRel))
            }
            Action::Write(_, write) => {
                let write = *write;
                let bufs = ios.iter().filter_map(|io| match &io.action {
                    Action::Write(bufs, _) => Some(bufs),
                    _ => None,
                });
                let slices: Vec<_> =
                    bufs.flatten().map(|buf| IoSlice::new((**buf).as_ref())).collect();
                write(device, at, &slices)
            }
            Action::Read(_) => {
                let bufs = ios.iter_mut().filter_map(|io| match &mut io.action {
                    Action::Read(Some(buf)) => Some(IoSliceMut::new(buf)),
                    _ => None,
                });
                let mut bufs: Vec<_> = bufs.collect();
                match class {
                    Class::Scan => device.read_uncached(at, &mut bufs),
                    _ => device.read_vectored_at(at, &mut bufs),
                }
            }
        }
    }
}

struct State<D: ?Sized> {
    schedule: Schedule<Io<D>>,
    /// By thread: when it was asked for what it is doing at the disk.
    at_disk: Vec<Option<Instant>>,
    alive: usize,
    stop: bool,
}

struct Shared<D: ?Sized> {
    options: Options,
    state: Mutex<State<D>>,
    /// There is something to do, or the end.
    work: Condvar,
    /// There is room, or one thread less.
    room: Condvar,
    losses: Arc<Losses>,
    /// Held by who flushes until a failure is counted: the disk tells of it once, so the next one's flush ends well.
    flushing: Mutex<()>,
    meter: Meter,
    pool: BufPool,
    device: D,
}

/// A queue that holds I/Os which nobody waits for any more.
trait Forgets: Send + Sync {
    /// Lets go of them.
    fn forget(&self);
}

/// What became of I/Os that were given up.
struct Losses {
    queue: Weak<dyn Forgets>,
    /// Given up while at the disk, not yet ended.
    running: AtomicU64,
    /// Of those, writes.
    writes: AtomicU64,
    /// All that were ever given up.
    given_up: AtomicU64,
}

impl Losses {
    fn of(queue: Weak<dyn Forgets>) -> Arc<Losses> {
        let (running, writes, given_up) = Default::default();
        Arc::new(Losses { queue, running, writes, given_up })
    }

    /// I/Os were given up while they waited in the queue.
    fn forget(&self) {
        if let Some(queue) = self.queue.upgrade() {
            queue.forget();
        }
    }
}

/// What a queue is doing.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct QueueState {
    /// I/Os that wait.
    pub waiting: usize,
    /// I/Os at the disk, lost ones included.
    pub active: usize,
    /// I/Os that were given up and are still at the disk.
    pub lost: u64,
    /// I/Os that were ever given up.
    pub given_up: u64,
}

/// The queue in front of one disk. It is a device itself, for callers that do one thing at a time.
pub struct LeafQueue<D: Device + 'static> {
    shared: Arc<Shared<D>>,
    threads: Vec<thread::JoinHandle<()>>,
}

impl LeafQueue<WriteFile> {
    /// A queue that suits the file or disk.
    pub fn for_writing(file: WriteFile, pool: BufPool) -> LeafQueue<WriteFile> {
        let options = Options::for_file(file.is_block_device());
        LeafQueue::new(file, options, pool)
    }
}

impl<D: Device + 'static> LeafQueue<D> {
    /// A queue in front of `device`. Buffers that it needs itself come from `pool`.
    pub fn new(device: D, options: Options, pool: BufPool) -> LeafQueue<D> {
        let name = device.name().to_owned();
        let schedule = Schedule::new(options.threads);
        let (at_disk, alive) = (vec![None; options.threads], options.threads);
        let shared = Arc::new_cyclic(|shared: &Weak<Shared<D>>| Shared {
            options,
            state: Mutex::new(State { schedule, at_disk, alive, stop: false }),
            work: Condvar::new(),
            room: Condvar::new(),
            losses: Losses::of(shared.clone()),
            flushing: Mutex::default(),
            meter: Meter::new(),
            pool,
            device,
        });
        let start = |n| {
            let shared = shared.clone();
            thread::spawn(format!("{name}-{n}"), move || shared.serve(n))
        };
        let threads = (0..options.threads).map(start).collect();
        LeafQueue { shared, threads }
    }

    /// The device behind the queue.
    pub fn device(&self) -> &D {
        &self.shared.device
    }

    /// What the queue is doing now.
    pub fn state(&self) -> QueueState {
        let state = self.shared.state.lock();
        QueueState {
            waiting: state.schedule.waiting(),
            active: state.schedule.active(),
            lost: self.shared.losses.running.load(Ordering::Relaxed),
            given_up: self.shared.losses.given_up.load(Ordering::Relaxed),
        }
    }

    /// Submits a read of `buf.len()` bytes at `offset`; the buffer comes back with the outcome.
    /// Returns the place of the outcome in the batch. Waits only when the queue is full.
    pub fn read(&self, batch: &Batch, class: Class, offset: u64, buf: PooledBuf) -> usize {
        let size = buf.len() as u64;
        self.submit_one(batch, class, Operation::Read, offset, size, Action::Read(Some(buf)))
    }

    fn submit_one(
        &self,
        batch: &Batch,
        class: Class,
        operation: Operation,
        offset: u64,
        size: u64,
        action: Action<D>,
    ) -> usize {
        let io = self.prepare(batch, operation, offset, size, action);
        let place = io.ticket.place();
        self.submit(class, operation, vec![io]);
        place
    }

    /// An I/O with its place in the batch.
    fn prepare(
        &self,
        batch: &Batch,
        operation: Operation,
        offset: u64,
        size: u64,
        action: Action<D>,
    ) -> Io<D> {
        let shared = &*self.shared;
        let name = shared.device.name();
        let deadline = (!self.threads.is_empty()).then_some(shared.options.deadline);
        let ticket = batch.add(name, operation, offset, size, deadline, &shared.losses);
        Io { action, offset, size, ticket }
    }

    /// Gives I/Os of one kind to the disk, all at once as far as there is room.
    fn submit(&self, class: Class, operation: Operation, ios: Vec<Io<D>>) {
        let shared = &*self.shared;
        if self.threads.is_empty() {
            for mut io in ios {
                io.make_room(&shared.pool);
                let result = shared.act(class, std::slice::from_mut(&mut io), true);
                io.end(result);
            }
            return;
        }
        let mut state = shared.state.lock();
        let lost_write = shared.losses.writes.load(Ordering::Acquire) > 0;
        if lost_write && operation != Operation::Read || shared.is_lost(&state) {
            drop(state);
            ios.iter().for_each(|io| io.ticket.refuse());
            return;
        }
        let give_up = time::now() + shared.options.deadline;
        let is_full = |state: &State<D>| state.schedule.waiting() >= shared.options.waiting_max;
        let mut forgotten: Option<Vec<Io<D>>> = None;
        // How many the disk will see, about: what follows the one before goes with it.
        let (mut wake, mut start, mut end) = (0, 0, None);
        for io in ios {
            if is_full(&state) {
                forgotten.get_or_insert_with(|| state.schedule.take_out(Io::is_wanted));
                shared.work.notify_all();
            }
            while is_full(&state) {
                let left = give_up.saturating_since(time::now());
                if left.is_zero() {
                    break;
                }
                state = shared.room.wait_timeout(state, left).0;
            }
            if is_full(&state) {
                io.ticket.refuse();
                continue;
            }
            if end != Some(io.offset) || io.offset - start >= TOGETHER_MAX {
                (wake, start) = (wake + 1, io.offset);
            }
            end = Some(io.offset + io.size);
            state.schedule.push(class, io.offset, io);
        }
        drop(state);
        for _ in 0..wake.min(shared.options.threads) {
            shared.work.notify_one();
        }
    }
}

impl<D: WriteDevice + 'static> LeafQueue<D> {
    /// Submits a write of the buffers, one after the other, from `offset` on. Returns the place of
    /// the outcome in the batch. Waits only when the queue is full.
    pub fn write(&self, batch: &Batch, class: Class, offset: u64, bufs: Vec<WriteBuf>) -> usize {
        let size = bufs.iter().map(|buf| (**buf).as_ref().len() as u64).sum();
        let action = Action::Write(bufs, D::write_vectored_at);
        self.submit_one(batch, class, Operation::Write, offset, size, action)
    }

    /// Submits a flush. It covers the writes whose outcome is known when it is submitted; whether it failed is counted.
    pub fn flush(&self, batch: &Batch, failures: &Arc<AtomicU64>) -> usize {
        let action = Action::Flush(D::flush, failures.clone());
        self.submit_one(batch, Class::SyncWrite, Operation::Flush, 0, 0, action)
    }
}

impl<D: Device> Shared<D> {
    /// The I/O with those waiting that begin where it ends: what lies side by side costs the disk one way.
    fn following(schedule: &mut Schedule<Io<D>>, class: Class, first: Io<D>) -> Vec<Io<D>> {
        let (mut end, mut ios) = (first.offset + first.size, vec![first]);
        while end - ios[0].offset < TOGETHER_MAX
            && let Some(next) = schedule.pop_at(class, end, |next| ios[0].joins(next))
        {
            end += next.size;
            ios.push(next);
        }
        ios
    }

    /// Is every thread at the disk with something that has passed its deadline?
    fn is_lost(&self, state: &State<D>) -> bool {
        let is_late = |asked: Instant| asked.elapsed() >= self.options.deadline;
        state.at_disk.iter().all(|asked| asked.is_some_and(is_late))
    }

    /// Does I/Os that follow each other as one, and counts them before anybody hears of their end; `at_once`: they
    /// have not waited.
    fn act(&self, class: Class, ios: &mut [Io<D>], at_once: bool) -> Result<()> {
        let is_flush = ios.first().is_some_and(|io| io.operation() == Operation::Flush);
        // Who waits here for a flush that hangs is given up as any other.
        let flushing = is_flush.then(|| self.flushing.lock());
        let start = time::now();
        let result = Io::act(&self.device, class, ios);
        drop(flushing);
        let (Ok(()), Some(first)) = (&result, ios.first()) else { return result };
        let oldest = ios.iter().map(|io| io.ticket.submitted()).min();
        let queued = oldest.filter(|_| !at_once).map(|oldest| start.saturating_since(oldest));
        self.meter.note(Done {
            class,
            operation: first.operation(),
            bytes: ios.iter().map(|io| io.size).sum(),
            joined: ios.len() > 1,
            queued,
            disk: start.elapsed(),
        });
        result
    }

    /// Does one I/O for a caller who does it himself, and counts it.
    fn metered(
        &self,
        class: Class,
        operation: Operation,
        bytes: u64,
        act: impl FnOnce(&D) -> Result<()>,
    ) -> Result<()> {
        let start = time::now();
        act(&self.device)?;
        let (joined, queued, disk) = (false, None, start.elapsed());
        self.meter.note(Done { class, operation, bytes, joined, queued, disk });
        Ok(())
    }

    /// The life of thread `number`.
    fn serve(&self, number: usize) {
        let mut state = self.state.lock();
        loop {
            if let Some((class, first)) = state.schedule.pop() {
                let ios = Self::following(&mut state.schedule, class, first);
                state.at_disk[number] = ios.iter().map(|io| io.ticket.submitted()).min();
                drop(state);
                self.room.notify_all();
                // Those that nobody waits for any more are not done at all.
                let mut wanted: Vec<Io<D>> =
                    ios.into_iter().filter(|io| io.ticket.start()).collect();
                wanted.iter_mut().for_each(|io| io.make_room(&self.pool));
                while let Some(first) = wanted.first() {
                    let mut end = first.offset;
                    let follows = |io: &&Io<D>| {
                        let follows = io.offset == end;
                        end = io.offset + io.size;
                        follows
                    };
                    let count = wanted.iter().take_while(follows).count();
                    let later = wanted.split_off(count.max(1));
                    let result = self.act(class, &mut wanted, false);
                    let alone = result.is_err() && wanted.len() > 1;
                    for mut io in std::mem::replace(&mut wanted, later) {
                        // Whose fault it is shows when each is done by itself.
                        let mut again = || self.act(class, std::slice::from_mut(&mut io), false);
                        let result = if alone { again() } else { result.clone() };
                        io.end(result);
                    }
                }
                state = self.state.lock();
                state.schedule.done(class);
                state.at_disk[number] = None;
            } else if state.stop {
                state.alive -= 1;
                drop(state);
                self.room.notify_all();
                return;
            } else {
                state = self.work.wait(state);
            }
        }
    }
}

impl<D: Device> Forgets for Shared<D> {
    fn forget(&self) {
        let forgotten = self.state.lock().schedule.take_out(Io::is_wanted);
        // What they hold goes when the lock is free.
        drop(forgotten);
        self.room.notify_all();
    }
}

impl<D: Device + 'static> Drop for LeafQueue<D> {
    /// Waits until the threads have let go of the device, but for those that are lost in it.
    fn drop(&mut self) {
        let shared = &*self.shared;
        let mut state = shared.state.lock();
        state.stop = true;
        shared.work.notify_all();
        let end = time::now() + shared.options.deadline;
        while state.alive as u64 > shared.losses.running.load(Ordering::Acquire) {
            let left = end.saturating_since(time::now());
            if left.is_zero() {
                return;
            }
            state = shared.room.wait_timeout(state, left).0;
        }
        let all_ended = state.alive == 0;
        drop(state);
        if all_ended {
            for thread in self.threads.drain(..) {
                drop(thread.try_join());
            }
        }
    }
}

impl<D: Device + 'static> ReadQueue for LeafQueue<D> {
    fn start_reads(&self, batch: &Batch, class: Class, reads: &[(u64, usize)]) -> Vec<usize> {
        let io = |(offset, size): &(u64, usize)| {
            self.prepare(batch, Operation::Read, *offset, *size as u64, Action::Read(None))
        };
        let ios: Vec<Io<D>> = reads.iter().map(io).collect();
        let places = ios.iter().map(|io| io.ticket.place()).collect();
        self.submit(class, Operation::Read, ios);
        places
    }
}

impl<D: WriteDevice + 'static> WriteQueue for LeafQueue<D> {
    fn start_write(&self, batch: &Batch, class: Class, offset: u64, bufs: &[IoSlice<'_>]) -> usize {
        let mut all = self.shared.pool.get(bufs.iter().map(|b| b.len()).sum());
        let mut at = 0;
        for buf in bufs {
            all[at..at + buf.len()].copy_from_slice(buf);
            at += buf.len();
        }
        self.write(batch, class, offset, vec![Arc::new(all)])
    }

    fn start_flush(&self, batch: &Batch, failures: &Arc<AtomicU64>) -> usize {
        LeafQueue::flush(self, batch, failures)
    }
}

fn hung(
    device: &str,
    operation: Operation,
    offset: u64,
    size: u64,
    waited: Duration,
) -> DeviceError {
    let waited_ms = waited.as_millis() as u64;
    DeviceError::Hung { device: device.to_owned(), operation, offset, size, waited_ms }
}

#[cfg(test)]
mod tests;
