//! Every small shape of mirror and raidz: write, read, lose any disks, spoil any disks.
#![allow(clippy::unwrap_used, reason = "a test fails by panic")]

mod common;

use common::*;
use device::Device;
use device::sim::{Fault, Kind as Failure, On, SimSet};
use format::config::{VdevConfig, VdevKind};
use rt::sync::Arc;
use vdev::raidz::Columns;
use vdev::sizes::Layout;
use vdev::{FaultKind, Found, ReadScratch, Tree, VdevError, WriteScratch};

/// What this test spoils of each disk, in bytes.
const SPOILED: usize = 64 << 10;

/// The disks on which the block has a piece, as bits: all pieces, and those with data.
fn pieces(columns: &Columns) -> (u32, u32) {
    let bit = |i: usize| 1u32 << columns.column(i).disk;
    let all = (0..columns.count()).map(bit).sum();
    (all, (columns.parity()..columns.count()).map(bit).sum())
}

fn bits_of(leaves: impl Iterator<Item = usize>) -> u32 {
    leaves.fold(0, |bits, leaf| bits | 1 << leaf)
}

/// Block by block over the start offsets and sizes of a raidz of `n` with `p` parities.
fn each_block(n: usize, p: usize, mut f: impl FnMut(&VdevConfig, &SimSet, u64, &Columns, &[u8])) {
    let spec = top(VdevKind::Raidz, n, p, 9);
    let Layout::Raidz(geometry) = layout(&spec) else { unreachable!() };
    let set = disks(n);
    let tree = open_write(&spec, &set);
    let (mut rng, mut scratch) = (rt::Rng::new(n as u64), WriteScratch::default());
    let k = (n - p) as u64;
    // 1 MiB on, raidz1 has its parity elsewhere. The last size ends within a sector.
    for start in [0, 1, n as u64 - 1, 2048, 2049] {
        for size in [512, k * 512, k * 512 + 512, 3 * k * 512 - 512, 2 * k * 512 + 700, 100] {
            let data = noise(&mut rng, size as usize);
            let offset = start << 9;
            tree.write(0, offset, &data, &mut scratch).unwrap();
            f(&spec, &set, offset, &geometry.columns(offset, size), &data);
        }
    }
}

fn shapes() -> impl Iterator<Item = (usize, usize)> {
    (1..=3).flat_map(|p| (p + 1..=p + 4).map(move |n| (n, p)))
}

#[test]
fn any_disks_within_parity_may_be_lost() {
    for (n, p) in shapes() {
        each_block(n, p, |spec, set, offset, columns, data| {
            let (_, with_data) = pieces(columns);
            let mut buf = vec![0; data.len()];
            let mut scratch = ReadScratch::default();
            for hidden in 0..1u32 << n {
                buf.fill(0);
                let tree = open_read(spec, set, hidden);
                let result = tree
                    .read_with(0, offset, 0, &mut buf, &mut scratch, &mut |bytes| bytes == data);
                let (on, _) = pieces(columns);
                if (hidden & on).count_ones() as usize <= p {
                    let report = result.unwrap();
                    assert_eq!(buf, data, "{n} disks, {p} parities, {hidden:b} hidden");
                    assert_eq!(report.faults, [], "a missing disk has not lied");
                    assert_eq!(report.degraded, hidden & with_data != 0);
                } else if hidden & with_data == 0 {
                    result.unwrap();
                } else {
                    let lost = matches!(result, Err(VdevError::Lost { .. }));
                    assert!(lost, "{n} disks, {p} parities, {hidden:b} hidden: {result:?}");
                    assert_eq!(tree.tops()[0].lost_blocks(), 1);
                }
            }
        });
    }
}

