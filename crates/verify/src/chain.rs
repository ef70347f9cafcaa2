//! How data sets hang together: snapshots and heads, clones and their origins, names.
//!
//! FORMAT: sections 8.1, 8.2, 8.5. Every link is kept at both of its ends; here both are compared.
//! A wrong one is found by OpenZFS when something is destroyed, by a panic.

use crate::datasets::{Dataset, Datasets, Dir};
use crate::mos::Mos;
use crate::object::{self, Unread};
use crate::report::FindingKind;
use crate::walk::Walk;
use format::dsl_dir::ORIGIN_DIR_NAME;
use format::mos_directory as key;
use format::zap::{NormFlags, Reader};
use std::collections::{BTreeMap, BTreeSet};

/// Examines all links. `txg` is that of the uberblock.
pub(crate) fn check(walk: &mut Walk<'_>, mos: &Mos, datasets: &Datasets, txg: u64) {
    // What grew from a snapshot beside what comes next: heads and first snapshots of clones.
    let mut clones: BTreeMap<usize, BTreeSet<u64>> = BTreeMap::new();
    // Heads of directories that were cloned from a snapshot of a directory.
    let mut cloned: BTreeMap<usize, BTreeSet<u64>> = BTreeMap::new();
    for dir in &datasets.dirs {
        let first = datasets.list.get(dir.datasets.start).filter(|_| !dir.datasets.is_empty());
        let Some((first, prev)) = first.and_then(|first| Some((first, first.prev?))) else {
            continue;
        };
        clones.entry(prev).or_default().insert(first.object);
        let head = dir.phys.head_dataset_object.get();
        if let Some(origin) = datasets.list.get(prev) {
            cloned.entry(origin.dir).or_default().insert(head);
        }
    }
    for (place, dataset) in datasets.list.iter().enumerate() {
        links(walk, datasets, dataset, txg);
        let grown = clones.remove(&place).unwrap_or_default();
        if let Err(why) = children(walk, mos, dataset, &grown) {
            unread(walk, &dataset.name, "its clones", &why);
        }
    }
    for (place, dir) in datasets.dirs.iter().enumerate() {
        let due = cloned.remove(&place).unwrap_or_default();
        if let Err(why) = directory(walk, mos, datasets, dir, &due) {
            unread(walk, &dir.name, "its clones", &why);
        }
    }
}

fn unread(walk: &mut Walk<'_>, name: &str, what: &str, why: &Unread) {
    walk.findings.add(FindingKind::Structure, || format!("{name}: {what}: {why}"));
}

fn expect(walk: &mut Walk<'_>, name: &str, what: &str, said: u64, due: u64) {
    if said != due {
        walk.findings
            .add(FindingKind::Snapshots, || format!("{name}: {what} {said}, expected {due}"));
    }
}

/// What one data set says of those beside it.
fn links(walk: &mut Walk<'_>, datasets: &Datasets, dataset: &Dataset, txg: u64) {
    let (name, phys) = (&dataset.name, &dataset.phys);
    let at = |place: Option<usize>| place.and_then(|place| datasets.list.get(place));
    let (prev, next) = (at(dataset.prev), at(dataset.next));
    let object = |dataset: Option<&Dataset>| dataset.map_or(0, |dataset| dataset.object);
    expect(
        walk,
        name,
        "its previous snapshot is object",
        phys.prev_snap_object.get(),
        object(prev),
    );
    let due = prev.map_or(0, |prev| prev.phys.creation_txg.get());
    expect(walk, name, "its previous snapshot is of txg", phys.prev_snap_txg.get(), due);
    expect(walk, name, "next is object", phys.next_snap_object.get(), object(next));
    let dir = datasets.dirs.get(dataset.dir).map_or(0, |dir| dir.object);
    expect(walk, name, "its directory is object", phys.dir_object.get(), dir);
    if !dataset.named {
        walk.findings.add(FindingKind::Snapshots, || format!("{name}: a snapshot without a name"));
    }
    let (birth, created) = (phys.bp.birth(), phys.creation_txg.get());
    if created > txg {
        walk.findings.add(FindingKind::Snapshots, || {
            format!("{name}: made in txg {created}, the pool's last is {txg}")
        });
    } else if dataset.snapshot && birth > created {
        walk.findings.add(FindingKind::Snapshots, || {
            format!("{name}: made in txg {created}, its root is born in {birth}")
        });
    }
    if birth > txg {
        walk.findings.add(FindingKind::Pointer, || {
            format!("{name}: its root is born in txg {birth}, the pool's last is {txg}")
        });
    }
}

