//! Parity against its definition, every engine, every length, every combination of lost columns.
#![allow(clippy::unwrap_used)]

mod common;

use codec::parity::{Column, Engine, ParityError};
use proptest::prelude::*;

use common::noise;

/// Product in the field as it is defined: polynomials over bits, modulo 0x11d.
fn product(a: u8, b: u8) -> u8 {
    let (mut a, mut b, mut sum) = (a, b, 0);
    while b != 0 {
        if b & 1 == 1 {
            sum ^= a;
        }
        a = a << 1 ^ if a & 0x80 != 0 { 0x1d } else { 0 };
        b >>= 1;
    }
    sum
}

/// P, Q and R as the fact sheet gives them: from the first column to the last, zeros after the end.
fn parity_defined(data: &[Vec<u8>]) -> [Vec<u8>; 3] {
    let len = data.first().map_or(0, Vec::len);
    [1, 2, 4].map(|point| {
        let at = |i| {
            data.iter()
                .fold(0, |sum, d: &Vec<u8>| product(sum, point) ^ d.get(i).copied().unwrap_or(0))
        };
        (0..len).map(at).collect()
    })
}

/// `count` columns of `len` bytes, the last `shorter` of them with `short` bytes.
fn columns(count: usize, len: usize, shorter: usize, short: usize) -> Vec<Vec<u8>> {
    (0..count)
        .map(|c| noise(c as u64 * 7919 + len as u64, if c + shorter < count { len } else { short }))
        .collect()
}

fn generate(engine: Engine, data: &[Vec<u8>], parities: usize) -> Vec<Vec<u8>> {
    let len = data.first().map_or(0, Vec::len);
    let mut parity = vec![vec![0xee; len]; parities];
    let data: Vec<&[u8]> = data.iter().map(Vec::as_slice).collect();
    let mut out: Vec<&mut [u8]> = parity.iter_mut().map(Vec::as_mut_slice).collect();
    engine.generate(&data, &mut out);
    parity
}

/// Rebuilds the columns in the set `lost` (bits), with the parities in `unused` not to be touched,
/// and checks that all is as it was.
fn lose(engine: Engine, all: &[Vec<u8>], parities: usize, lost: u64, unused: u64) {
    let mut work = all.to_vec();
    for (at, column) in work.iter_mut().enumerate() {
        if (lost | unused) >> at & 1 == 1 {
            column.fill(0x5a);
        }
    }
    let mut columns: Vec<Column<'_>> = work
        .iter_mut()
        .enumerate()
        .map(|(at, column)| match (lost >> at & 1, unused >> at & 1) {
            (1, _) => Column::Lost(column),
            (_, 1) => Column::Unused,
            _ => Column::Good(column),
        })
        .collect();
    engine.reconstruct(parities, &mut columns).unwrap();
    for (at, (got, expected)) in work.iter().zip(all).enumerate() {
        if unused >> at & 1 == 0 {
            assert!(got == expected, "{engine:?} lost {lost:b} unused {unused:b}: column {at}");
        }
    }
}

#[test]
fn parity_is_the_definition_at_every_length() {
    let lengths = (0..700).chain((700..70_000).step_by(3 * 512 + 1)).chain([65536]);
    for len in lengths {
        let count = 1 + len % 9;
        let data = columns(count, len, 0, 0);
        let expected = parity_defined(&data);
        for engine in Engine::available() {
            for parities in 1..=3 {
                let got = generate(engine, &data, parities);
                assert_eq!(got, expected[..parities], "{engine:?} {count} columns of {len}");
            }
        }
    }
}

#[test]
fn short_columns_count_as_zero_filled() {
    for count in [2, 3, 8, 9, 40] {
        for shorter in 1..count {
            for (len, short) in [(512, 0), (1024, 512), (5 * 512, 4 * 512), (130, 67), (8192, 4096)]
            {
                let data = columns(count, len, shorter, short);
                let expected = parity_defined(&data);
                for engine in Engine::available() {
                    assert_eq!(
                        generate(engine, &data, 3),
                        expected,
                        "{engine:?} {count} {shorter}"
                    );
                }
            }
        }
    }
}

#[test]
fn the_widest_vdev_has_parity_too() {
    let data = columns(252, 1024, 100, 512);
    let expected = parity_defined(&data);
    for engine in Engine::available() {
        let parity = generate(engine, &data, 3);
        assert_eq!(parity, expected);
        let all: Vec<Vec<u8>> = parity.into_iter().chain(data.clone()).collect();
        let mut work = all.clone();
        let lost = [3, 154, 254];
        let mut columns: Vec<Column<'_>> = work
            .iter_mut()
            .enumerate()
            .map(|(at, c)| {
                if lost.contains(&at) {
                    c.fill(1);
                    Column::Lost(c)
                } else {
                    Column::Good(c)
                }
            })
            .collect();
        engine.reconstruct(3, &mut columns).unwrap();
        assert_eq!(work, all);
    }
}

