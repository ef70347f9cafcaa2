//! Dnodes (`dnode_phys_t`): one object's type, block size, tree of block pointers and bonus.
//!
//! A dnode takes 1 to 32 slots of 512 bytes in a 16 KiB dnode block. The first 64 bytes are the
//! core, then come 1 to 3 block pointers, then the bonus; with flag [`DnodeFlags::SPILL`] the last
//! 128 bytes are the pointer to the spill block. FORMAT: section 5.2.

use zerocopy::little_endian::{U16, U64};
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

use crate::{BlkPtr, FormatError, ObjectType, Result, SECTOR};

/// Size of one dnode slot in bytes.
pub const DNODE_SLOT: usize = 512;
/// Size of a block of dnodes in bytes.
pub const DNODE_BLOCK: usize = 16 << 10;
/// Slots in a block of dnodes.
pub const DNODES_PER_BLOCK: u64 = (DNODE_BLOCK / DNODE_SLOT) as u64;
/// Bytes before the block pointers.
pub const DNODE_CORE: usize = 64;
/// Size of a block pointer in bytes.
pub const BLKPTR: usize = 128;
/// log2 of the size of indirect blocks of new objects.
pub const INDIRECT_SHIFT: u8 = 17;
/// Number of levels of the meta dnode of a new data set.
pub const META_LEVELS: u8 = 6;

/// Bits of [`DnodeCore::flags`].
pub struct DnodeFlags;

impl DnodeFlags {
    /// `used` counts bytes.
    pub const USED_BYTES: u8 = 1;
    /// Accounted to its user, group and project.
    pub const USERUSED_ACCOUNTED: u8 = 2;
    /// Has a spill block.
    pub const SPILL: u8 = 4;
    /// The object is accounted (object counts).
    pub const USEROBJUSED_ACCOUNTED: u8 = 8;
}

/// The first 64 bytes of a dnode.
#[derive(
    Clone, Copy, Debug, PartialEq, Eq, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned,
)]
#[repr(C)]
pub struct DnodeCore {
    /// Type of the object, 0 if the slot is free.
    pub kind: u8,
    /// log2 of the size of its indirect blocks.
    pub indirect_shift: u8,
    /// 1: the block pointers point to data.
    pub levels: u8,
    /// Number of block pointers, 1 to 3.
    pub nblkptr: u8,
    /// Type of the bonus.
    pub bonus_kind: u8,
    /// Checksum of its blocks (0: the data set's).
    pub checksum: u8,
    /// Compression of its blocks (0: the data set's).
    pub compress: u8,
    /// [`DnodeFlags`].
    pub flags: u8,
    /// Size of its data blocks, in sectors.
    pub data_block_sectors: U16,
    /// Bytes of bonus.
    pub bonus_len: U16,
    /// Slots beyond the first.
    pub extra_slots: u8,
    pad: [u8; 3],
    /// The highest block ever written.
    pub max_block: U64,
    /// Space used, see [`DnodeFlags::USED_BYTES`].
    pub used: U64,
    pad2: [U64; 4],
}

const _: () = assert!(size_of::<DnodeCore>() == DNODE_CORE);

/// A dnode in memory: its slots as bytes, with checked access to the parts.
#[derive(Clone, PartialEq, Eq)]
pub struct DnodePhys {
    core: DnodeCore,
    /// Block pointers, `core.nblkptr` of them.
    blkptrs: [BlkPtr; 3],
    /// All bytes from the end of the block pointers to the end of the last slot, less the spill
    /// pointer.
    bonus: Vec<u8>,
    spill: BlkPtr,
}

