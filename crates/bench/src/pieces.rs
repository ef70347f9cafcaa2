//! Limits of our own: parity and checksum per core, beside ISA-L's and memcpy's in `limits`.

use anyhow::Result;
use serde_json::json;

use crate::clock::Clock;

/// Rounds of which the best counts.
const ROUNDS: usize = 20;
/// Bytes per round.
const ROUND_BYTES: usize = 256 << 20;
/// Data columns of a row.
const COLUMNS: usize = 8;

/// Has `work` do the pieces of a round, each told by where it begins.
fn measure(name: &str, unit: usize, mut work: impl FnMut(usize)) {
    let (mut best, mut best_cpu) = (0.0f64, 0.0f64);
    for _ in 0..ROUNDS {
        let clock = Clock::start();
        for at in (0..ROUND_BYTES / unit).map(|number| number * unit) {
            work(at);
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

/// P and Q of what comes from memory and goes there, as `limits` has ISA-L do it; or of one row again and again.
fn measure_parity(name: &str, column: usize, streams: bool, data: &[u8], parity: &mut [u8]) {
    let unit = COLUMNS * column;
    measure(name, unit, |at| {
        let (from, to) = if streams { (at, at / 4) } else { (0, 0) };
        let columns: Vec<&[u8]> = data[from..from + unit].chunks_exact(column).collect();
        let (p, q) = parity[to..to + 2 * column].split_at_mut(column);
        codec::parity::generate(&columns, &mut [p, q]);
    });
}

/// Prints the limits, one line each.
pub(crate) fn print() -> Result<()> {
    let data: Vec<u8> = (0..ROUND_BYTES as u32).map(|i| (i.wrapping_mul(31) >> 3) as u8).collect();
    let mut parity = vec![0; ROUND_BYTES / 4];
    for (name, column) in [("16K", 16 << 10), ("128K", 128 << 10)] {
        let name = format!("thumper pq 8+2, columns of {name}");
        measure_parity(&name, column, true, &data, &mut parity);
    }
    measure_parity("thumper pq 8+2, in cache", 16 << 10, false, &data, &mut parity);
    let record = &data[..128 << 10];
    measure("thumper fletcher4, 128K", record.len(), |_| {
        std::hint::black_box(codec::checksum::fletcher::fletcher4(record));
    });
    Ok(())
}
