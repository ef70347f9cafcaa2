//! Disks and files: positioned reads and writes, flush, size, and disks made of memory for tests.
//!
//! Place: above `rt`; knows bytes at offsets and nothing of what they mean.
//! The one idea: what can only read and what can write are two types (INV-4). A read-only open
//! holds [`Device`]s; a [`WriteDevice`] is made only by an open that also takes the lock.
#![deny(missing_docs)]

mod error;
mod file;
pub mod meter;
mod overlay;
mod part;
pub mod queue;
pub mod sim;
pub mod spinning;

pub use error::{DeviceError, Operation, Result};
pub use file::{ReadFile, WriteFile};
pub use overlay::Overlay;
pub use part::Part;

use meter::Meters;
use queue::{Class, ReadQueue, WriteQueue};
use rt::sync::Arc;
use std::io::{IoSlice, IoSliceMut};

/// A disk, partition or image file that can be read.
pub trait Device: Send + Sync {
    /// The name to tell people: the path for files and disks.
    fn name(&self) -> &str;

    /// Size in bytes.
    fn size(&self) -> u64;

    /// Looks whether the device has grown; its size from now on, in bytes.
    fn measure(&self) -> u64 {
        self.size()
    }

    /// Bytes that the disk writes at once: 512 or 4096 (a power of two). A tear never lies within.
    fn sector_size(&self) -> u32;

    /// Fills `buf` with the bytes at `offset`. All or an error.
    fn read_at(&self, offset: u64, buf: &mut [u8]) -> Result<()>;

    /// Fills the buffers, one after the other, with the bytes from `offset` on. All or an error.
    fn read_vectored_at(&self, offset: u64, bufs: &mut [IoSliceMut<'_>]) -> Result<()> {
        let mut at = offset;
        for buf in bufs {
            self.read_at(at, buf)?;
            at += buf.len() as u64;
        }
        Ok(())
    }

    /// As [`Device::read_vectored_at`], for who wants to know what the disk has: not what the system remembers of it.
    fn read_uncached(&self, offset: u64, bufs: &mut [IoSliceMut<'_>]) -> Result<()> {
        self.read_vectored_at(offset, bufs)
    }

    /// The queue in front of the device, if I/Os to it can be started together with others and be
    /// waited for once; `None` if whoever calls does the I/O.
    fn read_queue(&self) -> Option<&dyn ReadQueue> {
        None
    }

    /// What the device has done since it was opened; `None` if nobody counts it.
    fn meters(&self) -> Option<Meters> {
        None
    }
}

/// A device that can be written. What was written is on stable storage only after a later
/// [`WriteDevice::flush`] returned without error.
pub trait WriteDevice: Device {
    /// Writes `bytes` at `offset`. All or an error; after an error any part may be written.
    fn write_at(&self, offset: u64, bytes: &[u8]) -> Result<()>;

    /// Writes the buffers, one after the other, from `offset` on, in as few operations as possible.
    fn write_vectored_at(&self, offset: u64, bufs: &[IoSlice<'_>]) -> Result<()> {
        let mut at = offset;
        for buf in bufs {
            self.write_at(at, buf)?;
            at += buf.len() as u64;
        }
        Ok(())
    }

    /// Writes the buffers, one after the other, from `offset` on; `class` says who waits for it.
    fn write_for(&self, _class: Class, offset: u64, bufs: &[IoSlice<'_>]) -> Result<()> {
        match bufs {
            [one] => self.write_at(offset, one),
            many => self.write_vectored_at(offset, many),
        }
    }

    /// Waits until every write that returned before is on stable storage.
    fn flush(&self) -> Result<()>;

    /// As [`Device::read_queue`], to write.
    fn write_queue(&self) -> Option<&dyn WriteQueue> {
        None
    }
}

/// A handle on a device is a device.
macro_rules! device_by_handle {
    ($handle:ident) => {
        impl<D: Device + ?Sized> Device for $handle<D> {
            fn name(&self) -> &str {
                (**self).name()
            }
            fn size(&self) -> u64 {
                (**self).size()
            }
            fn measure(&self) -> u64 {
                (**self).measure()
            }
            fn sector_size(&self) -> u32 {
                (**self).sector_size()
            }
            fn read_at(&self, offset: u64, buf: &mut [u8]) -> Result<()> {
                (**self).read_at(offset, buf)
            }
            fn read_vectored_at(&self, offset: u64, bufs: &mut [IoSliceMut<'_>]) -> Result<()> {
                (**self).read_vectored_at(offset, bufs)
            }
            fn read_uncached(&self, offset: u64, bufs: &mut [IoSliceMut<'_>]) -> Result<()> {
                (**self).read_uncached(offset, bufs)
            }
            fn read_queue(&self) -> Option<&dyn ReadQueue> {
                (**self).read_queue()
            }
            fn meters(&self) -> Option<Meters> {
                (**self).meters()
            }
        }

        impl<D: WriteDevice + ?Sized> WriteDevice for $handle<D> {
            fn write_at(&self, offset: u64, bytes: &[u8]) -> Result<()> {
                (**self).write_at(offset, bytes)
            }
            fn write_vectored_at(&self, offset: u64, bufs: &[IoSlice<'_>]) -> Result<()> {
                (**self).write_vectored_at(offset, bufs)
            }
            fn write_for(&self, class: Class, offset: u64, bufs: &[IoSlice<'_>]) -> Result<()> {
                (**self).write_for(class, offset, bufs)
            }
            fn flush(&self) -> Result<()> {
                (**self).flush()
            }
            fn write_queue(&self) -> Option<&dyn WriteQueue> {
                (**self).write_queue()
            }
        }
    };
}

device_by_handle!(Arc);
device_by_handle!(Box);
