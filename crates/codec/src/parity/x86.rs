//! Parity in AVX2 registers, and in AVX-512 registers with the instructions for Galois fields.
//!
//! One idea: one kernel, written over what a register can do; a strip of a few registers per row
//! is carried over all columns, so each column is read once and each result written once.
#![allow(unsafe_code)]
// Rows and registers are counted alike in several arrays; iterators would hide it.
#![allow(clippy::needless_range_loop)]

use std::arch::x86_64::*;

use super::{PARITY_MAX, Pass, gf, scalar};

#[inline]
pub(super) fn has_avx2() -> bool {
    is_x86_feature_detected!("avx2")
}

#[inline]
pub(super) fn has_avx512() -> bool {
    is_x86_feature_detected!("avx512f") && is_x86_feature_detected!("gfni")
}

/// A register full of field elements.
///
/// # Safety
/// All methods need the instructions that the register belongs to.
trait Vector: Copy {
    /// Bytes in the register.
    const SIZE: usize;
    /// A constant to multiply with, in the form that multiplication wants.
    type Factor: Copy;

    unsafe fn zero() -> Self;
    /// Reads [`Vector::SIZE`] bytes at any alignment.
    unsafe fn load(from: *const u8) -> Self;
    /// Writes [`Vector::SIZE`] bytes at any alignment.
    unsafe fn store(self, to: *mut u8);
    unsafe fn add(self, other: Self) -> Self;
    /// Times 2.
    unsafe fn double(self) -> Self;
    /// Times 4.
    unsafe fn quadruple(self) -> Self;
    unsafe fn factor(factor: u8) -> Self::Factor;
    unsafe fn multiply(self, factor: Self::Factor) -> Self;
}

impl Vector for __m256i {
    const SIZE: usize = 32;
    /// Products of the low and of the high half of a byte.
    type Factor = [__m256i; 2];

    // SAFETY of all below: the caller has AVX2; pointers are good for 32 bytes.
    #[inline(always)]
    unsafe fn zero() -> Self {
        // SAFETY: as above.
        unsafe { _mm256_setzero_si256() }
    }

    #[inline(always)]
    unsafe fn load(from: *const u8) -> Self {
        // SAFETY: as above.
        unsafe { _mm256_loadu_si256(from.cast()) }
    }

    #[inline(always)]
    unsafe fn store(self, to: *mut u8) {
        // SAFETY: as above.
        unsafe { _mm256_storeu_si256(to.cast(), self) }
    }

    #[inline(always)]
    unsafe fn add(self, other: Self) -> Self {
        // SAFETY: as above.
        unsafe { _mm256_xor_si256(self, other) }
    }

    #[inline(always)]
    unsafe fn double(self) -> Self {
        // SAFETY: as above.
        unsafe {
            let carries = _mm256_cmpgt_epi8(_mm256_setzero_si256(), self);
            let folds = _mm256_and_si256(carries, _mm256_set1_epi8(gf::FOLD as i8));
            _mm256_xor_si256(_mm256_add_epi8(self, self), folds)
        }
    }

    #[inline(always)]
    unsafe fn quadruple(self) -> Self {
        // SAFETY: as above.
        unsafe { self.double().double() }
    }

    #[inline(always)]
    unsafe fn factor(factor: u8) -> Self::Factor {
        let low: [u8; 16] = std::array::from_fn(|half| gf::mul(half as u8, factor));
        let high: [u8; 16] = std::array::from_fn(|half| gf::mul((half << 4) as u8, factor));
        // SAFETY: as above; 16 bytes are read from arrays of 16.
        unsafe {
            [low, high]
                .map(|table| _mm256_broadcastsi128_si256(_mm_loadu_si128(table.as_ptr().cast())))
        }
    }

    #[inline(always)]
    unsafe fn multiply(self, [low, high]: Self::Factor) -> Self {
        // SAFETY: as above.
        unsafe {
            let half = _mm256_set1_epi8(0x0f);
            let lows = _mm256_and_si256(self, half);
            let highs = _mm256_and_si256(_mm256_srli_epi16::<4>(self), half);
            _mm256_xor_si256(_mm256_shuffle_epi8(low, lows), _mm256_shuffle_epi8(high, highs))
        }
    }
}

/// Multiplication by a constant as a matrix of bits, as the affine instruction wants it: byte
/// 7 - i says which bits of the operand go into bit i of the product.
const fn bit_matrix(factor: u8) -> u64 {
    let mut matrix = 0;
    let mut product = factor; // of 2^bit and the factor
    let mut bit = 0;
    while bit < 8 {
        let mut i = 0;
        while i < 8 {
            if product >> i & 1 == 1 {
                matrix |= 1 << (8 * (7 - i) + bit);
            }
            i += 1;
        }
        product = product << 1 ^ if product & 0x80 != 0 { gf::FOLD } else { 0 };
        bit += 1;
    }
    matrix
}

