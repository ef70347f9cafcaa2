//! Blocks that the OpenZFS kernel module wrote: the same sums, the same contents, the same parity.
#![allow(clippy::unwrap_used)]

use std::path::PathBuf;

use codec::checksum::{self, Words, compute};
use codec::compress::decompress;
use codec::embedded::{self, EmbeddedError, Place};
use codec::parity::{Column, Engine};
use format::{Checksum, Compress};

fn data(name: &str) -> Vec<u8> {
    let path: PathBuf = [env!("CARGO_MANIFEST_DIR"), "tests/data", name].iter().collect();
    std::fs::read(&path).unwrap_or_else(|error| panic!("{}: {error}", path.display()))
}

fn salt() -> [u8; 32] {
    let hex = "1490ecdaf034a814fb78766f8583116ddb6c0580152de329dcaec0aee1b20e86";
    std::array::from_fn(|i| u8::from_str_radix(&hex[i * 2..i * 2 + 2], 16).unwrap())
}

fn checksum_named(name: &str) -> Checksum {
    match name {
        "off" => Checksum::Off,
        "noparity" => Checksum::Noparity,
        "fletcher2" => Checksum::Fletcher2,
        "fletcher4" => Checksum::Fletcher4,
        "sha256" => Checksum::Sha256,
        "sha512" => Checksum::Sha512,
        "skein" => Checksum::Skein,
        "edonr" => Checksum::Edonr,
        other => panic!("checksum {other}"),
    }
}

fn compress_named(name: &str) -> Compress {
    match name {
        "off" => Compress::Off,
        "lzjb" => Compress::Lzjb,
        "zle" => Compress::Zle,
        "lz4" => Compress::Lz4,
        "zstd" => Compress::Zstd,
        gzip => Compress::Gzip(gzip.strip_prefix("gzip-").unwrap().parse().unwrap()),
    }
}

#[test]
fn stored_blocks_have_their_sums_and_contents() {
    let list = String::from_utf8(data("blocks.txt")).unwrap();
    let mut seen = std::collections::BTreeSet::new();
    for line in list.lines().filter(|line| !line.starts_with('#')) {
        let fields: Vec<&str> = line.split(' ').collect();
        let &[name, checksum, compression, lsize, words, size, sha256] = fields.as_slice() else {
            panic!("{line}")
        };
        let stored = data(name);
        let kind = checksum_named(checksum);
        let words: Vec<u64> =
            words.split(',').map(|word| u64::from_str_radix(word, 16).unwrap()).collect();
        let words: Words = words.try_into().unwrap();
        assert_eq!(compute(kind, &stored, false, &salt()).unwrap(), words, "{name}");

        if compression == "zstd" {
            // The kernel's frames have no content size and no checksum; so do ours.
            assert_eq!(stored[8] & 0b1110_0100, 0, "{name}");
        }
        let mut block = vec![0xee; lsize.parse().unwrap()];
        decompress(compress_named(compression), &stored, &mut block)
            .unwrap_or_else(|error| panic!("{name}: {error}"));
        if sha256 == "-" {
            // An object set: begins with the dnode of its dnodes.
            assert_eq!(block[0], format::ObjectType::DNODE.0, "{name}");
        } else {
            let content = &block[..size.parse().unwrap()];
            let digest = compute(Checksum::Sha256, content, false, &salt()).unwrap();
            assert_eq!(digest.map(|word| format!("{word:016x}")).concat(), sha256, "{name}");
        }
        seen.insert(checksum.to_owned());
        seen.insert(compression.to_owned());
    }
    for kind in [
        "fletcher2",
        "fletcher4",
        "sha256",
        "sha512",
        "skein",
        "edonr",
        "noparity",
        "off",
        "lz4",
        "lzjb",
        "zle",
        "gzip-1",
        "gzip-6",
        "gzip-9",
        "zstd",
    ] {
        assert!(seen.contains(kind), "no block with {kind}");
    }
}

