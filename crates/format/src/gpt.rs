//! GPT partition tables, as far as finding a pool's partition needs them.
//!
//! The one idea: a table is believed only if both of its checksums are right, its place is the one it
//! names, and its partitions lie within the device one beside the other. So who follows it reads no
//! byte twice, whatever a hostile table says. FORMAT: section 1.2.

use zerocopy::little_endian::{U32, U64};
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

use crate::view;
use crate::{FormatError, Result};

const WHAT: &str = "GPT";
/// The magic number, "EFI PART".
const MAGIC: u64 = u64::from_le_bytes(*b"EFI PART");
/// Sizes of a logical block that disks have, in bytes.
pub const BLOCK_SIZES: [u64; 2] = [512, 4096];
/// The most entries that are believed: four times what is usual.
const ENTRIES_MAX: u32 = 512;
/// The largest entries that are believed, in bytes.
const ENTRY_SIZE_MAX: u32 = 1024;
/// Bytes of a header that its checksum covers, at least.
const HEADER_SIZE_MIN: u32 = 92;

/// The header of a table.
#[derive(
    Clone, Copy, Debug, PartialEq, Eq, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned,
)]
#[repr(C)]
struct Raw {
    magic: U64,
    revision: U32,
    header_size: U32,
    header_crc: U32,
    reserved: U32,
    own_block: U64,
    other_block: U64,
    first_usable: U64,
    last_usable: U64,
    disk_guid: [u8; 16],
    entries_block: U64,
    entry_count: U32,
    entry_size: U32,
    entries_crc: U32,
}

const _: () = assert!(size_of::<Raw>() == HEADER_SIZE_MIN as usize);

/// An entry; more bytes may follow.
#[derive(FromBytes, Immutable, KnownLayout, Unaligned)]
#[repr(C)]
struct Entry {
    kind: [u8; 16],
    guid: [u8; 16],
    first_block: U64,
    last_block: U64,
}

/// A header whose checksum is right.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Header {
    raw: Raw,
    block_size: u64,
}

/// A partition.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Partition {
    /// Its number, from 1 on, as the system counts them.
    pub number: u32,
    /// Where it starts on the device, in bytes.
    pub offset: u64,
    /// Its size, in bytes.
    pub size: u64,
}

impl Header {
    /// Where the first table's header is, in bytes.
    pub fn first_at(block_size: u64) -> u64 {
        block_size
    }

    /// Where the second table's header is, at the end of a device of `device_size` bytes.
    pub fn second_at(block_size: u64, device_size: u64) -> Option<u64> {
        (device_size / block_size).checked_sub(1).map(|block| block * block_size)
    }

    /// The header in the block at byte `at` of a device with logical blocks of `block.len()` bytes.
    pub fn parse(block: &[u8], at: u64) -> Result<Header> {
        let (raw, _) = view::prefix::<Raw>(WHAT, block)?;
        if raw.magic.get() != MAGIC {
            let seen = raw.magic.get();
            return Err(FormatError::Magic { what: WHAT, seen, expected: MAGIC });
        }
        let wrong =
            |field, seen, expected| Err(FormatError::Field { what: WHAT, field, seen, expected });
        let size = raw.header_size.get();
        let covered = block.get(..size as usize).filter(|_| size >= HEADER_SIZE_MIN);
        let Some(covered) = covered else {
            return wrong("header size", size.into(), "92 to a block");
        };
        let mut bytes = covered.to_vec();
        // The checksum is made with its own field zero.
        if let Some(field) = bytes.get_mut(16..20) {
            field.fill(0);
        }
        if crc32(&bytes) != raw.header_crc.get() {
            return wrong("checksum", raw.header_crc.get().into(), "that of the header");
        }
        let block_size = block.len() as u64;
        if raw.own_block.get().checked_mul(block_size) != Some(at) {
            return wrong("block of the header", raw.own_block.get(), "where it was read");
        }
        if raw.entry_count.get() > ENTRIES_MAX {
            return wrong("number of entries", raw.entry_count.get().into(), "at most 512");
        }
        let entry = raw.entry_size.get();
        if !entry.is_multiple_of(128) || !(128..=ENTRY_SIZE_MAX).contains(&entry) {
            return wrong("size of an entry", entry.into(), "128 to 1024, by 128");
        }
        Ok(Header { raw: *raw, block_size })
    }

    /// Where its entries are on the device, and how many bytes they are.
    pub fn entries(&self) -> Result<(u64, usize)> {
        let block = self.raw.entries_block.get();
        let at = block.checked_mul(self.block_size);
        let at = at.ok_or(FormatError::Bounds { what: WHAT, field: "entries", at: block })?;
        Ok((at, self.raw.entry_count.get() as usize * self.raw.entry_size.get() as usize))
    }

