//! Names of what was lost: the files that blocks in the error log belong to.
//!
//! The one idea: as OpenZFS has it, one name for each object. A file that is mounted is told by its path on the host,
//! another by that in its file system; what is no file, or cannot be told, by its numbers.

use std::collections::{BTreeMap, BTreeSet};
use std::path::PathBuf;

use fs::Filesystem;
use pool::dsl::lookup;
use pool::{Pool, PoolError};
use rt::sync::Arc;

/// Names that are told, at most.
const NAMES_MAX: usize = 10_000;

/// How many objects have lost blocks, and their names; `mounted` is where file systems are.
pub(super) fn named(
    pool: &Arc<Pool>,
    mounted: &[(String, PathBuf)],
) -> Result<(u64, Vec<String>), PoolError> {
    let lost = pool.lost_blocks()?;
    let objects: BTreeSet<(u64, u64)> = lost.iter().map(|at| (at.objset, at.object)).collect();
    let mut systems: BTreeMap<u64, System> = BTreeMap::new();
    let mut names = Vec::new();
    for (objset, object) in objects.iter().take(NAMES_MAX) {
        let system = systems.entry(*objset).or_insert_with(|| System::of(pool, *objset));
        names.push(system.name_of(*objset, *object, mounted));
    }
    Ok((objects.len() as u64, names))
}

/// A data set that something was lost of.
struct System {
    /// Its name, if it can be told.
    name: Option<String>,
    /// Its files, if it has any.
    files: Option<Filesystem>,
}

impl System {
    fn of(pool: &Arc<Pool>, objset: u64) -> System {
        let name = (objset != 0).then(|| name_of(pool, objset).ok().flatten()).flatten();
        let files = name.as_ref().and_then(|name| Filesystem::open(pool, name).ok());
        System { name, files }
    }

    fn name_of(&self, objset: u64, object: u64, mounted: &[(String, PathBuf)]) -> String {
        let Some(name) = &self.name else {
            return match objset {
                0 => format!("<metadata>:<{object:#x}>"),
                _ => format!("<{objset:#x}>:<{object:#x}>"),
            };
        };
        let path = self.files.as_ref().and_then(|files| files.path_of(object));
        let Some(path) = path else { return format!("{name}:<{object:#x}>") };
        let path = String::from_utf8_lossy(&path);
        match mounted.iter().find(|(other, _)| other == name) {
            Some((_, dir)) => format!("{}{path}", dir.display().to_string().trim_end_matches('/')),
            None => format!("{name}:{path}"),
        }
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
