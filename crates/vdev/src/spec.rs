//! The vdev tree as a config describes it, before any device is known.
//!
//! Place: between the nvlists of labels and MOS, and [`crate::Tree`].
//! The one idea: what is needed of the config's words is read once, with bounds; the nvlist itself
//! is kept by who writes it back. FORMAT: sections 1.4 and 13.3.

use crate::error::{Result, VdevError};
use format::nvlist::NvList;

/// Most children of one vdev.
pub const CHILDREN_MAX: usize = 255;
/// Most top-level slots that are believed.
pub const TOPS_MAX: usize = 1 << 16;
/// Nesting below a top-level vdev: raidz, spare, replacing, leaf, and one to spare.
const DEPTH_MAX: usize = 5;

/// What kind of vdev a node of the tree is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// A regular file.
    File,
    /// A block device.
    Disk,
    /// Children with the same bytes.
    Mirror,
    /// A mirror of an old leaf and its successor.
    Replacing,
    /// A mirror of a failed leaf and the spare that stands in.
    Spare,
    /// Children with columns and parity.
    Raidz,
    /// Distributed raidz.
    Draid,
    /// A distributed spare (a leaf without a device of its own).
    DraidSpare,
    /// The slot of a removed log vdev.
    Hole,
    /// A top-level vdev that the config could not describe.
    Missing,
    /// A removed vdev, whose blocks were copied to others.
    Indirect,
    /// The root, or a word that is not known.
    Other,
}

impl Kind {
    fn from_word(word: &[u8]) -> Kind {
        match word {
            b"file" => Kind::File,
            b"disk" => Kind::Disk,
            b"mirror" => Kind::Mirror,
            b"replacing" => Kind::Replacing,
            b"spare" => Kind::Spare,
            b"raidz" => Kind::Raidz,
            b"draid" => Kind::Draid,
            b"dspare" => Kind::DraidSpare,
            b"hole" => Kind::Hole,
            b"missing" => Kind::Missing,
            b"indirect" => Kind::Indirect,
            _ => Kind::Other,
        }
    }

    /// The word of the config.
    pub fn word(self) -> &'static str {
        match self {
            Kind::File => "file",
            Kind::Disk => "disk",
            Kind::Mirror => "mirror",
            Kind::Replacing => "replacing",
            Kind::Spare => "spare",
            Kind::Raidz => "raidz",
            Kind::Draid => "draid",
            Kind::DraidSpare => "dspare",
            Kind::Hole => "hole",
            Kind::Missing => "missing",
            Kind::Indirect => "indirect",
            Kind::Other => "unknown",
        }
    }

    /// Has it a device of its own?
    pub fn is_leaf(self) -> bool {
        matches!(self, Kind::File | Kind::Disk)
    }

    /// Do all children hold the same bytes?
    pub fn is_mirror(self) -> bool {
        matches!(self, Kind::Mirror | Kind::Replacing | Kind::Spare)
    }
}

/// What the config remembers of a leaf's health.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Marks {
    /// Taken offline by the administrator.
    pub offline: bool,
    /// Given up after too many errors.
    pub faulted: bool,
    /// Degraded after errors.
    pub degraded: bool,
    /// Was pulled out.
    pub removed: bool,
    /// Was not there when the config was written.
    pub not_present: bool,
    /// Is being filled (resilvered or rebuilt): it lacks what was written before.
    pub filling: bool,
    /// Comes from the spares.
    pub is_spare: bool,
}

/// A vdev of the config's tree.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Spec {
    /// Its kind.
    pub kind: Kind,
    /// Its number among its siblings.
    pub id: u64,
    /// Its guid; 0 of a hole.
    pub guid: u64,
    /// Path of its device.
    pub path: Option<String>,
    /// Parity columns, of raidz and draid.
    pub nparity: u64,
    /// log2 of the sector size (top-level only).
    pub ashift: u64,
    /// Allocatable bytes (top-level only).
    pub asize: u64,
    /// Object of the array of space maps (top-level only).
    pub metaslab_array: u64,
    /// log2 of the metaslab size (top-level only).
    pub metaslab_shift: u64,
    /// Is it for the intent log only (top-level)?
    pub is_log: bool,
    /// Is the device a whole disk with a partition table of ours?
    pub whole_disk: bool,
    /// Object of the dirty time log of a leaf, 0 if none.
    pub dtl: u64,
    /// The txg in which the vdev joined, 0 if not said.
    pub create_txg: u64,
    /// State of a leaf.
    pub marks: Marks,
    /// Its children, in order.
    pub children: Vec<Spec>,
}

