//! Layouts, record sizes, compression and checksums in combination, each with thousands of files under snapshots,
//! clones, renames and destroys, judged from outside.
//!
//! The one idea: every value of one column meets every value of each other column at least once; 24 pools
//! are enough for that, since six layouts meet four ways to compress.

#![allow(clippy::unwrap_used)]

use std::collections::BTreeSet;

use acceptance::forest::Forest;
use acceptance::{SHAPES, Session, Shape, assert_verified, engine, judge_without};
use testkit::rounds;

const RECORDS: [&str; 3] = ["128K", "1M", "4K"];
/// With levels of all kinds, which are one way as far as the table of pairs goes.
const COMPRESSIONS: [&[&str]; 4] = [
    &["off"],
    &["lz4"],
    &["gzip", "gzip-1", "gzip-9"],
    &["zstd", "zstd-1", "zstd-9", "zstd-fast", "zstd-fast-100"],
];
const CHECKSUMS: [&str; 3] = ["fletcher4", "sha256", "skein"];

/// A pool of the set, as places in the four columns.
type Row = [usize; 4];

/// All pools of the set.
fn rows() -> Vec<Row> {
    let all = (0..SHAPES.len()).flat_map(|shape| (0..COMPRESSIONS.len()).map(move |c| (shape, c)));
    // With both of them the other two columns go through all that they have, out of step.
    all.map(|(shape, c)| [shape, (shape + c) % 3, c, (shape + 2 * c + shape / 3) % 3]).collect()
}

#[test]
fn every_two_values_meet() {
    let rows = rows();
    assert_eq!(rows.len(), 24);
    let sizes = [SHAPES.len(), RECORDS.len(), COMPRESSIONS.len(), CHECKSUMS.len()];
    for (a, b) in [(0, 1), (0, 2), (0, 3), (1, 2), (1, 3), (2, 3)] {
        let met: BTreeSet<_> = rows.iter().map(|row| (row[a], row[b])).collect();
        assert_eq!(met.len(), sizes[a] * sizes[b], "columns {a} and {b}: {met:?}");
    }
}

/// The pool of a row, with so many files and steps besides.
fn pool_of(number: usize, row: Row, files: u64, steps: u64) {
    let shape = Shape { disk_bytes: 2 * SHAPES[row[0]].disk_bytes, ..SHAPES[row[0]] };
    let ways = COMPRESSIONS[row[2]];
    let compression = ways[number % ways.len()];
    let (record, checksum) = (RECORDS[row[1]], CHECKSUMS[row[3]]);
    say(&format!(
        "pool {number}: {}, {record}, {compression}, {checksum}; {files} files",
        shape.name
    ));
    let props = [("recordsize", record), ("compression", compression), ("checksum", checksum)];
    let (images, mut session) = Session::create_of(&shape, &props, true);
    let seed = 1000 + number as u64;
    let mut forest = Forest::plant(session.pool(), seed);
    forest.fill(session.pool(), files);
    for _ in 0..steps {
        forest.step(session.pool());
    }
    for kind in ["snapshot", "clone", "rename", "destroy snapshot", "destroy", "promote"] {
        while !forest.done.contains_key(kind) {
            forest.step(session.pool());
        }
    }
    forest.let_go();
    session.close().unwrap();
    judge_without(&images, engine::POOL, &shape.hidden(seed));
    let blocks = assert_verified(images.path(), engine::POOL);
    assert!(blocks > files / 2, "{blocks} blocks");
    let session = Session::open(images.path(), engine::POOL, engine::POOL).unwrap();
    forest.check(session.pool());
}

/// Prints, even of a test that passes: a failure is repeated by its number.
fn say(line: &str) {
    use std::io::Write as _;
    drop(writeln!(std::io::stderr(), "matrix: {line}"));
}

/// The pools of the set with 5,000 files each, and one with 20,000; in the short round three of them with fewer.
/// `THUMPER_ONLY` repeats one.
#[test]
fn all_pairs_carry_files_under_snapshots_and_clones() {
    let long = rounds(0, 1) == 1;
    let only = std::env::var("THUMPER_ONLY").ok().map(|n| n.parse::<usize>().unwrap());
    // One, raidz2 of 11 with zstd, is there twice, in the end with many more files.
    let rows = rows();
    let last = rows.len();
    for (number, row) in rows.iter().chain([&rows[15]]).enumerate() {
        let wanted = only.map_or(long || [6, 11, 20].contains(&number), |only| only == number);
        let files = if number == last { rounds(600, 20_000) } else { rounds(600, 5_000) };
        if wanted {
            pool_of(number, *row, files, rounds(120, 300));
        }
    }
}
