//! The engine in this process: opens pools, acts, syncs and closes, one command at a time.

mod accounts;
mod additions;
mod bookmarks;
mod branches;
mod called;
mod capacity;
mod catalogue;
mod copy_in;
mod copy_out;
mod copying;
mod damaged;
mod dependents;
mod diff;
mod disks;
mod dump;
mod errand;
mod files;
mod filesystems;
mod held;
mod history;
mod judge;
mod keeper;
mod lifecycle;
mod limits;
mod located;
mod lookout;
mod lost;
mod mount;
mod naming;
mod opening;
mod ours;
mod places;
mod placing;
mod pool_props;
mod properties;
mod query;
mod remove;
mod rescue;
mod roots;
mod salvage;
mod scrub;
mod session;
mod sighting;
mod standins;
mod status;
mod systems;
mod volumes;

use std::collections::BTreeMap;
use std::io::Write;
use std::path::{Path, PathBuf};

use pool::props::{Key, PoolProp, Prop, Value};
use rt::sync::Arc;

pub use held::{Ending, Held};
pub use keeper::on_suspended;
use opening::{For, open};
use session::{Session, pool_error};
pub use systems::System;

use crate::branches::Branch;
use crate::dump::{Dump, Dumped, Fact};
use crate::files::{Cat, Copied, Get, List, Listed, Mkdir, Move, Put, Remove};
use crate::judge::{Progress, Verify, VerifyReport};
use crate::rescue::{Remains, Rescue};
use crate::state::{StateFile, default_path};
use crate::{Doing, Engine, Error, Result, Why, datasets, events, memory, mounts, pools};

/// How often data sets are looked at anew, if they change meanwhile.
const ATTEMPTS_MAX: u32 = 5;
/// How long that is waited for.
const BREATH: std::time::Duration = std::time::Duration::from_millis(10);

/// What a command works with.
#[derive(Clone, Debug)]
pub(crate) struct Here {
    /// The list of remembered pools.
    pub(crate) state: StateFile,
    /// The pools that this process holds, if it is one that does.
    pub(crate) held: Option<Arc<Held>>,
    /// The account of all memory that its pools take (INV-5).
    pub(crate) memory: rt::Account,
    /// Pools are only read, and taken as they are.
    pub(crate) rescue: Option<Rescue>,
}

/// Executes requests in this process.
#[derive(Clone, Debug)]
pub struct Local {
    here: Here,
}

impl Local {
    /// With the list of pools that the environment names.
    #[must_use]
    pub fn from_environment() -> Local {
        Local::new(StateFile::new(default_path(|name| std::env::var_os(name))))
    }

    /// With this list of pools.
    #[must_use]
    pub fn new(state: StateFile) -> Local {
        let memory = pool::account(pool::default_cap_bytes());
        Local { here: Here { state, held: None, memory, rescue: None } }
    }

    /// The same, with an account of `cap_bytes` for the memory of its pools, and at least [`memory::CAP_LEAST`].
    #[must_use]
    pub fn with_memory(self, cap_bytes: u64) -> Local {
        Local { here: Here { memory: pool::account(cap_bytes), ..self.here } }
    }

    /// The account of the memory of its pools.
    #[must_use]
    pub fn memory(&self) -> &rt::Account {
        &self.here.memory
    }

    /// The same, but what is imported or created stays open among `held` until it is exported.
    #[must_use]
    pub fn holding(self, held: Arc<Held>) -> Local {
        Local { here: Here { held: Some(held), ..self.here } }
    }

    /// Opens a remembered pool to be held. Why it can only be read, if so.
    ///
    /// # Errors
    /// It cannot be opened.
    pub fn hold(&self, name: &str) -> Result<Option<String>> {
        let turn =
            self.here.held.as_ref().map(|held| (held.turns().to_open(name), held.is_ending()));
        if turn.as_ref().is_some_and(|(_, is_ending)| *is_ending) {
            return Err(Error::open(name, Why::PoolBusy));
        }
        let reason = self.here.hold(name)?;
        self.here.tell(name, events::POOL_IMPORT);
        Ok(reason)
    }

