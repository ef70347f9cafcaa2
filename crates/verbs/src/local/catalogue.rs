//! The data sets of an open pool, each directory read once, with every property computed.
//!
//! Facts come from the directory, the data set and its object set; what users set comes from the
//! directories above it, the nearest first. FORMAT: sections 8.1 to 8.7.

use std::collections::BTreeMap;

use format::ObjectType;
use format::bookmark::{Bookmark, BookmarkFlags};
use format::deadlist::DeadlistPhys;
use format::dsl_dataset::{DS_BOOKMARKS, DslDatasetFlags, DslDatasetPhys};
use format::dsl_dir::{
    DIR_CRYPTO_KEY_OBJECT, DIR_FILESYSTEM_COUNT, DIR_SNAPSHOT_COUNT, DslDirPhys, ORIGIN_DIR_NAME,
    Used,
};
use fs::Fixed;
use pool::dsl::lookup::{self, Found};
use pool::props::{Key, Kind, Prop, Source, SpaceProp, Value, lookup as effective};
use pool::{Pool, PoolError, Stored};
use rt::sync::Arc;

type Result<T> = std::result::Result<T, PoolError>;

/// A directory: a data set's name, its place in the tree, and what is set on it.
#[derive(Debug)]
pub(crate) struct Dir {
    pub(crate) name: String,
    parent: Option<Arc<Dir>>,
    pub(crate) object: u64,
    pub(crate) phys: DslDirPhys,
    /// Properties in the order of their ZAP, which is the order in which they are listed.
    props: Vec<(String, Value)>,
}

/// A data set, snapshot or bookmark with all that its properties are made of.
#[derive(Debug)]
pub(crate) struct Entry {
    pub(crate) found: Found,
    pub(crate) dir: Arc<Dir>,
    pub(crate) kind: Kind,
    fixed: Fixed,
    /// A snapshot's own properties.
    own: Vec<(String, Value)>,
}

/// Reads the data sets of one pool.
pub(crate) struct Catalogue<'a> {
    pub(crate) pool: &'a Pool,
    altroot: Option<Vec<u8>>,
    dirs: BTreeMap<u64, Arc<Dir>>,
}

impl Entry {
    /// True if a property means something here: for a snapshot, of what it is a snapshot of, too.
    fn has(&self, prop: Prop) -> bool {
        let applies = prop.info().applies;
        let to_heads = applies.contains(Kind::Filesystem) || applies.contains(Kind::Volume);
        let head = applies.contains(head_kind(&self.fixed));
        applies.contains(self.kind) && (self.kind != Kind::Snapshot || head || !to_heads)
    }
}

/// Snapshots that are followed into the past, at most.
const WALK_MAX: usize = 1 << 20;

/// A point of the past: a snapshot, or what a bookmark keeps of one.
struct Since {
    /// The snapshot.
    object: Option<u64>,
    /// Its directory.
    dir: u64,
    /// Its txg.
    txg: u64,
    /// Bytes that it referenced.
    referenced: u64,
    /// Of them, bytes freed before the next snapshot was taken, where a bookmark knows.
    freed_before_next: Option<u64>,
}

impl Since {
    fn snapshot(found: &Found) -> Since {
        Since {
            object: Some(found.object),
            dir: found.phys.dir_object.get(),
            txg: found.phys.creation_txg.get(),
            referenced: found.phys.referenced_bytes.get(),
            freed_before_next: None,
        }
    }

    /// `None` of a bookmark of the older form, which keeps no sizes.
    fn bookmark(mark: &Entry) -> Option<Since> {
        (mark.found.phys.flags.get() != 0).then(|| Since {
            object: None,
            dir: mark.found.dir_object,
            txg: mark.found.phys.creation_txg.get(),
            referenced: mark.found.phys.referenced_bytes.get(),
            freed_before_next: Some(mark.found.phys.unique_bytes.get()),
        })
    }
}

fn head_kind(fixed: &Fixed) -> Kind {
    match fixed {
        Fixed::Volume { .. } | Fixed::Hidden { is_volume: true } => Kind::Volume,
        Fixed::Filesystem { .. } | Fixed::Hidden { is_volume: false } => Kind::Filesystem,
    }
}

