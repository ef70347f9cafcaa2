//! Compression both ways: what goes in comes out, and nothing that comes in does harm.
#![allow(clippy::unwrap_used)]

mod common;

use codec::compress::{
    DecompressError, ZSTD_LEVEL_DEFAULT, ZstdLevel, compress, decompress, is_zero, size_limit,
};
use format::Compress;
use proptest::prelude::*;

use common::noise;

fn kinds() -> Vec<(Compress, ZstdLevel)> {
    let mut kinds = vec![
        (Compress::Lzjb, ZSTD_LEVEL_DEFAULT),
        (Compress::Zle, ZSTD_LEVEL_DEFAULT),
        (Compress::Lz4, ZSTD_LEVEL_DEFAULT),
    ];
    kinds.extend((1..=9).map(|level| (Compress::Gzip(level), ZSTD_LEVEL_DEFAULT)));
    kinds.extend((1..=19).chain(102..=123).map(|level| (Compress::Zstd, ZstdLevel(level))));
    kinds
}

/// Blocks of different nature, all of which every compressor but zle makes smaller.
fn compressible(len: usize) -> Vec<Vec<u8>> {
    let words = [&b"uberblock "[..], b"vdev ", b"dnode ", b"txg ", b"zap ", b"raidz ", b"zil "];
    let mut text = Vec::new();
    for pick in noise(5, len) {
        text.extend_from_slice(words[usize::from(pick) % words.len()]);
    }
    text.truncate(len);
    let mut halves = noise(3, len);
    halves[len / 3..].fill(0);
    let mut repeats = noise(9, 300);
    while repeats.len() < len {
        repeats.extend_from_within(..repeats.len().min(len - repeats.len()));
    }
    vec![vec![0; len], vec![0xff; len], text, halves, repeats]
}

#[test]
fn what_goes_in_comes_out() {
    let mut stored = 0;
    for (kind, level) in kinds() {
        for len in [512, 1536, 4096, 16384, 131_072] {
            for block in compressible(len) {
                let mut packed = vec![0xaa; len];
                let Some(size) = compress(kind, level, &block, &mut packed) else {
                    let weak = kind == Compress::Zle || kind == Compress::Zstd && level.0 > 102;
                    assert!(weak, "{kind:?} {level:?} {len}");
                    continue;
                };
                stored += 1;
                assert!(size <= size_limit(len));
                // As stored: padded with zeros to a whole number of sectors.
                packed[size..].fill(0);
                let sectors = &packed[..size.next_multiple_of(512)];
                let mut back = vec![0x55; len];
                decompress(kind, sectors, &mut back).unwrap();
                assert!(back == block, "{kind:?} {level:?} {len}");
                // The exact bytes suffice: an embedded block pointer has no padding.
                decompress(kind, &packed[..size], &mut back).unwrap();
                assert!(back == block);
            }
        }
    }
    assert!(stored > 1000);
}

#[test]
fn incompressible_blocks_are_left_alone() {
    for (kind, level) in kinds() {
        for len in [512, 4096, 131_072] {
            let mut packed = vec![0; len];
            assert_eq!(compress(kind, level, &noise(1, len), &mut packed), None, "{kind:?} {len}");
        }
    }
    for kind in [Compress::Off, Compress::On, Compress::Inherit, Compress::Empty] {
        assert_eq!(compress(kind, ZSTD_LEVEL_DEFAULT, &[0; 4096], &mut [0; 4096]), None);
    }
    let unknown = ZstdLevel(20);
    assert_eq!(compress(Compress::Zstd, unknown, &[0; 4096], &mut [0; 4096]), None);
}

#[test]
fn an_eighth_must_be_saved() {
    // zle of n incompressible bytes and zeros has a size that is known to the byte.
    let len = 4096;
    let mut packed = vec![0; len];
    for literals in 3500..3600 {
        let mut block = vec![7u8; literals];
        block.resize(len, 0);
        let zeros = len - literals;
        let size = literals + literals.div_ceil(64) + zeros.div_ceil(192);
        let got = compress(Compress::Zle, ZSTD_LEVEL_DEFAULT, &block, &mut packed);
        assert_eq!(got, (size <= len - len / 8).then_some(size), "{literals}");
    }
}

