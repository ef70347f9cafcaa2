//! Bookmarks: what is left of a snapshot for an incremental send, kept with its head.
//!
//! The one idea: a bookmark with numbers (feature bookmark_written) knows what its snapshot referred to,
//! and how much of that was freed before the snapshot that follows; so whatever changes what follows
//! changes the numbers. FORMAT: section 8.9.

use dmu::{Space, Zap};
use format::bookmark::{BOOKMARK_WORDS_V1, Bookmark, BookmarkFlags};
use format::dsl_dataset::{DS_BOOKMARKS, DslDatasetFlags};
use format::features::Feature;
use format::zap::{NormFlags, Value};
use format::{BlkPtr, ObjectType};

use crate::dsl::create::Making;
use crate::dsl::deadlist::{self, Deadlist};
use crate::error::{PoolError, Result};
use crate::ledger::Ledger;
use crate::mos::Mos;

/// A bookmark with its name.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Mark {
    /// Its own name, without that of the data set.
    pub name: Vec<u8>,
    /// What it says.
    pub phys: Bookmark,
    /// Is it stored in the second form?
    pub(crate) long: bool,
}

impl Mark {
    /// Are its numbers kept?
    pub(crate) fn counts(&self) -> bool {
        self.phys.flags & BookmarkFlags::HAS_FBN != 0
    }

    /// Was it made in this txg, and are its numbers kept? Such a one keeps a key of deadlists.
    fn keeps_key(&self, txg: u64) -> bool {
        self.counts() && self.phys.creation_txg == txg
    }

    fn add_freed(&mut self, space: Space) {
        let phys = &mut self.phys;
        for (sum, by) in [
            (&mut phys.freed_referenced_bytes, space.used),
            (&mut phys.freed_compressed_bytes, space.compressed),
            (&mut phys.freed_uncompressed_bytes, space.uncompressed),
        ] {
            *sum = sum.saturating_add(by);
        }
    }
}

fn damaged(head: u64, detail: impl std::fmt::Display) -> PoolError {
    PoolError::Damaged { what: "bookmarks", detail: format!("of data set {head}: {detail}") }
}

/// The ZAP of the bookmarks of a head; `None`: it has none.
pub(crate) fn zap_of(mos: &Mos, head: u64) -> Result<Option<Zap>> {
    let object = mos.objset.object(head)?;
    if object.header()?.kind() != ObjectType::ZAP_METADATA {
        return Ok(None);
    }
    let list = Zap::of(object)?.get_u64(DS_BOOKMARKS.as_bytes())?;
    list.filter(|list| *list != 0).map(|list| mos.zap(list)).transpose()
}

/// The bookmarks of a head, oldest first.
pub(crate) fn of(mos: &Mos, head: u64) -> Result<Vec<Mark>> {
    let Some(zap) = zap_of(mos, head)? else { return Ok(Vec::new()) };
    let mut marks = Vec::new();
    for entry in zap.entries()? {
        let words = entry.value.ints();
        let phys = Bookmark::from_words(&words).map_err(|e| damaged(head, e))?;
        let long = words.len() > BOOKMARK_WORDS_V1;
        marks.push(Mark { name: entry.name, phys, long });
    }
    marks.sort_by(|a, b| (a.phys.creation_txg, &a.name).cmp(&(b.phys.creation_txg, &b.name)));
    Ok(marks)
}

/// The bookmark of a head that `name` stands for.
pub(crate) fn find(mos: &Mos, head: u64, name: &str) -> Result<Option<Mark>> {
    let Some(zap) = zap_of(mos, head)? else { return Ok(None) };
    let own = match mos.dataset(head)?.flags.get() & DslDatasetFlags::CI_DATASET {
        0 => zap.get(name.as_bytes())?.map(|_| name.as_bytes().to_vec()),
        _ => zap.get_normalized(name.as_bytes(), false)?.map(|entry| entry.name),
    };
    let Some(own) = own else { return Ok(None) };
    Ok(of(mos, head)?.into_iter().find(|mark| mark.name == own))
}

