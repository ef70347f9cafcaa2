//! Scrub and resilver: damage within redundancy is mended by one of them, so that afterwards as many disks may go as
//! ever; what is beyond it is counted, and nothing made up; and whatever happens meanwhile, no block is left out.
//!
//! Seen red: a scrub that does not compare parity, and a position that does not follow what becomes of data sets.

#![allow(clippy::unwrap_used)]

mod going;
mod kills;
mod mending;
mod resilver;
mod served;

use std::fs::OpenOptions;
use std::os::unix::fs::FileExt;
use std::path::Path;

use acceptance::{SHAPES, Session, Shape, engine};
use format::scan::ScanFunction;
use pool::{Pool, ScanAnswer, ScanStatus, ScanStep};
use testkit::data::Look;
use testkit::truth::Entry;
use testkit::workload::{Op, Workload};

const POOL: &str = engine::POOL;
/// Where the allocatable space of a leaf begins, and what stands behind it.
const START: u64 = 4 << 20;
const END: u64 = 512 << 10;

fn shape(name: &str) -> &'static Shape {
    SHAPES.iter().find(|shape| shape.name.starts_with(name)).unwrap()
}

fn load(seed: u64, prefix: &str, files: u64) -> Vec<Op> {
    let mut load = Workload::new(seed);
    for i in 0..files {
        load.file(format!("{prefix}{i}").as_bytes(), Look::Noise, 40_000 * (1 + i % 9));
        if i % 20 == 19 {
            load.push(Op::Sync);
        }
    }
    load.ops
}

/// Noise on a disk where blocks lie, but not on its labels: all of it, or pieces of 16 KiB here and there.
fn hurt(disk: &Path, seed: u64, all: bool) {
    let file = OpenOptions::new().write(true).open(disk).unwrap();
    let size = file.metadata().unwrap().len();
    let noise: Vec<u8> = (0..1u64 << 20)
        .map(|at| ((at + seed).wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 56) as u8)
        .collect();
    let mut at = START;
    let mut random = seed;
    while at < size - END - (1 << 20) {
        random = random.wrapping_mul(0x5851_f42d_4c95_7f2d).wrapping_add(1_442_695_040_888_963_407);
        if all {
            file.write_all_at(&noise, at).unwrap();
            at += 1 << 20;
        } else {
            file.write_all_at(&noise[..16 << 10], at).unwrap();
            at += (16 << 10) + (((random >> 40) % (256 << 10)) & !4095);
        }
    }
}

/// A scrub to its end.
fn scrub(pool: &Pool) -> ScanStatus {
    assert_eq!(pool.scan_start(ScanFunction::Scrub).unwrap(), ScanAnswer::Done);
    finish(pool)
}

fn finish(pool: &Pool) -> ScanStatus {
    assert_eq!(pool.scan_run(&mut |_| true).unwrap(), ScanStep::Done);
    let status = pool.scan_status().unwrap().unwrap();
    assert!(!status.is_running(), "{status:?}");
    status
}

fn files(session: &Session) -> Vec<Entry> {
    engine::list(session.filesystem()).unwrap()
}
