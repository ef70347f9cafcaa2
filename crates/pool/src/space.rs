//! How much space there is: for listings, and before a change is admitted.
//!
//! The rules are those of OpenZFS (FORMAT: sections 8.6 and 18), since users compare the numbers.

use dmu::Tx;
use rt::sync::atomic::Ordering;
use rt::sync::{Arc, Mutex};

use crate::dataset::Dataset;
use crate::dsl::lookup::{self, DEPTH_MAX, Found};
use crate::dsl::property;
use crate::error::{PoolError, Result};
use crate::mos::key;
use crate::pool::Pool;
use crate::sync::TaskContext;

/// Space kept free in any case: a 32nd of the pool, at most this.
const SLOP_MAX: u64 = 128 << 30;
/// .. and at least this, if that is not more than half of the pool.
const SLOP_MIN: u64 = 128 << 20;
/// Bytes that a change may cost besides its data: dnodes, indirect blocks, directories, the MOS.
const OVERHEAD_BYTES: u64 = 1 << 20;
/// Memory that a change of names makes dirty, about: some blocks of a directory.
const NAMES_BYTES: u64 = 64 << 10;
/// How often a full pool is synced before a change is refused: freed space rests for three txgs.
const RETRIES: u32 = 4;

/// Bytes of a block of the MOS that a task changes, about, and how many copies of it there are.
const TASK_BLOCK: u64 = 16 << 10;
const TASK_COPIES: u64 = 3;

/// A top-level vdev with more metaslabs than this has one that only intent logs are put in.
const METASLABS_WITHOUT_LOG: u64 = 64;

/// Bytes of a top-level vdev for data that only intent logs are put in.
pub(crate) fn log_slab(ms_count: u64, ms_shift: u32) -> u64 {
    if ms_count > METASLABS_WITHOUT_LOG { 1 << ms_shift } else { 0 }
}

/// What is kept free of so many usable bytes. Space for logs counts as kept free, up to half of that.
pub(crate) fn slop_of(usable: u64, logs: u64) -> u64 {
    let slop = (usable / 32).min(SLOP_MAX);
    (slop - logs.min(slop / 2)).max(SLOP_MIN.min(usable / 2))
}

/// Space of a pool, in bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PoolSpace {
    /// All metaslabs but those of log devices, parity included.
    pub size: u64,
    /// Allocated according to the space maps.
    pub allocated: u64,
    /// Deflated size of what any data may go to: what data of 128 KiB blocks could use, and what
    /// deduplication saves, without what is to be freed.
    pub usable: u64,
    /// Of that, what is kept free.
    pub slop: u64,
}

/// What a task does with space: how much must be free for it, and how much of what is kept free it may use. The
/// classes, and the numbers of blocks, are those of OpenZFS.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Need {
    /// Makes something new, in so many blocks: what is kept free stays.
    New(u64),
    /// Changes what is there, in so many blocks: the half stays that changes of files need which free.
    Change(u64),
    /// Frees, changes who may use space, or notes what was done: an eighth stays, for the txgs that free.
    Free,
}

impl Need {
    /// The same for each of so many names.
    pub(crate) fn times(self, names: usize) -> Need {
        match self {
            Need::New(blocks) => Need::New(blocks.saturating_mul(names as u64)),
            Need::Change(blocks) => Need::Change(blocks.saturating_mul(names as u64)),
            Need::Free => Need::Free,
        }
    }
}

/// What a top-level vdev is for.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Class {
    /// All data.
    Normal,
    /// Some kinds of blocks only.
    Special,
    /// Intent logs only.
    Log,
}

impl PoolSpace {
    /// Space that data sets may use, in bytes.
    pub fn for_datasets(&self) -> u64 {
        self.usable.saturating_sub(self.slop)
    }
}

