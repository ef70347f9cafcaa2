//! Simulated disks: a set with one history, and the handles on its members.
//!
//! The one idea: one lock around the whole set, so that writes over all disks are counted in one
//! order, which is the order of the log.

use super::fault::{Fault, FaultId, Kind};
use super::image::Image;
use super::log::{Base, Cut, Event, Log, survivors, torn};
use super::{fold, fold_bytes};
use crate::error::{DeviceError, Operation, Result};
use crate::{Device, WriteDevice};
use rt::Rng;
use rt::sync::{Arc, Condvar, Mutex, MutexGuard};
use rustix::io::Errno;
use std::io::{IoSlice, IoSliceMut};
use std::ops::Range;

/// How often a disk was asked for something.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Counts {
    /// Read calls.
    pub reads: u64,
    /// Bytes read.
    pub bytes_read: u64,
    /// Write calls.
    pub writes: u64,
    /// Bytes written.
    pub bytes_written: u64,
    /// Flush calls.
    pub flushes: u64,
}

struct DiskState {
    /// What a reader sees.
    current: Image,
    /// What survives a power cut for sure.
    stable: Image,
    /// Writes that lie in the cache only, oldest first.
    pending: Vec<(u64, Arc<[u8]>)>,
    faults: Vec<(FaultId, Fault)>,
    counts: Counts,
}

struct State {
    disks: Vec<DiskState>,
    /// Writes over all disks.
    writes: u64,
    /// After this many writes the power goes.
    writes_max: u64,
    log: Option<Log>,
    /// Faults that count the operations of all disks.
    faults: Vec<(FaultId, Fault)>,
    fault_next: u64,
    trace: u64,
}

struct Shared {
    state: Mutex<State>,
    /// A fault was lifted.
    lifted: Condvar,
}

/// Several simulated disks with one history.
#[derive(Clone)]
pub struct SimSet {
    shared: Arc<Shared>,
    disks: Arc<[Info]>,
}

struct Info {
    name: String,
    size: u64,
    sector_size: u32,
}

/// A simulated disk. Clones are the same disk.
#[derive(Clone)]
pub struct SimDisk {
    set: SimSet,
    index: usize,
}

/// A simulated disk that can only be read: what a read-only open holds.
#[derive(Clone)]
pub struct SimReader(SimDisk);

impl SimSet {
    /// `count` empty disks of `size` bytes with sectors of 512 bytes, named d00, d01 and so on.
    pub fn new(count: usize, size: u64) -> SimSet {
        SimSet::with_sectors(count, size, 512)
    }

    /// As [`SimSet::new`], with another sector size in bytes.
    pub fn with_sectors(count: usize, size: u64, sector_size: u32) -> SimSet {
        let images = (0..count).map(|n| (format!("d{n:02}"), Image::new(size))).collect();
        SimSet::build(images, sector_size)
    }

    /// Disks with these names and bytes, such as a crash left them.
    pub fn from_images(images: Vec<(String, Image)>) -> SimSet {
        SimSet::build(images, 512)
    }

    fn build(images: Vec<(String, Image)>, sector_size: u32) -> SimSet {
        assert!(sector_size.is_power_of_two(), "a sector size is a power of two");
        let info = |(name, image): &(String, Image)| Info {
            name: name.clone(),
            size: image.size(),
            sector_size,
        };
        let disk = |(_, image): (String, Image)| DiskState {
            stable: image.clone(),
            current: image,
            pending: Vec::new(),
            faults: Vec::new(),
            counts: Counts::default(),
        };
        let infos = images.iter().map(info).collect();
        let state = State {
            disks: images.into_iter().map(disk).collect(),
            writes: 0,
            writes_max: u64::MAX,
            log: None,
            faults: Vec::new(),
            fault_next: 0,
            trace: 0,
        };
        let shared = Arc::new(Shared { state: Mutex::new(state), lifted: Condvar::new() });
        SimSet { shared, disks: infos }
    }

    /// Number of disks.
    pub fn len(&self) -> usize {
        self.disks.len()
    }

    /// Whether there is no disk.
    pub fn is_empty(&self) -> bool {
        self.disks.is_empty()
    }

    /// A handle on disk number `index`.
    pub fn disk(&self, index: usize) -> SimDisk {
        assert!(index < self.len(), "disk {index} of {}", self.len());
        SimDisk { set: self.clone(), index }
    }

    /// Handles on all disks.
    pub fn disks(&self) -> Vec<SimDisk> {
        (0..self.len()).map(|n| self.disk(n)).collect()
    }

