//! What a disk was asked for, when, and when it had answered: `--trace FILE`.
//!
//! One line an I/O, in the order of their ends: disk, `r`, `w` or `f`, offset, bytes, microseconds since the first
//! one from which and until when somebody waited for it.

use std::io::{IoSlice, IoSliceMut, Write};
use std::path::Path;
use std::time::Duration;

use anyhow::{Context, Result};
use device::{Device, WriteDevice};
use rt::sync::{Arc, Mutex};
use rt::time;

struct Entry {
    disk: usize,
    operation: char,
    offset: u64,
    bytes: u64,
    asked: Duration,
    answered: Duration,
}

/// The I/Os of all disks. Clones are the same list.
#[derive(Clone, Default)]
pub(crate) struct Trace(Arc<Mutex<Vec<Entry>>>);

impl Trace {
    /// Writes what was seen.
    pub(crate) fn write(&self, path: &Path) -> Result<()> {
        let entries = self.0.lock();
        let first = entries.iter().map(|entry| entry.asked).min().unwrap_or_default();
        let mut file = std::io::BufWriter::new(std::fs::File::create(path).context("the trace")?);
        for Entry { disk, operation, offset, bytes, asked, answered } in entries.iter() {
            let (asked, answered) = ((*asked - first).as_micros(), (*answered - first).as_micros());
            writeln!(file, "{disk} {operation} {offset} {bytes} {asked} {answered}")?;
        }
        Ok(file.flush()?)
    }
}

/// A disk whose I/Os are noted, if there is a list.
pub(crate) struct Traced<D> {
    device: D,
    disk: usize,
    trace: Option<Trace>,
}

impl<D> Traced<D> {
    pub(crate) fn new(device: D, disk: usize, trace: Option<Trace>) -> Traced<D> {
        Traced { device, disk, trace }
    }

    pub(crate) fn inner(&self) -> &D {
        &self.device
    }

    fn noted<T>(&self, operation: char, offset: u64, bytes: u64, act: impl FnOnce() -> T) -> T {
        let Some(trace) = &self.trace else { return act() };
        let asked = time::now().since_start();
        let result = act();
        let (disk, answered) = (self.disk, time::now().since_start());
        trace.0.lock().push(Entry { disk, operation, offset, bytes, asked, answered });
        result
    }
}

fn sum(lengths: impl Iterator<Item = usize>) -> u64 {
    lengths.map(|length| length as u64).sum()
}

impl<D: Device> Device for Traced<D> {
    fn name(&self) -> &str {
        self.device.name()
    }

    fn size(&self) -> u64 {
        self.device.size()
    }

    fn sector_size(&self) -> u32 {
        self.device.sector_size()
    }

    fn read_at(&self, offset: u64, buf: &mut [u8]) -> device::Result<()> {
        self.noted('r', offset, buf.len() as u64, || self.device.read_at(offset, buf))
    }

    fn read_vectored_at(&self, offset: u64, bufs: &mut [IoSliceMut<'_>]) -> device::Result<()> {
        let bytes = sum(bufs.iter().map(|buf| buf.len()));
        self.noted('r', offset, bytes, || self.device.read_vectored_at(offset, bufs))
    }
}

impl<D: WriteDevice> WriteDevice for Traced<D> {
    fn write_at(&self, offset: u64, bytes: &[u8]) -> device::Result<()> {
        self.noted('w', offset, bytes.len() as u64, || self.device.write_at(offset, bytes))
    }

    fn write_vectored_at(&self, offset: u64, bufs: &[IoSlice<'_>]) -> device::Result<()> {
        let bytes = sum(bufs.iter().map(|buf| buf.len()));
        self.noted('w', offset, bytes, || self.device.write_vectored_at(offset, bufs))
    }

    fn flush(&self) -> device::Result<()> {
        self.noted('f', 0, 0, || self.device.flush())
    }
}
