//! lz4: the length, big-endian, then one raw lz4 block.

use std::cell::RefCell;

use format::Compress;
use lz4_flex::block::{
    CompressTable, DecompressError as Error, compress_into_with_table, decompress_into,
    get_maximum_output_size,
};

use super::{DecompressError, with_length};

thread_local! {
    /// The table of recent positions, and room for the worst case, which the compressor asks for.
    static WORK: RefCell<(CompressTable, Vec<u8>)> =
        RefCell::new((CompressTable::large(), Vec::new()));
}

/// Room that a thread keeps for the next block, in bytes; more is given back.
const ROOM_KEPT: usize = 2 << 20;

pub(super) fn compress(src: &[u8], dst: &mut [u8]) -> Option<usize> {
    let (head, body) = dst.split_first_chunk_mut::<4>()?;
    WORK.with_borrow_mut(|(table, room)| {
        let bound = get_maximum_output_size(src.len());
        if room.len() < bound {
            room.resize(bound, 0);
        }
        let size = compress_into_with_table(src, room, table).ok();
        let written = size.and_then(|size| {
            let (from, to) = (room.get(..size)?, body.get_mut(..size)?);
            to.copy_from_slice(from);
            *head = u32::try_from(size).ok()?.to_be_bytes();
            Some(4 + size)
        });
        if room.len() > ROOM_KEPT {
            *room = Vec::new();
        }
        written
    })
}

pub(super) fn decompress(src: &[u8], dst: &mut [u8]) -> Result<(), DecompressError> {
    let kind = Compress::Lz4;
    let expected = dst.len() as u64;
    let block = with_length(kind, src, 0, dst.len())?;
    let corrupt = |what, at| DecompressError::Corrupt { kind, what, at };
    match decompress_into(block, dst) {
        Ok(filled) if filled as u64 == expected => Ok(()),
        Ok(filled) => Err(DecompressError::Truncated {
            kind,
            have: block.len() as u64,
            filled: filled as u64,
            expected,
        }),
        Err(Error::OutputTooSmall { .. }) => Err(corrupt("gives more than the block", expected)),
        Err(Error::OffsetOutOfBounds | Error::OffsetZero) => {
            Err(corrupt("a match begins outside of the block", 0))
        }
        Err(_) => {
            Err(DecompressError::Truncated { kind, have: block.len() as u64, filled: 0, expected })
        }
    }
}
