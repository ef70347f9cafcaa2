//! Objects that somebody outside has open, or knows by their numbers.
//!
//! The one idea: two counts. What is open keeps its contents though it loses its last name; it is freed when the
//! last one lets go of it, or after a crash when the pool is opened again. A file that is only known by its number
//! is freed at once, but its number is given to nothing else until it is forgotten: who asks for it then meets
//! nothing, never another file. Directories and special files are used without being opened (somebody stands in
//! one, or has the end of a pipe), and so is what another file takes the place of (somebody may be about to open it
//! by a name that was never missing): they are kept until they are forgotten.

use std::collections::BTreeMap;

use dmu::{Object, Tx};
use rt::sync::atomic::{AtomicUsize, Ordering};
use rt::sync::{Arc, Mutex};

use crate::attrs::{self, Attrs};
use crate::error::{FsError, Refusal, Result};
use crate::filesystem::Filesystem;
use crate::removed::numbers;

/// Parts of the table, each with its lock.
const PARTS: usize = 16;

/// How one object is used.
#[derive(Default)]
struct Use {
    known: u64,
    open: u32,
    /// It has no name any more, and goes with its last user.
    is_orphan: bool,
    /// Who knows it is a user.
    known_is_used: bool,
    /// It is gone, and its number is withheld.
    is_withheld: bool,
}

impl Use {
    fn is_used(&self) -> bool {
        self.open > 0 || self.known_is_used && self.known > 0
    }
}

/// The objects of a file system that are used, by number.
pub(crate) struct InUse {
    parts: Vec<Mutex<BTreeMap<u64, Use>>>,
    /// Kernels that know numbers, each by a mount.
    mounts: AtomicUsize,
}

impl Default for InUse {
    fn default() -> InUse {
        let parts = (0..PARTS).map(|_| Mutex::default()).collect();
        InUse { parts, mounts: AtomicUsize::default() }
    }
}

impl InUse {
    fn part(&self, number: u64) -> &Mutex<BTreeMap<u64, Use>> {
        &self.parts[number as usize % PARTS]
    }

    /// It is open once more.
    pub(crate) fn open(&self, number: u64) {
        self.part(number).lock().entry(number).or_default().open += 1;
    }

    /// Does somebody use it? From now on who knows it is a user, if `known_is_used`.
    fn is_used(&self, number: u64, known_is_used: bool) -> bool {
        let mut part = self.part(number).lock();
        let Some(used) = part.get_mut(&number) else { return false };
        used.known_is_used = known_is_used;
        used.is_used()
    }

    /// An object without a name goes with its last user; `false`: it has none any more.
    fn goes_with_its_last_user(&self, number: u64) -> bool {
        let mut part = self.part(number).lock();
        let Some(used) = part.get_mut(&number) else { return false };
        used.is_orphan = true;
        true
    }
}

impl Filesystem {
    /// It is mounted once more.
    pub fn mounted(&self) {
        self.shared.in_use.mounts.fetch_add(1, Ordering::AcqRel);
    }

    /// A mount has ended. The kernel does not say then what it forgets: with the last mount all of it is forgotten.
    pub fn unmounted(&self) {
        if self.shared.in_use.mounts.fetch_sub(1, Ordering::AcqRel) > 1 {
            return;
        }
        for part in &self.shared.in_use.parts {
            let known: Vec<u64> = part.lock().keys().copied().collect();
            known.into_iter().for_each(|number| self.forget(number, u64::MAX));
        }
    }

    /// Somebody outside knows `number` once more. To be told before he hears of it.
    pub fn know(&self, number: u64) {
        self.shared.in_use.part(number).lock().entry(number).or_default().known += 1;
    }

    /// Somebody forgets `number`, which he was told so many times.
    pub fn forget(&self, number: u64, times: u64) {
        let mut part = self.shared.in_use.part(number).lock();
        let Some(used) = part.get_mut(&number) else { return };
        used.known = used.known.saturating_sub(times);
        if used.known > 0 {
            return;
        }
        if std::mem::take(&mut used.is_withheld) {
            self.objset.hand_back(number);
        }
        if used.open == 0 {
            let is_orphan = used.is_orphan;
            part.remove(&number);
            drop(part);
            if is_orphan {
                let _lock = self.lock(number);
                // Else it is freed when the file system is opened the next time.
                drop(self.free_orphan(number));
            }
        }
    }