impl Spec {
    /// Reads one vdev and what is below it.
    pub fn parse(list: &NvList) -> Result<Spec> {
        Self::parse_at(list, 0)
    }

    /// Reads the top-level vdevs of a root (`vdev_tree` of the MOS config).
    pub fn parse_root(root: &NvList) -> Result<Vec<Spec>> {
        let children = root.list_array("children").unwrap_or_default();
        let guid = root.u64("guid").unwrap_or(0);
        bounded(guid, children.len(), TOPS_MAX)?;
        let tops = children.iter().map(Spec::parse).collect::<Result<Vec<_>>>()?;
        check_ids(guid, &tops)?;
        Ok(tops)
    }

    fn parse_at(list: &NvList, depth: usize) -> Result<Spec> {
        let word = |name: &str| list.u64(name).unwrap_or(0);
        let flag = |name: &str| word(name) != 0;
        let guid = word("guid");
        let kind = Kind::from_word(list.string("type").unwrap_or_default());
        let children = list.list_array("children").unwrap_or_default();
        bounded(guid, children.len(), CHILDREN_MAX)?;
        if depth >= DEPTH_MAX {
            let (field, seen) = ("nesting", depth as u64);
            return Err(VdevError::Config { guid, field, seen, expected: "at most 4" });
        }
        let parse = |child: &NvList| Self::parse_at(child, depth + 1);
        let children = children.iter().map(parse).collect::<Result<Vec<_>>>()?;
        check_ids(guid, &children)?;
        Ok(Spec {
            kind,
            id: word("id"),
            guid,
            path: list.text("path").map(|text| text.into_owned()),
            nparity: word("nparity"),
            ashift: word("ashift"),
            asize: word("asize"),
            metaslab_array: word("metaslab_array"),
            metaslab_shift: word("metaslab_shift"),
            is_log: flag("is_log"),
            whole_disk: flag("whole_disk"),
            dtl: word("DTL"),
            create_txg: word("create_txg"),
            marks: Marks {
                offline: flag("offline"),
                faulted: flag("faulted"),
                degraded: flag("degraded"),
                removed: flag("removed"),
                not_present: flag("not_present"),
                filling: flag("resilver_txg") || flag("rebuild_txg"),
                is_spare: flag("is_spare"),
            },
            children,
        })
    }

    /// A stand-in for a top-level vdev of which no label was found.
    pub fn missing(id: u64) -> Spec {
        Spec {
            kind: Kind::Missing,
            id,
            guid: 0,
            path: None,
            nparity: 0,
            ashift: 0,
            asize: 0,
            metaslab_array: 0,
            metaslab_shift: 0,
            is_log: false,
            whole_disk: false,
            dtl: 0,
            create_txg: 0,
            marks: Marks::default(),
            children: Vec::new(),
        }
    }

    /// The leaves of this vdev, itself if it is one, in order.
    pub fn leaves(&self) -> Vec<&Spec> {
        let mut out = Vec::new();
        self.collect_leaves(&mut out);
        out
    }

    fn collect_leaves<'a>(&'a self, out: &mut Vec<&'a Spec>) {
        if self.kind.is_leaf() || self.kind == Kind::DraidSpare {
            out.push(self);
        }
        // Bounded: parsing refused deeper trees.
        self.children.iter().for_each(|child| child.collect_leaves(out));
    }

    /// Sum of the guids of this vdev and of all below it, as it enters an uberblock's guid sum.
    pub fn guid_sum(&self) -> u64 {
        self.children.iter().fold(self.guid, |sum, child| sum.wrapping_add(child.guid_sum()))
    }
}

fn bounded(guid: u64, children: usize, max: usize) -> Result<()> {
    if children <= max {
        return Ok(());
    }
    let (field, seen) = ("number of children", children as u64);
    Err(VdevError::Config { guid, field, seen, expected: "fewer" })
}

/// Each child's id is its place among the children: block pointers name tops by it.
fn check_ids(guid: u64, children: &[Spec]) -> Result<()> {
    match children.iter().zip(0..).find(|(child, index)| child.id != *index) {
        None => Ok(()),
        Some((child, _)) => {
            let expected = "its place among the children";
            Err(VdevError::Config { guid, field: "id of a child", seen: child.id, expected })
        }
    }
}
