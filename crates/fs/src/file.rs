//! Contents of files: read, write, truncate, holes.
//!
//! The block of a file grows with it while there is one; once it is larger than the record size
//! every block has exactly that. FORMAT: section 11.7.

use std::cmp::Ordering;

use dmu::{Lent, Object, Tx};
use format::znode::Znode;
use rt::Grant;
use rt::buf::{PooledBuf, Shelf};
use rt::sync::Arc;

use crate::attrs::{mode, modified};
use crate::digests::Written;
use crate::error::{FsError, Result};
use crate::filesystem::Filesystem;
use crate::new::Contents;
use crate::protected::Change;
use crate::quota::Payers;

/// Bytes of one change: a long write is many of them, so that no txg waits for it.
const CHUNK: usize = 1 << 20;

/// Records of so many bytes or more get buffers of their own.
const CUT_LEAST: u64 = 64 << 10;

/// Bytes to be written in one change.
enum Chunk<'a> {
    /// They are copied.
    Shown(&'a [u8]),
    /// They may become a record.
    Given(PooledBuf),
}

impl Chunk<'_> {
    fn bytes(&self) -> &[u8] {
        match self {
            Chunk::Shown(bytes) => bytes,
            Chunk::Given(buf) => buf,
        }
    }
}

impl Filesystem {
    /// Reads up to `buf.len()` bytes from `offset` on; returns how many there were.
    pub fn read(&self, number: u64, offset: u64, buf: &mut [u8]) -> Result<usize> {
        let object = self.object(number)?;
        let size = self.znode_of(&object)?.size;
        self.read_open(&object, size, offset, buf)
    }

    /// Lends up to `length` bytes from `offset` on, for who hands them on at once. `None`: they are to be read.
    ///
    /// # Errors
    /// As [`Filesystem::read`].
    pub fn lend(&self, number: u64, offset: u64, length: usize) -> Result<Option<Lent>> {
        let object = self.object(number)?;
        let size = self.znode_of(&object)?.size;
        let part = size.saturating_sub(offset).min(length as u64) as usize;
        Ok(object.lend(offset, part)?)
    }

    /// The same, if no disk need be asked for it.
    ///
    /// # Errors
    /// As [`Filesystem::read`].
    pub fn lend_kept(&self, number: u64, offset: u64, length: usize) -> Result<Option<Lent>> {
        let object = self.object(number)?;
        let size = self.znode_of(&object)?.size;
        let part = size.saturating_sub(offset).min(length as u64) as usize;
        Ok(object.lend_kept(offset, part)?)
    }

    /// The same, if the file has all of these bytes and they can be on `shelf`, from where others can send them.
    ///
    /// # Errors
    /// As [`Filesystem::read`].
    pub fn lend_shelved(
        &self,
        number: u64,
        offset: u64,
        length: usize,
        shelf: &Arc<Shelf>,
    ) -> Result<Option<Lent>> {
        let object = self.object(number)?;
        let size = self.znode_of(&object)?.size;
        let has_all = offset.checked_add(length as u64).is_some_and(|end| end <= size);
        if !has_all {
            return Ok(None);
        }
        Ok(object.lend_shelved(offset, length, shelf)?)
    }

    /// Reads ahead `length` bytes for who has read as many up to `offset`, if it is likely that he goes on so. Is there room
    /// for more?
    ///
    /// # Errors
    /// There is no such file.
    pub fn prepare(&self, number: u64, offset: u64, length: usize) -> Result<bool> {
        Ok(self.object(number)?.prepare(offset, length))
    }

    /// What was prepared for who reads `length` bytes from `offset` on: a buffer, how many of its bytes are of the file, and the
    /// memory that it takes.
    ///
    /// # Errors
    /// As [`Filesystem::read`].
    pub fn prepared(
        &self,
        number: u64,
        offset: u64,
        length: usize,
    ) -> Result<Option<(PooledBuf, usize, Grant)>> {
        let object = self.object(number)?;
        if !object.may_be_prepared() {
            return Ok(None);
        }
        // Before the bytes: who writes behind the end in between is not seen in part.
        let size = self.znode_of(&object)?.size;
        let part = size.saturating_sub(offset).min(length as u64) as usize;
        let prepared = object.prepared(offset, length).filter(|_| part > 0);
        Ok(prepared.map(|(buf, memory)| (buf, part, memory)))
    }

