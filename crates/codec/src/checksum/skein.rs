//! Skein-512, version 1.3, with a key: the `skein` checksum.
//!
//! One idea: a tweakable cipher (Threefish-512) turned into a hash by chaining; key, parameters,
//! message and output are blocks of different type through the same function.
//! Source: "The Skein Hash Function Family", version 1.3.

const WORDS: usize = 8;
const BLOCK: usize = 64;
/// Rotation distances of the four mixes in each of eight rounds.
const ROTATIONS: [[u32; 4]; 8] = [
    [46, 36, 19, 37],
    [33, 27, 14, 42],
    [17, 49, 36, 39],
    [44, 9, 54, 56],
    [39, 30, 34, 24],
    [13, 50, 10, 17],
    [25, 29, 39, 43],
    [8, 35, 56, 22],
];
/// Parity word of the key schedule.
const KEY_PARITY: u64 = 0x1bd1_1bda_a9fc_1a22;

/// Types of blocks, in the tweak.
const TYPE_KEY: u64 = 0;
const TYPE_CONFIG: u64 = 4;
const TYPE_MESSAGE: u64 = 48;
const TYPE_OUTPUT: u64 = 63;
const FIRST: u64 = 1 << 62;
const FINAL: u64 = 1 << 63;

/// A Skein-512 hash being computed.
#[derive(Clone)]
pub struct Skein512 {
    chain: [u64; WORDS],
    /// Message bytes that went into the chain.
    position: u64,
    /// The last block waits here, since it is marked as final.
    held: [u8; BLOCK],
    held_len: usize,
}

impl Skein512 {
    /// Starts a hash under `key` (empty: none) with `output` bytes, at most 64.
    pub fn keyed(key: &[u8], output: usize) -> Skein512 {
        debug_assert!(output <= BLOCK);
        let mut chain = [0; WORDS];
        if !key.is_empty() {
            chain = single(chain, TYPE_KEY, key);
        }
        let mut config = [0; 32];
        config[..4].copy_from_slice(b"SHA3");
        config[4] = 1; // version
        config[8..16].copy_from_slice(&(output as u64 * 8).to_le_bytes());
        chain = single(chain, TYPE_CONFIG, &config);
        Skein512 { chain, position: 0, held: [0; BLOCK], held_len: 0 }
    }

    /// Takes the next bytes of the message.
    pub fn update(&mut self, mut piece: &[u8]) {
        if piece.is_empty() {
            return;
        }
        if self.held_len > 0 {
            let take = (BLOCK - self.held_len).min(piece.len());
            self.held[self.held_len..self.held_len + take].copy_from_slice(&piece[..take]);
            self.held_len += take;
            piece = &piece[take..];
            if piece.is_empty() {
                return;
            }
            let held = self.held;
            self.message(&held);
        }
        // At least one byte stays behind.
        let whole = (piece.len() - 1) / BLOCK * BLOCK;
        for block in piece[..whole].as_chunks::<BLOCK>().0 {
            self.message(block);
        }
        let rest = &piece[whole..];
        self.held[..rest.len()].copy_from_slice(rest);
        self.held_len = rest.len();
    }

    fn message(&mut self, block: &[u8; BLOCK]) {
        let first = if self.position == 0 { FIRST } else { 0 };
        self.position += BLOCK as u64;
        self.chain = ubi(self.chain, [self.position, TYPE_MESSAGE << 56 | first], block);
    }

    /// The hash; of its 64 bytes only the output length asked for has a meaning.
    pub fn finish(mut self) -> [u8; BLOCK] {
        let first = if self.position == 0 { FIRST } else { 0 };
        self.held[self.held_len..].fill(0);
        let tweak = [self.position + self.held_len as u64, TYPE_MESSAGE << 56 | first | FINAL];
        let chain = ubi(self.chain, tweak, &self.held);
        let words = single(chain, TYPE_OUTPUT, &0u64.to_le_bytes());
        let mut out = [0; BLOCK];
        for (bytes, word) in out.as_chunks_mut::<8>().0.iter_mut().zip(words) {
            *bytes = word.to_le_bytes();
        }
        out
    }
}

