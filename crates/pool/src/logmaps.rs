//! Reading log space maps: changes of metaslabs that are logged but not flushed.
//!
//! On open they are replayed in memory: what each metaslab's own map lacks (FORMAT: section 9.4). How they are
//! written is in `logging`.

use dmu::SpaceMap;
use format::space_map::Geometry;

use crate::error::{PoolError, Result};
use crate::mos::{Mos, key};
use crate::spacemaps::{Slabs, Unflushed};

/// Changes that are held in memory at most: the kernel flushes long before.
const CHANGES_MAX: usize = 1 << 24;
/// Bytes of all logs that are read at most: so many changes several times over, since metaslabs have some of them.
const BYTES_MAX: u64 = 2 << 30;

/// The logs, oldest first: (txg, object).
pub(crate) fn logs(mos: &Mos) -> Result<Vec<(u64, u64)>> {
    let Some(zap) = mos.find(key::LOG_SPACEMAP_ZAP)? else { return Ok(Vec::new()) };
    let mut out = Vec::new();
    for entry in mos.zap(zap)?.entries()? {
        let name = std::str::from_utf8(&entry.name).ok();
        let txg = name.and_then(|n| u64::from_str_radix(n, 16).ok());
        match (txg, entry.value.as_u64()) {
            (Some(txg), Some(object)) => out.push((txg, object)),
            _ => {
                let detail = format!("object {zap}: an entry that is not a txg");
                return Err(PoolError::Damaged { what: "log space maps", detail });
            }
        }
    }
    out.sort_unstable();
    Ok(out)
}

/// Per metaslab of a top-level vdev the txg from which on its changes are in the logs.
pub(crate) fn unflushed_txgs(
    mos: &Mos,
    top_zap: u64,
    count: u64,
) -> Result<(Option<u64>, Vec<u64>)> {
    let object = match top_zap {
        0 => None,
        zap => mos.zap(zap)?.get_u64(key::TOP_UNFLUSHED_TXGS)?,
    };
    let Some(number) = object else { return Ok((None, vec![0; count as usize])) };
    let mut bytes = vec![0; count as usize * 8];
    mos.objset.object(number)?.read(0, &mut bytes)?;
    let words = bytes.chunks_exact(8).filter_map(|b| b.first_chunk::<8>());
    Ok((Some(number), words.map(|b| u64::from_le_bytes(*b)).collect()))
}

/// Replays the logs: what each metaslab's own map lacks. `tops`: slabs and top-level ZAP of each.
pub(crate) fn replay(mos: &Mos, tops: &[(Slabs, u64)]) -> Result<Unflushed> {
    let mut out = Unflushed::new();
    let logs = logs(mos)?;
    if logs.is_empty() {
        return Ok(out);
    }
    let mut since = std::collections::BTreeMap::new();
    for (slabs, zap) in tops {
        let (_, txgs) = unflushed_txgs(mos, *zap, slabs.ms_count)?;
        since.insert(slabs.top, (slabs.ms_shift, txgs));
    }
    let (mut count, mut left) = (0, BYTES_MAX);
    for (txg, object) in logs {
        let log = SpaceMap::open(&mos.objset, object)?;
        log.replay(Geometry::LOG, left, |_, run| {
            let top = run.vdev.unwrap_or(0);
            if let Some((shift, txgs)) = since.get(&top) {
                let index = run.offset >> shift;
                let from = txgs.get(index as usize).copied().unwrap_or(0);
                if from != 0 && txg >= from {
                    count += 1;
                    if count > CHANGES_MAX {
                        let what = "more changes in the log space maps than a kernel leaves";
                        return Err(dmu::DmuError::Limit { object, what });
                    }
                    out.entry((top, index)).or_default().push((txg, run));
                }
            }
            Ok(())
        })?;
        left = left.saturating_sub(log.phys()?.0.length.get());
    }
    Ok(out)
}
