//! Finding pools: which devices belong together, by what their labels say and nothing else.
//!
//! Place: the way in for `pool`, `verify` and the listing of pools that could be imported.
//! The one idea: a device is known by the guid in its label, whatever its path; so a scan reads the
//! labels of everything it is shown, groups them by pool, and for each pool says what is there,
//! what is missing, and which uberblocks one may try, the newest first.
//!
//! A label config describes one top-level vdev only, so the tree is put together from the labels of
//! different leaves. It is good enough to read the MOS; the config in there is the final word, and
//! [`FoundPool::open_tree_as`] opens the same devices by it. FORMAT: sections 1.4, 1.6, 1.7, 10.5.

use crate::error::{Result, VdevError};
use crate::label::{Labels, sort_uberblocks};
use crate::partitions::partitions;
use crate::tree::{Found, Tree};
use crate::write::WriteTree;
use device::queue::{LeafQueue, Options};
use device::{Device, DeviceError, Overlay, Part, ReadFile, WriteDevice, WriteFile};
use format::Uberblock;
use format::config::{AuxLabel, PoolConfig, PoolState, VdevConfig, VdevKind};
use format::gpt::Partition;
use format::label::DEVICE_SIZE_MIN;
use rt::sync::Arc;
use rt::{Account, BufPool};
use std::collections::BTreeMap;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

/// Most top-level slots that a label is believed to count.
const TOPS_MAX: u64 = 1 << 12;

/// Bytes of idle buffers that the queues of a pool's disks keep together, if they are of no account: so much for each, and at
/// most this part of the machine's memory.
const QUEUE_IDLE: (u64, u64) = (192 << 20, 8);

/// Buffers for the queues of so many disks: those of `memory`, if there is such an account (INV-5). What streams read ahead
/// comes back to them, and goes out again: memory that had to come from the system each time would cost more than the
/// copying.
pub fn queue_buffers(disks: usize, memory: Option<&Account>) -> BufPool {
    let Some(account) = memory else {
        let (each, part) = QUEUE_IDLE;
        let idle = each.saturating_mul(disks as u64).min(rt::machine::memory_bytes() / part);
        return BufPool::new(usize::try_from(idle).unwrap_or(usize::MAX));
    };
    BufPool::of(account)
}

/// A device that a scan looked at.
#[derive(Clone)]
pub struct Candidate {
    /// Where it was found; `None` of a device that has no path.
    pub path: Option<PathBuf>,
    /// The partition that it is of the image file at the path, if it is not the whole of it.
    pub partition: Option<Partition>,
    /// The device, open for reading.
    pub device: Arc<dyn Device>,
    /// Is it a disk or partition, not a regular file? Then it gets a queue when its pool is opened.
    pub is_disk: bool,
    /// What its labels say.
    pub labels: Labels,
}

/// A leaf of a pool that a scan found.
#[derive(Clone)]
pub struct Member {
    /// The device and its labels.
    pub candidate: Candidate,
    /// Guid of the leaf.
    pub guid: u64,
    /// Its newest config that is not ahead of the pool's newest uberblock.
    pub config: PoolConfig,
}

/// A spare or cache device that is in no pool's tree.
pub struct AuxMember {
    /// The device and its labels.
    pub candidate: Candidate,
    /// What its label says.
    pub label: AuxLabel,
}

/// A pool that a scan found.
pub struct FoundPool {
    /// Its leaves, in the order of the tree where they are in it.
    pub members: Vec<Member>,
    /// Devices with the label of a leaf that another device is taken for: copies.
    pub duplicates: Vec<Member>,
    /// Devices without a label that have the file name of a leaf that is missing, by its guid. They
    /// may be that leaf with its labels destroyed: their bytes are tried when all else failed.
    pub suspects: BTreeMap<u64, Candidate>,
    /// The newest label config.
    pub config: PoolConfig,
    /// The tree as far as labels tell it. Top-level vdevs without a label are of kind missing.
    pub root: VdevConfig,
    /// All uberblocks that are whole, newest first.
    pub uberblocks: Vec<Uberblock>,
}

