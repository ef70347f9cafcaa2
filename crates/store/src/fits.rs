//! How many blocks find room in one piece, and what the others cost as gangs.
//!
//! A gang takes headers and rounds each of its members up, so that in a pool whose free space is in small
//! pieces a block takes several times its size. Whoever admits a change must know beforehand: the answer errs
//! on the side of less room and more cost.

use format::gang::{GANG_DEPTH_MAX, GANG_MEMBERS, GANG_SIZE, member_sizes};

use crate::allocator::{Allocator, AsizeOf};
use crate::error::Result;

/// Room for blocks that are cut in one way.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Fit {
    /// The top-level vdev.
    pub top: u32,
    /// Bytes of blocks that find room so, each counted as if it lay in one piece.
    pub room: u64,
    /// What one block takes in one piece, in bytes.
    pub whole: u64,
    /// What it takes when it is cut so, in bytes.
    pub cut: u64,
}

/// All the room there is, per top-level vdev the fewest cuts first.
pub type Fits = Vec<Fit>;

/// One way to cut a block.
struct Way {
    /// What each piece takes.
    piece: u64,
    /// What all of it takes, headers included.
    all: u64,
}

/// The ways to cut a block of `psize` bytes: not at all, in three, in nine ..
fn ways(psize: u64, asize_of: impl Fn(u64) -> u64) -> Vec<Way> {
    let header = asize_of(GANG_SIZE as u64);
    let mut out = vec![Way { piece: asize_of(psize), all: asize_of(psize) }];
    // All members are taken for as large as the first.
    let (mut size, mut count, mut headers) = (psize, 1, 0);
    while asize_of(size) > header && out.len() <= GANG_DEPTH_MAX {
        // Data of one copy has headers of two.
        headers += count * 2 * header;
        count *= GANG_MEMBERS as u64;
        size = member_sizes(size)[0];
        out.push(Way { piece: asize_of(size), all: headers + count * asize_of(size) });
    }
    out
}

impl Allocator {
    /// Room for blocks of `psize` bytes. Loads the space maps of all metaslabs that are not full.
    pub fn fits(&self, psize: u64, asize_of: AsizeOf<'_>) -> Result<Fits> {
        let mut out = Fits::new();
        let leased = self.leased();
        self.free_pieces(|top, pieces| {
            let ways = ways(psize, |psize| asize_of(top, psize));
            let granule = asize_of(top, GANG_SIZE as u64);
            let mut taken = vec![0u64; ways.len()];
            let mut add = |len: u64, count: u64| {
                if let Some(way) = ways.iter().position(|way| way.piece <= len) {
                    taken[way] += len / ways[way].piece * ways[way].piece * count;
                }
            };
            for (log, count) in pieces.iter().enumerate().filter(|(_, count)| **count > 0) {
                // At least so long, and nothing is handed out in smaller parts than a sector takes.
                add((1u64 << log).next_multiple_of(granule), *count);
            }
            leased.iter().filter(|(own, _)| *own == top).for_each(|(_, len)| add(*len, 1));
            let whole = ways[0].all;
            out.extend(ways.iter().zip(taken).map(|(way, taken)| {
                let room = u128::from(taken) * u128::from(whole) / u128::from(way.all);
                Fit { top, room: room as u64, whole, cut: way.all }
            }));
        })?;
        Ok(out)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn cuts_cost_headers_and_rounding() {
        let ways = ways(128 << 10, |psize| psize.next_multiple_of(4096));
        let all: Vec<(u64, u64)> = ways.iter().map(|w| (w.piece >> 12, w.all >> 12)).collect();
        // in one piece; in 3 of 11 sectors and 2 headers; 9 of 4 and 8; 27 of 2 and 26; 81 of 1 and 80
        assert_eq!(all, [(32, 32), (11, 35), (4, 44), (2, 80), (1, 161)]);
    }
}
