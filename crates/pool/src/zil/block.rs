//! Records put into blocks, each block sealed with the pointer to the next.
//!
//! The one idea: where the next block will be is known before this one is written; so all blocks of a commit can go
//! out at once, and the log ends with the first that is not there. A write that does not fit is cut in pieces.

use std::mem::replace;

use codec::embedded::{self, Place};
use format::BlkPtr;
use format::zil::build::{self, WRITE_SIZE};
use format::zil::{RecordKind, Write, ZIL_CHAIN_SIZE};
use rt::BufPool;
use rt::buf::PooledBuf;

use super::queue::{Entry, What};
use crate::error::Result;

/// The least piece of a write for which the rest of a block is used, in bytes.
const PIECE_MIN: usize = 1024;

/// A block with its records.
pub(super) struct Filled {
    pub(super) bp: BlkPtr,
    pub(super) bytes: PooledBuf,
    /// How many of them are used.
    pub(super) used: usize,
}

impl Filled {
    /// Seals a block of which `used` bytes are there but for its start.
    fn sealed(bp: BlkPtr, mut bytes: PooledBuf, used: usize, next: &BlkPtr) -> Filled {
        bytes[used..].fill(0);
        build::start_block(&mut bytes, next, used);
        let place = Place::Zilog2 { pointer: bp.checksum_words() };
        embedded::seal(place, &mut bytes).expect("a log block has room for its start");
        Filled { bp, bytes, used }
    }
}

/// What fills blocks.
pub(super) struct Filling<F> {
    /// Takes the next block; it is told how many bytes are still to come, 0 for what nobody knows yet.
    next: F,
    buffers: BufPool,
    seq: u64,
    bp: BlkPtr,
    bytes: PooledBuf,
    used: usize,
    pub(super) filled: Vec<Filled>,
    left: usize,
}

/// Bytes that a record takes in a log.
pub(super) fn size_of(entry: &Entry) -> usize {
    match &entry.what {
        What::Record(bytes) => bytes.len(),
        What::Written { length, .. } => WRITE_SIZE + *length as usize,
        What::Data { data, .. } => WRITE_SIZE + data.bytes().len().next_multiple_of(8),
    }
}

impl<F: FnMut(usize) -> Result<BlkPtr>> Filling<F> {
    /// Begins with the block at `first`. `seq`: the number of the last record; `left`: bytes of all that are to come.
    pub(super) fn new(first: BlkPtr, seq: u64, left: usize, buffers: BufPool, next: F) -> Self {
        let bytes = buffers.get(first.psize() as usize);
        let (used, filled) = (ZIL_CHAIN_SIZE, Vec::new());
        Filling { next, buffers, seq, bp: first, bytes, used, filled, left }
    }

    /// Adds a record.
    pub(super) fn add(&mut self, entry: Entry) -> Result<()> {
        self.left = self.left.saturating_sub(size_of(&entry));
        let txg = entry.txg;
        match entry.what {
            What::Record(bytes) => {
                self.put(txg, bytes.len(), |record| record.copy_from_slice(&bytes))
            }
            What::Data { object, offset, data } => self.data(txg, object, offset, data.bytes()),
            What::Written { .. } => Ok(()),
        }
    }

    fn data(&mut self, txg: u64, object: u64, mut offset: u64, data: &[u8]) -> Result<()> {
        let mut rest = data;
        while !rest.is_empty() {
            let room = (self.bytes.len() - self.used).saturating_sub(WRITE_SIZE) & !7;
            if room < rest.len().min(PIECE_MIN) {
                self.close(rest.len() + WRITE_SIZE)?;
                continue;
            }
            let (now, later) = rest.split_at(rest.len().min(room));
            let write = Write {
                object,
                offset,
                length: now.len() as u64,
                block_offset: 0,
                pointer: BlkPtr::ZERO,
                data: Some(now),
            };
            self.put(txg, WRITE_SIZE + now.len().next_multiple_of(8), |record| {
                build::fill_write(record, RecordKind::Write, &write);
            })?;
            offset += now.len() as u64;
            rest = later;
        }
        Ok(())
    }

    /// Has a record of so many bytes written where it goes.
    fn put(&mut self, txg: u64, size: usize, write: impl FnOnce(&mut [u8])) -> Result<()> {
        if self.bytes.len() - self.used < size {
            self.close(size)?;
        }
        let record = &mut self.bytes[self.used..][..size];
        write(record);
        self.seq += 1;
        build::number(record, txg, self.seq);
        self.used += size;
        Ok(())
    }

    /// The block is full: the next one, for at least `bytes`.
    fn close(&mut self, bytes: usize) -> Result<()> {
        let next = (self.next)(ZIL_CHAIN_SIZE + bytes + self.left)?;
        let new = self.buffers.get(next.psize() as usize);
        let (bp, bytes) = (replace(&mut self.bp, next), replace(&mut self.bytes, new));
        let used = replace(&mut self.used, ZIL_CHAIN_SIZE);
        self.filled.push(Filled::sealed(bp, bytes, used, &next));
        Ok(())
    }

    /// Closes the last block; gives all, and the number of the last record.
    pub(super) fn end(mut self) -> Result<(Vec<Filled>, u64)> {
        let next = (self.next)(0)?;
        self.filled.push(Filled::sealed(self.bp, self.bytes, self.used, &next));
        Ok((self.filled, self.seq))
    }
}

#[cfg(test)]
mod tests {
    use format::blkptr::BlkProps;
    use format::{Checksum, Compress, Dva, ObjectType};

    use super::super::queue::Data;
    use super::*;

    /// The `number`th block of a log.
    fn place(number: u64) -> BlkPtr {
        let (lsize, psize) = (8192, 8192);
        let (compress, checksum) = (Compress::Off, Checksum::Zilog2);
        let kind = ObjectType::INTENT_LOG;
        let props = BlkProps { lsize, psize, compress, checksum, kind, level: 0 };
        let dva = Dva { vdev: 0, offset: number << 13, asize: psize, gang: false };
        BlkPtr::new(props, &[dva], 7, 0, [1, 2, 3, number])
    }

    #[test]
    fn behind_its_records_a_block_has_nothing_of_what_was_in_memory() {
        let buffers = BufPool::new(1 << 20);
        drop([(); 8].map(|()| {
            let mut used = buffers.get(8192);
            used.fill(0xee);
            used
        }));
        assert!(buffers.get(8192)[..].contains(&0xee), "memory is used again");
        let mut number = 1;
        let next = |_| {
            number += 1;
            Ok(place(number))
        };
        let mut filling = Filling::new(place(1), 0, 12_000, buffers.clone(), next);
        for size in [5001, 2000, 1801] {
            let mut data = buffers.get(size);
            data.fill(0x11);
            let what = What::Data { object: 5, offset: 0, data: Data::Copied(data) };
            filling.add(Entry { txg: 7, what }).unwrap();
        }
        let (filled, _) = filling.end().unwrap();
        assert_eq!(filled.len(), 2);
        for block in filled {
            assert!(block.used < block.bytes.len());
            let (used, rest) = block.bytes.split_at(block.used);
            assert!(rest.iter().all(|byte| *byte == 0), "{} bytes used", block.used);
            assert!(!used[ZIL_CHAIN_SIZE..].contains(&0xee), "{} bytes used", block.used);
        }
    }
}
