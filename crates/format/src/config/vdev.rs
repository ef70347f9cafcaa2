//! One node of the tree of vdevs, with its children.

use super::keys::{Builder, Keys};
use crate::label::{ASHIFT_MAX, ASHIFT_MIN};
use crate::nvlist::{Pair, Value};
use crate::{FormatError, NvList, Result};

const WHAT: &str = "vdev config";

/// What a vdev is.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
#[allow(missing_docs)]
pub enum VdevKind {
    Root,
    Mirror,
    /// A mirror of a leaf and the one that takes its place.
    Replacing,
    /// A mirror of a leaf and the spare that stands in for it.
    Spare,
    Raidz,
    Draid,
    /// A leaf: a block device.
    Disk,
    /// A leaf: a file.
    File,
    /// A top-level vdev that was not there when the config was written.
    Missing,
    /// The place of a removed log vdev.
    Hole,
    /// A removed vdev, whose blocks are elsewhere.
    Indirect,
    /// A leaf: spare space distributed over a draid vdev.
    DraidSpare,
    Other(Vec<u8>),
}

/// Kinds and their names on disk.
const KINDS: [(VdevKind, &str); 12] = [
    (VdevKind::Root, "root"),
    (VdevKind::Mirror, "mirror"),
    (VdevKind::Replacing, "replacing"),
    (VdevKind::Spare, "spare"),
    (VdevKind::Raidz, "raidz"),
    (VdevKind::Draid, "draid"),
    (VdevKind::Disk, "disk"),
    (VdevKind::File, "file"),
    (VdevKind::Missing, "missing"),
    (VdevKind::Hole, "hole"),
    (VdevKind::Indirect, "indirect"),
    (VdevKind::DraidSpare, "dspare"),
];

impl VdevKind {
    /// From the name on disk.
    pub fn from_name(name: &[u8]) -> VdevKind {
        let known = KINDS.iter().find(|(_, n)| n.as_bytes() == name);
        known.map_or_else(|| VdevKind::Other(name.to_vec()), |(kind, _)| kind.clone())
    }

    /// The name on disk.
    pub fn name(&self) -> &[u8] {
        match self {
            VdevKind::Other(name) => name,
            known => KINDS.iter().find(|(k, _)| k == known).map_or(b"", |(_, n)| n.as_bytes()),
        }
    }

    /// Has it a device of its own (or could have)?
    pub fn is_leaf(&self) -> bool {
        matches!(self, VdevKind::Disk | VdevKind::File | VdevKind::DraidSpare)
    }
}

/// What only a top-level vdev has.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct TopConfig {
    /// Object with the space map objects of its metaslabs; 0: none yet.
    pub metaslab_array: u64,
    /// log2 of the size of its metaslabs.
    pub metaslab_shift: u64,
    /// log2 of the smallest I/O.
    pub ashift: u64,
    /// Bytes that can be allocated, metaslabs or not.
    pub asize: u64,
    /// It holds intent logs only.
    pub is_log: bool,
    /// It is being removed.
    pub removing: bool,
}

/// Geometry of a draid vdev.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Draid {
    /// Data columns of a group.
    pub data: u64,
    /// Distributed spares.
    pub spares: u64,
    /// Groups in a row of slices.
    pub groups: u64,
}

/// Which distributed spare a leaf is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DraidSpare {
    /// Guid of the draid vdev.
    pub top_guid: u64,
    /// Number of the spare in it.
    pub spare_id: u64,
}

/// Objects of a removed (or being removed) vdev.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Indirect {
    /// Object with the mapping.
    pub object: u64,
    /// Object with the births of what was copied.
    pub births: Option<u64>,
    /// The vdev that was removed before.
    pub previous_vdev: Option<u64>,
}

