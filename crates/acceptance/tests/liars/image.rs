//! A disk image in memory that can be made to lie: any block reachable from its uberblock is changed,
//! and every checksum above it is made to fit, so that parsers see what checksums would keep away.
//!
//! Of the format it knows just enough to find pointers in blocks: the lies are to be found by others.

use codec::checksum::fletcher::fletcher4;
use codec::compress::decompress;
use codec::embedded::{Place, seal};
use format::label::{CONFIG_AT, CONFIG_SIZE, DATA_AT, LABEL_SIZE, RING_AT};
use format::uberblock::{slot_count, slot_size};
use format::{BlkPtr, Checksum, Compress, Dva, ObjectType, Uberblock};
use testkit::random::Rng;

/// Where blocks that lie are written: the pool of this test is not that full.
const FREE_AT: u64 = 40 << 20;

/// A pool of one disk.
#[derive(Clone)]
pub(crate) struct Image {
    pub(crate) bytes: Vec<u8>,
    ashift: u64,
    /// Where the next block that lies goes, in the vdev's allocatable space.
    free: u64,
}

/// A block on the way down: its bytes, its pointer, and where in its parent that is.
struct Step {
    bytes: Vec<u8>,
    pointer: BlkPtr,
    at: usize,
}

/// What was changed, for messages.
pub(crate) type Told = String;

impl Image {
    pub(crate) fn new(bytes: Vec<u8>, ashift: u64) -> Image {
        Image { bytes, ashift, free: FREE_AT }
    }

    /// Where label `i` starts.
    pub(crate) fn label(&self, i: u64) -> usize {
        let from_end = self.bytes.len() as u64 - (4 - i) * LABEL_SIZE;
        (if i < 2 { i * LABEL_SIZE } else { from_end }) as usize
    }

    /// The slot of the newest uberblock, from the start of a label, and what is in it.
    fn newest(&self) -> (usize, Uberblock) {
        let size = slot_size(self.ashift);
        let slots = (0..slot_count(self.ashift)).map(|i| RING_AT as usize + i * size);
        let parsed =
            slots.filter_map(|at| Some((at, Uberblock::parse(&self.bytes[at..at + size]).ok()?)));
        parsed.max_by_key(|(_, uberblock)| uberblock.txg.get()).unwrap()
    }

    /// Writes a slot into all labels, its checksum right.
    fn set_slot(&mut self, at: usize, slot: &[u8]) {
        for i in 0..4 {
            let start = self.label(i) + at;
            let mut slot = slot.to_vec();
            seal(Place::Label { offset: start as u64 }, &mut slot).unwrap();
            self.bytes[start..start + slot.len()].copy_from_slice(&slot);
        }
    }

    /// Changes the newest uberblock of all labels.
    pub(crate) fn lie_in_uberblock(&mut self, rng: &mut Rng) -> Told {
        let (at, _) = self.newest();
        let mut slot = self.bytes[at..at + slot_size(self.ashift)].to_vec();
        let told = spoil(&mut slot[..208], rng);
        self.set_slot(at, &slot);
        format!("uberblock: {told}")
    }

    /// Changes the configuration in all labels.
    pub(crate) fn lie_in_config(&mut self, rng: &mut Rng) -> Told {
        let at = CONFIG_AT as usize;
        let mut config = self.bytes[at..at + CONFIG_SIZE].to_vec();
        // what is in use of it
        let used = config.iter().take(CONFIG_SIZE - 40).rposition(|b| *b != 0).unwrap_or(0) + 1;
        let told = spoil(&mut config[..used], rng);
        for i in 0..4 {
            let start = self.label(i) + at;
            let mut config = config.clone();
            seal(Place::Label { offset: start as u64 }, &mut config).unwrap();
            self.bytes[start..start + CONFIG_SIZE].copy_from_slice(&config);
        }
        format!("config: {told}")
    }

    fn read(&self, pointer: &BlkPtr) -> Option<Vec<u8>> {
        let start = (DATA_AT + pointer.dva(0).offset) as usize;
        let stored = self.bytes.get(start..start + pointer.psize() as usize)?;
        if pointer.checksum() != Some(Checksum::Fletcher4)
            || fletcher4(stored) != pointer.checksum_words()
        {
            return None;
        }
        let mut block = vec![0; pointer.lsize() as usize];
        match pointer.compress()? {
            Compress::Off => block.copy_from_slice(stored),
            kind => decompress(kind, stored, &mut block).ok()?,
        }
        Some(block)
    }

    /// Writes a block to a new place, not compressed; the pointer to it.
    fn write(&mut self, block: &[u8], old: &BlkPtr) -> BlkPtr {
        let asize = (block.len() as u64).next_multiple_of(1 << self.ashift);
        let start = (DATA_AT + self.free) as usize;
        self.bytes[start..start + block.len()].copy_from_slice(block);
        let mut words = old.words();
        let off = u64::from(Compress::Off.id());
        let sectors = block.len() as u64 / 512 - 1;
        words[6] = words[6] & !(0x7f << 32) & !(0xffff << 16) | off << 32 | sectors << 16;
        let mut pointer = BlkPtr::from_words(words);
        pointer.set_dva(0, Dva { vdev: 0, offset: self.free, asize, gang: false });
        (1..3).for_each(|i| pointer.set_dva(i, Dva::default()));
        pointer.set_checksum_words(fletcher4(block));
        self.free += asize;
        pointer
    }

