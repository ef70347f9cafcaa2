//! The rings of uberblocks in a leaf's labels, slot by slot.
//!
//! The one idea: a ring may hold nothing but uberblocks with their seals, zeros, what a new label's
//! ring begins as, and slots in which a write was cut off: those have the shape of an uberblock,
//! and are all of one txg. FORMAT: sections 1.1, 1.5.

use crate::report::DeviceDamage;
use codec::embedded::{self, Place};
use device::Device;
use format::Uberblock;
use format::eck::{ECK_MAGIC, ECK_SIZE};
use format::label::{BOOTENV_AT, BOOTENV_SIZE, LABELS, RING_AT, RING_SIZE, label_offset};
use format::uberblock::{slot_count, slot_of_txg, slot_size};
use std::collections::BTreeSet;

/// Bytes of the smallest slot: others are multiples of it.
const PIECE: usize = 1 << 10;
/// Bytes within which an uberblock lies, whatever wrote it: one sector.
const HEAD: usize = 512;

/// What a leaf's rings hold.
#[derive(Default)]
pub(crate) struct Rings {
    /// Labels whose ring has something in it that is no uberblock, or cannot be read.
    pub bad: BTreeSet<u8>,
    /// Slots in which a write may have been cut off: their label and their number.
    pub torn: Vec<(u8, usize)>,
    /// Slots of a ring.
    slots: usize,
    /// Labels whose boot environment is damaged.
    pub bootenvs: Vec<u8>,
    /// Labels whose ring lacks the uberblock that was asked for.
    pub lacking: Vec<u8>,
    /// The newest uberblock's txg in any ring; 0: there is none.
    pub newest: u64,
}

/// What a slot holds.
enum Slot {
    /// Nothing, or what it began as.
    Empty,
    /// An uberblock of this txg.
    Good(u64),
    /// Parts of two uberblocks.
    Torn,
    /// What no uberblock ever was.
    Bad,
}

impl Rings {
    /// Reads the rings of a leaf whose top-level vdev has this ashift; `txg`: the uberblock that
    /// should be in them.
    pub(crate) fn read(device: &dyn Device, ashift: u64, txg: u64) -> Rings {
        let mut rings = Rings { slots: slot_count(ashift), ..Rings::default() };
        for (number, label) in (0u8..).zip(0..LABELS) {
            let Some(offset) = label_offset(label, device.size()) else { continue };
            let mut bytes = vec![0; BOOTENV_SIZE];
            let at = offset + BOOTENV_AT;
            let read = device.read_at(at, &mut bytes);
            let whole =
                is_zero(&bytes) || embedded::check(Place::Label { offset: at }, &bytes).is_ok();
            if read.is_err() || !whole {
                rings.bootenvs.push(number);
            }
            let mut bytes = vec![0; RING_SIZE];
            let at = offset + RING_AT;
            match device.read_at(at, &mut bytes) {
                Ok(()) => rings.look(number, &bytes, at, ashift, txg),
                Err(_) => _ = rings.bad.insert(number),
            }
        }
        rings
    }

    /// Looks at one ring, which lies at `at`.
    fn look(&mut self, label: u8, ring: &[u8], at: u64, ashift: u64, txg: u64) {
        let size = slot_size(ashift);
        let mut lacks = true;
        for (slot, bytes) in ring.chunks_exact(size).enumerate() {
            match look(ring, at, slot, bytes, ashift) {
                Slot::Empty => {}
                Slot::Good(of) => {
                    lacks &= of != txg;
                    self.newest = self.newest.max(of);
                }
                Slot::Torn => self.torn.push((label, slot)),
                Slot::Bad => _ = self.bad.insert(label),
            }
        }
        if lacks {
            self.lacking.push(label);
        }
    }

