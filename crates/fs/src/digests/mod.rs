//! Digests of files (adler32, crc32c), made while they are written and kept where XRootD looks for them.
//!
//! The one idea: whoever changes contents takes what was kept of them away, in the same change; whoever asks gets
//! what was kept only if it names the state that the file is in. So a digest of other contents is never given, whoever
//! changed them. What is kept is no promise: no log tells it, and after a crash it may be missing.
//!
//! A file that is watched has the digests of its parts here (`parts.rs`), for as long as it is open.

mod parts;

use std::collections::BTreeMap;

use codec::digest::Digest;
use dmu::{Object, Tx};
use format::nvlist::{NvList, Value};
use format::sa::Attr;
use format::xrdcks::{self, Kept, State};
use rt::sync::atomic::{AtomicUsize, Ordering};
use rt::sync::{Arc, Mutex};

use crate::attrs::{self, Attrs, mode};
use crate::error::Result;
use crate::filesystem::{Filesystem, NAME_BYTES};
use crate::protected::Change;
use parts::{CELL, PARTS_MAX, Parts};

/// Bytes that are read at once to make a digest.
pub const DIGEST_PIECE: usize = CELL as usize;
/// Parts of the table, each with its lock.
const TABLES: usize = 16;
/// Entries of all files together, at most: some 3 MiB.
const ENTRIES_MAX: usize = 1 << 16;
/// What is read to complete the digests of a file that is closed, at most, in bytes. Of what needs more they are made
/// when they are asked for.
const READ_AT_CLOSE: u64 = 8 << 20;
/// How often it is tried again when a file changes meanwhile.
const ATTEMPTS: usize = 4;
/// Gaps that are looked at at once.
const GAPS_MAX: usize = PARTS_MAX;

/// A digest that can be asked for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Algorithm {
    /// RFC 1950.
    Adler32,
    /// RFC 3720.
    Crc32c,
}

const ALGORITHMS: [Algorithm; 2] = [Algorithm::Adler32, Algorithm::Crc32c];

impl Algorithm {
    /// The one that the extended attribute of this name is for.
    #[must_use]
    pub fn of_attribute(name: &[u8]) -> Option<Algorithm> {
        let name = name.strip_prefix(xrdcks::PREFIX)?;
        ALGORITHMS.into_iter().find(|algorithm| algorithm.name() == name)
    }

    fn name(self) -> &'static [u8] {
        match self {
            Algorithm::Adler32 => b"adler32",
            Algorithm::Crc32c => b"crc32c",
        }
    }

    fn attribute(self) -> Vec<u8> {
        [xrdcks::PREFIX, self.name()].concat()
    }

    fn value(self, of: &Digest) -> [u8; 4] {
        match self {
            Algorithm::Adler32 => of.adler32.to_be_bytes(),
            Algorithm::Crc32c => of.crc32c.to_be_bytes(),
        }
    }
}

/// A file that is watched.
#[derive(Default)]
struct Watched {
    users: u32,
    /// Counts the changes of its contents.
    version: u64,
    /// The version whose digests are kept.
    kept: u64,
    parts: Parts,
}

/// The files that are watched, by number.
pub(crate) struct Digests {
    tables: Vec<Mutex<BTreeMap<u64, Watched>>>,
    files: AtomicUsize,
    entries: AtomicUsize,
}

impl Default for Digests {
    fn default() -> Digests {
        Digests {
            tables: (0..TABLES).map(|_| Mutex::default()).collect(),
            files: AtomicUsize::new(0),
            entries: AtomicUsize::new(0),
        }
    }
}

impl Digests {
    fn table(&self, number: u64) -> &Mutex<BTreeMap<u64, Watched>> {
        &self.tables[number as usize % TABLES]
    }

