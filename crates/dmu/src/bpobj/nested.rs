//! Lists in lists: one list takes over another whole, and gives its entries back in portions.
//!
//! A list that is taken over is copied while it is small, else named as a sub-bpobj: so handing
//! over costs little however much it holds, and the nesting stays flat.

use format::bpobj::{BPOBJ_BLOCK, BpobjForm, entry_offset};
use format::{BlkPtr, ObjectType};
use zerocopy::FromBytes;

use super::{Bpobj, DEPTH_MAX};
use crate::error::{DmuError, Result};
use crate::ledger::Space;
use crate::objset::Objset;
use crate::txg::Tx;

/// Entries up to which a list that is taken over is copied: one block of them.
const COPIED_ENTRIES_MAX: u64 = BPOBJ_BLOCK as u64 / 128;
/// Sub-bpobjs up to which their list is copied: one block of numbers.
const COPIED_SUBS_MAX: u64 = BPOBJ_BLOCK as u64 / 8;
/// Sub-bpobjs of one list that are believed.
const SUBS_MAX: u64 = 1 << 24;

impl Bpobj {
    fn limit(&self, what: &'static str) -> DmuError {
        DmuError::Limit { object: self.number(), what }
    }

    /// Takes over all that list `other` holds: it is gone afterwards, or a part of this one.
    pub fn take_over(&self, objset: &Objset, tx: &Tx<'_>, other: &Bpobj) -> Result<()> {
        let space = other.space()?;
        let (mut theirs, their_form) = other.header()?;
        if other.number() == self.number() {
            return Err(self.limit("a list that would take over itself"));
        }
        if (1..=COPIED_SUBS_MAX).contains(&theirs.num_subobjs.get()) {
            let subs = other.subs(objset)?;
            for sub in &subs {
                let moved = Bpobj::open(objset, *sub)?.space()?;
                other.count(&mut theirs, u64::checked_sub, moved)?;
            }
            self.append_subs(objset, tx, &subs)?;
            objset.free(tx, theirs.subobjs_object.get())?;
            theirs.subobjs_object.set(0);
            theirs.num_subobjs.set(0);
        }
        let count = theirs.num_blkptrs.get();
        if theirs.num_subobjs.get() == 0 && count <= COPIED_ENTRIES_MAX {
            let mut entries = vec![0; count as usize * 128];
            other.0.read(0, &mut entries)?;
            let (mut ours, form) = self.header()?;
            self.0.write(tx, entry_offset(ours.num_blkptrs.get()), &entries)?;
            ours.num_blkptrs += count;
            self.0.set_bonus(tx, ours.bonus(form), None)?;
            objset.free(tx, other.number())?;
        } else {
            other.0.set_bonus(tx, theirs.bonus(their_form), None)?;
            self.append_subs(objset, tx, &[other.number()])?;
        }
        let (mut ours, form) = self.header()?;
        self.count(&mut ours, u64::checked_add, space)?;
        self.0.set_bonus(tx, ours.bonus(form), None)
    }

    /// Objects of the sub-bpobjs.
    pub(super) fn subs(&self, objset: &Objset) -> Result<Vec<u64>> {
        let phys = self.phys()?;
        let count = phys.num_subobjs.get();
        if count == 0 {
            return Ok(Vec::new());
        }
        let list = objset.object(phys.subobjs_object.get())?;
        let covered = (list.max_block()? + 1).saturating_mul(list.block_size()?.into()) / 8;
        if count > covered.min(SUBS_MAX) {
            return Err(self.limit("more sub-bpobjs than their list has room for"));
        }
        let mut bytes = vec![0; count as usize * 8];
        list.read(0, &mut bytes)?;
        let words = bytes.as_chunks().0;
        Ok(words.iter().map(|word| u64::from_le_bytes(*word)).collect())
    }

    /// Names sub-bpobjs; their space is counted by the caller.
    fn append_subs(&self, objset: &Objset, tx: &Tx<'_>, subs: &[u64]) -> Result<()> {
        let (mut phys, form) = self.header()?;
        if form < BpobjForm::Nested {
            return Err(self.limit("a list of an old form, which cannot hold others"));
        }
        let list = match phys.subobjs_object.get() {
            0 => {
                let kind = ObjectType::BPOBJ_SUBOBJ;
                let list = objset.allocate(tx, kind, BPOBJ_BLOCK, ObjectType::NONE, &[], 1)?;
                phys.subobjs_object.set(list.number());
                list
            }
            number => objset.object(number)?,
        };
        let bytes: Vec<u8> = subs.iter().flat_map(|sub| sub.to_le_bytes()).collect();
        list.write(tx, phys.num_subobjs.get().saturating_mul(8), &bytes)?;
        phys.num_subobjs += subs.len() as u64;
        self.0.set_bonus(tx, phys.bonus(form), None)
    }

