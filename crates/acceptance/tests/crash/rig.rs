//! A pool on simulated disks: made, opened anew, and found again as a new process would.

use std::collections::BTreeMap;
use std::time::Duration;

use device::queue::{LeafQueue, Options};
use device::sim::{SimDisk, SimSet};
use device::{Device, WriteDevice};
use format::config::PoolState;
use format::uberblock::Uberblock;
use fs::make_filesystem;
use pool::{Devices, Joined, NewLeaf, NewPool, NewTop, OpenOptions, Pool, Stored};
use rt::sync::Arc;
use vdev::import::{Scan, scan_devices};
use vdev::{Tree, WriteTree};

/// Name of every pool here.
pub(crate) const POOL: &str = "tank";

/// How the disks of a pool are joined.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Shape {
    pub joined: Joined,
    pub disks: usize,
    pub disk_bytes: u64,
    pub ashift: u32,
    /// How long a disk may take for an I/O, in milliseconds; `None`: each is done by who asks.
    pub deadline_ms: Option<u64>,
    /// Each so-manieth block becomes a gang; 0: none.
    pub gang_every: u64,
}

pub(crate) const RAIDZ: Shape = Shape {
    joined: Joined::Raidz(1),
    disks: 3,
    disk_bytes: 64 << 20,
    ashift: 12,
    deadline_ms: None,
    gang_every: 0,
};
pub(crate) const RAIDZ2: Shape = Shape { joined: Joined::Raidz(2), disks: 4, ..RAIDZ };
pub(crate) const STRIPE: Shape =
    Shape { joined: Joined::Single, disks: 1, disk_bytes: 160 << 20, ..RAIDZ };
pub(crate) const MIRROR: Shape =
    Shape { joined: Joined::Mirror, disks: 2, disk_bytes: 128 << 20, ashift: 9, ..RAIDZ };

/// Smallest block that becomes a gang, where some do, in bytes.
const GANG_LEAST: u64 = 1024;

/// Puts what the shape asks for into a pool that was opened.
pub(crate) fn set(pool: &Pool, shape: Shape) -> Result<(), String> {
    pool.force_gangs(GANG_LEAST, shape.gang_every).map_err(|e| e.to_string())
}

/// A disk as the pool gets it: behind a queue, or bare.
fn attach(disk: SimDisk, deadline_ms: Option<u64>) -> Arc<dyn WriteDevice> {
    let Some(deadline_ms) = deadline_ms else { return Arc::new(disk) };
    let options = Options { deadline: Duration::from_millis(deadline_ms), ..Options::threads(1) };
    Arc::new(LeafQueue::new(disk, options, rt::BufPool::new(1 << 20)))
}

/// The host that makes the pool, and the one that takes it over.
pub(crate) const HOSTS: [u64; 2] = [0x7468_756d, 0xb0b];

/// So few that what was destroyed is freed by several txgs, which are those of the next steps.
const BLOCKS_PER_TXG: u64 = 12;

/// One worker: the writes come in the same order every time. And little memory: the pools are small, there are
/// thousands of them, and making room for a large one takes longer than reading one of these.
fn options(host_id: u64) -> OpenOptions {
    let host_name = format!("host-{host_id:x}");
    let memory = Some(pool::account(pool::CAP_LEAST));
    OpenOptions { workers: 1, host_id, host_name, new_name: None, memory }
}

/// Makes the pool on the first disks of the set.
pub(crate) fn create(set: &SimSet, shape: Shape) -> pool::Result<Arc<Pool>> {
    create_on(set, shape, &(0..shape.disks).collect::<Vec<_>>())
}

/// Makes it on these disks of the set.
pub(crate) fn create_on(set: &SimSet, shape: Shape, disks: &[usize]) -> pool::Result<Arc<Pool>> {
    let leaf = |disk: SimDisk| NewLeaf {
        path: format!("/sim/{}", disk.name()).into_bytes(),
        is_disk: false,
        device: attach(disk, shape.deadline_ms),
    };
    let props = BTreeMap::from([
        ("compression".to_string(), Stored::Number(15)),
        ("recordsize".to_string(), Stored::Number(16 << 10)),
        ("xattr".to_string(), Stored::Number(2)),
    ]);
    let pool = Pool::create(NewPool {
        name: POOL.into(),
        tops: vec![NewTop {
            joined: shape.joined,
            leaves: disks.iter().map(|disk| leaf(set.disk(*disk))).collect(),
            is_log: false,
        }],
        spares: vec![],
        ashift: shape.ashift,
        features: pool::Feature::ALL.to_vec(),
        pool_props: BTreeMap::new(),
        props,
        make: make_filesystem,
        command: format!("zpool create {POOL}"),
        options: options(HOSTS[0]),
    })?;
    pool.set_freeing(BLOCKS_PER_TXG, false)?;
    Ok(pool)
}