impl Pool {
    /// Space of the pool as of the last sync.
    pub fn space(&self) -> Result<PoolSpace> {
        let (mut size, mut allocated, mut usable, mut logs) = (0, 0, 0, 0);
        for (slabs, alloc) in self.slab_space()? {
            let class = self.class_of(slabs.top)?;
            if class == Class::Log {
                continue;
            }
            let bytes = slabs.ms_count << slabs.ms_shift;
            size += bytes;
            allocated += alloc;
            if class == Class::Normal {
                let log = log_slab(slabs.ms_count, slabs.ms_shift);
                usable += self.store.deflate(slabs.top, bytes - log);
                logs += self.store.deflate(slabs.top, log);
            }
        }
        usable += self.dedup()?.saved();
        let slop = slop_of(usable, logs);
        let kept = self.kept_by_checkpoint()?.into_values().fold(0, u64::saturating_add);
        usable = usable.saturating_sub(kept);
        if let Some(deferred) = self.mos.find(key::SYNC_BPLIST)? {
            let phys = dmu::Bpobj::open(&self.mos.objset, deferred)?.phys()?;
            usable = usable.saturating_sub(phys.bytes.get());
        }
        Ok(PoolSpace { size, allocated, usable, slop })
    }

    /// Is there a vdev for metadata and small blocks?
    pub fn has_special(&self) -> Result<bool> {
        for (slabs, _) in self.slab_space()? {
            if self.class_of(slabs.top)? == Class::Special {
                return Ok(true);
            }
        }
        Ok(false)
    }

    /// What may be put on a top-level vdev.
    fn class_of(&self, top: u32) -> Result<Class> {
        let (is_log, zap) = {
            let config = self.config.lock();
            let child = config.vdev_tree.children.get(top as usize);
            let is_log = child.and_then(|child| child.top).is_some_and(|top| top.is_log);
            (is_log, child.and_then(|child| child.zap_top).unwrap_or(0))
        };
        if is_log {
            return Ok(Class::Log);
        }
        let has_bias = zap != 0 && self.mos.zap(zap)?.get(key::TOP_ALLOCATION_BIAS)?.is_some();
        Ok(if has_bias { Class::Special } else { Class::Normal })
    }

    /// Size and allocated bytes of each top-level vdev that holds blocks, by number, as of the last
    /// sync.
    pub fn space_by_top(&self) -> Result<Vec<(u32, u64, u64)>> {
        let tops = self.slab_space()?.into_iter();
        Ok(tops.map(|(slabs, used)| (slabs.top, slabs.ms_count << slabs.ms_shift, used)).collect())
    }

    /// Space that directory `dir_object` could still use, in bytes.
    pub fn dir_available(&self, dir_object: u64) -> Result<u64> {
        self.available_within(dir_object, DEPTH_MAX)
    }

    fn available_within(&self, dir_object: u64, depth: usize) -> Result<u64> {
        if depth == 0 {
            let detail = format!("object {dir_object}: parents without end");
            return Err(PoolError::Damaged { what: "DSL directory", detail });
        }
        let dir = self.mos.dir(dir_object)?;
        let used = dir.used_bytes.get();
        let mut quota = match dir.quota_bytes.get() {
            0 => u64::MAX,
            quota => quota,
        };
        let parent = dir.parent_object.get();
        let mut above = u64::MAX;
        if parent == 0 {
            quota = quota.min(self.space()?.for_datasets());
        } else {
            above = self.available_within(parent, depth - 1)?;
            above = above.saturating_add(dir.reserved_bytes.get().saturating_sub(used));
        }
        Ok(quota.saturating_sub(used).min(above))
    }

    /// Space that a data set could still use, its own quota and reservation included, in bytes.
    pub fn available(&self, found: &Found) -> Result<u64> {
        let mut available = self.dir_available(found.dir_object)?;
        let reserved = property::number(&self.mos, found, "refreservation", false, 0)?;
        let unique = found.phys.unique_bytes.get();
        available = available.saturating_add(reserved.saturating_sub(unique));
        let quota = property::number(&self.mos, found, "refquota", false, 0)?;
        if quota != 0 {
            available = available.min(quota.saturating_sub(found.phys.referenced_bytes.get()));
        }
        Ok(available)
    }

    /// What was freed in the last txgs and cannot be written to yet, deflated, in bytes.
    pub(crate) fn resting(&self) -> u64 {
        let Some(writing) = &self.writing else { return 0 };
        let resting = writing.writer.allocator().resting().into_iter();
        resting.map(|(top, bytes)| self.store.deflate(top, bytes)).sum()
    }

    /// Deflated size of `bytes` written as blocks of `block` bytes, at worst.
    fn worst_case(&self, bytes: u64, block: u64) -> u64 {
        let rest = match bytes % block {
            0 => 0,
            rest => self.store.dsize_max(rest),
        };
        self.store.dsize_max(block).saturating_mul(bytes / block).saturating_add(rest)
    }

