//! A device whose writes stay in memory: what is under it is open for reading only (INV-4).
//!
//! The one idea: whoever writes to it sees a device like any other, and when it is dropped nothing was
//! written. For a pool whose intent log is to be replayed without touching a disk.

use crate::error::{DeviceError, Operation, Result};
use crate::{Device, WriteDevice};
use rt::sync::Mutex;
use rustix::io::Errno;
use std::collections::BTreeMap;

/// Bytes that are kept as one piece.
const PIECE: usize = 4096;

/// A device and what was written over it.
pub struct Overlay<D> {
    device: D,
    pieces: Mutex<BTreeMap<u64, Vec<u8>>>,
    pieces_max: usize,
}

impl<D: Device> Overlay<D> {
    /// Nothing is written over `device` yet; at most `bytes_max` will be.
    pub fn new(device: D, bytes_max: usize) -> Overlay<D> {
        Overlay { device, pieces: Mutex::default(), pieces_max: bytes_max / PIECE }
    }
}

/// The parts of a range that lie in different pieces: number of the piece, where it begins there, and
/// where in the range.
fn parts(offset: u64, len: usize) -> impl Iterator<Item = (u64, usize, std::ops::Range<usize>)> {
    let mut done = 0;
    std::iter::from_fn(move || {
        if done == len {
            return None;
        }
        let at = offset + done as u64;
        let inner = (at % PIECE as u64) as usize;
        let end = len.min(done + PIECE - inner);
        let range = done..end;
        done = end;
        Some((at / PIECE as u64, inner, range))
    })
}

impl<D: Device> Device for Overlay<D> {
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
        let pieces = self.pieces.lock();
        for (number, inner, range) in parts(offset, buf.len()) {
            if let Some(piece) = pieces.get(&number) {
                let len = range.len();
                buf[range].copy_from_slice(&piece[inner..inner + len]);
            }
        }
        Ok(())
    }
}

impl<D: Device> WriteDevice for Overlay<D> {
    fn write_at(&self, offset: u64, bytes: &[u8]) -> Result<()> {
        let (size, end) = (bytes.len() as u64, self.device.size());
        if offset.checked_add(size).is_none_or(|last| last > end) {
            let (device, operation) = (self.name().into(), Operation::Write);
            return Err(DeviceError::Range { device, operation, offset, size, end });
        }
        for (number, inner, range) in parts(offset, bytes.len()) {
            // What the piece holds besides is read before the lock is taken.
            let mut under = vec![0; PIECE];
            if range.len() < PIECE {
                let start = number * PIECE as u64;
                let there = PIECE.min((end - start) as usize);
                self.device.read_at(start, &mut under[..there])?;
            }
            let mut pieces = self.pieces.lock();
            if pieces.len() >= self.pieces_max && !pieces.contains_key(&number) {
                let (device, operation) = (self.name().into(), Operation::Write);
                let errno = Errno::NOSPC;
                return Err(DeviceError::Io { device, operation, offset, size, errno });
            }
            let piece = pieces.entry(number).or_insert(under);
            piece[inner..inner + range.len()].copy_from_slice(&bytes[range]);
        }
        Ok(())
    }

    fn flush(&self) -> Result<()> {
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ReadFile;

    #[test]
    fn what_is_written_is_read_and_the_file_stays_as_it_was() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("image");
        let bytes: Vec<u8> = (0..20_000u32).map(|i| (i % 251) as u8).collect();
        std::fs::write(&path, &bytes).unwrap();
        let device = Overlay::new(ReadFile::open(&path).unwrap(), 3 * PIECE);
        let mut model = bytes.clone();
        for (offset, len, byte) in [(0, 10, 1), (4090, 20, 2), (5, 4096, 3), (19_990, 10, 4)] {
            device.write_at(offset as u64, &vec![byte; len]).unwrap();
            model[offset..offset + len].fill(byte);
            let mut all = vec![0; model.len()];
            device.read_at(0, &mut all).unwrap();
            assert_eq!(all, model);
        }
        assert!(device.write_at(8192, &[5; 10]).is_err(), "more than it may keep");
        assert!(device.write_at(19_999, &[5; 2]).is_err(), "beyond the end");
        assert!(device.write_at(u64::MAX, &[5; 2]).is_err());
        device.write_at(0, &[6]).unwrap();
        device.flush().unwrap();
        drop(device);
        assert_eq!(std::fs::read(&path).unwrap(), bytes);
    }
}
