//! Names of what was lost: the files that blocks in the error log belong to, wherever they are.
//!
//! The one idea: the log names a block where it was read. Every snapshot and clone with the same pointer in the same
//! place has lost it, too, and every name of a file is one under which somebody will look for it. A file that is mounted
//! is told by its path on the host, another by that in its file system; what is no file, or cannot be told, by its
//! numbers.

use std::collections::{BTreeMap, BTreeSet};
use std::path::PathBuf;

use format::scan::Bookmark;
use fs::Filesystem;
use pool::dsl::lookup::{self, Found};
use pool::{Pool, PoolError};
use rt::sync::Arc;

use crate::pools::Damaged;

/// Names that are told, at most.
const NAMES_MAX: usize = 10_000;
/// Pointers that are looked up to find who shares a block, at most.
const LOOKUPS_MAX: usize = 100_000;

/// How many objects have these blocks.
pub(super) fn count(lost: &BTreeSet<Bookmark>) -> u64 {
    lost.iter().map(|at| (at.objset, at.object)).collect::<BTreeSet<_>>().len() as u64
}

/// What these lost blocks have damaged, by name; `mounted` is where file systems are.
pub(super) fn named(
    pool: &Arc<Pool>,
    lost: BTreeSet<Bookmark>,
    mounted: &[(String, PathBuf)],
) -> Vec<Damaged> {
    let mut systems: BTreeMap<u64, BTreeMap<u64, Vec<Bookmark>>> = BTreeMap::new();
    for at in everywhere(pool, lost) {
        systems.entry(at.objset).or_default().entry(at.object).or_default().push(at);
    }
    let mut damaged = Vec::new();
    for (objset, objects) in &systems {
        damaged.extend(System::of(pool, *objset).damaged(pool, objects, mounted));
        if damaged.len() >= NAMES_MAX {
            damaged.truncate(NAMES_MAX);
            break;
        }
    }
    damaged
}

/// These places, and all others where the same blocks are.
fn everywhere(pool: &Pool, mut lost: BTreeSet<Bookmark>) -> BTreeSet<Bookmark> {
    // What cannot be told of a damaged pool is not told; what was found is.
    let of_datasets: Vec<Bookmark> = lost.iter().filter(|at| at.objset != 0).copied().collect();
    if of_datasets.is_empty() {
        return lost;
    }
    let Ok(datasets) = lookup::walk(pool.mos(), pool.name()) else { return lost };
    let families = families(pool, &datasets);
    let known: Vec<_> = of_datasets
        .into_iter()
        .filter_map(|at| Some((at, families.get(&at.objset)?, pool.pointer_at(at).ok()??)))
        .collect();
    let mut left = LOOKUPS_MAX;
    for dataset in &datasets {
        let family = families.get(&dataset.object);
        for (at, of, bp) in &known {
            let own = dataset.object == at.objset || Some(*of) != family;
            // A snapshot has no block that is younger.
            let young = dataset.is_snapshot() && dataset.phys.creation_txg.get() < bp.birth();
            if own || young {
                continue;
            }
            if left == 0 {
                return lost;
            }
            left -= 1;
            let there = Bookmark { objset: dataset.object, ..*at };
            if matches!(pool.pointer_at(there), Ok(Some(other)) if other.same_block(bp)) {
                lost.insert(there);
            }
        }
    }
    lost
}

/// For each data set what it has in common with those that may share its blocks: the directory that its first origin
/// is in.
fn families(pool: &Pool, datasets: &[Found]) -> BTreeMap<u64, u64> {
    let dirs: BTreeMap<u64, u64> = datasets.iter().map(|d| (d.object, d.dir_object)).collect();
    let above = |dir: u64| {
        let origin = pool.mos().dir(dir).ok()?.origin_object.get();
        dirs.get(&origin).copied().filter(|above| *above != dir)
    };
    let mut first: BTreeMap<u64, u64> = BTreeMap::new();
    for dir in dirs.values() {
        let mut at = *dir;
        // Origins that lead in a circle lead nowhere.
        for _ in 0..lookup::DEPTH_MAX {
            let Some(above) = above(at).filter(|_| !first.contains_key(&at)) else { break };
            at = above;
        }
        let at = first.get(&at).copied().unwrap_or(at);
        first.entry(*dir).or_insert(at);
    }
    dirs.iter().filter_map(|(dataset, dir)| Some((*dataset, *first.get(dir)?))).collect()
}