    /// Goes down from the newest uberblock at random, changes the block where it stops, and writes
    /// all above it anew.
    pub(crate) fn lie_in_block(&mut self, rng: &mut Rng) -> Told {
        let (at, mut uberblock) = self.newest();
        let bytes = self.read(&uberblock.root).unwrap();
        let mut way = vec![Step { bytes, pointer: uberblock.root, at: 0 }];
        while !rng.one_in(6) {
            let last = way.last().unwrap();
            let below: Vec<usize> = pointers(&last.bytes, &last.pointer)
                .into_iter()
                .filter(|at| self.read(&pointer_at(&last.bytes, *at)).is_some())
                .collect();
            if below.is_empty() {
                break;
            }
            let at = *rng.pick(&below);
            let pointer = pointer_at(&last.bytes, at);
            let bytes = self.read(&pointer).unwrap();
            way.push(Step { bytes, pointer, at });
        }
        let mut step = way.pop().unwrap();
        let told = spoil(&mut step.bytes, rng);
        let (kind, level, depth) = (step.pointer.kind(), step.pointer.level(), way.len());
        let mut pointer = self.write(&step.bytes, &step.pointer);
        let mut place = step.at;
        while let Some(mut parent) = way.pop() {
            let words = pointer.words();
            for (i, word) in words.iter().enumerate() {
                parent.bytes[place + i * 8..][..8].copy_from_slice(&word.to_le_bytes());
            }
            pointer = self.write(&parent.bytes, &parent.pointer);
            place = parent.at;
        }
        uberblock.root = pointer;
        let slot = uberblock.to_slot(self.ashift);
        self.set_slot(at, &slot);
        format!("block of kind {kind:?}, level {level}, {depth} below the root: {told}")
    }
}

fn pointer_at(block: &[u8], at: usize) -> BlkPtr {
    let mut words = [0; 16];
    for (word, bytes) in words.iter_mut().zip(block[at..at + 128].as_chunks::<8>().0) {
        *word = u64::from_le_bytes(*bytes);
    }
    BlkPtr::from_words(words)
}

/// Where in a block there are pointers to blocks.
fn pointers(block: &[u8], pointer: &BlkPtr) -> Vec<usize> {
    let mut at = Vec::new();
    if pointer.level() > 0 {
        at.extend((0..block.len()).step_by(128));
    } else if pointer.kind() == ObjectType::OBJSET {
        at.extend((0..block.len() / 1024 * 2).flat_map(|i| in_dnode(block, i * 512)));
    } else if pointer.kind() == ObjectType::DNODE {
        at.extend((0..block.len() / 512).flat_map(|i| in_dnode(block, i * 512)));
    }
    at.retain(|at| *at + 128 <= block.len());
    let live = |at: &usize| {
        let pointer = pointer_at(block, *at);
        pointer.has_space() && !pointer.is_embedded() && pointer.dva(0).vdev == 0
    };
    at.retain(live);
    at
}

/// Pointers of the dnode at `at`, that of a data set's bonus included.
fn in_dnode(block: &[u8], at: usize) -> Vec<usize> {
    let (kind, count, bonus) = (block[at], usize::from(block[at + 3]), block[at + 4]);
    if kind == 0 || count > 3 {
        return Vec::new();
    }
    let mut out: Vec<usize> = (0..count).map(|i| at + 64 + i * 128).collect();
    if bonus == ObjectType::DSL_DATASET.0 {
        out.push(at + 64 + count * 128 + 128);
    }
    out
}

/// Changes some bytes.
fn spoil(bytes: &mut [u8], rng: &mut Rng) -> Told {
    let at = rng.index(bytes.len());
    match rng.below(6) {
        0 => {
            let bit = 1 << rng.below(8);
            bytes[at] ^= bit;
            format!("bit {bit:#x} at {at:#x}")
        }
        1 => {
            bytes[at] = rng.word() as u8;
            format!("byte {:#x} at {at:#x}", bytes[at])
        }
        2..4 => {
            let value =
                *rng.pick(&[0, 1, 0xff, 1 << 31, 1 << 32, 1 << 63, u64::MAX, u64::MAX >> 1]);
            let at = at & !7;
            let len = 8.min(bytes.len() - at);
            bytes[at..at + len].copy_from_slice(&value.to_le_bytes()[..len]);
            format!("{value:#x} at {at:#x}")
        }
        4 => {
            let len = 1 + rng.index(200.min(bytes.len() - at));
            rng.fill(&mut bytes[at..at + len]);
            format!("{len} bytes of noise at {at:#x}")
        }
        _ => {
            let from = rng.index(bytes.len());
            let len = 1 + rng.index(512.min(bytes.len() - at.max(from)));
            bytes.copy_within(from..from + len, at);
            format!("{len} bytes from {from:#x} at {at:#x}")
        }
    }
}
