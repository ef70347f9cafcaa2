//! Any bytes as the blocks of a partition table, its checksums made right.
#![no_main]

use format::gpt::{Header, crc32};
use libfuzzer_sys::fuzz_target;

fuzz_target!(|bytes: &[u8]| {
    let Some((size, bytes)) = bytes.split_first_chunk::<4>() else { return };
    let device_size = u64::from(u32::from_le_bytes(*size)) << 9;
    let mut block = [0; 512];
    let head = bytes.len().min(512);
    block[..head].copy_from_slice(&bytes[..head]);
    let mut entries = bytes[head..].to_vec();
    block[..8].copy_from_slice(b"EFI PART");
    block[12..16].copy_from_slice(&92_u32.to_le_bytes());
    block[24..32].copy_from_slice(&1_u64.to_le_bytes());
    let count = u32::from_le_bytes(block[80..84].try_into().expect("4 bytes"));
    let each = u32::from_le_bytes(block[84..88].try_into().expect("4 bytes"));
    entries.resize((u64::from(count) * u64::from(each)).min(1 << 19) as usize, 0);
    block[88..92].copy_from_slice(&crc32(&entries).to_le_bytes());
    block[16..20].fill(0);
    let sum = crc32(&block[..92]);
    block[16..20].copy_from_slice(&sum.to_le_bytes());
    let Ok(header) = Header::parse(&block, 512) else { return };
    let Ok((_, length)) = header.entries() else { return };
    assert!(length <= 1 << 19);
    if let Ok(found) = header.partitions(&entries, device_size) {
        let sum: u64 = found.iter().map(|partition| partition.size).sum();
        assert!(sum <= device_size);
    }
});
