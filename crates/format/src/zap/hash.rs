//! Hashes of ZAP names: CRC-64 seeded with the ZAP's salt, of the normalized name.
//!
//! The one idea: a ZAP may treat names as equal that differ in case or in the form of their
//! Unicode characters; it stores them as given, and hashes their common form. FORMAT: section 6.1.

use super::normal::normalized;
use super::{FatFlags, Key};

/// Reflected polynomial of the CRC-64.
const POLYNOMIAL: u64 = 0xC96C_5795_D787_0F42;

/// CRC of each byte.
const TABLE: [u64; 256] = table();

#[allow(clippy::indexing_slicing)] // evaluated at compile time
const fn table() -> [u64; 256] {
    let mut table = [0; 256];
    let mut i = 0;
    while i < 256 {
        let mut crc = i as u64;
        let mut bit = 0;
        while bit < 8 {
            crc = if crc & 1 != 0 { (crc >> 1) ^ POLYNOMIAL } else { crc >> 1 };
            bit += 1;
        }
        table[i] = crc;
        i += 1;
    }
    table
}

/// Bits of `normflags`: which names are the same name.
pub struct NormFlags;

impl NormFlags {
    /// Case is ignored: names are hashed in upper case.
    pub const TOUPPER: u64 = 0x02;
    /// Canonical decomposition.
    pub const NFD: u64 = 0x10;
    /// Canonical decomposition, then composition.
    pub const NFC: u64 = 0x50;
    /// Compatible decomposition.
    pub const NFKD: u64 = 0x20;
    /// Compatible decomposition, then composition.
    pub const NFKC: u64 = 0x60;
    /// All that are known.
    pub const KNOWN: u64 = Self::TOUPPER | Self::NFC | Self::NFKC;
}

/// Number of top bits of a hash that are kept.
pub fn hash_bits(flags: u64) -> u32 {
    if flags & FatFlags::HASH64 != 0 { 48 } else { 28 }
}

/// The CRC of `bytes`, going on from `seed`; all 64 bits.
pub fn crc64(seed: u64, bytes: &[u8]) -> u64 {
    #[allow(clippy::indexing_slicing)] // a byte is below 256
    bytes.iter().fold(seed, |crc, &b| (crc >> 8) ^ TABLE[usize::from(crc as u8 ^ b)])
}

/// The hash of a key as a ZAP stores it: left-aligned, only the top bits kept.
///
/// `flags` are [`FatFlags`], 0 for a micro ZAP. `None`: see [`normalized`].
pub fn zap_hash(salt: u64, normflags: u64, flags: u64, key: Key<'_>) -> Option<u64> {
    let mask = !(u64::MAX >> hash_bits(flags));
    let hash = match key {
        Key::Words(words) if flags & FatFlags::PRE_HASHED != 0 => {
            words.first().copied().unwrap_or(0)
        }
        Key::Words(words) => words.iter().fold(salt, |crc, w| crc64(crc, &w.to_le_bytes())),
        Key::Name(name) => crc64(salt, &normalized(name, normflags)?),
    };
    Some(hash & mask)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_table_is_the_crc_of_single_bytes() {
        assert_eq!(TABLE[0], 0);
        assert_eq!(TABLE[1], 0xb32e_4cbe_03a7_5f6f);
        assert_eq!(TABLE[128], POLYNOMIAL);
        // CRC-64/XZ is this CRC with all bits of seed and result turned.
        assert_eq!(!crc64(u64::MAX, b"123456789"), 0x995d_c9bb_df19_39fa);
    }

    #[test]
    fn only_the_top_bits_count() {
        let hash = |flags| zap_hash(1, 0, flags, Key::Name(b"name")).unwrap();
        assert_eq!(hash(0) << 28, 0);
        assert_eq!(hash(FatFlags::HASH64) << 48, 0);
        assert_eq!(hash(0), hash(FatFlags::HASH64) & 0xffff_fff0_0000_0000);
        assert_ne!(hash(0), 0);
    }

    #[test]
    fn case_is_ignored_on_demand() {
        let hash = |norm, name| zap_hash(77, norm, 0, Key::Name(name));
        assert_eq!(hash(NormFlags::TOUPPER, b"aBc"), hash(0, b"ABC"));
        assert_ne!(hash(0, b"aBc"), hash(0, b"ABC"));
        assert_eq!(hash(NormFlags::NFKC, b"aBc"), hash(0, b"aBc"));
        assert_eq!(hash(NormFlags::NFD, "\u{e4}".as_bytes()), hash(0, "a\u{308}".as_bytes()));
        assert_eq!(hash(NormFlags::NFD, b"\xe4"), None);
        assert!(hash(0, b"\xe4").is_some());
    }

    #[test]
    fn word_keys_hash_their_bytes_low_to_high_unless_hashed_before() {
        let words = [0x0807_0605_0403_0201, 9];
        let bytes = [1, 2, 3, 4, 5, 6, 7, 8, 9, 0, 0, 0, 0, 0, 0, 0];
        let flags = FatFlags::HASH64 | FatFlags::UINT64_KEY;
        let hash = |flags, key| zap_hash(3, 0, flags, key).unwrap();
        assert_eq!(hash(flags, Key::Words(&words)), crc64(3, &bytes) >> 16 << 16);
        let flags = flags | FatFlags::PRE_HASHED;
        assert_eq!(hash(flags, Key::Words(&words)), words[0] >> 16 << 16);
    }
}
