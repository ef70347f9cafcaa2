//! CPU time of the changes of a directory, in memory: `cargo run --release --example zap_speed`.
#![allow(clippy::print_stdout)]

use dmu::zap::{self, MemoryBlocks};
use format::zap::Value;

/// CPU time of this thread so far in nanoseconds: steadier than the clock on a shared machine.
fn cpu_time() -> u64 {
    let text = std::fs::read_to_string("/proc/thread-self/schedstat").unwrap_or_default();
    text.split_whitespace().next().and_then(|word| word.parse().ok()).unwrap_or(0)
}

type Work = fn(&mut MemoryBlocks, &str, u64) -> bool;

const WORKS: &[(&str, Work)] = &[
    ("add", |b, name, i| zap::add(b, name, &Value::u64(i)) == Ok(true)),
    ("find", |b, name, i| zap::lookup_u64(b, name) == Ok(Some(i))),
    ("miss", |b, name, _| zap::lookup_u64(b, &name[1..]) == Ok(None)),
    ("update", |b, name, i| zap::update(b, name, &Value::u64(i + 1)).is_ok()),
    ("remove", |b, name, _| zap::remove(b, name) == Ok(true)),
];

fn main() {
    println!(
        "{:>8}{:>8}{:>8}{:>8}{:>8}{:>8}  ns each",
        "names", "add", "find", "miss", "update", "remove"
    );
    for count in [100, 1_000, 2_000, 20_000, 200_000, 1_000_000] {
        let names: Vec<String> = (0..count).map(|i| format!("event-file-{i:07}.root")).collect();
        // The clock of the CPU is coarse: small directories many times.
        let rounds = (400_000 / count).max(1) as usize;
        let mut many = vec![MemoryBlocks::new(512); rounds];
        for blocks in &mut many {
            assert_eq!(zap::format_micro(blocks, 0x1234_5679, 0), Ok(()));
        }
        print!("{count:>8}");
        for (_, work) in WORKS {
            let start = cpu_time();
            for blocks in &mut many {
                for (i, name) in names.iter().enumerate() {
                    assert!(work(blocks, name, i as u64));
                }
            }
            let done = (rounds * names.len()) as f64;
            print!("{:>8.0}", (cpu_time() - start) as f64 / done);
        }
        println!();
    }
}
