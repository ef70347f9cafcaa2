//! The MOS as the judge reads it: directory, config, salt, and the list of data sets.

use crate::block::Blocks;
use crate::object::{self, Result, Unread};
use format::config::PoolConfig;
use format::dsl_dataset::DslDatasetPhys;
use format::dsl_dir::{DIR_CRYPTO_KEY_OBJECT, DslDirPhys};
use format::zap::Value;
use format::{BlkPtr, DnodePhys, NvList, ObjectType, ObjsetPhys};
use std::collections::{BTreeMap, BTreeSet};

/// Largest config that is believed, in bytes.
const CONFIG_MAX: u64 = 64 << 20;
/// Nesting of data sets that is followed; names are far shorter than this.
const DEPTH_MAX: usize = 256;
/// Data sets and snapshots that are believed.
const DATASETS_MAX: usize = 16 << 20;

/// The MOS.
pub(crate) struct Mos {
    /// Its object set.
    pub objset: ObjsetPhys,
    directory: BTreeMap<Vec<u8>, Value>,
}

impl Mos {
    /// Opens the MOS that `root` points to, and sets the salt.
    pub(crate) fn open(blocks: &mut Blocks<'_>, root: &BlkPtr) -> Result<Mos> {
        if !root.is_little_endian() {
            return Err(Unread("the pool is of the other byte order".into()));
        }
        if root.kind() != ObjectType::OBJSET || root.level() != 0 || !root.has_space() {
            return Err(Unread("the root pointer is not one of an object set".into()));
        }
        let objset = ObjsetPhys::parse(&blocks.read(root)?)?;
        let mut directory = BTreeMap::new();
        let dnode = object::expect(blocks, &objset, 1)?;
        object::zap_each(blocks, &dnode, |entry| {
            directory.insert(entry.name, entry.value);
        })?;
        let mos = Mos { objset, directory };
        let salt = mos.directory.get(&b"org.illumos:checksum_salt"[..]);
        if let Some(salt) = salt.and_then(Value::as_bytes).and_then(|b| b.try_into().ok()) {
            blocks.set_salt(salt);
        }
        Ok(mos)
    }

    /// The object that `name` in the directory stands for.
    pub(crate) fn find(&self, name: &str) -> Option<u64> {
        self.directory.get(name.as_bytes()).and_then(Value::as_u64).filter(|object| *object != 0)
    }

    /// An entry of several words.
    pub(crate) fn words(&self, name: &str) -> Option<Vec<u64>> {
        self.directory.get(name.as_bytes()).map(Value::ints)
    }

    /// The dnode of an object that must exist.
    pub(crate) fn expect(&self, blocks: &mut Blocks<'_>, object: u64) -> Result<DnodePhys> {
        object::expect(blocks, &self.objset, object)
    }

    /// The pool's config.
    pub(crate) fn config(&self, blocks: &mut Blocks<'_>) -> Result<PoolConfig> {
        let number = self.find("config").ok_or(Unread("the directory has no config".into()))?;
        let dnode = self.expect(blocks, number)?;
        let size = dnode.bonus().first_chunk::<8>().map_or(0, |b| u64::from_le_bytes(*b));
        if size > CONFIG_MAX {
            return Err(Unread(format!("a config of {size} bytes")));
        }
        let bytes = object::range(blocks, &dnode, 0, size as usize)?;
        Ok(PoolConfig::from_nvlist(&NvList::parse(&bytes)?)?)
    }

    /// A DSL directory.
    pub(crate) fn dir(
        &self,
        blocks: &mut Blocks<'_>,
        object: u64,
    ) -> Result<(DnodePhys, DslDirPhys)> {
        let dnode = self.expect(blocks, object)?;
        if dnode.bonus_kind() != ObjectType::DSL_DIR {
            return Err(Unread(format!("object {object} is no DSL directory")));
        }
        let dir = *DslDirPhys::parse(dnode.bonus())?;
        Ok((dnode, dir))
    }

    /// A data set.
    pub(crate) fn dataset(&self, blocks: &mut Blocks<'_>, object: u64) -> Result<DslDatasetPhys> {
        let dnode = self.expect(blocks, object)?;
        if dnode.bonus_kind() != ObjectType::DSL_DATASET {
            return Err(Unread(format!("object {object} is no data set")));
        }
        Ok(*DslDatasetPhys::parse(dnode.bonus())?)
    }
}

/// A data set or snapshot.
#[derive(Clone, Debug)]
pub(crate) struct Dataset {
    /// Its object in the MOS.
    pub object: u64,
    /// Its name; of the pool's own ones something with `$`.
    pub name: String,
    /// Is it a snapshot?
    pub snapshot: bool,
    /// Does its directory have an encryption key?
    pub encrypted: bool,
}

