//! File systems that a server mounts where their properties `mountpoint` and `canmount` say.
//!
//! The one idea: what a command gives another name, another place or an end is unmounted before, as in OpenZFS, and a
//! file system that is in use stops the command. What was mounted is mounted again afterwards, where it belongs by
//! then.

use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

use pool::props::{Key, Kind, Kinds, Prop, Source, Value};

use super::Local;
use super::filesystems::pool_of;
use super::places::{Places, cannot_mount, cannot_unmount};
use crate::mounts::{Attach, Detach, What};
use crate::{Engine, Error, Result, Why, datasets};

/// Properties that the kernel sees to. Those that it does not know a mount reads by itself.
const OF_KERNEL: [Prop; 4] = [Prop::Readonly, Prop::Exec, Prop::Setuid, Prop::Devices];

/// What `canmount` can be.
const CANMOUNT_OFF: u64 = 0;
const CANMOUNT_ON: u64 = 1;

/// Where a file system belongs.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Place {
    At(PathBuf),
    Legacy,
    Nowhere,
}

/// A file system with what its properties say of mounting it.
#[derive(Clone, Debug)]
struct Due {
    name: String,
    place: Place,
    canmount: u64,
    /// Has it its place from the data set that was asked for, or is it that one?
    follows: bool,
    /// It has its place from above or by default: nobody has chosen the directory.
    unchosen: bool,
}

impl Due {
    /// The directory on which it is to be without being asked for.
    fn by_itself(&self) -> Option<&Path> {
        match &self.place {
            Place::At(dir) if self.canmount == CANMOUNT_ON => Some(dir),
            _ => None,
        }
    }
}

/// A property that is set; with its value, if that is not what the data sets above have.
pub(super) type Changed<'a> = (&'a [u8], Option<&'a [u8]>);

/// Does what is mounted move with it? As in OpenZFS a file system that may be mounted again is not, by that alone.
fn moves((key, value): &Changed<'_>) -> bool {
    let is = |prop: Prop| prop.name().as_bytes() == *key;
    is(Prop::Mountpoint) || is(Prop::Canmount) && value.is_none_or(|value| value == b"off")
}

/// Why a file system that was just made is not mounted. It is there all the same.
pub(super) fn not_mounted(error: Error) -> Error {
    with_note(error, "filesystem successfully created, but not mounted")
}

/// An error with what has been done in spite of it.
fn with_note(error: Error, note: &str) -> Error {
    match error {
        Error::Cannot { doing, why } => Error::cannot(doing, Why::Host(format!("{why}\n{note}"))),
        other => other,
    }
}

/// Is it the data set, or below it?
pub(super) fn is_below(name: &str, above: &str) -> bool {
    name.strip_prefix(above).is_some_and(|rest| rest.is_empty() || rest.starts_with('/'))
}

impl Local {
    fn places(&self) -> Option<&Places> {
        self.here.held.as_ref()?.places()
    }

    /// What is mounted where its properties say.
    pub(super) fn placed(&self) -> Vec<(String, PathBuf)> {
        self.places().map(Places::list).unwrap_or_default()
    }