    /// Puts a fault in that concerns all disks and counts their operations together.
    pub fn inject(&self, fault: Fault) -> FaultId {
        let mut state = self.shared.state.lock();
        let id = FaultId(state.fault_next);
        state.fault_next += 1;
        state.faults.push((id, fault));
        id
    }

    /// Takes a fault of all disks out; tells whether it has struck as often as it was to.
    pub fn lift(&self, fault: FaultId) -> bool {
        let mut state = self.shared.state.lock();
        let place = state.faults.iter().position(|(id, _)| *id == fault);
        let spent = place.is_some_and(|place| state.faults.remove(place).1.is_spent());
        self.shared.lifted.notify_all();
        spent
    }

    /// Starts a new log. Everything written before counts as stable.
    pub fn record(&self) {
        let mut state = self.shared.state.lock();
        let base = |(disk, info): (&mut DiskState, &Info)| {
            disk.stable = disk.current.clone();
            disk.pending.clear();
            Base {
                name: info.name.clone(),
                image: disk.current.clone(),
                sector_size: info.sector_size,
            }
        };
        let base = state.disks.iter_mut().zip(self.disks.iter()).map(base).collect();
        state.log = Some(Log { base, events: Vec::new() });
    }

    /// What was recorded since [`SimSet::record`]; recording goes on.
    ///
    /// # Panics
    /// When nothing is being recorded.
    pub fn log(&self) -> Log {
        self.shared.state.lock().log.clone().expect("record() was called")
    }

    /// Puts a word of the workload into the log.
    pub fn mark(&self, word: u64) {
        let mut state = self.shared.state.lock();
        state.trace = fold(state.trace, word);
        if let Some(log) = &mut state.log {
            log.events.push(Event::Mark(word));
        }
    }

    /// Writes so far, over all disks.
    pub fn writes(&self) -> u64 {
        self.shared.state.lock().writes
    }

    /// A hash over all that happened so far: every operation in order, with what was written.
    pub fn trace(&self) -> u64 {
        self.shared.state.lock().trace
    }

    /// Cuts the power just after write number `writes` (over all disks, from the beginning): every
    /// later operation fails with EIO.
    pub fn cut_after(&self, writes: u64) {
        self.shared.state.lock().writes_max = writes;
    }

    /// The disks as a power cut now would leave them. The disks themselves go on.
    pub fn crash(&self, cut: Cut, seed: u64) -> Vec<(String, Image)> {
        let mut rng = Rng::new(seed);
        let state = self.shared.state.lock();
        let disk = |(disk, info): (&DiskState, &Info)| {
            let image = match cut {
                Cut::Kept => disk.current.clone(),
                Cut::Dropped => disk.stable.clone(),
                Cut::Reordered | Cut::Torn => {
                    let pending = disk.pending.iter().map(|(at, bytes)| (*at, &**bytes));
                    survivors(&disk.stable, pending, info.sector_size, cut == Cut::Torn, &mut rng)
                }
            };
            (info.name.clone(), image)
        };
        state.disks.iter().zip(self.disks.iter()).map(disk).collect()
    }
}

impl SimDisk {
    /// One disk of its own.
    pub fn new(size: u64) -> SimDisk {
        SimSet::new(1, size).disk(0)
    }

    /// The set that it belongs to.
    pub fn set(&self) -> &SimSet {
        &self.set
    }

    /// A handle that cannot write.
    pub fn reader(&self) -> SimReader {
        SimReader(self.clone())
    }

    /// Puts a fault in.
    pub fn inject(&self, fault: Fault) -> FaultId {
        let mut state = self.set.shared.state.lock();
        let id = FaultId(state.fault_next);
        state.fault_next += 1;
        state.disks[self.index].faults.push((id, fault));
        id
    }

    /// Takes a fault out; what hangs by it goes on.
    pub fn lift(&self, fault: FaultId) {
        self.set.shared.state.lock().disks[self.index].faults.retain(|(id, _)| *id != fault);
        self.set.shared.lifted.notify_all();
    }

    /// Takes all faults out.
    pub fn heal(&self) {
        self.set.shared.state.lock().disks[self.index].faults.clear();
        self.set.shared.lifted.notify_all();
    }

    /// Rot: flips `bits` bits of what is stored within `range`, chosen by a seed.
    pub fn rot(&self, range: Range<u64>, bits: u32, seed: u64) {
        let mut rng = Rng::new(seed);
        for _ in 0..bits {
            let at = range.start + rng.below(range.end - range.start);
            let flip = 1u8 << rng.below(8);
            self.poke(at, |byte| byte[0] ^= flip, 1);
        }
    }

