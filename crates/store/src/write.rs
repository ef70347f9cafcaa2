//! From bytes to block pointers: a worker takes a run of records through compression, checksum,
//! allocation and parity to the device writes, while they are in its core's cache.
//!
//! The records of a run lie next to each other on disk (the allocator's lease), so each disk gets
//! one write for many records. A block for which there is no room in one piece becomes a gang.

use codec::compress::{self, ZstdLevel};
use format::blkptr::BlkProps;
use format::{BlkPtr, Checksum, Compress, Dva, ObjectType, SECTOR};
use rt::Grant;
use rt::mem::{Class, Holder, Reclaim};
use rt::sync::{Arc, Mutex, Weak};
use vdev::{WriteScratch, WriteTree};

use crate::allocator::Allocator;
use crate::error::Result;
use crate::gang::Cut;
use crate::gate::Gate;
use crate::read::Store;

/// A block to be written.
#[derive(Clone, Copy, Debug)]
pub struct BlockWrite<'a> {
    /// Its bytes; the length is the logical size, a multiple of 512.
    pub data: &'a [u8],
    /// Type of its object (of a spill block: of the bonus).
    pub kind: ObjectType,
    /// Level of indirection.
    pub level: u8,
    /// Its checksum.
    pub checksum: Checksum,
    /// Its compression; `Off`: none, and zeros are stored.
    pub compress: Compress,
    /// Level of zstd.
    pub zstd_level: ZstdLevel,
    /// Number of copies, 1 to 3.
    pub copies: u8,
    /// May small data go into the pointer?
    pub embed: bool,
    /// Blocks or objects below.
    pub fill: u64,
    /// A block born in this txg that may be written over.
    pub rewrite: Option<BlkPtr>,
}

/// Memory for each byte of a run that a worker writes, at most: its compressed bytes, its parity, and the copies that
/// queues of disks keep of both.
const SCRATCH_PER_BYTE: u64 = 3;

/// What a worker needs again and again.
#[derive(Default)]
struct Scratch {
    /// Compressed bytes of the run, one block after another.
    arena: Vec<u8>,
    vdev: WriteScratch,
}

/// What all workers need again and again, and their lease for it.
struct Scratches {
    each: Vec<Mutex<Scratch>>,
    lease: Mutex<Grant>,
}

impl Reclaim for Scratches {
    /// A sync goes on whoever else needs memory.
    fn reclaim(&self, _bytes: u64) {}

    fn rest(&self) {
        for scratch in &self.each {
            if let Some(mut scratch) = scratch.try_lock() {
                *scratch = Scratch::default();
            }
        }
        self.lease.lock().set(0);
    }
}

/// The writing side of a pool. Exists only for pools that were opened for writing (INV-4).
pub struct Writer {
    store: Store,
    out: WriteTree,
    gate: Arc<Gate>,
    allocator: Arc<Allocator>,
    /// Granule of physical sizes: the smallest sector of all ordinary top-level vdevs.
    min_alloc: u64,
    scratch: Arc<Scratches>,
    /// Bytes that a worker takes at a time.
    run_bytes: usize,
}

/// What became of a block before it has a place.
enum Prepared {
    Hole,
    Embedded(BlkPtr),
    /// Stored as it is.
    Raw,
    /// Stored compressed: range of the arena, already padded.
    Packed(std::ops::Range<usize>),
}

impl Writer {
    /// A writer for `workers` workers, each of which takes `run_bytes` at a time, and whose reads and writes wait
    /// at `gate`.
    pub fn new(
        store: &Store,
        out: WriteTree,
        gate: Arc<Gate>,
        allocator: Arc<Allocator>,
        min_alloc: u64,
        (workers, run_bytes): (usize, usize),
    ) -> Writer {
        let each = (0..workers).map(|_| Mutex::new(Scratch::default())).collect();
        let lease = Mutex::new(store.account().of(Holder::Sync).take(0));
        let scratch = Arc::new(Scratches { each, lease });
        let weak: Weak<dyn Reclaim> = Arc::<Scratches>::downgrade(&scratch);
        store.account().add_reclaimer(Class::Elastic, weak);
        let store = store.waiting_at(gate.clone());
        Writer { store, out, gate, allocator, min_alloc, scratch, run_bytes }
    }

