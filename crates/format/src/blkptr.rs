//! Block pointers (`blkptr_t`): where a block is, how large, how checked, and when it was born.
//!
//! A block pointer is 16 words. Words 0-5 are up to three DVAs, 6 the properties, 9 the physical
//! birth, 10 the birth, 11 the fill, 12-15 the checksum; an *embedded* pointer keeps up to 112
//! bytes of data in all words but 6 and 10. FORMAT: section 2.

use zerocopy::little_endian::U64;
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

use crate::{Checksum, Compress, ObjectType, SECTOR, SECTOR_SHIFT};

/// Number of copies that a block pointer can name.
pub const DVAS: usize = 3;
/// Bytes of data that fit into an embedded block pointer.
pub const EMBEDDED_MAX: usize = 112;

/// Bits `[low, low + len)` of a word.
pub(crate) const fn bits(word: u64, low: u32, len: u32) -> u64 {
    (word >> low) & (u64::MAX >> (64 - len))
}

/// The word with bits `[low, low + len)` replaced; bits of `value` beyond `len` are dropped.
pub(crate) const fn with_bits(word: u64, low: u32, len: u32, value: u64) -> u64 {
    let mask = u64::MAX >> (64 - len);
    (word & !(mask << low)) | ((value & mask) << low)
}

/// Data virtual address: one copy of a block.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Dva {
    /// Number of the top-level vdev.
    pub vdev: u32,
    /// Offset in the vdev's allocatable space, in bytes.
    pub offset: u64,
    /// Allocated size in bytes, parity and padding included; 0: no such copy.
    pub asize: u64,
    /// The address is that of a gang header.
    pub gang: bool,
}

/// A block pointer, in the byte order of the disk.
#[derive(Clone, Copy, PartialEq, Eq, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
#[repr(C)]
pub struct BlkPtr {
    words: [U64; 16],
}

const _: () = assert!(size_of::<BlkPtr>() == 128);

impl Default for BlkPtr {
    fn default() -> Self {
        Self::ZERO
    }
}

/// What an ordinary (not embedded) block pointer says besides its DVAs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BlkProps {
    /// Logical size in bytes.
    pub lsize: u64,
    /// Physical size in bytes: after compression, before parity.
    pub psize: u64,
    /// Compression.
    pub compress: Compress,
    /// Checksum.
    pub checksum: Checksum,
    /// Type of the object (of the spill block: of the bonus).
    pub kind: ObjectType,
    /// Level of indirection, 0 is data.
    pub level: u8,
}

impl BlkPtr {
    /// A pointer to nothing that was never written.
    pub const ZERO: BlkPtr = BlkPtr { words: [U64::ZERO; 16] };

    /// The pointers of an indirect block, where they lie in it; what is too short for one at its end is left out.
    pub fn all_in(block: &[u8]) -> &[BlkPtr] {
        let whole = block.as_chunks::<{ size_of::<BlkPtr>() }>().0.as_flattened();
        <[BlkPtr]>::ref_from_bytes(whole).unwrap_or_default()
    }

    fn word(&self, index: usize) -> u64 {
        self.words.get(index).map_or(0, |w| w.get())
    }

    fn set_word(&mut self, index: usize, value: u64) {
        if let Some(w) = self.words.get_mut(index) {
            w.set(value);
        }
    }

    /// A pointer to a written block.
    pub fn new(props: BlkProps, dvas: &[Dva], birth: u64, fill: u64, checksum: [u64; 4]) -> Self {
        debug_assert!(dvas.len() <= DVAS && !dvas.is_empty());
        let mut bp = BlkPtr::ZERO;
        for (i, dva) in dvas.iter().enumerate() {
            bp.set_dva(i, *dva);
        }
        let mut prop = 0;
        prop = with_bits(prop, 0, 16, props.lsize / SECTOR - 1);
        prop = with_bits(prop, 16, 16, props.psize / SECTOR - 1);
        prop = with_bits(prop, 32, 7, u64::from(props.compress.id()));
        prop = with_bits(prop, 40, 8, u64::from(props.checksum.id()));
        prop = with_bits(prop, 48, 8, u64::from(props.kind.0));
        prop = with_bits(prop, 56, 5, u64::from(props.level));
        bp.set_word(6, with_bits(prop, 63, 1, 1));
        bp.set_word(10, birth);
        bp.set_word(11, fill);
        bp.set_checksum_words(checksum);
        bp
    }

