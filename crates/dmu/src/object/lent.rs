//! Bytes lent to a reader instead of copied.
//!
//! Place: beside [`Object::read`], for who hands the bytes on at once.
//! The one idea: what is in memory of a record is shared by `Arc` and not changed while it is, so who wants bytes of
//! records can have just those. Whole records that nobody has asked for lately are better read: they land where they
//! are wanted, and who reads a large file once leaves in the cache what others come back for.

use rt::buf::Shelf;
use rt::sync::Arc;

use super::Object;
use super::read::{Newest, Source};
use crate::error::Result;

/// Records of which bytes are lent at once, at most.
const RECORDS_MAX: usize = 8;

/// Bytes of some records. These stay in memory as long as they are lent.
pub struct Lent(Vec<Piece>);

/// A part of a record, or all of it.
struct Piece {
    record: Newest,
    at: At,
}

/// Where the bytes of a piece are: which record, from which byte on, and how many.
#[derive(Clone, Copy)]
struct At {
    block: u64,
    start: usize,
    length: usize,
}

impl Lent {
    /// The bytes, one piece behind the other.
    pub fn pieces(&self) -> impl Iterator<Item = &[u8]> {
        self.0.iter().map(|Piece { record, at }| {
            let bytes = record.bytes().and_then(|bytes| bytes.get(at.start..)?.get(..at.length));
            bytes.expect("only what is there is lent")
        })
    }

    /// How many there are.
    pub fn length(&self) -> usize {
        self.0.iter().map(|piece| piece.at.length).sum()
    }

    /// Where in the file of `shelf` each piece begins, and how many bytes it has. `None`: one is elsewhere.
    pub fn places(&self, shelf: &Shelf) -> Option<Vec<(u64, u32)>> {
        let place = |Piece { record, at }: &Piece| match record {
            Newest::OnDisk(block) => {
                let place = block.place_on(shelf)? + at.start as u64;
                Some((place, u32::try_from(at.length).ok()?))
            }
            Newest::Changed(_) | Newest::Hole => None,
        };
        self.0.iter().map(place).collect()
    }

    /// Bytes of the records: of the memory that is kept.
    pub fn memory_bytes(&self) -> u64 {
        let records = self.0.iter().filter_map(|piece| piece.record.bytes());
        records.map(|bytes| bytes.len() as u64).sum()
    }
}

impl Piece {
    /// While it is small a record in memory may have fewer bytes than the file has blocks of; and a hole has none.
    fn of(record: Newest, at: At) -> Option<Piece> {
        let is_there = record.bytes().is_some_and(|bytes| at.start + at.length <= bytes.len());
        is_there.then_some(Piece { record, at })
    }
}

impl Object {
    /// The `length` bytes from byte `offset` on, if they are of few records and no hole. `None`: they are to be read.
    ///
    /// # Errors
    /// As [`Object::read`].
    pub fn lend(&self, offset: u64, length: usize) -> Result<Option<Lent>> {
        let size = u64::from(self.block_size()?);
        let Some(places) = places(size, offset, length) else { return Ok(None) };
        let mut again = true;
        for at in &places {
            match self.look(at.block, size)? {
                Look::Nothing => return Ok(None),
                Look::Once => again &= (at.length as u64) < size,
                Look::Again => {}
            }
        }
        if !again {
            return Ok(None);
        }
        let pieces = places.into_iter().map(|at| {
            let place = at.block * size + at.start as u64;
            let streamed = self.streamed(place, at.length as u64, |inner, depth| {
                self.look_ahead(inner, (at.block, size), depth);
                Ok(self.take_record(inner, at.block, size))
            });
            let record = match streamed?.flatten() {
                Some(record) => Newest::OnDisk(record),
                None => match self.newest(at.block)? {
                    (record, now) if now as u64 == size => record,
                    _ => return Ok(None),
                },
            };
            Ok(Piece::of(record, at))
        });
        Ok(pieces.collect::<Result<Option<Vec<_>>>>()?.map(Lent))
    }

    /// The same, if no disk need be asked for it.
    ///
    /// # Errors
    /// As [`Object::read`].
    pub fn lend_kept(&self, offset: u64, length: usize) -> Result<Option<Lent>> {
        let size = u64::from(self.block_size()?);
        let Some(places) = places(size, offset, length) else { return Ok(None) };
        let pieces = places.into_iter().map(|at| {
            let record = self.newest_kept(at.block, size)?;
            Ok(record.and_then(|record| Piece::of(record, at)))
        });
        let lent = pieces.collect::<Result<Option<Vec<_>>>>()?.map(Lent);
        if lent.is_some() {
            self.read_on(offset, length as u64);
        }
        Ok(lent)
    }

    /// The same, if all of it is on disk, and then from `shelf`: what of it is elsewhere is moved there, if all can be.
    ///
    /// # Errors
    /// As [`Object::read`].
    pub fn lend_shelved(
        &self,
        offset: u64,
        length: usize,
        shelf: &Arc<Shelf>,
    ) -> Result<Option<Lent>> {
        let size = u64::from(self.block_size()?);
        let Some(places) = places(size, offset, length) else { return Ok(None) };
        for at in &places {
            let piece = self.newest_kept(at.block, size)?.and_then(|found| Piece::of(found, *at));
            match piece.map(|piece| piece.record) {
                Some(Newest::OnDisk(block)) if block.fits_a_shelf() => {}
                _ => return Ok(None),
            }
        }
        let pieces = places.into_iter().map(|at| {
            // Anew: it may have been changed, or freed and reused, since.
            let found = self.newest_found(at.block, size, |bp| self.store.shelve(bp, shelf))?;
            let on_disk = found.filter(|found| matches!(found, Newest::OnDisk(_)));
            Ok(on_disk.and_then(|record| Piece::of(record, at)))
        });
        let lent = pieces.collect::<Result<Option<Vec<_>>>>()?.map(Lent);
        if lent.is_some() {
            self.read_on(offset, length as u64);
        }
        Ok(lent)
    }

    /// What there is of a block of `size` bytes; one on disk was wanted once from now on.
    fn look(&self, block: u64, size: u64) -> Result<Look> {
        let (root, version) = match self.source(block)? {
            (_, now) if u64::from(now) != size => return Ok(Look::Nothing),
            (Source::Memory(_), _) => return Ok(Look::Again),
            (Source::Hole, _) => return Ok(Look::Nothing),
            (Source::Disk(root, version), _) => (root, version),
        };
        let looked = root.pointer(&self.store, 0, block).map(|bp| match bp.is_hole() {
            true => Look::Nothing,
            false if self.store.is_wanted_again(&bp) => Look::Again,
            false => Look::Once,
        });
        match looked {
            Err(_) if self.version() != version => Ok(Look::Nothing),
            looked => looked,
        }
    }
}

/// What there is of a block.
enum Look {
    /// Nothing to be lent.
    Nothing,
    /// It is on disk, and was not asked for lately.
    Once,
    /// It is in memory, or was asked for lately.
    Again,
}

/// Where the bytes are in records of `size` bytes; `None`: in too many, or there are none.
fn places(size: u64, offset: u64, length: usize) -> Option<Vec<At>> {
    let end = offset.checked_add(length as u64).filter(|end| *end > offset)?;
    let (first, last) = (offset / size, (end - 1) / size);
    let few = last - first < RECORDS_MAX as u64;
    few.then(|| {
        let at = |block: u64| {
            let (from, to) = (offset.max(block * size), end.min((block + 1) * size));
            At { block, start: (from - block * size) as usize, length: (to - from) as usize }
        };
        (first..=last).map(at).collect()
    })
}
