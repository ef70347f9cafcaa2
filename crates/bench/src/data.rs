//! The data that is written: the same bytes for the same place, made before the clock starts.

use anyhow::{Result, bail};
use rt::random::Rng;

/// Bytes of the store that all data is cut from.
const BYTES: usize = 32 << 20;
/// The longest piece.
const PIECE_MAX: usize = 1 << 20;

/// A source of data.
pub(crate) struct Source(Vec<u8>);

impl Source {
    /// `random` (incompressible), `root` (floats that compress a little), or `zero`.
    pub(crate) fn new(kind: &str) -> Result<Source> {
        let mut bytes = vec![0; BYTES + PIECE_MAX];
        let mut rng = Rng::new(42);
        match kind {
            "random" => rng.fill(&mut bytes),
            "root" => {
                for (i, word) in bytes.chunks_exact_mut(4).enumerate() {
                    let value = (i % 1000) as f32 + rng.below(256) as f32 / 256.0;
                    word.copy_from_slice(&value.to_le_bytes());
                }
            }
            "zero" => {}
            other => bail!("unknown data '{other}': random, root or zero"),
        }
        Ok(Source(bytes))
    }

    /// The bytes of object `object` at `offset`.
    pub(crate) fn bytes(&self, object: u64, offset: u64, len: usize) -> &[u8] {
        let at = (object.wrapping_mul(7_919_000_064) + offset) % BYTES as u64 / 64 * 64;
        &self.0[at as usize..][..len]
    }
}
