//! Compression of blocks, both ways, in the form in which they are stored.
//!
//! One idea: the sizes are known from outside. The block pointer gives the logical size, which
//! decompression must fill exactly; and a compressed block that would not save an eighth is not
//! stored, so a compressor gives up at that bound. Nothing here allocates in proportion to what a
//! block claims about itself. FORMAT: sections 3.2 and 3.3.
//!
//! Each thread keeps the working memory of the compressors it has used, at most some 7 MiB; blocks
//! or levels that need more take it for the call only.
#![deny(clippy::indexing_slicing)]

mod gzip;
mod lz4;
mod lzjb;
mod zle;
mod zstd;

pub use self::zstd::{ZSTD_LEVEL_DEFAULT, ZSTD_VERSION, ZstdLevel};

use format::Compress;

/// Why a block could not be decompressed.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum DecompressError {
    /// This number names no compression of stored blocks: it is a property value.
    #[error("compression {0:?} is not one that a block pointer holds")]
    NotOfBlocks(Compress),
    /// The compressed bytes end before the block is complete.
    #[error("{kind:?}: the compressed bytes end after {have}, {filled} of {expected} bytes filled")]
    Truncated {
        /// The compression.
        kind: Compress,
        /// Compressed bytes there are.
        have: u64,
        /// Bytes that they gave.
        filled: u64,
        /// The logical size.
        expected: u64,
    },
    /// The length in front of the compressed bytes goes beyond them.
    #[error("{kind:?}: says {says} compressed bytes, has {have}")]
    Length {
        /// The compression.
        kind: Compress,
        /// What the head says.
        says: u64,
        /// Bytes after the head.
        have: u64,
    },
    /// The compressed bytes do not follow their format, or give another size than expected.
    #[error("{kind:?}: {what} at byte {at} of the block")]
    Corrupt {
        /// The compression.
        kind: Compress,
        /// What is wrong.
        what: &'static str,
        /// Where in the decompressed block it shows, in bytes.
        at: u64,
    },
}

/// The largest size to which a block of `lsize` bytes must shrink to be stored compressed: an
/// eighth must be saved.
pub fn size_limit(lsize: usize) -> usize {
    lsize - lsize / 8
}

/// Compresses `src` into the start of `dst` and gives the size there, heads included, padding not.
///
/// `None`: it does not fit into [`size_limit`] or into `dst`, or `kind` does not compress (off);
/// then what is in `dst` has no meaning. `level` matters to zstd only.
pub fn compress(kind: Compress, level: ZstdLevel, src: &[u8], dst: &mut [u8]) -> Option<usize> {
    let limit = size_limit(src.len()).min(dst.len());
    let dst = dst.get_mut(..limit)?;
    match kind {
        Compress::Lz4 => lz4::compress(src, dst),
        Compress::Lzjb => lzjb::compress(src, dst),
        Compress::Zle => zle::compress(src, dst),
        Compress::Gzip(gzip_level) => gzip::compress(gzip_level, src, dst),
        Compress::Zstd => zstd::compress(level, src, dst),
        Compress::Inherit | Compress::On | Compress::Off | Compress::Empty => None,
    }
}

/// Decompresses the stored bytes `src` (padding and all) into `dst`, which has the logical size
/// and is filled exactly. After an error what is in `dst` has no meaning.
pub fn decompress(kind: Compress, src: &[u8], dst: &mut [u8]) -> Result<(), DecompressError> {
    match kind {
        Compress::Off => {
            let (have, expected) = (src.len() as u64, dst.len() as u64);
            let Some(bytes) = src.get(..dst.len()) else {
                return Err(DecompressError::Truncated { kind, have, filled: have, expected });
            };
            dst.copy_from_slice(bytes);
            Ok(())
        }
        Compress::Lz4 => lz4::decompress(src, dst),
        Compress::Lzjb => lzjb::decompress(src, dst),
        Compress::Zle => zle::decompress(src, dst),
        Compress::Gzip(_) => gzip::decompress(kind, src, dst),
        Compress::Zstd => zstd::decompress(src, dst),
        Compress::Inherit | Compress::On | Compress::Empty => {
            Err(DecompressError::NotOfBlocks(kind))
        }
    }
}

/// Are all bytes zero? (Such a block becomes a hole when compression is not off.)
pub fn is_zero(block: &[u8]) -> bool {
    // Wide steps without a branch in them, so that the compiler uses wide registers.
    let (chunks, rest) = block.as_chunks::<256>();
    let zero = |bytes: &[u8]| bytes.iter().fold(0, |any, byte| any | byte) == 0;
    chunks.iter().all(|chunk| zero(chunk)) && zero(rest)
}

/// The big-endian length in front of lz4 and zstd, and the bytes that it covers.
fn with_length(
    kind: Compress,
    src: &[u8],
    head: usize,
    expected: usize,
) -> Result<&[u8], DecompressError> {
    let Some((length, rest)) = src.split_first_chunk::<4>() else {
        return Err(DecompressError::Truncated {
            kind,
            have: src.len() as u64,
            filled: 0,
            expected: expected as u64,
        });
    };
    let length = u32::from_be_bytes(*length);
    let end = (length as usize).saturating_add(head);
    rest.get(head..end).ok_or(DecompressError::Length {
        kind,
        says: u64::from(length),
        have: rest.len().saturating_sub(head) as u64,
    })
}
