//! Bytes for files, made from a seed: what they are is said in one line, what they look like on a
//! disk (compressible or not, zeros, the layout of a ROOT file) is chosen.

use std::path::PathBuf;

use crate::random::Rng;

/// What the bytes look like.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Look {
    /// Noise: no algorithm makes it smaller.
    Noise,
    /// Words: about a third of its size after lz4.
    Words,
    /// Zeros that are written out (with compression they become holes).
    Zeros,
    /// 4 KiB of noise, 12 KiB of zeros, and so on.
    Patches,
    /// As a ROOT file: a head, then baskets with a key each: some compressed already, some
    /// columns of big-endian floats and rising numbers.
    Root,
    /// One of the ROOT files of `tests/golden/root` (which, the seed says), over and over.
    RealRoot,
}

/// All looks that are made here.
pub const LOOKS: [Look; 5] = [Look::Noise, Look::Words, Look::Zeros, Look::Patches, Look::Root];

/// Some bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Data {
    /// What they look like.
    pub look: Look,
    /// Which of them.
    pub seed: u64,
    /// How many.
    pub size: u64,
}

/// `size` bytes of [`Look::Noise`], others for each seed.
#[must_use]
pub fn noise(seed: u64, size: usize) -> Vec<u8> {
    Data { look: Look::Noise, seed, size: size as u64 }.bytes()
}

const WORDS: [&str; 20] = [
    "muon",
    "electron",
    "photon",
    "jet",
    "vertex",
    "track",
    "hit",
    "run",
    "lumi",
    "block",
    "event",
    "trigger",
    "calorimeter",
    "detector",
    "pion",
    "kaon",
    "tau",
    "boson",
    "top",
    "bottom",
];

impl Data {
    /// The bytes.
    #[must_use]
    pub fn bytes(&self) -> Vec<u8> {
        let size = usize::try_from(self.size).expect("test data fits in memory");
        let mut rng = Rng::of(self.seed, self.look as u64 + 1);
        let mut out = vec![0; size];
        match self.look {
            Look::Noise => rng.fill(&mut out),
            Look::Zeros => {}
            Look::Patches => out.chunks_mut(16 << 10).for_each(|patch| {
                let noisy = patch.len().min(4 << 10);
                rng.fill(&mut patch[..noisy]);
            }),
            Look::Words => words(&mut rng, &mut out),
            Look::Root => root(&mut rng, &mut out),
            Look::RealRoot => {
                let files = root_files();
                let index = usize::try_from(self.seed % files.len() as u64).unwrap_or(0);
                let bytes = crate::host::read(&files[index]);
                out.chunks_mut(bytes.len())
                    .for_each(|part| part.copy_from_slice(&bytes[..part.len()]));
            }
        }
        out
    }
}

/// The ROOT files of `tests/golden/root`, in order of their names.
#[must_use]
pub fn root_files() -> Vec<PathBuf> {
    crate::golden::images_in(&crate::golden::archive("root"))
}

fn words(rng: &mut Rng, out: &mut [u8]) {
    let mut at = 0;
    while at < out.len() {
        let mut word = rng.pick(&WORDS).to_string();
        match rng.below(10) {
            0 => word += &format!(" {}\n", rng.below(1_000_000)),
            _ => word.push(' '),
        }
        let n = word.len().min(out.len() - at);
        out[at..at + n].copy_from_slice(&word.as_bytes()[..n]);
        at += n;
    }
}

fn root(rng: &mut Rng, out: &mut [u8]) {
    let head: Vec<u8> =
        [b"root".as_slice(), &62_400u32.to_be_bytes(), &100u32.to_be_bytes()].concat();
    let n = head.len().min(out.len());
    out[..n].copy_from_slice(&head[..n]);
    let baskets = out.get_mut(100..).unwrap_or_default().chunks_mut(32 << 10);
    for (i, basket) in baskets.enumerate() {
        let key = format!("TBasket....Events.{}_pt.{i:08}", rng.pick(&WORDS));
        let n = key.len().min(basket.len());
        basket[..n].copy_from_slice(&key.as_bytes()[..n]);
        let body = &mut basket[n..];
        if i % 4 != 0 {
            rng.fill(body); // compressed by ROOT itself
            continue;
        }
        let half = body.len() / 2 / 4 * 4;
        for float in body[..half].as_chunks_mut::<4>().0 {
            let momentum = (rng.below(1 << 16) as f32) / 1024.0;
            *float = momentum.to_bits().to_be_bytes();
        }
        for (event, word) in body[half..].as_chunks_mut::<4>().0.iter_mut().enumerate() {
            *word = u32::try_from(96 + event * 12).expect("a basket is small").to_be_bytes();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use sha2::{Digest, Sha256};

    /// Golden pools and seeds in reports outlive a change of this file only if it changes nothing.
    #[test]
    fn the_bytes_are_pinned() {
        let mut all = Sha256::new();
        for look in LOOKS {
            let data = Data { look, seed: 7, size: 100_001 };
            assert_eq!(data.bytes().len(), 100_001);
            assert_eq!(data.bytes(), data.bytes());
            all.update(data.bytes());
        }
        let sum: String = all.finalize().iter().take(8).map(|b| format!("{b:02x}")).collect();
        assert_eq!(sum, "20bb17617e875bbe");
    }

    #[test]
    fn real_root_files_are_whole() {
        let files = root_files();
        assert_eq!(files.len(), 5);
        for (i, file) in files.iter().enumerate() {
            let whole = crate::host::read(file);
            assert!(whole.starts_with(b"root"), "{}", file.display());
            let data = Data { look: Look::RealRoot, seed: i as u64, size: whole.len() as u64 + 9 };
            assert_eq!(data.bytes(), [&whole[..], &whole[..9]].concat());
        }
    }

    #[test]
    fn they_look_as_they_say() {
        let squeezed = |look| {
            let bytes = Data { look, seed: 1, size: 1 << 20 }.bytes();
            zstd::bulk::compress(&bytes, 1).unwrap().len() * 100 / bytes.len()
        };
        assert!(squeezed(Look::Noise) >= 100);
        assert!((10..50).contains(&squeezed(Look::Words)), "{}", squeezed(Look::Words));
        assert_eq!(squeezed(Look::Zeros), 0);
        assert_eq!(squeezed(Look::Patches), 25);
        assert!((60..95).contains(&squeezed(Look::Root)), "{}", squeezed(Look::Root));
    }
}