#[test]
fn no_compressor_writes_beyond_its_limit() {
    for (kind, level) in kinds() {
        for block in compressible(4096) {
            let mut packed = vec![0xaa; 4096];
            compress(kind, level, &block, &mut packed);
            assert!(packed[size_limit(4096)..].iter().all(|b| *b == 0xaa), "{kind:?}");
            let mut full = vec![0; 4096];
            let Some(size) = compress(kind, level, &block, &mut full) else { continue };
            for room in [0, 1, 4, 7, 8, size - 1] {
                assert_eq!(compress(kind, level, &block, &mut full[..room]), None, "{kind:?}");
            }
            // (The zstd library wants some room to spare.)
            let exact = compress(kind, level, &block, &mut full[..size]);
            assert!(exact == Some(size) || kind == Compress::Zstd, "{kind:?}");
        }
    }
}

#[test]
fn heads_are_laid_out_as_on_disk() {
    let block = &compressible(131_072)[2];
    let mut packed = vec![0; block.len()];
    let size = compress(Compress::Lz4, ZSTD_LEVEL_DEFAULT, block, &mut packed).unwrap();
    assert_eq!(packed[..4], (size as u32 - 4).to_be_bytes());
    for (level, byte) in [
        (ZSTD_LEVEL_DEFAULT, 3),
        (ZstdLevel(0), 3),
        (ZstdLevel::of_number(19).unwrap(), 19),
        (ZstdLevel::of_fast(5).unwrap(), 107),
        (ZstdLevel::of_fast(1000).unwrap(), 123),
    ] {
        let size = compress(Compress::Zstd, level, block, &mut packed).unwrap();
        assert_eq!(packed[..4], (size as u32 - 8).to_be_bytes());
        assert_eq!(packed[4..8], [byte, 0x00, 0x28, 0xa5]);
        // The frame's descriptor: no content size, not a single segment, no checksum.
        assert_eq!(packed[8] & 0b1110_0100, 0);
    }
    let size = compress(Compress::Gzip(6), ZSTD_LEVEL_DEFAULT, block, &mut packed).unwrap();
    assert!(size > 2);
    assert_eq!(packed[0], 0x78);
    assert_eq!(u16::from_be_bytes([packed[0], packed[1]]) % 31, 0);
}

#[test]
fn zstd_levels_have_the_numbers_of_the_property() {
    let fast = |n| ZstdLevel::of_fast(n).map(|level| (level.0, level.library_level().unwrap()));
    for n in 1..=10 {
        assert_eq!(fast(n), Some((102 + n as u8, -(n as i32))));
    }
    let expected =
        [(20, 113), (30, 114), (40, 115), (90, 120), (100, 121), (500, 122), (1000, 123)];
    for (n, byte) in expected {
        assert_eq!(fast(n), Some((byte, -(n as i32))));
    }
    assert_eq!(fast(11), None);
    assert_eq!(fast(110), None);
    assert_eq!(ZstdLevel::of_number(0), None);
    assert_eq!(ZstdLevel::of_number(20), None);
    assert_eq!(ZstdLevel(102).library_level(), Some(-1));
    assert_eq!(ZstdLevel(101).library_level(), None);
    assert_eq!(ZstdLevel(124).library_level(), None);
}

#[test]
fn a_block_of_another_size_is_refused() {
    for (kind, level) in kinds() {
        let block = &compressible(4096)[2];
        let block = if kind == Compress::Zle { &vec![0; 4096] } else { block };
        let mut packed = vec![0; 4096];
        let Some(size) = compress(kind, level, block, &mut packed) else {
            assert!(level.0 > 102, "{kind:?} {level:?}");
            continue;
        };
        // zle and lzjb stop when the block is full: they only notice what is missing.
        let notices_more = !matches!(kind, Compress::Zle | Compress::Lzjb);
        if notices_more {
            assert!(decompress(kind, &packed[..size], &mut [0; 4095]).is_err(), "{kind:?}");
        }
        assert!(decompress(kind, &packed[..size], &mut [0; 4097]).is_err(), "{kind:?}");
        for cut in 0..size {
            assert!(decompress(kind, &packed[..cut], &mut [0; 4096]).is_err(), "{kind:?} {cut}");
        }
    }
}

#[test]
fn off_is_a_copy_of_the_logical_size() {
    let block = noise(4, 1024);
    let mut back = vec![0; 512];
    decompress(Compress::Off, &block, &mut back).unwrap();
    assert_eq!(back, block[..512]);
    assert!(matches!(
        decompress(Compress::Off, &block, &mut [0; 1025]),
        Err(DecompressError::Truncated { have: 1024, expected: 1025, .. })
    ));
    for kind in [Compress::On, Compress::Inherit, Compress::Empty] {
        let error = decompress(kind, &block, &mut back).unwrap_err();
        assert_eq!(error, DecompressError::NotOfBlocks(kind));
    }
}

