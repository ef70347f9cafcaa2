//! Names to data sets: `pool/a/b` and `pool/a/b@snapshot`.

use std::collections::BTreeSet;

use dmu::Zap;
use format::dsl_dataset::DslDatasetPhys;
use format::dsl_dir::{DslDirPhys, ORIGIN_DIR_NAME};
use format::objset::ObjsetType;
use format::zap::Entry;

use crate::error::{PoolError, Result};
use crate::mos::{Mos, key};
use crate::props::name::{NAME_MAX, NameError};
use crate::ruins::object_of;

/// How far parents are followed: names have 256 bytes.
pub const DEPTH_MAX: usize = 256;

/// A data set found in the MOS.
#[derive(Clone, Debug)]
pub struct Found {
    /// Full name.
    pub name: String,
    /// Object of its directory.
    pub dir_object: u64,
    /// Its directory.
    pub dir: DslDirPhys,
    /// Object of the data set.
    pub object: u64,
    /// The data set.
    pub phys: DslDatasetPhys,
}

impl Found {
    /// Is it a snapshot?
    pub fn is_snapshot(&self) -> bool {
        self.name.contains('@')
    }
}

/// Children of a directory by name, in order; the internal ones (`$MOS` ..) left out.
pub fn children(mos: &Mos, number: u64, dir: &DslDirPhys) -> Result<Vec<(String, u64)>> {
    let named = entries(mos, dir.child_dir_zap_object.get())?.into_iter().filter_map(|entry| {
        Some((String::from_utf8_lossy(&entry.name).into_owned(), entry.value.as_u64()?))
    });
    let mut out: Vec<(String, u64)> = named.collect();
    if let Some(ruins) = mos.ruins() {
        // Of the internal ones one has a head, too; it is empty.
        let has_head = |child: u64| {
            let head = mos.dir(child).and_then(|dir| mos.dataset(dir.head_dataset_object.get()));
            head.is_ok_and(|head| !head.bp.is_hole())
        };
        let more = ruins.children(number, &out);
        out.extend(more.into_iter().filter(|(_, child)| has_head(*child)));
    }
    out.retain(|(name, _)| !name.starts_with('$'));
    out.sort();
    Ok(out)
}

/// The entries of a ZAP; of one that is damaged those that are left.
fn entries(mos: &Mos, number: u64) -> Result<Vec<Entry>> {
    let read = || Ok(Zap::open(&mos.objset, number)?.entries_left()?);
    match &mos.ruins {
        None => Ok(Zap::open(&mos.objset, number)?.entries()?),
        Some(_) => Ok(read().unwrap_or_else(|_: PoolError| Vec::new())),
    }
}

/// Snapshots of a head by name, oldest first.
pub fn snapshots(mos: &Mos, head: &DslDatasetPhys) -> Result<Vec<(String, u64, DslDatasetPhys)>> {
    let names = head.snapnames_zap_object.get();
    if names == 0 {
        return Ok(Vec::new());
    }
    let mut out = Vec::new();
    for entry in entries(mos, names)? {
        let Some(object) = entry.value.as_u64() else { continue };
        let name = String::from_utf8_lossy(&entry.name).into_owned();
        out.push((name, object));
    }
    if let Some(ruins) = mos.ruins() {
        let dir = head.dir_object.get();
        let heads = mos.dir(dir).map_or(0, |dir| dir.head_dataset_object.get());
        let more = ruins.datasets(dir, &out);
        out.extend(more.into_iter().filter(|(_, object)| *object != heads));
    }
    let is_named = |name: &str, object| {
        let named = Zap::open(&mos.objset, names).and_then(|zap| zap.get_u64(name.as_bytes()));
        named.is_ok_and(|named| named == Some(object))
    };
    let read = |(name, object): (String, u64)| match mos.dataset(object) {
        Err(_) if mos.ruins.is_some() => None,
        // It was destroyed just now.
        Err(_) if !is_named(&name, object) => None,
        phys => Some(phys.map(|phys| (name, object, phys))),
    };
    let mut out: Vec<_> = out.into_iter().filter_map(read).collect::<Result<_>>()?;
    out.sort_by_key(|(_, _, phys)| phys.creation_txg.get());
    Ok(out)
}

