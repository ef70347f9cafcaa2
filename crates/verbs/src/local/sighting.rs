//! A pool as a scan of devices saw it: its members, and the spares and cache devices that lay beside them.

use std::collections::BTreeMap;
use std::path::PathBuf;

use pool::devices::{Candidate, FoundPool, Member, Scan};
use rt::sync::Arc;

/// One of the pools of a scan.
#[derive(Clone)]
pub(crate) struct Sighting {
    scan: Arc<Scan>,
    /// Which one it is. There is one.
    index: usize,
}

impl Sighting {
    /// The pool of this guid, if it was seen.
    pub(crate) fn of(scan: Scan, guid: u64) -> Option<Sighting> {
        let index = scan.pools.iter().position(|pool| pool.guid() == guid)?;
        Some(Sighting { scan: Arc::new(scan), index })
    }

    /// The pool.
    pub(crate) fn found(&self) -> &FoundPool {
        &self.scan.pools[self.index]
    }

    /// The same, to change what was found. Nobody else has the sighting yet; else there is nothing.
    pub(super) fn found_mut(&mut self) -> Option<&mut FoundPool> {
        Arc::get_mut(&mut self.scan)?.pools.get_mut(self.index)
    }

    /// Its members, and all spares and cache devices, by guid: whose those are only pools know.
    pub(super) fn candidates(&self) -> impl Iterator<Item = (u64, &Candidate)> {
        self.scan.candidates(self.index)
    }

    /// Was it seen as a spare or cache device?
    pub(super) fn is_aux(&self, guid: u64) -> bool {
        self.scan.aux.iter().any(|aux| aux.label.guid == guid)
    }

    /// The files and disks of [`Sighting::candidates`], by guid.
    pub(super) fn paths(&self) -> BTreeMap<u64, PathBuf> {
        let named = |(guid, candidate): (u64, &Candidate)| Some((guid, candidate.path.clone()?));
        self.candidates().filter_map(named).collect()
    }

    /// Where its leaves were found, by guid. One that is a partition of an image has no path of its own.
    pub(super) fn leaf_paths(&self) -> BTreeMap<u64, PathBuf> {
        let path = |member: &Member| {
            let whole = member.candidate.partition.is_none();
            Some((member.guid, member.candidate.path.clone().filter(|_| whole)?))
        };
        self.found().members.iter().filter_map(path).collect()
    }

    /// Of a pool that lies on no devices that could be found.
    #[cfg(test)]
    pub(super) fn of_nothing() -> Sighting {
        Sighting { scan: Arc::default(), index: 0 }
    }
}
