//! A cursor over hostile bytes: every read is checked, errors say where.

use crate::{FormatError, Result};

/// Reads forward through `bytes`; `what` names the structure in errors.
#[derive(Clone, Debug)]
pub(crate) struct Reader<'a> {
    what: &'static str,
    bytes: &'a [u8],
    at: usize,
    /// Offset of `bytes` in the structure that errors speak of.
    base: usize,
}

impl<'a> Reader<'a> {
    pub(crate) fn new(what: &'static str, bytes: &'a [u8]) -> Self {
        Reader { what, bytes, at: 0, base: 0 }
    }

    /// Offset of the next byte in the structure.
    pub(crate) fn at(&self) -> usize {
        self.base + self.at
    }

    /// Bytes that are left.
    pub(crate) fn left(&self) -> usize {
        self.bytes.len() - self.at
    }

    /// The error for a field at the current place.
    pub(crate) fn bounds(&self, field: &'static str) -> FormatError {
        FormatError::Bounds { what: self.what, field, at: self.at() as u64 }
    }

    /// The next `len` bytes.
    pub(crate) fn take(&mut self, len: usize, field: &'static str) -> Result<&'a [u8]> {
        let taken = self.at.checked_add(len).and_then(|end| self.bytes.get(self.at..end));
        let taken = taken.ok_or_else(|| self.bounds(field))?;
        self.at += len;
        Ok(taken)
    }

    /// The next `N` bytes.
    pub(crate) fn array<const N: usize>(&mut self, field: &'static str) -> Result<[u8; N]> {
        let taken = self.take(N, field)?;
        taken.first_chunk().copied().ok_or_else(|| self.bounds(field))
    }

    /// A cursor over the next `len` bytes, which are skipped here.
    pub(crate) fn part(&mut self, len: usize, field: &'static str) -> Result<Reader<'a>> {
        let base = self.at();
        Ok(Reader { what: self.what, bytes: self.take(len, field)?, at: 0, base })
    }
}
