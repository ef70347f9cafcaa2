//! How much one txg frees, whoever asks for it: data sets that were destroyed, large files, truncates.
//!
//! The one idea: all of them have one number of blocks per txg between them, so that no txg takes
//! noticeably longer than others, and what is left goes on in the next txg, or when the pool is opened
//! anew.

use rt::sync::Arc;

use crate::dataset::Dataset;
use crate::error::Result;
use crate::history;
use crate::pool::{Freeing, Pool};
use crate::sync::TaskContext;

/// A file of up to so many blocks is freed in the txg that removes it.
const AT_ONCE_MAX: u64 = 1024;

impl Pool {
    /// Frees what was destroyed and what is in delete queues of open file systems, txg by txg, as long
    /// as `go_on`, which is told the bytes left of data sets, says so. A pool that is closed before goes on with it when it is opened anew.
    pub fn finish_freeing(&self, mut go_on: impl FnMut(u64) -> bool) -> Result<()> {
        while self.is_freeing()? && go_on(self.freeing()?) {
            self.sync()?;
        }
        Ok(())
    }

    /// Is something left to be freed?
    pub fn is_freeing(&self) -> Result<bool> {
        let freeing = *self.writing()?.freeing.lock();
        Ok(freeing.pending || freeing.files)
    }

    /// Frees about `blocks_per_txg` blocks in a txg; `by_itself`: in txgs of its own, if no other
    /// comes. Ordinarily that is so, with so many blocks that no txg takes noticeably longer.
    pub fn set_freeing(&self, blocks_per_txg: u64, by_itself: bool) -> Result<()> {
        let mut freeing = self.writing()?.freeing.lock();
        *freeing = Freeing { blocks_per_txg, by_itself, ..*freeing };
        Ok(())
    }

    /// Space of what was destroyed and is still to be freed, in bytes.
    pub fn freeing(&self) -> Result<u64> {
        let root = self.mos.dir(crate::dsl::lookup::root_dir(&self.mos)?)?;
        let children = self.mos.zap(root.child_dir_zap_object.get())?;
        match children.get_u64(format::dsl_dir::FREE_DIR_NAME.as_bytes())? {
            Some(dir) => Ok(self.mos.dir(dir)?.used_bytes.get()),
            None => Ok(0),
        }
    }

    /// Blocks of a file that one change may free; of a larger one each frees so many.
    pub fn blocks_at_once(&self) -> u64 {
        let freeing = self.writing.as_ref().map(|writing| writing.freeing.lock().blocks_per_txg);
        freeing.unwrap_or(u64::MAX).clamp(1, AT_ONCE_MAX)
    }

    /// About how many blocks a txg frees.
    pub fn blocks_per_txg(&self) -> Result<u64> {
        Ok(self.writing()?.freeing.lock().blocks_per_txg.max(1))
    }

    /// Waits until the open txg may free so many blocks more, before the change is started.
    pub fn wait_to_free(&self, blocks: u64) -> Result<()> {
        let writing = self.writing()?;
        loop {
            let freeing = *writing.freeing.lock();
            let open = writing.txgs.open();
            let freed = writing.txgs.freed_blocks(open);
            if !freeing.by_itself
                || freed == 0
                || freed.saturating_add(blocks) <= freeing.blocks_per_txg
            {
                return Ok(());
            }
            self.sync()?;
        }
    }

    /// Is what others have left worked off here? Not on devices that keep in memory what is written: that
    /// is for what somebody asked for.
    pub fn works_off(&self) -> bool {
        self.writing.is_some() && !self.in_memory
    }

    /// The delete queue of an open file system has something to be worked off.
    pub fn has_left(&self, dataset: &Arc<Dataset>) {
        if let (Some(writing), true) = (&self.writing, dataset.objset.has_left()) {
            let mut freeing = writing.freeing.lock();
            freeing.files = true;
            if freeing.by_itself {
                writing.bell.ask(writing.txgs.open());
            }
        }
    }
}

/// Notes in the pool's history what could not be freed since nobody knows where it is, once.
pub(crate) fn note_given_up(cx: &TaskContext<'_>) -> Result<()> {
    let bytes = cx.writing.writer.allocator().take_given_up();
    if bytes == 0 {
        return Ok(());
    }
    let host = cx.pool.config().hostname.unwrap_or_default();
    let host = String::from_utf8_lossy(&host).into_owned();
    let text = format!("{bytes} bytes below gang headers that are lost stay allocated");
    let event = history::event(cx.making.now_secs, cx.tx.txg(), "leak", &text, &host);
    match history::append(cx.making.mos, cx.tx, &event) {
        // What tells of a loss is no reason to lose more.
        Err(error) if error.is_lost() => Ok(()),
        noted => noted,
    }
}