    /// A hole with a birth: what a block that was written becomes when it is freed or all zero.
    pub fn hole(lsize: u64, kind: ObjectType, level: u8, birth: u64) -> Self {
        let mut bp = BlkPtr::ZERO;
        let mut prop = with_bits(0, 0, 16, lsize / SECTOR - 1);
        prop = with_bits(prop, 48, 8, u64::from(kind.0));
        bp.set_word(6, with_bits(prop, 56, 5, u64::from(level)));
        bp.set_word(10, birth);
        bp
    }

    /// A pointer that holds the (compressed) data itself; `None` if it does not fit.
    pub fn embedded(
        lsize: u64,
        compress: Compress,
        kind: ObjectType,
        birth: u64,
        payload: &[u8],
    ) -> Option<Self> {
        if payload.is_empty() || payload.len() > EMBEDDED_MAX || lsize == 0 || lsize > 1 << 25 {
            return None;
        }
        let mut bp = BlkPtr::ZERO;
        let mut prop = with_bits(0, 0, 25, lsize - 1);
        prop = with_bits(prop, 25, 7, payload.len() as u64 - 1);
        prop = with_bits(prop, 32, 7, u64::from(compress.id()));
        prop = with_bits(prop, 39, 1, 1);
        prop = with_bits(prop, 48, 8, u64::from(kind.0));
        bp.set_word(6, with_bits(prop, 63, 1, 1));
        bp.set_word(10, birth);
        for (index, chunk) in EMBEDDED_WORDS.iter().zip(payload.chunks(8)) {
            let mut bytes = [0; 8];
            for (to, from) in bytes.iter_mut().zip(chunk) {
                *to = *from;
            }
            bp.set_word(*index, u64::from_le_bytes(bytes));
        }
        Some(bp)
    }

    /// The data in an embedded pointer: the buffer and how many bytes of it count.
    pub fn embedded_payload(&self) -> ([u8; EMBEDDED_MAX], usize) {
        let mut out = [0; EMBEDDED_MAX];
        for (index, to) in EMBEDDED_WORDS.iter().zip(out.chunks_exact_mut(8)) {
            to.copy_from_slice(&self.word(*index).to_le_bytes());
        }
        let len = bits(self.prop(), 25, 7) as usize + 1;
        (out, len.min(EMBEDDED_MAX))
    }

    /// The property word.
    pub fn prop(&self) -> u64 {
        self.word(6)
    }

    /// Does the pointer hold the data itself?
    pub fn is_embedded(&self) -> bool {
        bits(self.prop(), 39, 1) == 1
    }

    /// Type of embedded content: 0 data, 2 redacted.
    pub fn embedded_kind(&self) -> u8 {
        bits(self.prop(), 40, 8) as u8
    }

    /// Is there no data (never written, freed, or all zero)?
    pub fn is_hole(&self) -> bool {
        !self.is_embedded() && self.word(0) == 0 && self.word(1) == 0
    }

    /// Has nothing ever been written here?
    pub fn is_zero(&self) -> bool {
        *self == Self::ZERO
    }

    /// Does this pointer own space on a disk?
    pub fn has_space(&self) -> bool {
        !self.is_embedded() && !self.is_hole()
    }

    /// Copy number `index`; asize 0 if there is none.
    pub fn dva(&self, index: usize) -> Dva {
        if self.is_embedded() || index >= DVAS {
            return Dva::default();
        }
        let (w0, w1) = (self.word(2 * index), self.word(2 * index + 1));
        Dva {
            vdev: bits(w0, 32, 24) as u32,
            offset: bits(w1, 0, 63) << SECTOR_SHIFT,
            asize: bits(w0, 0, 24) << SECTOR_SHIFT,
            gang: bits(w1, 63, 1) == 1,
        }
    }

    /// Replaces copy number `index`.
    pub fn set_dva(&mut self, index: usize, dva: Dva) {
        debug_assert!(index < DVAS);
        let w0 = with_bits(0, 0, 24, dva.asize >> SECTOR_SHIFT);
        self.set_word(2 * index, with_bits(w0, 32, 24, u64::from(dva.vdev)));
        let w1 = with_bits(0, 0, 63, dva.offset >> SECTOR_SHIFT);
        self.set_word(2 * index + 1, with_bits(w1, 63, 1, u64::from(dva.gang)));
    }