    /// Opens an object: it keeps its contents, whatever becomes of its names, until [`Filesystem::let_go`] was
    /// called as many times.
    ///
    /// # Errors
    /// There is no such object.
    pub fn hold(&self, number: u64) -> Result<()> {
        let _lock = self.lock(number);
        self.object(number)?;
        self.shared.in_use.open(number);
        Ok(())
    }

    /// Ends what [`Filesystem::hold`] began. What has no name is freed by the last one.
    pub fn let_go(&self, number: u64) -> Result<()> {
        let _lock = self.lock(number);
        let is_orphan = {
            let mut part = self.shared.in_use.part(number).lock();
            let Some(used) = part.get_mut(&number) else { return Ok(()) };
            used.open = used.open.saturating_sub(1);
            if used.is_used() {
                return Ok(());
            }
            let is_orphan = std::mem::take(&mut used.is_orphan);
            if used.known == 0 {
                part.remove(&number);
            }
            is_orphan
        };
        if is_orphan { self.free_orphan(number) } else { Ok(()) }
    }

    /// Frees an orphan that nobody uses any more.
    fn free_orphan(&self, number: u64) -> Result<()> {
        let object = self.object(number)?;
        let attrs = self.attrs_of(&object)?;
        let kin = numbers(&self.hidden_of(&attrs)?);
        let tx = self.enter_readonly(0)?;
        self.objset.free_slowly(&tx, number, kin)?;
        self.withhold_known(number);
        Ok(())
    }

    /// What goes with an object and is owned as it is: its hidden attributes, and the directory they are in.
    pub(crate) fn hidden_of(&self, attrs: &Attrs) -> Result<Vec<Arc<Object>>> {
        let Some(dir) = attrs.xattr_object else { return Ok(Vec::new()) };
        let mut hidden =
            self.read_dir(dir)?.into_iter().map(|entry| entry.object).collect::<Vec<_>>();
        hidden.push(dir);
        hidden.into_iter().map(|number| self.object(number)).collect()
    }

    /// Can what has no name stay for as long as it is used?
    pub(crate) fn keeps_orphans(&self) -> bool {
        self.delete_queue != 0
    }

    /// Keeps an object that has just lost its last name, with what of it is hidden, if somebody uses it, be it that he has it
    /// open, or, with `known_is_used`, that he knows its number; `false`: nobody does, and it is to be freed.
    pub(crate) fn keep_orphan(
        &self,
        tx: &Tx<'_>,
        object: &Arc<Object>,
        known_is_used: bool,
        hidden: &[Arc<Object>],
    ) -> Result<bool> {
        let number = object.number();
        if !self.shared.in_use.is_used(number, known_is_used) {
            return Ok(false);
        }
        if !self.keeps_orphans() {
            let (path, why) = (format!("object {number}"), Refusal::Busy);
            return Err(FsError::Refused { path, why });
        }
        self.work_off()?;
        self.change_znode(tx, object, |znode| {
            znode.links = 0;
            znode.ctime = attrs::now();
        })?;
        self.objset.orphan(tx, number)?;
        if !self.shared.in_use.goes_with_its_last_user(number) {
            // He has forgotten it since he was asked for, and found no orphan then.
            self.objset.free_slowly(tx, number, numbers(hidden))?;
            self.withhold_known(number);
        }
        Ok(true)
    }

    /// Of what was just freed, in a txg that is still held: who knows its number meets nothing by it. Who gets to know it
    /// from now on finds that it is gone.
    pub(crate) fn withhold_known(&self, number: u64) {
        let mut part = self.shared.in_use.part(number).lock();
        if let Some(used) = part.get_mut(&number) {
            match used.known {
                0 => drop(part.remove(&number)),
                _ => {
                    used.is_withheld = true;
                    self.objset.withhold(number);
                }
            }
        }
    }
}