    /// Reads from an open object whose size is known.
    pub fn read_open(
        &self,
        object: &Arc<Object>,
        size: u64,
        offset: u64,
        buf: &mut [u8],
    ) -> Result<usize> {
        let part = size.saturating_sub(offset).min(buf.len() as u64) as usize;
        object.read(offset, &mut buf[..part])?;
        Ok(part)
    }

    /// Writes `data` at `offset`; the file grows as needed.
    pub fn write(&self, number: u64, offset: u64, data: &[u8]) -> Result<()> {
        let mut at = offset;
        for chunk in data.chunks(CHUNK) {
            self.write_chunk(number, at, vec![Chunk::Shown(chunk)])?;
            at += chunk.len() as u64;
        }
        self.done(number)
    }

    /// Buffers for `length` bytes that are to be written at `offset`, one behind the other, cut where records end; of small
    /// records one for all, since no buffer takes less than a page.
    pub fn buffers_for(&self, offset: u64, length: usize) -> Vec<PooledBuf> {
        let record = match u64::from(self.record_size()) {
            small if small < CUT_LEAST => u64::MAX,
            record => record,
        };
        let (mut at, mut left) = (offset, length as u64);
        let cut = std::iter::from_fn(|| {
            let now = left.min(record - at % record);
            (at, left) = (at.wrapping_add(now), left - now);
            (now > 0).then(|| self.objset.store().buffers().get(now as usize))
        });
        cut.collect()
    }

    /// Writes what is in [`Filesystem::buffers_for`] this place, in one change: whole records are not copied.
    ///
    /// # Errors
    /// As [`Filesystem::write`].
    pub fn write_given(&self, number: u64, offset: u64, pieces: Vec<PooledBuf>) -> Result<()> {
        if !pieces.is_empty() {
            self.write_chunk(number, offset, pieces.into_iter().map(Chunk::Given).collect())?;
        }
        self.done(number)
    }

    /// Writes pieces, one behind the other, in one change.
    fn write_chunk(&self, number: u64, mut at: u64, chunk: Vec<Chunk<'_>>) -> Result<()> {
        let length = chunk.iter().map(|piece| piece.bytes().len() as u64).sum();
        let mut end = at;
        let digested = chunk.into_iter().map(|piece| {
            let digested = self.digest_written(number, end, piece.bytes());
            end += piece.bytes().len() as u64;
            (piece, digested)
        });
        let digested: Vec<_> = digested.collect();
        let _lock = self.lock(number);
        let object = self.object(number)?;
        if self.dataset.has_user_quotas() {
            self.charge(Payers::of(&self.znode_of(&object)?), length, 0)?;
        }
        let tx = self.enter(length)?;
        for (piece, digested) in digested {
            let (znode, length) = (self.file_znode(&object)?, piece.bytes().len() as u64);
            let size = znode.size;
            let change = if at < size { Change::Contents } else { Change::Append };
            self.permit(&znode, change, format_args!("object {number}"))?;
            self.write_digested(&tx, &object, size, at, piece, digested)?;
            self.tell_written(&tx, number, at, length);
            at += length;
        }
        Ok(())
    }

    /// Does a write of the intent log again, in one change: of `data` at its offset the file has what is before
    /// `end` at least.
    pub(crate) fn write_again(
        &self,
        number: u64,
        (offset, data): (u64, &[u8]),
        end: u64,
    ) -> Result<()> {
        let _lock = self.lock(number);
        let object = self.object(number)?;
        let tx = self.enter(data.len() as u64)?;
        self.begin_change(&tx, &object)?;
        let size = self.file_size(&object)?.max(end);
        self.grow_block(&tx, &object, size.max(offset + data.len() as u64))?;
        object.write(&tx, offset, data)?;
        self.change_znode(&tx, &object, |znode| {
            znode.size = size;
            modified(znode);
        })
    }

