//! Looking for pools: what devices say, told as `zpool import` tells it.

use std::collections::BTreeMap;
use std::path::{Component, Path, PathBuf};

use device::ReadFile;
use format::config::{PoolState, VdevConfig};
use format::uberblock::Uberblock;
use pool::devices::{self, FoundPool as Members, Labels, Scan, scan};
use pool::{Devices, OpenOptions, Pool, PoolError};
use rt::Account;
use rt::sync::Arc;

use crate::health::{self, Facts, Known};
use crate::pools::{Aux, Foreign, FoundPool, State};

/// Where devices are, if nobody says where.
const SYSTEM: [&str; 3] = ["/dev/disk/by-id", "/dev/mapper", "/dev"];

/// Looks at directories and devices; what is not there is no error, as for OpenZFS.
#[must_use]
pub fn look(places: &[PathBuf]) -> Scan {
    let system = || SYSTEM.iter().map(PathBuf::from).collect();
    let places: Vec<PathBuf> = if places.is_empty() { system() } else { places.to_vec() };
    let places = places.iter().map(|place| whole(place));
    let there = |place: &PathBuf| std::fs::read_dir(place).is_ok() || place.is_file();
    let places: Vec<_> = places
        .filter(|place| there(place) || std::fs::metadata(place).is_ok_and(|m| !m.is_dir()))
        .collect();
    scan(&places).unwrap_or_default()
}

/// A place for commands that run elsewhere, and later: what is found there is remembered.
fn whole(place: &Path) -> PathBuf {
    let path = std::path::absolute(place).unwrap_or_else(|_| place.to_path_buf());
    if !path.components().any(|part| part == Component::ParentDir) {
        return path;
    }
    // The way back leads through directories that have nothing to do with it. A device keeps its own name.
    let straight = match (path.is_dir(), path.parent(), path.file_name()) {
        (false, Some(dir), Some(name)) => dir.canonicalize().map(|dir| dir.join(name)),
        _ => path.canonicalize(),
    };
    straight.unwrap_or(path)
}

/// The same scan, and in it the devices of a pool that lie where it says and were not looked at: a pool is not to do
/// without a disk, or a log, that is in its place.
#[must_use]
pub(crate) fn complete(scan: Scan, guid: u64, memory: &Account) -> Scan {
    let more = scan.pools.iter().find(|pool| pool.guid() == guid);
    let more = more.and_then(|found| missed_of(&scan, found, memory));
    more.unwrap_or(scan)
}

/// A scan of the devices of a pool and of those that [`complete`] looks for; nothing, if there are none.
#[must_use]
pub(crate) fn missed_of(scan: &Scan, found: &Members, memory: &Account) -> Option<Scan> {
    let missed = missed(found, memory);
    if missed.is_empty() {
        return None;
    }
    let known = found.members.iter().chain(&found.duplicates).map(|member| &member.candidate);
    let others = found.suspects.values().chain(scan.aux.iter().map(|aux| &aux.candidate));
    let paths = known.chain(others).filter_map(|candidate| candidate.path.clone());
    let paths: Vec<PathBuf> = paths.chain(missed).collect();
    let whole = devices::scan(&paths).ok()?;
    whole.pools.iter().any(|pool| pool.guid() == found.guid()).then_some(whole)
}

/// How a pool is opened that is only looked at.
pub(crate) fn options(memory: &Account) -> OpenOptions {
    OpenOptions { workers: 1, memory: Some(memory.clone()), ..OpenOptions::default() }
}

/// A pool that was found, as the first of these uberblocks has it that leads to a MOS, to be looked at.
pub(crate) fn opened(
    found: &Members,
    uberblocks: &[Uberblock],
    memory: &Account,
) -> Result<Arc<Pool>, PoolError> {
    let devices = Devices::ReadOnly(Arc::new(found.open_tree_in(memory)?));
    Pool::open(devices, uberblocks, &options(memory))
}

/// Where leaves are that were not found, as the pool says: its labels, or itself where a top-level vdev has none.
fn missed(found: &Members, memory: &Account) -> Vec<PathBuf> {
    let mut root = found.root.clone();
    if !found.missing_tops().is_empty()
        && let Ok(pool) = opened(found, &found.uberblocks, memory)
    {
        root = pool.config().vdev_tree;
    }
    let is_missed =
        |leaf: &&VdevConfig| !found.members.iter().any(|member| member.guid == leaf.guid);
    root.leaves().filter(is_missed).filter_map(|leaf| in_its_place(found, leaf)).collect()
}

