//! What each request does.

use format::dirent::FileType;
use format::znode::Time;
use fs::{Algorithm, FsError, NewObject, Object, Setattr, When, Who, Znode, code, mode};
use rt::buf::PooledBuf;
use rt::sync::Arc;
use wire::{Entry, Open, Reply, Request, Space, Stat, Subject, Target};

use super::access::{self, READ, SET_GID, THROUGH, WRITE};
use super::broken;
use super::handles::{Handle, Session};
use super::lane::Supply;
use super::leases::lease;
use super::reads::{Bulk, memory_for, read, read_all, read_whole};
use super::tree::{
    Found, Parent, Place, Reached, Result, again, denied, fail, missing, shown, told,
};

/// Entries of one answer, at most.
const ENTRIES_MAX: usize = 256;
/// The place in a listing at which the file systems in a directory begin, after its entries. The place of each next one is one
/// less. No entry of a directory has a place as high as these.
const FILE_SYSTEMS: u64 = u64::MAX;
/// How many places there are for file systems.
const FILE_SYSTEMS_MAX: u64 = 1 << 20;
/// How a file is opened that is put as a whole.
const PUT: Open = Open { read: false, write: true, create: true, truncate: true, ..Open::READ };
/// The longest value of an extended attribute, in bytes: Linux takes none that is longer.
const VALUE_MAX: usize = 64 << 10;
/// Permissions and set-id and sticky bits.
const PERMISSIONS: u32 = 0o7777;

/// Where the bulk bytes of a request go.
pub(super) struct Goal {
    pub(super) handle: Arc<Handle>,
    /// In bytes.
    pub(super) offset: u64,
}

/// Finds it, before the bytes are taken. `None`: what is asked comes without.
pub(super) fn goal(session: &Session, request: &Request) -> Result<Option<Goal>> {
    match request {
        Request::Write { handle, offset, .. } => {
            Ok(Some(Goal { handle: writable(session, *handle)?, offset: *offset }))
        }
        Request::Put { who, path, how, mode, .. } => {
            let how = Open { new: how.new, parents: how.parents, digests: how.digests, ..PUT };
            let (handle, ..) = open(session, who, path, how, *mode)?;
            Ok(Some(Goal { handle: Arc::new(handle), offset: 0 }))
        }
        _ => Ok(None),
    }
}