    /// What is to be said of them beside damage. `expected`: is the uberblock due on this leaf at all?
    pub(crate) fn notes(&self, damage: &DeviceDamage, expected: bool) -> Vec<String> {
        let (device, mut notes) = (&damage.device, Vec::new());
        let other = |labels: Vec<u8>| -> Vec<u8> {
            let told = |label: &u8| damage.labels.contains(label) || damage.rings.contains(label);
            labels.into_iter().filter(|label| !told(label)).collect()
        };
        let torn: BTreeSet<u8> = self.torn.iter().map(|(label, _)| *label).collect();
        for (labels, what) in [
            (
                other(torn.into_iter().collect()),
                "an uberblock broken off in the ring of labels {}, as by a write that was cut off",
            ),
            (other(self.bootenvs.clone()), "the boot environment of labels {} is damaged"),
            (
                // A leaf that has it in no ring was not written to, by design where there are many.
                other(self.lacking.clone()).into_iter().filter(|_| expected).collect(),
                "the ring of labels {} lacks the uberblock that was judged",
            ),
        ] {
            if !labels.is_empty() {
                notes.push(format!("device {device}: {}", what.replace("{}", &list(&labels))));
            }
        }
        notes
    }

    /// Has this leaf the uberblock in some ring?
    pub(crate) fn has_it(&self) -> bool {
        self.lacking.len() < LABELS
    }
}

/// Numbers in words.
pub(crate) fn list(labels: &[u8]) -> String {
    labels.iter().map(u8::to_string).collect::<Vec<_>>().join(", ")
}

/// May all that is torn have been cut off in one txg's write? Each txg has its slot, and rings with
/// fewer slots come round more often.
pub(crate) fn are_of_one_cut<'a>(rings: impl Iterator<Item = &'a Rings>) -> bool {
    let torn = rings.flat_map(|rings| rings.torn.iter().map(|(_, slot)| (rings.slots, *slot)));
    let torn: BTreeSet<(usize, usize)> = torn.collect();
    let finest = torn.last().copied();
    torn.iter().all(|(slots, slot)| finest.is_some_and(|(_, finest)| finest % slots == *slot))
}

fn is_zero(bytes: &[u8]) -> bool {
    bytes.iter().all(|byte| *byte == 0)
}

fn look(ring: &[u8], at: u64, slot: usize, bytes: &[u8], ashift: u64) -> Slot {
    if is_zero(bytes) {
        return Slot::Empty;
    }
    let size = bytes.len();
    let offset = at + (slot * size) as u64;
    if let Some(txg) = sealed(bytes, offset) {
        return Slot::Good(txg);
    }
    let (head, rest) = bytes.split_at(HEAD);
    let (middle, tail) = rest.split_at(rest.len() - ECK_SIZE);
    let uberblock = Uberblock::parse(head).ok();
    if is_zero(middle) {
        let eck = u64::from_le_bytes(*tail.first_chunk().expect("a tail has a word"));
        let has_eck = [ECK_MAGIC, ECK_MAGIC.swap_bytes()].contains(&eck);
        // A new ring is sealed as a whole, over an uberblock without a txg at its beginning.
        let begins = slot == 0 && is_zero(&head[16..24]) && is_zero(tail);
        let ends = slot + 1 == slot_count(ashift) && is_zero(head) && has_eck;
        if begins || ends {
            return Slot::Empty;
        }
        let fits = |of: Uberblock| {
            let own = [false, true].map(|multihost| slot_of_txg(of.txg.get(), ashift, multihost));
            own.contains(&slot) || slot + 1 == slot_count(ashift)
        };
        let is_head = is_zero(head) || uberblock.is_some_and(fits);
        if is_head && (has_eck || is_zero(tail)) {
            return Slot::Torn;
        }
    }
    // A disk that stood in elsewhere may have slots of another size.
    let pieces = (slot * size..(slot + 1) * size).step_by(PIECE);
    let is_others = |piece: usize| {
        [1usize, 2, 4, 8].map(|times| times * PIECE).iter().any(|size| {
            let from = piece / size * size;
            let whole = ring.get(from..from + size);
            whole.is_some_and(|bytes| sealed(bytes, at + from as u64).is_some())
        })
    };
    let mut known =
        pieces.map(|from| ring.get(from..from + PIECE).is_some_and(is_zero) || is_others(from));
    if known.all(|known| known) { Slot::Empty } else { Slot::Bad }
}

/// The txg of an uberblock with its seal.
fn sealed(bytes: &[u8], offset: u64) -> Option<u64> {
    let uberblock = Uberblock::parse(bytes).ok()?;
    embedded::check(Place::Label { offset }, bytes).ok()?;
    Some(uberblock.txg.get())
}
