//! Edon-R' with 512 bits, the tweaked form of the SHA-3 candidate: the `edonr` checksum.
//!
//! One idea: the state is a double pipe of sixteen words; a block goes through a small square of
//! quasigroup operations, each of which mixes two vectors of eight words by additions, rotations
//! and exclusive ors laid out by two orthogonal Latin squares. Then the old pipe and the block are
//! added once more: that feedback, and other rotations, are what sets the tweaked form apart from
//! the submission of 2008, whose published vectors do not hold for it.
//! Source: D. Gligoroski et al., "Cryptographic Hash Function Edon-R'", 2009; blocks on disk.

type Half = [u64; 8];

const BLOCK: usize = 128;

/// A 512-bit Edon-R hash being computed.
#[derive(Clone)]
pub struct EdonR512 {
    pipe: [Half; 2],
    size: u64,
    held: [u8; BLOCK],
    held_len: usize,
}

impl Default for EdonR512 {
    fn default() -> Self {
        Self::new()
    }
}

impl EdonR512 {
    /// Starts a hash.
    pub fn new() -> EdonR512 {
        // The bytes 0x80 to 0xff in order, as big-endian words.
        let word = |i: usize| 0x8081_8283_8485_8687 + 0x0808_0808_0808_0808 * i as u64;
        EdonR512 {
            pipe: [std::array::from_fn(word), std::array::from_fn(|i| word(i + 8))],
            size: 0,
            held: [0; BLOCK],
            held_len: 0,
        }
    }

    /// Starts the hash that pools use: the salt stretched to one block goes first.
    pub fn salted(salt: &[u8; 32]) -> EdonR512 {
        let hash = |bytes: &[u8]| {
            let mut state = EdonR512::new();
            state.update(bytes);
            state.finish()
        };
        let first = hash(salt);
        let second = hash(&first);
        let mut state = EdonR512::new();
        state.update(&first);
        state.update(&second);
        state
    }

    /// Takes the next bytes of the message.
    pub fn update(&mut self, mut piece: &[u8]) {
        self.size += piece.len() as u64;
        if self.held_len > 0 {
            let take = (BLOCK - self.held_len).min(piece.len());
            self.held[self.held_len..self.held_len + take].copy_from_slice(&piece[..take]);
            self.held_len += take;
            piece = &piece[take..];
            if self.held_len < BLOCK {
                return;
            }
            step(&mut self.pipe, &self.held);
            self.held_len = 0;
        }
        let (blocks, rest) = piece.as_chunks::<BLOCK>();
        for block in blocks {
            step(&mut self.pipe, block);
        }
        self.held[..rest.len()].copy_from_slice(rest);
        self.held_len = rest.len();
    }

    /// The hash: the second half of the pipe after a padding of one 1 bit, zeros and the size in
    /// bits.
    pub fn finish(mut self) -> [u8; 64] {
        let bits = self.size.wrapping_mul(8);
        self.held[self.held_len..].fill(0);
        self.held[self.held_len] = 0x80;
        if self.held_len + 1 > BLOCK - 8 {
            step(&mut self.pipe, &self.held);
            self.held.fill(0);
        }
        self.held[BLOCK - 8..].copy_from_slice(&bits.to_le_bytes());
        step(&mut self.pipe, &self.held);
        let mut out = [0; 64];
        for (bytes, word) in out.as_chunks_mut::<8>().0.iter_mut().zip(self.pipe[1]) {
            *bytes = word.to_le_bytes();
        }
        out
    }
}