impl DnodePhys {
    /// Parses the dnode at the start of `bytes` (which may go on beyond it).
    ///
    /// `Ok(None)`: the slot is free. Errors name the field that cannot be.
    pub fn parse(bytes: &[u8]) -> Result<Option<DnodePhys>> {
        const WHAT: &str = "dnode";
        let short = |needed| FormatError::Short { what: WHAT, needed, have: bytes.len() as u64 };
        let (core, _) = DnodeCore::read_from_prefix(bytes).map_err(|_| short(64))?;
        if core.kind == 0 {
            return Ok(None);
        }
        let field =
            |field, seen: u64, expected| FormatError::Field { what: WHAT, field, seen, expected };
        if !(1..=3).contains(&core.nblkptr) {
            return Err(field("nblkptr", core.nblkptr.into(), "1 to 3"));
        }
        if !(10..=17).contains(&core.indirect_shift) {
            return Err(field("indblkshift", core.indirect_shift.into(), "10 to 17"));
        }
        if !(1..=12).contains(&core.levels) {
            return Err(field("nlevels", core.levels.into(), "1 to 12"));
        }
        if core.extra_slots >= DNODES_PER_BLOCK as u8 {
            return Err(field("extra_slots", core.extra_slots.into(), "at most 31"));
        }
        if core.data_block_sectors.get() == 0 {
            return Err(field("datablkszsec", 0, "at least 1"));
        }
        let size = (usize::from(core.extra_slots) + 1) * DNODE_SLOT;
        let slots = bytes.get(..size).ok_or_else(|| short(size as u64))?;
        let mut blkptrs = [BlkPtr::ZERO; 3];
        let mut at = DNODE_CORE;
        for bp in blkptrs.iter_mut().take(core.nblkptr.into()) {
            *bp = slots
                .get(at..)
                .and_then(|b| BlkPtr::read_from_prefix(b).ok())
                .ok_or_else(|| short(at as u64 + 128))?
                .0;
            at += BLKPTR;
        }
        let has_spill = core.flags & DnodeFlags::SPILL != 0;
        let end = if has_spill { size - BLKPTR } else { size };
        // A spill pointer must not lie on the others, either.
        let room = end.checked_sub(at);
        if room.is_none_or(|room| usize::from(core.bonus_len.get()) > room) {
            return Err(field("bonuslen", core.bonus_len.get().into(), "within the dnode"));
        }
        let bonus = slots.get(at..end).unwrap_or_default().to_vec();
        let spill = if has_spill {
            slots
                .get(end..)
                .and_then(|b| BlkPtr::read_from_prefix(b).ok())
                .ok_or_else(|| short(size as u64))?
                .0
        } else {
            BlkPtr::ZERO
        };
        Ok(Some(DnodePhys { core, blkptrs, bonus, spill }))
    }

    /// A dnode for a new object without blocks.
    ///
    /// `block_size` in bytes (a multiple of 512), `slots` of 512 bytes. The number of block
    /// pointers follows the kernel's rule: one if the bonus holds system attributes, else as many
    /// of three as the bonus leaves room for.
    pub fn new(
        kind: ObjectType,
        block_size: u32,
        bonus_kind: ObjectType,
        bonus_len: u16,
        slots: u8,
    ) -> Self {
        debug_assert!(block_size.is_multiple_of(SECTOR as u32) && block_size > 0);
        debug_assert!((1..=DNODES_PER_BLOCK as u8).contains(&slots));
        let size = usize::from(slots) * DNODE_SLOT;
        let nblkptr = if bonus_kind == ObjectType::SA {
            1
        } else {
            (1 + (size - DNODE_CORE - BLKPTR).saturating_sub(bonus_len.into()) / BLKPTR).min(3)
        };
        DnodePhys {
            core: DnodeCore {
                kind: kind.0,
                indirect_shift: INDIRECT_SHIFT,
                levels: 1,
                nblkptr: nblkptr as u8,
                bonus_kind: bonus_kind.0,
                checksum: 0,
                compress: 0,
                flags: 0,
                data_block_sectors: U16::new((block_size as u64 / SECTOR) as u16),
                bonus_len: U16::new(bonus_len),
                extra_slots: slots - 1,
                pad: [0; 3],
                max_block: U64::ZERO,
                used: U64::ZERO,
                pad2: [U64::ZERO; 4],
            },
            blkptrs: [BlkPtr::ZERO; 3],
            bonus: vec![0; size - DNODE_CORE - nblkptr * BLKPTR],
            spill: BlkPtr::ZERO,
        }
    }