    /// Mounts the file systems of the pools that are held, if that is done here. What could not be.
    pub fn mount_all(&mut self) -> Vec<Error> {
        let pools = self.here.held.as_ref().map(|held| held.names()).unwrap_or_default();
        self.settle_all(&pools, &|_| true)
    }

    /// The list of remembered pools.
    #[must_use]
    pub fn state(&self) -> &StateFile {
        &self.here.state
    }
}

impl Local {
    /// The pools that are meant: those named, else all that are remembered or in `places`.
    fn names(&self, names: &[String], places: &[PathBuf]) -> Result<Vec<String>> {
        if !names.is_empty() {
            return Ok(names.to_vec());
        }
        if places.is_empty() {
            return Ok(self.here.pool_names()?.into_iter().collect());
        }
        let scan = crate::find::look(places);
        let alive = |pool: &&pool::devices::FoundPool| {
            pool.config.state != format::config::PoolState::Destroyed
        };
        Ok(scan.pools.iter().filter(alive).map(|pool| pool.name().into_owned()).collect())
    }

    fn query_pool(
        session: &Session,
        names: &[Option<&str>],
        query: &datasets::Query,
        report: &mut datasets::QueryReport,
    ) {
        let listed = session.pool.pool_properties().unwrap_or_default().iter().any(|(name, v)| {
            name == PoolProp::Listsnapshots.name() && *v == pool::Stored::Number(1)
        });
        let kinds = query::with_snapshots(query.kinds, query.kinds_given, listed);
        let query = datasets::Query { kinds, ..query.clone() };
        let altroot = session.known.as_ref().and_then(|known| known.altroot.clone());
        for attempt in 1..=ATTEMPTS_MAX {
            let mut catalogue = catalogue::Catalogue::new(&session.pool, altroot.clone());
            let mut part = datasets::QueryReport::default();
            for name in names {
                query::answer(&mut catalogue, *name, &query, &mut part);
            }
            // Data sets of a pool that others change may have been met in the middle of that.
            let is_odd = |error: &Error| error.why() != Some(&Why::NoDataset);
            if !session.held || attempt == ATTEMPTS_MAX || !part.errors.iter().any(is_odd) {
                report.datasets.extend(part.datasets);
                report.errors.extend(part.errors);
                return;
            }
            rt::time::sleep(BREATH);
        }
    }
}

/// The first of what went wrong.
fn all_right(errors: Vec<Error>) -> Result<()> {
    errors.into_iter().next().map_or(Ok(()), Err)
}

impl Engine for Local {
    fn rescue(&mut self, rescue: Rescue) {
        let known = self.here.rescue.get_or_insert_default();
        known.txg = rescue.txg.or(known.txg);
        known.roots = rescue.roots.or(known.roots.take());
    }

    fn rescue_scan(
        &mut self,
        places: &[PathBuf],
        roots: Option<&Path>,
        progress: &mut dyn FnMut(u64, u64),
    ) -> Result<Vec<Remains>> {
        rescue::scan(&self.here, places, roots, progress)
    }

    fn is_ending(&self) -> bool {
        self.here.held.as_ref().is_some_and(|held| held.is_ending())
    }

    fn pool_create(&mut self, request: &pools::Create) -> Result<Vec<String>> {
        let notes = lifecycle::create(&self.here, request)?;
        if !request.dry_run {
            all_right(self.settle(&request.name, &|_| true))?;
        }
        Ok(notes)
    }

    fn pool_destroy(&mut self, request: &pools::Destroy) -> Result<()> {
        let doomed = |name: &str| placing::is_below(name, &request.name);
        self.unplaced(request.force, &doomed, &str::to_string, |ours| {
            lifecycle::destroy(&ours.here, request)
        })
    }

    fn pool_export(&mut self, request: &pools::Export) -> Result<Vec<Error>> {
        let doomed = |name: &str| {
            request.all || request.names.iter().any(|pool| placing::is_below(name, pool))
        };
        self.unplaced(request.force, &doomed, &str::to_string, |ours| {
            lifecycle::export(&ours.here, request)
        })
    }