/// A message of one block at most.
fn single(chain: [u64; WORDS], kind: u64, bytes: &[u8]) -> [u64; WORDS] {
    debug_assert!(bytes.len() <= BLOCK);
    let mut block = [0; BLOCK];
    block[..bytes.len()].copy_from_slice(bytes);
    ubi(chain, [bytes.len() as u64, kind << 56 | FIRST | FINAL], &block)
}

/// One step of the chain: the block enciphered under the chain, added to itself.
fn ubi(chain: [u64; WORDS], tweak: [u64; 2], block: &[u8; BLOCK]) -> [u64; WORDS] {
    let mut plain = [0; WORDS];
    for (word, bytes) in plain.iter_mut().zip(block.as_chunks::<8>().0) {
        *word = u64::from_le_bytes(*bytes);
    }
    let cipher = threefish(&chain, tweak, &plain);
    std::array::from_fn(|i| cipher[i] ^ plain[i])
}

/// Subkeys: one before each four rounds, one at the end.
const SUBKEYS: usize = 19;

/// Threefish-512: 72 rounds, a subkey added before each four of them and at the end.
fn threefish(key: &[u64; WORDS], tweak: [u64; 2], plain: &[u64; WORDS]) -> [u64; WORDS] {
    // The key and its parity go round; laid out in a row, subkey s is what begins at s.
    let parity = key.iter().fold(KEY_PARITY, |parity, word| parity ^ word);
    let keys: [u64; SUBKEYS + WORDS] =
        std::array::from_fn(|i| if i % 9 == WORDS { parity } else { key[i % 9] });
    let tweaks = [tweak[0], tweak[1], tweak[0] ^ tweak[1]];
    let subkey = |s: usize| -> [u64; WORDS] {
        let mut subkey = std::array::from_fn(|i| keys[s + i]);
        subkey[5] = subkey[5].wrapping_add(tweaks[s % 3]);
        subkey[6] = subkey[6].wrapping_add(tweaks[(s + 1) % 3]);
        subkey[7] = subkey[7].wrapping_add(s as u64);
        subkey
    };
    let mut v = *plain;
    for s in (0..SUBKEYS - 1).step_by(2) {
        add(&mut v, subkey(s));
        four_rounds::<0>(&mut v);
        add(&mut v, subkey(s + 1));
        four_rounds::<4>(&mut v);
    }
    add(&mut v, subkey(SUBKEYS - 1));
    v
}

#[inline(always)]
fn add(v: &mut [u64; WORDS], subkey: [u64; WORDS]) {
    for (word, subkey) in v.iter_mut().zip(subkey) {
        *word = word.wrapping_add(subkey);
    }
}

/// Four rounds with the rotations from `FROM` on, written out: their order is what makes the speed.
///
/// The words stay where they are; instead the pairs that are mixed follow the permutation between
/// rounds, which is back at its start after four.
#[inline(always)]
fn four_rounds<const FROM: usize>(v: &mut [u64; WORDS]) {
    let [mut a, mut b, mut c, mut d, mut e, mut f, mut g, mut h] = *v;
    macro_rules! mix {
        ($round:literal, $mix:literal, $x:ident, $y:ident) => {
            $x = $x.wrapping_add($y);
            $y = $y.rotate_left(ROTATIONS[FROM + $round][$mix]) ^ $x;
        };
    }
    mix!(0, 0, a, b);
    mix!(0, 1, c, d);
    mix!(0, 2, e, f);
    mix!(0, 3, g, h);
    mix!(1, 0, c, b);
    mix!(1, 1, e, h);
    mix!(1, 2, g, f);
    mix!(1, 3, a, d);
    mix!(2, 0, e, b);
    mix!(2, 1, g, d);
    mix!(2, 2, a, f);
    mix!(2, 3, c, h);
    mix!(3, 0, g, b);
    mix!(3, 1, a, h);
    mix!(3, 2, c, f);
    mix!(3, 3, e, d);
    *v = [a, b, c, d, e, f, g, h];
}
