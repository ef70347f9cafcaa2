//! The sync of one txg: data sets, tasks, the MOS in passes, then labels and uberblock.
//!
//! The MOS describes its own blocks (space maps are objects), so it is written in passes. From the
//! second pass on a block born in this txg is written over in place, and one that outgrows its
//! place grows once, to its full size: so each pass allocates less than the one before, and the
//! passes end (INV-11). The uberblock goes out last, after a flush (INV-3).

use dmu::{Policy, Syncing, Tally, Tx};
use format::config::PoolState;
use rt::sync::Arc;
use rt::sync::atomic::{AtomicU64, Ordering};

use crate::dataset::Dataset;
use crate::dsl::create::Making;
use crate::dsl::freeing::Progress;
use crate::error::{PoolError, Result};
use crate::frees::note_given_up;
use crate::ledger::Ledger;
use crate::pool::{Pool, Writing};
use crate::spacemaps::Appending;
use crate::zil::Dying;

/// Passes after which the MOS must have come to rest.
const PASSES_MAX: u16 = 20;
/// Txgs without an uberblock after which one is written all the same. A ring has 16 slots or more, and each txg its own:
/// so the next one goes over none of the last three, however many txgs had nothing to write (INV-1).
const IDLE_TXGS_MAX: u64 = 7;

/// What a task works with: the MOS, the ledger and the making of things, in one txg.
pub struct TaskContext<'a> {
    /// The pool.
    pub pool: &'a Pool,
    /// The txg.
    pub tx: &'a Tx<'a>,
    /// Makes directories and data sets.
    pub making: &'a Making<'a>,
    /// Charges space.
    pub ledger: &'a Ledger<'a>,
    pub(crate) writing: &'a Writing,
    /// Bytes that the tasks of this txg were given room for, and that may not be charged yet.
    pub(crate) taken: AtomicU64,
}

impl TaskContext<'_> {
    /// Syncs the object set of a data set within this txg and settles its space.
    pub fn sync_objset(&self, object: u64, objset: &Arc<dmu::Objset>, reserved: u64) -> Result<()> {
        let policy = objset.policy();
        let cx = Syncing {
            txg: self.tx.txg(),
            writer: &self.writing.writer,
            workers: &self.pool.workers,
            policy: &policy,
            rewrite: false,
            frees: &AtomicU64::new(0),
        };
        let (root, tally) = objset.sync(&cx, self.tx)?;
        self.ledger.settle(object, root, tally, reserved)
    }
}

impl Pool {
    /// Closes the open txg and puts it on stable storage, unless another has done so with `wanted`
    /// by the time that it is our turn: who waited together is served by one txg. Suspends the pool
    /// if that fails.
    pub(crate) fn sync_txg(&self, wanted: u64) -> Result<()> {
        let writing = self.writing()?;
        let _one = writing.syncing.lock();
        if writing.suspended.lock().is_some() {
            return Err(self.suspended_error());
        }
        if writing.txgs.last_synced() >= wanted {
            return Ok(());
        }
        let txg = writing.txgs.freeze();
        let done = writing.writer.gate().syncing(|| self.sync_frozen(writing, txg));
        // Whoever opens a data set from here on finds it as it is.
        let changed = self.upheavals.load(Ordering::SeqCst);
        self.upheavals.store(changed.next_multiple_of(2), Ordering::SeqCst);
        match done {
            Ok(()) => {
                writing.txgs.synced(txg);
                let heads: Vec<_> = self.heads.lock().values().cloned().collect();
                let records = || heads.iter().map(|head| head.log.memory_bytes()).sum();
                // So much there was, and so much is left.
                writing.logs_lease.lock().set(records());
                heads.iter().for_each(|head| head.log.synced(txg));
                writing.logs_lease.lock().set(records());
                writing.map_lease.lock().set(writing.writer.allocator().memory_bytes());
                let freeing = *writing.freeing.lock();
                if (freeing.pending || freeing.files) && freeing.by_itself {
                    writing.bell.ask(txg + 1);
                }
                Ok(())
            }
            Err(e) => {
                // Nothing of this txg is reachable from disk: the uberblock was not written.
                *writing.suspended.lock() = Some(e.to_string());
                writing.txgs.close();
                Err(self.suspended_error())
            }
        }
    }

    /// The txg of the newest uberblock. [`Pool::txg`] may be a later one, which had nothing to write.
    pub fn uberblock_txg(&self) -> u64 {
        match self.scan.newest() {
            // Nobody writes to this pool.
            (0, _) => self.txg(),
            (txg, _) => txg,
        }
    }

