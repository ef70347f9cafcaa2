//! The seam: threads, locks, channels, time, randomness, buffers, workers and the memory account.
//!
//! Place: below every storey; the only crate that names a thread, a lock, a clock or a random
//! number (INV-10).
//! The one idea: the engine is ordinary blocking code, and whatever could make two runs of it
//! differ comes through here. In production that is `std`; with the feature `sim` it is a seeded
//! scheduler with virtual time, so one seed gives one history.
#![deny(missing_docs)]

pub mod buf;
pub mod machine;
pub mod mem;
pub mod random;
pub mod signals;
#[cfg(feature = "sim")]
pub mod sim;
pub mod soon;
pub mod sync;
pub mod thread;
pub mod time;
pub mod workers;

pub use buf::{Buf, BufPool, PooledBuf};
pub use mem::{Account, Grant};
pub use random::Rng;
pub use workers::Workers;

/// Puts a word into the history of a simulated run, such as what a device was asked; does nothing
/// in production.
#[inline]
pub fn note(word: u64) {
    #[cfg(feature = "sim")]
    if sim::is_running() {
        sim::note(word);
    }
    let _ = word;
}
