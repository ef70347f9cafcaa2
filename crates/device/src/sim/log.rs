//! What happened to a set of disks, and what a power cut would have left of it.
//!
//! The one idea: a replay goes through the events once, keeping for each disk the bytes that are
//! stable and the writes that are not. At every index a crash is a cheap copy of the stable bytes
//! plus a seeded choice of the others, so that trying every index costs one pass, not one run of
//! the workload each.

use super::Image;
use rt::Rng;
use rt::sync::Arc;

/// Something that happened to the disks, in the order in which the disks saw it.
#[derive(Debug, Clone)]
pub enum Event {
    /// Bytes went into a disk's cache.
    Write {
        /// Which disk of the set.
        disk: usize,
        /// Where, in bytes.
        offset: u64,
        /// What.
        bytes: Arc<[u8]>,
    },
    /// A disk's cache was emptied onto stable storage. A flush that lied is not in the list.
    Flush {
        /// Which disk of the set.
        disk: usize,
    },
    /// A word from the workload, such as the last txg that was acknowledged as synced.
    Mark(u64),
}

/// What becomes of the writes that were not flushed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Cut {
    /// All are there: the process died, the disks did not.
    Kept,
    /// None is there.
    Dropped,
    /// Any are there, in any order; each disk draws its own share.
    Reordered,
    /// As [`Cut::Reordered`], and of some only some sectors are there.
    Torn,
}

impl Cut {
    /// Every mode.
    pub const ALL: [Cut; 4] = [Cut::Kept, Cut::Dropped, Cut::Reordered, Cut::Torn];
}

/// One disk at the beginning of a log.
#[derive(Debug, Clone)]
pub(crate) struct Base {
    pub(crate) name: String,
    pub(crate) image: Image,
    pub(crate) sector_size: u32,
}

/// The events of a workload on a set of disks, from a known beginning.
#[derive(Debug, Clone)]
pub struct Log {
    pub(crate) base: Vec<Base>,
    pub(crate) events: Vec<Event>,
}

impl Log {
    /// The events in order.
    pub fn events(&self) -> &[Event] {
        &self.events
    }

    /// Writes over all disks: the last index to which a replay can go.
    pub fn writes(&self) -> u64 {
        self.events.iter().filter(|e| matches!(e, Event::Write { .. })).count() as u64
    }

    /// Starts at the beginning, before the first write.
    pub fn replay(&self) -> Replay<'_> {
        let disk = |base: &Base| Disk {
            stable: base.image.clone(),
            current: base.image.clone(),
            pending: Vec::new(),
        };
        let disks = self.base.iter().map(disk).collect();
        Replay { log: self, next: 0, writes: 0, mark: None, disks }
    }
}

struct Disk {
    stable: Image,
    current: Image,
    /// Unflushed writes, oldest first, as indices into the log's events.
    pending: Vec<usize>,
}

/// A position in a [`Log`].
pub struct Replay<'a> {
    log: &'a Log,
    next: usize,
    writes: u64,
    mark: Option<u64>,
    disks: Vec<Disk>,
}

impl Replay<'_> {
    /// Goes on to just after write number `writes` (counted from 1 over all disks); what followed
    /// it, such as a flush, has not happened yet. The state in which it has is found one index
    /// later, with [`Cut::Dropped`]. Never goes back; stops at the end.
    pub fn advance_to(&mut self, writes: u64) {
        while self.writes < writes && self.step() {}
    }

    /// Goes on to the end, behind the last event.
    pub fn advance_to_end(&mut self) {
        while self.step() {}
    }

    fn step(&mut self) -> bool {
        let Some(event) = self.log.events.get(self.next) else { return false };
        match event {
            Event::Write { disk, offset, bytes } => {
                let disk = &mut self.disks[*disk];
                disk.current.write(*offset, bytes);
                disk.pending.push(self.next);
                self.writes += 1;
            }
            Event::Flush { disk } => {
                let disk = &mut self.disks[*disk];
                disk.pending.clear();
                disk.stable = disk.current.clone();
            }
            Event::Mark(word) => self.mark = Some(*word),
        }
        self.next += 1;
        true
    }

    /// Writes so far, over all disks.
    pub fn writes(&self) -> u64 {
        self.writes
    }

    /// The last mark that was set before this point.
    pub fn mark(&self) -> Option<u64> {
        self.mark
    }

    /// Unflushed writes, over all disks.
    pub fn unflushed(&self) -> usize {
        self.disks.iter().map(|d| d.pending.len()).sum()
    }

    /// The disks as a power cut at this point would leave them: names and images. The same mode
    /// and seed at the same point give the same images.
    pub fn crash(&self, cut: Cut, seed: u64) -> Vec<(String, Image)> {
        let mut rng = Rng::new(seed ^ self.next as u64);
        let disks = self.disks.iter().zip(&self.log.base);
        disks
            .map(|(d, base)| (base.name.clone(), self.crash_disk(d, base, cut, &mut rng)))
            .collect()
    }

    fn crash_disk(&self, disk: &Disk, base: &Base, cut: Cut, rng: &mut Rng) -> Image {
        let pending = disk.pending.iter().filter_map(|&at| match &self.log.events[at] {
            Event::Write { offset, bytes, .. } => Some((*offset, &**bytes)),
            _ => None,
        });
        match cut {
            Cut::Kept => disk.current.clone(),
            Cut::Dropped => disk.stable.clone(),
            Cut::Reordered | Cut::Torn => {
                survivors(&disk.stable, pending, base.sector_size, cut == Cut::Torn, rng)
            }
        }
    }
}

/// `stable` plus a seeded choice of the unflushed writes.
pub(crate) fn survivors<'a>(
    stable: &Image,
    pending: impl Iterator<Item = (u64, &'a [u8])>,
    sector_size: u32,
    tear: bool,
    rng: &mut Rng,
) -> Image {
    let mut image = stable.clone();
    // A disk may have written out nearly nothing, nearly all, or anything between.
    let eighths = [0, 1, 4, 7, 8][rng.index(5)];
    let mut kept: Vec<_> = pending.filter(|_| rng.chance(eighths, 8)).collect();
    rng.shuffle(&mut kept);
    for (offset, bytes) in kept {
        if tear && rng.chance(1, 4) {
            torn(&mut image, offset, bytes, sector_size, rng);
        } else {
            image.write(offset, bytes);
        }
    }
    image
}

/// Puts only some sectors of a write into the image: a head, or any.
pub(crate) fn torn(image: &mut Image, offset: u64, bytes: &[u8], sector: u32, rng: &mut Rng) {
    // Sectors are counted from the start of the disk, wherever the write begins.
    let sector = u64::from(sector);
    let end = offset + bytes.len() as u64;
    let sectors = end.div_ceil(sector) - offset / sector;
    let head = rng.chance(1, 2).then(|| rng.below(sectors));
    for n in 0..sectors {
        let keep = head.map_or_else(|| rng.chance(1, 2), |head| n < head);
        if keep {
            let start = ((offset / sector + n) * sector).max(offset);
            let stop = ((offset / sector + n + 1) * sector).min(end);
            image.write(start, &bytes[(start - offset) as usize..(stop - offset) as usize]);
        }
    }
}
