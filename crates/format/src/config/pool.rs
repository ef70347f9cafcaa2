//! The config of a pool, as a label or the MOS has it, and the short labels of spares and caches.

use super::VdevConfig;
use super::keys::{Builder, Keys};
use crate::nvlist::{Pair, Value};
use crate::{FormatError, NvList, Result};

const WHAT: &str = "pool config";

/// What a label says about its pool or device.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[allow(missing_docs)]
pub enum PoolState {
    /// In use, or not exported before its host went down.
    Active,
    Exported,
    Destroyed,
    /// The device is a spare.
    Spare,
    /// The device is a read cache.
    L2Cache,
    Other(u64),
}

impl PoolState {
    /// From the number on disk.
    pub fn from_id(id: u64) -> Self {
        match id {
            0 => Self::Active,
            1 => Self::Exported,
            2 => Self::Destroyed,
            3 => Self::Spare,
            4 => Self::L2Cache,
            other => Self::Other(other),
        }
    }

    /// The number on disk.
    pub fn id(self) -> u64 {
        match self {
            Self::Active => 0,
            Self::Exported => 1,
            Self::Destroyed => 2,
            Self::Spare => 3,
            Self::L2Cache => 4,
            Self::Other(id) => id,
        }
    }
}

/// Which leaf a label is of.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LabelIds {
    /// Guid of its top-level vdev.
    pub top_guid: u64,
    /// Its own guid.
    pub guid: u64,
    /// It is a spare in use.
    pub is_spare: bool,
    /// It is itself a top-level vdev that holds intent logs. (Of the leaves of a mirror that does,
    /// only the tree says so.)
    pub is_log: bool,
    /// In a label that says that the device is not (yet, or no longer) in the pool, as does its txg
    /// of 0: the txg in which the device was added, or 0 if it was removed.
    pub create_txg: Option<u64>,
}

/// The config of a pool.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PoolConfig {
    /// Version of the pool.
    pub version: u64,
    /// Name of the pool.
    pub name: Vec<u8>,
    /// State of the pool.
    pub state: PoolState,
    /// The txg in which this config was written; 0 in a label: not yet part of a pool.
    pub txg: u64,
    /// Guid of the pool, which is its root vdev's.
    pub pool_guid: u64,
    /// Number of a known damage that the pool has; `None` in old pools.
    pub errata: Option<u64>,
    /// The administrator's words.
    pub comment: Option<Vec<u8>>,
    /// Names of the feature sets that the pool is held to.
    pub compatibility: Option<Vec<u8>>,
    /// Id of the host that has (or had) the pool; 0: none.
    pub hostid: u64,
    /// Name of that host.
    pub hostname: Option<Vec<u8>>,
    /// Each vdev has ZAPs of its own (in the MOS only).
    pub has_per_vdev_zaps: bool,
    /// In a label: which leaf it is of.
    pub label: Option<LabelIds>,
    /// Top-level slots from which vdevs were removed.
    pub holes: Vec<u64>,
    /// Top-level slots, holes included; `None` in very old pools.
    pub vdev_children: Option<u64>,
    /// While a mirror is split off: the guid of the new pool.
    pub split_guid: Option<u64>,
    /// In a label the leaf's top-level vdev, in the MOS the root.
    pub vdev_tree: VdevConfig,
    /// Features that a reader must know; the kernel writes an empty list for pools without features.
    pub features_for_read: Option<Vec<Vec<u8>>>,
    /// Keys that are not known here.
    pub unknown: Vec<Pair>,
}

impl PoolConfig {
    /// Reads the config of a pool from a label or the MOS.
    pub fn from_nvlist(list: &NvList) -> Result<Self> {
        let mut keys = Keys::new(WHAT, list)?;
        let k = &mut keys;
        let mut config = PoolConfig {
            version: k.needed_word("version")?,
            name: k.needed_string("name")?,
            state: PoolState::from_id(k.needed_word("state")?),
            txg: k.needed_word("txg")?,
            pool_guid: k.needed_word("pool_guid")?,
            errata: k.word("errata")?,
            comment: k.string("comment")?,
            compatibility: k.string("compatibility")?,
            hostid: k.word("hostid")?.unwrap_or(0),
            hostname: k.string("hostname")?,
            has_per_vdev_zaps: k.boolean("com.delphix:has_per_vdev_zaps")?,
            label: None,
            holes: k.words("hole_array")?,
            vdev_children: k.word("vdev_children")?,
            split_guid: k.word("split_guid")?,
            vdev_tree: VdevConfig::from_nvlist(k.needed_list("vdev_tree")?)?,
            features_for_read: k.list("features_for_read")?.map(names),
            unknown: Vec::new(),
        };
        if let Some(top_guid) = k.word("top_guid")? {
            config.label = Some(LabelIds {
                top_guid,
                guid: k.needed_word("guid")?,
                is_spare: k.flag("is_spare")?,
                is_log: k.flag("is_log")?,
                create_txg: k.word("create_txg")?,
            });
        }
        config.unknown = keys.rest();
        Ok(config)
    }

