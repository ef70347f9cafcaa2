//! What a forwarded command is, as bytes.
//!
//! The one idea: a header of fixed size says how much follows, and everything that follows is words without NULs,
//! so there is nothing to be confused by. The files of the command travel beside it (`SCM_RIGHTS`).
//!
//! ```text
//! "THUMPER" version:u8 length:u32le   then `length` bytes: the time zone, then each word, each ended by a NUL
//! answer:  0 status:u8                 the command ran and ended so
//!          1 text..                    it did not run, and why
//! ```

use std::ffi::OsString;
use std::os::unix::ffi::{OsStrExt, OsStringExt};

/// First bytes, the version with them.
pub(crate) const MAGIC: [u8; 8] = *b"THUMPER\x01";
/// Bytes of the header.
pub(crate) const HEADER: usize = 12;
/// The longest command, in bytes.
pub(crate) const LENGTH_MAX: usize = 4 << 20;
/// Files that come with it: the directory, and the standard input and outputs.
pub(crate) const FILES: usize = 4;

/// The command ran.
pub(crate) const RAN: u8 = 0;
/// It did not.
pub(crate) const REFUSED: u8 = 1;

/// A forwarded command without its files.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Command {
    /// `TZ` of whoever typed it; empty: the system's.
    pub(crate) zone: OsString,
    /// Its words, the program's name first.
    pub(crate) words: Vec<OsString>,
}

impl Command {
    /// Header and body; `None`: it is too long.
    pub(crate) fn to_bytes(&self) -> Option<Vec<u8>> {
        let mut body = Vec::new();
        for word in std::iter::once(&self.zone).chain(&self.words) {
            body.extend_from_slice(word.as_bytes());
            body.push(0);
        }
        let length = u32::try_from(body.len()).ok().filter(|len| *len as usize <= LENGTH_MAX)?;
        Some([&MAGIC[..], &length.to_le_bytes(), &body].concat())
    }

    /// Bytes of the body that a header announces.
    pub(crate) fn length(header: &[u8; HEADER]) -> Result<usize, String> {
        let (magic, length) = header.split_at(MAGIC.len());
        if magic[..7] != MAGIC[..7] {
            return Err("not a command for thumper".into());
        }
        if magic[7] != MAGIC[7] {
            let (theirs, ours) = (magic[7], MAGIC[7]);
            return Err(format!("its protocol has version {theirs}, the server's has {ours}"));
        }
        let length = length.try_into().map_or(u32::MAX, u32::from_le_bytes) as usize;
        if length > LENGTH_MAX {
            return Err(format!("a command of {length} bytes; the most is {LENGTH_MAX}"));
        }
        Ok(length)
    }

    /// The command of a body.
    pub(crate) fn from_body(body: &[u8]) -> Result<Command, String> {
        let ended = body.strip_suffix(b"\0").ok_or("its last word has no end")?;
        let mut words = ended.split(|byte| *byte == 0).map(|word| OsString::from_vec(word.into()));
        let zone = words.next().unwrap_or_default();
        let words: Vec<_> = words.collect();
        if words.is_empty() {
            return Err("a command without words".into());
        }
        Ok(Command { zone, words })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(bytes: &[u8]) -> Result<Command, String> {
        let (header, body) = bytes.split_first_chunk().ok_or("short")?;
        if Command::length(header)? != body.len() {
            return Err("length".into());
        }
        Command::from_body(body)
    }

    #[test]
    fn a_command_comes_as_it_went() {
        for words in [vec!["zpool", "list"], vec!["thumper", "", "put", "-"], vec![""]] {
            let words = words.into_iter().map(OsString::from).collect();
            let command = Command { zone: "Europe/Rome".into(), words };
            assert_eq!(read(&command.to_bytes().unwrap()), Ok(command));
        }
        let odd = OsString::from_vec(vec![b'x'; LENGTH_MAX]);
        assert_eq!(Command { zone: "".into(), words: vec![odd] }.to_bytes(), None);
    }

    #[test]
    fn what_is_no_command_is_refused() {
        let good = Command { zone: "".into(), words: vec!["x".into()] }.to_bytes().unwrap();
        for at in 0..good.len() {
            for byte in 0..=255 {
                let mut bad = good.clone();
                bad[at] = byte;
                // Whatever it is, it is an error or some command.
                drop(read(&bad));
            }
            assert!(read(&good[..at]).is_err(), "the first {at} bytes");
        }
        let with = |magic: &[u8], length: u32, body: &[u8]| {
            read(&[magic, &length.to_le_bytes()[..], body].concat()).unwrap_err()
        };
        assert!(with(b"GET / HT", 3, b"\0x\0").contains("not a command"));
        assert!(with(b"THUMPER\x07", 3, b"\0x\0").contains("version 7"));
        assert!(with(&MAGIC, u32::MAX, b"").contains("the most is"));
        assert!(with(&MAGIC, 1, b"\0").contains("without words"));
        assert!(with(&MAGIC, 2, b"\0x").contains("no end"));
    }
}
