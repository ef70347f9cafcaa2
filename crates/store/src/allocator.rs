//! The allocator: workers lease regions of metaslabs and cut blocks from them.
//!
//! The one idea: a worker takes a region once and then allocates by moving a cursor, so that
//! consecutive records lie next to each other on every disk and bookkeeping is per region, not per
//! block. Leases rotate over the top-level vdevs; copies of one block come from leases on different
//! vdevs or, failing that, different metaslabs.
//!
//! Lock order: a lease, then the books, then nothing (see ARCHITECTURE.md); none of them while a space map is read
//! (`maps`).

use format::{BlkPtr, Dva};
use rt::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use rt::sync::{Arc, Condvar, Mutex, Weak};

use crate::error::{Result, StoreError};
use crate::hold::Hold;
use crate::metaslab::{MapError, Metaslab, Pending};
use crate::ranges::RangeSet;
use crate::read::Store;

mod log;
mod maps;
#[cfg(test)]
mod tests;
mod tops;

use maps::Found;

/// Bytes of a lease, at most.
const LEASE_MAX: u64 = 2 << 20;
/// Bytes of a lease for a run that was announced, at most.
const LEASE_FOR_RUN_MAX: u64 = 64 << 20;
/// A metaslab of which one piece of so many is free counts as emptied.
const EMPTIED_PART: u64 = 4;
/// How often room is looked for while others give back what they sit on.
const ATTEMPTS: usize = 3;
/// Copies that a block can have.
const COPIES: usize = 3;

/// Where the space maps of metaslabs come from: objects of the MOS, which the store cannot see.
pub trait SpaceMaps: Send + Sync {
    /// Plays back the space map of metaslab `index` of top-level vdev `top` into `into`. Meanwhile nobody else does
    /// anything with this metaslab, and whoever asks for it waits.
    fn load(&self, top: u32, index: u64, into: &mut Metaslab) -> Result<()>;
}

/// What the allocator must know of a top-level vdev.
#[derive(Clone, Debug)]
pub struct TopSpace {
    /// Number of the top-level vdev.
    pub top: u32,
    /// log2 of its sector size: the unit of its space maps.
    pub ashift: u32,
    /// log2 of a metaslab's size.
    pub ms_shift: u32,
    /// Number of metaslabs.
    pub ms_count: u64,
    /// Allocated bytes per metaslab as their space maps say; missing ones are empty.
    pub allocated: Vec<u64>,
    /// May data be placed there (not a log or special vdev, not being removed)?
    pub usable: bool,
    /// Is it for intent logs?
    pub is_log: bool,
}

struct Slab {
    allocated: u64,
    loaded: Option<Box<Metaslab>>,
    /// Somebody loads it, with this ticket.
    loading: Option<u64>,
}

struct TopBooks {
    space: TopSpace,
    slabs: Vec<Slab>,
    /// Metaslab that leases are taken from first, per copy.
    active: [u64; COPIES],
    /// It comes with the txg that is being synced: nothing is put there before that is on stable storage.
    coming: bool,
}

struct Books {
    tops: Vec<TopBooks>,
    next_top: usize,
    /// Where it stood before the passes of the txg.
    pass_top: usize,
    /// The next ticket of who loads a metaslab.
    tickets: u64,
}

#[derive(Clone, Copy)]
struct Lease {
    top: u32,
    slab: u64,
    start: u64,
    cursor: u64,
    end: u64,
}

/// What a lease is wanted for.
struct Ask<'a> {
    copy: usize,
    /// Bytes of a block on this vdev.
    least: u64,
    /// Bytes of whole blocks that are wanted, and the granule of what is given.
    want: u64,
    granule: u64,
    /// Metaslabs with other copies.
    taken: &'a [u64],
}

/// Of the blocks of at least so many bytes, each so-manieth is refused a place of its own.
struct Forced {
    least: u64,
    every: u64,
    seen: u64,
}

/// The allocator of a writable pool.
pub struct Allocator {
    books: Mutex<Books>,
    /// Somebody has loaded a metaslab, or has failed to.
    loaded: Condvar,
    leases: Vec<[Mutex<Option<Lease>>; COPIES]>,
    /// What blocks of intent logs are cut from.
    log_lease: Mutex<Option<Lease>>,
    maps: Mutex<Option<Arc<dyn SpaceMaps>>>,
    /// Those who want freed blocks to stay as they are.
    holds: Mutex<Vec<Weak<Hold>>>,
    /// Blocks of so many bytes find no room until more comes back: nobody has to look again.
    too_large: AtomicU64,
    /// For tests, see [`Allocator::force_gangs`].
    forced: Mutex<Option<Forced>>,
    /// Bytes that were to be freed, and of which nobody knows where they are.
    given_up: AtomicU64,
    /// Number of top-level vdevs that take data.
    tops: AtomicUsize,
    /// Bytes of a lease, at most, per worker.
    lease_max: Vec<AtomicU64>,
}

