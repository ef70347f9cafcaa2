//! The vdevs of a pool: top-level vdevs, their leaves, and what is known of each leaf.
//!
//! Place: what `store` and `verify` read blocks through; [`crate::WriteTree`] adds writing.
//! The one idea: every top-level vdev is an array of *slots*, and a slot is a list of leaves that
//! hold the same bytes. A disk is one slot of one leaf, a mirror one slot of many, a raidz a slot
//! per child; replacing and spare vdevs only add leaves to a slot. So two layouts and one loop
//! over leaves cover every shape.
//!
//! Nothing here changes while the tree is in use but counters (atomic): no lock per block. When the pool's vdevs
//! change, a new tree takes its place ([`crate::Present`]), and takes over what is known of leaves and top-level
//! vdevs that are in both.

use crate::error::{Result, VdevError};
use crate::indirect::Mappings;
use crate::lacks::Lacks;
use crate::raidz::{ASHIFTS, DISKS_MAX, Geometry};
use crate::seen::Verdict;
use crate::sizes::Layout;
use device::Device;
use device::meter::Meters;
use format::config::{VdevConfig, VdevKind};
use rt::sync::Arc;
use rt::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::collections::BTreeMap;

/// Most top-level slots that are believed.
const TOPS_MAX: usize = 1 << 16;
/// Nesting that is believed: root, raidz, spare, replacing, leaf, and one to spare.
const DEPTH_MAX: usize = 6;

/// What is known of a leaf.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum LeafState {
    /// Its device is there and its label says that it is this leaf.
    Online,
    /// No device has its label.
    Missing,
    /// There is a device at its path, whose labels are unreadable or another's, or it is too short for what it should have.
    /// Its bytes are tried when all else failed, and only where a checksum decides.
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

/// Errors of a leaf since the tree was opened, or they were forgotten.
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

    /// Forgets what was counted.
    pub fn forget(&self) {
        for count in [&self.read, &self.write, &self.checksum] {
            count.store(0, Ordering::Relaxed);
        }
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
    pub config: VdevConfig,
    /// Number of its top-level vdev.
    pub top: u32,
    /// Guid of its top-level vdev.
    pub top_guid: u64,
    /// What is known of it.
    pub state: LeafState,
    /// Errors so far.
    pub errors: Arc<Counters>,
    /// What was written without it.
    pub lacks: Arc<Lacks>,
    /// How often its flush has failed: a device tells once that what it was given may be gone, to whoever flushes it.
    pub flush_failures: Arc<AtomicU64>,
    /// What its watcher says of it.
    pub verdict: Arc<Verdict>,
    /// Is it being filled?
    filling: AtomicBool,
    /// Is it read only where nobody else has the bytes? See [`crate::sitting`].
    pub(crate) sits_out: Arc<AtomicBool>,
    pub(crate) device: Option<Arc<dyn Device>>,
}

impl Leaf {
    /// Its guid.
    pub fn guid(&self) -> u64 {
        self.config.guid
    }

    /// What to call it: its device's name, else its path in the config, else its guid.
    pub fn name(&self) -> String {
        match (&self.device, &self.config.path) {
            (Some(device), _) => device.name().to_owned(),
            (None, Some(path)) => String::from_utf8_lossy(path).into_owned(),
            (None, None) => self.config.guid.to_string(),
        }
    }

    /// Is it being filled (resilvered or rebuilt), so that it lacks what was written before?
    pub fn is_filling(&self) -> bool {
        self.filling.load(Ordering::Relaxed)
    }

    /// It has all that it lacked.
    pub fn set_filled(&self) {
        self.filling.store(false, Ordering::Relaxed);
    }

    /// Forgets that it gave wrong bytes.
    pub fn absolve(&self) {
        self.errors.checksum.store(0, Ordering::Relaxed);
    }

    /// Its device, if there is one.
    pub fn device(&self) -> Option<&Arc<dyn Device>> {
        self.device.as_ref()
    }

    /// What its device has done since it was opened; zeros if it has none that counts.
    pub fn meters(&self) -> Meters {
        self.device.as_ref().and_then(|device| device.meters()).unwrap_or_default()
    }

