//! What a change costs where free space is in small pieces: blocks become gangs, which take more.
//!
//! No txg may fail in its middle for want of space, so a change is admitted with what it can cost at worst:
//! the blocks that find room in one piece first, then those that are cut in three, in nine, and so on.

use format::features::Feature;
use rt::sync::Mutex;

use crate::error::Result;
use crate::pool::Pool;

/// No layout makes a gang cost more, as a multiple of the block: only with less room than that are
/// the pieces looked at.
const WORST: u64 = 16;
/// Largest block of pools without large blocks, in bytes; metadata are no larger anywhere.
const BLOCK: u64 = 128 << 10;
/// Largest record that is allowed to be set without special measures, in bytes.
const BLOCK_LARGE: u64 = 1 << 20;

/// Room for blocks by how much more they cost: deflated bytes of room, and what a block costs in one piece
/// and cut.
type Steps = Vec<(u64, u64, u64)>;

/// What it costs to find room, as of a txg.
#[derive(Debug, Default)]
pub(crate) struct Pieces(Mutex<Option<Steps>>);

impl Pieces {
    /// The deflated bytes that `wanted` bytes take when they have found room; at least that. `ready`: what
    /// is free.
    pub(crate) fn cost(&self, pool: &Pool, wanted: u64, ready: u64) -> Result<u64> {
        if wanted.saturating_mul(WORST) <= ready {
            return Ok(wanted);
        }
        let mut steps = self.0.lock();
        let steps = match &mut *steps {
            Some(steps) => steps,
            none => none.insert(steps_of(pool)?),
        };
        Ok(cost_of(steps, wanted))
    }
}

/// `u64::MAX`: there is no room.
fn cost_of(steps: &[(u64, u64, u64)], wanted: u64) -> u64 {
    let (mut left, mut cost) = (wanted, 0u128);
    for (room, whole, cut) in steps {
        let now = left.min(*room);
        cost += u128::from(now) * u128::from(*cut) / u128::from(*whole);
        left -= now;
    }
    if left > 0 { u64::MAX } else { u64::try_from(cost).unwrap_or(u64::MAX) }
}

fn steps_of(pool: &Pool) -> Result<Steps> {
    let allocator = pool.writing()?.writer.allocator();
    let asize_of = |top, psize| pool.store.asize(top, psize);
    let largest = if pool.features.is_active(Feature::LargeBlocks)? { BLOCK_LARGE } else { BLOCK };
    let records = pool.heads.lock().values().map(|head| head.record()).max().unwrap_or(0);
    let fits = allocator.fits(largest.max(records), &asize_of)?;
    let mut steps: Steps = fits
        .iter()
        .filter(|fit| fit.room > 0)
        .map(|fit| (pool.store.deflate(fit.top, fit.room), fit.whole, fit.cut))
        .collect();
    steps.sort_by(|(_, whole, cut), (_, other, other_cut)| {
        let ratio = u128::from(*cut) * u128::from(*other);
        ratio.cmp(&(u128::from(*other_cut) * u128::from(*whole)))
    });
    Ok(steps)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_cheapest_room_is_taken_first() {
        let steps = [(100, 32, 32), (50, 32, 64), (10, 32, 160)];
        assert_eq!(cost_of(&steps, 80), 80);
        assert_eq!(cost_of(&steps, 120), 140);
        assert_eq!(cost_of(&steps, 160), 250);
        assert_eq!(cost_of(&steps, 161), u64::MAX);
    }
}
