//! A file of which parts cannot be read: what can be is copied, the rest is told.

use std::fs::File;
use std::ops::Range;
use std::os::unix::fs::FileExt;

use fs::{FsError, Left, Remains};

use super::copying::Failed;
use crate::files::Lost;

/// Copies what can be read of a file into `to`; the bytes copied. `read` reads from an offset, and gives the bytes read.
/// Adds what is lost, as ranges of `place`. Holes cost nothing, however large they are.
pub(super) fn salvage_file(
    from: &Remains<'_>,
    mut read: impl FnMut(u64, &mut [u8]) -> Result<usize, FsError>,
    (to, place): (&File, &str),
    buf: &mut [u8],
    lost: &mut Vec<Lost>,
) -> Result<u64, Failed> {
    let first = lost.len();
    let mut lose = |range: Range<u64>| {
        let (offset, len) = (range.start, range.end.saturating_sub(range.start));
        match lost.get_mut(first..).and_then(|own| own.last_mut()) {
            _ if len == 0 => {}
            Some(last) if last.offset + last.len == offset => last.len += len,
            _ => lost.push(Lost { place: place.into(), offset, len }),
        }
        range.end
    };
    let (mut at, mut bytes) = (0, 0);
    // Large steps where all is well, and where something is not, one record after the other up to the next step.
    let mut careful_until = 0;
    while at < from.size {
        at = match from.next(at) {
            Left::Data(start) => start,
            Left::Lost(range) => {
                at = lose(range);
                continue;
            }
            Left::Nothing => break,
        };
        let step =
            if at < careful_until { from.record - at % from.record } else { buf.len() as u64 };
        let part = from.size.saturating_sub(at).min(step) as usize;
        let Some(part) = buf.get_mut(..part) else { break };
        match read(at, part) {
            Ok(0) => break,
            Ok(got) => {
                let read = part.get(..got).unwrap_or_default();
                if read.iter().any(|byte| *byte != 0) {
                    to.write_all_at(read, at)?;
                }
                bytes += got as u64;
                at += got as u64;
            }
            Err(_) if part.len() as u64 > from.record => careful_until = at + part.len() as u64,
            Err(error) => at = lose(from.lost_by(at, &error)),
        }
    }
    to.set_len(from.size)?;
    Ok(bytes)
}
