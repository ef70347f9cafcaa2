//! What the intent log of a file system or volume holds that no txg has, done again.
//!
//! The one idea: all of it is read first, the data that a record only points to as well; then it is done
//! through the same changes that any door makes, but with the numbers and times that were given then.
//! So it can be done on a pool whose devices keep writes in memory, and whose free space may hold the
//! very log; and on one that is written, where the header says with each txg how far it is done.
//! FORMAT: sections 12.3 and 12.4.

use std::collections::BTreeMap;

use dmu::DmuError;
use format::dnode::DNODES_PER_BLOCK;
use format::zil::{Create, LogBlock, RawRecord, Record, RecordKind, Setattr, SetattrMask, Write};
use format::znode::Pflags;
use pool::{IntentLog, Pool, PoolError};
use rt::sync::Arc;
use rt::sync::atomic::Ordering;

use crate::attrs::mode;
use crate::error::{FsError, Result, shown};
use crate::filesystem::Filesystem;
use crate::names::entry_value;
use crate::new::{Given, NewObject, Who};
use crate::{Time, Volume};

/// The most that is read of a log, and the most data that its records lead to, in bytes each. A log of ours has some
/// 70 MiB at most: no commit begins beyond 48, and the last one brings what was waiting.
const LOG_MAX: usize = 96 << 20;
/// Numbers of objects that are believed.
const NUMBER_MAX: u64 = 1 << 40;

/// Works off the intent logs of a pool that was opened for writing. What is left are logs that cannot be done again, or not
/// to their end: they stay as they are, and their data sets read-only, with this for a reason.
///
/// # Errors
/// What keeps the pool from being written at all.
pub fn replay_logs(pool: &Arc<Pool>) -> Result<Vec<FsError>> {
    let mut left = Vec::new();
    for name in pool.logs_to_replay() {
        if let Err(why) = replay_log(pool, &name) {
            let reason = format!("its intent log has not been replayed: {why}; {}", advice(&why));
            pool.leave_log(&name, &reason)?;
            left.push(FsError::ReadOnly { name, reason });
        }
    }
    Ok(left)
}

/// What to do about a log that cannot be replayed.
fn advice(why: &FsError) -> &'static str {
    match why {
        FsError::NoSpace { .. }
        | FsError::QuotaExceeded { .. }
        | FsError::Pool(PoolError::NoSpace { .. } | PoolError::QuotaExceeded { .. }) => {
            "make room for what it holds, and open the pool for writing anew"
        }
        _ => "import the pool with OpenZFS once to have it replayed, and export it there",
    }
}

fn replay_log(pool: &Arc<Pool>, name: &str) -> Result<()> {
    let replay = Replay::read(pool, name)?;
    let dataset = pool.begin_replay(name)?;
    if let Some(replay) = replay {
        match Volume::open(pool, name)? {
            Some(volume) => replay.apply_volume(pool, &volume)?,
            None => replay.apply(&Filesystem::open(pool, name)?)?,
        }
    }
    Ok(pool.end_replay(&dataset)?)
}

/// What is to be done again.
pub struct Replay {
    name: String,
    log: IntentLog,
    /// Blocks of data that records only point to, by the number of the record.
    data: BTreeMap<u64, Vec<u8>>,
    records: usize,
}