/// What a scan found.
#[derive(Default)]
pub struct Scan {
    /// Pools, by name and guid.
    pub pools: Vec<FoundPool>,
    /// Spares and caches.
    pub aux: Vec<AuxMember>,
    /// Files and devices that could not be opened.
    pub unopened: Vec<DeviceError>,
}

/// Why a pool cannot be chosen from a scan.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum ChooseError {
    /// No pool of this name or guid.
    #[error("no such pool available: {name} (found: {})", list(seen))]
    NoSuchPool {
        /// The name or guid asked for.
        name: String,
        /// Names of the pools that were found.
        seen: Vec<String>,
    },
    /// Several pools have the name.
    #[error("more than one pool is named {name}, choose by guid: {}", list(guids))]
    Ambiguous {
        /// The name.
        name: String,
        /// Their guids.
        guids: Vec<String>,
    },
}

fn list(words: &[String]) -> String {
    if words.is_empty() { "none".to_owned() } else { words.join(", ") }
}

/// Looks at every regular file and block device in the directories, and at the paths that are files
/// or devices themselves. The same device under several names is taken once.
///
/// # Errors
/// Only if a directory or path that was named cannot be read; what is in it may fail freely.
pub fn scan(paths: &[PathBuf]) -> std::io::Result<Scan> {
    let mut devices = BTreeMap::new();
    for path in paths {
        if std::fs::metadata(path)?.is_dir() {
            let mut entries = std::fs::read_dir(path)?.collect::<std::io::Result<Vec<_>>>()?;
            entries.sort_by_key(|entry| entry.file_name());
            for entry in entries {
                // What vanishes while we look, and links to nowhere, are not there.
                drop(add_device(&mut devices, &entry.path()));
            }
        } else {
            add_device(&mut devices, path)?;
        }
    }
    let mut candidates = Vec::new();
    let mut unopened = Vec::new();
    let mut in_order: Vec<(usize, PathBuf)> = devices.into_values().collect();
    in_order.sort_unstable();
    for (_, path) in in_order {
        match ReadFile::open(&path) {
            Ok(file) => {
                let is_disk = file.is_block_device();
                candidates.extend(Candidate::all_of(path, Arc::new(file), is_disk));
            }
            Err(error) => unopened.push(error),
        }
    }
    Ok(Scan { unopened, ..sort_out(candidates) })
}

/// Notes a file or block device, by what it is and not by its name.
fn add_device(
    devices: &mut BTreeMap<(bool, u64, u64), (usize, PathBuf)>,
    path: &Path,
) -> std::io::Result<()> {
    use std::os::unix::fs::{FileTypeExt, MetadataExt};
    let meta = std::fs::metadata(path)?;
    let key = if meta.file_type().is_block_device() {
        (true, meta.rdev(), 0)
    } else if meta.is_file() {
        (false, meta.dev(), meta.ino())
    } else {
        return Ok(());
    };
    let place = devices.len();
    devices.entry(key).or_insert_with(|| (place, path.to_owned()));
    Ok(())
}

/// Reads the labels of devices and sorts them into pools.
pub fn scan_devices(devices: Vec<(Option<PathBuf>, Arc<dyn Device>)>) -> Scan {
    let candidate = |(path, device)| Candidate::of(path, device, false);
    sort_out(devices.into_iter().map(candidate).collect())
}

impl Candidate {
    fn of(path: Option<PathBuf>, device: Arc<dyn Device>, is_disk: bool) -> Candidate {
        let labels = Labels::read(&*device);
        Candidate { path, partition: None, device, is_disk, labels }
    }