    /// Writes the dnode into its slots; `out` must be exactly [`DnodePhys::size`] bytes.
    pub fn store(&self, out: &mut [u8]) {
        debug_assert_eq!(out.len(), self.size());
        out.fill(0);
        let mut rest = out;
        let mut put = |bytes: &[u8]| {
            let (to, tail) = std::mem::take(&mut rest).split_at_mut(bytes.len());
            to.copy_from_slice(bytes);
            rest = tail;
        };
        put(self.core.as_bytes());
        for bp in self.blkptrs() {
            put(bp.as_bytes());
        }
        put(&self.bonus);
        if self.has_spill() {
            put(self.spill.as_bytes());
        }
    }

    /// The fixed part.
    pub fn core(&self) -> &DnodeCore {
        &self.core
    }

    /// The fixed part, to change; sizes and counts must stay what they are.
    pub fn core_mut(&mut self) -> &mut DnodeCore {
        &mut self.core
    }

    /// Bytes that the dnode takes.
    pub fn size(&self) -> usize {
        self.slots() * DNODE_SLOT
    }

    /// Slots that the dnode takes.
    pub fn slots(&self) -> usize {
        usize::from(self.core.extra_slots) + 1
    }

    /// Type of the object.
    pub fn kind(&self) -> ObjectType {
        ObjectType(self.core.kind)
    }

    /// Type of the bonus.
    pub fn bonus_kind(&self) -> ObjectType {
        ObjectType(self.core.bonus_kind)
    }

    /// Size of a data block in bytes.
    pub fn block_size(&self) -> u32 {
        u32::from(self.core.data_block_sectors.get()) << 9
    }

    /// The highest block ever written.
    pub fn max_block(&self) -> u64 {
        self.core.max_block.get()
    }

    /// Space used by all its blocks, in bytes.
    pub fn used_bytes(&self) -> u64 {
        let used = self.core.used.get();
        if self.core.flags & DnodeFlags::USED_BYTES != 0 {
            used
        } else {
            used.saturating_mul(SECTOR)
        }
    }

    /// Block pointers in one indirect block, as log2.
    pub fn pointers_shift(&self) -> u32 {
        u32::from(self.core.indirect_shift) - 7
    }

    /// The block pointers of the top level.
    pub fn blkptrs(&self) -> &[BlkPtr] {
        self.blkptrs.get(..usize::from(self.core.nblkptr)).unwrap_or_default()
    }

    /// The block pointers of the top level, to change.
    pub fn blkptrs_mut(&mut self) -> &mut [BlkPtr] {
        self.blkptrs.get_mut(..usize::from(self.core.nblkptr)).unwrap_or_default()
    }

    /// The bytes of the bonus that count.
    pub fn bonus(&self) -> &[u8] {
        self.bonus.get(..usize::from(self.core.bonus_len.get())).unwrap_or_default()
    }

    /// The bytes of the bonus that count, to change.
    pub fn bonus_mut(&mut self) -> &mut [u8] {
        let len = usize::from(self.core.bonus_len.get());
        self.bonus.get_mut(..len).unwrap_or_default()
    }

    /// The largest bonus that this dnode can hold, in bytes, with or without a spill pointer.
    pub fn bonus_max(&self, with_spill: bool) -> usize {
        self.size()
            - DNODE_CORE
            - self.blkptrs().len() * BLKPTR
            - if with_spill { BLKPTR } else { 0 }
    }

    /// Replaces the bonus; it must fit.
    pub fn set_bonus(&mut self, bytes: &[u8]) -> Result<()> {
        let max = self.bonus_max(self.has_spill());
        if bytes.len() > max {
            return Err(FormatError::TooLarge {
                what: "dnode",
                field: "bonus",
                size: bytes.len() as u64,
                max: max as u64,
            });
        }
        self.bonus.clear();
        self.bonus.extend_from_slice(bytes);
        self.bonus.resize(max, 0);
        self.core.bonus_len.set(bytes.len() as u16);
        Ok(())
    }

    /// Is there a spill block?
    pub fn has_spill(&self) -> bool {
        self.core.flags & DnodeFlags::SPILL != 0
    }