    /// The partitions in the entries' bytes, of a device of `device_size` bytes.
    pub fn partitions(&self, entries: &[u8], device_size: u64) -> Result<Vec<Partition>> {
        if crc32(entries) != self.raw.entries_crc.get() {
            let (field, seen) = ("checksum of the entries", self.raw.entries_crc.get().into());
            let expected = "that of the entries";
            return Err(FormatError::Field { what: WHAT, field, seen, expected });
        }
        let mut found = Vec::new();
        for (bytes, number) in entries.chunks_exact(self.raw.entry_size.get() as usize).zip(1..) {
            let (entry, _) = view::prefix::<Entry>(WHAT, bytes)?;
            if entry.kind == [0; 16] {
                continue;
            }
            let (first, last) = (entry.first_block.get(), entry.last_block.get());
            let blocks = last.checked_sub(first).and_then(|count| count.checked_add(1));
            let size = blocks.and_then(|blocks| blocks.checked_mul(self.block_size));
            let offset = first.checked_mul(self.block_size);
            let fits = |(offset, size): &(u64, u64)| {
                offset.checked_add(*size).is_some_and(|end| end <= device_size)
            };
            let Some((offset, size)) = offset.zip(size).filter(fits) else {
                return Err(FormatError::Bounds { what: WHAT, field: "partition", at: first });
            };
            found.push(Partition { number, offset, size });
        }
        let mut in_order: Vec<&Partition> = found.iter().collect();
        in_order.sort_by_key(|partition| partition.offset);
        for pair in in_order.windows(2) {
            if let [a, b] = pair
                && a.offset + a.size > b.offset
            {
                let at = b.offset / self.block_size;
                return Err(FormatError::Bounds { what: WHAT, field: "partition", at });
            }
        }
        Ok(found)
    }
}

/// The CRC-32 that GPT and Ethernet use.
pub fn crc32(bytes: &[u8]) -> u32 {
    let step = |crc: u32, byte: &u8| {
        (0..8).fold(crc ^ u32::from(*byte), |crc, _| {
            if crc & 1 != 0 { crc >> 1 ^ 0xedb8_8320 } else { crc >> 1 }
        })
    };
    !bytes.iter().fold(u32::MAX, step)
}

#[cfg(test)]
mod tests {
    use super::*;
    use zerocopy::FromZeros;

    /// A table of these (first, last) blocks on a device with blocks of 512 bytes.
    fn table(partitions: &[(u64, u64)]) -> (Vec<u8>, Vec<u8>) {
        let mut entries = vec![0; 128 * 128];
        for ((first, last), entry) in partitions.iter().zip(entries.chunks_exact_mut(128)) {
            entry[..16].fill(7);
            entry[32..40].copy_from_slice(&first.to_le_bytes());
            entry[40..48].copy_from_slice(&last.to_le_bytes());
        }
        let mut raw = Raw::new_zeroed();
        raw.magic.set(MAGIC);
        raw.header_size.set(92);
        raw.own_block.set(1);
        raw.entries_block.set(2);
        raw.entry_count.set(128);
        raw.entry_size.set(128);
        raw.entries_crc.set(crc32(&entries));
        (sealed(raw), entries)
    }

    fn sealed(mut raw: Raw) -> Vec<u8> {
        raw.header_crc.set(0);
        raw.header_crc.set(crc32(raw.as_bytes()));
        let mut block = vec![0; 512];
        block[..92].copy_from_slice(raw.as_bytes());
        block
    }

    #[test]
    fn the_crc_is_the_usual_one() {
        assert_eq!(crc32(b"123456789"), 0xcbf4_3926);
    }

    #[test]
    fn partitions_are_found() {
        let (block, entries) = table(&[(2048, 4095), (0, 0), (4096, 5000)]);
        let header = Header::parse(&block, 512).unwrap();
        assert_eq!(header.entries().unwrap(), (1024, 128 * 128));
        let found = header.partitions(&entries, 5001 * 512).unwrap();
        let places: Vec<_> = found.iter().map(|p| (p.number, p.offset, p.size)).collect();
        assert_eq!(places, [(1, 2048 * 512, 2048 * 512), (2, 0, 512), (3, 4096 * 512, 905 * 512)]);
        assert!(header.partitions(&entries, 5000 * 512).is_err(), "beyond the device");
    }

    #[test]
    fn tables_that_lie_are_refused() {
        let (block, mut entries) = table(&[(10, 20), (20, 30)]);
        let header = Header::parse(&block, 512).unwrap();
        assert!(header.partitions(&entries, 1 << 30).is_err(), "two at one place");
        assert!(Header::parse(&block, 1024).is_err(), "not where it says");
        entries[5] = 1;
        assert!(header.partitions(&entries, 1 << 30).is_err(), "checksum of the entries");
        let change = |change: fn(&mut Raw)| {
            let mut raw = Raw::read_from_prefix(&block).unwrap().0;
            change(&mut raw);
            Header::parse(&sealed(raw), 512)
        };
        assert!(change(|_| ()).is_ok());
        assert!(change(|raw| raw.entry_count.set(513)).is_err());
        assert!(change(|raw| raw.entry_size.set(0)).is_err());
        assert!(change(|raw| raw.entry_size.set(u32::MAX - 127)).is_err());
        assert!(change(|raw| raw.header_size.set(513)).is_err());
        assert!(change(|raw| raw.entries_block.set(u64::MAX)).unwrap().entries().is_err());
        let mut torn = block.clone();
        torn[60] ^= 1;
        assert!(Header::parse(&torn, 512).is_err());
        let (block, entries) = table(&[(9, 8), (u64::MAX, u64::MAX)]);
        assert!(Header::parse(&block, 512).unwrap().partitions(&entries, 1 << 30).is_err());
        let (block, entries) = table(&[(0, u64::MAX)]);
        assert!(Header::parse(&block, 512).unwrap().partitions(&entries, u64::MAX).is_err());
    }
}
