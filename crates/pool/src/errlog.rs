//! The persistent error log: which blocks no copy could give.
//!
//! Two ZAPs in the MOS: `errlog_last` has what was found since, and by, the last scrub that ended, `errlog_scrub` what
//! one that is under way finds. When that has ended, it becomes the last one: what is whole again is gone from it. What
//! one has found that was stopped counts as found since the last, as it has not seen the rest.
//! The one idea: what is found is kept in memory, bounded, and goes to disk with the next txg, as OpenZFS does it.
//! FORMAT: section 13.2.

use std::collections::BTreeSet;

use dmu::{Tx, Zap};
use format::ObjectType;
use format::errlog;
use format::scan::Bookmark;
use format::zap::Value;
use rt::sync::Mutex;

use crate::error::Result;
use crate::mos::{Mos, key};
use crate::pool::Pool;

/// Blocks that are kept until the next txg, at most.
const PENDING_MAX: usize = 4096;

/// What was found and is not on disk yet.
#[derive(Default)]
pub(crate) struct ErrorLog(Mutex<Pending>);

#[derive(Clone, Default)]
struct Pending {
    last: BTreeSet<Bookmark>,
    scrub: BTreeSet<Bookmark>,
    /// A scrub has ended.
    ended: bool,
    /// What is in its log is of one that was stopped.
    stopped: bool,
}

impl Pending {
    fn is_due(&self) -> bool {
        self.ended || self.stopped || !self.last.is_empty() || !self.scrub.is_empty()
    }
}

impl Pool {
    /// No copy of a block is good. It is named in the error log from now on, on disk with the next txg.
    pub fn lost(&self, at: Bookmark) {
        // While a scrub is under way it may have passed the block already.
        if !self.note_lost(at, self.is_scrubbing())
            && let Some(writing) = &self.writing
        {
            // Whoever reads it again names it again.
            writing.bell.ask(writing.txgs.open());
        }
    }

    /// As [`Pool::lost`], found while a scrub is under way, or not. `false`: there is no room before the next txg.
    pub(crate) fn note_lost(&self, at: Bookmark, in_scrub: bool) -> bool {
        let mut pending = self.healing.log.0.lock();
        let list = if in_scrub { &mut pending.scrub } else { &mut pending.last };
        let room = list.len() < PENDING_MAX || list.contains(&at);
        if room {
            list.insert(at);
        }
        room
    }

    /// A scrub has come to its end: what was lost before, and was not found again, is forgotten.
    pub(crate) fn scrub_ended(&self) {
        self.healing.log.0.lock().ended = true;
    }

    /// A scrub was stopped, or another one begins: what was found up to now is not the next one's.
    pub(crate) fn scrub_stopped(&self) {
        let mut pending = self.healing.log.0.lock();
        let found = std::mem::take(&mut pending.scrub);
        pending.last.extend(found);
        pending.stopped = true;
    }

    /// Has the log something to write?
    pub(crate) fn errlog_is_due(&self) -> bool {
        self.healing.log.0.lock().is_due()
    }

    /// All blocks that are known to be lost.
    pub fn lost_blocks(&self) -> Result<BTreeSet<Bookmark>> {
        let pending = self.healing.log.0.lock().clone();
        let mut all = read(&self.mos, key::ERRLOG_SCRUB)?;
        if !pending.ended {
            all.append(&mut read(&self.mos, key::ERRLOG_LAST)?);
        }
        all.extend(pending.last.into_iter().chain(pending.scrub));
        if self.writing.is_none() {
            all.extend(self.store.troubles().lost());
        }
        Ok(all)
    }

    /// Writes what has come since the last txg.
    pub(crate) fn write_errlog(&self, tx: &Tx<'_>) -> Result<()> {
        let pending = std::mem::take(&mut *self.healing.log.0.lock());
        if !pending.is_due() {
            return Ok(());
        }
        if pending.ended {
            // What the scrub found up to its end is the log now.
            add(&self.mos, tx, key::ERRLOG_SCRUB, &pending.scrub)?;
            let found = number(&self.mos, key::ERRLOG_SCRUB)?;
            if let Some(old) = number(&self.mos, key::ERRLOG_LAST)? {
                self.mos.objset.free(tx, old)?;
            }
            self.mos.set(tx, key::ERRLOG_LAST, found.unwrap_or(0))?;
            self.mos.set(tx, key::ERRLOG_SCRUB, 0)?;
        }
        if pending.stopped
            && let Some(stopped) = number(&self.mos, key::ERRLOG_SCRUB)?
        {
            if number(&self.mos, key::ERRLOG_LAST)?.is_some() {
                let found = match read(&self.mos, key::ERRLOG_SCRUB) {
                    Err(error) if error.is_lost() => BTreeSet::new(),
                    found => found?,
                };
                add(&self.mos, tx, key::ERRLOG_LAST, &found)?;
                self.mos.objset.free(tx, stopped)?;
            } else {
                self.mos.set(tx, key::ERRLOG_LAST, stopped)?;
            }
            self.mos.set(tx, key::ERRLOG_SCRUB, 0)?;
        }
        if !pending.ended {
            add(&self.mos, tx, key::ERRLOG_SCRUB, &pending.scrub)?;
        }
        add(&self.mos, tx, key::ERRLOG_LAST, &pending.last)
    }
}

/// The object of one of the logs, if there is one.
fn number(mos: &Mos, name: &[u8]) -> Result<Option<u64>> {
    Ok(mos.find(name)?.filter(|object| *object != 0))
}

/// All blocks that the logs on disk name.
pub(crate) fn on_disk(mos: &Mos) -> Result<BTreeSet<Bookmark>> {
    let mut all = read(mos, key::ERRLOG_SCRUB)?;
    all.append(&mut read(mos, key::ERRLOG_LAST)?);
    Ok(all)
}

fn read(mos: &Mos, name: &[u8]) -> Result<BTreeSet<Bookmark>> {
    let mut out = BTreeSet::new();
    if let Some(object) = number(mos, name)? {
        for entry in mos.zap(object)?.entries()? {
            out.insert(errlog::parse_key(&entry.name)?);
        }
    }
    Ok(out)
}

fn add(mos: &Mos, tx: &Tx<'_>, name: &[u8], blocks: &BTreeSet<Bookmark>) -> Result<()> {
    if blocks.is_empty() {
        return Ok(());
    }
    if let Some(object) = number(mos, name)? {
        match mos.zap(object).and_then(|zap| put(&zap, tx, blocks)) {
            // What is lost of the log is no reason to tell nothing any more.
            Err(error) if error.is_lost() => give_up(mos, tx, object)?,
            told => return told,
        }
    }
    let zap = mos.create_zap(tx, ObjectType::ERROR_LOG, 0)?;
    mos.set(tx, name, zap.number())?;
    put(&zap, tx, blocks)
}

fn put(zap: &Zap, tx: &Tx<'_>, blocks: &BTreeSet<Bookmark>) -> Result<()> {
    for at in blocks {
        zap.put(tx, errlog::key(at).as_bytes(), &Value::string(b""))?;
    }
    Ok(())
}

/// Frees a log that cannot be read, if it is one, and where its blocks are can be told.
fn give_up(mos: &Mos, tx: &Tx<'_>, object: u64) -> Result<()> {
    let log = mos.objset.object(object)?;
    let (kind, levels) = log.with_header(|dnode| (dnode.kind(), dnode.core().levels))?;
    if kind == ObjectType::ERROR_LOG && levels == 1 {
        mos.objset.free(tx, object)?;
    }
    Ok(())
}