/// For each set of liars, and each set of missing disks that parity can bear beside them.
#[test]
fn any_disks_within_parity_may_lie_and_are_named() {
    for (n, p) in shapes() {
        each_block(n, p, |spec, set, offset, columns, data| {
            let (on, with_data) = pieces(columns);
            let mut buf = vec![0; data.len()];
            let mut scratch = ReadScratch::default();
            for liars in (0..1u32 << n).filter(|l| (l & on).count_ones() as usize <= p) {
                let spoil_all = || {
                    (0..n).filter(|i| liars >> i & 1 == 1).for_each(|i| {
                        spoil_at(set, i, offset);
                    });
                };
                spoil_all();
                for hidden in 0..1u32 << n {
                    let gone = hidden & on;
                    if hidden & liars != 0 || (gone | liars & on).count_ones() as usize > p {
                        continue;
                    }
                    let tree = open_read(spec, set, hidden);
                    let check = &mut |bytes: &[u8]| bytes == data;
                    let report =
                        tree.read_with(0, offset, 0, &mut buf, &mut scratch, check).unwrap();
                    assert_eq!(buf, data);
                    let named = bits_of(report.faults.iter().map(|f| f.leaf));
                    assert!(report.faults.iter().all(|f| f.kind == FaultKind::Checksum));
                    // A reader that finds good data does not look at parity.
                    if liars & with_data != 0 {
                        assert_eq!(named, liars & on, "{n} disks, {p} parities, {hidden:b} hidden");
                    } else {
                        assert_eq!(named & !liars, 0);
                    }
                    for (leaf, i) in tree.leaves().iter().zip(0..) {
                        assert_eq!(leaf.errors.get().checksum, u64::from(named >> i & 1));
                    }
                    // An examination finds all liars, and counts each once more.
                    buf.fill(0);
                    let examined =
                        tree.examine(0, offset, 0, &mut buf, &mut scratch, check).unwrap();
                    assert_eq!(buf, data);
                    let found = bits_of(examined.faults.iter().map(|f| f.leaf));
                    assert_eq!(found, liars & on);
                    assert_eq!(examined.missing, gone.count_ones() as usize);
                    assert_eq!(examined.lost, None);
                    assert_eq!(examined.is_whole(), gone == 0 && liars & on == 0);
                    for (leaf, i) in tree.leaves().iter().zip(0..) {
                        let expected = u64::from(named >> i & 1) + u64::from(found >> i & 1);
                        assert_eq!(leaf.errors.get().checksum, expected);
                    }
                }
                spoil_all();
            }
        });
    }
}

/// Spoils the part of disk `i` where the block at `offset` may lie.
fn spoil_at(set: &SimSet, i: usize, offset: u64) {
    use device::Device;
    let n = set.len() as u64;
    let at = format::label::DATA_AT + ((offset / n) & !511);
    let mut bytes = vec![0; 16 << 10];
    set.disk(i).read_at(at, &mut bytes).unwrap();
    bytes.iter_mut().for_each(|b| *b ^= 0xa5);
    set.disk(i).overwrite(at, &bytes);
}

#[test]
fn too_many_liars_are_an_error_not_an_answer() {
    let mut tried = 0;
    each_block(5, 2, |spec, set, offset, columns, data| {
        let (on, with_data) = pieces(columns);
        let liars = 0b00111 & on;
        if liars.count_ones() < 3 || with_data & !liars == with_data {
            return;
        }
        (0..3).for_each(|i| spoil_at(set, i, offset));
        let tree = open_read(spec, set, 0);
        let mut buf = vec![0; data.len()];
        let result = tree.read(0, offset, 0, &mut buf, &mut |bytes| bytes == data);
        assert!(matches!(result, Err(VdevError::Lost { missing: 0, .. })), "{result:?}");
        let mut scratch = ReadScratch::default();
        let check = &mut |bytes: &[u8]| bytes == data;
        let examined = tree.examine(0, offset, 0, &mut buf, &mut scratch, check).unwrap();
        assert!(examined.lost.is_some() && !examined.is_whole());
        (0..3).for_each(|i| spoil_at(set, i, offset));
        tried += 1;
    });
    assert!(tried > 10, "{tried}");
}

#[test]
fn padding_that_is_not_zero_is_found_by_examination() {
    let spec = top(VdevKind::Raidz, 4, 2, 12);
    let set = disks(4);
    let data = vec![7; 512];
    open_write(&spec, &set).write(0, 0, &data, &mut WriteScratch::default()).unwrap();
    let tree = open_read(&spec, &set, 0);
    let (mut buf, mut scratch) = (vec![0; 512], ReadScratch::default());
    let check = &mut |bytes: &[u8]| bytes == data;
    assert!(tree.examine(0, 0, 0, &mut buf, &mut scratch, check).unwrap().is_whole());
    // Columns: P on disk 0, Q on 1, data on 2.
    set.disk(2).overwrite(format::label::DATA_AT + 4000, &[1]);
    assert_eq!(tree.read(0, 0, 0, &mut buf, check).unwrap().faults, []);
    let examined = tree.examine(0, 0, 0, &mut buf, &mut scratch, check).unwrap();
    assert_eq!(bits_of(examined.faults.iter().map(|f| f.leaf)), 0b100);
}

