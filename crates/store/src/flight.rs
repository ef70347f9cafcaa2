//! Many blocks with few I/Os: what lies side by side on disks is read together.
//!
//! Place: under the reads of large files from disks; from files in the page cache single blocks are as fast.
//! The one idea: blocks are asked for at once, and those that follow each other are one read of each
//! of their leaves; each is put in its place when it is wanted. Each is verified
//! as ever (INV-2); one that is wrong goes the long way, alone.

use codec::checksum;
use device::queue::Class;
use format::{BlkPtr, Checksum, Compress};
use rt::Grant;
use rt::sync::Arc;
use vdev::{ReadScratch, Sought, Tree};

use crate::error::{Result, StoreError};
use crate::read::{At, Store, check_sizes, decompress, note};
use crate::trouble::Trouble;

/// Blocks that are, or are about to be, read together.
pub struct Flight {
    /// The vdevs as they were when it was planned: its reads name leaves by their places.
    tree: Arc<Tree>,
    /// Whose they are.
    object: u64,
    blocks: Vec<Block>,
    runs: Vec<vdev::Flight>,
    scratch: ReadScratch,
}

struct Block {
    /// Its number in the object.
    number: u64,
    bp: BlkPtr,
    /// The run that it is in, and its place there; `None`: it is read alone, when it is wanted.
    place: Option<(usize, usize)>,
}

impl Flight {
    /// Bytes of memory that it takes.
    pub fn bytes(&self) -> u64 {
        self.runs.iter().map(vdev::Flight::bytes).sum()
    }
}

impl Store {
    /// Says what has to be read for these blocks of an object, each with its number.
    pub fn plan(&self, object: u64, wanted: Vec<(u64, BlkPtr)>) -> Flight {
        let bps: Vec<BlkPtr> = wanted.iter().map(|(_, bp)| *bp).collect();
        // As they lie, not as they are wanted: several workers may have written them.
        let mut order: Vec<usize> = (0..bps.len())
            .filter(|at| may_share(&bps[*at]) && !self.may_be_overwritten(&bps[*at]))
            .collect();
        let mut places = vec![None; bps.len()];
        let at = |index: &usize| bps[*index].dva(0);
        order.sort_by_key(|index| (at(index).vdev, at(index).offset));
        let tree = self.tree();
        let mut runs: Vec<vdev::Flight> = Vec::new();
        let mut rest = &order[..];
        while let Some(first) = rest.first() {
            let mut end = at(first).offset;
            let together = |index: &&usize| {
                let dva = at(index);
                let follows = dva.vdev == at(first).vdev && dva.offset >= end;
                end = dva.offset + dva.asize;
                follows
            };
            let (run, later) = rest.split_at(rest.iter().take_while(together).count().max(1));
            let sought = |index: &usize| {
                let bp = &bps[*index];
                let (offset, birth, size) = (bp.dva(0).offset, bp.physical_birth(), bp.psize());
                Sought { offset, birth, size: size as usize }
            };
            // A place that no block can be at is told by the long way.
            if let Ok(flight) = tree.plan(at(first).vdev, run.iter().map(sought).collect()) {
                for (place, index) in run.iter().enumerate() {
                    places[*index] = Some((runs.len(), place));
                }
                runs.push(flight);
            }
            rest = later;
        }
        let blocks = wanted.into_iter().zip(places);
        let blocks = blocks.map(|((number, bp), place)| Block { number, bp, place });
        let scratch = ReadScratch::default();
        Flight { tree, object, blocks: blocks.collect(), runs, scratch }
    }

    /// Asks the disks for all of it. What is not `urgent` is ahead of its reader, who does not wait for it yet;
    /// `memory` is the grant for its bytes, if there is one.
    pub fn start(&self, flight: &mut Flight, urgent: bool, mut memory: Option<Grant>) {
        let class = if urgent { Class::SyncRead } else { Class::Read };
        for run in &mut flight.runs {
            let memory = memory.as_mut().map(|memory| memory.split(run.bytes()));
            flight.tree.start(run, class, memory);
        }
    }

    /// Puts all blocks of what was started into the cache, as [`Store::read`] would have; waits for them. Those
    /// that cannot be read are left out: who wants them hears why.
    pub fn land_in_cache(&self, mut flight: Flight) {
        for index in 0..flight.blocks.len() {
            let bp = flight.blocks[index].bp;
            if !bp.is_little_endian() || check_sizes(&bp).is_err() || self.is_kept(&bp) {
                continue;
            }
            let mut bytes = vec![0; bp.lsize() as usize];
            if self.land(&mut flight, index, &mut bytes).is_ok() {
                self.keep(&bp, Arc::new(bytes.into()));
            }
        }
    }

    /// Reads block `index` of what was started into `out`, which is as long as its logical size.
    pub fn land(&self, flight: &mut Flight, index: usize, out: &mut [u8]) -> Result<()> {
        let Flight { tree, object, blocks, runs, scratch } = flight;
        let Block { number, bp, place } = &blocks[index];
        let at = At { object: *object, block: *number };
        if bp.is_hole() {
            out.fill(0);
            return Ok(());
        }
        let Some((run, place)) = *place else {
            return self.read_into_for(at, bp, out);
        };
        if out.len() as u64 != bp.lsize() {
            return self.read_into_for(at, bp, out);
        }
        let kind = bp.checksum().unwrap_or(Checksum::Off);
        let salt = self.salt();
        let mut check = |bytes: &[u8]| {
            checksum::compute(kind, bytes, false, &salt)
                .is_ok_and(|seen| seen == bp.checksum_words())
        };
        let compress = bp.compress().unwrap_or(Compress::Off);
        let packed = compress != Compress::Off || bp.psize() != bp.lsize();
        let mut stored = packed.then(|| self.buffers().get(bp.psize() as usize));
        let buf = stored.as_deref_mut().unwrap_or(&mut *out);
        let landed = tree.land(&mut runs[run], place, buf, scratch, &mut check);
        let Ok(report) = landed else {
            // Its other copies, or its error.
            return self.read_into_for(at, bp, out);
        };
        if !report.faults.is_empty() {
            let mut trouble = Trouble::default();
            note(&mut trouble, tree, report);
            self.tell(bp, Some(at), trouble);
        }
        match stored {
            None => Ok(()),
            Some(stored) => decompress(compress, &stored, out).map_err(|()| {
                let reason = "its compressed data is damaged";
                StoreError::BadPointer { bp: Box::new(*bp), reason }
            }),
        }
    }
}

/// May the block be read together with others? Else it has no place of its own, or not one like theirs.
fn may_share(bp: &BlkPtr) -> bool {
    let plain = bp.has_space() && !bp.is_gang() && !bp.is_crypt() && bp.is_little_endian();
    let kept = !matches!(bp.checksum(), None | Some(Checksum::Off | Checksum::Noparity));
    plain && kept && check_sizes(bp).is_ok() && bp.compress().is_some()
}