    /// The device, if the leaf may be read like any other.
    pub(crate) fn online(&self) -> Option<&dyn Device> {
        self.device.as_deref().filter(|_| self.state.is_online())
    }

    /// Is it read only where nobody else has the bytes?
    pub fn sits_out(&self) -> bool {
        self.sits_out.load(Ordering::Relaxed)
    }

    /// The device, if the leaf may be read like any other and does not lack txg `birth`.
    pub(crate) fn having(&self, birth: u64) -> Option<&dyn Device> {
        self.online().filter(|_| !self.lacks.contains(birth))
    }
}

/// A top-level vdev.
pub struct Top {
    /// What the config says of it, its children included.
    pub config: VdevConfig,
    id: u32,
    /// How it lays out blocks; `None` of kinds that cannot be read.
    pub layout: Option<Layout>,
    /// Leaves that hold the same bytes, per child (one slot for a leaf or a mirror).
    pub(crate) slots: Vec<Vec<usize>>,
    /// Has any of its leaves a queue, so that reads are best started together?
    pub(crate) queued: bool,
    /// Blocks that could not be put together.
    pub(crate) lost: Arc<AtomicU64>,
}

impl Top {
    /// Number of the vdev, as block pointers name it.
    pub fn id(&self) -> u32 {
        self.id
    }

    /// Allocatable bytes, 0 of kinds that hold no blocks of their own.
    pub fn asize(&self) -> u64 {
        self.config.top.map_or(0, |top| top.asize)
    }

    /// Is it there for intent logs alone?
    pub fn is_log(&self) -> bool {
        self.config.top.is_some_and(|top| top.is_log)
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
    /// Places of leaves by their guids.
    places: BTreeMap<u64, usize>,
    mappings: Arc<Mappings>,
}

impl Tree {
    /// The tree that the config of the pool describes (its root vdev, with all top-level vdevs as
    /// children), on the devices that were found, by leaf guid. Leaves without a device are
    /// allowed: what can be read without them will be.
    ///
    /// # Errors
    /// [`VdevError::Config`] if the config says what cannot be.
    pub fn open(root: &VdevConfig, mut found: BTreeMap<u64, Found>) -> Result<Tree> {
        check_shape(root, TOPS_MAX, 1)?;
        let mut tree = Tree {
            tops: Vec::with_capacity(root.children.len()),
            leaves: Vec::new(),
            places: BTreeMap::new(),
            mappings: Arc::default(),
        };
        for (config, id) in root.children.iter().zip(0..) {
            let top = tree.add_top(id, config, &mut found)?;
            tree.tops.push(top);
        }
        Ok(tree)
    }

    /// The tree of another config of the same pool, on the devices of `old` and these. What is known of a leaf or a
    /// top-level vdev that is in both goes on: counts, what it lacks, what was said of it.
    ///
    /// # Errors
    /// [`VdevError::Config`] if the config says what cannot be.
    pub(crate) fn after(
        old: &Tree,
        root: &VdevConfig,
        mut found: BTreeMap<u64, Found>,
    ) -> Result<Tree> {
        for leaf in root.leaves().filter(|leaf| leaf.orig_guid != 0) {
            if let Some(before) = old.leaf_by_guid(leaf.orig_guid)
                && let Some(device) = old.leaves[before].device.clone()
            {
                let labelled = old.leaves[before].state != LeafState::BadLabel;
                found.entry(leaf.guid).or_insert(Found { device, labelled });
            }
        }
        for leaf in &old.leaves {
            if let Some(device) = leaf.device.clone() {
                let labelled = leaf.state != LeafState::BadLabel;
                found.entry(leaf.guid()).or_insert(Found { device, labelled });
            }
        }
        let mut tree = Tree::open(root, found)?;
        tree.mappings = old.mappings.clone();
        for leaf in &mut tree.leaves {
            let known = |guid| old.leaf_by_guid(guid);
            // One that takes the place of its mirror takes its guid, too.
            let before = known(leaf.guid()).or_else(|| known(leaf.config.orig_guid));
            let Some(before) = before else { continue };
            let before = &old.leaves[before];
            leaf.errors = before.errors.clone();
            leaf.lacks = before.lacks.clone();
            leaf.flush_failures = before.flush_failures.clone();
            leaf.verdict = before.verdict.clone();
            leaf.sits_out = before.sits_out.clone();
        }
        for (top, before) in tree.tops.iter_mut().zip(&old.tops) {
            if before.layout.is_some() {
                top.lost = before.lost.clone();
            }
        }
        Ok(tree)
    }

