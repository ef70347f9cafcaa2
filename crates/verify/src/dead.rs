//! Deadlists: are they what they say, and what their data sets have lost?
//!
//! FORMAT: section 8.4. Each sublist is recounted against its header, the list against its
//! sublists, every block must be born where its sublist says, and the keys must be those of the
//! snapshots. Whether the blocks are the right ones is told by the sorter, which has what the
//! comparison with the previous snapshot has found beside what the lists have.

use crate::datasets::{Dataset, Datasets};
use crate::diff::Side;
use crate::mos::Mos;
use crate::object::{self, Result, Unread};
use crate::pending::{self, Sums};
use crate::report::FindingKind;
use crate::sorter::Sorter;
use crate::walk::{Walk, named};
use format::ObjectType;
use format::deadlist::{DeadlistPhys, parse_key_name};
use format::mos_directory as key;
use std::collections::{BTreeMap, BTreeSet};

/// Keys of one deadlist that are believed.
const KEYS_MAX: usize = object::ENTRIES_MAX;

/// What the walk through all deadlists finds, besides what it reports.
#[derive(Default)]
pub(crate) struct Dead {
    /// Keys that lead to the shared empty bpobj.
    pub empty: u64,
}

/// Examines the deadlist of a data set.
pub(crate) fn list(
    walk: &mut Walk<'_>,
    mos: &Mos,
    datasets: &Datasets,
    (number, dataset): (u32, &Dataset),
    marks: &BTreeSet<u64>,
    dead: &mut Dead,
) -> Result<()> {
    let name = &dataset.name;
    let object = dataset.phys.deadlist_object.get();
    if object == 0 {
        return Ok(());
    }
    let dnode = mos.expect(&mut walk.blocks, object)?;
    if dnode.kind() == ObjectType::BPOBJ {
        // The old form: one list for all.
        sublist(walk, mos, object, name, number, (0, u64::MAX))?;
        return Ok(());
    }
    if dnode.kind() != ObjectType::DEADLIST {
        return Err(Unread(format!("object {object} is no deadlist")));
    }
    let phys = *DeadlistPhys::parse(dnode.bonus())?;
    let said = [phys.used_bytes.get(), phys.compressed_bytes.get(), phys.uncompressed_bytes.get()];
    let mut lists = BTreeMap::new();
    let mut odd = None;
    object::zap_each(&mut walk.blocks, &dnode, |entry| {
        match (parse_key_name(&entry.name), entry.value.as_u64()) {
            (Ok(key), Some(list)) if lists.len() < KEYS_MAX => drop(lists.insert(key, list)),
            _ => odd = Some(String::from_utf8_lossy(&entry.name).into_owned()),
        }
    })?;
    if let Some(key) = odd {
        return Err(Unread(format!("its key \"{key}\"")));
    }
    let empty = mos.find(key::EMPTY_BPOBJ);
    let mut total: Sums = [0; 3];
    let keys: Vec<u64> = lists.keys().copied().collect();
    for (index, (key, list)) in lists.iter().enumerate() {
        if empty == Some(*list) {
            // There are many that lead to it: it is looked at once.
            dead.empty += 1;
            if dead.empty > 1 {
                continue;
            }
        }
        let end = keys.get(index + 1).copied().unwrap_or(u64::MAX);
        let sums = sublist(walk, mos, *list, name, number, (*key, end))?;
        for (sum, part) in total.iter_mut().zip(sums) {
            *sum = sum.wrapping_add(part);
        }
    }
    pending::compare(walk, FindingKind::Deadlist, || format!("{name}: its deadlist"), said, total);
    self::keys(walk, datasets, dataset, &keys, marks);
    Ok(())
}

/// One sublist: blocks born in `(after, until]`. Gives what its header says.
fn sublist(
    walk: &mut Walk<'_>,
    mos: &Mos,
    list: u64,
    name: &str,
    number: u32,
    (after, until): (u64, u64),
) -> Result<Sums> {
    let mut strangers = 0u64;
    let mut stranger = 0;
    let what = || format!("{name}: its deadlist");
    let header = pending::each_entry(walk, mos, list, FindingKind::Deadlist, &what, |walk, bp| {
        let birth = bp.birth();
        if birth <= after || birth > until {
            strangers += 1;
            stranger = birth;
        }
        walk.note_dead(number, bp, Side::Dead);
    })?;
    if strangers > 0 {
        walk.findings.add(FindingKind::Deadlist, || {
            format!(
                "{name}: its deadlist: {strangers} blocks in the wrong sublist: born in txg \
                 {stranger}, in that of key {after:#x}"
            )
        });
    }
    Ok(header)
}

