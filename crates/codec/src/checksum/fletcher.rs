//! Fletcher sums over words of 8 bytes (fletcher2) and of 4 bytes (fletcher4).
//!
//! One idea: the sums of a long run of words follow from sums over interleaved lanes, and the sums
//! of two runs from the sums of each, because all of them are weighted sums of the words. With
//! `t` words left at a word (itself included), the weights in a, b, c, d are 1, t, t(t+1)/2 and
//! t(t+1)(t+2)/6. All arithmetic is modulo 2^64.

use super::Words;

/// Calls `whole` with as many bytes as are a whole number of units of `N` bytes, keeping the rest
/// in `held` for the next call: pieces of a block may end within a word.
#[inline]
fn in_units<const N: usize>(
    held: &mut [u8; N],
    held_len: &mut usize,
    mut piece: &[u8],
    mut whole: impl FnMut(&[u8]),
) {
    if *held_len > 0 {
        let take = (N - *held_len).min(piece.len());
        held[*held_len..*held_len + take].copy_from_slice(&piece[..take]);
        *held_len += take;
        piece = &piece[take..];
        if *held_len < N {
            return;
        }
        whole(held);
        *held_len = 0;
    }
    let (units, rest) = piece.split_at(piece.len() - piece.len() % N);
    if !units.is_empty() {
        whole(units);
    }
    held[..rest.len()].copy_from_slice(rest);
    *held_len = rest.len();
}

/// Fletcher2: two interleaved pairs of sums over words of 8 bytes.
#[derive(Clone)]
pub struct Fletcher2 {
    sums: Words,
    swapped: bool,
    held: [u8; 16],
    held_len: usize,
    size: u64,
}

impl Fletcher2 {
    /// Starts a sum; `swapped`: the words are big-endian.
    pub fn new(swapped: bool) -> Self {
        Fletcher2 { sums: [0; 4], swapped, held: [0; 16], held_len: 0, size: 0 }
    }

    /// Takes the next bytes.
    pub fn update(&mut self, piece: &[u8]) {
        let Fletcher2 { sums, swapped, held, held_len, size } = self;
        *size += piece.len() as u64;
        in_units(held, held_len, piece, |units| {
            *sums = if *swapped {
                fletcher2::<true>(*sums, units)
            } else {
                fletcher2::<false>(*sums, units)
            }
        });
    }

    /// The sums, or the size in bytes if that is not a multiple of 16.
    pub fn finish(self) -> Result<Words, u64> {
        if self.held_len == 0 { Ok(self.sums) } else { Err(self.size) }
    }
}

fn fletcher2<const SWAP: bool>([mut a0, mut a1, mut b0, mut b1]: Words, data: &[u8]) -> Words {
    let word = |bytes: &[u8]| {
        let word = u64::from_le_bytes(bytes.try_into().expect("words are of 8 bytes"));
        if SWAP { word.swap_bytes() } else { word }
    };
    for pair in data.chunks_exact(16) {
        let (x, y) = pair.split_at(8);
        a0 = a0.wrapping_add(word(x));
        a1 = a1.wrapping_add(word(y));
        b0 = b0.wrapping_add(a0);
        b1 = b1.wrapping_add(a1);
    }
    [a0, a1, b0, b1]
}

/// Fletcher4: four sums, each of the one before, over words of 4 bytes.
#[derive(Clone)]
pub struct Fletcher4 {
    sums: Words,
    swapped: bool,
    held: [u8; 4],
    held_len: usize,
    size: u64,
}

impl Fletcher4 {
    /// Starts a sum; `swapped`: the words are big-endian.
    pub fn new(swapped: bool) -> Self {
        Fletcher4 { sums: [0; 4], swapped, held: [0; 4], held_len: 0, size: 0 }
    }

    /// Takes the next bytes.
    pub fn update(&mut self, piece: &[u8]) {
        let Fletcher4 { sums, swapped, held, held_len, size } = self;
        *size += piece.len() as u64;
        in_units(held, held_len, piece, |units| {
            *sums = append(*sums, Engine::best().sums(units, *swapped), units.len() as u64 / 4);
        });
    }

    /// The sums, or the size in bytes if that is not a multiple of 4.
    pub fn finish(self) -> Result<Words, u64> {
        if self.held_len == 0 { Ok(self.sums) } else { Err(self.size) }
    }
}