/// A DSL directory.
pub(crate) struct Dir {
    /// Its object in the MOS.
    pub object: u64,
    /// Its name.
    pub name: String,
    /// Its children, by their places in the list.
    pub children: Vec<usize>,
    /// Its data sets: places of head and snapshots in that list.
    pub datasets: std::ops::Range<usize>,
}

/// All directories and data sets.
#[derive(Default)]
pub(crate) struct Datasets {
    /// Directories, parents before children.
    pub dirs: Vec<Dir>,
    /// Data sets: of each directory first the snapshots, then the head.
    pub list: Vec<Dataset>,
    /// What could not be read, and what it is that is unknown therefore.
    pub unread: Vec<String>,
}

impl Datasets {
    /// Walks all directories below the root.
    pub(crate) fn list(blocks: &mut Blocks<'_>, mos: &Mos, pool: &str) -> Datasets {
        let mut all = Datasets::default();
        let Some(root) = mos.find("root_dataset") else {
            all.unread.push("the MOS directory has no root data set".into());
            return all;
        };
        let mut seen = BTreeSet::new();
        let mut todo = vec![(root, pool.to_owned(), 0, None)];
        while let Some((object, name, depth, parent)) = todo.pop() {
            if depth > DEPTH_MAX || all.list.len() > DATASETS_MAX {
                all.unread.push(format!("{name}: too many or too deep"));
                continue;
            }
            if !seen.insert(object) {
                all.unread
                    .push(format!("{name}: its directory, object {object}, is another's too"));
                continue;
            }
            let place = all.dirs.len();
            match all.add_dir(blocks, mos, object, &name, &mut seen) {
                Ok(children) => {
                    for (child, object) in children {
                        let child = format!("{name}/{child}");
                        todo.push((object, child, depth + 1, Some(place)));
                    }
                    if let Some(parent) = parent.and_then(|p: usize| all.dirs.get_mut(p)) {
                        parent.children.push(place);
                    }
                }
                Err(why) => all.unread.push(format!("{name}: {why}")),
            }
        }
        all
    }

    /// Adds a directory with its data sets; gives its children.
    fn add_dir(
        &mut self,
        blocks: &mut Blocks<'_>,
        mos: &Mos,
        object: u64,
        name: &str,
        seen: &mut BTreeSet<u64>,
    ) -> Result<Vec<(String, u64)>> {
        let (dnode, dir) = mos.dir(blocks, object)?;
        let encrypted = dnode.kind().is_zap()
            && object::zap_get(blocks, &dnode, DIR_CRYPTO_KEY_OBJECT.as_bytes())?.is_some();
        let from = self.list.len();
        let head = dir.head_dataset_object.get();
        if head != 0
            && let Err(why) = self.add_head(blocks, mos, head, name, encrypted, seen)
        {
            self.unread.push(format!("{name}: {why}"));
        }
        let datasets = from..self.list.len();
        self.dirs.push(Dir { object, name: name.to_owned(), children: Vec::new(), datasets });
        let mut children = Vec::new();
        let map = dir.child_dir_zap_object.get();
        if map != 0 {
            let listed = mos.expect(blocks, map).and_then(|zap| {
                object::zap_each(blocks, &zap, |entry| {
                    let name = String::from_utf8_lossy(&entry.name).into_owned();
                    children.extend(entry.value.as_u64().map(|object| (name, object)));
                })
            });
            if let Err(why) = listed {
                self.unread.push(format!("{name}: its children: {why}"));
            }
        }
        Ok(children)
    }

    fn add_head(
        &mut self,
        blocks: &mut Blocks<'_>,
        mos: &Mos,
        head: u64,
        name: &str,
        encrypted: bool,
        seen: &mut BTreeSet<u64>,
    ) -> Result<()> {
        let phys = mos.dataset(blocks, head)?;
        if phys.is_snapshot() {
            return Err(Unread(format!("its head, object {head}, is a snapshot")));
        }
        let mut snapshots = Vec::new();
        let names = phys.snapnames_zap_object.get();
        if names != 0 {
            let listed = mos.expect(blocks, names).and_then(|zap| {
                object::zap_each(blocks, &zap, |entry| {
                    let name = String::from_utf8_lossy(&entry.name).into_owned();
                    snapshots.extend(entry.value.as_u64().map(|object| (object, name)));
                })
            });
            if let Err(why) = listed {
                self.unread.push(format!("{name}: its snapshots: {why}"));
            }
        }
        for (object, snapshot) in snapshots {
            if seen.insert(object) {
                let name = format!("{name}@{snapshot}");
                self.list.push(Dataset { object, name, snapshot: true, encrypted });
            } else {
                self.unread.push(format!("{name}@{snapshot}: object {object} is another's too"));
            }
        }
        if !seen.insert(head) {
            return Err(Unread(format!("its head, object {head}, is another's too")));
        }
        self.list.push(Dataset { object: head, name: name.to_owned(), snapshot: false, encrypted });
        Ok(())
    }
}