/// Are the keys those of the snapshots before?
fn keys(
    walk: &mut Walk<'_>,
    datasets: &Datasets,
    dataset: &Dataset,
    keys: &[u64],
    marks: &BTreeSet<u64>,
) {
    // For each snapshot the txg of the one before it, as both of them say it.
    let mut due: Vec<[u64; 2]> = Vec::new();
    let mut at = dataset.prev;
    let mut steps = 0;
    while let Some(snapshot) = at.and_then(|place| datasets.list.get(place)) {
        let before = snapshot.prev.and_then(|place| datasets.list.get(place));
        let made = before.map_or(0, |before| before.phys.creation_txg.get());
        due.push([made, snapshot.phys.prev_snap_txg.get()]);
        at = snapshot.prev;
        steps += 1;
        if steps > datasets.list.len() {
            break;
        }
    }
    let name = &dataset.name;
    let has = |key: &u64| keys.binary_search(key).is_ok();
    if let Some([lack, _]) = due.iter().find(|either| !either.iter().any(has)) {
        walk.findings.add(FindingKind::Deadlist, || {
            format!("{name}: its deadlist lacks key {lack:#x}, of a snapshot before it")
        });
    }
    // Only heads lose the keys of snapshots that are destroyed; bookmarks keep theirs.
    let known: BTreeSet<&u64> = due.iter().flatten().collect();
    let odd = keys.iter().find(|key| !known.contains(key) && !marks.contains(key));
    if let Some(odd) = odd.filter(|_| !dataset.snapshot) {
        walk.findings.add(FindingKind::Deadlist, || {
            format!("{name}: its deadlist has key {odd:#x}, and no snapshot has that")
        });
    }
}

/// Holds what the deadlists have against what is gone.
pub(crate) fn compare(walk: &mut Walk<'_>) {
    let records = std::mem::replace(&mut walk.dead, Sorter::new(0, std::path::Path::new("")));
    if walk.dead_incomplete {
        return;
    }
    let sorted = match records.finish() {
        Ok(sorted) => sorted,
        Err(error) => {
            walk.findings
                .add(FindingKind::Unjudged, || format!("deadlists, scratch file: {error}"));
            return;
        }
    };
    let failed = sorted.failed();
    let mut sorted = sorted.peekable();
    if walk.blocks.has_mappings() {
        // Pointers to removed vdevs change on the way from one tree to the next: no damage, but not judged.
        let told = "vdevs were removed: which blocks the deadlists should have is not examined";
        walk.findings.notes.extend(sorted.peek().map(|_| told.to_string()));
        return;
    }
    while let Some(first) = sorted.next() {
        let key = |record: &[u64; 4]| [record[0], record[1], record[2], record[3] >> 2];
        let mut counts = [0i64; 3];
        let mut count = |record: &[u64; 4]| {
            if let Some(count) = counts.get_mut((record[3] & 3) as usize) {
                *count += 1;
            }
        };
        count(&first);
        while let Some(record) = sorted.next_if(|record| key(record) == key(&first)) {
            count(&record);
        }
        let [old, new, dead] = counts;
        let due = old - new;
        if due == dead {
            continue;
        }
        let name = named(&walk.names, (first[0] & u64::from(u32::MAX)) as u32);
        let birth = first[3] >> 2;
        let (kind, what) = if dead < due {
            (FindingKind::Deadlist, "its deadlist lacks a block")
        } else if dead > 0 {
            (FindingKind::Deadlist, "its deadlist has a block that is in use or another's")
        } else {
            (FindingKind::Pointer, "it has a block that its previous snapshot should have")
        };
        let (vdev, offset) = (first[0] >> 33, first[1]);
        let text =
            format!("{name}: {what}, born in txg {birth}, at vdev {vdev} offset {offset:#x}");
        walk.findings.add(kind, || text);
    }
    if let Some(error) = failed.get() {
        walk.findings.add(FindingKind::Unjudged, || format!("deadlists, scratch file: {error}"));
    }
}
