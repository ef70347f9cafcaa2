//! One slice of a scan: from its position on through the pool as of the last uberblock, until it is enough.
//!
//! The one idea: the walk only gathers where blocks lie; who reads them does that in the order of the disks. Data
//! sets come after those they have grown from, each for what was born in it alone. FORMAT: section 13.1.

use dmu::{Objset, Policy};
use format::BlkPtr;
use format::dsl_dataset::DslDatasetPhys;
use format::scan::{Bookmark, Scan, ScanFunction};
use rt::sync::Arc;
use store::{Hold, Part, Store};
use vdev::Tree;

use super::destroyed;
use super::endangered::Endangered;
use super::logs;
use super::position::{NONE, Position};
use super::walk::{Flow, Visitor, Walk};
use crate::dsl::lookup;
use crate::error::Result;
use crate::mos::{DIRECTORY, Mos};
use crate::pool::Freeing;

/// Blocks that a slice looks at, at most, whether they are to be examined or not.
const SEEN_MAX: u64 = 1 << 19;
/// An object set has each block once, and each slice looks at the way to its first block again: more bytes than the
/// vdevs have, so many times, only a hostile pool leads to.
const WALKED_MAX: u64 = 16;
/// Blocks that could not be read of which it is kept where they are; that there are some is what matters.
pub(super) const UNREAD_MAX: usize = 4096;
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
    /// Blocks that lead to others and could not be read; some, if there are many.
    pub(crate) unread: Vec<Bookmark>,
}

/// What a slice may take.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Budget {
    pub(crate) parts: usize,
    pub(crate) bytes: u64,
}

pub(super) struct Gathering<'a> {
    pub(super) store: &'a Arc<Store>,
    /// What is gathered when it is broken leads nowhere.
    pub(super) hold: &'a Hold,
    tree: &'a Tree,
    /// Only what leaves lack.
    resilver: bool,
    /// Of that only these.
    only: Option<&'a Endangered>,
    budget: Budget,
    pub(super) out: Gathered,
    bytes: u64,
    pub(super) seen: u64,
    /// Bytes of blocks of the object set at hand that were looked at, and how many there can be at most.
    pub(super) walked: u64,
    walked_max: u64,
}

impl Visitor for Gathering<'_> {
    fn pass(&mut self, bp: &BlkPtr) -> bool {
        self.seen += 1;
        self.walked = self.walked.saturating_add(bp.asize().max(1 << format::label::ASHIFT_MIN));
        self.walked <= self.walked_max
    }

    fn unread(&mut self, at: Bookmark) {
        if self.out.unread.len() < UNREAD_MAX {
            self.out.unread.push(at);
        }
    }

    fn visit(&mut self, at: Bookmark, bp: &BlkPtr) {
        self.out.passed += bp.asize();
        let tree = self.tree;
        let birth = bp.physical_birth();
        // Members of a gang may lie elsewhere.
        let behind = |top| match self.only {
            Some(only) => only.contains(top, birth),
            None => tree.is_behind(top, birth),
        };
        if self.resilver && !bp.is_gang() && !bp.dvas().any(|dva| behind(dva.vdev)) {
            return;
        }
        let Some(parts) = self.hold.during(|| self.store.parts(bp)) else { return };
        let Ok(parts) = parts else {
            if !destroyed::is_in_one(&at) {
                self.out.lost.push(at);
            }
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
        self.hold.is_broken()
            || self.seen >= SEEN_MAX
            || self.out.parts.len() >= self.budget.parts
            || self.bytes >= self.budget.bytes
    }
}

/// Gathers what comes next as of an uberblock, and moves the position behind it, unless the hold is broken then.
/// `freeing` is how that stood before.
pub(crate) fn gather(
    (store, tree, hold): (&Arc<Store>, &Tree, &Hold),
    (txg, root, freeing): (u64, &BlkPtr, &Freeing),
    (scan, only): (&Scan, Option<&Endangered>),
    position: &mut Position,
    budget: Budget,
) -> Result<Gathered> {
    let policy = Policy::new(true);
    let Some(objset) = hold.during(|| Objset::open(store.clone(), root, policy, None)) else {
        return Ok(Gathered::default());
    };
    let mos = Mos { objset: Arc::new(objset?), ruins: None };
    let resilver = scan.function == ScanFunction::Resilver;
    let out = Gathered::default();
    let vdevs = tree.tops().iter().map(vdev::Top::asize).fold(0, u64::saturating_add);
    let walked_max = vdevs.saturating_mul(WALKED_MAX);
    let mut gathering = Gathering {
        store,
        hold,
        tree,
        resilver,
        only,
        budget,
        out,
        bytes: 0,
        seen: 0,
        walked: 0,
        walked_max,
    };
    while !gathering.is_enough() {
        if position.is_end() {
            if waits(freeing, txg) || position.trees.are_done(freeing) {
                break;
            }
            if destroyed::gather(&mos, scan, position, (freeing, txg), &mut gathering).is_err() {
                position.trees.give_up();
                note_lost(DIRECTORY, &mut gathering);
            }
            continue;
        }
        gathering.seen += 1;
        match position.bookmark.objset {
            NONE => next(&mos, scan, position, &mut gathering),
            0 => {
                if walk(store, position, root, &mut gathering) == Flow::Go {
                    match hold.during(|| origin(&mos)).unwrap_or(Err(DIRECTORY)) {
                        Ok(origin) => position.enter(origin, (scan.min_txg, scan.max_txg)),
                        Err(object) => lose(position, object, &mut gathering),
                    }
                }
            }
            object => match hold.during(|| mos.dataset(object)) {
                Some(Ok(phys)) => dataset(&mos, scan, position, (object, &phys), &mut gathering),
                _ => lose(position, object, &mut gathering),
            },
        }
    }
    Ok(gathering.out)
}

