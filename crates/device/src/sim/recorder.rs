//! Records what is written to any devices, such as real files, for replay.
//!
//! The one idea: the wrapper puts each write into the log under the same lock under which it hands
//! it to the device, so the log's order is the device's.

use super::image::Image;
use super::log::{Base, Event, Log};
use crate::error::Result;
use crate::{Device, WriteDevice};
use rt::sync::{Arc, Mutex};
use std::io::{IoSlice, IoSliceMut};

/// A log that several devices write into. Clones are the same log.
#[derive(Clone)]
pub struct Recorder(Arc<Mutex<Log>>);

/// A device whose writes and flushes are recorded.
pub struct Recorded<D> {
    device: D,
    recorder: Recorder,
    index: usize,
}

impl Recorder {
    /// An empty log.
    pub fn new() -> Recorder {
        Recorder(Arc::new(Mutex::new(Log { base: Vec::new(), events: Vec::new() })))
    }

    /// Adds a device: its bytes as they are now are where its part of the log begins (all of it
    /// is read).
    pub fn wrap<D: WriteDevice>(&self, device: D) -> Result<Recorded<D>> {
        let mut image = Image::new(device.size());
        let mut buf = rt::Buf::zeroed(1 << 20);
        let mut at = 0;
        while at < device.size() {
            let len = (device.size() - at).min(buf.len() as u64) as usize;
            device.read_at(at, &mut buf[..len])?;
            for (n, piece) in buf[..len].chunks(16 << 10).enumerate() {
                if piece.iter().any(|&b| b != 0) {
                    image.write(at + n as u64 * (16 << 10), piece);
                }
            }
            at += len as u64;
        }
        let name = device.name().to_owned();
        let mut log = self.0.lock();
        log.base.push(Base { name, image, sector_size: device.sector_size() });
        Ok(Recorded { device, recorder: self.clone(), index: log.base.len() - 1 })
    }

    /// Puts a word of the workload into the log.
    pub fn mark(&self, word: u64) {
        self.0.lock().events.push(Event::Mark(word));
    }

    /// What was recorded so far; recording goes on.
    pub fn log(&self) -> Log {
        self.0.lock().clone()
    }
}

impl Default for Recorder {
    fn default() -> Recorder {
        Recorder::new()
    }
}

impl<D> Recorded<D> {
    /// The device itself.
    pub fn inner(&self) -> &D {
        &self.device
    }
}

impl<D: WriteDevice> Device for Recorded<D> {
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
        self.device.read_at(offset, buf)
    }

    fn read_vectored_at(&self, offset: u64, bufs: &mut [IoSliceMut<'_>]) -> Result<()> {
        self.device.read_vectored_at(offset, bufs)
    }
}

impl<D: WriteDevice> WriteDevice for Recorded<D> {
    fn write_at(&self, offset: u64, bytes: &[u8]) -> Result<()> {
        self.write_vectored_at(offset, &[IoSlice::new(bytes)])
    }

    fn write_vectored_at(&self, offset: u64, bufs: &[IoSlice<'_>]) -> Result<()> {
        let bytes: Vec<u8> = bufs.iter().flat_map(|b| b.iter().copied()).collect();
        let mut log = self.recorder.0.lock();
        // One that failed may have been done in part: in the log it is a write like any other.
        let result = self.device.write_vectored_at(offset, bufs);
        let within = offset.checked_add(bytes.len() as u64).is_some_and(|e| e <= self.size());
        if within {
            let event = Event::Write { disk: self.index, offset, bytes: bytes.into() };
            log.events.push(event);
        }
        result
    }

    fn flush(&self) -> Result<()> {
        let mut log = self.recorder.0.lock();
        self.device.flush()?;
        log.events.push(Event::Flush { disk: self.index });
        Ok(())
    }
}