    fn pool_import(&mut self, request: &pools::Import) -> Result<pools::Imported> {
        let mut imported = lifecycle::import(&self.here, request)?;
        for (name, _) in imported.pools.iter().filter(|_| !request.unmounted) {
            imported.errors.extend(self.settle(name, &|_| true));
        }
        Ok(imported)
    }

    fn pool_find(&mut self, request: &pools::Find) -> Result<Vec<pools::FoundPool>> {
        let ours = self.here.state.load()?;
        let hostid = u64::from(crate::host::hostid(&self.here.state)?);
        let scan = crate::find::look(&request.places);
        let mut all = Vec::new();
        for pool in &scan.pools {
            let destroyed = pool.config.state == format::config::PoolState::Destroyed;
            if destroyed != request.destroyed || ours::is_imported(&self.here, &ours, pool)? {
                continue;
            }
            let whole = crate::find::missed_of(&scan, pool, &self.here.memory);
            let scan = whole.as_ref().unwrap_or(&scan);
            let pool = scan.pools.iter().find(|one| one.guid() == pool.guid()).unwrap_or(pool);
            let mut told = crate::find::describe(pool, &request.places, hostid);
            if !told.hopeless {
                (told.spares, told.cache) = status::found_others(scan, pool, &self.here.memory);
            }
            all.push(told);
        }
        Ok(all)
    }

    fn pool_status(&mut self, request: &pools::Status) -> Result<Vec<Result<pools::PoolReport>>> {
        let names = self.names(&request.names, &request.places)?;
        let mounted = request.damaged.then(|| self.placed());
        let report = |name: &String| {
            let session = match open(&self.here, name, &request.places, For::Reading) {
                Err(error) if request.lost && request.places.is_empty() => {
                    return lost::report(&self.here, name, error);
                }
                session => session?,
            };
            status::report(&session, mounted.as_deref())
                .map_err(|e| pool_error(Doing::Open(name.clone()), e))
        };
        Ok(names.iter().map(report).collect())
    }

    fn pool_set(&mut self, request: &pools::Set) -> Result<Vec<String>> {
        pool_props::set(&self.here, request)
    }

    fn pool_disk(
        &mut self,
        request: &crate::disks::Change,
        progress: &mut dyn FnMut(&pools::Scan) -> bool,
    ) -> Result<Vec<String>> {
        disks::change(&self.here, request, progress)
    }

    fn pool_add(&mut self, request: &crate::disks::Add) -> Result<Option<crate::disks::Before>> {
        additions::add(&self.here, request)
    }

    fn pool_labelclear(&mut self, request: &crate::disks::Labelclear) -> Result<()> {
        disks::labelclear(&self.here, request)
    }

    fn pool_clear(&mut self, request: &pools::Clear) -> Result<()> {
        lifecycle::clear(&self.here, request)
    }

    fn pool_scan(
        &mut self,
        request: &pools::ScanRequest,
        progress: &mut dyn FnMut(&pools::Scan) -> bool,
    ) -> Result<()> {
        scrub::scan(&self.here, request, progress)
    }

    fn pool_history(
        &mut self,
        request: &pools::History,
    ) -> Result<Vec<Result<pools::HistoryReport>>> {
        let names = self.names(&request.names, &request.places)?;
        let report = |name: &String| {
            let session = open(&self.here, name, &request.places, For::Reading)?;
            let history = history::report(&session.pool);
            history.map_err(|e| pool_error(Doing::History(name.clone()), e))
        };
        Ok(names.iter().map(report).collect())
    }