/// One block through the square: two columns, four rows.
fn step(pipe: &mut [Half; 2], block: &[u8; BLOCK]) {
    let word = |i: usize| {
        let bytes = block.as_chunks::<8>().0[i];
        u64::from_le_bytes(bytes)
    };
    let low: Half = std::array::from_fn(word);
    let high: Half = std::array::from_fn(|i| word(i + 8));
    let reversed = |half: Half| -> Half { std::array::from_fn(|i| half[7 - i]) };

    // Each row: its leader with the left column, the result with the right one.
    let left = quasigroup(&reversed(high), &low);
    let right = quasigroup(&left, &high);

    let left = quasigroup(&pipe[1], &left);
    let right = quasigroup(&left, &right);

    // Here the pipe stands on the right, and the right column on the left.
    let left = quasigroup(&left, &pipe[0]);
    let right = quasigroup(&right, &left);

    let left = quasigroup(&reversed(low), &left);
    let right = quasigroup(&left, &right);

    let feed = |old: Half, new: Half, message: Half| -> Half {
        std::array::from_fn(|i| old[i] ^ new[i] ^ message[i])
    };
    *pipe = [feed(pipe[0], left, high), feed(pipe[1], right, low)];
}

/// The quasigroup operation on two vectors of eight words.
#[inline(always)]
fn quasigroup(x: &Half, y: &Half) -> Half {
    let sum = |v: &Half, at: [usize; 5]| at.iter().fold(0u64, |s, i| s.wrapping_add(v[*i]));
    // Five of eight words each, by the first Latin square ...
    let s = [
        sum(x, [0, 1, 2, 4, 7]).wrapping_add(0xaaaa_aaaa_aaaa_aaaa),
        sum(x, [0, 1, 3, 4, 7]).rotate_left(5),
        sum(x, [0, 1, 4, 6, 7]).rotate_left(15),
        sum(x, [2, 3, 5, 6, 7]).rotate_left(22),
        sum(x, [1, 2, 3, 5, 6]).rotate_left(31),
        sum(x, [0, 2, 3, 4, 5]).rotate_left(40),
        sum(x, [0, 1, 5, 6, 7]).rotate_left(50),
        sum(x, [2, 3, 4, 5, 6]).rotate_left(59),
    ];
    // ... and by the second.
    let t = [
        sum(y, [0, 1, 2, 5, 7]).wrapping_add(0x5555_5555_5555_5555),
        sum(y, [0, 1, 3, 4, 6]).rotate_left(10),
        sum(y, [0, 1, 2, 3, 5]).rotate_left(19),
        sum(y, [2, 3, 4, 6, 7]).rotate_left(29),
        sum(y, [0, 1, 3, 4, 5]).rotate_left(36),
        sum(y, [2, 4, 5, 6, 7]).rotate_left(44),
        sum(y, [1, 2, 5, 6, 7]).rotate_left(48),
        sum(y, [0, 3, 4, 6, 7]).rotate_left(55),
    ];
    // The three words that were not in the sums.
    let z = |a: [usize; 3], b: [usize; 3]| {
        let a = s[a[0]] ^ s[a[1]] ^ s[a[2]];
        let b = t[b[0]] ^ t[b[1]] ^ t[b[2]];
        a.wrapping_add(b)
    };
    [
        z([0, 1, 4], [0, 1, 5]),
        z([0, 4, 7], [2, 6, 7]),
        z([1, 6, 7], [0, 1, 3]),
        z([2, 3, 4], [0, 3, 4]),
        z([0, 1, 7], [1, 2, 5]),
        z([3, 5, 6], [3, 4, 6]),
        z([2, 5, 6], [2, 5, 7]),
        z([2, 3, 5], [4, 6, 7]),
    ]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn padding_is_as_defined_at_every_length() {
        for len in 0..=300 {
            let message: Vec<u8> = (0..len).map(|i| (i * 7 + 3) as u8).collect();
            let mut state = EdonR512::new();
            let mut pipe = state.pipe;
            state.update(&message);

            let mut padded = message.clone();
            padded.push(0x80);
            while padded.len() % BLOCK != BLOCK - 8 {
                padded.push(0);
            }
            padded.extend_from_slice(&(len as u64 * 8).to_le_bytes());
            for block in padded.as_chunks::<BLOCK>().0 {
                step(&mut pipe, block);
            }
            let words = pipe[1].map(u64::to_le_bytes);
            assert_eq!(state.finish().as_slice(), words.as_flattened(), "{len}");
        }
    }
}
