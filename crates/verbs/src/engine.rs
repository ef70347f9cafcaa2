//! Who executes the verbs: one method a verb.
//!
//! The doors speak to this trait alone. It is implemented by [`crate::Local`], which opens pools
//! in this process, and by stand-ins in tests of the doors.

use std::io::Write;
use std::path::{Path, PathBuf};

use crate::rescue::{Remains, Rescue};
use crate::{
    Error, Result, branches, datasets, disks, dump, events, files, judge, memory, mounts, pools,
};

/// Executes requests.
pub trait Engine {
    /// Is the process about to end, so that a command which only waits should not?
    fn is_ending(&self) -> bool {
        false
    }

    /// From now on pools are only read, and taken as they are: see [`crate::rescue`]. What is not said stays as it was.
    fn rescue(&mut self, rescue: Rescue);

    /// What is left of the pools in `places`; the disks are searched for roots if a file is given to keep them, and
    /// `progress` hears how many bytes of each disk were read, of how many.
    ///
    /// # Errors
    /// See [`Engine::pool_create`].
    fn rescue_scan(
        &mut self,
        places: &[PathBuf],
        roots: Option<&Path>,
        progress: &mut dyn FnMut(u64, u64),
    ) -> Result<Vec<Remains>>;

    /// `zpool create`. What there is to know though it was done, one a line.
    ///
    /// # Errors
    /// [`Error`] says what could not be done and why; so for all methods here.
    fn pool_create(&mut self, request: &pools::Create) -> Result<Vec<String>>;

    /// `zpool destroy`.
    ///
    /// # Errors
    /// See [`Engine::pool_create`].
    fn pool_destroy(&mut self, request: &pools::Destroy) -> Result<()>;

    /// `zpool export`. What could not be done for one of several pools comes back as a list.
    ///
    /// # Errors
    /// See [`Engine::pool_create`].
    fn pool_export(&mut self, request: &pools::Export) -> Result<Vec<Error>>;

    /// `zpool import`.
    ///
    /// # Errors
    /// See [`Engine::pool_create`].
    fn pool_import(&mut self, request: &pools::Import) -> Result<pools::Imported>;

    /// `zpool import` without a name: what could be imported.
    ///
    /// # Errors
    /// See [`Engine::pool_create`].
    fn pool_find(&mut self, request: &pools::Find) -> Result<Vec<pools::FoundPool>>;

    /// `zpool status`, `zpool list`, `zpool get`: each pool, or why there is nothing to say of it.
    ///
    /// # Errors
    /// See [`Engine::pool_create`].
    fn pool_status(&mut self, request: &pools::Status) -> Result<Vec<Result<pools::PoolReport>>>;

    /// `zpool set`. What there is to know though it was done, one a line.
    ///
    /// # Errors
    /// See [`Engine::pool_create`].
    fn pool_set(&mut self, request: &pools::Set) -> Result<Vec<String>>;

    /// `zpool offline online attach replace detach`. While it stays until a disk is filled `progress` hears of it,
    /// until it gives false. What there is to know though it was done, one a line.
    ///
    /// # Errors
    /// See [`Engine::pool_create`].
    fn pool_disk(
        &mut self,
        request: &disks::Change,
        progress: &mut dyn FnMut(&pools::Scan) -> bool,
    ) -> Result<Vec<String>>;

    /// `zpool add`: the pool as it was before, if nothing was to be done.
    ///
    /// # Errors
    /// See [`Engine::pool_create`].
    fn pool_add(&mut self, request: &disks::Add) -> Result<Option<disks::Before>>;

    /// `zpool labelclear`.
    ///
    /// # Errors
    /// See [`Engine::pool_create`].
    fn pool_labelclear(&mut self, request: &disks::Labelclear) -> Result<()>;

    /// `zpool clear`.
    ///
    /// # Errors
    /// See [`Engine::pool_create`].
    fn pool_clear(&mut self, request: &pools::Clear) -> Result<()>;

    /// `zpool scrub`, `zpool resilver`. `progress` hears of it while the command works on it or waits, until it gives
    /// false.
    ///
    /// # Errors
    /// See [`Engine::pool_create`].
    fn pool_scan(
        &mut self,
        request: &pools::ScanRequest,
        progress: &mut dyn FnMut(&pools::Scan) -> bool,
    ) -> Result<()>;

    /// `zpool history`.
    ///
    /// # Errors
    /// See [`Engine::pool_create`].
    fn pool_history(
        &mut self,
        request: &pools::History,
    ) -> Result<Vec<Result<pools::HistoryReport>>>;

