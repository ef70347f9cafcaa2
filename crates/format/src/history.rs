//! The pool's history: a ring of records in one object of the MOS.
//!
//! The one idea: records have *logical* offsets that only grow; the first `creation_len` bytes
//! (how the pool was made) are never overwritten, the rest of the object is the ring. A record is
//! its length and a native nvlist. FORMAT: section 10.4.

use zerocopy::little_endian::U64;
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

use crate::{FormatError, NvList, Result};

/// Bytes of the header, which is the bonus of the object.
pub const HISTORY_HEADER_SIZE: usize = 40;
/// Smallest and largest size of the object, in bytes.
pub const HISTORY_SIZES: (u64, u64) = (128 << 10, 1 << 30);
/// Bytes of the length before each record.
pub const LENGTH_SIZE: u64 = 8;

/// Keys of records.
#[allow(missing_docs)]
pub mod key {
    pub const TIME: &str = "history time";
    pub const COMMAND: &str = "history command";
    pub const WHO: &str = "history who";
    pub const ZONE: &str = "history zone";
    pub const HOST: &str = "history hostname";
    pub const TXG: &str = "history txg";
    pub const INTERNAL_NAME: &str = "internal_name";
    pub const INTERNAL_TEXT: &str = "history internal str";
    pub const INTERNAL_EVENT: &str = "history internal event";
    pub const DATASET_NAME: &str = "dsname";
    pub const DATASET_ID: &str = "dsid";
    pub const IOCTL: &str = "ioctl";
    pub const INPUT: &str = "in_nvl";
    pub const OUTPUT: &str = "out_nvl";
    pub const ERRNO: &str = "errno";
    pub const ELAPSED_NS: &str = "elapsed_ns";
}

const WHAT: &str = "history";

/// Where the records are (`spa_history_phys_t`).
#[derive(
    Clone, Copy, Debug, PartialEq, Eq, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned,
)]
#[repr(C)]
pub struct HistoryHeader {
    /// Bytes of the records about the pool's creation.
    pub creation_len: U64,
    /// Bytes of the object, creation and ring.
    pub size_max: U64,
    /// Logical offset of the oldest record that is kept after the creation.
    pub begin: U64,
    /// Logical offset after the newest record.
    pub end: U64,
    /// Records that were overwritten.
    pub records_lost: U64,
}

const _: () = assert!(size_of::<HistoryHeader>() == HISTORY_HEADER_SIZE);

impl HistoryHeader {
    /// An empty history for a pool with `space` bytes that can be used.
    pub fn new(space: u64) -> Self {
        let size_max = (space / 1000).clamp(HISTORY_SIZES.0, HISTORY_SIZES.1);
        HistoryHeader {
            creation_len: U64::ZERO,
            size_max: U64::new(size_max),
            begin: U64::ZERO,
            end: U64::ZERO,
            records_lost: U64::ZERO,
        }
    }

    /// Parses the bonus of the object; offsets that contradict each other are refused.
    pub fn parse(bonus: &[u8]) -> Result<Self> {
        let (needed, have) = (HISTORY_HEADER_SIZE as u64, bonus.len() as u64);
        let short = FormatError::Short { what: WHAT, needed, have };
        let (header, _) = HistoryHeader::read_from_prefix(bonus).map_err(|_| short)?;
        let field =
            |field, seen, expected| Err(FormatError::Field { what: WHAT, field, seen, expected });
        let (creation, size) = (header.creation_len.get(), header.size_max.get());
        let (begin, end) = (header.begin.get(), header.end.get());
        if size == 0 || size > HISTORY_SIZES.1 {
            return field("phys_max_off", size, "1 byte to 1 GiB");
        }
        if creation >= size {
            return field("pool_create_len", creation, "less than phys_max_off");
        }
        if begin < creation || begin > end {
            return field("bof", begin, "between pool_create_len and eof");
        }
        if end > i64::MAX as u64 {
            return field("eof", end, "below 2^63");
        }
        if end - begin > size - creation {
            return field("eof", end, "at most the ring's size beyond bof");
        }
        Ok(header)
    }

    /// Bytes of the ring: the object without the creation.
    pub fn ring_size(&self) -> u64 {
        self.size_max.get() - self.creation_len.get()
    }

    /// Where a logical offset is in the object.
    pub fn physical(&self, logical: u64) -> u64 {
        let creation = self.creation_len.get();
        if logical < self.size_max.get() {
            logical
        } else {
            creation + (logical - creation) % self.ring_size()
        }
    }

