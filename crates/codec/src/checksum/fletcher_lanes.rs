//! Fletcher4 from lanes: wide registers sum every n-th word by itself, here the sums come together.
//!
//! One idea: a word's weight in the whole run is a polynomial in its weight in its lane, so each
//! sum of the run is a fixed combination of the sums of the lanes.

use super::Words;
use super::fletcher::{scalar, weights};

/// Sums per lane over the words whose index is `lane` modulo the number of lanes: `sums[k][lane]`
/// is the k-th sum. `bytes` were summed.
pub(super) struct Lanes<const N: usize> {
    pub(super) sums: [[u64; N]; 4],
    pub(super) bytes: usize,
}

/// How the sums of a lane enter those of the whole run.
struct Factors<const N: usize>;

impl<const N: usize> Factors<N> {
    /// `TABLE[k][i][lane]`: how often the lane's sum i goes into sum k.
    ///
    /// A word with t words left in its lane has N * t - lane left in the run. Its weight there is a
    /// polynomial in t, and so a sum of the lane's own weights; the factors follow from the values
    /// at t = 0, -1, -2, -3, where most of the lane's weights vanish.
    const TABLE: [[[u64; N]; 4]; 4] = {
        let mut table = [[[0; N]; 4]; 4];
        let mut lane = 0;
        while lane < N {
            let mut values = [[0; 4]; 4];
            let mut t = 0;
            while t < 4 {
                let left = -((N * t + lane) as i64);
                let [one, two, three] = weights(left as u64);
                values[t] = [1, one, two, three];
                t += 1;
            }
            let mut k = 0;
            while k < 4 {
                let f0 = values[0][k];
                let f1 = f0.wrapping_sub(values[1][k]);
                let f2 = values[2][k].wrapping_sub(f0).wrapping_add(f1.wrapping_mul(2));
                let f3 = f0
                    .wrapping_sub(f1.wrapping_mul(3))
                    .wrapping_add(f2.wrapping_mul(3))
                    .wrapping_sub(values[3][k]);
                table[k][0][lane] = f0;
                table[k][1][lane] = f1;
                table[k][2][lane] = f2;
                table[k][3][lane] = f3;
                k += 1;
            }
            lane += 1;
        }
        table
    };
}

/// The sums of all words, from those of the lanes and the words after them.
#[inline(always)] // into code that may use wide registers
pub(super) fn finish_lanes<const N: usize>(lanes: Lanes<N>, data: &[u8], swapped: bool) -> Words {
    let mut sums = [0u64; 4];
    for (k, (sum, table)) in sums.iter_mut().zip(&Factors::<N>::TABLE).enumerate() {
        let mut terms = [0u64; N];
        // A polynomial of degree k needs no sum beyond k.
        for (factors, lane_sums) in table.iter().zip(&lanes.sums).take(k + 1) {
            for lane in 0..N {
                terms[lane] = terms[lane].wrapping_add(factors[lane].wrapping_mul(lane_sums[lane]));
            }
        }
        *sum = terms.into_iter().fold(0, u64::wrapping_add);
    }
    let rest = &data[lanes.bytes..];
    if swapped { scalar::<true>(sums, rest) } else { scalar::<false>(sums, rest) }
}