/// Sizes on a top-level vdev: from a block's physical size to what it takes.
pub(crate) type AsizeOf<'a> = &'a dyn Fn(u32, u64) -> u64;

impl Allocator {
    /// An allocator over `tops` for `workers` workers.
    pub fn new(tops: Vec<TopSpace>, workers: usize) -> Self {
        let usable = tops.iter().filter(|space| space.usable).count();
        let tops = tops.into_iter().map(|space| TopBooks::new(space, false));
        Allocator {
            books: Mutex::new(Books { tops: tops.collect(), next_top: 0, pass_top: 0, tickets: 0 }),
            loaded: Condvar::default(),
            leases: (0..workers).map(|_| Default::default()).collect(),
            log_lease: Mutex::default(),
            maps: Mutex::new(None),
            holds: Mutex::default(),
            too_large: AtomicU64::new(u64::MAX),
            forced: Mutex::new(None),
            given_up: AtomicU64::new(0),
            tops: AtomicUsize::new(usable),
            lease_max: (0..workers).map(|_| AtomicU64::new(LEASE_MAX)).collect(),
        }
    }

    /// Next come so many bytes of blocks from `worker`, to disks: they get a piece of their own, behind what was
    /// allocated before them. So a file lies in its own order, whoever wrote it, and is read without turning back.
    pub(crate) fn expect(&self, worker: usize, bytes: u64) {
        let max = bytes.clamp(LEASE_MAX, LEASE_FOR_RUN_MAX);
        self.lease_max[worker].store(max, Ordering::Relaxed);
        let mut slot = self.leases[worker][0].lock();
        if slot.as_ref().is_some_and(|lease| lease.end - lease.cursor < bytes) {
            self.settle(slot.take());
        }
    }

    /// A top-level vdev that takes data, for estimates.
    pub(crate) fn some_top(&self) -> u32 {
        let books = self.books.lock();
        books.tops.iter().find(|top| top.takes_data()).map_or(0, |top| top.space.top)
    }

    /// From now on each `every`-th block of `least_bytes` and more becomes a gang, room or not (0: none):
    /// what a fragmented pool does, without one.
    pub fn force_gangs(&self, least_bytes: u64, every: u64) {
        let forced = Forced { least: least_bytes, every, seen: 0 };
        *self.forced.lock() = Some(forced).filter(|_| every > 0);
    }

    /// Must a block of `psize` bytes that asks for a place be refused one?
    pub(crate) fn must_gang(&self, psize: u64) -> bool {
        let mut forced = self.forced.lock();
        let Some(forced) = forced.as_mut().filter(|forced| psize >= forced.least) else {
            return false;
        };
        forced.seen += 1;
        forced.seen.is_multiple_of(forced.every)
    }

    /// Tells where space maps come from; before that every metaslab must be empty.
    pub fn set_space_maps(&self, maps: Arc<dyn SpaceMaps>) {
        *self.maps.lock() = Some(maps);
    }