    /// Overwrites what is stored behind everybody's back: no fault, no count, no log.
    pub fn overwrite(&self, offset: u64, bytes: &[u8]) {
        self.poke(offset, |stored| stored.copy_from_slice(bytes), bytes.len());
    }

    fn poke(&self, offset: u64, change: impl Fn(&mut [u8]), len: usize) {
        let mut state = self.set.shared.state.lock();
        let disk = &mut state.disks[self.index];
        for image in [&mut disk.current, &mut disk.stable] {
            let mut bytes = vec![0; len];
            image.read(offset, &mut bytes);
            change(&mut bytes);
            image.write(offset, &bytes);
        }
    }

    /// What a reader sees now.
    pub fn image(&self) -> Image {
        self.set.shared.state.lock().disks[self.index].current.clone()
    }

    /// How often it was asked for something.
    pub fn counts(&self) -> Counts {
        self.set.shared.state.lock().disks[self.index].counts
    }

    fn info(&self) -> &Info {
        &self.set.disks[self.index]
    }

    fn error(&self, operation: Operation, offset: u64, size: u64, errno: Errno) -> DeviceError {
        DeviceError::Io { device: self.info().name.clone(), operation, offset, size, errno }
    }

    /// Counts the operation, waits out what delays it, and says what else is to happen to it.
    fn begin(
        &self,
        operation: Operation,
        offset: u64,
        size: u64,
    ) -> Result<(MutexGuard<'_, State>, Option<Kind>)> {
        let end = self.info().size;
        if offset.checked_add(size).is_none_or(|stop| stop > end) {
            let device = self.info().name.clone();
            return Err(DeviceError::Range { device, operation, offset, size, end });
        }
        let mut state = self.set.shared.state.lock();
        let mut struck = state.strike(self.index, operation, offset, size);
        loop {
            match struck {
                Some((id, Kind::Hang)) => {
                    let hangs = |s: &mut State| {
                        let own = &s.disks[self.index].faults;
                        own.iter().chain(&s.faults).any(|(other, _)| *other == id)
                    };
                    state = self.set.shared.lifted.wait_while(state, hangs);
                    struck = None;
                }
                Some((_, Kind::Slow(longer))) => {
                    drop(state);
                    rt::time::sleep(longer);
                    state = self.set.shared.state.lock();
                    struck = None;
                }
                _ => break,
            }
        }
        let kind = struck.map(|(_, kind)| kind);
        if state.writes >= state.writes_max {
            return Err(self.error(operation, offset, size, Errno::IO));
        }
        let code = operation as u64;
        state.trace = [self.index as u64, code, offset, size].into_iter().fold(state.trace, fold);
        rt::note(state.trace);
        let counts = &mut state.disks[self.index].counts;
        match operation {
            Operation::Write => {
                counts.writes += 1;
                counts.bytes_written += size;
            }
            Operation::Flush => counts.flushes += 1,
            _ => {
                counts.reads += 1;
                counts.bytes_read += size;
            }
        }
        match kind {
            Some(Kind::Error(errno)) => Err(self.error(operation, offset, size, errno)),
            Some(Kind::Vanish) => Err(self.error(operation, offset, size, Errno::NXIO)),
            kind => Ok((state, kind)),
        }
    }

    /// The offset `by` bytes on, wrapped so that `size` bytes fit.
    fn misdirected(&self, offset: u64, size: u64, by: i64) -> u64 {
        let room = self.info().size - size + 1;
        (i128::from(offset) + i128::from(by)).rem_euclid(i128::from(room)) as u64
    }

    fn read(&self, offset: u64, buf: &mut [u8]) -> Result<()> {
        let size = buf.len() as u64;
        let (state, kind) = self.begin(Operation::Read, offset, size)?;
        let from = match kind {
            Some(Kind::Misdirect { by }) => self.misdirected(offset, size, by),
            _ => offset,
        };
        state.disks[self.index].current.read(from, buf);
        if let Some(Kind::FlipBit { seed }) = kind {
            flip_bit(buf, seed);
        }
        Ok(())
    }

