//! Bytes of blocks that change their size.

/// `bytes[from..]` into `to`, zeros beyond its end.
pub(crate) fn copy_padded(bytes: &[u8], from: usize, to: &mut [u8]) {
    let have = bytes.get(from..).unwrap_or_default();
    let part = have.len().min(to.len());
    to[..part].copy_from_slice(&have[..part]);
    to[part..].fill(0);
}

pub(crate) fn resized(bytes: &[u8], size: usize) -> Vec<u8> {
    let mut out = vec![0; size];
    copy_padded(bytes, 0, &mut out);
    out
}
