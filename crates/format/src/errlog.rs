//! The error log: which blocks could not be read.
//!
//! Two ZAPs (`errlog_last`, `errlog_scrub`) whose keys are places in the pool, as four hexadecimal
//! numbers with colons between them. FORMAT: section 13.2.

use crate::scan::Bookmark;
use crate::{FormatError, Result};

/// Reads the key of an entry: data set, object, level, block.
pub fn parse_key(key: &[u8]) -> Result<Bookmark> {
    let mut parts = key.split(|b| *b == b':');
    let mut next = |field| {
        let error = || FormatError::Bounds { what: "error log key", field, at: 0 };
        let part = parts.next().filter(|p| (1..=16).contains(&p.len())).ok_or_else(error)?;
        part.iter().try_fold(0, |number: u64, digit| {
            let digit = (*digit as char).to_digit(16).ok_or_else(error)?;
            Ok(number << 4 | u64::from(digit))
        })
    };
    let (objset, object) = (next("objset")?, next("object")?);
    let (level, block) = (next("level")? as i64, next("block")?);
    match parts.next() {
        None => Ok(Bookmark { objset, object, level, block }),
        Some(_) => Err(FormatError::Bounds { what: "error log key", field: "end", at: 0 }),
    }
}

/// The key of an entry.
pub fn key(place: &Bookmark) -> String {
    let Bookmark { objset, object, level, block } = place;
    format!("{objset:x}:{object:x}:{level:x}:{block:x}")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keys_and_places_are_inverse() {
        let place = Bookmark { objset: 0x36, object: 0x80, level: 0, block: 0x1f };
        assert_eq!(key(&place), "36:80:0:1f");
        assert_eq!(parse_key(b"36:80:0:1f").unwrap(), place);
        let root = Bookmark { objset: u64::MAX, object: 0, level: -1, block: 0 };
        assert_eq!(key(&root), "ffffffffffffffff:0:ffffffffffffffff:0");
        assert_eq!(parse_key(key(&root).as_bytes()).unwrap(), root);
    }

    #[test]
    fn other_keys_are_refused() {
        for bad in ["", "1:2:3", "1:2:3:4:5", "1:2::4", "1:2:3:x", "1:2:3:11112222333344445"] {
            assert!(parse_key(bad.as_bytes()).is_err(), "{bad}");
        }
    }
}