    fn write(&self, offset: u64, bytes: Vec<u8>) -> Result<()> {
        let size = bytes.len() as u64;
        let (mut state, kind) = self.begin(Operation::Write, offset, size)?;
        let mut bytes = bytes;
        let mut at = offset;
        match kind {
            Some(Kind::Misdirect { by }) => at = self.misdirected(offset, size, by),
            Some(Kind::FlipBit { seed }) => flip_bit(&mut bytes, seed),
            Some(Kind::Tear { seed }) => {
                // What does not land is what was there before.
                let disk = &state.disks[self.index];
                let mut image = disk.current.clone();
                torn(&mut image, at, &bytes, self.info().sector_size, &mut Rng::new(seed));
                image.read(at, &mut bytes);
            }
            _ => {}
        }
        let bytes: Arc<[u8]> = bytes.into();
        state.trace = fold_bytes(state.trace, &bytes);
        rt::note(state.trace);
        state.writes += 1;
        if kind == Some(Kind::Lose) {
            // The log still counts it, so that its indices are the set's.
            at = offset;
            return self.land(state, at, Arc::from(Vec::new()));
        }
        self.land(state, at, bytes)
    }

    fn land(&self, mut state: MutexGuard<'_, State>, offset: u64, bytes: Arc<[u8]>) -> Result<()> {
        let disk = &mut state.disks[self.index];
        disk.current.write(offset, &bytes);
        disk.pending.push((offset, bytes.clone()));
        if let Some(log) = &mut state.log {
            log.events.push(Event::Write { disk: self.index, offset, bytes });
        }
        Ok(())
    }
}

impl State {
    fn strike(
        &mut self,
        disk: usize,
        operation: Operation,
        offset: u64,
        size: u64,
    ) -> Option<(FaultId, Kind)> {
        for (id, fault) in self.disks[disk].faults.iter_mut().chain(&mut self.faults) {
            if fault.strikes(operation, offset, size) {
                return Some((*id, fault.kind.clone()));
            }
        }
        None
    }
}

fn flip_bit(bytes: &mut [u8], seed: u64) {
    let mut rng = Rng::new(seed);
    let at = rng.index(bytes.len());
    if let Some(byte) = bytes.get_mut(at) {
        *byte ^= 1 << rng.below(8);
    }
}

impl Device for SimDisk {
    fn name(&self) -> &str {
        &self.info().name
    }

    fn size(&self) -> u64 {
        self.info().size
    }

    fn sector_size(&self) -> u32 {
        self.info().sector_size
    }

    fn read_at(&self, offset: u64, buf: &mut [u8]) -> Result<()> {
        self.read(offset, buf)
    }

    fn read_vectored_at(&self, offset: u64, bufs: &mut [IoSliceMut<'_>]) -> Result<()> {
        let mut all = vec![0; bufs.iter().map(|b| b.len()).sum()];
        self.read(offset, &mut all)?;
        let mut rest = &all[..];
        for buf in bufs {
            let (now, later) = rest.split_at(buf.len());
            buf.copy_from_slice(now);
            rest = later;
        }
        Ok(())
    }
}

impl WriteDevice for SimDisk {
    fn write_at(&self, offset: u64, bytes: &[u8]) -> Result<()> {
        self.write(offset, bytes.to_vec())
    }

    fn write_vectored_at(&self, offset: u64, bufs: &[IoSlice<'_>]) -> Result<()> {
        self.write(offset, bufs.iter().flat_map(|b| b.iter().copied()).collect())
    }

    fn flush(&self) -> Result<()> {
        let (mut state, kind) = self.begin(Operation::Flush, 0, 0)?;
        if kind == Some(Kind::Lie) {
            return Ok(());
        }
        let recorded = state.log.is_some();
        let disk = &mut state.disks[self.index];
        if kind == Some(Kind::Forget) {
            assert!(!recorded, "the log has no word for what is gone");
            disk.pending.clear();
            disk.current = disk.stable.clone();
            return Err(self.error(Operation::Flush, 0, 0, Errno::IO));
        }
        disk.pending.clear();
        disk.stable = disk.current.clone();
        if let Some(log) = &mut state.log {
            log.events.push(Event::Flush { disk: self.index });
        }
        Ok(())
    }
}

impl Device for SimReader {
    fn name(&self) -> &str {
        self.0.name()
    }

    fn size(&self) -> u64 {
        self.0.size()
    }

    fn sector_size(&self) -> u32 {
        self.0.sector_size()
    }

    fn read_at(&self, offset: u64, buf: &mut [u8]) -> Result<()> {
        self.0.read_at(offset, buf)
    }

    fn read_vectored_at(&self, offset: u64, bufs: &mut [IoSliceMut<'_>]) -> Result<()> {
        self.0.read_vectored_at(offset, bufs)
    }
}
