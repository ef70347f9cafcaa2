//! zle: runs of zeros, and literals. A control byte below 64 precedes that many and one literals,
//! any other stands for its value less 63 zeros.

use format::Compress;

use super::DecompressError;

const LITERALS_MAX: usize = 64;
const ZEROS_MAX: usize = 256 - LITERALS_MAX;

pub(super) fn compress(mut src: &[u8], dst: &mut [u8]) -> Option<usize> {
    let limit = dst.len();
    let mut dst = dst.iter_mut();
    while !src.is_empty() {
        let zeros = src.iter().take(ZEROS_MAX).take_while(|byte| **byte == 0).count();
        if zeros > 0 {
            *dst.next()? = (zeros - 1 + LITERALS_MAX) as u8;
            src = src.get(zeros..)?;
            continue;
        }
        // A lone zero is cheaper as a literal than as an end of the run.
        let pair = src.windows(2).take(LITERALS_MAX).position(|pair| pair == [0, 0]);
        let run = src.get(..pair.unwrap_or(LITERALS_MAX.min(src.len())))?;
        *dst.next()? = (run.len() - 1) as u8;
        for byte in run {
            *dst.next()? = *byte;
        }
        src = src.get(run.len()..)?;
    }
    Some(limit - dst.len())
}

pub(super) fn decompress(src: &[u8], dst: &mut [u8]) -> Result<(), DecompressError> {
    let kind = Compress::Zle;
    let expected = dst.len();
    let mut left = dst;
    let mut rest = src;
    while !left.is_empty() {
        let filled = expected - left.len();
        let truncated = DecompressError::Truncated {
            kind,
            have: src.len() as u64,
            filled: filled as u64,
            expected: expected as u64,
        };
        let Some((control, after)) = rest.split_first() else { return Err(truncated) };
        let control = usize::from(*control);
        let literals = control < LITERALS_MAX;
        let length = if literals { control + 1 } else { control - LITERALS_MAX + 1 };
        let Some((run, after_run)) = left.split_at_mut_checked(length) else {
            let what = "a run goes beyond the block";
            return Err(DecompressError::Corrupt { kind, what, at: filled as u64 });
        };
        if literals {
            let Some((bytes, after)) = after.split_at_checked(length) else {
                return Err(truncated);
            };
            run.copy_from_slice(bytes);
            rest = after;
        } else {
            run.fill(0);
            rest = after;
        }
        left = after_run;
    }
    Ok(())
}
