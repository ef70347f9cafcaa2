//! Bytes lent to a reader instead of copied.
//!
//! Place: beside [`Object::read`], for who hands the bytes on at once.
//! The one idea: what is in memory of a record is shared by `Arc` and not changed while it is, so who wants a part of
//! one record can have just that. Whole records are better read: they land where they are wanted.

use std::ops::Deref;

use super::Object;
use super::read::Newest;
use crate::error::Result;

/// Bytes of one record. It stays in memory as long as they are lent.
pub struct Lent {
    record: Newest,
    start: usize,
    length: usize,
}

impl Deref for Lent {
    type Target = [u8];
    fn deref(&self) -> &[u8] {
        let lent =
            self.record.bytes().and_then(|bytes| bytes.get(self.start..)?.get(..self.length));
        lent.expect("only what is there is lent")
    }
}

impl Object {
    /// The `length` bytes from byte `offset` on, if they are a part of one record and no hole. `None`: they are to be
    /// read.
    ///
    /// # Errors
    /// As [`Object::read`].
    pub fn lend(&self, offset: u64, length: usize) -> Result<Option<Lent>> {
        let Some(Part { block, start, size }) = self.part(offset, length)? else { return Ok(None) };
        let streamed = self.streamed(offset, length as u64, |inner, depth| {
            self.look_ahead(inner, (block, size), depth);
            Ok(self.take_record(inner, block, size))
        });
        let record = match streamed?.flatten() {
            Some(record) => Newest::OnDisk(record),
            None => self.newest(block)?.0,
        };
        Ok(Lent::of(record, start, length))
    }

    /// The same, if no disk need be asked for it.
    ///
    /// # Errors
    /// As [`Object::read`].
    pub fn lend_kept(&self, offset: u64, length: usize) -> Result<Option<Lent>> {
        let Some(Part { block, start, .. }) = self.part(offset, length)? else { return Ok(None) };
        let record = self.newest_kept(block)?;
        let lent = record.and_then(|record| Lent::of(record, start, length));
        if lent.is_some() {
            self.read_on(offset, length as u64);
        }
        Ok(lent)
    }

    /// Where these bytes are, if they are a part of one record.
    fn part(&self, offset: u64, length: usize) -> Result<Option<Part>> {
        let size = u64::from(self.block_size()?);
        let (block, start) = (offset / size, (offset % size) as usize);
        let is_part = length > 0 && (length as u64) < size && (start + length) as u64 <= size;
        Ok(is_part.then_some(Part { block, start, size }))
    }
}

/// A part of a record: which, from which byte on, and the size of records.
struct Part {
    block: u64,
    start: usize,
    size: u64,
}

impl Lent {
    /// While it is small a record in memory may have fewer bytes than the file has blocks of.
    fn of(record: Newest, start: usize, length: usize) -> Option<Lent> {
        let is_there = record.bytes().is_some_and(|bytes| start + length <= bytes.len());
        is_there.then_some(Lent { record, start, length })
    }
}
