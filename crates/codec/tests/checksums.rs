//! Checksums against published vectors, and every engine against the definition.
#![allow(clippy::unwrap_used)]

use codec::checksum::edonr::EdonR512;
use codec::checksum::fletcher::{self, Engine};
use codec::checksum::skein::Skein512;
use codec::checksum::{ChecksumError, Hasher, compute, compute_pieces, verify};
use codec::embedded::{self, EmbeddedError, Place};
use format::Checksum;

const SALT: [u8; 32] = *b"0123456789abcdefghijklmnopqrstuv";
const KINDS: [Checksum; 8] = [
    Checksum::Off,
    Checksum::Noparity,
    Checksum::Fletcher2,
    Checksum::Fletcher4,
    Checksum::Sha256,
    Checksum::Sha512,
    Checksum::Skein,
    Checksum::Edonr,
];

fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|b| format!("{b:02x}")).collect()
}

/// Bytes without a pattern that a sum could miss.
fn noise(len: usize) -> Vec<u8> {
    let mut x = 0x9e37_79b9_7f4a_7c15u64 ^ len as u64;
    (0..len)
        .map(|_| {
            x = x.wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407);
            (x >> 56) as u8
        })
        .collect()
}

fn words_as_bytes(words: [u64; 4]) -> Vec<u8> {
    words.iter().flat_map(|w| w.to_le_bytes()).collect()
}

/// The definition, as the fact sheet gives it.
fn fletcher4_defined(data: &[u8], big_endian: bool) -> [u64; 4] {
    let mut s = [0u64; 4];
    for w in data.chunks_exact(4) {
        let w = w.try_into().unwrap();
        let w = if big_endian { u32::from_be_bytes(w) } else { u32::from_le_bytes(w) };
        s[0] = s[0].wrapping_add(u64::from(w));
        for k in 1..4 {
            s[k] = s[k].wrapping_add(s[k - 1]);
        }
    }
    s
}

#[test]
fn fletcher4_engines_agree_on_every_length() {
    let data = noise(70_000);
    let lengths = (0..2100).chain((2100..70_000).step_by(509 * 4));
    for len in lengths.map(|l| l / 4 * 4) {
        for start in [0, 1, 3] {
            let data = &data[start..][..len.min(data.len() - start) / 4 * 4];
            for swapped in [false, true] {
                let expected = fletcher4_defined(data, swapped);
                for engine in Engine::available() {
                    assert_eq!(engine.sums(data, swapped), expected, "{engine:?} {len} {swapped}");
                }
            }
        }
    }
}

#[test]
fn fletcher4_of_the_largest_words_wraps_alike() {
    let data = vec![0xff; 16 << 20];
    let expected = fletcher4_defined(&data, false);
    for engine in Engine::available() {
        assert_eq!(engine.sums(&data, false), expected, "{engine:?}");
    }
}

#[test]
fn fletcher4_of_two_runs_is_that_of_both() {
    let data = noise(4096);
    for cut in (0..=4096).step_by(4) {
        let (a, b) = data.split_at(cut);
        let joined =
            fletcher::append(fletcher::fletcher4(a), fletcher::fletcher4(b), b.len() as u64 / 4);
        assert_eq!(joined, fletcher4_defined(&data, false), "{cut}");
    }
}

#[test]
fn fletcher2_is_the_definition() {
    let data = noise(4096);
    for big_endian in [false, true] {
        let mut s = [0u64; 4];
        for pair in data.chunks_exact(16) {
            for k in 0..2 {
                let w = pair[k * 8..k * 8 + 8].try_into().unwrap();
                let w = if big_endian { u64::from_be_bytes(w) } else { u64::from_le_bytes(w) };
                s[k] = s[k].wrapping_add(w);
                s[k + 2] = s[k + 2].wrapping_add(s[k]);
            }
        }
        assert_eq!(compute(Checksum::Fletcher2, &data, big_endian, &SALT).unwrap(), s);
    }
}

#[test]
fn pieces_give_what_the_whole_gives() {
    let data = noise(3 * 512);
    for kind in KINDS {
        for big_endian in [false, true] {
            let whole = compute(kind, &data, big_endian, &SALT).unwrap();
            for cut in 0..=data.len() {
                let (a, b) = data.split_at(cut);
                let got = compute_pieces(kind, &[a, b], big_endian, &SALT).unwrap();
                assert_eq!(got, whole, "{kind:?} cut at {cut}");
            }
            for size in [1, 3, 5, 15, 17, 63, 65, 127, 129] {
                let mut hasher = Hasher::new(kind, big_endian, &SALT).unwrap();
                data.chunks(size).for_each(|piece| hasher.update(piece));
                assert_eq!(hasher.finish().unwrap(), whole, "{kind:?} in pieces of {size}");
            }
        }
    }
}