    /// Calls `f` with what is known of a file, if it is watched.
    fn with<R>(&self, number: u64, f: impl FnOnce(&mut Watched) -> R) -> Option<R> {
        if self.files.load(Ordering::Acquire) == 0 {
            return None;
        }
        let mut table = self.table(number).lock();
        let watched = table.get_mut(&number)?;
        let before = watched.parts.count();
        let result = f(watched);
        self.count(before, watched.parts.count());
        Some(result)
    }

    fn count(&self, before: usize, after: usize) {
        self.entries.fetch_add(after, Ordering::AcqRel);
        self.entries.fetch_sub(before, Ordering::AcqRel);
    }

    /// For how many entries there is room in a file that has `here`.
    fn room(&self, here: usize) -> usize {
        let others = self.entries.load(Ordering::Acquire).saturating_sub(here);
        ENTRIES_MAX.saturating_sub(others)
    }

    fn is_watched(&self, number: u64) -> bool {
        self.with(number, |_| ()).is_some()
    }

    /// Bytes of a file have changed, to those of `parts`; `None`: to others. Its lock is held.
    fn changed(&self, number: u64, at: u64, end: u64, parts: Option<Vec<(u64, Digest)>>) {
        self.with(number, |watched| {
            watched.version += 1;
            match parts {
                None => watched.parts.forget(at, end),
                Some(parts) => {
                    for (at, part) in parts {
                        let room = self.room(watched.parts.count());
                        watched.parts.put(at, part, room);
                    }
                }
            }
        });
    }

    /// These bytes were read, if the file is still as it was in `version`.
    fn learned(&self, number: u64, version: u64, at: u64, part: Digest) {
        self.with(number, |watched| {
            if watched.version == version {
                let room = self.room(watched.parts.count());
                watched.parts.put(at, part, room);
            }
        });
    }
}

/// What is about to be written, digested before its file is locked.
pub(crate) struct Written(Option<Vec<(u64, Digest)>>);

impl Filesystem {
    /// The digests of what is about to be written, if somebody wants them.
    pub(crate) fn digest_written(&self, number: u64, at: u64, data: &[u8]) -> Written {
        let wanted = self.shared.digests.is_watched(number);
        Written(wanted.then(|| parts::cut(at, data)))
    }

    /// It was written, in the change that has just been made; or that failed, and nobody knows.
    pub(crate) fn note_written(&self, number: u64, at: u64, end: u64, what: Written, done: bool) {
        let parts = what.0.filter(|_| done);
        self.shared.digests.changed(number, at, end, parts);
    }

    /// Bytes from `at` to `end` are zeros now, or beyond the end of the file.
    pub(crate) fn note_cut(&self, number: u64, at: u64, end: u64) {
        self.shared.digests.changed(number, at, end, None);
    }

    /// The contents of an object are about to change: what is kept of them goes in the same change.
    pub(crate) fn forget_digests(&self, tx: &Tx<'_>, object: &Arc<Object>) -> Result<()> {
        let (in_list, hidden) = self.places_of_digests(object)?;
        let is_one = |name: &[u8]| name.starts_with(xrdcks::PREFIX);
        if let Some(dir) = hidden {
            for entry in self.read_dir(dir)?.into_iter().filter(|entry| is_one(&entry.name)) {
                self.remove_hidden(tx, dir, &entry.name, entry.object)?;
            }
        }
        if !in_list {
            return Ok(());
        }
        let mut attrs = self.attrs_of(object)?;
        let parsed = attrs.xattrs.as_deref().map(NvList::parse);
        // In a list that cannot be read nobody finds anything.
        let Some(Ok(mut list)) = parsed else { return Ok(()) };
        let names: Vec<Vec<u8>> = list.pairs().iter().map(|pair| pair.name.clone()).collect();
        for name in names.iter().filter(|name| is_one(name)) {
            list.remove(name);
        }
        attrs.xattrs = match list.is_empty() {
            true => None,
            false => Some(list.to_xdr().map_err(|e| self.damaged(object.number(), e))?),
        };
        self.set_attrs(tx, object, &attrs)
    }

