//! Whether the contents of a file are still what somebody keeps of them, told without being asked.
//!
//! Place: between whoever changes contents and the shelf's counts, which other processes see.
//! The one idea: a change is counted before it is made, and under the lock of its object. So who has a mark from before he
//! read, and finds it the same, has what anybody would read at that moment.

use dmu::{Object, Tx};
use rt::buf::{Mark, Shelf};
use rt::sync::Arc;

use crate::error::Result;
use crate::filesystem::Filesystem;

impl Filesystem {
    /// The mark of an object's contents, to be had before they are read. `None`: somebody changes them just now, or marks are on
    /// another shelf.
    pub fn mark(&self, number: u64, shelf: &Arc<Shelf>) -> Option<Mark> {
        // Who changed it before had no shelf to say so: under the lock that is done.
        let _lock = self.shared.locks.free_one(number)?;
        let marks = self.shared.marks.get_or_init(|| shelf.clone());
        Arc::ptr_eq(marks, shelf).then(|| marks.mark(self.counted_as(number)))
    }

    /// The contents of an object, which is locked, are about to change: who keeps them sees it, and the digests of them go in
    /// the same change.
    pub(crate) fn begin_change(&self, tx: &Tx<'_>, object: &Arc<Object>) -> Result<()> {
        if let Some(marks) = self.shared.marks.get() {
            marks.note_change(self.counted_as(object.number()));
        }
        self.forget_digests(tx, object)
    }

    fn counted_as(&self, number: u64) -> u64 {
        // Files of the same number in other file systems are others.
        number ^ self.dataset.object.rotate_left(32) ^ self.pool.guid()
    }
}
