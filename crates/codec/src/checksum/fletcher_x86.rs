//! Fletcher4 in the lanes of AVX2 and AVX-512 registers.
//!
//! One idea: every lane keeps its own four sums; one addition per sum and step is all the work.
#![allow(unsafe_code)]

use std::arch::x86_64::*;

use super::fletcher::Lanes;

/// Sums in 4 lanes of 8 bytes.
///
/// # Panics
/// If the processor has no AVX2.
pub(super) fn avx2(data: &[u8], swapped: bool) -> Lanes<4> {
    assert!(is_x86_feature_detected!("avx2"), "the processor has AVX2");
    // SAFETY: the processor has AVX2.
    unsafe { if swapped { avx2_lanes::<true>(data) } else { avx2_lanes::<false>(data) } }
}

/// Sums in 16 lanes of 8 bytes: 8 of the words with even, 8 of those with odd index.
///
/// # Panics
/// If the processor has no AVX-512F.
pub(super) fn avx512(data: &[u8], swapped: bool) -> Lanes<16> {
    assert!(is_x86_feature_detected!("avx512f"), "the processor has AVX-512F");
    // SAFETY: the processor has AVX-512F.
    unsafe { if swapped { avx512_lanes::<true>(data) } else { avx512_lanes::<false>(data) } }
}

#[target_feature(enable = "avx2")]
fn avx2_lanes<const SWAP: bool>(data: &[u8]) -> Lanes<4> {
    // Swaps the low 4 bytes of each 8.
    let swap = _mm256_set1_epi64x(0x8080_8080_0001_0203u64 as i64);
    let swap = _mm256_add_epi64(swap, _mm256_setr_epi64x(0, 0x0808_0808, 0, 0x0808_0808));
    let zero = _mm256_setzero_si256();
    let [mut a, mut b, mut c, mut d] = [zero; 4];
    let (steps, _) = data.as_chunks::<16>();
    for step in steps {
        // SAFETY: 16 bytes are read, the size of the step; no alignment is asked.
        let words = unsafe { _mm_loadu_si128(step.as_ptr().cast()) };
        let mut words = _mm256_cvtepu32_epi64(words);
        if SWAP {
            words = _mm256_shuffle_epi8(words, swap);
        }
        a = _mm256_add_epi64(a, words);
        b = _mm256_add_epi64(b, a);
        c = _mm256_add_epi64(c, b);
        d = _mm256_add_epi64(d, c);
    }
    let lanes = |v: __m256i| {
        let mut lanes = [0u64; 4];
        // SAFETY: 32 bytes are written, the size of the array; no alignment is asked.
        unsafe { _mm256_storeu_si256(lanes.as_mut_ptr().cast(), v) };
        lanes
    };
    Lanes { sums: [lanes(a), lanes(b), lanes(c), lanes(d)], bytes: steps.len() * 16 }
}

#[target_feature(enable = "avx512f")]
fn avx512_lanes<const SWAP: bool>(data: &[u8]) -> Lanes<16> {
    /// The low 4 bytes of each 8.
    const LOW: __mmask16 = 0x5555;
    let zero = _mm512_setzero_si512();
    let [mut a0, mut b0, mut c0, mut d0] = [zero; 4];
    let [mut a1, mut b1, mut c1, mut d1] = [zero; 4];
    let (steps, _) = data.as_chunks::<64>();
    for step in steps {
        let at = step.as_ptr().cast::<i32>();
        // A masked load widens on its way in: no other unit is kept busy.
        // SAFETY: the words 0, 2, .. 14 of the step are read; masked lanes are not accessed.
        let mut even = unsafe { _mm512_maskz_loadu_epi32(LOW, at) };
        // SAFETY: the words 1, 3, .. 15 of the step are read; masked lanes are not accessed.
        let mut odd = unsafe { _mm512_maskz_loadu_epi32(LOW, at.wrapping_add(1)) };
        if SWAP {
            even = swap_low_words(even);
            odd = swap_low_words(odd);
        }
        a0 = _mm512_add_epi64(a0, even);
        a1 = _mm512_add_epi64(a1, odd);
        b0 = _mm512_add_epi64(b0, a0);
        b1 = _mm512_add_epi64(b1, a1);
        c0 = _mm512_add_epi64(c0, b0);
        c1 = _mm512_add_epi64(c1, b1);
        d0 = _mm512_add_epi64(d0, c0);
        d1 = _mm512_add_epi64(d1, c1);
    }
    let lanes = |even: __m512i, odd: __m512i| {
        let mut lanes = [[0u64; 8]; 2];
        // SAFETY: 64 bytes are written, the size of the array; no alignment is asked.
        unsafe { _mm512_storeu_si512(lanes[0].as_mut_ptr().cast(), even) };
        // SAFETY: as above.
        unsafe { _mm512_storeu_si512(lanes[1].as_mut_ptr().cast(), odd) };
        std::array::from_fn(|lane| lanes[lane % 2][lane / 2])
    };
    Lanes {
        sums: [lanes(a0, a1), lanes(b0, b1), lanes(c0, c1), lanes(d0, d1)],
        bytes: steps.len() * 64,
    }
}

/// Swaps the bytes of the low word of each lane, whose high word is 0 (AVX-512F has no byte
/// shuffle).
#[target_feature(enable = "avx512f")]
fn swap_low_words(v: __m512i) -> __m512i {
    let outer = _mm512_set1_epi32(0xff00_ff00u32 as i32);
    // Rotations by 8 to the right and to the left hold two of the four bytes in place each.
    let swapped = _mm512_ternarylogic_epi32::<0xca>(
        outer,
        _mm512_ror_epi32::<8>(v),
        _mm512_rol_epi32::<8>(v),
    );
    _mm512_maskz_mov_epi32(0x5555, swapped)
}