    /// Where an object may have digests: in its list of extended attributes; in which hidden directory.
    fn places_of_digests(&self, object: &Arc<Object>) -> Result<(bool, Option<u64>)> {
        let spill = object.spill()?;
        let layouts = self.shared.layouts.read();
        let found = object.with_header(|header| {
            let view = self.view(header, spill.as_deref().map(|bytes| &bytes[..]), &layouts)?;
            let list = view.get(Attr::Dxattr)?.unwrap_or_default();
            let in_list = list.windows(xrdcks::PREFIX.len()).any(|part| part == xrdcks::PREFIX);
            Ok((in_list, view.get_u64(Attr::Xattr)?.filter(|dir| *dir != 0)))
        })?;
        found.map_err(|e| self.damaged(object.number(), e))
    }

    fn state_of(&self, object: &Arc<Object>, attrs: &Attrs) -> Result<State> {
        Ok(State {
            size: attrs.size,
            mtime_secs: attrs.mtime.secs,
            mtime_nanos: attrs.mtime.nanos,
            txg: object.contents_txg()?,
        })
    }

    /// The record that is kept, if it is of the state that the file is in.
    fn kept_digest(
        &self,
        object: &Arc<Object>,
        attrs: &Attrs,
        algorithm: Algorithm,
    ) -> Result<Option<(Vec<u8>, Kept)>> {
        let list = attrs.xattrs.as_deref().map(NvList::parse);
        let Some(Ok(list)) = list else { return Ok(None) };
        let Some(Value::ByteArray(bytes)) = list.get(algorithm.attribute()) else {
            return Ok(None);
        };
        let Ok(kept) = xrdcks::parse(bytes) else { return Ok(None) };
        let is_right = kept.state == Some(self.state_of(object, attrs)?)
            && kept.algorithm == algorithm.name()
            && kept.value.len() == 4;
        Ok(is_right.then(|| (bytes.clone(), kept)))
    }

    /// All digests of a file that are kept of the state it is in.
    fn kept_digests(&self, object: &Arc<Object>, attrs: &Attrs) -> Result<Option<Digest>> {
        let mut digest = Digest { length: attrs.size, ..Digest::EMPTY };
        for algorithm in ALGORITHMS {
            let Some((_, kept)) = self.kept_digest(object, attrs, algorithm)? else {
                return Ok(None);
            };
            let value = u32::from_be_bytes(kept.value.try_into().unwrap_or_default());
            match algorithm {
                Algorithm::Adler32 => digest.adler32 = value,
                Algorithm::Crc32c => digest.crc32c = value,
            }
        }
        Ok(Some(digest))
    }

    /// From now on the digests of what is written to a file are made, until [`Filesystem::unwatch`] was called as
    /// many times. What is known of it by then goes on.
    ///
    /// # Errors
    /// There is no such file.
    pub fn watch(&self, number: u64) -> Result<()> {
        let _lock = self.lock(number);
        let object = self.object(number)?;
        let attrs = self.attrs_of(&object)?;
        let kept = self.kept_digests(&object, &attrs)?;
        let digests = &self.shared.digests;
        let mut table = digests.table(number).lock();
        let watched = table.entry(number).or_default();
        watched.users += 1;
        if watched.users == 1 {
            digests.files.fetch_add(1, Ordering::AcqRel);
            if let Some(kept) = kept {
                let room = digests.room(0);
                watched.parts.put(0, kept, room);
                digests.count(0, watched.parts.count());
            }
        }
        Ok(())
    }

    /// Ends what [`Filesystem::watch`] began. The last one keeps what came of it.
    pub fn unwatch(&self, number: u64) {
        // A digest is worth no error of a close: without it, it is made when it is asked for.
        drop(self.keep_digests(number));
        self.watch_no_more(number);
    }