    /// Takes up to `max` entries out of the list, the last ones first. Lists below that have
    /// nothing left are gone.
    pub fn take(
        &self,
        objset: &Objset,
        tx: &Tx<'_>,
        max: u64,
        space: &dyn Fn(&BlkPtr) -> Space,
    ) -> Result<Vec<BlkPtr>> {
        let mut out = Vec::new();
        self.take_within(objset, tx, max, space, &mut out, 0)?;
        Ok(out)
    }

    fn take_within(
        &self,
        objset: &Objset,
        tx: &Tx<'_>,
        max: u64,
        space: &dyn Fn(&BlkPtr) -> Space,
        out: &mut Vec<BlkPtr>,
        depth: u32,
    ) -> Result<Space> {
        if depth > DEPTH_MAX {
            return Err(self.limit("sub-bpobjs nested too deep"));
        }
        let mut total = Space::default();
        let own = self.phys()?.num_blkptrs.get().min(max.saturating_sub(out.len() as u64));
        if own > 0 {
            total += self.take_own(tx, own, space, out)?;
        }
        if self.phys()?.num_blkptrs.get() == 0 {
            let mut subs = self.subs(objset)?;
            let before = subs.len();
            while let Some(number) = subs.last() {
                let sub = Bpobj::open(objset, *number)?;
                total += sub.take_within(objset, tx, max, space, out, depth + 1)?;
                if !sub.phys()?.is_empty() {
                    break;
                }
                objset.free(tx, *number)?;
                subs.pop();
            }
            if subs.len() < before {
                self.keep_subs(objset, tx, subs.len() as u64)?;
            }
        }
        let (mut phys, form) = self.header()?;
        self.count(&mut phys, u64::checked_sub, total)?;
        self.0.set_bonus(tx, phys.bonus(form), None)?;
        Ok(total)
    }

    /// Takes the last `count` entries of the list itself.
    fn take_own(
        &self,
        tx: &Tx<'_>,
        count: u64,
        space: &dyn Fn(&BlkPtr) -> Space,
        out: &mut Vec<BlkPtr>,
    ) -> Result<Space> {
        let (mut phys, form) = self.header()?;
        let covered = (self.0.max_block()? + 1).saturating_mul(self.0.block_size()?.into()) / 128;
        if phys.num_blkptrs.get() > covered {
            return Err(self.limit("more entries than its blocks have room for"));
        }
        let left = phys.num_blkptrs.get() - count;
        let mut bytes = vec![0; count as usize * 128];
        self.0.read(entry_offset(left), &mut bytes)?;
        let mut total = Space::default();
        for entry in bytes.chunks_exact(128).rev() {
            if let Ok(bp) = BlkPtr::read_from_bytes(entry) {
                total += space(&bp);
                out.push(bp);
            }
        }
        let block = u64::from(self.0.block_size()?);
        self.0.free_blocks(tx, entry_offset(left).div_ceil(block), u64::MAX)?;
        phys.num_blkptrs.set(left);
        self.0.set_bonus(tx, phys.bonus(form), None)?;
        Ok(total)
    }

    /// Forgets all sub-bpobjs but the first `count`.
    fn keep_subs(&self, objset: &Objset, tx: &Tx<'_>, count: u64) -> Result<()> {
        let (mut phys, form) = self.header()?;
        phys.num_subobjs.set(count);
        if count == 0 {
            objset.free(tx, phys.subobjs_object.get())?;
            phys.subobjs_object.set(0);
        }
        self.0.set_bonus(tx, phys.bonus(form), None)
    }

    /// Frees the list with those below it, as objects: what they list stays as it is.
    pub fn free(&self, objset: &Objset, tx: &Tx<'_>) -> Result<()> {
        self.free_within(objset, tx, 0)
    }

    fn free_within(&self, objset: &Objset, tx: &Tx<'_>, depth: u32) -> Result<()> {
        if depth > DEPTH_MAX {
            return Err(self.limit("sub-bpobjs nested too deep"));
        }
        for sub in self.subs(objset)? {
            Bpobj::open(objset, sub)?.free_within(objset, tx, depth + 1)?;
        }
        let list = self.phys()?.subobjs_object.get();
        if list != 0 {
            objset.free(tx, list)?;
        }
        objset.free(tx, self.number())
    }
}