    /// A file or disk; of a file without labels that has a table of partitions, those of them that
    /// have labels.
    fn all_of(path: PathBuf, device: Arc<dyn Device>, is_disk: bool) -> Vec<Candidate> {
        let whole = Candidate::of(Some(path.clone()), device.clone(), is_disk);
        if is_disk || whole.labels.good().next().is_some() {
            return vec![whole];
        }
        let part = |partition: Partition| {
            let name = numbered(&path, partition.number).display().to_string();
            let part = Part::new(device.clone(), name, partition.offset, partition.size);
            let found = Candidate::of(Some(path.clone()), Arc::new(part), false);
            let labelled = found.labels.good().next().is_some();
            labelled.then_some(Candidate { partition: Some(partition), ..found })
        };
        // Nothing smaller is part of a pool.
        let large = |partition: &Partition| partition.size >= DEVICE_SIZE_MIN;
        let parts = partitions(&*device).into_iter().filter(large);
        let parts: Vec<Candidate> = parts.filter_map(part).collect();
        if parts.is_empty() { vec![whole] } else { parts }
    }

    /// The path to tell people: of a partition the file's with the partition's number, as the
    /// links in /dev/disk have it.
    pub fn shown_path(&self) -> Option<PathBuf> {
        let path = self.path.as_deref()?;
        Some(match self.partition {
            Some(partition) => numbered(path, partition.number),
            None => path.to_owned(),
        })
    }
}

/// The path of a partition of the file at `path`.
fn numbered(path: &Path, number: u32) -> PathBuf {
    let mut name = path.as_os_str().to_owned();
    name.push(format!("-part{number}"));
    name.into()
}

/// Sorts devices into pools.
fn sort_out(candidates: Vec<Candidate>) -> Scan {
    let mut scan = Scan::default();
    let mut groups: BTreeMap<u64, Vec<Candidate>> = BTreeMap::new();
    let mut unlabelled = Vec::new();
    for candidate in candidates {
        // The newest config says to which pool the device belongs now.
        if let Some(config) = candidate.labels.member(u64::MAX) {
            groups.entry(config.pool_guid).or_default().push(candidate);
        } else if let Some(label) = candidate.labels.aux().cloned() {
            scan.aux.push(AuxMember { candidate, label });
        } else if candidate.device.size() >= DEVICE_SIZE_MIN {
            unlabelled.push(candidate);
        }
    }
    scan.pools = groups.into_values().filter_map(FoundPool::gather).collect();
    scan.pools.iter_mut().for_each(|pool| pool.suspect(&unlabelled));
    scan.pools.sort_by(|a, b| (&a.config.name, a.guid()).cmp(&(&b.config.name, b.guid())));
    scan
}

impl Scan {
    /// What was found of the pool at `index`, by guid of the leaf, and all spares and cache devices: whose they are only
    /// pools know.
    pub fn candidates(&self, index: usize) -> impl Iterator<Item = (u64, &Candidate)> {
        let members = self.pools.get(index).into_iter().flat_map(|pool| &pool.members);
        let others = self.aux.iter().map(|aux| (aux.label.guid, &aux.candidate));
        members.map(|member| (member.guid, &member.candidate)).chain(others)
    }

    /// The pool of this name or guid. Destroyed pools are chosen by guid only.
    ///
    /// # Errors
    /// If there is none, or several have the name.
    pub fn choose(&self, name: &str) -> std::result::Result<&FoundPool, ChooseError> {
        if let Some(pool) = self.pools.iter().find(|pool| Ok(pool.guid()) == name.parse()) {
            return Ok(pool);
        }
        let named = |pool: &&FoundPool| {
            pool.config.name == name.as_bytes() && pool.config.state != PoolState::Destroyed
        };
        let found: Vec<&FoundPool> = self.pools.iter().filter(named).collect();
        let name = name.to_owned();
        match found[..] {
            [pool] => Ok(pool),
            [] => {
                let seen = self.pools.iter().map(|pool| pool.name().into_owned()).collect();
                Err(ChooseError::NoSuchPool { name, seen })
            }
            _ => {
                let guids = found.iter().map(|pool| pool.guid().to_string()).collect();
                Err(ChooseError::Ambiguous { name, guids })
            }
        }
    }
}