impl Replay {
    /// Reads the intent log of a data set; `None` if it holds nothing that the pool has not.
    ///
    /// # Errors
    /// A log that is encrypted, too long, or damaged beyond where it ends.
    pub fn read(pool: &Pool, name: &str) -> Result<Option<Replay>> {
        let Some(log) = pool.intent_log(name, LOG_MAX)? else { return Ok(None) };
        let mut replay = Replay { name: name.into(), log, data: BTreeMap::new(), records: 0 };
        let (mut data, mut records, mut left) = (BTreeMap::new(), 0, LOG_MAX as u64);
        replay.each(|raw, record| {
            records += 1;
            replay.is_replayed(raw, &record)?;
            let Record::Write(Write { pointer, data: None, .. }) = &record else { return Ok(()) };
            if raw.kind == RecordKind::Write2 {
                return Ok(());
            }
            let too_much = || replay.wrong(raw, "leads to more data than is held here");
            left = left.checked_sub(pointer.lsize()).ok_or_else(too_much)?;
            // A block of zeros was never written, and its length is known all the same.
            let block = match pointer.is_hole() {
                true => vec![0; pointer.lsize() as usize],
                false => pool.store().read(pointer).map_err(PoolError::from)?.to_vec(),
            };
            data.insert(raw.seq, block);
            Ok(())
        })?;
        (replay.data, replay.records) = (data, records);
        Ok((records > 0).then_some(replay))
    }

    /// How many records there are to be done again.
    pub fn len(&self) -> usize {
        self.records
    }

    /// Is there nothing to be done?
    pub fn is_empty(&self) -> bool {
        self.records == 0
    }

    /// Calls `f` with each record that is not in the pool yet.
    fn each(&self, mut f: impl FnMut(&RawRecord<'_>, Record<'_>) -> Result<()>) -> Result<()> {
        let damaged = |source| FsError::Damaged { name: self.name.clone(), object: 0, source };
        for block in &self.log.blocks {
            for raw in LogBlock::parse(block).map_err(damaged)?.records() {
                let raw = raw.map_err(damaged)?;
                let open = raw.seq > self.log.replayed_seq && raw.seq <= self.log.last_seq;
                if open && raw.txg >= self.log.first_txg {
                    f(&raw, raw.decode().map_err(damaged)?)?;
                }
            }
        }
        Ok(())
    }

    fn wrong(&self, raw: &RawRecord<'_>, what: &str) -> FsError {
        let (kind, seq) = (raw.kind, raw.seq);
        let reason = format!("record {seq} of its intent log ({kind:?}) {what}");
        FsError::NotAFilesystem { name: self.name.clone(), reason }
    }

    /// Is a record of a kind that is done again here?
    fn is_replayed(&self, raw: &RawRecord<'_>, record: &Record<'_>) -> Result<()> {
        match record {
            Record::Create(create) if create.xvattr.is_some() || create.acl.is_some() => {
                Err(self.wrong(raw, "has attributes that are not replayed here"))
            }
            Record::Setattr(set) if set.xvattr.is_some() => {
                Err(self.wrong(raw, "has attributes that are not replayed here"))
            }
            Record::Create(_) | Record::Remove { .. } | Record::Link { .. } => Ok(()),
            Record::Rename { .. } | Record::Write(_) | Record::Truncate { .. } => Ok(()),
            Record::Setattr(_) => Ok(()),
            _ => Err(self.wrong(raw, "is of a kind that is not replayed here")),
        }
    }

    /// Does everything again in a file system.
    pub fn apply(&self, fs: &Filesystem) -> Result<()> {
        let _replays = Replays::of(fs);
        self.each(|raw, record| {
            // What is one change must not be done twice, and is counted with it. (The kernel, going on from here,
            // would give a file that has its size already that of the whole block of the record.)
            let many = matches!(record, Record::Truncate { .. } | Record::Setattr(_));
            let at = (raw.seq, !many);
            fs.pool().replay_record(fs.dataset(), at, || match record {
                Record::Create(create) => self.create(fs, raw, &create),
                Record::Remove { directory, name } => remove(fs, directory, name),
                Record::Link { directory, object, name } => fs.link(directory, name, object),
                Record::Rename { from, to, name, new_name } => fs.rename(from, name, to, new_name),
                Record::Write(write) => self.write(fs, raw, &write),
                Record::Truncate { object, offset, length } => {
                    unless_gone(truncate(fs, object, offset, length))
                }
                Record::Setattr(set) => unless_gone(setattr(fs, &set)),
                record => self.is_replayed(raw, &record),
            })
        })
    }