/// Does what was asked for.
pub(super) fn answer(
    session: &Session,
    request: Request,
    goal: Option<Goal>,
    bulk: Vec<PooledBuf>,
    supply: Supply<'_>,
) -> Result<(Reply, Option<Bulk>)> {
    if let Some(goal) = &goal {
        write(goal, bulk)?;
    }
    let reply = match request {
        Request::Open { who, path, how, mode } => {
            let room = session.room()?;
            let (handle, stat, kept_since_ms) = open(session, &who, &path, how, mode)?;
            let is_wanted = how.soon && how.read && !how.write;
            let whole = is_wanted.then(|| read_whole(&handle, stat.size, supply)).flatten();
            let (mark, bulk) = whole.unzip();
            let handle = room.keep(handle);
            return Ok((Reply::Opened { handle, stat, kept_since_ms, whole: mark }, bulk));
        }
        Request::Close { handle, stable } => {
            if stable {
                // Of what is not open nobody is told that it is stable.
                let open = session.handle(handle)?;
                if open.write {
                    sync(&open)?;
                }
            }
            drop(session.close(handle));
            Reply::Done
        }
        Request::Read { handle, offset, length } => {
            let handle = readable(session, handle)?;
            return Ok((Reply::Bytes, Some(read(&handle, offset, length as usize, supply)?)));
        }
        Request::Lease { handle, offset, length, pieces_max, ended } => {
            session.leases.end(&ended, supply.shop);
            let handle = readable(session, handle)?;
            lease(session, &handle, (offset, length as usize, pieces_max as usize), supply)?
        }
        Request::EndLeases { leases } => {
            session.leases.end(&leases, supply.shop);
            Reply::Done
        }
        Request::ReadAll { handle, pieces } => {
            let bulk = read_all(&*readable(session, handle)?, &pieces, supply)?;
            return Ok((Reply::Bytes, Some(bulk)));
        }
        Request::Get { who, path, length } => {
            let (handle, mut seen, _) = open(session, &who, &path, Open::READ, 0)?;
            let bulk = read(&handle, 0, length as usize, supply)?;
            if bulk.length() as u64 > seen.size {
                // It has grown meanwhile.
                seen = stat(&handle.place)?;
            }
            return Ok((Reply::Got(seen), Some(bulk)));
        }
        Request::Write { stable, .. } | Request::Put { stable, .. } => {
            if let Some(goal) = goal.filter(|_| stable) {
                sync(&goal.handle)?;
            }
            if let Request::Write { handle, close: true, .. } = request {
                drop(session.close(handle));
            }
            Reply::Done
        }
        Request::Sync { handle } => {
            sync(&*session.handle(handle)?)?;
            Reply::Done
        }
        Request::Truncate { who, of, size } => {
            let file = changeable(session, &who, &of)?;
            if size > i64::MAX as u64 {
                return fail(code::FBIG, "File too large");
            }
            if who.uid != 0 {
                disarm(&file.place)?;
            }
            file.place.fs.truncate(file.place.object, size).map_err(told)?;
            Reply::Done
        }
        Request::StatOpen { handle } => Reply::Stat(stat(&session.handle(handle)?.place)?),
        Request::Stat { who, path, follow } => Reply::Stat(again(|| {
            let found = session.tree.find(&who, &path, follow)?;
            let stat = stat(&found.place)?;
            session.tree.confirm(&found).map(|()| stat)
        })?),
        Request::List { who, path, from } => again(|| list(session, &who, &path, from))?,
        Request::Mkdir { who, path, mode, parents } => {
            again(|| make_directory(session, &who, &path, mode, parents))?;
            Reply::Done
        }
        Request::Unlink { who, path } => {
            again(|| {
                let (dir, _, name) = removable(session, &who, &path)?;
                dir.fs.unlink(dir.object, name).map_err(told)
            })?;
            Reply::Done
        }
        Request::Rmdir { who, path } => {
            again(|| {
                let (dir, _, name) = removable(session, &who, &path)?;
                dir.fs.rmdir(dir.object, name).map_err(told)
            })?;
            Reply::Done
        }
        Request::Rename { who, from, to } => {
            again(|| rename(session, &who, &from, &to))?;
            Reply::Done
        }
        Request::Chmod { who, of, mode } => {
            let file = owned(session, &who, &of)?;
            let given = |attrs: &fs::Attrs| access::given_by(&who, attrs.gid, mode & PERMISSIONS);
            let Place { fs, object } = &file.place;
            fs.change_mode(*object, given).map_err(told)?;
            Reply::Done
        }
        Request::SetTimes { who, of, atime, mtime } => {
            let file = owned(session, &who, &of)?;
            let at = |time: Option<(i64, u32)>| {
                time.map(|(secs, nanos)| When::At(Time { secs, nanos: nanos.min(999_999_999) }))
            };
            let set = Setattr { atime: at(atime), mtime: at(mtime), ..Setattr::default() };
            change(&file, &set)?;
            Reply::Done
        }
        Request::GetXattr { who, of, name } => {
            let file = with(session, &who, &of, READ)?;
            let Place { fs, object } = &file.place;
            if is_hidden(&name, &who) {
                return fail(code::NODATA, "No data available");
            }
            let value = match Algorithm::of_attribute(&name) {
                // A stored digest may be of older contents: this one is of those that are there now.
                Some(algorithm) => match fs.digest_kept(*object, algorithm) {
                    Ok(None) => {
                        let _memory = memory_for(&file, fs::DIGEST_PIECE, supply);
                        fs.digest(*object, algorithm)
                    }
                    kept => kept,
                },
                None => fs.xattr(*object, &name),
            };
            match value.map_err(told)? {
                Some(value) => Reply::Value(value),
                None => return fail(code::NODATA, "No data available"),
            }
        }
        Request::SetXattr { who, of, name, value } => {
            check_attribute(&name, value.as_deref())?;
            let file = changeable(session, &who, &of)?;
            if !name.starts_with(b"user.") && who.uid != 0 {
                return fail(code::PERM, "only attributes called user.* can be changed");
            }
            if !access::may_give_attributes(&who, &file.place.znode()?) {
                return fail(code::PERM, "Operation not permitted");
            }
            let Place { fs, object } = &file.place;
            fs.set_xattr(*object, &name, value.as_deref()).map_err(told)?;
            Reply::Done
        }
        Request::ListXattrs { who, of } => {
            let file = with(session, &who, &of, READ)?;
            let names = file.place.fs.xattr_names(file.place.object).map_err(told)?;
            Reply::Names(names.into_iter().filter(|name| !is_hidden(name, &who)).collect())
        }
        Request::Space { path } => {
            let place = session.tree.find(&Subject::ROOT, &path, true)?.place;
            let space = place.fs.space().map_err(told)?;
            let (used, free) = (space.referenced, space.available);
            Reply::Space(Space { total: used.saturating_add(free), free, used, quota: 0 })
        }
    };
    Ok((reply, None))
}