#[test]
fn a_disk_with_errors_is_named_and_passed_over() {
    let spec = top(VdevKind::Raidz, 5, 2, 9);
    let set = disks(5);
    let data = noise(&mut rt::Rng::new(1), 6 << 9);
    open_write(&spec, &set).write(0, 0, &data, &mut WriteScratch::default()).unwrap();
    let error = || Failure::Error(rustix::io::Errno::IO);
    for i in 2..5 {
        set.disk(i).inject(Fault::new(error(), On::Reads));
        let tree = open_read(&spec, &set, 0);
        let mut buf = vec![0; data.len()];
        let result = tree.read(0, 0, 0, &mut buf, &mut |bytes| bytes == data);
        if i < 4 {
            let report = result.unwrap();
            assert_eq!(buf, data);
            assert_eq!(report.faults.len(), i - 1);
            assert!(report.faults.iter().all(|f| matches!(f.kind, FaultKind::Read(_))));
            assert_eq!(tree.leaves()[2].errors.get().read, 1);
            assert_eq!(tree.leaves()[2].errors.get().checksum, 0);
        } else {
            let Err(VdevError::Lost { unreadable, .. }) = result else { panic!("{result:?}") };
            assert_eq!(unreadable, 3);
            // Who gave what he was asked for is not blamed for what others did not give.
            let wrong = |leaf: &vdev::Leaf| leaf.errors.get().checksum;
            assert!(tree.leaves().iter().all(|leaf| wrong(leaf) == 0));
            let mut scratch = ReadScratch::default();
            let check = &mut |bytes: &[u8]| bytes == data;
            let examined = tree.examine(0, 0, 0, &mut buf, &mut scratch, check).unwrap();
            tree.count_new(&examined, &[]);
            assert!(examined.lost.is_some() && tree.leaves().iter().all(|leaf| wrong(leaf) == 0));
        }
    }
}

#[test]
fn a_mirror_reads_with_one_good_copy_left() {
    for count in 2..=4 {
        let spec = top(VdevKind::Mirror, count, 0, 12);
        let set = disks(count);
        let data = noise(&mut rt::Rng::new(3), 5000);
        let offset = 1 << 20;
        let report =
            open_write(&spec, &set).write(0, offset, &data, &mut WriteScratch::default()).unwrap();
        assert_eq!(report, Default::default());
        for hidden in 0..1u32 << count {
            for liars in 0..1u32 << count {
                let each =
                    |f: &dyn Fn(usize)| (0..count).filter(|i| liars >> i & 1 == 1).for_each(f);
                each(&|i| spoil(&set.disk(i), (1 << 20) + 8192));
                let tree = open_read(&spec, &set, hidden);
                let (mut buf, mut scratch) = (vec![0; data.len()], ReadScratch::default());
                let check = &mut |bytes: &[u8]| bytes == data;
                let result = tree.read(0, offset, 0, &mut buf, check);
                let good = !(hidden | liars) & ((1 << count) - 1);
                assert_eq!(result.is_ok(), good != 0, "{hidden:b} {liars:b} {result:?}");
                let examined = tree.examine(0, offset, 0, &mut buf, &mut scratch, check).unwrap();
                assert_eq!(examined.lost.is_some(), good == 0);
                assert_eq!(examined.missing, hidden.count_ones() as usize);
                let named = bits_of(examined.faults.iter().map(|f| f.leaf));
                assert_eq!(named, liars & !hidden);
                if good != 0 {
                    assert_eq!(buf, data);
                }
                each(&|i| spoil(&set.disk(i), (1 << 20) + 8192));
            }
        }
    }
}

/// A raidz child under replacement, the old disk full of errors, the new one half filled.
#[test]
fn a_child_with_two_leaves_gives_the_version_that_is_right() {
    let mut spec = top(VdevKind::Raidz, 3, 1, 9);
    let mut new = leaf(0, 4);
    new.resilver_txg = 9;
    let old = spec.children[1].clone();
    spec.children[1] = interior(VdevKind::Replacing, 1, 500, vec![old, new]);
    let set = disks(4);
    let data = noise(&mut rt::Rng::new(5), 4 << 9);
    open_write(&spec, &set).write(0, 0, &data, &mut WriteScratch::default()).unwrap();
    assert_eq!(space(&set.disk(1), 4096), space(&set.disk(3), 4096), "both are written");
    let check = &mut |bytes: &[u8]| bytes == data;
    let (mut buf, mut scratch) = (vec![0; data.len()], ReadScratch::default());
    // The old leaf lies and another disk is away: the new one has the bytes.
    spoil(&set.disk(1), SPOILED);
    let tree = open_read(&spec, &set, 0b0100);
    let report = tree.read(0, 0, 0, &mut buf, check).unwrap();
    assert_eq!((&buf, bits_of(report.faults.iter().map(|f| f.leaf))), (&data, 0b0010));
    // The new leaf does not have the block yet: that is no fault of it.
    spoil(&set.disk(1), SPOILED);
    spoil(&set.disk(3), SPOILED);
    let tree = open_read(&spec, &set, 0);
    let examined = tree.examine(0, 0, 0, &mut buf, &mut scratch, check).unwrap();
    assert_eq!((examined.faults.len(), examined.unfilled), (0, 1));
    let tree = open_read(&spec, &set, 0b0110);
    assert!(tree.read(0, 0, 0, &mut buf, check).is_err());
}

