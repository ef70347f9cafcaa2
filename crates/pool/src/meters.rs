//! What the leaves of an open pool have done, and which of them are slower than their siblings.
//!
//! The one idea: the devices count ([`device::meter`]); here is who they are, and since when they count. A vdev's
//! figures are the sums of its leaves', as OpenZFS has them: what a client wrote once counts with its copies and its
//! parity.

pub use device::meter::{CLASSES, ClassMeters, Meters, SIZES, Sizes, TIMES, Times, mean};
pub use device::queue::Class;

use std::time::Duration;

use format::config::VdevKind;

use crate::pool::Pool;
use crate::slow::{News, Sample, Slow};

/// What a leaf has done since its pool was opened.
#[derive(Clone, Debug)]
pub struct LeafMeters {
    /// Its guid.
    pub guid: u64,
    /// Number of its top-level vdev.
    pub top: u32,
    /// Its device's name.
    pub name: String,
    /// What it has done; zeros if it has no device.
    pub meters: Meters,
}

impl Pool {
    /// What each leaf has done since the pool was opened.
    #[must_use]
    pub fn meters(&self) -> Vec<LeafMeters> {
        let tree = self.store().tree();
        let of_leaf = |leaf: &vdev::Leaf| LeafMeters {
            guid: leaf.guid(),
            top: leaf.top,
            name: leaf.name(),
            meters: leaf.meters(),
        };
        tree.leaves().iter().map(of_leaf).collect()
    }

    /// Since when its meters count.
    #[must_use]
    pub fn opened(&self) -> rt::time::Instant {
        self.opened
    }

    /// How long it has been open.
    #[must_use]
    pub fn open_for(&self) -> Duration {
        self.opened.elapsed()
    }

    /// Compares the leaves with their siblings, over what they did since the last times it was asked: to be called
    /// every few seconds ([`crate::slow::LOOK`]). What has changed. Those that are slow sit out
    /// (`docs/decisions/0020-sitting-out.md`).
    pub fn look_for_slow(&self) -> Vec<News> {
        let tree = self.store().tree();
        let sample = |leaf: &vdev::Leaf| {
            let top = tree.tops().get(leaf.top as usize)?;
            let width = top.slots().iter().map(Vec::len).sum::<usize>();
            let log = top.config.top.is_some_and(|top| top.is_log);
            // Few siblings are compared with those of vdevs of the same shape.
            let group = match width {
                0..3 => (u64::MAX - width as u64 * 2) - u64::from(log),
                _ => u64::from(leaf.top),
            };
            let disk = leaf.config.kind == VdevKind::Disk;
            leaf.device()?;
            Some(Sample {
                guid: leaf.guid(),
                name: leaf.name(),
                group,
                disk,
                lacks: leaf.is_filling() || !leaf.lacks.is_empty(),
                meters: leaf.meters(),
            })
        };
        let samples = tree.leaves().iter().filter_map(sample).collect();
        let mut watch = self.slow.lock();
        let news = watch.look(samples);
        let slow: Vec<u64> = watch.slow().iter().map(|slow| slow.guid).collect();
        watch.sitting.look(&tree, &news, &slow, rt::time::now());
        news
    }

    /// The leaves that are slower than their siblings.
    #[must_use]
    pub fn slow(&self) -> Vec<Slow> {
        let tree = self.store().tree();
        let out = |guid| {
            let leaf = tree.leaf_by_guid(guid).and_then(|leaf| tree.leaves().get(leaf));
            leaf.is_some_and(vdev::Leaf::sits_out)
        };
        let mut slow = self.slow.lock().slow();
        slow.iter_mut().for_each(|slow| slow.sits_out = out(slow.guid));
        slow
    }
}
