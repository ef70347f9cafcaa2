//! The record of a checksum that XRootD keeps with a file, as an extended attribute of it.
//!
//! The name of the attribute is `user.XrdCks.` and the algorithm. The record has 96 bytes: the algorithm's name (16, with a
//! NUL), the file's time of change in seconds (8) and how much later the checksum was made (4), both big-endian; 3
//! bytes of no meaning; the length of the checksum (1), and room for 64 bytes of it. XRootD believes a record whose time is the
//! file's, and looks at no more of the 64 bytes than the length says.
//!
//! Time in seconds is not enough for us to believe it. In the last 24 bytes, little-endian, our records say exactly of
//! which state of the file they are: `THMP`, the nanoseconds of its time of change (4), its size (8), and the txg in which its
//! contents changed last (8).

use crate::{FormatError, Result};

/// What the names of the attributes begin with.
pub const PREFIX: &[u8] = b"user.XrdCks.";
/// Bytes of a record.
pub const SIZE: usize = 96;
/// Says that the bytes behind it are a state.
const MAGIC: [u8; 4] = *b"THMP";
/// Where it is.
const STATE: usize = SIZE - 24;
const NAME_MAX: usize = 15;
/// Bytes of a checksum, at most: what is behind them is the state's.
pub const VALUE_MAX: usize = STATE - 32;

/// The state of a file that a checksum is of.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct State {
    /// Its size, in bytes.
    pub size: u64,
    /// Its time of change: seconds.
    pub mtime_secs: i64,
    /// And nanoseconds.
    pub mtime_nanos: u32,
    /// The txg in which its contents changed last.
    pub txg: u64,
}

/// A record.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Kept {
    /// The algorithm, in lower case.
    pub algorithm: Vec<u8>,
    /// The file's time of change, in seconds.
    pub mtime_secs: i64,
    /// The checksum.
    pub value: Vec<u8>,
    /// What it is of; `None`: it was not made by us.
    pub state: Option<State>,
}

fn field(field: &'static str, seen: u64, expected: &'static str) -> FormatError {
    FormatError::Field { what: "checksum record", field, seen, expected }
}

/// The record of a checksum of a file in `state`, made at `now` (seconds).
///
/// # Errors
/// A name or checksum that is too long.
pub fn build(algorithm: &[u8], value: &[u8], now: i64, state: &State) -> Result<Vec<u8>> {
    if algorithm.is_empty() || algorithm.len() > NAME_MAX {
        return Err(field("length of the name", algorithm.len() as u64, "1 to 15"));
    }
    if value.is_empty() || value.len() > VALUE_MAX {
        return Err(field("length of the checksum", value.len() as u64, "1 to 40"));
    }
    let later = i32::try_from(now.saturating_sub(state.mtime_secs)).unwrap_or(0);
    let mut out = Vec::with_capacity(SIZE);
    out.extend_from_slice(algorithm);
    out.resize(16, 0);
    out.extend_from_slice(&state.mtime_secs.to_be_bytes());
    out.extend_from_slice(&later.to_be_bytes());
    out.extend_from_slice(&[0, 0, 0, value.len() as u8]);
    out.extend_from_slice(value);
    out.resize(STATE, 0);
    out.extend_from_slice(&MAGIC);
    out.extend_from_slice(&state.mtime_nanos.to_le_bytes());
    out.extend_from_slice(&state.size.to_le_bytes());
    out.extend_from_slice(&state.txg.to_le_bytes());
    Ok(out)
}

/// Reads a record.
///
/// # Errors
/// Bytes that are none.
pub fn parse(bytes: &[u8]) -> Result<Kept> {
    let short = || field("size", bytes.len() as u64, "96");
    let bytes: &[u8; SIZE] = bytes.try_into().map_err(|_| short())?;
    let at = |from: usize, to: usize| bytes.get(from..to).unwrap_or_default();
    let word = |from: usize| at(from, from + 8).try_into().unwrap_or([0; 8]);
    let name = at(0, 16);
    let end = name.iter().position(|byte| *byte == 0).filter(|end| *end > 0);
    let end = end.ok_or_else(|| field("length of the name", 0, "1 to 15"))?;
    let length = usize::from(bytes[31]);
    if length == 0 || length > 64 {
        return Err(field("length of the checksum", length as u64, "1 to 64"));
    }
    let mtime_secs = i64::from_be_bytes(word(16));
    let is_ours = length <= VALUE_MAX && at(STATE, STATE + 4) == MAGIC;
    let state = is_ours.then(|| State {
        size: u64::from_le_bytes(word(STATE + 8)),
        mtime_secs,
        mtime_nanos: u32::from_le_bytes(at(STATE + 4, STATE + 8).try_into().unwrap_or([0; 4])),
        txg: u64::from_le_bytes(word(STATE + 16)),
    });
    let value = at(32, 32 + length).to_vec();
    Ok(Kept { algorithm: name.get(..end).unwrap_or_default().to_vec(), mtime_secs, value, state })
}

#[cfg(test)]
mod tests {
    use super::*;

    const STATE_OF: State =
        State { size: 0x0102_0304, mtime_secs: 0x5566_7788, mtime_nanos: 999_999_999, txg: 77 };

    /// Byte for byte, as a server of XRootD 5.5.3 writes it, but for the last bytes.
    #[test]
    fn is_laid_out_as_xrootd_has_it() {
        let built = build(b"adler32", &[1, 2, 3, 4], 0x5566_7788 + 5, &STATE_OF).unwrap();
        let mut expected = b"adler32\0\0\0\0\0\0\0\0\0\0\0\0\0\x55\x66\x77\x88".to_vec();
        expected.extend_from_slice(&[0, 0, 0, 5, 0, 0, 0, 4, 1, 2, 3, 4]);
        assert_eq!(built[..36], expected);
        assert_eq!(built[36..72], [0; 36]);
        assert_eq!(built.len(), SIZE);
    }

    #[test]
    fn comes_back() {
        let built = build(b"crc32c", &[9; VALUE_MAX], 3, &STATE_OF).unwrap();
        let back = parse(&built).unwrap();
        assert_eq!((back.algorithm.as_slice(), back.value.len()), (&b"crc32c"[..], VALUE_MAX));
        assert_eq!(back.state, Some(STATE_OF));
        assert!(build(b"crc32c", &[9; VALUE_MAX + 1], 3, &STATE_OF).is_err());
        assert!(build(b"0123456789abcdef", &[9], 3, &STATE_OF).is_err());
        // XRootD's own, with a checksum where the state would be, and without.
        let mut foreign = built;
        foreign[31] = 64;
        assert_eq!(parse(&foreign).unwrap().state, None);
        foreign[31] = 4;
        foreign[STATE..].fill(0);
        assert_eq!(parse(&foreign).unwrap().state, None);
    }

    #[test]
    fn what_is_none_is_refused() {
        let built = build(b"crc32c", &[9; 4], 3, &STATE_OF).unwrap();
        for (at, byte) in [(0, 0), (31, 0), (31, 65)] {
            let mut bad = built.clone();
            bad[at] = byte;
            assert!(parse(&bad).is_err(), "{at}");
        }
        let mut bad = built.clone();
        bad[..16].fill(b'a');
        assert!(parse(&bad).is_err());
        assert!(parse(&built[1..]).is_err() && parse(b"").is_err());
    }
}
