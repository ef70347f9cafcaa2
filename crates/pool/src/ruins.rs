//! A MOS whose directory, or whose lists of names, are lost.
//!
//! The one idea: a dnode says what kind of object it is, a DSL directory who its parent is, and a data set which
//! directory it is in. So who looks at all dnodes that are left finds the tree again; only names are gone for good,
//! and stand-ins take their place: `lost-N` is the directory, or the snapshot, in object N.

use std::collections::BTreeMap;

use dmu::Objset;
use format::ObjectType;
use format::config::PoolConfig;
use rt::sync::{Arc, Mutex};

use crate::mos::{Mos, key};

/// What names that are lost begin with.
const LOST: &str = "lost-";
/// Objects of the MOS that are looked at.
const OBJECTS_MAX: u64 = 1 << 24;

/// What the dnodes of a damaged MOS tell, found when it is first needed.
#[derive(Clone, Default)]
pub struct Ruins(Arc<Mutex<Option<Arc<Found>>>>);

/// What was found.
#[derive(Default)]
pub(crate) struct Found {
    root: Option<u64>,
    /// The newest config of the pool.
    pub(crate) config: Option<PoolConfig>,
    /// Directories by their parent.
    dirs: BTreeMap<u64, Vec<u64>>,
    /// Data sets by their directory.
    datasets: BTreeMap<u64, Vec<u64>>,
}

impl Ruins {
    /// What is left, see the head of this file.
    pub(crate) fn found(&self, mos: &Mos) -> Arc<Found> {
        let mut found = self.0.lock();
        found.get_or_insert_with(|| Arc::new(look(mos))).clone()
    }
}

impl Found {
    /// What an entry of the directory of the MOS must have said.
    pub(crate) fn entry(&self, name: &[u8]) -> Option<u64> {
        (name == key::ROOT_DATASET).then_some(self.root).flatten()
    }

    /// The children of the directory in object `dir` that `known` lacks, by stand-ins for their names.
    pub(crate) fn children(&self, dir: u64, known: &[(String, u64)]) -> Vec<(String, u64)> {
        stand_ins(self.dirs.get(&dir), known)
    }

    /// Likewise data sets of the directory in object `dir`.
    pub(crate) fn datasets(&self, dir: u64, known: &[(String, u64)]) -> Vec<(String, u64)> {
        stand_ins(self.datasets.get(&dir), known)
    }
}

fn stand_ins(there: Option<&Vec<u64>>, known: &[(String, u64)]) -> Vec<(String, u64)> {
    let there = there.into_iter().flatten().copied();
    let new = there.filter(|object| known.iter().all(|(_, other)| other != object));
    new.map(|object| (format!("{LOST}{object}"), object)).collect()
}

/// The object that a stand-in for a name means.
pub(crate) fn object_of(name: &str) -> Option<u64> {
    name.strip_prefix(LOST)?.parse().ok()
}

/// Looks at all dnodes that are left.
fn look(mos: &Mos) -> Found {
    let objset: &Objset = &mos.objset;
    let mut found = Found::default();
    let (mut from, mut seen) = (0, 0);
    while let Some((number, dnode)) = objset.next_object_left(from) {
        from = number + 1;
        seen += 1;
        if seen > OBJECTS_MAX {
            break;
        }
        match (dnode.kind(), dnode.bonus_kind()) {
            (_, ObjectType::DSL_DIR) => {
                let Ok(dir) = mos.dir(number) else { continue };
                match dir.parent_object.get() {
                    0 => found.root = found.root.or(Some(number)),
                    parent => found.dirs.entry(parent).or_default().push(number),
                }
            }
            (_, ObjectType::DSL_DATASET) => {
                let Ok(dataset) = mos.dataset(number) else { continue };
                found.datasets.entry(dataset.dir_object.get()).or_default().push(number);
            }
            (ObjectType::PACKED_NVLIST, _) => {
                let config = mos.nvlist(number).ok();
                let config = config.and_then(|list| PoolConfig::from_nvlist(&list).ok());
                let newest = found.config.as_ref().map_or(0, |config| config.txg);
                found.config = config.filter(|config| config.txg >= newest).or(found.config);
            }
            _ => {}
        }
    }
    found
}
