//! The header of a buffer of attributes.

use crate::blkptr::{bits, with_bits};
use crate::{FormatError, Result};

/// First word of a buffer.
pub const SA_MAGIC: u32 = 0x2f_505a;
/// Bytes of a header with at most one attribute of varying length.
pub const SA_HEADER: usize = 8;

const WHAT: &str = "SA header";
/// Sizes are below this: they have 6 bits, in units of 8 bytes.
const SIZE_END: usize = 64 * 8;
/// Where the lengths of attributes of varying length start.
const LENGTHS_AT: usize = 6;

/// What the header says.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SaHeader {
    /// Number of the layout.
    pub layout: u16,
    /// Bytes of the header, a multiple of 8: where the values start.
    pub size: usize,
}

impl SaHeader {
    /// Size of the header for so many attributes of varying length.
    pub fn size_for(varying: usize) -> usize {
        super::align8(SA_HEADER + varying.saturating_sub(1) * 2)
    }

    /// The header of a buffer; its size lies within the buffer.
    pub fn parse(bytes: &[u8]) -> Result<Self> {
        let short = |needed: usize| FormatError::Short {
            what: WHAT,
            needed: needed as u64,
            have: bytes.len() as u64,
        };
        let [m0, m1, m2, m3, i0, i1, _, _] =
            *bytes.first_chunk::<SA_HEADER>().ok_or_else(|| short(SA_HEADER))?;
        let magic = u32::from_le_bytes([m0, m1, m2, m3]);
        if magic != SA_MAGIC {
            let (seen, expected) = (magic.into(), SA_MAGIC.into());
            return Err(FormatError::Magic { what: WHAT, seen, expected });
        }
        let info = u64::from(u16::from_le_bytes([i0, i1]));
        let size = bits(info, 10, 6) as usize * 8;
        if size < SA_HEADER {
            let (seen, expected) = (size as u64, "at least 8 bytes");
            return Err(FormatError::Field { what: WHAT, field: "size", seen, expected });
        }
        if size > bytes.len() {
            return Err(short(size));
        }
        Ok(SaHeader { layout: bits(info, 0, 10) as u16, size })
    }

    /// Length of the `index`-th attribute of varying length; `None` beyond the header.
    pub fn length(&self, bytes: &[u8], index: usize) -> Option<usize> {
        let at = LENGTHS_AT.checked_add(index.checked_mul(2)?)?;
        let header = bytes.get(..self.size)?;
        header.get(at..)?.first_chunk().map(|b| usize::from(u16::from_le_bytes(*b)))
    }

    /// Puts the bytes of the header behind those of `out`, with the lengths of the attributes of varying length.
    pub fn put(self, lengths: &[u16], out: &mut Vec<u8>) -> Result<()> {
        let needed = LENGTHS_AT + 2 * lengths.len();
        if needed > self.size || !(SA_HEADER..SIZE_END).contains(&self.size) {
            let (size, max) = (needed.max(self.size) as u64, SIZE_END as u64 - 8);
            return Err(FormatError::TooLarge { what: WHAT, field: "lengths", size, max });
        }
        let info = with_bits(0, 0, 10, self.layout.into());
        let info = with_bits(info, 10, 6, self.size as u64 / 8) as u16;
        out.extend_from_slice(&SA_MAGIC.to_le_bytes());
        out.extend_from_slice(&info.to_le_bytes());
        out.extend(lengths.iter().flat_map(|len| len.to_le_bytes()));
        out.resize(out.len() + self.size - needed, 0);
        Ok(())
    }
}
