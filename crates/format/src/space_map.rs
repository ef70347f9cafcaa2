//! Space maps (`space_map_phys_t`): a log of allocations and frees of one region.
//!
//! The data of the object is a stream of 64-bit words: *debug* words that open a batch, and one-
//! or two-word entries, each a run of units that was allocated or freed. No entry straddles a
//! block, so every block can be decoded on its own. The bonus has the valid length, the net
//! allocated bytes and (since spacemap_histogram) a histogram of the free segments.
//! FORMAT: section 9.3.

use zerocopy::little_endian::{I64, U64};
use zerocopy::{FromBytes, FromZeros, Immutable, IntoBytes, KnownLayout, Unaligned};

use crate::blkptr::{bits, with_bits};
use crate::{FormatError, Result, SECTOR_SHIFT, view};

/// Size of the bonus with a histogram, in bytes.
pub const SPACE_MAP_SIZE: usize = 320;
/// Size of the bonus without a histogram (feature spacemap_histogram off), in bytes.
pub const SPACE_MAP_SIZE_V0: usize = 24;
/// Buckets of the histogram.
pub const HISTOGRAM_BUCKETS: usize = 32;
/// log2 of the size of a space map's indirect blocks: smaller than that of other objects.
pub const SPACE_MAP_INDIRECT_SHIFT: u8 = 14;
/// Data block of a metaslab's map when log_spacemap is enabled, and of logs, in bytes.
pub const SPACE_MAP_BLOCK_LOG: u32 = 128 << 10;
/// Data block of a metaslab's map when log_spacemap is off, in bytes.
pub const SPACE_MAP_BLOCK: u32 = 16 << 10;
/// Data block of a DTL, in bytes.
pub const SPACE_MAP_BLOCK_DTL: u32 = 4 << 10;

/// Longest run of a one-word entry, in units.
pub const RUN_MAX_ONE_WORD: u64 = 1 << 15;
/// First offset that a one-word entry cannot name, in units.
pub const OFFSET_END_ONE_WORD: u64 = 1 << 47;
/// Longest run of a two-word entry, in units.
pub const RUN_MAX_TWO_WORDS: u64 = 1 << 36;
/// First offset that a two-word entry cannot name, in units.
pub const OFFSET_END_TWO_WORDS: u64 = 1 << 63;

const WHAT: &str = "space map";
const WORD: usize = 8;
const PREFIX_DEBUG: u64 = 2;
const PREFIX_TWO_WORDS: u64 = 3;
/// A debug word of txg 0: fills the end of a block into which a two-word entry does not fit.
const PADDING: u64 = PREFIX_DEBUG << 62;

/// Bonus of a space map.
#[derive(
    Clone, Copy, Debug, PartialEq, Eq, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned,
)]
#[repr(C)]
pub struct SpaceMapPhys {
    /// Its own object number; 0 until the first write.
    pub object: U64,
    /// Valid bytes of the data.
    pub length: U64,
    /// Net allocated bytes of all entries.
    pub alloc: I64,
    pad: [U64; 5],
    /// Free segments by size, see [`histogram_bucket`].
    pub histogram: [U64; HISTOGRAM_BUCKETS],
}

const _: () = assert!(size_of::<SpaceMapPhys>() == SPACE_MAP_SIZE);
const _: () = assert!(std::mem::offset_of!(SpaceMapPhys, histogram) == 64);

impl Default for SpaceMapPhys {
    fn default() -> Self {
        Self::new_zeroed()
    }
}

impl SpaceMapPhys {
    /// The header in a bonus (exactly the dnode's bonus), and whether it has a histogram.
    ///
    /// A length that is not a whole number of words is refused.
    pub fn parse(bonus: &[u8]) -> Result<(Self, bool)> {
        let has_histogram = bonus.len() >= SPACE_MAP_SIZE;
        let len = if has_histogram { SPACE_MAP_SIZE } else { SPACE_MAP_SIZE_V0 };
        let short = FormatError::Short { what: WHAT, needed: 24, have: bonus.len() as u64 };
        let map: Self = view::padded::<Self, 320>(bonus.get(..len).ok_or(short)?);
        if !map.length.get().is_multiple_of(WORD as u64) {
            return Err(FormatError::Field {
                what: WHAT,
                field: "length",
                seen: map.length.get(),
                expected: "a multiple of 8",
            });
        }
        Ok((map, has_histogram))
    }

