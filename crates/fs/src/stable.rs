//! What is promised to be stable before its txg would be.

use crate::error::Result;
use crate::filesystem::Filesystem;

impl Filesystem {
    /// Returns when all changes made to an object so far are on stable storage, and all that they depend on:
    /// its names, the directories above it. One that has lost its last name is no error.
    ///
    /// # Errors
    /// A file system that can only be read; a pool that is suspended.
    pub fn fsync(&self, _object: u64) -> Result<()> {
        self.pool.sync()?;
        Ok(())
    }
}