    fn watch_no_more(&self, number: u64) {
        let digests = &self.shared.digests;
        let mut table = digests.table(number).lock();
        let Some(watched) = table.get_mut(&number) else { return };
        watched.users = watched.users.saturating_sub(1);
        if watched.users == 0 {
            digests.count(watched.parts.count(), 0);
            digests.files.fetch_sub(1, Ordering::AcqRel);
            table.remove(&number);
        }
    }

    /// Keeps the digests of a file that is watched and was changed, if little of it has to be read for that.
    ///
    /// # Errors
    /// What it cannot be read or changed for.
    pub fn keep_digests(&self, number: u64) -> Result<()> {
        let is_due = |watched: &mut Watched| watched.version > watched.kept;
        if self.shared.digests.with(number, is_due) == Some(true) {
            self.complete(number, READ_AT_CLOSE, |_, _| ())?;
        }
        Ok(())
    }

    /// Makes the digests of a watched file complete, at the price of reading so many bytes, and keeps them if it can be
    /// changed. Calls `told` with them, and with what they are of, while the file is locked.
    fn complete(
        &self,
        number: u64,
        bytes_max: u64,
        told: impl FnOnce(&Digest, &State),
    ) -> Result<()> {
        for _ in 0..ATTEMPTS {
            let Some(version) = self.shared.digests.with(number, |watched| watched.version) else {
                return Ok(());
            };
            if !self.fill_gaps(number, version, bytes_max)? {
                return Ok(());
            }
            let _lock = self.lock(number);
            let object = self.object(number)?;
            let mut attrs = self.attrs_of(&object)?;
            let whole = self.shared.digests.with(number, |watched| {
                let same = watched.version == version;
                same.then(|| watched.parts.whole(attrs.size)).flatten()
            });
            let Some(digest) = whole.flatten() else { continue };
            told(&digest, &self.state_of(&object, &attrs)?);
            // Who only reads does not change what nobody may.
            let may = self.permit(&attrs, Change::Attributes, format_args!("object {number}"));
            if self.can_change() && attrs.links > 0 && may.is_ok() {
                self.put_digest(&object, &mut attrs, &digest)?;
                self.shared.digests.with(number, |watched| watched.kept = version);
            }
            return Ok(());
        }
        Ok(())
    }

    /// Puts records of `digest` into the list of a file's extended attributes; no log tells it.
    fn put_digest(&self, object: &Arc<Object>, attrs: &mut Attrs, digest: &Digest) -> Result<()> {
        let damaged = |e| self.damaged(object.number(), e);
        let mut list = match &attrs.xattrs {
            Some(packed) => NvList::parse(packed).map_err(damaged)?,
            None => NvList::new(),
        };
        let (state, now) = (self.state_of(object, attrs)?, attrs::now().secs);
        for algorithm in ALGORITHMS {
            let value = algorithm.value(digest);
            let record = xrdcks::build(algorithm.name(), &value, now, &state).map_err(damaged)?;
            list.remove(algorithm.attribute());
            list.put(algorithm.attribute(), Value::ByteArray(record));
        }
        let packed = list.to_xdr().map_err(damaged)?;
        if packed.len() > crate::xattr::SA_LIST_MAX {
            return Ok(());
        }
        attrs.xattrs = Some(packed);
        let tx = self.enter(NAME_BYTES)?;
        self.set_attrs(&tx, object, attrs)
    }

