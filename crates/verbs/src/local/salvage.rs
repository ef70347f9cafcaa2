//! A file of which parts cannot be read: what can be is copied, the rest is told.

use std::fs::File;
use std::os::unix::fs::FileExt;

use fs::FsError;

use super::copying::Failed;
use crate::files::Lost;

/// How a file is read that is damaged.
pub(super) struct Reader<R, S> {
    /// Bytes of a record.
    pub(super) record: u64,
    /// Reads from an offset; the bytes read.
    pub(super) read: R,
    /// Where to read on, in bytes, if that failed at an offset: at the beginning of a record.
    pub(super) skip: S,
}

/// Copies what can be read of the `size` bytes of a file into `to`; the bytes copied. Adds what is lost, as
/// ranges of `place`.
pub(super) fn salvage_file<R, S>(
    mut from: Reader<R, S>,
    (to, size, place): (&File, u64, &str),
    buf: &mut [u8],
    lost: &mut Vec<Lost>,
) -> Result<u64, Failed>
where
    R: FnMut(u64, &mut [u8]) -> Result<usize, FsError>,
    S: Fn(u64, &FsError) -> u64,
{
    let first = lost.len();
    let (mut at, mut bytes) = (0, 0);
    // Large steps where all is well, and where something is not, one record after the other up to the next step.
    let mut careful_until = 0;
    while at < size {
        let step =
            if at < careful_until { from.record - at % from.record } else { buf.len() as u64 };
        let part = (size - at).min(step) as usize;
        let Some(part) = buf.get_mut(..part) else { break };
        match (from.read)(at, part) {
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
            Err(error) => {
                let end = (from.skip)(at, &error).clamp(at + 1, size);
                match lost.get_mut(first..).and_then(|own| own.last_mut()) {
                    Some(last) if last.offset + last.len == at => last.len += end - at,
                    _ => lost.push(Lost { place: place.into(), offset: at, len: end - at }),
                }
                at = end;
            }
        }
    }
    to.set_len(size)?;
    Ok(bytes)
}
