//! `rescue scan`: what pools are there, and which of their txgs can be opened.

use std::path::PathBuf;

use pool::devices::FoundPool;
use pool::{Devices, OpenOptions, Pool};
use rt::sync::Arc;

use super::Here;
use crate::rescue::{Remains, TxgLeft};
use crate::{Result, find, host};

/// Looks at all pools in `places`, destroyed ones too.
pub(super) fn scan(here: &Here, places: &[PathBuf]) -> Result<Vec<Remains>> {
    let host_id = u64::from(host::hostid(&here.state)?);
    let scan = find::look(places);
    let remains = scan.pools.iter().map(|found| {
        let told = find::describe(found, places, host_id);
        Remains { name: told.name, guid: told.guid, tree: told.tree, txgs: txgs(here, found) }
    });
    Ok(remains.collect())
}

/// The txgs of a pool, newest first; uberblocks that leaves tell differently are one txg each.
fn txgs(here: &Here, found: &FoundPool) -> Vec<TxgLeft> {
    let mut left: Vec<TxgLeft> = Vec::new();
    for uberblock in &found.uberblocks {
        let (txg, time) = (uberblock.txg.get(), uberblock.timestamp.get());
        let options = OpenOptions { memory: Some(here.memory.clone()), ..OpenOptions::default() };
        let opened =
            found.open_tree_in(&here.memory).map_err(pool::PoolError::from).and_then(|tree| {
                Pool::open(
                    Devices::ReadOnly(Arc::new(tree)),
                    std::slice::from_ref(uberblock),
                    &options,
                )
            });
        left.push(TxgLeft { txg, time, problem: opened.err().map(|error| error.to_string()) });
    }
    left.dedup_by(|b, a| a.txg == b.txg && (a.problem.is_none() || b.problem.is_some()));
    left
}
