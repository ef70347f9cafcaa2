//! Disks that take the time of spinning ones: 8 ms for an average seek, 200 MB/s, 7200 revolutions a minute.
//!
//! The images stand for whole disks: a file at one end and one at the other are a stroke apart.

use std::collections::BTreeMap;
use std::path::Path;
use std::time::Duration;

use anyhow::Result;
use device::queue::{LeafQueue, Options};
use device::spinning::{Parameters, Spinning};
use device::{Device, WriteDevice, WriteFile};
use pool::Devices;
use rt::sync::Arc;
use serde_json::{Value, json};
use vdev::import::FoundPool;
use vdev::{Found, Tree, WriteTree};

use crate::trace::{Trace, Traced};

/// Bytes a second that a disk reads or writes in a row.
const RATE: u64 = 200_000_000;

fn parameters(size: u64) -> Parameters {
    Parameters {
        seek_average: Duration::from_millis(8),
        seek_max: Duration::from_millis(16),
        rate_outer: RATE,
        rate_inner: RATE,
        ..Parameters::disk_2tb_7200().spread_over(size)
    }
}

type Disk<D> = LeafQueue<Traced<Spinning<D>>>;

/// Asks a disk for the number of its I/Os so far, their bytes, and the seconds that it was busy.
type Ios = Box<dyn Fn() -> (u64, u64, f64)>;

/// What the disks were asked to do.
pub(crate) struct Disks {
    ios: Vec<Ios>,
    before: Vec<(u64, u64, f64)>,
    trace: Option<Trace>,
}

impl Disks {
    /// Counts from now on.
    pub(crate) fn start(&mut self) {
        self.before = self.ios.iter().map(|ios| ios()).collect();
    }

    /// Mean size of an I/O of each disk since then, in KiB.
    pub(crate) fn mean_kib(&self) -> Value {
        let mean = |(ios, before): (&Ios, &(u64, u64, f64))| {
            let (count, bytes, _) = ios();
            (bytes - before.1).checked_div(count - before.0).unwrap_or(0) >> 10
        };
        json!(self.ios.iter().zip(&self.before).map(mean).collect::<Vec<_>>())
    }

    /// Seconds that the disks were busy since then, on average.
    pub(crate) fn busy_seconds(&self) -> Value {
        let all = self.ios.iter().zip(&self.before).map(|(ios, before)| ios().2 - before.2);
        json!(all.sum::<f64>() / self.ios.len().max(1) as f64)
    }

    /// Writes the trace, if there is one.
    pub(crate) fn write_trace(&self, path: Option<&Path>) -> Result<()> {
        self.trace.iter().zip(path).try_for_each(|(trace, path)| trace.write(path))
    }
}

fn counts<D: Device>(disk: &Spinning<D>) -> (u64, u64, f64) {
    let (count, bytes) = disk.ios();
    (count, bytes, disk.busy().as_secs_f64())
}

/// The pool's devices, as spinning disks behind queues; what they are asked for is noted if `traced`.
pub(crate) fn open(found: &FoundPool, writable: bool, traced: bool) -> Result<(Devices, Disks)> {
    let buffers = vdev::import::queue_buffers(found.members.len(), None);
    let options = Options::for_file(true);
    let trace = traced.then(Trace::default);
    let mut disks = Disks { ios: Vec::new(), before: Vec::new(), trace: trace.clone() };
    if !writable {
        let mut devices = BTreeMap::new();
        for (number, member) in found.members.iter().enumerate() {
            let size = member.candidate.device.size();
            let spinning = Spinning::real(member.candidate.device.clone(), parameters(size));
            let spinning = Traced::new(spinning, number, trace.clone());
            let disk: Arc<Disk<Arc<dyn Device>>> =
                Arc::new(LeafQueue::new(spinning, options, buffers.clone()));
            let seen = disk.clone();
            disks.ios.push(Box::new(move || counts(seen.device().inner())));
            devices.insert(member.guid, Found { device: disk, labelled: true });
        }
        let tree = Tree::open(&found.root, devices)?;
        return Ok((Devices::ReadOnly(Arc::new(tree)), disks));
    }
    let mut devices: BTreeMap<u64, Arc<dyn WriteDevice>> = BTreeMap::new();
    for (number, member) in found.members.iter().enumerate() {
        let path = member.candidate.path.as_deref().unwrap_or_else(|| Path::new(""));
        let file = WriteFile::open(path)?;
        let spinning = Spinning::real(file, parameters(member.candidate.device.size()));
        let spinning = Traced::new(spinning, number, trace.clone());
        let disk: Arc<Disk<WriteFile>> =
            Arc::new(LeafQueue::new(spinning, options, buffers.clone()));
        let seen = disk.clone();
        disks.ios.push(Box::new(move || counts(seen.device().inner())));
        devices.insert(member.guid, disk);
    }
    Ok((Devices::Writable(WriteTree::open(&found.root, devices)?), disks))
}
