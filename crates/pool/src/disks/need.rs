//! Which leaves a pool cannot do without.

use vdev::{Leaf, Tree};

/// Is there anything that could not be read without these leaves of one top-level vdev? What each of the others lacks
/// counts, txg by txg: a leaf may have what another one missed.
pub(super) fn are_needed(tree: &Tree, guids: &[u64]) -> bool {
    let Some(place) = guids.iter().find_map(|guid| tree.leaf_by_guid(*guid)) else { return false };
    let Ok(top) = tree.top(tree.leaves()[place].top) else { return false };
    let Some(layout) = &top.layout else { return false };
    let has = |leaf: usize, txg: u64| {
        let leaf: &Leaf = &tree.leaves()[leaf];
        !guids.contains(&leaf.guid()) && leaf.state.is_online() && !leaf.lacks.contains(txg)
    };
    // What leaves lack changes where a range of a DTL begins or ends, nowhere else.
    let leaves = top.slots().iter().flatten().map(|leaf| &tree.leaves()[*leaf]);
    let mut edges: Vec<u64> = leaves
        .flat_map(|leaf| leaf.lacks.txgs().ranges().to_vec())
        .flat_map(|(start, end)| [start, end])
        .collect();
    edges.push(0);
    edges.into_iter().any(|txg| {
        let without = |slot: &&Vec<usize>| !slot.iter().any(|leaf| has(*leaf, txg));
        top.slots().iter().filter(without).count() > layout.parity()
    })
}
