//! Limits of our own: parity and checksum per core, beside ISA-L's and memcpy's in `limits`.

use anyhow::Result;
use serde_json::json;

use crate::clock::Clock;

/// Rounds of which the best counts.
const ROUNDS: usize = 20;
/// Bytes per round.
const ROUND_BYTES: usize = 256 << 20;

fn measure(name: &str, unit: usize, mut work: impl FnMut()) {
    let (mut best, mut best_cpu) = (0.0f64, 0.0f64);
    for _ in 0..ROUNDS {
        let clock = Clock::start();
        for _ in 0..ROUND_BYTES / unit {
            work();
        }
        let timed = clock.stop();
        let bytes = (ROUND_BYTES / unit * unit) as f64;
        best = best.max(bytes / timed.seconds / 1e6);
        best_cpu = best_cpu.max(bytes / (timed.user + timed.sys) / 1e6);
    }
    let line =
        json!({"limit": name, "unit": unit, "threads": 1, "mb_s": best, "mb_cpu_s": best_cpu});
    println!("{line}");
}

/// Prints the limits, one line each.
pub(crate) fn print() -> Result<()> {
    let record: Vec<u8> = (0..128u32 << 10).map(|i| ((i * 31) >> 3) as u8).collect();
    let (mut p, mut q) = (vec![0; 16 << 10], vec![0; 16 << 10]);
    measure("thumper pq 8+2, columns of 16K", record.len(), || {
        let data: Vec<&[u8]> = record.chunks_exact(16 << 10).collect();
        codec::parity::generate(&data, &mut [&mut p, &mut q]);
    });
    measure("thumper fletcher4, 128K", record.len(), || {
        std::hint::black_box(codec::checksum::fletcher::fletcher4(&record));
    });
    Ok(())
}
