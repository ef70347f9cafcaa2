//! Which devices a pool's name means: those of a pool that is held, those that are remembered, or those in some places.

use std::path::{Path, PathBuf};

use format::config::PoolState;
use pool::Pool;
use pool::devices::{FoundPool, Scan, scan};
use rt::sync::Arc;

use super::sighting::Sighting;
use super::{Here, ours, roots};
use crate::state::Known;
use crate::{Doing, Error, Result, Why, find};

/// A pool that was found, to be opened.
#[derive(Clone)]
pub(crate) struct Located {
    pub(super) sighting: Sighting,
    /// What is remembered of it.
    pub(super) known: Option<Known>,
    /// Where it was looked for, if that is not where it is remembered.
    places: Option<Vec<PathBuf>>,
    /// It is looked for to be imported.
    is_import: bool,
    /// Open it though another system had it last.
    forced: bool,
    /// Open it though log devices are missing: what is in intent logs on them is given up.
    pub(super) without_logs: bool,
    /// It is open already, and stays so.
    pub(super) held: Option<Arc<Pool>>,
}

impl Located {
    fn new(sighting: Sighting, known: Option<Known>) -> Located {
        Located {
            sighting,
            known,
            places: None,
            is_import: false,
            forced: false,
            without_logs: false,
            held: None,
        }
    }

    /// A pool of a scan of these places, to be imported; `forced`: though another system had it last.
    pub(crate) fn to_import(sighting: Sighting, places: &[PathBuf], forced: bool) -> Located {
        let places = Some(places.to_vec());
        Located { places, is_import: true, forced, ..Located::new(sighting, None) }
    }

    /// What is in intent logs on log devices that are missing is given up, if that is wanted.
    pub(crate) fn giving_up_logs(self, wanted: bool) -> Located {
        Located { without_logs: wanted, ..self }
    }

    /// A pool that this process holds.
    pub(super) fn held(pool: Arc<Pool>, sighting: Sighting, known: Option<Known>) -> Located {
        Located { held: Some(pool), ..Located::new(sighting, known) }
    }

    /// The same pool as it is now: somebody has written to it since it was looked at.
    pub(super) fn anew(self, here: &Here, name: &str) -> Result<Located> {
        let guid = self.found().guid();
        let (scan, known) = match &self.places {
            Some(places) => {
                let scan = find::look(places);
                let scan = match self.is_import {
                    true => find::complete(scan, guid, &here.memory),
                    false => scan,
                };
                (scan, self.known)
            }
            None => {
                let known = here.state.load()?.pool(name).cloned();
                // It may have been exported, or its name be another's by now.
                let known = known.filter(|known| known.guid == guid);
                let known = known.ok_or_else(|| Error::open(name, Why::NoPool))?;
                (look_at(here, &known), Some(known))
            }
        };
        let sighting = Sighting::of(scan, guid);
        let sighting = sighting.ok_or_else(|| Error::open(name, Why::Unavailable))?;
        Ok(Located { sighting, known, ..self })
    }

    /// The pool as it was found.
    pub(crate) fn found(&self) -> &FoundPool {
        self.sighting.found()
    }

    /// Is it open already?
    pub(crate) fn is_held(&self) -> bool {
        self.held.is_some()
    }

    /// Was it imported for reading only?
    pub(crate) fn is_read_only(&self) -> bool {
        self.known.as_ref().is_some_and(|known| known.readonly)
    }

    /// Why it is not ours any more though it is remembered, if so. What is held, only read, or was named by its place is
    /// not asked.
    pub(super) fn lost(&self, here: &Here) -> Result<Option<Why>> {
        let is_asked = self.places.is_none() && !self.is_held() && !self.is_read_only();
        match is_asked && self.known.is_some() {
            true => ours::lost(here, self.found()),
            false => Ok(None),
        }
    }

    /// Why it may not be written, if so: asked before its devices are opened for that.
    pub(super) fn why_not_write(&self, here: &Here) -> Result<Option<Why>> {
        let read_only = |why: &str| Ok(Some(Why::ReadOnly(why.into())));
        if here.rescue.is_some() {
            return read_only("to rescue is to read");
        }
        if self.is_read_only() {
            return read_only("it was imported with readonly=on");
        }
        let not_ours = match (&self.known, &self.places) {
            _ if self.forced => None,
            (Some(_), None) => ours::lost(here, self.found())?,
            // Whoever says where it is means that one, let go or not, but does not know who has it.
            _ => ours::foreign(here, self.found())?,
        };
        Ok(not_ours.or_else(|| ours::apart(self.known.as_ref(), self.found())))
    }