    /// The pointer to the spill block.
    pub fn spill(&self) -> Option<&BlkPtr> {
        self.has_spill().then_some(&self.spill)
    }

    /// Sets or removes the pointer to the spill block; the bonus must leave room for it.
    pub fn set_spill(&mut self, spill: Option<BlkPtr>) -> Result<()> {
        let max = self.bonus_max(spill.is_some());
        let len = usize::from(self.core.bonus_len.get());
        if len > max {
            let (size, max) = (len as u64, max as u64);
            return Err(FormatError::TooLarge { what: "dnode", field: "bonus", size, max });
        }
        self.bonus.resize(max, 0);
        match spill {
            Some(bp) => {
                self.core.flags |= {
                    self.spill = bp;
                    DnodeFlags::SPILL
                }
            }
            None => {
                self.core.flags &= !{
                    self.spill = BlkPtr::ZERO;
                    DnodeFlags::SPILL
                }
            }
        }
        Ok(())
    }

    /// Number of levels that are needed so that block `block` can be reached.
    pub fn levels_for(&self, block: u64) -> u8 {
        let shift = self.pointers_shift();
        let mut levels = 1;
        let mut reach = u64::from(self.core.nblkptr);
        while reach <= block && levels < 12 {
            reach = reach.checked_shl(shift).filter(|r| r >> shift == reach).unwrap_or(u64::MAX);
            levels += 1;
        }
        levels
    }

    /// Number of the block of level `level` that leads to data block `block`.
    pub fn ancestor(&self, block: u64, level: u8) -> u64 {
        block.checked_shr(u32::from(level) * self.pointers_shift()).unwrap_or(0)
    }
}

impl std::fmt::Debug for DnodePhys {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(
            f,
            "{:?} lvl={} blksz={} max={} used={} bonus={:?}:{} slots={}",
            self.kind(),
            self.core.levels,
            self.block_size(),
            self.max_block(),
            self.used_bytes(),
            self.bonus_kind(),
            self.core.bonus_len.get(),
            self.slots()
        )
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn number_of_block_pointers_follows_the_bonus() {
        let count = |bonus_kind, len| {
            DnodePhys::new(ObjectType::DSL_DIR, 512, bonus_kind, len, 1).blkptrs().len()
        };
        assert_eq!(count(ObjectType::SA, 168), 1);
        for len in [0, 8, 40, 48, 64] {
            assert_eq!(count(ObjectType::BPOBJ_HDR, len), 3);
        }
        assert_eq!(count(ObjectType::DSL_DIR, 256), 1);
        assert_eq!(count(ObjectType::DSL_DATASET, 320), 1);
    }

    #[test]
    fn store_and_parse_are_inverse() {
        let mut dn = DnodePhys::new(ObjectType::PLAIN_FILE_CONTENTS, 4096, ObjectType::SA, 168, 2);
        dn.bonus_mut().fill(7);
        dn.blkptrs_mut()[0] = BlkPtr::hole(4096, dn.kind(), 0, 9);
        dn.set_spill(Some(BlkPtr::hole(512, ObjectType::SA, 0, 11))).unwrap();
        let mut bytes = vec![0xff; dn.size()];
        dn.store(&mut bytes);
        assert_eq!(DnodePhys::parse(&bytes).unwrap(), Some(dn));
    }

    #[test]
    fn levels_grow_with_the_block_number() {
        let dn = DnodePhys::new(ObjectType::PLAIN_FILE_CONTENTS, 512, ObjectType::SA, 8, 1);
        assert_eq!(dn.levels_for(0), 1);
        assert_eq!(dn.levels_for(1), 2);
        assert_eq!(dn.levels_for(1023), 2);
        assert_eq!(dn.levels_for(1024), 3);
        assert!(dn.levels_for(u64::MAX) <= 12);
    }

    #[test]
    fn hostile_dnodes_are_refused() {
        let mut bytes = vec![0; 512];
        assert_eq!(DnodePhys::parse(&bytes).unwrap(), None);
        bytes[0] = 19;
        assert!(DnodePhys::parse(&bytes).is_err());
        assert!(DnodePhys::parse(&bytes[..10]).is_err());
    }
}
