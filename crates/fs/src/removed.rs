//! What has lost its last name: freed at once if it is small, else from the delete queue.
//!
//! The one idea: a file of many blocks is freed in portions, one in each txg, so that none takes long;
//! it stands in the delete queue until its last block is gone, so that a crash loses no space. What
//! whoever had the file system before has left there is worked off, too. FORMAT: section 11.7.

use dmu::{Kin, Object, Tx, Zap};
use format::dirent::Dirent;
use format::sa::SaView;
use format::znode::Pflags;
use rt::sync::Arc;

use crate::attrs::Attrs;
use crate::error::Result;
use crate::filesystem::Filesystem;

impl Filesystem {
    /// Objects in the delete queue: unlinked, to be freed.
    pub fn delete_queue(&self) -> Result<Vec<u64>> {
        if self.delete_queue == 0 {
            return Ok(Vec::new());
        }
        let entries = Zap::open(&self.objset, self.delete_queue)?.entries()?;
        Ok(entries.iter().filter_map(|e| e.value.as_u64()).collect())
    }

    /// Works off the delete queue, a portion in each txg from the next one on.
    pub(crate) fn work_off(&self) -> Result<()> {
        // Who is inside a txg does not wait for the sync of another, which may be at it.
        if self.delete_queue != 0 && !self.objset.frees_in_portions() {
            let queue = Zap::open(&self.objset, self.delete_queue)?;
            self.objset.free_in_portions(queue, self.kin())?;
            self.pool.has_left(&self.dataset);
        }
        Ok(())
    }

    /// What goes with an object of the delete queue that somebody left there: its extended attributes.
    /// Nothing goes that has a name, whatever the queue says.
    fn kin(&self) -> Box<Kin> {
        let (registry, shared) = (self.registry.clone(), self.shared.clone());
        Box::new(move |objset, object| {
            let (header, spill) = (object.header()?, object.spill()?);
            let wrong = |source| dmu::DmuError::Format { object: object.number(), source };
            let attrs = {
                let layouts = shared.layouts.read();
                let (kind, spill) = (header.bonus_kind(), spill.as_deref().map(|bytes| &bytes[..]));
                SaView::new(&registry, &layouts, kind, header.bonus(), spill)
                    .and_then(|view| Attrs::parse(&view, header.bonus()))
                    .map_err(wrong)?
            };
            let hidden = attrs.flags & Pflags::XATTR != 0;
            if attrs.links != 0 && !hidden {
                return Ok(None);
            }
            let mut kin = Vec::new();
            if attrs.is_dir() {
                kin = members(&Zap::of(object.clone())?)?;
                if !hidden && !kin.is_empty() {
                    return Ok(None);
                }
            }
            if let Some(dir) = attrs.xattr_object {
                kin.extend(members(&Zap::open(objset, dir)?)?);
                kin.push(dir);
            }
            Ok(Some(kin))
        })
    }

    /// Starts a change that takes away the last name of `object`, if there is such a one.
    pub(crate) fn enter_to_remove(&self, object: Option<u64>) -> Result<Tx<'_>> {
        let Some(object) = object else { return self.enter(0) };
        let blocks = self.object(object)?.max_block()?.saturating_add(1);
        self.enter_to_free(if blocks > self.pool.blocks_at_once() { 1 } else { blocks })
    }

    /// Starts a change that frees about so many blocks: in a txg that has not enough to free yet.
    pub(crate) fn enter_to_free(&self, blocks: u64) -> Result<Tx<'_>> {
        self.pool.wait_to_free(blocks)?;
        let tx = self.enter(0)?;
        tx.frees(blocks);
        Ok(tx)
    }

    /// Frees an object that has no name any more, and what of it is hidden; if somebody uses it, only then when he does no
    /// more.
    pub(crate) fn free_object(
        &self,
        tx: &Tx<'_>,
        object: &Arc<Object>,
        known_is_used: bool,
        hidden: &[Arc<Object>],
    ) -> Result<()> {
        if self.keep_orphan(tx, object, known_is_used, hidden)? {
            return Ok(());
        }
        if self.goes_at_once(object)? {
            for object in hidden {
                self.free_hidden(tx, object)?;
            }
            self.objset.free(tx, object.number())?;
        } else {
            self.free_later(tx, object, numbers(hidden))?;
        }
        self.withhold_known(object.number());
        Ok(())
    }

    /// Frees an extended attribute that has no name any more.
    pub(crate) fn free_hidden(&self, tx: &Tx<'_>, object: &Arc<Object>) -> Result<()> {
        if self.goes_at_once(object)? {
            return Ok(self.objset.free(tx, object.number())?);
        }
        self.free_later(tx, object, Vec::new())
    }

    /// Takes away again what this very change has made, and what is in its hidden directory, where it has one: it gets no name.
    /// What cannot be freed stays without one; the error that led here is the one to tell.
    pub(crate) fn unmake(&self, tx: &Tx<'_>, object: &Arc<Object>, hidden: Option<u64>) {
        let mut all = vec![object.number()];
        if let Some(dir) = hidden {
            all.extend(self.read_dir(dir).unwrap_or_default().iter().map(|entry| entry.object));
            all.push(dir);
        }
        all.into_iter().for_each(|number| drop(self.objset.free(tx, number)));
    }

    fn goes_at_once(&self, object: &Arc<Object>) -> Result<bool> {
        Ok(self.delete_queue == 0 || object.max_block()? < self.pool.blocks_at_once())
    }

    fn free_later(&self, tx: &Tx<'_>, object: &Arc<Object>, kin: Vec<u64>) -> Result<()> {
        // The property readonly may have been on when it was opened.
        self.work_off()?;
        self.change_znode(tx, object, |znode| znode.links = 0)?;
        Ok(self.objset.free_slowly(tx, object.number(), kin)?)
    }

    /// A file that is cut to `size` bytes: where the cut of one txg is, and about how many blocks it
    /// frees. `end`: one after the last byte that goes.
    pub(crate) fn portion(&self, object: &Arc<Object>, size: u64, end: u64) -> Result<(u64, u64)> {
        let block = u64::from(object.block_size()?);
        let end = end.div_ceil(block).min(object.max_block()?.saturating_add(1));
        let count = end.saturating_sub(size / block);
        if count <= self.pool.blocks_at_once() {
            return Ok((size, count));
        }
        let tail = object.tail(size / block, end, self.pool.blocks_per_txg()?)?;
        Ok((size.max(tail.first.saturating_mul(block)), tail.blocks))
    }
}

/// The numbers of objects.
pub(crate) fn numbers(objects: &[Arc<Object>]) -> Vec<u64> {
    objects.iter().map(|object| object.number()).collect()
}

/// The objects that a directory leads to.
fn members(dir: &Zap) -> dmu::Result<Vec<u64>> {
    let entries = dir.entries()?;
    Ok(entries.iter().filter_map(|e| Some(Dirent::decode(e.value.as_u64()?).object)).collect())
}