    /// What the properties of a data set and those below say.
    fn due(&mut self, name: &str) -> Result<Vec<Due>> {
        let query = datasets::Query {
            names: vec![name.into()],
            depth: Some(usize::MAX),
            kinds: Kinds::NONE.with(Kind::Filesystem),
            keys: vec![Key::Native(Prop::Mountpoint), Key::Native(Prop::Canmount)],
            ..datasets::Query::default()
        };
        let report = self.dataset_query(&query)?;
        if let Some(error) = report.errors.into_iter().next() {
            return Err(error);
        }
        let due = |dataset: datasets::DatasetReport| {
            let place = match dataset.property(&Key::Native(Prop::Mountpoint)) {
                Some((Value::Text(path), _)) if path.first() == Some(&b'/') => {
                    Place::At(std::ffi::OsStr::from_bytes(path).into())
                }
                Some((Value::Text(word), _)) if word == b"legacy" => Place::Legacy,
                _ => Place::Nowhere,
            };
            let canmount = dataset.number(Prop::Canmount).unwrap_or(CANMOUNT_OFF);
            let follows = dataset.name == name
                || match dataset.property(&Key::Native(Prop::Mountpoint)) {
                    Some((_, Source::Local | Source::Received | Source::Temporary)) => false,
                    Some((_, Source::Inherited(from))) => is_below(name, from),
                    _ => true,
                };
            let source = dataset.property(&Key::Native(Prop::Mountpoint)).map(|(_, source)| source);
            let unchosen = matches!(source, Some(Source::Default | Source::Inherited(_)));
            Due { name: dataset.name, place, canmount, follows, unchosen }
        };
        let mut all: Vec<Due> = report.datasets.into_iter().map(due).collect();
        all.sort_by(|a, b| a.name.cmp(&b.name));
        Ok(all)
    }

    fn place(&self, places: &Places, name: &str, dir: &Path, unchosen: bool) -> Result<()> {
        let pool = self.here.held.as_ref().and_then(|held| held.pool(pool_of(name)));
        let pool = pool.ok_or_else(|| cannot_mount(name, Why::NoPool))?;
        places.add(&pool, name, dir, unchosen)
    }

    /// Mounts what is below a data set, or in a pool, and wanted, as far as it is not and is to be by itself.
    pub(super) fn settle(&mut self, below: &str, wanted: &dyn Fn(&str) -> bool) -> Vec<Error> {
        self.settle_all(&[below.to_string()], wanted)
    }

    /// The same below several, which may lie inside each other, whatever they are called.
    pub(super) fn settle_all(
        &mut self,
        below: &[String],
        wanted: &dyn Fn(&str) -> bool,
    ) -> Vec<Error> {
        let here = self.here.clone();
        let Some(places) = here.held.as_ref().and_then(|held| held.places()) else {
            return Vec::new();
        };
        let _alone = places.changing.lock();
        match self.is_ending() {
            true => Vec::new(),
            false => self.settle_alone(places, below, wanted),
        }
    }

    fn settle_alone(
        &mut self,
        places: &Places,
        below: &[String],
        wanted: &dyn Fn(&str) -> bool,
    ) -> Vec<Error> {
        let (mut due, mut errors) = (Vec::new(), Vec::new());
        for name in below {
            match self.due(name) {
                Ok(more) => due.extend(more),
                Err(error) => errors.push(error),
            }
        }
        let there = places.list();
        let missing = due.iter().filter(|due| !there.iter().any(|(name, _)| *name == due.name));
        let mut missing: Vec<&Due> = missing.filter(|due| wanted(&due.name)).collect();
        missing.sort_by_key(|due| due.by_itself());
        for one in missing {
            if let Some(dir) = one.by_itself()
                && let Err(error) = self.place(places, &one.name, dir, one.unchosen)
            {
                errors.push(error);
            }
        }
        errors
    }

    /// Does `change` while nothing that is `doomed` is mounted, and mounts it again, if it is still there, by its
    /// name afterwards.
    pub(super) fn unplaced<T>(
        &mut self,
        lazily: bool,
        doomed: &dyn Fn(&str) -> bool,
        now: &dyn Fn(&str) -> String,
        change: impl FnOnce(&mut Local) -> Result<T>,
    ) -> Result<T> {
        let here = self.here.clone();
        let Some(places) = here.held.as_ref().and_then(|held| held.places()) else {
            return change(self);
        };
        let _alone = places.changing.lock();
        let (gone, mut errors) = places.remove_all(doomed, lazily);
        let changed = match errors.is_empty() {
            true => change(self),
            false => Err(errors.remove(0)),
        };
        for (old, _) in &gone {
            let name = if changed.is_ok() { now(old) } else { old.clone() };
            // What has no place any more, or is gone, stays away.
            if let Ok(Due { place: Place::At(dir), canmount, unchosen, .. }) = self.due_alone(&name)
                && canmount != CANMOUNT_OFF
                && let Err(error) = self.place(places, &name, &dir, unchosen)
            {
                errors.push(error);
            }
        }
        let there = places.list();
        let left = gone.iter().rev().filter(|(_, dir)| !there.iter().any(|(_, on)| on == dir));
        left.for_each(|(_, dir)| places.clean(dir));
        match changed {
            Ok(_) if !errors.is_empty() => Err(errors.remove(0)),
            changed => changed,
        }
    }