impl FoundPool {
    /// The pool that the devices make, all of which name it in their labels.
    fn gather(candidates: Vec<Candidate>) -> Option<FoundPool> {
        let mut uberblocks: Vec<Uberblock> =
            candidates.iter().flat_map(|c| c.labels.uberblocks.iter().copied()).collect();
        sort_uberblocks(&mut uberblocks);
        let txg = newest(&uberblocks);
        let mut members: Vec<Member> = Vec::new();
        let mut duplicates = Vec::new();
        for candidate in candidates {
            let Some(config) = candidate.labels.member(txg).cloned() else { continue };
            let Some(ids) = config.label else { continue };
            let member = Member { candidate, guid: ids.guid, config };
            match members.iter_mut().find(|other| other.guid == member.guid) {
                None => members.push(member),
                Some(other) if member.is_better(other) => {
                    duplicates.push(std::mem::replace(other, member));
                }
                Some(_) => duplicates.push(member),
            }
        }
        let config = members.iter().map(|m| &m.config).max_by_key(|c| rank(c, txg))?.clone();
        let root = put_together(&config, members.iter().map(|m| &m.config), txg);
        let place: Vec<u64> = root.leaves().map(|leaf| leaf.guid).collect();
        let order = |m: &Member| place.iter().position(|guid| *guid == m.guid);
        members.sort_by_key(|m| order(m).unwrap_or(usize::MAX));
        let suspects = BTreeMap::new();
        Some(FoundPool { members, duplicates, suspects, config, root, uberblocks })
    }

    /// The txg of its newest uberblock: labels ahead of it do not count.
    fn txg(&self) -> u64 {
        newest(&self.uberblocks)
    }

    /// Looks among devices without a label for leaves that are missing.
    fn suspect(&mut self, unlabelled: &[Candidate]) {
        for leaf in self.root.leaves() {
            let known = self.members.iter().any(|member| member.guid == leaf.guid);
            let Some(name) = leaf.path.as_deref().and_then(file_name).filter(|_| !known) else {
                continue;
            };
            let mut same = unlabelled.iter().filter(|candidate| {
                let path = candidate.path.as_deref().map(|path| path.as_os_str().as_bytes());
                path.and_then(file_name) == Some(name)
            });
            if let (Some(candidate), None) = (same.next(), same.next()) {
                self.suspects.insert(leaf.guid, candidate.clone());
            }
        }
    }

    /// Guid of the pool.
    pub fn guid(&self) -> u64 {
        self.config.pool_guid
    }

