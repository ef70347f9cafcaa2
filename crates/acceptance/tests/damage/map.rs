//! The block map: where each copy of each block lies, and which bytes of which disk are its columns.
//!
//! FORMAT: raidz, as in the description of the format; nothing of it comes from the engine.

use std::collections::BTreeMap;
use std::ops::Range;

use device::sim::SimSet;
use format::label::DATA_AT;
use format::scan::Bookmark;
use pool::{Joined, Pool};
use rt::Rng;
use rt::sync::Arc;

use crate::rig::{self, Shape};

/// A copy of a block, or of a part of a gang.
#[derive(Clone, Debug)]
pub(crate) struct Copy {
    /// Its block's place in the pool: the first by which it was found.
    pub at: Bookmark,
    /// Number of the block, or of the part.
    pub block: u64,
    /// Its pieces: number of the disk, bytes on it. Each of them may be lost if not more than the parity are.
    pub pieces: Vec<(usize, Range<u64>)>,
}

/// Columns of a block of `size` bytes at `offset` of a raidz.
fn columns(shape: Shape, parity: u64, offset: u64, size: u64) -> Vec<(usize, Range<u64>)> {
    let (disks, shift) = (shape.disks as u64, shape.ashift);
    let (first, sectors) = (offset >> shift, size.div_ceil(1 << shift));
    let (rows, rest) = (sectors / (disks - parity), sectors % (disks - parity));
    let large = if rest == 0 { 0 } else { rest + parity };
    let count = if rows == 0 { large } else { disks };
    let column = |index: u64| {
        let place = first % disks + index;
        let row = first / disks + u64::from(place >= disks);
        let height = rows + u64::from(index < large);
        let start = DATA_AT + (row << shift);
        ((place % disks) as usize, start..start + (height << shift))
    };
    (0..count).map(column).collect()
}

/// All copies of all blocks of a pool, each once; intent logs left out.
pub(crate) fn of(pool: &Arc<Pool>, shape: Shape) -> Vec<Copy> {
    let mut out = BTreeMap::new();
    let mut blocks = 0;
    let mut add = |at: Bookmark| {
        let Some(bp) = pool.pointer_at(at).unwrap() else { return };
        if !bp.has_space() {
            return;
        }
        for part in pool.store().parts(&bp).unwrap() {
            blocks += 1;
            for dva in part.copies() {
                let size = part.size() as u64;
                let pieces = match shape.joined {
                    Joined::Raidz(parity) => columns(shape, parity.into(), dva.offset, size),
                    _ => {
                        let start = DATA_AT + dva.offset;
                        (0..shape.disks).map(|disk| (disk, start..start + size)).collect()
                    }
                };
                let copy = Copy { at, block: blocks, pieces };
                out.entry((dva.vdev, dva.offset)).or_insert(copy);
            }
        }
    };
    let found = pool::dsl::lookup::walk(pool.mos(), rig::POOL).unwrap();
    let datasets = found.iter().map(|found| found.object);
    for number in std::iter::once(0).chain(datasets) {
        let objset = pool.objset_at(number).unwrap().unwrap();
        add(Bookmark { objset: number, object: 0, level: -1, block: 0 });
        let mut next = Some(0);
        while let Some(object) = next {
            let dnode = objset.object(object).unwrap().synced().unwrap();
            for level in 0..dnode.core().levels {
                let last = dnode.max_block() >> (u32::from(level) * dnode.pointers_shift());
                for block in 0..=last {
                    add(Bookmark { objset: number, object, level: level.into(), block });
                }
            }
            next = objset.next_object(object + 1).unwrap().map(|(next, _)| next);
        }
    }
    out.into_values().collect()
}

/// Noise over `count` of the copy's pieces, chosen by `rng`.
pub(crate) fn hurt(set: &SimSet, copy: &Copy, count: usize, rng: &mut Rng) {
    let mut left: Vec<usize> = (0..copy.pieces.len()).collect();
    for _ in 0..count.min(left.len()) {
        let (disk, range) = &copy.pieces[left.swap_remove(rng.index(left.len()))];
        let mut noise = vec![0; (range.end - range.start) as usize];
        rng.fill(&mut noise);
        set.disk(*disk).overwrite(range.start, &noise);
    }
}