fn readable(session: &Session, number: u64) -> Result<Arc<Handle>> {
    let handle = session.handle(number)?;
    if handle.read { Ok(handle) } else { fail(code::BADF, "the file is not open for reading") }
}

fn writable(session: &Session, number: u64) -> Result<Arc<Handle>> {
    let handle = session.handle(number)?;
    if handle.write { Ok(handle) } else { fail(code::BADF, "the file is not open for writing") }
}

/// The object meant, if `who` may do `want` with it; what is open was asked about when it was opened. It is kept
/// meanwhile: what is done is done to what was asked about, and to nothing that got its number since.
fn with(session: &Session, who: &Subject, of: &Target, want: u32) -> Result<Arc<Handle>> {
    match of {
        Target::Handle(number) if want & READ != 0 => readable(session, *number),
        Target::Handle(number) => session.handle(*number),
        Target::Path(path) => {
            let handle = again(|| held(session, who, path))?;
            match access::may(who, &handle.place.znode()?, want) {
                true => Ok(Arc::new(handle)),
                false => denied(path),
            }
        }
    }
}

/// What a path leads to, kept.
fn held(session: &Session, who: &Subject, path: &[u8]) -> Result<Handle> {
    Handle::of(&session.tree, session.tree.find(who, path, true)?)
}

/// The same, to be written.
fn changeable(session: &Session, who: &Subject, of: &Target) -> Result<Arc<Handle>> {
    match of {
        Target::Handle(number) => writable(session, *number),
        Target::Path(_) => with(session, who, of, WRITE),
    }
}

/// The same, to be changed as only its owner may.
fn owned(session: &Session, who: &Subject, of: &Target) -> Result<Arc<Handle>> {
    let file = with(session, who, of, 0)?;
    match access::owns(who, &file.place.znode()?) {
        true => Ok(file),
        false => fail(code::PERM, "Operation not permitted"),
    }
}

fn change(file: &Handle, set: &Setattr) -> Result<()> {
    file.place.fs.setattr(file.place.object, set).map_err(told)
}

fn disarm(place: &Place) -> Result<()> {
    place.fs.disarm(place.object).map_err(told)
}

/// Refuses an attribute that nobody could set through a mount.
fn check_attribute(name: &[u8], value: Option<&[u8]>) -> Result<()> {
    if [&b"user."[..], b"trusted.", b"security."].contains(&name) {
        return fail(code::INVAL, format!("{}: Invalid argument", shown(name)));
    }
    match value.is_some_and(|value| value.len() > VALUE_MAX) {
        true => fail(code::TOOBIG, format!("{}: Argument list too long", shown(name))),
        false => Ok(()),
    }
}

/// Is the attribute none of his business?
fn is_hidden(name: &[u8], who: &Subject) -> bool {
    who.uid != 0 && name.starts_with(b"trusted.")
}

/// Puts what was written on stable storage, the digests of it first: they go with the same txg, if it comes to one.
fn sync(handle: &Handle) -> Result<()> {
    let Place { fs, object } = &handle.place;
    if handle.digests {
        // Without them nothing is missing that was promised.
        drop(fs.keep_digests(*object));
    }
    fs.fsync(*object).map_err(told)
}

/// Writes what came of bulk bytes.
fn write(goal: &Goal, bulk: Vec<PooledBuf>) -> Result<()> {
    let Goal { handle, offset } = goal;
    let length = bulk.iter().map(|piece| piece.len() as u64).sum();
    if offset.checked_add(length).is_none_or(|end| end > i64::MAX as u64) {
        return fail(code::FBIG, "File too large");
    }
    if handle.of_user {
        disarm(&handle.place)?;
    }
    handle.place.fs.write_given(handle.place.object, *offset, bulk).map_err(told)
}