    /// Where `len` bytes from a logical offset on are in the object: offset and length of one or
    /// two pieces. `len` must not be more than the ring.
    pub fn pieces(&self, logical: u64, len: u64) -> [(u64, u64); 2] {
        let start = self.physical(logical);
        let first = len.min(self.size_max.get() - start);
        [(start, first), (self.creation_len.get(), len - first)]
    }

    /// Logical ranges that hold records, the oldest first: the creation, then the ring.
    pub fn ranges(&self) -> [std::ops::Range<u64>; 2] {
        [0..self.creation_len.get(), self.begin.get()..self.end.get()]
    }

    /// Makes room for a record of `len` bytes (its length before it included) by giving up the
    /// oldest ones, and gives the logical offset at which it is to be written.
    ///
    /// `length_at` reads the length that is stored at a logical offset. Of an error the header is
    /// left as it was.
    pub fn append<E: From<FormatError>>(
        &mut self,
        len: u64,
        mut length_at: impl FnMut(u64) -> std::result::Result<u64, E>,
    ) -> std::result::Result<u64, E> {
        let max = self.ring_size() - 1;
        if len > max {
            return Err(
                FormatError::TooLarge { what: WHAT, field: "record", size: len, max }.into()
            );
        }
        let mut next = *self;
        let end = next.end.get();
        // One byte stays free, so that a full ring is not taken for an empty one.
        while end - next.begin.get() > max - len {
            let begin = next.begin.get();
            let kept = end - begin;
            let lost = length_at(begin)?.checked_add(LENGTH_SIZE).filter(|lost| *lost <= kept);
            let at = begin;
            let lost = lost.ok_or(FormatError::Bounds { what: WHAT, field: "length", at })?;
            next.begin.set(begin + lost);
            next.records_lost.set(next.records_lost.get().wrapping_add(1));
        }
        next.end.set(end + len);
        *self = next;
        Ok(end)
    }

    /// Notes that all records up to now say how the pool was made. The kernel does so after the
    /// first record of a command.
    pub fn end_creation(&mut self) {
        self.creation_len = self.end;
        self.begin = self.end;
    }
}

/// The record at the start of `bytes` and how many bytes it takes; `None` if there are no bytes.
pub fn parse_record(bytes: &[u8]) -> Result<Option<(NvList, usize)>> {
    if bytes.is_empty() {
        return Ok(None);
    }
    let have = bytes.len() as u64;
    let short = |needed| FormatError::Short { what: "history record", needed, have };
    let (length, rest) = bytes.split_first_chunk().ok_or_else(|| short(LENGTH_SIZE))?;
    let length = u64::from_le_bytes(*length);
    let needed = length.saturating_add(LENGTH_SIZE);
    let body = usize::try_from(length).ok().and_then(|length| rest.get(..length));
    let body = body.ok_or_else(|| short(needed))?;
    NvList::parse(body).map(|list| Some((list, needed as usize)))
}

