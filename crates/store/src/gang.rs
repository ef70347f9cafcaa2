//! Gangs: a block that finds no room in one piece is written as up to three smaller ones, which may be
//! gangs again, under a header that its pointer leads to.
//!
//! FORMAT: section 2.5. The one idea: a gang differs from another block only in its DVAs. Each stands for all
//! that is below it, so what counts space (dnode, data set, directory) adds a gang up as it adds any block.
//! The header has one copy more than the data, and is sealed with the address of its first copy.

use codec::checksum::{self, Salt};
use codec::embedded::{self, Place};
use format::blkptr::BlkProps;
use format::gang::{GANG_DEPTH_MAX, GANG_MEMBERS, GANG_SIZE, GangHeader, member_sizes};
use format::{BlkPtr, Checksum, Compress, Dva, ObjectType};
use vdev::WriteScratch;
use zerocopy::IntoBytes;

use crate::error::{Result, StoreError};
use crate::write::Writer;

/// Copies that a block can have.
const COPIES: usize = 3;

/// What the pieces of a block have in common.
#[derive(Clone, Copy)]
pub(crate) struct Cut {
    pub(crate) worker: usize,
    pub(crate) txg: u64,
    pub(crate) checksum: Checksum,
    /// Copies of the data.
    pub(crate) copies: usize,
    pub(crate) salt: Salt,
}

impl Cut {
    /// The checksum of the block, or of a member.
    pub(crate) fn sum(&self, bytes: &[u8]) -> [u64; 4] {
        if self.checksum == Checksum::Off {
            return [0; 4];
        }
        checksum::compute(self.checksum, bytes, false, &self.salt)
            .expect("policies name checksums that can be computed")
    }

    /// Copies of a header.
    fn headers(&self) -> usize {
        (self.copies + 1).min(COPIES)
    }
}

/// The DVAs of a block, and how many there are.
pub(crate) type Places = ([Dva; COPIES], usize);

impl Writer {
    /// Places for all copies of a block; `None`: there is none for one of them, and none is taken.
    pub(crate) fn place(&self, worker: usize, psize: u64, copies: usize) -> Result<Option<Places>> {
        let allocator = self.allocator();
        let asize_of = |top, psize| self.store().asize(top, psize);
        if asize_of(0, psize) > asize_of(0, GANG_SIZE as u64) && allocator.must_gang(psize) {
            return Ok(None);
        }
        let mut dvas = [Dva::default(); COPIES];
        for copy in 0..copies {
            match allocator.allocate(worker, copy, psize, &dvas[..copy], &asize_of) {
                Ok(dva) => dvas[copy] = dva,
                Err(StoreError::NoSpace { .. }) => {
                    for (copy, dva) in dvas[..copy].iter().enumerate() {
                        allocator.give_back(worker, copy, *dva)?;
                    }
                    return Ok(None);
                }
                Err(e) => return Err(e),
            }
        }
        Ok(Some((dvas, copies)))
    }

    /// Writes `stored`, the bytes of a block, in pieces; returns the DVAs of its header.
    ///
    /// # Errors
    /// [`StoreError::NoSpace`] if there is not even room for a header.
    pub(crate) fn write_gang(
        &self,
        cut: &Cut,
        stored: &[u8],
        scratch: &mut WriteScratch,
    ) -> Result<Places> {
        self.write_gang_at(cut, stored, scratch, 0)
    }