    /// The copies that exist. An encrypted pointer has at most two (its third DVA is salt and IV).
    pub fn dvas(&self) -> impl Iterator<Item = Dva> + use<> {
        let bp = *self;
        let max =
            if bp.is_crypt() && bp.level() == 0 && bp.kind().is_encrypted() { 2 } else { DVAS };
        (0..max).map(move |i| bp.dva(i)).filter(|d| d.asize != 0)
    }

    /// Is the block a gang (its DVAs lead to gang headers)?
    pub fn is_gang(&self) -> bool {
        self.dva(0).gang
    }

    /// Logical size in bytes; never trust it of an all-zero pointer.
    pub fn lsize(&self) -> u64 {
        if self.is_embedded() {
            bits(self.prop(), 0, 25) + 1
        } else {
            (bits(self.prop(), 0, 16) + 1) << SECTOR_SHIFT
        }
    }

    /// Physical size in bytes; of an embedded pointer the payload's.
    pub fn psize(&self) -> u64 {
        if self.is_embedded() {
            bits(self.prop(), 25, 7) + 1
        } else {
            (bits(self.prop(), 16, 16) + 1) << SECTOR_SHIFT
        }
    }

    /// Sum of the DVAs' allocated sizes, in bytes.
    pub fn asize(&self) -> u64 {
        self.dvas().map(|d| d.asize).sum()
    }

    /// Number of the compression.
    pub fn compress_id(&self) -> u8 {
        bits(self.prop(), 32, 7) as u8
    }

    /// The compression, if its number is known.
    pub fn compress(&self) -> Option<Compress> {
        Compress::from_id(self.compress_id())
    }

    /// Number of the checksum; embedded pointers have none (off).
    pub fn checksum_id(&self) -> u8 {
        if self.is_embedded() { Checksum::Off.id() } else { bits(self.prop(), 40, 8) as u8 }
    }

    /// The kind of checksum, if its number is known.
    pub fn checksum(&self) -> Option<Checksum> {
        Checksum::from_id(self.checksum_id())
    }

    /// The four words of the checksum.
    pub fn checksum_words(&self) -> [u64; 4] {
        [self.word(12), self.word(13), self.word(14), self.word(15)]
    }

    /// Replaces the four words of the checksum.
    pub fn set_checksum_words(&mut self, words: [u64; 4]) {
        for (i, w) in words.into_iter().enumerate() {
            self.set_word(12 + i, w);
        }
    }

    /// Type of the object that the block belongs to.
    pub fn kind(&self) -> ObjectType {
        ObjectType(bits(self.prop(), 48, 8) as u8)
    }

    /// Level of indirection.
    pub fn level(&self) -> u8 {
        bits(self.prop(), 56, 5) as u8
    }

    /// Encrypted or authenticated.
    pub fn is_crypt(&self) -> bool {
        bits(self.prop(), 61, 1) == 1
    }

    /// Deduplicated.
    pub fn is_dedup(&self) -> bool {
        bits(self.prop(), 62, 1) == 1
    }

    /// Was the block written in little-endian order?
    pub fn is_little_endian(&self) -> bool {
        bits(self.prop(), 63, 1) == 1
    }

    /// The txg in which this pointer was written.
    pub fn birth(&self) -> u64 {
        self.word(10)
    }

    /// The txg in which the data was written (older than the birth for dedup and remaps).
    pub fn physical_birth(&self) -> u64 {
        match self.word(9) {
            _ if self.is_embedded() => self.birth(),
            0 => self.birth(),
            txg => txg,
        }
    }

    /// Number of blocks (or objects) below; embedded counts 1, a hole 0.
    pub fn fill(&self) -> u64 {
        if self.is_embedded() {
            return 1;
        }
        if self.is_hole() {
            return 0;
        }
        let fill = self.word(11);
        if self.is_crypt() { fill & 0xffff_ffff } else { fill }
    }

    /// Replaces the fill of an ordinary pointer.
    pub fn set_fill(&mut self, fill: u64) {
        debug_assert!(!self.is_embedded());
        self.set_word(11, fill);
    }

    /// Metadata: an indirect block or a metadata type.
    pub fn is_metadata(&self) -> bool {
        self.level() > 0 || self.kind().is_metadata()
    }

