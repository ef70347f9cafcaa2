//! Looking at a pool as it is on disk, for whoever wants to see its structures and not a verdict.
//!
//! The one idea: who prints what is on a disk must not go through the code that wrote it. So the
//! judge lends its own reader: blocks by their pointers, objects by their numbers, ZAPs entry by
//! entry, always with the checksum held against the bytes, from whatever copy or parity is good.
//! Nothing is kept but a small cache; what cannot be read says why, and the next thing can be asked.

use crate::block::Blocks;
use crate::object::{self, Result, Unread};
use format::config::VdevConfig;
use format::indirect::{MappingPhys, all_entries};
use format::zap::{Entry, Reader};
use format::{BLOCK_SIZE_MAX, BlkPtr, Checksum, DnodePhys, ObjsetPhys};
use rt::sync::Arc;
use vdev::Tree;

/// Entries of the mappings of all removed vdevs that are believed.
const MAPPINGS_MAX: u64 = 16 << 20;

/// A reader of the blocks and objects of one pool.
pub struct Look<'a> {
    blocks: Blocks<'a>,
    /// Entries of mappings that may still be read.
    mappings_left: u64,
}

impl<'a> Look<'a> {
    /// A reader on the vdevs of `tree`.
    #[must_use]
    pub fn new(tree: &'a Tree) -> Look<'a> {
        Look { blocks: Blocks::new(tree), mappings_left: MAPPINGS_MAX }
    }

    /// The vdevs.
    #[must_use]
    pub fn tree(&self) -> &'a Tree {
        self.blocks.tree()
    }

    /// Sets the pool's salt of keyed checksums.
    pub fn set_salt(&mut self, salt: [u8; 32]) {
        self.blocks.set_salt(salt);
    }

    /// Reads where the space of top-level vdev `top`, which was removed, is now, so that pointers
    /// to it can be followed. `mos` is the pool's own object set.
    ///
    /// # Errors
    /// If the mapping cannot be read or cannot be.
    pub fn load_mapping(&mut self, mos: &ObjsetPhys, top: u32, config: &VdevConfig) -> Result<()> {
        let Some(indirect) = config.indirect.as_ref().filter(|i| i.object != 0) else {
            return Ok(());
        };
        let dnode = self.expect(mos, indirect.object)?;
        let count = MappingPhys::parse(dnode.bonus())?.num_entries.get();
        let room = dnode.max_block().saturating_add(1).saturating_mul(dnode.block_size().into());
        if count > self.mappings_left || count * 24 > room {
            return Err(Unread(format!("a mapping of {count} entries")));
        }
        let entries = all_entries(count, |at, size| self.range(&dnode, at, size), Unread::from)?;
        self.mappings_left -= count;
        self.blocks.set_mapping(top, entries);
        Ok(())
    }

    /// The logical bytes of a block (stored ones if it is encrypted), from its first good copy.
    ///
    /// # Errors
    /// Why no copy is good.
    pub fn read(&mut self, bp: &BlkPtr) -> Result<Arc<Vec<u8>>> {
        Ok(self.blocks.read(bp)?)
    }

    /// The object set that a pointer leads to.
    ///
    /// # Errors
    /// If it cannot be read or is none.
    pub fn objset(&mut self, bp: &BlkPtr) -> Result<ObjsetPhys> {
        crate::judge::read_objset(&mut self.blocks, bp)
    }

    /// The dnode of an object; `None` if there is no such object.
    ///
    /// # Errors
    /// If its block cannot be read, or the dnode cannot be.
    pub fn dnode(&mut self, objset: &ObjsetPhys, object: u64) -> Result<Option<DnodePhys>> {
        object::dnode(&mut self.blocks, objset, object)
    }

    /// The dnode of an object that must exist.
    ///
    /// # Errors
    /// As [`Look::dnode`], and if there is none.
    pub fn expect(&mut self, objset: &ObjsetPhys, object: u64) -> Result<DnodePhys> {
        object::expect(&mut self.blocks, objset, object)
    }