/// The directory of the pool's root data set.
pub fn root_dir(mos: &Mos) -> Result<u64> {
    mos.expect(key::ROOT_DATASET)
}

/// The snapshot that all data sets have grown from: `$ORIGIN`'s. The root has grown from it, too, but its own origin is
/// another once a clone of it was promoted.
pub(crate) fn origin(mos: &Mos) -> Result<u64> {
    let none = |detail: &str| PoolError::Damaged { what: "$ORIGIN", detail: detail.into() };
    let root = mos.dir(root_dir(mos)?)?;
    let dir = mos.zap(root.child_dir_zap_object.get())?.get_u64(ORIGIN_DIR_NAME.as_bytes())?;
    let dir = mos.dir(dir.ok_or_else(|| none("the root has no such child"))?)?;
    match mos.dataset(dir.head_dataset_object.get())?.prev_snap_object.get() {
        0 => Err(none("it has no snapshot")),
        snapshot => Ok(snapshot),
    }
}

/// Refuses a name that is none of the pool called `pool`: that pool has no such data set, whatever the rest leads to.
pub fn of_pool(pool: &str, name: &str) -> Result<()> {
    match name.split(['/', '@', '#']).next() == Some(pool) {
        true => Ok(()),
        false => Err(PoolError::NoDataset { name: name.into() }),
    }
}

/// Refuses what would give something a full name of so many bytes, if that is longer than names are: who prints it
/// has no room for more.
pub(crate) fn fits_name(bytes: usize) -> Result<()> {
    match bytes <= NAME_MAX {
        true => Ok(()),
        false => Err(PoolError::Invalid(NameError::TooLong.to_string())),
    }
}

/// As [`find`], of a name that somebody gave: it may be another pool's.
pub fn find_in(mos: &Mos, pool: &str, name: &str) -> Result<Found> {
    of_pool(pool, name)?;
    find(mos, name)
}

/// Finds the directory of `name` (`pool/a/b`); `None`: there is none. The first part is taken to be this pool's name:
/// the MOS does not know what the pool is called here ([`of_pool`]).
pub fn find_dir(mos: &Mos, name: &str) -> Result<Option<u64>> {
    let mut at = root_dir(mos)?;
    for part in name.split('/').skip(1) {
        let dir = mos.dir(at)?;
        let zap = Zap::open(&mos.objset, dir.child_dir_zap_object.get());
        let child = zap.and_then(|zap| zap.get_u64(part.as_bytes()));
        let lost = || object_of(part).filter(|child| mos.dir(*child).is_ok());
        match if mos.ruins.is_some() { child.ok().flatten().or_else(lost) } else { child? } {
            Some(child) if !part.starts_with('$') => at = child,
            _ => return Ok(None),
        }
    }
    Ok(Some(at))
}

/// Finds the data set or snapshot of `name`.
pub fn find(mos: &Mos, name: &str) -> Result<Found> {
    let missing = || PoolError::NoDataset { name: name.into() };
    let (path, snapshot) = match name.split_once('@') {
        Some((path, snapshot)) => (path, Some(snapshot)),
        None => (name, None),
    };
    let dir_object = find_dir(mos, path)?.ok_or_else(missing)?;
    let dir = mos.dir(dir_object)?;
    let mut object = dir.head_dataset_object.get();
    let mut phys = mos.dataset(object)?;
    if let Some(snapshot) = snapshot {
        let names = phys.snapnames_zap_object.get();
        let named = mos.zap(names).and_then(|zap| Ok(zap.get_u64(snapshot.as_bytes())?));
        let lost = object_of(snapshot).filter(|_| mos.ruins.is_some());
        object = mos.unless_ruined(named)?.or(lost).ok_or_else(missing)?;
        phys = mos.dataset(object)?;
    }
    Ok(Found { name: name.into(), dir_object, dir, object, phys })
}

/// The head that a snapshot is one of.
pub fn head_of(mos: &Mos, snapshot: &Found) -> Result<Found> {
    find(mos, snapshot.name.split('@').next().unwrap_or_default())
}

