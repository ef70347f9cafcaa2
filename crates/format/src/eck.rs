//! The checksum at the end of a self-checking block (`zio_eck_t`): a magic number and four words.
//!
//! Labels, uberblocks and gang headers end with one; an intent log block has it in its header. The
//! arithmetic is in `codec::embedded`; here is only where the words lie.

use zerocopy::little_endian::U64;
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

/// Bytes of magic and checksum.
pub const ECK_SIZE: usize = 40;
/// The magic number, in the writer's byte order.
pub const ECK_MAGIC: u64 = 0x0210_da7a_b10c_7a11;

/// Magic and checksum words.
#[derive(
    Clone, Copy, Debug, PartialEq, Eq, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned,
)]
#[repr(C)]
pub struct Eck {
    /// [`ECK_MAGIC`].
    pub magic: U64,
    /// The checksum; while it is computed, the verifier that says where the block belongs.
    pub words: [U64; 4],
}

const _: () = assert!(size_of::<Eck>() == ECK_SIZE);

impl Default for Eck {
    fn default() -> Self {
        Eck { magic: U64::new(ECK_MAGIC), words: [U64::ZERO; 4] }
    }
}

impl Eck {
    /// The checksum at the end of `block`; `None` if the block is shorter than that.
    pub fn of(block: &[u8]) -> Option<&Eck> {
        Eck::ref_from_suffix(block).ok().map(|(_, eck)| eck)
    }

    /// Puts magic and zero words at the end of `block`, if they fit.
    pub fn place(block: &mut [u8]) {
        if let Ok((_, eck)) = Eck::mut_from_suffix(block) {
            *eck = Eck::default();
        }
    }

    /// Did a host of the other byte order write the block?
    pub fn is_swapped(&self) -> bool {
        self.magic.get() == ECK_MAGIC.swap_bytes()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lies_at_the_end() {
        let mut block = [7; 100];
        Eck::place(&mut block);
        assert_eq!(&block[..60], [7; 60]);
        assert_eq!(block[60..68], [0x11, 0x7a, 0x0c, 0xb1, 0x7a, 0xda, 0x10, 0x02]);
        assert_eq!(Eck::of(&block), Some(&Eck::default()));
        assert!(!Eck::default().is_swapped());
        block[60..68].reverse();
        assert!(Eck::of(&block).unwrap().is_swapped());
        assert_eq!(Eck::of(&block[..39]), None);
        Eck::place(&mut block[..39]);
    }
}