    /// The bytes of the bonus, with or without the histogram.
    pub fn bonus(&self, with_histogram: bool) -> &[u8] {
        let len = if with_histogram { SPACE_MAP_SIZE } else { SPACE_MAP_SIZE_V0 };
        self.as_bytes().get(..len).unwrap_or_default()
    }

    /// Counts one free segment of `size` bytes (`remove`: no longer).
    pub fn count_free(&mut self, size: u64, shift: u32, remove: bool) {
        let (bucket, weight) = histogram_bucket(size, shift);
        if let Some(word) = self.histogram.get_mut(bucket) {
            let (old, weight) = (word.get(), weight.max(1));
            word.set(if remove { old.saturating_sub(weight) } else { old.saturating_add(weight) });
        }
    }
}

/// Bucket of a free segment of `size` bytes in units of `1 << shift`, and how much it counts.
///
/// Bucket `i` has the segments of `[1 << (i + shift), 2 << (i + shift))` bytes; larger ones count
/// in the last bucket as the number of its lower bound that they hold (as a power of two).
pub fn histogram_bucket(size: u64, shift: u32) -> (usize, u64) {
    let log2 = size.max(1).ilog2().saturating_sub(shift) as usize;
    let last = HISTOGRAM_BUCKETS - 1;
    if log2 > last { (last, 1 << (log2 - last)) } else { (log2, 1) }
}

/// What an entry does to its run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Action {
    /// Allocated.
    Alloc = 0,
    /// Freed.
    Free = 1,
}

impl Action {
    fn from_bit(bit: u64) -> Self {
        if bit == 0 { Self::Alloc } else { Self::Free }
    }
}

/// What the units of a map mean.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Geometry {
    /// Start of the region, added to each offset, in bytes.
    pub start: u64,
    /// Size of the region in bytes; no entry may reach beyond it.
    pub size: u64,
    /// log2 of the unit in bytes.
    pub shift: u32,
}

impl Geometry {
    /// A map of one metaslab: units of the vdev's `ashift`.
    pub fn metaslab(start: u64, size: u64, ashift: u32) -> Self {
        Geometry { start, size, shift: ashift }
    }

    /// A log of all vdevs: units of 512 bytes from the start of the vdev.
    pub const LOG: Geometry = Geometry { start: 0, size: u64::MAX, shift: SECTOR_SHIFT };

    /// A DTL: "bytes" are txgs.
    pub const DTL: Geometry = Geometry { start: 0, size: u64::MAX, shift: 0 };

    /// Bytes of a number of units, `None` if they do not fit into 64 bits.
    fn bytes(&self, units: u64) -> Option<u64> {
        let bytes = units.checked_shl(self.shift)?;
        (bytes >> self.shift == units).then_some(bytes)
    }
}

/// A run of space.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Run {
    /// Allocated or freed.
    pub action: Action,
    /// Top-level vdev of a two-word entry (0 in maps of one vdev); `None` of a one-word entry.
    pub vdev: Option<u32>,
    /// Start in bytes, the region's start included.
    pub offset: u64,
    /// Length in bytes, at least one unit.
    pub size: u64,
}

/// One decoded item of a map.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Item {
    /// Opens a batch; says in which pass of which txg it was written. Information only.
    Debug {
        /// What the entries that follow do (they say it themselves, too).
        action: Action,
        /// Pass of the sync.
        pass: u16,
        /// The txg.
        txg: u64,
    },
    /// Fills up a block.
    Padding,
    /// An entry.
    Run(Run),
}

/// Decodes (a piece of) the data: one or more whole blocks, or what of the last one is valid.
///
/// Yields an error once and then ends; `at` in it is relative to `bytes`.
pub fn items(bytes: &[u8], geometry: Geometry) -> Items<'_> {
    Items { bytes, at: 0, geometry }
}

