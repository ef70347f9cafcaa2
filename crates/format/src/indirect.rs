//! Indirect vdevs: where the data of a removed top-level vdev has gone.
//!
//! A *mapping* object lists runs of the removed vdev, ascending, each with its new place; a *births*
//! object says in which txg the data below an offset was copied. Old block pointers keep naming the
//! removed vdev and are read through the mapping. FORMAT: section 13.5.

use zerocopy::little_endian::U64;
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

use crate::blkptr::bits;
use crate::{BlkPtr, Dva, FormatError, Result, SECTOR_SHIFT, view};

/// Size of the mapping's bonus in bytes.
pub const MAPPING_SIZE: usize = 32;
/// Size of the mapping's bonus without counts of obsolete bytes, in bytes.
pub const MAPPING_SIZE_V0: usize = 24;

/// Bonus of a mapping object.
#[derive(
    Clone, Copy, Debug, PartialEq, Eq, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned,
)]
#[repr(C)]
pub struct MappingPhys {
    /// End of the last run, in bytes.
    pub max_offset: U64,
    /// Sum of all runs, in bytes.
    pub bytes_mapped: U64,
    /// Number of entries.
    pub num_entries: U64,
    /// Object with a `u32` per entry: bytes that became obsolete; 0: none.
    pub counts_object: U64,
}

/// One run of a mapping.
#[derive(
    Clone, Copy, Debug, PartialEq, Eq, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned,
)]
#[repr(C)]
pub struct MappingEntry {
    src: U64,
    dst: [U64; 2],
}

/// Bonus of a births object.
#[derive(
    Clone, Copy, Debug, PartialEq, Eq, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned,
)]
#[repr(C)]
pub struct BirthsPhys {
    /// Number of entries.
    pub count: U64,
}

/// One entry of a births object.
#[derive(
    Clone, Copy, Debug, PartialEq, Eq, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned,
)]
#[repr(C)]
pub struct BirthEntry {
    /// End of the offsets that it speaks of, in bytes.
    pub end_offset: U64,
    /// The txg in which they were copied.
    pub physical_birth_txg: U64,
}

const _: () = assert!(size_of::<MappingPhys>() == MAPPING_SIZE);
const _: () = assert!(size_of::<MappingEntry>() == 24);
const _: () = assert!(size_of::<BirthsPhys>() == 8);
const _: () = assert!(size_of::<BirthEntry>() == 16);

impl MappingPhys {
    /// The header in a bonus.
    pub fn parse(bonus: &[u8]) -> Result<Self> {
        if bonus.len() < MAPPING_SIZE_V0 {
            let (needed, have) = (MAPPING_SIZE_V0 as u64, bonus.len() as u64);
            return Err(FormatError::Short { what: "indirect mapping", needed, have });
        }
        Ok(view::padded::<Self, MAPPING_SIZE>(bonus))
    }
}

impl MappingEntry {
    /// A run of `dst.asize` bytes that was at `offset` (in bytes) of the removed vdev.
    pub fn new(offset: u64, dst: Dva) -> Self {
        let mut bp = BlkPtr::ZERO;
        bp.set_dva(0, dst);
        let [w0, w1, ..] = bp.words();
        MappingEntry { src: U64::new(offset >> SECTOR_SHIFT), dst: [U64::new(w0), U64::new(w1)] }
    }

    /// Start on the removed vdev, in bytes.
    pub fn offset(&self) -> u64 {
        bits(self.src.get(), 0, 63) << SECTOR_SHIFT
    }

    /// The new place; its allocated size is the length of the run.
    pub fn dst(&self) -> Dva {
        let mut words = [0; 16];
        let [to0, to1, ..] = &mut words;
        let [w0, w1] = self.dst;
        (*to0, *to1) = (w0.get(), w1.get());
        BlkPtr::from_words(words).dva(0)
    }
}

/// The first `count` entries of (a piece of) a mapping object's data.
pub fn mapping_entries(bytes: &[u8], count: u64) -> Result<&[MappingEntry]> {
    view::array("indirect mapping", bytes, count)
}

/// Entries that are read at a time.
const PART: u64 = 1 << 14;

/// All `count` entries of a mapping, part by part: `read` gives so many bytes of its object from an offset on. Memory is taken
/// for what was there and in order, not for what is claimed. `wrong`: what it is to the caller if it is none.
pub fn all_entries<E>(
    count: u64,
    mut read: impl FnMut(u64, usize) -> std::result::Result<Vec<u8>, E>,
    wrong: impl Fn(FormatError) -> E,
) -> std::result::Result<Vec<MappingEntry>, E> {
    const SIZE: usize = size_of::<MappingEntry>();
    let mut entries: Vec<MappingEntry> = Vec::new();
    while (entries.len() as u64) < count {
        let known = entries.len();
        let part = PART.min(count - known as u64);
        let bytes = read((known * SIZE) as u64, part as usize * SIZE)?;
        entries.extend_from_slice(mapping_entries(&bytes, part).map_err(&wrong)?);
        check_order(entries.get(known.saturating_sub(1)..).unwrap_or_default()).map_err(&wrong)?;
    }
    Ok(entries)
}

