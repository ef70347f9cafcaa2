//! What follows when leaves have all that they lacked.
//!
//! One place, so that whoever replaces disks lets the old ones go from here.

use crate::error::Result;
use crate::pool::Pool;

impl Pool {
    /// These leaves lack nothing more, and an uberblock says so.
    pub(crate) fn resilvered(&self, leaves: &[u64]) -> Result<()> {
        self.scan.state.lock().given_up.retain(|(guid, _)| !leaves.contains(guid));
        self.finish_replacements()
    }
}
