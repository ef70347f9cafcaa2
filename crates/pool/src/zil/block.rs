//! Records put into blocks, each block sealed with the pointer to the next.
//!
//! The one idea: where the next block will be is known before this one is written; so all blocks of a commit can go
//! out at once, and the log ends with the first that is not there. A write that does not fit is cut in pieces.

use codec::embedded::{self, Place};
use format::BlkPtr;
use format::zil::build::{self, WRITE_SIZE};
use format::zil::{Record, RecordKind, Write, ZIL_CHAIN_SIZE};

use super::chain::Block;
use super::queue::{Entry, What};
use crate::error::Result;

/// The least piece of a write for which the rest of a block is used, in bytes.
const PIECE_MIN: usize = 1024;

/// A block with its records.
pub(super) struct Filled {
    pub(super) bp: BlkPtr,
    pub(super) bytes: Vec<u8>,
    /// How many of them are used.
    pub(super) used: usize,
}

/// What fills blocks.
pub(super) struct Filling<F> {
    /// Takes the next block; it is told how many bytes are still to come, 0 for what nobody knows yet.
    next: F,
    seq: u64,
    bp: BlkPtr,
    bytes: Vec<u8>,
    used: usize,
    pub(super) filled: Vec<Filled>,
    left: usize,
}

/// Bytes that a record takes in a log.
pub(super) fn size_of(entry: &Entry) -> usize {
    match &entry.what {
        What::Record(bytes) => bytes.len(),
        What::Written { length, .. } => WRITE_SIZE + *length as usize,
        What::Data { data, .. } => WRITE_SIZE + data.len().next_multiple_of(8),
    }
}

impl<F: FnMut(usize) -> Result<Block>> Filling<F> {
    /// Begins with the block at `first`. `seq`: the number of the last record; `left`: bytes of all that are to come.
    pub(super) fn new(first: BlkPtr, seq: u64, left: usize, next: F) -> Self {
        let bytes = vec![0; first.psize() as usize];
        let (used, filled) = (ZIL_CHAIN_SIZE, Vec::new());
        Filling { next, seq, bp: first, bytes, used, filled, left }
    }

    /// Adds a record.
    pub(super) fn add(&mut self, entry: Entry) -> Result<()> {
        self.left = self.left.saturating_sub(size_of(&entry));
        let txg = entry.txg;
        match entry.what {
            What::Record(bytes) => self.put(txg, bytes),
            What::Data { object, offset, data } => self.data(txg, object, offset, &data),
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
            let record = Record::Write(Write {
                object,
                offset,
                length: now.len() as u64,
                block_offset: 0,
                pointer: BlkPtr::ZERO,
                data: Some(now),
            });
            let bytes = build::encode(RecordKind::Write, &record).unwrap_or_default();
            self.put(txg, bytes)?;
            offset += now.len() as u64;
            rest = later;
        }
        Ok(())
    }

    fn put(&mut self, txg: u64, mut record: Vec<u8>) -> Result<()> {
        if self.bytes.len() - self.used < record.len() {
            self.close(record.len())?;
        }
        self.seq += 1;
        build::number(&mut record, txg, self.seq);
        self.bytes[self.used..self.used + record.len()].copy_from_slice(&record);
        self.used += record.len();
        Ok(())
    }

    /// The block is full: the next one, for at least `bytes`.
    fn close(&mut self, bytes: usize) -> Result<()> {
        let next = (self.next)(ZIL_CHAIN_SIZE + bytes + self.left)?;
        self.seal(&next.bp);
        Ok(())
    }

    fn seal(&mut self, next: &BlkPtr) {
        let mut bytes = std::mem::take(&mut self.bytes);
        build::start_block(&mut bytes, next, self.used);
        let place = Place::Zilog2 { pointer: self.bp.checksum_words() };
        embedded::seal(place, &mut bytes).expect("a log block has room for its start");
        self.filled.push(Filled { bp: self.bp, bytes, used: self.used });
        self.bp = *next;
        self.bytes = vec![0; next.psize() as usize];
        self.used = ZIL_CHAIN_SIZE;
    }

    /// Closes the last block; gives all, and the number of the last record.
    pub(super) fn end(mut self) -> Result<(Vec<Filled>, u64)> {
        let next = (self.next)(0)?;
        self.seal(&next.bp);
        Ok((self.filled, self.seq))
    }
}