/// Iterator of [`items`].
#[derive(Clone, Debug)]
pub struct Items<'a> {
    bytes: &'a [u8],
    at: usize,
    geometry: Geometry,
}

impl Items<'_> {
    fn word(&mut self) -> Result<u64> {
        let rest = self.bytes.get(self.at..).unwrap_or_default();
        let word = rest.first_chunk::<WORD>().ok_or_else(|| self.bad("word"))?;
        self.at += WORD;
        Ok(u64::from_le_bytes(*word))
    }

    fn bad(&self, field: &'static str) -> FormatError {
        FormatError::Bounds { what: WHAT, field, at: self.at as u64 }
    }

    fn item(&mut self) -> Result<Item> {
        let word = self.word()?;
        let (action, vdev, offset, run) = match bits(word, 62, 2) {
            PREFIX_DEBUG => {
                let txg = bits(word, 0, 50);
                if txg == 0 {
                    return Ok(Item::Padding);
                }
                let action = Action::from_bit(bits(word, 60, 2));
                return Ok(Item::Debug { action, pass: bits(word, 50, 10) as u16, txg });
            }
            PREFIX_TWO_WORDS => {
                let second = self.word()?;
                let vdev = bits(word, 0, 24) as u32;
                (bits(second, 63, 1), Some(vdev), bits(second, 0, 63), bits(word, 24, 36) + 1)
            }
            _ => (bits(word, 15, 1), None, bits(word, 16, 47), bits(word, 0, 15) + 1),
        };
        let end = Some(offset + run).filter(|end| *end <= OFFSET_END_TWO_WORDS);
        let end = end.and_then(|end| self.geometry.bytes(end));
        let end = end.filter(|end| *end <= self.geometry.size).ok_or_else(|| self.bad("entry"))?;
        let size = self.geometry.bytes(run).ok_or_else(|| self.bad("entry"))?;
        let offset = (end - size).checked_add(self.geometry.start);
        let offset = offset.filter(|o| o.checked_add(size).is_some());
        let offset = offset.ok_or_else(|| self.bad("entry"))?;
        Ok(Item::Run(Run { action: Action::from_bit(action), vdev, offset, size }))
    }
}

impl Iterator for Items<'_> {
    type Item = Result<Item>;

    fn next(&mut self) -> Option<Self::Item> {
        if self.at >= self.bytes.len() {
            return None;
        }
        let item = self.item();
        if item.is_err() {
            self.at = self.bytes.len();
        }
        Some(item)
    }
}

/// How entries of a map are written.
#[derive(Clone, Copy, Debug)]
pub struct Encoder {
    /// Units.
    pub geometry: Geometry,
    /// Size of the object's data blocks in bytes, a multiple of 16.
    pub block_size: u32,
    /// Is spacemap_v2 active (are two-word entries allowed)?
    pub two_words: bool,
}

impl Encoder {
    /// Appends one batch to `out`: its debug word, then all runs with one action.
    ///
    /// `at` is the length of the map's data so far: the offset of the first new byte, in bytes.
    /// `runs` are (offset, size) in bytes, multiples of the unit, inside the region. `vdev` is
    /// given for log maps only. Nothing is written if there are no runs. On an error `out` is
    /// what it was.
    pub fn batch(
        &self,
        out: &mut Vec<u8>,
        at: u64,
        (txg, pass): (u64, u16),
        action: Action,
        vdev: Option<u32>,
        runs: impl IntoIterator<Item = (u64, u64)>,
    ) -> Result<()> {
        let before = out.len();
        let result = self.batch_inner(out, at, (txg, pass), action, vdev, runs);
        if result.is_err() {
            out.truncate(before);
        }
        result
    }

