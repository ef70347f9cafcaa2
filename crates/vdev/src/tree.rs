//! The vdevs of a pool: top-level vdevs, their leaves, and what is known of each leaf.
//!
//! Place: what `store` and `verify` read blocks through; [`crate::WriteTree`] adds writing.
//! The one idea: every top-level vdev is an array of *slots*, and a slot is a list of leaves that
//! hold the same bytes. A disk is one slot of one leaf, a mirror one slot of many, a raidz a slot
//! per child; replacing and spare vdevs only add leaves to a slot. So two layouts and one loop
//! over leaves cover every shape.
//!
//! Nothing here changes while the tree is in use but counters (atomic): no lock per block.

use crate::error::{Result, VdevError};
use crate::raidz::{ASHIFT_MAX, ASHIFT_MIN, Geometry};
use crate::sizes::Layout;
use crate::spec::{Kind, Spec};
use device::{Device, DeviceError};
use rt::sync::Arc;
use rt::sync::atomic::{AtomicU64, Ordering};
use std::collections::BTreeMap;

/// What is known of a leaf.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum LeafState {
    /// Its device is there and its label says that it is this leaf.
    Online,
    /// No device has its label.
    Missing,
    /// Its device could not be opened.
    CannotOpen(DeviceError),
    /// There is a device at its path, whose labels are unreadable or another's. Its bytes are
    /// tried when all else failed, and only where a checksum decides.
    BadLabel,
    /// The config says that it is offline, faulted or removed: it may lack recent blocks.
    /// Treated as [`LeafState::BadLabel`] when read.
    Retired,
}

impl LeafState {
    /// May the leaf be read like any other?
    pub fn is_online(&self) -> bool {
        *self == LeafState::Online
    }
}

/// A device that was found for a leaf.
pub struct Found {
    /// The device.
    pub device: Arc<dyn Device>,
    /// Do its labels say that it is this leaf?
    pub labelled: bool,
}

/// Errors of a leaf since the tree was opened.
#[derive(Debug, Default)]
pub struct Counters {
    read: AtomicU64,
    write: AtomicU64,
    checksum: AtomicU64,
}

/// A reading of [`Counters`].
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ErrorCounts {
    /// Reads that failed.
    pub read: u64,
    /// Writes and flushes that failed.
    pub write: u64,
    /// Pieces whose bytes were wrong.
    pub checksum: u64,
}

impl Counters {
    pub(crate) fn add_read(&self) {
        self.read.fetch_add(1, Ordering::Relaxed);
    }

    pub(crate) fn add_write(&self) {
        self.write.fetch_add(1, Ordering::Relaxed);
    }

    pub(crate) fn add_checksum(&self) {
        self.checksum.fetch_add(1, Ordering::Relaxed);
    }

    /// The counts now.
    pub fn get(&self) -> ErrorCounts {
        ErrorCounts {
            read: self.read.load(Ordering::Relaxed),
            write: self.write.load(Ordering::Relaxed),
            checksum: self.checksum.load(Ordering::Relaxed),
        }
    }
}

/// A leaf of the pool.
pub struct Leaf {
    /// What the config says of it.
    pub spec: Spec,
    /// Number of its top-level vdev.
    pub top: u32,
    /// Guid of its top-level vdev.
    pub top_guid: u64,
    /// What is known of it.
    pub state: LeafState,
    /// Errors so far.
    pub errors: Counters,
    pub(crate) device: Option<Arc<dyn Device>>,
}

impl Leaf {
    /// Its guid.
    pub fn guid(&self) -> u64 {
        self.spec.guid
    }

    /// What to call it: its device's name, else its path in the config, else its guid.
    pub fn name(&self) -> String {
        match (&self.device, &self.spec.path) {
            (Some(device), _) => device.name().to_owned(),
            (None, Some(path)) => path.clone(),
            (None, None) => format!("{}", self.spec.guid),
        }
    }

