//! An open pool: the engine that commands, the daemon and tests hold.
//!
//! `Pool::open` or `create`, operations from many threads, `Pool::close`. Changes to files are made
//! under a [`Tx`]; changes to the DSL are *tasks* that run inside the sync of a txg. A thread of
//! the pool syncs when enough is dirty or somebody asks.
//!
//! Lock order: `syncing` (one sync at a time), `heads`, then the locks of dmu and store.

use std::collections::{BTreeMap, BTreeSet};

use dmu::{Objset, Promise, Tx, Txgs};
use format::config::{PoolConfig, PoolState, VdevConfig};
use rt::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use rt::sync::{Arc, Condvar, Mutex};
use rt::workers::Workers;
use store::{Gate, Store, Writer};

use crate::dataset::Dataset;
use crate::disks;
use crate::dsl::lookup::Found;
use crate::error::{PoolError, Result};
use crate::features::Features;
use crate::mos::Mos;
use crate::spacemaps::PoolSpaceMaps;
use crate::sync::TaskContext;
use crate::zil::Dying;

/// The writing half of a pool: exists only if it was opened for writing (INV-4).
pub(crate) struct Writing {
    /// Where blocks are written.
    pub(crate) writer: Writer,
    /// For the map of free space, and for records of intent logs: settled with each txg.
    pub(crate) map_lease: Mutex<rt::Grant>,
    pub(crate) logs_lease: Mutex<rt::Grant>,
    /// Space maps of the metaslabs.
    pub(crate) space_maps: Arc<PoolSpaceMaps>,
    /// Open, quiescing and syncing txgs.
    pub(crate) txgs: Txgs,
    /// Bytes dirty in the open txg at which a sync starts.
    pub(crate) dirty_sync: u64,
    /// Tasks, each with the txg that was open when it came: it runs in the sync of that one or a later one,
    /// so that it finds all that was done before it.
    pub(crate) tasks: Mutex<Vec<(u64, Task)>>,
    /// One sync at a time.
    pub(crate) syncing: Mutex<()>,
    /// The next sync writes an uberblock even if nothing has changed: what was freed ages.
    pub(crate) uberblock_wanted: Mutex<bool>,
    /// The labels are as whoever had the pool before left them.
    pub(crate) labels_stale: Mutex<bool>,
    /// How what was destroyed is freed.
    pub(crate) freeing: Mutex<Freeing>,
    /// Why the pool takes no more changes.
    pub(crate) suspended: Mutex<Option<String>>,
    /// Places of intent logs to which nothing leads any more.
    pub(crate) log_dying: Mutex<Vec<Dying>>,
    /// The next sync leaves no intent logs.
    pub(crate) closing: AtomicBool,
    /// Intent logs end and none begins, until somebody has taken a log vdev away.
    pub(crate) without_logs: AtomicBool,
    /// Wakes the syncing thread.
    pub(crate) bell: Arc<Bell>,
    pub(crate) thread: Mutex<Option<rt::thread::JoinHandle<()>>>,
}

impl Writing {
    pub(crate) fn is_closing(&self) -> bool {
        self.closing.load(Ordering::SeqCst)
    }

    /// Shall intent logs end, and none begin?
    pub(crate) fn leaves_no_logs(&self) -> bool {
        self.is_closing() || self.without_logs.load(Ordering::SeqCst)
    }

    /// Takes the tasks for the sync of `txg`: one that came later waits for a later txg, which has what its
    /// caller has done before.
    pub(crate) fn tasks_until(&self, txg: u64) -> Vec<Task> {
        let mut tasks = self.tasks.lock();
        let (now, later): (Vec<_>, Vec<_>) = tasks.drain(..).partition(|(since, _)| *since <= txg);
        *tasks = later;
        now.into_iter().map(|(_, task)| task).collect()
    }
}