/// Opens a file for somebody; with it its attributes, and since when nothing of its pool can have been lost, in
/// milliseconds since 1970.
fn open(
    session: &Session,
    who: &Subject,
    path: &[u8],
    how: Open,
    mode: u32,
) -> Result<(Handle, Stat, u64)> {
    // Kept first, and then asked about: what is asked about stays what it is.
    let Opening { mut handle, is_new, digests } =
        again(|| Opening::at(session, who, path, how, mode))?;
    let place = handle.place.clone();
    let kept_since_ms = session.tree.kept_since(&place);
    if ![0, kept_since_ms].contains(&how.kept_since_ms) {
        let why = "the server began anew meanwhile, and some of what was written may be lost";
        return fail(code::IO, format!("{}: {why}", shown(path)));
    }
    let (object, mut znode) = place.open()?;
    match znode.kind() {
        Some(FileType::File) => {}
        Some(FileType::Directory) => {
            return fail(code::ISDIR, format!("{}: Is a directory", shown(path)));
        }
        _ => return fail(code::NXIO, format!("{}: not a regular file", shown(path))),
    }
    let want = if how.read { READ } else { 0 } | if how.write { WRITE } else { 0 };
    if !is_new && !access::may(who, &znode, want) {
        return denied(path);
    }
    if how.write && !is_new {
        place.fs.may_be_written(place.object, true).map_err(told)?;
    }
    (handle.read, handle.write, handle.of_user) = (how.read, how.write, who.uid != 0);
    handle.unbroken = how.write && (how.unbroken || how.was_unbroken);
    if how.write && !is_new {
        if how.truncate {
            if handle.of_user {
                disarm(&place)?;
            }
            place.fs.truncate(place.object, 0).map_err(told)?;
        } else if how.unbroken {
            let (now, held_for) = (rt::time::wall_clock(), session.tree.held_for(&place));
            if broken::may_be(znode.ctime, now, held_for)
                || session.left.may_be_broken(&place, znode.ctime, now)
            {
                let why = "the server began anew, or who wrote it went away, soon after it was \
                           changed, and some of it may be lost; write it anew, or touch it if it \
                           is whole";
                return fail(code::IO, format!("{}: {why}", shown(path)));
            }
            // Not by its mode, which somebody may change just now, and which would take its list of who may do what away.
            let touch = Setattr { atime: Some(When::At(znode.atime)), ..Setattr::default() };
            change(&handle, &touch)?;
        }
        if how.unbroken {
            // Should all that follows be lost, the file must not look as nobody had touched it.
            place.fs.fsync(place.object).map_err(told)?;
        }
        znode = place.znode()?;
    }
    if digests {
        place.fs.watch(place.object).map_err(told)?;
        handle.digests = true;
    }
    let stat = stat_of(&place, &object, &znode)?;
    Ok((handle, stat, kept_since_ms))
}

/// A file that is about to be open.
struct Opening {
    handle: Handle,
    is_new: bool,
    /// Its digests are to be made.
    digests: bool,
}

impl Opening {
    /// What a path leads to; a new file, if there is none and `how` says so.
    fn at(session: &Session, who: &Subject, path: &[u8], how: Open, mode: u32) -> Result<Opening> {
        // Nothing new is made where a link leads.
        let is_to_be_new = how.new && how.create;
        match session.tree.reach(who, path, !is_to_be_new) {
            Ok(Reached::There(_)) if is_to_be_new => {
                fail(code::EXIST, format!("{}: File exists", shown(path)))
            }
            Ok(Reached::There(found)) => Opening::of(session, found, how),
            Ok(Reached::Short(dir, above, name)) if how.create => {
                let digests = makes_digests(session, &dir, how)?;
                match make_file(who, path, (dir, *above, &name), mode) {
                    // Somebody was faster: his is as good, if it need not be new.
                    Err(failure) if failure.errno == code::EXIST && !how.new => {
                        Opening::of(session, session.tree.find(who, path, true)?, how)
                    }
                    made => Ok(Opening { handle: made?, is_new: true, digests }),
                }
            }
            Ok(Reached::Short(..)) => missing(path),
            Err(failure) if failure.errno == code::NOENT && how.create && how.parents => {
                let cut = path.iter().rposition(|byte| *byte == b'/').unwrap_or(0);
                make_directory(session, who, &path[..cut], 0o755, true)?;
                Opening::at(session, who, path, Open { parents: false, ..how }, mode)
            }
            Err(failure) => Err(failure),
        }
    }

    fn of(session: &Session, found: Found, how: Open) -> Result<Opening> {
        let digests = makes_digests(session, &found.place, how)?;
        Ok(Opening { handle: Handle::of(&session.tree, found)?, is_new: false, digests })
    }
}