    /// The pointer to block `block` of level 0 of an object; a hole if there is none.
    ///
    /// # Errors
    /// If an indirect block above it cannot be read.
    pub fn pointer(&mut self, dnode: &DnodePhys, block: u64) -> Result<BlkPtr> {
        object::pointer(&mut self.blocks, dnode, block)
    }

    /// Block `block` of an object, as long as its blocks are; zeros in a hole.
    ///
    /// # Errors
    /// If it, or an indirect block above it, cannot be read.
    pub fn block(
        &mut self,
        dnode: &DnodePhys,
        block: u64,
    ) -> Result<impl std::ops::Deref<Target = [u8]> + use<>> {
        object::block(&mut self.blocks, dnode, block)
    }

    /// The bytes `[offset, offset + len)` of an object; the caller bounds `len`.
    ///
    /// # Errors
    /// If a block of it cannot be read.
    pub fn range(&mut self, dnode: &DnodePhys, offset: u64, len: usize) -> Result<Vec<u8>> {
        object::range(&mut self.blocks, dnode, offset, len)
    }

    /// Calls `each` with every entry of a ZAP that can be read, until it gives false. What it
    /// could not read (some, not all of it) comes between the entries.
    ///
    /// # Errors
    /// If it has no block 0, or one that is not of a ZAP, or if too much of it cannot be read.
    pub fn zap(
        &mut self,
        dnode: &DnodePhys,
        mut each: impl FnMut(Result<Entry>) -> bool,
    ) -> Result<()> {
        // What was never written is empty.
        if dnode.max_block() == 0 && self.pointer(dnode, 0)?.is_hole() {
            return Ok(());
        }
        let blocks = &mut self.blocks;
        let mut reader = Reader::open(|number| object::block(blocks, dnode, number))?;
        let mut wrong = 0;
        for entry in reader.entries() {
            wrong += usize::from(entry.is_err());
            if !each(entry) {
                break;
            }
            if wrong >= object::WRONG_MAX {
                return Err(Unread(format!("{wrong} parts of it, and no further")));
            }
        }
        Ok(())
    }

    /// A block of an intent log, as far as it is one: `None` if it is not (yet) written.
    pub fn log_block(&mut self, bp: &BlkPtr) -> Option<Vec<u8>> {
        self.blocks.log_block(bp)
    }

    /// The bytes `[offset, offset + size)` of a top-level vdev, as they are stored there. With a
    /// checksum, those that have it, from whatever copy or combination of parity gives them.
    ///
    /// # Errors
    /// If the vdev has no such place or gives nothing (that has the checksum).
    pub fn stored(
        &mut self,
        top: u32,
        offset: u64,
        size: u64,
        checksum: Option<(Checksum, [u64; 4])>,
    ) -> Result<Vec<u8>> {
        if size == 0 || size > BLOCK_SIZE_MAX {
            return Err(Unread(format!("a block of {size} bytes")));
        }
        let mut bytes = vec![0; size as usize];
        self.blocks.bare(top, offset, &mut bytes, checksum)?;
        Ok(bytes)
    }

    /// The checksum of bytes; `None` of a kind that needs to know the place of the block.
    #[must_use]
    pub fn checksum(&self, kind: Checksum, bytes: &[u8]) -> Option<[u64; 4]> {
        self.blocks.sum(kind, bytes)
    }

    /// Decompresses stored bytes into `size` bytes.
    ///
    /// # Errors
    /// If they are damaged, or `size` is beyond what a block may have.
    pub fn decompress(
        &self,
        compress: format::Compress,
        stored: &[u8],
        size: u64,
    ) -> Result<Vec<u8>> {
        if size > BLOCK_SIZE_MAX {
            return Err(Unread(format!("a block of {size} bytes")));
        }
        let mut bytes = vec![0; size as usize];
        crate::block::decompress(compress, stored, &mut bytes)?;
        Ok(bytes)
    }
}
