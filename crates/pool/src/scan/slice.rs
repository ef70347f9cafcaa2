//! One slice of a scan: from its position on through the pool as of the last uberblock, until it is enough.
//!
//! The one idea: the walk only gathers where blocks lie; who reads them does that in the order of the disks. Data
//! sets come after those they have grown from, each for what was born in it alone. FORMAT: section 13.1.

use dmu::{Objset, Policy};
use format::BlkPtr;
use format::dsl_dataset::DslDatasetPhys;
use format::scan::{Bookmark, Scan, ScanFunction};
use rt::sync::Arc;
use store::{Part, Store};
use vdev::Tree;

use super::position::{NONE, Position};
use super::walk::{Flow, Visitor, Walk};
use crate::dsl::lookup;
use crate::error::Result;
use crate::mos::Mos;

/// Blocks that a slice looks at, at most, whether they are to be examined or not.
const SEEN_MAX: u64 = 1 << 19;
/// Bytes of memory for each part of a block.
pub(crate) const PART_BYTES: u64 = (size_of::<(Part, Bookmark)>() + 2 * size_of::<Spot>()) as u64;

/// Where a copy of a part lies.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Spot {
    pub(crate) top: u32,
    pub(crate) offset: u64,
    /// Place of the part in the list.
    pub(crate) part: u32,
}

/// What a slice has to examine.
#[derive(Default)]
pub(crate) struct Gathered {
    pub(crate) parts: Vec<(Part, Bookmark)>,
    pub(crate) spots: Vec<Spot>,
    /// Bytes of the blocks that were passed, with all their copies and parity.
    pub(crate) passed: u64,
    /// Blocks whose parts cannot be told.
    pub(crate) lost: Vec<Bookmark>,
}

/// What a slice may take.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Budget {
    pub(crate) parts: usize,
    pub(crate) bytes: u64,
}

struct Gathering<'a> {
    store: &'a Store,
    tree: &'a Tree,
    /// Only what leaves lack.
    resilver: bool,
    budget: Budget,
    out: Gathered,
    bytes: u64,
    seen: u64,
}

impl Visitor for Gathering<'_> {
    fn visit(&mut self, at: Bookmark, bp: &BlkPtr) {
        self.seen += 1;
        self.out.passed += bp.asize();
        let tree = self.tree;
        let birth = bp.physical_birth();
        // Members of a gang may lie elsewhere.
        let behind = |top| tree.is_behind(top, birth);
        if self.resilver && !bp.is_gang() && !bp.dvas().any(|dva| behind(dva.vdev)) {
            return;
        }
        let Ok(parts) = self.store.parts(bp) else {
            self.out.lost.push(at);
            return;
        };
        for part in parts {
            let number = self.out.parts.len() as u32;
            let copies = part.copies().filter(|dva| !self.resilver || behind(dva.vdev));
            let before = self.out.spots.len();
            for dva in copies {
                self.out.spots.push(Spot { top: dva.vdev, offset: dva.offset, part: number });
                self.bytes += dva.asize;
            }
            if self.out.spots.len() > before {
                self.out.parts.push((part, at));
            }
        }
    }

    fn is_enough(&mut self) -> bool {
        self.seen >= SEEN_MAX
            || self.out.parts.len() >= self.budget.parts
            || self.bytes >= self.budget.bytes
    }
}

/// Gathers what comes next, and moves the position behind it.
pub(crate) fn gather(
    (store, tree): (&Arc<Store>, &Tree),
    root: &BlkPtr,
    scan: &Scan,
    position: &mut Position,
    budget: Budget,
) -> Result<Gathered> {
    let policy = Policy::new(true);
    let mos =
        Mos { objset: Arc::new(Objset::open(store.clone(), root, policy, None)?), ruins: None };
    let resilver = scan.function == ScanFunction::Resilver;
    let out = Gathered::default();
    let mut gathering = Gathering { store, tree, resilver, budget, out, bytes: 0, seen: 0 };
    while !position.is_end() && !gathering.is_enough() {
        match position.bookmark.objset {
            NONE => next(&mos, scan, position, &mut gathering)?,
            0 => {
                if walk(store, position, root, &mut gathering) == Flow::Go {
                    let origin = mos.dir(lookup::root_dir(&mos)?)?.origin_object.get();
                    position.enter(origin, (scan.min_txg, scan.max_txg));
                }
            }
            object => match mos.dataset(object) {
                Ok(phys) => dataset(&mos, scan, position, (object, &phys), &mut gathering)?,
                Err(_) => lose(position, object, &mut gathering),
            },
        }
    }
    Ok(gathering.out)
}

/// A data set whose object cannot be read is passed over; that is an error of the scan.
fn lose(position: &mut Position, object: u64, gathering: &mut Gathering<'_>) {
    gathering.out.lost.push(Bookmark { object, ..Bookmark::default() });
    position.leave();
}

/// Takes the next data set of the queue.
fn next(
    mos: &Mos,
    scan: &Scan,
    position: &mut Position,
    gathering: &mut Gathering<'_>,
) -> Result<()> {
    let Some((object, txg)) = position.queue.pop_first() else { return Ok(()) };
    let Ok(phys) = mos.dataset(object) else {
        lose(position, object, gathering);
        return Ok(());
    };
    let min = if txg != 0 { txg } else { phys.prev_snap_txg.get() };
    let max = match is_snapshot(&phys) {
        true => scan.max_txg.min(phys.creation_txg.get()),
        false => scan.max_txg,
    };
    position.enter(object, (scan.min_txg.max(min), max));
    Ok(())
}

fn is_snapshot(phys: &DslDatasetPhys) -> bool {
    phys.num_children.get() != 0
}

fn dataset(
    mos: &Mos,
    scan: &Scan,
    position: &mut Position,
    (object, phys): (u64, &DslDatasetPhys),
    gathering: &mut Gathering<'_>,
) -> Result<()> {
    if position.min_txg >= scan.max_txg {
        // It was made after the scan began, and so was all that has grown from it.
        position.leave();
        return Ok(());
    }
    let store = gathering.store;
    if walk(store, position, &phys.bp, gathering) == Flow::Stop {
        return Ok(());
    }
    if position.again {
        position.push(object, position.max_txg);
    } else {
        let txg = phys.creation_txg.get();
        if phys.next_snap_object.get() != 0 {
            position.push(phys.next_snap_object.get(), txg);
        }
        let clones = phys.next_clones_object.get();
        if phys.num_children.get() > 1 && clones != 0 {
            mos.zap(clones)?.each_number(|_, clone| {
                clone.into_iter().for_each(|clone| position.push(clone, txg));
            })?;
        }
    }
    position.leave();
    Ok(())
}

fn walk(
    store: &Store,
    position: &mut Position,
    root: &BlkPtr,
    gathering: &mut Gathering<'_>,
) -> Flow {
    let mut walk = Walk {
        store,
        objset: position.bookmark.objset,
        range: (position.min_txg, position.max_txg),
        from: Some(position.bookmark),
        visitor: gathering,
        stopped: None,
    };
    let flow = walk.run(root);
    if let Some(stopped) = walk.stopped {
        position.bookmark = stopped;
    }
    flow
}
