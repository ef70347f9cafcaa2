//! One experiment: a pool under load, one fault of one of its disks, and what became of every byte.
//!
//! The judge says whether the fault has hurt anything that is in use, and afterwards whether all is whole: it walks the
//! pool by itself and shares nothing with what is tried here but the reads below.

use std::collections::BTreeMap;

use device::sim::SimSet;
use device::{Device, WriteDevice};
use format::scan::ScanFunction;
use fs::{Filesystem, NewObject, Who, make_filesystem, mode};
use pool::{Devices, Joined, NewLeaf, NewPool, NewTop, OpenOptions, Pool, Stored};
use rt::random::Rng;
use rt::sync::Arc;
use vdev::WriteTree;
use vdev::import::{FoundPool, Scan, scan_devices};

use crate::drive::{Drive, SECTOR};
use crate::faults::{Fault, Layout, Row};

pub(crate) const POOL: &str = "lab";
pub(crate) const DISK_BYTES: u64 = 64 << 20;
const RECORD: usize = 32 << 10;
const FILES: usize = 10;
/// Sectors that are tried until one is found that somebody needs.
const ATTEMPTS: usize = 24;

pub(crate) type Done<T> = Result<T, String>;
/// Files by name, with their bytes.
pub(crate) type Files = BTreeMap<String, Vec<u8>>;

pub(crate) fn told(error: impl std::fmt::Display) -> String {
    error.to_string()
}

fn options() -> OpenOptions {
    OpenOptions { workers: 1, host_id: 1, host_name: "lab".into(), ..OpenOptions::default() }
}

/// What these disks say of the pools that they are of.
pub(crate) fn scan<D: WriteDevice + 'static>(disks: &[Arc<D>]) -> Scan {
    let reader = |disk: &Arc<D>| (None, disk.clone() as Arc<dyn Device>);
    scan_devices(disks.iter().map(reader).collect())
}

/// The pool that was found.
pub(crate) fn found(scan: &Scan) -> Done<&FoundPool> {
    scan.pools.first().ok_or_else(|| "the pool is gone".into())
}

/// The tree of a pool that was found, over those of these disks that are in it.
pub(crate) fn tree<D: WriteDevice + 'static>(
    found: &FoundPool,
    disks: &[Arc<D>],
) -> Done<WriteTree> {
    let mut devices: BTreeMap<u64, Arc<dyn WriteDevice>> = BTreeMap::new();
    for member in &found.members {
        let name = member.candidate.device.name();
        if let Some(disk) = disks.iter().find(|disk| disk.name() == name) {
            devices.insert(member.guid, disk.clone());
        }
    }
    WriteTree::open(&found.root, devices).map_err(told)
}

/// A leaf of a new pool.
pub(crate) fn leaf<D: WriteDevice + 'static>(disk: &Arc<D>) -> NewLeaf {
    let path = format!("/lab/{}", disk.name()).into_bytes();
    NewLeaf { path, is_disk: false, device: disk.clone() }
}

/// A top-level vdev of these disks.
pub(crate) fn top<D: WriteDevice + 'static>(disks: &[Arc<D>], layout: Layout) -> NewTop {
    let joined = match layout {
        Layout::Single => Joined::Single,
        Layout::Mirror => Joined::Mirror,
        Layout::Raidz(parity) => Joined::Raidz(parity),
    };
    NewTop { joined, leaves: disks.iter().map(leaf).collect(), is_log: false }
}

pub(crate) fn create(tops: Vec<NewTop>) -> Done<Arc<Pool>> {
    let props = [("compression", 2), ("recordsize", RECORD as u64)];
    let new = NewPool {
        name: POOL.into(),
        tops,
        spares: vec![],
        ashift: SECTOR.trailing_zeros(),
        features: pool::Feature::ALL.to_vec(),
        pool_props: BTreeMap::new(),
        props: props.map(|(name, value)| (name.to_string(), Stored::Number(value))).into(),
        make: make_filesystem,
        command: format!("zpool create {POOL}"),
        options: options(),
    };
    Pool::create(new).map_err(told)
}