    /// Name of the pool.
    pub fn name(&self) -> std::borrow::Cow<'_, str> {
        String::from_utf8_lossy(&self.config.name)
    }

    /// Numbers of the top-level vdevs of which no label was found.
    pub fn missing_tops(&self) -> Vec<u64> {
        let missing = self.root.children.iter().filter(|top| top.kind == VdevKind::Missing);
        missing.filter_map(|top| top.id).collect()
    }

    /// Those of its leaves that went another way than the one with the newest uberblock: each side has changes that the
    /// other has not. What they share is older.
    pub fn parted(&self) -> Vec<&Member> {
        let rings = self.members.iter().map(|member| &member.candidate.labels.uberblocks);
        let Some(newest) = self.uberblocks.first() else { return Vec::new() };
        let mut rings = rings.filter(|ring| ring.first() == Some(newest));
        let Some(way) = rings.next() else { return Vec::new() };
        let is_leaf = |member: &&Member| self.root.find(member.guid).is_some();
        let leaves = self.members.iter().filter(is_leaf);
        leaves.filter(|member| member.candidate.labels.has_parted(way)).collect()
    }

    /// Another host's id, if the pool was not exported by it: that host may be using it now, or has
    /// destroyed it. A label without a host id belongs to nobody.
    pub fn foreign_host(&self, our_hostid: u64) -> Option<u64> {
        let hostid = self.config.hostid;
        let foreign =
            self.config.state != PoolState::Exported && hostid != 0 && hostid != our_hostid;
        foreign.then_some(hostid)
    }

    /// The devices that were found, by leaf guid, suspects among them.
    pub fn devices(&self) -> BTreeMap<u64, Found> {
        self.devices_in(None)
    }

    fn devices_in(&self, memory: Option<&Account>) -> BTreeMap<u64, Found> {
        let pool = queue_buffers(self.members.len(), memory);
        let found = |candidate: &Candidate, labelled| {
            let options = Options::for_file(candidate.is_disk);
            let queue = LeafQueue::new(candidate.device.clone(), options, pool.clone());
            Found { device: Arc::new(queue), labelled }
        };
        let members = self.members.iter().map(|m| (m.guid, found(&m.candidate, true)));
        let suspects = self.suspects.iter().map(|(guid, c)| (*guid, found(c, false)));
        members.chain(suspects).collect()
    }

    /// Opens the tree that the labels describe, for reading.
    pub fn open_tree(&self) -> Result<Tree> {
        self.open_tree_as(&self.root)
    }

    /// Opens the devices as the tree of another config (the MOS's), for reading.
    pub fn open_tree_as(&self, root: &VdevConfig) -> Result<Tree> {
        Tree::open(root, self.devices())
    }

    /// As [`FoundPool::open_tree`], with the buffers of its disks' queues from an account.
    pub fn open_tree_in(&self, memory: &Account) -> Result<Tree> {
        Tree::open(&self.root, self.devices_in(Some(memory)))
    }

    /// Opens the devices for reading, as a tree that can be written to: what is written stays in
    /// memory, at most `bytes_max` of it for each device.
    pub fn open_memory_tree(&self, root: &VdevConfig, bytes_max: usize) -> Result<WriteTree> {
        let over = |member: &Member| {
            let device: Arc<dyn WriteDevice> =
                Arc::new(Overlay::new(member.candidate.device.clone(), bytes_max));
            (member.guid, device)
        };
        WriteTree::open(root, self.members.iter().map(over).collect())
    }

    /// Opens the devices for writing, as the tree of a config. Takes each device's lock, and looks
    /// again whether it still is the leaf that it was when it was scanned, with the same newest
    /// uberblock: who goes on from an older one takes back what somebody has acknowledged since.
    ///
    /// # Errors
    /// [`DeviceError::Busy`] if another process holds a device; [`VdevError::Changed`] and
    /// [`VdevError::Written`] if it has to be scanned anew; whatever opening says.
    pub fn open_write_tree(&self, root: &VdevConfig) -> Result<WriteTree> {
        self.open_write_tree_in(root, None)
    }

    /// The same, with the buffers of its disks' queues from an account.
    ///
    /// # Errors
    /// As [`FoundPool::open_write_tree`].
    pub fn open_write_tree_in(
        &self,
        root: &VdevConfig,
        memory: Option<&Account>,
    ) -> Result<WriteTree> {
        let pool = queue_buffers(self.members.len(), memory);
        let mut devices: BTreeMap<u64, Arc<dyn WriteDevice>> = BTreeMap::new();
        // A file is locked once, however many of its partitions are leaves.
        let mut files: BTreeMap<&Path, Arc<WriteFile>> = BTreeMap::new();
        let mut odd_broken = Vec::new();
        // Leaves that have left the pool still carry its label.
        for member in self.members.iter().filter(|member| root.find(member.guid).is_some()) {
            let Some(path) = &member.candidate.path else { continue };
            let device: Arc<dyn WriteDevice> = match member.candidate.partition {
                Some(Partition { offset, size, .. }) => {
                    let file = match files.get(path.as_path()) {
                        Some(file) => file.clone(),
                        None => Arc::new(WriteFile::open(path)?),
                    };
                    files.insert(path, file.clone());
                    let name = member.candidate.device.name().to_owned();
                    let part = Part::new(file, name, offset, size);
                    Arc::new(LeafQueue::new(part, Options::inline(), pool.clone()))
                }
                None => Arc::new(LeafQueue::for_writing(WriteFile::open(path)?, pool.clone())),
            };
            let labels = Labels::read(&*device);
            // As it was found: half of its labels may be ahead of the pool, and name it otherwise.
            let now = labels.member(self.txg()).map(|config| (config.pool_guid, config.label));
            if now != Some((self.guid(), member.config.label)) {
                let name = path.display().to_string();
                return Err(VdevError::Changed { device: name, guid: member.guid });
            }
            if labels.uberblocks.first() != member.candidate.labels.uberblocks.first() {
                return Err(VdevError::Written { device: path.display().to_string() });
            }
            if labels.are_odd_broken() {
                odd_broken.push(member.guid);
            }
            devices.insert(member.guid, device);
        }
        let tree = WriteTree::open(root, devices)?;
        tree.are_odd_broken(odd_broken);
        Ok(tree)
    }
}

