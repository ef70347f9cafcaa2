//! An open file system: objects by number, names in directories, and what changes them.
//!
//! Works on object numbers; paths are resolved by `path`. Every change runs under one txg handle,
//! so it is on disk as a whole or not at all.
//!
//! Lock order: `tree` (renames), then the locks of objects in their order, then the txg, then what
//! `dmu` locks. A lock is never waited for inside a txg: else one who came to it later but in an older
//! txg would have to change what a newer one has changed already (INV-6).

use std::sync::OnceLock;

use dmu::{Object, Objset, Tx, Zap};
use format::accounting::DEFAULT_PROJECT;
use format::sa::{Layouts, Registry, SaView};
use format::zap::{NormFlags, Value};
use format::znode::{Pflags, Znode};
use format::{DnodePhys, ObjectType};
use pool::{Dataset, Pool};
use rt::buf::Shelf;
use rt::sync::atomic::{AtomicBool, AtomicU64};
use rt::sync::{Arc, Mutex, RwLock};

use crate::accounts::quota_zaps;
use crate::attrs::{self, Attrs, mode, modified, object_kind};
use crate::digests::Digests;
use crate::error::{FsError, Result, shown};
use crate::in_use::InUse;
use crate::locks::{Locked, Locks};
use crate::names::entry_value;
pub(crate) use crate::new::{Contents, Given, NewObject};
use crate::own::Own;
use crate::protected::Change;
use crate::quota::{Payers, Quotas, check_project, inherited_project};
use crate::zpl::ZPL_VERSION;

/// What a name with an empty object is admitted as, in bytes.
pub(crate) const NAME_BYTES: u64 = 512;
/// The property casesensitivity: names in another case are the same name.
const INSENSITIVE: u64 = 1;
/// Longest target of a symbolic link, in bytes.
const TARGET_MAX: u64 = 4095;

/// An open file system or snapshot.
pub struct Filesystem {
    pub(crate) pool: Arc<Pool>,
    pub(crate) dataset: Arc<Dataset>,
    pub(crate) objset: Arc<Objset>,
    pub(crate) registry: Registry,
    pub(crate) shared: Arc<Shared>,
    layouts_zap: Option<Zap>,
    root: u64,
    pub(crate) delete_queue: u64,
    pub(crate) normflags: u64,
    /// Names that differ in case alone are two names, though their hash is the same.
    pub(crate) match_case: bool,
    pub(crate) utf8_only: bool,
    project: bool,
    /// Why its files cannot be changed though its data set could.
    read_only_because: Option<String>,
}

/// What all who have the same file system open must have in common.
pub(crate) struct Shared {
    /// Those that were made here are on disk after the next sync.
    pub(crate) layouts: RwLock<Layouts>,
    pub(crate) quotas: Quotas,
    pub(crate) in_use: InUse,
    pub(crate) digests: Digests,
    pub(crate) tree: Mutex<()>,
    /// How often a name has ceased to lead where it did.
    pub(crate) names_lost: AtomicU64,
    /// What an intent log holds is done again.
    pub(crate) replays: AtomicBool,
    pub(crate) locks: Locks,
    /// Where changes of contents are counted, once somebody wants to know of them.
    pub(crate) marks: OnceLock<Arc<Shelf>>,
}

