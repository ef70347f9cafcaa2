//! What is open through one mount.
//!
//! The one idea: the kernel tells of the end of all that it has opened, but for a mount that is cut off (`umount -f`
//! does that, whether it can unmount or not): then it tells of nothing more, and what nobody uses any longer would
//! be kept as if somebody did. So it is counted for each mount, too, and let go with it.

use std::collections::BTreeMap;

use fs::{Filesystem, FsError};
use rt::sync::Mutex;

/// How many times objects are open, by number.
#[derive(Default)]
pub(crate) struct Opened(Mutex<BTreeMap<u64, u64>>);

impl Opened {
    /// Opens an object once more.
    pub(crate) fn hold(&self, fs: &Filesystem, object: u64) -> Result<(), FsError> {
        fs.hold(object)?;
        *self.0.lock().entry(object).or_default() += 1;
        Ok(())
    }

    /// Closes it once.
    pub(crate) fn let_go(&self, fs: &Filesystem, object: u64) -> Result<(), FsError> {
        {
            let mut counts = self.0.lock();
            match counts.get_mut(&object) {
                None => return Ok(()),
                Some(1) => drop(counts.remove(&object)),
                Some(count) => *count -= 1,
            }
        }
        fs.let_go(object)
    }

    /// The mount has ended: whatever is still open is so no longer.
    pub(crate) fn end(&self, fs: &Filesystem) {
        for (object, count) in std::mem::take(&mut *self.0.lock()) {
            // What cannot be freed now is when the file system is opened the next time.
            (0..count).for_each(|_| drop(fs.let_go(object)));
        }
    }
}