/// The name of directory `number`, from the root down.
pub fn name_of_dir(mos: &Mos, pool: &str, number: u64) -> Result<String> {
    let mut parts = Vec::new();
    let mut at = number;
    for _ in 0..DEPTH_MAX {
        let parent = mos.dir(at)?.parent_object.get();
        if parent == 0 {
            parts.push(pool.to_string());
            parts.reverse();
            return Ok(parts.join("/"));
        }
        let names = mos.zap(mos.dir(parent)?.child_dir_zap_object.get())?.entries()?;
        let entry = names.iter().find(|entry| entry.value.as_u64() == Some(at));
        let detail = || format!("object {at} is no child of its parent");
        let lost = || PoolError::Damaged { what: "DSL directory", detail: detail() };
        parts.push(String::from_utf8_lossy(&entry.ok_or_else(lost)?.name).into_owned());
        at = parent;
    }
    let detail = format!("object {number}: parents without end");
    Err(PoolError::Damaged { what: "DSL directory", detail })
}

/// The snapshot in object `number` with its name; `None`: it is not one that people see.
pub fn snapshot_of_object(mos: &Mos, pool: &str, number: u64) -> Result<Option<Found>> {
    if number == 0 {
        return Ok(None);
    }
    let dir_object = mos.dataset(number)?.dir_object.get();
    let dir = mos.dir(dir_object)?;
    let head = mos.dataset(dir.head_dataset_object.get())?;
    let names = snapshots(mos, &head)?;
    let name = names.into_iter().find(|(_, object, _)| *object == number);
    let path = name_of_dir(mos, pool, dir_object)?;
    let made = name.filter(|_| !path.contains('$')).map(|(snapshot, object, phys)| Found {
        name: format!("{path}@{snapshot}"),
        dir_object,
        dir,
        object,
        phys,
    });
    Ok(made)
}

/// Is a data set of this name below another for people to see? `%recv` is what a receive is not done with.
pub fn is_shown(child: &str) -> bool {
    !child.contains('%')
}

/// As [`walk`], without what people do not see.
pub fn walk_shown(mos: &Mos, name: &str) -> Result<Vec<Found>> {
    let mut all = walk(mos, name)?;
    all.retain(|found| found.name.strip_prefix(name).is_none_or(is_shown));
    Ok(all)
}

/// All data sets below (and with) `name`, parents before children, snapshots after their head.
pub fn walk(mos: &Mos, name: &str) -> Result<Vec<Found>> {
    let mut out = Vec::new();
    let start = find_dir(mos, name)?.ok_or_else(|| PoolError::NoDataset { name: name.into() })?;
    let mut stack = vec![(name.to_string(), start)];
    let mut seen = BTreeSet::new();
    while let Some((name, dir_object)) = stack.pop() {
        // A directory that is found twice may be below itself.
        if !seen.insert(dir_object) {
            let detail = format!("object {dir_object} is {name}, and was met before");
            return Err(PoolError::Damaged { what: "DSL directory", detail });
        }
        let dir = mos.dir(dir_object)?;
        let object = dir.head_dataset_object.get();
        if object != 0 {
            let phys = mos.dataset(object)?;
            out.push(Found { name: name.clone(), dir_object, dir, object, phys });
            for (snapshot, object, phys) in snapshots(mos, &phys)? {
                let name = format!("{name}@{snapshot}");
                out.push(Found { name, dir_object, dir, object, phys });
            }
        }
        for (child, object) in children(mos, dir_object, &dir)?.into_iter().rev() {
            stack.push((format!("{name}/{child}"), object));
        }
    }
    Ok(out)
}

/// What a data set holds, from its object set.
pub fn kind(mos: &Mos, found: &Found) -> Result<ObjsetType> {
    let bytes = mos.objset.store().read(&found.phys.bp)?;
    let phys = format::ObjsetPhys::parse(&bytes).map_err(|e| PoolError::Damaged {
        what: "object set",
        detail: format!("{}: {e}", found.name),
    })?;
    Ok(phys.kind)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_of_other_pools_are_refused() {
        for name in ["tank", "tank/a", "tank@s", "tank/a@s", "tank/a#mark"] {
            assert!(of_pool("tank", name).is_ok(), "{name}");
        }
        for name in ["", "tan", "tank2/a", "backup/tank", "backup@tank", "/tank"] {
            let refused = of_pool("tank", name);
            assert!(
                matches!(refused, Err(PoolError::NoDataset { name: n }) if n == name),
                "{name}"
            );
        }
    }
}
