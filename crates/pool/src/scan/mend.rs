//! Examines what a slice has gathered, and mends what is wrong or lacking.
//!
//! The one idea: blocks in the order of the disks, in chunks of which each leaf gives all at once. What is plainly right
//! needs nothing more; what a leaf lacks is written to it together; the rest goes the long way, block by block.
//! Everything is written under the hold that the walk began with: a pointer that it found leads to that block still.

use std::collections::{BTreeMap, BTreeSet};
use std::ops::Range;

use format::scan::{Bookmark, Scan, ScanFunction};
use rt::sync::atomic::{AtomicBool, Ordering};
use rt::sync::{Arc, Mutex};
use rt::workers::Workers;
use store::{Hold, Part, Store};
use vdev::{
    FaultKind, Laid, ReadScratch, Sweep, SweepScratch, Swept, Tree, WriteScratch, WriteTree,
};

use super::slice::{Gathered, Spot, UNREAD_MAX};

/// Bytes that each disk gives at a time, about.
const READ: u64 = 1 << 20;
/// The same of image files, which have no heads to move: what all leaves give stays in the processor's cache.
const READ_FILES: u64 = 64 << 10;
/// Memory for each thread that works on chunks: what leaves give, and the blocks of it.
pub(crate) const SCRATCH: u64 = 16 << 20;
/// And at least.
pub(crate) const SCRATCH_LEAST: u64 = 2 << 20;

/// What came of a slice.
#[derive(Clone, Debug, Default)]
pub(crate) struct Sums {
    /// Bytes of the blocks that were passed.
    pub(crate) examined: u64,
    /// Bytes that were written, to whoever had them wrong or not at all.
    pub(crate) processed: u64,
    /// Bytes that leaves were asked for.
    pub(crate) read: u64,
    /// Copies that could not be mended.
    pub(crate) errors: u64,
    /// Blocks that are lost.
    pub(crate) lost: Vec<Bookmark>,
    /// Something was passed over that somebody may give some day: leaves lack it still.
    pub(crate) owed: bool,
    /// Leaves that did not take what they were given.
    pub(crate) unwritten: Vec<usize>,
    /// When the first and the last block were born that a leaf took.
    pub(crate) given: BTreeMap<usize, (u64, u64)>,
}

/// What it takes.
pub(crate) struct Mending<'a> {
    pub(crate) store: &'a Store,
    /// The vdevs when it began.
    pub(crate) tree: &'a Arc<Tree>,
    pub(crate) out: &'a WriteTree,
    pub(crate) workers: &'a Workers,
    pub(crate) hold: &'a Arc<Hold>,
    pub(crate) gathered: &'a Gathered,
    /// Bytes of a vdev in one chunk, at most.
    pub(crate) chunk_max: u64,
    /// Let it be.
    pub(crate) stop: &'a AtomicBool,
    /// Leaves, by guid, in whose place others are put: nobody waits for what they may have.
    pub(crate) replaced: &'a BTreeSet<u64>,
    pub(crate) sums: Mutex<Sums>,
    pub(crate) broken: AtomicBool,
}

#[derive(Default)]
struct Scratch {
    sweep: SweepScratch,
    write: WriteScratch,
    read: ReadScratch,
    block: Vec<u8>,
}

