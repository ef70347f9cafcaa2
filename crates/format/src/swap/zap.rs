//! Blocks of ZAPs: micro, header, leaf; all else is a pointer table, plain words.

use super::{Direction, field, words};
use crate::zap::leaf::{CHUNK, CHUNK_ARRAY, CHUNK_ENTRY, CHUNK_FREE};
use crate::zap::micro::MICRO_ENTRY;
use crate::zap::{KIND_LEAF, KIND_MICRO};

/// Size of a leaf's header in bytes.
const LEAF_HEADER: usize = 48;

pub(super) fn block(direction: Direction, bytes: &mut [u8]) {
    let first = bytes.first_chunk::<8>().map(|word| match direction {
        Direction::FromBig => u64::from_be_bytes(*word),
        Direction::ToBig => u64::from_le_bytes(*word),
    });
    match first {
        Some(KIND_MICRO) => micro(bytes),
        Some(KIND_LEAF) => leaf(direction, bytes),
        _ => words::<8>(bytes),
    }
}

fn micro(bytes: &mut [u8]) {
    let (header, entries) = bytes.split_at_mut(MICRO_ENTRY.min(bytes.len()));
    words::<8>(header);
    for entry in entries.chunks_exact_mut(MICRO_ENTRY) {
        let (value, rest) = entry.split_at_mut(8);
        value.reverse();
        let (cd, _) = rest.split_at_mut(4);
        cd.reverse();
    }
}

fn leaf(direction: Direction, bytes: &mut [u8]) {
    for at in [0, 8, 16] {
        field::<8>(direction, bytes, at);
    }
    field::<4>(direction, bytes, 24);
    for at in [28, 30, 32, 34] {
        field::<2>(direction, bytes, at);
    }
    // One hash entry for 32 bytes of block.
    let hashes = bytes.len() / 32 * 2;
    let Some(rest) = bytes.get_mut(LEAF_HEADER..) else { return };
    let Some((table, chunks)) = rest.split_at_mut_checked(hashes) else { return };
    words::<2>(table);
    for chunk in chunks.chunks_exact_mut(CHUNK) {
        match chunk.first() {
            Some(&CHUNK_ENTRY) => {
                for at in [2, 4, 6, 8, 10] {
                    field::<2>(direction, chunk, at);
                }
                field::<4>(direction, chunk, 12);
                field::<8>(direction, chunk, 16);
            }
            // Names and values are the same in both orders: big-endian.
            Some(&CHUNK_ARRAY | &CHUNK_FREE) => {
                field::<2>(direction, chunk, CHUNK - 2);
            }
            _ => {}
        }
    }
}