/// A data set that something was lost of.
struct System {
    /// Its object in the MOS; 0 is the MOS itself.
    objset: u64,
    /// Its name, if it can be told.
    name: Option<String>,
    /// Its files, if it has any.
    files: Option<Filesystem>,
}

impl System {
    fn of(pool: &Arc<Pool>, objset: u64) -> System {
        let name = (objset != 0).then(|| name_of(pool, objset).ok().flatten()).flatten();
        let files = name.as_ref().and_then(|name| Filesystem::open(pool, name).ok());
        System { objset, name, files }
    }

    /// What of these objects is damaged, by each of their names.
    fn damaged(
        &self,
        pool: &Pool,
        objects: &BTreeMap<u64, Vec<Bookmark>>,
        mounted: &[(String, PathBuf)],
    ) -> Vec<Damaged> {
        let wanted: BTreeSet<u64> = objects.keys().copied().take(NAMES_MAX).collect();
        let paths = self.files.as_ref().map(|files| files.paths_of(&wanted)).unwrap_or_default();
        let mut damaged = Vec::new();
        for (object, blocks) in objects.iter().take(NAMES_MAX) {
            let Some(paths) = paths.get(object) else {
                damaged.push(Damaged { name: self.by_number(*object), ranges: Vec::new() });
                continue;
            };
            let ranges = self.ranges(pool, *object, blocks).unwrap_or_default();
            damaged.extend(paths.iter().map(|path| {
                let name = self.by_path(path, mounted);
                Damaged { name, ranges: ranges.clone() }
            }));
        }
        damaged
    }

    fn by_number(&self, object: u64) -> String {
        match (&self.name, self.objset) {
            (Some(name), _) => format!("{name}:<{object:#x}>"),
            (None, 0) => format!("<metadata>:<{object:#x}>"),
            (None, objset) => format!("<{objset:#x}>:<{object:#x}>"),
        }
    }

    fn by_path(&self, path: &[u8], mounted: &[(String, PathBuf)]) -> String {
        let path = String::from_utf8_lossy(path);
        let name = self.name.as_deref().unwrap_or_default();
        match mounted.iter().find(|(other, _)| other == name) {
            Some((_, dir)) => format!("{}{path}", dir.display().to_string().trim_end_matches('/')),
            None => format!("{name}:{path}"),
        }
    }

    /// The bytes of a file that are in these blocks, in order: offset and length.
    fn ranges(&self, pool: &Pool, object: u64, blocks: &[Bookmark]) -> Option<Vec<(u64, u64)>> {
        let attrs = self.files.as_ref()?.attrs(object).ok()?;
        let dnode = pool.objset_at(self.objset).ok()??.object(object).ok()?.synced()?;
        let mut ranges: Vec<(u64, u64)> = Vec::new();
        let span = |at: &Bookmark| {
            let below = u32::try_from(at.level).ok()?.checked_mul(dnode.pointers_shift())?;
            let size = u64::from(dnode.block_size()).checked_shl(below).filter(|size| *size > 0)?;
            let from = at.block.checked_mul(size)?;
            Some((from, from.saturating_add(size).min(attrs.size)))
        };
        let mut spans: Vec<_> =
            blocks.iter().filter_map(span).filter(|(from, to)| from < to).collect();
        spans.sort_unstable();
        for (from, to) in spans {
            match ranges.last_mut() {
                Some((begin, len)) if *begin + *len >= from => *len = (*len).max(to - *begin),
                _ => ranges.push((from, to - from)),
            }
        }
        Some(ranges)
    }
}

/// The name of the data set or snapshot in an object of the MOS.
fn name_of(pool: &Pool, objset: u64) -> Result<Option<String>, PoolError> {
    let phys = pool.mos().dataset(objset)?;
    if phys.is_snapshot() {
        let found = lookup::snapshot_of_object(pool.mos(), pool.name(), objset)?;
        return Ok(found.map(|found| found.name));
    }
    lookup::name_of_dir(pool.mos(), pool.name(), phys.dir_object.get()).map(Some)
}