impl Making<'_> {
    /// What a bookmark of snapshot `object` says now.
    pub(crate) fn bookmark_of(&self, object: u64) -> Result<Bookmark> {
        let mos = self.mos;
        let snap = mos.dataset(object)?;
        let mut phys = Bookmark {
            guid: snap.guid.get(),
            creation_txg: snap.creation_txg.get(),
            creation_time_secs: snap.creation_time_secs.get(),
            ..Bookmark::default()
        };
        if self.features.is_enabled(Feature::BookmarkV2)? {
            phys.ivset_guid = self.ivset_of(object)?;
        }
        if self.features.is_enabled(Feature::BookmarkWritten)? {
            let next = mos.dataset(snap.next_snap_object.get())?;
            let dead = deadlist::space(mos, next.deadlist_object.get())?;
            phys.flags = BookmarkFlags::HAS_FBN | BookmarkFlags::SNAPSHOT_EXISTS;
            phys.referenced_bytes = snap.referenced_bytes.get();
            phys.compressed_bytes = snap.compressed_bytes.get();
            phys.uncompressed_bytes = snap.uncompressed_bytes.get();
            phys.freed_referenced_bytes = dead.used;
            phys.freed_compressed_bytes = dead.compressed;
            phys.freed_uncompressed_bytes = dead.uncompressed;
        }
        Ok(phys)
    }

    /// Gives a head one more bookmark. The name must be free.
    pub(crate) fn add_bookmark(&self, head: u64, name: &[u8], phys: &Bookmark) -> Result<()> {
        let (mos, tx, features) = (self.mos, self.tx, self.features);
        let zap = match zap_of(mos, head)? {
            Some(zap) => zap,
            None => {
                let zap = mos.create_zap(tx, ObjectType::ZAP_METADATA, NormFlags::TOUPPER)?;
                features.add(tx, Feature::Bookmarks, 1)?;
                self.zapified(head)?.put_u64(tx, DS_BOOKMARKS.as_bytes(), zap.number())?;
                zap
            }
        };
        let mut words = phys.to_words();
        if !features.is_enabled(Feature::BookmarkV2)? {
            words.truncate(BOOKMARK_WORDS_V1);
        }
        if words.len() > BOOKMARK_WORDS_V1 {
            features.add(tx, Feature::BookmarkV2, 1)?;
            if phys.flags & BookmarkFlags::HAS_FBN != 0 {
                features.add(tx, Feature::BookmarkWritten, 1)?;
            }
        }
        Ok(zap.put(tx, name, &Value::words(&words))?)
    }

    fn change_bookmark(&self, head: u64, mark: &Mark) -> Result<()> {
        let zap = zap_of(self.mos, head)?.ok_or_else(|| damaged(head, "they are gone"))?;
        Ok(zap.put(self.tx, &mark.name, &Value::words(&mark.phys.to_words()))?)
    }

    /// Takes the features that a bookmark uses back, and its redaction list.
    fn release(&self, mark: &Mark) -> Result<()> {
        let (tx, features) = (self.tx, self.features);
        if mark.long {
            features.add(tx, Feature::BookmarkV2, -1)?;
            if mark.counts() {
                features.add(tx, Feature::BookmarkWritten, -1)?;
            }
        }
        if mark.phys.redaction_object != 0 {
            self.mos.objset.free(tx, mark.phys.redaction_object)?;
            features.add(tx, Feature::RedactionBookmarks, -1)?;
        }
        Ok(())
    }

    /// All bookmarks of a head go with it.
    pub(crate) fn drop_bookmarks(&self, head: u64) -> Result<()> {
        for mark in of(self.mos, head)? {
            self.release(&mark)?;
        }
        self.drop_list(head)
    }

    /// The list of bookmarks, which is empty, or whose entries were released.
    fn drop_list(&self, head: u64) -> Result<()> {
        let Some(zap) = zap_of(self.mos, head)? else { return Ok(()) };
        self.mos.objset.free(self.tx, zap.number())?;
        self.mos.zap(head)?.remove(self.tx, DS_BOOKMARKS.as_bytes())?;
        self.features.add(self.tx, Feature::Bookmarks, -1)?;
        Ok(())
    }

    /// Keys of the deadlist of a head that gets a snapshot: those of bookmarks after its last one,
    /// whose snapshots are gone, are added to `keys`.
    pub(crate) fn with_bookmarks(
        &self,
        head: u64,
        prev_txg: u64,
        keys: &mut Vec<u64>,
    ) -> Result<()> {
        let marks = of(self.mos, head)?;
        let later = marks.iter().filter(|m| m.counts() && m.phys.creation_txg > prev_txg);
        keys.extend(later.map(|mark| mark.phys.creation_txg));
        keys.sort_unstable();
        keys.dedup();
        Ok(())
    }

    /// The bookmarks of snapshot `origin` of `head` are told what follows it now.
    pub(crate) fn next_changed(&self, head: u64, origin: u64) -> Result<()> {
        if origin == 0 {
            return Ok(());
        }
        let txg = self.mos.dataset(origin)?.creation_txg.get();
        for mut mark in of(self.mos, head)?.into_iter().filter(|mark| mark.keeps_key(txg)) {
            let redaction_object = mark.phys.redaction_object;
            mark.phys = Bookmark { redaction_object, ..self.bookmark_of(origin)? };
            self.change_bookmark(head, &mark)?;
        }
        Ok(())
    }

    /// The bookmarks of `from` up to a txg become those of `to`.
    pub(crate) fn move_bookmarks(&self, from: u64, to: u64, until: u64) -> Result<()> {
        let Some(zap) = zap_of(self.mos, from)? else { return Ok(()) };
        for mark in of(self.mos, from)?.iter().filter(|mark| mark.phys.creation_txg <= until) {
            // What it uses goes with it.
            self.release(&Mark {
                phys: Bookmark { redaction_object: 0, ..mark.phys },
                ..mark.clone()
            })?;
            zap.remove(self.tx, &mark.name)?;
            self.add_bookmark(to, &mark.name, &mark.phys)?;
        }
        if zap.count()? == 0 {
            self.drop_list(from)?;
        }
        Ok(())
    }
}

