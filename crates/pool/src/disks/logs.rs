//! Log vdevs that go.
//!
//! The one idea: a vdev can go when nothing is on it, and what is on a log vdev is superfluous as soon as its txgs are
//! synced. So all intent logs end, with the blocks of those that others have left empty; meanwhile whoever asks that
//! something be stable waits for a txg. A hole keeps its number, as with OpenZFS, and no log of space maps that is left
//! tells of it: whoever gets the number next begins with nothing.

use format::Dva;
use format::config::VdevConfig;
use rt::sync::Arc;
use rt::sync::atomic::Ordering;

use super::{path_of, refused};
use crate::dsl::lookup;
use crate::error::Result;
use crate::intent::{self, LogState};
use crate::pool::Pool;
use crate::sync::TaskContext;
use dmu::Objset;

/// Txgs in which the logs have ended, or somebody holds one.
const ATTEMPTS: usize = 8;

impl Pool {
    /// Takes the log vdev of this guid out of the pool. Its devices keep labels of no pool.
    ///
    /// # Errors
    /// [`crate::PoolError::Invalid`] if there is no such log vdev, or it has logs that are not replayed.
    pub fn remove_log(&self, guid: u64) -> Result<()> {
        let writing = self.writing()?;
        let before = self.config();
        let is_it = |vdev: &&VdevConfig| vdev.guid == guid && vdev.top.is_some_and(|t| t.is_log);
        let Some(vdev) = before.vdev_tree.children.iter().find(is_it) else {
            return refused("no such device in pool");
        };
        let top = vdev.id.unwrap_or(u64::MAX) as u32;
        let out = writing.writer.out();
        let devices: Vec<_> =
            vdev.leaves().map(|leaf| (leaf.guid, out.device(leaf.guid))).collect();
        self.without_log(top, || self.take_log_vdev(guid))?;
        // Only now: before its uberblock the pool was still that with the vdev in it.
        self.label_gone(&before, devices);
        Ok(())
    }

    /// Does something when nothing is on this log vdev, and nothing comes there.
    pub(super) fn without_log(&self, top: u32, what: impl FnOnce() -> Result<()>) -> Result<()> {
        let writing = self.writing()?;
        writing.writer.allocator().set_log(top, false);
        writing.without_logs.store(true, Ordering::SeqCst);
        let done = self.empty_log_vdev(top).and_then(|()| what());
        // Only now: a log that began before it was done could begin there, if somebody else has settled which vdevs take logs.
        writing.without_logs.store(false, Ordering::SeqCst);
        if done.is_err() {
            writing.writer.settle_log_vdevs();
        }
        done
    }

    /// Has all logs end, until none has a block on this vdev.
    fn empty_log_vdev(&self, top: u32) -> Result<()> {
        for _ in 0..ATTEMPTS {
            let empty = self.task(move |cx| {
                free_empty_logs(cx, top)?;
                is_empty(cx, top)
            })?;
            if empty {
                return Ok(());
            }
        }
        refused("Pool busy; removal may already be in progress")
    }

    fn take_log_vdev(&self, guid: u64) -> Result<()> {
        self.change_vdevs(move |cx, change| {
            let place = change.tree.children.iter().position(|vdev| vdev.guid == guid);
            let Some(place) = place else { return refused("no such device in pool") };
            let vdev = &change.tree.children[place];
            if !is_empty(cx, place as u32)? {
                return refused("Pool busy; removal may already be in progress");
            }
            let text = format!("{} vdev (log) {}", cx.pool.name(), path_of(vdev));
            change.told.push(("vdev remove", text));
            change.take_top(place);
            Ok(())
        })
    }
}

/// Is nothing on this log vdev? On one that is not there nothing is to which no log leads: who gave up a log that could
/// not be read knows no more of it.
pub(super) fn is_empty(cx: &TaskContext<'_>, top: u32) -> Result<bool> {
    let pool = cx.pool;
    if cx.writing.writer.allocator().is_empty(top) {
        return Ok(true);
    }
    if pool.store.tree().is_complete(top) {
        return Ok(false);
    }
    let dying = cx.writing.log_dying.lock().iter().any(|dying| dying.vdev() == top);
    let written = pool.heads.lock().values().any(|head| head.log.is_on(top));
    let is_there = |dva: Dva| dva.vdev == top;
    let mut headers = intent::headers(cx.making.mos)?.into_iter();
    Ok(!dying && !written && !headers.any(|(_, header)| header.log.dvas().any(is_there)))
}

/// Frees blocks on this vdev of logs that are empty, and that nobody here writes to.
fn free_empty_logs(cx: &TaskContext<'_>, top: u32) -> Result<()> {
    let pool = cx.pool;
    for (path, header) in intent::headers(cx.making.mos)? {
        let is_there = |dva: Dva| dva.vdev == top;
        if !header.log.dvas().any(is_there) || header.log.is_crypt() {
            continue;
        }
        let found = lookup::find(cx.making.mos, &format!("{}{path}", pool.name()))?;
        let open = pool.open_or_upheave(found.object);
        let objset = match open {
            Some(head) if head.log.owns_header() || head.replaying.lock().is_some() => continue,
            Some(head) => head.objset.clone(),
            None => {
                let policy = pool.policy(&found)?;
                Arc::new(Objset::open(pool.store.clone(), &found.phys.bp, policy, None)?)
            }
        };
        let LogState::Empty(Some(dva)) = pool.log_state(&header.to_bytes())? else { continue };
        cx.writing.writer.allocator().free_dva(dva)?;
        objset.change_phys(|phys| phys.zil_header.fill(0));
        cx.sync_objset(found.object, &objset, cx.refreservation(&found)?)?;
    }
    Ok(())
}