/// The txg of the first of them; without one every label counts.
fn newest(uberblocks: &[Uberblock]) -> u64 {
    uberblocks.first().map_or(u64::MAX, |uberblock| uberblock.txg.get())
}

impl Member {
    /// Is this the leaf rather than `other`, a device with the same label? The newer one is; of
    /// equals the one that is where the config says.
    fn is_better(&self, other: &Member) -> bool {
        let key = |member: &Member| {
            let newest = member.candidate.labels.uberblocks.first();
            let txg = newest.map_or(0, |uberblock| uberblock.txg.get());
            (txg, member.config.txg, member.is_at_its_path())
        };
        key(self) > key(other)
    }

    /// Is the device where its config says?
    fn is_at_its_path(&self) -> bool {
        let leaf = self.config.vdev_tree.find(self.guid);
        let told = leaf.and_then(|leaf| leaf.path.as_deref());
        let path = self.candidate.path.as_deref().map(|path| path.as_os_str().as_bytes());
        told.is_some() && told == path
    }
}

/// The last part of a path.
fn file_name(path: &[u8]) -> Option<&[u8]> {
    path.rsplit(|byte| *byte == b'/').next().filter(|name| !name.is_empty())
}

/// Which of two configs counts: one that is not ahead of the uberblock, then the newer one.
fn rank(config: &PoolConfig, txg: u64) -> (bool, u64) {
    (config.txg <= txg, config.txg)
}

/// The tree of the pool, from its newest config and the labels of all its leaves.
fn put_together<'a>(
    newest: &PoolConfig,
    configs: impl Iterator<Item = &'a PoolConfig>,
    txg: u64,
) -> VdevConfig {
    let mut tops: BTreeMap<u64, &PoolConfig> = BTreeMap::new();
    for config in configs {
        let Some(id) = config.vdev_tree.id.filter(|id| *id < TOPS_MAX) else { continue };
        let known = tops.entry(id).or_insert(config);
        if rank(config, txg) > rank(known, txg) {
            *known = config;
        }
    }
    let last = tops.keys().next_back().map_or(0, |id| id + 1);
    let count = newest.vdev_children.unwrap_or(last).min(TOPS_MAX);
    let top = |id: u64| match tops.get(&id) {
        // Whatever was there, or was to be there by a write that was cut off.
        _ if newest.holes.contains(&id) => VdevConfig::new(VdevKind::Hole, id, 0),
        Some(config) => config.vdev_tree.clone(),
        None => VdevConfig::new(VdevKind::Missing, id, 0),
    };
    let mut root = VdevConfig::new(VdevKind::Root, 0, newest.pool_guid);
    root.children = (0..count).map(top).collect();
    root
}