/// A node of the tree.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct VdevConfig {
    /// What it is.
    pub kind: VdevKind,
    /// Its index among its parent's children; waiting spares and caches have none.
    pub id: Option<u64>,
    /// Its guid, unique in the pool; 0 of a hole.
    pub guid: u64,
    /// Path of the device.
    pub path: Option<Vec<u8>>,
    /// Identity of the device, whatever its path.
    pub devid: Option<Vec<u8>>,
    /// Where the device is plugged in.
    pub phys_path: Option<Vec<u8>>,
    /// Path of the enclosure's slot.
    pub enclosure_path: Option<Vec<u8>>,
    /// Name of the field replaceable unit.
    pub fru: Option<Vec<u8>>,
    /// Parity of a raidz or draid vdev.
    pub nparity: Option<u64>,
    /// Geometry of a draid vdev.
    pub draid: Option<Draid>,
    /// Identity of a distributed spare.
    pub draid_spare: Option<DraidSpare>,
    /// The kernel partitioned the disk.
    pub whole_disk: Option<bool>,
    /// The leaf was missing when the config was written.
    pub not_present: bool,
    /// The leaf is a spare.
    pub is_spare: bool,
    /// What only a top-level vdev has.
    pub top: Option<TopConfig>,
    /// Object with the space map of the leaf's missing txgs.
    pub dtl: Option<u64>,
    /// Objects of a removed vdev.
    pub indirect: Option<Indirect>,
    /// The txg in which it was added; 0 if that is not known.
    pub create_txg: u64,
    /// When it was expanded, in seconds since 1970; 0: never.
    pub expansion_time: u64,
    /// ZAP of the leaf (in the MOS only).
    pub zap_leaf: Option<u64>,
    /// ZAP of the top-level vdev (in the MOS only).
    pub zap_top: Option<u64>,
    /// Its resilver waits for the running one.
    pub resilver_defer: bool,
    /// Children, in order.
    pub children: Vec<VdevConfig>,
    /// Taken offline by the administrator.
    pub offline: bool,
    /// The txg at which its resilver started; 0: none is under way.
    pub resilver_txg: u64,
    /// The txg at which its rebuild started; 0: none is under way.
    pub rebuild_txg: u64,
    /// Had too many errors, or was faulted by the administrator.
    pub faulted: bool,
    /// Has had errors.
    pub degraded: bool,
    /// The device was removed.
    pub removed: bool,
    /// Its spare is to be detached.
    pub unspare: bool,
    /// The place of a removed log vdev.
    pub is_hole: bool,
    /// Why it is faulted: `err_exceeded` or `external`.
    pub aux_state: Option<Vec<u8>>,
    /// Guid before a split.
    pub orig_guid: u64,
    /// Keys that are not known here.
    pub unknown: Vec<Pair>,
}

impl VdevConfig {
    /// A node without children that has neither been added to a pool nor opened.
    pub fn new(kind: VdevKind, id: impl Into<Option<u64>>, guid: u64) -> Self {
        VdevConfig {
            kind,
            id: id.into(),
            guid,
            path: None,
            devid: None,
            phys_path: None,
            enclosure_path: None,
            fru: None,
            nparity: None,
            draid: None,
            draid_spare: None,
            whole_disk: None,
            not_present: false,
            is_spare: false,
            top: None,
            dtl: None,
            indirect: None,
            create_txg: 0,
            expansion_time: 0,
            zap_leaf: None,
            zap_top: None,
            resilver_defer: false,
            children: Vec::new(),
            offline: false,
            resilver_txg: 0,
            rebuild_txg: 0,
            faulted: false,
            degraded: false,
            removed: false,
            unspare: false,
            is_hole: false,
            aux_state: None,
            orig_guid: 0,
            unknown: Vec::new(),
        }
    }

