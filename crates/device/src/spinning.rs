//! A device that takes as long as a spinning disk would.
//!
//! The one idea: where the head is and how far the platter has turned decide how long an I/O
//! takes, so layouts can be compared (a run in one write against ten, neighbours against strangers)
//! on a machine that has no such disk. The bytes go to the wrapped device; only time is modelled.
//!
//! In real time the caller sleeps as long as the disk would be busy. In virtual time nobody
//! sleeps: a [`VirtualClock`], shared by the disks of a pool, adds up what it would have taken.
//!
//! What is modelled: seek by distance, rotation, transfer by zone, a command's overhead, reading
//! ahead into the disk's buffer, and a write cache that is emptied in the order of offsets while
//! the disk is idle, when it is full, and at a flush. What is not: reordering of reads at the disk
//! (NCQ), errors and retries, thermal recalibration.

mod model;

pub use model::{Model, Parameters};

use crate::error::Result;
use crate::{Device, WriteDevice};
use rt::sync::{Arc, Mutex};
use rt::time;
use std::io::{IoSlice, IoSliceMut};
use std::time::Duration;

/// Time that is only added up. Clones are the same clock.
///
/// An I/O moves the clock to its end, as it would for a single thread that waits for each I/O.
/// Within [`VirtualClock::together`] the I/Os are all submitted at once, and the clock moves to
/// the end of the last: disks work side by side, one disk after the other on its own I/Os.
#[derive(Debug, Clone, Default)]
pub struct VirtualClock(Arc<Mutex<Virtual>>);

#[derive(Debug, Default)]
struct Virtual {
    now: Duration,
    /// While I/Os are submitted together: how many such groups are open, and the latest end.
    groups: usize,
    end: Duration,
}

impl VirtualClock {
    /// A clock at zero.
    pub fn new() -> VirtualClock {
        VirtualClock::default()
    }

    /// Time that went by.
    pub fn now(&self) -> Duration {
        self.0.lock().now
    }

    /// Lets time go by without I/O, as for work on the processor.
    pub fn pass(&self, duration: Duration) {
        self.0.lock().now += duration;
    }

    /// Submits all I/Os of `body` at once and waits for all of them.
    pub fn together<T>(&self, body: impl FnOnce() -> T) -> T {
        self.0.lock().groups += 1;
        let result = body();
        let mut clock = self.0.lock();
        clock.groups -= 1;
        if clock.groups == 0 {
            clock.now = clock.now.max(clock.end);
        }
        result
    }

    fn finish(&self, end: Duration) {
        let mut clock = self.0.lock();
        clock.end = clock.end.max(end);
        if clock.groups == 0 {
            clock.now = clock.now.max(end);
        }
    }
}

#[derive(Clone)]
enum Clock {
    Real,
    Virtual(VirtualClock),
}

/// A device with the timing of a spinning disk.
pub struct Spinning<D> {
    device: D,
    model: Mutex<Model>,
    clock: Clock,
    /// I/Os so far, and their bytes.
    ios: Mutex<(u64, u64)>,
}

impl<D: Device> Spinning<D> {
    /// In real time: every call takes as long as the disk would.
    pub fn real(device: D, parameters: Parameters) -> Spinning<D> {
        let model = Mutex::new(Model::new(parameters));
        Spinning { device, model, clock: Clock::Real, ios: Mutex::default() }
    }

    /// In virtual time, on a clock that the disks of a pool share.
    pub fn on_clock(device: D, parameters: Parameters, clock: VirtualClock) -> Spinning<D> {
        let model = Mutex::new(Model::new(parameters));
        Spinning { device, model, clock: Clock::Virtual(clock), ios: Mutex::default() }
    }

    /// The device itself.
    pub fn inner(&self) -> &D {
        &self.device
    }

    /// How long the disk was busy so far, in its mechanics or its transfers.
    pub fn busy(&self) -> Duration {
        self.model.lock().busy()
    }

    /// Reads and writes so far, and their bytes.
    pub fn ios(&self) -> (u64, u64) {
        *self.ios.lock()
    }

    fn count(&self, bytes: u64) {
        let mut ios = self.ios.lock();
        ios.0 += 1;
        ios.1 += bytes;
    }

    /// Has the model say when an I/O that is submitted now ends, and waits until then.
    fn take_time(&self, ask: impl FnOnce(&mut Model, Duration) -> Duration) {
        match &self.clock {
            Clock::Real => {
                let now = time::now().since_start();
                let end = ask(&mut self.model.lock(), now);
                time::sleep(end.saturating_sub(now));
            }
            Clock::Virtual(clock) => {
                let now = clock.now();
                let end = ask(&mut self.model.lock(), now);
                clock.finish(end);
            }
        }
    }
}

impl<D: Device> Device for Spinning<D> {
    fn name(&self) -> &str {
        self.device.name()
    }

    fn size(&self) -> u64 {
        self.device.size()
    }

    fn sector_size(&self) -> u32 {
        self.device.sector_size()
    }

    fn read_at(&self, offset: u64, buf: &mut [u8]) -> Result<()> {
        self.device.read_at(offset, buf)?;
        self.count(buf.len() as u64);
        self.take_time(|model, now| model.read(now, offset, buf.len() as u64));
        Ok(())
    }

    fn read_vectored_at(&self, offset: u64, bufs: &mut [IoSliceMut<'_>]) -> Result<()> {
        self.device.read_vectored_at(offset, bufs)?;
        let size = bufs.iter().map(|b| b.len() as u64).sum();
        self.count(size);
        self.take_time(|model, now| model.read(now, offset, size));
        Ok(())
    }
}

impl<D: WriteDevice> WriteDevice for Spinning<D> {
    fn write_at(&self, offset: u64, bytes: &[u8]) -> Result<()> {
        self.device.write_at(offset, bytes)?;
        self.count(bytes.len() as u64);
        self.take_time(|model, now| model.write(now, offset, bytes.len() as u64));
        Ok(())
    }

    fn write_vectored_at(&self, offset: u64, bufs: &[IoSlice<'_>]) -> Result<()> {
        self.device.write_vectored_at(offset, bufs)?;
        let size = bufs.iter().map(|b| b.len() as u64).sum();
        self.count(size);
        self.take_time(|model, now| model.write(now, offset, size));
        Ok(())
    }

    fn flush(&self) -> Result<()> {
        self.device.flush()?;
        self.take_time(Model::flush);
        Ok(())
    }
}

#[cfg(test)]
mod tests;