#[test]
fn sha_words_are_laid_out_as_on_disk() {
    // FIPS 180-4, "abc".
    let sha256 = "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad";
    let words = compute(Checksum::Sha256, b"abc", false, &SALT).unwrap();
    assert_eq!(words.iter().map(|w| format!("{w:016x}")).collect::<String>(), sha256);
    assert_eq!(compute(Checksum::Sha256, b"abc", true, &SALT).unwrap(), words);
    let sha512_256 = "53048e2681941ef99b2e29b76b4c7dabe4c2d0c634fc6d46e0e2f13107e7af23";
    let words = compute(Checksum::Sha512, b"abc", false, &SALT).unwrap();
    assert_eq!(hex(&words_as_bytes(words)), sha512_256);
    let swapped = compute(Checksum::Sha512, b"abc", true, &SALT).unwrap();
    assert_eq!(swapped.map(u64::swap_bytes), words);
}

#[test]
fn skein_gives_the_published_vectors() {
    // "The Skein Hash Function Family" 1.3, appendix C: Skein-512-512 of FF, and of FF FE .. C0,
    // and of FF FE .. 80. The empty message with 256 bits: Skein's reference vectors.
    let of = |message: &[u8], output: usize| {
        let mut state = Skein512::keyed(&[], output);
        state.update(message);
        hex(&state.finish()[..output])
    };
    assert_eq!(
        of(&[0xff], 64),
        "71b7bce6fe6452227b9ced6014249e5bf9a9754c3ad618ccc4e0aae16b316cc8\
         ca698d864307ed3e80b6ef1570812ac5272dc409b5a012df2a579102f340617a"
    );
    let down: Vec<u8> = (0x80..=0xff).rev().collect();
    assert_eq!(
        of(&down[..64], 64),
        "45863ba3be0c4dfc27e75d358496f4ac9a736a505d9313b42b2f5eada79fc17f\
         63861e947afb1d056aa199575ad3f8c9a3cc1780b5e5fa4cae050e989876625b"
    );
    assert_eq!(
        of(&down, 64),
        "91cca510c263c4ddd010530a33073309628631f308747e1bcbaa90e451cab92e\
         5188087af4188773a332303e6667a7a210856f742139000071f48e8ba2a5adb7"
    );
    assert_eq!(of(b"", 32), "39ccc4554a8b31853b9de7a1fe638a24cce6b35a55f2431009e18780335d2621");
}

#[test]
fn edonr_gives_the_known_vectors() {
    // The two messages of FIPS 180's examples, in the tweaked form.
    let of = |message: &[u8]| {
        let mut state = EdonR512::new();
        state.update(message);
        hex(&state.finish())
    };
    assert_eq!(
        of(b"abc"),
        "1b14db155f1d406594b8cef70a4362ec6b5de6a5daf50ec999e987c19d3049e2\
         de5977bb05b1bb220050a1ea5b46a9f1740acafbf6b45032adc90c628372c22b"
    );
    assert_eq!(
        of(b"abcdefghbcdefghicdefghijdefghijkefghijklfghijklmghijklmn\
             hijklmnoijklmnopjklmnopqklmnopqrlmnopqrsmnopqrstnopqrstu"),
        "5351070dc51c3b2baca5a60d0252ccb4e4921a96fe5a69e76dad48fd21a0845a\
         d57f880b3e4a907bc503151842bb949e1cba7439a6409a34b8436cb46921583c"
    );
}

#[test]
fn salt_changes_the_salted_ones_only() {
    let data = noise(4096);
    for kind in KINDS {
        let a = compute(kind, &data, false, &SALT).unwrap();
        let b = compute(kind, &data, false, &[7; 32]).unwrap();
        let salted = matches!(kind, Checksum::Skein | Checksum::Edonr);
        assert_eq!(a != b, salted, "{kind:?}");
    }
}

#[test]
fn every_bit_counts() {
    let data = noise(512);
    for kind in KINDS {
        let right = compute(kind, &data, false, &SALT).unwrap();
        let checked = !matches!(kind, Checksum::Off | Checksum::Noparity);
        for bit in 0..data.len() * 8 {
            let mut wrong = data.clone();
            wrong[bit / 8] ^= 1 << (bit % 8);
            assert_eq!(verify(kind, &wrong, false, &SALT, &right).unwrap(), !checked, "{kind:?}");
        }
        assert!(verify(kind, &data, false, &SALT, &right).unwrap());
    }
}

#[test]
fn what_is_no_checksum_of_blocks_is_refused() {
    use Checksum::*;
    for kind in [Inherit, On, Label, GangHeader, Zilog, Zilog2] {
        let error = compute(kind, &[0; 512], false, &SALT).unwrap_err();
        assert_eq!(error, ChecksumError::NotOfBlocks(kind));
    }
    let ragged = compute(Fletcher4, &[0; 7], false, &SALT).unwrap_err();
    assert_eq!(ragged, ChecksumError::Ragged { kind: Fletcher4, size: 7, word: 4 });
    let ragged = compute_pieces(Fletcher2, &[&[0; 16], &[0; 8]], false, &SALT).unwrap_err();
    assert_eq!(ragged, ChecksumError::Ragged { kind: Fletcher2, size: 24, word: 16 });
}