    /// Bytes that a worker takes at a time.
    pub fn run_bytes(&self) -> usize {
        self.run_bytes
    }

    /// The sync of a txg begins.
    pub fn begin(&self, txg: u64) {
        self.out.begin(txg);
        self.store.overwritten().begin(txg);
    }

    /// A sync begins that writes `bytes`, about: leases what its workers will need, and keep for the next one.
    pub fn expect(&self, bytes: u64) {
        let run = bytes.min(self.run_bytes as u64);
        let wanted = run * SCRATCH_PER_BYTE * self.scratch.each.len() as u64;
        let mut lease = self.scratch.lease.lock();
        if wanted > lease.bytes() {
            lease.set(wanted);
        }
    }

    /// The reading side: what the sync reads waits for devices that fail, as what it writes.
    pub fn store(&self) -> &Store {
        &self.store
    }

    /// The devices, for flushes and labels.
    pub fn out(&self) -> &WriteTree {
        &self.out
    }

    /// Where writes wait when devices fail beyond redundancy.
    pub fn gate(&self) -> &Arc<Gate> {
        &self.gate
    }

    pub(crate) fn min_alloc(&self) -> u64 {
        self.min_alloc
    }

    /// The allocator.
    pub fn allocator(&self) -> &Allocator {
        &self.allocator
    }

