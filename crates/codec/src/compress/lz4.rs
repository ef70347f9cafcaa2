//! lz4: the length, big-endian, then one raw lz4 block.
//!
//! By the library that lz4's author keeps: blocks of metadata are mostly zeros, which it copies in long steps.

use format::Compress;
use lz4::block::{compress_to_buffer, decompress_to_buffer};

use super::{DecompressError, with_length};

pub(super) fn compress(src: &[u8], dst: &mut [u8]) -> Option<usize> {
    let (head, body) = dst.split_first_chunk_mut::<4>()?;
    // It gives up where the body ends.
    let size = compress_to_buffer(src, None, false, body).ok()?;
    *head = u32::try_from(size).ok()?.to_be_bytes();
    Some(4 + size)
}

pub(super) fn decompress(src: &[u8], dst: &mut [u8]) -> Result<(), DecompressError> {
    let kind = Compress::Lz4;
    let expected = dst.len() as u64;
    let block = with_length(kind, src, 0, dst.len())?;
    let what =
        "the compressed bytes end too early, give more than the block, or point outside of it";
    let corrupt = DecompressError::Corrupt { kind, what, at: 0 };
    let size = i32::try_from(dst.len()).map_err(|_| corrupt.clone())?;
    match decompress_to_buffer(block, Some(size), dst) {
        Ok(filled) if filled as u64 == expected => Ok(()),
        Ok(filled) => Err(DecompressError::Truncated {
            kind,
            have: block.len() as u64,
            filled: filled as u64,
            expected,
        }),
        Err(_) => Err(corrupt),
    }
}
