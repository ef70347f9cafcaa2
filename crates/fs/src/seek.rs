//! Where the data of a file are, and where its holes: for who skips them.

use crate::error::Result;
use crate::filesystem::Filesystem;

impl Filesystem {
    /// The first byte at or after `offset` that is data (`data`), or in a hole; at the end of a file is always one.
    /// `None`: there is none before the end, or `offset` is not before it.
    pub fn seek(&self, number: u64, offset: u64, data: bool) -> Result<Option<u64>> {
        let object = self.object(number)?;
        let size = self.znode_of(&object)?.size;
        if offset >= size {
            return Ok(None);
        }
        let block = u64::from(object.block_size()?);
        let limit = size.div_ceil(block).min(object.max_block()?.saturating_add(1));
        let found = object.next_block(offset / block, limit, data)?;
        let at = match (found, data) {
            (Some(found), _) => found.saturating_mul(block),
            (None, true) => return Ok(None),
            // Beyond the last block, or in the middle of the last data, is a hole, too.
            (None, false) => limit.saturating_mul(block),
        };
        let at = at.clamp(offset, size);
        Ok((at < size || !data).then_some(at))
    }
}
