//! Lies planted into copies of golden pools, each of which must be told.

use crate::block::{Audit, Blocks};
use crate::datasets::Datasets;
use crate::judge::{Limits, compare_space, read_objset, verify_pool, verify_within};
use crate::mos::Mos;
use crate::report::{Finding, FindingKind};
use crate::sorter::Sorter;
use crate::walk::{MOS, Scope, Walk};
use crate::{Options, Report, SpaceTotals, Verdict, object, pending, spacemaps};
use codec::embedded::{self, Place};
use format::blkptr::BlkProps;
use format::dnode::DNODES_PER_BLOCK;
use format::gang::GangHeader;
use format::label::{CONFIG_AT, DATA_AT, label_offset};
use format::{BlkPtr, Checksum, Compress, Dva, ObjectType};
use std::fs::OpenOptions;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use testkit::{Entry, Images, Kind};
use vdev::import::{FoundPool, scan};
use vdev::sizes::Layout;
use vdev::{Tree, import};

fn found(dir: &Path) -> FoundPool {
    let import::Scan { mut pools, .. } = scan(&[dir.to_owned()]).unwrap();
    pools.pop().unwrap()
}

fn judge(dir: &Path) -> Report {
    verify_pool(&found(dir), &Options::default(), &mut |_| true).unwrap()
}

/// A byte of an image, changed.
fn flip(image: &Path, at: u64) {
    let file = OpenOptions::new().read(true).write(true).open(image).unwrap();
    let mut byte = [0];
    file.read_exact_at(&mut byte, at).unwrap();
    file.write_all_at(&[!byte[0]], at).unwrap();
}

/// The image of a leaf.
fn image(tree: &Tree, top: u32, slot: usize) -> PathBuf {
    let leaf = tree.top(top).unwrap().slots()[slot][0];
    tree.leaves()[leaf].name().into()
}

/// A file with a block of its own in some file system, with that one's name, and the pointers to
/// its first block and to its block of dnodes.
fn victim(dir: &Path, name: &str) -> (String, Entry, BlkPtr, BlkPtr) {
    let pool = found(dir);
    let tree = pool.open_tree().unwrap();
    let mut blocks = Blocks::new(&tree);
    let mos = Mos::open(&mut blocks, &pool.uberblocks[0].root).unwrap();
    let datasets = Datasets::list(&mut blocks, &mos, name, usize::MAX);
    assert_eq!(datasets.unread, [""; 0]);
    let truth = testkit::truth(name);
    for head in datasets.list.iter().filter(|dataset| !dataset.snapshot && !dataset.encrypted) {
        let Ok(entries) = truth.entries(&head.name) else { continue };
        let root = head.phys.bp;
        let objset = read_objset(&mut blocks, &root).unwrap();
        for entry in entries.into_iter().filter(|e| e.kind == Kind::File && e.nlink == 1) {
            let dnode = object::expect(&mut blocks, &objset, entry.object).unwrap();
            let bp = object::pointer(&mut blocks, &dnode, 0).unwrap();
            let block = entry.object / DNODES_PER_BLOCK;
            let home = object::pointer(&mut blocks, &objset.meta, block).unwrap();
            if bp.has_space() && !bp.is_gang() && bp.dvas().count() == 1 {
                return (head.name.clone(), entry, bp, home);
            }
        }
    }
    panic!("{name} has no file with a block of its own");
}

fn tree(dir: &Images) -> Tree {
    found(dir.path()).open_tree().unwrap()
}

/// Where a column of a block lies: image and byte. Column 0 is parity, if there is any.
fn column(tree: &Tree, dva: Dva, psize: u64, index: usize) -> (PathBuf, u64) {
    match tree.top(dva.vdev).unwrap().layout.unwrap() {
        Layout::Plain { .. } => (image(tree, dva.vdev, 0), DATA_AT + dva.offset),
        Layout::Raidz(geometry) => {
            let column = geometry.columns(dva.offset, psize).column(index);
            (image(tree, dva.vdev, column.disk), DATA_AT + column.offset)
        }
    }
}

fn path_of(entry: &Entry) -> String {
    format!("/{}", String::from_utf8_lossy(&entry.path))
}