    /// Its device, if there is one.
    pub fn device(&self) -> Option<&Arc<dyn Device>> {
        self.device.as_ref()
    }

    /// The device, if the leaf may be read like any other.
    pub(crate) fn online(&self) -> Option<&dyn Device> {
        self.device.as_deref().filter(|_| self.state.is_online())
    }
}

/// A top-level vdev.
pub struct Top {
    /// What the config says of it, its children included.
    pub spec: Spec,
    /// How it lays out blocks; `None` of kinds that cannot be read.
    pub layout: Option<Layout>,
    /// Leaves that hold the same bytes, per child (one slot for a leaf or a mirror).
    pub(crate) slots: Vec<Vec<usize>>,
    /// Blocks that could not be put together.
    pub(crate) lost: AtomicU64,
}

impl Top {
    /// Number of the vdev, as block pointers name it.
    pub fn id(&self) -> u32 {
        self.spec.id as u32
    }

    /// Numbers of the leaves of each slot: see the head of this module.
    pub fn slots(&self) -> &[Vec<usize>] {
        &self.slots
    }

    /// Blocks that could not be put together from what its leaves hold, since the tree was opened.
    pub fn lost_blocks(&self) -> u64 {
        self.lost.load(Ordering::Relaxed)
    }
}

/// The vdevs of a pool, open for reading.
pub struct Tree {
    tops: Vec<Top>,
    leaves: Vec<Leaf>,
}

impl Tree {
    /// The tree that the config describes, on the devices that were found, by leaf guid. Leaves
    /// without a device are allowed: what can be read without them will be.
    pub fn open(tops: Vec<Spec>, mut found: BTreeMap<u64, Found>) -> Result<Tree> {
        let mut tree = Tree { tops: Vec::with_capacity(tops.len()), leaves: Vec::new() };
        for spec in tops {
            let top = tree.add_top(spec, &mut found)?;
            tree.tops.push(top);
        }
        Ok(tree)
    }

    fn add_top(&mut self, spec: Spec, found: &mut BTreeMap<u64, Found>) -> Result<Top> {
        let layout = layout_of(&spec)?;
        let mut slots = Vec::new();
        if spec.kind == Kind::Raidz {
            for child in &spec.children {
                slots.push(self.add_slot(&spec, child, found)?);
            }
        } else if layout.is_some() {
            slots.push(self.add_slot(&spec, &spec, found)?);
        } else {
            // Its leaves are listed, though no block can be read from them.
            self.add_slot(&spec, &spec, found)?;
        }
        Ok(Top { spec, layout, slots, lost: AtomicU64::new(0) })
    }

    /// Adds the leaves below `child`, which all hold the same bytes. Those that are still being
    /// filled come last.
    fn add_slot(
        &mut self,
        top: &Spec,
        child: &Spec,
        found: &mut BTreeMap<u64, Found>,
    ) -> Result<Vec<usize>> {
        let mut slot = Vec::new();
        for spec in child.leaves() {
            let guid = spec.guid;
            if self.leaves.iter().any(|leaf| leaf.spec.guid == guid) {
                let expected = "given to one leaf only";
                return Err(VdevError::Config { guid, field: "guid", seen: guid, expected });
            }
            let found = found.remove(&guid);
            let marks = spec.marks;
            let state = match &found {
                None => LeafState::Missing,
                Some(found) if !found.labelled => LeafState::BadLabel,
                Some(_) if marks.offline || marks.faulted || marks.removed => LeafState::Retired,
                Some(_) => LeafState::Online,
            };
            slot.push(self.leaves.len());
            self.leaves.push(Leaf {
                spec: spec.clone(),
                top: top.id as u32,
                top_guid: top.guid,
                state,
                errors: Counters::default(),
                device: found.map(|found| found.device),
            });
        }
        slot.sort_by_key(|leaf| self.leaves[*leaf].spec.marks.filling);
        Ok(slot)
    }