    fn sync_frozen(&self, writing: &Writing, txg: u64) -> Result<()> {
        let tx = &writing.txgs.in_sync(txg);
        writing.writer.begin(txg);
        let making = &Making {
            mos: &self.mos,
            features: &self.features,
            tx,
            now_secs: rt::time::wall_clock().as_secs(),
            random: &self.random,
        };
        let allocator = writing.writer.allocator();
        let ledger =
            &Ledger { mos: &self.mos, store: self.mos_objset().store(), allocator, making };
        // What the changes of the txg free by themselves counts; a part is always left.
        let portion = writing.freeing.lock().blocks_per_txg;
        let portion =
            portion.saturating_sub(writing.txgs.freed_blocks(txg)).max(portion.div_ceil(4));
        let frees = &AtomicU64::new(portion);
        self.log_births(writing, txg)?;
        let heads = self.dirty_heads(txg);
        for head in &heads {
            self.sync_head(writing, tx, ledger, (head, frees))?;
        }
        let left = self.heads.lock().values().any(|head| head.objset.has_left());
        writing.freeing.lock().files = left;
        let taken = AtomicU64::new(0);
        let cx = TaskContext { pool: self, tx, making, ledger, writing, taken };
        for task in writing.tasks_until(txg) {
            task(&cx)?;
        }
        let freeing = *writing.freeing.lock();
        if freeing.pending {
            // What goes may have been written in this very txg.
            allocator.settle_all();
            let left = frees.load(Ordering::Relaxed).max(freeing.blocks_per_txg.div_ceil(4));
            let progress = ledger.free_portion(left)?;
            let mut freeing = writing.freeing.lock();
            (freeing.pending, freeing.last) = (progress == Progress::More, txg);
        }
        note_given_up(&cx)?;
        self.write_errlog(tx)?;
        // Frees age by uberblocks, not by txgs that had nothing to write (INV-1).
        if self.make_stable(writing, tx, ledger)? {
            self.write_uberblock(writing, txg)?;
            allocator.txg_done();
        }
        *self.last_txg.lock() = txg;
        Ok(())
    }

    fn sync_head(
        &self,
        writing: &Writing,
        tx: &Tx<'_>,
        ledger: &Ledger<'_>,
        (head, frees): (&Arc<Dataset>, &AtomicU64),
    ) -> Result<()> {
        let phys = head.objset.phys();
        let header = phys.zil_header;
        if let Some(places) = head.ended_replay() {
            for dva in places {
                writing.writer.allocator().free_dva(dva)?;
            }
            head.objset.change_phys(|phys| phys.zil_header.fill(0));
        } else if let Some(header) = head.replayed_until(tx.txg(), &phys) {
            head.objset.change_phys(|phys| phys.zil_header = header.to_bytes());
        } else {
            let strange = header.iter().any(|byte| *byte != 0) && !head.log.owns_header();
            if strange && !self.in_memory {
                // Whoever wrote here before has left it empty.
                self.free_log(&header)?;
                head.objset.change_phys(|phys| phys.zil_header.fill(0));
            }
            let mut dying = Vec::new();
            if let Some(header) = head.log.header(tx.txg(), self.logs_end(), &mut dying) {
                head.objset.change_phys(|phys| phys.zil_header = header.to_bytes());
            }
            logs_died(writing, tx.txg(), dying)?;
        }
        let policy = head.objset.policy();
        let cx = Syncing {
            txg: tx.txg(),
            writer: &writing.writer,
            workers: &self.workers,
            policy: &policy,
            rewrite: false,
            frees,
        };
        let (root, tally) = head.objset.sync(&cx, tx)?;
        ledger.settle(head.object, root, tally, head.refreservation())
    }

    /// The space maps of `txg` learn of what intent logs have taken of its space, and get back what they left.
    fn log_births(&self, writing: &Writing, txg: u64) -> Result<()> {
        let allocator = writing.writer.allocator();
        let heads: Vec<_> = self.heads.lock().values().cloned().collect();
        heads.iter().for_each(|head| head.log.births(allocator, txg));
        logs_died(writing, txg, Vec::new())
    }

