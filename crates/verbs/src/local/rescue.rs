//! `rescue scan`: what pools are there, and which of their txgs can be opened.

use std::path::{Path, PathBuf};

use pool::devices::FoundPool;

use super::{Here, roots};
use crate::rescue::{Remains, TxgLeft};
use crate::{Result, find, host};

/// Looks at all pools in `places`, destroyed ones too; if roots are to be found, at every sector of their disks.
pub(super) fn scan(
    here: &Here,
    places: &[PathBuf],
    file: Option<&Path>,
    progress: &mut dyn FnMut(u64, u64),
) -> Result<Vec<Remains>> {
    let host_id = u64::from(host::hostid(&here.state)?);
    let mut scan = find::look(places);
    if let Some(file) = file {
        roots::search(&scan.pools, file, progress)?;
        for found in &mut scan.pools {
            found.uberblocks.extend(roots::read(found, file)?);
            found.uberblocks.sort_by_key(|uberblock| std::cmp::Reverse(uberblock.txg.get()));
        }
    }
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
        let time = Some(time).filter(|time| *time != 0);
        let problem = match find::opened(found, std::slice::from_ref(uberblock), &here.memory) {
            Ok(pool) if pool.guid() != found.guid() => {
                Some(format!("it is that of another pool, {}", pool.guid()))
            }
            opened => opened.err().map(|error| error.to_string()),
        };
        left.push(TxgLeft { txg, time, problem });
    }
    left.dedup_by(|b, a| a.txg == b.txg && (a.problem.is_none() || b.problem.is_some()));
    left
}