impl Filesystem {
    /// Opens the file system or snapshot called `name` (`pool/fs` or `pool/fs@snapshot`).
    pub fn open(pool: &Arc<Pool>, name: &str) -> Result<Filesystem> {
        let dataset = pool.dataset(name)?;
        let objset = dataset.objset.clone();
        let not =
            |reason: &str| FsError::NotAFilesystem { name: name.into(), reason: reason.into() };
        match dataset.kind() {
            format::objset::ObjsetType::Zfs => {}
            format::objset::ObjsetType::Zvol => return Err(not("it is a volume")),
            _ => return Err(not("it does not hold files")),
        }
        if objset.phys().macs.iter().any(|byte| *byte != 0) {
            return Err(not("it is encrypted, and its files cannot be decrypted here"));
        }
        let own = match Own::read(&objset, name) {
            Err(_) if pool.is_ruined() => {
                Own::from_ruins(&objset).ok_or_else(|| not("nothing is left of its directories"))?
            }
            own => own?,
        };
        let Own { root, delete_queue, version, normflags, case, .. } = own;
        let project = objset.phys().flags & format::objset::ObjsetFlags::PROJECTQUOTA_COMPLETE != 0;
        if !pool.is_ruined() && !quota_zaps(&objset)?.is_empty() {
            dataset.set_user_quotas(true);
        }
        let shared = dataset.shared(|| Shared {
            layouts: RwLock::new(own.layouts),
            quotas: Quotas::default(),
            in_use: InUse::default(),
            digests: Digests::default(),
            tree: Mutex::new(()),
            names_lost: AtomicU64::new(0),
            replays: AtomicBool::new(false),
            locks: Locks::default(),
            marks: OnceLock::new(),
        });
        let fs = Filesystem {
            registry: own.registry,
            shared,
            layouts_zap: own.layouts_zap,
            root,
            delete_queue,
            normflags: normflags | if case == 0 { 0 } else { NormFlags::TOUPPER },
            match_case: case != INSENSITIVE,
            utf8_only: own.utf8_only,
            project,
            read_only_because: (version < ZPL_VERSION).then(|| {
                format!("it is a file system of version {version}, without system attributes")
            }),
            pool: pool.clone(),
            dataset,
            objset,
        };
        if fs.can_change() && pool.works_off() {
            fs.work_off()?;
        }
        Ok(fs)
    }

    /// Why none of its files can be changed; `None`: they can.
    pub fn read_only_reason(&self) -> Option<String> {
        let reason = self.dataset.read_only_because.as_ref().or(self.read_only_because.as_ref());
        let set = || self.dataset.is_set_readonly().then(|| "its property readonly is on".into());
        reason.cloned().or_else(set)
    }

    /// Its name.
    pub fn name(&self) -> String {
        self.dataset.name()
    }

    /// The pool it is in.
    pub fn pool(&self) -> &Arc<Pool> {
        &self.pool
    }

    /// Its data set.
    pub fn dataset(&self) -> &Arc<Dataset> {
        &self.dataset
    }

    /// Object of the root directory.
    pub fn root(&self) -> u64 {
        self.root
    }

    pub(crate) fn damaged(&self, object: u64, source: format::FormatError) -> FsError {
        FsError::Damaged { name: self.name(), object, source }
    }

