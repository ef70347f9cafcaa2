//! The ZAP against what the OpenZFS kernel wrote, and against lies planted in it.
#![allow(clippy::unwrap_used)]

use std::path::Path;

mod golden;
mod lies;
mod names;

fn unpack(file: &str) -> Vec<u8> {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/data/zap").join(file);
    zstd::decode_all(std::fs::File::open(path).unwrap()).unwrap()
}

fn blocks(name: &str) -> Vec<Vec<u8>> {
    let bytes = unpack(&format!("{name}.zap.zst"));
    let (size, data) = bytes.split_first_chunk::<8>().unwrap();
    data.chunks_exact(u64::from_le_bytes(*size) as usize).map(<[u8]>::to_vec).collect()
}