    /// Allocates one copy of a block of `psize` bytes for `worker`.
    ///
    /// `avoid`: the copies of the same block that are placed already.
    ///
    /// # Errors
    /// [`StoreError::NoSpace`] if no free region is as large.
    pub fn allocate(
        &self,
        worker: usize,
        copy: usize,
        psize: u64,
        avoid: &[Dva],
        asize_of: AsizeOf<'_>,
    ) -> Result<Dva> {
        let mut slot = self.leases[worker][copy].lock();
        if let Some(lease) = slot.as_mut() {
            let asize = asize_of(lease.top, psize);
            // Leases move on one by one: two of them may have come to the same vdev.
            let meets = avoid.iter().any(|dva| dva.vdev == lease.top)
                && self.tops.load(Ordering::Relaxed) > avoid.len();
            if lease.end - lease.cursor >= asize && !meets {
                let offset = lease.cursor;
                lease.cursor += asize;
                return Ok(Dva { vdev: lease.top, offset, asize, gang: false });
            }
        }
        let none = StoreError::NoSpace { asize: asize_of(0, psize) };
        if psize >= self.too_large.load(Ordering::Relaxed) {
            return Err(none);
        }
        self.settle(slot.take());
        let mut attempts = 0;
        while attempts < ATTEMPTS {
            let max = self.lease_max[worker].load(Ordering::Relaxed);
            match self.lease((copy, max), psize, avoid, asize_of) {
                Ok(Some(lease)) => {
                    let asize = asize_of(lease.top, psize);
                    let dva = Dva { vdev: lease.top, offset: lease.start, asize, gang: false };
                    let lease = Lease { cursor: lease.start + asize, ..lease };
                    self.settle(slot.replace(lease));
                    return Ok(dva);
                }
                Ok(None) => {
                    // Others may sit on what is missing here.
                    drop(slot);
                    self.settle_all();
                    attempts += 1;
                }
                Err(missing) => {
                    drop(slot);
                    self.load(missing)?;
                }
            }
            slot = self.leases[worker][copy].lock();
        }
        self.too_large.fetch_min(psize, Ordering::Relaxed);
        Err(none)
    }

    /// Takes back what `worker` was given last for this copy.
    pub(crate) fn give_back(&self, worker: usize, copy: usize, dva: Dva) -> Result<()> {
        if let Some(lease) = self.leases[worker][copy].lock().as_mut()
            && lease.top == dva.vdev
            && lease.cursor == dva.offset + dva.asize
        {
            lease.cursor = dva.offset;
            return Ok(());
        }
        // Somebody has settled the lease since: it counts as allocated.
        self.free_dva(dva)
    }

    fn lease(
        &self,
        (copy, max): (usize, u64),
        psize: u64,
        avoid: &[Dva],
        asize_of: AsizeOf<'_>,
    ) -> Found<Option<Lease>> {
        let books = &mut *self.books.lock();
        let count = books.tops.len();
        let free: u64 = books.tops.iter().map(TopBooks::available).sum();
        let share = free / (16 * self.leases.len() as u64);
        // First elsewhere than the other copies, then in another metaslab, then anywhere.
        for strictness in (0..3).rev() {
            for turn in 0..count {
                let index = (books.next_top + turn) % count;
                let books_of_top = &mut books.tops[index];
                let top = books_of_top.space.top;
                if !books_of_top.takes_data() {
                    continue;
                }
                if strictness == 2 && avoid.iter().any(|d| d.vdev == top) {
                    continue;
                }
                let shift = books_of_top.space.ms_shift;
                let taken: Vec<u64> = avoid
                    .iter()
                    .filter(|d| strictness == 1 && d.vdev == top)
                    .map(|d| d.offset >> shift)
                    .collect();
                let least = asize_of(top, psize);
                let granule = asize_of(top, 512);
                // Whole blocks of this size, so that no sliver is left behind.
                let want = max.min(share).max(least).next_multiple_of(least);
                let ask = Ask { copy, least, want, granule, taken: &taken };
                if let Some(lease) = books_of_top.lease(&ask)? {
                    books.next_top = (index + 1) % count;
                    return Ok(Some(lease));
                }
            }
        }
        Ok(None)
    }

    fn settle(&self, lease: Option<Lease>) {
        let Some(lease) = lease else { return };
        let mut books = self.books.lock();
        let Some(top) = books.tops.iter_mut().find(|t| t.space.top == lease.top) else { return };
        let slab = &mut top.slabs[lease.slab as usize];
        let loaded = slab.loaded.as_mut().expect("a leased metaslab stays loaded");
        loaded.settle(lease.start, lease.cursor - lease.start, lease.end - lease.start);
        slab.allocated = loaded.allocated();
    }

    /// As [`Allocator::settle_all`], between the passes of a txg (`first`: before them): what a later pass
    /// writes goes where the first one began. Else each pass would touch metaslabs of other vdevs, whose
    /// space maps the next one would have to write (INV-11).
    pub fn settle_pass(&self, first: bool) {
        self.settle_workers();
        let books = &mut *self.books.lock();
        if first {
            books.pass_top = books.next_top;
        } else {
            books.next_top = books.pass_top;
        }
    }

    /// Gives all leases back; what was cut from them becomes pending allocations.
    pub fn settle_all(&self) {
        self.settle_workers();
        self.settle_log();
    }

    fn settle_workers(&self) {
        for slot in self.leases.iter().flatten() {
            let lease = slot.lock().take();
            self.settle(lease);
        }
    }

