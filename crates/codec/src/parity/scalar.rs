//! The plain form: eight bytes at a time, one row after the other.
//!
//! One idea: columns go by in strips that stay in the first cache, so every column is read once.

use super::{Finish, PARITY_MAX, Pass, gf};

const STRIP: usize = 2048;

/// Does the pass, from byte `from` of its range on.
pub(super) fn run(mut pass: Pass<'_>, from: usize) {
    let len = pass.out.iter().flatten().map(|out| out.len()).max().unwrap_or(0);
    let mut rows = [[0u8; STRIP]; PARITY_MAX];
    let mut at = from;
    while at < len {
        let size = STRIP.min(len - at);
        for (row, bytes) in rows.iter_mut().enumerate().filter(|(row, _)| pass.wanted[*row]) {
            let bytes = &mut bytes[..size];
            bytes.fill(0);
            for column in pass.columns {
                multiply_by_point(bytes, row);
                if let Some(column) = column {
                    add(bytes, &column[pass.start + at..][..size]);
                }
            }
        }
        match &pass.finish {
            None => {
                for (out, row) in pass.out.iter_mut().zip(&rows) {
                    if let Some(out) = out {
                        out[at..at + size].copy_from_slice(&row[..size]);
                    }
                }
            }
            Some(finish) => finish_strip(finish, pass.wanted, &mut pass.out, &mut rows, at, size),
        }
        at += size;
    }
}

fn finish_strip(
    finish: &Finish<'_>,
    wanted: [bool; PARITY_MAX],
    out: &mut [Option<&mut [u8]>; PARITY_MAX],
    rows: &mut [[u8; STRIP]; PARITY_MAX],
    at: usize,
    size: usize,
) {
    for (row, bytes) in rows.iter_mut().enumerate().filter(|(row, _)| wanted[*row]) {
        let bytes = &mut bytes[..size];
        multiply(bytes, finish.scale[row]);
        if let Some(stored) = finish.stored[row] {
            add(bytes, &stored[at..at + size]);
        }
    }
    let factors = finish.factors(wanted);
    for (out, factors) in out.iter_mut().zip(factors) {
        let Some(out) = out else { continue };
        let out = &mut out[at..at + size];
        out.fill(0);
        for (row, factor) in factors.into_iter().enumerate().filter(|(row, _)| wanted[*row]) {
            let mut term = [0; STRIP];
            let term = &mut term[..size];
            term.copy_from_slice(&rows[row][..size]);
            multiply(term, factor);
            add(out, term);
        }
    }
}

fn add(to: &mut [u8], from: &[u8]) {
    for (to, from) in to.iter_mut().zip(from) {
        *to ^= from;
    }
}

fn multiply(bytes: &mut [u8], factor: u8) {
    if factor == 1 {
        return;
    }
    let table: [u8; 256] = std::array::from_fn(|byte| gf::mul(byte as u8, factor));
    for byte in bytes {
        *byte = table[usize::from(*byte)];
    }
}

/// Multiplies by 1 (P), 2 (Q) or 4 (R).
fn multiply_by_point(bytes: &mut [u8], row: usize) {
    if row == 0 {
        return;
    }
    let double = |word: u64| {
        let carries = word >> 7 & 0x0101_0101_0101_0101;
        // 0xff where a byte has a carry.
        let folds = (carries << 8).wrapping_sub(carries);
        word << 1 & 0xfefe_fefe_fefe_fefe ^ folds & u64::from_le_bytes([gf::FOLD; 8])
    };
    let (words, rest) = bytes.as_chunks_mut::<8>();
    for word in words {
        let doubled = double(u64::from_le_bytes(*word));
        *word = if row == 2 { double(doubled) } else { doubled }.to_le_bytes();
    }
    for byte in rest {
        *byte = gf::mul(*byte, 1 << row);
    }
}