/// How what was destroyed is freed, and files that are too large for one txg.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Freeing {
    /// Something is left of what was destroyed.
    pub(crate) pending: bool,
    /// The last txg in which some of it came or went.
    pub(crate) last: u64,
    /// Something is left in the delete queue of an open file system.
    pub(crate) files: bool,
    /// About so many blocks in one txg.
    pub(crate) blocks_per_txg: u64,
    /// A txg that leaves something asks for the next one.
    pub(crate) by_itself: bool,
}

/// What the syncing thread waits for. It outlives the pool, which the thread does not keep alive.
#[derive(Default)]
pub(crate) struct Bell {
    /// The txg that somebody wants on disk, and whether the thread shall end.
    wanted: Mutex<(u64, bool)>,
    rung: Condvar,
}

impl Bell {
    pub(crate) fn ask(&self, txg: u64) {
        let mut wanted = self.wanted.lock();
        if wanted.0 < txg {
            wanted.0 = txg;
            self.rung.notify_one();
        }
    }

    fn stop(&self) {
        self.wanted.lock().1 = true;
        self.rung.notify_all();
    }

    /// Waits for a txg beyond `done`; `None`: the end.
    fn wait(&self, done: u64) -> Option<u64> {
        let mut wanted = self.wanted.lock();
        while wanted.0 <= done && !wanted.1 {
            wanted = self.rung.wait(wanted);
        }
        (!wanted.1).then_some(wanted.0)
    }
}