/// The bytes of a record: its length and the list.
pub fn build_record(list: &NvList) -> Result<Vec<u8>> {
    let body = list.to_native()?;
    let mut record = (body.len() as u64).to_le_bytes().to_vec();
    record.extend_from_slice(&body);
    Ok(record)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    /// The history of the golden pool `rz3`, and what `zdb -dddd` says of it: creation_len,
    /// size_max, begin, end.
    const GOLDEN: &[u8] = include_bytes!("../tests/data/history_rz3");
    const GOLDEN_HEADER: [u64; 4] = [10680, 536_870, 10680, 11940];

    fn header([creation, size, begin, end]: [u64; 4]) -> HistoryHeader {
        let words = [creation, size, begin, end, 0].map(U64::new);
        HistoryHeader::parse(words.as_bytes()).unwrap()
    }

    fn records(mut bytes: &[u8]) -> Vec<NvList> {
        let mut records = Vec::new();
        while let Some((list, size)) = parse_record(bytes).unwrap() {
            assert_eq!(build_record(&list).unwrap(), &bytes[..size]);
            bytes = &bytes[size..];
            records.push(list);
        }
        records
    }

    #[test]
    fn kernel_records_are_written_back_to_the_byte() {
        let header = header(GOLDEN_HEADER);
        assert_eq!(GOLDEN.len() as u64, header.end.get());
        let [creation, ring] =
            header.ranges().map(|r| records(&GOLDEN[r.start as usize..r.end as usize]));
        assert_eq!(creation[0].text(key::INTERNAL_NAME).unwrap(), "create");
        assert_eq!(creation[0].u64(key::TXG), Some(4));
        let last = creation.last().unwrap();
        assert!(last.text(key::COMMAND).unwrap().starts_with("zpool create"));
        assert!(creation.iter().rev().skip(1).all(|r| !r.contains(key::COMMAND)));
        let last = ring.last().unwrap();
        assert!(last.text(key::COMMAND).unwrap().starts_with("zpool export"));
        assert!(ring.iter().any(|r| r.list(key::INPUT).is_some()));
        assert_eq!(creation.len() + ring.len(), 43);
    }

    #[test]
    fn the_ring_keeps_the_newest() {
        let mut header = HistoryHeader::new(0);
        assert_eq!(header.size_max.get(), 128 << 10);
        let mut object = vec![0; 128 << 10];
        let mut write = |header: &mut HistoryHeader, text: &str| {
            let mut list = NvList::new();
            list.put_string(key::COMMAND, text);
            let record = build_record(&list).unwrap();
            let before = *header;
            let read = |logical| {
                let bytes: Vec<u8> = before
                    .pieces(logical, 8)
                    .iter()
                    .flat_map(|(at, len)| object[*at as usize..(*at + *len) as usize].to_vec())
                    .collect();
                Ok::<_, FormatError>(u64::from_le_bytes(bytes.try_into().unwrap()))
            };
            let at = header.append(record.len() as u64, read).unwrap();
            let mut rest = &record[..];
            for (at, len) in header.pieces(at, record.len() as u64) {
                let (now, later) = rest.split_at(len as usize);
                object[at as usize..][..now.len()].copy_from_slice(now);
                rest = later;
            }
        };
        write(&mut header, "zpool create");
        header.end_creation();
        for i in 0..5000 {
            write(&mut header, &format!("command {i} {}", "x".repeat(i % 50)));
        }
        let [creation, ring] = header.ranges();
        assert_eq!(records(&object[..creation.end as usize]).len(), 1);
        let bytes: Vec<u8> = header
            .pieces(ring.start, ring.end - ring.start)
            .iter()
            .flat_map(|(at, len)| object[*at as usize..(*at + *len) as usize].to_vec())
            .collect();
        let kept = records(&bytes);
        assert_eq!(kept.len() as u64 + header.records_lost.get(), 5000);
        assert!(kept.len() > 1000);
        for (i, list) in kept.iter().rev().enumerate() {
            let text = list.text(key::COMMAND).unwrap();
            assert!(text.starts_with(&format!("command {} ", 4999 - i)), "{text}");
        }
        assert!(header.end.get() > 128 << 10);
        assert!(HistoryHeader::parse(header.as_bytes()).is_ok());
    }

    #[test]
    fn damaged_headers_are_refused() {
        let good = GOLDEN_HEADER;
        for (index, value) in [
            (0, 536_870),
            (3, 1 << 63),
            (1, 0),
            (1, 1 << 31),
            (2, 10679),
            (2, 11941),
            (3, 10679),
            (3, 1 << 40),
        ] {
            let mut words = good;
            words[index] = value;
            let words = words.map(U64::new);
            let mut bytes = words.as_bytes().to_vec();
            bytes.extend([0; 8]);
            assert!(HistoryHeader::parse(&bytes).is_err(), "{index} {value}");
        }
        assert!(HistoryHeader::parse(&[0; 39]).is_err());
    }

    #[test]
    fn damaged_records_are_refused() {
        assert!(parse_record(&GOLDEN[..7]).is_err());
        assert!(parse_record(&GOLDEN[..200]).is_err());
        assert!(parse_record(&[0xff; 64]).is_err());
        let mut small = header([100, 131_072, 100, 100]);
        let too_large = small.append(131_072, |_| Ok::<_, FormatError>(0));
        assert!(matches!(too_large, Err(FormatError::TooLarge { .. })));
        // A length in the ring that leads beyond its end.
        let mut full = header([100, 131_072, 100, 131_072]);
        let before = full;
        let error = full.append(8, |_| Ok::<_, FormatError>(u64::MAX));
        assert!(matches!(error, Err(FormatError::Bounds { .. })));
        assert_eq!(full, before);
    }

    proptest! {
        #[test]
        fn any_header_that_parses_maps_into_the_object(words: [u64; 5], offset: u64) {
            let words = words.map(|w| U64::new(w % (3 << 30)));
            if let Ok(header) = HistoryHeader::parse(words.as_bytes()) {
                let logical = header.begin.get() + offset % header.ring_size();
                for (at, len) in header.pieces(logical, header.ring_size()) {
                    prop_assert!(at + len <= header.size_max.get());
                }
            }
        }
    }
}