fn value(stored: Stored) -> Value {
    match stored {
        Stored::Number(number) => Value::Number(number),
        Stored::Text(text) => Value::Text(text),
    }
}

fn ratio(uncompressed: u64, compressed: u64) -> u64 {
    if compressed == 0 {
        100
    } else {
        (u128::from(uncompressed) * 100 / u128::from(compressed)) as u64
    }
}

impl<'a> Catalogue<'a> {
    pub(crate) fn new(pool: &'a Pool, altroot: Option<Vec<u8>>) -> Catalogue<'a> {
        Catalogue { pool, altroot, dirs: BTreeMap::new() }
    }

    /// The directory in an object, called so.
    fn dir(&mut self, object: u64, name: &str, parent: Option<Arc<Dir>>) -> Result<Arc<Dir>> {
        if let Some(dir) = self.dirs.get(&object) {
            return Ok(dir.clone());
        }
        let phys = self.pool.mos().dir(object)?;
        let props = self.props(phys.props_zap_object.get())?;
        let dir = Arc::new(Dir { name: name.into(), parent, object, phys, props });
        self.dirs.insert(object, dir.clone());
        Ok(dir)
    }

    fn props(&self, zap: u64) -> Result<Vec<(String, Value)>> {
        if zap == 0 {
            return Ok(Vec::new());
        }
        let stored = pool::dsl::property::local(self.pool.mos(), zap)?;
        Ok(stored.into_iter().map(|(name, stored)| (name, value(stored))).collect())
    }

    /// The directory of a data set's name, with those above it.
    fn dir_named(&mut self, name: &str) -> Result<Arc<Dir>> {
        let mos = self.pool.mos();
        let missing = || PoolError::NoDataset { name: name.into() };
        let mut parts = name.split('/');
        let pool_name = parts.next().unwrap_or_default();
        let mut dir = self.dir(lookup::root_dir(mos)?, pool_name, None)?;
        for part in parts {
            let children = mos.zap(dir.phys.child_dir_zap_object.get())?;
            let child = children.get_u64(part.as_bytes())?.filter(|_| !part.starts_with('$'));
            let full = format!("{}/{part}", dir.name);
            dir = self.dir(child.ok_or_else(missing)?, &full, Some(dir.clone()))?;
        }
        Ok(dir)
    }

    /// The data set or snapshot of a name.
    pub(crate) fn entry(&mut self, name: &str) -> Result<Entry> {
        lookup::of_pool(self.pool.name(), name)?;
        let base = name.split('@').next().unwrap_or(name);
        let dir = self.dir_named(base)?;
        let found = lookup::find(self.pool.mos(), name)?;
        self.make(found, dir)
    }

    fn make(&self, found: Found, dir: Arc<Dir>) -> Result<Entry> {
        let own = match found.is_snapshot() {
            true => self.props(found.phys.props_object.get())?,
            false => Vec::new(),
        };
        let fixed = fs::fixed(self.pool, &found)?;
        let kind = if found.is_snapshot() { Kind::Snapshot } else { head_kind(&fixed) };
        Ok(Entry { found, dir, kind, fixed, own })
    }

    /// The data sets right below one that people see, by name.
    pub(crate) fn children(&mut self, dir: &Arc<Dir>) -> Result<Vec<Arc<Dir>>> {
        let mut children = Vec::new();
        let all = lookup::children(self.pool.mos(), dir.object, &dir.phys)?.into_iter();
        for (name, object) in all.filter(|(name, _)| lookup::is_shown(name)) {
            let full = format!("{}/{name}", dir.name);
            children.push(self.dir(object, &full, Some(dir.clone()))?);
        }
        Ok(children)
    }

    /// The head of a directory; `None` of one that has none.
    pub(crate) fn head(&self, dir: &Arc<Dir>) -> Result<Option<Entry>> {
        let object = dir.phys.head_dataset_object.get();
        if object == 0 {
            return Ok(None);
        }
        let phys = self.pool.mos().dataset(object)?;
        let (name, dir_object) = (dir.name.clone(), dir.object);
        let found = Found { name, dir_object, dir: dir.phys, object, phys };
        Ok(Some(self.make(found, dir.clone())?))
    }

    /// The snapshots of a head, oldest first.
    pub(crate) fn snapshots(&self, head: &Entry) -> Result<Vec<Entry>> {
        let mut entries = Vec::new();
        for (name, object, phys) in lookup::snapshots(self.pool.mos(), &head.found.phys)? {
            let name = format!("{}@{name}", head.found.name);
            let found = Found { name, object, phys, ..head.found.clone() };
            entries.push(self.make(found, head.dir.clone())?);
        }
        Ok(entries)
    }

    /// The bookmarks of a head, oldest first.
    pub(crate) fn bookmarks(&self, head: &Entry) -> Result<Vec<Entry>> {
        let mos = self.pool.mos();
        if mos.objset.object(head.found.object)?.header()?.kind() != ObjectType::ZAP_METADATA {
            return Ok(Vec::new());
        }
        let marks = mos.zap(head.found.object)?.get_u64(DS_BOOKMARKS.as_bytes())?;
        let Some(marks) = marks else { return Ok(Vec::new()) };
        let mut entries = Vec::new();
        for entry in mos.zap(marks)?.entries()? {
            let mark = Bookmark::from_words(&entry.value.ints())?;
            // A bookmark is what is left of a snapshot: told as one.
            let mut phys = DslDatasetPhys::default();
            phys.guid.set(mark.guid);
            phys.creation_txg.set(mark.creation_txg);
            phys.creation_time_secs.set(mark.creation_time_secs);
            phys.referenced_bytes.set(mark.referenced_bytes);
            phys.uncompressed_bytes.set(mark.uncompressed_bytes);
            phys.flags.set(mark.flags & BookmarkFlags::HAS_FBN);
            phys.unique_bytes.set(mark.freed_referenced_bytes);
            let name = String::from_utf8_lossy(&entry.name);
            let name = format!("{}#{name}", head.found.name);
            let found = Found { name, object: 0, phys, ..head.found.clone() };
            let (dir, fixed) = (head.dir.clone(), head.fixed);
            let own = Vec::new();
            entries.push(Entry { found, dir, kind: Kind::Bookmark, fixed, own });
        }
        entries.sort_by_key(|entry| entry.found.phys.creation_txg.get());
        Ok(entries)
    }

    /// The full name of the snapshot in a data set object.
    pub(crate) fn snapshot_name(&mut self, object: u64) -> Result<Option<String>> {
        let mos = self.pool.mos();
        let phys = mos.dataset(object)?;
        let Some(base) = self.dir_name(phys.dir_object.get())? else { return Ok(None) };
        let head = mos.dir(phys.dir_object.get())?.head_dataset_object.get();
        let names = mos.dataset(head)?.snapnames_zap_object.get();
        let named = mos.zap(names)?.entries()?;
        let entry = named.into_iter().find(|entry| entry.value.as_u64() == Some(object));
        Ok(entry.map(|entry| format!("{base}@{}", String::from_utf8_lossy(&entry.name))))
    }

    /// The full name of a directory; `None` of an internal one.
    pub(crate) fn dir_name(&mut self, object: u64) -> Result<Option<String>> {
        if let Some(dir) = self.dirs.get(&object) {
            return Ok(Some(dir.name.clone()));
        }
        let mos = self.pool.mos();
        let mut parts = Vec::new();
        let mut at = object;
        for _ in 0..lookup::DEPTH_MAX {
            let parent = mos.dir(at)?.parent_object.get();
            if parent == 0 {
                parts.push(self.pool.name().to_string());
                parts.reverse();
                return Ok(Some(parts.join("/")));
            }
            let children = mos.zap(mos.dir(parent)?.child_dir_zap_object.get())?.entries()?;
            let Some(entry) = children.iter().find(|entry| entry.value.as_u64() == Some(at)) else {
                return Ok(None);
            };
            if entry.name.starts_with(b"$") {
                return Ok(None);
            }
            parts.push(String::from_utf8_lossy(&entry.name).into_owned());
            at = parent;
        }
        Ok(None)
    }

    /// Value and source of a property; `None` if the data set has none.
    pub(crate) fn property(&mut self, entry: &Entry, key: &Key) -> Result<Option<(Value, Source)>> {
        match key {
            Key::Native(prop) if !entry.has(*prop) => Ok(None),
            Key::Native(prop) if entry.kind == Kind::Bookmark => Ok(bookmark(entry, *prop)),
            _ if entry.kind == Kind::Bookmark => Ok(None),
            Key::Native(prop) => self.native(entry, *prop),
            Key::User(_) => Ok(self.set_by_users(entry, key)),
            Key::Space(space) => self.account(entry, space),
            Key::Written(origin) => self.written_since(entry, origin),
        }
    }

    /// What users set, here or above.
    fn set_by_users(&self, entry: &Entry, key: &Key) -> Option<(Value, Source)> {
        let own = (entry.kind == Kind::Snapshot).then(|| (entry.found.name.clone(), &entry.own));
        let chain = std::iter::successors(Some(&entry.dir), |dir| dir.parent.as_ref());
        let chain = chain.map(|dir| (dir.name.clone(), &dir.props));
        let levels = own.into_iter().chain(chain).map(|(name, props)| {
            let get = move |key: &str| {
                let found = props.iter().find(|(name, _)| name == key);
                Ok::<_, std::convert::Infallible>(found.map(|(_, value)| value.clone()))
            };
            (name, get)
        });
        match effective(key, levels) {
            Ok(found) => found,
            Err(never) => match never {},
        }
    }

    /// Names of the user properties that hold, in the order in which they are listed.
    pub(crate) fn user_keys(&self, entry: &Entry) -> Vec<Key> {
        let chain = std::iter::successors(Some(&entry.dir), |dir| dir.parent.as_ref());
        let names = entry.own.iter().chain(chain.flat_map(|dir| &dir.props)).map(|(name, _)| name);
        let mut keys: Vec<Key> = Vec::new();
        for name in names {
            let plain = name.split('$').next().unwrap_or(name);
            let key = Key::User(plain.to_string());
            if plain.contains(':') && !keys.contains(&key) {
                keys.push(key);
            }
        }
        keys
    }

    fn native(&mut self, entry: &Entry, prop: Prop) -> Result<Option<(Value, Source)>> {
        let fact = |number| Ok(Some((Value::Number(number), Source::None)));
        let (found, dir, ds) = (&entry.found, &entry.dir.phys, &entry.found.phys);
        let snapshot = entry.kind == Kind::Snapshot;
        let own_ratio = ratio(ds.uncompressed_bytes.get(), ds.compressed_bytes.get());
        match prop {
            Prop::Creation => fact(ds.creation_time_secs.get()),
            Prop::Used if snapshot => fact(ds.unique_bytes.get()),
            Prop::Used => fact(dir.used_bytes.get()),
            Prop::Available => fact(self.pool.available(found)?),
            Prop::Referenced => fact(ds.referenced_bytes.get()),
            Prop::Compressratio if snapshot => fact(own_ratio),
            Prop::Compressratio => {
                fact(ratio(dir.uncompressed_bytes.get(), dir.compressed_bytes.get()))
            }
            Prop::Refcompressratio => fact(own_ratio),
            // Nothing is mounted here.
            Prop::Mounted => fact(0),
            Prop::Createtxg => fact(ds.creation_txg.get()),
            Prop::Guid => fact(ds.guid.get()),
            Prop::Objsetid => fact(found.object),
            Prop::Unique => fact(ds.unique_bytes.get()),
            Prop::Usedbysnapshots => fact(dir.used(Used::Snap)),
            Prop::Usedbydataset => fact(dir.used(Used::Head)),
            Prop::Usedbychildren => fact(dir.used(Used::Child) + dir.used(Used::ChildReserved)),
            Prop::Usedbyrefreservation => fact(dir.used(Used::RefReserved)),
            Prop::Logicalused => fact(dir.uncompressed_bytes.get()),
            Prop::Logicalreferenced => fact(ds.uncompressed_bytes.get()),
            Prop::Written => fact(self.written(ds)?),
            Prop::Inconsistent => fact(u64::from(ds.is_inconsistent())),
            Prop::DeferDestroy => {
                fact(u64::from(ds.flags.get() & DslDatasetFlags::DEFER_DESTROY != 0))
            }
            Prop::Userrefs => fact(match ds.userrefs_object.get() {
                0 => 0,
                object => self.pool.mos().zap(object)?.count()?,
            }),
            Prop::Origin => self.origin(dir),
            Prop::Clones => self.clones(ds),
            Prop::FilesystemCount => self.tally(entry, prop, DIR_FILESYSTEM_COUNT),
            Prop::SnapshotCount => self.tally(entry, prop, DIR_SNAPSHOT_COUNT),
            Prop::Mountpoint => Ok(self.mountpoint(entry)),
            Prop::Version
            | Prop::Utf8only
            | Prop::Normalization
            | Prop::Casesensitivity
            | Prop::Volsize
            | Prop::Volblocksize => Ok(self.fixed(entry, prop)),
            Prop::Encryption
            | Prop::Keystatus
            | Prop::Encryptionroot
            | Prop::Keyformat
            | Prop::Pbkdf2iters => self.encryption(entry, prop),
            _ if prop.info().access == pool::props::Access::Computed => Ok(None),
            _ => Ok(self.set_by_users(entry, &Key::Native(prop))),
        }
    }

    /// Bytes written since the snapshot before: what is referenced beyond it, and what was freed
    /// of it.
    fn written(&self, ds: &DslDatasetPhys) -> Result<u64> {
        let previous = ds.prev_snap_object.get();
        if previous == 0 {
            return Ok(ds.referenced_bytes.get());
        }
        let before = self.pool.mos().dataset(previous)?.referenced_bytes.get();
        let freed = self.deadlist_bytes(ds)?;
        Ok((ds.referenced_bytes.get() + freed).saturating_sub(before))
    }

    /// Bytes on a deadlist of blocks that were there at a txg of which the deadlist has the key.
    fn freed_of(&self, ds: &DslDatasetPhys, txg: u64) -> Result<u64> {
        let mos = self.pool.mos();
        let mut bytes = 0u64;
        for entry in mos.zap(ds.deadlist_object.get())?.entries()? {
            let key = format::deadlist::parse_key_name(&entry.name)
                .map_err(|e| PoolError::Damaged { what: "deadlist", detail: e.to_string() })?;
            if let Some(list) = entry.value.as_u64().filter(|_| key < txg) {
                let header = mos.objset.object(list)?.bonus()?;
                let (phys, _) = format::bpobj::BpobjPhys::parse(&header)
                    .map_err(|e| PoolError::Damaged { what: "deadlist", detail: e.to_string() })?;
                bytes = bytes.saturating_add(phys.bytes.get());
            }
        }
        Ok(bytes)
    }

    fn deadlist_bytes(&self, ds: &DslDatasetPhys) -> Result<u64> {
        let object = self.pool.mos().objset.object(ds.deadlist_object.get())?;
        let bonus = object.bonus()?;
        let phys = DeadlistPhys::parse(&bonus)
            .map_err(|error| PoolError::Damaged { what: "deadlist", detail: error.to_string() })?;
        Ok(phys.used_bytes.get())
    }

    /// Use or quota of a user, group or project.
    fn account(&self, entry: &Entry, space: &SpaceProp) -> Result<Option<(Value, Source)>> {
        let Ok(id) = super::accounts::id(space) else { return Ok(None) };
        let Some(accounts) = fs::Accounts::of(self.pool, &entry.found)? else { return Ok(None) };
        let number = match space.quota {
            true => accounts.quota(space.owner, space.objects, id)?,
            false => accounts.used(space.owner, space.objects, id)?,
        };
        Ok(Some((Value::Number(number), Source::Local)))
    }

    /// `written@SNAPSHOT` and `written#BOOKMARK`: what is referenced beyond it, and what was freed
    /// of it since.
    fn written_since(&mut self, entry: &Entry, origin: &str) -> Result<Option<(Value, Source)>> {
        if entry.kind == Kind::Snapshot && !origin.starts_with('@') {
            return Ok(None);
        }
        let (Some(sign), name) = (origin.chars().next(), origin.get(1..).unwrap_or_default())
        else {
            return Ok(None);
        };
        let base = entry.found.name.split('@').next().unwrap_or_default();
        let full = if name.contains(sign) { name.into() } else { format!("{base}{origin}") };
        let since = match sign {
            '@' => match lookup::find_in(self.pool.mos(), self.pool.name(), &full) {
                Ok(found) => Since::snapshot(&found),
                Err(PoolError::NoDataset { .. }) => return Ok(None),
                Err(e) => return Err(e),
            },
            _ => {
                let head = full.split('#').next().unwrap_or_default();
                let head = match self.entry(head) {
                    Ok(head) => head,
                    Err(PoolError::NoDataset { .. }) => return Ok(None),
                    Err(e) => return Err(e),
                };
                let marks = self.bookmarks(&head)?;
                let mark = marks.into_iter().find(|mark| mark.found.name == full);
                match mark.and_then(|mark| Since::bookmark(&mark)) {
                    Some(since) => since,
                    None => return Ok(None),
                }
            }
        };
        let bytes = self.written_after(&entry.found.phys, since)?;
        Ok(bytes.map(|bytes| (Value::Number(bytes), Source::Local)))
    }

    /// Bytes written to a data set since a point of its past; `None`: it is none of its past.
    fn written_after(&self, ds: &DslDatasetPhys, since: Since) -> Result<Option<u64>> {
        let mos = self.pool.mos();
        let mut freed = 0u64;
        let mut at = *ds;
        for _ in 0..WALK_MAX {
            let (previous, txg) = (at.prev_snap_object.get(), at.prev_snap_txg.get());
            let arrived = match since.object {
                Some(object) => previous == object,
                None => txg <= since.txg,
            };
            if arrived {
                // A bookmark is of the past of its own data set, and of clones from its snapshot on.
                let here = at.dir_object.get();
                let cloned =
                    txg == since.txg && mos.dataset(previous)?.dir_object.get() == since.dir;
                if here != since.dir && !cloned {
                    return Ok(None);
                }
                freed += match since.freed_before_next {
                    Some(freed) => freed,
                    None => self.freed_of(&at, since.txg)?,
                };
                let now = ds.referenced_bytes.get();
                return Ok(Some((now + freed).saturating_sub(since.referenced)));
            }
            if previous == 0 || txg < since.txg {
                return Ok(None);
            }
            freed += self.freed_of(&at, since.txg)?;
            at = mos.dataset(previous)?;
        }
        Ok(None)
    }

    fn origin(&mut self, dir: &DslDirPhys) -> Result<Option<(Value, Source)>> {
        let object = dir.origin_object.get();
        if object == 0 {
            return Ok(None);
        }
        let name = self.snapshot_name(object)?.filter(|name| !name.contains(ORIGIN_DIR_NAME));
        Ok(name.map(|name| (Value::text(name), Source::None)))
    }

    fn clones(&mut self, ds: &DslDatasetPhys) -> Result<Option<(Value, Source)>> {
        let object = ds.next_clones_object.get();
        if object == 0 {
            return Ok(None);
        }
        let mos = self.pool.mos();
        let mut names = Vec::new();
        for entry in mos.zap(object)?.entries()? {
            let Some(clone) = entry.value.as_u64() else { continue };
            let dir = mos.dataset(clone)?.dir_object.get();
            names.extend(self.dir_name(dir)?);
        }
        let text = names.join(",");
        Ok((!text.is_empty()).then(|| (Value::text(text), Source::None)))
    }

    /// A count that is kept only where a limit was set once.
    fn tally(&self, entry: &Entry, prop: Prop, key: &str) -> Result<Option<(Value, Source)>> {
        let mos = self.pool.mos();
        let object = mos.objset.object(entry.dir.object)?;
        if object.header()?.kind() == ObjectType::ZAP_METADATA
            && let Some(count) = mos.zap(entry.dir.object)?.get_u64(key.as_bytes())?
        {
            return Ok(Some((Value::Number(count), Source::Local)));
        }
        Ok(pool::props::default_value(prop).map(|value| (value, Source::Default)))
    }

    /// Where a file system would be mounted: the value that holds, and the way from where it was
    /// set to here.
    fn mountpoint(&self, entry: &Entry) -> Option<(Value, Source)> {
        let (value, source) = self.set_by_users(entry, &Key::Native(Prop::Mountpoint))?;
        let Value::Text(set) = &value else { return Some((value, source)) };
        if set.first() != Some(&b'/') {
            return Some((value, source));
        }
        let name = entry.found.name.as_str();
        let below = match &source {
            Source::Default => format!("/{name}"),
            Source::Inherited(from) => name.get(from.len()..).unwrap_or_default().to_string(),
            _ => String::new(),
        };
        // The root alone is no part of a longer path.
        let set: &[u8] = if *set == b"/" && !below.is_empty() { b"" } else { set };
        let mut path = self.altroot.clone().filter(|root| root != b"/").unwrap_or_default();
        path.extend_from_slice(set);
        path.extend_from_slice(below.as_bytes());
        Some((Value::Text(path), source))
    }

    /// What was fixed when the object set was made.
    fn fixed(&self, entry: &Entry, prop: Prop) -> Option<(Value, Source)> {
        let number = match (&entry.fixed, prop) {
            (Fixed::Filesystem { version, .. }, Prop::Version) => *version,
            (Fixed::Filesystem { utf8_only, .. }, Prop::Utf8only) => *utf8_only,
            (Fixed::Filesystem { normalization, .. }, Prop::Normalization) => *normalization,
            (Fixed::Filesystem { case, .. }, Prop::Casesensitivity) => *case,
            (Fixed::Volume { size, .. }, Prop::Volsize) => {
                return Some((Value::Number(*size), Source::Local));
            }
            (Fixed::Volume { block_size, .. }, Prop::Volblocksize) => {
                let usual = pool::props::default_value(prop) == Some(Value::Number(*block_size));
                let source = if usual { Source::Default } else { Source::None };
                return Some((Value::Number(*block_size), source));
            }
            _ => return None,
        };
        Some((Value::Number(number), Source::None))
    }

    /// What encryption there is: seen, not used.
    fn encryption(&mut self, entry: &Entry, prop: Prop) -> Result<Option<(Value, Source)>> {
        let mos = self.pool.mos();
        let Some(key) = self.crypto_key(entry.dir.object)? else {
            return Ok(match prop {
                Prop::Keystatus | Prop::Encryptionroot => None,
                _ => pool::props::default_value(prop).map(|value| (value, Source::Default)),
            });
        };
        let zap = mos.zap(key)?;
        let root = zap.get_u64(b"DSL_CRYPTO_ROOT_DDOBJ")?.unwrap_or(0);
        // What turns a passphrase into a key is kept where the key is set.
        let of_root = |name: &[u8]| match self.crypto_key(root)? {
            Some(key) => Ok::<_, PoolError>(mos.zap(key)?.get_u64(name)?),
            None => Ok(None),
        };
        let number = match prop {
            Prop::Encryption => zap.get_u64(b"DSL_CRYPTO_SUITE")?,
            // No key is ever loaded here.
            Prop::Keystatus => Some(1),
            Prop::Encryptionroot => {
                let name = self.dir_name(root)?;
                return Ok(name.map(|name| (Value::text(name), Source::None)));
            }
            other => of_root(other.name().as_bytes())?,
        };
        Ok(number.map(|number| (Value::Number(number), Source::None)))
    }

    /// The object of a directory's key.
    fn crypto_key(&self, dir: u64) -> Result<Option<u64>> {
        let mos = self.pool.mos();
        if mos.objset.object(dir)?.header()?.kind() != ObjectType::ZAP_METADATA {
            return Ok(None);
        }
        Ok(mos.zap(dir)?.get_u64(DIR_CRYPTO_KEY_OBJECT.as_bytes())?)
    }
}

/// A property of a bookmark. What it references is known of newer ones only.
fn bookmark(entry: &Entry, prop: Prop) -> Option<(Value, Source)> {
    let phys = &entry.found.phys;
    let sized = phys.flags.get() != 0;
    let number = match prop {
        Prop::Creation => phys.creation_time_secs.get(),
        Prop::Createtxg => phys.creation_txg.get(),
        Prop::Guid => phys.guid.get(),
        Prop::Referenced if sized => phys.referenced_bytes.get(),
        Prop::Logicalreferenced if sized => phys.uncompressed_bytes.get(),
        _ => return None,
    };
    Some((Value::Number(number), Source::None))
}
