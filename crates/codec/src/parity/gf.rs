//! The field of 256 elements in which parity is computed: polynomial 0x11d, generator 2.

/// The element that stands for the eighth power of the generator: what a carry is folded back by.
pub(super) const FOLD: u8 = 0x1d;
/// Number of elements but 0: the powers of the generator repeat after that many.
const ORDER: usize = 255;

struct Tables {
    exp: [u8; ORDER],
    log: [u8; 256],
}

const TABLES: Tables = {
    let mut tables = Tables { exp: [0; ORDER], log: [0; 256] };
    let (mut power, mut value) = (0, 1u8);
    while power < ORDER {
        tables.exp[power] = value;
        tables.log[value as usize] = power as u8;
        value = value << 1 ^ if value & 0x80 != 0 { FOLD } else { 0 };
        power += 1;
    }
    tables
};

static EXP: [u8; ORDER] = TABLES.exp;
static LOG: [u8; 256] = TABLES.log;

/// The generator to the given power.
pub(super) fn exp(power: usize) -> u8 {
    EXP[power % ORDER]
}

/// The product of two elements.
pub(super) fn mul(a: u8, b: u8) -> u8 {
    if a == 0 || b == 0 {
        return 0;
    }
    exp(usize::from(LOG[usize::from(a)]) + usize::from(LOG[usize::from(b)]))
}

/// The inverse of an element that is not 0.
pub(super) fn inv(a: u8) -> u8 {
    debug_assert_ne!(a, 0);
    exp(ORDER - usize::from(LOG[usize::from(a)]))
}

/// A square matrix of up to three rows.
pub(super) type Matrix = [[u8; 3]; 3];

/// The inverse of the upper left `n` by `n` part; `None` if it has none.
pub(super) fn invert(mut m: Matrix, n: usize) -> Option<Matrix> {
    let mut inverse = [[1, 0, 0], [0, 1, 0], [0, 0, 1]];
    for pivot in 0..n {
        let row = (pivot..n).find(|row| m[*row][pivot] != 0)?;
        m.swap(pivot, row);
        inverse.swap(pivot, row);
        let factor = inv(m[pivot][pivot]);
        for column in 0..n {
            m[pivot][column] = mul(m[pivot][column], factor);
            inverse[pivot][column] = mul(inverse[pivot][column], factor);
        }
        for row in (0..n).filter(|row| *row != pivot) {
            let factor = m[row][pivot];
            for column in 0..n {
                m[row][column] ^= mul(factor, m[pivot][column]);
                inverse[row][column] ^= mul(factor, inverse[pivot][column]);
            }
        }
    }
    Some(inverse)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Multiplication as it is defined: polynomials over bits, modulo 0x11d.
    fn defined(a: u8, b: u8) -> u8 {
        let mut product = 0u16;
        for bit in 0..8 {
            if b >> bit & 1 == 1 {
                product ^= u16::from(a) << bit;
            }
        }
        for bit in (8..16).rev() {
            if product >> bit & 1 == 1 {
                product ^= 0x11d << (bit - 8);
            }
        }
        product as u8
    }

    #[test]
    fn products_are_those_of_the_definition() {
        for a in 0..=255 {
            for b in 0..=255 {
                assert_eq!(mul(a, b), defined(a, b), "{a} * {b}");
            }
            if a != 0 {
                assert_eq!(defined(a, inv(a)), 1, "1 / {a}");
            }
        }
    }

    #[test]
    fn an_inverse_undoes_its_matrix() {
        let m = [[1, 1, 1], [2, 4, 8], [4, 16, 64]];
        for n in 1..=3 {
            let inverse = invert(m, n).unwrap();
            for (row, column) in (0..n * n).map(|at| (at / n, at % n)) {
                let sum = (0..n).fold(0, |s, i| s ^ defined(m[row][i], inverse[i][column]));
                assert_eq!(sum, u8::from(row == column));
            }
        }
        assert_eq!(invert([[1, 1, 0], [1, 1, 0], [0; 3]], 2), None);
        assert!(invert([[0, 1, 0], [1, 1, 0], [0; 3]], 2).is_some());
    }
}
