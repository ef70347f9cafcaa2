//! Frames: how long a message is, before it is read.

use serde::Serialize;
use serde::de::DeserializeOwned;

use crate::{BULK_MAX, Hello};

/// First bytes of a connection, the version with them.
pub const MAGIC: [u8; 8] = *b"THUMDAT\x0b";
/// Bytes in front of a frame.
pub const HEADER: usize = 8;
/// Bytes that most messages have at most, without their bulk.
const ROOM: usize = 256;
/// Above the number of bulk bytes is where they are.
const WAY_SHIFT: u32 = 30;
/// Bytes of the typed part of a frame, at most.
pub const PART_MAX: usize = 256 << 10;
/// Of a frame with bulk bytes, whose typed part is there before any memory is asked for: a path, and for whom.
pub const PART_BESIDE_BULK_MAX: usize = 8 << 10;

/// Why bytes are no message.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum FrameError {
    /// The typed part is too long.
    #[error("a message of {0} bytes; the most is {PART_MAX}")]
    Part(usize),
    /// There are too many bulk bytes.
    #[error("a message with {0} bulk bytes; the most is {BULK_MAX}")]
    Bulk(usize),
    /// The typed part is not what it should be.
    #[error("not a message: {0}")]
    Malformed(String),
}

/// Where the bulk bytes of a frame are.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Way {
    /// Behind its typed part.
    Behind = 0,
    /// Lent through the pipe.
    Pipe = 1,
    /// In the bay.
    Bay = 2,
}

/// What a frame has, as its first bytes say.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Head {
    /// Bytes of the typed part.
    pub part: usize,
    /// Bulk bytes.
    pub bulk: usize,
    /// Where they are.
    pub way: Way,
}

impl Head {
    /// Reads it.
    ///
    /// # Errors
    /// It announces more than may be.
    pub fn read(bytes: [u8; HEADER]) -> Result<Head, FrameError> {
        let [a, b, c, d, e, f, g, h] = bytes;
        let part = u32::from_le_bytes([a, b, c, d]) as usize;
        let bulk = u32::from_le_bytes([e, f, g, h]);
        let way = match bulk >> WAY_SHIFT {
            0 => Way::Behind,
            1 => Way::Pipe,
            2 => Way::Bay,
            _ => return Err(FrameError::Malformed("bulk bytes that are nowhere".into())),
        };
        let bulk = (bulk & ((1 << WAY_SHIFT) - 1)) as usize;
        if part > PART_MAX {
            return Err(FrameError::Part(part));
        }
        if bulk > BULK_MAX {
            return Err(FrameError::Bulk(bulk));
        }
        Ok(Head { part, bulk, way })
    }

    /// The bytes that say it.
    #[must_use]
    pub fn bytes(self) -> [u8; HEADER] {
        let bulk = self.bulk as u32 | (self.way as u32) << WAY_SHIFT;
        let mut bytes = [0; HEADER];
        bytes[..4].copy_from_slice(&(self.part as u32).to_le_bytes());
        bytes[4..].copy_from_slice(&bulk.to_le_bytes());
        bytes
    }
}

/// The first bytes of a frame and its typed part; the `bulk` bytes come by that `way`.
///
/// # Errors
/// It is too long.
pub fn encode<T: Serialize>(message: &T, bulk: usize, way: Way) -> Result<Vec<u8>, FrameError> {
    let mut out = Vec::with_capacity(ROOM);
    out.resize(HEADER, 0);
    let mut out = postcard::to_extend(message, out)
        .map_err(|error| FrameError::Malformed(error.to_string()))?;
    let part = out.len() - HEADER;
    if part > PART_MAX {
        return Err(FrameError::Part(part));
    }
    if bulk > BULK_MAX {
        return Err(FrameError::Bulk(bulk));
    }
    out[..HEADER].copy_from_slice(&Head { part, bulk, way }.bytes());
    Ok(out)
}

/// The first bytes of a connection.
///
/// # Errors
/// The name of the tree is too long.
pub fn greeting(hello: &Hello) -> Result<Vec<u8>, FrameError> {
    let frame = encode(hello, 0, Way::Behind)?;
    let part = &frame[HEADER..];
    Ok([&MAGIC[..], &(part.len() as u32).to_le_bytes(), part].concat())
}

/// Reads the typed part of a frame, all of it.
///
/// # Errors
/// It is something else.
pub fn decode<T: DeserializeOwned>(part: &[u8]) -> Result<T, FrameError> {
    let malformed = |why: String| FrameError::Malformed(why);
    let (message, rest) =
        postcard::take_from_bytes(part).map_err(|error| malformed(error.to_string()))?;
    match rest {
        [] => Ok(message),
        rest => Err(malformed(format!("{} bytes too many", rest.len()))),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Request, Subject, Target};

    fn request() -> Request {
        let who = Subject { uid: 7, gid: 8, groups: vec![9, 10] };
        Request::SetXattr {
            who,
            of: Target::Path(b"/a/b".to_vec()),
            name: b"user.x".to_vec(),
            value: Some(vec![1, 2, 3]),
        }
    }

    #[test]
    fn messages_come_as_they_went() {
        let mut last = Vec::new();
        for way in [Way::Behind, Way::Pipe, Way::Bay] {
            last = encode(&request(), 17, way).unwrap();
            let (head, part) = last.split_first_chunk().unwrap();
            let head = Head::read(*head).unwrap();
            assert_eq!(head, Head { part: part.len(), bulk: 17, way });
            assert_eq!(decode::<Request>(part), Ok(request()));
        }
        let part = &last[HEADER..];
        assert!(decode::<Request>(&[part, &[0][..]].concat()).is_err());
    }

    #[test]
    fn what_is_too_much_is_refused() {
        let head = |part: u32, bulk: u32| {
            let mut bytes = [0; HEADER];
            bytes[..4].copy_from_slice(&part.to_le_bytes());
            bytes[4..].copy_from_slice(&bulk.to_le_bytes());
            Head::read(bytes)
        };
        assert!(head(PART_MAX as u32, BULK_MAX as u32).is_ok());
        assert_eq!(head(PART_MAX as u32 + 1, 0), Err(FrameError::Part(PART_MAX + 1)));
        assert_eq!(head(0, u32::MAX >> 2), Err(FrameError::Bulk(u32::MAX as usize >> 2)));
        assert!(matches!(head(0, u32::MAX), Err(FrameError::Malformed(_))));
        let long = Request::Stat { who: Subject::ROOT, path: vec![b'x'; PART_MAX], follow: false };
        assert!(matches!(encode(&long, 0, Way::Behind), Err(FrameError::Part(_))));
        assert!(encode(&request(), BULK_MAX + 1, Way::Behind).is_err());
    }

    #[test]
    fn any_bytes_are_a_message_or_an_error() {
        let good = encode(&request(), 0, Way::Behind).unwrap();
        let part = &good[HEADER..];
        for at in 0..part.len() {
            drop(decode::<Request>(&part[..at]));
            for byte in 0..=255 {
                let mut bad = part.to_vec();
                bad[at] = byte;
                drop(decode::<Request>(&bad));
            }
        }
    }
}
