//! Recounting what the DSL says about space.
//!
//! The one idea: what a data set refers to is what its previous snapshot refers to, less what its
//! deadlist says is gone, plus what was born since, which the walk has just counted. From there
//! every number of the data sets and their directories follows. FORMAT: sections 8.3, 8.6, 8.10.

use crate::mos::{Datasets, Dir, Mos};
use crate::object::{self, Result};
use crate::pending::{self, Sums};
use crate::report::FindingKind;
use crate::walk::{Charge, Walk};
use format::deadlist::DeadlistPhys;
use format::dsl_dataset::DslDatasetPhys;
use format::dsl_dir::{DslDirPhys, Used};

fn sums(charge: Charge) -> Sums {
    [charge.used, charge.compressed, charge.uncompressed]
}

fn referenced(phys: &DslDatasetPhys) -> Sums {
    [phys.referenced_bytes.get(), phys.compressed_bytes.get(), phys.uncompressed_bytes.get()]
}

/// Recounts one data set, just after its walk.
pub(crate) fn dataset(walk: &mut Walk<'_, '_>, mos: &Mos, name: &str, phys: &DslDatasetPhys) {
    let born = sums(walk.born);
    let gone = match deadlist(walk, mos, name, phys.deadlist_object.get()) {
        Ok(gone) => gone,
        Err(why) => {
            walk.findings.add(FindingKind::Structure, || format!("{name}: its deadlist: {why}"));
            return;
        }
    };
    // What was left out below lost blocks cannot be counted.
    if walk.incomplete {
        return;
    }
    let older = match phys.prev_snap_object.get() {
        0 => Some([0; 3]),
        object => mos.dataset(&mut walk.blocks, object).ok().map(|phys| referenced(&phys)),
    };
    let Some(older) = older else { return };
    let mut counted: Sums = [0; 3];
    for (index, sum) in counted.iter_mut().enumerate() {
        *sum = older[index].saturating_sub(gone[index]).saturating_add(born[index]);
    }
    pending::compare(walk, || format!("{name} refers to"), referenced(phys), counted);
    let unique = phys.unique_bytes.get();
    if !phys.is_snapshot() && unique != born[0] {
        walk.findings.add(FindingKind::Account, || {
            format!("{name}: unique {unique} bytes, counted {}", born[0])
        });
    }
}

/// Counts a deadlist and compares with its header, which is given.
fn deadlist(walk: &mut Walk<'_, '_>, mos: &Mos, name: &str, object: u64) -> Result<Sums> {
    if object == 0 {
        return Ok([0; 3]);
    }
    let dnode = mos.expect(&mut walk.blocks, object)?;
    let phys = *DeadlistPhys::parse(dnode.bonus())?;
    let said = [phys.used_bytes.get(), phys.compressed_bytes.get(), phys.uncompressed_bytes.get()];
    let mut lists = Vec::new();
    object::zap_each(&mut walk.blocks, &dnode, |entry| lists.extend(entry.value.as_u64()))?;
    let mut total: Sums = [0; 3];
    for list in lists {
        let mut counted: Sums = [0; 3];
        let header = pending::each_entry(walk, mos, list, |walk, bp| {
            pending::add(walk, &mut counted, bp);
        })?;
        pending::compare(walk, || format!("{name}: bpobj {list} of its deadlist"), header, counted);
        for (sum, part) in total.iter_mut().zip(counted) {
            *sum = sum.saturating_add(part);
        }
    }
    pending::compare(walk, || format!("{name}: its deadlist"), said, total);
    Ok(said)
}

/// Recounts the directories: each one's parts, and what it has from its children.
pub(crate) fn dirs(walk: &mut Walk<'_, '_>, mos: &Mos, datasets: &Datasets, mos_used: Charge) {
    for dir in &datasets.dirs {
        if let Err(why) = directory(walk, mos, datasets, dir, mos_used) {
            let name = &dir.name;
            walk.findings.add(FindingKind::Structure, || format!("{name}: its directory: {why}"));
        }
    }
}

fn directory(
    walk: &mut Walk<'_, '_>,
    mos: &Mos,
    datasets: &Datasets,
    dir: &Dir,
    mos_used: Charge,
) -> Result<()> {
    let (_, phys) = mos.dir(&mut walk.blocks, dir.object)?;
    let mut expect = |what: &str, said: u64, counted: Option<u64>| {
        if counted != Some(said) {
            walk.findings.add(FindingKind::Account, || {
                format!("{}: {what} {said} bytes, counted {}", dir.name, counted.unwrap_or(0))
            });
        }
    };
    expect("used", phys.used_bytes.get(), phys.used_sum());
    let is_mos = dir.name.ends_with("/$MOS");
    if is_mos {
        expect("used by the MOS", phys.used(Used::Head), Some(mos_used.used));
    }
    let (mut child, mut reserved) = (0u64, 0u64);
    for place in &dir.children {
        let Some(dir) = datasets.dirs.get(*place) else { continue };
        let (_, phys): (_, DslDirPhys) = mos.dir(&mut walk.blocks, dir.object)?;
        let (used, wanted) = (phys.used_bytes.get(), phys.reserved_bytes.get());
        child = child.saturating_add(used);
        reserved = reserved.saturating_add(wanted.saturating_sub(used));
    }
    let mut expect = |what: &str, said: u64, counted: u64| {
        if counted != said {
            walk.findings.add(FindingKind::Account, || {
                format!("{}: {what} {said} bytes, counted {counted}", dir.name)
            });
        }
    };
    expect("used by children", phys.used(Used::Child), child);
    expect("reserved for children", phys.used(Used::ChildReserved), reserved);
    let list = datasets.list.get(dir.datasets.clone()).unwrap_or_default();
    if list.is_empty() {
        return Ok(());
    }
    // Head and snapshots: what the head refers to and all that is on their deadlists, less what
    // is the origin's.
    let mut held = 0u64;
    for dataset in list {
        let phys = mos.dataset(&mut walk.blocks, dataset.object)?;
        if !dataset.snapshot {
            held = held.saturating_add(phys.referenced_bytes.get());
        }
        if phys.deadlist_object.get() != 0 {
            let dnode = mos.expect(&mut walk.blocks, phys.deadlist_object.get())?;
            held = held.saturating_add(DeadlistPhys::parse(dnode.bonus())?.used_bytes.get());
        }
    }
    if phys.origin_object.get() != 0 {
        let origin = mos.dataset(&mut walk.blocks, phys.origin_object.get())?;
        held = held.saturating_sub(origin.referenced_bytes.get());
    }
    let said = phys.used(Used::Head).saturating_add(phys.used(Used::Snap));
    if said != held {
        walk.findings.add(FindingKind::Account, || {
            format!("{}: head and snapshots use {said} bytes, counted {held}", dir.name)
        });
    }
    Ok(())
}