    /// Takes a device away, as if it had died: named by its path, the end of that, or its guid. Is there one?
    pub(crate) fn without(&mut self, name: &str) -> bool {
        let Some(pool) = self.sighting.found_mut() else { return false };
        let before = pool.members.len();
        pool.members.retain(|member| {
            let path = member.candidate.shown_path();
            !(path.is_some_and(|path| is_called(&path, name)) || Ok(member.guid) == name.parse())
        });
        pool.members.len() < before
    }

    /// The files and disks of its leaves.
    pub(crate) fn paths(&self) -> Vec<PathBuf> {
        let members = &self.found().members;
        members.iter().filter_map(|member| member.candidate.path.clone()).collect()
    }
}

/// Is it the end of the path? Nothing is the end of every path, and names none.
fn is_called(path: &Path, name: &str) -> bool {
    let name = name.trim_start_matches("./");
    !name.is_empty() && path.ends_with(name)
}

/// Finds the devices of a pool: one that is held, remembered ones, or those in `places`.
pub(crate) fn locate(here: &Here, name: &str, places: &[PathBuf]) -> Result<Located> {
    let held = here.held.as_ref().filter(|_| here.rescue.is_none());
    match held.and_then(|held| held.located(name)) {
        Some(located) => Ok(located),
        None => locate_on_disk(here, name, places),
    }
}

/// Finds the devices of a pool as they are now, held or not.
pub(crate) fn locate_on_disk(here: &Here, name: &str, places: &[PathBuf]) -> Result<Located> {
    let mut located = locate_newest(here, name, places)?;
    let Some(rescue) = &here.rescue else { return Ok(located) };
    let Some(found) = located.sighting.found_mut() else { return Ok(located) };
    if let Some(roots) = &rescue.roots {
        roots::take(here, found, roots, rescue.txg)?;
    }
    if let Some(txg) = rescue.txg {
        let first = found.uberblocks.last().map(|uberblock| uberblock.txg.get());
        found.uberblocks.retain(|uberblock| uberblock.txg.get() <= txg);
        if let (true, Some(first)) = (found.uberblocks.is_empty(), first) {
            let why =
                format!("the first txg that is left is {first}, not {txg} ('thumper rescue scan')");
            return Err(Error::cannot(Doing::Open(name.into()), Why::NotDone(why)));
        }
    }
    Ok(located)
}

fn locate_newest(here: &Here, name: &str, places: &[PathBuf]) -> Result<Located> {
    let known = here.state.load()?.pool(name).cloned();
    let no_pool = || Error::open(name, Why::NoPool);
    if places.is_empty() {
        let known = known.ok_or_else(no_pool)?;
        let sighting = Sighting::of(look_at(here, &known), known.guid);
        let sighting = sighting.ok_or_else(|| Error::open(name, Why::Unavailable))?;
        return Ok(Located::new(sighting, Some(known)));
    }
    let scan = find::look(places);
    let named = |pool: &&FoundPool| match &known {
        Some(known) => pool.guid() == known.guid,
        None => pool.name() == name && pool.config.state != PoolState::Destroyed,
    };
    let mut matching = scan.pools.iter().filter(named).map(FoundPool::guid);
    let guid = matching.next().ok_or_else(no_pool)?;
    if matching.next().is_some() {
        return Err(Error::open(name, Why::Ambiguous));
    }
    drop(matching);
    let sighting = Sighting::of(scan, guid).ok_or_else(no_pool)?;
    Ok(Located { places: Some(places.to_vec()), ..Located::new(sighting, known) })
}

/// Looks where a pool is remembered to be.
fn look_at(here: &Here, known: &Known) -> Scan {
    let there: Vec<_> = known.paths.iter().filter(|path| path.exists()).cloned().collect();
    find::complete(scan(&there).unwrap_or_default(), known.guid, &here.memory)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Seen red: a comma at the end of a list of disks named them all.
    #[test]
    fn disks_are_named_by_ends_of_their_paths() {
        let path = Path::new("/pool/m1.img");
        for (name, is_it) in [
            ("/pool/m1.img", true),
            ("./pool/m1.img", true),
            ("m1.img", true),
            ("1.img", false),
            ("/", false),
            ("./", false),
            ("", false),
        ] {
            assert_eq!(is_called(path, name), is_it, "{name}");
        }
    }
}
