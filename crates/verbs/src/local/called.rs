//! Which device of a pool a word means: what was typed in full means one, the last part of a path may mean several.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};

use format::config::VdevConfig;

use super::disks::path_of;
use super::session::{Session, pool_error};
use crate::disks::short_disk;
use crate::{Doing, Error, Result, Why};

/// How a word fits a device; the better last.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Fit {
    /// It is the last part of its path, or what `zpool status` calls it.
    Short,
    /// It is the path that the pool has of it, where it may be no more.
    Noted,
    /// It leads to where it was found.
    There,
    /// It is its guid.
    Guid,
}

/// Several devices may be meant.
#[derive(Debug, PartialEq, Eq)]
struct Ambiguous;

/// What devices a pool has that words mean, and where they were found.
pub(super) struct Devices {
    leaves: Vec<VdevConfig>,
    spares: Vec<VdevConfig>,
    caches: Vec<VdevConfig>,
    paths: BTreeMap<u64, PathBuf>,
}

/// The device that a word means.
pub(super) struct Meant {
    /// As a leaf of the pool's tree.
    pub(super) leaf: Option<VdevConfig>,
    /// As a spare, waiting or in use.
    pub(super) spare: Option<VdevConfig>,
    /// As a cache device.
    pub(super) cache: Option<VdevConfig>,
}

impl Devices {
    pub(super) fn of(session: &Session) -> Result<Devices> {
        let fail = |error| pool_error(Doing::Open(session.pool.name().into()), error);
        Ok(Devices {
            leaves: session.pool.config().vdev_tree.leaves().cloned().collect(),
            spares: session.pool.spares().map_err(fail)?,
            caches: session.pool.caches().map_err(fail)?,
            paths: session.paths(),
        })
    }

    /// What a word means of all of them, if anything.
    pub(super) fn meant(&self, name: &str, doing: &Doing) -> Result<Meant> {
        let all = self.leaves.iter().chain(&self.spares).chain(&self.caches);
        let guid = pick(all, &self.paths, name).map_err(|Ambiguous| {
            let why = "more than one device is called so, use a whole path or a guid";
            Error::cannot(doing.clone(), Why::Host(why.into()))
        })?;
        let of = |list: &[VdevConfig]| list.iter().find(|vdev| Some(vdev.guid) == guid).cloned();
        Ok(Meant { leaf: of(&self.leaves), spare: of(&self.spares), cache: of(&self.caches) })
    }
}

/// The guid of the vdev that fits best.
fn pick<'a>(
    vdevs: impl Iterator<Item = &'a VdevConfig>,
    paths: &BTreeMap<u64, PathBuf>,
    name: &str,
) -> std::result::Result<Option<u64>, Ambiguous> {
    let typed = Path::new(name);
    let leads_to = typed.canonicalize().ok();
    let fits = vdevs.filter_map(|vdev| {
        let found = paths.get(&vdev.guid).map(PathBuf::as_path);
        Some((fit(vdev, found, (name, leads_to.as_deref()))?, vdev.guid))
    });
    let fits: Vec<(Fit, u64)> = fits.collect();
    let Some(best) = fits.iter().map(|(fit, _)| *fit).max() else { return Ok(None) };
    let mut guids = fits.iter().filter(|(fit, _)| *fit == best).map(|(_, guid)| *guid);
    let first = guids.next();
    // A spare in use is there twice.
    let others: BTreeSet<u64> = guids.filter(|guid| Some(*guid) != first).collect();
    match best == Fit::Short && !others.is_empty() {
        true => Err(Ambiguous),
        false => Ok(first),
    }
}

fn fit(
    vdev: &VdevConfig,
    found: Option<&Path>,
    (name, leads_to): (&str, Option<&Path>),
) -> Option<Fit> {
    let (noted, typed) = (path_of(vdev), Path::new(name));
    if name.is_empty() {
        return None;
    }
    if vdev.guid.to_string() == name {
        return Some(Fit::Guid);
    }
    if found.is_some_and(|found| {
        found == typed || leads_to.is_some() && found.canonicalize().ok().as_deref() == leads_to
    }) {
        return Some(Fit::There);
    }
    if noted == typed {
        return Some(Fit::Noted);
    }
    let whole = vdev.whole_disk.unwrap_or(false);
    let is_short = |path: &Path| {
        let shown = short_disk(path.as_os_str().as_encoded_bytes(), whole);
        path.file_name() == Some(typed.as_os_str()) || shown == name.as_bytes()
    };
    (is_short(&noted) || found.is_some_and(is_short)).then_some(Fit::Short)
}

#[cfg(test)]
mod tests {
    use format::config::VdevKind;

    use super::*;

    fn disk(guid: u64, path: &str) -> VdevConfig {
        let path = Some(path.as_bytes().to_vec());
        VdevConfig { path, ..VdevConfig::new(VdevKind::Disk, 0, guid) }
    }

    #[test]
    fn what_is_typed_in_full_wins() {
        let mut whole = disk(14, "/dev/nvme0n1p1");
        whole.whole_disk = Some(true);
        let disks = [
            disk(11, "/rack/a/d1"),
            disk(12, "/rack/b/d1"),
            disk(13, "/rack/b/d2"),
            whole,
            disk(15, "/dev/sdb"),
            disk(16, "/dev/sdb"),
        ];
        let paths = [(13, "/moved/d1"), (14, "/dev/disk/by-id/x-part1"), (16, "/dev/sdb")];
        let paths = paths.into_iter().map(|(guid, path)| (guid, path.into())).collect();
        // One of them may be met a second time.
        let of = |name: &str| pick(disks.iter().chain(&disks[..1]), &paths, name);
        for (name, guid) in [
            ("/rack/a/d1", 11),
            ("/rack/b/d1", 12),
            ("/moved/d1", 13),
            ("d2", 13),
            ("nvme0n1", 14),
            ("nvme0n1p1", 14),
            ("x", 14),
            ("15", 15),
            ("/dev/sdb", 16),
        ] {
            assert_eq!(of(name), Ok(Some(guid)), "{name}");
        }
        assert_eq!(of("d1"), Err(Ambiguous));
        assert_eq!(of("d3"), Ok(None));
        assert_eq!(pick(disks[..1].iter().chain(&disks[..1]), &paths, "d1"), Ok(Some(11)));
    }
}