    /// `zpool events`: each event, oldest first, until `sink` gives false; between them it hears of silence.
    ///
    /// # Errors
    /// See [`Engine::pool_create`].
    fn pool_events(
        &mut self,
        query: &events::Query,
        sink: &mut dyn FnMut(events::Heard<'_>) -> bool,
    ) -> Result<()>;

    /// `zpool events -c`: how many were forgotten.
    ///
    /// # Errors
    /// See [`Engine::pool_create`].
    fn pool_events_clear(&mut self) -> Result<usize>;

    /// `zfs create`. Warnings, one a line.
    ///
    /// # Errors
    /// See [`Engine::pool_create`].
    fn dataset_create(&mut self, request: &datasets::Create) -> Result<Vec<String>>;

    /// `zfs destroy`.
    ///
    /// # Errors
    /// See [`Engine::pool_create`].
    fn dataset_destroy(&mut self, request: &datasets::Destroy) -> Result<datasets::Destroyed>;

    /// `zfs list`, `zfs get`.
    ///
    /// # Errors
    /// See [`Engine::pool_create`].
    fn dataset_query(&mut self, request: &datasets::Query) -> Result<datasets::QueryReport>;

    /// `zfs snapshot`, `rollback`, `clone`, `promote`, `rename`, `hold`, `release`.
    ///
    /// # Errors
    /// See [`Engine::pool_create`].
    fn dataset_branch(&mut self, request: &branches::Branch) -> Result<()>;

    /// `zfs holds`: of the snapshots named in the request, whatever its tag.
    ///
    /// # Errors
    /// See [`Engine::pool_create`].
    fn dataset_holds(&mut self, request: &branches::Hold) -> Result<branches::Holds>;

    /// `zfs set`.
    ///
    /// # Errors
    /// See [`Engine::pool_create`].
    fn dataset_set(&mut self, request: &datasets::Set) -> Result<datasets::SetReport>;

    /// `zfs inherit`.
    ///
    /// # Errors
    /// See [`Engine::pool_create`].
    fn dataset_inherit(&mut self, request: &datasets::Inherit) -> Result<datasets::SetReport>;

    /// `zfs userspace`, `groupspace`, `projectspace`.
    ///
    /// # Errors
    /// See [`Engine::pool_create`].
    fn dataset_space(&mut self, request: &datasets::Space) -> Result<Vec<datasets::SpaceRow>>;

    /// `zfs diff`: each difference, until `sink` gives false.
    ///
    /// # Errors
    /// See [`Engine::pool_create`].
    fn dataset_diff(
        &mut self,
        request: &datasets::Diff,
        sink: &mut dyn FnMut(crate::diff::Told) -> bool,
    ) -> Result<()>;

    /// `ls`: each file, with the place it was asked for by its number. Says what could not be
    /// listed and goes on.
    ///
    /// # Errors
    /// See [`Engine::pool_create`].
    fn list(
        &mut self,
        request: &files::List,
        sink: &mut dyn FnMut(files::Listed),
    ) -> Result<Vec<Error>>;

    /// `cat`. Says what could not be read and goes on.
    ///
    /// # Errors
    /// See [`Engine::pool_create`].
    fn cat(&mut self, request: &files::Cat, out: &mut dyn Write) -> Result<Vec<Error>>;

    /// `get`. Says what could not be copied and goes on.
    ///
    /// # Errors
    /// See [`Engine::pool_create`].
    fn get(&mut self, request: &files::Get) -> Result<(files::Copied, Vec<Error>)>;

    /// `put`. Says what could not be copied and goes on.
    ///
    /// # Errors
    /// See [`Engine::pool_create`].
    fn put(&mut self, request: &files::Put) -> Result<(files::Copied, Vec<Error>)>;

    /// `mkdir`.
    ///
    /// # Errors
    /// See [`Engine::pool_create`].
    fn mkdir(&mut self, request: &files::Mkdir) -> Result<Vec<Error>>;

    /// `mv`.
    ///
    /// # Errors
    /// See [`Engine::pool_create`].
    fn rename(&mut self, request: &files::Move) -> Result<Vec<Error>>;

    /// `rm`.
    ///
    /// # Errors
    /// See [`Engine::pool_create`].
    fn remove(&mut self, request: &files::Remove) -> Result<Vec<Error>>;

    /// `mount`: serves until it is unmounted or a signal asks for the end. `tell` hears when it begins, and what
    /// keeps it from ending.
    ///
    /// # Errors
    /// See [`Engine::pool_create`].
    fn mount(&mut self, request: &mounts::Mount, tell: &mut dyn FnMut(mounts::News)) -> Result<()>;

    /// `unmount`: returns when whoever served it has let go of the pool.
    ///
    /// # Errors
    /// See [`Engine::pool_create`].
    fn unmount(&mut self, request: &mounts::Unmount) -> Result<()>;

    /// `zfs mount` without words: what is mounted where its properties say, and where that is.
    ///
    /// # Errors
    /// See [`Engine::pool_create`].
    fn mounted(&mut self) -> Result<Vec<(String, PathBuf)>>;

    /// `zfs mount`. Says what could not be mounted, of all that were to be.
    ///
    /// # Errors
    /// See [`Engine::pool_create`].
    fn attach(&mut self, request: &mounts::Attach) -> Result<Vec<Error>>;

    /// `zfs unmount`. Says what could not be unmounted, of all that were to be.
    ///
    /// # Errors
    /// See [`Engine::pool_create`].
    fn detach(&mut self, request: &mounts::Detach) -> Result<Vec<Error>>;

    /// `top`: who holds the memory of the server; nothing if this is none.
    fn memory(&mut self) -> Option<memory::Report>;

    /// `verify`. `progress` hears of it now and then, until it gives false: then there is no report.
    ///
    /// # Errors
    /// See [`Engine::pool_create`].
    fn verify(
        &mut self,
        request: &judge::Verify,
        progress: &mut dyn FnMut(judge::Progress) -> bool,
    ) -> Result<judge::VerifyReport>;

    /// `dump`: each fact, until `sink` gives false. What cannot be read is told among them.
    ///
    /// # Errors
    /// See [`Engine::pool_create`].
    fn dump(
        &mut self,
        request: &dump::Dump,
        sink: &mut dyn FnMut(dump::Fact) -> bool,
    ) -> Result<dump::Dumped>;
}