    /// Reads a node and its children.
    ///
    /// Errors name the key that is missing, of another type, or beyond what a vdev can be; the
    /// nesting is bounded by the list's.
    pub fn from_nvlist(list: &NvList) -> Result<Self> {
        let mut keys = Keys::new(WHAT, list)?;
        let k = &mut keys;
        let kind = VdevKind::from_name(&k.needed_string("type")?);
        let vdev = VdevConfig {
            id: k.word("id")?,
            guid: k.needed_word("guid")?,
            path: k.string("path")?,
            devid: k.string("devid")?,
            phys_path: k.string("phys_path")?,
            enclosure_path: k.string("vdev_enc_sysfs_path")?,
            fru: k.string("fru")?,
            // Pools of versions 1 and 2 need not say it: they have one parity.
            nparity: k.word("nparity")?.or((kind == VdevKind::Raidz).then_some(1)),
            draid: read_draid(k, &kind)?,
            draid_spare: read_draid_spare(k, &kind)?,
            whole_disk: k.word("whole_disk")?.map(|v| v != 0),
            not_present: k.flag("not_present")?,
            is_spare: k.flag("is_spare")?,
            top: read_top(k, &kind)?,
            dtl: k.word("DTL")?,
            indirect: read_indirect(k)?,
            create_txg: k.word("create_txg")?.unwrap_or(0),
            expansion_time: k.word("expansion_time")?.unwrap_or(0),
            zap_leaf: k.word("com.delphix:vdev_zap_leaf")?,
            zap_top: k.word("com.delphix:vdev_zap_top")?,
            resilver_defer: k.boolean("com.datto:resilver_defer")?,
            children: k.lists("children")?.iter().map(Self::from_nvlist).collect::<Result<_>>()?,
            offline: k.flag("offline")?,
            resilver_txg: k.word("resilver_txg")?.unwrap_or(0),
            rebuild_txg: k.word("rebuild_txg")?.unwrap_or(0),
            faulted: k.flag("faulted")?,
            degraded: k.flag("degraded")?,
            removed: k.flag("removed")?,
            unspare: k.flag("unspare")?,
            is_hole: k.flag("is_hole")?,
            aux_state: k.string("aux_state")?,
            orig_guid: k.word("orig_guid")?.unwrap_or(0),
            kind,
            unknown: keys.rest(),
        };
        vdev.check()?;
        Ok(vdev)
    }

    /// Refuses what no reader could work with.
    fn check(&self) -> Result<()> {
        let error =
            |field, seen, expected| Err(FormatError::Field { what: WHAT, field, seen, expected });
        if let (VdevKind::Raidz | VdevKind::Draid, nparity) = (&self.kind, self.nparity) {
            let nparity = nparity.unwrap_or(0);
            if !(1..=3).contains(&nparity) {
                return error("nparity", nparity, "1 to 3");
            }
        }
        let has_space = !matches!(self.kind, VdevKind::Hole | VdevKind::Missing);
        if let Some(top) = self.top.filter(|_| has_space) {
            if !(ASHIFT_MIN..=ASHIFT_MAX).contains(&top.ashift) {
                return error("ashift", top.ashift, "9 to 16");
            }
            if top.metaslab_shift >= 64 {
                return error("metaslab_shift", top.metaslab_shift, "at most 63");
            }
        }
        if self.kind.is_leaf() && !self.children.is_empty() {
            return error("children", self.children.len() as u64, "none of a leaf");
        }
        Ok(())
    }

    /// The node and its children with keys in the kernel's order.
    pub fn to_nvlist(&self) -> NvList {
        let mut b = Builder::default();
        b.put("type", Value::String(self.kind.name().to_vec()));
        b.word("id", self.id);
        b.word("guid", self.guid);
        b.string("path", self.path.as_ref());
        b.string("devid", self.devid.as_ref());
        b.string("phys_path", self.phys_path.as_ref());
        b.string("vdev_enc_sysfs_path", self.enclosure_path.as_ref());
        b.string("fru", self.fru.as_ref());
        b.word("nparity", self.nparity);
        if let Some(draid) = self.draid {
            b.word("draid_ndata", draid.data);
            b.word("draid_nspares", draid.spares);
            b.word("draid_ngroups", draid.groups);
        }
        if let Some(spare) = self.draid_spare {
            b.word("top_guid", spare.top_guid);
            b.word("spareid", spare.spare_id);
        }
        b.word("whole_disk", self.whole_disk.map(u64::from));
        b.flag("not_present", self.not_present);
        b.flag("is_spare", self.is_spare);
        if let Some(top) = self.top {
            b.word("metaslab_array", top.metaslab_array);
            b.word("metaslab_shift", top.metaslab_shift);
            b.word("ashift", top.ashift);
            b.word("asize", top.asize);
            b.word("is_log", u64::from(top.is_log));
            b.flag("removing", top.removing);
        }
        b.word("DTL", self.dtl);
        if let Some(indirect) = self.indirect {
            b.word("com.delphix:indirect_object", indirect.object);
            b.word("com.delphix:indirect_births", indirect.births);
            b.word("com.delphix:prev_indirect_vdev", indirect.previous_vdev);
        }
        b.nonzero("create_txg", self.create_txg);
        b.nonzero("expansion_time", self.expansion_time);
        b.word("com.delphix:vdev_zap_leaf", self.zap_leaf);
        b.word("com.delphix:vdev_zap_top", self.zap_top);
        b.boolean("com.datto:resilver_defer", self.resilver_defer);
        if !self.children.is_empty() {
            let children = self.children.iter().map(Self::to_nvlist).collect();
            b.put("children", Value::ListArray(children));
        }
        b.flag("offline", self.offline);
        b.nonzero("resilver_txg", self.resilver_txg);
        b.nonzero("rebuild_txg", self.rebuild_txg);
        b.flag("faulted", self.faulted);
        b.flag("degraded", self.degraded);
        b.flag("removed", self.removed);
        b.flag("unspare", self.unspare);
        b.flag("is_hole", self.is_hole);
        b.string("aux_state", self.aux_state.as_ref());
        b.nonzero("orig_guid", self.orig_guid);
        b.finish(&self.unknown)
    }

