//! Labels part by part, as they are on a device: for whoever wants to see what is wrong with them.
//!
//! Place: beside [`crate::label`], which takes what is good and forgets the rest. The one idea:
//! nothing is left out; every region and every slot of a ring says what it holds or why it holds
//! nothing that can be used.

use crate::label::LabelError;
use codec::embedded::{self, Place};
use device::Device;
use format::bootenv::BootEnv;
use format::label::{
    ASHIFT_MAX, BOOTENV_AT, BOOTENV_SIZE, CONFIG_AT, CONFIG_SIZE, LABEL_SIZE, LABELS, RING_AT,
    RING_SIZE, label_offset, parse_config,
};
use format::uberblock::slot_size;
use format::{NvList, Uberblock};

/// A slot of a ring of uberblocks that holds something.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Slot {
    /// Number of the slot.
    pub slot: usize,
    /// What it holds, or why that is no uberblock.
    pub uberblock: Result<Uberblock, LabelError>,
}

/// One label of a device.
#[derive(Clone, Debug)]
pub struct LabelParts {
    /// Which of the four.
    pub label: usize,
    /// Where it is on the device, in bytes.
    pub offset: u64,
    /// The config as it is written.
    pub config: Result<NvList, LabelError>,
    /// The boot environment.
    pub bootenv: Result<BootEnv, LabelError>,
    /// Bytes of a slot of the ring.
    pub slot_size: usize,
    /// The slots of the ring that hold an uberblock, or what was one, in order.
    pub ring: Vec<Slot>,
}

/// The four labels of a device, each as far as it can be read.
pub fn label_parts(device: &dyn Device) -> Vec<Result<LabelParts, LabelError>> {
    let read = |label| {
        let too_small = LabelError::TooSmall { size: device.size() };
        let offset = label_offset(label, device.size()).ok_or(too_small)?;
        let mut bytes = vec![0; LABEL_SIZE as usize];
        device.read_at(offset, &mut bytes)?;
        Ok(parts_of(label, offset, &bytes))
    };
    (0..LABELS).map(read).collect()
}

fn parts_of(label: usize, offset: u64, bytes: &[u8]) -> LabelParts {
    let region = |at: u64, size: usize| &bytes[at as usize..][..size];
    let config = region(CONFIG_AT, CONFIG_SIZE);
    let checked = embedded::check(Place::Label { offset: offset + CONFIG_AT }, config);
    let config = checked.map_err(LabelError::from).and_then(|_| Ok(parse_config(config)?));
    let bootenv = region(BOOTENV_AT, BOOTENV_SIZE);
    let checked = embedded::check(Place::Label { offset: offset + BOOTENV_AT }, bootenv);
    let bootenv = checked.map_err(LabelError::from).and_then(|_| Ok(BootEnv::parse(bootenv)?));
    let ring = region(RING_AT, RING_SIZE);
    let size = ring_slot_size(config.as_ref().ok(), ring, offset + RING_AT);
    let slots = ring.chunks_exact(size).zip((offset + RING_AT..).step_by(size)).enumerate();
    // A fresh ring has more in it than zeros (a version, a checksum over all of it): what has no
    // magic number at all is no uberblock that was damaged.
    let used = slots.filter(|(_, (bytes, _))| bytes.iter().take(8).any(|byte| *byte != 0));
    let ring = used.map(|(slot, (bytes, at))| Slot { slot, uberblock: uberblock(bytes, at) });
    LabelParts { label, offset, config, bootenv, slot_size: size, ring: ring.collect() }
}

fn uberblock(bytes: &[u8], offset: u64) -> Result<Uberblock, LabelError> {
    embedded::check(Place::Label { offset }, bytes)?;
    Ok(Uberblock::parse(bytes)?)
}

/// How large the slots are: as the config's ashift has it; without one, the size in which most
/// checksums are right.
fn ring_slot_size(config: Option<&NvList>, ring: &[u8], offset: u64) -> usize {
    let told = config.and_then(|config| config.list("vdev_tree")?.u64("ashift"));
    if let Some(ashift) = told.filter(|ashift| *ashift <= ASHIFT_MAX) {
        return slot_size(ashift);
    }
    let mut sizes: Vec<usize> = (0..=ASHIFT_MAX).map(slot_size).collect();
    sizes.dedup();
    let good = |size: &usize| {
        let slots = ring.chunks_exact(*size).zip((offset..).step_by(*size));
        slots.filter(|(bytes, at)| uberblock(bytes, *at).is_ok()).count()
    };
    // Of equals the smallest: the first.
    sizes.into_iter().rev().max_by_key(good).unwrap_or(RING_SIZE)
}