    /// Does everything again in a volume.
    pub fn apply_volume(&self, pool: &Pool, volume: &Volume) -> Result<()> {
        self.each(|raw, record| {
            pool.replay_record(volume.dataset(), (raw.seq, false), || match record {
                Record::Write(write) => match self.bytes(raw, &write)? {
                    Some((offset, data)) => volume.replay_write(pool, offset, data),
                    None => Ok(()),
                },
                Record::Truncate { offset, length, .. } => volume.punch_hole(pool, offset, length),
                _ => Err(self.wrong(raw, "is not one of a volume")),
            })
        })
    }

    /// What a write wrote, and where; `None`: it came with an earlier one. Where the data is a block of its own
    /// that is all of it: it holds what later writes wrote to the same block as well, and those need not have a
    /// record with data, or any.
    fn bytes<'a>(
        &'a self,
        raw: &RawRecord<'_>,
        write: &Write<'a>,
    ) -> Result<Option<(u64, &'a [u8])>> {
        if let Some(data) = write.data {
            return Ok(Some((write.offset, data)));
        }
        let Some(block) = self.data.get(&raw.seq) else { return Ok(None) };
        let length = block.len() as u64;
        if length == 0 || write.offset % length > length.saturating_sub(write.length) {
            return Err(self.wrong(raw, "is longer than its data"));
        }
        Ok(Some((write.offset - write.offset % length, block)))
    }

    fn write(&self, fs: &Filesystem, raw: &RawRecord<'_>, write: &Write<'_>) -> Result<()> {
        let end = write.offset.checked_add(write.length);
        let Some(end) = end.filter(|end| *end <= i64::MAX as u64) else {
            return Err(self.wrong(raw, "ends beyond what a file can be"));
        };
        let (offset, data) = self.bytes(raw, write)?.unwrap_or((write.offset, &[]));
        unless_gone(fs.write_again(write.object, (offset, data), end))
    }

    /// Makes an object again under its number.
    fn create(&self, fs: &Filesystem, raw: &RawRecord<'_>, create: &Create<'_>) -> Result<()> {
        let (number, slots) = (create.object, u64::from(create.slots));
        let slot = number % DNODES_PER_BLOCK;
        if slot + slots > DNODES_PER_BLOCK {
            return Err(self.wrong(raw, "makes an object beyond its block"));
        }
        if (number - slot..number + slots).any(|number| fs.objset.is_going(number)) {
            // Whoever had that number has to be gone from the disk first.
            fs.pool().sync()?;
        }
        if number == 0 || number > NUMBER_MAX || !fs.objset.are_free(number, slots)? {
            return Err(self.wrong(raw, "makes an object that is there"));
        }
        let hidden_dir = raw.kind == RecordKind::MkXattr;
        let _lock = fs.lock(create.directory);
        let parent = fs.attrs(create.directory)?;
        let in_hidden = parent.flags & Pflags::XATTR != 0;
        let who = Who { uid: create.uid, gid: create.gid };
        let new = NewObject {
            target: create.target,
            rdev: create.rdev,
            flags: if hidden_dir || in_hidden { Pflags::XATTR } else { 0 },
            ..NewObject::of(create.mode as u32, who)
        };
        let kind = new.mode & mode::TYPE;
        let is_kind = match kind {
            mode::DIR => true,
            _ if hidden_dir => false,
            mode::SYMLINK => create.target.is_some(),
            kind => [mode::FILE, mode::FIFO, mode::SOCKET, mode::BLOCK, mode::CHAR].contains(&kind),
        };
        if !is_kind {
            return Err(self.wrong(raw, "makes an object of no kind"));
        }
        // Attributes have other names than files; where they are is not found by name.
        let is_name = match in_hidden {
            true => !create.name.is_empty(),
            false => hidden_dir || fs.check_name(create.name).is_ok(),
        };
        if !is_name {
            return Err(self.wrong(raw, "gives it no name"));
        }
        let [seconds, nanos] = create.crtime;
        let given = Given {
            number,
            slots: slots as u8,
            gen_txg: create.generation,
            time: Time { secs: seconds as i64, nanos: nanos.min(999_999_999) as u32 },
        };
        let tx = fs.enter(create.name.len() as u64)?;
        if hidden_dir {
            let made = fs.make_as(&tx, create.directory, &new, fs.contents(&[]), Some(given))?;
            let mut attrs = parent;
            attrs.xattr_object = Some(made.number());
            return fs.set_attrs(&tx, &fs.object(create.directory)?, &attrs);
        }
        if fs.lookup(create.directory, create.name)?.is_some() {
            return Err(FsError::Exists { path: shown(create.name) });
        }
        let made = fs.make_as(&tx, create.directory, &new, fs.contents(&[]), Some(given))?;
        let zap = fs.directory(create.directory)?;
        let named = zap.put_u64(&tx, create.name, entry_value(made.number(), kind));
        named.inspect_err(|_| fs.unmake(&tx, &made, None))?;
        if in_hidden {
            return fs.count_hidden(&tx, create.directory, 1);
        }
        fs.count_entries(&tx, zap.object(), 1, i64::from(kind == mode::DIR))
    }
}

