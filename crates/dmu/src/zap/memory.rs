//! The blocks of a ZAP in memory: for tests, benches, and objects that are made whole at once.

use super::{Memo, ZapBlocks, ZapError};

/// Blocks in memory.
#[derive(Clone, Debug, Default)]
pub struct MemoryBlocks {
    block_size: usize,
    blocks: Vec<Vec<u8>>,
    memo: Memo,
}

impl MemoryBlocks {
    /// One empty block of `block_size` bytes.
    pub fn new(block_size: usize) -> MemoryBlocks {
        MemoryBlocks { block_size, blocks: vec![vec![0; block_size]], memo: Memo::default() }
    }

    /// These blocks, all of one size.
    pub fn of(blocks: Vec<Vec<u8>>) -> MemoryBlocks {
        MemoryBlocks {
            block_size: blocks.first().map_or(512, Vec::len),
            blocks,
            memo: Memo::default(),
        }
    }

    /// The blocks.
    pub fn blocks(&self) -> &[Vec<u8>] {
        &self.blocks
    }
}

impl ZapBlocks for MemoryBlocks {
    type Error = ZapError;

    fn block_size(&self) -> usize {
        self.block_size
    }

    fn max_block(&self) -> u64 {
        (self.blocks.len() as u64).saturating_sub(1)
    }

    fn read<R>(&self, blkid: u64, f: impl FnOnce(&[u8]) -> R) -> Result<R, ZapError> {
        match self.blocks.get(blkid as usize).filter(|block| !block.is_empty()) {
            Some(block) => Ok(f(block)),
            None => Ok(f(&vec![0; self.block_size])),
        }
    }

    fn modify<R>(&mut self, blkid: u64, f: impl FnOnce(&mut [u8]) -> R) -> Result<R, ZapError> {
        let at = blkid as usize;
        if at >= self.blocks.len() {
            self.blocks.resize(at + 1, Vec::new());
        }
        let block = &mut self.blocks[at];
        block.resize(self.block_size, 0);
        Ok(f(block))
    }

    fn set_block_size(&mut self, bytes: usize) -> Result<(), ZapError> {
        debug_assert!(self.blocks.len() <= 1, "only one block can change its size");
        self.block_size = bytes;
        self.blocks.iter_mut().for_each(|block| block.resize(bytes, 0));
        Ok(())
    }

    fn free_blocks(&mut self, first: u64, count: u64) -> Result<(), ZapError> {
        let blocks = self.blocks.iter_mut().skip(first as usize).take(count as usize);
        blocks.for_each(|block| *block = Vec::new());
        Ok(())
    }

    fn error(&self, error: ZapError) -> ZapError {
        error
    }

    fn take_memo(&mut self) -> Memo {
        std::mem::take(&mut self.memo)
    }

    fn keep_memo(&mut self, memo: Memo) {
        self.memo = memo;
    }

    fn with_memo<R>(&self, f: impl FnOnce(&Memo) -> R) -> R {
        f(&self.memo)
    }
}