fn log_block(size: usize, used: u64) -> Vec<u8> {
    let mut block = noise(size);
    block[136..144].copy_from_slice(&used.to_le_bytes());
    block
}

const PLACES: [Place; 4] = [
    Place::Label { offset: 0x20000 },
    Place::GangHeader { vdev: 3, offset: 0x123000, txg: 77 },
    Place::Zilog { pointer: [1, 2, 3, 4] },
    Place::Zilog2 { pointer: [5, 6, 7, 8] },
];

#[test]
fn a_sealed_block_checks_in_its_place_only() {
    let elsewhere = [
        Place::Label { offset: 0x60000 },
        Place::GangHeader { vdev: 3, offset: 0x123000, txg: 78 },
        Place::Zilog { pointer: [1, 2, 3, 5] },
        Place::Zilog2 { pointer: [5, 6, 7, 9] },
    ];
    for (place, elsewhere) in PLACES.into_iter().zip(elsewhere) {
        let size = if matches!(place, Place::GangHeader { .. }) { 512 } else { 4096 };
        let mut block = log_block(size, 200);
        let words = embedded::seal(place, &mut block).unwrap();
        assert_eq!(embedded::check(place, &block), Ok(false));
        assert!(
            matches!(embedded::check(elsewhere, &block),
                Err(EmbeddedError::Mismatch { expected, .. }) if expected == words),
            "{place:?}"
        );
        for at in 0..size {
            let mut wrong = block.clone();
            wrong[at] ^= 0x10;
            assert!(embedded::check(place, &wrong).is_err(), "{place:?} byte {at}");
        }
    }
}

#[test]
fn a_log_block_is_summed_as_far_as_it_is_used() {
    let place = Place::Zilog2 { pointer: [5, 6, 7, 8] };
    let mut block = log_block(12288, 4097);
    embedded::seal(place, &mut block).unwrap();
    block[8191] ^= 1;
    assert!(embedded::check(place, &block).is_err());
    block[8191] ^= 1;
    block[8192] ^= 1;
    assert_eq!(embedded::check(place, &block), Ok(false));
    for used in [0, 183, 12289, u64::MAX, u64::MAX - 4095] {
        block[136..144].copy_from_slice(&used.to_le_bytes());
        let error = EmbeddedError::Used { used, size: 12288 };
        assert_eq!(embedded::check(place, &block), Err(error.clone()));
        assert_eq!(embedded::seal(place, &mut block), Err(error));
    }
}

#[test]
fn a_foreign_block_checks_as_swapped() {
    // A big-endian host sums the same words, stored the other way round.
    let swap4 = |bytes: &[u8]| -> Vec<u8> {
        bytes.chunks(4).flat_map(|w| w.iter().rev().copied().collect::<Vec<_>>()).collect()
    };
    let swap8 = |bytes: &[u8]| -> Vec<u8> {
        bytes.chunks(8).flat_map(|w| w.iter().rev().copied().collect::<Vec<_>>()).collect()
    };
    let place = PLACES[2];
    let mut block = noise(4096);
    embedded::seal(place, &mut block).unwrap();
    assert_eq!(embedded::check(place, &swap8(&block)), Ok(true));
    // Fletcher4 goes by words of 4 bytes: 64-bit fields of both hosts are seen as halves in
    // opposite order, so build the foreign block from its own definition.
    let place = PLACES[3];
    let mut block = swap8(&log_block(4096, 184));
    block[144..152].copy_from_slice(&embedded::MAGIC.to_be_bytes());
    for (i, w) in [5u64, 6, 7, 8].into_iter().enumerate() {
        block[152 + i * 8..160 + i * 8].copy_from_slice(&w.to_be_bytes());
    }
    let words = fletcher4_defined(&swap4(&block), false);
    for (i, w) in words.into_iter().enumerate() {
        block[152 + i * 8..160 + i * 8].copy_from_slice(&w.to_be_bytes());
    }
    assert_eq!(embedded::check(place, &block), Ok(true));
}

#[test]
fn blocks_too_small_or_without_magic_are_named() {
    for place in PLACES {
        for size in [0, 8, 39] {
            let error = embedded::check(place, &vec![0; size]).unwrap_err();
            assert!(matches!(error, EmbeddedError::Size { have, .. } if have == size as u64));
            assert!(embedded::seal(place, &mut vec![0; size]).is_err());
        }
        let error = embedded::check(place, &[0; 512]).unwrap_err();
        assert_eq!(error, EmbeddedError::Magic { seen: 0 }, "{place:?}");
    }
    assert!(embedded::check(PLACES[1], &[0; 1024]).is_err());
}