/// As long as it is there a file system is one in which things are done again.
struct Replays<'a>(&'a Filesystem);

impl<'a> Replays<'a> {
    fn of(fs: &'a Filesystem) -> Replays<'a> {
        fs.shared.replays.store(true, Ordering::Relaxed);
        Replays(fs)
    }
}

impl Drop for Replays<'_> {
    fn drop(&mut self) {
        self.0.shared.replays.store(false, Ordering::Relaxed);
    }
}

/// An object may have been removed by what came into the log earlier and happened later.
fn unless_gone(done: Result<()>) -> Result<()> {
    match done {
        Err(FsError::Dmu(DmuError::NoObject { .. })) => Ok(()),
        done => done,
    }
}

fn remove(fs: &Filesystem, directory: u64, name: &[u8]) -> Result<()> {
    let found = fs.must_find(directory, name)?;
    if fs.attrs(directory)?.flags & Pflags::XATTR != 0 {
        let tx = fs.enter(0)?;
        return fs.remove_hidden(&tx, directory, &found.name, found.object);
    }
    match found.kind {
        mode::DIR => fs.rmdir(directory, name),
        _ => fs.unlink(directory, name),
    }
}

fn truncate(fs: &Filesystem, object: u64, offset: u64, length: u64) -> Result<()> {
    let end = offset.saturating_add(length).min(i64::MAX as u64);
    if length == 0 {
        return fs.truncate(object, end);
    }
    if end > fs.attrs(object)?.size {
        fs.truncate(object, end)?;
    }
    fs.punch_hole(object, offset, length)
}

fn setattr(fs: &Filesystem, set: &Setattr) -> Result<()> {
    let is_set = |bit| set.mask & bit != 0;
    if is_set(SetattrMask::SIZE) {
        fs.truncate(set.object, set.size.min(i64::MAX as u64))?;
    }
    let time = |[seconds, nanos]: [u64; 2]| Time {
        secs: seconds as i64,
        nanos: nanos.min(999_999_999) as u32,
    };
    fs.change_attrs(set.object, |attrs| {
        if is_set(SetattrMask::MODE) {
            attrs.set_mode(set.mode as u32);
        }
        if is_set(SetattrMask::UID) {
            attrs.uid = set.uid;
        }
        if is_set(SetattrMask::GID) {
            attrs.gid = set.gid;
        }
        if is_set(SetattrMask::ATIME) {
            attrs.atime = time(set.atime);
        }
        if is_set(SetattrMask::MTIME) {
            attrs.mtime = time(set.mtime);
        }
        attrs.ctime = crate::attrs::now();
    })
}
