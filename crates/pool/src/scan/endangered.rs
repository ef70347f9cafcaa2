//! What comes first of all that leaves lack: the blocks that are nearest to being lost.
//!
//! Place: in front of a resilver. The one idea: where what leaves lack is not equally far from being lost, the resilver
//! goes through the pool for the nearest alone, and leaves lack those txgs no more when it has; and so on, until all
//! is equally far. That is known in memory alone: on disk the resilver stands at its beginning, so whoever goes on with
//! it there leaves nothing out.

use std::collections::BTreeMap;

use format::dtl::Dtl;
use format::scan::{Bookmark, Scan, ScanFunction};
use rt::sync::Arc;
use vdev::Tree;

use super::position::Position;

/// Passes for what comes first, at most: one for each number of leaves that can be lost.
const PASSES_MAX: u32 = 4;

/// The txgs of top-level vdevs whose blocks are nearest to being lost.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Endangered(BTreeMap<u32, Dtl>);

impl Endangered {
    /// Of what leaves lack that are there, in the range of a scan; `None` if all of it is equally far from being lost.
    fn of(tree: &Tree, scan: &Scan) -> Option<Endangered> {
        let mut spans: Vec<(i64, u32, (u64, u64))> = Vec::new();
        for top in tree.tops() {
            let leaves = || top.slots().iter().flatten().map(|leaf| &tree.leaves()[*leaf]);
            let mut cuts: Vec<u64> = leaves()
                .flat_map(|leaf| leaf.lacks.txgs().ranges().to_vec())
                .flat_map(|(start, end)| [start, end])
                .map(|txg| txg.clamp(scan.min_txg + 1, scan.max_txg + 1))
                .collect();
            cuts.sort_unstable();
            cuts.dedup();
            for (start, end) in cuts.windows(2).map(|pair| (pair[0], pair[1])) {
                // What is lost cannot be given to anybody.
                let margin = tree.margin(top.id(), start);
                if margin >= 0 && tree.is_behind(top.id(), start) {
                    spans.push((margin, top.id(), (start, end)));
                }
            }
        }
        let least = spans.iter().map(|span| span.0).min()?;
        let mut out = Endangered::default();
        let (first, later): (Vec<_>, Vec<_>) = spans.into_iter().partition(|span| span.0 == least);
        for (_, top, (start, end)) in first {
            out.0.entry(top).or_default().add(start, end);
        }
        (!later.is_empty()).then_some(out)
    }

    /// Is a block among them that was born in txg `birth`?
    pub(super) fn contains(&self, top: u32, birth: u64) -> bool {
        self.0.get(&top).is_some_and(|txgs| txgs.contains(birth))
    }

    /// The range of a scan that finds them all.
    pub(super) fn range(&self) -> (u64, u64) {
        let ranges = || self.0.values().flat_map(|txgs| txgs.ranges());
        let first = ranges().map(|range| range.0).min().unwrap_or(1);
        let end = ranges().map(|range| range.1).max().unwrap_or(1);
        (first.saturating_sub(1), end.saturating_sub(1))
    }

    /// Leaves of `tree` lack them no more; the places of those that have changed.
    pub(super) fn given(&self, tree: &Tree, scan: &Scan) -> Vec<usize> {
        let mut out = Vec::new();
        for top in tree.tops() {
            let Some(given) = self.0.get(&top.id()) else { continue };
            for place in top.slots().iter().flatten().copied() {
                let leaf = &tree.leaves()[place];
                let txgs = leaf.lacks.txgs();
                // One that lacks what came after the range was away for a part of it, or did not take it.
                let whole = txgs.ranges().last().is_some_and(|last| last.1 <= scan.max_txg);
                if leaf.state.is_online() && whole {
                    given.ranges().iter().for_each(|(start, end)| leaf.lacks.remove(*start, *end));
                    out.push(place);
                }
            }
        }
        out
    }
}

/// What a resilver does first.
#[derive(Clone, Debug)]
pub(super) enum First {
    /// That is still to be found out, after so many passes.
    Unknown(u32),
    /// A pass for these, which is there, after so many others.
    Pass(Arc<Endangered>, Position, u32),
    /// Nothing: all is equally near to being lost, or it does not matter.
    Nothing,
}

impl First {
    /// Of a scan that begins, or is gone on with.
    pub(super) fn of(scan: &Scan) -> First {
        let begins = scan.bookmark == Bookmark::default();
        match scan.function {
            ScanFunction::Resilver if begins => First::Unknown(0),
            _ => First::Nothing,
        }
    }

    /// Finds out what it is.
    pub(super) fn find(&mut self, tree: &Tree, scan: &Scan) {
        let First::Unknown(passes) = *self else { return };
        let found = if passes < PASSES_MAX { Endangered::of(tree, scan) } else { None };
        *self = match found {
            Some(endangered) => {
                let (min_txg, max_txg) = endangered.range();
                First::Pass(Arc::new(endangered), Position::start(min_txg, max_txg), passes + 1)
            }
            None => First::Nothing,
        };
    }
}
