//! Removed vdevs: where their blocks are now, told to the tree when the pool is opened.
//!
//! The one idea: the mapping of one may lie on another that was removed before, so whichever can be
//! read is taken first. FORMAT: section 13.5.

use std::collections::BTreeSet;

use format::FormatError;
use format::config::PoolConfig;
use format::indirect::{MappingPhys, all_entries};
use rt::sync::Arc;
use store::Store;

use crate::error::{PoolError, Result};
use crate::mos::Mos;

/// Entries of a mapping that are held in memory at most, 24 bytes each.
const ENTRIES_MAX: u64 = 1 << 22;
/// Removed vdevs that are followed.
const REMOVED_MAX: usize = 64;

/// Reads the mappings of all removed vdevs.
pub(crate) fn map(store: &Arc<Store>, mos: &Mos, config: &PoolConfig) -> Result<()> {
    let removed = |top: &format::config::VdevConfig| {
        Some((top.id? as u32, top.indirect.filter(|indirect| indirect.object != 0)?.object))
    };
    let mut left: Vec<(u32, u64)> =
        config.vdev_tree.children.iter().filter_map(removed).take(REMOVED_MAX).collect();
    let mut objects = BTreeSet::new();
    if let Some((top, object)) = left.iter().find(|(_, object)| !objects.insert(*object)) {
        let detail = format!("object {object}, of vdev {top}, is that of another one, too");
        return Err(PoolError::Damaged { what: "mapping of a removed vdev", detail });
    }
    while !left.is_empty() {
        let (mut later, mut last) = (Vec::new(), None);
        let before = left.len();
        for (top, object) in left {
            if let Err(error) = map_one(store, mos, top, object) {
                later.push((top, object));
                last = Some(error);
            }
        }
        if let Some(error) = last.filter(|_| later.len() == before) {
            return Err(error);
        }
        left = later;
    }
    Ok(())
}

fn map_one(store: &Arc<Store>, mos: &Mos, top: u32, number: u64) -> Result<()> {
    let damaged = |error: FormatError| PoolError::Damaged {
        what: "mapping of a removed vdev",
        detail: format!("object {number}: {error}"),
    };
    let object = mos.objset.object(number)?;
    let phys = MappingPhys::parse(&object.bonus()?).map_err(damaged)?;
    let count = phys.num_entries.get();
    let there = (object.max_block()? + 1).saturating_mul(object.block_size()?.into()) / 24;
    if count > ENTRIES_MAX.min(there) {
        let field = "number of entries";
        let at = count;
        return Err(damaged(FormatError::Bounds { what: "indirect mapping", field, at }));
    }
    let read = |at, size| {
        let mut bytes = vec![0; size];
        object.read(at, &mut bytes)?;
        Ok(bytes)
    };
    let entries = all_entries(count, read, damaged)?;
    store.tree().set_mapping(top, entries);
    Ok(())
}
