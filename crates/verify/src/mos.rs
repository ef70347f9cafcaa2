//! The MOS as the judge reads it: directory, config, salt, and how its objects are found.

use crate::block::Blocks;
use crate::object::{self, Result, Unread};
use format::config::PoolConfig;
use format::dsl_dataset::DslDatasetPhys;
use format::dsl_dir::DslDirPhys;
use format::mos_directory as key;
use format::nvlist::PACKED_MAX;
use format::zap::Value;
use format::{BlkPtr, DnodePhys, NvList, ObjectType, ObjsetPhys};
use std::collections::BTreeMap;

/// Entries of the directory that are kept; there are some dozen.
const DIRECTORY_MAX: usize = 1 << 10;

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
            if directory.len() < DIRECTORY_MAX {
                directory.insert(entry.name, entry.value);
            }
        })?;
        let mos = Mos { objset, directory };
        let salt = mos.directory.get(key::CHECKSUM_SALT);
        if let Some(salt) = salt.and_then(Value::as_bytes).and_then(|b| b.try_into().ok()) {
            blocks.set_salt(salt);
        }
        Ok(mos)
    }

    /// The object that `name` in the directory stands for.
    pub(crate) fn find(&self, name: &[u8]) -> Option<u64> {
        self.directory.get(name).and_then(Value::as_u64).filter(|object| *object != 0)
    }

    /// An entry of several words.
    pub(crate) fn words(&self, name: &[u8]) -> Option<Vec<u64>> {
        self.directory.get(name).map(Value::ints)
    }

    /// The dnode of an object that must exist.
    pub(crate) fn expect(&self, blocks: &mut Blocks<'_>, object: u64) -> Result<DnodePhys> {
        object::expect(blocks, &self.objset, object)
    }

    /// The pool's config.
    pub(crate) fn config(&self, blocks: &mut Blocks<'_>) -> Result<PoolConfig> {
        let number = self.find(key::CONFIG).ok_or(Unread("the directory has no config".into()))?;
        let dnode = self.expect(blocks, number)?;
        let size = dnode.bonus().first_chunk::<8>().map_or(0, |b| u64::from_le_bytes(*b));
        if size > PACKED_MAX {
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
    pub(crate) fn dataset(
        &self,
        blocks: &mut Blocks<'_>,
        object: u64,
    ) -> Result<(DnodePhys, DslDatasetPhys)> {
        let dnode = self.expect(blocks, object)?;
        if dnode.bonus_kind() != ObjectType::DSL_DATASET {
            return Err(Unread(format!("object {object} is no data set")));
        }
        let dataset = *DslDatasetPhys::parse(dnode.bonus())?;
        Ok((dnode, dataset))
    }

    /// All entries of the ZAP in an object, as far as they are one number each.
    pub(crate) fn numbers(
        &self,
        blocks: &mut Blocks<'_>,
        object: u64,
    ) -> Result<BTreeMap<Vec<u8>, u64>> {
        let mut out = BTreeMap::new();
        if object == 0 {
            return Ok(out);
        }
        let zap = self.expect(blocks, object)?;
        let mut more = false;
        object::zap_each(blocks, &zap, |entry| {
            more |= out.len() >= object::ENTRIES_MAX;
            if let Some(value) = entry.value.as_u64().filter(|_| !more) {
                out.insert(entry.name, value);
            }
        })?;
        if more {
            return Err(Unread(format!("a ZAP of more than {} entries", object::ENTRIES_MAX)));
        }
        Ok(out)
    }
}
