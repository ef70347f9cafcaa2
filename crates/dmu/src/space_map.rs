//! Space map objects: logs of allocations and frees, replayed into a metaslab.
//!
//! FORMAT: section 9.3.

use format::dtl::Dtl;
use format::space_map::{
    Action, Encoder, Geometry, Item, Run, SPACE_MAP_BLOCK_DTL, SPACE_MAP_BLOCK_LOG,
    SPACE_MAP_INDIRECT_SHIFT, SpaceMapPhys, items,
};
use format::{FormatError, ObjectType};
use rt::sync::Arc;

use crate::error::{DmuError, Result};
use crate::object::Object;
use crate::objset::Objset;
use crate::txg::Tx;

/// Ranges of txgs in a DTL that are believed, and bytes of their entries.
const DTL_RANGES_MAX: usize = 1 << 16;
const DTL_BYTES_MAX: u64 = 16 << 20;

/// A space map.
#[derive(Clone)]
pub struct SpaceMap(Arc<Object>);

impl SpaceMap {
    /// Makes a new, empty space map with blocks of 128 KiB; with a histogram if the pool's features
    /// allow it.
    pub fn create(objset: &Objset, tx: &Tx<'_>, with_histogram: bool) -> Result<SpaceMap> {
        Self::create_with(objset, tx, SPACE_MAP_BLOCK_LOG, with_histogram)
    }

    /// As [`SpaceMap::create`], for a DTL: with blocks of 4 KiB.
    pub fn create_dtl(objset: &Objset, tx: &Tx<'_>, with_histogram: bool) -> Result<SpaceMap> {
        Self::create_with(objset, tx, SPACE_MAP_BLOCK_DTL, with_histogram)
    }

    fn create_with(
        objset: &Objset,
        tx: &Tx<'_>,
        block: u32,
        with_histogram: bool,
    ) -> Result<SpaceMap> {
        let phys = SpaceMapPhys::default();
        let object = objset.allocate(
            tx,
            ObjectType::SPACE_MAP,
            block,
            ObjectType::SPACE_MAP_HEADER,
            phys.bonus(with_histogram),
            1,
        )?;
        object.change_header(tx, |d| d.core_mut().indirect_shift = SPACE_MAP_INDIRECT_SHIFT)?;
        Ok(SpaceMap(object))
    }

    /// Opens the space map in object `number`.
    pub fn open(objset: &Objset, number: u64) -> Result<SpaceMap> {
        objset.object_of(number, ObjectType::SPACE_MAP).map(SpaceMap)
    }

    /// The object's number.
    pub fn number(&self) -> u64 {
        self.0.number()
    }

    fn bad(&self, source: FormatError) -> DmuError {
        DmuError::Format { object: self.number(), source }
    }

    /// The header, and whether it has a histogram.
    pub fn phys(&self) -> Result<(SpaceMapPhys, bool)> {
        SpaceMapPhys::parse(&self.0.bonus()?).map_err(|e| self.bad(e))
    }

    /// Calls `each` for all entries, in order, each with the txg that its batch names (0: none).
    /// Ends with the first error of `each`.
    ///
    /// # Errors
    /// Of more than `bytes_max` bytes: pointers may lead to one block again and again.
    pub fn replay(
        &self,
        geometry: Geometry,
        bytes_max: u64,
        mut each: impl FnMut(u64, Run) -> Result<()>,
    ) -> Result<()> {
        let (phys, _) = self.phys()?;
        let block = u64::from(self.0.block_size()?);
        let stored = (self.0.max_block()?.saturating_add(1)).saturating_mul(block);
        if phys.length.get() > stored {
            let (what, field) = ("space map", "length");
            let (seen, expected) = (phys.length.get(), "no more than its blocks hold");
            return Err(self.bad(FormatError::Field { what, field, seen, expected }));
        }
        if phys.length.get() > bytes_max {
            let what = "the bytes of a space map";
            return Err(DmuError::Limit { object: self.number(), what });
        }
        let mut stamp = 0;
        let mut buf = vec![0; block as usize];
        let mut at = 0;
        while at < phys.length.get() {
            let part = (phys.length.get() - at).min(block) as usize;
            let number = at / block;
            if self.0.next_block(number, number + 1, false)?.is_some() {
                let (what, field, expected) = ("space map", "block", "not a hole");
                return Err(self.bad(FormatError::Field { what, field, seen: number, expected }));
            }
            self.0.read(at, &mut buf[..part])?;
            for item in items(&buf[..part], geometry) {
                match item.map_err(|e| self.bad(e))? {
                    Item::Debug { txg, .. } => stamp = txg,
                    Item::Run(run) => each(stamp, run)?,
                    Item::Padding => {}
                }
            }
            at += part as u64;
        }
        Ok(())
    }

