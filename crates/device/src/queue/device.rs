//! The queue as a device, for callers that do one thing at a time.
//!
//! The one idea: without threads the caller's call goes straight to the device, between two looks at the clock; with
//! them it is a batch of one.

use super::{Batch, Class, LeafQueue, ReadQueue, WriteQueue};
use crate::error::{Operation, Result};
use crate::meter::Meters;
use crate::{Device, WriteDevice};
use rt::sync::Arc;
use std::io::{IoSlice, IoSliceMut};

impl<D: Device + 'static> Device for LeafQueue<D> {
    fn name(&self) -> &str {
        self.shared.device.name()
    }

    fn size(&self) -> u64 {
        self.shared.device.size()
    }

    fn measure(&self) -> u64 {
        self.shared.device.measure()
    }

    fn sector_size(&self) -> u32 {
        self.shared.device.sector_size()
    }

    fn read_at(&self, offset: u64, buf: &mut [u8]) -> Result<()> {
        if self.threads.is_empty() {
            let bytes = buf.len() as u64;
            let read = |device: &D| device.read_at(offset, buf);
            return self.shared.metered(Class::SyncRead, Operation::Read, bytes, read);
        }
        self.read_vectored_at(offset, &mut [IoSliceMut::new(buf)])
    }

    fn read_vectored_at(&self, offset: u64, bufs: &mut [IoSliceMut<'_>]) -> Result<()> {
        if self.threads.is_empty() {
            let bytes = bufs.iter().map(|b| b.len() as u64).sum();
            let read = |device: &D| device.read_vectored_at(offset, bufs);
            return self.shared.metered(Class::SyncRead, Operation::Read, bytes, read);
        }
        self.read_waiting(Class::SyncRead, offset, bufs)
    }

    fn read_uncached(&self, offset: u64, bufs: &mut [IoSliceMut<'_>]) -> Result<()> {
        if self.threads.is_empty() {
            let bytes = bufs.iter().map(|b| b.len() as u64).sum();
            let read = |device: &D| device.read_uncached(offset, bufs);
            return self.shared.metered(Class::Scan, Operation::Read, bytes, read);
        }
        self.read_waiting(Class::Scan, offset, bufs)
    }

    fn read_queue(&self) -> Option<&dyn ReadQueue> {
        (!self.threads.is_empty()).then_some(self)
    }

    fn meters(&self) -> Option<Meters> {
        let mut meters = self.shared.meter.read();
        let state = self.shared.state.lock();
        for (number, class) in meters.classes.iter_mut().enumerate() {
            let (waiting, active) = state.schedule.of_class(number);
            (class.waiting, class.active) = (waiting as u64, active as u64);
        }
        Some(meters)
    }
}

impl<D: Device + 'static> LeafQueue<D> {
    /// Reads into buffers that are the caller's: only borrowed, and a lost I/O keeps what it reads into.
    fn read_waiting(&self, class: Class, offset: u64, bufs: &mut [IoSliceMut<'_>]) -> Result<()> {
        let batch = Batch::new();
        let size = bufs.iter().map(|b| b.len()).sum();
        self.start_read(&batch, class, offset, size);
        let all = batch.wait_one()?.expect("a read gives its buffer back");
        let mut rest = &all[..];
        for buf in bufs {
            let (now, later) = rest.split_at(buf.len());
            buf.copy_from_slice(now);
            rest = later;
        }
        Ok(())
    }
}

impl<D: WriteDevice + 'static> WriteDevice for LeafQueue<D> {
    fn write_at(&self, offset: u64, bytes: &[u8]) -> Result<()> {
        self.write_for(Class::SyncWrite, offset, &[IoSlice::new(bytes)])
    }

    fn write_vectored_at(&self, offset: u64, bufs: &[IoSlice<'_>]) -> Result<()> {
        self.write_for(Class::SyncWrite, offset, bufs)
    }

    fn write_for(&self, class: Class, offset: u64, bufs: &[IoSlice<'_>]) -> Result<()> {
        if self.threads.is_empty() {
            let bytes = bufs.iter().map(|b| b.len() as u64).sum();
            let write = |device: &D| device.write_for(class, offset, bufs);
            return self.shared.metered(class, Operation::Write, bytes, write);
        }
        let batch = Batch::new();
        self.start_write(&batch, class, offset, bufs);
        batch.wait_one().map(|_| ())
    }

    fn flush(&self) -> Result<()> {
        if self.threads.is_empty() {
            return self.shared.metered(Class::SyncWrite, Operation::Flush, 0, D::flush);
        }
        let batch = Batch::new();
        LeafQueue::flush(self, &batch, &Arc::default());
        batch.wait_one().map(|_| ())
    }

    fn write_queue(&self) -> Option<&dyn WriteQueue> {
        (!self.threads.is_empty()).then_some(self)
    }
}