/// A change to the DSL, run in syncing context. An error ends the sync: it came in the middle of a
/// change, which must not reach the disk by half.
pub(crate) type Task = Box<dyn FnOnce(&TaskContext<'_>) -> Result<()> + Send>;

/// An open pool.
pub struct Pool {
    pub(crate) name: String,
    pub(crate) guid: u64,
    pub(crate) store: Arc<Store>,
    pub(crate) workers: Workers,
    pub(crate) mos: Mos,
    pub(crate) features: Features,
    pub(crate) config: Mutex<PoolConfig>,
    /// The labels must be rewritten with the next uberblock.
    pub(crate) config_dirty: Mutex<bool>,
    pub(crate) writing: Option<Writing>,
    /// Leaves that are offline until the pool is opened the next time, by guid.
    pub(crate) offline_for_now: Mutex<BTreeSet<u64>>,
    /// Devices that have left and could not be given labels that say so.
    pub(crate) unlabelled: Mutex<Vec<disks::Unlabelled>>,
    /// Why it can only be read, if so.
    pub(crate) read_only_because: Option<String>,
    /// What is written stays in memory.
    pub(crate) in_memory: bool,
    /// Open heads and snapshots by data set object.
    pub(crate) heads: Mutex<BTreeMap<u64, Arc<Dataset>>>,
    /// Syncs that changed what somebody may be opening, where it begins or what it obeys, twice; odd while one does.
    pub(crate) upheavals: AtomicU64,
    /// Names of data sets whose intent logs are claimed, and not worked off.
    pub(crate) logs_to_replay: Mutex<Vec<String>>,
    /// Why they were not worked off, by data set object.
    pub(crate) logs_left: Mutex<BTreeMap<u64, String>>,
    pub(crate) random: Mutex<rt::random::Rng>,
    pub(crate) last_txg: Mutex<u64>,
    /// How many changes of data sets and properties there were.
    pub(crate) tasks: AtomicU64,
    /// Since when its devices count.
    pub(crate) opened: rt::time::Instant,
    /// Which leaves are slow.
    pub(crate) slow: Mutex<crate::slow::Watch>,
    /// Its spares, where somebody has asked for them to be known.
    pub(crate) known_spares: Mutex<Vec<VdevConfig>>,
    /// Scrubs and resilvers.
    pub(crate) scan: crate::scan::Scans,
    /// What was read wrong is put right.
    pub(crate) healing: crate::healing::Healing,
}

impl Pool {
    /// Its name.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Its guid.
    pub fn guid(&self) -> u64 {
        self.guid
    }

    /// The MOS, for listings and dumps.
    pub fn mos(&self) -> &Mos {
        &self.mos
    }

    /// Is it read though its metadata may be damaged?
    pub fn is_ruined(&self) -> bool {
        self.mos.ruins.is_some()
    }

    /// The feature counts.
    pub fn features(&self) -> &Features {
        &self.features
    }

    /// Where blocks come from.
    pub fn store(&self) -> &Arc<Store> {
        &self.store
    }

    /// The workers.
    pub fn workers(&self) -> &Workers {
        &self.workers
    }

    /// The configuration as of the last sync, with what is offline for now marked as such.
    pub fn config(&self) -> PoolConfig {
        let config = self.config.lock().clone();
        let offline = self.offline_for_now.lock();
        match offline.is_empty() {
            true => config,
            false => PoolConfig {
                vdev_tree: disks::marked_offline(&config.vdev_tree, &offline),
                ..config
            },
        }
    }

    /// The last txg on stable storage.
    pub fn txg(&self) -> u64 {
        *self.last_txg.lock()
    }

    /// The txg that changes go into now.
    pub fn open_txg(&self) -> Result<u64> {
        Ok(self.writing()?.txgs.open())
    }

    /// Why the pool can only be read; `None`: it can be written.
    pub fn read_only_reason(&self) -> Option<&str> {
        self.read_only_because.as_deref()
    }

    pub(crate) fn writing(&self) -> Result<&Writing> {
        self.writing.as_ref().ok_or_else(|| PoolError::ReadOnly {
            name: self.name.clone(),
            reason: self.read_only_because.clone().unwrap_or_else(|| "opened so".into()),
        })
    }

    /// Starts a change to files that was promised its space: pins the open txg until the handle is
    /// dropped.
    pub(crate) fn enter<'a>(&'a self, promise: Promise<'a>) -> Result<Tx<'a>> {
        let writing = self.writing()?;
        let txgs = &writing.txgs;
        let sync_at = writing.dirty_sync.min(txgs.dirty_max() / 2);
        if txgs.dirty_open() >= sync_at {
            self.ask_for_sync(txgs.open());
        }
        let crowded = |txg, dirty| {
            if dirty >= sync_at {
                self.ask_for_sync(txg);
            }
        };
        promise.enter(crowded).map_err(|_| self.suspended_error())
    }

    /// Why the pool is suspended: devices failed beyond redundancy. `None`: it is not.
    pub fn suspended(&self) -> Option<String> {
        let writing = self.writing.as_ref()?;
        writing.suspended.lock().clone().or_else(|| writing.writer.gate().reason())
    }

    /// When devices fail beyond redundancy: shall those who change the pool wait until they are back
    /// ([`Pool::clear`])? Ordinarily they get an error, and the pool takes no more changes.
    pub fn set_patient(&self, patient: bool) -> Result<()> {
        self.writing()?.writer.gate().set_patient(patient);
        Ok(())
    }

    /// Where a suspended pool waits; `None`: it can only be read.
    pub fn gate(&self) -> Option<&Arc<Gate>> {
        self.writing.as_ref().map(|writing| writing.writer.gate())
    }

    /// Tries again what a suspended pool waits for.
    pub fn clear(&self) -> Result<()> {
        self.writing()?.writer.gate().resume();
        Ok(())
    }

    pub(crate) fn suspended_error(&self) -> PoolError {
        let reason = self.suspended();
        let reason = reason.unwrap_or_else(|| "it is being closed".into());
        PoolError::Suspended { name: self.name.clone(), reason }
    }

    /// Runs `task` inside the next sync and returns what it returned, once it is on disk.
    ///
    /// A task refuses before it changes anything ([`PoolError::is_refusal`]); any other error
    /// suspends the pool, with nothing of the txg on disk.
    pub fn task<T: Send + 'static>(
        &self,
        task: impl FnOnce(&TaskContext<'_>) -> Result<T> + Send + 'static,
    ) -> Result<T> {
        let writing = self.writing()?;
        let slot: Arc<Mutex<Option<Result<T>>>> = Arc::new(Mutex::new(None));
        let out = slot.clone();
        let task: Task = Box::new(move |cx| {
            let result = task(cx);
            cx.pool.tasks.fetch_add(1, Ordering::Release);
            match result {
                Err(e) if !e.is_refusal() => Err(e),
                result => {
                    *out.lock() = Some(result);
                    Ok(())
                }
            }
        });
        let since = writing.txgs.open();
        writing.tasks.lock().push((since, task));
        let synced = self.sync();
        self.tasks.fetch_add(1, Ordering::Release);
        synced?;
        let result = slot.lock().take();
        result.unwrap_or_else(|| Err(self.suspended_error()))
    }

    /// How many tasks have run: what the MOS says of data sets and their properties stays as it is until another has.
    pub fn tasks(&self) -> u64 {
        self.tasks.load(Ordering::Acquire)
    }

    fn ask_for_sync(&self, txg: u64) {
        if let Some(writing) = &self.writing {
            writing.bell.ask(txg);
        }
    }

    /// Puts everything acknowledged so far on stable storage; returns the txg that holds it.
    pub fn sync(&self) -> Result<u64> {
        let writing = self.writing()?;
        let txg = writing.txgs.open();
        // One that is under way does not hold what came after it was frozen.
        while writing.txgs.last_synced() < txg {
            self.sync_txg(txg)?;
        }
        Ok(txg)
    }

    /// Has anything changed that is in no uberblock yet?
    pub fn has_changes(&self) -> bool {
        let Some(writing) = &self.writing else { return false };
        let mut alive = writing.txgs.last_synced() + 1..=writing.txgs.open();
        self.errlog_is_due() || alive.any(|txg| !self.dirty_heads(txg).is_empty())
    }

    /// From now on each `every`-th block of `least_bytes` and more becomes a gang (0: none, as ordinarily),
    /// as if no contiguous space were left for it.
    pub fn force_gangs(&self, least_bytes: u64, every: u64) -> Result<()> {
        self.writing()?.writer.allocator().force_gangs(least_bytes, every);
        Ok(())
    }

    /// Starts the syncing thread; only a pool opened for writing has one.
    pub(crate) fn start(self: &Arc<Self>) {
        let Some(writing) = &self.writing else { return };
        let (bell, pool) = (writing.bell.clone(), Arc::downgrade(self));
        let body = move || {
            let mut done = 0;
            while let Some(asked) = bell.wait(done) {
                // Whoever drops the pool without closing it leaves it as a crash would.
                let Some(pool) = pool.upgrade() else { return };
                let Some(writing) = &pool.writing else { return };
                while writing.txgs.last_synced() < asked {
                    if pool.sync_txg(asked).is_err() {
                        return;
                    }
                }
                done = asked;
            }
        };
        *writing.thread.lock() = Some(rt::thread::spawn("txg-sync", body));
        self.start_healing();
    }

    /// Lets a suspended pool go: who waits gets an error. What was acknowledged is on disk, nothing else is.
    pub fn let_go(&self) -> Result<()> {
        self.set_patient(false)
    }

    /// Stops taking changes; those that it took are in a last sync. The pool stays open for reading. Of one that waits
    /// for its devices it waits, too.
    pub fn close(&self) -> Result<()> {
        let Some(writing) = &self.writing else { return Ok(()) };
        self.stop_healing();
        let scan_left = self.scan_ends(writing);
        let suspended = writing.suspended.lock().is_some();
        writing.closing.store(true, Ordering::SeqCst);
        writing.txgs.refuse();
        let synced = if suspended { Ok(()) } else { self.sync().map(|_| ()) };
        writing.txgs.close();
        writing.bell.stop();
        let thread = writing.thread.lock().take();
        if let Some(thread) = thread {
            thread.join();
        }
        scan_left.and(synced)
    }

    /// Heads that `txg` has changed.
    pub(crate) fn dirty_heads(&self, txg: u64) -> Vec<Arc<Dataset>> {
        let heads = self.heads.lock();
        let ends = self.logs_end();
        let changed = |d: &&Arc<Dataset>| {
            d.objset.is_dirty(txg) || d.log.changes_header(txg, ends) || d.replay_changes_header()
        };
        heads.values().filter(changed).cloned().collect()
    }

    /// Shall nobody find an intent log after the next txg?
    pub(crate) fn logs_end(&self) -> bool {
        let active = self.config.lock().state == PoolState::Active;
        !active || self.writing.as_ref().is_some_and(Writing::leaves_no_logs)
    }

    /// Opens the data set that `find` finds, once; `make` makes it of what was found.
    pub(crate) fn open_object(
        &self,
        find: impl Fn() -> Result<Found>,
        make: impl Fn(&Found) -> Result<Dataset>,
    ) -> Result<Arc<Dataset>> {
        let before = self.upheavals.load(Ordering::SeqCst);
        let is_quiet =
            || before.is_multiple_of(2) && self.upheavals.load(Ordering::SeqCst) == before;
        match self.open_while(&find, &make, is_quiet) {
            Ok(Some(open)) => return Ok(open),
            Err(error) if is_quiet() => return Err(error),
            // What was found may be gone, begin elsewhere, or obey something else.
            _ => {}
        }
        let _between = self.writing()?.syncing.lock();
        let opened = self.open_while(&find, &make, || true)?;
        Ok(opened.expect("nobody changes what is opened but a sync"))
    }

    /// The same; `None` if somebody may have changed by the time that it is made what was found.
    fn open_while(
        &self,
        find: &impl Fn() -> Result<Found>,
        make: &impl Fn(&Found) -> Result<Dataset>,
        is_quiet: impl Fn() -> bool,
    ) -> Result<Option<Arc<Dataset>>> {
        let found = find()?;
        if let Some(open) = self.heads.lock().get(&found.object) {
            return Ok(Some(open.clone()));
        }
        let made = Arc::new(make(&found)?);
        let mut heads = self.heads.lock();
        Ok(is_quiet().then(|| heads.entry(found.object).or_insert(made).clone()))
    }

    /// The sync that is under way changes where a data set begins, or takes it away: it is not open any more.
    pub(crate) fn upheave(&self, object: u64) -> Option<Arc<Dataset>> {
        let mut heads = self.heads.lock();
        self.upheavals.fetch_or(1, Ordering::SeqCst);
        heads.remove(&object)
    }

    /// The data sets that are open; the sync that is under way changes what any is called, or obeys.
    pub(crate) fn upheave_all(&self) -> Vec<Arc<Dataset>> {
        let heads = self.heads.lock();
        self.upheavals.fetch_or(1, Ordering::SeqCst);
        heads.values().cloned().collect()
    }

    /// The sync that is under way makes a data set. To be called before it has a name: whoever opens it meanwhile would
    /// find it half made, and keep it so.
    pub(crate) fn upheave_new(&self) {
        let _heads = self.heads.lock();
        self.upheavals.fetch_or(1, Ordering::SeqCst);
    }

    /// A data set that is open; where it is not, the sync that is under way changes where it begins.
    pub(crate) fn open_or_upheave(&self, object: u64) -> Option<Arc<Dataset>> {
        let heads = self.heads.lock();
        let open = heads.get(&object).cloned();
        if open.is_none() {
            self.upheavals.fetch_or(1, Ordering::SeqCst);
        }
        open
    }

    /// The account of its memory (INV-5), as what is read ahead sees it.
    pub fn memory(&self) -> &rt::Account {
        self.store.account()
    }

    /// Shorthand for the objects of the MOS.
    pub(crate) fn mos_objset(&self) -> &Arc<Objset> {
        &self.mos.objset
    }
}

impl Drop for Pool {
    fn drop(&mut self) {
        self.store.troubles().end();
        if let Some(writing) = &self.writing {
            writing.bell.stop();
        }
    }
}