    /// Writes `data` at the end of a file, wherever that is by then; all of it in one piece. Returns where.
    pub fn append(&self, number: u64, data: &[u8]) -> Result<u64> {
        let lock = self.lock(number);
        let object = self.object(number)?;
        let znode = self.file_znode(&object)?;
        self.permit(&znode, Change::Append, format_args!("object {number}"))?;
        let start = znode.size;
        let mut at = start;
        for chunk in data.chunks(CHUNK) {
            if self.dataset.has_user_quotas() {
                self.charge(Payers::of(&self.znode_of(&object)?), chunk.len() as u64, 0)?;
            }
            let tx = self.enter(chunk.len() as u64)?;
            let digested = self.digest_written(number, at, chunk);
            self.write_digested(&tx, &object, at, at, Chunk::Shown(chunk), digested)?;
            self.tell_written(&tx, number, at, chunk.len() as u64);
            at += chunk.len() as u64;
        }
        drop(lock);
        self.done(number)?;
        Ok(start)
    }

    /// Makes a file with these contents; if they are short, in one change.
    pub fn create_with(
        &self,
        dir: u64,
        name: &[u8],
        new: &crate::NewObject<'_>,
        data: &[u8],
    ) -> Result<u64> {
        let (first, rest) = data.split_at(data.len().min(CHUNK));
        let number = self.create_filled(dir, name, new, first, false)?;
        self.write(number, first.len() as u64, rest)?;
        Ok(number)
    }

    /// Cuts the contents of a new file into records.
    pub(crate) fn contents(&self, data: &[u8]) -> Contents {
        let size = data.len() as u64;
        let block_size = size.next_multiple_of(512).clamp(512, self.record_size().into()) as u32;
        let records = data.chunks(block_size as usize).map(|part| {
            let mut record = self.objset.store().buffers().get(block_size as usize);
            record[..part.len()].copy_from_slice(part);
            record[part.len()..].fill(0);
            record
        });
        Contents { size, block_size, records: records.collect() }
    }

    /// Size of an open object, which must be a regular file.
    fn file_size(&self, object: &Arc<Object>) -> Result<u64> {
        Ok(self.file_znode(object)?.size)
    }

    /// The attributes of an open object, which must be a regular file.
    fn file_znode(&self, object: &Arc<Object>) -> Result<Znode> {
        let znode = self.znode_of(object)?;
        let path = || format!("object {}", object.number());
        match znode.mode as u32 & mode::TYPE {
            mode::FILE => Ok(znode),
            mode::DIR => Err(FsError::IsADirectory { path: path() }),
            _ => Err(FsError::Invalid { path: path(), reason: "not a regular file" }),
        }
    }

    /// As [`Filesystem::write_locked`]: what is kept of the file's digests goes, and those of the new bytes are noted.
    fn write_digested(
        &self,
        tx: &Tx<'_>,
        object: &Arc<Object>,
        size: u64,
        at: u64,
        data: Chunk<'_>,
        digested: Written,
    ) -> Result<()> {
        self.begin_change(tx, object)?;
        let end = at + data.bytes().len() as u64;
        let done = self.write_locked(tx, object, size, at, data);
        self.note_written(object.number(), at, end, digested, done.is_ok());
        done
    }

    /// Writes to a file whose size is `size`, and sets size and times.
    fn write_locked(
        &self,
        tx: &Tx<'_>,
        object: &Arc<Object>,
        size: u64,
        offset: u64,
        data: Chunk<'_>,
    ) -> Result<()> {
        let end = offset + data.bytes().len() as u64;
        self.grow_block(tx, object, end.max(size))?;
        match data {
            Chunk::Shown(bytes) => object.write(tx, offset, bytes)?,
            Chunk::Given(buf) => object.write_given(tx, offset, buf)?,
        }
        self.change_znode(tx, object, |znode| {
            znode.size = size.max(end);
            modified(znode);
        })
    }

    /// Grows the one block of a small file so that `end` bytes have room, up to the record size.
    fn grow_block(&self, tx: &Tx<'_>, object: &Arc<Object>, end: u64) -> Result<()> {
        let block = object.block_size()?;
        if end <= u64::from(block) || object.max_block()? > 0 {
            return Ok(());
        }
        let record = self.record_size();
        if block >= record && block.is_power_of_two() {
            return Ok(());
        }
        let limit = if block > record { block.next_power_of_two() } else { record };
        let wanted = end.next_multiple_of(512).min(limit.into()) as u32;
        // Beyond one block the size must be a power of two: exactly the limit.
        let size = if end > u64::from(limit) { limit } else { wanted };
        Ok(object.set_block_size(tx, size)?)
    }

