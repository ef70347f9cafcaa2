//! A range of a device as a device of its own: a partition of an image file.
//!
//! The one idea: what lies outside the range cannot be reached through it, whatever is asked.
//! Partitions of disks are devices that the system shows by itself; those of image files are not.

use crate::error::{DeviceError, Operation, Result};
use crate::{Device, WriteDevice};
use std::io::{IoSlice, IoSliceMut};

/// A partition of a device.
pub struct Part<D> {
    device: D,
    name: String,
    start: u64,
    size: u64,
}

impl<D: Device> Part<D> {
    /// The `size` bytes from `start` on. What of them is beyond the end of the device can be neither
    /// read nor written.
    pub fn new(device: D, name: String, start: u64, size: u64) -> Part<D> {
        Part { device, name, start, size }
    }

    /// Where a range of the part is on the device.
    fn place(&self, operation: Operation, offset: u64, size: u64) -> Result<u64> {
        let place = self.start.checked_add(offset);
        let fits = offset.checked_add(size).is_some_and(|end| end <= self.size);
        place.filter(|_| fits).ok_or_else(|| DeviceError::Range {
            device: self.name.clone(),
            operation,
            offset,
            size,
            end: self.size,
        })
    }
}

impl<D: Device> Device for Part<D> {
    fn name(&self) -> &str {
        &self.name
    }

    fn size(&self) -> u64 {
        self.size
    }

    fn sector_size(&self) -> u32 {
        self.device.sector_size()
    }

    fn read_at(&self, offset: u64, buf: &mut [u8]) -> Result<()> {
        let place = self.place(Operation::Read, offset, buf.len() as u64)?;
        self.device.read_at(place, buf)
    }

    fn read_vectored_at(&self, offset: u64, bufs: &mut [IoSliceMut<'_>]) -> Result<()> {
        let size = bufs.iter().map(|buf| buf.len() as u64).sum();
        let place = self.place(Operation::Read, offset, size)?;
        self.device.read_vectored_at(place, bufs)
    }

    fn read_uncached(&self, offset: u64, bufs: &mut [IoSliceMut<'_>]) -> Result<()> {
        let size = bufs.iter().map(|buf| buf.len() as u64).sum();
        let place = self.place(Operation::Read, offset, size)?;
        self.device.read_uncached(place, bufs)
    }
}

impl<D: WriteDevice> WriteDevice for Part<D> {
    fn write_at(&self, offset: u64, bytes: &[u8]) -> Result<()> {
        let place = self.place(Operation::Write, offset, bytes.len() as u64)?;
        self.device.write_at(place, bytes)
    }

    fn write_vectored_at(&self, offset: u64, bufs: &[IoSlice<'_>]) -> Result<()> {
        let size = bufs.iter().map(|buf| buf.len() as u64).sum();
        let place = self.place(Operation::Write, offset, size)?;
        self.device.write_vectored_at(place, bufs)
    }

    fn flush(&self) -> Result<()> {
        self.device.flush()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::WriteFile;

    #[test]
    fn a_part_reaches_its_own_bytes_only() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("image");
        std::fs::write(&path, [1; 4096]).unwrap();
        let part = Part::new(WriteFile::open(&path).unwrap(), "p".into(), 1024, 2048);
        assert_eq!((part.size(), part.name()), (2048, "p"));
        part.write_at(0, &[2; 512]).unwrap();
        part.write_vectored_at(1536, &[IoSlice::new(&[3; 256]), IoSlice::new(&[4; 256])]).unwrap();
        for (offset, size) in [(2048, 1), (1537, 512), (u64::MAX, 1), (u64::MAX - 1024, 2048)] {
            let mut buf = vec![0; size];
            assert!(part.read_at(offset, &mut buf).is_err());
            assert!(part.write_at(offset, &buf).is_err());
        }
        let mut tail = [0; 512];
        part.read_vectored_at(1536, &mut [IoSliceMut::new(&mut tail)]).unwrap();
        part.flush().unwrap();
        drop(part);
        let bytes = std::fs::read(&path).unwrap();
        assert_eq!(tail, bytes[2560..3072]);
        for (range, byte) in
            [(0..1024, 1), (1024..1536, 2), (1536..2560, 1), (2560..2816, 3), (2816..3072, 4)]
        {
            assert!(bytes[range].iter().all(|b| *b == byte));
        }
        assert!(bytes[3072..].iter().all(|b| *b == 1));
    }
}