#[test]
fn a_wrong_byte_without_redundancy_is_a_lost_file_with_its_name() {
    let images = testkit::golden_copy("single");
    let (dataset, entry, bp, _) = victim(images.path(), "single");
    let (image, at) = column(&tree(&images), bp.dva(0), bp.psize(), 0);
    flip(&image, at + 5);
    let report = judge(images.path());
    assert_eq!(report.verdict, Verdict::Lost, "{report:#?}");
    assert_eq!(report.lost_blocks, 1);
    assert!(report.findings.is_empty(), "{report:#?}");
    let lost: Vec<_> = report.lost_files().collect();
    let named = lost.iter().find(|file| file.dataset == dataset).expect("the head is named");
    assert_eq!((named.path.clone(), named.object), (path_of(&entry), entry.object));
    assert_eq!((named.lost_blocks, named.lost_bytes), (1, bp.lsize()));
    // Snapshots that share it are named too, nothing else is.
    assert!(lost.iter().all(|file| file.object == entry.object), "{lost:?}");
    let snapshot = format!("{dataset}@");
    let shares = |name: &str| name == dataset || name.starts_with(&snapshot);
    assert!(lost.iter().all(|file| shares(&file.dataset)), "{lost:?}");
    assert_eq!(report.devices.len(), 1);
    assert_eq!((report.devices[0].bad_blocks, report.devices[0].read_errors), (1, 0));
}

#[test]
fn a_wrong_column_is_found_on_its_disk_and_nothing_is_lost() {
    for index in [0, 1] {
        let images = testkit::golden_copy("rz1");
        let (dataset, entry, bp, _) = victim(images.path(), "rz1");
        let (image, at) = column(&tree(&images), bp.dva(0), bp.psize(), index);
        flip(&image, at + 100);
        let report = judge(images.path());
        assert_eq!(report.verdict, Verdict::Whole, "{report:#?}");
        assert_eq!((report.lost_blocks, report.recovered_blocks), (0, 1));
        assert_eq!(report.devices.len(), 1, "{report:#?}");
        assert_eq!(report.devices[0].device, image.display().to_string());
        assert_eq!(report.devices[0].bad_blocks, 1);
        assert_eq!(report.files.len(), 1);
        assert_eq!(report.files[0].path, path_of(&entry));
        assert!(report.files[0].dataset.starts_with(&dataset));
        assert!(!report.files[0].is_lost() && report.findings.is_empty(), "{report:#?}");
    }
}

#[test]
fn a_wrong_copy_of_metadata_is_no_loss_and_both_are_files_with_names() {
    let images = testkit::golden_copy("single");
    let (dataset, entry, _, home) = victim(images.path(), "single");
    let tree = tree(&images);
    let copies: Vec<Dva> = home.dvas().collect();
    assert!(copies.len() >= 2);
    let spoil = |dva: &Dva| {
        let (image, at) = column(&tree, *dva, home.psize(), 0);
        flip(&image, at + 7);
    };
    spoil(&copies[1]);
    let report = judge(images.path());
    assert_eq!(report.verdict, Verdict::Whole, "{report:#?}");
    assert_eq!((report.lost_blocks, report.recovered_blocks), (0, 1));
    for dva in copies.iter().filter(|dva| **dva != copies[1]) {
        spoil(dva);
    }
    let report = judge(images.path());
    assert_eq!(report.verdict, Verdict::Lost);
    let lost: Vec<_> = report.lost_files().filter(|file| file.dataset == dataset).collect();
    let first = entry.object / DNODES_PER_BLOCK * DNODES_PER_BLOCK;
    for entry in testkit::truth("single").entries(&dataset).unwrap() {
        if (first..first + DNODES_PER_BLOCK).contains(&entry.object) && entry.kind == Kind::File {
            let named = |path: &str| lost.iter().any(|f| f.path == path);
            // Its directory may be lost with it; then only its number is known.
            let dir = entry.path.contains(&b'/');
            assert!(dir || named(&path_of(&entry)), "{}: {lost:#?}", path_of(&entry));
        }
    }
    assert!(!lost.is_empty());
}