    fn add_top(
        &mut self,
        id: u32,
        config: &VdevConfig,
        found: &mut BTreeMap<u64, Found>,
    ) -> Result<Top> {
        let layout = layout_of(config)?;
        let mut slots = Vec::new();
        let (of, least) = ((id, config.guid), least_asize(config, layout.as_ref()));
        if config.kind == VdevKind::Raidz {
            for child in &config.children {
                slots.push(self.add_slot(of, child, least, found)?);
            }
        } else {
            let slot = self.add_slot(of, config, least, found)?;
            // Leaves of what cannot be read are listed, though no block is on them.
            slots.extend(layout.map(|_| slot));
        }
        let has_queue = |leaf: &usize| {
            self.leaves[*leaf].device.as_ref().is_some_and(|device| device.read_queue().is_some())
        };
        let queued = slots.iter().flatten().any(has_queue);
        let lost = Arc::default();
        Ok(Top { config: config.clone(), id, layout, slots, queued, lost })
    }

    /// Adds the leaves below `child`, which all hold the same bytes: `least` of them or more. Those that are still being
    /// filled come last.
    fn add_slot(
        &mut self,
        (top, top_guid): (u32, u64),
        child: &VdevConfig,
        least: u64,
        found: &mut BTreeMap<u64, Found>,
    ) -> Result<Vec<usize>> {
        let mut slot = Vec::new();
        for config in child.leaves() {
            let guid = config.guid;
            if self.leaf_by_guid(guid).is_some() {
                let expected = "given to one leaf only";
                return Err(VdevError::Config { guid, field: "guid", seen: guid, expected });
            }
            let found = found.remove(&guid);
            let retired = config.offline || config.faulted || config.removed;
            let state = match &found {
                None => LeafState::Missing,
                Some(found) if !found.labelled || is_short(&*found.device, least) => {
                    LeafState::BadLabel
                }
                Some(_) if retired => LeafState::Retired,
                Some(_) => LeafState::Online,
            };
            slot.push(self.leaves.len());
            self.places.insert(guid, self.leaves.len());
            self.leaves.push(Leaf {
                config: config.clone(),
                top,
                top_guid,
                state,
                errors: Arc::default(),
                lacks: Arc::default(),
                flush_failures: Arc::default(),
                verdict: Arc::default(),
                filling: AtomicBool::new(config.resilver_txg != 0 || config.rebuild_txg != 0),
                sits_out: Arc::default(),
                device: found.map(|found| found.device),
            });
        }
        slot.sort_by_key(|leaf| self.leaves[*leaf].is_filling());
        Ok(slot)
    }