    /// Frees all that a block takes: its copies, of a gang the headers and members, and its place in the cache. What is
    /// below a header of which no copy is good nobody knows: it stays taken ([`Allocator::take_given_up`]).
    ///
    /// # Errors
    /// A deduplicated block is refused: others may hold it, which only its table knows.
    pub fn free(&self, store: &Store, bp: &BlkPtr) -> Result<()> {
        if bp.is_dedup() {
            let reason = "a deduplicated block cannot be freed";
            return Err(StoreError::BadPointer { bp: Box::new(*bp), reason });
        }
        store.forget(bp);
        if !bp.is_gang() {
            return bp.dvas().try_for_each(|dva| self.free_dva(dva));
        }
        let (known, given_up) = store.known_allocations(bp)?;
        if given_up {
            let all: u64 = bp.dvas().map(|dva| dva.asize).sum();
            let known = known.iter().map(|dva| dva.asize).sum();
            self.given_up.fetch_add(all.saturating_sub(known), Ordering::Relaxed);
        }
        known.into_iter().try_for_each(|dva| self.free_dva(dva))
    }

    /// Bytes that no free could find since this was asked last, about: they belong to nobody, and stay allocated.
    pub fn take_given_up(&self) -> u64 {
        self.given_up.swap(0, Ordering::Relaxed)
    }

    /// Frees one allocation.
    pub fn free_dva(&self, dva: Dva) -> Result<()> {
        self.change(dva, "free", Metaslab::free)
    }

    /// Takes an allocation that somebody else made, of which no space map knows.
    pub fn claim_dva(&self, dva: Dva) -> Result<()> {
        self.change(dva, "allocation", Metaslab::claim)
    }

    fn change(
        &self,
        dva: Dva,
        what: &'static str,
        change: impl Fn(&mut Metaslab, u64, u64) -> std::result::Result<(), MapError>,
    ) -> Result<()> {
        let wrong = MapError { what, start: dva.offset, len: dva.asize };
        let changed = self.with_books(|books| {
            let Some(slab) = books.slab_at(dva)? else { return Ok(Err(wrong)) };
            let Some(loaded) = slab.loaded.as_mut() else { return Ok(Err(wrong)) };
            let changed = change(loaded, dva.offset, dva.asize);
            slab.allocated = loaded.allocated();
            Ok(changed)
        })?;
        changed.map_err(|source| StoreError::Map { top: dva.vdev, source })
    }

    /// Is all of one allocation allocated, as the space maps have it?
    pub fn is_allocated(&self, dva: Dva) -> Result<bool> {
        self.with_books(|books| {
            let slab = books.slab_at(dva)?.and_then(|slab| slab.loaded.as_ref());
            Ok(slab.is_some_and(|slab| slab.is_allocated(dva.offset, dva.asize)))
        })
    }

    /// Calls `append` for every metaslab with pending changes: top, index, the metaslab (for its
    /// histogram and totals) and the changes. Leases must be settled.
    pub fn drain_pending(
        &self,
        mut append: impl FnMut(u32, u64, SlabSummary, Pending) -> Result<()>,
    ) -> Result<usize> {
        let mut work = Vec::new();
        {
            let mut books = self.books.lock();
            for top in &mut books.tops {
                let number = top.space.top;
                for (index, slab) in top.slabs.iter_mut().enumerate() {
                    if let Some(ms) = slab.loaded.as_mut().filter(|m| m.is_dirty()) {
                        let pending = ms.take_pending();
                        let summary = SlabSummary::of(ms, top.space.ashift);
                        work.push((number, index as u64, summary, pending));
                    }
                }
            }
        }
        let count = work.len();
        for (top, index, summary, pending) in work {
            append(top, index, summary, pending)?;
        }
        Ok(count)
    }

    /// Is there a change that no space map has yet? Leases must be settled.
    pub fn is_dirty(&self) -> bool {
        let books = self.books.lock();
        let mut loaded = books.tops.iter().flat_map(|t| &t.slabs).filter_map(|s| s.loaded.as_ref());
        loaded.any(|metaslab| metaslab.is_dirty())
    }

    /// A metaslab as it is now; `None`: there is no such metaslab.
    pub fn summary(&self, top: u32, index: u64) -> Result<Option<SlabSummary>> {
        self.with_books(|books| {
            let Some(top) = books.top(top) else { return Ok(None) };
            let ashift = top.space.ashift;
            let slab = top.slab(index)?.and_then(|slab| slab.loaded.as_ref());
            Ok(slab.map(|slab| SlabSummary::of(slab, ashift)))
        })
    }

