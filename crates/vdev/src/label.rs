//! Labels: what a device says about itself, and what is written on it so that it will say it.
//!
//! Place: under `import` (reading) and the last steps of a txg (writing).
//! The one idea: a leaf has four labels, two at each end, and each part of a label carries a
//! checksum with its own place in it. So every part is judged alone, what is good is used, and
//! writing two labels at a time leaves two that are whole, wherever the power goes.
//! FORMAT: sections 1.1, 1.5, 1.6.

use crate::error::{LeafFailure, Result, VdevError};
use crate::flushes::FlushFailures;
use crate::write::{WriteReport, WriteTree, Writers};
use codec::embedded::{self, EmbeddedError, Place};
use device::queue::{Batch, Class};
use device::{Device, DeviceError, WriteDevice};
use format::bootenv::BootEnv;
use format::config::{Label, PoolConfig};
use format::label::{
    BOOTENV_AT, CONFIG_AT, CONFIG_SIZE, LABEL_SIZE, LABELS, RING_AT, build_config, label_offset,
    parse_config,
};
use format::uberblock::{slot_of_txg, slot_size};
use format::{BlkPtr, FormatError, NvList, Uberblock};
use std::collections::BTreeSet;
use std::io::IoSlice;

/// Why one of a device's labels cannot be used.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum LabelError {
    /// The device has no room for labels.
    #[error("{size} bytes are too few for labels")]
    TooSmall {
        /// Size of the device, in bytes.
        size: u64,
    },
    /// The device could not be read or written.
    #[error(transparent)]
    Device(#[from] DeviceError),
    /// Never written, overwritten or damaged.
    #[error(transparent)]
    Checksum(#[from] EmbeddedError),
    /// The checksum is right and the config is not one.
    #[error(transparent)]
    Format(#[from] FormatError),
}

/// All that a device's labels say.
#[derive(Debug, Clone)]
pub struct Labels {
    /// The config of each label, or why there is none.
    pub configs: [std::result::Result<Label, LabelError>; LABELS],
    /// The uberblocks with a good checksum in any of the rings, newest first, none twice.
    pub uberblocks: Vec<Uberblock>,
}

impl Labels {
    /// Reads the labels of a device. What cannot be read says why; nothing makes this fail.
    pub fn read(device: &dyn Device) -> Labels {
        const TO_END: usize = (LABEL_SIZE - CONFIG_AT) as usize;
        let mut uberblocks = Vec::new();
        let configs = each_label(device, TO_END, |bytes, at| {
            read_ring(&bytes[CONFIG_SIZE..], at + CONFIG_SIZE as u64, &mut uberblocks);
            read_config(&bytes[..CONFIG_SIZE], at)
        });
        sort_uberblocks(&mut uberblocks);
        Labels { configs, uberblocks }
    }

    /// The config of each label, or why there is none: for whoever does not need the rings.
    pub fn read_configs(device: &dyn Device) -> [std::result::Result<Label, LabelError>; LABELS] {
        each_label(device, CONFIG_SIZE, read_config)
    }

    /// The configs that can be used, of whatever label.
    pub fn good(&self) -> impl Iterator<Item = &Label> {
        self.configs.iter().flatten()
    }

    /// The config of the pool that the device belongs to: the newest that is not ahead of the
    /// uberblock of `txg`. A label may have been written for an uberblock that never came.
    pub fn member(&self, txg: u64) -> Option<&PoolConfig> {
        let members = || {
            let configs = self.good().filter_map(|label| match label {
                Label::Member(config) => Some(&**config),
                Label::Aux(_) => None,
            });
            configs.filter(|config| config.txg != 0)
        };
        let fits = |config: &&PoolConfig| config.txg <= txg;
        let newest = members().filter(fits).max_by_key(|config| config.txg);
        newest.or_else(|| members().min_by_key(|config| config.txg))
    }

    /// Uberblocks that are not of a pool whose newest is that of `txg`, with this MOS: they are newer, or of that txg and
    /// lead elsewhere.
    pub fn strays(&self, (txg, root): (u64, &BlkPtr)) -> Vec<Uberblock> {
        let is_stray = |uberblock: &&Uberblock| {
            let of = uberblock.txg.get();
            of > txg || of == txg && uberblock.root != *root
        };
        self.uberblocks.iter().filter(is_stray).copied().collect()
    }

    /// Has the device gone another way than a pool whose newest uberblock is that of `txg`, with this MOS? A crash leaves
    /// a device at most one txg ahead, right upon what the pool has; whoever has more was written to elsewhere.
    pub fn is_astray(&self, (txg, root): (u64, &BlkPtr)) -> bool {
        let count = self.uberblocks.partition_point(|uberblock| uberblock.txg.get() > txg);
        let (ahead, rest) = self.uberblocks.split_at(count);
        let Some(newest) = ahead.first() else { return false };
        // Protection against other hosts writes that of a txg again and again.
        let one = ahead.iter().all(|uberblock| uberblock.txg == newest.txg);
        let mut under = rest.iter().take_while(|uberblock| uberblock.txg.get() == txg);
        let known = under.next().is_some_and(|under| under.root == *root);
        !(one && known)
    }

    /// Is the newest uberblock of a pool, of `txg` and with this MOS, one that the device had, too? Then it can only be further on
    /// the same way.
    pub fn goes_on_from(&self, (txg, root): (u64, &BlkPtr)) -> bool {
        self.uberblocks.iter().any(|own| own.txg.get() == txg && own.root == *root)
    }

    /// Has the device parted from the way of another one with these uberblocks? From a txg on that both made, each another
    /// one, and it has more than one since: a single one is what a crash leaves.
    pub fn has_parted(&self, way: &[Uberblock]) -> bool {
        let of = |ring: &[Uberblock], txg| {
            let of = ring.iter().filter(|uberblock| uberblock.txg.get() == txg);
            of.map(|uberblock| uberblock.root).collect::<Vec<BlkPtr>>()
        };
        let is_own = |txg: &u64| {
            let others = of(way, *txg);
            !others.is_empty() && of(&self.uberblocks, *txg).iter().all(|own| !others.contains(own))
        };
        let txgs = || self.uberblocks.iter().map(|own| own.txg.get());
        let (since, mut after) = (txgs().filter(is_own).min(), txgs());
        since.is_some_and(|since| after.any(|txg| txg > since))
    }

    /// Are labels 1 and 3 not whole, and labels 0 and 2 are? A write that was cut off leaves them so.
    pub fn are_odd_broken(&self) -> bool {
        let [first, second, third, fourth] = self.configs.each_ref().map(|config| config.is_ok());
        first && third && !(second && fourth)
    }

    /// The guid of the device, whatever its labels say of a pool.
    pub fn guid(&self) -> Option<u64> {
        self.good().find_map(|label| match label {
            Label::Aux(aux) => Some(aux.guid),
            Label::Member(config) => config.label.map(|ids| ids.guid),
        })
    }

    /// Is one of the labels that of a spare or of a cache device?
    pub fn aux(&self) -> Option<&format::config::AuxLabel> {
        self.good().find_map(|label| match label {
            Label::Aux(aux) => Some(aux),
            Label::Member(_) => None,
        })
    }
}

/// Newest first, none twice.
pub(crate) fn sort_uberblocks(list: &mut Vec<Uberblock>) {
    list.sort_by(|a, b| b.cmp_age(a).then_with(|| a.to_words().cmp(&b.to_words())));
    list.dedup();
}

/// What `take` makes of so many bytes of each label, from its config on, and of where they are.
fn each_label<T>(
    device: &dyn Device,
    len: usize,
    mut take: impl FnMut(&[u8], u64) -> std::result::Result<T, LabelError>,
) -> [std::result::Result<T, LabelError>; LABELS] {
    let mut bytes = vec![0; len];
    std::array::from_fn(|label| {
        let too_small = LabelError::TooSmall { size: device.size() };
        let at = label_offset(label, device.size()).ok_or(too_small)? + CONFIG_AT;
        device.read_at(at, &mut bytes)?;
        take(&bytes, at)
    })
}

fn read_config(region: &[u8], offset: u64) -> std::result::Result<Label, LabelError> {
    embedded::check(Place::Label { offset }, region)?;
    Ok(Label::from_nvlist(&parse_config(region)?)?)
}

/// Adds the good uberblocks of a ring. The size of its slots depends on the config, which may be
/// lost; but a slot's checksum holds for its own size only, so that all sizes can be tried.
fn read_ring(ring: &[u8], offset: u64, found: &mut Vec<Uberblock>) {
    let mut sizes: Vec<usize> = (0..16).map(slot_size).collect();
    sizes.dedup();
    for size in sizes {
        for (slot, at) in ring.chunks_exact(size).zip((offset..).step_by(size)) {
            // The magic number is looked at first: a checksum costs more.
            let Ok(uberblock) = Uberblock::parse(slot) else { continue };
            // What a fresh label holds before its pool's first txg is no pool.
            if uberblock.txg.get() == 0 {
                continue;
            }
            // Nor is it taken of what another ring has vouched for.
            let known = found.contains(&uberblock);
            if !known && embedded::check(Place::Label { offset: at }, slot).is_ok() {
                found.push(uberblock);
            }
        }
    }
}

/// What a label's config region holds, sealed for its place.
fn seal_config(config: &NvList, at: u64) -> std::result::Result<Vec<u8>, LabelError> {
    let mut region = build_config(config)?;
    embedded::seal(Place::Label { offset: at }, &mut region)?;
    Ok(region)
}

/// Writes four fresh labels: `config`, an empty boot environment, and a ring without uberblocks.
/// What the device was before is gone. Flushes.
///
/// # Errors
/// If the device is too small or fails, or the config does not fit.
pub fn write_fresh(
    device: &dyn WriteDevice,
    config: &NvList,
) -> std::result::Result<(), LabelError> {
    let too_small = LabelError::TooSmall { size: device.size() };
    for label in 0..LABELS {
        let offset = label_offset(label, device.size()).ok_or(too_small.clone())?;
        let mut bytes = vec![0; LABEL_SIZE as usize];
        let mut put = |at: u64, region: &[u8]| {
            bytes[at as usize..][..region.len()].copy_from_slice(region);
        };
        let mut bootenv = BootEnv::default().to_region()?;
        embedded::seal(Place::Label { offset: offset + BOOTENV_AT }, &mut bootenv)?;
        put(BOOTENV_AT, &bootenv);
        put(CONFIG_AT, &seal_config(config, offset + CONFIG_AT)?);
        device.write_at(offset, &bytes)?;
    }
    device.flush()?;
    Ok(())
}

/// Writes `config` into all four labels of a device that is in no pool's tree: a spare or a cache.
/// Rings and boot environments stay. Flushes.
pub fn write_config(
    device: &dyn WriteDevice,
    config: &NvList,
) -> std::result::Result<(), LabelError> {
    for labels in [[0, 2], [1, 3]] {
        for (at, bytes) in pair(device, labels, config)? {
            device.write_at(at, &bytes)?;
        }
        device.flush()?;
    }
    Ok(())
}

/// Takes an uberblock out of all rings of a device whose top-level vdev has sectors of `1 << ashift` bytes. Flushes.
///
/// # Errors
/// If the device fails.
pub fn erase_uberblock(
    device: &dyn WriteDevice,
    uberblock: &Uberblock,
    ashift: u64,
) -> std::result::Result<(), LabelError> {
    for (at, bytes) in slots(device, uberblock, ashift)? {
        device.write_at(at, &vec![0; bytes.len()])?;
    }
    device.flush()?;
    Ok(())
}

/// Bytes of a device's labels, and where they go.
type Pieces = Vec<(u64, Vec<u8>)>;

/// The config region of two of a device's labels.
fn pair(
    device: &dyn WriteDevice,
    pair: [usize; 2],
    config: &NvList,
) -> std::result::Result<Pieces, LabelError> {
    let piece = |label| {
        let offset = label_offset(label, device.size());
        let at = offset.ok_or(LabelError::TooSmall { size: device.size() })? + CONFIG_AT;
        Ok((at, seal_config(config, at)?))
    };
    pair.into_iter().map(piece).collect()
}

/// An uberblock in its slot of all four rings of a device.
fn slots(
    device: &dyn WriteDevice,
    uberblock: &Uberblock,
    ashift: u64,
) -> std::result::Result<Pieces, LabelError> {
    let slot = slot_of_txg(uberblock.txg.get(), ashift, uberblock.multihost());
    let piece = |label| {
        let offset = label_offset(label, device.size());
        let offset = offset.ok_or(LabelError::TooSmall { size: device.size() })?;
        let at = offset + RING_AT + (slot * slot_size(ashift)) as u64;
        let mut bytes = uberblock.to_slot(ashift);
        embedded::seal(Place::Label { offset: at }, &mut bytes)?;
        Ok((at, bytes))
    };
    (0..LABELS).map(piece).collect()
}

impl WriteTree {
    /// Makes `uberblock` the pool, in OpenZFS's order, each step flushed before the next (INV-3):
    ///
    /// 1. if `config` is given: it goes to labels 0 and 2 of every leaf;
    /// 2. the uberblock goes to all four rings of every leaf;
    /// 3. if `config` is given: it goes to labels 1 and 3.
    ///
    /// All that the uberblock reaches must have been flushed before ([`WriteTree::flush`]), and what leaves
    /// lack of it must be among that: so a leaf may have the uberblock and not the blocks.
    ///
    /// Cut anywhere, the pool opens: before step 2 is done labels 1 and 3 still fit the old
    /// uberblock (a label ahead of the uberblock is ignored), after it labels 0 and 2 fit the new. Leaves whose
    /// labels 1 and 3 were broken off by such a cut get those first, and the others last: all four would be lost by
    /// another one.
    ///
    /// `config` is that of the whole pool; its `txg` must not be above the uberblock's.
    ///
    /// # Errors
    /// A leaf that fails is reported. It is an error if a top-level vdev is left without a leaf
    /// that took the config, or the pool without one that took the uberblock; logs do not count, since the pool
    /// can do without them. It may be tried again.
    pub fn commit(
        &self,
        uberblock: &Uberblock,
        config: Option<&PoolConfig>,
    ) -> Result<WriteReport> {
        let mut report = WriteReport::default();
        let writers = self.writers();
        let mut step = LabelStep { leaves: &writers, report: &mut report };
        if let Some(config) = config {
            debug_assert!(config.txg <= uberblock.txg.get(), "a label is never ahead");
            step.configs(config, true)?;
        }
        step.uberblock(uberblock)?;
        if let Some(config) = config {
            step.configs(config, false)?;
            writers.odd_broken().lock().clear();
        }
        Ok(report)
    }

    /// Has every leaf have the uberblock that the pool is opened with: who wrote it may have died when few had it, and
    /// those may be the next to be lost. Nothing is written where all have it.
    ///
    /// # Errors
    /// Those of [`WriteTree::commit`].
    pub fn spread(&self, uberblock: &Uberblock) -> Result<()> {
        let writers = self.writers();
        let tree = writers.tree();
        let lacks = |(index, leaf): (usize, &crate::Leaf)| {
            let Some(device) = writers.writer(index) else { return false };
            let Ok(pieces) = slots(device, uberblock, ashift_of(tree, leaf)) else { return false };
            pieces.iter().any(|(at, bytes)| {
                let mut there = vec![0; bytes.len()];
                device.read_at(*at, &mut there).is_ok() && there != *bytes
            })
        };
        if tree.leaves().iter().enumerate().any(lacks) {
            self.commit(uberblock, None)?;
        }
        Ok(())
    }
}

/// The sectors of a leaf's top-level vdev, as a power of two.
fn ashift_of(tree: &crate::Tree, leaf: &crate::Leaf) -> u64 {
    let top = tree.tops().get(leaf.top as usize);
    top.and_then(|top| top.config.top).map_or(0, |top| top.ashift)
}

/// One step of a commit, after which everything is flushed.
struct LabelStep<'a> {
    leaves: &'a Writers,
    report: &'a mut WriteReport,
}

impl LabelStep<'_> {
    /// Writes and flushes something on every leaf, on those with queues all at once; the tops on which a leaf took
    /// it.
    fn on_leaves(
        &mut self,
        mut pieces: impl FnMut(
            &dyn WriteDevice,
            &crate::Leaf,
        ) -> std::result::Result<Pieces, LabelError>,
    ) -> Result<Vec<bool>> {
        let tree = self.leaves.tree();
        let before = FlushFailures::of(tree, 0);
        let batch = Batch::new();
        let (mut started, mut leaves) = (Vec::new(), Vec::new());
        for (index, leaf) in tree.leaves().iter().enumerate() {
            let Some(device) = self.leaves.writer(index) else { continue };
            let pieces = match pieces(device, leaf) {
                Ok(pieces) => pieces,
                Err(error) => {
                    batch.wait();
                    return Err(error.into());
                }
            };
            let mut results = Vec::new();
            match device.write_queue() {
                Some(queue) => {
                    for (at, bytes) in &pieces {
                        queue.start_write(&batch, Class::SyncWrite, *at, &[IoSlice::new(bytes)]);
                        started.push(index);
                    }
                }
                None => {
                    let write = |(at, bytes): &(u64, Vec<u8>)| device.write_at(*at, bytes);
                    results.extend(pieces.iter().map(write));
                }
            }
            leaves.push((index, results));
        }
        for (index, outcome) in started.into_iter().zip(batch.wait()) {
            let of_leaf = leaves.iter_mut().find(|(leaf, _)| *leaf == index);
            of_leaf.into_iter().for_each(|(_, results)| results.push(outcome.result.clone()));
        }
        let mut written = Vec::new();
        for (index, results) in leaves {
            // One label is enough to find it by; the others are errors all the same.
            let taken = results.iter().any(|result| result.is_ok());
            if taken {
                written.push(index);
            }
            match results.into_iter().find_map(|result| result.err()) {
                Some(error) if !taken => self.failed(index, error),
                Some(_) => tree.leaves()[index].errors.add_write(),
                None => {}
            }
        }
        // A flush that is given up, or refused beside one that was, has no answer yet for anybody's counter.
        let mut unflushed = BTreeSet::new();
        for (index, error) in self.leaves.flush_leaves(written.iter().copied()) {
            unflushed.insert(index);
            self.failed(index, error);
        }
        // Somebody else may have been told of what was given to a leaf here, and a device tells once.
        let now = FlushFailures::of(tree, 0);
        let mut took = vec![false; tree.tops().len()];
        for index in written {
            let leaf = &tree.leaves()[index];
            match unflushed.contains(&index) || now.has_since(leaf, &before) {
                true => self.leaves.may_have_lost(index),
                false => took[leaf.top as usize] = true,
            }
        }
        Ok(took)
    }

    fn failed(&mut self, leaf: usize, error: DeviceError) {
        self.leaves.tree().leaves()[leaf].errors.add_write();
        self.report.failed.push((leaf, LeafFailure::Device(error)));
    }

    /// Half of the labels: on each leaf that which is due first, or the other one.
    fn configs(&mut self, config: &PoolConfig, first: bool) -> Result<()> {
        let odd_broken = self.leaves.odd_broken().lock().clone();
        let took = self.on_leaves(|device, leaf| {
            let pair = match odd_broken.contains(&leaf.guid()) == first {
                true => [1, 3],
                false => [0, 2],
            };
            let missing = FormatError::Missing { what: "pool config", field: "leaf" };
            let config = config.for_leaf(leaf.guid()).ok_or(missing)?;
            self::pair(device, pair, &config.to_nvlist())
        })?;
        for (top, took) in self.leaves.tree().tops().iter().zip(took) {
            if !took && top.layout.is_some() && !top.is_log() {
                return Err(self.nowhere());
            }
        }
        Ok(())
    }

    fn uberblock(&mut self, uberblock: &Uberblock) -> Result<()> {
        let tree = self.leaves.tree();
        let took =
            self.on_leaves(|device, leaf| slots(device, uberblock, ashift_of(tree, leaf)))?;
        let mut took = tree.tops().iter().zip(took);
        let any = took.any(|(top, took)| took && !top.is_log());
        if any { Ok(()) } else { Err(self.nowhere()) }
    }

    /// The error of a step that no leaf took.
    fn nowhere(&self) -> VdevError {
        let missing = || LeafFailure::Missing { guid: 0, path: String::new() };
        let first = self.report.failed.first().map_or_else(missing, |(_, failure)| failure.clone());
        VdevError::LabelsFailed { first: Box::new(first) }
    }
}