#[test]
fn every_combination_of_lost_columns_comes_back() {
    for parities in 1..=3 {
        for (count, len, shorter, short) in
            [(1, 512, 0, 0), (2, 1024, 1, 512), (5, 600, 2, 88), (8, 4096, 3, 3584), (9, 77, 0, 0)]
        {
            let data = columns(count, len, shorter, short);
            for engine in Engine::available() {
                let parity = generate(engine, &data, parities);
                let all: Vec<Vec<u8>> = parity.into_iter().chain(data.clone()).collect();
                for lost in 0u64..1 << all.len() {
                    if lost.count_ones() as usize > parities {
                        continue;
                    }
                    lose(engine, &all, parities, lost, 0);
                    // Lost parity that nobody wants back.
                    lose(engine, &all, parities, lost & !7, lost & ((1 << parities) - 1));
                }
            }
        }
    }
}

#[test]
fn lost_columns_come_back_at_every_length() {
    for len in (0..400).chain((512..9000).step_by(512)) {
        for short in [len, len - len.min(512), len / 2] {
            let data = columns(5, len, 2, short);
            for engine in Engine::available() {
                let parity = generate(engine, &data, 3);
                let all: Vec<Vec<u8>> = parity.into_iter().chain(data.clone()).collect();
                // Unknowns among the long, the short, and both; with and without P and Q.
                for lost in [0b0000_1000, 0b1000_0001, 0b0110_0001, 0b1101_0000, 0b0010_1100, 0b111]
                {
                    lose(engine, &all, 3, lost, 0);
                }
            }
        }
    }
}

#[test]
fn a_wrong_column_gives_wrong_bytes() {
    // What is rebuilt depends on every column that is used: else damage would go unnoticed.
    let data = columns(4, 256, 0, 0);
    for engine in Engine::available() {
        let parity = generate(engine, &data, 2);
        let all: Vec<Vec<u8>> = parity.into_iter().chain(data.clone()).collect();
        for wrong in [0, 2, 3, 4] {
            let mut work = all.clone();
            work[wrong][100] ^= 1;
            let mut columns: Vec<Column<'_>> = work.iter_mut().map(|c| Column::Good(c)).collect();
            let mut back = vec![0; 256];
            columns[5] = Column::Lost(&mut back);
            engine.reconstruct(2, &mut columns).unwrap();
            assert_ne!(back, all[5], "{engine:?} {wrong}");
        }
    }
}

#[test]
fn what_cannot_be_rebuilt_is_refused() {
    let mut buffers = vec![vec![0u8; 512]; 6];
    let mut with = |parities: usize, lost: &[usize], unused: &[usize]| {
        let mut columns: Vec<Column<'_>> = buffers
            .iter_mut()
            .enumerate()
            .map(|(at, c)| {
                if lost.contains(&at) {
                    Column::Lost(c)
                } else if unused.contains(&at) {
                    Column::Unused
                } else {
                    Column::Good(c)
                }
            })
            .collect();
        Engine::best().reconstruct(parities, &mut columns)
    };
    assert_eq!(with(1, &[1, 2], &[]), Err(ParityError::TooManyLost { lost: 2, left: 1 }));
    assert_eq!(with(2, &[0, 2, 3], &[]), Err(ParityError::TooManyLost { lost: 2, left: 1 }));
    assert_eq!(with(2, &[2], &[0, 1]), Err(ParityError::TooManyLost { lost: 1, left: 0 }));
    let shape = |column, parities| Err(ParityError::Shape { column, columns: 6, parities });
    assert_eq!(with(2, &[2], &[3]), shape(3, 2));
    assert_eq!(with(0, &[], &[]), shape(0, 0));
    assert_eq!(with(4, &[], &[]), shape(4, 4));
    assert_eq!(with(6, &[], &[]), shape(6, 6));
    buffers[3].truncate(511);
    let mut columns: Vec<Column<'_>> = buffers.iter_mut().map(|c| Column::Good(c)).collect();
    assert_eq!(Engine::best().reconstruct(1, &mut columns), shape(4, 1));
    assert_eq!(
        Engine::best().reconstruct(2, &mut []),
        Err(ParityError::Shape { column: 2, columns: 0, parities: 2 })
    );
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 200, failure_persistence: None, ..ProptestConfig::default() })]
    #[test]
    fn any_block_comes_back(
        parities in 1usize..=3,
        count in 1usize..20,
        len in 0usize..3000,
        cut in 0usize..600,
        shorter in 0usize..20,
        picks in proptest::collection::vec(any::<prop::sample::Index>(), 3),
    ) {
        let data = columns(count, len, shorter.min(count - 1), len.saturating_sub(cut));
        let expected = parity_defined(&data);
        let all: Vec<Vec<u8>> =
            expected[..parities].iter().cloned().chain(data.iter().cloned()).collect();
        let lost = picks[..parities].iter().fold(0, |set, i| set | 1u64 << i.index(all.len()));
        for engine in Engine::available() {
            prop_assert_eq!(&generate(engine, &data, parities)[..], &expected[..parities]);
            lose(engine, &all, parities, lost, 0);
        }
    }
}
