//! Lies planted into copies of golden pools, each of which must be told.

use crate::block::{Audit, Blocks};
use crate::datasets::{Dataset, Datasets};
use crate::judge::{Limits, VerifyError, compare_space, read_objset, verify_pool, verify_within};
use crate::kept::{Keep, Kept, Subject};
use crate::mos::Mos;
use crate::report::{Finding, FindingKind};
use crate::sorter::Sorter;
use crate::walk::{MOS, Scope, Walk};
use crate::{Options, Report, SpaceTotals, Verdict, object, pending, spacemaps};
use codec::embedded::{self, Place};
use format::blkptr::BlkProps;
use format::config::{TopConfig, VdevKind};
use format::dnode::DNODES_PER_BLOCK;
use format::gang::GangHeader;
use format::indirect::{MappingPhys, mapping_entries};
use format::label::{CONFIG_AT, CONFIG_SIZE, DATA_AT, LABELS, RING_AT, RING_SIZE, label_offset};
use format::uberblock::{slot_count, slot_size};
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
    victim_in(dir, name, |set| !set.snapshot)
}

/// The same, in such a file system or snapshot.
fn victim_in(
    dir: &Path,
    name: &str,
    is_one: impl Fn(&Dataset) -> bool,
) -> (String, Entry, BlkPtr, BlkPtr) {
    let pool = found(dir);
    let tree = pool.open_tree().unwrap();
    let mut blocks = Blocks::new(&tree);
    let mos = Mos::open(&mut blocks, &pool.uberblocks[0].root).unwrap();
    let datasets = Datasets::list(&mut blocks, &mos, name, usize::MAX);
    assert_eq!(datasets.unread, [""; 0]);
    let truth = testkit::truth(name);
    for head in datasets.list.iter().filter(|set| is_one(set) && !set.encrypted) {
        if !truth.datasets().contains(&head.name.as_str()) {
            continue;
        }
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

/// Seen red: so half of all labels could rot, and the verdict was clean. The pool's labels are of txg 4,
/// its uberblock is of txg 34: no write of labels was going on.
#[test]
fn labels_that_no_cut_leaves_so_are_damage() {
    for (half, is_damage) in [([1, 3], true), ([0, 2], false)] {
        let images = testkit::golden_copy("dirty");
        for path in images.disks() {
            let size = std::fs::metadata(&path).unwrap().len();
            for label in half {
                flip(&path, label_offset(label, size).unwrap() + CONFIG_AT + 50);
            }
        }
        let report = judge(images.path());
        let damaged = report.devices.iter().filter(|d| d.labels == half.map(|l| l as u8)).count();
        assert_eq!(damaged, if is_damage { 5 } else { 0 }, "{half:?}: {report:#?}");
        assert_eq!(report.notes.len(), 5 - damaged, "{half:?}: {report:#?}");
    }
    // One good half for each leaf, if it is not one: the other of two labels may be gone as well.
    let images = testkit::golden_copy("mir");
    let path = images.disk(0);
    let size = std::fs::metadata(&path).unwrap().len();
    flip(&path, label_offset(1, size).unwrap() + CONFIG_AT + 50);
    flip(&path, label_offset(0, size).unwrap() + CONFIG_AT + CONFIG_SIZE as u64 - 40);
    let report = judge(images.path());
    assert_eq!(report.devices[0].labels, [0, 1], "{report:#?}");
}

/// Where slots of rings lie in an image.
fn slot_at(image: &Path, label: usize, slot: u64, ashift: u64) -> u64 {
    let size = std::fs::metadata(image).unwrap().len();
    label_offset(label, size).unwrap() + RING_AT + slot * slot_size(ashift) as u64
}

/// Seen red: with one ring of twelve left the pool was clean.
#[test]
fn rings_of_noise_are_damage() {
    let images = testkit::golden_copy("mir");
    let mut rng = testkit::random::Rng::new(3);
    let mut noise = vec![0; RING_SIZE];
    for (disk, path) in images.disks().into_iter().enumerate() {
        for label in usize::from(disk == 0)..LABELS {
            rng.fill(&mut noise);
            let file = OpenOptions::new().write(true).open(&path).unwrap();
            file.write_all_at(&noise, slot_at(&path, label, 0, 12)).unwrap();
        }
    }
    let report = judge(images.path());
    assert_eq!(report.verdict, Verdict::Whole, "{report:#?}");
    let rings: Vec<_> = report.devices.iter().map(|device| device.rings.clone()).collect();
    assert_eq!(rings, [vec![1, 2, 3], vec![0, 1, 2, 3], vec![0, 1, 2, 3]], "{report:#?}");
    assert!(report.notes.is_empty(), "{report:#?}");
}

#[test]
fn one_slot_may_be_broken_off_and_more_is_damage() {
    let images = testkit::golden_copy("mir");
    let disks = images.disks();
    let ashift = tree(&images).tops()[0].config.top.unwrap().ashift;
    // The sums of one txg's uberblock, in all rings of a disk and one of another.
    let slot = found(images.path()).uberblocks[0].txg.get() % slot_count(ashift) as u64;
    let torn = |disk: usize, label, slot| {
        let at = slot_at(&disks[disk], label, slot, ashift) + slot_size(ashift) as u64;
        flip(&disks[disk], at - 1);
    };
    (0..LABELS).for_each(|label| torn(0, label, slot));
    torn(1, 2, slot);
    let report = judge(images.path());
    assert_eq!(report.verdict, Verdict::Clean, "{report:#?}");
    assert!(report.notes.iter().any(|note| note.contains("labels 0, 1, 2, 3")), "{report:#?}");
    torn(1, 1, slot - 1);
    let report = judge(images.path());
    assert_eq!(report.verdict, Verdict::Whole, "{report:#?}");
    let rings: Vec<_> = report.devices.iter().map(|device| device.rings.clone()).collect();
    assert_eq!(rings, [vec![0, 1, 2, 3], vec![1, 2]], "{report:#?}");
    // In its midst there is nothing but zeros, whatever write was cut off.
    torn(1, 1, slot - 1);
    flip(&disks[2], slot_at(&disks[2], 3, slot, ashift) + 700);
    let report = judge(images.path());
    assert_eq!((report.devices.len(), &report.devices[0].rings[..]), (1, &[3][..]), "{report:#?}");
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

/// Seen red: what one leaf of a mirror had was believed, and what the other had not looked at.
#[test]
fn of_what_was_moved_every_leaf_is_looked_at() {
    let golden = tree(&testkit::golden_copy("features"));
    let mut blocks = Blocks::new(&golden);
    let root = found(&testkit::golden("features")).uberblocks[0].root;
    let mos = Mos::open(&mut blocks, &root).unwrap();
    let mut places = Vec::new();
    for child in mos.config(&mut blocks).unwrap().vdev_tree.children {
        let Some(indirect) = child.indirect.filter(|indirect| indirect.object != 0) else {
            continue;
        };
        let dnode = mos.expect(&mut blocks, indirect.object).unwrap();
        let count = MappingPhys::parse(dnode.bonus()).unwrap().num_entries.get();
        let bytes = object::range(&mut blocks, &dnode, 0, count as usize * 24).unwrap();
        places.extend(mapping_entries(&bytes, count).unwrap().iter().map(|entry| entry.dst()));
    }
    let before = judge(&testkit::golden("features"));
    for disk in [4, 5] {
        let images = testkit::golden_copy("features");
        let file = OpenOptions::new().write(true).open(images.disk(disk)).unwrap();
        let mut rng = testkit::random::Rng::new(5);
        for dva in places.iter().filter(|dva| dva.vdev == 2) {
            let mut noise = vec![0; dva.asize as usize];
            rng.fill(&mut noise);
            file.write_all_at(&noise, DATA_AT + dva.offset).unwrap();
        }
        let report = judge(images.path());
        assert_eq!((report.verdict, report.lost_blocks), (Verdict::Whole, 0), "{report:#?}");
        let name = format!("d{disk:02}");
        let bad = |r: &Report| r.devices.iter().find(|d| d.device.ends_with(&name)).cloned();
        let bad = bad(&report).map_or(0, |device| device.bad_blocks);
        let more = report.recovered_blocks - before.recovered_blocks;
        assert!(more > 5 && bad >= more, "{name}: {bad} bad blocks, {more} blocks");
    }
}

/// What a state's file says, of a pool with guid 1.
fn state(dir: &Images, upto: &str) -> Keep {
    let keep = Keep::new(dir.path().join("state"));
    let text = format!(
        "thumper verify 2\npool 1 txg 1 root 0 0 0 0\nleaves\nmissing 0 sets 7\nupto {upto}\n"
    );
    std::fs::write(&keep.file, text).unwrap();
    keep
}

/// Seen red: trees that are freed came to the places of the last data set, and were passed over unseen.
#[test]
fn contents_of_trees_that_are_freed_are_always_read() {
    let images = testkit::golden_copy("single");
    let pool = found(images.path());
    let tree = pool.open_tree().unwrap();
    let mut blocks = Blocks::new(&tree);
    let mos = Mos::open(&mut blocks, &pool.uberblocks[0].root).unwrap();
    let sets = Datasets::list(&mut blocks, &mos, "single", usize::MAX);
    let head = sets.list.iter().find(|set| set.name == "single/a").unwrap().phys.bp;
    let passed = |dataset| {
        let mut walk =
            Walk::new(Blocks::new(&tree), Sorter::new(0, Path::new("/var/tmp")), no_dead());
        let keep = state(&images, "99 0 0");
        let subject = Subject { pool: 1, txg: 1, root: [0; 4], leaves: Vec::new() };
        walk.kept = Some(Kept::begin(&keep, subject).unwrap());
        walk.objset(Scope::whole(dataset), &head).unwrap();
        let notes = walk.kept.take().unwrap().end();
        notes.iter().any(|note| note.contains("examined before"))
    };
    assert!(passed(1) && !passed(MOS));
}

/// Seen red: what was below it counted as examined by who could read it later.
#[test]
fn behind_what_could_not_be_read_nothing_is_kept() {
    let images = testkit::golden_copy("single");
    // Before the first of a chain is only the pool's origin: no other leads to it by a way of its own.
    let first = |set: &Dataset| set.snapshot && set.phys.prev_snap_txg.get() <= 1;
    let (_, entry, bp, home) = victim_in(images.path(), "single", first);
    let tree = tree(&images);
    let spoil = |bp: &BlkPtr| {
        for dva in bp.dvas() {
            let (image, at) = column(&tree, dva, bp.psize(), 0);
            flip(&image, at + 5);
        }
    };
    // First the block of dnodes cannot be read; then it can, and what it leads to is bad.
    spoil(&home);
    let whole = judge(images.path());
    let keep = Keep { every: 1, ..Keep::new(images.path().join("state")) };
    let options = Options { keep: Some(keep), ..Options::default() };
    let mut left = |p: crate::Progress| p.bytes < whole.bytes * 9 / 10;
    let stopped = verify_pool(&found(images.path()), &options, &mut left);
    assert!(matches!(stopped, Err(VerifyError::Abandoned)));
    spoil(&home);
    spoil(&bp);
    let report = verify_pool(&found(images.path()), &options, &mut |_| true).unwrap();
    assert!(report.lost_files().any(|file| file.object == entry.object), "{report:#?}");
}

/// Seen red: what was copied of a vdev that is being removed was leaked.
#[test]
fn what_was_copied_of_a_vdev_in_removal_is_claimed() {
    let pool = found(&testkit::golden("features"));
    let tree = pool.open_tree().unwrap();
    let mut walk = Walk::new(Blocks::new(&tree), no_dead(), no_dead());
    let mos = Mos::open(&mut walk.blocks, &pool.uberblocks[0].root).unwrap();
    let children = mos.config(&mut walk.blocks).unwrap().vdev_tree.children;
    let mut child = children.into_iter().find(|child| child.kind == VdevKind::Indirect).unwrap();
    crate::moved::claim(&mut walk, &mos, &child, 1 << 20);
    assert_eq!(walk.blocks.progress.bytes, 0);
    child.kind = VdevKind::Mirror;
    child.top = Some(TopConfig { removing: true, ..child.top.unwrap_or_default() });
    crate::moved::claim(&mut walk, &mos, &child, 1 << 20);
    assert!(walk.blocks.progress.bytes > 4096 && walk.findings.is_clean());
    crate::moved::claim(&mut walk, &mos, &child, 1);
    assert!(walk.findings.has(FindingKind::Unjudged));
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
