//! A pool on simulated disks: made, opened anew, and found again as a new process would.

use std::collections::BTreeMap;

use device::sim::SimSet;
use device::{Device, WriteDevice};
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
}

pub(crate) const RAIDZ: Shape =
    Shape { joined: Joined::Raidz(1), disks: 3, disk_bytes: 64 << 20, ashift: 12 };
pub(crate) const MIRROR: Shape =
    Shape { joined: Joined::Mirror, disks: 2, disk_bytes: 128 << 20, ashift: 9 };

/// One worker: the writes come in the same order every time.
fn options() -> OpenOptions {
    OpenOptions { workers: 1, host_id: 0x7468_756d, host_name: "thumper".into(), new_name: None }
}

/// Makes the pool on all disks of the set.
pub(crate) fn create(set: &SimSet, shape: Shape) -> pool::Result<Arc<Pool>> {
    let leaf = |disk: device::sim::SimDisk| NewLeaf {
        path: format!("/sim/{}", disk.name()).into_bytes(),
        is_disk: false,
        device: Arc::new(disk) as Arc<dyn WriteDevice>,
    };
    let props = BTreeMap::from([
        ("compression".to_string(), Stored::Number(15)),
        ("recordsize".to_string(), Stored::Number(16 << 10)),
        ("xattr".to_string(), Stored::Number(2)),
    ]);
    Pool::create(NewPool {
        name: POOL.into(),
        tops: vec![NewTop {
            joined: shape.joined,
            leaves: set.disks().into_iter().map(leaf).collect(),
        }],
        spares: vec![],
        ashift: shape.ashift,
        with_features: true,
        pool_props: BTreeMap::new(),
        props,
        make: make_filesystem,
        command: format!("zpool create {POOL}"),
        options: options(),
    })
}

/// Looks for pools on the disks with these numbers, through handles that cannot write.
pub(crate) fn scan(set: &SimSet, disks: &[usize]) -> Scan {
    let reader = |n: &usize| (None, Arc::new(set.disk(*n).reader()) as Arc<dyn Device>);
    scan_devices(disks.iter().map(reader).collect())
}

pub(crate) fn all(set: &SimSet) -> Vec<usize> {
    (0..set.len()).collect()
}

/// Opens the pool on these disks to read; `None` if no label names one.
pub(crate) fn open_to_read(set: &SimSet, disks: &[usize]) -> Result<Option<Arc<Pool>>, String> {
    let scan = scan(set, disks);
    let Ok(found) = scan.choose(POOL) else { return Ok(None) };
    if found.uberblocks.is_empty() {
        return Ok(None);
    }
    let tree: Arc<Tree> = Arc::new(found.open_tree().map_err(|e| e.to_string())?);
    let pool = Pool::open(Devices::ReadOnly(tree), &found.uberblocks, &options());
    pool.map(Some).map_err(|e| e.to_string())
}

/// Opens the pool on these disks to write.
pub(crate) fn open_to_write(set: &SimSet, disks: &[usize]) -> Result<Arc<Pool>, String> {
    let scan = scan(set, disks);
    let found = scan.choose(POOL).map_err(|e| e.to_string())?;
    let mut devices: BTreeMap<u64, Arc<dyn WriteDevice>> = BTreeMap::new();
    for member in &found.members {
        let name = member.candidate.device.name().to_string();
        let disk = set.disks().into_iter().find(|disk| disk.name() == name);
        devices.insert(member.guid, Arc::new(disk.expect("it was found in the set")));
    }
    let tree = WriteTree::open(&found.root, devices).map_err(|e| e.to_string())?;
    Pool::open(Devices::Writable(tree), &found.uberblocks, &options()).map_err(|e| e.to_string())
}
