//! Typed views over bytes: the one place where a structure is cut out of a buffer.

use zerocopy::{FromBytes, Immutable, KnownLayout, Unaligned};

use crate::{FormatError, Result};

/// The structure `T` at the start of `bytes`, which may go on beyond it.
pub(crate) fn prefix<'a, T>(what: &'static str, bytes: &'a [u8]) -> Result<(&'a T, &'a [u8])>
where
    T: FromBytes + KnownLayout + Immutable + Unaligned,
{
    let (needed, have) = (size_of::<T>() as u64, bytes.len() as u64);
    T::ref_from_prefix(bytes).map_err(|_| FormatError::Short { what, needed, have })
}

/// `count` structures `T` at the start of `bytes`.
///
/// Nothing is copied, so `count` may be a number from a disk.
pub(crate) fn array<'a, T>(what: &'static str, bytes: &'a [u8], count: u64) -> Result<&'a [T]>
where
    T: FromBytes + KnownLayout + Immutable + Unaligned,
{
    let have = bytes.len() as u64;
    let needed = count.saturating_mul(size_of::<T>() as u64);
    if needed > have {
        return Err(FormatError::Short { what, needed, have });
    }
    <[T]>::ref_from_prefix_with_elems(bytes, count as usize)
        .map(|(array, _)| array)
        .map_err(|_| FormatError::Short { what, needed, have })
}

/// A structure of which a disk may hold only the first `bytes.len()` bytes (older, shorter forms
/// of a bonus); what is missing is zero. The caller has checked that the length is a legal one.
pub(crate) fn padded<T: FromBytes, const SIZE: usize>(bytes: &[u8]) -> T {
    const { assert!(size_of::<T>() == SIZE) };
    let mut whole = [0u8; SIZE];
    for (to, from) in whole.iter_mut().zip(bytes) {
        *to = *from;
    }
    T::read_from_bytes(&whole).unwrap_or_else(|_| T::new_zeroed())
}