/// Are entries in order? Who reads a mapping asks part by part, and so does not follow one to its end that goes on in holes,
/// or in one block again and again.
pub fn check_order(entries: &[MappingEntry]) -> Result<()> {
    let wrong = entries.iter().zip(entries.get(1..).unwrap_or_default());
    match wrong.map(|(one, next)| (one.offset(), next.offset())).find(|(one, next)| one >= next) {
        Some((_, at)) => {
            Err(FormatError::Bounds { what: "indirect mapping", field: "order of entries", at })
        }
        None => Ok(()),
    }
}

/// The first `count` entries of a births object's data.
pub fn birth_entries(bytes: &[u8], count: u64) -> Result<&[BirthEntry]> {
    view::array("indirect births", bytes, count)
}

/// A part of a range of the removed vdev, and where it is now.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Piece {
    /// Start of the part within the range asked for, in bytes.
    pub inner: u64,
    /// Vdev that has it now (perhaps another indirect one).
    pub vdev: u32,
    /// Offset there, in bytes.
    pub offset: u64,
    /// Length in bytes, not 0.
    pub size: u64,
}

/// Splits `[offset, offset + size)` of a removed vdev into the pieces of a mapping.
///
/// `entries` ascend; a range that they do not cover without a gap is an error.
pub fn pieces(entries: &[MappingEntry], offset: u64, size: u64) -> Result<Vec<Piece>> {
    let gap = |at| FormatError::Bounds { what: "indirect mapping", field: "offset", at };
    let end = offset.checked_add(size).ok_or_else(|| gap(offset))?;
    let first = entries.partition_point(|e| e.offset() <= offset).saturating_sub(1);
    let mut out = Vec::new();
    let mut at = offset;
    for entry in entries.get(first..).unwrap_or_default() {
        if at >= end {
            break;
        }
        let (start, dst) = (entry.offset(), entry.dst());
        let stop = start.saturating_add(dst.asize).min(end);
        if start > at || stop <= at {
            return Err(gap(at));
        }
        let place = dst.offset.checked_add(at - start).ok_or_else(|| gap(at))?;
        out.push(Piece { inner: at - offset, vdev: dst.vdev, offset: place, size: stop - at });
        at = stop;
    }
    if at < end { Err(gap(at)) } else { Ok(out) }
}

/// The txg in which the data at `offset` was copied; `entries` ascend.
pub fn birth_of(entries: &[BirthEntry], offset: u64) -> Option<u64> {
    let at = entries.partition_point(|e| e.end_offset.get() <= offset);
    entries.get(at).map(|e| e.physical_birth_txg.get())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn entry(offset: u64, vdev: u32, to: u64, asize: u64) -> MappingEntry {
        MappingEntry::new(offset, Dva { vdev, offset: to, asize, gang: false })
    }

    #[test]
    fn ranges_split_at_entries_and_gaps_are_errors() {
        let map = [entry(0, 1, 4096, 1024), entry(1024, 2, 512, 512), entry(4096, 1, 0, 512)];
        let found = pieces(&map, 512, 1024).unwrap();
        let piece = |inner, vdev, offset, size| Piece { inner, vdev, offset, size };
        assert_eq!(found, [piece(0, 1, 4608, 512), piece(512, 2, 512, 512)]);
        assert_eq!(pieces(&map, 4096, 512).unwrap(), [piece(0, 1, 0, 512)]);
        for (offset, size) in [(1024, 1024), (2048, 512), (4096, 1024), (u64::MAX, 2), (512, 9999)]
        {
            assert!(pieces(&map, offset, size).is_err(), "{offset} {size}");
        }
        assert!(pieces(&[], 0, 1).is_err());
        assert!(pieces(&map[1..], 0, 512).is_err());
    }

    #[test]
    fn headers_of_both_sizes_and_births() {
        let header = MappingPhys::parse(&[1; 24]).unwrap();
        assert_eq!(header.counts_object.get(), 0);
        assert!(header.num_entries.get() != 0 && MappingPhys::parse(&[1; 23]).is_err());
        let births: Vec<BirthEntry> = [(512, 9), (2048, 12)]
            .map(|(end, txg)| BirthEntry {
                end_offset: U64::new(end),
                physical_birth_txg: U64::new(txg),
            })
            .into();
        assert_eq!(birth_of(&births, 0), Some(9));
        assert_eq!(birth_of(&births, 512), Some(12));
        assert_eq!(birth_of(&births, 2048), None);
        assert_eq!(birth_entries(births.as_bytes(), 2).unwrap(), births);
        assert!(birth_entries(births.as_bytes(), 3).is_err());
    }
}