/// Are digests to be made of what is opened in this file system? To be asked before anything is made or emptied: where the
/// pools have gone, the next server is asked for all of it.
fn makes_digests(session: &Session, of: &Place, how: Open) -> Result<bool> {
    match how.digests && how.write {
        true => session.tree.makes_digests(of),
        false => Ok(false),
    }
}

/// Makes a file, which is open then.
fn make_file(
    who: &Subject,
    path: &[u8],
    (dir, above, name): Parent<'_>,
    mode: u32,
) -> Result<Handle> {
    if !access::may(who, &above, WRITE | THROUGH) {
        return denied(path);
    }
    let new = made_in(&above, mode::FILE | mode & PERMISSIONS, who);
    let object = dir.fs.create_held(dir.object, name, &new).map_err(told)?;
    Ok(Handle::held(Place { fs: dir.fs, object }))
}

/// What somebody makes in a directory, with this mode.
fn made_in(dir: &Znode, mode: u32, who: &Subject) -> NewObject<'static> {
    let mut owner = Who { uid: who.uid.into(), gid: who.gid.into() };
    let mut mode = mode;
    if dir.permissions() & SET_GID != 0 {
        owner.gid = dir.gid;
        match mode & mode::TYPE {
            mode::DIR => mode |= SET_GID,
            _ => mode = access::given_by(who, owner.gid, mode),
        }
    }
    NewObject::of(mode, owner)
}

fn make_directory(
    session: &Session,
    who: &Subject,
    path: &[u8],
    mode: u32,
    parents: bool,
) -> Result<()> {
    if parents {
        for end in (0..path.len()).filter(|at| *at > 0 && path[*at] == b'/') {
            match make_directory(session, who, &path[..end], mode, false) {
                Err(failure) if failure.errno != code::EXIST && failure.errno != code::INVAL => {
                    return Err(failure);
                }
                _ => {}
            }
        }
    }
    let (dir, above, name) = session.tree.parent(who, path)?;
    if session.tree.enter(&dir, name)?.is_some() {
        return match parents && session.tree.find(who, path, true)?.place.znode()?.is_dir() {
            true => Ok(()),
            false => fail(code::EXIST, format!("{}: File exists", shown(path))),
        };
    }
    if !access::may(who, &above, WRITE | THROUGH) {
        return denied(path);
    }
    let new = made_in(&above, mode::DIR | mode & PERMISSIONS, who);
    match dir.fs.create(dir.object, name, &new) {
        Err(FsError::Exists { .. }) if parents => fail(code::STALE, "somebody was faster"),
        made => made.map(drop).map_err(told),
    }
}

/// The directory and name of what is to lose it.
fn removable<'p>(session: &Session, who: &Subject, path: &'p [u8]) -> Result<Parent<'p>> {
    let found = session.tree.parent(who, path)?;
    match holds_removable(session, who, &found, path)? {
        true => Ok(found),
        false => missing(path),
    }
}

/// Is there anything of this name in this directory? He must be allowed to take it from there.
fn holds_removable(
    session: &Session,
    who: &Subject,
    (dir, above, name): &Parent<'_>,
    path: &[u8],
) -> Result<bool> {
    let Some(place) = session.tree.enter(dir, name)? else { return Ok(false) };
    if place.fs.name() != dir.fs.name() {
        return fail(code::PERM, format!("{}: it is a file system", shown(path)));
    }
    match access::may_remove(who, above, &place.znode()?) {
        true => Ok(true),
        false => denied(path),
    }
}

fn rename(session: &Session, who: &Subject, from: &[u8], to: &[u8]) -> Result<()> {
    let (dir, _, name) = removable(session, who, from)?;
    let moved = session.tree.enter(&dir, name)?;
    // Once: the next time a link on the way may lead elsewhere.
    let goal = session.tree.parent(who, to)?;
    let (into, above, new_name) = &goal;
    if into.fs.name() != dir.fs.name() {
        return fail(code::XDEV, format!("{}: Invalid cross-device link", shown(to)));
    }
    if let Some(znode) =
        moved.filter(|_| dir.object != into.object).map(|m| m.znode()).transpose()?
        && znode.is_dir()
        && !access::may(who, &znode, WRITE)
    {
        // What is above it changes, and that is in it.
        return denied(from);
    }
    if !holds_removable(session, who, &goal, to)? && !access::may(who, above, WRITE | THROUGH) {
        return denied(to);
    }
    dir.fs.rename(dir.object, name, into.object, new_name).map_err(told)
}