/// Where no checksum decides, a leaf that may hold anything is never asked: one without labels, one
/// that is being filled. What it would have had is made up for, or the block is lost.
#[test]
fn without_a_checksum_only_trusted_leaves_are_read() {
    let data = noise(&mut rt::Rng::new(7), 4 << 9);
    let mut buf = vec![0; data.len()];
    let failing = || Fault::new(Failure::Error(rustix::io::Errno::IO), On::Reads);

    let spec = top(VdevKind::Mirror, 2, 0, 9);
    let set = disks(2);
    open_write(&spec, &set).write(0, 0, &data, &mut WriteScratch::default()).unwrap();
    spoil(&set.disk(0), SPOILED);
    let unlabelled = |labelled: [bool; 2]| {
        let found = |i: usize| {
            let device: Arc<dyn Device> = Arc::new(set.disk(i).reader());
            (i as u64 + 1, Found { device, labelled: labelled[i] })
        };
        Tree::open(&root(&spec), (0..2).map(found).collect()).unwrap()
    };
    let tree = unlabelled([false, true]);
    tree.read_unverified(0, 0, 0, &mut buf).unwrap();
    assert_eq!(buf, data);
    let fault = set.disk(1).inject(failing());
    let lost = tree.read_unverified(0, 0, 0, &mut buf).unwrap_err();
    assert!(matches!(lost, VdevError::Lost { missing: 1, unreadable: 1, .. }), "{lost}");
    set.disk(1).lift(fault);
    let tree = unlabelled([false, false]);
    assert!(tree.read_unverified(0, 0, 0, &mut buf).is_err());

    // a child under replacement: its new leaf is not filled yet
    let mut spec = top(VdevKind::Raidz, 3, 1, 9);
    let mut new = leaf(0, 4);
    new.resilver_txg = 9;
    let old = spec.children[1].clone();
    spec.children[1] = interior(VdevKind::Replacing, 1, 500, vec![old, new]);
    let set = disks(4);
    open_write(&spec, &set).write(0, 0, &data, &mut WriteScratch::default()).unwrap();
    spoil(&set.disk(3), SPOILED);
    for hidden in [0b0000, 0b0010] {
        let tree = open_read(&spec, &set, hidden);
        tree.read_unverified(0, 0, 0, &mut buf).unwrap();
        assert_eq!(buf, data, "{hidden:b}");
    }
    let tree = open_read(&spec, &set, 0b0110);
    assert!(tree.read_unverified(0, 0, 0, &mut buf).is_err());
}

#[test]
fn addresses_that_cannot_be_are_refused() {
    let spec = top(VdevKind::Raidz, 3, 1, 12);
    let set = disks(3);
    let tree = open_read(&spec, &set, 0);
    let yes = &mut |_: &[u8]| true;
    let mut buf = vec![0; 8192];
    let bad = |r: Result<_, VdevError>| matches!(r, Err(VdevError::BadAddress { .. }));
    assert!(bad(tree.read(0, 512, 0, &mut buf, yes)), "not a sector's start");
    assert!(bad(tree.read(0, 3 * LEAF, 0, &mut buf, yes)), "the end");
    assert!(bad(tree.read(0, 3 * LEAF - 4096, 0, &mut buf, yes)), "over the end");
    assert!(bad(tree.read(0, !4095, 0, &mut buf, yes)));
    assert!(bad(tree.read(0, 0, 0, &mut [], yes)));
    assert!(matches!(tree.read(1, 0, 0, &mut buf, yes), Err(VdevError::NoSuchTop { top: 1, .. })));
    let others = [VdevKind::Draid, VdevKind::Indirect];
    for kind in others {
        let tree = open_read(&VdevConfig { kind, ..spec.clone() }, &set, 0);
        let result = tree.read(0, 0, 0, &mut buf, yes);
        assert!(matches!(result, Err(VdevError::Unsupported { .. })), "{result:?}");
    }
    for kind in [VdevKind::Hole, VdevKind::Missing, VdevKind::Other(b"new".to_vec())] {
        let tree = open_read(&VdevConfig { kind, children: vec![], ..spec.clone() }, &set, 0);
        assert!(matches!(tree.read(0, 0, 0, &mut buf, yes), Err(VdevError::NoSuchTop { .. })));
    }
}