    /// Size that counts as "uncompressed" in space accounting: of data the logical size, of
    /// metadata the physical one (0 if it is embedded).
    pub fn uncompressed_size(&self) -> u64 {
        if self.is_hole() {
            0
        } else if self.is_metadata() {
            self.compressed_size()
        } else {
            self.lsize()
        }
    }

    /// Size that counts as "compressed" in space accounting.
    pub fn compressed_size(&self) -> u64 {
        if self.has_space() { self.psize() } else { 0 }
    }

    /// The same block on disk: same births and places.
    pub fn same_block(&self, other: &BlkPtr) -> bool {
        self.birth() == other.birth()
            && self.physical_birth() == other.physical_birth()
            && (0..6).all(|i| self.word(i) == other.word(i))
    }

    /// The raw words (of hostile or unusual pointers).
    pub fn words(&self) -> [u64; 16] {
        self.words.map(|w| w.get())
    }

    /// A pointer from raw words.
    pub fn from_words(words: [u64; 16]) -> Self {
        BlkPtr { words: words.map(U64::new) }
    }
}

/// The words that hold an embedded payload, in order.
const EMBEDDED_WORDS: [usize; 14] = [0, 1, 2, 3, 4, 5, 7, 8, 9, 11, 12, 13, 14, 15];

impl std::fmt::Debug for BlkPtr {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        if self.is_hole() {
            return write!(f, "HOLE [L{} {:?}] birth={}", self.level(), self.kind(), self.birth());
        }
        if self.is_embedded() {
            write!(f, "EMBEDDED")?;
        }
        for (i, dva) in self.dvas().enumerate() {
            write!(f, "DVA[{i}]=<{}:{:x}:{:x}> ", dva.vdev, dva.offset, dva.asize)?;
        }
        write!(
            f,
            "[L{} {:?}] comp={} cksum={} size={:x}L/{:x}P birth={} fill={}",
            self.level(),
            self.kind(),
            self.compress_id(),
            self.checksum_id(),
            self.lsize(),
            self.psize(),
            self.birth(),
            self.fill()
        )
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn fields_of_a_written_block_come_back() {
        let props = BlkProps {
            lsize: 131_072,
            psize: 40_960,
            compress: Compress::Lz4,
            checksum: Checksum::Fletcher4,
            kind: ObjectType::PLAIN_FILE_CONTENTS,
            level: 2,
        };
        let dva = Dva { vdev: 3, offset: 0x1234_5600, asize: 0xa000, gang: false };
        let bp = BlkPtr::new(props, &[dva, Dva { vdev: 1, ..dva }], 77, 9, [1, 2, 3, 4]);
        assert_eq!((bp.lsize(), bp.psize(), bp.level()), (131_072, 40_960, 2));
        assert_eq!((bp.birth(), bp.physical_birth(), bp.fill()), (77, 77, 9));
        assert_eq!(bp.compress(), Some(Compress::Lz4));
        assert_eq!(bp.checksum(), Some(Checksum::Fletcher4));
        assert_eq!(bp.checksum_words(), [1, 2, 3, 4]);
        assert_eq!(bp.dvas().collect::<Vec<_>>(), [dva, Dva { vdev: 1, ..dva }]);
        assert!(bp.has_space() && bp.is_little_endian() && !bp.is_gang());
    }

    #[test]
    fn embedded_payload_comes_back() {
        let data: Vec<u8> = (1..=112).collect();
        let bp = BlkPtr::embedded(512, Compress::Lz4, ObjectType::DSL_PROPS, 5, &data).unwrap();
        let (payload, len) = bp.embedded_payload();
        assert_eq!(&payload[..len], &data[..]);
        assert_eq!((bp.lsize(), bp.psize(), bp.birth(), bp.fill()), (512, 112, 5, 1));
        assert!(bp.is_embedded() && !bp.is_hole() && !bp.has_space());
        assert!(BlkPtr::embedded(512, Compress::Lz4, ObjectType::NONE, 5, &[0; 113]).is_none());
    }

    #[test]
    fn a_hole_keeps_size_type_level_and_birth() {
        let bp = BlkPtr::hole(16_384, ObjectType::DNODE, 1, 42);
        assert!(bp.is_hole() && !bp.is_zero());
        assert_eq!((bp.lsize(), bp.level(), bp.birth(), bp.fill()), (16_384, 1, 42, 0));
    }
}