impl Mending<'_> {
    /// Does it all; `None`: the hold was broken, or it was to stop.
    pub(crate) fn run(self, spots: &[Spot], scan: &Scan) -> Option<Sums> {
        let chunks = self.chunks(spots);
        let each = (0..=self.workers.count()).map(|_| Mutex::new(Scratch::default()));
        let scratches: Vec<Mutex<Scratch>> = each.collect();
        let resilver = scan.function == ScanFunction::Resilver;
        self.workers.run(chunks.len(), |worker, job| {
            let broken = self.broken.load(Ordering::Relaxed) || self.hold.is_broken();
            if broken || self.stop.load(Ordering::Relaxed) {
                // Whoever said so may have thought better of it by the end: what is left out here stays left out.
                self.broken.store(true, Ordering::Relaxed);
                return;
            }
            let scratch = &mut *scratches[worker].lock();
            self.chunk(&spots[chunks[job].clone()], scratch, resilver);
        });
        let whole = !self.broken.into_inner();
        let mut sums = self.sums.into_inner();
        sums.examined = self.gathered.passed;
        sums.lost.extend(&self.gathered.lost);
        sums.errors += self.gathered.lost.len() as u64;
        // What could not be read when the walk came to it, and can be now: what is below it was passed over.
        let lost: BTreeSet<&Bookmark> = sums.lost.iter().collect();
        let unread = self.gathered.unread.iter().filter(|at| !lost.contains(at)).count();
        sums.errors += unread as u64;
        let too_many = self.gathered.unread.len() >= UNREAD_MAX;
        sums.owed |= unread > 0 || too_many || !self.gathered.lost.is_empty();
        (whole && !self.hold.is_broken()).then_some(sums)
    }

    fn part(&self, spot: &Spot) -> &Part {
        &self.gathered.parts[spot.part as usize].0
    }

    fn laid(&self, spot: &Spot) -> Laid {
        let part = self.part(spot);
        Laid { offset: spot.offset, size: part.size(), birth: part.bp.physical_birth() }
    }

    /// Cuts the spots into pieces that are read together: so much of each disk that it need not wait for the next,
    /// however far apart it lies.
    fn chunks(&self, spots: &[Spot]) -> Vec<Range<usize>> {
        let read = if self.tree.is_queued() { READ } else { READ_FILES };
        let mut out = Vec::new();
        let mut start = 0;
        while let Some(first) = spots.get(start) {
            let leaves = self.tree.top(first.top).map_or(1, |top| top.slots().len() as u64);
            let max = (read * leaves).min(self.chunk_max);
            let size = |spot: &Spot| self.store.asize(spot.top, self.part(spot).size() as u64);
            let (mut next, mut bytes) = (start + 1, size(first));
            while let Some(spot) = spots.get(next).filter(|spot| spot.top == first.top) {
                bytes += size(spot);
                if bytes > max {
                    break;
                }
                next += 1;
            }
            out.push(start..next);
            start = next;
        }
        out
    }

    fn chunk(&self, spots: &[Spot], scratch: &mut Scratch, resilver: bool) {
        let tree = self.tree;
        let laid: Vec<Laid> = spots.iter().map(|spot| self.laid(spot)).collect();
        let mut check =
            |index: usize, bytes: &[u8]| self.store.is_right(self.part(&spots[index]), bytes);
        let top = spots[0].top;
        let sweep = if resilver { Sweep::Lacking } else { Sweep::All };
        let found = tree.sweep((top, sweep), &laid, &mut scratch.sweep, &mut check);
        let mut run: Vec<usize> = Vec::new();
        let mut of_run: &[usize] = &[];
        for (index, found) in found.iter().enumerate() {
            let Swept::Behind(leaves) = found else { continue };
            if !run.is_empty() && of_run != leaves {
                self.fill((top, of_run), &run, &laid, scratch);
                run.clear();
            }
            of_run = leaves;
            run.push(index);
        }
        if !run.is_empty() {
            self.fill((top, of_run), &run, &laid, scratch);
        }
        let doubtful = (0..spots.len()).filter(|index| found[*index] == Swept::Doubtful);
        doubtful.for_each(|index| self.mend(&spots[index], scratch, resilver));
        self.sums.lock().read += scratch.sweep.take_read_bytes();
    }

    /// Gives leaves what they lack of blocks that were found.
    fn fill(
        &self,
        (top, leaves): (u32, &[usize]),
        run: &[usize],
        laid: &[Laid],
        scratch: &mut Scratch,
    ) {
        let Scratch { sweep, write, .. } = scratch;
        let blocks: Vec<(u64, &[u8])> = run
            .iter()
            .map(|index| (laid[*index].offset, sweep.block(*index, laid[*index].size)))
            .collect();
        let births: Vec<u64> = run.iter().map(|index| laid[*index].birth).collect();
        self.write(top, (&blocks, &births), leaves, write);
    }

    /// Writes blocks, born in these txgs, to these leaves, if what they lie on is still theirs.
    fn write(
        &self,
        top: u32,
        (blocks, births): (&[(u64, &[u8])], &[u64]),
        leaves: &[usize],
        scratch: &mut WriteScratch,
    ) {
        let write = || self.out.heal_run(self.tree, top, blocks, leaves, scratch).transpose();
        let Some(written) = self.hold.during(write).flatten() else {
            self.broken.store(true, Ordering::Relaxed);
            return;
        };
        let unwritten: Vec<usize> = match &written {
            Ok(report) => report.failed.iter().map(|(leaf, _)| *leaf).collect(),
            Err(_) => leaves.to_vec(),
        };
        let took: Vec<usize> =
            leaves.iter().copied().filter(|leaf| !unwritten.contains(leaf)).collect();
        let tree = self.tree;
        // What it had wrong it has wrong still: it lacks it.
        for leaf in &unwritten {
            births.iter().for_each(|birth| tree.leaves()[*leaf].lacks.note(*birth));
        }
        let bytes = |(offset, data): &(u64, &[u8])| tree.bytes_on(top, *offset, data.len(), &took);
        let mut sums = self.sums.lock();
        sums.processed += blocks.iter().map(bytes).sum::<u64>();
        sums.unwritten.extend(unwritten);
        for leaf in took {
            let given = sums.given.entry(leaf).or_insert((u64::MAX, 0));
            births.iter().for_each(|birth| *given = (given.0.min(*birth), given.1.max(*birth)));
        }
    }

    /// The long way: finds the block, whoever lies, and puts right whoever did.
    fn mend(&self, spot: &Spot, scratch: &mut Scratch, resilver: bool) {
        let (part, laid) = (*self.part(spot), self.laid(spot));
        let Scratch { write, read, block, .. } = scratch;
        block.resize(laid.size, 0);
        let tree = self.tree;
        // Under the hold, or somebody is blamed for a block that is another by now.
        let examined = self.hold.during(|| {
            let place = (spot.offset, laid.birth);
            if !part.has_checksum() {
                return tree.examine_unverified(spot.top, place, block, read);
            }
            let check = &mut |bytes: &[u8]| self.store.is_right(&part, bytes);
            tree.examine_again(spot.top, place, block, read, check)
        });
        let Some(examined) = examined else {
            self.broken.store(true, Ordering::Relaxed);
            return;
        };
        if let Ok(examined) = &examined {
            tree.count_new(examined, &[]);
        }
        self.sums.lock().read += laid.size as u64;
        let leaves = match examined {
            Err(_) => None,
            Ok(examined) if examined.lost.is_some() => {
                let found = self.store.read_part(&part, block).is_ok() && part.has_checksum();
                found.then(|| tree.online_leaves(spot.top))
            }
            Ok(examined) => {
                // Without a checksum it cannot be told who of two is right.
                let wrong = examined.faults.iter().filter(|fault| {
                    part.has_checksum() || matches!(fault.kind, FaultKind::Read(_))
                });
                let mut leaves: Vec<usize> = wrong.map(|fault| fault.leaf).collect();
                leaves.extend(examined.behind);
                if resilver {
                    // Whoever lacks it and could not be compared is given it as well.
                    let online = tree.online_leaves(spot.top);
                    let behind = |leaf: &usize| tree.leaves()[*leaf].lacks.contains(laid.birth);
                    leaves.extend(online.into_iter().filter(behind));
                }
                leaves.sort_unstable();
                leaves.dedup();
                Some(leaves)
            }
        };
        match leaves {
            None if super::destroyed::is_in_one(&self.gathered.parts[spot.part as usize].1) => {}
            None => {
                let gone = self.is_gone(&part, block, read);
                let mut sums = self.sums.lock();
                sums.errors += 1;
                sums.owed |= !gone;
                sums.lost.push(self.gathered.parts[spot.part as usize].1);
            }
            Some(leaves) if leaves.is_empty() => {}
            Some(leaves) => {
                let blocks: &[(u64, &[u8])] = &[(spot.offset, block)];
                self.write(spot.top, (blocks, &[laid.birth]), &leaves, write);
            }
        }
    }

    /// Can nobody give this lost part of a block any more, whoever comes back? Then there is nothing that leaves could
    /// lack of it.
    fn is_gone(&self, part: &Part, block: &mut [u8], read: &mut ReadScratch) -> bool {
        let birth = part.bp.physical_birth();
        let replaced = |leaf| self.replaced.contains(&leaf);
        let check = &mut |bytes: &[u8]| self.store.is_right(part, bytes);
        let gone = self.hold.during(|| {
            part.has_checksum()
                && part.copies().all(|dva| {
                    let place = (dva.offset, birth);
                    let examined = self.tree.examine_again(dva.vdev, place, block, read, check);
                    examined.map_or(true, |examined| {
                        self.tree.is_gone((dva.vdev, birth), &examined, &replaced)
                    })
                })
        });
        gone.unwrap_or(false)
    }
}
