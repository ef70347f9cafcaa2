//! The engine in this process: opens pools, acts, syncs and closes, one command at a time.

use std::io::Write;

use crate::state::{StateFile, default_path};
use crate::{Engine, Error, Result, datasets, files, judge, pools};

/// Executes requests in this process.
#[derive(Debug)]
pub struct Local {
    state: StateFile,
}

/// What is said of a verb that the engine does not execute yet.
fn later<T>(verb: &str) -> Result<T> {
    Err(Error::Other(format!("'{verb}' is not there yet")))
}

impl Local {
    /// With the list of pools that the environment names.
    #[must_use]
    pub fn from_environment() -> Local {
        Local { state: StateFile::new(default_path(|name| std::env::var_os(name))) }
    }

    /// The list of remembered pools.
    #[must_use]
    pub fn state(&self) -> &StateFile {
        &self.state
    }
}

impl Engine for Local {
    fn pool_create(&mut self, _: &pools::Create) -> Result<Vec<String>> {
        later("zpool create")
    }

    fn pool_destroy(&mut self, _: &pools::Destroy) -> Result<()> {
        later("zpool destroy")
    }

    fn pool_export(&mut self, _: &pools::Export) -> Result<Vec<Error>> {
        later("zpool export")
    }

    fn pool_import(&mut self, _: &pools::Import) -> Result<pools::Imported> {
        later("zpool import")
    }

    fn pool_find(&mut self, request: &pools::Find) -> Result<Vec<pools::FoundPool>> {
        let ours = self.state.load()?;
        let hostid = u64::from(crate::host::hostid(&self.state)?);
        let scan = crate::find::look(&request.places);
        let free = |guid| !ours.pools.iter().any(|known| known.guid == guid);
        let pools = scan.pools.iter().filter(|pool| free(pool.guid()));
        let described = pools.map(|pool| crate::find::describe(pool, &request.places, hostid));
        Ok(described.filter(|pool| pool.destroyed == request.destroyed).collect())
    }

    fn pool_status(&mut self, _: &pools::Status) -> Result<Vec<Result<pools::PoolReport>>> {
        later("zpool status")
    }

    fn pool_set(&mut self, _: &pools::Set) -> Result<Vec<String>> {
        later("zpool set")
    }

    fn pool_history(&mut self, _: &pools::History) -> Result<Vec<Result<pools::HistoryReport>>> {
        later("zpool history")
    }

    fn dataset_create(&mut self, _: &datasets::Create) -> Result<Vec<String>> {
        later("zfs create")
    }

    fn dataset_destroy(&mut self, _: &datasets::Destroy) -> Result<datasets::Destroyed> {
        later("zfs destroy")
    }

    fn dataset_query(&mut self, _: &datasets::Query) -> Result<datasets::QueryReport> {
        later("zfs list")
    }

    fn dataset_set(&mut self, _: &datasets::Set) -> Result<datasets::SetReport> {
        later("zfs set")
    }

    fn list(&mut self, _: &files::List, _: &mut dyn FnMut(files::Listed)) -> Result<Vec<Error>> {
        later("ls")
    }

    fn cat(&mut self, _: &files::Cat, _: &mut dyn Write) -> Result<Vec<Error>> {
        later("cat")
    }

    fn get(&mut self, _: &files::Get) -> Result<(files::Copied, Vec<Error>)> {
        later("get")
    }

    fn put(&mut self, _: &files::Put) -> Result<(files::Copied, Vec<Error>)> {
        later("put")
    }

    fn mkdir(&mut self, _: &files::Mkdir) -> Result<Vec<Error>> {
        later("mkdir")
    }

    fn rename(&mut self, _: &files::Move) -> Result<Vec<Error>> {
        later("mv")
    }

    fn remove(&mut self, _: &files::Remove) -> Result<Vec<Error>> {
        later("rm")
    }

    fn verify(
        &mut self,
        _: &judge::Verify,
        _: &mut dyn FnMut(judge::Progress),
    ) -> Result<judge::VerifyReport> {
        later("verify")
    }

    fn dump(&mut self, _: &judge::Dump, _: &mut dyn Write) -> Result<()> {
        later("dump")
    }
}