/// Fletcher4 of `data`, whose length is a multiple of 4 (a rest is left out).
pub fn fletcher4(data: &[u8]) -> Words {
    Engine::best().sums(data, false)
}

/// Fletcher4 of two runs of words, one after the other, from the sums of each;
/// `words_second` is the number of words of the second.
pub fn append(first: Words, second: Words, words_second: u64) -> Words {
    let [a, b, c, d] = first;
    // Each word of the first run has words_second more words after it than it was summed with.
    let [one, two, three] = weights(words_second);
    let sum = |terms: [u64; 4]| terms.into_iter().fold(0u64, u64::wrapping_add);
    [
        sum([second[0], a, 0, 0]),
        sum([second[1], b, one.wrapping_mul(a), 0]),
        sum([second[2], c, one.wrapping_mul(b), two.wrapping_mul(a)]),
        sum([
            second[3],
            d,
            one.wrapping_mul(c),
            two.wrapping_mul(b).wrapping_add(three.wrapping_mul(a)),
        ]),
    ]
}

/// The weights t, t(t+1)/2 and t(t+1)(t+2)/6 modulo 2^64; `t` may stand for a negative number.
pub(super) const fn weights(t: u64) -> [u64; 3] {
    /// 3 times this is 1 modulo 2^64: how a multiple of 3 is divided by 3.
    const THIRD: u64 = 0xaaaa_aaaa_aaaa_aaab;
    let next = t.wrapping_add(1);
    let two = if t.is_multiple_of(2) {
        ((t as i64 / 2) as u64).wrapping_mul(next)
    } else {
        t.wrapping_mul((next as i64 / 2) as u64)
    };
    [t, two, two.wrapping_mul(t.wrapping_add(2)).wrapping_mul(THIRD)]
}

/// The code that sums: the plain one, or one for the processor at hand.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Engine {
    /// A word at a time.
    Scalar,
    /// Eight words of 4 bytes in two steps.
    #[cfg(target_arch = "x86_64")]
    Avx2,
    /// Sixteen words in two steps.
    #[cfg(target_arch = "x86_64")]
    Avx512,
}

impl Engine {
    /// All that this processor can run, the plain one first.
    pub fn available() -> impl Iterator<Item = Engine> {
        let all = [
            Some(Engine::Scalar),
            #[cfg(target_arch = "x86_64")]
            super::fletcher_x86::has_avx2().then_some(Engine::Avx2),
            #[cfg(target_arch = "x86_64")]
            super::fletcher_x86::has_avx512().then_some(Engine::Avx512),
        ];
        all.into_iter().flatten()
    }

    /// The fastest that this processor can run.
    #[inline]
    pub fn best() -> Engine {
        #[cfg(target_arch = "x86_64")]
        {
            if super::fletcher_x86::has_avx512() {
                return Engine::Avx512;
            }
            if super::fletcher_x86::has_avx2() {
                return Engine::Avx2;
            }
        }
        Engine::Scalar
    }

    /// Fletcher4 of `data`; `swapped`: its words are big-endian. A rest that is no word is left out.
    ///
    /// # Panics
    /// If this processor cannot run this engine.
    pub fn sums(self, data: &[u8], swapped: bool) -> Words {
        match self {
            Engine::Scalar if swapped => scalar::<true>([0; 4], data),
            Engine::Scalar => scalar::<false>([0; 4], data),
            #[cfg(target_arch = "x86_64")]
            Engine::Avx2 => super::fletcher_x86::avx2(data, swapped),
            #[cfg(target_arch = "x86_64")]
            Engine::Avx512 => super::fletcher_x86::avx512(data, swapped),
        }
    }
}

/// The definition.
pub(super) fn scalar<const SWAP: bool>([mut a, mut b, mut c, mut d]: Words, data: &[u8]) -> Words {
    for bytes in data.chunks_exact(4) {
        let word = u32::from_le_bytes(bytes.try_into().expect("words are of 4 bytes"));
        let word = if SWAP { word.swap_bytes() } else { word };
        a = a.wrapping_add(u64::from(word));
        b = b.wrapping_add(a);
        c = c.wrapping_add(b);
        d = d.wrapping_add(c);
    }
    [a, b, c, d]
}