impl Vector for __m512i {
    const SIZE: usize = 64;
    type Factor = __m512i;

    // SAFETY of all below: the caller has AVX-512F and GFNI; pointers are good for 64 bytes.
    #[inline(always)]
    unsafe fn zero() -> Self {
        // SAFETY: as above.
        unsafe { _mm512_setzero_si512() }
    }

    #[inline(always)]
    unsafe fn load(from: *const u8) -> Self {
        // SAFETY: as above.
        unsafe { _mm512_loadu_si512(from.cast()) }
    }

    #[inline(always)]
    unsafe fn store(self, to: *mut u8) {
        // SAFETY: as above.
        unsafe { _mm512_storeu_si512(to.cast(), self) }
    }

    #[inline(always)]
    unsafe fn add(self, other: Self) -> Self {
        // SAFETY: as above.
        unsafe { _mm512_xor_si512(self, other) }
    }

    #[inline(always)]
    unsafe fn double(self) -> Self {
        const MATRIX: u64 = bit_matrix(2);
        // SAFETY: as above.
        unsafe { self.multiply(_mm512_set1_epi64(MATRIX as i64)) }
    }

    #[inline(always)]
    unsafe fn quadruple(self) -> Self {
        const MATRIX: u64 = bit_matrix(4);
        // SAFETY: as above.
        unsafe { self.multiply(_mm512_set1_epi64(MATRIX as i64)) }
    }

    #[inline(always)]
    unsafe fn factor(factor: u8) -> Self::Factor {
        // SAFETY: as above.
        unsafe { _mm512_set1_epi64(bit_matrix(factor) as i64) }
    }

    #[inline(always)]
    unsafe fn multiply(self, factor: Self::Factor) -> Self {
        // SAFETY: as above.
        unsafe { _mm512_gf2p8affine_epi64_epi8::<0>(self, factor) }
    }
}

/// Does the pass with AVX2.
///
/// # Panics
/// If the processor has none.
pub(super) fn avx2(pass: Pass<'_>) {
    assert!(has_avx2(), "the processor has AVX2");
    // SAFETY: the processor has AVX2.
    unsafe { run_avx2(pass) }
}

/// Does the pass with AVX-512 and GFNI.
///
/// # Panics
/// If the processor has them not.
pub(super) fn avx512(pass: Pass<'_>) {
    assert!(has_avx512(), "the processor has AVX-512F and GFNI");
    // SAFETY: the processor has AVX-512F and GFNI.
    unsafe { run_avx512(pass) }
}

#[target_feature(enable = "avx2")]
fn run_avx2(pass: Pass<'_>) {
    // SAFETY: this function has AVX2.
    unsafe { run::<__m256i>(pass) }
}

#[target_feature(enable = "avx512f,gfni")]
fn run_avx512(pass: Pass<'_>) {
    // SAFETY: this function has AVX-512F and GFNI.
    unsafe { run::<__m512i>(pass) }
}

/// # Safety
/// The processor has the instructions of `V`.
#[inline(always)]
unsafe fn run<V: Vector>(pass: Pass<'_>) {
    // SAFETY: the caller has the instructions.
    unsafe {
        // As many registers a row as fit beside each other.
        match pass.wanted {
            [true, false, false] => strips::<V, true, false, false, 4>(pass),
            [false, true, false] => strips::<V, false, true, false, 4>(pass),
            [false, false, true] => strips::<V, false, false, true, 4>(pass),
            [true, true, false] => strips::<V, true, true, false, 4>(pass),
            [true, false, true] => strips::<V, true, false, true, 4>(pass),
            [false, true, true] => strips::<V, false, true, true, 4>(pass),
            [true, true, true] => strips::<V, true, true, true, 2>(pass),
            [false, false, false] => {}
        }
    }
}

/// The constants of [`super::Finish`] in the form that multiplication wants.
struct Factors<V: Vector> {
    scale: Option<[V::Factor; PARITY_MAX]>,
    solve: Option<[[V::Factor; PARITY_MAX]; PARITY_MAX]>,
}