    /// The tree as labels have it: without what only the MOS says.
    pub fn for_label(&self) -> VdevConfig {
        let mut vdev = self.clone();
        vdev.zap_leaf = None;
        vdev.zap_top = None;
        vdev.resilver_defer = false;
        vdev.children = self.children.iter().map(Self::for_label).collect();
        vdev
    }

    /// Sum of the guids of this node and all below, as an uberblock has it for the root.
    pub fn guid_sum(&self) -> u64 {
        self.walk().fold(0, |sum, vdev| sum.wrapping_add(vdev.guid))
    }

    /// This node and all below, parents before children, in order.
    pub fn walk(&self) -> impl Iterator<Item = &VdevConfig> {
        let mut stack = vec![self];
        std::iter::from_fn(move || {
            let vdev = stack.pop()?;
            stack.extend(vdev.children.iter().rev());
            Some(vdev)
        })
    }

    /// The leaves, in order.
    pub fn leaves(&self) -> impl Iterator<Item = &VdevConfig> {
        self.walk().filter(|vdev| vdev.kind.is_leaf())
    }

    /// The node of this guid.
    pub fn find(&self, guid: u64) -> Option<&VdevConfig> {
        self.walk().find(|vdev| vdev.guid == guid)
    }

    /// The node of this guid, to be changed.
    pub fn find_mut(&mut self, guid: u64) -> Option<&mut VdevConfig> {
        if self.guid == guid {
            return Some(self);
        }
        self.children.iter_mut().find_map(|child| child.find_mut(guid))
    }
}

fn read_draid(k: &mut Keys<'_>, kind: &VdevKind) -> Result<Option<Draid>> {
    if *kind != VdevKind::Draid {
        return Ok(None);
    }
    Ok(Some(Draid {
        data: k.needed_word("draid_ndata")?,
        spares: k.needed_word("draid_nspares")?,
        groups: k.needed_word("draid_ngroups")?,
    }))
}

fn read_draid_spare(k: &mut Keys<'_>, kind: &VdevKind) -> Result<Option<DraidSpare>> {
    if *kind != VdevKind::DraidSpare {
        return Ok(None);
    }
    Ok(Some(DraidSpare {
        top_guid: k.needed_word("top_guid")?,
        spare_id: k.needed_word("spareid")?,
    }))
}

fn read_top(k: &mut Keys<'_>, kind: &VdevKind) -> Result<Option<TopConfig>> {
    let (array, shift) = (k.word("metaslab_array")?, k.word("metaslab_shift")?);
    let (ashift, asize) = (k.word("ashift")?, k.word("asize")?);
    let (is_log, removing) = (k.word("is_log")?, k.flag("removing")?);
    let none = [array, shift, ashift, asize, is_log].iter().all(Option::is_none);
    if none || *kind == VdevKind::Root {
        return Ok(None);
    }
    Ok(Some(TopConfig {
        metaslab_array: array.unwrap_or(0),
        metaslab_shift: shift.unwrap_or(0),
        ashift: ashift.unwrap_or(0),
        asize: asize.unwrap_or(0),
        is_log: is_log.unwrap_or(0) != 0,
        removing,
    }))
}

fn read_indirect(k: &mut Keys<'_>) -> Result<Option<Indirect>> {
    let object = k.word("com.delphix:indirect_object")?;
    let births = k.word("com.delphix:indirect_births")?;
    let previous_vdev = k.word("com.delphix:prev_indirect_vdev")?;
    Ok(object.map(|object| Indirect { object, births, previous_vdev }))
}
