//! Fletcher4 in the lanes of AVX2 and AVX-512 registers.
//!
//! One idea: every lane keeps its own four sums; one addition per sum and step is all the work.
#![allow(unsafe_code)]

use std::arch::x86_64::*;

use super::Words;
use super::fletcher_lanes::{Lanes, finish_lanes};

#[inline]
pub(super) fn has_avx2() -> bool {
    is_x86_feature_detected!("avx2")
}

#[inline]
pub(super) fn has_avx512() -> bool {
    is_x86_feature_detected!("avx512f") && is_x86_feature_detected!("avx512dq")
}

/// Fletcher4 in 4 lanes of 8 bytes.
///
/// # Panics
/// If the processor has no AVX2.
pub(super) fn avx2(data: &[u8], swapped: bool) -> Words {
    assert!(has_avx2(), "the processor has AVX2");
    // SAFETY: the processor has AVX2.
    let lanes =
        unsafe { if swapped { avx2_lanes::<true>(data) } else { avx2_lanes::<false>(data) } };
    finish_lanes(lanes, data, swapped)
}

/// Fletcher4 in 16 lanes of 8 bytes: 8 of the words with even, 8 of those with odd index.
///
/// # Panics
/// If the processor has no AVX-512F and AVX-512DQ.
pub(super) fn avx512(data: &[u8], swapped: bool) -> Words {
    assert!(has_avx512(), "the processor has AVX-512F and AVX-512DQ");
    // SAFETY: the processor has AVX-512F and AVX-512DQ.
    unsafe { if swapped { avx512_sums::<true>(data) } else { avx512_sums::<false>(data) } }
}

/// How far ahead the summed bytes are asked for. The sums are faster than what the second cache or
/// the memory deliver by themselves; measured, this doubles the speed from memory.
const AHEAD: usize = 2048;

/// Asks for the line [`AHEAD`] of `step`, which may lie beyond the data.
#[inline(always)]
fn ask_ahead(step: &[u8; 64]) {
    // SAFETY: a prefetch accesses nothing, at whatever address; SSE is part of x86-64.
    unsafe { _mm_prefetch::<_MM_HINT_T0>(step.as_ptr().wrapping_add(AHEAD).cast()) };
}

#[target_feature(enable = "avx2")]
fn avx2_lanes<const SWAP: bool>(data: &[u8]) -> Lanes<4> {
    // Swaps the low 4 bytes of each 8.
    let swap = _mm256_set1_epi64x(0x8080_8080_0001_0203u64 as i64);
    let swap = _mm256_add_epi64(swap, _mm256_setr_epi64x(0, 0x0808_0808, 0, 0x0808_0808));
    let [mut a, mut b, mut c, mut d] = [_mm256_setzero_si256(); 4];
    let (steps, _) = data.as_chunks::<64>();
    for step in steps {
        ask_ahead(step);
        for quarter in step.as_chunks::<16>().0 {
            // SAFETY: 16 bytes are read, the size of the quarter; no alignment is asked.
            let words = unsafe { _mm_loadu_si128(quarter.as_ptr().cast()) };
            let mut words = _mm256_cvtepu32_epi64(words);
            if SWAP {
                words = _mm256_shuffle_epi8(words, swap);
            }
            a = _mm256_add_epi64(a, words);
            b = _mm256_add_epi64(b, a);
            c = _mm256_add_epi64(c, b);
            d = _mm256_add_epi64(d, c);
        }
    }
    let lanes = |v: __m256i| {
        let mut lanes = [0u64; 4];
        // SAFETY: 32 bytes are written, the size of the array; no alignment is asked.
        unsafe { _mm256_storeu_si256(lanes.as_mut_ptr().cast(), v) };
        lanes
    };
    Lanes { sums: [lanes(a), lanes(b), lanes(c), lanes(d)], bytes: steps.len() * 64 }
}

#[target_feature(enable = "avx512f,avx512dq")]
fn avx512_sums<const SWAP: bool>(data: &[u8]) -> Words {
    let mut sums = Sums::zero();
    let (steps, _) = data.as_chunks::<64>();
    for step in steps {
        ask_ahead(step);
        sums.add::<SWAP>(step);
    }
    finish_lanes(Lanes { sums: sums.lanes(), bytes: steps.len() * 64 }, data, SWAP)
}

/// The four sums of the words with even, and of those with odd index.
struct Sums {
    even: [__m512i; 4],
    odd: [__m512i; 4],
}

impl Sums {
    #[target_feature(enable = "avx512f")]
    fn zero() -> Sums {
        Sums { even: [_mm512_setzero_si512(); 4], odd: [_mm512_setzero_si512(); 4] }
    }

    #[inline]
    #[target_feature(enable = "avx512f")]
    fn add<const SWAP: bool>(&mut self, step: &[u8; 64]) {
        /// The low 4 bytes of each 8.
        const LOW: __mmask16 = 0x5555;
        let at = step.as_ptr().cast::<i32>();
        // A masked load widens on its way in: no other unit is kept busy.
        // SAFETY: the words 0, 2, .. 14 of the step are read; masked lanes are not accessed.
        let mut even = unsafe { _mm512_maskz_loadu_epi32(LOW, at) };
        // SAFETY: the words 1, 3, .. 15 of the step are read; masked lanes are not accessed.
        let mut odd = unsafe { _mm512_maskz_loadu_epi32(LOW, at.wrapping_add(1)) };
        if SWAP {
            even = swap_words(even);
            odd = swap_words(odd);
        }
        for (sums, words) in [(&mut self.even, even), (&mut self.odd, odd)] {
            let mut carried = words;
            for sum in sums {
                *sum = _mm512_add_epi64(*sum, carried);
                carried = *sum;
            }
        }
    }

    #[target_feature(enable = "avx512f")]
    fn lanes(self) -> [[u64; 16]; 4] {
        std::array::from_fn(|k| {
            let mut lanes = [[0u64; 8]; 2];
            for (lanes, sums) in lanes.iter_mut().zip([self.even[k], self.odd[k]]) {
                // SAFETY: 64 bytes are written, the size of the array; no alignment is asked.
                unsafe { _mm512_storeu_si512(lanes.as_mut_ptr().cast(), sums) };
            }
            std::array::from_fn(|lane| lanes[lane % 2][lane / 2])
        })
    }
}

/// Swaps the bytes of each word of 4 (AVX-512F has no byte shuffle).
#[target_feature(enable = "avx512f")]
fn swap_words(v: __m512i) -> __m512i {
    let outer = _mm512_set1_epi32(0xff00_ff00u32 as i32);
    // Rotations by 8 to the right and to the left hold two of the four bytes in place each.
    _mm512_ternarylogic_epi32::<0xca>(outer, _mm512_ror_epi32::<8>(v), _mm512_rol_epi32::<8>(v))
}