    fn pool_events(
        &mut self,
        query: &events::Query,
        sink: &mut dyn FnMut(events::Heard<'_>) -> bool,
    ) -> Result<()> {
        self.here.held()?.tell_events(query, sink);
        Ok(())
    }

    fn pool_events_clear(&mut self) -> Result<usize> {
        Ok(self.here.held()?.events().clear())
    }

    fn dataset_create(&mut self, request: &datasets::Create) -> Result<Vec<String>> {
        let notes = filesystems::create(&self.here, request)?;
        if !request.dry_run && !request.unmounted && request.volume.is_none() {
            let (pool, name) = (filesystems::pool_of(&request.name), &request.name);
            let made = |due: &str| due == name || request.parents && placing::is_below(name, due);
            all_right(self.settle(pool, &made)).map_err(placing::not_mounted)?;
        }
        Ok(notes)
    }

    fn dataset_destroy(&mut self, request: &datasets::Destroy) -> Result<datasets::Destroyed> {
        let of_head = !request.name.contains(['@', '#']);
        if request.dry_run || !(of_head || request.dependents) {
            return filesystems::destroy(&self.here, request);
        }
        let pool = filesystems::pool_of(&request.name);
        let is_placed = self.placed().iter().any(|(there, _)| placing::is_below(there, pool));
        let gone = match is_placed {
            true => filesystems::destroyed_with(&self.here, request),
            false => Ok(Vec::new()),
        };
        // Nothing is unmounted for what cannot be done, which says itself why.
        let Ok(gone) = gone else { return filesystems::destroy(&self.here, request) };
        let doomed = |there: &str| gone.iter().any(|name| name == there);
        self.unplaced(request.force, &doomed, &str::to_string, |ours| {
            filesystems::destroy(&ours.here, request)
        })
    }

    fn dataset_query(&mut self, query: &datasets::Query) -> Result<datasets::QueryReport> {
        let mut report = datasets::QueryReport::default();
        let mut by_pool: BTreeMap<String, Vec<Option<&str>>> = BTreeMap::new();
        for name in &query.names {
            let pool = name.split(['/', '@', '#']).next().unwrap_or_default();
            by_pool.entry(pool.into()).or_default().push(Some(name));
        }
        if query.names.is_empty() {
            let all = self.names(&[], &query.places)?;
            by_pool.extend(all.into_iter().map(|pool| (pool, vec![None])));
        }
        for (pool, names) in by_pool {
            match open(&self.here, &pool, &query.places, For::Reading) {
                Ok(session) => Self::query_pool(&session, &names, query, &mut report),
                // Whose pool is not there is not there either.
                Err(error) if error.why() == Some(&Why::NoPool) => {
                    let missing =
                        |name: &Option<&str>| Error::open(name.unwrap_or(&pool), Why::NoDataset);
                    report.errors.extend(names.iter().map(missing));
                }
                Err(error) => report.errors.push(error),
            }
        }
        let placed = self.placed();
        let is_placed = |name: &String| placed.iter().any(|(there, _)| there == name);
        for dataset in report.datasets.iter_mut().filter(|dataset| is_placed(&dataset.name)) {
            let mounted = dataset.properties.iter_mut();
            for (_, value, _) in mounted.filter(|(key, ..)| *key == Key::Native(Prop::Mounted)) {
                *value = Value::Number(1);
            }
        }
        Ok(report)
    }

    fn dataset_branch(&mut self, request: &Branch) -> Result<()> {
        let same = str::to_string;
        match request {
            Branch::Rename(rename) if !rename.from.contains('@') => {
                let doomed = |name: &str| placing::is_below(name, &rename.from);
                let now =
                    |name: &str| match name.strip_prefix(&rename.from).filter(|_| doomed(name)) {
                        Some(below) => format!("{}{below}", rename.to),
                        None => name.into(),
                    };
                let change = |ours: &mut Local| branches::change(&ours.here, request);
                match rename.in_place {
                    true => self.renamed(&now, change),
                    false => self.unplaced(rename.force, &doomed, &now, change),
                }
            }
            Branch::Rollback(rollback) => {
                let fs = rollback.name.split('@').next().unwrap_or_default();
                // Nothing is unmounted for what cannot be done, which says itself why.
                let Ok(gone) = branches::rolled_away(&self.here, rollback) else {
                    return branches::change(&self.here, request);
                };
                // What lies inside holds the directory; clones that go with it may be anywhere in the pool.
                let doomed = |there: &str| {
                    placing::is_below(there, fs) || gone.iter().any(|name| name == there)
                };
                self.unplaced(rollback.force, &doomed, &same, |ours| {
                    branches::change(&ours.here, request)
                })
            }
            Branch::Clone(fork) => {
                branches::change(&self.here, request)?;
                let mounted = all_right(self.settle(&fork.name, &|due| due == fork.name));
                mounted.map_err(placing::not_mounted)
            }
            _ => branches::change(&self.here, request),
        }
    }

    fn dataset_holds(&mut self, request: &crate::branches::Hold) -> Result<crate::branches::Holds> {
        branches::holds(&self.here, request)
    }

    fn dataset_set(&mut self, request: &datasets::Set) -> Result<datasets::SetReport> {
        let properties = request.properties.iter();
        let properties: Vec<_> = properties.map(|(k, v)| (k.as_bytes(), Some(&v[..]))).collect();
        self.replaced((&request.names, false), &properties, |ours| {
            properties::set(&ours.here, request)
        })
    }

    fn dataset_inherit(&mut self, request: &datasets::Inherit) -> Result<datasets::SetReport> {
        let key = request.key.name();
        self.replaced((&request.names, request.recursive), &[(key.as_bytes(), None)], |ours| {
            properties::inherit(&ours.here, request)
        })
    }

    fn dataset_space(&mut self, request: &datasets::Space) -> Result<Vec<datasets::SpaceRow>> {
        accounts::space(&self.here, request)
    }

    fn dataset_diff(
        &mut self,
        request: &datasets::Diff,
        sink: &mut dyn FnMut(crate::diff::Told) -> bool,
    ) -> Result<()> {
        diff::tell(&self.here, request, sink)
    }

    fn list(&mut self, request: &List, each: &mut dyn FnMut(Listed)) -> Result<Vec<Error>> {
        files::list(&self.here, request, each)
    }

    fn cat(&mut self, request: &Cat, out: &mut dyn Write) -> Result<Vec<Error>> {
        files::cat(&self.here, request, out)
    }

    fn get(&mut self, request: &Get) -> Result<(Copied, Vec<Error>)> {
        copy_out::get(&self.here, request)
    }

    fn put(&mut self, request: &Put) -> Result<(Copied, Vec<Error>)> {
        copy_in::put(&self.here, request)
    }

    fn mkdir(&mut self, request: &Mkdir) -> Result<Vec<Error>> {
        files::mkdir(&self.here, request)
    }

    fn rename(&mut self, request: &Move) -> Result<Vec<Error>> {
        files::rename(&self.here, request)
    }

    fn remove(&mut self, request: &Remove) -> Result<Vec<Error>> {
        remove::remove(&self.here, request)
    }

    fn mount(&mut self, request: &mounts::Mount, tell: &mut dyn FnMut(mounts::News)) -> Result<()> {
        mount::mount(&self.here, request, tell)
    }

    fn unmount(&mut self, request: &mounts::Unmount) -> Result<()> {
        mount::unmount(&self.here, request)
    }

    fn mounted(&mut self) -> Result<Vec<(String, PathBuf)>> {
        Ok(self.placed())
    }

    fn attach(&mut self, request: &mounts::Attach) -> Result<Vec<Error>> {
        self.mount_placed(request)
    }

    fn detach(&mut self, request: &mounts::Detach) -> Result<Vec<Error>> {
        self.unmount_placed(request)
    }

    fn memory(&mut self) -> Option<memory::Report> {
        self.here.held.is_some().then(|| memory::Report::of(&self.here.memory))
    }

    fn verify(
        &mut self,
        request: &Verify,
        progress: &mut dyn FnMut(Progress) -> bool,
    ) -> Result<VerifyReport> {
        judge::verify(&self.here, request, progress)
    }

    fn dump(&mut self, request: &Dump, sink: &mut dyn FnMut(Fact) -> bool) -> Result<Dumped> {
        dump::dump(&self.here, request, sink)
    }
}