    /// Starts a change of about `bytes` new bytes in `dataset`: there is space for it, and no
    /// quota is in the way, else it is refused before anything is done.
    pub fn admit(&self, dataset: &Arc<Dataset>, bytes: u64) -> Result<Tx<'_>> {
        let writing = self.writing()?;
        dataset.not_revoked()?;
        // The records at both ends may be changed in part, which makes all of them dirty.
        let memory = bytes.saturating_add(2 * dataset.record()).saturating_add(NAMES_BYTES);
        let promise = writing.txgs.promise(self.worst_case(bytes, dataset.record()), memory);
        for attempt in 0.. {
            let copies = u64::from(dataset.objset.policy().copies.max(1));
            let wanted = writing.txgs.outstanding().saturating_mul(copies);
            let wanted = wanted.saturating_add(wanted / 16).saturating_add(OVERHEAD_BYTES);
            let room = dataset.room(self)?;
            let cost = room.pieces.cost(self, wanted, room.ready)?;
            // What the pieces cost beyond the data may come from the slop, but for the last of it.
            let kept = if cost > wanted { room.last + room.last / 2 } else { 0 };
            let fits = wanted <= room.available && cost.saturating_add(kept) <= room.ready;
            // A change that frees must be possible in a full pool: it gets half of the slop.
            if fits || bytes == 0 && cost.saturating_add(room.last) <= room.ready {
                let tx = self.enter(promise)?;
                dataset.note_replay(&tx);
                return Ok(tx);
            }
            // What is removed and not freed yet is room, too.
            if attempt >= RETRIES && !self.is_freeing()? {
                let by_quota = room.by_quota.filter(|_| wanted > room.available);
                return Err(match by_quota {
                    Some(name) => PoolError::QuotaExceeded { name },
                    None => PoolError::NoSpace { name: dataset.name() },
                });
            }
            *writing.uberblock_wanted.lock() = true;
            self.sync()?;
        }
        unreachable!("the loop ends by its retries")
    }
}

impl Pool {
    /// [`Pool::task`], if there is room for it when its turn comes; else it is refused as
    /// [`PoolError::NoRoom`] before it has begun.
    pub(crate) fn task_within<T: Send + 'static>(
        &self,
        need: Need,
        task: impl FnOnce(&TaskContext<'_>) -> Result<T> + Send + 'static,
    ) -> Result<T> {
        let writing = self.writing()?;
        let task = Arc::new(Mutex::new(Some(task)));
        for attempt in 0.. {
            // Not in the sync: what cannot be read there suspends the pool.
            let space = self.space()?;
            let waiting = task.clone();
            let done = self.task(move |cx| {
                cx.take_room(need, &space)?;
                let task = waiting.lock().take().expect("who is refused begins later");
                task(cx)
            });
            // What was freed and rests, or is not freed yet, is room, too.
            let more = || Ok::<_, PoolError>(attempt < RETRIES || self.is_freeing()?);
            match done {
                Err(PoolError::NoRoom) if task.lock().is_some() && more()? => {
                    *writing.uberblock_wanted.lock() = true;
                }
                done => return done,
            }
        }
        unreachable!("the loop ends by its retries")
    }
}

impl TaskContext<'_> {
    /// Counts what a task needs among what this txg does; refuses if there is no room for all of it.
    fn take_room(&self, need: Need, space: &PoolSpace) -> Result<()> {
        let mos = self.making.mos;
        let used = mos.dir(lookup::root_dir(mos)?)?.used_bytes.get();
        let free = space.usable.saturating_sub(used);
        let ready = free.saturating_sub(self.pool.resting());
        let half = space.slop / 2 + 2 * OVERHEAD_BYTES;
        let (blocks, kept, kept_ready) = match need {
            Need::New(blocks) => (blocks, space.slop, half),
            Need::Change(blocks) => (blocks, 0, half),
            Need::Free => (0, 0, space.slop / 8),
        };
        let bytes = blocks.saturating_mul(TASK_BLOCK);
        let cost = self.pool.worst_case(bytes, TASK_BLOCK).saturating_mul(TASK_COPIES);
        let taken = self.taken.load(Ordering::Relaxed).saturating_add(cost);
        if taken.saturating_add(kept) > free || taken.saturating_add(kept_ready) > ready {
            return Err(PoolError::NoRoom);
        }
        self.taken.store(taken, Ordering::Relaxed);
        Ok(())
    }
}