    fn batch_inner(
        &self,
        out: &mut Vec<u8>,
        at: u64,
        (txg, pass): (u64, u16),
        action: Action,
        vdev: Option<u32>,
        runs: impl IntoIterator<Item = (u64, u64)>,
    ) -> Result<()> {
        let before = out.len();
        let too_large = |field, size, max| FormatError::TooLarge { what: WHAT, field, size, max };
        if vdev.is_some_and(|v| v >= 1 << 24) {
            return Err(too_large("vdev", vdev.unwrap_or(0).into(), (1 << 24) - 1));
        }
        let mut first = true;
        for (offset, size) in runs {
            let (mut start, mut left) = self.units(offset, size)?;
            if first {
                let mut word = with_bits(0, 62, 2, PREFIX_DEBUG);
                word = with_bits(word, 60, 2, action as u64);
                word = with_bits(word, 50, 10, pass.into());
                push(out, with_bits(word, 0, 50, txg));
                first = false;
            }
            let wide = self.two_words
                && (vdev.is_some() || left > RUN_MAX_ONE_WORD || start >= OFFSET_END_ONE_WORD);
            if !wide && let Some(vdev) = vdev {
                return Err(too_large("vdev without spacemap_v2", vdev.into(), 0));
            }
            while left > 0 {
                let run = left.min(if wide { RUN_MAX_TWO_WORDS } else { RUN_MAX_ONE_WORD });
                if wide {
                    let position = at + (out.len() - before) as u64;
                    if (position + WORD as u64).is_multiple_of(self.block_size.into()) {
                        push(out, PADDING);
                    }
                    let word = with_bits(0, 62, 2, PREFIX_TWO_WORDS);
                    let word = with_bits(word, 24, 36, run - 1);
                    push(out, with_bits(word, 0, 24, vdev.unwrap_or(0).into()));
                    push(out, with_bits(start, 63, 1, action as u64));
                } else if start >= OFFSET_END_ONE_WORD {
                    return Err(too_large("offset", start, OFFSET_END_ONE_WORD - 1));
                } else {
                    let word = with_bits(0, 16, 47, start);
                    let word = with_bits(word, 15, 1, action as u64);
                    push(out, with_bits(word, 0, 15, run - 1));
                }
                start += run;
                left -= run;
            }
        }
        Ok(())
    }

    /// Offset from the region's start and length, in units.
    fn units(&self, offset: u64, size: u64) -> Result<(u64, u64)> {
        let Geometry { start, size: room, shift } = self.geometry;
        let relative = offset.checked_sub(start);
        let inside = relative.zip(1u64.checked_shl(shift)).filter(|(r, unit)| {
            r.checked_add(size).is_some_and(|end| end <= room)
                && size > 0
                && (r | size) & (unit - 1) == 0
                && (r >> shift) + (size >> shift) <= OFFSET_END_TWO_WORDS
        });
        match inside {
            Some((relative, _)) => Ok((relative >> shift, size >> shift)),
            None => Err(FormatError::Bounds { what: WHAT, field: "run to be written", at: offset }),
        }
    }
}

