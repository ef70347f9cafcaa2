//! The checksum that a block pointer carries: four words over the bytes as stored.
//!
//! One idea: [`Hasher`] takes a block in pieces (the columns of a record need not be joined to be
//! checked) and gives the four words in the form in which a little-endian host holds them.
//! FORMAT: section 3.1.

pub mod edonr;
pub mod fletcher;
#[cfg(target_arch = "x86_64")]
mod fletcher_lanes;
#[cfg(target_arch = "x86_64")]
mod fletcher_x86;
pub mod skein;

use std::cell::RefCell;

use edonr::EdonR512;
use fletcher::{Fletcher2, Fletcher4};
use format::Checksum;
use sha2::{Digest, Sha256, Sha512_256};
use skein::Skein512;

/// The four checksum words of a block pointer or of an embedded checksum.
pub type Words = [u64; 4];

/// The pool's checksum salt (`org.illumos:checksum_salt` in the MOS directory).
pub type Salt = [u8; 32];

/// Why no checksum could be computed.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum ChecksumError {
    /// This number names no checksum over a whole block: it is a property value, or the checksum
    /// lies inside the block (see [`crate::embedded`]).
    #[error("checksum {0:?} is not one that a block pointer holds")]
    NotOfBlocks(Checksum),
    /// Fletcher sums are defined over whole words only.
    #[error("checksum {kind:?}: {size} bytes are not a whole number of words of {word} bytes")]
    Ragged {
        /// The checksum.
        kind: Checksum,
        /// Bytes given.
        size: u64,
        /// Bytes of one word (fletcher2: of a pair of words).
        word: u64,
    },
}

/// The checksum of `data`.
///
/// `big_endian` says that the block was written by a big-endian host (the byte-order bit of its
/// pointer is 0); the words are then those of the pointer after its own words were swapped to this
/// host's order. `salt` matters to skein and edonr only.
pub fn compute(
    kind: Checksum,
    data: &[u8],
    big_endian: bool,
    salt: &Salt,
) -> Result<Words, ChecksumError> {
    if kind == Checksum::Fletcher4 && data.len().is_multiple_of(4) {
        // The one that matters most, without the state of a hasher.
        return Ok(fletcher::Engine::best().sums(data, big_endian));
    }
    compute_pieces(kind, &[data], big_endian, salt)
}

/// As [`compute`], over pieces that together are the block.
pub fn compute_pieces(
    kind: Checksum,
    pieces: &[&[u8]],
    big_endian: bool,
    salt: &Salt,
) -> Result<Words, ChecksumError> {
    let mut hasher = Hasher::new(kind, big_endian, salt)?;
    for piece in pieces {
        hasher.update(piece);
    }
    hasher.finish()
}

/// Does `data` have the checksum that its pointer says? Blocks without a checksum always do.
pub fn verify(
    kind: Checksum,
    data: &[u8],
    big_endian: bool,
    salt: &Salt,
    expected: &Words,
) -> Result<bool, ChecksumError> {
    if matches!(kind, Checksum::Off | Checksum::Noparity) {
        return Ok(true);
    }
    Ok(compute(kind, data, big_endian, salt)? == *expected)
}

/// A checksum being computed over a block that comes in pieces.
#[derive(Clone)]
pub struct Hasher {
    kind: Checksum,
    big_endian: bool,
    state: State,
}

/// Boxes hold the states that are large and rare.
#[derive(Clone)]
enum State {
    Off,
    Fletcher2(Fletcher2),
    Fletcher4(Fletcher4),
    Sha256(Sha256),
    Sha512(Box<Sha512_256>),
    Skein(Box<Skein512>),
    EdonR(Box<EdonR512>),
}

impl Hasher {
    /// Starts a checksum of the given kind.
    pub fn new(kind: Checksum, big_endian: bool, salt: &Salt) -> Result<Hasher, ChecksumError> {
        let state = match kind {
            Checksum::Off | Checksum::Noparity => State::Off,
            Checksum::Fletcher2 => State::Fletcher2(Fletcher2::new(big_endian)),
            Checksum::Fletcher4 => State::Fletcher4(Fletcher4::new(big_endian)),
            Checksum::Sha256 => State::Sha256(Sha256::new()),
            Checksum::Sha512 => State::Sha512(Box::new(Sha512_256::new())),
            Checksum::Skein => State::Skein(Box::new(salted(salt, |salted| salted.skein.clone()))),
            Checksum::Edonr => State::EdonR(Box::new(salted(salt, |salted| salted.edonr.clone()))),
            Checksum::Inherit
            | Checksum::On
            | Checksum::Label
            | Checksum::GangHeader
            | Checksum::Zilog
            | Checksum::Zilog2 => return Err(ChecksumError::NotOfBlocks(kind)),
        };
        Ok(Hasher { kind, big_endian, state })
    }

    /// Takes the next bytes of the block; pieces may have any length.
    pub fn update(&mut self, piece: &[u8]) {
        match &mut self.state {
            State::Off => {}
            State::Fletcher2(state) => state.update(piece),
            State::Fletcher4(state) => state.update(piece),
            State::Sha256(state) => state.update(piece),
            State::Sha512(state) => state.update(piece),
            State::Skein(state) => state.update(piece),
            State::EdonR(state) => state.update(piece),
        }
    }

    /// The checksum of all pieces.
    pub fn finish(self) -> Result<Words, ChecksumError> {
        let Hasher { kind, big_endian, state } = self;
        let ragged = |size, word| ChecksumError::Ragged { kind, size, word };
        // Digests other than sha256 are stored as bytes, so a big-endian writer's words read
        // swapped; sha256 is defined by its words, which are the same on every host.
        let of_bytes = |digest: &[u8]| {
            let words = little_endian_words(digest);
            if big_endian { words.map(u64::swap_bytes) } else { words }
        };
        Ok(match state {
            State::Off => [0; 4],
            State::Fletcher2(state) => state.finish().map_err(|size| ragged(size, 16))?,
            State::Fletcher4(state) => state.finish().map_err(|size| ragged(size, 4))?,
            State::Sha256(state) => little_endian_words(&state.finalize()).map(u64::swap_bytes),
            State::Sha512(state) => of_bytes(&state.finalize()),
            State::Skein(state) => of_bytes(&state.finish()),
            State::EdonR(state) => of_bytes(&state.finish()),
        })
    }
}

/// The states after the salt went in.
struct Salted {
    salt: Salt,
    skein: Skein512,
    edonr: EdonR512,
}

/// A state after the salt went in. A process sees few salts, mostly one, and taking it in costs as
/// much as a small block: each thread remembers the last.
fn salted<T>(salt: &Salt, state: impl Fn(&Salted) -> T) -> T {
    thread_local! {
        static LAST: RefCell<Option<Salted>> = const { RefCell::new(None) };
    }
    LAST.with_borrow_mut(|last| {
        if last.as_ref().is_none_or(|last| last.salt != *salt) {
            *last = Some(Salted {
                salt: *salt,
                skein: Skein512::keyed(salt, 32),
                edonr: EdonR512::salted(salt),
            });
        }
        last.as_ref().map(state).expect("was set above")
    })
}

/// The first 32 bytes of a digest as words.
fn little_endian_words(digest: &[u8]) -> Words {
    let mut words = [0; 4];
    for (word, bytes) in words.iter_mut().zip(digest.chunks_exact(8)) {
        *word = u64::from_le_bytes(bytes.try_into().expect("chunks are of 8 bytes"));
    }
    words
}
