//! Random numbers for tests: a seed means the same for ever, on every machine.

/// splitmix64: small, and good enough to make up workloads.
#[derive(Debug, Clone)]
pub struct Rng {
    state: u64,
}

impl Rng {
    /// The stream of `seed`.
    #[must_use]
    pub fn new(seed: u64) -> Rng {
        Rng { state: seed }
    }

    /// The stream of `seed` for one purpose among several.
    #[must_use]
    pub fn of(seed: u64, purpose: u64) -> Rng {
        let mut rng = Rng::new(seed ^ purpose.wrapping_mul(0xd6e8_feb8_6659_fd93));
        let state = rng.word();
        Rng { state }
    }

    /// The next 64 bits.
    pub fn word(&mut self) -> u64 {
        self.state = self.state.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.state;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    /// A number below `n`, which is not 0.
    pub fn below(&mut self, n: u64) -> u64 {
        // the high half of a product: unbiased enough, and without a loop
        ((u128::from(self.word()) * u128::from(n)) >> 64) as u64
    }

    /// A number from `low` to `high`, both included.
    pub fn between(&mut self, low: u64, high: u64) -> u64 {
        low + self.below(high - low + 1)
    }

    /// True once in `n` times.
    pub fn one_in(&mut self, n: u64) -> bool {
        self.below(n) == 0
    }

    /// One of `choices`, which is not empty.
    pub fn pick<'a, T>(&mut self, choices: &'a [T]) -> &'a T {
        &choices[self.index(choices.len())]
    }

    /// An index into something of `len` members.
    pub fn index(&mut self, len: usize) -> usize {
        usize::try_from(self.below(len as u64)).expect("it is below a usize")
    }

    /// Fills `bytes` with noise.
    pub fn fill(&mut self, bytes: &mut [u8]) {
        for chunk in bytes.chunks_mut(8) {
            let word = self.word().to_le_bytes();
            chunk.copy_from_slice(&word[..chunk.len()]);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_stream_is_pinned() {
        let mut rng = Rng::new(1);
        assert_eq!(rng.word(), 0x910a_2dec_8902_5cc1);
        let mut bytes = [0; 11];
        rng.fill(&mut bytes);
        assert_eq!(bytes[..3], [0x67, 0xec, 0x8e], "{bytes:x?}");
        let all: std::collections::BTreeSet<_> = (0..100).map(|_| rng.between(3, 6)).collect();
        assert_eq!(all.into_iter().collect::<Vec<_>>(), [3, 4, 5, 6]);
    }
}