    /// Reads what is not known of a watched file; `false`: it is more than `bytes_max`.
    fn fill_gaps(&self, number: u64, version: u64, bytes_max: u64) -> Result<bool> {
        let digests = &self.shared.digests;
        let (mut left, mut buf) = (bytes_max, None);
        loop {
            let size = self.znode_of(&self.object(number)?)?.size;
            let gaps = digests.with(number, |watched| watched.parts.gaps(size, GAPS_MAX));
            let gaps = gaps.unwrap_or_default();
            if gaps.is_empty() {
                return Ok(true);
            }
            let first = gaps.first().copied();
            for (mut at, length) in gaps {
                let end = at + length;
                while at < end {
                    let data = self.seek(number, at, true)?.unwrap_or(end).min(end);
                    if data > at {
                        digests.learned(number, version, at, Digest::zeros(data - at));
                        at = data;
                        continue;
                    }
                    let most = (CELL - at % CELL).min(end - at);
                    let Some(less) = left.checked_sub(most) else { return Ok(false) };
                    left = less;
                    let buffers = self.objset.store().buffers();
                    let buf = buf.get_or_insert_with(|| buffers.get(DIGEST_PIECE));
                    let got = self.read(number, at, &mut buf[..most as usize])?;
                    if got == 0 {
                        // It has become shorter: what was meant is not there any more.
                        return Ok(true);
                    }
                    digests.learned(number, version, at, Digest::of(&buf[..got]));
                    at += got as u64;
                }
            }
            // Still not known: it has changed, or there is no room.
            let now = digests.with(number, |watched| watched.parts.gaps(size, 1));
            if now.and_then(|gaps| gaps.first().copied()) == first {
                return Ok(true);
            }
        }
    }

    /// The digest that is kept of a file as it is now, as the record that XRootD keeps, if there is one.
    ///
    /// # Errors
    /// There is no such file, or it cannot be read.
    pub fn digest_kept(&self, number: u64, algorithm: Algorithm) -> Result<Option<Vec<u8>>> {
        let _lock = self.lock(number);
        let object = self.object(number)?;
        let attrs = self.attrs_of(&object)?;
        let kept = self.kept_digest(&object, &attrs, algorithm)?;
        Ok(kept.map(|(record, _)| record))
    }

    /// The digest of a file as it is now, as the record that XRootD keeps: that which is kept, if it is of this state;
    /// else the file is read. `None`: it is no file, or changes all the time.
    ///
    /// # Errors
    /// What cannot be read.
    pub fn digest(&self, number: u64, algorithm: Algorithm) -> Result<Option<Vec<u8>>> {
        {
            let _lock = self.lock(number);
            let object = self.object(number)?;
            let attrs = self.attrs_of(&object)?;
            if attrs.kind() != mode::FILE {
                return Ok(None);
            }
            if let Some((record, _)) = self.kept_digest(&object, &attrs, algorithm)? {
                return Ok(Some(record));
            }
        }
        // Held, so that its number means no other file meanwhile.
        self.hold(number)?;
        let watched = self.watch(number);
        if let Err(error) = watched {
            self.let_go(number)?;
            return Err(error);
        }
        let mut record = None;
        let done = self.complete(number, u64::MAX, |digest, state| {
            let (value, now) = (algorithm.value(digest), attrs::now().secs);
            record = xrdcks::build(algorithm.name(), &value, now, state).ok();
        });
        self.watch_no_more(number);
        self.let_go(number)?;
        // What cannot be kept (there is no room) is right all the same.
        if record.is_none() {
            done?;
        }
        Ok(record)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_was_read_before_a_change_says_nothing_of_what_is_there() {
        let digests = Digests::default();
        digests.table(7).lock().insert(7, Watched::default());
        digests.files.store(1, Ordering::Release);
        let [old, new] = [b"old", b"new"].map(|bytes| Digest::of(bytes));
        let version = || digests.with(7, |watched| watched.version).unwrap();
        let whole = || digests.with(7, |watched| watched.parts.whole(3)).unwrap();
        let before = version();
        // Somebody reads, and somebody else was faster.
        digests.changed(7, 0, 3, Some(vec![(0, new)]));
        digests.learned(7, before, 0, old);
        assert_eq!(whole(), Some(new));
        digests.changed(7, 0, 3, None);
        digests.learned(7, before, 0, old);
        assert_eq!(whole(), None);
        digests.learned(7, version(), 0, new);
        assert_eq!(whole(), Some(new));
    }
}