fn push(out: &mut Vec<u8>, word: u64) {
    out.extend_from_slice(&word.to_le_bytes());
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn runs(bytes: &[u8], geometry: Geometry) -> Vec<Run> {
        let items = items(bytes, geometry).map(|i| i.unwrap());
        items.filter_map(|i| if let Item::Run(run) = i { Some(run) } else { None }).collect()
    }

    #[test]
    fn words_are_those_of_the_format() {
        let geometry = Geometry::metaslab(1 << 30, 1 << 30, 12);
        let encoder = Encoder { geometry, block_size: 4096, two_words: true };
        let mut out = Vec::new();
        let run = [((1 << 30) + 0x5000, 0x3000)];
        encoder.batch(&mut out, 0, (7, 2), Action::Free, None, run).unwrap();
        let words: Vec<u64> =
            out.chunks(8).map(|c| u64::from_le_bytes(c.try_into().unwrap())).collect();
        assert_eq!(words, [2 << 62 | 1 << 60 | 2 << 50 | 7, 5 << 16 | 1 << 15 | 2]);
        let found: Vec<Item> = items(&out, geometry).map(|i| i.unwrap()).collect();
        let run = Run { action: Action::Free, vdev: None, offset: run[0].0, size: run[0].1 };
        assert_eq!(found, [Item::Debug { action: Action::Free, pass: 2, txg: 7 }, Item::Run(run)]);

        let log = Encoder { geometry: Geometry::LOG, block_size: 4096, two_words: true };
        let mut out = Vec::new();
        let run = [(0x1000, 0x200)];
        log.batch(&mut out, 0, (7, 1), Action::Free, Some(3), run).unwrap();
        assert_eq!(out[8..16], (3u64 << 62 | 3).to_le_bytes());
        assert_eq!(out[16..24], (1u64 << 63 | 8).to_le_bytes());
    }

    #[test]
    fn long_runs_are_split_and_two_words_never_straddle() {
        let geometry = Geometry { start: 0, size: u64::MAX, shift: 9 };
        let run = (512, (RUN_MAX_ONE_WORD * 2 + 5) << 9);
        for two_words in [false, true] {
            let encoder = Encoder { geometry, block_size: 512, two_words };
            let mut out = Vec::new();
            // The debug word is the last but one of its block, so the entry needs padding.
            encoder.batch(&mut out, 512 - 16, (9, 1), Action::Alloc, None, [run]).unwrap();
            let found = runs(&out, geometry);
            assert_eq!(found.len(), if two_words { 1 } else { 3 });
            assert_eq!(found.iter().map(|r| r.size).sum::<u64>(), run.1);
            assert_eq!(out.len(), 32);
            let padded = items(&out, geometry).any(|i| i == Ok(Item::Padding));
            assert_eq!(padded, two_words);
        }
        let encoder = Encoder { geometry, block_size: 512, two_words: true };
        let mut out = Vec::new();
        let long = ((1 << 9) as u64, (RUN_MAX_TWO_WORDS + 1) << 9);
        encoder.batch(&mut out, 0, (9, 1), Action::Alloc, None, [long]).unwrap();
        let sizes: Vec<u64> = runs(&out, geometry).iter().map(|r| r.size >> 9).collect();
        assert_eq!(sizes, [RUN_MAX_TWO_WORDS, 1]);
    }

    #[test]
    fn what_cannot_be_written_is_refused_and_leaves_nothing() {
        let small = Geometry::metaslab(4096, 8192, 12);
        let encoder = Encoder { geometry: small, block_size: 4096, two_words: true };
        let mut out = vec![1];
        for bad in [(0, 4096), (4096, 12_288), (4097, 4096), (4096, 0), (8192, u64::MAX)] {
            let runs = [(4096, 4096), bad];
            let result = encoder.batch(&mut out, 0, (1, 1), Action::Alloc, None, runs);
            assert!(result.is_err(), "{bad:?}");
            assert_eq!(out, [1]);
        }
        encoder.batch(&mut out, 0, (1, 1), Action::Alloc, None, []).unwrap();
        assert_eq!(out, [1]);
        let far = [(OFFSET_END_ONE_WORD << 9, 512)];
        let one = Encoder { geometry: Geometry::LOG, block_size: 4096, two_words: false };
        assert!(one.batch(&mut out, 0, (1, 1), Action::Alloc, None, far).is_err());
        assert!(one.batch(&mut out, 0, (1, 1), Action::Alloc, Some(1), [(0, 512)]).is_err());
    }

    #[test]
    fn entries_beyond_the_region_are_errors() {
        let geometry = Geometry::metaslab(1 << 40, 8192, 12);
        let entry = |offset: u64, run: u64| (offset << 16 | (run - 1)).to_le_bytes();
        assert_eq!(runs(&entry(1, 1), geometry)[0].offset, (1 << 40) + 4096);
        for (offset, run) in [(1, 2), (2, 1), (OFFSET_END_ONE_WORD - 1, 1)] {
            let bytes = entry(offset, run);
            let found: Vec<_> = items(&bytes, geometry).collect();
            assert!(matches!(found[..], [Err(FormatError::Bounds { at: 8, .. })]));
        }
        // The first half of a two-word entry at the end, and a torn word.
        assert!(items(&(3u64 << 62).to_le_bytes(), geometry).next().unwrap().is_err());
        assert!(items(&[0; 7], geometry).next().unwrap().is_err());
        let end = Geometry { start: u64::MAX - 100, size: u64::MAX, shift: 0 };
        assert!(items(&entry(200, 1), end).next().unwrap().is_err());
    }

    #[test]
    fn histogram_buckets() {
        assert_eq!(histogram_bucket(4096, 12), (0, 1));
        assert_eq!(histogram_bucket(8191, 12), (0, 1));
        assert_eq!(histogram_bucket(8192, 12), (1, 1));
        assert_eq!(histogram_bucket(1 << 43, 12), (31, 1));
        assert_eq!(histogram_bucket(1 << 45, 12), (31, 4));
        assert_eq!(histogram_bucket(0, 12), (0, 1));
        let mut map = SpaceMapPhys::default();
        map.count_free(1 << 45, 12, false);
        map.count_free(1 << 43, 12, true);
        assert_eq!(map.histogram[31].get(), 3);
    }

    #[test]
    fn headers_of_both_sizes() {
        let mut map = SpaceMapPhys::default();
        map.length.set(16);
        map.alloc.set(-4096);
        map.histogram[31].set(1);
        assert_eq!(SpaceMapPhys::parse(map.bonus(true)), Ok((map, true)));
        let (old, has_histogram) = SpaceMapPhys::parse(map.bonus(false)).unwrap();
        assert_eq!((old.alloc.get(), has_histogram), (-4096, false));
        assert_eq!(old.histogram[31].get(), 0);
        assert!(SpaceMapPhys::parse(&[0; 23]).is_err());
        map.length.set(12);
        assert!(SpaceMapPhys::parse(map.bonus(true)).is_err());
    }

    proptest! {
        #[test]
        fn batches_come_back(
            shift in 0u32..17,
            two_words: bool,
            vdev in prop::option::of(0u32..1 << 24),
            start in 0u64..1 << 40,
            at in 0u64..64,
            free: bool,
            list in prop::collection::vec((0u64..1 << 50, 1u64..100_000), 0..80),
        ) {
            let geometry = Geometry { start, size: u64::MAX >> 1, shift };
            let encoder = Encoder { geometry, block_size: 128, two_words };
            let wanted: Vec<(u64, u64)> =
                list.iter().map(|(o, s)| (start + ((o >> 17) << shift), s << shift)).collect();
            let vdev = vdev.filter(|_| two_words);
            let action = Action::from_bit(free.into());
            let mut out = Vec::new();
            encoder.batch(&mut out, at * 8, (5, 1), action, vdev, wanted.iter().copied()).unwrap();
            // Each block on its own.
            let first = (128 - (at * 8) % 128) as usize;
            let (head, tail) = out.split_at(first.min(out.len()));
            let mut found = runs(head, geometry);
            for block in tail.chunks(128) {
                found.extend(runs(block, geometry));
            }
            let mut found = found.into_iter();
            for (offset, size) in wanted {
                let mut done = 0;
                while done < size {
                    let run = found.next().unwrap();
                    prop_assert_eq!((run.action, run.offset), (action, offset + done));
                    prop_assert_eq!(run.vdev, vdev.or(run.vdev.map(|_| 0)));
                    done += run.size;
                }
                prop_assert_eq!(done, size);
            }
            prop_assert_eq!(found.next(), None);
        }

        #[test]
        fn noise_is_decoded_or_refused(bytes in prop::collection::vec(any::<u8>(), 0..256), shift in 0u32..64) {
            let geometry = Geometry { start: 1 << 20, size: 1 << 50, shift };
            let found: Vec<_> = items(&bytes, geometry).collect();
            prop_assert!(found.len() <= bytes.len() / 8 + 1);
            for run in found.into_iter().flatten() {
                if let Item::Run(run) = run {
                    prop_assert!(run.size > 0 && run.offset - geometry.start + run.size <= geometry.size);
                }
            }
        }
    }
}
