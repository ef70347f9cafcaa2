//! Recounting what the DSL says about space.
//!
//! The one idea: what a data set refers to is what its previous snapshot refers to, less what the
//! comparison of both shows to be gone, plus what was born since, which the walk has just counted.
//! From there every number of the data sets and their directories follows, and none is taken from
//! the pool. FORMAT: sections 8.3, 8.6, 8.10.

use crate::datasets::{Dataset, Datasets, Dir};
use crate::diff::{Diff, Gone};
use crate::mos::Mos;
use crate::object::{self, Result};
use crate::report::FindingKind;
use crate::walk::{Charge, Walk};
use format::dsl_dir::{FREE_DIR_NAME, LEAK_DIR_NAME, MOS_DIR_NAME, Used};

/// Blocks that two trees may share at least, however small the pool.
const DIFF_MIN: u64 = 1 << 16;

/// What was counted of one data set.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Counted {
    /// What it refers to.
    pub refers: Charge,
    /// What was born in it.
    pub born: Charge,
    /// What of its previous snapshot it has no more.
    pub gone: Gone,
    /// Is all of this known?
    pub known: bool,
}

/// What was counted of all data sets, by their places.
pub(crate) type Counts = Vec<Counted>;

/// Recounts one data set, just after its walk.
pub(crate) fn dataset(
    walk: &mut Walk<'_>,
    datasets: &Datasets,
    (number, place): (u32, usize),
    counts: &mut Counts,
) -> Result<()> {
    let Some(dataset) = datasets.list.get(place) else { return Ok(()) };
    let born = walk.born;
    // What was left out below lost blocks cannot be counted.
    if walk.incomplete {
        return Ok(());
    }
    let prev = dataset.prev.and_then(|place| datasets.list.get(place));
    let older = match dataset.prev {
        None => Counted { known: true, ..Counted::default() },
        Some(place) => counts.get(place).copied().unwrap_or_default(),
    };
    if !older.known {
        return Ok(());
    }
    let mut gone = Gone::default();
    if let Some(prev) = prev {
        let origin = origin(datasets, datasets.dirs.get(dataset.dir));
        let mut diff = Diff {
            dataset: number,
            shared_until: prev.phys.bp.birth(),
            own_since: prev.shared_until(datasets),
            origin_until: origin.map_or(0, |origin| origin.phys.bp.birth()),
            gone,
            hole_births: walk.hole_births,
            left: walk.blocks.progress.blocks.saturating_mul(4).saturating_add(DIFF_MIN),
            walk: &mut *walk,
        };
        diff.roots(&prev.phys.bp, &dataset.phys.bp)?;
        gone = diff.gone;
    }
    let mut refers = older.refers;
    refers.remove(gone.all);
    refers.add(born);
    if let Some(counted) = counts.get_mut(place) {
        *counted = Counted { refers, born, gone, known: true };
    }
    referred(walk, dataset, refers, born);
    Ok(())
}

/// The snapshot that a directory is a clone of.
fn origin<'d>(datasets: &'d Datasets, dir: Option<&Dir>) -> Option<&'d Dataset> {
    let first = datasets.list.get(dir?.datasets.start)?;
    datasets.list.get(first.prev?)
}

/// Compares what a data set says of itself.
fn referred(walk: &mut Walk<'_>, dataset: &Dataset, refers: Charge, born: Charge) {
    let (name, phys) = (&dataset.name, &dataset.phys);
    let mut expect = |what: &str, said: u64, counted: u64| {
        if said != counted {
            walk.findings.add(FindingKind::Account, || {
                format!("{name}: {what} {said} bytes, counted {counted}")
            });
        }
    };
    expect("refers to", phys.referenced_bytes.get(), refers.used);
    expect("compressed", phys.compressed_bytes.get(), refers.compressed);
    expect("uncompressed", phys.uncompressed_bytes.get(), refers.uncompressed);
    if !dataset.snapshot {
        expect("unique", phys.unique_bytes.get(), born.used);
    }
}

/// Recounts the directories: each one's parts, and what it has from its children.
pub(crate) fn dirs(
    walk: &mut Walk<'_>,
    mos: &Mos,
    datasets: &Datasets,
    counts: &Counts,
    (of_mos, freeing): (Charge, Option<u64>),
) {
    for dir in &datasets.dirs {
        if let Err(why) = directory(walk, mos, datasets, counts, dir, (of_mos, freeing)) {
            let name = &dir.name;
            walk.findings.add(FindingKind::Structure, || format!("{name}: its directory: {why}"));
        }
    }
    unique(walk, datasets, counts);
}