#[test]
fn a_half_of_the_labels_may_be_broken_off_and_more_is_damage() {
    // By disk the labels that are wrong; whether that is damage, and what is said of it.
    let cases: [(&[(usize, u8)], bool); 6] = [
        (&[(0, 2)], false),
        (&[(0, 0), (0, 2)], false),
        (&[(0, 2), (1, 0)], false),
        (&[(0, 1)], false),
        (&[(0, 2), (1, 1)], true),
        (&[(0, 2), (0, 3)], true),
    ];
    for (wrong, is_damage) in cases {
        let images = testkit::golden_copy("mir");
        for (disk, label) in wrong {
            let path = images.disk(*disk);
            let size = std::fs::metadata(&path).unwrap().len();
            flip(&path, label_offset(usize::from(*label), size).unwrap() + CONFIG_AT + 50);
        }
        let report = judge(images.path());
        let damaged: Vec<u8> = report.devices.iter().flat_map(|d| d.labels.clone()).collect();
        let all: Vec<u8> = wrong.iter().map(|(_, label)| *label).collect();
        if is_damage {
            assert_eq!(report.verdict, Verdict::Whole, "{wrong:?}: {report:#?}");
            assert_eq!((damaged, &report.notes), (all, &vec![]), "{wrong:?}");
        } else {
            assert_eq!(report.verdict, Verdict::Clean, "{wrong:?}: {report:#?}");
            let told = |number: &u8| report.notes.iter().any(|n| n.contains(&format!("{number}")));
            assert!(damaged.is_empty() && all.iter().all(told), "{wrong:?}: {report:#?}");
        }
    }
}

fn no_dead() -> Sorter {
    Sorter::new(0, &Options::default().scratch)
}

/// Space of the golden pool `single`, if each data set is walked as often as `times` says (the MOS
/// is number 0); and the kinds of findings.
fn space_if(times: impl Fn(usize) -> usize) -> (SpaceTotals, Vec<FindingKind>) {
    let pool = found(&testkit::golden("single"));
    let tree = pool.open_tree().unwrap();
    let mut blocks = Blocks::new(&tree);
    let root = pool.uberblocks[0].root;
    let mos = Mos::open(&mut blocks, &root).unwrap();
    let options = Options::default();
    let mut walk = Walk::new(blocks, Sorter::new(0, &options.scratch), no_dead());
    let config = mos.config(&mut walk.blocks).unwrap();
    let datasets = Datasets::list(&mut walk.blocks, &mos, "single", usize::MAX);
    walk.names.extend(datasets.list.iter().map(|dataset| dataset.name.clone()));
    for _ in 0..times(0) {
        walk.objset(Scope::whole(MOS), &root);
    }
    for (number, dataset) in (1u32..).zip(&datasets.list) {
        let phys = dataset.phys;
        let min_txg = phys.prev_snap_txg.get();
        let scope = Scope { min_txg, snap_txg: min_txg, ..Scope::whole(number) };
        for _ in 0..times(number as usize) {
            walk.objset(scope, &phys.bp);
        }
        if !dataset.snapshot && phys.bp.has_space() {
            let objset = read_objset(&mut walk.blocks, &phys.bp).unwrap();
            pending::intent_log(&mut walk, number, &objset, pool.uberblocks[0].txg.get());
        }
    }
    pending::claim(&mut walk, &mos, &config);
    // The smallest sorter has spilled by now.
    assert!(walk.reach.has_spilled());
    let slabs = spacemaps::metaslabs(&mut walk.blocks, &mos, &config, &mut walk.findings);
    let totals = compare_space(&mut walk, &mos, &slabs, 64 << 20, &options).unwrap();
    let findings = std::mem::take(&mut walk.findings).into_list();
    (totals, findings.into_iter().map(|finding| finding.kind).collect())
}

#[test]
fn what_is_not_reached_is_leaked_and_what_is_reached_twice_is_told() {
    let (all, findings) = space_if(|_| 1);
    assert_eq!((all.leaked, all.doubly_allocated, all.reachable), (0, 0, all.allocated));
    assert_eq!(findings, []);
    let (less, findings) = space_if(|number| usize::from(number != 0));
    assert!(findings.iter().all(|kind| *kind == FindingKind::Leaked) && !findings.is_empty());
    assert_eq!(less.reachable + less.leaked, all.allocated);
    let (more, findings) = space_if(|number| 1 + usize::from(number == 0));
    assert!(findings.iter().all(|kind| *kind == FindingKind::DoublyAllocated));
    // What was reached once too often is just what was not reached.
    assert_eq!((more.doubly_allocated, more.reachable), (less.leaked, all.reachable));
}