impl Ledger<'_> {
    /// Blocks that `head` lets go count as freed for the bookmarks after its last snapshot, at
    /// `prev_txg`, that refer to them.
    pub(crate) fn freed_after_bookmarks(
        &self,
        head: u64,
        prev_txg: u64,
        died: &[BlkPtr],
    ) -> Result<()> {
        let marks = of(self.mos, head)?;
        let mut sums: Option<(u64, Space)> = None;
        for mut mark in marks.into_iter().filter(|m| m.counts() && m.phys.creation_txg >= prev_txg)
        {
            let txg = mark.phys.creation_txg;
            let freed = match sums {
                Some((of, freed)) if of == txg => freed,
                _ => {
                    let mut freed = Space::default();
                    let old = died.iter().filter(|bp| bp.birth() <= txg);
                    old.for_each(|bp| freed += Space::of(bp, self.store.dsize(bp)));
                    freed
                }
            };
            sums = Some((txg, freed));
            if freed != Space::default() {
                mark.add_freed(freed);
                self.making.change_bookmark(head, &mark)?;
            }
        }
        Ok(())
    }

    /// A snapshot of `head` is about to be destroyed: what follows it follows the bookmarks before it
    /// now. Does a bookmark of the snapshot itself keep its key in deadlists?
    pub(crate) fn bookmarks_outlive(&self, head: u64, snapshot: u64) -> Result<bool> {
        let mos = self.mos;
        let marks = of(mos, head)?;
        if marks.is_empty() {
            return Ok(false);
        }
        let snap = mos.dataset(snapshot)?;
        let (before, own) = (snap.prev_snap_txg.get(), snap.creation_txg.get());
        let next = mos.dataset(snap.next_snap_object.get())?.deadlist_object.get();
        let mut outlives = false;
        for mut mark in marks.into_iter().filter(|mark| mark.counts()) {
            let txg = mark.phys.creation_txg;
            if (before..own).contains(&txg) {
                mark.add_freed(deadlist::space_within(mos, next, 0, txg)?);
                self.making.change_bookmark(head, &mark)?;
            } else if txg == own {
                mark.phys.flags &= !BookmarkFlags::SNAPSHOT_EXISTS;
                self.making.change_bookmark(head, &mark)?;
                outlives = true;
            }
        }
        Ok(outlives)
    }

    /// Destroys a bookmark of the head `object`.
    pub(crate) fn destroy_bookmark(&self, object: u64, mark: &Mark) -> Result<()> {
        let (making, mos) = (self.making, self.mos);
        let (head, txg) = (mos.dataset(object)?, mark.phys.creation_txg);
        making.release(mark)?;
        let zap = zap_of(mos, object)?.ok_or_else(|| damaged(object, "they are gone"))?;
        zap.remove(making.tx, &mark.name)?;
        let snapshot = mark.phys.flags & BookmarkFlags::SNAPSHOT_EXISTS != 0;
        let others = of(mos, object)?.iter().any(|other| other.keeps_key(txg));
        if mark.counts() && !snapshot && !others && txg < head.prev_snap_txg.get() {
            self.forget_in_clones(head.dir_object.get(), txg, 0)?;
            Deadlist::open(making, head.deadlist_object.get())?.remove_key(txg)?;
        }
        if zap.count()? == 0 {
            making.drop_list(object)?;
        }
        Ok(())
    }
}
