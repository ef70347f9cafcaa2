//! Trees of destroyed data sets that cannot be freed, since something in them cannot be read.
//!
//! Place: behind the last data set. Ordinarily nothing is there: a scan is not over before what was destroyed is free.
//! But of such a tree the rest is needed, too, or it could never be freed; what cannot be read in it is no error of a
//! scan. The one idea: how far that has come is in memory alone; on disk the scan is at its end, and whoever goes on with
//! it there begins with the trees.

use format::bptree::BlockPlace;
use format::scan::{Bookmark, Scan};

use super::position::{NONE, Position};
use super::slice::Gathering;
use super::walk::Visitor;
use crate::dsl::{freeing, tree};
use crate::error::Result;
use crate::mos::Mos;
use crate::pool::Freeing;

/// Blocks that are looked for at a time, about.
const PORTION: u64 = 1024;

/// Is this the place of a block in such a tree? It has no name.
pub(super) fn is_in_one(at: &Bookmark) -> bool {
    at.objset == NONE
}

/// How far a scan has come in them.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Trees {
    /// The txg whose state was looked at.
    txg: u64,
    /// The next one, and where in it.
    next: u64,
    place: Option<BlockPlace>,
    /// There is none behind it.
    over: bool,
}

impl Trees {
    /// What they are cannot be read.
    pub(super) fn give_up(&mut self) {
        self.over = true;
    }

    /// Is nothing left, when that is how freeing stands?
    pub(super) fn are_done(&self, freeing: &Freeing) -> bool {
        !freeing.pending && self.over && self.txg >= freeing.last
    }
}

/// Gathers what comes next, as of `txg`; `freeing` is how that stood before.
pub(super) fn gather(
    mos: &Mos,
    scan: &Scan,
    position: &mut Position,
    (freeing, txg): (&Freeing, u64),
    gathering: &mut Gathering<'_>,
) -> Result<()> {
    let Position { trees, walked, .. } = position;
    if trees.txg < freeing.last {
        *trees = Trees::default();
    }
    if *trees == Trees::default() {
        (trees.txg, *walked) = (txg, 0);
    }
    let Some(found) = gathering.hold.during(|| freeing::trees(mos)) else { return Ok(()) };
    let Some((object, phys)) = found? else {
        trees.over = true;
        return Ok(());
    };
    gathering.walked = *walked;
    while !gathering.is_enough() {
        gathering.seen += 1;
        if trees.next < phys.begin.get() {
            (trees.next, trees.place) = (phys.begin.get(), None);
        }
        if trees.next >= phys.end.get() {
            trees.over = true;
            break;
        }
        let read = || freeing::entry(&object, trees.next);
        let Some(entry) = gathering.hold.during(read) else { break };
        let entry = entry?;
        let since = entry.birth_txg.get().max(scan.min_txg);
        let resume = trees.place.or_else(|| entry.resumes_at());
        let held = (gathering.store, gathering.hold);
        let part = tree::readable(held, &entry.bp, since, resume.as_ref(), PORTION);
        let mut too_many = false;
        for bp in &part.blocks {
            too_many |= !gathering.pass(bp);
            if bp.physical_birth() <= scan.max_txg {
                gathering.visit(Bookmark { objset: NONE, ..Bookmark::default() }, bp);
            }
        }
        trees.place = part.resume.filter(|_| !too_many);
        if trees.place.is_none() {
            (trees.next, gathering.walked) = (trees.next + 1, 0);
        }
    }
    *walked = gathering.walked;
    Ok(())
}
