//! Looking for pools: what devices say, told as `zpool import` tells it.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use format::config::{PoolState, VdevConfig};
use pool::devices::{FoundPool as Members, Scan, scan};

use crate::health::{self, Facts, Known};
use crate::pools::{Aux, Foreign, FoundPool, State};

/// Where devices are, if nobody says where.
const SYSTEM: [&str; 3] = ["/dev/disk/by-id", "/dev/mapper", "/dev"];

/// Looks at directories and devices; what is not there is no error, as for OpenZFS.
#[must_use]
pub fn look(places: &[PathBuf]) -> Scan {
    let system = || SYSTEM.iter().map(PathBuf::from).collect();
    let places: Vec<PathBuf> = if places.is_empty() { system() } else { places.to_vec() };
    // What is found is remembered, for commands that run elsewhere.
    let whole = |place: PathBuf| std::path::absolute(&place).unwrap_or(place);
    let places = places.into_iter().map(whole);
    let there = |place: &PathBuf| std::fs::read_dir(place).is_ok() || place.is_file();
    let places: Vec<_> = places
        .filter(|place| there(place) || std::fs::metadata(place).is_ok_and(|m| !m.is_dir()))
        .collect();
    scan(&places).unwrap_or_default()
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
    let foreign = pool.foreign_host(hostid).map(|hostid| Foreign {
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