#[test]
fn lengths_beyond_the_block_are_named() {
    for (kind, head) in [(Compress::Lz4, 4), (Compress::Zstd, 8)] {
        let mut block = vec![0; 512];
        block[..4].copy_from_slice(&u32::MAX.to_be_bytes());
        let expected =
            DecompressError::Length { kind, says: u64::from(u32::MAX), have: 512 - head };
        assert_eq!(decompress(kind, &block, &mut [0; 4096]), Err(expected));
        for short in 0..4 {
            assert!(decompress(kind, &block[..short], &mut [0; 4096]).is_err());
        }
    }
}

#[test]
fn lzjb_matches_may_overlap_and_run_over_the_end() {
    // "ab", then 10 bytes at distance 2 of which the block takes 7, by the format's definition.
    let packed = [0b100, b'a', b'b', (10 - 3) << 2, 2];
    let mut block = [0; 9];
    decompress(Compress::Lzjb, &packed, &mut block).unwrap();
    assert_eq!(&block, b"ababababa");
    for distance in [0, 3] {
        let packed = [0b100, b'a', b'b', 0, distance];
        assert!(matches!(
            decompress(Compress::Lzjb, &packed, &mut block),
            Err(DecompressError::Corrupt { at: 2, .. })
        ));
    }
}

#[test]
fn zero_blocks_are_seen_to_the_last_byte() {
    for len in [0, 1, 255, 256, 257, 4096] {
        let mut block = vec![0; len];
        assert!(is_zero(&block));
        for at in 0..len {
            block[at] = 1;
            assert!(!is_zero(&block), "{at} of {len}");
            block[at] = 0;
        }
    }
}

/// Decompresses into the middle of a buffer and checks that the rest is untouched.
fn decompress_guarded(kind: Compress, packed: &[u8], lsize: usize) {
    let mut guarded = vec![0xc3; lsize + 128];
    let result = decompress(kind, packed, &mut guarded[64..64 + lsize]);
    assert!(guarded[..64].iter().chain(&guarded[64 + lsize..]).all(|byte| *byte == 0xc3));
    drop(result);
}

const STORED: [Compress; 5] =
    [Compress::Lz4, Compress::Lzjb, Compress::Zle, Compress::Gzip(6), Compress::Zstd];

proptest! {
    #![proptest_config(ProptestConfig { cases: 2000, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn random_bytes_do_no_harm(
        packed in proptest::collection::vec(any::<u8>(), 0..600),
        lsize in 0usize..5000,
        head in any::<bool>(),
    ) {
        for kind in STORED {
            let mut packed = packed.clone();
            if let (true, Some(length)) = (head, packed.len().checked_sub(8)) {
                packed[..4].copy_from_slice(&(length as u32).to_be_bytes());
            }
            decompress_guarded(kind, &packed, lsize);
        }
    }

    #[test]
    fn damaged_blocks_do_no_harm(
        seed in any::<u64>(),
        which in 0usize..5,
        flips in proptest::collection::vec((any::<prop::sample::Index>(), any::<u8>()), 1..8),
        cut in any::<prop::sample::Index>(),
        lsize in prop_oneof![Just(4096usize), 0usize..20_000],
    ) {
        let mut block = compressible(4096).swap_remove(which);
        block[..64].copy_from_slice(&noise(seed, 64));
        for kind in STORED {
            let mut packed = vec![0; 4096];
            let Some(size) = compress(kind, ZSTD_LEVEL_DEFAULT, &block, &mut packed) else { continue };
            packed.truncate(size);
            for (at, value) in &flips {
                packed[at.index(size)] ^= value;
            }
            decompress_guarded(kind, &packed, lsize);
            packed.truncate(cut.index(size));
            decompress_guarded(kind, &packed, lsize);
        }
    }

    #[test]
    fn any_block_comes_back(
        pieces in proptest::collection::vec((any::<u8>(), 1usize..300, any::<bool>()), 1..40),
    ) {
        let mut block = Vec::new();
        for (byte, len, random) in pieces {
            if random { block.extend(noise(u64::from(byte), len)) } else { block.resize(block.len() + len, byte) }
        }
        for kind in STORED {
            let mut packed = vec![0; block.len()];
            if let Some(size) = compress(kind, ZSTD_LEVEL_DEFAULT, &block, &mut packed) {
                let mut back = vec![1; block.len()];
                decompress(kind, &packed[..size], &mut back).unwrap();
                prop_assert!(back == block, "{:?}", kind);
            }
        }
    }
}