    fn write_gang_at(
        &self,
        cut: &Cut,
        stored: &[u8],
        scratch: &mut WriteScratch,
        depth: usize,
    ) -> Result<Places> {
        let header_size = GANG_SIZE as u64;
        let asize_of = |top, psize| self.store().asize(top, psize);
        let smallest = asize_of(0, stored.len() as u64) <= asize_of(0, header_size);
        if smallest || depth >= GANG_DEPTH_MAX {
            return Err(StoreError::NoSpace { asize: asize_of(0, stored.len() as u64) });
        }
        let mut dvas = [Dva::default(); COPIES];
        let count = cut.headers();
        for copy in 0..count {
            let placed = &dvas[..copy];
            dvas[copy] =
                self.allocator().allocate(cut.worker, copy, header_size, placed, &asize_of)?;
        }
        let at = dvas;
        let mut pointers = [BlkPtr::ZERO; GANG_MEMBERS];
        let mut rest = stored;
        for (pointer, size) in pointers.iter_mut().zip(member_sizes(stored.len() as u64)) {
            let (part, later) = rest.split_at(size as usize);
            rest = later;
            if !part.is_empty() {
                *pointer = self.write_member(cut, part, scratch, depth)?;
                for (dva, below) in dvas.iter_mut().zip(pointer.dvas()) {
                    dva.asize += below.asize;
                }
            }
        }
        self.write_header(cut.txg, &at[..count], pointers, scratch)?;
        dvas[..count].iter_mut().for_each(|dva| dva.gang = true);
        Ok((dvas, count))
    }

    /// Writes one piece, and waits for devices that do not take it, as for any other block.
    fn put(&self, dva: Dva, bytes: &[u8], scratch: &mut WriteScratch) -> Result<()> {
        self.gate().insist(|| Ok(self.out().write(dva.vdev, dva.offset, bytes, scratch)?))?;
        Ok(())
    }

    fn write_member(
        &self,
        cut: &Cut,
        part: &[u8],
        scratch: &mut WriteScratch,
        depth: usize,
    ) -> Result<BlkPtr> {
        let size = part.len() as u64;
        let (dvas, count) = match self.place(cut.worker, size, cut.copies)? {
            Some((dvas, count)) => {
                for dva in &dvas[..count] {
                    self.put(*dva, part, scratch)?;
                }
                (dvas, count)
            }
            None => self.write_gang_at(cut, part, scratch, depth + 1)?,
        };
        let props = BlkProps {
            lsize: size,
            psize: size,
            compress: Compress::Off,
            checksum: cut.checksum,
            kind: ObjectType::NONE,
            level: 0,
        };
        Ok(BlkPtr::new(props, &dvas[..count], cut.txg, 0, cut.sum(part)))
    }

    fn write_header(
        &self,
        txg: u64,
        at: &[Dva],
        pointers: [BlkPtr; GANG_MEMBERS],
        scratch: &mut WriteScratch,
    ) -> Result<()> {
        let header = GangHeader::new(pointers);
        let mut bytes = [0; GANG_SIZE];
        bytes.copy_from_slice(header.as_bytes());
        let (vdev, offset) = (at[0].vdev, at[0].offset);
        embedded::seal(Place::GangHeader { vdev, offset, txg }, &mut bytes)
            .expect("a header has room for its checksum");
        for dva in at {
            self.put(*dva, &bytes, scratch)?;
        }
        Ok(())
    }

    /// Writes other bytes over a gang of this txg: all of it stays where it is.
    pub(crate) fn rewrite_gang(
        &self,
        cut: &Cut,
        old: &BlkPtr,
        stored: &[u8],
        scratch: &mut WriteScratch,
        depth: usize,
    ) -> Result<()> {
        let members = self.store().members(old, stored.len() as u64, depth)?;
        let mut pointers = [BlkPtr::ZERO; GANG_MEMBERS];
        for (pointer, (offset, mut member)) in pointers.iter_mut().zip(members) {
            let part = &stored[offset as usize..][..member.psize() as usize];
            if member.is_gang() {
                self.rewrite_gang(cut, &member, part, scratch, depth + 1)?;
            } else {
                for dva in member.dvas() {
                    self.put(dva, part, scratch)?;
                }
            }
            member.set_checksum_words(cut.sum(part));
            *pointer = member;
        }
        let at: Vec<Dva> = old.dvas().collect();
        self.write_header(cut.txg, &at, pointers, scratch)
    }

    /// Can a block of this txg be written over where it is?
    pub(crate) fn fits_over(old: &BlkPtr, psize: u64, copies: usize) -> bool {
        let due = if old.is_gang() { (copies + 1).min(COPIES) } else { copies };
        old.psize() == psize && old.dvas().count() == due
    }
}