    /// Gives file systems other names by `change`, as `now` says; what is mounted stays where it is.
    pub(super) fn renamed(
        &mut self,
        now: &dyn Fn(&str) -> String,
        change: impl FnOnce(&mut Local) -> Result<()>,
    ) -> Result<()> {
        let here = self.here.clone();
        let Some(places) = here.held.as_ref().and_then(|held| held.places()) else {
            return change(self);
        };
        let _alone = places.changing.lock();
        change(self)?;
        places.rename(now);
        Ok(())
    }

    /// Of what is mounted, what moves with a data set: what has its place from it, and what lies inside of that.
    fn moving(&mut self, name: &str) -> Vec<String> {
        let due = self.due(name).unwrap_or_default();
        let follows = |one: &str| due.iter().any(|due| due.follows && due.name == one);
        let there = self.placed();
        let left: Vec<&Path> =
            there.iter().filter(|(one, _)| follows(one)).map(|(_, dir)| &**dir).collect();
        let moves = |(one, dir): &(String, PathBuf)| {
            is_below(one, name) && left.iter().any(|above| dir.starts_with(above))
        };
        there.iter().filter(|one| moves(one)).map(|(one, _)| one.clone()).collect()
    }

    /// As [`Local::unplaced`], for a change of properties of data sets, and, if `all`, of those below them: what had no
    /// place before and has one now is mounted, too. What keeps its place is not unmounted, unless it lies inside of
    /// something that does not.
    pub(super) fn replaced<T>(
        &mut self,
        (names, all): (&[String], bool),
        properties: &[Changed<'_>],
        change: impl FnOnce(&mut Local) -> Result<T>,
    ) -> Result<T> {
        let doomed = |name: &str| names.iter().any(|above| is_below(name, above));
        if self.places().is_none() || !properties.iter().any(moves) {
            let changed = change(self);
            return self.obeyed(&doomed, properties, changed);
        }
        let mut homeless = Vec::new();
        for name in names {
            let due = self.due(name).unwrap_or_default().into_iter();
            homeless.extend(due.filter(|d| !matches!(d.place, Place::At(_))).map(|d| d.name));
        }
        let moving: Vec<String> = match all {
            true => Vec::new(),
            false => names.iter().flat_map(|name| self.moving(name)).collect(),
        };
        let moves =
            |name: &str| if all { doomed(name) } else { moving.iter().any(|one| one == name) };
        let changed = self.unplaced(false, &moves, &str::to_string, change)?;
        for name in names {
            drop(self.settle(name, &|due| homeless.iter().any(|name| name == due)));
        }
        // What keeps its place was not mounted anew.
        self.obeyed(&doomed, properties, Ok(changed))
    }

    /// Has the kernel obey those of the properties that it sees to, wherever what is `doomed` is mounted.
    fn obeyed<T>(
        &self,
        doomed: &dyn Fn(&str) -> bool,
        properties: &[Changed<'_>],
        changed: Result<T>,
    ) -> Result<T> {
        let is_kernels =
            |(key, _): &Changed<'_>| OF_KERNEL.iter().any(|prop| prop.name().as_bytes() == *key);
        let Some(places) = self.places().filter(|_| properties.iter().any(is_kernels)) else {
            return changed;
        };
        let _alone = places.changing.lock();
        match places.remount(doomed).into_iter().next() {
            Some(error) if changed.is_ok() => {
                let note = "property may be set but unable to remount filesystem";
                Err(with_note(error, note))
            }
            _ => changed,
        }
    }

    /// `zfs mount`.
    pub(super) fn mount_placed(&mut self, request: &Attach) -> Result<Vec<Error>> {
        let here = self.here.clone();
        let places = here.held.as_ref().and_then(|held| Some((held, held.places()?)));
        let Some((held, places)) = places else {
            let why = "no server mounts file systems where their properties say \
                       (`thumper serve --mount` does)\nuse `thumper mount` to mount one on a directory";
            return Err(match &request.name {
                Some(name) => cannot_mount(name, Why::NotDone(why.into())),
                None => Error::Other(format!("cannot mount file systems: {why}")),
            });
        };
        let Some(name) = &request.name else {
            let pools = held.names();
            return Ok(self.settle_all(&pools, &|_| true));
        };
        let _alone = places.changing.lock();
        let due = self.due_alone(name)?;
        let unchosen = due.unchosen;
        if places.list().iter().any(|(there, _)| there == name) {
            return Err(cannot_mount(name, Why::Mounted));
        }
        let dir = match due {
            Due { canmount: CANMOUNT_OFF, .. } => return Err(cannot_mount(name, Why::MountOff)),
            Due { place: Place::Nowhere, .. } => return Err(cannot_mount(name, Why::NoPlace)),
            Due { place: Place::Legacy, .. } => return Err(cannot_mount(name, Why::LegacyPlace)),
            Due { place: Place::At(dir), .. } => dir,
        };
        self.place(places, name, &dir, unchosen)?;
        Ok(Vec::new())
    }

    /// What the properties of one file system say.
    fn due_alone(&mut self, name: &str) -> Result<Due> {
        let query = datasets::Query {
            names: vec![name.into()],
            kinds: Kinds::NONE.with(Kind::Filesystem),
            kinds_given: true,
            ..datasets::Query::default()
        };
        if let Some(error) = self.dataset_query(&query)?.errors.into_iter().next() {
            return Err(error);
        }
        let due = self.due(name)?.into_iter().find(|due| due.name == name);
        due.ok_or_else(|| Error::open(name, Why::NoDataset))
    }

    /// `zfs unmount`.
    pub(super) fn unmount_placed(&mut self, request: &Detach) -> Result<Vec<Error>> {
        let here = self.here.clone();
        // By another way to the same directory, if it is not known by this one.
        let found = |dir: &Path| self.placed().into_iter().find(|(_, on)| on == dir);
        let at = match &request.what {
            What::At(dir) => found(dir).or_else(|| found(&dir.canonicalize().ok()?)),
            What::All | What::Named(_) => None,
        };
        let nothing = Places::default();
        let places = here.held.as_ref().and_then(|held| held.places()).unwrap_or(&nothing);
        let _alone = places.changing.lock();
        let name = match &request.what {
            What::All => return Ok(places.remove_all(&|_| true, request.force).1),
            What::Named(name) => {
                let name = self.due_alone(name)?.name;
                if !places.list().iter().any(|(there, _)| *there == name) {
                    return Err(cannot_unmount(Path::new(&name), Why::NotMounted));
                }
                name
            }
            What::At(dir) => {
                let found = at.filter(|at| places.list().contains(at));
                found.ok_or_else(|| cannot_unmount(dir, Why::NoMountpoint))?.0
            }
        };
        let (gone, errors) = places.remove_all(&|there| is_below(there, &name), request.force);
        match errors.into_iter().next() {
            None => Ok(Vec::new()),
            Some(error) => {
                for (name, dir) in gone {
                    drop(self.place(places, &name, &dir, places.is_unchosen(&dir)));
                }
                Err(error)
            }
        }
    }
}