fn list(session: &Session, who: &Subject, path: &[u8], from: u64) -> Result<Reply> {
    let dir = session.tree.find(who, path, true)?.place;
    let znode = dir.znode()?;
    if !znode.is_dir() {
        return fail(code::NOTDIR, format!("{}: Not a directory", shown(path)));
    }
    if !access::may(who, &znode, READ) {
        return denied(path);
    }
    // Who may read names alone is told of names alone.
    let goes = access::may(who, &znode, THROUGH);
    let below = session.tree.file_systems_in(&dir)?;
    let mut entries = Vec::new();
    let passed = FILE_SYSTEMS - from;
    if passed < FILE_SYSTEMS_MAX {
        let passed = passed as usize;
        let next = passed + ENTRIES_MAX;
        let is_last = next >= below.len();
        for (name, place) in below.into_iter().skip(passed).take(ENTRIES_MAX) {
            entries.push(Entry { name, stat: stat_below(place.as_ref(), goes)? });
        }
        return Ok(Reply::Entries(entries, (!is_last).then(|| FILE_SYSTEMS - next as u64)));
    }
    let found = dir.fs.list_dir(dir.object, from, ENTRIES_MAX).map_err(told)?;
    let last = found.last().map(|(_, next)| *next).filter(|_| found.len() == ENTRIES_MAX);
    for (entry, _) in found {
        // The directory that a file system stands in front of is not seen.
        if below.iter().any(|(name, _)| *name == entry.name) {
            continue;
        }
        let place = Place { fs: dir.fs.clone(), object: entry.object };
        if !goes {
            entries.push(Entry { name: entry.name, stat: kind_alone(&place, entry.kind) });
            continue;
        }
        let found = match stat(&place) {
            // It went away in between, or something else has its name now.
            Err(failure) if failure.errno == code::STALE => again(|| {
                let place = session.tree.enter(&dir, &entry.name)?;
                place.as_ref().map(stat).transpose()
            })?,
            // It cannot be read: it is there all the same, and so are the others.
            Err(failure) if failure.errno == code::IO => Some(kind_alone(&place, entry.kind)),
            found => Some(found?),
        };
        entries.extend(found.map(|stat| Entry { name: entry.name, stat }));
    }
    let next = last.or_else(|| (!below.is_empty()).then_some(FILE_SYSTEMS));
    Ok(Reply::Entries(entries, next))
}

/// What is told of a file system, if its directory may be gone through. One that cannot be read is there all the same.
fn stat_below(place: Option<&Place>, goes: bool) -> Result<Stat> {
    let Some(place) = place else { return Ok(Stat { mode: mode::DIR, ..Stat::default() }) };
    match goes.then(|| stat(place)).transpose() {
        Err(failure) if failure.errno != code::IO => Err(failure),
        Ok(Some(stat)) => Ok(stat),
        _ => Ok(kind_alone(place, mode::DIR)),
    }
}

/// What the name of something tells of it.
fn kind_alone(place: &Place, kind: u32) -> Stat {
    let device = place.fs.dataset().object;
    Stat { device, object: place.object, mode: kind, ..Stat::default() }
}

fn stat(place: &Place) -> Result<Stat> {
    let (object, znode) = place.open()?;
    stat_of(place, &object, &znode)
}

fn stat_of(place: &Place, object: &Object, znode: &Znode) -> Result<Stat> {
    let allocated = object.stat_bytes().map_err(|e| told(e.into()))?;
    let time = |time: Time| (time.secs, time.nanos);
    Ok(Stat {
        device: place.fs.dataset().object,
        object: place.object,
        generation: generation(znode),
        mode: znode.mode as u32,
        links: znode.links,
        uid: u32::try_from(znode.uid).unwrap_or(u32::MAX),
        gid: u32::try_from(znode.gid).unwrap_or(u32::MAX),
        size: znode.size,
        allocated,
        atime: time(znode.atime),
        mtime: time(znode.mtime),
        ctime: time(znode.ctime),
    })
}

/// What tells a file from all others of its number. The txg alone would not do: one that is lost with a server comes again, and
/// so do the numbers of objects that were made in it.
fn generation(znode: &Znode) -> u64 {
    let Time { secs, nanos } = znode.crtime;
    let made_nanos = secs.wrapping_mul(1_000_000_000).wrapping_add(nanos.into());
    znode.gen_txg.wrapping_add(made_nanos as u64)
}

#[cfg(test)]
mod tests;