    /// Writes the MOS and waits until all of the txg is on stable storage; again, if leaves turn out to lack it
    /// then. `false`: nothing has changed, and nobody wants an uberblock.
    fn make_stable(&self, writing: &Writing, tx: &Tx<'_>, ledger: &Ledger<'_>) -> Result<bool> {
        let out = writing.writer.out();
        let wanted = std::mem::take(&mut *writing.uberblock_wanted.lock());
        let mut pass = 1;
        loop {
            self.sync_mos(writing, tx, ledger, &mut pass)?;
            let changed = self.mos_objset().root().birth() == tx.txg();
            if !(changed || *self.config_dirty.lock() || wanted || self.is_uberblock_due(tx.txg()))
            {
                return Ok(false);
            }
            out.flush()?;
            if !out.tree().leaves().iter().any(|leaf| leaf.lacks.is_changed()) {
                return Ok(true);
            }
        }
    }

    /// Would the uberblock of a later txg go over one that still counts, if `txg` had none?
    fn is_uberblock_due(&self, txg: u64) -> bool {
        let (newest, _) = self.scan.newest();
        // Of a pool in memory nobody goes on from the rings.
        newest != 0 && txg >= newest + IDLE_TXGS_MAX
    }

    /// Writes the MOS until it describes itself.
    fn sync_mos(
        &self,
        writing: &Writing,
        tx: &Tx<'_>,
        ledger: &Ledger<'_>,
        pass: &mut u16,
    ) -> Result<()> {
        let allocator = writing.writer.allocator();
        let policy = Policy::new(true);
        let policy = Policy { lz4: self.mos_objset().policy().lz4, ..policy };
        let mut last = *pass + PASSES_MAX;
        while *pass < last {
            if *pass == 1 {
                // The first change since the pool was opened goes into the labels, too: they say
                // who has it, and what a txg of the same number left there that never was is gone.
                let changed = self.mos_objset().is_dirty(tx.txg());
                if changed && std::mem::take(&mut *writing.labels_stale.lock()) {
                    *self.config_dirty.lock() = true;
                }
                if changed {
                    writing.writer.out().note_absent();
                }
            }
            let dtls = self.write_dtls(writing, tx, *pass)?;
            // Each leaf may come to lack the txg once.
            last += u16::from(dtls.any);
            *self.config_dirty.lock() |= dtls.is_new;
            if dtls.is_new || *pass == 1 && *self.config_dirty.lock() {
                self.write_config(tx)?;
            }
            allocator.settle_pass(*pass == 1);
            let features = &self.features;
            let appending = &Appending { allocator, features, tx, pass: *pass };
            if *pass == 1 && (allocator.is_dirty() || self.mos_objset().is_dirty(tx.txg())) {
                // Whoever gets an exported pool shall have nothing to replay.
                let leaves = self.config.lock().state != PoolState::Active;
                writing.space_maps.flush(appending, leaves)?;
            }
            let maps = writing.space_maps.append(appending)?;
            if maps == 0 && !self.mos_objset().is_dirty(tx.txg()) {
                return Ok(());
            }
            let cx = Syncing {
                txg: tx.txg(),
                writer: &writing.writer,
                workers: &self.workers,
                policy: &policy,
                rewrite: *pass > 1,
                frees: &AtomicU64::new(0),
            };
            let (_, tally): (_, Tally) = self.mos_objset().sync(&cx, tx)?;
            ledger.settle_mos(tally)?;
            *pass += 1;
        }
        Err(PoolError::Damaged {
            what: "MOS",
            detail: format!("it did not come to rest in {PASSES_MAX} passes (INV-11)"),
        })
    }

    /// Makes the txg the pool.
    fn write_uberblock(&self, writing: &Writing, txg: u64) -> Result<()> {
        let mut config_dirty = self.config_dirty.lock();
        let config = self.config.lock().clone();
        let uberblock = self.uberblock(txg, self.mos_objset().root(), &config);
        let labels = config_dirty.then_some(&config);
        let writer = &writing.writer;
        writer.gate().insist(|| Ok(writer.out().commit(&uberblock, labels)?))?;
        self.scan.uberblock(txg, uberblock.root);
        *config_dirty = false;
        Ok(())
    }
}

/// Frees what intent logs have left, as far as it belongs to txgs up to `txg`. It is in no account but the space maps
/// (INV-9).
pub(crate) fn logs_died(writing: &Writing, txg: u64, more: Vec<Dying>) -> Result<()> {
    let mut all = std::mem::take(&mut *writing.log_dying.lock());
    all.extend(more);
    let mut later = Vec::new();
    for mut dying in all {
        if !dying.free(writing.writer.allocator(), txg)? {
            later.push(dying);
        }
    }
    writing.log_dying.lock().append(&mut later);
    Ok(())
}