    /// Is a queue in front of any leaf (is it a disk), so that I/Os are best large and started together?
    pub fn is_queued(&self) -> bool {
        self.tops.iter().any(|top| top.queued)
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

    pub(crate) fn mappings(&self) -> &Mappings {
        &self.mappings
    }

    /// All leaves. Reports name leaves by their place in this list.
    pub fn leaves(&self) -> &[Leaf] {
        &self.leaves
    }

    /// The place of a leaf by its guid.
    pub fn leaf_by_guid(&self, guid: u64) -> Option<usize> {
        self.places.get(&guid).copied()
    }

    /// Could every block that the top-level vdev holds be read with the leaves that are online?
    pub fn is_complete(&self, top: u32) -> bool {
        let Ok(top) = self.top(top) else { return false };
        let online = |slot: &&Vec<usize>| slot.iter().any(|l| self.leaves[*l].online().is_some());
        match &top.layout {
            Some(layout) => {
                top.slots.len() - top.slots.iter().filter(online).count() <= layout.parity()
            }
            None => {
                matches!(top.config.kind, VdevKind::Hole | VdevKind::Indirect)
                    || self.is_mapped(top.id)
            }
        }
    }

    /// The vdev and its layout, if a block of `size` bytes can lie at `offset` of it.
    pub(crate) fn locate(&self, top: u32, offset: u64, size: usize) -> Result<(&Top, Layout)> {
        let vdev = self.top(top)?;
        let Some(layout) = vdev.layout else {
            return Err(match vdev.config.kind {
                VdevKind::Draid => VdevError::Unsupported { top, kind: "draid" },
                VdevKind::Indirect => VdevError::Unsupported { top, kind: "indirect" },
                _ => VdevError::NoSuchTop { top, tops: self.tops.len() },
            });
        };
        let asize = layout.asize(size as u64);
        let ashift = layout.ashift();
        let fits = offset.checked_add(asize).is_some_and(|end| end <= vdev.asize());
        if size == 0 || !fits || offset & ((1 << ashift) - 1) != 0 {
            let (size, asize) = (size as u64, vdev.asize());
            return Err(VdevError::BadAddress { top, offset, size, asize, ashift });
        }
        Ok((vdev, layout))
    }
}

/// The layout of a top-level vdev, `None` if its kind is not one that holds blocks of its own.
fn layout_of(config: &VdevConfig) -> Result<Option<Layout>> {
    use VdevKind::{Disk, File, Mirror, Raidz, Replacing, Spare};
    if !matches!(config.kind, Disk | File | Mirror | Raidz | Replacing | Spare) {
        return Ok(None);
    }
    let wrong =
        |field, seen, expected| VdevError::Config { guid: config.guid, field, seen, expected };
    let top = config.top.unwrap_or_default();
    let ashift = u32::try_from(top.ashift).unwrap_or(u32::MAX);
    if !ASHIFTS.contains(&ashift) {
        return Err(wrong("ashift", top.ashift, "between 9 and 16"));
    }
    if top.asize == 0 || top.asize > 1 << 60 {
        return Err(wrong("asize", top.asize, "above zero and at most 2^60"));
    }
    if config.kind != Raidz {
        return Ok(Some(Layout::Plain { ashift }));
    }
    let nparity = config.nparity.unwrap_or(0);
    match Geometry::new(ashift, config.children.len(), nparity as usize) {
        Some(geometry) => Ok(Some(Layout::Raidz(geometry))),
        None => Err(wrong("nparity", nparity, "1 to 3 and below the number of children")),
    }
}

/// Bytes that each child of a top-level vdev must have for what can be allocated: its metaslabs, and no more.
fn least_asize(config: &VdevConfig, layout: Option<&Layout>) -> u64 {
    let top = config.top.unwrap_or_default();
    let shift = u32::try_from(top.metaslab_shift).ok().filter(|shift| *shift < u64::BITS);
    let used = shift.map_or(top.asize, |shift| top.asize >> shift << shift);
    layout.map_or(0, |layout| layout.child_asize(used))
}

/// Is a device shorter than a leaf? Its labels are at its end, and so where blocks of others may lie.
fn is_short(device: &dyn Device, least: u64) -> bool {
    format::label::leaf_asize(device.size()).unwrap_or(0) < least
}

/// Refuses trees that are too wide or too deep, and children that are not where their ids say:
/// block pointers name top-level vdevs, and raidz its columns, by that place.
fn check_shape(vdev: &VdevConfig, children_max: usize, depth: usize) -> Result<()> {
    let guid = vdev.guid;
    let wrong = |field, seen, expected| Err(VdevError::Config { guid, field, seen, expected });
    if vdev.children.len() > children_max {
        return wrong("number of children", vdev.children.len() as u64, "fewer");
    }
    if depth > DEPTH_MAX {
        return wrong("nesting", depth as u64, "at most 6");
    }
    for (child, index) in vdev.children.iter().zip(0..) {
        if child.id != Some(index) {
            let seen = child.id.unwrap_or(u64::MAX);
            return wrong("id of a child", seen, "its place among the children");
        }
        check_shape(child, DISKS_MAX, depth + 1)?;
    }
    Ok(())
}