    /// The allocated ranges of a loaded metaslab, in order, without the changes that
    /// [`Allocator::drain_pending`] would give now: start and length, in bytes. `None`: it is not loaded.
    pub fn allocated_before_pending(&self, top: u32, index: u64) -> Option<Vec<(u64, u64)>> {
        let books = self.books.lock();
        let top = books.tops.iter().find(|t| t.space.top == top)?;
        top.slabs.get(index as usize)?.loaded.as_ref().map(|slab| slab.allocated_before_pending())
    }

    /// Free ranges of a metaslab, without those changes, that must not be handed out yet, whoever opens the pool
    /// next (INV-1).
    pub fn resting_before_pending(&self, top: u32, index: u64) -> RangeSet {
        let books = self.books.lock();
        let top = books.tops.iter().find(|t| t.space.top == top);
        let slab = top.and_then(|top| top.slabs.get(index as usize)?.loaded.as_ref());
        slab.map(|slab| slab.resting_before_pending()).unwrap_or_default()
    }

    /// What is left of all leases: top-level vdev and bytes.
    pub(crate) fn leased(&self) -> Vec<(u32, u64)> {
        let left = |slot: &Mutex<Option<Lease>>| {
            slot.lock().as_ref().map(|lease| (lease.top, lease.end - lease.cursor))
        };
        self.leases.iter().flatten().filter_map(left).collect()
    }

    /// From now on, until that is dropped or broken, nothing that is freed is handed out.
    pub fn hold(&self) -> Arc<Hold> {
        let hold = Arc::new(Hold::default());
        self.holds.lock().push(Arc::downgrade(&hold));
        hold
    }

    /// Is something held? Not when more space rests than there is left: then holds are broken.
    fn is_held(&self, books: &Books) -> bool {
        let mut holds = self.holds.lock();
        holds.retain(|hold| hold.strong_count() > 0);
        if holds.is_empty() {
            return false;
        }
        let loaded = books.tops.iter().flat_map(|top| &top.slabs);
        let resting = loaded.filter_map(|slab| Some(slab.loaded.as_ref()?.resting())).sum::<u64>();
        let size: u64 = books.tops.iter().map(|top| top.space.ms_count << top.space.ms_shift).sum();
        let slabs = books.tops.iter().flat_map(|top| &top.slabs);
        let free = size.saturating_sub(slabs.map(|slab| slab.allocated).sum());
        let scarce = resting > free / 2;
        if scarce {
            holds.drain(..).filter_map(|hold| hold.upgrade()).for_each(|hold| hold.break_it());
        }
        !scarce
    }

    /// An uberblock with all changes so far is on stable storage.
    pub fn txg_done(&self) {
        self.let_come();
        let mut books = self.books.lock();
        let held = self.is_held(&books);
        for slab in books.tops.iter_mut().flat_map(|t| &mut t.slabs) {
            if let Some(ms) = slab.loaded.as_mut() {
                ms.txg_done(held);
            }
        }
        self.too_large.store(u64::MAX, Ordering::Relaxed);
    }

    /// Bytes of memory that the map of free space takes, about.
    pub fn memory_bytes(&self) -> u64 {
        let books = self.books.lock();
        let loaded = books.tops.iter().flat_map(|top| &top.slabs).filter_map(|s| s.loaded.as_ref());
        loaded.map(|slab| slab.memory_bytes()).sum()
    }

    /// Bytes allocated according to the space maps, over all top-level vdevs.
    pub fn allocated(&self) -> u64 {
        self.books
            .lock()
            .tops
            .iter()
            .map(|t| t.slabs.iter().map(|s| s.allocated).sum::<u64>())
            .sum()
    }

    /// Bytes allocated per top-level vdev: (top, allocated).
    pub fn allocated_by_top(&self) -> Vec<(u32, u64)> {
        let books = self.books.lock();
        let sum = |t: &TopBooks| t.slabs.iter().map(|s| s.allocated).sum();
        books.tops.iter().map(|t| (t.space.top, sum(t))).collect()
    }

    /// Bytes that were freed and still rest, per top-level vdev: they come back within three txgs.
    pub fn resting(&self) -> Vec<(u32, u64)> {
        let books = self.books.lock();
        let loaded = |t: &TopBooks| -> u64 {
            t.slabs.iter().filter_map(|s| s.loaded.as_ref()).map(|m| m.resting()).sum()
        };
        books.tops.iter().map(|t| (t.space.top, loaded(t))).collect()
    }