/// Looks for pools on the disks with these numbers, through handles that cannot write.
pub(crate) fn scan(set: &SimSet, disks: &[usize]) -> Scan {
    let reader = |n: &usize| (None, Arc::new(set.disk(*n).reader()) as Arc<dyn Device>);
    scan_devices(disks.iter().map(reader).collect())
}

pub(crate) fn all(set: &SimSet) -> Vec<usize> {
    (0..set.len()).collect()
}

/// A disk of the set for a pool that it is not in yet.
pub(crate) fn new_leaf(set: &SimSet, disk: usize) -> NewLeaf {
    let disk = set.disk(disk);
    let path = format!("/sim/{}", disk.name()).into_bytes();
    NewLeaf { path, is_disk: false, device: Arc::new(disk) }
}

/// The guid of the leaf on a disk.
pub(crate) fn guid_on(pool: &Pool, disk: usize) -> u64 {
    let tree = pool.store().tree();
    let name = format!("/sim/d{disk:02}").into_bytes();
    let leaf = tree.leaves().iter().find(|leaf| leaf.config.path.as_deref() == Some(&name));
    leaf.unwrap_or_else(|| panic!("no leaf on disk {disk}")).guid()
}

/// What the labels say of a pool's owner.
pub(crate) type Held = (PoolState, u64);

/// Opens the pool on these disks to read, by its newest uberblock of at most txg `until`; `None` if
/// no label names one.
pub(crate) fn open_to_read(
    set: &SimSet,
    disks: &[usize],
    until: u64,
) -> Result<Option<(Arc<Pool>, Held)>, String> {
    open_found(&scan(set, disks), until)
}

/// The same, of the pool that a scan has found.
pub(crate) fn open_found(scan: &Scan, until: u64) -> Result<Option<(Arc<Pool>, Held)>, String> {
    // One that was destroyed is found, too.
    let Some(found) = scan.pools.iter().find(|pool| pool.name() == POOL) else { return Ok(None) };
    let in_time = found.uberblocks.iter().filter(|uberblock| uberblock.txg.get() <= until);
    let uberblocks: Vec<Uberblock> = in_time.copied().collect();
    if uberblocks.is_empty() {
        return Ok(None);
    }
    let tree: Arc<Tree> = Arc::new(found.open_tree().map_err(|e| e.to_string())?);
    let held = (found.config.state, found.config.hostid);
    let pool = Pool::open(Devices::ReadOnly(tree), &uberblocks, &options(HOSTS[0]));
    pool.map(|pool| Some((pool, held))).map_err(|e| e.to_string())
}

/// Opens the pool on these disks to write.
pub(crate) fn open_to_write(set: &SimSet, disks: &[usize]) -> Result<Arc<Pool>, String> {
    open_on(set, disks, HOSTS[0], None)
}

/// Opens the pool on these disks to write, on this host.
pub(crate) fn open_on(
    set: &SimSet,
    disks: &[usize],
    host: u64,
    deadline_ms: Option<u64>,
) -> Result<Arc<Pool>, String> {
    open_with(set, disks, (host, deadline_ms), Devices::Writable)
}

/// Opens the pool on these disks to write, in a way of its own.
pub(crate) fn open_as(
    set: &SimSet,
    disks: &[usize],
    way: fn(WriteTree) -> Devices,
) -> Result<Arc<Pool>, String> {
    open_with(set, disks, (HOSTS[0], None), way)
}

fn open_with(
    set: &SimSet,
    disks: &[usize],
    (host, deadline_ms): (u64, Option<u64>),
    way: fn(WriteTree) -> Devices,
) -> Result<Arc<Pool>, String> {
    let scan = scan(set, disks);
    let found = scan.pools.iter().find(|pool| pool.name() == POOL).ok_or("no such pool")?;
    let mut devices: BTreeMap<u64, Arc<dyn WriteDevice>> = BTreeMap::new();
    for member in &found.members {
        let name = member.candidate.device.name().to_string();
        let disk = set.disks().into_iter().find(|disk| disk.name() == name);
        devices.insert(member.guid, attach(disk.expect("it was found in the set"), deadline_ms));
    }
    let tree = WriteTree::open(&found.root, devices).map_err(|e| e.to_string())?;
    let devices = way(tree);
    let pool = Pool::open(devices, &found.uberblocks, &options(host)).map_err(|e| e.to_string())?;
    if pool.read_only_reason().is_none() {
        pool.set_freeing(BLOCKS_PER_TXG, false).map_err(|e| e.to_string())?;
    }
    Ok(pool)
}