/// Must what was destroyed become free before a scan ends, and the uberblock of this txg does not say so yet?
pub(super) fn waits(freeing: &Freeing, txg: u64) -> bool {
    freeing.pending || txg < freeing.last
}

/// The data set that all others have grown from, or the object that does not lead to it.
fn origin(mos: &Mos) -> std::result::Result<u64, u64> {
    let dir = lookup::root_dir(mos).map_err(|_| DIRECTORY)?;
    lookup::origin(mos).map_err(|_| dir)
}

/// An object of the MOS that leads on cannot be read: what it leads to alone is passed over, and that is an error of
/// the scan.
fn note_lost(object: u64, gathering: &mut Gathering<'_>) {
    gathering.out.lost.push(Bookmark { object, ..Bookmark::default() });
}

/// The data set at hand is passed over.
fn lose(position: &mut Position, object: u64, gathering: &mut Gathering<'_>) {
    note_lost(object, gathering);
    position.leave();
}

/// Takes the next data set of the queue.
fn next(mos: &Mos, scan: &Scan, position: &mut Position, gathering: &mut Gathering<'_>) {
    let Some((object, txg)) = position.queue.pop_first() else { return };
    let Some(Ok(phys)) = gathering.hold.during(|| mos.dataset(object)) else {
        return lose(position, object, gathering);
    };
    let min = if txg != 0 { txg } else { phys.prev_snap_txg.get() };
    let max = match is_snapshot(&phys) {
        true => scan.max_txg.min(phys.creation_txg.get()),
        false => scan.max_txg,
    };
    position.enter(object, (scan.min_txg.max(min), max));
}

/// Is it the data set that comes after a snapshot of this object and txg? They are a tree, in which each is later than
/// what it has grown from; or a hostile pool's scan would have no end.
fn has_grown_from((object, txg): (u64, u64), phys: &DslDatasetPhys) -> bool {
    let later = !is_snapshot(phys) || phys.creation_txg.get() > txg;
    phys.prev_snap_object.get() == object && later
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
) {
    if position.min_txg >= scan.max_txg {
        // It was made after the scan began, and so was all that has grown from it.
        return position.leave();
    }
    let is_head = !is_snapshot(phys);
    if is_head && logs::gather(mos, position, (object, phys), gathering) == Flow::Stop {
        return;
    }
    let store = gathering.store;
    if walk(store, position, &phys.bp, gathering) == Flow::Stop {
        return;
    }
    if position.again {
        position.push(object, position.max_txg);
    } else {
        let txg = phys.creation_txg.get();
        let mut after = Vec::new();
        if is_snapshot(phys) && phys.next_snap_object.get() != 0 {
            after.push(phys.next_snap_object.get());
        }
        let clones = phys.next_clones_object.get();
        if phys.num_children.get() > 1 && clones != 0 {
            let each = |zap: dmu::Zap| Ok(zap.each_number(|_, clone| after.extend(clone))?);
            let read = gathering.hold.during(|| mos.zap(clones).and_then(each));
            if read.is_none_or(|read| read.is_err()) {
                note_lost(clones, gathering);
            }
        }
        for next in after {
            match gathering.hold.during(|| mos.dataset(next)) {
                Some(Ok(next_phys)) if !has_grown_from((object, txg), &next_phys) => {
                    note_lost(next, gathering);
                }
                // One that cannot be read is told when its turn comes.
                _ => position.push(next, txg),
            }
        }
    }
    position.leave();
}

fn walk(
    store: &Store,
    position: &mut Position,
    root: &BlkPtr,
    gathering: &mut Gathering<'_>,
) -> Flow {
    gathering.walked = position.walked;
    let mut walk = Walk {
        store,
        hold: gathering.hold,
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
    position.walked = gathering.walked;
    flow
}

#[cfg(test)]
mod tests {
    use super::*;
    use zerocopy::FromZeros;

    #[test]
    fn data_sets_are_a_tree_in_time() {
        let dataset = |prev: u64, txg: u64, children: u64| {
            let mut phys = DslDatasetPhys::new_zeroed();
            phys.prev_snap_object = prev.into();
            phys.creation_txg = txg.into();
            phys.num_children = children.into();
            phys
        };
        assert!(has_grown_from((50, 7), &dataset(50, 8, 1)));
        // A head is older than its snapshots.
        assert!(has_grown_from((50, 7), &dataset(50, 4, 0)));
        assert!(!has_grown_from((50, 7), &dataset(50, 7, 1)));
        assert!(!has_grown_from((50, 7), &dataset(51, 8, 1)));
    }
}
