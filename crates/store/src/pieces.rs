//! The pieces of a block: what lies where, and how each is known to be right.
//!
//! Place: for scrub and resilver, which look at every copy and not at the first that is good.
//! The one idea: a block is one piece for each of its DVAs; a gang is pieces of its headers and the pieces of
//! its members. Each piece is judged by itself, and one that is lost is taken from another copy of the same.

use codec::checksum;
use codec::embedded::{self, EmbeddedError, Place};
use format::gang::{GANG_DEPTH_MAX, GANG_SIZE};
use format::{BlkPtr, Checksum, Dva};

use crate::error::{Result, StoreError};
use crate::read::{Store, before_mac, check_sizes};

/// A block, a member of a gang or the header of one, with all its copies.
#[derive(Clone, Copy, Debug)]
pub struct Part {
    /// The pointer to it; of a header the pointer to the gang.
    pub bp: BlkPtr,
    /// Is it the header?
    pub header: bool,
}

impl Part {
    /// Its bytes on disk, parity aside.
    pub fn size(&self) -> usize {
        if self.header { GANG_SIZE } else { self.bp.psize() as usize }
    }

    /// Where its copies are.
    pub fn copies(&self) -> impl Iterator<Item = Dva> + use<> {
        self.bp.dvas()
    }

    /// Can it be told whether bytes are right?
    pub fn has_checksum(&self) -> bool {
        self.header
            || !matches!(self.bp.checksum(), None | Some(Checksum::Off | Checksum::Noparity))
    }
}

/// Are these the bytes of a block of an intent log, which has its checksum inside?
fn is_log_block(bp: &BlkPtr, place: Place, bytes: &[u8]) -> bool {
    match embedded::check(place, bytes) {
        Ok(_) => true,
        // The other two words are the MAC.
        Err(EmbeddedError::Mismatch { expected: [a, b, ..], computed: [c, d, e, f] }) => {
            bp.is_crypt() && ([a, b] == [c ^ e, d ^ f] || [a, b] == [c, d])
        }
        Err(_) => false,
    }
}

impl Store {
    /// The parts of a block that has space of its own.
    ///
    /// # Errors
    /// It is no block that can be, or a gang whose header is lost in all its copies.
    pub fn parts(&self, bp: &BlkPtr) -> Result<Vec<Part>> {
        let mut out = Vec::new();
        self.add_parts(bp, &mut out, 0)?;
        Ok(out)
    }

    fn add_parts(&self, bp: &BlkPtr, out: &mut Vec<Part>, depth: usize) -> Result<()> {
        check_sizes(bp)?;
        if !bp.is_gang() {
            out.push(Part { bp: *bp, header: false });
            return Ok(());
        }
        if depth >= GANG_DEPTH_MAX {
            let reason = "gang headers nested too deep";
            return Err(StoreError::BadPointer { bp: Box::new(*bp), reason });
        }
        out.push(Part { bp: *bp, header: true });
        for (_, member) in self.members(bp, bp.psize(), depth)? {
            self.add_parts(&member, out, depth + 1)?;
        }
        Ok(())
    }

    /// Are these the bytes of the part? Those without a checksum always are.
    pub fn is_right(&self, part: &Part, bytes: &[u8]) -> bool {
        let bp = &part.bp;
        if part.header {
            let first = bp.dva(0);
            let (vdev, offset, txg) = (first.vdev, first.offset, bp.physical_birth());
            let place = Place::GangHeader { vdev, offset, txg };
            return embedded::check(place, bytes).is_ok();
        }
        let kind = match bp.checksum() {
            None => return false,
            Some(Checksum::Off | Checksum::Noparity) => return true,
            Some(Checksum::Zilog) => {
                return is_log_block(bp, Place::Zilog { pointer: bp.checksum_words() }, bytes);
            }
            Some(Checksum::Zilog2) => {
                return is_log_block(bp, Place::Zilog2 { pointer: bp.checksum_words() }, bytes);
            }
            Some(kind) => kind,
        };
        // Of an encrypted pointer the last two words are the MAC.
        let crypt = bp.is_crypt() && bp.kind() != format::ObjectType::OBJSET;
        let words = bp.checksum_words();
        match checksum::compute(kind, bytes, !bp.is_little_endian(), &self.salt()) {
            Ok(seen) if crypt => before_mac(kind, seen) == words[..2],
            Ok(seen) => seen == words,
            Err(_) => false,
        }
    }

    /// Reads a part from any of its copies into `out`, which is as long as it.
    pub fn read_part(&self, part: &Part, out: &mut [u8]) -> Result<()> {
        let birth = part.bp.physical_birth();
        let mut last = None;
        for dva in part.copies() {
            let mut check = |bytes: &[u8]| self.is_right(part, bytes);
            match self.tree().read(dva.vdev, dva.offset, birth, out, &mut check) {
                Ok(_) => return Ok(()),
                Err(error) => last = Some(StoreError::from(error)),
            }
        }
        Err(last.unwrap_or(StoreError::BadPointer { bp: Box::new(part.bp), reason: "no copy" }))
    }
}