    /// Sets the size of a file; what is cut off reads as zeros if it grows again. A long file is cut
    /// from its end, a part in each txg.
    pub fn truncate(&self, number: u64, size: u64) -> Result<()> {
        self.set_size(number, size, false)
    }

    /// Makes a file at least so long.
    ///
    /// # Errors
    /// As [`Filesystem::truncate`].
    pub fn extend(&self, number: u64, size: u64) -> Result<()> {
        self.set_size(number, size, true)
    }

    fn set_size(&self, number: u64, size: u64, at_least: bool) -> Result<()> {
        let lock = self.lock(number);
        let mut end = u64::MAX;
        loop {
            let object = self.object(number)?;
            let znode = self.file_znode(&object)?;
            let old = znode.size;
            // Room at its end is nothing that was there.
            let change = if at_least { Change::Append } else { Change::Contents };
            self.permit(&znode, change, format_args!("object {number}"))?;
            if at_least && old >= size {
                return Ok(());
            }
            let (cut, blocks) = match size < old {
                true => self.portion(&object, size, end)?,
                false => (size, 0),
            };
            let tx = self.enter_to_free(blocks)?;
            self.begin_change(&tx, &object)?;
            let changed = match size.cmp(&old) {
                Ordering::Less => {
                    object.free_bytes(&tx, cut, u64::MAX - cut).map_err(FsError::from)
                }
                // A longer file needs a block that can become one of many.
                Ordering::Greater => self.grow_block(&tx, &object, size),
                Ordering::Equal => Ok(()),
            };
            self.note_cut(number, cut.min(old), u64::MAX);
            changed?;
            // What is a hole already may lie beyond the old end.
            let now = if cut == size { size } else { cut.min(old) };
            let mut named = false;
            self.change_znode(&tx, &object, |znode| {
                (znode.size, named) = (now, znode.links > 0);
                modified(znode);
            })?;
            if named {
                self.tell_cut(&tx, number, now, 0);
            }
            if cut == size {
                drop((tx, lock));
                return self.done(number);
            }
            end = cut;
        }
    }

    /// Makes `[offset, offset + len)` a hole, a long one from its end, a part in each txg.
    pub fn punch_hole(&self, number: u64, offset: u64, len: u64) -> Result<()> {
        let lock = self.lock(number);
        let mut end = offset.saturating_add(len);
        loop {
            let object = self.object(number)?;
            let znode = self.file_znode(&object)?;
            self.permit(&znode, Change::Contents, format_args!("object {number}"))?;
            end = end.min(znode.size);
            let (from, blocks) = self.portion(&object, offset, end)?;
            let tx = self.enter_to_free(blocks)?;
            self.begin_change(&tx, &object)?;
            let cut = object.free_bytes(&tx, from, end.saturating_sub(from));
            self.note_cut(number, from, end);
            cut?;
            let mut named = false;
            self.change_znode(&tx, &object, |znode| {
                named = znode.links > 0;
                modified(znode);
            })?;
            if named && from < end {
                self.tell_cut(&tx, number, from, end - from);
            }
            if from == offset {
                drop((tx, lock));
                return self.done(number);
            }
            end = from;
        }
    }

    /// Segments of data of a file of `size` bytes, as (offset, length).
    pub fn data_segments(&self, object: &Arc<Object>, size: u64) -> Result<Vec<(u64, u64)>> {
        segments(object, size)
    }
}

/// Segments of data of the first `size` bytes of an object, as (offset, length).
pub(crate) fn segments(object: &Arc<Object>, size: u64) -> Result<Vec<(u64, u64)>> {
    let block = u64::from(object.block_size()?);
    let limit = size.div_ceil(block).min(object.max_block()? + 1);
    let mut out = Vec::new();
    let mut at = 0;
    while let Some(first) = object.next_block(at, limit, true)? {
        let end = object.next_block(first, limit, false)?.unwrap_or(limit);
        let (start, stop) = (first * block, (end * block).min(size));
        out.push((start, stop - start));
        at = end;
    }
    Ok(out)
}
