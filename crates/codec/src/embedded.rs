//! Checksums that lie inside what they protect: labels, uberblocks, gang headers, log blocks.
//!
//! One idea: such a block ends (or, newer log blocks, begins) with a magic number and four words.
//! While the sum is taken, the words hold a *verifier* that says where the block belongs, so a
//! block in the wrong place fails its check; then the sum replaces the verifier.
//! FORMAT: sections 1.1, 2.5, 12.2.

use crate::checksum::{Hasher, Words};
use format::Checksum;

/// Magic number before the four words.
pub const MAGIC: u64 = 0x0210_da7a_b10c_7a11;
/// Bytes of magic and words.
pub const ECK_SIZE: usize = 40;
/// Bytes of a gang header.
pub const GANG_HEADER_SIZE: usize = 512;
/// Bytes of the header at the start of a newer log block; its last [`ECK_SIZE`] are the checksum.
pub const ZIL_CHAIN_SIZE: usize = 184;
/// Offset of the number of used bytes in that header.
const ZIL_USED_AT: usize = 136;
/// Log blocks are summed up to a multiple of this.
const ZIL_UNIT: u64 = 4096;

/// Which kind of block it is and where it belongs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Place {
    /// The nvlist or boot environment of a label, or a slot of the uberblock ring.
    Label {
        /// Where the region starts on the leaf, in bytes.
        offset: u64,
    },
    /// A gang header, by DVA 0 of the pointer to it, whichever copy is read.
    GangHeader {
        /// Top-level vdev.
        vdev: u32,
        /// Offset in the vdev's allocatable space, in bytes.
        offset: u64,
        /// Physical birth of the pointer.
        txg: u64,
    },
    /// An intent log block of old pools (before version 26): checksum at the end.
    Zilog {
        /// The checksum words of the pointer to it.
        pointer: Words,
    },
    /// An intent log block: checksum in the header at the start.
    Zilog2 {
        /// The checksum words of the pointer to it.
        pointer: Words,
    },
}

/// Why a block is not what it should be.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum EmbeddedError {
    /// The block cannot hold its checksum, or is not of the one size of its kind.
    #[error("embedded checksum: the block has {have} bytes, needs {needed}")]
    Size {
        /// Bytes needed.
        needed: u64,
        /// Bytes there.
        have: u64,
    },
    /// The magic number of the checksum is missing.
    #[error("embedded checksum: magic {seen:#018x}, expected {MAGIC:#018x}")]
    Magic {
        /// What is there.
        seen: u64,
    },
    /// A log block says that it uses less than its header or more than it has.
    #[error("log block: {used} bytes used of {size}")]
    Used {
        /// What it says.
        used: u64,
        /// Bytes of the block.
        size: u64,
    },
    /// The sum is wrong: damaged, or not the block that belongs here.
    #[error("embedded checksum: the block says {expected:x?}, its bytes give {computed:x?}")]
    Mismatch {
        /// The words in the block.
        expected: Words,
        /// The words computed.
        computed: Words,
    },
}

/// Writes magic and checksum into `block`, whose other bytes are complete; gives the checksum.
pub fn seal(place: Place, block: &mut [u8]) -> Result<Words, EmbeddedError> {
    let at = eck_offset(place, block.len())?;
    let size = summed_size(place, block, false)?;
    block[at..at + 8].copy_from_slice(&MAGIC.to_le_bytes());
    let words = sum(place, &block[..size], at, false);
    for (bytes, word) in block[at + 8..at + ECK_SIZE].as_chunks_mut::<8>().0.iter_mut().zip(words) {
        *bytes = word.to_le_bytes();
    }
    Ok(words)
}

/// Checks `block`; `Ok(true)` says that a big-endian host wrote it.
pub fn check(place: Place, block: &[u8]) -> Result<bool, EmbeddedError> {
    let at = eck_offset(place, block.len())?;
    let seen = word_at(block, at, false);
    let swapped = match seen {
        MAGIC => false,
        _ if seen == MAGIC.swap_bytes() => true,
        _ => return Err(EmbeddedError::Magic { seen }),
    };
    let size = summed_size(place, block, swapped)?;
    let expected = std::array::from_fn(|i| word_at(block, at + 8 + i * 8, swapped));
    let computed = sum(place, &block[..size], at, swapped);
    if computed == expected {
        Ok(swapped)
    } else {
        Err(EmbeddedError::Mismatch { expected, computed })
    }
}

/// Where magic and words lie.
fn eck_offset(place: Place, size: usize) -> Result<usize, EmbeddedError> {
    let (needed, fits) = match place {
        Place::Label { .. } | Place::Zilog { .. } => (ECK_SIZE, size >= ECK_SIZE),
        Place::GangHeader { .. } => (GANG_HEADER_SIZE, size == GANG_HEADER_SIZE),
        Place::Zilog2 { .. } => (ZIL_CHAIN_SIZE, size >= ZIL_CHAIN_SIZE),
    };
    // The old log's sum is over pairs of words.
    if !fits || matches!(place, Place::Zilog { .. }) && !size.is_multiple_of(16) {
        return Err(EmbeddedError::Size { needed: needed as u64, have: size as u64 });
    }
    Ok(match place {
        Place::Zilog2 { .. } => ZIL_CHAIN_SIZE - ECK_SIZE,
        _ => size - ECK_SIZE,
    })
}

/// How many bytes of the block the sum covers.
fn summed_size(place: Place, block: &[u8], swapped: bool) -> Result<usize, EmbeddedError> {
    let size = block.len() as u64;
    if !matches!(place, Place::Zilog2 { .. }) {
        return Ok(block.len());
    }
    let used = word_at(block, ZIL_USED_AT, swapped);
    let fits = |summed: &u64| used >= ZIL_CHAIN_SIZE as u64 && *summed <= size;
    match used.checked_next_multiple_of(ZIL_UNIT).filter(fits) {
        Some(summed) => Ok(summed as usize),
        None => Err(EmbeddedError::Used { used, size }),
    }
}

/// The sum over `block` with the verifier in place of the four words after the magic at `at`.
fn sum(place: Place, block: &[u8], at: usize, swapped: bool) -> Words {
    let (kind, verifier) = match place {
        Place::Label { offset } => (Checksum::Sha256, [offset, 0, 0, 0]),
        Place::GangHeader { vdev, offset, txg } => {
            (Checksum::Sha256, [u64::from(vdev), offset, txg, 0])
        }
        Place::Zilog { pointer } => (Checksum::Fletcher2, pointer),
        Place::Zilog2 { pointer } => (Checksum::Fletcher4, pointer),
    };
    let mut bytes = [0; 32];
    for (bytes, word) in bytes.as_chunks_mut::<8>().0.iter_mut().zip(verifier) {
        *bytes = if swapped { word.to_be_bytes() } else { word.to_le_bytes() };
    }
    let mut hasher = Hasher::new(kind, swapped, &[0; 32]).expect("the kinds above are of blocks");
    hasher.update(&block[..at + 8]);
    hasher.update(&bytes);
    hasher.update(&block[at + ECK_SIZE..]);
    hasher.finish().expect("sizes were checked to be whole words")
}

fn word_at(block: &[u8], at: usize, swapped: bool) -> u64 {
    let bytes = block[at..at + 8].try_into().expect("the range is of 8 bytes");
    if swapped { u64::from_be_bytes(bytes) } else { u64::from_le_bytes(bytes) }
}