    /// Appends allocations, then frees (both in bytes of the vdev), and sets the totals. Entries of
    /// two words only if the pool's features allow them.
    #[allow(clippy::too_many_arguments)]
    pub fn append(
        &self,
        tx: &Tx<'_>,
        pass: u16,
        geometry: Geometry,
        two_words: bool,
        allocs: &[(u64, u64)],
        frees: &[(u64, u64)],
        allocated: u64,
        histogram: &[u64; 32],
    ) -> Result<()> {
        let (mut phys, has_histogram) = self.phys()?;
        let encoder = Encoder { geometry, block_size: self.0.block_size()?, two_words };
        let at = phys.length.get();
        let mut bytes = Vec::new();
        let stamp = (tx.txg(), pass);
        for (action, runs) in [(Action::Alloc, allocs), (Action::Free, frees)] {
            let at = at + bytes.len() as u64;
            encoder
                .batch(&mut bytes, at, stamp, action, None, runs.iter().copied())
                .map_err(|e| self.bad(e))?;
        }
        self.0.write(tx, at, &bytes)?;
        phys.object.set(self.number());
        phys.length.set(at + bytes.len() as u64);
        phys.alloc.set(allocated as i64);
        for (to, from) in phys.histogram.iter_mut().zip(histogram) {
            to.set(*from);
        }
        self.0.set_bonus(tx, phys.bonus(has_histogram), None)
    }

    /// The txgs that a DTL names; its bytes are taken from what is `left`.
    ///
    /// # Errors
    /// If it is no DTL, or one of more than 65,536 ranges or 16 MiB, or than is left: nobody writes so many.
    pub fn dtl(&self, left: &mut u64) -> Result<Dtl> {
        let mut txgs = Dtl::default();
        let bytes_max = DTL_BYTES_MAX.min(*left);
        *left -= self.phys()?.0.length.get().min(*left);
        self.replay(Geometry::DTL, bytes_max, |_, run| {
            match run.action {
                Action::Alloc => txgs.add(run.offset, run.offset.saturating_add(run.size)),
                Action::Free => txgs.remove(run.offset, run.offset.saturating_add(run.size)),
            }
            let limit = DmuError::Limit { object: self.number(), what: "the ranges of a DTL" };
            if txgs.ranges().len() <= DTL_RANGES_MAX { Ok(()) } else { Err(limit) }
        })?;
        Ok(txgs)
    }

    /// Writes a DTL anew.
    pub fn set_dtl(&self, tx: &Tx<'_>, pass: u16, two_words: bool, txgs: &Dtl) -> Result<()> {
        let bytes = txgs.encode(tx.txg(), pass, two_words).map_err(|e| self.bad(e))?;
        let (mut phys, has_histogram) = self.phys()?;
        // What it held beyond the new end goes; the rest is written over.
        let block = u64::from(self.0.block_size()?);
        let blocks = (bytes.len() as u64).div_ceil(block);
        if self.0.max_block()? + 1 > blocks {
            self.0.free_blocks(tx, blocks, u64::MAX)?;
        }
        self.0.write(tx, 0, &bytes)?;
        phys.object.set(self.number());
        phys.length.set(bytes.len() as u64);
        phys.alloc.set(txgs.count() as i64);
        self.0.set_bonus(tx, phys.bonus(has_histogram), None)
    }

    /// Appends changes of a metaslab of the top-level vdev `top` to a log of all metaslabs.
    pub fn log(
        &self,
        tx: &Tx<'_>,
        pass: u16,
        top: u32,
        allocs: &[(u64, u64)],
        frees: &[(u64, u64)],
    ) -> Result<()> {
        let (mut phys, has_histogram) = self.phys()?;
        let (geometry, block_size) = (Geometry::LOG, self.0.block_size()?);
        let encoder = Encoder { geometry, block_size, two_words: true };
        let (at, stamp) = (phys.length.get(), (tx.txg(), pass));
        let (mut bytes, mut net) = (Vec::new(), phys.alloc.get());
        for (action, runs) in [(Action::Alloc, allocs), (Action::Free, frees)] {
            let at = at + bytes.len() as u64;
            encoder
                .batch(&mut bytes, at, stamp, action, Some(top), runs.iter().copied())
                .map_err(|e| self.bad(e))?;
            let sum: u64 = runs.iter().map(|(_, len)| len).sum();
            net = match action {
                Action::Alloc => net.saturating_add_unsigned(sum),
                Action::Free => net.saturating_sub_unsigned(sum),
            };
        }
        self.0.write(tx, at, &bytes)?;
        phys.object.set(self.number());
        phys.length.set(at + bytes.len() as u64);
        phys.alloc.set(net);
        self.0.set_bonus(tx, phys.bonus(has_histogram), None)
    }

    /// Sets the histogram alone: the changes that led to it are in a log.
    pub fn set_histogram(&self, tx: &Tx<'_>, histogram: &[u64; 32]) -> Result<()> {
        let (mut phys, has_histogram) = self.phys()?;
        phys.object.set(self.number());
        for (to, from) in phys.histogram.iter_mut().zip(histogram) {
            to.set(*from);
        }
        self.0.set_bonus(tx, phys.bonus(has_histogram), None)
    }

    /// Empties the map, so that its contents can be written anew (condensed).
    pub fn clear(&self, tx: &Tx<'_>) -> Result<()> {
        let (mut phys, has_histogram) = self.phys()?;
        self.0.free_blocks(tx, 0, u64::MAX)?;
        phys.length.set(0);
        phys.alloc.set(0);
        self.0.set_bonus(tx, phys.bonus(has_histogram), None)
    }
}
