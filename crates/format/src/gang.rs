//! Gang headers (`zio_gbh_phys_t`): a block that found no room in one piece, as up to three
//! smaller ones, which may be gangs again.
//!
//! FORMAT: section 2.5. Only the first 512 bytes of the header's allocation are used.

use zerocopy::little_endian::U64;
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

use crate::eck::Eck;
use crate::{BlkPtr, FormatError, Result, SECTOR};

/// Bytes of a gang header.
pub const GANG_SIZE: usize = 512;
/// Members of a gang.
pub const GANG_MEMBERS: usize = 3;
/// How deep gangs may nest: each level is about a third of the one above, and a block of 16 MiB
/// is 32768 sectors.
pub const GANG_DEPTH_MAX: usize = 16;

/// A gang header, in little-endian words.
#[derive(
    Clone, Copy, Debug, PartialEq, Eq, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned,
)]
#[repr(C)]
pub struct GangHeader {
    /// Its members; holes beyond the last one.
    pub pointers: [BlkPtr; GANG_MEMBERS],
    filler: [U64; 11],
    /// Its checksum.
    pub eck: Eck,
}

const _: () = assert!(size_of::<GangHeader>() == GANG_SIZE);
const _: () = assert!(std::mem::offset_of!(GangHeader, eck) == 472);

impl GangHeader {
    /// A header of these members; its checksum has still to be sealed.
    pub fn new(pointers: [BlkPtr; GANG_MEMBERS]) -> Self {
        GangHeader { pointers, filler: [U64::ZERO; 11], eck: Eck::default() }
    }

    /// Parses the header at the start of `bytes`, in either byte order; its checksum has been
    /// verified.
    pub fn parse(bytes: &[u8]) -> Result<Self> {
        let (needed, have) = (GANG_SIZE as u64, bytes.len() as u64);
        let short = FormatError::Short { what: "gang header", needed, have };
        let (header, _) = GangHeader::read_from_prefix(bytes).map_err(|_| short)?;
        if !header.eck.is_swapped() {
            return Ok(header);
        }
        let words: [U64; GANG_SIZE / 8] = zerocopy::transmute!(header);
        let words = words.map(|w| U64::new(w.get().swap_bytes()));
        Ok(zerocopy::transmute!(words))
    }

    /// The members, each with its offset in a block of `psize` bytes.
    ///
    /// Fails if the members are not exactly that block, which keeps a reader within its buffer. A
    /// gang could still contain itself as its only member: readers stop at [`GANG_DEPTH_MAX`].
    pub fn members(&self, psize: u64) -> Result<Vec<(u64, BlkPtr)>> {
        let mut members = Vec::with_capacity(GANG_MEMBERS);
        let mut offset: u64 = 0;
        for bp in self.pointers.iter().filter(|bp| !bp.is_hole()) {
            if bp.is_embedded() {
                let (field, seen, expected) = ("member", bp.prop(), "not an embedded pointer");
                return Err(FormatError::Field { what: "gang header", field, seen, expected });
            }
            members.push((offset, *bp));
            offset += bp.psize();
        }
        if offset != psize {
            let (field, seen, expected) = ("sum of members", offset, "the size of the block");
            return Err(FormatError::Field { what: "gang header", field, seen, expected });
        }
        Ok(members)
    }
}

/// Sizes of the members that the kernel would split `psize` bytes (a multiple of 512) into; 0: no
/// such member.
pub fn member_sizes(psize: u64) -> [u64; GANG_MEMBERS] {
    let mut rest = psize;
    std::array::from_fn(|index| {
        let share = rest / (GANG_MEMBERS - index) as u64;
        let exact = rest.is_multiple_of((GANG_MEMBERS - index) as u64);
        let size = (share + u64::from(!exact)).next_multiple_of(SECTOR).min(rest);
        rest -= size;
        size
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::blkptr::BlkProps;
    use crate::{Checksum, Compress, Dva, ObjectType};

    fn member(psize: u64) -> BlkPtr {
        let dva = Dva { vdev: 0, offset: 1 << 20, asize: psize, gang: false };
        let props = BlkProps {
            lsize: psize,
            psize,
            compress: Compress::Off,
            checksum: Checksum::Fletcher4,
            kind: ObjectType::NONE,
            level: 0,
        };
        BlkPtr::new(props, &[dva], 7, 0, [1, 2, 3, 4])
    }

    #[test]
    fn sizes_are_those_of_a_kernel_gang() {
        // A block of 128 KiB that the kernel ganged.
        assert_eq!(member_sizes(128 << 10), [44032, 43520, 43520]);
        assert_eq!(member_sizes(512), [512, 0, 0]);
        assert_eq!(member_sizes(1024), [512, 512, 0]);
    }

    #[test]
    fn members_fill_the_block() {
        let header = GangHeader::new([44032, 43520, 43520].map(member));
        let again = GangHeader::parse(header.as_bytes()).unwrap();
        assert_eq!(again, header);
        let offsets: Vec<u64> =
            header.members(128 << 10).unwrap().iter().map(|(offset, _)| *offset).collect();
        assert_eq!(offsets, [0, 44032, 87552]);
        assert!(header.members(127 << 10).is_err());
        assert!(GangHeader::new([BlkPtr::ZERO; 3]).members(512).is_err());
        let embedded = BlkPtr::embedded(512, Compress::Lz4, ObjectType::NONE, 1, &[0; 8]).unwrap();
        let header = GangHeader::new([embedded, BlkPtr::ZERO, BlkPtr::ZERO]);
        assert!(header.members(8).is_err());
    }

    #[test]
    fn the_other_byte_order() {
        let header = GangHeader::new([512, 512, 512].map(member));
        let mut bytes = header.as_bytes().to_vec();
        bytes.chunks_mut(8).for_each(<[u8]>::reverse);
        assert_eq!(GangHeader::parse(&bytes).unwrap(), header);
        assert!(GangHeader::parse(&bytes[..511]).is_err());
    }
}