/// What only a snapshot has: what the next one lacks and was born in it.
fn unique(walk: &mut Walk<'_>, datasets: &Datasets, counts: &Counts) {
    for snapshot in datasets.list.iter().filter(|dataset| dataset.snapshot) {
        let next = snapshot.next.and_then(|next| counts.get(next));
        let Some(next) = next.filter(|next| next.known) else { continue };
        let (said, counted) = (snapshot.phys.unique_bytes.get(), next.gone.own.used);
        if said != counted {
            walk.findings.add(FindingKind::Account, || {
                format!("{}: unique {said} bytes, counted {counted}", snapshot.name)
            });
        }
    }
}

fn directory(
    walk: &mut Walk<'_>,
    mos: &Mos,
    datasets: &Datasets,
    counts: &Counts,
    dir: &Dir,
    (of_mos, freeing): (Charge, Option<u64>),
) -> Result<()> {
    let phys = &dir.phys;
    let mut expect = |what: &str, said: u64, counted: u64| {
        if counted != said {
            walk.findings.add(FindingKind::Account, || {
                format!("{}: {what} {said} bytes, counted {counted}", dir.name)
            });
        }
    };
    let parts = Used::ALL.iter().fold(0u64, |sum, part| sum.wrapping_add(phys.used(*part)));
    expect("used", phys.used_bytes.get(), parts);
    let (mut child, mut reserved, mut below) = (0u64, 0u64, Charge::default());
    for place in &dir.children {
        let Some(dir) = datasets.dirs.get(*place) else { continue };
        let (used, wanted) = (dir.phys.used_bytes.get(), dir.phys.reserved_bytes.get());
        child = child.wrapping_add(used);
        reserved = reserved.wrapping_add(wanted.saturating_sub(used));
        below.compressed = below.compressed.wrapping_add(dir.phys.compressed_bytes.get());
        below.uncompressed = below.uncompressed.wrapping_add(dir.phys.uncompressed_bytes.get());
    }
    expect("used by children", phys.used(Used::Child), child);
    expect("reserved for children", phys.used(Used::ChildReserved), reserved);
    let own = dir.name.rsplit('/').next().unwrap_or_default();
    let held = match own {
        MOS_DIR_NAME => Some(of_mos),
        FREE_DIR_NAME => {
            if let Some(freeing) = freeing {
                expect("being freed", phys.used_bytes.get(), freeing);
            }
            None
        }
        LEAK_DIR_NAME => None,
        _ => held(datasets, counts, dir),
    };
    let Some(held) = held else { return Ok(()) };
    let said = phys.used(Used::Head).wrapping_add(phys.used(Used::Snap));
    expect("head and snapshots use", said, held.used);
    expect(
        "compressed",
        phys.compressed_bytes.get(),
        held.compressed.wrapping_add(below.compressed),
    );
    let whole = held.uncompressed.wrapping_add(below.uncompressed);
    expect("uncompressed", phys.uncompressed_bytes.get(), whole);
    let Some(head) = datasets.head(dir) else { return Ok(()) };
    let snaps = dir.datasets.clone().filter_map(|place| counts.get(place));
    let snap = snaps.fold(0u64, |sum, one| sum.wrapping_add(one.gone.since_origin.used));
    expect("snapshots use", phys.used(Used::Snap), snap);
    let unique = datasets.place(head.object).and_then(|place| counts.get(place));
    let unique = unique.map_or(0, |counted| counted.born.used);
    let wanted = refreservation(walk, mos, phys.props_zap_object.get())?;
    let said = phys.used(Used::RefReserved);
    let counted = wanted.saturating_sub(unique);
    if said != counted {
        walk.findings.add(FindingKind::Account, || {
            format!("{}: reserved for itself {said} bytes, counted {counted}", dir.name)
        });
    }
    Ok(())
}

/// What head and snapshots of a directory hold: what the head refers to and all that was gone on
/// the way, less what is the origin's.
fn held(datasets: &Datasets, counts: &Counts, dir: &Dir) -> Option<Charge> {
    let places = dir.datasets.clone();
    let all = counts.get(places.clone())?;
    // While a data set is destroyed its space moves to another account.
    let settled = !datasets.head(dir)?.phys.is_inconsistent();
    let mut held = all.last()?.refers;
    for counted in all {
        held.add(counted.gone.all);
    }
    let first = datasets.list.get(places.start)?;
    if let Some(origin) = first.prev.and_then(|place| counts.get(place)) {
        held.remove(origin.refers);
    }
    (settled && all.iter().all(|counted| counted.known)).then_some(held)
}

/// The property that keeps space for the head.
fn refreservation(walk: &mut Walk<'_>, mos: &Mos, props: u64) -> Result<u64> {
    if props == 0 {
        return Ok(0);
    }
    let zap = mos.expect(&mut walk.blocks, props)?;
    for (key, own) in [
        ("refreservation", true),
        ("refreservation$inherit", false),
        ("refreservation$recvd", true),
    ] {
        if let Some(value) = object::zap_get(&mut walk.blocks, &zap, key.as_bytes())? {
            return Ok(if own { value.as_u64().unwrap_or(0) } else { 0 });
        }
    }
    Ok(0)
}
