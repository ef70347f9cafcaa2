//! Lost blocks are lost for all who share them.
//!
//! The walk sees a block in the oldest data set that has it, and would name the file in a snapshot
//! alone. Here the newer snapshots, the head and the clones that still have the very same block
//! are found, so that the file one works with is named too.

use crate::block::Blocks;
use crate::datasets::Datasets;
use crate::judge::read_objset;
use crate::object::{self, Result};
use crate::report::FILES_MAX;
use crate::walk::{LostBlock, MOS, Walk};
use format::dnode::DNODES_PER_BLOCK;
use format::{DnodePhys, ObjsetPhys};
use std::collections::{BTreeMap, BTreeSet};

/// Pairs of lost block and data set that are looked at.
const LOOKS_MAX: usize = 1 << 20;

/// Adds the damage of lost blocks to the data sets that share them.
pub(crate) fn spread(walk: &mut Walk<'_>, datasets: &Datasets) {
    let mut by_dataset: BTreeMap<u32, Vec<LostBlock>> = BTreeMap::new();
    for lost in std::mem::take(&mut walk.lost) {
        if lost.dataset != MOS {
            by_dataset.entry(lost.dataset).or_default().push(lost);
        }
    }
    if by_dataset.is_empty() {
        return;
    }
    let mut numbers = BTreeMap::new();
    let mut older = BTreeMap::new();
    let mut roots = BTreeMap::new();
    for (number, dataset) in (1u32..).zip(&datasets.list) {
        numbers.insert(dataset.object, number);
        if let Some(prev) = dataset.prev.and_then(|place| datasets.list.get(place)) {
            older.insert(dataset.object, prev.object);
        }
        roots.insert(number, dataset.phys.bp);
    }
    let mut looks = 0;
    for (number, dataset) in (1u32..).zip(&datasets.list) {
        let Some(root) = roots.get(&number) else { continue };
        let mut objset = None;
        let mut at = dataset.object;
        let mut seen = BTreeSet::new();
        while let Some(next) = older.get(&at).copied().filter(|next| seen.insert(*next)) {
            at = next;
            let lost = numbers.get(&at).and_then(|number| by_dataset.get(number));
            for lost in lost.into_iter().flatten() {
                looks += 1;
                if looks > LOOKS_MAX {
                    return;
                }
                if objset.is_none() {
                    objset = read_objset(&mut walk.blocks, root).ok();
                }
                let Some(objset) = &objset else { break };
                if has(&mut walk.blocks, objset, lost).unwrap_or(false) {
                    add(walk, number, lost);
                }
            }
        }
    }
}

/// Does the object set still have the block?
fn has(blocks: &mut Blocks<'_>, objset: &ObjsetPhys, lost: &LostBlock) -> Result<bool> {
    let found;
    let dnode: &DnodePhys = if lost.object == 0 {
        &objset.meta
    } else {
        match object::dnode(blocks, objset, lost.object)? {
            Some(dnode) => {
                found = dnode;
                &found
            }
            None => return Ok(false),
        }
    };
    if lost.is_spill() {
        return Ok(dnode.spill().is_some_and(|spill| spill.same_block(&lost.bp)));
    }
    let bp = object::pointer_at(blocks, dnode, lost.level, lost.block)?;
    Ok(bp.same_block(&lost.bp))
}

fn add(walk: &mut Walk<'_>, dataset: u32, lost: &LostBlock) {
    let dnodes = lost.object == 0;
    let first = if dnodes && lost.level == 0 {
        lost.block.saturating_mul(DNODES_PER_BLOCK)
    } else {
        lost.object
    };
    let key = (dataset, first);
    if walk.damage.len() >= FILES_MAX && !walk.damage.contains_key(&key) {
        walk.damage_unlisted += 1;
        return;
    }
    let damage = walk.damage.entry(key).or_default();
    damage.lost_blocks += 1;
    damage.lost_bytes = damage.lost_bytes.saturating_add(if dnodes { 0 } else { lost.bytes });
    damage.dnodes |= dnodes;
}