fn open(drives: &[Arc<Drive>]) -> Done<Arc<Pool>> {
    let scan = scan(drives);
    let found = found(&scan)?;
    let tree = tree(found, drives)?;
    let pool = Pool::open(Devices::Writable(tree), &found.uberblocks, &options()).map_err(told)?;
    match pool.read_only_reason() {
        Some(reason) => Err(reason.into()),
        None => Ok(pool),
    }
}

/// Is every copy and every column of every block right?
fn is_whole(drives: &[Arc<Drive>]) -> Done<bool> {
    let scan = scan(drives);
    let report = verify::verify_pool(found(&scan)?, &verify::Options::default(), &mut |_| true);
    drives.iter().for_each(|drive| drive.forget_noticed());
    Ok(report.is_ok_and(|report| report.verdict == verify::Verdict::Clean))
}

/// Writes files, some over others, in two txgs.
pub(crate) fn load(pool: &Arc<Pool>, files: &mut Files, rng: &mut Rng, round: u64) -> Done<()> {
    let fs = Filesystem::open(pool, POOL).map_err(told)?;
    for index in 0..FILES {
        let name = if index % 2 == 0 { format!("f{index}") } else { format!("f{index}.{round}") };
        let mut bytes = vec![0; RECORD * (1 + rng.index(4)) - rng.index(SECTOR as usize)];
        rng.fill(&mut bytes);
        if let Ok(old) = fs.resolve(name.as_bytes()) {
            fs.write(old, 0, &bytes).map_err(told)?;
            let kept = files.entry(name).or_default();
            let end = bytes.len().max(kept.len());
            bytes.extend_from_slice(kept.get(bytes.len()..end).unwrap_or_default());
            *kept = bytes;
        } else {
            let new = NewObject::of(mode::FILE | 0o644, Who { uid: 0, gid: 0 });
            fs.create_with(fs.root(), name.as_bytes(), &new, &bytes).map_err(told)?;
            files.insert(name, bytes);
        }
        if index == FILES / 2 {
            pool.sync().map_err(told)?;
        }
    }
    pool.sync().map_err(told)?;
    Ok(())
}

/// Reads all files; those that could not be read, and those whose bytes were wrong.
pub(crate) fn read(pool: &Arc<Pool>, files: &Files) -> Done<(u64, u64)> {
    let (mut lost, mut wrong) = (0, 0);
    let Ok(fs) = Filesystem::open(pool, POOL) else { return Ok((files.len() as u64, 0)) };
    for (name, bytes) in files {
        let mut seen = vec![0; bytes.len()];
        let read = fs.resolve(name.as_bytes()).and_then(|file| fs.read(file, 0, &mut seen));
        match read {
            Ok(count) => wrong += u64::from(count != bytes.len() || seen != *bytes),
            Err(_) => lost += 1,
        }
    }
    Ok((lost, wrong))
}

/// Errors that a pool counts of its disks.
fn errors(pool: &Pool) -> u64 {
    let tree = pool.store().tree();
    let counts = tree.leaves().iter().map(|leaf| leaf.errors.get());
    counts.map(|counts| counts.read + counts.write + counts.checksum).sum()
}

/// Something is lost, and whoever needed it was told.
fn lost_at_once(row: &mut Row, victim: &Drive) {
    row.injected += 1;
    row.detected += 1;
    row.lost += 1;
    row.control += u64::from(victim.take_noticed());
}