/// The path of a leaf, if its device is there and belongs to the pool as it was found.
fn in_its_place(found: &Members, leaf: &VdevConfig) -> Option<PathBuf> {
    use std::os::unix::ffi::OsStrExt;
    let path = PathBuf::from(std::ffi::OsStr::from_bytes(leaf.path.as_deref()?));
    let labels = path.is_absolute().then(|| labels_at(&path))??;
    let is_it = labels.member(u64::MAX).is_some_and(|config| {
        config.pool_guid == found.guid() && config.label.is_some_and(|ids| ids.guid == leaf.guid)
    });
    // One that went another way would bring its uberblocks with it. One that only went further has what the others lack.
    let newest = found.uberblocks.first()?;
    let newest = (newest.txg.get(), &newest.root);
    let is_ours = is_it && (labels.goes_on_from(newest) || !labels.is_astray(newest));
    is_ours.then_some(path)
}

/// The labels of the file or disk at a path, if there is one. What else may have the name is not opened: it could wait.
pub(crate) fn labels_at(path: &Path) -> Option<Labels> {
    use std::os::unix::fs::FileTypeExt;
    let kind = std::fs::metadata(path).ok()?.file_type();
    let file = (kind.is_file() || kind.is_block_device()).then(|| ReadFile::open(path))?.ok()?;
    Some(Labels::read(&file))
}

/// Tells what a pool that was found is like, as its labels have it.
#[must_use]
pub fn describe(pool: &Members, places: &[PathBuf], hostid: u64) -> FoundPool {
    let found: BTreeMap<u64, PathBuf> = pool
        .members
        .iter()
        .filter_map(|member| Some((member.guid, member.candidate.shown_path()?)))
        .collect();
    let mut known = |config: &VdevConfig| known(config, &found, places);
    let tree = health::tree(&pool.root, false, &mut known);
    let missing_tops = !pool.missing_tops().is_empty();
    let is_active = pool.config.state == PoolState::Active;
    let foreign = pool.foreign_host(hostid).filter(|_| is_active).map(|hostid| Foreign {
        host: text(pool.config.hostname.as_deref().unwrap_or_default()),
        hostid,
        time: pool.uberblocks.first().map_or(0, |uberblock| uberblock.timestamp.get()),
    });
    let facts = Facts {
        bad_guid_sum: missing_tops && !lacks_only_known(&tree),
        other_system: foreign.is_some(),
        old_version: pool.config.version < format::SPA_VERSION,
        ..Facts::default()
    };
    let condition = health::condition(&tree, facts);
    FoundPool {
        name: text(&pool.config.name),
        guid: pool.guid(),
        destroyed: pool.config.state == PoolState::Destroyed,
        condition,
        hopeless: tree.state == State::Unavail,
        foreign,
        more_missing: missing_tops,
        comment: pool.config.comment.as_deref().map(text),
        tree,
        spares: Vec::new(),
        cache: Vec::new(),
    }
}

/// True if top-level vdevs that are known are missing too: then attaching those comes first.
fn lacks_only_known(tree: &crate::pools::Vdev) -> bool {
    use crate::pools::VdevKind::Missing;
    let dead = |v: &crate::pools::Vdev| v.state == State::Unavail && v.kind != Missing;
    tree.children.iter().any(dead)
}

/// What is known of a leaf: where it was found, or what is where it should be.
fn known(config: &VdevConfig, found: &BTreeMap<u64, PathBuf>, places: &[PathBuf]) -> Known {
    if let Some(path) = found.get(&config.guid) {
        return Known { path: Some(path.clone()), ..Known::default() };
    }
    use std::os::unix::ffi::OsStrExt;
    let old = config.path.as_deref().map(|path| Path::new(std::ffi::OsStr::from_bytes(path)));
    let moved = |dir: &PathBuf| Some(dir.join(old?.file_name()?));
    let taken =
        old.is_some_and(Path::exists) || places.iter().filter_map(moved).any(|path| path.is_file());
    let absent = if taken { Aux::BadLabel } else { Aux::CannotOpen };
    Known { absent: Some(absent), ..Known::default() }
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Seen red: a pool that was imported with `-d ../there` was lost when the directory went where that was typed.
    #[test]
    fn a_place_is_found_again() {
        let dir = testkit::temp_dir();
        let top = dir.path().canonicalize().expect("it is there");
        let (here, there) = (top.join("here"), top.join("there"));
        for dir in [&here, &there] {
            std::fs::create_dir(dir).expect("a directory");
        }
        std::os::unix::fs::symlink("/dev/null", there.join("disk")).expect("a link");
        let short = top.join("short");
        std::os::unix::fs::symlink(&there, &short).expect("a link");
        for (place, path) in [
            (here.join("../there/disk"), there.join("disk")),
            (here.join("../short/disk"), there.join("disk")),
            (top.join("none/../disk"), top.join("none/../disk")),
            (here.join("../there"), there),
            (short.clone(), short),
        ] {
            assert_eq!(whole(&place), path, "{}", place.display());
        }
        assert_eq!(whole(Path::new("disk")), std::env::current_dir().expect("one").join("disk"));
    }
}