    /// Starts a change of about `bytes` new bytes; 0: one that frees, which a full pool admits.
    pub(crate) fn enter(&self, bytes: u64) -> Result<Tx<'_>> {
        if self.dataset.is_set_readonly() {
            let reason = "its property readonly is on".into();
            return Err(FsError::ReadOnly { name: self.name(), reason });
        }
        self.enter_readonly(bytes)
    }

    /// As [`Filesystem::enter`], whatever the property `readonly` is: for what is no file's.
    pub(crate) fn enter_readonly(&self, bytes: u64) -> Result<Tx<'_>> {
        let reason = self.dataset.read_only_because.as_ref().or(self.read_only_because.as_ref());
        if let Some(reason) = reason {
            return Err(FsError::ReadOnly { name: self.name(), reason: reason.clone() });
        }
        let admitted = self.pool.admit(&self.dataset, bytes);
        admitted.map_err(|e| FsError::from(e).of_room(|| self.name()))
    }

    /// Locks an object against other changes.
    pub(crate) fn lock(&self, object: u64) -> Locked<'_> {
        self.shared.locks.one(object)
    }

    /// Locks several objects.
    pub(crate) fn lock_all(&self, objects: &[u64]) -> Vec<Locked<'_>> {
        self.shared.locks.all(objects)
    }

    // ---- attributes ----

    /// The object with this number, which must be a file, directory or other named object.
    pub fn object(&self, number: u64) -> Result<Arc<Object>> {
        // What was rolled back or destroyed is freed: its blocks are others' soon, and not all have checksums.
        self.dataset.not_revoked()?;
        Ok(self.objset.object(number)?)
    }

    /// The attributes of fixed size of an object.
    pub fn znode(&self, number: u64) -> Result<Znode> {
        self.znode_of(&self.object(number)?)
    }

    /// The attributes of an object.
    pub fn attrs(&self, number: u64) -> Result<Attrs> {
        self.attrs_of(&self.object(number)?)
    }

    /// The attributes of an open object.
    pub fn attrs_of(&self, object: &Arc<Object>) -> Result<Attrs> {
        let (mut attrs, is_old) = self.viewed(object, |view, header| {
            Ok((Attrs::parse(view, header.bonus())?, view.is_old_znode()))
        })?;
        if is_old && attrs.kind() == mode::SYMLINK && attrs.target.is_none() {
            attrs.target = Some(self.old_target(object, attrs.size)?);
        }
        Ok(attrs)
    }

    /// What `read` finds in the attributes of an open object. Nothing is copied for it, if there is no spill block.
    fn viewed<R>(
        &self,
        object: &Arc<Object>,
        read: impl Fn(&SaView<'_>, &DnodePhys) -> format::Result<R>,
    ) -> Result<R> {
        let read = |header: &DnodePhys, spill: Option<&[u8]>, layouts: &Layouts| {
            read(&self.view(header, spill, layouts)?, header)
        };
        let layouts = self.shared.layouts.read();
        let alone =
            |header: &DnodePhys| (!header.has_spill()).then(|| read(header, None, &layouts));
        let alone = object.with_header(alone)?;
        drop(layouts);
        let found = match alone {
            Some(found) => found,
            None => {
                let (header, spill) = object.header_and_spill()?;
                let spill = spill.as_deref().map(|bytes| &bytes[..]);
                read(&header, spill, &self.shared.layouts.read())
            }
        };
        found.map_err(|e| self.damaged(object.number(), e))
    }

    /// The target of a symbolic link of an old file system, where it is too long for the bonus.
    fn old_target(&self, object: &Arc<Object>, size: u64) -> Result<Vec<u8>> {
        if size > TARGET_MAX {
            let (field, seen) = ("length of a link's target", size);
            let expected = "at most 4095";
            let error = format::FormatError::Field { what: "znode", field, seen, expected };
            return Err(self.damaged(object.number(), error));
        }
        let mut target = vec![0; size as usize];
        object.read(0, &mut target)?;
        Ok(target)
    }

    pub(crate) fn view<'a>(
        &'a self,
        header: &'a DnodePhys,
        spill: Option<&'a [u8]>,
        layouts: &'a Layouts,
    ) -> format::Result<SaView<'a>> {
        SaView::new(&self.registry, layouts, header.bonus_kind(), header.bonus(), spill)
    }

    /// The attributes of fixed size of an open object.
    pub fn znode_of(&self, object: &Arc<Object>) -> Result<Znode> {
        self.viewed(object, |view, _| Znode::read(view))
    }

    /// Changes attributes of fixed size: in place if all of them lie in the bonus.
    pub(crate) fn change_znode(
        &self,
        tx: &Tx<'_>,
        object: &Arc<Object>,
        change: impl FnOnce(&mut Znode),
    ) -> Result<()> {
        if object.has_spill()? {
            let mut attrs = self.attrs_of(object)?;
            change(&mut attrs.znode);
            return self.set_attrs(tx, object, &attrs);
        }
        let layouts = self.shared.layouts.read();
        let done = object.change_header(tx, |header| {
            let mut znode = Znode::read(&self.view(header, None, &layouts)?)?;
            change(&mut znode);
            let kind = header.bonus_kind();
            znode.patch(&self.registry, &layouts, kind, header.bonus_mut())
        })?;
        match done {
            Ok(true) => Ok(()),
            // An attribute that the object did not have: the callers here change only what all have.
            Ok(false) => Err(FsError::Invalid {
                path: format!("object {}", object.number()),
                reason: "its attributes are not those of a file",
            }),
            Err(e) => Err(self.damaged(object.number(), e)),
        }
    }

    /// Replaces the attributes of an object.
    pub(crate) fn set_attrs(&self, tx: &Tx<'_>, object: &Arc<Object>, attrs: &Attrs) -> Result<()> {
        let header = object.header()?;
        let spill = object.spill()?;
        let image = {
            let mut layouts = self.shared.layouts.write();
            let spill = spill.as_deref().map(|bytes| &bytes[..]);
            let image = self
                .view(&header, spill, &layouts)
                .and_then(|view| attrs.builder(Some(&view), &self.registry))
                .and_then(|list| list.build(&self.registry, &mut layouts, header.bonus_max(false)))
                .map_err(|e| self.damaged(object.number(), e))?;
            self.save_layouts(&mut layouts)?;
            image
        };
        Ok(object.set_bonus(tx, &image.bonus, image.spill)?)
    }

    /// Hands new layouts to the sync: whichever txg uses them first finds them on disk.
    fn save_layouts(&self, layouts: &mut Layouts) -> Result<()> {
        if layouts.unsaved().next().is_none() {
            return Ok(());
        }
        let Some(zap) = &self.layouts_zap else {
            return Err(FsError::ReadOnly {
                name: self.name(),
                reason: "a file system without system attributes".into(),
            });
        };
        for (name, order) in layouts.unsaved() {
            self.objset.put_at_sync(zap, name.into_bytes(), Value::u16s(order));
        }
        layouts.saved();
        Ok(())
    }

    // ---- changes of names ----

    /// As [`Filesystem::create`], a file with contents; with `held` it is open then.
    pub(crate) fn create_filled(
        &self,
        dir: u64,
        name: &[u8],
        new: &NewObject<'_>,
        data: &[u8],
        held: bool,
    ) -> Result<u64> {
        self.check_name(name)?;
        // Copied before anything is locked.
        let contents = self.contents(data);
        let lock = self.lock(dir);
        let bytes = NAME_BYTES + data.len() as u64;
        if self.dataset.has_user_quotas() {
            let parent = self.znode_of(&self.object(dir)?)?;
            let project = inherited_project(&parent).unwrap_or(DEFAULT_PROJECT);
            self.charge(Payers::new(new.who.uid, new.who.gid, project), bytes, 1)?;
        }
        let tx = self.enter(bytes)?;
        let zap = self.directory(dir)?;
        self.must_be_new(dir, name)?;
        self.permit(&self.znode_of(zap.object())?, Change::Gain, String::from_utf8_lossy(name))?;
        let object = self.make(&tx, dir, new, contents)?;
        // Told before anybody can find it: what others do with it comes after it in the log.
        match new.xattrs {
            [] => self.tell_made(&tx, dir, name, &object, data.len() as u64)?,
            // The record has no place for them, and without them more might be allowed.
            _ => self.tell_untold_names(&tx),
        }
        let kind = new.mode & mode::TYPE;
        if let Err(error) = self.add_entry(&tx, &zap, name, object.number(), kind) {
            // The log says otherwise.
            self.tell_untold_names(&tx);
            let value = entry_value(object.number(), kind);
            // An entry that leads to nothing would be worse than what has no name.
            if zap.get_u64(name).is_ok_and(|found| found != Some(value)) {
                let hidden = self.attrs_of(&object).ok().and_then(|attrs| attrs.xattr_object);
                self.unmake(&tx, &object, hidden);
            }
            return Err(error);
        }
        if held {
            // Nobody takes the name away as long as its directory is locked.
            self.shared.in_use.open(object.number());
        }
        drop((tx, lock));
        if let Err(error) = self.done(object.number()) {
            if held {
                drop(self.let_go(object.number()));
            }
            return Err(error);
        }
        Ok(object.number())
    }

    /// Makes an object without a name.
    pub(crate) fn make(
        &self,
        tx: &Tx<'_>,
        parent: u64,
        new: &NewObject<'_>,
        contents: Contents,
    ) -> Result<Arc<Object>> {
        self.make_as(tx, parent, new, contents, None)
    }

    /// Makes an object without a name; one that was made before, if `given` says what it was.
    pub(crate) fn make_as(
        &self,
        tx: &Tx<'_>,
        parent: u64,
        new: &NewObject<'_>,
        contents: Contents,
        given: Option<Given>,
    ) -> Result<Arc<Object>> {
        let time = given.map_or_else(attrs::now, |given| given.time);
        let mut attrs = Attrs::new(new.mode, self.project, time);
        (attrs.uid, attrs.gid) = (new.who.uid, new.who.gid);
        (attrs.parent, attrs.gen_txg) = (parent, given.map_or(tx.txg(), |given| given.gen_txg));
        attrs.flags |= new.flags;
        let hidden = self.give_xattrs(&mut attrs, new.xattrs)?;
        hidden.iter().try_for_each(|(name, _)| self.check_form(name))?;
        let kind = new.mode & mode::TYPE;
        if attrs.project.is_some()
            && let Some(project) = inherited_project(&self.znode_of(&self.object(parent)?)?)
        {
            attrs.project = Some(project);
            attrs.flags |= Pflags::PROJINHERIT;
        }
        if kind == mode::FILE {
            attrs.size = contents.size;
        }
        if let Some(target) = new.target {
            attrs.size = target.len() as u64;
            attrs.target = Some(target.to_vec());
        }
        if matches!(kind, mode::BLOCK | mode::CHAR) {
            attrs.rdev = Some(new.rdev);
        }
        let slots = given.map_or(self.dataset.file_properties().dnode_slots, |given| given.slots);
        let image = {
            let mut layouts = self.shared.layouts.write();
            let bonus_max = format::sa::bonus_max(slots.into());
            let image = attrs
                .builder(None, &self.registry)
                .and_then(|list| list.build(&self.registry, &mut layouts, bonus_max))
                .map_err(|e| self.damaged(0, e))?;
            self.save_layouts(&mut layouts)?;
            image
        };
        let (dmu_kind, sa, bonus) = (object_kind(new.mode), ObjectType::SA, &image.bonus);
        let size = if kind == mode::DIR { 512 } else { contents.block_size };
        let object = match given {
            Some(Given { number, .. }) => {
                self.objset.allocate_at(tx, number, dmu_kind, size, sa, bonus, slots)?
            }
            None => self.objset.allocate(tx, dmu_kind, size, sa, bonus, slots)?,
        };
        let fill = |attrs: &mut Attrs| {
            if kind == mode::DIR {
                Zap::format(object.clone(), tx, self.normflags)?;
            }
            object.fill(tx, contents.records)?;
            if image.spill.is_some() {
                object.set_bonus(tx, &image.bonus, image.spill)?;
            }
            if hidden.is_empty() {
                return Ok(());
            }
            for (name, value) in hidden {
                self.put_hidden(tx, object.number(), attrs, name, value)?;
            }
            self.set_attrs(tx, &object, attrs)
        };
        match fill(&mut attrs) {
            Ok(()) => Ok(object),
            Err(error) => {
                self.unmake(tx, &object, attrs.xattr_object);
                Err(error)
            }
        }
    }

    /// A directory has gained (or lost) entries and subdirectories.
    pub(crate) fn count_entries(
        &self,
        tx: &Tx<'_>,
        dir: &Arc<Object>,
        entries: i64,
        subdirs: i64,
    ) -> Result<()> {
        self.change_znode(tx, dir, |znode| {
            znode.size = znode.size.saturating_add_signed(entries);
            znode.links = znode.links.saturating_add_signed(subdirs);
            modified(znode);
        })
    }

    /// One more name for a file.
    pub fn link(&self, dir: u64, name: &[u8], number: u64) -> Result<()> {
        self.check_name(name)?;
        let locks = self.lock_all(&[dir, number]);
        let tx = self.enter(NAME_BYTES)?;
        let object = self.object(number)?;
        let attrs = self.attrs_of(&object)?;
        if attrs.is_dir() {
            return Err(FsError::IsADirectory { path: shown(name) });
        }
        if attrs.links == 0 {
            // It goes as soon as nobody has it open, whatever names it had.
            return Err(FsError::NotFound { path: shown(name) });
        }
        let above = self.znode_of(&self.object(dir)?)?;
        self.permit(&above, Change::Gain, String::from_utf8_lossy(name))?;
        self.permit(&attrs, Change::Attributes, String::from_utf8_lossy(name))?;
        check_project(&above, name, &attrs)?;
        let zap = self.directory(dir)?;
        self.must_be_new(dir, name)?;
        let change = || {
            self.add_entry(&tx, &zap, name, number, attrs.kind())?;
            self.change_znode(&tx, &object, |znode| {
                znode.links = znode.links.saturating_add(1);
                znode.parent = dir;
                znode.ctime = attrs::now();
            })
        };
        change().inspect_err(|_| self.tell_untold_names(&tx))?;
        self.tell_linked(&tx, dir, name, number);
        drop((tx, locks));
        self.done(number)
    }

    /// Moves an entry; what the new name stood for is replaced, as rename(2) does.
    pub fn rename(&self, from: u64, name: &[u8], to: u64, new_name: &[u8]) -> Result<()> {
        self.rename_onto(from, name, to, new_name, true)
    }

    /// As [`Filesystem::rename`]; without `replace` the new name must stand for nothing.
    pub fn rename_onto(
        &self,
        from: u64,
        name: &[u8],
        to: u64,
        new_name: &[u8],
        replace: bool,
    ) -> Result<()> {
        self.check_name(new_name)?;
        let tree = self.shared.tree.lock();
        let (moved, old, locks) = loop {
            let (moved, old) = (self.must_find(from, name)?, self.lookup(to, new_name)?);
            let replaced = old.as_ref().map_or(moved.object, |old| old.object);
            let locks = self.lock_all(&[from, to, moved.object, replaced]);
            // Somebody may have been faster.
            if self.lookup(from, name)?.as_ref() == Some(&moved)
                && self.lookup(to, new_name)? == old
            {
                break (moved, old, locks);
            }
        };
        let tx = self.enter_to_remove(old.as_ref().map(|old| old.object))?;
        let object = self.object(moved.object)?;
        let attrs = self.attrs_of(&object)?;
        let is_dir = attrs.is_dir();
        if is_dir && self.is_below(to, moved.object)? {
            let reason = "Invalid argument: a directory cannot be moved into itself";
            return Err(FsError::Invalid { path: shown(new_name), reason });
        }
        self.must_be_there(to, new_name)?;
        let (above, into) = (self.object(from)?, self.znode_of(&self.object(to)?)?);
        self.permit(&self.znode_of(&above)?, Change::Lose, String::from_utf8_lossy(name))?;
        self.permit(&attrs, Change::Leave, String::from_utf8_lossy(name))?;
        self.permit(&into, Change::Gain, String::from_utf8_lossy(new_name))?;
        check_project(&into, new_name, &attrs)?;
        // The entry itself, under a name of another case or form: only its spelling changes.
        let respelled = from == to && old.as_ref() == Some(&moved) && new_name != moved.name;
        let mut replaced = None;
        if let Some(old) = old.filter(|_| !respelled) {
            if !replace {
                return Err(FsError::Exists { path: shown(new_name) });
            }
            if old.object == moved.object {
                return Ok(());
            }
            let object = self.object(old.object)?;
            let attrs = self.attrs_of(&object)?;
            self.permit(&into, Change::Lose, String::from_utf8_lossy(new_name))?;
            self.permit(&attrs, Change::Leave, String::from_utf8_lossy(new_name))?;
            match (is_dir, attrs.is_dir()) {
                (true, false) => return Err(FsError::NotADirectory { path: shown(new_name) }),
                (false, true) => return Err(FsError::IsADirectory { path: shown(new_name) }),
                (true, true) if Zap::of(object.clone())?.count()? > 0 => {
                    return Err(FsError::NotEmpty { path: shown(new_name) });
                }
                _ => replaced = Some((old, self.leaving(object, &attrs, true)?)),
            }
        }
        // Told before anybody can find it under its new name: what others do below a directory there comes after it in
        // the log.
        let gone = replaced.as_ref().map(|(_, leaving)| leaving.gone);
        self.tell_moved(&tx, moved.object, (from, &moved.name), (to, new_name), gone);
        let change = || {
            // Who looks for either name meanwhile finds something there, as long as they are spelled as they were.
            let in_place = replaced.as_ref().is_some_and(|(old, _)| old.name == new_name);
            if let Some((old, _)) = &replaced
                && !in_place
            {
                self.remove_entry(&tx, to, &old.name, is_dir)?;
            }
            if respelled {
                self.remove_entry(&tx, from, &moved.name, is_dir)?;
            }
            let zap = self.directory(to)?;
            zap.put_u64(&tx, new_name, entry_value(moved.object, attrs.kind()))?;
            let more = i64::from(!in_place);
            self.count_entries(&tx, zap.object(), more, more * i64::from(is_dir))?;
            if !respelled {
                self.remove_entry(&tx, from, &moved.name, is_dir)?;
            }
            self.change_znode(&tx, &object, |znode| {
                znode.parent = to;
                znode.ctime = attrs::now();
            })?;
            if let Some((_, leaving)) = replaced {
                self.lose_name(&tx, leaving)?;
            }
            Result::Ok(())
        };
        // The log says otherwise.
        change().inspect_err(|_| self.tell_untold_names(&tx))?;
        drop((tx, locks, tree));
        self.done(moved.object)
    }
}
