//! How fast checksums, parity and compression are on one core: `cargo bench -p codec`.
//!
//! Each figure is the best of many short rounds in GB/s of input (10^9 bytes), so that a busy
//! machine disturbs little. Records are 128 KiB out of a set of a given size: small sets stay in the
//! caches, the large one comes from memory. An argument picks the lines that contain it.
#![allow(clippy::print_stdout, clippy::disallowed_methods, clippy::unwrap_used)]

use std::hint::black_box;
use std::time::{Duration, Instant};

use codec::checksum::{compute, fletcher};
use codec::compress::{ZSTD_LEVEL_DEFAULT, ZstdLevel, compress, decompress};
use codec::parity::{self, Column};
use format::{Checksum, Compress};

const RECORD: usize = 128 << 10;

/// GB/s of `bytes` a call: the best of many rounds that are shorter than a scheduler's turn.
fn rate(bytes: usize, mut call: impl FnMut(usize)) -> f64 {
    let mut best = Duration::MAX;
    let mut calls = 1;
    let mut index = 0;
    let mut rounds = 0;
    while rounds < 60 {
        let start = Instant::now();
        for _ in 0..calls {
            call(index);
            index += 1;
        }
        let elapsed = start.elapsed();
        if elapsed < Duration::from_micros(1500) {
            calls *= 2;
            continue;
        }
        best = best.min(elapsed / calls);
        rounds += 1;
    }
    bytes as f64 / best.as_secs_f64() / 1e9
}

fn noise(len: usize) -> Vec<u8> {
    let mut x = 0x9e37_79b9_7f4a_7c15u64;
    let mut bytes = Vec::with_capacity(len + 8);
    while bytes.len() < len {
        x ^= x << 13;
        x ^= x >> 7;
        x ^= x << 17;
        bytes.extend_from_slice(&x.to_le_bytes());
    }
    bytes.truncate(len);
    bytes
}

struct Bench {
    only: Option<String>,
}

impl Bench {
    fn line(&self, name: &str, bytes: usize, call: impl FnMut(usize)) {
        if self.only.as_ref().is_none_or(|only| name.contains(only.as_str())) {
            println!("{name:<44} {:>8.2} GB/s", rate(bytes, call));
        }
    }

    fn set(&self, place: &str, set_size: usize) {
        let from = noise(set_size);
        let mut to = noise(set_size);
        let records = set_size / RECORD;
        let range = |index: usize| index % records * RECORD..(index % records + 1) * RECORD;
        self.line(&format!("memcpy, {place}"), RECORD, |i| {
            to[range(i)].copy_from_slice(black_box(&from[range(i)]));
        });
        for engine in fletcher::Engine::available() {
            self.line(&format!("fletcher4 {engine:?}, {place}"), RECORD, |i| {
                black_box(engine.sums(&from[range(i)], false));
            });
        }
        for (name, parities) in [("P", 1), ("P+Q", 2), ("P+Q+R", 3)] {
            let mut out = vec![vec![0u8; RECORD / 8]; parities];
            for engine in parity::Engine::available() {
                self.line(&format!("{name} of 8 {engine:?}, {place}"), RECORD, |i| {
                    let columns: [&[u8]; 8] = std::array::from_fn(|c| {
                        &from[range(i)][c * RECORD / 8..(c + 1) * RECORD / 8]
                    });
                    let mut out = out.iter_mut();
                    let mut rows = [(); 3].map(|()| out.next().map_or(&mut [][..], |o| o));
                    engine.generate(&columns, &mut rows[..parities]);
                });
            }
        }
    }

    fn reconstruction(&self) {
        let mut bytes = noise(RECORD / 8 * 11);
        for (name, lost) in
            [("1", &[4][..]), ("2", &[4, 9]), ("2 by Q and R", &[0, 4, 9]), ("3", &[4, 7, 9])]
        {
            for engine in parity::Engine::available() {
                self.line(&format!("{name} of 8 back {engine:?}"), RECORD, |_| {
                    let mut columns: Vec<Column<'_>> = bytes
                        .chunks_mut(RECORD / 8)
                        .enumerate()
                        .map(|(at, column)| match (at, lost.contains(&at)) {
                            (0..3, true) => Column::Unused,
                            (_, true) => Column::Lost(column),
                            (_, false) => Column::Good(column),
                        })
                        .collect();
                    engine.reconstruct(3, &mut columns).unwrap();
                });
            }
        }
    }

    fn small_blocks(&self) {
        let from = noise(RECORD);
        for size in [512, 4096, 32 << 10] {
            let column = size / 8;
            let mut rows = vec![vec![0u8; column]; 2];
            for engine in parity::Engine::available() {
                self.line(&format!("P+Q of 8 {engine:?}, {size} bytes"), size, |_| {
                    let columns: [&[u8]; 8] =
                        std::array::from_fn(|c| &from[c * column..(c + 1) * column]);
                    let [p, q] = &mut rows[..] else { unreachable!() };
                    engine.generate(&columns, &mut [p, q]);
                });
            }
        }
    }

    fn checksums(&self) {
        let data = noise(RECORD);
        for kind in [
            Checksum::Fletcher2,
            Checksum::Fletcher4,
            Checksum::Sha256,
            Checksum::Sha512,
            Checksum::Skein,
            Checksum::Edonr,
        ] {
            for size in [512, 4096, RECORD] {
                self.line(&format!("{kind:?}, {size} bytes"), size, |_| {
                    black_box(compute(kind, black_box(&data[..size]), false, &[1; 32])).unwrap();
                });
            }
        }
    }

    fn compression(&self) {
        // Half a record of noise in small pieces between repeats: compresses to about a half.
        let noise = noise(RECORD);
        let mut record = Vec::with_capacity(RECORD);
        for piece in noise.chunks(64) {
            record.extend_from_slice(piece);
            record.extend_from_slice(&noise[..64]);
        }
        record.truncate(RECORD);
        for (kind, level) in [
            (Compress::Lz4, ZSTD_LEVEL_DEFAULT),
            (Compress::Lzjb, ZSTD_LEVEL_DEFAULT),
            (Compress::Zle, ZSTD_LEVEL_DEFAULT),
            (Compress::Gzip(1), ZSTD_LEVEL_DEFAULT),
            (Compress::Gzip(6), ZSTD_LEVEL_DEFAULT),
            (Compress::Zstd, ZstdLevel(107)),
            (Compress::Zstd, ZSTD_LEVEL_DEFAULT),
        ] {
            let mut packed = vec![0; RECORD];
            let name = format!("{kind:?} {}", level.0);
            self.line(&format!("{name}, noise"), RECORD, |_| {
                compress(kind, level, black_box(&noise), &mut packed);
            });
            self.line(&format!("{name}, half"), RECORD, |_| {
                compress(kind, level, black_box(&record), &mut packed);
            });
            if let Some(size) = compress(kind, level, &record, &mut packed) {
                let mut back = vec![0; RECORD];
                self.line(&format!("{name}, back, of {size}"), RECORD, |_| {
                    decompress(kind, black_box(&packed[..size]), &mut back).unwrap();
                });
            }
        }
    }
}

fn main() {
    // cargo passes --bench.
    let only = std::env::args().skip(1).find(|arg| !arg.starts_with('-'));
    let bench = Bench { only };
    bench.set("1 MiB set", 1 << 20);
    bench.set("256 MiB set", 256 << 20);
    bench.reconstruction();
    bench.small_blocks();
    bench.checksums();
    bench.compression();
}