#[test]
fn a_damaged_stored_block_is_noticed() {
    for (name, kind) in [("k_skein-rand", Checksum::Skein), ("k_edonr-rand", Checksum::Edonr)] {
        let mut stored = data(name);
        let words = compute(kind, &stored, false, &salt()).unwrap();
        stored[1234] ^= 1;
        assert!(!checksum::verify(kind, &stored, false, &salt(), &words).unwrap());
        stored[1234] ^= 1;
        assert!(!checksum::verify(kind, &stored, false, &[0; 32], &words).unwrap());
        assert!(checksum::verify(kind, &stored, false, &salt(), &words).unwrap());
    }
}

/// The block checks in its place, not next to it, and sealing it anew gives the same bytes.
fn check_embedded(block: &[u8], place: Place, elsewhere: Place) {
    assert_eq!(embedded::check(place, block), Ok(false));
    let mismatch = embedded::check(elsewhere, block);
    assert!(matches!(mismatch, Err(EmbeddedError::Mismatch { .. })), "{mismatch:?}");
    let mut sealed = block.to_vec();
    let at = match place {
        Place::Zilog2 { .. } => 144,
        _ => block.len() - 40,
    };
    sealed[at..at + 40].fill(0xee);
    embedded::seal(place, &mut sealed).unwrap();
    assert!(sealed == block, "{place:?}");
}

#[test]
fn stored_labels_and_uberblocks_check() {
    let place = |offset| Place::Label { offset };
    // As label 0 of the same disk would have it.
    check_embedded(&data("uberblock"), place(0x5fafc00), place(0x2fc00));
    let kept = data("label");
    let (start, end) = kept.split_at(kept.len() - 40);
    let mut label = start.to_vec();
    label.resize(114_688 - 40, 0);
    label.extend_from_slice(end);
    check_embedded(&label, place(0x5f84000), place(0x4000));
}

#[test]
fn a_stored_gang_header_checks() {
    let place = |txg| Place::GangHeader { vdev: 0, offset: 0x71800, txg };
    check_embedded(&data("gang"), place(9), place(10));
}

#[test]
fn stored_log_blocks_check() {
    let pointer = [0xf309ed296e46960a, 0x0bc7250d832d76d3, 0x8b, 4];
    let next = [0xf309ed296e46960a, 0x0bc7250d832d76d3, 0x8b, 5];
    check_embedded(&data("zilog2"), Place::Zilog2 { pointer }, Place::Zilog2 { pointer: next });
    let pointer = [0x8a1203527427238d, 0x83177d2f40827a03, 0x8a, 2];
    let next = [0x8a1203527427238d, 0x83177d2f40827a03, 0x8a, 3];
    check_embedded(&data("zilog"), Place::Zilog { pointer }, Place::Zilog { pointer: next });
}

#[test]
fn stored_parity_is_ours_and_gives_the_data_back() {
    let bytes = data("raidz3");
    let columns: Vec<&[u8]> = bytes.chunks(1024).collect();
    assert_eq!(
        columns.iter().map(|c| c.len()).collect::<Vec<_>>(),
        [1024, 1024, 1024, 1024, 1024, 512]
    );
    for engine in Engine::available() {
        let mut parity = vec![vec![0; 1024]; 3];
        let mut rows: Vec<&mut [u8]> = parity.iter_mut().map(Vec::as_mut_slice).collect();
        engine.generate(&columns[3..], &mut rows);
        assert_eq!(parity, columns[..3]);
        for lost in (0u32..64).filter(|lost| lost.count_ones() == 3) {
            let mut work: Vec<Vec<u8>> = columns.iter().map(|c| c.to_vec()).collect();
            let mut all: Vec<Column<'_>> = work
                .iter_mut()
                .enumerate()
                .map(|(at, column)| match lost >> at & 1 {
                    1 => {
                        column.fill(0);
                        Column::Lost(column)
                    }
                    _ => Column::Good(column),
                })
                .collect();
            engine.reconstruct(3, &mut all).unwrap();
            assert_eq!(work, columns, "{engine:?} {lost:b}");
        }
    }
}