/// Does one experiment, and adds it to the row. `false`: it has hurt nothing that anybody needs.
pub(crate) fn run(fault: Fault, layout: Layout, seed: u64, row: &mut Row) -> Done<bool> {
    let mut rng = Rng::new(seed ^ (fault as u64) << 48);
    let disks = match layout {
        Layout::Single => 1,
        Layout::Mirror => 2,
        Layout::Raidz(parity) => usize::from(parity) + 3,
    };
    let set = SimSet::with_sectors(disks, DISK_BYTES, SECTOR as u32);
    let drives: Vec<Arc<Drive>> =
        set.disks().into_iter().map(|disk| Drive::new(disk, rng.next_u64())).collect();
    let victim = &drives[rng.index(disks)];
    let mut files = Files::new();
    let pool = create(vec![top(&drives, layout)])?;
    load(&pool, &mut files, &mut rng, 0)?;

    // Half of what is hurt on its way is hurt when it is read.
    let in_reads = match fault {
        Fault::MisdirectedRead => true,
        Fault::DamageInTransfer => rng.chance(1, 2),
        _ => false,
    };
    match fault {
        Fault::Vanished => victim.vanish(true),
        Fault::BitRot | Fault::AccidentalOverwrite | Fault::LatentError => {}
        _ if in_reads => {}
        _ => victim.arm(fault, false, rng.below(4)),
    }
    drives.iter().for_each(|drive| drive.forget_noticed());
    let loaded = load(&pool, &mut files, &mut rng, 1);
    let mut injected = victim.disarm();
    if layout == Layout::Single && injected && loaded.is_err() {
        // What is written over in part is read before.
        lost_at_once(row, victim);
        return Ok(true);
    }
    loaded?;
    let mut detected = fault == Fault::Vanished && errors(&pool) > 0;
    let mut control = victim.take_noticed();
    pool.close().map_err(told)?;
    drop(pool);
    match fault {
        Fault::Vanished => {
            victim.vanish(false);
            injected = true;
        }
        Fault::BitRot | Fault::AccidentalOverwrite | Fault::LatentError => {
            for _ in 0..ATTEMPTS {
                let Some(hurt) = victim.hurt(fault) else { break };
                injected = !is_whole(&drives)?;
                if injected {
                    break;
                }
                victim.undo(hurt);
            }
        }
        _ if in_reads => {}
        // What nobody needs is no damage.
        _ => injected &= !is_whole(&drives)?,
    }
    victim.forget_noticed();

    let pool = match open(&drives) {
        Ok(pool) => pool,
        Err(_) if layout == Layout::Single && injected => {
            // What leads to everything is lost, and that is said.
            lost_at_once(row, victim);
            return Ok(true);
        }
        Err(error) => return Err(error),
    };
    // What no reader has come to, a scrub does; what a disk missed, a resilver gives it.
    let function = match fault {
        Fault::Vanished => ScanFunction::Resilver,
        _ => ScanFunction::Scrub,
    };
    let mut scanned = pool.scan_start(function).map(|_| ());
    let at_rest = !in_reads && fault != Fault::Vanished && injected;
    if at_rest && scanned.is_ok() && errors(&pool) == 0 && is_whole(&drives)? && errors(&pool) == 0
    {
        // The pool's own txgs have put others in the place of what was hurt, before anybody came to it.
        pool.close().map_err(told)?;
        return Ok(false);
    }
    if in_reads {
        victim.arm(fault, true, rng.below(16));
    }
    let (lost, wrong) = read(&pool, &files)?;
    if in_reads {
        injected = victim.disarm();
    }
    scanned = scanned.and_then(|()| pool.scan_run(&mut |_| true).map(|_| ()));
    // Beyond redundancy it may be that not even that can be written down.
    if layout != Layout::Single {
        scanned.map_err(told)?;
    }
    pool.finish_healing(std::time::Duration::from_secs(10));
    let unreadable = lost + pool.lost_blocks().map_err(told)?.len() as u64;
    detected |= errors(&pool) > 0 || unreadable > 0;
    control |= victim.take_noticed();
    let closed = pool.close();
    if layout != Layout::Single {
        closed.map_err(told)?;
    }
    drop(pool);
    if !injected {
        return Ok(false);
    }
    row.injected += 1;
    row.detected += u64::from(detected);
    row.wrong += wrong;
    row.control += u64::from(control);
    match unreadable {
        0 => row.healed += u64::from(is_whole(&drives)?),
        _ => row.lost += 1,
    }
    Ok(true)
}