/// What a data set says of what grew from it.
fn children(
    walk: &mut Walk<'_>,
    mos: &Mos,
    dataset: &Dataset,
    grown: &BTreeSet<u64>,
) -> object::Result<()> {
    let (name, phys) = (&dataset.name, &dataset.phys);
    let next = u64::from(dataset.next.is_some());
    let due = if dataset.snapshot { grown.len() as u64 + next } else { 0 };
    expect(walk, name, "num_children is", phys.num_children.get(), due);
    let list = mos.numbers(&mut walk.blocks, phys.next_clones_object.get())?;
    listed(walk, name, "next_clones", &list, grown);
    if !dataset.snapshot && phys.snapnames_zap_object.get() != 0 {
        let zap = mos.expect(&mut walk.blocks, phys.snapnames_zap_object.get())?;
        let blocks = &mut walk.blocks;
        let flags = Reader::open(|number| object::block(blocks, &zap, number))?.normflags();
        expect(walk, name, "normalization of names of snapshots is", flags, NormFlags::TOUPPER);
    }
    Ok(())
}

/// A list of objects, each under its number as a name.
fn listed(
    walk: &mut Walk<'_>,
    name: &str,
    what: &str,
    list: &BTreeMap<Vec<u8>, u64>,
    due: &BTreeSet<u64>,
) {
    let mut left = due.clone();
    for (key, object) in list {
        if !left.remove(object) {
            walk.findings.add(FindingKind::Snapshots, || {
                format!("{name}: {what} has object {object}, which is none of them")
            });
        } else if *key != format!("{object:x}").as_bytes() {
            let key = String::from_utf8_lossy(key).into_owned();
            walk.findings.add(FindingKind::Snapshots, || {
                format!("{name}: {what} has object {object} under \"{key}\"")
            });
        }
    }
    for object in left {
        walk.findings
            .add(FindingKind::Snapshots, || format!("{name}: {what} lacks object {object}"));
    }
}

/// What a directory says of its place and its clones.
fn directory(
    walk: &mut Walk<'_>,
    mos: &Mos,
    datasets: &Datasets,
    dir: &Dir,
    due: &BTreeSet<u64>,
) -> object::Result<()> {
    let (name, phys) = (&dir.name, &dir.phys);
    let parent = dir.parent.and_then(|place| datasets.dirs.get(place)).map_or(0, |dir| dir.object);
    expect(walk, name, "its parent is object", phys.parent_object.get(), parent);
    let first = datasets.list.get(dir.datasets.start).filter(|_| !dir.datasets.is_empty());
    if let Some(first) = first {
        let origin = first.prev.and_then(|place| datasets.list.get(place));
        let due = origin.map_or(0, |origin| origin.object);
        expect(walk, name, "its origin is object", phys.origin_object.get(), due);
        let own = name.ends_with(ORIGIN_DIR_NAME);
        if due == 0 && !own && mos.find(key::ROOT_DATASET) != Some(dir.object) {
            walk.findings.add(FindingKind::Snapshots, || format!("{name}: it has no origin"));
        }
    }
    // Pools of before features may lack the list.
    if phys.clones_object.get() == 0 && mos.find(key::FEATURE_DESCRIPTIONS).is_none() {
        return Ok(());
    }
    let list = mos.numbers(&mut walk.blocks, phys.clones_object.get())?;
    listed(walk, name, "dd_clones", &list, due);
    Ok(())
}
