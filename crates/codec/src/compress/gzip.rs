//! gzip-1 to gzip-9: a zlib stream (not the gzip file format).

use std::cell::RefCell;

use flate2::{Compress as Deflate, Compression, Decompress as Inflate};
use flate2::{FlushCompress, FlushDecompress, Status};
use format::Compress;

use super::DecompressError;

thread_local! {
    /// The compressor of the level last used: its tables are worth keeping (some 300 KB).
    static DEFLATE: RefCell<Option<(u8, Deflate)>> = const { RefCell::new(None) };
    static INFLATE: RefCell<Option<Inflate>> = const { RefCell::new(None) };
}

pub(super) fn compress(level: u8, src: &[u8], dst: &mut [u8]) -> Option<usize> {
    DEFLATE.with_borrow_mut(|kept| {
        let mut deflate = match kept.take() {
            Some((of, mut deflate)) if of == level => {
                deflate.reset();
                deflate
            }
            _ => Deflate::new(Compression::new(u32::from(level.clamp(1, 9))), true),
        };
        let status = deflate.compress(src, dst, FlushCompress::Finish);
        // Anything but the end of the stream means that the room was used up.
        if !matches!(status, Ok(Status::StreamEnd)) {
            // What broke off in the middle goes: of level 1 a reset leaves an open block behind, and the next
            // stream would begin with its rest.
            return None;
        }
        let size = deflate.total_out();
        *kept = Some((level, deflate));
        usize::try_from(size).ok()
    })
}

pub(super) fn decompress(
    kind: Compress,
    src: &[u8],
    dst: &mut [u8],
) -> Result<(), DecompressError> {
    INFLATE.with_borrow_mut(|kept| {
        let inflate = kept.get_or_insert_with(|| Inflate::new(true));
        inflate.reset(true);
        let status = inflate.decompress(src, dst, FlushDecompress::Finish);
        let (filled, expected) = (inflate.total_out(), dst.len() as u64);
        let corrupt = |what| Err(DecompressError::Corrupt { kind, what, at: filled });
        match status {
            Ok(Status::StreamEnd) if filled == expected => Ok(()),
            Ok(Status::StreamEnd) => corrupt("the stream ends"),
            Ok(_) if filled == expected => corrupt("gives more than the block"),
            Ok(_) => {
                let have = src.len() as u64;
                Err(DecompressError::Truncated { kind, have, filled, expected })
            }
            Err(_) => corrupt("not a zlib stream"),
        }
    })
}
