//! Contents of files: read, write, truncate, holes.
//!
//! The block of a file grows with it while there is one; once it is larger than the record size
//! every block has exactly that. FORMAT: section 11.7.

use dmu::{Object, Tx};
use rt::sync::Arc;

use crate::attrs::{Attrs, Time, mode};
use crate::error::{FsError, Result};
use crate::filesystem::Filesystem;

/// Bytes of one change: a long write is many of them, so that no txg waits for it.
const CHUNK: usize = 1 << 20;

impl Filesystem {
    /// Reads up to `buf.len()` bytes from `offset` on; returns how many there were.
    pub fn read(&self, number: u64, offset: u64, buf: &mut [u8]) -> Result<usize> {
        let object = self.object(number)?;
        let attrs = self.attrs_of(&object)?;
        self.read_open(&object, attrs.size, offset, buf)
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
            let tx = self.enter(chunk.len() as u64)?;
            let object = self.object(number)?;
            let _lock = self.lock_dir(number);
            let mut attrs = self.file_attrs(&object)?;
            self.write_locked(&tx, &object, &mut attrs, at, chunk)?;
            self.set_attrs(&tx, &object, &attrs)?;
            at += chunk.len() as u64;
        }
        Ok(())
    }

    /// Makes a file with these contents in one change: what most files need.
    pub fn create_with(
        &self,
        dir: u64,
        name: &[u8],
        new: &crate::NewObject<'_>,
        data: &[u8],
    ) -> Result<u64> {
        let number = self.create(dir, name, new)?;
        self.write(number, 0, data)?;
        Ok(number)
    }

    fn file_attrs(&self, object: &Arc<Object>) -> Result<Attrs> {
        let attrs = self.attrs_of(object)?;
        match attrs.kind() {
            mode::FILE => Ok(attrs),
            mode::DIR => Err(FsError::IsADirectory { path: format!("object {}", object.number()) }),
            _ => Err(FsError::Invalid {
                path: format!("object {}", object.number()),
                reason: "not a regular file",
            }),
        }
    }

    pub(crate) fn write_locked(
        &self,
        tx: &Tx<'_>,
        object: &Arc<Object>,
        attrs: &mut Attrs,
        offset: u64,
        data: &[u8],
    ) -> Result<()> {
        let end = offset + data.len() as u64;
        self.grow_block(tx, object, end.max(attrs.size))?;
        object.write(tx, offset, data)?;
        attrs.size = attrs.size.max(end);
        attrs.mtime = Time::now();
        attrs.ctime = attrs.mtime;
        Ok(())
    }

    /// Grows the one block of a small file so that `end` bytes have room, up to the record size.
    fn grow_block(&self, tx: &Tx<'_>, object: &Arc<Object>, end: u64) -> Result<()> {
        let block = object.block_size()?;
        if end <= u64::from(block) || object.max_block()? > 0 {
            return Ok(());
        }
        let record = self.record_size;
        if block >= record && block.is_power_of_two() {
            return Ok(());
        }
        let limit = if block > record { block.next_power_of_two() } else { record };
        let wanted = end.next_multiple_of(512).min(limit.into()) as u32;
        // Beyond one block the size must be a power of two: exactly the limit.
        let size = if end > u64::from(limit) { limit } else { wanted };
        Ok(object.set_block_size(tx, size)?)
    }

    /// Sets the size of a file; what is cut off reads as zeros if it grows again.
    pub fn truncate(&self, number: u64, size: u64) -> Result<()> {
        let tx = self.enter(0)?;
        let object = self.object(number)?;
        let _lock = self.lock_dir(number);
        let mut attrs = self.file_attrs(&object)?;
        if size < attrs.size {
            object.free_bytes(&tx, size, u64::MAX - size)?;
        } else if size > attrs.size {
            // A longer file needs a block that can become one of many.
            self.grow_block(&tx, &object, size)?;
        }
        attrs.size = size;
        attrs.mtime = Time::now();
        attrs.ctime = attrs.mtime;
        self.set_attrs(&tx, &object, &attrs)
    }

    /// Makes `[offset, offset + len)` a hole.
    pub fn punch_hole(&self, number: u64, offset: u64, len: u64) -> Result<()> {
        let tx = self.enter(0)?;
        let object = self.object(number)?;
        let _lock = self.lock_dir(number);
        let mut attrs = self.file_attrs(&object)?;
        object.free_bytes(&tx, offset, len.min(attrs.size.saturating_sub(offset)))?;
        attrs.mtime = Time::now();
        attrs.ctime = attrs.mtime;
        self.set_attrs(&tx, &object, &attrs)
    }

    /// Segments of data of a file of `size` bytes, as (offset, length).
    pub fn data_segments(&self, object: &Arc<Object>, size: u64) -> Result<Vec<(u64, u64)>> {
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
}