    /// Size of all metaslabs that may take data, in bytes.
    pub fn size(&self) -> u64 {
        let books = self.books.lock();
        books
            .tops
            .iter()
            .filter(|t| t.space.usable)
            .map(|t| t.space.ms_count << t.space.ms_shift)
            .sum()
    }
}

/// What a space map's header says of its metaslab.
#[derive(Clone, Copy, Debug)]
pub struct SlabSummary {
    /// Start in the vdev's address space, in bytes.
    pub start: u64,
    /// Size in bytes.
    pub size: u64,
    /// Allocated bytes.
    pub allocated: u64,
    /// Number of free ranges.
    pub free_pieces: usize,
    /// The histogram of free ranges.
    pub histogram: [u64; 32],
}

impl SlabSummary {
    fn of(slab: &Metaslab, ashift: u32) -> SlabSummary {
        SlabSummary {
            start: slab.start,
            size: slab.size,
            allocated: slab.allocated(),
            free_pieces: slab.mapped_pieces(),
            histogram: slab.histogram(ashift),
        }
    }
}

impl TopBooks {
    fn new(space: TopSpace, coming: bool) -> TopBooks {
        let allocated = |i: u64| space.allocated.get(i as usize).copied().unwrap_or(0);
        let slabs = (0..space.ms_count).map(|i| Slab::new(allocated(i)));
        TopBooks { slabs: slabs.collect(), space, active: [0; COPIES], coming }
    }

    /// May data be put there now?
    fn takes_data(&self) -> bool {
        self.space.usable && !self.coming
    }

    fn available(&self) -> u64 {
        if !self.takes_data() {
            return 0;
        }
        let size = 1u64 << self.space.ms_shift;
        self.slabs.iter().map(|s| size - s.allocated.min(size)).sum()
    }

    /// Metaslabs that are loaded, and of which a good part is free in one piece.
    fn emptied(&self) -> Vec<u64> {
        let good = (1u64 << self.space.ms_shift) / EMPTIED_PART;
        let is_emptied =
            |slab: &Slab| slab.loaded.as_ref().is_some_and(|ms| ms.free_longest() >= good);
        let emptied = (0u64..).zip(&self.slabs).filter(|(_, slab)| is_emptied(slab));
        emptied.map(|(index, _)| index).collect()
    }

    fn lease(&mut self, ask: &Ask<'_>) -> Found<Option<Lease>> {
        let count = self.slabs.len() as u64;
        // Copies start in different thirds, so that they meet only when space is short.
        let active = self.active[ask.copy];
        let first = if active == 0 { ask.copy as u64 * count / 3 } else { active };
        for least in [ask.want, ask.least] {
            if let Some(lease) = self.lease_in(first, least, ask)? {
                return Ok(Some(lease));
            }
            // What was emptied again is used before what nobody has touched: its map is here, and so is its room on disks
            // that make it when they are written to.
            for index in self.emptied() {
                if let Some(lease) = self.lease_in(index, least, ask)? {
                    return Ok(Some(lease));
                }
            }
            for turn in 1..count {
                if let Some(lease) = self.lease_in((first + turn) % count, least, ask)? {
                    return Ok(Some(lease));
                }
            }
        }
        Ok(None)
    }

    /// A lease of `least` bytes or more of a metaslab.
    fn lease_in(&mut self, index: u64, least: u64, ask: &Ask<'_>) -> Found<Option<Lease>> {
        let size = 1u64 << self.space.ms_shift;
        let Some(slab) = self.slabs.get(index as usize) else { return Ok(None) };
        if ask.taken.contains(&index) || size - slab.allocated.min(size) < least {
            return Ok(None);
        }
        let Some(slab) = self.slab(index)? else { return Ok(None) };
        let Some(ms) = slab.loaded.as_mut() else { return Ok(None) };
        let Some((start, len)) = ms.lease(least, ask.want) else { return Ok(None) };
        // Whole granules only, so that no sliver is ever too small for a sector.
        let len_used = len / ask.granule * ask.granule;
        if len_used < least {
            ms.settle(start, 0, len);
            return Ok(None);
        }
        if len_used < len {
            ms.settle(start + len_used, 0, len - len_used);
        }
        self.active[ask.copy] = index;
        let (top, end) = (self.space.top, start + len_used);
        Ok(Some(Lease { top, slab: index, start, cursor: start, end }))
    }
}
