//! lzjb: groups of eight items under a byte of flags; an item is a literal byte, or a match of 3 to
//! 66 bytes at a distance of at most 1023.
//!
//! One idea: the flag byte of a group is written before its items are known, so its place is
//! remembered and filled bit by bit.

use format::Compress;

use super::DecompressError;

/// Lengths and distances that an item can say.
const MATCH_MIN: usize = 3;
const MATCH_MAX: usize = 66;
const DISTANCE_MAX: usize = 1023;
/// Slots of the table of recent positions, by a hash of three bytes.
const SLOTS: usize = 1024;

pub(super) fn compress(src: &[u8], dst: &mut [u8]) -> Option<usize> {
    let mut recent = [0u32; SLOTS];
    let mut size = 0;
    let mut at = 0;
    while at < src.len() {
        // A group: its flags, then its items.
        let mut group = [0u8; 17];
        let mut used = 1;
        for flag in 0..8 {
            let Some(&byte) = src.get(at) else { break };
            let mut put = |byte: u8| {
                if let Some(place) = group.get_mut(used) {
                    *place = byte;
                    used += 1;
                }
            };
            match find(src, at, &mut recent) {
                Some((distance, length)) => {
                    put(((length - MATCH_MIN) << 2 | distance >> 8) as u8);
                    put(distance as u8);
                    at += length;
                    let [flags, ..] = &mut group;
                    *flags |= 1 << flag;
                }
                None => {
                    put(byte);
                    at += 1;
                }
            }
        }
        let (room, group) = (dst.get_mut(size..size + used)?, group.get(..used)?);
        room.copy_from_slice(group);
        size += used;
    }
    Some(size)
}

/// The match for the bytes at `at`, as distance and length; remembers the place.
#[inline(always)]
fn find(src: &[u8], at: usize, recent: &mut [u32; SLOTS]) -> Option<(usize, usize)> {
    let now = src.get(at..)?;
    let &[a, b, c, ..] = now else { return None };
    let three = u32::from(a) << 16 | u32::from(b) << 8 | u32::from(c);
    let slot = three.wrapping_mul(0x9e37_79b1) >> (32 - SLOTS.ilog2());
    // Blocks are at most 16 MiB.
    let before = std::mem::replace(recent.get_mut(slot as usize)?, at as u32) as usize;
    let distance = at.wrapping_sub(before);
    if !(1..=DISTANCE_MAX).contains(&distance) {
        return None;
    }
    let then = src.get(before..)?;
    if then.first_chunk::<3>()? != &[a, b, c] {
        return None;
    }
    let alike = now.iter().zip(then).take(MATCH_MAX).skip(MATCH_MIN);
    Some((distance, MATCH_MIN + alike.take_while(|(now, then)| now == then).count()))
}

pub(super) fn decompress(src: &[u8], dst: &mut [u8]) -> Result<(), DecompressError> {
    let expected = dst.len();
    let mut bytes = src.iter().copied();
    let mut filled = 0;
    let mut flags = 0u8;
    let mut flag = 0u8;
    while filled < expected {
        let mut next = || {
            bytes.next().ok_or(DecompressError::Truncated {
                kind: Compress::Lzjb,
                have: src.len() as u64,
                filled: filled as u64,
                expected: expected as u64,
            })
        };
        if flag == 0 {
            flag = 1;
            flags = next()?;
        }
        if flags & flag == 0 {
            let literal = next()?;
            put(dst, filled, literal);
            filled += 1;
        } else {
            let word = usize::from(next()?) << 8 | usize::from(next()?);
            let (length, distance) = ((word >> 10) + MATCH_MIN, word & DISTANCE_MAX);
            if distance == 0 || distance > filled {
                return Err(DecompressError::Corrupt {
                    kind: Compress::Lzjb,
                    what: "a match begins outside of the block",
                    at: filled as u64,
                });
            }
            // The last match may say more than there is room for.
            let end = (filled + length).min(expected);
            if distance >= length {
                dst.copy_within(filled - distance..end - distance, filled);
            } else {
                // The match runs into what it writes.
                for to in filled..end {
                    let byte = dst.get(to - distance).copied().unwrap_or(0);
                    put(dst, to, byte);
                }
            }
            filled = end;
        }
        flag <<= 1;
    }
    Ok(())
}

fn put(dst: &mut [u8], at: usize, byte: u8) {
    if let Some(place) = dst.get_mut(at) {
        *place = byte;
    }
}