    /// The top-level slots, holes included, in the order of their numbers.
    pub fn tops(&self) -> &[Top] {
        &self.tops
    }

    /// A top-level vdev by its number.
    pub fn top(&self, top: u32) -> Result<&Top> {
        let tops = self.tops.len();
        self.tops.get(top as usize).ok_or(VdevError::NoSuchTop { top, tops })
    }

    /// All leaves. Reports name leaves by their place in this list.
    pub fn leaves(&self) -> &[Leaf] {
        &self.leaves
    }

    /// The place of a leaf by its guid.
    pub fn leaf_by_guid(&self, guid: u64) -> Option<usize> {
        self.leaves.iter().position(|leaf| leaf.spec.guid == guid)
    }

    /// Notes why a leaf's device could not be opened (it is then known to exist).
    pub fn set_cannot_open(&mut self, guid: u64, error: DeviceError) {
        if let Some(leaf) = self.leaf_by_guid(guid) {
            let leaf = &mut self.leaves[leaf];
            if leaf.state == LeafState::Missing {
                leaf.state = LeafState::CannotOpen(error);
            }
        }
    }

    /// Could every block that the top-level vdev holds be read with the leaves that are online?
    pub fn is_complete(&self, top: u32) -> bool {
        let Ok(top) = self.top(top) else { return false };
        let online = |slot: &&Vec<usize>| slot.iter().any(|l| self.leaves[*l].online().is_some());
        match &top.layout {
            Some(layout) => {
                top.slots.len() - top.slots.iter().filter(online).count() <= layout.parity()
            }
            None => matches!(top.spec.kind, Kind::Hole | Kind::Indirect),
        }
    }

    /// The vdev and its layout, if a block of `size` bytes can lie at `offset` of it.
    pub(crate) fn locate(&self, top: u32, offset: u64, size: usize) -> Result<(&Top, Layout)> {
        let vdev = self.top(top)?;
        let Some(layout) = vdev.layout else {
            return Err(match vdev.spec.kind {
                Kind::Hole | Kind::Missing | Kind::Other => {
                    VdevError::NoSuchTop { top, tops: self.tops.len() }
                }
                kind => VdevError::Unsupported { top, kind: kind.word() },
            });
        };
        let asize = layout.asize(size as u64);
        let ashift = layout.ashift();
        let fits = offset.checked_add(asize).is_some_and(|end| end <= vdev.spec.asize);
        if size == 0 || !fits || offset & ((1 << ashift) - 1) != 0 {
            let (size, asize) = (size as u64, vdev.spec.asize);
            return Err(VdevError::BadAddress { top, offset, size, asize, ashift });
        }
        Ok((vdev, layout))
    }
}

/// The layout of a top-level vdev, `None` if its kind is not one that holds blocks of its own.
fn layout_of(spec: &Spec) -> Result<Option<Layout>> {
    let raidz = match spec.kind {
        Kind::Raidz => true,
        kind if kind.is_leaf() || kind.is_mirror() => false,
        _ => return Ok(None),
    };
    let wrong =
        |field, seen, expected| VdevError::Config { guid: spec.guid, field, seen, expected };
    let ashift = u32::try_from(spec.ashift).unwrap_or(u32::MAX);
    if !(ASHIFT_MIN..=ASHIFT_MAX).contains(&ashift) {
        return Err(wrong("ashift", spec.ashift, "between 9 and 16"));
    }
    if spec.asize == 0 || spec.asize > 1 << 60 {
        return Err(wrong("asize", spec.asize, "above zero and below 2^60"));
    }
    if !raidz {
        return Ok(Some(Layout::Plain { ashift }));
    }
    // Pools older than double parity do not say how much they have.
    let parity = spec.nparity.max(1) as usize;
    match Geometry::new(ashift, spec.children.len(), parity) {
        Some(geometry) => Ok(Some(Layout::Raidz(geometry))),
        None => Err(wrong("nparity", spec.nparity, "1 to 3 and below the number of children")),
    }
}