    /// The config with keys in the kernel's order, as for a label if [`PoolConfig::label`] is
    /// there, else as for the MOS.
    pub fn to_nvlist(&self) -> NvList {
        let mut b = Builder::default();
        b.word("version", self.version);
        b.put("name", Value::String(self.name.clone()));
        b.word("state", self.state.id());
        b.word("txg", self.txg);
        b.word("pool_guid", self.pool_guid);
        b.word("errata", self.errata);
        b.string("comment", self.comment.as_ref());
        b.string("compatibility", self.compatibility.as_ref());
        b.nonzero("hostid", self.hostid);
        b.string("hostname", self.hostname.as_ref());
        b.boolean("com.delphix:has_per_vdev_zaps", self.has_per_vdev_zaps);
        if let Some(label) = self.label {
            b.word("top_guid", label.top_guid);
            b.word("guid", label.guid);
            b.flag("is_spare", label.is_spare);
            b.flag("is_log", label.is_log);
        }
        if !self.holes.is_empty() {
            b.put("hole_array", Value::U64Array(self.holes.clone()));
        }
        b.word("vdev_children", self.vdev_children);
        b.word("split_guid", self.split_guid);
        b.put("vdev_tree", Value::List(self.vdev_tree.to_nvlist()));
        if let Some(features) = &self.features_for_read {
            let mut list = NvList::new();
            features.iter().for_each(|name| list.put_boolean(name));
            b.put("features_for_read", Value::List(list));
        }
        b.word("create_txg", self.label.and_then(|l| l.create_txg));
        b.finish(&self.unknown)
    }

    /// The config for the labels of one leaf, from the config of the whole pool.
    ///
    /// `None` if no leaf below a top-level vdev has this guid.
    pub fn for_leaf(&self, guid: u64) -> Option<PoolConfig> {
        let has_leaf = |top: &&VdevConfig| top.leaves().any(|leaf| leaf.guid == guid);
        let top = self.vdev_tree.children.iter().find(has_leaf)?;
        let label = LabelIds {
            top_guid: top.guid,
            guid,
            is_spare: top.find(guid).is_some_and(|leaf| leaf.is_spare),
            is_log: top.guid == guid && top.top.is_some_and(|t| t.is_log),
            create_txg: None,
        };
        Some(PoolConfig {
            label: Some(label),
            has_per_vdev_zaps: false,
            vdev_tree: top.for_label(),
            ..self.clone()
        })
    }
}

/// The names in a list.
fn names(list: &NvList) -> Vec<Vec<u8>> {
    list.pairs().iter().map(|p| p.name.clone()).collect()
}

/// The label of a spare that is not in use, or of a cache device.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AuxLabel {
    /// Version of the pool that it was added to.
    pub version: u64,
    /// [`PoolState::Spare`] or [`PoolState::L2Cache`].
    pub state: PoolState,
    /// Guid of the device.
    pub guid: u64,
    /// Keys that are not known here.
    pub unknown: Vec<Pair>,
}

impl AuxLabel {
    /// The label with keys in the kernel's order.
    pub fn to_nvlist(&self) -> NvList {
        let mut b = Builder::default();
        b.word("version", self.version);
        b.word("state", self.state.id());
        b.word("guid", self.guid);
        b.finish(&self.unknown)
    }
}

/// What the config of a label is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Label {
    /// A leaf of a pool.
    Member(Box<PoolConfig>),
    /// A spare that is not in use, or a cache device.
    Aux(AuxLabel),
}

impl Label {
    /// Reads the config of a label.
    pub fn from_nvlist(list: &NvList) -> Result<Self> {
        let state = list.u64("state").map(PoolState::from_id);
        if let Some(state @ (PoolState::Spare | PoolState::L2Cache)) = state {
            let mut keys = Keys::new("label", list)?;
            keys.word("state")?;
            let (version, guid) = (keys.needed_word("version")?, keys.needed_word("guid")?);
            return Ok(Label::Aux(AuxLabel { version, state, guid, unknown: keys.rest() }));
        }
        let config = PoolConfig::from_nvlist(list)?;
        if config.label.is_none() {
            return Err(FormatError::Missing { what: "label", field: "top_guid" });
        }
        Ok(Label::Member(Box::new(config)))
    }

    /// The config with keys in the kernel's order.
    pub fn to_nvlist(&self) -> NvList {
        match self {
            Label::Member(config) => config.to_nvlist(),
            Label::Aux(label) => label.to_nvlist(),
        }
    }
}

/// Reads the MOS object of spares (`key` is `spares`) or of caches (`l2cache`).
pub fn aux_from_nvlist(list: &NvList, key: &'static str) -> Result<Vec<VdevConfig>> {
    let vdevs = Keys::new("auxiliary vdevs", list)?.lists(key)?;
    vdevs.iter().map(VdevConfig::from_nvlist).collect()
}

/// The list for the MOS object of spares (`key` is `spares`) or of caches (`l2cache`).
pub fn aux_to_nvlist(vdevs: &[VdevConfig], key: &'static str) -> NvList {
    let mut b = Builder::default();
    b.put(key, Value::ListArray(vdevs.iter().map(VdevConfig::to_nvlist).collect()));
    b.finish(&[])
}