/// A gang of `psize` bytes, its header at a place of the only disk.
fn gang(offset: u64, psize: u64) -> BlkPtr {
    let props = BlkProps {
        lsize: psize,
        psize,
        compress: Compress::Off,
        checksum: Checksum::Fletcher4,
        kind: ObjectType::PLAIN_FILE_CONTENTS,
        level: 0,
    };
    let dva = Dva { vdev: 0, offset, asize: 4096, gang: true };
    BlkPtr::new(props, &[dva], 7, 1, [0; 4])
}

/// Seen red: each header was followed by all it names, three to the power of how deep they nest.
#[test]
fn gangs_are_followed_as_far_as_they_are_the_block() {
    let images = testkit::golden_copy("single");
    let disk = OpenOptions::new().write(true).open(images.disk(0)).unwrap();
    let place = |depth: u64| (80 << 20) + depth * 4096;
    let write = |depth: u64, members: [BlkPtr; 3]| {
        let mut header = zerocopy::IntoBytes::as_bytes(&GangHeader::new(members)).to_vec();
        let at = Place::GangHeader { vdev: 0, offset: place(depth), txg: 7 };
        embedded::seal(at, &mut header).unwrap();
        disk.write_all_at(&header, DATA_AT + place(depth)).unwrap();
    };
    for depth in 0..14 {
        write(depth, [gang(place(depth + 1), 1536); 3]);
    }
    let mut plain = gang(place(20), 512);
    plain.set_dva(0, Dva { gang: false, ..plain.dva(0) });
    write(14, [plain; 3]);
    let tree = tree(&images);
    let mut blocks = Blocks::new(&tree);
    let mut audit = Audit::default();
    let why = blocks.segments(&gang(place(0), 1536), &mut audit).unwrap_err();
    assert!(why.contains("sum of members"), "{why}");
    assert_eq!(audit.segments.len(), 1);
    blocks.segments(&gang(place(14), 1536), &mut audit).unwrap();
    assert_eq!(audit.segments.len(), 4);
}

fn judge_within(name: &str, limits: Limits) -> Report {
    let pool = found(&testkit::golden(name));
    let tree = {
        let tree = pool.open_tree().unwrap();
        let mut blocks = Blocks::new(&tree);
        let mos = Mos::open(&mut blocks, &pool.uberblocks[0].root).unwrap();
        pool.open_tree_as(&mos.config(&mut blocks).unwrap().vdev_tree).unwrap()
    };
    let room = (64 << 20, limits);
    verify_within(&tree, &pool.uberblocks, &Options::default(), room, &mut |_| true).unwrap()
}

/// Seen red: a pool with more of them was called lost, and its snapshots wrong.
#[test]
fn more_data_sets_than_there_is_room_for_are_not_judged() {
    let all = judge_within("mir", Limits { datasets: 100, mapping: 0 });
    assert_eq!((all.verdict, all.findings), (Verdict::Clean, Vec::new()));
    for datasets in 1..30 {
        let report = judge_within("mir", Limits { datasets, mapping: 0 });
        assert_eq!((report.verdict, report.lost_blocks), (Verdict::Whole, 0), "{report:#?}");
        let unjudged = |finding: &Finding| finding.kind == FindingKind::Unjudged;
        assert!(report.findings.iter().all(unjudged), "{datasets}: {:#?}", report.findings);
        assert!(report.datasets < all.datasets);
    }
}

#[test]
fn a_mapping_that_there_is_no_room_for_is_no_loss() {
    let report = judge_within("features", Limits { datasets: 100, mapping: 1 });
    assert_eq!((report.verdict, report.lost_blocks), (Verdict::Whole, 0), "{report:#?}");
    let [finding] = &report.findings[..] else { panic!("{:#?}", report.findings) };
    assert_eq!(finding.kind, FindingKind::Unjudged);
    assert!(finding.text.contains("vdev 1 was removed"), "{finding}");
}

/// However often one is listed.
#[test]
fn lists_are_read_as_far_as_the_walk_has_seen_them() {
    let images = testkit::golden_copy("single");
    let tree = tree(&images);
    let mut blocks = Blocks::new(&tree);
    assert!(blocks.list_part(16 << 20).is_ok() && blocks.list_part(1).is_err());
    blocks.let_lists_have(4096);
    assert!(blocks.list_part(8192).is_ok() && blocks.list_part(1).is_err());
}