/// # Safety
/// The processor has the instructions of `V`.
#[inline(always)]
unsafe fn strips<V: Vector, const P: bool, const Q: bool, const R: bool, const N: usize>(
    mut pass: Pass<'_>,
) {
    let len = pass.out.iter().flatten().map(|out| out.len()).min().unwrap_or(0);
    // The strips below read and write up to `len` bytes of each of these without further checks.
    assert!(pass.out.iter().flatten().all(|out| out.len() == len), "results have one length");
    for column in pass.columns.iter().flatten() {
        assert!(column.len() >= pass.start + len, "columns reach to the end of the range");
    }
    let stored = pass.finish.iter().flat_map(|finish| finish.stored.iter().flatten());
    assert!(stored.clone().all(|stored| stored.len() >= len), "stored parity fills the range");

    let factors = pass.finish.as_ref().map(|finish| {
        // SAFETY: the caller has the instructions.
        let prepare = |factor| unsafe { V::factor(factor) };
        let scaled = finish.scale.iter().any(|scale| *scale != 1);
        Factors {
            scale: scaled.then(|| finish.scale.map(prepare)),
            solve: finish.solve.map(|_| finish.factors(pass.wanted).map(|row| row.map(prepare))),
        }
    });
    let mut at = 0;
    // SAFETY: the caller has the instructions, and `at` plus what a strip covers is within `len`.
    unsafe {
        while at + N * V::SIZE <= len {
            strip::<V, P, Q, R, N>(&mut pass, factors.as_ref(), at);
            at += N * V::SIZE;
        }
        while at + V::SIZE <= len {
            strip::<V, P, Q, R, 1>(&mut pass, factors.as_ref(), at);
            at += V::SIZE;
        }
    }
    if at < len {
        scalar::run(pass, at);
    }
}

/// How far ahead in a column its bytes are asked for. Measured: a third faster from the second
/// cache, and a sixth from memory.
const AHEAD: usize = 1024;

/// Asks for the line [`AHEAD`] of `from`, which may lie beyond the column.
#[inline(always)]
fn ask_ahead(from: *const u8) {
    // SAFETY: a prefetch accesses nothing, at whatever address; SSE is part of x86-64.
    unsafe { _mm_prefetch::<_MM_HINT_T0>(from.wrapping_add(AHEAD).cast()) };
}

/// `N` registers of each row at byte `at` of the range.
///
/// # Safety
/// The processor has the instructions of `V`; columns, results and stored parity have
/// `N * V::SIZE` bytes there.
#[inline(always)]
unsafe fn strip<V: Vector, const P: bool, const Q: bool, const R: bool, const N: usize>(
    pass: &mut Pass<'_>,
    factors: Option<&Factors<V>>,
    at: usize,
) {
    // SAFETY: as the caller promises.
    unsafe {
        let mut rows = [[V::zero(); N]; PARITY_MAX];
        for column in pass.columns {
            for i in 0..N {
                if Q {
                    rows[1][i] = rows[1][i].double();
                }
                if R {
                    rows[2][i] = rows[2][i].quadruple();
                }
            }
            let Some(column) = column else { continue };
            let from = column.as_ptr().add(pass.start + at);
            for i in 0..N {
                ask_ahead(from.add(i * V::SIZE));
                let data = V::load(from.add(i * V::SIZE));
                if P {
                    rows[0][i] = rows[0][i].add(data);
                }
                if Q {
                    rows[1][i] = rows[1][i].add(data);
                }
                if R {
                    rows[2][i] = rows[2][i].add(data);
                }
            }
        }
        if let (Some(finish), Some(factors)) = (&pass.finish, factors) {
            for (row, stored) in finish.stored.iter().enumerate() {
                if ![P, Q, R][row] {
                    continue;
                }
                for i in 0..N {
                    if let Some(scale) = factors.scale {
                        rows[row][i] = rows[row][i].multiply(scale[row]);
                    }
                    if let Some(stored) = stored {
                        let stored = V::load(stored.as_ptr().add(at + i * V::SIZE));
                        rows[row][i] = rows[row][i].add(stored);
                    }
                }
            }
            if let Some(solve) = factors.solve {
                rows = product::<V, P, Q, R, N>(solve, rows);
            }
        }
        for (out, row) in pass.out.iter_mut().zip(rows) {
            if let Some(out) = out {
                for (i, register) in row.into_iter().enumerate() {
                    register.store(out.as_mut_ptr().add(at + i * V::SIZE));
                }
            }
        }
    }
}

/// The rows that are wanted, times the matrix: the unknowns, as many as wanted rows.
///
/// # Safety
/// The processor has the instructions of `V`.
#[inline(always)]
unsafe fn product<V: Vector, const P: bool, const Q: bool, const R: bool, const N: usize>(
    solve: [[V::Factor; PARITY_MAX]; PARITY_MAX],
    rows: [[V; N]; PARITY_MAX],
) -> [[V; N]; PARITY_MAX] {
    let unknowns = P as usize + Q as usize + R as usize;
    // SAFETY: as the caller promises.
    unsafe {
        let mut results = [[V::zero(); N]; PARITY_MAX];
        for unknown in 0..unknowns {
            for row in 0..PARITY_MAX {
                if [P, Q, R][row] {
                    for i in 0..N {
                        let term = rows[row][i].multiply(solve[unknown][row]);
                        results[unknown][i] = results[unknown][i].add(term);
                    }
                }
            }
        }
        results
    }
}
