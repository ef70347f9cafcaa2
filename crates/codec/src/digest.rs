//! Digests of whole files as other systems ask for them: adler32 and crc32c.
//!
//! The one idea: both can be put together from those of pieces. So the pieces may come in any order, and one that is
//! written anew costs no more than itself.

/// The remainder that adler32 counts by.
const ADLER: u64 = 65521;
/// The generator of crc32c, its highest power in the lowest bit (and x^32 left out).
const GENERATOR: u32 = 0x82f6_3b78;
/// The polynomial 1, in the same order of bits.
const ONE: u32 = 1 << 31;
/// x^(2^k) modulo the generator: enough of them for any number of bits in 2^64 bytes.
const POWERS: [u32; 67] = powers();

/// The digests of some bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Digest {
    /// How many bytes.
    pub length: u64,
    /// Their adler32.
    pub adler32: u32,
    /// Their crc32c.
    pub crc32c: u32,
}

impl Digest {
    /// Those of nothing.
    pub const EMPTY: Digest = Digest { length: 0, adler32: 1, crc32c: 0 };

    /// Those of `bytes`.
    #[must_use]
    pub fn of(bytes: &[u8]) -> Digest {
        let mut adler = simd_adler32::Adler32::new();
        let mut crc = crc_fast::Digest::new(crc_fast::CrcAlgorithm::Crc32Iscsi);
        // While a part is in the cache of the processor, for both.
        for part in bytes.chunks(16 << 10) {
            adler.write(part);
            crc.update(part);
        }
        Digest {
            length: bytes.len() as u64,
            adler32: adler.finish(),
            crc32c: crc.finalize() as u32,
        }
    }

    /// Those of so many zeros.
    #[must_use]
    pub fn zeros(length: u64) -> Digest {
        // Zeros before a string change nothing but what stands for nothing: all ones at the beginning and the end.
        let crc32c = times(shift(length), u32::MAX) ^ u32::MAX;
        let adler32 = ((length % ADLER) as u32) << 16 | 1;
        Digest { length, adler32, crc32c }
    }

    /// Those of these bytes with others behind them.
    #[must_use]
    pub fn then(self, next: Digest) -> Digest {
        let halves = |sum: u32| (u64::from(sum & 0xffff), u64::from(sum >> 16));
        let ((a1, b1), (a2, b2)) = (halves(self.adler32), halves(next.adler32));
        let a = (a1 + a2 + ADLER - 1) % ADLER;
        let b = (b1 + b2 + (next.length % ADLER) * (a1 + ADLER - 1)) % ADLER;
        Digest {
            length: self.length.saturating_add(next.length),
            adler32: (b as u32) << 16 | a as u32,
            crc32c: times(shift(next.length), self.crc32c) ^ next.crc32c,
        }
    }
}

/// The product of two polynomials modulo the generator.
const fn times(a: u32, mut b: u32) -> u32 {
    let (mut product, mut bit) = (0, ONE);
    while bit != 0 {
        if a & bit != 0 {
            product ^= b;
        }
        b = if b & 1 != 0 { (b >> 1) ^ GENERATOR } else { b >> 1 };
        bit >>= 1;
    }
    product
}

const fn powers() -> [u32; 67] {
    let mut out = [0; 67];
    // x itself.
    out[0] = ONE >> 1;
    let mut k = 1;
    while k < out.len() {
        out[k] = times(out[k - 1], out[k - 1]);
        k += 1;
    }
    out
}

/// What moves a crc over so many bytes: x^(8 * bytes) modulo the generator.
fn shift(bytes: u64) -> u32 {
    let set = (0..64).filter(|k| bytes >> k & 1 != 0);
    set.fold(ONE, |product, k| times(POWERS[k + 3], product))
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    /// As RFC 3720 defines it (section 12.1).
    fn bit_by_bit(bytes: &[u8]) -> u32 {
        let step = |crc: u32, _| crc >> 1 ^ if crc & 1 != 0 { GENERATOR } else { 0 };
        !bytes.iter().fold(!0, |crc, byte| (0..8).fold(crc ^ u32::from(*byte), step))
    }

    #[test]
    fn known_answers() {
        // RFC 1950's algorithm on a known text, and RFC 3720's examples (section B.4).
        assert_eq!(Digest::of(b"Wikipedia").adler32, 0x11e6_0398);
        assert_eq!(Digest::of(&[0; 32]).crc32c, 0x8a91_36aa);
        assert_eq!(Digest::of(&[0xff; 32]).crc32c, 0x62a8_ab43);
        let rising: Vec<u8> = (0..32).collect();
        assert_eq!(Digest::of(&rising).crc32c, 0x46dd_794e);
        assert_eq!(Digest::of(b""), Digest::EMPTY);
    }

    #[test]
    fn zeros_are_counted_not_read() {
        let zeros = vec![0; 200_000];
        for length in [0, 1, 2, 3, 4095, 65_520, 65_521, 65_522, 200_000] {
            assert_eq!(Digest::zeros(length as u64), Digest::of(&zeros[..length]), "{length}");
        }
        // Far beyond what can be read: in two ways.
        let (far, half) = (Digest::zeros(1 << 62), Digest::zeros(1 << 61));
        assert_eq!(half.then(half), far);
    }

    proptest! {
        #[test]
        fn pieces_make_the_whole(
            bytes in proptest::collection::vec(any::<u8>(), 0..70_000),
            at in any::<prop::sample::Index>(),
        ) {
            let (one, other) = bytes.split_at(at.index(bytes.len() + 1));
            let (first, second) = (Digest::of(one), Digest::of(other));
            prop_assert_eq!(first.then(second), Digest::of(&bytes));
            prop_assert_eq!(first.then(second).crc32c, bit_by_bit(&bytes));
        }
    }
}
