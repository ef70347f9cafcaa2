//! gzip of blocks that fit after blocks that did not: what is stored comes back.
//!
//! Seen red: a compressor of level 1 that is used again after a stream that broke off.

use codec::compress::{ZstdLevel, compress, decompress};
use format::Compress;

/// Noise from a seed.
struct Noise(u64);

impl Noise {
    fn below(&mut self, n: usize) -> usize {
        self.0 = self.0.wrapping_mul(0x5851_f42d_4c95_7f2d).wrapping_add(0x1405_7b7e_f767_814f);
        (self.0 >> 33) as usize % n
    }

    /// A block of `size` bytes: words, noise, or patches of noise among zeros, short or long.
    fn block(&mut self, size: usize) -> Vec<u8> {
        let words: [&[u8]; 5] = [b"muon ", b"electron ", b"photon ", b"jet ", b"vertex "];
        let look = self.below(4);
        let mut block = Vec::new();
        while block.len() < size {
            let (noisy, zeros) = [(0, 0), (500, 0), (4096, 12288), (100, 300)][look];
            match look {
                0 => block.extend_from_slice(words[self.below(words.len())]),
                _ => block.extend((0..noisy).map(|_| self.below(256) as u8)),
            }
            block.resize(block.len() + zeros, 0);
        }
        block.truncate(size);
        block
    }
}

#[test]
fn what_fits_comes_back_after_what_did_not() {
    let mut noise = Noise(7);
    for level in 1..=9 {
        let kind = Compress::Gzip(level);
        let mut stored = 0;
        for turn in 0..400 {
            let sectors = if noise.below(8) == 0 { 800 } else { 16 };
            let size = 512 * (1 + noise.below(sectors));
            let block = noise.block(size);
            let mut room = vec![0; block.len() + 512];
            let Some(size) = compress(kind, ZstdLevel::default(), &block, &mut room) else {
                continue;
            };
            let mut back = vec![0; block.len()];
            decompress(kind, &room[..size], &mut back)
                .unwrap_or_else(|e| panic!("level {level}, block {turn}: {e}"));
            assert!(back == block, "level {level}, block {turn}");
            stored += 1;
        }
        assert!((200..400).contains(&stored), "{stored}");
    }
}
