//! Lists of block pointers (bpobj): deadlists and pending frees.
//!
//! FORMAT: section 9.1. Entries are appended at the end; sums of their space are in the bonus. How
//! lists are nested and taken apart is in `nested`.

mod nested;

use format::bpobj::{BPOBJ_BLOCK, BpobjForm, BpobjPhys, encode_entry, entry_offset};
use format::{BlkPtr, ObjectType};
use rt::sync::Arc;
use zerocopy::{FromBytes, IntoBytes};

use crate::error::{DmuError, Result};
use crate::ledger::Space;
use crate::object::Object;
use crate::objset::Objset;
use crate::txg::Tx;

/// Nesting of sub-bpobjs that is followed.
const DEPTH_MAX: u32 = 64;

/// A list of block pointers.
#[derive(Clone)]
pub struct Bpobj(Arc<Object>);

impl Bpobj {
    /// Makes a new, empty list with blocks of `block_size` bytes.
    pub fn create(objset: &Objset, tx: &Tx<'_>, block_size: u32) -> Result<Bpobj> {
        let phys = BpobjPhys::default();
        let bonus = phys.bonus(BpobjForm::Nested);
        let (kind, bonus_kind) = (ObjectType::BPOBJ, ObjectType::BPOBJ_HDR);
        objset.allocate(tx, kind, block_size, bonus_kind, bonus, 1).map(Bpobj)
    }

    /// Makes a list of the ordinary block size.
    pub fn create_default(objset: &Objset, tx: &Tx<'_>) -> Result<Bpobj> {
        Self::create(objset, tx, BPOBJ_BLOCK)
    }

    /// Opens the list in object `number`.
    pub fn open(objset: &Objset, number: u64) -> Result<Bpobj> {
        objset.object_of(number, ObjectType::BPOBJ).map(Bpobj)
    }

    /// The object's number.
    pub fn number(&self) -> u64 {
        self.0.number()
    }

    /// The header.
    pub fn phys(&self) -> Result<BpobjPhys> {
        self.header().map(|(phys, _)| phys)
    }

    fn header(&self) -> Result<(BpobjPhys, BpobjForm)> {
        BpobjPhys::parse(&self.0.bonus()?)
            .map_err(|source| DmuError::Format { object: self.number(), source })
    }

    /// Appends block pointers; `space` says what each counts.
    pub fn append(
        &self,
        tx: &Tx<'_>,
        bps: &[BlkPtr],
        space: impl Fn(&BlkPtr) -> Space,
    ) -> Result<()> {
        let mut total = Space::default();
        bps.iter().for_each(|bp| total += space(bp));
        self.append_counted(tx, bps, total)
    }

    /// Appends block pointers whose space is `total`.
    fn append_counted(&self, tx: &Tx<'_>, bps: &[BlkPtr], total: Space) -> Result<()> {
        let (mut phys, form) = self.header()?;
        let mut bytes = Vec::with_capacity(bps.len() * 128);
        for bp in bps {
            bytes.extend_from_slice(encode_entry(bp, false).as_bytes());
        }
        self.0.write(tx, entry_offset(phys.num_blkptrs.get()), &bytes)?;
        phys.num_blkptrs += bps.len() as u64;
        self.count(&mut phys, u64::checked_add, total)?;
        self.0.set_bonus(tx, phys.bonus(form), None)
    }

    /// Counts space in or out of the sums of a header.
    fn count(
        &self,
        phys: &mut BpobjPhys,
        change: fn(u64, u64) -> Option<u64>,
        space: Space,
    ) -> Result<()> {
        for (sum, by) in [
            (&mut phys.bytes, space.used),
            (&mut phys.compressed_bytes, space.compressed),
            (&mut phys.uncompressed_bytes, space.uncompressed),
        ] {
            let what = "a list whose sums are not those of its entries";
            let limit = DmuError::Limit { object: self.number(), what };
            sum.set(change(sum.get(), by).ok_or(limit)?);
        }
        Ok(())
    }

    /// The space of all that is in it.
    pub fn space(&self) -> Result<Space> {
        let phys = self.phys()?;
        Ok(Space {
            used: phys.bytes.get(),
            compressed: phys.compressed_bytes.get(),
            uncompressed: phys.uncompressed_bytes.get(),
        })
    }

    /// Calls `each` for all entries, those of sub-bpobjs too.
    pub fn for_each(
        &self,
        objset: &Objset,
        each: &mut dyn FnMut(&BlkPtr) -> Result<()>,
    ) -> Result<()> {
        self.walk(objset, each, 0)
    }

    fn walk(
        &self,
        objset: &Objset,
        each: &mut dyn FnMut(&BlkPtr) -> Result<()>,
        depth: u32,
    ) -> Result<()> {
        if depth > DEPTH_MAX {
            let what = "sub-bpobjs nested too deep";
            return Err(DmuError::Limit { object: self.number(), what });
        }
        let (phys, _) = self.header()?;
        let mut chunk = vec![0; BPOBJ_BLOCK as usize];
        let end = phys.num_blkptrs.get().saturating_mul(128);
        let mut at = 0;
        while at < end {
            let part = (end - at).min(chunk.len() as u64) as usize;
            self.0.read(at, &mut chunk[..part])?;
            for entry in chunk[..part].chunks_exact(128) {
                if let Ok(bp) = BlkPtr::read_from_bytes(entry) {
                    each(&bp)?;
                }
            }
            at += part as u64;
        }
        for sub in self.subs(objset)? {
            Bpobj::open(objset, sub)?.walk(objset, each, depth + 1)?;
        }
        Ok(())
    }
}