    /// Writes a run of blocks for `worker` and returns their pointers.
    ///
    /// All-zero blocks become holes (a zero pointer: the caller knows what was there before).
    pub fn write_run(
        &self,
        worker: usize,
        txg: u64,
        blocks: &[BlockWrite<'_>],
    ) -> Result<Vec<BlkPtr>> {
        // One that cannot be read was of no use to anybody.
        let before = |old: &BlkPtr| Some((*old, self.store.read(old).ok()?));
        let overwritten: Vec<_> =
            blocks.iter().filter_map(|b| b.rewrite.as_ref().and_then(before)).collect();
        if !overwritten.is_empty() {
            self.store.overwritten().keep(overwritten);
        }
        let scratch = &mut *self.scratch.each[worker].lock();
        let arena_bytes: usize = blocks.iter().map(|b| b.data.len() + 512).sum();
        if scratch.arena.len() < arena_bytes {
            scratch.arena.resize(arena_bytes, 0);
        }
        let mut used = 0;
        let prepared: Vec<Prepared> = blocks
            .iter()
            .map(|block| self.prepare(txg, block, &mut scratch.arena, &mut used))
            .collect();
        let arena = &scratch.arena;
        if self.store.is_on_disks() {
            let top = self.allocator.some_top();
            let stored =
                blocks.iter().zip(&prepared).filter_map(|(block, prepared)| match prepared {
                    _ if block.rewrite.is_some() => None,
                    Prepared::Hole | Prepared::Embedded(_) => None,
                    Prepared::Raw => Some(block.data.len()),
                    Prepared::Packed(range) => Some(range.len()),
                });
            let bytes = stored.map(|size| self.store.asize(top, size as u64)).sum();
            self.allocator.expect(worker, bytes);
        }
        let salt = self.store.salt();
        let mut out = Vec::with_capacity(blocks.len());
        // Per copy: where the blocks of the run go.
        let mut places: [Vec<(Dva, &[u8])>; 3] = Default::default();
        for (block, prepared) in blocks.iter().zip(&prepared) {
            let stored: &[u8] = match prepared {
                Prepared::Hole => {
                    out.push(BlkPtr::ZERO);
                    continue;
                }
                Prepared::Embedded(bp) => {
                    out.push(*bp);
                    continue;
                }
                Prepared::Raw => block.data,
                Prepared::Packed(range) => &arena[range.clone()],
            };
            let psize = stored.len() as u64;
            let copies = usize::from(block.copies);
            let cut = Cut { worker, txg, checksum: block.checksum, copies, salt };
            let words = cut.sum(stored);
            let old = block.rewrite.filter(|old| Self::fits_over(old, psize, copies));
            let (dvas, count) = match &old {
                Some(old) => {
                    let mut dvas = [Dva::default(); 3];
                    let count = old.dvas().zip(&mut dvas).map(|(old, dva)| *dva = old).count();
                    if old.is_gang() {
                        self.rewrite_gang(&cut, old, stored, &mut scratch.vdev, 0)?;
                    }
                    (dvas, count)
                }
                None => match self.place(worker, psize, copies)? {
                    Some(places) => places,
                    None => self.write_gang(&cut, stored, &mut scratch.vdev)?,
                },
            };
            let dvas = &dvas[..count];
            if !dvas[0].gang {
                for (places, dva) in places.iter_mut().zip(dvas) {
                    places.push((*dva, stored));
                }
            }
            let props = BlkProps {
                lsize: block.data.len() as u64,
                psize,
                compress: match prepared {
                    Prepared::Packed(_) => block.compress,
                    _ => Compress::Off,
                },
                checksum: block.checksum,
                kind: block.kind,
                level: block.level,
            };
            out.push(BlkPtr::new(props, dvas, txg, block.fill, words));
        }
        for places in &places {
            self.write_places(places, &mut scratch.vdev)?;
        }
        // What was written over in place keeps its key in the cache, but not its bytes.
        for old in blocks.iter().filter_map(|b| b.rewrite.as_ref()) {
            self.store.forget(old);
        }
        Ok(out)
    }

    /// Writes blocks, those that lie next to each other in one go.
    fn write_places(&self, places: &[(Dva, &[u8])], scratch: &mut WriteScratch) -> Result<()> {
        let mut rest = places;
        let mut run: Vec<(u64, &[u8])> = Vec::with_capacity(places.len());
        while let Some((first, _)) = rest.first() {
            let mut next = first.offset;
            let count = rest
                .iter()
                .take_while(|(dva, _)| {
                    let fits = dva.vdev == first.vdev && dva.offset == next;
                    next = dva.offset + dva.asize;
                    fits
                })
                .count();
            let (now, later) = rest.split_at(count);
            run.clear();
            run.extend(now.iter().map(|(dva, data)| (dva.offset, *data)));
            self.gate.insist(|| Ok(self.out.write_run(first.vdev, &run, scratch)?))?;
            rest = later;
        }
        Ok(())
    }

    /// Compresses a block into the arena, or finds that it is a hole, embedded or better raw.
    fn prepare(
        &self,
        txg: u64,
        block: &BlockWrite<'_>,
        arena: &mut [u8],
        used: &mut usize,
    ) -> Prepared {
        let lsize = block.data.len();
        debug_assert!(lsize.is_multiple_of(SECTOR as usize) && lsize > 0);
        if block.compress == Compress::Off {
            return Prepared::Raw;
        }
        if compress::is_zero(block.data) {
            return Prepared::Hole;
        }
        let room = &mut arena[*used..*used + lsize + 512];
        let packed = compress::compress(block.compress, block.zstd_level, block.data, room);
        let Some(size) = packed.filter(|s| *s > 0) else { return Prepared::Raw };
        if block.embed && block.rewrite.is_none() {
            let payload = &room[..size];
            if let Some(bp) =
                BlkPtr::embedded(lsize as u64, block.compress, block.kind, txg, payload)
            {
                return Prepared::Embedded(bp);
            }
        }
        let mut psize = (size as u64).next_multiple_of(self.min_alloc);
        if let Some(old) = block.rewrite {
            // In later passes a block keeps its size or grows once, to its full size: so the
            // number of new allocations is bounded and the passes end (INV-11).
            psize = if psize <= old.psize() { old.psize() } else { lsize as u64 };
        }
        if psize >= lsize as u64 {
            return Prepared::Raw;
        }
        let end = *used + psize as usize;
        arena[*used + size..end].fill(0);
        let range = *used..end;
        *used = end;
        Prepared::Packed(range)
    }
}
